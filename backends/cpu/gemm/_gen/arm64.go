package main

import (
	"fmt"
	"strings"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

const headerARM64 = `
// Every kernel here computes a strip of h rows against a run of panels of B, as kargs says. On SVE a panel has three vectors of
// columns, however long they are; on NEON twelve columns, and a short last panel of C passes through the stack.
//
//	R0 args     R1 strip of A      R2 panel of B     R3 panel of C     R4 bytes between rows of A    R5 between steps of A
//	R6 bytes between groups of B   R7 between panels of B   R8 between rows of C   R9 steps   R10 panels to go
//	R11 R12 A and B at k           R13 steps to go   R14 R15 R16 further panels of B at k      R17 B further on   R19-R26 rows of A at k
//	V0-V7 parts of A and B; the sums lie in the highest registers, so that Z0-Z7 can be taken by element

`

// Columns of a panel are armVectors vectors.
const armVectors = 3

// The kinds of kernels by what they do with a group of B.
const (
	kindF32   = iota // 1 step of 1 k
	kindF16          // 1 step of 1 k, widened
	kindBF16         // 4 steps of 1 k, widened
	kindDot          // 2 steps of 4 k: SDOT
	kindMat8         // 2 steps of 4 k: SMMLA
	kindMat16        // 2 steps of 2 k: BFMMLA
	kindWide8        // 1 step of 2 k: bytes widened to halves, SMLAL (NEON only)
)

// armKernel is one kernel: kind, rows, panels at once, and what is known of the places of A; where anything is, B is packed.
type armKernel struct {
	*file
	sve     bool
	kind    int
	h, w    int
	fast    bool           // A is packed
	rows    bool           // the steps of a row of A lie side by side
	acc     map[[2]int]int // register of the sums of a row and a vector of columns
	lowest  int            // lowest register that holds sums
	pairs   [][2]int       // matrix products: the rows of each register of A; -1 is none
	blocks  map[[2]int]int // matrix products: register of 2x2 sums by pair and number
	labels  int
	tailing bool // C passes through the stack
}

func (g *armKernel) matrix() bool { return g.kind == kindMat8 || g.kind == kindMat16 }
func (g *armKernel) integer() bool {
	return g.kind == kindDot || g.kind == kindMat8 || g.kind == kindWide8
}

// group is the number of steps of A in a group of B.
func (g *armKernel) group() int {
	return map[int]int{kindF32: 1, kindF16: 1, kindBF16: 4, kindDot: 2, kindMat8: 2, kindMat16: 2, kindWide8: 1}[g.kind]
}

// groupBytes is the size of a group of one panel of NEON.
func (g *armKernel) groupBytes() int {
	return map[int]int{kindF32: 48, kindF16: 24, kindBF16: 96, kindDot: 96, kindMat8: 96, kindMat16: 96, kindWide8: 24}[g.kind]
}

func (g *armKernel) i(in e.Insn) { g.p("\t%v", in) }

func (g *armKernel) label() string {
	g.labels++
	return fmt.Sprintf("l%d", g.labels)
}

// assign gives every sum its register, from the highest down.
func (g *armKernel) assign() {
	next := 31
	take := func() int {
		next--
		return next + 1
	}
	g.acc, g.blocks = map[[2]int]int{}, map[[2]int]int{}
	u := g.w * armVectors
	if g.matrix() {
		// A pair shares two registers a vector of columns: as rows, one each; while it is multiplied, two blocks of 2x2.
		g.pairs = [][2]int{{0, -1}}
		switch {
		case g.rows:
			g.pairs = nil
			for i := 0; i < g.h; i += 2 {
				p := [2]int{i, i + 1}
				if i+1 == g.h {
					p[1] = -1
				}
				g.pairs = append(g.pairs, p)
			}
		case g.h == 2:
			g.pairs = [][2]int{{0, 1}}
		case g.h == 3:
			g.pairs = [][2]int{{0, 2}, {1, -1}}
		case g.h >= 4:
			g.pairs = [][2]int{{0, 2}, {1, 3}}
			for _, p := range [][2]int{{4, 6}, {5, 7}} {
				if p[1] >= g.h {
					p[1] = -1
				}
				if p[0] < g.h {
					g.pairs = append(g.pairs, p)
				}
			}
		}
		for q, p := range g.pairs {
			for v := range u {
				x, y := take(), take()
				g.blocks[[2]int{q, 2 * v}], g.blocks[[2]int{q, 2*v + 1}] = x, y
				g.acc[[2]int{p[0], v}] = x
				if p[1] >= 0 {
					g.acc[[2]int{p[1], v}] = y
				}
			}
		}
	} else {
		for i := range g.h {
			for v := range u {
				g.acc[[2]int{i, v}] = take()
			}
		}
	}
	g.lowest = next + 1
}

// use panics when a register that holds sums is about to be used for something else.
func (g *armKernel) use(r int) int {
	if r >= g.lowest {
		panic(fmt.Sprintf("%d rows, %d panels of kind %d need register %d", g.h, g.w, g.kind, r))
	}
	return r
}

// load and store move whole vectors at base + v vectors.
func (g *armKernel) load(r int, base string, v int) {
	if g.sve {
		g.i(e.LD1W(e.Z(r), 0, xreg(base), v))
	} else {
		g.p("\tFMOVQ %d(%s), F%d", 16*v, base, r)
	}
}

func xreg(name string) e.X {
	var n uint32
	fmt.Sscanf(name, "R%d", &n)
	return e.X(n)
}

func (g *armKernel) zero(r int) { g.p("\tVEOR V%d.B16, V%d.B16, V%d.B16", r, r, r) }

func (g *armKernel) multiplyAdd(d, b, a int) {
	switch {
	case g.kind == kindDot && g.sve:
		g.i(e.ZSDOT(e.Z(d), e.Z(b), e.Z(a)))
	case g.kind == kindDot:
		g.i(e.SDOT(e.V(d), e.V(b), e.V(a)))
	case g.kind == kindMat8 && g.sve:
		g.i(e.ZSMMLA(e.Z(d), e.Z(a), e.Z(b)))
	case g.kind == kindMat8:
		g.i(e.SMMLA(e.V(d), e.V(a), e.V(b)))
	case g.kind == kindMat16 && g.sve:
		g.i(e.ZBFMMLA(e.Z(d), e.Z(a), e.Z(b)))
	case g.kind == kindMat16:
		g.i(e.BFMMLA(e.V(d), e.V(a), e.V(b)))
	case g.sve:
		g.i(e.ZFMLA(e.Z(d), 0, e.Z(b), e.Z(a)))
	default:
		g.p("\tVFMLA V%d.S4, V%d.S4, V%d.S4", a, b, d)
	}
}

func (g *armKernel) byElement(d, b, a, i int) {
	switch {
	case g.kind == kindDot && g.sve:
		g.i(e.ZSDOTElem(e.Z(d), e.Z(b), e.Z(a), i))
	case g.kind == kindDot:
		g.i(e.SDOTElem(e.V(d), e.V(b), e.V(a), i))
	case g.sve:
		g.i(e.ZFMLAElem(e.Z(d), e.Z(b), e.Z(a), i))
	default:
		g.i(e.FMLAElem(e.V(d), e.V(b), e.V(a), i))
	}
}

// quad loads four rows of a packed step, at base + bytes.
func (g *armKernel) quad(r int, base string, bytes int) {
	if g.sve {
		g.i(e.LD1RQW(e.Z(r), 0, xreg(base), bytes))
	} else {
		g.p("\tFMOVQ %d(%s), F%d", bytes, base, r)
	}
}

// rows lists the pointers to rows of A, R19 on.
func (g *armKernel) rowPointer(i int) string { return fmt.Sprintf("R%d", 19+i) }

// bPointer is where panel q lies at k.
func (g *armKernel) bPointer(q int) string { return []string{"R12", "R14", "R15", "R16"}[q] }

// broadcast gives every element of r the value of row i at the current step and moves on to the next one.
func (g *armKernel) broadcast(r, i int) {
	if g.sve {
		g.i(e.LD1RW(e.Z(r), 0, xreg(g.rowPointer(i)), 0))
		g.p("\tADD R5, %s", g.rowPointer(i))
	} else {
		g.p("\tVLD1R.P (%s)(R5), [V%d.S4]", g.rowPointer(i), r)
	}
}

// even loads the vectors of a group that is two words a column: the first words to r, the second to r+1.
func (g *armKernel) even(r int, base string, v int) {
	if g.sve {
		g.i(e.LD2W(e.Z(r), 0, xreg(base), 2*v))
		return
	}
	at := base
	if v > 0 {
		g.p("\tADD $%d, %s, R17", 32*v, base)
		at = "R17"
	}
	g.p("\tVLD2 (%s), [V%d.S4, V%d.S4]", at, r, r+1)
}

// widened makes f32 of a bf16 group's word: value s of four lies in half s%2 of word s/2.
func (g *armKernel) widened(d, pair, s, mask int) {
	src := pair + s/2
	switch {
	case s%2 == 0 && g.sve:
		g.i(e.ZLSL(e.Z(d), e.Z(src), 16))
	case s%2 == 0:
		g.p("\tVSHL $16, V%d.S4, V%d.S4", src, d)
	case g.sve:
		g.i(e.ZAND(e.Z(d), e.Z(src), e.Z(mask)))
	default:
		g.p("\tVAND V%d.B16, V%d.B16, V%d.B16", src, mask, d)
	}
}

// half loads a vector of f16 as f32.
func (g *armKernel) half(r int, base string, v int) {
	if g.sve {
		g.i(e.LD1HW(e.Z(r), 0, xreg(base), v))
		g.i(e.ZFCVTHS(e.Z(r), 0, e.Z(r)))
		return
	}
	g.p("\tFMOVD %d(%s), F%d", 8*v, base, r)
	g.i(e.FCVTL(e.V(r), e.V(r)))
}

// bytes widens a step of twelve columns, bytes further on than base: the first k of columns 0 to 7 to register b, the second to b+1, those of
// columns 8 to 11 to b+2 and b+3.
func (g *armKernel) bytes(b int, base string, offset int) {
	g.use(b + 3)
	at := base
	if offset > 0 {
		g.p("\tADD $%d, %s, R17", offset, base)
		at = "R17"
	}
	g.p("\tVLD2 (%s), [V%d.B8, V%d.B8]", at, b, b+1)
	g.p("\tFMOVD %d(%s), F%d", offset+16, base, b+2)
	for r := b; r < b+3; r++ {
		g.i(e.SXTLB(e.V(r), e.V(r)))
	}
	g.p("\tVUZP2 V%d.H8, V%d.H8, V%d.H8", b+2, b+2, b+3)
	g.p("\tVUZP1 V%d.H8, V%d.H8, V%d.H8", b+2, b+2, b+2)
}

// wideAdd adds the products of a step: of row i, by the pair of halves that begins at element at of register a.
func (g *armKernel) wideAdd(i, q, b, a, at int) {
	for j := range 2 {
		sum := func(v int) e.V { return e.V(g.acc[[2]int{i, q*armVectors + v}]) }
		g.i(e.SMLALElem(sum(0), e.V(b+j), e.V(a), at+j))
		g.i(e.SMLAL2Elem(sum(1), e.V(b+j), e.V(a), at+j))
		g.i(e.SMLALElem(sum(2), e.V(b+2+j), e.V(a), at+j))
	}
}

// steps emits n steps of a group (fewer than a whole one only at the end of k): the loads and multiply-adds, and the pointers'
// way to the next group. Offsets are for unroll groups side by side when both operands are packed.
func (g *armKernel) steps(n, unrolled int) {
	if g.matrix() {
		g.matrixSteps(n)
		return
	}
	pairs := g.kind == kindBF16 || g.kind == kindDot
	b := g.firstB()
	if g.keepsA() {
		for s := range n {
			for i := range g.h {
				g.broadcast(g.use(s*g.h+i), i)
			}
		}
	}
	for q := range g.w {
		base := g.bPointer(q)
		if pairs {
			for v := range armVectors {
				g.even(g.use(b+2*v), base, v)
			}
			g.use(b + 2*armVectors - 1)
		}
		for s := range n {
			if g.fast {
				for at := 0; at < g.h; at += 4 {
					g.quad(at/4, "R11", (unrolled+s)*32+at*4)
				}
			}
			column := func(v int) int { return b + v }
			switch g.kind {
			case kindF32:
				for v := range armVectors {
					g.load(g.use(b+v), base, unrolled*armVectors+v)
				}
			case kindF16:
				for v := range armVectors {
					g.half(g.use(b+v), base, v)
				}
			case kindBF16:
				for v := range armVectors {
					g.widened(b+6+v, b+2*v, s, g.use(g.maskRegister()))
				}
				column = func(v int) int { return b + 6 + v }
			case kindDot:
				column = func(v int) int { return b + 2*v + s }
			case kindWide8:
				g.bytes(b, base, 0)
			}
			for i := range g.h {
				a := i % 2
				switch {
				case g.fast:
				case g.keepsA():
					a = s*g.h + i
				default:
					g.broadcast(a, i)
				}
				if g.kind == kindWide8 {
					if g.fast {
						g.wideAdd(i, q, b, i/4, i%4*2)
					} else {
						g.wideAdd(i, q, b, a, 0)
					}
					continue
				}
				for v := range armVectors {
					d := g.acc[[2]int{i, q*armVectors + v}]
					if g.fast {
						g.byElement(d, column(v), i/4, i%4)
					} else {
						g.multiplyAdd(d, column(v), a)
					}
				}
			}
		}
	}
}

// keepsA says whether all values of A in a group stay in registers, because each serves several panels.
func (g *armKernel) keepsA() bool { return g.w > 1 }

// firstB is the register after those of A.
func (g *armKernel) firstB() int {
	if g.keepsA() {
		return g.group() * g.h
	}
	return 2
}

// maskRegister holds 0xffff0000 in each word, for bf16.
func (g *armKernel) maskRegister() int { return g.firstB() + 9 }

// matrixSteps emits one group of the matrix products: two steps, or one at the end of an odd k, where the second step of A is zero.
func (g *armKernel) matrixSteps(n int) {
	const t0, t1 = 4, 5
	if g.fast {
		for half := 0; half < (g.h+3)/4; half++ {
			g.quad(t0, "R11", 16*half)
			if n == 2 {
				g.quad(t1, "R11", 32+16*half)
			} else {
				g.zero(t1)
			}
			for odd := range 2 {
				q := 2*half + odd
				if q >= len(g.pairs) {
					continue
				}
				switch {
				case g.sve && odd == 0:
					g.i(e.ZTRN1(e.S, e.Z(q), e.Z(t0), e.Z(t1)))
				case g.sve:
					g.i(e.ZTRN2(e.S, e.Z(q), e.Z(t0), e.Z(t1)))
				default:
					g.p("\tVTRN%d V%d.S4, V%d.S4, V%d.S4", 1+odd, t1, t0, q)
				}
			}
		}
	} else {
		for q, p := range g.pairs {
			if n == 1 {
				g.zero(q)
			}
			for r, row := range p {
				if row < 0 {
					continue
				}
				for s := range n {
					g.p("\tVLD1 (%s), V%d.S[%d]", g.rowPointer(row), q, 2*r+s)
					g.p("\tADD R5, %s", g.rowPointer(row))
				}
			}
			if p[1] < 0 {
				g.p("\tVDUP V%d.D[0], V%d.D2", q, q)
			}
			if g.sve {
				g.i(e.ZDUPQ(e.Z(q), e.V(q)))
			}
		}
	}
	r := 0
	for q := range g.w {
		base := g.bPointer(q)
		for v := range 2 * armVectors {
			b := 4 + r%4
			r++
			g.load(g.use(b), base, v)
			for pair := range g.pairs {
				g.multiplyAdd(g.blocks[[2]int{pair, 2*q*armVectors + v}], b, pair)
			}
		}
	}
}

// fourSteps emits four steps of kernels that read A along its rows: sixteen bytes of each row, four rows at a time, for which B is
// read again, because all registers of eight rows are not to be had.
func (g *armKernel) fourSteps() {
	const b = 4 // registers below hold A
	groups := 4 / g.group()
	// vector loads vector v of the four steps' B.
	vector := func(r, v int) {
		if g.sve && v >= 6 {
			g.load(r, "R17", v-6)
		} else {
			g.load(r, "R12", v)
		}
	}
	if g.sve && g.kind != kindDot {
		g.i(e.ADDVL(17, 12, 6))
	}
	row := func(r, i int) {
		if g.sve {
			g.i(e.LD1RQW(e.Z(r), 0, xreg(g.rowPointer(i)), 0))
			g.p("\tADD $16, %s", g.rowPointer(i))
		} else {
			g.p("\tFMOVQ.P 16(%s), F%d", g.rowPointer(i), r)
		}
	}
	g.use(7)
	for at := 0; at < g.h; at += 4 {
		n := min(4, g.h-at)
		if g.matrix() {
			n = (n + 1) / 2
			for q := range n {
				p := g.pairs[at/2+q]
				t0, t1 := b+2*q, b+2*q+1
				row(t0, p[0])
				if p[1] >= 0 {
					row(t1, p[1])
				} else {
					t1 = t0
				}
				if g.sve {
					g.i(e.ZTRN1(e.D, e.Z(2*q), e.Z(t0), e.Z(t1)))
					g.i(e.ZTRN2(e.D, e.Z(2*q+1), e.Z(t0), e.Z(t1)))
				} else {
					g.p("\tVTRN1 V%d.D2, V%d.D2, V%d.D2", t1, t0, 2*q)
					g.p("\tVTRN2 V%d.D2, V%d.D2, V%d.D2", t1, t0, 2*q+1)
				}
			}
			for x := range groups {
				for v := range 2 * armVectors {
					r := b + v%4
					vector(r, x*2*armVectors+v)
					for q := range n {
						g.multiplyAdd(g.blocks[[2]int{at/2 + q, v}], r, 2*q+x)
					}
				}
			}
			continue
		}
		for i := range n {
			row(i, at+i)
		}
		for x := range groups {
			if g.kind == kindWide8 {
				g.bytes(b, "R12", 24*x)
				for i := range n {
					g.wideAdd(at+i, 0, b, i, 2*x)
				}
				continue
			}
			for v := range armVectors {
				if g.kind == kindDot {
					r := b + (x+v)%2*2
					g.even(r, "R12", x*armVectors+v)
					for s := range 2 {
						for i := range n {
							g.byElement(g.acc[[2]int{at + i, v}], r+s, i, 2*x+s)
						}
					}
					continue
				}
				r := b + v
				vector(r, x*armVectors+v)
				for i := range n {
					g.byElement(g.acc[[2]int{at + i, v}], r, i, x)
				}
			}
		}
	}
}

// next moves the pointers of B, and of a packed A, past groups.
func (g *armKernel) next(groups, steps int) {
	if g.fast {
		g.p("\tADD $%d, R11", 32*steps)
	}
	for q := range g.w {
		switch {
		case (g.fast || g.rows) && !g.sve:
			g.p("\tADD $%d, %s", groups*g.groupBytes(), g.bPointer(q))
		default:
			for range groups {
				g.p("\tADD R6, %s", g.bPointer(q))
			}
		}
	}
}

// eachRow calls f with a register that holds the address of each row of C in turn.
func (g *armKernel) eachRow(f func(i int, base string)) {
	g.p("\tMOVD R17, R19")
	for i := range g.h {
		f(i, "R19")
		if i+1 < g.h {
			g.p("\tADD R20, R19")
		}
	}
}

// wideAt brings vectors 0 to 11 of SVE into the reach of an offset of -8 to 7.
func (g *armKernel) wideAt(base string, v int) (string, int) {
	if g.sve && v > 7 {
		g.i(e.ADDVL(xreg("R21"), xreg(base), 8))
		return "R21", v - 8
	}
	return base, v
}

// start fills the sums: zero or C, and for integers what rows and columns start from. R17 and R20 are C and the bytes between its
// rows.
func (g *armKernel) start() {
	zero, done := g.label(), g.label()
	u := g.w * armVectors
	g.p("\tMOVD %d(R0), R21", oAcc)
	g.p("\tCBZ R21, %s", zero)
	g.eachRow(func(i int, base string) {
		for v := range u {
			r := g.acc[[2]int{i, v}]
			b, at := g.wideAt(base, v)
			if g.sve {
				g.i(e.LD1W(e.Z(r), g.mask(v), xreg(b), at))
			} else {
				g.load(r, b, at)
			}
		}
	})
	g.p("\tB %s", done)
	g.p("%s:", zero)
	for i := range g.h {
		for v := range u {
			g.zero(g.acc[[2]int{i, v}])
		}
	}
	g.p("%s:", done)
	if g.integer() {
		g.startIntegers()
	}
	if g.matrix() {
		for q, p := range g.pairs {
			for v := range u {
				x, y := g.blocks[[2]int{q, 2 * v}], g.blocks[[2]int{q, 2*v + 1}]
				if p[1] < 0 {
					g.zero(y)
				}
				if g.sve {
					g.i(e.ZZIP1(e.D, 0, e.Z(x), e.Z(y)))
					g.i(e.ZZIP2(e.D, e.Z(y), e.Z(x), e.Z(y)))
					g.i(e.ZMOV(e.Z(x), 0))
				} else {
					g.p("\tVZIP1 V%d.D2, V%d.D2, V0.D2", y, x)
					g.p("\tVZIP2 V%d.D2, V%d.D2, V%d.D2", y, x, y)
					g.p("\tVMOV V0.B16, V%d.B16", x)
				}
			}
		}
	}
}

func (g *armKernel) startIntegers() {
	rows, fold := g.label(), g.label()
	u := g.w * armVectors
	g.p("\tMOVD %d(R0), R21", oRows)
	g.p("\tCBZ R21, %s", rows)
	for i := range g.h {
		g.use(1)
		if g.sve {
			g.i(e.LD1RW(0, 0, xreg("R21"), 4*i))
		} else {
			g.p("\tVLD1R.P 4(R21), [V0.S4]")
		}
		for v := range u {
			d := g.acc[[2]int{i, v}]
			if g.sve {
				g.i(e.ZADD(e.Z(d), e.Z(d), 0))
			} else {
				g.p("\tVADD V0.S4, V%d.S4, V%d.S4", d, d)
			}
		}
	}
	g.p("%s:", rows)
	g.p("\tMOVD %d(R0), R21", oFold)
	g.p("\tCBZ R21, %s", fold)
	if g.sve {
		g.i(e.ZDUP(0, xreg("R21")))
	} else {
		g.p("\tVDUP R21, V0.S4")
	}
	g.p("\tMOVD %d(R0), R22", oComp)
	for v := range u {
		b, at := g.wideAt("R22", v)
		g.load(1, b, at)
		for i := range g.h {
			d := g.acc[[2]int{i, v}]
			if g.sve {
				g.i(e.ZMLA(e.Z(d), 0, 0, 1))
			} else {
				g.i(e.MLA(e.V(d), 0, 1))
			}
		}
	}
	g.p("%s:", fold)
}

// mask is the predicate of a vector of columns: P1 to P3 in a panel, which the last one may not fill.
func (g *armKernel) mask(v int) e.P {
	if g.w > 1 {
		return 0
	}
	return e.P(1 + v)
}

// finish turns blocks back into rows and stores them.
func (g *armKernel) finish() {
	u := g.w * armVectors
	if g.matrix() {
		for q := range g.pairs {
			for v := range u {
				x, y := g.blocks[[2]int{q, 2 * v}], g.blocks[[2]int{q, 2*v + 1}]
				if g.sve {
					g.i(e.ZUZP1(e.D, 0, e.Z(x), e.Z(y)))
					g.i(e.ZUZP2(e.D, e.Z(y), e.Z(x), e.Z(y)))
					g.i(e.ZMOV(e.Z(x), 0))
				} else {
					g.p("\tVUZP1 V%d.D2, V%d.D2, V0.D2", y, x)
					g.p("\tVUZP2 V%d.D2, V%d.D2, V%d.D2", y, x, y)
					g.p("\tVMOV V0.B16, V%d.B16", x)
				}
			}
		}
	}
	g.eachRow(func(i int, base string) {
		for v := range u {
			r := g.acc[[2]int{i, v}]
			b, at := g.wideAt(base, v)
			if g.sve {
				g.i(e.ST1W(e.Z(r), g.mask(v), xreg(b), at))
			} else {
				g.p("\tFMOVQ F%d, %d(%s)", r, 16*at, b)
			}
		}
	})
}

// copyTail copies R22 columns of h rows between C and the stack.
func (g *armKernel) copyTail(toStack bool) {
	row, col := g.label(), g.label()
	g.p("\tMOVD R3, R19")
	g.p("\tMOVD $8(RSP), R21")
	g.p("\tMOVD $%d, R23", g.h)
	g.p("%s:", row)
	g.p("\tMOVD ZR, R24")
	g.p("%s:", col)
	if toStack {
		g.p("\tMOVWU (R19)(R24<<2), R25")
		g.p("\tMOVW R25, (R21)(R24<<2)")
	} else {
		g.p("\tMOVWU (R21)(R24<<2), R25")
		g.p("\tMOVW R25, (R19)(R24<<2)")
	}
	g.p("\tADD $1, R24")
	g.p("\tCMP R22, R24")
	g.p("\tBLT %s", col)
	g.p("\tADD R8, R19")
	g.p("\tADD $48, R21")
	g.p("\tSUBS $1, R23")
	g.p("\tBNE %s", row)
}

// kernel emits one function and returns its name.
func (f *file) armKernel(name string, sve bool, kind, h, w int, form string) string {
	fast := form == "fast"
	g := &armKernel{file: f, sve: sve, kind: kind, h: h, w: w, fast: fast, rows: form == "rows"}
	isa, size := "NEON", fmt.Sprintf("%d", 12*w)
	if sve {
		isa, size = "SVE", fmt.Sprintf("%dv", armVectors*w)
	}
	name = fmt.Sprintf("%s%sh%dx%s", name, isa, h, size)
	doc := fmt.Sprintf("multiplies %d rows by %s columns a step.", h, size)
	if sve {
		doc = fmt.Sprintf("multiplies %d rows by %d vectors of columns a step.", h, armVectors*w)
	}
	name += form
	switch form {
	case "fast":
		doc = strings.TrimSuffix(doc, ".") + ", both operands packed."
	case "rows":
		doc = strings.TrimSuffix(doc, ".") + ", A read along its rows and B packed."
	}
	g.assign()
	g.tailing = !sve && w == 1
	frame := 0
	if g.tailing {
		frame = 48 * h
	}
	f.p("")
	f.p("// func %s(p *kargs)", name)
	f.p("TEXT ·%s(SB), NOSPLIT, $%d-8", name, frame)
	fmt.Fprintf(&f.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(p *kargs)\n", name, doc, name)
	for r, o := range []int{oA, oB, oC, oARS, oACS, oBKS, oBPS, oLDC, oK, oPanels} {
		if r == 0 {
			g.p("\tMOVD p+0(FP), R0")
		}
		g.p("\tMOVD %d(R0), R%d", o, r+1)
	}
	if sve {
		g.i(e.PTRUE(0, e.B))
	}
	if kind == kindBF16 {
		g.p("\tMOVD $0xffff0000, R21")
		if sve {
			g.i(e.ZDUP(e.Z(g.maskRegister()), xreg("R21")))
		} else {
			g.p("\tVDUP R21, V%d.S4", g.maskRegister())
		}
	}
	g.p("")
	g.p("panel:")
	// R17, R20: where the sums come from and go to.
	g.p("\tMOVD R3, R17")
	g.p("\tMOVD R8, R20")
	if w == 1 {
		g.p("\tCMP $1, R10")
		if sve {
			g.i(e.CNT(22, e.S, armVectors))
			g.p("\tMOVD %d(R0), R21", oTail)
			g.p("\tCSEL EQ, R21, R22, R22")
			for v := range armVectors {
				if v == 0 {
					g.p("\tMOVD ZR, R21")
				} else {
					g.i(e.CNT(21, e.S, v))
				}
				g.i(e.WHILELT(e.P(1+v), e.S, 21, 22))
			}
		} else {
			g.p("\tBNE whole")
			g.p("\tMOVD %d(R0), R22", oTail)
			g.p("\tCMP $12, R22")
			g.p("\tBEQ whole")
			g.p("\tMOVD %d(R0), R21", oAcc)
			g.p("\tCBZ R21, fresh")
			g.copyTail(true)
			g.p("fresh:")
			g.p("\tMOVD $8(RSP), R17")
			g.p("\tMOVD $48, R20")
			g.p("whole:")
		}
	}
	g.start()
	g.p("\tMOVD R2, R12")
	for q := 1; q < w; q++ {
		g.p("\tADD R7, %s, %s", g.bPointer(q-1), g.bPointer(q))
	}
	if fast {
		g.p("\tMOVD R1, R11")
	} else {
		g.p("\tMOVD R1, R19")
		for i := 1; i < h; i++ {
			g.p("\tADD R4, %s, %s", g.rowPointer(i-1), g.rowPointer(i))
		}
	}
	// R17 is needed for addresses inside a step; C is found again at the end.
	unroll := 1
	if fast && kind == kindF32 {
		unroll = 2
	}
	n := g.group() * unroll
	g.p("\tMOVD R9, R13")
	if g.rows {
		g.p("\tSUBS $4, R13")
		g.p("\tBLT few")
		g.p("")
		g.p("four:")
		g.fourSteps()
		g.next(4/g.group(), 4)
		g.p("\tSUBS $4, R13")
		g.p("\tBGE four")
		g.p("")
		g.p("few:")
		g.p("\tADDS $4, R13")
		g.p("\tBEQ done")
	}
	g.p("\tSUBS $%d, R13", n)
	g.p("\tBLT rest")
	g.p("")
	g.p("loop:")
	for x := range unroll {
		g.steps(g.group(), x)
	}
	g.next(unroll, n)
	g.p("\tSUBS $%d, R13", n)
	g.p("\tBGE loop")
	g.p("")
	g.p("rest:")
	if n > 1 {
		g.p("\tADDS $%d, R13", n)
		g.p("\tBEQ done")
		for left := 1; left < n; left++ {
			if left+1 < n {
				g.p("\tCMP $%d, R13", left)
				g.p("\tBNE rest%d", left+1)
			}
			g.steps(left, 0)
			if left+1 < n {
				g.p("\tB done")
				g.p("rest%d:", left+1)
			}
		}
	}
	if n > 1 || g.rows {
		g.p("done:")
	}
	g.p("\tMOVD R3, R17")
	g.p("\tMOVD R8, R20")
	if g.tailing {
		g.p("\tCMP $1, R10")
		g.p("\tBNE store")
		g.p("\tMOVD %d(R0), R22", oTail)
		g.p("\tCMP $12, R22")
		g.p("\tBEQ store")
		g.p("\tMOVD $8(RSP), R17")
		g.p("\tMOVD $48, R20")
		g.p("store:")
	}
	g.finish()
	if g.tailing {
		g.p("\tCMP R3, R17")
		g.p("\tBEQ stored")
		g.copyTail(false)
		g.p("stored:")
	}
	g.p("\tSUBS $1, R10")
	g.p("\tBEQ end")
	for range w {
		g.p("\tADD R7, R2")
	}
	if sve {
		g.i(e.ADDVL(3, 3, armVectors*w))
	} else {
		g.p("\tADD $%d, R3", 48*w)
	}
	if g.integer() {
		skip := g.label()
		g.p("\tMOVD %d(R0), R21", oComp)
		g.p("\tCBZ R21, %s", skip)
		if sve {
			g.i(e.ADDVL(21, 21, armVectors*w))
		} else {
			g.p("\tADD $%d, R21", 48*w)
		}
		g.p("\tMOVD R21, %d(R0)", oComp)
		g.p("%s:", skip)
	}
	g.p("\tB panel")
	g.p("")
	g.p("end:")
	g.p("\tMOVD R2, %d(R0)", oB)
	g.p("\tMOVD R3, %d(R0)", oC)
	g.p("\tRET")
	return name
}

func arm64(out string) {
	const tags = "arm64 && !noasm"
	for _, isa := range []string{"NEON", "SVE"} {
		sve := isa == "SVE"
		for _, fam := range []struct {
			name string
			kind int
			mr   int
			wide []int
		}{
			{"f32", kindF32, 8, []int{0, 4, 4, 2}},
			{"f16", kindF16, 8, []int{0, 4, 4, 2}},
			{"bf16", kindBF16, 6, []int{0, 4, 2}},
			{"matBF16", kindMat16, 8, []int{0, 4, 4, 2}},
			{"dot8", kindDot, 8, []int{0, 4, 2}},
			{"mat8", kindMat8, 8, []int{0, 4, 4, 2}},
			{"wide8", kindWide8, 8, []int{0, 4, 2}},
		} {
			if sve && fam.kind == kindWide8 {
				continue // SVE has dot products
			}
			f := &file{}
			full, fast, rows, wide := map[int]string{}, map[int]string{}, map[int]string{}, map[int]string{}
			for h := 1; h <= fam.mr; h++ {
				full[h] = f.armKernel(fam.name, sve, fam.kind, h, 1, "")
				if h < len(fam.wide) && fam.wide[h] > 1 {
					wide[h] = f.armKernel(fam.name, sve, fam.kind, h, fam.wide[h], "")
				}
				if h >= 4 && fam.kind != kindF16 && fam.kind != kindBF16 {
					fast[h] = f.armKernel(fam.name, sve, fam.kind, h, 1, "fast")
					rows[h] = f.armKernel(fam.name, sve, fam.kind, h, 1, "rows")
				}
			}
			tables := table(fam.name+isa+"full", "are the kernels of one panel, by height.", full, fam.mr)
			if len(fast) > 0 {
				tables += table(fam.name+isa+"fast", "take both operands packed.", fast, fam.mr)
				tables += table(fam.name+isa+"rows", "read A along its rows, and a packed B.", rows, fam.mr)
			}
			tables += table(fam.name+isa+"wide", "compute several panels at once.", wide, fam.mr)
			f.write(out, "kernels_"+strings.ToLower(fam.name+"_"+isa)+"_arm64", tags, headerARM64, tables)
		}
	}
}
