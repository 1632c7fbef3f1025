package gemm

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/fma"
)

// The row operations in Go: twins of the assembly, operation by operation, with the same bits. Products that are added are
// written with an explicit conversion, which keeps the compiler from fusing them where the processor could.

var portableVec = vecOps{
	fromS32: func(x []float32) {
		for i, v := range x {
			x[i] = float32(int32(math.Float32bits(v)))
		}
	},
	scale: func(x []float32, s float32) {
		for i := range x {
			x[i] *= s
		}
	},
	mul: func(x, y []float32) {
		for i := range x {
			x[i] *= y[i]
		}
	},
	add: func(x, y []float32) {
		for i := range x {
			x[i] += y[i]
		}
	},
	act: [numActivations]func([]float32, float32, float32){
		ReLU:        each(func(x, _, _ float32) float32 { return maxNaN(0, x) }),
		Clip:        each(func(x, p, q float32) float32 { return minNaN(q, maxNaN(p, x)) }),
		LeakyReLU:   each(leakyReLU),
		HardSwish:   each(hardSwish),
		HardSigmoid: each(hardSigmoid),
		Sigmoid:     each(func(x, _, _ float32) float32 { return 1 / (exp32(-x) + 1) }),
		SiLU:        each(silu32),
		Tanh:        each(tanh32),
		GELU:        each(gelu32),
		GELUTanh:    each(geluTanh32),
		QuickGELU:   each(quickGELU32),
	},
	widenPanel: widenPanel,
	fromHalf: func(dst []float32, src unsafe.Pointer, t Type) {
		convert := fromBF16
		if t == F16 {
			convert = fromF16
		}
		for i, h := range unsafe.Slice((*uint16)(src), len(dst)) {
			dst[i] = convert(h)
		}
	},
	bf16: func(dst []uint16, x []float32) {
		for i, v := range x {
			dst[i] = toBF16(v)
		}
	},
	f16: func(dst []uint16, x []float32) {
		for i, v := range x {
			dst[i] = toF16(v)
		}
	},
	quant: func(dst []uint8, x []float32, scale float32, zero, low, high int32) {
		for i, v := range x {
			y := float32(v * scale)
			y = minSecond(float32(high-zero), maxSecond(y, float32(low-zero)))
			dst[i] = uint8(int32(math.RoundToEven(float64(y))) + zero)
		}
	},
}

func each(f func(x, p, q float32) float32) func([]float32, float32, float32) {
	return func(x []float32, p, q float32) {
		for i, v := range x {
			x[i] = f(v, p, q)
		}
	}
}

// maxNaN and minNaN return b unless a is greater (less), so that a NaN in b comes through: VMAXPS and VMINPS.
func maxNaN(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

func minNaN(a, b float32) float32 {
	if a < b {
		return a
	}
	return b
}

// maxSecond returns low for a NaN.
func maxSecond(x, low float32) float32  { return maxNaN(x, low) }
func minSecond(high, x float32) float32 { return minNaN(high, x) }

func leakyReLU(x, p, _ float32) float32 {
	if x > 0 {
		return x
	}
	return x * p
}

// boundBelow replaces -Inf by the lowest number: what multiplies x is zero there, and infinity times zero must not come up.
func boundBelow(x float32) float32 { return maxNaN(-math.MaxFloat32, x) }

func silu32(x, _, _ float32) float32 {
	x = boundBelow(x)
	return x / (exp32(-x) + 1)
}

func quickGELU32(x, _, _ float32) float32 {
	x = boundBelow(x)
	return x / (exp32(x*-1.702) + 1)
}

func hardSwish(x, _, _ float32) float32 {
	x = boundBelow(x)
	t := minNaN(6, maxNaN(0, x+3))
	return float32(x*t) * (1.0 / 6)
}

func hardSigmoid(x, p, q float32) float32 {
	return minNaN(1, maxNaN(0, float32(x*p)+q))
}

// Coefficients of the elementary functions. They are minimax fits made for this package (Remez exchange, relative error): e^r
// on |r| <= ln2/2 to 3.3e-9, tanh on |x| <= 0.64 to 5.4e-9, erfc(z) e^(z^2) (1 + pz) as a polynomial in 1/(1 + pz) on z <= 6.6
// to 1.8e-8.
const (
	expMax = 89
	expMin = -104
	log2e  = 1.44269504088896340736
	ln2hi  = 0.693145751953125 // 16 bits, so that its product with the exponent is exact
	ln2lo  = 1.42860682030941723212e-6

	exp0 = 0.4999999305093296
	exp1 = 0.16666514792644418
	exp2 = 0.041668456769957433
	exp3 = 0.0083694187311368124
	exp4 = 0.0013813144570633602

	tanhSmall = 0.625
	tanh0     = -0.33333271813348927
	tanh1     = 0.13331145271793955
	tanh2     = -0.053713467724431518
	tanh3     = 0.020549617203158212
	tanh4     = -0.0056015646347443063

	erfcP = 0.35
	erfc0 = 0.19779834735016024
	erfc1 = 0.19186257881347073
	erfc2 = 0.22633306245556277
	erfc3 = -0.0084095277634167762
	erfc4 = 0.56257221717433227
	erfc5 = -0.6218539057002601
	erfc6 = 0.75948529616766712
	erfc7 = -0.36901071144780456
	erfc8 = 0.061222624883469346
)

// exp32 is e^x: 2^n e^r with r in half an octave around 0, scaled in two steps so that subnormal results come out right.
func exp32(x float32) float32 {
	x = maxNaN(expMin, minNaN(expMax, x))
	n := int32(math.RoundToEven(float64(float32(x * log2e))))
	f := float32(n)
	r := fma.F32(f, -ln2hi, x)
	r = fma.F32(f, -ln2lo, r)
	p := fma.F32(exp4, r, exp3)
	p = fma.F32(p, r, exp2)
	p = fma.F32(p, r, exp1)
	p = fma.F32(p, r, exp0)
	p = fma.F32(p, float32(r*r), r)
	p++
	h := n >> 1
	return float32(p*pow2(h)) * pow2(n-h)
}

func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

func tanh32(x, _, _ float32) float32 {
	a := abs32(x)
	s := float32(x * x)
	p := fma.F32(tanh4, s, tanh3)
	p = fma.F32(p, s, tanh2)
	p = fma.F32(p, s, tanh1)
	p = fma.F32(p, s, tanh0)
	small := fma.F32(float32(p*s), x, x)
	large := 1 - 2/(exp32(a+a)+1)
	if a >= tanhSmall {
		return math.Float32frombits(math.Float32bits(large) | math.Float32bits(x)&(1<<31))
	}
	return small
}

func gelu32(x, _, _ float32) float32 {
	a := minNaN(16, abs32(x)) // beyond 16 the tail is zero, and infinity times zero must not come up
	z := float32(a * math.Sqrt2 / 2)
	t := 1 / fma.F32(erfcP, z, 1)
	p := fma.F32(erfc8, t, erfc7)
	p = fma.F32(p, t, erfc6)
	p = fma.F32(p, t, erfc5)
	p = fma.F32(p, t, erfc4)
	p = fma.F32(p, t, erfc3)
	p = fma.F32(p, t, erfc2)
	p = fma.F32(p, t, erfc1)
	p = fma.F32(p, t, erfc0)
	p = float32(p * t)
	e := exp32(-float32(z * z))
	tail := float32(float32(p*e) * float32(a*0.5))
	return maxNaN(0, x) - tail
}

func geluTanh32(x, _, _ float32) float32 {
	x = boundBelow(x)
	// (1 + tanh u) / 2 = 1 / (1 + e^-2u)
	s := float32(x * x)
	w := fma.F32(s, -2*0.7978845608028654*0.044715, -2*0.7978845608028654)
	return x / (exp32(float32(x*w)) + 1)
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func toBF16(v float32) uint16 {
	u := math.Float32bits(v)
	if v != v {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toF16 rounds to nearest even, to subnormals and to infinity as VCVTPS2PH does.
func toF16(v float32) uint16 {
	u := math.Float32bits(v)
	sign := uint16(u >> 16 & 0x8000)
	u &^= 1 << 31
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00 | uint16(u>>13)&0x3ff
	case u >= 0x47800000: // 65536 and more; values from 65520 on round up to infinity below
		return sign | 0x7c00
	case u < 0x38800000: // subnormal: adding 0.5 leaves the rounded value in the low bits
		f := math.Float32frombits(u) + 0.5
		return sign | uint16(math.Float32bits(f)-0x3f000000)
	}
	u += 0xfff + u>>13&1
	return sign | uint16((u-0x38000000)>>13)
}

func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	e, m := uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case e == 31 && m != 0:
		return math.Float32frombits(sign | 0x7fc00000 | m<<13)
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000)
	case e == 0:
		f := float32(m) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	}
	return math.Float32frombits(sign | (e+112)<<23 | m<<13)
}

func widenPanel(dst, src unsafe.Pointer, f format, kc int) {
	out := unsafe.Slice((*float32)(dst), kc*f.nr)
	in := unsafe.Slice((*uint16)(src), ceilDiv(kc, f.kr)*f.nr*f.kr)
	convert := fromBF16
	if f.elem == F16 {
		convert = fromF16
	}
	for t := range kc {
		row := in[t/f.kr*f.nr*f.kr:]
		for j := range f.nr {
			out[t*f.nr+j] = convert(row[j*f.kr+t%f.kr])
		}
	}
}

// vecFor returns the row operations of a level.
func vecFor(isa ISA) *vecOps {
	if v := archVec(isa); v != nil {
		return v
	}
	return &portableVec
}

// bestVec returns the row operations of the pinned or best level.
func bestVec() *vecOps {
	isa, _ := cpuinfo.Pinned()
	return vecFor(isa)
}
