package plan

import (
	"context"
	"fmt"
	"sync"

	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Build turns a planned design into one that can be configured. B of bfp16 is tiled on the host.
func (d Design) Build() (*design.Design, error) {
	dev, err := device.Lookup(d.Device)
	if err != nil {
		return nil, err
	}
	out := &design.Design{
		Dev: dev, Types: d.Types, Tile: design.Tile(d.Tile), KMT: d.KMT, BLayout: design.ColMajor,
		CBuffers: 1, Schedule: design.Schedule(d.Schedule), Bands: d.bands(), Transposed: d.Transposed, ResidentB: d.ResidentB,
	}
	if d.RowMajorB {
		out.BLayout = design.RowMajor
	}
	if d.Types.B == kernel.BFP16 {
		out.BLayout = design.Tiled
	}
	if d.DoubleC {
		out.CBuffers = 2
	}
	return out, out.Validate()
}

// Emulator measures designs on the emulated array, with its clock and without data. It is a [Measure] that stands where the paper's search asks
// the chip. It keeps the array of the last design configured. It may be used by one goroutine at a time.
type Emulator struct {
	Timing map[string]*array.Timing // by device; nil = the array's defaults
	Tracer array.Tracer             // of dispatches; nil = none
	Data   bool                     // move and compute (zeros) too, which takes longer and changes no time

	mu    sync.Mutex
	last  Design
	built *design.Design
	arr   *array.Array
	scrap []byte
}

// Seconds implements [Measure].
func (e *Emulator) Seconds(d Design, s Size) (float64, error) {
	return e.seconds(context.Background(), d, s)
}

// Measure is Seconds until ctx ends.
func (e *Emulator) Measure(ctx context.Context) Measure {
	return func(d Design, s Size) (float64, error) { return e.seconds(ctx, d, s) }
}

func (e *Emulator) seconds(ctx context.Context, d Design, s Size) (float64, error) {
	r, err := e.Run(ctx, d, s)
	if err != nil {
		return 0, err
	}
	return r.Seconds, nil
}

// Run emulates one product and returns what the array reports.
func (e *Emulator) Run(ctx context.Context, d Design, s Size) (*array.Result, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := d
	key.Schedule = Overlapped // no part of the configuration
	if e.arr == nil || e.last != key {
		e.arr = nil
		b, err := d.Build()
		if err != nil {
			return nil, err
		}
		cfg, err := b.Config()
		if err != nil {
			return nil, err
		}
		words, err := txn.Encode(cfg)
		if err != nil {
			return nil, err
		}
		arr := array.New(b.Dev, array.Options{TimeOnly: !e.Data, Timing: e.Timing[b.Dev.Name], Tracer: e.Tracer})
		if _, err := arr.Configure(ctx, words); err != nil {
			return nil, err
		}
		e.arr, e.built, e.last = arr, b, key
	}
	b := *e.built
	b.Schedule = design.Schedule(d.Schedule)
	run, err := b.Run(design.Problem{M: s.M, K: s.K, N: s.N})
	if err != nil {
		return nil, err
	}
	words, err := txn.Encode(run)
	if err != nil {
		return nil, err
	}
	var bufs []array.Buffer
	for _, n := range run.BufferBytes {
		n = (n + 3) / 4 * 4
		if e.Data {
			bufs = append(bufs, array.In(make([]byte, n)))
			continue
		}
		if int64(len(e.scrap)) < n {
			e.scrap = make([]byte, n) // never touched: no memory behind it
		}
		bufs = append(bufs, array.In(e.scrap[:n]))
	}
	res, err := e.arr.Dispatch(ctx, words, bufs...)
	if err != nil {
		e.arr = nil
		return nil, fmt.Errorf("emulate %v on %v: %w", d, s, err)
	}
	return res, nil
}

// Emulators is a [Measure] that may be called from several goroutines: each call takes an idle [Emulator] or makes a new one. The clock is deterministic, so
// a product is emulated once.
type Emulators struct {
	pool sync.Pool
	mu   sync.Mutex
	seen map[product]float64
}

// Seconds implements [Measure].
func (e *Emulators) Seconds(d Design, s Size) (float64, error) {
	return e.seconds(context.Background(), d, s)
}

// Measure is Seconds until ctx ends.
func (e *Emulators) Measure(ctx context.Context) Measure {
	return func(d Design, s Size) (float64, error) { return e.seconds(ctx, d, s) }
}

func (e *Emulators) seconds(ctx context.Context, d Design, s Size) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	e.mu.Lock()
	seconds, ok := e.seen[product{d, s}]
	e.mu.Unlock()
	if ok {
		return seconds, nil
	}
	x, _ := e.pool.Get().(*Emulator)
	if x == nil {
		x = new(Emulator)
	}
	defer e.pool.Put(x)
	seconds, err := x.seconds(ctx, d, s)
	if err == nil {
		e.mu.Lock()
		if e.seen == nil {
			e.seen = map[product]float64{}
		}
		e.seen[product{d, s}] = seconds
		e.mu.Unlock()
	}
	return seconds, err
}
