package kernel

import "math"

// The functions below are the definition of each kernel for one element of C, written for clarity and sharing no code with [Tile]. k is
// walked in chunks of chunk values (k_ct); operands are zero-padded to a whole number of chunks by the caller, because a chunk of zeros is not always without
// effect (it turns a negative zero positive).

// ReferenceInt is an element of an int8 product: an int32 accumulator modulo 2^32, narrowed to c after every chunk.
func ReferenceInt(a, b []int8, chunk int, c Type, o Overflow) int32 {
	var kept int64
	for p := 0; p < len(a); p += chunk {
		acc := kept
		for q := p; q < min(p+chunk, len(a)); q++ {
			acc += int64(a[q]) * int64(b[q])
		}
		acc = int64(int32(acc))
		bits := map[Type]uint{I8: 8, I16: 16, I32: 32}[c]
		lo, hi := -int64(1)<<(bits-1), int64(1)<<(bits-1)-1
		if o == Saturate {
			acc = max(lo, min(hi, acc))
		}
		kept = acc << (64 - bits) >> (64 - bits)
	}
	return int32(kept)
}

// ReferenceFMA is an element of a bf16 product on XDNA: one f32 fused multiply-add per k, ascending, rounded to c after every chunk.
// Operands are bf16 values held in float32.
func ReferenceFMA(a, b []float32, chunk int, c Type, r Rounding) float32 {
	var acc float32
	for p := range a {
		// The product has 16 significant bits and is exact in float64; the sum is rounded to float64 and then to float32, which equals rounding once
		// (53 bits are more than twice 24 plus 2).
		acc = float32(float64(a[p])*float64(b[p]) + float64(acc))
		if p%chunk == chunk-1 {
			acc = referenceNarrow(acc, c, r)
		}
	}
	return acc
}

// ReferenceBFP is an element of a product on XDNA2's block floating point path: groups of 8 along k are brought to a shared exponent and 8-bit mantissas in the
// rounding mode, multiplied exactly, rounded to float32 and added, ascending; the sum is rounded to c after every chunk.
// Operands of type bfp16 are given by the values that their blocks hold, and are not rounded again.
func ReferenceBFP(a, b []float32, at, bt Type, chunk int, c Type, r Rounding) float32 {
	var acc float32
	for p := 0; p < len(a); p += 8 {
		x, y := referenceBlock(a[p:p+8], at, r), referenceBlock(b[p:p+8], bt, r)
		var dot float64 // exact: 8 products of 8-bit integers with one common scale
		for i := range 8 {
			dot += x[i] * y[i]
		}
		acc += float32(dot)
		if p%chunk == chunk-8 {
			acc = referenceNarrow(acc, c, r)
		}
	}
	return acc
}

// referenceBlock returns the values that a group is computed with.
func referenceBlock(v []float32, t Type, r Rounding) (out [8]float64) {
	most := math.MinInt32
	for i, x := range v {
		if x != x || math.IsInf(float64(x), 0) {
			for i := range out {
				out[i] = math.NaN() // the format has no infinity: the whole group is lost
			}
			return out
		}
		out[i] = float64(x)
		if _, e := math.Frexp(out[i]); math.Abs(out[i]) >= math.Ldexp(1, -126) {
			most = max(most, e-1) // |x| = f * 2^e with 0.5 <= f < 1
		}
	}
	if t == BFP16 {
		return out
	}
	for i, x := range out {
		if math.Abs(x) < math.Ldexp(1, -126) { // subnormals count as zero
			out[i] = 0
			continue
		}
		y := math.Ldexp(x, 6-most)
		if r == Floor {
			y = math.Floor(y)
		} else {
			y = math.RoundToEven(y)
		}
		out[i] = math.Ldexp(max(-128, min(127, y)), most-6)
	}
	return out
}

// referenceNarrow rounds to bf16 if C is.
func referenceNarrow(v float32, c Type, r Rounding) float32 {
	if c != BF16 || v != v || math.IsInf(float64(v), 0) {
		return v
	}
	// The spacing of bf16 values at v: 8 significant bits, subnormals below 2^-126.
	_, e := math.Frexp(float64(v))
	unit := math.Ldexp(1, max(e-8, -133))
	x := float64(v) / unit
	if r == Floor {
		x = math.Floor(x)
	} else {
		x = math.RoundToEven(x)
	}
	if x == 0 {
		x = math.Copysign(0, float64(v))
	}
	x *= unit
	if math.Abs(x) >= math.Ldexp(1, 128) {
		return float32(math.Inf(int(math.Copysign(1, x))))
	}
	return float32(x)
}
