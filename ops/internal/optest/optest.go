// Package optest runs the references of operations on small tensors for the tests of the op packages.
package optest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Run infers the outputs of an op for its inputs (an absent one is the zero Tensor) and computes them.
func Run(t testing.TB, op ops.Op, in ...tensor.Tensor) []tensor.Tensor {
	t.Helper()
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	results := make([]tensor.Tensor, len(out))
	for i, s := range out {
		results[i] = tensor.New(s.DType, s.Shape()...)
	}
	require.NoError(t, op.Reference(results, in))
	return results
}

// F32 makes a tensor of the given numbers.
func F32(dims []int, v ...float32) tensor.Tensor { return tensor.Of(v, dims...) }

// F64 makes a tensor of the given numbers.
func F64(dims []int, v ...float64) tensor.Tensor { return tensor.Of(v, dims...) }

// Error demands that the shape rule refuses the specs with a text that contains all of the words.
func Error(t testing.TB, op ops.Op, words []string, in ...tensor.Spec) {
	t.Helper()
	_, err := op.Infer(in)
	require.Error(t, err)
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
}

// Comparable demands that the op can be a key.
func Comparable(t testing.TB, op ops.Op) {
	t.Helper()
	require.NotPanics(t, func() { _ = map[ops.Op]int{op: 1}[op] })
}
