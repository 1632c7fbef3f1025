package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestRepackAndCorner: memory that is packed again, and parts of it, give the bits of the plain product.
func TestRepackAndCorner(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, isa := range cpuinfo.Get().ISAs {
		o := &Options{ISA: isa}
		const kMax, nMax, m = 70, 130, 37
		p, err := PackB(Of(make([]float32, kMax*nMax), kMax, nMax), o)
		require.NoError(t, err)
		for _, size := range [][4]int{{70, 130, 70, 130}, {64, 128, 64, 64}, {64, 128, 33, 128}, {1, 1, 1, 1}, {70, 33, 9, 32}, {5, 130, 5, 97}} {
			k, n, ck, cn := size[0], size[1], size[2], size[3]
			a, b := make([]float32, m*k), make([]float32, k*n)
			for _, x := range [][]float32{a, b} {
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
			}
			require.NoError(t, p.Repack(Of(b, k, n)))
			corner, err := p.Corner(ck, cn)
			require.NoError(t, err)
			got, want := make([]float32, m*cn), make([]float32, m*cn)
			require.NoError(t, MulPacked(Of(got, m, cn), View(a, m, ck, k, 1), &corner, o))
			require.NoError(t, Mul(Of(want, m, cn), View(a, m, ck, k, 1), View(b, ck, cn, n, 1), o))
			require.Equal(t, want, got, "%v %v", isa, size)
		}
		require.Error(t, p.Repack(Of(make([]float32, 71*130), 71, 130)))
		require.Error(t, p.Repack(Of(make([]BFloat16, 4), 2, 2)))
		_, err = p.Corner(2, 200)
		require.Error(t, err)
		require.NoError(t, p.Close())
	}
}
