package cpu

import (
	"context"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// run is a product on its way: the memory that a workspace keeps between runs.
type run struct {
	p       *plan
	e       *Engine
	ctx     context.Context
	done    <-chan struct{}
	args    *matmul.Args
	weights *packed
	how     arithmetic
	source  qgemm.Source // of A

	a, b, c, residual tensor.Tensor // as the kernels see them
	wide              [4]tensor.Tensor
	convert           [4]converter // of A, B, C, the residual
	epilogue          bool         // fused; else finish applies it

	products layout // operands: C, A, B or the number of its packed form, residual; in bytes (B packed: in matrices)
	lines    layout // rows of all products; operands: C, A, residual
	m        int    // rows of one product
	pitch    [3]int // bytes between rows of C, A, residual
	workers  []productWorker
	spaces   *spaces // of the workers, which other runs may use between those of this one
	rows     []rowWorker
	bInts    []int32
	size     int
}

// productWorker is what one worker needs for products.
type productWorker struct {
	opt gemm.Options
	epi gemm.Epilogue
	q   qgemm.Run
	fin finisher
	err error
}

func (r *run) stopped() bool { return ended(r.done) }

func (r *run) multiply() error {
	args, s := r.args, &r.p.spec
	r.a, r.b, r.c, r.residual = args.A, args.B, args.C, args.Residual
	r.how, _ = form(*s, r.weights != nil)
	if r.weights != nil {
		r.how = r.weights.how
	}
	if r.how == integral {
		return r.integers()
	}
	if r.how == floating && r.weights == nil && s.B.IsBlock() {
		b, err := quant.Decode(r.b)
		if err != nil {
			return err
		}
		r.b = b
	}
	if r.how == blocked && (r.a.DType != tensor.F32 || !unit(&r.a)) {
		r.replace(&r.a, 0, tensor.F32)
	}
	if r.residual.Valid() && (r.residual.DType != tensor.F32 || !unit(&r.residual)) {
		r.replace(&r.residual, 3, tensor.F32)
	}
	// Where kernels do not write C as it is, they write float32 or int32 rows, which are converted.
	final := r.c
	r.epilogue = true
	switch {
	case r.how == eightBit && (s.C == tensor.I32 && !s.Epilogue.IsZero() || s.C == tensor.I16 || s.C.Size() == 1 && !requantizes(&s.Epilogue)):
		r.epilogue = false
		r.instead(tensor.I32)
	case r.how == eightBit && s.Epilogue.IsZero() && s.C == tensor.I32:
		r.epilogue = false
	case r.how == blocked && (s.C != tensor.F32 || !unit(&r.c)), !r.p.fused:
		r.epilogue = r.how == blocked
		r.instead(tensor.F32)
	}
	r.layOut()
	if rows := r.lines.total; r.how == blocked && r.epilogue && !s.Epilogue.IsZero() && rows > 1 && (rows*s.N <= finishTogether || r.residual.Valid()) {
		r.epilogue = false
	}
	if err := r.multiplyAll(); err != nil {
		return err
	}
	switch {
	case r.epilogue:
	case r.c.DType == tensor.I32:
		if !s.Epilogue.IsZero() || final.DType != tensor.I32 {
			r.finishInts(&final)
		}
		return nil
	default:
		r.finish()
	}
	if r.c.Buf != final.Buf {
		r.convert[2].convert(r.e, r.done, &final, &r.c)
	}
	return nil
}

// finishTogether is the number of results of a product with block weights up to which its epilogue waits for all of them: whole rows, which are still in the
// caches, cost fewer calls than the pieces of a few columns that the product makes one after the other. A single row is one piece anyway. With a residual it always
// waits: whole rows of it are fetched ahead of their use, pieces are not (on Ice Lake a product of 512 rows by 768 columns became 15 % faster).
const finishTogether = 1 << 17

// unit reports whether elements of a row lie behind one another.
func unit(t *tensor.Tensor) bool { return t.Strides[t.Rank-1] == 1 || t.Dims[t.Rank-1] <= 1 }

// replace converts an operand into memory of the run.
func (r *run) replace(t *tensor.Tensor, slot int, d tensor.DType) {
	w := &r.wide[slot]
	fit(w, t.Spec.With(d))
	r.convert[slot].convert(r.e, r.done, w, t)
	*t = *w
}

// instead lets the kernels write another tensor than C.
func (r *run) instead(d tensor.DType) {
	fit(&r.wide[2], r.c.Spec.With(d))
	r.c = r.wide[2]
}

// fit makes t a contiguous tensor of the spec, in memory that grows and is kept.
func fit(t *tensor.Tensor, s tensor.Spec) {
	switch {
	case t.Spec == s:
	case t.Buf == nil || len(t.Buf.Bytes()) < s.Bytes():
		*t = tensor.New(s.DType, s.Shape()...)
	default:
		t.Spec, t.Strides, t.Off = s, s.Contiguous(), 0
	}
}

// layout is a loop over the leading dimensions of tensors, which is computed anew only when strides change.
type layout struct {
	loop
	valid bool
	key   [4]layoutKey
}

type layoutKey struct {
	spec    tensor.Spec
	strides [tensor.MaxRank]int
}

// set lays out the dimensions of the first tensor but the innermost drop ones; the others broadcast to it. Steps are in bytes.
func (l *layout) set(drop int, ts ...*tensor.Tensor) {
	same := l.valid && len(ts) == l.n
	for i, t := range ts {
		k := layoutKey{t.Spec, t.Strides}
		same = same && l.key[i] == k
		l.key[i] = k
	}
	if same {
		return
	}
	l.valid = true
	var specs [4]tensor.Spec
	var outer [4]tensor.Tensor
	var ptr [maxOperands]*tensor.Tensor
	for i, t := range ts {
		o := &outer[i]
		o.DType = tensor.U8 // steps are in bytes
		size := t.DType.Size()
		if int(t.Rank) > drop {
			o.Rank = t.Rank - uint8(drop)
			copy(o.Dims[:o.Rank], t.Dims[:])
			for d := range int(o.Rank) {
				o.Strides[d] = t.Strides[d] * size
			}
		}
		specs[i], ptr[i] = o.Spec, o
	}
	l.loop.made = false
	l.shape(specs[0].Shape(), specs[:len(ts)]...)
	l.update(&ptr)
}

// layOut sets the loops. Products whose rows of C, A and residual follow one another and that share B are one product.
func (r *run) layOut() {
	none := &tensor.Tensor{}
	residual := none
	if r.residual.Valid() {
		residual = &r.residual
	}
	b := &r.b
	var numbered tensor.Tensor
	single := true
	if r.weights != nil {
		numbered = tensor.Tensor{Spec: tensor.MakeSpec(tensor.U8, append(append(make([]int, 0, tensor.MaxRank), r.weights.batch...), 1, 1)...)}
		numbered.Strides = numbered.Contiguous()
		b = &numbered
	}
	for i := range int(b.Rank) - 2 {
		single = single && b.Dims[i] == 1
	}
	r.lines.set(1, &r.c, &r.a, residual)
	last := r.c.Rank - 2
	r.m = r.c.Dims[last]
	r.pitch = [3]int{r.c.Strides[last] * r.c.DType.Size(), r.a.Strides[r.a.Rank-2] * r.a.DType.Size(), 0}
	if residual != none {
		r.pitch[2] = residual.Strides[residual.Rank-2] * 4
	}
	if single && r.lines.depth == 1 && last > 0 {
		r.m = r.lines.total
		r.pitch = [3]int{r.lines.innerStep(0), r.lines.innerStep(1), r.lines.innerStep(2)}
		r.products.set(int(r.c.Rank), &r.c, none, none, none)
		return
	}
	r.products.set(2, &r.c, &r.a, b, residual)
}

// multiplyAll runs every product.
func (r *run) multiplyAll() error {
	n := r.products.total
	work := r.m * r.p.spec.N * max(r.p.spec.K, 1)
	side := n > 1 && work <= thresholds().smallProduct
	workers := 1
	if side {
		workers = par.Workers(r.e.threads, n)
	}
	for i := len(r.workers); i < workers; i++ {
		space, err := r.spaces.of(i)
		if err != nil {
			return err
		}
		r.workers = append(r.workers, productWorker{opt: gemm.Options{Workspace: space, ISA: r.e.isa}})
	}
	for i := range r.workers[:workers] {
		w := &r.workers[i]
		w.err, w.opt.Threads = nil, r.e.threads
		if side {
			w.opt.Threads = 1
		}
	}
	if side {
		r.size = max(1, thresholds().smallProduct/8/max(work, 1))
		par.Run(r.e.threads, (n+r.size-1)/r.size, (*productsTask)(r))
	} else {
		r.size = 1
		for i := range n {
			(*productsTask)(r).Do(0, i)
		}
	}
	for i := range r.workers[:workers] {
		if err := r.workers[i].err; err != nil {
			return err
		}
	}
	return nil
}

// productsTask runs products side by side.
type productsTask run

// Do runs one job's products.
func (t *productsTask) Do(worker, job int) {
	r, w := (*run)(t), &t.workers[worker]
	if r.stopped() || w.err != nil {
		return
	}
	at, to := job*r.size, min((job+1)*r.size, r.products.total)
	var c cursor
	r.products.seek(&c, at)
	for ; at < to && w.err == nil; at++ {
		w.err = r.one(w, &c, at)
		r.products.advance(&c, 1)
	}
}

// longProduct is the work (M N K) of the pieces in which a long product runs, so that its context is looked at: some 20 milliseconds
// on one processor with vector kernels. Portable Go is some longCut times as slow.
const (
	longProduct = math.MaxInt32
	longCut     = 64
)

// longStep returns how many of the rows of a product, each of some work (N K), run before its context is looked at.
func (e *Engine) longStep(rows, work int) int {
	least, limit := 192, longProduct // rows enough that packing B again for each piece does not show
	if e.isa == cpuinfo.Portable {
		least, limit = 24, longProduct/longCut
	}
	most := limit / max(work, 1)
	if rows <= most {
		return rows
	}
	return max(most/least*least, least)
}

// one runs product number i, at a cursor. Rows do not depend on each other, so a long product is cut between them.
func (r *run) one(w *productWorker, c *cursor, i int) error {
	s := &r.p.spec
	if r.how == blocked {
		return r.oneBlocked(w, c, i)
	}
	step := r.m
	if r.done != nil {
		step = r.e.longStep(r.m, s.N*max(s.K, 1))
	}
	for from := 0; from < r.m; from += step {
		if from > 0 && r.stopped() {
			return nil
		}
		if err := r.rowsOf(w, c, i, from, min(step, r.m-from)); err != nil {
			return err
		}
	}
	return nil
}

// rowsOf runs rows from and on of product number i.
func (r *run) rowsOf(w *productWorker, c *cursor, i, from, rows int) error {
	s := &r.p.spec
	cm := r.view(&r.c, c.off[0], from, rows, s.N, r.pitch[0])
	am := r.view(&r.a, c.off[1], from, rows, s.K, r.pitch[1])
	w.opt.Epilogue = nil
	if r.epilogue && (!s.Epilogue.IsZero() || r.how == eightBit && r.c.DType != tensor.I32) {
		e, args := &s.Epilogue, r.args
		w.epi = gemm.Epilogue{Act: r.p.act, P: r.p.actP, Q: r.p.actQ, OutZero: e.OutZero}
		if e.OutScale != 0 && s.C.IsInt() {
			w.epi.OutScale = 1 / e.OutScale
		}
		if e.RowScale {
			w.epi.RowScale = args.RowScale[i*r.m+from:][:rows]
		}
		if e.ColScale {
			w.epi.ColScale = args.ColScale
		}
		if e.Bias {
			w.epi.Bias = args.Bias
		}
		switch e.Residual {
		case matmul.ResidualBefore:
			w.epi.Before = r.view(&r.residual, c.off[3], from, rows, s.N, r.pitch[2])
		case matmul.ResidualAfter:
			w.epi.After = r.view(&r.residual, c.off[3], from, rows, s.N, r.pitch[2])
		}
		w.opt.Epilogue = &w.epi
	}
	if r.weights != nil {
		return r.weights.multiplyPlain(c.off[2], cm, am, &w.opt)
	}
	k, n := s.K, s.N
	flip := s.BLayout == matmul.ColMajor
	if flip {
		k, n = n, k
	}
	return gemm.Mul(cm, am, matrixOf(&r.b, c.off[2], k, n, flip), &w.opt)
}

// view returns rows of one product, which begins at a byte offset; pitch is the bytes between them.
func (r *run) view(t *tensor.Tensor, off, from, rows, cols, pitch int) gemm.Matrix {
	return gemmMatrix(t, off+from*pitch, rows, cols, pitch/t.DType.Size(), t.Strides[t.Rank-1], false)
}

func (r *run) oneBlocked(w *productWorker, c *cursor, i int) error {
	s := &r.p.spec
	if r.m == 0 {
		return nil
	}
	q := &w.q
	q.M, q.LDA, q.LDC, q.Threads, q.ISA, q.Then, q.Source = r.m, s.K, s.N, w.opt.Threads, r.e.isa, nil, r.source
	if r.m > 1 {
		q.LDA, q.LDC = r.pitch[1]/4, r.pitch[0]/4
	}
	if q.LDA < s.K { // repeated rows of A: qgemm wants them apart
		return r.spread(w, c, i)
	}
	q.A = floats(unsafe.Add(r.a.Ptr(), c.off[1]), (r.m-1)*q.LDA+s.K)
	q.C = floats(unsafe.Add(r.c.Ptr(), c.off[0]), (r.m-1)*q.LDC+s.N)
	if r.epilogue && !s.Epilogue.IsZero() {
		w.fin = finisher{r: r, first: i * r.m, residual: c.off[3]}
		q.Then = &w.fin
	}
	return r.weights.multiplyBlocks(r.ctx, c.off[2], q)
}

// spread runs a product whose rows of A overlap, row by row.
func (r *run) spread(w *productWorker, c *cursor, i int) error {
	s := &r.p.spec
	for row := range r.m {
		w.q.M, w.q.LDA, w.q.LDC = 1, s.K, s.N
		w.q.A = floats(unsafe.Add(r.a.Ptr(), c.off[1]+row*r.pitch[1]), s.K)
		w.q.C = floats(unsafe.Add(r.c.Ptr(), c.off[0]+row*r.pitch[0]), s.N)
		if r.epilogue && !s.Epilogue.IsZero() {
			w.fin = finisher{r: r, first: i*r.m + row, residual: c.off[3] + row*r.pitch[2]}
			w.q.Then = &w.fin
		}
		if err := r.weights.multiplyBlocks(r.ctx, c.off[2], &w.q); err != nil {
			return err
		}
	}
	return nil
}

// finisher applies an epilogue to pieces of the rows of one product.
type finisher struct {
	r        *run
	first    int // row of all products
	residual int // byte offset of the product's residual
}

// Apply finishes columns col and on of a row.
func (f *finisher) Apply(x []float32, row, col int) {
	f.r.finishRow(x, f.first+row, col, f.residual+row*f.r.pitch[2])
}

// finishRow applies the epilogue to a piece of row number i of all products; its residual lies at a byte offset.
func (r *run) finishRow(x []float32, i, col, residual int) {
	var piece []float32
	if r.p.spec.Epilogue.Residual != matmul.NoResidual {
		piece = floats(unsafe.Add(r.residual.Ptr(), residual+4*col), len(x))
	}
	finishRow(r.e.vec, &r.p.spec.Epilogue, r.args, x, i, col, piece)
}

// finishRow applies an epilogue to a piece of row number i of all products, whose first column is col; the residual is that of the piece.
func finishRow(v *vec.Funcs, e *matmul.Epilogue, args *matmul.Args, x []float32, i, col int, residual []float32) {
	if e.RowScale {
		v.Scale(x, x, args.RowScale[i], 0)
	}
	if e.ColScale {
		v.Mul(x, x, args.ColScale[col:])
	}
	if e.Bias {
		v.Add(x, x, args.Bias[col:])
	}
	if e.Residual == matmul.ResidualBefore {
		v.Add(x, x, residual)
	}
	activate(e.Act, x)
	if e.Residual == matmul.ResidualAfter {
		v.Add(x, x, residual)
	}
}

// finish applies the epilogue to the rows of C, which are float32.
func (r *run) finish() {
	var n int
	grain := grainSlow
	if r.p.spec.Epilogue.Act.Kind == ops.NoActivation {
		grain = grainExp
	}
	r.size, n = jobs(r.lines.total, max(1, grain/max(r.p.spec.N, 1)))
	par.Run(r.e.threads, n, (*finishTask)(r))
}

// finishTask applies the epilogue to rows.
type finishTask run

// Do finishes one job's rows.
func (t *finishTask) Do(_, job int) {
	r := (*run)(t)
	if r.stopped() {
		return
	}
	at, to := job*r.size, min((job+1)*r.size, r.lines.total)
	var c cursor
	r.lines.seek(&c, at)
	for ; at < to; at++ {
		r.finishRow(floats(unsafe.Add(r.c.Ptr(), c.off[0]), r.p.spec.N), at, 0, c.off[2])
		r.lines.advance(&c, 1)
	}
}
