package main

import (
	"fmt"
	"math"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

// Winograd's transforms for NEON, of four channels at a time. Numbers lie in the lanes of registers 24 to 28, from which multiply-adds take
// them by element. Values are in registers 0 to 15; 16 to 21 are the activation's.
//
//	R0 args     R3 channels done, in bytes

// number returns the register and lane of a constant.
func number(name string) (r e.V, lane int) {
	for i, c := range winogradConstants {
		if c.name == name {
			return e.V(24 + i/4), i % 4
		}
	}
	panic("gen: no constant " + name)
}

// numbers loads the constants.
func (f *neonFile) numbers() {
	for i, c := range winogradConstants {
		f.p("MOVD $%#08x, R1", math.Float32bits(float32(c.value)))
		f.p("VMOV R1, V%d.S[%d]", 24+i/4, i%4)
	}
}

// add, sub, scale, plus and minus are d = a + b, d = a - b, d = c x, d += c x and d -= c x, for a constant c.
func (f *neonFile) add(d, a, b int) { f.i(e.FADD(e.V(d), e.V(a), e.V(b))) }
func (f *neonFile) sub(d, a, b int) { f.i(e.FSUB(e.V(d), e.V(a), e.V(b))) }

func (f *neonFile) scale(d, x int, c string) {
	r, lane := number(c)
	f.i(e.FMULElem(e.V(d), e.V(x), r, lane))
}

func (f *neonFile) plus(d, x int, c string) {
	r, lane := number(c)
	f.i(e.FMLAElem(e.V(d), e.V(x), r, lane))
}

func (f *neonFile) minus(d, x int, c string) {
	r, lane := number(c)
	f.i(e.FMLSElem(e.V(d), e.V(x), r, lane))
}

func (f *neonFile) move(d, s int) { f.p("VMOV V%d.B16, V%d.B16", s, d) }

// pixel loads the pixel that a table of pointers at R4 has at a place.
func (f *neonFile) pixel(r, place int) {
	f.p("MOVD %d(R4), R1", 8*place)
	f.p("ADD R3, R1")
	f.p("FMOVQ (R1), F%d", r)
}

// blocks opens the loop over channels, whose number lies in the arguments; blocksEnd closes it.
func (f *neonFile) blocks() {
	f.numbers()
	f.p("MOVD ZR, R3")
	f.label("block")
}

func (f *neonFile) blocksEnd(n int) {
	f.p("ADD $16, R3")
	f.p("MOVD %d(R0), R1", n)
	f.p("SUBS $4, R1")
	f.p("MOVD R1, %d(R0)", n)
	f.p("BGT block")
	f.p("RET")
}

// frequencies stores registers a step apart from dst on.
func (f *neonFile) frequencies(z []int) {
	for _, r := range z {
		f.p("FMOVQ F%d, (R6)", r)
		f.p("ADD R7, R6")
	}
}

func (f *neonFile) toFrequencies() {
	f.p("MOVD %d(R0), R6", wDst)
	f.p("ADD R3, R6")
	f.p("MOVD %d(R0), R7", wStep)
}

func (f *neonFile) winogradInput(t int) {
	f.text(fmt.Sprintf("winogradInputNEON%s", size(t)), "transform", fmt.Sprintf("transforms %d x %d pixels.", t, t))
	f.blocks()
	f.p("MOVD %d(R0), R4", wSrc)
	f.p("MOVD %d(R0), R5", wTmp)
	for j := range t {
		for i := range t {
			f.pixel(i, i*t+j)
		}
		for i, z := range f.forward(t) {
			f.p("FMOVQ F%d, %d(R5)", z, (i*t+j)*16)
		}
	}
	f.toFrequencies()
	for i := range t {
		for j := range t {
			f.p("FMOVQ %d(R5), F%d", (i*t+j)*16, j)
		}
		f.frequencies(f.forward(t))
	}
	f.blocksEnd(wN)
}

// forward transforms the values in the first t registers and returns where the results are; see the same of amd64.
func (f *neonFile) forward(t int) []int {
	switch t {
	case 4:
		f.sub(4, 0, 2)
		f.add(5, 1, 2)
		f.sub(6, 2, 1)
		f.sub(7, 3, 1)
		return []int{4, 5, 6, 7}
	case 8:
		return f.forward8()
	}
	f.move(6, 4)
	f.move(7, 5)
	f.move(8, 4)
	f.move(9, 3)
	f.minus(6, 2, "a2plusb2")
	f.minus(7, 3, "a2plusb2")
	f.minus(8, 2, "b2")
	f.minus(9, 1, "b2")
	f.minus(4, 2, "a2")
	f.minus(3, 1, "a2")
	f.plus(6, 0, "a2b2")
	f.plus(7, 1, "a2b2")
	f.move(10, 8)
	f.plus(10, 9, "a")
	f.minus(8, 9, "a")
	f.move(11, 4)
	f.plus(11, 3, "b")
	f.minus(4, 3, "b")
	return []int{6, 10, 8, 11, 4, 7}
}

func (f *neonFile) forward8() []int {
	f.move(8, 6)
	f.move(9, 7)
	f.minus(8, 4, "sum")
	f.minus(9, 5, "sum")
	f.plus(8, 2, "sum")
	f.plus(9, 3, "sum")
	f.sub(8, 8, 0)
	f.sub(9, 9, 1)
	for _, p := range []struct {
		sum, product, point string
		even, plus          int
	}{{"sum1", "four", "half", 10, 12}, {"sum2", "", "", 13, 14}, {"sum3", "quarter", "two", 0, 7}} {
		const odd = 11
		f.move(p.even, 6)
		f.move(odd, 5)
		f.minus(p.even, 4, p.sum)
		f.minus(odd, 3, p.sum)
		if p.product == "" {
			f.add(p.even, p.even, 2)
			f.add(odd, odd, 1)
			f.add(p.plus, p.even, odd)
			f.sub(p.even, p.even, odd)
			continue
		}
		f.plus(p.even, 2, p.product)
		f.plus(odd, 1, p.product)
		f.move(p.plus, p.even)
		f.plus(p.plus, odd, p.point)
		f.minus(p.even, odd, p.point)
	}
	return []int{8, 12, 10, 14, 13, 7, 0, 9}
}

// frequency loads number i of those that lie R5 bytes apart from R4 on.
func (f *neonFile) frequency(r, i int) {
	f.p("MOVD $%d, R1", i)
	f.p("MADD R5, R4, R1, R1")
	f.p("FMOVQ (R1), F%d", r)
}

func (f *neonFile) winogradOutput(t int) {
	f.text(fmt.Sprintf("winogradOutputNEON%s", size(t)), "inverse", fmt.Sprintf("transforms %d x %d frequencies to %d x %d pixels.", t, t, t-2, t-2))
	m := t - 2
	f.blocks()
	f.p("MOVD %d(R0), R4", vSrc)
	f.p("ADD R3, R4")
	f.p("MOVD %d(R0), R6", vStep)
	f.p("MOVD $%d, R5", t)
	f.p("MUL R6, R5")
	f.p("MOVD %d(R0), R7", vTmp)
	for j := range t {
		for i := range t {
			f.frequency(i, i)
		}
		for i, z := range f.back(t) {
			f.p("FMOVQ F%d, %d(R7)", z, (i*t+j)*16)
		}
		if j+1 < t {
			f.p("ADD R6, R4")
		}
	}
	f.pixelsBegin()
	for r := range m {
		for j := range t {
			f.p("FMOVQ %d(R7), F%d", (r*t+j)*16, j)
		}
		f.pixelsOut(f.back(t), r*m)
	}
	f.blocksEnd(vN)
}

// back transforms the t frequencies in the first registers to t - 2 values and returns where they are.
func (f *neonFile) back(t int) []int {
	if t == 4 {
		f.sub(4, 1, 2)
		f.add(5, 1, 2)
		f.add(0, 0, 5)
		f.add(3, 3, 4)
		return []int{0, 3}
	}
	return f.backLine(t)
}

// backLine transforms t frequencies to four values, by sums and differences of the pairs.
func (f *neonFile) backLine(t int) []int {
	pairs := (t - 2) / 2
	powers := [][]string{{"a", "b"}, {"a2", "b2"}, {"a3", "b3"}}
	if t == 8 {
		powers = [][]string{{"half", "", "two"}, {"quarter", "", "four"}, {"eighth", "", "eight"}}
	}
	const y0, y1, y2 = 0, 8, 9
	y3 := t - 1
	term := func(d, x, power, pair int) {
		c := powers[power][pair]
		switch {
		case c == "":
			f.add(d, d, x)
		default:
			f.plus(d, x, c)
		}
	}
	for i := range pairs {
		sum, diff := 10, 1+2*i
		f.add(sum, 1+2*i, 2+2*i)
		f.sub(diff, 1+2*i, 2+2*i)
		f.add(y0, y0, sum)
		if i == 0 {
			f.scale(y1, diff, powers[0][0])
			f.scale(y2, sum, powers[1][0])
		} else {
			term(y1, diff, 0, i)
			term(y2, sum, 1, i)
		}
		term(y3, diff, 2, i)
	}
	return []int{y0, y1, y2, y3}
}

// pixelsBegin loads what all pixels of a block of channels need: init to 15, and the tables of pointers.
func (f *neonFile) pixelsBegin() {
	f.p("MOVD %d(R0), R1", vInit)
	f.p("ADD R3, R1")
	f.p("FMOVQ (R1), F15")
	f.p("MOVD %d(R0), R11", vRes)
	f.p("MOVD %d(R0), R13", vDst)
	f.p("MOVD %d(R0), R12", vOff)
	f.p("ADD R3, R12")
}

// pixelsOut finishes and stores neighbouring pixels, the first of which has a position in the tables of pointers.
func (f *neonFile) pixelsOut(y []int, first int) {
	for _, r := range y {
		f.add(r, r, 15)
	}
	f.p("CBZ R11, bare%d", first)
	for i, r := range y {
		f.p("MOVD %d(R11), R1", (first+i)*8)
		f.p("ADD R12, R1")
		f.p("FMOVQ (R1), F14")
		f.add(r, r, 14)
	}
	f.label(fmt.Sprintf("bare%d", first))
	f.activate(y, 16, fmt.Sprint(first), vP, vQ, vMode, vS, vT, vLo, vHi)
	for i, r := range y {
		f.p("MOVD %d(R13), R1", (first+i)*8)
		f.p("ADD R12, R1")
		f.p("FMOVQ F%d, (R1)", r)
	}
}

func (f *neonFile) lineInput(t int) {
	f.text(fmt.Sprintf("lineInputNEON%s", size(t)), "transform", fmt.Sprintf("transforms a line of %d pixels.", t))
	f.blocks()
	f.p("MOVD %d(R0), R4", wSrc)
	for i := range t {
		f.pixel(i, i)
	}
	z := f.forward(t)
	f.toFrequencies()
	f.frequencies(z)
	f.blocksEnd(wN)
}

func (f *neonFile) lineOutput(t int) {
	f.text(fmt.Sprintf("lineOutputNEON%s", size(t)), "inverse", fmt.Sprintf("transforms %d frequencies to a line of 4 pixels.", t))
	f.blocks()
	f.p("MOVD %d(R0), R4", vSrc)
	f.p("ADD R3, R4")
	f.p("MOVD %d(R0), R5", vStep)
	for i := range t {
		f.frequency(i, i)
	}
	y := f.backLine(t)
	f.pixelsBegin()
	f.pixelsOut(y, 0)
	f.blocksEnd(vN)
}
