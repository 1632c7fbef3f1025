package main

import (
	"fmt"
	"strings"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

const headerNEON = `
// Kernels for NEON with dot products. A panel has 16 lanes: four vectors. Bytes of weights are taken as signed, which those of up
// to six bits are anyway.

`

func (f *file) i(in e.Insn) { f.p("\t%v", in) }

// rowsNEON is the most rows of A that a kernel takes: integer and float sums of more do not fit the registers.
const rowsNEON = 3

// The registers of the dot kernels: A, weights, integer and float sums.
func nA(i int) int      { return i }
func nB(v int) int      { return 4 + v }
func nInt(i, v int) int { return 20 + 4*i + v }
func nSum(i, v int) int { return 8 + 4*i + v }

// sumsNEON starts the sums of rows: from C, whose rows lie R7 bytes apart from R6 on, or zero.
func (f *file) sumsNEON(rows int) {
	f.p("\tMOVD %d(R0), R6", argC)
	f.p("\tMOVD %d(R0), R7", argLdc)
	// R12 lanes are inside C; the others pass through the stack.
	f.p("\tMOVD %d(R0), R12", argMask)
	f.p("\tAND $0xffff, R12")
	f.p("\tCLZ R12, R12")
	f.p("\tMOVD $64, R13")
	f.p("\tSUB R12, R13, R12")
	for i := range rows {
		for v := range 4 {
			r := nSum(i, v)
			f.p("\tVEOR V%d.B16, V%d.B16, V%d.B16", r, r, r)
		}
	}
	f.p("\tMOVD %d(R0), R13", argAcc)
	f.p("\tCBZ R13, start")
	f.p("\tMOVD R6, R14")
	f.p("\tMOVD R7, R15")
	f.p("\tCMP $16, R12")
	f.p("\tBEQ load")
	f.copyNEON(rows, true)
	f.p("load:")
	for i := range rows {
		for v := range 4 {
			f.p("\tFMOVQ %d(R14), F%d", 16*v, nSum(i, v))
		}
		if i+1 < rows {
			f.p("\tADD R15, R14")
		}
	}
	f.p("start:")
}

// copyNEON copies R12 lanes of rows between C and the stack; when it is to the stack, R14 and R15 are then its address and pitch.
func (f *file) copyNEON(rows int, toStack bool) {
	tag := "out"
	if toStack {
		tag = "in"
	}
	f.p("\tMOVD R6, R14")
	f.p("\tMOVD $8(RSP), R15")
	f.p("\tMOVD $%d, R16", rows)
	f.p("row%s:", tag)
	f.p("\tMOVD ZR, R17")
	f.p("lane%s:", tag)
	if toStack {
		f.p("\tMOVWU (R14)(R17<<2), R19")
		f.p("\tMOVW R19, (R15)(R17<<2)")
	} else {
		f.p("\tMOVWU (R15)(R17<<2), R19")
		f.p("\tMOVW R19, (R14)(R17<<2)")
	}
	f.p("\tADD $1, R17")
	f.p("\tCMP R12, R17")
	f.p("\tBLT lane%s", tag)
	f.p("\tADD R7, R14")
	f.p("\tADD $64, R15")
	f.p("\tSUBS $1, R16")
	f.p("\tBNE row%s", tag)
	if toStack {
		f.p("\tMOVD $8(RSP), R14")
		f.p("\tMOVD $64, R15")
	}
}

// storeNEON stores the sums.
func (f *file) storeNEON(rows int) {
	f.p("\tMOVD R6, R14")
	f.p("\tMOVD R7, R15")
	f.p("\tCMP $16, R12")
	f.p("\tBEQ store")
	f.p("\tMOVD $8(RSP), R14")
	f.p("\tMOVD $64, R15")
	f.p("store:")
	for i := range rows {
		for v := range 4 {
			f.p("\tFMOVQ F%d, %d(R14)", nSum(i, v), 16*v)
		}
		if i+1 < rows {
			f.p("\tADD R15, R14")
		}
	}
	f.p("\tCMP $16, R12")
	f.p("\tBEQ end")
	f.copyNEON(rows, false)
	f.p("end:")
	f.p("\tRET")
}

// rowsOfA makes R20, R21, R22 the rows of A.
func (f *file) rowsOfA(rows int) {
	f.p("\tMOVD %d(R0), R20", argA)
	f.p("\tMOVD %d(R0), R13", argAStride)
	for i := 1; i < rows; i++ {
		f.p("\tADD R13, R%d, R%d", 19+i, 20+i)
	}
}

// initNEON starts the integer sums of a block from meta at R2.
func (f *file) initNEON(rows, slots int) {
	f.p("\tADD $%d, R2, R14", 4*slots)
	for i := range rows {
		f.p("\tVLD1R.P 4(R14), [V%d.S4]", nInt(i, 0))
		for v := 1; v < 4; v++ {
			f.p("\tVMOV V%d.B16, V%d.B16", nInt(i, 0), nInt(i, v))
		}
	}
}

// joinNEON brings the integer sums of a block to the float sums: scales of the weights are in nB, minimums are loaded by the caller's
// function.
func (f *file) joinNEON(rows, slots int, sums func(i, v int) int, minimums func()) {
	for i := range rows {
		f.p("\tFMOVS %d(R2), F%d", 4*i, nA(i))
		for v := range 4 {
			n := e.V(sums(i, v))
			f.i(e.SCVTF(n, n))
			f.i(e.FMUL(n, n, e.V(nB(v))))
			f.i(e.FMLAElem(e.V(nSum(i, v)), n, e.V(nA(i)), 0))
		}
	}
	if minimums == nil {
		return
	}
	minimums()
	for i := range rows {
		f.p("\tFMOVS %d(R2), F%d", 8*slots+4*i, nA(i))
		for v := range 4 {
			f.i(e.FMLAElem(e.V(nSum(i, v)), e.V(nB(v)), e.V(nA(i)), 0))
		}
	}
}

// dotNEON emits the kernel of some rows against one panel whose bytes have been spread.
func (f *file) dotNEON(rows, block int, min bool) string {
	name := fmt.Sprintf("dotNEONx%dk%d", rows, block)
	doc := fmt.Sprintf("takes %d rows through a panel in blocks of %d", rows, block)
	step := 64
	if min {
		name += "min"
		doc += " with minimums"
		step = 128
	}
	f.textFrame(name, "p *dotArgs", 8, 64*rows, doc+".")
	f.p("\tMOVD p+0(FP), R0")
	f.sumsNEON(rows)
	f.rowsOfA(rows)
	f.p("\tMOVD %d(R0), R1", argW)
	f.p("\tMOVD %d(R0), R2", argMeta)
	f.p("\tMOVD %d(R0), R3", argScale)
	f.p("\tMOVD %d(R0), R4", argBlocks)
	f.p("block:")
	f.initNEON(rows, manySlots)
	for q := range block / 16 {
		for i := range rows {
			f.p("\tFMOVQ.P 16(R%d), F%d", 20+i, nA(i))
		}
		for g := range 4 {
			at := 64 * (4*q + g)
			f.p("\tFLDPQ %d(R1), (F%d, F%d)", at, nB(0), nB(1))
			f.p("\tFLDPQ %d(R1), (F%d, F%d)", at+32, nB(2), nB(3))
			for i := range rows {
				for v := range 4 {
					f.i(e.SDOTElem(e.V(nInt(i, v)), e.V(nB(v)), e.V(nA(i)), g))
				}
			}
		}
	}
	f.p("\tADD $%d, R1", 16*block)
	four := func(at int) {
		f.p("\tFLDPQ %d(R3), (F%d, F%d)", at, nB(0), nB(1))
		f.p("\tFLDPQ %d(R3), (F%d, F%d)", at+32, nB(2), nB(3))
	}
	four(0)
	var minimums func()
	if min {
		minimums = func() { four(64) }
	}
	f.joinNEON(rows, manySlots, nInt, minimums)
	f.p("\tADD $%d, R3", step)
	f.p("\tADD $%d, R2", metaStep(manySlots))
	f.p("\tSUBS $1, R4")
	f.p("\tBNE block")
	f.storeNEON(rows)
	return name
}

// rowsWideNEON is the most rows of a kernel without dot products, whose integer sums take twice the registers.
const rowsWideNEON = 2

// dotWideNEON is dotNEON for processors without dot products: bytes are multiplied to halves, of which pairs join the sums.
func (f *file) dotWideNEON(rows, block int, min bool) string {
	name := fmt.Sprintf("dotWideNEONx%dk%d", rows, block)
	doc := fmt.Sprintf("takes %d rows through a panel in blocks of %d without dot products", rows, block)
	step := 64
	if min {
		name += "min"
		doc += ", with minimums"
		step = 128
	}
	// Two registers of pairs for each four lanes, which become one of sums.
	pairs := func(i, u int) int { return 16 + 8*i + u }
	sums := func(i, v int) int { return 16 + 8*i + v }
	f.textFrame(name, "p *dotArgs", 8, 64*rows, doc+".")
	f.p("\tMOVD p+0(FP), R0")
	f.sumsNEON(rows)
	f.rowsOfA(rows)
	f.p("\tMOVD %d(R0), R1", argW)
	f.p("\tMOVD %d(R0), R2", argMeta)
	f.p("\tMOVD %d(R0), R3", argScale)
	f.p("\tMOVD %d(R0), R4", argBlocks)
	f.p("block:")
	for i := range rows {
		for u := range 8 {
			f.p("\tVEOR V%d.B16, V%d.B16, V%d.B16", pairs(i, u), pairs(i, u), pairs(i, u))
		}
	}
	for q := range block / 16 {
		for i := range rows {
			f.p("\tFMOVQ.P 16(R%d), F%d", 20+i, nA(i))
		}
		for g := range 4 {
			for i := range rows {
				f.p("\tVDUP V%d.S[%d], V%d.S4", nA(i), g, 2+i)
			}
			for v := range 4 {
				f.p("\tFMOVQ %d(R1), F4", 64*(4*q+g)+16*v)
				for i := range rows {
					f.i(e.SMULL(5, 4, e.V(2+i)))
					f.i(e.SMULL2(6, 4, e.V(2+i)))
					f.i(e.SADALP(e.V(pairs(i, 2*v)), 5))
					f.i(e.SADALP(e.V(pairs(i, 2*v+1)), 6))
				}
			}
		}
	}
	f.p("\tADD $%d, R1", 16*block)
	f.p("\tADD $%d, R2, R14", 4*manySlots)
	for i := range rows {
		f.p("\tVLD1R.P 4(R14), [V0.S4]")
		for v := range 4 {
			f.p("\tVADDP V%d.S4, V%d.S4, V%d.S4", pairs(i, 2*v+1), pairs(i, 2*v), sums(i, v))
			f.p("\tVADD V0.S4, V%d.S4, V%d.S4", sums(i, v), sums(i, v))
		}
	}
	four := func(at int) {
		f.p("\tFLDPQ %d(R3), (F%d, F%d)", at, nB(0), nB(1))
		f.p("\tFLDPQ %d(R3), (F%d, F%d)", at+32, nB(2), nB(3))
	}
	four(0)
	var minimums func()
	if min {
		minimums = func() { four(64) }
	}
	f.joinNEON(rows, manySlots, sums, minimums)
	f.p("\tADD $%d, R3", step)
	f.p("\tADD $%d, R2", metaStep(manySlots))
	f.p("\tSUBS $1, R4")
	f.p("\tBNE block")
	f.storeNEON(rows)
	return name
}

// spreadNEON emits the way from bits of a unit to bytes: 32 vectors.
func (f *file) spreadNEON(kind string) string {
	name := "spreadNEON" + kind
	size := map[string]int{"U8": 512, "U4": 256, "Table": 256, "U5": 320, "U6": 384, "U2": 128, "U3": 192}[kind]
	params := "dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte"
	f.text(name, params, 56, "spreads n units of bits, in sets of per units which lie stride bytes apart, to bytes less a number.")
	f.p("\tMOVD dst+0(FP), R0")
	f.p("\tMOVD src+8(FP), R1")
	f.p("\tMOVD n+16(FP), R2")
	f.p("\tMOVD per+24(FP), R3")
	f.p("\tMOVD stride+32(FP), R4")
	f.p("\tMOVBU less+40(FP), R5")
	f.p("\tVDUP R5, V31.B16")
	if kind == "Table" {
		f.p("\tMOVD table+48(FP), R6")
		f.p("\tVLD1 (R6), [V30.B16]")
	}
	f.p("\tVMOVI $15, V29.B16")
	f.p("\tVMOVI $3, V28.B16")
	for b := range 8 {
		if kind == "U5" || kind == "U3" {
			f.p("\tVMOVI $%d, V%d.B16", 1<<b, 20+b)
		}
	}
	f.p("set:")
	f.p("\tMOVD R1, R7")
	f.p("\tMOVD R3, R8")
	f.p("unit:")
	// put stores vector i of the unit, which is in register r.
	put := func(i, r int) {
		f.p("\tVSUB V31.B16, V%d.B16, V%d.B16", r, r)
		f.p("\tFMOVQ F%d, %d(R0)", r, 16*i)
	}
	// plane ORs bit b of register p, moved to bit to, into r.
	plane := func(r, p, b, to int) {
		f.p("\tVAND V%d.B16, V%d.B16, V3.B16", p, 20+b)
		switch {
		case b < to:
			f.p("\tVSHL $%d, V3.B16, V3.B16", to-b)
		case b > to:
			f.p("\tVUSHR $%d, V3.B16, V3.B16", b-to)
		}
		f.p("\tVORR V3.B16, V%d.B16, V%d.B16", r, r)
	}
	// pair extracts two bits of register p from bit b on into r.
	pair := func(r, p, b int) {
		if b == 0 {
			f.p("\tVAND V28.B16, V%d.B16, V%d.B16", p, r)
			return
		}
		f.p("\tVUSHR $%d, V%d.B16, V%d.B16", b, p, r)
		if b < 6 {
			f.p("\tVAND V28.B16, V%d.B16, V%d.B16", r, r)
		}
	}
	switch kind {
	case "U8":
		for i := range 32 {
			f.p("\tFMOVQ %d(R7), F0", 16*i)
			put(i, 0)
		}
	case "U4", "Table", "U5", "U6":
		for v := range 4 { // lanes: each group of four k has four vectors
			switch kind {
			case "U5":
				f.p("\tFMOVQ %d(R7), F16", 256+16*v)
			case "U6":
				f.p("\tFMOVQ %d(R7), F16", 256+16*v)
				f.p("\tFMOVQ %d(R7), F17", 320+16*v)
			}
			for g := range 4 {
				f.p("\tFMOVQ %d(R7), F0", 64*g+16*v)
				f.p("\tVUSHR $4, V0.B16, V1.B16")
				f.p("\tVAND V29.B16, V0.B16, V0.B16")
				for half, r := range []int{0, 1} {
					switch kind {
					case "Table":
						f.p("\tVTBL V%d.B16, [V30.B16], V%d.B16", r, r)
					case "U5":
						plane(r, 16, g+4*half, 4)
					case "U6":
						pair(2, 16+half, 2*g)
						f.p("\tVSHL $4, V2.B16, V2.B16")
						f.p("\tVORR V2.B16, V%d.B16, V%d.B16", r, r)
					}
					put(16*half+4*g+v, r)
				}
			}
		}
	case "U2", "U3":
		for v := range 4 {
			f.p("\tFMOVQ %d(R7), F16", 16*v)
			f.p("\tFMOVQ %d(R7), F17", 64+16*v)
			if kind == "U3" {
				f.p("\tFMOVQ %d(R7), F18", 128+16*v)
			}
			for g := range 8 {
				pair(0, 16+g/4, 2*(g%4))
				if kind == "U3" {
					plane(0, 18, g, 2)
				}
				put(4*g+v, 0)
			}
		}
	}
	f.p("\tADD $512, R0")
	f.p("\tADD $%d, R7", size)
	f.p("\tSUBS $1, R2")
	f.p("\tBEQ end")
	f.p("\tSUBS $1, R8")
	f.p("\tBNE unit")
	f.p("\tADD R4, R1")
	f.p("\tB set")
	f.p("end:")
	f.p("\tRET")
	return name
}

// halfsNEON emits the widening of vectors of 16 half-precision or bfloat16 numbers.
func (f *file) halfsNEON(name string, widen func(d, s int, upper bool)) {
	f.text(name, "dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int", 48,
		"widens n vectors of 16 numbers, in sets of per which lie stride bytes apart, to vectors step bytes apart.")
	f.p("\tMOVD dst+0(FP), R0")
	f.p("\tMOVD step+8(FP), R1")
	f.p("\tMOVD src+16(FP), R2")
	f.p("\tMOVD n+24(FP), R3")
	f.p("\tMOVD per+32(FP), R4")
	f.p("\tMOVD stride+40(FP), R5")
	f.p("set:")
	f.p("\tMOVD R2, R6")
	f.p("\tMOVD R4, R7")
	f.p("one:")
	f.p("\tVLD1.P 32(R6), [V0.H8, V1.H8]")
	for v := range 4 {
		widen(2+v, v/2, v%2 == 1)
	}
	f.p("\tVST1 [V2.S4, V3.S4, V4.S4, V5.S4], (R0)")
	f.p("\tADD R1, R0")
	f.p("\tSUBS $1, R3")
	f.p("\tBEQ end")
	f.p("\tSUBS $1, R7")
	f.p("\tBNE one")
	f.p("\tADD R5, R2")
	f.p("\tB set")
	f.p("end:")
	f.p("\tRET")
}

func (f *file) widenF16(d, s int, upper bool) {
	if upper {
		f.i(e.FCVTL2(e.V(d), e.V(s)))
	} else {
		f.i(e.FCVTL(e.V(d), e.V(s)))
	}
}

func (f *file) widenBF16(d, s int, upper bool) {
	if upper {
		f.i(e.SHLL2(e.V(d), e.V(s)))
	} else {
		f.i(e.SHLL(e.V(d), e.V(s)))
	}
}

// int8sTimes multiplies 16 int8 at an address by the four vectors from register by on, into those from register to on.
func (f *file) int8sTimes(addr string, to, by int) {
	f.p("\tFMOVQ %s, F0", addr)
	f.i(e.SXTLB(1, 0))
	f.i(e.SXTLB2(2, 0))
	for v := range 4 {
		d, s := e.V(to+v), e.V(1+v/2)
		if v%2 == 0 {
			f.i(e.SXTLH(d, s))
		} else {
			f.i(e.SXTLH2(d, s))
		}
		f.i(e.SCVTF(d, d))
		f.i(e.FMUL(d, d, e.V(by+v)))
	}
}

func (f *file) supersNEON() {
	f.text("supersNEON", "dst unsafe.Pointer, step int, d, s unsafe.Pointer, n, subs, stride int, neg uint32", 60,
		"multiplies, for each of n super-blocks, subs vectors of 16 int8 by the vector of half-precision scales.")
	f.p("\tMOVD dst+0(FP), R0")
	f.p("\tMOVD step+8(FP), R1")
	f.p("\tMOVD d+16(FP), R2")
	f.p("\tMOVD s+24(FP), R3")
	f.p("\tMOVD n+32(FP), R4")
	f.p("\tMOVD subs+40(FP), R5")
	f.p("\tMOVD stride+48(FP), R6")
	f.p("\tMOVWU neg+56(FP), R7")
	f.p("\tVDUP R7, V31.S4")
	f.p("super:")
	f.p("\tVLD1 (R2), [V0.H8, V1.H8]")
	for v := range 4 {
		f.widenF16(16+v, v/2, v%2 == 1)
		f.p("\tVEOR V31.B16, V%d.B16, V%d.B16", 16+v, 16+v)
	}
	f.p("\tMOVD R3, R8")
	f.p("\tMOVD R5, R9")
	f.p("sub:")
	f.int8sTimes("(R8)", 4, 16)
	f.p("\tVST1 [V4.S4, V5.S4, V6.S4, V7.S4], (R0)")
	f.p("\tADD R1, R0")
	f.p("\tADD $16, R8")
	f.p("\tSUBS $1, R9")
	f.p("\tBNE sub")
	f.p("\tADD R6, R2")
	f.p("\tADD R6, R3")
	f.p("\tSUBS $1, R4")
	f.p("\tBNE super")
	f.p("\tRET")
}

func (f *file) quantizeNEON(block int) {
	f.text(fmt.Sprintf("quantize%dNEON", block), "q, meta, x unsafe.Pointer, blocks int, zero int32, slots int", 48,
		fmt.Sprintf("brings blocks of %d elements to int8 and writes their meta.", block))
	f.p("\tMOVD q+0(FP), R0")
	f.p("\tMOVD meta+8(FP), R1")
	f.p("\tMOVD x+16(FP), R2")
	f.p("\tMOVD blocks+24(FP), R3")
	f.p("\tMOVW zero+32(FP), R4")
	f.p("\tMOVD slots+40(FP), R5")
	f.p("\tLSL $2, R5")
	f.p("\tADD R5<<1, R5, R6") // bytes of a block's meta
	f.p("\tMOVD $0x42fe0000, R7")
	f.p("\tFMOVS R7, F30") // 127
	f.p("\tMOVD $0x7f800000, R8")
	f.p("\tMOVD $0x7fc00000, R9")
	n := block / 4
	f.p("block:")
	for v := 0; v < n; v += 4 {
		f.p("\tVLD1.P 64(R2), [V%d.S4, V%d.S4, V%d.S4, V%d.S4]", v, v+1, v+2, v+3)
	}
	for v := range n {
		f.i(e.FABS(e.V(16+v), e.V(v)))
	}
	for h := n / 2; h > 0; h /= 2 {
		for v := range h {
			f.i(e.FMAX(e.V(16+v), e.V(16+v), e.V(16+v+h)))
		}
	}
	f.i(e.FMAXV(24, 16))
	// Infinity and NaN are the words from 0x7f800000 on.
	f.p("\tFMOVS F24, R10")
	f.p("\tCMPW R8, R10")
	f.p("\tBHS bad")
	f.p("\tFDIVS F30, F24, F25") // scale
	f.p("\tVEOR V26.B16, V26.B16, V26.B16")
	f.p("\tCBZW R10, scaled")
	f.p("\tFDIVS F24, F30, F26") // 127 / largest
	f.p("\tFMOVS F26, R10")
	f.p("\tCMPW R8, R10")
	f.p("\tBLO scaled")
	f.p("\tVEOR V25.B16, V25.B16, V25.B16")
	f.p("\tVEOR V26.B16, V26.B16, V26.B16")
	f.p("scaled:")
	for v := range n {
		f.i(e.FMULElem(e.V(v), e.V(v), 26, 0))
		f.i(e.FCVTNS(e.V(v), e.V(v)))
	}
	for v := range n {
		if v == 0 {
			f.p("\tVMOV V0.B16, V16.B16")
		} else {
			f.p("\tVADD V%d.S4, V16.S4, V16.S4", v)
		}
	}
	f.p("\tVADDV V16.S4, V16")
	for v := 0; v < n; v += 2 {
		f.i(e.SQXTNH(e.V(v), e.V(v)))
		f.i(e.SQXTNH2(e.V(v), e.V(v+1)))
		f.i(e.SQXTNB(e.V(v), e.V(v)))
		f.p("\tFMOVD F%d, %d(R0)", v, 4*v)
	}
	f.p("\tVMOV V16.S[0], R10")
	f.p("\tMULW R4, R10, R11")
	f.p("\tNEGW R11, R11")
	f.p("\tSCVTFWS R10, F27")
	f.p("\tFMULS F25, F27, F27")
	f.p("put:")
	f.p("\tFMOVS F25, (R1)")
	f.p("\tADD R5, R1, R12")
	f.p("\tMOVW R11, (R12)")
	f.p("\tADD R5, R12")
	f.p("\tFMOVS F27, (R12)")
	f.p("\tADD $%d, R0", block)
	f.p("\tADD R6, R1")
	f.p("\tSUBS $1, R3")
	f.p("\tBNE block")
	f.p("\tRET")
	f.p("bad:")
	for at := 0; at < block; at += 8 {
		f.p("\tMOVD ZR, %d(R0)", at)
	}
	f.p("\tFMOVS R9, F25")
	f.p("\tFMOVS R9, F27")
	f.p("\tMOVD ZR, R11")
	f.p("\tB put")
}

func neon(out string) {
	f := &file{}
	var tables strings.Builder
	for _, t := range []struct {
		name, doc string
		rows      int
		kernel    func(rows, block int, min bool) string
	}{{"dotNEON", "are the kernels", rowsNEON, f.dotNEON}, {"dotWideNEON", "are the kernels without dot products", rowsWideNEON, f.dotWideNEON}} {
		fmt.Fprintf(&tables, "\n// %s %s by block (16 and 32), minimums and rows.\n", t.name, t.doc)
		fmt.Fprintf(&tables, "var %s = [2][2][]func(*dotArgs){", t.name)
		for _, block := range []int{16, 32} {
			tables.WriteString("{")
			for _, min := range []bool{false, true} {
				tables.WriteString("{nil")
				for rows := 1; rows <= t.rows; rows++ {
					tables.WriteString(", " + t.kernel(rows, block, min))
				}
				tables.WriteString("}, ")
			}
			tables.WriteString("}, ")
		}
		tables.WriteString("}\n")
	}
	tables.WriteString("\n// spreadsNEON are by bits; the last is for table formats.\nvar spreadsNEON = [...]func(dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte){")
	for _, kind := range []string{"U8", "U4", "U5", "U6", "U2", "U3", "Table"} {
		tables.WriteString(f.spreadNEON(kind) + ", ")
	}
	tables.WriteString("}\n")
	f.fusedTables(&tables)
	f.halfsNEON("halfsNEON", f.widenF16)
	f.halfsNEON("bhalfsNEON", f.widenBF16)
	f.supersNEON()
	f.quantizeNEON(16)
	f.quantizeNEON(32)
	f.write(out, "kernels_neon_arm64", "arm64 && !noasm", headerNEON, tables.String())
}

// fusedRowsNEON is the most rows of a fused kernel.
const fusedRowsNEON = 2

// The registers of fused kernels: A in 0 to 3, a register for each 16 k of a row; 4 to 7 and 16 to 19 are free, 28 to 31 hold constants.
const (
	fusedMask  = 31 // 15 in each byte
	fusedExtra = 30 // the bits of a plane where they go, or 0x80
	fusedTable = 29
)

// fusedNEON is a kernel of some rows against a packed panel.
type fusedNEON struct {
	*file
	form
	rows int
}

func (f *file) fusedNEON(m form, rows int) string {
	k := &fusedNEON{f, m, rows}
	name := fmt.Sprintf("fused%sNEONr%d", m.name, rows)
	f.textFrame(name, "p *dotArgs", 8, 64*rows, fmt.Sprintf("takes %d rows through a packed panel of %s.", rows, m.name))
	f.p("\tMOVD p+0(FP), R0")
	f.sumsNEON(rows)
	f.rowsOfA(rows)
	f.p("\tMOVD %d(R0), R1", argW)
	f.p("\tMOVD %d(R0), R2", argMeta)
	f.p("\tMOVD %d(R0), R4", argBlocks)
	f.p("\tVMOVI $15, V%d.B16", fusedMask)
	if extra := map[string]int{"U8": 0x80, "U5": 0x10, "U6": 0x30, "U2": 3, "U3": 3}[m.spread]; extra > 0 {
		f.p("\tVMOVI $%d, V%d.B16", extra, fusedExtra)
	}
	switch m.spread {
	case "Table": // as signed numbers
		f.p("\tMOVD %d(R0), R13", argTable)
		f.p("\tVLD1 (R13), [V%d.B16]", fusedTable)
		f.p("\tVMOVI $128, V4.B16")
		f.p("\tVEOR V4.B16, V%d.B16, V%d.B16", fusedTable, fusedTable)
	case "U3":
		f.p("\tVMOVI $4, V%d.B16", fusedTable)
	}
	// Where the parts of a group lie, as geometry says.
	units, minAt, scAt, mnAt, header := 2, 0, 0, 0, 64
	switch {
	case m.super:
		units, scAt = 8, 32
		if m.min {
			minAt, scAt = 32, 64
		}
		subs := 256 / m.block * 16
		mnAt = scAt + subs
		header = scAt + subs
		if m.min {
			header += subs
		}
		header = (header + 63) / 64 * 64
	case m.min:
		units, minAt = 1, 32
	}
	size := map[string]int{"U8": 512, "U4": 256, "Table": 256, "U5": 320, "U6": 384, "U2": 128, "U3": 192}[m.spread]
	f.p("group:")
	f.p("\tADD $%d, R1, R3", header)
	f.p("\tMOVD R1, R5") // scales
	f.p("\tADD $%d, R1, R9", scAt)
	f.p("\tADD $%d, R1, R10", mnAt)
	f.p("\tMOVD $%d, R11", units)
	f.p("unit:")
	for i := range rows {
		f.p("\tFLDPQ.P 32(R%d), (F%d, F%d)", 20+i, 2*i, 2*i+1)
	}
	halves := [][]int{{0, 1}}
	if m.block == 16 {
		halves = [][]int{{0}, {1}}
	}
	for _, h := range halves {
		f.initNEON(rows, fewSlots)
		k.products(h)
		k.join(minAt)
		if m.super {
			f.p("\tADD $16, R9")
			if m.min {
				f.p("\tADD $16, R10")
			}
		}
		f.p("\tADD $%d, R2", metaStep(fewSlots))
	}
	f.p("\tADD $%d, R3", size)
	if units == 2 {
		f.p("\tADD $32, R5")
	}
	f.p("\tSUBS $1, R4")
	f.p("\tBEQ finish")
	f.p("\tSUBS $1, R11")
	f.p("\tBNE unit")
	f.p("\tADD $%d, R1", header+units*size)
	f.p("\tB group")
	f.p("finish:")
	f.storeNEON(rows)
	return name
}

// add multiplies register r, lanes 4v on, by group g of a unit.
func (k *fusedNEON) add(r, v, g int) {
	for i := range k.rows {
		k.i(e.SDOTElem(e.V(nInt(i, v)), e.V(r), e.V(2*i+g/4), g%4))
	}
}

// shifted brings bit from of each byte of s to bit to in d; what the mask removes stays.
func (k *fusedNEON) shifted(d, s, from, to int) {
	switch {
	case from < to:
		k.p("\tVSHL $%d, V%d.B16, V%d.B16", to-from, s, d)
	case from > to:
		k.p("\tVUSHR $%d, V%d.B16, V%d.B16", from-to, s, d)
	default:
		k.p("\tVMOV V%d.B16, V%d.B16", s, d)
	}
}

// products adds the products of halves of a unit, 16 k each, to the integer sums. The bits are at R3.
func (k *fusedNEON) products(halves []int) {
	const x, y, t, plane0, plane1 = 4, 5, 6, 16, 17
	and := func(d, mask int) { k.p("\tVAND V%d.B16, V%d.B16, V%d.B16", mask, d, d) }
	or := func(d, s int) { k.p("\tVORR V%d.B16, V%d.B16, V%d.B16", s, d, d) }
	for v := range 4 {
		switch k.spread {
		case "U8":
			for _, h := range halves {
				for g := 4 * h; g < 4*h+4; g++ {
					r := x + g%4
					k.p("\tFMOVQ %d(R3), F%d", 64*g+16*v, r)
					k.p("\tVEOR V%d.B16, V%d.B16, V%d.B16", fusedExtra, r, r)
					k.add(r, v, g)
				}
			}
		case "U4", "Table", "U5", "U6":
			switch k.spread {
			case "U5":
				k.p("\tFMOVQ %d(R3), F%d", 256+16*v, plane0)
			case "U6":
				for _, h := range halves {
					k.p("\tFMOVQ %d(R3), F%d", 256+64*h+16*v, plane0+h)
				}
			}
			for g := range 4 {
				k.p("\tFMOVQ %d(R3), F%d", 64*g+16*v, x)
				// The high nibbles first: the low ones take the place of both.
				for i := len(halves) - 1; i >= 0; i-- {
					h, r := halves[i], y
					if h == 1 {
						k.p("\tVUSHR $4, V%d.B16, V%d.B16", x, r)
					} else {
						r = x
						and(r, fusedMask)
					}
					switch k.spread {
					case "Table":
						k.p("\tVTBL V%d.B16, [V%d.B16], V%d.B16", r, fusedTable, r)
					case "U5":
						k.shifted(t, plane0, g+4*h, 4)
						and(t, fusedExtra)
						or(r, t)
					case "U6":
						k.shifted(t, plane0+h, 2*g, 4)
						and(t, fusedExtra)
						or(r, t)
					}
					k.add(r, v, g+4*h)
				}
			}
		case "U2", "U3":
			if k.spread == "U3" {
				k.p("\tFMOVQ %d(R3), F%d", 128+16*v, plane1)
			}
			for _, h := range halves {
				k.p("\tFMOVQ %d(R3), F%d", 64*h+16*v, plane0)
				for g := range 4 {
					k.shifted(x, plane0, 2*g, 0)
					and(x, fusedExtra)
					if k.spread == "U3" {
						k.shifted(t, plane1, g+4*h, 2)
						and(t, fusedTable)
						or(x, t)
					}
					k.add(x, v, g+4*h)
				}
			}
		}
	}
}

// half loads a vector of scales, in half precision or bfloat16, as float32.
func (k *fusedNEON) half(d, at, v int) {
	k.p("\tFMOVD %d(R5), F%d", at+8*v, d)
	if k.bf16 {
		k.i(e.SHLL(e.V(d), e.V(d)))
	} else {
		k.i(e.FCVTL(e.V(d), e.V(d)))
	}
}

// times multiplies register d by four int8 at an address.
func (k *fusedNEON) times(d int, base string, v int) {
	const t = 7
	k.p("\tFMOVS %d(%s), F%d", 4*v, base, t)
	k.i(e.SXTLB(t, t))
	k.i(e.SXTLH(t, t))
	k.i(e.SCVTF(t, t))
	k.i(e.FMUL(e.V(d), e.V(d), t))
}

// join brings the integer sums of a block to the float sums.
func (k *fusedNEON) join(minAt int) {
	const scale, rowScale, rowSum = 6, 16, 18
	for i := range k.rows {
		k.p("\tFMOVS %d(R2), F%d", 4*i, rowScale+i)
		if k.min {
			k.p("\tFMOVS %d(R2), F%d", 8*fewSlots+4*i, rowSum+i)
		}
	}
	for v := range 4 {
		k.half(scale, 0, v)
		if k.super {
			k.times(scale, "R9", v)
		}
		for i := range k.rows {
			n := e.V(nInt(i, v))
			k.i(e.SCVTF(n, n))
			k.i(e.FMUL(n, n, scale))
			k.i(e.FMLAElem(e.V(nSum(i, v)), n, e.V(rowScale+i), 0))
		}
		if !k.min {
			continue
		}
		k.half(scale, minAt, v)
		if k.super {
			k.i(e.FNEG(scale, scale))
			k.times(scale, "R10", v)
		}
		for i := range k.rows {
			k.i(e.FMLAElem(e.V(nSum(i, v)), scale, e.V(rowSum+i), 0))
		}
	}
}

// fusedTables emits the fused kernels and their table.
func (f *file) fusedTables(table *strings.Builder) {
	table.WriteString("\n// fusedNEON holds the kernels that read packed bits, by the form of the panels and rows.\n")
	fmt.Fprintf(table, "var fusedNEON = map[fusedForm][%d]func(*dotArgs){\n", fusedRowsNEON+1)
	for _, m := range forms {
		fmt.Fprintf(table, "\t%s: {", m.key())
		for rows := 1; rows <= fusedRowsNEON; rows++ {
			fmt.Fprintf(table, "%d: %s, ", rows, f.fusedNEON(m, rows))
		}
		table.WriteString("},\n")
	}
	table.WriteString("}\n")
}
