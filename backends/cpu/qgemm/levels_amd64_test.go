//go:build amd64 && !noasm

package qgemm

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

// Each level of the processor runs its own kernels when a product asks for it, and allocates nothing.
func TestPinnedLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	const few, m, n, k = 7, 21, 40, 512
	data, rowBytes, _ := weights(t, rng, tensor.Q5_K, n, k)
	p, err := Pack(tensor.Q5_K, data, rowBytes, n, k, nil)
	require.NoError(t, err)
	a, c := activations(rng, m*k), make([]float32, m*n)
	wide := "avx512_vnni"
	if cpuinfo.Get().Features.OneWideLoad {
		wide = "avx512_vnni_lean"
	}
	var want []float32
	for _, level := range []struct {
		isa  cpuinfo.ISA
		name string
	}{{cpuinfo.Portable, "portable"}, {cpuinfo.AVX2, "avx2"}, {cpuinfo.AVXVNNI, "avxvnni"}, {cpuinfo.AVX512, wide}, {cpuinfo.AMX, "amx_int8"}} {
		info := cpuinfo.Get()
		if !info.Has(level.isa) || level.isa >= cpuinfo.AVX512 && !info.Features.AVX512VNNI || level.isa == cpuinfo.AMX && !info.Features.AMXInt8 {
			continue
		}
		require.Equal(t, level.name, Kernel(level.isa))
		for _, rows := range []int{m, few} {
			clear(c)
			r := &Run{A: a, LDA: k, C: c, LDC: n, M: rows, ISA: level.isa}
			require.NoError(t, p.Mul(context.Background(), r))
			if want == nil {
				want = append(want, c...)
			}
			require.Equal(t, want[:rows*n], c[:rows*n], level.name)
			require.Zero(t, testing.AllocsPerRun(5, func() { _ = p.Mul(context.Background(), r) }), level.name)
		}
	}
}

// Kernels with few loads take strips of rows through several calls, give the bits of plain Go there, too, and touch nothing beyond their columns; where
// scales are so large that what they add to the sums would overflow, others take their place.
func TestManyStrips(t *testing.T) {
	if !cpuinfo.Get().Features.AVX512VNNI {
		t.Skip("no kernels for strips here")
	}
	rng := rand.New(rand.NewPCG(23, 24))
	const n, k, gap = 75, 768, 5
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q5_1, tensor.Q6_K, tensor.Q2_K, tensor.MXFP4} {
		data, rowBytes, _ := weights(t, rng, d, n, k)
		if d == tensor.MXFP4 {
			for i := 0; i < len(data); i += d.Size() {
				data[i] = byte(200 + i%40) // of exponents up to 2^111
			}
		}
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		for _, m := range []int{lean.strips * lean.rows, 2*lean.strips*lean.rows + 19} {
			a := activations(rng, m*k)
			want, got := make([]float32, m*(n+gap)), make([]float32, m*(n+gap))
			for i := range want {
				want[i] = float32(i%3 - 1)
				got[i] = want[i]
			}
			r := Run{A: a, LDA: k, C: want, LDC: n + gap, M: m, Accumulate: true}
			p.mulWith(t, &portable, &r)
			r.C = got
			p.mulWith(t, &lean, &r)
			require.True(t, equal(want, got), "%v, %d rows", d, m)
			require.False(t, math.IsNaN(float64(got[0])) || math.IsInf(float64(got[0]), 0))
		}
		require.NoError(t, p.Close())
	}
}

// Kernels of tiles leave their arguments as they were: pointers to where memory of the product ends would keep memory of others, or what is
// no object, alive.
func TestTilesLeaveTheirArguments(t *testing.T) {
	if !cpuinfo.Get().Features.AMXInt8 || !cpuinfo.Get().Features.AVX512VNNI {
		t.Skip("no tiles of bytes here")
	}
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_1, tensor.Q6_K, tensor.Q2_K} {
		for rows := 1; rows <= tileHeight; rows++ {
			const k, groups, panels = 96, 2, 2
			f := formats[d]
			blocks := k / f.block
			a, w := make([]byte, groups*rows*k), make([]byte, panels*k*nr)
			metas, scale := make([]byte, groups*blocks*metaStep(manySlots)), make([]byte, panels*blocks*f.scaleStep())
			c, buf := make([]float32, groups*rows*panels*nr), make([]byte, tileBuf)
			p := dotArgs{a: unsafe.Pointer(&a[0]), aStride: k, meta: unsafe.Pointer(&metas[0]), metaGroup: len(metas) / groups, w: unsafe.Pointer(&w[0]),
				wPanel: k * nr, scale: unsafe.Pointer(&scale[0]), scaleSize: len(scale) / panels, c: unsafe.Pointer(&c[0]), ldc: 4 * panels * nr,
				blocks: blocks, mask: 1<<32 - 1, groups: groups, rows: rows, panels: panels, buf: unsafe.Pointer(&buf[0])}
			before := p
			tilesAMX(&p, f)
			require.Equal(t, before, p, "%v, %d rows", d, rows)
			require.Equal(t, make([]float32, len(c)), c) // of zeros
		}
	}
}

// Kernels for few rows give the same bits whether they ask for weights ahead or leave that to the processor.
func TestFewRowsAheadOrNot(t *testing.T) {
	if !cpuinfo.Get().Features.AVX512VNNI {
		t.Skip("no kernels that ask for weights ahead here")
	}
	require.Equal(t, cpuinfo.Get().Features.FetchesAlone, avx512.alone)
	require.Equal(t, avx512.alone, lean.alone)
	require.EqualValues(t, 152, unsafe.Offsetof(dotArgs{}.ahead)) // argAhead of the assembly
	rng := rand.New(rand.NewPCG(19, 20))
	const m, n, k = fewRows, 40, 768
	for _, d := range types() {
		data, rowBytes, _ := weights(t, rng, d, n, k)
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		a := activations(rng, m*k)
		for rows := 1; rows <= m; rows++ {
			var c [2][]float32
			for i, alone := range []bool{false, true} {
				kernels := avx512
				kernels.alone = alone
				kernels.fused = func(f *format, rows int) func(*dotArgs) {
					run := avx512.fused(f, rows)
					if run == nil {
						return nil
					}
					return func(p *dotArgs) {
						require.Equal(t, alone, p.ahead == 0)
						run(p)
					}
				}
				c[i] = make([]float32, rows*n)
				w, r := &work{}, &Run{A: a, LDA: k, C: c[i], LDC: n, M: rows, Threads: 1}
				kn, err := r.knobs()
				require.NoError(t, err)
				w.begin(context.Background(), p, r, &kernels, kn)
				w.reserve(w.jobs)
				for job := range w.quantJobs {
					(*quantTask)(w).Do(0, job)
				}
				for job := range w.jobs {
					(*dotTask)(w).Do(0, job)
				}
			}
			require.Equal(t, c[0], c[1], "%v, %d rows", d, rows)
			require.NotZero(t, c[0][0])
		}
	}
}
