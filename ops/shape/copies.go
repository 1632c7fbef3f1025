package shape

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// Contiguous copies a view into row-major order.
type Contiguous struct{}

// Name is "contiguous".
func (Contiguous) Name() string { return "contiguous" }

// Infer is the shape rule: the input's spec.
func (c Contiguous) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(c, in, 1, 1); err != nil {
		return nil, err
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference copies.
func (Contiguous) Reference(out, in []tensor.Tensor) error { return tensor.Copy(out[0], in[0]) }

// Concat puts its inputs, at least one, one behind the other along Axis. Types and all other dimensions are equal.
type Concat struct{ Axis int }

// Name is "concat".
func (Concat) Name() string { return "concat" }

// Infer is the shape rule.
func (c Concat) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("concat: no inputs")
	}
	if err := ops.NumInputs(c, in, len(in), len(in)); err != nil {
		return nil, err
	}
	axis, err := ref.Axis(c, c.Axis, int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	out := in[0]
	for i, s := range in[1:] {
		same := s
		same.Dims[axis] = in[0].Dims[axis]
		if same != in[0] {
			return nil, fmt.Errorf("concat along %d: input %d is %v, input 0 is %v: types and other dimensions must be equal",
				axis, i+1, s, in[0])
		}
		var ok bool
		if out.Dims[axis], ok = mem.Add(out.Dims[axis], s.Dims[axis]); !ok {
			return nil, fmt.Errorf("concat along %d: %w", axis, mem.ErrOverflow)
		}
	}
	return ref.Checked(c, out.DType, out.Shape())
}

// Reference copies input by input.
func (c Concat) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(c, c.Axis, int(out[0].Rank))
	if err != nil {
		return err
	}
	at := 0
	for i := range in {
		n := in[i].Dims[axis]
		if err := copyPart(out[0], in[i], axis, at, n, false); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// copyPart copies between elements at to at+n of a dimension of whole and all of part: into part if split is set, else out of it.
func copyPart(whole, part tensor.Tensor, axis, at, n int, split bool) error {
	if whole.DType.IsBlock() && axis == int(whole.Rank)-1 {
		return copyBlockColumns(whole, part, at, n, split)
	}
	w, err := whole.Slice(axis, at, at+n, 1)
	if err != nil {
		return err
	}
	if split {
		return tensor.Copy(part, w)
	}
	return tensor.Copy(w, part)
}

// copyBlockColumns is copyPart along the rows of block types, whole blocks at a time.
func copyBlockColumns(whole, part tensor.Tensor, at, n int, split bool) error {
	if n == 0 {
		return nil
	}
	block, size := whole.DType.Block(), whole.DType.Size()
	w, p := whole.Raw(), part.Raw()
	wo, po := rowOffsets(whole), rowOffsets(part)
	for i := range wo {
		a := w[(wo[i]+at)/block*size:][:n/block*size]
		b := p[po[i]/block*size:][:n/block*size]
		if split {
			copy(b, a)
		} else {
			copy(a, b)
		}
	}
	return nil
}

func rowOffsets(t tensor.Tensor) []int {
	t.Rank--
	t.DType = tensor.U8 // offsets in elements, whatever the type
	var offs []int
	t.Each(func(_, off int) { offs = append(offs, off) })
	return offs
}

// Split cuts the input along Axis into parts of the given sizes, one output each. Slices do the same without copying.
type Split struct {
	Axis  int
	Sizes ops.Ints
}

// Name is "split".
func (Split) Name() string { return "split" }

// Infer is the shape rule.
func (s Split) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(s, in, 1, 1); err != nil {
		return nil, err
	}
	axis, err := ref.Axis(s, s.Axis, int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	sum := 0
	out := make([]tensor.Spec, s.Sizes.Len())
	for i, n := range s.Sizes.List() {
		out[i] = in[0]
		out[i].Dims[axis] = n
		if err := out[i].Check(); err != nil {
			return nil, fmt.Errorf("split: part %d: %w", i, err)
		}
		var ok bool
		if sum, ok = mem.Add(sum, n); !ok {
			return nil, fmt.Errorf("split: %w", mem.ErrOverflow)
		}
	}
	if len(out) == 0 || sum != in[0].Dims[axis] {
		return nil, fmt.Errorf("split of dimension %d of %v into %v: the sum is %d, %d is right", axis, in[0], s.Sizes, sum, in[0].Dims[axis])
	}
	return out, nil
}

// Reference copies part by part.
func (s Split) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(s, s.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	at := 0
	for i := range out {
		n := out[i].Dims[axis]
		if err := copyPart(in[0], out[i], axis, at, n, true); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// PadMode says what stands outside the input.
type PadMode uint8

// The modes of Pad.
const (
	PadConstant PadMode = iota // Value
	PadEdge                    // the nearest element
	PadReflect                 // mirrored at the edge element, which is not repeated
	PadWrap                    // the input again, periodically
)

// Pad adds Before and After elements to every dimension; negative ones crop, with PadConstant.
type Pad struct {
	Before, After ops.Ints
	Mode          PadMode
	Value         float64
}

// Name is "pad".
func (Pad) Name() string { return "pad" }

// Infer is the shape rule.
func (p Pad) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(p, in, 1, 1); err != nil {
		return nil, err
	}
	s := in[0]
	if s.DType.IsBlock() {
		return nil, fmt.Errorf("pad: %v: a plain type is right", s)
	}
	if p.Mode > PadWrap {
		return nil, fmt.Errorf("pad: unknown mode %d", p.Mode)
	}
	if p.Before.Len() != int(s.Rank) || p.After.Len() != int(s.Rank) {
		return nil, fmt.Errorf("pad of %v by %v and %v: one number a dimension is right", s, p.Before, p.After)
	}
	dims := s.Shape()
	for i, n := range dims {
		b, a := p.Before.At(i), p.After.At(i)
		if b > math.MaxInt32 || a > math.MaxInt32 || b < -n || a < -n {
			return nil, fmt.Errorf("pad of %v by %v and %v: dimension %d is out of range", s, p.Before, p.After, i)
		}
		grown, ok := mem.Add(n, max(b, 0), max(a, 0))
		if !ok {
			return nil, fmt.Errorf("pad of %v by %v and %v: %w", s, p.Before, p.After, mem.ErrOverflow)
		}
		dims[i] = grown + min(b, 0) + min(a, 0)
		if dims[i] < 0 || p.Mode != PadConstant && (b < 0 || a < 0 || n == 0 && dims[i] > 0) ||
			p.Mode == PadReflect && (b >= max(n, 1) || a >= max(n, 1)) {
			return nil, fmt.Errorf("pad of %v by %v and %v: dimension %d does not allow it", s, p.Before, p.After, i)
		}
	}
	return ref.Checked(p, s.DType, dims)
}

// Source returns the element of a dimension of n that stands at position i of the padded one; ok is false where the value does.
func (p Pad) Source(dim, i, n int) (src int, ok bool) {
	i -= p.Before.At(dim)
	if i >= 0 && i < n {
		return i, true
	}
	switch p.Mode {
	case PadEdge:
		return min(max(i, 0), n-1), true
	case PadReflect:
		if i < 0 {
			return -i, true
		}
		return 2*n - 2 - i, true
	case PadWrap:
		i %= n
		if i < 0 {
			i += n
		}
		return i, true
	}
	return 0, false
}

// Reference looks up element by element.
func (p Pad) Reference(out, in []tensor.Tensor) error {
	fill := tensor.New(out[0].DType, 1)
	fill.SetFloats([]float64{p.Value})
	dims := out[0].Shape()
	elem := func(t tensor.Tensor, off int) tensor.Tensor {
		t.Off += off * t.DType.Size()
		t.Rank, t.Dims, t.Strides = 1, [tensor.MaxRank]int{1}, [tensor.MaxRank]int{1}
		return t
	}
	var err error
	out[0].Each(func(i, off int) {
		src, inside := 0, true
		for d := len(dims) - 1; d >= 0; d-- {
			s, ok := p.Source(d, i%dims[d], in[0].Dims[d])
			inside = inside && ok
			src += s * in[0].Strides[d]
			i /= dims[d]
		}
		from := fill
		if inside {
			from = elem(in[0], src)
		}
		to := elem(out[0], off)
		if e := tensor.Copy(to, from); e != nil {
			err = e
		}
	})
	return err
}

// Tile repeats the input Reps[i] times along dimension i.
type Tile struct{ Reps ops.Ints }

// Name is "tile".
func (Tile) Name() string { return "tile" }

// Infer is the shape rule.
func (t Tile) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(t, in, 1, 1); err != nil {
		return nil, err
	}
	if t.Reps.Len() != int(in[0].Rank) {
		return nil, fmt.Errorf("tile of %v by %v: one number a dimension is right", in[0], t.Reps)
	}
	dims := in[0].Shape()
	for i := range dims {
		if t.Reps.At(i) < 0 {
			return nil, fmt.Errorf("tile of %v by %v: numbers from 0 are right", in[0], t.Reps)
		}
		var ok bool
		if dims[i], ok = mem.Mul(dims[i], t.Reps.At(i)); !ok {
			return nil, fmt.Errorf("tile of %v by %v: %w", in[0], t.Reps, mem.ErrOverflow)
		}
	}
	if in[0].DType.IsBlock() && t.Reps.Len() > 0 && t.Reps.At(t.Reps.Len()-1) != 1 {
		return nil, fmt.Errorf("tile of %v by %v: block types are repeated by whole rows", in[0], t.Reps)
	}
	return ref.Checked(t, in[0].DType, dims)
}

// Reference copies the input into every place.
func (t Tile) Reference(out, in []tensor.Tensor) error {
	if out[0].Elems() == 0 { // there may be any number of places
		return nil
	}
	n := 1
	for _, r := range t.Reps.List() {
		n *= r
	}
	for i := range n {
		part := out[0]
		rest := i
		for d := t.Reps.Len() - 1; d >= 0; d-- {
			at := rest % t.Reps.At(d) * in[0].Dims[d]
			rest /= t.Reps.At(d)
			if t.Reps.At(d) == 1 {
				continue
			}
			var err error
			if part, err = part.Slice(d, at, at+in[0].Dims[d], 1); err != nil {
				return err
			}
		}
		if err := tensor.Copy(part, in[0]); err != nil {
			return err
		}
	}
	return nil
}
