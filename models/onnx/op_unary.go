package onnx

import (
	"math"

	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	for name, u := range map[string]struct {
		f elementwise.Func
		v []int
	}{
		"Abs": {elementwise.Abs, since(1, 6, 13)}, "Neg": {elementwise.Neg, since(1, 6, 13)}, "Sign": {elementwise.Sign, since(9, 13)},
		"Exp": {elementwise.Exp, since(1, 6, 13)}, "Log": {elementwise.Log, since(1, 6, 13)}, "Sqrt": {elementwise.Sqrt, since(1, 6, 13)},
		"Reciprocal": {elementwise.Reciprocal, since(1, 6, 13)}, "Floor": {elementwise.Floor, since(1, 6, 13)},
		"Ceil": {elementwise.Ceil, since(1, 6, 13)}, "Round": {elementwise.Round, since(11)},
		"Sin": {elementwise.Sin, since(7)}, "Cos": {elementwise.Cos, since(7)}, "Tan": {elementwise.Tan, since(7)},
		"Asin": {elementwise.Asin, since(7)}, "Acos": {elementwise.Acos, since(7)}, "Atan": {elementwise.Atan, since(7)},
		"Sinh": {elementwise.Sinh, since(9)}, "Cosh": {elementwise.Cosh, since(9)}, "Asinh": {elementwise.Asinh, since(9)},
		"Acosh": {elementwise.Acosh, since(9)}, "Atanh": {elementwise.Atanh, since(9)}, "Erf": {elementwise.Erf, since(9, 13)},
		"Not": {elementwise.Not, since(1)}, "BitwiseNot": {elementwise.BitNot, since(18)}, "IsNaN": {elementwise.IsNaN, since(9, 13, 20)},
	} {
		register(name, u.v, func(c *call) {
			c.numIn(1, 1)
			c.out(c.unary(u.f, c.in(0)))
		})
	}
	register("IsInf", since(10, 20), isInf)
}

func isInf(c *call) {
	positive, negative := c.attrBool("detect_positive", true), c.attrBool("detect_negative", true)
	x := c.in(0)
	if positive && negative {
		c.out(c.unary(elementwise.IsInf, x))
		return
	}
	if !positive && !negative {
		c.out(c.broadcast(c.scalarOf(tensor.Bool, 0), x.spec.Shape()...))
		return
	}
	inf := math.Inf(1)
	if negative {
		inf = math.Inf(-1)
	}
	c.out(c.binary(elementwise.Equal, x, c.scalarOf(x.spec.DType, inf)))
}
