package onnx

import (
	"fmt"
	"math"
	"slices"

	"github.com/tessera-go/tessera/tensor"
)

// Many quantized models are written in floats: DequantizeLinear before each operator and QuantizeLinear after it say where the bytes
// are. Convolutions and products between them become QLinearConv and QLinearMatMul, which compute in integers. A result may differ
// by one step of its scale from what the model says, where the exact number lies at the middle between two.

// qdq returns the graph with such operators in place, or the graph itself if there are none. What is between them and nothing reads any
// more is left out.
func (m *Model) qdq() *Graph {
	g := m.Graph
	q := &qdqPass{g: g, producer: map[string]*Node{}, uses: map[string]int{}}
	for _, o := range g.Outputs {
		q.uses[o.Name]++
	}
	for _, v := range g.Inputs { // a default that a caller may replace is no constant
		q.uses[v.Name]++
	}
	found := false
	for _, n := range g.Nodes {
		found = found || n.Op == "DequantizeLinear" && n.Domain == ""
		for _, out := range n.Out {
			q.producer[out] = n
		}
		for _, in := range n.In {
			q.uses[in]++
		}
		for _, sub := range n.subgraphs() {
			sub.free(nil, func(name string) { q.uses[name]++ }, 0)
		}
	}
	if !found {
		return g
	}
	fused := map[*Node]*Node{} // by the QuantizeLinear that they replace
	for _, n := range g.Nodes {
		if by := q.fuse(n); by != nil {
			fused[n] = by
		}
	}
	if len(fused) == 0 {
		return g
	}
	out := &Graph{Name: g.Name, Inputs: g.Inputs, Outputs: g.Outputs, Info: g.Info, Inits: slices.Clone(g.Inits), inits: map[string]*Tensor{}}
	out.Inits = append(out.Inits, q.made...)
	for _, t := range out.Inits {
		out.inits[t.Name] = t
	}
	for _, n := range g.Nodes {
		if by := fused[n]; by != nil {
			n = by
		}
		out.Nodes = append(out.Nodes, n)
	}
	out.prune()
	return out
}

// prune leaves out the nodes whose results nothing reads.
func (g *Graph) prune() {
	read := map[string]bool{}
	for _, o := range g.Outputs {
		read[o.Name] = true
	}
	var kept []*Node
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !slices.ContainsFunc(n.Out, func(name string) bool { return read[name] }) {
			continue
		}
		for _, in := range n.In {
			read[in] = true
		}
		for _, sub := range n.subgraphs() {
			sub.free(nil, func(name string) { read[name] = true }, 0)
		}
		kept = append(kept, n)
	}
	slices.Reverse(kept)
	g.Nodes = kept
}

type qdqPass struct {
	g        *Graph
	producer map[string]*Node
	uses     map[string]int
	made     []*Tensor // constants of the new nodes
}

// constant returns a value of the file that no caller can change.
func (q *qdqPass) constant(name string) *Tensor {
	if t := q.g.Init(name); t != nil {
		for _, v := range q.g.Inputs {
			if v.Name == name {
				return nil
			}
		}
		return t
	}
	if n := q.producer[name]; n != nil && n.Op == "Constant" && n.Domain == "" {
		if a := n.Attr("value"); a != nil {
			return a.T
		}
	}
	return nil
}

// linear is a DequantizeLinear or QuantizeLinear whose scale and zero point are constants of bytes.
type linear struct {
	in, scale, zero string
	elem            ElemType
	channels        int // 1, or the number of scales
	axis            int
	scales          []float64
	zeros           []float64
}

// linearOf reads a node; ok is false for those that integers cannot stand for.
func (q *qdqPass) linearOf(n *Node, op string) (l linear, ok bool) {
	if n == nil || n.Op != op || n.Domain != "" || len(n.In) < 3 || len(n.Out) != 1 {
		return l, false
	}
	for _, name := range []string{"block_size", "output_dtype", "saturate"} {
		if n.Attr(name) != nil {
			return l, false
		}
	}
	l = linear{in: n.In[0], scale: n.In[1], zero: n.In[2], axis: 1}
	if a := n.Attr("axis"); a != nil {
		l.axis = int(a.I)
	}
	scale, zero := q.constant(l.scale), q.constant(l.zero)
	if scale == nil || zero == nil || scale.Elem != Float || scale.Data.Elems() != zero.Data.Elems() || scale.Data.Elems() == 0 {
		return l, false
	}
	l.elem, l.channels = zero.Elem, scale.Data.Elems()
	l.scales, l.zeros = scale.Data.Floats(), zero.Data.Floats()
	return l, true
}

func (l *linear) bytes() bool { return l.elem == Uint8 || l.elem == Int8 }

// fuse returns what computes the output of a QuantizeLinear from the bytes before the operator that it quantizes.
func (q *qdqPass) fuse(n *Node) *Node {
	y, ok := q.linearOf(n, "QuantizeLinear")
	if !ok || !y.bytes() || y.channels != 1 {
		return nil
	}
	from := y.in
	op := q.producer[from]
	relu := op != nil && op.Op == "Relu" && op.Domain == "" && q.uses[from] == 1
	if relu {
		from = op.In[0]
		op = q.producer[from]
	}
	if op == nil || op.Domain != "" || q.uses[from] != 1 || len(op.In) == 0 {
		return nil
	}
	if !relu && (moves[op.Op] || op.Op == "MaxPool" && y.scales[0] > 0) { // bytes of a positive scale have the order of their numbers
		return q.move(op, &y, n)
	}
	if len(op.In) < 2 {
		return nil
	}
	x, ok := q.linearOf(q.producer[op.In[0]], "DequantizeLinear")
	if !ok || !x.bytes() || x.channels != 1 {
		return nil
	}
	if op.Op == "Add" {
		b, ok := q.linearOf(q.producer[op.In[1]], "DequantizeLinear")
		if !ok || !b.bytes() || b.channels != 1 {
			return nil
		}
		by := &Node{Name: op.Name, Domain: innerDomain, Op: "Add", Out: n.Out, In: []string{x.in, b.in, x.scale, x.zero, b.scale, b.zero, y.scale, y.zero}}
		if relu {
			by.Attrs = []Attr{IntAttr("relu", 1)}
		}
		return by
	}
	if relu {
		// Zero is the lowest number that the bytes have, so that saturation does what the Relu would.
		if lowest := map[ElemType]float64{Uint8: 0, Int8: -128}[y.elem]; y.zeros[0] != lowest {
			return nil
		}
	}
	w, ok := q.linearOf(q.producer[op.In[1]], "DequantizeLinear")
	if !ok || !w.bytes() {
		return nil
	}
	by := &Node{Name: op.Name, Out: n.Out, In: []string{x.in, x.scale, x.zero, w.in, w.scale, w.zero, y.scale, y.zero}}
	switch op.Op {
	case "Conv":
		if w.channels != 1 && w.axis != 0 {
			return nil
		}
		if len(op.In) > 2 && op.In[2] != "" {
			bias, ok := q.bias(op.In[2], n.Out[0])
			if !ok {
				return nil
			}
			by.In = append(by.In, bias)
		}
		by.Op, by.Attrs = "QLinearConv", op.Attrs
	case "MatMul":
		if weights := q.constant(w.in); w.channels != 1 && (weights == nil || len(weights.Dims) != 2 || w.axis != 1 && w.axis != -1) {
			return nil
		}
		by.Op = "QLinearMatMul"
	case "Gemm":
		if !q.gemm(op, by, &w, n.Out[0]) {
			return nil
		}
	default:
		return nil
	}
	return by
}

// moves are operators that give elements of their first input as they are.
var moves = map[string]bool{"Reshape": true, "Flatten": true, "Transpose": true, "Squeeze": true, "Unsqueeze": true}

// move returns an operator that gives elements of its first input, on bytes, if they stand for the same numbers before and after it.
func (q *qdqPass) move(op *Node, y *linear, n *Node) *Node {
	x, ok := q.linearOf(q.producer[op.In[0]], "DequantizeLinear")
	if !ok || x.elem != y.elem || x.channels != 1 || x.scales[0] != y.scales[0] || x.zeros[0] != y.zeros[0] || len(op.Out) != 1 {
		return nil
	}
	return &Node{Name: op.Name, Op: op.Op, Out: n.Out, In: append([]string{x.in}, op.In[1:]...), Attrs: op.Attrs}
}

// gemm completes a QLinearMatMul that stands for a Gemm, whose weights it may have to transpose.
func (q *qdqPass) gemm(op, by *Node, w *linear, owner string) bool {
	transposed := false
	for _, a := range op.Attrs {
		switch {
		case a.Name == "transB":
			transposed = a.I != 0
		case a.Name == "transA" && a.I != 0, (a.Name == "alpha" || a.Name == "beta") && a.F != 1:
			return false
		}
	}
	weights := q.constant(w.in)
	if weights == nil || len(weights.Dims) != 2 {
		return false
	}
	columns := 1
	if transposed {
		columns = 0
	}
	if w.channels != 1 && (w.axis+2)%2 != columns {
		return false
	}
	if len(op.In) > 2 && op.In[2] != "" {
		bias, ok := q.bias(op.In[2], owner)
		if !ok {
			return false
		}
		if t := q.constant(op.In[2]); t != nil && (len(t.Dims) != 1 || t.Dims[0] != weights.Dims[columns]) {
			return false
		}
		by.In = append(by.In, bias)
	}
	if transposed {
		turned, err := weights.Data.Permute(1, 0)
		name := w.in + "/transposed for " + owner
		if err != nil || q.taken(name) {
			return false
		}
		t := NewTensor(name, turned.Clone())
		t.Elem = weights.Elem
		q.made = append(q.made, t)
		by.In[3] = name
	}
	by.Op = "QLinearMatMul"
	return true
}

// taken reports whether a name is one of the graph.
func (q *qdqPass) taken(name string) bool {
	return q.uses[name] > 0 || q.g.Init(name) != nil || q.producer[name] != nil
}

// bias returns the name of a bias in floats: as it is, or that of integers with their scales.
func (q *qdqPass) bias(name, owner string) (string, bool) {
	if t := q.constant(name); t != nil {
		return name, t.Elem == Float
	}
	n := q.producer[name]
	if n == nil || n.Op != "DequantizeLinear" || n.Domain != "" || len(n.In) < 2 || n.Attr("block_size") != nil {
		return "", false
	}
	ints, scale := q.constant(n.In[0]), q.constant(n.In[1])
	if ints == nil || scale == nil || ints.Elem != Int32 || scale.Elem != Float || len(ints.Dims) != 1 {
		return "", false
	}
	count := ints.Dims[0]
	if s := scale.Data.Elems(); s != 1 && s != count {
		return "", false
	}
	if len(n.In) > 2 && n.In[2] != "" {
		zero := q.constant(n.In[2])
		if zero == nil || slices.ContainsFunc(zero.Data.Floats(), func(v float64) bool { return v != 0 }) {
			return "", false
		}
	}
	v, s := ints.Data.Floats(), scale.Data.Floats()
	real := tensor.New(tensor.F32, count)
	for i := range v {
		v[i] = float64(float32(v[i] * s[i%len(s)]))
		if math.IsInf(v[i], 0) {
			return "", false
		}
	}
	real.SetFloats(v)
	made := NewTensor(fmt.Sprintf("%s/bias of %s", name, owner), real)
	if q.taken(made.Name) {
		return "", false
	}
	q.made = append(q.made, made)
	return made.Name, true
}
