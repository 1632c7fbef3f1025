// Package aie is the backend for the AI Engine array of a Versal VC1902. It decides what of a graph goes there, in which number format, and
// what the simulated time is. No board is used: products are planned, written down as descriptors and register writes, executed by an
// emulator (mode=emulate) or computed to the same bits by the CPU's kernels (mode=fast), and timed by the model.
//
//	import _ "github.com/tessera-go/tessera/backends/aie"
//
//	b, err := backends.Open("aie:precision=int8,mode=emulate,tiles=32")
//
// Weights are prepacked once. Floats become integers on the way in: weights symmetric per output channel, activations symmetric
// per row, both at run time of the first use; products are exact in the array's 48-bit lanes, leave them shifted and rounded to 32 bits, and
// are scaled back by the processor.
package aie

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
)

func init() { backends.Register("aie", open) }

// Backend runs matrix products and convolutions with constant weights on an emulated VC1902.
type Backend struct {
	engine *Engine
	nodes  atomic.Int64
}

func open(o *backends.Options) (backends.Backend, error) {
	dev := device.VC1902
	design, _ := plan.ParseDesign(o.String("design", "best", "best", "paper"))
	e := &Engine{
		dev:     dev,
		design:  design,
		tiles:   o.Int("tiles", 0, 0, dev.Tiles()),
		emulate: o.String("mode", "fast", "fast", "emulate") == "emulate",
		minRows: o.Int("rows", 1, 1, 1<<20),
		threads: o.Int("threads", 0, 0, 1024),
		plans:   map[planKey]*planned{},
		bases:   map[planKey]plan.Options{},
	}
	e.precision, _ = core.ParseType(o.String("precision", "int16", "int16", "int8", "fp32"))
	if design == plan.Paper && e.tiles > len(dev.NoCCols) {
		return nil, fmt.Errorf("design=paper, tiles=%d: each tile needs GMIO channels, up to %d is right", e.tiles, len(dev.NoCCols))
	}
	return &Backend{engine: e}, nil
}

// Name is "aie".
func (b *Backend) Name() string { return "aie" }

// Describe says what is emulated.
func (b *Backend) Describe() backends.Description {
	d := &b.engine.dev
	return backends.Description{
		Name:      "aie",
		Device:    fmt.Sprintf("%s, emulated: %d tiles at %.2f GHz, %.1f MB of FPGA RAM, DDR %.1f GB/s", d.Title, d.Tiles(), d.ClockHz/1e9, float64(d.FPGABytes())/1e6, d.DDRBytesPerSec/1e9),
		Simulated: true,
		Features:  []string{"int16 32 MACs a cycle and tile", "int8 128", "fp32 8", "48-bit accumulators", "cascade", "GMIO", "PLIO"},
		Types:     []string{"i16 x i16", "i8 x i8", "f32 x f32 (quantized, or fp32)", "f32 x block formats"},
		Options: []string{
			"precision=int16: int16, int8 or fp32 for float products",
			"mode=fast: fast (the same bits from CPU kernels) or emulate (descriptors on the emulated array)",
			"design=best: best, or paper (the seed's five loops)",
			"tiles=0: cores at most; 0 means all (paper: one)",
			"rows=1: products of fewer rows stay on the CPU",
			"threads=0: workers of mode=fast; 0 means GOMAXPROCS",
		},
	}
}

// Supports takes products and convolutions with constant weights.
func (b *Backend) Supports(c ops.Call) backends.Verdict {
	if c.Op == nil {
		return backends.No("no operation")
	}
	if len(c.Const) < 2 {
		c.Const = append(c.Const, make([]bool, 2)...)
	}
	switch op := c.Op.(type) {
	case matmul.Op:
		out, err := op.Infer(c.In)
		if err != nil {
			return backends.No("%v", err)
		}
		if !c.Const[1] {
			return backends.No("B is no constant; only weights are prepacked")
		}
		spec, shape := op.Problem(c.In, out[0])
		if err := b.engine.Supports(spec, shape); err != nil {
			return backends.No("%v", err)
		}
		rows := shape.M * shape.Batches()
		if rows < b.engine.minRows {
			return backends.No("%d rows, the option rows asks for %d", rows, b.engine.minRows)
		}
		return b.yes(spec, rows)
	case conv.Conv:
		if !c.Const[1] {
			return backends.No("the filter is no constant; only weights are prepacked")
		}
		g, err := convGeometry(op, c.In)
		if err != nil {
			return backends.No("%v", err)
		}
		return b.yes(g.spec(), g.rows())
	}
	return backends.No("the array multiplies matrices; %s stays with the processor", c.Op.Name())
}

func (b *Backend) yes(spec matmul.Spec, rows int) backends.Verdict {
	v := backends.Yes(fmt.Sprintf("%v product on the emulated array", b.engine.typeFor(spec)))
	v.Accuracy = b.engine.accuracy(spec)
	if rows > 0 && spec.K > 0 && spec.N > 0 {
		if p, err := b.engine.planFor(spec, rows); err == nil {
			v.Cost = time.Duration(p.pred.Seconds * 1e9)
			tiles := "tiles"
			if p.plan.Tiles == 1 {
				tiles = "tile"
			}
			v.Reason += fmt.Sprintf(" on %d %s; %.0f %% of the padded product is useful work", p.plan.Tiles, tiles, 100*p.plan.Useful())
		} else {
			return backends.No("%v", err)
		}
	}
	return v
}

// accuracy is what the number format costs a problem: rows of activations and of weights share a scale each. Sums lose what they are shifted by, at most half
// a unit of 2^-31 of the largest sum, which is less than one part in 2^20 of the operands' rounding.
func (e *Engine) accuracy(s matmul.Spec) backends.Accuracy {
	if s.A.IsInt() {
		return backends.Accuracy{}
	}
	switch e.typeFor(s) {
	case core.Int8:
		return backends.Accuracy{Operand: 0.51 / quantLimit8, Shared: -1}
	case core.Int16:
		return backends.Accuracy{Operand: 0.51 / quantLimit16, Shared: -1}
	}
	return backends.Accuracy{}
}

// MatMul returns the engine for matrix products.
func (b *Backend) MatMul() matmul.Engine { return b.engine }

// Stats returns counters; times are simulated.
func (b *Backend) Stats() backends.Stats {
	s := b.engine.stats()
	s.Nodes = b.nodes.Load()
	return s
}

// Close releases nothing: weights belong to their constants.
func (b *Backend) Close() error { return nil }

// counters of an engine.
type counters struct {
	mu   sync.Mutex
	s    backends.Stats
	last *plan.Plan
}

func (c *counters) add(f func(*backends.Stats)) {
	c.mu.Lock()
	f(&c.s)
	c.mu.Unlock()
}

// Compile prepares a part.
func (b *Backend) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	return compile(ctx, b, part)
}
