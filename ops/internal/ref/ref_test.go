package ref_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

var op = elementwise.Where{}

func TestAxis(t *testing.T) {
	for axis, want := range map[int]int{0: 0, 2: 2, -1: 2, -3: 0} {
		got, err := ref.Axis(op, axis, 3)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, axis := range []int{3, -4} {
		_, err := ref.Axis(op, axis, 3)
		require.ErrorContains(t, err, "from -3 to 2 is right")
	}
	_, err := ref.Axis(op, 0, 0)
	require.Error(t, err)
}

func TestSplitAndStrides(t *testing.T) {
	outer, n, inner := ref.Split([]int{2, 3, 4, 5}, 1)
	require.Equal(t, []int{2, 3, 20}, []int{outer, n, inner})
	require.Equal(t, []int{60, 20, 5, 1}, ref.Strides([]int{2, 3, 4, 5}))
}

func TestFloatsDecodesBlocks(t *testing.T) {
	x := tensor.New(tensor.F32, 1, 32)
	x.SetFloats(append(make([]float64, 31), 127))
	q, err := quant.Encode(tensor.Q8_0, x)
	require.NoError(t, err)
	v, err := ref.Floats(q)
	require.NoError(t, err)
	require.Equal(t, x.Floats(), v)
	v, err = ref.Spread(tensor.Of([]float32{1, 2}, 2), []int{2, 2})
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 1, 2}, v)
	_, err = ref.Spread(tensor.Of([]float32{1, 2}, 2), []int{3})
	require.Error(t, err)
}

func TestChecks(t *testing.T) {
	in := []tensor.Spec{tensor.MakeSpec(tensor.F32, 3), {}}
	require.NoError(t, ref.Float(op, in, 0))
	require.ErrorContains(t, ref.Index(op, in, 0), "i32 or i64")
	require.ErrorContains(t, ref.Vector(op, in, 0, 4, "weight"), "f32[4] is right")
	require.False(t, ref.Has(in, 1))
	require.False(t, ref.Has(in, 2))
	_, err := ref.Checked(op, tensor.F32, make([]int, 9))
	require.ErrorContains(t, err, "where")
}
