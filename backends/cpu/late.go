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

// A weight of a model's file is packed late: the first run reads it as it lies, some panels at a time, and later ones pack it for good. So a
// program has its first result before there is memory for all weights, which is fresh and may cost more than the run, on virtual
// machines many times as much. The bits of results do not depend on it.
//
// Low runs share the packing: each packs some bytes of all weights together, in the order in which they were made, so that no run takes much longer
// than the others. A large weight is packed in parts by several of them, and is read meanwhile as far as it is packed from there.

// late is what such a weight has until it is closed.
type late struct {
	e        *Engine
	source   tensor.Tensor
	consumed func([]byte)
	lying    *packed // as it lies in the source
	group    *lateGroup
	first    int64 // byte of the group

	runs    atomic.Int32
	packing sync.Mutex
	reading atomic.Pointer[packed] // lying, then in parts, then packed
	packed  atomic.Pointer[packed] // nil until all of it is
}

// lateTurns is how many low runs share the packing of all weights. More make each of them shorter, and all together longer: what is not packed yet takes
// longer to read.
const lateTurns = 8

// latePart is the least bytes of a weight that are packed at once, if there are as many.
const latePart = 256 << 10

// lowRun is the number of rows up to which a run counts as low. To pack a weight shows little in the time of others.
const lowRun = 32

// lateGroup is weights that are packed by the same runs: those that were made until one of them was packed.
type lateGroup struct {
	bytes int64 // of all weights as they lie
}

// lateGroups has the group that takes weights.
var lateGroups struct {
	sync.Mutex
	open *lateGroup
}

// joinLate adds a weight to the group that takes them and returns the group and the weight's first byte in it.
func joinLate(bytes int) (*lateGroup, int64) {
	lateGroups.Lock()
	defer lateGroups.Unlock()
	g := lateGroups.open
	if g == nil {
		g = &lateGroup{}
		lateGroups.open = g
	}
	first := g.bytes
	g.bytes += int64(bytes)
	return g, first
}

// due returns how many of the group's bytes are packed by the given number of runs after the first. The last packs twice what the first does, which
// has more to read as it lies. The group takes no more weights.
func (g *lateGroup) due(runs int) int64 {
	lateGroups.Lock()
	defer lateGroups.Unlock()
	if lateGroups.open == g {
		lateGroups.open = nil
	}
	x := float64(runs) / lateTurns
	return int64(float64(g.bytes) * x * (2 + x) / 3)
}

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
	l := &late{e: e, source: t, consumed: c.Origin.Consumed, lying: lying}
	l.group, l.first = joinLate(len(t.Raw()))
	l.reading.Store(lying)
	return &packed{spec: s, how: how, batch: lying.batch, late: l}
}

// form returns what a run of some rows works with, and packs what of the weight it is time to.
func (l *late) form(ctx context.Context, rows int) (*packed, error) {
	if p := l.packed.Load(); p != nil {
		return p, nil
	}
	before := int(l.runs.Add(1) - 1)
	if before == 0 {
		return l.lying, nil
	}
	columns := l.lying.spec.N
	if rows <= lowRun && before < lateTurns {
		columns = l.columns(l.group.due(before))
	}
	if columns == 0 || !l.packing.TryLock() {
		return l.reading.Load(), nil
	}
	defer l.packing.Unlock()
	return l.pack(ctx, columns)
}

// columns returns how many columns of the weight are packed when so many bytes of its group are.
func (l *late) columns(due int64) int {
	n, all := l.lying.spec.N, int64(len(l.source.Raw()))
	due = (due - l.first + latePart - 1) / latePart * latePart
	if due >= all {
		return n
	}
	return int(max(due, 0) * int64(n) / all)
}

// now packs the weight if no run has.
func (l *late) now(ctx context.Context) (*packed, error) {
	l.packing.Lock()
	defer l.packing.Unlock()
	return l.pack(ctx, l.lying.spec.N)
}

// pack packs columns until so many are, and returns what a run works with; the caller has the lock.
func (l *late) pack(ctx context.Context, columns int) (*packed, error) {
	if p := l.packed.Load(); p != nil {
		return p, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := *l.reading.Load()
	var err error
	if p.how == blocked {
		if p.blockParts == nil {
			if p.blockParts, err = p.blocks[0].Parts(); err != nil {
				return nil, err
			}
			p.blocks = nil
		}
		p.blockParts = p.blockParts.Pack(columns, &qgemm.Options{Threads: l.e.threads, Release: l.consumed})
		if whole := p.blockParts.Whole(); whole != nil {
			p.blocks, p.blockParts = []*qgemm.Packed{whole}, nil
		}
	} else {
		opt := &gemm.Options{Threads: l.e.threads, ISA: l.e.isa, Release: l.consumed}
		if p.plainParts == nil {
			if p.plainParts, err = gemm.NewPartsB(p.plain, opt); err != nil {
				return nil, err
			}
			p.plain = gemm.Matrix{}
		}
		p.plainParts = p.plainParts.Pack(columns, opt)
		if whole := p.plainParts.Whole(); whole != nil {
			p.matrices, p.plainParts = []*gemm.PackedB{whole}, nil
		}
	}
	l.reading.Store(&p)
	if p.blockParts == nil && p.plainParts == nil {
		l.packed.Store(&p)
	}
	return &p, nil
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
	if p := l.reading.Load(); p != l.lying {
		return p.Close()
	}
	return nil
}

// multiplyBlocks computes a product with one of the weight's matrices of blocks.
func (p *packed) multiplyBlocks(ctx context.Context, matrix int, q *qgemm.Run) error {
	if p.blockParts != nil {
		return p.blockParts.Mul(ctx, q)
	}
	return p.blocks[matrix].Mul(ctx, q)
}

// multiplyPlain computes a product with one of the weight's matrices of floats or bytes.
func (p *packed) multiplyPlain(matrix int, c, a gemm.Matrix, o *gemm.Options) error {
	switch {
	case p.plainParts != nil:
		return p.plainParts.Mul(c, a, o)
	case len(p.matrices) == 0:
		return gemm.MulStaged(c, a, p.plain, o)
	}
	return gemm.MulPacked(c, a, p.matrices[matrix], o)
}
