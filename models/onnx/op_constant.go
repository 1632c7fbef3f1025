package onnx

import (
	"math"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Constant", since(1, 9, 11, 12, 13, 19, 21), constantOp)
	register("ConstantOfShape", since(9, 20, 21), func(c *call) {
		dims := c.ints(c.in(0))
		fill := c.floatsOf([]float32{0})
		if a := c.attr("value", AttrTensor); a != nil {
			if a.T.Elem == String || a.T.Data.Elems() != 1 {
				c.fail("value: one number is right")
			}
			fill = tensorValue(a.T)
		}
		c.out(c.like(c.broadcast(c.reshape(fill), dims...), fill))
	})
	register("EyeLike", since(9), func(c *call) {
		x := c.in(0)
		if x.spec.Rank != 2 {
			c.fail("%v, two dimensions are right", x)
		}
		e := ElemType(c.attrInt("dtype", int(x.elem)))
		out := c.alloc(c.dtype(e), x.spec.Shape()...)
		k := c.attrInt("k", 0)
		values := make([]float64, out.Elems())
		for i := range min(x.spec.Dims[0], len(values)) {
			if j := i + k; j >= 0 && j < x.spec.Dims[1] {
				values[i*x.spec.Dims[1]+j] = 1
			}
		}
		out.SetFloats(values)
		c.out(knownValue(out))
	})
	register("Range", since(11), func(c *call) {
		start, limit, delta := c.in(0), c.in(1), c.in(2)
		d := start.spec.DType
		if d.IsInt() {
			from, to, step := c.int(start), c.int(limit), c.int(delta)
			if step == 0 {
				c.fail("delta is 0")
			}
			n := max(math.Ceil((float64(to)-float64(from))/float64(step)), 0)
			if n > 1<<40 {
				c.fail("from %d to %d by %d", from, to, step)
			}
			out := c.alloc(d, int(n))
			v := make([]int64, out.Elems())
			for i := range v {
				v[i] = int64(from + i*step)
			}
			out.SetInts(v)
			c.out(knownValue(out))
			return
		}
		from, to, step := c.scalar(start), c.scalar(limit), c.scalar(delta)
		n := math.Ceil((to - from) / step)
		if step == 0 || n != n || n > 1<<40 {
			c.fail("from %g to %g by %g", from, to, step)
		}
		out := c.alloc(d, max(int(n), 0))
		v := make([]float64, out.Elems())
		for i := range v {
			v[i] = from + float64(i)*step
		}
		out.SetFloats(v)
		c.out(knownValue(out))
	})
}

func constantOp(c *call) {
	c.numIn(0, 0)
	if len(c.n.Attrs) == 0 {
		c.fail("no attribute holds a value")
	}
	for i := range c.n.Attrs {
		a := &c.n.Attrs[i]
		switch a.Name {
		case "value", "sparse_value":
			if a.T == nil {
				c.fail("attribute %q is no tensor", a.Name)
			}
			c.out(c.r.init(a.T))
		case "value_float":
			c.out(c.floatsOf([]float32{c.attr(a.Name, AttrFloat).F}))
		case "value_floats":
			c.out(c.floatsOf(a.Floats, len(a.Floats)))
		case "value_int":
			c.out(knownValue(tensor.Of([]int64{c.attr(a.Name, AttrInt).I})))
		case "value_ints":
			c.out(knownValue(tensor.Of(a.Ints, len(a.Ints))))
		case "value_string":
			c.out(textValue([]string{a.S}, nil))
		case "value_strings":
			c.out(textValue(a.Strings, []int{len(a.Strings)}))
		default:
			c.fail("attribute %q is unknown", a.Name)
		}
	}
}
