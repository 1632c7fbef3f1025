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
	p.setChannels(a)
	if p.win != nil {
		p.win.run(a)
		p.args = nil
		return
	}
	for i := range p.works {
		p.cur = &p.works[i]
		p.each(p.jobs(), p)
	}
	if b := p.bare; b != nil {
		p.each(b.jobs, b)
	}
	p.args = nil
}

// setChannels lays bias and factors out as the panels are.
func (p *Plan) setChannels(a *Args) {
	s := &p.s
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
}

// each runs n jobs, and has scratch memory for every worker.
func (p *Plan) each(n int, jobs par.Task) {
	for len(p.workers) < par.Workers(p.threads, n) {
		p.workers = append(p.workers, scratch{})
	}
	par.Run(p.threads, n, jobs)
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

// part is what a job computes: a block of rows of a plane (of pixels, where they are one row), by some cuts of the panels.
type part struct {
	image       int
	z           int            // plane of the image that a tap without distance reads
	plane       int            // of all results
	first, last int            // rows
	c0, c1      int            // columns
	cut0, cut1  int            // of the panels
	whole       bool           // one cut has all panels
	base        unsafe.Pointer // of what pixel c0 of the first row reads
}

// Do computes one job: a block of rows of an image.
func (p *Plan) Do(worker, job int) {
	if a := p.args; a.Stop != nil && a.Stop() {
		return
	}
	sc := &p.workers[worker]
	b := p.part(job)
	p.setTile(&sc.t)
	p.reserve(sc)
	b.base = p.source(sc, worker, &b)
	for cut := b.cut0; cut < b.cut1; cut++ {
		for row := b.first; row < b.last; row++ {
			p.pixelRow(sc, &b, cut, row)
		}
	}
}

// part returns what a job computes, but for the base.
func (p *Plan) part(job int) part {
	w, s := p.cur, &p.s
	var b part
	// Where kernels do not store, a pixel leaves when all of its channels are there.
	b.whole = w.cuts == 1 || !p.direct()
	if b.cut1 = w.cuts; b.whole {
		b.cut1 = 1
	}
	if p.split() {
		b.cut0 = job % w.cuts
		b.cut1 = b.cut0 + 1
		job /= w.cuts
	}
	block, plane := job%w.blocks, job/w.blocks
	b.image, plane = plane/w.planes, plane%w.planes
	b.z, b.plane = plane*w.in.z, b.image*s.Depth.or(one).Out+w.ph.oz+plane*w.out.z
	from := block * w.block
	if w.flat {
		b.last, b.c0, b.c1 = 1, from, min(from+w.block, w.cols)
	} else {
		b.first, b.last, b.c1 = from, min(from+w.block, w.rows), w.cols
	}
	return b
}

// setTile sets what all tiles of a job have in common.
func (p *Plan) setTile(t *tile) {
	a, w := p.args, p.cur
	t.offs, t.segs, t.k = unsafe.Pointer(unsafe.SliceData(w.offs)), len(w.offs), w.steps
	t.ars = w.pitch * p.k.kind.size()
	t.lo, t.hi, t.p, t.q, t.mode, t.s, t.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	if a.Raw {
		t.mode = raw
	}
	t.narrow = 0
	if p.narrow {
		q := &a.Quant
		t.narrow, t.qscale, t.qlo, t.qhi, t.qzero = 1, q.Scale, float32(q.Low-q.Zero), float32(q.High-q.Zero), q.Zero
		if q.Scale > 0 && t.lo*q.Scale <= t.qlo && t.hi*q.Scale >= t.qhi {
			t.narrow = narrowLimits
		}
	}
}

// reserve makes scratch memory for tiles that are not stored where they belong.
func (p *Plan) reserve(sc *scratch) {
	if !p.direct() { // a tile is finished outside Y
		sc.need(&sc.out, p.k.mr*p.stored()*p.s.M)
	}
	if !p.k.masks {
		sc.need(&sc.edge, 2*p.k.mr*p.k.nr)
	}
}

// pixelRow computes a row of a part by the panels of a cut, in strips of nearly equal heights.
func (p *Plan) pixelRow(sc *scratch, b *part, cut, row int) {
	a, w, s, size := p.args, p.cur, &p.s, p.k.kind.size()
	cg, panels := s.C/s.Groups, ceilDiv(s.M/s.Groups, p.k.nr)
	p0, p1 := cut*w.panels, min((cut+1)*w.panels, panels)
	if b.whole {
		p1 = panels
	}
	most := w.strips // of a call
	if !p.direct() {
		most = min(most, p.stored())
	}
	post := (a.Post != nil || !p.direct()) && p1 == panels
	strips := ceilDiv(b.c1-b.c0, w.mr)
	low, rem := (b.c1-b.c0)/strips, (b.c1-b.c0)%strips
	col := b.c0
	for st := 0; st < strips; {
		h, count := low, strips-st
		if st < rem {
			h, count = low+1, rem-st
		}
		count = min(count, most)
		at := (row-b.first)*w.rowPitch + (col-b.c0)*w.pitch
		pixel := (b.plane*s.OH+w.ph.oy+row*w.out.y)*s.OW + w.ph.ox + col*w.out.x
		for g := range s.Groups {
			sc.t.a = unsafe.Add(b.base, (at+g*cg)*size)
			p.panels(sc, g, p0, p1, h, count, pixel, w.out.x, (row-b.first)*strips+st)
		}
		if post {
			p.post(sc, h*count, pixel, w.out.x)
		}
		col += h * count
		st += count
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
