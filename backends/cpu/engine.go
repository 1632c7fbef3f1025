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
		return tensor.Data[float32](t)
	}
	args.RowScale, args.ColScale, args.Bias = vector(rowScale), vector(colScale), vector(bias)
	if residual >= 0 {
		args.Residual = in[residual]
	}
}
