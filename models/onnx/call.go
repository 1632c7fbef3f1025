package onnx

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// call is one call of an operator: what a definition sees. Its methods end the call by a panic with a *failure, which the
// machine turns into an error that names the node; definitions read straight on.
type call struct {
	r       *runner
	n       *Node
	version int // the definition's version that holds
	ins     []*value
	outs    []*value
	scope   *frame
	emitted int
}

// failure ends a call.
type failure struct {
	err     error
	dynamic bool // the lowering machine would need a value that it has not
}

func (c *call) fail(format string, args ...any) {
	panic(&failure{err: fmt.Errorf(format, args...)})
}

func (c *call) check(err error) {
	if err != nil {
		panic(&failure{err: err})
	}
}

// has reports whether optional input i is there.
func (c *call) has(i int) bool { return i < len(c.ins) && c.ins[i] != nil }

// wants reports whether output i is asked for.
func (c *call) wants(i int) bool { return i < len(c.n.Out) && c.n.Out[i] != "" }

// any returns input i, which must be there, of whatever kind.
func (c *call) any(i int) *value {
	if !c.has(i) {
		c.fail("input %d is absent", i)
	}
	return c.ins[i]
}

// in returns input i, which must be a tensor of numbers.
func (c *call) in(i int) *value {
	v := c.any(i)
	if v.kind != numbers {
		c.fail("input %d is a %v, a tensor of numbers is right", i, v.kind)
	}
	return v
}

// opt returns input i, or nil where it is absent.
func (c *call) opt(i int) *value {
	if !c.has(i) {
		return nil
	}
	return c.in(i)
}

// numIn returns an error unless there are between least and most inputs.
func (c *call) numIn(least, most int) {
	if len(c.ins) < least || len(c.ins) > most {
		c.fail("%d inputs, %d to %d are right", len(c.ins), least, most)
	}
}

// out sets the outputs.
func (c *call) out(vs ...*value) { c.outs = vs }

// emit applies an operation and returns its first output.
func (c *call) emit(op ops.Op, in ...*value) *value { return c.emitAll(op, in...)[0] }

// emitAll applies an operation: the machine computes it, or adds it to a graph.
func (c *call) emitAll(op ops.Op, in ...*value) []*value {
	specs := make([]tensor.Spec, len(in))
	for i, v := range in {
		if v == nil {
			continue
		}
		if v.kind != numbers {
			c.fail("a %v where a tensor of numbers is right", v.kind)
		}
		specs[i] = v.spec
	}
	out, err := op.Infer(specs)
	c.check(err)
	empty := true
	for _, s := range out {
		c.check(s.Check())
		empty = empty && s.Elems() == 0
	}
	if empty { // nothing to compute, however large the other dimensions are
		outs := make([]*value, len(out))
		for i, s := range out {
			outs[i] = knownValue(c.alloc(s.DType, s.Shape()...))
		}
		c.emitted++
		return outs
	}
	outs, err := c.r.m.emit(c, op, in, out)
	c.check(err)
	c.emitted++
	return outs
}

// data returns the elements of a value, which the lowering machine may not have.
func (c *call) data(v *value) tensor.Tensor {
	if !v.known {
		panic(&failure{err: fmt.Errorf("needs the elements of %v, which depend on what the model is fed", v), dynamic: true})
	}
	return v.data
}

// ints returns the elements of an integer tensor as ints.
func (c *call) ints(v *value) []int {
	if v.kind != numbers || !v.spec.DType.IsInt() && v.spec.DType != tensor.Bool {
		c.fail("%v, integers are right", v)
	}
	t := c.data(v)
	out := make([]int, t.Elems())
	for i, x := range t.Ints() {
		out[i] = int(x)
		if int64(out[i]) != x {
			c.fail("%d is no size on this machine", x)
		}
	}
	return out
}

// scalar returns the one element of a tensor.
func (c *call) scalar(v *value) float64 {
	t := c.data(v)
	if t.Elems() != 1 {
		c.fail("%v, one element is right", v)
	}
	return t.Floats()[0]
}

// int returns the one element of an integer tensor.
func (c *call) int(v *value) int {
	l := c.ints(v)
	if len(l) != 1 {
		c.fail("%v, one element is right", v)
	}
	return l[0]
}

// alloc returns zeroed memory for a result that a definition computes itself, counted against the memory limit.
func (c *call) alloc(d tensor.DType, dims ...int) tensor.Tensor {
	s, err := tensor.CheckDims(d, dims)
	c.check(err)
	t, err := c.r.allocate(s)
	c.check(err)
	return t
}

// room fails if n things of some bytes exceed the memory limit: for what a definition makes that is no tensor.
func (c *call) room(n, bytes int) {
	total, ok := mem.Mul(n, bytes)
	if limit := c.r.limit; !ok || limit > 0 && int64(total) > limit {
		c.fail("%d things of %d bytes: the limit is %d bytes", n, bytes, limit)
	}
}

// floatsOf makes a known value of float32s.
func (c *call) floatsOf(v []float32, dims ...int) *value { return knownValue(tensor.Of(v, dims...)) }

// scalarOf makes a known scalar of a type.
func (c *call) scalarOf(d tensor.DType, v float64) *value {
	t := tensor.New(d)
	t.SetFloats([]float64{v})
	return knownValue(t)
}

// attr returns an attribute of the right type, or nil.
func (c *call) attr(name string, t AttrType) *Attr {
	a := c.n.Attr(name)
	if a == nil {
		return nil
	}
	if a.Type != t {
		c.fail("attribute %q has type %d, %d is right", name, a.Type, t)
	}
	return a
}

func (c *call) attrInt(name string, def int) int {
	if a := c.attr(name, AttrInt); a != nil {
		if int64(int(a.I)) != a.I {
			c.fail("attribute %q is %d", name, a.I)
		}
		return int(a.I)
	}
	return def
}

func (c *call) attrBool(name string, def bool) bool {
	if a := c.attr(name, AttrInt); a != nil {
		return a.I != 0
	}
	return def
}

func (c *call) attrFloat(name string, def float32) float32 {
	if a := c.attr(name, AttrFloat); a != nil {
		return a.F
	}
	return def
}

func (c *call) attrString(name, def string) string {
	if a := c.attr(name, AttrString); a != nil {
		return a.S
	}
	return def
}

// attrInts returns a list, and whether it is there.
func (c *call) attrInts(name string) ([]int, bool) {
	a := c.attr(name, AttrInts)
	if a == nil {
		return nil, false
	}
	out := make([]int, len(a.Ints))
	for i, v := range a.Ints {
		out[i] = int(v)
		if int64(out[i]) != v {
			c.fail("attribute %q has %d", name, v)
		}
	}
	return out, true
}

func (c *call) attrFloats(name string) ([]float32, bool) {
	a := c.attr(name, AttrFloats)
	if a == nil {
		return nil, false
	}
	return a.Floats, true
}

func (c *call) attrStrings(name string) ([]string, bool) {
	a := c.attr(name, AttrStrings)
	if a == nil {
		return nil, false
	}
	return a.Strings, true
}

// attrGraph returns a subgraph, which must be there.
func (c *call) attrGraph(name string) *Graph {
	a := c.attr(name, AttrGraph)
	if a == nil {
		c.fail("attribute %q is absent", name)
	}
	return a.G
}

// axis returns an axis that may count from the end as one that counts from the front.
func (c *call) axis(a, rank int) int {
	if a < -rank || a >= rank {
		c.fail("axis %d of %d dimensions", a, rank)
	}
	if a < 0 {
		a += rank
	}
	return a
}

// axesArg returns axes that are an attribute before a version, and an input since.
func (c *call) axesArg(version, input int, name string) ([]int, bool) {
	if c.version < version {
		return c.attrInts(name)
	}
	v := c.opt(input)
	if v == nil {
		return nil, false
	}
	return c.ints(v), true
}

// list makes an ops.Ints, which has room for MaxRank numbers.
func (c *call) list(v []int) ops.Ints {
	if len(v) > tensor.MaxRank {
		c.fail("%d numbers, at most %d are possible", len(v), tensor.MaxRank)
	}
	return ops.MakeInts(v...)
}

// dtype returns the tensor type of an element type.
func (c *call) dtype(e ElemType) tensor.DType {
	d := e.DType()
	if d == tensor.Invalid {
		c.fail("element type %v is not supported here", e)
	}
	return d
}
