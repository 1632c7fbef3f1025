package optest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/tensor"
)

func TestRun(t *testing.T) {
	out := optest.Run(t, elementwise.Binary{F: elementwise.Add}, optest.F32([]int{2}, 1, 2), optest.F32([]int{1}, 10))
	require.Equal(t, []float64{11, 12}, out[0].Floats())
	optest.Error(t, elementwise.Where{}, []string{"where", "3 are right"}, tensor.MakeSpec(tensor.F32))
	optest.Comparable(t, elementwise.Where{})
}
