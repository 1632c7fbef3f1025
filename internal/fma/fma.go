// Package fma computes the multiply-add of float32 as processors do, where Go has none. The twins of kernels are built from it.
package fma

import "math"

// F32 returns a*b + c rounded once to float32, to nearest even, subnormal results included. The product of two float32 is exact in
// float64; the sum, rounded to 53 bits, gives the right float32 unless it lies on the middle between two of them (or between
// subnormals), where the rounded-off part decides.
func F32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	const low = 1<<29 - 1 // bits of a float64 below a float32
	if u := math.Float64bits(s); u&low != 1<<28 && u>>52&0x7ff > 896 {
		return float32(s)
	}
	return slow(p, float64(c), s)
}

func slow(p, c, s float64) float32 {
	// e is what s lost, exactly (Knuth's two-sum); rounding s to odd keeps the second rounding from being misled by the first.
	t := s - p
	e := (p - (s - t)) + (c - t)
	if u := math.Float64bits(s); e != 0 && u&1 == 0 && e == e {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}
