//go:build amd64 && !noasm

package vec

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

//go:generate go run -C _gen . -o ..

func init() {
	if cpuinfo.Get().Features.FetchesAlone {
		setAVX512.leaveFetching()
	}
	sets[cpuinfo.AVX512] = &setAVX512
	sets[cpuinfo.AVX2] = &setAVX2
}

// leaveFetching takes the functions that do not ask for rows of keys and values ahead.
func (v *Funcs) leaveFetching() {
	v.DotsF16, v.DotsBF16 = dotsHalf(dotsF16AloneAVX512), dotsHalf(dotsBF16AloneAVX512)
	v.WeighF16, v.WeighBF16 = weighHalf(weighF16AloneAVX512), weighHalf(weighBF16AloneAVX512)
}

var setAVX512 = Funcs{
	ISA:    cpuinfo.AVX512,
	Add:    func(dst, a, b []float32) { addAVX512(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Sub:    func(dst, a, b []float32) { subAVX512(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Mul:    func(dst, a, b []float32) { mulAVX512(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Div:    func(dst, a, b []float32) { divAVX512(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Max:    func(dst, a, b []float32) { maxAVX512(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Min:    func(dst, a, b []float32) { minAVX512(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Scale:  func(dst, a []float32, mul, add float32) { scaleAVX512(ptr(dst), same(a, dst), len(dst), mul, add) },
	MulRow: func(dst, a, w []float32, s float32) { mulRowAVX512(ptr(dst), same(a, dst), same(w, dst), len(dst), s) },
	Axpy:   func(dst, a []float32, s float32) { axpyAVX512(ptr(dst), same(a, dst), len(dst), s) },
	Exp:    func(dst, a []float32) { expAVX512(ptr(dst), same(a, dst), len(dst)) },
	Tanh:   tanhGo,
	Dot:    func(a, b []float32) float32 { return dotAVX512(ptr(a), same(b, a), len(a)) },
	Sum:    func(a []float32) float32 { return chunked(a, sumAVX512) },
	SumSq:  func(a []float32) float32 { return chunked(a, sumSqAVX512) },
	MaxOf: func(a []float32) float32 {
		if len(a) == 0 {
			return float32(math.Inf(-1))
		}
		return maxOfAVX512(ptr(a), len(a))
	},
	ExpSub: func(dst, a []float32, top float32) float32 {
		if math.IsInf(float64(top), -1) {
			clear(dst)
			return 0
		}
		a = a[:len(dst)]
		if len(dst) <= sumChunk {
			return expSubAVX512(ptr(dst), ptr(a), len(dst), top)
		}
		var s float64
		for len(dst) > 0 {
			n := min(len(dst), sumChunk)
			s += float64(expSubAVX512(ptr(dst), ptr(a), n, top))
			dst, a = dst[n:], a[n:]
		}
		return float32(s)
	},
	Dots: func(dst, q, k []float32, stride int) {
		if checkRows(len(dst), len(q), len(k), stride) {
			dotsAVX512(ptr(dst), ptr(q), ptr(k), len(dst), len(q), 4*stride)
		} else {
			clear(dst)
		}
	},
	Weigh: func(acc, w, v []float32, stride int) {
		if checkRows(len(w), len(acc), len(v), stride) {
			weighAVX512(ptr(acc), ptr(w), ptr(v), len(w), len(acc), 4*stride)
		}
	},
	DotsF16:   dotsHalf(dotsF16AVX512),
	DotsBF16:  dotsHalf(dotsBF16AVX512),
	WeighF16:  weighHalf(weighF16AVX512),
	WeighBF16: weighHalf(weighBF16AVX512),
	Rotate:    func(x, y, cos, sin []float32) { rotateAVX512(ptr(x), same(y, x), same(cos, x), same(sin, x), len(x)) },
	RotatePairs: func(x, cos, sin []float32) {
		rotatePairsAVX512(ptr(x), ptr(cos[:len(x)/2]), ptr(sin[:len(x)/2]), len(x)&^1)
	},
	FromF16: func(dst []float32, src []uint16) {
		dst = dst[:len(src)]
		n := len(src) &^ 15
		fromF16AVX512(ptr(dst), half(src), n)
		tensor.F16sToF32(dst[n:], src[n:])
	},
	FromBF16: func(dst []float32, src []uint16) {
		dst = dst[:len(src)]
		n := len(src) &^ 15
		fromBF16AVX512(ptr(dst), half(src), n)
		tensor.BF16sToF32(dst[n:], src[n:])
	},
	ToF16: func(dst []uint16, src []float32) {
		dst = dst[:len(src)]
		n := len(src) &^ 15
		toF16AVX512(half(dst), ptr(src), n)
		tensor.F32sToF16(dst[n:], src[n:])
	},
	ToBF16: func(dst []uint16, src []float32) {
		dst = dst[:len(src)]
		n := len(src) &^ 15
		toBF16AVX512(half(dst), ptr(src), n)
		tensor.F32sToBF16(dst[n:], src[n:])
	}, FromQ8_0: func(dst []float32, src []byte) {
		n := len(dst) / 32
		fromQ8_0AVX512(ptr(dst), unsafe.SliceData(src[:34*n]), n)
	},
	AddBytes: addBytesAVX2, Quantize: quantizeWhole, ByteSums: true, multiplyBytes: multiplyWhole,
	MaxU8: maxBytes[uint8](maxBytesUAVX2), MaxS8: maxBytes[int8](maxBytesSAVX2),
	ToQ8_0: func(dst []byte, src []float32) int {
		n := len(src) / 32
		return toQ8_0AVX512(unsafe.SliceData(dst[:34*n]), ptr(src), n)
	},
}

var setAVX2 = Funcs{
	ISA:    cpuinfo.AVX2,
	Add:    func(dst, a, b []float32) { addAVX2(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Sub:    func(dst, a, b []float32) { subAVX2(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Mul:    func(dst, a, b []float32) { mulAVX2(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Div:    func(dst, a, b []float32) { divAVX2(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Max:    func(dst, a, b []float32) { maxAVX2(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Min:    func(dst, a, b []float32) { minAVX2(ptr(dst), same(a, dst), same(b, dst), len(dst)) },
	Scale:  func(dst, a []float32, mul, add float32) { scaleAVX2(ptr(dst), same(a, dst), len(dst), mul, add) },
	MulRow: func(dst, a, w []float32, s float32) { mulRowAVX2(ptr(dst), same(a, dst), same(w, dst), len(dst), s) },
	Axpy:   func(dst, a []float32, s float32) { axpyAVX2(ptr(dst), same(a, dst), len(dst), s) },
	Exp:    func(dst, a []float32) { expAVX2(ptr(dst), same(a, dst), len(dst)) },
	Tanh:   tanhGo,
	Dot:    func(a, b []float32) float32 { return dotAVX2(ptr(a), same(b, a), len(a)) },
	Sum:    func(a []float32) float32 { return chunked(a, sumAVX2) },
	SumSq:  func(a []float32) float32 { return chunked(a, sumSqAVX2) },
	MaxOf: func(a []float32) float32 {
		if len(a) == 0 {
			return float32(math.Inf(-1))
		}
		return maxOfAVX2(ptr(a), len(a))
	},
	ExpSub: func(dst, a []float32, top float32) float32 {
		if math.IsInf(float64(top), -1) {
			clear(dst)
			return 0
		}
		a = a[:len(dst)]
		if len(dst) <= sumChunk {
			return expSubAVX2(ptr(dst), ptr(a), len(dst), top)
		}
		var s float64
		for len(dst) > 0 {
			n := min(len(dst), sumChunk)
			s += float64(expSubAVX2(ptr(dst), ptr(a), n, top))
			dst, a = dst[n:], a[n:]
		}
		return float32(s)
	},
	Dots: func(dst, q, k []float32, stride int) {
		if checkRows(len(dst), len(q), len(k), stride) {
			dotsAVX2(ptr(dst), ptr(q), ptr(k), len(dst), len(q), 4*stride)
		} else {
			clear(dst)
		}
	},
	Weigh: func(acc, w, v []float32, stride int) {
		if checkRows(len(w), len(acc), len(v), stride) {
			weighAVX2(ptr(acc), ptr(w), ptr(v), len(w), len(acc), 4*stride)
		}
	},
	DotsF16:   dotsHalf(dotsF16AVX2),
	DotsBF16:  dotsHalf(dotsBF16AVX2),
	WeighF16:  weighHalf(weighF16AVX2),
	WeighBF16: weighHalf(weighBF16AVX2),
	Rotate:    func(x, y, cos, sin []float32) { rotateAVX2(ptr(x), same(y, x), same(cos, x), same(sin, x), len(x)) },
	RotatePairs: func(x, cos, sin []float32) {
		rotatePairsAVX2(ptr(x), ptr(cos[:len(x)/2]), ptr(sin[:len(x)/2]), len(x)&^1)
	},
	FromF16: func(dst []float32, src []uint16) {
		dst = dst[:len(src)]
		n := len(src) &^ 7
		fromF16AVX2(ptr(dst), half(src), n)
		tensor.F16sToF32(dst[n:], src[n:])
	},
	FromBF16: func(dst []float32, src []uint16) {
		dst = dst[:len(src)]
		n := len(src) &^ 7
		fromBF16AVX2(ptr(dst), half(src), n)
		tensor.BF16sToF32(dst[n:], src[n:])
	},
	ToF16: func(dst []uint16, src []float32) {
		dst = dst[:len(src)]
		n := len(src) &^ 7
		toF16AVX2(half(dst), ptr(src), n)
		tensor.F32sToF16(dst[n:], src[n:])
	},
	ToBF16: func(dst []uint16, src []float32) {
		dst = dst[:len(src)]
		n := len(src) &^ 7
		toBF16AVX2(half(dst), ptr(src), n)
		tensor.F32sToBF16(dst[n:], src[n:])
	}, FromQ8_0: func(dst []float32, src []byte) {
		n := len(dst) / 32
		fromQ8_0AVX2(ptr(dst), unsafe.SliceData(src[:34*n]), n)
	},
	AddBytes: addBytesAVX2, Quantize: quantizeWhole, ByteSums: true, multiplyBytes: multiplyWhole,
	MaxU8: maxBytes[uint8](maxBytesUAVX2), MaxS8: maxBytes[int8](maxBytesSAVX2),
	ToQ8_0: func(dst []byte, src []float32) int {
		n := len(src) / 32
		return toQ8_0AVX2(unsafe.SliceData(dst[:34*n]), ptr(src), n)
	},
}

// addBytesAVX2 runs whole blocks by the kernel.
func addBytesAVX2(dst, a, b []byte, s *ByteSum) {
	a, b = a[:len(dst)], b[:len(dst)]
	n := len(dst) &^ 31
	f := addBytesUUAVX2
	switch {
	case s.product != nil:
		multiplyWhole(dst[:n], a[:n], b[:n], s.product)
		addBytesGo(dst[n:], a[n:], b[n:], s)
		return
	case s.SignedA && s.SignedB:
		f = addBytesSSAVX2
	case s.SignedA:
		f = addBytesSUAVX2
	case s.SignedB:
		f = addBytesUSAVX2
	}
	f(unsafe.SliceData(dst), unsafe.SliceData(a), unsafe.SliceData(b), n, s)
	addBytesGo(dst[n:], a[n:], b[n:], s)
}

// multiplyWhole adds whole blocks of 32 bytes.
func multiplyWhole(dst, a, b []byte, p *byteProduct) {
	multiplyBytesAVX2(unsafe.SliceData(dst), unsafe.SliceData(a[:len(dst)]), unsafe.SliceData(b[:len(dst)]), len(dst), p)
}

// maxBytes gives a kernel of whole blocks its tail: the last block once more, which changes no maximum, or bytes of type T one by one where there is none.
func maxBytes[T uint8 | int8](kernel func(dst, a, b *byte, n int)) func(dst, a, b []byte) {
	return func(dst, a, b []byte) {
		n := len(dst)
		a, b = a[:n], b[:n]
		if n < 32 {
			for i := range dst {
				dst[i] = byte(max(T(a[i]), T(b[i])))
			}
			return
		}
		kernel(unsafe.SliceData(dst), unsafe.SliceData(a), unsafe.SliceData(b), n&^31)
		if n&31 > 0 {
			kernel(unsafe.SliceData(dst[n-32:]), unsafe.SliceData(a[n-32:]), unsafe.SliceData(b[n-32:]), 32)
		}
	}
}

// quantizeWhole runs whole blocks by the kernel.
func quantizeWhole(dst []byte, x []float32, s *ByteSum) {
	x = x[:len(dst)]
	n := len(dst) &^ 31
	quantizeAVX2(unsafe.SliceData(dst), ptr(x), n, s)
	quantizeGo(dst[n:], x[n:], s)
}
