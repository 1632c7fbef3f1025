package qgemm

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// Epilogue is called for a finished piece of a row of C: columns col to col+len(c)-1 of the given row. Pieces are disjoint, and
// calls come from several goroutines.
type Epilogue interface {
	Apply(c []float32, row, col int)
}

// Run is one product: C[M,N] = A[M,K] W^T.
type Run struct {
	A    []float32
	LDA  int // elements between rows of A
	C    []float32
	LDC  int // elements between rows of C
	M    int
	Then Epilogue // nil for none
	// Accumulate starts from C instead of zero.
	Accumulate bool
	Threads    int // 0 means GOMAXPROCS
}

func (r *Run) check(p *Packed) error {
	bad := func(data []float32, ld, cols int, name string) error {
		if ld < cols {
			return fmt.Errorf("qgemm: rows of %s are %d apart and %d long", name, ld, cols)
		}
		span, ok := mem.Mul(r.M-1, ld)
		need, ok2 := mem.Add(span, cols)
		if !ok || !ok2 || need > len(data) {
			return fmt.Errorf("qgemm: %s has %d elements, %d rows of %d, %d apart, need more", name, len(data), r.M, cols, ld)
		}
		return nil
	}
	if p.data == nil {
		return fmt.Errorf("qgemm: the weight is closed")
	}
	if r.M < 0 {
		return fmt.Errorf("qgemm: M = %d", r.M)
	}
	if r.M == 0 {
		return nil
	}
	if err := bad(r.A, r.LDA, p.k, "A"); err != nil {
		return err
	}
	if err := bad(r.C, r.LDC, p.n, "C"); err != nil {
		return err
	}
	a0, c0 := uintptr(unsafe.Pointer(&r.A[0])), uintptr(unsafe.Pointer(&r.C[0]))
	a1 := a0 + uintptr((r.M-1)*r.LDA+p.k)*4
	c1 := c0 + uintptr((r.M-1)*r.LDC+p.n)*4
	if a0 < c1 && c0 < a1 {
		return fmt.Errorf("qgemm: C overlaps A")
	}
	return nil
}

// Mul computes a product. After the first call of a shape it allocates nothing. The context is looked at between pieces.
func (p *Packed) Mul(ctx context.Context, r *Run) error {
	if err := r.check(p); err != nil || r.M == 0 {
		return err
	}
	w := takeWork()
	defer giveWork(w)
	w.p, w.r, w.k, w.ctx = p, r, choose(pinned()), ctx
	w.plan()
	par.Run(r.Threads, w.quantJobs, (*quantTask)(w))
	par.Run(r.Threads, w.jobs, (*dotTask)(w))
	err := ctx.Err()
	w.p, w.r, w.ctx = nil, nil, nil
	return err
}

var pinned = sync.OnceValue(func() cpuinfo.ISA {
	isa, _ := cpuinfo.Pinned()
	return isa
})

// work is the state of one call: what its two parallel regions share. It is reused.
type work struct {
	next *work
	p    *Packed
	r    *Run
	k    *kernels
	ctx  context.Context

	q         []byte // quantized rows of A
	metas     []meta
	scratch   []byte // per worker: unpacked panels and their scales
	perWorker int
	args      []dotArgs      // per worker: kernels are called through variables, so that an argument on the stack would escape
	fused     func(*dotArgs) // the kernel for few rows, or nil
	blocks    int            // of a row
	group     int            // panels of a job
	jobs      int
	rowsEach  int // rows of a job of quantization
	quantJobs int
}

var spare struct {
	sync.Mutex
	list *work
}

func takeWork() *work {
	spare.Lock()
	defer spare.Unlock()
	w := spare.list
	if w == nil {
		return &work{}
	}
	spare.list = w.next
	w.next = nil
	return w
}

func giveWork(w *work) {
	spare.Lock()
	defer spare.Unlock()
	w.next = spare.list
	spare.list = w
}

func grow(b []byte, n int) []byte {
	if cap(b) < n {
		size := 4096
		for size < n {
			size *= 2
		}
		return mem.Bytes(size)[:n]
	}
	return b[:n]
}

// plan divides the work: quantization by rows, the product by groups of panels. A group is as many panels as the dot kernels take at
// once, or a multiple where there are many, so that a job is worth its start.
func (w *work) plan() {
	p, r, f := w.p, w.r, w.p.g.f
	w.blocks = p.k / f.block
	w.q = grow(w.q, r.M*p.k)
	if cap(w.metas) < r.M*w.blocks {
		w.metas = make([]meta, r.M*w.blocks+r.M*w.blocks/2)
	}
	w.metas = w.metas[:r.M*w.blocks]
	w.rowsEach = max(1, 16384/p.k)
	w.quantJobs = (r.M + w.rowsEach - 1) / w.rowsEach
	w.group = 4
	w.jobs = (p.panels + w.group - 1) / w.group
	workers := par.Workers(r.Threads, w.jobs)
	w.fused = nil
	if r.M <= fewRows && w.k.fused != nil {
		w.fused = w.k.fused(fusedForm{f.bits, f.table != nil, f.hasMin}, r.M)
	}
	if w.fused != nil {
		w.perWorker = min(p.k, chunkFew) / f.block * f.scaleStep()
	} else {
		chunk := min(p.k, chunkK)
		w.perWorker = maxPanels[tile(r.M)] * (chunk*nr + chunk/f.block*f.scaleStep())
	}
	w.scratch = grow(w.scratch, workers*w.perWorker)
	if len(w.args) < workers {
		w.args = make([]dotArgs, workers)
	}
}

type quantTask work

func (t *quantTask) Do(_, job int) {
	w := (*work)(t)
	p, r, f := w.p, w.r, w.p.g.f
	for i := job * w.rowsEach; i < min((job+1)*w.rowsEach, r.M); i++ {
		w.k.quantize(unsafe.Pointer(&w.q[i*p.k]), unsafe.Pointer(&w.metas[i*w.blocks]), unsafe.Pointer(&r.A[i*r.LDA]), p.k, f.block, f.zero)
	}
}

type dotTask work

func (t *dotTask) Do(worker, job int) {
	w := (*work)(t)
	if w.ctx.Err() != nil {
		return
	}
	p, r, f := w.p, w.r, w.p.g.f
	first := job * w.group
	panels := min(w.group, p.panels-first)
	scratch := unsafe.Pointer(&w.scratch[worker*w.perWorker])
	step := f.scaleStep()
	col := first * nr
	cols := min(panels*nr, p.n-col)
	var mask uint64
	if cols == 64 {
		mask = ^uint64(0)
	} else {
		mask = 1<<cols - 1
	}
	if w.fused != nil {
		w.few(&w.args[worker], first, panels, mask, scratch, step)
	} else {
		w.many(&w.args[worker], first, panels, mask, scratch, step)
	}
	w.args[worker] = dotArgs{} // nothing stays pointed at between calls
	if r.Then != nil {
		for i := range r.M {
			r.Then.Apply(r.C[i*r.LDC+col:][:cols], i, col)
		}
	}
}

// many spreads the bits of a chunk of panels to bytes and takes all rows of A through them. As many panels as the kernels take
// stay in the first-level cache meanwhile.
func (w *work) many(args *dotArgs, first, panels int, mask uint64, scratch unsafe.Pointer, step int) {
	p, r, f, k := w.p, w.r, w.p.g.f, w.k
	together := maxPanels[tile(r.M)]
	for k0 := 0; k0 < p.k; k0 += chunkK {
		chunk := min(chunkK, p.k-k0)
		blocks := chunk / f.block
		*args = dotArgs{aStride: p.k, metaRow: w.blocks * int(unsafe.Sizeof(meta{})), wPanel: chunk * nr, scaleSize: blocks * step, ldc: 4 * r.LDC, blocks: blocks}
		if k0 > 0 || r.Accumulate {
			args.acc = 1
		}
		for v := 0; v < panels; v += together {
			n := min(together, panels-v)
			args.w, args.scale = scratch, unsafe.Add(scratch, together*chunk*nr)
			for i := range n {
				src := p.panel(first + v + i)
				if f.bits != u8 {
					k.unpack[f.bits](unsafe.Add(args.w, i*args.wPanel), unsafe.Add(src, p.g.q+k0/unit*bitsSize[f.bits]), chunk/unit, f.table)
				}
				w.unpackScales(unsafe.Add(args.scale, i*args.scaleSize), src, k0, blocks, step)
			}
			if f.bits == u8 { // bytes are read where they lie
				args.w, args.wPanel = unsafe.Add(p.panel(first+v), p.g.q+k0*nr), p.g.size
			}
			args.mask = mask >> (16 * v)
			col := (first + v) * nr
			for i := 0; i < r.M; {
				rows := tile(r.M - i)
				args.a = unsafe.Pointer(&w.q[i*p.k+k0])
				args.meta = unsafe.Pointer(&w.metas[i*w.blocks+k0/f.block])
				args.c = unsafe.Pointer(&r.C[i*r.LDC+col])
				k.dot(args, f.block, f.hasMin, rows, n)
				i += rows
			}
		}
	}
}

// few spreads the bits in registers, panel by panel.
func (w *work) few(args *dotArgs, first, panels int, mask uint64, scratch unsafe.Pointer, step int) {
	p, r, f := w.p, w.r, w.p.g.f
	for v := range panels {
		src := p.panel(first + v)
		for k0 := 0; k0 < p.k; k0 += chunkFew {
			chunk := min(chunkFew, p.k-k0)
			w.unpackScales(scratch, src, k0, chunk/f.block, step)
			*args = dotArgs{
				a: unsafe.Pointer(&w.q[k0]), aStride: p.k,
				meta: unsafe.Pointer(&w.metas[k0/f.block]), metaRow: w.blocks * int(unsafe.Sizeof(meta{})),
				w: unsafe.Add(src, p.g.q+k0/unit*bitsSize[f.bits]), scale: scratch,
				c: unsafe.Pointer(&r.C[(first+v)*nr]), ldc: 4 * r.LDC, blocks: chunk / unit, mask: mask >> (16 * v), table: f.table,
			}
			if k0 > 0 || r.Accumulate {
				args.acc = 1
			}
			w.fused(args)
		}
	}
}

// tile returns how many of the remaining rows the next tile takes: 6, but near the end two tiles of even height instead of a
// tall and a flat one.
func tile(left int) int {
	switch {
	case left >= 12 || left <= maxRows:
		return min(left, maxRows)
	default:
		return (left + 1) / 2
	}
}

func (w *work) unpackScales(dst, src unsafe.Pointer, k0, blocks, step int) {
	g, f, k := &w.p.g, w.p.g.f, w.k
	if !f.super {
		widen := k.halfs
		if f.bf16 {
			widen = k.bhalfs
		}
		at := k0 / f.block * 2 * nr
		widen(dst, step, unsafe.Add(src, g.d+at), blocks)
		if f.hasMin {
			widen(unsafe.Add(dst, 4*nr), step, unsafe.Add(src, g.m+at), blocks)
		}
		return
	}
	subs := superK / f.block
	at, sub := k0/superK*2*nr, k0/f.block*nr
	k.supers(dst, step, unsafe.Add(src, g.d+at), unsafe.Add(src, g.sc+sub), blocks/subs, subs, 0)
	if f.hasMin {
		k.supers(unsafe.Add(dst, 4*nr), step, unsafe.Add(src, g.m+at), unsafe.Add(src, g.mn+sub), blocks/subs, subs, 1<<31)
	}
}
