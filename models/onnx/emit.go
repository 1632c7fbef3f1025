package onnx

import (
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// Short forms of what operators emit most.

func (c *call) unary(f elementwise.Func, a *value) *value { return c.emit(elementwise.Unary{F: f}, a) }

func (c *call) binary(f elementwise.Func2, a, b *value) *value {
	return c.emit(elementwise.Binary{F: f}, a, b)
}

func (c *call) act(kind ops.Activation, p, q float32, a *value) *value {
	return c.emit(elementwise.Activate{Act: ops.Act{Kind: kind, P: p, Q: q}}, a)
}

// scale is mul a + add.
func (c *call) scale(a *value, mul, add float32) *value {
	return c.emit(elementwise.Scale{Mul: mul, Add: add}, a)
}

// cast converts, if the type is another.
func (c *call) cast(a *value, d tensor.DType) *value {
	if a.spec.DType == d {
		return a
	}
	return c.emit(elementwise.Cast{To: d}, a)
}

func (c *call) where(cond, a, b *value) *value { return c.emit(elementwise.Where{}, cond, a, b) }

func (c *call) reshape(a *value, dims ...int) *value {
	if len(dims) > tensor.MaxRank {
		c.fail("%d dimensions, at most %d are possible", len(dims), tensor.MaxRank)
	}
	v := c.emit(shape.Reshape{Dims: ops.ConstSizes(dims...), Zero: true}, a)
	return c.like(v, a)
}

func (c *call) permute(a *value, order ...int) *value {
	return c.like(c.emit(shape.Permute{Order: c.list(order)}, a), a)
}

func (c *call) slice(a *value, axis, from, to int) *value {
	return c.emit(shape.Slice{Axis: axis, From: ops.Const(from), To: ops.Const(to)}, a)
}

func (c *call) concat(axis int, vs ...*value) *value {
	if len(vs) == 1 {
		return vs[0]
	}
	return c.emit(shape.Concat{Axis: axis}, vs...)
}

func (c *call) broadcast(a *value, dims ...int) *value {
	if len(dims) > tensor.MaxRank {
		c.fail("%d dimensions, at most %d are possible", len(dims), tensor.MaxRank)
	}
	return c.emit(shape.Broadcast{Dims: ops.ConstSizes(dims...)}, a)
}

// like gives a value that an operation has only moved the element type of its source, which int4 and float8 need.
func (c *call) like(v, source *value) *value {
	if v.elem != source.elem {
		v.elem = source.elem
	}
	return v
}

// identity returns the order 0, 1, ... of n dimensions.
func identity(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// lambda is an operation that only ONNX has, computed by one Go function, which is its reference and its implementation. Two are
// equal only if they are the same.
type lambda struct{ *lambdaBody }

type lambdaBody struct {
	name    string
	out     []tensor.Spec
	compute func(out, in []tensor.Tensor) error
}

// Name is the operator's name.
func (l lambda) Name() string { return l.name }

// Infer returns what the definition has worked out.
func (l lambda) Infer([]tensor.Spec) ([]tensor.Spec, error) { return l.out, nil }

// Reference computes.
func (l lambda) Reference(out, in []tensor.Tensor) error { return l.compute(out, in) }

// spec makes the spec of a result, checked.
func (c *call) spec(d tensor.DType, dims ...int) tensor.Spec {
	s, err := tensor.CheckDims(d, dims)
	c.check(err)
	return s
}

// apply emits an operation of one output that a function computes.
func (c *call) apply(out tensor.Spec, compute func(out tensor.Tensor, in []tensor.Tensor) error, in ...*value) *value {
	return c.emit(lambda{&lambdaBody{c.n.Op, []tensor.Spec{out}, func(o, i []tensor.Tensor) error { return compute(o[0], i) }}}, in...)
}

func gatherOp(axis int) ops.Op { return shape.Gather{Axis: axis} }
