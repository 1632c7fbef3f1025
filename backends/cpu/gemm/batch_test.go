package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	// Heads of a grouped-query attention: A [2][6 heads][m][k], B [2][3 heads][k][n] shared by pairs, C interleaved by head.
	const m, n, k = 5, 33, 19
	a, b := floats(r, 2*6*m*k), floats(r, 2*3*k*n)
	for _, threads := range []int{1, 3} {
		c := make([]float32, 2*m*6*n)
		batch := Batch{Dims: [3]int{2, 3, 2}, A: [3]int{6 * m * k, 2 * m * k, m * k}, B: [3]int{3 * k * n, k * n, 0},
			C: [3]int{m * 6 * n, 2 * n, n}}
		require.NoError(t, MulBatch(View(c, m, n, 6*n, 1), Of(a, m, k), Of(b, k, n), batch, &Options{Threads: threads}))
		for x := range 2 {
			for h := range 6 {
				want := refFloat(Of(a[(x*6+h)*m*k:], m, k), Of(b[(x*3+h/2)*k*n:], k, n))
				for i := range m {
					require.Equal(t, want[i*n:(i+1)*n], c[(x*m+i)*6*n+h*n:][:n])
				}
			}
		}
	}
	// A repeated B with rows that go on folds into one product.
	c := make([]float32, 4*m*n)
	require.NoError(t, MulBatch(Of(c, m, n), Of(a, m, k), Of(b, k, n), Batch{Dims: [3]int{4}, A: [3]int{m * k}, C: [3]int{m * n}}, nil))
	require.Equal(t, refFloat(Of(a, 4*m, k), Of(b, k, n)), c)
}

func TestBatchRefuses(t *testing.T) {
	a, b, c := make([]float32, 64), make([]float32, 64), make([]float32, 64)
	A, B, C := Of(a, 4, 4), Of(b, 4, 4), Of(c, 4, 4)
	require.ErrorContains(t, MulBatch(C, A, B, Batch{Dims: [3]int{5}, A: [3]int{16}, B: [3]int{16}, C: [3]int{16}}, nil), "needs 80 elements")
	require.ErrorContains(t, MulBatch(C, A, B, Batch{Dims: [3]int{2}, C: [3]int{0}}, nil), "share elements of C")
	require.ErrorContains(t, MulBatch(C, A, B, Batch{Dims: [3]int{2}, C: [3]int{8}}, nil), "share elements of C")
	require.ErrorContains(t, MulBatch(C, A, B, Batch{Dims: [3]int{-1}}, nil), "batch")
	require.ErrorContains(t, MulBatch(C, Of(c[16:], 4, 4), B, Batch{Dims: [3]int{2}, C: [3]int{16}}, nil), "overlaps A")
	require.NoError(t, MulBatch(C, A, B, Batch{Dims: [3]int{4}, A: [3]int{16}, B: [3]int{16}, C: [3]int{16}}, nil))
}
