package main

import (
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/backends/cpu/_encode"
)

const headerAMX = `
// Kernels of tiles: groups of rows of A, each a tile high, against panels of W whose bytes have been spread less the format's zero. The product of
// a block is one product of tiles, of 8 or 4 groups of four k. Its integers go through memory to vectors, which scale them as the dot kernels of
// AVX-512 do. Two blocks are multiplied while the sums of the two before are scaled.
//
//	DI args     AX SI a and w of the blocks to multiply     BX R14 meta and scales of those to scale     R10 R11 their sums     R15 pairs to go
//	R8 R9 bytes between rows of A, and of other tiles     R12 panels to go     R13 mask
//	0(SP) 8(SP) 16(SP) w, scales and C of the panel       24(SP) 32(SP) 40(SP) 48(SP) a, meta and C of the group, groups to go
//
// The arguments stay as they are: the collector of garbage may look at them, and what they would point at in the end is not theirs.
//
//	Z0-Z15 float32 sums     Z16-Z29 products     Z30 Z31 scales and minimums

`

// heightsAMX are the rows of a group that kernels are made for: the last group takes the lowest that covers it. The tiles have just its rows.
var heightsAMX = []int{4, 8, 12, 16}

// tileSums is the size of a tile of integer sums.
const tileSums = 16 * 64

func amx(dir string) {
	f := &file{}
	var table strings.Builder
	table.WriteString("\n// amxTiles holds the kernels of tiles by block (0: 32, 1: 16), minimums, and height (4, 8, 12, 16).\n")
	fmt.Fprintf(&table, "var amxTiles = [2][2][%d]func(*dotArgs, *tile.Config){\n", len(heightsAMX))
	for _, block := range []int{32, 16} {
		table.WriteString("{\n")
		for _, min := range []bool{false, true} {
			table.WriteString("{")
			for _, height := range heightsAMX {
				table.WriteString(tilesAMX(f, block, min, height) + ", ")
			}
			table.WriteString("},\n")
		}
		table.WriteString("},\n")
	}
	table.WriteString("}\n")
	f.writeImporting(dir, "kernels_amx_amd64", "amd64 && !noasm", headerAMX, "github.com/tessera-go/tessera/backends/cpu/internal/tile", table.String())
}

func tilesAMX(f *file, block int, min bool, height int) string {
	name := fmt.Sprintf("tilesAMXb%dh%d", block, height)
	step := 64
	if min {
		name += "min"
		step = 128
	}
	f.textFrame(name, "p *dotArgs, cfg *tile.Config", 16, 56, fmt.Sprintf("computes groups of up to %d rows against panels over blocks of %d.", height, block))
	ins := func(c encode.Code) { f.p("\t%s", c) }
	mem := func(base string, disp int) encode.Mem { return encode.Mem{Base: base, Disp: disp} }
	// multiply leaves the integer sums of n blocks at a register.
	multiply := func(n int, sums string) {
		for b := range n {
			c, a, w := fmt.Sprintf("T%d", 3*b), fmt.Sprintf("T%d", 3*b+1), fmt.Sprintf("T%d", 3*b+2)
			ins(encode.TILEZERO(c))
			ins(encode.TILELOADD(mem("AX", b*block), "R8", a))
			ins(encode.TILELOADD(mem("SI", b*block*16), "R9", w))
			ins(encode.TDPBSSD(w, a, c))
		}
		for b := range n {
			ins(encode.TILESTORED(fmt.Sprintf("T%d", 3*b), mem(sums, b*tileSums), "R9"))
		}
		f.p("\tADDQ $%d, AX", n*block)
		f.p("\tADDQ $%d, SI", n*block*16)
	}
	// scale adds the scaled sums of n blocks.
	scale := func(n int, sums string) {
		for b := range n {
			f.p("\tVMOVUPS %d(R14), Z30", b*step)
			if min {
				f.p("\tVMOVUPS %d(R14), Z31", b*step+64)
			}
			meta := func(word, r int) string {
				return fmt.Sprintf("%d(BX)", b*metaStep(manySlots)+4*(word*manySlots+r))
			}
			for r := range height {
				t := 16 + r%14
				f.p("\tVCVTDQ2PS %d(%s), Z%d", b*tileSums+64*r, sums, t)
				f.p("\tVMULPS Z30, Z%d, Z%d", t, t)
				f.p("\tVFMADD231PS.BCST %s, Z%d, Z%d", meta(0, r), t, r)
				if min {
					f.p("\tVFMADD231PS.BCST %s, Z31, Z%d", meta(2, r), r)
				}
			}
		}
		f.p("\tADDQ $%d, BX", n*metaStep(manySlots))
		f.p("\tADDQ $%d, R14", n*step)
	}
	// rows moves the group's rows of C, and no others.
	rows := func(end string, move func(r int)) {
		f.p("\tMOVQ 16(SP), DX")
		f.p("\tMOVQ %d(DI), CX", argRows)
		for r := range height {
			if r > height-heightsAMX[0] {
				f.p("\tCMPQ CX, $%d", r)
				f.p("\tJLE %s", end)
			}
			move(r)
			if r+1 < height {
				f.p("\tADDQ %d(DI), DX", argLdc)
			}
		}
	}

	f.p("\tMOVQ p+0(FP), DI")
	f.p("\tMOVQ cfg+8(FP), AX")
	ins(encode.LDTILECFG(mem("AX", 0)))
	f.p("\tMOVQ %d(DI), R8", argAStride)
	f.p("\tMOVQ $64, R9")
	for i, arg := range []int{argA, argMeta, argC, argGroups} {
		f.p("\tMOVQ %d(DI), AX", arg)
		f.p("\tMOVQ AX, %d(SP)", 24+8*i)
	}
	f.p("group:")
	for i, from := range []string{fmt.Sprintf("%d(DI)", argW), fmt.Sprintf("%d(DI)", argScale), "40(SP)"} {
		f.p("\tMOVQ %s, AX", from)
		f.p("\tMOVQ AX, %d(SP)", 8*i)
	}
	f.p("\tMOVQ %d(DI), R13", argMask)
	f.p("\tMOVQ %d(DI), R12", argPanels)
	f.p("panel:")
	f.p("\tKMOVW R13, K1")
	f.p("\tSHRQ $16, R13")
	for r := range height {
		f.p("\tVPXORD Z%d, Z%d, Z%d", r, r, r)
	}
	f.p("\tCMPQ %d(DI), $0", argAcc)
	f.p("\tJEQ start")
	rows("start", func(r int) { f.p("\tVMOVUPS.Z (DX), K1, Z%d", r) })
	f.p("start:")
	f.p("\tMOVQ 24(SP), AX")
	f.p("\tMOVQ 0(SP), SI")
	f.p("\tMOVQ 32(SP), BX")
	f.p("\tMOVQ 8(SP), R14")
	f.p("\tMOVQ %d(DI), R10", argBuf)
	f.p("\tLEAQ %d(R10), R11", 2*tileSums)
	f.p("\tMOVQ %d(DI), R15", argBlocks)
	f.p("\tSHRQ $1, R15")
	f.p("\tJEQ last")
	multiply(2, "R10")
	f.p("\tXCHGQ R10, R11")
	f.p("\tDECQ R15")
	f.p("\tJEQ drain")
	f.p("\tPCALIGN $32")
	f.p("pair:")
	multiply(2, "R10")
	scale(2, "R11")
	f.p("\tXCHGQ R10, R11")
	f.p("\tDECQ R15")
	f.p("\tJNE pair")
	f.p("drain:")
	scale(2, "R11")
	f.p("last: // of an odd number")
	f.p("\tTESTQ $1, %d(DI)", argBlocks)
	f.p("\tJEQ put")
	multiply(1, "R10")
	scale(1, "R10")
	f.p("put:")
	rows("next", func(r int) { f.p("\tVMOVUPS Z%d, K1, (DX)", r) })
	f.p("next:")
	f.p("\tMOVQ %d(DI), AX", argWPanel)
	f.p("\tADDQ AX, 0(SP)")
	f.p("\tMOVQ %d(DI), AX", argScaleSize)
	f.p("\tADDQ AX, 8(SP)")
	f.p("\tADDQ $64, 16(SP)")
	f.p("\tDECQ R12")
	f.p("\tJNE panel")
	f.p("\tMOVQ %d(DI), AX", argRows)
	f.p("\tMOVQ AX, CX")
	f.p("\tIMULQ R8, AX")
	f.p("\tADDQ AX, 24(SP)")
	f.p("\tIMULQ %d(DI), CX", argLdc)
	f.p("\tADDQ CX, 40(SP)")
	f.p("\tMOVQ %d(DI), AX", argMetaGroup)
	f.p("\tADDQ AX, 32(SP)")
	f.p("\tDECQ 48(SP)")
	f.p("\tJNE group")
	ins(encode.TILERELEASE())
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	return name
}
