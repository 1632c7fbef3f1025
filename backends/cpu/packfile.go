package cpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
)

// The form of a packed weight: its number of matrices (8 bytes, little-endian), the bytes of each (8 bytes), then, each at a multiple of 64
// bytes, the matrices as gemm and qgemm write them.

// prepare packs a constant now or late, or takes the form that its origin has kept.
func (e *Engine) prepare(ctx context.Context, s matmul.Spec, c *ops.Constant) (matmul.Packed, error) {
	if c.Origin == nil {
		return e.pack(ctx, s, c.Tensor, nil)
	}
	key := fmt.Sprintf("cpu %v: %v", e.isa, s)
	// The limit of threads is that of products. Looking for damage lasts as long as reading all weights does, before the first of them.
	if form := c.Origin.Kept(key, par.Workers(0, 2)); form != nil {
		// A form that cannot be used, of an earlier version for example, is as good as none.
		if p, err := e.view(s, form); err == nil && sameBatch(p, c) {
			if c.Tensor.IsContiguous() {
				c.Origin.Consumed(c.Tensor.Raw())
			}
			return p, nil
		}
	}
	if w := e.later(s, c); w != nil {
		c.Origin.Keep(key, w)
		return w, nil
	}
	w, err := e.pack(ctx, s, c.Tensor, c.Origin.Consumed)
	if err != nil {
		return nil, err
	}
	if p := w.(*packed); p.how != integral {
		c.Origin.Keep(key, p)
	}
	return w, nil
}

// sameBatch gives a viewed weight the batch dimensions of its constant, if they have as many matrices.
func sameBatch(p *packed, c *ops.Constant) bool {
	p.batch = c.Tensor.Shape()[:c.Tensor.Rank-2]
	n, ok := mem.Mul(p.batch...)
	return ok && n == len(p.matrices)+len(p.blocks)
}

// forms returns the matrices as what writes them.
func (p *packed) forms() []io.WriterTo {
	var list []io.WriterTo
	for _, m := range p.matrices {
		list = append(list, m)
	}
	for _, m := range p.blocks {
		list = append(list, m)
	}
	return list
}

// length counts what is written.
type length int64

func (n *length) Write(b []byte) (int, error) {
	*n += length(len(b))
	return len(b), nil
}

// WriteTo writes the form that view reads; a weight that is packed late is packed now. Integer weights that no kernel has a layout for are not offered.
func (p *packed) WriteTo(w io.Writer) (int64, error) {
	if p.how == integral {
		return 0, fmt.Errorf("cpu: weights of %v: %w", p.spec.B, errors.ErrUnsupported)
	}
	if p.closed {
		return 0, errors.New("cpu: packed weights are closed")
	}
	if p.late != nil {
		now, err := p.late.now(context.Background())
		if err != nil {
			return 0, err
		}
		return now.WriteTo(w)
	}
	forms := p.forms()
	le := binary.LittleEndian
	head := le.AppendUint64(nil, uint64(len(forms)))
	for _, f := range forms {
		var n length
		if _, err := f.WriteTo(&n); err != nil {
			return 0, err
		}
		head = le.AppendUint64(head, uint64(n))
	}
	var written int64
	put := func(n int64, err error) error {
		written += n
		if pad := -written & (mem.Align - 1); pad > 0 && err == nil {
			var m int
			m, err = w.Write(make([]byte, pad))
			written += int64(m)
		}
		return err
	}
	n, err := w.Write(head)
	err = put(int64(n), err)
	for _, f := range forms {
		if err == nil {
			err = put(f.WriteTo(w))
		}
	}
	return written, err
}

// view uses a form in place.
func (e *Engine) view(s matmul.Spec, data []byte) (*packed, error) {
	how, err := form(withResult(s), true)
	if err != nil {
		return nil, err
	}
	damaged := errors.New("cpu: the form of packed weights is damaged")
	if len(data) < 8 {
		return nil, damaged
	}
	le := binary.LittleEndian
	count := le.Uint64(data)
	if count > uint64(len(data)/8-1) {
		return nil, damaged
	}
	p := &packed{spec: s, how: how}
	want := ""
	if how != blocked {
		typ := gemmType(s.B)
		if s.B.IsBlock() {
			typ = gemm.F32 // decoded
		}
		if want, err = gemm.PackFormat(typ, &gemm.Options{ISA: e.isa}); err != nil {
			return nil, err
		}
	}
	at, _ := mem.RoundUp(8+8*int(count), mem.Align)
	for i := range int(count) {
		size := le.Uint64(data[8+8*i:])
		if at > len(data) || size > uint64(len(data)-at) {
			return nil, damaged
		}
		part := data[at : at+int(size) : at+int(size)]
		at, _ = mem.RoundUp(at+int(size), mem.Align)
		if how == blocked {
			q, err := qgemm.View(part)
			if err != nil {
				return nil, err
			}
			if q.Type() != s.B || q.N() != s.N || q.K() != s.K {
				return nil, damaged
			}
			p.blocks = append(p.blocks, q)
			continue
		}
		g, err := gemm.ViewPackedB(part, false) // whoever keeps forms has compared the check sum
		if err != nil {
			return nil, err
		}
		if k, n := g.Dims(); k != s.K || n != s.N || g.Format() != want {
			return nil, damaged
		}
		p.matrices = append(p.matrices, g)
	}
	return p, nil
}
