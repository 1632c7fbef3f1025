package graph

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// rowsCase is a graph that chooses rows at its end.
type rowsCase struct {
	name  string
	build func(g *Graph, rng *rand.Rand, x Value) Value // the matrix of which rows are chosen
	first string                                        // the operation that gets chosen rows first; empty: nothing moves
	moved int                                           // nodes that the choice passes
}

func rowsCases() []rowsCase {
	relu := elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}
	add, mul := elementwise.Binary{F: elementwise.Add}, elementwise.Binary{F: elementwise.Mul}
	product := func(g *Graph, rng *rand.Rand, name string, x Value) Value {
		return g.Apply(name, matmul.Op{}, x, g.Constant(name+".w", random(rng, 5, 5)))
	}
	return []rowsCase{
		{"chain", func(g *Graph, rng *rand.Rand, x Value) Value {
			y := g.Apply("relu", relu, product(g, rng, "up", x))
			y = g.Apply("scaled", mul, y, g.Constant("row", random(rng, 5)))
			y = g.Apply("norm", norm.RMS{Eps: 1}, y)
			return g.Apply("bias", add, product(g, rng, "down", y), g.Constant("b", random(rng, 1, 5)))
		}, "up", 6},
		{"residual", func(g *Graph, rng *rand.Rand, x Value) Value {
			y := product(g, rng, "up", x)
			return g.Apply("sum", add, product(g, rng, "down", g.Apply("relu", relu, y)), y) // y has two readers, both behind the choice
		}, "up", 4},
		{"two sources", func(g *Graph, rng *rand.Rand, x Value) Value {
			return g.Apply("gated", elementwise.GLU{Act: ops.Act{Kind: ops.ReLU}}, product(g, rng, "gate", x), g.Constant("c", random(rng, 7, 5)))
		}, "gate", 2},
		{"another reader", func(g *Graph, rng *rand.Rand, x Value) Value {
			y := product(g, rng, "up", x)
			g.Output("all", y)
			return g.Apply("relu", relu, y)
		}, "relu", 1},
		{"read by an output", func(g *Graph, rng *rand.Rand, x Value) Value {
			y := g.Apply("relu", relu, x)
			g.Output("all", y)
			return y
		}, "", 0},
		{"rows are mixed", func(g *Graph, rng *rand.Rand, x Value) Value {
			t := g.Apply("turned", shape.Permute{Order: ops.MakeInts(1, 0)}, x)
			y := g.Apply("mixed", matmul.Op{}, g.Constant("m", random(rng, 7, 5)), t) // not a constant matrix on the right
			return product(g, rng, "down", g.Apply("wide", shape.Slice{Axis: 1, From: ops.Const(0), To: ops.Const(5), Step: 1}, y))
		}, "down", 1},
		{"updated in place", func(g *Graph, rng *rand.Rand, x Value) Value {
			y := g.Apply("relu", relu, x)
			g.Output("cache", g.Apply("set", setRowOp{2}, x, g.Constant("new", random(rng, 1, 5))))
			return y
		}, "", 0},
	}
}

// TestLateChoiceStays: rows that depend on what would need them.
func TestLateChoiceStays(t *testing.T) {
	g := New("g")
	x := input(g, "x", 7, 5)
	y := g.Apply("relu", elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}, x)
	ids := g.Apply("whole", elementwise.Cast{To: tensor.I32}, g.Input("ids", tensor.I64, ops.Const(2)))
	g.Output("y", g.Apply("chosen", shape.GetRows{}, y, ids))
	exe, err := g.Compile(context.Background(), options())
	require.NoError(t, err)
	defer exe.Close()
	for _, p := range exe.Passes() {
		if p.Name == "rows" {
			require.Zero(t, p.Changes)
		}
	}
}

func TestRowsAreChosenEarly(t *testing.T) {
	for _, c := range rowsCases() {
		t.Run(c.name, func(t *testing.T) {
			var want []float64
			for _, off := range [][]string{{"all"}, {"norm", "glu", "epilogue"}, nil} {
				rng := rand.New(rand.NewPCG(1, 2))
				g := New("g")
				x := input(g, "x", 7, 5)
				ids := g.Input("ids", tensor.I32, g.Symbol("n", 3))
				y := g.Apply("chosen", shape.GetRows{}, c.build(g, rng, x), ids)
				g.Output("y", y)
				o := options()
				o.DisablePasses = off
				exe, err := g.Compile(context.Background(), o)
				require.NoError(t, err)
				require.NoError(t, exe.Bind(x, random(rand.New(rand.NewPCG(3, 4)), 7, 5)))
				require.NoError(t, exe.Bind(ids, tensor.Of([]int32{6, 2}, 2)))
				require.NoError(t, exe.Run(context.Background()))
				out := exe.Output(y)
				require.Equal(t, []int{2, 5}, out.Shape())
				got := out.Floats()
				if want == nil {
					want = got
				}
				require.Equal(t, want, got)
				for _, p := range exe.Passes() {
					if p.Name == "rows" {
						require.Equal(t, c.moved, p.Changes)
					}
				}
				if len(off) == 3 && c.first != "" {
					for _, n := range exe.g.nodes {
						if n.name == c.first {
							require.Equal(t, 3, exe.g.values[n.in[0]].spec.Dims[0], "rows that %s computes at most", c.first)
						}
					}
				}
				require.NoError(t, exe.Close())
			}
		})
	}
}
