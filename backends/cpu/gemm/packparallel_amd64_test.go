//go:build !noasm

package gemm

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestPackingIsParallel: weights are packed by as many workers as were asked for. The first function of packing that is called waits until another worker
// calls one as well, so that no clock decides; one worker alone never meets another.
func TestPackingIsParallel(t *testing.T) {
	if !slices.Contains(isas(), cpuinfo.AVX2) {
		t.Skip("packing without AVX2 calls no function that a test can replace")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	var inside, most, calls atomic.Int32
	both := make(chan struct{})
	threads := 0
	seePacking(t, func(string, int) {
		now := inside.Add(1)
		if calls.Add(1) == 1 && threads == 2 {
			select {
			case <-both:
			case <-time.After(5 * time.Second):
			}
		}
		if now == 2 && most.Swap(2) < 2 {
			close(both)
		}
		most.CompareAndSwap(0, now)
		inside.Add(-1)
	})
	const n, k = 512, 256
	for _, b := range []Matrix{Of(make([]float32, n*k), k, n), Of(make([]int8, n*k), k, n)} {
		for _, threads = range []int{1, 2} {
			most.Store(0)
			calls.Store(0)
			both = make(chan struct{})
			p, err := PackB(b, &Options{Threads: threads, ISA: cpuinfo.AVX2})
			require.NoError(t, err)
			require.NoError(t, p.Close())
			require.EqualValues(t, threads, most.Load(), "%v: workers that packed at once", b.typ)
		}
	}
}
