package main

import "fmt"

// axpy emits the kernel of one row against a row-major B: eight rows of B are added to a stretch of C at once, each C element
// in ascending k, so that B is read in the order in which it lies.
func (f *file) axpy(z string, w int, suffix string) {
	name := "axpy8" + suffix
	f.p("")
	f.p("// func %s(c, a, b unsafe.Pointer, ldb, n, fresh int)", name)
	f.p("TEXT ·%s(SB), NOSPLIT, $0-48", name)
	fmt.Fprintf(&f.stubs, "\n// %s adds eight rows of B, ldb bytes apart, times the eight values at a to n elements of C, a multiple of %d;\n// fresh ignores what C held.\n//\n//go:noescape\nfunc %s(c, a, b unsafe.Pointer, ldb, n, fresh int)\n", name, w/2, name)
	f.p("\tMOVQ c+0(FP), DI")
	f.p("\tMOVQ a+8(FP), DX")
	f.p("\tMOVQ b+16(FP), AX")
	f.p("\tMOVQ ldb+24(FP), R8")
	f.p("\tMOVQ n+32(FP), CX")
	f.p("\tMOVQ fresh+40(FP), BX")
	f.p("\tLEAQ (R8)(R8*2), R9")
	f.p("\tLEAQ (R8)(R8*4), R10")
	f.p("\tLEAQ (R9)(R8*4), R11")
	for i := 0; i < 8; i++ {
		f.p("\tVBROADCASTSS %d(DX), %s%d", i*4, z, 8+i)
	}
	zero := func(v int) {
		if z == "Z" {
			f.p("\tVPXORD Z%d, Z%d, Z%d", v, v, v)
		} else {
			f.p("\tVPXOR Y%d, Y%d, Y%d", v, v, v)
		}
	}
	body := func(fresh bool) {
		for v := 0; v < 2; v++ {
			if fresh {
				zero(v)
			} else {
				f.p("\tVMOVUPS %d(DI), %s%d", v*w, z, v)
			}
		}
		for i := 0; i < 8; i++ {
			f.p("\tPREFETCHT0 %s", withDisp(rowAddr(i), 512))
			if w == 64 {
				f.p("\tPREFETCHT0 %s", withDisp(rowAddr(i), 512+64))
			}
			for v := 0; v < 2; v++ {
				f.p("\tVFMADD231PS %s, %s%d, %s%d", withDisp(rowAddr(i), v*w), z, 8+i, z, v)
			}
		}
		for v := 0; v < 2; v++ {
			f.p("\tVMOVUPS %s%d, %d(DI)", z, v, v*w)
		}
		f.p("\tADDQ $%d, AX", 2*w)
		f.p("\tADDQ $%d, DI", 2*w)
		f.p("\tSUBQ $%d, CX", w/2)
	}
	f.p("\tTESTQ BX, BX")
	f.p("\tJNE fresh")
	f.p("loop:")
	body(false)
	f.p("\tJG loop")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
	f.p("fresh:")
	body(true)
	f.p("\tJG fresh")
	f.p("\tVZEROUPPER")
	f.p("\tRET")
}
