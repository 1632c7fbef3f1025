package graph

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/tensor"
)

// Two symbols of one maximum, or a symbol and a constant, are two sizes: where a run makes one of them 1, what goes element by element at the
// largest sizes broadcasts. Whatever the passes do, the results are those of the graph as built; where the sizes are one, they fuse.
func TestSizesOfOneMaximum(t *testing.T) {
	bin := func(g *Graph, f elementwise.Func2, a, b Value) Value {
		return g.Apply(f.String(), elementwise.Binary{F: f}, a, b)
	}
	act := func(g *Graph, kind ops.Activation, x Value) Value {
		return g.Apply("act", elementwise.Activate{Act: ops.Act{Kind: kind}}, x)
	}
	weight := func(g *Graph, dims ...int) Value {
		return g.Constant("w", random(rand.New(rand.NewPCG(1, 2)), dims...))
	}
	product := func(g *Graph, x Value) Value { return g.Apply("fc", matmul.Op{}, x, weight(g, 4, 4)) }
	sum := func(g *Graph, x Value) Value {
		return g.Apply("sum", reduce.Reduce{Kind: reduce.Sum, Axes: ops.MakeInts(0)}, x)
	}
	convolution := func(g *Graph, x Value) Value {
		return g.Apply("conv", conv.Conv{}, x, weight(g, 4, 4, 1))
	}
	for _, c := range []struct {
		name   string
		before []int // dimensions in front of the symbolic one
		after  []int // and behind it
		build  func(g *Graph, x, y Value) Value
		want   int // nodes that are left where both sizes are one
	}{
		{"residual", nil, []int{4}, func(g *Graph, x, y Value) Value { return bin(g, elementwise.Add, product(g, x), y) }, 1},
		{"residual on the left", nil, []int{4}, func(g *Graph, x, y Value) Value { return bin(g, elementwise.Add, y, product(g, x)) }, 1},
		{"residual behind an activation", nil, []int{4}, func(g *Graph, x, y Value) Value {
			return bin(g, elementwise.Add, act(g, ops.SiLU, product(g, x)), y)
		}, 1},
		{"activation behind a sum", nil, []int{4}, func(g *Graph, x, y Value) Value {
			return act(g, ops.SiLU, bin(g, elementwise.Add, product(g, x), y))
		}, 1},
		{"residual of a convolution", nil, []int{4, 3}, func(g *Graph, x, y Value) Value { return bin(g, elementwise.Add, convolution(g, x), y) }, 7}, // with three changes of layout
		{"gated unit", nil, []int{4}, func(g *Graph, x, y Value) Value { return bin(g, elementwise.Mul, act(g, ops.SiLU, x), y) }, 1},
		{"weight of a norm", []int{3}, nil, func(g *Graph, x, y Value) Value {
			return bin(g, elementwise.Mul, g.Apply("norm", norm.RMS{Eps: 1e-5}, x), sum(g, y))
		}, 2},
		{"bias", []int{3}, nil, func(g *Graph, x, y Value) Value {
			return bin(g, elementwise.Add, g.Apply("fc", matmul.Op{}, weight(g, 5, 3), x), sum(g, y))
		}, 2},
		{"factor of a column", []int{3}, nil, func(g *Graph, x, y Value) Value {
			return bin(g, elementwise.Mul, g.Apply("fc", matmul.Op{}, weight(g, 5, 3), x), sum(g, y))
		}, 2},
		{"mask", nil, []int{4}, func(g *Graph, x, y Value) Value {
			return g.Apply("softmax", attention.Softmax{Axis: -1}, bin(g, elementwise.Add, x, y))
		}, 1},
		{"attention", nil, []int{2, 4}, func(g *Graph, x, y Value) Value {
			p := g.Apply("softmax", attention.Softmax{Axis: -1}, g.Apply("qk", matmul.Op{TransB: true}, x, x))
			return g.Apply("pv", matmul.Op{}, p, y)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			type program struct {
				exe     *Executable
				x, y, z Value
			}
			shape := func(size int) []int {
				return append(append(append([]int{}, c.before...), size), c.after...)
			}
			compile := func(a, b string, o Options) program {
				g := New("g")
				in := func(name, symbol string) Value {
					var dims []ops.Size
					for i, n := range shape(4) {
						if d := ops.Const(n); i != len(c.before) || symbol == "" {
							dims = append(dims, d)
						} else {
							dims = append(dims, g.Symbol(symbol, 4))
						}
					}
					return g.Input(name, tensor.F32, dims...)
				}
				x, y := in("x", a), in("y", b)
				z := c.build(g, x, y)
				g.Output("z", z)
				exe, err := g.Compile(t.Context(), o)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, exe.Close()) })
				return program{exe, x, y, z}
			}
			run := func(p program, a, b int) (tensor.Tensor, error) {
				rng := rand.New(rand.NewPCG(3, 4))
				require.NoError(t, p.exe.Bind(p.x, random(rng, shape(a)...)))
				require.NoError(t, p.exe.Bind(p.y, random(rng, shape(b)...)))
				if err := p.exe.Run(t.Context()); err != nil {
					return tensor.Tensor{}, err
				}
				return p.exe.Output(p.z).Clone(), nil
			}
			asBuilt := options()
			asBuilt.DisablePasses = []string{"all"}
			require.Len(t, compile("n", "n", options()).exe.g.nodes, c.want)
			for _, symbols := range [][2]string{{"n", "m"}, {"n", ""}, {"", "n"}} {
				fused, plain := compile(symbols[0], symbols[1], options()), compile(symbols[0], symbols[1], asBuilt)
				ran := 0
				for a := range 5 {
					for b := range 5 {
						if symbols[0] == "" && a != 4 || symbols[1] == "" && b != 4 {
							continue
						}
						want, err := run(plain, a, b)
						got, failed := run(fused, a, b)
						if err != nil {
							require.Error(t, failed, "%v = %d, %d", symbols, a, b)
							continue
						}
						ran++
						require.NoError(t, failed, "%v = %d, %d", symbols, a, b)
						require.Equal(t, want.Shape(), got.Shape())
						require.InDeltaSlice(t, want.Floats(), got.Floats(), 1e-5)
					}
				}
				require.Greater(t, ran, 1)
			}
		})
	}
}
