package cpu

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// kernel runs one node. A kernel belongs to one program, so it may keep what it computes for the strides that it sees; the workers
// of a parallel region share it.
type kernel interface {
	// bind is called once, at compile time.
	bind(ctx context.Context, e *env, part *ops.Part, n *ops.Node) error
	// run computes the node from the frame.
	run(e *env, frame []tensor.Tensor) error
}

// env is what the kernels of a program share.
type env struct {
	threads int
	vec     *vec.Funcs
	engine  *Engine
	ctx     context.Context // of the run
	done    <-chan struct{} // of the run's context; nil if it cannot end
	run     uint64          // its number among those of all programs, for what may be kept within one
	angles  map[angleKey]*angles
	scratch [][]float32 // a row of float32 for each worker
	spaces  spaces      // of products: nodes run one after the other
	weights []*qgemm.Packed
	runs    []*qgemm.Run // that run together with the weights
}

// runs counts the runs of all programs.
var runs atomic.Uint64

// stopped reports whether the run's context has ended. Jobs look at it when they start.
func (e *env) stopped() bool { return ended(e.done) }

// ended reports whether a context has ended whose Done gave the channel, nil if it cannot.
func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// rowSlack is what a scratch row has beyond its length, for kernels that write whole vectors.
const rowSlack = 16

// rows returns a scratch row of n float32 for every worker of a region with the given number of jobs.
func (e *env) rows(jobs, n int) [][]float32 {
	w := par.Workers(e.threads, jobs)
	for len(e.scratch) < w {
		e.scratch = append(e.scratch, nil)
	}
	for i := range w {
		if len(e.scratch[i]) < n {
			e.scratch[i] = make([]float32, n+rowSlack)
		}
	}
	return e.scratch
}

// program is a compiled part.
type program struct {
	b        *Backend
	nodes    []ops.Node
	kernels  []kernel
	products int
	fed      []*convKernel // of nodes that feed the next one: its kernel, if the two run together; or nil
	together []int         // nodes behind each that may run with it, or nil
	env      env

	workspace backends.Workspace
}

// Run executes nodes in order.
func (p *program) Run(ctx context.Context, frame []tensor.Tensor, first, last int) error {
	e := &p.env
	e.ctx, e.done = ctx, ctx.Done()
	e.run = runs.Add(1)
	for i := first; i < last; i++ {
		if e.stopped() {
			return context.Cause(ctx)
		}
		if p.fed != nil && p.fed[i] != nil && i+1 < last && p.fed[i].runFed(e, frame) {
			i++
			continue
		}
		if p.together != nil && p.together[i] > 0 && i+p.together[i] < last {
			n := p.together[i]
			done, err := p.runTogether(e, frame, p.kernels[i:i+n+1])
			if err != nil {
				return p.describe(i, frame, err)
			}
			if done {
				i += n
				continue
			}
		}
		if err := p.kernels[i].run(e, frame); err != nil {
			return p.describe(i, frame, err)
		}
	}
	if e.stopped() {
		return context.Cause(ctx)
	}
	p.b.nodes.Add(int64(last - first))
	if p.products > 0 {
		p.b.products.Add(p.count(first, last))
	}
	return nil
}

// count returns the products among the nodes; a whole part is the usual case.
func (p *program) count(first, last int) int64 {
	if last-first == len(p.nodes) {
		return int64(p.products)
	}
	n := int64(0)
	for _, k := range p.kernels[first:last] {
		if _, ok := k.(*matmulKernel); ok {
			n++
		}
	}
	return n
}

func (p *program) describe(i int, frame []tensor.Tensor, err error) error {
	n := &p.nodes[i]
	specs := make([]tensor.Spec, len(n.In))
	for j, v := range n.In {
		if v >= 0 {
			specs[j] = frame[v].Spec
		}
	}
	return fmt.Errorf("node %q, %s: %w", n.Name, ops.Describe(n.Op, specs), err)
}

// Close releases what the kernels hold.
func (p *program) Close() error {
	p.kernels = nil
	return nil
}

// referenceKernel runs an op's reference.
type referenceKernel struct {
	op      ops.Op
	in, out []int
	ins     []tensor.Tensor
	outs    []tensor.Tensor
	ranged  ops.Ranged
}

func (k *referenceKernel) bind(_ context.Context, _ *env, _ *ops.Part, n *ops.Node) error {
	k.in, k.out = n.In, n.Out
	k.ins, k.outs = make([]tensor.Tensor, len(n.In)), make([]tensor.Tensor, len(n.Out))
	return nil
}

func (k *referenceKernel) run(e *env, frame []tensor.Tensor) error {
	for i, v := range k.in {
		if v >= 0 {
			k.ins[i] = frame[v]
		}
	}
	for i, v := range k.out {
		k.outs[i] = frame[v]
	}
	r, ok := k.op.(ops.Ranged)
	if !ok {
		return k.op.Reference(k.outs, k.ins)
	}
	for i := range k.ins {
		ok = ok && k.ins[i].IsContiguous()
	}
	if !ok || !k.outs[0].IsContiguous() {
		return k.op.Reference(k.outs, k.ins)
	}
	k.ranged = r
	par.Run(e.threads, (k.outs[0].Elems()+rangeLength-1)/rangeLength, k)
	return nil
}

// rangeLength is how many elements of an ops.Ranged are computed at a time: tens of microseconds.
const rangeLength = 1 << 14

// Do computes a piece of an ops.Ranged.
func (k *referenceKernel) Do(_, piece int) {
	from := piece * rangeLength
	to := min(from+rangeLength, k.outs[0].Elems())
	k.ranged.Range(k.outs, k.ins, from, to)
}

// floats views n float32 at an address.
func floats(p unsafe.Pointer, n int) []float32 { return unsafe.Slice((*float32)(p), n) }
