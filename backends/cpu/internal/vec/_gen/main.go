// Command _gen writes the assembly of the row functions, for AVX-512 and for AVX2, from one description of each. It lives in a
// module of its own, so that users never download it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// isa is an instruction set: its vector registers and how tails are masked.
type isa struct {
	name  string // suffix of functions
	file  string
	doc   string
	v     string // prefix of vector registers
	width int    // float32 in a vector
	wide  bool   // AVX-512: masks in K registers, broadcast memory operands
}

var isas = []isa{
	{"AVX512", "vec_avx512_amd64", "AVX-512 F, BW, DQ, VL", "Z", 16, true},
	{"AVX2", "vec_avx2_amd64", "AVX2, FMA and F16C", "Y", 8, false},
}

// gen writes one file.
type gen struct {
	isa
	asm    bytes.Buffer
	stubs  bytes.Buffer
	consts map[string]uint32
	order  []string
	labels int
}

func (g *gen) p(format string, args ...any) {
	fmt.Fprintf(&g.asm, "\t"+format+"\n", args...)
}

func (g *gen) label(format string, args ...any) string {
	s := fmt.Sprintf(format, args...)
	fmt.Fprintf(&g.asm, "%s:\n", s)
	return s
}

// reg returns vector register i.
func (g *gen) reg(i int) string { return fmt.Sprintf("%s%d", g.v, i) }

// lane returns the 128-bit part of vector register i.
func lane(i int) string { return fmt.Sprintf("X%d", i) }

// c returns a float constant as a memory operand, and the suffix that the instruction needs to broadcast it.
func (g *gen) c(name string, v float64) string { return g.bits(name, math.Float32bits(float32(v))) }

func (g *gen) bits(name string, v uint32) string {
	name = "c" + name
	if old, ok := g.consts[name]; ok && old != v {
		log.Fatalf("constant %s twice", name)
	} else if !ok {
		g.consts[name] = v
		g.order = append(g.order, name)
	}
	return name + "<>(SB)"
}

// bc is the suffix of instructions whose memory operand is one constant.
func (g *gen) bc() string {
	if g.wide {
		return ".BCST"
	}
	return ""
}

// op emits an instruction with a constant as its first operand.
func (g *gen) op(name, constant, a, dst string) {
	g.p("%s%s %s, %s, %s", name, g.bc(), constant, a, dst)
}

// text opens a function. Its arguments are all of 8 bytes but those marked f, which are float32.
func (g *gen) text(name, doc, signature string, args ...string) {
	size := 0
	var loads []string
	regs := []string{"DI", "SI", "DX", "BX", "R8", "R9", "R10"}
	floats := 0
	for _, a := range args {
		kind, arg, _ := strings.Cut(a, " ")
		switch kind {
		case "p":
			loads = append(loads, fmt.Sprintf("MOVQ %s+%d(FP), %s", arg, size, regs[0]))
			regs = regs[1:]
			size += 8
		case "n":
			loads = append(loads, fmt.Sprintf("MOVQ %s+%d(FP), CX", arg, size))
			size += 8
		case "i": // another integer
			loads = append(loads, fmt.Sprintf("MOVQ %s+%d(FP), %s", arg, size, regs[0]))
			regs = regs[1:]
			size += 8
		case "f": // broadcast into the last registers
			r := 15 - floats
			if g.wide {
				r = 31 - floats
			}
			loads = append(loads, fmt.Sprintf("VBROADCASTSS %s+%d(FP), %s", arg, size, g.reg(r)))
			floats++
			size += 4
		}
	}
	frame := size
	if strings.HasSuffix(signature, " float32") {
		frame = (size+7)&^7 + 4
	}
	if strings.HasSuffix(signature, ") int") {
		frame = size + 8
	}
	fmt.Fprintf(&g.asm, "\n// func %s%s%s\nTEXT ·%s%s(SB), NOSPLIT, $0-%d\n", name, g.name, signature, name, g.name, frame)
	for _, l := range loads {
		g.p("%s", l)
	}
	fmt.Fprintf(&g.stubs, "\n// %s%s %s\n//\n//go:noescape\nfunc %s%s%s\n", name, g.name, doc, name, g.name, signature)
}

func (g *gen) done() {
	g.p("VZEROUPPER")
	g.p("RET")
}

// mask makes the mask of the CX lowest lanes: K1, or Y14.
func (g *gen) mask() {
	if g.wide {
		g.p("MOVL $-1, AX")
		g.p("BZHIL CX, AX, AX")
		g.p("KMOVW AX, K1")
		return
	}
	g.p("MOVQ CX, AX")
	g.p("NEGQ AX")
	g.p("LEAQ laneMask<>+32(SB), R11")
	g.p("VMOVUPS (R11)(AX*4), Y14") // 8-CX before the zeros: the lowest CX lanes are set
}

func (g *gen) load(masked bool, addr, dst string) {
	switch {
	case !masked:
		g.p("VMOVUPS %s, %s", addr, dst)
	case g.wide:
		g.p("VMOVUPS.Z %s, K1, %s", addr, dst)
	default:
		g.p("VMASKMOVPS %s, Y14, %s", addr, dst)
	}
}

func (g *gen) store(masked bool, src, addr string) {
	switch {
	case !masked:
		g.p("VMOVUPS %s, %s", src, addr)
	case g.wide:
		g.p("VMOVUPS %s, K1, %s", src, addr)
	default:
		g.p("VMASKMOVPS %s, Y14, %s", src, addr)
	}
}

// clear zeroes the lanes of a register that a tail has not.
func (g *gen) clear(masked bool, r string) {
	if !masked {
		return
	}
	if g.wide {
		g.p("VMOVAPS.Z %s, K1, %s", r, r)
	} else {
		g.p("VANDPS Y14, %s, %s", r, r)
	}
}

// loop walks n elements, unroll vectors at a time, then one, then a masked tail. body emits one vector: u counts within the
// unrolled group, off is the byte offset.
func (g *gen) loop(unroll int, ptrs []string, body func(u int, off int, masked bool)) {
	g.labels++
	l := g.labels
	bytes := g.width * 4
	step := func(vectors int) {
		for _, p := range ptrs {
			g.p("ADDQ $%d, %s", vectors*bytes, p)
		}
		g.p("SUBQ $%d, CX", vectors*g.width)
	}
	if unroll > 1 {
		g.p("CMPQ CX, $%d", unroll*g.width)
		g.p("JLT single%d", l)
		g.label("many%d", l)
		for u := range unroll {
			body(u, u*bytes, false)
		}
		step(unroll)
		g.p("CMPQ CX, $%d", unroll*g.width)
		g.p("JGE many%d", l)
		g.label("single%d", l)
	}
	g.p("CMPQ CX, $%d", g.width)
	g.p("JLT tail%d", l)
	g.label("each%d", l)
	body(0, 0, false)
	step(1)
	g.p("CMPQ CX, $%d", g.width)
	g.p("JGE each%d", l)
	g.label("tail%d", l)
	g.p("TESTQ CX, CX")
	g.p("JZ end%d", l)
	g.mask()
	body(0, 0, true)
	g.label("end%d", l)
}

func at(off int, reg string) string {
	if off == 0 {
		return "(" + reg + ")"
	}
	return fmt.Sprintf("%d(%s)", off, reg)
}

// fold adds the lanes of a register down to four, in the low part of the same register; t is scratch. The order is fixed: upper half
// to lower half.
func (g *gen) fold(op string, r, t int) {
	if g.wide {
		g.p("VEXTRACTF64X4 $1, Z%d, Y%d", r, t)
		g.p("%s Y%d, Y%d, Y%d", op, t, r, r)
	}
	g.p("VEXTRACTF128 $1, Y%d, X%d", r, t)
	g.p("%s X%d, X%d, X%d", op, t, r, r)
}

// total adds the lanes of a register into its lowest one.
func (g *gen) total(op string, r, t int) {
	g.fold(op, r, t)
	g.p("VPERMILPS $0x0e, X%d, X%d", r, t)
	g.p("%s X%d, X%d, X%d", op, t, r, r)
	g.p("VPERMILPS $0x01, X%d, X%d", r, t)
	g.p("%s X%d, X%d, X%d", op, t, r, r)
}

func main() {
	out := flag.String("o", "..", "folder to write to")
	flag.Parse()
	for _, i := range isas {
		g := &gen{isa: i, consts: map[string]uint32{}}
		g.all()
		g.write(*out)
	}
	n := &neon{}
	n.all()
	n.write(*out)
}

const notice = "// Code generated by _gen; DO NOT EDIT.\n\n"

func (g *gen) write(dir string) {
	var s bytes.Buffer
	s.WriteString(notice + "//go:build amd64 && !noasm\n\n#include \"textflag.h\"\n\n")
	fmt.Fprintf(&s, "// Row functions for %s. Sums run in as many lanes as registers hold, are folded from the upper half to the lower,\n// and so depend on the length alone.\n\n", g.doc)
	for _, name := range g.order {
		n := 1
		if !g.wide {
			n = 8
		}
		for i := range n {
			fmt.Fprintf(&s, "DATA %s<>+%d(SB)/4, $0x%08x\n", name, 4*i, g.consts[name])
		}
		fmt.Fprintf(&s, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n\n", name, 4*n)
	}
	words := func(name string, v ...uint32) {
		for i, w := range v {
			fmt.Fprintf(&s, "DATA %s<>+%d(SB)/4, $0x%08x\n", name, 4*i, w)
		}
		fmt.Fprintf(&s, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(v))
	}
	if !g.wide {
		v := make([]uint32, 16)
		for i := range 8 {
			v[i] = 0xffffffff
		}
		words("laneMask", v...)
	}
	twice := make([]uint32, g.width)
	for i := range twice {
		twice[i] = uint32(i / 2)
	}
	words("twice", twice...)
	words("interleave", 0, 4, 1, 5, 2, 6, 3, 7)
	s.Write(g.asm.Bytes())
	save(filepath.Join(dir, g.file+".s"), s.Bytes())
	src, err := format.Source([]byte(notice + "//go:build amd64 && !noasm\n\npackage vec\n" + g.stubs.String()))
	if err != nil {
		log.Fatal(err)
	}
	save(filepath.Join(dir, g.file+".go"), src)
}

func save(path string, data []byte) {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		log.Fatal(err)
	}
}
