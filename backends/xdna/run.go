package xdna

import (
	"context"
	"encoding/binary"
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

// space is what a workspace keeps between runs.
type space struct {
	a, c     []byte // operand and result in the array's types, where they are not the caller's memory
	tiled    []byte // a bfp16 operand in the order of the array
	bufs     [design.NumArgs][]byte
	stage    []byte
	spill    []byte
	rowScale []float32
	fast     fastRun
	gemm     *gemm.Workspace
	wide     []float32
	lines    [][]float32 // by worker
	out      tensor.Tensor
}

// Run computes the product.
func (p *mmPlan) Run(ctx context.Context, w matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
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
	if p.rows == 0 || p.spec.N == 0 {
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
	switch {
	case p.run == nil: // K = 0
		err = p.finish(s, pk, args, c, func(dst []float32, _ int) { clear(dst) })
	case e.exec != nil:
		err = p.emulate(ctx, s, pk, args, c)
	default:
		err = p.compute(ctx, s, pk, args, c)
	}
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

// operand brings A into the array's type at the plan's pitch: the caller's memory if it lies so, else s.a. It returns the bytes copied only because of how A lies.
func (p *mmPlan) operand(s *space, args *matmul.Args) (a []byte, staged int64, err error) {
	t := args.A
	k := p.spec.K
	in, ok := rowsOf(&t, p.rows, k)
	if !ok {
		t = t.Clone()
		if in, ok = rowsOf(&t, p.rows, k); !ok {
			return nil, 0, fmt.Errorf("%s: A is %v, rows of K = %d elements are right", p.e.dev.Name, args.A.Spec, k)
		}
		staged = int64(len(in.data))
	}
	if !hostB(p.spec) {
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
	toInt := p.how.types.A == kernel.I8
	if toInt {
		s.rowScale = grow(s.rowScale, p.rows)
	}
	threads := p.e.opt.Threads
	const group = 16
	n := (p.rows + group - 1) / group
	s.scratch(par.Workers(threads, n), k)
	par.Run(threads, n, jobs(func(worker, g int) {
		row := s.lines[worker][:k]
		for i := g * group; i < min((g+1)*group, p.rows); i++ {
			readFloats(row, in.typ, in.data[i*in.pitch:])
			out := s.a[i*p.pitchA:][:p.pitchA]
			if toInt {
				quant.Rows(signed(out[:k]), s.rowScale[i:i+1], row, k)
				clear(out[k:])
				continue
			}
			for j, v := range row {
				binary.LittleEndian.PutUint16(out[2*j:], tensor.F32ToBF16(v))
			}
			clear(out[2*k:])
		}
	}))
	return s.a, staged, nil
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
func (p *mmPlan) emulate(ctx context.Context, s *space, w *packed, args *matmul.Args, c rows) error {
	e := p.e
	a, staged, err := p.operand(s, args)
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
	b, err := w.forArray(p.run)
	if err != nil {
		return err
	}
	raw, direct := c.data, p.how.direct && c.pitch == p.pitchC
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
	if direct {
		return nil
	}
	return p.finish(s, w, args, c, func(dst []float32, i int) {
		readFloats(dst, rawType(p.how.types.C), raw[i*p.pitchC:])
	})
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
func (p *mmPlan) compute(ctx context.Context, s *space, w *packed, args *matmul.Args, c rows) error {
	e := p.e
	a, staged, err := p.operand(s, args)
	if err != nil {
		return err
	}
	read := func(dst []float32, i int) {}
	if p.how.types.A == kernel.I8 {
		if s.gemm == nil {
			if s.gemm, err = gemm.NewWorkspace(0); err != nil {
				return err
			}
		}
		ld := p.spec.N
		direct := p.how.direct && p.how.types.C == kernel.I32 && c.pitch%4 == 0 && aligned4(c.data)
		ints := s.fast.ints
		if direct {
			ints, ld = int32s(c.data), c.pitch/4
		} else {
			s.fast.ints = grow(s.fast.ints, p.rows*ld)
			ints = s.fast.ints
		}
		if err := p.intProduct(ints, ld, w, a, s.gemm); err != nil {
			return err
		}
		switch {
		case direct:
			read = nil
		case p.how.direct:
			p.storeInts(ints, c)
			read = nil
		default:
			read = func(dst []float32, i int) {
				for j, v := range ints[i*ld : i*ld+p.spec.N] {
					dst[j] = float32(v)
				}
			}
		}
	} else {
		ld := p.floatProduct(&s.fast, w, a)
		read = func(dst []float32, i int) { copy(dst, s.fast.c[i*ld:][:p.spec.N]) }
	}
	e.mu.Lock()
	err = e.use(ctx, p.d)
	if err == nil {
		p.count(p.seconds, p.bytes, staged)
	}
	e.mu.Unlock()
	if err != nil || read == nil {
		return err
	}
	return p.finish(s, w, args, c, read)
}

func aligned4(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 }

func int32s(b []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// storeInts writes integer rows into C, modulo its width.
func (p *mmPlan) storeInts(ints []int32, c rows) {
	n := p.spec.N
	par.Run(p.e.opt.Threads, p.rows, jobs(func(_, i int) {
		src, out := ints[i*n:(i+1)*n], c.data[i*c.pitch:]
		switch c.typ {
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
	}))
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
func (p *mmPlan) finish(s *space, w *packed, args *matmul.Args, c rows, read func(dst []float32, i int)) error {
	n := p.spec.N
	ep := p.spec.Epilogue
	residual, ok := rows{}, true
	if ep.Residual != matmul.NoResidual {
		t := args.Residual
		if residual, ok = rowsOf(&t, p.rows, n); !ok {
			t = t.Clone()
			if residual, ok = rowsOf(&t, p.rows, n); !ok {
				return fmt.Errorf("%s: residual is %v, rows of N = %d are right", p.e.dev.Name, args.Residual.Spec, n)
			}
		}
	}
	for _, v := range []struct {
		name string
		use  bool
		have []float32
		want int
	}{{"row scales", ep.RowScale, args.RowScale, p.rows}, {"column scales", ep.ColScale, args.ColScale, n}, {"bias", ep.Bias, args.Bias, n}} {
		if v.use && len(v.have) != v.want {
			return fmt.Errorf("%s: %d %s, %d are right", p.e.dev.Name, len(v.have), v.name, v.want)
		}
	}
	act, fused := activation(ep.Act)
	scaled := hostB(p.spec) && p.how.types.A == kernel.I8 && p.run != nil
	threads := p.e.opt.Threads
	const group = 8
	jobsN := (p.rows + group - 1) / group
	s.scratch(par.Workers(threads, jobsN), 2*n)
	par.Run(threads, jobsN, jobs(func(worker, g int) {
		x, r := s.lines[worker][:n], s.lines[worker][n:2*n]
		for i := g * group; i < min((g+1)*group, p.rows); i++ {
			read(x, i)
			if scaled {
				f := s.rowScale[i]
				for j, v := range w.colScale {
					x[j] = x[j] * f * v
				}
			}
			if ep.RowScale {
				f := args.RowScale[i]
				for j := range x {
					x[j] *= f
				}
			}
			if ep.ColScale {
				for j, f := range args.ColScale {
					x[j] *= f
				}
			}
			if ep.Bias {
				for j, f := range args.Bias {
					x[j] += f
				}
			}
			if ep.Residual != matmul.NoResidual {
				readFloats(r, residual.typ, residual.data[i*residual.pitch:])
			}
			if ep.Residual == matmul.ResidualBefore {
				for j, f := range r {
					x[j] += f
				}
			}
			if fused {
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
			storeRow(c.data[i*c.pitch:], c.typ, x, ep)
		}
	}))
	return nil
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
