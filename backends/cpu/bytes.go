package cpu

import (
	"context"
	"math"

	engine "github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/tensor"
)

// addBytesKernel adds quantized bytes by arithmetic. Operands with gaps run the reference.
type addBytesKernel struct {
	referenceKernel
	sum       vec.ByteSum
	vec       *vec.Funcs
	dst, a, b []byte
}

// addBytesKernel returns nil where the op's own range, which may look sums up in a table, is faster.
func (b *Backend) addBytesKernel(op ops.ByteAdder) kernel {
	if !b.vec.ByteSums {
		return nil
	}
	k := &addBytesKernel{referenceKernel: referenceKernel{op: op}, sum: byteSum(op.ByteSum()), vec: b.vec}
	b.vec.Prepare(&k.sum)
	return k
}

// byteSum returns a sum in the layout that kernels read.
func byteSum(s ops.ByteSum) vec.ByteSum {
	return vec.ByteSum{ScaleA: s.A.Scale, ScaleB: s.B.Scale, ScaleY: s.Y.Scale, ZeroA: s.A.Zero, ZeroB: s.B.Zero, ZeroY: s.Y.Zero,
		Lo: s.Lo, Hi: s.Hi, SignedA: s.A.Signed, SignedB: s.B.Signed}
}

func (k *addBytesKernel) run(e *env, frame []tensor.Tensor) error {
	y, a, b := &frame[k.out[0]], &frame[k.in[0]], &frame[k.in[1]]
	if !y.IsContiguous() || !a.IsContiguous() || !b.IsContiguous() {
		return k.referenceKernel.run(e, frame)
	}
	k.dst, k.a, k.b = y.Raw(), a.Raw(), b.Raw()
	par.Run(e.threads, (len(k.dst)+rangeLength-1)/rangeLength, k)
	return nil
}

// Do adds a piece.
func (k *addBytesKernel) Do(_, piece int) {
	from := piece * rangeLength
	to := min(from+rangeLength, len(k.dst))
	k.vec.AddBytes(k.dst[from:to], k.a[from:to], k.b[from:to], &k.sum)
}

// quantizeKernel turns numbers into quantized bytes. Operands with gaps run the reference.
type quantizeKernel struct {
	referenceKernel
	step vec.ByteSum // of no operands
	vec  *vec.Funcs
	dst  []byte
	x    []float32
}

// quantizeKernel returns nil where the op's own range is as fast.
func (b *Backend) quantizeKernel(op ops.ByteQuantizer) kernel {
	if !b.vec.ByteSums {
		return nil
	}
	s := op.ByteStep()
	k := &quantizeKernel{referenceKernel: referenceKernel{op: op}, step: vec.ByteSum{ScaleY: s.Scale, ZeroY: s.Zero, Hi: math.MaxUint8}, vec: b.vec}
	if s.Signed {
		k.step.Lo, k.step.Hi = math.MinInt8, math.MaxInt8
	}
	return k
}

func (k *quantizeKernel) run(e *env, frame []tensor.Tensor) error {
	y, x := &frame[k.out[0]], &frame[k.in[0]]
	if !y.IsContiguous() || !x.IsContiguous() {
		return k.referenceKernel.run(e, frame)
	}
	k.dst, k.x = y.Raw(), tensor.Data[float32](*x)
	par.Run(e.threads, (len(k.dst)+rangeLength-1)/rangeLength, k)
	return nil
}

// Do quantizes a piece.
func (k *quantizeKernel) Do(_, piece int) {
	from := piece * rangeLength
	to := min(from+rangeLength, len(k.dst))
	k.vec.Quantize(k.dst[from:to], k.x[from:to], &k.step)
}

// maxBytesKernel pools the maxima of bytes: those of a column of rows first, whole rows at a time, then those along the row. A row of results is a job.
type maxBytesKernel struct {
	layout  conv.Layout
	dims    [conv.MaxSpatial]engine.Dim
	n, c    int
	max     func(dst, a, b []byte)
	least   byte // the result of a window of padding alone
	in, out int
	x, y    convImage
	from    []byte
	to      []byte
	rows    [][]byte // the maxima of a column, by worker
	env     *env
}

// fewestMaxima is the number of channels below which pixels fill no vector.
const fewestMaxima = 32

// maxBytesKernelFor returns nil for poolings that go by way of floats.
func maxBytesKernelFor(b *Backend, op conv.Pool, dims [conv.MaxSpatial]engine.Dim, x tensor.Spec) kernel {
	k := &maxBytesKernel{layout: op.Layout, dims: dims, n: x.Dims[0], c: op.Layout.Channels(x)}
	if op.Kind != conv.Max || !byteImage(x.DType) || k.c < fewestMaxima {
		return nil
	}
	if k.max = b.vec.MaxU8; x.DType == tensor.I8 {
		k.max, k.least = b.vec.MaxS8, 0x80
	}
	if k.max == nil {
		return nil
	}
	if d := &k.dims[0]; d.Kernel == 0 { // no third dimension
		*d = engine.Dim{In: 1, Out: 1, Kernel: 1, Stride: 1, Dilation: 1}
	}
	return k
}

func (k *maxBytesKernel) bind(_ context.Context, e *env, _ *ops.Part, n *ops.Node) error {
	k.in, k.out, k.env = n.In[0], n.Out[0], e
	k.rows = make([][]byte, par.Workers(e.threads, k.jobs()))
	return nil
}

func (k *maxBytesKernel) jobs() int { return k.n * k.dims[0].Out * k.dims[1].Out }

// rowBytes is the size of a row of the image.
func (k *maxBytesKernel) rowBytes() int { return k.dims[2].In * k.c }

func (k *maxBytesKernel) run(e *env, frame []tensor.Tensor) error {
	x, out := k.x.read(e, k.layout, &frame[k.in]), last(k.layout, frame[k.out])
	y := out
	direct := y.IsContiguous()
	if !direct {
		y = k.y.room(out.Spec)
	}
	k.from, k.to = rawBytes(&x), rawBytes(&y)
	par.Run(e.threads, k.jobs(), k)
	if !direct {
		k.y.copy(e, &out, &y)
	}
	return nil
}

// Do computes a row of results.
func (k *maxBytesKernel) Do(worker, job int) {
	if k.env.stopped() {
		return
	}
	if k.rows[worker] == nil {
		k.rows[worker] = make([]byte, k.rowBytes())
	}
	n, x := k.rowBytes(), &k.dims[2]
	image, z, y := job/k.dims[1].Out/k.dims[0].Out, job/k.dims[1].Out%k.dims[0].Out, job%k.dims[1].Out
	column := maxima{max: k.max, room: k.rows[worker]}
	for tz := range k.dims[0].Kernel {
		for ty := range k.dims[1].Kernel {
			pz, inside := tap(&k.dims[0], z, tz)
			py, inRow := tap(&k.dims[1], y, ty)
			if inside && inRow {
				column.add(k.from[((image*k.dims[0].In+pz)*k.dims[1].In+py)*n:][:n])
			}
		}
	}
	results := k.to[job*x.Out*k.c:][:x.Out*k.c]
	for o := range x.Out {
		pixel := maxima{max: k.max, room: results[o*k.c:][:k.c]}
		for t := range x.Kernel {
			if p, inside := tap(x, o, t); inside && column.all != nil {
				pixel.add(column.all[p*k.c:][:k.c])
			}
		}
		if pixel.all == nil {
			for i := range pixel.room {
				pixel.room[i] = k.least
			}
			continue
		}
		copy(pixel.room, pixel.all) // a single tap has not been stored
	}
}

// tap returns the position that a tap of result o reads, and whether it lies inside.
func tap(d *engine.Dim, o, t int) (at int, inside bool) {
	at = o*d.Stride + t*d.Dilation - d.Before
	return at, at >= 0 && at < d.In
}

// maxima are the greatest of some rows: all is nil for none, the row itself for one, and room for more.
type maxima struct {
	max       func(dst, a, b []byte)
	room, all []byte
}

func (m *maxima) add(row []byte) {
	if m.all == nil {
		m.all = row
		return
	}
	m.max(m.room, m.all, row)
	m.all = m.room
}
