// Package image decides the operations on images that are no convolutions: Resize.
package image

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Interp is how a value between elements is made.
type Interp uint8

// The interpolations.
const (
	Nearest Interp = iota
	Linear
	Cubic
	numInterps
)

func (i Interp) String() string {
	if i < numInterps {
		return [numInterps]string{"nearest", "linear", "cubic"}[i]
	}
	return fmt.Sprintf("Interp(%d)", uint8(i))
}

// Coord is how a position in the output becomes one in the input. s is the scale, n and m the sizes of input and output.
type Coord uint8

// The coordinate rules, named as in ONNX.
const (
	HalfPixel          Coord = iota // (x + 0.5) / s - 0.5
	HalfPixelSymmetric              // the same around the centre, when s n is not whole
	PytorchHalfPixel                // HalfPixel, but 0 where m is 1
	AlignCorners                    // x (n - 1) / (s n - 1)
	Asymmetric                      // x / s
	TFHalfPixel                     // (x + 0.5) / s
	TFCrop                          // from ROI start to ROI end
	numCoords
)

// Round is how a position becomes that of the nearest element.
type Round uint8

// The roundings.
const (
	PreferFloor Round = iota
	PreferCeil
	Floor
	Ceil
)

// Resize resamples any dimensions of a tensor. A dimension whose size and scale do not change is left alone.
type Resize struct {
	Mode          Interp
	Coord         Coord
	Round         Round // of Nearest
	CubicA        float32
	Exclude       bool // Cubic and antialias: taps outside the input get no weight, instead of the nearest element's
	Antialias     bool // Linear and Cubic: when shrinking, the filter is stretched over all elements between
	Extrapolation float32
	Out           ops.Ints                    // the output's dimensions
	Scale         [tensor.MaxRank]float32     // 0: output size / input size
	ROI           [2 * tensor.MaxRank]float32 // TFCrop: starts of all dimensions, then ends, as parts of their size
}

// Name is "resize_" with the mode's name.
func (r Resize) Name() string { return "resize_" + r.Mode.String() }

// Infer is the shape rule.
func (r Resize) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(r, in, 1, 1); err != nil {
		return nil, err
	}
	if r.Out.Len() != int(in[0].Rank) || r.Mode >= numInterps || r.Coord >= numCoords || r.Round > Ceil {
		return nil, fmt.Errorf("%s: %v to %v", r.Name(), in[0], r.Out)
	}
	if in[0].DType.IsBlock() || r.Mode != Nearest && !in[0].DType.IsFloat() && !in[0].DType.IsInt() {
		return nil, fmt.Errorf("%s: input %v: a plain number type is right", r.Name(), in[0])
	}
	out, err := tensor.CheckDims(in[0].DType, r.Out.List())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Name(), err)
	}
	for i, s := range r.Scale[:r.Out.Len()] {
		if n := in[0].Dims[i]; n > math.MaxInt32 || out.Dims[i] > math.MaxInt32 {
			return nil, fmt.Errorf("%s: dimension %d of %v to %v is longer than positions count", r.Name(), i, in[0], r.Out)
		}
		// A scale is about the ratio of the sizes, which a whole output bounds from below. Far smaller ones, with antialias, would ask for more taps than there is memory.
		if s != 0 && !(float64(s)*4*float64(in[0].Dims[i]+1) >= 1 && !math.IsInf(float64(s), 1)) {
			return nil, fmt.Errorf("%s: scale %v of dimension %d of %v to %v", r.Name(), s, i, in[0], r.Out)
		}
	}
	if in[0].Elems() == 0 && out.Elems() != 0 {
		return nil, fmt.Errorf("%s: %v has no elements to make %v of", r.Name(), in[0], out)
	}
	return []tensor.Spec{out}, nil
}

// Flops counts the taps of every output.
func (r Resize) Flops(in []tensor.Spec) float64 {
	n := 1.0
	for i := range r.Out.Len() {
		n *= float64(r.Out.At(i))
		if r.Out.At(i) != in[0].Dims[i] {
			n *= float64(2 * max(int(r.Mode), 1))
		}
	}
	return n
}

// Taps is the resampling of one dimension: output i is the sum over k < N of element Index[i N + k] times Weight[i N + k], or the
// extrapolation value where Outside.
type Taps struct {
	N       int
	Index   []int32
	Weight  []float64
	Outside []bool // nil: nowhere
}

// Identity reports whether the dimension stays as it is.
func (t *Taps) Identity(in int) bool {
	if t.N != 1 || len(t.Index) != in || t.Outside != nil {
		return false
	}
	for i, at := range t.Index {
		if int(at) != i {
			return false
		}
	}
	return true
}

// Taps returns the resampling of a dimension of n elements.
func (r Resize) Taps(dim, n int) Taps {
	m := r.Out.At(dim)
	scale := float64(r.Scale[dim])
	if scale == 0 {
		scale = float64(m) / float64(n)
	}
	if m == n && scale == 1 && r.Coord != TFCrop {
		t := Taps{N: 1, Index: make([]int32, n), Weight: make([]float64, n)}
		for i := range n {
			t.Index[i], t.Weight[i] = int32(i), 1
		}
		return t
	}
	exclude := r.Exclude && r.Mode != Nearest
	var t Taps
	for i := range m {
		x := r.position(dim, i, n, m, scale)
		if r.Coord == TFCrop {
			if t.Outside == nil {
				t.Outside = make([]bool, m)
			}
			t.Outside[i] = x < 0 || x > float64(n-1)
		}
		first, weights := r.weights(x, scale)
		t.N = len(weights)
		sum := 0.0
		for k, w := range weights {
			at := first + k
			if exclude && (at < 0 || at >= n) {
				w = 0
			}
			t.Index = append(t.Index, int32(min(max(at, 0), n-1)))
			t.Weight = append(t.Weight, w)
			sum += w
		}
		if exclude && sum != 0 {
			for k := range weights {
				t.Weight[i*t.N+k] /= sum
			}
		}
	}
	return t
}

func (r Resize) position(dim, i, n, m int, scale float64) float64 {
	x, in, out := float64(i), float64(n), float64(m)
	switch r.Coord {
	case HalfPixelSymmetric:
		adjust := out / (scale * in)
		return in/2*(1-adjust) + (x+0.5)/scale - 0.5
	case PytorchHalfPixel:
		if m <= 1 {
			return 0
		}
	case AlignCorners:
		if scale*in == 1 || m == 1 {
			return 0
		}
		return x * (in - 1) / (scale*in - 1)
	case Asymmetric:
		return x / scale
	case TFHalfPixel:
		return (x + 0.5) / scale
	case TFCrop:
		start, end := float64(r.ROI[dim]), float64(r.ROI[r.Out.Len()+dim])
		if m <= 1 {
			return 0.5 * (start + end) * (in - 1)
		}
		return start*(in-1) + x*(end-start)*(in-1)/(out-1)
	}
	return (x+0.5)/scale - 0.5
}

// weights returns the first element and the weights of those around position x.
func (r Resize) weights(x, scale float64) (first int, w []float64) {
	if r.Mode == Nearest {
		switch floor := math.Floor(x); {
		case r.Round == Floor:
			return int(floor), []float64{1}
		case r.Round == Ceil:
			return int(math.Ceil(x)), []float64{1}
		case r.Round == PreferCeil:
			return int(math.Floor(x + 0.5)), []float64{1}
		default:
			return int(math.Ceil(x - 0.5)), []float64{1}
		}
	}
	base := math.Floor(x)
	f := x - base
	reach, kernel := 1.0, triangle
	if r.Mode == Cubic {
		a := float64(r.CubicA)
		reach, kernel = 2, func(d float64) float64 { return cubic(d, a) }
	}
	stretch := 1.0
	if r.Antialias && scale < 1 {
		stretch = scale
	}
	start := int(math.Floor(-reach/stretch)) + 1
	sum := 0.0
	for k := start; k <= 1-start; k++ {
		v := kernel(math.Abs(float64(k)-f) * stretch)
		w = append(w, v)
		sum += v
	}
	if stretch != 1 {
		for i := range w {
			w[i] /= sum
		}
	}
	return int(base) + start, w
}

func triangle(d float64) float64 { return max(1-d, 0) }

// cubic is the convolution kernel of Keys with parameter a.
func cubic(d, a float64) float64 {
	switch {
	case d <= 1:
		return ((a+2)*d-(a+3))*d*d + 1
	case d < 2:
		return ((a*d-5*a)*d+8*a)*d - 4*a
	}
	return 0
}

// Reference resamples one dimension after the other in float64.
func (r Resize) Reference(out, in []tensor.Tensor) error {
	if out[0].Elems() == 0 { // other dimensions may be of any size
		return nil
	}
	v := in[0].Floats()
	dims := in[0].Shape()
	outside := make([][]bool, len(dims))
	for d, n := range dims {
		taps := r.Taps(d, n)
		outside[d] = taps.Outside
		m := r.Out.At(d)
		outer, inner := 1, 1
		for i, k := range dims {
			if i < d {
				outer *= k
			} else if i > d {
				inner *= k
			}
		}
		next := make([]float64, outer*m*inner)
		for o := range outer {
			for i := range m {
				for k := range taps.N {
					at, w := int(taps.Index[i*taps.N+k]), taps.Weight[i*taps.N+k]
					for j := range inner {
						if w != 0 {
							next[(o*m+i)*inner+j] += w * v[(o*n+at)*inner+j]
						}
					}
				}
			}
		}
		v = next
		dims[d] = m
	}
	for i := range v {
		rest := i
		for d := len(dims) - 1; d >= 0; d-- {
			if outside[d] != nil && outside[d][rest%dims[d]] {
				v[i] = float64(r.Extrapolation)
			}
			rest /= dims[d]
		}
	}
	out[0].SetFloats(v)
	return nil
}
