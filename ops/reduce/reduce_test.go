package reduce_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/tensor"
)

var inf = math.Inf(1)

func TestReduceKinds(t *testing.T) {
	x := optest.F64([]int{2, 3}, 1, -2, 3, 4, 5, -6)
	for k, want := range map[reduce.Kind][]float64{
		reduce.Sum: {2, 3}, reduce.Mean: {2.0 / 3, 1}, reduce.Max: {3, 5}, reduce.Min: {-2, -6}, reduce.Prod: {-6, -120}, reduce.L1: {6, 15},
		reduce.L2: {math.Sqrt(14), math.Sqrt(77)}, reduce.SumSquare: {14, 77}, reduce.LogSum: {math.Log(2), math.Log(3)},
		reduce.LogSumExp: {math.Log(math.E + math.Exp(-2) + math.Exp(3)), math.Log(math.Exp(4) + math.Exp(5) + math.Exp(-6))},
	} {
		require.InDeltaSlice(t, want, optest.Run(t, reduce.Reduce{Kind: k, Axes: ops.MakeInts(-1)}, x)[0].Floats(), 1e-12, k)
	}
}

func TestReduceAxes(t *testing.T) {
	x := tensor.New(tensor.F64, 2, 3, 4)
	v := make([]float64, 24)
	for i := range v {
		v[i] = float64(i)
	}
	x.SetFloats(v)
	out := optest.Run(t, reduce.Reduce{Axes: ops.MakeInts(0, 2), Keep: true}, x)[0]
	require.Equal(t, []int{1, 3, 1}, out.Shape())
	require.Equal(t, []float64{0 + 1 + 2 + 3 + 12 + 13 + 14 + 15, 4 + 5 + 6 + 7 + 16 + 17 + 18 + 19, 8 + 9 + 10 + 11 + 20 + 21 + 22 + 23}, out.Floats())
	out = optest.Run(t, reduce.Reduce{}, x)[0]
	require.Equal(t, 0, int(out.Rank))
	require.Equal(t, []float64{276}, out.Floats())
	out = optest.Run(t, reduce.Reduce{Axes: ops.MakeInts(1)}, x)[0]
	require.Equal(t, []int{2, 4}, out.Shape())
	require.Equal(t, []float64{12, 15, 18, 21, 48, 51, 54, 57}, out.Floats())
}

func TestReduceEdges(t *testing.T) {
	empty := tensor.New(tensor.F32, 2, 0)
	for k, want := range map[reduce.Kind]float64{reduce.Sum: 0, reduce.Prod: 1, reduce.Max: -inf, reduce.Min: inf, reduce.LogSumExp: -inf} {
		require.Equal(t, []float64{want, want}, optest.Run(t, reduce.Reduce{Kind: k, Axes: ops.MakeInts(1)}, empty)[0].Floats(), k)
	}
	require.True(t, math.IsNaN(optest.Run(t, reduce.Reduce{Kind: reduce.Mean, Axes: ops.MakeInts(1)}, empty)[0].Floats()[0]))
	x := optest.F64([]int{3}, 1, math.NaN(), inf)
	require.True(t, math.IsNaN(optest.Run(t, reduce.Reduce{Kind: reduce.Max}, x)[0].Floats()[0]), "NaN wins")
	require.Equal(t, []float64{1000 + math.Log(2)}, optest.Run(t, reduce.Reduce{Kind: reduce.LogSumExp}, optest.F64([]int{2}, 1000, 1000))[0].Floats())
	i := tensor.Of([]int8{100, 100, -1}, 3)
	require.Equal(t, []int64{-57}, optest.Run(t, reduce.Reduce{}, i)[0].Ints(), "integers wrap")
	require.Equal(t, []int64{100}, optest.Run(t, reduce.Reduce{Kind: reduce.Max}, i)[0].Ints())
	u := tensor.Of([]uint64{1, math.MaxUint64}, 2)
	require.Equal(t, uint64(math.MaxUint64), tensor.Data[uint64](optest.Run(t, reduce.Reduce{Kind: reduce.Max}, u)[0])[0])
	e := tensor.New(tensor.I8, 0)
	require.Equal(t, []int64{-128}, optest.Run(t, reduce.Reduce{Kind: reduce.Max}, e)[0].Ints())
	require.Equal(t, []int64{127}, optest.Run(t, reduce.Reduce{Kind: reduce.Min}, e)[0].Ints())
}

func TestArg(t *testing.T) {
	x := optest.F64([]int{2, 4}, 1, 7, 7, 0, -1, -5, 2, -5)
	require.Equal(t, []int64{1, 2}, optest.Run(t, reduce.Arg{Axis: 1}, x)[0].Ints())
	require.Equal(t, []int64{2, 2}, optest.Run(t, reduce.Arg{Axis: 1, Last: true}, x)[0].Ints())
	require.Equal(t, []int64{3, 1}, optest.Run(t, reduce.Arg{Axis: 1, Min: true}, x)[0].Ints())
	require.Equal(t, []int64{3, 3}, optest.Run(t, reduce.Arg{Axis: 1, Min: true, Last: true}, x)[0].Ints())
	out := optest.Run(t, reduce.Arg{Axis: 0, Keep: true, Out: tensor.I64}, x)[0]
	require.Equal(t, tensor.MakeSpec(tensor.I64, 1, 4), out.Spec)
	require.Equal(t, []int64{0, 0, 0, 0}, out.Ints())
	nan := optest.F64([]int{3}, 9, math.NaN(), inf)
	require.Equal(t, []int64{1}, optest.Run(t, reduce.Arg{}, nan)[0].Ints())
	require.Equal(t, []int64{1}, optest.Run(t, reduce.Arg{Min: true}, nan)[0].Ints())
}

func TestTopK(t *testing.T) {
	x := optest.F64([]int{1, 5}, 3, 9, 3, -1, 4)
	out := optest.Run(t, reduce.TopK{K: 4, Axis: -1}, x)
	require.Equal(t, []float64{9, 4, 3, 3}, out[0].Floats())
	require.Equal(t, []int64{1, 4, 0, 2}, out[1].Ints(), "equal ones keep their order")
	out = optest.Run(t, reduce.TopK{K: 2, Axis: 1, Smallest: true, Out: tensor.I64}, x)
	require.Equal(t, []float64{-1, 3}, out[0].Floats())
	require.Equal(t, []int64{3, 0}, out[1].Ints())
	require.Equal(t, tensor.I64, out[1].DType)
}

func TestCumSum(t *testing.T) {
	x := optest.F64([]int{2, 3}, 1, 2, 3, 10, 20, 30)
	for _, c := range []struct {
		op   reduce.CumSum
		want []float64
	}{
		{reduce.CumSum{Axis: 1}, []float64{1, 3, 6, 10, 30, 60}},
		{reduce.CumSum{Axis: 0}, []float64{1, 2, 3, 11, 22, 33}},
		{reduce.CumSum{Axis: 1, Exclusive: true}, []float64{0, 1, 3, 0, 10, 30}},
		{reduce.CumSum{Axis: 1, Reverse: true}, []float64{6, 5, 3, 60, 50, 30}},
		{reduce.CumSum{Axis: 1, Reverse: true, Exclusive: true}, []float64{5, 3, 0, 50, 30, 0}},
	} {
		require.Equal(t, c.want, optest.Run(t, c.op, x)[0].Floats(), c.op)
	}
}

func TestErrors(t *testing.T) {
	f, b := tensor.MakeSpec(tensor.F32, 2, 3), tensor.MakeSpec(tensor.Bool, 2)
	optest.Error(t, reduce.Reduce{Axes: ops.MakeInts(2)}, []string{"axis 2", "from -2 to 1"}, f)
	optest.Error(t, reduce.Reduce{}, []string{"floating-point or integer"}, b)
	optest.Error(t, reduce.Reduce{Kind: reduce.Mean}, []string{"floating-point"}, tensor.MakeSpec(tensor.I32, 2))
	optest.Error(t, reduce.Arg{}, []string{"empty"}, tensor.MakeSpec(tensor.F32, 0))
	optest.Error(t, reduce.Arg{Out: tensor.F32}, []string{"i32 or i64"}, f)
	optest.Error(t, reduce.TopK{K: 4, Axis: 1}, []string{"topk", "4"}, f)
	optest.Error(t, reduce.CumSum{Axis: 5}, []string{"axis 5"}, f)
	for _, op := range []ops.Op{reduce.Reduce{}, reduce.Arg{}, reduce.TopK{}, reduce.CumSum{}} {
		optest.Comparable(t, op)
	}
	for _, k := range reduce.Kinds() {
		require.NotEmpty(t, k.String())
	}
}

func TestUnknownReduction(t *testing.T) {
	optest.Error(t, reduce.Reduce{Kind: 99}, []string{"Kind(99)"}, tensor.MakeSpec(tensor.F32, 2))
}
