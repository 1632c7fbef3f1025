package cpu_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Products of one value whose results meet in one of their epilogues, as those of a gate do, give in whole runs of a graph the bits that they give node by node.
func TestResultsMeetInGraphsOfOneRow(t *testing.T) {
	const dim = 512
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(51, 52))
	random := func(d tensor.DType, dims ...int) tensor.Tensor {
		x := tensor.New(tensor.F32, dims...)
		for i, v := 0, tensor.Data[float32](x); i < len(v); i++ {
			v[i] = float32(rng.NormFloat64())
		}
		if d == tensor.F32 {
			return x
		}
		y, err := quant.Encode(d, x)
		require.NoError(t, err)
		return y
	}
	b, err := backends.Open("cpu", "threads=4")
	require.NoError(t, err)
	defer b.Close()
	for _, f := range []elementwise.Func2{elementwise.Add, elementwise.Mul, elementwise.Sub} {
		for _, activations := range []int{0, 1, 2} { // which of the two has one; 2: none
			g := graph.New("meet")
			x := g.Input("x", tensor.F32, ops.Const(1), ops.Const(dim))
			var y [2]graph.Value
			for i := range y {
				w := g.Constant(fmt.Sprint("w", i), random(tensor.Q8_0, dim, dim))
				y[i] = g.Apply(fmt.Sprint("product", i), matmul.Op{TransB: true, Out: tensor.F32}, x, w)
				if i == activations {
					y[i] = g.Apply(fmt.Sprint("act", i), elementwise.Activate{Act: ops.Act{Kind: ops.SiLU}}, y[i])
				}
			}
			out := g.Apply("meet", elementwise.Binary{F: f}, y[0], y[1])
			g.Output("out", out)
			whole, err := g.Compile(ctx, graph.Options{Backends: []backends.Backend{b}})
			require.NoError(t, err)
			steps, err := g.Compile(ctx, graph.Options{Backends: []backends.Backend{b}, Progress: func(int, int) {}})
			require.NoError(t, err)
			for range 10 { // what an earlier run has left is of another x
				in := random(tensor.F32, 1, dim)
				for _, e := range []*graph.Executable{whole, steps} {
					require.NoError(t, e.Bind(x, in))
					require.NoError(t, e.Run(ctx))
				}
				require.Equal(t, tensor.Data[float32](steps.Output(out)), tensor.Data[float32](whole.Output(out)), "%v, activation %d", f, activations)
			}
			require.NoError(t, whole.Close())
			require.NoError(t, steps.Close())
		}
	}
}
