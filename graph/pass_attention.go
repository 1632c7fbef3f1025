package graph

import (
	"math"

	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// fuseSoftmax takes a scale and a mask that precede a softmax into it.
func fuseSoftmax(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		op, ok := f.nodes[i].op.(attention.Softmax)
		if !ok {
			continue
		}
		for f.softmaxStep(i, op) {
			op = f.nodes[i].op.(attention.Softmax)
		}
	}
	return f.finish()
}

func (f *fuser) softmaxStep(i int, op attention.Softmax) bool {
	n := &f.nodes[i]
	m, ok := f.maker(n.in[0])
	if !ok || f.values[n.in[0]].spec.DType != tensor.F32 {
		return false
	}
	hasMask := len(n.in) > 1 && n.in[1] >= 0
	scale := func(x int, by float64) bool {
		if !f.sameSpec(x, n.in[0]) {
			return false
		}
		old := float64(op.Scale)
		if old == 0 {
			old = 1
		}
		op.Scale = float32(old * by)
		f.replaceNode(i, op, append([]int{x}, n.in[1:]...), m)
		return true
	}
	switch by := m.op.(type) {
	case elementwise.Scale:
		if by.Add == 0 && by.Mul != 0 {
			return scale(m.in[0], float64(by.Mul))
		}
	case elementwise.Binary:
		for side := 0; side < 2; side++ {
			x, y := m.in[side], m.in[1-side]
			value, isScalar := f.scalar(y)
			switch {
			case by.F == elementwise.Mul && isScalar && value != 0:
				return scale(x, value)
			case by.F == elementwise.Div && side == 0 && isScalar && value != 0:
				return scale(x, 1/value)
			case by.F == elementwise.Add && !hasMask && op.Scale == 0 && f.isMaskOf(y, x) && f.sameSpec(x, n.in[0]):
				f.replaceNode(i, op, []int{x, y}, m)
				return true
			}
		}
	}
	return false
}

// isMaskOf reports whether y may be the mask of scores x: an input or a constant, or of a smaller shape; the sum of two
// computed score tensors is no mask.
func (g *Graph) isMaskOf(y, x int) bool {
	if y < 0 || !g.values[y].spec.DType.IsFloat() {
		return false
	}
	return g.values[y].producer < 0 || g.values[y].spec.Elems() < g.values[x].spec.Elems()
}

// fuseAttention turns softmax(scale Q K^T + mask) V into one op that needs no score matrix.
func fuseAttention(g *Graph, _ *passContext) (int, error) {
	f := newFuser(g)
	for i := range f.nodes {
		if !f.drop[i] {
			f.attentionAt(i)
		}
	}
	return f.finish()
}

func (f *fuser) attentionAt(i int) {
	n := &f.nodes[i]
	pv, ok := n.op.(matmul.Op)
	if !ok || pv.TransB || !pv.Epilogue.IsZero() || f.values[n.out[0]].spec.DType != tensor.F32 {
		return
	}
	sm, ok := f.maker(n.in[0])
	if !ok {
		return
	}
	soft, ok := sm.op.(attention.Softmax)
	if !ok || soft.Log || (soft.Axis != -1 && soft.Axis != int(f.values[n.in[0]].spec.Rank)-1) {
		return
	}
	qk, ok := f.maker(sm.in[0])
	if !ok {
		return
	}
	scores, ok := qk.op.(matmul.Op)
	if !ok || !scores.Epilogue.IsZero() {
		return
	}
	q, k, v := qk.in[0], qk.in[1], n.in[1]
	absorbed := []*node{sm, qk}
	if !scores.TransB { // K^T was made by a transposition: take what was transposed
		t, ok := f.maker(k)
		if !ok {
			return
		}
		p, ok := t.op.(shape.Permute)
		r := int(f.values[k].spec.Rank)
		if !ok || p != shape.Transpose(r, r-2, r-1) {
			return
		}
		k = t.in[0]
		absorbed = append(absorbed, t)
	}
	op := attention.SDPA{Scale: soft.Scale}
	if soft.Scale == 0 {
		op.Scale = 1
	}
	if d := f.values[q].spec.Dim(-1); op.Scale == float32(1/math.Sqrt(float64(d))) {
		op.Scale = 0
	}
	in := []int{q, k, v}
	if len(sm.in) > 1 && sm.in[1] >= 0 {
		in = append(in, sm.in[1])
	}
	specs := f.specs(in)
	out, err := op.Infer(specs)
	if err != nil || out[0] != f.values[n.out[0]].spec {
		return // ranks or broadcasts that the fused op does not have
	}
	for t := range f.trials() {
		if want := f.specAt(n.out[0], t); want.DType != tensor.Invalid && f.resultAt(op, in, t, 0) != want {
			return
		}
	}
	f.replaceNode(i, op, in, absorbed...)
}
