package cpu

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// ids are the indices of a run, as int64 in row-major order.
type ids struct {
	v []int64
}

// read reads and checks indices against a dimension of n; with wrap those below zero count from the end.
func (k *ids) read(op string, t *tensor.Tensor, n int, wrap bool) error {
	readInts(k.v, t)
	for i, id := range k.v {
		x := id
		if wrap && x < 0 {
			x += int64(n)
		}
		if x < 0 || x >= int64(n) {
			return &shape.RowError{Op: op, Pos: i, Index: id, N: int64(n)}
		}
		k.v[i] = x
	}
	return nil
}

// targets are ids that say where to write. Those that all differ are shared out among workers; of equal ones the last must win.
type targets struct {
	ids
	size int      // ids of a job
	seen []uint64 // a bit for each place
}

// share divides the ids into jobs of so many, or one of all, and returns their number. There are n places.
func (k *targets) share(threads, grain, n int) int {
	size, count := jobs(len(k.v), max(1, grain))
	if par.Workers(threads, count) == 1 || !k.differ(n) {
		size, count = len(k.v), 1
	}
	k.size = size
	return count
}

// differ reports whether no two ids are equal.
func (k *targets) differ(n int) bool {
	if len(k.v) > n {
		return false
	}
	if words := (n + 63) / 64; len(k.seen) < words {
		k.seen = make([]uint64, words)
	}
	done := 0
	for _, id := range k.v {
		bit := uint64(1) << (id % 64)
		if k.seen[id/64]&bit != 0 {
			break
		}
		k.seen[id/64] |= bit
		done++
	}
	for _, id := range k.v[:done] {
		k.seen[id/64] = 0
	}
	return done == len(k.v)
}

// of returns the range of a job's ids.
func (k *targets) of(job int) (from, to int) { return job * k.size, min((job+1)*k.size, len(k.v)) }

// getRowsKernel looks up rows of a table of any type.
type getRowsKernel struct {
	ids
	e          *env
	table, out int
	index      int
	width      int
	typ, to    tensor.DType
	dst        loop // over the rows of the result
	base, src  unsafe.Pointer
	along      [2]int // bytes between elements of a row: result, table
	row        int    // bytes between rows of the table
	size       int
}

func getRowsKernelFor(c ops.Call) kernel {
	d := c.In[0].DType
	if d.IsBlock() && !quant.CanDecode(d) {
		return nil
	}
	return &getRowsKernel{typ: d, to: c.Out[0].DType}
}

func (k *getRowsKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.table, k.index, k.out = e, n.In[0], n.In[1], n.Out[0]
	out := part.Values[k.out].Spec
	k.width = out.Dim(-1)
	k.v = make([]int64, part.Values[k.index].Spec.Elems())
	rows := out
	rows.Rank--
	rows.Dims[rows.Rank] = 0
	k.dst.shape(rows.Shape(), rows)
	return nil
}

func (k *getRowsKernel) run(e *env, frame []tensor.Tensor) error {
	table, out := &frame[k.table], &frame[k.out]
	if err := k.read("get_rows", &frame[k.index], table.Dims[0], false); err != nil {
		return err
	}
	if k.width == 0 || k.dst.total == 0 {
		return nil
	}
	o := *out
	k.along[0] = o.Strides[o.Rank-1] * o.DType.Size()
	o.Strides[o.Rank-1] = 0
	ts := [maxOperands]*tensor.Tensor{&o}
	k.dst.update(&ts)
	k.base, k.src = out.Ptr(), table.Ptr()
	block := k.typ.Block()
	k.row = table.Strides[0] / block * k.typ.Size()
	k.along[1] = table.Strides[1] * k.typ.Size()
	var n int
	k.size, n = jobs(len(k.v), max(1, grainExp/k.width))
	if n == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do copies one job's rows.
func (k *getRowsKernel) Do(_, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, len(k.v))
	var c cursor
	k.dst.seek(&c, at)
	for ; at < to; at++ {
		p, q := unsafe.Add(k.base, c.off[0]), unsafe.Add(k.src, int(k.v[at])*k.row)
		k.copyRow(p, q)
		k.dst.advance(&c, 1)
	}
}

func (k *getRowsKernel) copyRow(p, q unsafe.Pointer) {
	switch {
	case k.typ.IsBlock():
		bytes := unsafe.Slice((*byte)(q), k.width/k.typ.Block()*k.typ.Size())
		if k.along[0] == 4 {
			// The row is whole blocks of a decodable type: no error is possible.
			_ = quant.DecodeRow(k.typ, floats(p, k.width), bytes)
			return
		}
		row := make([]float32, k.width)
		_ = quant.DecodeRow(k.typ, row, bytes)
		scatter(p, k.along[0], row)
	case k.to == tensor.F32:
		if k.along[0] == 4 {
			k.e.loadFloats(floats(p, k.width), k.typ, q, k.along[1])
			return
		}
		row := make([]float32, k.width)
		k.e.loadFloats(row, k.typ, q, k.along[1])
		scatter(p, k.along[0], row)
	default:
		moveElems(p, q, k.along[0], k.along[1], k.width, k.to.Size())
	}
}

// moveElems copies n elements of a size between strided places.
func moveElems(p, q unsafe.Pointer, d, s, n, size int) {
	if d == size && s == size {
		copy(unsafe.Slice((*byte)(p), n*size), unsafe.Slice((*byte)(q), n*size))
		return
	}
	switch size {
	case 1:
		move[uint8](p, q, d, s, n)
	case 2:
		move[uint16](p, q, d, s, n)
	case 4:
		move[uint32](p, q, d, s, n)
	case 8:
		move[uint64](p, q, d, s, n)
	}
}

// setRowsKernel writes slabs of one tensor into another's memory.
type setRowsKernel struct {
	targets
	e          *env
	axis       int
	dst, src   int
	out, index int
	slab       loop // over the slab: target, source
	from, to   tensor.DType
	same       bool
	plain      bool   // slabs are float32 side by side, and stay so
	update     copier // of a result that is not the target's memory
	base, data unsafe.Pointer
	dstStep    int // bytes between slabs
	srcStep    int
	buf        [][]float32 // of workers
}

func setRowsKernelFor(op shape.SetRows, c ops.Call) kernel {
	k := &setRowsKernel{axis: op.Axis, to: c.In[0].DType, from: c.In[1].DType}
	if k.axis < 0 {
		k.axis += int(c.In[0].Rank)
	}
	k.same = k.to == k.from
	if k.to.IsBlock() && onlyFloats(c.In[1:2]) {
		return &setBlocksKernel{axis: k.axis, to: k.to, from: k.from}
	}
	if k.to.IsBlock() || !k.same && !onlyFloats([]tensor.Spec{c.In[0], c.In[1]}) {
		return nil
	}
	return k
}

func (k *setRowsKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.dst, k.src, k.index, k.out = e, n.In[0], n.In[1], n.In[2], n.Out[0]
	k.v = make([]int64, part.Values[k.index].Spec.Elems())
	d, s := part.Values[k.dst].Spec, part.Values[k.src].Spec
	d.Dims[k.axis], s.Dims[k.axis] = 1, 1
	k.slab.shape(d.Shape(), d, s)
	return nil
}

func (k *setRowsKernel) run(e *env, frame []tensor.Tensor) error {
	out, dst, src := &frame[k.out], &frame[k.dst], &frame[k.src]
	if err := k.read("set_rows", &frame[k.index], dst.Dims[k.axis], false); err != nil {
		return err
	}
	if out.Ptr() != dst.Ptr() || out.Strides != dst.Strides {
		k.update.copy(e, out, dst)
	}
	if k.slab.total == 0 || len(k.v) == 0 {
		return nil
	}
	ts := [maxOperands]*tensor.Tensor{out, src}
	k.slab.update(&ts)
	k.dstStep, k.srcStep = out.Strides[k.axis]*k.to.Size(), src.Strides[k.axis]*k.from.Size()
	k.base, k.data = out.Ptr(), src.Ptr()
	k.plain = k.from == tensor.F32 && k.slab.depth == 1 && k.slab.innerStep(0) == k.to.Size() && k.slab.innerStep(1) == 4
	jobCount := k.share(e.threads, grainExp/k.slab.total, dst.Dims[k.axis])
	for w := par.Workers(e.threads, jobCount); len(k.buf) < w && !k.same && !k.plain; {
		k.buf = append(k.buf, make([]float32, strip))
	}
	if jobCount == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, jobCount, k)
	return nil
}

// Do writes one job's slabs.
func (k *setRowsKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	var buf []float32
	if !k.same && !k.plain {
		buf = k.buf[worker]
	}
	for i, to := k.of(job); i < to; i++ {
		p, q := unsafe.Add(k.base, int(k.v[i])*k.dstStep), unsafe.Add(k.data, i*k.srcStep)
		if k.plain {
			k.e.storeFloats(p, k.to, k.to.Size(), floats(q, k.slab.total))
			continue
		}
		k.write(p, q, buf)
	}
}

func (k *setRowsKernel) write(p, q unsafe.Pointer, buf []float32) {
	var c cursor
	for at := 0; at < k.slab.total; {
		n := k.slab.left(&c)
		d, s := k.slab.innerStep(0), k.slab.innerStep(1)
		to, from := unsafe.Add(p, c.off[0]), unsafe.Add(q, c.off[1])
		switch {
		case k.same:
			moveElems(to, from, d, s, n, k.to.Size())
		case s == 4 && k.from == tensor.F32:
			k.e.storeFloats(to, k.to, d, floats(from, n))
		case d == 4 && k.to == tensor.F32:
			k.e.loadFloats(floats(to, n), k.from, from, s)
		default:
			n = min(n, strip)
			k.e.loadFloats(buf[:n], k.from, from, s)
			k.e.storeFloats(to, k.to, d, buf[:n])
		}
		at += n
		k.slab.advance(&c, n)
	}
}

// setBlocksKernel quantizes slabs of floats into the memory of a tensor of blocks.
type setBlocksKernel struct {
	targets
	e          *env
	axis       int
	dst, src   int
	out, index int
	width      int  // elements of a row
	slab       loop // over the rows of a slab: target, source
	from, to   tensor.DType
	update     copier
	base, data unsafe.Pointer
	dstStep    int // bytes between slabs
	srcStep    int
	along      int // bytes between elements of a row of the source
	buf        [][]float32
	mu         sync.Mutex
	err        error
}

func (k *setBlocksKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.dst, k.src, k.index, k.out = e, n.In[0], n.In[1], n.In[2], n.Out[0]
	k.v = make([]int64, part.Values[k.index].Spec.Elems())
	s := part.Values[k.src].Spec
	k.width = s.Dim(-1)
	s.Dims[k.axis] = 1
	s.Rank--
	s.Dims[s.Rank] = 0
	s.DType = tensor.U8 // strides are given in bytes
	k.slab.shape(s.Shape(), s, s)
	return nil
}

func (k *setBlocksKernel) run(e *env, frame []tensor.Tensor) error {
	out, dst, src := &frame[k.out], &frame[k.dst], &frame[k.src]
	if err := k.read("set_rows", &frame[k.index], dst.Dims[k.axis], false); err != nil {
		return err
	}
	if out.Ptr() != dst.Ptr() || out.Strides != dst.Strides {
		k.update.copy(e, out, dst)
	}
	if k.width == 0 || k.slab.total == 0 || len(k.v) == 0 {
		return nil
	}
	o, s := *out, *src
	k.along = s.Strides[s.Rank-1] * k.from.Size()
	for i := range int(s.Rank) {
		o.Strides[i] = o.Strides[i] / k.to.Block() * k.to.Size()
		s.Strides[i] *= k.from.Size()
	}
	k.dstStep, k.srcStep = o.Strides[k.axis], s.Strides[k.axis]
	o.Rank, s.Rank = o.Rank-1, s.Rank-1
	k.slab.update(&[maxOperands]*tensor.Tensor{&o, &s})
	k.base, k.data, k.err = out.Ptr(), src.Ptr(), nil
	jobCount := k.share(e.threads, grainExp/(k.width*k.slab.total), dst.Dims[k.axis])
	for w := par.Workers(e.threads, jobCount); len(k.buf) < w; {
		k.buf = append(k.buf, make([]float32, k.width))
	}
	if jobCount == 1 {
		k.Do(0, 0)
		return k.err
	}
	par.Run(e.threads, jobCount, k)
	return k.err
}

// Do quantizes one job's slabs.
func (k *setBlocksKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	bytes := k.width / k.to.Block() * k.to.Size()
	for i, to := k.of(job); i < to; i++ {
		p, q := unsafe.Add(k.base, int(k.v[i])*k.dstStep), unsafe.Add(k.data, i*k.srcStep)
		var c cursor
		for range k.slab.total {
			from := unsafe.Add(q, c.off[1])
			row := k.buf[worker]
			if k.from == tensor.F32 && k.along == 4 {
				row = floats(from, k.width)
			} else {
				k.e.loadFloats(row, k.from, from, k.along)
			}
			if err := k.encode(unsafe.Slice((*byte)(unsafe.Add(p, c.off[0])), bytes), row); err != nil {
				k.mu.Lock()
				if k.err == nil {
					k.err = fmt.Errorf("set_rows: row %d: %w", i, err)
				}
				k.mu.Unlock()
				return
			}
			k.slab.advance(&c, 1)
		}
	}
}

// encode quantizes a row.
func (k *setBlocksKernel) encode(dst []byte, row []float32) error {
	if k.to != tensor.Q8_0 {
		return quant.EncodeRow(k.to, dst, row)
	}
	for at := 0; at < len(row); at += 32 {
		at += 32 * k.e.vec.ToQ8_0(dst[at/32*34:], row[at:])
		if at == len(row) {
			break
		}
		if quant.EncodeRow(k.to, dst[at/32*34:][:34], row[at:at+32]) != nil {
			return quant.EncodeRow(k.to, dst, row) // whose error counts from the start of the row
		}
	}
	return nil
}

// gatherKernel selects elements of a dimension of contiguous tensors; others run the reference.
type gatherKernel struct {
	ids
	referenceKernel
	e        *env
	axis     int
	n        int // size of the dimension
	outer    int
	bytes    int // of what lies behind the axis
	size     int
	dst, src unsafe.Pointer
}

func gatherKernelFor(op shape.Gather, c ops.Call) kernel {
	k := &gatherKernel{axis: op.Axis}
	if k.axis < 0 {
		k.axis += int(c.In[0].Rank)
	}
	return k
}

func (k *gatherKernel) bind(ctx context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.op = e, n.Op
	s := part.Values[n.In[0]].Spec
	k.v = make([]int64, part.Values[n.In[1]].Spec.Elems())
	k.n, k.outer, k.bytes = s.Dims[k.axis], 1, s.DType.Size()
	for i, d := range s.Shape() {
		switch {
		case i < k.axis:
			k.outer *= d
		case i > k.axis:
			k.bytes *= d
		}
	}
	return k.referenceKernel.bind(ctx, e, part, n)
}

func (k *gatherKernel) run(e *env, frame []tensor.Tensor) error {
	table, out := &frame[k.in[0]], &frame[k.out[0]]
	if !table.IsContiguous() || !out.IsContiguous() {
		return k.referenceKernel.run(e, frame)
	}
	if err := k.read("gather", &frame[k.in[1]], k.n, true); err != nil {
		return err
	}
	total := k.outer * len(k.v)
	if total == 0 || k.bytes == 0 {
		return nil
	}
	k.dst, k.src = out.Ptr(), table.Ptr()
	var n int
	k.size, n = jobs(total, max(1, grainCopy/k.bytes))
	if n == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do copies one job's slabs.
func (k *gatherKernel) Do(_, job int) {
	if k.e.stopped() {
		return
	}
	for i := job * k.size; i < min((job+1)*k.size, k.outer*len(k.v)); i++ {
		o, j := i/len(k.v), i%len(k.v)
		from := (o*k.n + int(k.v[j])) * k.bytes
		copy(unsafe.Slice((*byte)(unsafe.Add(k.dst, i*k.bytes)), k.bytes), unsafe.Slice((*byte)(unsafe.Add(k.src, from)), k.bytes))
	}
}
