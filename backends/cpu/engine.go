package cpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
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

// Engine runs matrix products on packages gemm and qgemm. It decides which of them takes a problem, in what form weights are packed,
// how batches are walked, and which part of an epilogue is fused.
type Engine struct {
	threads int
	isa     cpuinfo.ISA
	vec     *vec.Funcs
}

// arithmetic is how a product is computed.
type arithmetic uint8

const (
	floating arithmetic = iota // gemm, float32 sums
	blocked                    // qgemm: weights in GGML blocks, constant, as [N,K]
	eightBit                   // gemm, exact sums of products of 8 bits
	integral                   // exact sums of other integers, in Go
)

// form returns how a problem is computed; constant says whether B is.
func form(s matmul.Spec, constant bool) (arithmetic, error) {
	switch {
	case s.A.IsInt() && s.B.IsInt():
		if s.A.Size() > 2 || s.B.Size() > 2 {
			return 0, fmt.Errorf("cpu: no product of %v and %v; integers of 8 and 16 bits are right", s.A, s.B)
		}
		if s.B == tensor.I8 && (s.A == tensor.I8 || s.A == tensor.U8) {
			return eightBit, nil
		}
		return integral, nil
	case narrow(s.A) && s.B.IsBlock() && quant.CanDecode(s.B):
		if constant && s.BLayout == matmul.ColMajor && qgemm.Supports(s.B) && s.N > 0 && s.K > 0 {
			return blocked, nil
		}
		return floating, nil
	case narrow(s.A) && narrow(s.B) && narrow(s.C):
		return floating, nil
	}
	return 0, fmt.Errorf("cpu: no product of %v and %v", s.A, s.B)
}

// narrow reports whether float32 holds every value of the type.
func narrow(d tensor.DType) bool { return d == tensor.F32 || d == tensor.F16 || d == tensor.BF16 }

// Supports says why a problem has no product, or nil.
func (e *Engine) Supports(s matmul.Spec, sh matmul.Shape) error {
	if err := s.Check(sh); err != nil {
		return err
	}
	_, err := form(s, true)
	return err
}

// gemmType returns gemm's name of an element type.
func gemmType(d tensor.DType) gemm.Type {
	switch d {
	case tensor.F32:
		return gemm.F32
	case tensor.F16:
		return gemm.F16
	case tensor.BF16:
		return gemm.BF16
	case tensor.I8:
		return gemm.S8
	case tensor.U8:
		return gemm.U8
	}
	return gemm.S32
}

// gemmAct returns gemm's name of an activation; ok is false for those that it has not.
func gemmAct(a ops.Act) (act gemm.Activation, p, q float32, ok bool) {
	switch a.Kind {
	case ops.NoActivation:
		return gemm.None, 0, 0, true
	case ops.ReLU:
		return gemm.ReLU, 0, 0, true
	case ops.LeakyReLU:
		return gemm.LeakyReLU, a.P, 0, true
	case ops.GELU:
		return gemm.GELU, 0, 0, true
	case ops.GELUTanh:
		return gemm.GELUTanh, 0, 0, true
	case ops.QuickGELU:
		return gemm.QuickGELU, 0, 0, true
	case ops.SiLU:
		return gemm.SiLU, 0, 0, true
	case ops.Tanh:
		return gemm.Tanh, 0, 0, true
	case ops.Sigmoid:
		return gemm.Sigmoid, 0, 0, true
	case ops.HardSigmoid:
		return gemm.HardSigmoid, a.P, a.Q, true
	case ops.HardSwish:
		return gemm.HardSwish, 0, 0, true
	case ops.Clip:
		return gemm.Clip, a.P, a.Q, true
	}
	return gemm.None, 0, 0, false
}

// packed is a weight in the layout of gemm or qgemm, a matrix for each of its batches.
type packed struct {
	spec     matmul.Spec
	how      arithmetic
	batch    []int
	matrices []*gemm.PackedB
	blocks   []*qgemm.Packed
	plain    gemm.Matrix // the one matrix of a weight that is not packed, where it has no blocks
	ints     []int32     // as [batch][N][K]
	late     *late       // not nil: it has the matrices
	closed   bool

	// The one matrix of a weight of which a part is packed.
	blockParts *qgemm.Parts
	plainParts *gemm.PartsB
}

// Spec returns the problem that the weight was packed for.
func (p *packed) Spec() matmul.Spec { return p.spec }

// Bytes returns the memory that the packed form takes, or will take.
func (p *packed) Bytes() int {
	if p.late != nil {
		return p.late.bytes()
	}
	n := 4 * len(p.ints)
	for _, m := range p.matrices {
		n += m.Bytes()
	}
	for _, m := range p.blocks {
		n += m.Bytes()
	}
	return n
}

// Close releases the memory.
func (p *packed) Close() error {
	var errs []error
	for _, m := range p.matrices {
		errs = append(errs, m.Close())
	}
	for _, m := range p.blocks {
		errs = append(errs, m.Close())
	}
	if p.blockParts != nil {
		errs = append(errs, p.blockParts.Close())
	}
	if p.plainParts != nil {
		errs = append(errs, p.plainParts.Close())
	}
	if p.late != nil {
		errs = append(errs, p.late.close())
	}
	p.matrices, p.blocks, p.ints, p.late, p.closed = nil, nil, nil, nil, true
	return errors.Join(errs...)
}

// Pack brings weights [..., K, N], or [..., N, K] if column-major, into the layout of the kernels.
func (e *Engine) Pack(ctx context.Context, s matmul.Spec, b tensor.Tensor) (matmul.Packed, error) {
	if err := s.CheckWeights(&b); err != nil {
		return nil, fmt.Errorf("cpu: pack of %v for %v: %w", b.Spec, s, err)
	}
	return e.pack(ctx, s, b, nil)
}

// pack is Pack; consumed, if not nil, is called with the bytes of the tensor that are packed.
func (e *Engine) pack(ctx context.Context, s matmul.Spec, b tensor.Tensor, consumed func([]byte)) (matmul.Packed, error) {
	how, err := form(withResult(s), true)
	if err != nil {
		return nil, err
	}
	if b.Rank < 2 {
		return nil, fmt.Errorf("cpu: pack of %v: two dimensions or more are right", b.Spec)
	}
	k, n := b.Dim(-2), b.Dim(-1)
	if s.BLayout == matmul.ColMajor {
		k, n = n, k
	}
	if b.DType != s.B || k != s.K || n != s.N {
		return nil, fmt.Errorf("cpu: pack of %v for %v", b.Spec, s)
	}
	p := &packed{spec: s, how: how, batch: b.Shape()[:b.Rank-2]}
	if how == integral {
		p.ints = transposedInts(b, s.BLayout)
		return p, nil
	}
	if how == floating && b.DType.IsBlock() {
		decoded, err := quant.Decode(b)
		if err != nil {
			return nil, err
		}
		if consumed != nil && b.IsContiguous() {
			consumed(b.Raw())
		}
		b, consumed = decoded, nil
	}
	opt := gemm.Options{Threads: e.threads, ISA: e.isa}
	err = eachMatrix(b, func(m tensor.Tensor) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if how == blocked {
			if m.Strides[0] < m.Dims[1] && m.Dims[0] > 1 { // one row repeated
				m = m.Clone()
			}
			q, err := qgemm.Pack(m.DType, m.Raw(), m.Strides[0]/m.DType.Block()*m.DType.Size(), s.N, s.K, &qgemm.Options{Threads: e.threads, Release: consumed})
			if err == nil {
				p.blocks = append(p.blocks, q)
			}
			return err
		}
		opt.Release = nil
		piecewise := consumed != nil && s.BLayout == matmul.ColMajor && m.IsContiguous()
		if piecewise {
			opt.Release = consumed
		}
		g, err := gemm.PackB(matrixOf(&m, 0, m.Dims[0], m.Dims[1], s.BLayout == matmul.ColMajor), &opt)
		if err == nil {
			p.matrices = append(p.matrices, g)
			if consumed != nil && !piecewise && m.IsContiguous() {
				consumed(m.Raw())
			}
		}
		return err
	})
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return p, nil
}

// withResult gives a problem whose result is not said the widest one.
func withResult(s matmul.Spec) matmul.Spec {
	if s.C == tensor.Invalid {
		s.C = tensor.F32
	}
	return s
}

// eachMatrix calls f for the matrices of a tensor, in row-major order.
func eachMatrix(t tensor.Tensor, f func(m tensor.Tensor) error) error {
	outer, m := t, t
	outer.Rank -= 2
	m.Rank = 2
	m.Dims = [tensor.MaxRank]int{t.Dim(-2), t.Dim(-1)}
	m.Strides = [tensor.MaxRank]int{t.Strides[t.Rank-2], t.Strides[t.Rank-1]}
	outer.DType = tensor.U8
	for i := int(outer.Rank); i < tensor.MaxRank; i++ {
		outer.Dims[i] = 0
	}
	var err error
	outer.Each(func(_, off int) {
		if err == nil {
			m.Off = t.Off + off/t.DType.Block()*t.DType.Size()
			err = f(m)
		}
	})
	return err
}

// matrixOf views rows x cols elements of a tensor from a byte offset on, with the strides of its two innermost dimensions; with flip
// they and the sizes are exchanged.
func matrixOf(t *tensor.Tensor, off, rows, cols int, flip bool) gemm.Matrix {
	rs, cs := t.Strides[t.Rank-2], t.Strides[t.Rank-1]
	return gemmMatrix(t, off, rows, cols, rs, cs, flip)
}

func gemmMatrix(t *tensor.Tensor, off, rows, cols, rs, cs int, flip bool) gemm.Matrix {
	if rows == 1 {
		rs = 0
	}
	if cols == 1 {
		cs = 0
	}
	var data []byte
	if rows > 0 && cols > 0 {
		data = unsafe.Slice((*byte)(unsafe.Add(t.Ptr(), off)), ((rows-1)*rs+(cols-1)*cs+1)*t.DType.Size())
	}
	if cols == 1 {
		cs = 1
	}
	if rows == 1 {
		rs = max(cols, 1)
	}
	m := gemm.Raw(gemmType(t.DType), data, rows, cols, rs, cs)
	if flip {
		m = m.T()
	}
	return m
}

// transposedInts returns integer weights as [batch][N][K].
func transposedInts(b tensor.Tensor, l matmul.Layout) []int32 {
	if l == matmul.RowMajor {
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
	if err := e.Supports(s, sh); err != nil {
		return nil, err
	}
	return e.plan(s, sh), nil
}

// plan is Plan for what has been checked.
func (e *Engine) plan(s matmul.Spec, sh matmul.Shape) *plan {
	p := &plan{e: e, spec: s, shape: sh}
	p.act, p.actP, p.actQ, p.fused = gemmAct(s.Epilogue.Act)
	return p
}

// plan runs one shape. It is immutable; what a run needs lies in the workspace.
type plan struct {
	e          *Engine
	spec       matmul.Spec
	shape      matmul.Shape
	act        gemm.Activation
	actP, actQ float32
	fused      bool // gemm has the activation
}

// Run computes the product.
func (p *plan) Run(ctx context.Context, w matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
	if ws == nil {
		return errors.New("cpu: no workspace")
	}
	if err := args.Check(p.spec, p.shape.M*p.shape.Batches(), w != nil); err != nil {
		return err
	}
	return p.run(ctx, w, args, ws)
}

// run is Run for operands that have been checked: those of a graph or of MatMul.
func (p *plan) run(ctx context.Context, w matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
	r, _ := ws.Data.(*run)
	if r == nil {
		r = &run{spaces: new(spaces)}
		ws.Data = r
	}
	r.p, r.e, r.ctx, r.done, r.args, r.weights = p, p.e, ctx, ctx.Done(), args, nil
	if w != nil {
		pk, ok := w.(*packed)
		if !ok || pk.spec.N != p.spec.N || pk.spec.K != p.spec.K || pk.spec.B != p.spec.B || pk.spec.BLayout != p.spec.BLayout {
			return fmt.Errorf("cpu: weights packed as %v by another engine or for another problem than %v: pack them here", w.Spec(), p.spec)
		}
		if pk.closed {
			return errors.New("cpu: packed weights are closed")
		}
		if pk.late != nil {
			var err error
			if pk, err = pk.late.form(ctx, p.shape.M*p.shape.Batches()); err != nil {
				return err
			}
		}
		r.weights = pk
	}
	if args.C.Elems() == 0 {
		return nil
	}
	err := r.multiply()
	r.args, r.ctx = nil, nil
	if err == nil && r.stopped() {
		err = context.Cause(ctx)
	}
	return err
}

// direct computes a product without a plan kept: what matmul.MatMul calls.
func (e *Engine) direct(op matmul.Op, c tensor.Tensor, in []tensor.Tensor, threads int) error {
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	spec, shape := op.Problem(specs, c.Spec)
	if _, err := form(spec, false); err != nil {
		return op.Reference([]tensor.Tensor{c}, in)
	}
	w := directSpaces.Get().(*matmul.Workspace)
	defer directSpaces.Put(w)
	engine := *e
	engine.threads = threads
	p := engine.plan(spec, shape)
	args := matmul.Args{A: in[0], B: in[1], C: c}
	operandsOf(op, in, &args)
	return p.run(context.Background(), nil, &args, w)
}

var directSpaces = sync.Pool{New: func() any { return new(matmul.Workspace) }}

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
