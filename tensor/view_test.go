package tensor_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

// model is a tensor as plain index arithmetic: its dimensions, and the number at each index of the row-major order. Every view
// operation is done on it element by element.
type model struct {
	dims []int
	v    []float64
}

func (m model) at(idx []int) float64 {
	i := 0
	for d, x := range idx {
		i = i*m.dims[d] + x
	}
	return m.v[i]
}

// build makes a model whose element at idx is f(idx).
func build(dims []int, f func(idx []int) float64) model {
	m := model{dims: dims}
	n := 1
	for _, d := range dims {
		n *= d
	}
	idx := make([]int, len(dims))
	for range n {
		m.v = append(m.v, f(idx))
		for d := len(dims) - 1; d >= 0; d-- {
			if idx[d]++; idx[d] < dims[d] {
				break
			}
			idx[d] = 0
		}
	}
	return m
}

// TestViewsAgainstIndexArithmetic applies random chains of views to a tensor and to its model.
func TestViewsAgainstIndexArithmetic(t *testing.T) {
	chains := 3000
	if testing.Short() {
		chains = 300
	}
	r := rand.New(rand.NewPCG(5, 6))
	copies := 0
	for range chains {
		rank := r.IntN(5)
		dims := make([]int, rank)
		for i := range dims {
			dims[i] = r.IntN(5)
			if r.IntN(6) > 0 && dims[i] == 0 {
				dims[i] = 1
			}
		}
		d := []tensor.DType{tensor.F32, tensor.I8, tensor.F64, tensor.BF16}[r.IntN(4)]
		x := tensor.New(d, dims...)
		m := build(dims, func([]int) float64 { return float64(r.IntN(100)) })
		x.SetFloats(m.v)
		buf := x.Buf
		for range 1 + r.IntN(5) {
			var err error
			switch op := r.IntN(6); {
			case op == 0 && rank > 0: // slice
				dim, n := r.IntN(rank), 0
				n = m.dims[dim]
				from := r.IntN(n + 1)
				to := from + r.IntN(n-from+1)
				step := 1 + r.IntN(3)
				x, err = x.Slice(dim, from, to, step)
				require.NoError(t, err)
				old, nd := m, append([]int{}, m.dims...)
				nd[dim] = (to - from + step - 1) / step
				m = build(nd, func(idx []int) float64 {
					at := append([]int{}, idx...)
					at[dim] = from + idx[dim]*step
					return old.at(at)
				})
			case op == 1 && rank > 0: // permute
				order := r.Perm(rank)
				x, err = x.Permute(order...)
				require.NoError(t, err)
				old, nd := m, make([]int, rank)
				for i, o := range order {
					nd[i] = m.dims[o]
				}
				m = build(nd, func(idx []int) float64 {
					at := make([]int, rank)
					for i, o := range order {
						at[o] = idx[i]
					}
					return old.at(at)
				})
			case op == 2 && rank > 0: // index
				dim := r.IntN(rank)
				if m.dims[dim] == 0 {
					continue
				}
				i := r.IntN(m.dims[dim])
				x, err = x.Index(dim, i)
				require.NoError(t, err)
				old := m
				nd := append(append([]int{}, m.dims[:dim]...), m.dims[dim+1:]...)
				m = build(nd, func(idx []int) float64 {
					at := append(append(append([]int{}, idx[:dim]...), i), idx[dim:]...)
					return old.at(at)
				})
				rank--
			case op == 3: // reshape: split or join dimensions
				n := len(m.v)
				if n == 0 {
					continue
				}
				nd := []int{}
				for rest := n; rest > 1 && len(nd) < 4; {
					f := 1 + r.IntN(rest)
					for rest%f != 0 {
						f--
					}
					nd = append(nd, f)
					rest /= f
					if len(nd) == 4 {
						nd[3] *= rest
					}
				}
				p := 1
				for _, f := range nd {
					p *= f
				}
				nd = append(nd, n/p)
				y, err := x.Reshape(nd...)
				var needs *tensor.NeedsCopyError
				if errors.As(err, &needs) {
					copies++
					require.False(t, x.IsContiguous())
					y, err = x.Clone().Reshape(nd...)
					buf = y.Buf
				}
				require.NoError(t, err)
				x, m, rank = y, model{nd, m.v}, len(nd)
			case op == 4 && rank < 6: // broadcast
				nd := append([]int{1 + r.IntN(3)}, m.dims...)
				for i, n := range m.dims {
					if n == 1 && r.IntN(2) == 0 {
						nd[i+1] = 1 + r.IntN(3)
					}
				}
				x, err = x.Broadcast(nd...)
				require.NoError(t, err)
				old := m
				m = build(nd, func(idx []int) float64 {
					at := append([]int{}, idx[1:]...)
					for i := range at {
						if old.dims[i] == 1 {
							at[i] = 0
						}
					}
					return old.at(at)
				})
				rank++
			}
		}
		require.Equal(t, m.dims, append([]int{}, x.Shape()...))
		if len(m.v) > 0 {
			require.Equal(t, m.v, x.Floats(), "%v", x)
			require.Same(t, buf, x.Buf, "a view shares memory")
			clone := x.Clone()
			require.True(t, clone.IsContiguous())
			require.Equal(t, m.v, clone.Floats())
			end := x.Off + x.Extent()
			require.LessOrEqual(t, end, len(x.Buf.Bytes()))
		}
	}
	require.Positive(t, copies, "some reshapes must have needed copies")
}

// TestReshapeFindsViews: strided tensors have views as well where dimensions only split or join regularly.
func TestReshapeFindsViews(t *testing.T) {
	x := tensor.New(tensor.F32, 4, 6)
	cut, err := x.Slice(1, 0, 4, 1) // rows with gaps
	require.NoError(t, err)
	for _, dims := range [][]int{{2, 2, 4}, {4, 2, 2}, {2, 2, 2, 2}, {1, 4, 1, 4, 1}} {
		v, err := cut.Reshape(dims...)
		require.NoError(t, err, dims)
		require.Same(t, x.Buf, v.Buf)
	}
	for _, dims := range [][]int{{16}, {8, 2}, {2, 8}} {
		_, err := cut.Reshape(dims...)
		var needs *tensor.NeedsCopyError
		require.ErrorAs(t, err, &needs, dims)
		require.ErrorContains(t, err, "needs a copy")
	}
	_, err = cut.Reshape(15)
	require.ErrorContains(t, err, "16 elements")
}

func TestViewErrors(t *testing.T) {
	x := tensor.New(tensor.F32, 3, 4)
	for _, f := range []func() (tensor.Tensor, error){
		func() (tensor.Tensor, error) { return x.Slice(2, 0, 1, 1) },
		func() (tensor.Tensor, error) { return x.Slice(0, 2, 1, 1) },
		func() (tensor.Tensor, error) { return x.Slice(0, 0, 4, 1) },
		func() (tensor.Tensor, error) { return x.Slice(0, 0, 3, 0) },
		func() (tensor.Tensor, error) { return x.Slice(0, 0, 3, -1) },
		func() (tensor.Tensor, error) { return x.Slice(-1, 0, 1, 1) },
		func() (tensor.Tensor, error) { return x.Index(0, 3) },
		func() (tensor.Tensor, error) { return x.Index(5, 0) },
		func() (tensor.Tensor, error) { return x.Permute(0) },
		func() (tensor.Tensor, error) { return x.Permute(0, 0) },
		func() (tensor.Tensor, error) { return x.Permute(0, 2) },
		func() (tensor.Tensor, error) { return x.Transpose(0, 2) },
		func() (tensor.Tensor, error) { return x.Broadcast(4) },
		func() (tensor.Tensor, error) { return x.Broadcast(2, 4) },
		func() (tensor.Tensor, error) { return x.Reshape(-12) },
	} {
		_, err := f()
		require.Error(t, err)
	}
	q := tensor.New(tensor.Q8_0, 3, 64)
	for _, f := range []func() (tensor.Tensor, error){
		func() (tensor.Tensor, error) { return q.Slice(1, 0, 32, 1) },
		func() (tensor.Tensor, error) { return q.Index(1, 0) },
		func() (tensor.Tensor, error) { return q.Transpose(0, 1) },
	} {
		_, err := f()
		require.ErrorContains(t, err, "whole rows")
	}
	row, err := q.Slice(0, 1, 2, 1)
	require.NoError(t, err)
	require.Equal(t, 68, row.Off)
	require.Len(t, row.Raw(), 68)
}

func TestBroadcastDims(t *testing.T) {
	for _, c := range []struct {
		shapes [][]int
		want   []int
	}{
		{[][]int{{3, 1}, {1, 4}}, []int{3, 4}}, {[][]int{{}, {2}}, []int{2}}, {[][]int{{0}, {1}}, []int{0}}, {[][]int{{1}, {5, 1, 1}, {4, 1}}, []int{5, 4, 1}}, {nil, []int{}},
	} {
		got, err := tensor.BroadcastDims(c.shapes...)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	_, err := tensor.BroadcastDims([]int{3}, []int{4})
	require.ErrorContains(t, err, "3 and 4")
	_, err = tensor.BroadcastDims([]int{3}, []int{0})
	require.Error(t, err)
}

// TestOverlaps: tensors overlap if their byte ranges do; an empty one overlaps nothing.
func TestOverlaps(t *testing.T) {
	x := tensor.New(tensor.F32, 4, 4)
	cut := func(from, to int) tensor.Tensor {
		v, err := x.Slice(0, from, to, 1)
		require.NoError(t, err)
		return v
	}
	a, b, c, e := cut(0, 2), cut(2, 4), cut(1, 3), cut(1, 1)
	require.False(t, a.Overlaps(b))
	require.True(t, a.Overlaps(c))
	require.True(t, b.Overlaps(c))
	require.False(t, e.Overlaps(x))
}

// TestCopyBetweenViews copies between all layouts, runs of every length and step.
func TestCopyBetweenViews(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	layouts := func(d tensor.DType) []tensor.Tensor {
		x := tensor.New(d, 3, 4, 5)
		y, err := tensor.New(d, 5, 3, 4).Permute(1, 2, 0)
		require.NoError(t, err)
		z, err := tensor.New(d, 3, 4, 10).Slice(2, 1, 10, 2)
		require.NoError(t, err)
		w, err := tensor.New(d, 3, 9, 5).Slice(1, 2, 6, 1)
		require.NoError(t, err)
		return []tensor.Tensor{x, y, z, w}
	}
	for _, from := range []tensor.DType{tensor.F32, tensor.F16, tensor.I8, tensor.I64, tensor.Bool} {
		for _, to := range []tensor.DType{tensor.F32, tensor.BF16, tensor.U8, tensor.I64, from} {
			for _, src := range layouts(from) {
				v := make([]float64, 60)
				for i := range v {
					v[i] = float64(r.IntN(2))
				}
				src.SetFloats(v)
				for _, dst := range layouts(to) {
					require.NoError(t, tensor.Copy(dst, src))
					require.Equal(t, v, dst.Floats(), "%v to %v", src, dst)
				}
			}
		}
	}
}

// A step beyond the dimension leaves one element, however large it is.
func TestSliceOfHugeSteps(t *testing.T) {
	x := tensor.New(tensor.F32, 4, 3)
	for _, step := range []int{5, math.MaxInt/2 + 1, math.MaxInt - 1, math.MaxInt} {
		for from := range 4 {
			v, err := x.Slice(0, from, 4, step)
			require.NoError(t, err)
			require.Equal(t, []int{1, 3}, v.Shape())
			require.NoError(t, v.CheckMemory())
			v, err = x.Slice(0, from, from, step)
			require.NoError(t, err)
			require.Equal(t, []int{0, 3}, v.Shape())
		}
	}
}
