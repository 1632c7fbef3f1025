package gemm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStackGrowth: a stack that grows, and so moves, between a row operation and its kernel changes no result. With the race detector calls
// are laid out so that an address which was hidden from the compiler became stale here.
func TestStackGrowth(t *testing.T) {
	v := bestVec()
	wrong := make(chan int, 1)
	for depth := range 2000 {
		x := []float32{-1, 2, -3}
		go func() {
			deep(depth, func() { v.act[ReLU](x, 0, 0) })
			n := 0
			for i, want := range []float32{0, 2, 0} {
				if x[i] != want {
					n++
				}
			}
			wrong <- n
		}()
		require.Zero(t, <-wrong, "%d calls deep: %v", depth, x)
	}
}

// deep calls f after so many calls.
//
//go:noinline
func deep(n int, f func()) byte {
	var frame [16]byte
	frame[n%16] = 1
	if n == 0 {
		f()
		return frame[0]
	}
	return deep(n-1, f) + frame[1]
}
