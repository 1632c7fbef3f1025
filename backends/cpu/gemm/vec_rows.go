//go:build (amd64 || arm64) && !noasm

package gemm

import (
	"sync"
	"unsafe"
)

// rowFuncs are the assembly functions of one width.
type rowFuncs struct {
	width                        int
	fromS32, scale               func(x *float32, n int, p, q float32)
	mul, add                     func(x, y *float32, n int)
	act                          [numActivations]func(x *float32, n int, p, q float32)
	bf16, f16, fromBF16, fromF16 func(dst, src unsafe.Pointer, n int)
	fromGroups                   func(dst, src unsafe.Pointer, groups, vectors int) // of groupK k of bf16
	groupK                       int
	quant                        func(dst *uint8, x *float32, n int, scale, low, high float32, zero int32)
}

// tails are vectors for the rest of a slice. They are no arrays on the stack: a function in a variable would move such an array to the heap, and
// an address that is hidden from the compiler to prevent that may be the one before the stack grew.
var tails = sync.Pool{New: func() any { return new([16]float32) }}

// callFloats is how many elements one call of a function takes at most, a multiple of all widths: it cannot be interrupted, and the slowest
// take a nanosecond or two for each.
const callFloats = 8192

// ops wraps functions on whole vectors into operations on slices. The rest of a slice takes the Go twin, which gives the same
// bits.
func (f rowFuncs) ops() vecOps {
	w := f.width
	one := func(g func(*float32, int, float32, float32)) func([]float32, float32, float32) {
		return func(x []float32, p, q float32) {
			n := len(x) &^ (w - 1)
			for i := 0; i < n; i += callFloats {
				g(&x[i], min(callFloats, n-i), p, q)
			}
			if n < len(x) {
				tail := tails.Get().(*[16]float32)
				copy(tail[:], x[n:])
				g(&tail[0], w, p, q)
				copy(x[n:], tail[:])
				tails.Put(tail)
			}
		}
	}
	two := func(g func(x, y *float32, n int), rest func(x, y []float32)) func(x, y []float32) {
		return func(x, y []float32) {
			n := len(x) &^ (w - 1)
			for i := 0; i < n; i += callFloats {
				g(&x[i], &y[i], min(callFloats, n-i))
			}
			rest(x[n:], y[n:])
		}
	}
	narrow := func(g func(dst, src unsafe.Pointer, n int), rest func([]uint16, []float32)) func([]uint16, []float32) {
		return func(dst []uint16, x []float32) {
			n := len(x) &^ (w - 1)
			for i := 0; i < n; i += callFloats {
				g(unsafe.Pointer(&dst[i]), unsafe.Pointer(&x[i]), min(callFloats, n-i))
			}
			rest(dst[n:], x[n:])
		}
	}
	var v vecOps
	scale := one(f.scale)
	v.scale = func(x []float32, s float32) { scale(x, s, 0) }
	fromS32 := one(f.fromS32)
	v.fromS32 = func(x []float32) { fromS32(x, 0, 0) }
	v.mul, v.add = two(f.mul, portableVec.mul), two(f.add, portableVec.add)
	for i, g := range f.act {
		if g != nil {
			v.act[i] = one(g)
		}
	}
	v.bf16, v.f16 = narrow(f.bf16, portableVec.bf16), narrow(f.f16, portableVec.f16)
	v.fromHalf = func(dst []float32, src unsafe.Pointer, t Type) {
		g := f.fromBF16
		if t == F16 {
			g = f.fromF16
		}
		n := len(dst) &^ (w - 1)
		for i := 0; i < n; i += callFloats {
			g(unsafe.Pointer(&dst[i]), unsafe.Add(src, 2*i), min(callFloats, n-i))
		}
		if n < len(dst) { // an address behind the last element may be in no memory, which the garbage collector would find
			portableVec.fromHalf(dst[n:], unsafe.Add(src, n*2), t)
		}
	}
	v.widenPanel = func(dst, src unsafe.Pointer, fm format, kc int) {
		switch {
		case fm.elem == F16 && fm.nr%w == 0:
			f.fromF16(dst, src, kc*fm.nr)
		case fm.elem == BF16 && fm.nr%w == 0 && fm.kr == f.groupK:
			whole := kc / f.groupK
			if whole > 0 {
				f.fromGroups(dst, src, whole, fm.nr/w)
			}
			if k := whole * f.groupK; k < kc {
				widenPanel(unsafe.Add(dst, k*fm.nr*4), unsafe.Add(src, whole*fm.step()), fm, kc-k)
			}
		default:
			widenPanel(dst, src, fm, kc)
		}
	}
	v.quant = func(dst []uint8, x []float32, s float32, zero, low, high int32) {
		n := len(x) &^ (w - 1)
		for i := 0; i < n; i += callFloats {
			f.quant(&dst[i], &x[i], min(callFloats, n-i), s, float32(low-zero), float32(high-zero), zero)
		}
		portableVec.quant(dst[n:], x[n:], s, zero, low, high)
	}
	return v
}
