package qgemm

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// Epilogue is called for a finished piece of a row of C: columns col to col+len(c)-1 of the given row. Pieces are disjoint, and
// calls come from several goroutines.
type Epilogue interface {
	Apply(c []float32, row, col int)
}

// Run is one product: C[M,N] = A[M,K] W^T.
type Run struct {
	A    []float32
	LDA  int // elements between rows of A
	C    []float32
	LDC  int // elements between rows of C
	M    int
	Then Epilogue // nil for none
	// Accumulate starts from C instead of zero.
	Accumulate bool
	// Source, if not zero, names what A holds: as long as a program gives it to no other contents, products with one A after the other round it to 8 bits
	// once, where their weights want it alike.
	Source  Source
	Threads int         // 0 means GOMAXPROCS
	ISA     cpuinfo.ISA // the highest instruction set to use; 0 means what TESSERA_ISA allows
	Knobs   *Knobs      // thresholds; nil for those of the environment, the profile or the defaults
}

// Source is a name for the contents of an A: two numbers of the caller's.
type Source [2]uint64

func (r *Run) check(p *Packed) error {
	bad := func(data []float32, ld, cols int, name string) error {
		if ld < cols {
			return fmt.Errorf("qgemm: rows of %s are %d apart and %d long", name, ld, cols)
		}
		span, ok := mem.Mul(r.M-1, ld)
		need, ok2 := mem.Add(span, cols)
		if !ok || !ok2 || need > len(data) {
			return fmt.Errorf("qgemm: %s has %d elements, %d rows of %d, %d apart, need more", name, len(data), r.M, cols, ld)
		}
		return nil
	}
	if p.data == nil && p.rows.data == nil {
		return fmt.Errorf("qgemm: the weight is closed")
	}
	if r.M < 0 {
		return fmt.Errorf("qgemm: M = %d", r.M)
	}
	if r.M == 0 {
		return nil
	}
	if err := bad(r.A, r.LDA, p.k, "A"); err != nil {
		return err
	}
	if err := bad(r.C, r.LDC, p.n, "C"); err != nil {
		return err
	}
	a0, c0 := uintptr(unsafe.Pointer(&r.A[0])), uintptr(unsafe.Pointer(&r.C[0]))
	a1 := a0 + uintptr((r.M-1)*r.LDA+p.k)*4
	c1 := c0 + uintptr((r.M-1)*r.LDC+p.n)*4
	if a0 < c1 && c0 < a1 {
		return fmt.Errorf("qgemm: C overlaps A")
	}
	return nil
}

// Mul computes a product. After the first call of a shape it allocates nothing. The context is looked at between pieces.
func (p *Packed) Mul(ctx context.Context, r *Run) error {
	if err := r.check(p); err != nil || r.M == 0 {
		return err
	}
	isa, err := r.isa()
	if err != nil {
		return err
	}
	kn, err := r.knobs()
	if err != nil {
		return err
	}
	w := takeWork()
	defer w.release()
	w.begin(ctx, p, r, choose(isa), kn)
	w.reserve(w.jobs)
	w.round()
	par.Run(r.Threads, w.jobs, (*dotTask)(w))
	return context.Cause(ctx)
}

// begin takes a product and divides it.
func (w *work) begin(ctx context.Context, p *Packed, r *Run, k *kernels, kn *knobs) {
	w.p, w.r, w.k, w.kn, w.ctx, w.holder = p, r, k, kn, ctx, w
	need := w.cut()
	w.needs = [2]int(need[:2])
}

// release lets go of what the product, and those that run together with it, referred to, and gives the works back to the pool: the first last, as it is the next
// to be taken then and remembers what it has rounded.
func (w *work) release() {
	if w.next != nil {
		w.next.release()
	}
	w.p, w.r, w.kn, w.ctx, w.holder = nil, nil, nil, nil, nil
	giveWork(w)
}

// round rounds A, if the work does not hold it rounded.
func (w *work) round() {
	if a := w.wanted(); w.r.Source == (Source{}) || a != w.rounded {
		w.rounded = roundedA{}
		par.Run(w.r.Threads, w.quantJobs, (*quantTask)(w))
		w.rounded = a
	}
}

// isa returns the level to use, or the error of a bad pin.
func (r *Run) isa() (cpuinfo.ISA, error) {
	isa, err := cpuinfo.Pinned()
	if err != nil {
		return isa, fmt.Errorf("qgemm: %w", err)
	}
	if r.ISA != 0 {
		return r.ISA, nil
	}
	return isa, nil
}

// work is the state of one product: what its two parallel regions share. It is reused.
type work struct {
	next   *work // of the pool, or of the products that run together
	holder *work // that has the rounded rows of A: itself, or the first of those that run together
	p      *Packed
	r      *Run
	k      *kernels
	kn     *knobs
	ctx    context.Context

	q         []byte // quantized rows of A
	metas     []byte // what they say of their blocks
	scratch   []byte // per worker: panels of a weight of rows, then spread panels and their scales
	perWorker int
	staged    int               // bytes of a worker's panels
	args      []dotArgs         // per worker: kernels are called through variables, so that an argument on the stack would escape
	fused     [2]func(*dotArgs) // the kernels for few rows: of passes over a panel with height rows, and of the last; or nil
	streams   func(*dotArgs)    // the kernel for one row and four panels; or nil
	blocks    int               // of a row
	tiled     bool              // tiles take the rows
	size      int               // bytes of a quantized element and of a spread one: 1, or 2 where they are wide
	stride    int               // bytes between quantized rows
	slots     int               // of a group of rows
	height    int               // rows of a group
	together  int               // panels that are spread at once
	chunk     int               // elements of k that are spread at once
	group     int               // panels of a job
	each      int               // groups of a worker; of streams, jobs
	part      int               // panels of a worker that reads streams
	step      int               // panels of a stream that a job reads
	parts     int               // that the last group of a worker is cut into, between rows, each a job; or 1
	partRows  int               // of a part
	jobs      int
	needs     [2]int // bytes of q and metas
	rowsEach  int    // rows of a job of quantization
	quantJobs int
	rounded   roundedA // what q and metas hold
}

// roundedA says which A was rounded, and how.
type roundedA struct {
	source                             Source
	a                                  uintptr // as a number: it keeps nothing alive
	lda, m, k                          int
	kernels                            *kernels
	block, size, stride, height, slots int
	zero                               int32
}

// wanted returns what a product's q and metas must hold.
func (w *work) wanted() roundedA {
	p, r, f := w.p, w.r, w.p.g.f
	return roundedA{source: r.Source, a: uintptr(unsafe.Pointer(&r.A[0])), lda: r.LDA, m: r.M, k: p.k, kernels: w.k, block: f.block, size: w.size, stride: w.stride, height: w.height,
		slots: w.slots, zero: w.zero()}
}

// zero is what the rows' integer sums start from, for each unit of their sum.
func (w *work) zero() int32 {
	f := w.p.g.f
	switch {
	case w.k.signed && f.zero == 128:
		return 0
	case w.k.pairs && f.bits == u5:
		return 16 // also with minimums: sums of a block fit 16 bits only so
	}
	return f.zero
}

var spare struct {
	sync.Mutex
	list *work
}

func takeWork() *work {
	spare.Lock()
	defer spare.Unlock()
	w := spare.list
	if w == nil {
		return &work{}
	}
	spare.list = w.next
	w.next = nil
	return w
}

func giveWork(w *work) {
	spare.Lock()
	defer spare.Unlock()
	w.next = spare.list
	spare.list = w
}

func grow(b []byte, n int) []byte {
	if cap(b) < n {
		return mem.Bytes(grown(n))[:n]
	}
	return b[:n]
}

// grown returns the size of a buffer that n bytes are asked of.
func grown(n int) int {
	size := 4096
	for size < n {
		size *= 2
	}
	return size
}

// WorkspaceBytes returns the bytes of the three buffers that a call of [Packed.Mul] with the run's M, Threads, ISA and Knobs takes from the pool that
// all products share: quantized rows, their scales, scratch of the workers. Each is kept at the largest size that was asked for.
func (p *Packed) WorkspaceBytes(r *Run) ([3]int, error) {
	isa, err := r.isa()
	if err != nil {
		return [3]int{}, err
	}
	kn, err := r.knobs()
	if err != nil || r.M <= 0 {
		return [3]int{}, err
	}
	w := work{p: p, r: r, k: choose(isa), kn: kn}
	sizes := w.cut()
	for i, n := range sizes {
		if n > 0 {
			sizes[i] = grown(n)
		}
	}
	return sizes, nil
}

// Pooled returns the bytes of the buffers that wait for the next products.
func Pooled() int {
	spare.Lock()
	defer spare.Unlock()
	n := 0
	for w := spare.list; w != nil; w = w.next {
		n += cap(w.q) + cap(w.metas) + cap(w.scratch)
	}
	return n
}

// Trim releases the buffers that no product is using.
func Trim() {
	spare.Lock()
	defer spare.Unlock()
	spare.list = nil
}

// reserve takes the memory that the product needs in a region of some jobs, but for the rounded rows if another work has them.
func (w *work) reserve(jobs int) {
	if w.holder == w {
		w.q, w.metas = grow(w.q, w.needs[0]), grow(w.metas, w.needs[1])
	}
	workers := par.Workers(w.r.Threads, jobs)
	w.scratch = grow(w.scratch, workers*w.perWorker)
	if len(w.args) < workers {
		w.args = make([]dotArgs, workers)
	}
}

// cut divides the work: quantization by rows, the product by groups of panels. A group is as many panels as kernels take at once, or
// a multiple where there are many, so that a job is worth its start. It returns the bytes that the buffers need: those of
// quantized rows, of their numbers, and of all workers' scratch.
func (w *work) cut() (bytes [3]int) {
	p, r, f := w.p, w.r, w.p.g.f
	if f.bf16 && w.k.bf16 != nil {
		w.k = w.k.bf16
	}
	w.blocks = p.k / f.block
	w.group = 4
	w.jobs = (p.panels + w.group - 1) / w.group
	w.fused, w.streams, w.size = [2]func(*dotArgs){}, nil, 1
	w.tiled = w.k.tiles != nil && r.M >= w.kn.tilesFrom
	if w.k.fused != nil && !w.tiled && r.M <= min(w.kn.fewRows, fewPasses*w.k.few) {
		passes := (r.M + w.k.few - 1) / w.k.few
		w.height = (r.M + passes - 1) / passes
		w.fused = [2]func(*dotArgs){w.k.fused(f, w.height), w.k.fused(f, r.M-w.height*(passes-1))}
	}
	switch {
	case w.fused[0] != nil:
		w.slots, w.perWorker = fewSlots, 0
		if w.k.streams != nil && r.M == 1 && p.data != nil {
			w.streams = w.k.streams(f)
		}
		if w.streams != nil {
			w.divideStreams()
		} else {
			w.divide()
		}
	case w.tiled:
		workers := par.Workers(r.Threads, p.panels)
		for workers > 1 && w.group > 1 && p.panels < tileJobs*w.group*workers {
			w.group /= 2
		}
		w.jobs = (p.panels + w.group - 1) / w.group
		w.slots, w.height, w.together, w.chunk = manySlots, tileHeight, w.group, w.kn.chunkTiles
	default:
		w.slots, w.height, w.together, w.chunk = manySlots, w.k.height, w.k.panels[w.k.strip(r.M)], w.kn.chunkDot
		if w.k.strips > 0 { // all panels of a job are read for every strip, as tiles read them
			w.chunk = w.kn.chunkTiles
		}
	}
	if w.fused[0] == nil {
		w.cutLast()
		if w.k.wide != nil && w.k.wide(f) {
			w.size = 2
		}
	}
	w.stride = p.k * w.size
	if w.k.pairs && w.stride%1024 == 0 {
		w.stride += mem.Align // the rows of a tile would share few sets of the first-level cache
	}
	rows := (r.M + w.height - 1) / w.height * w.height
	w.rowsEach = max(1, w.kn.quantJob/p.k)
	w.quantJobs = (r.M + w.rowsEach - 1) / w.rowsEach
	workers := par.Workers(r.Threads, w.jobs)
	if w.fused[0] == nil {
		w.chunk = min(w.chunk, p.k)
		w.perWorker = w.together*(w.chunk*nr*w.size+w.chunk/f.block*f.scaleStep()) + tileBuf
	}
	w.staged = 0
	if p.data == nil {
		w.staged = p.g.size
		if w.fused[0] == nil {
			w.staged *= w.together
		}
		w.perWorker += w.staged
	}
	return [3]int{rows * w.stride, rows / w.height * w.blocks * metaStep(w.slots), workers * w.perWorker} // tiles read whole groups of rows
}

// tileJobs is the jobs of a worker that are worth more than panels that share the rows of A in the first-level cache.
const tileJobs = 4

// fewBytes is the least that a job of few rows reads, some microseconds' worth, and streamBytes the most that one of several streams does: the
// last job may be one that the others wait for.
const (
	fewBytes    = 32 << 10
	streamBytes = 128 << 10
)

// oneBytes is what a job of a worker that is alone reads: a call looks at its context between jobs.
const oneBytes = 4 << 20

// fewJobs is the jobs of a worker, some of which it leaves to others when it is held up.
const (
	fewJobs    = 8
	streamJobs = 16
)

// divide cuts the panels into jobs for few rows, which are limited by reading memory: as many for each worker. A worker's jobs lie behind one another, so that
// what a kernel fetches ahead is its own.
func (w *work) divide() {
	p := w.p
	workers := w.readers()
	w.group = max((p.panels+fewJobs*workers-1)/(fewJobs*workers), (fewBytes-1)/p.g.size+1)
	each := (p.panels + w.group*workers - 1) / (w.group * workers)
	w.group = (p.panels + each*workers - 1) / (each * workers)
	w.jobs = (p.panels + w.group - 1) / w.group
}

// readers returns how many workers a product of few rows is worth.
func (w *work) readers() int {
	return par.Workers(w.r.Threads, max(w.p.panels*w.p.g.size/fewBytes, 1))
}

// divideStreams gives each worker a part of the panels, fourStreams streams of which its jobs read a piece of each: they go on where the job before ended,
// at what it has fetched ahead.
func (w *work) divideStreams() {
	p := w.p
	workers := w.readers()
	w.part = ((p.panels+workers-1)/workers + fourStreams - 1) / fourStreams * fourStreams
	bytes := oneBytes
	if workers > 1 {
		bytes = min(max(w.part*p.g.size/streamJobs, fewBytes), streamBytes)
	}
	step := fourStreams * p.g.size
	w.step = max((bytes+step/2)/step, 1)
	w.each = (w.part + fourStreams*w.step - 1) / (fourStreams * w.step)
	w.jobs = workers * w.each
}

// lastParts is the number of parts at most of a worker's last group, and lastRows what a part has at least: bits are spread anew for each.
const (
	lastParts = 4
	lastRows  = 160
)

// cutLast cuts the last group of every worker's jobs between rows: a group may be a tenth of a worker's part of a product, for which the others would wait for one
// that is held up.
func (w *work) cutLast() {
	workers := par.Workers(w.r.Threads, w.jobs)
	if workers == 1 {
		w.each, w.parts = w.jobs, 1
	} else {
		w.each, w.parts = (w.jobs+workers-1)/workers, max(1, min(lastParts, w.r.M/lastRows))
	}
	w.partRows = (w.r.M + w.parts*w.height - 1) / (w.parts * w.height) * w.height
	if w.parts > 1 {
		w.jobs = workers * (w.each - 1 + w.parts)
	}
}

// share returns the group of a job, and its rows: those of the last group of a worker come in parts. There may be none.
func (w *work) share(job int) (group, from, to int) {
	if w.parts == 1 {
		return job, 0, w.r.M
	}
	perWorker := w.each - 1 + w.parts
	worker, i := job/perWorker, job%perWorker
	if i < w.each-1 {
		return worker*w.each + i, 0, w.r.M
	}
	from = (i - (w.each - 1)) * w.partRows
	return (worker+1)*w.each - 1, min(from, w.r.M), min(from+w.partRows, w.r.M)
}

// tileBuf is the size of four tiles of sums: two that are written, two that are read.
const tileBuf = 4 * tileHeight * 4 * nr

// meta returns where row i and block b have their numbers.
func (w *work) meta(i, b int) unsafe.Pointer {
	return unsafe.Pointer(&w.holder.metas[(i/w.height*w.blocks+b)*metaStep(w.slots)+i%w.height*4])
}

type quantTask work

func (t *quantTask) Do(_, job int) {
	w := (*work)(t)
	p, r, f, zero := w.p, w.r, w.p.g.f, w.zero()
	for i := job * w.rowsEach; i < min((job+1)*w.rowsEach, r.M); i++ {
		q := unsafe.Pointer(&w.q[i*w.stride])
		bytes := q
		if w.size > 1 {
			bytes = unsafe.Add(q, p.k) // the half that is written last
		}
		for k0 := 0; k0 < p.k; k0 += callK {
			w.k.quantize(unsafe.Add(bytes, k0), w.meta(i, k0/f.block), unsafe.Pointer(&r.A[i*r.LDA+k0]), min(callK, p.k-k0), f.block, zero, w.slots)
		}
		for k0 := 0; k0 < p.k && w.size > 1; k0 += callK {
			w.k.widen(unsafe.Add(q, w.size*k0), unsafe.Add(bytes, k0), min(callK, p.k-k0))
		}
	}
}

type dotTask work

func (t *dotTask) Do(worker, job int) {
	w := (*work)(t)
	if w.ctx.Err() != nil {
		return
	}
	args := &w.args[worker]
	var scratch unsafe.Pointer
	if w.perWorker > 0 {
		scratch = unsafe.Pointer(&w.scratch[worker*w.perWorker])
	}
	if w.streams != nil {
		w.stream(args, job)
		*args = dotArgs{}
		return
	}
	p, r := w.p, w.r
	group, from, to := job, 0, r.M
	if w.fused[0] == nil {
		group, from, to = w.share(job)
	}
	first := group * w.group
	panels := min(w.group, p.panels-first)
	if panels <= 0 || from == to {
		return
	}
	col := first * nr
	cols := min(panels*nr, p.n-col)
	switch {
	case w.fused[0] != nil:
		w.few(args, first, panels, scratch)
	default:
		var mask uint64
		if cols == 64 {
			mask = ^uint64(0)
		} else {
			mask = 1<<cols - 1
		}
		w.many(args, first, panels, from, to, mask, scratch)
	}
	*args = dotArgs{} // nothing stays pointed at between calls
	w.finish(col, cols, from, to)
}

// finish hands finished columns of rows to the epilogue.
func (w *work) finish(col, cols, from, to int) {
	r := w.r
	if r.Then == nil {
		return
	}
	for i := from; i < to; i++ {
		r.Then.Apply(r.C[i*r.LDC+col:][:cols], i, col)
	}
}

// panels returns where panels lie, which are packed now if the weight has only rows.
func (w *work) panels(first, n int, scratch unsafe.Pointer) unsafe.Pointer {
	p := w.p
	if p.data == nil {
		p.stage(scratch, first, n)
		return scratch
	}
	return unsafe.Pointer(&p.data[first*p.g.size])
}

// many spreads the bits of a chunk of panels to bytes and takes rows of A through them.
func (w *work) many(args *dotArgs, first, panels, from, to int, mask uint64, scratch unsafe.Pointer) {
	p, r, f := w.p, w.r, w.p.g.f
	step := f.scaleStep()
	// The chunks of some panels follow each other, as they lie in memory.
	for v := 0; v < panels; v += w.together {
		n := min(w.together, panels-v)
		packed := w.panels(first+v, n, scratch)
		for k0 := 0; k0 < p.k; k0 += w.chunk {
			chunk := min(w.chunk, p.k-k0)
			blocks := chunk / f.block
			*args = dotArgs{aStride: w.stride, metaGroup: w.blocks * metaStep(w.slots), wPanel: chunk * nr * w.size, scaleSize: blocks * step, ldc: 4 * r.LDC, blocks: blocks, buf: unsafe.Add(scratch, w.staged)}
			args.w = unsafe.Add(args.buf, tileBuf)
			args.scale = unsafe.Add(args.w, w.together*args.wPanel)
			args.mask = mask >> (16 * v)
			if k0 > 0 || r.Accumulate {
				args.acc = 1
			}
			less := uint8(0)
			if w.tiled || w.k.signed && f.zero == 128 {
				less = uint8(f.zero)
			}
			for i := range n {
				group := unsafe.Add(packed, i*p.g.size+k0/p.g.elems*p.g.group)
				w.k.spread(unsafe.Add(args.w, i*args.wPanel), unsafe.Add(group, p.g.header), f, chunk/unit, p.g.units, p.g.group, less)
				w.scales(unsafe.Add(args.scale, i*args.scaleSize), group, blocks)
			}
			if w.tiled {
				w.tiles(args, (first+v)*nr, n, k0, from, to)
			} else {
				w.strips(args, (first+v)*nr, n, k0, from, to)
			}
		}
	}
}

// strips lets the dot kernels take the rows, group by group.
func (w *work) strips(args *dotArgs, col, panels, k0, from, to int) {
	r, f := w.r, w.p.g.f
	for i := from; i < to; {
		args.a = unsafe.Pointer(&w.holder.q[i*w.stride+k0*w.size])
		args.meta = w.meta(i, k0/f.block)
		args.c = unsafe.Pointer(&r.C[i*r.LDC+col])
		rows := w.k.strip(min(to-i, w.height-i%w.height))
		args.groups = 1
		if w.k.strips > 1 && i%w.height == 0 && rows == w.k.rows {
			args.groups = min((to-i)/rows, w.k.strips)
		}
		w.k.dot(args, f, rows, panels)
		i += args.groups * rows
	}
}

// tiles lets the tile kernels take the rows: as many whole groups at once as a call may last, then what is left.
func (w *work) tiles(args *dotArgs, col, panels, k0, from, to int) {
	r, f := w.r, w.p.g.f
	args.panels = panels
	for i := from; i < to; {
		left := to - i
		args.groups, args.rows = 1, left
		if left >= w.height {
			args.groups, args.rows = min(left, w.kn.tileRows)/w.height, w.height
		}
		args.a = unsafe.Pointer(&w.holder.q[i*w.stride+k0])
		args.meta = w.meta(i, k0/f.block)
		args.c = unsafe.Pointer(&r.C[i*r.LDC+col])
		w.k.tiles(args, f)
		i += (args.groups-1)*w.height + args.rows
	}
}

// start returns the arguments that all calls for few rows have in common.
func (w *work) start() dotArgs {
	args := dotArgs{aStride: w.stride, ldc: 4 * w.r.LDC, table: w.p.g.f.table}
	if w.r.Accumulate {
		args.acc = 1
	}
	if !w.k.alone {
		args.ahead = 1
	}
	return args
}

// few spreads the bits in registers, panel by panel; passes after the first find them in a cache.
func (w *work) few(args *dotArgs, first, panels int, scratch unsafe.Pointer) {
	p, r := w.p, w.r
	*args = w.start()
	for v := range panels {
		panel := w.panels(first+v, 1, scratch)
		args.mask = 1<<min(p.n-(first+v)*nr, nr) - 1
		for i := 0; i < r.M; i += w.height {
			args.c = unsafe.Pointer(&r.C[i*r.LDC+(first+v)*nr])
			if i+w.height < r.M {
				w.inPieces(args, panel, i, w.fused[0])
			} else {
				w.inPieces(args, panel, i, w.fused[1])
			}
		}
	}
}

// stream lets one row meet a job's piece of each of a worker's streams. The worker's last job has the panels that are left over, too.
func (w *work) stream(args *dotArgs, job int) {
	p, r := w.p, w.r
	first := job / w.each * w.part
	panels := min(w.part, p.panels-first)
	if panels <= 0 {
		return
	}
	job %= w.each
	long := max(min(panels, p.n/nr-first), 0) / fourStreams // panels of a stream
	from, to := min(job*w.step, long), min((job+1)*w.step, long)
	if from < to {
		*args = w.start()
		args.wPanel, args.cPanel = long*p.g.size, long*nr*4
		for v := first + from; v < first+to; v++ {
			args.c = unsafe.Pointer(&r.C[v*nr])
			w.inPieces(args, w.panels(v, 1, nil), 0, w.streams)
		}
		for s := range fourStreams {
			w.finish((first+s*long+from)*nr, (to-from)*nr, 0, 1)
		}
	}
	if left := panels - fourStreams*long; job == w.each-1 && left > 0 {
		col := (first + fourStreams*long) * nr
		w.few(args, first+fourStreams*long, left, nil)
		w.finish(col, min(left*nr, p.n-col), 0, 1)
	}
}

// callK is how many elements of k one call takes at most where it takes as many as there are: it cannot be interrupted. It is a multiple of all
// groups.
const callK = 16384

// inPieces lets a kernel for few rows take row i and those that follow through a panel, or several.
func (w *work) inPieces(args *dotArgs, panel unsafe.Pointer, i int, kernel func(*dotArgs)) {
	p, acc := w.p, args.acc
	for k0 := 0; k0 < p.k; k0 += callK {
		args.a, args.meta = unsafe.Pointer(&w.holder.q[i*w.stride+k0]), w.meta(i, k0/p.g.f.block)
		args.w, args.blocks = unsafe.Add(panel, k0/p.g.elems*p.g.group), min(callK, p.k-k0)/unit
		kernel(args)
		args.acc = 1
	}
	args.acc = acc
}

// strip returns how many of the remaining rows the next strip takes: as many as kernels do, but near the end two strips of even height instead of
// a tall and a flat one.
func (k *kernels) strip(left int) int {
	if left >= 2*k.rows || left <= k.rows {
		return min(left, k.rows)
	}
	return (left + 1) / 2
}

// scales widens the scales and minimums of blocks from a group on.
func (w *work) scales(dst, group unsafe.Pointer, blocks int) {
	g, f, k := &w.p.g, w.p.g.f, w.k
	step := f.scaleStep()
	if !f.super {
		widen := k.halfs
		if f.bf16 {
			widen = k.bhalfs
		}
		widen(dst, step, group, blocks, g.units, g.group)
		if f.hasMin {
			widen(unsafe.Add(dst, 4*nr), step, unsafe.Add(group, g.m), blocks, g.units, g.group)
		}
		return
	}
	subs := superK / f.block
	k.supers(dst, step, group, unsafe.Add(group, g.sc), blocks/subs, subs, g.group, 0)
	if f.hasMin {
		k.supers(unsafe.Add(dst, 4*nr), step, unsafe.Add(group, g.m), unsafe.Add(group, g.mn), blocks/subs, subs, g.group, 1<<31)
	}
}
