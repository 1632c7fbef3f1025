package graph

import (
	"math"
	"slices"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// channelsLast has images lie with their channels innermost from the first convolution to the last: there a pixel is a row of a
// matrix, and everything by channel is a vector. What stands between convolutions (elementwise operations, concatenation, resizing,
// reductions, ...) follows; where something needs the order of the file, a transposition is inserted, once.
//
// For each image that is computed in the new layout, its twin is the value in that layout; the old value is made from it only if
// somebody still reads it.
func channelsLast(g *Graph, _ *passContext) (int, error) {
	wanted := false
	for _, n := range g.nodes {
		if _, updates := n.op.(ops.Updater); updates {
			return 0, nil // views of state must keep their order of reads and writes
		}
		switch op := n.op.(type) {
		case conv.Conv:
			wanted = wanted || op.Layout == conv.ChannelsFirst
		case conv.Transposed:
			wanted = wanted || op.Layout == conv.ChannelsFirst
		}
	}
	if !wanted {
		return 0, nil
	}
	l := &layouter{g: g, twin: map[int]int{}, made: map[int]bool{}, maker: map[int]int{}}
	for i := range g.nodes {
		n := g.nodes[i]
		if !l.convert(&n) {
			for j, v := range n.in {
				n.in[j] = l.first(v)
			}
			l.keep(n)
		}
		if g.err != nil {
			return 0, g.err
		}
	}
	for i := range g.outputs {
		l.first(g.outputs[i].value)
	}
	for i := range g.values {
		g.values[i].producer = -1
	}
	for i, n := range l.nodes {
		for _, v := range n.out {
			g.values[v].producer = i
		}
	}
	g.nodes = l.nodes
	return l.changed, nil
}

type layouter struct {
	g       *Graph
	nodes   []node
	twin    map[int]int  // value in the file's order: the value in ours
	made    map[int]bool // values with a twin that have been made in the file's order too
	maker   map[int]int  // the position in nodes of what computes a value
	changed int
}

func (l *layouter) keep(n node) {
	for _, v := range n.out {
		l.maker[v] = len(l.nodes)
	}
	l.nodes = append(l.nodes, n)
}

// before returns what a value was transposed from and the order that brings that to channels last, if it moves nothing: but for dimensions
// of one element, it was in our order.
func (l *layouter) before(v int) (from int, order []int, ok bool) {
	at, made := l.maker[v]
	if !made {
		return 0, nil, false
	}
	n := l.nodes[at]
	p, ok := n.op.(shape.Permute)
	if !ok {
		return 0, nil, false
	}
	s := l.g.values[n.in[0]].spec
	at = -1
	for _, d := range toLast(p.Order.Len()) {
		from := p.Order.At(d)
		order = append(order, from)
		if s.Dims[from] == 1 {
			continue
		}
		if from < at {
			return 0, nil, false
		}
		at = from
	}
	return n.in[0], order, true
}

// add appends a node and returns its outputs.
func (l *layouter) add(name string, op ops.Op, in ...int) []int {
	g := l.g
	resolved, err := ops.Resolve(op, g.largest())
	if err == nil {
		var outs []tensor.Spec
		if outs, err = resolved.Infer(g.specs(in)); err == nil {
			n := node{name: name, op: op, in: in}
			for _, s := range outs {
				g.values = append(g.values, value{name: name, spec: s, producer: -1})
				n.out = append(n.out, len(g.values)-1)
			}
			l.keep(n)
			return n.out
		}
	}
	g.fail("pass layout: node %q: %w", name, err)
	return []int{0, 0}
}

// toLast is the order that brings the channels of an image of some rank to the end, toFirst the one back.
func toLast(rank int) []int {
	order := []int{0}
	for i := 2; i < rank; i++ {
		order = append(order, i)
	}
	return append(order, 1)
}

func toFirst(rank int) []int {
	order := []int{0, rank - 1}
	for i := 1; i < rank-1; i++ {
		order = append(order, i)
	}
	return order
}

// axisLast returns where an axis of an image is when the channels are last.
func axisLast(axis, rank int) int {
	if axis < 0 {
		axis += rank
	}
	return slices.Index(toLast(rank), axis)
}

// free reports whether the layouts of an image have the same order of elements: one channel, or one pixel.
func free(s tensor.Spec) bool {
	pixels := 1
	for _, n := range s.Shape()[2:] {
		pixels *= n
	}
	return pixels == 1 || s.Dims[1] == 1
}

// first returns a value in the order of the file, making it if it exists only in ours.
func (l *layouter) first(v int) int {
	t, ok := l.twin[v]
	if v < 0 || !ok || l.made[v] {
		return v
	}
	l.made[v] = true
	g := l.g
	order := toFirst(int(g.values[v].spec.Rank))
	name := g.values[v].name
	if free(g.values[v].spec) {
		l.keep(node{name: name + ".nchw", op: shape.Permute{Order: ops.MakeInts(order...)}, in: []int{t}, out: []int{v}})
		return v
	}
	view := l.add(name+".nchw.view", shape.Permute{Order: ops.MakeInts(order...)}, t)[0]
	l.keep(node{name: name + ".nchw", op: shape.Contiguous{}, in: []int{view}, out: []int{v}})
	l.changed++
	return v
}

// last returns a value with the channels last, transposing it if it exists only in the order of the file.
func (l *layouter) last(v int) int {
	if v < 0 {
		return v
	}
	if t, ok := l.twin[v]; ok {
		return t
	}
	g := l.g
	s := g.values[v].spec
	if c := g.values[v].constant; c != nil {
		view, err := c.Tensor.Permute(toLast(int(s.Rank))...)
		if err != nil {
			g.fail("pass layout: %w", err)
			return v
		}
		t := g.addConstant(g.values[v].name+".nhwc", view.Clone())
		l.twin[v], l.made[v] = t, true
		return t
	}
	if t, order, ok := l.before(v); ok {
		if !slices.IsSorted(order) {
			t = l.add(g.values[v].name+".nhwc", shape.Permute{Order: ops.MakeInts(order...)}, t)[0]
		}
		l.twin[v], l.made[v] = t, true
		l.changed++
		return t
	}
	name, order := g.values[v].name+".nhwc", shape.Permute{Order: ops.MakeInts(toLast(int(s.Rank))...)}
	var t int
	if free(s) {
		t = l.add(name, order, v)[0]
	} else {
		t = l.add(name, shape.Contiguous{}, l.add(name+".view", order, v)[0])[0]
		l.changed++
	}
	l.twin[v], l.made[v] = t, true
	return t
}

// operand returns an operand that is broadcast to an image of some rank, in our layout; ok is false where that is not possible or
// would cost a transposition of something large.
func (l *layouter) operand(v, rank, elems int) (int, bool) {
	g := l.g
	if v < 0 {
		return v, true
	}
	if t, ok := l.twin[v]; ok {
		return t, true
	}
	s := g.values[v].spec
	if s.Elems() == 1 {
		return v, true
	}
	if c := g.values[v].constant; c != nil {
		dims := slices.Repeat([]int{1}, rank-min(int(s.Rank), rank))
		if int(s.Rank) > rank || s.DType.IsBlock() {
			return v, false
		}
		t := c.Tensor.Clone()
		wide, err := t.Reshape(append(dims, s.Shape()...)...)
		if err != nil {
			return v, false
		}
		view, err := wide.Permute(toLast(rank)...)
		if err != nil {
			return v, false
		}
		return g.addConstant(g.values[v].name+".nhwc", view.Clone()), true
	}
	if int(s.Rank) != rank || s.Elems()*4 > elems {
		return v, false
	}
	return l.last(v), true
}

// convert computes a node in our layout if it is one of ours or follows one; its outputs get twins.
func (l *layouter) convert(n *node) bool {
	g := l.g
	rank := int(g.values[n.out[0]].spec.Rank)
	in0 := -1
	if len(n.in) > 0 {
		in0 = n.in[0]
	}
	_, follows := l.twin[in0]
	emit := func(op ops.Op, in ...int) bool {
		outs := l.add(n.name, op, in...)
		for i, v := range n.out {
			l.twin[v] = outs[i]
		}
		if at, made := l.maker[outs[0]]; made {
			l.nodes[at].fused = n.fused
		}
		l.changed++
		return true
	}
	switch op := n.op.(type) {
	case ops.Ranged: // by element, all of one shape
		if slices.ContainsFunc(n.in, func(v int) bool { _, ok := l.twin[v]; return ok }) {
			in := make([]int, len(n.in))
			for i, v := range n.in {
				in[i] = l.last(v)
			}
			return emit(op, in...)
		}
	case conv.Conv:
		if op.Layout == conv.ChannelsFirst {
			_, _, residual, _ := op.Operands()
			op.Layout = conv.ChannelsLast
			return emit(op, l.images(n.in, residual)...)
		}
	case conv.Transposed:
		if op.Layout == conv.ChannelsFirst {
			_, _, residual, _ := conv.Conv{Epilogue: op.Epilogue}.Operands()
			op.Layout = conv.ChannelsLast
			return emit(op, l.images(n.in, residual)...)
		}
	case conv.Pool:
		if op.Layout == conv.ChannelsFirst && follows && !op.Indices {
			op.Layout = conv.ChannelsLast
			return emit(op, l.last(in0))
		}
	case elementwise.Unary, elementwise.Activate, elementwise.Scale, elementwise.Cast, elementwise.Clamp:
		if follows {
			return emit(n.op, append([]int{l.last(in0)}, n.in[1:]...)...)
		}
	case elementwise.Binary, elementwise.Where, elementwise.GLU:
		return l.pointwise(n, emit)
	case shape.Contiguous:
		if follows {
			return emit(n.op, l.last(in0))
		}
	case shape.Concat:
		return l.concat(n, op, emit)
	case shape.Split:
		if follows {
			op.Axis = axisLast(op.Axis, rank)
			return emit(op, l.last(in0))
		}
	case shape.Slice:
		if follows {
			op.Axis = axisLast(op.Axis, rank)
			return emit(op, l.last(in0))
		}
	case shape.Pad:
		if follows {
			op.Before, op.After = reorder(op.Before), reorder(op.After)
			return emit(op, l.last(in0))
		}
	case image.Resize:
		if follows {
			return emit(resizeLast(op), l.last(in0))
		}
	case attention.Softmax:
		if follows && len(n.in) == 1 {
			op.Axis = axisLast(op.Axis, rank)
			return emit(op, l.last(in0))
		}
	case norm.Batch:
		if follows {
			return l.batchNorm(n, op, emit)
		}
	case shape.Reshape, shape.Squeeze, shape.Unsqueeze:
		if follows {
			return l.reshape(n, emit)
		}
	case shape.Permute:
		if follows { // from the twin, by the composed order
			from := toFirst(rank)
			order := make([]int, rank)
			for i := range order {
				order[i] = from[op.Order.At(i)]
			}
			l.keep(node{name: n.name, op: shape.Permute{Order: ops.MakeInts(order...)}, in: []int{l.last(in0)}, out: n.out, fused: n.fused})
			return true
		}
	case reduce.Reduce:
		if follows {
			return l.reduce(n, op, emit)
		}
	case reduce.Arg:
		if follows && !op.Keep && axisLast(op.Axis, rank+1) == rank { // over channels: what is left keeps its order
			op.Axis = -1
			l.keep(node{name: n.name, op: op, in: []int{l.last(in0)}, out: n.out, fused: n.fused})
			return true
		}
	}
	return false
}

// images returns the inputs of a convolution with image and residual in our layout.
func (l *layouter) images(in []int, residual int) []int {
	out := slices.Clone(in)
	out[0] = l.last(in[0])
	if residual >= 0 {
		out[residual] = l.last(in[residual])
	}
	return out
}

func reorder(v ops.Ints) ops.Ints {
	out := make([]int, v.Len())
	for i, from := range toLast(v.Len()) {
		out[i] = v.At(from)
	}
	return ops.MakeInts(out...)
}

func resizeLast(r image.Resize) image.Resize {
	rank := r.Out.Len()
	scale, roi := r.Scale, r.ROI
	for i, from := range toLast(rank) {
		r.Scale[i], r.ROI[i], r.ROI[rank+i] = scale[from], roi[from], roi[rank+from]
	}
	r.Out = reorder(r.Out)
	return r
}

// pointwise converts an operation whose operands are broadcast to each other, if an operand of the result's shape is ours.
func (l *layouter) pointwise(n *node, emit func(ops.Op, ...int) bool) bool {
	g := l.g
	out := g.values[n.out[0]].spec
	ours := false
	for _, v := range n.in {
		if _, ok := l.twin[v]; ok && g.values[v].constant == nil && g.values[v].spec.Dims == out.Dims && g.values[v].spec.Rank == out.Rank {
			ours = true
		}
	}
	if !ours {
		return false
	}
	in := make([]int, len(n.in))
	for i, v := range n.in {
		t, ok := l.operand(v, int(out.Rank), out.Elems())
		if !ok {
			return false
		}
		in[i] = t
	}
	return emit(n.op, in...)
}

// concat follows if at least half of what is put together is ours.
func (l *layouter) concat(n *node, op shape.Concat, emit func(ops.Op, ...int) bool) bool {
	g := l.g
	ours, all := 0, 0
	for _, v := range n.in {
		e := g.values[v].spec.Elems()
		if _, ok := l.twin[v]; ok {
			ours += e
		}
		all += e
	}
	if ours == 0 || 2*ours < all {
		return false
	}
	in := make([]int, len(n.in))
	for i, v := range n.in {
		in[i] = l.last(v)
	}
	return emit(shape.Concat{Axis: axisLast(op.Axis, int(g.values[n.in[0]].spec.Rank))}, in...)
}

// reshape converts what changes only how pixels are arranged: images and channels stay, as when a dimension of 1 comes or goes.
func (l *layouter) reshape(n *node, emit func(ops.Op, ...int) bool) bool {
	g := l.g
	if r, ok := n.op.(ops.Resolver); ok {
		if _, err := r.Resolve(ops.Sizes{}); err != nil {
			return false
		}
	}
	in, out := g.values[n.in[0]].spec, g.values[n.out[0]].spec
	if out.Rank < 3 || in.Dims[0] != out.Dims[0] || in.Dims[1] != out.Dims[1] || in.DType.IsBlock() || len(g.symbols) > 0 {
		return false
	}
	var dims []int
	for _, from := range toLast(int(out.Rank)) {
		dims = append(dims, out.Dims[from])
	}
	return emit(shape.Reshape{Dims: ops.ConstSizes(dims...), Zero: true}, l.last(n.in[0]))
}

// reduce converts a reduction: with the reduced dimensions kept, or where those that are left keep their order.
func (l *layouter) reduce(n *node, op reduce.Reduce, emit func(ops.Op, ...int) bool) bool {
	rank := int(l.g.values[n.in[0]].spec.Rank)
	mask, err := op.Mask(rank)
	if err != nil {
		return false
	}
	var axes, left []int
	for i, from := range toLast(rank) {
		if mask[from] {
			axes = append(axes, i)
		} else {
			left = append(left, from)
		}
	}
	op.Axes = ops.MakeInts(axes...)
	if op.Keep {
		return emit(op, l.last(n.in[0]))
	}
	if !slices.IsSorted(left) {
		return false
	}
	l.keep(node{name: n.name, op: op, in: []int{l.last(n.in[0])}, out: n.out, fused: n.fused})
	l.changed++
	return true
}

// batchNorm converts a normalization with constant statistics that no filter could take: it becomes a factor and a term.
func (l *layouter) batchNorm(n *node, op norm.Batch, emit func(ops.Op, ...int) bool) bool {
	g := l.g
	var p [4][]float64
	for i, v := range n.in[1:] {
		if g.values[v].constant == nil {
			return false
		}
		p[i] = g.values[v].constant.Tensor.Floats()
	}
	if g.values[n.in[0]].spec.DType != tensor.F32 {
		return false
	}
	c := len(p[0])
	factor, term := make([]float32, c), make([]float32, c)
	for i := range c {
		f := p[0][i] / math.Sqrt(p[3][i]+float64(op.Eps))
		factor[i], term[i] = float32(f), float32(p[1][i]-p[2][i]*f)
	}
	scaled := l.add(n.name+".scale", elementwise.Binary{F: elementwise.Mul}, l.last(n.in[0]), g.addConstant(n.name+".scale", tensor.Of(factor, c)))
	return emit(elementwise.Binary{F: elementwise.Add}, scaled[0], g.addConstant(n.name+".shift", tensor.Of(term, c)))
}
