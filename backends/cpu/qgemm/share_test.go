package qgemm

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

// Jobs of many rows take every group and every row once, in parts that start where groups of rows do.
func TestJobsShareEverything(t *testing.T) {
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q8_0} {
		for _, n := range []int{1, 64, 65, 200, 768, 1000} {
			for _, m := range []int{33, 319, 320, 511, 512, 513, 2000} {
				for _, threads := range []int{1, 2, 3, 7, 64} {
					g, err := newGeometry(formats[d], 64)
					require.NoError(t, err)
					p := &Packed{typ: d, n: n, k: 64, g: g, panels: (n + nr - 1) / nr}
					for name, k := range implementations() {
						w := &work{p: p, r: &Run{M: m, Threads: threads}, k: k, kn: knobTable.Defaults()}
						w.cut()
						groups := (p.panels + w.group - 1) / w.group
						rows := make([]int, groups)
						for job := range w.jobs {
							group, from, to := w.share(job)
							if group >= groups || from == to {
								continue
							}
							require.Zero(t, from%w.height)
							require.Equal(t, rows[group], from, "%s n=%d m=%d threads=%d", name, n, m, threads)
							rows[group] = to
						}
						for _, to := range rows {
							require.Equal(t, m, to, "%s n=%d m=%d threads=%d", name, n, m, threads)
						}
					}
				}
			}
		}
	}
}

// Products whose last groups come in parts have the bits of those on one worker, with C before and an epilogue behind.
func TestPartsOfRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	const n, k, m = 200, 512, 500
	a := activations(rng, m*k)
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K} {
		data, rowBytes, _ := weights(t, rng, d, n, k)
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		for _, isa := range cpuinfo.Get().ISAs {
			if isa == cpuinfo.Portable && testing.Short() {
				continue
			}
			var want []float32
			for _, threads := range []int{1, 2, 3} {
				c := make([]float32, m*n)
				for i := range c {
					c[i] = float32(i % 7)
				}
				require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: c, LDC: n, M: m, Threads: threads, ISA: isa, Accumulate: true, Then: negate{}}))
				if threads == 1 {
					want = c
				}
				require.Equal(t, want, c, "%v %v, %d threads", d, isa, threads)
			}
		}
	}
}
