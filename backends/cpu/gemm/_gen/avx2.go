package main

import "fmt"

// bWay is how a kernel takes B: panel after panel from L2, or one panel that stays for many strips, perhaps packing another one meanwhile.
type bWay int

const (
	across bWay = iota
	down
	downPack
)

// fastAVX2 emits h rows by two vectors of 8 columns for a B that is packed, in f32, and an A that is packed or lies in rows: steps are
// constants, so a multiply-add needs no arithmetic of addresses, and what comes next is fetched meanwhile. Each step asks for a quarter, a half
// or all of a line of the next chunk of B, and a panel for the tile of C of the one after it and for two lines of each row of the next strip of A.
func (f *file) fastAVX2(h int, form aForm, way bWay) string {
	const nv, cols, bStep = 2, 16, 64
	unroll := 4
	name, how := fmt.Sprintf("f32AVX2h%dx%dp", h, cols), "A and B packed"
	aStep := 4 * ((h + 7) / 8 * 8)
	if form == rowsA {
		name, how = fmt.Sprintf("f32AVX2h%dx%dr", h, cols), "B packed, A by rows"
		aStep = 4
	}
	switch way {
	case down:
		name, how, unroll = name+"d", how+", for a panel that lies in L1", 8
	case downPack:
		name, how, unroll = name+"dk", how+", for a panel that lies in L1, and packs another one", 8
	}
	f.text(name, fmt.Sprintf("multiplies %d rows by %d columns a step, %s.", h, cols, how))
	acc := func(i, v int) string { return fmt.Sprintf("Y%d", i*nv+v) }
	breg := func(v int) string { return fmt.Sprintf("Y%d", 12+v) }
	f.p("\tMOVQ p+0(FP), DI")
	if form == rowsA {
		f.strides(h)
	}
	f.p("panel:")
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ fresh")
	f.isShort(cols, "loadFull")
	f.masks(nv, breg)
	f.tile(h, nv, func(i, v int) {
		f.p("\tVMASKMOVPS %d(AX), %s, %s", v*32, breg(v), acc(i, v))
	})
	f.p("\tJMP start")
	f.p("loadFull:")
	f.tile(h, nv, func(i, v int) { f.p("\tVMOVUPS %d(AX), %s", v*32, acc(i, v)) })
	f.p("\tJMP start")
	f.p("fresh:")
	for i := 0; i < h*nv; i++ {
		f.p("\tVXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), SI", oAhead)
	if way != downPack {
		f.p("\tTESTQ SI, SI")
		f.p("\tJEQ near")
	}
	f.p("\tMOVQ %d(DI), DX", oAheadS)
	f.p("\tADDQ SI, DX")
	f.p("\tMOVQ DX, %d(DI)", oAhead)
	f.p("\tMOVQ %d(DI), DX", oCStep)
	f.p("\tCMPQ %d(DI), $1", oPanels)
	f.p("\tCMOVQEQ %d(DI), DX // after the last tile of the run", oNextC)
	f.p("\tADDQ %d(DI), DX", oC)
	if way != across {
		f.p("\tMOVQ DX, %d(DI)", oTile)
	}
	for i := 0; i < h; i++ {
		f.p("\tPREFETCHT%d %d(DX)", map[bool]int{true: 0, false: 1}[way == across], cols*4-4) // its first line, unless C is aligned, belongs to this tile too
		if i+1 < h {
			f.p("\tADDQ CX, DX")
		}
	}
	f.p("\tMOVQ %d(DI), DX", oNextA)
	f.p("\tMOVQ %d(DI), CX", oNextAS)
	f.p("\tMOVQ %d(DI), R11", oNextAM)
	f.p("\tADDQ R11, %d(DI)", oNextA)
	for i := 0; i < h; i++ {
		f.p("\tPREFETCHT1 (DX)")
		f.p("\tPREFETCHT1 64(DX)")
		if i+1 < h {
			f.p("\tADDQ CX, DX")
		}
	}
	f.p("\tMOVQ %d(DI), DX", oAheadL)
	if way != downPack {
		f.p("\tJMP sums")
		f.p("near: // nothing to fetch: the address stays in A")
		f.p("\tMOVQ %d(DI), SI", oA)
		f.p("\tXORL DX, DX")
		f.p("sums:")
	}
	switch way {
	case across:
		f.p("\tLEAQ (DX)(DX*2), R11")
	case downPack:
		f.p("\tMOVQ %d(DI), SI", oPackFr)
		f.p("\tMOVQ %d(DI), R13", oPackTo)
		f.p("\tMOVQ %d(DI), DX", oBKS)
	}
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tMOVQ %d(DI), BX", oB)
	f.p("\tMOVQ %d(DI), CX", oK)
	step := func(u int) {
		if way == downPack && u == 4 {
			// Rows a multiple of 4 KiB apart share a set of L1, which holds no more of them.
			f.p("\tPREFETCHT1 %d(SI)(DX*8)", cols*4-4)
			f.p("\tPREFETCHT0 %d(SI)(DX*4)", cols*4-4)
			for v := 0; v < nv; v++ {
				f.p("\tVMOVUPS %d(SI), %s", 32*v, breg(v))
				f.p("\tVMOVUPS %s, %d(R13)", breg(v), 32*v)
			}
			f.p("\tADDQ DX, SI")
			f.p("\tADDQ $%d, R13", bStep)
		}
		for v := 0; v < nv; v++ {
			f.p("\tVMOVUPS %d(BX), %s", u*bStep+32*v, breg(v))
		}
		switch {
		case way == across:
			f.p("\tPREFETCHT0 %d(BX)", u*bStep+nearPrefetch)
			f.p("\tPREFETCHT1 %s", []string{"(SI)", "(SI)(DX*1)", "(SI)(DX*2)", "(SI)(R11*1)"}[u%4])
		case way == down && u == 4:
			f.p("\tPREFETCHT1 (SI)")
		}
		for i := 0; i < h; i++ {
			a := fmt.Sprintf("Y%d", 14+i%2)
			if form == rowsA {
				f.p("\tVBROADCASTSS %s, %s", withDisp(rowAddr(i), u*aStep), a)
			} else {
				f.p("\tVBROADCASTSS %d(AX), %s", u*aStep+4*i, a)
			}
			for v := 0; v < nv; v++ {
				f.p("\tVFMADD231PS %s, %s, %s", breg(v), a, acc(i, v))
			}
		}
	}
	move := func() {
		f.p("\tADDQ $%d, AX", unroll*aStep)
		f.p("\tADDQ $%d, BX", unroll*bStep)
		switch way {
		case across:
			f.p("\tLEAQ (SI)(DX*%d), SI", unroll)
		case down:
			f.p("\tADDQ DX, SI")
		}
	}
	if way != across {
		// Sums that are held go to C, a row every eight steps.
		held := func() {
			for v := 0; v < nv; v++ {
				f.p("\tVMOVUPS %d(R14), %s", 32*v, breg(v))
				f.p("\tVMOVUPS %s, %d(R11)", breg(v), 32*v)
			}
			f.p("\tADDQ $%d, R14", cols*4)
			f.p("\tADDQ R12, R11")
		}
		f.p("\tMOVQ %d(DI), R11", oHeldC)
		f.p("\tTESTQ R11, R11")
		f.p("\tJEQ main")
		f.p("\tMOVQ %d(DI), R12", oLDC)
		f.p("\tMOVQ %d(DI), R14", oHold)
		f.p("\tMOVL $%d, R15", h)
		f.p("\tCMPQ CX, $%d", h*unroll)
		f.p("\tJGE held")
		f.p("few: // steps")
		held()
		f.p("\tDECQ R15")
		f.p("\tJNZ few")
		f.p("\tJMP main")
		f.p("\tPCALIGN $32")
		f.p("held:")
		held()
		for u := 0; u < unroll; u++ {
			step(u)
		}
		move()
		f.p("\tDECQ R15")
		f.p("\tJNZ held")
		f.p("\tSUBQ $%d, CX", h*unroll)
		f.p("main:")
		f.p("\tSUBQ $%d, CX", (h+1)*unroll)
		f.p("\tJLT late")
	} else {
		f.p("\tSUBQ $%d, CX", unroll)
		f.p("\tJLT rest")
	}
	f.p("\tPCALIGN $32")
	f.p("loop:")
	for u := 0; u < unroll; u++ {
		step(u)
	}
	move()
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJGE loop")
	if way != across {
		f.p("late:")
		f.p("\tADDQ $%d, CX", h*unroll)
		f.p("\tJLT rest")
		f.p("\tMOVQ %d(DI), R11", oTile)
		f.p("\tMOVQ %d(DI), R12", oLDC)
		f.p("\tPCALIGN $32")
		f.p("lateLoop:")
		f.p("\tPREFETCHT0 (R11)")
		f.p("\tPREFETCHT0 %d(R11)", cols*4-4)
		f.p("\tADDQ R12, R11")
		for u := 0; u < unroll; u++ {
			step(u)
		}
		move()
		f.p("\tSUBQ $%d, CX", unroll)
		f.p("\tJGE lateLoop")
	}
	f.p("rest:")
	f.p("\tADDQ $%d, CX", unroll)
	f.p("\tJZ done")
	f.p("single:")
	step(0)
	f.p("\tADDQ $%d, AX", aStep)
	f.p("\tADDQ $%d, BX", bStep)
	f.p("\tDECQ CX")
	f.p("\tJNZ single")
	f.p("done:")
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	if way != across {
		f.p("\tCMPQ %d(DI), $1", oPanels)
		f.p("\tJEQ last")
		f.p("\tCMPQ %d(DI), $0", oAcc)
		f.p("\tJEQ storeFull // nothing of C is loaded")
		f.p("\tMOVQ AX, %d(DI)", oHeldC)
		f.p("\tMOVQ %d(DI), AX", oHold)
		for i := 0; i < h*nv; i++ {
			f.p("\tVMOVUPS %s, %d(AX)", acc(i/nv, i%nv), 32*i)
		}
		f.p("\tJMP next")
		f.p("last:")
		f.p("\tMOVQ $0, %d(DI)", oHeldC)
	}
	f.isShort(cols, "storeFull")
	f.masks(nv, breg)
	f.tile(h, nv, func(i, v int) {
		f.p("\tVMASKMOVPS %s, %s, %d(AX)", acc(i, v), breg(v), v*32)
	})
	f.p("\tJMP next")
	f.p("storeFull:")
	f.tile(h, nv, func(i, v int) { f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*32) })
	f.p("next:")
	if way == downPack {
		f.p("\tMOVQ SI, %d(DI)", oPackFr)
		f.p("\tMOVQ R13, %d(DI)", oPackTo)
	}
	f.p("\tDECQ %d(DI)", oPanels)
	f.p("\tJZ end")
	for _, o := range [][2]int{{oAStep, oA}, {oBPS, oB}, {oCStep, oC}} {
		f.p("\tMOVQ %d(DI), BX", o[0])
		f.p("\tADDQ BX, %d(DI)", o[1])
	}
	f.p("\tJMP panel")
	f.p("end:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	return name
}

// nearPrefetch is the distance in bytes at which high kernels ask for B, which comes from L2.
const nearPrefetch = 512

// tile emits what is done for each vector of a tile of C, whose row is at AX and moves by CX.
func (f *file) tile(h, nv int, each func(i, v int)) {
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			each(i, v)
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
}

// isShort goes to label unless the panel is the last one and has fewer columns than cols.
func (f *file) isShort(cols int, label string) {
	f.p("\tCMPQ %d(DI), $1", oPanels)
	f.p("\tJNE %s", label)
	f.p("\tCMPQ %d(DI), $%d", oTail, cols)
	f.p("\tJGE %s", label)
}

// masks loads the masks of the columns of a short panel: those of vector v are the lanes below tail-8v.
func (f *file) masks(nv int, reg func(v int) string) {
	f.p("\tMOVQ %d(DI), R15", oTail)
	f.p("\tNEGQ R15")
	f.p("\tLEAQ laneMasks<>+%d(SB), BX", 64)
	f.p("\tLEAQ (BX)(R15*4), BX")
	for v := 0; v < nv; v++ {
		f.p("\tVMOVDQU %d(BX), %s", v*32, reg(v))
	}
}

// lowAVX2 emits h rows by np whole panels of 16 columns, for the few rows that are bound by the memory that B comes from: B passes through
// one register, or is an operand of the multiply-add, so that there are enough sums in flight, and is asked for far ahead.
func (f *file) lowAVX2(fam family512, h, np int) string {
	const nv, panel = 2, 16
	n := nv * np
	name := fmt.Sprintf("%sAVX2h%dx%d", fam.name, h, panel*np)
	f.text(name, fmt.Sprintf("multiplies %d rows by %d columns a step, B as %s.", h, panel*np, fam.b))
	acc := func(i, v int) string { return fmt.Sprintf("Y%d", i*n+v) }
	areg := func(i int) string { return fmt.Sprintf("Y%d", h*n+i) }
	const breg = "Y15"
	mask := ""
	if h*n+h < 15 {
		mask = "Y14" // of the upper halves of pairs of bf16
	}
	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h)
	f.p("\tMOVQ %d(DI), R10", oBPS)
	f.p("\tLEAQ (R10)(R10*2), R11")
	if fam.b == "bf16" && mask != "" {
		f.p("\tVPCMPEQD %s, %s, %s", mask, mask, mask)
		f.p("\tVPSLLD $16, %s, %s", mask, mask)
	}
	f.p("panel:")
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ fresh")
	f.tile(h, n, func(i, v int) { f.p("\tVMOVUPS %d(AX), %s", v*32, acc(i, v)) })
	f.p("\tJMP start")
	f.p("fresh:")
	for i := 0; i < h*n; i++ {
		f.p("\tVXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tMOVQ %d(DI), BX", oB)
	f.p("\tMOVQ %d(DI), CX", oK)
	bytesV := 32
	if fam.b == "f16" {
		bytesV = 16
	}
	at := func(v, ahead int) string {
		return withDisp([]string{"(BX)", "(BX)(R10*1)", "(BX)(R10*2)", "(BX)(R11*1)"}[v/nv], v%nv*bytesV+ahead)
	}
	lead := func() {
		for i := 0; i < h; i++ {
			f.p("\tVBROADCASTSS %s, %s", rowAddr(i), areg(i))
		}
		f.p("\tADDQ DX, AX")
	}
	multiply := func(v int, b string) {
		for i := 0; i < h; i++ {
			f.p("\tVFMADD231PS %s, %s, %s", b, areg(i), acc(i, v))
		}
	}
	// The values of even k are the lower halves of pairs of bf16, those of odd k the upper ones.
	even := func() {
		lead()
		for v := 0; v < n; v++ {
			f.p("\tVMOVDQU %s, %s", at(v, 0), breg)
			f.p("\tVPSLLD $16, %s, %s", breg, breg)
			multiply(v, breg)
		}
	}
	step := func() {
		for p := 0; p < np; p++ {
			f.p("\tPREFETCHT0 %s", at(p*nv, farPrefetch))
		}
		switch fam.b {
		case "bf16":
			even()
			lead()
			for v := 0; v < n; v++ {
				if mask != "" {
					f.p("\tVPAND %s, %s, %s", at(v, 0), mask, breg)
				} else {
					f.p("\tVMOVDQU %s, %s", at(v, 0), breg)
					f.p("\tVPSRLD $16, %s, %s", breg, breg)
					f.p("\tVPSLLD $16, %s, %s", breg, breg)
				}
				multiply(v, breg)
			}
		case "f16":
			lead()
			for v := 0; v < n; v++ {
				f.p("\tVCVTPH2PS %s, %s", at(v, 0), breg)
				multiply(v, breg)
			}
		default:
			lead()
			for v := 0; v < n; v++ {
				if h == 1 {
					multiply(v, at(v, 0))
					continue
				}
				f.p("\tVMOVUPS %s, %s", at(v, 0), breg)
				multiply(v, breg)
			}
		}
		f.p("\tADDQ SI, BX")
	}
	unroll := 4
	if fam.b == "bf16" {
		unroll = 2
		f.p("\tSHRQ $1, CX")
		f.p("\tJZ odd")
	}
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJLT rest")
	f.p("\tPCALIGN $32")
	f.p("loop:")
	for u := 0; u < unroll; u++ {
		step()
	}
	f.p("\tSUBQ $%d, CX", unroll)
	f.p("\tJGE loop")
	f.p("rest:")
	f.p("\tADDQ $%d, CX", unroll)
	f.p("\tJZ done")
	f.p("single:")
	step()
	f.p("\tDECQ CX")
	f.p("\tJNZ single")
	f.p("done:")
	if fam.b == "bf16" {
		f.p("odd:")
		f.p("\tTESTQ $1, %d(DI)", oK)
		f.p("\tJZ store")
		even()
		f.p("store:")
	}
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.tile(h, n, func(i, v int) { f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*32) })
	f.p("\tDECQ %d(DI)", oPanels)
	f.p("\tJZ end")
	f.p("\tIMUL3Q $%d, R10, BX", np)
	f.p("\tADDQ BX, %d(DI)", oB)
	f.p("\tADDQ $%d, %d(DI)", panel*np*4, oC)
	f.p("\tJMP panel")
	f.p("end:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	return name
}

// lowPanels says how many panels a low kernel of AVX2 takes at once.
func lowPanels(h int) int { return []int{0, 4, 3, 2}[h] }
