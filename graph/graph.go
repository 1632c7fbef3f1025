// Package graph decides how operations become something that runs: a builder with symbolic sizes, passes that simplify and fuse,
// placement on backends with the reasons kept, a memory plan, and an executable that allocates nothing once it is warm.
//
// A graph is built once, compiled for a list of backends, and run many times:
//
//	g := graph.New("mlp")
//	x := g.Input("x", tensor.F32, g.Symbol("batch", 64), ops.Const(784))
//	y := g.Apply("fc", matmul.Op{}, x, g.Constant("w", w))
//	g.Output("y", y)
//	exe, err := g.Compile(ctx, graph.Options{Backends: []backends.Backend{cpu}})
//
// Operations are the types of the packages below ops that implement [ops.Op]: matmul, conv, elementwise (activations too), norm, attention (softmax too), reduce, shape and
// others.
package graph

import (
	"errors"
	"fmt"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// MaxSymbols is the largest number of symbolic sizes of a graph.
const MaxSymbols = 8

// Graph is a program of operations under construction. Its methods keep the first error, which names the node, and Err and
// Compile return it: a builder needs no check after each call.
type Graph struct {
	name    string
	values  []value
	nodes   []node
	inputs  []int
	outputs []output
	symbols []symbol
	err     error
}

type symbol struct {
	name string
	max  int
}

type output struct {
	name  string
	value int
}

type value struct {
	name     string
	spec     tensor.Spec // for the largest symbolic sizes
	dims     []ops.Size  // of an input
	constant *ops.Constant
	producer int // node, or -1
	replaced bool
}

type node struct {
	name    string
	op      ops.Op
	in, out []int
	fused   []string // nodes as built that passes made part of it
}

// Value is a tensor of the graph under construction. The zero Value is an absent optional input.
type Value struct {
	g  *Graph
	id int // 1-based, so that the zero Value is none
}

func (v Value) index() int { return v.id - 1 }

// Absent reports whether the value is the zero Value.
func (v Value) Absent() bool { return v.id == 0 }

// Spec returns the value's type and shape for the largest symbolic sizes; the zero Spec after an error.
func (v Value) Spec() tensor.Spec {
	if v.id == 0 {
		return tensor.Spec{}
	}
	return v.g.values[v.index()].spec
}

// New returns an empty graph.
func New(name string) *Graph { return &Graph{name: name} }

// Name returns the graph's name.
func (g *Graph) Name() string { return g.name }

// Err returns the first error of building.
func (g *Graph) Err() error { return g.err }

func (g *Graph) fail(format string, args ...any) Value {
	if g.err == nil {
		g.err = fmt.Errorf("graph %s: "+format, append([]any{g.name}, args...)...)
	}
	return Value{}
}

// Symbol declares a symbolic size of at most so much: memory is planned for it.
func (g *Graph) Symbol(name string, most int) ops.Size {
	for i, s := range g.symbols {
		if s.name == name {
			g.symbols[i].max = max(s.max, most)
			return ops.Size{Sym: name}
		}
	}
	if len(g.symbols) == MaxSymbols {
		g.fail("symbol %q: at most %d symbolic sizes are possible", name, MaxSymbols)
	}
	if most < 1 {
		g.fail("symbol %q: its maximum is %d", name, most)
	}
	g.symbols = append(g.symbols, symbol{name, most})
	return ops.Size{Sym: name}
}

func (g *Graph) largest() ops.Sizes {
	sizes := ops.Sizes{}
	for _, s := range g.symbols {
		sizes[s.name] = s.max
	}
	return sizes
}

func (g *Graph) add(v value) Value {
	g.values = append(g.values, v)
	return Value{g, len(g.values)}
}

// Input declares a tensor that is bound before a run.
func (g *Graph) Input(name string, d tensor.DType, dims ...ops.Size) Value {
	for _, i := range g.inputs {
		if g.values[i].name == name {
			return g.fail("input %q is declared twice", name)
		}
	}
	shape := make([]int, len(dims))
	for i, s := range dims {
		n, err := s.Value(g.largest())
		if err != nil {
			return g.fail("input %q: %w", name, err)
		}
		shape[i] = n
	}
	spec, err := tensor.CheckDims(d, shape)
	if err != nil {
		return g.fail("input %q: %w", name, err)
	}
	v := g.add(value{name: name, spec: spec, dims: append([]ops.Size(nil), dims...), producer: -1})
	g.inputs = append(g.inputs, v.index())
	return v
}

// Constant adds a weight. The tensor must not change, nor its memory go away, while the graph or an executable of it is in use.
func (g *Graph) Constant(name string, t tensor.Tensor) Value {
	return g.SharedConstant(name, ops.NewConstant(t))
}

// SharedConstant adds a weight that other graphs use too: what backends prepare of it is prepared once.
func (g *Graph) SharedConstant(name string, c *ops.Constant) Value {
	if c == nil {
		return g.fail("constant %q is nil", name)
	}
	err := c.Tensor.Check()
	if err == nil {
		err = c.Tensor.CheckMemory()
	}
	if err != nil {
		return g.fail("constant %q: %w", name, err)
	}
	return g.add(value{name: name, spec: c.Tensor.Spec, constant: c, producer: -1})
}

// Apply adds a node with one output and returns it. The name stands in errors, profiles and listings.
func (g *Graph) Apply(name string, op ops.Op, in ...Value) Value {
	out := g.ApplyAll(name, op, in...)
	if len(out) == 0 {
		return Value{}
	}
	return out[0]
}

// ApplyAll adds a node and returns all of its outputs; nil after an error.
func (g *Graph) ApplyAll(name string, op ops.Op, in ...Value) []Value {
	if g.err != nil {
		return nil
	}
	if op == nil {
		g.fail("node %q: no op", name)
		return nil
	}
	n := node{name: name, op: op}
	specs := make([]tensor.Spec, len(in))
	for i, v := range in {
		if v.id == 0 {
			n.in = append(n.in, -1)
			continue
		}
		if v.g != g {
			g.fail("node %q: input %d belongs to another graph", name, i)
			return nil
		}
		if g.stale(v.index()) {
			g.fail("node %q: input %d (%s) has been updated in place; use the update's output", name, i, g.values[v.index()].name)
			return nil
		}
		n.in = append(n.in, v.index())
		specs[i] = v.Spec()
	}
	resolved, err := ops.Resolve(op, g.largest())
	if err != nil {
		g.fail("node %q: %w", name, err)
		return nil
	}
	outs, err := resolved.Infer(specs)
	if err != nil {
		g.fail("node %q: %w", name, err)
		return nil
	}
	if _, updates := op.(ops.Updater); updates {
		if root := g.root(n.in[0]); g.values[root].constant != nil {
			g.fail("node %q: input 0 (%s) is a constant, which cannot be updated in place", name, g.values[root].name)
			return nil
		}
		g.replace(n.in[0])
	}
	var result []Value
	for i, s := range outs {
		label := name
		if len(outs) > 1 {
			label = fmt.Sprintf("%s.%d", name, i)
		}
		v := g.add(value{name: label, spec: s, producer: len(g.nodes)})
		n.out = append(n.out, v.index())
		result = append(result, v)
	}
	g.nodes = append(g.nodes, n)
	return result
}

// root follows views to the value whose memory they show.
func (g *Graph) root(id int) int {
	for shown := g.shown(id); shown >= 0; shown = g.shown(id) {
		id = shown
	}
	return id
}

// shown returns the value that a view shows, or -1 if the value is no view.
func (g *Graph) shown(id int) int {
	if p := g.values[id].producer; p >= 0 {
		if _, view := g.nodes[p].op.(ops.Viewer); view {
			return g.nodes[p].in[0]
		}
	}
	return -1
}

// replace marks a value, and the views between it and its memory, as no longer readable.
func (g *Graph) replace(id int) {
	for ; id >= 0; id = g.shown(id) {
		g.values[id].replaced = true
	}
}

// stale reports whether the memory of a value, which may be a view, has been updated in place since the value was made.
func (g *Graph) stale(id int) bool {
	for ; id >= 0; id = g.shown(id) {
		if g.values[id].replaced {
			return true
		}
	}
	return false
}

// Output names a value that is read after a run.
func (g *Graph) Output(name string, v Value) {
	switch {
	case g.err != nil:
	case v.id == 0 || v.g != g:
		g.fail("output %q is not a value of the graph", name)
	default:
		for _, o := range g.outputs {
			if o.name == name {
				g.fail("output %q is declared twice", name)
				return
			}
		}
		g.outputs = append(g.outputs, output{name, v.index()})
	}
}

// Inputs returns the inputs in the order of their declaration.
func (g *Graph) Inputs() []Value { return g.handles(g.inputs) }

// Outputs returns the outputs in the order of their declaration.
func (g *Graph) Outputs() []Value {
	ids := make([]int, len(g.outputs))
	for i, o := range g.outputs {
		ids[i] = o.value
	}
	return g.handles(ids)
}

// Lookup returns the input or output with the given name; absent if there is none.
func (g *Graph) Lookup(name string) Value {
	for _, o := range g.outputs {
		if o.name == name {
			return Value{g, o.value + 1}
		}
	}
	for _, i := range g.inputs {
		if g.values[i].name == name {
			return Value{g, i + 1}
		}
	}
	return Value{}
}

func (g *Graph) handles(ids []int) []Value {
	out := make([]Value, len(ids))
	for i, id := range ids {
		out[i] = Value{g, id + 1}
	}
	return out
}

// Nodes returns the number of nodes.
func (g *Graph) Nodes() int { return len(g.nodes) }

// Close releases what backends prepared from the graph's constants. Executables must be closed before.
func (g *Graph) Close() error {
	var errs []error
	for i := range g.values {
		if c := g.values[i].constant; c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// clone returns a graph that passes may change: nodes and values are copied, constants shared.
func (g *Graph) clone() *Graph {
	c := *g
	c.values = append([]value(nil), g.values...)
	c.nodes = make([]node, len(g.nodes))
	for i, n := range g.nodes {
		c.nodes[i] = node{n.name, n.op, append([]int(nil), n.in...), append([]int(nil), n.out...), append([]string(nil), n.fused...)}
	}
	c.inputs = append([]int(nil), g.inputs...)
	c.outputs = append([]output(nil), g.outputs...)
	return &c
}

// specs returns the specs of a node's inputs at the largest sizes.
func (g *Graph) specs(ids []int) []tensor.Spec {
	out := make([]tensor.Spec, len(ids))
	for i, id := range ids {
		if id >= 0 {
			out[i] = g.values[id].spec
		}
	}
	return out
}
