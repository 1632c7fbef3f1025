package graph

import (
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/norm"
)

// fuseNorm gives a root-mean-square norm the weight that it is multiplied by afterwards.
func fuseNorm(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		n := &f.nodes[i]
		mul, ok := n.op.(elementwise.Binary)
		if !ok || mul.F != elementwise.Mul {
			continue
		}
		for side := 0; side < 2; side++ {
			x, w := n.in[side], n.in[1-side]
			m, ok := f.maker(x)
			if !ok || w < 0 || len(m.in) != 1 {
				continue
			}
			if op, ok := m.op.(norm.RMS); ok && f.isRow(w, x) && f.sameSpec(n.out[0], x) {
				f.replaceNode(i, op, []int{m.in[0], w}, m)
				break
			}
		}
	}
	return f.finish()
}

// fuseGLU computes act(gate) * up in one pass over both.
func fuseGLU(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		n := &f.nodes[i]
		mul, ok := n.op.(elementwise.Binary)
		if !ok || mul.F != elementwise.Mul {
			continue
		}
		for side := 0; side < 2; side++ {
			gate, up := n.in[side], n.in[1-side]
			m, ok := f.maker(gate)
			if !ok || up < 0 || up == gate {
				continue
			}
			if op, ok := m.op.(elementwise.Activate); ok && f.sameSpec(up, gate) {
				f.replaceNode(i, elementwise.GLU(op), []int{m.in[0], up}, m)
				break
			}
		}
	}
	return f.finish()
}
