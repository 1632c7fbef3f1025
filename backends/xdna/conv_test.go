package xdna

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Convolutions of one, two and three dimensions, strided, dilated and padded, in both layouts, are near the reference, and the same in both modes.
func TestConvolution(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for i, c := range []struct {
		x, w []int // channels first
		win  conv.Window
		ep   matmul.Epilogue
	}{
		{[]int{3, 4, 9, 11}, []int{6, 4, 3, 3}, conv.Window{Before: [3]int{1, 1}, After: [3]int{1, 1}}, matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}},
		{[]int{2, 3, 10, 8}, []int{5, 3, 2, 3}, conv.Window{Stride: [3]int{2, 3}, Dilation: [3]int{2, 1}, Before: [3]int{0, 2}, After: [3]int{1, 0}}, matmul.Epilogue{ColScale: true}},
		{[]int{2, 3, 20}, []int{4, 3, 5}, conv.Window{Stride: [3]int{3}, Before: [3]int{2}}, matmul.Epilogue{}},
		{[]int{1, 2, 4, 5, 6}, []int{3, 2, 2, 3, 2}, conv.Window{Before: [3]int{1, 0, 1}}, matmul.Epilogue{Bias: true}},
		{[]int{70, 1, 14, 14}, []int{8, 1, 3, 3}, conv.Window{}, matmul.Epilogue{Act: ops.Act{Kind: ops.SiLU}}},
	} {
		for _, layout := range []conv.Layout{conv.ChannelsFirst, conv.ChannelsLast} {
			ep := c.ep
			if layout == conv.ChannelsLast && i == 0 {
				ep.Residual = matmul.ResidualAfter
			}
			op := conv.Conv{Window: c.win, Layout: layout, Epilogue: ep}
			in := []tensor.Tensor{floats(rng, layout.Dims(c.x[0], c.x[1], c.x[2:])...), floats(rng, c.w...)}
			specs := []tensor.Spec{in[0].Spec, in[1].Spec}
			add := func(use bool, dims ...int) {
				if use {
					in = append(in, floats(rng, dims...))
					specs = append(specs, in[len(in)-1].Spec)
				}
			}
			add(ep.ColScale, c.w[0])
			add(ep.Bias, c.w[0])
			bare := op
			bare.Epilogue = matmul.Epilogue{}
			y, err := bare.Infer(specs[:2])
			require.NoError(t, err)
			add(ep.Residual != matmul.NoResidual, y[0].Shape()...)
			want := tensor.New(tensor.F32, y[0].Shape()...)
			require.NoError(t, op.Reference([]tensor.Tensor{want}, in))
			part := &ops.Part{Nodes: []ops.Node{{Name: "c", Op: op, Out: []int{len(in)}}}, Outputs: []int{len(in)}}
			for j, x := range in {
				part.Values = append(part.Values, ops.Value{Name: fmt.Sprint(j), Spec: x.Spec})
				part.Nodes[0].In = append(part.Nodes[0].In, j)
			}
			part.Values = append(part.Values, ops.Value{Name: "y", Spec: y[0]})
			part.Values[1].Const = ops.NewConstant(in[1])
			var bits [][]byte
			for _, mode := range []Mode{Fast, Emulate} {
				b := open(t, device.XDNA, Options{Mode: mode, F32Out: true, Rows: 1})
				require.True(t, b.Supports(part.Call(&part.Nodes[0])).OK)
				p, err := b.Compile(context.Background(), part)
				require.NoError(t, err)
				got := tensor.New(tensor.F32, y[0].Shape()...)
				frame := append(append([]tensor.Tensor(nil), in...), got)
				require.NoError(t, p.Run(context.Background(), frame, 0, 1))
				v := got.Floats()
				for j, w := range want.Floats() {
					require.InDelta(t, w, v[j], 0.15+0.02*max(w, -w), "%d %v element %d", i, layout, j)
				}
				bits = append(bits, got.Raw())
				require.NoError(t, p.Close())
				require.Positive(t, b.Stats().Products)
			}
			require.Equal(t, bits[0], bits[1])
		}
	}
}

func TestConvolutionRefusals(t *testing.T) {
	b := open(t, device.XDNA, Options{Rows: 1})
	x, w := tensor.MakeSpec(tensor.F32, 1, 4, 8, 8), tensor.MakeSpec(tensor.F32, 6, 2, 3, 3)
	v := b.Supports(ops.Call{Op: conv.Conv{Groups: 2}, In: []tensor.Spec{x, w}, Const: []bool{false, true}})
	require.False(t, v.OK)
	require.Contains(t, v.Reason, "2 groups")
	w = tensor.MakeSpec(tensor.F32, 6, 4, 3, 3)
	v = b.Supports(ops.Call{Op: conv.Conv{}, In: []tensor.Spec{x, w}, Const: []bool{false, false}})
	require.Contains(t, v.Reason, "not a constant")
	v = b.Supports(ops.Call{Op: conv.Conv{}, In: []tensor.Spec{x, w}, Const: []bool{false, true}})
	require.True(t, v.OK, v.Reason)
}

// TestConvolutionCost: many images run some at a time, and the cost is that of all pieces.
func TestConvolutionCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	b := open(t, device.XDNA2, Options{Rows: 1})
	op := conv.Conv{Layout: conv.ChannelsLast}
	x, w := floats(rng, 200, 16, 16, 4), floats(rng, 8, 4, 3, 3)
	y := tensor.New(tensor.F32, 200, 14, 14, 8)
	part := &ops.Part{Outputs: []int{2}, Nodes: []ops.Node{{Name: "c", Op: op, In: []int{0, 1}, Out: []int{2}}},
		Values: []ops.Value{{Name: "x", Spec: x.Spec}, {Name: "w", Spec: w.Spec, Const: ops.NewConstant(w)}, {Name: "y", Spec: y.Spec}}}
	v := b.Supports(part.Call(&part.Nodes[0]))
	require.True(t, v.OK)
	require.Contains(t, v.Reason, "41 of 200 images at a time")
	p, err := b.Compile(context.Background(), part)
	require.NoError(t, err)
	require.NoError(t, p.Run(context.Background(), []tensor.Tensor{x, w, y}, 0, 1))
	s := b.Stats()
	require.EqualValues(t, 5, s.Dispatches)
	require.InEpsilon(t, s.SimulatedSeconds-device.XDNA2.ReconfigSec, v.Cost.Seconds(), 0.05)
	require.NoError(t, p.Close())
}
