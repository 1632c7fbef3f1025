package backendtest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// bound is how far a result may lie from the reference: Abs + Rel |want| + Scale times the element's magnitude. Integers and
// booleans are exact, unless Off allows a distance.
type bound struct {
	Abs, Rel  float64
	Scale     float64
	Magnitude func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) // of the elements of output 0; nil: the largest of |want|
	Off       int64
	Strict    bool // the result is a copy or one rounding: every bit counts
	// What the backend claims. Loose: operands are rounded on the way, so results of half precision need not be the nearest.
	Loose    bool
	Operands func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) // absolute bounds of the elements of output 0
}

// limits are the numbers of a bound for one set of operands.
type limits struct {
	magnitude []float64 // nil: the largest of |want|
	operands  []float64 // what the rounding of operands may cost; nil: nothing
}

// limits computes a bound's numbers.
func (b *bound) limits(in []tensor.Tensor, out []tensor.Spec) (l limits, err error) {
	if len(out) == 0 || !out[0].DType.IsFloat() {
		return l, nil
	}
	if b.Magnitude != nil {
		if l.magnitude, err = b.Magnitude(in, out); err != nil {
			return l, fmt.Errorf("magnitude: %w", err)
		}
	}
	if b.Operands != nil {
		if l.operands, err = b.Operands(in, out); err != nil {
			return l, fmt.Errorf("rounding of operands: %w", err)
		}
	}
	return l, nil
}

// leastClaim is the accuracy that a claim must leave: a backend that is off by a sixteenth computes nothing worth having.
const leastClaim = 1.0 / 16

// claim widens a bound by what the backend says about its accuracy.
func (b *bound) claim(op ops.Op, a backends.Accuracy) error {
	if a == (backends.Accuracy{}) {
		return nil
	}
	if a.Operand < 0 || a.Operand > leastClaim || a.Sum < 0 || a.Sum > leastClaim || a.Roundings < 0 {
		return fmt.Errorf("claims %+v: from 0 to %v is right", a, leastClaim)
	}
	b.Off++
	b.Loose = true
	product, ok := op.(matmul.Op)
	if !ok { // in convolutions the largest result stands for all
		b.Scale += roughly(a)
		return nil
	}
	b.Scale += a.Sum * float64(a.Roundings)
	if a.Operand == 0 {
		return nil
	}
	b.Operands = func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) {
		x, err := largestOf(in[0], int(in[0].Rank)-1, a.Shared)
		if err != nil {
			return nil, err
		}
		y, err := largestOf(in[1], int(in[1].Rank)-2+btoi(product.TransB), a.Shared)
		if err != nil {
			return nil, err
		}
		// |x y| may move by what either moves, times the other: at most 2 a + a^2 of the largest pairs, of which one is the element itself.
		left, err := absProduct(product, append([]tensor.Tensor{x}, in[1:]...), out)
		if err != nil {
			return nil, err
		}
		right, err := absProduct(product, append([]tensor.Tensor{in[0], y}, in[2:]...), out)
		if err != nil {
			return nil, err
		}
		both, err := absProduct(product, append([]tensor.Tensor{x, y}, in[2:]...), out)
		if err != nil {
			return nil, err
		}
		const slope = 1.15 // of the steepest activation
		for i := range left {
			left[i] = slope * a.Operand * (left[i] + right[i] + a.Operand*both[i])
		}
		return left, nil
	}
	return nil
}

// roughly is what a claim may cost as a fraction of the largest result, where it is not computed element by element.
func roughly(a backends.Accuracy) float64 { return 8*a.Operand + a.Sum*float64(a.Roundings) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// largestOf returns a matrix, or a batch of them, each of whose elements is replaced by the largest magnitude among those that share its scale along axis.
func largestOf(t tensor.Tensor, axis, shared int) (tensor.Tensor, error) {
	t, err := absolute(t)
	if err != nil || shared == 0 || shared == 1 || t.Elems() == 0 {
		return t, err
	}
	v := t.Floats()
	n := t.Dims[axis]
	step := 1
	for i := axis + 1; i < int(t.Rank); i++ {
		step *= t.Dims[i]
	}
	if shared < 0 {
		shared = n
	}
	for line := range len(v) / n {
		at := line/step*step*n + line%step
		for from := 0; from < n; from += shared {
			most := 0.0
			for i := from; i < min(from+shared, n); i++ {
				if x := v[at+i*step]; x > most && !math.IsInf(x, 0) {
					most = x
				}
			}
			for i := from; i < min(from+shared, n); i++ {
				v[at+i*step] = most
			}
		}
	}
	t.SetFloats(v)
	return t, nil
}

// absolute returns the magnitudes of a tensor in float64.
func absolute(t tensor.Tensor) (tensor.Tensor, error) {
	if t.DType.IsBlock() {
		var err error
		if t, err = quant.Decode(t); err != nil {
			return t, err
		}
	}
	v := t.Floats()
	for i := range v {
		v[i] = math.Abs(v[i])
	}
	abs := tensor.New(tensor.F64, t.Shape()...)
	abs.SetFloats(v)
	return abs, nil
}

// absProduct is the product of magnitudes with the scales of the epilogue, and without what it adds.
func absProduct(op matmul.Op, in []tensor.Tensor, out []tensor.Spec) ([]float64, error) {
	e := op.Epilogue
	rowScale, colScale, _, _, _ := op.Operands()
	var abs []tensor.Tensor
	for i := range in {
		if i > 1 && i != rowScale && i != colScale {
			continue
		}
		a, err := absolute(in[i])
		if err != nil {
			return nil, err
		}
		if i > 1 {
			narrow := tensor.New(tensor.F32, a.Shape()...)
			narrow.SetFloats(a.Floats())
			a = narrow
		}
		abs = append(abs, a)
	}
	plain := matmul.Op{TransB: op.TransB, Out: tensor.F64, Epilogue: matmul.Epilogue{RowScale: e.RowScale, ColScale: e.ColScale}}
	m := tensor.New(tensor.F64, out[0].Shape()...)
	err := plain.Reference([]tensor.Tensor{m}, abs)
	return m.Floats(), err
}

// rounding returns the relative error of storing a result, and the least step between numbers near zero.
func rounding(d tensor.DType) (rel, least float64) {
	switch d {
	case tensor.F16:
		return 1.0 / (1 << 10), 6e-8
	case tensor.BF16:
		return 1.0 / (1 << 7), 1e-40
	case tensor.F64:
		return 1e-15, 0
	}
	return 1.2e-7, 1.5e-45
}

// compare returns the largest error as a fraction of the result's magnitude, and what is wrong.
func compare(got, want tensor.Tensor, b bound, l limits) (worst float64, wrong string) {
	if want.DType.IsBlock() {
		g, w := got.Clone(), want.Clone()
		if !bytes.Equal(g.Raw(), w.Raw()) {
			return 1, "blocks differ"
		}
		return 0, ""
	}
	if !want.DType.IsFloat() {
		g, w := got.Ints(), want.Ints()
		for i := range g {
			if d := g[i] - w[i]; d != 0 && (d > b.Off || -d > b.Off) {
				return 1, fmt.Sprintf("element %v is %d, %d is right", index(want, i), g[i], w[i])
			}
		}
		return 0, ""
	}
	g, w := got.Floats(), want.Floats()
	top := 0.0
	for _, x := range w {
		if a := math.Abs(x); a > top && !math.IsInf(a, 0) {
			top = a
		}
	}
	rel, least := rounding(want.DType)
	if b.Strict {
		rel, least = 0, 0
	}
	limit := largest(want.DType)
	different := 0
	for i := range g {
		if g[i] != w[i] && w[i] == w[i] {
			different++
		}
	}
	// A step of the last place is allowed, as the reference rounds once; but only a few results lie so near to a tie.
	if n := len(g); want.DType.Size() == 2 && !b.Loose && n >= 40 && different*4 > n {
		return 1, fmt.Sprintf("%d of %d results are rounded to the other side", different, n)
	}
	for i := range g {
		x, y := g[i], w[i]
		switch {
		case math.IsNaN(y) || math.IsNaN(x):
			if math.IsNaN(x) != math.IsNaN(y) {
				return math.Inf(1), fmt.Sprintf("element %v is %g, %g is right", index(want, i), x, y)
			}
			continue
		case math.IsInf(y, 0) || math.IsInf(x, 0):
			// A value at the end of the range may round either way.
			near := math.Abs(x) > limit*(1-4*b.Rel-4*rel) && math.Abs(y) > limit*(1-4*b.Rel-4*rel) && (x > 0) == (y > 0)
			if x != y && !near {
				return math.Inf(1), fmt.Sprintf("element %v is %g, %g is right", index(want, i), x, y)
			}
			continue
		}
		m := top
		if l.magnitude != nil {
			m = l.magnitude[i]
		}
		operands := 0.0
		if l.operands != nil {
			operands = l.operands[i]
		}
		err := math.Abs(x - y)
		if allowed := b.Abs + least + (b.Rel+rel)*math.Abs(y) + b.Scale*m + operands; err > allowed && !math.IsNaN(m) {
			return math.Inf(1), fmt.Sprintf("element %v is %g, %g is right; the error is %.3g, %.3g is allowed", index(want, i), x, y, err, allowed)
		}
		unit := math.Abs(y)
		if b.Scale > 0 {
			unit = max(unit, m)
		}
		if b.Abs > 0 {
			unit = max(unit, 1)
		}
		if unit > 1e-30 && !math.IsInf(unit, 0) { // below, rounding to subnormals says nothing
			worst = max(worst, err/unit)
		}
	}
	return worst, ""
}

func largest(d tensor.DType) float64 {
	switch d {
	case tensor.F16:
		return 65504
	case tensor.BF16:
		return 3.3895313892515355e38
	case tensor.F64:
		return math.MaxFloat64
	}
	return math.MaxFloat32
}

// index returns the position of element i of the row-major order.
func index(t tensor.Tensor, i int) []int {
	at := make([]int, t.Rank)
	for d := len(at) - 1; d >= 0; d-- {
		at[d] = i % t.Dims[d]
		i /= t.Dims[d]
	}
	return at
}
