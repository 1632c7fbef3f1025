package attention

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// RoPE turns pairs of elements of each head by angles that grow with the position (Su et al., RoFormer, arXiv 2104.09864). Inputs are
// x [..., T, H, D]; positions (i32 or i64), which broadcast to [..., T]; and optionally D/2 frequency factors (Dims/2 of them), by which
// the angles are divided. Pair i of position p turns by
//
//	theta = p * Scale * Base^(-2i/Dims) / factor[i]
//
// With Extrapolate not 0 the scaling is YaRN's (Peng et al., arXiv 2309.00071): pairs of high frequency keep the unscaled angle, those
// of low frequency take the scaled one, with a linear ramp between the dimensions that turn Fast and Slow times over Context
// positions; and both components are multiplied by Magnitude (1 + 0.1 log(1/Scale)).
type RoPE struct {
	Half        bool    // pairs are (i, i + Dims/2) as in GPT-NeoX; else (2i, 2i+1)
	Dims        int     // elements of a head that turn, an even number; 0 means all of them; the others are copied
	Base        float32 // 0 means 10000
	Scale       float32 // of positions; 0 means 1. Linear scaling by 4 is 0.25
	Extrapolate float32 // YaRN's weight of the ramp, usually 1; 0 is linear scaling
	Magnitude   float32 // 0 means 1
	Fast, Slow  float32 // turns; 0 means 32 and 1
	Context     int     // the context that the model was trained for; needed with Extrapolate
}

// Name is "rope".
func (RoPE) Name() string { return "rope" }

// Infer is the shape rule: the first input's spec.
func (r RoPE) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(r, in, 2, 3); err != nil {
		return nil, err
	}
	if err := ref.Float(r, in, 0); err != nil {
		return nil, err
	}
	if in[0].Rank < 3 {
		return nil, fmt.Errorf("rope: input is %v, [... T H D] is right", in[0])
	}
	d := in[0].Dim(-1)
	if n := r.Rotary(d); n%2 != 0 || n < 0 || n > d {
		return nil, fmt.Errorf("rope: %d elements of heads of %d turn; an even number up to that is right", n, d)
	}
	if err := ref.Index(r, in, 1); err != nil {
		return nil, err
	}
	if _, err := (tensor.Tensor{Spec: in[1]}).Broadcast(in[0].Shape()[:in[0].Rank-2]...); err != nil {
		return nil, fmt.Errorf("rope: positions are %v, %v (or what broadcasts to it) is right", in[1], in[0].Shape()[:in[0].Rank-2])
	}
	if ref.Has(in, 2) {
		if err := ref.Vector(r, in, 2, r.Rotary(d)/2, "frequency factors"); err != nil {
			return nil, err
		}
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return []tensor.Spec{in[0]}, nil
}

// Check returns an error for numbers with which angles would be none.
func (r RoPE) Check() error {
	for _, c := range []struct {
		what string
		v    float32
	}{{"base", r.Base}, {"scale", r.Scale}, {"ramp's weight", r.Extrapolate}, {"magnitude", r.Magnitude}, {"fast turns", r.Fast}, {"slow turns", r.Slow}} {
		if !(c.v >= 0 && c.v <= math.MaxFloat32) {
			return fmt.Errorf("rope: the %s is %g; a positive number, or 0 for what is usual, is right", c.what, c.v)
		}
	}
	switch {
	case r.Extrapolate == 0:
	case r.Context <= 0:
		return fmt.Errorf("rope: YaRN scaling needs the context that the model was trained for")
	case r.Base == 1: // whose logarithm divides
		return fmt.Errorf("rope: YaRN scaling of frequencies that are all the same, of the base 1")
	}
	return nil
}

// Rotary returns the number of elements that turn in heads of d.
func (r RoPE) Rotary(d int) int {
	if r.Dims == 0 {
		return d
	}
	return r.Dims
}

// Frequencies returns the angle of every pair at position 1, for heads of d, and the magnitude by which results are multiplied.
// Factors may be nil.
func (r RoPE) Frequencies(d int, factors []float64) (freq []float64, magnitude float64) {
	n := r.Rotary(d)
	base, scale, magnitude := float64(r.Base), float64(r.Scale), float64(r.Magnitude)
	if base == 0 {
		base = 10000
	}
	if scale == 0 {
		scale = 1
	}
	if magnitude == 0 {
		magnitude = 1
	}
	low, high := 0.0, 0.0
	if r.Extrapolate != 0 {
		fast, slow := float64(r.Fast), float64(r.Slow)
		if fast == 0 {
			fast = 32
		}
		if slow == 0 {
			slow = 1
		}
		// The dimension that turns a given number of times over the context.
		dim := func(turns float64) float64 {
			return float64(n) * math.Log(float64(r.Context)/(turns*2*math.Pi)) / (2 * math.Log(base))
		}
		low = max(0, math.Floor(dim(fast)))
		high = min(float64(n-1), math.Ceil(dim(slow)))
		magnitude *= 1 + 0.1*math.Log(1/scale)
	}
	freq = make([]float64, n/2)
	for i := range freq {
		f := math.Pow(base, -2*float64(i)/float64(n))
		if factors != nil {
			f /= factors[i]
		}
		if r.Extrapolate == 0 {
			freq[i] = f * scale
			continue
		}
		ramp := 1 - min(1, max(0, (float64(i)-low)/max(0.001, high-low)))
		mix := ramp * float64(r.Extrapolate)
		freq[i] = f*scale*(1-mix) + f*mix
	}
	return freq, magnitude
}

// Reference turns pair by pair.
func (r RoPE) Reference(out, in []tensor.Tensor) error {
	dims := in[0].Shape()
	d, heads := dims[len(dims)-1], dims[len(dims)-2]
	pos, err := ref.Spread(in[1], dims[:len(dims)-2])
	if err != nil {
		return err
	}
	var factors []float64
	if ref.Present(in, 2) {
		factors = in[2].Floats()
	}
	freq, mag := r.Frequencies(d, factors)
	v := in[0].Floats()
	for t, p := range pos {
		for h := range heads {
			head := v[(t*heads+h)*d:][:d]
			for i, f := range freq {
				a, b := 2*i, 2*i+1
				if r.Half {
					a, b = i, i+len(freq)
				}
				sin, cos := math.Sincos(p * f)
				x, y := head[a], head[b]
				head[a], head[b] = mag*(x*cos-y*sin), mag*(x*sin+y*cos)
			}
		}
	}
	out[0].SetFloats(v)
	return nil
}

// InPlace is true for the first input: a pair is read whole before it is written.
func (RoPE) InPlace(i int) bool { return i == 0 }

// Flops counts three operations an element.
func (RoPE) Flops(in []tensor.Spec) float64 { return 3 * float64(in[0].Elems()) }
