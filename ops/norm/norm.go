// Package norm decides the normalizations: of rows (RMS, Layer, L2), of channel groups (Group), and with stored statistics (Batch).
package norm

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// RMS divides each row (innermost dimension) by the root of its mean square plus Eps, then multiplies by the optional weight (input 1,
// a vector of the row's length): x / sqrt(mean(x^2) + Eps) * w.
type RMS struct{ Eps float32 }

// Name is "rms_norm".
func (RMS) Name() string { return "rms_norm" }

// Infer is the shape rule: the first input's spec.
func (n RMS) Infer(in []tensor.Spec) ([]tensor.Spec, error) { return rows(n, in, 2) }

// Reference computes row by row.
func (n RMS) Reference(out, in []tensor.Tensor) error {
	return eachRow(out, in, func(row []float64) {
		sum := 0.0
		for _, x := range row {
			sum += x * x
		}
		scale := 1 / math.Sqrt(sum/float64(len(row))+float64(n.Eps))
		for i := range row {
			row[i] *= scale
		}
	})
}

// InPlace is true for the first input: a row is read whole before any of it is written.
func (RMS) InPlace(i int) bool { return i == 0 }

// Flops counts four operations an element.
func (RMS) Flops(in []tensor.Spec) float64 { return 4 * float64(in[0].Elems()) }

// Layer brings each row (innermost dimension) to mean 0 and variance 1, then applies the optional weight (input 1) and bias (input 2),
// vectors of the row's length: (x - mean) / sqrt(var + Eps) * w + b.
type Layer struct{ Eps float32 }

// Name is "layer_norm".
func (Layer) Name() string { return "layer_norm" }

// Infer is the shape rule: the first input's spec.
func (n Layer) Infer(in []tensor.Spec) ([]tensor.Spec, error) { return rows(n, in, 3) }

// Reference computes row by row.
func (n Layer) Reference(out, in []tensor.Tensor) error {
	return eachRow(out, in, func(row []float64) { standardize(row, float64(n.Eps)) })
}

// InPlace is true for the first input.
func (Layer) InPlace(i int) bool { return i == 0 }

// Flops counts eight operations an element.
func (Layer) Flops(in []tensor.Spec) float64 { return 8 * float64(in[0].Elems()) }

// L2 divides each row (innermost dimension) by its length, or by Eps if that is larger.
type L2 struct{ Eps float32 }

// Name is "l2_norm".
func (L2) Name() string { return "l2_norm" }

// Infer is the shape rule: the input's spec.
func (n L2) Infer(in []tensor.Spec) ([]tensor.Spec, error) { return rows(n, in, 1) }

// Reference computes row by row.
func (n L2) Reference(out, in []tensor.Tensor) error {
	return eachRow(out, in, func(row []float64) {
		sum := 0.0
		for _, x := range row {
			sum += x * x
		}
		scale := 1 / max(math.Sqrt(sum), float64(n.Eps))
		for i := range row {
			row[i] *= scale
		}
	})
}

// InPlace is true.
func (L2) InPlace(i int) bool { return i == 0 }

// Flops counts three operations an element.
func (L2) Flops(in []tensor.Spec) float64 { return 3 * float64(in[0].Elems()) }

func standardize(v []float64, eps float64) {
	mean := 0.0
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	variance := 0.0
	for _, x := range v {
		variance += (x - mean) * (x - mean)
	}
	scale := 1 / math.Sqrt(variance/float64(len(v))+eps)
	for i, x := range v {
		v[i] = (x - mean) * scale
	}
}

func rows(op ops.Op, in []tensor.Spec, most int) ([]tensor.Spec, error) {
	if err := ops.NumInputs(op, in, 1, most); err != nil {
		return nil, err
	}
	if err := ref.Float(op, in, 0); err != nil {
		return nil, err
	}
	if in[0].Rank == 0 {
		return nil, fmt.Errorf("%s: input is %v, one dimension or more is right", op.Name(), in[0])
	}
	for i, what := range []string{"weight", "bias"} {
		if ref.Has(in, i+1) {
			if err := ref.Vector(op, in, i+1, in[0].Dim(-1), what); err != nil {
				return nil, err
			}
		}
	}
	return []tensor.Spec{in[0]}, nil
}

// eachRow applies f to every row, then the weight and bias that are given.
func eachRow(out, in []tensor.Tensor, f func(row []float64)) error {
	v := in[0].Floats()
	n := in[0].Dim(-1)
	var w, b []float64
	if ref.Present(in, 1) {
		w = in[1].Floats()
	}
	if ref.Present(in, 2) {
		b = in[2].Floats()
	}
	for at := 0; at+n <= len(v) && n > 0; at += n {
		row := v[at : at+n]
		f(row)
		for i := range row {
			if w != nil {
				row[i] *= w[i]
			}
			if b != nil {
				row[i] += b[i]
			}
		}
	}
	out[0].SetFloats(v)
	return nil
}

// Group brings groups of channels to mean 0 and variance 1: the input is [N, C, ...], of which C is cut into Groups; then the optional
// weight (input 1) and bias (input 2), vectors of length C, are applied. Groups = C is instance normalization.
type Group struct {
	Groups int
	Eps    float32
}

// Name is "group_norm".
func (Group) Name() string { return "group_norm" }

// Infer is the shape rule: the first input's spec.
func (g Group) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := channels(g, in, 1, 3, []string{"weight", "bias"}); err != nil {
		return nil, err
	}
	if c := in[0].Dims[1]; g.Groups < 1 || c%g.Groups != 0 {
		return nil, fmt.Errorf("group_norm: %d channels of %v are not a multiple of %d groups", c, in[0], g.Groups)
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference computes group by group.
func (g Group) Reference(out, in []tensor.Tensor) error {
	v := in[0].Floats()
	batch, c, inner := ref.Split(in[0].Shape(), 1)
	if n := c / g.Groups * inner; n > 0 {
		for i := range batch * g.Groups {
			standardize(v[i*n:(i+1)*n], float64(g.Eps))
		}
	}
	affine(v, in, c, inner)
	out[0].SetFloats(v)
	return nil
}

// InPlace is true for the first input.
func (Group) InPlace(i int) bool { return i == 0 }

// Flops counts eight operations an element.
func (Group) Flops(in []tensor.Spec) float64 { return 8 * float64(in[0].Elems()) }

// Batch normalizes channels with stored statistics: inputs are x [N, C, ...], then scale, bias, mean and variance, vectors of length C:
// (x - mean) / sqrt(var + Eps) * scale + bias.
type Batch struct{ Eps float32 }

// Name is "batch_norm".
func (Batch) Name() string { return "batch_norm" }

// Infer is the shape rule: the first input's spec.
func (b Batch) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := channels(b, in, 5, 5, []string{"scale", "bias", "mean", "variance"}); err != nil {
		return nil, err
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference computes element by element.
func (b Batch) Reference(out, in []tensor.Tensor) error {
	v := in[0].Floats()
	_, c, inner := ref.Split(in[0].Shape(), 1)
	mean, variance := in[3].Floats(), in[4].Floats()
	for i := range v {
		ch := i / max(inner, 1) % c
		v[i] = (v[i] - mean[ch]) / math.Sqrt(variance[ch]+float64(b.Eps))
	}
	affine(v, in[:3], c, inner)
	out[0].SetFloats(v)
	return nil
}

// InPlace is true for the first input.
func (Batch) InPlace(i int) bool { return i == 0 }

// Flops counts two operations an element: scale and shift are computed once a channel.
func (Batch) Flops(in []tensor.Spec) float64 { return 2 * float64(in[0].Elems()) }

func channels(op ops.Op, in []tensor.Spec, least, most int, names []string) error {
	if err := ops.NumInputs(op, in, least, most); err != nil {
		return err
	}
	if err := ref.Float(op, in, 0); err != nil {
		return err
	}
	if in[0].Rank < 2 {
		return fmt.Errorf("%s: input is %v, [N C ...] is right", op.Name(), in[0])
	}
	for i, what := range names {
		if ref.Has(in, i+1) {
			if err := ref.Vector(op, in, i+1, in[0].Dims[1], what); err != nil {
				return err
			}
		}
	}
	return nil
}

// affine applies the weight and bias of channels, where given.
func affine(v []float64, in []tensor.Tensor, c, inner int) {
	if ref.Present(in, 1) {
		w := in[1].Floats()
		for i := range v {
			v[i] *= w[i/inner%c]
		}
	}
	if ref.Present(in, 2) {
		b := in[2].Floats()
		for i := range v {
			v[i] += b[i/inner%c]
		}
	}
}
