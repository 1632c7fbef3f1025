package main

import (
	"bytes"
	"fmt"
	"path/filepath"
)

// Offsets of the fields of the ladder's args; the Go side asserts them.
const (
	lC    = 0
	lA    = 8
	lB    = 16
	lLDC  = 24
	lLDA  = 32
	lK    = 40
	lRows = 48
	lCols = 56
	lAdd  = 64
)

// ladderNR is the number of columns of a tile of the ladder.
const ladderNR = 4

// ladderFile collects the kernels of one architecture's ladder.
type ladderFile struct {
	file
}

func (f *ladderFile) open(name, doc string) {
	f.p("")
	f.p("// func %s(p *args)", name)
	f.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
	fmt.Fprintf(&f.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(p *args)\n", name, doc, name)
}

func (f *ladderFile) save(dir, base, constraint, data string) {
	var s, g bytes.Buffer
	s.WriteString(notice + "//go:build " + constraint + "\n\n#include \"textflag.h\"\n\n" + data)
	s.Write(f.asm.Bytes())
	save(filepath.Join(dir, base+".s"), s.Bytes())
	g.WriteString(notice + "//go:build " + constraint + "\n\npackage ladder\n")
	g.Write(f.stubs.Bytes())
	save(filepath.Join(dir, base+".go"), g.Bytes())
}

// x86Level is what the kernels of one vector width differ in.
type x86Level struct {
	name  string
	r     string // register letter
	bytes int
	fma   bool
	mask  bool // loads and stores of fewer rows than a vector holds
	regs  int
}

var x86Levels = []x86Level{
	{"SSE", "X", 16, false, false, 16},
	{"AVX2", "Y", 32, true, true, 16},
	{"AVX512", "Z", 64, true, true, 32},
}

func (l x86Level) reg(i int) string { return fmt.Sprintf("%s%d", l.r, i) }

func (l x86Level) zero(f *ladderFile, i int) {
	switch l.r {
	case "X":
		f.p("\tXORPS X%d, X%d", i, i)
	case "Y":
		f.p("\tVXORPS Y%d, Y%d, Y%d", i, i, i)
	default:
		f.p("\tVPXORD Z%d, Z%d, Z%d", i, i, i)
	}
}

func (l x86Level) add(f *ladderFile, from, to int) {
	if l.r == "X" {
		f.p("\tADDPS X%d, X%d", from, to)
		return
	}
	f.p("\tVADDPS %s, %s, %s", l.reg(from), l.reg(to), l.reg(to))
}

// rowMask makes the mask of the valid rows: K1, or the last register.
func (l x86Level) rowMask(f *ladderFile) {
	switch l.r {
	case "Y":
		f.p("\tVPBROADCASTD %d(DI), Y15", lRows)
		f.p("\tVPCMPGTD iota<>(SB), Y15, Y15")
	case "Z":
		f.p("\tMOVQ %d(DI), CX", lRows)
		f.p("\tMOVL $1, R9")
		f.p("\tSHLL CX, R9")
		f.p("\tDECL R9")
		f.p("\tKMOVW R9, K1")
	}
}

func (l x86Level) load(f *ladderFile, from string, to int, masked bool) {
	switch {
	case l.r == "X":
		f.p("\tMOVUPS %s, X%d", from, to)
	case !masked:
		f.p("\tVMOVUPS %s, %s", from, l.reg(to))
	case l.r == "Y":
		f.p("\tVMASKMOVPS %s, Y15, Y%d", from, to)
	default:
		f.p("\tVMOVUPS.Z %s, K1, Z%d", from, to)
	}
}

func (l x86Level) store(f *ladderFile, from int, to string, masked bool) {
	switch {
	case l.r == "X":
		f.p("\tMOVUPS X%d, %s", from, to)
	case !masked:
		f.p("\tVMOVUPS %s, %s", l.reg(from), to)
	case l.r == "Y":
		f.p("\tVMASKMOVPS Y%d, Y15, %s", from, to)
	default:
		f.p("\tVMOVUPS Z%d, K1, %s", from, to)
	}
}

// times adds register a times the float32 at b to acc; temp may be overwritten.
func (l x86Level) times(f *ladderFile, b string, a, acc, temp int) {
	switch l.r {
	case "X":
		f.p("\tMOVSS %s, X%d", b, temp)
		f.p("\tSHUFPS $0, X%d, X%d", temp, temp)
		f.p("\tMULPS X%d, X%d", a, temp)
		f.p("\tADDPS X%d, X%d", temp, acc)
	case "Y":
		f.p("\tVBROADCASTSS %s, Y%d", b, temp)
		f.p("\tVFMADD231PS Y%d, Y%d, Y%d", temp, a, acc)
	default:
		f.p("\tVFMADD231PS.BCST %s, Z%d, Z%d", b, a, acc)
	}
}

func (l x86Level) end(f *ladderFile) {
	if l.r != "X" {
		f.p("\tVZEROUPPER")
	}
	f.p("\tRET")
}

// column emits the kernel of the stages without packing: one vector of rows of one column of C, k in four chains.
func (l x86Level) column(f *ladderFile) {
	f.open("column"+l.name, fmt.Sprintf("computes up to %d rows of one column of C, A and B in place.", l.bytes/4))
	f.p("\tMOVQ p+0(FP), DI")
	l.rowMask(f)
	f.p("\tMOVQ %d(DI), AX", lA)
	f.p("\tMOVQ %d(DI), BX", lB)
	f.p("\tMOVQ %d(DI), DX", lLDA)
	f.p("\tMOVQ %d(DI), CX", lK)
	f.p("\tLEAQ (DX)(DX*2), SI")
	for i := range 4 {
		l.zero(f, i)
	}
	f.p("\tSUBQ $4, CX")
	f.p("\tJLT rest")
	f.p("loop:")
	for i, at := range []string{"(AX)", "(AX)(DX*1)", "(AX)(DX*2)", "(AX)(SI*1)"} {
		l.load(f, at, 4+i, true)
	}
	for i := range 4 {
		l.times(f, fmt.Sprintf("%d(BX)", 4*i), 4+i, i, 8+i)
	}
	f.p("\tLEAQ (AX)(DX*4), AX")
	f.p("\tADDQ $16, BX")
	f.p("\tSUBQ $4, CX")
	f.p("\tJGE loop")
	f.p("rest:")
	l.add(f, 1, 0)
	l.add(f, 3, 2)
	l.add(f, 2, 0)
	f.p("\tADDQ $4, CX")
	f.p("\tJEQ sum")
	f.p("last:")
	l.load(f, "(AX)", 4, true)
	l.times(f, "(BX)", 4, 0, 8)
	f.p("\tADDQ DX, AX")
	f.p("\tADDQ $4, BX")
	f.p("\tDECQ CX")
	f.p("\tJNE last")
	f.p("sum:")
	f.p("\tMOVQ %d(DI), AX", lC)
	f.p("\tCMPQ %d(DI), $0", lAdd)
	f.p("\tJEQ store")
	l.load(f, "(AX)", 1, true)
	l.add(f, 1, 0)
	f.p("store:")
	l.store(f, 0, "(AX)", true)
	l.end(f)
}

// tile emits the kernel of packed operands: panels of A side by side, times four columns, k in so many chains.
func (l x86Level) tile(f *ladderFile, panels, chains int) {
	name := fmt.Sprintf("tile%s", l.name)
	doc := fmt.Sprintf("computes %d columns of one panel of %d rows, packed, k in %d chains.", ladderNR, l.bytes/4, chains)
	if panels > 1 {
		name = fmt.Sprintf("tile%dx%s", panels, l.name)
		doc = fmt.Sprintf("computes %d columns of %d whole panels of %d rows at once, packed.", ladderNR, panels, l.bytes/4)
	}
	masked := l.mask && panels == 1
	f.open(name, doc)
	f.p("\tMOVQ p+0(FP), DI")
	if masked && l.r == "Z" {
		l.rowMask(f)
	}
	f.p("\tMOVQ %d(DI), AX", lA)
	f.p("\tMOVQ %d(DI), BX", lB)
	f.p("\tMOVQ %d(DI), CX", lK)
	if panels > 1 {
		f.p("\tMOVQ %d(DI), DX", lLDA)
		if panels > 3 {
			f.p("\tLEAQ (DX)(DX*2), SI")
		}
	}
	acc := func(chain, panel, col int) int { return (chain*panels+panel)*ladderNR + col }
	first := chains * panels * ladderNR // registers from here on hold operands
	for i := range first {
		l.zero(f, i)
	}
	at := func(panel, disp int) string {
		return fmt.Sprintf("%d%s", disp, [...]string{"(AX)", "(AX)(DX*1)", "(AX)(DX*2)", "(AX)(SI*1)"}[panel])
	}
	step := func(k, chain int) {
		a := func(panel int) int { return first + panel }
		free := first + panels
		if panels == 1 && l.regs == 32 {
			a = func(int) int { return first + k } // one register a step: loads of later steps need not wait
			free = first + 4
		}
		for p := range panels {
			l.load(f, at(p, k*l.bytes), a(p), false)
		}
		for col := range ladderNR {
			b := fmt.Sprintf("%d(BX)", 16*k+4*col)
			switch {
			case panels == 1:
				l.times(f, b, a(0), acc(chain, 0, col), free+col%2)
			case l.fma:
				t := free + col%(l.regs-free)
				f.p("\tVBROADCASTSS %s, %s", b, l.reg(t))
				for p := range panels {
					f.p("\tVFMADD231PS %s, %s, %s", l.reg(t), l.reg(a(p)), l.reg(acc(chain, p, col)))
				}
			default:
				f.p("\tMOVSS %s, X%d", b, free)
				f.p("\tSHUFPS $0, X%d, X%d", free, free)
				for p := range panels {
					t := free + 1 + p
					f.p("\tMOVAPS X%d, X%d", free, t)
					f.p("\tMULPS X%d, X%d", a(p), t)
					f.p("\tADDPS X%d, X%d", t, acc(chain, p, col))
				}
			}
		}
	}
	f.p("\tSUBQ $4, CX")
	f.p("\tJLT rest")
	f.p("loop:")
	for k := range 4 {
		step(k, k%chains)
	}
	f.p("\tADDQ $%d, AX", 4*l.bytes)
	f.p("\tADDQ $64, BX")
	f.p("\tSUBQ $4, CX")
	f.p("\tJGE loop")
	f.p("rest:")
	for half := chains / 2; half > 0; half /= 2 {
		for c := range half {
			for col := range ladderNR {
				l.add(f, acc(c+half, 0, col), acc(c, 0, col))
			}
		}
	}
	f.p("\tADDQ $4, CX")
	f.p("\tJEQ sum")
	f.p("last:")
	step(0, 0)
	f.p("\tADDQ $%d, AX", l.bytes)
	f.p("\tADDQ $16, BX")
	f.p("\tDECQ CX")
	f.p("\tJNE last")
	f.p("sum:")
	if masked && l.r == "Y" {
		l.rowMask(f) // the register of the mask held an operand
	}
	f.p("\tMOVQ %d(DI), AX", lC)
	f.p("\tMOVQ %d(DI), DX", lLDC)
	f.p("\tMOVQ %d(DI), CX", lCols)
	f.p("\tMOVQ %d(DI), R8", lAdd)
	for col := range ladderNR {
		if col > 0 {
			f.p("\tADDQ DX, AX")
			f.p("\tCMPQ CX, $%d", col)
			f.p("\tJLE done")
		}
		f.p("\tTESTQ R8, R8")
		f.p("\tJEQ store%d", col)
		for p := range panels {
			l.load(f, fmt.Sprintf("%d(AX)", p*l.bytes), first+p, masked)
			l.add(f, first+p, acc(0, p, col))
		}
		f.p("store%d:", col)
		for p := range panels {
			l.store(f, acc(0, p, col), fmt.Sprintf("%d(AX)", p*l.bytes), masked)
		}
	}
	f.p("done:")
	l.end(f)
}

// packA emits the copy of one panel: a vector of rows for each k.
func (l x86Level) packA(f *ladderFile) {
	f.open("packA"+l.name, fmt.Sprintf("packs up to %d rows of A as one panel at c, zeros below them.", l.bytes/4))
	f.p("\tMOVQ p+0(FP), DI")
	l.rowMask(f)
	f.p("\tMOVQ %d(DI), AX", lA)
	f.p("\tMOVQ %d(DI), BX", lC)
	f.p("\tMOVQ %d(DI), DX", lLDA)
	f.p("\tMOVQ %d(DI), CX", lK)
	f.p("loop:")
	l.load(f, "(AX)", 0, true)
	l.store(f, 0, "(BX)", false)
	f.p("\tADDQ DX, AX")
	f.p("\tADDQ $%d, BX", l.bytes)
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	l.end(f)
}

// packB emits the copy of four columns of B to rows of four, by transposing 4 x 4 elements at a time.
func packB(f *ladderFile) {
	f.open("packBSSE", "packs four columns of B, lda bytes apart, to c: four values a k; k is a multiple of 4.")
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), BX", lB)
	f.p("\tMOVQ %d(DI), AX", lC)
	f.p("\tMOVQ %d(DI), DX", lLDA)
	f.p("\tMOVQ %d(DI), CX", lK)
	f.p("\tLEAQ (DX)(DX*2), SI")
	f.p("loop:")
	for i, at := range []string{"(BX)", "(BX)(DX*1)", "(BX)(DX*2)", "(BX)(SI*1)"} {
		f.p("\tMOVUPS %s, X%d", at, i)
	}
	// Pairs of columns interleave, then pairs of pairs.
	f.p("\tMOVAPS X0, X4")
	f.p("\tUNPCKLPS X1, X0")
	f.p("\tUNPCKHPS X1, X4")
	f.p("\tMOVAPS X2, X5")
	f.p("\tUNPCKLPS X3, X2")
	f.p("\tUNPCKHPS X3, X5")
	f.p("\tMOVAPS X0, X1")
	f.p("\tMOVLHPS X2, X0")
	f.p("\tMOVHLPS X1, X2")
	f.p("\tMOVAPS X4, X3")
	f.p("\tMOVLHPS X5, X4")
	f.p("\tMOVHLPS X3, X5")
	for i, r := range []int{0, 2, 4, 5} {
		f.p("\tMOVUPS X%d, %d(AX)", r, 16*i)
	}
	f.p("\tADDQ $16, BX")
	f.p("\tADDQ $64, AX")
	f.p("\tSUBQ $4, CX")
	f.p("\tJNE loop")
	f.p("\tRET")
}

// packB512 does the same 16 k at a time: 4 x 4 elements in each quarter of a register, then the quarters.
func packB512(f *ladderFile) {
	f.open("packBAVX512", "packs four columns of B, lda bytes apart, to c: four values a k; k is a multiple of 16.")
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), BX", lB)
	f.p("\tMOVQ %d(DI), AX", lC)
	f.p("\tMOVQ %d(DI), DX", lLDA)
	f.p("\tMOVQ %d(DI), CX", lK)
	f.p("\tLEAQ (DX)(DX*2), SI")
	f.p("loop:")
	for i, at := range []string{"(BX)", "(BX)(DX*1)", "(BX)(DX*2)", "(BX)(SI*1)"} {
		f.p("\tVMOVUPS %s, Z%d", at, i)
	}
	two := func(op string, a, b, to int) { f.p("\t%s Z%d, Z%d, Z%d", op, b, a, to) }
	two("VUNPCKLPS", 0, 1, 4)
	two("VUNPCKHPS", 0, 1, 5)
	two("VUNPCKLPS", 2, 3, 6)
	two("VUNPCKHPS", 2, 3, 7)
	two("VUNPCKLPD", 4, 6, 0) // k 0, 4, 8, 12
	two("VUNPCKHPD", 4, 6, 1)
	two("VUNPCKLPD", 5, 7, 2)
	two("VUNPCKHPD", 5, 7, 3)
	two("VSHUFF32X4 $0x44,", 0, 1, 4)
	two("VSHUFF32X4 $0x44,", 2, 3, 5)
	two("VSHUFF32X4 $0xee,", 0, 1, 6)
	two("VSHUFF32X4 $0xee,", 2, 3, 7)
	two("VSHUFF32X4 $0x88,", 4, 5, 0)
	two("VSHUFF32X4 $0xdd,", 4, 5, 1)
	two("VSHUFF32X4 $0x88,", 6, 7, 2)
	two("VSHUFF32X4 $0xdd,", 6, 7, 3)
	for i := range 4 {
		f.p("\tVMOVUPS Z%d, %d(AX)", i, 64*i)
	}
	f.p("\tADDQ $64, BX")
	f.p("\tADDQ $256, AX")
	f.p("\tSUBQ $16, CX")
	f.p("\tJNE loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

func ladder(out string) {
	dir := filepath.Join(out, "ladder")
	f := &ladderFile{}
	for _, l := range x86Levels {
		l.column(f)
		// One panel needs chains to hide the latency of its sums; panels side by side are chains enough, and each element of B
		// that was broadcast serves all of them.
		l.tile(f, 1, l.regs/8)
		l.tile(f, l.regs/8, 1)
		l.packA(f)
	}
	packB(f)
	packB512(f)
	iota := ""
	for i := range 8 {
		iota += fmt.Sprintf("DATA iota<>+%d(SB)/4, $%d\n", 4*i, i)
	}
	f.save(dir, "kernels_amd64", "amd64 && !noasm", iota+"GLOBL iota<>(SB), RODATA|NOPTR, $32\n")
	ladderARM64(dir)
}
