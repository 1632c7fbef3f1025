package cpu

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// A depthwise convolution that feeds a 1x1 one runs with it: what lies between is not written, and results have the bits of node by node. Where
// memory is shared, or a node is run alone, they run one after the other.
func TestFeed(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(8, 1))
	const c, m = 12, 7
	x, w, b := randomTensor(rng, tensor.F32, 2, 9, 11, c), randomTensor(rng, tensor.F32, c, 1, 3, 3), randomTensor(rng, tensor.F32, c)
	v := randomTensor(rng, tensor.F32, m, c, 1, 1)
	res := randomTensor(rng, tensor.F32, 2, 9, 11, m)
	between, y := tensor.New(tensor.F32, 2, 9, 11, c), tensor.New(tensor.F32, 2, 9, 11, m)
	frame := []tensor.Tensor{x, w, b, v, res, between, y}
	nodes := []ops.Node{
		{Name: "first", Op: conv.Conv{Window: conv.Window{Before: [3]int{1, 1}, After: [3]int{1, 1}}, Groups: c, Layout: conv.ChannelsLast,
			Epilogue: matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}}, In: []int{0, 1, 2}, Out: []int{5}},
		{Name: "second", Op: conv.Conv{Layout: conv.ChannelsLast, Epilogue: matmul.Epilogue{Residual: matmul.ResidualAfter, Act: ops.Act{Kind: ops.HardSwish}}},
			In: []int{5, 3, 4}, Out: []int{6}},
	}
	for _, name := range cpuinfo.Get().Names() {
		isa, err := cpuinfo.ParseISA(name)
		require.NoError(t, err)
		part := &ops.Part{Nodes: nodes, Inputs: []int{0, 4}, Outputs: []int{6}, Feeds: []bool{true, false}}
		for i, f := range frame {
			value := ops.Value{Spec: f.Spec}
			if i >= 1 && i <= 3 {
				value.Const = &ops.Constant{Tensor: f}
			}
			part.Values = append(part.Values, value)
		}
		p, err := newBackend(2, isa).Compile(ctx, part)
		require.NoError(t, err)
		clear(tensor.Data[float32](between))
		clear(tensor.Data[float32](y))
		require.NoError(t, p.Run(ctx, frame, 0, 2))
		require.Zero(t, slices.Max(between.Floats()), "written")
		fed := y.Floats()
		require.NoError(t, p.Run(ctx, frame, 0, 1))
		require.NotZero(t, slices.Max(between.Floats()))
		require.NoError(t, p.Run(ctx, frame, 1, 2))
		require.Equal(t, y.Floats(), fed)
		// Results over the image.
		shared := append([]tensor.Tensor{}, frame...)
		shared[0] = tensor.New(tensor.F32, 2, 9, 11, c)
		require.NoError(t, tensor.Copy(shared[0], x))
		shared[6] = tensor.Of(tensor.Data[float32](shared[0])[:y.Elems()], 2, 9, 11, m)
		require.NoError(t, p.Run(ctx, shared, 0, 2))
		require.Equal(t, y.Floats(), shared[6].Floats())
		require.NoError(t, p.Close())
	}
}
