package main

import "fmt"

// packing emits what moves operands into panels.
func (f *file) packing() {
	// transpose8: 8 rows x n columns of 4 bytes, in tiles of 8 x 8. Rows are loaded in halves, so that the first of the three
	// levels of the transposition is done by the loads.
	f.p("")
	f.p("// func transpose8AVX2(p *transposeArgs)")
	f.p("TEXT ·transpose8AVX2(SB), NOSPLIT, $0-8")
	fmt.Fprintf(&f.stubs, "\n// transpose8AVX2 moves eight rows into a panel.\n//\n//go:noescape\nfunc transpose8AVX2(p *transposeArgs)\n")
	f.p("\tMOVQ p+0(FP), DI")
	regs := []string{"R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}
	for i, r := range regs {
		f.p("\tMOVQ %d(DI), %s", i*8, r)
	}
	f.p("\tMOVQ 64(DI), AX")
	f.p("\tMOVQ 72(DI), CX")
	f.p("\tMOVQ 80(DI), DX")
	f.p("\tVPBROADCASTD 88(DI), Y15")
	f.p("\tLEAQ (DX)(DX*2), SI")
	f.p("\tXORQ BX, BX")
	f.p("loop:")
	// low halves: rows 0-3 with rows 4-7 above; columns 0-3 and 4-7
	for half := 0; half < 2; half++ {
		d := half * 16
		for i := 0; i < 4; i++ {
			f.p("\tVMOVDQU %d(%s)(BX*1), X%d", d, regs[i], half*4+i)
		}
		for i := 0; i < 4; i++ {
			f.p("\tVINSERTI128 $1, %d(%s)(BX*1), Y%d, Y%d", d, regs[i+4], half*4+i, half*4+i)
		}
	}
	for half := 0; half < 2; half++ {
		b := half * 4
		f.p("\tVPUNPCKLDQ Y%d, Y%d, Y8", b+1, b)
		f.p("\tVPUNPCKHDQ Y%d, Y%d, Y9", b+1, b)
		f.p("\tVPUNPCKLDQ Y%d, Y%d, Y10", b+3, b+2)
		f.p("\tVPUNPCKHDQ Y%d, Y%d, Y11", b+3, b+2)
		f.p("\tVPUNPCKLQDQ Y10, Y8, Y12")
		f.p("\tVPUNPCKHQDQ Y10, Y8, Y13")
		f.p("\tVPUNPCKLQDQ Y11, Y9, Y14")
		f.p("\tVPUNPCKHQDQ Y11, Y9, Y8")
		for _, r := range []int{12, 13, 14, 8} {
			f.p("\tVPXOR Y%d, Y15, Y%d", r, r)
		}
		f.p("\tVMOVDQU Y12, (AX)")
		f.p("\tVMOVDQU Y13, (AX)(DX*1)")
		f.p("\tVMOVDQU Y14, (AX)(DX*2)")
		f.p("\tVMOVDQU Y8, (AX)(SI*1)")
		f.p("\tLEAQ (AX)(DX*4), AX")
	}
	f.p("\tADDQ $32, BX")
	f.p("\tSUBQ $8, CX")
	f.p("\tJG loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")

	f.p("")
	f.p("// func copyRowsAVX2(dst, src unsafe.Pointer, bytes, pitch, n int)")
	f.p("TEXT ·copyRowsAVX2(SB), NOSPLIT, $0-40")
	fmt.Fprintf(&f.stubs, "\n// copyRowsAVX2 moves n rows of bytes, pitch apart, to dst side by side.\n//\n//go:noescape\nfunc copyRowsAVX2(dst, src unsafe.Pointer, bytes, pitch, n int)\n")
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ bytes+16(FP), BX")
	f.p("\tMOVQ pitch+24(FP), DX")
	f.p("\tMOVQ n+32(FP), CX")
	f.p("\tCMPQ BX, $128")
	f.p("\tJEQ wide")
	f.p("row:")
	f.p("\tXORQ AX, AX")
	f.p("inner:")
	f.p("\tVMOVDQU (SI)(AX*1), Y0")
	f.p("\tVMOVDQU Y0, (DI)(AX*1)")
	f.p("\tADDQ $32, AX")
	f.p("\tCMPQ AX, BX")
	f.p("\tJLT inner")
	f.p("\tADDQ DX, SI")
	f.p("\tADDQ BX, DI")
	f.p("\tDECQ CX")
	f.p("\tJNZ row")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	f.p("wide:")
	for i := 0; i < 4; i++ {
		f.p("\tVMOVDQU %d(SI), Y%d", i*32, i)
	}
	f.p("\tPREFETCHT0 (SI)(DX*8)")
	f.p("\tPREFETCHT0 64(SI)(DX*8)")
	for i := 0; i < 4; i++ {
		f.p("\tVMOVDQU Y%d, %d(DI)", i, i*32)
	}
	f.p("\tADDQ DX, SI")
	f.p("\tADDQ $128, DI")
	f.p("\tDECQ CX")
	f.p("\tJNZ wide")
	f.p("\tVZEROUPPER")
	f.p("\tRET")

	// sumGroups: sums of four bytes a lane over steps; lanes is a multiple of 8. VPMADDUBSW by ones gives pairs that fit 16
	// bits (2*255, or 2*128 in size), VPMADDWD by ones their sums.
	f.p("")
	f.p("// func sumGroupsAVX2(sums, src unsafe.Pointer, steps, step, lanes int, unsigned bool)")
	f.p("TEXT ·sumGroupsAVX2(SB), NOSPLIT, $0-41")
	fmt.Fprintf(&f.stubs, "\n// sumGroupsAVX2 adds the four bytes of each lane over all steps.\n//\n//go:noescape\nfunc sumGroupsAVX2(sums, src unsafe.Pointer, steps, step, lanes int, unsigned bool)\n")
	f.p("\tMOVQ sums+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ step+24(FP), DX")
	f.p("\tMOVQ lanes+32(FP), BX")
	f.p("\tVPCMPEQD Y15, Y15, Y15")
	f.p("\tVPABSB Y15, Y14 // bytes of one")
	f.p("\tVPSRLW $15, Y15, Y13 // words of one")
	f.p("\tMOVBLZX unsigned+40(FP), R8")
	f.p("lane:")
	f.p("\tMOVQ SI, AX")
	f.p("\tMOVQ steps+16(FP), CX")
	f.p("\tVPXOR Y0, Y0, Y0")
	f.p("\tTESTL R8, R8")
	f.p("\tJEQ signed")
	f.p("unsigned:")
	f.p("\tVMOVDQU (AX), Y1")
	f.p("\tVPMADDUBSW Y14, Y1, Y1")
	f.p("\tVPMADDWD Y13, Y1, Y1")
	f.p("\tVPADDD Y1, Y0, Y0")
	f.p("\tADDQ DX, AX")
	f.p("\tDECQ CX")
	f.p("\tJNZ unsigned")
	f.p("\tJMP done")
	f.p("signed:")
	f.p("\tVPMADDUBSW (AX), Y14, Y1")
	f.p("\tVPMADDWD Y13, Y1, Y1")
	f.p("\tVPADDD Y1, Y0, Y0")
	f.p("\tADDQ DX, AX")
	f.p("\tDECQ CX")
	f.p("\tJNZ signed")
	f.p("done:")
	f.p("\tVMOVDQU Y0, (DI)")
	f.p("\tADDQ $32, DI")
	f.p("\tADDQ $32, SI")
	f.p("\tSUBQ $8, BX")
	f.p("\tJG lane")
	f.p("\tVZEROUPPER")
	f.p("\tRET")

	f.p("")
	f.p("// func flipLinesAVX2(dst, src unsafe.Pointer, n int)")
	f.p("TEXT ·flipLinesAVX2(SB), NOSPLIT, $0-24")
	fmt.Fprintf(&f.stubs, "\n// flipLinesAVX2 copies n bytes, a multiple of 64, with their top bits inverted.\n//\n//go:noescape\nfunc flipLinesAVX2(dst, src unsafe.Pointer, n int)\n")
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ n+16(FP), CX")
	f.p("\tMOVL $0x80808080, AX")
	f.p("\tVMOVD AX, X2")
	f.p("\tVPBROADCASTD X2, Y2")
	f.p("loop:")
	f.p("\tVPXOR (SI), Y2, Y0")
	f.p("\tVPXOR 32(SI), Y2, Y1")
	f.p("\tVMOVDQU Y0, (DI)")
	f.p("\tVMOVDQU Y1, 32(DI)")
	f.p("\tADDQ $64, SI")
	f.p("\tADDQ $64, DI")
	f.p("\tSUBQ $64, CX")
	f.p("\tJG loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")

	// sumBytes32: the bytes of a row, 32 at a time, by VPSADBW, which adds eight unsigned bytes; signed ones are taken 128 higher.
	f.p("")
	f.p("// func sumBytes32AVX2(sums, src unsafe.Pointer, lead, h, n int, unsigned bool)")
	f.p("TEXT ·sumBytes32AVX2(SB), NOSPLIT, $0-41")
	fmt.Fprintf(&f.stubs, "\n// sumBytes32AVX2 writes the sums of h rows, lead bytes apart, of n bytes, a multiple of 32.\n//\n//go:noescape\nfunc sumBytes32AVX2(sums, src unsafe.Pointer, lead, h, n int, unsigned bool)\n")
	f.p("\tMOVQ sums+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ lead+16(FP), DX")
	f.p("\tMOVQ h+24(FP), R8")
	f.p("\tMOVQ n+32(FP), R9")
	f.p("\tMOVBLZX unsigned+40(FP), AX")
	f.p("\tVPXOR Y15, Y15, Y15")
	f.p("\tVPXOR Y14, Y14, Y14 // what the bytes are flipped with")
	f.p("\tXORQ R10, R10 // what flipping added")
	f.p("\tTESTL AX, AX")
	f.p("\tJNE row")
	f.p("\tMOVL $0x80808080, AX")
	f.p("\tVMOVD AX, X14")
	f.p("\tVPBROADCASTD X14, Y14")
	f.p("\tMOVQ R9, R10")
	f.p("\tSHLQ $7, R10")
	f.p("row:")
	f.p("\tMOVQ SI, AX")
	f.p("\tMOVQ R9, CX")
	f.p("\tVPXOR Y0, Y0, Y0")
	f.p("line:")
	f.p("\tVPXOR (AX), Y14, Y1")
	f.p("\tVPSADBW Y15, Y1, Y1")
	f.p("\tVPADDQ Y1, Y0, Y0")
	f.p("\tADDQ $32, AX")
	f.p("\tSUBQ $32, CX")
	f.p("\tJG line")
	f.p("\tVEXTRACTI128 $1, Y0, X1")
	f.p("\tVPADDQ X1, X0, X0")
	f.p("\tVPSRLDQ $8, X0, X1")
	f.p("\tVPADDQ X1, X0, X0")
	f.p("\tVMOVQ X0, AX")
	f.p("\tSUBQ R10, AX")
	f.p("\tMOVL AX, (DI)")
	f.p("\tADDQ $4, DI")
	f.p("\tADDQ DX, SI")
	f.p("\tDECQ R8")
	f.p("\tJNZ row")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// sumBytes512 emits the sums of rows of bytes of any length. Lanes past the end are zero before the flip and 128 after it, as if
// the row went on to the end of the vector.
func (f *file) sumBytes512() {
	f.p("")
	f.p("// func sumBytesAVX512(sums, src unsafe.Pointer, lead, h, n int, unsigned bool)")
	f.p("TEXT ·sumBytesAVX512(SB), NOSPLIT, $0-41")
	fmt.Fprintf(&f.stubs, "\n// sumBytesAVX512 writes the sums of h rows, lead bytes apart, of n bytes, 1 or more.\n//\n//go:noescape\nfunc sumBytesAVX512(sums, src unsafe.Pointer, lead, h, n int, unsigned bool)\n")
	f.p("\tMOVQ sums+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ lead+16(FP), DX")
	f.p("\tMOVQ h+24(FP), R8")
	f.p("\tMOVQ n+32(FP), R9")
	f.p("\tMOVBLZX unsigned+40(FP), AX")
	f.p("\tDECQ R9")
	f.p("\tMOVQ R9, BX")
	f.p("\tANDQ $63, BX")
	f.p("\tINCQ BX // bytes of the last vector")
	f.p("\tMOVQ $-1, R11")
	f.p("\tBZHIQ BX, R11, R11")
	f.p("\tKMOVQ R11, K1")
	f.p("\tSHRQ $6, R9 // vectors before it")
	f.p("\tVPXORQ Z15, Z15, Z15")
	f.p("\tVPXORQ Z14, Z14, Z14 // what the bytes are flipped with")
	f.p("\tXORQ R10, R10 // what flipping added")
	f.p("\tTESTL AX, AX")
	f.p("\tJNE row")
	f.p("\tMOVL $0x80808080, AX")
	f.p("\tVPBROADCASTD AX, Z14")
	f.p("\tMOVQ R9, R10")
	f.p("\tINCQ R10")
	f.p("\tSHLQ $13, R10")
	f.p("row:")
	f.p("\tMOVQ SI, AX")
	f.p("\tMOVQ R9, CX")
	f.p("\tVPXORQ Z0, Z0, Z0")
	f.p("\tTESTQ CX, CX")
	f.p("\tJEQ last")
	f.p("line:")
	f.p("\tVPXORQ (AX), Z14, Z1")
	f.p("\tVPSADBW Z15, Z1, Z1")
	f.p("\tVPADDQ Z1, Z0, Z0")
	f.p("\tADDQ $64, AX")
	f.p("\tDECQ CX")
	f.p("\tJNZ line")
	f.p("last:")
	f.p("\tVMOVDQU8.Z (AX), K1, Z1")
	f.p("\tVPXORQ Z1, Z14, Z1")
	f.p("\tVPSADBW Z15, Z1, Z1")
	f.p("\tVPADDQ Z1, Z0, Z0")
	f.p("\tVEXTRACTI64X4 $1, Z0, Y1")
	f.p("\tVPADDQ Y1, Y0, Y0")
	f.p("\tVEXTRACTI128 $1, Y0, X1")
	f.p("\tVPADDQ X1, X0, X0")
	f.p("\tVPSRLDQ $8, X0, X1")
	f.p("\tVPADDQ X1, X0, X0")
	f.p("\tVMOVQ X0, AX")
	f.p("\tSUBQ R10, AX")
	f.p("\tMOVL AX, (DI)")
	f.p("\tADDQ $4, DI")
	f.p("\tADDQ DX, SI")
	f.p("\tDECQ R8")
	f.p("\tJNZ row")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// transposeRows emits the transposition of 16 rows of 2-byte elements, or of pairs of them. Eight rows and a cache line of each are read at
// a time: all 16 may lie in one set of L1, which has eight ways. What is fetched meanwhile are the 16 rows that follow.
func (f *file) transposeRows(pairs bool) {
	name, what := "transposeHalvesAVX2", "2-byte elements"
	if pairs {
		name, what = "transposePairsAVX2", "pairs of 2-byte elements"
	}
	f.p("")
	f.p("// func %s(dst, src unsafe.Pointer, lead, n, step int)", name)
	f.p("TEXT ·%s(SB), NOSPLIT, $0-40", name)
	fmt.Fprintf(&f.stubs, "\n// %s moves 16 rows, lead bytes apart, of %s, n lines of 64 bytes, to columns, step bytes apart.\n//\n//go:noescape\nfunc %s(dst, src unsafe.Pointer, lead, n, step int)\n", name, what, name)
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ src+8(FP), AX")
	f.p("\tMOVQ lead+16(FP), R8")
	f.p("\tMOVQ n+24(FP), CX")
	f.p("\tMOVQ step+32(FP), DX")
	f.p("\tLEAQ (DX)(DX*2), SI")
	f.p("\tLEAQ (R8)(R8*2), R9")
	f.p("\tLEAQ (R8)(R8*4), R10")
	f.p("\tLEAQ (R9)(R8*4), R11")
	f.p("\tLEAQ (AX)(R8*8), BX")
	f.p("\tLEAQ (BX)(R8*8), R12")
	rows := []string{"", "(R8*1)", "(R8*2)", "(R9*1)", "(R8*4)", "(R10*1)", "(R9*2)", "(R11*1)"}
	at := func(base string, row, d int) string { return withDisp("("+base+")"+rows[row], d) }
	columns := []string{"(R13)", "(R13)(DX*1)", "(R13)(DX*2)", "(R13)(SI*1)"}
	// halves: lanes of eight elements; columns 0-7 of the tile come to be in the lower lanes, 8-15 in the upper ones.
	halves := func(base string, from, to int) {
		for i := 0; i < 8; i++ {
			f.p("\tVMOVDQU %s, Y%d", at(base, i, from), i)
		}
		for i := 0; i < 8; i += 2 { // columns 0-3 to Y8 and on, 4-7 to Y0 and on; pairs of rows
			f.p("\tVPUNPCKLWD Y%d, Y%d, Y%d", i+1, i, 8+i/2)
			f.p("\tVPUNPCKHWD Y%d, Y%d, Y%d", i+1, i, i/2)
		}
		f.p("\tLEAQ (R13)(DX*8), R14")
		for _, r := range []int{8, 0} {
			f.p("\tVPUNPCKLDQ Y%d, Y%d, Y12", r+1, r)
			f.p("\tVPUNPCKHDQ Y%d, Y%d, Y13", r+1, r)
			f.p("\tVPUNPCKLDQ Y%d, Y%d, Y14", r+3, r+2)
			f.p("\tVPUNPCKHDQ Y%d, Y%d, Y15", r+3, r+2)
			for i, q := range [2][2]int{{12, 14}, {13, 15}} {
				f.p("\tVPUNPCKLQDQ Y%d, Y%d, Y%d", q[1], q[0], r+2*i)
				f.p("\tVPUNPCKHQDQ Y%d, Y%d, Y%d", q[1], q[0], r+2*i+1)
			}
			for i, c := range columns {
				f.p("\tVMOVDQU X%d, %s", r+i, withDisp(c, to))
				f.p("\tVEXTRACTI128 $1, Y%d, %s", r+i, withDisp("(R14"+c[4:], to))
			}
			if r == 8 {
				f.p("\tLEAQ (R13)(DX*4), R13")
				f.p("\tLEAQ (R14)(DX*4), R14")
			}
		}
		f.p("\tLEAQ (R14)(DX*4), R13")
	}
	// words: rows lie above those four before them, so that two levels of unpacking do.
	words := func(base string, from, to int) {
		for half := 0; half < 2; half++ {
			for i := 0; i < 4; i++ {
				f.p("\tVMOVDQU %s, X%d", at(base, i, from+16*half), i)
			}
			for i := 0; i < 4; i++ {
				f.p("\tVINSERTI128 $1, %s, Y%d, Y%d", at(base, i+4, from+16*half), i, i)
			}
			f.p("\tVPUNPCKLDQ Y1, Y0, Y8")
			f.p("\tVPUNPCKHDQ Y1, Y0, Y9")
			f.p("\tVPUNPCKLDQ Y3, Y2, Y10")
			f.p("\tVPUNPCKHDQ Y3, Y2, Y11")
			for i, q := range [2][2]int{{8, 10}, {9, 11}} {
				f.p("\tVPUNPCKLQDQ Y%d, Y%d, Y%d", q[1], q[0], 2*i)
				f.p("\tVPUNPCKHQDQ Y%d, Y%d, Y%d", q[1], q[0], 2*i+1)
			}
			for i, c := range columns {
				f.p("\tVMOVDQU Y%d, %s", i, withDisp(c, to))
			}
			f.p("\tLEAQ (R13)(DX*4), R13")
		}
	}
	f.p("loop:")
	for i := 0; i < 16; i++ {
		f.p("\tPREFETCHT1 %d(R12)", 64*i)
	}
	f.p("\tADDQ $1024, R12")
	for g, base := range []string{"AX", "BX"} {
		f.p("\tMOVQ DI, R13")
		for tile := 0; tile < 2; tile++ {
			if pairs {
				words(base, 32*tile, 32*g)
			} else {
				halves(base, 32*tile, 16*g)
			}
		}
	}
	f.p("\tMOVQ R13, DI")
	f.p("\tADDQ $64, AX")
	f.p("\tADDQ $64, BX")
	f.p("\tDECQ CX")
	f.p("\tJNZ loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// copyPanels emits the packing of several panels of a row-major f32 B at once: each row is read as far as the panels reach, which
// prefetchers and page tables like better than a panel at a time.
func (f *file) copyPanels() {
	f.p("")
	f.p("// func copyPanelsAVX2(dst, src unsafe.Pointer, pitch, rows, panels, stride, bytes int)")
	f.p("TEXT ·copyPanelsAVX2(SB), NOSPLIT, $0-56")
	fmt.Fprintf(&f.stubs, "\n// copyPanelsAVX2 moves rows of panels times bytes, a multiple of 64, pitch apart, to panels that are stride apart.\n//\n//go:noescape\nfunc copyPanelsAVX2(dst, src unsafe.Pointer, pitch, rows, panels, stride, bytes int)\n")
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ pitch+16(FP), DX")
	f.p("\tMOVQ rows+24(FP), CX")
	f.p("\tMOVQ stride+40(FP), R9")
	f.p("\tMOVQ bytes+48(FP), R10")
	f.p("\tLEAQ (DX*4), R11 // rows are fetched four ahead")
	f.p("row:")
	f.p("\tMOVQ panels+32(FP), R8")
	f.p("\tMOVQ DI, AX")
	f.p("\tMOVQ SI, BX")
	f.p("panel:")
	f.p("\tXORQ R12, R12")
	f.p("line:")
	f.p("\tVMOVDQU (BX), Y0")
	f.p("\tVMOVDQU 32(BX), Y1")
	f.p("\tPREFETCHT0 (BX)(R11*1)")
	f.p("\tVMOVDQU Y0, (AX)(R12*1)")
	f.p("\tVMOVDQU Y1, 32(AX)(R12*1)")
	f.p("\tADDQ $64, BX")
	f.p("\tADDQ $64, R12")
	f.p("\tCMPQ R12, R10")
	f.p("\tJLT line")
	f.p("\tADDQ R9, AX")
	f.p("\tDECQ R8")
	f.p("\tJNZ panel")
	f.p("\tADDQ DX, SI")
	f.p("\tADDQ R10, DI")
	f.p("\tDECQ CX")
	f.p("\tJNZ row")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// interleaves emits what packs a row-major B whose groups of k lie in different rows: 16 columns of kr rows become 16 groups. Rows
// that are needed eight groups later are fetched meanwhile, because no prefetcher follows a stride of a row.
func (f *file) interleaves() {
	for _, c := range []struct {
		name, doc string
		rows      int
		load      func(reg int, from string)
		body      func()
	}{
		{"interleave2x16", "pairs of 2-byte elements", 2, func(reg int, from string) { f.p("\tVMOVDQU %s, Y%d", from, reg) }, func() {
			f.p("\tVPUNPCKLWD Y1, Y0, Y4")
			f.p("\tVPUNPCKHWD Y1, Y0, Y5")
			f.p("\tVPERM2I128 $0x20, Y5, Y4, Y6")
			f.p("\tVPERM2I128 $0x31, Y5, Y4, Y7")
			f.p("\tVMOVDQU Y6, (DI)(BX*2)")
			f.p("\tVMOVDQU Y7, 32(DI)(BX*2)")
			f.p("\tADDQ $32, BX")
		}},
		{"interleave4x8", "fours of bytes", 4, func(reg int, from string) { f.p("\tVMOVDQU %s, X%d", from, reg) }, func() {
			f.p("\tVPUNPCKLBW X1, X0, X4")
			f.p("\tVPUNPCKHBW X1, X0, X5")
			f.p("\tVPUNPCKLBW X3, X2, X6")
			f.p("\tVPUNPCKHBW X3, X2, X7")
			f.p("\tVPUNPCKLWD X6, X4, X0")
			f.p("\tVPUNPCKHWD X6, X4, X1")
			f.p("\tVPUNPCKLWD X7, X5, X2")
			f.p("\tVPUNPCKHWD X7, X5, X3")
			for i := 0; i < 4; i++ {
				f.p("\tVPXOR X%d, X15, X%d", i, i)
				f.p("\tVMOVDQU X%d, %d(DI)(BX*4)", i, 16*i)
			}
			f.p("\tADDQ $16, BX")
		}},
		{"interleave2x8", "pairs of bytes", 2, func(reg int, from string) { f.p("\tVMOVDQU %s, X%d", from, reg) }, func() {
			f.p("\tVPUNPCKLBW X1, X0, X4")
			f.p("\tVPUNPCKHBW X1, X0, X5")
			f.p("\tVMOVDQU X4, (DI)(BX*2)")
			f.p("\tVMOVDQU X5, 16(DI)(BX*2)")
			f.p("\tADDQ $16, BX")
		}},
	} {
		name := c.name + "AVX2"
		f.p("")
		f.p("// func %s(dst, src unsafe.Pointer, pitch, groups, step, bytes int, flip uint32)", name)
		f.p("TEXT ·%s(SB), NOSPLIT, $0-52", name)
		fmt.Fprintf(&f.stubs, "\n// %s makes %s of rows of bytes, pitch apart: each group of rows becomes step bytes, xored with flip.\n//\n//go:noescape\nfunc %s(dst, src unsafe.Pointer, pitch, groups, step, bytes int, flip uint32)\n", name, c.doc, name)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ src+8(FP), SI")
		f.p("\tMOVQ pitch+16(FP), R8")
		f.p("\tMOVQ groups+24(FP), CX")
		f.p("\tMOVQ step+32(FP), DX")
		f.p("\tMOVQ bytes+40(FP), R12")
		f.p("\tMOVL flip+48(FP), AX")
		f.p("\tVMOVD AX, X15")
		f.p("\tVPBROADCASTD X15, X15")
		f.p("\tLEAQ (SI)(R8*1), R9")
		f.p("\tLEAQ (SI)(R8*2), R10")
		f.p("\tLEAQ (R9)(R8*2), R11")
		f.p("\tIMUL3Q $%d, R8, R8 // to the next group", c.rows)
		f.p("\tLEAQ (R8*8), R13")
		f.p("group:")
		regs := []string{"SI", "R9", "R10", "R11"}[:c.rows]
		f.p("\tLEAQ (SI)(R13*1), AX")
		f.p("\tPREFETCHT0 (AX)")
		for i := 1; i < c.rows; i++ {
			f.p("\tLEAQ (%s)(R13*1), AX", regs[i])
			f.p("\tPREFETCHT0 (AX)")
		}
		f.p("\tXORQ BX, BX")
		f.p("columns:")
		for i, r := range regs {
			c.load(i, "("+r+")(BX*1)")
		}
		c.body()
		f.p("\tCMPQ BX, R12")
		f.p("\tJLT columns")
		for _, r := range regs {
			f.p("\tADDQ R8, %s", r)
		}
		f.p("\tADDQ DX, DI")
		f.p("\tDECQ CX")
		f.p("\tJNZ group")
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
}

// transposes512 emits, for each height that fills more than half a vector, the transposition of h rows into steps of 16 rows:
// lanes of 4 rows are gathered by the loads, and two levels of unpacking turn four columns at once. Source lines and panel
// lines are both used whole.
//
// The widening form takes pairs of bf16 and gives two steps of f32 for each.
func (f *file) transposes512(widen bool) string {
	entries := map[int]string{}
	what, doc := "transpose", "4-byte elements"
	if widen {
		what, doc = "transposeWiden", "pairs of bf16, widened,"
	}
	for h := 9; h <= 16; h++ {
		if h == 15 {
			continue
		}
		name := fmt.Sprintf("%sAVX512h%d", what, h)
		entries[h] = name
		f.p("")
		f.p("// func %s(dst, src unsafe.Pointer, lead, n, step int)", name)
		f.p("TEXT ·%s(SB), NOSPLIT, $0-40", name)
		fmt.Fprintf(&f.stubs, "\n// %s moves %d rows, lead bytes apart, of n %s into a panel; n is a multiple of 4.\n//\n//go:noescape\nfunc %s(dst, src unsafe.Pointer, lead, n, step int)\n", name, h, doc, name)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ src+8(FP), AX")
		f.p("\tMOVQ lead+16(FP), R8")
		f.p("\tMOVQ n+24(FP), CX")
		f.p("\tMOVQ step+32(FP), DX")
		f.p("\tLEAQ (DX)(DX*2), SI")
		if widen {
			f.p("\tMOVL $0xffff0000, BX")
			f.p("\tVPBROADCASTD BX, Z31")
		}
		f.p("\tLEAQ (R8)(R8*2), R9")
		f.p("\tLEAQ (R8)(R8*4), R10")
		f.p("\tLEAQ (R9)(R8*4), R11")
		f.p("\tLEAQ (R8)(R8*8), R12")
		f.p("\tLEAQ (R9)(R8*8), R13")
		f.p("\tLEAQ (R10)(R8*8), R14")
		f.p("\tLEAQ (R11)(R8*8), R15")
		quad := func(col, z int) {
			for i := 0; i < 4; i++ {
				f.p("\tVMOVDQU %s, X%d", withDisp(row16(i), col*4), z+i)
			}
			for l := 1; l < 4; l++ {
				for i := 0; i < 4; i++ {
					if r := l*4 + i; r < h {
						f.p("\tVINSERTI32X4 $%d, %s, Z%d, Z%d", l, withDisp(row16(r), col*4), z+i, z+i)
					}
				}
			}
			f.p("\tVPUNPCKLDQ Z%d, Z%d, Z%d", z+1, z, z+4)
			f.p("\tVPUNPCKHDQ Z%d, Z%d, Z%d", z+1, z, z+5)
			f.p("\tVPUNPCKLDQ Z%d, Z%d, Z%d", z+3, z+2, z+6)
			f.p("\tVPUNPCKHDQ Z%d, Z%d, Z%d", z+3, z+2, z+7)
			f.p("\tVPUNPCKLQDQ Z%d, Z%d, Z%d", z+6, z+4, z)
			f.p("\tVPUNPCKHQDQ Z%d, Z%d, Z%d", z+6, z+4, z+1)
			f.p("\tVPUNPCKLQDQ Z%d, Z%d, Z%d", z+7, z+5, z+2)
			f.p("\tVPUNPCKHQDQ Z%d, Z%d, Z%d", z+7, z+5, z+3)
			if widen {
				for i := 0; i < 4; i++ {
					f.p("\tVPSLLD $16, Z%d, Z%d", z+i, z+4+i)
					f.p("\tVPANDD Z%d, Z31, Z%d", z+i, z+i)
				}
				for i := 0; i < 2; i++ {
					f.p("\tVMOVDQU32 Z%d, (DI)", z+4+2*i)
					f.p("\tVMOVDQU32 Z%d, (DI)(DX*1)", z+2*i)
					f.p("\tVMOVDQU32 Z%d, (DI)(DX*2)", z+5+2*i)
					f.p("\tVMOVDQU32 Z%d, (DI)(SI*1)", z+1+2*i)
					f.p("\tLEAQ (DI)(DX*4), DI")
				}
				return
			}
			f.p("\tVMOVDQU32 Z%d, (DI)", z)
			f.p("\tVMOVDQU32 Z%d, (DI)(DX*1)", z+1)
			f.p("\tVMOVDQU32 Z%d, (DI)(DX*2)", z+2)
			f.p("\tVMOVDQU32 Z%d, (DI)(SI*1)", z+3)
			f.p("\tLEAQ (DI)(DX*4), DI")
		}
		f.p("\tSUBQ $16, CX")
		f.p("\tJLT rest")
		f.p("loop:")
		for q := 0; q < 4; q++ {
			quad(q*4, q%2*8)
		}
		f.p("\tADDQ $64, AX")
		f.p("\tSUBQ $16, CX")
		f.p("\tJGE loop")
		f.p("rest:")
		f.p("\tADDQ $16, CX")
		f.p("\tJZ done")
		f.p("single:")
		quad(0, 0)
		f.p("\tADDQ $16, AX")
		f.p("\tSUBQ $4, CX")
		f.p("\tJG single")
		f.p("done:")
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
	var s string
	s += "\n// " + what + "sAVX512 are the transpositions by height.\nvar " + what + "sAVX512 = [17]func(dst, src unsafe.Pointer, lead, n, step int){\n"
	for h := 9; h <= 16; h++ {
		if entries[h] != "" {
			s += fmt.Sprintf("\t%d: %s,\n", h, entries[h])
		}
	}
	return s + "}\n"
}

func row16(i int) string {
	if i == 15 {
		return "(AX)(R15*1)"
	}
	return rowAddr(i)
}

func withDisp(a string, d int) string {
	if d == 0 {
		return a
	}
	return fmt.Sprintf("%d%s", d, a)
}
