package quant

import (
	"encoding/binary"
	"math"

	"github.com/tessera-go/tessera/tensor"
)

// The formats with 32 elements a block. Element j and element j+16 share a byte of nibbles, the low one first. Products are
// rounded by explicit conversions, so that no compiler fuses them with the addition that follows.

const overflow = "its scale is beyond the range of f16"

func half(b []byte) float32 { return tensor.F16ToF32(binary.LittleEndian.Uint16(b)) }

// putHalf stores a scale and reports whether it is finite.
func putHalf(b []byte, f float32) bool {
	h := tensor.F32ToF16(f)
	binary.LittleEndian.PutUint16(b, h)
	return h&0x7c00 != 0x7c00
}

// inverse is 1/d, or 0 where that has no finite value: for d = 0, and for the smallest subnormals, which are zero in f16 anyway.
func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	id := 1 / d
	if math.IsInf(float64(id), 0) {
		return 0
	}
	return id
}

// signedMax returns the element with the largest magnitude, the first of equals.
func signedMax(x []float32) float32 {
	var amax, m float32
	for _, v := range x {
		if a := abs32(v); a > amax {
			amax, m = a, v
		}
	}
	return m
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

func minMax(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x[1:] {
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// extremes is minMax where nothing is NaN. Of 0 and -0 it takes the first, whose sign GGML writes into the file.
func extremes(x []float32) (lo, hi float32) {
	lo, hi = x[0], x[0]
	for _, v := range x[1:] {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	return lo, hi
}

// roundAway rounds half away from zero, as C's roundf does.
func roundAway(x float32) int32 {
	i := int32(x) // toward zero
	switch f := x - float32(i); {
	case f >= 0.5:
		return i + 1
	case f <= -0.5:
		return i - 1
	}
	return i
}

func decodeQ4_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d, q, y := half(src), src[2:18], dst[:32]
		for j, b := range q {
			y[j] = float32(int(b&15)-8) * d
			y[j+16] = float32(int(b>>4)-8) * d
		}
	}
}

func encodeQ4_0(dst []byte, x []float32) string {
	d := signedMax(x) / -8
	id := inverse(d)
	if !putHalf(dst, d) {
		return overflow
	}
	for j := range 16 {
		lo := min(15, uint8(float32(x[j]*id)+8.5))
		hi := min(15, uint8(float32(x[j+16]*id)+8.5))
		dst[2+j] = lo | hi<<4
	}
	return ""
}

func decodeQ4_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[20:] {
		d, m, q, y := half(src), half(src[2:]), src[4:20], dst[:32]
		for j, b := range q {
			y[j] = float32(float32(b&15)*d) + m
			y[j+16] = float32(float32(b>>4)*d) + m
		}
	}
}

func encodeQ4_1(dst []byte, x []float32) string {
	lo, hi := extremes(x)
	d := (hi - lo) / 15
	id := inverse(d)
	if !putHalf(dst, d) || !putHalf(dst[2:], lo) {
		return overflow
	}
	for j := range 16 {
		a := min(15, uint8(float32((x[j]-lo)*id)+0.5))
		b := min(15, uint8(float32((x[j+16]-lo)*id)+0.5))
		dst[4+j] = a | b<<4
	}
	return ""
}

func decodeQ5_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[22:] {
		d, qh, q, y := half(src), binary.LittleEndian.Uint32(src[2:]), src[6:22], dst[:32]
		for j, b := range q {
			y[j] = float32(int(b&15|uint8(qh>>j&1)<<4)-16) * d
			y[j+16] = float32(int(b>>4|uint8(qh>>(j+16)&1)<<4)-16) * d
		}
	}
}

func encodeQ5_0(dst []byte, x []float32) string {
	d := signedMax(x) / -16
	id := inverse(d)
	if !putHalf(dst, d) {
		return overflow
	}
	var qh uint32
	for j := range 16 {
		lo := min(31, uint8(float32(x[j]*id)+16.5))
		hi := min(31, uint8(float32(x[j+16]*id)+16.5))
		dst[6+j] = lo&15 | hi<<4
		qh |= uint32(lo>>4)<<j | uint32(hi>>4)<<(j+16)
	}
	binary.LittleEndian.PutUint32(dst[2:], qh)
	return ""
}

func decodeQ5_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[24:] {
		d, m, qh, q, y := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:]), src[8:24], dst[:32]
		for j, b := range q {
			y[j] = float32(float32(b&15|uint8(qh>>j&1)<<4)*d) + m
			y[j+16] = float32(float32(b>>4|uint8(qh>>(j+16)&1)<<4)*d) + m
		}
	}
}

func encodeQ5_1(dst []byte, x []float32) string {
	lo, hi := extremes(x)
	d := (hi - lo) / 31
	id := inverse(d)
	if !putHalf(dst, d) || !putHalf(dst[2:], lo) {
		return overflow
	}
	var qh uint32
	for j := range 16 {
		a := uint8(float32((x[j]-lo)*id) + 0.5)
		b := uint8(float32((x[j+16]-lo)*id) + 0.5)
		dst[8+j] = a&15 | b<<4
		qh |= uint32(a>>4&1)<<j | uint32(b>>4&1)<<(j+16)
	}
	binary.LittleEndian.PutUint32(dst[4:], qh)
	return ""
}

func decodeQ8_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[34:] {
		d, q, y := half(src), src[2:34], dst[:32]
		for j, b := range q {
			y[j] = float32(int8(b)) * d
		}
	}
}

// encodeQ8_0 leaves the code -128 unused.
func encodeQ8_0(dst []byte, x []float32) string {
	d := abs32(signedMax(x)) / 127
	id := inverse(d)
	if !putHalf(dst, d) {
		return overflow
	}
	for j, v := range x {
		dst[2+j] = uint8(int8(roundAway(v * id)))
	}
	return ""
}

// iq4Values are the 16 levels of IQ4_NL, denser around zero, in units of the block's scale.
var iq4Values = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func decodeIQ4NL(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		d, q, y := half(src), src[2:18], dst[:32]
		for j, b := range q {
			y[j] = d * float32(iq4Values[b&15])
			y[j+16] = d * float32(iq4Values[b>>4])
		}
	}
}

// nearestIQ4 returns the index of the level nearest to x.
func nearestIQ4(x float32) uint8 {
	lo, hi := 0, 15
	if x <= float32(iq4Values[0]) {
		return 0
	}
	if x >= float32(iq4Values[15]) {
		return 15
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; x < float32(iq4Values[mid]) {
			hi = mid
		} else {
			lo = mid
		}
	}
	if x-float32(iq4Values[lo]) < float32(iq4Values[hi])-x {
		return uint8(lo)
	}
	return uint8(hi)
}

// encodeIQ4NL searches the scale around the one that maps the largest element to an end of the table, for the least squared error.
func encodeIQ4NL(dst []byte, x []float32) string {
	m := signedMax(x)
	if m == 0 || inverse(m) == 0 {
		clear(dst[:2])
		for j := range 16 {
			dst[2+j] = 8 | 8<<4
		}
		return ""
	}
	best, bestScore := float32(0), float32(-1)
	for step := -9; step <= 9; step++ {
		// Both ends of the table may take the largest element: -127 is finer, 113 leaves the other end free.
		for _, end := range [2]float32{-127, 113} {
			id := (end + float32(step)*1.25) / m
			var xq, qq float32
			for _, v := range x {
				q := float32(iq4Values[nearestIQ4(v*id)])
				xq += v * q
				qq += q * q
			}
			if qq > 0 && xq*xq > bestScore*qq {
				best, bestScore = xq/qq, xq*xq/qq
			}
		}
	}
	if !putHalf(dst, best) {
		return overflow
	}
	id := inverse(half(dst))
	for j := range 16 {
		dst[2+j] = nearestIQ4(x[j]*id) | nearestIQ4(x[j+16]*id)<<4
	}
	return ""
}

// mxValues are the E2M1 numbers, doubled; mxScale halves the block's scale for it.
var mxValues = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// mxScale is half of 2^(e-127).
func mxScale(e uint8) float32 {
	if e < 2 {
		return math.Float32frombits(0x00200000 << e)
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

func decodeMXFP4(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[17:] {
		d, q, y := mxScale(src[0]), src[1:17], dst[:32]
		for j, b := range q {
			y[j] = float32(mxValues[b&15]) * d
			y[j+16] = float32(mxValues[b>>4]) * d
		}
	}
}

// encodeMXFP4 takes the exponent that brings the largest element into the top binade of E2M1, as the OCP specification does.
func encodeMXFP4(dst []byte, x []float32) string {
	amax := abs32(signedMax(x))
	e := 0
	if amax > 0 {
		e = max(0, math.Ilogb(float64(amax))-2+127)
	}
	if e > 254 {
		return "its scale is beyond the range of e8m0"
	}
	dst[0] = uint8(e)
	d := mxScale(uint8(e))
	nearest := func(v float32) uint8 {
		best, bestErr := uint8(0), abs32(v)
		for i := uint8(1); i < 16; i++ {
			if err := abs32(float32(mxValues[i])*d - v); err < bestErr {
				best, bestErr = i, err
			}
		}
		return best
	}
	for j := range 16 {
		dst[1+j] = nearest(x[j]) | nearest(x[j+16])<<4
	}
	return ""
}
