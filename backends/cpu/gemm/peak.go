package gemm

import (
	"sync"
	"time"
)

// Peak measures the ceiling of products whose weights are of type b on this processor: the rate of the one instruction that
// does their arithmetic, on registers only, on that many threads at once, in 1e9 operations a second (a multiply-add counts
// as two). For bf16 it is that of the mode in o. It takes about two milliseconds; the clock of a shared machine varies, so
// measure it next to what is compared with it. It is 0 where there is no such loop.
func Peak(b Type, threads int, o *Options) float64 {
	isa, err := o.isa()
	if err != nil {
		return 0
	}
	a := b
	if b == F16 {
		a = F32
	}
	e, err := engineFor(isa, a, b, format{}, o.bf16())
	if err != nil {
		return 0
	}
	loop, perRound := peakLoop(e.main)
	if loop == nil {
		return 0
	}
	n := 2000
	for {
		t := time.Now()
		inPieces(loop, n)
		if d := time.Since(t); d > time.Millisecond/4 {
			n = int(float64(n) * float64(2*time.Millisecond) / float64(d))
			break
		}
		n *= 2
	}
	var ready, done sync.WaitGroup
	ready.Add(threads)
	done.Add(threads)
	start := make(chan struct{})
	for range threads {
		go func() {
			ready.Done()
			<-start
			inPieces(loop, n)
			done.Done()
		}()
	}
	ready.Wait()
	t := time.Now()
	close(start)
	done.Wait()
	return float64(n) * perRound * float64(threads) / time.Since(t).Seconds() / 1e9
}

// inPieces runs n rounds in calls of tens of microseconds, because a call cannot be interrupted.
func inPieces(loop func(int), n int) {
	const rounds = 8000
	for ; n > 0; n -= rounds {
		loop(min(n, rounds))
	}
}
