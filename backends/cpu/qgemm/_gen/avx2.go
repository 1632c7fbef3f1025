package main

import (
	"fmt"
	"strings"

	encode "github.com/tessera-go/tessera/backends/cpu/_encode"
)

// avx2 writes the kernels in 256-bit registers: those that both levels share (spreading bits, widening scales), and quantization, dot and
// fused kernels with and without the VEX-encoded dot product.
func avx2(dir string) {
	f := &file{}
	var table strings.Builder
	spreadAVX2(f, &table)
	scalesAVX2(f)
	quantizeAVX2(f)
	wideAVX2(f, &table)
	tilesAVX2(f, &table)
	table.WriteString("\n// dotVNNI holds the dot kernels by block (0: 32, 1: 16), minimums and rows.\nvar dotVNNI = [2][2][maxRows + 1]func(*dotArgs){\n")
	for _, block := range []int{32, 16} {
		table.WriteString("{\n")
		for _, min := range []bool{false, true} {
			table.WriteString("{")
			for rows := 1; rows <= 6; rows++ {
				name := fmt.Sprintf("dotVNNIb%dr%d", block, rows)
				if min {
					name += "min"
				}
				dotVNNIKernel(f, name, block, min, rows)
				fmt.Fprintf(&table, "%d: %s, ", rows, name)
			}
			table.WriteString("},\n")
		}
		table.WriteString("},\n")
	}
	table.WriteString("}\n")
	for _, vnni := range []bool{true, false} {
		suffix := "AVX2"
		if vnni {
			suffix = "VNNI"
		}
		fmt.Fprintf(&table, "\n// fused%s holds the kernels that read packed bits, by the form of the panels and rows.\nvar fused%[1]s = map[fusedForm][3]func(*dotArgs){\n", suffix)
		for _, m := range forms {
			fmt.Fprintf(&table, "%s: {", m.key())
			for rows := 1; rows <= 2; rows++ {
				name := fmt.Sprintf("fused%s%sr%d", m.name, suffix, rows)
				fused256Kernel(f, name, m, rows, 1, vnni)
				fmt.Fprintf(&table, "%d: %s, ", rows, name)
			}
			table.WriteString("},\n")
		}
		table.WriteString("}\n")
	}
	table.WriteString("\n// streamsAVX2 holds the kernels that read packed bits of four panels, for one row.\nvar streamsAVX2 = map[fusedForm]func(*dotArgs){\n")
	for _, m := range forms {
		name := fmt.Sprintf("streams%sAVX2", m.name)
		fused256Kernel(f, name, m, 1, 4, false)
		fmt.Fprintf(&table, "%s: %s,\n", m.key(), name)
	}
	table.WriteString("}\n")
	f.write(dir, "kernels_avx2_amd64", "amd64 && !noasm", constants256, table.String())
}

const constants256 = `
// The sign bits of bytes.
DATA signs<>+0(SB)/8, $0x8080808080808080
DATA signs<>+8(SB)/8, $0x8080808080808080
DATA signs<>+16(SB)/8, $0x8080808080808080
DATA signs<>+24(SB)/8, $0x8080808080808080
GLOBL signs<>(SB), RODATA|NOPTR, $32

// 16-bit ones.
DATA ones<>+0(SB)/8, $0x0001000100010001
DATA ones<>+8(SB)/8, $0x0001000100010001
DATA ones<>+16(SB)/8, $0x0001000100010001
DATA ones<>+24(SB)/8, $0x0001000100010001
GLOBL ones<>(SB), RODATA|NOPTR, $32

// A bit for each column of a panel.
DATA columns<>+0(SB)/8, $0x0000000200000001
DATA columns<>+8(SB)/8, $0x0000000800000004
DATA columns<>+16(SB)/8, $0x0000002000000010
DATA columns<>+24(SB)/8, $0x0000008000000040
DATA columns<>+32(SB)/8, $0x0000020000000100
DATA columns<>+40(SB)/8, $0x0000080000000400
DATA columns<>+48(SB)/8, $0x0000200000001000
DATA columns<>+56(SB)/8, $0x0000800000004000
GLOBL columns<>(SB), RODATA|NOPTR, $64

// How quantized dwords of two registers come back into order after two packings.
DATA unpack<>+0(SB)/8, $0x0000000400000000
DATA unpack<>+8(SB)/8, $0x0000000500000001
DATA unpack<>+16(SB)/8, $0x0000000600000002
DATA unpack<>+24(SB)/8, $0x0000000700000003
GLOBL unpack<>(SB), RODATA|NOPTR, $32
`

// constantY broadcasts a 32-bit pattern.
func (f *file) constantY(value uint32, y int) {
	f.p("\tMOVL $%#x, AX", value)
	f.p("\tVMOVD AX, X%d", y)
	f.p("\tVPBROADCASTD X%d, Y%d", y, y)
}

// pickY moves bits of every byte from one position to another in place.
func (f *file) pickY(y, from, to int) {
	switch {
	case from > to:
		f.p("\tVPSRLW $%d, Y%d, Y%d", from-to, y, y)
	case from < to:
		f.p("\tVPSLLW $%d, Y%d, Y%d", to-from, y, y)
	}
}

// of returns the address at an offset from a register for the panel that is read, bits that from SI.
func (f *file) of(off int, register string) string {
	return row(off, register, f.panel, "CX", "R11", "")
}
func (f *file) bits(off int) string { return f.of(off, "SI") }

// A spread256 is the code that brings four k of eight rows of a packed unit to a register: group g of 8, half h of the 16 rows, at an
// offset from SI. low and high are registers of masks, high also of the table.
type spread256 struct {
	size      int // bytes of a packed unit
	low, high uint32
	table     bool
	group     func(f *file, off, g, h, y, t, low, high int)
}

func nibbles256(f *file, off, g, h, y, _, low, _ int) {
	at := off + 64*(g%4) + 32*h
	if g < 4 {
		f.p("\tVPAND %s, Y%d, Y%d", f.bits(at), low, y)
		return
	}
	f.p("\tVMOVDQU %s, Y%d", f.bits(at), y)
	f.p("\tVPSRLW $4, Y%d, Y%d", y, y)
	f.p("\tVPAND Y%d, Y%d, Y%d", low, y, y)
}

func pairs256(f *file, off, g, h, y, _, low, _ int) {
	f.p("\tVMOVDQU %s, Y%d", f.bits(off+64*(g/4)+32*h), y)
	f.pickY(y, g%4*2, 0)
	f.p("\tVPAND Y%d, Y%d, Y%d", low, y, y)
}

// upper ors bits of a plane into y.
func (f *file) upper(at, from, to, y, t, high int) {
	f.p("\tVMOVDQU %s, Y%d", f.bits(at), t)
	f.pickY(t, from, to)
	f.p("\tVPAND Y%d, Y%d, Y%d", high, t, t)
	f.p("\tVPOR Y%d, Y%d, Y%d", t, y, y)
}

var spreads256 = map[string]spread256{
	"U8": {size: 512, group: func(f *file, off, g, h, y, _, _, _ int) { f.p("\tVMOVDQU %s, Y%d", f.bits(off+64*g+32*h), y) }},
	"U4": {size: 256, low: 0x0f0f0f0f, group: nibbles256},
	"Table": {size: 256, low: 0x0f0f0f0f, table: true, group: func(f *file, off, g, h, y, t, low, high int) {
		nibbles256(f, off, g, h, y, t, low, high)
		f.p("\tVPSHUFB Y%d, Y%d, Y%d", y, high, y)
	}},
	"U5": {size: 320, low: 0x0f0f0f0f, high: 0x10101010, group: func(f *file, off, g, h, y, t, low, high int) {
		nibbles256(f, off, g, h, y, t, low, high)
		f.upper(off+256+32*h, g, 4, y, t, high)
	}},
	"U6": {size: 384, low: 0x0f0f0f0f, high: 0x30303030, group: func(f *file, off, g, h, y, t, low, high int) {
		nibbles256(f, off, g, h, y, t, low, high)
		if g%4 == 2 { // they lie where they belong
			f.p("\tVPAND %s, Y%d, Y%d", f.bits(off+256+64*(g/4)+32*h), high, t)
			f.p("\tVPOR Y%d, Y%d, Y%d", t, y, y)
			return
		}
		f.upper(off+256+64*(g/4)+32*h, g%4*2, 4, y, t, high)
	}},
	"U2": {size: 128, low: 0x03030303, group: pairs256},
	"U3": {size: 192, low: 0x03030303, high: 0x04040404, group: func(f *file, off, g, h, y, t, low, high int) {
		pairs256(f, off, g, h, y, t, low, high)
		f.upper(off+128+32*h, g, 2, y, t, high)
	}},
}

// setup loads the masks, or the table whose address is in DX.
func (s *spread256) setup(f *file, low, high int) {
	if s.low != 0 {
		f.constantY(s.low, low)
	}
	if s.table {
		f.p("\tVBROADCASTI128 (DX), Y%d", high)
	} else if s.high != 0 {
		f.constantY(s.high, high)
	}
}

// prologue loads the arguments of a function that spreads, masks to Y15 and Y14, what is subtracted to Y13.
func (s *spread256) prologue(f *file) {
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ n+16(FP), CX")
	f.p("\tMOVQ per+24(FP), R9")
	f.p("\tMOVQ stride+32(FP), R10")
	f.p("\tIMUL3Q $%d, R9, AX", s.size)
	f.p("\tSUBQ AX, R10")
	f.p("\tMOVBLZX less+40(FP), AX")
	f.p("\tVMOVD AX, X13")
	f.p("\tVPBROADCASTB X13, Y13")
	f.p("\tMOVQ table+48(FP), DX")
	s.setup(f, 15, 14)
}

func spreadAVX2(f *file, table *strings.Builder) {
	table.WriteString("\n// avx2Spread holds the functions that spread bits, by kind; the table kind stands behind the others.\n")
	table.WriteString("var avx2Spread = [...]func(dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte){")
	for _, name := range []string{"U8", "U4", "U5", "U6", "U2", "U3", "Table"} {
		s := spreads256[name]
		fn := "spread" + name + "AVX2"
		fmt.Fprintf(table, "%s, ", fn)
		f.text(fn, "dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte", 56, "spreads "+spreads[name].doc+" to bytes and subtracts less.")
		s.prologue(f)
		f.sets(func() {
			for off := 0; off < s.size; off += 64 {
				f.p("\tPREFETCHT0 %d(SI)", ahead(s.size)+off)
			}
			for i := 0; i < 16; i++ {
				y, t := 2*(i%4), 2*(i%4)+1
				s.group(f, 0, i/2, i%2, y, t, 15, 14)
				f.p("\tVPSUBB Y13, Y%d, Y%d", y, y)
				f.p("\tVMOVDQU Y%d, %d(DI)", y, 32*i)
			}
			f.p("\tADDQ $512, DI")
		}, s.size)
	}
	table.WriteString("}\n")
}

func scalesAVX2(f *file) {
	for _, b := range []bool{false, true} {
		name, doc := "halfsAVX2", "widens n vectors of 16 half-precision numbers to vectors that lie step bytes apart."
		if b {
			name, doc = "bhalfsAVX2", "widens n vectors of 16 bfloat16 numbers to vectors that lie step bytes apart."
		}
		f.text(name, "dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int", 48, doc)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ step+8(FP), DX")
		f.p("\tMOVQ src+16(FP), SI")
		f.p("\tMOVQ n+24(FP), CX")
		f.p("\tMOVQ per+32(FP), R9")
		f.p("\tMOVQ stride+40(FP), R10")
		f.p("\tMOVQ R9, AX")
		f.p("\tSHLQ $5, AX")
		f.p("\tSUBQ AX, R10")
		f.sets(func() {
			for h := 0; h < 2; h++ {
				f.halfY(b, fmt.Sprintf("%d(SI)", 16*h), h)
				f.p("\tVMOVUPS Y%d, %d(DI)", h, 32*h)
			}
			f.p("\tADDQ DX, DI")
		}, 32)
	}
	f.text("supersAVX2", "dst unsafe.Pointer, step int, d, s unsafe.Pointer, n, subs, stride int, neg uint32", 60,
		"multiplies subs vectors of int8 by each of n vectors of half-precision scales.")
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ step+8(FP), DX")
	f.p("\tMOVQ d+16(FP), SI")
	f.p("\tMOVQ s+24(FP), R8")
	f.p("\tMOVQ n+32(FP), CX")
	f.p("\tMOVQ subs+40(FP), R9")
	f.p("\tMOVQ stride+48(FP), R11")
	f.p("\tMOVL neg+56(FP), AX")
	f.p("\tVMOVD AX, X4")
	f.p("\tVPBROADCASTD X4, Y4")
	f.p("loop:")
	for h := 0; h < 2; h++ {
		f.p("\tVCVTPH2PS %d(SI), Y%d", 16*h, h)
		f.p("\tVPXOR Y4, Y%d, Y%d", h, h)
	}
	f.p("\tMOVQ R9, R10")
	f.p("\tMOVQ R8, R12")
	f.p("sub:")
	for h := 0; h < 2; h++ {
		f.p("\tVPMOVSXBD %d(R12), Y%d", 8*h, 2+h)
		f.p("\tVCVTDQ2PS Y%d, Y%d", 2+h, 2+h)
		f.p("\tVMULPS Y%d, Y%d, Y%d", h, 2+h, 2+h)
		f.p("\tVMOVUPS Y%d, %d(DI)", 2+h, 32*h)
	}
	f.p("\tADDQ $16, R12")
	f.p("\tADDQ DX, DI")
	f.p("\tDECQ R10")
	f.p("\tJNE sub")
	f.p("\tADDQ R11, SI")
	f.p("\tADDQ R11, R8")
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// halfY widens eight half-precision or bfloat16 numbers.
func (f *file) halfY(bf16 bool, at string, y int) {
	if bf16 {
		f.p("\tVPMOVZXWD %s, Y%d", at, y)
		f.p("\tVPSLLD $16, Y%d, Y%d", y, y)
		return
	}
	f.p("\tVCVTPH2PS %s, Y%d", at, y)
}

// quantizeAVX2 writes the quantization of activations for blocks of 32 and 16, with starts of the integer sums for one of 32 bits, or for a
// pair of 16 bits.
func quantizeAVX2(f *file) {
	for _, block := range []int{32, 16} {
		for _, pairs := range []bool{false, true} {
			quantize256(f, block, pairs)
		}
	}
}

func quantize256(f *file, block int, pairs bool) {
	vectors := block / 8
	name, doc := fmt.Sprintf("quantize%dAVX2", block), fmt.Sprintf("brings blocks of %d float32 to int8 and writes their meta.", block)
	if pairs {
		name = fmt.Sprintf("quantize%dPairs", block)
		doc = fmt.Sprintf("brings blocks of %d float32 to int8 and writes their meta, of which init is two sums of 16 bits: of k mod 4 below 2, and of the rest.", block)
	}
	f.text(name, "q, meta, x unsafe.Pointer, blocks int, zero int32, slots int", 48, doc)
	f.p("\tMOVQ q+0(FP), DI")
	f.p("\tMOVQ meta+8(FP), BX")
	f.p("\tMOVQ x+16(FP), SI")
	f.p("\tMOVQ blocks+24(FP), CX")
	f.p("\tMOVL zero+32(FP), R8")
	f.p("\tNEGL R8")
	f.p("\tMOVQ slots+40(FP), R9")
	f.p("\tSHLQ $2, R9 // bytes between the words of a row")
	f.p("\tLEAQ (R9)(R9*2), R10")
	f.constantY(0x7fffffff, 15)
	f.constantY(0x01010101, 14)
	f.constantY(0x00010001, 13)
	f.p("\tMOVL $0x42fe0000, AX // 127")
	f.p("\tVMOVD AX, X12")
	if pairs {
		f.p("\tVMOVD R8, X11")
		f.p("\tVPBROADCASTW X11, X11")
	}
	f.p("loop:")
	for i := 0; i < vectors; i++ {
		f.p("\tVMOVUPS %d(SI), Y%d", 32*i, i)
		if i == 0 {
			f.p("\tVPAND Y15, Y0, Y4")
			continue
		}
		f.p("\tVPAND Y15, Y%d, Y5", i)
		f.p("\tVPMAXUD Y5, Y4, Y4")
	}
	// the largest magnitude, as bits: infinity and NaN are larger than every finite number
	f.p("\tVEXTRACTI128 $1, Y4, X5")
	f.p("\tVPMAXUD X5, X4, X4")
	f.p("\tVPSHUFD $0x4e, X4, X5")
	f.p("\tVPMAXUD X5, X4, X4")
	f.p("\tVPSHUFD $0xb1, X4, X5")
	f.p("\tVPMAXUD X5, X4, X4")
	f.p("\tVMOVD X4, AX")
	f.p("\tCMPL AX, $0x7f800000")
	f.p("\tJCC bad")
	f.p("\tVDIVSS X12, X4, X6 // scale")
	f.p("\tVDIVSS X4, X12, X7 // its inverse")
	f.p("\tVMOVD X7, AX")
	f.p("\tCMPL AX, $0x7f800000")
	f.p("\tJCC tiny")
	f.p("scaled:")
	f.p("\tVBROADCASTSS X7, Y7")
	for i := 0; i < vectors; i++ {
		f.p("\tVMULPS Y7, Y%d, Y%d", i, i)
		f.p("\tVCVTPS2DQ Y%d, Y%d", i, i)
	}
	f.p("\tVPACKSSDW Y1, Y0, Y0")
	if block == 32 {
		f.p("\tVPACKSSDW Y3, Y2, Y2")
		f.p("\tVPACKSSWB Y2, Y0, Y0")
		f.p("\tVMOVDQU unpack<>(SB), Y1")
		f.p("\tVPERMD Y0, Y1, Y0")
		f.p("\tVMOVDQU Y0, (DI)")
	} else {
		f.p("\tVPACKSSWB Y0, Y0, Y0")
		f.p("\tVMOVDQU unpack<>(SB), Y1")
		f.p("\tVPERMD Y0, Y1, Y0 // dwords 0 4 1 5 are the bytes in order")
		f.p("\tVMOVDQU X0, (DI)")
		f.p("\tVPMOVZXDQ X0, Y0 // each dword once, for the sum")
	}
	f.p("\tVPMADDUBSW Y0, Y14, Y8")
	add := "VPADDW"
	if !pairs {
		add = "VPADDD"
		f.p("\tVPMADDWD Y13, Y8, Y8")
	}
	f.p("\tVEXTRACTI128 $1, Y8, X9")
	f.p("\t%s X9, X8, X8", add)
	f.p("\tVPSHUFD $0x4e, X8, X9")
	f.p("\t%s X9, X8, X8", add)
	f.p("\tVPSHUFD $0xb1, X8, X9")
	f.p("\t%s X9, X8, X8", add)
	if pairs {
		f.p("\tVPMULLW X11, X8, X9")
		f.p("\tVMOVD X9, AX")
		f.p("\tVPMADDWD X13, X8, X8")
	} else {
		f.p("\tVMOVD X8, AX")
		f.p("\tIMULL R8, AX")
	}
	f.p("\tVCVTDQ2PS X8, X8")
	f.p("\tVMULSS X6, X8, X8")
	f.p("\tVMOVSS X6, (BX)")
	f.p("\tMOVL AX, (BX)(R9*1)")
	f.p("\tVMOVSS X8, (BX)(R9*2)")
	f.p("next:")
	f.p("\tADDQ $%d, SI", 4*block)
	f.p("\tADDQ $%d, DI", block)
	f.p("\tADDQ R10, BX")
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	f.p("tiny: // all zeros, or so small that products vanish")
	f.p("\tVPXOR X6, X6, X6")
	f.p("\tVPXOR X7, X7, X7")
	f.p("\tJMP scaled")
	f.p("bad: // NaN or infinity: every product with the block is NaN")
	f.p("\tVPXOR X0, X0, X0")
	f.p("\tVMOVDQU X0, (DI)")
	if block == 32 {
		f.p("\tVMOVDQU X0, 16(DI)")
	}
	f.p("\tMOVL $0x7fc00000, AX")
	f.p("\tMOVL AX, (BX)")
	f.p("\tMOVL $0, (BX)(R9*1)")
	f.p("\tMOVL AX, (BX)(R9*2)")
	f.p("\tJMP next")
}

// dots is how fused kernels multiply.
//
//	vnni    VPDPBUSD
//	signed  VPMADDUBSW for bytes of which 128 is the zero: the magnitude of the weight meets the activation with its sign
//	else    VPMADDUBSW with sums in pairs of 16 bits, see tiles256
type dots struct {
	vnni, signed bool
	ones         string // operand of 16-bit ones
}

// dot adds the products of w (and its magnitude) with the broadcast activations b to sum; t is scratch.
func (d *dots) dot(f *file, w, magnitude, b, sum, t int) {
	if d.vnni {
		f.p("\t%s", encode.VPDPBUSD(fmt.Sprintf("Y%d", b), fmt.Sprintf("Y%d", w), fmt.Sprintf("Y%d", sum)))
		return
	}
	f.p("\tVPSIGNB Y%d, Y%d, Y%d", w, b, t)
	f.p("\tVPMADDUBSW Y%d, Y%d, Y%d", t, magnitude, t)
	f.p("\tVPMADDWD %s, Y%d, Y%d", d.ones, t, t)
	f.p("\tVPADDD Y%d, Y%d, Y%d", t, sum, sum)
}

// split turns bytes with zero 128 into numbers with signs and magnitudes.

// start sets the two sums of a row: the kinds that know the sign of weights need no correction for their zero.
func (d *dots) start(f *file, init string, s0, s1 int) {
	if d.signed {
		f.p("\tVPXOR Y%d, Y%d, Y%d", s0, s0, s0)
		f.p("\tVPXOR Y%d, Y%d, Y%d", s1, s1, s1)
		return
	}
	f.p("\tVPBROADCASTD %s, Y%d", init, s0)
	f.p("\tVMOVDQA Y%d, Y%d", s0, s1)
}

// dotVNNIKernel writes a dot kernel for rows of A against one panel. Its float32 sums are in memory at buf, 64 bytes a row.
//
//	AX a, rows R8 R9 R10: 1 3 5 strides   BX meta   SI w   R14 scales   R13 sums   R15 blocks to go
func dotVNNIKernel(f *file, name string, block int, min bool, rows int) {
	f.text(name, "p *dotArgs", 8, fmt.Sprintf("computes %d rows against a panel over blocks of %d, with float32 sums at buf.", rows, block))
	d := dots{vnni: true}
	sum := func(r, v int) int { return 2*r + v }
	const w, b = 12, 14
	a := func(off, r int) string { return row(off, "AX", r, "R8", "R9", "R10") }
	m := func(word, r int) string { return fmt.Sprintf("%d(BX)", 4*(word*manySlots+r)) }
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ %d(DI), AX", argA)
	f.p("\tMOVQ %d(DI), BX", argMeta)
	if rows > 1 {
		f.p("\tMOVQ %d(DI), R8", argAStride)
	}
	if rows > 3 {
		f.p("\tLEAQ (R8)(R8*2), R9")
	}
	if rows > 5 {
		f.p("\tLEAQ (R8)(R8*4), R10")
	}
	f.p("\tMOVQ %d(DI), SI", argW)
	f.p("\tMOVQ %d(DI), R14", argScale)
	f.p("\tMOVQ %d(DI), R13", argBuf)
	f.p("\tMOVQ %d(DI), R15", argBlocks)
	f.p("block:")
	for r := 0; r < rows; r++ {
		d.start(f, m(1, r), sum(r, 0), sum(r, 1))
	}
	for g := 0; g < block/4; g++ {
		for v := 0; v < 2; v++ {
			f.p("\tVMOVDQU %d(SI), Y%d", 64*g+32*v, w+v)
		}
		for r := 0; r < rows; r++ {
			f.p("\tVPBROADCASTD %s, Y%d", a(4*g, r), b)
			for v := 0; v < 2; v++ {
				d.dot(f, w+v, 0, b, sum(r, v), 0)
			}
		}
	}
	for v := 0; v < 2; v++ {
		f.p("\tVMOVUPS %d(R14), Y%d", 32*v, w+v)
	}
	for r := 0; r < rows; r++ {
		f.p("\tVBROADCASTSS %s, Y%d", m(0, r), b)
		for v := 0; v < 2; v++ {
			s := sum(r, v)
			f.p("\tVCVTDQ2PS Y%d, Y%d", s, s)
			f.p("\tVMULPS Y%d, Y%d, Y%d", w+v, s, s)
			f.p("\tVFMADD213PS %d(R13), Y%d, Y%d", 64*r+32*v, b, s)
		}
		if min {
			f.p("\tVBROADCASTSS %s, Y%d", m(2, r), b)
			for v := 0; v < 2; v++ {
				f.p("\tVFMADD231PS %d(R14), Y%d, Y%d", 64+32*v, b, sum(r, v))
			}
		}
		for v := 0; v < 2; v++ {
			f.p("\tVMOVUPS Y%d, %d(R13)", sum(r, v), 64*r+32*v)
		}
	}
	step := 64
	if min {
		step = 128
	}
	f.p("\tADDQ $%d, AX", block)
	f.p("\tADDQ $%d, BX", metaStep(manySlots))
	f.p("\tADDQ $%d, SI", block*16)
	f.p("\tADDQ $%d, R14", step)
	f.p("\tDECQ R15")
	f.p("\tJNE block")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// fused256 is a kernel for one or two rows against a packed panel, or for one row against four panels CX bytes apart: a Zen 3 fetches more
// from memory where it sees several streams.
//
//	SI packed panel   AX a, R8 stride   BX meta   R15 blocks of 32 to go   R11 three times CX
//	supers: R14 the super-block, or its scales in float32 on the stack, R13 scales of sub-blocks, R12 units to go
//	Y0-Y3 sums   Y4-Y7 float32 sums   Y8 weights   Y9 magnitudes, or weights   Y10 activations   Y11 Y12 scratch   Y13 Y14 masks, table
//	four panels: Y0 Y1 sums   Y2-Y7 Y12 Y15 float32 sums
type fused256 struct {
	*file
	form
	s            spread256
	d            dots
	rows, panels int
}

func (k *fused256) m(block, word, r int) string {
	return fmt.Sprintf("%d(BX)", block*metaStep(fewSlots)+4*(word*fewSlots+r))
}

// acc returns the register of float32 sums of half v of the columns of a panel.
func (k *fused256) acc(panel, r, v int) int {
	if k.panels == 1 {
		return 4 + 2*r + v
	}
	return [...]int{2, 3, 4, 5, 6, 7, 12, 15}[2*panel+v]
}

// unit multiplies 32 k whose bits lie at an offset from SI, panel by panel. scale writes half v of the scales of block b to a register, low
// those of the minimums; both may use Y9 and Y10.
func (k *fused256) unit(off, aOff, first int, scale, low func(b, v, y int)) {
	for k.panel = range k.panels {
		for b := 0; b < 32/k.block; b++ {
			if k.pairs() {
				k.inPairs(off, aOff, first, b)
			} else {
				k.each(off, aOff, first, b)
			}
			for v := 0; v < 2; v++ {
				k.finish(first, b, v, scale, low)
			}
		}
	}
	k.panel = 0
}

// finish scales the sums of half v of block b.
func (k *fused256) finish(first, b, v int, scale, low func(b, v, y int)) {
	const minimums = 8
	scale(b, v, 11)
	if k.min {
		low(b, v, minimums)
	}
	for r := 0; r < k.rows; r++ {
		s, acc := 2*r+v, k.acc(k.panel, r, v)
		if k.pairs() {
			k.p("\tVPMADDWD ones<>(SB), Y%d, Y%[1]d", s)
		}
		if k.pairs() && k.what() == both {
			k.p("\tVPBROADCASTD %s, Y10", k.m(first+b, 1, r))
			k.p("\tVPMADDWD ones<>(SB), Y10, Y10")
			k.p("\tVPSUBD Y10, Y%d, Y%[1]d", s)
		}
		k.p("\tVCVTDQ2PS Y%d, Y%d", s, s)
		k.p("\tVMULPS Y11, Y%d, Y%d", s, s)
		k.p("\tVBROADCASTSS %s, Y10", k.m(first+b, 0, r))
		k.p("\tVFMADD231PS Y10, Y%d, Y%d", s, acc)
		if k.min {
			op := "VFMADD231PS"
			if k.super {
				op = "VFNMADD231PS" // its minimums are subtracted
			}
			k.p("\tVBROADCASTSS %s, Y10", k.m(first+b, 2, r))
			k.p("\t%s Y10, Y%d, Y%d", op, minimums, acc)
		}
	}
}

// pairs reports whether sums are pairs of 16 bits.
func (k *fused256) pairs() bool { return !k.d.vnni && !k.d.signed }

// what returns the correction of sums in pairs.
func (k *fused256) what() correction {
	switch {
	case k.min && k.spread == "U5":
		return both
	case k.min:
		return minimum
	}
	return start
}

// each multiplies block b with sums of 32 bits.
func (k *fused256) each(off, aOff, first, b int) {
	for r := 0; r < k.rows; r++ {
		k.d.start(k.file, k.m(first+b, 1, r), 2*r, 2*r+1)
	}
	activations := [2]int{10, 12}
	for g := 0; g < k.block/4; g++ {
		for r := range k.rows {
			k.p("\tVPBROADCASTD %s, Y%d", row(aOff+b*k.block+4*g, "AX", r, "R8", "", ""), activations[r])
		}
		for v := 0; v < 2; v++ {
			at := b*k.block/4 + g
			if k.d.signed && k.spread == "U8" {
				k.p("\tVPXOR %s, Y13, Y8", k.bits(off+64*at+32*v))
			} else {
				k.s.group(k.file, off, at, v, 8, 11, 13, 14)
			}
			if k.d.signed {
				k.p("\tVPABSB Y8, Y9")
			}
			for r := 0; r < k.rows; r++ {
				k.d.dot(k.file, 8, 9, activations[r], 2*r+v, 11)
			}
		}
	}
}

// inPairs multiplies block b with sums in pairs.
func (k *fused256) inPairs(off, aOff, first, b int) {
	for g := range k.block / 4 {
		for v := range 2 {
			k.s.group(k.file, off, b*k.block/4+g, v, 8+v, 11, 13, 14)
		}
		for r := range k.rows {
			s := 2 * r
			k.p("\tVPBROADCASTD %s, Y10", row(aOff+b*k.block+4*g, "AX", r, "R8", "", ""))
			switch {
			case g == 0 && k.what() != minimum:
				k.p("\tVPBROADCASTD %s, Y%d", k.m(first+b, 1, r), s)
				k.p("\tVPMADDUBSW Y10, Y8, Y11")
				k.p("\tVPMADDUBSW Y10, Y9, Y10")
				k.p("\tVPADDW Y10, Y%d, Y%d", s, s+1)
				k.p("\tVPADDW Y11, Y%d, Y%d", s, s)
			case g == 0:
				k.p("\tVPMADDUBSW Y10, Y8, Y%d", s)
				k.p("\tVPMADDUBSW Y10, Y9, Y%d", s+1)
			default:
				k.p("\tVPMADDUBSW Y10, Y8, Y11")
				k.p("\tVPMADDUBSW Y10, Y9, Y10")
				k.p("\tVPADDW Y11, Y%d, Y%[1]d", s)
				k.p("\tVPADDW Y10, Y%d, Y%[1]d", s+1)
			}
		}
	}
}

// prefetch fetches as many bytes of what lies ahead. Of several streams the processor knows what comes, and does better without, except
// where a super-block's scales lie apart from its bits.
func (k *fused256) prefetch(bytes int) {
	distance := ahead(k.s.size)
	if k.panels > 1 {
		if !k.super {
			return
		}
		distance = 1024
	}
	for k.panel = range k.panels {
		for off := 0; off < bytes; off += 64 {
			k.p("\tPREFETCHT0 %s", k.bits(distance+off))
		}
	}
	k.panel = 0
}

// sums moves float32 sums from C, or to it.
func (k *fused256) sums(label string, load bool) {
	move := func(at string, mask, y int) {
		switch {
		case load && mask != 0:
			k.p("\tVMASKMOVPS %s, Y%d, Y%d", at, mask, y)
		case load:
			k.p("\tVMOVUPS %s, Y%d", at, y)
		case mask != 0:
			k.p("\tVMASKMOVPS Y%d, Y%d, %s", y, mask, at)
		default:
			k.p("\tVMOVUPS Y%d, %s", y, at)
		}
	}
	if k.panels > 1 { // whole ones
		k.p("\tMOVQ %d(DI), DX", argC)
		for p := range k.panels {
			for v := range 2 {
				move(fmt.Sprintf("%d(DX)", 32*v), 0, k.acc(p, 0, v))
			}
			if p+1 < k.panels {
				k.p("\tADDQ %d(DI), DX", argCPanel)
			}
		}
		return
	}
	k.rowsOfC256(label, k.rows, func(r int, masked bool) {
		for v := range 2 {
			mask := 0
			if masked {
				mask = 12 + v
			}
			move(fmt.Sprintf("%d(DX)", 32*v), mask, k.acc(0, r, v))
		}
	})
}

func fused256Kernel(f *file, name string, m form, rows, panels int, vnni bool) {
	k := &fused256{f, m, spreads256[m.spread], dots{vnni, !vnni && (m.spread == "U8" || m.spread == "Table"), "ones<>(SB)"}, rows, panels}
	what := "a panel"
	if panels > 1 {
		what = fmt.Sprintf("%d panels", panels)
	}
	// Blocks of 16 need a scale so often that those of super-blocks are widened once, to the stack; those of 32, which have minimums too, lose by it.
	widened := 0
	if m.super && !m.min {
		widened = 64 * panels
	}
	f.textFrame(name, "p *dotArgs", 8, widened, fmt.Sprintf("computes %d rows against %s of %s.", rows, what, m.name))
	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tCMPQ %d(DI), $0", argAcc)
	f.p("\tJEQ fresh")
	k.sums("load", true)
	f.p("\tJMP start")
	f.p("fresh:")
	for p := range panels {
		for r := range 2 * rows {
			f.p("\tVPXOR Y%d, Y%[1]d, Y%[1]d", k.acc(p, r/2, r%2))
		}
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), DX", argTable)
	k.s.setup(f, 13, 14)
	if k.d.signed {
		// What has 128 as its zero gets signs.
		if m.spread == "U8" {
			f.p("\tVMOVDQU signs<>(SB), Y13")
			f.p("\tVMOVDQU ones<>(SB), Y14")
			k.d.ones = "Y14"
		} else {
			f.p("\tVPXOR signs<>(SB), Y14, Y14")
		}
	}
	if panels > 1 {
		f.p("\tMOVQ %d(DI), CX", argWPanel)
		f.p("\tLEAQ (CX)(CX*2), R11")
	}
	f.p("\tMOVQ %d(DI), AX", argA)
	f.p("\tMOVQ %d(DI), BX", argMeta)
	if rows > 1 {
		f.p("\tMOVQ %d(DI), R8", argAStride)
	}
	f.p("\tMOVQ %d(DI), SI", argW)
	f.p("\tMOVQ %d(DI), R15", argBlocks)
	step := metaStep(fewSlots)
	half := func(off int) func(b, v, y int) {
		return func(_, v, y int) { f.halfY(m.bf16, f.bits(off+16*v), y) }
	}
	switch {
	case m.super:
		subs := 256 / m.block
		sc := 32
		if m.min {
			sc = 64
		}
		mn, header := sc+16*subs, sc+16*subs
		if m.min {
			header += 16 * subs
		}
		header = (header + 63) / 64 * 64
		sub := func(d, at int) func(b, v, y int) {
			return func(b, v, y int) {
				if widened == 0 {
					f.p("\tVCVTPH2PS %s, Y9", f.of(d+16*v, "R14"))
				}
				f.p("\tVPMOVSXBD %s, Y%d", f.of(at+16*b+8*v, "R13"), y)
				f.p("\tVCVTDQ2PS Y%d, Y%d", y, y)
				if widened > 0 {
					f.p("\tVMULPS %d(SP), Y%d, Y%d", 64*k.panel+32*v, y, y)
				} else {
					f.p("\tVMULPS Y9, Y%d, Y%d", y, y)
				}
			}
		}
		f.p("super:")
		k.prefetch(header)
		if widened > 0 {
			for k.panel = range panels {
				for v := range 2 {
					f.p("\tVCVTPH2PS %s, Y9", f.bits(16*v))
					f.p("\tVMOVUPS Y9, %d(SP)", 64*k.panel+32*v)
				}
			}
			k.panel = 0
		} else {
			f.p("\tMOVQ SI, R14")
		}
		f.p("\tLEAQ %d(SI), R13", sc)
		f.p("\tADDQ $%d, SI", header)
		f.p("\tMOVQ $8, R12")
		f.p("unit:")
		k.prefetch(k.s.size)
		k.unit(0, 0, 0, sub(0, 0), sub(32, mn-sc))
		f.p("\tADDQ $32, AX")
		f.p("\tADDQ $%d, BX", step*32/m.block)
		f.p("\tADDQ $%d, SI", k.s.size)
		f.p("\tADDQ $%d, R13", 16*32/m.block)
		f.p("\tDECQ R12")
		f.p("\tJNE unit")
		f.p("\tSUBQ $8, R15")
		f.p("\tJNE super")
	case m.min:
		f.p("block:")
		k.prefetch(64 + k.s.size)
		k.unit(64, 0, 0, half(0), half(32))
		f.p("\tADDQ $32, AX")
		f.p("\tADDQ $%d, BX", step)
		f.p("\tADDQ $%d, SI", 64+k.s.size)
		f.p("\tDECQ R15")
		f.p("\tJNE block")
	default: // two blocks a group, of which the last may have one
		f.p("\tSUBQ $2, R15")
		f.p("\tJLT single")
		f.p("pair:")
		k.prefetch(64 + 2*k.s.size)
		for b := 0; b < 2; b++ {
			k.unit(64+b*k.s.size, 32*b, b, half(32*b), nil)
		}
		f.p("\tADDQ $64, AX")
		f.p("\tADDQ $%d, BX", 2*step)
		f.p("\tADDQ $%d, SI", 64+2*k.s.size)
		f.p("\tSUBQ $2, R15")
		f.p("\tJGE pair")
		f.p("single:")
		f.p("\tADDQ $2, R15")
		f.p("\tJEQ done")
		k.unit(64, 0, 0, half(0), nil)
		f.p("done:")
	}
	k.sums("store", false)
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}
