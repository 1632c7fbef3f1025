package par

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/rerun"
)

// most counts how many jobs run at once.
type most struct{ now, most atomic.Int64 }

func (m *most) enter() {
	v := m.now.Add(1)
	for {
		old := m.most.Load()
		if v <= old || m.most.CompareAndSwap(old, v) {
			return
		}
	}
}

func (m *most) leave() { m.now.Add(-1) }

// TestWorkersAsked: GOMAXPROCS by default, fewer where the call says so, never more than there are jobs.
func TestWorkersAsked(t *testing.T) {
	procs(t, 4)
	for _, c := range []struct{ limit, jobs, want int }{{0, 100, 4}, {2, 100, 2}, {1, 100, 1}, {64, 100, 4}, {0, 3, 3}, {0, 1, 1}} {
		var m most
		var started sync.WaitGroup
		started.Add(c.want)
		var first [64]atomic.Bool
		task := &count{hits: make([]atomic.Int32, c.jobs)}
		task.do = func(worker, _ int) {
			m.enter()
			defer m.leave()
			if !first[worker].Swap(true) {
				started.Done()
				started.Wait() // every worker that the region may have does come, and no other, which would make Done panic
			}
		}
		Run(c.limit, c.jobs, task)
		require.EqualValues(t, c.want, m.most.Load(), "limit %d, %d jobs", c.limit, c.jobs)
	}
}

// TestNoOversubscription: several callers, each asking for all processors and again from inside its region, share them. One that comes
// while helpers of another are at work gets none; so at most each caller and as many helpers as one of them would have had alone are at
// work, where callers that each had all processors would be procs times callers.
func TestNoOversubscription(t *testing.T) {
	for _, c := range []struct{ procs, callers int }{{4, 1}, {4, 2}, {4, 4}, {2, 6}} {
		procs(t, c.procs)
		var m most
		var wg sync.WaitGroup
		for range c.callers {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 6 {
					outer := &count{hits: make([]atomic.Int32, 6)}
					outer.do = func(int, int) {
						inner := &count{hits: make([]atomic.Int32, 6)}
						inner.do = func(int, int) {
							m.enter()
							time.Sleep(20 * time.Microsecond)
							m.leave()
						}
						Run(0, 6, inner)
					}
					Run(0, 6, outer)
				}
			}()
		}
		wg.Wait()
		require.LessOrEqual(t, m.most.Load(), int64(c.procs-1+c.callers), "%d processors, %d callers", c.procs, c.callers)
	}
}

// TestNoProcessorTimeBetweenCalls: once the helpers have parked, an idle process uses next to none.
func TestNoProcessorTimeBetweenCalls(t *testing.T) {
	procs(t, 4)
	Run(0, 100, nothing{})
	time.Sleep(50 * time.Millisecond)
	runtime.GC() // not during the measurement
	before, ok := processorTime()
	if !ok {
		t.Skip("this system does not say how much processor time a process used")
	}
	const idle = 300 * time.Millisecond
	time.Sleep(idle)
	after, _ := processorTime()
	require.Less(t, after-before, idle/10)
}

// TestSpinTime: the threshold comes from the environment, and 0 parks at once.
func TestSpinTime(t *testing.T) {
	if want := os.Getenv("PAR_CHILD"); want != "" {
		require.Equal(t, want, spinTime().String())
		procs(t, 3)
		c := &count{hits: make([]atomic.Int32, 500)}
		for range 50 {
			Run(3, 500, c)
		}
		require.EqualValues(t, 50, c.hits[499].Load())
		return
	}
	for env, want := range map[string]string{"0": "0s", "7": "7µs", "": "1ms", "-1": "1ms"} {
		cmd := rerun.Self("-test.run", "^TestSpinTime$")
		cmd.Env = append(os.Environ(), "PAR_CHILD="+want, "TESSERA_SPIN_MICROSECONDS="+env, "TESSERA_PROFILE=none")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}
