package cpu

import (
	"context"
	"errors"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// grainCopy is the grain of copies in bytes.
const grainCopy = 256 << 10

// copier moves the elements of one view into another of the same shape and type, in parallel where it pays. Block types move by whole
// blocks: their views are described in blocks.
type copier struct {
	loop
	e    *env
	elem int // bytes that move as one
	size int
	dst  unsafe.Pointer
	src  unsafe.Pointer
}

// copy moves the elements. The two do not overlap.
func (k *copier) copy(e *env, dst, src *tensor.Tensor) {
	k.e = e
	d, s := *dst, *src
	k.elem = d.DType.Size()
	if b := d.DType.Block(); b > 1 { // in units of blocks
		inBlocks(&d, b)
		inBlocks(&s, b)
	}
	if k.n == 0 || k.dims != d.Dims || k.rank != int(d.Rank) {
		k.made = false
		k.shape(d.Dims[:d.Rank], d.Spec, s.Spec)
	}
	if k.total == 0 {
		return
	}
	ts := [maxOperands]*tensor.Tensor{&d, &s}
	k.update(&ts)
	k.dst, k.src = dst.Ptr(), src.Ptr()
	var n int
	k.size, n = jobs(k.total, grainCopy/k.elem)
	if row := k.inner(); row < k.size && n > 1 { // whole rows, which transpose in squares
		k.size = (k.size + row - 1) / row * row
		n = (k.total + k.size - 1) / k.size
	}
	if n == 1 {
		k.Do(0, 0)
		return
	}
	par.Run(e.threads, n, k)
}

// inBlocks describes a tensor of a block type as one whose elements are blocks.
func inBlocks(t *tensor.Tensor, block int) {
	last := int(t.Rank) - 1
	t.Dims[last] /= block
	for i := range last {
		t.Strides[i] /= block
	}
	t.Strides[last] = 1
}

// Do moves one job's elements.
func (k *copier) Do(_, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.total)
	var c cursor
	k.seek(&c, at)
	d, s := k.innerStep(0), k.innerStep(1)
	if k.tiles(&c, at, to) {
		return
	}
	for at < to {
		n := min(k.left(&c), to-at)
		p, q := unsafe.Add(k.dst, c.off[0]), unsafe.Add(k.src, c.off[1])
		switch {
		case d == k.elem && s == k.elem:
			copy(unsafe.Slice((*byte)(p), n*k.elem), unsafe.Slice((*byte)(q), n*k.elem))
		case k.elem == 4:
			move[uint32](p, q, d, s, n)
		case k.elem == 2:
			move[uint16](p, q, d, s, n)
		case k.elem == 1:
			move[uint8](p, q, d, s, n)
		case k.elem == 8:
			move[uint64](p, q, d, s, n)
		default:
			for i := range n {
				copy(unsafe.Slice((*byte)(unsafe.Add(p, i*d)), k.elem), unsafe.Slice((*byte)(unsafe.Add(q, i*s)), k.elem))
			}
		}
		at += n
		k.advance(&c, n)
	}
}

func move[T number](p, q unsafe.Pointer, d, s, n int) {
	for i := range n {
		*(*T)(unsafe.Add(p, i*d)) = *(*T)(unsafe.Add(q, i*s))
	}
}

// tiles moves a transposition of elements of 4 bytes in squares, so that each cache line of the source is read once, and one of few columns of bytes too. It takes
// whole rows of the two innermost loops, and says false where that is not the case.
func (k *copier) tiles(c *cursor, at, to int) bool {
	if k.elem != 4 && k.elem != 1 || k.depth < 2 {
		return false
	}
	rows, cols := k.count[k.depth-2], k.count[k.depth-1]
	if k.elem == 1 && cols >= 8 || k.step[0][k.depth-1] != k.elem || k.step[1][k.depth-2] != k.elem || rows < 8 || cols < 2 || at%cols != 0 {
		return false
	}
	if to != k.total && to%cols != 0 {
		return false
	}
	if cols < 8 && k.step[0][k.depth-2] != k.elem*cols {
		return false
	}
	const tile = 16
	dr, sc := k.step[0][k.depth-2], k.step[1][k.depth-1]
	for at < to {
		n := min(rows-c.at[k.depth-2], (to-at)/cols) // rows of this matrix
		p, q := unsafe.Add(k.dst, c.off[0]), unsafe.Add(k.src, c.off[1])
		if cols < 8 {
			if k.elem == 1 {
				interleave(unsafe.Slice((*uint8)(p), n*cols), q, n, cols, sc)
			} else {
				interleave(unsafe.Slice((*uint32)(p), n*cols), q, n, cols, sc)
			}
			at += n * cols
			k.seek(c, at)
			continue
		}
		for i0 := 0; i0 < n; i0 += tile {
			for j0 := 0; j0 < cols; j0 += tile {
				for i := i0; i < min(i0+tile, n); i++ {
					for j := j0; j < min(j0+tile, cols); j++ {
						*(*uint32)(unsafe.Add(p, i*dr+j*4)) = *(*uint32)(unsafe.Add(q, i*4+j*sc))
					}
				}
			}
		}
		at += n * cols
		k.seek(c, at)
	}
	return true
}

// interleave puts few planes of n elements, step bytes apart, together: dst[i cols + j] = plane j [i].
func interleave[T uint8 | uint32](dst []T, src unsafe.Pointer, n, cols, step int) {
	plane := func(j int) []T { return unsafe.Slice((*T)(unsafe.Add(src, j*step)), n) }
	switch cols {
	case 3:
		a, b, c := plane(0), plane(1), plane(2)
		for i := range n {
			d := dst[3*i : 3*i+3 : 3*i+3]
			d[0], d[1], d[2] = a[i], b[i], c[i]
		}
	case 4:
		a, b, c, e := plane(0), plane(1), plane(2), plane(3)
		for i := range n {
			d := dst[4*i : 4*i+4 : 4*i+4]
			d[0], d[1], d[2], d[3] = a[i], b[i], c[i], e[i]
		}
	default:
		for j := range cols {
			d := dst[j:]
			for i, v := range plane(j) {
				d[i*cols] = v
			}
		}
	}
}

// viewKernel copies the view of its input into its output: what a view op is where no view was possible, and Contiguous.
type viewKernel struct {
	copier
	op       ops.Op
	in, out  int
	fallback referenceKernel
	reshape  bool
	staging  tensor.Tensor // a contiguous copy, for a reshape that no view gives
	stage    copier
}

func viewKernelFor(op ops.Op, _ ops.Call) kernel { return &viewKernel{op: op} }

func (k *viewKernel) bind(ctx context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.in, k.out = n.In[0], n.Out[0]
	switch k.op.(type) {
	case shape.Reshape, shape.Squeeze, shape.Unsqueeze:
		k.reshape = true
	}
	return k.fallback.bind(ctx, e, part, n)
}

func (k *viewKernel) run(e *env, frame []tensor.Tensor) error {
	in, out := &frame[k.in], &frame[k.out]
	if k.reshape {
		// The output seen in the input's shape, or the input in the output's: one of them is contiguous as a rule.
		if out.IsContiguous() {
			as := *out
			as.Spec, as.Strides = in.Spec, in.Contiguous()
			k.copy(e, &as, in)
			return nil
		}
		if in.IsContiguous() {
			as := *in
			as.Spec, as.Strides = out.Spec, out.Contiguous()
			k.copy(e, out, &as)
			return nil
		}
		if !k.staging.Valid() {
			k.staging = tensor.New(in.DType, in.Shape()...)
		}
		k.stage.copy(e, &k.staging, in)
		as := k.staging
		as.Spec, as.Strides = out.Spec, out.Contiguous()
		k.copy(e, out, &as)
		return nil
	}
	viewer, ok := k.op.(ops.Viewer)
	if !ok {
		k.copy(e, out, in)
		return nil
	}
	view, err := viewer.View(*in)
	var needs *tensor.NeedsCopyError
	if errors.As(err, &needs) {
		k.fallback.op = k.op
		return k.fallback.run(e, frame)
	}
	if err != nil {
		return err
	}
	k.copy(e, out, &view)
	return nil
}

// partsKernel copies parts of a dimension: Concat, Split.
type partsKernel struct {
	axis    int
	split   bool
	whole   int
	parts   []int
	copiers []copier
}

func concatKernelFor(op shape.Concat, c ops.Call) kernel {
	k := &partsKernel{axis: op.Axis}
	if k.axis < 0 {
		k.axis += int(c.Out[0].Rank)
	}
	if c.Out[0].DType.IsBlock() && k.axis == int(c.Out[0].Rank)-1 {
		return nil
	}
	return k
}

func splitKernelFor(op shape.Split, c ops.Call) kernel {
	k := &partsKernel{axis: op.Axis, split: true}
	if k.axis < 0 {
		k.axis += int(c.In[0].Rank)
	}
	if c.In[0].DType.IsBlock() && k.axis == int(c.In[0].Rank)-1 {
		return nil
	}
	return k
}

func (k *partsKernel) bind(_ context.Context, _ *env, _ *ops.Part, n *ops.Node) error {
	k.whole, k.parts = n.Out[0], n.In
	if k.split {
		k.whole, k.parts = n.In[0], n.Out
	}
	k.copiers = make([]copier, len(k.parts))
	return nil
}

func (k *partsKernel) run(e *env, frame []tensor.Tensor) error {
	at := 0
	for i, v := range k.parts {
		n := frame[v].Dims[k.axis]
		w, err := frame[k.whole].Slice(k.axis, at, at+n, 1)
		if err != nil {
			return err
		}
		if k.split {
			k.copiers[i].copy(e, &frame[v], &w)
		} else {
			k.copiers[i].copy(e, &w, &frame[v])
		}
		at += n
	}
	return nil
}

// castKernel converts by strips where one side is float32 or both are half floats; other pairs use tensor.Copy.
func castKernel(from, to tensor.DType) kernel {
	half := func(d tensor.DType) bool { return d == tensor.F32 || d == tensor.F16 || d == tensor.BF16 }
	if half(from) && half(to) {
		return &mapKernel[float32, float32]{operands: 1, grain: grainCheap, f: func(dst, a, _, _ []float32) { copy(dst, a) }}
	}
	switch {
	case from == tensor.U8 && to == tensor.F32:
		return castTo[uint8, float32]()
	case from == tensor.Bool && to == tensor.F32:
		return castTo[uint8, float32]()
	case from == tensor.I8 && to == tensor.F32:
		return castTo[int8, float32]()
	case from == tensor.I32 && to == tensor.F32:
		return castTo[int32, float32]()
	case from == tensor.I64 && to == tensor.F32:
		return castTo[int64, float32]()
	case from == tensor.I32 && to == tensor.I64:
		return castTo[int32, int64]()
	case from == tensor.I64 && to == tensor.I32:
		return castTo[int64, int32]()
	case from == tensor.F64 && to == tensor.F32:
		return castTo[float64, float32]()
	case from == tensor.F32 && to == tensor.F64:
		return castTo[float32, float64]()
	}
	return nil
}

func castTo[T, R number]() kernel {
	return &mapKernel[T, R]{operands: 1, grain: grainExp, f: func(dst []R, a, _, _ []T) {
		for i, x := range a {
			dst[i] = R(x)
		}
	}}
}
