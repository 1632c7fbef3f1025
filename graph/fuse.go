package graph

import (
	"slices"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// A fuser finds nodes that one op can replace. The value that the last of them makes keeps its identity: readers see no change.
type fuser struct {
	*Graph
	count []int // uses of every value, see recount
	drop  []bool
	fused int
}

func newFuser(g *Graph) *fuser {
	f := &fuser{Graph: g, drop: make([]bool, len(g.nodes))}
	f.recount()
	return f
}

func (f *fuser) finish() (int, error) {
	f.removeNodes(f.drop)
	return f.fused, nil
}

// maker returns the node that makes a value which nobody else reads and which may be computed later than where it stands: it
// may become part of its reader.
func (f *fuser) maker(v int) (*node, bool) {
	if v < 0 || f.count[v] != 1 {
		return nil, false
	}
	p := f.values[v].producer
	if p < 0 || f.drop[p] {
		return nil, false
	}
	n := &f.nodes[p]
	if _, updates := n.op.(ops.Updater); updates {
		return nil, false
	}
	for _, in := range n.in {
		if in >= 0 && f.stale(in) {
			return nil, false // it must be read before the update, which may stand between the two nodes
		}
	}
	return n, true
}

// replaceNode puts one op in the place of node at; the makers are absorbed. The node keeps its name, and those of the makers in fused.
func (f *fuser) replaceNode(at int, op ops.Op, in []int, absorbed ...*node) {
	var makers []int
	for _, n := range absorbed {
		i := f.values[n.out[0]].producer
		f.drop[i] = true
		makers = append(makers, i)
	}
	slices.Sort(makers)
	var fused []string
	for _, i := range slices.Compact(makers) {
		fused = append(append(fused, f.nodes[i].fused...), f.nodes[i].name)
	}
	f.nodes[at].fused = append(fused, f.nodes[at].fused...)
	f.nodes[at].op = op
	f.nodes[at].in = in
	f.fused++
	f.recount()
}

// recount counts, for every value, the inputs of nodes that are left and the outputs of the graph that it is.
func (f *fuser) recount() {
	f.count = make([]int, len(f.values))
	for i, n := range f.nodes {
		if f.drop[i] {
			continue
		}
		for _, v := range n.in {
			if v >= 0 {
				f.count[v]++
			}
		}
	}
	for _, o := range f.outputs {
		f.count[o.value]++
	}
}

// isRow reports whether a value is a f32 vector along the innermost dimension of n elements, for all sizes.
func (g *Graph) isRow(v, n int) bool {
	s := g.values[v].spec
	if s.Rank > 1 && g.values[v].constant == nil && len(g.symbols) > 0 {
		return false // a size of 1 may be a symbolic one, which some run makes 0
	}
	return s.DType == tensor.F32 && s.Rank > 0 && s.Elems() == n && s.Dim(-1) == n
}

// scalar returns the value of a constant of one element.
func (g *Graph) scalar(v int) (float64, bool) {
	if v < 0 || g.values[v].constant == nil || g.values[v].spec.Elems() != 1 || g.values[v].spec.DType.IsBlock() {
		return 0, false
	}
	return g.values[v].constant.Tensor.Floats()[0], true
}
