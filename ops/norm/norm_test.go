package norm_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/tensor"
)

func near(t *testing.T, want, got []float64) {
	t.Helper()
	require.Len(t, got, len(want))
	require.InDeltaSlice(t, want, got, 1e-9)
}

func TestRMS(t *testing.T) {
	x := optest.F64([]int{2, 2}, 3, 4, 0, 0)
	// The root of the mean square of (3, 4) is 5/sqrt 2; a row of zeros stays zeros through Eps.
	out := optest.Run(t, norm.RMS{Eps: 0x1p-30}, x)
	near(t, []float64{3 * math.Sqrt2 / 5, 4 * math.Sqrt2 / 5, 0, 0}, out[0].Floats())
	out = optest.Run(t, norm.RMS{Eps: 0x1p-30}, x, optest.F64([]int{2}, 5, 10))
	near(t, []float64{3 * math.Sqrt2, 8 * math.Sqrt2, 0, 0}, out[0].Floats())
	// Eps is added to the mean square, not to its root: 1/sqrt(1 + 3).
	out = optest.Run(t, norm.RMS{Eps: 3}, optest.F64([]int{2}, 1, -1))
	near(t, []float64{0.5, -0.5}, out[0].Floats())
}

func TestLayer(t *testing.T) {
	x := optest.F64([]int{1, 4}, 1, 3, 5, 7) // mean 4, variance 5
	s := 1 / math.Sqrt(5+0.25)
	out := optest.Run(t, norm.Layer{Eps: 0.25}, x)
	near(t, []float64{-3 * s, -s, s, 3 * s}, out[0].Floats())
	out = optest.Run(t, norm.Layer{Eps: 0.25}, x, optest.F64([]int{4}, 1, 2, 3, 4), optest.F64([]int{4}, 10, 20, 30, 40))
	near(t, []float64{10 - 3*s, 20 - 2*s, 30 + 3*s, 40 + 12*s}, out[0].Floats())
	out = optest.Run(t, norm.Layer{Eps: 0.25}, x, tensor.Tensor{}, optest.F64([]int{4}, 1, 1, 1, 1)) // a bias alone
	near(t, []float64{1 - 3*s, 1 - s, 1 + s, 1 + 3*s}, out[0].Floats())
}

func TestL2(t *testing.T) {
	out := optest.Run(t, norm.L2{Eps: 1}, optest.F64([]int{2, 2}, 3, 4, 0.3, 0.4))
	near(t, []float64{0.6, 0.8, 0.3, 0.4}, out[0].Floats()) // the second row is shorter than Eps
}

func TestGroup(t *testing.T) {
	// Two channels of two elements: one group sees all four, two groups see two each.
	x := optest.F64([]int{1, 2, 2}, 1, 3, 5, 7)
	s := 1 / math.Sqrt(5)
	out := optest.Run(t, norm.Group{Groups: 1}, x)
	near(t, []float64{-3 * s, -s, s, 3 * s}, out[0].Floats())
	out = optest.Run(t, norm.Group{Groups: 2}, x, optest.F64([]int{2}, 1, 2), optest.F64([]int{2}, 0, 1))
	near(t, []float64{-1, 1, -1, 3}, out[0].Floats())
}

func TestBatch(t *testing.T) {
	x := optest.F64([]int{2, 2, 1}, 1, 10, 3, 30)
	out := optest.Run(t, norm.Batch{Eps: 0}, x, optest.F64([]int{2}, 2, 1), optest.F64([]int{2}, 0, 5), optest.F64([]int{2}, 1, 10), optest.F64([]int{2}, 4, 100))
	near(t, []float64{0, 5, 2, 7}, out[0].Floats())
}

func TestEmptyRowsAndErrors(t *testing.T) {
	for _, op := range []ops.Op{norm.RMS{}, norm.Layer{}, norm.L2{}} {
		for _, dims := range [][]int{{0}, {0, 4}, {3, 0}} {
			require.Zero(t, optest.Run(t, op, tensor.New(tensor.F32, dims...))[0].Elems())
		}
		optest.Comparable(t, op)
		optest.Error(t, op, []string{"floating-point"}, tensor.MakeSpec(tensor.I32, 3))
		optest.Error(t, op, []string{"dimension"}, tensor.MakeSpec(tensor.F32))
	}
	x := tensor.MakeSpec(tensor.F32, 2, 6, 3)
	optest.Error(t, norm.RMS{}, []string{"weight", "f32[4]", "f32[3]"}, x, tensor.MakeSpec(tensor.F32, 4))
	optest.Error(t, norm.Group{Groups: 4}, []string{"6 channels", "4 groups"}, x)
	optest.Error(t, norm.Batch{}, []string{"1 input,", "5 are"}, x)
	c := tensor.MakeSpec(tensor.F32, 5)
	optest.Error(t, norm.Batch{}, []string{"scale", "f32[6]"}, x, c, c, c, c)
}
