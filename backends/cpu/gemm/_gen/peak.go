package main

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/cpu/_encode"
)

// peaks emits loops of nothing but one instruction on 16 independent registers: the ceiling that products are measured by.
func (f *file) peaks() {
	loop := func(name, isa string, reg string, ins func(acc int) string) {
		doc := "runs n rounds of 16 independent " + isa + " instructions."
		f.p("")
		f.p("// func %s(n int)", name)
		f.p("TEXT ·%s(SB), NOSPLIT, $0-8", name)
		fmt.Fprintf(&f.stubs, "\n// %s %s\nfunc %s(n int)\n", name, doc, name)
		f.p("\tMOVQ n+0(FP), CX")
		for i := 0; i < 16; i++ {
			if reg == "Z" {
				f.p("\tVPXORD Z%d, Z%d, Z%d", i, i, i)
			} else if i < 14 {
				f.p("\tVPXOR Y%d, Y%d, Y%d", i, i, i)
			}
		}
		n := 16
		if reg == "Z" {
			f.p("\tVPXORD Z30, Z30, Z30")
			f.p("\tVPXORD Z31, Z31, Z31")
		} else {
			n = 14
			f.p("\tVPXOR Y14, Y14, Y14")
			f.p("\tVPXOR Y15, Y15, Y15")
		}
		f.p("loop:")
		for r := 0; r < 16; r++ {
			f.p("\t%s", ins(r%n))
		}
		f.p("\tDECQ CX")
		f.p("\tJNZ loop")
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
	z := func(op string) func(int) string {
		return func(i int) string { return fmt.Sprintf("%s Z30, Z31, Z%d", op, i) }
	}
	loop("peakFMA512", "VFMADD231PS zmm", "Z", z("VFMADD231PS"))
	loop("peakVNNI512", "VPDPBUSD zmm", "Z", z("VPDPBUSD"))
	loop("peakBF16512", "VDPBF16PS zmm", "Z", func(i int) string {
		return encode.VDPBF16PS("Z30", "Z31", fmt.Sprintf("Z%d", i)).String()
	})
	loop("peakFMA256", "VFMADD231PS ymm", "Y", func(i int) string { return fmt.Sprintf("VFMADD231PS Y14, Y15, Y%d", i) })
	loop("peakVNNI256", "VEX VPDPBUSD ymm", "Y", func(i int) string {
		return encode.VPDPBUSD("Y14", "Y15", fmt.Sprintf("Y%d", i)).String()
	})
	loop("peakMADD256", "VPMADDWD ymm", "Y", func(i int) string { return fmt.Sprintf("VPMADDWD Y14, Y15, Y%d", i) })
}
