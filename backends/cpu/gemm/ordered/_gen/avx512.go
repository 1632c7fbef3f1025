package main

import "fmt"

func avx512(dir string) {
	f := &file{}
	f.define("EVEN rounds X to bfloat16 to nearest even; a NaN stays one.", "EVEN(X)",
		"VCMPPS $3, X, X, K1", "VPSRLD $16, X, Z12", "VPANDD Z30, Z12, Z12", "VPADDD Z29, Z12, Z12", "VPADDD X, Z12, Z12", "VPORD Z31, X, K1, Z12",
		"VPANDD Z28, Z12, X")
	f.define("FLOOR rounds X towards minus infinity.", "FLOOR(X)",
		"VCMPPS $3, X, X, K1", "VPSRAD $31, X, Z12", "VPANDND Z12, Z28, Z12", "VPADDD X, Z12, Z12", "VPORD Z31, X, K1, Z12", "VPANDD Z28, Z12, X")
	f.define("", "CONSTANTS", "MOVL $0xFFFF0000, AX", "VPBROADCASTD AX, Z28", "MOVL $0x7FFF, AX", "VPBROADCASTD AX, Z29", "MOVL $1, AX",
		"VPBROADCASTD AX, Z30", "MOVL $0x400000, AX", "VPBROADCASTD AX, Z31")
	for _, groups := range []bool{false, true} {
		for _, nv := range []int{3, 2} {
			f.f32AVX512(nv, groups)
		}
	}
	for _, nv := range []int{3, 2} {
		f.s8AVX512(nv)
	}
	f.blocksAVX512()
	f.write(dir, "avx512_amd64", `// Kernels and packing for AVX-512. The float kernels' registers: Z0-Z11 accumulators (row i, vector v in Z(3i+v) or Z(2i+v)), Z12-Z23 group sums, Z24-Z26 a
// row of B, Z27 an element of A; Z12 and Z28-Z31 serve the narrowing, when the group sums are dead: Z28 = 0xFFFF0000, Z29 = 0x7FFF, Z30 = 1,
// Z31 = 0x400000 (quiet bit). SI is the mode: 1 to nearest even, 2 towards minus infinity.`)
}

// rowsOfC emits what is done for each of n rows, whose address base moves by DX.
func (f *file) rowsOfC(n int, base string, each func(i int)) {
	for i := range n {
		each(i)
		if i+1 < n {
			f.p("\tADDQ DX, %s", base)
		}
	}
}

// narrowing emits the end of a chunk: each register through the macro of the mode in SI.
func (f *file) narrowing(regs []string) {
	f.p("narrow:")
	f.ins("CMPQ SI, $1", "JB next", "JA floor")
	for _, r := range regs {
		f.p("\tEVEN(%s)", r)
	}
	f.p("\tJMP next")
	f.p("floor:")
	for _, r := range regs {
		f.p("\tFLOOR(%s)", r)
	}
	f.p("next:")
}

func (f *file) f32AVX512(nv int, groups bool) {
	name, params, counter, unroll := fmt.Sprintf("fma4x%dAVX512", 16*nv), f32Params, "k", 1
	doc := fmt.Sprintf("adds 4 rows of A times %d columns of B to C, one multiply-add per k.", 16*nv)
	if groups {
		name, params, counter, unroll = fmt.Sprintf("group4x%dAVX512", 16*nv), sumParams, "groups", 8
		doc = fmt.Sprintf("adds 4 rows of A times %d columns of B to C, a sum from zero over each group of 8 k; groups counts them per chunk.", 16*nv)
	}
	f.text(name, params, 7, doc)
	f.p("\tMOVQ c+0(FP), DI")
	f.ins("MOVQ ldc+8(FP), DX", "SHLQ $2, DX", "MOVQ a+16(FP), R8", "MOVQ b+24(FP), R9", "MOVQ chunks+32(FP), R10",
		"MOVQ "+counter+"+40(FP), R11", "MOVQ narrow+48(FP), SI", "CONSTANTS", "MOVQ DI, R12")
	acc := func(i, v int) string { return fmt.Sprintf("Z%d", nv*i+v) }
	f.rowsOfC(mr, "R12", func(i int) {
		for v := range nv {
			f.p("\tVMOVUPS %d(R12), %s", 64*v, acc(i, v))
		}
	})
	f.p("chunk:")
	f.ins("MOVQ R11, CX", "TESTQ CX, CX", "JZ narrow")
	f.p("inner:")
	sum := acc
	if groups {
		sum = func(i, v int) string { return fmt.Sprintf("Z%d", 12+nv*i+v) }
		for i := range mr * nv {
			f.p("\tVPXORD Z%d, Z%d, Z%d", 12+i, 12+i, 12+i)
		}
	}
	for u := range unroll {
		for v := range nv {
			f.p("\tVMOVUPS %d(R9), Z%d", 64*(nv*u+v), 24+v)
		}
		for i := range mr {
			f.p("\tVBROADCASTSS %d(R8), Z27", 4*(mr*u+i))
			for v := range nv {
				f.p("\tVFMADD231PS Z%d, Z27, %s", 24+v, sum(i, v))
			}
		}
	}
	if groups {
		for i := range mr * nv {
			f.p("\tVADDPS Z%d, Z%d, Z%d", 12+i, i, i)
		}
	}
	f.p("\tADDQ $%d, R8", 4*mr*unroll)
	f.p("\tADDQ $%d, R9", 64*nv*unroll)
	f.ins("DECQ CX", "JNZ inner")
	var regs []string
	for i := range mr * nv {
		regs = append(regs, fmt.Sprintf("Z%d", i))
	}
	f.narrowing(regs)
	f.ins("DECQ R10", "JNZ chunk")
	f.rowsOfC(mr, "DI", func(i int) {
		for v := range nv {
			f.p("\tVMOVUPS %s, %d(DI)", acc(i, v), 64*v)
		}
	})
	f.ins("VZEROUPPER", "RET")
}

func (f *file) s8AVX512(nv int) {
	f.text(fmt.Sprintf("s8x8x%dAVX512", 16*nv), "c *int32, ldc int, a *byte, b *int8, bias *int32, quads int", 6,
		fmt.Sprintf("adds 8 rows of A (unsigned, 128 added) times %d columns of B, and bias, to C; quads counts groups of 4 k. It needs VNNI.", 16*nv))
	f.p("\tMOVQ c+0(FP), DI")
	f.ins("MOVQ ldc+8(FP), DX", "SHLQ $2, DX", "MOVQ a+16(FP), R8", "MOVQ b+24(FP), R9", "MOVQ bias+32(FP), R10", "MOVQ quads+40(FP), CX", "MOVQ DI, R12")
	acc := func(i, v int) string { return fmt.Sprintf("Z%d", nv*i+v) }
	load := func(base string) {
		for v := range nv {
			f.p("\tVMOVDQU32 %d(%s), Z%d", 64*v, base, 24+v)
		}
	}
	load("R10")
	f.rowsOfC(mrS8, "R12", func(i int) {
		for v := range nv {
			f.p("\tVPADDD %d(R12), Z%d, %s", 64*v, 24+v, acc(i, v))
		}
	})
	f.p("quad:")
	load("R9")
	for i := range mrS8 {
		f.p("\tVPBROADCASTD %d(R8), Z27", 4*i)
		for v := range nv {
			f.p("\tVPDPBUSD Z%d, Z27, %s", 24+v, acc(i, v))
		}
	}
	f.p("\tADDQ $%d, R8", 4*mrS8)
	f.p("\tADDQ $%d, R9", 64*nv)
	f.ins("DECQ CX", "JNZ quad")
	f.rowsOfC(mrS8, "DI", func(i int) {
		for v := range nv {
			f.p("\tVMOVDQU32 %s, %d(DI)", acc(i, v), 64*v)
		}
	})
	f.ins("VZEROUPPER", "RET")
}

// blocksAVX512 emits the packing of operands that lie in the blocks of an NPU core, for VNNI and VBMI.
func (f *file) blocksAVX512() {
	f.p("")
	f.p("// Dwords 0, 2, ..., 14, 1, 3, ..., 15: the even ones are k 0 to 3 of 8 rows, the odd ones k 4 to 7.")
	for i := 0; i < 8; i++ {
		d := 4 * i % 16
		odd := i / 4
		f.p("DATA evenOdd<>+%d(SB)/8, $0x%08X%08X", 8*i, d+2+odd, d+odd)
	}
	f.p("GLOBL evenOdd<>(SB), RODATA|NOPTR, $64")

	f.text("packA8AVX512", "dst, "+packParams, 5, "permutes n blocks of 8 rows x 8 bytes to groups of 4 k and adds 128.")
	f.args("dst", "DI", "src", "SI", "half", "R8", "step", "R9", "n", "CX")
	f.ins("VMOVDQU32 evenOdd<>(SB), Z30", "MOVL $0x80808080, AX", "VPBROADCASTD AX, Z31")
	f.p("block:")
	f.ins("VMOVDQU (SI), Y0", "VINSERTI64X4 $1, (SI)(R8*1), Z0, Z0", "VPERMD Z0, Z30, Z0", "VPXORD Z31, Z0, Z0", "VMOVDQU32 Z0, (DI)",
		"ADDQ R9, SI", "ADDQ $64, DI", "DECQ CX", "JNZ block", "VZEROUPPER", "RET")

	f.text("packB8AVX512", "dst *int8, w4 int, src *byte, step, n int, order *[64]byte, sums *[16]int32", 7,
		"permutes n blocks of 64 bytes into two rows of a panel each, w4 bytes apart, and sums the bytes of each 32-bit group.")
	f.args("dst", "DI", "w4", "R8", "src", "SI", "step", "R9", "n", "CX", "order", "AX")
	f.ins("VMOVDQU32 (AX), Z30", "MOVL $0x01010101, AX", "VPBROADCASTD AX, Z31", "VPXORD Z1, Z1, Z1")
	f.p("block:")
	f.ins("VMOVDQU32 (SI), Z0", "VPERMB Z0, Z30, Z0", "VPDPBUSD Z0, Z31, Z1", "VMOVDQU Y0, (DI)", "VEXTRACTI64X4 $1, Z0, (DI)(R8*1)",
		"LEAQ (DI)(R8*2), DI", "ADDQ R9, SI", "DECQ CX", "JNZ block", "MOVQ sums+48(FP), AX", "VMOVDQU32 Z1, (AX)", "VZEROUPPER", "RET")

	f.define("LOAD16 brings the two pieces at SI and SI+R8 into Z4-Z7: float32, two k a register, 8 rows each. Z30 and Z31 hold the order.", "LOAD16", "VMOVDQU32 (SI), Z0", "VMOVDQU32 (SI)(R8*1), Z1", "VMOVDQA32 Z30, Z2", "VMOVDQA32 Z31, Z3", "VPERMI2W Z1, Z0, Z2",
		"VPERMI2W Z1, Z0, Z3", "VPMOVZXWD Y2, Z4", "VEXTRACTI64X4 $1, Z2, Y2", "VPMOVZXWD Y2, Z5", "VPMOVZXWD Y3, Z6", "VEXTRACTI64X4 $1, Z3, Y3",
		"VPMOVZXWD Y3, Z7", "VPSLLD $16, Z4, Z4", "VPSLLD $16, Z5, Z5", "VPSLLD $16, Z6, Z6", "VPSLLD $16, Z7, Z7")
	f.define("EXPONENT leaves each row's shared exponent (in place) in Z8, the unit 2^(e-6) in Z9, 1.5 * 2^23 units in Z10, the clip limits in Z11 and Z12, the rows\n"+
		"// that hold a non-finite value in K4, and updates the ranges in Z27 and Z28.", "EXPONENT", "VPANDD Z29, Z4, Z8", "VPANDD Z29, Z5, Z9", "VPANDD Z29, Z6, Z10", "VPANDD Z29, Z7, Z11", "VPMAXUD Z9, Z8, Z8",
		"VPMAXUD Z11, Z10, Z10", "VPMAXUD Z10, Z8, Z8", "VSHUFI64X2 $0x4E, Z8, Z8, Z9", "VPMAXUD Z9, Z8, Z8", "VPTESTMD Z8, Z8, K1",
		"VPCMPD $4, Z29, Z8, K1, K1", "VPCMPD $0, Z29, Z8, K4", "VPMINUD Z8, Z27, K1, Z27", "VPMAXUD Z8, Z28, K1, Z28", "VPSUBD Z26, Z8, Z9",
		"VPADDD Z25, Z8, Z10", "VMULPS Z24, Z9, Z11", "VMULPS Z23, Z9, Z12")
	f.define("ROUND brings X to whole units: to nearest even, or down with FLOORFIX. Subnormals count as zero.", "FLOORFIX(X)", "VCMPPS $14, X, Z13, K3", "VSUBPS Z9, Z13, K3, Z13")
	f.p("")
	f.p("#define NOFIX(X)")
	f.define("", "ROUND(X, FIX)", "VPTESTMD Z29, X, K2", "VADDPS Z10, X, Z13", "VSUBPS Z10, Z13, Z13", "FIX(X)", "VMINPS Z11, Z13, Z13",
		"VMAXPS Z12, Z13, Z13", "VMOVAPS.Z Z13, K2, X", "VMOVAPS Z22, K4, X")
	f.define("", "CONSTANTS16", "VMOVDQU32 (AX), Z30", "VMOVDQU32 64(AX), Z31", "MOVL $0x7F800000, AX", "VPBROADCASTD AX, Z29", "VMOVDQA32 Z29, Z27",
		"VPXORD Z28, Z28, Z28", "MOVL $0x03000000, AX", "VPBROADCASTD AX, Z26", "MOVL $0x08C00000, AX", "VPBROADCASTD AX, Z25",
		"MOVL $0x42FE0000, AX", "VPBROADCASTD AX, Z24", "MOVL $0xC3000000, AX", "VPBROADCASTD AX, Z23", "MOVL $0x7FC00000, AX", "VPBROADCASTD AX, Z22")
	f.pack16AVX512("packA16AVX512", "panel", "permutes, widens and quantizes n blocks of 8 x 8 bf16 into two micropanels of 4 rows, panel bytes apart.", func() {
		for i := range 4 {
			f.p("\tVSHUFI64X2 $0xD8, Z%d, Z%d, Z%d", 4+i, 4+i, 4+i)
			f.p("\tVMOVUPS Y%d, %d(DI)", 4+i, 32*i)
			f.p("\tVEXTRACTI64X4 $1, Z%d, %d(DI)(R10*1)", 4+i, 32*i)
		}
		f.p("\tADDQ $128, DI")
	})
	f.pack16AVX512("packB16AVX512", "row", "is packA16AVX512 into rows of 8 columns, row bytes apart.", func() {
		for i := range 4 {
			f.p("\tVMOVUPS Y%d, (DI)", 4+i)
			f.p("\tVEXTRACTI64X4 $1, Z%d, (DI)(R10*1)", 4+i)
			f.p("\tLEAQ (DI)(R10*2), DI")
		}
	})
}

func (f *file) pack16AVX512(name, apart, doc string, store func()) {
	f.text(name, fmt.Sprintf("dst *float32, %s int, src *byte, half, step, n int, order *[64]uint16, quant int, exps *[32]uint32", apart), 9, doc)
	f.args("dst", "DI", apart, "R10", "src", "SI", "half", "R8", "step", "R9", "n", "CX", "order", "AX", "quant", "DX")
	f.p("\tCONSTANTS16")
	f.p("block:")
	f.ins("LOAD16", "CMPQ DX, $1", "JB store", "EXPONENT", "CMPQ DX, $1", "JNE floor")
	for i := range 4 {
		f.p("\tROUND(Z%d, NOFIX)", 4+i)
	}
	f.p("\tJMP store")
	f.p("floor:")
	for i := range 4 {
		f.p("\tROUND(Z%d, FLOORFIX)", 4+i)
	}
	f.p("store:")
	store()
	f.ins("ADDQ R9, SI", "DECQ CX", "JNZ block", "MOVQ exps+64(FP), AX", "VMOVDQU32 Z27, (AX)", "VMOVDQU32 Z28, 64(AX)", "VZEROUPPER", "RET")
}
