package xdna

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/backends/xdna/txn"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Engine runs matrix products on one NPU. Products of several goroutines take turns: the array runs one at a time.
type Engine struct {
	dev *device.Device
	opt Options

	mu      sync.Mutex
	exec    Executor // nil in fast mode
	designs map[device.Types]*design.Design
	plans   map[planKey]*mmPlan
	loaded  *design.Design // what the array is configured for
	broken  bool           // a dispatch failed: configure again
	closed  bool           // and the executor with it
	stats   backends.Stats

	hostResults atomic.Int64 // counted while others hold the lock
}

func newEngine(dev *device.Device, opt Options, exec Executor) *Engine {
	return &Engine{dev: dev, opt: opt, exec: exec, designs: map[device.Types]*design.Design{}, plans: map[planKey]*mmPlan{}}
}

// how is the way in which a problem is brought to the array.
type how struct {
	types  device.Types
	direct bool // the array writes C as the problem wants it: no epilogue, no conversion
}

// hostB reports whether the weights are converted here from types that the array does not take.
func hostB(s matmul.Spec) bool { return s.A == tensor.F32 || s.A == tensor.F16 }

// form decides how a problem runs.
func (e *Engine) form(s matmul.Spec) (how, error) {
	no := func(format string, args ...any) (how, error) {
		return how{}, fmt.Errorf("%s: "+format, append([]any{e.dev.Name}, args...)...)
	}
	float := func(t device.Types) device.Types {
		t.C = kernel.BF16
		if e.opt.F32Out {
			t.C = kernel.F32
		}
		return t
	}
	plain := s.Epilogue.IsZero()
	var h how
	switch {
	case s.A == tensor.I8 && s.B == tensor.I8:
		h.types = device.Types{A: kernel.I8, B: kernel.I8, C: kernel.I32}
		switch {
		case plain && s.C == tensor.I8:
			h.types.C, h.direct = kernel.I8, true
		case plain && s.C == tensor.I16:
			h.types.C, h.direct = kernel.I16, true
		case plain && s.C == tensor.I32:
			h.direct = true
		case s.C == tensor.I8 || s.C == tensor.U8 || s.C == tensor.F32:
		default:
			return no("no product of %v and %v into %v with an epilogue", s.A, s.B, s.C)
		}
	case s.A == tensor.BF16 && (s.B == tensor.BF16 || s.B == tensor.BFP16), s.A == tensor.BFP16 && s.B == tensor.BFP16:
		h.types = device.Types{A: kernel.BF16, B: kernel.BF16}
		if s.B == tensor.BFP16 {
			h.types.B = kernel.BFP16
		}
		if s.A == tensor.BFP16 {
			h.types.A = kernel.BFP16
		}
		switch s.C {
		case tensor.BF16:
			h.types.C, h.direct = kernel.BF16, plain
		case tensor.F32:
			h.types.C, h.direct = kernel.F32, plain
		default:
			return no("no product of %v and %v into %v", s.A, s.B, s.C)
		}
	case hostB(s) && (s.B.IsFloat() && s.B != tensor.F64 || s.B.IsBlock() && quant.CanDecode(s.B)):
		if s.C != tensor.F32 && s.C != tensor.BF16 && s.C != tensor.F16 {
			return no("no product of %v and %v into %v", s.A, s.B, s.C)
		}
		switch e.opt.Precision {
		case Int8:
			h.types = device.Types{A: kernel.I8, B: kernel.I8, C: kernel.I32}
		case BFP16:
			h.types = float(device.Types{A: kernel.BF16, B: kernel.BFP16})
		default:
			h.types = float(device.Types{A: kernel.BF16, B: kernel.BF16})
		}
	default:
		return no("no product of %v and %v", s.A, s.B)
	}
	if _, err := e.dev.Mode(h.types); err != nil {
		return how{}, err
	}
	return h, nil
}

// Supports says why a problem has no product here, or nil.
func (e *Engine) Supports(s matmul.Spec, sh matmul.Shape) error {
	if err := s.Check(sh); err != nil {
		return err
	}
	_, err := e.form(s)
	return err
}

// design returns the design of a type triple, made and checked once.
func (e *Engine) design(types device.Types) (*design.Design, error) {
	if d := e.designs[types]; d != nil {
		return d, nil
	}
	d := e.opt.Designs[types]
	if d == nil {
		layout := design.ColMajor
		if e.opt.RowMajorB {
			layout = design.RowMajor
		}
		var err error
		if d, err = DefaultDesign(e.dev, types, layout); err != nil {
			return nil, err
		}
	}
	c := *d
	c.Rounding, c.Overflow, c.Schedule, c.Padding = e.opt.Rounding, e.opt.Overflow, e.opt.Schedule, e.opt.Padding
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e.designs[types] = &c
	return &c, nil
}

// Design returns the design that serves a problem.
func (e *Engine) Design(s matmul.Spec) (*design.Design, error) {
	h, err := e.form(s)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.design(h.types)
}

// Stats returns what the engine has counted.
func (e *Engine) Stats() backends.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.HostResults = e.hostResults.Load()
	return s
}

// planKey names a plan: one for each problem and number of rows.
type planKey struct {
	spec matmul.Spec
	rows int
}

// mmPlan is the control code of one shape. It is immutable; what a run needs lies in the workspace.
type mmPlan struct {
	e     *Engine
	spec  matmul.Spec
	rows  int
	k     int // K that the array is asked for: whole groups for bfp16
	how   how
	d     *design.Design
	run   *design.Run // nil if there is nothing to multiply
	stats txn.Stats
	words []uint32 // emulate; made when first needed
	once  sync.Once
	err   error

	pitchA, pitchB, pitchC int     // bytes
	seconds                float64 // predicted by the analytic model, or by the clock alone
	bytes                  int64   // moved between host memory and the array, predicted
}

// maxPlans bounds the plans that are kept.
const maxPlans = 4096

// Plan prepares a shape.
func (e *Engine) Plan(s matmul.Spec, sh matmul.Shape) (matmul.Plan, error) {
	if err := s.Check(sh); err != nil {
		return nil, err
	}
	h, err := e.form(s)
	if err != nil {
		return nil, err
	}
	rows, err := tensor.CheckDims(tensor.I8, []int{sh.M, sh.Batches()})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.dev.Name, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := planKey{s, rows.Elems()}
	if p := e.plans[key]; p != nil {
		return p, nil
	}
	p := &mmPlan{e: e, spec: s, rows: key.rows, how: h}
	if p.d, err = e.design(h.types); err != nil {
		return nil, err
	}
	if p.rows > 0 && s.N > 0 && s.K > 0 {
		if err := p.prepare(); err != nil {
			return nil, fmt.Errorf("%s: %d x %v: %w", e.dev.Name, p.rows, s, err)
		}
	}
	if len(e.plans) >= maxPlans {
		clear(e.plans)
	}
	e.plans[key] = p
	return p, nil
}

// word rounds bytes up to whole 32-bit words.
func word(n int) int { return (n + 3) &^ 3 }

// prepare lays the product out on the array.
func (p *mmPlan) prepare() error {
	t := p.how.types
	p.k = p.spec.K
	if t.B == kernel.BFP16 {
		p.k = (p.k + 7) &^ 7
	}
	p.pitchA, p.pitchC = t.A.Bytes(p.k), t.C.Bytes(p.spec.N)
	if hostB(p.spec) {
		p.pitchA = word(p.pitchA) // converted here, to where it suits the array
	}
	if !p.how.direct {
		p.pitchC = word(p.pitchC)
	}
	p.pitchB = pitchOfB(p.d, p.k, p.spec.N)
	problem := design.Problem{M: p.rows, K: p.k, N: p.spec.N, PitchA: int64(p.pitchA), PitchB: int64(p.pitchB), PitchC: int64(p.pitchC)}
	if t.A == kernel.BFP16 {
		problem.PitchA = 0
	}
	var err error
	if p.run, err = p.d.Run(problem); err != nil {
		return err
	}
	if p.stats, err = txn.Measure(p.run); err != nil {
		return err
	}
	r := p.run
	p.bytes = int64(t.A.Bytes(r.MPad*r.KPad))*int64(r.BlocksN) + int64(t.B.Bytes(r.KPad*r.NPad))*int64(r.BlocksM) + int64(t.C.Bytes(r.MPad*r.NPad))
	if p.e.exec == nil {
		p.seconds, err = p.e.predict(p.d, p.run)
	}
	return err
}

// encode returns the control code.
func (p *mmPlan) encode() ([]uint32, error) {
	p.once.Do(func() { p.words, p.err = txn.Encode(p.run) })
	return p.words, p.err
}

// planDesign is a design in the planner's terms.
func planDesign(d *design.Design) plan.Design {
	return plan.Design{
		Device: d.Dev.Name, Types: d.Types, Tile: plan.Tile{M: d.Tile.M, K: d.Tile.K, N: d.Tile.N}, KMT: d.KMT,
		RowMajorB: d.BLayout == design.RowMajor, DoubleC: d.CBuffers == 2, Bands: d.Bands, ResidentB: d.ResidentB, Transposed: d.Transposed,
		Schedule: plan.Schedule(d.Schedule),
	}
}

// predict is the time of a run in seconds: by the analytic model, or, for types that it was not fitted for, by the emulator's clock without data.
func (e *Engine) predict(d *design.Design, r *design.Run) (float64, error) {
	m, err := plan.Lookup(e.dev.Name)
	if err != nil {
		return 0, err
	}
	if _, ok := m.Kernels[d.Types]; ok {
		return m.Predict(planDesign(d), plan.Size{M: r.Problem.M, N: r.Problem.N, K: r.Problem.K}).Seconds, nil
	}
	em := NewEmulator(e.dev, array.Options{TimeOnly: true})
	if err := em.Configure(context.Background(), d); err != nil {
		return 0, err
	}
	words, err := txn.Encode(r)
	if err != nil {
		return 0, err
	}
	var most int64
	for _, n := range r.BufferBytes {
		most = max(most, n)
	}
	all := make([]byte, most)
	bufs := make([][]byte, len(r.BufferBytes))
	for i, n := range r.BufferBytes {
		bufs[i] = all[:n]
	}
	res, err := em.Dispatch(context.Background(), words, bufs)
	return res.Seconds, err
}

// use makes the array ready for a design. The caller holds the lock.
func (e *Engine) use(ctx context.Context, d *design.Design) error {
	if e.closed {
		return fmt.Errorf("%s: the backend is closed", e.dev.Name)
	}
	if e.loaded == d && !e.broken {
		return nil
	}
	if e.exec != nil {
		if err := e.exec.Configure(ctx, d); err != nil {
			e.broken = true
			return err
		}
	}
	e.loaded, e.broken = d, false
	e.stats.Configurations++
	e.stats.SimulatedSeconds += e.dev.ReconfigSec
	return nil
}

// PlanInfo is what a plan of this engine has decided.
type PlanInfo struct {
	Design  *design.Design
	Run     *design.Run // nil if there is nothing to multiply
	Words   int64       // control code
	Seconds float64     // predicted, in fast mode
}

// Info describes a plan; false if it is not one of this package's.
func Info(p matmul.Plan) (PlanInfo, bool) {
	m, ok := p.(*mmPlan)
	if !ok {
		return PlanInfo{}, false
	}
	return PlanInfo{Design: m.d, Run: m.run, Words: m.stats.Bytes / 4, Seconds: m.seconds}, true
}
