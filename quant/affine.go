package quant

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/tensor"
)

// Affine maps real numbers to 8-bit integers: real = Scale (q - Zero).
type Affine struct {
	Scale float32
	Zero  int32
}

// Range returns the integers of I8 or U8.
func affineRange(d tensor.DType) (lo, hi float32, err error) {
	switch d {
	case tensor.I8:
		return -128, 127, nil
	case tensor.U8:
		return 0, 255, nil
	}
	return 0, 0, fmt.Errorf("quant: affine type %v, i8 or u8 is right", d)
}

// ChooseAffine returns the map that represents [lo, hi] and zero, in I8 or U8. A symmetric map has Zero 0 (128 in U8) and leaves the
// integer furthest below it unused, so that x and -x have opposite codes. An empty range gives scale 1.
func ChooseAffine(d tensor.DType, lo, hi float32, symmetric bool) (Affine, error) {
	qlo, qhi, err := affineRange(d)
	if err != nil {
		return Affine{}, err
	}
	if !(lo <= hi) || math.IsInf(float64(lo), 0) || math.IsInf(float64(hi), 0) {
		return Affine{}, fmt.Errorf("quant: range [%g, %g] is not finite", lo, hi)
	}
	lo, hi = min(lo, 0), max(hi, 0)
	a := Affine{Scale: 1}
	if symmetric {
		if d == tensor.U8 {
			a.Zero = 128
		}
		if m := max(-lo, hi); m > 0 {
			a.Scale = m / 127
		}
	} else {
		if hi > lo {
			a.Scale = float32((float64(hi) - float64(lo)) / float64(qhi-qlo))
		}
		if a.Scale > 0 {
			a.Zero = int32(math.RoundToEven(float64(qlo) - float64(lo)/float64(a.Scale)))
		}
	}
	if a.Scale == 0 { // the range is smaller than the smallest scale: everything is zero
		a.Scale = math.SmallestNonzeroFloat32
	}
	return a, nil
}

// Int8 is the set of integer types of affine tensors.
type Int8 interface{ ~int8 | ~uint8 }

// QuantizeAffine stores src as integers, rounded to nearest even and saturated; NaN becomes Zero.
func QuantizeAffine[T Int8](dst []T, src []float32, a Affine) {
	lo, hi := float64(-128), float64(127)
	if T(0)-1 > 0 {
		lo, hi = 0, 255
	}
	inv, zero := 1/float64(a.Scale), float64(a.Zero)
	dst = dst[:len(src)]
	for i, x := range src {
		q := math.RoundToEven(float64(x)*inv) + zero
		if q != q {
			q = zero
		}
		dst[i] = T(int32(min(max(q, lo), hi)))
	}
}

// DequantizeAffine widens integers.
func DequantizeAffine[T Int8](dst []float32, src []T, a Affine) {
	dst = dst[:len(src)]
	for i, q := range src {
		dst[i] = a.Scale * float32(int32(q)-a.Zero)
	}
}

// Channels quantizes a contiguous f32 tensor with one map for each index of a dimension (axis -1: one for all), as weights of integer
// products are. It returns the integers in the tensor's shape.
func Channels(d tensor.DType, t tensor.Tensor, axis int, symmetric bool) (tensor.Tensor, []Affine, error) {
	if t.DType != tensor.F32 || !t.IsContiguous() || axis < -1 || axis >= int(t.Rank) {
		return tensor.Tensor{}, nil, fmt.Errorf("quant: channel %d of %v: a contiguous f32 tensor and one of its dimensions are right", axis, t)
	}
	n, inner := 1, t.Elems()
	if axis >= 0 {
		n, inner = t.Dims[axis], 1
		for _, v := range t.Shape()[axis+1:] {
			inner *= v
		}
	}
	out, err := tensor.NewChecked(d, t.Shape()...)
	if err != nil {
		return tensor.Tensor{}, nil, err
	}
	maps := make([]Affine, n)
	if t.Elems() == 0 {
		for i := range maps {
			maps[i].Scale = 1
		}
		return out, maps, nil
	}
	src := tensor.Data[float32](t)
	for c := range n {
		lo, hi := float32(0), float32(0)
		for at := c * inner; at < len(src); at += n * inner {
			l, h := minMax(src[at : at+inner])
			lo, hi = min(lo, l), max(hi, h)
		}
		if maps[c], err = ChooseAffine(d, lo, hi, symmetric); err != nil {
			return tensor.Tensor{}, nil, fmt.Errorf("channel %d: %w", c, err)
		}
		for at := c * inner; at < len(src); at += n * inner {
			if d == tensor.U8 {
				QuantizeAffine(tensor.Data[uint8](out)[at:at+inner], src[at:at+inner], maps[c])
			} else {
				QuantizeAffine(tensor.Data[int8](out)[at:at+inner], src[at:at+inner], maps[c])
			}
		}
	}
	return out, maps, nil
}

// Rows quantizes each row of n elements symmetrically with a scale of its own, as activations are before an integer product
// ("dynamic" quantization): src[i] is about dst[i] scales[i/n]. A row of zeros has scale 0. A row that holds NaN or infinity has
// scale NaN, which the product then shows.
func Rows(dst []int8, scales []float32, src []float32, n int) {
	for r := 0; r*n < len(src); r++ {
		row, out := src[r*n:(r+1)*n], dst[r*n:(r+1)*n]
		var bits uint32
		for _, x := range row {
			bits = max(bits, math.Float32bits(x)&0x7fffffff)
		}
		amax := math.Float32frombits(bits)
		switch id := 127 / amax; {
		case bits >= 0x7f800000:
			scales[r] = float32(math.NaN())
			clear(out)
		case amax == 0 || math.IsInf(float64(id), 0):
			scales[r] = 0
			clear(out)
		default:
			scales[r] = amax / 127
			for i, x := range row {
				out[i] = int8(min(max(roundSmall(x*id), -127), 127))
			}
		}
	}
}
