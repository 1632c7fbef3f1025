// Package bfp16 converts to and from bfp16ebs8 and bfp16ebs16, the block floating point formats of AIE2P cores (XDNA2): 8 or 16 values share an
// 8-bit exponent and keep a signed 8-bit mantissa each.
//
// A block is one exponent byte, biased like float32's, followed by one byte a value in two's complement:
//
//	value = mantissa * 2^(exponent-127) / 64
//
// so 1.0 alone in its block is exponent 127, mantissa 64. The exponent is the largest exponent field of the block's float32 values; each significand
// is shifted to it and rounded by the core's mode, and clipped to -128..127 because rounding may carry. Subnormal float32 count as zero.
//
// The format has no infinity and no NaN, and what hardware makes of them is undefined. Here a block that holds one gets exponent 255 and decodes to NaN in all
// of its values, so that a non-finite input is never silently turned into a number. Backends that multiply in this format compute the results that such
// inputs decide elsewhere.
package bfp16

import (
	"fmt"
	"math"
)

// Sizes of the two formats.
const (
	Values      = 8  // values in a bfp16ebs8 block
	Bytes       = 9  // bytes in a bfp16ebs8 block
	WideValues  = 16 // values in a bfp16ebs16 block
	WideBytes   = 17 // bytes in a bfp16ebs16 block
	special     = 255
	mantissaExp = 133 // value = mantissa * 2^(exponent - mantissaExp)
)

// Rounding is the core's rounding mode.
type Rounding uint8

// Rounding modes: ties to even, or towards minus infinity (the mode at power-up).
const (
	NearestEven Rounding = iota
	Floor
)

// Size is the number of bytes that n values take in bfp16ebs8. n must be a multiple of 8.
func Size(n int) int { return n / Values * Bytes }

// Encode converts src to bfp16ebs8 blocks of 8 consecutive values.
// len(src) must be a multiple of 8 and len(dst) [Size] of it; it panics otherwise.
func Encode(dst []byte, src []float32, r Rounding) { encode(dst, src, r, Values) }

// EncodeWide converts src to bfp16ebs16 blocks of 16 consecutive values of 17 bytes. It panics if the lengths do not fit.
func EncodeWide(dst []byte, src []float32, r Rounding) { encode(dst, src, r, WideValues) }

// Decode converts bfp16ebs8 blocks to float32. Every finite block is exact. It panics if the lengths do not fit.
func Decode(dst []float32, src []byte) { decode(dst, src, Values) }

// DecodeWide converts bfp16ebs16 blocks to float32. It panics if the lengths do not fit.
func DecodeWide(dst []float32, src []byte) { decode(dst, src, WideValues) }

func check(values, bytes, block int) {
	if values%block != 0 || bytes != values/block*(block+1) {
		panic(fmt.Sprintf("bfp16: %d values in blocks of %d take %d bytes, not %d", values, block, values/block*(block+1), bytes))
	}
}

func encode(dst []byte, src []float32, r Rounding, block int) {
	check(len(src), len(dst), block)
	for len(src) > 0 {
		var most uint32
		for _, v := range src[:block] {
			most = max(most, math.Float32bits(v)>>23&0xFF)
		}
		dst[0] = byte(most)
		for i, v := range src[:block] {
			dst[1+i] = byte(mantissa(math.Float32bits(v), most, r))
		}
		src, dst = src[block:], dst[block+1:]
	}
}

// mantissa brings the float32 with these bits to the block exponent most.
func mantissa(bits, most uint32, r Rounding) int8 {
	exp := bits >> 23 & 0xFF
	if exp == 0 {
		return 0
	}
	sig := int64(bits&0x7FFFFF | 0x800000)
	if bits>>31 != 0 {
		sig = -sig
	}
	shift := 17 + most - exp
	if shift >= 32 {
		if r == Floor && sig < 0 {
			return -1
		}
		return 0
	}
	if r == NearestEven {
		// One less than half, plus the bit that decides a tie, carries exactly when the value must go up.
		sig += 1<<(shift-1) - 1 + sig>>shift&1
	}
	return int8(max(-128, min(127, sig>>shift)))
}

func decode(dst []float32, src []byte, block int) {
	check(len(dst), len(src), block)
	for len(dst) > 0 {
		scale := Scale(src[0])
		for i := range dst[:block] {
			dst[i] = float32(int8(src[1+i])) * scale
		}
		dst, src = dst[block:], src[block+1:]
	}
}

// Scale is the weight of one mantissa unit in a block with this exponent: 2^(exponent-133), or NaN for the exponent of a block with a non-finite value.
func Scale(exponent byte) float32 {
	if exponent == special {
		return float32(math.NaN())
	}
	if e := int(exponent) - mantissaExp; e < -126 {
		return math.Float32frombits(1 << (e + 149)) // subnormal
	} else {
		return math.Float32frombits(uint32(e+127) << 23)
	}
}

// Dot is the product of two bfp16ebs8 blocks as the multiply unit forms it: the exact integer dot product of the mantissas, scaled by both exponents
// and rounded once to float32. The rounding is exact unless the scale leaves float32's normal range. A block with exponent 255 gives NaN.
func Dot(a, b []byte) float32 {
	if a[0] == special || b[0] == special {
		return float32(math.NaN())
	}
	var dot int32
	for i := 1; i < Bytes; i++ {
		dot += int32(int8(a[i])) * int32(int8(b[i]))
	}
	return float32(math.Ldexp(float64(dot), int(a[0])+int(b[0])-2*mantissaExp))
}
