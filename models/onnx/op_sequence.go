package onnx

import (
	"slices"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("SequenceEmpty", since(11), func(c *call) { c.out(sequenceValue(nil)) })
	register("SequenceConstruct", since(11), func(c *call) {
		for i := range c.ins {
			c.any(i)
		}
		c.out(sequenceValue(slices.Clone(c.ins)))
	})
	register("SequenceAt", since(11), func(c *call) {
		s := c.seq(0)
		c.out(s[c.position(1, len(s), len(s)-1)])
	})
	register("SequenceInsert", since(11), func(c *call) { // a position may be the length: behind the last
		s := c.seq(0)
		at := len(s)
		if c.has(2) {
			at = c.position(2, len(s), len(s))
		}
		c.out(sequenceValue(slices.Insert(slices.Clone(s), at, c.any(1))))
	})
	register("SequenceErase", since(11), func(c *call) {
		s := c.seq(0)
		at := len(s) - 1
		if c.has(1) {
			at = c.position(1, len(s), len(s)-1)
		}
		if at < 0 {
			c.fail("the sequence is empty")
		}
		c.out(sequenceValue(slices.Delete(slices.Clone(s), at, at+1)))
	})
	register("SequenceLength", since(11), func(c *call) { c.out(knownValue(tensor.Of([]int64{int64(len(c.seq(0)))}))) })
	register("SplitToSequence", since(11), func(c *call) {
		x := c.in(0)
		axis := c.axis(c.attrInt("axis", 0), int(x.spec.Rank))
		n := x.spec.Dims[axis]
		keep := c.attrBool("keepdims", true)
		c.room(n, 64) // at worst an element each
		var sizes []int
		switch v := c.opt(1); {
		case v == nil:
			sizes = slices.Repeat([]int{1}, n)
		case v.spec.Rank == 0:
			size := c.int(v)
			if size < 1 {
				c.fail("parts of %d", size)
			}
			for at := 0; at < n; at += size {
				sizes = append(sizes, min(size, n-at))
			}
			keep = true
		default:
			sizes, keep = c.ints(v), true
		}
		at := 0
		var parts []*value
		for _, size := range sizes {
			if size < 0 || size > n-at {
				c.fail("parts %v of dimension %d of %v", sizes, axis, x)
			}
			p := c.slice(x, axis, at, at+size)
			if !keep {
				d := p.spec.Shape()
				p = c.reshape(p, append(d[:axis:axis], d[axis+1:]...)...)
			}
			parts = append(parts, p)
			at += size
		}
		c.out(sequenceValue(parts))
	})
	register("ConcatFromSequence", since(11), func(c *call) {
		s := c.seq(0)
		if len(s) == 0 {
			c.fail("the sequence is empty")
		}
		axis := c.attrInt("axis", 0)
		if c.attrBool("new_axis", false) {
			c.out(c.stack(s, axis, ValueInfo{}))
			return
		}
		c.out(c.concat(c.axis(axis, int(s[0].spec.Rank)), s...))
	})
	register("SequenceMap", since(17), func(c *call) {
		body := c.attrGraph("body")
		n := len(c.seq(0))
		results := make([][]*value, len(body.Outputs))
		for i := range n {
			c.turn(i)
			var args []*value
			for k := range c.ins {
				v := c.any(k)
				if v.kind == sequence {
					if len(v.seq) != n {
						c.fail("sequences of %d and %d elements", n, len(v.seq))
					}
					v = v.seq[i]
				}
				args = append(args, v)
			}
			for k, v := range c.sub(body, args) {
				results[k] = append(results[k], v)
			}
		}
		var outs []*value
		for _, r := range results {
			outs = append(outs, sequenceValue(r))
		}
		c.out(outs...)
	})
	register("Optional", since(15), func(c *call) {
		o := &value{kind: optional, known: true}
		if c.has(0) {
			o.inner = c.any(0)
		}
		c.out(o)
	})
	register("OptionalGetElement", since(15, 18), func(c *call) {
		v := c.any(0)
		if v.kind != optional {
			c.out(v)
			return
		}
		if v.inner == nil {
			c.fail("the optional is empty")
		}
		c.out(v.inner)
	})
	register("OptionalHasElement", since(15, 18), func(c *call) {
		has := c.has(0) && (c.ins[0].kind != optional || c.ins[0].inner != nil)
		c.out(knownValue(tensor.Of([]bool{has})))
	})
}

// seq returns input i, which must be a sequence.
func (c *call) seq(i int) []*value {
	v := c.any(i)
	if v.kind == optional && v.inner != nil {
		v = v.inner
	}
	if v.kind != sequence {
		c.fail("input %d is a %v, a sequence is right", i, v.kind)
	}
	return v.seq
}

// position reads a position of 0 to last, which may count from the end of n elements.
func (c *call) position(input, n, last int) int {
	p := c.int(c.in(input))
	if p < 0 {
		p += n
	}
	if p < 0 || p > last {
		c.fail("position %d of 0 to %d", p, last)
	}
	return p
}
