package cpu

import (
	"context"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/tensor"
)

// Sizes of the tiles of attention. A tile of queries meets the keys block by block with a running maximum and sum (streaming softmax,
// Milakov and Gimelshein, arXiv 1805.02867; Rabe and Staats, arXiv 2112.05682), so that no more than queryTile x keyBlock scores exist
// for a worker at a time, whatever the context.
const (
	queryTile = 64           // rows of a tile: enough to pay for packing a block of keys
	keyBlock  = 256          // keys of a block: scores of a tile are 64 KiB, in the second-level cache, where shorter rows would not cost less and take more calls
	fewRows   = 16           // below it dot products with the keys where they lie are faster than packing them
	keptBytes = 512 << 10    // of packed keys and values that a worker keeps for the tiles of a group
	longBlock = 8 * keyBlock // keys that few queries meet at once, which read them as several streams: longer ones come no faster
	asStored  = 2            // up to it 16-bit keys and values are widened for every row, above once for all in memory
)

// sdpaKernel computes attention. Query heads that share a key head are rows of the same tiles.
type sdpaKernel struct {
	groups loop // over [batch..., G]; operands: result, Q, K, V, mask, positions
	e      *env
	op     attention.SDPA
	isa    cpuinfo.ISA
	in     [5]int // values; -1 where absent
	out    int

	rep, m, n, d, dv int // heads of a group, queries, keys, sizes of a head
	factor, cap      float32
	types            [6]tensor.DType
	base             [6]unsafe.Pointer
	row              [6]int // bytes between rows (queries for 0, 1, 4, 5; keys for 2, 3)
	along            [6]int // bytes between elements of a row
	head             [6]int // bytes between heads of a group (0, 1, 4)
	made             bool
	seen             [6][tensor.MaxRank]int
	halves           bool // keys and values are rows of 16 bits that vector functions read as they are
	tiles            int  // of a group
	runs             int  // so far
	whole            bool // a job is all tiles of a group
	work             []sdpaWork
}

// sdpaWork is the memory of one worker.
type sdpaWork struct {
	q, scores, acc  []float32 // tile of queries, scaled; scores; sums
	k, v            []float32 // a block of keys and values that are not float32 rows
	mask            []float32
	top, sum        []float32
	from, to        []int
	space           *gemm.Workspace
	scoreOpt, accum gemm.Options
	kept            []packedKeys // blocks of the group that the worker is at
	part            gemm.PackedB
}

// packedKeys is a block of keys and values as products of many rows read them.
type packedKeys struct {
	run, group, block int // whose they are
	n                 int // keys
	k, v              *gemm.PackedB
}

func sdpaKernelFor(op attention.SDPA, c ops.Call) kernel {
	if !onlyFloats(c.In[:1]) || !storable(c.In[1]) || !storable(c.In[2]) || c.In[0].Rank >= tensor.MaxRank {
		return nil
	}
	if len(c.In) > 3 && c.In[3].DType != tensor.Bool && !onlyFloats(c.In[3:4]) {
		return nil
	}
	return &sdpaKernel{op: op}
}

// storable reports whether keys or values can be read in this form.
func storable(s tensor.Spec) bool { return s.DType == tensor.Q8_0 || onlyFloats([]tensor.Spec{s}) }

func (k *sdpaKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.out, k.isa = e, n.Out[0], e.vec.ISA
	k.in = [5]int{-1, -1, -1, -1, -1}
	copy(k.in[:], n.In)
	q, kk, v := part.Values[n.In[0]].Spec, part.Values[n.In[1]].Spec, part.Values[n.In[2]].Spec
	k.m, k.d, k.n, k.dv = q.Dim(-2), q.Dim(-1), kk.Dim(-2), v.Dim(-1)
	g := kk.Dim(-3)
	k.rep = q.Dim(-3) / max(g, 1)
	k.factor, k.cap = float32(k.op.Factor(k.d)), k.op.Softcap
	k.types[0] = part.Values[k.out].Spec.DType
	for i, v := range k.in {
		if v >= 0 {
			k.types[i+1] = part.Values[v].Spec.DType
		}
	}
	dims := append(q.Shape()[:q.Rank-3], g)
	var specs [6]tensor.Spec
	for i := range specs {
		specs[i] = tensor.MakeSpec(tensor.U8, dims...) // all strides are given in bytes
	}
	k.groups.shape(dims, specs[:]...)
	k.tiles = (k.rep*k.m + queryTile - 1) / queryTile
	return nil
}

// layOut splits the operands' strides into those of groups, for the loop, and those inside a group.
func (k *sdpaKernel) layOut(ts *[6]*tensor.Tensor) {
	var outer [maxOperands]tensor.Tensor
	var ptr [maxOperands]*tensor.Tensor
	rank := k.groups.rank // batch dimensions and G
	for i, t := range ts {
		ptr[i] = &outer[i]
		k.base[i] = nil
		if t == nil {
			continue
		}
		k.base[i] = t.Ptr()
		size, block := t.DType.Size(), t.DType.Block()
		stride := func(fromLast int) int { // of a dimension counted from the innermost; 0 where broadcast
			d := int(t.Rank) - 1 - fromLast
			if d < 0 || t.Dims[d] == 1 {
				return 0
			}
			return t.Strides[d] / block * size // of blocks only whole rows are viewed
		}
		o := &outer[i].Strides
		if i == 5 { // positions [..., M]
			k.row[i] = stride(0)
			for b := range rank - 1 {
				o[b] = stride(rank - 1 - b)
			}
			continue
		}
		k.along[i], k.row[i] = stride(0), stride(1)
		for b := range rank - 1 {
			o[b] = stride(rank - 1 - b + 2)
		}
		k.head[i] = stride(2)
		o[rank-1] = k.head[i]
		if i != 2 && i != 3 { // heads of a group lie behind one another
			o[rank-1] *= k.rep
		}
	}
	k.groups.update(&ptr)
	k.halves = k.d > 0 && k.dv > 0 && k.rowsOfHalves(2, k.d) && k.rowsOfHalves(3, k.dv)
}

// rowsOfHalves reports whether rows of an operand are 16-bit elements side by side, in whole vectors.
func (k *sdpaKernel) rowsOfHalves(operand, width int) bool {
	return (k.types[operand] == tensor.F16 || k.types[operand] == tensor.BF16) && k.along[operand] == 2 && width%vec.Whole == 0 &&
		k.row[operand] >= 0 && k.row[operand]%2 == 0
}

func (k *sdpaKernel) run(e *env, frame []tensor.Tensor) error {
	ts := [6]*tensor.Tensor{&frame[k.out]}
	for i, v := range k.in {
		if v >= 0 {
			ts[i+1] = &frame[v]
		}
	}
	if ts[0].Elems() == 0 {
		return nil
	}
	same := k.made
	for i, t := range ts {
		if t != nil {
			same = same && t.Strides == k.seen[i]
			k.seen[i] = t.Strides
			k.base[i] = t.Ptr()
		}
	}
	if !same {
		k.made = true
		k.layOut(&ts)
	}
	k.runs++
	jobs := k.groups.total * k.tiles
	for w := par.Workers(e.threads, jobs); len(k.work) < w; {
		rows := min(queryTile, k.rep*k.m)
		s := sdpaWork{
			q: make([]float32, rows*k.d), scores: make([]float32, max(rows*keyBlock, longBlock)), acc: make([]float32, rows*k.dv),
			top: make([]float32, rows), sum: make([]float32, rows), from: make([]int, rows), to: make([]int, rows),
			mask: make([]float32, keyBlock),
		}
		s.k, s.v = make([]float32, keyBlock*k.d), make([]float32, keyBlock*k.dv)
		k.work = append(k.work, s)
	}
	if k.work[0].space == nil {
		for i := range k.work {
			space, err := e.spaces.of(i)
			if err != nil {
				return err
			}
			w := &k.work[i]
			w.space = space
			w.scoreOpt = gemm.Options{Threads: 1, Workspace: space, ISA: k.isa}
			w.accum = gemm.Options{Threads: 1, Workspace: space, ISA: k.isa, Accumulate: true}
		}
	}
	one := jobs == 1 || k.work1(&ts)
	workers := par.Workers(e.threads, jobs)
	k.whole = one || workers == 1 || k.groups.total >= 4*workers
	if k.whole {
		jobs = k.groups.total
	}
	if one {
		for i := range jobs {
			k.Do(0, i)
		}
		return nil
	}
	par.Run(e.threads, jobs, k)
	return nil
}

// work1 reports whether there is work for one worker only. Of a long cache little may be filled: the positions tell.
func (k *sdpaKernel) work1(ts *[6]*tensor.Tensor) bool {
	keys := k.n
	if k.op.Causal && ts[5] != nil && ts[5].Elems() <= 16 {
		var v [16]int64
		pos := v[:ts[5].Elems()]
		readInts(pos, ts[5])
		keys = 0
		for _, p := range pos {
			from, to := k.op.Visible(int(p), k.n)
			keys = max(keys, to-from)
		}
	}
	return k.groups.total*k.rep*k.m*keys*(k.d+k.dv) < thresholds().smallAttention
}

// Do computes one tile of queries of one group, or all of its tiles: then what a worker has packed serves them all.
func (k *sdpaKernel) Do(worker, job int) {
	if !k.whole {
		k.tile(worker, job/k.tiles, job%k.tiles)
		return
	}
	for t := range k.tiles {
		k.tile(worker, job, t)
	}
}

// tile computes one tile of queries of one group.
func (k *sdpaKernel) tile(worker, group, tile int) {
	if k.e.stopped() {
		return
	}
	w := &k.work[worker]
	var c cursor
	k.groups.seek(&c, group)
	var p [6]unsafe.Pointer
	for i := range p {
		if k.base[i] != nil {
			p[i] = unsafe.Add(k.base[i], c.off[i])
		}
	}
	first := tile * queryTile
	rows := min(queryTile, k.rep*k.m-first)
	// Row r of the group is query r/rep of head r%rep, so that a tile's queries are neighbours and see about the same keys.
	low, high := k.n, 0
	for r := range rows {
		i, h := (first+r)/k.rep, (first+r)%k.rep
		q, from := w.q[r*k.d:][:k.d], unsafe.Add(p[1], i*k.row[1]+h*k.head[1])
		if k.types[1] == tensor.F32 && k.along[1] == 4 {
			k.e.vec.Scale(q, floats(from, k.d), k.factor, 0)
		} else {
			k.e.loadFloats(q, k.types[1], from, k.along[1])
			k.e.vec.Scale(q, q, k.factor, 0)
		}
		w.from[r], w.to[r] = k.visible(&p, i)
		low, high = min(low, w.from[r]), max(high, w.to[r])
		w.top[r], w.sum[r] = float32(math.Inf(-1)), 0
	}
	acc := w.acc[:rows*k.dv]
	clear(acc)
	if rows >= fewRows {
		low -= low % keyBlock // so that the blocks of all tiles are the same
	}
	stored := k.halves && rows <= asStored
	block := keyBlock
	if stored {
		block = longBlock
	}
	for at := low; at < high; at += block {
		if k.e.stopped() {
			return
		}
		n := min(block, high-at)
		switch {
		case rows >= fewRows:
			k.many(w, &p, group, first, rows, at, n)
		case stored:
			k.stored(w, &p, first, rows, at, n)
		default:
			k.few(w, &p, first, rows, at, n)
		}
	}
	for r := range rows {
		i, h := (first+r)/k.rep, (first+r)%k.rep
		row, to := acc[r*k.dv:][:k.dv], unsafe.Add(p[0], i*k.row[0]+h*k.head[0])
		if total := k.e.vec.Sum(row); total != total && hasNaN(row) && w.sum[r] == w.sum[r] {
			k.alone(w, &p, first, r) // zero weights times NaN or infinity do not count
		} else if w.sum[r] != 0 { // NaN included
			if k.types[0] == tensor.F32 && k.along[0] == 4 {
				k.e.vec.Scale(floats(to, k.dv), row, 1/w.sum[r], 0)
				continue
			}
			k.e.vec.Scale(row, row, 1/w.sum[r], 0)
		}
		k.e.storeFloats(to, k.types[0], k.along[0], row)
	}
}

// rowsOf returns n rows of K (operand 2) or V (3) from row at on, as float32 with a stride in elements: themselves, or copies in buf.
func (k *sdpaKernel) rowsOf(p unsafe.Pointer, operand, at, n, width int, buf []float32) (rows []float32, stride int) {
	p = unsafe.Add(p, at*k.row[operand])
	if k.types[operand] == tensor.F32 && (k.along[operand] == 4 || width == 1) && (k.row[operand]%4 == 0 && k.row[operand] >= 0) {
		stride = k.row[operand] / 4
		return floats(p, (n-1)*stride+width), stride
	}
	if k.types[operand] == tensor.Q8_0 {
		size := width / 32 * 34
		if k.row[operand] == size {
			k.e.vec.FromQ8_0(buf[:n*width], unsafe.Slice((*byte)(p), n*size))
			return buf[:n*width], width
		}
		for i := range n {
			k.e.vec.FromQ8_0(buf[i*width:][:width], unsafe.Slice((*byte)(unsafe.Add(p, i*k.row[operand])), size))
		}
		return buf[:n*width], width
	}
	if k.row[operand] == width*k.along[operand] {
		k.e.loadFloats(buf[:n*width], k.types[operand], p, k.along[operand])
		return buf[:n*width], width
	}
	for i := range n {
		k.e.loadFloats(buf[i*width:][:width], k.types[operand], unsafe.Add(p, i*k.row[operand]), k.along[operand])
	}
	return buf[:n*width], width
}

// halvesOf returns n rows of K (operand 2) or V (3) from row at on, with a stride in elements.
func (k *sdpaKernel) halvesOf(p unsafe.Pointer, operand, at, n, width int) (rows []uint16, stride int) {
	stride = k.row[operand] / 2
	return unsafe.Slice((*uint16)(unsafe.Add(p, at*k.row[operand])), (n-1)*stride+width), stride
}

// stored lets few queries meet n keys of 16 bits where they lie: the scores of all, then the values block by block, so that the sums are those of blocks.
func (k *sdpaKernel) stored(w *sdpaWork, p *[6]unsafe.Pointer, first, rows, at, n int) {
	keys, ks := k.halvesOf(p[2], 2, at, n, k.d)
	dots, weigh := k.e.vec.DotsF16, k.e.vec.WeighF16
	if k.types[2] == tensor.BF16 {
		dots = k.e.vec.DotsBF16
	}
	if k.types[3] == tensor.BF16 {
		weigh = k.e.vec.WeighBF16
	}
	for r := range rows {
		scores := w.scores[:n]
		dots(scores, w.q[r*k.d:][:k.d], keys, ks)
		for from := 0; from < n; from += keyBlock {
			s := scores[from:min(from+keyBlock, n)]
			values, vs := k.halvesOf(p[3], 3, at+from, len(s), k.dv)
			k.weigh(w, p, first, r, s, at+from)
			weigh(w.acc[r*k.dv:][:k.dv], s, values, vs)
		}
	}
}

// few lets few queries meet n keys.
func (k *sdpaKernel) few(w *sdpaWork, p *[6]unsafe.Pointer, first, rows, at, n int) {
	keys, ks := k.rowsOf(p[2], 2, at, n, k.d, w.k)
	values, vs := k.rowsOf(p[3], 3, at, n, k.dv, w.v)
	for r := range rows {
		s := w.scores[r*n:][:n]
		k.e.vec.Dots(s, w.q[r*k.d:][:k.d], keys, ks)
		k.weigh(w, p, first, r, s, at)
		k.e.vec.Weigh(w.acc[r*k.dv:][:k.dv], s, values, vs)
	}
}

// many lets a tile meet n keys, which are packed once for all tiles of the group that follow on this worker.
func (k *sdpaKernel) many(w *sdpaWork, p *[6]unsafe.Pointer, group, first, rows, at, n int) {
	b := k.packed(w, p, group, at, n)
	s := w.scores[:rows*n]
	var err error
	if k.d == 0 {
		clear(s)
	} else {
		w.part, err = b.k.Corner(k.d, n)
		must(err)
		must(gemm.MulPacked(gemm.Of(s, rows, n), gemm.Of(w.q[:rows*k.d], rows, k.d), &w.part, &w.scoreOpt))
	}
	for r := range rows {
		k.weigh(w, p, first, r, s[r*n:][:n], at)
	}
	if k.dv != 0 {
		w.part, err = b.v.Corner(n, k.dv)
		must(err)
		must(gemm.MulPacked(gemm.Of(w.acc[:rows*k.dv], rows, k.dv), gemm.Of(s, rows, n), &w.part, &w.accum))
	}
}

// packed returns the block of keys and values from at on, of which the first n are used.
func (k *sdpaKernel) packed(w *sdpaWork, p *[6]unsafe.Pointer, group, at, n int) *packedKeys {
	if w.kept == nil {
		each := 4 * keyBlock * max(k.d+k.dv, 1)
		w.kept = make([]packedKeys, max(1, min((k.n+keyBlock-1)/keyBlock, keptBytes/each)))
	}
	block := at / keyBlock
	b := &w.kept[min(block, len(w.kept)-1)]
	if b.run == k.runs && b.group == group && b.block == block && b.n >= n {
		return b
	}
	if b.k == nil {
		var err error
		b.k, err = gemm.PackB(gemm.Of(make([]float32, k.d*keyBlock), k.d, keyBlock), &w.scoreOpt)
		must(err)
		b.v, err = gemm.PackB(gemm.Of(make([]float32, keyBlock*k.dv), keyBlock, k.dv), &w.scoreOpt)
		must(err)
	}
	if k.whole { // later tiles may see more of the block
		for i := k.m - 1; i >= 0 && n < min(keyBlock, k.n-at); i-- {
			_, to := k.visible(p, i)
			n = max(n, min(to-at, keyBlock))
		}
	}
	b.run, b.group, b.block, b.n = k.runs, group, block, n
	keys, ks := k.rowsOf(p[2], 2, at, n, k.d, w.k)
	must(b.k.Repack(gemm.View(keys, k.d, n, 1, ks)))
	values, vs := k.rowsOf(p[3], 3, at, n, k.dv, w.v)
	must(b.v.Repack(gemm.View(values, n, k.dv, vs, 1)))
	return b
}

// visible returns the range of keys that query i sees.
func (k *sdpaKernel) visible(p *[6]unsafe.Pointer, i int) (from, to int) {
	pos := i + k.n - k.m
	if p[5] != nil {
		at := unsafe.Add(p[5], i*k.row[5])
		if k.types[5] == tensor.I32 {
			pos = int(*(*int32)(at))
		} else {
			pos = int(*(*int64)(at))
		}
	}
	return k.op.Visible(pos, k.n)
}

// weigh turns the scores of one row for the keys from at on into weights under the running maximum, and rescales what was summed.
func (k *sdpaKernel) weigh(w *sdpaWork, p *[6]unsafe.Pointer, first, r int, s []float32, at int) {
	from, to := min(max(w.from[r]-at, 0), len(s)), max(min(w.to[r]-at, len(s)), 0)
	if from >= to {
		clear(s)
		return
	}
	clear(s[:from])
	clear(s[to:])
	s, at = s[from:to], at+from
	k.mask(w, p, first, r, s, at)
	top := max(w.top[r], k.e.vec.MaxOf(s))
	if math.IsInf(float64(top), -1) {
		clear(s)
		return
	}
	if top != w.top[r] {
		if w.sum[r] != 0 {
			fix := float32(math.Exp(float64(w.top[r] - top)))
			w.sum[r] *= fix
			row := w.acc[r*k.dv:][:k.dv]
			k.e.vec.Scale(row, row, fix, 0)
		}
		w.top[r] = top
	}
	w.sum[r] += k.e.vec.ExpSub(s, s, top)
}

// mask applies the cap and the mask to scores.
func (k *sdpaKernel) mask(w *sdpaWork, p *[6]unsafe.Pointer, first, r int, s []float32, at int) {
	if k.cap != 0 {
		k.e.vec.Scale(s, s, 1/k.cap, 0)
		k.e.vec.Tanh(s, s)
		k.e.vec.Scale(s, s, k.cap, 0)
	}
	if p[4] != nil {
		i, h := (first+r)/k.rep, (first+r)%k.rep
		m := unsafe.Add(p[4], i*k.row[4]+h*k.head[4]+at*k.along[4])
		if k.types[4] == tensor.Bool {
			for j := range s {
				if *(*uint8)(unsafe.Add(m, j*k.along[4])) == 0 {
					s[j] = float32(math.Inf(-1))
				}
			}
		} else {
			mask := w.mask[:len(s)]
			k.e.loadFloats(mask, k.types[4], m, k.along[4])
			addMask(s, s, mask)
		}
	}
}

// alone computes one row with products of weights that are zero left out. It is for rows that would be NaN otherwise.
func (k *sdpaKernel) alone(w *sdpaWork, p *[6]unsafe.Pointer, first, r int) {
	row, q := w.acc[r*k.dv:][:k.dv], w.q[r*k.d:][:k.d]
	clear(row)
	w.top[r], w.sum[r] = float32(math.Inf(-1)), 0
	for at := w.from[r]; at < w.to[r]; at += keyBlock {
		n := min(keyBlock, w.to[r]-at)
		keys, ks := k.rowsOf(p[2], 2, at, n, k.d, w.k)
		values, vs := k.rowsOf(p[3], 3, at, n, k.dv, w.v)
		s := w.scores[:n]
		k.e.vec.Dots(s, q, keys, ks)
		k.weigh(w, p, first, r, s, at)
		for j, x := range s {
			if x != 0 {
				k.e.vec.Axpy(row, values[j*vs:][:k.dv], x)
			}
		}
	}
	if w.sum[r] != 0 {
		k.e.vec.Scale(row, row, 1/w.sum[r], 0)
	}
}

func hasNaN(row []float32) bool {
	var sum float32
	for _, x := range row {
		sum += x * 0
	}
	return sum != sum
}

// must ends a run whose operands this package has built wrongly; it is a bug.
func must(err error) {
	if err != nil {
		panic("cpu: " + err.Error())
	}
}
