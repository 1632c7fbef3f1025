package onnx

import (
	"math"
	"sort"
	"sync"

	"github.com/tessera-go/tessera/tensor"
)

// float8 describes one of the four 8-bit floating-point types.
type float8 struct {
	mantissa int // bits
	bias     int
	infinity bool // has infinities and several NaN (E5M2)
	fnuz     bool // has neither, one zero, and NaN at the place of negative zero
}

var float8s = map[ElemType]float8{
	F8E4M3FN: {3, 7, false, false}, F8E4M3FNUZ: {3, 8, false, true}, F8E5M2: {2, 15, true, false}, F8E5M2FNUZ: {2, 16, false, true},
}

// decode returns the number that 8 bits stand for.
func (f float8) decode(b uint8) float64 {
	if f.fnuz && b == 0x80 {
		return math.NaN()
	}
	sign := 1.0
	if b&0x80 != 0 {
		sign = -1
	}
	m := f.mantissa
	exp, frac := int(b&0x7f)>>m, float64(b&(1<<m-1))/float64(int(1)<<m)
	if !f.fnuz {
		top := 1<<(7-m) - 1
		if f.infinity && exp == top {
			if frac == 0 {
				return sign * math.Inf(1)
			}
			return math.NaN()
		}
		if !f.infinity && b&0x7f == 0x7f {
			return math.NaN()
		}
	}
	if exp == 0 {
		return sign * math.Ldexp(frac, 1-f.bias)
	}
	return sign * math.Ldexp(1+frac, exp-f.bias)
}

// float8Table holds the finite non-negative numbers of a type in rising order; the index is the bits.
type float8Table struct {
	f      float8
	values []float64
}

var float8Tables = sync.OnceValue(func() map[ElemType]*float8Table {
	all := map[ElemType]*float8Table{}
	for e, f := range float8s {
		t := &float8Table{f: f}
		for b := range 128 {
			v := f.decode(uint8(b))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				break
			}
			t.values = append(t.values, v)
		}
		all[e] = t
	}
	return all
})

// encode rounds to nearest even. What is too large becomes the largest number if saturate is set, else infinity, or NaN in types
// without it.
func (t *float8Table) encode(x float64, saturate bool) uint8 {
	nan := uint8(0x7f)
	if t.f.fnuz {
		nan = 0x80
	}
	if x != x {
		return nan
	}
	var sign uint8
	if math.Signbit(x) {
		sign, x = 0x80, -x
	}
	last := len(t.values) - 1
	i := sort.SearchFloat64s(t.values, x)
	if i > last {
		step := t.values[last] - t.values[last-1]
		if overflow := x >= t.values[last]+step/2; !overflow || saturate {
			return sign | uint8(last)
		}
		if t.f.infinity {
			return sign | uint8(last+1)
		}
		if t.f.fnuz {
			return nan
		}
		return sign | nan
	}
	if i > 0 && t.values[i] != x {
		below, above := x-t.values[i-1], t.values[i]-x
		if below < above || below == above && i%2 == 1 {
			i--
		}
	}
	if i == 0 && t.f.fnuz {
		return 0
	}
	return sign | uint8(i)
}

// fromFloat8 decodes a tensor of bits to float32.
func (c *call) fromFloat8(x *value) *value {
	f := float8s[x.elem]
	return c.apply(x.spec.With(tensor.F32), func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		for i, b := range v {
			v[i] = f.decode(uint8(b))
		}
		out.SetFloats(v)
		return nil
	}, x)
}

// toFloat8 encodes a tensor.
func (c *call) toFloat8(x *value, to ElemType, saturate bool) *value {
	t := float8Tables()[to]
	y := c.apply(x.spec.With(tensor.U8), func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		for i, b := range v {
			v[i] = float64(t.encode(b, saturate))
		}
		out.SetFloats(v)
		return nil
	}, x)
	y.elem = to
	return y
}

func isFloat8(e ElemType) bool { _, ok := float8s[e]; return ok }
