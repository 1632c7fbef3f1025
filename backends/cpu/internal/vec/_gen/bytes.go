package main

// Offsets of the fields of ByteSum.
const (
	bScaleA = 0
	bScaleB = 4
	bScaleY = 8
	bZeroA  = 12
	bZeroB  = 16
	bZeroY  = 20
	bLo     = 24
	bHi     = 28
)

// byteSums emits the sums of quantized bytes, for unsigned and signed sources, 32 elements at a time. Division is the slowest part.
func (g *gen) byteSums() {
	for _, a := range []string{"U", "S"} {
		for _, b := range []string{"U", "S"} {
			g.byteSum(a, b)
		}
	}
}

// Offsets of the fields of byteProduct, which are vectors.
const (
	pScaleA = 32 * iota
	pScaleB
	pInverse
	pRest
	pZeroA
	pZeroB
	pExponent
	pFlipA
	pFlipB
	pFlipY
	pZeroY
	pLo
	pHi
)

// byteProducts emits the sums of quantized bytes by a product in place of the division, 32 elements at a time. Bytes become float32 as the
// low bits of 2^23, which costs no conversion, and stay within their half of a register, so that packing brings them back in order.
func (g *gen) byteProducts() {
	g.text("multiplyBytes", "adds n quantized bytes of two sources, a multiple of 32.", "(dst, a, b *byte, n int, p *byteProduct)", "p dst", "p a", "p b", "n n", "p p")
	for i, off := range []int{pScaleA, pScaleB, pInverse, pRest, pZeroA, pZeroB, pExponent} {
		g.p("VMOVUPS %d(BX), Y%d", off, 15-i)
	}
	g.p("VPXOR Y8, Y8, Y8")
	g.labels++
	l := g.labels
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	g.label("each%d", l)
	g.p("VMOVDQU (SI), Y0")
	g.p("VMOVDQU (DX), Y1")
	g.p("VPXOR %d(BX), Y0, Y0", pFlipA)
	g.p("VPXOR %d(BX), Y1, Y1", pFlipB)
	// sum leaves the rounded quotients of a half of the words of a and b in register d; t is scratch.
	sum := func(half string, a, b, d, t int) {
		g.p("VPUNPCK%sWD Y9, Y%d, Y%d", half, b, t)
		g.p("VPUNPCK%sWD Y9, Y%d, Y%d", half, a, d)
		g.p("VSUBPS Y10, Y%d, Y%d", t, t)
		g.p("VSUBPS Y11, Y%d, Y%d", d, d)
		g.p("VMULPS Y14, Y%d, Y%d", t, t)
		g.p("VMULPS Y15, Y%d, Y%d", d, d)
		g.p("VADDPS Y%d, Y%d, Y%d", t, d, d)
		g.p("VMULPS Y12, Y%d, Y%d", d, t)
		g.p("VFMADD231PS Y13, Y%d, Y%d", d, t)
		g.p("VCVTPS2DQ Y%d, Y%d", t, d)
	}
	words := func(half string, a, b int) { // leaves them in register a
		g.p("VPUNPCK%sBW Y8, Y0, Y%d", half, a)
		g.p("VPUNPCK%sBW Y8, Y1, Y%d", half, b)
		sum("L", a, b, 4, 5)
		sum("H", a, b, 6, 7)
		g.p("VPACKSSDW Y6, Y4, Y%d", a)
		g.p("VPADDSW %d(BX), Y%d, Y%d", pZeroY, a, a)
	}
	words("L", 2, 3)
	words("H", 0, 1)
	g.p("VPACKUSWB Y0, Y2, Y0")
	g.p("VPMAXUB %d(BX), Y0, Y0", pLo)
	g.p("VPMINUB %d(BX), Y0, Y0", pHi)
	g.p("VPXOR %d(BX), Y0, Y0", pFlipY)
	g.p("VMOVDQU Y0, (DI)")
	for _, r := range []string{"DI", "SI", "DX"} {
		g.p("ADDQ $32, %s", r)
	}
	g.p("SUBQ $32, CX")
	g.p("JNZ each%d", l)
	g.label("end%d", l)
	g.done()
}

func (g *gen) byteSum(a, b string) {
	extend := map[string]string{"U": "VPMOVZXBD", "S": "VPMOVSXBD"}
	g.text("addBytes"+a+b, "adds n quantized bytes of two sources, a multiple of 32.", "(dst, a, b *byte, n int, s *ByteSum)", "p dst", "p a", "p b", "n n", "p s")
	for i, off := range []int{bZeroA, bScaleA, bZeroB, bScaleB, bScaleY} {
		g.p("VBROADCASTSS %d(BX), Y%d", off, 15-i)
	}
	g.limits()
	g.labels++
	l := g.labels
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	g.label("each%d", l)
	for i := range 4 {
		g.p("%s %d(SI), Y%d", extend[a], 8*i, i)
		g.p("%s %d(DX), Y4", extend[b], 8*i)
		g.p("VPSUBD Y15, Y%d, Y%d", i, i)
		g.p("VPSUBD Y13, Y4, Y4")
		g.p("VCVTDQ2PS Y%d, Y%d", i, i)
		g.p("VCVTDQ2PS Y4, Y4")
		g.p("VMULPS Y14, Y%d, Y%d", i, i)
		g.p("VMULPS Y12, Y4, Y4")
		g.p("VADDPS Y4, Y%d, Y%d", i, i)
	}
	g.quantize()
	for _, r := range []string{"DI", "SI", "DX"} {
		g.p("ADDQ $32, %s", r)
	}
	g.p("SUBQ $32, CX")
	g.p("JNZ each%d", l)
	g.label("end%d", l)
	g.done()
}

// byteMaxima emits the greater of two bytes each, for unsigned and signed ones, 64 bytes at a time, then 32.
func (g *gen) byteMaxima() {
	for _, t := range []string{"U", "S"} {
		g.text("maxBytes"+t, "sets n bytes to the greater of two each, a multiple of 32.", "(dst, a, b *byte, n int)", "p dst", "p a", "p b", "n n")
		g.labels++
		l := g.labels
		vectors := func(n int) {
			for i := range n {
				g.p("VMOVDQU %s, Y%d", at(32*i, "SI"), i)
			}
			for i := range n {
				g.p("VPMAX%sB %s, Y%d, Y%d", t, at(32*i, "DX"), i, i)
			}
			for i := range n {
				g.p("VMOVDQU Y%d, %s", i, at(32*i, "DI"))
			}
			for _, r := range []string{"DI", "SI", "DX"} {
				g.p("ADDQ $%d, %s", 32*n, r)
			}
			g.p("SUBQ $%d, CX", 32*n)
		}
		g.p("SUBQ $64, CX")
		g.p("JLT rest%d", l)
		g.label("each%d", l)
		vectors(2)
		g.p("JGE each%d", l)
		g.label("rest%d", l)
		g.p("ADDQ $64, CX")
		g.p("JZ end%d", l)
		vectors(1)
		g.label("end%d", l)
		g.done()
	}
}

// limits loads what quantize needs of the sum at BX: Y11 has the scale already.
func (g *gen) limits() {
	g.p("VBROADCASTSS %s, Y10", g.c("Far", 1<<20)) // beyond every byte; NaN becomes it, too
	for i, off := range []int{bZeroY, bLo, bHi} {
		g.p("VPBROADCASTW %d(BX), Y%d", off, 9-i)
	}
	g.p("VPCMPEQW Y6, Y6, Y6")
	g.p("VPSRLW $8, Y6, Y6")
}

// quantize stores the 32 numbers of Y0 to Y3 as bytes.
func (g *gen) quantize() {
	for i := range 4 {
		g.p("VDIVPS Y11, Y%d, Y%d", i, i)
		g.p("VMINPS Y10, Y%d, Y%d", i, i)
		g.p("VCVTPS2DQ Y%d, Y%d", i, i) // far below every byte is the least integer, which saturates
	}
	for i := 0; i < 4; i += 2 {
		g.p("VPACKSSDW Y%d, Y%d, Y%d", i+1, i, i)
		g.p("VPADDSW Y9, Y%d, Y%d", i, i)
		g.p("VPMAXSW Y8, Y%d, Y%d", i, i)
		g.p("VPMINSW Y7, Y%d, Y%d", i, i)
		g.p("VPAND Y6, Y%d, Y%d", i, i)
	}
	g.p("VMOVDQU interleave<>(SB), Y5")
	g.p("VPACKUSWB Y2, Y0, Y0")
	g.p("VPERMD Y0, Y5, Y0")
	g.p("VMOVDQU Y0, (DI)")
}

// quantizes emits what quantize does, of float32.
func (g *gen) quantizes() {
	g.text("quantize", "quantizes n numbers, a multiple of 32, as the results of a sum.", "(dst *byte, x *float32, n int, s *ByteSum)", "p dst", "p x", "n n", "p s")
	g.p("MOVQ DX, BX")
	g.p("VBROADCASTSS %d(BX), Y11", bScaleY)
	g.limits()
	g.labels++
	l := g.labels
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	g.label("each%d", l)
	for i := range 4 {
		g.p("VMOVUPS %s, Y%d", at(32*i, "SI"), i)
	}
	g.quantize()
	g.p("ADDQ $128, SI")
	g.p("ADDQ $32, DI")
	g.p("SUBQ $32, CX")
	g.p("JNZ each%d", l)
	g.label("end%d", l)
	g.done()
}
