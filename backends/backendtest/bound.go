package backendtest

import (
	"bytes"
	"fmt"
	"math"

	"github.com/tessera-go/tessera/tensor"
)

// bound is how far a result may lie from the reference: Abs + Rel |want| + Scale times the element's magnitude. Integers and
// booleans are exact, unless Off allows a distance.
type bound struct {
	Abs, Rel  float64
	Scale     float64
	Magnitude func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) // of the elements of output 0; nil: the largest of |want|
	Off       int64
	Loose     bool // operands are rounded on the way: results of half precision need not be the nearest
	Strict    bool // the result is a copy or one rounding: every bit counts
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
func compare(got, want tensor.Tensor, b bound, magnitude []float64) (worst float64, wrong string) {
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
		if magnitude != nil {
			m = magnitude[i]
		}
		err := math.Abs(x - y)
		if allowed := b.Abs + least + (b.Rel+rel)*math.Abs(y) + b.Scale*m; err > allowed && !math.IsNaN(m) {
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
