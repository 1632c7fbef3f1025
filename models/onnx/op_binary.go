package onnx

import (
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	for name, b := range map[string]struct {
		f elementwise.Func2
		v []int
	}{
		"Add": {elementwise.Add, since(1, 6, 7, 13, 14)}, "Sub": {elementwise.Sub, since(1, 6, 7, 13, 14)},
		"Mul": {elementwise.Mul, since(1, 6, 7, 13, 14)}, "Div": {elementwise.Div, since(1, 6, 7, 13, 14)},
		"And": {elementwise.And, since(1, 7)}, "Or": {elementwise.Or, since(1, 7)}, "Xor": {elementwise.Xor, since(1, 7)},
		"Less": {elementwise.Less, since(1, 7, 9, 13)}, "Greater": {elementwise.Greater, since(1, 7, 9, 13)},
		"LessOrEqual": {elementwise.LessEqual, since(12, 16)}, "GreaterOrEqual": {elementwise.GreaterEqual, since(12, 16)},
		"BitwiseAnd": {elementwise.BitAnd, since(18)}, "BitwiseOr": {elementwise.BitOr, since(18)}, "BitwiseXor": {elementwise.BitXor, since(18)},
	} {
		register(name, b.v, func(c *call) {
			x, y := c.operands()
			c.out(c.binary(b.f, x, y))
		})
	}
	register("Equal", since(1, 7, 11, 13, 19), equal)
	register("Pow", since(1, 7, 12, 13, 15), pow)
	register("Mod", since(10, 13), mod)
	register("BitShift", since(11), bitShift)
	for name, f := range map[string]elementwise.Func2{"Max": elementwise.Max, "Min": elementwise.Min, "Sum": elementwise.Add, "Mean": elementwise.Add} {
		versions := since(1, 6, 8, 13)
		if name == "Max" || name == "Min" {
			versions = since(1, 6, 8, 12, 13)
		}
		register(name, versions, func(c *call) {
			sum := c.in(0)
			for i := 1; i < len(c.ins); i++ {
				sum = c.binary(f, sum, c.in(i))
			}
			if name == "Mean" {
				sum = c.scale(sum, 1/float32(len(c.ins)), 0)
			}
			c.out(sum)
		})
	}
}

// operands returns the two inputs. Before opset 7 the second was broadcast only when an attribute said so, from a given axis on.
func (c *call) operands() (x, y *value) {
	c.numIn(2, 2)
	x, y = c.in(0), c.in(1)
	if c.version >= 7 || !c.attrBool("broadcast", false) {
		return x, y
	}
	axis := c.attrInt("axis", int(x.spec.Rank)-int(y.spec.Rank))
	if axis < 0 {
		axis += int(x.spec.Rank)
	}
	behind := int(x.spec.Rank) - axis - int(y.spec.Rank)
	if axis < 0 || behind < 0 {
		c.fail("broadcast of %v to %v from axis %d", y, x, axis)
	}
	dims := y.spec.Shape()
	for range behind {
		dims = append(dims, 1)
	}
	return x, c.reshape(y, dims...)
}

func equal(c *call) {
	if c.has(1) && c.ins[0] != nil && c.ins[0].kind == text && c.ins[1].kind == text {
		c.out(c.mapText(tensor.Bool, func(s []string) float64 {
			if s[0] == s[1] {
				return 1
			}
			return 0
		}, c.ins[0], c.ins[1]))
		return
	}
	x, y := c.operands()
	c.out(c.binary(elementwise.Equal, x, y))
}

// mapText computes a number from strings, broadcast to each other.
func (c *call) mapText(d tensor.DType, f func([]string) float64, in ...*value) *value {
	var shapes [][]int
	for _, v := range in {
		shapes = append(shapes, v.spec.Shape())
	}
	dims, err := tensor.BroadcastDims(shapes...)
	c.check(err)
	out := c.alloc(d, dims...)
	values := make([]float64, out.Elems())
	args := make([]string, len(in))
	for i := range values {
		for j, v := range in {
			args[j] = v.text[broadcastIndex(i, dims, v.spec.Shape())]
		}
		values[i] = f(args)
	}
	out.SetFloats(values)
	return knownValue(out)
}

// broadcastIndex returns which element of a tensor of shape from stands at element i of dims.
func broadcastIndex(i int, dims, from []int) int {
	at, step := 0, 1
	for d := len(dims) - 1; d >= 0; d-- {
		p := i % dims[d]
		i /= dims[d]
		if f := d - len(dims) + len(from); f >= 0 {
			if from[f] != 1 {
				at += p * step
			}
			step *= from[f]
		}
	}
	return at
}

// pow gives the type of the base, whatever that of the exponent.
func pow(c *call) {
	x, y := c.operands()
	d := x.spec.DType
	if d != y.spec.DType {
		if d.IsFloat() {
			y = c.cast(y, d)
		} else {
			x, y = c.cast(x, tensor.F64), c.cast(y, tensor.F64)
		}
	}
	if y.known && y.spec.Elems() == 1 && d == tensor.F32 && y.spec.Rank <= x.spec.Rank { // a product is exact and quicker
		switch c.scalar(y) {
		case 1:
			c.out(x)
			return
		case 2:
			c.out(c.unary(elementwise.Sqr, x))
			return
		case 0.5:
			c.out(c.unary(elementwise.Sqrt, x))
			return
		}
	}
	c.out(c.cast(c.binary(elementwise.Pow, x, y), d))
}

func mod(c *call) {
	x, y := c.operands()
	f := elementwise.Mod
	if c.attrBool("fmod", false) {
		f = elementwise.FMod
	} else if x.spec.DType.IsFloat() {
		c.fail("fmod = 0 is for integers, the inputs are %v", x)
	}
	c.out(c.binary(f, x, y))
}

func bitShift(c *call) {
	f := elementwise.ShiftLeft
	switch direction := c.attrString("direction", ""); direction {
	case "LEFT":
	case "RIGHT":
		f = elementwise.ShiftRight
	default:
		c.fail("direction %q, LEFT or RIGHT is right", direction)
	}
	x, y := c.operands()
	c.out(c.binary(f, x, y))
}
