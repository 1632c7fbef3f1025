// Package attention decides the operations of attention: rotary positions (RoPE), softmax with scale and mask, and the whole scaled
// dot-product attention as one operation (SDPA).
package attention

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// Softmax is exp(z) / sum exp(z) along Axis, where z = Scale x + mask. The optional mask (input 1) is added if it has a floating-point
// type, and excludes where it is false if it is Bool; it is broadcast to x. A row of which everything is masked (-Inf) gives zeros.
// With Log the logarithm is returned; there a fully masked row gives -Inf. Finite x and mask have a softmax also where z does not fit float32.
type Softmax struct {
	Axis  int     // below zero from the innermost, so -1 for the classes of a batch; the zero value is the outermost
	Scale float32 // 0 means 1
	Log   bool
}

// Name is "softmax" or "log_softmax".
func (s Softmax) Name() string {
	if s.Log {
		return "log_softmax"
	}
	return "softmax"
}

// Infer is the shape rule: the first input's spec.
func (s Softmax) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(s, in, 1, 2); err != nil {
		return nil, err
	}
	if err := ref.Float(s, in, 0); err != nil {
		return nil, err
	}
	if _, err := ref.Axis(s, s.Axis, int(in[0].Rank)); err != nil {
		return nil, err
	}
	if ref.Has(in, 1) {
		if err := checkMask(s, in[1], in[0].Shape()); err != nil {
			return nil, err
		}
	}
	return []tensor.Spec{in[0]}, nil
}

// checkMask returns an error unless the mask is of a floating-point type or Bool and broadcasts to dims.
func checkMask(op ops.Op, mask tensor.Spec, dims []int) error {
	if !mask.DType.IsFloat() && mask.DType != tensor.Bool {
		return fmt.Errorf("%s: mask is %v, a floating-point type or bool is right", op.Name(), mask)
	}
	if _, err := (tensor.Tensor{Spec: mask}).Broadcast(dims...); err != nil {
		return fmt.Errorf("%s: mask %v does not broadcast to %v", op.Name(), mask, dims)
	}
	return nil
}

// maskValues returns what is added to each element: 0 and -Inf for Bool.
func maskValues(mask tensor.Tensor, dims []int) ([]float64, error) {
	v, err := ref.Spread(mask, dims)
	if err == nil && mask.DType == tensor.Bool {
		for i := range v {
			if v[i] == 0 {
				v[i] = math.Inf(-1)
			} else {
				v[i] = 0
			}
		}
	}
	return v, err
}

// Reference computes row by row.
func (s Softmax) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(s, s.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	v := in[0].Floats()
	if s.Scale != 0 {
		for i := range v {
			v[i] *= float64(s.Scale)
		}
	}
	if ref.Present(in, 1) {
		mask, err := maskValues(in[1], in[0].Shape())
		if err != nil {
			return err
		}
		for i := range v {
			v[i] = masked(v[i], mask[i])
		}
	}
	outer, n, inner := ref.Split(in[0].Shape(), axis)
	row := make([]float64, n)
	for o := range outer {
		for i := range inner {
			for j := range row {
				row[j] = v[(o*n+j)*inner+i]
			}
			softmax(row, s.Log)
			for j := range row {
				v[(o*n+j)*inner+i] = row[j]
			}
		}
	}
	out[0].SetFloats(v)
	return nil
}

// masked adds a mask's value. What is masked out stays out, even where the score is NaN or infinite: nothing of it is looked at.
func masked(x, mask float64) float64 {
	if math.IsInf(mask, -1) {
		return mask
	}
	return x + mask
}

// softmax works in place. The largest element is subtracted first, so that no finite input overflows.
func softmax(row []float64, log bool) {
	top := math.Inf(-1)
	for _, x := range row {
		top = max(top, x) // NaN wins
	}
	if math.IsInf(top, -1) {
		if !log {
			clear(row)
		}
		return
	}
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(x - top)
	}
	for i, x := range row {
		if log {
			row[i] = x - top - math.Log(sum)
		} else {
			row[i] = math.Exp(x-top) / sum
		}
	}
}

// InPlace is true for the first input: a row is read whole before any of it is written.
func (Softmax) InPlace(i int) bool { return i == 0 }

// Flops counts five operations an element.
func (Softmax) Flops(in []tensor.Spec) float64 { return 5 * float64(in[0].Elems()) }
