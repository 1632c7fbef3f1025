package array

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/tessera-go/tessera/backends/internal/sim"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Options adjust an array. The zero value is ready.
type Options struct {
	Timing   *Timing // nil = DefaultTiming of the device
	Workers  int     // host goroutines that compute for cores, beside the caller; 0 = GOMAXPROCS-1
	MaxSteps uint64  // events after which a run is given up; 0 = no limit
	Tracer   Tracer  // nil = none
	// TimeOnly leaves out the data: nothing is moved or computed and memories count as defined, so that only the clock and the protocol of locks, queues
	// and tokens are emulated. Times are the same. Host buffers may share memory; their lengths still bound addresses.
	TimeOnly bool
}

// Buffer is a host buffer that control code addresses by its position in the argument list.
type Buffer struct {
	Data []byte
	// Input says that the contents count as defined. Reading another buffer before the array wrote it is an error.
	Input bool
}

// In is an input buffer.
func In(data []byte) Buffer { return Buffer{Data: data, Input: true} }

// Out is an output buffer: its contents are undefined until the array writes them.
func Out(data []byte) Buffer { return Buffer{Data: data} }

// Result is what a run took and did.
type Result struct {
	Cycles       float64 // core clock cycles from the first operation to the last event
	Seconds      float64 // simulated: Cycles at the device's clock, and for a dispatch the cost outside the array
	Ops          int
	Words        int // control-code words
	BytesRead    int64
	BytesWritten int64 // from and to host buffers
	Events       uint64
	MACs         int64 // multiply-adds done by the cores
	Cores        []CoreStats
	Written      []int64 // bytes written, per host buffer
}

// CoreStats is how a core spent a run, in cycles.
type CoreStats struct {
	Tile                             device.Tile
	Compute, Zero                    float64
	WaitA, WaitB, WaitC, WaitBarrier float64
	Tiles, Chunks                    int64
}

// Track is a line of a timeline.
type Track struct {
	Tile device.Tile
	Name string // controller, core, s2mm0, ...
}

// Tracer receives what happened when, in core clock cycles since the array was made. Spans of a track do not overlap and come in order of their ends.
type Tracer interface {
	Span(track Track, what string, from, to float64)
}

// Array is an emulated array. It is used by one goroutine at a time.
type Array struct {
	dev   *device.Device
	opt   Options
	tm    *Timing
	eng   *sim.Engine
	tiles [][]*tile // [col][row]
	host  []hostBuffer
	dram  struct{ read, write sim.Server }
	pool  pool

	streams []*sim.Stream
	ready   bool // a configuration has run
	broken  bool // a run failed: reset before the next
	macs    int64
	read    int64
	polls   []*controller
	start   sim.Time
}

type hostBuffer struct {
	base    uint64
	mem     *sim.Memory
	written int64
}

// hostBase and hostStride place host buffers in the device's address space, far apart so that an address that runs out of one buffer meets none.
const (
	hostBase   = 1 << 40
	hostStride = 1 << 40
)

// New returns an array that nothing is configured on.
func New(d *device.Device, opt Options) *Array {
	a := &Array{dev: d, opt: opt, tm: opt.Timing}
	if a.tm == nil {
		a.tm = DefaultTiming(d)
	}
	if opt.Workers == 0 {
		a.opt.Workers = runtime.GOMAXPROCS(0) - 1
	}
	a.Reset()
	return a
}

// Reset returns the array to its state at power-up: registers and locks zero, memories undefined, cores stopped.
func (a *Array) Reset() {
	a.eng = &sim.Engine{}
	a.streams = nil
	a.ready, a.broken = false, false
	a.dram.read, a.dram.write = sim.Server{}, sim.Server{}
	old := a.tiles
	a.tiles = make([][]*tile, a.dev.Cols)
	for col := range a.tiles {
		a.tiles[col] = make([]*tile, a.dev.Rows)
		for row := range a.tiles[col] {
			var before *tile
			if old != nil {
				before = old[col][row]
			}
			a.tiles[col][row] = newTile(a, device.Tile{Col: col, Row: row}, before)
		}
	}
}

// Configure resets the array and runs a configuration. Host buffers are those that its shim descriptors address, usually none.
func (a *Array) Configure(ctx context.Context, words []uint32, bufs ...Buffer) (*Result, error) {
	a.Reset()
	res, err := a.run(ctx, words, bufs)
	if err != nil {
		a.broken = true
		return res, fmt.Errorf("configuration: %w", err)
	}
	a.ready = true
	return res, nil
}

// Dispatch runs a run-time stream on the configured array and checks that everything comes to rest: channels, queues, tokens, streams, locks and cores. After an error the
// array must be configured again.
func (a *Array) Dispatch(ctx context.Context, words []uint32, bufs ...Buffer) (*Result, error) {
	if a.broken {
		return nil, errors.New("array: an earlier run failed, configure the array again")
	}
	if !a.ready {
		return nil, errors.New("array: not configured")
	}
	res, err := a.run(ctx, words, bufs)
	if err == nil {
		err = a.atRest()
	}
	if err != nil {
		a.broken = true
		return res, fmt.Errorf("dispatch: %w", err)
	}
	res.Seconds += a.tm.Dispatch
	return res, nil
}

func (a *Array) run(ctx context.Context, words []uint32, bufs []Buffer) (*Result, error) {
	rd, err := txn.NewReader(words)
	if err != nil {
		return nil, err
	}
	if h := rd.Header; h.DevGen != a.dev.Gen || int(h.Rows) != a.dev.Rows || int(h.MemTileRows) != a.dev.MemRows || int(h.Cols) > a.dev.Cols || h.Cols == 0 {
		return nil, fmt.Errorf("array: stream for generation %d, %d columns, %d rows with %d MemTile rows does not fit %s (generation %d, %d columns, %d rows with %d)",
			h.DevGen, h.Cols, h.Rows, h.MemTileRows, a.dev.Name, a.dev.Gen, a.dev.Cols, a.dev.Rows, a.dev.MemRows)
	}
	a.host = a.host[:0]
	for i, b := range bufs {
		a.host = append(a.host, hostBuffer{base: hostBase + uint64(i)*hostStride, mem: sim.WrapMemory(fmt.Sprintf("host buffer %d", i), b.Data, b.Input)})
	}
	a.macs, a.read = 0, 0
	a.start = a.eng.Now()
	a.eachCore(func(c *core) { c.stats = CoreStats{Tile: c.t.pos} })
	steps := a.eng.Steps()
	ctl := &controller{a: a, rd: rd, cols: int(rd.Header.Cols)}
	a.polls = append(a.polls[:0], ctl)
	a.pool.open(a.opt.Workers)
	a.eng.At(a.eng.Now(), ctl, 0)
	err = a.eng.Run(ctx, a.opt.MaxSteps, nil)
	a.eachCore((*core).abandon)
	a.pool.close()
	res := a.result(len(words), rd.Index+1)
	res.Events = a.eng.Steps() - steps
	if err == nil && !ctl.done {
		err = a.deadlock(ctl)
	}
	if err != nil {
		a.eng.Drop()
		return res, err
	}
	return res, nil
}

func (a *Array) result(words, ops int) *Result {
	cycles := float64(a.eng.Now()-a.start) / Tick
	r := &Result{Cycles: cycles, Seconds: cycles / a.dev.ClockHz, Ops: ops, Words: words, MACs: a.macs, BytesRead: a.read}
	for _, h := range a.host {
		r.Written = append(r.Written, h.written)
		r.BytesWritten += h.written
	}
	a.eachCore(func(c *core) { r.Cores = append(r.Cores, c.stats) })
	return r
}

func cyclesOf(t sim.Time) float64 { return float64(t) / Tick }

func (a *Array) eachTile(f func(*tile)) {
	for _, col := range a.tiles {
		for _, t := range col {
			f(t)
		}
	}
}

func (a *Array) eachChannel(f func(*channel)) {
	a.eachTile(func(t *tile) {
		for _, dir := range t.chans {
			for _, c := range dir {
				f(c)
			}
		}
	})
}

func (a *Array) eachCore(f func(*core)) {
	a.eachTile(func(t *tile) {
		if t.core != nil {
			f(t.core)
		}
	})
}

// deadlock reports who waits although no event is left.
func (a *Array) deadlock(ctl *controller) error {
	var waits []string
	add := func(who, what string) {
		if what != "" {
			waits = append(waits, who+": "+what)
		}
	}
	add(ctl.Waiting())
	a.eachChannel(func(c *channel) { add(c.Waiting()) })
	a.eachCore(func(c *core) { add(c.Waiting()) })
	return &sim.DeadlockError{Waits: waits}
}

// atRest checks the state after a dispatch.
func (a *Array) atRest() error {
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	held := map[*sim.Lock]int{} // a channel that waits for its first word has taken its lock already
	a.eachChannel(func(c *channel) {
		if c.state == moving && c.lock != nil {
			held[c.lock] += c.held
		}
	})
	a.eachTile(func(t *tile) {
		place := func(format string, args ...any) error {
			return &Error{Tile: t.pos, Kind: t.info.Kind, BD: -1, Err: fmt.Errorf(format, args...)}
		}
		for i := range t.locks {
			if v := t.locks[i].Value + held[&t.locks[i]]; v != t.lockSet[i] {
				add(place("not at rest: lock %d holds %d, %d with what waiting channels have taken, control code left it at %d", i, t.locks[i].Value, v, t.lockSet[i]))
			}
		}
		for _, dir := range t.chans {
			for _, c := range dir {
				if err := c.notAtRest(); err != nil {
					add(err)
				}
			}
		}
		if t.core != nil {
			if what := t.core.notAtRest(); what != "" {
				add(place("not at rest: core %s", what))
			}
		}
	})
	return errors.Join(errs...)
}

// hostAt finds the host buffer that holds a device address.
func (a *Array) hostAt(addr uint64) (*hostBuffer, int) {
	for i := range a.host {
		if h := &a.host[i]; addr >= h.base && addr-h.base < uint64(len(h.mem.Data)) {
			return h, int(addr - h.base)
		}
	}
	return nil, 0
}

// kernelTime is the speed of a record's kernel on this device.
func (a *Array) kernelTime(r *kernel.Record) (KernelTime, error) {
	mode, err := a.dev.Mode(device.Types{A: r.AType, B: r.BType, C: r.CType})
	if err != nil {
		return KernelTime{}, err
	}
	if mode.Arith != r.Arith {
		return KernelTime{}, fmt.Errorf("%s multiplies %v x %v with %v arithmetic, the record asks for %v", a.dev.Name, r.AType, r.BType, mode.Arith, r.Arith)
	}
	if mode.R != r.R || mode.S != r.S || mode.T != r.T {
		return KernelTime{}, fmt.Errorf("%s multiplies %v x %v in blocks of %d x %d x %d, the record has %d x %d x %d", a.dev.Name, r.AType, r.BType, mode.R, mode.S, mode.T, r.R, r.S, r.T)
	}
	k, ok := a.tm.Kernels[Kernel{r.AType, r.BType, r.CType, r.Arith}]
	if !ok {
		k = KernelTime{MACs: float64(mode.PeakMACs)}
	}
	return k, nil
}
