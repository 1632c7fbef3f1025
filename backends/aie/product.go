package aie

import (
	"context"
	"fmt"
	"math"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// run is a product on its way: the memory that a workspace keeps.
type run struct {
	e    *Engine
	spec matmul.Spec
	args *matmul.Args

	x        acts
	quant    quantJob
	s32      []int32   // results of integer products, [M][N]
	f32      []float32 // of fp32 products
	parts    [3][]int32
	opt      gemm.Options
	more     gemm.Options // adds to what is there
	combine  combineJob
	fma      fmaJob
	finish   finishJob
	rowStart []int
	conv     *convKernel // whose activations these are, or nil
}

// blockRows is the rows of activations that mode=fast multiplies at a time, to bound the memory of the four byte products.
const blockRows = 512

// product computes m rows; row is the number of the first among those of the whole result.
func (r *run) product(ctx context.Context, w *weights, a, c *tensor.Tensor, row, m int) error {
	if m == 0 || r.spec.N == 0 {
		return nil
	}
	r.rowStart = rowOffsets(r.rowStart, a)
	r.load(w, a, m)
	if err := r.multiply(ctx, w, m); err != nil {
		return err
	}
	return r.store(w, c, row, m)
}

// load brings activations into the numbers of the product.
func (r *run) load(w *weights, a *tensor.Tensor, m int) {
	x := &r.x
	x.typ, x.m, x.k, x.wide = w.typ, m, w.k, false
	stride := a.Strides[a.Rank-1]
	if w.k == 1 {
		stride = 1
	}
	if w.k == 0 {
		return
	}
	switch a.DType {
	case tensor.F32:
		q := &r.quant
		q.src, q.stride, q.split = tensor.Data[float32](*a), stride, !r.e.emulate
		q.rows = r.rowStart
		q.quantize(x, r.e.threads)
	case tensor.I16:
		src := tensor.Data[int16](*a)
		x.scale = nil
		x.i16 = grow(x.i16, m*w.k)
		for i, at := range r.rowStart {
			for p := range w.k {
				v := src[at+p*stride]
				x.wide = x.wide || v > quantLimit16
				x.i16[i*w.k+p] = v
			}
		}
		if !x.wide && !r.e.emulate {
			x.hi, x.lo = grow(x.hi, m*w.k), grow(x.lo, m*w.k)
			digits(x.hi, x.lo, x.i16)
		}
	case tensor.I8:
		src := tensor.Data[int8](*a)
		x.scale = nil
		x.hi = grow(x.hi, m*w.k)
		for i, at := range r.rowStart {
			for p := range w.k {
				x.hi[i*w.k+p] = src[at+p*stride]
			}
		}
	}
}

// multiply computes the sums as they leave the lanes.
func (r *run) multiply(ctx context.Context, w *weights, m int) error {
	var b array.Source
	if r.e.emulate && w.k > 0 {
		b = r.source()
	}
	return r.multiplyWith(ctx, w, m, b, nil)
}

// multiplyWith is multiply for activations that are loaded (b and lower nil, or b the source of the emulator), or lowered block by block:
// lower brings rows i0 to i0+n-1 to the front of the activations.
func (r *run) multiplyWith(ctx context.Context, w *weights, m int, b array.Source, lower func(i0, n int)) error {
	if w.typ == core.FP32 {
		r.f32 = grow(r.f32, m*w.n)
	} else {
		r.s32 = grow(r.s32, m*w.n)
	}
	if w.k == 0 {
		clear(r.s32)
		clear(r.f32)
		return nil
	}
	p, err := r.e.planFor(r.spec, m)
	if err != nil {
		return err
	}
	seconds := p.pred.Seconds
	bytes := int64(p.pred.Bytes.DDR + p.pred.Bytes.FPGA)
	words := int64(0)
	if r.e.emulate {
		rep, err := r.emulate(ctx, w, p, b)
		if err != nil {
			return err
		}
		seconds, bytes, words = rep.Seconds, int64(rep.Bytes.DDR+rep.Bytes.FPGA), int64(rep.ControlWords)
	} else if err := r.fast(ctx, w, m, lower); err != nil {
		return err
	}
	pm, pn, pk := p.plan.Padded()
	r.e.count.add(func(s *backends.Stats) {
		s.Products++
		s.Dispatches++
		s.Conversions += 2            // activations become the numbers of the array, and sums those of C
		if r.e.count.last != p.plan { // other blocks mean other kernel records and descriptors
			r.e.count.last = p.plan
			s.Configurations++
		}
		s.ControlWords += words
		s.Bytes += bytes
		s.UsefulMACs += int64(w.n) * int64(m) * int64(w.k)
		s.PaddedMACs += int64(pm) * int64(pn) * int64(pk)
		s.SimulatedSeconds += seconds
	})
	return nil
}

// source is B of the array's product, which is the transpose of the activations.
func (r *run) source() array.Source {
	x := &r.x
	b := &array.Matrix{Rows: x.k, Cols: x.m, RowStride: 1, ColStride: x.k, Bytes: x.typ.Bytes()}
	switch x.typ {
	case core.Int16:
		b.Data = bytesOf(x.i16[:x.m*x.k])
	case core.Int8:
		b.Data = bytesOf(x.hi[:x.m*x.k])
	case core.FP32:
		b.Data = bytesOf(x.f32[:x.m*x.k])
	}
	return b
}

// emulate runs the product on the array.
func (r *run) emulate(ctx context.Context, w *weights, p *planned, b array.Source) (*array.Report, error) {
	pr, err := p.build()
	if err != nil {
		return nil, fmt.Errorf("aie: %w", err)
	}
	a, err := w.packedFor(p.plan)
	if err != nil {
		return nil, fmt.Errorf("aie: %w", err)
	}
	_, cols := b.Size()
	c := &array.Matrix{Rows: w.n, Cols: cols, RowStride: 1, ColStride: w.n, Bytes: 4}
	if w.typ == core.FP32 {
		clear(r.f32) // the paper's design adds to C
		c.Data = bytesOf(r.f32)
	} else {
		clear(r.s32)
		c.Data = bytesOf(r.s32)
	}
	rep, err := array.Run(ctx, pr, array.Operands{A: a, B: b, C: c}, array.Options{})
	if err != nil {
		return nil, fmt.Errorf("aie: %w", err)
	}
	return rep, nil
}

// fast computes the same bits with the CPU's kernels, a block of rows at a time.
func (r *run) fast(ctx context.Context, w *weights, m int, lower func(i0, n int)) error {
	nr := r.e.narrowFor(r.spec)
	if w.typ == core.Int16 && (w.wide || r.x.wide) {
		return r.slow16(ctx, w, m, nr)
	}
	for i0 := 0; i0 < m; i0 += blockRows {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows := min(blockRows, m-i0)
		from := i0 // first row of the block among the activations
		if lower != nil {
			lower(i0, rows)
			from = 0
		}
		if err := r.fastBlock(w, i0, from, rows, nr); err != nil {
			return fmt.Errorf("aie: %w", err)
		}
	}
	return nil
}

func (r *run) fastBlock(w *weights, i0, from, rows int, nr core.Narrow) error {
	r.opt = gemm.Options{Threads: r.e.threads}
	r.more = gemm.Options{Threads: r.e.threads, Accumulate: true}
	switch w.typ {
	case core.FP32:
		r.fma.run(r, w, i0, from, rows)
		return nil
	case core.Int8:
		return gemm.MulPacked(gemm.Of(r.s32[i0*w.n:(i0+rows)*w.n], rows, w.n), gemm.Of(r.x.hi[from*w.k:(from+rows)*w.k], rows, w.k), w.s8, &r.opt)
	}
	for i := range r.parts {
		r.parts[i] = grow(r.parts[i], rows*w.n)
	}
	dst := r.s32[i0*w.n : (i0+rows)*w.n]
	for ci := range w.chunks {
		c := &w.chunks[ci]
		of := func(d []int8) gemm.Matrix {
			return gemm.View(d[from*w.k+c.k0:(from+rows)*w.k], rows, c.k1-c.k0, w.k, 1)
		}
		hh, mid, ll := gemm.Of(r.parts[0], rows, w.n), gemm.Of(r.parts[1], rows, w.n), gemm.Of(r.parts[2], rows, w.n)
		hi, lo := of(r.x.hi), of(r.x.lo)
		for _, x := range []struct {
			c, a gemm.Matrix
			b    *gemm.PackedB
			o    *gemm.Options
		}{{hh, hi, c.hi, &r.opt}, {mid, hi, c.lo, &r.opt}, {mid, lo, c.hi, &r.more}, {ll, lo, c.lo, &r.opt}} {
			if err := gemm.MulPacked(x.c, x.a, x.b, x.o); err != nil {
				return err
			}
		}
		j := &r.combine
		j.dst, j.parts, j.first, j.last, j.narrow, j.nr = dst, r.parts, ci == 0, ci == len(w.chunks)-1, c.narrow, nr
		if !j.narrow && len(w.chunks) > 1 {
			j.sums = grow(j.sums, len(dst))
		}
		par.Run(r.e.threads, (len(dst)+combineLen-1)/combineLen, j)
	}
	return nil
}

// combineJob puts byte products together: 2^16 hh + 2^8 mid + ll, in the 48 bits of a lane, and narrows.
type combineJob struct {
	dst         []int32
	parts       [3][]int32
	sums        []int64 // between chunks that are not narrowed
	first, last bool
	narrow      bool
	nr          core.Narrow
}

const combineLen = 4096

func (j *combineJob) Do(_, job int) {
	lo, hi := job*combineLen, min((job+1)*combineLen, len(j.dst))
	hh, mid, ll, dst := j.parts[0][lo:hi], j.parts[1][lo:hi], j.parts[2][lo:hi], j.dst[lo:hi]
	shift := j.nr.Shift
	plain := j.first && j.last && !j.nr.Saturate && j.nr.Round == core.ConvEven && shift > 0
	half := int64(1)<<shift>>1 - 1
	for i := range dst {
		v := int64(hh[i])<<16 + int64(mid[i])<<8 + int64(ll[i])
		if plain { // the usual case of the general one below
			v = core.Wrap48(v)
			dst[i] = int32((v + half + v>>shift&1) >> shift)
			continue
		}
		switch {
		case j.first:
		case j.narrow:
			v += core.UPS(int64(dst[i]), shift)
		default:
			v += j.sums[lo+i]
		}
		v = core.Wrap48(v)
		if j.narrow || j.last {
			dst[i] = int32(core.SRS(v, shift, j.nr.Round, j.nr.Saturate, 32))
		} else {
			j.sums[lo+i] = v
		}
	}
}

// slow16 is for int16 numbers beyond two signed bytes (32,640 and above), which only integer tensors hold.
func (r *run) slow16(ctx context.Context, w *weights, m int, nr core.Narrow) error {
	b := view[int16](w.data)
	for i := range m {
		if err := ctx.Err(); err != nil {
			return err
		}
		a := r.x.i16[i*w.k : (i+1)*w.k]
		for j := range w.n {
			s := int64(0)
			for p, v := range b[j*w.k : (j+1)*w.k] {
				s += int64(a[p]) * int64(v)
			}
			r.s32[i*w.n+j] = int32(core.SRS(core.Wrap48(s), nr.Shift, nr.Round, nr.Saturate, 32))
		}
	}
	return nil
}

// fmaJob is the fp32 product with the array's order of sums: for each element one multiplication and one addition a step, ascending.
type fmaJob struct {
	a, b, c []float32
	m, n, k int
}

const fmaRows = 4

func (j *fmaJob) run(r *run, w *weights, i0, from, rows int) {
	j.a, j.b, j.c, j.m, j.n, j.k = r.x.f32[from*w.k:], w.rows, r.f32[i0*w.n:], rows, w.n, w.k
	par.Run(r.e.threads, (rows+fmaRows-1)/fmaRows, j)
}

func (j *fmaJob) Do(_, job int) {
	for i := job * fmaRows; i < min(j.m, (job+1)*fmaRows); i++ {
		c := j.c[i*j.n : (i+1)*j.n]
		clear(c)
		for p, x := range j.a[i*j.k : (i+1)*j.k] {
			b := j.b[p*j.n : (p+1)*j.n]
			for q := range c {
				c[q] += float32(x * b[q])
			}
		}
	}
}

// finishJob scales sums back, applies the epilogue, and stores rows of C. It is the processor's work.
type finishJob struct {
	r       *run
	w       *weights
	c       *tensor.Tensor
	first   int // number of the first row
	rowC    []int
	rowRes  []int
	resStep int
	unit    float32 // 2^shift
	line    [][]float32
	cols    []float32 // column scales of weights and epilogue, and the unit
}

const finishRows = 4

func (r *run) store(w *weights, c *tensor.Tensor, first, m int) error {
	j := &r.finish
	j.r, j.w, j.c, j.first = r, w, c, first
	e := &r.spec.Epilogue
	j.rowC = rowOffsets(j.rowC, c)
	j.rowRes, j.resStep = j.rowRes[:0], 0
	if e.Residual != matmul.NoResidual {
		res := r.args.Residual
		if res.DType != tensor.F32 {
			wide := tensor.New(tensor.F32, res.Shape()...)
			if err := tensor.Copy(wide, res); err != nil {
				return err
			}
			r.args.Residual, res = wide, wide
		}
		j.resStep = res.Strides[res.Rank-1]
		j.rowRes = rowOffsets(j.rowRes, &res)
	}
	j.unit = float32(math.Ldexp(1, int(r.e.narrowFor(r.spec).Shift)))
	j.cols = grow(j.cols, w.n)
	for i := range j.cols {
		j.cols[i] = 1
		if w.scale != nil {
			j.cols[i] = w.scale[i] * j.unit
		}
	}
	jobs := (m + finishRows - 1) / finishRows
	for workers := par.Workers(r.e.threads, jobs); len(j.line) < workers; {
		j.line = append(j.line, nil)
	}
	par.Run(r.e.threads, jobs, j)
	return nil
}

// gemmActs are the activations that the CPU computes in bulk.
var gemmActs = map[ops.Activation]gemm.Activation{ops.NoActivation: gemm.None, ops.ReLU: gemm.ReLU, ops.GELU: gemm.GELU, ops.GELUTanh: gemm.GELUTanh,
	ops.QuickGELU: gemm.QuickGELU, ops.SiLU: gemm.SiLU, ops.Tanh: gemm.Tanh, ops.Sigmoid: gemm.Sigmoid}

func (j *finishJob) Do(worker, job int) {
	n := j.w.n
	m := len(j.rowC)
	if len(j.line[worker]) < n {
		j.line[worker] = make([]float32, n)
	}
	for i := job * finishRows; i < min(m, (job+1)*finishRows); i++ {
		if j.r.spec.C != tensor.F32 {
			j.integers(i)
			continue
		}
		line := j.line[worker][:n]
		scale := float32(1)
		if j.r.x.scale != nil {
			scale = j.r.x.scale[i]
		}
		if j.w.typ == core.FP32 {
			copy(line, j.r.f32[i*n:])
		} else {
			for q, v := range j.r.s32[i*n : (i+1)*n] {
				line[q] = float32(v) * j.cols[q] * scale
			}
		}
		if w := j.w; w.odd != nil || w.scale != nil && isNaN(scale) {
			j.odd(line, i, isNaN(scale))
		}
		j.epilogue(line, i)
		dst := tensor.Data[float32](*j.c)[j.rowC[i]:]
		if step := j.c.Strides[j.c.Rank-1]; step == 1 || n == 1 {
			copy(dst[:n], line)
		} else {
			for q, v := range line {
				dst[q*step] = v
			}
		}
	}
}

// odd computes what has no number in an integer format, as float32: a row with a NaN or an infinity, and channels whose weights hold one.
func (j *finishJob) odd(line []float32, i int, whole bool) {
	w := j.w
	count := int64(0)
	for q := range line {
		if !whole && w.odd[q] == nil {
			continue
		}
		s := float32(0)
		for p := range w.k {
			s += float32(j.r.value(i, p) * w.value(q, p))
		}
		line[q] = s
		count++
	}
	j.r.e.count.add(func(s *backends.Stats) { s.HostResults += count })
}

// value is an activation as it came.
func (r *run) value(i, p int) float32 {
	if r.conv != nil {
		return r.conv.value(i, p)
	}
	return r.quant.src[r.rowStart[i]+p*r.quant.stride]
}

// epilogue applies what the problem asks for to a row of float32.
func (j *finishJob) epilogue(line []float32, i int) {
	e, args := &j.r.spec.Epilogue, j.r.args
	if e.RowScale {
		s := args.RowScale[j.first+i]
		for q := range line {
			line[q] *= s
		}
	}
	if e.ColScale {
		for q, s := range args.ColScale[:len(line)] {
			line[q] *= s
		}
	}
	if e.Bias {
		for q, s := range args.Bias[:len(line)] {
			line[q] += s
		}
	}
	if e.Residual == matmul.ResidualBefore {
		j.residual(line, i)
	}
	if a, ok := gemmActs[e.Act.Kind]; ok {
		_ = gemm.Activate(a, line, e.Act.P, e.Act.Q)
	} else {
		for q, v := range line {
			line[q] = float32(e.Act.Apply(float64(v)))
		}
	}
	if e.Residual == matmul.ResidualAfter {
		j.residual(line, i)
	}
}

func (j *finishJob) residual(line []float32, i int) {
	res := &j.r.args.Residual
	src := tensor.Data[float32](*res)[j.rowRes[j.first+i]:]
	for q := range line {
		line[q] += src[q*j.resStep]
	}
}

// integers stores a row of an integer product: plain sums are wrapped, sums with an epilogue are requantized.
func (j *finishJob) integers(i int) {
	e, args, n := &j.r.spec.Epilogue, j.r.args, j.w.n
	src := j.r.s32[i*n : (i+1)*n]
	step := j.c.Strides[j.c.Rank-1]
	at := j.rowC[i]
	for q, v := range src {
		if !e.IsZero() {
			pick := func(has bool, s []float32, i int) float64 {
				if has {
					return float64(s[i])
				}
				return 0
			}
			res := 0.0
			if e.Residual != matmul.NoResidual {
				res = float64(tensor.Data[float32](args.Residual)[j.rowRes[j.first+i]+q*j.resStep])
			}
			x := e.Apply(float64(v), pick(e.RowScale, args.RowScale, j.first+i), pick(e.ColScale, args.ColScale, q), pick(e.Bias, args.Bias, q), res)
			if j.r.spec.C != tensor.I32 && (e.OutScale != 0 || e.OutZero != 0 || e.RowScale || e.ColScale) {
				s := float64(e.OutScale)
				if s == 0 {
					s = 1
				}
				x = math.RoundToEven(x/s) + float64(e.OutZero)
				lo, hi := limits(j.r.spec.C)
				x = min(max(x, lo), hi)
			}
			v = int32(int64(x))
		}
		switch o := at + q*step; j.r.spec.C {
		case tensor.I32, tensor.U32:
			tensor.Data[int32](*j.c)[o] = v
		case tensor.I16, tensor.U16:
			tensor.Data[int16](*j.c)[o] = int16(v)
		default:
			tensor.Data[int8](*j.c)[o] = int8(v)
		}
	}
}

func limits(d tensor.DType) (lo, hi float64) {
	switch d {
	case tensor.I8:
		return -128, 127
	case tensor.U8:
		return 0, 255
	case tensor.I16:
		return -32768, 32767
	}
	return math.MinInt32, math.MaxInt32
}
