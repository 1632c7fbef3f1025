package onnx

import (
	"slices"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Shape", since(1, 13, 15, 19, 21), func(c *call) {
		dims := c.any(0).spec.Shape()
		if k := c.any(0).kind; k != numbers && k != text {
			c.fail("shape of a %v", k)
		}
		clamp := func(v int) int {
			if v < 0 {
				v += len(dims)
			}
			return min(max(v, 0), len(dims))
		}
		from, to := clamp(c.attrInt("start", 0)), clamp(c.attrInt("end", len(dims)))
		out := []int64{}
		for i := from; i < to; i++ {
			out = append(out, int64(dims[i]))
		}
		c.out(knownValue(tensor.Of(out, len(out))))
	})
	register("Size", since(1, 13, 19, 21), func(c *call) {
		c.out(knownValue(tensor.Of([]int64{int64(c.any(0).spec.Elems())})))
	})
	register("Reshape", since(1, 5, 13, 14, 19, 21), func(c *call) {
		x := c.any(0)
		dims, ok := c.attrInts("shape")
		if c.version >= 5 {
			dims = c.ints(c.in(1))
		} else if !ok {
			c.fail("attribute \"shape\" is absent")
		}
		c.out(c.reshapeAny(x, c.reshapeDims(x.spec, dims, c.attrBool("allowzero", false))))
	})
	register("Flatten", since(1, 9, 11, 13, 21), func(c *call) {
		x := c.in(0)
		axis := c.attrInt("axis", 1)
		if axis < 0 {
			axis += int(x.spec.Rank)
		}
		if axis < 0 || axis > int(x.spec.Rank) {
			c.fail("axis %d of %v", axis, x)
		}
		rows, cols := 1, 1
		for i, n := range x.spec.Shape() {
			if i < axis {
				rows *= n
			} else {
				cols *= n
			}
		}
		c.out(c.reshape(x, rows, cols))
	})
	register("Squeeze", since(1, 11, 13, 21), func(c *call) {
		x := c.any(0)
		axes, given := c.axesArg(13, 1, "axes")
		var drop [tensor.MaxRank]bool
		for _, a := range axes {
			a = c.axis(a, int(x.spec.Rank))
			if x.spec.Dims[a] != 1 {
				c.fail("dimension %d of %v is not 1", a, x)
			}
			drop[a] = true
		}
		dims := []int{}
		for i, n := range x.spec.Shape() {
			if !drop[i] && (given || n != 1) {
				dims = append(dims, n)
			}
		}
		c.out(c.reshapeAny(x, dims))
	})
	register("Unsqueeze", since(1, 11, 13, 21), func(c *call) {
		x := c.any(0)
		axes, given := c.axesArg(13, 1, "axes")
		if !given {
			c.fail("axes are absent")
		}
		rank := int(x.spec.Rank) + len(axes)
		if rank > tensor.MaxRank {
			c.fail("%d dimensions, at most %d are possible", rank, tensor.MaxRank)
		}
		var insert [tensor.MaxRank]bool
		for _, a := range axes {
			a = c.axis(a, rank)
			if insert[a] {
				c.fail("axis %d is given twice", a)
			}
			insert[a] = true
		}
		dims, from := make([]int, rank), x.spec.Shape()
		for i := range dims {
			if insert[i] {
				dims[i] = 1
			} else {
				dims[i], from = from[0], from[1:]
			}
		}
		c.out(c.reshapeAny(x, dims))
	})
	register("Transpose", since(1, 13, 21), func(c *call) {
		x := c.in(0)
		order, ok := c.attrInts("perm")
		if !ok {
			order = identity(int(x.spec.Rank))
			slices.Reverse(order)
		}
		c.out(c.permute(x, order...))
	})
	register("Expand", since(8, 13), func(c *call) {
		dims, err := tensor.BroadcastDims(c.in(0).spec.Shape(), c.ints(c.in(1)))
		c.check(err)
		c.out(c.broadcast(c.in(0), dims...))
	})
	register("Identity", since(1, 13, 14, 16, 19, 21), func(c *call) { c.out(c.any(0)) })
}

// reshapeDims resolves 0 and -1.
func (c *call) reshapeDims(s tensor.Spec, dims []int, zero bool) []int {
	dims = slices.Clone(dims)
	if len(dims) > tensor.MaxRank {
		c.fail("%d dimensions, at most %d are possible", len(dims), tensor.MaxRank)
	}
	infer, rest := -1, 1
	for i, d := range dims {
		switch {
		case d == 0 && !zero:
			if i >= int(s.Rank) {
				c.fail("shape %v of %v: no dimension %d to keep", dims, s, i)
			}
			dims[i] = s.Dims[i]
		case d == -1 && infer < 0:
			infer = i
			continue
		case d < 0:
			c.fail("shape %v: dimensions are positive, and -1 once", dims)
		}
		rest *= dims[i]
	}
	if infer >= 0 {
		if rest == 0 || s.Elems()%rest != 0 {
			c.fail("shape %v of %v: %d elements are no multiple of %d", dims, s, s.Elems(), rest)
		}
		dims[infer] = s.Elems() / rest
	}
	return dims
}

// reshapeAny reshapes numbers or strings.
func (c *call) reshapeAny(x *value, dims []int) *value {
	switch x.kind {
	case numbers:
		return c.reshape(x, dims...)
	case text:
		n := 1
		for _, d := range dims {
			n *= d
		}
		if n != len(x.text) {
			c.fail("%d strings to %v", len(x.text), dims)
		}
		return textValue(x.text, dims)
	}
	c.fail("reshape of a %v", x.kind)
	return nil
}
