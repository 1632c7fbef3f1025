package main

import (
	"fmt"
	"strings"
)

// correction is what a dot kernel does about numbers that are not signed, or too large for sums of 16 bits.
type correction int

const (
	none    correction = iota // weights are signed
	start                     // sums start from what the zero of the weights amounts to
	minimum                   // a block adds a minimum
	both                      // a block adds a minimum; sums of 16 bits are kept small by a zero, whose part is added in 32 bits
)

// tiles256 is a family of AVX2 dot kernels, which keep products of two rows of registers, 16 columns, in pairs of sums.
//
//	wide  weights and activations of 16 bits: VPMADDWD into sums of 32 bits
//	else  weights of up to 6 bits without sign: VPMADDUBSW into sums of 16 bits. They are kept modulo 2^16, and less than 2^15 at the
//	      end of a block: of half of a block (two of four k) times the largest activation, 127, times the largest weight less its zero,
//	      16 x 127 x 16 for blocks of 32 and 5 bits, 8 x 127 x 32 for blocks of 16 and 6 bits, 16 x 127 x 15 for 4 bits as they are.
//
// On a Zen 3, multiplications of integers have two of four pipes, and those of floats two, of which one is the same: an addition after
// each multiplication of two registers, and not directly behind it, loads the pipes best.
//
//	AX a, rows R8 R9 R10: 1 3 5 strides   R12 a of the next tile   BX meta   SI w   R14 scales   R15 blocks to go
//	Y0-Y11 sums, or Y0-Y5 sums and Y6-Y11 float32 sums   Y12 Y13 weights   Y14 activations   Y14 Y15 products
type tiles256 struct {
	*file
	wide  bool
	block int
	what  correction
}

func (k *tiles256) name() string {
	if k.wide {
		return "Wide"
	}
	return fmt.Sprintf("Pairsb%d%s", k.block, map[correction]string{start: "start", minimum: "min", both: "both"}[k.what])
}

// steps returns the number of multiplications of a block, bytes the size of its activations.
func (k *tiles256) steps() int {
	if k.wide {
		return k.block / 2
	}
	return k.block / 4
}

func (k *tiles256) bytes() int { return 4 * k.steps() }

func (k *tiles256) scales() int {
	if k.what == minimum || k.what == both {
		return 128
	}
	return 64
}

func meta256(block, word, r int) string {
	return fmt.Sprintf("%d(BX)", block*metaStep(manySlots)+4*(word*manySlots+r))
}

// row multiplies step g of a row.
func (k *tiles256) row(g, r int) {
	mul, add := "VPMADDUBSW", "VPADDW"
	if k.wide {
		mul, add = "VPMADDWD", "VPADDD"
	}
	s := 2 * r
	k.p("\tVPBROADCASTD %s, Y14", row(4*g, "AX", r, "R8", "R9", "R10"))
	switch {
	case g == 0 && (k.what == start || k.what == both):
		k.p("\tVPBROADCASTD %s, Y%d", meta256(0, 1, r), s)
		k.p("\t%s Y14, Y12, Y15", mul)
		k.p("\t%s Y14, Y13, Y14", mul)
		k.p("\t%s Y14, Y%d, Y%d", add, s, s+1)
		k.p("\t%s Y15, Y%d, Y%d", add, s, s)
	case g == 0:
		k.p("\t%s Y14, Y12, Y%d", mul, s)
		k.p("\t%s Y14, Y13, Y%d", mul, s+1)
	default:
		k.p("\t%s Y14, Y12, Y15", mul)
		k.p("\t%s Y14, Y13, Y14", mul)
		k.p("\t%s Y15, Y%d, Y%d", add, s, s)
		k.p("\t%s Y14, Y%d, Y%d", add, s+1, s+1)
	}
}

// multiply multiplies a block for rows from the first on, with other work in between. fetch says that the rows of the next tile, whose
// activations are in no near cache if there are many, are fetched meanwhile.
func (k *tiles256) multiply(first, rows int, between []string, fetch bool) {
	slots, done := rows*k.steps(), 0
	for g := range k.steps() {
		k.p("\tVMOVDQU %d(SI), Y12", 64*g)
		k.p("\tVMOVDQU %d(SI), Y13", 64*g+32)
		for r := range rows {
			k.row(g, first+r)
			if g == 0 && fetch {
				k.p("\tPREFETCHT0 %s", row(0, "R12", first+r, "R8", "R9", "R10"))
			}
			for to := (g*rows + r + 1) * len(between) / slots; done < to; done++ {
				k.p("%s", between[done])
			}
		}
	}
}

// finish returns the code that scales the sums of rows from the first on and adds them to the float32 sums: in registers, or in memory
// at R13. It is that of the block before the pointers, or of the one at them. Pieces use Y14 and Y15 only inside.
func (k *tiles256) finish(first, rows int, block int, memory bool) []string {
	var list []string
	piece := func(lines ...string) { list = append(list, strings.Join(lines, "\n")) }
	line := func(format string, args ...any) string { return "\t" + fmt.Sprintf(format, args...) }
	scale := func(v, of int) string { return fmt.Sprintf("%d(R14)", block*k.scales()+64*of+32*v) }
	if !k.wide {
		for s := 2 * first; s < 2*(first+rows); s++ {
			piece(line("VPMADDWD ones<>(SB), Y%d, Y%[1]d", s))
		}
	}
	if k.what == both {
		for r := first; r < first+rows; r++ {
			piece(line("VPBROADCASTD %s, Y14", meta256(block, 1, r)), line("VPMADDWD ones<>(SB), Y14, Y14"),
				line("VPSUBD Y14, Y%d, Y%[1]d", 2*r), line("VPSUBD Y14, Y%d, Y%[1]d", 2*r+1))
		}
	}
	for s := 2 * first; s < 2*(first+rows); s++ {
		piece(line("VCVTDQ2PS Y%d, Y%[1]d", s))
	}
	for s := 2 * first; s < 2*(first+rows); s++ {
		piece(line("VMULPS %s, Y%d, Y%[2]d", scale(s%2, 0), s))
	}
	for r := first; r < first+rows; r++ {
		s := 2 * r
		lines := []string{line("VBROADCASTSS %s, Y14", meta256(block, 0, r))}
		sum := func(v int) int { return s + v }
		if memory {
			for v := range 2 {
				lines = append(lines, line("VFMADD213PS %d(R13), Y14, Y%d", 64*r+32*v, s+v))
			}
		} else {
			sum = func(v int) int { return 6 + s + v }
			for v := range 2 {
				lines = append(lines, line("VFMADD231PS Y14, Y%d, Y%d", s+v, sum(v)))
			}
		}
		piece(lines...)
		if k.scales() > 64 {
			lines := []string{line("VBROADCASTSS %s, Y14", meta256(block, 2, r))}
			for v := range 2 {
				lines = append(lines, line("VFMADD231PS %s, Y14, Y%d", scale(v, 1), sum(v)))
			}
			piece(lines...)
		}
		if memory {
			piece(line("VMOVUPS Y%d, %d(R13)", s, 64*r), line("VMOVUPS Y%d, %d(R13)", s+1, 64*r+32))
		}
	}
	return list
}

func (k *tiles256) lines(list []string) {
	for _, l := range list {
		k.p("%s", l)
	}
}

func (k *tiles256) advance() {
	k.p("\tADDQ $%d, AX", k.bytes())
	k.p("\tADDQ $%d, BX", metaStep(manySlots))
	k.p("\tADDQ $%d, SI", 64*k.steps())
	k.p("\tADDQ $%d, R14", k.scales())
}

// columns writes masks of the columns to two registers; t is scratch.
func (f *file) columns256(m0, m1, t int) {
	f.p("\tVPBROADCASTD %d(DI), Y%d", argMask, t)
	for v, m := range []int{m0, m1} {
		f.p("\tVPAND columns<>+%d(SB), Y%d, Y%d", 32*v, t, m)
		f.p("\tVPCMPEQD columns<>+%d(SB), Y%d, Y%d", 32*v, m, m)
	}
}

// rowsOfC256 visits rows of C, whole (masked stores are slow) or masked by Y12 and Y13. label is a prefix of labels.
func (f *file) rowsOfC256(label string, rows int, visit func(r int, masked bool)) {
	next := func(r int) {
		if r+1 < rows {
			f.p("\tADDQ R11, DX")
		}
	}
	f.p("\tMOVQ %d(DI), DX", argC)
	f.p("\tMOVQ %d(DI), R11", argLdc)
	f.p("\tMOVWLZX %d(DI), CX", argMask)
	f.p("\tCMPL CX, $0xffff")
	f.p("\tJEQ %swhole", label)
	f.columns256(12, 13, 14)
	for r := range rows {
		visit(r, true)
		next(r)
	}
	f.p("\tJMP %sdone", label)
	f.p("%swhole:", label)
	for r := range rows {
		visit(r, false)
		next(r)
	}
	f.p("%sdone:", label)
}

// kernel writes the kernel for rows against one panel.
func (k *tiles256) kernel(rows int) string {
	name := fmt.Sprintf("dot%sAVX2r%d", k.name(), rows)
	memory := rows > 3
	k.text(name, "p *dotArgs", 8, fmt.Sprintf("computes %d rows against a panel over blocks of %d.", rows, k.block))
	k.p("\tMOVQ p+0(FP), DI")
	if memory {
		k.p("\tMOVQ %d(DI), R13", argBuf)
	}
	k.p("\tCMPQ %d(DI), $0", argAcc)
	k.p("\tJEQ fresh")
	at := func(v int) string { return fmt.Sprintf("%d(DX)", 32*v) }
	k.rowsOfC256("load", rows, func(r int, masked bool) {
		for v := range 2 {
			to := 6 + 2*r + v
			if memory {
				to = v
			}
			if masked {
				k.p("\tVMASKMOVPS %s, Y%d, Y%d", at(v), 12+v, to)
			} else {
				k.p("\tVMOVUPS %s, Y%d", at(v), to)
			}
			if memory {
				k.p("\tVMOVUPS Y%d, %d(R13)", to, 64*r+32*v)
			}
		}
		if memory {
			k.p("\tPREFETCHT0 64(DX) // of the next panel")
		}
	})
	k.p("\tJMP start")
	k.p("fresh:")
	if memory {
		k.p("\tVPXOR Y0, Y0, Y0")
	}
	for i := range 2 * rows {
		if memory {
			k.p("\tVMOVUPS Y0, %d(R13)", 32*i)
		} else {
			k.p("\tVPXOR Y%d, Y%[1]d, Y%[1]d", 6+i)
		}
	}
	k.p("start:")
	k.p("\tMOVQ %d(DI), AX", argA)
	k.p("\tMOVQ %d(DI), BX", argMeta)
	k.p("\tMOVQ %d(DI), R8", argAStride)
	if memory {
		k.p("\tLEAQ (R8)(R8*2), R9")
		k.p("\tLEAQ (R8)(R8*4), R10")
		k.p("\tLEAQ (AX)(R9*2), R12")
	}
	k.p("\tMOVQ %d(DI), SI", argW)
	k.p("\tMOVQ %d(DI), R14", argScale)
	k.p("\tMOVQ %d(DI), R15", argBlocks)
	if memory { // one half of the rows is finished while the other multiplies
		half := rows / 2
		k.multiply(0, half, nil, true)
		k.p("block:")
		k.multiply(half, half, k.finish(0, half, 0, true), true)
		k.p("\tDECQ R15")
		k.p("\tJEQ last")
		k.advance()
		k.p("\tADDQ $%d, R12", k.bytes())
		k.multiply(0, half, k.finish(half, half, -1, true), true)
		k.p("\tJMP block")
		k.p("last:")
		k.lines(k.finish(half, half, 0, true))
	} else {
		k.p("block:")
		k.multiply(0, rows, nil, false)
		k.lines(k.finish(0, rows, 0, false))
		k.advance()
		k.p("\tDECQ R15")
		k.p("\tJNE block")
	}
	k.rowsOfC256("store", rows, func(r int, masked bool) {
		for v := range 2 {
			from := 6 + 2*r + v
			if memory {
				from = v
				k.p("\tVMOVUPS %d(R13), Y%d", 64*r+32*v, from)
			}
			if masked {
				k.p("\tVMASKMOVPS Y%d, Y%d, %s", from, 12+v, at(v))
			} else {
				k.p("\tVMOVUPS Y%d, %s", from, at(v))
			}
		}
	})
	k.p("\tVZEROUPPER")
	k.p("\tRET")
	return name
}

// tilesAVX2 writes the dot kernels and their tables.
func tilesAVX2(f *file, table *strings.Builder) {
	kernels := func(k tiles256) {
		table.WriteString("{")
		for _, rows := range []int{1, 2, 3, 6} {
			fmt.Fprintf(table, "%d: %s, ", rows, k.kernel(rows))
		}
		table.WriteString("},\n")
	}
	table.WriteString("\n// dotPairs holds the dot kernels for weights of up to 6 bits by block (0: 32, 1: 16), by what they correct (0: a zero, 1: they add\n" +
		"// minimums, 2: both) and rows.\nvar dotPairs = [2][3][maxRows + 1]func(*dotArgs){\n")
	for _, block := range []int{32, 16} {
		table.WriteString("{\n")
		for _, what := range []correction{start, minimum, both} {
			if block == 16 && what == both {
				continue
			}
			kernels(tiles256{f, false, block, what})
		}
		table.WriteString("},\n")
	}
	table.WriteString("}\n\n// dotWide holds the dot kernels for signed weights and activations of 16 bits by rows.\nvar dotWide = [maxRows + 1]func(*dotArgs)")
	kernels(tiles256{f, true, 32, none})
	s := table.String()
	table.Reset()
	table.WriteString(strings.TrimSuffix(s, ",\n") + "\n")
}

// wideAVX2 writes the functions that spread bytes to words, in pairs of k, and rows of activations.
func wideAVX2(f *file, table *strings.Builder) {
	for _, name := range []string{"U8", "Table"} {
		s := spreads256[name]
		fn := "spread" + name + "Wide"
		f.text(fn, "dst, src unsafe.Pointer, n, per, stride int, less uint8, table *[16]byte", 56,
			"spreads "+spreads[name].doc+" to bytes, subtracts less and widens to 16 bits: for each 2 k, 16 lanes of 2 words.")
		s.prologue(f)
		f.sets(func() {
			for off := 0; off < s.size; off += 64 {
				f.p("\tPREFETCHT0 %d(SI)", ahead(s.size)+off)
			}
			for i := range 16 {
				s.group(f, 0, i/2, i%2, 0, 1, 15, 14)
				f.p("\tVPSUBB Y13, Y0, Y0")
				f.p("\tVEXTRACTI128 $1, Y0, X1")
				f.p("\tVPMOVSXBW X0, Y0 // four columns of four k")
				f.p("\tVPMOVSXBW X1, Y1")
				for p, pick := range []int{0x88, 0xdd} {
					f.p("\tVSHUFPS $%#x, Y1, Y0, Y%d", pick, 2+p)
					f.p("\tVPERMQ $0xd8, Y%d, Y%[1]d", 2+p)
					f.p("\tVMOVDQU Y%d, %d(DI)", 2+p, 128*(i/2)+64*p+32*(i%2))
				}
			}
			f.p("\tADDQ $1024, DI")
		}, s.size)
	}
	f.text("widenAVX2", "dst, src unsafe.Pointer, n int", 24, "widens n int8, a multiple of 32, to 16 bits; src may be the second half of dst.")
	f.p("\tMOVQ dst+0(FP), DI")
	f.p("\tMOVQ src+8(FP), SI")
	f.p("\tMOVQ n+16(FP), CX")
	f.p("loop:")
	f.p("\tVPMOVSXBW (SI), Y0")
	f.p("\tVPMOVSXBW 16(SI), Y1")
	f.p("\tVMOVDQU Y0, (DI)")
	f.p("\tVMOVDQU Y1, 32(DI)")
	f.p("\tADDQ $32, SI")
	f.p("\tADDQ $64, DI")
	f.p("\tSUBQ $32, CX")
	f.p("\tJNE loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}
