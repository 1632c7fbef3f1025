//go:build (amd64 || arm64) && !noasm

package vec

import "unsafe"

// What the sets of assembly share: slices become the pointers and counts of kernels.

// ptr returns the address of a slice's first element.
func ptr(x []float32) *float32 { return unsafe.SliceData(x) }

// same returns the address of a slice that must be at least as long as another.
func same(x, as []float32) *float32 { return unsafe.SliceData(x[:len(as)]) }

func half(x []uint16) *uint16 { return unsafe.SliceData(x) }

// dotsHalf gives a kernel over 16-bit rows its checks.
func dotsHalf(kernel func(dst, q *float32, k *uint16, n, d, stride int)) func(dst, q []float32, k []uint16, stride int) {
	return func(dst, q []float32, k []uint16, stride int) {
		if checkHalves(len(dst), len(q), len(k), stride) {
			kernel(ptr(dst), ptr(q), half(k), len(dst), len(q), 2*stride)
		} else {
			clear(dst)
		}
	}
}

func weighHalf(kernel func(acc, w *float32, v *uint16, n, d, stride int)) func(acc, w []float32, v []uint16, stride int) {
	return func(acc, w []float32, v []uint16, stride int) {
		if checkHalves(len(w), len(acc), len(v), stride) {
			kernel(ptr(acc), ptr(w), half(v), len(w), len(acc), 2*stride)
		}
	}
}
