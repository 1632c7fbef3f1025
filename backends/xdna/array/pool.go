package array

import (
	"runtime"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// job is the arithmetic of one band. The locks of the emulated core guarantee that nobody touches its bytes before it is joined; the emulator checks that.
type job struct {
	tile    *kernel.Tile
	band    int
	a, b, c []byte // b only in the first band of a chunk, c only when the tile is complete
	state   atomic.Int32
}

const (
	jobNew int32 = iota
	jobTaken
	jobDone
)

// run does the job unless somebody else has taken it.
func (j *job) run() bool {
	if !j.state.CompareAndSwap(jobNew, jobTaken) {
		return false
	}
	if j.b != nil {
		j.tile.LoadB(j.b)
	}
	j.tile.Band(j.band, j.a)
	if j.c != nil {
		j.tile.Store(j.c)
	}
	j.state.Store(jobDone)
	return true
}

// pool is the host's goroutines that compute for the cores while the emulator moves data. Results do not depend on how many there are.
type pool struct {
	work chan *job
}

// open starts n helpers.
func (p *pool) open(n int) {
	if n <= 0 {
		return
	}
	p.work = make(chan *job, 256) // more than there are cores, each of which has one job
	for range n {
		go func(work chan *job) {
			for j := range work {
				j.run()
			}
		}(p.work)
	}
}

// close ends the helpers. All jobs have been joined.
func (p *pool) close() {
	if p.work != nil {
		close(p.work)
		p.work = nil
	}
}

// submit offers a job to the helpers.
func (p *pool) submit(j *job) {
	if p.work != nil {
		p.work <- j
	}
}

// join returns when the job is done, doing it, or others, meanwhile.
func (p *pool) join(j *job) {
	j.run()
	for j.state.Load() != jobDone {
		select {
		case other := <-p.work:
			other.run()
		default:
			runtime.Gosched()
		}
	}
}
