package onnx

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// machine does what operators emit.
type machine interface {
	emit(c *call, op ops.Op, in []*value, out []tensor.Spec) ([]*value, error)
}

// frame holds the values of one graph while it runs.
type frame struct {
	values map[string]*value
	outer  *frame
}

func newFrame(outer *frame) *frame { return &frame{values: map[string]*value{}, outer: outer} }

func (f *frame) get(name string) *value {
	for ; f != nil; f = f.outer {
		if v := f.values[name]; v != nil {
			return v
		}
	}
	return nil
}

// runner walks graphs and calls operators; the machine decides what comes of it.
type runner struct {
	ctx    context.Context
	model  *Model
	m      machine
	opsets map[string]int
	inits  map[*Tensor]*value // values of initializers, shared by all runs
	limit  int64              // bytes that values made here may have; 0 is none
	used   int64
	made   map[*tensor.Buffer]int64
	frames []*frame // alive, innermost last
	depth  int
	drop   bool // let go of values after their last reader
	late   *lateNodes
}

// lateNodes are the nodes of a model that no graph can hold, and those that read what they give. They run after the graph.
type lateNodes struct {
	nodes  []*Node
	names  map[string]bool // what they give
	reason error           // of the first
}

// has reports whether a node reads what a late one gives.
func (l *lateNodes) has(n *Node) bool {
	found := false
	n.reads(func(name string) { found = found || l.names[name] })
	return found
}

func (l *lateNodes) add(n *Node, reason error) {
	if l.reason == nil {
		l.reason = reason
	}
	l.nodes = append(l.nodes, n)
	for _, name := range n.Out {
		if name != "" {
			l.names[name] = true
		}
	}
}

// reads calls f for the values that a node, or a graph inside it, reads.
func (n *Node) reads(f func(string)) {
	for _, name := range n.In {
		if name != "" {
			f(name)
		}
	}
	for _, sub := range n.subgraphs() {
		sub.free(nil, f, 0)
	}
}

// graph runs the nodes of a graph in a frame that holds its inputs, and returns its outputs.
func (r *runner) graph(g *Graph, f *frame) ([]*value, error) {
	if err := r.nodes(g, f); err != nil {
		return nil, err
	}
	outs := make([]*value, len(g.Outputs))
	for i, o := range g.Outputs {
		if r.late != nil && r.depth == 0 && r.late.names[o.Name] {
			continue
		}
		if outs[i] = f.get(o.Name); outs[i] == nil {
			return nil, fmt.Errorf("onnx: output %q was not produced", o.Name)
		}
		if err := outs[i].declared(o.Type); err != nil {
			return nil, fmt.Errorf("onnx: output %q: %w", o.Name, err)
		}
	}
	return outs, nil
}

func (r *runner) nodes(g *Graph, f *frame) error {
	if r.depth++; r.depth > maxDepth {
		return fmt.Errorf("onnx: graphs and functions nested more than %d deep", maxDepth)
	}
	r.frames = append(r.frames, f)
	defer func() {
		r.depth--
		r.frames = r.frames[:len(r.frames)-1]
	}()
	for _, t := range g.Inits {
		if f.values[t.Name] == nil { // an input of the same name replaces the default
			f.values[t.Name] = r.init(t)
		}
	}
	var last map[*Node][]string
	if r.drop {
		last = g.lastUses()
	}
	for _, n := range g.Nodes {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		late := r.late
		if r.depth > 1 {
			late = nil
		}
		if late != nil && late.has(n) {
			late.add(n, nil)
			continue
		}
		if err := r.node(n, f); err != nil {
			if late == nil || !isDynamic(err) {
				return err
			}
			late.add(n, err)
		}
		for _, name := range last[n] {
			delete(f.values, name)
		}
	}
	return nil
}

// init returns the value of an initializer; it is made once, so that its packed forms are shared.
func (r *runner) init(t *Tensor) *value {
	v := r.inits[t]
	if v == nil {
		v = tensorValue(t)
		if v.kind == numbers {
			v.constant()
		}
		r.inits[t] = v
	}
	return v
}

// prepareLastUses works lastUses out for the graph and those in it, which forks then read at once.
func (g *Graph) prepareLastUses() {
	g.lastUses()
	for _, n := range g.Nodes {
		for _, sub := range n.subgraphs() {
			sub.prepareLastUses()
		}
	}
}

// lastUses tells after which node values are no longer read.
func (g *Graph) lastUses() map[*Node][]string {
	if g.last != nil {
		return g.last
	}
	keep := map[string]bool{}
	for _, o := range g.Outputs {
		keep[o.Name] = true
	}
	g.last = map[*Node][]string{}
	seen := map[string]bool{}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		note := func(name string) {
			if name != "" && !keep[name] && !seen[name] {
				seen[name] = true
				g.last[n] = append(g.last[n], name)
			}
		}
		n.reads(note)
		for _, name := range n.Out { // never read
			note(name)
		}
	}
	return g.last
}

// node calls one operator, or the function that the model defines for it.
func (r *runner) node(n *Node, f *frame) (err error) {
	ins := make([]*value, len(n.In))
	for i, name := range n.In {
		if name == "" {
			continue
		}
		if ins[i] = f.get(name); ins[i] == nil {
			return fmt.Errorf("onnx: node %s: input %q was not produced", n.Title(), name)
		}
	}
	for len(ins) > 0 && ins[len(ins)-1] == nil { // trailing absent inputs say nothing
		ins = ins[:len(ins)-1]
	}
	var outs []*value
	if fn := r.model.function(n); fn != nil {
		outs, err = r.function(fn, n, ins)
	} else {
		outs, err = r.call(n, ins, f)
	}
	if err != nil {
		return err
	}
	for i, name := range n.Out {
		if name == "" {
			continue
		}
		if i >= len(outs) || outs[i] == nil {
			return fmt.Errorf("onnx: node %s: output %d (%q) is not one that the operator has", n.Title(), i, name)
		}
		f.values[name] = outs[i]
	}
	return r.sweep()
}

// errDefinition is the error of a call that breaks a definition: a bug here, but brought about by a file, which may come from anywhere.
var errDefinition = errors.New("a mistake in the operator's definition")

func (r *runner) call(n *Node, ins []*value, f *frame) (outs []*value, err error) {
	op, version, reason := find(n, r.opsets)
	if op == nil {
		return nil, fmt.Errorf("onnx: node %s: %s", n.Title(), reason)
	}
	c := &call{r: r, n: n, version: version, ins: ins, scope: f}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		fail, ok := v.(*failure)
		_, fault := v.(interface{ Addr() uintptr }) // of memory, such as a file that was cut short: see mem.Catch
		if bug, runtime := v.(runtime.Error); runtime && !fault {
			fail, ok = &failure{err: fmt.Errorf("%w: %v", errDefinition, bug)}, true
		}
		if !ok {
			panic(v)
		}
		err = &nodeError{node: n.Title(), err: fail.err, dynamic: fail.dynamic}
	}()
	op.run(c)
	return c.outs, nil
}

// nodeError is the failure of a node.
type nodeError struct {
	node    string
	err     error
	dynamic bool
}

func (e *nodeError) Error() string {
	var inner *nodeError
	if errors.As(e.err, &inner) {
		return "onnx: node " + e.node + ": " + e.err.Error()[len("onnx: "):]
	}
	return "onnx: node " + e.node + ": " + e.err.Error()
}
func (e *nodeError) Unwrap() error { return e.err }

// isDynamic reports whether lowering failed because a value must be known that depends on what the model is fed.
func isDynamic(err error) bool {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if n, ok := e.(*nodeError); ok && n.dynamic {
			return true
		}
	}
	return false
}

// function runs a function of the model in a frame of its own.
func (r *runner) function(fn *Function, n *Node, ins []*value) ([]*value, error) {
	if len(ins) > len(fn.In) {
		return nil, fmt.Errorf("onnx: node %s: %d inputs for a function of %d", n.Title(), len(ins), len(fn.In))
	}
	g := &Graph{Name: fn.Name, Nodes: make([]*Node, len(fn.Nodes))}
	for i, inner := range fn.Nodes {
		g.Nodes[i] = bindAttrs(inner, n, fn)
	}
	f := newFrame(nil)
	for i, v := range ins {
		if v != nil {
			f.values[fn.In[i]] = v
		}
	}
	for i := len(ins); i < len(fn.In); i++ {
		for _, inner := range g.Nodes { // an absent input of the call is absent where it is read
			for j, name := range inner.In {
				if name == fn.In[i] {
					inner.In[j] = ""
				}
			}
		}
	}
	saved := r.opsets
	r.opsets = fn.Opsets
	defer func() { r.opsets = saved }()
	if err := r.nodes(g, f); err != nil {
		return nil, &nodeError{node: n.Title(), err: err}
	}
	outs := make([]*value, len(fn.Out))
	for i, name := range fn.Out {
		outs[i] = f.values[name]
	}
	return outs, nil
}

// bindAttrs copies a node of a function with its attribute references resolved for a call.
func bindAttrs(inner, n *Node, fn *Function) *Node {
	c := *inner
	c.In = append([]string(nil), inner.In...)
	c.Attrs = nil
	for _, a := range inner.Attrs {
		if a.Ref != "" {
			found := n.Attr(a.Ref)
			for i := range fn.Defaults {
				if found == nil && fn.Defaults[i].Name == a.Ref {
					found = &fn.Defaults[i]
				}
			}
			if found == nil {
				continue
			}
			name := a.Name
			a = *found
			a.Name = name
		}
		if a.G != nil {
			g := *a.G
			g.last = nil
			g.Nodes = make([]*Node, len(a.G.Nodes))
			for i, sub := range a.G.Nodes {
				g.Nodes[i] = bindAttrs(sub, n, fn)
			}
			a.G = &g
		}
		c.Attrs = append(c.Attrs, a)
	}
	return &c
}

// allocate returns memory for a value that is computed now.
func (r *runner) allocate(s tensor.Spec) (tensor.Tensor, error) {
	bytes := int64(s.Bytes())
	if r.limit > 0 && bytes > r.limit-r.used {
		if r.collect(); bytes > r.limit-r.used {
			return tensor.Tensor{}, fmt.Errorf("%v needs %d bytes; %d of the limit of %d are in use", s, bytes, r.used, r.limit)
		}
	}
	t, err := tensor.NewChecked(s.DType, s.Shape()...)
	if err != nil || bytes == 0 || r.limit == 0 {
		return t, err
	}
	r.used += bytes
	r.made[t.Buf] = bytes
	return t, nil
}

// sweep looks at memory between nodes.
func (r *runner) sweep() error {
	if r.limit > 0 && r.used > r.limit {
		if r.collect(); r.used > r.limit {
			return fmt.Errorf("onnx: values need %d bytes, the limit is %d", r.used, r.limit)
		}
	}
	return nil
}

// collect forgets memory that no living frame refers to.
func (r *runner) collect() {
	alive := map[*tensor.Buffer]int64{}
	var used int64
	var mark func(v *value)
	mark = func(v *value) {
		if v == nil {
			return
		}
		if n, ok := r.made[v.data.Buf]; ok && alive[v.data.Buf] == 0 {
			alive[v.data.Buf] = n
			used += n
		}
		for _, e := range v.seq {
			mark(e)
		}
		mark(v.inner)
	}
	for _, f := range r.frames {
		for _, v := range f.values {
			mark(v)
		}
	}
	r.made, r.used = alive, used
}

// eager is the machine that computes at once, on one backend.
type eager struct {
	r        *runner
	host     backends.Backend
	programs map[programKey]*eagerProgram
}

// programKey identifies a compiled single operation. Constants count by identity: their packed forms belong to the program.
type programKey struct {
	op   ops.Op
	n    int
	in   [6]tensor.Spec
	cons [6]*ops.Constant
}

type eagerProgram struct{ p backends.Program }

// maxPrograms bounds the single operations that are kept compiled.
const maxPrograms = 4096

func (e *eager) emit(c *call, op ops.Op, in []*value, out []tensor.Spec) ([]*value, error) {
	ts := make([]tensor.Tensor, len(in))
	cons := make([]*ops.Constant, len(in))
	for i, v := range in {
		if v == nil {
			continue
		}
		ts[i] = c.data(v)
		cons[i] = v.cons
	}
	if viewer, ok := op.(ops.Viewer); ok {
		view, err := viewer.View(ts[0])
		var copies *tensor.NeedsCopyError
		if err == nil {
			return []*value{knownValue(view)}, nil
		}
		if !errors.As(err, &copies) {
			return nil, err
		}
	}
	outs := make([]*value, len(out))
	frame := make([]tensor.Tensor, 0, len(in)+len(out))
	part := &ops.Part{Nodes: []ops.Node{{Name: c.n.Title(), Op: op}}}
	node := &part.Nodes[0]
	for i, t := range ts {
		if in[i] == nil {
			node.In = append(node.In, -1)
			continue
		}
		node.In = append(node.In, len(frame))
		part.Inputs = append(part.Inputs, len(frame))
		part.Values = append(part.Values, ops.Value{Spec: t.Spec, Const: cons[i]})
		frame = append(frame, t)
	}
	for i, s := range out {
		t, err := e.r.allocate(s)
		if err != nil {
			return nil, err
		}
		node.Out = append(node.Out, len(frame))
		part.Outputs = append(part.Outputs, len(frame))
		part.Values = append(part.Values, ops.Value{Spec: s})
		frame = append(frame, t)
		outs[i] = knownValue(t)
	}
	p, keep, err := e.program(part, op, in, cons)
	if err != nil {
		return nil, err
	}
	if !keep {
		defer p.Close()
	}
	return outs, p.Run(e.r.ctx, frame, 0, 1)
}

// program returns the compiled operation, from the cache if it fits there.
func (e *eager) program(part *ops.Part, op ops.Op, in []*value, cons []*ops.Constant) (p backends.Program, kept bool, err error) {
	if verdict := e.host.Supports(part.Call(&part.Nodes[0])); !verdict.OK {
		return nil, false, fmt.Errorf("backend %s: %s", e.host.Name(), verdict.Reason)
	}
	if len(in) > len(programKey{}.in) {
		p, err = e.host.Compile(e.r.ctx, part)
		return p, false, err
	}
	key := programKey{op: op, n: len(in)}
	for i, v := range in {
		if v != nil {
			key.in[i], key.cons[i] = v.spec, cons[i]
		}
	}
	if found := e.programs[key]; found != nil {
		return found.p, true, nil
	}
	if p, err = e.host.Compile(e.r.ctx, part); err != nil {
		return nil, false, err
	}
	if len(e.programs) >= maxPrograms {
		return p, false, nil
	}
	e.programs[key] = &eagerProgram{p}
	return p, true, nil
}

func (e *eager) close() error {
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.p.Close())
	}
	e.programs = nil
	return errors.Join(errs...)
}

// lowering is the machine that builds a graph, and computes what depends on constants only.
type lowering struct {
	fold *eager
	g    *graph.Graph
}

// largestFold bounds the bytes that folding an operation may make of less: beyond it the operation stays in the graph, and its
// result in the arena instead of among the constants.
const largestFold = 1 << 20

func (l *lowering) emit(c *call, op ops.Op, in []*value, out []tensor.Spec) ([]*value, error) {
	known, bytesIn, bytesOut := true, 0, 0
	for _, v := range in {
		known = known && (v == nil || v.known)
		if v != nil {
			bytesIn += v.spec.Bytes()
		}
	}
	for _, s := range out {
		bytesOut += s.Bytes()
	}
	_, view := op.(ops.Viewer)
	if known && (view || bytesOut <= max(2*bytesIn, largestFold)) {
		return l.fold.emit(c, op, in, out)
	}
	vs := make([]graph.Value, len(in))
	for i, v := range in {
		if v != nil {
			vs[i] = l.valueOf(c, v)
		}
	}
	name := c.n.Name
	if name == "" && len(c.n.Out) > 0 {
		name = c.n.Out[0]
	}
	if c.emitted > 0 {
		name = fmt.Sprintf("%s/%d", name, c.emitted)
	}
	made := l.g.ApplyAll(name, op, vs...)
	if err := l.g.Err(); err != nil {
		return nil, err
	}
	outs := make([]*value, len(made))
	for i, v := range made {
		outs[i] = &value{elem: elemOf(v.Spec().DType), spec: v.Spec(), node: v, owner: l.g}
	}
	return outs, nil
}

// valueOf returns a value of the graph for a value of the machine.
func (l *lowering) valueOf(c *call, v *value) graph.Value {
	if v.owner == l.g {
		return v.node
	}
	if !v.known {
		c.fail("a value of another graph")
	}
	v.node, v.owner = l.g.SharedConstant(fmt.Sprintf("%s.const", c.n.Title()), v.constant()), l.g
	return v.node
}
