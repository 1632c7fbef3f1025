package cpu

import (
	"context"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// matmulKernel runs a product. A constant B is packed once for all programs.
type matmulKernel struct {
	op        matmul.Op
	in        []int
	out       int
	plan      *plan
	weights   matmul.Packed
	space     matmul.Workspace
	args      matmul.Args
	rowScale  int
	colScale  int
	bias      int
	residual  int
	fallback  referenceKernel
	reference bool
	short     bool         // products of one row go the short way
	copies    [3][]float32 // of operands of the epilogue that have gaps
	product   rowProduct
}

// packKey names a packed form: weights packed by an engine of one instruction set for one problem, whatever the epilogue and the
// type of the result.
type packKey struct {
	backend string
	isa     uint8
	spec    matmul.Spec
}

func (k *matmulKernel) bind(ctx context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.in, k.out = n.In, n.Out[0]
	specs := make([]tensor.Spec, len(n.In))
	for i, v := range n.In {
		specs[i] = part.Values[v].Spec
	}
	spec, shape := k.op.Problem(specs, part.Values[k.out].Spec)
	k.rowScale, k.colScale, k.bias, k.residual, _ = k.op.Operands()
	engine := e.engine
	if engine.Supports(spec, shape) != nil {
		k.reference = true
		k.fallback.op = n.Op
		return k.fallback.bind(ctx, e, part, n)
	}
	k.plan = engine.plan(spec, shape)
	k.space.Data = &run{spaces: &e.spaces}
	if c := part.Values[n.In[1]].Const; c != nil {
		key := packKey{"cpu", uint8(engine.isa), weightsSpec(spec)}
		form, err := c.Prepare(key, func() (any, error) { return engine.prepare(ctx, key.spec, c) })
		if err != nil {
			return err
		}
		k.weights = form.(matmul.Packed)
		k.short = k.oneRow()
	}
	return nil
}

// weightsSpec returns what of a problem the packed form depends on.
func weightsSpec(s matmul.Spec) matmul.Spec {
	s.Epilogue, s.C = matmul.Epilogue{}, tensor.Invalid
	return s
}

func (k *matmulKernel) run(e *env, frame []tensor.Tensor) error {
	if k.reference {
		return k.fallback.run(e, frame)
	}
	if k.short && k.row(e, frame) {
		return k.product.weights.Mul(e.ctx, &k.product.run)
	}
	a := &k.args
	a.A, a.B, a.C = frame[k.in[0]], frame[k.in[1]], frame[k.out]
	k.vectors(frame)
	if k.residual >= 0 {
		a.Residual = frame[k.in[k.residual]]
	}
	k.space.Data.(*run).source = k.source(e)
	return k.plan.run(e.ctx, k.weights, a, &k.space)
}

// vectors sets the epilogue's vectors.
func (k *matmulKernel) vectors(frame []tensor.Tensor) {
	a := &k.args
	a.RowScale = k.vector(0, frame, k.rowScale)
	a.ColScale = k.vector(1, frame, k.colScale)
	a.Bias = k.vector(2, frame, k.bias)
}

// vector returns an operand of the epilogue as a slice; one with gaps is copied.
func (k *matmulKernel) vector(slot int, frame []tensor.Tensor, i int) []float32 {
	if i < 0 {
		return nil
	}
	t := &frame[k.in[i]]
	if t.IsContiguous() {
		return tensor.Data[float32](*t)
	}
	if k.copies[slot] == nil {
		k.copies[slot] = make([]float32, t.Elems())
	}
	dst := tensor.Of(k.copies[slot], t.Shape()...)
	if err := tensor.Copy(dst, *t); err != nil {
		panic(err)
	}
	return k.copies[slot]
}
