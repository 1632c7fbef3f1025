package cpu

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// A weight of a model's file is packed late: the first run reads it as it lies, some panels at a time, and a later one packs it for good. So a
// program has its first result before there is memory for all weights, which is fresh and may cost more than the run, on virtual
// machines many times as much. The bits of results do not depend on it.

// late is what such a weight has until it is closed.
type late struct {
	e        *Engine
	source   tensor.Tensor
	consumed func([]byte)
	lying    *packed // as it lies in the source
	turn     int32   // the number of low runs that others pack before

	runs    atomic.Int32
	packing sync.Mutex
	packed  atomic.Pointer[packed]
}

// lateTurns is how many low runs share the packing of all weights: each takes some longer instead of one much longer.
const lateTurns = 8

// lowRun is the number of rows up to which a run counts as low. To pack a weight shows little in the time of others.
const lowRun = 32

// lateWeights counts weights, to give them their turns.
var lateWeights atomic.Int32

// later returns a constant's weight to be packed late, or nil if it must be packed now: forms that are not read as they lie.
func (e *Engine) later(s matmul.Spec, c *ops.Constant) *packed {
	t := c.Tensor
	how, err := form(withResult(s), true)
	if err != nil || t.Rank != 2 || !t.IsContiguous() || s.BLayout != matmul.ColMajor || t.DType != s.B || t.Dims[0] != s.N || t.Dims[1] != s.K || s.N == 0 || s.K == 0 {
		return nil
	}
	lying := &packed{spec: s, how: how, batch: t.Shape()[:0]}
	switch {
	case how == blocked:
		rows, err := qgemm.Rows(t.DType, t.Raw(), s.K/t.DType.Block()*t.DType.Size(), s.N, s.K)
		if err != nil {
			return nil
		}
		lying.blocks = []*qgemm.Packed{rows}
	case how == floating && !t.DType.IsBlock():
		lying.plain = matrixOf(&t, 0, s.N, s.K, true)
	default:
		return nil
	}
	l := &late{e: e, source: t, consumed: c.Origin.Consumed, lying: lying, turn: lateWeights.Add(1) % lateTurns}
	return &packed{spec: s, how: how, batch: lying.batch, late: l}
}

// form returns what a run of some rows works with, and packs the weight if it is time to.
func (l *late) form(ctx context.Context, rows int) (*packed, error) {
	if p := l.packed.Load(); p != nil {
		return p, nil
	}
	before := l.runs.Add(1) - 1
	if before == 0 || rows <= lowRun && before <= l.turn || !l.packing.TryLock() {
		return l.lying, nil
	}
	defer l.packing.Unlock()
	return l.pack(ctx)
}

// now packs the weight if no run has.
func (l *late) now(ctx context.Context) (*packed, error) {
	l.packing.Lock()
	defer l.packing.Unlock()
	return l.pack(ctx)
}

// pack packs the weight; the caller has the lock.
func (l *late) pack(ctx context.Context) (*packed, error) {
	if p := l.packed.Load(); p != nil {
		return p, nil
	}
	w, err := l.e.pack(ctx, l.lying.spec, l.source, l.consumed)
	if err != nil {
		return nil, err
	}
	p := w.(*packed)
	l.packed.Store(p)
	return p, nil
}

// bytes returns the size of the packed form, also before there is one.
func (l *late) bytes() int {
	if p := l.packed.Load(); p != nil {
		return p.Bytes()
	}
	if l.lying.how == blocked {
		return l.lying.Bytes()
	}
	n, err := gemm.PackedBytes(l.lying.plain, &gemm.Options{ISA: l.e.isa})
	if err != nil {
		return 0
	}
	return n
}

func (l *late) close() error {
	if p := l.packed.Load(); p != nil {
		return p.Close()
	}
	return nil
}
