package aie

import (
	"context"
	"fmt"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// packKey names a packed form of a constant.
type packKey struct {
	e    *Engine
	spec matmul.Spec
}

// weightsSpec is what of a problem the packed form depends on.
func weightsSpec(s matmul.Spec) matmul.Spec {
	s.Epilogue = matmul.Epilogue{}
	return s
}

type kernel interface {
	run(ctx context.Context, frame []tensor.Tensor) error
	workspace() (backends.Workspace, error)
}

// program is a compiled part.
type program struct {
	b       *Backend
	nodes   []ops.Node
	kernels []kernel
	calls   []string // in words, for errors

	workspace backends.Workspace
}

func compile(ctx context.Context, b *Backend, part *ops.Part) (backends.Program, error) {
	p := &program{b: b, nodes: part.Nodes}
	for i := range part.Nodes {
		n := &part.Nodes[i]
		call := part.Call(n)
		if v := b.Supports(call); !v.OK {
			return nil, fmt.Errorf("aie: node %q, %s: %s", n.Name, ops.Describe(n.Op, call.In), v.Reason)
		}
		p.calls = append(p.calls, ops.Describe(n.Op, call.In))
		var err error
		switch n.Op.(type) {
		case conv.Conv:
			k := &convKernel{e: b.engine}
			err = k.bind(ctx, part, n)
			p.kernels = append(p.kernels, k)
		default:
			k := &matmulKernel{e: b.engine}
			err = k.bind(ctx, part, n)
			p.kernels = append(p.kernels, k)
		}
		if err != nil {
			return nil, fmt.Errorf("node %q, %s: %w", n.Name, ops.Describe(n.Op, call.In), err)
		}
		space, err := p.kernels[i].workspace()
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", n.Name, err)
		}
		p.workspace.Add(space)
	}
	return p, nil
}

// Run executes nodes in order.
func (p *program) Run(ctx context.Context, frame []tensor.Tensor, first, last int) error {
	for i := first; i < last; i++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := p.kernels[i].run(ctx, frame); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("node %q, %s: %w", p.nodes[i].Name, p.calls[i], err)
		}
	}
	p.b.nodes.Add(int64(last - first))
	return nil
}

// Close releases nothing: the weights belong to their constants.
func (p *program) Close() error {
	p.kernels = nil
	return nil
}

// matmulKernel runs a product whose B is a constant.
type matmulKernel struct {
	e        *Engine
	op       matmul.Op
	in       []int
	out      int
	plan     matmul.Plan
	weights  matmul.Packed
	space    matmul.Workspace
	args     matmul.Args
	rowScale int
	colScale int
	bias     int
	residual int
	vectors  [3][]float32
}

func (k *matmulKernel) bind(ctx context.Context, part *ops.Part, n *ops.Node) error {
	k.op, k.in, k.out = n.Op.(matmul.Op), n.In, n.Out[0]
	specs := make([]tensor.Spec, len(n.In))
	for i, v := range n.In {
		specs[i] = part.Values[v].Spec
	}
	spec, shape := k.op.Problem(specs, part.Values[k.out].Spec)
	k.rowScale, k.colScale, k.bias, k.residual, _ = k.op.Operands()
	var err error
	if k.plan, err = k.e.Plan(spec, shape); err != nil {
		return err
	}
	c := part.Values[n.In[1]].Const
	if c == nil {
		return fmt.Errorf("aie: B is no constant")
	}
	key := packKey{k.e, weightsSpec(spec)}
	form, err := c.Prepare(key, func() (any, error) { return k.e.Pack(ctx, key.spec, c.Tensor) })
	if err != nil {
		return err
	}
	k.weights = form.(matmul.Packed)
	for _, w := range form.(*packed).list {
		if err := w.expect(spec, rowsOfRun(form.(*packed), shape)); err != nil {
			return err
		}
	}
	return nil
}

func (k *matmulKernel) run(ctx context.Context, frame []tensor.Tensor) error {
	a := &k.args
	a.A, a.C = frame[k.in[0]], frame[k.out]
	vector := func(i, pos int) []float32 {
		if pos < 0 {
			return nil
		}
		t := frame[k.in[pos]]
		k.vectors[i] = floatsOf(k.vectors[i], &t)
		return k.vectors[i]
	}
	a.RowScale, a.ColScale, a.Bias = vector(0, k.rowScale), vector(1, k.colScale), vector(2, k.bias)
	if k.residual >= 0 {
		a.Residual = frame[k.in[k.residual]]
	}
	defer func() { *a = matmul.Args{} }()
	return k.plan.Run(ctx, k.weights, a, &k.space)
}

// floatsOf returns a vector as float32 in one piece: its own memory where possible, else a copy in buf.
func floatsOf(buf []float32, t *tensor.Tensor) []float32 {
	if t.DType == tensor.F32 && t.IsContiguous() {
		return tensor.Data[float32](*t)
	}
	buf = grow(buf, t.Elems())
	for i, v := range t.Floats() {
		buf[i] = float32(v)
	}
	return buf
}
