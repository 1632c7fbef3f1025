package cpu

import (
	"slices"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
)

// The scratch memory of kernels that are no products: the workers' strips and rows, and copies of operands whose elements lie in another order.

// rowSpace is a row of n float32 for each worker of a region, see env.rows.
func rowSpace(e *env, jobs, n int) workspace {
	if jobs == 0 {
		return workspace{}
	}
	return workspace{rows: par.Workers(e.threads, jobs), row: n + rowSlack}
}

// stripBytes is the memory of the strips of a converter of n elements.
func stripBytes(threads, n int) int {
	_, count := jobs(n, grainCheap)
	return 4 * strip * par.Workers(threads, count)
}

func (a *angles) bytes() int {
	return 8*(len(a.pos)+len(a.factors)+a.pairs) + 4*(len(a.cos)+len(a.sin)) // pairs of frequencies
}

func (k *rowsKernel) workspace(e *env, _ *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	_, n := jobs(k.rows, max(1, k.grain/max(k.width, 1)))
	u := rowSpace(e, n, k.buffers*k.width)
	for _, v := range k.loaded {
		u.own += 4 * len(v)
	}
	return u, nil
}

func (k *argKernel) workspace(e *env, _ *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	_, n := jobs(k.rows, max(1, grainExp/max(k.width, 1)))
	return rowSpace(e, n, k.width), nil
}

func (k *ropeKernel) workspace(e *env, _ *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	_, n := jobs(k.total, max(1, grainExp/max(k.head, 1)))
	u := rowSpace(e, n, 2*k.head)
	u.own = k.pos.Bytes()
	return u, nil
}

func (k *mapKernel[T, R]) workspace(e *env, part *ops.Part, n *ops.Node, loose func(int) bool) (workspace, error) {
	direct := !loose(k.out)
	for i := range k.n {
		direct = direct && !k.convert[i]
	}
	out := part.Values[k.out].Spec
	for _, v := range n.In[:k.operands] {
		s := part.Values[v].Spec
		direct = direct && !loose(v) && s.With(out.DType) == out
	}
	if direct || k.total == 0 {
		return workspace{}, nil
	}
	_, count := jobs(k.total, k.grain)
	return workspace{own: par.Workers(e.threads, count) * int(unsafe.Sizeof(mapStrip[T, R]{}))}, nil
}

func (k *reduceKernel) workspace(e *env, _ *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	if k.results.total == 0 {
		return workspace{}, nil
	}
	_, n := jobs(k.results.total, max(1, grainExp/max(k.parts.total, 1))) // no fewer than those of columns
	return workspace{own: par.Workers(e.threads, n) * strip * (8 + 4 + 4)}, nil
}

// rowMajorBytes is the memory of a rowMajor's copies.
func rowMajorBytes(part *ops.Part, in, out int, loose func(int) bool) (n int) {
	for _, v := range []int{in, out} {
		if loose(v) {
			n += part.Values[v].Spec.Bytes()
		}
	}
	return n
}

func (k *resizeKernel) workspace(e *env, part *ops.Part, _ *ops.Node, loose func(int) bool) (workspace, error) {
	_, n := jobs(k.outer*k.oh, max(1, grainExp/max(k.ow*k.inner, 1)))
	return workspace{own: rowMajorBytes(part, k.in, k.out, loose) + par.Workers(e.threads, n)*4*k.w*k.inner}, nil
}

func (k *padKernel) workspace(_ *env, part *ops.Part, _ *ops.Node, loose func(int) bool) (workspace, error) {
	return workspace{own: rowMajorBytes(part, k.in, k.out, loose) + len(k.fill)}, nil
}

func (k *viewKernel) workspace(_ *env, part *ops.Part, _ *ops.Node, loose func(int) bool) (workspace, error) {
	// A result that runs is a copy, and has gaps only where others see it.
	if k.reshape && loose(k.in) && slices.Contains(part.Outputs, k.out) {
		return workspace{own: part.Values[k.in].Spec.Bytes()}, nil
	}
	return workspace{}, nil
}

func (k *getRowsKernel) workspace(*env, *ops.Part, *ops.Node, func(int) bool) (workspace, error) {
	return workspace{own: 8 * len(k.v)}, nil
}

func (k *gatherKernel) workspace(*env, *ops.Part, *ops.Node, func(int) bool) (workspace, error) {
	return workspace{own: 8 * len(k.v)}, nil
}

func (k *setRowsKernel) workspace(e *env, part *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	workers, own := k.most(e, k.slab.total, part.Values[k.dst].Spec.Dims[k.axis])
	if !k.same {
		own += workers * 4 * strip
	}
	return workspace{own: own}, nil
}

func (k *setBlocksKernel) workspace(e *env, part *ops.Part, _ *ops.Node, _ func(int) bool) (workspace, error) {
	workers, own := k.most(e, k.width*k.slab.total, part.Values[k.dst].Spec.Dims[k.axis])
	return workspace{own: own + workers*4*k.width}, nil
}

// most returns the largest number of workers for slabs of so many elements, and the bytes of what the ids take, of so many places.
func (k *targets) most(e *env, slab, places int) (workers, bytes int) {
	workers, bytes = 1, 8*len(k.v)
	if slab > 0 {
		_, n := jobs(len(k.v), max(1, grainExp/slab))
		workers = par.Workers(e.threads, n)
	}
	if workers > 1 {
		bytes += (places + 63) / 64 * 8
	}
	return workers, bytes
}
