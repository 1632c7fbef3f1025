package array

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/aie/regs"
	"github.com/tessera-go/tessera/backends/internal/sim"
)

// tick is a thousandth of a cycle of the array clock.
const tick = 1000

func cycles(n float64) sim.Time { return sim.Time(math.Ceil(n*tick - 1e-6)) }

// Operands are what a run works on. A is packed by PackWeights for the same plan.
type Operands struct {
	A []byte
	B Source
	C *Matrix
}

// Options of a run.
type Options struct {
	TimingOnly bool   // move no data: the clock alone
	Trace      *Trace // if not nil, spans are recorded
	MaxEvents  uint64 // 0 = no limit
}

// Use is how busy a part of the device was.
type Use struct {
	Name    string  `json:"name"`
	Percent float64 `json:"percent"`
}

// Report is what a run took.
type Report struct {
	Cycles       float64    `json:"cycles"`
	Seconds      float64    `json:"seconds"`
	MACsPerCycle float64    `json:"macs_per_cycle"`
	Efficiency   float64    `json:"efficiency_percent"` // of the peak of the tiles in use
	TOPS         float64    `json:"tops"`
	Bytes        plan.Bytes `json:"bytes"`
	HostBytes    float64    `json:"host_bytes"` // read and written by the processor for packing, which the clock leaves out
	Kernels      int64      `json:"kernels"`
	ControlWords int        `json:"control_words"`
	Events       uint64     `json:"events"`
	Bound        string     `json:"bound"`
	Busy         []Use      `json:"busy"`
}

// PackWeights brings A into the order in which a plan's movers read it: slab by slab in the best design, A_c block by block in
// the paper's.
func PackWeights(p *plan.Plan, a *Matrix) ([]byte, error) {
	if err := a.Check("A", p.M, p.K, p.Type.Bytes()); err != nil {
		return nil, err
	}
	dst := make([]byte, p.BytesA())
	at := 0
	if p.Design == plan.Paper {
		for pc := 0; pc < p.K; pc += p.KC {
			kc := ceilTo(min(p.KC, p.K-pc), p.Kernel.KS)
			for ic := 0; ic < p.M; ic += p.MC {
				mc := ceilTo(min(p.MC, p.M-ic), p.Kernel.MR)
				a.PackA(dst[at:], p.Kernel, ic, mc, pc, kc)
				at += mc * kc * p.Type.Bytes()
			}
		}
		return dst, nil
	}
	for pm := range p.PassM {
		for s := range p.Steps {
			for r := range p.Rows {
				for q := range p.Chain {
					a.PackA(dst[at:], p.Kernel, (pm*p.Rows+r)*p.MB, p.MB, (s*p.Chain+q)*p.KB, p.KB)
					at += int(p.BlockA())
				}
			}
		}
	}
	return dst, nil
}

type machine struct {
	*Program
	opt   Options
	e     sim.Engine
	op    Operands
	tiles map[[2]int]*tile
	shims map[int]*shim

	ddrMem  []byte // B_c and micro-tiles of C (paper)
	rings   [2][]byte
	ddr     sim.Server
	ram     sim.Server
	lanes   map[int]*sim.Server
	stage   [2]*stager
	streams []circuit
	plIn    []*mover
	plOut   []*sink

	pc      int // of the register program
	bytes   plan.Bytes
	host    float64
	kernels int64
	useful  sim.Time // when the last result was written
	zero    []byte
}

// Run executes a program on operands.
func Run(ctx context.Context, pr *Program, op Operands, opt Options) (*Report, error) {
	p := pr.Plan
	if !opt.TimingOnly {
		if int64(len(op.A)) != p.BytesA() {
			return nil, fmt.Errorf("A is packed in %d bytes, the plan's layout has %d", len(op.A), p.BytesA())
		}
		if rows, cols := op.B.Size(); rows != p.K || cols != p.N || op.B.ElemBytes() != p.Type.Bytes() {
			return nil, fmt.Errorf("B is %d x %d of %d bytes, %d x %d of %d is right", rows, cols, op.B.ElemBytes(), p.K, p.N, p.Type.Bytes())
		}
		if err := op.C.Check("C", p.M, p.N, p.Out.Bytes()); err != nil {
			return nil, err
		}
	}
	m := &machine{Program: pr, opt: opt, op: op, tiles: map[[2]int]*tile{}, shims: map[int]*shim{}, lanes: map[int]*sim.Server{}}
	if !opt.TimingOnly && p.Design == plan.Paper {
		m.ddrMem = make([]byte, pr.ABase)
	}
	for i := range pr.Movers {
		m.plIn = append(m.plIn, newMover(m, i))
	}
	for i := range pr.Sinks {
		m.plOut = append(m.plOut, newSink(m, i))
	}
	for i, f := range pr.Feeds {
		if f != nil && f.Mode != plan.Resident {
			m.stage[i] = newStager(m, i, f)
			if !opt.TimingOnly {
				m.rings[i] = make([]byte, f.Slots*f.Slab)
			}
		}
	}
	if err := m.connect(); err != nil {
		return nil, err
	}
	m.step()
	for _, s := range m.stage {
		if s != nil {
			s.next()
		}
	}
	for _, x := range m.plIn {
		x.poke()
	}
	if err := m.e.Run(ctx, opt.MaxEvents, nil); err != nil {
		return nil, err
	}
	if err := m.atRest(); err != nil {
		return nil, err
	}
	return m.report(), nil
}

// atRest returns an error unless everything was consumed.
func (m *machine) atRest() error {
	if m.pc < len(m.Regs.Ops) {
		o := &m.Regs.Ops[m.pc]
		return errors.Join(fmt.Errorf("the register program waits at operation %d (%s)", m.pc, o.Note), m.e.Deadlock())
	}
	if err := m.e.Deadlock(); err != nil {
		return err
	}
	for _, s := range m.streams {
		for i := range s.sinks {
			if n := s.Buffered(i); n > 0 {
				return fmt.Errorf("%d words are left before %v", n, s.sinks[i])
			}
		}
	}
	for _, t := range m.tiles {
		for id := range t.locks {
			l := &t.locks[id]
			if l.held && !t.waitsWith(id) {
				return fmt.Errorf("%s: lock %d is still held after the run", t.name(), id)
			}
			if !l.held && l.value != 0 {
				return fmt.Errorf("%s: the buffer of lock %d is still full after the run", t.name(), id)
			}
		}
	}
	return nil
}

type circuit struct {
	*sim.Stream
	sinks []Port
}

func (m *machine) fail(format string, args ...any) { m.e.Fail(fmt.Errorf(format, args...)) }

func (m *machine) tile(col, row int) *tile {
	t := m.tiles[[2]int{col, row}]
	if t == nil {
		if err := m.Device.CheckTile(col, row); err != nil {
			m.e.Fail(err)
			col, row = 0, 1
		}
		t = newTile(m, col, row)
		m.tiles[[2]int{col, row}] = t
	}
	return t
}

func (m *machine) shim(col int) *shim {
	s := m.shims[col]
	if s == nil {
		if !m.Device.HasDMA(col) {
			m.fail("shim %d has no DMA", col)
		}
		s = newShim(m, col)
		m.shims[col] = s
	}
	return s
}

// connect builds the circuits.
func (m *machine) connect() error {
	for i := range m.Links {
		l := &m.Links[i]
		ticks := l.Ticks
		if ticks == 0 {
			ticks = tick
		}
		if l.Wide > 1 {
			ticks /= float64(l.Wide)
		}
		var lane *sim.Server
		if l.Lane > 0 {
			if m.lanes[l.Lane] == nil {
				m.lanes[l.Lane] = &sim.Server{}
			}
			lane = m.lanes[l.Lane]
		}
		pace := pacer{ticks: ticks, lane: lane}
		src, keep := m.source(l.From, pace)
		if src == nil {
			return fmt.Errorf("%v sends nothing", l.From)
		}
		keeps := []**sim.Stream{keep}
		var sinks []sim.Sink
		for _, to := range l.To {
			s, k := m.sinkOf(to)
			if s == nil {
				return fmt.Errorf("%v receives nothing", to)
			}
			sinks, keeps = append(sinks, s), append(keeps, k)
		}
		st := sim.NewStream(&m.e, l.Depth, 2048, src, sinks...)
		m.streams = append(m.streams, circuit{st, l.To})
		for _, k := range keeps {
			if *k != nil {
				return fmt.Errorf("link from %v: an end already has a stream", l.From)
			}
			*k = st
		}
	}
	return m.e.Err()
}

// pacer is how fast words can travel on a circuit.
type pacer struct {
	ticks float64 // a word
	lane  *sim.Server
}

func (p *pacer) pace(start sim.Time, words int) sim.Time {
	d := sim.Time(math.Ceil(float64(words)*p.ticks - 1e-6))
	end := start + d
	if p.lane != nil {
		end = max(end, p.lane.Serve(start, d))
	}
	return end
}

func (m *machine) source(p Port, pace pacer) (sim.Source, **sim.Stream) {
	switch p.Kind {
	case PLIn:
		x := m.plIn[p.Chan]
		x.pacer = pace
		return x, &x.stream
	case ShimMM2S:
		c := m.shim(p.Col).mm2s[p.Chan]
		c.pacer = pace
		return c, &c.stream
	case CoreMM2S:
		c := m.tile(p.Col, p.Row).mm2s[p.Chan]
		c.pacer = pace
		return c, &c.stream
	case CoreOut:
		c := m.tile(p.Col, p.Row).out
		c.pacer = pace
		return c, &c.stream
	}
	return nil, nil
}

func (m *machine) sinkOf(p Port) (sim.Sink, **sim.Stream) {
	switch p.Kind {
	case PLOut:
		x := m.plOut[p.Chan]
		return x, &x.stream
	case ShimS2MM:
		c := m.shim(p.Col).s2mm[p.Chan]
		return c, &c.stream
	case CoreS2MM:
		c := m.tile(p.Col, p.Row).s2mm[p.Chan]
		return c, &c.stream
	case CoreIn:
		c := m.tile(p.Col, p.Row).in[p.Chan]
		return c, &c.stream
	}
	return nil, nil
}

// serveDDR reserves the DDR interface.
func (m *machine) serveDDR(start sim.Time, bytes float64) sim.Time {
	m.bytes.DDR += bytes
	return m.ddr.Serve(start, cycles(bytes/m.Device.DDRBytesPerCycle()))
}

// serveRAM reserves the ports of the FPGA RAM.
func (m *machine) serveRAM(start sim.Time, bytes float64) sim.Time {
	m.bytes.FPGA += bytes
	return m.ram.Serve(start, cycles(bytes/m.Device.RAMBytesPerCycle()))
}

// at returns a piece of a memory.
func (m *machine) at(mem Memory, addr int64, n int) ([]byte, error) {
	a := m.op.A
	switch mem {
	case FPGA:
		if m.Plan.Design == plan.Paper {
			if addr+int64(n) <= m.FPGA {
				return a[addr : addr+int64(n)], nil
			}
			break
		}
		for i, f := range m.Feeds {
			region := m.rings[i]
			if f.Mode == plan.Resident {
				region = a
			}
			if off := addr - f.Base; off >= 0 && off+int64(n) <= int64(len(region)) {
				return region[off : off+int64(n)], nil
			}
		}
	case DDR:
		if addr >= 0 && addr+int64(n) <= int64(len(m.ddrMem)) {
			return m.ddrMem[addr : addr+int64(n)], nil
		}
		// Behind B_c and C lies what of A is not in FPGA RAM.
		if off := addr - m.ABase + m.FPGA; addr >= m.ABase && off+int64(n) <= int64(len(a)) {
			return a[off : off+int64(n)], nil
		}
	}
	return nil, fmt.Errorf("%s address 0x%x, %d bytes: outside of memory", [...]string{"DDR", "FPGA RAM"}[mem], addr, n)
}

// step executes register operations until one has to wait.
func (m *machine) step() {
	for m.pc < len(m.Regs.Ops) && m.e.Err() == nil {
		o := &m.Regs.Ops[m.pc]
		switch o.Kind {
		case regs.Write:
			m.write(o.Addr, o.Value)
		case regs.Block:
			for i, v := range o.Data {
				m.write(o.Addr+uint32(4*i), v)
			}
		case regs.Poll:
			if v, ok := m.read(o.Addr); !ok || v&o.Mask != o.Value {
				return // the channels resume the program when their state changes
			}
		case regs.Host:
			if o.Index < 0 || o.Index >= len(m.Tasks) {
				m.fail("host task %d, 0 to %d is right", o.Index, len(m.Tasks)-1)
				return
			}
			m.task(&m.Tasks[o.Index])
		}
		m.pc++
	}
}

// resume lets a waiting register program look again.
func (m *machine) resume() {
	if m.pc < len(m.Regs.Ops) && m.Regs.Ops[m.pc].Kind == regs.Poll {
		m.e.After(0, resumer{m}, 0)
	}
}

type resumer struct{ m *machine }

func (r resumer) Handle(int) { r.m.step() }

func (m *machine) write(addr, value uint32) {
	col, row, off := m.Device.Split(addr)
	if row == 0 {
		m.shim(col).write(off, value)
		return
	}
	m.tile(col, row).write(off, value)
}

func (m *machine) read(addr uint32) (uint32, bool) {
	col, row, off := m.Device.Split(addr)
	if row == 0 {
		return m.shim(col).read(off)
	}
	m.fail("register 0x%08x cannot be read", addr)
	return 0, false
}

// task does what the processor does. Its traffic is counted and its time is not, as in the seed's figures.
func (m *machine) task(t *Task) {
	p := m.Plan
	k := p.Kernel
	e, ce := p.Type.Bytes(), p.Out.Bytes()
	switch t.Kind {
	case PackBPanel:
		m.host += float64(min(t.K, p.K-t.K0)*min(t.N, p.N-t.N0)*e + t.K*t.N*e)
		if m.opt.TimingOnly {
			return
		}
		for j := 0; j < t.N; j += k.NR {
			at := int(t.Addr) + j*t.K*e
			m.op.B.PackB(m.ddrMem[at:at+t.K*k.NR*e], k, t.K0, t.K, t.N0+j, k.NR)
		}
	case LoadC, StoreC:
		m.host += 2 * float64(p.BytesC())
		if m.opt.TimingOnly {
			return
		}
		panels := ceilTo(p.N, k.NR) / k.NR
		for j := range panels {
			at := int(t.Addr) + j*t.Rows*k.NR*ce
			if t.Kind == LoadC {
				packC(m.ddrMem[at:], m.op.C, k, 0, t.Rows, j*k.NR, k.NR)
			} else {
				unpackC(m.op.C, m.ddrMem[at:], k, 0, t.Rows, j*k.NR, k.NR)
			}
		}
	}
}

func (m *machine) report() *Report {
	p := m.Plan
	end := float64(m.useful)
	r := &Report{Cycles: end / tick, Kernels: m.kernels, ControlWords: m.Regs.Words(), Events: m.e.Steps(), Bytes: m.bytes, HostBytes: m.host}
	r.Bytes.DDR += m.host
	r.Seconds = r.Cycles / m.Device.ClockHz
	r.MACsPerCycle = p.MACs() / r.Cycles
	r.Efficiency = 100 * p.Type.Efficiency(p.MACs(), r.Cycles*float64(p.Tiles))
	r.TOPS = 2 * p.MACs() / r.Seconds / 1e12
	add := func(name string, busy sim.Time) {
		if busy > 0 {
			r.Busy = append(r.Busy, Use{name, 100 * float64(busy) / end})
		}
	}
	var kern, copies sim.Time
	for _, t := range m.tiles {
		kern = max(kern, t.busy)
	}
	for _, s := range m.shims {
		copies = max(copies, s.mm2s[0].busy)
	}
	var a, b, c sim.Time
	for i, x := range m.plIn {
		if m.Movers[i].Feed != nil && m.Movers[i].Feed == m.Feeds[1] {
			b = max(b, x.busy)
		} else {
			a = max(a, x.busy)
		}
	}
	for _, l := range m.lanes {
		c = max(c, l.Busy())
	}
	add("kernel", kern)
	add("b_r copy", copies)
	add("plio a", a)
	add("plio b", b)
	add("plio c", c)
	add("ddr", m.ddr.Busy())
	add("fpga ram", m.ram.Busy())
	best := -1.0
	for _, u := range r.Busy {
		if u.Percent > best {
			best, r.Bound = u.Percent, u.Name
		}
	}
	return r
}

// elementsOf counts the valid elements of a range of n that starts at from in size.
func elementsOf(from, n, size int) int { return max(0, min(n, size-from)) }
