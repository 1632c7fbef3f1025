package onnx

import (
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	simple := func(name string, kind ops.Activation, p, q float32, versions []int) {
		register(name, versions, func(c *call) { c.out(c.act(kind, c.attrFloat("alpha", p), c.attrFloat("beta", q), c.in(0))) })
	}
	simple("LeakyRelu", ops.LeakyReLU, 0.01, 0, since(1, 6, 16))
	simple("Elu", ops.ELU, 1, 0, since(1, 6))
	simple("HardSigmoid", ops.HardSigmoid, 0.2, 0.5, since(1, 6))
	simple("HardSwish", ops.HardSwish, 0, 0, since(14))
	simple("Sigmoid", ops.Sigmoid, 0, 0, since(1, 6, 13))
	simple("Tanh", ops.Tanh, 0, 0, since(1, 6, 13))
	simple("Softplus", ops.Softplus, 0, 0, since(1))
	simple("Mish", ops.Mish, 0, 0, since(18))
	register("Relu", since(1, 6, 13, 14), func(c *call) {
		x := c.in(0)
		if !x.spec.DType.IsFloat() {
			c.out(c.binary(elementwise.Max, x, c.scalarOf(x.spec.DType, 0)))
			return
		}
		c.out(c.act(ops.ReLU, 0, 0, x))
	})
	register("Gelu", since(20), func(c *call) {
		kind := ops.GELU
		switch a := c.attrString("approximate", "none"); a {
		case "none":
		case "tanh":
			kind = ops.GELUTanh
		default:
			c.fail("approximate %q, none or tanh is right", a)
		}
		c.out(c.act(kind, 0, 0, c.in(0)))
	})
	register("Selu", since(1, 6), func(c *call) {
		alpha, gamma := c.attrFloat("alpha", 1.67326319217681884765625), c.attrFloat("gamma", 1.05070102214813232421875)
		c.out(c.scale(c.act(ops.ELU, alpha, 0, c.in(0)), gamma, 0))
	})
	register("Celu", since(12), func(c *call) {
		alpha := c.attrFloat("alpha", 1)
		c.out(c.scale(c.act(ops.ELU, 1, 0, c.scale(c.in(0), 1/alpha, 0)), alpha, 0))
	})
	register("ThresholdedRelu", since(10), func(c *call) {
		x := c.in(0)
		d := x.spec.DType
		above := c.binary(elementwise.Greater, x, c.scalarOf(d, float64(c.attrFloat("alpha", 1))))
		c.out(c.where(above, x, c.scalarOf(d, 0)))
	})
	register("Softsign", since(1), func(c *call) {
		x := c.in(0)
		c.out(c.binary(elementwise.Div, x, c.scale(c.unary(elementwise.Abs, x), 1, 1)))
	})
	register("Shrink", since(9), func(c *call) {
		x := c.in(0)
		d := x.spec.DType
		lambd, bias := float64(c.attrFloat("lambd", 0.5)), float64(c.attrFloat("bias", 0))
		wide := x
		if !d.IsFloat() {
			wide = c.cast(x, tensor.F64)
		}
		w := wide.spec.DType
		low := c.binary(elementwise.Less, wide, c.scalarOf(w, -lambd))
		high := c.binary(elementwise.Greater, wide, c.scalarOf(w, lambd))
		y := c.where(low, c.binary(elementwise.Add, wide, c.scalarOf(w, bias)),
			c.where(high, c.binary(elementwise.Sub, wide, c.scalarOf(w, bias)), c.scalarOf(w, 0)))
		c.out(c.cast(y, d))
	})
	register("PRelu", since(1, 6, 7, 9, 16), func(c *call) {
		x, slope := c.in(0), c.in(1)
		d := x.spec.DType
		if c.version < 7 && slope.spec.Rank == 1 && x.spec.Rank > 2 { // one slope a channel
			dims := []int{slope.spec.Dims[0]}
			for range int(x.spec.Rank) - 2 {
				dims = append(dims, 1)
			}
			slope = c.reshape(slope, dims...)
		}
		if slope.known && slope.spec.Elems() == 1 && d == tensor.F32 {
			c.out(c.act(ops.LeakyReLU, float32(c.scalar(slope)), 0, x))
			return
		}
		negative := c.binary(elementwise.Less, x, c.scalarOf(d, 0))
		c.out(c.where(negative, c.binary(elementwise.Mul, x, slope), x))
	})
	register("Clip", since(1, 6, 11, 12, 13), clip)
}

func clip(c *call) {
	x := c.in(0)
	var lo, hi *value
	if c.version < 11 {
		if a := c.attr("min", AttrFloat); a != nil {
			lo = c.scalarOf(x.spec.DType, float64(a.F))
		}
		if a := c.attr("max", AttrFloat); a != nil {
			hi = c.scalarOf(x.spec.DType, float64(a.F))
		}
	} else {
		lo, hi = c.opt(1), c.opt(2)
	}
	// Known limits make an activation, which fuses into what is before it.
	if x.spec.DType == tensor.F32 && (lo != nil || hi != nil) && (lo == nil || lo.known) && (hi == nil || hi.known) {
		const most = 3.4028234663852886e38
		p, q := float32(-most), float32(most)
		if lo != nil {
			p = float32(c.scalar(lo))
		}
		if hi != nil {
			q = float32(c.scalar(hi))
		}
		if lo != nil && hi == nil && p == 0 {
			c.out(c.act(ops.ReLU, 0, 0, x))
			return
		}
		if lo != nil && hi != nil {
			c.out(c.act(ops.Clip, p, q, x))
			return
		}
	}
	c.out(c.emit(elementwise.Clamp{}, x, lo, hi))
}
