package par

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
)

type count struct {
	hits    []atomic.Int32
	workers sync.Map
	do      func(worker, job int)
}

func (c *count) Do(worker, job int) {
	c.hits[job].Add(1)
	c.workers.Store(worker, true)
	if c.do != nil {
		c.do(worker, job)
	}
}

func procs(t *testing.T, n int) {
	old := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

func TestEveryJobOnce(t *testing.T) {
	procs(t, 4)
	for _, limit := range []int{0, 1, 2, 3, 64} {
		for _, n := range []int{0, 1, 2, 3, 7, 64, 1000} {
			c := &count{hits: make([]atomic.Int32, n)}
			Run(limit, n, c)
			for i := range c.hits {
				require.EqualValues(t, 1, c.hits[i].Load(), "limit %d, n %d, job %d", limit, n, i)
			}
			c.workers.Range(func(w, _ any) bool {
				require.Less(t, w.(int), Workers(limit, n))
				return true
			})
		}
	}
}

func TestOneJobAWorkerAtATime(t *testing.T) {
	procs(t, 4)
	var busy [8]atomic.Int32
	c := &count{hits: make([]atomic.Int32, 200)}
	c.do = func(worker, _ int) {
		if busy[worker].Add(1) != 1 {
			panic("two jobs on one worker")
		}
		runtime.Gosched()
		busy[worker].Add(-1)
	}
	Run(4, 200, c)
}

// Nested and concurrent regions must finish whatever GOMAXPROCS is (OpenBLAS issues 5947 and 4582 are of this kind).
func TestNestedAndConcurrent(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		procs(t, n)
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 20 {
					outer := &count{hits: make([]atomic.Int32, 5)}
					outer.do = func(int, int) {
						inner := &count{hits: make([]atomic.Int32, 9)}
						Run(0, 9, inner)
						for i := range inner.hits {
							if inner.hits[i].Load() != 1 {
								panic("job lost")
							}
						}
					}
					Run(0, 5, outer)
				}
			}()
		}
		wg.Wait()
	}
	require.EqualValues(t, 0, active.Load())
}

func TestNoMoreWorkersThanProcessors(t *testing.T) {
	procs(t, 2)
	var now, most atomic.Int64
	c := &count{hits: make([]atomic.Int32, 40)}
	c.do = func(int, int) {
		v := now.Add(1)
		for {
			m := most.Load()
			if v <= m || most.CompareAndSwap(m, v) {
				break
			}
		}
		time.Sleep(100 * time.Microsecond)
		now.Add(-1)
	}
	Run(64, 40, c)
	require.LessOrEqual(t, most.Load(), int64(2))
}

func TestPanicReachesTheCaller(t *testing.T) {
	procs(t, 3)
	c := &count{hits: make([]atomic.Int32, 50)}
	c.do = func(_, job int) {
		if job == 17 {
			panic("seventeen")
		}
	}
	require.PanicsWithValue(t, "seventeen", func() { Run(3, 50, c) })
	c.do = nil
	c.hits = make([]atomic.Int32, 50)
	Run(3, 50, c) // the pool still works
	require.EqualValues(t, 1, c.hits[49].Load())
}

type nothing struct{}

func (nothing) Do(int, int) {}

func TestNoAllocation(t *testing.T) {
	procs(t, 2)
	var task Task = nothing{}
	Run(2, 8, task)
	require.Zero(t, testing.AllocsPerRun(200, func() { Run(2, 8, task) }))
}

func TestHelpersPark(t *testing.T) {
	procs(t, 3)
	Run(3, 30, nothing{})
	require.Eventually(t, func() bool {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		for _, h := range shared.helpers {
			if !h.parked.Load() {
				return false
			}
		}
		return true
	}, 5*time.Second, time.Millisecond)
}

func BenchmarkForkJoin(b *testing.B) {
	var task Task = nothing{}
	for b.Loop() {
		Run(2, 2, task)
	}
}

// A region does not wait for a helper that has not begun when nothing is left to do.
func TestHelperThatDoesNotRun(t *testing.T) {
	procs(t, 2)
	var p pool
	h := &helper{wake: make(chan struct{}, 1)} // which nobody serves
	p.helpers = append(p.helpers, h)
	p.free[0] = 1
	for range 3 {
		c := &count{hits: make([]atomic.Int32, 50)}
		p.run(1, 50, c)
		for i := range c.hits {
			require.EqualValues(t, 1, c.hits[i].Load())
		}
		require.Nil(t, h.work.Load())
		require.EqualValues(t, 1, p.free[0])
	}
}

// TestFaultsFollowTheCaller: a helper's memory fault is the caller's panic where the caller takes its own as one.
func TestFaultsFollowTheCaller(t *testing.T) {
	procs(t, 2)
	data, release, err := mem.Guarded(1)
	if err != nil {
		t.Skip(err)
	}
	defer release()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var sum atomic.Int64
	for range 20 {
		var both sync.WaitGroup
		both.Add(2)
		task := &count{hits: make([]atomic.Int32, 2)}
		task.do = func(worker, _ int) {
			both.Done()
			both.Wait()
			if worker == 1 {
				sum.Add(int64(*(*byte)(unsafe.Add(unsafe.Pointer(&data[0]), 1))))
			}
		}
		require.Panics(t, func() { Run(2, 2, task) })
	}
}
