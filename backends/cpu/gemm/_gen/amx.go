package main

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/cpu/_encode"
)

const tileHeader = `
// Every kernel here computes one or two tiles of rows by one or two tiles of columns of each panel, for whole steps of tiles: 16 groups of four
// bytes of k, or one step of fewer. The sizes of the tiles are those of the configuration. Rows of A lie with their steps side by side.
//
//	DI args     AX BX rows of A and panel of B at k     R10 the second tile of A     R11 the second panel of B     CX steps of tiles to go
//	DX C        R15 the second tile of rows of C        R8 SI R9 bytes between rows of A, B and C     R12 R13 between steps of tiles of A and B

`

// Tiles 0 to 3 hold sums; these the operands.
const (
	tileA0 = "T4"
	tileA1 = "T5"
	tileB0 = "T6"
	tileB1 = "T7"
)

// tileShape is the shape of a kernel: tiles of rows, tiles of columns of a panel, panels at once.
type tileShape struct{ rows, cols, panels int }

var tileShapes = []tileShape{{1, 1, 1}, {1, 2, 1}, {1, 2, 2}, {2, 1, 1}, {2, 2, 1}}

func (s tileShape) name(elem string) string {
	n := fmt.Sprintf("tiles%dx%d", s.rows, s.cols)
	if s.panels > 1 {
		n += fmt.Sprintf("x%d", s.panels)
	}
	return n + elem
}

// kernelTiles emits the kernel of a shape for pairs of bf16 or groups of four bytes, of which those of B are unsigned.
func (f *file) kernelTiles(s tileShape, bytes bool) {
	elem, what := "BF16", "pairs of bf16"
	if bytes {
		elem, what = "U8", "groups of four bytes, those of B unsigned"
	}
	name := s.name(elem)
	cols := s.cols * 16
	f.p("")
	f.p("// func %s(p *kargs, cfg *tile.Config, h int)", name)
	f.p("TEXT ·%s(SB), NOSPLIT, $0-24", name)
	fmt.Fprintf(&f.stubs, "\n// %s multiplies h rows, %d tiles of them, by %d tiles of columns of %d panels at once: %s.\n//\n//go:noescape\nfunc %s(p *kargs, cfg *tile.Config, h int)\n",
		name, s.rows, s.cols, s.panels, what, name)
	ins := func(c encode.Code) { f.p("\t%s", c) }
	at := func(base string, disp int) encode.Mem { return encode.Mem{Base: base, Disp: disp} }

	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ cfg+8(FP), AX")
	ins(encode.LDTILECFG(at("AX", 0)))
	f.p("\tMOVQ %d(DI), R8", oARS)
	f.p("\tMOVQ %d(DI), R12", oACS)
	f.p("\tSHLQ $4, R12")
	f.p("\tMOVQ %d(DI), SI", oBKS)
	f.p("\tMOVQ SI, R13")
	f.p("\tSHLQ $4, R13")
	f.p("\tMOVQ %d(DI), R9", oLDC)
	f.p("panel:")
	f.p("\tMOVQ %d(DI), DX", oC)
	if s.rows > 1 {
		f.p("\tMOVQ R9, R15")
		f.p("\tSHLQ $4, R15")
		f.p("\tADDQ DX, R15")
	}
	// Sum i is tile i of C: rows first, then panels and columns.
	type sum struct {
		tile, base string
		disp, b    int
		a          string
	}
	var sums []sum
	for r := range s.rows {
		base, a := "DX", tileA0
		if r == 1 {
			base, a = "R15", tileA1
		}
		for c := range s.cols * s.panels {
			sums = append(sums, sum{fmt.Sprintf("T%d", len(sums)), base, c * 64, c, a})
		}
	}
	if bytes {
		f.startInts(s)
	}
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ fresh")
	if bytes {
		f.p("load:")
	}
	for _, c := range sums {
		ins(encode.TILELOADD(at(c.base, c.disp), "R9", c.tile))
	}
	f.p("\tJMP start")
	f.p("fresh:")
	for _, c := range sums {
		ins(encode.TILEZERO(c.tile))
	}
	f.p("start:")
	f.p("\tMOVQ %d(DI), AX", oA)
	if s.rows > 1 {
		f.p("\tMOVQ R8, R10")
		f.p("\tSHLQ $4, R10")
		f.p("\tADDQ AX, R10")
	}
	f.p("\tMOVQ %d(DI), BX", oB)
	if s.panels > 1 {
		f.p("\tMOVQ %d(DI), R11", oBPS)
		f.p("\tADDQ BX, R11")
	}
	f.p("\tMOVQ %d(DI), CX", oK)
	f.p("\tADDQ $15, CX")
	f.p("\tSHRQ $4, CX")
	product := func(b, a, c string) {
		if bytes {
			ins(encode.TDPBSUD(b, a, c))
		} else {
			ins(encode.TDPBF16PS(b, a, c))
		}
	}
	loadB := func(c int, to string) {
		base := "BX"
		if c >= s.cols {
			base = "R11"
		}
		ins(encode.TILELOADD(at(base, c%s.cols*64), "SI", to))
	}
	f.p("\tPCALIGN $32")
	f.p("loop:")
	ins(encode.TILELOADD(at("AX", 0), "R8", tileA0))
	n := s.cols * s.panels
	for c := range n { // with more than two columns of tiles, two registers take turns
		b := []string{tileB0, tileB1}[c%2]
		loadB(c, b)
		product(b, tileA0, sums[c].tile)
	}
	if s.rows > 1 {
		ins(encode.TILELOADD(at("R10", 0), "R8", tileA1))
		for c := range n {
			product([]string{tileB0, tileB1}[c%2], tileA1, sums[n+c].tile)
		}
		f.p("\tADDQ R12, R10")
	}
	f.p("\tADDQ R12, AX")
	f.p("\tADDQ R13, BX")
	if s.panels > 1 {
		f.p("\tADDQ R13, R11")
	}
	f.p("\tDECQ CX")
	f.p("\tJNZ loop")
	for _, c := range sums {
		ins(encode.TILESTORED(c.tile, at(c.base, c.disp), "R9"))
	}
	f.p("\tDECQ %d(DI)", oPanels)
	f.p("\tJZ end")
	f.p("\tMOVQ %d(DI), BX", oBPS)
	if s.panels > 1 {
		f.p("\tIMULQ $%d, BX", s.panels)
	}
	f.p("\tADDQ BX, %d(DI)", oB)
	f.p("\tADDQ $%d, %d(DI)", cols*s.panels*4, oC)
	if bytes {
		f.p("\tADDQ $%d, %d(DI)", cols*s.panels*4, oComp)
	}
	f.p("\tJMP panel")
	f.p("end:")
	ins(encode.TILERELEASE())
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}

// startInts writes what integer sums start from to C, where it is not zero or C itself, and goes on at load.
func (f *file) startInts(s tileShape) {
	n := s.cols * s.panels
	f.p("\tMOVQ %d(DI), BX", oRows)
	f.p("\tMOVLQSX %d(DI), CX", oFold)
	f.p("\tMOVQ BX, AX")
	f.p("\tORQ CX, AX")
	f.p("\tJEQ zeroOrC")
	// Only the last panel may be short.
	f.p("\tMOVQ $-1, AX")
	f.p("\tCMPQ %d(DI), $1", oPanels)
	f.p("\tJNE whole")
	f.p("\tMOVQ %d(DI), R10", oTail)
	f.p("\tBZHIQ R10, AX, AX")
	f.p("whole:")
	for v := range s.cols {
		f.p("\tKMOVW AX, K%d", v+1)
		if v+1 < s.cols {
			f.p("\tSHRQ $16, AX")
		}
	}
	mask := func(v int) string {
		if v/s.cols == s.panels-1 {
			return fmt.Sprintf("K%d, ", v%s.cols+1)
		}
		return ""
	}
	for v := range n {
		f.p("\tVPXORD Z%d, Z%d, Z%d", 8+v, 8+v, 8+v)
	}
	f.p("\tTESTQ CX, CX")
	f.p("\tJEQ rows")
	f.p("\tMOVQ %d(DI), R10", oComp)
	f.p("\tVPBROADCASTD CX, Z7")
	for v := range n {
		f.p("\tVPMULLD %d(R10), Z7, Z%d", 64*v, 8+v)
	}
	f.p("rows:")
	f.p("\tMOVQ h+16(FP), CX")
	f.p("\tMOVQ DX, AX")
	f.p("\tVPXORD Z7, Z7, Z7")
	f.p("row:")
	f.p("\tTESTQ BX, BX")
	f.p("\tJEQ noTerm")
	f.p("\tVPBROADCASTD (BX), Z7")
	f.p("\tADDQ $4, BX")
	f.p("noTerm:")
	for v := range n {
		f.p("\tVPADDD Z7, Z%d, Z%d", 8+v, v)
	}
	f.p("\tCMPQ %d(DI), $0", oAcc)
	f.p("\tJEQ put")
	for v := range n {
		f.p("\tVPADDD %d(AX), Z%d, %sZ%d", 64*v, v, mask(v), v)
	}
	f.p("put:")
	for v := range n {
		f.p("\tVMOVDQU32 Z%d, %s%d(AX)", v, mask(v), 64*v)
	}
	f.p("\tADDQ R9, AX")
	f.p("\tDECQ CX")
	f.p("\tJNZ row")
	f.p("\tJMP load")
	f.p("zeroOrC:")
}

// peakTiles emits a loop of nothing but products of tiles.
func (f *file) peakTiles(name, what string, product func(b, a, dst string) encode.Code) {
	f.p("")
	f.p("// func %s(n int, cfg *tile.Config)", name)
	f.p("TEXT ·%s(SB), NOSPLIT, $0-16", name)
	fmt.Fprintf(&f.stubs, "\n// %s runs n rounds of 16 %s instructions on six independent sums.\n//\n//go:noescape\nfunc %s(n int, cfg *tile.Config)\n", name, what, name)
	f.p("\tMOVQ n+0(FP), CX")
	f.p("\tMOVQ cfg+8(FP), AX")
	f.p("\t%s", encode.LDTILECFG(encode.Mem{Base: "AX"}))
	f.p("loop:")
	for i := range 16 {
		f.p("\t%s", product("T7", "T6", fmt.Sprintf("T%d", i%6)))
	}
	f.p("\tDECQ CX")
	f.p("\tJNZ loop")
	f.p("\t%s", encode.TILERELEASE())
	f.p("\tRET")
}

func tileFile(out, tags string) {
	f := &file{}
	for _, bytes := range []bool{false, true} {
		for _, s := range tileShapes {
			f.kernelTiles(s, bytes)
		}
	}
	f.peakTiles("peakTilesBF16", "TDPBF16PS", encode.TDPBF16PS)
	f.peakTiles("peakTilesU8", "TDPBSUD", encode.TDPBSUD)
	f.write(out, "kernels_amx_amd64", tags, tileHeader, "\nimport \"github.com/tessera-go/tessera/backends/cpu/internal/tile\"\n")
}
