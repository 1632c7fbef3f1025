package aie

import (
	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/matmul"
)

// Workspace bounds the scratch memory that the program holds on the host after its runs: activations as numbers of the array, sums, rows of the workers,
// and what packs for the byte products of mode=fast, in the pool of package gemm. Not counted are the register programs, which the engine keeps, and the
// emulator's model of the array, which lives for one product.
func (p *program) Workspace() backends.Workspace { return p.workspace }

// expect notes the forms of the weights that runs of so many rows of activations will make, so that their memory is known before.
func (w *weights) expect(spec matmul.Spec, rows int) error {
	if !w.e.emulate || rows == 0 || w.n*w.k == 0 {
		return nil
	}
	p, err := w.e.planFor(spec, rows)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if key := packingOf(p.plan); w.arrays[key] == nil {
		w.expected[key] = int(p.plan.BytesA())
	}
	return nil
}

// bytes is the memory of the weights in all their forms, those that are expected too.
func (w *weights) bytes() int {
	n := len(w.data) + 4*(len(w.scale)+len(w.rows))
	for _, odd := range w.odd {
		n += 4 * len(odd)
	}
	for i := range w.chunks {
		n += w.chunks[i].hi.Bytes() + w.chunks[i].lo.Bytes()
	}
	if w.s8 != nil {
		n += w.s8.Bytes()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.arrays {
		n += len(a)
	}
	for _, size := range w.expected {
		n += size
	}
	return n
}

// Bytes is the memory that the packed forms take, or will.
func (p *packed) Bytes() int {
	n := 0
	for _, w := range p.list {
		n += w.bytes()
	}
	return n
}

// acts is the memory of m rows of k activations.
func (e *Engine) acts(typ core.Type, m, k int, split bool) int {
	switch typ {
	case core.FP32:
		return 4 * m * k
	case core.Int8:
		return m*k + 4*m
	}
	n := 2*m*k + 4*m
	if split {
		n += 2 * m * k
	}
	return n
}

// product is what the multiplication of m rows needs, and bringing its results into C: the sums, and everything of multiplyWith, store and finishJob.
func (e *Engine) product(w *weights, m int) (u backends.Workspace, err error) {
	own := 4 * m * w.n // sums
	own += 8*2*m + 4*w.n + 4*w.n*par.Workers(e.threads, (m+finishRows-1)/finishRows)
	defer func() { u.Own = int64(own) }()
	if e.emulate || w.k == 0 {
		return u, nil
	}
	rows := min(m, blockRows)
	opt := &gemm.Options{Threads: e.threads}
	multiply := func(k, pitch int, b *gemm.PackedB) error {
		for _, r := range []int{rows, m % blockRows} {
			n, err := gemm.WorkspaceBytes(gemm.Raw(gemm.S32, nil, r, w.n, w.n, 1), gemm.Raw(gemm.S8, nil, r, k, pitch, 1), gemm.Matrix{}, b, opt)
			if err != nil {
				return err
			}
			u.Share(backends.PoolGEMM, backends.Borrowed{Buffers: 1, Bytes: int64(n)})
		}
		return nil
	}
	switch w.typ {
	case core.Int8:
		err = multiply(w.k, w.k, w.s8)
	case core.Int16:
		own += 3 * 4 * rows * w.n
		if len(w.chunks) > 1 && !w.chunks[0].narrow {
			own += 8 * rows * w.n
		}
		for i := range w.chunks {
			for _, b := range []*gemm.PackedB{w.chunks[i].hi, w.chunks[i].lo} {
				if err = multiply(w.chunks[i].k1-w.chunks[i].k0, w.k, b); err != nil {
					return u, err
				}
			}
		}
	}
	return u, err
}

// rowsOfRun is how many rows of activations one product of a plan takes.
func rowsOfRun(p *packed, shape matmul.Shape) int {
	if len(p.list) == 1 {
		return shape.M * shape.Batches()
	}
	return shape.M
}

func (k *matmulKernel) workspace() (u backends.Workspace, err error) {
	p, w := k.plan.(*enginePlan), k.weights.(*packed)
	m := rowsOfRun(w, p.shape)
	if m == 0 || p.spec.N == 0 || len(w.list) == 0 {
		return u, nil
	}
	most := int64(0)
	for _, one := range w.list { // which are multiplied in the same memory
		product, err := k.e.product(one, m)
		if err != nil {
			return u, err
		}
		most = max(most, product.Own)
		u.Add(product)
	}
	own := k.e.acts(w.list[0].typ, m, p.spec.K, !k.e.emulate)
	own += 8*m + 4*p.spec.K*par.Workers(k.e.threads, (m+quantRows-1)/quantRows) // where rows start, and rows with gaps
	all := p.shape.M * p.shape.Batches()
	own += 4*all + 2*4*p.spec.N // scales and bias of other types
	if p.spec.Epilogue.Residual != matmul.NoResidual {
		u.Share(backends.PoolHeap, backends.Borrowed{Buffers: 1, Bytes: int64(4 * all * p.spec.N)}) // as float32
		if len(w.list) > 1 {
			own += 8 * all // rows of the whole residual
		}
	}
	u.Own = most + int64(own)
	return u, nil
}

func (k *convKernel) workspace() (backends.Workspace, error) {
	g, e := k.g, k.e
	rows, size := g.rows(), g.C*g.H*g.W
	spec := g.spec()
	u, err := e.product(k.w, rows)
	if err != nil {
		return u, err
	}
	own := e.acts(k.w.typ, g.N, size, false) + 8*g.N + 4*rows // the image, where images start, and their scales
	own += 4*rows*spec.N + 2*4*spec.N                         // the results by pixels, column scales and bias
	heap := 4 * g.N * size                                    // the image in one piece
	if g.op.Epilogue.Residual != matmul.NoResidual {
		heap += 2 * 4 * rows * spec.N // in one piece, and as float32
	}
	u.Share(backends.PoolHeap, backends.Borrowed{Buffers: 1, Bytes: int64(heap)})
	if !e.emulate {
		n := min(rows, blockRows) * spec.K // lowered rows
		switch k.w.typ {
		case core.FP32:
			n *= 4
		case core.Int16:
			n *= 2
		}
		own += n
	}
	u.Own += int64(own)
	return u, nil
}
