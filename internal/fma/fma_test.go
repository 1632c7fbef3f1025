package fma

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

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

func FuzzF32(f *testing.F) {
	f.Add(uint32(0x3f800001), uint32(0x33800000), uint32(0x3f800000))
	f.Fuzz(func(t *testing.T, a, b, c uint32) {
		check(t, math.Float32frombits(a), math.Float32frombits(b), math.Float32frombits(c))
	})
}
