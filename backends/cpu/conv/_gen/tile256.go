package main

import "fmt"

// panel256 are the panels of AVX2's tiles of floats: how many vectors a row of the filter has, and the most pixels of a tile. Twelve
// accumulators hide the latency of a multiply-add (8 would do) and leave registers for a row and a pixel.
var panel256 = []struct{ vectors, pixels int }{{2, 6}, {1, 6}, {3, 4}}

func tiles256(dir string) {
	f := &file{}
	tables := ""
	for _, p := range panel256 {
		for h := 1; h <= p.pixels; h++ {
			f.floatTile256(h, p.vectors)
		}
		tables += table(fmt.Sprintf("tileAVX2x%d", 8*p.vectors), "tile", fmt.Sprintf("are the kernels of %d channels, by pixels.", 8*p.vectors),
			func(h int) string { return fmt.Sprintf("tileAVX2h%dx%d", h, 8*p.vectors) }, p.pixels)
	}
	f.write(dir, "tile_avx2_amd64", tileHeader, tables)
}

// floatTile256 computes h pixels by nv vectors of channels, of which the last may be short.
func (f *file) floatTile256(h, nv int) {
	f.text(fmt.Sprintf("tileAVX2h%dx%d", h, 8*nv), "tile", fmt.Sprintf("computes %d pixels by %d channels.", h, 8*nv))
	acc := func(i, v int) string { return fmt.Sprintf("Y%d", i*nv+v) }
	breg := func(v int) string { return fmt.Sprintf("Y%d", h*nv+v) }
	var areg []string
	for r := h*nv + nv; r < 16 && len(areg) < 2; r++ {
		areg = append(areg, fmt.Sprintf("Y%d", r))
	}
	each := func(do func(i, v int)) {
		for i := range h {
			for v := range nv {
				do(i, v)
			}
		}
	}
	const far = 12 // steps that the filter is fetched ahead
	high := h >= 3 // lower tiles are too few to be worth it, or the last ones of a panel

	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h, oARS)
	f.p("again:")
	each(func(i, v int) { f.p("\tVXORPS %s, %s, %s", acc(i, v), acc(i, v), acc(i, v)) })
	f.p("\tMOVQ %d(DI), BX", oB)
	if high {
		f.p("\tMOVQ %d(DI), R15", oAhead)
	}
	f.p("\tMOVQ %d(DI), SI", oOffs)
	f.p("\tMOVQ %d(DI), DX", oSegs)
	f.p("segment:")
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tADDQ (SI), AX")
	f.p("\tADDQ $8, SI")
	f.p("\tMOVQ %d(DI), CX", oK)
	step := func(at int) {
		for v := range nv {
			f.p("\tVMOVUPS %d(BX), %s", at*32*nv+v*32, breg(v))
		}
		for i := range h {
			a := areg[i%len(areg)]
			addr := rowAddr("AX", i)
			if at > 0 {
				addr = fmt.Sprintf("%d%s", 4*at, addr)
			}
			f.p("\tVBROADCASTSS %s, %s", addr, a)
			for v := range nv {
				f.p("\tVFMADD231PS %s, %s, %s", breg(v), a, acc(i, v))
			}
		}
	}
	f.p("\tSUBQ $2, CX")
	f.p("\tJLT odd")
	f.p("pair:")
	if high {
		for line := range nv {
			f.p("\tPREFETCHT0 %d(BX)", 32*nv*far+64*line)
		}
		for line := range (nv + 1) / 2 { // what comes next, at half the rate of what is read now
			f.p("\tPREFETCHT1 %d(R15)", 64*line)
		}
		f.p("\tADDQ $%d, R15", 32*nv)
	}
	step(0)
	step(1)
	f.p("\tADDQ $8, AX")
	f.p("\tADDQ $%d, BX", 2*32*nv)
	f.p("\tSUBQ $2, CX")
	f.p("\tJGE pair")
	f.p("odd:")
	f.p("\tADDQ $2, CX")
	f.p("\tJEQ next")
	step(0)
	f.p("\tADDQ $%d, BX", 32*nv)
	f.p("next:")
	f.p("\tDECQ DX")
	f.p("\tJNE segment")

	f.sums(floats, h, nv, 32, acc, breg)
	f.p("\tMOVQ %d(DI), AX", oInit)
	for v := range nv {
		f.p("\tVMOVUPS %d(AX), %s", v*32, breg(v))
	}
	each(func(i, v int) { f.p("\tVADDPS %s, %s, %s", breg(v), acc(i, v), acc(i, v)) })
	// The channels of the last vector: 1 to 8.
	f.p("\tMOVQ %d(DI), DX", oCols)
	f.p("\tSUBQ $%d, DX", 8*(nv-1))
	f.p("\tMOVQ %d(DI), AX", oRes)
	f.p("\tTESTQ AX, AX")
	f.p("\tJEQ limit")
	f.p("\tMOVQ %d(DI), CX", oLDR)
	f.p("\tLEAQ ·tails256+32(SB), BX")
	f.p("\tMOVQ DX, SI")
	f.p("\tSHLQ $2, SI")
	f.p("\tSUBQ SI, BX")
	mask, part := breg(0), areg[0]
	f.p("\tVMOVUPS (BX), %s", mask)
	for i := range h {
		for v := range nv {
			if v+1 < nv {
				f.p("\tVADDPS %d(AX), %s, %s", v*32, acc(i, v), acc(i, v))
				continue
			}
			f.p("\tVMASKMOVPS %d(AX), %s, %s", v*32, mask, part)
			f.p("\tVADDPS %s, %s, %s", part, acc(i, v), acc(i, v))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("limit:")
	var sums []string
	each(func(i, v int) { sums = append(sums, acc(i, v)) })
	f.activate("Y", sums, [4]string{"Y12", "Y13", "Y14", "Y15"}, oP, oQ, oMode, oS, oT, "")
	lo, hi := "Y12", "Y13"
	f.p("\tVBROADCASTSS %d(DI), %s", oLo, lo)
	f.p("\tVBROADCASTSS %d(DI), %s", oHi, hi)
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	each(func(i, v int) {
		f.p("\tVMAXPS %s, %s, %s", acc(i, v), lo, acc(i, v))
		f.p("\tVMINPS %s, %s, %s", acc(i, v), hi, acc(i, v))
	})
	f.p("\tCMPQ DX, $8")
	f.p("\tJNE short")
	for i := range h {
		for v := range nv {
			f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*32)
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tJMP stored")
	// Stores by a mask take some 40 instructions of microcode on AMD's processors: a short vector goes in pieces of 4, 2 and 1.
	f.p("short:")
	for i := range h {
		for v := range nv - 1 {
			f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*32)
		}
		last := acc(i, nv-1)
		low := "X" + last[1:]
		f.p("\tLEAQ %d(AX), BX", 32*(nv-1))
		f.p("\tTESTQ $4, DX")
		f.p("\tJEQ two%d", i)
		f.p("\tVMOVUPS %s, (BX)", low)
		f.p("\tVEXTRACTF128 $1, %s, %s", last, low)
		f.p("\tADDQ $16, BX")
		f.p("two%d:", i)
		f.p("\tTESTQ $2, DX")
		f.p("\tJEQ one%d", i)
		f.p("\tVMOVLPS %s, (BX)", low)
		f.p("\tVMOVHLPS %s, %s, %s", low, low, low)
		f.p("\tADDQ $8, BX")
		f.p("one%d:", i)
		f.p("\tTESTQ $1, DX")
		f.p("\tJEQ row%d", i)
		f.p("\tVMOVSS %s, (BX)", low)
		f.p("row%d:", i)
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tJMP stored")
	f.raw(floats, h, nv, 32, acc)
}
