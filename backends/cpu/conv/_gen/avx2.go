package main

import "fmt"

func avx2(dir string) {
	tiles256(dir)
	for _, k := range []element{bytes8, words16, words8} {
		f := &file{}
		for h := 1; h <= 6; h++ {
			f.tile256(k, h)
		}
		f.write(dir, k.file+"_avx2_amd64", tileHeader+dotHeader, table(k.tile+"AVX2x16", "tile", "are the kernels of 16 channels, by pixels.",
			func(h int) string { return fmt.Sprintf("%sAVX2h%dx16", k.tile, h) }, 6))
	}
	s := &file{}
	for _, op := range []string{"Mul", "Max"} {
		for h := 1; h <= stripMax256; h++ {
			s.strip256(op, h)
		}
	}
	s.write(dir, "strip_avx2_amd64", stripHeader,
		table("stripMulAVX2", "strip", "multiply and add, by pixels.", func(h int) string { return fmt.Sprintf("stripMulAVX2h%d", h) }, stripMax256)+
			table("stripMaxAVX2", "strip", "take the maximum, by pixels.", func(h int) string { return fmt.Sprintf("stripMaxAVX2h%d", h) }, stripMax256))
}

const stripMax256 = 8

// tile256 always stores 16 channels; the driver gives it memory for them.
func (f *file) tile256(k element, h int) {
	const nv = 2
	vector, load := 32, "VMOVUPS" // of the filter
	if k == words8 {
		vector, load = 16, "VPMOVSXBW"
	}
	name := fmt.Sprintf("%sAVX2h%dx16", k.tile, h)
	f.text(name, "tile", fmt.Sprintf("computes %d pixels by 16 channels.", h))
	acc := func(i, v int) string { return fmt.Sprintf("Y%d", i*nv+v) }
	breg := func(v int) string { return fmt.Sprintf("Y%d", h*nv+v) }
	var areg []string
	for r := h*nv + nv; r < 16 && len(areg) < 2; r++ {
		areg = append(areg, fmt.Sprintf("Y%d", r))
	}
	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h, oARS)
	f.p("again:")
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVXORPS %s, %s, %s", acc(i, v), acc(i, v), acc(i, v))
		}
	}
	const far = 12 // steps that the filter is fetched ahead
	high := h >= 3 // lower tiles are too few to be worth it, or the last ones of a panel
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
		for v := 0; v < nv; v++ {
			f.p("\t%s %d(BX), %s", load, (at*nv+v)*vector, breg(v))
		}
		for i := 0; i < h; i++ {
			a, addr := areg[i%len(areg)], rowAddr("AX", i)
			if k != bytes8 {
				a = areg[0]
			}
			if at > 0 {
				addr = fmt.Sprintf("%d%s", 4*at, addr)
			}
			f.p("\tVBROADCASTSS %s, %s", addr, a)
			if k != bytes8 { // both products before the sums: the second may take the place of the pixel
				products := [nv]string{areg[1], a}
				for v, t := range products {
					f.p("\tVPMADDWD %s, %s, %s", breg(v), a, t)
				}
				for v, t := range products {
					f.p("\tVPADDD %s, %s, %s", t, acc(i, v), acc(i, v))
				}
				continue
			}
			for v := 0; v < nv; v++ {
				f.mulAdd(k, breg(v), a, acc(i, v), "")
			}
		}
	}
	f.p("\tSUBQ $2, CX")
	f.p("\tJLT odd")
	f.p("\tPCALIGN $64")
	f.p("pair:")
	if high {
		for line := range 2 * nv * vector / 64 {
			f.p("\tPREFETCHT0 %d(BX)", vector*nv*far+64*line)
		}
		f.p("\tPREFETCHT1 (R15)") // what comes next, at half the rate of what is read now
		f.p("\tADDQ $64, R15")
	}
	step(0)
	step(1)
	f.p("\tADDQ $8, AX")
	f.p("\tADDQ $%d, BX", 2*nv*vector)
	f.p("\tSUBQ $2, CX")
	f.p("\tJGE pair")
	f.p("odd:")
	f.p("\tADDQ $2, CX")
	f.p("\tJEQ next")
	step(0)
	f.p("\tADDQ $%d, BX", nv*vector)
	f.p("next:")
	f.p("\tDECQ DX")
	f.p("\tJNE segment")
	f.sums(k, h, nv, 32, acc, breg)
	f.p("\tMOVQ %d(DI), AX", oInit)
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVADDPS %d(AX), %s, %s", v*32, acc(i, v), acc(i, v))
		}
	}
	f.p("\tMOVQ %d(DI), AX", oRes)
	f.p("\tTESTQ AX, AX")
	f.p("\tJEQ limit")
	f.p("\tMOVQ %d(DI), CX", oLDR)
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVADDPS %d(AX), %s, %s", v*32, acc(i, v), acc(i, v))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("limit:")
	var sums []string
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			sums = append(sums, acc(i, v))
		}
	}
	f.activate("Y", sums, [4]string{"Y12", "Y13", "Y14", "Y15"}, oP, oQ, oMode, oS, oT, "")
	f.p("\tVBROADCASTSS %d(DI), %s", oLo, breg(0))
	f.p("\tVBROADCASTSS %d(DI), %s", oHi, areg[0])
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	for _, r := range sums {
		f.p("\tVMAXPS %s, %s, %s", r, breg(0), r)
		f.p("\tVMINPS %s, %s, %s", r, areg[0], r)
	}
	f.p("\tCMPQ %d(DI), $0", oNarrow)
	f.p("\tJNE bytes")
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*32)
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tJMP stored")
	f.p("bytes:")
	for i, field := range []int{oQScale, oQLo, oQHi, oQZero} {
		f.p("\tVBROADCASTSS %d(DI), Y%d", field, 12+i)
	}
	for _, r := range sums { // as gemm.Quantize
		f.p("\tVMULPS %s, Y12, %s", r, r)
		f.p("\tVMAXPS Y13, %s, %s", r, r)
		f.p("\tVMINPS %s, Y14, %s", r, r)
		f.p("\tVCVTPS2DQ %s, %s", r, r)
		f.p("\tVPADDD Y15, %s, %s", r, r)
	}
	f.p("\tVPCMPEQW Y15, Y15, Y15")
	f.p("\tVPSRLW $8, Y15, Y15")
	for i := range h {
		r := acc(i, 0)
		low := "X" + r[1:]
		f.p("\tVPACKSSDW %s, %s, %s", acc(i, 1), r, r)
		f.p("\tVPERMQ $0xd8, %s, %s", r, r)
		f.p("\tVPAND Y15, %s, %s", r, r) // the bits of signed bytes
		f.p("\tVEXTRACTI128 $1, %s, X12", r)
		f.p("\tVPACKUSWB X12, %s, %s", low, low)
		f.p("\tVMOVDQU %s, (AX)", low)
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tJMP stored")
	f.raw(k, h, nv, 32, acc)
}

// strip256 takes whole blocks of 8 channels; the driver runs the rest in Go.
func (f *file) strip256(op string, h int) {
	name := fmt.Sprintf("strip%sAVX2h%d", op, h)
	what := "multiplies and adds"
	if op == "Max" {
		what = "takes the maximum of"
	}
	f.text(name, "strip", fmt.Sprintf("%s %d pixels.", what, h))
	acc := func(i int) string { return fmt.Sprintf("Y%d", i) }
	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h, sXS)
	f.p("\tVBROADCASTSS %d(DI), Y14", sLo)
	f.p("\tVBROADCASTSS %d(DI), Y15", sHi)
	f.p("\tXORQ DX, DX")
	f.p("block:")
	f.p("\tMOVQ %d(DI), AX", sInit)
	f.p("\tVMOVUPS (AX)(DX*1), Y9")
	for i := 0; i < h; i++ {
		if op == "Max" {
			f.p("\tVMOVAPS Y9, %s", acc(i))
		} else {
			f.p("\tVXORPS %s, %s, %s", acc(i), acc(i), acc(i))
		}
	}
	f.p("\tMOVQ %d(DI), BX", sW)
	f.p("\tADDQ DX, BX")
	f.p("\tMOVQ %d(DI), SI", sOffs)
	f.p("\tMOVQ %d(DI), CX", sTaps)
	f.p("tap:")
	f.p("\tMOVQ %d(DI), AX", sX)
	f.p("\tADDQ (SI), AX")
	f.p("\tADDQ DX, AX")
	if op == "Mul" {
		f.p("\tMOVQ 8(SI), R15")
		f.p("\tVMOVUPS (BX)(R15*1), Y12")
	}
	f.p("\tADDQ $16, SI")
	for i := 0; i < h; i++ {
		if op == "Mul" {
			f.p("\tVFMADD231PS %s, Y12, %s", rowAddr("AX", i), acc(i))
			continue
		}
		f.p("\tVCMPPS $3, %s, %s, Y12", acc(i), acc(i))
		f.p("\tVMAXPS %s, %s, Y13", rowAddr("AX", i), acc(i))
		f.p("\tVBLENDVPS Y12, %s, Y13, %s", acc(i), acc(i))
	}
	f.p("\tDECQ CX")
	f.p("\tJNE tap")
	for i := 0; i < h && op == "Mul"; i++ {
		f.p("\tVADDPS Y9, %s, %s", acc(i), acc(i))
	}
	var sums []string
	for i := 0; i < h; i++ {
		sums = append(sums, acc(i))
	}
	f.activate("Y", sums, [4]string{"Y10", "Y11", "Y12", "Y13"}, sP, sQ, sMode, sS, sT, "")
	f.p("\tMOVQ %d(DI), AX", sC)
	f.p("\tADDQ DX, AX")
	f.p("\tMOVQ %d(DI), CX", sLDC)
	for i := 0; i < h; i++ {
		f.p("\tVMAXPS %s, Y14, %s", acc(i), acc(i))
		f.p("\tVMINPS %s, Y15, %s", acc(i), acc(i))
		f.p("\tVMOVUPS %s, (AX)", acc(i))
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tADDQ $32, DX")
	f.p("\tSUBQ $8, %d(DI)", sN)
	f.p("\tJGT block")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}
