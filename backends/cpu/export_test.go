package cpu

import (
	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/tensor"
)

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
	for _, k := range p.(*program).kernels {
		switch k := k.(type) {
		case *matmulKernel:
			r, ok := k.space.Data.(*run)
			if !ok {
				continue
			}
			for i := range r.workers {
				if w := r.workers[i].opt.Workspace; w != nil {
					n += w.Cap()
				}
			}
			for i := range r.wide {
				bytes(&r.wide[i])
			}
			for i := range r.rows {
				n += 4 * (len(r.rows[i].f) + len(r.rows[i].i))
			}
			for _, v := range k.vectors {
				n += 4 * len(v)
			}
		case *sdpaKernel:
			for i := range k.work {
				w := &k.work[i]
				n += 4 * (len(w.q) + len(w.scores) + len(w.acc) + len(w.k) + len(w.v) + len(w.mask) + len(w.top) + len(w.sum))
				n += 8 * (len(w.from) + len(w.to))
				n += w.space.Cap()
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
		}
	}
	return n
}
