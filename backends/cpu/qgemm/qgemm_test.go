package qgemm

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func types() []tensor.DType {
	var list []tensor.DType
	for _, d := range tensor.DTypes() {
		if Supports(d) {
			list = append(list, d)
		}
	}
	return list
}

// geometries are all types or, where tests are short, one of each form of a panel.
func geometries() []tensor.DType {
	if testing.Short() {
		return []tensor.DType{tensor.Q4_0, tensor.Q4_1, tensor.Q4_K}
	}
	return types()
}

func implementations() map[string]*kernels {
	m := map[string]*kernels{"portable": &portable, "tiles_go": tilesGoKernels}
	for _, k := range archKernels() {
		m[k.name] = k
	}
	return m
}

// weights returns n rows of k random elements in the format, and what they decode to.
func weights(t testing.TB, rng *rand.Rand, d tensor.DType, n, k int) (data []byte, rowBytes int, decoded []float32) {
	t.Helper()
	rowBytes = k / d.Block() * d.Size()
	data = make([]byte, n*rowBytes)
	decoded = make([]float32, n*k)
	row := make([]float32, k)
	for i := range n {
		for j := range row {
			row[j] = float32(rng.NormFloat64())
		}
		require.NoError(t, quant.EncodeRow(d, data[i*rowBytes:][:rowBytes], row))
		require.NoError(t, quant.DecodeRow(d, decoded[i*k:][:k], data[i*rowBytes:][:rowBytes]))
	}
	return data, rowBytes, decoded
}

func activations(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func (p *Packed) mulWith(t testing.TB, k *kernels, r *Run) {
	t.Helper()
	p.mulKnobs(t, k, knobTable.Defaults(), r)
}

func (p *Packed) mulKnobs(t testing.TB, k *kernels, kn *knobs, r *Run) {
	t.Helper()
	require.NoError(t, r.check(p))
	w := &work{}
	w.begin(context.Background(), p, r, k, kn)
	w.reserve(w.jobs)
	for job := range w.quantJobs {
		(*quantTask)(w).Do(0, job)
	}
	for job := range w.jobs {
		(*dotTask)(w).Do(0, job)
	}
}

// Calls for few rows take a long k in pieces, as do the quantization of A and packing: the bits stay those of the kernels that take it chunk by chunk.
func TestLongRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const m, n, k = 9, 4*nr + 3, callK + 768
	for _, d := range geometries() {
		t.Run(d.String(), func(t *testing.T) {
			data, rowBytes, _ := weights(t, rng, d, n, k)
			p, err := Pack(d, data, rowBytes, n, k, nil)
			require.NoError(t, err)
			defer p.Close()
			var list [nr][]byte
			for j := range list {
				list[j] = data[j*rowBytes:][:rowBytes]
			}
			panel := make([]byte, p.g.size)
			packPanel(&p.g, d, panel, &list)
			require.Equal(t, panel, p.data[:p.g.size], "the first panel in plain Go")
			a := activations(rng, m*k)
			chunks := *knobTable.Defaults()
			chunks.fewRows = 0
			want := make([]float32, m*n)
			p.mulKnobs(t, &portable, &chunks, &Run{A: a, LDA: k, C: want, LDC: n, M: m})
			for name, impl := range implementations() {
				longest := 0
				if f := impl.fused; f != nil {
					impl = &[]kernels{*impl}[0]
					impl.fused = func(d *format, rows int) func(*dotArgs) {
						kernel := f(d, rows)
						return func(p *dotArgs) { longest = max(longest, p.blocks*unit); kernel(p) }
					}
				}
				for _, rows := range []int{1, 3, m} {
					c := make([]float32, rows*n)
					p.mulWith(t, impl, &Run{A: a, LDA: k, C: c, LDC: n, M: rows})
					for i := range c {
						if math.Float32bits(want[i]) != math.Float32bits(c[i]) {
							t.Fatalf("%s, %d rows: element %d is %v, want %v", name, rows, i, c[i], want[i])
						}
					}
				}
				require.LessOrEqual(t, longest, callK, name)
			}
		})
	}
}

// The product against float64: with the activations as they are, the error is that of their quantization to 127 steps a block.
func TestAgainstFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, d := range types() {
		for _, shape := range [][3]int{{1, 1, 256}, {1, 64, 512}, {2, 17, 256}, {3, 48, 2304}, {6, 33, 256}, {7, 16, 512}, {13, 100, 1280}} {
			m, n, k := shape[0], shape[1], shape[2]
			data, rowBytes, wide := weights(t, rng, d, n, k)
			p, err := Pack(d, data, rowBytes, n, k, nil)
			require.NoError(t, err)
			a := activations(rng, m*k)
			c := make([]float32, m*n)
			require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: c, LDC: n, M: m}))
			for i := range m {
				for j := range n {
					var want, bound float64
					for b := 0; b < k; b += p.g.f.block {
						var top, mass float64
						for l := b; l < b+p.g.f.block; l++ {
							want += float64(a[i*k+l]) * float64(wide[j*k+l])
							top = max(top, math.Abs(float64(a[i*k+l])))
							mass += math.Abs(float64(wide[j*k+l]))
						}
						bound += top / 127 / 2 * mass
					}
					require.InDelta(t, want, float64(c[i*n+j]), bound*1.01+1e-4, "%v %v element %d,%d", d, shape, i, j)
				}
			}
			require.NoError(t, p.Close())
		}
	}
}

// All implementations, and all ways to cut the rows, give the same bits.
func TestSameBitsEverywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, d := range types() {
		t.Run(d.String(), func(t *testing.T) {
			n, k, m := 83, 1536, 35
			if testing.Short() { // under emulation: panels of all kinds, two superblocks, tiles and rests
				n, k, m = 35, 512, 19
			}
			data, rowBytes, _ := weights(t, rng, d, n, k)
			p, err := Pack(d, data, rowBytes, n, k, nil)
			require.NoError(t, err)
			a := activations(rng, m*k)
			for i := range 40 {
				a[rng.IntN(len(a))] = []float32{0, float32(math.Copysign(0, -1)), 1e-40, 1e30}[i%4]
			}
			clear(a[2*k : 2*k+256])
			want := make([]float32, m*n)
			for i := range m { // one row at a time, in plain Go
				p.mulWith(t, &portable, &Run{A: a[i*k:], LDA: k, C: want[i*n:], LDC: n, M: 1})
			}
			for name, impl := range implementations() {
				kn := knobTable.Defaults()
				kn.tilesFrom = 1 // tiles of every height
				for rows := 1; rows <= m; rows += 1 + rows/10 {
					c := make([]float32, rows*(n+3))
					p.mulKnobs(t, impl, kn, &Run{A: a, LDA: k, C: c, LDC: n + 3, M: rows})
					for i := range rows {
						for j := range n {
							if got, want := c[i*(n+3)+j], want[i*n+j]; math.Float32bits(got) != math.Float32bits(want) {
								t.Fatalf("%v %s rows %d at %d,%d: %v, want %v", d, name, rows, i, j, got, want)
							}
						}
						for j := n; j < n+3 && i < rows; j++ {
							if c[i*(n+3)+j] != 0 {
								t.Fatalf("%v %s rows %d: written beside row %d", d, name, rows, i)
							}
						}
					}
				}
			}
		})
	}
}

func TestThreadsAccumulateAndEpilogue(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const m, n, k = 9, 700, 512
	data, rowBytes, _ := weights(t, rng, tensor.Q4_K, n, k)
	p, err := Pack(tensor.Q4_K, data, rowBytes, n, k, &Options{Threads: 3})
	require.NoError(t, err)
	a := activations(rng, m*k)
	want := make([]float32, m*n)
	require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: want, LDC: n, M: m, Threads: 1}))
	var wg sync.WaitGroup
	for threads := 1; threads <= 64; threads *= 4 {
		wg.Go(func() {
			c := make([]float32, m*n)
			if err := p.Mul(context.Background(), &Run{A: a, LDA: k, C: c, LDC: n, M: m, Threads: threads}); err != nil {
				t.Error(err)
			}
			for i := range c {
				if c[i] != want[i] {
					t.Errorf("%d threads: element %d differs", threads, i)
					return
				}
			}
		})
	}
	wg.Wait()
	c := make([]float32, m*n)
	for i := range c {
		c[i] = float32(i % 7)
	}
	require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: c, LDC: n, M: m, Accumulate: true, Then: negate{}}))
	for i := range c {
		require.InDelta(t, -(want[i] + float32(i%7)), c[i], 1e-3)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, p.Mul(ctx, &Run{A: a, LDA: k, C: c, LDC: n, M: m}), context.Canceled)
}

type negate struct{}

func (negate) Apply(c []float32, row, col int) {
	for i := range c {
		c[i] = -c[i]
	}
}

func TestNaNAndInfinityReachEveryProduct(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const n, k = 20, 512
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q6_K} {
		data, rowBytes, _ := weights(t, rng, d, n, k)
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
			for name, impl := range implementations() {
				for _, m := range []int{2, 18} {
					a := activations(rng, m*k)
					a[k+300] = bad
					c := make([]float32, m*n)
					p.mulWith(t, impl, &Run{A: a, LDA: k, C: c, LDC: n, M: m})
					for i := range c {
						if nan := math.IsNaN(float64(c[i])); nan != (i/n == 1) {
							t.Fatalf("%s, row %d of %d: NaN %v", name, i/n, m, nan)
						}
					}
				}
			}
		}
	}
}

// The fast ways to pack equal the general one, and unpacking gives back what was packed.
func TestPacking(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, d := range types() {
		const n = 35
		k := 768
		if d.Block() == 32 {
			k = 800 // an odd number of blocks
		}
		rowBytes := k/d.Block()*d.Size() + 6 // the last row ends with the data
		data := make([]byte, (n-1)*rowBytes+k/d.Block()*d.Size())
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		p, err := Pack(d, data, rowBytes, n, k, nil)
		require.NoError(t, err)
		var rows [nr][]byte
		for panel := range p.panels {
			for j := range rows {
				rows[j] = nil
				if r := panel*nr + j; r < n {
					rows[j] = data[r*rowBytes:][:k/d.Block()*d.Size()]
				}
			}
			want := make([]byte, p.g.size)
			packPanel(&p.g, d, want, &rows)
			require.Equal(t, want, p.data[panel*p.g.size:][:p.g.size], "%v panel %d", d, panel)
		}
		for b := range p.g.k / d.Block() {
			var e exploded
			p.g.f.read(data[b*d.Size():], &e)
			for name, impl := range implementations() {
				for u := range d.Block() / unit {
					var w [2 * unitSize]byte
					group, in := p.g.place(b)
					src := group + p.g.header + (in+u)*bitsSize[p.g.f.bits]
					for _, less := range []uint8{0, 8} {
						impl.spread(unsafe.Pointer(&w[0]), unsafe.Pointer(&p.data[src]), p.g.f, 1, 1, 0, less)
						for i := range unit {
							q := e.q[u*unit+i]
							if p.g.f.table != nil {
								q = p.g.f.table[q]
							}
							if impl.wide != nil && impl.wide(p.g.f) {
								at := 2 * (i/2*2*nr + i%2)
								if got := int16(binary.LittleEndian.Uint16(w[at:])); got != int16(int8(q-less)) {
									t.Fatalf("%v %s: element %d is %d, want %d", d, name, i, got, int8(q-less))
								}
								continue
							}
							if got := w[at(i, 0)]; got != q-less {
								t.Fatalf("%v %s: element %d is %d, want %d", d, name, i, got, q-less)
							}
						}
					}
				}
			}
		}
	}
}

func TestWrongCallsAreErrors(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	data, rowBytes, _ := weights(t, rng, tensor.Q8_0, 4, 64)
	_, err := Pack(tensor.F32, data, rowBytes, 4, 64, nil)
	require.ErrorContains(t, err, "no packed form")
	_, err = Pack(tensor.Q8_0, data, rowBytes, 5, 64, nil)
	require.ErrorContains(t, err, "do not fit")
	_, err = Pack(tensor.Q8_0, data, rowBytes, 4, 48, nil)
	require.ErrorContains(t, err, "multiple")
	_, err = Pack(tensor.Q8_0, data, math.MaxInt/2, 4, 64, nil)
	require.ErrorContains(t, err, "do not fit")
	_, err = Pack(tensor.Q8_0, data, rowBytes, 4, math.MaxInt/64*64, nil)
	require.Error(t, err)
	p, err := Pack(tensor.Q8_0, data, rowBytes, 4, 64, nil)
	require.NoError(t, err)
	buf := make([]float32, 1000)
	ctx := context.Background()
	for what, r := range map[string]*Run{
		"rows of A":  {A: buf, LDA: 63, C: buf[500:], LDC: 4, M: 2},
		"A has":      {A: buf[:100], LDA: 64, C: buf[500:], LDC: 4, M: 2},
		"C has":      {A: buf, LDA: 64, C: buf[997:], LDC: 4, M: 1},
		"overlaps":   {A: buf, LDA: 64, C: buf[60:], LDC: 4, M: 1},
		"M = -1":     {A: buf, LDA: 64, C: buf[500:], LDC: 4, M: -1},
		"rows of C ": {A: buf, LDA: 64, C: buf[500:], LDC: 3, M: 1},
	} {
		require.ErrorContains(t, p.Mul(ctx, r), what)
	}
	require.NoError(t, p.Mul(ctx, &Run{M: 0}))
	require.NoError(t, p.Close())
	require.ErrorContains(t, p.Mul(ctx, &Run{A: buf, LDA: 64, C: buf[500:], LDC: 4, M: 1}), "closed")
}

// Operands end at a page that cannot be read or written.
func TestNothingBeyondTheOperands(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, d := range types() {
		for _, m := range []int{1, 2, 5, 7, 19} {
			const n, k = 21, 256
			data, rowBytes, _ := weights(t, rng, d, n, k)
			guarded := func(bytes int) []byte {
				b, release, err := mem.Guarded(bytes)
				if err != nil {
					t.Skip("no guard pages here")
				}
				t.Cleanup(func() { require.NoError(t, release()) })
				return b
			}
			file := guarded(len(data))
			copy(file, data)
			p, err := Pack(d, file, rowBytes, n, k, nil)
			require.NoError(t, err)
			ab, cb := guarded(4*m*k), guarded(4*m*n)
			a := unsafe.Slice((*float32)(unsafe.Pointer(&ab[0])), m*k)
			c := unsafe.Slice((*float32)(unsafe.Pointer(&cb[0])), m*n)
			copy(a, activations(rng, m*k))
			for _, impl := range implementations() {
				p.mulWith(t, impl, &Run{A: a, LDA: k, C: c, LDC: n, M: m})
				p.mulWith(t, impl, &Run{A: a, LDA: k, C: c, LDC: n, M: m, Accumulate: true})
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	data, rowBytes, _ := weights(t, rng, tensor.Q4_0, 256, 512)
	p, err := Pack(tensor.Q4_0, data, rowBytes, 256, 512, nil)
	require.NoError(t, err)
	a, c := activations(rng, 3*512), make([]float32, 3*256)
	run := &Run{A: a, LDA: 512, C: c, LDC: 256, M: 3}
	ctx := context.Background()
	require.NoError(t, p.Mul(ctx, run))
	require.Zero(t, testing.AllocsPerRun(20, func() { _ = p.Mul(ctx, run) }))
}

// BenchmarkMul gives the rate of a layer of a small model: one row (limited by memory) and a prefill of 512.
func BenchmarkMul(b *testing.B) {
	rng := rand.New(rand.NewPCG(17, 18))
	const n, k = 16384, 1024 // 16 Mi elements: far beyond the second-level cache
	for _, d := range types() {
		data, rowBytes, _ := weights(b, rng, d, 64, k)
		big := make([]byte, n*rowBytes)
		for i := 0; i < n; i += 64 {
			copy(big[i*rowBytes:], data)
		}
		p, err := Pack(d, big, rowBytes, n, k, nil)
		require.NoError(b, err)
		for _, m := range []int{1, 4, 512} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%v/m=%d/t=%d", d, m, threads), func(b *testing.B) {
					a, c := activations(rng, m*k), make([]float32, m*n)
					run := &Run{A: a, LDA: k, C: c, LDC: n, M: m, Threads: threads}
					b.ResetTimer()
					for range b.N {
						if err := p.Mul(context.Background(), run); err != nil {
							b.Fatal(err)
						}
					}
					s := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(2*float64(m)*n*k/s/1e9, "GOP/s")
					b.ReportMetric(float64(p.Bytes())/s/1e9, "GB/s")
				})
			}
		}
	}
}
