package tensor

import "math"

// BF16ToF32 widens a bfloat16. Exact.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even. Subnormals are kept, NaN stays NaN (made quiet, sign and upper
// payload kept), and values beyond the range become infinity.
func F32ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// F16ToF32 widens an IEEE half. Exact; a NaN becomes quiet.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mag := uint32(h & 0x7fff)
	switch {
	case mag >= 0x7c00: // infinity and NaN
		bits := sign | 0x7f800000 | mag&0x3ff<<13
		if mag > 0x7c00 {
			bits |= 0x400000
		}
		return math.Float32frombits(bits)
	case mag >= 0x400:
		return math.Float32frombits(sign | (mag<<13 + (127-15)<<23))
	default: // zero and subnormals: mag * 2^-24, exact in float32
		f := float32(mag) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	}
}

// F32ToF16 rounds to the nearest IEEE half, ties to even. Subnormals are kept, NaN stays NaN (made quiet, sign and upper payload
// kept), and values that round beyond 65504 become infinity.
func F32ToF16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	mag := u & 0x7fffffff
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00 | uint16(mag>>13&0x3ff)
	case mag >= 0x477ff000: // 65520 and above round to infinity
		return sign | 0x7c00
	case mag >= 0x38800000: // normal: rebias the exponent, round off 13 bits
		return sign | uint16((mag-(127-15)<<23+0xfff+mag>>13&1)>>13)
	default: // subnormal: adding 0.5 leaves round-to-even(mag * 2^24) in the low bits of the sum
		sum := math.Float32frombits(mag) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
}

// BF16sToF32 widens src into dst, which must be at least as long.
func BF16sToF32(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = BF16ToF32(h)
	}
}

// F32sToBF16 rounds src into dst, which must be at least as long.
func F32sToBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = F32ToBF16(f)
	}
}

// F16sToF32 widens src into dst, which must be at least as long.
func F16sToF32(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = F16ToF32(h)
	}
}

// F32sToF16 rounds src into dst, which must be at least as long.
func F32sToF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = F32ToF16(f)
	}
}
