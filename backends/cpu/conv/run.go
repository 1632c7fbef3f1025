package conv

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
)

// Run computes.
func (p *Plan) Run(a *Args) {
	s := &p.s
	if s.planes() == 0 || s.OH == 0 || s.OW == 0 {
		return
	}
	if p.blocks != nil && a.Store == nil && a.Residual == nil {
		p.blocks.run(a)
		return
	}
	p.args, p.narrow = a, a.Bytes != nil && p.k.narrows && p.win == nil && a.Post == nil
	if p.dw != nil {
		p.dw.run(a)
		p.args = nil
		return
	}
	mg := s.M / s.Groups
	stride := len(p.init) / s.Groups
	for g := range s.Groups {
		if a.Bias != nil {
			copy(p.init[g*stride:], a.Bias[g*mg:(g+1)*mg])
		} else {
			clear(p.init[g*stride : g*stride+mg])
		}
		for i := range p.scale[:min(len(p.scale), mg)] {
			v := float32(1)
			if a.Scale != nil {
				v = a.Scale[g*mg+i]
			}
			p.scale[g*stride+i] = v
		}
	}
	if p.win != nil {
		p.win.run(a)
		p.args = nil
		return
	}
	for i := range p.works {
		p.cur = &p.works[i]
		n := p.jobs()
		for len(p.workers) < par.Workers(p.threads, n) {
			p.workers = append(p.workers, scratch{})
		}
		par.Run(p.threads, n, p)
	}
	if b := p.bare; b != nil {
		for len(p.workers) < par.Workers(p.threads, b.jobs) {
			p.workers = append(p.workers, scratch{})
		}
		par.Run(p.threads, b.jobs, b)
	}
	p.args = nil
}

// jobs returns the number of jobs of the current work. With several cuts of the panels, each job does one.
func (p *Plan) jobs() int {
	w := p.cur
	n := w.planesOf(&p.s) * w.blocks
	if p.split() {
		n *= w.cuts
	}
	return n
}

// split reports whether cuts of the panels are jobs of their own, instead of a loop in each.
func (p *Plan) split() bool {
	w := p.cur
	return w.cuts > 1 && w.planesOf(&p.s)*w.blocks < 2*par.Workers(p.threads, 1<<30) && p.args.Post == nil && p.direct()
}

// direct reports whether kernels store results where they belong, so that no pixel waits for all of its channels.
func (p *Plan) direct() bool { return p.args.Store == nil || p.narrow }

// Do computes one job: a block of rows of an image.
func (p *Plan) Do(worker, job int) {
	a := p.args
	if a.Stop != nil && a.Stop() {
		return
	}
	w, s := p.cur, &p.s
	cuts := w.cuts
	direct := p.direct()
	if !direct { // a pixel leaves when all of its channels are there
		cuts = 1
	}
	cut0, cut1 := 0, cuts
	if p.split() {
		cut0 = job % w.cuts
		cut1 = cut0 + 1
		job /= w.cuts
	}
	block, plane := job%w.blocks, job/w.blocks
	image, plane := plane/w.planes, plane%w.planes
	sc := &p.workers[worker]
	mg, cg := s.M/s.Groups, s.C/s.Groups
	panelsAll := ceilDiv(mg, p.k.nr)

	t := &sc.t
	t.offs, t.segs, t.k = unsafe.Pointer(unsafe.SliceData(w.offs)), len(w.offs), w.steps
	t.lo, t.hi, t.p, t.q, t.mode, t.s, t.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	if a.Raw {
		t.mode = raw
	}
	size, loads := p.k.kind.size(), p.loads()
	depth := s.Depth.or(one)
	sz, sy, sx, oz, oy, ox, stepZ, stepY, stepX := depth.Stride, s.SH, s.SW, 0, 0, 0, 1, 1, 1
	if s.Transposed {
		sz, sy, sx, oz, oy, ox, stepZ, stepY, stepX = 1, 1, 1, w.ph.oz, w.ph.oy, w.ph.ox, depth.Stride, s.SH, s.SW
	}
	from, to := image*depth.In+plane*sz+w.dzMin, image*depth.Out+oz+plane*stepZ // of all planes
	t.ars = sx * s.C * size
	switch {
	case w.gathered:
		t.ars = w.line / w.cols * size
	case w.flat:
		t.ars = w.pitch * size
	}

	t.narrow = 0
	if p.narrow {
		q := &a.Quant
		t.narrow, t.qscale, t.qlo, t.qhi, t.qzero = 1, q.Scale, float32(q.Low-q.Zero), float32(q.High-q.Zero), q.Zero
	}
	if !direct { // a tile is finished outside Y
		sc.need(&sc.out, p.k.mr*p.stored()*s.M)
	}
	if !p.k.masks {
		sc.need(&sc.edge, 2*p.k.mr*p.k.nr)
	}
	first, last := block*w.block, min((block+1)*w.block, w.rows)
	if w.flat {
		first, last = 0, 1
	}
	var base unsafe.Pointer // of the pixel at row 0, column 0 of the block
	switch {
	case w.patches:
		base = p.patch(sc, block)
	case w.gathered:
		base = p.gather(sc, image, plane*sz, first, last, sy, sx)
	case w.copied:
		base = p.copyRows(sc, image, plane*sz+w.dzMin, first, last, sy)
	case loads:
		base = p.loadRows(sc, worker, from, block, first, last, sy)
	default:
		base = p.pixels(from * s.H * s.W * s.C)
	}
	for cut := cut0; cut < cut1; cut++ {
		p0, p1 := cut*w.panels, min((cut+1)*w.panels, panelsAll)
		if cuts == 1 {
			p1 = panelsAll
		}
		for row := first; row < last; row++ {
			c0, c1 := 0, w.cols
			if w.flat {
				c0, c1 = block*w.block, min((block+1)*w.block, w.cols)
			}
			strips := ceilDiv(c1-c0, w.mr)
			low, rem := (c1-c0)/strips, (c1-c0)%strips
			col := c0
			for st := 0; st < strips; {
				h, count := low, strips-st
				if st < rem {
					h, count = low+1, rem-st
				}
				count = min(count, w.strips)
				if !direct {
					count = min(count, p.stored())
				}
				var at int
				switch {
				case w.gathered:
					at = (row-first)*len(w.ph.segs)*w.line + col*(w.line/w.cols)
				case w.copied:
					at = ((row-first)*sy*w.width + col*sx) * s.C
				case loads && w.flat:
					at = (col - c0) * w.pitch
				case loads:
					at = ((row-first)*sy*w.width + col*sx) * s.C
				default:
					at = (row*sy*w.width + col*sx) * s.C
				}
				pixel := (to*s.OH+oy+row*stepY)*s.OW + ox + col*stepX
				for g := range s.Groups {
					t.a = unsafe.Add(base, (at+g*cg)*size)
					p.panels(sc, g, p0, p1, h, count, pixel, stepX, (row-first)*strips+st)
				}
				if (a.Post != nil || !direct) && cut == cuts-1 {
					p.post(sc, h*count, pixel, stepX)
				}
				col += h * count
				st += count
			}
		}
	}
}

// panels runs count strips of h pixels, from the strip-th of a job on, against panels of a group.
func (p *Plan) panels(sc *scratch, g, p0, p1, h, count, pixel, stepX, strip int) {
	a, s, w, k := p.args, &p.s, p.cur, p.k
	t := &sc.t
	mg := s.M / s.Groups
	size := k.line() * w.ph.steps * len(w.ph.segs)
	stride := len(p.init) / s.Groups
	// The panels of the next cut lie behind these: a half with each of two strips, when those of this one have come.
	ahead := 0
	if strip == 1 || strip == 2 {
		ahead = (p1-p0)*size*4 + (strip-1)*size*2
	}
	pixels := t.a
	t.stepA = h * t.ars
	for pn := p0; pn < p1; pn++ {
		live := min(mg-pn*k.nr, k.nr)
		ch := g*mg + pn*k.nr
		t.a, t.count = pixels, count
		t.b = unsafe.Pointer(&p.f.data[w.ph.b+g*w.ph.group+pn*size])
		t.ahead = uintptr(t.b) + uintptr(ahead)
		if k.kind.integer() && (count > 1 || pn == p1-1) { // the next pixels
			t.ahead = uintptr(pixels) + uintptr(t.stepA)
		}
		t.init = unsafe.Pointer(&p.init[g*stride+pn*k.nr])
		if k.kind != kindF32 {
			t.scale, t.extra = unsafe.Pointer(&p.scale[g*stride+pn*k.nr]), unsafe.Pointer(&p.extra[g*stride+pn*k.nr])
		}
		t.cols = live
		t.res = nil
		if a.Residual != nil {
			t.res, t.ldr = unsafe.Pointer(&a.Residual[pixel*s.M+ch]), stepX*s.M*4
		}
		switch {
		case p.narrow:
			t.c, t.ldc = unsafe.Pointer(&a.Bytes[pixel*s.M+ch]), stepX*s.M
		case a.Store == nil:
			t.c, t.ldc = unsafe.Pointer(&a.Y[pixel*s.M+ch]), stepX*s.M*4
		default:
			t.c, t.ldc = unsafe.Pointer(&sc.out[ch]), s.M*4
		}
		t.stepC, t.stepR = h*t.ldc, h*t.ldr
		f := k.wide[h]
		if k.half != nil && live <= k.nr/2 {
			f = k.half[h]
		}
		if k.masks || live == k.nr {
			f(t)
			continue
		}
		c, res := t.c, t.res
		t.count = 1
		for i := range count {
			t.a, t.c = unsafe.Add(pixels, i*t.stepA), unsafe.Add(c, i*t.stepC)
			if res != nil {
				t.res = unsafe.Add(res, i*t.stepR)
			}
			p.edge(sc, f, h, live)
		}
	}
}

// stored returns how many strips are computed at most before Store takes their pixels.
func (p *Plan) stored() int {
	const floats = 4 << 10 // of the pixels: they stay in L1
	if !p.k.strips {
		return 1
	}
	return max(floats/(p.k.mr*p.s.M), 1)
}

// edge runs a kernel that knows no short panels, by way of scratch memory.
func (p *Plan) edge(sc *scratch, f func(*tile), h, live int) {
	t := &sc.t
	nr := p.k.nr
	c, ldc, res, ldr := t.c, t.ldc, t.res, t.ldr
	size := 4 // bytes of a result
	if p.narrow {
		size = 1
	}
	t.c, t.ldc = unsafe.Pointer(&sc.edge[0]), nr*size
	if res != nil {
		from := sc.edge[p.k.mr*nr:]
		for i := range h {
			copy(from[i*nr:], unsafe.Slice((*float32)(unsafe.Add(res, i*ldr)), live))
		}
		t.res, t.ldr = unsafe.Pointer(&from[0]), nr*4
	}
	f(t)
	for i := range h {
		copy(unsafe.Slice((*byte)(unsafe.Add(c, i*ldc)), live*size), unsafe.Slice((*byte)(unsafe.Add(t.c, i*t.ldc)), live*size))
	}
	t.ldc, t.ldr = ldc, ldr
}

// post finishes the pixels of a strip.
func (p *Plan) post(sc *scratch, h, pixel, stepX int) {
	a, m := p.args, p.s.M
	count, size := h, m
	if stepX == 1 { // neighbours: one call
		count, size = 1, h*m
	}
	for i := range count {
		at := (pixel + i*stepX) * m
		if a.Store == nil {
			a.Post(at, a.Y[at:at+size])
			continue
		}
		row := sc.out[i*size : (i+1)*size]
		if a.Post != nil {
			a.Post(at, row)
		}
		a.Store(at, row)
	}
}
