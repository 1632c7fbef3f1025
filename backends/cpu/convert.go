package cpu

import (
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// converter converts between floating-point types, between views of one shape.
type converter struct {
	loop
	e        *Engine
	done     <-chan struct{}
	to, from tensor.DType
	dst, src unsafe.Pointer
	size     int
	strips   [][]float32
}

func (k *converter) convert(e *Engine, done <-chan struct{}, dst, src *tensor.Tensor) {
	k.e, k.done = e, done
	if k.n == 0 || k.to != dst.DType || k.from != src.DType || k.dims != dst.Dims || k.loop.rank != int(dst.Rank) {
		k.made = false
		k.to, k.from = dst.DType, src.DType
		k.dims = [tensor.MaxRank]int{}
		k.shape(dst.Dims[:dst.Rank], dst.Spec, src.Spec)
	}
	if k.total == 0 {
		return
	}
	ts := [maxOperands]*tensor.Tensor{dst, src}
	k.update(&ts)
	k.dst, k.src = dst.Ptr(), src.Ptr()
	var n int
	k.size, n = jobs(k.total, grainCheap)
	for w := par.Workers(e.threads, n); len(k.strips) < w; {
		k.strips = append(k.strips, make([]float32, strip))
	}
	if n == 1 {
		k.Do(0, 0)
		return
	}
	par.Run(e.threads, n, k)
}

// Do converts one job's elements.
func (k *converter) Do(worker, job int) {
	if ended(k.done) {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.total)
	var c cursor
	k.seek(&c, at)
	buf := k.strips[worker]
	for at < to {
		n := min(k.left(&c), to-at)
		p, q := unsafe.Add(k.dst, c.off[0]), unsafe.Add(k.src, c.off[1])
		d, s := k.innerStep(0), k.innerStep(1)
		switch {
		case k.to == tensor.F32 && d == 4:
			loadFloats(k.e.vec, floats(p, n), k.from, q, s)
		case k.from == tensor.F32 && s == 4:
			storeFloats(k.e.vec, p, k.to, d, floats(q, n))
		default:
			n = min(n, strip)
			loadFloats(k.e.vec, buf[:n], k.from, q, s)
			storeFloats(k.e.vec, p, k.to, d, buf[:n])
		}
		at += n
		k.advance(&c, n)
	}
}

// activate applies an activation to a row in place, with the bits of a fused one.
func activate(a ops.Act, x []float32) {
	if act, p, q, ok := gemmAct(a); ok {
		must(gemm.Activate(act, x, p, q))
		return
	}
	for i, y := range x {
		x[i] = float32(a.Apply(float64(y)))
	}
}
