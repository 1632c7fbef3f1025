package main

import (
	"fmt"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

// armLadder writes the ladder's kernels of one vector kind. Registers:
//
//	R0 args    R1 A   R2 B   R3 C    R4 bytes between columns of A or C, or between panels of A    R5 rows    R6 k
//	R10 R11 R12 further panels of A or columns of B     R7 R8 cols and add
//	P0 the valid rows, P1 all
type armLadder struct {
	*ladderFile
	sve bool
}

func (l armLadder) name() string {
	if l.sve {
		return "SVE"
	}
	return "NEON"
}

func (l armLadder) rows() string {
	if l.sve {
		return "a vector of"
	}
	return "4"
}

func (l armLadder) zero(r int) {
	if l.sve {
		l.p("\t%v", e.ZZERO(e.Z(r)))
	} else {
		l.p("\tVEOR V%d.B16, V%d.B16, V%d.B16", r, r, r)
	}
}

func (l armLadder) add(from, to int) {
	if l.sve {
		l.p("\t%v", e.ZFADD(e.Z(to), e.Z(to), e.Z(from)))
	} else {
		l.p("\t%v", e.FADD(e.V(to), e.V(to), e.V(from)))
	}
}

// load and store move vector number vl behind a general register; g is a predicate.
func (l armLadder) load(to, g, from, vl int) {
	if l.sve {
		l.p("\t%v", e.LD1W(e.Z(to), e.P(g), e.X(from), vl))
	} else {
		l.p("\tFMOVQ %d(R%d), F%d", 16*vl, from, to)
	}
}

func (l armLadder) store(from, g, to, vl int) {
	if l.sve {
		l.p("\t%v", e.ST1W(e.Z(from), e.P(g), e.X(to), vl))
	} else {
		l.p("\tFMOVQ F%d, %d(R%d)", from, 16*vl, to)
	}
}

// step moves a register on by whole vectors.
func (l armLadder) step(r, vl int) {
	if l.sve {
		l.p("\t%v", e.ADDVL(e.X(r), e.X(r), vl))
	} else {
		l.p("\tADD $%d, R%d", 16*vl, r)
	}
}

// predicates sets P0 to the valid rows and P1 to all.
func (l armLadder) predicates() {
	if l.sve {
		l.p("\tMOVD %d(R0), R5", lRows)
		l.p("\t%v", e.WHILELT(0, e.S, 31, 5))
		l.p("\t%v", e.PTRUE(1, e.S))
	}
}

// four loads the four values at R2 + 16 k so that each can multiply a vector.
func (l armLadder) four(to, k int) {
	if l.sve {
		l.p("\t%v", e.LD1RQW(e.Z(to), 1, 2, 16*k))
	} else {
		l.p("\tFMOVQ %d(R2), F%d", 16*k, to)
	}
}

// times adds a times element i of b to acc.
func (l armLadder) times(acc, a, b, i int) {
	if l.sve {
		l.p("\t%v", e.ZFMLAElem(e.Z(acc), e.Z(a), e.Z(b), i))
	} else {
		l.p("\t%v", e.FMLAElem(e.V(acc), e.V(a), e.V(b), i))
	}
}

func (l armLadder) column() {
	l.open("column"+l.name(), fmt.Sprintf("computes %s rows of one column of C, A and B in place.", l.rows()))
	l.p("\tMOVD p+0(FP), R0")
	l.predicates()
	l.p("\tMOVD %d(R0), R1", lA)
	l.p("\tMOVD %d(R0), R2", lB)
	l.p("\tMOVD %d(R0), R4", lLDA)
	l.p("\tMOVD %d(R0), R6", lK)
	for i := range 4 {
		l.zero(8 + i)
	}
	l.p("\tSUBS $4, R6")
	l.p("\tBLT rest")
	l.p("loop:")
	l.four(0, 0)
	for i := range 4 {
		l.load(16+i, 0, 1, 0)
		l.p("\tADD R4, R1")
	}
	for i := range 4 {
		l.times(8+i, 16+i, 0, i)
	}
	l.p("\tADD $16, R2")
	l.p("\tSUBS $4, R6")
	l.p("\tBGE loop")
	l.p("rest:")
	l.add(9, 8)
	l.add(11, 10)
	l.add(10, 8)
	l.p("\tADDS $4, R6")
	l.p("\tBEQ sum")
	l.p("last:")
	l.load(16, 0, 1, 0)
	if l.sve {
		l.p("\t%v", e.LD1RW(0, 1, 2, 0))
	} else {
		l.p("\tFMOVS (R2), F0")
	}
	l.times(8, 16, 0, 0)
	l.p("\tADD R4, R1")
	l.p("\tADD $4, R2")
	l.p("\tSUBS $1, R6")
	l.p("\tBNE last")
	l.p("sum:")
	l.p("\tMOVD %d(R0), R3", lC)
	l.p("\tMOVD %d(R0), R8", lAdd)
	l.p("\tCBZ R8, store")
	l.load(9, 0, 3, 0)
	l.add(9, 8)
	l.p("store:")
	l.store(8, 0, 3, 0)
	l.p("\tRET")
}

func (l armLadder) tile(panels, chains int) {
	name, g := "tile"+l.name(), 0
	doc := fmt.Sprintf("computes %d columns of one panel of %s rows, packed, k in %d chains.", ladderNR, l.rows(), chains)
	if panels > 1 {
		name, g = fmt.Sprintf("tile%dx%s", panels, l.name()), 1
		doc = fmt.Sprintf("computes %d columns of %d whole panels of %s rows at once, packed.", ladderNR, panels, l.rows())
	}
	l.open(name, doc)
	l.p("\tMOVD p+0(FP), R0")
	l.predicates()
	l.p("\tMOVD %d(R0), R1", lA)
	l.p("\tMOVD %d(R0), R2", lB)
	l.p("\tMOVD %d(R0), R6", lK)
	base := [...]int{1, 10, 11, 12}
	if panels > 1 {
		l.p("\tMOVD %d(R0), R4", lLDA)
		for p := 1; p < panels; p++ {
			l.p("\tADD R4, R%d, R%d", base[p-1], base[p])
		}
	}
	// Elements of B lie in registers 0 to 3, where SVE can take them, sums in 8 to 23, A in 24 to 31.
	acc := func(chain, panel, col int) int { return 8 + (chain*panels+panel)*ladderNR + col }
	for i := range chains * panels * ladderNR {
		l.zero(8 + i)
	}
	step := func(k, chain int) {
		l.four(k, k)
		for p := range panels {
			l.load(24+(k*panels+p)%8, 1, base[p], k)
		}
		for col := range ladderNR {
			for p := range panels {
				l.times(acc(chain, p, col), 24+(k*panels+p)%8, k, col)
			}
		}
	}
	l.p("\tSUBS $4, R6")
	l.p("\tBLT rest")
	l.p("loop:")
	for k := range 4 {
		step(k, k%chains)
	}
	for p := range panels {
		l.step(base[p], 4)
	}
	l.p("\tADD $64, R2")
	l.p("\tSUBS $4, R6")
	l.p("\tBGE loop")
	l.p("rest:")
	for half := chains / 2; half > 0; half /= 2 {
		for c := range half {
			for col := range ladderNR {
				l.add(acc(c+half, 0, col), acc(c, 0, col))
			}
		}
	}
	l.p("\tADDS $4, R6")
	l.p("\tBEQ sum")
	l.p("last:")
	step(0, 0)
	for p := range panels {
		l.step(base[p], 1)
	}
	l.p("\tADD $16, R2")
	l.p("\tSUBS $1, R6")
	l.p("\tBNE last")
	l.p("sum:")
	l.p("\tMOVD %d(R0), R3", lC)
	l.p("\tMOVD %d(R0), R4", lLDC)
	l.p("\tMOVD %d(R0), R7", lCols)
	l.p("\tMOVD %d(R0), R8", lAdd)
	for col := range ladderNR {
		if col > 0 {
			l.p("\tADD R4, R3")
			l.p("\tCMP $%d, R7", col)
			l.p("\tBLE done")
		}
		l.p("\tCBZ R8, store%d", col)
		for p := range panels {
			l.load(24+p, g, 3, p)
			l.add(24+p, acc(0, p, col))
		}
		l.p("store%d:", col)
		for p := range panels {
			l.store(acc(0, p, col), g, 3, p)
		}
	}
	l.p("done:")
	l.p("\tRET")
}

func (l armLadder) packA() {
	l.open("packA"+l.name(), fmt.Sprintf("packs %s rows of A as one panel at c.", l.rows()))
	l.p("\tMOVD p+0(FP), R0")
	l.predicates()
	l.p("\tMOVD %d(R0), R1", lA)
	l.p("\tMOVD %d(R0), R3", lC)
	l.p("\tMOVD %d(R0), R4", lLDA)
	l.p("\tMOVD %d(R0), R6", lK)
	l.p("loop:")
	l.load(0, 0, 1, 0)
	l.store(0, 1, 3, 0)
	l.p("\tADD R4, R1")
	l.step(3, 1)
	l.p("\tSUBS $1, R6")
	l.p("\tBNE loop")
	l.p("\tRET")
}

func (l armLadder) packB() {
	l.open("packBNEON", "packs four columns of B, lda bytes apart, to c: four values a k; k is a multiple of 4.")
	l.p("\tMOVD p+0(FP), R0")
	l.p("\tMOVD %d(R0), R2", lB)
	l.p("\tMOVD %d(R0), R3", lC)
	l.p("\tMOVD %d(R0), R4", lLDA)
	l.p("\tMOVD %d(R0), R6", lK)
	l.p("\tADD R4, R2, R10")
	l.p("\tADD R4, R10, R11")
	l.p("\tADD R4, R11, R12")
	l.p("loop:")
	for i, r := range [...]int{2, 10, 11, 12} {
		l.p("\tVLD1.P 16(R%d), [V%d.S4]", r, i)
	}
	l.p("\tVST4.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R3)")
	l.p("\tSUBS $4, R6")
	l.p("\tBNE loop")
	l.p("\tRET")
}

func ladderARM64(dir string) {
	f := &ladderFile{}
	for _, sve := range []bool{false, true} {
		l := armLadder{f, sve}
		l.column()
		l.tile(1, 4)
		l.tile(4, 1)
		l.packA()
		if !sve {
			l.packB()
		}
	}
	f.save(dir, "kernels_arm64", "arm64 && !noasm", "")
}
