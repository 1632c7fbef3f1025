package graph

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// fusion builds a graph whose nodes one op can replace, and says which ops are left.
type fusion struct {
	name  string
	build func(g *Graph, rng *rand.Rand) Value
	want  []string
}

func input(g *Graph, name string, dims ...int) Value {
	sizes := make([]ops.Size, len(dims))
	for i, d := range dims {
		sizes[i] = ops.Const(d)
	}
	return g.Input(name, tensor.F32, sizes...)
}

func fusions() []fusion {
	relu := elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}
	silu := elementwise.Activate{Act: ops.Act{Kind: ops.SiLU}}
	add, mul, div := elementwise.Binary{F: elementwise.Add}, elementwise.Binary{F: elementwise.Mul}, elementwise.Binary{F: elementwise.Div}
	product := func(g *Graph, rng *rand.Rand) Value {
		return g.Apply("fc", matmul.Op{}, input(g, "x", 3, 4), g.Constant("w", random(rng, 4, 5)))
	}
	row := func(g *Graph, rng *rand.Rand, name string) Value { return g.Constant(name, random(rng, 5)) }
	qkv := func(g *Graph) (q, k, v Value) {
		return input(g, "q", 2, 4, 3, 8), input(g, "k", 2, 4, 6, 8), input(g, "v", 2, 4, 6, 8)
	}
	return []fusion{
		{"bias", func(g *Graph, r *rand.Rand) Value { return g.Apply("b", add, product(g, r), row(g, r, "b")) }, []string{"matmul"}},
		{"bias on the left", func(g *Graph, r *rand.Rand) Value { return g.Apply("b", add, row(g, r, "b"), product(g, r)) }, []string{"matmul"}},
		{"scale bias relu residual", func(g *Graph, r *rand.Rand) Value {
			y := g.Apply("s", mul, product(g, r), row(g, r, "s"))
			y = g.Apply("b", add, y, row(g, r, "b"))
			y = g.Apply("a", relu, y)
			return g.Apply("r", add, input(g, "res", 3, 5), y)
		}, []string{"matmul"}},
		{"residual before activation", func(g *Graph, r *rand.Rand) Value {
			return g.Apply("a", silu, g.Apply("r", add, product(g, r), input(g, "res", 3, 5)))
		}, []string{"matmul"}},
		{"scale after bias stays", func(g *Graph, r *rand.Rand) Value {
			return g.Apply("s", mul, g.Apply("b", add, product(g, r), row(g, r, "b")), row(g, r, "s"))
		}, []string{"matmul", "mul"}},
		{"two readers stay", func(g *Graph, r *rand.Rand) Value {
			y := product(g, r)
			return g.Apply("sum", add, g.Apply("a", relu, y), y)
		}, []string{"matmul", "relu", "add"}},
		{"column vector is no bias", func(g *Graph, r *rand.Rand) Value {
			return g.Apply("b", add, product(g, r), g.Constant("c", random(r, 3, 1)))
		}, []string{"matmul", "add"}},
		{"rms", func(g *Graph, r *rand.Rand) Value {
			return g.Apply("m", mul, g.Apply("n", norm.RMS{Eps: 1e-5}, input(g, "x", 3, 5)), row(g, r, "w"))
		}, []string{"rms_norm"}},
		{"glu", func(g *Graph, r *rand.Rand) Value {
			return g.Apply("m", mul, input(g, "up", 3, 5), g.Apply("a", silu, input(g, "gate", 3, 5)))
		}, []string{"glu_silu"}},
		{"softmax", func(g *Graph, r *rand.Rand) Value {
			y := g.Apply("s", elementwise.Scale{Mul: 0.5}, input(g, "x", 2, 3, 5))
			y = g.Apply("m", add, y, input(g, "mask", 3, 5))
			return g.Apply("p", attention.Softmax{Axis: -1}, y)
		}, []string{"softmax"}},
		{"attention with transposition", func(g *Graph, r *rand.Rand) Value {
			q, k, v := qkv(g)
			s := g.Apply("qk", matmul.Op{}, q, g.Apply("kt", shape.Transpose(4, 2, 3), k))
			s = g.Apply("d", div, s, g.Constant("root", tensor.Of([]float32{2.828427}, 1)))
			s = g.Apply("m", add, s, input(g, "mask", 3, 6))
			return g.Apply("pv", matmul.Op{}, g.Apply("p", attention.Softmax{Axis: -1}, s), v)
		}, []string{"sdpa"}},
		{"attention", func(g *Graph, r *rand.Rand) Value {
			q, k, v := qkv(g)
			p := g.Apply("p", attention.Softmax{Axis: 3}, g.Apply("qk", matmul.Op{TransB: true}, q, k))
			return g.Apply("pv", matmul.Op{}, p, v)
		}, []string{"sdpa"}},
		{"conv, batch norm, relu, residual", func(g *Graph, r *rand.Rand) Value {
			x := g.Apply("c", conv.Conv{}, input(g, "x", 2, 3, 6, 6), g.Constant("w", random(r, 4, 3, 3, 3)))
			variance := tensor.Of([]float32{1, 2, 0.5, 3}, 4)
			x = g.Apply("bn", norm.Batch{Eps: 1e-3}, x, g.Constant("s", random(r, 4)), g.Constant("b", random(r, 4)), g.Constant("m", random(r, 4)), g.Constant("v", variance))
			x = g.Apply("a", relu, x)
			return g.Apply("r", add, x, input(g, "res", 2, 4, 4, 4))
		}, []string{"conv"}},
		{"conv with bias of shape [1, C, 1, 1]", func(g *Graph, r *rand.Rand) Value {
			x := g.Apply("c", conv.Conv{}, input(g, "x", 1, 3, 5, 5), g.Constant("w", random(r, 4, 3, 3, 3)))
			x = g.Apply("s", mul, x, g.Constant("s", random(r, 1, 4, 1, 1)))
			return g.Apply("b", add, g.Constant("b", random(r, 4, 1, 1)), x)
		}, []string{"conv"}},
		{"row of pixels is no bias of channels", func(g *Graph, r *rand.Rand) Value {
			x := g.Apply("c", conv.Conv{}, input(g, "x", 1, 3, 6, 6), g.Constant("w", random(r, 4, 3, 3, 3)))
			return g.Apply("b", add, x, g.Constant("b", random(r, 4)))
		}, []string{"conv", "add"}},
		{"probabilities that are read stay", func(g *Graph, r *rand.Rand) Value {
			q, k, v := qkv(g)
			p := g.Apply("p", attention.Softmax{Axis: 3}, g.Apply("qk", matmul.Op{TransB: true}, q, k))
			g.Output("p", p)
			return g.Apply("pv", matmul.Op{}, p, v)
		}, []string{"matmul", "softmax", "matmul"}},
	}
}

func TestFusionsKeepTheResult(t *testing.T) {
	ctx := context.Background()
	for _, c := range fusions() {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			g := New(c.name)
			y := c.build(g, rng)
			g.Output("y", y)
			require.NoError(t, g.Err())
			var results [][]float64
			for _, off := range [][]string{{"all"}, {"layout"}} { // the layout of images has tests of its own
				opts := options()
				opts.DisablePasses = off
				exe, err := g.Compile(ctx, opts)
				require.NoError(t, err)
				rng := rand.New(rand.NewPCG(7, 8))
				for _, in := range g.Inputs() {
					require.NoError(t, exe.Bind(in, random(rng, in.Spec().Shape()...)))
				}
				require.NoError(t, exe.Run(ctx))
				out := exe.Output(y)
				results = append(results, out.Floats())
				if off[0] != "all" {
					var names []string
					for _, n := range exe.g.nodes {
						names = append(names, n.op.Name())
					}
					require.Equal(t, c.want, names)
				}
			}
			require.InDeltaSlice(t, results[0], results[1], 1e-5)
		})
	}
}

// A fused node names what it replaces: every node as built is there by its name, or in the list of exactly one other, wherever nodes are listed.
func TestFusedNodesAreNamed(t *testing.T) {
	ctx := context.Background()
	for _, c := range fusions() {
		t.Run(c.name, func(t *testing.T) {
			g := New(c.name)
			g.Output("y", c.build(g, rand.New(rand.NewPCG(5, 6))))
			require.NoError(t, g.Err())
			var built []string
			for _, n := range g.nodes {
				built = append(built, n.name)
			}
			for _, off := range [][]string{nil, {"layout"}, {"all"}} {
				computed := map[string][]string{} // seen by the callback
				opts := options()
				opts.DisablePasses, opts.Profile = off, true
				opts.OnNode = func(e NodeEvent) error {
					computed[e.Name] = e.Fused
					return nil
				}
				exe, err := g.Compile(ctx, opts)
				require.NoError(t, err)
				rng := rand.New(rand.NewPCG(7, 8))
				for _, in := range g.Inputs() {
					require.NoError(t, exe.Bind(in, random(rng, in.Spec().Shape()...)))
				}
				require.NoError(t, exe.Run(ctx))
				var listed []string
				names := map[string]bool{}
				for _, p := range exe.Placements() {
					require.False(t, names[p.Name], "two nodes are %s", p.Name)
					names[p.Name] = true
					if slices.Contains(built, p.Name) { // not one that a pass added
						listed = append(append(listed, p.Fused...), p.Name)
					}
					if fused, ok := computed[p.Name]; ok {
						require.Equal(t, p.Fused, fused, p.Name)
					}
				}
				require.ElementsMatch(t, built, listed, "without %v", off)
				for _, n := range exe.Profile() {
					require.Equal(t, computed[n.Name], n.Fused, n.Name)
				}
			}
		})
	}
}

// A read of memory that is updated afterwards must not move behind the update.
func TestFusionDoesNotCrossAnUpdate(t *testing.T) {
	ctx := context.Background()
	g := New("hazard")
	cache := input(g, "cache", 2, 4)
	y := g.Apply("fc", matmul.Op{}, cache, g.Constant("w", random(rand.New(rand.NewPCG(1, 1)), 4, 4)))
	after := g.Apply("set", setRowOp{0}, cache, input(g, "row", 1, 4))
	y = g.Apply("a", elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}, y)
	g.Output("y", y)
	g.Output("cache", after)
	exe, err := g.Compile(ctx, options())
	require.NoError(t, err)
	require.Len(t, exe.g.nodes, 3)
}

func TestStaleViewIsRefused(t *testing.T) {
	g := New("stale")
	cache := input(g, "cache", 2, 4)
	view := g.Apply("flat", flattenOp{}, cache)
	g.Apply("set", setRowOp{0}, cache, input(g, "row", 1, 4))
	g.Apply("late", addOp{}, view, view)
	require.ErrorContains(t, g.Err(), "updated in place")
}

// A residual whose only row is a symbolic one is no row of biases: a run may have none.
func TestSymbolicRowIsNoBias(t *testing.T) {
	g := New("g")
	rows := g.Symbol("rows", 1)
	x, res := g.Input("x", tensor.F32, rows, ops.Const(4)), g.Input("res", tensor.F32, rows, ops.Const(5))
	rng := rand.New(rand.NewPCG(1, 2))
	y := g.Apply("fc", matmul.Op{}, x, g.Constant("w", random(rng, 4, 5)))
	y = g.Apply("b", elementwise.Binary{F: elementwise.Add}, y, g.Constant("row", random(rng, 1, 5)))
	y = g.Apply("sum", elementwise.Binary{F: elementwise.Add}, y, res)
	g.Output("y", y)
	exe, err := g.Compile(t.Context(), options())
	require.NoError(t, err)
	defer exe.Close()
	for n := range 2 {
		require.NoError(t, exe.Bind(x, tensor.New(tensor.F32, n, 4)))
		require.NoError(t, exe.Bind(res, tensor.New(tensor.F32, n, 5)))
		require.NoError(t, exe.Run(t.Context()))
		require.Equal(t, []int{n, 5}, exe.Output(y).Shape())
	}
}
