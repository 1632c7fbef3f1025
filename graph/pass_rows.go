package graph

import (
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// selectRowsEarly moves a choice of rows in front of what works row by row and whose other rows nobody reads. A language model wants the logits of the last token
// only: its last layer need not compute the others.
func selectRowsEarly(g *Graph, _ *passContext) (int, error) {
	changes := 0
	for i := 0; i < len(g.nodes); i++ {
		if _, ok := g.nodes[i].op.(shape.GetRows); !ok {
			continue
		}
		n, err := g.sinkRows(i)
		if err != nil {
			return changes, err
		}
		if n > 0 {
			changes += n
			i = -1 // positions have changed
		}
	}
	return changes, nil
}

// sinkRows moves the choice of rows at a node, and returns how many nodes it passed.
func (g *Graph) sinkRows(at int) (int, error) {
	x, ids, y := g.nodes[at].in[0], g.nodes[at].in[1], g.nodes[at].out[0]
	if s := g.values[x].spec; g.values[ids].spec.Rank != 1 || s.DType != tensor.F32 || g.values[ids].spec.Dims[0] > s.Dims[0] || g.values[x].constant != nil {
		return 0, nil
	}
	// The nodes that need compute the chosen rows only: readers come first.
	readers := make([]int, len(g.values)) // that are not in the region
	for i, n := range g.nodes {
		for _, v := range n.in {
			if v >= 0 && i != at {
				readers[v]++
			}
		}
	}
	for _, o := range g.outputs {
		readers[o.value]++
	}
	region := map[int][]bool{} // by node: which inputs are rows
	chosen := map[int]bool{x: true}
	for i := at - 1; i >= 0; i-- {
		n := &g.nodes[i]
		if len(n.out) != 1 || !chosen[n.out[0]] || readers[n.out[0]] > 0 {
			continue
		}
		in, ok := g.rowwise(n)
		if !ok {
			continue
		}
		region[i] = in
		for j, v := range n.in {
			if v >= 0 {
				readers[v]--
			}
			if in[j] {
				chosen[v] = true
			}
		}
	}
	p := g.values[x].producer
	if p < 0 || region[p] == nil {
		return 0, nil
	}
	made := map[int]bool{} // values of the region
	for i := range region {
		made[g.nodes[i].out[0]] = true
		if i <= g.values[ids].producer {
			return 0, nil // the choice is made too late
		}
	}
	for i, in := range region {
		for j, v := range g.nodes[i].in {
			// What comes from outside must be something that rows can be taken of, and must not have been updated in place by the time it is read.
			if in[j] && !made[v] && (g.values[v].spec.DType != tensor.F32 || g.stale(v)) {
				return 0, nil
			}
		}
	}
	name := g.nodes[at].name
	taken := map[int]int{} // by value: its chosen rows
	var nodes []node
	for i, n := range g.nodes {
		if i == at {
			continue
		}
		if in := region[i]; in != nil {
			for j, v := range n.in {
				if !in[j] || made[v] {
					continue
				}
				if _, ok := taken[v]; !ok {
					spec := g.values[v].spec
					spec.Dims[0] = g.values[ids].spec.Dims[0]
					label := name + "." + g.values[v].name
					taken[v] = g.add(value{name: label, spec: spec, producer: -1}).index()
					nodes = append(nodes, node{name: label, op: shape.GetRows{}, in: []int{v, ids}, out: []int{taken[v]}})
				}
				n.in[j] = taken[v]
			}
			g.values[n.out[0]].spec.Dims[0] = g.values[ids].spec.Dims[0]
		}
		nodes = append(nodes, n)
	}
	g.nodes = nodes
	g.values[y].producer = -1
	g.redirect(y, x)
	for i, n := range g.nodes {
		for _, v := range n.out {
			g.values[v].producer = i
		}
	}
	return len(region), nil
}

// rowwise reports whether every row of a node's matrix depends on the same row of some of its inputs, and on nothing else that has rows; and which inputs these are.
func (g *Graph) rowwise(n *node) ([]bool, bool) {
	out := g.values[n.out[0]].spec
	rows := make([]bool, len(n.in))
	if out.Rank != 2 || n.in[0] < 0 {
		return nil, false
	}
	vector := func(v int) bool {
		s := g.values[v].spec
		return s.Rank < 2 || s.Rank == 2 && s.Dims[0] == 1 && out.Dims[0] != 1
	}
	like := func(v int) bool {
		s := g.values[v].spec
		return s.Rank == 2 && s.Dims == out.Dims
	}
	first := g.values[n.in[0]].spec
	switch op := n.op.(type) {
	case matmul.Op:
		if op.Epilogue.RowScale || first.Rank != 2 || g.values[n.in[1]].constant == nil || g.values[n.in[1]].spec.Rank != 2 {
			return nil, false
		}
		rows[0] = true
		if _, _, _, residual, _ := op.Operands(); residual >= 0 {
			if !like(n.in[residual]) {
				return nil, false
			}
			rows[residual] = true
		}
	case norm.RMS, norm.Layer:
		for _, v := range n.in[1:] {
			if v >= 0 && !vector(v) {
				return nil, false
			}
		}
		rows[0] = true
	case elementwise.Cast:
		rows[0] = !op.To.IsBlock() && !first.DType.IsBlock()
		return rows, rows[0]
	case elementwise.Activate, elementwise.Scale, elementwise.Unary:
		rows[0] = true
	case elementwise.Binary, elementwise.GLU:
		for j, v := range n.in {
			switch {
			case v < 0:
				return nil, false
			case like(v):
				rows[j] = true
			case !vector(v):
				return nil, false
			}
		}
		return rows, rows[0] || rows[1]
	default:
		return nil, false
	}
	return rows, true
}
