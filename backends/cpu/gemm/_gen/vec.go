package main

import (
	"fmt"
	"math"
	"strings"
)

// vec emits the row operations of epilogues for one vector width. The sequences of operations are those of vec.go, so that the
// results have the same bits.
type vec struct {
	*file
	z      string // register prefix
	w      int    // bytes
	suffix string
	consts []uint32
	bits   map[uint32]int
	table  string
}

func (v *vec) r(i int) string { return fmt.Sprintf("%s%d", v.z, i) }

// c broadcasts a constant into register i.
func (v *vec) c(x float64, i int) { v.cu(math.Float32bits(float32(x)), i) }

func (v *vec) cu(u uint32, i int) {
	if _, ok := v.bits[u]; !ok {
		v.bits[u] = len(v.consts) * 4
		v.consts = append(v.consts, u)
	}
	v.p("\tVBROADCASTSS %s<>+%d(SB), %s", v.table, v.bits[u], v.r(i))
}

// op emits d = a op b (Intel order a, b).
func (v *vec) op(name string, a, b, d int) { v.p("\t%s %s, %s, %s", name, v.r(b), v.r(a), v.r(d)) }

func (v *vec) logic(name string, a, b, d int) {
	if v.w == 64 {
		name += "D"
	}
	v.op(name, a, b, d)
}

func (v *vec) shift(name string, n, a, d int) { v.p("\t%s $%d, %s, %s", name, n, v.r(a), v.r(d)) }

// exp replaces register x by e^x; it uses registers t to t+3 and 15.
func (v *vec) exp(x, t int) {
	n, f, p := t, t+1, t+2
	v.c(89, 15)
	v.op("VMINPS", 15, x, x)
	v.c(-104, 15)
	v.op("VMAXPS", 15, x, x)
	v.c(1.44269504088896340736, 15)
	v.op("VMULPS", x, 15, n)
	v.p("\tVCVTPS2DQ %s, %s", v.r(n), v.r(n))
	v.p("\tVCVTDQ2PS %s, %s", v.r(n), v.r(f))
	v.c(-0.693145751953125, 15)
	v.op("VFMADD231PS", f, 15, x)
	v.c(-1.42860682030941723212e-6, 15)
	v.op("VFMADD231PS", f, 15, x)
	v.c(0.0013813144570633602, p)
	for _, k := range []float64{0.0083694187311368124, 0.041668456769957433, 0.16666514792644418, 0.4999999305093296} {
		v.c(k, 15)
		v.op("VFMADD213PS", x, 15, p)
	}
	v.op("VMULPS", x, x, f)
	v.op("VFMADD213PS", f, x, p)
	v.c(1, 15)
	v.op("VADDPS", p, 15, p)
	v.shift("VPSRAD", 1, n, f)
	v.op("VPSUBD", n, f, n)
	v.cu(127, 15)
	v.op("VPADDD", f, 15, f)
	v.op("VPADDD", n, 15, n)
	v.shift("VPSLLD", 23, f, f)
	v.shift("VPSLLD", 23, n, n)
	v.op("VMULPS", p, f, p)
	v.op("VMULPS", p, n, x)
}

// act emits one activation: func(x *float32, n int, p, q float32); x is register 0, the result too; 13 and 14 hold p and q.
func (v *vec) act(name string, body func()) {
	full := "act" + name + v.suffix
	v.p("")
	v.p("// func %s(x *float32, n int, p, q float32)", full)
	v.p("TEXT ·%s(SB), NOSPLIT, $0-24", full)
	fmt.Fprintf(&v.stubs, "\n//go:noescape\nfunc %s(x *float32, n int, p, q float32)\n", full)
	v.p("\tMOVQ x+0(FP), DI")
	v.p("\tMOVQ n+8(FP), CX")
	v.p("\tVBROADCASTSS p+16(FP), %s", v.r(13))
	v.p("\tVBROADCASTSS q+20(FP), %s", v.r(14))
	v.p("loop:")
	v.p("\tVMOVUPS (DI), %s", v.r(0))
	body()
	v.p("\tVMOVUPS %s, (DI)", v.r(0))
	v.p("\tADDQ $%d, DI", v.w)
	v.p("\tSUBQ $%d, CX", v.w/4)
	v.p("\tJG loop")
	v.p("\tVZEROUPPER")
	v.p("\tRET")
}

func (v *vec) zero(i int) { v.logic("VPXOR", i, i, i) }

// greater blends: d = a > b ? yes : no.
func (v *vec) blendGreater(a, b, yes, no, d int) { v.blend(30, a, b, yes, no, d) } // GT_OQ

func (v *vec) blend(pred, a, b, yes, no, d int) {
	if v.w == 64 {
		v.p("\tVCMPPS $%d, %s, %s, K1", pred, v.r(b), v.r(a))
		v.p("\tVBLENDMPS %s, %s, K1, %s", v.r(yes), v.r(no), v.r(d))
		return
	}
	v.p("\tVCMPPS $%d, %s, %s, %s", pred, v.r(b), v.r(a), v.r(12))
	v.p("\tVBLENDVPS %s, %s, %s, %s", v.r(12), v.r(yes), v.r(no), v.r(d))
}

// boundBelow replaces -Inf in register 0 by the lowest number: what multiplies x is zero there, and infinity times zero must not
// come up.
func (v *vec) boundBelow() {
	v.c(-math.MaxFloat32, 15)
	v.op("VMAXPS", 15, 0, 0)
}

func (v *vec) all() {
	v.act("ReLU", func() {
		v.zero(1)
		v.op("VMAXPS", 1, 0, 0)
	})
	v.act("Clip", func() {
		v.op("VMAXPS", 13, 0, 0)
		v.op("VMINPS", 14, 0, 0)
	})
	v.act("LeakyReLU", func() {
		v.zero(1)
		v.op("VMULPS", 0, 13, 2)
		v.blendGreater(0, 1, 0, 2, 0)
	})
	v.act("HardSwish", func() {
		v.boundBelow()
		v.c(3, 1)
		v.op("VADDPS", 0, 1, 1)
		v.zero(2)
		v.op("VMAXPS", 2, 1, 1)
		v.c(6, 2)
		v.op("VMINPS", 2, 1, 1)
		v.op("VMULPS", 0, 1, 0)
		v.c(1.0/6, 1)
		v.op("VMULPS", 0, 1, 0)
	})
	v.act("HardSigmoid", func() {
		v.op("VMULPS", 0, 13, 0)
		v.op("VADDPS", 0, 14, 0)
		v.zero(1)
		v.op("VMAXPS", 1, 0, 0)
		v.c(1, 1)
		v.op("VMINPS", 1, 0, 0)
	})
	onePlus := func(x int) { // e^x + 1
		v.exp(x, 4)
		v.c(1, 15)
		v.op("VADDPS", x, 15, x)
	}
	negate := func(a, d int) {
		v.cu(1<<31, 15)
		v.logic("VPXOR", a, 15, d)
	}
	v.act("Sigmoid", func() {
		negate(0, 1)
		onePlus(1)
		v.op("VDIVPS", 15, 1, 0) // 15 holds 1
	})
	v.act("SiLU", func() {
		v.boundBelow()
		negate(0, 1)
		onePlus(1)
		v.op("VDIVPS", 0, 1, 0)
	})
	v.act("QuickGELU", func() {
		v.boundBelow()
		v.c(-1.702, 1)
		v.op("VMULPS", 0, 1, 1)
		onePlus(1)
		v.op("VDIVPS", 0, 1, 0)
	})
	v.act("Tanh", func() {
		v.cu(0x7fffffff, 15)
		v.logic("VPAND", 0, 15, 1) // a
		v.op("VMULPS", 0, 0, 2)    // s
		v.c(-0.0056015646347443063, 3)
		for _, k := range []float64{0.020549617203158212, -0.053713467724431518, 0.13331145271793955, -0.33333271813348927} {
			v.c(k, 15)
			v.op("VFMADD213PS", 2, 15, 3)
		}
		v.op("VMULPS", 3, 2, 3)
		v.op("VFMADD213PS", 0, 0, 3) // small = p*s*x + x
		v.op("VADDPS", 1, 1, 2)
		onePlus(2)
		v.c(2, 8)
		v.op("VDIVPS", 8, 2, 2)
		v.op("VSUBPS", 15, 2, 2) // large
		v.cu(1<<31, 15)
		v.logic("VPAND", 0, 15, 4)
		v.logic("VPOR", 2, 4, 2)
		v.c(0.625, 15)
		v.blend(29, 1, 15, 2, 3, 0) // GE_OQ
	})
	v.act("GELU", func() {
		v.cu(0x7fffffff, 15)
		v.logic("VPAND", 0, 15, 1)
		v.c(16, 15)
		v.op("VMINPS", 15, 1, 1) // a
		v.c(math.Sqrt2/2, 15)
		v.op("VMULPS", 1, 15, 2) // z
		v.c(0.35, 3)
		v.c(1, 15)
		v.op("VFMADD213PS", 2, 15, 3)
		v.op("VDIVPS", 15, 3, 3) // t
		v.c(0.061222624883469346, 8)
		for _, k := range []float64{-0.36901071144780456, 0.75948529616766712, -0.6218539057002601, 0.56257221717433227,
			-0.0084095277634167762, 0.22633306245556277, 0.19186257881347073, 0.19779834735016024} {
			v.c(k, 15)
			v.op("VFMADD213PS", 3, 15, 8)
		}
		v.op("VMULPS", 8, 3, 8)
		v.op("VMULPS", 2, 2, 2)
		negate(2, 2)
		v.exp(2, 4)
		v.op("VMULPS", 8, 2, 8)
		v.c(0.5, 15)
		v.op("VMULPS", 1, 15, 1)
		v.op("VMULPS", 8, 1, 8)
		v.zero(1)
		v.op("VMAXPS", 1, 0, 0)
		v.op("VSUBPS", 0, 8, 0)
	})
	v.act("GELUTanh", func() {
		v.boundBelow()
		v.op("VMULPS", 0, 0, 1)
		const a = 2 * 0.7978845608028654
		v.c(-a*0.044715, 2)
		v.c(-a, 15)
		v.op("VFMADD213PS", 2, 15, 1)
		v.op("VMULPS", 0, 1, 1)
		onePlus(1)
		v.op("VDIVPS", 0, 1, 0)
	})
	v.act("FromS32", func() { v.p("\tVCVTDQ2PS %s, %s", v.r(0), v.r(0)) })
	v.act("Scale", func() { v.op("VMULPS", 0, 13, 0) })

	two := func(name string, ins string) {
		full := name + v.suffix
		v.p("")
		v.p("// func %s(x, y *float32, n int)", full)
		v.p("TEXT ·%s(SB), NOSPLIT, $0-24", full)
		fmt.Fprintf(&v.stubs, "\n//go:noescape\nfunc %s(x, y *float32, n int)\n", full)
		v.p("\tMOVQ x+0(FP), DI")
		v.p("\tMOVQ y+8(FP), SI")
		v.p("\tMOVQ n+16(FP), CX")
		v.p("loop:")
		v.p("\tVMOVUPS (DI), %s", v.r(0))
		v.p("\t%s (SI), %s, %s", ins, v.r(0), v.r(0))
		v.p("\tVMOVUPS %s, (DI)", v.r(0))
		v.p("\tADDQ $%d, DI", v.w)
		v.p("\tADDQ $%d, SI", v.w)
		v.p("\tSUBQ $%d, CX", v.w/4)
		v.p("\tJG loop")
		v.p("\tVZEROUPPER")
		v.p("\tRET")
	}
	two("vecMul", "VMULPS")
	two("vecAdd", "VADDPS")

	convert := func(name, doc string, stepDst, stepSrc int, body func()) {
		full := name + v.suffix
		v.p("")
		v.p("// func %s(dst, src unsafe.Pointer, n int)", full)
		v.p("TEXT ·%s(SB), NOSPLIT, $0-24", full)
		fmt.Fprintf(&v.stubs, "\n// %s %s\n//\n//go:noescape\nfunc %s(dst, src unsafe.Pointer, n int)\n", full, doc, full)
		v.p("\tMOVQ dst+0(FP), DI")
		v.p("\tMOVQ src+8(FP), SI")
		v.p("\tMOVQ n+16(FP), CX")
		v.p("loop:")
		body()
		v.p("\tADDQ $%d, SI", stepSrc)
		v.p("\tADDQ $%d, DI", stepDst)
		v.p("\tSUBQ $%d, CX", v.w/4)
		v.p("\tJG loop")
		v.p("\tVZEROUPPER")
		v.p("\tRET")
	}
	half := "X"
	if v.w == 64 {
		half = "Y"
	}
	convert("vecBF16", "rounds f32 to bf16.", v.w/2, v.w, func() {
		v.p("\tVMOVUPS (SI), %s", v.r(0))
		v.shift("VPSRLD", 16, 0, 1)
		v.cu(1, 15)
		v.logic("VPAND", 1, 15, 2)
		v.cu(0x7fff, 15)
		v.op("VPADDD", 2, 15, 2)
		v.op("VPADDD", 0, 2, 2)
		v.shift("VPSRLD", 16, 2, 2)
		v.cu(0x40, 15)
		v.logic("VPOR", 1, 15, 1) // NaN keeps its upper bits and is quiet
		v.blend(3, 0, 0, 1, 2, 0) // UNORD
		if v.w == 64 {
			v.p("\tVPMOVDW Z0, (DI)")
		} else {
			v.p("\tVPACKUSDW Y0, Y0, Y0")
			v.p("\tVPERMQ $8, Y0, Y0")
			v.p("\tVMOVDQU X0, (DI)")
		}
	})
	convert("vecF16", "rounds f32 to f16.", v.w/2, v.w, func() {
		v.p("\tVMOVUPS (SI), %s", v.r(0))
		v.p("\tVCVTPS2PH $0, %s, %s0", v.r(0), half)
		v.p("\tVMOVDQU %s0, (DI)", half)
	})
	convert("vecFromBF16", "widens bf16 to f32.", v.w, v.w/2, func() {
		v.p("\tVPMOVZXWD (SI), %s", v.r(0))
		v.shift("VPSLLD", 16, 0, 0)
		v.p("\tVMOVUPS %s, (DI)", v.r(0))
	})
	convert("vecFromF16", "widens f16 to f32.", v.w, v.w/2, func() {
		v.p("\tVCVTPH2PS (SI), %s", v.r(0))
		v.p("\tVMOVUPS %s, (DI)", v.r(0))
	})
	// pairs: n lanes of two bf16; row t of nr lanes gives rows 2t and 2t+1 of nr f32.
	full := "vecFromPairs" + v.suffix
	v.p("")
	v.p("// func %s(dst, src unsafe.Pointer, pairs, vectors int)", full)
	v.p("TEXT ·%s(SB), NOSPLIT, $0-32", full)
	fmt.Fprintf(&v.stubs, "\n// %s widens pairs of bf16, a row of vectors at a time, into two rows of f32 each.\n//\n//go:noescape\nfunc %s(dst, src unsafe.Pointer, pairs, vectors int)\n", full, full)
	v.p("\tMOVQ dst+0(FP), DI")
	v.p("\tMOVQ src+8(FP), SI")
	v.p("\tMOVQ pairs+16(FP), CX")
	v.p("\tMOVQ vectors+24(FP), R8")
	v.p("\tIMUL3Q $%d, R8, DX", v.w)
	v.cu(0xffff0000, 15)
	v.p("row:")
	v.p("\tMOVQ R8, BX")
	v.p("lane:")
	v.p("\tVMOVDQU%s (SI), %s", map[int]string{64: "32", 32: ""}[v.w], v.r(0))
	v.shift("VPSLLD", 16, 0, 1)
	v.logic("VPAND", 0, 15, 0)
	v.p("\tVMOVUPS %s, (DI)", v.r(1))
	v.p("\tVMOVUPS %s, (DI)(DX*1)", v.r(0))
	v.p("\tADDQ $%d, SI", v.w)
	v.p("\tADDQ $%d, DI", v.w)
	v.p("\tDECQ BX")
	v.p("\tJNZ lane")
	v.p("\tADDQ DX, DI")
	v.p("\tDECQ CX")
	v.p("\tJNZ row")
	v.p("\tVZEROUPPER")
	v.p("\tRET")

	full = "vecQuant" + v.suffix
	v.p("")
	v.p("// func %s(dst *uint8, x *float32, n int, scale, low, high float32, zero int32)", full)
	v.p("TEXT ·%s(SB), NOSPLIT, $0-40", full)
	fmt.Fprintf(&v.stubs, "\n// %s scales, clamps, rounds, adds zero and keeps the low bytes.\n//\n//go:noescape\nfunc %s(dst *uint8, x *float32, n int, scale, low, high float32, zero int32)\n", full, full)
	v.p("\tMOVQ dst+0(FP), DI")
	v.p("\tMOVQ x+8(FP), SI")
	v.p("\tMOVQ n+16(FP), CX")
	v.p("\tVBROADCASTSS scale+24(FP), %s", v.r(11))
	v.p("\tVBROADCASTSS low+28(FP), %s", v.r(12))
	v.p("\tVBROADCASTSS high+32(FP), %s", v.r(13))
	v.p("\tMOVL zero+36(FP), AX")
	v.p("\tVMOVD AX, X14")
	v.p("\tVPBROADCASTD X14, %s", v.r(14))
	if v.w == 32 {
		v.p("\tVMOVDQU lowBytes<>(SB), Y10")
		v.p("\tVMOVDQU joinLanes<>(SB), Y9")
	}
	v.p("loop:")
	v.p("\tVMULPS (SI), %s, %s", v.r(11), v.r(0))
	v.op("VMAXPS", 0, 12, 0)
	v.op("VMINPS", 13, 0, 0)
	v.p("\tVCVTPS2DQ %s, %s", v.r(0), v.r(0))
	v.op("VPADDD", 0, 14, 0)
	if v.w == 64 {
		v.p("\tVPMOVDB Z0, (DI)")
	} else {
		v.p("\tVPSHUFB Y10, Y0, Y0")
		v.p("\tVPERMD Y0, Y9, Y0")
		v.p("\tVMOVQ X0, (DI)")
	}
	v.p("\tADDQ $%d, SI", v.w)
	v.p("\tADDQ $%d, DI", v.w/4)
	v.p("\tSUBQ $%d, CX", v.w/4)
	v.p("\tJG loop")
	v.p("\tVZEROUPPER")
	v.p("\tRET")
}

// vecFile writes the operations of one width.
func vecFile(out, tags, suffix, z string, w int) {
	v := &vec{file: &file{}, z: z, w: w, suffix: suffix, bits: map[uint32]int{}, table: "vecConst" + suffix}
	v.all()
	var h strings.Builder
	for i, c := range v.consts {
		fmt.Fprintf(&h, "DATA %s<>+%d(SB)/4, $0x%08x\n", v.table, i*4, c)
	}
	fmt.Fprintf(&h, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", v.table, len(v.consts)*4)
	if w == 32 {
		for l := 0; l < 2; l++ {
			fmt.Fprintf(&h, "DATA lowBytes<>+%d(SB)/8, $0x808080800c080400\nDATA lowBytes<>+%d(SB)/8, $0x8080808080808080\n", l*16, l*16+8)
		}
		h.WriteString("GLOBL lowBytes<>(SB), RODATA|NOPTR, $32\n")
		for i, x := range []int{0, 4, 1, 1, 1, 1, 1, 1} {
			fmt.Fprintf(&h, "DATA joinLanes<>+%d(SB)/4, $%d\n", i*4, x)
		}
		h.WriteString("GLOBL joinLanes<>(SB), RODATA|NOPTR, $32\n")
	}
	v.write(out, "vec_"+strings.ToLower(suffix)+"_amd64", tags, "\n"+h.String(), "\nimport \"unsafe\"\n")
}
