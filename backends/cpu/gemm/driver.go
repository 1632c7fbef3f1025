package gemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
)

// product is one matrix product on its way: what the caller asked for, how it is cut, and where the packed parts lie. It lives
// in a Workspace, so that a call allocates nothing.
type product struct {
	kern *kernel
	kn   *knobs

	m, n, k int
	threads int // workers at most
	a, b, c Matrix
	pb      *PackedB
	pa      *PackedA
	acc     bool

	// the current part: rows m0 to m0+mp, columns n0 to n0+np, k from k0 to k0+kp
	m0, n0, k0 int
	mp, np, kp int

	bl           blocking
	strips       int
	low, rem     int // the first rem strips have low+1 rows, the others low
	panels, tail int // panels of the part, columns of the last one
	gn           int // blocks of C side by side

	packA, packB, packTail bool
	aPacked, bPacked       unsafe.Pointer
	packing                bool // the phase: packing or computing
	aItems                 int

	workers []worker
}

// worker is what one worker owns. Workers write their kargs all the time, so each has cache lines of its own.
type worker struct {
	args kargs
	_    [128 - unsafe.Sizeof(kargs{})%64]byte
}

// strip returns the first row and the height of strip s of the part.
func (p *product) strip(s int) (row, h int) {
	if s < p.rem {
		return s * (p.low + 1), p.low + 1
	}
	return s*p.low + p.rem, p.low
}

// cutRows divides rows into strips of nearly equal height: a rest of one or two rows would run at a fraction of the speed.
func (p *product) cutRows(rows int) {
	p.strips = ceilDiv(rows, p.kern.mr)
	p.low, p.rem = rows/p.strips, rows%p.strips
}

// run computes the product; shapes are checked, nothing is empty and k is not 0.
func (p *product) run(w *Workspace) error {
	kern, kn := p.kern, p.kn
	nr := kern.b.nr
	in := cpuinfo.Get()

	p.choosePacking(in)
	mS, nS, kS := p.m, p.n, p.k
	esize := 4
	limit := kn.packLimit / esize
	// Parts: rows and columns are divided first where that repeats no packing, k where both operands are packed.
	if p.packA && p.packB && (p.m > limit/p.k || p.n > limit/p.k) {
		kS = max(limit/max(p.m, p.n), 2*kn.kcMax)
		kS = min(p.k, roundUp(ceilDiv(p.k, ceilDiv(p.k, kS)), 16))
	}
	if p.packA && p.m > limit/kS {
		mS = max(roundUp(limit/kS, kern.mr), kern.mr)
		mS = ceilDiv(p.m, ceilDiv(p.m, mS))
	}
	if p.packB && p.n > limit/kS {
		nS = max(limit/kS/nr, 1) * nr
	}

	var l layout
	aOff, bOff := 0, 0
	if p.packA {
		aOff = l.region(mS, kS, 4)
	}
	if p.packB {
		bOff = l.region(ceilDiv(nS, nr), nr, kS, 4)
	} else if p.packTail {
		bOff = l.region(nr, kS, 4)
	}
	if l.bad {
		return errTooLarge(p.m, p.n, p.k)
	}
	if err := w.reserve(l.size); err != nil {
		return err
	}
	if l.size > 0 {
		p.aPacked, p.bPacked = w.at(aOff), w.at(bOff)
	}

	for p.n0 = 0; p.n0 < p.n; p.n0 += nS {
		p.np = min(nS, p.n-p.n0)
		for p.k0 = 0; p.k0 < p.k; p.k0 += kS {
			p.kp = min(kS, p.k-p.k0)
			for p.m0 = 0; p.m0 < p.m; p.m0 += mS {
				p.mp = min(mS, p.m-p.m0)
				p.part(in, p.m0 == 0)
			}
		}
	}
	return nil
}

// part packs what is to be packed and computes one part; newB says whether B has changed since the last one.
func (p *product) part(in *cpuinfo.Info, newB bool) {
	nr := p.kern.b.nr
	p.cutRows(p.mp)
	p.panels = ceilDiv(p.np, nr)
	p.tail = p.np - (p.panels-1)*nr
	workers := p.threads
	if workers > 1 {
		// Work in multiply-adds; a low product is bound by reading B, an element of which costs as much as about four.
		work := float64(p.np) * float64(p.kp) * (float64(p.mp) + 4)
		workers = int(min(float64(workers), max(work/float64(p.kn.macsPerWorker), 1)))
	}
	p.bl = block(in, p.kn, p.kern, min(p.low+1, p.mp), p.strips, p.kp, p.panels, workers)
	p.gn = ceilDiv(p.panels, p.bl.nc)
	jobs := p.gn * ceilDiv(p.strips, p.bl.mc)

	p.aItems = 0
	items := 0
	if p.packA {
		p.aItems = p.strips
		items = p.strips
	}
	if newB {
		if p.packB {
			items += p.panels
		} else if p.packTail && p.tail < nr {
			items++
		}
	}
	if n := par.Workers(workers, max(jobs, items)); n > len(p.workers) {
		p.workers = make([]worker, n)
	}
	if items > 0 {
		p.packing = true
		par.Run(workers, items, p)
	}
	p.packing = false
	par.Run(workers, jobs, p)
}

// choosePacking decides which operands are copied.
func (p *product) choosePacking(in *cpuinfo.Info) {
	nr := p.kern.b.nr
	p.packA, p.packB, p.packTail = false, false, false
	if p.pb == nil {
		// B in place needs vectors along its rows; a short last panel is copied alone, because kernels read whole panels.
		p.packB = p.b.ColStride != 1 || p.m >= p.kn.bPackRows
		p.packTail = !p.packB && p.n%nr != 0
	}
	if p.pa == nil {
		p.packA = p.kern.packedA || p.wantPackedA(in)
	}
}

// wantPackedA says whether copying A pays. A kernel reads A from any strides, so it is a matter of caches only.
func (p *product) wantPackedA(in *cpuinfo.Info) bool {
	panels := ceilDiv(p.n, p.kern.b.nr)
	kc := min(p.k, p.kn.kcMax)
	if p.a.ColStride == 1 || p.a.ColStride < p.a.RowStride {
		if panels < p.kn.aPackReuse {
			return false
		}
		// The rows of a strip compete for the sets of L1 when their distance is a multiple of a large power of two.
		const period = 4096 // bytes after which sets repeat, for all L1 caches of 64 sets
		pitch := p.a.RowStride * 4
		gap := pitch & -pitch // largest power of two that divides it
		if gap == 0 || gap >= period {
			gap = period
		}
		rows := min(p.m, p.kern.mr)
		ways := rows * ceilDiv(kc*p.a.ColStride*4, gap) * gap / period
		return ways > in.L1DWays*2/3
	}
	// The three gates of a column-major A: each step a new page, more of them than stay cached, and enough reuse.
	pitch := p.a.ColStride * 4
	return pitch >= p.kn.aPackStride && pitch > p.kn.aPackSpan/kc && panels >= p.kn.aPackPanels
}

// Do runs one item of the packing phase or one block of the computing phase.
func (p *product) Do(worker, job int) {
	if !p.packing {
		p.compute(&p.workers[worker], job)
		return
	}
	if job < p.aItems {
		p.packStrip(job)
		return
	}
	panel := job - p.aItems
	dst := p.bPacked
	if p.packB {
		dst = unsafe.Add(dst, panel*p.panelBytes())
	} else {
		panel = p.panels - 1
	}
	packBPanel(dst, &p.b, p.kern.b, p.n0+panel*p.kern.b.nr, p.k0, p.kp)
}

// panelBytes is the size of a panel that this call packs.
func (p *product) panelBytes() int {
	return ceilDiv(p.kp, p.kern.b.kr) * p.kern.b.step()
}

// packStrip packs one strip of A: for each step the h groups of its rows.
func (p *product) packStrip(s int) {
	row, h := p.strip(s)
	dst := unsafe.Add(p.aPacked, row*p.kp*4)
	packPanel[uint32](dst, p.a.at(p.m0+row, p.k0), p.a.RowStride, p.a.ColStride, h, h, p.kp, 1, 0)
}

// packBPanel packs the panel of B that starts at column j, for depth values of k from k0 on.
func packBPanel(dst unsafe.Pointer, b *Matrix, f format, j, k0, depth int) {
	live := min(f.nr, b.Cols-j)
	src := b.at(k0, j)
	switch b.typ.Size() {
	case 4:
		packPanel[uint32](dst, src, b.ColStride, b.RowStride, live, f.nr, depth, f.kr, 0)
	case 2:
		packPanel[uint16](dst, src, b.ColStride, b.RowStride, live, f.nr, depth, f.kr, 0)
	default:
		packPanel[uint8](dst, src, b.ColStride, b.RowStride, live, f.nr, depth, f.kr, 0)
	}
}

// compute does one block of C for all of k in the part.
func (p *product) compute(w *worker, job int) {
	kern := p.kern
	nr := kern.b.nr
	s0 := job / p.gn * p.bl.mc
	s1 := min(s0+p.bl.mc, p.strips)
	p0 := job % p.gn * p.bl.nc
	p1 := min(p0+p.bl.nc, p.panels)
	args := &w.args
	args.ldc = p.c.RowStride * 4

	tail := nr
	if p1 == p.panels {
		tail = p.tail
	}
	for t0 := 0; t0 < p.kp; t0 += p.bl.kc {
		kc := min(p.bl.kc, p.kp-t0)
		acc := 0
		if p.acc || p.k0+t0 > 0 {
			acc = 1
		}
		for s := s0; s < s1; s++ {
			row, h := p.strip(s)
			args.k, args.acc = kc, acc
			args.a, args.ars, args.acs = p.addrA(row, h, t0)
			args.c = p.c.at(p.m0+row, p.n0+p0*nr)
			p.sweep(args, h, p0, p1, t0, tail)
		}
	}
}

// addrA returns where strip rows from row on start at step t0, and the strides.
func (p *product) addrA(row, h, t0 int) (a unsafe.Pointer, ars, acs int) {
	switch {
	case p.pa != nil:
		return p.pa.addr(p.m0+row, h, p.k0+t0)
	case p.packA:
		return unsafe.Add(p.aPacked, (row*p.kp+t0*h)*4), 4, 4 * h
	}
	return p.a.at(p.m0+row, p.k0+t0), p.a.RowStride * 4, p.a.ColStride * 4
}

// sweep runs the kernel for one strip over the panels p0 to p1.
func (p *product) sweep(args *kargs, h, p0, p1, t0, tail int) {
	f := p.kern.b
	switch {
	case p.pb != nil:
		args.bks, args.bps = f.step(), p.pb.stride
		args.b = p.pb.addr(p.n0/f.nr+p0, p.k0+t0)
		p.kern.run(args, h, p1-p0, tail)
	case p.packB:
		args.bks, args.bps = f.step(), p.panelBytes()
		args.b = unsafe.Add(p.bPacked, p0*args.bps+t0/f.kr*args.bks)
		p.kern.run(args, h, p1-p0, tail)
	default:
		args.bks, args.bps = p.b.RowStride*4, f.nr*4
		whole, c := p1-p0, args.c
		if tail < f.nr {
			whole--
		}
		if whole > 0 {
			args.b = p.b.at(p.k0+t0, p.n0+p0*f.nr)
			p.kern.run(args, h, whole, f.nr)
		}
		if tail < f.nr {
			args.c = unsafe.Add(c, whole*f.nr*4)
			args.bks = f.step()
			args.b = unsafe.Add(p.bPacked, t0/f.kr*args.bks)
			p.kern.run(args, h, 1, tail)
		}
	}
}
