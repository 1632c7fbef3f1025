package main

import "fmt"

// Offsets of the fields that only transforms of integers read.
const (
	wZero  = 48 // of transform
	vScale = 96 // of inverse
)

// inverseOf9 times 9 is 1 modulo 2^32.
const inverseOf9 = 0x38e38e39

const intWinogradHeader = `
// Transforms of Winograd's algorithm with the points 0, 1, -1, 2, -2 and infinity, exact in integers: of 6 x 6 pixels of bytes to frequencies of words, and of
// sums of 32 bits back to 4 x 4 pixels. Otherwise they are as those of floats.
//
//	DI args     DX channels done, in bytes of the source     SI source     BX destination

`

func intWinograd(dir string) {
	f := &file{}
	for i := 0; i < 32; i += 4 {
		f.p("DATA ·inverseOf9+%d(SB)/4, $%#08x", i, inverseOf9)
	}
	f.p("GLOBL ·inverseOf9(SB), RODATA|NOPTR, $32")
	f.intInput("U8", "ZX")
	f.intInput("S8", "SX")
	f.intOutput()
	f.write(dir, "intwinograd_amd64", intWinogradHeader, "")
}

// intInput takes 16 channels at a time.
func (f *file) intInput(from, extend string) {
	const t = 6
	f.text(fmt.Sprintf("winogradInput%sAVX2", from), "transform", fmt.Sprintf("transforms 6 x 6 pixels of %s.", from))
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tVPBROADCASTW %d(DI), Y15", wZero)
	f.p("\tXORQ DX, DX")
	f.p("block:")
	f.p("\tMOVQ %d(DI), SI", wSrc)
	f.p("\tMOVQ %d(DI), R8", wTmp)
	for j := range t {
		for i := range t {
			f.p("\tMOVQ %d(SI), AX", (i*t+j)*8)
			f.p("\tVPMOV%sBW (AX)(DX*1), Y%d", extend, i)
			f.p("\tVPSUBW Y15, Y%d, Y%d", i, i)
		}
		for i, z := range f.intForward() {
			f.p("\tVMOVDQU Y%d, %d(R8)", z, (i*t+j)*32)
		}
	}
	f.p("\tMOVQ %d(DI), BX", wDst)
	f.p("\tLEAQ (BX)(DX*2), BX")
	f.p("\tMOVQ %d(DI), CX", wStep)
	for i := range t {
		for j := range t {
			f.p("\tVMOVDQU %d(R8), Y%d", (i*t+j)*32, j)
		}
		for _, z := range f.intForward() {
			f.p("\tVMOVDQU Y%d, (BX)", z)
			f.p("\tADDQ CX, BX")
		}
	}
	f.p("\tADDQ $16, DX")
	f.p("\tSUBQ $16, %d(DI)", wN)
	f.p("\tJGT block")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// intForward transforms the words in the first six registers and returns where the results are.
func (f *file) intForward() []int {
	op := func(name string, a, b, dst int) { f.p("\t%s Y%d, Y%d, Y%d", name, b, a, dst) } // dst = a op b
	times4 := func(a, dst int) { f.p("\tVPSLLW $2, Y%d, Y%d", a, dst) }
	times4(2, 6)
	times4(1, 7)
	times4(0, 8) // 4 x0 - 5 x2 + x4
	op("VPSUBW", 8, 6, 8)
	op("VPSUBW", 8, 2, 8)
	op("VPADDW", 8, 4, 8)
	times4(3, 10) // 4 x1 - 5 x3 + x5
	op("VPSUBW", 7, 10, 9)
	op("VPSUBW", 9, 3, 9)
	op("VPADDW", 9, 5, 9)
	op("VPSUBW", 4, 6, 11) // x4 - 4 x2, with x3 - 4 x1 added and subtracted
	op("VPSUBW", 3, 7, 12)
	op("VPADDW", 11, 12, 13)
	op("VPSUBW", 11, 12, 11)
	op("VPSUBW", 4, 2, 4) // x4 - x2, with 2 (x3 - x1)
	op("VPSUBW", 3, 1, 3)
	op("VPADDW", 3, 3, 3)
	op("VPADDW", 4, 3, 14)
	op("VPSUBW", 4, 3, 4)
	return []int{8, 13, 11, 14, 4, 9}
}

// intBackward transforms the sums in the first six registers, of which 6 and 7 are spare ones, and returns where the four results are, and what is free.
func (f *file) intBackward() (y []int, free [4]string) {
	op := func(name string, a, b, dst int) { f.p("\t%s Y%d, Y%d, Y%d", name, b, a, dst) }
	op("VPADDD", 1, 2, 6)
	op("VPSUBD", 1, 2, 1)
	op("VPADDD", 3, 4, 7)
	op("VPSUBD", 3, 4, 3)
	six := func(x, dst int) {
		op("VPADDD", x, x, dst)
		op("VPADDD", dst, x, dst)
		op("VPADDD", dst, dst, dst)
	}
	six(0, 2) // 6 x0 - 4 (x1 + x2) + x3 + x4
	f.p("\tVPSLLD $2, Y6, Y4")
	op("VPSUBD", 2, 4, 2)
	op("VPADDD", 2, 7, 2)
	op("VPSUBD", 7, 6, 7) // x3 + x4 - (x1 + x2)
	op("VPADDD", 1, 1, 4) // x3 - x4 - 2 (x1 - x2)
	op("VPSUBD", 3, 4, 4)
	six(5, 6) // 2 (x3 - x4) - (x1 - x2) + 6 x5
	op("VPSUBD", 6, 1, 6)
	op("VPADDD", 3, 3, 3)
	op("VPADDD", 6, 3, 6)
	return []int{2, 4, 7, 6}, [4]string{"Y0", "Y1", "Y3", "Y5"}
}

// intOutput takes 8 channels at a time.
func (f *file) intOutput() {
	const t, m = 6, 4
	f.text("winogradOutputS32AVX2", "inverse", "transforms 6 x 6 frequencies of integers to 4 x 4 pixels.")
	v := vectors{letter: "Y", isa: "AVX2", bytes: 32}
	bias, lo, hi, scale, ninth := "Y8", "Y9", "Y10", "Y11", "Y12"
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tVMOVUPS ·inverseOf9(SB), %s", ninth)
	f.p("\tXORQ DX, DX")
	f.p("block:")
	f.p("\tMOVQ %d(DI), SI", vSrc)
	f.p("\tADDQ DX, SI")
	f.p("\tMOVQ %d(DI), CX", vStep)
	f.p("\tIMUL3Q $%d, CX, R8", t)
	f.p("\tLEAQ (R8)(R8*2), R9")
	f.p("\tLEAQ (R8)(R8*4), R10")
	f.p("\tMOVQ %d(DI), BX", vTmp)
	for j := range t {
		for i, at := range []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R9*1)", "(SI)(R8*4)", "(SI)(R10*1)"} {
			f.p("\tVMOVDQU %s, Y%d", at, i)
		}
		y, _ := f.intBackward()
		for i, r := range y {
			f.p("\tVMOVDQU Y%d, %d(BX)", r, (i*t+j)*32)
		}
		if j+1 < t {
			f.p("\tADDQ CX, SI")
		}
	}
	f.p("\tMOVQ %d(DI), AX", vScale)
	f.p("\tVMOVUPS (AX)(DX*1), %s", scale)
	f.pixelsBegin(bias, lo, hi)
	shift := []int{3, 2, 1, 1} // of rows and of columns
	for r := range m {
		for j := range t {
			f.p("\tVMOVDQU %d(BX), Y%d", (r*t+j)*32, j)
		}
		regs, free := f.intBackward()
		var y []string
		for j, reg := range regs {
			y = append(y, fmt.Sprintf("Y%d", reg))
			f.p("\tVPMULLD %s, %s, %s", ninth, y[j], y[j])
			f.p("\tVPSRAD $%d, %s, %s", shift[r]+shift[j], y[j], y[j])
		}
		f.p("\tCMPQ %d(DI), $%d", vMode, modeRaw)
		f.p("\tJEQ raw%d", r)
		for _, s := range y {
			f.p("\tVCVTDQ2PS %s, %s", s, s)
			f.p("\tVMULPS %s, %s, %s", scale, s, s)
		}
		f.pixelsOut(v, y, free, r*m, bias, lo, hi)
		f.p("\tJMP stored%d", r)
		f.p("raw%d:", r)
		for i, s := range y {
			f.p("\tMOVQ %d(R13), AX", (r*m+i)*8)
			f.p("\tVMOVDQU %s, (AX)(R12*1)", s)
		}
		f.p("stored%d:", r)
	}
	f.blocksEnd(v, vN)
}
