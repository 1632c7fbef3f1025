package tensor

import "fmt"

// Slice returns the view of elements from (inclusive) to (exclusive) of a dimension, every step-th of them.
func (t Tensor) Slice(dim, from, to, step int) (Tensor, error) {
	if dim < 0 || dim >= int(t.Rank) {
		return Tensor{}, fmt.Errorf("slice of dimension %d of %v", dim, t.Spec)
	}
	if from < 0 || to < from || to > t.Dims[dim] || step < 1 {
		return Tensor{}, fmt.Errorf("slice [%d:%d:%d] of dimension %d of %v", from, to, step, dim, t.Spec)
	}
	if b := t.DType.Block(); b > 1 && dim == int(t.Rank)-1 && (from != 0 || to != t.Dims[dim] || step != 1) {
		return Tensor{}, fmt.Errorf("slice of the rows of %v: block types are viewed by whole rows", t.Spec)
	}
	n := (to - from) / step
	if (to-from)%step != 0 {
		n++
	}
	if n > 0 {
		t.Off += from * t.Strides[dim] / t.DType.Block() * t.DType.Size()
	}
	t.Dims[dim] = n
	if n > 1 { // else nothing is stepped over, and any step is right
		t.Strides[dim] *= step
	}
	return t, nil
}

// Index returns the view at index i of a dimension, which disappears.
func (t Tensor) Index(dim, i int) (Tensor, error) {
	s, err := t.Slice(dim, i, i+1, 1)
	if err != nil {
		return Tensor{}, err
	}
	if t.DType.IsBlock() && dim == int(t.Rank)-1 {
		return Tensor{}, fmt.Errorf("index into the rows of %v: block types are viewed by whole rows", t.Spec)
	}
	copy(s.Dims[dim:], s.Dims[dim+1:s.Rank])
	copy(s.Strides[dim:], s.Strides[dim+1:s.Rank])
	s.Rank--
	s.Dims[s.Rank], s.Strides[s.Rank] = 0, 0
	return s, nil
}

// Permute returns the view whose dimension i is dimension order[i] of t.
func (t Tensor) Permute(order ...int) (Tensor, error) {
	if len(order) != int(t.Rank) {
		return Tensor{}, fmt.Errorf("permutation %v of %v", order, t.Spec)
	}
	out := t
	var seen [MaxRank]bool
	for i, from := range order {
		if from < 0 || from >= int(t.Rank) || seen[from] {
			return Tensor{}, fmt.Errorf("permutation %v of %v", order, t.Spec)
		}
		seen[from] = true
		out.Dims[i], out.Strides[i] = t.Dims[from], t.Strides[from]
	}
	if last := int(t.Rank) - 1; t.DType.IsBlock() && order[last] != last {
		return Tensor{}, fmt.Errorf("permutation %v of %v: block types are viewed by whole rows", order, t.Spec)
	}
	return out, nil
}

// Transpose returns the view with two dimensions exchanged.
func (t Tensor) Transpose(i, j int) (Tensor, error) {
	if i < 0 || j < 0 || i >= int(t.Rank) || j >= int(t.Rank) {
		return Tensor{}, fmt.Errorf("transpose of dimensions %d and %d of %v", i, j, t.Spec)
	}
	var order [MaxRank]int
	for k := range order {
		order[k] = k
	}
	order[i], order[j] = j, i
	return t.Permute(order[:t.Rank]...)
}

// NeedsCopyError says that no view of the memory has the shape asked for.
type NeedsCopyError struct {
	From Tensor
	To   []int
}

func (e *NeedsCopyError) Error() string {
	return fmt.Sprintf("reshape of %v to %v needs a copy", e.From, e.To)
}

// Reshape returns the view with other dimensions and the same elements in row-major order, or an *NeedsCopyError where the
// strides admit none.
func (t Tensor) Reshape(dims ...int) (Tensor, error) {
	s, err := CheckDims(t.DType, dims)
	if err != nil {
		return Tensor{}, err
	}
	if s.Elems() != t.Elems() {
		return Tensor{}, fmt.Errorf("reshape of %v with %d elements to %v with %d", t.Spec, t.Elems(), dims, s.Elems())
	}
	if t.IsContiguous() {
		return Tensor{Spec: s, Strides: s.Contiguous(), Buf: t.Buf, Off: t.Off}, nil
	}
	// Merge old dimensions into runs of constant stride, then cut the runs into the new ones, innermost first.
	out := Tensor{Spec: s, Buf: t.Buf, Off: t.Off}
	i, run, step := int(t.Rank)-1, 1, 1
	next := func() bool { // takes the next run of the old tensor
		for i >= 0 && t.Dims[i] == 1 {
			i--
		}
		if i < 0 {
			return false
		}
		run, step = t.Dims[i], t.Strides[i]
		for i--; i >= 0 && (t.Dims[i] == 1 || t.Strides[i] == run*step); i-- {
			run *= t.Dims[i]
		}
		return true
	}
	for j := int(s.Rank) - 1; j >= 0; j-- {
		if s.Dims[j] == 1 {
			out.Strides[j] = step
			continue
		}
		if run == 1 && !next() {
			break
		}
		if run%s.Dims[j] != 0 {
			return Tensor{}, &NeedsCopyError{t, dims}
		}
		out.Strides[j] = step
		run /= s.Dims[j]
		step *= s.Dims[j]
	}
	if run != 1 {
		return Tensor{}, &NeedsCopyError{t, dims}
	}
	return out, nil
}

// Broadcast returns the view with the given dimensions, to which those of t are aligned from the innermost: missing ones and
// ones of size 1 are repeated with stride 0.
func (t Tensor) Broadcast(dims ...int) (Tensor, error) {
	s, err := CheckDims(t.DType, dims)
	if err != nil {
		return Tensor{}, err
	}
	shift := int(s.Rank) - int(t.Rank)
	if shift < 0 {
		return Tensor{}, fmt.Errorf("broadcast of %v to %v", t.Spec, dims)
	}
	out := Tensor{Spec: s, Buf: t.Buf, Off: t.Off}
	for i := 0; i < int(t.Rank); i++ {
		switch {
		case t.Dims[i] == s.Dims[i+shift]:
			out.Strides[i+shift] = t.Strides[i]
		case t.Dims[i] != 1:
			return Tensor{}, fmt.Errorf("broadcast of %v to %v", t.Spec, dims)
		}
	}
	return out, nil
}

// BroadcastDims returns the common shape of operands by NumPy's rule: aligned from the innermost dimension, sizes equal or 1.
func BroadcastDims(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
		for _, s := range shapes {
			j := i - rank + len(s)
			if j < 0 || s[j] == 1 {
				continue
			}
			if out[i] != 1 && out[i] != s[j] {
				return nil, fmt.Errorf("shapes %v do not broadcast: dimension %d is %d and %d", shapes, i, out[i], s[j])
			}
			out[i] = s[j]
		}
	}
	return out, nil
}
