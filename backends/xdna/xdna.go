package xdna

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/xdna/array"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	for _, dev := range device.All() {
		backends.Register(dev.Name, func(o *backends.Options) (backends.Backend, error) {
			opt, err := parse(dev, o)
			if err != nil {
				return nil, err
			}
			b, err := New(dev, opt)
			if err != nil {
				return nil, err
			}
			return b, nil
		})
	}
}

// Backend runs the products of graphs on an NPU.
type Backend struct {
	dev    *device.Device
	opt    Options
	engine *Engine
	nodes  atomic.Int64
}

// New returns a backend.
func New(dev *device.Device, opt Options) (*Backend, error) {
	var exec Executor
	if opt.node != "" {
		h, err := openHardware(dev, opt.node, opt.xclbin, opt.manifest, &opt)
		if err != nil {
			return nil, err
		}
		return NewWithExecutor(dev, opt, h)
	}
	if opt.Mode == Emulate {
		workers := opt.Threads - 1
		if opt.Threads == 0 {
			workers = 0
		} else if workers == 0 {
			workers = -1
		}
		exec = NewEmulator(dev, array.Options{Workers: workers})
	}
	return NewWithExecutor(dev, opt, exec)
}

// NewWithExecutor returns a backend that runs control code on exec; nil computes the same bits on the CPU.
func NewWithExecutor(dev *device.Device, opt Options, exec Executor) (*Backend, error) {
	if opt.CPURate == 0 {
		opt.CPURate = DefaultCPURate
	}
	if opt.Precision == BFP16 && dev != device.XDNA2 {
		return nil, fmt.Errorf("%s has no bfp16", dev.Name)
	}
	return &Backend{dev: dev, opt: opt, engine: newEngine(dev, opt, exec)}, nil
}

// Name is the device's name.
func (b *Backend) Name() string { return b.dev.Name }

// Describe says what the backend runs on: a simulated array.
func (b *Backend) Describe() backends.Description {
	d := backends.Description{
		Name:      b.dev.Name,
		Device:    fmt.Sprintf("%s, %d x %d cores at %.1f GHz, simulated (mode=%v)", b.dev.Title, b.dev.CoreRows, b.dev.Cols, b.dev.ClockHz/1e9, b.opt.Mode),
		Simulated: true,
		Features:  []string{b.opt.Precision.String(), b.opt.Mode.String()},
		Options:   describeOptions(),
	}
	for _, m := range b.dev.Modes {
		d.Types = append(d.Types, m.Types.String())
	}
	if h, ok := b.engine.exec.(*Hardware); ok {
		h.describe(&d)
	}
	return d
}

// MatMul returns the engine for matrix products.
func (b *Backend) MatMul() matmul.Engine { return b.engine }

// Engine returns the engine with its own type.
func (b *Backend) Engine() *Engine { return b.engine }

// Stats counts what has run since the backend was opened.
func (b *Backend) Stats() backends.Stats {
	s := b.engine.Stats()
	s.Nodes = b.nodes.Load()
	return s
}

// Close releases the executor, after the product that it runs. Later products on it are errors; a second call does nothing.
func (b *Backend) Close() error {
	e := b.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exec == nil || e.closed {
		return nil
	}
	e.closed = true
	return e.exec.Close()
}

// Supports takes products with constant weights, and convolutions as such, that the cost model sees gain on the array.
func (b *Backend) Supports(c ops.Call) backends.Verdict {
	if op, ok := c.Op.(conv.Conv); ok {
		return b.supportsConv(op, c)
	}
	op, ok := c.Op.(matmul.Op)
	if !ok {
		return backends.No("the array multiplies matrices only")
	}
	out, err := op.Infer(c.In)
	if err != nil {
		return backends.No("%v", err)
	}
	if len(c.Const) < 2 || !c.Const[1] {
		return backends.No("B is not a constant: weights are converted once")
	}
	if c.In[1].Rank != 2 {
		return backends.No("weights of shape %v: one matrix is right", c.In[1])
	}
	spec, shape := op.Problem(c.In, out[0])
	rows := shape.M * shape.Batches()
	if out[0].Elems() == 0 {
		rows = 0
	}
	return b.judge(spec, rows)
}

// judge asks the cost model about a product of so many rows.
func (b *Backend) judge(spec matmul.Spec, rows int) backends.Verdict {
	d, err := b.engine.Design(spec)
	if err != nil {
		return backends.No("%v", err)
	}
	if rows == 0 || spec.N == 0 || spec.K == 0 {
		return backends.No("nothing to multiply")
	}
	m, err := plan.Lookup(b.dev.Name)
	if err != nil {
		return backends.No("%v", err)
	}
	pd := planDesign(d)
	if _, known := m.Kernels[pd.Types]; !known {
		pd.Types.C = kernel.BF16 // float32 results: the nearest kernel that the model was fitted for
	}
	place := m.Place(pd, plan.Size{M: rows, N: spec.N, K: spec.K}, b.opt.CPURate)
	why := strings.TrimPrefix(place.Reason, "array: ")
	if slower, ok := strings.CutPrefix(place.Reason, "CPU: "); ok {
		why = slower
		if b.opt.Rows > 0 { // which asks for the array whatever it costs
			why = fmt.Sprintf("on the array because of rows=%d, although %s", b.opt.Rows, slower)
		}
	}
	switch {
	case b.opt.Rows > 0 && rows < b.opt.Rows:
		return backends.No("%d rows, the option rows asks for %d", rows, b.opt.Rows)
	case b.opt.Rows == 0 && !place.Array:
		return backends.No("%s", why)
	}
	return backends.Verdict{
		OK: true, Cost: time.Duration(place.Seconds * float64(time.Second)),
		Reason:   fmt.Sprintf("%v on %v, simulated; %s", d.Types, d.Tile, why),
		Accuracy: b.engine.accuracy(spec, d),
	}
}

// accuracy is what the number format of a design costs a problem.
func (e *Engine) accuracy(s matmul.Spec, d *design.Design) (a backends.Accuracy) {
	step := 0.5 // of the last place, when rounding to nearest
	if d.Rounding == kernel.Floor {
		step = 1
	}
	switch t := d.Types; {
	case t.A == kernel.I8:
		if !hostB(s) {
			return a // exact
		}
		return backends.Accuracy{Operand: 0.51 / 127, Shared: -1} // a little more than half, for the rounding of the scale
	case t.B == kernel.BFP16 && t.A == kernel.BFP16 && s.B == tensor.BFP16:
	case e.blockFloat(t):
		a.Operand, a.Shared = step/64, bfp16.Values
	}
	if hostB(s) {
		a.Operand += 1.0 / 256
	}
	if d.Types.C == kernel.BF16 { // rounded after each chunk of K
		a.Sum, a.Roundings = step/128, (s.K+d.Tile.K-1)/d.Tile.K
	}
	return a
}

// blockFloat reports whether products of these types run on the block floating point path.
func (e *Engine) blockFloat(t device.Types) bool {
	m, err := e.dev.Mode(t)
	return err == nil && m.Arith == kernel.BFP
}

// Compile prepares the products of a part. Weights are converted once, however many programs use them.
func (b *Backend) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p := &program{b: b}
	for i := range part.Nodes {
		node := &part.Nodes[i]
		var n runner
		var err error
		switch op := node.Op.(type) {
		case matmul.Op:
			x := &product{}
			n, err = x, x.bind(ctx, b, part, node, op)
		case conv.Conv:
			x := &convolution{}
			n, err = x, x.bind(ctx, b, part, node, op)
		default:
			err = fmt.Errorf("%s cannot run %s", b.dev.Name, op.Name())
		}
		if err != nil {
			return nil, fmt.Errorf("node %q, %s: %w", node.Name, ops.Describe(node.Op, part.Call(node).In), err)
		}
		space, err := n.workspace()
		if err != nil {
			return nil, fmt.Errorf("node %q: %w", node.Name, err)
		}
		p.workspace.Add(space)
		p.nodes = append(p.nodes, n)
		p.names = append(p.names, node.Name)
		p.calls = append(p.calls, ops.Describe(node.Op, part.Call(node).In))
	}
	return p, nil
}

// runner is a compiled node.
type runner interface {
	run(ctx context.Context, frame []tensor.Tensor) error
	workspace() (backends.Workspace, error)
}

// program is a compiled part.
type program struct {
	b     *Backend
	nodes []runner
	names []string
	calls []string // in words, for errors

	workspace backends.Workspace
}

// Run executes nodes in order.
func (p *program) Run(ctx context.Context, frame []tensor.Tensor, first, last int) error {
	for i := first; i < last; i++ {
		if err := p.nodes[i].run(ctx, frame); err != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("node %q, %s: %w", p.names[i], p.calls[i], err)
		}
	}
	p.b.nodes.Add(int64(last - first))
	return nil
}

// Close does nothing: weights belong to the constants.
func (p *program) Close() error { return nil }

// product is one node.
type product struct {
	in                                 []int
	out                                int
	plan                               matmul.Plan
	weights                            matmul.Packed
	space                              matmul.Workspace
	args                               matmul.Args
	rowScale, colScale, bias, residual int
}

// packKey names a packed form: one for each engine and problem, whatever the epilogue and the type of the result.
type packKey struct {
	e     *Engine
	spec  matmul.Spec
	types device.Types
}

func (n *product) bind(ctx context.Context, b *Backend, part *ops.Part, node *ops.Node, op matmul.Op) error {
	specs := make([]tensor.Spec, len(node.In))
	for i, v := range node.In {
		specs[i] = part.Values[v].Spec
	}
	n.in, n.out = node.In, node.Out[0]
	n.rowScale, n.colScale, n.bias, n.residual, _ = op.Operands()
	spec, shape := op.Problem(specs, part.Values[n.out].Spec)
	var err error
	if n.plan, err = b.engine.Plan(spec, shape); err != nil {
		return err
	}
	c := part.Values[node.In[1]].Const
	if c == nil {
		return fmt.Errorf("%s: B is not a constant", b.dev.Name)
	}
	h, err := b.engine.form(spec)
	if err != nil {
		return err
	}
	key := packKey{b.engine, weightsSpec(spec), h.types}
	form, err := c.Prepare(key, func() (any, error) { return b.engine.Pack(ctx, spec, c.Tensor) })
	if err != nil {
		return err
	}
	n.weights = form.(matmul.Packed)
	return nil
}

func (n *product) run(ctx context.Context, frame []tensor.Tensor) error {
	a := &n.args
	a.A, a.C = frame[n.in[0]], frame[n.out]
	a.RowScale, a.ColScale, a.Bias = n.vector(frame, n.rowScale), n.vector(frame, n.colScale), n.vector(frame, n.bias)
	if n.residual >= 0 {
		a.Residual = frame[n.in[n.residual]]
	}
	return n.plan.Run(ctx, n.weights, a, &n.space)
}

// vector is an operand of the epilogue as a slice.
func (n *product) vector(frame []tensor.Tensor, i int) []float32 {
	if i < 0 {
		return nil
	}
	t := frame[n.in[i]]
	if t.IsContiguous() && t.DType == tensor.F32 {
		return tensor.Data[float32](t)
	}
	dst := tensor.New(tensor.F32, t.Shape()...)
	if err := tensor.Copy(dst, t); err != nil {
		panic(err) // a vector and its copy have one shape
	}
	return tensor.Data[float32](dst)
}
