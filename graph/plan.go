package graph

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// where says what memory a value has.
type where uint8

const (
	unplaced where = iota
	inArena
	bound // an input, or an output for which the caller gave memory
	constant
	aliased // a view of another value, or the memory of an updated one
)

// plan is the graph for one set of sizes: concrete ops, specs, memory and compiled parts.
type plan struct {
	sizes    [MaxSymbols]int
	values   []ops.Value
	where    []where
	root     []int // the value whose memory this one is in
	block    []*block
	nodes    []ops.Node // computed ones, in order
	source   []int      // the graph's node of each
	feeds    []bool     // which nodes feed the next one
	views    []viewStep // in order
	segments []segment
	choices  []Placement // of every node of the graph
	frame    []tensor.Tensor
	bytes    int // arena
	live     int // lower bound of it
	stamp    uint64
	bindings uint64 // version of the bindings that the frame holds
}

// viewStep recomputes a view when bindings have changed.
type viewStep struct {
	op       ops.Viewer // nil: the same tensor
	from, to int
	name     string
}

// segment is a run of nodes on one backend.
type segment struct {
	backend     int
	program     backends.Program
	first, last int // nodes of the plan
}

// newPlan plans the graph for some sizes. Its memory is not allocated, and its parts are not compiled yet.
func (x *Executable) newPlan(ctx context.Context, sizes [MaxSymbols]int) (*plan, error) {
	g := x.g
	p := &plan{sizes: sizes}
	env := ops.Sizes{}
	for i, s := range g.symbols {
		env[s.name] = sizes[i]
	}
	p.values = make([]ops.Value, len(g.values))
	p.where = make([]where, len(g.values))
	p.root = make([]int, len(g.values))
	p.block = make([]*block, len(g.values))
	p.frame = make([]tensor.Tensor, len(g.values))
	for i := range g.values {
		v := &g.values[i]
		p.root[i] = i
		p.values[i] = ops.Value{Name: v.name, Spec: v.spec, Const: v.constant}
		if v.constant != nil {
			p.where[i] = constant
			p.frame[i] = v.constant.Tensor
		}
	}
	for _, i := range g.inputs {
		dims := make([]int, len(g.values[i].dims))
		for j, d := range g.values[i].dims {
			dims[j], _ = d.Value(env)
		}
		p.values[i].Spec = tensor.MakeSpec(g.values[i].spec.DType, dims...)
		p.where[i] = bound
		p.frame[i] = tensor.Tensor{Spec: p.values[i].Spec, Strides: p.values[i].Spec.Contiguous()}
	}
	if err := p.resolve(g, env); err != nil {
		return nil, err
	}
	p.layOut(g, x)
	if err := x.place(ctx, p); err != nil {
		return nil, err
	}
	return p, nil
}

// resolve puts symbol values into ops, infers every spec, and splits views from nodes that compute.
func (p *plan) resolve(g *Graph, env ops.Sizes) error {
	for i := range g.nodes {
		n := &g.nodes[i]
		op, err := ops.Resolve(n.op, env)
		if err != nil {
			return fmt.Errorf("graph %s: node %q: %w", g.name, n.name, err)
		}
		out, err := op.Infer(p.specs(n.in))
		if err != nil {
			return fmt.Errorf("graph %s: node %q with %s: %w", g.name, n.name, p.sizesText(g), err)
		}
		for j, v := range n.out {
			p.values[v].Spec = out[j]
		}
		if viewer, ok := op.(ops.Viewer); ok {
			src, dst := n.in[0], n.out[0]
			// The layout of the source is known: its memory may not be, but strides decide whether a view exists.
			view, err := viewer.View(p.frame[src])
			var needsCopy *tensor.NeedsCopyError
			if err == nil {
				p.frame[dst] = view
				p.where[dst], p.root[dst] = aliased, p.root[src]
				p.views = append(p.views, viewStep{viewer, src, dst, n.name})
				continue
			}
			if !errors.As(err, &needsCopy) {
				return fmt.Errorf("graph %s: node %q: %w", g.name, n.name, err)
			}
		}
		node := ops.Node{Name: n.name, Op: op, In: n.in, Out: n.out}
		for j, v := range n.out {
			p.frame[v] = tensor.Tensor{Spec: out[j], Strides: out[j].Contiguous()}
		}
		if _, updates := op.(ops.Updater); updates {
			p.where[n.out[0]], p.root[n.out[0]] = aliased, p.root[n.in[0]]
			p.frame[n.out[0]] = p.frame[n.in[0]]
			p.views = append(p.views, viewStep{nil, n.in[0], n.out[0], n.name})
		}
		p.nodes = append(p.nodes, node)
		p.source = append(p.source, i)
	}
	return nil
}

// specs returns the specs of values at the plan's sizes; those of absent ones are zero.
func (p *plan) specs(ids []int) []tensor.Spec {
	out := make([]tensor.Spec, len(ids))
	for i, v := range ids {
		if v >= 0 {
			out[i] = p.values[v].Spec
		}
	}
	return out
}

func (p *plan) sizesText(g *Graph) string {
	var parts []string
	for i, s := range g.symbols {
		parts = append(parts, fmt.Sprintf("%s = %d", s.name, p.sizes[i]))
	}
	return strings.Join(parts, ", ")
}

// layOut plans the arena: lifetimes, reuse in place, offsets.
func (p *plan) layOut(g *Graph, x *Executable) {
	last := make([]int, len(g.values)) // last node that reads the memory of a root
	for i, n := range p.nodes {
		for _, v := range n.In {
			if v >= 0 {
				last[p.root[v]] = i
			}
		}
	}
	for _, o := range g.outputs {
		last[p.root[o.value]] = len(p.nodes)
	}
	p.feed(last)
	// A root that is read through a view counts for the root: root[] has been resolved above.
	var blocks []*block
	for i, n := range p.nodes {
		for j, v := range n.Out {
			if p.where[v] != unplaced {
				continue
			}
			if x.outputBound(v) {
				p.where[v] = bound
				continue
			}
			p.where[v] = inArena
			end := max(last[v], i)
			if j == 0 {
				if b := p.inPlaceBlock(n, i, v, last); b != nil {
					b.last = max(b.last, end)
					p.block[v] = b
					continue
				}
			}
			b := &block{bytes: aligned(p.values[v].Spec.Bytes()), first: i, last: end}
			p.block[v] = b
			blocks = append(blocks, b)
		}
	}
	p.bytes = placeBlocks(blocks)
	p.live = liveBytes(blocks, len(p.nodes))
}

// feed finds the nodes that feed the next one, and lets what they read live until its end.
func (p *plan) feed(last []int) {
	p.feeds = make([]bool, len(p.nodes))
	reads := make([]int, len(last))
	for _, n := range p.nodes {
		for _, v := range n.In {
			if v >= 0 {
				reads[p.root[v]]++
			}
		}
	}
	for i := range p.nodes[:max(len(p.nodes)-1, 0)] {
		n, next := &p.nodes[i], &p.nodes[i+1]
		fed, ok := next.Op.(ops.Fed)
		if !ok || len(n.Out) != 1 || next.In[0] != n.Out[0] || p.root[n.Out[0]] != n.Out[0] || reads[n.Out[0]] != 1 || last[n.Out[0]] != i+1 {
			continue
		}
		if !fed.FedBy(n.Op, p.specs(next.In)) {
			continue
		}
		p.feeds[i] = true
		for _, v := range n.In {
			if v >= 0 {
				last[p.root[v]] = max(last[p.root[v]], i+1)
			}
		}
	}
}

// inPlaceBlock returns the block of an input that dies at this node and that the op lets the output take over.
func (p *plan) inPlaceBlock(n ops.Node, at, out int, last []int) *block {
	inPlace, ok := n.Op.(ops.InPlacer)
	if !ok {
		return nil
	}
	for j, v := range n.In {
		if v < 0 || !inPlace.InPlace(j) {
			continue
		}
		r := p.root[v]
		if p.where[r] != inArena || last[r] != at || p.block[r] == nil {
			continue
		}
		shared := 0 // other inputs of the node in the same memory would be overwritten while they are read
		for _, w := range n.In {
			if w >= 0 && p.root[w] == r {
				shared++
			}
		}
		if shared != 1 || p.values[v].Spec != p.values[out].Spec || !p.frame[v].IsContiguous() ||
			p.values[r].Spec.Bytes() != p.values[out].Spec.Bytes() {
			continue
		}
		return p.block[r]
	}
	return nil
}

// outputsApart refuses an output whose memory is that of an input or of another output as well: nodes write it while others still read.
func (p *plan) outputsApart(x *Executable) error {
	for out, w := range p.where {
		if w != bound || !x.outputBound(out) {
			continue
		}
		for v, w := range p.where {
			if w == bound && v != out && x.bound[v].Valid() && x.bound[out].Overlaps(x.bound[v]) {
				return fmt.Errorf("graph %s: output %q shares memory with %q", x.g.name, p.values[out].Name, p.values[v].Name)
			}
		}
	}
	return nil
}

// attach points the frame at the arena and at what is bound.
func (p *plan) attach(x *Executable) error {
	for v, w := range p.where {
		switch w {
		case inArena:
			p.frame[v].Buf, p.frame[v].Off = x.arena, p.block[v].offset
		case bound:
			t := x.bound[v]
			if !t.Valid() {
				if p.values[v].Spec.Elems() == 0 {
					continue
				}
				return fmt.Errorf("graph %s: %q is not bound", x.g.name, p.values[v].Name)
			}
			p.frame[v] = t
		}
	}
	if err := p.outputsApart(x); err != nil {
		return err
	}
	for _, step := range p.views {
		if step.op == nil {
			if b := p.frame[step.from].Buf; b != nil && b.ReadOnly() {
				return fmt.Errorf("graph %s: node %q changes %q: %w", x.g.name, step.name, p.values[p.root[step.from]].Name, tensor.ErrReadOnly)
			}
			p.frame[step.to] = p.frame[step.from]
			continue
		}
		if p.where[p.root[step.to]] != bound && p.frame[step.to].Buf == p.frame[step.from].Buf && p.frame[step.to].Buf != nil {
			continue
		}
		view, err := step.op.View(p.frame[step.from])
		if err != nil {
			return fmt.Errorf("graph %s: node %q: %w (bind a contiguous tensor)", x.g.name, step.name, err)
		}
		p.frame[step.to] = view
	}
	p.bindings = x.bindings
	return nil
}

// compile has the backends prepare their parts of a plan.
func (x *Executable) compile(ctx context.Context, p *plan) error {
	reads := make([]int, len(p.values)) // last segment that reads a value
	for i := range reads {
		reads[i] = -1
	}
	for s, seg := range p.segments {
		for _, n := range p.nodes[seg.first:seg.last] {
			for _, v := range n.In {
				if v >= 0 {
					reads[v] = s
				}
			}
		}
	}
	for _, o := range x.g.outputs {
		reads[o.value] = len(p.segments)
	}
	for s := range p.segments {
		seg := &p.segments[s]
		part := &ops.Part{Values: p.values, Nodes: p.nodes[seg.first:seg.last], Feeds: p.feeds[seg.first:seg.last]}
		made := map[int]bool{}
		seen := map[int]bool{}
		for _, n := range part.Nodes {
			for _, v := range n.In {
				if v >= 0 && !made[v] && !seen[v] && p.values[v].Const == nil {
					part.Inputs = append(part.Inputs, v)
					seen[v] = true
				}
			}
			for _, v := range n.Out {
				made[v] = true
				if reads[v] > s {
					part.Outputs = append(part.Outputs, v)
				}
			}
		}
		program, err := x.opts.Backends[seg.backend].Compile(ctx, part)
		if err != nil {
			return fmt.Errorf("graph %s: backend %s: %w", x.g.name, x.opts.Backends[seg.backend].Name(), err)
		}
		seg.program = program
	}
	return nil
}

func (p *plan) close() error {
	var errs []error
	for _, s := range p.segments {
		if s.program != nil {
			errs = append(errs, s.program.Close())
		}
	}
	return errors.Join(errs...)
}
