package onnx

import (
	"math"
	"slices"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Concat", since(1, 4, 11, 13), func(c *call) {
		axis := c.attrInt("axis", 1)
		if c.version >= 4 && c.n.Attr("axis") == nil {
			c.fail("attribute \"axis\" is absent")
		}
		if c.any(0).kind == text {
			c.out(c.concatText(c.ins, axis))
			return
		}
		vs := make([]*value, len(c.ins))
		for i := range vs {
			vs[i] = c.in(i)
		}
		c.out(c.concat(c.axis(axis, int(vs[0].spec.Rank)), vs...))
	})
	register("Split", since(1, 2, 11, 13, 18), func(c *call) {
		x := c.in(0)
		axis := c.axis(c.attrInt("axis", 0), int(x.spec.Rank))
		sizes, given := c.axesArg(13, 1, "split")
		if !given {
			parts := c.attrInt("num_outputs", len(c.n.Out))
			if parts != len(c.n.Out) {
				c.fail("attribute \"num_outputs\" is %d, the node has %d outputs", parts, len(c.n.Out))
			}
			sizes = evenParts(x.spec.Dims[axis], parts)
		}
		sum := 0
		for _, n := range sizes {
			if n < 0 || n > x.spec.Dims[axis]-sum {
				c.fail("sizes %v of dimension %d of %v", sizes, axis, x)
			}
			sum += n
		}
		if sum != x.spec.Dims[axis] {
			c.fail("sizes %v of dimension %d of %v: the sum is %d", sizes, axis, x, sum)
		}
		at := 0
		var outs []*value
		for _, n := range sizes {
			outs = append(outs, c.slice(x, axis, at, at+n))
			at += n
		}
		c.out(outs...)
	})
	register("Slice", since(1, 10, 11, 13), sliceOp)
	register("Pad", since(1, 2, 11, 13, 18, 19, 21), padOp)
	register("Tile", since(1, 6, 13), func(c *call) {
		x := c.in(0)
		var reps []int
		if c.version >= 6 {
			reps = c.ints(c.in(1))
		} else { // how often, along one axis
			reps = slices.Repeat([]int{1}, int(x.spec.Rank))
			reps[c.axis(c.int(c.in(2)), int(x.spec.Rank))] = c.int(c.in(1))
		}
		for i, r := range reps {
			if i < int(x.spec.Rank) && (r < 0 || x.spec.Dims[i] > 0 && r > math.MaxInt/2/x.spec.Dims[i]) {
				c.fail("repeats %v of %v", reps, x)
			}
		}
		c.out(c.emit(shape.Tile{Reps: c.list(reps)}, x))
	})
	register("Trilu", since(14), func(c *call) {
		x := c.in(0)
		k := 0
		if c.has(1) {
			k = c.int(c.in(1))
		}
		if x.spec.Rank < 2 {
			c.fail("%v, two dimensions or more are right", x)
		}
		rows, cols := x.spec.Dim(-2), x.spec.Dim(-1)
		upper := c.attrBool("upper", true)
		mask := c.alloc(tensor.Bool, rows, cols)
		keep := mask.Raw()
		for i := range rows {
			for j := range cols {
				if upper && j-i >= k || !upper && j-i <= k {
					keep[i*cols+j] = 1
				}
			}
		}
		c.out(c.where(knownValue(mask), x, c.scalarOf(x.spec.DType, 0)))
	})
	register("CenterCropPad", since(18), func(c *call) {
		x := c.in(0)
		target := c.ints(c.in(1))
		axes, given := c.attrInts("axes")
		if !given {
			axes = identity(int(x.spec.Rank))
		}
		if len(axes) != len(target) {
			c.fail("%d sizes for %d axes", len(target), len(axes))
		}
		before, after := make([]int, x.spec.Rank), make([]int, x.spec.Rank)
		y := x
		for i, a := range axes {
			a = c.axis(a, int(x.spec.Rank))
			have, want := x.spec.Dims[a], target[i]
			if want < have {
				from := (have - want) / 2
				y = c.slice(y, a, from, from+want)
			} else {
				before[a] = (want - have) / 2
				after[a] = want - have - before[a]
			}
		}
		c.out(c.emit(shape.Pad{Before: c.list(before), After: c.list(after)}, y))
	})
}

// evenParts cuts n into parts of ceil(n / parts), of which the last may be smaller.
func evenParts(n, parts int) []int {
	if parts < 1 {
		return nil
	}
	size := (n + parts - 1) / parts
	out := make([]int, parts)
	for i := range out {
		out[i] = min(size, n)
		n -= out[i]
	}
	return out
}

func (c *call) concatText(vs []*value, axis int) *value {
	dims := vs[0].spec.Shape()
	axis = c.axis(axis, len(dims))
	total := 0
	for _, v := range vs {
		d := v.spec.Shape()
		if v.kind != text || len(d) != len(dims) {
			c.fail("concatenation of %v and %v", vs[0], v)
		}
		total += d[axis]
		d[axis] = dims[axis]
		if !slices.Equal(d, dims) {
			c.fail("concatenation of %v and %v", vs[0], v)
		}
	}
	outer, inner := 1, 1
	for i, n := range dims {
		if i < axis {
			outer *= n
		} else if i > axis {
			inner *= n
		}
	}
	var out []string
	for o := range outer {
		for _, v := range vs {
			run := v.spec.Dims[axis] * inner
			out = append(out, v.text[o*run:(o+1)*run]...)
		}
	}
	dims[axis] = total
	return textValue(out, dims)
}

func sliceOp(c *call) {
	x := c.any(0)
	var starts, ends, axes, steps []int
	given := false
	if c.version < 10 {
		starts, _ = c.attrInts("starts")
		ends, _ = c.attrInts("ends")
		axes, given = c.attrInts("axes")
	} else {
		starts, ends = c.ints(c.in(1)), c.ints(c.in(2))
		if c.has(3) {
			axes, given = c.ints(c.in(3)), true
		}
		if c.has(4) {
			steps = c.ints(c.in(4))
		}
	}
	if !given {
		axes = identity(len(starts))
	}
	if len(ends) != len(starts) || len(axes) != len(starts) || steps != nil && len(steps) != len(starts) {
		c.fail("%d starts, %d ends, %d axes, %d steps", len(starts), len(ends), len(axes), len(steps))
	}
	const far = math.MaxInt32 // bounds are clamped to the dimension; the extremes of an int must not wrap before that
	clamp := func(v int) int { return min(max(v, -far), far) }
	for i, a := range axes {
		a = c.axis(a, int(x.spec.Rank))
		step := 1
		if steps != nil {
			step = steps[i]
		}
		if step == 0 {
			c.fail("step 0")
		}
		from, to := clamp(starts[i]), ops.Const(clamp(ends[i]))
		n := x.spec.Dims[a]
		if step < 0 && ends[i] < -n {
			to = shape.End
		}
		s := shape.Slice{Axis: a, From: ops.Const(from), To: to, Step: min(max(step, -far), far)}
		if x.kind == text {
			x = c.sliceText(x, s)
			continue
		}
		x = c.like(c.emit(s, x), x)
	}
	c.out(x)
}

// sliceText slices the positions, and picks the strings at them.
func (c *call) sliceText(x *value, s shape.Slice) *value {
	pos := tensor.New(tensor.I32, x.spec.Shape()...)
	for i := range tensor.Data[int32](pos) {
		tensor.Data[int32](pos)[i] = int32(i)
	}
	out, err := s.Infer([]tensor.Spec{pos.Spec})
	c.check(err)
	to := tensor.New(tensor.I32, out[0].Shape()...)
	c.check(s.Reference([]tensor.Tensor{to}, []tensor.Tensor{pos}))
	var picked []string
	for _, p := range tensor.Data[int32](to) {
		picked = append(picked, x.text[p])
	}
	return textValue(picked, out[0].Shape())
}

func padOp(c *call) {
	x := c.in(0)
	rank := int(x.spec.Rank)
	var pads []int
	value := 0.0
	switch {
	case c.version < 2:
		pads, _ = c.attrInts("paddings")
		value = float64(c.attrFloat("value", 0))
	case c.version < 11:
		pads, _ = c.attrInts("pads")
		value = float64(c.attrFloat("value", 0))
	default:
		pads = c.ints(c.in(1))
		if v := c.opt(2); v != nil && v.spec.Elems() > 0 {
			value = c.scalar(v)
		}
	}
	axes := identity(rank)
	if v := c.opt(3); v != nil {
		axes = c.ints(v)
	}
	if len(pads) != 2*len(axes) {
		c.fail("%d pads for %d dimensions", len(pads), len(axes))
	}
	before, after := make([]int, rank), make([]int, rank)
	for i, a := range axes {
		a = c.axis(a, rank)
		before[a], after[a] = pads[i], pads[len(axes)+i]
		const most = math.MaxInt32
		if before[a] > most || after[a] > most || before[a] < -most || after[a] < -most {
			c.fail("pads %v", pads)
		}
	}
	modes := map[string]shape.PadMode{"constant": shape.PadConstant, "edge": shape.PadEdge, "reflect": shape.PadReflect, "wrap": shape.PadWrap}
	mode, ok := modes[c.attrString("mode", "constant")]
	if !ok {
		c.fail("mode %q is unknown", c.attrString("mode", ""))
	}
	if mode != shape.PadConstant { // these crop before they pad
		for i := range rank {
			from, to := max(-before[i], 0), x.spec.Dims[i]-max(-after[i], 0)
			if from > 0 || to < x.spec.Dims[i] {
				x = c.slice(x, i, from, max(from, to))
				before[i], after[i] = max(before[i], 0), max(after[i], 0)
			}
		}
	}
	if x.spec.DType == tensor.Bool {
		y := c.emit(shape.Pad{Before: c.list(before), After: c.list(after), Mode: mode, Value: value}, c.cast(x, tensor.U8))
		c.out(c.cast(y, tensor.Bool))
		return
	}
	c.out(c.emit(shape.Pad{Before: c.list(before), After: c.list(after), Mode: mode, Value: value}, x))
}
