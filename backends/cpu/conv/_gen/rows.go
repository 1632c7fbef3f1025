package main

import "fmt"

// Offsets of the fields of row.
const (
	rX     = 0
	rW     = 8
	rC     = 16
	rInit  = 24
	rStep  = 32
	rWStep = 40
	rRows  = 48
	rPix   = 56
	rPX    = 64
	rLDC   = 72
	rN     = 80
	rLo    = 88
	rHi    = 92
	rP     = 96
	rQ     = 100
	rMode  = 104
	rS     = 112
	rT     = 116
)

const rowHeader = `
// A row kernel computes neighbouring pixels of a depthwise convolution whose taps all lie inside, for n channels, some pixels and a block of channels
// at a time, the filter's row in registers and each pixel of the image loaded once a row of taps. With AVX-512 a block of channels goes along
// all pixels; with AVX2, whose blocks are half a line of the cache, all channels of some pixels come first. The last pixels are a whole step again, which
// computes some of them twice.
//
//	DI args     DX channels done, in bytes     R11 pixels done     CX rows of taps to go
//	AX first pixel of a row of taps    SI pixel    BX filter    R8 bytes between pixels    R10 three times as many
//	With AVX2: R9 channels to go    R12, R13 first pixels of the image and of the results

`

// rowPixels are the pixels that are computed at a time.
var rowPixels = []int{4, 8}

func rows(dir string) {
	f := &file{}
	tables := ""
	for _, v := range vectorSets {
		entries := ""
		for _, k := range []int{3, 5} {
			for _, stride := range []int{1, 2} {
				for _, h := range rowPixels {
					f.rowKernel(v, k, stride, h)
					entries += fmt.Sprintf("\t{%d, %d, %d}: rowMul%sk%ds%dh%d,\n", k, stride, h, v.isa, k, stride, h)
				}
			}
		}
		tables += fmt.Sprintf("\n// rowMul%s are the kernels by taps of a row, stride and pixels at a time.\nvar rowMul%s = map[[3]int]func(*row){\n%s}\n", v.isa, v.isa, entries)
	}
	f.write(dir, "row_amd64", rowHeader, tables)
}

func (f *file) rowKernel(v vectors, k, stride, h int) {
	f.text(fmt.Sprintf("rowMul%sk%ds%dh%d", v.isa, k, stride, h), "row", fmt.Sprintf("computes %d pixels at a time, %d taps a row, at a stride of %d.", h, k, stride))
	w := func(i int) string { return v.reg(i) }
	x := v.reg(k)
	acc := func(i int) string { return v.reg(k + 1 + i) }
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), R8", rPX)
	f.p("\tLEAQ (R8)(R8*2), R10")
	across := v.letter == "Y" // all channels of some pixels, then the next ones
	if !across {
		f.blocks(v, rN)
	}
	f.p("\tXORQ R11, R11")
	f.p("step:")
	first := func(to string, pixel, base int, stride int) { // where the first of the pixels lies
		f.p("\tMOVQ R11, %s", to)
		f.p("\tIMULQ %d(DI), %s", pixel, to)
		if stride == 2 {
			f.p("\tSHLQ $1, %s", to)
		}
		f.p("\tADDQ %d(DI), %s", base, to)
	}
	if across {
		first("R12", rPX, rX, stride)
		first("R13", rLDC, rC, 1)
		f.p("\tXORQ DX, DX")
		f.p("\tMOVQ %d(DI), R9", rN)
		f.p("block:")
	}
	for i := range h {
		f.p("\t%s %s, %s, %s", map[string]string{"Z": "VPXORD", "Y": "VXORPS"}[v.letter], acc(i), acc(i), acc(i))
	}
	if across {
		f.p("\tLEAQ (R12)(DX*1), AX")
	} else {
		f.p("\tMOVQ R11, AX")
		f.p("\tIMULQ R8, AX")
		if stride == 2 {
			f.p("\tSHLQ $1, AX")
		}
		f.p("\tADDQ DX, AX")
		f.p("\tADDQ %d(DI), AX", rX)
	}
	f.p("\tMOVQ %d(DI), BX", rW)
	f.p("\tADDQ DX, BX")
	f.p("\tMOVQ %d(DI), CX", rRows)
	f.loads(v, rN, func(load func(from, to string), suffix string) {
		f.p("taps%s:", suffix)
		for i, addr := range []string{"(BX)", "(BX)(R8*1)", "(BX)(R8*2)", "(BX)(R10*1)", "(BX)(R8*4)"}[:k] {
			load(addr, w(i))
		}
		f.p("\tMOVQ AX, SI")
		last := stride*(h-1) + k - 1
		for i := 0; i <= last; i++ {
			load("(SI)", x)
			if i < last {
				f.p("\tADDQ R8, SI")
			}
			for t := range k {
				if o := i - t; o >= 0 && o%stride == 0 && o/stride < h {
					f.p("\tVFMADD231PS %s, %s, %s", w(t), x, acc(o/stride))
				}
			}
		}
		f.p("\tADDQ %d(DI), AX", rStep)
		f.p("\tADDQ %d(DI), BX", rWStep)
		f.p("\tDECQ CX")
		f.p("\tJNE taps%s", suffix)
	})
	f.p("\tMOVQ %d(DI), AX", rInit)
	f.p("\tVMOVUPS (AX)(DX*1), %s", w(0))
	var sums []string
	for i := range h {
		f.p("\tVADDPS %s, %s, %s", w(0), acc(i), acc(i))
		sums = append(sums, acc(i))
	}
	// The filter's row and what is behind the sums is free now.
	free := [4]string{w(0), w(1), w(2), x}
	f.activate(v.letter, sums, free, rP, rQ, rMode, rS, rT, "")
	lo, hi := free[0], free[1]
	f.p("\tVBROADCASTSS %d(DI), %s", rLo, lo)
	f.p("\tVBROADCASTSS %d(DI), %s", rHi, hi)
	f.p("\tMOVQ %d(DI), CX", rLDC)
	if across {
		f.p("\tLEAQ (R13)(DX*1), AX")
	} else {
		f.p("\tMOVQ R11, AX")
		f.p("\tIMULQ CX, AX")
		f.p("\tADDQ DX, AX")
		f.p("\tADDQ %d(DI), AX", rC)
	}
	for i := range h {
		f.p("\tVMAXPS %s, %s, %s", acc(i), lo, acc(i))
		f.p("\tVMINPS %s, %s, %s", acc(i), hi, acc(i))
		if v.letter == "Z" {
			f.p("\tVMOVUPS %s, K1, (AX)", acc(i))
		} else {
			f.p("\tVMOVUPS %s, (AX)", acc(i))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	if across {
		f.p("\tADDQ $%d, DX", v.bytes)
		f.p("\tSUBQ $%d, R9", v.bytes/4)
		f.p("\tJGT block")
	}
	f.p("\tADDQ $%d, R11", h)
	f.p("\tMOVQ %d(DI), CX", rPix)
	f.p("\tSUBQ R11, CX")
	f.p("\tJLE done")
	f.p("\tCMPQ CX, $%d", h)
	f.p("\tJGE step")
	f.p("\tADDQ CX, R11")
	f.p("\tSUBQ $%d, R11", h)
	f.p("\tJMP step")
	f.p("done:")
	if across {
		f.p("\tVZEROUPPER")
		f.p("\tRET")
		return
	}
	f.blocksEnd(v, rN)
}
