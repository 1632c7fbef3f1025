package fma

import (
	"math"
	"unsafe"
)

// Chain4 adds products to four sums, c[j] = F32(a, b[j], c[j]), for each of k steps in their order. Step i reads a float32 at a + i*aStep
// and four of them at b + i*bStep, in bytes.
func Chain4(c *[4]float32, a, b unsafe.Pointer, aStep, bStep, k int) {
	for i := 0; i < k; {
		i = chain4(c, a, b, aStep, bStep, i, k, 898<<53-1)
		for range min(2, k-i) {
			x, y := *(*float32)(unsafe.Add(a, i*aStep)), (*[4]float32)(unsafe.Add(b, i*bStep))
			for j := range c {
				c[j] = F32(x, y[j], c[j])
			}
			i++
		}
	}
}

// chain4 does steps i to k until the sum of one, or what follows it, may need more than the two roundings of F32's short way, and returns
// that step, whose sums c does not hold yet. It takes steps in pairs.
//
// A sum is on the middle between two float32 if the 29 bits that a float64 has more are 1 and zeros. Where float32 are subnormal that is
// another bit, but two roundings can only go wrong there if the sum before, the product and the sum are all below 2^-125: the sum of a
// larger product with anything that leaves less is exact in float64. So no sum of the first step of a pair being smaller is enough for
// both. tiny is twice the bits of the largest float64 below 2^-125; as an argument it stays in a register.
func chain4(c *[4]float32, a, b unsafe.Pointer, aStep, bStep, i, k int, tiny uint64) int {
	const middle = 1 << 31 // 1<<28, shifted until the bits of a float32 are gone
	s0, s1, s2, s3 := float64(c[0]), float64(c[1]), float64(c[2]), float64(c[3])
	at, bt := i*aStep, i*bStep
	for i+1 < k {
		x, y := float64(*(*float32)(unsafe.Add(a, at))), (*[4]float32)(unsafe.Add(b, bt))
		v0 := s0 + x*float64(y[0])
		v1 := s1 + x*float64(y[1])
		v2 := s2 + x*float64(y[2])
		v3 := s3 + x*float64(y[3])
		if uint32(math.Float64bits(v0))<<3 == middle {
			break
		}
		if math.Float64bits(v0)<<1 <= tiny {
			break
		}
		if uint32(math.Float64bits(v1))<<3 == middle {
			break
		}
		if math.Float64bits(v1)<<1 <= tiny {
			break
		}
		if uint32(math.Float64bits(v2))<<3 == middle {
			break
		}
		if math.Float64bits(v2)<<1 <= tiny {
			break
		}
		if uint32(math.Float64bits(v3))<<3 == middle {
			break
		}
		if math.Float64bits(v3)<<1 <= tiny {
			break
		}
		s0, s1, s2, s3 = float64(float32(v0)), float64(float32(v1)), float64(float32(v2)), float64(float32(v3))
		at, bt = at+aStep, bt+bStep
		i++

		x, y = float64(*(*float32)(unsafe.Add(a, at))), (*[4]float32)(unsafe.Add(b, bt))
		v0 = s0 + x*float64(y[0])
		v1 = s1 + x*float64(y[1])
		v2 = s2 + x*float64(y[2])
		v3 = s3 + x*float64(y[3])
		if uint32(math.Float64bits(v0))<<3 == middle {
			break
		}
		if uint32(math.Float64bits(v1))<<3 == middle {
			break
		}
		if uint32(math.Float64bits(v2))<<3 == middle {
			break
		}
		if uint32(math.Float64bits(v3))<<3 == middle {
			break
		}
		s0, s1, s2, s3 = float64(float32(v0)), float64(float32(v1)), float64(float32(v2)), float64(float32(v3))
		at, bt = at+aStep, bt+bStep
		i++
	}
	c[0], c[1], c[2], c[3] = float32(s0), float32(s1), float32(s2), float32(s3)
	return i
}
