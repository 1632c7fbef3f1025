// Package par runs the jobs of one parallel region on a pool of goroutines that outlive it. It decides three things.
//
// How a helper waits: it spins for a millisecond, because the next region of a model usually follows within that time and
// a parked goroutine costs several microseconds to wake, on a virtual processor many more, and then it parks, so that an idle program uses no processor time.
//
// How many helpers a region gets: never more than it has jobs, never more than its limit, and no more than GOMAXPROCS less
// the callers that are inside regions already. Helpers are claimed by the region that uses them, so that regions started from
// several goroutines, or from a job of another region, share the processors and can never wait for each other.
//
// Who runs a job: the caller is worker 0 and takes part. Every worker has a range of the jobs, the same in each region of as many
// jobs, so that what a job reads and writes again is still in the caches of its processor; one that has done its own takes from the
// ranges of others until no job is left. Which worker runs a job is not determined, so a job's result must not depend on it.
package par

import (
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/tessera-go/tessera/internal/knob"
)

// Task is the work of a region. Do runs job number job, 0 <= job < n, on worker number worker, 0 <= worker < Workers(limit, n).
// Two jobs may run at once on different workers, never on the same one.
type Task interface {
	Do(worker, job int)
}

// MaxHelpers bounds the pool; larger machines run regions on this many helpers and the caller.
const MaxHelpers = 255

type knobs struct{ spin int }

var knobTable = knob.NewTable("internal/par", nil,
	knob.Int(func(k *knobs) *int { return &k.spin }, "TESSERA_SPIN_MICROSECONDS", 1000, 0, 10_000,
		"how long a worker looks for the next parallel region before it parks, and a caller for the end of its own: longer than a virtual processor with busy neighbours "+
			"is held up, after which waking it would hold up the next region too, and far below what a user can see as load"),
)

// spinTime is the threshold. An illegal one is the error of the products that run regions; here it is the default.
var spinTime = sync.OnceValue(func() time.Duration {
	k, err := knobTable.Get()
	if err != nil {
		k = knobTable.Defaults()
	}
	return time.Duration(k.spin) * time.Microsecond
})

// Workers returns the largest number of workers that a region of n jobs with the limit can have; limit 0 means GOMAXPROCS.
// Scratch memory per worker is sized by it.
func Workers(limit, n int) int {
	if limit <= 0 {
		limit = runtime.GOMAXPROCS(0)
	}
	return max(1, min(limit, n, MaxHelpers+1))
}

// Run does jobs 0 to n-1 of the task on at most limit workers (0: GOMAXPROCS) and returns when all are done. A panic in a job
// is raised again in the caller after the other workers have stopped. Run allocates nothing once the pool has grown.
func Run(limit, n int, task Task) {
	if n <= 0 {
		return
	}
	want := Workers(limit, n) - 1
	if want == 0 {
		// The caller still counts as active, so that other regions leave it its processor.
		active.Add(1)
		defer active.Add(-1)
		for job := range n {
			task.Do(0, job)
		}
		return
	}
	shared.run(want, n, task)
}

// active counts the goroutines that are inside a region: callers and helpers at work.
var active atomic.Int64

var shared pool

type pool struct {
	mu      sync.Mutex
	free    [4]uint64 // helpers that wait, a bit each; guarded by mu
	helpers []*helper // those that exist; guarded by mu
	regions *region   // free list; guarded by mu
}

// region is one parallel loop. The counters that every worker writes stay on cache lines of their own.
type region struct {
	task    Task
	n       int
	ranges  []jobRange // one for each worker that was wanted
	claimed []*helper
	faults  bool // the caller takes memory faults as panics, and so do the helpers
	link    *region
	failure atomic.Pointer[failure]
	_       [64]byte
	pending atomic.Int64 // helpers that have not finished
	parked  atomic.Bool  // the caller sleeps on done
	_       [48]byte
	done    chan struct{}
}

// jobRange is what is left of one worker's jobs.
type jobRange struct {
	next atomic.Int64
	end  int64
	_    [112]byte // two cache lines, which processors fetch together
}

// take returns the next job, or false when none is left.
func (j *jobRange) take() (int, bool) {
	if j.next.Load() >= j.end {
		return 0, false
	}
	job := j.next.Add(1) - 1
	return int(job), job < j.end
}

type failure struct{ value any }

type helper struct {
	index  int
	work   atomic.Pointer[region]
	worker int // number inside the region; written before work
	parked atomic.Bool
	wake   chan struct{}
	_      [64]byte
}

func (p *pool) run(want, n int, task Task) {
	procs := int64(runtime.GOMAXPROCS(0))
	want = int(min(int64(want), procs-active.Add(1)))
	defer active.Add(-1)
	if want <= 0 {
		for job := range n {
			task.Do(0, job)
		}
		return
	}

	p.mu.Lock()
	r := p.regions
	if r == nil {
		r = &region{done: make(chan struct{}, 1)}
	} else {
		p.regions = r.link
	}
	r.task, r.n, r.link = task, n, nil
	r.faults = debug.SetPanicOnFault(true)
	debug.SetPanicOnFault(r.faults)
	r.divide(want + 1)
	r.claimed = r.claimed[:0]
	r.pending.Store(int64(want))
	for worker := 1; worker <= want; worker++ {
		var h *helper
		if active.Load() < procs { // another region may have claimed helpers since want was computed
			h = p.claim()
		}
		if h == nil {
			r.pending.Add(int64(worker - 1 - want))
			break
		}
		active.Add(1)
		r.claimed = append(r.claimed, h)
		h.worker = worker
		h.work.Store(r)
		if h.parked.Swap(false) {
			h.wake <- struct{}{}
		}
	}
	p.mu.Unlock()

	start := time.Now()
	r.loop(0)
	if r.pending.Load() != 0 {
		p.release(r)
	}
	if r.pending.Load() != 0 {
		// Helpers are at work. One that ends after the caller has parked has to wake it, so that the next region starts late and
		// ends late again: the caller looks for the end as long as the region has taken so far.
		spin(max(spinTime(), time.Since(start)), func() bool { return r.pending.Load() == 0 })
		for r.pending.Load() != 0 {
			r.parked.Store(true)
			// Either a helper takes the flag and sends, or all have finished and the flag is ours to take back. The helper
			// may be the last one of the region's previous life, hence the loop.
			if r.pending.Load() == 0 && r.parked.CompareAndSwap(true, false) {
				break
			}
			<-r.done
		}
	}

	f := r.failure.Swap(nil)
	p.mu.Lock()
	r.task = nil
	r.link, p.regions = p.regions, r
	p.mu.Unlock()
	if f != nil {
		panic(f.value)
	}
}

// claim takes a waiting helper, or starts one; it is called with mu held.
func (p *pool) claim() *helper {
	for w := range p.free {
		if p.free[w] != 0 {
			b := bits.TrailingZeros64(p.free[w])
			p.free[w] &^= 1 << b
			return p.helpers[w*64+b]
		}
	}
	if len(p.helpers) == MaxHelpers {
		return nil
	}
	h := &helper{index: len(p.helpers), wake: make(chan struct{}, 1)}
	p.helpers = append(p.helpers, h)
	go h.serve(p)
	return h
}

// release takes back the helpers of a region that have not begun: those that sleep still, or that the system does not let run. Nothing is
// left for them to do, and the caller would wait for no more than their awakening.
func (p *pool) release(r *region) {
	p.mu.Lock()
	for _, h := range r.claimed {
		if h.work.CompareAndSwap(r, nil) {
			active.Add(-1)
			p.free[h.index/64] |= 1 << (h.index % 64)
			r.pending.Add(-1)
		}
	}
	p.mu.Unlock()
}

// begun stands in a helper's work for the region that it is at work for.
var begun = new(region)

func (h *helper) serve(p *pool) {
	for {
		r := h.work.Load()
		if r == nil {
			spin(spinTime(), func() bool { return h.work.Load() != nil })
			if h.work.Load() == nil {
				h.parked.Store(true)
				// A region that stored its work before it could see the flag has not sent; one that saw it has.
				if h.work.Load() == nil || !h.parked.CompareAndSwap(true, false) {
					<-h.wake
				}
			}
			continue
		}
		if !h.work.CompareAndSwap(r, begun) { // taken back
			continue
		}
		debug.SetPanicOnFault(r.faults)
		r.loop(h.worker)
		h.work.Store(nil)
		active.Add(-1)
		p.mu.Lock()
		p.free[h.index/64] |= 1 << (h.index % 64)
		p.mu.Unlock()
		if r.pending.Add(-1) == 0 && r.parked.Swap(false) {
			r.done <- struct{}{}
		}
	}
}

// divide gives each of so many workers a range of the jobs.
func (r *region) divide(workers int) {
	if workers > cap(r.ranges) {
		r.ranges = make([]jobRange, workers)
	}
	r.ranges = r.ranges[:workers]
	at := 0
	for w := range r.ranges {
		r.ranges[w].next.Store(int64(at))
		at += r.n / workers
		if w < r.n%workers {
			at++
		}
		r.ranges[w].end = int64(at)
	}
}

// loop does jobs until none is left. A panic ends the region early and is kept for the caller.
func (r *region) loop(worker int) {
	defer func() {
		if v := recover(); v != nil {
			r.failure.CompareAndSwap(nil, &failure{v})
			for i := range r.ranges {
				r.ranges[i].next.Store(r.ranges[i].end)
			}
		}
	}()
	for i := range r.ranges {
		jobs := &r.ranges[(worker+i)%len(r.ranges)]
		for job, ok := jobs.take(); ok; job, ok = jobs.take() {
			r.task.Do(worker, job)
		}
	}
}

// spin polls until ready or until its time is over. It stays in Go code, where the runtime can preempt it.
func spin(limit time.Duration, ready func() bool) {
	if runtime.GOMAXPROCS(0) == 1 {
		return
	}
	const polls = 16 // between two looks at the clock
	if limit == 0 {
		return
	}
	var end time.Time
	for i := 0; ; i++ {
		if ready() {
			return
		}
		procyield(4)
		if i%polls == polls-1 {
			now := time.Now()
			if end.IsZero() {
				end = now.Add(limit)
			} else if now.After(end) {
				return
			}
		}
	}
}

// procyield waits for some pauses of the processor; the runtime keeps the name open to packages.
//
//go:linkname procyield runtime.procyield
func procyield(cycles uint32)
