package graph

import (
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// fuseEpilogue moves what follows a product (column scale, bias, activation, residual) into its last pass over C, which saves a
// trip through memory each.
func fuseEpilogue(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		if f.drop[i] {
			continue
		}
		n := &f.nodes[i]
		switch op := n.op.(type) {
		case elementwise.Activate:
			f.appendToProduct(i, n.in[0], func(p matmul.Op) (matmul.Op, int, bool) {
				if p.Epilogue.Act.Kind != ops.NoActivation || p.Epilogue.Residual == matmul.ResidualAfter {
					return p, -1, false
				}
				p.Epilogue.Act = op.Act
				return p, -1, true
			})
		case elementwise.Binary:
			for side := 0; side < 2 && !f.drop[i]; side++ {
				product, other := n.in[side], n.in[1-side]
				if product < 0 || other < 0 || product == other {
					continue
				}
				if f.appendToProduct(i, product, func(p matmul.Op) (matmul.Op, int, bool) { return f.withOperand(p, op.F, product, other) }) {
					break
				}
			}
		}
	}
	return f.finish()
}

// withOperand adds an operand of a following addition or multiplication to the epilogue, where its order of steps has room.
func (f *fuser) withOperand(p matmul.Op, fn elementwise.Func2, product, other int) (matmul.Op, int, bool) {
	e := &p.Epilogue
	row := f.isRow(other, product)
	first := e.Act.Kind == ops.NoActivation && e.Residual == matmul.NoResidual
	switch {
	case fn == elementwise.Mul && row && first && !e.Bias && !e.ColScale:
		e.ColScale = true
	case fn == elementwise.Add && row && first && !e.Bias:
		e.Bias = true
	case fn == elementwise.Add && e.Residual == matmul.NoResidual && e.Act.Kind == ops.NoActivation && f.sameSpec(other, product):
		e.Residual = matmul.ResidualBefore
	case fn == elementwise.Add && e.Residual == matmul.NoResidual && f.sameSpec(other, product):
		e.Residual = matmul.ResidualAfter
	default:
		return p, -1, false
	}
	return p, other, true
}

// appendToProduct replaces node at, which reads the product, by the product with a larger epilogue.
func (f *fuser) appendToProduct(at, product int, change func(matmul.Op) (matmul.Op, int, bool)) bool {
	m, ok := f.maker(product)
	if !ok {
		return false
	}
	op, ok := m.op.(matmul.Op)
	if !ok || f.values[product].spec.DType != tensor.F32 || !f.sameSpec(f.nodes[at].out[0], product) {
		return false
	}
	next, operand, ok := change(op)
	if !ok {
		return false
	}
	f.replaceNode(at, next, mergeOperands(op, next, m.in, operand), m)
	return true
}

// mergeOperands puts a new operand at its place among those of a product.
func mergeOperands(old, next matmul.Op, in []int, operand int) []int {
	var from, to [4]int
	var total int
	from[0], from[1], from[2], from[3], _ = old.Operands()
	to[0], to[1], to[2], to[3], total = next.Operands()
	merged := make([]int, total)
	merged[0], merged[1] = in[0], in[1]
	for i := range to {
		switch {
		case to[i] < 0:
		case from[i] >= 0:
			merged[to[i]] = in[from[i]]
		default:
			merged[to[i]] = operand
		}
	}
	return merged
}
