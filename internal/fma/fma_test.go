package fma

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// exact computes a*b + c without rounding and rounds once.
func exact(a, b, c float32) float32 {
	x := func(v float32) *big.Float { return new(big.Float).SetPrec(1000).SetFloat64(float64(v)) }
	s := x(a)
	s.Mul(s, x(b)).Add(s, x(c))
	f, _ := s.Float32()
	return f
}

func check(t *testing.T, a, b, c float32) {
	t.Helper()
	finite := func(v float32) bool { return v-v == 0 }
	got := F32(a, b, c)
	if !finite(a) || !finite(b) || !finite(c) {
		want := float32(float64(a)*float64(b) + float64(c)) // no rounding is involved
		require.True(t, got == want || got != got && want != want, "%x * %x + %x = %v, want %v", a, b, c, got, want)
		return
	}
	require.Equal(t, exact(a, b, c)+0, got+0, "%x * %x + %x", a, b, c)
}

func TestF32(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	special := []float32{0, 1, -1, inf, -inf, nan, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32,
		0x1p-126, 0x1p-127, 0x1.fffffep-127, 1 + 0x1p-23, 1 - 0x1p-24, 0x1p-24, 0x1p-23, 0x1p-25, 0x1p-149, 0x1p-75, 0x1p24}
	for _, a := range special {
		for _, b := range special {
			for _, c := range special {
				check(t, a, b, c)
			}
		}
	}
	for range 200_000 {
		a, b := math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
		c := math.Float32frombits(r.Uint32())
		if r.IntN(2) == 0 { // of about the size of the product, so that both count
			c = float32(float64(a) * float64(b) * math.Ldexp(1+r.Float64(), r.IntN(60)-30))
		}
		check(t, a, b, c)
	}
	// Sums that lie on the middle between two float32 but for a term that float64 loses.
	for range 10_000 {
		k := r.IntN(40)
		a := float32(1 + float64(r.IntN(1<<12))*0x1p-12)
		check(t, a, 0x1p-24, 1)
		check(t, math.Nextafter32(a, 2), float32(math.Ldexp(1, -24-k)), a)
		check(t, a, float32(math.Ldexp(1, -126-r.IntN(24))), float32(math.Ldexp(float64(1+r.IntN(1<<20)), -149)))
	}
}

// chain compares four sums of k products with F32, and the operands by turns.
func chain(t *testing.T, c [4]float32, a, b []float32) {
	t.Helper()
	for k := range len(a) + 1 {
		got, want := c, c
		Chain4(&got, unsafe.Pointer(unsafe.SliceData(a)), unsafe.Pointer(unsafe.SliceData(b)), 4, 16, k)
		for i, x := range a[:k] {
			for j := range want {
				want[j] = F32(x, b[4*i+j], want[j])
			}
		}
		for j := range want {
			u, v := math.Float32bits(want[j]), math.Float32bits(got[j])
			require.True(t, u == v || want[j] != want[j] && got[j] != got[j], "%x of %d steps, column %d: %x, want %x\n%x\n%x\n%x", got, k, j, v, u, c, a, b)
		}
	}
}

// TestChain4 takes sums through middles between two float32, subnormals, zeros, overflow and back.
func TestChain4(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1 + 0x1p-23, 0x1p-24, -0x1p-24, 0x1p-23, 0x1p-63, -0x1p-62, 0x1p-75, 0x1p-126, -0x1p-125,
		0x1p-127, 0x1.fffffep-127, -0x1.fffffcp-126, 0x1p-149, -0x1p-149, 0x1p24, 0x1p64, -0x1p64, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN())}
	draw := map[string]func() float32{
		"bits":    func() float32 { return math.Float32frombits(r.Uint32()) },
		"unit":    func() float32 { return r.Float32()*2 - 1 },
		"few":     func() float32 { return float32(r.IntN(64)-32) / 8 }, // exact sums, many zeros
		"halfway": func() float32 { return math.Float32frombits(math.Float32bits(r.Float32()-0.5) &^ 0xffff) },
		"special": func() float32 { return special[r.IntN(len(special))] },
		"finite":  func() float32 { return special[r.IntN(len(special)-2)] },
		// Products and sums about where subnormals begin.
		"tiny": func() float32 { return (r.Float32()*2 - 1) * float32(math.Ldexp(1, -60-r.IntN(16))) },
	}
	for name, f := range draw {
		t.Run(name, func(t *testing.T) {
			for range 3000 {
				var c [4]float32
				a, b := make([]float32, 1+r.IntN(12)), make([]float32, 48)
				for i := range a {
					a[i] = f()
				}
				for i := range b {
					b[i] = f()
				}
				for j := range c {
					c[j] = f()
					if name == "tiny" {
						c[j] *= 0x1p-62
					}
				}
				chain(t, c, a, b)
			}
		})
	}
}

// TestChain4Middle: sums just beside the middle between two float32, which is another bit of a float64 where they are subnormal.
func TestChain4Middle(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, first := range []uint32{0, 0x3f800000} { // the subnormals, and 1 to 2
		misled := 0
		scale := float32(0x1p-75)
		if first != 0 {
			scale = 0x1p-12
		}
		for range 2000 {
			// Half of the last place, but for what float64 loses beside the sum; or a step that changes nothing, or one that leads elsewhere.
			a, b := make([]float32, 8), make([]float32, 32)
			c := [4]float32{}
			for j := range c {
				c[j] = math.Float32frombits(first + r.Uint32N(1<<23))
			}
			for i := range a {
				a[i] = []float32{(1 + 0x1p-23) * scale, scale, 0x1p12 * scale, 1}[r.IntN(4)]
				for j := range 4 {
					b[4*i+j] = []float32{(1 - 0x1p-23) * scale, -(1 - 0x1p-23) * scale, 0, scale}[r.IntN(4)]
				}
			}
			if s := float64(a[0])*float64(b[0]) + float64(c[0]); float32(s) != F32(a[0], b[0], c[0]) {
				misled++
			}
			chain(t, c, a, b)
		}
		require.Greater(t, misled, 100, "two roundings get these sums wrong")
	}
}

func FuzzF32(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x33800000), uint32(0x3f800000))
	f.Fuzz(func(t *testing.T, a, b, c uint32) {
		check(t, math.Float32frombits(a), math.Float32frombits(b), math.Float32frombits(c))
	})
}
