package cpu

import (
	"context"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// rowMajor gives kernels that work on row-major memory operands of any strides: those that lie otherwise pass through a copy.
type rowMajor struct {
	read, write copier
	in, out     tensor.Tensor
}

func (m *rowMajor) input(e *env, t tensor.Tensor) tensor.Tensor {
	if t.IsContiguous() {
		return t
	}
	if m.in.Spec != t.Spec {
		m.in = tensor.New(t.DType, t.Shape()...)
	}
	m.read.copy(e, &m.in, &t)
	return m.in
}

// output returns where to write; done brings it to its place.
func (m *rowMajor) output(t tensor.Tensor) tensor.Tensor {
	if t.IsContiguous() {
		return t
	}
	if m.out.Spec != t.Spec {
		m.out = tensor.New(t.DType, t.Shape()...)
	}
	return m.out
}

func (m *rowMajor) done(e *env, t *tensor.Tensor) {
	if !t.IsContiguous() {
		m.write.copy(e, t, &m.out)
	}
}

// resizeKernel resamples one dimension or two neighbouring ones. A row of output is made in two steps: the input rows that it lies
// between are combined, then the pixels of the result.
type resizeKernel struct {
	e                *env
	in, out          int
	outer, inner     int // elements before and behind the resized dimensions
	h, w, oh, ow     int
	ys, xs           taps
	rowMajor         rowMajor
	src, dst         []float32
	rows             [][]float32
	size             int
	straight, single bool // columns stay; inner is one element
}

// taps is image.Taps in float32.
type taps struct {
	n      int
	index  []int32
	weight []float32
}

func tapsOf(t image.Taps) taps {
	s := taps{n: t.N, index: t.Index}
	for _, w := range t.Weight {
		s.weight = append(s.weight, float32(w))
	}
	return s
}

func resizeKernelFor(op image.Resize, c ops.Call) kernel {
	in, out := c.In[0], c.Out[0]
	if in.DType != tensor.F32 || in.Elems() == 0 || out.Elems() == 0 {
		return nil
	}
	first, last := -1, -1
	var all [tensor.MaxRank]image.Taps
	for d := range int(in.Rank) {
		all[d] = op.Taps(d, in.Dims[d])
		if all[d].Outside != nil {
			return nil
		}
		if !all[d].Identity(in.Dims[d]) {
			if first < 0 {
				first = d
			}
			last = d
		}
	}
	if last-first > 1 {
		return nil
	}
	k := &resizeKernel{outer: 1, inner: 1, h: 1, oh: 1, w: 1, ow: 1}
	one := taps{n: 1, index: []int32{0}, weight: []float32{1}}
	k.ys, k.xs = one, one
	for d := range int(in.Rank) {
		switch {
		case last < 0 || d < first:
			k.outer *= in.Dims[d]
		case d > last:
			k.inner *= in.Dims[d]
		case d == last:
			k.w, k.ow, k.xs = in.Dims[d], out.Dims[d], tapsOf(all[d])
		default:
			k.h, k.oh, k.ys = in.Dims[d], out.Dims[d], tapsOf(all[d])
		}
	}
	if first == last && last >= 0 && k.inner > 1 { // rows, which lie together, are combined in one step
		k.h, k.oh, k.ys, k.w, k.ow, k.xs = k.w, k.ow, k.xs, 1, 1, one
	}
	k.straight = k.w == k.ow && k.xs.n == 1 && k.w == 1
	k.single = k.inner == 1
	return k
}

func (k *resizeKernel) bind(_ context.Context, e *env, _ *ops.Part, n *ops.Node) error {
	k.e, k.in, k.out = e, n.In[0], n.Out[0]
	return nil
}

func (k *resizeKernel) run(e *env, frame []tensor.Tensor) error {
	x, y := k.rowMajor.input(e, frame[k.in]), k.rowMajor.output(frame[k.out])
	k.src, k.dst = tensor.Data[float32](x), tensor.Data[float32](y)
	var n int
	k.size, n = jobs(k.outer*k.oh, max(1, grainExp/max(k.ow*k.inner, 1)))
	for w := par.Workers(e.threads, n); len(k.rows) < w; {
		k.rows = append(k.rows, make([]float32, k.w*k.inner))
	}
	par.Run(e.threads, n, k)
	k.rowMajor.done(e, &frame[k.out])
	return nil
}

// Do computes some rows of output.
func (k *resizeKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	vec := k.e.vec
	row := k.w * k.inner
	for r := job * k.size; r < min((job+1)*k.size, k.outer*k.oh); r++ {
		image, y := r/k.oh, r%k.oh
		src := k.src[image*k.h*row:]
		dst := k.dst[r*k.ow*k.inner : (r+1)*k.ow*k.inner]
		at := func(t int) []float32 { i := int(k.ys.index[y*k.ys.n+t]); return src[i*row : (i+1)*row] }
		line := at(0)
		if k.ys.n > 1 {
			line = k.rows[worker]
			if k.straight {
				line = dst
			}
			vec.Scale(line, at(0), k.ys.weight[y*k.ys.n], 0)
			for t := 1; t < k.ys.n; t++ {
				vec.Axpy(line, at(t), k.ys.weight[y*k.ys.n+t])
			}
		}
		switch {
		case k.straight:
			if k.ys.n == 1 {
				copy(dst, line)
			}
		case k.single:
			k.columns(dst, line)
		case k.xs.n == 1:
			for x, i := range k.xs.index {
				copy(dst[x*k.inner:(x+1)*k.inner], line[int(i)*k.inner:])
			}
		default:
			n := k.xs.n
			for x := range k.ow {
				pixel := dst[x*k.inner : (x+1)*k.inner]
				from := func(t int) []float32 { i := int(k.xs.index[x*n+t]) * k.inner; return line[i : i+k.inner] }
				vec.Scale(pixel, from(0), k.xs.weight[x*n], 0)
				for t := 1; t < n; t++ {
					vec.Axpy(pixel, from(t), k.xs.weight[x*n+t])
				}
			}
		}
	}
}

// columns resamples a row of single elements.
func (k *resizeKernel) columns(dst, line []float32) {
	n := k.xs.n
	if n == 1 {
		for x, i := range k.xs.index {
			dst[x] = line[i]
		}
		return
	}
	for x := range dst {
		var sum float32
		for t := range n {
			sum += line[k.xs.index[x*n+t]] * k.xs.weight[x*n+t]
		}
		dst[x] = sum
	}
}

// padKernel pads rows: the innermost dimension is copied as a whole where it has a source.
type padKernel struct {
	e        *env
	op       shape.Pad
	in, out  int
	src      tensor.Tensor
	dst      []byte
	fill     []byte // a row of the value
	elem     int
	rowMajor rowMajor
	size     int
	rows     int
}

func padKernelFor(op shape.Pad, c ops.Call) kernel {
	if c.In[0].Rank == 0 || c.In[0].DType.IsBlock() {
		return nil
	}
	return &padKernel{op: op}
}

func (k *padKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.in, k.out = e, n.In[0], n.Out[0]
	s := part.Values[k.out].Spec
	k.elem = s.DType.Size()
	row := s.Dim(-1)
	k.rows = 1
	for _, d := range s.Shape()[:s.Rank-1] {
		k.rows *= d
	}
	fill := tensor.New(s.DType, row)
	values := make([]float64, row)
	for i := range values {
		values[i] = k.op.Value
	}
	fill.SetFloats(values)
	k.fill = fill.Raw()
	return nil
}

func (k *padKernel) run(e *env, frame []tensor.Tensor) error {
	if frame[k.out].Elems() == 0 {
		return nil
	}
	k.src = k.rowMajor.input(e, frame[k.in])
	out := k.rowMajor.output(frame[k.out])
	k.dst = out.Raw()
	var n int
	k.size, n = jobs(k.rows, max(1, grainCopy/max(len(k.fill), 1)))
	par.Run(e.threads, n, k)
	k.rowMajor.done(e, &frame[k.out])
	return nil
}

// Do pads some rows.
func (k *padKernel) Do(_, job int) {
	if k.e.stopped() {
		return
	}
	last := int(k.src.Rank) - 1
	width, n := len(k.fill), k.src.Dims[last]
	raw := k.src.Raw()
	before := k.op.Before.At(last)
	for r := job * k.size; r < min((job+1)*k.size, k.rows); r++ {
		dst := k.dst[r*width : (r+1)*width]
		at, step, rest, inside := 0, 1, r, true
		for d := last - 1; d >= 0; d-- {
			m := k.src.Dims[d] + k.op.Before.At(d) + k.op.After.At(d)
			s, ok := k.op.Source(d, rest%m, k.src.Dims[d])
			rest /= m
			inside = inside && ok
			at += s * step
			step *= k.src.Dims[d]
		}
		if !inside {
			copy(dst, k.fill)
			continue
		}
		from := raw[at*n*k.elem : (at+1)*n*k.elem]
		// What the row holds of its source, as one piece.
		lo, hi := max(before, 0), min(before+n, width/k.elem)
		if lo < hi {
			copy(dst[lo*k.elem:hi*k.elem], from[(lo-before)*k.elem:])
		} else {
			lo, hi = 0, 0
		}
		for i := 0; i < width/k.elem; i++ {
			if i >= lo && i < hi {
				i = hi - 1
				continue
			}
			if s, ok := k.op.Source(last, i, n); ok {
				copy(dst[i*k.elem:(i+1)*k.elem], from[s*k.elem:])
			} else {
				copy(dst[i*k.elem:(i+1)*k.elem], k.fill)
			}
		}
	}
}
