package cpu

import (
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/tensor"
)

// A token of a language model is a hundred products of one row with weights in blocks, some microseconds each. They go straight to the kernels, past what
// arranges products in general, and those of one value that follow each other, such as queries, keys and values, are one parallel region.

// rowProduct is such a product.
type rowProduct struct {
	weights  *qgemm.Packed
	run      qgemm.Run
	kernel   *matmulKernel
	residual []float32
}

// Apply finishes a piece of the row.
func (p *rowProduct) Apply(x []float32, _, col int) {
	var residual []float32
	if p.residual != nil {
		residual = p.residual[col:][:len(x)]
	}
	k := p.kernel
	finishRow(k.plan.e.vec, &k.plan.spec.Epilogue, &k.args, x, 0, col, residual)
}

// oneRow reports whether the kernel's types allow the short way.
func (k *matmulKernel) oneRow() bool {
	w, ok := k.weights.(*packed)
	return ok && w.how == blocked && k.plan.spec.A == tensor.F32 && k.plan.spec.C == tensor.F32
}

// row prepares the product for a frame in which it is of one row whose operands are as the kernels read them, and reports whether it is.
func (k *matmulKernel) row(e *env, frame []tensor.Tensor) bool {
	w := k.weights.(*packed)
	if w.late != nil {
		if w = w.late.packed.Load(); w == nil {
			return false
		}
	}
	s := &k.plan.spec
	a, c := &frame[k.in[0]], &frame[k.out]
	if len(w.blocks) != 1 || a.Elems() != s.K || c.Elems() != s.N || !a.IsContiguous() || !c.IsContiguous() {
		return false
	}
	p := &k.product
	p.residual = nil
	if k.residual >= 0 {
		t := &frame[k.in[k.residual]]
		if t.DType != tensor.F32 || t.Elems() != s.N || !t.IsContiguous() {
			return false
		}
		p.residual = floats(t.Ptr(), s.N)
	}
	k.vectors(frame)
	p.kernel, p.weights = k, w.blocks[0]
	p.run = qgemm.Run{A: floats(a.Ptr(), s.K), LDA: s.K, C: floats(c.Ptr(), s.N), LDC: s.N, M: 1, Source: k.source(e), Threads: e.engine.threads, ISA: e.engine.isa}
	if !s.Epilogue.IsZero() {
		p.run.Then = p
	}
	return true
}

// source names the value that a product multiplies, for products of the same one.
func (k *matmulKernel) source(e *env) qgemm.Source { return qgemm.Source{e.run, uint64(k.in[0])} }

// findTogether returns for each node how many behind it have products of the same value that may run together with its own, or nil where none has.
func (p *program) findTogether() []int {
	n := make([]int, len(p.kernels))
	found := false
	for i := 0; i < len(p.kernels); i += n[i] + 1 {
		k, ok := p.kernels[i].(*matmulKernel)
		if !ok || !k.short {
			continue
		}
		for j := i + 1; j < len(p.kernels); j++ {
			next, ok := p.kernels[j].(*matmulKernel)
			if !ok || !next.short || next.in[0] != k.in[0] || next.plan.spec.B != k.plan.spec.B { // other blocks want other rounding
				break
			}
			n[i], found = n[i]+1, true
		}
	}
	if !found {
		return nil
	}
	return n
}

// runTogether runs the products of some nodes as one, and reports whether it did.
func (p *program) runTogether(e *env, frame []tensor.Tensor, nodes []kernel) (bool, error) {
	e.weights, e.runs = e.weights[:0], e.runs[:0]
	for i, node := range nodes {
		k := node.(*matmulKernel)
		if !k.row(e, frame) {
			return false, nil
		}
		// One after the other, a product may write where the epilogue of an earlier one has read, or read what an earlier one has written.
		for _, other := range nodes[:i] {
			q := other.(*matmulKernel)
			if c, d := &frame[q.out], &frame[k.out]; c.Overlaps(*d) || q.finishesWith(frame, d) || k.finishesWith(frame, c) {
				return false, nil
			}
		}
		e.weights, e.runs = append(e.weights, k.product.weights), append(e.runs, &k.product.run)
	}
	return true, qgemm.MulTogether(e.ctx, e.weights, e.runs)
}

// finishesWith reports whether an operand of the epilogue may lie where c does, in a frame for which row holds. One with gaps may, too: it has been copied already.
func (k *matmulKernel) finishesWith(frame []tensor.Tensor, c *tensor.Tensor) bool {
	for _, v := range k.in[2:] {
		if t := &frame[v]; !t.IsContiguous() || t.Overlaps(*c) {
			return true
		}
	}
	return false
}
