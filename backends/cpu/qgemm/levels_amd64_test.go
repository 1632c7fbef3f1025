//go:build amd64 && !noasm

package qgemm

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

// Each level of the processor runs its own kernels when a product asks for it, and allocates nothing.
func TestPinnedLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	const m, n, k = 7, 40, 512
	data, rowBytes, _ := weights(t, rng, tensor.Q5_K, n, k)
	p, err := Pack(tensor.Q5_K, data, rowBytes, n, k, nil)
	require.NoError(t, err)
	a, c := activations(rng, m*k), make([]float32, m*n)
	var want []float32
	for _, level := range []struct {
		isa  cpuinfo.ISA
		name string
	}{{cpuinfo.Portable, "portable"}, {cpuinfo.AVX2, "avx2"}, {cpuinfo.AVXVNNI, "avxvnni"}, {cpuinfo.AVX512, "avx512_vnni"}} {
		if !cpuinfo.Get().Has(level.isa) || level.isa == cpuinfo.AVX512 && !cpuinfo.Get().Features.AVX512VNNI {
			continue
		}
		require.Equal(t, level.name, Kernel(level.isa))
		clear(c)
		r := &Run{A: a, LDA: k, C: c, LDC: n, M: m, ISA: level.isa}
		require.NoError(t, p.Mul(context.Background(), r))
		if want == nil {
			want = append(want, c...)
		}
		require.Equal(t, want, c, level.name)
		require.Zero(t, testing.AllocsPerRun(5, func() { _ = p.Mul(context.Background(), r) }), level.name)
	}
}
