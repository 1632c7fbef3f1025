package conv

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
)

// depthwise runs convolutions by channel, and poolings. Rows of output are jobs. Where the window hangs over a border, its taps
// outside are dropped, so that nothing is copied.
type depthwise struct {
	k       *kernels
	threads int
	n, c    int
	z, y, x Dim
	maximum bool
	mean    bool // the mean of what is inside; with counted, padding counts
	counted bool
	weights []float32
	zs, ys  []span // of output planes and rows
	xs      []run  // of output columns with equal taps
	taps    map[tapKey]*tapList
	lists   []*tapList // by plane, row and run
	loaded  []*tapList // the same for images that Load converts
	init    []float32
	args    *Args
	workers []scratch
	rows    int // of a job, which has rows of one plane

	loadedPlanes, loadedRows int // that a job converts at most
}

// span is the range of taps of one dimension that lie inside, and where the first lies.
type span struct{ from, to, at int }

// run is a run of output columns whose spans have equal taps.
type run struct {
	span
	first, n int
}

// tapList are the offsets of taps, and the factor of their mean.
type tapList struct {
	offs  [][2]int
	scale []float32 // one a channel, for means
}

// tapKey says which taps a list has, how many a mean counts, and how far planes lie apart, in pixels.
type tapKey struct {
	z, y, x [2]int
	count   int
	plane   int
}

func newDepthwise(p *Plan) *depthwise {
	s := &p.s
	dims := s.dims()
	d := &depthwise{k: p.k, threads: p.threads, n: s.N, c: s.C, z: dims[0], y: dims[1], x: dims[2], weights: p.f.dw}
	d.prepare(p.kn)
	return d
}

// span returns the taps of result o.
func (d Dim) span(o int) span {
	sp := span{}
	start := o*d.Stride - d.Before
	for sp.from < d.Kernel && start+sp.from*d.Dilation < 0 {
		sp.from++
	}
	sp.to = sp.from
	for sp.to < d.Kernel && start+sp.to*d.Dilation < d.In {
		sp.to++
	}
	sp.at = start + sp.from*d.Dilation
	return sp
}

// counted returns how many taps of result o lie before the end of the padding: a mean may count them, and none behind.
func (d Dim) counted(o int) int {
	n := 0
	for t := range d.Kernel {
		if o*d.Stride-d.Before+t*d.Dilation < d.In+d.After {
			n++
		}
	}
	return n
}

func (d *depthwise) prepare(kn *knobs) {
	for z := range d.z.Out {
		d.zs = append(d.zs, d.z.span(z))
	}
	for y := range d.y.Out {
		d.ys = append(d.ys, d.y.span(y))
	}
	for x := range d.x.Out {
		sp := d.x.span(x)
		if n := len(d.xs); n > 0 && d.xs[n-1].from == sp.from && d.xs[n-1].to == sp.to && (!d.counted || d.x.counted(x) == d.x.counted(x-1)) {
			d.xs[n-1].n++
			continue
		}
		d.xs = append(d.xs, run{sp, x, 1})
	}
	d.rows = max(kn.depthwiseMacs/max(d.x.Out*d.c*d.z.Kernel*d.y.Kernel*d.x.Kernel, 1), 1)
	d.rows = min(d.rows, max(d.y.Out, 1))
	d.loadedPlanes, d.loadedRows = min(d.z.Kernel, d.z.In), min((d.rows-1)*d.y.Stride+(d.y.Kernel-1)*d.y.Dilation+1, d.y.In)
	d.taps = map[tapKey]*tapList{}
	d.lists = d.tapLists(d.z.Dilation * d.y.In * d.x.In)
	if d.loaded = d.lists; d.loadedPlanes > 1 {
		d.loaded = d.tapLists(d.loadedRows * d.x.In)
	}
	d.init = alignedFloats(d.c)
	if d.maximum {
		for i := range d.init {
			d.init[i] = least
		}
	}
}

// tapLists returns the taps by plane, row and run, for planes so many pixels apart.
func (d *depthwise) tapLists(plane int) []*tapList {
	lists := make([]*tapList, 0, len(d.zs)*len(d.ys)*len(d.xs))
	for z, zs := range d.zs {
		for y, ys := range d.ys {
			for _, xs := range d.xs {
				key := tapKey{z: [2]int{zs.from, zs.to}, y: [2]int{ys.from, ys.to}, x: [2]int{xs.from, xs.to}, plane: plane}
				key.count = (zs.to - zs.from) * (ys.to - ys.from) * (xs.to - xs.from)
				if d.counted {
					key.count = d.z.counted(z) * d.y.counted(y) * d.x.counted(xs.first)
				}
				l := d.taps[key]
				if l == nil {
					l = d.tapList(key)
					d.taps[key] = l
				}
				lists = append(lists, l)
			}
		}
	}
	return lists
}

func (d *depthwise) tapList(k tapKey) *tapList {
	l := &tapList{}
	for z := k.z[0]; z < k.z[1]; z++ {
		for y := k.y[0]; y < k.y[1]; y++ {
			for x := k.x[0]; x < k.x[1]; x++ {
				at := (z-k.z[0])*k.plane + (y-k.y[0])*d.y.Dilation*d.x.In + (x-k.x[0])*d.x.Dilation
				w := ((z*d.y.Kernel+y)*d.x.Kernel + x) * d.c * 4
				if d.mean {
					w = 0
				}
				l.offs = append(l.offs, [2]int{at * d.c * 4, w})
			}
		}
	}
	if d.mean {
		l.scale = alignedFloats(d.c)
		for j := range l.scale {
			l.scale[j] = 1 / float32(max(k.count, 1))
		}
	}
	return l
}

func (d *depthwise) run(a *Args) {
	jobs := d.n * d.z.Out * ceilDiv(d.y.Out, d.rows)
	d.begin(a, par.Workers(d.threads, jobs))
	par.Run(d.threads, jobs, d)
	d.args = nil
}

// begin takes the arguments of a run by some workers.
func (d *depthwise) begin(a *Args, workers int) {
	d.args = a
	if a.Bias != nil {
		copy(d.init, a.Bias)
	} else if !d.maximum {
		clear(d.init)
	}
	for len(d.workers) < workers {
		d.workers = append(d.workers, scratch{})
	}
}

// Do computes a block of rows.
func (d *depthwise) Do(worker, job int) {
	if d.args.Stop != nil && d.args.Stop() {
		return
	}
	blocks := ceilDiv(d.y.Out, d.rows)
	plane, y0 := job/blocks, job%blocks*d.rows
	sc := &d.workers[worker]
	sc.y, sc.first = d.args.Y, 0
	d.block(sc, plane, y0, min(y0+d.rows, d.y.Out))
}

// block computes rows of a plane of results, of those of all images, to sc.y, which has the results from position sc.first on.
func (d *depthwise) block(sc *scratch, plane, y0, y1 int) {
	a := d.args
	b := depthwiseBlock{d: d, sc: sc, plane: plane, y0: y0, y1: y1, z: d.zs[plane%d.z.Out], lists: d.lists}
	from := (plane/d.z.Out*d.z.In + b.z.at) * d.y.In // row of all images
	switch {
	case a.Load != nil:
		b.load(from)
		b.lists = d.loaded
	case b.z.to > b.z.from:
		b.x = a.X[from*d.x.In*d.c:]
	}
	b.lists = b.lists[plane%d.z.Out*len(d.ys)*len(d.xs):]
	if a.Store != nil {
		sc.need(&sc.out, d.k.sr*d.c)
	}
	s := &sc.s
	s.init = unsafe.Pointer(&d.init[0])
	s.lo, s.hi, s.p, s.q, s.mode, s.s, s.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	s.xs, s.ldc = d.x.Stride*d.c*4, d.c*4
	if a.Store == nil {
		b.columns()
	}
	for y := y0; y < y1; y++ {
		sp := d.ys[y]
		for i := range d.xs {
			r := &d.xs[i]
			if d.column(r) {
				continue
			}
			l := b.lists[y*len(d.xs)+i]
			if len(l.offs) == 0 {
				b.empty(y, r)
				continue
			}
			if f := b.rowKernel(sp, r); f != nil {
				b.row(f, y, r)
				continue
			}
			d.setTaps(s, l)
			for done := 0; done < r.n; {
				h := min(d.k.sr, r.n-done)
				if left := r.n - done; left > d.k.sr && left < 2*d.k.sr {
					h = (left + 1) / 2 // two nearly equal strips
				}
				out := b.result(y, r.first+done)
				s.x = unsafe.Pointer(&b.x[b.pixel(sp.at, r.at+done*d.x.Stride)])
				s.n = d.c
				if a.Store != nil {
					s.c = unsafe.Pointer(&sc.out[0])
				} else {
					s.c = unsafe.Pointer(&sc.y[out-sc.first])
				}
				if r.n == 1 && d.weights == nil && d.k.block > 1 {
					d.single(s)
				} else {
					d.k.runStrip(s, h, d.maximum)
				}
				d.post(sc, out, h)
				done += h
			}
		}
	}
}

// depthwiseBlock is what a job computes: some rows of a plane.
type depthwiseBlock struct {
	d      *depthwise
	sc     *scratch
	plane  int
	y0, y1 int
	z      span
	x      []float32 // from row first of the first plane that is read on
	first  int
	lists  []*tapList // by row and run
}

// result returns the position of a result, pixel that of a pixel of the first plane in x.
func (b *depthwiseBlock) result(y, x int) int {
	return ((b.plane*b.d.y.Out+y)*b.d.x.Out + x) * b.d.c
}

func (b *depthwiseBlock) pixel(y, x int) int { return ((y-b.first)*b.d.x.In + x) * b.d.c }

// load converts the rows that the block reads; the first of its first plane is row from of all images.
func (b *depthwiseBlock) load(from int) {
	d, sc := b.d, b.sc
	lo, hi := d.y.In, 0
	for y := b.y0; y < b.y1; y++ {
		if sp := d.ys[y]; sp.to > sp.from {
			lo, hi = min(lo, sp.at), max(hi, sp.at+(sp.to-sp.from-1)*d.y.Dilation+1)
		}
	}
	row := d.x.In * d.c
	n := max(hi-lo, 0) * row
	sc.need(&sc.rows, d.loadedPlanes*d.loadedRows*row+16)
	if n > 0 {
		for i := range b.z.to - b.z.from {
			d.args.Load(sc.rows[i*d.loadedRows*row:][:n], (from+i*d.z.Dilation*d.y.In+lo)*row)
		}
	}
	b.x, b.first = sc.rows, lo
}

// single computes a single pixel of a pooling. A strip of it would have one sum a block of channels, each waiting for the one before; as all
// channels start alike and have the same factors, blocks are taken for the pixels of a strip instead.
func (d *depthwise) single(s *strip) {
	block := d.k.block
	from, whole := *s, d.c-d.c%block
	s.xs, s.ldc = 4*block, 4*block
	for done := 0; done < whole; {
		h := min(d.k.sr, (whole-done)/block)
		s.at(&from, done, false)
		s.init, s.n = from.init, block
		d.k.runStrip(s, h, d.maximum)
		done += h * block
	}
	if whole < d.c {
		s.at(&from, whole, false)
		s.init, s.n = from.init, d.c-whole
		stripGo(s, 1, d.maximum)
	}
	*s = from
}

// setTaps gives a strip its taps.
func (d *depthwise) setTaps(s *strip, l *tapList) {
	s.offs, s.taps = unsafe.Pointer(unsafe.SliceData(l.offs)), len(l.offs)
	if d.mean {
		s.w = unsafe.Pointer(&l.scale[0])
	} else if !d.maximum {
		s.w = unsafe.Pointer(&d.weights[0])
	}
}

// column reports whether a run is computed down its columns: at the border, where a single pixel has its own taps, the pixels of several
// rows make a strip.
func (d *depthwise) column(r *run) bool { return d.args.Store == nil && r.n == 1 && d.y.Out > 1 }

// columns computes the runs that are columns.
func (b *depthwiseBlock) columns() {
	d, sc := b.d, b.sc
	s := &sc.s
	across, below := s.xs, s.ldc
	s.xs, s.ldc = d.y.Stride*d.x.In*d.c*4, d.x.Out*d.c*4
	for i := range d.xs {
		r := &d.xs[i]
		if !d.column(r) {
			continue
		}
		for y := b.y0; y < b.y1; {
			l, sp := b.lists[y*len(d.xs)+i], d.ys[y]
			if len(l.offs) == 0 {
				b.empty(y, r)
				y++
				continue
			}
			h := 1
			for h < d.k.sr && y+h < b.y1 && b.lists[(y+h)*len(d.xs)+i] == l && d.ys[y+h].at == sp.at+h*d.y.Stride {
				h++
			}
			d.setTaps(s, l)
			out := b.result(y, r.first)
			s.x, s.c, s.n = unsafe.Pointer(&b.x[b.pixel(sp.at, r.at)]), unsafe.Pointer(&sc.y[out-sc.first]), d.c
			d.k.runStrip(s, h, d.maximum)
			for j := range h {
				d.post(sc, out+j*d.x.Out*d.c, 1)
			}
			y += h
		}
	}
	s.xs, s.ldc = across, below
}

// rowKernel returns the kernel for a run of columns, or nil: all of its taps must lie in one plane and inside the image, of which some rows may
// lie outside.
func (b *depthwiseBlock) rowKernel(sp span, r *run) func(*row) {
	d := b.d
	if d.weights == nil || d.args.Store != nil || d.args.Load != nil || d.x.Dilation != 1 || r.from != 0 || r.to != d.x.Kernel || sp.to == sp.from ||
		b.z.to-b.z.from != 1 || d.c < d.k.block {
		return nil
	}
	h := 8
	if r.n < h {
		h = 4
	}
	if r.n < h {
		return nil
	}
	return d.k.rows[[3]int{d.x.Kernel, d.x.Stride, h}]
}

// row computes a run of columns, in calls of well below 100 microseconds. Channels that fill no block are computed with some before them, which
// are computed twice.
func (b *depthwiseBlock) row(f func(*row), y int, r *run) {
	const most = 1 << 20 // multiply-adds of a call
	d, sc := b.d, b.sc
	a, sp := d.args, d.ys[y]
	k := &sc.r
	k.lo, k.hi, k.p, k.q, k.mode, k.s, k.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	k.step, k.wstep, k.rows = d.y.Dilation*d.x.In*d.c*4, d.x.Kernel*d.c*4, sp.to-sp.from
	k.px, k.ldc = d.c*4, d.c*4
	weights := d.weights[(b.z.from*d.y.Kernel+sp.from)*d.x.Kernel*d.c:]
	pieces := ceilDiv(r.n, max(most/(d.c*d.x.Kernel*k.rows), 16))
	for i := range pieces {
		from, to := i*r.n/pieces, (i+1)*r.n/pieces
		out := b.result(y, r.first+from)
		k.pixels = to - from
		channels := func(first, n int) {
			k.x = unsafe.Pointer(&b.x[b.pixel(sp.at, r.at+from*d.x.Stride)+first])
			k.w = unsafe.Pointer(&weights[first])
			k.c, k.init, k.n = unsafe.Pointer(&sc.y[out-sc.first+first]), unsafe.Pointer(&d.init[first]), n
			f(k)
		}
		rest := d.c % d.k.block
		channels(0, d.c-rest)
		if rest > 0 {
			channels(d.c-d.k.block, d.k.block)
		}
		d.post(sc, out, to-from)
	}
}

// empty computes pixels whose window lies outside: nothing is added to what sums start from.
func (b *depthwiseBlock) empty(y int, r *run) {
	d, sc := b.d, b.sc
	a := d.args
	for i := range r.n {
		out := b.result(y, r.first+i)
		row := sc.out
		if a.Store == nil {
			row = sc.y[out-sc.first:][:d.c]
		}
		for j, v := range d.init {
			row[j] = finish(v, a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T)
		}
		d.post(sc, out, 1)
	}
}

// post hands on the pixels of a strip.
func (d *depthwise) post(sc *scratch, out, h int) {
	a := d.args
	if a.Post == nil && a.Store == nil {
		return
	}
	at, n := out, h*d.c
	if a.Store == nil {
		a.Post(at, sc.y[at-sc.first:][:n])
		return
	}
	row := sc.out[:n]
	if a.Post != nil {
		a.Post(at, row)
	}
	a.Store(at, row)
}

// PoolSpec is a pooling of images [N, H, W, C], or with a Depth [N, Depth, H, W, C].
type PoolSpec struct {
	N, H, W, C     int
	KH, KW         int
	SH, SW, DH, DW int
	Top, Left      int
	Bottom, Right  int // counts for a mean that counts padding
	OH, OW         int
	Depth          Dim  // the zero value: there is none
	Max            bool // the maximum, NaN wins; else the mean
	Counted        bool // the mean counts padding
}

// Pool is a prepared pooling. One goroutine at a time runs it.
type Pool struct{ d depthwise }

// NewPool prepares a pooling.
func NewPool(s PoolSpec, isa cpuinfo.ISA, threads int) *Pool {
	n, dims := fold(s.N, [3]Dim{s.Depth.or(one),
		{In: s.H, Out: s.OH, Kernel: s.KH, Stride: s.SH, Dilation: s.DH, Before: s.Top, After: s.Bottom},
		{In: s.W, Out: s.OW, Kernel: s.KW, Stride: s.SW, Dilation: s.DW, Before: s.Left, After: s.Right}}, false)
	p := &Pool{depthwise{k: kernelsOf(kindF32, isa), threads: threads, n: n, c: s.C, z: dims[0], y: dims[1], x: dims[2],
		maximum: s.Max, mean: !s.Max, counted: s.Counted}}
	kn, err := knobTable.Get()
	if err != nil {
		kn = knobTable.Defaults() // the error is that of the backend and of every plan
	}
	p.d.prepare(kn)
	return p
}

// Run computes; of the arguments X, Y, Act, Load, Store and Stop count.
func (p *Pool) Run(a *Args) {
	if d := &p.d; d.n*d.z.Out*d.y.Out*d.x.Out*d.c > 0 {
		d.run(a)
	}
}
