package main

import "fmt"

func avx2(dir string) {
	f := &file{}
	f.p("")
	f.splat("bf16Lsb", 0x1)
	f.splat("bf16Half", 0x7FFF)
	f.splat("bf16High", 0xFFFF0000)
	f.splat("quietBit", 0x400000)
	f.splat("exponent", 0x7F800000)
	f.splat("nan", 0x7FC00000)
	f.splat("sixPowers", 0x03000000)
	f.splat("roundPowers", 0x08C00000)
	f.splat("most", 0x42FE0000)
	f.splat("least", 0xC3000000)
	f.splat("noBits", 0)
	f.splat("topBits", 0x80808080)
	f.splat("oneBytes", 0x01010101)
	f.splat("oneWords", 0x00010001)
	f.splat("lowBytes", 0x00FF00FF)
	blend := func(shift ...string) []string {
		return append(shift, "VPADDD X, Y12, Y12", "VCMPPS $3, X, X, Y13", "VPOR quietBit<>(SB), X, Y14", "VBLENDVPS Y13, Y14, Y12, Y12",
			"VPAND bf16High<>(SB), Y12, X")
	}
	f.define("EVEN rounds X to bfloat16 to nearest even; a NaN stays one.", "EVEN(X)",
		blend("VPSRLD $16, X, Y12", "VPAND bf16Lsb<>(SB), Y12, Y12", "VPADDD bf16Half<>(SB), Y12, Y12")...)
	f.define("FLOOR rounds X towards minus infinity.", "FLOOR(X)", blend("VPSRAD $31, X, Y12", "VPSRLD $16, Y12, Y12")...)
	for _, nv := range []int{3, 2} {
		f.fmaAVX2(nv)
	}
	for _, nv := range []int{3, 2} {
		f.groupAVX2(nv)
	}
	f.s8AVX2()
	f.blocksAVX2()
	f.write(dir, "avx2_amd64", `// Kernels and packing for AVX2 and FMA. A panel of 48 columns is multiplied as two tiles of 4 rows x 24 columns, one of 32 as two of 4 x 16: with 16 registers, 12 or
// 8 sums, a row of B in Y12-Y14 and an element of A in Y15. Y12-Y14 serve the narrowing. SI is its mode: 1 to nearest even, 2 towards minus infinity.`)
}

// splat emits 32 bytes of one 32-bit value.
func (f *file) splat(name string, v uint32) {
	for at := 0; at < 32; at += 8 {
		f.p("DATA %s<>+%d(SB)/8, $0x%08X%08X", name, at, v, v)
	}
	f.p("GLOBL %s<>(SB), RODATA|NOPTR, $32", name)
}

// tileAVX2 opens a float kernel of nv vectors a row.
func (f *file) tileAVX2(nv int, name, params, counter, doc string) {
	f.text(name, params, 7, doc)
	f.args("c", "DI", "ldc", "DX", "a", "R8", "b", "R9", "chunks", "R10", counter, "R11", "narrow", "SI")
	f.p("\tSHLQ $2, DX")
}

// stepAVX2 emits the multiply-adds of the u-th k.
func (f *file) stepAVX2(nv, u int) {
	for v := range nv {
		f.p("\tVMOVUPS %d(R9), Y%d", 64*nv*u+32*v, 12+v)
	}
	for i := range mr {
		f.p("\tVBROADCASTSS %d(R8), Y15", 4*(mr*u+i))
		for v := range nv {
			f.p("\tVFMADD231PS Y%d, Y15, Y%d", 12+v, nv*i+v)
		}
	}
}

// fmaAVX2 emits half of a panel of 16nv columns: rows of B are 64nv bytes apart.
func (f *file) fmaAVX2(nv int) {
	f.tileAVX2(nv, fmt.Sprintf("fma4x%dAVX2", 8*nv), f32Params, "k",
		fmt.Sprintf("adds 4 rows of A times %d columns of a panel of %d to C, one multiply-add per k.", 8*nv, 16*nv))
	f.p("\tMOVQ DI, R12")
	f.rowsOfC(mr, "R12", func(i int) {
		for v := range nv {
			f.p("\tVMOVUPS %d(R12), Y%d", 32*v, nv*i+v)
		}
	})
	f.p("chunk:")
	f.ins("MOVQ R11, CX", "TESTQ CX, CX", "JZ narrow", "PCALIGN $32")
	f.p("inner:")
	f.stepAVX2(nv, 0)
	f.p("\tADDQ $%d, R8", 4*mr)
	f.p("\tADDQ $%d, R9", 64*nv)
	f.ins("DECQ CX", "JNZ inner")
	var regs []string
	for i := range mr * nv {
		regs = append(regs, fmt.Sprintf("Y%d", i))
	}
	f.narrowing(regs)
	f.ins("DECQ R10", "JNZ chunk")
	f.rowsOfC(mr, "DI", func(i int) {
		for v := range nv {
			f.p("\tVMOVUPS Y%d, %d(DI)", nv*i+v, 32*v)
		}
	})
	f.ins("VZEROUPPER", "RET")
}

// groupAVX2 emits the same with group sums. The registers hold those; C stays in memory, which is L1, and is added to once in 8 k.
func (f *file) groupAVX2(nv int) {
	f.tileAVX2(nv, fmt.Sprintf("group4x%dAVX2", 8*nv), sumParams, "groups",
		fmt.Sprintf("adds 4 rows of A times %d columns of a panel of %d to C, a sum from zero over each group of 8 k; groups counts them per chunk.", 8*nv, 16*nv))
	f.p("\tLEAQ (DX)(DX*2), R12")
	at := func(i, v int) string {
		base := []string{"(DI)", "(DI)(DX*1)", "(DI)(DX*2)", "(DI)(R12*1)"}[i]
		return fmt.Sprintf("%d%s", 32*v, base)
	}
	f.p("chunk:")
	f.ins("MOVQ R11, CX", "TESTQ CX, CX", "JZ narrow", "PCALIGN $32")
	f.p("inner:")
	for r := range mr * nv {
		f.p("\tVXORPS Y%d, Y%d, Y%d", r, r, r)
	}
	for u := range 8 {
		f.stepAVX2(nv, u)
	}
	for i := range mr {
		for v := range nv {
			f.p("\tVADDPS %s, Y%d, Y%d", at(i, v), nv*i+v, nv*i+v)
			f.p("\tVMOVUPS Y%d, %s", nv*i+v, at(i, v))
		}
	}
	f.p("\tADDQ $%d, R8", 8*4*mr)
	f.p("\tADDQ $%d, R9", 8*64*nv)
	f.ins("DECQ CX", "JNZ inner")
	f.p("narrow:")
	f.ins("CMPQ SI, $1", "JB next", "JA floor")
	for _, mode := range []string{"EVEN", "FLOOR"} {
		for i := range mr {
			for v := range nv {
				f.p("\tVMOVUPS %s, Y%d", at(i, v), v)
			}
			for v := range nv {
				f.p("\t%s(Y%d)", mode, v)
				f.p("\tVMOVUPS Y%d, %s", v, at(i, v))
			}
		}
		if mode == "EVEN" {
			f.p("\tJMP next")
			f.p("floor:")
		}
	}
	f.p("next:")
	f.ins("DECQ R10", "JNZ chunk", "VZEROUPPER", "RET")
}

// s8AVX2 emits 8 rows by 16 columns, four rows at a time. Bytes of even and of odd k are widened in place to words, whose products and pair sums are exact.
func (f *file) s8AVX2() {
	f.text("s8x8x16AVX2", "c *int32, ldc int, a *byte, b *int8, w4 int, bias *int32, quads int", 7,
		"adds 8 rows of A (unsigned, 128 added) times 16 columns of a panel whose rows are w4 bytes apart, and bias, to C; quads counts groups of 4 k.")
	f.args("c", "DI", "ldc", "DX", "a", "AX", "b", "BX", "w4", "R11", "bias", "R10")
	f.ins("SHLQ $2, DX", "VMOVDQU lowBytes<>(SB), Y15", "MOVL $2, R13")
	f.p("half:")
	f.ins("MOVQ quads+48(FP), CX", "MOVQ AX, R8", "MOVQ BX, R9", "VMOVDQU (R10), Y8", "VMOVDQU 32(R10), Y9", "MOVQ DI, R12")
	f.rowsOfC(4, "R12", func(i int) {
		for v := range 2 {
			f.p("\tVPADDD %d(R12), Y%d, Y%d", 32*v, 8+v, 2*i+v)
		}
	})
	f.p("\tPCALIGN $32")
	f.p("quad:")
	for v := range 2 {
		even, odd := 8+2*v, 9+2*v
		f.p("\tVMOVDQU %d(R9), Y%d", 32*v, odd)
		f.p("\tVPSLLW $8, Y%d, Y%d", odd, even)
		f.p("\tVPSRAW $8, Y%d, Y%d", odd, odd)
		f.p("\tVPSRAW $8, Y%d, Y%d", even, even)
	}
	for i := range 4 {
		f.p("\tVPBROADCASTD %d(R8), Y12", 4*i)
		f.ins("VPSRLW $8, Y12, Y13", "VPAND Y15, Y12, Y12")
		for v := range 2 {
			for odd := range 2 {
				f.p("\tVPMADDWD Y%d, Y%d, Y14", 8+2*v+odd, 12+odd)
				f.p("\tVPADDD Y14, Y%d, Y%d", 2*i+v, 2*i+v)
			}
		}
	}
	f.p("\tADDQ $%d, R8", 4*mrS8)
	f.ins("ADDQ R11, R9", "DECQ CX", "JNZ quad")
	for i := range 4 {
		for v := range 2 {
			f.p("\tVMOVDQU Y%d, %d(DI)", 2*i+v, 32*v)
		}
		f.p("\tADDQ DX, DI")
	}
	f.ins("ADDQ $16, AX", "DECQ R13", "JNZ half", "VZEROUPPER", "RET")
}

func (f *file) blocksAVX2() {
	f.text("packA8AVX2", "dst, "+packParams, 5, "permutes n blocks of 8 rows x 8 bytes to groups of 4 k and adds 128.")
	f.args("dst", "DI", "src", "SI", "half", "R8", "step", "R9", "n", "CX")
	f.p("\tVMOVDQU topBits<>(SB), Y4")
	f.p("block:")
	f.ins("VMOVUPS (SI), Y0", "VMOVUPS (SI)(R8*1), Y1")
	for h, dwords := range []int{0x88, 0xDD} { // k 0 to 3 are the even ones
		f.p("\tVSHUFPS $0x%02X, Y1, Y0, Y2", dwords)
		f.ins("VPERMQ $0xD8, Y2, Y2", "VPXOR Y4, Y2, Y2")
		f.p("\tVMOVDQU Y2, %d(DI)", 32*h)
	}
	f.ins("ADDQ R9, SI", "ADDQ $64, DI", "DECQ CX", "JNZ block", "VZEROUPPER", "RET")

	// A table of 64 bytes is four of 16: an index with a quarter's number taken out, plus 0x70, has its top bit set, which gives zero, unless it lay in that quarter.
	f.text("packB8AVX2", "dst *int8, w4 int, src *byte, step, n int, order *[64]byte, sums *[16]int32", 7,
		"permutes n blocks of 64 bytes into two rows of a panel each, w4 bytes apart, and sums the bytes of each 32-bit group.")
	f.args("dst", "DI", "w4", "R8", "src", "SI", "step", "R9", "n", "CX", "order", "AX")
	for q := range 4 {
		f.p("\tMOVL $0x%02[1]X%02[1]X%02[1]X%02[1]X, DX", 16*q)
		f.ins("VMOVD DX, X0", "VPBROADCASTD X0, Y0", "MOVL $0x70707070, DX", "VMOVD DX, X1", "VPBROADCASTD X1, Y1")
		for h := range 2 {
			f.p("\tVPXOR %d(AX), Y0, Y%d", 32*h, 8+4*h+q)
			f.p("\tVPADDB Y1, Y%[1]d, Y%[1]d", 8+4*h+q)
		}
	}
	f.ins("VPXOR Y6, Y6, Y6", "VPXOR Y7, Y7, Y7")
	f.p("block:")
	for q := range 4 {
		f.p("\tVBROADCASTI128 %d(SI), Y%d", 16*q, q)
	}
	for h := range 2 {
		f.p("\tVPSHUFB Y%d, Y0, Y4", 8+4*h)
		for q := 1; q < 4; q++ {
			f.p("\tVPSHUFB Y%d, Y%d, Y5", 8+4*h+q, q)
			f.p("\tVPOR Y5, Y4, Y4")
		}
		f.p("\tVMOVDQU Y4, %s", []string{"(DI)", "(DI)(R8*1)"}[h])
		f.ins("VMOVDQU oneBytes<>(SB), Y5", "VPMADDUBSW Y4, Y5, Y5", "VPMADDWD oneWords<>(SB), Y5, Y5") // at most 2 x 128 in a word
		f.p("\tVPADDD Y5, Y%[1]d, Y%[1]d", 6+h)
	}
	f.ins("LEAQ (DI)(R8*2), DI", "ADDQ R9, SI", "DECQ CX", "JNZ block", "MOVQ sums+48(FP), AX", "VMOVDQU Y6, (AX)", "VMOVDQU Y7, 32(AX)", "VZEROUPPER", "RET")

	// Rows of 8 k: word pairs of two rows, then of four, a row in each lane; the last step puts zeros below the words.
	var lines []string
	for r := range 4 {
		lines = append(lines, fmt.Sprintf("VMOVDQU %d(SI), X%d", 16*r, r), fmt.Sprintf("VINSERTI128 $1, %d(SI)(R8*1), Y%d, Y%d", 16*r, r, r))
	}
	lines = append(lines, "VPUNPCKLWD Y1, Y0, Y4", "VPUNPCKHWD Y1, Y0, Y5", "VPUNPCKLWD Y3, Y2, Y6", "VPUNPCKHWD Y3, Y2, Y7",
		"VPUNPCKLDQ Y6, Y4, Y8", "VPUNPCKHDQ Y6, Y4, Y9", "VPUNPCKLDQ Y7, Y5, Y10", "VPUNPCKHDQ Y7, Y5, Y11")
	f.define("ROWS8 brings 8 rows of 8 k into Y8-Y11, two k a register: rows 0 to 3 in the low lane, 4 to 7 in the high one.", "ROWS8", lines...)
	lines = nil
	for r := range 4 {
		lines = append(lines, fmt.Sprintf("VMOVDQU %d(SI), X%d", 16*r, 8+r), fmt.Sprintf("VINSERTI128 $1, %d(SI)(R8*1), Y%d, Y%d", 16*r, 8+r, 8+r))
	}
	f.define("COLUMNS4 brings two pieces of 8 k by 4 columns into Y8-Y11 as ROWS8 does.", "COLUMNS4", lines...)
	lines = []string{"VPXOR Y12, Y12, Y12"}
	for r := range 4 {
		lines = append(lines, fmt.Sprintf("VPUNPCKLWD Y%d, Y12, Y%d", 8+r, 2*r), fmt.Sprintf("VPUNPCKHWD Y%d, Y12, Y%d", 8+r, 2*r+1))
	}
	f.define("WIDEN leaves k of Y8-Y11 in Yk: float32, 8 rows each.", "WIDEN", lines...)
	lines = nil
	for k := range 8 {
		at := fmt.Sprintf("%d(SI)", 16*k)
		if k >= 4 {
			at = fmt.Sprintf("%d(SI)(R8*1)", 16*(k-4))
		}
		lines = append(lines, fmt.Sprintf("VPMOVZXWD %s, Y%d", at, k), fmt.Sprintf("VPSLLD $16, Y%[1]d, Y%[1]d", k))
	}
	f.define("COLUMNS8 brings 8 k of 8 columns into Y0-Y7.", "COLUMNS8", lines...)
	lines = []string{"VPAND exponent<>(SB), Y0, Y8"}
	for k := 1; k < 8; k++ {
		lines = append(lines, fmt.Sprintf("VPAND exponent<>(SB), Y%d, Y9", k), "VPMAXUD Y9, Y8, Y8")
	}
	lines = append(lines, "VPCMPEQD exponent<>(SB), Y8, Y14", "VPANDN Y8, Y14, Y9", "VPMAXUD 64(AX), Y9, Y9", "VMOVDQU Y9, 64(AX)",
		"VPCMPEQD noBits<>(SB), Y8, Y9", "VPOR Y8, Y9, Y9", "VPMINUD (AX), Y9, Y9", "VMOVDQU Y9, (AX)",
		"VPSUBD sixPowers<>(SB), Y8, Y9", "VPADDD roundPowers<>(SB), Y8, Y10", "VMULPS most<>(SB), Y9, Y11", "VMULPS least<>(SB), Y9, Y12")
	f.define("EXPONENT leaves each row's shared exponent (in place) in Y8, the unit 2^(e-6) in Y9, 1.5 * 2^23 units in Y10, the clip limits in Y11 and Y12, the rows\n"+
		"// that hold a non-finite value in Y14, and updates the ranges at AX. Zero and non-finite leave these alone.", "EXPONENT", lines...)
	f.define("ROUND brings X to whole units: to nearest even, or down with FLOORFIX. Subnormals count as zero.", "FLOORFIX(X)",
		"VCMPPS $14, X, Y13, Y15", "VANDPS Y9, Y15, Y15", "VSUBPS Y15, Y13, Y13")
	f.p("")
	f.p("#define NOFIX(X)")
	f.define("", "ROUND(X, FIX)", "VADDPS Y10, X, Y13", "VSUBPS Y10, Y13, Y13", "FIX(X)", "VMINPS Y11, Y13, Y13", "VMAXPS Y12, Y13, Y13",
		"VPAND exponent<>(SB), X, X", "VPCMPEQD noBits<>(SB), X, X", "VPANDN Y13, X, X", "VBLENDVPS Y14, Y8, X, X")
	f.pack16AVX2("packA16AVX2", "panel", "widens and quantizes n blocks of 8 x 8 bf16 into two micropanels of 4 rows, panel bytes apart. Layouts and quant are those of Go.", func() {
		for k := range 8 {
			f.p("\tVMOVUPS X%d, %d(DI)", k, 16*k)
			f.p("\tVEXTRACTF128 $1, Y%d, %d(DI)(R10*1)", k, 16*k)
		}
		f.p("\tADDQ $128, DI")
	})
	f.pack16AVX2("packB16AVX2", "row", "is packA16AVX2 into rows of 8 columns, row bytes apart.", func() {
		for k := range 8 {
			f.p("\tVMOVUPS Y%d, (DI)", k)
			f.p("\tADDQ R10, DI")
		}
	})
}

func (f *file) pack16AVX2(name, apart, doc string, store func()) {
	f.text(name, fmt.Sprintf("dst *float32, %s int, src *byte, half, step, n int, layout, quant int, exps *[32]uint32", apart), 9, doc)
	f.args("dst", "DI", apart, "R10", "src", "SI", "half", "R8", "step", "R9", "n", "CX", "layout", "BX", "quant", "DX", "exps", "AX")
	f.ins("VMOVDQU exponent<>(SB), Y0", "VPXOR Y1, Y1, Y1", "VMOVDQU Y0, (AX)", "VMOVDQU Y0, 32(AX)", "VMOVDQU Y1, 64(AX)", "VMOVDQU Y1, 96(AX)")
	f.p("block:")
	f.ins("CMPQ BX, $1", "JB rows8", "JE columns4", "COLUMNS8", "JMP quantize")
	f.p("columns4:")
	f.ins("COLUMNS4", "JMP widen")
	f.p("rows8:")
	f.p("\tROWS8")
	f.p("widen:")
	f.p("\tWIDEN")
	f.p("quantize:")
	f.ins("CMPQ DX, $1", "JB store", "EXPONENT", "VMOVUPS nan<>(SB), Y8", "CMPQ DX, $1", "JNE floor")
	for k := range 8 {
		f.p("\tROUND(Y%d, NOFIX)", k)
	}
	f.p("\tJMP store")
	f.p("floor:")
	for k := range 8 {
		f.p("\tROUND(Y%d, FLOORFIX)", k)
	}
	f.p("store:")
	store()
	f.ins("ADDQ R9, SI", "DECQ CX", "JNZ block", "VZEROUPPER", "RET")
}
