package gemm

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// Batch describes many products of one shape. Problem (x, y, z) uses the operands at x*A[0] + y*A[1] + z*A[2] elements from the
// first one's, and so on for B and C. A stride of 0 uses the same operand again: heads of queries that share keys.
type Batch struct {
	Dims    [3]int // problems along each dimension; 0 means 1
	A, B, C [3]int // elements between problems
}

// count returns the number of problems.
func (b *Batch) count() (int, bool) {
	for i := range b.Dims {
		if b.Dims[i] == 0 {
			b.Dims[i] = 1
		}
	}
	return mem.Mul(b.Dims[:]...)
}

// MulBatch computes many products; c, a and b view the first one, and their memory must hold all. Small products run side by
// side, large ones after one another. An epilogue applies to each product and has no residuals. When an error is returned
// because of the arguments, C has not been touched.
func MulBatch(c, a, b Matrix, batch Batch, o *Options) error {
	n, ok := batch.count()
	if !ok {
		return fmt.Errorf("gemm: batch of %v: %w", batch.Dims, mem.ErrOverflow)
	}
	if n == 0 {
		return nil
	}
	if o != nil && o.Epilogue != nil && (o.Epilogue.Before.typ != 0 || o.Epilogue.After.typ != 0) {
		return errors.New("gemm: a batch takes no residuals")
	}
	ac, aa, ab, err := batch.views(c, a, b) // elements that C, A and B span
	if err != nil {
		return err
	}
	if overlap(&c, ac, &a, aa) {
		return errors.New("gemm: C overlaps A")
	}
	if overlap(&c, ac, &b, ab) {
		return errors.New("gemm: C overlaps B")
	}
	batch.fold(&c, &a, &b, o)

	kn, err := o.knobs()
	if err != nil {
		return err
	}
	r := takeBatch()
	defer giveBatch(r)
	r.batch, r.c, r.a, r.b, r.err = batch, c, a, b, nil
	r.opt = Options{}
	if o != nil {
		r.opt = *o
	}
	n, _ = batch.count()
	threads := o.threads()
	macs := float64(c.Rows) * float64(c.Cols) * (float64(a.Cols) + 16)
	// Side by side when that keeps all workers busy: enough problems, none so large that the last ones leave workers idle.
	if n > 1 && threads > 1 && (n/threads >= kn.batchJobs || n >= threads && macs < float64(kn.batchMacs)) {
		workers := int(min(float64(threads), max(1, macs*float64(n)/float64(kn.macsPerWorker))))
		r.opt.Threads, r.opt.Workspace = 1, nil
		par.Run(workers, n, r)
	} else {
		for i := range n {
			r.Do(0, i)
		}
	}
	return r.err
}

// span checks the memory of all problems of one operand, s apart, and returns how many elements they span.
func (b *Batch) span(name string, m *Matrix, s [3]int) (int, error) {
	if err := m.check(name); err != nil {
		return 0, err
	}
	if m.Rows == 0 || m.Cols == 0 {
		return 0, nil
	}
	end, _ := m.span()
	for d, s1 := range s {
		more, ok := mem.Mul(b.Dims[d]-1, s1)
		if ok {
			end, ok = mem.Add(end, more)
		}
		if !ok {
			return 0, fmt.Errorf("gemm: batch %v of %s with strides %v: %w or negative", b.Dims, name, s, mem.ErrOverflow)
		}
	}
	if end > m.len {
		return 0, fmt.Errorf("gemm: batch %v of %s with strides %v needs %d elements, its slice has %d", b.Dims, name, s, end, m.len)
	}
	return end, nil
}

// views checks the memory of all problems and returns how many elements each operand spans.
func (b *Batch) views(mc, ma, mb Matrix) (c, a, bb int, err error) {
	if c, err = b.span("C", &mc, b.C); err != nil {
		return
	}
	if a, err = b.span("A", &ma, b.A); err != nil {
		return
	}
	if bb, err = b.span("B", &mb, b.B); err != nil {
		return
	}
	if mc.Rows == 0 || mc.Cols == 0 {
		return
	}
	// Elements of C are distinct when, taken by rising stride, each dimension steps over all that the smaller ones reach.
	dims := [5][2]int{{mc.RowStride, mc.Rows}, {mc.ColStride, mc.Cols}, {b.C[0], b.Dims[0]}, {b.C[1], b.Dims[1]}, {b.C[2], b.Dims[2]}}
	reach := 0
	for range dims {
		best := -1
		for i, d := range dims {
			if d[1] > 1 && (best < 0 || d[0] < dims[best][0]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		if dims[best][0] <= reach {
			return 0, 0, 0, fmt.Errorf("gemm: problems of the batch share elements of C: strides %d, %d and %v", mc.RowStride,
				mc.ColStride, b.C)
		}
		reach += dims[best][0] * (dims[best][1] - 1)
		dims[best][1] = 1
	}
	return c, a, bb, nil
}

// overlap says whether the first n elements of x and the first k of y may share memory.
func overlap(x *Matrix, n int, y *Matrix, k int) bool {
	v := Matrix{Rows: 1, Cols: n, RowStride: n, ColStride: 1, typ: x.typ, ptr: x.ptr, len: n}
	w := Matrix{Rows: 1, Cols: k, RowStride: k, ColStride: 1, typ: y.typ, ptr: y.ptr, len: k}
	return v.overlaps(&w)
}

// fold turns dimensions along which B repeats, and A and C go on as their rows do, into more rows.
func (b *Batch) fold(c, a, m *Matrix, o *Options) {
	if o != nil && o.Epilogue != nil && len(o.Epilogue.RowScale) > 1 {
		return
	}
	for d := range b.Dims {
		if b.Dims[d] > 1 && b.B[d] == 0 && b.A[d] == a.Rows*a.RowStride && b.C[d] == c.Rows*c.RowStride && c.Rows > 0 {
			a.Rows *= b.Dims[d]
			c.Rows = a.Rows
			b.Dims[d] = 1
		}
	}
}

// batchRun is a batch on its way.
type batchRun struct {
	batch   Batch
	c, a, b Matrix
	opt     Options
	mu      sync.Mutex
	err     error
	link    *batchRun
}

// Do computes one problem.
func (r *batchRun) Do(_, job int) {
	z := job % r.batch.Dims[2]
	y := job / r.batch.Dims[2] % r.batch.Dims[1]
	x := job / r.batch.Dims[2] / r.batch.Dims[1]
	at := func(m Matrix, s *[3]int) Matrix {
		off := x*s[0] + y*s[1] + z*s[2]
		if m.Rows > 0 && m.Cols > 0 {
			m.ptr = unsafe.Add(m.ptr, off*m.typ.Size())
			m.len -= off
		}
		return m
	}
	if err := Mul(at(r.c, &r.batch.C), at(r.a, &r.batch.A), at(r.b, &r.batch.B), &r.opt); err != nil {
		r.mu.Lock()
		if r.err == nil {
			r.err = err
		}
		r.mu.Unlock()
	}
}

var batches struct {
	sync.Mutex
	list *batchRun
}

func takeBatch() *batchRun {
	batches.Lock()
	defer batches.Unlock()
	r := batches.list
	if r == nil {
		return &batchRun{}
	}
	batches.list = r.link
	return r
}

func giveBatch(r *batchRun) {
	r.c, r.a, r.b, r.opt = Matrix{}, Matrix{}, Matrix{}, Options{}
	batches.Lock()
	defer batches.Unlock()
	r.link = batches.list
	batches.list = r
}
