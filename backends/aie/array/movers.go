package array

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/internal/sim"
)

// mover is a data mover of the programmable logic that feeds a stream from FPGA RAM (or from DDR).
type mover struct {
	pacer
	m      *machine
	id     int
	mv     *Mover
	stream *sim.Stream
	busy   sim.Time

	// Position: piece of a list, or step s of inner pass i of outer pass o of a feed.
	piece   int
	o, i, s int
	total   int // words of the current piece
	done    int
	mem     Memory
	addr    int64
	end     bool
	ready   bool
}

func newMover(m *machine, id int) *mover {
	x := &mover{m: m, id: id, mv: &m.Movers[id]}
	m.e.Register(x)
	x.load()
	return x
}

// Waiting implements sim.Waiter.
func (x *mover) Waiting() (string, string) {
	who := fmt.Sprintf("mover %d", x.id)
	switch {
	case x.end:
		return who, ""
	case !x.ready:
		return who, fmt.Sprintf("step %d of pass %d,%d is not staged", x.s, x.o, x.i)
	}
	return who, fmt.Sprintf("piece %d (pass %d,%d step %d) has moved %d of %d words", x.piece, x.o, x.i, x.s, x.done, x.total)
}

// fetchIndex is the number of the slab in the order of staging that a feed needs at a position, and whether this is its last use.
func (f *Feed) fetchIndex(o, i, s int) (index int, last bool) {
	switch f.Mode {
	case plan.Stationary:
		return o*f.Steps + s, i == f.Inner-1
	case plan.Hold:
		return i*f.Steps + s, o == f.Outer-1
	case plan.Stream:
		return (o*f.Inner+i)*f.Steps + s, true
	}
	if f.OuterIsOwn {
		return o*f.Steps + s, false
	}
	return i*f.Steps + s, false
}

// content is which slab of the operand the fetch with an index brings.
func (f *Feed) content(index int) int {
	if f.Mode == plan.Stream {
		return index % (f.Inner * f.Steps)
	}
	return index
}

// fetches is the number of slabs staged in a run.
func (f *Feed) fetches() int {
	switch f.Mode {
	case plan.Stationary:
		return f.Outer * f.Steps
	case plan.Hold:
		return f.Inner * f.Steps
	case plan.Stream:
		return f.Outer * f.Inner * f.Steps
	}
	return 0
}

// load sets up the current piece.
func (x *mover) load() {
	x.done = 0
	if f := x.mv.Feed; f != nil {
		if x.o == f.Outer {
			x.end = true
			return
		}
		idx, _ := f.fetchIndex(x.o, x.i, x.s)
		slot := idx
		x.ready = true
		if f.Mode != plan.Resident {
			slot = idx % f.Slots
			x.ready = x.m.staged(f, idx)
		}
		x.mem, x.addr, x.total = FPGA, f.Base+int64(slot)*int64(f.Slab)+int64(x.mv.Offset), f.Block/4
		return
	}
	if x.piece == len(x.mv.List) {
		x.end = true
		return
	}
	p := x.mv.List[x.piece]
	x.ready, x.mem, x.addr, x.total = true, p.Mem, p.Addr, p.Bytes/4
}

// staged reports whether a slab has arrived.
func (m *machine) staged(f *Feed, idx int) bool {
	for i := range m.Feeds {
		if m.Feeds[i] == f && m.stage[i] != nil {
			return idx < m.stage[i].filled
		}
	}
	return false
}

func (x *mover) poke() {
	if !x.end && !x.ready {
		x.load()
	}
	if x.stream != nil {
		x.stream.Poke()
	}
}

// Offer, Pace, Send and Sent implement sim.Source.
func (x *mover) Offer() int {
	if x.end || !x.ready {
		return 0
	}
	return x.total - x.done
}

func (x *mover) Pace(start sim.Time, words int) sim.Time {
	end := x.pace(start, words)
	x.busy += end - start
	if x.mem == FPGA {
		return max(end, x.m.serveRAM(start, float64(4*words)))
	}
	return max(end, x.m.serveDDR(start, float64(4*words)))
}

func (x *mover) Send(words int) ([]byte, error) {
	if x.m.opt.TimingOnly {
		return x.m.zeros(4 * words), nil
	}
	return x.m.at(x.mem, x.addr+4*int64(x.done), 4*words)
}

func (x *mover) Sent(words int) {
	x.done += words
	if x.done < x.total {
		return
	}
	if f := x.mv.Feed; f != nil {
		idx, last := f.fetchIndex(x.o, x.i, x.s)
		if x.s++; x.s == f.Steps {
			x.s = 0
			if x.i++; x.i == f.Inner {
				x.i = 0
				x.o++
			}
		}
		x.load()
		x.m.used(x, f, idx, last)
		return
	}
	x.piece++
	x.load()
}

// used tells the stager of a feed that a mover is through with a slab, for good if last.
func (m *machine) used(x *mover, f *Feed, idx int, last bool) {
	for i, s := range m.stage {
		if m.Feeds[i] != f || s == nil {
			continue
		}
		if s.first == nil {
			s.first = x
		}
		if last {
			s.left[idx%f.Slots]--
		}
		if s.first == x {
			s.used++
		}
		s.next()
	}
}

// zeros are words that stand for data where only the clock matters.
func (m *machine) zeros(n int) []byte {
	if len(m.zero) < n {
		m.zero = make([]byte, n)
	}
	return m.zero[:n]
}

// stager brings slabs of an operand from DDR into FPGA RAM, packing B on the way.
type stager struct {
	m       *machine
	operand int
	f       *Feed
	filled  int   // slabs that have arrived
	left    []int // users that still read the slab in a slot
	used    int   // steps that the first of them is through
	first   *mover
	busy    bool
}

func newStager(m *machine, operand int, f *Feed) *stager {
	s := &stager{m: m, operand: operand, f: f, left: make([]int, f.Slots)}
	m.e.Register(s)
	return s
}

// Waiting implements sim.Waiter.
func (s *stager) Waiting() (string, string) {
	who := fmt.Sprintf("stager of %c", "AB"[s.operand])
	if s.filled == s.f.fetches() {
		return who, ""
	}
	return who, fmt.Sprintf("slab %d of %d waits for its slot, which %d movers still read", s.filled, s.f.fetches(), s.left[s.filled%s.f.Slots])
}

// next starts the next transfer if its slot is free. The panel after the current one is spread over the passes of this one, so that it leaves DDR to
// what is needed sooner.
func (s *stager) next() {
	if s.busy || s.filled == s.f.fetches() || s.left[s.filled%s.f.Slots] > 0 {
		return
	}
	if s.f.Mode == plan.Stationary && s.filled > s.f.Steps+s.used/s.f.Inner {
		return
	}
	s.busy = true
	p := s.m.Plan
	c := s.f.content(s.filled)
	bytes := float64(s.f.Slab)
	if s.operand == 1 {
		// What lies in DDR is the matrix itself; padding is made up on the way.
		j0, n := c/s.f.Steps*p.Groups*p.NB, p.Groups*p.NB
		k0, k := c%s.f.Steps*p.Chain*p.KB, p.Chain*p.KB
		bytes = float64(elementsOf(j0, n, p.N) * elementsOf(k0, k, p.K) * p.Type.Bytes())
	}
	now := s.m.e.Now()
	end := max(s.m.serveDDR(now, bytes), s.m.serveRAM(now, float64(s.f.Slab)))
	s.m.span(fmt.Sprintf("stage %c", "AB"[s.operand]), "slab", now, end)
	s.m.e.At(end, s, 0)
}

// Handle ends a transfer.
func (s *stager) Handle(int) {
	f := s.f
	slot := s.filled % f.Slots
	if !s.m.opt.TimingOnly {
		s.fill(s.m.rings[s.operand][slot*f.Slab:(slot+1)*f.Slab], f.content(s.filled))
	}
	s.left[slot] = f.Users
	s.filled++
	s.busy = false
	for i := range s.m.plIn {
		if x := s.m.plIn[i]; x.mv.Feed == f && !x.ready {
			x.poke()
		}
	}
	s.next()
}

func (s *stager) fill(dst []byte, c int) {
	f, p := s.f, s.m.Plan
	if s.operand == 0 {
		copy(dst, s.m.op.A[c*f.Slab:(c+1)*f.Slab])
		return
	}
	pass, step := c/f.Steps, c%f.Steps
	for z := range p.Groups {
		for q := range p.Chain {
			at := (z*p.Chain + q) * f.Block
			s.m.op.B.PackB(dst[at:at+f.Block], p.Kernel, (step*p.Chain+q)*p.KB, p.KB, (pass*p.Groups+z)*p.NB, p.NB)
		}
	}
}

// sink is a data mover that brings blocks of C to their place in the matrix.
type sink struct {
	m      *machine
	sk     *Sink
	stream *sim.Stream
	buf    []byte
	got    int // words of the current block
	pass   int
	share  float64 // of the words of the current block that lie inside the matrix
}

func newSink(m *machine, id int) *sink {
	x := &sink{m: m, sk: &m.Sinks[id]}
	if !m.opt.TimingOnly {
		x.buf = make([]byte, m.Plan.BlockC())
	}
	m.e.Register(x)
	x.load()
	return x
}

// Waiting implements sim.Waiter.
func (x *sink) Waiting() (string, string) {
	who := fmt.Sprintf("results of row %d group %d", x.sk.Row, x.sk.Group)
	if x.pass == x.m.Plan.Passes() {
		return who, ""
	}
	return who, fmt.Sprintf("pass %d of %d, %d words", x.pass, x.m.Plan.Passes(), x.got)
}

func (x *sink) origin() (i0, j0 int) {
	p := x.m.Plan
	pm, pn := p.PassAt(x.pass)
	return (pm*p.Rows + x.sk.Row) * p.MB, (pn*p.Groups + x.sk.Group) * p.NB
}

func (x *sink) load() {
	p := x.m.Plan
	if x.pass == p.Passes() {
		return
	}
	i0, j0 := x.origin()
	x.share = float64(elementsOf(i0, p.MB, p.M)*elementsOf(j0, p.NB, p.N)) / float64(p.MB*p.NB)
}

// Room, Pace and Take implement sim.Sink.
func (x *sink) Room() int {
	if x.pass == x.m.Plan.Passes() {
		return 0
	}
	return int(x.m.Plan.BlockC())/4 - x.got
}

func (x *sink) Pace(start sim.Time, words int) sim.Time {
	if x.share == 0 {
		return start
	}
	return x.m.serveDDR(start, 4*float64(words)*x.share)
}

func (x *sink) Take(data []byte) error {
	p := x.m.Plan
	if x.buf != nil {
		copy(x.buf[4*x.got:], data)
	}
	x.got += len(data) / 4
	if 4*x.got < int(p.BlockC()) {
		return nil
	}
	if x.buf != nil {
		i0, j0 := x.origin()
		unpackC(x.m.op.C, x.buf, p.Kernel, i0, p.MB, j0, p.NB)
	}
	x.m.useful = x.m.e.Now()
	x.got = 0
	x.pass++
	x.load()
	return nil
}
