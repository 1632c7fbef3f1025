package graph

import (
	"io"
	"slices"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

const (
	// siblingBytes bounds the weights that are joined: joined weights are a copy, which takes memory and time at the start and is not kept in a file of packed
	// weights, and what joining saves (reading and converting the input once, a call, a dispatch of an accelerator) is lost in products of large ones.
	siblingBytes = 256 << 10
	// maxSiblings bounds the products that are joined.
	maxSiblings = 4
)

// joinSiblings makes products of one input with small constant weights, such as those of queries, keys and values, one product with columns for all. What they
// gave become views of its columns. Only results that are cut into heads or the like are taken: what works on heads takes them as they lie, but an activation wants
// one long row.
func joinSiblings(g *Graph, _ *passContext) (int, error) {
	plain := map[int]bool{} // values that something else than a view reads
	for _, o := range g.outputs {
		plain[o.value] = true
	}
	for _, n := range g.nodes {
		if _, view := n.op.(ops.Viewer); view {
			continue
		}
		for _, v := range n.in {
			plain[v] = true
		}
	}
	groups := map[int][]int{} // by input: groups of nodes, in order
	var order []int
	for i, n := range g.nodes {
		if !g.joinable(&n) || plain[n.out[0]] {
			continue
		}
		if groups[n.in[0]] == nil {
			order = append(order, n.in[0])
		}
		groups[n.in[0]] = append(groups[n.in[0]], i)
	}
	joined := map[int]joint{} // by the node that comes first
	part := map[int]int{}     // by node: where its columns begin
	changes := 0
	for _, v := range order {
		for rest := groups[v]; len(rest) > 1; {
			var group, others []int
			bytes := 0
			for _, i := range rest {
				b := g.values[g.nodes[i].in[1]].spec.Bytes()
				if len(group) < maxSiblings && bytes+b <= siblingBytes && (len(group) == 0 || g.alike(group[0], i)) {
					group, bytes = append(group, i), bytes+b
				} else {
					others = append(others, i)
				}
			}
			if len(group) == 0 { // the first is too large for itself
				others = others[1:]
			}
			rest = others
			if len(group) < 2 {
				continue
			}
			if err := g.join(group, joined, part); err != nil {
				return changes, err
			}
			changes += len(group) - 1
		}
	}
	if changes == 0 {
		return 0, nil
	}
	// The joint product stands where the first of its parts stood; every part becomes a view of it.
	var nodes []node
	source := map[int]int{} // by node: the joint value
	for i, n := range g.nodes {
		if j, ok := joined[i]; ok {
			nodes = append(nodes, j.node)
			for _, at := range j.group {
				source[at] = j.node.out[0]
			}
		}
		if from, ok := part[i]; ok {
			width := g.values[n.out[0]].spec.Dim(-1)
			n.op, n.in = shape.Slice{Axis: -1, From: ops.Const(from), To: ops.Const(from + width), Step: 1}, []int{source[i]}
			n.fused = nil // of the joint product now
		}
		nodes = append(nodes, n)
	}
	g.nodes = nodes
	for i, n := range g.nodes {
		for _, v := range n.out {
			g.values[v].producer = i
		}
	}
	return changes, nil
}

// joint is a product for several.
type joint struct {
	node  node
	group []int
}

// joinable reports whether a node is a product with a constant matrix, and no more than a bias behind it.
func (g *Graph) joinable(n *node) bool {
	op, ok := n.op.(matmul.Op)
	if !ok || op.Epilogue != (matmul.Epilogue{Bias: op.Epilogue.Bias}) || op.Out.IsBlock() {
		return false
	}
	w := &g.values[n.in[1]]
	if w.constant == nil || w.spec.Rank != 2 || !op.TransB && w.spec.DType.IsBlock() {
		return false
	}
	_, _, bias, _, _ := op.Operands()
	return bias < 0 || g.values[n.in[bias]].constant != nil && g.values[n.in[bias]].spec.Rank == 1
}

// alike reports whether two products differ in their weights and biases only.
func (g *Graph) alike(i, j int) bool {
	a, b := &g.nodes[i], &g.nodes[j]
	return a.op == b.op && g.values[a.in[1]].spec.DType == g.values[b.in[1]].spec.DType
}

// joinKey names joint weights among the forms of the first: every executable and every graph that joins the same weights shares them.
type joinKey struct {
	axis int
	rest [maxSiblings - 1]*ops.Constant
}

// join makes one product of a group.
func (g *Graph) join(group []int, joined map[int]joint, part map[int]int) error {
	first := &g.nodes[group[0]]
	op := first.op.(matmul.Op)
	_, _, bias, _, _ := op.Operands()
	axis := 1
	if op.TransB {
		axis = 0
	}
	operand := func(at, axis int) (int, error) {
		var constants []*ops.Constant
		for _, i := range group {
			constants = append(constants, g.values[g.nodes[i].in[at]].constant)
		}
		key := joinKey{axis: axis}
		copy(key.rest[:], constants[1:])
		form, err := constants[0].Prepare(key, func() (any, error) { return concatenate(constants, axis) })
		if err != nil {
			return 0, err
		}
		c := form.(*ops.Constant)
		v := g.values[first.in[at]]
		v.name, v.spec, v.constant = v.name+" and more", c.Tensor.Spec, c
		return g.add(v).index(), nil
	}
	in := slices.Clone(first.in)
	var err error
	if in[1], err = operand(1, axis); err != nil {
		return err
	}
	if bias >= 0 {
		if in[bias], err = operand(bias, 0); err != nil {
			return err
		}
	}
	at, name := 0, ""
	var fused []string
	for _, i := range group {
		fused = append(fused, g.nodes[i].fused...)
		part[i] = at
		at += g.values[g.nodes[i].out[0]].spec.Dim(-1)
		if name != "" {
			name += "+"
		}
		name += g.nodes[i].name
	}
	out := g.values[first.out[0]]
	out.name = name
	out.spec.Dims[out.spec.Rank-1] = at
	joined[group[0]] = joint{node{name, op, in, []int{g.add(out).index()}, fused}, group}
	return nil
}

// concatenate returns a constant that holds others, one behind the other along an axis.
func concatenate(parts []*ops.Constant, axis int) (*ops.Constant, error) {
	spec := parts[0].Tensor.Spec
	spec.Dims[axis] = 0
	for _, c := range parts {
		spec.Dims[axis] += c.Tensor.Dims[axis]
	}
	all, err := tensor.NewChecked(spec.DType, spec.Shape()...)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, c := range parts {
		n := c.Tensor.Dims[axis]
		to, err := all.Slice(axis, at, at+n, 1)
		if err != nil {
			return nil, err
		}
		if err := tensor.Copy(to, c.Tensor); err != nil {
			return nil, err
		}
		at += n
	}
	joined := ops.NewConstant(all)
	for _, c := range parts {
		if c.Origin == nil {
			return joined, nil
		}
	}
	for _, c := range parts {
		if c.Tensor.IsContiguous() {
			c.Origin.Consumed(c.Tensor.Raw())
		}
	}
	joined.Origin = copied{}
	return joined, nil
}

// copied is the origin of a copy of constants that have one: backends may do with it what they do with those, but nothing is kept or given back.
type copied struct{}

func (copied) Kept(string, int) []byte  { return nil }
func (copied) Keep(string, io.WriterTo) {}
func (copied) Consumed([]byte)          {}
