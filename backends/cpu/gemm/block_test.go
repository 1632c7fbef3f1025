package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// Blocks cover everything once, their sizes differ by one at most, and no worker gets much more than its part.
func TestSharesAreEven(t *testing.T) {
	for _, strips := range []int{1, 2, 7, 37, 74, 293} {
		for _, panels := range []int{1, 3, 16, 31, 128} {
			for _, workers := range []int{2, 3, 8, 64} {
				mc, nc := share(strips, panels, strips, 9, 160, workers, 8)
				gm, gn := ceilDiv(strips, mc), ceilDiv(panels, nc)
				require.Zero(t, split(strips, gm, 0))
				require.Equal(t, strips, split(strips, gm, gm))
				require.LessOrEqual(t, mc*nc, 160)
				require.LessOrEqual(t, nc, 9)
				// Every job goes to the worker that is free first.
				load := make([]int, workers)
				for job := range gm * gn {
					w := 0
					for i := range load {
						if load[i] < load[w] {
							w = i
						}
					}
					h := split(strips, gm, job/gn+1) - split(strips, gm, job/gn)
					n := split(panels, gn, job%gn+1) - split(panels, gn, job%gn)
					require.Contains(t, []int{mc, mc - 1}, h)
					load[w] += h * n
				}
				most := 0
				for _, l := range load {
					most = max(most, l)
				}
				if strips*panels >= 64*workers {
					require.LessOrEqual(t, float64(most), 1.1*float64(strips*panels)/float64(workers), "%d x %d on %d: blocks of %d x %d", strips, panels, workers, mc, nc)
				}
			}
		}
	}
}

// The chunks of k do not depend on the workers, or the bits would.
func TestChunksDoNotDependOnWorkers(t *testing.T) {
	in := cpuinfo.Get()
	kn, err := knobTable.Get()
	require.NoError(t, err)
	for _, k := range allKernels {
		for _, steps := range []int{1, 100, 700, 5000} {
			want := block(in, kn, k, k.mr, 50, steps, 60, 1, 1, true, true).kc
			for workers := 2; workers < 70; workers++ {
				require.Equal(t, want, block(in, kn, k, k.mr, 50, steps, 60, workers, 1, true, true).kc)
			}
		}
	}
}

// One strip meets as much of B in a call as a call may take time for, also where the strip itself is copied; only B that is copied has to fit its memory.
func TestOneStripGoesThroughMuchOfB(t *testing.T) {
	in, defaults := &cpuinfo.Info{L1D: 32 << 10, L2: 512 << 10}, knobTable.Defaults()
	for _, k := range allKernels {
		if k.a == aInner {
			continue
		}
		const steps, panels = 200, 4000
		step := k.a.lane() * k.b.nr
		for _, copiesA := range []bool{false, true} {
			bl := block(in, defaults, k, 1, 1, steps, panels, 1, 1, copiesA, false)
			require.Equal(t, steps, bl.kc)
			require.Greater(t, bl.nc*bl.kc*step, defaults.callBytes/2)
			bl = block(in, defaults, k, 1, 1, steps, panels, 1, 1, copiesA, true)
			require.LessOrEqual(t, bl.nc*bl.kc*step, max(in.L2/100*defaults.bPercent, bl.kc*step))
		}
	}
}

// A row against few steps of very many columns needs a block that its scratch memory holds.
func TestOneRowOfManyColumns(t *testing.T) {
	const n, k = 300_000, 2
	r := rand.New(rand.NewPCG(31, 32))
	a, b := floats(r, k), floats(r, k*n)
	want := refFloat(Of(a, 1, k), Of(b, k, n))
	for _, threads := range []int{1, 3} {
		c := make([]BFloat16, n)
		p, err := PackB(Of(b, k, n), nil)
		require.NoError(t, err)
		require.NoError(t, MulPacked(Of(c, 1, n), Of(a, 1, k), p, &Options{Threads: threads}))
		for j := range c {
			require.Equal(t, BFloat16(toBF16(want[j])), c[j], "column %d", j)
		}
	}
}

// A block of A fits its share of L2, and its copy the memory for it, for any number of workers and geometry.
func TestBlockByPanel(t *testing.T) {
	k := &kernel{mr: 6, b: format{F32, 16, 1}}
	base, err := knobTable.Get()
	require.NoError(t, err)
	for _, in := range []cpuinfo.Info{{L1D: 32 << 10, L2: 512 << 10}, {L1D: 48 << 10, L2: 2 << 20}, {L1D: 16 << 10, L2: 128 << 10}, {L1D: 256 << 10, L2: 128 << 10}} {
		for _, percent := range []int{1, 26, 90} {
			kn := *base
			kn.aPercent = percent
			for _, workers := range []int{1, 2, 3, 7} {
				for _, steps := range []int{128, 300, 700, 4096} {
					for _, strips := range []int{8, 43, 1000} {
						bl := blockByPanel(&in, &kn, k, 6, strips, steps, 50, workers, false)
						require.True(t, bl.kc >= 1 && bl.mc >= 1 && bl.mc <= strips && bl.nc >= 1 && bl.nc <= 50, "%+v", bl)
						require.LessOrEqual(t, bl.kc, maxChunk(&kn))
						if bl.am > 1 {
							require.LessOrEqual(t, bl.am*6*4*bl.kc, in.L2/100*percent, "%+v", bl)
						}
						require.LessOrEqual(t, min(bl.am, bl.mc)*6*rowPitch(bl.kc*4), aBlockBytes(&in, &kn, 6), "%+v", bl)
						if bl.am < strips && bl.nc > 1 {
							require.LessOrEqual(t, bl.nc*16*4*bl.kc, kn.chunkBytes(&in), "%+v", bl)
						}
					}
				}
			}
		}
	}
}

// Chunks for one block of all rows are as long as half of L2 allows, and what lay decides fits the memory that it asks for.
func TestBlockByPanelOnce(t *testing.T) {
	k := &kernel{mr: 6, b: format{F32, 16, 1}}
	base, err := knobTable.Get()
	require.NoError(t, err)
	in := cpuinfo.Info{L1D: 32 << 10, L2: 512 << 10}
	for _, c := range []struct{ rows, steps, kc int }{{60, 4096, 1024}, {126, 4096, 512}, {240, 4096, 256}, {126, 500, 500}, {6000, 4096, 128}} {
		bl := blockByPanel(&in, base, k, 6, c.rows/6, c.steps, 50, 1, true)
		require.Equal(t, blocking{kc: c.kc, mc: c.rows / 6, nc: 50, unit: 1, am: c.rows / 6}, bl, "%+v", c)
	}
	require.Equal(t, 2*base.kcMax, blockByPanel(&in, base, k, 6, 400, 2048, 50, 1, false).kc)
	if avx2 := find(cpuinfo.AVX2, aF32, format{F32, 0, 1}); avx2 == nil || avx2.rowsDown == nil {
		t.Skip("no kernel of this processor goes by panels")
	}
	for _, percent := range []int{1, 13, 40} {
		for _, localRows := range []int{0, 512, 1 << 20} {
			kn := *base
			kn.aPercent, kn.bLocalRows = percent, localRows
			for _, m := range []int{60, 130, 520, 2000} {
				for _, depth := range []int{128, 130, 400, 1100} {
					x := call{a: Of(make([]float32, m*depth), m, depth), b: Of(make([]float32, depth*100), depth, 100), c: Of(make([]float32, m*100), m, 100)}
					var p product
					require.NoError(t, p.set(&x, &Options{Threads: 1}, cpuinfo.AVX2, &kn, false))
					require.False(t, p.lay(&in).bad)
					if p.byPanel && p.copyA {
						bl := blockByPanel(&in, &kn, p.kern, p.height, ceilDiv(p.m, p.height), p.k, ceilDiv(p.n, 16), 1, p.once)
						require.LessOrEqual(t, min(bl.am*p.height, p.m)*rowPitch(bl.kc*4), p.stripBytes, "%d rows, %d steps, %+v", m, depth, bl)
					}
				}
			}
		}
	}
}
