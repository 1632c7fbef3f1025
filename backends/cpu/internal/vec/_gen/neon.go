package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"math"
	"path/filepath"
	"strings"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

// neon writes the row functions of arm64. Rests of a row pass through the same instructions one element at a time, in the lowest
// lane, so that an element's bits do not depend on its place.
type neon struct {
	asm, stubs bytes.Buffer
	labels     int
	constants  int // registers from 31 down that hold constants
}

func (g *neon) p(format string, args ...any) { fmt.Fprintf(&g.asm, "\t"+format+"\n", args...) }
func (g *neon) label(name string)            { fmt.Fprintf(&g.asm, "%s:\n", name) }
func (g *neon) i(in e.Insn)                  { g.p("%v", in) }

// text opens a function. Arguments are pointers and integers (R0, R1, ... in turn) or, marked f, float32 (broadcast into V16, V17, ...).
func (g *neon) text(name, doc, signature string, args ...string) {
	size, general, float := 0, 0, 0
	var loads []string
	for _, a := range args {
		if f, ok := strings.CutPrefix(a, "f "); ok {
			loads = append(loads, fmt.Sprintf("FMOVS %s+%d(FP), F%d", f, size, 16+float), fmt.Sprintf("VDUP V%d.S[0], V%d.S4", 16+float, 16+float))
			size += 4
			float++
			continue
		}
		loads = append(loads, fmt.Sprintf("MOVD %s+%d(FP), R%d", a, size, general))
		size += 8
		general++
	}
	if strings.HasSuffix(signature, " float32") {
		size = (size+7)&^7 + 4
	}
	fmt.Fprintf(&g.asm, "\n// func %sNEON%s\nTEXT ·%sNEON(SB), NOSPLIT, $0-%d\n", name, signature, name, size)
	fmt.Fprintf(&g.stubs, "\n// %sNEON %s\n//\n//go:noescape\nfunc %sNEON%s\n", name, doc, name, signature)
	for _, l := range loads {
		g.p("%s", l)
	}
	g.constants = 0
}

// constant returns a register that holds a number in each lane, to be called before loops.
func (g *neon) constant(v float64) int { return g.word(math.Float32bits(float32(v))) }

func (g *neon) word(w uint32) int {
	r := 31 - g.constants
	g.constants++
	g.p("MOVD $0x%08x, R20", w)
	g.p("VDUP R20, V%d.S4", r)
	return r
}

// load and store move w elements, 4 or 1, and the pointer.
func (g *neon) load(r int, from string, w int) {
	if w == 4 {
		g.p("FMOVQ.P 16(%s), F%d", from, r)
	} else {
		g.p("FMOVS.P 4(%s), F%d", from, r)
	}
}

func (g *neon) store(r int, to string, w int) {
	if w == 4 {
		g.p("FMOVQ.P F%d, 16(%s)", r, to)
	} else {
		g.p("FMOVS.P F%d, 4(%s)", r, to)
	}
}

// loop walks the elements that count says: 16 at a time as four bodies, then 4, then one. u is the number of a body among the four.
func (g *neon) loop(count string, body func(u, w int)) {
	g.labels++
	l := g.labels
	part := func(n, bodies, w int) {
		fmt.Fprintf(&g.asm, "by%dx%d:\n", n, l)
		g.p("CMP $%d, %s", n, count)
		next := map[int]string{16: fmt.Sprintf("by4x%d", l), 4: fmt.Sprintf("by1x%d", l), 1: fmt.Sprintf("end%d", l)}[n]
		g.p("BLT %s", next)
		for u := range bodies {
			body(u, w)
		}
		g.p("SUB $%d, %s", n, count)
		g.p("B by%dx%d", n, l)
	}
	part(16, 4, 4)
	part(4, 1, 4)
	part(1, 1, 1)
	fmt.Fprintf(&g.asm, "end%d:\n", l)
}

func (g *neon) zero(r int) { g.p("VEOR V%d.B16, V%d.B16, V%d.B16", r, r, r) }

// total adds the four accumulators from r on, and their lanes, into the lowest lane of the first.
func (g *neon) total(r int) {
	v := e.V(r)
	g.i(e.FADD(v, v, v+1))
	g.i(e.FADD(v+2, v+2, v+3))
	g.i(e.FADD(v, v, v+2))
	g.i(e.FADDP(v, v, v))
	g.i(e.FADDP(v, v, v))
}

// exp loads constants and returns the function that replaces register x by its exponential; it uses 1 to 6.
func (g *neon) exp() func(x int) {
	log2e, hi, lo := g.constant(1.44269504088896341), g.constant(0.693359375), g.constant(-2.12194440e-4)
	top, low := g.constant(88.7228390), g.constant(-103.972)
	inf, bias := g.word(0x7f800000), g.word(127)
	var p []int
	for _, c := range []float64{1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1} {
		p = append(p, g.constant(c))
	}
	return func(x int) {
		X := e.V(x)
		mul := func(d, a e.V, b int) { g.i(e.FMUL(d, a, e.V(b))) }
		g.i(e.FMAX(1, X, e.V(low)))
		g.i(e.FMIN(1, 1, e.V(top)))
		mul(2, 1, log2e)
		g.i(e.FRINTN(2, 2))
		mul(3, 2, hi)
		g.i(e.FSUB(1, 1, 3))
		mul(3, 2, lo)
		g.i(e.FSUB(1, 1, 3)) // r
		mul(3, 1, p[0])
		for i := 1; i < 6; i++ {
			g.i(e.FADD(3, 3, e.V(p[i])))
			mul(3, 3, 1)
		}
		mul(3, 3, 1)
		g.i(e.FADD(3, 3, 1))
		g.i(e.FADD(3, 3, e.V(p[6])))
		// 2^n in two factors.
		g.i(e.FCVTZS(2, 2))
		g.i(e.SSHR(4, 2, 1))
		g.p("VSUB V4.S4, V2.S4, V2.S4")
		for _, r := range []int{4, 2} {
			g.p("VADD V%d.S4, V%d.S4, V%d.S4", bias, r, r)
			g.p("VSHL $23, V%d.S4, V%d.S4", r, r)
			mul(3, 3, r)
		}
		g.i(e.FCMGT(4, X, e.V(top)))
		g.p("VBIT V4.B16, V%d.B16, V3.B16", inf)
		g.i(e.FCMGT(4, e.V(low), X))
		g.zero(5)
		g.p("VBIT V4.B16, V5.B16, V3.B16")
		g.p("VMOV V3.B16, V%d.B16", x)
	}
}

// halves are the ways to widen 16-bit elements: name and instructions for the lower and upper half of a register.
var halves = []struct {
	name         string
	lower, upper func(d, n e.V) e.Insn
}{{"F16", e.FCVTL, e.FCVTL2}, {"BF16", e.SHLL, e.SHLL2}}

func (g *neon) all() {
	for _, f := range []struct {
		name, doc string
		op        func(d, n, m e.V) e.Insn
	}{
		{"add", "sets dst = a + b.", e.FADD}, {"sub", "sets dst = a - b.", e.FSUB}, {"mul", "sets dst = a b.", e.FMUL}, {"div", "sets dst = a / b.", e.FDIV},
		{"max", "sets dst to the larger of a and b.", e.FMAX}, {"min", "sets dst to the smaller of a and b.", e.FMIN},
	} {
		g.text(f.name, f.doc, "(dst, a, b *float32, n int)", "dst", "a", "b", "n")
		g.loop("R3", func(_, w int) {
			g.load(0, "R1", w)
			g.load(1, "R2", w)
			g.i(f.op(0, 0, 1))
			g.store(0, "R0", w)
		})
		g.p("RET")
	}

	g.text("scale", "sets dst = mul a + add.", "(dst, a *float32, n int, mul, add float32)", "dst", "a", "n", "f mul", "f add")
	g.loop("R2", func(_, w int) {
		g.load(0, "R1", w)
		g.i(e.FMUL(0, 0, 16))
		g.i(e.FADD(0, 0, 17))
		g.store(0, "R0", w)
	})
	g.p("RET")

	g.text("mulRow", "sets dst = a s w.", "(dst, a, w *float32, n int, s float32)", "dst", "a", "w", "n", "f s")
	g.loop("R3", func(_, w int) {
		g.load(0, "R1", w)
		g.load(1, "R2", w)
		g.i(e.FMUL(0, 0, 16))
		g.i(e.FMUL(0, 0, 1))
		g.store(0, "R0", w)
	})
	g.p("RET")

	g.text("axpy", "adds s a to dst.", "(dst, a *float32, n int, s float32)", "dst", "a", "n", "f s")
	g.p("MOVD R0, R3")
	g.loop("R2", func(_, w int) {
		g.load(0, "R1", w)
		g.load(1, "R3", w)
		g.i(e.FMLA(1, 0, 16))
		g.store(1, "R0", w)
	})
	g.p("RET")

	g.text("exp", "sets dst = e^a.", "(dst, a *float32, n int)", "dst", "a", "n")
	exp := g.exp()
	g.loop("R2", func(_, w int) {
		g.load(0, "R1", w)
		exp(0)
		g.store(0, "R0", w)
	})
	g.p("RET")

	g.text("expSub", "sets dst = e^(a - top) and returns the sum.", "(dst, a *float32, n int, top float32) float32", "dst", "a", "n", "f top")
	exp = g.exp()
	for r := 8; r < 12; r++ {
		g.zero(r)
	}
	g.loop("R2", func(u, w int) {
		g.load(0, "R1", w)
		g.i(e.FSUB(0, 0, 16))
		exp(0)
		g.store(0, "R0", w)
		if w == 1 {
			g.p("FMOVS F0, F0") // the other lanes have no part in the sum
		}
		g.i(e.FADD(e.V(8+u), e.V(8+u), 0))
	})
	g.total(8)
	g.p("FMOVS F8, ret+32(FP)")
	g.p("RET")

	for _, f := range []struct {
		name, doc string
		square    bool
	}{{"sum", "returns the sum of a.", false}, {"sumSq", "returns the sum of the squares of a.", true}} {
		g.text(f.name, f.doc, "(a *float32, n int) float32", "a", "n")
		for r := 8; r < 12; r++ {
			g.zero(r)
		}
		g.loop("R1", func(u, w int) {
			g.load(0, "R0", w)
			if f.square {
				g.i(e.FMLA(e.V(8+u), 0, 0))
			} else {
				g.i(e.FADD(e.V(8+u), e.V(8+u), 0))
			}
		})
		g.total(8)
		g.p("FMOVS F8, ret+16(FP)")
		g.p("RET")
	}

	g.text("maxOf", "returns the largest of n > 0 elements.", "(a *float32, n int) float32", "a", "n")
	g.p("FMOVS (R0), F8")
	g.p("VDUP V8.S[0], V8.S4")
	g.loop("R1", func(_, w int) {
		g.load(0, "R0", w)
		if w == 1 {
			g.p("VDUP V0.S[0], V0.S4")
		}
		g.i(e.FMAX(8, 8, 0))
	})
	g.i(e.FMAXV(8, 8))
	g.p("FMOVS F8, ret+16(FP)")
	g.p("RET")

	g.text("dot", "returns the sum of a b.", "(a, b *float32, n int) float32", "a", "b", "n")
	for r := 8; r < 12; r++ {
		g.zero(r)
	}
	dot := func(u, w int) {
		g.load(0, "R0", w)
		g.load(1, "R1", w)
		g.i(e.FMLA(e.V(8+u), 0, 1))
	}
	g.loop("R2", dot)
	g.total(8)
	g.p("FMOVS F8, ret+24(FP)")
	g.p("RET")

	g.text("dots", "sets dst[j] to the product of q and row j of k, d elements; rows are stride bytes apart.",
		"(dst, q, k *float32, n, d, stride int)", "dst", "q", "k", "n", "d", "stride")
	g.label("row")
	for r := 8; r < 12; r++ {
		g.zero(r)
	}
	g.p("MOVD R1, R6")
	g.p("MOVD R2, R7")
	g.p("MOVD R4, R8")
	g.loop("R8", func(u, w int) {
		g.load(0, "R6", w)
		g.load(1, "R7", w)
		g.i(e.FMLA(e.V(8+u), 0, 1))
	})
	g.total(8)
	g.p("FMOVS.P F8, 4(R0)")
	g.p("ADD R5, R2")
	g.p("SUBS $1, R3")
	g.p("BNE row")
	g.p("RET")

	for _, h := range halves {
		g.text("dots"+h.name, "is dots for rows of 16-bit elements, whole vectors of 16.", "(dst, q *float32, k *uint16, n, d, stride int)",
			"dst", "q", "k", "n", "d", "stride")
		g.label("row")
		for r := 8; r < 12; r++ {
			g.zero(r)
		}
		g.p("MOVD R1, R6")
		g.p("MOVD R2, R7")
		g.p("MOVD R4, R8")
		g.label("some")
		g.p("VLD1.P 64(R6), [V0.S4, V1.S4, V2.S4, V3.S4]")
		g.p("VLD1.P 32(R7), [V4.H8, V5.H8]")
		for u := range 4 {
			op := h.lower
			if u%2 == 1 {
				op = h.upper
			}
			g.i(op(6, e.V(4+u/2)))
			g.i(e.FMLA(e.V(8+u), e.V(u), 6))
		}
		g.p("SUBS $16, R8")
		g.p("BNE some")
		g.total(8)
		g.p("FMOVS.P F8, 4(R0)")
		g.p("ADD R5, R2")
		g.p("SUBS $1, R3")
		g.p("BNE row")
		g.p("RET")
	}

	// weigh keeps 16 columns of acc in registers while the rows pass.
	weigh := func(columns int, size int, row func()) {
		g.labels++
		g.p("MOVD R1, R6")
		g.p("MOVD R2, R7")
		g.p("MOVD R3, R8")
		fmt.Fprintf(&g.asm, "rows%d:\n", g.labels)
		g.p("FMOVS.P 4(R6), F16")
		row()
		g.p("ADD R5, R7")
		g.p("SUBS $1, R8")
		g.p("BNE rows%d", g.labels)
		g.p("ADD $%d, R2", columns*size)
	}
	g.text("weigh", "adds the sum over the n rows j of w[j] times row j of v, d elements, to acc; rows are stride bytes apart.",
		"(acc, w, v *float32, n, d, stride int)", "acc", "w", "v", "n", "d", "stride")
	g.label("by16")
	g.p("CMP $16, R4")
	g.p("BLT by4")
	g.p("VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4]")
	weigh(16, 4, func() {
		g.p("VLD1 (R7), [V4.S4, V5.S4, V6.S4, V7.S4]")
		for u := range 4 {
			g.i(e.FMLAElem(e.V(u), e.V(4+u), 16, 0))
		}
	})
	g.p("VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)")
	g.p("SUB $16, R4")
	g.p("B by16")
	for _, w := range []int{4, 1} {
		next, op := "by1", "FMOVQ"
		if w == 1 {
			next, op = "end", "FMOVS"
		}
		fmt.Fprintf(&g.asm, "by%d:\n", w)
		g.p("CMP $%d, R4", w)
		g.p("BLT %s", next)
		g.p("%s (R0), F0", op)
		weigh(w, 4, func() {
			g.p("%s (R7), F4", op)
			g.i(e.FMLAElem(0, 4, 16, 0))
		})
		g.p("%s.P F0, %d(R0)", op, 4*w)
		g.p("SUB $%d, R4", w)
		g.p("B by%d", w)
	}
	g.label("end")
	g.p("RET")

	for _, h := range halves {
		g.text("weigh"+h.name, "is weigh for rows of 16-bit elements, whole vectors of 16.", "(acc, w *float32, v *uint16, n, d, stride int)",
			"acc", "w", "v", "n", "d", "stride")
		g.label("some")
		g.p("VLD1 (R0), [V0.S4, V1.S4, V2.S4, V3.S4]")
		weigh(16, 2, func() {
			g.p("VLD1 (R7), [V4.H8, V5.H8]")
			for u := range 4 {
				op := h.lower
				if u%2 == 1 {
					op = h.upper
				}
				g.i(op(6, e.V(4+u/2)))
				g.i(e.FMLAElem(e.V(u), 6, 16, 0))
			}
		})
		g.p("VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R0)")
		g.p("SUBS $16, R4")
		g.p("BNE some")
		g.p("RET")
	}

	turn := func() {
		for _, m := range [][3]e.V{{4, 0, 2}, {5, 1, 3}, {6, 0, 3}, {7, 1, 2}} {
			g.i(e.FMUL(m[0], m[1], m[2]))
		}
		g.i(e.FSUB(0, 4, 5))
		g.i(e.FADD(1, 6, 7))
	}
	g.text("rotate", "turns pairs of x and y in place.", "(x, y, cos, sin *float32, n int)", "x", "y", "cos", "sin", "n")
	g.p("MOVD R0, R5")
	g.p("MOVD R1, R6")
	g.loop("R4", func(_, w int) {
		for r := range 4 {
			g.load(r, fmt.Sprintf("R%d", r), w)
		}
		turn()
		g.store(0, "R5", w)
		g.store(1, "R6", w)
	})
	g.p("RET")

	g.text("rotatePairs", "turns n neighbouring pairs in place, a multiple of 4.", "(x, cos, sin *float32, n int)", "x", "cos", "sin", "n")
	g.label("pairs")
	g.p("VLD2 (R0), [V0.S4, V1.S4]")
	g.p("FMOVQ.P 16(R1), F2")
	g.p("FMOVQ.P 16(R2), F3")
	turn()
	g.p("VST2.P [V0.S4, V1.S4], 32(R0)")
	g.p("SUBS $4, R3")
	g.p("BNE pairs")
	g.p("RET")

	for _, h := range halves {
		g.text("from"+h.name, "widens n elements, a multiple of 8.", "(dst *float32, src *uint16, n int)", "dst", "src", "n")
		g.label("some")
		g.p("FMOVQ.P 16(R1), F0")
		g.i(h.lower(1, 0))
		g.i(h.upper(2, 0))
		g.p("VST1.P [V1.S4, V2.S4], 32(R0)")
		g.p("SUBS $8, R2")
		g.p("BNE some")
		g.p("RET")
	}
	g.text("toF16", "rounds n elements to half precision, a multiple of 8.", "(dst *uint16, src *float32, n int)", "dst", "src", "n")
	g.label("some")
	g.p("VLD1.P 32(R1), [V0.S4, V1.S4]")
	g.i(e.FCVTN(2, 0))
	g.i(e.FCVTN2(2, 1))
	g.p("FMOVQ.P F2, 16(R0)")
	g.p("SUBS $8, R2")
	g.p("BNE some")
	g.p("RET")

	g.text("toBF16", "rounds n elements to bfloat16, a multiple of 8.", "(dst *uint16, src *float32, n int)", "dst", "src", "n")
	one, quiet, round := g.word(1), g.word(0x40), g.word(0x7fff)
	g.label("some")
	g.p("VLD1.P 32(R1), [V0.S4, V1.S4]")
	for r := range 2 {
		g.p("VUSHR $16, V%d.S4, V2.S4", r)
		g.p("VAND V%d.B16, V2.B16, V3.B16", one)
		g.p("VORR V%d.B16, V2.B16, V2.B16", quiet) // for NaN
		g.p("VADD V%d.S4, V3.S4, V3.S4", r)
		g.p("VADD V%d.S4, V3.S4, V3.S4", round)
		g.p("VUSHR $16, V3.S4, V3.S4")
		g.i(e.FCMEQ(4, e.V(r), e.V(r)))
		g.p("VBIF V4.B16, V2.B16, V3.B16") // NaN is not equal to itself
		g.p("VMOV V3.B16, V%d.B16", r)
	}
	g.p("VUZP1 V1.H8, V0.H8, V0.H8")
	g.p("FMOVQ.P F0, 16(R0)")
	g.p("SUBS $8, R2")
	g.p("BNE some")
	g.p("RET")

	g.text("fromQ8_0", "widens n blocks of 34 bytes.", "(dst *float32, src *byte, n int)", "dst", "src", "n")
	g.label("block")
	g.p("VLD1.P 2(R1), V16.H[0]")
	g.i(e.FCVTL(16, 16))
	g.p("VLD1.P 32(R1), [V0.B16, V1.B16]")
	for half := range 2 {
		src := e.V(half)
		g.i(e.SXTLB(2, src))
		g.i(e.SXTLB2(3, src))
		for v := range 4 {
			op := e.SXTLH
			if v%2 == 1 {
				op = e.SXTLH2
			}
			d := e.V(4 + v)
			g.i(op(d, e.V(2+v/2)))
			g.i(e.SCVTF(d, d))
			g.i(e.FMULElem(d, d, 16, 0))
		}
		g.p("VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)")
	}
	g.p("SUBS $1, R2")
	g.p("BNE block")
	g.p("RET")
}

func (g *neon) write(dir string) {
	const tags = "//go:build arm64 && !noasm\n\n"
	s := notice + tags + "#include \"textflag.h\"\n\n// Row functions for NEON.\n" + g.asm.String()
	save(filepath.Join(dir, "vec_neon_arm64.s"), []byte(s))
	src, err := format.Source([]byte(notice + tags + "package vec\n" + g.stubs.String()))
	if err != nil {
		log.Fatal(err)
	}
	save(filepath.Join(dir, "vec_neon_arm64.go"), src)
}
