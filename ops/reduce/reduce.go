// Package reduce decides the operations that make one number of many: sums and their kin over axes (Reduce), positions of extremes
// (Arg), the largest elements (TopK), and running sums (CumSum).
package reduce

import (
	"fmt"
	"math"
	"sort"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/ref"
	"github.com/tessera-go/tessera/tensor"
)

// Kind is what a reduction computes.
type Kind uint8

// The reductions. Those marked int also take integers, which wrap. Of no elements the sums are 0, the product 1, mean NaN,
// extremes the least and largest value of the type (infinities for floats), LogSumExp -Inf.
const (
	Sum  Kind = iota // int
	Mean             //
	Max              // int; NaN wins
	Min              // int; NaN wins
	Prod             // int
	L1               // sum of absolute values
	L2               // root of the sum of squares
	SumSquare
	LogSum
	LogSumExp
	numKinds
)

var kindNames = [numKinds]string{"sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"}

func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Kinds returns every reduction.
func Kinds() []Kind {
	all := make([]Kind, numKinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// Reduce combines the elements along Axes (all axes if the list is empty). With Keep reduced dimensions stay as 1.
type Reduce struct {
	Kind Kind
	Axes ops.Ints
	Keep bool
}

// Name is "reduce_" with the kind's name.
func (r Reduce) Name() string { return "reduce_" + r.Kind.String() }

// Mask reports which dimensions of a tensor of the given rank are reduced.
func (r Reduce) Mask(rank int) ([tensor.MaxRank]bool, error) {
	var mask [tensor.MaxRank]bool
	for _, a := range r.Axes.List() {
		i, err := ref.Axis(r, a, rank)
		if err != nil {
			return mask, err
		}
		mask[i] = true
	}
	if r.Axes.Len() == 0 {
		for i := range rank {
			mask[i] = true
		}
	}
	return mask, nil
}

// Infer is the shape rule.
func (r Reduce) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(r, in, 1, 1); err != nil {
		return nil, err
	}
	if r.Kind >= numKinds {
		return nil, fmt.Errorf("unknown reduction %v", r.Kind)
	}
	d := in[0].DType
	switch r.Kind {
	case Sum, Max, Min, Prod:
		if !d.IsFloat() && !d.IsInt() {
			return nil, fmt.Errorf("%s: input is %v, a floating-point or integer type is right", r.Name(), in[0])
		}
	default:
		if err := ref.Float(r, in, 0); err != nil {
			return nil, err
		}
	}
	mask, err := r.Mask(int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	dims := []int{}
	for i, n := range in[0].Shape() {
		switch {
		case !mask[i]:
			dims = append(dims, n)
		case r.Keep:
			dims = append(dims, 1)
		}
	}
	return ref.Checked(r, d, dims)
}

// Reference gathers the elements of each result, then combines them.
func (r Reduce) Reference(out, in []tensor.Tensor) error {
	mask, err := r.Mask(int(in[0].Rank))
	if err != nil {
		return err
	}
	dims := in[0].Shape()
	kept := append([]int{}, dims...)
	for i := range kept {
		if mask[i] {
			kept[i] = 1
		}
	}
	strides := ref.Strides(kept)
	place := func(i int) int { // of the result that element i belongs to
		at := 0
		for d := len(dims) - 1; d >= 0; d-- {
			if !mask[d] {
				at += i % dims[d] * strides[d]
			}
			i /= dims[d]
		}
		return at
	}
	if in[0].DType.IsInt() {
		groups := make([][]int64, out[0].Elems())
		for i, x := range in[0].Ints() {
			at := place(i)
			groups[at] = append(groups[at], x)
		}
		result := make([]int64, len(groups))
		for i, g := range groups {
			result[i] = r.Kind.combineInts(g, in[0].DType)
		}
		out[0].SetInts(result)
		return nil
	}
	groups := make([][]float64, out[0].Elems())
	for i, x := range in[0].Floats() {
		at := place(i)
		groups[at] = append(groups[at], x)
	}
	result := make([]float64, len(groups))
	for i, g := range groups {
		result[i] = r.Kind.Combine(g)
	}
	out[0].SetFloats(result)
	return nil
}

// Combine returns the reduction of the numbers.
func (k Kind) Combine(v []float64) float64 {
	acc := 0.0
	switch k {
	case Max, LogSumExp:
		acc = math.Inf(-1)
		for _, x := range v {
			acc = max(acc, x)
		}
		if k == Max || math.IsInf(acc, 0) {
			return acc
		}
		sum := 0.0
		for _, x := range v {
			sum += math.Exp(x - acc)
		}
		return acc + math.Log(sum)
	case Min:
		acc = math.Inf(1)
		for _, x := range v {
			acc = min(acc, x)
		}
	case Prod:
		acc = 1
		for _, x := range v {
			acc *= x
		}
	case L1:
		for _, x := range v {
			acc += math.Abs(x)
		}
	case L2, SumSquare:
		for _, x := range v {
			acc += x * x
		}
		if k == L2 {
			acc = math.Sqrt(acc)
		}
	default:
		for _, x := range v {
			acc += x
		}
		switch k {
		case Mean:
			acc /= float64(len(v))
		case LogSum:
			acc = math.Log(acc)
		}
	}
	return acc
}

func (k Kind) combineInts(v []int64, d tensor.DType) int64 {
	unsigned := d.Kind() == tensor.Unsigned
	bits := 8 * d.Size()
	least, largest := int64(-1)<<(bits-1), int64(uint64(1)<<(bits-1)-1)
	if unsigned {
		least, largest = 0, int64(^uint64(0)>>(64-bits))
	}
	less := func(x, y int64) bool {
		if unsigned {
			return uint64(x) < uint64(y)
		}
		return x < y
	}
	acc := map[Kind]int64{Sum: 0, Prod: 1, Max: least, Min: largest}[k]
	for _, x := range v {
		switch {
		case k == Sum:
			acc += x
		case k == Prod:
			acc *= x
		case k == Max && less(acc, x), k == Min && less(x, acc):
			acc = x
		}
	}
	return acc
}

// Flops counts one operation an element.
func (r Reduce) Flops(in []tensor.Spec) float64 { return float64(in[0].Elems()) }

// Arg finds the position along Axis of the largest element, or the smallest with Min; of equal ones the first, or the last with Last.
// NaN counts as the extreme. The dimension must not be empty.
type Arg struct {
	Axis int
	Min  bool
	Keep bool
	Last bool
	Out  tensor.DType // I32 or I64; Invalid means I32
}

// Name is "argmax" or "argmin".
func (a Arg) Name() string {
	if a.Min {
		return "argmin"
	}
	return "argmax"
}

// Infer is the shape rule.
func (a Arg) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(a, in, 1, 1); err != nil {
		return nil, err
	}
	if d := in[0].DType; !d.IsFloat() && !d.IsInt() {
		return nil, fmt.Errorf("%s: input is %v, a floating-point or integer type is right", a.Name(), in[0])
	}
	axis, err := ref.Axis(a, a.Axis, int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	if in[0].Dims[axis] == 0 {
		return nil, fmt.Errorf("%s: dimension %d of %v is empty", a.Name(), axis, in[0])
	}
	out, err := indexType(a, a.Out)
	if err != nil {
		return nil, err
	}
	dims := in[0].Shape()
	if a.Keep {
		dims[axis] = 1
	} else {
		dims = append(dims[:axis], dims[axis+1:]...)
	}
	return ref.Checked(a, out, dims)
}

func indexType(op ops.Op, d tensor.DType) (tensor.DType, error) {
	switch d {
	case tensor.Invalid:
		return tensor.I32, nil
	case tensor.I32, tensor.I64:
		return d, nil
	}
	return 0, fmt.Errorf("%s: positions as %v; i32 or i64 is right", op.Name(), d)
}

// Reference looks at every element.
func (a Arg) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(a, a.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	outer, n, inner := ref.Split(in[0].Shape(), axis)
	order := orderOf(in[0])
	result := make([]int64, outer*inner)
	for i := range result {
		at := func(j int) int { return (i/inner*n+j)*inner + i%inner }
		best := 0
		for j := 1; j < n; j++ {
			c := order(at(j), at(best), !a.Min)
			if c > 0 || c == 0 && a.Last {
				best = j
			}
		}
		result[i] = int64(best)
	}
	out[0].SetInts(result)
	return nil
}

// orderOf returns a function that compares elements i and j: positive if i comes first when the largest (or smallest) are wanted
// first. NaN comes before everything in both directions.
func orderOf(t tensor.Tensor) func(i, j int, largest bool) int {
	if t.DType.IsInt() {
		v := t.Ints()
		unsigned := t.DType.Kind() == tensor.Unsigned
		return func(i, j int, largest bool) int {
			if v[i] == v[j] {
				return 0
			}
			greater := v[i] > v[j]
			if unsigned {
				greater = uint64(v[i]) > uint64(v[j])
			}
			if greater == largest {
				return 1
			}
			return -1
		}
	}
	v := t.Floats()
	return func(i, j int, largest bool) int {
		x, y := v[i], v[j]
		switch {
		case x != x && y != y:
			return 0
		case x != x:
			return 1
		case y != y:
			return -1
		case x == y:
			return 0
		case (x > y) == largest:
			return 1
		}
		return -1
	}
}

// TopK finds the K largest elements along Axis, or the smallest with Smallest, in falling (rising) order; equal ones keep their order,
// NaN comes first. Outputs are the elements and their positions.
type TopK struct {
	K        int
	Axis     int
	Smallest bool
	Out      tensor.DType // of positions: I32 or I64; Invalid means I32
}

// Name is "topk".
func (TopK) Name() string { return "topk" }

// Infer is the shape rule.
func (t TopK) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(t, in, 1, 1); err != nil {
		return nil, err
	}
	if d := in[0].DType; !d.IsFloat() && !d.IsInt() {
		return nil, fmt.Errorf("topk: input is %v, a floating-point or integer type is right", in[0])
	}
	axis, err := ref.Axis(t, t.Axis, int(in[0].Rank))
	if err != nil {
		return nil, err
	}
	if t.K < 0 || t.K > in[0].Dims[axis] {
		return nil, fmt.Errorf("topk: %d of dimension %d of %v", t.K, axis, in[0])
	}
	out, err := indexType(t, t.Out)
	if err != nil {
		return nil, err
	}
	s := in[0]
	s.Dims[axis] = t.K
	return []tensor.Spec{s, s.With(out)}, nil
}

// Reference sorts.
func (t TopK) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(t, t.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	outer, n, inner := ref.Split(in[0].Shape(), axis)
	order := orderOf(in[0])
	pos := make([]int64, out[0].Elems())
	from := make([]int, len(pos))
	ids := make([]int, n)
	for o := range outer {
		for i := range inner {
			at := func(j int) int { return (o*n+j)*inner + i }
			for j := range ids {
				ids[j] = j
			}
			sort.SliceStable(ids, func(a, b int) bool { return order(at(ids[a]), at(ids[b]), !t.Smallest) > 0 })
			for j := range t.K {
				to := (o*t.K+j)*inner + i
				pos[to], from[to] = int64(ids[j]), at(ids[j])
			}
		}
	}
	if in[0].DType.IsInt() {
		v, w := in[0].Ints(), make([]int64, len(pos))
		for i, f := range from {
			w[i] = v[f]
		}
		out[0].SetInts(w)
	} else {
		v, w := in[0].Floats(), make([]float64, len(pos))
		for i, f := range from {
			w[i] = v[f]
		}
		out[0].SetFloats(w)
	}
	out[1].SetInts(pos)
	return nil
}

// CumSum adds up elements along Axis: element j of the result is the sum of elements 0 to j, or to j-1 with Exclusive; from the end
// with Reverse. Integers wrap.
type CumSum struct {
	Axis      int
	Exclusive bool
	Reverse   bool
}

// Name is "cumsum".
func (CumSum) Name() string { return "cumsum" }

// Infer is the shape rule: the input's spec.
func (c CumSum) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := ops.NumInputs(c, in, 1, 1); err != nil {
		return nil, err
	}
	if d := in[0].DType; !d.IsFloat() && !d.IsInt() {
		return nil, fmt.Errorf("cumsum: input is %v, a floating-point or integer type is right", in[0])
	}
	if _, err := ref.Axis(c, c.Axis, int(in[0].Rank)); err != nil {
		return nil, err
	}
	return []tensor.Spec{in[0]}, nil
}

// Reference adds element by element.
func (c CumSum) Reference(out, in []tensor.Tensor) error {
	axis, err := ref.Axis(c, c.Axis, int(in[0].Rank))
	if err != nil {
		return err
	}
	outer, n, inner := ref.Split(in[0].Shape(), axis)
	each := func(add func(at int, first bool)) {
		for o := range outer {
			for i := range inner {
				for j := range n {
					k := j
					if c.Reverse {
						k = n - 1 - j
					}
					add((o*n+k)*inner+i, j == 0)
				}
			}
		}
	}
	if in[0].DType.IsInt() {
		v := in[0].Ints()
		var acc int64
		each(func(at int, first bool) {
			if first {
				acc = 0
			}
			x := v[at]
			if c.Exclusive {
				v[at] = acc
			}
			acc += x
			if !c.Exclusive {
				v[at] = acc
			}
		})
		out[0].SetInts(v)
		return nil
	}
	v := in[0].Floats()
	var acc float64
	each(func(at int, first bool) {
		if first {
			acc = 0
		}
		x := v[at]
		if c.Exclusive {
			v[at] = acc
		}
		acc += x
		if !c.Exclusive {
			v[at] = acc
		}
	})
	out[0].SetFloats(v)
	return nil
}

// Flops counts one operation an element.
func (CumSum) Flops(in []tensor.Spec) float64 { return float64(in[0].Elems()) }
