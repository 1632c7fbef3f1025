package cpu

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Rows of exact sums: those of integers that gemm has no kernels for, and how such sums become results that no kernel stores.

// rowWorker is what one worker needs for rows.
type rowWorker struct {
	f []float32
	i []int32
}

// finishInts applies the epilogue to rows of int32 sums and stores them as C's type.
func (r *run) finishInts(final *tensor.Tensor) {
	n := r.p.spec.N
	sums := tensor.Data[int32](r.c) // contiguous
	w := r.rowWorkers(1)
	none := &tensor.Tensor{}
	residual := none
	if r.residual.Valid() {
		residual = &r.residual
	}
	r.lines.set(1, final, residual)
	var c cursor
	for i := range r.lines.total {
		r.storeInts(final, unsafe.Add(final.Ptr(), c.off[0]), sums[i*n:][:n], w[0].f, i, c.off[1])
		r.lines.advance(&c, 1)
	}
}

func (r *run) rowWorkers(n int) []rowWorker {
	s := &r.p.spec
	for len(r.rows) < n {
		r.rows = append(r.rows, rowWorker{})
	}
	for i := range n {
		if len(r.rows[i].f) < s.N {
			r.rows[i].f = make([]float32, s.N)
		}
		if len(r.rows[i].i) < s.K+s.N {
			r.rows[i].i = make([]int32, s.K+s.N)
		}
	}
	return r.rows
}

// integers computes exact products modulo 2^32 of integers that gemm has no kernels for, row by row.
func (r *run) integers() error {
	s := &r.p.spec
	batch := r.b.Shape()
	if r.weights != nil {
		r.bInts = r.weights.ints
		batch = append(append([]int{}, r.weights.batch...), 1, 1)
	} else {
		r.bInts = transposedInts(r.b, s.BLayout)
	}
	if r.residual.Valid() && (r.residual.DType != tensor.F32 || !unit(&r.residual)) {
		r.replace(&r.residual, 3, tensor.F32)
	}
	// The matrices of B are counted, and belong to all rows of a product.
	numbered := tensor.Tensor{Spec: tensor.MakeSpec(tensor.U8, append(batch[:len(batch)-2:len(batch)-2], 1, 1)...)}
	numbered.Strides = numbered.Contiguous()
	residual := &tensor.Tensor{}
	if r.residual.Valid() {
		residual = &r.residual
	}
	r.lines.set(1, &r.c, &r.a, residual, &numbered)
	var n int
	r.size, n = jobs(r.lines.total, max(1, thresholds().smallProduct/16/max(s.N*s.K, 1)))
	r.rowWorkers(par.Workers(r.e.threads, n))
	par.Run(r.e.threads, n, (*integersTask)(r))
	return nil
}

// integersTask computes rows of integer products.
type integersTask run

// Do computes one job's rows.
func (t *integersTask) Do(worker, job int) {
	r := (*run)(t)
	if r.stopped() {
		return
	}
	s, w := &r.p.spec, &r.rows[worker]
	at, to := job*r.size, min((job+1)*r.size, r.lines.total)
	var c cursor
	r.lines.seek(&c, at)
	a, sums := w.i[:s.K], w.i[s.K:s.K+s.N]
	for ; at < to; at++ {
		if s.K > 0 {
			loadInts(a, r.a.DType, unsafe.Add(r.a.Ptr(), c.off[1]), r.a.Strides[r.a.Rank-1]*r.a.DType.Size())
		}
		b := r.bInts[c.off[3]*s.N*s.K:]
		for j := range sums {
			row := b[j*s.K:][:len(a)]
			var sum int32
			for l, x := range a {
				sum += x * row[l]
			}
			sums[j] = sum
		}
		r.storeInts(&r.c, unsafe.Add(r.c.Ptr(), c.off[0]), sums, w.f, at, c.off[2])
		r.lines.advance(&c, 1)
	}
}

// storeInts finishes a row of sums and stores it as the type of a tensor.
func (r *run) storeInts(t *tensor.Tensor, p unsafe.Pointer, sums []int32, buf []float32, i, residual int) {
	e := &r.p.spec.Epilogue
	d, step := t.DType, t.Strides[t.Rank-1]*t.DType.Size()
	if e.IsZero() && d.IsInt() {
		for j, x := range sums {
			storeInt(unsafe.Add(p, j*step), d, x)
		}
		return
	}
	x := buf[:len(sums)]
	for j, s := range sums {
		x[j] = float32(s)
	}
	r.finishRow(x, i, 0, residual)
	if d.IsFloat() {
		storeFloats(r.e.vec, p, d, step, x)
		return
	}
	scale := float64(e.OutScale)
	if scale == 0 {
		scale = 1
	}
	for j, y := range x {
		v := float64(y)
		if d != tensor.I32 && requantizes(e) {
			lo, hi := limits(d)
			v = min(max(math.RoundToEven(v/scale)+float64(e.OutZero), lo), hi)
		}
		storeInt(unsafe.Add(p, j*step), d, int32(int64(v)))
	}
}

// requantizes reports whether a narrow integer result is scaled and saturated; else it wraps.
func requantizes(e *matmul.Epilogue) bool {
	return e.OutScale != 0 || e.OutZero != 0 || e.RowScale || e.ColScale
}

func limits(d tensor.DType) (lo, hi float64) {
	switch d {
	case tensor.I8:
		return -128, 127
	case tensor.U8:
		return 0, 255
	}
	return -32768, 32767
}

func storeInt(p unsafe.Pointer, d tensor.DType, x int32) {
	switch d {
	case tensor.I8, tensor.U8:
		*(*int8)(p) = int8(x)
	case tensor.I16, tensor.U16:
		*(*int16)(p) = int16(x)
	default:
		*(*int32)(p) = x
	}
}

func loadInts(dst []int32, d tensor.DType, p unsafe.Pointer, step int) {
	switch d {
	case tensor.I8:
		for i := range dst {
			dst[i] = int32(*(*int8)(unsafe.Add(p, i*step)))
		}
	case tensor.U8:
		for i := range dst {
			dst[i] = int32(*(*uint8)(unsafe.Add(p, i*step)))
		}
	case tensor.I16:
		for i := range dst {
			dst[i] = int32(*(*int16)(unsafe.Add(p, i*step)))
		}
	case tensor.U16:
		for i := range dst {
			dst[i] = int32(*(*uint16)(unsafe.Add(p, i*step)))
		}
	}
}
