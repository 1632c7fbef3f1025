package main

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/cpu/_encode"
)

func avx512(dir string) {
	f := &file{}
	for h := 1; h <= 14; h++ {
		f.tile512(floats, h, 2)
		f.tile512(floats, h, 1)
	}
	f.widerTiles512(floats)
	f.write(dir, "tile_avx512_amd64", tileHeader, tables512(floats))
	for _, k := range []element{pairs, bytes8, words16, words16VNNI} {
		f := &file{}
		for h := 1; h <= 14; h++ {
			f.tile512(k, h, 2)
			f.tile512(k, h, 1)
		}
		if k.wider {
			f.widerTiles512(k)
		}
		f.write(dir, k.file+"_avx512_amd64", tileHeader+dotHeader, tables512(k))
	}
	s := &file{}
	for _, op := range []string{"Mul", "Max"} {
		for h := 1; h <= stripMax512; h++ {
			s.strip512(op, h)
		}
	}
	s.write(dir, "strip_avx512_amd64", stripHeader,
		table("stripMulAVX512", "strip", "multiply and add, by pixels.", func(h int) string { return fmt.Sprintf("stripMulAVX512h%d", h) }, stripMax512)+
			table("stripMaxAVX512", "strip", "take the maximum, by pixels.", func(h int) string { return fmt.Sprintf("stripMaxAVX512h%d", h) }, stripMax512))
}

// element says what a step, which is 4 bytes of each pixel, holds: one number or several whose products are added.
type element struct {
	tile    string // name of the kernels
	file    string
	integer bool
	wider   bool // there are tiles of more vectors, too
}

var (
	floats      = element{"tile", "tile", false, true}                // a float32
	pairs       = element{"tileBF16", "tile_bf16", false, false}      // two bfloat16
	bytes8      = element{"tileU8", "tile_u8", true, true}            // four unsigned bytes, by signed ones
	words16     = element{"tileS16", "tile_s16", true, false}         // two int16
	words16VNNI = element{"tileS16VNNI", "tile_s16vnni", true, false} // the same in one instruction
	words8      = element{"tileS16S8", "tile_s16s8", true, false}     // two int16, by signed bytes
)

func tables512(k element) string {
	s := ""
	one := func(channels, n int) {
		s += table(fmt.Sprintf("%sAVX512x%d", k.tile, channels), "tile", fmt.Sprintf("are the kernels of %d channels, by pixels.", channels),
			func(h int) string { return fmt.Sprintf("%sAVX512h%dx%d", k.tile, h, channels) }, n)
	}
	one(32, 14)
	one(16, 14)
	if k.wider {
		for _, w := range widerTiles512 {
			one(16*w.nv, w.h)
		}
	}
	return s
}

// mulAdd adds the products of a step; t is a register of its own where the sum takes a second instruction.
func (f *file) mulAdd(k element, b, a, acc, t string) {
	switch k {
	case floats:
		f.p("\tVFMADD231PS %s, %s, %s", b, a, acc)
	case pairs:
		f.p("\t%s", encode.VDPBF16PS(b, a, acc))
	case bytes8:
		if acc[0] == 'Z' {
			f.p("\tVPDPBUSD %s, %s, %s", b, a, acc)
		} else {
			f.p("\t%s", encode.VPDPBUSD(b, a, acc))
		}
	case words16VNNI:
		f.p("\tVPDPWSSD %s, %s, %s", b, a, acc)
	case words16:
		f.p("\tVPMADDWD %s, %s, %s", b, a, t)
		f.p("\tVPADDD %s, %s, %s", t, acc, acc)
	}
}

// widerTiles512 are tiles of more vectors of channels, and fewer pixels: less is loaded for a multiply-add.
var widerTiles512 = []struct{ nv, h int }{{3, 9}, {4, 6}}

func (f *file) widerTiles512(k element) {
	for _, w := range widerTiles512 {
		for h := 1; h <= w.h; h++ {
			f.tile512(k, h, w.nv)
		}
	}
}

const stripMax512 = 8

func (f *file) tile512(k element, h, nv int) {
	name := fmt.Sprintf("%sAVX512h%dx%d", k.tile, h, nv*16)
	f.text(name, "tile", fmt.Sprintf("computes %d pixels by %d channels.", h, nv*16))
	acc := func(i, v int) string { return fmt.Sprintf("Z%d", i*nv+v) }
	breg := func(v int) string { return fmt.Sprintf("Z%d", h*nv+v) }
	var areg []string
	for r := h*nv + nv; r < 32 && len(areg) < 4; r++ {
		areg = append(areg, fmt.Sprintf("Z%d", r))
	}
	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h, oARS)
	f.p("\tMOVQ $-1, R15")
	f.p("\tMOVQ %d(DI), CX", oCols)
	f.p("\tBZHIQ CX, R15, R15")
	for v := 0; v < nv; v++ {
		f.p("\tKMOVW R15, K%d", v+1)
		if v+1 < nv {
			f.p("\tSHRQ $16, R15")
		}
	}
	f.p("again:")
	if k.integer { // sums start from what their channel adds
		f.p("\tMOVQ %d(DI), AX", oExtra)
		for v := range nv {
			f.p("\tVMOVDQU32 %d(AX), %s", v*64, acc(0, v))
			for i := 1; i < h; i++ {
				f.p("\tVMOVDQA32 %s, %s", acc(0, v), acc(i, v))
			}
		}
	}
	for i := 0; i < h && !k.integer; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVPXORD %s, %s, %s", acc(i, v), acc(i, v), acc(i, v))
		}
	}
	f.p("\tMOVQ %d(DI), BX", oB)
	if h >= 4 {
		f.p("\tMOVQ %d(DI), R15", oAhead)
	}
	f.p("\tMOVQ %d(DI), SI", oOffs)
	f.p("\tMOVQ %d(DI), DX", oSegs)
	f.p("segment:")
	f.p("\tMOVQ %d(DI), AX", oA)
	f.p("\tADDQ (SI), AX")
	f.p("\tADDQ $8, SI")
	f.p("\tMOVQ %d(DI), CX", oK)
	step := func(at int) {
		for v := 0; v < nv; v++ {
			f.p("\tVMOVUPS %d(BX), %s", at*64*nv+v*64, breg(v))
		}
		for v := 0; v < nv && h >= 4; v++ {
			f.p("\tPREFETCHT0 %d(BX)", 64*nv*12+at*64*nv+v*64)
		}
		free, t := areg, ""
		if k == words16 {
			free, t = areg[:len(areg)-1], areg[len(areg)-1]
		}
		for i := 0; i < h; i++ {
			a := free[i%len(free)]
			addr := rowAddr("AX", i)
			if at > 0 {
				addr = fmt.Sprintf("%d%s", 4*at, addr)
			}
			if nv == 1 && k == floats {
				f.p("\tVFMADD231PS.BCST %s, %s, %s", addr, breg(0), acc(i, 0))
				continue
			}
			f.p("\tVBROADCASTSS %s, %s", addr, a)
			for v := 0; v < nv; v++ {
				f.mulAdd(k, breg(v), a, acc(i, v), t)
			}
		}
	}
	f.p("\tSUBQ $2, CX")
	f.p("\tJLT odd")
	f.p("pair:")
	if h >= 4 { // what comes next, at half the rate of what is read now
		for v := 0; v < nv; v++ {
			f.p("\tPREFETCHT1 %d(R15)", v*64)
		}
		f.p("\tADDQ $%d, R15", 64*nv)
	}
	step(0)
	step(1)
	f.p("\tADDQ $8, AX")
	f.p("\tADDQ $%d, BX", 2*64*nv)
	f.p("\tSUBQ $2, CX")
	f.p("\tJGE pair")
	f.p("odd:")
	f.p("\tADDQ $2, CX")
	f.p("\tJEQ next")
	step(0)
	f.p("\tADDQ $%d, BX", 64*nv)
	f.p("next:")
	f.p("\tDECQ DX")
	f.p("\tJNE segment")

	f.sums(k, h, nv, 64, acc, breg)
	f.p("\tMOVQ %d(DI), AX", oInit)
	for v := 0; v < nv; v++ {
		f.p("\tVMOVUPS %d(AX), %s", v*64, breg(v))
	}
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVADDPS %s, %s, %s", breg(v), acc(i, v), acc(i, v))
		}
	}
	f.p("\tMOVQ %d(DI), AX", oRes)
	f.p("\tTESTQ AX, AX")
	f.p("\tJEQ limit")
	f.p("\tMOVQ %d(DI), CX", oLDR)
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVADDPS %d(AX), %s, K%d, %s", v*64, acc(i, v), v+1, acc(i, v))
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("limit:")
	var sums []string
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			sums = append(sums, acc(i, v))
		}
	}
	spare := breg(nv - 1)
	if nv == 1 {
		spare = areg[2]
	}
	f.activate("Z", sums, [4]string{breg(0), areg[0], areg[1], spare}, oP, oQ, oMode, oS, oT, "")
	if k.integer {
		f.p("\tCMPQ %d(DI), $%d", oNarrow, narrowLimits)
		f.p("\tJEQ bytes")
	}
	// The sum is the second source, so that NaN comes through.
	f.p("\tVBROADCASTSS %d(DI), %s", oLo, breg(0))
	f.p("\tVBROADCASTSS %d(DI), %s", oHi, areg[0])
	for _, r := range sums {
		f.p("\tVMAXPS %s, %s, %s", r, breg(0), r)
		f.p("\tVMINPS %s, %s, %s", r, areg[0], r)
	}
	if k.integer {
		f.p("\tCMPQ %d(DI), $0", oNarrow)
		f.p("\tJNE bytes")
	}
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			f.p("\tVMOVUPS %s, K%d, %d(AX)", acc(i, v), v+1, v*64)
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tJMP stored")
	if k.integer {
		f.bytes512(h, nv, acc, [4]string{breg(0), areg[0], areg[1], spare})
	}
	f.raw(k, h, nv, 64, acc)
}

// bytes512 stores results as bytes; t are registers that are free. A store by a mask of bytes takes longer than one of all.
func (f *file) bytes512(h, nv int, acc func(i, v int) string, t [4]string) {
	x := func(r string) string { return "X" + r[1:] }
	y := func(r string) string { return "Y" + r[1:] }
	f.p("bytes:")
	for i, field := range []int{oQScale, oQLo, oQHi, oQZero} {
		f.p("\tVBROADCASTSS %d(DI), %s", field, t[i])
	}
	for i := range h { // as gemm.Quantize
		for v := range nv {
			r := acc(i, v)
			f.p("\tVMULPS %s, %s, %s", t[0], r, r)
			f.p("\tVMAXPS %s, %s, %s", t[1], r, r)
			f.p("\tVMINPS %s, %s, %s", r, t[2], r)
			f.p("\tVCVTPS2DQ %s, %s", r, r)
			f.p("\tVPADDD %s, %s, %s", t[3], r, r)
			f.p("\tVPMOVDB %s, %s", r, x(r))
		}
		if nv >= 2 {
			f.p("\tVINSERTI32X4 $1, %s, %s, %s", x(acc(i, 1)), y(acc(i, 0)), y(acc(i, 0)))
		}
		if nv == 4 {
			f.p("\tVINSERTI32X4 $1, %s, %s, %s", x(acc(i, 3)), y(acc(i, 2)), y(acc(i, 2)))
		}
		if nv >= 3 {
			f.p("\tVINSERTI64X4 $1, %s, %s, %s", y(acc(i, 2)), acc(i, 0), acc(i, 0))
		}
	}
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	f.p("\tMOVQ %d(DI), DX", oCols)
	f.p("\tCMPQ DX, $%d", 16*nv)
	f.p("\tJNE some")
	store := func(move, mask string) {
		for i := range h {
			r := acc(i, 0)
			switch nv {
			case 1:
				r = x(r)
			case 2:
				r = y(r)
			}
			f.p("\t%s %s, %s(AX)", move, r, mask)
			if i+1 < h {
				f.p("\tADDQ CX, AX")
			}
		}
		f.p("\tJMP stored")
	}
	if nv == 3 { // by a mask of the 12 words of 32 bits
		f.p("\tMOVQ $0xfff, BX")
		f.p("\tKMOVW BX, K5")
		store("VMOVDQU32", "K5, ")
	} else {
		store("VMOVDQU32", "")
	}
	f.p("some:")
	f.p("\tMOVQ $-1, BX")
	f.p("\tBZHIQ DX, BX, BX")
	f.p("\tKMOVQ BX, K5")
	store("VMOVDQU8", "K5, ")
}

// sums ends the sums: integers take what their channel adds, and leave if they are wanted as they are, else they become floats and take the
// channel's factor.
func (f *file) sums(k element, h, nv, bytes int, acc func(i, v int) string, breg func(v int) string) {
	each := func(field int, op string) {
		f.p("\tMOVQ %d(DI), AX", field)
		for v := 0; v < nv; v++ {
			f.p("\tVMOVUPS %d(AX), %s", v*bytes, breg(v))
		}
		for i := 0; i < h; i++ {
			for v := 0; v < nv; v++ {
				f.p("\t%s %s, %s, %s", op, breg(v), acc(i, v), acc(i, v))
			}
		}
	}
	if k.integer && bytes == 32 {
		each(oExtra, "VPADDD")
	}
	f.p("\tCMPQ %d(DI), $%d", oMode, modeRaw)
	f.p("\tJEQ raw")
	if k.integer {
		for i := 0; i < h; i++ {
			for v := 0; v < nv; v++ {
				f.p("\tVCVTDQ2PS %s, %s", acc(i, v), acc(i, v))
			}
		}
	}
	if k != floats {
		each(oScale, "VMULPS")
	}
}

// raw stores sums as they are: of integers, which are results, the channels that there are.
func (f *file) raw(k element, h, nv, bytes int, acc func(i, v int) string) {
	f.p("raw:")
	f.p("\tMOVQ %d(DI), AX", oC)
	f.p("\tMOVQ %d(DI), CX", oLDC)
	for i := 0; i < h; i++ {
		for v := 0; v < nv; v++ {
			if k.integer && bytes == 64 {
				f.p("\tVMOVUPS %s, K%d, %d(AX)", acc(i, v), v+1, v*bytes)
			} else {
				f.p("\tVMOVUPS %s, %d(AX)", acc(i, v), v*bytes)
			}
		}
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	// The next strip of pixels.
	f.p("stored:")
	f.p("\tDECQ %d(DI)", oCount)
	f.p("\tJLE done")
	f.p("\tMOVQ %d(DI), AX", oStepA)
	f.p("\tADDQ AX, %d(DI)", oA)
	if k.integer && bytes == 32 {
		f.p("\tADDQ AX, %d(DI)", oAhead)
	}
	f.p("\tMOVQ %d(DI), AX", oStepC)
	f.p("\tADDQ AX, %d(DI)", oC)
	f.p("\tCMPQ %d(DI), $0", oRes)
	f.p("\tJEQ again")
	f.p("\tMOVQ %d(DI), AX", oStepR)
	f.p("\tADDQ AX, %d(DI)", oRes)
	f.p("\tJMP again")
	f.p("done:")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

func (f *file) strip512(op string, h int) {
	name := fmt.Sprintf("strip%sAVX512h%d", op, h)
	what := "multiplies and adds"
	if op == "Max" {
		what = "takes the maximum of"
	}
	f.text(name, "strip", fmt.Sprintf("%s %d pixels.", what, h))
	acc := func(i int) string { return fmt.Sprintf("Z%d", i) }
	f.p("\tMOVQ p+0(FP), DI")
	f.strides(h, sXS)
	f.p("\tVBROADCASTSS %d(DI), Z30", sLo)
	f.p("\tVBROADCASTSS %d(DI), Z31", sHi)
	f.p("\tXORQ DX, DX")
	f.p("\tMOVQ $-1, CX")
	f.p("\tKMOVW CX, K1")
	f.p("block:")
	f.p("\tMOVQ %d(DI), CX", sN)
	f.p("\tCMPQ CX, $16")
	f.p("\tJGE whole")
	f.p("\tMOVQ $-1, AX")
	f.p("\tBZHIQ CX, AX, AX")
	f.p("\tKMOVW AX, K1")
	f.p("whole:")
	f.p("\tMOVQ %d(DI), AX", sInit)
	f.p("\tVMOVUPS.Z (AX)(DX*1), K1, Z25")
	for i := 0; i < h; i++ {
		if op == "Max" {
			f.p("\tVMOVAPS Z25, %s", acc(i))
		} else {
			f.p("\tVPXORD %s, %s, %s", acc(i), acc(i), acc(i))
		}
	}
	f.p("\tMOVQ %d(DI), BX", sW)
	f.p("\tADDQ DX, BX")
	f.p("\tMOVQ %d(DI), SI", sOffs)
	f.p("\tMOVQ %d(DI), CX", sTaps)
	f.p("tap:")
	f.p("\tMOVQ %d(DI), AX", sX)
	f.p("\tADDQ (SI), AX")
	f.p("\tADDQ DX, AX")
	if op == "Mul" {
		f.p("\tMOVQ 8(SI), R15")
		f.p("\tVMOVUPS.Z (BX)(R15*1), K1, Z28")
	}
	f.p("\tADDQ $16, SI")
	for i := 0; i < h; i++ {
		if op == "Mul" {
			f.p("\tVFMADD231PS %s, Z28, K1, %s", rowAddr("AX", i), acc(i))
			continue
		}
		// Where the maximum so far is NaN it stays; a NaN that comes in is the second source, which wins.
		f.p("\tVCMPPS $7, %s, %s, K1, K2", acc(i), acc(i))
		f.p("\tVMAXPS %s, %s, K2, %s", rowAddr("AX", i), acc(i), acc(i))
	}
	f.p("\tDECQ CX")
	f.p("\tJNE tap")
	for i := 0; i < h && op == "Mul"; i++ {
		f.p("\tVADDPS Z25, %s, %s", acc(i), acc(i))
	}
	var sums []string
	for i := 0; i < h; i++ {
		sums = append(sums, acc(i))
	}
	f.activate("Z", sums, [4]string{"Z26", "Z27", "Z28", "Z29"}, sP, sQ, sMode, sS, sT, "")
	f.p("\tMOVQ %d(DI), AX", sC)
	f.p("\tADDQ DX, AX")
	f.p("\tMOVQ %d(DI), CX", sLDC)
	for i := 0; i < h; i++ {
		f.p("\tVMAXPS %s, Z30, %s", acc(i), acc(i))
		f.p("\tVMINPS %s, Z31, %s", acc(i), acc(i))
		f.p("\tVMOVUPS %s, K1, (AX)", acc(i))
		if i+1 < h {
			f.p("\tADDQ CX, AX")
		}
	}
	f.p("\tADDQ $64, DX")
	f.p("\tSUBQ $16, %d(DI)", sN)
	f.p("\tJGT block")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// activate applies the mode to registers; t are four that are free. The labels end in suffix, which tells several in a function apart.
func (f *file) activate(letter string, regs []string, t [4]string, p, q, mode, so, to int, suffix string) {
	xor := map[string]string{"Z": "VPXORD", "Y": "VXORPS"}[letter]
	f.p("\tMOVQ %d(DI), CX", mode)
	f.p("\tTESTQ CX, CX")
	f.p("\tJEQ plain%s", suffix)
	f.p("\tVBROADCASTSS %d(DI), %s", p, t[0])
	f.p("\tCMPQ CX, $%d", modeLeaky)
	f.p("\tJEQ leaky%s", suffix)
	f.p("\tVBROADCASTSS %d(DI), %s", q, t[1])
	f.p("\tCMPQ CX, $%d", modeSwish)
	f.p("\tJGE swish%s", suffix)
	for _, r := range regs {
		f.p("\tVFMADD213PS %s, %s, %s", t[1], t[0], r)
	}
	f.p("\tJMP plain%s", suffix)
	f.p("swish%s:", suffix)
	f.p("\t%s %s, %s, %s", xor, t[3], t[3], t[3])
	w := map[string]string{"Z": "512", "Y": "256"}[letter]
	for _, r := range regs {
		f.p("\tVMOVAPS %s, %s", r, t[2])
		f.p("\tVFMADD213PS %s, %s, %s", t[1], t[0], t[2])
		f.p("\tVMAXPS %s, %s, %s", t[2], t[3], t[2])
		f.p("\tVMINPS ·ones%s(SB), %s, %s", w, t[2], t[2])
		// A factor of zero gives zero also for an infinite x; a factor of NaN has become 1, and x is NaN itself.
		if letter == "Z" {
			f.p("\tVCMPPS $4, %s, %s, K5", t[3], t[2])
			f.p("\tVMULPS.Z %s, %s, K5, %s", t[2], r, r)
		} else {
			f.p("\tVMULPS %s, %s, %s", t[2], r, r)
			f.p("\tVCMPPS $4, %s, %s, %s", t[3], t[2], t[2])
			f.p("\tVANDPS %s, %s, %s", t[2], r, r)
		}
	}
	f.p("\tCMPQ CX, $%d", modeAffine)
	f.p("\tJNE plain%s", suffix)
	f.p("\tVBROADCASTSS %d(DI), %s", so, t[0])
	f.p("\tVBROADCASTSS %d(DI), %s", to, t[1])
	for _, r := range regs {
		f.p("\tVFMADD213PS %s, %s, %s", t[1], t[0], r)
	}
	f.p("\tJMP plain%s", suffix)
	f.p("leaky%s:", suffix)
	f.p("\t%s %s, %s, %s", xor, t[1], t[1], t[1])
	for _, r := range regs {
		f.p("\tVMINPS %s, %s, %s", r, t[1], t[2])
		f.p("\tVMAXPS %s, %s, %s", r, t[1], r)
		f.p("\tVFMADD231PS %s, %s, %s", t[0], t[2], r)
	}
	f.p("plain%s:", suffix)
}
