package design

import (
	"iter"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// maxInFlight is the number of output tiles whose transfers wait or run on one shim: 5 x (A, B, C) take 15 of its 16 descriptors.
const maxInFlight = 5

// halfBDs is the number of descriptors in one half of the ping-pong schedule.
const halfBDs = 8

// controllerID goes into the tokens of C's channel; the value and the mask are those of the public streams.
const controllerID = 0xF00

// shimQueue follows one channel of a shim, as far as the control code knows: pushed counts its tasks, popped is what has left the queue for certain.
type shimQueue struct {
	pushed, popped int64
	tile           device.Tile
	queue, status  uint32
	depth          int64
}

// flight is one issued unit of a column: how many descriptors and tasks it has on each stream (row operand, column operand, C).
type flight struct {
	bds   int
	tasks [3]int
	half  int // ping-pong: the half that it belongs to
}

// column is what the control code knows about one shim.
type column struct {
	q      [3]shimQueue // row operand, column operand, C
	flying []flight     // oldest first
	used   int          // descriptors of flying units
	next   int          // descriptor to use next
	tile   device.Tile
}

// emitter yields operations until the reader has enough.
type emitter struct {
	yield func(txn.Op) bool
	stop  bool
	data  [8]uint32
}

func (e *emitter) op(op txn.Op) {
	if !e.stop && !e.yield(op) {
		e.stop = true
	}
}

func (e *emitter) ops(p *txn.Program) {
	for _, op := range p.List {
		e.op(op)
	}
}

// Ops implements [txn.Stream]: runtime parameters, then the transfers of all output tiles by the design's schedule.
//
// It writes only what a size may change: the parameters and barrier locks of the cores, descriptors and queues of the shims, and, for designs with variable
// MemTile descriptors, those with their locks and queues.
func (r *Run) Ops() iter.Seq[txn.Op] {
	return func(yield func(txn.Op) bool) {
		e := &emitter{yield: yield}
		s := newScheduler(r, e)
		for c := range s.cols {
			q := &s.cols[c]
			ti := r.Design.Dev.Tile(device.Shim)
			e.op(txn.MaskWriteOp(q.tile.Addr(ti.Ctrl(device.S2MM, 0)), controllerID, controllerID))
		}
		for i := range r.phases {
			if e.stop {
				return
			}
			s.phase(&r.phases[i])
		}
	}
}

// scheduler issues units and waits for them.
type scheduler struct {
	r     *Run
	e     *emitter
	cols  []column
	feeds []int // row tile that a column feeds, or -1
	ring  []ringFeed
	buf   [3][]xfer
}

func newScheduler(r *Run, e *emitter) *scheduler {
	d := r.Design
	s := &scheduler{r: r, e: e, cols: make([]column, d.Dev.Cols), feeds: make([]int, d.Dev.Cols)}
	ti := d.Dev.Tile(device.Shim)
	for c := range s.cols {
		q := &s.cols[c]
		q.tile = device.Tile{Col: c}
		for i, ch := range []struct {
			dir device.Dir
			ch  int
		}{{device.MM2S, 0}, {device.MM2S, 1}, {device.S2MM, 0}} {
			q.q[i] = shimQueue{tile: q.tile, queue: ti.Queue(ch.dir, ch.ch), status: ti.Status(ch.dir, ch.ch), depth: int64(ti.QueueDepth)}
		}
		s.feeds[c] = -1
	}
	for row, c := range d.Dev.ACols {
		s.feeds[c] = row
	}
	return s
}

// The streams of a shim, as indices of column.q.
const (
	streamRow = iota
	streamCol
	streamC
)

// group is one or more consecutive output tiles along N that one set of descriptors serves.
type group struct {
	i, j  int // block of M, first block of N
	n     int // blocks
	fetch bool
}

// phase runs the output tiles of one set of runtime parameters and waits for all of them.
func (s *scheduler) phase(ph *phase) {
	r, d, e := s.r, s.r.Design, s.e
	// Parameters first, then the locks that let the cores read them.
	units := (ph.i1 - ph.i0) * r.BlocksN
	for c := range d.Dev.Cols {
		for row := range d.Dev.CoreRows {
			t := device.Tile{Col: c, Row: d.Dev.CoreRow + row}
			e.op(txn.WriteOp(t.Addr(rtpAt), uint32(r.Chunks)))
			e.op(txn.WriteOp(t.Addr(rtpAt+4), uint32(units)))
		}
	}
	for c := range d.Dev.Cols {
		for row := range d.Dev.CoreRows {
			t := device.Tile{Col: c, Row: d.Dev.CoreRow + row}
			e.op(txn.WriteOp(t.Addr(d.Dev.Tile(device.Core).Lock(lockBarrier)), 1))
		}
	}
	s.startRings(ph, units)
	switch d.Schedule {
	case PingPong:
		s.pingPong(ph)
	default:
		done := 0
		s.units(ph, func(g group) bool {
			if d.Schedule == Serial {
				for c := range s.cols {
					s.drain(&s.cols[c])
				}
			}
			for c := range s.cols {
				s.load(g, c)
				for !s.room(&s.cols[c]) {
					s.retire(&s.cols[c])
				}
				s.issue(&s.cols[c], g)
			}
			done++
			s.feedRings(done)
			return !e.stop
		})
	}
	for c := range s.cols {
		s.drain(&s.cols[c])
	}
}

// units visits the output tiles one by one: row blocks outermost, unless B is resident, which then stays for all row blocks.
func (s *scheduler) units(ph *phase, visit func(group) bool) {
	if s.r.resident {
		for j := range s.r.BlocksN {
			for i := ph.i0; i < ph.i1; i++ {
				if !visit(group{i, j, 1, (i-ph.i0)%ph.uses == 0}) {
					return
				}
			}
		}
		return
	}
	for i := ph.i0; i < ph.i1; i++ {
		for j := range s.r.BlocksN {
			if !visit(group{i, j, 1, true}) {
				return
			}
		}
	}
}

// load fills s.buf with the transfers of a group on column c.
func (s *scheduler) load(g group, c int) {
	r := s.r
	for i := range s.buf {
		s.buf[i] = s.buf[i][:0]
	}
	ri, ci := g.i, g.j // blocks of the row and the column operand
	if r.Design.Transposed {
		ri, ci = ci, ri
	}
	if row := s.feeds[c]; row >= 0 {
		s.buf[streamRow] = r.row.transfers(ri*r.row.leg.per+row, s.buf[streamRow])
	}
	if g.fetch {
		s.buf[streamCol] = r.col.transfers(ci*r.col.leg.per+c, s.buf[streamCol])
	}
	s.buf[streamC] = r.c.transfers(g.i, g.j, c, s.buf[streamC])
}

func (s *scheduler) need() int { return len(s.buf[0]) + len(s.buf[1]) + len(s.buf[2]) }

// room reports whether the loaded group can be issued on a column before anything else of it is done.
func (s *scheduler) room(q *column) bool {
	return len(q.flying) < maxInFlight && q.used+s.need() <= s.r.Design.Dev.Tile(device.Shim).BDs
}

// issue programs and queues the loaded transfers of one group on a column: C first, so that nothing waits for room at the end.
func (s *scheduler) issue(q *column, g group) {
	e, ti := s.e, s.r.Design.Dev.Tile(device.Shim)
	f := flight{bds: s.need()}
	for _, st := range [3]int{streamC, streamRow, streamCol} {
		list := s.buf[st]
		f.tasks[st] = len(list)
		for k, x := range list {
			bd := q.next
			q.next = (q.next + 1) % ti.BDs
			e.data = *x.words
			if g.n > 1 {
				s.iterate(st, g, &e.data)
			}
			addr := q.tile.Addr(ti.BD(bd))
			e.op(txn.Op{Code: txn.BlockWrite, Addr: addr, Data: e.data[:]})
			e.op(txn.DDRPatchOp(addr+4, x.arg, uint64(x.offset)))
			word := uint32(bd) | uint32(g.n-1)<<device.QueueRepeatShift
			if st == streamC && k == len(list)-1 {
				word |= device.QueueToken
			}
			s.push(&q.q[st], word)
		}
	}
	q.flying = append(q.flying, f)
	q.used += f.bds
}

// push queues a task, after a poll if the queue may be full.
func (s *scheduler) push(q *shimQueue, word uint32) {
	if q.pushed-q.popped >= q.depth {
		s.e.op(txn.MaskPollOp(q.tile.Addr(q.status), 0, device.StatusQueueFull))
		q.popped = q.pushed - q.depth + 1
	}
	s.e.op(txn.WriteOp(q.tile.Addr(q.queue), word))
	q.pushed++
}

// retire waits for the oldest unit of a column. Its C tile has left the array, so its A and B have been read: A broadcasts in step to the
// whole row, and this column was one of the receivers.
func (s *scheduler) retire(q *column) {
	f := q.flying[0]
	q.flying = append(q.flying[:0], q.flying[1:]...)
	q.used -= f.bds
	s.e.op(txn.SyncOp(q.tile, device.S2MM, 0, 1, 1))
	for i := range q.q {
		// Tasks of younger units are behind those of this one in every queue.
		later := int64(0)
		for _, g := range q.flying {
			later += int64(g.tasks[i])
		}
		q.q[i].popped = max(q.q[i].popped, q.q[i].pushed-later)
	}
}

func (s *scheduler) drain(q *column) {
	for len(q.flying) > 0 {
		s.retire(q)
	}
}

// iterate turns a unit's descriptor into that of g.n neighbours along N: the operand that does not depend on N is simply read again, the others step on.
func (s *scheduler) iterate(st int, g group, w *[8]uint32) {
	step := s.groupStep(st)
	if step == 0 {
		return
	}
	w[6] = uint32(g.n-1)<<20 | uint32(step/4-1)
}

// groupStep is the distance in bytes of one stream's data from one block of N to the next; 0 for the operand that does not depend on N.
func (s *scheduler) groupStep(st int) int64 {
	r := s.r
	along := func(f *feed) int64 { return f.whole[0].step * int64(f.leg.per) }
	switch {
	case st == streamC:
		return r.c.dj
	case st == streamRow && r.Design.Transposed:
		return along(r.row)
	case st == streamCol && !r.Design.Transposed:
		return along(r.col)
	}
	return 0
}

// groupable is how many output tiles from (i, j) on one set of descriptors can serve: whole tiles, one transfer each, steps that fit the iteration field.
func (s *scheduler) groupable(i, j int) int {
	r, d := s.r, s.r.Design
	ti := d.Dev.Tile(device.Shim)
	limit := min(1<<ti.Bits.IterWrap, ti.MaxRepeat, r.BlocksN-j)
	for _, f := range []*feed{r.row, r.col} {
		if len(f.whole) != 1 {
			return 1
		}
	}
	for st := range 3 {
		if s.groupStep(st)/4 > 1<<ti.Bits.IterStep {
			return 1
		}
	}
	// Whole blocks of M and N only.
	nm, _, nn := d.Native()
	wholeN := r.Problem.N / nn
	if r.c.dense {
		wholeN = r.BlocksN
	}
	if !r.c.dense && (i+1)*nm > r.Problem.M || s.fullBlocks(r.feedM()) <= i {
		return 1
	}
	return max(1, min(limit, min(wholeN, s.fullBlocks(r.feedN()))-j))
}

func (s *scheduler) fullBlocks(f *feed) int { return f.full / f.leg.per }

// feedM and feedN are the feeds of A and B.
func (r *Run) feedM() *feed {
	if r.Design.Transposed {
		return r.col
	}
	return r.row
}

func (r *Run) feedN() *feed {
	if r.Design.Transposed {
		return r.row
	}
	return r.col
}

// pingPong issues halves of the descriptors in turn: while one half runs the other is rewritten.
func (s *scheduler) pingPong(ph *phase) {
	var cur []group
	var used [16]int
	index, done := 0, 0
	flush := func() {
		if len(cur) == 0 {
			return
		}
		for c := range s.cols {
			q := &s.cols[c]
			// The half that used these descriptors before must be done: everything older than the last half.
			for len(q.flying) > 0 && q.flying[0].half != index-1 {
				s.retire(q)
			}
			q.next = index % 2 * halfBDs
			for _, g := range cur {
				s.load(g, c)
				s.issue(q, g)
				q.flying[len(q.flying)-1].half = index
			}
		}
		for _, g := range cur {
			done += g.n
		}
		s.feedRings(done)
		index++
		cur = cur[:0]
		clear(used[:])
	}
	add := func(g group) bool {
		fits := true
		for c := range s.cols {
			s.load(g, c)
			fits = fits && used[c]+s.need() <= halfBDs
		}
		if !fits {
			flush()
		}
		for c := range s.cols {
			s.load(g, c)
			used[c] += s.need()
		}
		cur = append(cur, g)
		return !s.e.stop
	}
	if s.r.resident {
		s.units(ph, add)
	} else {
		for i := ph.i0; i < ph.i1; i++ {
			for j := 0; j < s.r.BlocksN; {
				n := s.groupable(i, j)
				if !add(group{i, j, n, true}) {
					return
				}
				j += n
			}
		}
	}
	flush()
}

// ringFeed follows the tasks of one variable ring: turns are handed out in tasks of at most 256.
type ringFeed struct {
	use     *ringUse
	in, out []shimQueue // per position: the MemTile's queues
	turns   [2]int64    // queued so far, in and out
	total   [2]int64
	every   int64 // units that one turn of the in-ring serves: more than 1 for a resident operand
}

// startRings programs the variable rings for a phase and hands out their first turns.
func (s *scheduler) startRings(ph *phase, units int) {
	r, d := s.r, s.r.Design
	s.ring = s.ring[:0]
	for k := range r.rings {
		u := &r.rings[k]
		b := &builder{dev: d.Dev, prog: &txn.Program{}}
		f := ringFeed{use: u, every: 1}
		resident := u.at[0].uses > 0
		for pos := range u.leg.per {
			rg := u.at[pos]
			if resident {
				rg.uses = ph.uses
				f.every = int64(ph.uses)
			}
			d.writeRing(b, &u.leg, u.ch, pos, r.mem, &rg, false)
			ti := d.Dev.Tile(device.Mem)
			t := d.feeder(u.ch, pos)
			f.in = append(f.in, shimQueue{tile: t, queue: ti.Queue(device.S2MM, u.ch), status: ti.Status(device.S2MM, u.ch), depth: int64(ti.QueueDepth)})
			f.out = append(f.out, shimQueue{tile: t, queue: ti.Queue(device.MM2S, u.ch), status: ti.Status(device.MM2S, u.ch), depth: int64(ti.QueueDepth)})
		}
		if b.err != nil {
			panic("design: a planned ring does not encode: " + b.err.Error())
		}
		s.e.ops(b.prog)
		f.total = [2]int64{int64(units) * int64(u.turns) / f.every, int64(units) * int64(u.turns)}
		s.ring = append(s.ring, f)
	}
}

// feedRings hands out turns for the first units of the phase, all of which have been issued. The ring that is furthest behind comes first: a poll for room in its queue then
// waits for nothing but work that every ring has turns for.
func (s *scheduler) feedRings(units int) {
	for !s.e.stop {
		var next *ringFeed
		var side int
		least := float64(units)
		for k := range s.ring {
			f := &s.ring[k]
			for sd, every := range [2]int64{f.every, 1} {
				covered := float64(f.turns[sd]*every) / float64(f.use.turns)
				if f.turns[sd] < f.total[sd] && covered < least {
					next, side, least = f, sd, covered
				}
			}
		}
		if next == nil {
			return
		}
		n := min(256, next.total[side]-next.turns[side])
		for pos := range next.in {
			first, _ := s.r.Design.bds().ring(next.use.ch)
			q := &next.in[pos]
			if side == 1 {
				first += len(next.use.at[pos].in)
				q = &next.out[pos]
			}
			s.push(q, uint32(first)|uint32(n-1)<<device.QueueRepeatShift)
		}
		next.turns[side] += n
	}
}
