package xdna

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/internal/par"
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
	copied   bool // A was brought to memory of its own
	inPlace  bool // rows of C are the caller's memory

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
	s.p, s.w, s.args, s.to, s.inPlace = p, pk, args, c, inPlace
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
		return tensor.Copy(args.C, s.out)
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

// bringA brings A into the array's type at the plan's pitch: the caller's memory if it lies so, else s.a. It returns the bytes copied only because of how A lies.
func (p *mmPlan) bringA(s *space) (a []byte, staged int64, err error) {
	t := s.args.A
	k := p.spec.K
	in, ok := rowsOf(&t, p.rows, k)
	s.copied = !ok
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
		s.copied = true
		s.a = grow(s.a, p.rows*p.pitchA)
		for i := range p.rows {
			copy(s.a[i*p.pitchA:][:p.pitchA], in.data[i*in.pitch:])
		}
		return s.a, int64(len(s.a)), nil
	}
	// Float activations: to bf16, or to int8 with a scale per row.
	s.copied = true
	s.a = grow(s.a, p.rows*p.pitchA)
	if p.how.types.A == kernel.I8 {
		s.rowScale = grow(s.rowScale, p.rows)
	}
	n := (p.rows + convertRows - 1) / convertRows
	s.scratch(par.Workers(p.e.opt.Threads, n), k)
	s.region(p, doConvert, n)
	return s.a, staged, nil
}

// convertRows is the rows of one job that converts activations.
const convertRows = 16

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
	raw, direct := c.data, s.direct()
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
	p.count(s, res.Seconds, res.BytesRead+res.BytesWritten, staged)
	switch {
	case direct:
		return nil
	case p.how.direct && !s.hasSpecials(): // rows of C have gaps that the plan did not know of
		n := p.how.types.C.Bytes(p.spec.N)
		for i := range p.rows {
			copy(c.data[i*c.pitch:][:n], raw[i*p.pitchC:])
		}
		return nil
	}
	s.raw = raw
	return p.finish(s, fromArray)
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
		p.count(s, p.seconds, p.bytes, staged)
	}
	e.mu.Unlock()
	if err != nil || done {
		return err
	}
	return p.finish(s, from)
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

// hasSpecials reports whether rows or columns of C are the host's, because the array's format has no number for what they hold.
func (s *space) hasSpecials() bool { return s.special.any.Load() || s.w.specials != nil }

// direct reports whether the array writes C where its rows lie.
func (s *space) direct() bool { return s.p.how.direct && s.to.pitch == s.p.pitchC && !s.hasSpecials() }

// count adds a dispatch to the statistics. The caller holds the lock.
func (p *mmPlan) count(s *space, seconds float64, bytes, staged int64) {
	st, r := &p.e.stats, p.run
	if s.copied || p.how.types.A == kernel.BFP16 {
		st.Conversions++
	}
	if !s.inPlace || !s.direct() {
		st.Conversions++
	}
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
