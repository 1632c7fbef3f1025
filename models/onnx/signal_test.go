package onnx

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The transform of every kind of length equals its definition, and a long one of prime length takes no quadratic time.
func TestFourier(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float64 {
		v := make([]float64, 2*n)
		for i := range v {
			v[i] = r.NormFloat64()
		}
		return v
	}
	for _, n := range []int{1, 2, 3, 5, 8, 12, 63, 65, 67, 130, 201, 514} {
		for _, sign := range []float64{-1, 1} {
			v := random(n)
			got := fourier(v, sign)
			for k := range n {
				var want complex128
				for i := range n {
					want += complex(v[2*i], v[2*i+1]) * cmplx.Exp(complex(0, sign*2*math.Pi*float64(k*i%n)/float64(n)))
				}
				require.InDelta(t, real(want), got[2*k], 1e-10*float64(n), "n %d k %d", n, k)
				require.InDelta(t, imag(want), got[2*k+1], 1e-10*float64(n), "n %d k %d", n, k)
			}
		}
	}
	const prime = 131071
	v := random(prime)
	back := fourier(fourier(v, -1), 1)
	for i := range v {
		require.InDelta(t, v[i], back[i]/prime, 1e-9)
	}
}
