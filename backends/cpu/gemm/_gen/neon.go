package main

import (
	"fmt"
	"math"
	"slices"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

// Row operations and packing for NEON. Row operations take whole vectors of four; each has the operations of its Go twin in their order.

// neon writes one function after another into a file.
type neon struct {
	*file
	constants []uint32 // what the registers from 31 down hold
	labels    int
}

func (g *neon) i(in e.Insn) { g.p("\t%v", in) }

func (g *neon) text(name, signature, doc string, args ...string) {
	g.p("")
	g.p("// func %s%s", name, signature)
	size := 0
	var loads []string
	general, float := 0, 16
	for _, a := range args {
		switch a[0] {
		case 'f': // a float32, in every lane of V16, V17, ...
			loads = append(loads, fmt.Sprintf("\tFMOVS %s+%d(FP), F%d\n\tVDUP V%d.S[0], V%d.S4", a[2:], size, float, float, float))
			float++
			size += 4
		case 'w': // an int32
			loads = append(loads, fmt.Sprintf("\tMOVW %s+%d(FP), R%d", a[2:], size, general))
			general++
			size += 4
		default:
			loads = append(loads, fmt.Sprintf("\tMOVD %s+%d(FP), R%d", a[2:], size, general))
			general++
			size += 8
		}
	}
	g.p("TEXT ·%s(SB), NOSPLIT, $0-%d", name, size)
	for _, l := range loads {
		g.p("%s", l)
	}
	fmt.Fprintf(&g.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s%s\n", name, doc, name, signature)
	g.constants = nil
}

// c returns a register that holds a number in each lane.
func (g *neon) c(v float64) e.V { return g.bits(math.Float32bits(float32(v))) }

func (g *neon) bits(w uint32) e.V {
	if at := slices.Index(g.constants, w); at >= 0 {
		return e.V(31 - at)
	}
	r := 31 - len(g.constants)
	g.constants = append(g.constants, w)
	if r < 18 {
		panic("gen: no register for another constant")
	}
	g.p("\tMOVD $0x%08x, R20", w)
	g.p("\tVDUP R20, V%d.S4", r)
	return e.V(r)
}

// and, or and pick are bitwise; pick puts yes into d where mask is set.
func (g *neon) and(d, a, b e.V)       { g.p("\tVAND V%d.B16, V%d.B16, V%d.B16", b, a, d) }
func (g *neon) or(d, a, b e.V)        { g.p("\tVORR V%d.B16, V%d.B16, V%d.B16", b, a, d) }
func (g *neon) pick(d, yes, mask e.V) { g.p("\tVBIT V%d.B16, V%d.B16, V%d.B16", mask, yes, d) }
func (g *neon) move(d, s e.V)         { g.p("\tVMOV V%d.B16, V%d.B16", s, d) }
func (g *neon) zero(d e.V)            { g.p("\tVEOR V%d.B16, V%d.B16, V%d.B16", d, d, d) }

// above replaces x by b where b is greater, below where it is less; NaN stays. 15 is used.
func (g *neon) above(x, b e.V) {
	g.i(e.FCMGT(15, b, x))
	g.pick(x, b, 15)
}

func (g *neon) below(x, b e.V) {
	g.i(e.FCMGT(15, x, b))
	g.pick(x, b, 15)
}

// chain computes ((c0 x + c1) x + c2) ..., each rounded once, in d; t is free.
func (g *neon) chain(d, t, x e.V, c ...e.V) {
	result := d
	g.move(d, c[1])
	g.i(e.FMLA(d, c[0], x))
	for _, v := range c[2:] {
		g.move(t, v)
		g.i(e.FMLA(t, d, x))
		d, t = t, d
	}
	if d != result {
		g.move(result, d)
	}
}

// expPlusOne returns the function that replaces register x by its exponential plus one; it uses 8 to 12. The constants are loaded at once.
func (g *neon) expPlusOne() func(x e.V) {
	exp := g.exp()
	one := g.c(1)
	return func(x e.V) {
		exp(x)
		g.i(e.FADD(x, x, one))
	}
}

// exp is expPlusOne without the one.
func (g *neon) exp() func(x e.V) {
	high, low, log2e := g.c(89), g.c(-104), g.c(1.44269504088896340736)
	hi, lo := g.c(0.693145751953125), g.c(1.42860682030941723212e-6)
	var p []e.V
	for _, c := range []float64{0.0013813144570633602, 0.0083694187311368124, 0.041668456769957433, 0.16666514792644418, 0.4999999305093296} {
		p = append(p, g.c(c))
	}
	one, bias := g.c(1), g.bits(127)
	return func(x e.V) {
		g.below(x, high)
		g.above(x, low)
		g.i(e.FMUL(8, x, log2e))
		g.i(e.FRINTN(8, 8))
		g.i(e.FMLS(x, 8, hi))
		g.i(e.FMLS(x, 8, lo)) // r
		g.i(e.FCVTZS(8, 8))
		g.chain(9, 10, x, p...)
		g.i(e.FMUL(11, x, x))
		g.i(e.FMLA(x, 9, 11))
		g.i(e.FADD(x, x, one))
		g.i(e.SSHR(9, 8, 1))
		g.p("\tVSUB V9.S4, V8.S4, V8.S4")
		for _, r := range []e.V{9, 8} {
			g.p("\tVADD V%d.S4, V%d.S4, V%d.S4", bias, r, r)
			g.p("\tVSHL $23, V%d.S4, V%d.S4", r, r)
			g.i(e.FMUL(x, x, r))
		}
	}
}

// rowNEON emits an operation on a row in place: prepare loads constants and returns the body, which works on V0; p and q are V16 and V17.
func (g *neon) rowNEON(name string, prepare func() func()) {
	g.text("act"+name+"NEON", "(x *float32, n int, p, q float32)", "applies "+name+" to n elements, a multiple of 4.", "p x", "p n", "f p", "f q")
	body := prepare()
	g.p("loop:")
	g.p("\tFMOVQ (R0), F0")
	body()
	g.p("\tFMOVQ.P F0, 16(R0)")
	g.p("\tSUBS $4, R1")
	g.p("\tBNE loop")
	g.p("\tRET")
}

func (g *neon) vecs() {
	g.rowNEON("FromS32", func() func() { return func() { g.i(e.SCVTF(0, 0)) } })
	g.rowNEON("Scale", func() func() { return func() { g.i(e.FMUL(0, 0, 16)) } })
	g.rowNEON("ReLU", func() func() {
		zero := g.bits(0)
		return func() { g.above(0, zero) }
	})
	g.rowNEON("Clip", func() func() {
		return func() {
			g.above(0, 16)
			g.below(0, 17)
		}
	})
	g.rowNEON("LeakyReLU", func() func() {
		zero := g.bits(0)
		return func() {
			g.i(e.FMUL(1, 0, 16))
			g.i(e.FCMGT(2, 0, zero))
			g.pick(1, 0, 2)
			g.move(0, 1)
		}
	})
	// boundBelow is a constant for those whose factor is zero at -Inf.
	boundBelow := func() e.V { return g.c(-math.MaxFloat32) }
	g.rowNEON("HardSwish", func() func() {
		least, three, zero, six, sixth := boundBelow(), g.c(3), g.bits(0), g.c(6), g.c(1.0/6)
		return func() {
			g.above(0, least)
			g.i(e.FADD(1, 0, three))
			g.above(1, zero)
			g.below(1, six)
			g.i(e.FMUL(0, 0, 1))
			g.i(e.FMUL(0, 0, sixth))
		}
	})
	g.rowNEON("HardSigmoid", func() func() {
		zero, one := g.bits(0), g.c(1)
		return func() {
			g.i(e.FMUL(0, 0, 16))
			g.i(e.FADD(0, 0, 17))
			g.above(0, zero)
			g.below(0, one)
		}
	})
	g.rowNEON("Sigmoid", func() func() {
		exp := g.expPlusOne()
		one := g.c(1)
		return func() {
			g.i(e.FNEG(0, 0))
			exp(0)
			g.i(e.FDIV(0, one, 0))
		}
	})
	g.rowNEON("SiLU", func() func() {
		exp, least := g.expPlusOne(), boundBelow()
		return func() {
			g.above(0, least)
			g.i(e.FNEG(1, 0))
			exp(1)
			g.i(e.FDIV(0, 0, 1))
		}
	})
	g.rowNEON("QuickGELU", func() func() {
		exp, least := g.expPlusOne(), boundBelow()
		g.p("\tMOVD $0x%08x, R20", math.Float32bits(-1.702))
		g.p("\tVDUP R20, V17.S4")
		return func() {
			g.above(0, least)
			g.i(e.FMUL(1, 0, 17))
			exp(1)
			g.i(e.FDIV(0, 0, 1))
		}
	})
	g.rowNEON("GELUTanh", func() func() {
		exp, least := g.expPlusOne(), boundBelow()
		const a = 2 * 0.7978845608028654
		for i, v := range []float64{-a * 0.044715, -a} {
			g.p("\tMOVD $0x%08x, R20", math.Float32bits(float32(v)))
			g.p("\tVDUP R20, V%d.S4", 16+i)
		}
		return func() {
			g.above(0, least)
			g.i(e.FMUL(1, 0, 0))
			g.move(2, 17)
			g.i(e.FMLA(2, 1, 16))
			g.i(e.FMUL(1, 0, 2))
			exp(1)
			g.i(e.FDIV(0, 0, 1))
		}
	})
	// Tanh and GELU take more numbers than there are registers: those of their polynomials come from a table on each use.
	g.rowNEON("Tanh", func() func() {
		exp := g.expPlusOne()
		one := g.c(1)
		return func() {
			g.i(e.FABS(1, 0))
			g.i(e.FMUL(2, 0, 0))
			g.polynomial(3, 4, 2, []float64{-0.0056015646347443063, 0.020549617203158212, -0.053713467724431518, 0.13331145271793955, -0.33333271813348927})
			g.i(e.FMUL(3, 3, 2))
			g.move(4, 0)
			g.i(e.FMLA(4, 3, 0)) // small
			g.i(e.FADD(2, 1, 1))
			exp(2)
			g.number(5, 2)
			g.i(e.FDIV(2, 5, 2))
			g.i(e.FSUB(2, one, 2))
			g.p("\tMOVD $0x80000000, R20")
			g.p("\tVDUP R20, V5.S4")
			g.and(5, 5, 0)
			g.or(2, 2, 5) // large, with the sign of x
			g.number(5, 0.625)
			g.i(e.FCMGE(5, 1, 5))
			g.pick(4, 2, 5)
			g.move(0, 4)
		}
	})
	g.rowNEON("GELU", func() func() {
		exp := g.exp()
		one := g.c(1)
		return func() {
			g.i(e.FABS(1, 0))
			g.number(2, 16)
			g.below(1, 2)
			g.number(2, math.Sqrt2/2)
			g.i(e.FMUL(2, 1, 2)) // z
			g.number(3, 0.35)
			g.move(4, one)
			g.i(e.FMLA(4, 3, 2))
			g.i(e.FDIV(3, one, 4)) // t
			g.polynomial(4, 5, 3, []float64{0.061222624883469346, -0.36901071144780456, 0.75948529616766712, -0.6218539057002601, 0.56257221717433227,
				-0.0084095277634167762, 0.22633306245556277, 0.19186257881347073, 0.19779834735016024})
			g.i(e.FMUL(4, 4, 3))
			g.i(e.FMUL(2, 2, 2))
			g.i(e.FNEG(2, 2))
			exp(2)
			g.i(e.FMUL(4, 4, 2))
			g.number(5, 0.5)
			g.i(e.FMUL(5, 1, 5))
			g.i(e.FMUL(4, 4, 5))
			g.zero(5)
			g.above(0, 5)
			g.i(e.FSUB(0, 0, 4))
		}
	})

	for _, f := range []struct {
		name string
		op   func(d, n, m e.V) e.Insn
	}{{"Mul", e.FMUL}, {"Add", e.FADD}} {
		g.text("vec"+f.name+"NEON", "(x, y *float32, n int)", "combines n elements of x, a multiple of 4, with those of y.", "p x", "p y", "p n")
		g.p("loop:")
		g.p("\tFMOVQ (R0), F0")
		g.p("\tFMOVQ.P 16(R1), F1")
		g.i(f.op(0, 0, 1))
		g.p("\tFMOVQ.P F0, 16(R0)")
		g.p("\tSUBS $4, R2")
		g.p("\tBNE loop")
		g.p("\tRET")
	}

	halves := "(dst, src unsafe.Pointer, n int)"
	convert := func(name, doc string, prepare func() func()) {
		g.text("vec"+name+"NEON", halves, doc, "p dst", "p src", "p n")
		body := prepare()
		g.p("loop:")
		body()
		g.p("\tSUBS $4, R2")
		g.p("\tBNE loop")
		g.p("\tRET")
	}
	convert("F16", "rounds n elements to half precision, a multiple of 4.", func() func() {
		return func() {
			g.p("\tFMOVQ.P 16(R1), F0")
			g.i(e.FCVTN(0, 0))
			g.p("\tFMOVD.P F0, 8(R0)")
		}
	})
	convert("BF16", "rounds n elements to bfloat16, a multiple of 4.", func() func() {
		one, quiet, round := g.bits(1), g.bits(0x40), g.bits(0x7fff)
		return func() {
			g.p("\tFMOVQ.P 16(R1), F0")
			g.p("\tVUSHR $16, V0.S4, V1.S4")
			g.and(2, 1, one)
			g.or(1, 1, quiet) // for NaN
			g.p("\tVADD V0.S4, V2.S4, V2.S4")
			g.p("\tVADD V%d.S4, V2.S4, V2.S4", round)
			g.p("\tVUSHR $16, V2.S4, V2.S4")
			g.i(e.FCMEQ(3, 0, 0))
			g.pick(1, 2, 3) // NaN is not equal to itself
			g.p("\tVUZP1 V1.H8, V1.H8, V1.H8")
			g.p("\tFMOVD.P F1, 8(R0)")
		}
	})
	for _, f := range []struct {
		name string
		op   func(d, n e.V) e.Insn
	}{{"FromF16", e.FCVTL}, {"FromBF16", e.SHLL}} {
		convert(f.name, "widens n elements, a multiple of 4.", func() func() {
			return func() {
				g.p("\tFMOVD.P 8(R1), F0")
				g.i(f.op(0, 0))
				g.p("\tFMOVQ.P F0, 16(R0)")
			}
		})
	}

	g.text("vecFromGroupsNEON", "(dst, src unsafe.Pointer, groups, vectors int)",
		"widens groups of four k of bfloat16 of vectors times four columns to rows of float32.", "p dst", "p src", "p groups", "p vectors")
	upper := g.bits(0xffff0000)
	g.p("\tLSL $4, R3, R4") // bytes of a row
	g.p("group:")
	g.p("\tMOVD R3, R5")
	g.p("\tMOVD R0, R6")
	g.p("column:")
	g.p("\tVLD2.P 32(R1), [V0.S4, V1.S4]")
	g.p("\tMOVD R6, R7")
	for s := range 4 {
		if s%2 == 0 {
			g.p("\tVSHL $16, V%d.S4, V2.S4", s/2)
		} else {
			g.and(2, e.V(s/2), upper)
		}
		g.p("\tFMOVQ F2, (R7)")
		if s < 3 {
			g.p("\tADD R4, R7")
		}
	}
	g.p("\tADD $16, R6")
	g.p("\tSUBS $1, R5")
	g.p("\tBNE column")
	g.p("\tADD R4<<2, R0")
	g.p("\tSUBS $1, R2")
	g.p("\tBNE group")
	g.p("\tRET")

	g.text("vecQuantNEON", "(dst *uint8, x *float32, n int, scale, low, high float32, zero int32)", "rounds n elements, a multiple of 4, to bytes.",
		"p dst", "p x", "p n", "f scale", "f low", "f high", "w zero")
	g.p("\tVDUP R3, V20.S4")
	g.p("loop:")
	g.p("\tFMOVQ.P 16(R1), F0")
	g.i(e.FMUL(0, 0, 16))
	// A NaN becomes the lowest number.
	g.i(e.FCMGT(1, 0, 17))
	g.move(2, 17)
	g.pick(2, 0, 1)
	g.below(2, 18)
	g.i(e.FCVTNS(2, 2))
	g.p("\tVADD V20.S4, V2.S4, V2.S4")
	g.p("\tVUZP1 V2.H8, V2.H8, V2.H8")
	g.p("\tVUZP1 V2.B16, V2.B16, V2.B16")
	g.p("\tFMOVS.P F2, 4(R0)")
	g.p("\tSUBS $4, R2")
	g.p("\tBNE loop")
	g.p("\tRET")
}

// number loads a number into a register inside a loop.
func (g *neon) number(r e.V, v float64) {
	g.p("\tMOVD $0x%08x, R20", math.Float32bits(float32(v)))
	g.p("\tVDUP R20, V%d.S4", r)
}

// polynomial is chain with numbers that are loaded on the way; 13 is used.
func (g *neon) polynomial(d, t, x e.V, c []float64) {
	result := d
	g.number(d, c[1])
	g.number(13, c[0])
	g.i(e.FMLA(d, 13, x))
	for _, v := range c[2:] {
		g.number(t, v)
		g.i(e.FMLA(t, d, x))
		d, t = t, d
	}
	if d != result {
		g.move(result, d)
	}
}

// packs emits what packing uses.
func (g *neon) packs() {
	g.text("transpose4NEON", "(dst, src unsafe.Pointer, lead, n, step int)",
		"brings four rows of n words, a multiple of 4 and lead bytes apart, to columns of four words, step bytes apart.",
		"p dst", "p src", "p lead", "p n", "p step")
	g.p("\tADD R2, R1, R5")
	g.p("\tADD R2, R5, R6")
	g.p("\tADD R2, R6, R7")
	g.p("loop:")
	for r, at := range []string{"R1", "R5", "R6", "R7"} {
		g.p("\tFMOVQ.P 16(%s), F%d", at, r)
	}
	g.p("\tVTRN1 V1.S4, V0.S4, V4.S4")
	g.p("\tVTRN2 V1.S4, V0.S4, V5.S4")
	g.p("\tVTRN1 V3.S4, V2.S4, V6.S4")
	g.p("\tVTRN2 V3.S4, V2.S4, V7.S4")
	g.p("\tVTRN1 V6.D2, V4.D2, V0.D2")
	g.p("\tVTRN1 V7.D2, V5.D2, V1.D2")
	g.p("\tVTRN2 V6.D2, V4.D2, V2.D2")
	g.p("\tVTRN2 V7.D2, V5.D2, V3.D2")
	for r := range 4 {
		g.p("\tFMOVQ F%d, (R0)", r)
		g.p("\tADD R4, R0")
	}
	g.p("\tSUBS $4, R3")
	g.p("\tBNE loop")
	g.p("\tRET")

	// Rows of B lie side by side: one structure store interleaves what belongs to a column.
	for _, f := range []struct {
		name, doc string
		rows      int // of a group
		columns   int // at a time
	}{
		{"packRows4x2NEON", "interleaves groups of four rows of columns halves, a multiple of 4.", 4, 2},
		{"packRows8x1NEON", "interleaves groups of eight rows of columns bytes, a multiple of 4.", 8, 1},
	} {
		g.text(f.name, "(dst, src unsafe.Pointer, pitch, groups, step, columns int)",
			f.doc+" Rows lie pitch bytes apart, groups of the result step bytes.", "p dst", "p src", "p pitch", "p groups", "p step", "p columns")
		g.p("group:")
		g.p("\tMOVD R0, R6")
		g.p("\tMOVD R1, R7")
		g.p("\tMOVD R5, R8")
		part := func(columns int) {
			load := func(r int) {
				switch columns * f.columns {
				case 16:
					g.p("\tFMOVQ (R9), F%d", r)
				case 8:
					g.p("\tFMOVD (R9), F%d", r)
				default:
					g.p("\tFMOVS (R9), F%d", r)
				}
			}
			g.p("\tMOVD R7, R9")
			for r := range f.rows {
				load(r)
				if r+1 < f.rows {
					g.p("\tADD R2, R9")
				}
			}
			lanes := "H8"
			if columns == 4 {
				lanes = "H4"
			}
			if f.rows == 8 {
				for r := range 4 { // pairs of rows are halves
					g.p("\tVZIP1 V%d.B16, V%d.B16, V%d.B16", 2*r+1, 2*r, 16+r)
				}
				g.p("\tVST4.P [V16.%s, V17.%s, V18.%s, V19.%s], %d(R6)", lanes, lanes, lanes, lanes, 8*columns)
			} else {
				g.p("\tVST4.P [V0.%s, V1.%s, V2.%s, V3.%s], %d(R6)", lanes, lanes, lanes, lanes, 8*columns)
			}
			g.p("\tADD $%d, R7", columns*f.columns)
			g.p("\tSUB $%d, R8", columns)
		}
		g.p("eight:")
		g.p("\tCMP $8, R8")
		g.p("\tBLT four")
		part(8)
		g.p("\tB eight")
		g.p("four:")
		g.p("\tCBZ R8, next")
		part(4)
		g.p("next:")
		g.p("\tADD R4, R0")
		for range f.rows {
			g.p("\tADD R2, R1")
		}
		g.p("\tSUBS $1, R3")
		g.p("\tBNE group")
		g.p("\tRET")
	}

	g.text("flipLinesNEON", "(dst, src unsafe.Pointer, n int)", "copies n bytes, a multiple of 64, with their top bits inverted.", "p dst", "p src", "p n")
	g.p("\tVMOVI $128, V4.B16")
	g.p("loop:")
	g.p("\tVLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]")
	for r := range 4 {
		g.p("\tVEOR V4.B16, V%d.B16, V%d.B16", r, r)
	}
	g.p("\tVST1.P [V0.B16, V1.B16, V2.B16, V3.B16], 64(R0)")
	g.p("\tSUBS $64, R2")
	g.p("\tBNE loop")
	g.p("\tRET")

	g.text("sumGroups8NEON", "(sums, panel unsafe.Pointer, groups, step, columns int)",
		"sums the bytes of each column, signed, of a panel in groups of eight; columns is a multiple of 4.", "p sums", "p panel", "p groups", "p step", "p columns")
	g.p("columns:")
	g.zero(0)
	g.zero(1)
	g.p("\tMOVD R1, R5")
	g.p("\tMOVD R2, R6")
	g.p("groups:")
	g.p("\tFLDPQ (R5), (F2, F3)")
	g.i(e.SADDLPB(2, 2))
	g.i(e.SADDLPB(3, 3))
	g.i(e.SADALP(0, 2))
	g.i(e.SADALP(1, 3))
	g.p("\tADD R3, R5")
	g.p("\tSUBS $1, R6")
	g.p("\tBNE groups")
	g.p("\tVADDP V1.S4, V0.S4, V0.S4")
	g.p("\tFMOVQ.P F0, 16(R0)")
	g.p("\tADD $32, R1")
	g.p("\tSUBS $4, R4")
	g.p("\tBNE columns")
	g.p("\tRET")
}

// axpy adds eight rows of B times eight numbers to C: the chains of sixteen columns, or four at the end, stay in registers.
func (g *neon) axpy() {
	g.text("axpy8NEON", "(c, a, b unsafe.Pointer, ldb, n, fresh int)",
		"adds eight rows of B, ldb bytes apart, times the eight numbers at a to n elements of C, a multiple of 4.", "p c", "p a", "p b", "p ldb", "p n", "p fresh")
	g.p("\tVLD1 (R1), [V0.S4, V1.S4]")
	part := func(vectors int) {
		g.p("\tMOVD R2, R6")
		first := g.label()
		for v := range vectors {
			g.zero(e.V(4 + v))
		}
		g.p("\tCBNZ R5, %s", first)
		for v := range vectors {
			g.p("\tFMOVQ %d(R0), F%d", 16*v, 4+v)
		}
		g.p("%s:", first)
		for r := range 8 {
			for v := range vectors {
				g.p("\tFMOVQ %d(R6), F%d", 16*v, 8+v)
				g.i(e.FMLAElem(e.V(4+v), e.V(8+v), e.V(r/4), r%4))
			}
			if r < 7 {
				g.p("\tADD R3, R6")
			}
		}
		for v := range vectors {
			g.p("\tFMOVQ.P F%d, 16(R0)", 4+v)
		}
		g.p("\tADD $%d, R2", 16*vectors)
		g.p("\tSUB $%d, R4", 4*vectors)
	}
	g.p("sixteen:")
	g.p("\tCMP $16, R4")
	g.p("\tBLT four")
	part(4)
	g.p("\tB sixteen")
	g.p("four:")
	g.p("\tCBZ R4, end")
	part(1)
	g.p("\tB four")
	g.p("end:")
	g.p("\tRET")
}

func (g *neon) label() string {
	g.labels++
	return fmt.Sprintf("l%d", g.labels)
}

// peaks emits loops of nothing but one instruction on 16 registers.
func (g *neon) peaks() {
	for _, l := range []struct {
		name, doc string
		in        func(d int) e.Insn
	}{
		{"peakFMANEON", "FMLA by element", func(d int) e.Insn { return e.FMLAElem(e.V(d), 30, 31, d%4) }},
		{"peakDotNEON", "SDOT by element", func(d int) e.Insn { return e.SDOTElem(e.V(d), 30, 31, d%4) }},
		{"peakMat8NEON", "SMMLA", func(d int) e.Insn { return e.SMMLA(e.V(d), 30, 31) }},
		{"peakMat16NEON", "BFMMLA", func(d int) e.Insn { return e.BFMMLA(e.V(d), 30, 31) }},
		{"peakWide8NEON", "SMLAL by element", func(d int) e.Insn { return e.SMLALElem(e.V(8+d), 30, 0, d%8) }},
		{"peakFMASVE", "FMLA by element on scalable vectors", func(d int) e.Insn { return e.ZFMLAElem(e.Z(8+d), 30, 0, d%4) }},
		{"peakDotSVE", "SDOT by element on scalable vectors", func(d int) e.Insn { return e.ZSDOTElem(e.Z(8+d), 30, 0, d%4) }},
		{"peakMat8SVE", "SMMLA on scalable vectors", func(d int) e.Insn { return e.ZSMMLA(e.Z(8+d), 30, 0) }},
		{"peakMat16SVE", "BFMMLA on scalable vectors", func(d int) e.Insn { return e.ZBFMMLA(e.Z(8+d), 30, 0) }},
	} {
		g.text(l.name, "(n int)", "runs n rounds of 16 independent "+l.doc+" instructions.", "p n")
		for r := range 32 {
			g.zero(e.V(r))
		}
		g.p("loop:")
		for d := range 16 {
			g.i(l.in(d))
		}
		g.p("\tSUBS $1, R0")
		g.p("\tBNE loop")
		g.p("\tRET")
	}
}

func neonFiles(out string) {
	const tags = "arm64 && !noasm"
	for _, f := range []struct {
		base, imports string
		emit          func(*neon)
	}{
		{"vec_neon_arm64", "\nimport \"unsafe\"\n", (*neon).vecs},
		{"gemv_arm64", "\nimport \"unsafe\"\n", (*neon).axpy},
		{"pack_arm64", "\nimport \"unsafe\"\n", (*neon).packs},
		{"peak_arm64", "", (*neon).peaks},
	} {
		g := &neon{file: &file{}}
		f.emit(g)
		g.write(out, f.base, tags, "", f.imports)
	}
}
