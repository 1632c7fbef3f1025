package graph

import (
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// recognizeIdioms finds what exporters write out in pieces because their format had no operator for it: activations (hard swish, SiLU,
// GELU, ...), layer normalization, and the x + x s of attention over channels.
func recognizeIdioms(g *Graph, ctx *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		if f.drop[i] || f.values[f.nodes[i].out[0]].spec.DType != tensor.F32 {
			continue
		}
		_ = f.layerNormAt(i) || f.normWeightAt(i) || f.activationAt(i) || f.swishAffineAt(i) || f.channelAttentionAt(i) || f.oneHotAt(i)
		if _, err := f.tableAt(i, ctx); err != nil {
			return f.fused, err
		}
	}
	return f.finish()
}

// oneHotAt turns the product of one-hot rows and a constant matrix into the selection of rows. An index out of range gives zeros: it
// selects a row of zeros that is put behind the others.
func (f *fuser) oneHotAt(i int) bool {
	n := &f.nodes[i]
	p, ok := n.op.(matmul.Op)
	if !ok || p.TransB || !p.Epilogue.IsZero() {
		return false
	}
	table := f.values[n.in[1]].constant
	if table == nil || table.Tensor.DType != tensor.F32 || table.Tensor.Rank != 2 {
		return false
	}
	cast, ok := f.maker(n.in[0])
	if !ok {
		return false
	}
	if to, isCast := cast.op.(elementwise.Cast); !isCast || to.To != tensor.F32 {
		return false
	}
	hot, ok := f.maker(cast.in[0])
	if !ok {
		return false
	}
	if eq, isBinary := hot.op.(elementwise.Binary); !isBinary || eq.F != elementwise.Equal {
		return false
	}
	k, width := table.Tensor.Dims[0], table.Tensor.Dims[1]
	spec := f.values[hot.out[0]].spec
	for side := range 2 {
		idx, steps := hot.in[side], hot.in[1-side]
		if idx < 0 || steps < 0 || f.values[steps].constant == nil || f.values[idx].constant != nil {
			continue
		}
		s, t := f.values[idx].spec, f.values[steps].constant.Tensor
		if s.Rank == 0 || s.Rank != spec.Rank || s.Dim(-1) != 1 || s.DType != tensor.I32 && s.DType != tensor.I64 || t.Elems() != k || int(t.Rank) > int(spec.Rank) || t.Dim(-1) != k {
			continue
		}
		counts := true
		for j, v := range t.Ints() {
			counts = counts && v == int64(j)
		}
		if !counts || len(f.symbols) > 0 {
			continue
		}
		longer := tensor.New(tensor.F32, k+1, width)
		copy(tensor.Data[float32](longer), f32s(table.Tensor))
		limits := func(v int64) int {
			l := tensor.New(s.DType, 1)
			l.SetInts([]int64{v})
			return f.addConstant(n.name+".limit", l)
		}
		// The comparison becomes the limitation of the indices, the cast drops their last dimension, the product selects.
		hot.op, hot.in = elementwise.Clamp{}, []int{idx, limits(-1), limits(int64(k))}
		f.values[hot.out[0]].spec = s
		flat := tensor.MakeSpec(s.DType, s.Shape()[:s.Rank-1]...)
		cast.op = shape.Reshape{Dims: ops.ConstSizes(flat.Shape()...), Zero: true}
		f.values[cast.out[0]].spec = flat
		n.op, n.in = shape.Gather{Axis: 0}, []int{f.addConstant(n.name+".rows", longer), cast.out[0]}
		f.fused++
		f.recount()
		return true
	}
	return false
}

func f32s(t tensor.Tensor) []float32 {
	c := t.Clone()
	return tensor.Data[float32](c)
}

// tableAt computes what is done to every selected row once for every row of the table.
func (f *fuser) tableAt(i int, ctx *passContext) (bool, error) {
	n := &f.nodes[i]
	rows := -1
	var m *node
	for side, v := range n.in {
		made, ok := f.maker(v)
		if !ok {
			continue
		}
		g, isGather := made.op.(shape.Gather)
		if isGather && g.Axis == 0 && f.values[made.in[0]].constant != nil {
			rows, m = side, made
		}
	}
	if rows < 0 {
		return false, nil
	}
	table := f.values[m.in[0]].spec
	if table.Rank != 2 || table.Elems() >= f.values[n.out[0]].spec.Elems() || f.values[n.in[rows]].spec.Dims != f.values[n.out[0]].spec.Dims {
		return false, nil
	}
	switch n.op.(type) {
	case elementwise.Activate, elementwise.Unary, elementwise.Scale:
	case elementwise.Binary: // by a constant of one number, or of one a column
		other := n.in[1-rows]
		if other < 0 || f.values[other].constant == nil || f.values[other].spec.Rank > 1 {
			return false, nil
		}
	default:
		return false, nil
	}
	in := make([]tensor.Tensor, len(n.in))
	for side, v := range n.in {
		if side == rows {
			v = m.in[0]
		}
		in[side] = f.values[v].constant.Tensor
	}
	out, err := evaluate(ctx, n, in, []tensor.Spec{table.With(f.values[n.out[0]].spec.DType)})
	if err != nil {
		return false, err
	}
	f.replaceNode(i, m.op, []int{f.addConstant(n.name+".rows", out[0]), m.in[1]}, m)
	return true, nil
}

// near compares a constant that a file holds in float32 with the number that is meant.
func near(x, want float64) bool { return math.Abs(x-want) <= 1e-4*math.Abs(want) }

// affineOf reports whether a node is mul x + add for an operand x and numbers.
func (f *fuser) affineOf(n *node) (x int, mul, add float64, ok bool) {
	switch op := n.op.(type) {
	case elementwise.Scale:
		return n.in[0], float64(op.Mul), float64(op.Add), true
	case elementwise.Binary:
		for side := range 2 {
			c, isScalar := f.scalar(n.in[1-side])
			if !isScalar || n.in[side] < 0 || !f.sameSpec(n.in[side], n.out[0]) {
				continue
			}
			switch {
			case op.F == elementwise.Mul:
				return n.in[side], c, 0, true
			case op.F == elementwise.Add:
				return n.in[side], 1, c, true
			case op.F == elementwise.Div && side == 0 && c != 0:
				return n.in[0], 1 / c, 0, true
			case op.F == elementwise.Sub && side == 0:
				return n.in[0], 1, -c, true
			}
		}
	}
	return 0, 0, 0, false
}

// factors takes a product apart: a number, and the values that are multiplied. Nodes are those that make it, the last excluded.
func (f *fuser) factors(n *node, depth int) (number float64, leaves []int, nodes []*node) {
	number = 1
	take := func(v int) {
		m, ok := f.maker(v)
		if ok && depth < 6 {
			if _, mul, add, affine := f.affineOf(m); affine && add == 0 && mul != 0 || isMul(m) {
				k, l, inner := f.factors(m, depth+1)
				number *= k
				leaves = append(leaves, l...)
				nodes = append(append(nodes, m), inner...)
				return
			}
		}
		leaves = append(leaves, v)
	}
	if x, mul, add, ok := f.affineOf(n); ok && add == 0 {
		number *= mul
		take(x)
		return number, leaves, nodes
	}
	switch op := n.op.(type) {
	case elementwise.Binary:
		if op.F == elementwise.Mul {
			take(n.in[0])
			take(n.in[1])
			return number, leaves, nodes
		}
		if c, ok := f.scalar(n.in[1]); ok && op.F == elementwise.Pow && (c == 2 || c == 3) {
			for range int(c) {
				leaves = append(leaves, n.in[0])
			}
			return number, leaves, nodes
		}
	case elementwise.Unary:
		if op.F == elementwise.Sqr {
			return 1, []int{n.in[0], n.in[0]}, nil
		}
	}
	return 1, []int{n.out[0]}, nil
}

func isMul(n *node) bool {
	switch op := n.op.(type) {
	case elementwise.Binary:
		return op.F == elementwise.Mul || op.F == elementwise.Pow
	case elementwise.Unary:
		return op.F == elementwise.Sqr
	}
	return false
}

// activationAt recognizes products of x and a function of x.
func (f *fuser) activationAt(i int) bool {
	n := &f.nodes[i]
	if _, _, add, ok := f.affineOf(n); !isMul(n) && !(ok && add == 0) {
		return false
	}
	number, leaves, nodes := f.factors(n, 0)
	if len(leaves) != 2 {
		return false
	}
	for side := range 2 {
		x, gate := leaves[side], leaves[1-side]
		if x < 0 || !f.sameSpec(x, n.out[0]) {
			continue
		}
		act, inner, ok := f.gateOf(x, gate, number)
		if ok {
			f.replaceNode(i, elementwise.Activate{Act: act}, []int{x}, append(nodes, inner...)...)
			return true
		}
	}
	return false
}

// gateOf recognizes the function of x that x times a number is multiplied by.
func (f *fuser) gateOf(x, gate int, number float64) (act ops.Act, nodes []*node, ok bool) {
	m, isMade := f.maker(gate)
	if !isMade {
		return act, nil, false
	}
	nodes = []*node{m}
	// of reports whether v is mul x + add, and takes the node that makes it along.
	of := func(v int, mul, add float64) bool {
		if v == x {
			return near(mul, 1) && add == 0
		}
		a, made := f.maker(v)
		if !made {
			return false
		}
		y, k, c, affine := f.affineOf(a)
		if !affine || y != x || !near(k, mul) || (add == 0 && c != 0) || (add != 0 && !near(c, add)) {
			return false
		}
		nodes = append(nodes, a)
		return true
	}
	if op, isAct := m.op.(elementwise.Activate); isAct {
		switch {
		case op.Act.Kind == ops.Clip && op.Act.P == 0 && op.Act.Q == 6 && near(number, 1.0/6):
			ok = of(m.in[0], 1, 3)
			return ops.Act{Kind: ops.HardSwish}, nodes, ok
		case op.Act.Kind == ops.HardSigmoid && near(float64(op.Act.P), 1.0/6) && op.Act.Q == 0.5 && number == 1:
			return ops.Act{Kind: ops.HardSwish}, nodes, m.in[0] == x
		case op.Act.Kind == ops.Sigmoid && number == 1 && m.in[0] == x:
			return ops.Act{Kind: ops.SiLU}, nodes, true
		case op.Act.Kind == ops.Sigmoid && number == 1:
			ok = of(m.in[0], 1.702, 0)
			return ops.Act{Kind: ops.QuickGELU}, nodes, ok
		case op.Act.Kind == ops.Tanh && number == 1:
			s, made := f.maker(m.in[0])
			if !made || s.in[0] != x {
				return act, nil, false
			}
			plus, isAct := s.op.(elementwise.Activate)
			nodes = append(nodes, s)
			return ops.Act{Kind: ops.Mish}, nodes, isAct && plus.Act.Kind == ops.Softplus
		}
		return act, nil, false
	}
	// 1 + erf(x / sqrt 2), or 1 + tanh(...), times x / 2
	y, mul, add, affine := f.affineOf(m)
	if !affine || mul != 1 || !near(add, 1) || !near(number, 0.5) {
		return act, nil, false
	}
	e, made := f.maker(y)
	if !made {
		return act, nil, false
	}
	nodes = append(nodes, e)
	if op, isUnary := e.op.(elementwise.Unary); isUnary && op.F == elementwise.Erf {
		ok = of(e.in[0], 1/math.Sqrt2, 0)
		return ops.Act{Kind: ops.GELU}, nodes, ok
	}
	op, isAct := e.op.(elementwise.Activate)
	if !isAct || op.Act.Kind != ops.Tanh {
		return act, nil, false
	}
	inner, ok := f.geluCubic(x, e.in[0])
	return ops.Act{Kind: ops.GELUTanh}, append(nodes, inner...), ok
}

// geluCubic recognizes sqrt(2/pi) (x + 0.044715 x^3), whose tanh GELU's approximation takes.
func (f *fuser) geluCubic(x, v int) (nodes []*node, ok bool) {
	outer, made := f.maker(v)
	if !made {
		return nil, false
	}
	sum, k, c, affine := f.affineOf(outer)
	if !affine || c != 0 || !near(k, math.Sqrt(2/math.Pi)) {
		return nil, false
	}
	s, made := f.maker(sum)
	if !made {
		return nil, false
	}
	plus, isBinary := s.op.(elementwise.Binary)
	if !isBinary || plus.F != elementwise.Add {
		return nil, false
	}
	for side := range 2 {
		if s.in[side] != x {
			continue
		}
		cube, made := f.maker(s.in[1-side])
		if !made {
			continue
		}
		number, leaves, inner := f.factors(cube, 0)
		if near(number, 0.044715) && len(leaves) == 3 && leaves[0] == x && leaves[1] == x && leaves[2] == x {
			return append([]*node{outer, s, cube}, inner...), true
		}
	}
	return nil, false
}

// swishAffineAt takes a factor and a term that follow a hard swish into it: a learned pair of numbers in some mobile networks.
func (f *fuser) swishAffineAt(i int) bool {
	n := &f.nodes[i]
	x, mul, add, ok := f.affineOf(n)
	if !ok {
		return false
	}
	m, made := f.maker(x)
	if !made {
		return false
	}
	op, isAct := m.op.(elementwise.Activate)
	if !isAct {
		return false
	}
	switch op.Act.Kind {
	case ops.HardSwish:
		op.Act = ops.Act{Kind: ops.HardSwishAffine, P: float32(mul), Q: float32(add)}
	case ops.HardSwishAffine:
		op.Act.P, op.Act.Q = float32(mul*float64(op.Act.P)), float32(mul*float64(op.Act.Q)+add)
	default:
		return false
	}
	f.replaceNode(i, op, m.in, m)
	return true
}

// channelAttentionAt turns x + x s, for a small s, into x (1 + s): a pass over x less.
func (f *fuser) channelAttentionAt(i int) bool {
	n := &f.nodes[i]
	op, ok := n.op.(elementwise.Binary)
	if !ok || op.F != elementwise.Add {
		return false
	}
	for side := range 2 {
		x := n.in[side]
		m, made := f.maker(n.in[1-side])
		if !made || x < 0 {
			continue
		}
		mul, isBinary := m.op.(elementwise.Binary)
		if !isBinary || mul.F != elementwise.Mul {
			continue
		}
		for k := range 2 {
			s := m.in[1-k]
			if m.in[k] != x || s < 0 || 8*f.values[s].spec.Elems() > f.values[x].spec.Elems() || f.values[s].spec.Rank != f.values[x].spec.Rank ||
				f.values[s].spec.DType != tensor.F32 || !f.sameSpec(x, n.out[0]) {
				continue
			}
			// The node of the product becomes that of 1 + s.
			m.op, m.in = elementwise.Scale{Mul: 1, Add: 1}, []int{s}
			f.values[m.out[0]].spec = f.values[s].spec
			n.op, n.in = elementwise.Binary{F: elementwise.Mul}, []int{x, m.out[0]}
			f.fused++
			f.recount()
			return true
		}
	}
	return false
}

// layerNormAt recognizes (x - mean) / sqrt(mean((x - mean)^2) + eps) along the innermost dimension, at the division.
func (f *fuser) layerNormAt(i int) bool {
	n := &f.nodes[i]
	div, ok := n.op.(elementwise.Binary)
	if !ok || div.F != elementwise.Div {
		return false
	}
	d := n.in[0]
	root, ok := f.maker(n.in[1])
	if !ok || d < 0 || f.values[d].producer < 0 {
		return false
	}
	if u, isUnary := root.op.(elementwise.Unary); !isUnary || u.F != elementwise.Sqrt {
		return false
	}
	plus, ok := f.maker(root.in[0])
	if !ok {
		return false
	}
	variance, mul, eps, ok := f.affineOf(plus)
	if !ok || mul != 1 || eps <= 0 {
		return false
	}
	meanOfSquares, ok := f.maker(variance)
	if !ok || !f.rowMean(meanOfSquares) {
		return false
	}
	square, ok := f.maker(meanOfSquares.in[0])
	if !ok || !isMul(square) {
		return false
	}
	number, leaves, inner := f.factors(square, 6)
	if number != 1 || len(inner) != 0 || len(leaves) != 2 || leaves[0] != d || leaves[1] != d {
		return false
	}
	sub := &f.nodes[f.values[d].producer]
	minus, ok := sub.op.(elementwise.Binary)
	uses := 1 // by the division
	for _, v := range square.in {
		if v == d {
			uses++
		}
	}
	if !ok || minus.F != elementwise.Sub || f.count[d] != uses {
		return false
	}
	x := sub.in[0]
	mean, ok := f.maker(sub.in[1])
	if !ok || x < 0 || !f.rowMean(mean) || mean.in[0] != x || f.stale(x) || !f.sameSpec(x, n.out[0]) {
		return false
	}
	f.replaceNode(i, norm.Layer{Eps: float32(eps)}, []int{x}, root, plus, meanOfSquares, square, sub, mean)
	return true
}

// rowMean reports whether a node is the mean along the innermost dimension, which it keeps.
func (f *fuser) rowMean(n *node) bool {
	r, ok := n.op.(reduce.Reduce)
	if !ok || r.Kind != reduce.Mean || !r.Keep {
		return false
	}
	rank := int(f.values[n.in[0]].spec.Rank)
	mask, err := r.Mask(rank)
	if err != nil {
		return false
	}
	for i, m := range mask[:rank] {
		if m != (i == rank-1) {
			return false
		}
	}
	return true
}

// normWeightAt gives a layer normalization the weight and the bias that follow it.
func (f *fuser) normWeightAt(i int) bool {
	n := &f.nodes[i]
	op, ok := n.op.(elementwise.Binary)
	if !ok || op.F != elementwise.Mul && op.F != elementwise.Add {
		return false
	}
	for side := range 2 {
		m, made := f.maker(n.in[side])
		row := n.in[1-side]
		if !made || row < 0 {
			continue
		}
		layer, isLayer := m.op.(norm.Layer)
		if !isLayer || !f.sameSpec(n.out[0], n.in[side]) || !f.isRow(row, n.in[side]) || f.values[row].spec.Rank != 1 {
			continue
		}
		switch {
		case op.F == elementwise.Mul && len(m.in) == 1:
			f.replaceNode(i, layer, []int{m.in[0], row}, m)
		case op.F == elementwise.Add && len(m.in) == 2:
			f.replaceNode(i, layer, []int{m.in[0], m.in[1], row}, m)
		default:
			continue
		}
		return true
	}
	return false
}
