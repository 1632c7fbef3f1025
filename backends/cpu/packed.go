package cpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// packed is a weight in the layout of gemm or qgemm, a matrix for each of its batches.
type packed struct {
	spec     matmul.Spec
	how      arithmetic
	batch    []int
	matrices []*gemm.PackedB
	blocks   []*qgemm.Packed
	plain    gemm.Matrix // the one matrix of a weight that is not packed, where it has no blocks
	ints     []int32     // as [batch][N][K]
	late     *late       // not nil: it has the matrices
	closed   bool

	// The one matrix of a weight of which a part is packed.
	blockParts *qgemm.Parts
	plainParts *gemm.PartsB
}

// Spec returns the problem that the weight was packed for.
func (p *packed) Spec() matmul.Spec { return p.spec }

// Bytes returns the memory that the packed form takes, or will take.
func (p *packed) Bytes() int {
	if p.late != nil {
		return p.late.bytes()
	}
	n := 4 * len(p.ints)
	for _, m := range p.matrices {
		n += m.Bytes()
	}
	for _, m := range p.blocks {
		n += m.Bytes()
	}
	return n
}

// Close releases the memory.
func (p *packed) Close() error {
	var errs []error
	for _, m := range p.matrices {
		errs = append(errs, m.Close())
	}
	for _, m := range p.blocks {
		errs = append(errs, m.Close())
	}
	if p.blockParts != nil {
		errs = append(errs, p.blockParts.Close())
	}
	if p.plainParts != nil {
		errs = append(errs, p.plainParts.Close())
	}
	if p.late != nil {
		errs = append(errs, p.late.close())
	}
	p.matrices, p.blocks, p.ints, p.late, p.closed = nil, nil, nil, nil, true
	return errors.Join(errs...)
}

// Pack brings weights [..., K, N], or [..., N, K] if column-major, into the layout of the kernels.
func (e *Engine) Pack(ctx context.Context, s matmul.Spec, b tensor.Tensor) (matmul.Packed, error) {
	if err := s.CheckWeights(&b); err != nil {
		return nil, fmt.Errorf("cpu: pack of %v for %v: %w", b.Spec, s, err)
	}
	return e.pack(ctx, s, b, nil)
}

// pack is Pack; consumed, if not nil, is called with the bytes of the tensor that are packed.
func (e *Engine) pack(ctx context.Context, s matmul.Spec, b tensor.Tensor, consumed func([]byte)) (matmul.Packed, error) {
	how, err := form(withResult(s), true)
	if err != nil {
		return nil, err
	}
	if b.Rank < 2 {
		return nil, fmt.Errorf("cpu: pack of %v: two dimensions or more are right", b.Spec)
	}
	k, n := b.Dim(-2), b.Dim(-1)
	if s.BLayout == matmul.ColMajor {
		k, n = n, k
	}
	if b.DType != s.B || k != s.K || n != s.N {
		return nil, fmt.Errorf("cpu: pack of %v for %v", b.Spec, s)
	}
	p := &packed{spec: s, how: how, batch: b.Shape()[:b.Rank-2]}
	if how == integral {
		p.ints = transposedInts(b, s.BLayout)
		return p, nil
	}
	if how == floating && b.DType.IsBlock() {
		decoded, err := quant.Decode(b)
		if err != nil {
			return nil, err
		}
		if consumed != nil && b.IsContiguous() {
			consumed(b.Raw())
		}
		b, consumed = decoded, nil
	}
	opt := gemm.Options{Threads: e.threads, ISA: e.isa}
	err = eachMatrix(b, func(m tensor.Tensor) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if how == blocked {
			if m.Strides[0] < m.Dims[1] && m.Dims[0] > 1 { // one row repeated
				m = m.Clone()
			}
			q, err := qgemm.Pack(m.DType, m.Raw(), m.Strides[0]/m.DType.Block()*m.DType.Size(), s.N, s.K, &qgemm.Options{Threads: e.threads, Release: consumed})
			if err == nil {
				p.blocks = append(p.blocks, q)
			}
			return err
		}
		opt.Release = nil
		piecewise := consumed != nil && s.BLayout == matmul.ColMajor && m.IsContiguous()
		if piecewise {
			opt.Release = consumed
		}
		g, err := gemm.PackB(matrixOf(&m, 0, m.Dims[0], m.Dims[1], s.BLayout == matmul.ColMajor), &opt)
		if err == nil {
			p.matrices = append(p.matrices, g)
			if consumed != nil && !piecewise && m.IsContiguous() {
				consumed(m.Raw())
			}
		}
		return err
	})
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// withResult gives a problem whose result is not said the widest one.
func withResult(s matmul.Spec) matmul.Spec {
	if s.C == tensor.Invalid {
		s.C = tensor.F32
	}
	return s
}

// eachMatrix calls f for the matrices of a tensor, in row-major order.
func eachMatrix(t tensor.Tensor, f func(m tensor.Tensor) error) error {
	outer, m := t, t
	outer.Rank -= 2
	m.Rank = 2
	m.Dims = [tensor.MaxRank]int{t.Dim(-2), t.Dim(-1)}
	m.Strides = [tensor.MaxRank]int{t.Strides[t.Rank-2], t.Strides[t.Rank-1]}
	outer.DType = tensor.U8
	for i := int(outer.Rank); i < tensor.MaxRank; i++ {
		outer.Dims[i] = 0
	}
	var err error
	outer.Each(func(_, off int) {
		if err == nil {
			m.Off = t.Off + off/t.DType.Block()*t.DType.Size()
			err = f(m)
		}
	})
	return err
}

// transposedInts returns integer weights as [batch][N][K].
func transposedInts(b tensor.Tensor, l matmul.Layout) []int32 {
	if l == matmul.RowMajor {
		b, _ = b.Transpose(int(b.Rank)-2, int(b.Rank)-1)
	}
	v := make([]int32, b.Elems())
	for i, x := range b.Ints() {
		v[i] = int32(x)
	}
	return v
}
