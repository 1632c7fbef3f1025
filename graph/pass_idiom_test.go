package graph

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// TestIdioms builds what exporters write out in pieces, and checks what becomes of it and that the result stays.
func TestIdioms(t *testing.T) {
	type builder func(g *Graph, x Value, r *rand.Rand) Value // x is f32[2 3 4 8]
	bin := func(g *Graph, f elementwise.Func2, a, b Value) Value {
		return g.Apply(f.String(), elementwise.Binary{F: f}, a, b)
	}
	num := func(g *Graph, v float64) Value { return g.Constant("n", tensor.Of([]float32{float32(v)})) }
	act := func(g *Graph, a ops.Act, x Value) Value {
		return g.Apply(a.Kind.String(), elementwise.Activate{Act: a}, x)
	}
	un := func(g *Graph, f elementwise.Func, x Value) Value {
		return g.Apply(f.String(), elementwise.Unary{F: f}, x)
	}
	relu6 := ops.Act{Kind: ops.Clip, P: 0, Q: 6}
	hardSwish := func(g *Graph, x Value, r *rand.Rand) Value {
		return bin(g, elementwise.Div, bin(g, elementwise.Mul, x, act(g, relu6, bin(g, elementwise.Add, x, num(g, 3)))), num(g, 6))
	}
	rowMean := func(g *Graph, x Value) Value {
		return g.Apply("mean", reduce.Reduce{Kind: reduce.Mean, Axes: ops.MakeInts(-1), Keep: true}, x)
	}
	layerNorm := func(g *Graph, x Value) Value {
		d := bin(g, elementwise.Sub, x, rowMean(g, x))
		v := rowMean(g, bin(g, elementwise.Pow, d, num(g, 2)))
		return bin(g, elementwise.Div, d, un(g, elementwise.Sqrt, bin(g, elementwise.Add, v, num(g, 1e-5))))
	}
	filter := func(g *Graph, r *rand.Rand) Value { return g.Constant("w", random(r, 5, 3, 3, 3)) }
	for _, c := range []struct {
		name  string
		build builder
		want  []string
	}{
		{"hard swish", hardSwish, []string{"hard_swish"}},
		{"hard swish with the division first", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Mul, x, bin(g, elementwise.Div, act(g, relu6, bin(g, elementwise.Add, num(g, 3), x)), num(g, 6)))
		}, []string{"hard_swish"}},
		{"hard swish by hard sigmoid", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Mul, act(g, ops.Act{Kind: ops.HardSigmoid, P: 1.0 / 6, Q: 0.5}, x), x)
		}, []string{"hard_swish"}},
		{"hard swish with a factor and a term", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Add, bin(g, elementwise.Mul, hardSwish(g, x, r), num(g, 1.5)), num(g, -0.5))
		}, []string{"hard_swish_affine"}},
		{"another clip is none", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Mul, x, act(g, ops.Act{Kind: ops.Clip, P: 0, Q: 5}, bin(g, elementwise.Add, x, num(g, 3))))
		}, []string{"add", "glu_clip"}},
		{"silu", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Mul, x, act(g, ops.Act{Kind: ops.Sigmoid}, x))
		}, []string{"silu"}},
		{"quick gelu", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Mul, x, act(g, ops.Act{Kind: ops.Sigmoid}, bin(g, elementwise.Mul, x, num(g, 1.702))))
		}, []string{"quick_gelu"}},
		{"mish", func(g *Graph, x Value, r *rand.Rand) Value {
			return bin(g, elementwise.Mul, x, act(g, ops.Act{Kind: ops.Tanh}, act(g, ops.Act{Kind: ops.Softplus}, x)))
		}, []string{"mish"}},
		{"gelu", func(g *Graph, x Value, r *rand.Rand) Value {
			e := bin(g, elementwise.Add, un(g, elementwise.Erf, bin(g, elementwise.Div, x, num(g, math.Sqrt2))), num(g, 1))
			return bin(g, elementwise.Mul, bin(g, elementwise.Mul, x, e), num(g, 0.5))
		}, []string{"gelu"}},
		{"gelu, half of x first", func(g *Graph, x Value, r *rand.Rand) Value {
			e := bin(g, elementwise.Add, num(g, 1), un(g, elementwise.Erf, bin(g, elementwise.Mul, x, num(g, 1/math.Sqrt2))))
			return bin(g, elementwise.Mul, bin(g, elementwise.Mul, x, num(g, 0.5)), e)
		}, []string{"gelu"}},
		{"gelu by tanh", func(g *Graph, x Value, r *rand.Rand) Value {
			cube := bin(g, elementwise.Mul, bin(g, elementwise.Mul, bin(g, elementwise.Mul, x, x), x), num(g, 0.044715))
			in := bin(g, elementwise.Mul, bin(g, elementwise.Add, x, cube), num(g, math.Sqrt(2/math.Pi)))
			return bin(g, elementwise.Mul, x, bin(g, elementwise.Mul, bin(g, elementwise.Add, act(g, ops.Act{Kind: ops.Tanh}, in), num(g, 1)), num(g, 0.5)))
		}, []string{"gelu_tanh"}},
		{"gelu of another value is none", func(g *Graph, x Value, r *rand.Rand) Value {
			y := un(g, elementwise.Neg, x)
			e := bin(g, elementwise.Add, un(g, elementwise.Erf, bin(g, elementwise.Div, y, num(g, math.Sqrt2))), num(g, 1))
			return bin(g, elementwise.Mul, bin(g, elementwise.Mul, x, e), num(g, 0.5))
		}, []string{"neg", "div", "erf", "add", "mul", "mul"}},
		{"a gate that is read elsewhere stays", func(g *Graph, x Value, r *rand.Rand) Value {
			s := act(g, ops.Act{Kind: ops.Sigmoid}, x)
			g.Output("s", s)
			return bin(g, elementwise.Mul, x, s)
		}, []string{"sigmoid", "mul"}},
		{"layer norm", func(g *Graph, x Value, r *rand.Rand) Value { return layerNorm(g, x) }, []string{"layer_norm"}},
		{"layer norm with weight and bias", func(g *Graph, x Value, r *rand.Rand) Value {
			y := bin(g, elementwise.Mul, layerNorm(g, x), g.Constant("w", random(r, 8)))
			return bin(g, elementwise.Add, g.Constant("b", random(r, 8)), y)
		}, []string{"layer_norm"}},
		{"attention over channels", func(g *Graph, x Value, r *rand.Rand) Value {
			s := g.Apply("gap", conv.Pool{Kind: conv.Avg, Kernel: [3]int{4, 8}}, x)
			return bin(g, elementwise.Add, x, bin(g, elementwise.Mul, x, s))
		}, []string{"avg_pool", "scale", "mul"}},
		{"padding in front of a convolution", func(g *Graph, x Value, r *rand.Rand) Value {
			x = g.Apply("p", shape.Pad{Before: ops.MakeInts(0, 0, 1, 0), After: ops.MakeInts(0, 0, 1, 2)}, x)
			return g.Apply("c", conv.Conv{Window: conv.Window{Stride: [3]int{2, 2}, Before: [3]int{0, 1}}}, x, filter(g, r))
		}, []string{"conv"}},
		{"padding with another number stays", func(g *Graph, x Value, r *rand.Rand) Value {
			x = g.Apply("p", shape.Pad{Before: ops.MakeInts(0, 0, 1, 0), After: ops.MakeInts(0, 0, 1, 2), Value: 1}, x)
			return g.Apply("c", conv.Conv{}, x, filter(g, r))
		}, []string{"pad", "conv"}},
		{"factors and terms behind a convolution", func(g *Graph, x Value, r *rand.Rand) Value {
			y := g.Apply("c", conv.Conv{Epilogue: matmul.Epilogue{Bias: true}}, x, filter(g, r), g.Constant("b", random(r, 5)))
			y = bin(g, elementwise.Mul, y, num(g, 2))
			y = bin(g, elementwise.Sub, y, g.Constant("c", random(r, 5, 1, 1)))
			return bin(g, elementwise.Mul, g.Constant("d", random(r, 1, 5, 1, 1)), y)
		}, []string{"conv"}},
		{"batch norm and activation behind a transposed convolution", func(g *Graph, x Value, r *rand.Rand) Value {
			y := g.Apply("c", conv.Transposed{Groups: 3, Window: conv.Window{Stride: [3]int{2, 2}}}, x, g.Constant("w", random(r, 3, 2, 2, 2)))
			y = bin(g, elementwise.Add, y, g.Constant("b", random(r, 1, 6, 1, 1)))
			one := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 6)
			y = g.Apply("bn", norm.Batch{Eps: 1e-5}, y, g.Constant("s", random(r, 6)), g.Constant("t", random(r, 6)), g.Constant("m", random(r, 6)), g.Constant("v", one))
			return act(g, ops.Act{Kind: ops.ReLU}, y)
		}, []string{"conv_transposed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 4))
			g := New(c.name)
			x := g.Input("x", tensor.F32, ops.Const(2), ops.Const(3), ops.Const(4), ops.Const(8))
			y := c.build(g, x, rng)
			g.Output("y", y)
			compareWithoutPasses(t, g, y, []string{"layout"}, c.want, random(rng, 2, 3, 4, 8))
		})
	}
}

// compareWithoutPasses runs a graph of one input with and without passes.
func compareWithoutPasses(t *testing.T, g *Graph, y Value, off, want []string, x tensor.Tensor) {
	t.Helper()
	require.NoError(t, g.Err())
	var results [][]float64
	for _, disabled := range [][]string{{"all"}, off} {
		opts := options()
		opts.DisablePasses = disabled
		exe, err := g.Compile(context.Background(), opts)
		require.NoError(t, err)
		require.NoError(t, exe.Bind(g.Inputs()[0], x))
		require.NoError(t, exe.Run(context.Background()))
		out := exe.Output(y)
		results = append(results, out.Floats())
		if len(disabled) == 0 || disabled[0] != "all" {
			var names []string
			for _, n := range exe.g.nodes {
				names = append(names, n.op.Name())
			}
			require.Equal(t, want, names)
		}
	}
	require.InDeltaSlice(t, results[0], results[1], 1e-4)
}

// One-hot rows times a matrix select rows; an index outside gives zeros. What follows is computed in the table.
func TestOneHot(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	g := New("onehot")
	x := g.Input("x", tensor.I32, ops.Const(2), ops.Const(9), ops.Const(1))
	hot := g.Apply("eq", elementwise.Binary{F: elementwise.Equal}, x, g.Constant("count", tensor.Of([]int32{0, 1, 2, 3}, 1, 1, 4)))
	y := g.Apply("mm", matmul.Op{}, g.Apply("cast", elementwise.Cast{To: tensor.F32}, hot), g.Constant("w", random(rng, 4, 3)))
	y = g.Apply("b", elementwise.Binary{F: elementwise.Add}, y, g.Constant("bias", random(rng, 3)))
	y = g.Apply("a", elementwise.Activate{Act: ops.Act{Kind: ops.GELU}}, y)
	g.Output("y", y)
	idx := tensor.Of([]int32{0, 1, 2, 3, 4, -1, 100, -100, 2, 3, 3, 3, 0, 0, 1, 1, 4, 5}, 2, 9, 1)
	compareWithoutPasses(t, g, y, nil, []string{"clamp", "reshape", "gather"}, idx)
}
