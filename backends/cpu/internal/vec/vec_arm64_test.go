//go:build !noasm

package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// NEON rounds exponentials and rotations as the Go twins do, at every place of a row.
func TestTwinsOfNEON(t *testing.T) {
	v := For(cpuinfo.NEON)
	require.Equal(t, cpuinfo.NEON, v.ISA)
	r := rand.New(rand.NewPCG(9, 9))
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), expTop, expLow,
		math.Nextafter32(expTop, 100), math.Nextafter32(expLow, -200), -87.4, 1e-40}
	for n := range 70 {
		x := random(r, n)
		for i := range x {
			x[i] *= float32(math.Ldexp(1, r.IntN(9)))
			if r.IntN(4) == 0 {
				x[i] = special[r.IntN(len(special))]
			}
		}
		got, want := make([]float32, n), make([]float32, n)
		v.Exp(got, x)
		expGo(want, x)
		require.True(t, sameBits(want, got), "exp of %v is %v, twin %v", x, got, want)
		a, b := random(r, 2*n), random(r, 2*n)
		a2, b2 := append([]float32{}, a...), append([]float32{}, b...)
		c, s := random(r, 2*n), random(r, 2*n)
		v.Rotate(a, b, c, s)
		rotateGo(a2, b2, c, s)
		v.RotatePairs(a, c[:n], s[:n])
		rotatePairsGo(a2, c[:n], s[:n])
		require.Equal(t, append(a2, b2...), append(a, b...))
	}
}
