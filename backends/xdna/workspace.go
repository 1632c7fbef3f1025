package xdna

import (
	"unsafe"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/gemm/ordered"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Workspace bounds the scratch memory that the program holds on the host after its runs: operands and results in the array's types and at its pitches,
// staged edges, the control code, and in mode=fast micropanels and rows of sums. Not counted are the emulator's model of the array, which belongs to
// the backend, and what a run needs for its time only where operands hold a NaN or an infinity, or numbers whose sums would leave float32.
func (p *program) Workspace() backends.Workspace { return p.workspace }

// expect notes the size of the form that runs of a plan will make, so that its memory is known before.
func (p *packed) expect(r *design.Run) {
	if r != nil && p.e.exec != nil && p.d.BLayout == design.Tiled {
		p.expected.Store(r.BufferBytes[design.ArgB])
	}
}

// workspace is what runs of the plan need beside its operands.
func (p *mmPlan) workspace(w *packed) (u backends.Workspace, err error) {
	rows, n, k := p.rows, p.spec.N, p.spec.K
	if rows == 0 || n == 0 {
		return u, nil
	}
	// Copies of A and the residual, where their rows do not lie at one distance.
	heap := tensor.Spec{DType: p.spec.A, Rank: 2, Dims: [tensor.MaxRank]int{rows, k}}.Bytes()
	if p.spec.Epilogue.Residual != matmul.NoResidual {
		heap += 4 * rows * n
	}
	u.Share(backends.PoolHeap, backends.Borrowed{Buffers: 1, Bytes: int64(heap)})
	threads := p.e.opt.Threads
	parts := func(size int) int { return par.Workers(threads, (rows+size-1)/size) }
	// Results whose rows the caller wants with gaps, and a row of results and one of the residual for each worker.
	u.Own = int64(rows*n*p.spec.C.Size()) + int64(rows) // and marks of special rows
	lines, line := parts(finishRows), 2*n
	if p.run == nil {
		u.Own += 4 * int64(lines*line)
		return u, nil
	}
	if p.how.types.A != kernel.BFP16 {
		u.Own += int64(rows * p.pitchA)
	}
	if hostB(p.spec) {
		lines, line = max(lines, parts(convertRows)), max(line, k)
		if p.how.types.A == kernel.I8 {
			u.Own += 4 * int64(rows)
		}
	}
	u.Own += 4 * int64(lines*line)
	switch {
	case p.e.exec != nil:
		size := &p.run.BufferBytes
		u.Own += size[design.ArgC] + size[design.ArgStage] + size[design.ArgSpill] + p.stats.Bytes
		if p.how.types.A == kernel.BFP16 {
			u.Own += size[design.ArgA]
		}
	case p.how.types.A == kernel.I8:
		u.Own += 4 * int64(rows*n)
		for i, b := range w.fast.ints {
			k := min(w.fast.chunk, p.spec.K-i*w.fast.chunk)
			size, err := gemm.WorkspaceBytes(gemm.Raw(gemm.S32, nil, rows, n, n, 1), gemm.Raw(gemm.S8, nil, rows, k, p.pitchA, 1), gemm.Matrix{}, b,
				&gemm.Options{Threads: threads, Accumulate: i > 0})
			if err != nil {
				return u, err
			}
			u.Share(backends.PoolGEMM, backends.Borrowed{Buffers: 1, Bytes: int64(size)})
		}
	default:
		kPad, m, ld := w.fast.kPad, ordered.PaddedM(rows, ordered.MR), ordered.PaddedN(n)
		blocks := (m + rowsPerJob - 1) / rowsPerJob
		u.Own += 4*int64(m)*int64(kPad+ld) + int64(blocks)*int64(unsafe.Sizeof(expRange{})) + 4*int64(par.Workers(threads, blocks)*kPad)
	}
	return u, nil
}

// vectorBytes is the memory of scales and bias of a product of so many rows, where they come as something else than float32 in one piece.
func (n *product) vectorBytes(rows, cols int) int64 {
	bytes := 0
	if n.rowScale >= 0 {
		bytes += 4 * rows
	}
	if n.colScale >= 0 {
		bytes += 4 * cols
	}
	if n.bias >= 0 {
		bytes += 4 * cols
	}
	return int64(bytes)
}

func (n *product) workspace() (backends.Workspace, error) {
	p, w := n.plan.(*mmPlan), n.weights.(*packed)
	w.expect(p.run)
	u, err := p.workspace(w)
	u.Own += n.vectorBytes(p.rows, p.spec.N)
	return u, err
}

func (v *convolution) workspace() (u backends.Workspace, err error) {
	w := v.weights.(*packed)
	most := int64(0)
	for _, pl := range v.plans { // which run in the same memory
		p := pl.(*mmPlan)
		w.expect(p.run)
		one, err := p.workspace(w)
		if err != nil {
			return u, err
		}
		most = max(most, one.Own)
		u.Add(one)
	}
	rows := int64(v.images) * int64(v.rows)
	u.Own = most + 4*rows*int64(v.spec.K) + v.vectorBytes(0, v.spec.N)
	heap := v.image                        // in one piece
	if v.op.Layout == conv.ChannelsFirst { // rows before and after they are turned around
		u.Own += 4 * rows * int64(v.spec.N)
		heap += 4 * rows * int64(v.spec.N)
	}
	u.Share(backends.PoolHeap, backends.Borrowed{Buffers: 1, Bytes: u.Shared[backends.PoolHeap].Bytes + heap})
	return u, nil
}
