package image

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

func resize(t *testing.T, r Resize, x tensor.Tensor) []float64 {
	t.Helper()
	out, err := r.Infer([]tensor.Spec{x.Spec})
	require.NoError(t, err)
	y := tensor.New(out[0].DType, out[0].Shape()...)
	require.NoError(t, r.Reference([]tensor.Tensor{y}, []tensor.Tensor{x}))
	return y.Floats()
}

func TestResizeByHand(t *testing.T) {
	x := tensor.Of([]float32{0, 1, 2, 3}, 4)
	out := func(n int) ops.Ints { return ops.MakeInts(n) }
	for _, c := range []struct {
		name string
		r    Resize
		want []float64
	}{
		{"nearest up", Resize{Coord: Asymmetric, Round: Floor, Out: out(8)}, []float64{0, 0, 1, 1, 2, 2, 3, 3}},
		{"nearest down", Resize{Coord: Asymmetric, Round: Floor, Out: out(2)}, []float64{0, 2}},
		{"half pixel prefers floor", Resize{Out: out(2)}, []float64{0, 2}},
		{"half pixel prefers ceil", Resize{Round: PreferCeil, Out: out(2)}, []float64{1, 3}},
		{"linear up", Resize{Mode: Linear, Out: out(8)}, []float64{0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3}},
		{"linear corners", Resize{Mode: Linear, Coord: AlignCorners, Out: out(7)}, []float64{0, 0.5, 1, 1.5, 2, 2.5, 3}},
		{"linear down", Resize{Mode: Linear, Out: out(2)}, []float64{0.5, 2.5}},
		{"antialias", Resize{Mode: Linear, Antialias: true, Out: out(2)}, []float64{5.0 / 8, 19.0 / 8}}, // weights 1, 3, 3, 1 over 8
		{"crop", Resize{Mode: Linear, Coord: TFCrop, Out: out(3), ROI: [2 * tensor.MaxRank]float32{0, 2}, Extrapolation: 9}, []float64{0, 3, 9}},
		{"same", Resize{Mode: Cubic, Out: out(4)}, []float64{0, 1, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) { require.InDeltaSlice(t, c.want, resize(t, c.r, x), 1e-12) })
	}
}

// Weights of every output sum to one, whatever the rule, and a constant stays constant.
func TestResizeConstant(t *testing.T) {
	x := tensor.New(tensor.F32, 5, 7)
	for i := range tensor.Data[float32](x) {
		tensor.Data[float32](x)[i] = 3
	}
	for mode := Nearest; mode < numInterps; mode++ {
		for coord := HalfPixel; coord < TFCrop; coord++ {
			for _, dims := range [][]int{{3, 4}, {9, 16}, {1, 1}, {5, 20}} {
				for _, flags := range [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} {
					r := Resize{Mode: mode, Coord: coord, CubicA: -0.75, Exclude: flags[0], Antialias: flags[1], Out: ops.MakeInts(dims...)}
					for _, v := range resize(t, r, x) {
						require.InDelta(t, 3, v, 1e-9, "%+v", r)
					}
				}
			}
		}
	}
}

// Cubic interpolation with a = -0.5 reproduces straight lines away from the borders.
func TestCubicLine(t *testing.T) {
	v := make([]float32, 16)
	for i := range v {
		v[i] = float32(i)
	}
	got := resize(t, Resize{Mode: Cubic, CubicA: -0.5, Coord: Asymmetric, Out: ops.MakeInts(48)}, tensor.Of(v, 16))
	for i := 6; i < 40; i++ {
		require.InDelta(t, float64(i)/3, got[i], 1e-5)
	}
	require.False(t, math.IsNaN(got[47]))
}

func TestResizeErrors(t *testing.T) {
	_, err := Resize{Out: ops.MakeInts(2)}.Infer([]tensor.Spec{tensor.MakeSpec(tensor.F32, 2, 2)})
	require.Error(t, err)
	_, err = Resize{Out: ops.MakeInts(2)}.Infer([]tensor.Spec{tensor.MakeSpec(tensor.F32, 0)})
	require.Error(t, err)
	_, err = Resize{Out: ops.MakeInts(-2)}.Infer([]tensor.Spec{tensor.MakeSpec(tensor.F32, 3)})
	require.Error(t, err)
}

// TestResizeExtremes: scales that the sizes do not bear out and dimensions that positions cannot count are refused, and beside an empty dimension others may be
// of any size.
func TestResizeExtremes(t *testing.T) {
	x := tensor.MakeSpec(tensor.F32, 4)
	for _, scale := range []float64{1e-15, -1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		op := Resize{Mode: Linear, Antialias: true, Out: ops.MakeInts(4)}
		op.Scale[0] = float32(scale)
		_, err := op.Infer([]tensor.Spec{x})
		require.ErrorContains(t, err, "scale")
	}
	_, err := Resize{Out: ops.MakeInts(4), Round: 9}.Infer([]tensor.Spec{x})
	require.ErrorContains(t, err, "resize_nearest")
	op := Resize{Mode: Cubic, Out: ops.MakeInts(0, math.MaxInt32)}
	require.NoError(t, op.Reference([]tensor.Tensor{tensor.New(tensor.F32, 0, math.MaxInt32)}, []tensor.Tensor{tensor.New(tensor.F32, 3, 5)}))
}
