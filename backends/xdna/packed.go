package xdna

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// packed is a weight in the array's type and memory order, or, in fast mode, in the CPU kernels' panels.
type packed struct {
	e        *Engine
	spec     matmul.Spec
	types    device.Types
	d        *design.Design
	bfp      bool // the product runs on the block floating point path
	n, k     int
	data     []byte // as the design's layout says; nil in fast mode where the panels are all that is needed
	pitch    int    // bytes
	colScale []float32
	specials map[int][]float32 // columns that hold a NaN or an infinity, as they came, where the array's type has no such number
	fast     *fastB
	closed   bool

	once     sync.Once
	tiled    []byte // for the array, from data, where the layout is tiled
	err      error
	expected atomic.Int64 // bytes of tiled, as soon as they are known
}

// forArray returns the weights as the array reads them. All runs of one problem read the same.
func (p *packed) forArray(r *design.Run) ([]byte, error) {
	if p.d.BLayout != design.Tiled {
		return p.data, nil
	}
	p.once.Do(func() {
		p.expect(r)
		p.tiled = make([]byte, r.BufferBytes[design.ArgB])
		pitch := p.types.B.Bytes(r.Problem.K)
		p.err = r.TileB(p.tiled, p.data, design.ColMajor, int64(pitch))
	})
	return p.tiled, p.err
}

// Spec returns the problem that the weight was packed for.
func (p *packed) Spec() matmul.Spec { return p.spec }

// Bytes is the memory that the packed form takes, or will.
func (p *packed) Bytes() int {
	n := len(p.data) + int(p.expected.Load()) + 4*len(p.colScale)
	for _, c := range p.specials {
		n += 4 * len(c)
	}
	if p.fast != nil {
		n += p.fast.bytes()
	}
	return n
}

// WriteTo is not offered: converting again is as fast as reading would be.
func (p *packed) WriteTo(io.Writer) (int64, error) {
	return 0, fmt.Errorf("xdna: packed weights are not stored: %w", errors.ErrUnsupported)
}

// Close releases the memory.
func (p *packed) Close() error {
	p.closed = true
	p.data, p.tiled, p.colScale, p.specials = nil, nil, nil, nil
	if p.fast != nil {
		err := p.fast.close()
		p.fast = nil
		return err
	}
	return nil
}

// weightsSpec is what of a problem the packed form depends on, apart from the array's types.
func weightsSpec(s matmul.Spec) matmul.Spec {
	s.Epilogue, s.C = matmul.Epilogue{}, tensor.Invalid
	return s
}

// Pack converts weights to the array's type and order.
func (e *Engine) Pack(ctx context.Context, s matmul.Spec, b tensor.Tensor) (matmul.Packed, error) {
	h, err := e.form(s)
	if err != nil {
		return nil, err
	}
	if b.Rank != 2 {
		return nil, fmt.Errorf("%s: weights of shape %v; two dimensions are right", e.dev.Name, b.Spec)
	}
	k, n := b.Dims[0], b.Dims[1]
	if s.BLayout == matmul.ColMajor {
		k, n = n, k
	}
	if err := s.CheckWeights(&b); err != nil {
		return nil, fmt.Errorf("%s: pack of %v for %v: %w", e.dev.Name, b.Spec, s, err)
	}
	e.mu.Lock()
	d, err := e.design(h.types)
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	p := &packed{e: e, spec: s, types: h.types, d: d, bfp: e.blockFloat(h.types), n: n, k: k}
	if n == 0 || k == 0 {
		return p, nil
	}
	if err := p.convert(b); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if e.opt.Mode == Fast && e.exec == nil {
		if p.fast, err = newFastB(p, e.opt.Threads); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// pitchOfB is the distance of rows, or columns, of packed weights.
func pitchOfB(d *design.Design, k, n int) int {
	switch d.BLayout {
	case design.RowMajor:
		return word(d.Types.B.Bytes(n))
	case design.ColMajor:
		return word(d.Types.B.Bytes(k))
	}
	return 0
}
