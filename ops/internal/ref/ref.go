// Package ref holds what the references and shape rules of the op packages share: reading operands as float64, and the checks
// that say which input is wrong.
package ref

import (
	"fmt"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Floats returns the elements in row-major order as float64; blocks are decoded.
func Floats(t tensor.Tensor) ([]float64, error) {
	if t.DType.IsBlock() {
		d, err := quant.Decode(t)
		if err != nil {
			return nil, err
		}
		t = d
	}
	return t.Floats(), nil
}

// Present reports whether optional input i was given.
func Present(in []tensor.Tensor, i int) bool { return i < len(in) && in[i].DType != tensor.Invalid }

// Has reports whether optional input i was given.
func Has(in []tensor.Spec, i int) bool { return i < len(in) && in[i].DType != tensor.Invalid }

// Axis returns an axis that may count from the innermost (-1) as one that counts from the outermost.
func Axis(op ops.Op, axis, rank int) (int, error) {
	a := axis
	if a < 0 {
		a += rank
	}
	if a < 0 || a >= rank {
		return 0, fmt.Errorf("%s: axis %d of %d dimensions; from %d to %d is right", op.Name(), axis, rank, -rank, rank-1)
	}
	return a, nil
}

// Float returns an error unless input i has a plain floating-point type.
func Float(op ops.Op, in []tensor.Spec, i int) error {
	if !in[i].DType.IsFloat() {
		return fmt.Errorf("%s: input %d is %v, a floating-point type is right", op.Name(), i, in[i])
	}
	return nil
}

// Index returns an error unless input i has a type that can count rows.
func Index(op ops.Op, in []tensor.Spec, i int) error {
	if d := in[i].DType; d != tensor.I32 && d != tensor.I64 {
		return fmt.Errorf("%s: input %d is %v, i32 or i64 is right for indices", op.Name(), i, in[i])
	}
	return nil
}

// Vector returns an error unless input i is a floating-point vector of n elements.
func Vector(op ops.Op, in []tensor.Spec, i, n int, what string) error {
	if s := in[i]; !s.DType.IsFloat() || s.Rank != 1 || s.Dims[0] != n {
		return fmt.Errorf("%s: %s (input %d) is %v, f32[%d] is right", op.Name(), what, i, s, n)
	}
	return nil
}

// Checked returns the spec as the only output, if it is possible.
func Checked(op ops.Op, d tensor.DType, dims []int) ([]tensor.Spec, error) {
	s, err := tensor.CheckDims(d, dims)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op.Name(), err)
	}
	return []tensor.Spec{s}, nil
}

// Strides returns the row-major strides of dims.
func Strides(dims []int) []int {
	s := make([]int, len(dims))
	step := 1
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = step
		step *= dims[i]
	}
	return s
}

// Split returns the product of the dimensions before axis, the axis itself, and the product of those behind it.
func Split(dims []int, axis int) (outer, n, inner int) {
	outer, inner = 1, 1
	for i, d := range dims {
		switch {
		case i < axis:
			outer *= d
		case i == axis:
			n = d
		default:
			inner *= d
		}
	}
	return outer, n, inner
}

// Spread returns the elements of t as float64 in the row-major order of dims, to which t is broadcast.
func Spread(t tensor.Tensor, dims []int) ([]float64, error) {
	if t.DType.IsBlock() {
		d, err := quant.Decode(t)
		if err != nil {
			return nil, err
		}
		t = d
	}
	b, err := t.Broadcast(dims...)
	if err != nil {
		return nil, err
	}
	return b.Floats(), nil
}
