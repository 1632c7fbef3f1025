package onnx

import (
	"math"
	"strconv"
	"strings"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Cast", since(1, 6, 9, 13, 19, 21), func(c *call) {
		to := ElemType(c.attrInt("to", 0))
		if a := c.n.Attr("to"); a != nil && a.Type == AttrString { // opset 1
			for e, name := range elemNames {
				if strings.EqualFold(name, a.S) {
					to = e
				}
			}
		}
		c.out(c.convert(c.any(0), to, c.attrBool("saturate", true)))
	})
	register("CastLike", since(15, 19, 21), func(c *call) { c.out(c.convert(c.any(0), c.any(1).elem, c.attrBool("saturate", true))) })
}

// convert casts any tensor to any element type. Saturate is for 8-bit floats.
func (c *call) convert(x *value, to ElemType, saturate bool) *value {
	switch {
	case x.kind == text && to == String:
		return x
	case x.kind == text:
		out := c.alloc(c.dtype(to), x.spec.Shape()...)
		if to == Int64 || to == Uint64 {
			ints := make([]int64, len(x.text))
			for i, s := range x.text {
				v, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
				if err != nil {
					c.fail("cast of %q to %v", s, to)
				}
				ints[i] = v
			}
			out.SetInts(ints)
			return knownValue(out)
		}
		values := make([]float64, len(x.text))
		for i, s := range x.text {
			v, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil && !math.IsInf(v, 0) {
				c.fail("cast of %q to %v", s, to)
			}
			values[i] = v
		}
		out.SetFloats(values)
		return knownValue(out)
	case x.kind != numbers:
		c.fail("cast of a %v", x.kind)
	case to == String:
		return textValue(formatNumbers(c.data(x)), x.spec.Shape())
	case to == x.elem:
		return x
	}
	if isFloat8(x.elem) {
		x = c.fromFloat8(x)
	}
	if isFloat8(to) {
		return c.toFloat8(x, to, saturate)
	}
	d := c.dtype(to)
	if to == Int4 || to == Uint4 { // 4 bits are cut out of the integer
		wide := c.cast(x, tensor.I32)
		y := c.apply(c.spec(d, x.spec.Shape()...), func(out tensor.Tensor, in []tensor.Tensor) error {
			v := in[0].Ints()
			for i := range v {
				v[i] &= 15
				if to == Int4 && v[i] > 7 {
					v[i] -= 16
				}
			}
			out.SetInts(v)
			return nil
		}, wide)
		y.elem = to
		return y
	}
	y := c.cast(x, d)
	if y == x { // int4 to int8: the same numbers
		copied := *x
		copied.elem = to
		return &copied
	}
	return y
}

// formatNumbers writes numbers as the standard wants: integers plainly, floats with as many digits as they have.
func formatNumbers(t tensor.Tensor) []string {
	out := make([]string, t.Elems())
	if !t.DType.IsFloat() {
		for i, v := range t.Ints() {
			out[i] = strconv.FormatInt(v, 10)
		}
		return out
	}
	bits := 32
	if t.DType == tensor.F64 {
		bits = 64
	}
	for i, v := range t.Floats() {
		switch {
		case v != v:
			out[i] = "NaN"
		case math.IsInf(v, 1):
			out[i] = "INF"
		case math.IsInf(v, -1):
			out[i] = "-INF"
		default:
			out[i] = strconv.FormatFloat(v, 'g', -1, bits)
		}
	}
	return out
}
