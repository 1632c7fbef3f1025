package ordered

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/rerun"
)

func TestPanels(t *testing.T) {
	for n := range 400 {
		wide, slim := Panels(n)
		require.GreaterOrEqual(t, PaddedN(n), n)
		require.LessOrEqual(t, PaddedN(n), max(32, (n+15)/16*16), n)
		require.GreaterOrEqual(t, wide, 0)
		require.LessOrEqual(t, slim, 2)
	}
}

// bf16 draws a bfloat16 value; wild includes infinities, NaN, subnormals and extremes.
func bf16(rng *rand.Rand, wild bool) float32 {
	if wild && rng.IntN(6) == 0 {
		return math.Float32frombits(rng.Uint32() & 0xFFFF0000)
	}
	v := float32(rng.NormFloat64())
	return math.Float32frombits(math.Float32bits(v) & 0xFFFF0000)
}

func sameBits(a, b float32) bool {
	return a != a && b != b || math.Float32bits(a) == math.Float32bits(b)
}

// hasLevels calls f for each choice of kernels that this processor can run, whatever TESSERA_ISA says.
func hasLevels(t testing.TB, f func(l levels)) {
	for _, isa := range isas {
		if cpuinfo.Get().Has(isa) {
			f(choose(isa, cpuinfo.Get().Features))
		}
	}
}

// guarded returns a slice of n values whose last one is followed by an unreadable page.
func guarded[T any](t *testing.T, n int) []T {
	if n == 0 {
		return nil
	}
	data, release, err := mem.Guarded(n * int(unsafe.Sizeof(*new(T))))
	if errors.Is(err, errors.ErrUnsupported) {
		return make([]T, n)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), n)
}

// Every level gives the twin's bits, NaN aside, and touches nothing beyond the tile and the operands.
func TestF32AgainstTwin(t *testing.T) {
	hasLevels(t, func(l levels) {
		rng := rand.New(rand.NewPCG(1, 2))
		for round := range 600 {
			groups := round%2 == 1
			w := 32 + 16*rng.IntN(2)
			chunks := 1 + rng.IntN(4)
			k := 1 + rng.IntN(20)
			if groups {
				k = 8 * (1 + rng.IntN(4))
			}
			if rng.IntN(20) == 0 {
				k = 0
			}
			narrow := Narrow(rng.IntN(3))
			wild := round%3 == 0 && !groups // a group's sum must be exact, which wild values do not promise
			ldc := w + rng.IntN(3)
			a, b := guarded[float32](t, MR*chunks*k), guarded[float32](t, w*chunks*k)
			for i := range a {
				a[i] = bf16(rng, wild)
			}
			for i := range b {
				b[i] = bf16(rng, wild)
			}
			if groups { // bfp16-like values: small integers
				for i := range a {
					a[i] = float32(rng.IntN(256) - 128)
				}
				for i := range b {
					b[i] = float32(rng.IntN(256)-128) / 64
					if rng.IntN(8) == 0 {
						b[i] = float32(math.Copysign(0, -1)) // sums start from +0, which shows
					}
				}
			}
			c := guarded[float32](t, (MR-1)*ldc+w)
			for i := range c {
				c[i] = bf16(rng, wild)
				if rng.IntN(6) == 0 { // any float32: what Keep leaves, with payloads of NaN that rounding must not carry out of
					c[i] = math.Float32frombits(rng.Uint32())
					if wild && rng.IntN(4) == 0 {
						c[i] = math.Float32frombits(0x7FFFFFFF ^ rng.Uint32()&0x80000000)
					}
				}
				if groups && rng.IntN(6) == 0 {
					c[i] = float32(math.Copysign(0, -1))
				}
			}
			want := append([]float32(nil), c...)
			tileF32Go(want, ldc, a, b, w, chunks, k, groups, narrow)
			tileF32(l.f32, c, ldc, a, b, w, chunks, k, groups, narrow)
			for i := range c {
				require.True(t, sameBits(want[i], c[i]), "%v, %d wide, groups %v, %d chunks of %d, mode %d: element %d: want %x got %x", l.f32, w, groups, chunks, k, narrow,
					i, math.Float32bits(want[i]), math.Float32bits(c[i]))
			}
		}
	})
}

// Sums of pairs of products reach 2 x 255 x 128, beyond 16 bits; sums of C go modulo 2^32.
func TestS8AgainstTwin(t *testing.T) {
	hasLevels(t, func(l levels) {
		rng := rand.New(rand.NewPCG(7, 2))
		for round := range 300 {
			w, k := 32+16*rng.IntN(2), 4*(1+rng.IntN(20))
			ldc := w + rng.IntN(3)
			a, b, bias := guarded[byte](t, MRS8*k), guarded[int8](t, w*k), guarded[int32](t, w)
			c := guarded[int32](t, (MRS8-1)*ldc+w)
			for i := range a {
				a[i] = byte(rng.Uint32())
				if round%3 == 0 {
					a[i] = 255
				}
			}
			for i := range b {
				b[i] = int8(rng.Uint32())
				if round%3 == 0 {
					b[i] = [2]int8{-128, 127}[round%2]
				}
			}
			for i := range bias {
				bias[i] = int32(rng.Uint32())
			}
			for i := range c {
				c[i] = int32(rng.Uint32())
			}
			want := append([]int32(nil), c...)
			tileS8Go(want, ldc, a, b, bias, w, k)
			tileS8(l.s8, c, ldc, a, b, bias, w, k)
			require.Equal(t, want, c, "%v, %d wide, k %d", l.s8, w, k)
		}
	})
}

func TestChoice(t *testing.T) {
	if len(isas) == 1 {
		require.Equal(t, levels{cpuinfo.Portable, cpuinfo.Portable, cpuinfo.Portable}, choose(cpuinfo.Get().ISA, cpuinfo.Get().Features))
		return
	}
	const portable, avx2, avx512 = cpuinfo.Portable, cpuinfo.AVX2, cpuinfo.AVX512
	for _, c := range []struct {
		isa  cpuinfo.ISA
		has  cpuinfo.Features
		want levels
	}{
		{portable, cpuinfo.Features{AVX512VNNI: true, AVX512VBMI: true}, levels{portable, portable, portable}},
		{avx2, cpuinfo.Features{AVX512VNNI: true, AVX512VBMI: true}, levels{avx2, avx2, avx2}},
		{cpuinfo.AVXVNNI, cpuinfo.Features{}, levels{avx2, avx2, avx2}},
		{avx512, cpuinfo.Features{}, levels{avx512, avx2, avx2}},
		{avx512, cpuinfo.Features{AVX512VNNI: true}, levels{avx512, avx512, avx2}},
		{avx512, cpuinfo.Features{AVX512VNNI: true, AVX512VBMI: true}, levels{avx512, avx512, avx512}},
	} {
		require.Equal(t, c.want, choose(c.isa, c.has), "%v %+v", c.isa, c.has)
	}
}

// The pin is read once, so each level computes in a process of its own; one that is missing here means portable code.
func TestPinnedLevel(t *testing.T) {
	if name, ok := os.LookupEnv("ORDERED_PINNED"); ok {
		isa, err := cpuinfo.ParseISA(name)
		if err != nil {
			isa = cpuinfo.Portable
		}
		require.Equal(t, choose(isa, cpuinfo.Get().Features), use)
		return
	}
	for _, name := range append(cpuinfo.Get().Names(), "vax") {
		cmd := rerun.Self("-test.run=^(TestPinnedLevel|TestF32Driver|TestS8)$")
		cmd.Env = append(os.Environ(), "TESSERA_ISA="+name, "ORDERED_PINNED="+name)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

func TestF32Driver(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 2))
	for range 60 {
		m, n, k, chunks := 1+rng.IntN(21), 1+rng.IntN(150), 1+rng.IntN(9), 1+rng.IntN(3)
		depth := chunks * k
		rows, cols := PaddedM(m, MR), PaddedN(n)
		a, b := make([]float32, rows*depth), make([]float32, cols*depth)
		am, bm := make([]float32, m*depth), make([]float32, depth*n)
		for i := range am {
			am[i] = bf16(rng, false)
			r, p := i/depth, i%depth
			a[r/MR*MR*depth+p*MR+r%MR] = am[i]
		}
		wide, _ := Panels(n)
		for i := range bm {
			bm[i] = bf16(rng, false)
			p, j := i/n, i%n
			j0, w := j/48*48, 48
			if j >= 48*wide {
				j0, w = 48*wide+(j-48*wide)/32*32, 32
			}
			b[j0*depth+p*w+j-j0] = bm[i]
		}
		c := make([]float32, rows*cols)
		F32(c, cols, a, MR*depth, b, depth, m, n, chunks, k, false, BF16Even)
		for i := range m {
			for j := range n {
				var acc float32
				for p := range depth {
					acc = FMA(am[i*depth+p], bm[p*n+j], acc)
					if p%k == k-1 {
						acc = BF16Even.Round(acc)
					}
				}
				require.True(t, sameBits(acc, c[i*cols+j]))
			}
		}
	}
}

func TestRound(t *testing.T) {
	for _, c := range []struct {
		in          uint32
		even, floor uint32
	}{
		{0x3F800000, 0x3F800000, 0x3F800000},
		{0x3F808000, 0x3F800000, 0x3F800000}, // tie to even, down
		{0x3F818000, 0x3F820000, 0x3F810000}, // tie to even, up
		{0xBF800001, 0xBF800000, 0xBF810000},
		{0x7F7FFFFF, 0x7F800000, 0x7F7F0000},
		{0xFF7FFFFF, 0xFF800000, 0xFF800000},
		{0xFF800000, 0xFF800000, 0xFF800000},
		{0x80000001, 0x80000000, 0x80010000},
	} {
		v := math.Float32frombits(c.in)
		require.Equal(t, c.even, math.Float32bits(BF16Even.Round(v)), "%x", c.in)
		require.Equal(t, c.floor, math.Float32bits(BF16Floor.Round(v)), "%x", c.in)
		require.Equal(t, c.in, math.Float32bits(Keep.Round(v)))
	}
	nan := BF16Floor.Round(math.Float32frombits(0x7F800001))
	require.True(t, nan != nan)
}

func TestS8(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for range 100 {
		m, n, k := 1+rng.IntN(30), 1+rng.IntN(150), 4*(1+rng.IntN(30))
		rows, cols := PaddedM(m, MRS8), PaddedN(n)
		a, b, bias := make([]byte, rows*k), make([]int8, cols*k), make([]int32, cols)
		am, bm := make([]int8, m*k), make([]int8, k*n)
		for i := range a {
			a[i] = 128
		}
		for i := range am {
			am[i] = int8(rng.Uint32())
			r, p := i/k, i%k
			a[r/MRS8*MRS8*k+p/4*MRS8*4+r%MRS8*4+p%4] = byte(am[i]) + 128
		}
		wide, _ := Panels(n)
		for i := range bm {
			bm[i] = int8(rng.Uint32())
			p, j := i/n, i%n
			j0, w := j/48*48, 48
			if j >= 48*wide {
				j0, w = 48*wide+(j-48*wide)/32*32, 32
			}
			b[j0*k+p/4*w*4+(j-j0)*4+p%4] = bm[i]
			bias[j] -= 128 * int32(bm[i])
		}
		c := make([]int32, rows*cols)
		for i := range c {
			c[i] = int32(rng.Uint32())
		}
		want := append([]int32(nil), c...)
		S8(c, cols, a, MRS8*k, b, k, bias, m, n, k)
		for i := range m {
			for j := range n {
				for p := range k {
					want[i*cols+j] += int32(am[i*k+p]) * int32(bm[p*n+j])
				}
				require.Equal(t, want[i*cols+j], c[i*cols+j])
			}
		}
	}
}

func TestShortOperandsPanic(t *testing.T) {
	require.Panics(t, func() {
		F32(make([]float32, 4*32), 32, make([]float32, 4*8), 32, make([]float32, 31*8), 8, 4, 32, 1, 8, false, Keep)
	})
}

// benchmarkLevels runs f with each level's kernels and prints the rate, as a percentage too of the peak of the processor's engine for that type.
func benchmarkLevels(b *testing.B, name string, typ gemm.Type, ops int, f func()) {
	hasLevels(b, func(l levels) {
		isa := l.f32
		if typ == gemm.S8 {
			isa = l.s8
		}
		b.Run(fmt.Sprintf("%s/%v", name, isa), func(b *testing.B) {
			defer func(old levels) { use = old }(use)
			use = l
			peak := gemm.Peak(typ, 1, nil) / 2
			for b.Loop() {
				f()
			}
			rate := float64(ops) * float64(b.N) / b.Elapsed().Seconds() / 1e9
			b.ReportMetric(rate, "GMAC/s")
			b.ReportMetric(100*rate/max(peak, gemm.Peak(typ, 1, nil)/2), "%peak")
		})
	})
}

func BenchmarkF32(b *testing.B) {
	for _, n := range []int{96, 64} { // panels of 48 and of 32
		for _, how := range []string{"fma", "group"} {
			const m, k = 96, 48
			cols := PaddedN(n)
			x, y, c := make([]float32, m*k), make([]float32, cols*k), make([]float32, m*cols)
			benchmarkLevels(b, fmt.Sprintf("%s/%d", how, n), gemm.F32, m*n*k, func() {
				F32(c, cols, x, MR*k, y, k, m, n, 1, k, how == "group", BF16Even)
			})
		}
	}
}

func BenchmarkS8(b *testing.B) {
	const m, n, k = 128, 112, 72
	cols := PaddedN(n)
	x, y, c, bias := make([]byte, m*k), make([]int8, cols*k), make([]int32, m*cols), make([]int32, cols)
	benchmarkLevels(b, "s8", gemm.S8, m*n*k, func() { S8(c, cols, x, MRS8*k, y, k, bias, m, n, k) })
}
