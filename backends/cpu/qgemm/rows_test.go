package qgemm

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// A weight of rows gives the bits of the packed one on every implementation: rows of A for every path, panels that are not full,
// groups that are not full, rows with gaps, scratch memory that holds something else, workers.
func TestRowsGiveTheBitsOfPacked(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	heights := []int{1, 2, 5, 9, 35, 70}
	if testing.Short() { // under emulation
		heights = []int{1, 2, 5, 19}
	}
	for _, d := range types() {
		shapes := [][2]int{{83, 1536}, {16, 256}, {1, 768}, {130, 512 + 256*(superK/d.Block()%2)}}
		if testing.Short() {
			shapes = [][2]int{{35, 512}, {16, 256}, {1, 768}}
		}
		for _, shape := range shapes {
			n, k := shape[0], shape[1]
			if d.Block() == 32 {
				k += 32 // an odd number of blocks
			}
			packed, rowBytes, _ := weights(t, rng, d, n, k)
			pitch := rowBytes + d.Size()
			data := make([]byte, n*pitch)
			for i := range n {
				copy(data[i*pitch:], packed[i*rowBytes:][:rowBytes])
			}
			data = data[:(n-1)*pitch+rowBytes]
			p, err := Pack(d, data, pitch, n, k, nil)
			require.NoError(t, err)
			q, err := Rows(d, data, pitch, n, k)
			require.NoError(t, err)
			require.Equal(t, p.Bytes(), q.Bytes())
			for _, m := range heights {
				a := activations(rng, m*k)
				for name, kern := range implementations() {
					want, got := make([]float32, m*n), make([]float32, m*n)
					p.mulWith(t, kern, &Run{A: a, LDA: k, C: want, LDC: n, M: m, Threads: 1})
					q.mulDirty(t, kern, &Run{A: a, LDA: k, C: got, LDC: n, M: m, Threads: 1})
					if !slices.Equal(want, got) {
						require.Equal(t, want, got, "%v %v m=%d %s", d, shape, m, name)
					}
				}
			}
			const m = 20
			a := activations(rng, m*k)
			want := make([]float32, m*n)
			require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: want, LDC: n, M: m}))
			again, err := q.Pack(&Options{Threads: 2})
			require.NoError(t, err)
			require.Equal(t, p.data, again.data)
			for _, w := range []*Packed{q, again} {
				var wg sync.WaitGroup
				for threads := range 3 {
					wg.Go(func() {
						got := make([]float32, m*n)
						if err := w.Mul(context.Background(), &Run{A: a, LDA: k, C: got, LDC: n, M: m, Threads: threads}); err != nil {
							t.Error(err)
						}
						if !equal(want, got) {
							t.Errorf("%v: %d threads", d, threads)
						}
					})
				}
				wg.Wait()
			}
			require.NoError(t, again.Close())
			require.NoError(t, p.Close())
			require.NoError(t, q.Close())
			require.ErrorContains(t, q.Mul(context.Background(), &Run{A: a, LDA: k, C: want, LDC: n, M: m}), "closed")
			_, err = q.Pack(nil)
			require.ErrorContains(t, err, "no rows")
		}
	}
}

func equal(a, b []float32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// mulDirty is mulWith, with scratch memory whose bytes are those of NaNs.
func (p *Packed) mulDirty(t testing.TB, k *kernels, r *Run) {
	t.Helper()
	require.NoError(t, r.check(p))
	w := &work{}
	w.begin(context.Background(), p, r, k, knobTable.Defaults())
	w.scratch = mem.Bytes(grown(w.perWorker * par.Workers(r.Threads, w.jobs)))
	for i := range w.scratch {
		w.scratch[i] = 0xff
	}
	w.reserve(w.jobs)
	for job := range w.quantJobs {
		(*quantTask)(w).Do(0, job)
	}
	for job := range w.jobs {
		(*dotTask)(w).Do(0, job)
	}
}

// Packing reads no byte behind the last row: data end where a page that faults begins.
func TestRowsEndAtAGuardPage(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	for _, d := range types() {
		const n, k = 2 * nr, 256
		data, rowBytes, _ := weights(t, rng, d, n, k)
		guarded, release, err := mem.Guarded(len(data))
		if errors.Is(err, errors.ErrUnsupported) {
			t.Skip("no page protection here")
		}
		require.NoError(t, err)
		copy(guarded, data)
		want, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		got, err := Pack(d, guarded, rowBytes, n, k, nil)
		require.NoError(t, err)
		require.Equal(t, want.data, got.data, "%v", d)
		require.NoError(t, release())
	}
}
