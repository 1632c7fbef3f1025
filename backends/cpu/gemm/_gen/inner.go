package main

import "fmt"

// Offsets of the fields of kargs that only these kernels read.
const (
	oAPS  = 152
	oC2   = 160
	oMode = 168
)

const innerHeader = `
// Every kernel here computes a run of strips of h rows against a panel of B by Winograd's inner product: of four k, the words a0 a1 a2 a3
// of a row and b0 b1 b2 b3 of a column,
//
//	(a0+b2)(a2+b0) + (a1+b3)(a3+b1) = a0b0 + a1b1 + a2b2 + a3b3 + (a0a2 + a1a3) + (b0b2 + b1b3)
//
// which is one VPMADDWD where the plain way takes two, and two additions more; the last two terms are sums of a row and of a column, which
// packing subtracts. A processor that multiplies on two ports and adds on four runs this faster, although it has as many instructions.
//
// Rows of A lie 8 bytes apart in a step.
//
//	DI args     AX row 0 of A at k    BX panel of B at k    CX steps to go    DX bytes from a step to the next in A

`

// kernelInner emits h rows by nv vectors of 8 columns.
func (f *file) kernelInner(h, nv int) string {
	cols := nv * 8
	name := fmt.Sprintf("inner16AVX2h%dx%d", h, cols)
	f.text(name, fmt.Sprintf("multiplies %d rows by %d columns a step of four k, A and B as words.", h, cols))
	acc := func(i, v int) string { return fmt.Sprintf("Y%d", i*nv+v) }
	lo := func(v int) string { return fmt.Sprintf("Y%d", 8+v) }  // b0 b1 of 8 columns
	hi := func(v int) string { return fmt.Sprintf("Y%d", 10+v) } // b2 b3
	each := func(do func(i, v int)) {
		for i := 0; i < h; i++ {
			for v := 0; v < nv; v++ {
				do(i, v)
			}
		}
	}
	// down walks the rows of a C at AX, CX bytes apart.
	down := func(do func(i, v int)) {
		for i := 0; i < h; i++ {
			for v := 0; v < nv; v++ {
				do(i, v)
			}
			if i+1 < h {
				f.p("\tADDQ CX, AX")
			}
		}
	}

	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), DX", oACS)
	f.p("strip:")
	// The sums start from what is added once to each row and column. C joins them at the end: its lines come meanwhile.
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	down(func(i, v int) { f.p("\tPREFETCHT0 %d(AX)", 60*v) })
	f.p("\tMOVQ %d(DI), AX", oC2)
	f.p("\tTESTQ AX, AX")
	f.p("\tJEQ one")
	down(func(i, v int) { f.p("\tPREFETCHT0 %d(AX)", 60*v) })
	f.p("one:")
	f.p("\tMOVQ %d(DI), BX", oRows)
	each(func(i, v int) { f.p("\tVPBROADCASTD %d(BX), %s", 4*i, acc(i, v)) })
	f.p("\tCMPL %d(DI), $0", oFold)
	f.p("\tJEQ start")
	f.p("\tMOVQ %d(DI), BX", oComp)
	f.p("\tVPBROADCASTD %d(DI), Y12", oFold)
	for v := 0; v < nv; v++ {
		f.p("\tVPMULLD %d(BX), Y12, Y13", 32*v)
		for i := 0; i < h; i++ {
			f.p("\tVPADDD Y13, %s, %s", acc(i, v), acc(i, v))
		}
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tMOVQ %d(DI), BX", oB)
	f.p("\tMOVQ %d(DI), CX", oK)
	f.p("\tPCALIGN $32")
	f.p("loop:")
	for v := 0; v < nv; v++ {
		f.p("\tVMOVDQU %d(BX), %s", 32*v, lo(v))
		f.p("\tVMOVDQU %d(BX), %s", 64+32*v, hi(v))
	}
	for i := 0; i < h; i++ {
		f.p("\tVPBROADCASTD %d(AX), Y12", 8*i)
		f.p("\tVPBROADCASTD %d(AX), Y13", 8*i+4)
		f.p("\tVPADDW %s, Y12, Y14", hi(0))
		if nv > 1 {
			f.p("\tVPADDW %s, Y12, Y12", hi(1))
		}
		f.p("\tVPADDW %s, Y13, Y15", lo(0))
		if nv > 1 {
			f.p("\tVPADDW %s, Y13, Y13", lo(1))
		}
		f.p("\tVPMADDWD Y14, Y15, Y15")
		if nv > 1 {
			f.p("\tVPMADDWD Y12, Y13, Y13")
		}
		f.p("\tVPADDD Y15, %s, %s", acc(i, 0), acc(i, 0))
		if nv > 1 {
			f.p("\tVPADDD Y13, %s, %s", acc(i, 1), acc(i, 1))
		}
	}
	f.p("\tADDQ $128, BX")
	f.p("\tADDQ DX, AX")
	f.p("\tDECQ CX")
	f.p("\tJNZ loop")

	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tCMPQ %d(DI), $%d", oTail, cols)
	f.p("\tJGE whole")
	// A short panel has no second C.
	f.p("\tMOVQ %d(DI), R15", oTail)
	f.p("\tNEGQ R15")
	f.p("\tLEAQ laneMasks<>+64(SB), BX")
	f.p("\tLEAQ (BX)(R15*4), BX")
	for v := 0; v < nv; v++ {
		f.p("\tVMOVDQU %d(BX), %s", v*32, lo(v))
	}
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ shortStore")
	down(func(i, v int) {
		f.p("\tVMASKMOVPS %d(AX), %s, Y12", v*32, lo(v))
		f.p("\tVPADDD Y12, %s, %s", acc(i, v), acc(i, v))
	})
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("shortStore:")
	down(func(i, v int) { f.p("\tVMASKMOVPS %s, %s, %d(AX)", acc(i, v), lo(v), v*32) })
	f.p("\tJMP next")
	f.p("whole:")
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ store")
	down(func(i, v int) {
		f.p("\tVPADDD %d(AX), %s, Y12", v*32, acc(i, v))
		f.p("\tVMOVDQU Y12, %d(AX)", v*32)
	})
	f.p("\tJMP second")
	f.p("store:")
	down(func(i, v int) { f.p("\tVMOVDQU %s, %d(AX)", acc(i, v), v*32) })
	f.p("second:")
	f.p("\tMOVQ %d(DI), AX", oC2)
	f.p("\tTESTQ AX, AX")
	f.p("\tJEQ next")
	f.p("\tMOVQ %d(DI), BX", oMode)
	f.p("\tTESTQ BX, BX")
	f.p("\tJEQ copy")
	f.p("\tJLT subtract")
	down(func(i, v int) {
		f.p("\tVPADDD %d(AX), %s, Y12", v*32, acc(i, v))
		f.p("\tVMOVDQU Y12, %d(AX)", v*32)
	})
	f.p("\tJMP next")
	f.p("subtract:")
	down(func(i, v int) {
		f.p("\tVMOVDQU %d(AX), Y12", v*32)
		f.p("\tVPSUBD %s, Y12, Y12", acc(i, v))
		f.p("\tVMOVDQU Y12, %d(AX)", v*32)
	})
	f.p("\tJMP next")
	f.p("copy:")
	down(func(i, v int) { f.p("\tVMOVDQU %s, %d(AX)", acc(i, v), v*32) })
	f.p("next:")
	f.p("\tDECQ %d(DI)", oPanels)
	f.p("\tJZ end")
	f.p("\tMOVQ %d(DI), BX", oAPS)
	f.p("\tADDQ BX, %d(DI)", oA)
	f.p("\tIMULQ $%d, CX", h)
	f.p("\tADDQ CX, %d(DI)", oC)
	f.p("\tADDQ $16, %d(DI)", oRows)
	f.p("\tCMPQ %d(DI), $0", oC2)
	f.p("\tJEQ strip")
	f.p("\tADDQ CX, %d(DI)", oC2)
	f.p("\tJMP strip")
	f.p("end:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	return name
}

// inner writes the kernels and what prepares their operands.
func inner(out, tags string) {
	f, tables := &file{}, ""
	const mr = 4
	full, half := map[int]string{}, map[int]string{}
	for h := 1; h <= mr; h++ {
		full[h] = f.kernelInner(h, 2)
		half[h] = f.kernelInner(h, 1)
	}
	f.innerRows()
	f.innerPanel()
	tables += table("inner16AVX2full", "are the kernels of one panel, by height.", full, mr)
	tables += table("inner16AVX2half", "compute the lower 8 columns of a last panel.", half, mr)
	f.write(out, "kernels_inner16_avx2_amd64", tags, innerHeader+laneMasks, "\nimport \"unsafe\"\n"+tables)
}

// innerRows emits the packing of four rows of bytes as words, with the terms of Winograd's inner product that belong to the rows: of one
// source, and of the sums and differences of two that Strassen's algorithm multiplies.
func (f *file) innerRows() {
	for _, k := range []struct{ name, op, what string }{{"S8", "VPMOVSXBW", "signed"}, {"U8", "VPMOVZXBW", "unsigned"}} {
		for _, join := range innerJoins {
			name := "innerRows" + k.name + join.name + "AVX2"
			f.p("")
			f.p("// func %s(terms, dst, src, other unsafe.Pointer, lead, h, n int, zero int32)", name)
			f.p("TEXT ·%s(SB), NOSPLIT, $0-60", name)
			fmt.Fprintf(&f.stubs, "\n// %s packs four rows of n %s bytes, a multiple of 16, less zero%s, as words, four of each row in turn, and\n// subtracts a0a2 + a1a3 of each four from the term of its row. Rows lie lead bytes apart; from the h-th on, the last one is taken again.\n//\n//go:noescape\nfunc %s(terms, dst, src, other unsafe.Pointer, lead, h, n int, zero int32)\n", name, k.what, join.what, name)
			f.p("\tMOVQ terms+0(FP), BX")
			f.p("\tMOVQ dst+8(FP), DI")
			f.p("\tMOVQ src+16(FP), R8")
			f.p("\tMOVQ lead+32(FP), DX")
			f.p("\tMOVQ h+40(FP), R12")
			f.p("\tMOVQ n+48(FP), CX")
			rows := []string{"R8", "R9", "R10", "R11"}
			for i := 1; i < 4; i++ {
				f.p("\tLEAQ (%s)(DX*1), AX", rows[i-1])
				f.p("\tMOVQ %s, %s", rows[i-1], rows[i])
				f.p("\tCMPQ R12, $%d", i)
				f.p("\tCMOVQGT AX, %s", rows[i])
			}
			f.p("\tMOVL zero+56(FP), AX")
			if join.op == "VPADDW" {
				f.p("\tADDL AX, AX")
			}
			f.p("\tVMOVD AX, X12")
			f.p("\tVPBROADCASTW X12, Y12")
			f.p("\tXORQ AX, AX")
			if join.op == "" {
				f.p("\tLEAQ (AX)(DX*4), SI")
			} else {
				f.p("\tMOVQ other+24(FP), SI")
				f.p("\tSUBQ R8, SI")
			}
			for i := 0; i < 4; i++ {
				f.p("\tVPXOR Y%d, Y%d, Y%d", 8+i, 8+i, 8+i)
			}
			f.p("loop:")
			for i, r := range rows {
				f.p("\t%s (%s)(AX*1), Y%d", k.op, r, i)
				if join.op == "" {
					f.p("\tPREFETCHT0 (%s)(SI*1) // of the next strip", r)
				} else {
					f.p("\t%s (%s)(SI*1), Y4", k.op, r)
					f.p("\t%s Y4, Y%d, Y%d", join.op, i, i)
				}
				if join.op != "VPSUBW" {
					f.p("\tVPSUBW Y12, Y%d, Y%d", i, i)
				}
			}
			for i := range rows {
				f.p("\tVPSHUFD $0xb1, Y%d, Y4", i)
				f.p("\tVPMADDWD Y%d, Y4, Y4 // each term twice", i)
				f.p("\tVPADDD Y4, Y%d, Y%d", 8+i, 8+i)
			}
			for i := 0; i < 2; i++ {
				f.p("\tVPUNPCKLQDQ Y%d, Y%d, Y%d", 2*i+1, 2*i, 4+2*i)
				f.p("\tVPUNPCKHQDQ Y%d, Y%d, Y%d", 2*i+1, 2*i, 5+2*i)
			}
			for i, half := range []string{"0x20", "0x20", "0x31", "0x31"} {
				f.p("\tVPERM2I128 $%s, Y%d, Y%d, Y%d", half, 6+i%2, 4+i%2, i)
				f.p("\tVMOVDQU Y%d, %d(DI)", i, 32*i)
			}
			f.p("\tADDQ $128, DI")
			f.p("\tADDQ $16, AX")
			f.p("\tADDQ $16, SI")
			f.p("\tCMPQ AX, CX")
			f.p("\tJLT loop")
			for i := 0; i < 4; i++ {
				f.p("\tVEXTRACTI128 $1, Y%d, X0", 8+i)
				f.p("\tVPADDD X0, X%d, X%d", 8+i, 8+i)
				f.p("\tVPSHUFD $0x4e, X%d, X0", 8+i)
				f.p("\tVPADDD X0, X%d, X%d", 8+i, 8+i)
				f.p("\tVMOVD X%d, AX", 8+i)
				f.p("\tSUBL AX, %d(BX)", 4*i)
			}
			f.p("\tVZEROUPPER")
			f.p("\tRET")
		}
	}
}

// wordRows emits the copy of rows of bytes as words.
func (f *file) wordRows() {
	for _, k := range []struct{ name, op, what string }{{"S8", "VPMOVSXBW", "signed"}, {"U8", "VPMOVZXBW", "unsigned"}} {
		name := "wordRows" + k.name + "AVX2"
		f.p("")
		f.p("// func %s(dst, src unsafe.Pointer, pitch, lead, h, n int)", name)
		f.p("TEXT ·%s(SB), NOSPLIT, $0-48", name)
		fmt.Fprintf(&f.stubs, "\n// %s copies h rows of n %s bytes, a multiple of 16, from lead to pitch bytes apart, as words.\n//\n//go:noescape\nfunc %s(dst, src unsafe.Pointer, pitch, lead, h, n int)\n", name, k.what, name)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ src+8(FP), SI")
		f.p("\tMOVQ pitch+16(FP), R8")
		f.p("\tMOVQ lead+24(FP), R9")
		f.p("\tMOVQ h+32(FP), R10")
		f.p("\tMOVQ n+40(FP), CX")
		f.p("row:")
		f.p("\tXORQ AX, AX")
		f.p("loop:")
		f.p("\t%s (SI)(AX*1), Y0", k.op)
		f.p("\tVMOVDQU Y0, (DI)(AX*2)")
		f.p("\tADDQ $16, AX")
		f.p("\tCMPQ AX, CX")
		f.p("\tJLT loop")
		f.p("\tADDQ R8, DI")
		f.p("\tADDQ R9, SI")
		f.p("\tDECQ R10")
		f.p("\tJNZ row")
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
}

// innerJoins are the forms of an operand of Strassen's products.
var innerJoins = []struct{ name, op, what string }{
	{"", "", ""}, {"Sum", "VPADDW", ", and of other, summed"}, {"Difference", "VPSUBW", ", less other's"},
}

// innerPanel emits the widening of a panel of signed bytes, with the terms of Winograd's inner product that belong to the columns.
func (f *file) innerPanel() {
	for _, join := range innerJoins {
		name := "innerPanel" + join.name + "AVX2"
		f.p("")
		f.p("// func %s(terms, dst, src, other unsafe.Pointer, pairs int)", name)
		f.p("TEXT ·%s(SB), NOSPLIT, $0-40", name)
		fmt.Fprintf(&f.stubs, "\n// %s widens pairs of k of a panel of 16 columns%s to words, filled up with zeros to whole groups of four k, and\n// writes -(b0b2 + b1b3) of each four, summed, as the terms of the columns.\n//\n//go:noescape\nfunc %s(terms, dst, src, other unsafe.Pointer, pairs int)\n", name, join.what, name)
		f.p("\tMOVQ terms+0(FP), BX")
		f.p("\tMOVQ dst+8(FP), DI")
		f.p("\tMOVQ src+16(FP), SI")
		f.p("\tMOVQ other+24(FP), DX")
		f.p("\tMOVQ pairs+32(FP), CX")
		f.p("\tVPXOR Y4, Y4, Y4")
		f.p("\tVPXOR Y5, Y5, Y5")
		load := func(v int) {
			f.p("\tVPMOVSXBW %d(SI), Y%d", 16*v, v)
			if join.op != "" {
				f.p("\tVPMOVSXBW %d(DX), Y%d", 16*v, 6+v)
				f.p("\t%s Y%d, Y%d, Y%d", join.op, 6+v, v, v)
			}
			f.p("\tVMOVDQU Y%d, %d(DI)", v, 32*v)
		}
		f.p("\tSUBQ $2, CX")
		f.p("\tJLT rest")
		f.p("loop:")
		for v := 0; v < 4; v++ {
			load(v)
		}
		f.p("\tVPMADDWD Y0, Y2, Y2")
		f.p("\tVPMADDWD Y1, Y3, Y3")
		f.p("\tVPSUBD Y2, Y4, Y4")
		f.p("\tVPSUBD Y3, Y5, Y5")
		f.p("\tADDQ $64, SI")
		f.p("\tADDQ $64, DX")
		f.p("\tADDQ $128, DI")
		f.p("\tSUBQ $2, CX")
		f.p("\tJGE loop")
		f.p("rest:")
		f.p("\tTESTQ $1, CX")
		f.p("\tJEQ terms")
		load(0)
		load(1)
		f.p("\tVPXOR Y2, Y2, Y2")
		f.p("\tVMOVDQU Y2, 64(DI)")
		f.p("\tVMOVDQU Y2, 96(DI)")
		f.p("terms:")
		f.p("\tVMOVDQU Y4, (BX)")
		f.p("\tVMOVDQU Y5, 32(BX)")
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
}
