package onnx

import (
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	for name, r := range map[string]struct {
		kind      reduce.Kind
		axesInput int // opset at which axes became an input
		versions  []int
	}{
		"ReduceSum":       {reduce.Sum, 13, since(1, 11, 13)},
		"ReduceMean":      {reduce.Mean, 18, since(1, 11, 13, 18)},
		"ReduceMax":       {reduce.Max, 18, since(1, 11, 12, 13, 18, 20)},
		"ReduceMin":       {reduce.Min, 18, since(1, 11, 12, 13, 18, 20)},
		"ReduceProd":      {reduce.Prod, 18, since(1, 11, 13, 18)},
		"ReduceL1":        {reduce.L1, 18, since(1, 11, 13, 18)},
		"ReduceL2":        {reduce.L2, 18, since(1, 11, 13, 18)},
		"ReduceSumSquare": {reduce.SumSquare, 18, since(1, 11, 13, 18)},
		"ReduceLogSum":    {reduce.LogSum, 18, since(1, 11, 13, 18)},
		"ReduceLogSumExp": {reduce.LogSumExp, 18, since(1, 11, 13, 18)},
	} {
		register(name, r.versions, func(c *call) {
			x := c.in(0)
			axes, given := c.axesArg(r.axesInput, 1, "axes")
			if (!given || len(axes) == 0) && c.attrBool("noop_with_empty_axes", false) {
				c.out(x)
				return
			}
			if len(axes) == 0 {
				axes = identity(int(x.spec.Rank))
			}
			c.out(c.reduce(r.kind, x, axes, c.attrBool("keepdims", true)))
		})
	}
	for _, name := range []string{"ArgMax", "ArgMin"} {
		register(name, since(1, 11, 12, 13), func(c *call) {
			x := c.in(0)
			c.out(c.emit(reduce.Arg{Axis: c.axis(c.attrInt("axis", 0), int(x.spec.Rank)), Min: name == "ArgMin", Keep: c.attrBool("keepdims", true),
				Last: c.attrBool("select_last_index", false), Out: tensor.I64}, x))
		})
	}
	register("TopK", since(1, 10, 11), func(c *call) {
		x := c.in(0)
		k := 0
		if c.version < 10 {
			k = c.attrInt("k", 0)
		} else {
			k = c.int(c.in(1))
		}
		c.out(c.emitAll(reduce.TopK{K: k, Axis: c.axis(c.attrInt("axis", -1), int(x.spec.Rank)), Smallest: !c.attrBool("largest", true), Out: tensor.I64}, x)...)
	})
	register("CumSum", since(11, 14), func(c *call) {
		x := c.in(0)
		c.out(c.emit(reduce.CumSum{Axis: c.axis(c.int(c.in(1)), int(x.spec.Rank)), Exclusive: c.attrBool("exclusive", false), Reverse: c.attrBool("reverse", false)}, x))
	})
}

// reduce reduces any type: integers where the operation takes them, through float64 otherwise.
func (c *call) reduce(kind reduce.Kind, x *value, axes []int, keep bool) *value {
	if x.spec.Rank == 0 {
		axes = nil
	}
	for i, a := range axes {
		axes[i] = c.axis(a, int(x.spec.Rank))
	}
	op := reduce.Reduce{Kind: kind, Axes: c.list(axes), Keep: keep}
	d := x.spec.DType
	switch {
	case d == tensor.Bool:
		return c.cast(c.emit(op, c.cast(x, tensor.U8)), d)
	case d.IsInt() && kind != reduce.Sum && kind != reduce.Max && kind != reduce.Min && kind != reduce.Prod:
		return c.cast(c.emit(op, c.cast(x, tensor.F64)), d)
	}
	return c.emit(op, x)
}
