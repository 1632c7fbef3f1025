package shape

import (
	"fmt"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// RowError says that an index lies outside the dimension that it selects from.
type RowError struct {
	Op       string
	Pos      int   // position among the indices
	Index, N int64 // the index, and the size of the dimension
}

func (e *RowError) Error() string {
	return fmt.Sprintf("%s: index %d (at position %d) is outside a dimension of %d", e.Op, e.Index, e.Pos, e.N)
}

// GetRows looks up rows: input 0 is a table [R, D] of any type, blocks included, input 1 holds indices (i32 or i64) of any shape,
// and the output is [indices..., D]. Floating-point and block tables give f32. An index outside 0 to R-1 is an error of the run.
type GetRows struct{}

// Name is "get_rows".
func (GetRows) Name() string { return "get_rows" }

// Infer is the shape rule.
func (g GetRows) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(g, in, 2, 2); err != nil {
		return nil, err
	}
	if in[0].Rank != 2 {
		return nil, fmt.Errorf("get_rows: table is %v, two dimensions are right", in[0])
	}
	if err := ref.Index(g, in, 1); err != nil {
		return nil, err
	}
	d := in[0].DType
	if d.IsBlock() || d.IsFloat() && d != tensor.F64 {
		d = tensor.F32
	}
	return ref.Checked(g, d, append(in[1].Shape(), in[0].Dims[1]))
}

// Reference copies row by row.
func (g GetRows) Reference(out, in []tensor.Tensor) error {
	rows, err := flatRows(out[0])
	if err != nil {
		return err
	}
	for i, id := range in[1].Ints() {
		if id < 0 || id >= int64(in[0].Dims[0]) {
			return &RowError{"get_rows", i, id, int64(in[0].Dims[0])}
		}
		row, err := in[0].Slice(0, int(id), int(id)+1, 1)
		if err != nil {
			return err
		}
		to := rows(i)
		if row.DType.IsBlock() {
			v, err := ref.Floats(row)
			if err != nil {
				return err
			}
			to.SetFloats(v)
			continue
		}
		if err := tensor.Copy(to, row); err != nil {
			return err
		}
	}
	return nil
}

// flatRows returns a function that gives row i (of the row-major order) of a tensor as [1, D].
func flatRows(t tensor.Tensor) (func(i int) tensor.Tensor, error) {
	offs := rowOffsets(t)
	d := int(t.Rank) - 1
	return func(i int) tensor.Tensor {
		r := t
		r.Off += offs[i] / t.DType.Block() * t.DType.Size()
		r.Rank = 2
		r.Dims = [tensor.MaxRank]int{1, t.Dims[d]}
		r.Strides = [tensor.MaxRank]int{t.Dims[d] * t.Strides[d], t.Strides[d]}
		return r
	}, nil
}

// SetRows writes rows into the memory of input 0, which is its output: element Ids[i] of dimension Axis becomes element i of that
// dimension of input 1. Input 0 and 1 agree in all other dimensions; ids are a vector (i32 or i64). The element type is converted as
// tensor.Copy does; floating-point rows are quantized where input 0 has a block type that package quant encodes, and a row that cannot be is an error of
// the run, before which others may have been written. With equal ids the last one wins. An id outside the dimension is an error of the run, and nothing is written.
type SetRows struct{ Axis int }

// Name is "set_rows".
func (SetRows) Name() string { return "set_rows" }

// Updates marks the op as one that changes its first input.
func (SetRows) Updates() {}

// Infer is the shape rule: the first input's spec.
func (s SetRows) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(s, in, 3, 3); err != nil {
		return nil, err
	}
	axis, err := ref.Axis(s, s.Axis, int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	if err := ref.Index(s, in, 2); err != nil {
		return nil, err
	}
	encoded := in[0].DType.IsBlock() && quant.CanEncode(in[0].DType) && in[1].DType.IsFloat()
	if in[0].DType != in[1].DType && (in[0].DType.IsBlock() || in[1].DType.IsBlock()) && !encoded {
		return nil, fmt.Errorf("set_rows: rows of %v into %v: block types are not converted", in[1], in[0])
	}
	if in[0].DType.IsBlock() && axis == int(in[0].Rank)-1 {
		return nil, fmt.Errorf("set_rows: dimension %d of %v: block types are changed by whole rows", axis, in[0])
	}
	want := in[0].With(in[1].DType)
	if in[2].Rank == 1 {
		want.Dims[axis] = in[2].Dims[0]
	}
	if in[2].Rank != 1 || in[1] != want {
		return nil, fmt.Errorf("set_rows: rows are %v and ids %v for %v along dimension %d; rows as the target in other dimensions, and an id a row, are right",
			in[1], in[2], in[0], axis)
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference copies row by row. If the output is not the memory of input 0, that is copied first.
func (s SetRows) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(s, s.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	ids := in[2].Ints()
	for i, id := range ids {
		if id < 0 || id >= int64(in[0].Dims[axis]) {
			return &RowError{"set_rows", i, id, int64(in[0].Dims[axis])}
		}
	}
	if in[0].Elems() > 0 && !(out[0].Ptr() == in[0].Ptr() && out[0].Strides == in[0].Strides) {
		if err := tensor.Copy(out[0], in[0]); err != nil {
			return err
		}
	}
	for i, id := range ids {
		if out[0].DType.IsBlock() && !in[1].DType.IsBlock() {
			err = encodeSlab(out[0], in[1], axis, int(id), i)
		} else {
			err = copySlab(out[0], in[1], axis, int(id), i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// encodeSlab quantizes element i of a dimension of src into element o of dst.
func encodeSlab(dst, src tensor.Tensor, axis, o, i int) error {
	d, err := dst.Slice(axis, o, o+1, 1)
	if err != nil {
		return err
	}
	s, err := src.Slice(axis, i, i+1, 1)
	if err != nil {
		return err
	}
	q, err := quant.Encode(dst.DType, s)
	if err != nil {
		return fmt.Errorf("set_rows: row %d: %w", i, err)
	}
	return tensor.Copy(d, q)
}

// Gather selects elements of dimension Axis of input 0 by indices (input 1, i32 or i64, any shape): the output's shape is that of
// input 0 with the dimension replaced by the indices' shape. Indices below zero count from the end; one outside the dimension is an
// error of the run.
type Gather struct{ Axis int }

// Name is "gather".
func (Gather) Name() string { return "gather" }

// Infer is the shape rule.
func (g Gather) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(g, in, 2, 2); err != nil {
		return nil, err
	}
	axis, err := ref.Axis(g, g.Axis, int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	if err := ref.Index(g, in, 1); err != nil {
		return nil, err
	}
	if in[0].DType.IsBlock() {
		return nil, fmt.Errorf("gather: input is %v, a plain type is right (get_rows decodes blocks)", in[0])
	}
	shape := in[0].Shape()
	dims := append(append(append([]int{}, shape[:axis]...), in[1].Shape()...), shape[axis+1:]...)
	return ref.Checked(g, in[0].DType, dims)
}

// Reference copies slab by slab.
func (g Gather) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(g, g.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	// The output with all index dimensions merged into one, by index arithmetic on its offsets.
	n := in[0].Dims[axis]
	ids := in[1].Ints()
	for i, id := range ids {
		src := id
		if src < 0 {
			src += int64(n)
		}
		if src < 0 || src >= int64(n) {
			return &RowError{"gather", i, id, int64(n)}
		}
		from, err := in[0].Index(axis, int(src))
		if err != nil {
			return err
		}
		to := out[0]
		rest := i
		for d := int(in[1].Rank) - 1; d >= 0; d-- {
			at := rest % in[1].Dims[d]
			rest /= in[1].Dims[d]
			if to, err = to.Index(axis+d, at); err != nil {
				return err
			}
		}
		if err := tensor.Copy(to, from); err != nil {
			return err
		}
	}
	return nil
}
