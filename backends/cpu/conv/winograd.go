package conv

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
)

// winograd runs a 3x3 convolution of stride 1, or one along lines of 3 or 5 taps, by Winograd's algorithm: tiles of pixels that overlap by
// what the taps reach are transformed to frequencies, each frequency of all tiles is a product with the transformed filters, and the sums
// are transformed back to the Spec.Tile x Spec.Tile (on lines, Spec.Tile) pixels in the middle. For 3x3, a tile of 4 takes 36 multiply-adds
// where the definition takes 144, one of 2 takes 16 for 36; on lines, a tile of 4 takes 6 for 12 and 8 for 20.
//
// A job takes some tiles through all three steps, a panel of output channels at a time, so that frequencies stay in L2 and the filters
// stream past once a job. A dilated convolution is one on each of the grids of pixels that its taps can meet. Of a convolution with a depth the tiles
// are those of its planes: the frequencies of the planes that a tile needs stand behind each other, like channels.
//
// Images of bytes have frequencies of words and sums of 32 bits, all exact: see intwinograd.go.
type winograd struct {
	p *Plan
	form
	depth  Dim
	k      int      // steps of the products, of 4 bytes: channels of all planes that a tile needs, or pairs of them
	tiles  []origin // of a plane
	total  int      // tiles of all planes
	block  int      // tiles of a job
	blocks int
	cuts   int            // of the panels; more than one: jobs of their own
	group  int            // panels whose sums are kept before they are transformed: so often is a frequency of the tiles used at a time
	row    int            // of a tile of one frequency, in units of 4 bytes
	zeros  unsafe.Pointer // a pixel outside the image
	args   *Args
	worker []winogradScratch
}

// form is the shape of tiles: of the pixels that they read, and of those that they compute.
type form struct{ ty, tx, my, mx int }

func (f form) freqs() int { return f.ty * f.tx }

// form returns the tiles of the algorithm for tiles of m pixels in each direction; ok is false where it does not take the convolution.
func (s *Spec) form(m int) (f form, ok bool) {
	if s.Depth.or(one).Stride != 1 || s.SH != 1 || s.SW != 1 || s.Groups != 1 || s.Transposed {
		return form{}, false
	}
	switch {
	case s.Type == Int8 && (s.KH != 3 || m != 4):
	case s.KH == 3 && s.KW == 3 && (m == 2 || m == 4):
		return form{m + 2, m + 2, m, m}, true
	case s.KH == 1 && (s.KW == 3 || s.KW == 5) && m == 4:
		return form{1, m + s.KW - 1, 1, m}, true
	}
	return form{}, false
}

// origin is the first output pixel of a tile.
type origin struct{ y, x int }

type winogradScratch struct {
	t    tile
	in   transform
	out  inverse
	src  [36]unsafe.Pointer
	dst  [][16]unsafe.Pointer // of each tile of a job
	res  [][16]unsafe.Pointer
	offs [1]int
	v    []float32 // [frequency][tile][C]
	m    []float32 // [panel of a group][frequency][tile][channels of a panel]
	tmp  []float32
	sink []float32 // what lies outside the image
	load []float32
	keep []float32 // pixels that cannot go to Y
	edge intEdge
	tile narrowTile
	_    [64]byte
}

// narrowTile is where the pixels of a tile become bytes, a panel at a time: they stay in L1.
type narrowTile struct {
	dst, res [16]unsafe.Pointer
	floats   [16 * mostPanel]float32
	bytes    [16 * mostPanel]byte
}

// mostPanel is the most channels of a panel.
const mostPanel = 32

// Channels that do not fill a vector are not worth a transform.
const winogradLeast = 12

// winogradFloats is the size of the frequencies of a job, in and out: most of a small L2. Speed is flat from half to twice of it.
const winogradFloats = 192 << 10

// winogradSums is the size of the sums that are kept: a share of L2.
const winogradSums = 64 << 10

// BestTile returns the Tile with which a convolution is fastest for the kernels of an instruction set: 0, 2 or 4. It depends on nothing else
// but the sizes and, for bytes, on the processor.
//
// The estimate counts multiply-adds a pair of an input and an output channel. Products take one a frequency and tile, but no less than
// reading the filters, which come from beyond L2 once for every block of tiles. The transforms of a frequency take about as long as
// transformCost of them a channel.
func (s *Spec) BestTile(isa cpuinfo.ISA) int {
	if s.C < winogradLeast || s.M < winogradLeast {
		return 0
	}
	const (
		transformCost = 17
		better        = 0.85 // larger filters must pay
	)
	k := kernelsOf(kindF32, isa).forChannels(s.M)
	direct := 1.0 // time of a multiply-add of the definition
	if s.Type == Int8 {
		k = kernelsOf(kindS16, isa)
		bytes := kernelsOf(kindU8, isa)
		if k.intOut == nil || bytes.isa > k.isa {
			return 0
		}
		if bytes.isa != cpuinfo.Portable {
			if !cpuinfo.Get().Features.Zen4 {
				// Products of bytes at twice the rate against transforms at the same. On an Ice Lake server it saves a fifth at 28x28x128 and nothing at
				// 56x56x64 and 14x14x256, for filters of eight times the size.
				return 0
			}
			direct = 0.5 // four numbers a step
		}
	}
	depth, planes := float64(s.Depth.or(one).Kernel), float64(s.planes())
	best, cost := 0, direct*float64(s.taps())*max(planes*float64(s.OH)*float64(s.OW), k.read)
	for _, m := range []int{2, 4} {
		f, ok := s.form(m)
		if !ok {
			continue
		}
		tiles := planes * float64(s.tilesOf(f))
		products := depth * max(tiles, k.read*math.Ceil(tiles/float64(s.winogradBlock(f, k))))
		c := float64(f.freqs()) * (products + tiles*transformCost*(1/float64(s.C)+depth/float64(s.M)))
		if c < better*cost {
			best, cost = m, c
		}
	}
	return best
}

// tilesOf returns the tiles of a plane.
func (s *Spec) tilesOf(f form) int {
	along := func(n, dilation, m int) int {
		count := 0
		for r := range min(dilation, n) {
			count += ceilDiv(ceilDiv(n-r, dilation), m)
		}
		return count
	}
	return along(s.OH, s.DH, f.my) * along(s.OW, s.DW, f.mx)
}

// winogradBlock returns how many tiles a job has at most: whole strips of the highest kernel.
func (s *Spec) winogradBlock(f form, k *kernels) int {
	return max(winogradFloats/(f.freqs()*(s.winogradRow()+32))/k.mr, 1) * k.mr
}

// winogradSteps returns the steps of the products, of 4 bytes.
func (s *Spec) winogradSteps() int {
	n := s.C * s.Depth.or(one).Kernel
	if s.Type == Int8 {
		n = ceilDiv(n, kindS16.group())
	}
	return n
}

// winogradRow returns the steps between tiles of a frequency: whole vectors, also of the last plane, which kernels of floats write as such wherever it
// begins, and no multiple of 4 KiB, at which lines of a cache collide.
func (s *Spec) winogradRow() int {
	const vector = 16
	n := s.winogradSteps()
	if s.Type != Int8 {
		n += ceilDiv(s.C, vector)*vector - s.C
	}
	n = ceilDiv(n, vector) * vector
	if n%256 == 0 {
		n += 16
	}
	return n
}

// packWinograd transforms and packs a filter as [panel][frequency][plane][C][channels of a panel].
func packWinograd(f *Filter, w, scale []float32) {
	s := &f.spec
	fm, _ := s.form(s.Tile)
	nr, taps, depth := f.k.nr, s.KH*s.KW, s.Depth.or(one).Kernel
	k := depth * s.C
	f.alloc(ceilDiv(s.M, nr) * nr * fm.freqs() * k)
	for o := range s.M {
		panel, j := o/nr, o%nr
		width := f.k.width(s.M - panel*nr)
		factor := 1.0
		if scale != nil {
			factor = float64(scale[o])
		}
		out := f.data[panel*nr*fm.freqs()*k:]
		for i := range k { // a kernel of a plane
			g := w[(o*k+i)*taps:][:taps]
			at := (i%depth*s.C+i/depth)*width + j
			put := func(line []float64) {
				for _, v := range line {
					out[at] = float32(v * factor)
					at += k * width
				}
			}
			switch {
			case fm.tx == 8:
				line := frequencies8(g)
				put(line[:])
			case fm.ty == 1:
				line := filterFrequencies(6, float64(g[0]), float64(g[1]), float64(g[2]))
				put(line[:])
			default:
				var rows [3][6]float64
				for x := range rows {
					rows[x] = filterFrequencies(fm.ty, float64(g[x]), float64(g[3+x]), float64(g[6+x]))
				}
				for i := range fm.ty {
					line := filterFrequencies(fm.tx, rows[0][i], rows[1][i], rows[2][i])
					put(line[:fm.tx])
				}
			}
		}
	}
}

// The points of the transforms of 6 are 0, a, -a, b, -b and infinity, of those of 4 they are 0, 1, -1 and infinity, of those of 8 they are 0,
// 1/2, -1/2, 1, -1, 2, -2 and infinity: see _gen/winograd.go.
const (
	pointA  = 5.0 / 8
	pointB  = 3.0 / 2
	pointA2 = pointA * pointA
	pointB2 = pointB * pointB
)

// frequencies8 transforms five taps.
func frequencies8(g []float32) [8]float64 {
	at := func(p float64) float64 {
		v := 0.0
		for i := len(g) - 1; i >= 0; i-- {
			v = v*p + float64(g[i])
		}
		return v
	}
	// What is divided by is the product of the differences to the other points.
	const (
		half = 2 * (1. / 4) * (1./4 - 1) * (1./4 - 4)
		one  = 2 * (1 - 1./4) * (1 - 4)
		two  = 2 * 4 * (4 - 1./4) * (4 - 1)
	)
	return [8]float64{-float64(g[0]), at(0.5) / half, at(-0.5) / half, at(1) / one, at(-1) / one, at(2) / two, at(-2) / two, float64(g[4])}
}

// filterFrequencies transforms three taps.
func filterFrequencies(t int, x, y, z float64) [6]float64 {
	if t == 4 {
		return [6]float64{x, (x + y + z) / 2, (x - y + z) / 2, z}
	}
	const (
		na = 1 / (2 * pointA2 * (pointA2 - pointB2))
		nb = 1 / (2 * pointB2 * (pointB2 - pointA2))
	)
	ea, oa := x+pointA2*z, pointA*y
	eb, ob := x+pointB2*z, pointB*y
	return [6]float64{x / (pointA2 * pointB2), na * (ea + oa), na * (ea - oa), nb * (eb + ob), nb * (eb - ob), z}
}

func newWinograd(p *Plan) *winograd {
	s := &p.s
	fm, _ := s.form(s.Tile)
	w := &winograd{p: p, form: fm, depth: s.Depth.or(one), k: s.winogradSteps(), row: s.winogradRow()}
	outside := alignedFloats(s.C + 16)
	w.zeros = unsafe.Pointer(&outside[0])
	if s.Type == Int8 {
		bytes := unsafe.Slice((*byte)(w.zeros), s.C)
		for i := range bytes {
			bytes[i] = byte(s.XZero)
		}
	}
	for ry := range min(s.DH, s.OH) {
		for y := ry; y < s.OH; y += w.my * s.DH {
			for rx := range min(s.DW, s.OW) {
				for x := rx; x < s.OW; x += w.mx * s.DW {
					w.tiles = append(w.tiles, origin{y, x})
				}
			}
		}
	}
	w.total = s.planes() * len(w.tiles)
	workers := par.Workers(p.threads, 1<<30)
	panels := ceilDiv(s.M, p.k.nr)
	w.block, w.cuts = s.winogradBlock(fm, p.k), 1
	if w.blocks = ceilDiv(w.total, w.block); w.blocks%workers != 0 {
		even := ceilDiv(w.blocks, workers) * workers
		switch {
		case ceilDiv(w.total, even) >= 2*p.k.mr:
			w.blocks = even
		case panels >= workers && w.blocks < 2*workers:
			w.cuts = workers
		}
	}
	w.block = max(ceilDiv(w.total, max(w.blocks, 1)), 1)
	w.blocks = ceilDiv(w.total, w.block)
	w.group = min(max(winogradSums/(fm.freqs()*w.block*p.k.nr), 1), panels)
	return w
}

func (w *winograd) run(a *Args) {
	w.args = a
	jobs := w.blocks * w.cutsOf(a)
	for len(w.worker) < par.Workers(w.p.threads, jobs) {
		w.worker = append(w.worker, winogradScratch{})
	}
	par.Run(w.p.threads, jobs, w)
	w.args = nil
}

// cutsOf returns the cuts of a run: a pixel that is handed on needs all of its channels, but for bytes, which are made number by number.
func (w *winograd) cutsOf(a *Args) int {
	if a.Post != nil || a.Store != nil && a.Bytes == nil {
		return 1
	}
	return w.cuts
}

// narrow reports whether the pixels of a tile become bytes as soon as they are there.
func (w *winograd) narrow() bool {
	a := w.args
	return a.Bytes != nil && a.Narrow != nil && a.Post == nil && w.p.s.Type == Int8 && w.p.k.nr <= mostPanel
}

// Do takes some tiles, and some panels of them, through all steps.
func (w *winograd) Do(worker, job int) {
	a := w.args
	if a.Stop != nil && a.Stop() {
		return
	}
	s, k := &w.p.s, w.p.k
	cuts := w.cutsOf(a)
	cut := job % cuts
	first := job / cuts * w.block
	n := min(w.block, w.total-first)
	panels := ceilDiv(s.M, k.nr)
	p0, p1 := cut*panels/cuts, (cut+1)*panels/cuts

	sc := &w.worker[worker]
	sc.prepare(w)
	for i := range n {
		w.forward(sc, i, first+i)
	}
	w.targets(sc, first, n)
	for from := p0; from < p1; from += w.group {
		to := min(from+w.group, p1)
		w.products(sc, from, to, n)
		for pn := from; pn < to; pn++ {
			w.backward(sc, pn, pn-from, n)
		}
	}
	if !w.narrow() && (a.Post != nil || a.Store != nil) {
		w.post(sc, first, n, p0*k.nr, min(p1*k.nr, s.M))
	}
}

func (sc *winogradScratch) prepare(w *winograd) {
	s, a, freqs := &w.p.s, w.args, w.freqs()
	if sc.v == nil {
		sc.v = alignedFloats(freqs*w.block*w.row + 16)
		sc.m = alignedFloats(w.group*freqs*w.block*w.p.k.nr + 16)
		sc.tmp = alignedFloats(freqs * 16)
		sc.sink = alignedFloats(ceilDiv(s.M, w.p.k.nr)*w.p.k.nr + 16)
		sc.dst = make([][16]unsafe.Pointer, w.block)
	}
	if a.Residual != nil && sc.res == nil {
		sc.res = make([][16]unsafe.Pointer, w.block)
	}
	if a.Load != nil && sc.load == nil {
		sc.load = alignedFloats(freqs*w.row + 16)
	}
	if a.Store != nil && !w.narrow() && sc.keep == nil {
		sc.keep = alignedFloats(w.my*w.mx*w.block*s.M + 16)
	}
	sc.in.tmp, sc.out.tmp = unsafe.Pointer(&sc.tmp[0]), unsafe.Pointer(&sc.tmp[0])
	sc.in.src = unsafe.Pointer(&sc.src)
}

// forward transforms the pixels of a tile; i is its position in the job.
func (w *winograd) forward(sc *winogradScratch, i, at int) {
	s := &w.p.s
	plane, o := at/len(w.tiles), w.tiles[at%len(w.tiles)]
	image, first := plane/w.depth.Out, plane%w.depth.Out-w.depth.Before
	sc.in.ahead = w.mx * s.DW * s.C * 4
	for kz := range w.depth.Kernel {
		from := -1
		if z := first + kz*w.depth.Dilation; z >= 0 && z < w.depth.In {
			from = image*w.depth.In + z
		}
		w.sources(sc, from, o)
		sc.in.dst, sc.in.step = unsafe.Add(unsafe.Pointer(&sc.v[i*w.row]), kz*s.C*w.p.k.kind.size()), w.block*w.row*4
		if s.Type == Int8 {
			sc.in.zero = s.XZero
			w.p.k.intTransform(&sc.in, s.Signed, s.C)
		} else {
			w.p.k.transform(&sc.in, w.form, s.C)
		}
	}
}

// sources sets where the pixels of a tile in one of all planes lie; -1 stands for one outside.
func (w *winograd) sources(sc *winogradScratch, plane int, o origin) {
	s, a := &w.p.s, w.args
	for dy := range w.ty {
		y := o.y - s.Top + dy*s.DH
		for dx := range w.tx {
			x := o.x - s.Left + dx*s.DW
			p := &sc.src[dy*w.tx+dx]
			if plane < 0 || y < 0 || y >= s.H || x < 0 || x >= s.W {
				*p = w.zeros
				continue
			}
			from := ((plane*s.H+y)*s.W + x) * s.C
			if s.Type == Int8 {
				*p = unsafe.Pointer(&a.X8[from])
				continue
			}
			if a.Load == nil {
				*p = unsafe.Pointer(&a.X[from])
				continue
			}
			pixel := sc.load[(dy*w.tx+dx)*w.row:][:s.C]
			a.Load(pixel, from)
			*p = unsafe.Pointer(&pixel[0])
		}
	}
}

// targets sets where the pixels of the tiles go.
func (w *winograd) targets(sc *winogradScratch, first, n int) {
	s, a := &w.p.s, w.args
	sink := unsafe.Pointer(&sc.sink[0])
	for i := range n {
		plane, o := (first+i)/len(w.tiles), w.tiles[(first+i)%len(w.tiles)]
		for dy := range w.my {
			y := o.y + dy*s.DH
			for dx := range w.mx {
				x, j := o.x+dx*s.DW, dy*w.mx+dx
				to, res := sink, sink
				if y < s.OH && x < s.OW {
					at := ((plane*s.OH+y)*s.OW + x) * s.M
					switch {
					case w.narrow():
						to = unsafe.Pointer(&a.Bytes[at])
					case a.Store == nil:
						to = unsafe.Pointer(&a.Y[at])
					default:
						to = unsafe.Pointer(&sc.keep[(i*w.my*w.mx+j)*s.M])
					}
					if a.Residual != nil {
						res = unsafe.Pointer(&a.Residual[at])
					}
				}
				sc.dst[i][j] = to
				if a.Residual != nil {
					sc.res[i][j] = res
				}
			}
		}
	}
}

// products multiplies each frequency of the tiles by some panels of filters.
func (w *winograd) products(sc *winogradScratch, from, to, n int) {
	s, k, f := &w.p.s, w.p.k, w.p.f
	t := &sc.t
	freqs := w.freqs()
	t.offs, t.segs, t.k, t.mode = unsafe.Pointer(&sc.offs), 1, w.k, raw
	t.ars = w.row * 4
	if s.Type == Int8 { // what kernels of integers add to the sums
		t.extra = unsafe.Pointer(&w.p.extra[0])
	}
	strips := ceilDiv(n, k.mr)
	low, rem := n/strips, n%strips
	filter := func(q, pn int) (at unsafe.Pointer, width int) {
		width = k.width(min(s.M-pn*k.nr, k.nr))
		return unsafe.Pointer(&f.data[pn*k.nr*freqs*w.k+q*w.k*width]), width
	}
	for q := range freqs {
		for pn := from; pn < to; pn++ {
			b, width := filter(q, pn)
			next := b // what is read after it
			switch {
			case pn+1 < to:
				next, _ = filter(q, pn+1)
			case q+1 < freqs:
				next, _ = filter(q+1, from)
			case (to+1)*k.nr <= s.M:
				next, _ = filter(0, to)
			}
			kernels := k.wide
			if width < k.nr {
				kernels = k.half
			}
			t.b, t.cols, t.ldc = b, width, width*4
			sums := sc.m[((pn-from)*freqs+q)*w.block*k.nr:]
			i := 0
			for st := 0; st < strips; st += t.count {
				h, same := low, strips-st
				if st < rem {
					h, same = low+1, rem-st
				}
				t.a, t.c = unsafe.Pointer(&sc.v[(q*w.block+i)*w.row]), unsafe.Pointer(&sums[i*width])
				t.ahead = uintptr(next) // a half with each of two strips
				if st == 1 {
					t.ahead += uintptr(w.k * width * 2)
				}
				count := 1
				if s.Type == Int8 && k.strips {
					count = same
				}
				t.count, t.stepA, t.stepC = count, h*t.ars, h*t.ldc
				kernels[h](t)
				t.count = count
				i += h * count
			}
		}
	}
}

// backward transforms the sums of a panel, in its place in the group, to pixels.
func (w *winograd) backward(sc *winogradScratch, pn, at, n int) {
	s, k, a := &w.p.s, w.p.k, w.args
	live := min(s.M-pn*k.nr, k.nr)
	width := k.width(live)
	v := &sc.out
	v.init, v.step, v.off = unsafe.Pointer(&w.p.init[pn*k.nr]), w.block*k.nr*4, pn*k.nr*4
	v.lo, v.hi, v.p, v.q, v.mode, v.s, v.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	if a.Raw {
		v.mode = raw
	}
	v.res = nil
	if w.narrow() {
		w.backwardBytes(sc, pn, at, n)
		return
	}
	for i := range n {
		v.src, v.dst = unsafe.Pointer(&sc.m[at*w.freqs()*w.block*k.nr+i*width]), unsafe.Pointer(&sc.dst[i])
		if a.Residual != nil {
			v.res = unsafe.Pointer(&sc.res[i])
		}
		if s.Type == Int8 {
			v.scale = unsafe.Pointer(&w.p.scale[pn*k.nr])
			k.intInverse(v, &sc.edge, live)
		} else {
			k.inverse(v, w.form, live)
		}
	}
}

// backwardBytes is backward where the pixels become bytes. sc.out is set but for where they come from and go.
func (w *winograd) backwardBytes(sc *winogradScratch, pn, at, n int) {
	s, k, a, t := &w.p.s, w.p.k, w.args, &sc.tile
	live := min(s.M-pn*k.nr, k.nr)
	width := k.width(live)
	v := &sc.out
	for j := range t.dst {
		t.dst[j] = unsafe.Pointer(&t.floats[j*width])
	}
	v.dst, v.off, v.scale = unsafe.Pointer(&t.dst), 0, unsafe.Pointer(&w.p.scale[pn*k.nr])
	for i := range n {
		v.src = unsafe.Pointer(&sc.m[at*w.freqs()*w.block*k.nr+i*width])
		if a.Residual != nil {
			for j, from := range sc.res[i] {
				t.res[j] = unsafe.Add(from, 4*pn*k.nr)
			}
			v.res = unsafe.Pointer(&t.res)
		}
		k.intInverse(v, &sc.edge, live)
		a.Narrow(t.bytes[:16*width], t.floats[:16*width])
		for j, to := range sc.dst[i] {
			copy(unsafe.Slice((*byte)(unsafe.Add(to, pn*k.nr)), live), t.bytes[j*width:])
		}
	}
}

// post hands on the pixels of the tiles, of which channels c0 to c1 are there.
func (w *winograd) post(sc *winogradScratch, first, n, c0, c1 int) {
	s, a := &w.p.s, w.args
	for i := range n {
		plane, o := (first+i)/len(w.tiles), w.tiles[(first+i)%len(w.tiles)]
		for dy := range w.my {
			y, step := o.y+dy*s.DH, 1
			if s.DW == 1 && c1-c0 == s.M { // neighbours: one call
				step = w.mx
			}
			for dx := 0; dx < w.mx; dx += step {
				x := o.x + dx*s.DW
				if y >= s.OH || x >= s.OW {
					continue
				}
				at, size := ((plane*s.OH+y)*s.OW+x)*s.M+c0, (min(step, s.OW-x)-1)*s.M+c1-c0
				var pixels []float32
				if a.Store == nil {
					pixels = a.Y[at : at+size]
				} else {
					pixels = sc.keep[((i*w.my+dy)*w.mx+dx)*s.M+c0:][:size]
				}
				if a.Post != nil {
					a.Post(at, pixels)
				}
				if a.Store != nil {
					a.Store(at, pixels)
				}
			}
		}
	}
}

// transform is what an input transform is called with: n channels of the T x T, or T, pixels at src. Frequency f goes to dst + f step. Whole
// vectors are written; tmp has room for T x T vectors. Kernels change n.
type transform struct {
	src  unsafe.Pointer // *[T * T]unsafe.Pointer
	dst  unsafe.Pointer
	tmp  unsafe.Pointer
	step int
	n    int

	// Kernels that say so in their text fetch the pixels so many bytes behind those of src: the next tile's.
	ahead int

	zero int32 // of pixels of bytes: their zero point
}

// inverse is what an output transform is called with: n channels of the frequencies at src, step bytes apart, give the pixels at dst,
// (T - 2) x (T - 2) of them, or 4 of a line, each off bytes behind its pointer, as those of the residual res, if there is one. The epilogue is that of
// a tile. Kernels change n.
type inverse struct {
	src  unsafe.Pointer
	dst  unsafe.Pointer // *[(T-2) * (T-2)]unsafe.Pointer
	res  unsafe.Pointer // the same, or nil
	init unsafe.Pointer
	tmp  unsafe.Pointer
	step int
	off  int
	n    int
	lo   float32
	hi   float32
	p, q float32
	mode int
	s, t float32

	scale unsafe.Pointer // of integers: factors of the sums
}

// transform runs the kernel for a form of tiles: whole blocks of channels, and the rest with channels before it, which are computed twice. Fewer
// channels than a block go in Go. It may change the pointers of p.
func (k *kernels) transform(p *transform, fm form, n int) {
	f, twin := k.input[fm.ty], inputGo
	if fm.ty == 1 {
		f, twin = k.lineIn[fm.tx], lineInGo
	}
	if f == nil || n < k.block {
		for c := range n {
			twin(p, fm.tx, 4*c)
		}
		return
	}
	rest := n % k.block
	p.n = n - rest
	f(p)
	if rest > 0 {
		last := 4 * (n - k.block)
		src := unsafe.Slice((*unsafe.Pointer)(p.src), fm.freqs())
		for i := range src {
			src[i] = unsafe.Add(src[i], last)
		}
		p.dst, p.n = unsafe.Add(p.dst, last), k.block
		f(p)
	}
}

// inverse is transform for the way back. Where there is a residual, which may lie where the pixels go, nothing is computed twice.
func (k *kernels) inverse(p *inverse, fm form, n int) {
	f, twin := k.output[fm.ty], outputGo
	if fm.ty == 1 {
		f, twin = k.lineOut[fm.tx], lineOutGo
	}
	whole := n - n%k.block
	if f == nil {
		whole = 0
	}
	if whole > 0 {
		p.n = whole
		f(p)
	}
	if whole > 0 && whole < n && p.res == nil {
		src, init, last := p.src, p.init, 4*(n-k.block)
		p.src, p.init, p.off, p.n = unsafe.Add(src, last), unsafe.Add(init, last), p.off+last, k.block
		f(p)
		p.src, p.init, p.off = src, init, p.off-last
		return
	}
	for c := whole; c < n; c++ {
		twin(p, fm.tx, 4*c)
	}
}

// inputGo transforms the channel at some bytes: the definition of the kernels.
func inputGo(p *transform, t, off int) {
	src := unsafe.Slice((*unsafe.Pointer)(p.src), t*t)
	var tmp [36]float32
	var x [6]float32
	for j := range t {
		for i := range t {
			x[i] = *at(src[i*t+j], off)
		}
		forward(&x, t)
		for i := range t {
			tmp[i*t+j] = x[i]
		}
	}
	for i := range t {
		copy(x[:t], tmp[i*t:])
		forward(&x, t)
		for j := range t {
			*at(p.dst, (i*t+j)*p.step+off) = x[j]
		}
	}
}

// lineInGo transforms the channel at some bytes of a line.
func lineInGo(p *transform, t, off int) {
	src := unsafe.Slice((*unsafe.Pointer)(p.src), t)
	var x [8]float32
	for i := range t {
		x[i] = *at(src[i], off)
	}
	if t == 6 {
		forward((*[6]float32)(x[:]), t)
	} else {
		x = forward8(&x)
	}
	for i := range t {
		*at(p.dst, i*p.step+off) = x[i]
	}
}

func forward8(x *[8]float32) [8]float32 {
	const all = 1./4 + 1 + 4
	pair := func(sum, product, point float32) (float32, float32) {
		even, odd := x[6]-sum*x[4]+product*x[2], x[5]-sum*x[3]+product*x[1]
		return even + point*odd, even - point*odd
	}
	var z [8]float32
	z[0], z[7] = x[6]-all*x[4]+all*x[2]-x[0], x[7]-all*x[5]+all*x[3]-x[1]
	z[1], z[2] = pair(1+4, 4, 1./2)
	z[3], z[4] = pair(1./4+4, 1, 1)
	z[5], z[6] = pair(1./4+1, 1./4, 2)
	return z
}

// lineOutGo transforms the channel at some bytes back to four pixels of a line.
func lineOutGo(p *inverse, t, off int) {
	dst := unsafe.Slice((*unsafe.Pointer)(p.dst), 4)
	var x [8]float32
	for i := range t {
		x[i] = *at(p.src, i*p.step+off)
	}
	if t == 6 {
		backward((*[6]float32)(x[:]), t)
	} else {
		a, b, c := x[1]+x[2], x[3]+x[4], x[5]+x[6]
		d, e, f := x[1]-x[2], x[3]-x[4], x[5]-x[6]
		x[0], x[1], x[2], x[3] = x[0]+a+b+c, d/2+e+2*f, a/4+b+4*c, x[7]+d/8+e+8*f
	}
	for i := range 4 {
		v := x[i] + *at(p.init, off)
		if p.res != nil {
			v += *at(unsafe.Slice((*unsafe.Pointer)(p.res), 4)[i], p.off+off)
		}
		*at(dst[i], p.off+off) = finish(v, p.lo, p.hi, p.p, p.q, p.mode, p.s, p.t)
	}
}

// forward transforms t values in place.
func forward(x *[6]float32, t int) {
	if t == 4 {
		x[0], x[1], x[2], x[3] = x[0]-x[2], x[1]+x[2], x[2]-x[1], x[3]-x[1]
		return
	}
	const (
		sum     = pointA2 + pointB2
		product = pointA2 * pointB2
	)
	z0 := x[4] - sum*x[2] + product*x[0]
	z5 := x[5] - sum*x[3] + product*x[1]
	e, o := x[4]-pointB2*x[2], x[3]-pointB2*x[1]
	g, u := x[4]-pointA2*x[2], x[3]-pointA2*x[1]
	*x = [6]float32{z0, e + pointA*o, e - pointA*o, g + pointB*u, g - pointB*u, z5}
}

// outputGo transforms the channel at some bytes back: the definition of the kernels.
func outputGo(p *inverse, t, off int) {
	m := t - 2
	dst := unsafe.Slice((*unsafe.Pointer)(p.dst), m*m)
	var tmp [24]float32
	for j := range t {
		var x [6]float32
		for i := range t {
			x[i] = *at(p.src, (i*t+j)*p.step+off)
		}
		backward(&x, t)
		for i := range m {
			tmp[i*t+j] = x[i]
		}
	}
	for i := range m {
		var x [6]float32
		copy(x[:t], tmp[i*t:])
		backward(&x, t)
		for j := range m {
			v := x[j] + *at(p.init, off)
			if p.res != nil {
				v += *at(unsafe.Slice((*unsafe.Pointer)(p.res), m*m)[i*m+j], p.off+off)
			}
			*at(dst[i*m+j], p.off+off) = finish(v, p.lo, p.hi, p.p, p.q, p.mode, p.s, p.t)
		}
	}
}

// backward transforms t values to t - 2 in place.
func backward(x *[6]float32, t int) {
	if t == 4 {
		x[0], x[1] = x[0]+x[1]+x[2], x[1]-x[2]+x[3]
		return
	}
	sa, da, sb, db := x[1]+x[2], x[1]-x[2], x[3]+x[4], x[3]-x[4]
	*x = [6]float32{x[0] + sa + sb, pointA*da + pointB*db, pointA2*sa + pointB2*sb, x[5] + pointA2*pointA*da + pointB2*pointB*db}
}
