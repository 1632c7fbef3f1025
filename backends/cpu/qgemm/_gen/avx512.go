package main

import (
	"fmt"
	"strings"
)

// Offsets of dotArgs.
const (
	argA, argAStride, argMeta, argMetaGroup            = 0, 8, 16, 24
	argW, argWPanel, argScale, argScaleSize            = 32, 40, 48, 56
	argC, argLdc, argBlocks, argAcc, argMask, argTable = 64, 72, 80, 88, 96, 104
	argGroups, argRows, argPanels, argBuf, argCPanel   = 112, 120, 128, 136, 144
	argAhead                                           = 152
)

// Slots of a group of rows, and the bytes of a block's meta.
const (
	fewSlots, manySlots = 8, 16
	manyHeight          = 12 // rows of a group of dot kernels
)

func metaStep(slots int) int { return 12 * slots }

// widest is the number of panels that the AVX-512 kernels take at once for a number of rows: as many as the registers hold.
func widest(rows int) int {
	if rows <= 2 {
		return 4
	}
	return 2
}

func avx512(dir string) {
	f := &file{}
	var table strings.Builder
	table.WriteString("\n// avx512Dot holds the dot kernels by block (0: 32, 1: 16), minimums, rows, and panels (0: one, 1: the most).\n")
	table.WriteString("var avx512Dot = [2][2][maxRows + 1][2]func(*dotArgs){\n")
	for bi, block := range []int{32, 16} {
		table.WriteString("{\n")
		for _, min := range []bool{false, true} {
			table.WriteString("{\n")
			for rows := 1; rows <= 6; rows++ {
				fmt.Fprintf(&table, "%d: {", rows)
				for _, panels := range []int{1, widest(rows)} {
					name := fmt.Sprintf("dotAVX512b%dr%dp%d", block, rows, panels)
					if min {
						name += "min"
					}
					dotAVX512(f, name, block, min, rows, panels)
					fmt.Fprintf(&table, "%s, ", name)
				}
				table.WriteString("},\n")
			}
			table.WriteString("},\n")
		}
		table.WriteString("},\n")
		_ = bi
	}
	table.WriteString("}\n")
	leanAVX512(f, &table)
	fusedAVX512(f, &table)
	spreadAVX512(f, &table)
	scalesAVX512(f)
	quantizeAVX512(f)
	packAVX512(f)
	f.write(dir, "kernels_avx512_amd64", "amd64 && !noasm", header512, table.String())
}

const header512 = `
// Dot kernels: a strip of rows of A against panels of W.
//
//	DI args   AX a, rows R8 R9 R10: 1 3 5 strides   BX meta
//	SI w, CX bytes between panels   R14 scales, DX bytes between panels   R15 blocks to go
//	(one or two rows, four panels: R9 is three times CX, R12 three times DX)
`

// row returns the memory operand of a row at an offset from a base.
func row(off int, base string, r int, s1, s3, s5 string) string {
	at := fmt.Sprintf("%d(%s)", off, base)
	switch r {
	case 0:
		return at
	case 1:
		return at + "(" + s1 + "*1)"
	case 2:
		return at + "(" + s1 + "*2)"
	case 3:
		return at + "(" + s3 + "*1)"
	case 4:
		return at + "(" + s1 + "*4)"
	case 5:
		return at + "(" + s5 + "*1)"
	case 6:
		return at + "(" + s3 + "*2)"
	default:
		return at + "(R11*1)" // fused kernels: seven strides
	}
}

// panel returns the memory operand of a panel at an offset from a base.
func panel(off int, base string, v int, p1, p3 string) string {
	return row(off, base, v, p1, p3, "")
}

func dotAVX512(f *file, name string, block int, min bool, rows, panels int) {
	f.text(name, "p *dotArgs", 8, fmt.Sprintf("computes %d rows against %d panels over blocks of %d.", rows, panels, block))
	split := 1 // a single row has few sums: two chains each keep the unit busy
	if rows == 1 {
		split = 2
	}
	next := 0
	take := func() int { next++; return next - 1 }
	var sums [2][6][4]int
	var acc [6][4]int
	var w, scale, low [4]int
	for s := 0; s < split; s++ {
		for r := 0; r < rows; r++ {
			for v := 0; v < panels; v++ {
				sums[s][r][v] = take()
			}
		}
	}
	for r := 0; r < rows; r++ {
		for v := 0; v < panels; v++ {
			acc[r][v] = take()
		}
	}
	for v := 0; v < panels; v++ {
		w[v] = take()
	}
	for v := 0; v < panels; v++ {
		scale[v] = w[v] // the weights of a block are done with when its scales are read
	}
	bcast := [2]int{take(), take()}
	for v := 0; v < panels; v++ {
		low[v] = w[v]
	}
	if next > 32 {
		panic(name + ": too many registers")
	}
	a := func(off, r int) string { return row(off, "AX", r, "R8", "R9", "R10") }
	m := func(word, r int) string { return fmt.Sprintf("%d(BX)", 4*(word*manySlots+r)) }

	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), R10", argMask)
	for v := 0; v < panels; v++ {
		f.p("\tKMOVW R10, K%d", v+1)
		if v+1 < panels {
			f.p("\tSHRQ $16, R10")
		}
	}
	// C, or zeros
	f.p("\tCMPQ %d(DI), $0", argAcc)
	f.p("\tJEQ fresh")
	f.p("\tMOVQ %d(DI), AX", argC)
	for r := 0; r < rows; r++ {
		for v := 0; v < panels; v++ {
			f.p("\tVMOVUPS.Z %d(AX), K%d, Z%d", 64*v, v+1, acc[r][v])
		}
		if r+1 < rows {
			f.p("\tADDQ %d(DI), AX", argLdc)
		}
	}
	f.p("\tJMP start")
	f.p("fresh:")
	for r := 0; r < rows; r++ {
		for v := 0; v < panels; v++ {
			f.p("\tVPXORD Z%d, Z%d, Z%d", acc[r][v], acc[r][v], acc[r][v])
		}
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), AX", argA)
	f.p("\tMOVQ %d(DI), BX", argMeta)
	if rows > 1 {
		f.p("\tMOVQ %d(DI), R8", argAStride)
	}
	if rows > 3 {
		f.p("\tLEAQ (R8)(R8*2), R9")
	}
	if rows > 5 {
		f.p("\tLEAQ (R8)(R8*4), R10")
	}
	f.p("\tMOVQ %d(DI), SI", argW)
	f.p("\tMOVQ %d(DI), R14", argScale)
	if panels > 1 {
		f.p("\tMOVQ %d(DI), CX", argWPanel)
		f.p("\tMOVQ %d(DI), DX", argScaleSize)
	}
	if panels > 3 {
		f.p("\tLEAQ (CX)(CX*2), R9")
		f.p("\tLEAQ (DX)(DX*2), R12")
	}
	f.p("\tMOVQ %d(DI), R15", argBlocks)
	f.p("block:")
	for r := 0; r < rows; r++ {
		f.p("\tVPBROADCASTD %s, Z%d", m(1, r), sums[0][r][0])
		for v := 1; v < panels; v++ {
			f.p("\tVMOVDQA64 Z%d, Z%d", sums[0][r][0], sums[0][r][v])
		}
		for s := 1; s < split; s++ {
			for v := 0; v < panels; v++ {
				f.p("\tVPXORD Z%d, Z%d, Z%d", sums[s][r][v], sums[s][r][v], sums[s][r][v])
			}
		}
	}
	turn := 0
	for g := 0; g < block/4; g++ {
		for v := 0; v < panels; v++ {
			f.p("\tVMOVDQU64 %s, Z%d", panel(64*g, "SI", v, "CX", "R9"), w[v])
		}
		for r := 0; r < rows; r++ {
			b := bcast[turn%2]
			turn++
			f.p("\tVPBROADCASTD %s, Z%d", a(4*g, r), b)
			for v := 0; v < panels; v++ {
				f.p("\tVPDPBUSD Z%d, Z%d, Z%d", b, w[v], sums[g%split][r][v])
			}
		}
	}
	if split == 2 {
		for v := 0; v < panels; v++ {
			f.p("\tVPADDD Z%d, Z%d, Z%d", sums[1][0][v], sums[0][0][v], sums[0][0][v])
		}
	}
	for v := 0; v < panels; v++ {
		f.p("\tVMOVUPS %s, Z%d", panel(0, "R14", v, "DX", "R12"), scale[v])
	}
	for r := 0; r < rows; r++ {
		for v := 0; v < panels; v++ {
			s := sums[0][r][v]
			f.p("\tVCVTDQ2PS Z%d, Z%d", s, s)
			f.p("\tVMULPS Z%d, Z%d, Z%d", scale[v], s, s)
			f.p("\tVFMADD231PS.BCST %s, Z%d, Z%d", m(0, r), s, acc[r][v])
		}
	}
	step := 64
	if min {
		step = 128
		for v := 0; v < panels; v++ {
			f.p("\tVMOVUPS %s, Z%d", panel(64, "R14", v, "DX", "R12"), low[v])
		}
		for r := 0; r < rows; r++ {
			for v := 0; v < panels; v++ {
				f.p("\tVFMADD231PS.BCST %s, Z%d, Z%d", m(2, r), low[v], acc[r][v])
			}
		}
	}
	f.p("\tADDQ $%d, AX", block)
	f.p("\tADDQ $%d, BX", metaStep(manySlots))
	f.p("\tADDQ $%d, SI", block*16)
	f.p("\tADDQ $%d, R14", step)
	f.p("\tDECQ R15")
	f.p("\tJNE block")
	f.p("\tMOVQ %d(DI), AX", argC)
	for r := 0; r < rows; r++ {
		for v := 0; v < panels; v++ {
			f.p("\tVMOVUPS Z%d, K%d, %d(AX)", acc[r][v], v+1, 64*v)
		}
		if r+1 < rows {
			f.p("\tADDQ %d(DI), AX", argLdc)
		}
	}
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// leanRows and leanPanels are the rows of A and the panels that a lean kernel takes at most.
const leanRows, leanPanels = 3, 4

// leanAVX512 writes the dot kernels for processors that load about one vector of 64 bytes a cycle: see leanKernel.
func leanAVX512(f *file, table *strings.Builder) {
	table.WriteString("\n// avx512Lean holds the dot kernels with few loads by block (0: 32, 1: 16), minimums, rows, and panels (0: one, 1: the most).\n")
	fmt.Fprintf(table, "var avx512Lean = [2][2][%d][2]func(*dotArgs){\n", leanRows+1)
	for _, block := range []int{32, 16} {
		table.WriteString("{\n")
		for _, min := range []bool{false, true} {
			table.WriteString("{\n")
			for rows := 1; rows <= leanRows; rows++ {
				fmt.Fprintf(table, "%d: {", rows)
				for _, panels := range []int{1, leanPanels} {
					name := fmt.Sprintf("leanAVX512b%dr%dp%d", block, rows, panels)
					if min {
						name += "min"
					}
					leanKernel(f, name, block, min, rows, panels)
					fmt.Fprintf(table, "%s, ", name)
				}
				table.WriteString("},\n")
			}
			table.WriteString("},\n")
		}
		table.WriteString("},\n")
	}
	table.WriteString("}\n")
}

// leanKernel writes a dot kernel that loads less than those of dotAVX512: 3 rows and 4 panels take 7 loads for 12 VPDPBUSD, 6 rows and 2 panels take
// 8. It is called for a number of strips of rows, one behind the other.
//
// The integer sums start from the bits of 1.5 * 2^23, so that they are float32 as they stand, that number too large. A multiply-add by the scale that
// takes the same multiple of the number away, which is exact, rounds to what a conversion and a multiplication give. (A sum of 0 gives +0 whatever
// the sign of the scale; an infinite scale gives NaN. Scales in bfloat16 may be so large that the multiple overflows: these kernels are not for them.)
//
//	registers as header512 says, and R11, R12: three times CX, DX   R13 strips to go   R10 strips to go in the group of rows
//	Z0-Z11 integer sums   Z12-Z23 sums of float32   Z24-Z27 weights, scales, minimums   Z28 Z29 of a row   Z30 what is taken away   Z31 the number
func leanKernel(f *file, name string, block int, min bool, rows, panels int) {
	f.textFrame(name, "p *dotArgs", 8, 24, fmt.Sprintf("computes strips of %d rows against %d panels over blocks of %d, with few loads.", rows, panels, block))
	const strips = manyHeight / leanRows // of a group
	sum := func(r, v int) int { return r*panels + v }
	acc := func(r, v int) int { return 12 + r*panels + v }
	w := func(v int) int { return 24 + v }
	ofRow := [2]int{28, 29}
	const away, magic = 30, 31
	m := func(word, r int) string { return fmt.Sprintf("%d(BX)", 4*(word*manySlots+r)) }
	tile := func(line func(at string, v, z int)) { // walks through C
		for r := 0; r < rows; r++ {
			for v := 0; v < panels; v++ {
				line(fmt.Sprintf("%d(AX)", 64*v), v, acc(r, v))
			}
			if r+1 < rows {
				f.p("\tADDQ %d(DI), AX", argLdc)
			}
		}
	}

	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), R10", argMask)
	for v := 0; v < panels; v++ {
		f.p("\tKMOVW R10, K%d", v+1)
		if v+1 < panels {
			f.p("\tSHRQ $16, R10")
		}
	}
	f.constant(0x4b400000, magic)
	for i, arg := range []int{argC, argA, argMeta} {
		f.p("\tMOVQ %d(DI), AX", arg)
		f.p("\tMOVQ AX, %d(SP)", 8*i)
	}
	if rows > 1 {
		f.p("\tMOVQ %d(DI), R8", argAStride)
	}
	if panels > 1 {
		f.p("\tMOVQ %d(DI), CX", argWPanel)
		f.p("\tMOVQ %d(DI), DX", argScaleSize)
		f.p("\tLEAQ (CX)(CX*2), R11")
		f.p("\tLEAQ (DX)(DX*2), R12")
	}
	f.p("\tMOVQ %d(DI), R13", argGroups)
	f.p("\tMOVQ $%d, R10", strips)
	f.p("strip:")
	f.p("\tCMPQ %d(DI), $0", argAcc)
	f.p("\tJEQ fresh")
	f.p("\tMOVQ 0(SP), AX")
	tile(func(at string, v, z int) { f.p("\tVMOVUPS.Z %s, K%d, Z%d", at, v+1, z) })
	f.p("\tJMP start")
	f.p("fresh:")
	for r := 0; r < rows; r++ {
		for v := 0; v < panels; v++ {
			f.p("\tVPXORD Z%d, Z%d, Z%d", acc(r, v), acc(r, v), acc(r, v))
		}
	}
	f.p("start:")
	f.p("\tMOVQ 8(SP), AX")
	f.p("\tMOVQ 16(SP), BX")
	f.p("\tMOVQ %d(DI), SI", argW)
	f.p("\tMOVQ %d(DI), R14", argScale)
	f.p("\tMOVQ %d(DI), R15", argBlocks)
	f.p("block:")
	for r := 0; r < rows; r++ {
		f.p("\tVPADDD.BCST %s, Z%d, Z%d", m(1, r), magic, sum(r, 0))
		for v := 1; v < panels; v++ {
			f.p("\tVMOVDQA64 Z%d, Z%d", sum(r, 0), sum(r, v))
		}
	}
	turn := 0
	for g := 0; g < block/4; g++ {
		for v := 0; v < panels; v++ {
			f.p("\tVMOVDQU64 %s, Z%d", panel(64*g, "SI", v, "CX", "R11"), w(v))
		}
		for r := 0; r < rows; r++ {
			b := ofRow[turn%2]
			turn++
			f.p("\tVPBROADCASTD %s, Z%d", row(4*g, "AX", r, "R8", "", ""), b)
			for v := 0; v < panels; v++ {
				f.p("\tVPDPBUSD Z%d, Z%d, Z%d", b, w(v), sum(r, v))
			}
		}
	}
	for v := 0; v < panels; v++ {
		f.p("\tVMOVUPS %s, Z%d", panel(0, "R14", v, "DX", "R12"), w(v))
		f.p("\tVMULPS Z%d, Z%d, Z%d", magic, w(v), away)
		for r := 0; r < rows; r++ {
			f.p("\tVFMSUB213PS Z%d, Z%d, Z%d", away, w(v), sum(r, v))
		}
		if min {
			f.p("\tVMOVUPS %s, Z%d", panel(64, "R14", v, "DX", "R12"), w(v))
		}
	}
	for r := 0; r < rows; r++ {
		f.p("\tVBROADCASTSS %s, Z%d", m(0, r), ofRow[0])
		for v := 0; v < panels; v++ {
			f.p("\tVFMADD231PS Z%d, Z%d, Z%d", sum(r, v), ofRow[0], acc(r, v))
		}
		if min {
			f.p("\tVBROADCASTSS %s, Z%d", m(2, r), ofRow[1])
			for v := 0; v < panels; v++ {
				f.p("\tVFMADD231PS Z%d, Z%d, Z%d", w(v), ofRow[1], acc(r, v))
			}
		}
	}
	f.p("\tADDQ $%d, AX", block)
	f.p("\tADDQ $%d, BX", metaStep(manySlots))
	f.p("\tADDQ $%d, SI", block*16)
	step := 64
	if min {
		step = 128
	}
	f.p("\tADDQ $%d, R14", step)
	f.p("\tDECQ R15")
	f.p("\tJNE block")
	f.p("\tMOVQ 0(SP), AX")
	tile(func(at string, v, z int) { f.p("\tVMOVUPS Z%d, K%d, %s", z, v+1, at) })
	f.p("\tDECQ R13")
	f.p("\tJEQ done")
	f.p("\tADDQ %d(DI), AX", argLdc)
	f.p("\tMOVQ AX, 0(SP)")
	for range rows {
		f.p("\tMOVQ %d(DI), AX", argAStride)
		f.p("\tADDQ AX, 8(SP)")
	}
	f.p("\tMOVQ $%d, AX", 4*rows)
	f.p("\tDECQ R10")
	f.p("\tJNE same")
	f.p("\tMOVQ $%d, R10", strips)
	f.p("\tMOVQ %d(DI), AX", argMetaGroup)
	f.p("\tSUBQ $%d, AX", 4*rows*(strips-1))
	f.p("same:")
	f.p("\tADDQ AX, 16(SP)")
	f.p("\tJMP strip")
	f.p("done:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// constant broadcasts a 32-bit pattern.
func (f *file) constant(value uint32, z int) {
	f.p("\tMOVL $%#x, AX", value)
	f.p("\tVPBROADCASTD AX, Z%d", z)
}

// A spread is the code that spreads a unit of 512 weights at an offset from SI to bytes in Z0 to Z7, four k of 16 rows each. It may use
// Z8 to Z14, and constants in Z29 to Z31.
type spread struct {
	name, doc string
	size      int // bytes of a packed unit
	setup     func(f *file)
	unit      func(f *file, off int)
}

// nibbles leaves the nibbles of 256 bytes in Z0 to Z7.
func nibbles(f *file, off int) {
	for i := 0; i < 4; i++ {
		f.p("\tVMOVDQU64 %s, Z%d", f.bits(off+64*i), i)
		f.p("\tVPSRLW $4, Z%d, Z%d", i, i+4)
		f.p("\tVPANDD Z31, Z%d, Z%d", i, i)
		f.p("\tVPANDD Z31, Z%d, Z%d", i+4, i+4)
	}
}

// pairs leaves the pairs of bits of 128 bytes in Z0 to Z7.
func pairs(f *file, off int) {
	for h := 0; h < 2; h++ {
		f.p("\tVMOVDQU64 %s, Z%d", f.bits(off+64*h), 8+h)
	}
	for g := 0; g < 8; g++ {
		f.p("\tVPANDD Z31, Z%d, Z%d", pick(f, 8+g/4, g%4*2, 0, g), g)
	}
}

// pick moves bits of every byte from one position to another; what else is in the bytes is left for the caller to mask off.
func pick(f *file, src, from, to, dst int) int {
	switch {
	case from > to:
		f.p("\tVPSRLW $%d, Z%d, Z%d", from-to, src, dst)
	case from < to:
		f.p("\tVPSLLW $%d, Z%d, Z%d", to-from, src, dst)
	default:
		return src
	}
	return dst
}

// merge ors the masked bits into z.
func merge(f *file, bits, mask, z int) { f.p("\tVPTERNLOGD $0xF8, Z%d, Z%d, Z%d", bits, mask, z) }

var spreads = map[string]spread{
	"U8": {"U8", "bytes", 512, func(f *file) {}, func(f *file, off int) {
		for g := 0; g < 8; g++ {
			f.p("\tVMOVDQU64 %s, Z%d", f.bits(off+64*g), g)
		}
	}},
	"U4": {"U4", "nibbles", 256, func(f *file) { f.constant(0x0f0f0f0f, 31) }, nibbles},
	"Table": {"Table", "nibbles that are indexes into a table", 256, func(f *file) {
		f.p("\tVBROADCASTI32X4 (DX), Z30")
		f.constant(0x0f0f0f0f, 31)
	}, func(f *file, off int) {
		nibbles(f, off)
		for g := 0; g < 8; g++ {
			f.p("\tVPSHUFB Z%d, Z30, Z%d", g, g)
		}
	}},
	"U5": {"U5", "nibbles and a plane of fifth bits", 320, func(f *file) {
		f.constant(0x0f0f0f0f, 31)
		f.constant(0x10101010, 30)
	}, func(f *file, off int) {
		nibbles(f, off)
		f.p("\tVMOVDQU64 %s, Z8", f.bits(off+256))
		for g := 0; g < 8; g++ {
			merge(f, pick(f, 8, g, 4, 9+g%4), 30, g)
		}
	}},
	"U6": {"U6", "nibbles and two planes of upper pairs", 384, func(f *file) {
		f.constant(0x0f0f0f0f, 31)
		f.constant(0x30303030, 30)
	}, func(f *file, off int) {
		nibbles(f, off)
		f.p("\tVMOVDQU64 %s, Z8", f.bits(off+256))
		f.p("\tVMOVDQU64 %s, Z9", f.bits(off+320))
		for g := 0; g < 8; g++ {
			merge(f, pick(f, 8+g/4, g%4*2, 4, 10+g%4), 30, g)
		}
	}},
	"U2": {"U2", "pairs of bits", 128, func(f *file) { f.constant(0x03030303, 31) }, pairs},
	"U3": {"U3", "pairs and a plane of third bits", 192, func(f *file) {
		f.constant(0x03030303, 31)
		f.constant(0x04040404, 30)
	}, func(f *file, off int) {
		pairs(f, off)
		f.p("\tVMOVDQU64 %s, Z10", f.bits(off+128))
		for g := 0; g < 8; g++ {
			merge(f, pick(f, 10, g, 2, 11+g%4), 30, g)
		}
	}},
}

// sets walks the three counters of functions over sets of units or vectors: per of them lie behind one another, sets stride bytes apart.
//
//	SI source   DI destination   CX left in all   R9 per   R10 stride from the end of a set to the next   R11 left in the set
func (f *file) sets(body func(), step int) {
	f.p("\tMOVQ R9, R11")
	f.p("loop:")
	body()
	f.p("\tDECQ CX")
	f.p("\tJEQ done")
	f.p("\tADDQ $%d, SI", step)
	f.p("\tDECQ R11")
	f.p("\tJNE loop")
	f.p("\tADDQ R10, SI")
	f.p("\tMOVQ R9, R11")
	f.p("\tJMP loop")
	f.p("done:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// spreadAVX512 writes the functions that spread bits to bytes in memory.
func spreadAVX512(f *file, table *strings.Builder) {
	table.WriteString("\n// avx512Spread holds the functions that spread bits, by kind; the table kind stands behind the others.\n")
	table.WriteString("var avx512Spread = [...]func(dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte){")
	for _, name := range []string{"U8", "U4", "U5", "U6", "U2", "U3", "Table"} {
		s := spreads[name]
		fn := "spread" + name + "AVX512"
		fmt.Fprintf(table, "%s, ", fn)
		f.text(fn, "dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte", 56, "spreads "+s.doc+" to bytes and subtracts less.")
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ src+8(FP), SI")
		f.p("\tMOVQ n+16(FP), CX")
		f.p("\tMOVQ per+24(FP), R9")
		f.p("\tMOVQ stride+32(FP), R10")
		f.p("\tIMUL3Q $%d, R9, AX", s.size)
		f.p("\tSUBQ AX, R10")
		f.p("\tMOVBLZX less+40(FP), AX")
		f.p("\tVPBROADCASTB AX, Z28")
		f.p("\tMOVQ table+48(FP), DX")
		s.setup(f)
		f.sets(func() {
			for off := 0; off < s.size; off += 64 {
				f.p("\tPREFETCHT0 %d(SI)", ahead(s.size)+off)
			}
			s.unit(f, 0)
			for g := 0; g < 8; g++ {
				f.p("\tVPSUBB Z28, Z%d, Z%d", g, g)
				f.p("\tVMOVDQU64 Z%d, %d(DI)", g, 64*g)
			}
			f.p("\tADDQ $512, DI")
		}, s.size)
	}
	table.WriteString("}\n")
}

// fewRows is the largest number of rows for which bits are spread in registers, not in memory.
const fewRows = 8

// A form is how a format's panels are read by fused kernels.
type form struct {
	name, spread string
	block        int
	min, super   bool
	bf16         bool
}

// key is the literal of the Go type fusedForm.
func (m form) key() string {
	bits, table := strings.ToLower(m.spread), m.spread == "Table"
	if table {
		bits = "u4"
	}
	return fmt.Sprintf("{%s, %v, %v, %v, %v}", bits, table, m.min, m.super, m.bf16)
}

var forms = []form{
	{"Q8_0", "U8", 32, false, false, false},
	{"Q4_0", "U4", 32, false, false, false},
	{"Q4_1", "U4", 32, true, false, false},
	{"Q5_0", "U5", 32, false, false, false},
	{"Q5_1", "U5", 32, true, false, false},
	{"IQ4_NL", "Table", 32, false, false, false},
	{"MXFP4", "Table", 32, false, false, true},
	{"Q4_K", "U4", 32, true, true, false},
	{"Q5_K", "U5", 32, true, true, false},
	{"Q6_K", "U6", 16, false, true, false},
	{"Q2_K", "U2", 16, true, true, false},
	{"Q3_K", "U3", 16, false, true, false},
}

// fusedAVX512 writes the kernels for few rows and one panel, which spread bits in registers: they are limited by reading the
// weights, which is one steady stream; and those for one row and several panels.
func fusedAVX512(f *file, table *strings.Builder) {
	table.WriteString("\n// avx512Fused holds the kernels that read packed bits, by the form of the panels and rows.\n")
	table.WriteString("var avx512Fused = map[fusedForm][fewRows + 1]func(*dotArgs){\n")
	for _, m := range forms {
		fmt.Fprintf(table, "%s: {", m.key())
		for rows := 1; rows <= fewRows; rows++ {
			name := fmt.Sprintf("fused%sAVX512r%d", m.name, rows)
			fusedKernel(f, name, m, rows, 1)
			fmt.Fprintf(table, "%d: %s, ", rows, name)
		}
		table.WriteString("},\n")
	}
	table.WriteString("}\n")
	table.WriteString("\n// avx512Streams holds the kernels that read packed bits of four panels, for one row.\n")
	table.WriteString("var avx512Streams = map[fusedForm]func(*dotArgs){\n")
	for _, m := range forms {
		name := fmt.Sprintf("streams%sAVX512", m.name)
		fusedKernel(f, name, m, 1, 4)
		fmt.Fprintf(table, "%s: %s,\n", m.key(), name)
	}
	table.WriteString("}\n")
}

// ahead is how far in front of what is used weights are fetched: at 40 GB/s about 200 ns, and over the end of a page, where the
// processor's own prefetching stops. Weights of 8 bits come at a rate at which that would push what is fetched out of the first-level
// cache again. Fused kernels ask for it where their arguments say so.
func ahead(unit int) int {
	if unit == 512 {
		return 4096
	}
	return 8192
}

// streamsAhead is that distance in each of four streams. On an Ice Lake server they come at 13.5 to 15 GB/s, which is all that one core reads, and 25 to 27
// two, where one stream comes at 11 and 21, whatever is asked for in front of it.
const streamsAhead = 2048

// fused is a kernel in the making.
//
//	SI packed panel   AX a, rows R8 R9 R10 R11: 1 3 5 7 strides   BX meta   R15 blocks of 32 to go   R14 whether to fetch ahead
//	four panels: CX bytes between them, R11 three times that
//	supers: R13 scales of sub-blocks, R12 units to go
//	Z0-Z7 weights, Z8-Z14 scratch of the spread, then Z8-Z15 sums; Z16-Z23 accumulators; Z24 Z25 scales and minimums of a super-block,
//	Z26 Z27 of a block, constants from Z29 on
//	four panels, for one row: Z16-Z19 accumulators, Z20-Z23 scales, Z24 Z25 Z28 Z15 minimums of their super-blocks
type fused struct {
	*file
	form
	s      spread
	rows   int
	panels int
	chains int
	labels int
}

func (k *fused) sum(chain, r int) int { return 8 + chain*k.rows + r } // the spread is over when they are written
func (k *fused) acc(r int) int        { return 16 + r + k.panel }
func (k *fused) a(off, r int) string  { return row(off, "AX", r, "R8", "R9", "R10") }
func (k *fused) m(block, word, r int) string {
	return fmt.Sprintf("%d(BX)", block*metaStep(fewSlots)+4*(word*fewSlots+r))
}

// supers returns the registers of the scales and the minimums of the panel's super-block.
func (k *fused) supers() (d, m int) {
	if k.panels == 1 {
		return 24, 25
	}
	return 20 + k.panel, [...]int{24, 25, 28, 15}[k.panel]
}

func (k *fused) half(off, z int) {
	if k.bf16 {
		k.p("\tVPMOVZXWD %s, Z%d", k.bits(off), z)
		k.p("\tVPSLLD $16, Z%d, Z%d", z, z)
		return
	}
	k.p("\tVCVTPH2PS %s, Z%d", k.bits(off), z)
}

// each calls f for the panels, whose bits it reads meanwhile.
func (k *fused) each(f func()) {
	for k.panel = range k.panels {
		f()
	}
	k.panel = 0
}

// unit multiplies 32 k whose bits lie at an offset from SI, panel by panel. scales leaves those of block b in Z26 and Z27.
func (k *fused) unit(off, aOff, first int, scales func(b int)) {
	k.each(func() { k.onePanel(off, aOff, first, scales) })
}

func (k *fused) onePanel(off, aOff, first int, scales func(b int)) {
	k.s.unit(k.file, off)
	per := k.block / 4
	for b := 0; b < 32/k.block; b++ {
		for r := 0; r < k.rows; r++ {
			k.p("\tVPBROADCASTD %s, Z%d", k.m(first+b, 1, r), k.sum(0, r))
			if k.chains == 2 {
				k.p("\tVPXORD Z%d, Z%d, Z%d", k.sum(1, r), k.sum(1, r), k.sum(1, r))
			}
		}
		for g := 0; g < per; g++ {
			for r := 0; r < k.rows; r++ {
				k.p("\tVPDPBUSD.BCST %s, Z%d, Z%d", k.a(aOff+b*k.block+4*g, r), b*per+g, k.sum(g%k.chains, r))
			}
		}
		scales(b)
		for r := 0; r < k.rows; r++ {
			n := k.sum(0, r)
			if k.chains == 2 {
				k.p("\tVPADDD Z%d, Z%d, Z%d", k.sum(1, r), n, n)
			}
			k.p("\tVCVTDQ2PS Z%d, Z%d", n, n)
			k.p("\tVMULPS Z26, Z%d, Z%d", n, n)
			k.p("\tVFMADD231PS.BCST %s, Z%d, Z%d", k.m(first+b, 0, r), n, k.acc(r))
			if k.min {
				op := "VFMADD231PS"
				if k.super {
					op = "VFNMADD231PS" // its minimums are subtracted
				}
				k.p("\t%s.BCST %s, Z27, Z%d", op, k.m(first+b, 2, r), k.acc(r))
			}
		}
	}
}

func (k *fused) prefetch(bytes int) {
	k.labels++
	k.p("\tTESTQ R14, R14")
	k.p("\tJEQ alone%d", k.labels)
	distance := ahead(k.s.size)
	if k.panels > 1 {
		distance = streamsAhead
	}
	k.each(func() {
		for off := 0; off < bytes; off += 64 {
			k.p("\tPREFETCHT0 %s", k.bits(distance+off))
		}
	})
	k.p("alone%d:", k.labels)
}

// sums moves float32 sums from C, or to it.
func (k *fused) sums(load bool) {
	mask := ", K1"
	if k.panels > 1 { // whole ones
		mask = ""
	}
	k.p("\tMOVQ %d(DI), DX", argC)
	k.each(func() {
		for r := 0; r < k.rows; r++ {
			switch {
			case load && mask != "":
				k.p("\tVMOVUPS.Z (DX)%s, Z%d", mask, k.acc(r))
			case load:
				k.p("\tVMOVUPS (DX), Z%d", k.acc(r))
			default:
				k.p("\tVMOVUPS Z%d%s, (DX)", k.acc(r), mask)
			}
			if r+1 < k.rows {
				k.p("\tADDQ %d(DI), DX", argLdc)
			}
		}
		if k.panel+1 < k.panels {
			k.p("\tADDQ %d(DI), DX", argCPanel)
		}
	})
}

func fusedKernel(f *file, name string, m form, rows, panels int) {
	k := &fused{f, m, spreads[m.spread], rows, panels, 1, 0}
	what := "a panel"
	if panels > 1 {
		what = fmt.Sprintf("%d panels", panels)
	}
	f.text(name, "p *dotArgs", 8, fmt.Sprintf("computes %d rows against %s of %s.", rows, what, m.name))
	if m.block == 32 && rows <= 4 {
		k.chains = 2
	}
	f.p("\tMOVQ p+0(FP), DI")
	if panels > 1 {
		f.p("\tMOVQ %d(DI), CX", argWPanel)
		f.p("\tLEAQ (CX)(CX*2), R11")
	} else {
		f.p("\tMOVQ %d(DI), R10", argMask)
		f.p("\tKMOVW R10, K1")
	}
	f.p("\tCMPQ %d(DI), $0", argAcc)
	f.p("\tJEQ fresh")
	k.sums(true)
	f.p("\tJMP start")
	f.p("fresh:")
	k.each(func() {
		for r := 0; r < rows; r++ {
			f.p("\tVPXORD Z%d, Z%d, Z%d", k.acc(r), k.acc(r), k.acc(r))
		}
	})
	f.p("start:")
	f.p("\tMOVQ %d(DI), DX", argTable)
	k.s.setup(f)
	f.p("\tMOVQ %d(DI), AX", argA)
	f.p("\tMOVQ %d(DI), BX", argMeta)
	if rows > 1 {
		f.p("\tMOVQ %d(DI), R8", argAStride)
	}
	if rows > 3 {
		f.p("\tLEAQ (R8)(R8*2), R9")
	}
	if rows > 5 {
		f.p("\tLEAQ (R8)(R8*4), R10")
	}
	if rows > 7 {
		f.p("\tLEAQ (R10)(R8*2), R11")
	}
	f.p("\tMOVQ %d(DI), SI", argW)
	f.p("\tMOVQ %d(DI), R15", argBlocks)
	f.p("\tMOVQ %d(DI), R14", argAhead)
	step := metaStep(fewSlots)
	switch {
	case m.super:
		subs := 256 / m.block
		sc := 32
		if m.min {
			sc = 64
		}
		mn, header := sc+16*subs, sc+16*subs
		if m.min {
			header += 16 * subs
		}
		header = (header + 63) / 64 * 64
		f.p("super:")
		k.prefetch(header)
		k.each(func() {
			d, mins := k.supers()
			k.half(0, d)
			if m.min {
				k.half(32, mins)
			}
		})
		f.p("\tLEAQ %d(SI), R13", sc)
		f.p("\tADDQ $%d, SI", header)
		f.p("\tMOVQ $8, R12")
		f.p("unit:")
		k.prefetch(k.s.size)
		widen := func(off, d, z int) {
			f.p("\tVPMOVSXBD %s, Z%d", f.of(off, "R13"), z)
			f.p("\tVCVTDQ2PS Z%d, Z%d", z, z)
			f.p("\tVMULPS Z%d, Z%d, Z%d", d, z, z)
		}
		k.unit(0, 0, 0, func(b int) {
			d, mins := k.supers()
			widen(16*b, d, 26)
			if m.min {
				widen(mn-sc+16*b, mins, 27)
			}
		})
		f.p("\tADDQ $32, AX")
		f.p("\tADDQ $%d, BX", step*32/m.block)
		f.p("\tADDQ $%d, SI", k.s.size)
		f.p("\tADDQ $%d, R13", 16*32/m.block)
		f.p("\tDECQ R12")
		f.p("\tJNE unit")
		f.p("\tSUBQ $8, R15")
		f.p("\tJNE super")
	case m.min:
		f.p("block:")
		k.prefetch(64 + k.s.size)
		k.unit(64, 0, 0, func(int) {
			k.half(0, 26)
			k.half(32, 27)
		})
		f.p("\tADDQ $32, AX")
		f.p("\tADDQ $%d, BX", step)
		f.p("\tADDQ $%d, SI", 64+k.s.size)
		f.p("\tDECQ R15")
		f.p("\tJNE block")
	default: // two blocks a group, of which the last may have one
		f.p("\tSUBQ $2, R15")
		f.p("\tJLT single")
		f.p("pair:")
		k.prefetch(64 + 2*k.s.size)
		for b := 0; b < 2; b++ {
			k.unit(64+b*k.s.size, 32*b, b, func(int) { k.half(32*b, 26) })
		}
		f.p("\tADDQ $64, AX")
		f.p("\tADDQ $%d, BX", 2*step)
		f.p("\tADDQ $%d, SI", 64+2*k.s.size)
		f.p("\tSUBQ $2, R15")
		f.p("\tJGE pair")
		f.p("single:")
		f.p("\tADDQ $2, R15")
		f.p("\tJEQ done")
		k.unit(64, 0, 0, func(int) { k.half(0, 26) })
		f.p("done:")
	}
	k.sums(false)
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

func scalesAVX512(f *file) {
	for _, b := range []bool{false, true} {
		name, doc := "halfsAVX512", "widens n vectors of 16 half-precision numbers to vectors that lie step bytes apart."
		if b {
			name, doc = "bhalfsAVX512", "widens n vectors of 16 bfloat16 numbers to vectors that lie step bytes apart."
		}
		f.text(name, "dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int", 48, doc)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ step+8(FP), DX")
		f.p("\tMOVQ src+16(FP), SI")
		f.p("\tMOVQ n+24(FP), CX")
		f.p("\tMOVQ per+32(FP), R9")
		f.p("\tMOVQ stride+40(FP), R10")
		f.p("\tMOVQ R9, AX")
		f.p("\tSHLQ $5, AX")
		f.p("\tSUBQ AX, R10")
		f.sets(func() {
			if b {
				f.p("\tVPMOVZXWD (SI), Z0")
				f.p("\tVPSLLD $16, Z0, Z0")
			} else {
				f.p("\tVCVTPH2PS (SI), Z0")
			}
			f.p("\tVMOVUPS Z0, (DI)")
			f.p("\tADDQ DX, DI")
		}, 32)
	}
	f.text("supersAVX512", "dst unsafe.Pointer, step int, d, s unsafe.Pointer, n, subs, stride int, neg uint32", 60,
		"multiplies subs vectors of int8 by each of n vectors of half-precision scales.")
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ step+8(FP), DX")
	f.p("\tMOVQ d+16(FP), SI")
	f.p("\tMOVQ s+24(FP), R8")
	f.p("\tMOVQ n+32(FP), CX")
	f.p("\tMOVQ subs+40(FP), R9")
	f.p("\tMOVQ stride+48(FP), R11")
	f.p("\tMOVL neg+56(FP), AX")
	f.p("\tVPBROADCASTD AX, Z2")
	f.p("loop:")
	f.p("\tVCVTPH2PS (SI), Z0")
	f.p("\tVPXORD Z2, Z0, Z0")
	f.p("\tMOVQ R9, R10")
	f.p("\tMOVQ R8, R12")
	f.p("sub:")
	f.p("\tVPMOVSXBD (R12), Z1")
	f.p("\tVCVTDQ2PS Z1, Z1")
	f.p("\tVMULPS Z0, Z1, Z1")
	f.p("\tVMOVUPS Z1, (DI)")
	f.p("\tADDQ $16, R12")
	f.p("\tADDQ DX, DI")
	f.p("\tDECQ R10")
	f.p("\tJNE sub")
	f.p("\tADDQ R11, SI")
	f.p("\tADDQ R11, R8")
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// quantizeAhead is how many bytes ahead activations are fetched, which come from the second-level cache or from beyond it.
const quantizeAhead = 1024

// quantizeAVX512 writes the quantization of activations for blocks of 32 and 16.
func quantizeAVX512(f *file) {
	for _, block := range []int{32, 16} {
		f.text(fmt.Sprintf("quantize%dAVX512", block), "q, meta, x unsafe.Pointer, blocks int, zero int32, slots int", 48,
			fmt.Sprintf("brings blocks of %d float32 to int8 and writes their meta.", block))
		f.p("\tMOVQ q+0(FP), DI")
		f.p("\tMOVQ meta+8(FP), BX")
		f.p("\tMOVQ x+16(FP), SI")
		f.p("\tMOVQ blocks+24(FP), CX")
		f.p("\tMOVL zero+32(FP), R8")
		f.p("\tNEGL R8")
		f.p("\tMOVQ slots+40(FP), R9")
		f.p("\tSHLQ $2, R9 // bytes between the words of a row")
		f.p("\tLEAQ (R9)(R9*2), R10")
		f.constant(0x7fffffff, 31)
		f.p("\tMOVL $0x01010101, AX")
		f.p("\tVPBROADCASTD AX, Y30")
		f.p("\tMOVL $0x42fe0000, AX // 127")
		f.p("\tVMOVD AX, X29")
		f.p("loop:")
		f.p("\tPREFETCHT0 %d(SI)", quantizeAhead)
		f.p("\tVMOVUPS (SI), Z0")
		f.p("\tVPANDD Z31, Z0, Z2")
		if block == 32 {
			f.p("\tPREFETCHT0 %d(SI)", quantizeAhead+64)
			f.p("\tVMOVUPS 64(SI), Z1")
			f.p("\tVPANDD Z31, Z1, Z3")
			f.p("\tVPMAXUD Z3, Z2, Z2")
		}
		// the largest magnitude, as bits: infinity and NaN are larger than every finite number
		f.p("\tVEXTRACTI64X4 $1, Z2, Y3")
		f.p("\tVPMAXUD Y3, Y2, Y2")
		f.p("\tVEXTRACTI128 $1, Y2, X3")
		f.p("\tVPMAXUD X3, X2, X2")
		f.p("\tVPSHUFD $0x4e, X2, X3")
		f.p("\tVPMAXUD X3, X2, X2")
		f.p("\tVPSHUFD $0xb1, X2, X3")
		f.p("\tVPMAXUD X3, X2, X2")
		f.p("\tVMOVD X2, AX")
		f.p("\tCMPL AX, $0x7f800000")
		f.p("\tJCC bad")
		f.p("\tVDIVSS X29, X2, X4 // scale")
		f.p("\tVDIVSS X2, X29, X5 // its inverse")
		f.p("\tVMOVD X5, AX")
		f.p("\tCMPL AX, $0x7f800000")
		f.p("\tJCC tiny")
		f.p("scaled:")
		f.p("\tVBROADCASTSS X5, Z6")
		f.p("\tVMULPS Z6, Z0, Z0")
		f.p("\tVCVTPS2DQ Z0, Z0")
		if block == 32 {
			f.p("\tVMULPS Z6, Z1, Z1")
			f.p("\tVCVTPS2DQ Z1, Z1")
			f.p("\tVPMOVDB Z0, X0")
			f.p("\tVPMOVDB Z1, X1")
			f.p("\tVINSERTI128 $1, X1, Y0, Y0")
			f.p("\tVMOVDQU Y0, (DI)")
			f.p("\tVPXOR Y7, Y7, Y7")
			f.p("\tVPDPBUSD Y0, Y30, Y7")
			f.p("\tVEXTRACTI128 $1, Y7, X8")
			f.p("\tVPADDD X8, X7, X7")
		} else {
			f.p("\tVPMOVDB Z0, X0")
			f.p("\tVMOVDQU X0, (DI)")
			f.p("\tVPXOR X7, X7, X7")
			f.p("\tVPDPBUSD X0, X30, X7")
		}
		f.p("\tVPSHUFD $0x4e, X7, X8")
		f.p("\tVPADDD X8, X7, X7")
		f.p("\tVPSHUFD $0xb1, X7, X8")
		f.p("\tVPADDD X8, X7, X7")
		f.p("\tVMOVD X7, AX")
		f.p("\tIMULL R8, AX")
		f.p("\tVCVTDQ2PS X7, X7")
		f.p("\tVMULSS X4, X7, X7")
		f.p("\tVMOVSS X4, (BX)")
		f.p("\tMOVL AX, (BX)(R9*1)")
		f.p("\tVMOVSS X7, (BX)(R9*2)")
		f.p("next:")
		f.p("\tADDQ $%d, SI", 4*block)
		f.p("\tADDQ $%d, DI", block)
		f.p("\tADDQ R10, BX")
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		f.p("\tVZEROUPPER")
		f.p("\tRET")
		f.p("tiny: // all zeros, or so small that products vanish")
		f.p("\tVPXOR X4, X4, X4")
		f.p("\tVPXOR X5, X5, X5")
		f.p("\tJMP scaled")
		f.p("bad: // NaN or infinity: every product with the block is NaN")
		f.p("\tVPXOR X0, X0, X0")
		f.p("\tVMOVDQU X0, (DI)")
		if block == 32 {
			f.p("\tVMOVDQU X0, 16(DI)")
		}
		f.p("\tMOVL $0x7fc00000, AX")
		f.p("\tMOVL AX, (BX)")
		f.p("\tMOVL $0, (BX)(R9*1)")
		f.p("\tMOVL AX, (BX)(R9*2)")
		f.p("\tJMP next")
	}
}
