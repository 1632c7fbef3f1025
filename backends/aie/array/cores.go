package array

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/internal/sim"
)

// coreProc runs a kernel record.
type coreProc struct {
	t *tile
	*Record
	k core.Kernel

	// Block kernels.
	pass, step int
	calls      int // of block kernels so far: which buffers are next
	results    int
	state      string // what it waits for, empty at rest
	ready      bool   // all locks taken, waits for its neighbours
	sums       []int64
	work       *sync.WaitGroup // a call that is computed beside the clock

	// The seed's kernel.
	kc, kernels, left int
	began             sim.Time
	cbuf, abuf        []byte
	obuf              []byte
}

// Waiting implements sim.Waiter.
func (c *coreProc) Waiting() (string, string) {
	if c.Streamed && c.state == waitB {
		return c.t.name(), "" // it waits for the next panel for ever
	}
	if c.state == "" {
		return c.t.name(), ""
	}
	return c.t.name(), fmt.Sprintf("%s (pass %d step %d)", c.state, c.pass, c.step)
}

const waitB = "waits for B"

func (c *coreProc) start() {
	c.k = core.KernelFor(c.Type)
	e := c.Type.Bytes()
	type buffer struct {
		name  string
		at, n int
	}
	need := []buffer{{"B", c.B[0], c.KB * c.N * e}}
	if c.Streamed {
		need = append(need, buffer{"parameters", c.Params, 8})
	} else {
		need = append(need, buffer{"A", c.A[0], c.M * c.KB * e}, buffer{"A", c.A[1], c.M * c.KB * e}, buffer{"B", c.B[1], c.KB * c.N * e})
		if c.Steps > 1 {
			need = append(need, buffer{"sums", c.Partial, c.M * c.N * c.Type.PartialBytes()})
		}
		if !c.CascadeOut {
			for i := range c.Outs {
				need = append(need, buffer{"results", c.O[i], c.M * c.N * c.Out.Bytes()})
			}
		}
	}
	for _, b := range need {
		if b.at < 0 || b.at%4 != 0 || b.at+b.n > len(c.t.mem.Data) {
			c.t.m.fail("%s: kernel record: %s at byte %d, %d bytes, do not fit the %d of local memory", c.t.name(), b.name, b.at, b.n, len(c.t.mem.Data))
			return
		}
	}
	if c.Streamed {
		if c.M != c.k.MR || c.N != c.k.NR {
			c.t.m.fail("%s: kernel record: micro-tile %d x %d, %d x %d is right", c.t.name(), c.M, c.N, c.k.MR, c.k.NR)
			return
		}
		c.panel()
		return
	}
	c.wantA()
}

// The block kernel of a step: A, B and, in the last step of a pass, a free result buffer, in this order.

func (c *coreProc) lock(id, value int, what string, then func()) {
	c.state = what
	if c.t.locks[id].acquire(value, then) {
		then()
	}
}

func (c *coreProc) wantA() {
	if c.pass == c.Passes {
		c.state = ""
		return
	}
	c.lock(lockA+c.calls%2, 1, "waits for A", c.wantB)
}
func (c *coreProc) wantB() { c.lock(lockB+c.calls%2, 1, waitB, c.wantO) }
func (c *coreProc) wantO() {
	if c.step == c.Steps-1 && !c.CascadeOut {
		c.lock(lockO+c.results%c.Outs, 0, "waits for a free result buffer", c.haveAll)
		return
	}
	c.haveAll()
}

func (c *coreProc) haveAll() {
	if c.step == c.Steps-1 && (c.CascadeIn || c.CascadeOut) {
		c.ready = true
		c.state = "waits for its neighbours on the cascade"
		c.chain()
		return
	}
	c.state = "computes"
	if call := c.call(); call != nil {
		c.beside(func() { c.k.Run(call) })
	}
	c.finishAfter(cycles(float64(c.cost())))
}

// beside computes while the clock goes on. Nobody touches the buffers of a call before it ends on the clock, because their locks are held;
// Handle waits for it there.
func (c *coreProc) beside(f func()) {
	if c.work == nil {
		c.work = &sync.WaitGroup{}
	}
	c.work.Go(f)
}

func (c *coreProc) where() core.Step {
	last := c.step == c.Steps-1
	return core.Step{First: c.step == 0, Last: last, Out: c.Out, CascadeIn: last && c.CascadeIn, CascadeOut: last && c.CascadeOut}
}

func (c *coreProc) cost() int { return c.k.Block(c.M, c.KB, c.N, c.where()) }

func (c *coreProc) finishAfter(d sim.Time) {
	m := c.t.m
	c.t.busy += d
	m.kernels++
	m.span(c.t.name(), fmt.Sprintf("%v pass %d step %d", c.Type, c.pass, c.step), m.e.Now(), m.e.Now()+d)
	m.e.After(d, c, 0)
}

// chain starts the last call of a pass on all tiles of a cascade once all are ready; each starts a micro-tile after the one before it.
func (c *coreProc) chain() {
	m := c.t.m
	d := -1 // upstream in columns
	if !m.Device.CascadeEast(c.t.row) {
		d = 1
	}
	at := func(col int) *coreProc {
		t := m.tiles[[2]int{col, c.t.row}]
		if t == nil {
			return nil
		}
		return t.core
	}
	head := c
	for head.CascadeIn {
		up := at(head.t.col + d)
		if up == nil || !up.ready || !up.CascadeOut {
			return
		}
		head = up
	}
	var tiles []*coreProc
	for x := head; ; {
		if !x.ready {
			return
		}
		tiles = append(tiles, x)
		if !x.CascadeOut {
			break
		}
		if x = at(x.t.col - d); x == nil || !x.CascadeIn {
			return
		}
	}
	one := head.k.Block(c.k.MR, c.KB, c.k.NR, core.Step{First: c.Steps == 1, Last: true, Out: c.Out, CascadeIn: true, CascadeOut: true}) - core.Fill
	calls := make([]*core.Call, len(tiles))
	done := make([]*sync.WaitGroup, len(tiles))
	for i, x := range tiles {
		x.ready, x.state = false, "computes"
		if calls[i] = x.call(); calls[i] == nil {
			continue
		}
		if i > 0 && calls[i-1] != nil {
			calls[i].In = calls[i-1].Sent
		}
		if err := x.k.Check(calls[i]); err != nil {
			m.fail("%s: %w", x.t.name(), err)
			return
		}
		// Sums pass from one to the next: each waits for the one before it.
		var before *sync.WaitGroup
		if i > 0 {
			before = done[i-1]
		}
		done[i] = &sync.WaitGroup{}
		done[i].Add(1)
		mine, call := done[i], calls[i]
		x.beside(func() {
			if before != nil {
				before.Wait()
			}
			x.k.Run(call)
			mine.Done()
		})
	}
	for i, x := range tiles {
		x.finishAfter(cycles(float64(x.cost() + i*one)))
	}
}

// call is what a step computes on the bytes in memory, nil where only the clock matters.
func (c *coreProc) call() *core.Call {
	m, mem := c.t.m, c.t.mem
	a, b := c.A[c.calls%2], c.B[c.calls%2]
	an, bn := c.M*c.KB*c.Type.Bytes(), c.KB*c.N*c.Type.Bytes()
	for _, r := range [][2]int{{a, an}, {b, bn}} {
		if u := mem.Undefined(r[0], r[0]+r[1]); u >= 0 {
			m.fail("%s: kernel reads byte %d, which nobody wrote", c.t.name(), u)
			return nil
		}
	}
	st := c.where()
	o := -1
	if st.Last && !c.CascadeOut {
		o = c.O[c.results%c.Outs]
		mem.Define(o, o+c.M*c.N*c.Out.Bytes())
	}
	if m.opt.TimingOnly {
		return nil
	}
	call := core.Call{M: c.M, KB: c.KB, N: c.N, A: mem.Data[a : a+an], B: mem.Data[b : b+bn], Step: st, Narrow: c.Narrow}
	if c.Steps > 1 {
		call.Partial = mem.Data[c.Partial : c.Partial+c.M*c.N*c.Type.PartialBytes()]
	}
	if o >= 0 {
		call.Out = mem.Data[o : o+c.M*c.N*c.Out.Bytes()]
	}
	if st.CascadeOut {
		if len(c.sums) < c.M*c.N {
			c.sums = make([]int64, c.M*c.N)
		}
		call.Sent = c.sums
	}
	if st.CascadeIn {
		return &call // checked when the sums are known
	}
	if err := c.k.Check(&call); err != nil {
		m.fail("%s: %w", c.t.name(), err)
		return nil
	}
	return &call
}

// Handle ends a call, or a phase of the seed's kernel.
func (c *coreProc) Handle(kind int) {
	if c.Streamed {
		c.next(kind)
		return
	}
	t := c.t
	if c.work != nil {
		c.work.Wait()
	}
	last := c.step == c.Steps-1
	i := c.calls % 2
	ok := t.locks[lockA+i].release(0) && t.locks[lockB+i].release(0)
	if last && !c.CascadeOut {
		ok = t.locks[lockO+c.results%c.Outs].release(1) && ok
		c.results++
	}
	if !ok {
		t.m.fail("%s: kernel releases a lock that is free", t.name())
		return
	}
	c.calls++
	if c.step++; c.step == c.Steps {
		c.step = 0
		c.pass++
	}
	c.wantA()
}

// The seed's kernel. For each panel: wait for B_r; for each micro-tile: C in, A streamed past B_r, the pipeline's fill, C out.
const (
	phaseFill = iota // the pipeline has let everything out
	phaseOut         // C is sent
)

func (c *coreProc) panel() {
	c.lock(lockB, 1, waitB, func() {
		at := c.Params
		if u := c.t.mem.Undefined(at, at+8); u >= 0 {
			c.t.m.fail("%s: k_c and kernels are not set", c.t.name())
			return
		}
		c.kc = int(binary.LittleEndian.Uint32(c.t.mem.Data[at:]))
		c.kernels = int(binary.LittleEndian.Uint32(c.t.mem.Data[at+4:]))
		if c.kc < 1 || c.kc > c.KB || c.kernels < 1 {
			c.t.m.fail("%s: k_c = %d and %d kernels, k_c up to %d is right", c.t.name(), c.kc, c.kernels, c.KB)
			return
		}
		c.left = c.kernels
		c.micro()
	})
}

func (c *coreProc) micro() {
	c.state = "waits for C"
	c.began = c.t.m.e.Now()
	c.t.in[0].want(c.M*c.N*c.Out.Bytes(), func(b []byte) {
		c.cbuf = append(c.cbuf[:0], b...)
		c.state = "waits for A"
		start := c.t.m.e.Now()
		c.t.in[1].want(c.M*c.kc*c.Type.Bytes(), func(b []byte) {
			c.abuf = b
			c.state = "computes"
			// The multiplications keep pace with A; where they are slower (fp32) they end later.
			c.t.m.e.At(start+cycles(float64(c.k.MACCycles(c.kc)+core.Fill)), c, phaseFill)
		})
	})
}

func (c *coreProc) next(kind int) {
	m := c.t.m
	switch kind {
	case phaseFill:
		if err := c.compute(); err != nil {
			m.e.Fail(err)
			return
		}
		c.state = "sends C"
		c.t.out.send(c.obuf, func() { c.next(phaseOut) })
	case phaseOut:
		m.kernels++
		c.t.busy += m.e.Now() - c.began
		m.span(c.t.name(), fmt.Sprintf("micro-kernel k_c %d", c.kc), c.began, m.e.Now())
		if c.left--; c.left > 0 {
			c.micro()
			return
		}
		if !c.t.locks[lockB].release(0) {
			m.fail("%s: releases lock B, which is free", c.t.name())
			return
		}
		c.panel()
	}
}

// compute updates a micro-tile: C up into the accumulators, the product of the panels, and down again.
func (c *coreProc) compute() error {
	n := c.M * c.N
	if len(c.obuf) != n*c.Out.Bytes() {
		c.obuf = make([]byte, n*c.Out.Bytes())
	}
	bn := c.kc * c.N * c.Type.Bytes()
	if u := c.t.mem.Undefined(c.B[0], c.B[0]+bn); u >= 0 {
		return fmt.Errorf("%s: kernel reads byte %d, which nobody wrote", c.t.name(), u)
	}
	if c.t.m.opt.TimingOnly {
		return nil
	}
	b := c.t.mem.Data[c.B[0] : c.B[0]+bn]
	call := core.Call{M: c.M, KB: c.kc, N: c.N, A: c.abuf, B: b, Step: core.Step{First: true, Last: true, Out: c.Out}, Out: c.obuf, Narrow: c.Narrow}
	if c.Type == core.FP32 {
		call.First, call.Partial = false, c.cbuf
	} else {
		call.CascadeIn = true // adding C to the sums is what adding a neighbour's sums is
		call.In = core.Unpack(c.Out, c.cbuf, n)
		for i, v := range call.In {
			call.In[i] = core.UPS(v, c.Narrow.Shift)
		}
	}
	if err := c.k.Check(&call); err != nil {
		return fmt.Errorf("%s: %w", c.t.name(), err)
	}
	c.k.Run(&call)
	return nil
}

// coreIn is a stream that a core reads.
type coreIn struct {
	t      *tile
	stream *sim.Stream
	buf    []byte
	need   int // bytes
	then   func([]byte)
}

func (p *coreIn) want(bytes int, then func([]byte)) {
	p.need, p.then, p.buf = bytes, then, p.buf[:0]
	if p.stream == nil {
		p.t.m.fail("%s: reads a stream that is not connected", p.t.name())
		return
	}
	p.stream.Poke()
}

// Room, Pace and Take implement sim.Sink.
func (p *coreIn) Room() int                           { return (p.need - len(p.buf)) / 4 }
func (p *coreIn) Pace(start sim.Time, _ int) sim.Time { return start }
func (p *coreIn) Take(data []byte) error {
	p.buf = append(p.buf, data...)
	p.t.m.bytes.Local += float64(len(data))
	if len(p.buf) == p.need {
		p.need = 0
		buf := p.buf
		p.buf = p.buf[len(p.buf):]
		p.then(buf)
		p.buf = buf[:0]
	}
	return p.t.m.e.Err()
}

// coreOut is a stream that a core writes.
type coreOut struct {
	pacer
	t      *tile
	stream *sim.Stream
	data   []byte
	then   func()
}

func (p *coreOut) send(data []byte, then func()) {
	p.data, p.then = data, then
	if p.stream == nil {
		p.t.m.fail("%s: writes a stream that is not connected", p.t.name())
		return
	}
	p.stream.Poke()
}

// Offer, Pace, Send and Sent implement sim.Source.
func (p *coreOut) Offer() int                              { return len(p.data) / 4 }
func (p *coreOut) Pace(start sim.Time, words int) sim.Time { return p.pace(start, words) }
func (p *coreOut) Send(words int) ([]byte, error)          { return p.data[:4*words], nil }
func (p *coreOut) Sent(words int) {
	p.t.m.bytes.Local += float64(4 * words)
	p.data = p.data[4*words:]
	if len(p.data) == 0 && p.then != nil {
		then := p.then
		p.then = nil
		then()
	}
}
