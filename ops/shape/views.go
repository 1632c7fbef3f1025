package shape

import (
	"errors"
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// copyView is the reference of a Viewer: the view's elements, copied.
func copyView(v ops.Viewer, out, in tensor.Tensor) error {
	view, err := v.View(in)
	if err != nil {
		return err
	}
	return tensor.Copy(out, view)
}

// Reshape gives the elements other dimensions, in row-major order. As in ONNX, 0 keeps the input's dimension of the same position,
// and at most one -1 takes what is left. With Zero, 0 means an empty dimension.
type Reshape struct {
	Dims ops.SizeList
	Zero bool
}

// Name is "reshape".
func (Reshape) Name() string { return "reshape" }

// Resolve puts in the values of symbols.
func (r Reshape) Resolve(sizes ops.Sizes) (ops.Op, error) {
	d, err := r.Dims.Resolve(sizes)
	r.Dims = d
	return r, err
}

func (r Reshape) dims(in tensor.Spec) ([]int, error) {
	dims, ok := r.Dims.Known()
	if !ok {
		return nil, fmt.Errorf("reshape to %v: sizes without values", r.Dims)
	}
	infer, rest := -1, 1
	for i, d := range dims {
		switch {
		case d == 0 && !r.Zero:
			if i >= int(in.Rank) {
				return nil, fmt.Errorf("reshape of %v to %v: no dimension %d to keep", in, r.Dims, i)
			}
			dims[i] = in.Dims[i]
		case d == -1 && infer < 0:
			infer = i
			continue
		case d < 0:
			return nil, fmt.Errorf("reshape of %v to %v: dimensions are positive, and -1 once", in, r.Dims)
		}
		rest *= dims[i]
	}
	n := in.Elems()
	if infer >= 0 {
		if rest == 0 || n%rest != 0 {
			return nil, fmt.Errorf("reshape of %v to %v: %d elements are not a multiple of %d", in, r.Dims, n, rest)
		}
		dims[infer] = n / rest
		rest *= dims[infer]
	}
	if rest != n {
		return nil, fmt.Errorf("reshape of %v with %d elements to %v with %d", in, n, r.Dims, rest)
	}
	return dims, nil
}

// Infer is the shape rule.
func (r Reshape) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(r, in, 1, 1); err != nil {
		return nil, err
	}
	dims, err := r.dims(in[0])
	if err != nil {
		return nil, err
	}
	return ref.Checked(r, in[0].DType, dims)
}

// View returns the view, or *tensor.NeedsCopyError.
func (r Reshape) View(in tensor.Tensor) (tensor.Tensor, error) {
	dims, err := r.dims(in.Spec)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return in.Reshape(dims...)
}

// Reference copies the elements in row-major order.
func (r Reshape) Reference(out, in []tensor.Tensor) error {
	view, err := in[0].Reshape(out[0].Shape()...)
	var needs *tensor.NeedsCopyError
	if errors.As(err, &needs) {
		view, err = in[0].Clone().Reshape(out[0].Shape()...)
	}
	if err != nil {
		return err
	}
	return tensor.Copy(out[0], view)
}

// Permute reorders dimensions: dimension i of the result is dimension Order[i] of the input.
type Permute struct{ Order ops.Ints }

// Transpose returns the Permute that exchanges two dimensions of a tensor of the given rank; negative ones count from the innermost.
// It panics on dimensions that the rank has not.
func Transpose(rank, i, j int) Permute {
	order := make([]int, rank)
	for k := range order {
		order[k] = k
	}
	if i < 0 {
		i += rank
	}
	if j < 0 {
		j += rank
	}
	order[i], order[j] = j, i
	return Permute{ops.MakeInts(order...)}
}

// Name is "permute".
func (Permute) Name() string { return "permute" }

// Infer is the shape rule.
func (p Permute) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(p, in, 1, 1); err != nil {
		return nil, err
	}
	t, err := p.View(tensor.Tensor{Spec: in[0], Strides: in[0].Contiguous()})
	if err != nil {
		return nil, err
	}
	return []tensor.Spec{t.Spec}, nil
}

// View returns the view.
func (p Permute) View(in tensor.Tensor) (tensor.Tensor, error) {
	return in.Permute(p.Order.List()...)
}

// Reference copies the view.
func (p Permute) Reference(out, in []tensor.Tensor) error { return copyView(p, out[0], in[0]) }

// End is the bound of a Slice that leaves nothing out: as To with a positive step it is the dimension's end, with a negative one
// the place before its beginning.
var End = ops.Const(math.MaxInt)

// Slice takes elements From (inclusive) to To (exclusive) of one dimension, every Step-th of them (0 means 1). As in Python and
// ONNX, constants below zero count from the end and bounds beyond the dimension are limited to it; a negative step goes
// backwards and needs a copy.
type Slice struct {
	Axis     int // below zero: from the innermost
	From, To ops.Size
	Step     int
}

// Name is "slice".
func (Slice) Name() string { return "slice" }

// Resolve puts in the values of symbols. A symbolic bound must not be below zero.
func (s Slice) Resolve(sizes ops.Sizes) (ops.Op, error) {
	for _, b := range []*ops.Size{&s.From, &s.To} {
		if b.Sym == "" {
			continue
		}
		v, err := b.Value(sizes)
		if err != nil {
			return s, err
		}
		if v < 0 {
			return s, fmt.Errorf("slice: bound %v is %d", b, v)
		}
		*b = ops.Const(v)
	}
	return s, nil
}

// bounds returns the axis, the first element, the number of elements, and the step.
func (s Slice) bounds(in tensor.Spec) (axis, from, n, step int, err error) {
	if axis, err = ref.Axis(s, s.Axis, int(in.Rank)); err != nil {
		return
	}
	if s.From.Sym != "" || s.To.Sym != "" {
		err = fmt.Errorf("slice [%v:%v]: sizes without values", s.From, s.To)
		return
	}
	dim := in.Dims[axis]
	step = s.Step
	if step == 0 {
		step = 1
	}
	from, to := s.From.N, s.To.N
	if from < 0 {
		from += dim
	}
	if s.To == End && step < 0 {
		to = -1
	} else if to < 0 {
		to += dim
	}
	if step > 0 {
		from, to = min(max(from, 0), dim), min(max(to, 0), dim)
		if to > from {
			n = (to-from-1)/step + 1
		}
		return
	}
	from, to = min(max(from, -1), dim-1), min(max(to, -1), dim-1)
	if step == math.MinInt {
		step++
	}
	if from > to {
		n = (from-to-1)/-step + 1
	}
	return
}

// Infer is the shape rule.
func (s Slice) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(s, in, 1, 1); err != nil {
		return nil, err
	}
	axis, from, n, step, err := s.bounds(in[0])
	if err != nil {
		return nil, err
	}
	if in[0].DType.IsBlock() && axis == int(in[0].Rank)-1 && (from != 0 || n != in[0].Dims[axis] || step != 1) {
		return nil, fmt.Errorf("slice: rows of %v are not cut: block types are viewed by whole rows", in[0])
	}
	out := in[0]
	out.Dims[axis] = n
	return []tensor.Spec{out}, nil
}

// View returns the view; a negative step gives *tensor.NeedsCopyError.
func (s Slice) View(in tensor.Tensor) (tensor.Tensor, error) {
	axis, from, n, step, err := s.bounds(in.Spec)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if n == 0 {
		return in.Slice(axis, 0, 0, 1)
	}
	if n == 1 {
		return in.Slice(axis, from, from+1, 1)
	}
	if step < 0 {
		dims := in.Shape()
		dims[axis] = n
		return tensor.Tensor{}, &tensor.NeedsCopyError{From: in, To: dims}
	}
	return in.Slice(axis, from, from+(n-1)*step+1, step)
}

// Reference copies element by element along the axis.
func (s Slice) Reference(out, in []tensor.Tensor) error {
	axis, from, n, step, err := s.bounds(in[0].Spec)
	if err != nil {
		return err
	}
	if out[0].Elems() == 0 { // another dimension is empty, and n may be anything
		return nil
	}
	for i := range n {
		if err := copySlab(out[0], in[0], axis, i, from+i*step); err != nil {
			return err
		}
	}
	return nil
}

// copySlab copies element i of a dimension of src to element o of the same dimension of dst.
func copySlab(dst, src tensor.Tensor, axis, o, i int) error {
	if dst.DType.IsBlock() && axis == int(dst.Rank)-1 { // whole rows, as Infer has made sure
		return tensor.Copy(dst, src)
	}
	d, err := dst.Slice(axis, o, o+1, 1)
	if err != nil {
		return err
	}
	s, err := src.Slice(axis, i, i+1, 1)
	if err != nil {
		return err
	}
	return tensor.Copy(d, s)
}

// Broadcast repeats the input to Dims by NumPy's rule in both directions, as ONNX's Expand: a dimension of 1 on either side takes
// the other's size.
type Broadcast struct{ Dims ops.SizeList }

// Name is "broadcast".
func (Broadcast) Name() string { return "broadcast" }

// Resolve puts in the values of symbols.
func (b Broadcast) Resolve(sizes ops.Sizes) (ops.Op, error) {
	d, err := b.Dims.Resolve(sizes)
	b.Dims = d
	return b, err
}

func (b Broadcast) dims(in tensor.Spec) ([]int, error) {
	dims, ok := b.Dims.Known()
	if !ok {
		return nil, fmt.Errorf("broadcast to %v: sizes without values", b.Dims)
	}
	dims, err := tensor.BroadcastDims(in.Shape(), dims)
	if err != nil {
		return nil, fmt.Errorf("broadcast of %v to %v: %w", in, b.Dims, err)
	}
	return dims, nil
}

// Infer is the shape rule.
func (b Broadcast) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(b, in, 1, 1); err != nil {
		return nil, err
	}
	dims, err := b.dims(in[0])
	if err != nil {
		return nil, err
	}
	return ref.Checked(b, in[0].DType, dims)
}

// View returns the view.
func (b Broadcast) View(in tensor.Tensor) (tensor.Tensor, error) {
	dims, err := b.dims(in.Spec)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return in.Broadcast(dims...)
}

// Reference copies the view.
func (b Broadcast) Reference(out, in []tensor.Tensor) error { return copyView(b, out[0], in[0]) }

// Squeeze removes dimensions of size 1: those of Axes, or all of them if Axes is empty.
type Squeeze struct{ Axes ops.Ints }

// Name is "squeeze".
func (Squeeze) Name() string { return "squeeze" }

func (s Squeeze) dims(in tensor.Spec) ([]int, error) {
	var drop [tensor.MaxRank]bool
	for _, a := range s.Axes.List() {
		i, err := ref.Axis(s, a, int(in.Rank))
		if err != nil {
			return nil, err
		}
		if in.Dims[i] != 1 {
			return nil, fmt.Errorf("squeeze: dimension %d of %v is not 1", i, in)
		}
		drop[i] = true
	}
	dims := []int{}
	for i, d := range in.Shape() {
		if drop[i] || s.Axes.Len() == 0 && d == 1 {
			continue
		}
		dims = append(dims, d)
	}
	return dims, nil
}

// Infer is the shape rule.
func (s Squeeze) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(s, in, 1, 1); err != nil {
		return nil, err
	}
	dims, err := s.dims(in[0])
	if err != nil {
		return nil, err
	}
	return ref.Checked(s, in[0].DType, dims)
}

// View returns the view.
func (s Squeeze) View(in tensor.Tensor) (tensor.Tensor, error) {
	dims, err := s.dims(in.Spec)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return in.Reshape(dims...)
}

// Reference copies the view.
func (s Squeeze) Reference(out, in []tensor.Tensor) error { return copyView(s, out[0], in[0]) }

// Unsqueeze inserts dimensions of size 1 at the positions Axes of the result.
type Unsqueeze struct{ Axes ops.Ints }

// Name is "unsqueeze".
func (Unsqueeze) Name() string { return "unsqueeze" }

func (u Unsqueeze) dims(in tensor.Spec) ([]int, error) {
	rank := int(in.Rank) + u.Axes.Len()
	if rank > tensor.MaxRank {
		return nil, fmt.Errorf("unsqueeze: %v with %d more dimensions, at most %d are possible", in, u.Axes.Len(), tensor.MaxRank)
	}
	var insert [tensor.MaxRank]bool
	for _, a := range u.Axes.List() {
		i, err := ref.Axis(u, a, rank)
		if err != nil {
			return nil, err
		}
		if insert[i] {
			return nil, fmt.Errorf("unsqueeze: axis %d twice", a)
		}
		insert[i] = true
	}
	dims := make([]int, rank)
	from := in.Shape()
	for i := range dims {
		if insert[i] {
			dims[i] = 1
			continue
		}
		dims[i], from = from[0], from[1:]
	}
	return dims, nil
}

// Infer is the shape rule.
func (u Unsqueeze) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(u, in, 1, 1); err != nil {
		return nil, err
	}
	dims, err := u.dims(in[0])
	if err != nil {
		return nil, err
	}
	return ref.Checked(u, in[0].DType, dims)
}

// View returns the view.
func (u Unsqueeze) View(in tensor.Tensor) (tensor.Tensor, error) {
	dims, err := u.dims(in.Spec)
	if err != nil {
		return tensor.Tensor{}, err
	}
	return in.Reshape(dims...)
}

// Reference copies the view.
func (u Unsqueeze) Reference(out, in []tensor.Tensor) error { return copyView(u, out[0], in[0]) }
