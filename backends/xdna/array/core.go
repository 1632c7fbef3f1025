package array

import (
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Steps of a core's program. Each is an event or the wait for a lock.
const (
	stepBarrier  = iota // acquire the barrier
	stepParams          // read the runtime parameters
	stepTile            // acquire a C buffer
	stepZeroed          // the C buffer is zeroed
	stepA               // A is acquired
	stepB               // B is acquired
	stepBandA           // A of a further band is acquired
	stepComputed        // a band is computed
)

// core runs a kernel record.
type core struct {
	t    *tile
	ctrl uint32
	r    *kernel.Record
	time KernelTime
	tile *kernel.Tile
	job  *job

	step   int
	wait   string // what is waited for, "" = nothing
	waitID uint8  // its lock
	waitAt sim.Time
	sum    *float64 // statistic that the wait belongs to

	chunks, tiles      uint32 // runtime parameters
	chunk, n           uint32
	band               int
	ia, ib, ic         int    // next buffer of each ring
	usedA, usedB, used [2]int // bytes in use: the current A and B buffers, and C from acquire to release
	stats              CoreStats
	grant              func()
}

func newCore(t *tile) *core {
	c := &core{t: t}
	c.grant = func() {
		d := c.now() - c.waitAt
		*c.sum += cyclesOf(d)
		c.trace("wait for "+c.wait, c.waitAt)
		c.wait = ""
		c.after(c.t.a.tm.Lock)
	}
	return c
}

func (c *core) now() sim.Time        { return c.t.a.eng.Now() }
func (c *core) after(cycles float64) { c.t.a.eng.After(ticks(cycles), c, 0) }

func (c *core) trace(what string, from sim.Time) {
	if tr := c.t.a.opt.Tracer; tr != nil && c.now() > from {
		tr.Span(Track{c.t.pos, "core"}, what, cyclesOf(from), cyclesOf(c.now()))
	}
}

// setCtrl starts or stops the core.
func (c *core) setCtrl(v uint32) {
	if extra := v &^ (device.CoreEnable | device.CoreReset); extra != 0 {
		c.t.fault("core control %#x: bits %#x are not emulated", v, extra)
		return
	}
	was := c.ctrl
	c.ctrl = v
	runs := func(v uint32) bool { return v&device.CoreEnable != 0 && v&device.CoreReset == 0 }
	switch {
	case runs(was) == runs(v):
	case !runs(v):
		c.t.fault("a running core cannot be stopped; load a new configuration instead")
	default:
		r, err := kernel.Decode(c.t.prog[:])
		if err == nil {
			c.time, err = c.t.a.kernelTime(r)
		}
		if err != nil {
			c.t.fault("core enabled: %w", err)
			return
		}
		c.r = r
		c.tile = kernel.NewTile(r)
		c.step = stepBarrier
		c.acquire(r.Barrier, "the barrier", &c.stats.WaitBarrier)
	}
}

// acquire takes a lock by 1 and goes on to the current step.
func (c *core) acquire(id uint8, what string, sum *float64) {
	c.wait, c.waitID, c.waitAt, c.sum = what, id, c.now(), sum
	if c.t.locks[id].Acquire(c, 1, false, c.grant) {
		c.wait = ""
		c.after(c.t.a.tm.Lock)
	}
}

func (c *core) release(id uint8) bool {
	l := &c.t.locks[id]
	if !l.Release(1) {
		c.t.fault("core releases lock %d above %d", id, l.Max)
		return false
	}
	return true
}

// Handle is the core's program; see kernel.Record for its description.
func (c *core) Handle(int) {
	r, tm := c.r, c.t.a.tm
	switch c.step {
	case stepBarrier:
		c.t.lockSet[r.Barrier]-- // used up: the next dispatch sets it again
		c.step = stepParams
		c.after(tm.CoreStart)
	case stepParams:
		if at := c.t.mem.Undefined(int(r.RTP), int(r.RTP)+4*kernel.RTPWords); at >= 0 {
			c.t.fault("core reads undefined memory: runtime parameters at %#x", at)
			return
		}
		c.chunks = binary.LittleEndian.Uint32(c.t.mem.Data[r.RTP:])
		c.tiles = binary.LittleEndian.Uint32(c.t.mem.Data[r.RTP+4:])
		c.n = 0
		c.nextTile()
	case stepTile:
		addr := int(r.C.Addr[c.ic])
		c.used = [2]int{addr, addr + r.CBytes()}
		if !c.clear(c.used, true) {
			return
		}
		if !c.t.a.opt.TimeOnly {
			c.tile.Zero()
		}
		c.chunk = 0
		z := float64(r.CBytes()) / tm.Zero
		c.stats.Zero += z
		c.step = stepZeroed
		c.after(z)
	case stepZeroed:
		c.trace("zero", c.now()-ticks(float64(r.CBytes())/tm.Zero))
		if c.chunks == 0 {
			if !c.t.a.opt.TimeOnly {
				c.tile.Store(c.t.mem.Data[c.used[0]:c.used[1]])
			}
			c.finishTile()
			return
		}
		c.nextChunk()
	case stepA:
		c.usedA = c.buffer(&r.A, c.ia, r.ABytes())
		c.step = stepB
		c.acquire(r.B.Full, "a full B buffer", &c.stats.WaitB)
	case stepB:
		c.usedB = c.buffer(&r.B, c.ib, r.BBytes())
		if at := c.t.mem.Undefined(c.usedB[0], c.usedB[1]); at >= 0 {
			c.t.fault("core reads undefined memory: B at %#x", at)
			return
		}
		if !c.clear(c.usedB, false) {
			return
		}
		c.compute()
	case stepBandA:
		c.usedA = c.buffer(&r.A, c.ia, r.ABytes())
		c.compute()
	case stepComputed:
		c.computed()
	}
}

func (c *core) buffer(b *kernel.Buffer, i, bytes int) [2]int {
	return [2]int{int(b.Addr[i]), int(b.Addr[i]) + bytes}
}

// clear checks that no DMA channel is at work on bytes that the core takes over.
func (c *core) clear(span [2]int, writes bool) bool {
	for _, dir := range c.t.chans {
		for _, ch := range dir {
			if ch.state != moving && ch.state != ending || ch.hi <= span[0] || span[1] <= ch.lo || !writes && ch.dir == device.MM2S {
				continue
			}
			ch.fault(ch.bd, "works on %s at %#x to %#x, which the core takes over, without a lock between them", ch.mem.Name, ch.lo, ch.hi)
			return false
		}
	}
	return true
}

// nextTile begins an output tile, or waits for the next dispatch.
func (c *core) nextTile() {
	if c.n == c.tiles {
		c.step = stepBarrier
		c.acquire(c.r.Barrier, "the barrier", &c.stats.WaitBarrier)
		return
	}
	c.step = stepTile
	c.acquire(c.r.C.Free, "a free C buffer", &c.stats.WaitC)
}

func (c *core) nextChunk() {
	c.band = 0
	c.step = stepA
	c.acquire(c.r.A.Full, "a full A buffer", &c.stats.WaitA)
}

// compute starts a band: the arithmetic goes to the pool, the clock to the time at which it is done.
func (c *core) compute() {
	r := c.r
	if at := c.t.mem.Undefined(c.usedA[0], c.usedA[1]); at >= 0 {
		c.t.fault("core reads undefined memory: A at %#x", at)
		return
	}
	if !c.clear(c.usedA, false) {
		return
	}
	d := c.t.mem.Data
	j := &job{tile: c.tile, band: c.band, a: d[c.usedA[0]:c.usedA[1]]}
	if c.band == 0 {
		j.b = d[c.usedB[0]:c.usedB[1]]
	}
	if c.band == r.Bands-1 && c.chunk == c.chunks-1 {
		j.c = d[c.used[0]:c.used[1]]
	}
	if !c.t.a.opt.TimeOnly {
		c.job = j
		c.t.a.pool.submit(j)
	}
	cycles := c.t.a.tm.bandCycles(r, c.time, c.band)
	c.stats.Compute += cycles
	c.t.a.macs += int64(r.M/r.Bands) * int64(r.K) * int64(r.N)
	c.waitAt = c.now()
	c.step = stepComputed
	c.after(cycles)
}

// computed ends a band.
func (c *core) computed() {
	r := c.r
	if c.job != nil {
		c.t.a.pool.join(c.job)
		c.job = nil
	}
	c.trace("compute", c.waitAt)
	c.usedA = [2]int{}
	c.ia = (c.ia + 1) % r.A.Depth
	if !c.release(r.A.Free) {
		return
	}
	if c.band++; c.band < r.Bands {
		c.step = stepBandA
		c.acquire(r.A.Full, "a full A buffer", &c.stats.WaitA)
		return
	}
	c.usedB = [2]int{}
	c.ib = (c.ib + 1) % r.B.Depth
	c.stats.Chunks++
	if !c.release(r.B.Free) {
		return
	}
	if c.chunk++; c.chunk < c.chunks {
		c.nextChunk()
		return
	}
	c.finishTile()
}

// finishTile hands the C buffer to the DMA.
func (c *core) finishTile() {
	c.t.mem.Define(c.used[0], c.used[1])
	c.used = [2]int{}
	c.ic = (c.ic + 1) % c.r.C.Depth
	c.stats.Tiles++
	if !c.release(c.r.C.Full) {
		return
	}
	c.n++
	c.nextTile()
}

// uses reports whether the core works on some of the bytes lo to hi-1 such that an access by others (a write, or a read) collides.
func (c *core) uses(lo, hi int, write bool) bool {
	hit := func(s [2]int) bool { return s[0] < hi && lo < s[1] }
	return hit(c.used) || write && (hit(c.usedA) || hit(c.usedB))
}

// abandon waits for arithmetic that a failed run has left behind.
func (c *core) abandon() {
	if c.job != nil {
		c.t.a.pool.join(c.job)
		c.job = nil
	}
}

// notAtRest says what a core that has not returned to its barrier does.
func (c *core) notAtRest() string {
	if c.r == nil || c.step == stepBarrier && c.wait != "" {
		return ""
	}
	_, what := c.Waiting()
	if what == "" {
		what = "is at work"
	}
	return what
}

// Waiting says what the core waits for in a deadlock.
func (c *core) Waiting() (who, what string) {
	who = fmt.Sprintf("core tile %v", c.t.pos)
	if c.r == nil || c.wait == "" || c.step == stepBarrier {
		return who, ""
	}
	return who, fmt.Sprintf("waits for %s (lock %d holds %d), at chunk %d of %d of tile %d of %d", c.wait, c.waitID, c.t.locks[c.waitID].Value, c.chunk, c.chunks, c.n, c.tiles)
}
