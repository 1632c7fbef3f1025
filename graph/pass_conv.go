package graph

import (
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// addConstant adds a value that a pass has computed. Existing values keep their numbers.
func (g *Graph) addConstant(name string, t tensor.Tensor) int {
	g.values = append(g.values, value{name: name, spec: t.Spec, constant: ops.NewConstant(t), producer: -1})
	return len(g.values) - 1
}

// fuseConv moves what follows a convolution (scale and bias of channels, activation, residual) into its epilogue.
func fuseConv(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		if f.drop[i] {
			continue
		}
		n := &f.nodes[i]
		switch op := n.op.(type) {
		case elementwise.Activate:
			f.appendToConv(i, n.in[0], func(c *conv.Conv) (int, bool) {
				if c.Epilogue.Act.Kind != ops.NoActivation || c.Epilogue.Residual == matmul.ResidualAfter {
					return -1, false
				}
				c.Epilogue.Act = op.Act
				return -1, true
			})
		case elementwise.Binary:
			for side := 0; side < 2; side++ {
				image, other := n.in[side], n.in[1-side]
				if image < 0 || other < 0 || image == other {
					continue
				}
				if f.appendToConv(i, image, func(c *conv.Conv) (int, bool) { return f.convOperand(c, op.F, image, other) }) {
					break
				}
			}
		}
	}
	return f.finish()
}

// convOperand adds an operand of a following addition or multiplication to the epilogue, where its order of steps has room.
func (f *fuser) convOperand(c *conv.Conv, fn elementwise.Func2, image, other int) (int, bool) {
	e := &c.Epilogue
	spec := f.values[image].spec
	first := e.Act.Kind == ops.NoActivation && e.Residual == matmul.NoResidual
	if fn == elementwise.Add && e.Residual == matmul.NoResidual && f.sameSpec(other, image) {
		e.Residual = matmul.ResidualBefore
		if e.Act.Kind != ops.NoActivation {
			e.Residual = matmul.ResidualAfter
		}
		return other, true
	}
	if !first || e.Bias {
		return -1, false
	}
	row, ok := f.channelVector(other, spec, c.Layout)
	if !ok {
		return -1, false
	}
	switch {
	case fn == elementwise.Add:
		e.Bias = true
	case fn == elementwise.Mul && !e.ColScale:
		e.ColScale = true
	default:
		return -1, false
	}
	return row, true
}

// channelVector returns a constant that broadcasts along the channels of an image as a vector of one element a channel.
func (f *fuser) channelVector(v int, image tensor.Spec, layout conv.Layout) (int, bool) {
	c := f.values[v].constant
	if c == nil || c.Tensor.DType != tensor.F32 {
		return -1, false
	}
	axis := 1
	if layout == conv.ChannelsLast {
		axis = int(image.Rank) - 1
	}
	channels := image.Dims[axis]
	shape := make([]int, image.Rank)
	for i := range shape {
		shape[i] = 1
	}
	shape[axis] = channels
	wide, err := c.Tensor.Broadcast(shape...)
	if err != nil {
		return -1, false
	}
	if c.Tensor.Rank == 1 && c.Tensor.Dims[0] == channels {
		return v, true
	}
	return f.addConstant(f.values[v].name, tensor.Of(tensor.Data[float32](*ptr(wide.Clone())), channels)), true
}

func ptr[T any](v T) *T { return &v }

func (f *fuser) appendToConv(at, image int, change func(*conv.Conv) (int, bool)) bool {
	m, ok := f.maker(image)
	if !ok {
		return false
	}
	old, ok := m.op.(conv.Conv)
	if !ok || f.values[image].spec.DType != tensor.F32 || !f.sameSpec(f.nodes[at].out[0], image) ||
		old.XZero != 0 || old.WZero != 0 || !f.values[m.in[0]].spec.DType.IsFloat() {
		return false
	}
	next := old
	operand, ok := change(&next)
	if !ok {
		return false
	}
	f.replaceNode(at, next, mergeOperands(matmul.Op{Epilogue: old.Epilogue}, matmul.Op{Epilogue: next.Epilogue}, m.in, operand), m)
	return true
}
