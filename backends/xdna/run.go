package xdna

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// space is what a workspace keeps between runs, and the run that is on its way. Its parallel regions are methods of it, so that starting one allocates nothing.
type space struct {
	a, c     []byte // operand and result in the array's types, where they are not the caller's memory
	tiled    []byte // a bfp16 operand in the order of the array
	bufs     [design.NumArgs][]byte
	stage    []byte
	spill    []byte
	rowScale []float32
	fast     fastRun
	opt      gemm.Options
	lines    [][]float32 // by worker
	out      tensor.Tensor
	special  specialRows

	p        *mmPlan
	w        *packed
	args     *matmul.Args
	in       rows   // A as it comes
	operand  []byte // A in the array's type
	to       rows   // C
	residual rows
	from     source // what finish reads
	raw      []byte // of fromArray
	do       region
}

// region is a parallel part of a run.
type region uint8

const (
	doConvert  region = iota // activations to the array's type
	doPack                   // A into micropanels
	doMultiply               // tiles of C
	doSlow                   // rows of C, by blocks
	doStore                  // integer rows into C
	doFinish                 // epilogue
)

// source is where raw results lie.
type source uint8

const (
	fromNothing source = iota // K = 0: zeros
	fromArray                 // the array's C
	fromInts                  // int32 rows of N
	fromFloats                // float32 rows of whole panels
)

// Do implements par.Task.
func (s *space) Do(worker, job int) {
	switch s.do {
	case doConvert:
		s.convert(worker, job)
	case doPack:
		s.packRows(worker, job)
	case doMultiply:
		s.multiply(job)
	case doSlow:
		s.slowRow(job)
	case doStore:
		s.storeInts(job)
	case doFinish:
		s.finishRows(worker, job)
	}
}

// region runs n jobs of a kind.
func (s *space) region(p *mmPlan, do region, n int) {
	s.p, s.do = p, do
	par.Run(p.e.opt.Threads, n, s)
}

// Run computes the product.
func (p *mmPlan) Run(ctx context.Context, w matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ws == nil {
		return fmt.Errorf("%s: no workspace", p.e.dev.Name)
	}
	if err := args.Check(p.spec, p.rows, w != nil); err != nil {
		return err
	}
	return p.product(ctx, w, args, ws)
}

// product is Run for operands that have been checked, or of which A are the pixels of convolutions, row by row.
func (p *mmPlan) product(ctx context.Context, w matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
	e := p.e
	if err := ctx.Err(); err != nil {
		return err
	}
	pk, err := p.weights(ctx, w, args)
	if err != nil {
		return err
	}
	s, _ := ws.Data.(*space)
	if s == nil {
		s = &space{}
		ws.Data = s
	}
	if args.C.Elems() == 0 {
		return nil
	}
	// C as rows, in place where it is.
	c, inPlace := rowsOf(&args.C, p.rows, p.spec.N)
	if !inPlace {
		if s.out.Spec != args.C.Spec {
			s.out = tensor.New(args.C.DType, args.C.Shape()...)
		}
		c, _ = rowsOf(&s.out, p.rows, p.spec.N)
	}
	s.p, s.w, s.args, s.to = p, pk, args, c
	s.special.reset(p.rows)
	switch {
	case p.run == nil: // K = 0
		err = p.finish(s, fromNothing)
	case e.exec != nil:
		err = p.emulate(ctx, s)
	default:
		err = p.compute(ctx, s)
	}
	s.w, s.args, s.in, s.to, s.residual, s.operand, s.raw = nil, nil, rows{}, rows{}, rows{}, nil, nil
	clear(s.bufs[:])
	s.special.c = nil
	if err != nil {
		return err
	}
	if !inPlace {
		return tensor.Copy(&args.C, &s.out)
	}
	return nil
}

// weights checks the packed weights, or packs those of the arguments.
func (p *mmPlan) weights(ctx context.Context, w matmul.Packed, args *matmul.Args) (*packed, error) {
	if w == nil {
		b := args.B
		for b.Rank > 2 && b.Dims[0] == 1 {
			var err error
			if b, err = b.Index(0, 0); err != nil {
				return nil, err
			}
		}
		var err error
		if w, err = p.e.Pack(ctx, p.spec, b); err != nil {
			return nil, err
		}
	}
	pk, ok := w.(*packed)
	switch {
	case !ok || pk.e != p.e || weightsSpec(pk.spec) != weightsSpec(p.spec) || pk.types != p.how.types:
		return nil, fmt.Errorf("%s: weights packed as %v by another engine or for another problem than %v: pack them here", p.e.dev.Name, w.Spec(), p.spec)
	case pk.closed:
		return nil, fmt.Errorf("%s: packed weights are closed", p.e.dev.Name)
	}
	return pk, nil
}

// rows is a matrix of rows in memory.
type rows struct {
	data  []byte
	pitch int // bytes
	typ   tensor.DType
}

// rowsOf views a tensor of any rank as n rows of cols elements at one distance, if it lies so.
func rowsOf(t *tensor.Tensor, n, cols int) (rows, bool) {
	last := int(t.Rank) - 1
	if last < 0 || t.Dims[last] != cols || t.DType.IsBlock() && !t.IsContiguous() {
		return rows{}, false
	}
	if t.DType.IsBlock() {
		return rows{t.Raw(), len(t.Raw()) / max(n, 1), t.DType}, true
	}
	if cols > 1 && t.Strides[last] != 1 {
		return rows{}, false
	}
	stride, count := 0, 1 // of the rows so far, from the inside
	for i := last - 1; i >= 0; i-- {
		if t.Dims[i] == 1 {
			continue
		}
		if count == 1 {
			stride = t.Strides[i]
		} else if t.Strides[i] != stride*count {
			return rows{}, false
		}
		count *= t.Dims[i]
	}
	if count != n || n > 1 && stride < cols {
		return rows{}, false
	}
	if n == 1 {
		stride = cols
	}
	size := t.DType.Size()
	off := t.Off
	data := t.Buf.Bytes()
	return rows{data[off:][:((n-1)*stride+cols)*size], stride * size, t.DType}, true
}

// bringA brings A into the array's type at the plan's pitch: the caller's memory if it lies so, else s.a. It returns the bytes copied only because of how A lies.
func (p *mmPlan) bringA(s *space) (a []byte, staged int64, err error) {
	t := s.args.A
	k := p.spec.K
	in, ok := rowsOf(&t, p.rows, k)
	if !ok {
		t = t.Clone()
		if in, ok = rowsOf(&t, p.rows, k); !ok {
			return nil, 0, fmt.Errorf("%s: A is %v, rows of K = %d elements are right", p.e.dev.Name, s.args.A.Spec, k)
		}
		staged = int64(len(in.data))
	}
	s.in = in
	if !hostB(p.spec) {
		if s.w.bfp && in.typ == tensor.BF16 {
			s.special.find(in, p.rows, k)
		}
		if in.typ == tensor.BFP16 || in.pitch == p.pitchA || p.rows == 1 {
			return in.data, staged, nil
		}
		s.a = grow(s.a, p.rows*p.pitchA)
		for i := range p.rows {
			copy(s.a[i*p.pitchA:][:p.pitchA], in.data[i*in.pitch:])
		}
		return s.a, int64(len(s.a)), nil
	}
	// Float activations: to bf16, or to int8 with a scale per row.
	s.a = grow(s.a, p.rows*p.pitchA)
	if p.how.types.A == kernel.I8 {
		s.rowScale = grow(s.rowScale, p.rows)
	}
	n := (p.rows + convertRows - 1) / convertRows
	s.scratch(par.Workers(p.e.opt.Threads, n), k)
	s.region(p, doConvert, n)
	return s.a, staged, nil
}

// Rows of one job.
const (
	convertRows = 16
	finishRows  = 8
)

// convert brings a job's rows of float activations into the array's type.
func (s *space) convert(worker, job int) {
	p, k := s.p, s.p.spec.K
	row := s.lines[worker][:k]
	for i := job * convertRows; i < min((job+1)*convertRows, p.rows); i++ {
		readFloats(row, s.in.typ, s.in.data[i*s.in.pitch:])
		out := s.a[i*p.pitchA:][:p.pitchA]
		if p.how.types.A == kernel.I8 {
			quant.Rows(signed(out[:k]), s.rowScale[i:i+1], row, k)
			clear(out[k:])
			if f := s.rowScale[i]; f != f {
				s.special.note(i)
			}
			continue
		}
		most := uint16(0)
		for j, v := range row {
			h := tensor.F32ToBF16(v)
			most = max(most, h&0x7fff)
			binary.LittleEndian.PutUint16(out[2*j:], h)
		}
		clear(out[2*k:])
		if most >= bf16Inf && s.w.bfp {
			s.special.note(i)
		}
	}
}

// scratch makes a row of n float32 for each worker.
func (s *space) scratch(workers, n int) {
	for len(s.lines) < workers {
		s.lines = append(s.lines, nil)
	}
	for i := range s.lines {
		s.lines[i] = grow(s.lines[i], n)
	}
}

// readFloats reads a row of floats or integers as float32.
func readFloats(dst []float32, typ tensor.DType, src []byte) {
	switch typ {
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case tensor.BF16:
		widen(dst, src)
	case tensor.F16:
		for i := range dst {
			dst[i] = tensor.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case tensor.I32:
		for i := range dst {
			dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
		}
	}
}

// emulate runs the control code.
func (p *mmPlan) emulate(ctx context.Context, s *space) error {
	e, c := p.e, s.to
	a, staged, err := p.bringA(s)
	if err != nil {
		return err
	}
	words, err := p.encode()
	if err != nil {
		return err
	}
	size := p.run.BufferBytes
	if p.how.types.A == kernel.BFP16 {
		s.tiled = grow(s.tiled, int(size[design.ArgA]))
		if err := p.run.TileA(s.tiled, a, int64(p.how.types.A.Bytes(p.k))); err != nil {
			return err
		}
		a = s.tiled
	}
	b, err := s.w.forArray(p.run)
	if err != nil {
		return err
	}
	if err := p.computeSpecials(ctx, s); err != nil {
		return err
	}
	special := s.special.any.Load() || s.w.specials != nil
	raw, direct := c.data, p.how.direct && c.pitch == p.pitchC && !special
	if !direct {
		s.c = grow(s.c, int(size[design.ArgC]))
		raw = s.c
	}
	s.bufs[design.ArgA], s.bufs[design.ArgB], s.bufs[design.ArgC] = a, b, raw
	for i, m := range []*[]byte{&s.stage, &s.spill} {
		*m = grow(*m, int(size[design.ArgStage+i]))
		s.bufs[design.ArgStage+i] = *m
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := p.run.Prepare(s.bufs[:]); err != nil {
		return err
	}
	if err := e.use(ctx, p.d); err != nil {
		return err
	}
	res, err := e.exec.Dispatch(ctx, words, s.bufs[:])
	if err != nil {
		e.broken = true
		return fmt.Errorf("%s: %w", e.dev.Name, err)
	}
	if err := p.run.Finish(s.bufs[:]); err != nil {
		return err
	}
	p.count(res.Seconds, res.BytesRead+res.BytesWritten, staged)
	switch {
	case direct:
		return nil
	case p.how.direct && !special: // rows of C have gaps that the plan did not know of
		n := p.how.types.C.Bytes(p.spec.N)
		for i := range p.rows {
			copy(c.data[i*c.pitch:][:n], raw[i*p.pitchC:])
		}
		return nil
	}
	s.raw = raw
	return p.finish(s, fromArray)
}

func rawType(t kernel.Type) tensor.DType {
	switch t {
	case kernel.BF16:
		return tensor.BF16
	case kernel.F32:
		return tensor.F32
	case kernel.I32:
		return tensor.I32
	case kernel.I16:
		return tensor.I16
	}
	return tensor.I8
}

// compute gives the same bits with the CPU's kernels.
func (p *mmPlan) compute(ctx context.Context, s *space) error {
	e, c := p.e, s.to
	a, staged, err := p.bringA(s)
	if err != nil {
		return err
	}
	s.operand = a
	if err := p.computeSpecials(ctx, s); err != nil {
		return err
	}
	from, done := fromFloats, false
	if p.how.types.A == kernel.I8 {
		from = fromInts
		ld := p.spec.N
		direct := p.how.direct && p.how.types.C == kernel.I32 && c.pitch%4 == 0 && aligned4(c.data)
		var ints []int32
		if direct {
			ints, ld = int32s(c.data), c.pitch/4
		} else {
			s.fast.ints = grow(s.fast.ints, p.rows*ld)
			ints = s.fast.ints
		}
		if err := p.intProduct(s, ints, ld); err != nil {
			return err
		}
		if p.how.direct && !direct {
			s.region(p, doStore, p.rows)
		}
		done = p.how.direct
	} else {
		p.floatProduct(s)
	}
	e.mu.Lock()
	err = e.use(ctx, p.d)
	if err == nil {
		p.count(p.seconds, p.bytes, staged)
	}
	e.mu.Unlock()
	if err != nil || done {
		return err
	}
	return p.finish(s, from)
}

func aligned4(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 }

func int32s(b []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// storeInts writes an integer row into C, modulo its width.
func (s *space) storeInts(i int) {
	n := s.p.spec.N
	src, out := s.fast.ints[i*n:(i+1)*n], s.to.data[i*s.to.pitch:]
	switch s.to.typ {
	case tensor.I8:
		out = out[:n]
		for j, v := range src {
			out[j] = byte(v)
		}
	case tensor.I16:
		out = out[:2*n]
		for j, v := range src {
			binary.LittleEndian.PutUint16(out[2*j:], uint16(v))
		}
	default:
		for j, v := range src {
			binary.LittleEndian.PutUint32(out[4*j:], uint32(v))
		}
	}
}

// read gives row i of the raw result as float32.
func (s *space) read(dst []float32, i int) {
	n := s.p.spec.N
	switch s.from {
	case fromNothing:
		clear(dst)
	case fromArray:
		readFloats(dst, rawType(s.p.how.types.C), s.raw[i*s.p.pitchC:])
	case fromInts:
		for j, v := range s.fast.ints[i*n : (i+1)*n] {
			dst[j] = float32(v)
		}
	case fromFloats:
		copy(dst, s.fast.c[i*s.fast.ld:])
	}
}

// count adds a dispatch to the statistics. The caller holds the lock.
func (p *mmPlan) count(seconds float64, bytes, staged int64) {
	st, r := &p.e.stats, p.run
	st.Products++
	st.Dispatches++
	st.ControlWords += p.stats.Bytes / 4
	st.Bytes += bytes
	st.StagedBytes += staged + r.Staging.Bytes()
	if p.how.types.A == kernel.BFP16 {
		st.StagedBytes += r.BufferBytes[design.ArgA] // tiled on the host
	}
	st.UsefulMACs += int64(p.rows) * int64(p.spec.K) * int64(p.spec.N)
	st.PaddedMACs += int64(r.MPad) * int64(r.KPad) * int64(r.NPad)
	st.SimulatedSeconds += seconds
}

// finish reads raw rows, applies scales and the epilogue, and stores C.
func (p *mmPlan) finish(s *space, from source) error {
	n := p.spec.N
	ep, args := &p.spec.Epilogue, s.args
	s.from = from
	if ep.Residual != matmul.NoResidual {
		t := args.Residual
		var ok bool
		if s.residual, ok = rowsOf(&t, p.rows, n); !ok {
			t = t.Clone()
			if s.residual, ok = rowsOf(&t, p.rows, n); !ok {
				return fmt.Errorf("%s: residual is %v, rows of N = %d are right", p.e.dev.Name, args.Residual.Spec, n)
			}
		}
	}
	check := func(name string, use bool, have []float32, want int) error {
		if use && len(have) != want {
			return fmt.Errorf("%s: %d %s, %d are right", p.e.dev.Name, len(have), name, want)
		}
		return nil
	}
	if err := errors.Join(check("row scales", ep.RowScale, args.RowScale, p.rows), check("column scales", ep.ColScale, args.ColScale, n),
		check("biases", ep.Bias, args.Bias, n)); err != nil {
		return err
	}
	jobs := (p.rows + finishRows - 1) / finishRows
	s.scratch(par.Workers(p.e.opt.Threads, jobs), 2*n)
	s.region(p, doFinish, jobs)
	return nil
}

// finishRows does a job's rows.
func (s *space) finishRows(worker, job int) {
	p, n := s.p, s.p.spec.N
	ep := p.spec.Epilogue
	act, known := activation(ep.Act)
	scaled := hostB(p.spec) && p.how.types.A == kernel.I8 && p.run != nil
	x, r := s.lines[worker][:n], s.lines[worker][n:2*n]
	for i := job * finishRows; i < min((job+1)*finishRows, p.rows); i++ {
		s.read(x, i)
		if scaled {
			f := s.rowScale[i]
			for j, v := range s.w.colScale {
				x[j] = x[j] * f * v
			}
		}
		s.putSpecials(x, i)
		if ep.RowScale {
			f := s.args.RowScale[i]
			for j := range x {
				x[j] *= f
			}
		}
		if ep.ColScale {
			for j, f := range s.args.ColScale {
				x[j] *= f
			}
		}
		if ep.Bias {
			for j, f := range s.args.Bias {
				x[j] += f
			}
		}
		if ep.Residual != matmul.NoResidual {
			readFloats(r, s.residual.typ, s.residual.data[i*s.residual.pitch:])
		}
		if ep.Residual == matmul.ResidualBefore {
			for j, f := range r {
				x[j] += f
			}
		}
		if known {
			_ = gemm.Activate(act, x, ep.Act.P, ep.Act.Q)
		} else {
			for j, v := range x {
				x[j] = float32(ep.Act.Apply(float64(v)))
			}
		}
		if ep.Residual == matmul.ResidualAfter {
			for j, f := range r {
				x[j] += f
			}
		}
		storeRow(s.to.data[i*s.to.pitch:], s.to.typ, x, ep)
	}
}

// storeRow narrows a row to the type of C.
func storeRow(out []byte, typ tensor.DType, x []float32, ep matmul.Epilogue) {
	switch typ {
	case tensor.F32:
		for j, v := range x {
			binary.LittleEndian.PutUint32(out[4*j:], math.Float32bits(v))
		}
	case tensor.BF16:
		for j, v := range x {
			binary.LittleEndian.PutUint16(out[2*j:], tensor.F32ToBF16(v))
		}
	case tensor.F16:
		for j, v := range x {
			binary.LittleEndian.PutUint16(out[2*j:], tensor.F32ToF16(v))
		}
	case tensor.I32:
		for j, v := range x { // only the zeros of K = 0 come here
			binary.LittleEndian.PutUint32(out[4*j:], uint32(int32(v)))
		}
	case tensor.I16:
		for j, v := range x {
			binary.LittleEndian.PutUint16(out[2*j:], uint16(int16(v)))
		}
	default:
		scale := ep.OutScale
		if scale == 0 {
			scale = 1
		}
		lo, hi := float64(math.MinInt8), float64(math.MaxInt8)
		if typ == tensor.U8 {
			lo, hi = 0, math.MaxUint8
		}
		for j, v := range x {
			y := math.RoundToEven(float64(v/scale)) + float64(ep.OutZero)
			if !(y >= lo) { // NaN becomes the lowest value
				y = lo
			}
			out[j] = byte(int(min(y, hi)))
		}
	}
}

// activation is an activation as the CPU engine knows it; false if it does not.
func activation(a ops.Act) (gemm.Activation, bool) {
	switch a.Kind {
	case ops.NoActivation:
		return gemm.None, true
	case ops.ReLU:
		return gemm.ReLU, true
	case ops.GELU:
		return gemm.GELU, true
	case ops.GELUTanh:
		return gemm.GELUTanh, true
	case ops.QuickGELU:
		return gemm.QuickGELU, true
	case ops.SiLU:
		return gemm.SiLU, true
	case ops.Tanh:
		return gemm.Tanh, true
	case ops.Sigmoid:
		return gemm.Sigmoid, true
	}
	return 0, false
}
