package ordered

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
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

func TestF32AgainstTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
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
		a, b := make([]float32, MR*chunks*k), make([]float32, w*chunks*k)
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
			}
		}
		c := make([]float32, MR*ldc)
		for i := range c {
			c[i] = bf16(rng, wild)
		}
		want := append([]float32(nil), c...)
		tileF32Go(want, ldc, a, b, w, chunks, k, groups, narrow)
		tileF32(c, ldc, a, b, w, chunks, k, groups, narrow)
		for i := range c {
			require.True(t, sameBits(want[i], c[i]), "round %d element %d: want %x got %x", round, i, math.Float32bits(want[i]), math.Float32bits(c[i]))
		}
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

func BenchmarkF32(b *testing.B) {
	for name, groups := range map[string]bool{"fma": false, "group": true} {
		b.Run(name, func(b *testing.B) {
			const m, n, k = 96, 96, 48
			a, bb, c := make([]float32, m*k), make([]float32, n*k), make([]float32, m*n)
			for b.Loop() {
				F32(c, n, a, MR*k, bb, k, m, n, 1, k, groups, BF16Even)
			}
			b.ReportMetric(float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}

func BenchmarkS8(b *testing.B) {
	const m, n, k = 128, 112, 72
	cols := PaddedN(n)
	a, bb, c, bias := make([]byte, m*k), make([]int8, cols*k), make([]int32, m*cols), make([]int32, cols)
	for b.Loop() {
		S8(c, cols, a, MRS8*k, bb, k, bias, m, n, k)
	}
	b.ReportMetric(float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}
