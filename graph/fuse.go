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

	sizes [MaxSymbols + 1]ops.Sizes // by trial, see trials
	tried [MaxSymbols + 1][]tried   // by trial and value
}

// tried is what a value is in a trial, as long as most is what it is for the largest sizes.
type tried struct{ most, spec tensor.Spec }

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

// isRow reports whether a value is a f32 vector along the innermost dimension of x, for all sizes.
func (f *fuser) isRow(v, x int) bool {
	s := f.values[v].spec
	if s.Rank > 1 && f.values[v].constant == nil && len(f.symbols) > 0 {
		return false // a size of 1 may be a symbolic one, which some run makes 0
	}
	if s.DType != tensor.F32 || s.Rank == 0 || f.values[x].spec.Rank == 0 {
		return false
	}
	row := func(s, x tensor.Spec) bool { return s.Elems() == x.Dim(-1) && s.Dim(-1) == x.Dim(-1) }
	return row(s, f.values[x].spec) && f.everywhere(v, x, row)
}

// sameSpec reports whether two values have the same type and shape, for all sizes: two symbols of one maximum are two sizes, and where a run
// makes one of them 1, what was element by element broadcasts.
func (f *fuser) sameSpec(a, b int) bool {
	return f.values[a].spec == f.values[b].spec && (a == b || f.everywhere(a, b, func(a, b tensor.Spec) bool { return a == b }))
}

// everywhere reports whether a relation of two values holds in all trials. Sizes at which a value cannot be computed say nothing of it: no
// run has them, as where symbols depend on each other.
func (f *fuser) everywhere(a, b int, holds func(a, b tensor.Spec) bool) bool {
	for t := range f.trials() {
		x, y := f.specAt(a, t), f.specAt(b, t)
		if x.DType != tensor.Invalid && y.DType != tensor.Invalid && !holds(x, y) {
			return false
		}
	}
	return true
}

// trials returns the number of sets of sizes, beside the largest ones, at which shapes are compared: each symbol alone at 1, or at 0 where it
// has no other size, and all of them together.
func (f *fuser) trials() int {
	if n := len(f.symbols); n > 1 {
		return n + 1
	}
	return len(f.symbols)
}

// specAt returns the spec of a value in a trial; the zero one if it cannot be computed.
func (f *fuser) specAt(v, trial int) tensor.Spec {
	if n := len(f.values); len(f.tried[trial]) < n {
		f.tried[trial] = append(f.tried[trial], make([]tried, n-len(f.tried[trial]))...)
	}
	if most := f.values[v].spec; f.tried[trial][v].most != most {
		f.tried[trial][v] = tried{most, f.inferAt(v, trial)}
	}
	return f.tried[trial][v].spec
}

func (f *fuser) inferAt(v, trial int) tensor.Spec {
	value := &f.values[v]
	if value.constant != nil {
		return value.spec
	}
	sizes := f.sizesOf(trial)
	if value.producer < 0 {
		dims := make([]int, len(value.dims))
		for i, d := range value.dims {
			dims[i], _ = d.Value(sizes) // all symbols are there
		}
		spec, err := tensor.CheckDims(value.spec.DType, dims)
		if err != nil {
			return tensor.Spec{}
		}
		return spec
	}
	n := &f.nodes[value.producer]
	return f.resultAt(n.op, n.in, trial, slices.Index(n.out, v))
}

// resultAt returns the spec of an output of an op in a trial; the zero one if it cannot be computed.
func (f *fuser) resultAt(op ops.Op, inputs []int, trial, at int) tensor.Spec {
	in := make([]tensor.Spec, len(inputs))
	for i, x := range inputs {
		if x < 0 {
			continue
		}
		if in[i] = f.specAt(x, trial); in[i].DType == tensor.Invalid {
			return tensor.Spec{}
		}
	}
	op, err := ops.Resolve(op, f.sizesOf(trial))
	if err != nil {
		return tensor.Spec{}
	}
	out, err := op.Infer(in)
	if err != nil {
		return tensor.Spec{}
	}
	return out[at]
}

func (f *fuser) sizesOf(trial int) ops.Sizes {
	sizes := f.sizes[trial]
	if sizes == nil {
		sizes = f.largest()
		for i, s := range f.symbols {
			if i == trial || trial == len(f.symbols) {
				sizes[s.name] = min(1, s.max-1)
			}
		}
		f.sizes[trial] = sizes
	}
	return sizes
}

// scalar returns the value of a constant of one element.
func (g *Graph) scalar(v int) (float64, bool) {
	if v < 0 || g.values[v].constant == nil || g.values[v].spec.Elems() != 1 || g.values[v].spec.DType.IsBlock() {
		return 0, false
	}
	return g.values[v].constant.Tensor.Floats()[0], true
}
