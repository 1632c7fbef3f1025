package onnx

import (
	"fmt"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("If", since(1, 11, 13, 16, 19, 21), func(c *call) {
		branch := "else_branch"
		if c.int(c.in(0)) != 0 {
			branch = "then_branch"
		}
		c.out(c.sub(c.attrGraph(branch), nil)...)
	})
	register("Loop", since(1, 11, 13, 16, 19, 21), loop)
	register("Scan", since(8, 9, 11, 16, 19, 21), scan)
}

// maxUnrolled bounds the turns of a loop that are copied into a graph.
const maxUnrolled = 256

// sub runs a subgraph on inputs, in a frame that also sees the values around it.
func (c *call) sub(g *Graph, in []*value) []*value {
	if len(in) > len(g.Inputs) {
		c.fail("a subgraph of %d inputs for %d values", len(g.Inputs), len(in))
	}
	f := newFrame(c.scope)
	for i, v := range in {
		f.values[g.Inputs[i].Name] = v
	}
	outs, err := c.r.graph(g, f)
	if err != nil {
		panic(&failure{err: err, dynamic: isDynamic(err)})
	}
	return outs
}

// turn counts turns of a loop against what may be unrolled.
func (c *call) turn(i int) {
	if _, low := c.r.m.(*lowering); low && i >= maxUnrolled {
		panic(&failure{err: fmt.Errorf("more than %d turns are not unrolled", maxUnrolled), dynamic: true})
	}
	c.check(c.r.ctx.Err())
}

func loop(c *call) {
	body := c.attrGraph("body")
	trips, cond := -1, true
	if v := c.opt(0); v != nil {
		trips = max(c.int(v), 0)
	}
	if v := c.opt(1); v != nil {
		cond = c.int(v) != 0
	}
	var carried []*value
	for i := 2; i < len(c.ins); i++ {
		carried = append(carried, c.any(i))
	}
	scans := make([][]*value, max(len(body.Outputs)-1-len(carried), 0))
	if len(body.Outputs) < 1+len(carried) {
		c.fail("the body has %d outputs for %d carried values", len(body.Outputs), len(carried))
	}
	for i := 0; cond && (trips < 0 || i < trips); i++ {
		c.turn(i)
		in := append([]*value{knownValue(tensor.Of([]int64{int64(i)})), knownValue(tensor.Of([]bool{true}))}, carried...)
		if len(in) != len(body.Inputs) {
			c.fail("the body has %d inputs, %d are right", len(body.Inputs), len(in))
		}
		outs := c.sub(body, in)
		cond = c.int(outs[0]) != 0
		carried = outs[1 : 1+len(carried)]
		for k := range scans {
			scans[k] = append(scans[k], outs[1+len(carried)+k])
		}
	}
	outs := append([]*value{}, carried...)
	for k, list := range scans {
		outs = append(outs, c.stack(list, 0, body.Outputs[1+len(carried)+k]))
	}
	c.out(outs...)
}

// stack puts values behind each other along a new axis. Of none, the declared type gives the shape.
func (c *call) stack(list []*value, axis int, info ValueInfo) *value {
	if len(list) == 0 {
		dims := []int{0}
		d := tensor.F32
		if t := info.Type; t != nil {
			d = c.dtype(t.Elem)
			for _, n := range t.Dims {
				dims = append(dims, max(n.Size, 0))
			}
		}
		return knownValue(c.alloc(d, dims...))
	}
	parts := make([]*value, len(list))
	for i, v := range list {
		dims := v.spec.Shape()
		a := c.axis(axis, len(dims)+1)
		dims = append(dims[:a:a], append([]int{1}, dims[a:]...)...)
		parts[i] = c.reshapeAny(v, dims)
	}
	if parts[0].kind == text {
		return c.concatText(parts, axis)
	}
	return c.concat(c.axis(axis, int(parts[0].spec.Rank)), parts...)
}

// scan iterates over slices of its inputs. In opset 8 it did so for every element of a batch.
func scan(c *call) {
	body := c.attrGraph("body")
	n := c.attrInt("num_scan_inputs", 0)
	ins := c.ins
	if c.version == 8 {
		if len(ins) == 0 || ins[0] != nil {
			c.fail("sequence lengths are not supported")
		}
		ins = ins[1:]
	}
	if n < 1 || n > len(ins) || len(body.Inputs) != len(ins) {
		c.fail("%d inputs of which %d are scanned, the body has %d", len(ins), n, len(body.Inputs))
	}
	states := len(ins) - n
	if len(body.Outputs) < states {
		c.fail("the body has %d outputs for %d states", len(body.Outputs), states)
	}
	for _, v := range ins {
		if v == nil || v.kind != numbers {
			c.fail("inputs are tensors of numbers")
		}
	}
	outs := len(body.Outputs) - states
	list := func(name string, n int) []int {
		v, ok := c.attrInts(name)
		if !ok {
			return make([]int, n)
		}
		if len(v) != n {
			c.fail("attribute %q has %d numbers, %d are right", name, len(v), n)
		}
		return v
	}
	directions := list("directions", n)
	inAxes, outAxes, outDirections := make([]int, n), make([]int, outs), make([]int, outs)
	if c.version > 8 {
		directions = list("scan_input_directions", n)
		inAxes, outAxes, outDirections = list("scan_input_axes", n), list("scan_output_axes", outs), list("scan_output_directions", outs)
	}
	one := func(ins []*value) []*value {
		carried := append([]*value{}, ins[:states]...)
		scans := make([][]*value, outs)
		length := -1
		for i, v := range ins[states:] {
			a := c.axis(inAxes[i], int(v.spec.Rank))
			if length >= 0 && v.spec.Dims[a] != length {
				c.fail("scanned inputs of %d and %d elements", length, v.spec.Dims[a])
			}
			length = v.spec.Dims[a]
		}
		for t := range length {
			c.turn(t)
			args := append([]*value{}, carried...)
			for i, v := range ins[states:] {
				a := c.axis(inAxes[i], int(v.spec.Rank))
				at := t
				if directions[i] == 1 {
					at = length - 1 - t
				}
				dims := v.spec.Shape()
				args = append(args, c.reshape(c.slice(v, a, at, at+1), append(dims[:a:a], dims[a+1:]...)...))
			}
			got := c.sub(body, args)
			carried = got[:states]
			for k := range scans {
				if outDirections[k] == 1 {
					scans[k] = append([]*value{got[states+k]}, scans[k]...)
				} else {
					scans[k] = append(scans[k], got[states+k])
				}
			}
		}
		res := append([]*value{}, carried...)
		for k, s := range scans {
			res = append(res, c.stack(s, outAxes[k], body.Outputs[states+k]))
		}
		return res
	}
	if c.version > 8 {
		c.out(one(ins)...)
		return
	}
	var results [][]*value
	for b := range ins[0].spec.Dims[0] {
		part := make([]*value, len(ins))
		for i, v := range ins {
			if v.spec.Rank < 1 || b >= v.spec.Dims[0] {
				c.fail("input %v has no batch element %d", v, b)
			}
			part[i] = c.reshape(c.slice(v, 0, b, b+1), v.spec.Shape()[1:]...)
		}
		results = append(results, one(part))
	}
	if len(results) == 0 {
		c.fail("an empty batch")
	}
	var final []*value
	for i := range results[0] {
		var parts []*value
		for _, r := range results {
			parts = append(parts, r[i])
		}
		final = append(final, c.stack(parts, 0, ValueInfo{}))
	}
	c.out(final...)
}
