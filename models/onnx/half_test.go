package onnx_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// narrowed turns a model of f32 into one of another type, as converters do: weights, inputs, outputs and casts.
func narrowed(t *testing.T, m *onnx.Model, e onnx.ElemType) {
	t.Helper()
	convert := func(c *onnx.Tensor) {
		if c != nil && c.Elem == onnx.Float {
			x := tensor.New(e.DType(), c.Data.Shape()...)
			require.NoError(t, tensor.Copy(x, c.Data))
			c.Elem, c.Data = e, x
		}
	}
	for _, c := range m.Graph.Inits {
		convert(c)
	}
	for _, n := range m.Graph.Nodes {
		for i := range n.Attrs {
			convert(n.Attrs[i].T)
			if n.Op == "Cast" && n.Attrs[i].I == int64(onnx.Float) {
				n.Attrs[i].I = int64(e)
			}
		}
	}
	for _, list := range [][]onnx.ValueInfo{m.Graph.Inputs, m.Graph.Outputs} {
		for i := range list {
			if list[i].Type != nil && list[i].Type.Elem == onnx.Float {
				list[i].Type.Elem = e
			}
		}
	}
}

// Models of f16 and bf16 run on the graph, give results of their own type, and agree with f32 to their accuracy.
func TestHalfPrecision(t *testing.T) {
	bs := cpu(t)
	digit := tensor.New(tensor.F32, 1, 1, 28, 28)
	r := rand.New(rand.NewPCG(1, 2))
	for y := 5; y < 23; y++ {
		for x := 12; x < 16; x++ {
			tensor.Data[float32](digit)[y*28+x] = 200 + 50*r.Float32()
		}
	}
	run := func(e onnx.ElemType) tensor.Tensor {
		m, err := onnx.Open("../cnn/digits.onnx")
		require.NoError(t, err)
		defer m.Close()
		narrowed(t, m, e)
		m, err = onnx.Decode(encoded(t, m))
		require.NoError(t, err)
		s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: bs})
		require.NoError(t, err)
		defer s.Close()
		x := tensor.New(e.DType(), 1, 1, 28, 28)
		require.NoError(t, tensor.Copy(x, digit))
		out, err := s.Run(context.Background(), map[string]onnx.Value{s.Inputs()[0].Name: onnx.Of(x)})
		require.NoError(t, err)
		require.Empty(t, s.Eager())
		y := out[s.Outputs()[0].Name].Tensor
		require.Equal(t, e.DType(), y.DType)
		return y.Clone()
	}
	exact := run(onnx.Float)
	want := exact.Floats()
	for e, tol := range map[onnx.ElemType]float64{onnx.Float16: 1.0 / 256, onnx.BFloat16: 1.0 / 32} {
		y := run(e)
		top, best := 0.0, 0
		for i, v := range want {
			top = max(top, math.Abs(v))
			if v > want[best] {
				best = i
			}
		}
		got := y.Floats()
		for i, v := range want {
			require.InDelta(t, v, got[i], tol*top, "%v %d", e, i)
			require.LessOrEqual(t, got[i], got[best], "%v", e)
		}
		require.Equal(t, 1, best)
	}
}
