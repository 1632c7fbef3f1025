package graph

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// TestLayout builds networks with everything that may stand between two convolutions, and checks that the results do not change and
// that no more transpositions are left than the borders need.
func TestLayout(t *testing.T) {
	relu := elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}
	add := elementwise.Binary{F: elementwise.Add}
	mul := elementwise.Binary{F: elementwise.Mul}
	pool := conv.Pool{Kind: conv.Avg, Kernel: [3]int{2, 2}, Window: conv.Window{Stride: [3]int{2, 2}}}
	for _, c := range []struct {
		name string
		mid  func(g *Graph, x Value, r *rand.Rand) Value // x is f32[2 4 6 8]
		// transpositions that cost a copy: at the input, at the output, and what the middle needs
		copies int
	}{
		{"chain", func(g *Graph, x Value, r *rand.Rand) Value { return g.Apply("r", relu, x) }, 2},
		{"pool", func(g *Graph, x Value, r *rand.Rand) Value { return g.Apply("p", pool, x) }, 2},
		{"residual", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("a", add, g.Apply("c2", conv.Conv{}, x, g.Constant("w2", random(r, 4, 4, 1, 1))), x)
		}, 2},
		{"constants", func(g *Graph, x Value, r *rand.Rand) Value {
			x = g.Apply("a", add, x, g.Constant("row", random(r, 8)))
			x = g.Apply("b", mul, x, g.Constant("image", random(r, 6, 8)))
			return g.Apply("c", add, g.Constant("channel", random(r, 4, 1, 1)), x)
		}, 2},
		{"squeeze and excite", func(g *Graph, x Value, r *rand.Rand) Value {
			s := g.Apply("gap", conv.Pool{Kind: conv.Avg, Kernel: [3]int{6, 8}}, x)
			s = g.Apply("fc", conv.Conv{}, s, g.Constant("wfc", random(r, 4, 4, 1, 1)))
			return g.Apply("se", mul, x, g.Apply("sig", elementwise.Activate{Act: ops.Act{Kind: ops.Sigmoid}}, s))
		}, 2},
		{"concat", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("cat", shape.Concat{Axis: 1}, x, g.Apply("r", relu, x))
		}, 2},
		{"slice and split", func(g *Graph, x Value, r *rand.Rand) Value {
			a := g.Apply("s", shape.Slice{Axis: 1, From: ops.Const(1), To: ops.Const(3)}, x)
			b := g.ApplyAll("sp", shape.Split{Axis: -3, Sizes: ops.MakeInts(2, 2)}, x)[1]
			return g.Apply("a", add, a, b)
		}, 2},
		{"pad", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("p", shape.Pad{Before: ops.MakeInts(0, 1, 2, 0), After: ops.MakeInts(0, 0, 1, 3), Value: 2}, x)
		}, 2},
		{"resize", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("u", image.Resize{Mode: image.Linear, Out: ops.MakeInts(2, 4, 12, 5)}, x)
		}, 2},
		{"softmax over channels", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("sm", attention.Softmax{Axis: 1}, x)
		}, 2},
		{"batch norm in front", func(g *Graph, x Value, r *rand.Rand) Value {
			variance := random(r, 4)
			for i := range tensor.Data[float32](variance) {
				tensor.Data[float32](variance)[i] = 1 + float32(i)
			}
			x = g.Apply("r", relu, x)
			return g.Apply("bn", norm.Batch{Eps: 1e-5}, x, g.Constant("s", random(r, 4)), g.Constant("b", random(r, 4)), g.Constant("m", random(r, 4)), g.Constant("v", variance))
		}, 2},
		{"mean over pixels", func(g *Graph, x Value, r *rand.Rand) Value {
			m := g.Apply("mean", reduce.Reduce{Kind: reduce.Mean, Axes: ops.MakeInts(2, 3)}, x)
			return g.Apply("fc", matmul.Op{}, m, g.Constant("wm", random(r, 4, 5)))
		}, 1},
		{"mean kept", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("mean", reduce.Reduce{Kind: reduce.Max, Axes: ops.MakeInts(1), Keep: true}, x)
		}, 1},
		{"class map", func(g *Graph, x Value, r *rand.Rand) Value { return g.Apply("arg", reduce.Arg{Axis: 1}, x) }, 1},
		{"to pixels and back", func(g *Graph, x Value, r *rand.Rand) Value {
			y := g.Apply("t", shape.Permute{Order: ops.MakeInts(0, 2, 3, 1)}, x)
			y = g.Apply("ln", norm.Layer{Eps: 1e-5}, y)
			return g.Apply("back", shape.Permute{Order: ops.MakeInts(0, 3, 1, 2)}, y)
		}, 1},
		{"flatten", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("f", shape.Reshape{Dims: ops.ConstSizes(2, -1)}, x)
		}, 2},
		{"pixels in a row", func(g *Graph, x Value, r *rand.Rand) Value {
			x = g.Apply("f", shape.Reshape{Dims: ops.ConstSizes(2, 4, -1)}, x)
			x = g.Apply("u", shape.Unsqueeze{Axes: ops.MakeInts(2)}, g.Apply("r", relu, x))
			x = g.Apply("s", shape.Squeeze{Axes: ops.MakeInts(2)}, x)
			return g.Apply("t", shape.Permute{Order: ops.MakeInts(0, 2, 1)}, x)
		}, 1},
		{"large operand", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("a", add, x, g.Input("other", tensor.F32, ops.Const(2), ops.Const(4), ops.Const(6), ops.Const(8)))
		}, 3},
		{"transposed", func(g *Graph, x Value, r *rand.Rand) Value {
			return g.Apply("up", conv.Transposed{Window: conv.Window{Stride: [3]int{2, 2}}}, x, g.Constant("wt", random(r, 4, 3, 2, 2)))
		}, 2},
	} {
		for _, last := range []bool{false, true} { // the order of the input
			t.Run(fmt.Sprint(c.name, last), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, 4))
				g := New(c.name)
				dims := []ops.Size{ops.Const(2), ops.Const(3), ops.Const(6), ops.Const(8)}
				if last {
					dims = []ops.Size{dims[0], dims[2], dims[3], dims[1]}
				}
				x := g.Input("x", tensor.F32, dims...)
				if last {
					x = g.Apply("first", shape.Permute{Order: ops.MakeInts(0, 3, 1, 2)}, x)
				}
				same := conv.Window{Before: [3]int{1, 1}, After: [3]int{1, 1}}
				y := g.Apply("c1", conv.Conv{Window: same}, x, g.Constant("w1", random(rng, 4, 3, 3, 3)))
				y = c.mid(g, y, rng)
				g.Output("y", y)
				require.NoError(t, g.Err())
				var results [][]float64
				for _, off := range [][]string{{"all"}, nil} {
					opts := options()
					opts.DisablePasses = off
					exe, err := g.Compile(context.Background(), opts)
					require.NoError(t, err)
					rng := rand.New(rand.NewPCG(7, 8))
					for _, in := range g.Inputs() {
						require.NoError(t, exe.Bind(in, random(rng, in.Spec().Shape()...)))
					}
					require.NoError(t, exe.Run(context.Background()))
					out := exe.Output(y)
					results = append(results, out.Floats())
					if off == nil {
						copies := 0
						for _, n := range exe.g.nodes {
							if _, ok := n.op.(shape.Contiguous); ok {
								copies++
							}
							if op, ok := n.op.(conv.Conv); ok {
								require.Equal(t, conv.ChannelsLast, op.Layout)
							}
						}
						want := c.copies
						if last { // nothing is left to do at the input
							want--
						}
						require.LessOrEqual(t, copies, want)
					}
				}
				require.InDeltaSlice(t, results[0], results[1], 1e-4)
			})
		}
	}
}

// A line of pixels whose channels lie innermost in the file gets no copy, whichever dimensions of one element stand around it.
func TestLayoutOfLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	g := New("line")
	x := g.Input("x", tensor.F32, ops.Const(2), ops.Const(1), ops.Const(20), ops.Const(6))
	y := g.Apply("t", shape.Permute{Order: ops.MakeInts(0, 3, 2, 1)}, x) // [2, 6, 20, 1]
	y = g.Apply("c", conv.Conv{}, y, g.Constant("w", random(rng, 5, 6, 3, 1)))
	g.Output("y", y)
	require.NoError(t, g.Err())
	in := random(rng, 2, 1, 20, 6)
	var results [][]float64
	for _, off := range [][]string{{"all"}, nil} {
		opts := options()
		opts.DisablePasses = off
		exe, err := g.Compile(context.Background(), opts)
		require.NoError(t, err)
		require.NoError(t, exe.Bind(x, in))
		require.NoError(t, exe.Run(context.Background()))
		out := exe.Output(y)
		results = append(results, out.Floats())
		copies := 0
		for _, n := range exe.g.nodes {
			if _, ok := n.op.(shape.Contiguous); ok {
				copies++
			}
		}
		if off == nil {
			require.LessOrEqual(t, copies, 1) // of the output
		}
	}
	require.InDeltaSlice(t, results[0], results[1], 1e-4)
}
