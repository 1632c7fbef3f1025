package reference_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/reference"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func TestRunsAGraphAndCounts(t *testing.T) {
	b, err := backends.Open("reference")
	require.NoError(t, err)
	defer b.Close()
	g := graph.New("g")
	x := g.Input("x", tensor.F32, ops.Const(1), ops.Const(2))
	w := tensor.Of([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	y := g.Apply("fc", matmul.Op{}, x, g.Constant("w", w))
	g.Output("y", y)
	exe, err := g.Compile(context.Background(), graph.Options{Backends: []backends.Backend{b}})
	require.NoError(t, err)
	require.NoError(t, exe.Bind(x, tensor.Of([]float32{10, 1}, 1, 2)))
	require.NoError(t, exe.Run(context.Background()))
	got := exe.Output(y)
	require.Equal(t, []float64{14, 25, 36}, got.Floats())
	require.Equal(t, backends.Stats{Nodes: 1, Products: 1}, b.Stats())
	require.Equal(t, "reference", exe.Report().Backends[0].Name)
	require.EqualValues(t, 1, exe.Report().Backends[0].Products)
}
