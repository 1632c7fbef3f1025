package conv

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
)

// depthwise runs convolutions by channel, and poolings. Rows of output are jobs. Where the window hangs over a border, its taps
// outside are dropped, so that nothing is copied.
type depthwise struct {
	k                      *kernels
	threads                int
	n, h, w, c, oh, ow     int
	kh, kw, sh, sw, dh, dw int
	top, left              int
	maximum                bool
	mean                   bool // the mean of what is inside; with counted, padding counts
	counted                bool
	bottom, right          int // padding behind, which counts for counted
	weights                []float32
	ys                     []span // of each output row
	xs                     []run  // of output columns with equal taps
	taps                   map[[4]int]*tapList
	lists                  []*tapList // by row span and run
	zeros                  []float32
	init                   []float32
	args                   *Args
	workers                []scratch
	rows                   int // of a job
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

func newDepthwise(p *Plan) *depthwise {
	s := &p.s
	d := &depthwise{k: p.k, threads: p.threads, n: s.N, h: s.H, w: s.W, c: s.C, oh: s.OH, ow: s.OW,
		kh: s.KH, kw: s.KW, sh: s.SH, sw: s.SW, dh: s.DH, dw: s.DW, top: s.Top, left: s.Left, weights: p.f.dw}
	d.prepare(p.kn)
	return d
}

func spanAt(o, stride, dilation, before, k, n int) span {
	sp := span{}
	start := o*stride - before
	for sp.from < k && start+sp.from*dilation < 0 {
		sp.from++
	}
	sp.to = sp.from
	for sp.to < k && start+sp.to*dilation < n {
		sp.to++
	}
	sp.at = start + sp.from*dilation
	return sp
}

func (d *depthwise) prepare(kn *knobs) {
	for y := range d.oh {
		d.ys = append(d.ys, spanAt(y, d.sh, d.dh, d.top, d.kh, d.h))
	}
	for x := range d.ow {
		sp := spanAt(x, d.sw, d.dw, d.left, d.kw, d.w)
		if n := len(d.xs); n > 0 && d.xs[n-1].from == sp.from && d.xs[n-1].to == sp.to && (!d.counted || d.clipped(x) == 0 && d.clipped(x-1) == 0) {
			d.xs[n-1].n++
			continue
		}
		d.xs = append(d.xs, run{sp, x, 1})
	}
	d.taps = map[[4]int]*tapList{}
	d.lists = make([]*tapList, len(d.ys)*len(d.xs))
	for y, ys := range d.ys {
		for i, xs := range d.xs {
			key := [4]int{ys.from, ys.to, xs.from, xs.to}
			count := (ys.to - ys.from) * (xs.to - xs.from)
			if d.counted {
				count = (d.kh - d.clippedY(y)) * (d.kw - d.clipped(xs.first))
				key[0] |= count << 16 // lists differ by count, too
			}
			l := d.taps[key]
			if l == nil {
				l = &tapList{}
				for ky := ys.from; ky < ys.to; ky++ {
					for kx := xs.from; kx < xs.to; kx++ {
						x := (((ky-ys.from)*d.dh)*d.w + (kx-xs.from)*d.dw) * d.c * 4
						w := (ky*d.kw + kx) * d.c * 4
						if d.mean {
							w = 0
						}
						l.offs = append(l.offs, [2]int{x, w})
					}
				}
				if d.mean {
					l.scale = alignedFloats(d.c)
					for j := range l.scale {
						l.scale[j] = 1 / float32(max(count, 1))
					}
				}
				d.taps[key] = l
			}
			d.lists[y*len(d.xs)+i] = l
		}
	}
	d.init = alignedFloats(d.c)
	if d.maximum {
		for i := range d.init {
			d.init[i] = least
		}
	}
	d.rows = max(kn.depthwiseMacs/max(d.ow*d.c*d.kh*d.kw, 1), 1)
	d.rows = min(d.rows, max(d.oh, 1))
}

// clipped returns how many taps of column x lie behind the padding at the end, which no mean counts.
func (d *depthwise) clipped(x int) int { return behind(x, d.sw, d.dw, d.left, d.kw, d.w+d.right) }

func (d *depthwise) clippedY(y int) int { return behind(y, d.sh, d.dh, d.top, d.kh, d.h+d.bottom) }

func behind(o, stride, dilation, before, k, end int) int {
	n := 0
	for t := range k {
		if o*stride-before+t*dilation >= end {
			n++
		}
	}
	return n
}

func (d *depthwise) run(a *Args) {
	jobs := d.n * ceilDiv(d.oh, d.rows)
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
	blocks := ceilDiv(d.oh, d.rows)
	image, y0 := job/blocks, job%blocks*d.rows
	sc := &d.workers[worker]
	sc.y, sc.first = d.args.Y, 0
	d.block(sc, image, y0, min(y0+d.rows, d.oh))
}

// block computes rows of an image to sc.y, which has the results from position sc.first on.
func (d *depthwise) block(sc *scratch, image, y0, y1 int) {
	a, x := d.args, d.args.X
	base, baseRow := image*d.h*d.w*d.c, 0
	if a.Load != nil { // the rows that the block reads, converted
		lo, hi := d.h, 0
		for y := y0; y < y1; y++ {
			if sp := d.ys[y]; sp.to > sp.from {
				lo, hi = min(lo, sp.at), max(hi, sp.at+(sp.to-sp.from-1)*d.dh+1)
			}
		}
		n := max(hi-lo, 0) * d.w * d.c
		sc.need(&sc.rows, n+16)
		if n > 0 {
			a.Load(sc.rows[:n], base+lo*d.w*d.c)
		}
		x, base, baseRow = sc.rows, 0, lo
	}
	if a.Store != nil {
		sc.need(&sc.out, d.k.sr*d.c)
	}
	s := &sc.s
	s.init = unsafe.Pointer(&d.init[0])
	s.lo, s.hi, s.p, s.q, s.mode, s.s, s.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	s.xs, s.ldc = d.sw*d.c*4, d.c*4
	if a.Store == nil {
		d.columns(sc, x[base:], image, y0, y1, baseRow)
	}
	for y := y0; y < y1; y++ {
		sp := d.ys[y]
		for i := range d.xs {
			r := &d.xs[i]
			if d.column(r) {
				continue
			}
			l := d.lists[y*len(d.xs)+i]
			if len(l.offs) == 0 {
				d.empty(sc, image, y, r)
				continue
			}
			if f := d.rowKernel(sp, r); f != nil {
				d.row(sc, f, image, y, r, x[base:])
				continue
			}
			d.setTaps(s, l)
			for done := 0; done < r.n; {
				h := min(d.k.sr, r.n-done)
				if left := r.n - done; left > d.k.sr && left < 2*d.k.sr {
					h = (left + 1) / 2 // two nearly equal strips
				}
				out := ((image*d.oh+y)*d.ow + r.first + done) * d.c
				from := base + ((sp.at-baseRow)*d.w+r.at+done*d.sw)*d.c
				s.x = unsafe.Pointer(&x[from])
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
func (d *depthwise) column(r *run) bool { return d.args.Store == nil && r.n == 1 && d.oh > 1 }

// columns computes the runs that are columns.
func (d *depthwise) columns(sc *scratch, x []float32, image, y0, y1, baseRow int) {
	s := &sc.s
	across, below := s.xs, s.ldc
	s.xs, s.ldc = d.sh*d.w*d.c*4, d.ow*d.c*4
	for i := range d.xs {
		r := &d.xs[i]
		if !d.column(r) {
			continue
		}
		for y := y0; y < y1; {
			l, sp := d.lists[y*len(d.xs)+i], d.ys[y]
			if len(l.offs) == 0 {
				d.empty(sc, image, y, r)
				y++
				continue
			}
			h := 1
			for h < d.k.sr && y+h < y1 && d.lists[(y+h)*len(d.xs)+i] == l && d.ys[y+h].at == sp.at+h*d.sh {
				h++
			}
			d.setTaps(s, l)
			out := ((image*d.oh+y)*d.ow + r.first) * d.c
			s.x, s.c, s.n = unsafe.Pointer(&x[((sp.at-baseRow)*d.w+r.at)*d.c]), unsafe.Pointer(&sc.y[out-sc.first]), d.c
			d.k.runStrip(s, h, d.maximum)
			for j := range h {
				d.post(sc, out+j*d.ow*d.c, 1)
			}
			y += h
		}
	}
	s.xs, s.ldc = across, below
}

// rowKernel returns the kernel for a run of columns, or nil: all of its taps must lie inside the image, of which some rows may lie outside.
func (d *depthwise) rowKernel(sp span, r *run) func(*row) {
	if d.weights == nil || d.args.Store != nil || d.args.Load != nil || d.dw != 1 || r.from != 0 || r.to != d.kw || sp.to == sp.from || d.c < d.k.block {
		return nil
	}
	h := 8
	if r.n < h {
		h = 4
	}
	if r.n < h {
		return nil
	}
	return d.k.rows[[3]int{d.kw, d.sw, h}]
}

// row computes a run of columns, in calls of well below 100 microseconds. Channels that fill no block are computed with some before them, which
// are computed twice.
func (d *depthwise) row(sc *scratch, f func(*row), image, y int, r *run, x []float32) {
	const most = 1 << 20 // multiply-adds of a call
	a, sp := d.args, d.ys[y]
	k := &sc.r
	k.lo, k.hi, k.p, k.q, k.mode, k.s, k.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	k.step, k.wstep, k.rows = d.dh*d.w*d.c*4, d.kw*d.c*4, sp.to-sp.from
	k.px, k.ldc = d.c*4, d.c*4
	pieces := ceilDiv(r.n, max(most/(d.c*d.kw*k.rows), 16))
	for i := range pieces {
		from, to := i*r.n/pieces, (i+1)*r.n/pieces
		out := ((image*d.oh+y)*d.ow + r.first + from) * d.c
		k.pixels = to - from
		channels := func(first, n int) {
			k.x = unsafe.Pointer(&x[(sp.at*d.w+r.at+from*d.sw)*d.c+first])
			k.w = unsafe.Pointer(&d.weights[sp.from*d.kw*d.c+first])
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
func (d *depthwise) empty(sc *scratch, image, y int, r *run) {
	a := d.args
	for i := range r.n {
		out := ((image*d.oh+y)*d.ow + r.first + i) * d.c
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

// PoolSpec is a pooling of images [N, H, W, C].
type PoolSpec struct {
	N, H, W, C     int
	KH, KW         int
	SH, SW, DH, DW int
	Top, Left      int
	Bottom, Right  int // counts for a mean that counts padding
	OH, OW         int
	Max            bool // the maximum, NaN wins; else the mean
	Counted        bool // the mean counts padding
}

// Pool is a prepared pooling. One goroutine at a time runs it.
type Pool struct{ d depthwise }

// NewPool prepares a pooling.
func NewPool(s PoolSpec, isa cpuinfo.ISA, threads int) *Pool {
	p := &Pool{depthwise{k: kernelsOf(kindF32, isa), threads: threads, n: s.N, h: s.H, w: s.W, c: s.C, oh: s.OH, ow: s.OW, kh: s.KH, kw: s.KW,
		sh: s.SH, sw: s.SW, dh: s.DH, dw: s.DW, top: s.Top, left: s.Left, bottom: s.Bottom, right: s.Right,
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
	if p.d.n > 0 && p.d.oh > 0 && p.d.ow > 0 && p.d.c > 0 {
		p.d.run(a)
	}
}
