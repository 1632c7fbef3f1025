package main

import (
	"fmt"
	"math"
)

// The points of the 6x6 transforms are 0, a, -a, b, -b and infinity. Of the pairs of short fractions these lose least: sums are about
// twice as far from the truth as those of the direct method, a quarter of what the usual 1 and 2 give.
const (
	pointA = 5.0 / 8
	pointB = 3.0 / 2
)

// The points of the transforms of 8 are 0, 1/2, -1/2, 1, -1, 2, -2 and infinity.
const (
	point1 = 1.0 / 2
	point2 = 1.0
	point3 = 2.0
)

// Offsets of the fields of transform.
const (
	wSrc  = 0
	wDst  = 8
	wTmp  = 16
	wStep = 24
	wN    = 32

	wAhead = 40
)

// Offsets of the fields of inverse.
const (
	vSrc  = 0
	vDst  = 8
	vRes  = 16
	vInit = 24
	vTmp  = 32
	vStep = 40
	vOff  = 48
	vN    = 56
	vLo   = 64
	vHi   = 68
	vP    = 72
	vQ    = 76
	vMode = 80
	vS    = 88
	vT    = 92
)

const winogradHeader = `
// Transforms of Winograd's algorithm, for blocks of channels. The input transform takes a square of pixels to as many frequencies: columns
// first, by way of tmp, then rows; or a line of pixels at once. The output transform takes sums of frequencies to pixels, adds init and the residual, and applies
// the activation's mode and the limits.
//
//	DI args     DX channels done, in bytes     SI source     BX destination

`

var winogradConstants = []struct {
	name  string
	value float64
}{
	{"a", pointA}, {"b", pointB}, {"a2", pointA * pointA}, {"b2", pointB * pointB}, {"a3", pointA * pointA * pointA}, {"b3", pointB * pointB * pointB},
	{"a2b2", pointA * pointA * pointB * pointB}, {"a2plusb2", pointA*pointA + pointB*pointB},
	{"eighth", 1. / 8}, {"quarter", 1. / 4}, {"half", 1. / 2}, {"two", 2}, {"four", 4}, {"eight", 8},
	{"sum1", point2*point2 + point3*point3}, {"sum2", point1*point1 + point3*point3}, {"sum3", point1*point1 + point2*point2},
	{"sum", point1*point1 + point2*point2 + point3*point3}, // which the sum of the products of two squares is as well
}

func constantName(name string) string { return "·winograd_" + name + "(SB)" }

func winograd(dir string) {
	f := &file{}
	for _, c := range winogradConstants {
		for i := 0; i < 32; i += 4 {
			f.p("DATA ·winograd_%s+%d(SB)/4, $%#08x // %v", c.name, i, math.Float32bits(float32(c.value)), c.value)
		}
		f.p("GLOBL ·winograd_%s(SB), RODATA|NOPTR, $32", c.name)
	}
	for _, v := range vectorSets {
		for _, t := range []int{4, 6} {
			f.winogradInput(v, t)
			f.winogradOutput(v, t)
		}
		for _, t := range []int{6, 8} {
			f.lineInput(v, t)
			f.lineOutput(v, t)
		}
	}
	f.write(dir, "winograd_amd64", winogradHeader, "")
}

// vectors are the registers of an instruction set, and which of them hold constants.
type vectors struct {
	letter, isa string
	bytes       int
	held        map[string]string
}

// hold loads constants into the registers from first on. AVX-512 takes others from memory by broadcast, which costs a load of a whole vector.
func (f *file) hold(v *vectors, first int, names ...string) {
	if v.held == nil {
		v.held = map[string]string{}
	}
	move := map[string]string{"Z": "VBROADCASTSS", "Y": "VMOVUPS"}[v.letter]
	for i, name := range names {
		v.held[name] = v.reg(first + i)
		f.p("\t%s %s, %s", move, constantName(name), v.held[name])
	}
}

var vectorSets = []vectors{{letter: "Z", isa: "AVX512", bytes: 64}, {letter: "Y", isa: "AVX2", bytes: 32}}

func (v vectors) reg(i int) string { return fmt.Sprintf("%s%d", v.letter, i) }

// blocks opens the loop over blocks of channels; AVX-512 masks the last one.
func (f *file) blocks(v vectors, n int) {
	f.p("\tXORQ DX, DX")
	if v.letter == "Z" {
		f.p("\tMOVQ $-1, CX")
		f.p("\tKMOVW CX, K1")
	}
	f.p("block:")
	if v.letter == "Z" {
		f.p("\tMOVQ %d(DI), CX", n)
		f.p("\tCMPQ CX, $16")
		f.p("\tJGE whole")
		f.p("\tMOVQ $-1, AX")
		f.p("\tBZHIQ CX, AX, AX")
		f.p("\tKMOVW AX, K1")
		f.p("whole:")
	}
}

// loads emits what loads a block of channels, as the last argument of body says how: with AVX-512 once for whole blocks, and once by the mask of the last
// one, as a load under a mask takes a turn of a port that multiplies. The suffix tells labels apart.
func (f *file) loads(v vectors, n int, body func(load func(from, to string), suffix string)) {
	whole := func(from, to string) { f.p("\tVMOVUPS %s, %s", from, to) }
	if v.letter == "Y" {
		body(whole, "")
		return
	}
	f.p("\tCMPQ %d(DI), $16", n)
	f.p("\tJLT some")
	body(whole, "")
	f.p("\tJMP loaded")
	f.p("some:")
	body(func(from, to string) { f.p("\tVMOVUPS.Z %s, K1, %s", from, to) }, "Some")
	f.p("loaded:")
}

func (f *file) blocksEnd(v vectors, n int) {
	f.p("\tADDQ $%d, DX", v.bytes)
	f.p("\tSUBQ $%d, %d(DI)", v.bytes/4, n)
	f.p("\tJGT block")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// drop says that registers hold other things than these constants from here on.
func (v vectors) drop(names ...string) {
	for _, name := range names {
		delete(v.held, name)
	}
}

// c applies an operation whose first operand is a constant.
func (f *file) c(v vectors, op, name, x, dst string) {
	if r := v.held[name]; r != "" {
		f.p("\t%s %s, %s, %s", op, r, x, dst)
		return
	}
	if v.letter == "Z" {
		op += ".BCST"
	}
	f.p("\t%s %s, %s, %s", op, constantName(name), x, dst)
}

func (f *file) winogradInput(v vectors, t int) {
	f.text(fmt.Sprintf("winogradInput%s%s", v.isa, size(t)), "transform", fmt.Sprintf("transforms %d x %d pixels.", t, t))
	x := make([]string, t)
	for i := range x {
		x[i] = v.reg(i)
	}
	f.p("\tMOVQ p+0(FP), DI")
	fetch := v.letter == "Y"
	if fetch {
		f.p("\tMOVQ %d(DI), R9", wAhead)
	}
	switch {
	case t == 6 && v.letter == "Z":
		f.hold(&v, 12, "a2plusb2", "b2", "a2", "a2b2", "a", "b")
	case t == 6:
		f.hold(&v, 12, "a2plusb2", "b2", "a2", "a2b2")
	}
	f.blocks(v, wN)
	if fetch {
		f.p("\tLEAQ (R9)(DX*1), R10")
	}
	f.p("\tMOVQ %d(DI), SI", wSrc)
	f.p("\tMOVQ %d(DI), R8", wTmp)
	f.loads(v, wN, func(load func(from, to string), _ string) {
		for j := range t {
			for i := range t {
				f.p("\tMOVQ %d(SI), AX", (i*t+j)*8)
				load("(AX)(DX*1)", x[i])
				if fetch && j >= 2 { // pixels that the next tile does not share with this one
					f.p("\tPREFETCHT0 (AX)(R10*1)")
				}
			}
			for i, z := range f.forward(v, t) {
				f.p("\tVMOVUPS %s, %d(R8)", z, (i*t+j)*v.bytes)
			}
		}
	})
	f.p("\tMOVQ %d(DI), BX", wDst)
	f.p("\tADDQ DX, BX")
	f.p("\tMOVQ %d(DI), CX", wStep)
	for i := range t {
		for j := range t {
			f.p("\tVMOVUPS %d(R8), %s", (i*t+j)*v.bytes, x[j])
		}
		for _, z := range f.forward(v, t) {
			f.p("\tVMOVUPS %s, (BX)", z)
			f.p("\tADDQ CX, BX")
		}
	}
	f.blocksEnd(v, wN)
}

func size(t int) string { return fmt.Sprintf("x%d", t) }

// forward transforms t values in the first t registers and returns where the results are.
func (f *file) forward(v vectors, t int) []string {
	r := v.reg
	if t == 4 {
		f.p("\tVSUBPS %s, %s, %s", r(2), r(0), r(4))
		f.p("\tVADDPS %s, %s, %s", r(1), r(2), r(5))
		f.p("\tVSUBPS %s, %s, %s", r(1), r(2), r(6))
		f.p("\tVSUBPS %s, %s, %s", r(1), r(3), r(7))
		return []string{r(4), r(5), r(6), r(7)}
	}
	f.p("\tVMOVAPS %s, %s", r(4), r(6))
	f.p("\tVMOVAPS %s, %s", r(5), r(7))
	f.p("\tVMOVAPS %s, %s", r(4), r(8))
	f.p("\tVMOVAPS %s, %s", r(3), r(9))
	f.c(v, "VFNMADD231PS", "a2plusb2", r(2), r(6))
	f.c(v, "VFNMADD231PS", "a2plusb2", r(3), r(7))
	f.c(v, "VFNMADD231PS", "b2", r(2), r(8))
	f.c(v, "VFNMADD231PS", "b2", r(1), r(9))
	f.c(v, "VFNMADD231PS", "a2", r(2), r(4))
	f.c(v, "VFNMADD231PS", "a2", r(1), r(3))
	f.c(v, "VFMADD231PS", "a2b2", r(0), r(6))
	f.c(v, "VFMADD231PS", "a2b2", r(1), r(7))
	f.p("\tVMOVAPS %s, %s", r(8), r(10))
	f.c(v, "VFMADD231PS", "a", r(9), r(10))
	f.c(v, "VFNMADD231PS", "a", r(9), r(8))
	f.p("\tVMOVAPS %s, %s", r(4), r(11))
	f.c(v, "VFMADD231PS", "b", r(3), r(11))
	f.c(v, "VFNMADD231PS", "b", r(3), r(4))
	return []string{r(6), r(10), r(8), r(11), r(4), r(7)}
}

// winogradOutput keeps the result of the columns in registers where there are enough, else in tmp.
func (f *file) winogradOutput(v vectors, t int) {
	f.text(fmt.Sprintf("winogradOutput%s%s", v.isa, size(t)), "inverse", fmt.Sprintf("transforms %d x %d frequencies to %d x %d pixels.", t, t, t-2, t-2))
	m := t - 2
	keep := v.letter == "Z"
	temp := func(i int) string { // of the columns
		if keep {
			return v.reg(m*t + i)
		}
		return v.reg(i)
	}
	f.p("\tMOVQ p+0(FP), DI")
	if t == 6 && !keep {
		f.hold(&v, 11, "a", "b", "a2", "b2", "a3")
	}
	f.blocks(v, vN)
	if t == 6 && keep { // the registers of the last column, and those of the pixels, are not used yet
		f.hold(&v, 29, "a2", "b2", "a3")
		f.hold(&v, 5, "a")
		f.hold(&v, 11, "b")
		f.hold(&v, 17, "b3")
	}
	f.p("\tMOVQ %d(DI), SI", vSrc)
	f.p("\tADDQ DX, SI")
	f.p("\tMOVQ %d(DI), CX", vStep)
	f.p("\tIMUL3Q $%d, CX, R8", t)
	f.p("\tLEAQ (R8)(R8*2), R9")
	f.p("\tLEAQ (R8)(R8*4), R10")
	f.p("\tMOVQ %d(DI), BX", vTmp)
	row := []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R9*1)", "(SI)(R8*4)", "(SI)(R10*1)"}
	for j := range t {
		o := func(i int) string {
			if keep {
				return v.reg(i*t + j)
			}
			return v.reg(5 + i)
		}
		if t == 6 && keep && j == t-1 {
			v.drop("a", "b", "b3")
		}
		t0, t1, t2, t3, t4 := temp(0), temp(1), temp(2), temp(3), temp(4)
		f.p("\tVMOVUPS %s, %s", row[1], t0)
		f.p("\tVMOVUPS %s, %s", row[2], t1)
		if t == 4 {
			f.p("\tVADDPS %s, %s, %s", t1, t0, o(0))
			f.p("\tVADDPS %s, %s, %s", row[0], o(0), o(0))
			f.p("\tVSUBPS %s, %s, %s", t1, t0, o(1))
			f.p("\tVADDPS %s, %s, %s", row[3], o(1), o(1))
		} else {
			f.p("\tVADDPS %s, %s, %s", t1, t0, t2)
			f.p("\tVSUBPS %s, %s, %s", t1, t0, t0)
			f.p("\tVMOVUPS %s, %s", row[3], t1)
			f.p("\tVMOVUPS %s, %s", row[4], t3)
			f.p("\tVADDPS %s, %s, %s", t3, t1, t4)
			f.p("\tVSUBPS %s, %s, %s", t3, t1, t1)
			f.p("\tVADDPS %s, %s, %s", row[0], t2, o(0))
			f.p("\tVADDPS %s, %s, %s", t4, o(0), o(0))
			f.c(v, "VMULPS", "a", t0, o(1))
			f.c(v, "VFMADD231PS", "b", t1, o(1))
			f.c(v, "VMULPS", "a2", t2, o(2))
			f.c(v, "VFMADD231PS", "b2", t4, o(2))
			f.p("\tVMOVUPS %s, %s", row[5], o(3))
			f.c(v, "VFMADD231PS", "a3", t0, o(3))
			f.c(v, "VFMADD231PS", "b3", t1, o(3))
		}
		if !keep {
			for i := range m {
				f.p("\tVMOVUPS %s, %d(BX)", o(i), (i*t+j)*v.bytes)
			}
		}
		if j+1 < t {
			f.p("\tADDQ CX, SI")
		}
	}
	bias, lo, hi := v.reg(29), v.reg(30), v.reg(31)
	if !keep {
		bias, lo, hi = v.reg(8), v.reg(9), v.reg(10)
	}
	if t == 6 && keep {
		v.drop("a2", "b2", "a3")
		f.hold(&v, m*t+2, "a", "b", "a2")
	}
	f.pixelsBegin(bias, lo, hi)
	for r := range m {
		if t == 6 && keep && r == 1 { // the first row is done with its registers
			f.hold(&v, 0, "b2", "a3", "b3")
		}
		x := make([]string, t)
		for j := range x {
			x[j] = v.reg(j)
			if keep {
				x[j] = v.reg(r*t + j)
			} else {
				f.p("\tVMOVUPS %d(BX), %s", (r*t+j)*v.bytes, x[j])
			}
		}
		t0, t1 := temp(0), temp(1)
		if !keep {
			t0, t1 = v.reg(6), v.reg(7)
		}
		var y []string
		var spare [4]string
		if t == 4 {
			f.p("\tVSUBPS %s, %s, %s", x[2], x[1], t0)
			f.p("\tVADDPS %s, %s, %s", x[2], x[1], x[1])
			f.p("\tVADDPS %s, %s, %s", x[1], x[0], x[0])
			f.p("\tVADDPS %s, %s, %s", t0, x[3], x[3])
			y, spare = []string{x[0], x[3]}, [4]string{x[1], x[2], t0, t1}
		} else {
			f.p("\tVADDPS %s, %s, %s", x[2], x[1], t0)
			f.p("\tVSUBPS %s, %s, %s", x[2], x[1], x[1])
			f.p("\tVADDPS %s, %s, %s", x[4], x[3], t1)
			f.p("\tVSUBPS %s, %s, %s", x[4], x[3], x[3])
			f.p("\tVADDPS %s, %s, %s", t0, x[0], x[0])
			f.p("\tVADDPS %s, %s, %s", t1, x[0], x[0])
			f.c(v, "VMULPS", "a", x[1], x[2])
			f.c(v, "VFMADD231PS", "b", x[3], x[2])
			f.c(v, "VMULPS", "a2", t0, t0)
			f.c(v, "VFMADD231PS", "b2", t1, t0)
			f.c(v, "VFMADD231PS", "a3", x[1], x[5])
			f.c(v, "VFMADD231PS", "b3", x[3], x[5])
			y, spare = []string{x[0], x[2], t0, x[5]}, [4]string{x[1], x[3], x[4], t1}
		}
		f.pixelsOut(v, y, spare, r*m, bias, lo, hi)
	}
	f.blocksEnd(v, vN)
}

// pixelsBegin loads what all pixels of a block of channels need.
func (f *file) pixelsBegin(bias, lo, hi string) {
	f.p("\tMOVQ %d(DI), AX", vInit)
	f.p("\tVMOVUPS (AX)(DX*1), %s", bias)
	f.p("\tVBROADCASTSS %d(DI), %s", vLo, lo)
	f.p("\tVBROADCASTSS %d(DI), %s", vHi, hi)
	f.p("\tMOVQ %d(DI), R11", vRes)
	f.p("\tMOVQ %d(DI), R13", vDst)
	f.p("\tMOVQ %d(DI), R12", vOff)
	f.p("\tADDQ DX, R12")
}

// pixelsOut finishes and stores neighbouring pixels, the first of which has a position in the tables of pointers.
func (f *file) pixelsOut(v vectors, y []string, spare [4]string, first int, bias, lo, hi string) {
	mask := ""
	if v.letter == "Z" {
		mask = "K1, "
	}
	for _, s := range y {
		f.p("\tVADDPS %s, %s, %s", bias, s, s)
	}
	f.p("\tTESTQ R11, R11")
	f.p("\tJEQ bare%d", first)
	for i, s := range y {
		f.p("\tMOVQ %d(R11), AX", (first+i)*8)
		f.p("\tVADDPS (AX)(R12*1), %s, %s%s", s, mask, s)
	}
	f.p("bare%d:", first)
	f.activate(v.letter, y, spare, vP, vQ, vMode, vS, vT, fmt.Sprint(first))
	for i, s := range y {
		f.p("\tVMAXPS %s, %s, %s", s, lo, s)
		f.p("\tVMINPS %s, %s, %s", s, hi, s)
		f.p("\tMOVQ %d(R13), AX", (first+i)*8)
		f.p("\tVMOVUPS %s, %s(AX)(R12*1)", s, mask)
	}
}

func (f *file) lineInput(v vectors, t int) {
	f.text(fmt.Sprintf("lineInput%s%s", v.isa, size(t)), "transform", fmt.Sprintf("transforms a line of %d pixels.", t))
	f.p("\tMOVQ p+0(FP), DI")
	switch {
	case v.letter == "Y":
	case t == 6:
		f.hold(&v, 12, "a2plusb2", "b2", "a2", "a2b2", "a", "b")
	default:
		f.hold(&v, 15, "sum", "sum1", "sum2", "sum3", "four", "quarter", "half", "two")
	}
	f.blocks(v, wN)
	f.p("\tMOVQ %d(DI), SI", wSrc)
	f.loads(v, wN, func(load func(from, to string), _ string) {
		for i := range t {
			f.p("\tMOVQ %d(SI), AX", i*8)
			load("(AX)(DX*1)", v.reg(i))
		}
	})
	var z []string
	if t == 6 {
		z = f.forward(v, t)
	} else {
		z = f.forward8(v)
	}
	f.p("\tMOVQ %d(DI), BX", wDst)
	f.p("\tADDQ DX, BX")
	f.p("\tMOVQ %d(DI), CX", wStep)
	for i, r := range z {
		f.p("\tVMOVUPS %s, (BX)", r)
		if i+1 < t {
			f.p("\tADDQ CX, BX")
		}
	}
	f.blocksEnd(v, wN)
}

// forward8 transforms the values in the first 8 registers and returns where the results are. The products of the squares of all points are 1.
func (f *file) forward8(v vectors) []string {
	r := v.reg
	f.p("\tVMOVAPS %s, %s", r(6), r(8))
	f.p("\tVMOVAPS %s, %s", r(7), r(9))
	f.c(v, "VFNMADD231PS", "sum", r(4), r(8))
	f.c(v, "VFNMADD231PS", "sum", r(5), r(9))
	f.c(v, "VFMADD231PS", "sum", r(2), r(8))
	f.c(v, "VFMADD231PS", "sum", r(3), r(9))
	f.p("\tVSUBPS %s, %s, %s", r(0), r(8), r(8))
	f.p("\tVSUBPS %s, %s, %s", r(1), r(9), r(9))
	// For each pair of points: the sum and the product of the other squares, and the point.
	for _, p := range []struct {
		sum, product, point string
		even, plus          int
	}{{"sum1", "four", "half", 10, 12}, {"sum2", "", "", 13, 14}, {"sum3", "quarter", "two", 0, 7}} {
		even, odd, plus := r(p.even), r(11), r(p.plus)
		f.p("\tVMOVAPS %s, %s", r(6), even)
		f.p("\tVMOVAPS %s, %s", r(5), odd)
		f.c(v, "VFNMADD231PS", p.sum, r(4), even)
		f.c(v, "VFNMADD231PS", p.sum, r(3), odd)
		if p.product == "" {
			f.p("\tVADDPS %s, %s, %s", r(2), even, even)
			f.p("\tVADDPS %s, %s, %s", r(1), odd, odd)
			f.p("\tVADDPS %s, %s, %s", odd, even, plus)
			f.p("\tVSUBPS %s, %s, %s", odd, even, even)
			continue
		}
		f.c(v, "VFMADD231PS", p.product, r(2), even)
		f.c(v, "VFMADD231PS", p.product, r(1), odd)
		f.p("\tVMOVAPS %s, %s", even, plus)
		f.c(v, "VFMADD231PS", p.point, odd, plus)
		f.c(v, "VFNMADD231PS", p.point, odd, even)
	}
	return []string{r(8), r(12), r(10), r(14), r(13), r(7), r(0), r(9)}
}

func (f *file) lineOutput(v vectors, t int) {
	f.text(fmt.Sprintf("lineOutput%s%s", v.isa, size(t)), "inverse", fmt.Sprintf("transforms %d frequencies to a line of 4 pixels.", t))
	f.p("\tMOVQ p+0(FP), DI")
	powers := [][]string{{"a", "b"}, {"a2", "b2"}, {"a3", "b3"}}
	if t == 8 {
		powers = [][]string{{"half", "", "two"}, {"quarter", "", "four"}, {"eighth", "", "eight"}}
	}
	if v.letter == "Z" {
		at := 13
		for _, names := range powers {
			for _, name := range names {
				if name != "" {
					f.hold(&v, at, name)
					at++
				}
			}
		}
	}
	f.blocks(v, vN)
	f.p("\tMOVQ %d(DI), SI", vSrc)
	f.p("\tADDQ DX, SI")
	f.p("\tMOVQ %d(DI), R8", vStep)
	f.p("\tLEAQ (R8)(R8*2), R9")
	f.p("\tLEAQ (R8)(R8*4), R10")
	f.p("\tLEAQ (R9)(R8*4), R14")
	at := []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R9*1)", "(SI)(R8*4)", "(SI)(R10*1)", "(SI)(R9*2)", "(SI)(R14*1)"}
	r := v.reg
	// The sums and differences of the pairs.
	pairs := (t - 2) / 2
	sum, diff := []string{r(0), r(1), r(2)}, []string{r(3), r(4), r(5)}
	for i := range pairs {
		f.p("\tVMOVUPS %s, %s", at[1+2*i], diff[i])
		f.p("\tVMOVUPS %s, %s", at[2+2*i], r(6))
		f.p("\tVADDPS %s, %s, %s", r(6), diff[i], sum[i])
		f.p("\tVSUBPS %s, %s, %s", r(6), diff[i], diff[i])
	}
	y := []string{r(6), r(7), r(8), r(9)}
	add := func(c, x, dst string) {
		if c == "" {
			f.p("\tVADDPS %s, %s, %s", x, dst, dst)
		} else {
			f.c(v, "VFMADD231PS", c, x, dst)
		}
	}
	f.p("\tVADDPS %s, %s, %s", at[0], sum[0], y[0])
	f.p("\tVMOVUPS %s, %s", at[t-1], y[3])
	f.c(v, "VMULPS", powers[0][0], diff[0], y[1])
	f.c(v, "VMULPS", powers[1][0], sum[0], y[2])
	add(powers[2][0], diff[0], y[3])
	for i := 1; i < pairs; i++ {
		add("", sum[i], y[0])
		add(powers[0][i], diff[i], y[1])
		add(powers[1][i], sum[i], y[2])
		add(powers[2][i], diff[i], y[3])
	}
	bias, lo, hi := r(10), r(11), r(12)
	f.pixelsBegin(bias, lo, hi)
	f.pixelsOut(v, y, [4]string{r(0), r(1), r(2), r(3)}, 0, bias, lo, hi)
	f.blocksEnd(v, vN)
}
