package onnx

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Gather", since(1, 11, 13), func(c *call) {
		x := c.any(0)
		axis := c.axis(c.attrInt("axis", 0), int(x.spec.Rank))
		if x.kind == text {
			c.out(c.gatherText(x, axis))
			return
		}
		c.out(c.like(c.emit(shape.Gather{Axis: axis}, c.in(0), c.in(1)), x))
	})
	register("GatherElements", since(11, 13), func(c *call) {
		x, idx := c.in(0), c.in(1)
		axis := c.axis(c.attrInt("axis", 0), int(x.spec.Rank))
		if idx.spec.Rank != x.spec.Rank {
			c.fail("indices %v of %v: as many dimensions are right", idx, x)
		}
		for i, n := range idx.spec.Shape() {
			if i != axis && n > x.spec.Dims[i] {
				c.fail("indices %v of %v: dimension %d", idx, x, i)
			}
		}
		c.out(c.apply(idx.spec.With(x.spec.DType), func(out tensor.Tensor, in []tensor.Tensor) error {
			return gatherElements(out, in[0], in[1], axis)
		}, x, idx))
	})
	register("GatherND", since(11, 12, 13), gatherND)
	for _, name := range []string{"Scatter", "ScatterElements"} {
		versions := since(9, 11)
		if name == "ScatterElements" {
			versions = since(11, 13, 16, 18)
		}
		register(name, versions, scatterElements)
	}
	register("ScatterND", since(11, 13, 16, 18), scatterND)
	register("OneHot", since(9, 11), oneHot)
	register("Where", since(9, 16), func(c *call) {
		if c.any(1).kind == text {
			c.out(c.whereText())
			return
		}
		c.out(c.where(c.in(0), c.in(1), c.in(2)))
	})
	register("Compress", since(9, 11), func(c *call) {
		x := c.in(0)
		cond := c.ints(c.in(1))
		axis, flat := 0, c.n.Attr("axis") == nil
		if flat {
			x = c.reshape(x, x.spec.Elems())
		} else {
			axis = c.axis(c.attrInt("axis", 0), int(x.spec.Rank))
		}
		picks := []int64{}
		for i, v := range cond {
			if v != 0 {
				if i >= x.spec.Dims[axis] {
					c.fail("condition %d selects behind dimension %d of %v", i, axis, x)
				}
				picks = append(picks, int64(i))
			}
		}
		c.out(c.emit(shape.Gather{Axis: axis}, x, knownValue(tensor.Of(picks, len(picks)))))
	})
	register("ReverseSequence", since(10), func(c *call) {
		x := c.in(0)
		lens := c.ints(c.in(1))
		batch, time := c.axis(c.attrInt("batch_axis", 1), int(x.spec.Rank)), c.axis(c.attrInt("time_axis", 0), int(x.spec.Rank))
		if batch == time || len(lens) != x.spec.Dims[batch] {
			c.fail("%d lengths for %v, batch axis %d, time axis %d", len(lens), x, batch, time)
		}
		for _, n := range lens {
			if n < 0 || n > x.spec.Dims[time] {
				c.fail("length %d of %d", n, x.spec.Dims[time])
			}
		}
		c.out(c.apply(x.spec, func(out tensor.Tensor, in []tensor.Tensor) error {
			if err := tensor.Copy(out, in[0]); err != nil {
				return err
			}
			for b, n := range lens {
				from, err := in[0].Slice(batch, b, b+1, 1)
				if err != nil {
					return err
				}
				to, err := out.Slice(batch, b, b+1, 1)
				if err != nil {
					return err
				}
				for t := range n {
					d, err := to.Slice(time, t, t+1, 1)
					if err != nil {
						return err
					}
					s, err := from.Slice(time, n-1-t, n-t, 1)
					if err != nil {
						return err
					}
					if err := tensor.Copy(d, s); err != nil {
						return err
					}
				}
			}
			return nil
		}, x))
	})
}

func (c *call) gatherText(x *value, axis int) *value {
	idx := c.ints(c.in(1))
	dims := x.spec.Shape()
	n, inner, outer := dims[axis], 1, 1
	for i, d := range dims {
		if i > axis {
			inner *= d
		} else if i < axis {
			outer *= d
		}
	}
	var out []string
	for o := range outer {
		for _, i := range idx {
			if i < 0 {
				i += n
			}
			if i < 0 || i >= n {
				c.fail("index %d of %d", i, n)
			}
			out = append(out, x.text[(o*n+i)*inner:(o*n+i+1)*inner]...)
		}
	}
	shape := append(append(append([]int{}, dims[:axis]...), c.in(1).spec.Shape()...), dims[axis+1:]...)
	return textValue(out, shape)
}

func (c *call) whereText() *value {
	cond, a, b := c.in(0), c.any(1), c.any(2)
	if b.kind != text {
		c.fail("%v and %v", a, b)
	}
	dims, err := tensor.BroadcastDims(cond.spec.Shape(), a.spec.Shape(), b.spec.Shape())
	c.check(err)
	flags := c.ints(cond)
	n := 1
	for _, d := range dims {
		n *= d
	}
	c.room(n, 16)
	out := make([]string, n)
	for i := range out {
		from := b
		if flags[broadcastIndex(i, dims, cond.spec.Shape())] != 0 {
			from = a
		}
		out[i] = from.text[broadcastIndex(i, dims, from.spec.Shape())]
	}
	return textValue(out, dims)
}

// index checks an index that may count from the end.
func index(i int64, n int) (int, error) {
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return 0, fmt.Errorf("index %d of a dimension of %d", i, n)
	}
	return int(i), nil
}

// elements are the bytes of a tensor by element, in row-major order of any view.
type elements struct {
	raw  []byte
	size int
	offs []int
}

func elementsOf(t tensor.Tensor) elements {
	e := elements{raw: t.Raw(), size: t.DType.Size(), offs: make([]int, t.Elems())}
	t.Each(func(i, off int) { e.offs[i] = off * e.size })
	return e
}

func (e elements) at(i int) []byte { return e.raw[e.offs[i] : e.offs[i]+e.size] }

func gatherElements(out, x, idx tensor.Tensor, axis int) error {
	dims, from := idx.Shape(), x.Shape()
	dst, src := elementsOf(out), elementsOf(x)
	for i, v := range idx.Ints() {
		p, err := index(v, from[axis])
		if err != nil {
			return err
		}
		copy(dst.at(i), src.at(replaceIndex(i, dims, from, axis, p)))
	}
	return nil
}

// replaceIndex returns where element i of a tensor of shape dims lies in one of shape of, with its position along axis replaced.
func replaceIndex(i int, dims, of []int, axis, p int) int {
	at, step := 0, 1
	for d := len(dims) - 1; d >= 0; d-- {
		q := i % dims[d]
		i /= dims[d]
		if d == axis {
			q = p
		}
		at += q * step
		step *= of[d]
	}
	return at
}

func gatherND(c *call) {
	x, idx := c.in(0), c.in(1)
	batch := c.attrInt("batch_dims", 0)
	depth := 0
	if idx.spec.Rank > 0 {
		depth = idx.spec.Dim(-1)
	}
	if idx.spec.Rank < 1 || batch < 0 || batch >= int(idx.spec.Rank) || batch+depth > int(x.spec.Rank) || depth < 1 {
		c.fail("indices %v of %v with %d batch dimensions", idx, x, batch)
	}
	dims := append(idx.spec.Shape()[:idx.spec.Rank-1], x.spec.Shape()[batch+depth:]...)
	for i := range batch {
		if x.spec.Dims[i] != idx.spec.Dims[i] {
			c.fail("indices %v of %v: batch dimension %d", idx, x, i)
		}
	}
	c.out(c.apply(c.spec(x.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		dst, src := elementsOf(out), elementsOf(in[0])
		from := in[0].Shape()
		inner := 1
		for _, n := range from[batch+depth:] {
			inner *= n
		}
		perBatch := 1
		for _, n := range in[1].Shape()[batch : in[1].Rank-1] {
			perBatch *= n
		}
		ids := in[1].Ints()
		for i := 0; i*depth < len(ids); i++ {
			at := i / max(perBatch, 1)
			for k := range depth {
				p, err := index(ids[i*depth+k], from[batch+k])
				if err != nil {
					return err
				}
				at = at*from[batch+k] + p
			}
			for j := range inner {
				copy(dst.at(i*inner+j), src.at(at*inner+j))
			}
		}
		return nil
	}, x, idx))
}

// reduction combines what is there with what is scattered.
func (c *call) reduction() func(old, new float64) float64 {
	switch r := c.attrString("reduction", "none"); r {
	case "none":
		return nil
	case "add":
		return elementwise.Add.Apply
	case "mul":
		return elementwise.Mul.Apply
	case "max":
		return elementwise.Max.Apply
	case "min":
		return elementwise.Min.Apply
	default:
		c.fail("reduction %q is unknown", r)
	}
	return nil
}

// scatter returns an operation that copies x and writes updates at the places that f gives for each.
func (c *call) scatter(x, idx, updates *value, place func(idx []int64, i int) (int, error)) *value {
	combine := c.reduction()
	if updates.spec.DType != x.spec.DType {
		c.fail("updates are %v for %v", updates, x)
	}
	return c.apply(x.spec, func(out tensor.Tensor, in []tensor.Tensor) error {
		if err := tensor.Copy(out, in[0]); err != nil {
			return err
		}
		dst, src := elementsOf(out), elementsOf(in[2])
		ids := in[1].Ints()
		one := tensor.New(out.DType, 1)
		for i := range src.offs {
			p, err := place(ids, i)
			if err != nil {
				return err
			}
			if combine == nil {
				copy(dst.at(p), src.at(i))
				continue
			}
			read := func(b []byte) float64 { copy(one.Raw(), b); return one.Floats()[0] }
			one.SetFloats([]float64{combine(read(dst.at(p)), read(src.at(i)))})
			copy(dst.at(p), one.Raw())
		}
		return nil
	}, x, idx, updates)
}

func scatterElements(c *call) {
	x, idx, updates := c.in(0), c.in(1), c.in(2)
	axis := c.axis(c.attrInt("axis", 0), int(x.spec.Rank))
	if idx.spec.Rank != x.spec.Rank || idx.spec.With(updates.spec.DType) != updates.spec {
		c.fail("indices %v and updates %v for %v", idx, updates, x)
	}
	dims, of := idx.spec.Shape(), x.spec.Shape()
	for i := range dims {
		if i != axis && dims[i] > of[i] {
			c.fail("indices %v for %v: dimension %d", idx, x, i)
		}
	}
	c.out(c.scatter(x, idx, updates, func(ids []int64, i int) (int, error) {
		p, err := index(ids[i], of[axis])
		return replaceIndex(i, dims, of, axis, p), err
	}))
}

func scatterND(c *call) {
	x, idx, updates := c.in(0), c.in(1), c.in(2)
	if idx.spec.Rank < 1 || idx.spec.Dim(-1) > int(x.spec.Rank) {
		c.fail("indices %v for %v", idx, x)
	}
	depth := idx.spec.Dim(-1)
	of := x.spec.Shape()
	want := append(idx.spec.Shape()[:idx.spec.Rank-1], of[depth:]...)
	if updates.spec != c.spec(x.spec.DType, want...) {
		c.fail("updates %v, %v is right", updates, c.spec(x.spec.DType, want...))
	}
	inner := 1
	for _, n := range of[depth:] {
		inner *= n
	}
	c.out(c.scatter(x, idx, updates, func(ids []int64, i int) (int, error) {
		at := 0
		for k := range depth {
			p, err := index(ids[i/inner*depth+k], of[k])
			if err != nil {
				return 0, err
			}
			at = at*of[k] + p
		}
		return at*inner + i%inner, nil
	}))
}

func oneHot(c *call) {
	idx, values := c.in(0), c.in(2)
	depthTensor := c.data(c.in(1))
	if depthTensor.Elems() != 1 || values.spec.Elems() != 2 {
		c.fail("depth %v, values %v", c.in(1), values)
	}
	depth := int(depthTensor.Floats()[0])
	if depth < 1 || depth > math.MaxInt32 {
		c.fail("depth %d", depth)
	}
	rank := int(idx.spec.Rank) + 1
	axis := c.axis(c.attrInt("axis", -1), rank)
	dims := append(append(append([]int{}, idx.spec.Shape()[:axis]...), depth), idx.spec.Shape()[axis:]...)
	c.out(c.apply(c.spec(values.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		dst, v := elementsOf(out), elementsOf(in[1])
		inner := 1
		for _, n := range dims[axis+1:] {
			inner *= n
		}
		hot := in[0].Floats()
		for i := range dst.offs {
			at := int(hot[i/(inner*depth)*inner+i%inner])
			if at < 0 {
				at += depth
			}
			pick := 0
			if at == i/inner%depth {
				pick = 1
			}
			copy(dst.at(i), v.at(pick))
		}
		return nil
	}, idx, values))
}
