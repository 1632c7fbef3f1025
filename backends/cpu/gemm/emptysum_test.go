package gemm_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
)

// Without products, C is beta C whatever alpha is, and zero where beta is zero, whatever C was.
func TestScaleOfEmptySums(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, alpha := range []float32{0, 1, -2, inf, -inf, nan} {
		for beta, want := range map[float32][]float32{0: {0, 0}, 0.5: {2, nan}, 1: {4, nan}} {
			c := []float32{4, nan}
			require.NoError(t, gemm.MulAdd(alpha, gemm.Of([]float32{}, 1, 0), gemm.Of([]float32{}, 0, 2), beta, gemm.Of(c, 1, 2), nil))
			for i, w := range want {
				if w != w {
					require.True(t, c[i] != c[i], "alpha %v, beta %v: element %d is %v", alpha, beta, i, c[i])
				} else {
					require.Equal(t, w, c[i], "alpha %v, beta %v: element %d", alpha, beta, i)
				}
			}
		}
	}
}
