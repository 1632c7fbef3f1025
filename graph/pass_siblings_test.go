package graph

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// family builds products of x whose results are cut into heads of 2, and reads them all.
type family struct {
	name    string
	build   func(g *Graph, rng *rand.Rand, x Value) []Value
	changes int
	columns int // of the joint product
}

func families() []family {
	heads := func(g *Graph, name string, x Value, n int) Value {
		return g.Apply(name+"_heads", shape.Reshape{Dims: ops.ConstSizes(-1, n/2, 2)}, x)
	}
	one := func(g *Graph, rng *rand.Rand, name string, x Value, n int, op matmul.Op) Value {
		dims := []int{4, n}
		if op.TransB {
			dims = []int{n, 4}
		}
		in := []Value{x, g.Constant(name+".w", random(rng, dims...))}
		if op.Epilogue.Bias {
			in = append(in, g.Constant(name+".b", random(rng, n)))
		}
		return heads(g, name, g.Apply(name, op, in...), n)
	}
	all := func(op matmul.Op) func(g *Graph, rng *rand.Rand, x Value) []Value {
		return func(g *Graph, rng *rand.Rand, x Value) []Value {
			return []Value{one(g, rng, "q", x, 6, op), one(g, rng, "k", x, 2, op), one(g, rng, "v", x, 4, op)}
		}
	}
	return []family{
		{"columns", all(matmul.Op{}), 2, 12},
		{"rows of weights", all(matmul.Op{TransB: true}), 2, 12},
		{"biases", all(matmul.Op{TransB: true, Epilogue: matmul.Epilogue{Bias: true}}), 2, 12},
		{"one is unlike", func(g *Graph, rng *rand.Rand, x Value) []Value {
			return []Value{one(g, rng, "q", x, 6, matmul.Op{}), one(g, rng, "k", x, 2, matmul.Op{TransB: true}), one(g, rng, "v", x, 4, matmul.Op{})}
		}, 1, 10},
		{"other inputs", func(g *Graph, rng *rand.Rand, x Value) []Value {
			y := g.Apply("relu", elementwise.Activate{Act: ops.Act{Kind: ops.ReLU}}, x)
			return []Value{one(g, rng, "q", x, 6, matmul.Op{}), one(g, rng, "k", y, 2, matmul.Op{})}
		}, 0, 0},
		{"an output", func(g *Graph, rng *rand.Rand, x Value) []Value {
			k := g.Apply("k", matmul.Op{}, x, g.Constant("k.w", random(rng, 4, 2)))
			g.Output("k", k)
			return []Value{one(g, rng, "q", x, 6, matmul.Op{}), heads(g, "k", k, 2)}
		}, 0, 0},
		{"more than fit one", func(g *Graph, rng *rand.Rand, x Value) []Value {
			var v []Value
			for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
				v = append(v, one(g, rng, name, x, 2, matmul.Op{}))
			}
			return v
		}, 4, 8},
	}
}

func TestSiblingsAreJoined(t *testing.T) {
	for _, c := range families() {
		t.Run(c.name, func(t *testing.T) {
			var want [][]float64
			for _, off := range [][]string{{"all"}, nil} {
				rng := rand.New(rand.NewPCG(1, 2))
				g := New("g")
				x := g.Input("x", tensor.F32, g.Symbol("n", 5), ops.Const(4))
				values := c.build(g, rng, x)
				for i, v := range values {
					values[i] = g.Apply("twice", addOp{}, v, v)
					g.Output(string(rune('0'+i)), values[i])
				}
				o := options()
				o.DisablePasses = off
				exe, err := g.Compile(context.Background(), o)
				require.NoError(t, err)
				require.NoError(t, exe.Bind(x, random(rand.New(rand.NewPCG(3, 4)), 3, 4)))
				require.NoError(t, exe.Run(context.Background()))
				var got [][]float64
				for _, v := range values {
					out := exe.Output(v)
					got = append(got, out.Floats())
				}
				if want == nil {
					want = got
					require.NoError(t, exe.Close())
					continue
				}
				require.Equal(t, want, got)
				for _, p := range exe.Passes() {
					if p.Name == "siblings" {
						require.Equal(t, c.changes, p.Changes)
					}
				}
				most := 0
				for _, n := range exe.g.nodes {
					if n.op.Name() == "matmul" {
						most = max(most, exe.g.values[n.out[0]].spec.Dims[1])
					}
				}
				if c.changes > 0 {
					require.Equal(t, c.columns, most)
				}
				// Compiled again, the joint weights are the same constants.
				joint := func(exe *Executable) (all []*ops.Constant) {
					for _, n := range exe.g.nodes {
						if n.op.Name() == "matmul" {
							all = append(all, exe.g.values[n.in[1]].constant)
						}
					}
					return all
				}
				again, err := g.Compile(context.Background(), o)
				require.NoError(t, err)
				first, second := joint(exe), joint(again)
				require.Len(t, second, len(first))
				for i := range first {
					require.Same(t, first[i], second[i])
				}
				require.NoError(t, again.Close())
				require.NoError(t, exe.Close())
				require.NoError(t, g.Close())
			}
		})
	}
}

// TestLargeWeightsStayApart: a copy of large weights would cost more than joining saves.
func TestLargeWeightsStayApart(t *testing.T) {
	g := New("g")
	x := input(g, "x", 1, 512)
	for _, name := range []string{"a", "b", "c"} {
		y := g.Apply(name, matmul.Op{}, x, g.Constant(name+".w", tensor.New(tensor.F32, 512, 300)))
		g.Output(name, g.Apply(name+"_heads", addOp{}, g.Apply("h", shape.Reshape{Dims: ops.ConstSizes(30, 10)}, y), g.Constant(name+"c", tensor.New(tensor.F32, 30, 10))))
	}
	exe, err := g.Compile(context.Background(), options())
	require.NoError(t, err)
	defer exe.Close()
	for _, p := range exe.Passes() {
		if p.Name == "siblings" {
			require.Zero(t, p.Changes) // 600 KB each, two are above a MiB
		}
	}
}
