package cpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	isa, err := cpuinfo.Pinned()
	if err != nil {
		return // Open reports it
	}
	matmul.RegisterDefault(newBackend(0, isa).engine.direct)
}

// Engine runs matrix products on package gemm: it brings operands into forms that gemm has kernels for, walks batches, and applies
// what of an epilogue is not fused.
type Engine struct {
	threads int
	isa     cpuinfo.ISA
	vec     *vec.Funcs
}

// Supports says why a problem has no product, or nil.
func (e *Engine) Supports(s matmul.Spec, _ matmul.Shape) error {
	_, err := form(s)
	return err
}

// arithmetic is how a product is computed.
type arithmetic uint8

const (
	inF32 arithmetic = iota // operands widened to float32
	inInt                   // exact integers
)

func form(s matmul.Spec) (arithmetic, error) {
	switch {
	case s.A.IsInt() && s.B.IsInt():
		if s.A.Size() > 2 || s.B.Size() > 2 {
			return 0, fmt.Errorf("cpu: no product of %v and %v; integers of 8 and 16 bits are right", s.A, s.B)
		}
		return inInt, nil
	case narrow(s.A) && (narrow(s.B) || s.B.IsBlock() && quant.CanDecode(s.B)):
		return inF32, nil
	}
	return 0, fmt.Errorf("cpu: no product of %v and %v", s.A, s.B)
}

// narrow reports whether float32 holds every value of the type.
func narrow(d tensor.DType) bool { return d == tensor.F32 || d == tensor.F16 || d == tensor.BF16 }

// packed is a weight in gemm's layout, a matrix for each of its batches.
type packed struct {
	spec     matmul.Spec
	isa      cpuinfo.ISA
	batch    []int
	matrices []*gemm.PackedB
	ints     []int32 // integer weights as [batch][N][K]
}

// Spec returns the problem that the weight was packed for.
func (p *packed) Spec() matmul.Spec { return p.spec }

// Bytes returns the memory that the packed form takes.
func (p *packed) Bytes() int {
	n := 4 * len(p.ints)
	for _, m := range p.matrices {
		n += m.Bytes()
	}
	return n
}

// WriteTo is not offered: packing is as fast as reading would be.
func (p *packed) WriteTo(io.Writer) (int64, error) {
	return 0, fmt.Errorf("cpu: packed weights are not stored: %w", errors.ErrUnsupported)
}

// Close releases the memory.
func (p *packed) Close() error {
	var errs []error
	for _, m := range p.matrices {
		errs = append(errs, m.Close())
	}
	p.matrices, p.ints = nil, nil
	return errors.Join(errs...)
}

// Pack brings weights into gemm's layout.
func (e *Engine) Pack(_ context.Context, s matmul.Spec, b tensor.Tensor) (matmul.Packed, error) {
	how, err := form(s)
	if err != nil {
		return nil, err
	}
	rows, cols := b.Dim(-2), b.Dim(-1)
	k, n := rows, cols
	if s.BLayout == matmul.ColMajor {
		k, n = cols, rows
	}
	if b.DType != s.B || k != s.K || n != s.N {
		return nil, fmt.Errorf("cpu: pack of %v for %v", b.Spec, s)
	}
	p := &packed{spec: s, isa: e.isa, batch: b.Shape()[:b.Rank-2]}
	if how == inInt {
		p.ints = transposedInts(b, s)
		return p, nil
	}
	if b.DType != tensor.F32 {
		if b, err = quant.Decode(b); err != nil {
			return nil, err
		}
	}
	rs, cs := b.Strides[b.Rank-2], b.Strides[b.Rank-1]
	if s.BLayout == matmul.ColMajor {
		rs, cs = cs, rs
	}
	outer := b
	outer.Rank -= 2
	opt := gemm.Options{Threads: e.threads, ISA: e.isa}
	outer.Each(func(_, off int) {
		if err != nil {
			return
		}
		part := b
		part.Off += off * 4
		part.Rank, part.Dims, part.Strides = 2, [tensor.MaxRank]int{rows, cols}, [tensor.MaxRank]int{b.Strides[b.Rank-2], b.Strides[b.Rank-1]}
		var m *gemm.PackedB
		if m, err = gemm.PackB(gemm.View(tensor.Data[float32](&part), k, n, rs, cs), &opt); err == nil {
			p.matrices = append(p.matrices, m)
		}
	})
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// transposedInts returns integer weights as [batch][N][K].
func transposedInts(b tensor.Tensor, s matmul.Spec) []int32 {
	if s.BLayout == matmul.RowMajor {
		b, _ = b.Transpose(int(b.Rank)-2, int(b.Rank)-1)
	}
	v := make([]int32, b.Elems())
	for i, x := range b.Ints() {
		v[i] = int32(x)
	}
	return v
}

// Plan prepares a shape.
func (e *Engine) Plan(s matmul.Spec, sh matmul.Shape) (matmul.Plan, error) {
	how, err := form(s)
	if err != nil {
		return nil, err
	}
	return &plan{e: e, spec: s, shape: sh, how: how}, nil
}

// plan runs one shape. It is immutable; what a run needs lies in the workspace.
type plan struct {
	e     *Engine
	spec  matmul.Spec
	shape matmul.Shape
	how   arithmetic
}

// smallProduct is the work (M N K) below which batches of products run side by side, each on one worker.
const smallProduct = 1 << 21

// run is a product on its way: the memory that a workspace keeps. C is computed as float32 rows, in place where C is that, and then
// finished: epilogue, narrowing.
type run struct {
	p       *plan
	e       *Engine
	done    <-chan struct{}
	weights *packed

	a, b, c, residual tensor.Tensor // as the products see them
	aWide, bWide      tensor.Tensor // operands widened to float32
	cWide             tensor.Tensor // C as float32 rows
	convert           [3]converter  // of A, B, C

	outer  loop // over products; operands: C, A, B, number of the packed matrix
	index  tensor.Tensor
	m      int // rows of one product; of all of them where they can be taken together
	spaces []*gemm.Workspace
	opts   []gemm.Options
	errs   []error
	side   bool // products side by side

	lines    loop // over rows of all products; operands: C, residual, A
	args     *matmul.Args
	size     int
	scratch  [][]float32
	ints     [][]int32
	bInts    []int32
	bBatches loop
}

// Run computes the product.
func (p *plan) Run(ctx context.Context, w matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
	r, _ := ws.Data.(*run)
	if r == nil {
		r = &run{}
		ws.Data = r
	}
	r.p, r.e, r.done, r.args = p, p.e, ctx.Done(), args
	r.weights = nil
	if w != nil {
		pk, ok := w.(*packed)
		if !ok || pk.spec.N != p.spec.N || pk.spec.K != p.spec.K || pk.spec.B != p.spec.B || pk.spec.BLayout != p.spec.BLayout {
			return fmt.Errorf("cpu: weights packed as %v by another engine or for another problem than %v: pack them here", w.Spec(), p.spec)
		}
		if pk.matrices == nil && pk.ints == nil {
			return errors.New("cpu: packed weights are closed")
		}
		r.weights = pk
	}
	if args.C.Elems() == 0 {
		return nil
	}
	err := r.multiply()
	r.args = nil
	if err == nil && r.stopped() {
		err = context.Cause(ctx)
	}
	return err
}

func (r *run) stopped() bool {
	if r.done == nil {
		return false
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *run) multiply() error {
	args := r.args
	r.a, r.b, r.c, r.residual = args.A, args.B, args.C, args.Residual
	if r.p.how == inInt {
		return r.integers()
	}
	if r.a.DType != tensor.F32 {
		r.widen(&r.a, &r.aWide, &r.convert[0])
	}
	if r.weights == nil && r.b.DType != tensor.F32 {
		if r.b.DType.IsBlock() {
			b, err := quant.Decode(r.b)
			if err != nil {
				return err
			}
			r.b = b
		} else {
			r.widen(&r.b, &r.bWide, &r.convert[1])
		}
	}
	last := int(r.c.Rank) - 1
	direct := r.c.DType == tensor.F32 && (r.c.Strides[last] == 1 || r.c.Dims[last] == 1)
	if !direct {
		r.fit(&r.cWide, r.c.Spec.With(tensor.F32))
		r.c = r.cWide
	}
	r.layOut()
	if err := r.products(); err != nil {
		return err
	}
	if !r.p.spec.Epilogue.IsZero() {
		r.finish()
	}
	if !direct {
		r.convert[2].convert(r.e, r.done, &args.C, &r.c)
	}
	return nil
}

// fit makes t a contiguous tensor of the spec in memory that grows and is kept.
func (r *run) fit(t *tensor.Tensor, s tensor.Spec) {
	if t.Spec == s {
		return
	}
	if t.Buf == nil || len(t.Buf.Bytes()) < s.Bytes() {
		*t = tensor.New(s.DType, s.Shape()...)
		return
	}
	t.Spec, t.Strides, t.Off = s, s.Contiguous(), 0
}

func (r *run) widen(t, wide *tensor.Tensor, c *converter) {
	r.fit(wide, t.Spec.With(tensor.F32))
	c.convert(r.e, r.done, wide, t)
	*t = *wide
}

// layOut sets the loops over products and rows. Rows of all products are one product where A and C lie regularly and B is one matrix.
func (r *run) layOut() {
	lead := int(r.c.Rank) - 2
	r.m = r.c.Dims[lead]
	dims := r.c.Dims[:lead]
	batchesOfB := 1
	if r.weights != nil {
		for _, d := range r.weights.batch {
			batchesOfB *= d
		}
	} else {
		for i := range int(r.b.Rank) - 2 {
			batchesOfB *= r.b.Dims[i]
		}
	}
	// [..., M] of C, A and the residual.
	rows := func(t tensor.Tensor) (tensor.Spec, tensor.Tensor) {
		s := t
		if t.Rank == 0 {
			return tensor.Spec{DType: tensor.U8}, s
		}
		s.Rank--
		s.DType = tensor.U8
		size := t.DType.Size()
		for i := range s.Strides {
			s.Strides[i] *= size
		}
		s.Dims[s.Rank] = 0
		return s.Spec, s
	}
	cs, ct := rows(r.c)
	as, at := rows(r.a)
	rs, rt := rows(r.residual)
	r.lines.made = false
	r.lines.shape(r.c.Dims[:lead+1], cs, rs, as)
	ptr := [maxOperands]*tensor.Tensor{&ct, &rt, &at}
	r.lines.update(&ptr)
	if batchesOfB == 1 && lead > 0 && r.lines.depth == 1 && !r.p.spec.Epilogue.RowScale {
		r.m = r.lines.total
		dims = nil
	}
	lead = len(dims)
	cut := func(t tensor.Tensor) (tensor.Spec, tensor.Tensor) {
		if t.Rank == 0 {
			return tensor.Spec{DType: tensor.U8}, t
		}
		t.Rank--
		t.Dims[t.Rank] = 0
		if lead == 0 {
			t.Rank, t.Dims = 0, [tensor.MaxRank]int{}
		}
		return t.Spec, t
	}
	cs, ct = cut(ct)
	as, at = cut(at)
	var bs tensor.Spec
	var bt tensor.Tensor
	if r.weights != nil {
		bt = r.numbered(r.weights.batch)
		if batchesOfB == 1 {
			bt = r.numbered(nil)
		}
		bs = bt.Spec
	} else {
		bt = r.b
		bt.Rank -= 2
		if lead == 0 {
			bt.Rank = 0
		}
		bt.DType = tensor.U8
		for i := range bt.Strides {
			bt.Strides[i] *= 4
		}
		for i := int(bt.Rank); i < tensor.MaxRank; i++ {
			bt.Dims[i] = 0
		}
		bs = bt.Spec
	}
	r.outer.made = false
	r.outer.shape(dims, cs, as, bs)
	ptr = [maxOperands]*tensor.Tensor{&ct, &at, &bt}
	r.outer.update(&ptr)
}

// numbered returns a tensor of the batch dimensions whose strides, in bytes, count packed matrices.
func (r *run) numbered(batch []int) tensor.Tensor {
	s := tensor.MakeSpec(tensor.U8, batch...)
	return tensor.Tensor{Spec: s, Strides: s.Contiguous()}
}

// products runs all of them.
func (r *run) products() error {
	n := r.outer.total
	work := r.m * r.p.spec.N * r.p.spec.K
	r.side = n > 1 && work <= smallProduct
	workers := 1
	if r.side {
		workers = par.Workers(r.e.threads, n)
	}
	for len(r.spaces) < workers {
		space, err := gemm.NewWorkspace(0)
		if err != nil {
			return err
		}
		r.spaces = append(r.spaces, space)
		r.opts = append(r.opts, gemm.Options{Workspace: space, ISA: r.e.isa})
		r.errs = append(r.errs, nil)
	}
	for i := range r.opts {
		r.opts[i].Threads, r.errs[i] = r.e.threads, nil
		if r.side {
			r.opts[i].Threads = 1
		}
	}
	if r.side {
		r.size = max(1, smallProduct/8/max(work, 1))
		par.Run(r.e.threads, (n+r.size-1)/r.size, (*productsTask)(r))
	} else {
		r.size = 1
		for i := range n {
			(*productsTask)(r).Do(0, i)
		}
	}
	for _, err := range r.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// productsTask runs products side by side.
type productsTask run

// Do runs one job's products.
func (t *productsTask) Do(worker, job int) {
	r := (*run)(t)
	if r.stopped() || r.errs[worker] != nil {
		return
	}
	at, to := job*r.size, min((job+1)*r.size, r.outer.total)
	var c cursor
	r.outer.seek(&c, at)
	for ; at < to; at++ {
		if err := r.one(worker, &c); err != nil {
			r.errs[worker] = err
			return
		}
		r.outer.advance(&c, 1)
	}
}

func (r *run) one(worker int, c *cursor) error {
	s := &r.p.spec
	cm := r.view(&r.c, c.off[0], r.m, s.N, false)
	am := r.view(&r.a, c.off[1], r.m, s.K, false)
	if r.weights != nil {
		return gemm.MulPacked(cm, am, r.weights.matrices[c.off[2]], &r.opts[worker])
	}
	bm := r.view(&r.b, c.off[2], s.K, s.N, s.BLayout == matmul.ColMajor)
	return gemm.Mul(cm, am, bm, &r.opts[worker])
}

// view returns rows x cols elements of a float32 tensor from a byte offset on; flip exchanges the strides of the two innermost
// dimensions.
func (r *run) view(t *tensor.Tensor, off, rows, cols int, flip bool) gemm.Matrix {
	rs, cs := t.Strides[t.Rank-2], t.Strides[t.Rank-1]
	if flip {
		rs, cs = cs, rs
	}
	if rows > t.Dims[t.Rank-2] && !flip && t.Rank > 2 { // rows of all products together
		rs = r.pitch(t)
	}
	n := 0
	if rows > 0 && cols > 0 {
		n = (rows-1)*rs + (cols-1)*cs + 1
	}
	if n == 0 {
		return gemm.Of([]float32(nil), rows, cols)
	}
	return gemm.View(floats(unsafe.Add(t.Ptr(), off), n), rows, cols, rs, cs)
}

// pitch returns the elements between rows that are taken together across products.
func (r *run) pitch(t *tensor.Tensor) int {
	for i := int(t.Rank) - 2; i >= 0; i-- {
		if t.Dims[i] != 1 {
			return t.Strides[i]
		}
	}
	return 0
}

// finish applies the epilogue to the rows of C.
func (r *run) finish() {
	var n int
	r.size, n = jobs(r.lines.total, max(1, grainExp/max(r.p.spec.N, 1)))
	w := par.Workers(r.e.threads, n)
	for len(r.scratch) < w {
		r.scratch = append(r.scratch, nil)
	}
	for i := range w {
		if len(r.scratch[i]) < r.p.spec.N {
			r.scratch[i] = make([]float32, r.p.spec.N)
		}
	}
	if n == 1 {
		(*finishTask)(r).Do(0, 0)
		return
	}
	par.Run(r.e.threads, n, (*finishTask)(r))
}

// finishTask applies the epilogue to rows.
type finishTask run

// Do finishes one job's rows.
func (t *finishTask) Do(worker, job int) {
	r := (*run)(t)
	if r.stopped() {
		return
	}
	at, to := job*r.size, min((job+1)*r.size, r.lines.total)
	var c cursor
	r.lines.seek(&c, at)
	n := r.p.spec.N
	for ; at < to; at++ {
		r.finishRow(floats(unsafe.Add(r.c.Ptr(), c.off[0]), n), r.scratch[worker], at, c.off[1])
		r.lines.advance(&c, 1)
	}
}

// finishRow applies the epilogue to row number i of C, whose residual lies at a byte offset.
func (r *run) finishRow(x, buf []float32, i, residual int) {
	e, v := &r.p.spec.Epilogue, r.e.vec
	if e.RowScale {
		v.Scale(x, x, r.args.RowScale[i], 0)
	}
	if e.ColScale {
		v.Mul(x, x, r.args.ColScale)
	}
	if e.Bias {
		v.Add(x, x, r.args.Bias)
	}
	if e.Residual == matmul.ResidualBefore {
		v.Add(x, x, r.residualRow(residual, buf))
	}
	if e.Act.Kind != 0 {
		activate(v, e.Act, x)
	}
	if e.Residual == matmul.ResidualAfter {
		v.Add(x, x, r.residualRow(residual, buf))
	}
}

func (r *run) residualRow(off int, buf []float32) []float32 {
	t := &r.residual
	n := r.p.spec.N
	p := unsafe.Add(t.Ptr(), off)
	if t.DType == tensor.F32 && t.Strides[t.Rank-1] == 1 {
		return floats(p, n)
	}
	loadFloats(r.e.vec, buf[:n], t.DType, p, t.Strides[t.Rank-1]*t.DType.Size())
	return buf[:n]
}

// integers computes exact products modulo 2^32 row by row.
func (r *run) integers() error {
	s := &r.p.spec
	if r.weights != nil {
		r.bInts = r.weights.ints
	} else {
		r.bInts = transposedInts(r.b, *s)
	}
	r.layOutInts()
	var n int
	r.size, n = jobs(r.lines.total, max(1, smallProduct/16/max(s.N*s.K, 1)))
	w := par.Workers(r.e.threads, n)
	for len(r.ints) < w {
		r.ints = append(r.ints, nil)
		r.scratch = append(r.scratch, nil)
	}
	for i := range w {
		if len(r.ints[i]) < s.K+s.N {
			r.ints[i] = make([]int32, s.K+s.N)
		}
		if len(r.scratch[i]) < 2*s.N {
			r.scratch[i] = make([]float32, 2*s.N)
		}
	}
	par.Run(r.e.threads, n, (*integersTask)(r))
	return nil
}

// layOutInts sets the loop over rows; the fourth operand counts the matrices of B.
func (r *run) layOutInts() {
	lead := int(r.c.Rank) - 2
	bytes := func(t tensor.Tensor) tensor.Tensor {
		if t.Rank == 0 {
			t.DType = tensor.U8
			return t
		}
		size := t.DType.Size()
		t.Rank--
		t.Dims[t.Rank] = 0
		t.DType = tensor.U8
		for i := range t.Strides {
			t.Strides[i] *= size
		}
		return t
	}
	batch := r.b.Shape()
	if r.weights != nil {
		batch = append(append([]int{}, r.weights.batch...), 0, 0)
	}
	bt := r.numbered(append(batch[:len(batch)-2:len(batch)-2], 1))
	ct, rt, at := bytes(r.c), bytes(r.residual), bytes(r.a)
	r.lines.made = false
	r.lines.shape(r.c.Dims[:lead+1], ct.Spec, rt.Spec, at.Spec, bt.Spec)
	ptr := [maxOperands]*tensor.Tensor{&ct, &rt, &at, &bt}
	r.lines.update(&ptr)
}

// integersTask computes rows of integer products.
type integersTask run

// Do computes one job's rows.
func (t *integersTask) Do(worker, job int) {
	r := (*run)(t)
	if r.stopped() {
		return
	}
	s := &r.p.spec
	at, to := job*r.size, min((job+1)*r.size, r.lines.total)
	var c cursor
	r.lines.seek(&c, at)
	a, sums := r.ints[worker][:s.K], r.ints[worker][s.K:s.K+s.N]
	for ; at < to; at++ {
		loadInts(a, r.a.DType, unsafe.Add(r.a.Ptr(), c.off[2]), r.a.Strides[r.a.Rank-1]*r.a.DType.Size())
		b := r.bInts[c.off[3]*s.N*s.K:]
		for j := range sums {
			row := b[j*s.K:][:len(a)]
			var sum int32
			for l, x := range a {
				sum += x * row[l]
			}
			sums[j] = sum
		}
		r.storeInts(unsafe.Add(r.c.Ptr(), c.off[0]), sums, r.scratch[worker], at, c.off[1])
		r.lines.advance(&c, 1)
	}
}

// storeInts finishes a row of sums and stores it.
func (r *run) storeInts(p unsafe.Pointer, sums []int32, buf []float32, i, residual int) {
	e := &r.p.spec.Epilogue
	d, step := r.c.DType, r.c.Strides[r.c.Rank-1]*r.c.DType.Size()
	if e.IsZero() && d != tensor.F32 {
		for j, x := range sums {
			storeInt(unsafe.Add(p, j*step), d, x)
		}
		return
	}
	n := len(sums)
	x := buf[:n]
	for j, s := range sums {
		x[j] = float32(s)
	}
	r.finishRow(x, buf[n:2*n], i, residual)
	if d == tensor.F32 {
		storeFloats(r.e.vec, p, d, step, x)
		return
	}
	requantized := e.OutScale != 0 || e.OutZero != 0 || e.RowScale || e.ColScale
	scale := float64(e.OutScale)
	if scale == 0 {
		scale = 1
	}
	for j, y := range x {
		v := float64(y)
		if requantized && d != tensor.I32 {
			lo, hi := limits(d)
			v = min(max(math.RoundToEven(v/scale)+float64(e.OutZero), lo), hi)
		}
		storeInt(unsafe.Add(p, j*step), d, int32(int64(v)))
	}
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

// direct computes a product without a plan kept: what matmul.MatMul calls.
func (e *Engine) direct(op matmul.Op, c tensor.Tensor, in []tensor.Tensor, threads int) error {
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	spec, shape := op.Problem(specs, c.Spec)
	if _, err := form(spec); err != nil {
		return op.Reference([]tensor.Tensor{c}, in)
	}
	w := spaces.Get().(*matmul.Workspace)
	defer spaces.Put(w)
	engine := *e
	engine.threads = threads
	p, err := engine.Plan(spec, shape)
	if err != nil {
		return err
	}
	args := matmul.Args{A: in[0], B: in[1], C: c}
	operandsOf(op, in, &args)
	return p.Run(context.Background(), nil, &args, w)
}

var spaces = sync.Pool{New: func() any { return new(matmul.Workspace) }}

// operandsOf takes the operands of the epilogue; vectors are copied where they have gaps.
func operandsOf(op matmul.Op, in []tensor.Tensor, args *matmul.Args) {
	rowScale, colScale, bias, residual, _ := op.Operands()
	vector := func(i int) []float32 {
		if i < 0 {
			return nil
		}
		t := in[i]
		if !t.IsContiguous() {
			t = t.Clone()
		}
		return tensor.Data[float32](&t)
	}
	args.RowScale, args.ColScale, args.Bias = vector(rowScale), vector(colScale), vector(bias)
	if residual >= 0 {
		args.Residual = in[residual]
	}
}
