package matmul_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// A run that is given no weights at all says so.
func TestNoWeights(t *testing.T) {
	spec := matmul.Spec{N: 2, K: 3, A: tensor.F32, B: tensor.F32, C: tensor.F32}
	args := &matmul.Args{A: tensor.New(tensor.F32, 1, 3), C: tensor.New(tensor.F32, 1, 2)}
	require.NoError(t, args.Check(spec, 1, true))
	require.ErrorContains(t, args.Check(spec, 1, false), "no weights: neither packed ones nor B")
	args.B = tensor.New(tensor.F32, 3, 2)
	require.NoError(t, args.Check(spec, 1, false))
}
