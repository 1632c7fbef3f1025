package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"path/filepath"

	e "github.com/tessera-go/tessera/backends/cpu/_encode"
)

const neonHeader = `
// The kernels of NEON, of four channels a vector. Tiles have 16 channels, which they always store; the driver gives them the memory. They
// read four steps of a pixel as one vector, of which each multiply-add takes an element.
//
//	R0 args     V0-V5 pixels    V6 V7 filter    V8-V31 sums

`

// neonFile collects the functions of arm64.
type neonFile struct {
	asm, stubs bytes.Buffer
}

func (f *neonFile) p(format string, args ...any) { fmt.Fprintf(&f.asm, "\t"+format+"\n", args...) }
func (f *neonFile) i(in e.Insn)                  { f.p("%v", in) }
func (f *neonFile) label(name string)            { fmt.Fprintf(&f.asm, "%s:\n", name) }

func (f *neonFile) text(name, args, doc string) {
	fmt.Fprintf(&f.asm, "\n// func %s(p *%s)\nTEXT ·%s(SB), NOSPLIT, $0-8\n", name, args, name)
	fmt.Fprintf(&f.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(p *%s)\n", name, doc, name, args)
	f.p("MOVD p+0(FP), R0")
}

// argument gives every lane of register r the float32 field at an offset.
func (f *neonFile) argument(r, offset int) {
	f.p("ADD $%d, R0, R1", offset)
	f.p("VLD1R (R1), [V%d.S4]", r)
}

func (f *neonFile) zero(r int) { f.p("VEOR V%d.B16, V%d.B16, V%d.B16", r, r, r) }

// activate applies the mode to sums, and the limits. Six registers from base on are free; tag tells apart the labels of a function.
func (f *neonFile) activate(sums []int, base int, tag string, p, q, mode, s, t, lo, hi int) {
	a, b, x, zero, one, mask := base, base+1, base+2, base+3, base+4, base+5
	X := e.V(x)
	line := func() { // a and b times and plus
		for _, r := range sums {
			f.p("VMOV V%d.B16, V%d.B16", b, x)
			f.i(e.FMLA(X, e.V(r), e.V(a)))
			f.p("VMOV V%d.B16, V%d.B16", x, r)
		}
	}
	f.p("MOVD %d(R0), R2", mode)
	f.p("CBZ R2, limit%s", tag)
	f.argument(a, p)
	f.argument(b, q)
	f.zero(zero)
	f.p("CMP $%d, R2", modeLinear)
	f.p("BEQ line%s", tag)
	f.p("CMP $%d, R2", modeLeaky)
	f.p("BEQ leaky%s", tag)
	f.p("FMOVS $1.0, F%d", one)
	f.p("VDUP V%d.S[0], V%d.S4", one, one)
	for _, r := range sums {
		f.p("VMOV V%d.B16, V%d.B16", b, x)
		f.i(e.FMLA(X, e.V(r), e.V(a)))
		f.i(e.FMAX(X, X, e.V(zero)))
		f.i(e.FMIN(X, X, e.V(one)))
		f.i(e.FCMEQ(e.V(mask), X, e.V(zero)))
		f.i(e.FMUL(e.V(r), e.V(r), X))
		f.p("VBIT V%d.B16, V%d.B16, V%d.B16", mask, zero, r) // 0 where the factor is, of infinity too
	}
	f.p("CMP $%d, R2", modeAffine)
	f.p("BNE limit%s", tag)
	f.argument(a, s)
	f.argument(b, t)
	f.label("line" + tag)
	line()
	f.p("B limit%s", tag)
	f.label("leaky" + tag)
	for _, r := range sums {
		f.i(e.FMUL(X, e.V(r), e.V(a)))
		f.i(e.FCMGT(e.V(mask), e.V(zero), e.V(r)))
		f.p("VBIT V%d.B16, V%d.B16, V%d.B16", mask, x, r)
	}
	f.label("limit" + tag)
	f.argument(a, lo)
	f.argument(b, hi)
	for _, r := range sums {
		f.i(e.FMAX(e.V(r), e.V(r), e.V(a)))
		f.i(e.FMIN(e.V(r), e.V(r), e.V(b)))
	}
}

// tile is the kernel of h pixels by 16 channels.
func (f *neonFile) tile(k element, h int) {
	f.text(fmt.Sprintf("%sNEONh%dx16", k.tile, h), "tile", fmt.Sprintf("computes %d pixels by 16 channels.", h))
	sum := func(i, v int) int { return 8 + 4*i + v }
	var sums []int
	for i := range h {
		for v := range 4 {
			sums = append(sums, sum(i, v))
			f.zero(sum(i, v))
		}
	}
	pixel := func(i int) string { return fmt.Sprintf("R%d", 6+i) }
	// step adds step s of four.
	step := func(s int) {
		if k == words16 {
			for v := 0; v < 4; v += 2 { // eight channels: the first and the second of their pairs
				f.p("VLD2.P 32(R3), [V6.H8, V7.H8]")
				for j := range 2 {
					for i := range h {
						f.i(e.SMLALElem(e.V(sum(i, v)), e.V(6+j), e.V(i), 2*s+j))
						f.i(e.SMLAL2Elem(e.V(sum(i, v+1)), e.V(6+j), e.V(i), 2*s+j))
					}
				}
			}
			return
		}
		for v := range 4 {
			b := 6 + v%2
			f.p("FMOVQ.P 16(R3), F%d", b)
			for i := range h {
				d, b, a := e.V(sum(i, v)), e.V(b), e.V(i)
				switch k {
				case floats:
					f.i(e.FMLAElem(d, b, a, s))
				case pairs:
					f.i(e.BFDOTElem(d, b, a, s))
				case bytes8:
					f.i(e.SUDOTElem(d, b, a, s))
				}
			}
		}
	}
	f.p("MOVD %d(R0), R3", oB)
	f.p("MOVD %d(R0), R4", oOffs)
	f.p("MOVD %d(R0), R5", oSegs)
	f.p("MOVD %d(R0), R2", oARS)
	f.label("segment")
	f.p("MOVD %d(R0), R6", oA)
	f.p("MOVD.P 8(R4), R1")
	f.p("ADD R1, R6")
	for i := 1; i < h; i++ {
		f.p("ADD R2, %s, %s", pixel(i-1), pixel(i))
	}
	f.p("MOVD %d(R0), R1", oK)
	f.p("SUBS $4, R1")
	f.p("BLT few")
	f.label("four")
	for i := range h {
		f.p("FMOVQ.P 16(%s), F%d", pixel(i), i)
	}
	for s := range 4 {
		step(s)
	}
	f.p("SUBS $4, R1")
	f.p("BGE four")
	f.label("few")
	f.p("ADDS $4, R1")
	f.p("BEQ next")
	f.label("one")
	for i := range h {
		f.p("FMOVS.P 4(%s), F%d", pixel(i), i)
	}
	step(0)
	f.p("SUBS $1, R1")
	f.p("BNE one")
	f.label("next")
	f.p("SUBS $1, R5")
	f.p("BNE segment")

	// all brings a vector of each channel to the sums.
	all := func(field int, op func(d, n, m e.V) e.Insn) {
		f.p("MOVD %d(R0), R1", field)
		f.p("VLD1 (R1), [V0.S4, V1.S4, V2.S4, V3.S4]")
		for i := range h {
			for v := range 4 {
				d := e.V(sum(i, v))
				if op == nil {
					f.p("VADD V%d.S4, V%d.S4, V%d.S4", v, sum(i, v), sum(i, v))
				} else {
					f.i(op(d, d, e.V(v)))
				}
			}
		}
	}
	if k.integer {
		all(oExtra, nil)
	}
	f.p("MOVD %d(R0), R1", oMode)
	f.p("CMP $%d, R1", modeRaw)
	f.p("BEQ store")
	if k.integer {
		for _, r := range sums {
			f.i(e.SCVTF(e.V(r), e.V(r)))
		}
	}
	if k != floats {
		all(oScale, e.FMUL)
	}
	all(oInit, e.FADD)
	f.p("MOVD %d(R0), R1", oRes)
	f.p("CBZ R1, activate")
	f.p("MOVD %d(R0), R2", oLDR)
	for i := range h {
		f.p("VLD1 (R1), [V0.S4, V1.S4, V2.S4, V3.S4]")
		for v := range 4 {
			d := e.V(sum(i, v))
			f.i(e.FADD(d, d, e.V(v)))
		}
		if i+1 < h {
			f.p("ADD R2, R1")
		}
	}
	f.label("activate")
	f.activate(sums, 0, "", oP, oQ, oMode, oS, oT, oLo, oHi)
	f.label("store")
	f.p("MOVD %d(R0), R1", oC)
	f.p("MOVD %d(R0), R2", oLDC)
	for i := range h {
		r := sum(i, 0)
		f.p("VST1 [V%d.S4, V%d.S4, V%d.S4, V%d.S4], (R1)", r, r+1, r+2, r+3)
		if i+1 < h {
			f.p("ADD R2, R1")
		}
	}
	f.p("RET")
}

// strip takes blocks of four channels; the driver runs the rest in Go.
func (f *neonFile) strip(op string, h int) {
	what := "multiplies and adds"
	if op == "Max" {
		what = "takes the maximum of"
	}
	f.text(fmt.Sprintf("strip%sNEONh%d", op, h), "strip", fmt.Sprintf("%s %d pixels.", what, h))
	var sums []int
	for i := range h {
		sums = append(sums, 8+i)
	}
	f.p("MOVD ZR, R3") // channels done, in bytes
	f.label("block")
	f.p("MOVD %d(R0), R1", sInit)
	f.p("ADD R3, R1")
	f.p("FMOVQ (R1), F7")
	for _, r := range sums {
		if op == "Max" {
			f.p("VMOV V7.B16, V%d.B16", r)
		} else {
			f.zero(r)
		}
	}
	f.p("MOVD %d(R0), R4", sOffs)
	f.p("MOVD %d(R0), R5", sTaps)
	f.p("MOVD %d(R0), R6", sX)
	f.p("ADD R3, R6")
	f.p("MOVD %d(R0), R7", sXS)
	if op == "Mul" {
		f.p("MOVD %d(R0), R8", sW)
		f.p("ADD R3, R8")
	}
	f.label("tap")
	f.p("LDP.P 16(R4), (R1, R2)")
	f.p("ADD R6, R1")
	if op == "Mul" {
		f.p("ADD R8, R2")
		f.p("FMOVQ (R2), F0")
	}
	for i, r := range sums {
		f.p("FMOVQ (R1), F1")
		if i+1 < h {
			f.p("ADD R7, R1")
		}
		if op == "Mul" {
			f.i(e.FMLA(e.V(r), 1, 0))
		} else {
			f.i(e.FMAX(e.V(r), e.V(r), 1))
		}
	}
	f.p("SUBS $1, R5")
	f.p("BNE tap")
	for _, r := range sums {
		if op == "Mul" {
			f.i(e.FADD(e.V(r), e.V(r), 7))
		}
	}
	f.activate(sums, 0, "", sP, sQ, sMode, sS, sT, sLo, sHi)
	f.p("MOVD %d(R0), R1", sC)
	f.p("ADD R3, R1")
	f.p("MOVD %d(R0), R2", sLDC)
	for i, r := range sums {
		f.p("FMOVQ F%d, (R1)", r)
		if i+1 < h {
			f.p("ADD R2, R1")
		}
	}
	f.p("ADD $16, R3")
	f.p("MOVD %d(R0), R1", sN)
	f.p("SUBS $4, R1")
	f.p("MOVD R1, %d(R0)", sN)
	f.p("BGT block")
	f.p("RET")
}

// row keeps the filter's row of k taps in registers and loads each pixel of the image once a row of taps.
func (f *neonFile) row(k, stride, h int) {
	f.text(fmt.Sprintf("rowMulNEONk%ds%dh%d", k, stride, h), "row", fmt.Sprintf("computes %d pixels at a time, %d taps a row, at a stride of %d.", h, k, stride))
	sum := func(i int) int { return 8 + i }
	var sums []int
	for i := range h {
		sums = append(sums, sum(i))
	}
	f.p("MOVD %d(R0), R8", rPX)
	f.p("MOVD ZR, R3") // channels done, in bytes
	f.label("block")
	f.p("MOVD ZR, R11") // pixels done
	f.label("step")
	for _, r := range sums {
		f.zero(r)
	}
	f.p("MUL R8, R11, R4")
	if stride == 2 {
		f.p("LSL $1, R4")
	}
	f.p("ADD R3, R4")
	f.p("MOVD %d(R0), R1", rX)
	f.p("ADD R1, R4") // first pixel of a row of taps
	f.p("MOVD %d(R0), R5", rW)
	f.p("ADD R3, R5")
	f.p("MOVD %d(R0), R6", rRows)
	f.p("MOVD %d(R0), R9", rStep)
	f.p("MOVD %d(R0), R10", rWStep)
	f.label("taps")
	f.p("MOVD R5, R1")
	for i := range k {
		f.p("FMOVQ (R1), F%d", i)
		if i+1 < k {
			f.p("ADD R8, R1")
		}
	}
	f.p("MOVD R4, R1")
	last := stride*(h-1) + k - 1
	for i := 0; i <= last; i++ {
		x := 5 + i%3
		f.p("FMOVQ (R1), F%d", x)
		if i < last {
			f.p("ADD R8, R1")
		}
		for t := range k {
			if o := i - t; o >= 0 && o%stride == 0 && o/stride < h {
				f.i(e.FMLA(e.V(sum(o/stride)), e.V(x), e.V(t)))
			}
		}
	}
	f.p("ADD R9, R4")
	f.p("ADD R10, R5")
	f.p("SUBS $1, R6")
	f.p("BNE taps")
	f.p("MOVD %d(R0), R1", rInit)
	f.p("ADD R3, R1")
	f.p("FMOVQ (R1), F0")
	for _, r := range sums {
		f.i(e.FADD(e.V(r), e.V(r), 0))
	}
	f.activate(sums, 0, "", rP, rQ, rMode, rS, rT, rLo, rHi)
	f.p("MOVD %d(R0), R2", rLDC)
	f.p("MUL R2, R11, R4")
	f.p("MOVD %d(R0), R1", rC)
	f.p("ADD R4, R1")
	f.p("ADD R3, R1")
	for i, r := range sums {
		f.p("FMOVQ F%d, (R1)", r)
		if i+1 < h {
			f.p("ADD R2, R1")
		}
	}
	f.p("ADD $%d, R11", h)
	f.p("MOVD %d(R0), R1", rPix)
	f.p("SUBS R11, R1, R2")
	f.p("BLE done")
	f.p("CMP $%d, R2", h)
	f.p("BGE step")
	f.p("SUB $%d, R1, R11", h) // the last pixels are a whole step again
	f.p("B step")
	f.label("done")
	f.p("ADD $16, R3")
	f.p("MOVD %d(R0), R1", rN)
	f.p("SUBS $4, R1")
	f.p("MOVD R1, %d(R0)", rN)
	f.p("BGT block")
	f.p("RET")
}

// widening takes 16 bytes at a time, signed or not, less a zero point, to int16 or float32.
func (f *neonFile) widening(signed, wide bool) {
	from, to := "U8", "S16"
	if signed {
		from = "S8"
	}
	if wide {
		to = "F32"
	}
	f.text(fmt.Sprintf("widen%sto%sNEON", from, to), "widening", fmt.Sprintf("takes %s to %s.", from, to))
	f.p("MOVD %d(R0), R2", nDst)
	f.p("MOVD %d(R0), R3", nSrc)
	f.p("MOVD %d(R0), R4", nN)
	f.p("MOVW %d(R0), R1", nZero)
	f.p("VDUP R1, V7.H8")
	f.label("block")
	f.p("FMOVQ.P 16(R3), F0")
	if signed {
		f.i(e.SXTLB2(1, 0))
		f.i(e.SXTLB(0, 0))
	} else {
		f.p("VUXTL2 V0.B16, V1.H8")
		f.p("VUXTL V0.B8, V0.H8")
	}
	for r := range 2 {
		f.p("VSUB V7.H8, V%d.H8, V%d.H8", r, r)
	}
	if wide {
		for r := range 4 {
			if r%2 == 0 {
				f.i(e.SXTLH(e.V(2+r), e.V(r/2)))
			} else {
				f.i(e.SXTLH2(e.V(2+r), e.V(r/2)))
			}
			f.i(e.SCVTF(e.V(2+r), e.V(2+r)))
		}
		f.p("VST1.P [V2.S4, V3.S4, V4.S4, V5.S4], 64(R2)")
	} else {
		f.p("VST1.P [V0.H8, V1.H8], 32(R2)")
	}
	f.p("SUBS $16, R4")
	f.p("BNE block")
	f.p("RET")
}

func (f *neonFile) write(dir, base, tables string) {
	const constraint = "//go:build arm64 && !noasm\n\n"
	save(filepath.Join(dir, base+".s"), []byte(notice+constraint+"#include \"textflag.h\"\n"+neonHeader+f.asm.String()))
	src, err := format.Source([]byte(notice + constraint + "package conv\n" + tables + f.stubs.String()))
	if err != nil {
		log.Fatal(err)
	}
	save(filepath.Join(dir, base+".go"), src)
}

func neon(dir string) {
	const mr, sr = 6, 8
	f, tables := &neonFile{}, ""
	for _, k := range []element{floats, pairs, bytes8, words16} {
		for h := 1; h <= mr; h++ {
			f.tile(k, h)
		}
		tables += table(k.tile+"NEONx16", "tile", "are the kernels of 16 channels, by pixels.",
			func(h int) string { return fmt.Sprintf("%sNEONh%dx16", k.tile, h) }, mr)
	}
	f.write(dir, "tile_neon_arm64", tables)
	f, tables = &neonFile{}, ""
	for _, op := range []struct{ name, doc string }{{"Mul", "multiply and add, by pixels."}, {"Max", "take the maximum, by pixels."}} {
		for h := 1; h <= sr; h++ {
			f.strip(op.name, h)
		}
		tables += table("strip"+op.name+"NEON", "strip", op.doc, func(h int) string { return fmt.Sprintf("strip%sNEONh%d", op.name, h) }, sr)
	}
	entries := ""
	for _, k := range []int{3, 5} {
		for _, stride := range []int{1, 2} {
			for _, h := range rowPixels {
				f.row(k, stride, h)
				entries += fmt.Sprintf("\t{%d, %d, %d}: rowMulNEONk%ds%dh%d,\n", k, stride, h, k, stride, h)
			}
		}
	}
	tables += "\n// rowMulNEON are the kernels by taps of a row, stride and pixels at a time.\nvar rowMulNEON = map[[3]int]func(*row){\n" + entries + "}\n"
	f.write(dir, "strip_neon_arm64", tables)
	f = &neonFile{}
	for _, t := range []int{4, 6} {
		f.winogradInput(t)
		f.winogradOutput(t)
	}
	for _, t := range []int{6, 8} {
		f.lineInput(t)
		f.lineOutput(t)
	}
	f.write(dir, "winograd_neon_arm64", "")
	f = &neonFile{}
	for _, signed := range []bool{false, true} {
		f.widening(signed, false)
		f.widening(signed, true)
	}
	f.write(dir, "widen_neon_arm64", "")
}
