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

// Operands and results without elements are no error, however they are given: the stride of dense rows without elements is 0. Sums of no products are zero.
func TestOperandsWithoutElements(t *testing.T) {
	scales := &gemm.Options{Epilogue: &gemm.Epilogue{RowScale: []float32{2}, ColScale: []float32{3}}}
	for _, s := range [][3]int{{0, 0, 0}, {0, 300, 2}, {3, 0, 2}, {3, 0, 0}, {0, 300, 0}, {1, 0, 1}, {1, 300, 0}, {3, 300, 0}} {
		m, n, k := s[0], s[1], s[2]
		a, b := gemm.Of(make([]float32, m*k), m, k), gemm.Of(make([]float32, k*n), k, n)
		pa, err := gemm.PackA(a, gemm.F32, nil)
		require.NoError(t, err)
		pb, err := gemm.PackB(b, nil)
		require.NoError(t, err)
		parts, err := gemm.NewPartsB(b, nil)
		require.NoError(t, err)
		half := parts.Pack(n/2, nil)
		for _, o := range []*gemm.Options{nil, scales} {
			for name, mul := range map[string]func(c gemm.Matrix) error{
				"Mul":         func(c gemm.Matrix) error { return gemm.Mul(c, a, b, o) },
				"MulPacked":   func(c gemm.Matrix) error { return gemm.MulPacked(c, a, pb, o) },
				"MulPackedA":  func(c gemm.Matrix) error { return gemm.MulPackedA(c, pa, b, o) },
				"MulPackedAB": func(c gemm.Matrix) error { return gemm.MulPackedAB(c, pa, pb, o) },
				"MulAdd":      func(c gemm.Matrix) error { return gemm.MulAdd(2, a, b, 0, c, nil) },
				"MulBatch":    func(c gemm.Matrix) error { return gemm.MulBatch(c, a, b, gemm.Batch{}, o) },
				"MulStaged":   func(c gemm.Matrix) error { return gemm.MulStaged(c, a, b, o) },
				"PartsB":      func(c gemm.Matrix) error { return parts.Mul(c, a, o) },
				"half":        func(c gemm.Matrix) error { return half.Mul(c, a, o) },
				"whole":       func(c gemm.Matrix) error { return half.Pack(n, nil).Mul(c, a, o) },
			} {
				c := make([]float32, m*n)
				for i := range c {
					c[i] = 7
				}
				require.NoError(t, mul(gemm.Of(c, m, n)), "%s %v", name, s)
				require.Equal(t, make([]float32, m*n), c, "%s %v", name, s)
			}
		}
		if m*n == 0 {
			require.NoError(t, gemm.MulBatch(gemm.Of([]float32{}, m, n), a, b, gemm.Batch{Dims: [3]int{3}}, nil), s)
		}
	}
}
