package main

import "math"

// all emits every function. Registers: a slot of the unrolled loops has four vectors of its own, from 0 on; accumulators and
// scalars lie above.
func (g *gen) all() {
	for _, f := range []struct{ name, op, doc string }{
		{"add", "VADDPS", "sets dst = a + b."}, {"sub", "VSUBPS", "sets dst = a - b."}, {"mul", "VMULPS", "sets dst = a b."}, {"div", "VDIVPS", "sets dst = a / b."},
	} {
		g.text(f.name, f.doc, "(dst, a, b *float32, n int)", "p dst", "p a", "p b", "n n")
		g.loop(4, []string{"DI", "SI", "DX"}, func(u, off int, m bool) {
			x, y := g.reg(2*u), g.reg(2*u+1)
			g.load(m, at(off, "SI"), x)
			g.load(m, at(off, "DX"), y)
			g.p("%s %s, %s, %s", f.op, y, x, x)
			g.store(m, x, at(off, "DI"))
		})
		g.done()
	}
	g.extremes()
	g.text("scale", "sets dst = mul a + add, each rounded.", "(dst, a *float32, n int, mul, add float32)", "p dst", "p a", "n n", "f mul", "f add")
	mul, add := g.reg(15), g.reg(14)
	if g.wide {
		mul, add = g.reg(31), g.reg(30)
	} else {
		// Y14 is the mask of tails.
		g.p("VMOVAPS Y14, Y13")
		add = g.reg(13)
	}
	g.loop(4, []string{"DI", "SI"}, func(u, off int, m bool) {
		x := g.reg(u)
		g.load(m, at(off, "SI"), x)
		g.p("VMULPS %s, %s, %s", mul, x, x)
		g.p("VADDPS %s, %s, %s", add, x, x)
		g.store(m, x, at(off, "DI"))
	})
	g.done()
	top := g.reg(15)
	if g.wide {
		top = g.reg(31)
	}
	g.text("mulRow", "sets dst = a s w.", "(dst, a, w *float32, n int, s float32)", "p dst", "p a", "p w", "n n", "f s")
	g.loop(4, []string{"DI", "SI", "DX"}, func(u, off int, m bool) {
		x, y := g.reg(2*u), g.reg(2*u+1)
		g.load(m, at(off, "SI"), x)
		g.load(m, at(off, "DX"), y)
		g.p("VMULPS %s, %s, %s", top, x, x)
		g.p("VMULPS %s, %s, %s", y, x, x)
		g.store(m, x, at(off, "DI"))
	})
	g.done()
	g.text("axpy", "adds s a to dst, with one rounding.", "(dst, a *float32, n int, s float32)", "p dst", "p a", "n n", "f s")
	g.loop(4, []string{"DI", "SI"}, func(u, off int, m bool) {
		x, y := g.reg(2*u), g.reg(2*u+1)
		g.load(m, at(off, "SI"), x)
		g.load(m, at(off, "DI"), y)
		g.p("VFMADD231PS %s, %s, %s", top, x, y)
		g.store(m, y, at(off, "DI"))
	})
	g.done()
	g.exps()
	g.sums()
	g.rotations()
	g.halves()
	if !g.wide { // the other set takes them as they are
		g.byteSums()
		g.byteProducts()
		g.byteMaxima()
		g.quantizes()
	}
	for _, t := range storedTypes {
		g.scores(t)
		if g.wide && t.size < 4 {
			t.alone = true
			g.scores(t)
		}
	}
}

// extremes emits max and min; where either operand is NaN, so is the result.
func (g *gen) extremes() {
	for _, f := range []struct{ name, op, doc string }{{"max", "VMAXPS", "sets dst to the larger of a and b; NaN wins."}, {"min", "VMINPS", "sets dst to the smaller of a and b; NaN wins."}} {
		g.text(f.name, f.doc, "(dst, a, b *float32, n int)", "p dst", "p a", "p b", "n n")
		g.loop(2, []string{"DI", "SI", "DX"}, func(u, off int, m bool) {
			x, y, r, t := g.reg(4*u), g.reg(4*u+1), g.reg(4*u+2), g.reg(4*u+3)
			g.load(m, at(off, "SI"), x)
			g.load(m, at(off, "DX"), y)
			g.p("%s %s, %s, %s", f.op, y, x, r) // y where one is NaN
			if g.wide {
				g.p("VCMPPS $3, %s, %s, K2", x, x)
				g.p("VMOVAPS %s, K2, %s", x, r)
			} else {
				g.p("VCMPPS $3, %s, %s, %s", x, x, t)
				g.p("VBLENDVPS %s, %s, %s, %s", t, x, r, r)
			}
			g.store(m, r, at(off, "DI"))
		})
		g.done()
	}
}

// exp emits x = exp(x) with two more registers. The twin in Go says what the constants are.
func (g *gen) exp(x, n, p, t string) {
	// Limits keep infinities out of the reduction; x is the second source, so that NaN passes.
	lo, hi := g.c("ExpLow", -110), g.c("ExpTop", 95)
	if g.wide {
		g.p("VBROADCASTSS %s, %s", lo, n)
		g.p("VMAXPS %s, %s, %s", x, n, x)
		g.p("VBROADCASTSS %s, %s", hi, n)
		g.p("VMINPS %s, %s, %s", x, n, x)
	} else {
		g.p("VMOVUPS %s, %s", lo, n)
		g.p("VMAXPS %s, %s, %s", x, n, x)
		g.p("VMOVUPS %s, %s", hi, n)
		g.p("VMINPS %s, %s, %s", x, n, x)
	}
	g.op("VMULPS", g.c("Log2e", 1.44269504088896341), x, n)
	if g.wide {
		g.p("VRNDSCALEPS $8, %s, %s", n, n) // to nearest
	} else {
		g.p("VROUNDPS $8, %s, %s", n, n)
	}
	g.op("VFNMADD231PS", g.c("Ln2hi", 0.693359375), n, x)
	g.op("VFNMADD231PS", g.c("Ln2lo", -2.12194440e-4), n, x)
	horner := []float64{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}
	if g.wide {
		g.p("VBROADCASTSS %s, %s", g.c("Exp0", horner[0]), p)
	} else {
		g.p("VMOVUPS %s, %s", g.c("Exp0", horner[0]), p)
	}
	for i, c := range horner[1:] {
		g.op("VFMADD213PS", g.c("Exp"+string(rune('1'+i)), c), x, p)
	}
	g.p("VMULPS %s, %s, %s", x, x, t)
	g.p("VFMADD213PS %s, %s, %s", x, t, p) // p r^2 + r
	g.op("VADDPS", g.c("One", 1), p, p)
	if g.wide {
		g.p("VSCALEFPS %s, %s, %s", n, p, x)
		return
	}
	// 2^n in two factors, as neither leaves the range then.
	g.p("VCVTPS2DQ %s, %s", n, n)
	g.p("VPSRAD $1, %s, %s", n, t)
	g.p("VPSUBD %s, %s, %s", t, n, n)
	bias := g.bits("Bias", 127)
	for _, r := range []string{t, n} {
		g.p("VPADDD %s, %s, %s", bias, r, r)
		g.p("VPSLLD $23, %s, %s", r, r)
		g.p("VMULPS %s, %s, %s", r, p, p)
	}
	g.p("VMOVAPS %s, %s", p, x)
}

func (g *gen) exps() {
	g.text("exp", "sets dst = e^a.", "(dst, a *float32, n int)", "p dst", "p a", "n n")
	g.loop(2, []string{"DI", "SI"}, func(u, off int, m bool) {
		x := g.reg(4 * u)
		g.load(m, at(off, "SI"), x)
		g.exp(x, g.reg(4*u+1), g.reg(4*u+2), g.reg(4*u+3))
		g.store(m, x, at(off, "DI"))
	})
	g.done()
	g.text("expSub", "sets dst = e^(a - top) and returns the sum.", "(dst, a *float32, n int, top float32) float32", "p dst", "p a", "n n", "f top")
	top := g.reg(15)
	if g.wide {
		top = g.reg(31)
	}
	acc := func(u int) string { return g.reg(8 + u) }
	for u := range 2 {
		g.p("VXORPS %s, %s, %s", acc(u), acc(u), acc(u))
	}
	g.loop(2, []string{"DI", "SI"}, func(u, off int, m bool) {
		x := g.reg(4 * u)
		g.load(m, at(off, "SI"), x)
		g.p("VSUBPS %s, %s, %s", top, x, x)
		g.exp(x, g.reg(4*u+1), g.reg(4*u+2), g.reg(4*u+3))
		g.store(m, x, at(off, "DI"))
		g.clear(m, x)
		g.p("VADDPS %s, %s, %s", x, acc(u), acc(u))
	})
	g.p("VADDPS %s, %s, %s", acc(1), acc(0), acc(0))
	g.total("VADDPS", 8, 9)
	g.p("VMOVSS X8, ret+32(FP)")
	g.done()
}

func (g *gen) sums() {
	zero := func(n int) {
		for u := range n {
			r := g.reg(8 + u)
			g.p("VXORPS %s, %s, %s", r, r, r)
		}
	}
	join := func() {
		g.p("VADDPS %s, %s, %s", g.reg(9), g.reg(8), g.reg(8))
		g.p("VADDPS %s, %s, %s", g.reg(11), g.reg(10), g.reg(10))
		g.p("VADDPS %s, %s, %s", g.reg(10), g.reg(8), g.reg(8))
		g.total("VADDPS", 8, 9)
	}
	g.text("sum", "returns the sum of a.", "(a *float32, n int) float32", "p a", "n n")
	zero(4)
	g.loop(4, []string{"DI"}, func(u, off int, m bool) {
		if m {
			g.load(m, at(off, "DI"), g.reg(0))
			g.p("VADDPS %s, %s, %s", g.reg(0), g.reg(8), g.reg(8))
			return
		}
		g.p("VADDPS %s, %s, %s", at(off, "DI"), g.reg(8+u), g.reg(8+u))
	})
	join()
	g.p("VMOVSS X8, ret+16(FP)")
	g.done()
	g.text("sumSq", "returns the sum of squares of a.", "(a *float32, n int) float32", "p a", "n n")
	zero(4)
	g.loop(4, []string{"DI"}, func(u, off int, m bool) {
		g.load(m, at(off, "DI"), g.reg(u))
		g.p("VFMADD231PS %s, %s, %s", g.reg(u), g.reg(u), g.reg(8+u))
	})
	join()
	g.p("VMOVSS X8, ret+16(FP)")
	g.done()
	g.text("dot", "returns the sum of products of a and b.", "(a, b *float32, n int) float32", "p a", "p b", "n n")
	zero(4)
	g.loop(4, []string{"DI", "SI"}, func(u, off int, m bool) {
		g.load(m, at(off, "DI"), g.reg(u))
		if m {
			g.load(m, at(off, "SI"), g.reg(4))
			g.p("VFMADD231PS %s, %s, %s", g.reg(4), g.reg(u), g.reg(8+u))
			return
		}
		g.p("VFMADD231PS %s, %s, %s", at(off, "SI"), g.reg(u), g.reg(8+u))
	})
	join()
	g.p("VMOVSS X8, ret+24(FP)")
	g.done()

	g.text("maxOf", "returns the largest of a, or a NaN if there is one. a is not empty.", "(a *float32, n int) float32", "p a", "n n")
	// Lanes start with the first element, which a masked lane repeats.
	g.p("VBROADCASTSS (DI), %s", g.reg(8))
	g.p("VMOVAPS %s, %s", g.reg(8), g.reg(9))
	g.p("VMOVAPS %s, %s", g.reg(8), g.reg(7))
	if g.wide {
		g.p("KXORW K3, K3, K3")
	} else {
		g.p("VXORPS Y10, Y10, Y10")
	}
	g.loop(2, []string{"DI"}, func(u, off int, m bool) {
		x := g.reg(u)
		g.load(m, at(off, "DI"), x)
		if m { // lanes that are not there
			if g.wide {
				g.p("VBLENDMPS %s, %s, K1, %s", x, g.reg(7), x)
			} else {
				g.p("VBLENDVPS Y14, %s, %s, %s", x, g.reg(7), x)
			}
		}
		if g.wide {
			g.p("VCMPPS $3, %s, %s, K2", x, x)
			g.p("KORW K2, K3, K3")
		} else {
			g.p("VCMPPS $3, %s, %s, %s", x, x, g.reg(2+u))
			g.p("VORPS %s, Y10, Y10", g.reg(2+u))
		}
		g.p("VMAXPS %s, %s, %s", x, g.reg(8+u), g.reg(8+u))
	})
	g.p("VMAXPS %s, %s, %s", g.reg(9), g.reg(8), g.reg(8))
	g.total("VMAXPS", 8, 9)
	if g.wide {
		g.p("KORTESTW K3, K3")
		g.p("JZ ordered")
	} else {
		g.p("VMOVMSKPS Y10, AX")
		g.p("TESTL AX, AX")
		g.p("JZ ordered")
	}
	g.p("MOVL $0x7fc00000, AX")
	g.p("MOVL AX, ret+16(FP)")
	g.done()
	g.label("ordered")
	g.p("VMOVSS X8, ret+16(FP)")
	g.done()
}

func (g *gen) rotations() {
	g.text("rotate", "turns the pairs (x, y): (x cos - y sin, x sin + y cos).", "(x, y, cos, sin *float32, n int)", "p x", "p y", "p cos", "p sin", "n n")
	g.loop(1, []string{"DI", "SI", "DX", "BX"}, func(u, off int, m bool) {
		x, y, c, s, t, r := g.reg(0), g.reg(1), g.reg(2), g.reg(3), g.reg(4), g.reg(5)
		g.load(m, at(off, "DI"), x)
		g.load(m, at(off, "SI"), y)
		g.load(m, at(off, "DX"), c)
		g.load(m, at(off, "BX"), s)
		g.p("VMULPS %s, %s, %s", s, y, t)
		g.p("VMULPS %s, %s, %s", c, y, r)
		g.p("VFMADD231PS %s, %s, %s", s, x, r)
		g.p("VFMSUB213PS %s, %s, %s", t, c, x)
		g.store(m, x, at(off, "DI"))
		g.store(m, r, at(off, "SI"))
	})
	g.done()
	g.text("rotatePairs", "turns neighbours of x, n of them; cos and sin have n/2 elements. n is even.", "(x, cos, sin *float32, n int)", "p x", "p cos", "p sin", "n n")
	g.p("VMOVUPS twice<>(SB), %s", g.reg(6))
	half := map[bool]string{true: "Y", false: "X"}[g.wide]
	g.labels++
	l := g.labels
	body := func(m bool) {
		x, t := g.reg(0), g.reg(1)
		g.load(m, "(DI)", x)
		if m { // half as many cosines
			if g.wide {
				g.p("MOVQ CX, R8")
				g.p("SHRQ $1, R8")
				g.p("MOVL $-1, AX")
				g.p("BZHIL R8, AX, AX")
				g.p("KMOVW AX, K2")
				g.p("VMOVUPS.Z (SI), K2, Y2")
				g.p("VMOVUPS.Z (DX), K2, Y3")
			} else {
				g.p("MOVQ CX, AX")
				g.p("SHRQ $1, AX")
				g.p("NEGQ AX")
				g.p("VMOVUPS (R11)(AX*4), X7")
				g.p("VMASKMOVPS (SI), X7, X2")
				g.p("VMASKMOVPS (DX), X7, X3")
			}
		} else {
			g.p("VMOVUPS (SI), %s2", half)
			g.p("VMOVUPS (DX), %s3", half)
		}
		g.p("VPERMPS %s, %s, %s", g.reg(2), g.reg(6), g.reg(2))
		g.p("VPERMPS %s, %s, %s", g.reg(3), g.reg(6), g.reg(3))
		g.p("VPERMILPS $0xb1, %s, %s", x, t)
		g.p("VMULPS %s, %s, %s", g.reg(3), t, t)
		g.p("VFMADDSUB213PS %s, %s, %s", t, g.reg(2), x)
		g.store(m, x, "(DI)")
	}
	g.p("CMPQ CX, $%d", g.width)
	g.p("JLT tail%d", l)
	g.label("each%d", l)
	body(false)
	g.p("ADDQ $%d, DI", 4*g.width)
	g.p("ADDQ $%d, SI", 2*g.width)
	g.p("ADDQ $%d, DX", 2*g.width)
	g.p("SUBQ $%d, CX", g.width)
	g.p("CMPQ CX, $%d", g.width)
	g.p("JGE each%d", l)
	g.label("tail%d", l)
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	g.mask()
	body(true)
	g.label("end%d", l)
	g.done()
}

// halves emits conversions of whole vectors; n is a multiple of the width.
func (g *gen) halves() {
	half := map[bool]string{true: "Y", false: "X"}[g.wide]
	each := func(name, doc, signature, from, to string, body func()) {
		g.text(name, doc+" n is a multiple of "+map[bool]string{true: "16.", false: "8."}[g.wide], signature, "p dst", "p src", "n n")
		g.labels++
		l := g.labels
		g.p("TESTQ CX, CX")
		g.p("JZ end%d", l)
		g.label("each%d", l)
		body()
		g.p("ADDQ $%s, SI", from)
		g.p("ADDQ $%s, DI", to)
		g.p("SUBQ $%d, CX", g.width)
		g.p("JNZ each%d", l)
		g.label("end%d", l)
		g.done()
	}
	w4, w2 := map[bool]string{true: "64", false: "32"}[g.wide], map[bool]string{true: "32", false: "16"}[g.wide]
	x := g.reg(0)
	each("fromF16", "widens halves.", "(dst *float32, src *uint16, n int)", w2, w4, func() {
		g.p("VCVTPH2PS (SI), %s", x)
		g.p("VMOVUPS %s, (DI)", x)
	})
	each("toF16", "rounds to halves.", "(dst *uint16, src *float32, n int)", w4, w2, func() {
		g.p("VMOVUPS (SI), %s", x)
		g.p("VCVTPS2PH $0, %s, (DI)", x)
	})
	each("fromBF16", "widens bfloat16.", "(dst *float32, src *uint16, n int)", w2, w4, func() {
		g.p("VPMOVZXWD (SI), %s", x)
		g.p("VPSLLD $16, %s, %s", x, x)
		g.p("VMOVUPS %s, (DI)", x)
	})
	// To nearest even by adding half of the last place, less one where that is even; NaN is made quiet instead.
	each("toBF16", "rounds to bfloat16.", "(dst *uint16, src *float32, n int)", w4, w2, func() {
		r, t := g.reg(1), g.reg(2)
		g.p("VMOVUPS (SI), %s", x)
		g.p("VPSRLD $16, %s, %s", x, r)
		andOp, orOp := "VPAND", "VPOR"
		if g.wide {
			andOp, orOp = "VPANDD", "VPORD"
		}
		g.op(andOp, g.bits("OneBit", 1), r, t)
		g.op(orOp, g.bits("Quiet", 0x40), r, r) // for NaN
		g.p("VPADDD %s, %s, %s", x, t, t)
		g.op("VPADDD", g.bits("Round", 0x7fff), t, t)
		g.p("VPSRLD $16, %s, %s", t, t)
		if g.wide {
			g.p("VCMPPS $3, Z0, Z0, K2")
			g.p("VMOVDQA32 Z1, K2, Z2")
			g.p("VPMOVDW Z2, (DI)")
		} else {
			g.p("VCMPPS $3, Y0, Y0, Y3")
			g.p("VBLENDVPS Y3, Y1, Y2, Y2")
			g.p("VEXTRACTI128 $1, Y2, X1")
			g.p("VPACKUSDW X1, X2, X2")
			g.p("VMOVDQU X2, (DI)")
		}
	})
	_ = half
	g.blocks()
}

// blocks emits the reading and the writing of Q8_0: a half-precision scale and 32 bytes.
func (g *gen) blocks() {
	g.text("fromQ8_0", "widens n blocks of Q8_0.", "(dst *float32, src *byte, n int)", "p dst", "p src", "n n")
	g.labels++
	l := g.labels
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	g.label("each%d", l)
	g.p("MOVWLZX (SI), AX")
	g.p("VMOVD AX, X0")
	g.p("VCVTPH2PS X0, X0")
	g.p("VBROADCASTSS X0, %s", g.reg(0))
	for i := range 32 / g.width {
		g.p("VPMOVSXBD %d(SI), %s", 2+i*g.width, g.reg(1+i))
	}
	for i := range 32 / g.width {
		g.p("VCVTDQ2PS %s, %s", g.reg(1+i), g.reg(1+i))
		g.p("VMULPS %s, %s, %s", g.reg(0), g.reg(1+i), g.reg(1+i))
		g.p("VMOVUPS %s, %s", g.reg(1+i), at(4*g.width*i, "DI"))
	}
	g.p("ADDQ $34, SI")
	g.p("ADDQ $128, DI")
	g.p("DECQ CX")
	g.p("JNZ each%d", l)
	g.label("end%d", l)
	g.done()

	// In 256 bits for both levels: the parts of a block do not fill more.
	g.text("toQ8_0", "encodes blocks until one whose scale is beyond the ordinary, and returns their number.", "(dst *byte, src *float32, n int) int", "p dst", "p src", "n n")
	g.labels++
	l = g.labels
	g.p("MOVQ CX, DX")
	g.p("VPCMPEQD Y15, Y15, Y15")
	g.p("VPSRLD $1, Y15, Y15") // all but the sign
	for i, c := range []string{g.c("Half", 0.5), g.c("MinusHalf", -0.5), g.c("127", 127), g.c("One", 1)} {
		g.p("VBROADCASTSS %s, Y%d", c, 14-i)
	}
	g.p("VMOVDQU interleave<>(SB), Y10")
	g.label("each%d", l)
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	for i := range 4 {
		g.p("VMOVUPS %s, Y%d", at(32*i, "SI"), i)
		g.p("VPAND Y%d, Y15, Y%d", i, 4+i)
	}
	g.p("VPMAXSD Y5, Y4, Y4") // magnitudes are ordered as their bits are
	g.p("VPMAXSD Y7, Y6, Y6")
	g.p("VPMAXSD Y6, Y4, Y4")
	g.p("VEXTRACTI128 $1, Y4, X5")
	g.p("VPMAXSD X5, X4, X4")
	g.p("VPSHUFD $0x4e, X4, X5")
	g.p("VPMAXSD X5, X4, X4")
	g.p("VPSHUFD $0xb1, X4, X5")
	g.p("VPMAXSD X5, X4, X4")
	g.p("VMOVD X4, AX")
	least, most := math.Float32bits(1e-30), math.Float32bits(8e6)
	g.p("SUBL $%#x, AX", least)
	g.p("CMPL AX, $%#x", most-least)
	g.p("JHI end%d", l)
	g.p("VDIVSS X12, X4, X5")
	g.p("VDIVSS X5, X11, X6")
	g.p("VCVTPS2PH $0, X5, X7")
	g.p("VMOVD X7, AX")
	g.p("MOVW AX, (DI)")
	g.p("VBROADCASTSS X6, Y6")
	for i := range 4 { // halves away from zero: what truncation leaves decides
		g.p("VMULPS Y%d, Y6, Y%d", i, i)
		g.p("VCVTTPS2DQ Y%d, Y4", i)
		g.p("VCVTDQ2PS Y4, Y5")
		g.p("VSUBPS Y5, Y%d, Y5", i)
		g.p("VCMPPS $13, Y14, Y5, Y7")
		g.p("VPSUBD Y7, Y4, Y4")
		g.p("VCMPPS $2, Y13, Y5, Y7")
		g.p("VPADDD Y7, Y4, Y%d", i)
	}
	g.p("VPACKSSDW Y1, Y0, Y0")
	g.p("VPACKSSDW Y3, Y2, Y2")
	g.p("VPACKSSWB Y2, Y0, Y0")
	g.p("VPERMD Y0, Y10, Y0")
	g.p("VMOVDQU Y0, 2(DI)")
	g.p("ADDQ $128, SI")
	g.p("ADDQ $34, DI")
	g.p("DECQ CX")
	g.p("JMP each%d", l)
	g.label("end%d", l)
	g.p("SUBQ CX, DX")
	g.p("MOVQ DX, ret+24(FP)")
	g.done()
}

// stored is how elements of keys and values lie in memory.
type stored struct {
	suffix, doc, ptr string
	size             int
	alone            bool // the processor fetches rows
}

var storedTypes = []stored{{"", "float32", "*float32", 4, false}, {"F16", "half-precision", "*uint16", 2, false}, {"BF16", "bfloat16", "*uint16", 2, false}}

// widen loads a vector of elements as float32.
func (g *gen) widen(t stored, addr string, r int) {
	switch t.suffix {
	case "F16":
		g.p("VCVTPH2PS %s, %s", addr, g.reg(r))
	case "BF16":
		g.p("VPMOVZXWD %s, %s", addr, g.reg(r))
		g.p("VPSLLD $16, %s, %s", g.reg(r), g.reg(r))
	default:
		g.p("VMOVUPS %s, %s", addr, g.reg(r))
	}
}

// ahead is how far in front of what is used rows are fetched: the processor's own prefetching stops at the end of a page.
const ahead = 2048

// scores emits what attention needs of a block of keys: the products of one query with n keys, and the weighted sum of n values.
// Rows of 16 bits have whole vectors; those of float32 may have a tail.
func (g *gen) scores(t stored) {
	name, how := t.suffix, ""
	if t.alone {
		name, how = name+"Alone", " It does not ask for rows ahead."
	}
	g.text("dots"+name, "sets dst[j] to the product of q with row j of k, for n rows of d "+t.doc+" elements, stride bytes apart."+how,
		"(dst, q *float32, k "+t.ptr+", n, d, stride int)", "p dst", "p q", "p k", "n n", "i d", "i stride")
	// BX is d, R8 the stride. Four rows at a time at DX, R9, R10, R12, a quarter of all rows apart: a processor fetches more from memory where it sees
	// several streams. R14 is how often.
	g.labels++
	l := g.labels
	rows := []string{"DX", "R9", "R10", "R12"}
	narrow := t.size < 4
	tailMask := func(reg string) {
		if g.wide {
			g.p("MOVL $-1, AX")
			g.p("BZHIL %s, AX, AX", reg)
			g.p("KMOVW AX, K1")
			return
		}
		g.p("MOVQ %s, AX", reg)
		g.p("NEGQ AX")
		g.p("LEAQ laneMask<>+32(SB), R11")
		g.p("VMOVUPS (R11)(AX*4), Y14")
	}
	product := func(n int, name string) {
		for i := range n {
			g.p("VXORPS %s, %s, %s", g.reg(8+i), g.reg(8+i), g.reg(8+i))
		}
		g.p("XORQ R13, R13") // bytes into a row
		g.p("MOVQ BX, R15")  // elements to go
		if !narrow {
			g.p("CMPQ R15, $%d", g.width)
			g.p("JLT %sTail%d", name, l)
		}
		g.label("%sEach%d", name, l)
		if narrow {
			g.p("VMOVUPS (SI)(R13*2), %s", g.reg(0))
		} else {
			g.p("VMOVUPS (SI)(R13*1), %s", g.reg(0))
		}
		for i := range n {
			if narrow {
				g.widen(t, "("+rows[i]+")(R13*1)", 1+i)
				if !t.alone {
					g.p("PREFETCHT0 %d(%s)(R13*1)", ahead, rows[i])
				}
				g.p("VFMADD231PS %s, %s, %s", g.reg(1+i), g.reg(0), g.reg(8+i))
				continue
			}
			g.p("VFMADD231PS (%s)(R13*1), %s, %s", rows[i], g.reg(0), g.reg(8+i))
		}
		g.p("ADDQ $%d, R13", t.size*g.width)
		g.p("SUBQ $%d, R15", g.width)
		g.p("CMPQ R15, $%d", g.width)
		g.p("JGE %sEach%d", name, l)
		if !narrow {
			g.label("%sTail%d", name, l)
			g.p("TESTQ R15, R15")
			g.p("JZ %sFold%d", name, l)
			tailMask("R15")
			g.load(true, "(SI)(R13*1)", g.reg(0))
			for i := range n {
				g.load(true, "("+rows[i]+")(R13*1)", g.reg(1))
				g.p("VFMADD231PS %s, %s, %s", g.reg(1), g.reg(0), g.reg(8+i))
			}
			g.label("%sFold%d", name, l)
		}
		for i := range n {
			g.fold("VADDPS", 8+i, 1)
		}
	}
	g.p("MOVQ CX, R14")
	g.p("SHRQ $2, R14")
	g.p("JZ one%d", l)
	g.p("MOVQ R14, AX")
	g.p("IMULQ R8, AX")
	g.p("LEAQ (DX)(AX*1), R9")
	g.p("LEAQ (DX)(AX*2), R10")
	g.p("LEAQ (R9)(AX*2), R12")
	g.label("four%d", l)
	product(4, "four")
	g.p("VHADDPS X9, X8, X8")
	g.p("VHADDPS X11, X10, X10")
	g.p("VHADDPS X10, X8, X8")
	distance := func() { // between the four results
		g.p("MOVQ CX, AX")
		g.p("ANDQ $-4, AX")
		g.p("LEAQ (AX)(AX*2), R11")
	}
	distance()
	g.p("VMOVSS X8, (DI)")
	g.p("VEXTRACTPS $1, X8, (DI)(AX*1)")
	g.p("VEXTRACTPS $2, X8, (DI)(AX*2)")
	g.p("VEXTRACTPS $3, X8, (DI)(R11*1)")
	g.p("ADDQ $4, DI")
	for _, row := range rows {
		g.p("ADDQ R8, %s", row)
	}
	g.p("DECQ R14")
	g.p("JNZ four%d", l)
	distance()
	g.p("ADDQ R11, DI")
	g.p("MOVQ R12, DX")
	g.p("ANDQ $3, CX")
	g.label("one%d", l)
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	product(1, "one")
	g.p("VHADDPS X8, X8, X8")
	g.p("VHADDPS X8, X8, X8")
	g.p("VMOVSS X8, (DI)")
	g.p("ADDQ $4, DI")
	g.p("ADDQ R8, DX")
	g.p("DECQ CX")
	g.p("JMP one%d", l)
	g.label("end%d", l)
	g.done()

	g.text("weigh"+name, "adds the sum of w[j] times row j of v to acc, for n rows of d "+t.doc+" elements, stride bytes apart."+how,
		"(acc, w *float32, v "+t.ptr+", n, d, stride int)", "p acc", "p w", "p v", "n n", "i d", "i stride")
	g.labels++
	l = g.labels
	// A block of four vectors of acc stays in registers over all rows; the chain of each element is ascending in j.
	pass := func(name string, vectors int, masked bool) {
		for i := range vectors {
			g.load(masked, at(4*g.width*i, "DI"), g.reg(8+i))
		}
		g.p("MOVQ DX, R9")
		g.p("MOVQ SI, R10")
		g.p("MOVQ CX, R12")
		g.label("%sRows%d", name, l)
		g.p("VBROADCASTSS (R10), %s", g.reg(0))
		for i := range vectors {
			if masked {
				g.load(true, at(4*g.width*i, "R9"), g.reg(1))
				g.p("VFMADD231PS %s, %s, %s", g.reg(1), g.reg(0), g.reg(8+i))
				continue
			}
			if narrow {
				g.widen(t, at(2*g.width*i, "R9"), 1+i)
				if !t.alone && 2*g.width*i%64 == 0 {
					g.p("PREFETCHT0 %d(R9)", ahead+2*g.width*i)
				}
				g.p("VFMADD231PS %s, %s, %s", g.reg(1+i), g.reg(0), g.reg(8+i))
				continue
			}
			g.p("VFMADD231PS %s, %s, %s", at(4*g.width*i, "R9"), g.reg(0), g.reg(8+i))
		}
		g.p("ADDQ R8, R9")
		g.p("ADDQ $4, R10")
		g.p("DECQ R12")
		g.p("JNZ %sRows%d", name, l)
		for i := range vectors {
			g.store(masked, g.reg(8+i), at(4*g.width*i, "DI"))
		}
	}
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	for _, v := range []int{4, 1} {
		name := map[int]string{4: "wide", 1: "single"}[v]
		g.label("%s%d", name, l)
		g.p("CMPQ BX, $%d", v*g.width)
		g.p("JLT %sEnd%d", name, l)
		pass(name, v, false)
		g.p("ADDQ $%d, DI", 4*v*g.width)
		g.p("ADDQ $%d, DX", t.size*v*g.width)
		g.p("SUBQ $%d, BX", v*g.width)
		g.p("JMP %s%d", name, l)
		g.label("%sEnd%d", name, l)
	}
	if !narrow {
		g.p("TESTQ BX, BX")
		g.p("JZ end%d", l)
		tailMask("BX")
		pass("last", 1, true)
	}
	g.label("end%d", l)
	g.done()
}
