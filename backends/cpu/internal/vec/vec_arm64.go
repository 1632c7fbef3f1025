//go:build arm64 && !noasm

package vec

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

func init() { sets[cpuinfo.NEON] = &setNEON }

var setNEON = Funcs{
	ISA:    cpuinfo.NEON,
	Add:    func(dst, a, b []float32) { addNEON(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Sub:    func(dst, a, b []float32) { subNEON(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Mul:    func(dst, a, b []float32) { mulNEON(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Div:    func(dst, a, b []float32) { divNEON(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Max:    func(dst, a, b []float32) { maxNEON(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Min:    func(dst, a, b []float32) { minNEON(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Scale:  func(dst, a []float32, mul, add float32) { scaleNEON(ptr(dst), same(a, dst), len(dst), mul, add) },
	MulRow: func(dst, a, w []float32, s float32) { mulRowNEON(ptr(dst), same(a, dst), same(w, dst), len(dst), s) },
	Axpy:   func(dst, a []float32, s float32) { axpyNEON(ptr(dst), same(a, dst), len(dst), s) },
	Exp:    func(dst, a []float32) { expNEON(ptr(dst), same(a, dst), len(dst)) },
	Tanh:   tanhGo,
	Dot:    func(a, b []float32) float32 { return dotNEON(ptr(a), same(b, a), len(a)) },
	Sum:    func(a []float32) float32 { return chunked(a, sumNEON) },
	SumSq:  func(a []float32) float32 { return chunked(a, sumSqNEON) },
	MaxOf: func(a []float32) float32 {
		if len(a) == 0 {
			return float32(math.Inf(-1))
		}
		return maxOfNEON(ptr(a), len(a))
	},
	ExpSub: func(dst, a []float32, top float32) float32 {
		if math.IsInf(float64(top), -1) {
			clear(dst)
			return 0
		}
		a = a[:len(dst)]
		if len(dst) <= sumChunk {
			return expSubNEON(ptr(dst), ptr(a), len(dst), top)
		}
		var s float64
		for len(dst) > 0 {
			n := min(len(dst), sumChunk)
			s += float64(expSubNEON(ptr(dst), ptr(a), n, top))
			dst, a = dst[n:], a[n:]
		}
		return float32(s)
	},
	Dots: func(dst, q, k []float32, stride int) {
		if checkRows(len(dst), len(q), len(k), stride) {
			dotsNEON(ptr(dst), ptr(q), ptr(k), len(dst), len(q), 4*stride)
		} else {
			clear(dst)
		}
	},
	Weigh: func(acc, w, v []float32, stride int) {
		if checkRows(len(w), len(acc), len(v), stride) {
			weighNEON(ptr(acc), ptr(w), ptr(v), len(w), len(acc), 4*stride)
		}
	},
	DotsF16:   dotsHalf(dotsF16NEON),
	DotsBF16:  dotsHalf(dotsBF16NEON),
	WeighF16:  weighHalf(weighF16NEON),
	WeighBF16: weighHalf(weighBF16NEON),
	Rotate:    func(x, y, cos, sin []float32) { rotateNEON(ptr(x), same(y, x), same(cos, x), same(sin, x), len(x)) },
	RotatePairs: func(x, cos, sin []float32) {
		n := len(x) / 2 &^ 3
		if n > 0 {
			rotatePairsNEON(ptr(x), ptr(cos[:n]), ptr(sin[:n]), n)
		}
		rotatePairsGo(x[2*n:], cos[n:len(x)/2], sin[n:])
	},
	FromF16:  widen(fromF16NEON, tensor.F16sToF32),
	FromBF16: widen(fromBF16NEON, tensor.BF16sToF32),
	ToF16:    narrow(toF16NEON, tensor.F32sToF16),
	ToBF16:   narrow(toBF16NEON, tensor.F32sToBF16),
	ToQ8_0:   toQ8_0Go,
	AddBytes: addBytesGo, Quantize: quantizeGo,
	FromQ8_0: func(dst []float32, src []byte) {
		if n := len(dst) / 32; n > 0 {
			fromQ8_0NEON(ptr(dst), unsafe.SliceData(src[:34*n]), n)
		}
	},
}

// widen gives a kernel for whole vectors its rest, in Go.
func widen(kernel func(dst *float32, src *uint16, n int), rest func(dst []float32, src []uint16)) func(dst []float32, src []uint16) {
	return func(dst []float32, src []uint16) {
		dst = dst[:len(src)]
		n := len(src) &^ 7
		if n > 0 {
			kernel(ptr(dst), half(src), n)
		}
		rest(dst[n:], src[n:])
	}
}

func narrow(kernel func(dst *uint16, src *float32, n int), rest func(dst []uint16, src []float32)) func(dst []uint16, src []float32) {
	return func(dst []uint16, src []float32) {
		dst = dst[:len(src)]
		n := len(src) &^ 7
		if n > 0 {
			kernel(half(dst), ptr(src), n)
		}
		rest(dst[n:], src[n:])
	}
}
