package qgemm

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

// Products with one source round A once where they may, and have the bits of products without.
func TestSource(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	const n, k = 83, 768
	var list []*Packed
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q4_0, tensor.Q4_1, tensor.Q8_0, tensor.Q6_K, tensor.Q4_K, tensor.Q6_K, tensor.Q8_0, tensor.Q5_1} {
		data, rowBytes, _ := weights(t, rng, d, n, k)
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		list = append(list, p)
	}
	other := activations(rng, 70*k)
	for _, isa := range cpuinfo.Get().ISAs {
		for _, m := range []int{1, 5, 20, 70} {
			a := activations(rng, m*k)
			source := Source{uint64(isa), uint64(m)}
			for i, p := range list {
				for _, threads := range []int{1, 2} {
					want, got := make([]float32, m*n), make([]float32, m*n)
					run := &Run{A: a, LDA: k, C: want, LDC: n, M: m, Threads: threads, ISA: isa}
					require.NoError(t, p.Mul(context.Background(), run))
					run.C, run.Source = got, source
					require.NoError(t, p.Mul(context.Background(), run))
					require.Equal(t, want, got, "weight %d, %v, m=%d", i, isa, m)
					require.NoError(t, list[0].Mul(context.Background(), run))
					require.NoError(t, p.Mul(context.Background(), run))
					require.Equal(t, want, got, "weight %d after another, %v, m=%d", i, isa, m)
				}
			}
			// The numbers are not looked at again, as they must not have changed; they are for another source, another place or other rows.
			p := list[0]
			fresh, got := make([]float32, m*n), make([]float32, m*n)
			run := &Run{A: a, LDA: k, C: fresh, LDC: n, M: m, Threads: 1, ISA: isa, Source: source}
			Trim()
			require.NoError(t, p.Mul(context.Background(), run))
			copy(a, other)
			run.C = got
			require.NoError(t, p.Mul(context.Background(), run))
			require.Equal(t, fresh, got)
			for _, change := range []func(){
				func() { run.Source[1]++ },
				func() { run.A = other[:m*k]; copy(other, activations(rng, m*k)) },
				func() { run.M, run.LDA = 1, k+1; copy(other, activations(rng, m*k)) },
			} {
				change()
				plain := *run
				plain.C, plain.Source = make([]float32, m*n), Source{}
				require.NoError(t, p.Mul(context.Background(), run))
				rounded := append([]float32(nil), got[:run.M*n]...)
				require.NoError(t, p.Mul(context.Background(), &plain))
				require.Equal(t, plain.C[:run.M*n], rounded)
				require.NotEqual(t, fresh[:run.M*n], rounded)
			}
			require.Zero(t, testing.AllocsPerRun(3, func() { _ = p.Mul(context.Background(), run) }))
		}
	}
}
