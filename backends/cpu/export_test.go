package cpu

import (
	"unsafe"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/tensor"
)

// sizes returns the bytes of slices.
func sizes[T any](list [][]T) (n int) {
	for _, v := range list {
		n += len(v) * int(unsafe.Sizeof(*new(T)))
	}
	return n
}

// held returns the bytes of the strips of the operands.
func (k *mapKernel[T, R]) held() int { return len(k.strips) * int(unsafe.Sizeof(mapStrip[T, R]{})) }

// Held returns the bytes of scratch memory that the kernels of a program hold, without the buffers of package qgemm.
func Held(p backends.Program) int {
	n := 0
	bytes := func(ts ...*tensor.Tensor) {
		for _, t := range ts {
			if t.Buf != nil {
				n += len(t.Buf.Bytes())
			}
		}
	}
	n += sizes(p.(*program).env.scratch)
	for _, w := range p.(*program).env.spaces {
		n += w.Cap()
	}
	for _, a := range p.(*program).env.angles {
		n += 8*(len(a.pos)+len(a.freq)+len(a.factors)) + 4*(len(a.cos)+len(a.sin))
	}
	for _, k := range p.(*program).kernels {
		if s, ok := k.(interface{ held() int }); ok {
			n += s.held()
		}
		switch k := k.(type) {
		case *matmulKernel:
			r, ok := k.space.Data.(*run)
			if !ok {
				continue
			}
			for i := range r.wide {
				bytes(&r.wide[i])
			}
			for i := range r.rows {
				n += 4 * (len(r.rows[i].f) + len(r.rows[i].i))
			}
			for _, v := range k.copies {
				n += 4 * len(v)
			}
			for i := range r.convert {
				n += sizes(r.convert[i].strips)
			}
		case *sdpaKernel:
			for i := range k.work {
				w := &k.work[i]
				n += 4 * (len(w.q) + len(w.scores) + len(w.acc) + len(w.k) + len(w.v) + len(w.mask) + len(w.top) + len(w.sum))
				n += 8 * (len(w.from) + len(w.to))
				for _, b := range w.kept {
					for _, packed := range []*gemm.PackedB{b.k, b.v} {
						if packed != nil {
							n += packed.Bytes()
						}
					}
				}
			}
		case *convKernel:
			bytes(&k.x.scratch, &k.y.scratch, &k.r.scratch)
			if k.plan != nil {
				n += k.plan.Held()
			}
			if k.fed != nil {
				n += k.fed.Held()
			}
		case *poolKernel:
			bytes(&k.x.scratch, &k.y.scratch)
			n += k.pool.Held()
		case *maxBytesKernel:
			bytes(&k.x.scratch, &k.y.scratch)
			n += sizes(k.rows)
		case *rowsKernel:
			n += sizes(k.loaded[:])
		case *ropeKernel:
			bytes(&k.pos)
		case *reduceKernel:
			n += sizes(k.acc) + sizes(k.buf) + sizes(k.sums)
		case *resizeKernel:
			bytes(&k.rowMajor.in, &k.rowMajor.out)
			n += sizes(k.rows)
		case *padKernel:
			bytes(&k.rowMajor.in, &k.rowMajor.out)
			n += len(k.fill)
		case *viewKernel:
			bytes(&k.staging)
		case *getRowsKernel:
			n += 8 * len(k.v)
		case *gatherKernel:
			n += 8 * len(k.v)
		case *setRowsKernel:
			n += 8*(len(k.v)+len(k.seen)) + sizes(k.buf)
		case *setBlocksKernel:
			n += 8*(len(k.v)+len(k.seen)) + sizes(k.buf)
		}
	}
	return n
}
