package graph

import (
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// foldFilters moves into a convolution what only changes its numbers: zeros that were padded around its image, and factors and terms of
// channels behind it, which become its column scales and its bias. Activations of transposed convolutions follow.
func foldFilters(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		if f.drop[i] {
			continue
		}
		_ = f.padAt(i) || f.channelAffineAt(i) || f.transposedActAt(i)
	}
	return f.finish()
}

// padAt lets a convolution pad its image itself.
func (f *fuser) padAt(i int) bool {
	n := &f.nodes[i]
	op, ok := n.op.(conv.Conv)
	if !ok || op.XZero != 0 {
		return false
	}
	m, made := f.maker(n.in[0])
	if !made {
		return false
	}
	pad, isPad := m.op.(shape.Pad)
	if !isPad || pad.Mode != shape.PadConstant || pad.Value != 0 {
		return false
	}
	first, spatial := 2, pad.Before.Len()-2
	channel := 1
	if op.Layout == conv.ChannelsLast {
		first, channel = 1, pad.Before.Len()-1
	}
	for _, d := range []int{0, channel} {
		if pad.Before.At(d) != 0 || pad.After.At(d) != 0 {
			return false
		}
	}
	for d := range spatial {
		before, after := pad.Before.At(first+d), pad.After.At(first+d)
		if before < 0 || after < 0 || op.Before[d] < 0 || op.After[d] < 0 {
			return false
		}
		op.Before[d] += before
		op.After[d] += after
	}
	f.replaceNode(i, op, append([]int{m.in[0]}, n.in[1:]...), m)
	return true
}

// filter is a convolution whose numbers are constants and end with its bias.
type filter struct {
	node     *node
	epilogue matmul.Epilogue
	with     func(matmul.Epilogue) ops.Op
	layout   conv.Layout
	colScale int // operands, or -1
	bias     int
}

func (f *fuser) filterOf(v int) (filter, bool) {
	m, made := f.maker(v)
	if !made || f.values[v].spec.DType != tensor.F32 {
		return filter{}, false
	}
	t := filter{node: m}
	switch op := m.op.(type) {
	case conv.Conv:
		t.epilogue, t.layout = op.Epilogue, op.Layout
		t.with = func(e matmul.Epilogue) ops.Op { op.Epilogue = e; return op }
	case conv.Transposed:
		t.epilogue, t.layout = op.Epilogue, op.Layout
		t.with = func(e matmul.Epilogue) ops.Op { op.Epilogue = e; return op }
	default:
		return filter{}, false
	}
	t.colScale, t.bias, _, _ = conv.Conv{Epilogue: t.epilogue}.Operands()
	constant := func(operand int) bool {
		c := f.values[m.in[operand]].constant
		return c != nil && c.Tensor.DType == tensor.F32
	}
	ok := t.epilogue.Residual == matmul.NoResidual && t.epilogue.Act.Kind == ops.NoActivation &&
		constant(1) && (t.colScale < 0 || constant(t.colScale)) && (t.bias < 0 || constant(t.bias))
	return t, ok
}

// channelAffineAt folds a constant factor and term of each channel.
func (f *fuser) channelAffineAt(i int) bool {
	n := &f.nodes[i]
	if len(n.in) == 0 {
		return false
	}
	spec := f.values[n.out[0]].spec
	for side := range min(2, len(n.in)) {
		if n.in[side] < 0 || !f.sameSpec(n.in[side], n.out[0]) {
			continue
		}
		t, ok := f.filterOf(n.in[side])
		if !ok {
			continue
		}
		channels := t.layout.Channels(spec)
		mul, add, ok := f.channelAffine(n, side, channels, spec, t.layout)
		if !ok {
			continue
		}
		operand := func(i int, def float64) []float64 {
			if i >= 0 {
				return f.values[t.node.in[i]].constant.Tensor.Floats()
			}
			v := make([]float64, channels)
			for c := range v {
				v[c] = def
			}
			return v
		}
		scales, biases := operand(t.colScale, 1), operand(t.bias, 0)
		factor, term := make([]float32, channels), make([]float32, channels)
		e := t.epilogue
		for c := range channels {
			factor[c], term[c] = float32(scales[c]*mul[c]), float32(biases[c]*mul[c]+add[c])
			e.ColScale = e.ColScale || factor[c] != 1
		}
		// The factors stay beside the filter, which may be large and lies in the file; backends take them in when they pack it.
		in := t.node.in[:2:2]
		if e.ColScale {
			in = append(in, f.addConstant(n.name+".scale", tensor.Of(factor, channels)))
		}
		e.Bias = true
		f.replaceNode(i, t.with(e), append(in, f.addConstant(n.name+".bias", tensor.Of(term, channels))), t.node)
		return true
	}
	return false
}

// channelAffine returns the factors and terms of a node that follows a convolution in operand side.
func (f *fuser) channelAffine(n *node, side, channels int, image tensor.Spec, layout conv.Layout) (mul, add []float64, ok bool) {
	fill := func(x float64) []float64 {
		v := make([]float64, channels)
		for i := range v {
			v[i] = x
		}
		return v
	}
	if x, m, a, affine := f.affineOf(n); affine && x == n.in[side] {
		return fill(m), fill(a), true
	}
	switch op := n.op.(type) {
	case elementwise.Binary:
		if op.F != elementwise.Add && op.F != elementwise.Mul && !(side == 0 && (op.F == elementwise.Sub || op.F == elementwise.Div)) {
			return nil, nil, false
		}
		other := n.in[1-side]
		if other < 0 {
			return nil, nil, false
		}
		row, isVector := f.channelVector(other, image, layout)
		if !isVector {
			return nil, nil, false
		}
		v := f.values[row].constant.Tensor.Floats()
		switch op.F {
		case elementwise.Add:
			return fill(1), v, true
		case elementwise.Mul:
			return v, fill(0), true
		case elementwise.Sub:
			for i := range v {
				v[i] = -v[i]
			}
			return fill(1), v, true
		default:
			for i := range v {
				if v[i] == 0 {
					return nil, nil, false
				}
				v[i] = 1 / v[i]
			}
			return v, fill(0), true
		}
	case norm.Batch:
		if side != 0 || layout != conv.ChannelsFirst {
			return nil, nil, false
		}
		var p [4][]float64
		for i, v := range n.in[1:5] {
			if v < 0 || f.values[v].constant == nil {
				return nil, nil, false
			}
			p[i] = f.values[v].constant.Tensor.Floats()
		}
		mul, add = fill(0), fill(0)
		for c := range channels {
			mul[c] = p[0][c] / math.Sqrt(p[3][c]+float64(op.Eps))
			add[c] = p[1][c] - p[2][c]*mul[c]
		}
		return mul, add, true
	}
	return nil, nil, false
}

// transposedActAt gives a transposed convolution the activation that follows it.
func (f *fuser) transposedActAt(i int) bool {
	n := &f.nodes[i]
	act, ok := n.op.(elementwise.Activate)
	if !ok {
		return false
	}
	m, made := f.maker(n.in[0])
	if !made || f.values[n.in[0]].spec.DType != tensor.F32 {
		return false
	}
	op, ok := m.op.(conv.Transposed)
	if !ok || op.Epilogue.Act.Kind != ops.NoActivation || op.Epilogue.Residual == matmul.ResidualAfter {
		return false
	}
	op.Epilogue.Act = act.Act
	f.replaceNode(i, op, m.in, m)
	return true
}
