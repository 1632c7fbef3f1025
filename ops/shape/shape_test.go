package shape_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// arange makes a tensor of 0, 1, 2, ...
func arange(dims ...int) tensor.Tensor {
	t := tensor.New(tensor.I32, dims...)
	v := make([]int64, t.Elems())
	for i := range v {
		v[i] = int64(i)
	}
	t.SetInts(v)
	return t
}

// TestViewsEqualReferences: where an op gives a view, the view holds what the reference computes; and the view copies nothing.
func TestViewsEqualReferences(t *testing.T) {
	x := arange(2, 3, 4)
	for _, c := range []struct {
		op   ops.Viewer
		in   tensor.Tensor
		dims []int
		want []int64
	}{
		{shape.Reshape{Dims: ops.ConstSizes(0, -1)}, x, []int{2, 12}, nil},
		{shape.Reshape{Dims: ops.ConstSizes(4, 3, 2)}, x, []int{4, 3, 2}, nil},
		{shape.Reshape{Dims: ops.ConstSizes(0, 5), Zero: true}, tensor.New(tensor.I32, 0, 7), []int{0, 5}, nil},
		{shape.Permute{Order: ops.MakeInts(2, 0, 1)}, x, []int{4, 2, 3}, []int64{0, 4, 8, 12, 16, 20, 1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22, 3, 7, 11, 15, 19, 23}},
		{shape.Transpose(3, -1, 0), arange(2, 1, 3), []int{3, 1, 2}, []int64{0, 3, 1, 4, 2, 5}},
		{shape.Slice{Axis: 2, From: ops.Const(1), To: ops.Const(-1)}, x, []int{2, 3, 2}, []int64{1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22}},
		{shape.Slice{Axis: -2, From: ops.Const(0), To: shape.End, Step: 2}, arange(3, 2), []int{2, 2}, []int64{0, 1, 4, 5}},
		{shape.Slice{Axis: 0, From: ops.Const(-100), To: ops.Const(100)}, arange(3), []int{3}, []int64{0, 1, 2}},
		{shape.Slice{Axis: 0, From: ops.Const(2), To: ops.Const(1)}, arange(3), []int{0}, []int64{}},
		{shape.Slice{Axis: 0, From: ops.Const(3), To: shape.End}, arange(3), []int{0}, []int64{}},
		{shape.Broadcast{Dims: ops.ConstSizes(2, 1, 3)}, arange(2, 1), []int{2, 2, 3}, []int64{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}},
		{shape.Squeeze{}, arange(1, 2, 1), []int{2}, nil},
		{shape.Squeeze{Axes: ops.MakeInts(-1)}, arange(1, 2, 1), []int{1, 2}, nil},
		{shape.Unsqueeze{Axes: ops.MakeInts(0, -1)}, arange(2), []int{1, 2, 1}, nil},
	} {
		out := optest.Run(t, c.op, c.in)[0]
		require.Equal(t, c.dims, out.Shape(), "%T %v", c.op, c.op)
		if c.want == nil {
			c.want = c.in.Ints()
		}
		require.Equal(t, c.want, out.Ints(), "%T %v", c.op, c.op)
		view, err := c.op.View(c.in)
		require.NoError(t, err)
		require.Equal(t, out.Spec, view.Spec)
		require.Equal(t, c.want, view.Ints())
		require.Same(t, c.in.Buf, view.Buf)
		optest.Comparable(t, c.op)
	}
}

// TestNoView: a reshape of a transposed tensor and a step backwards have no view; the reference copies.
func TestNoView(t *testing.T) {
	flip, err := arange(2, 3).Transpose(0, 1)
	require.NoError(t, err)
	var needs *tensor.NeedsCopyError
	op := shape.Reshape{Dims: ops.ConstSizes(-1)}
	_, err = op.View(flip)
	require.ErrorAs(t, err, &needs)
	require.Equal(t, []int64{0, 3, 1, 4, 2, 5}, optest.Run(t, op, flip)[0].Ints())
	for _, c := range []struct {
		from, to ops.Size
		step     int
		want     []int64
	}{
		{ops.Const(-1), shape.End, -1, []int64{4, 3, 2, 1, 0}},
		{ops.Const(100), ops.Const(0), -2, []int64{4, 2}},
		{ops.Const(3), ops.Const(-5), -1, []int64{3, 2, 1}},
		{ops.Const(1), ops.Const(-100), -1, []int64{1, 0}},
		{ops.Const(0), ops.Const(3), -1, []int64{}},
	} {
		s := shape.Slice{From: c.from, To: c.to, Step: c.step}
		require.Equal(t, c.want, optest.Run(t, s, arange(5))[0].Ints(), "%v", s)
		if len(c.want) > 1 {
			_, err = s.View(arange(5))
			require.ErrorAs(t, err, &needs)
		}
	}
}

func TestSymbols(t *testing.T) {
	n := ops.Size{Sym: "tokens"}
	for _, op := range []ops.Resolver{
		shape.Reshape{Dims: ops.MakeSizes(n, ops.Const(4))}, shape.Broadcast{Dims: ops.MakeSizes(n, ops.Const(4))},
		shape.Slice{From: n.Plus(-3), To: n},
	} {
		x := tensor.MakeSpec(tensor.F32, 3, 4)
		optest.Error(t, op, []string{"without values"}, x)
		_, err := op.Resolve(ops.Sizes{})
		require.ErrorContains(t, err, `"tokens" has no value`)
		known, err := op.Resolve(ops.Sizes{"tokens": 3})
		require.NoError(t, err)
		out, err := known.Infer([]tensor.Spec{x})
		require.NoError(t, err)
		require.Equal(t, []tensor.Spec{x}, out)
	}
	_, err := shape.Slice{From: n.Plus(-3)}.Resolve(ops.Sizes{"tokens": 2})
	require.ErrorContains(t, err, "-1")
}

func TestConcatSplit(t *testing.T) {
	a, b := arange(2, 2), arange(2, 3)
	out := optest.Run(t, shape.Concat{Axis: -1}, a, b)[0]
	require.Equal(t, []int64{0, 1, 0, 1, 2, 2, 3, 3, 4, 5}, out.Ints())
	parts := optest.Run(t, shape.Split{Axis: 1, Sizes: ops.MakeInts(2, 0, 3)}, out)
	require.Equal(t, a.Ints(), parts[0].Ints())
	require.Zero(t, parts[1].Elems())
	require.Equal(t, b.Ints(), parts[2].Ints())
	// Block types are cut between blocks.
	x := tensor.New(tensor.F32, 2, 96)
	v := make([]float64, 192)
	for i := range v {
		v[i] = float64(i % 50)
	}
	x.SetFloats(v)
	q, err := quant.Encode(tensor.Q8_0, x)
	require.NoError(t, err)
	halves := optest.Run(t, shape.Split{Axis: 1, Sizes: ops.MakeInts(32, 64)}, q)
	back := optest.Run(t, shape.Concat{Axis: 1}, halves...)[0]
	require.Equal(t, q.Raw(), back.Raw())
	optest.Error(t, shape.Split{Axis: 1, Sizes: ops.MakeInts(31, 65)}, []string{"whole blocks"}, q.Spec)
}

func TestPadTile(t *testing.T) {
	x := arange(3)
	for mode, want := range map[shape.PadMode][]int64{
		shape.PadConstant: {9, 9, 0, 1, 2, 9}, shape.PadEdge: {0, 0, 0, 1, 2, 2}, shape.PadReflect: {2, 1, 0, 1, 2, 1}, shape.PadWrap: {1, 2, 0, 1, 2, 0},
	} {
		op := shape.Pad{Before: ops.MakeInts(2), After: ops.MakeInts(1), Mode: mode, Value: 9}
		require.Equal(t, want, optest.Run(t, op, x)[0].Ints(), mode)
	}
	require.Equal(t, []int64{1, 2, 9}, optest.Run(t, shape.Pad{Before: ops.MakeInts(-1), After: ops.MakeInts(1), Value: 9}, x)[0].Ints())
	out := optest.Run(t, shape.Pad{Before: ops.MakeInts(1, 0), After: ops.MakeInts(0, 1)}, arange(1, 2))[0]
	require.Equal(t, []int64{0, 0, 0, 0, 1, 0}, out.Ints())
	require.Equal(t, []int64{0, 1, 0, 1, 2, 3, 2, 3}, optest.Run(t, shape.Tile{Reps: ops.MakeInts(1, 2)}, arange(2, 2))[0].Ints())
	require.Zero(t, optest.Run(t, shape.Tile{Reps: ops.MakeInts(0, 2)}, arange(2, 2))[0].Elems())
}

func TestGetRows(t *testing.T) {
	table := arange(4, 2)
	ids := tensor.Of([]int64{3, 0, 3}, 3, 1)
	out := optest.Run(t, shape.GetRows{}, table, ids)[0]
	require.Equal(t, tensor.MakeSpec(tensor.I32, 3, 1, 2), out.Spec)
	require.Equal(t, []int64{6, 7, 0, 1, 6, 7}, out.Ints())
	// Half and block tables give f32.
	f := tensor.New(tensor.F32, 2, 32)
	f.SetFloats(func() []float64 {
		v := make([]float64, 64)
		for i := range v {
			v[i] = float64(i - 32)
		}
		return v
	}())
	q, err := quant.Encode(tensor.Q8_0, f)
	require.NoError(t, err)
	rows := optest.Run(t, shape.GetRows{}, q, tensor.Of([]int32{1}, 1))[0]
	require.Equal(t, tensor.F32, rows.DType)
	d, err := quant.Decode(q)
	require.NoError(t, err)
	require.Equal(t, d.Floats()[32:], rows.Floats())
	for _, id := range []int32{-1, 4} {
		var bad *shape.RowError
		err := shape.GetRows{}.Reference([]tensor.Tensor{tensor.New(tensor.I32, 1, 2)}, []tensor.Tensor{table, tensor.Of([]int32{id}, 1)})
		require.ErrorAs(t, err, &bad)
		require.Equal(t, int64(id), bad.Index)
	}
}

func TestSetRows(t *testing.T) {
	dst := tensor.New(tensor.F16, 4, 2)
	rows := optest.F32([]int{3, 2}, 1, 2, 3, 4, 5, 6)
	in := []tensor.Tensor{dst, rows, tensor.Of([]int32{2, 0, 2}, 3)}
	require.NoError(t, shape.SetRows{}.Reference([]tensor.Tensor{dst}, in))
	require.Equal(t, []float64{3, 4, 0, 0, 5, 6, 0, 0}, dst.Floats(), "in place; of equal ids the last one wins")
	in[2] = tensor.Of([]int32{1, 1, 4}, 3)
	require.ErrorContains(t, shape.SetRows{}.Reference([]tensor.Tensor{dst}, in), "index 4")
	require.Equal(t, []float64{3, 4, 0, 0, 5, 6, 0, 0}, dst.Floats(), "nothing is written when an id is wrong")
	// Along an inner axis, as a cache of heads.
	cache := tensor.New(tensor.F32, 2, 3, 1)
	op := shape.SetRows{Axis: 1}
	require.NoError(t, op.Reference([]tensor.Tensor{cache}, []tensor.Tensor{cache, optest.F32([]int{2, 1, 1}, 7, 8), tensor.Of([]int64{2}, 1)}))
	require.Equal(t, []float64{0, 0, 7, 0, 0, 8}, cache.Floats())
}

func TestGather(t *testing.T) {
	x := arange(2, 3, 2)
	ids := tensor.Of([]int32{2, -3}, 2)
	require.Equal(t, []int64{4, 5, 0, 1, 10, 11, 6, 7}, optest.Run(t, shape.Gather{Axis: 1}, x, ids)[0].Ints())
	out := optest.Run(t, shape.Gather{Axis: -1}, x, tensor.Of([]int64{1}))[0]
	require.Equal(t, []int{2, 3}, out.Shape())
	require.Equal(t, []int64{1, 3, 5, 7, 9, 11}, out.Ints())
	bad := shape.Gather{}.Reference([]tensor.Tensor{tensor.New(tensor.I32, 1, 3, 2)}, []tensor.Tensor{x, tensor.Of([]int32{-3}, 1)})
	require.ErrorContains(t, bad, "index -3")
}

func TestErrors(t *testing.T) {
	s := func(dims ...int) tensor.Spec { return tensor.MakeSpec(tensor.F32, dims...) }
	i := tensor.MakeSpec(tensor.I32, 2)
	q := tensor.MakeSpec(tensor.Q4_0, 2, 64)
	optest.Error(t, shape.Reshape{Dims: ops.ConstSizes(5)}, []string{"6 elements", "5"}, s(2, 3))
	optest.Error(t, shape.Reshape{Dims: ops.ConstSizes(-1, 4)}, []string{"multiple of 4"}, s(2, 3))
	optest.Error(t, shape.Reshape{Dims: ops.ConstSizes(-1, -1)}, []string{"-1 once"}, s(2, 3))
	optest.Error(t, shape.Reshape{Dims: ops.ConstSizes(6, 1, 0)}, []string{"no dimension 2"}, s(2, 3))
	optest.Error(t, shape.Permute{Order: ops.MakeInts(0, 0)}, []string{"permutation"}, s(2, 3))
	optest.Error(t, shape.Permute{Order: ops.MakeInts(1, 0)}, []string{"whole rows"}, q)
	optest.Error(t, shape.Slice{Axis: 1, From: ops.Const(1), To: shape.End}, []string{"whole rows"}, q)
	optest.Error(t, shape.Squeeze{Axes: ops.MakeInts(0)}, []string{"not 1"}, s(2, 3))
	optest.Error(t, shape.Unsqueeze{Axes: ops.MakeInts(0, 0)}, []string{"twice"}, s(2))
	optest.Error(t, shape.Unsqueeze{Axes: ops.MakeInts(0, 1)}, []string{"at most 8"}, s(1, 1, 1, 1, 1, 1, 1))
	optest.Error(t, shape.Broadcast{Dims: ops.ConstSizes(3)}, []string{"broadcast"}, s(2))
	optest.Error(t, shape.Concat{}, []string{"no inputs"})
	optest.Error(t, shape.Concat{}, []string{"input 1"}, s(2, 3), s(2, 4))
	optest.Error(t, shape.Split{Sizes: ops.MakeInts(1, 2)}, []string{"the sum is 3, 2 is right"}, s(2))
	optest.Error(t, shape.Pad{Before: ops.MakeInts(1), After: ops.MakeInts(0), Mode: shape.PadReflect}, []string{"does not allow"}, s(1))
	optest.Error(t, shape.Pad{}, []string{"one number a dimension"}, s(2))
	optest.Error(t, shape.Tile{Reps: ops.MakeInts(-1)}, []string{"from 0"}, s(2))
	optest.Error(t, shape.Tile{Reps: ops.MakeInts(math.MaxInt/2, math.MaxInt/2)}, []string{"overflow"}, s(2, 2))
	optest.Error(t, shape.GetRows{}, []string{"two dimensions"}, s(2), i)
	optest.Error(t, shape.GetRows{}, []string{"indices"}, s(2, 2), s(2))
	optest.Error(t, shape.SetRows{}, []string{"an id a row"}, s(4, 2), s(3, 2), i)
	optest.Error(t, shape.SetRows{}, []string{"block types"}, s(2, 64), q, i)
	optest.Error(t, shape.Gather{}, []string{"get_rows"}, q, i)
	for _, op := range []ops.Op{shape.Concat{}, shape.Split{}, shape.Pad{}, shape.Tile{}, shape.GetRows{}, shape.SetRows{}, shape.Gather{}, shape.Contiguous{}} {
		optest.Comparable(t, op)
	}
}

// TestSizesThatWrap: sums and products of sizes are right or refused, and what is empty is done at once, whatever its other dimensions are.
func TestSizesThatWrap(t *testing.T) {
	optest.Error(t, shape.Split{Sizes: ops.MakeInts(math.MaxInt, math.MaxInt, 4)}, []string{"overflows"}, tensor.MakeSpec(tensor.F32, 2, 0))
	optest.Error(t, shape.Pad{Before: ops.MakeInts(math.MaxInt32, 0), After: ops.MakeInts(0, 0)}, []string{"overflows"}, tensor.MakeSpec(tensor.F32, math.MaxInt, 0))
	optest.Error(t, shape.Pad{Before: ops.MakeInts(1), After: ops.MakeInts(1), Mode: 7}, []string{"mode 7"}, tensor.MakeSpec(tensor.F32, 4))
	optest.Error(t, elementwise.Cast{To: tensor.F64}, []string{"overflows"}, tensor.MakeSpec(tensor.I8, math.MaxInt/4))
	require.Empty(t, optest.Run(t, shape.Tile{Reps: ops.MakeInts(1, math.MaxInt32)}, tensor.New(tensor.F32, 0, 1))[0].Ints())
	require.Empty(t, optest.Run(t, shape.Slice{Axis: 1, To: shape.End}, tensor.New(tensor.F32, 0, math.MaxInt32))[0].Ints())
}
