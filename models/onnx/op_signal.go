package onnx

import (
	"math"
	"math/bits"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	for name, f := range map[string]func(x float64) float64{
		"HannWindow":     func(x float64) float64 { return 0.5 - 0.5*math.Cos(x) },
		"HammingWindow":  func(x float64) float64 { return 25.0/46 - (1-25.0/46)*math.Cos(x) },
		"BlackmanWindow": func(x float64) float64 { return 0.42 - 0.5*math.Cos(x) + 0.08*math.Cos(2*x) },
	} {
		register(name, since(17), func(c *call) {
			n := c.int(c.in(0))
			out := c.alloc(c.dtype(ElemType(c.attrInt("output_datatype", 1))), n)
			span := float64(n)
			if !c.attrBool("periodic", true) {
				span--
			}
			v := make([]float64, n)
			for i := range v {
				v[i] = f(2 * math.Pi * float64(i) / span)
			}
			out.SetFloats(v)
			c.out(knownValue(out))
		})
	}
	register("DFT", since(17, 20), dft)
	register("STFT", since(17), stft)
	register("MelWeightMatrix", since(17), melWeights)
}

// fourier is the discrete transform of v (real and imaginary parts in turn) of any length: by halves while it is even, by Bluestein's
// method when it is odd and long, by definition otherwise. Sign is -1, or 1 for the inverse without its factor.
func fourier(v []float64, sign float64) []float64 {
	const long = 64
	n := len(v) / 2
	if n%2 == 1 && n > long {
		return bluestein(v, sign)
	}
	out := make([]float64, 2*n)
	if n%2 == 0 && n > 2 {
		even, odd := make([]float64, 0, n), make([]float64, 0, n)
		for i := 0; i < n; i += 2 {
			even = append(even, v[2*i], v[2*i+1])
			odd = append(odd, v[2*i+2], v[2*i+3])
		}
		e, o := fourier(even, sign), fourier(odd, sign)
		for k := range n / 2 {
			s, c := math.Sincos(sign * 2 * math.Pi * float64(k) / float64(n))
			re, im := c*o[2*k]-s*o[2*k+1], c*o[2*k+1]+s*o[2*k]
			out[2*k], out[2*k+1] = e[2*k]+re, e[2*k+1]+im
			out[2*k+n], out[2*k+1+n] = e[2*k]-re, e[2*k+1]-im
		}
		return out
	}
	for k := range n {
		for i := range n {
			s, c := math.Sincos(sign * 2 * math.Pi * float64(k*i%n) / float64(n))
			out[2*k] += c*v[2*i] - s*v[2*i+1]
			out[2*k+1] += c*v[2*i+1] + s*v[2*i]
		}
	}
	return out
}

// bluestein writes the transform as a convolution, with 2 k i = k^2 + i^2 - (k - i)^2 in the exponents, and that as transforms whose
// length is a power of two.
func bluestein(v []float64, sign float64) []float64 {
	n := len(v) / 2
	m := 1 << bits.Len(uint(2*n-1))
	chirp := make([]complex128, n)
	for i := range chirp {
		turns := int64(i) * int64(i) % int64(2*n) // the angle repeats; small ones are accurate
		s, c := math.Sincos(sign * math.Pi * float64(turns) / float64(n))
		chirp[i] = complex(c, s)
	}
	a, b := make([]float64, 2*m), make([]float64, 2*m)
	set := func(v []float64, i int, z complex128) { v[2*i], v[2*i+1] = real(z), imag(z) }
	at := func(v []float64, i int) complex128 { return complex(v[2*i], v[2*i+1]) }
	for i, w := range chirp {
		set(a, i, at(v, i)*w)
		conj := complex(real(w), -imag(w))
		set(b, i, conj)
		if i > 0 {
			set(b, m-i, conj)
		}
	}
	a, b = fourier(a, -1), fourier(b, -1)
	for i := range m {
		set(a, i, at(a, i)*at(b, i))
	}
	a = fourier(a, 1)
	out := make([]float64, 2*n)
	for k, w := range chirp {
		set(out, k, at(a, k)*w/complex(float64(m), 0))
	}
	return out
}

func dft(c *call) {
	x := c.in(0)
	rank := int(x.spec.Rank)
	if rank < 2 || x.spec.Dim(-1) < 1 || x.spec.Dim(-1) > 2 {
		c.fail("%v, a last dimension of 1 or 2 is right", x)
	}
	axis := c.attrInt("axis", 1)
	if c.version >= 20 {
		axis = -2
		if v := c.opt(2); v != nil {
			axis = c.int(v)
		}
	}
	axis = c.axis(axis, rank)
	if axis == rank-1 {
		c.fail("axis %d is that of real and imaginary parts", axis)
	}
	inverse, oneSided := c.attrBool("inverse", false), c.attrBool("onesided", false)
	n := x.spec.Dims[axis]
	if v := c.opt(1); v != nil {
		n = c.int(v)
	}
	if n < 1 || n > 1<<24 || inverse && oneSided {
		c.fail("length %d, inverse %v, one-sided %v", n, inverse, oneSided)
	}
	dims := x.spec.Shape()
	dims[axis], dims[rank-1] = n, 2
	if oneSided {
		dims[axis] = n/2 + 1
	}
	c.out(c.apply(c.spec(x.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		parts, have := x.spec.Dim(-1), x.spec.Dims[axis]
		outer, inner := 1, 1
		for i, d := range x.spec.Shape()[:rank-1] {
			if i < axis {
				outer *= d
			} else if i > axis {
				inner *= d
			}
		}
		res := make([]float64, out.Elems())
		sign := -1.0
		if inverse {
			sign = 1
		}
		for o := range outer {
			for j := range inner {
				buf := make([]float64, 2*n)
				for i := range min(n, have) {
					for p := range parts {
						buf[2*i+p] = v[((o*have+i)*inner+j)*parts+p]
					}
				}
				got := fourier(buf, sign)
				for i := range dims[axis] {
					for p := range 2 {
						r := got[2*i+p]
						if inverse {
							r /= float64(n)
						}
						res[((o*dims[axis]+i)*inner+j)*2+p] = r
					}
				}
			}
		}
		out.SetFloats(res)
		return nil
	}, x))
}

func stft(c *call) {
	x := c.in(0)
	step := c.int(c.in(1))
	window := c.opt(2)
	n := 0
	switch {
	case c.has(3):
		n = c.int(c.in(3))
	case window != nil:
		n = window.spec.Elems()
	}
	parts := 1
	if x.spec.Rank == 3 {
		parts = x.spec.Dims[2]
	}
	if x.spec.Rank < 2 || x.spec.Rank > 3 || parts < 1 || parts > 2 || step < 1 || n < 1 || n > x.spec.Dims[1] || window != nil && window.spec.Elems() != n {
		c.fail("signal %v, step %d, frames of %d", x, step, n)
	}
	frames, bins := (x.spec.Dims[1]-n)/step+1, n
	if c.attrBool("onesided", true) {
		bins = n/2 + 1
	}
	in := []*value{x}
	if window != nil {
		in = append(in, window)
	}
	c.out(c.apply(c.spec(x.spec.DType, x.spec.Dims[0], frames, bins, 2), func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		var w []float64
		if len(in) > 1 {
			w = in[1].Floats()
		}
		res := make([]float64, 0, out.Elems())
		for b := range x.spec.Dims[0] {
			for f := range frames {
				buf := make([]float64, 2*n)
				for i := range n {
					for p := range parts {
						buf[2*i+p] = v[(b*x.spec.Dims[1]+f*step+i)*parts+p]
						if w != nil {
							buf[2*i+p] *= w[i]
						}
					}
				}
				res = append(res, fourier(buf, -1)[:2*bins]...)
			}
		}
		out.SetFloats(res)
		return nil
	}, in...))
}

func melWeights(c *call) {
	mels, length, rate := c.int(c.in(0)), c.int(c.in(1)), c.scalar(c.in(2))
	lo, hi := c.scalar(c.in(3)), c.scalar(c.in(4))
	if mels < 1 || mels > 1<<20 || length < 1 || length > 1<<24 {
		c.fail("%d bands, length %d", mels, length)
	}
	bins := length/2 + 1
	toMel := func(f float64) float64 { return 2595 * math.Log10(1+f/700) }
	edges := make([]int, mels+2)
	width := (toMel(hi) - toMel(lo)) / float64(mels+2)
	for i := range edges {
		f := 700 * (math.Pow(10, (float64(i)*width+toMel(lo))/2595) - 1)
		edges[i] = int(float64(length+1) * f / rate)
	}
	out := c.alloc(c.dtype(ElemType(c.attrInt("output_datatype", 1))), bins, mels)
	v := make([]float64, bins*mels)
	for m := range mels {
		from, peak, to := edges[m], edges[m+1], edges[m+2]
		set := func(bin int, w float64) {
			if bin >= 0 && bin < bins {
				v[bin*mels+m] = w
			}
		}
		if peak == from {
			set(peak, 1)
		} else {
			for b := max(from, 0); b <= min(peak, bins-1); b++ {
				set(b, float64(b-from)/float64(peak-from))
			}
		}
		for b := max(peak, 0); b < min(to, bins); b++ {
			set(b, float64(to-b)/float64(to-peak))
		}
	}
	out.SetFloats(v)
	c.out(knownValue(out))
}
