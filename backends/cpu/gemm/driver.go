package gemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/internal/tile"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/par"
)

// product is one matrix product on its way: what the caller asked for, how it is cut, and where the packed parts lie. It lives
// in a Workspace, so that a call allocates nothing.
type product struct {
	engine    engine // of the last call, and what it was chosen by
	engineKey engineKey
	last      plan

	kern *kernel
	bf   format // in which B is packed; when the kernel reads another one, chunks are widened
	kn   *knobs
	vec  *vecOps

	m, n, k     int
	threads     int // workers at most
	a, b, c     Matrix
	pb          *PackedB
	pa          *PackedA
	acc         bool
	epi         *Epilogue
	alpha, beta float32
	scaled      bool // alpha and beta count
	aZero       int32

	// the current part: rows m0 to m0+mp, columns n0 to n0+np, k from k0 to k0+kp
	m0, n0, k0 int
	mp, np, kp int

	bl           blocking
	height       int // rows of a strip at most
	strips       int
	low, rem     int  // the first rem strips have low+unit rows, the others low
	unit, short  int  // 1, or the rows of a tile, of which the last strip lacks short
	panels, tail int  // panels of the part, columns of the last one
	gm, gn       int  // blocks of C one below the other and side by side
	near         bool // the product is one block, and small: nothing is fetched ahead

	packA, packB, packTail bool
	byPanel, copyA         bool // panels stay in L1 and strips pass by; blocks of A are copied
	once                   bool // all strips are one block of A, which meets each chunk of B once
	localA, localB         bool // workers copy strips of A, or pack panels of B, just before they use them
	packRows               bool // strips pack the rows of the panel that follows
	axpy                   bool // one row against a row-major B
	pairs                  bool // low strips take panels in pairs
	pairsInPlace           bool // also those of a B in place
	streams                bool // B comes from memory, for one low strip
	far                    int  // how far ahead in bytes that asks for B
	widen                  bool // chunks of B are widened to what the kernel reads
	scratch                bool // sums go to scratch memory and from there to C
	aPacked, bPacked       unsafe.Pointer
	sums, rowInit          unsafe.Pointer // int8: column sums of B, what the rows of A start from
	private                unsafe.Pointer // scratch of worker 0; the others follow
	privateStep            int
	widenBytes, stripBytes int  // parts of it, before the scratch for sums
	front                  int  // bytes at the start of the workspace that hold a widened or signed A
	packing                bool // the phase: packing or computing
	aItems, bItems         int

	workers []worker
}

// worker is what one worker owns. Workers write their kargs all the time, so each has cache lines of its own.
type worker struct {
	args  kargs
	lead  [8]float32 // elements of A that one call of axpy takes
	inner innerStrips
	block innerBlock
	packs [2]int // copies of strips of A and of chunks of B
	hold  [2*holdBytes + 192]byte
	_     [320 - unsafe.Sizeof(kargs{})]byte
}

// forget drops the addresses of operands, which would keep them in memory as long as the workspace lives.
func (w *worker) forget() {
	args := &w.args
	args.a, args.b, args.c, args.c2, args.comp, args.rows = nil, nil, nil, nil, nil, nil
	w.block.c = nil
}

// strip returns the first row and the height of strip s of the part.
func (p *product) strip(s int) (row, h int) {
	row, h = s*p.low+min(s, p.rem)*p.unit, p.low
	if s < p.rem {
		h += p.unit
	}
	if s == p.strips-1 {
		h -= p.short
	}
	return row, h
}

// tallest bounds the height of a strip of the part.
func (p *product) tallest() int {
	if p.unit > 1 {
		return min(p.low+p.unit, p.mp, p.height)
	}
	return min(p.low+1, p.mp)
}

// packedRow returns how many rows lie before strip s in packed A, padding included.
func (p *product) packedRow(s int) int {
	if p.kern.tile > 0 {
		return s*p.low + min(s, p.rem)*p.unit
	}
	if s <= p.rem {
		return s * stepRows(p.low+1)
	}
	return p.rem*stepRows(p.low+1) + (s-p.rem)*stepRows(p.low)
}

// cutRows divides rows into strips of nearly equal height: a rest of one or two rows would run at a fraction of the speed. A tile of few rows
// takes about as long as a whole one, so strips of tiles have whole ones but for the last.
func (p *product) cutRows(rows int) {
	p.unit = 1
	if p.kern.tile > 0 {
		p.unit = tile.Rows
	}
	units := ceilDiv(rows, p.unit)
	p.short = units*p.unit - rows
	p.strips = ceilDiv(units, p.height/p.unit)
	p.low, p.rem = units/p.strips*p.unit, units%p.strips
}

// regions says how a product is cut into parts, and where a workspace has what: offsets in bytes.
type regions struct {
	layout
	whole                  bool // one block that reads its operands where they lie
	mS, nS, kS             int  // of a part
	a, b, sum, row, worker int
}

// lay decides what is packed, the parts and the regions. It reads no element.
func (p *product) lay(in *cpuinfo.Info) (l regions) {
	kern, kn := p.kern, p.kn
	nr, kr := kern.b.nr, kern.a.kr

	// A few rows of bf16 or f16 become f32 first; the rest of the call then reads them in place.
	p.front = 0
	if (p.a.typ == BF16 || p.a.typ == F16) && kern.a == aF32 && p.pa == nil && p.a.ColStride == 1 && p.m <= kn.lowRows {
		l.region(p.m, p.k, 4)
		if l.bad {
			return l
		}
		p.front = l.size
		p.a = Matrix{Rows: p.m, Cols: p.k, RowStride: p.k, ColStride: 1, typ: F32}
	}
	p.choosePacking(in)
	if p.flipSmall(in, &l); l.bad {
		return l
	}
	if p.pa == nil && !p.packA && !p.localA && kern.tile == 0 && p.rowsConflict(in) {
		// As many rows as leave their sets room for lines of B and C; the multiply-adds of fewer rows still fill the pipes.
		rows := kn.conflictRows
		if rows == 0 {
			rows = max(in.L1DWays-2, 4)
		}
		p.height = min(p.height, rows)
	}
	p.chooseOrder(in)
	if p.whole(in) {
		p.byPanel, l.whole = false, true
		if kern.b.flip() != 0 && p.pa == nil {
			l.row = l.region(p.m, 4)
		}
		return l
	}
	mS, nS, kS := p.m, p.n, p.k
	limit := kn.packLimit / 4 * kr // values of k and rows or columns
	// Parts: rows and columns are divided first where that repeats no packing, k where both operands are packed.
	if p.packA && p.packB && !p.scratch && (p.m > limit/p.k || p.n > limit/p.k) {
		kS = max(limit/max(p.m, p.n), 2*kn.kcMax*kr)
		kS = min(p.k, roundUp(ceilDiv(p.k, ceilDiv(p.k, kS)), 16*kr))
	}
	if p.packA && p.m > limit/kS {
		mS = max(roundUp(limit/kS, kern.mr), kern.mr)
		mS = ceilDiv(p.m, ceilDiv(p.m, mS))
	}
	if p.packB && p.n > limit/kS {
		nS = max(limit/kS/nr, 1) * nr
	}

	l.mS, l.nS, l.kS = mS, nS, kS
	if p.packA {
		// Lower strips may take more room for their padding, and the last part may have them.
		p.cutRows((p.m-1)%mS + 1)
		rows := p.packedRow(p.strips)
		p.cutRows(mS)
		l.a = l.region(max(rows, p.packedRow(p.strips)), kern.packedSteps(ceilDiv(kS, kr)), 4)
	}
	if kern.acc == S32 && p.pa == nil {
		l.row = l.region(mS, 4)
	}
	if p.packB {
		l.b = l.region(ceilDiv(nS, nr), ceilDiv(kS, p.bf.kr), p.bf.step())
		if kern.acc == S32 {
			l.sum = l.region(ceilDiv(nS, nr), nr, 4)
		}
	} else if p.packTail {
		l.b = l.region(nr, kS, 4)
	}
	workers, chunk := par.Workers(p.threads, maxInt), maxChunk(kn)
	if kern.a == aInner {
		chunk = innerChunk(kn)
	}
	p.privateStep, p.widenBytes, p.stripBytes = 0, 0, 0
	if p.localA {
		p.stripBytes = kern.mr * rowPitch(chunk*4)
		if kern.a == aInner {
			p.stripBytes = innerGroup * innerBytes(chunk)
		}
	}
	if p.copyA {
		p.stripBytes = roundUp(aBlockBytes(in, kn, kern.mr), 64)
	}
	if p.widen || p.localB {
		// One chunk of B, and its column sums in the last 16 KiB.
		share := kn.bPercent
		if kern.a == aInner {
			share += kn.cPercent
		}
		p.widenBytes = chunkSumBytes + roundUp(max(in.L2/100*share, chunk*kern.a.lane()*nr)+4*nr, 64)
		if p.byPanel {
			p.widenBytes = max(p.widenBytes, chunkSumBytes+roundUp(max(kn.chunkBytes(in), 2*chunk*kern.b.step()), 64))
		}
	}
	if p.scratch {
		p.privateStep = scratchBytes(in, kn, kern)
		if width := 4 * roundUp(p.n, nr); p.m < p.privateStep/width {
			p.privateStep = p.m * width // all of C
		}
	}
	if p.privateStep += p.widenBytes + p.stripBytes; p.privateStep > 0 {
		p.privateStep = roundUp(p.privateStep, 64)
		l.worker = l.region(workers, p.privateStep)
	}
	return l
}

// flipSmall plans a signed copy of an unsigned A where the product can then be computed whole: copies of single strips would cost such a product more.
func (p *product) flipSmall(in *cpuinfo.Info, l *regions) {
	kern := p.kern
	if p.a.typ != U8 || kern.a != aS8 || kern.tile > 0 || p.pa != nil || p.a.ColStride != 1 || p.k%kern.a.kr != 0 || p.m > in.L2/8/p.k {
		return
	}
	unsigned := p.a
	p.a = Matrix{Rows: p.m, Cols: p.k, RowStride: p.k, ColStride: 1, typ: S8}
	if p.choosePacking(in); p.whole(in) {
		l.region(p.m, p.k)
		p.front = l.size
		p.aZero -= 128
		return
	}
	p.a = unsigned
	p.choosePacking(in)
}

// run computes the product; shapes are checked, nothing is empty and k is not 0.
func (p *product) run(w *Workspace) error {
	in := cpuinfo.Get()
	given := p.a
	l := p.lay(in)
	if l.bad {
		return errTooLarge(p.m, p.n, p.k)
	}
	from, least := mapFrom, 0
	if p.kern.a == aInner {
		from, least = hugeFrom, hugePage
	}
	if err := w.reserveFrom(l.size, from, least); err != nil {
		return err
	}
	if p.front > 0 {
		p.a.ptr, p.a.len = w.at(0), p.m*p.k
		p.fillFront(&given)
	}
	if p.last = (plan{whole: l.whole && p.front == 0, size: l.size, row: l.row}); l.whole {
		p.cutWhole()
		p.computeWhole(w, l.row)
		return nil
	}
	if l.size > 0 {
		p.aPacked, p.bPacked, p.private = w.at(l.a), w.at(l.b), w.at(l.worker)
		p.sums, p.rowInit = w.at(l.sum), w.at(l.row)
	}

	for p.n0 = 0; p.n0 < p.n; p.n0 += l.nS {
		p.np = min(l.nS, p.n-p.n0)
		for p.k0 = 0; p.k0 < p.k; p.k0 += l.kS {
			p.kp = min(l.kS, p.k-p.k0)
			for p.m0 = 0; p.m0 < p.m; p.m0 += l.mS {
				p.mp = min(l.mS, p.m-p.m0)
				p.part(in, p.n0 == 0, p.m0 == 0)
			}
		}
	}
	return nil
}

// whole says whether the product is one block of one worker and reads both operands where they lie, so that nothing is left to
// decide: small products, whose fixed costs count.
func (p *product) whole(in *cpuinfo.Info) bool {
	if p.copyA || p.packA || p.packB || p.localA || p.localB || p.packTail || p.axpy || p.widen || p.scratch {
		return false
	}
	steps, width := ceilDiv(p.k, p.kern.a.kr), roundUp(p.n, p.kern.b.nr)
	return steps <= p.kn.kcMax && p.m <= in.L2 && width <= in.L2/4 && steps*width*4 <= in.L2/100*p.kn.bPercent &&
		p.m*width*4 <= in.L2/100*p.kn.cPercent && (p.threads == 1 || (p.m+4)*steps*p.kern.a.kr*width < 2*p.kn.macsPerWorker)
}

// fillFront converts the given A to the copy of it that lay planned.
func (p *product) fillFront(given *Matrix) {
	switch {
	case given.typ != U8:
		for i := range p.m {
			p.vec.fromHalf(p.a.row(i, 0, p.k), given.at(i, 0), given.typ)
		}
	case given.RowStride == p.k:
		flipBytes(p.a.ptr, given.ptr, p.m*p.k)
	default:
		for i := range p.m {
			flipBytes(p.a.at(i, 0), given.at(i, 0), p.k)
		}
	}
}

// cutWhole cuts a product that is one block of C, one chunk of k, and reads both operands where they lie.
func (p *product) cutWhole() {
	p.m0, p.n0, p.k0, p.mp, p.np, p.kp = 0, 0, 0, p.m, p.n, p.k
	p.cutRows(p.m)
	p.panels = ceilDiv(p.n, p.kern.b.nr)
	p.tail = p.n - (p.panels-1)*p.kern.b.nr
	p.gm, p.gn, p.near, p.streams = 1, 1, true, false
	p.bl = blocking{kc: ceilDiv(p.k, p.kern.a.kr), mc: p.strips, nc: p.panels, unit: 1}
	p.privateStep, p.widenBytes, p.stripBytes = 0, 0, 0
	if len(p.workers) == 0 {
		p.workers = make([]worker, 1)
	}
}

// computeWhole is compute for such a product; what its rows start from is summed at an offset of the workspace. Strips of one height, of which there
// are two, are computed by one call where the kernel can: such products are small enough for what a call costs to count.
func (p *product) computeWhole(w *Workspace, rows int) {
	kern := p.kern
	if kern.b.flip() != 0 && p.pa == nil {
		p.rowInit = w.at(rows)
		sumRows(p.rowInit, &p.a, 0, p.m)
	}
	if p.bl.kc*p.panels*kern.a.lane()*kern.b.nr > p.kn.callBytes {
		p.compute(0, 0) // in several calls
		p.workers[0].forget()
		return
	}
	args := &p.workers[0].args
	nr, cols := kern.b.nr, p.np
	p.prepare(args)
	args.ahead, args.aheadLine, args.fold, args.rows = 0, 16, p.fold(), nil
	args.k, args.ldc = p.bl.kc, p.c.RowStride*4
	if args.acc = 1; !p.acc {
		args.acc = 0
	}
	p.placeB(args, 0, 0)
	b, comp := args.b, args.comp
	most := max(p.kn.callBytes/(p.bl.kc*p.panels*kern.a.lane()*nr), 1) // strips of a call
	for s := 0; s < p.strips; {
		row, h := p.strip(s)
		args.a, args.ars, args.acs = p.addrA(s, row, h, 0)
		args.b, args.c, args.comp = b, p.c.at(row, 0), comp
		if kern.b.flip() != 0 {
			args.rows = p.addrRows(row)
		}
		n := 1
		if kern.downStrips {
			if n = p.strips - s; s < p.rem {
				n = p.rem - s
			}
			if n = min(n, most); n > 1 {
				next, _, _ := p.addrA(s+1, row+h, h, 0)
				args.aps = int(uintptr(next) - uintptr(args.a))
			}
		}
		kern.runAtOnce(args, n, h, p.panels, p.tail)
		if p.epi != nil {
			p.finish(nil, row, n*h, row, args.ldc, 0, cols)
		}
		s += n
	}
	p.workers[0].forget()
}

// part packs what is to be packed and computes one part; newA says whether these rows of A are seen for the first time, newB
// whether B has changed since the last part.
func (p *product) part(in *cpuinfo.Info, newA, newB bool) {
	kern, nr := p.kern, p.kern.b.nr
	p.cutRows(p.mp)
	p.near = false
	p.panels = ceilDiv(p.np, nr)
	p.tail = p.np - (p.panels-1)*nr
	workers := p.threads
	if workers > 1 {
		// Work in multiply-adds; a low product is bound by reading B, an element of which costs as much as about four.
		work := float64(p.np) * float64(p.kp) * (float64(p.mp) + 4)
		workers = int(min(float64(workers), max(work/float64(p.kn.macsPerWorker), 1)))
	}
	together := 1
	if p.inPairs() {
		together = 2
	}
	if p.streams = p.fromMemory(in, workers); p.streams {
		together, p.far = kern.streamsP[p.mp], farBytes(in, p.mp, p.np*p.kp*kern.b.elem.Size())
	}
	p.bl = block(in, p.kn, p.kern, p.tallest(), p.strips, ceilDiv(p.kp, p.kern.a.kr), p.panels, workers, together,
		p.localA, p.localB || p.widen)
	if p.byPanel {
		p.bl = blockByPanel(in, p.kn, p.kern, min(p.low+1, p.height), p.strips, p.kp, p.panels, workers, p.once)
	} else if p.localB {
		// Every block packs its chunks of B, so blocks are as high as C allows, and workers share columns.
		blocks := ceilDiv(p.mp, max(in.L2/2/(8*nr*4), 1))
		p.bl.mc = ceilDiv(p.strips, blocks)
		p.bl.nc = min(p.bl.nc, max(in.L2/2/(p.bl.mc*(p.low+p.unit)*nr*4), 1), max(ceilDiv(p.panels*blocks, workers), 1), chunkSumBytes/4/nr)
		p.bl.nc, p.bl.unit = wholeUnits(p.bl.nc, p.panels, together)
		p.bl.nc = min(roundUp(ceilDiv(p.panels, ceilDiv(p.panels, p.bl.nc)), p.bl.unit), p.panels)
	}
	if kc := p.kn.rowsInPlace(in); p.pb == nil && !p.packB && !p.localB && p.kp > kc && p.kp*p.np*4 > in.L2 {
		// A large B in place is read a few rows at a time, each as far as possible, as memory and its prefetchers like it.
		p.bl.kc = kc
		if p.kern.rowsDown != nil && p.strips > 1 {
			// The next strip finds them in L2.
			p.bl.kc = min(p.bl.kc, max(in.L2/2/(4*p.np)&^7, 8))
		}
		p.bl.nc, p.bl.unit = ceilDiv(p.panels, workers), 1
		if workers > 1 {
			p.bl.mc = p.strips
		}
	}
	if p.axpy {
		p.bl.nc, p.bl.unit = ceilDiv(p.panels, workers), 1 // rows of B are read as far as possible
	}
	if p.scratch {
		p.bl = p.bl.within(scratchBytes(in, p.kn, kern), p.tallest(), nr)
	}
	p.gm, p.gn = ceilDiv(p.strips, p.bl.mc), ceilDiv(p.panels, p.bl.nc)
	jobs := p.gm * p.gn

	p.aItems = 0
	items := 0
	if p.packA || kern.b.flip() != 0 && p.pa == nil && newA {
		p.aItems = p.strips
		items = p.strips
	}
	if newB {
		if p.packB {
			// Several panels together, as far as all workers have some.
			p.bItems = max(ceilDiv(p.panels, p.kn.packTogether), min(p.panels, 4*workers))
			items += p.bItems
		} else if p.packTail && p.tail < nr {
			items++
		}
	}
	if n := par.Workers(workers, max(jobs, items)); n > len(p.workers) {
		p.workers = make([]worker, n)
	}
	if p.packA {
		p.workers[0].packs[0]++
	}
	if newB && p.packB {
		p.workers[0].packs[1]++
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
	p.localB, p.copyA, p.axpy = false, false, false
	if p.pb == nil {
		// B in place needs vectors along its rows; a short last panel is copied alone for kernels that read
		// whole panels.
		rows := p.kn.bPackRows
		if p.kern.rowsDown != nil {
			rows /= 3 // strips are less than half as high, and each reads B again
		} else if p.rowsOfBCompete(in) {
			rows /= 2
		}
		p.packB = p.b.typ != F32 || p.b.ColStride != 1 ||
			p.m >= rows && (p.n%nr != 0 && !p.kern.exactB || p.k > p.kn.kcMax || p.n > p.kn.bInPlaceBytes/4/p.k)
		if p.packB && p.m <= p.kn.bLocalRows && p.kern.a != aInner {
			p.packB, p.localB = false, true
		}
		p.axpy = !p.packB && !p.localB && p.m == 1 && p.kern.axpy != nil && p.pa == nil && p.a.typ == F32 && p.n >= nr
		p.packTail = !p.packB && !p.localB && p.n%nr != 0 && !p.kern.exactB
	}
	p.chooseHeight(in)
	p.localA = false
	if p.pa == nil {
		f := p.kern.a
		if f == aInner {
			p.localA = true
			return
		}
		direct := p.a.typ == f.elem
		convert := f.elem == F32 && !direct || f.elem == S8 && p.a.typ == U8 || f == aS16 && wordRows[0] != nil
		switch inPlace := direct && (f.kr == 1 || p.a.ColStride == 1 && p.k%f.kr == 0); {
		case p.a.ColStride == 1 && (direct || convert):
			// Rows are copied, a chunk of a strip at a time, when the kernel cannot read them as they lie, or, with tiles, when they would
			// push each other out of L1: fewer rows, as other kernels take then, would leave tiles idle.
			p.localA = !inPlace || p.kern.tile > 0 && p.rowsConflict(in) && ceilDiv(p.n, nr) >= p.kn.aPackReuse
		default:
			p.packA = !inPlace || p.wantPackedA(in)
		}
	}
}

// pairSteps is how many steps pay for the lower strips of pairs, of which there are twice as many.
const pairSteps = 48

// chooseHeight decides how many rows a strip has at most, and whether low strips take panels in pairs. Where few vectors are loaded in a cycle, strips are
// low enough for that if A has rows and B is packed, or so small that it is read in place by many rows, unless rows, panels or steps are too few for it to pay.
func (p *product) chooseHeight(in *cpuinfo.Info) {
	p.height = p.kern.mr
	p.pairs = p.kern.pairs != nil && p.kn.inPairs(in)
	p.pairsInPlace = false
	small := p.kern.pairsAny != nil && !p.packedB() && p.k <= p.kn.bInPlaceBytes/4/p.n
	if p.kern.pairs != nil && (p.packedB() || small) && p.pa == nil && p.a.ColStride == 1 && p.m >= p.kn.pairsFrom(in) && p.n > p.kern.b.nr &&
		p.k >= pairSteps*p.kern.a.kr {
		p.height, p.pairs, p.pairsInPlace = len(p.kern.pairs)-1, true, small
	}
}

// packedB says whether the kernel finds B in panels.
func (p *product) packedB() bool { return p.pb != nil || p.packB || p.localB }

// inPairs says whether the current part is computed by kernels for pairs of panels.
func (p *product) inPairs() bool {
	_, h := p.strip(0) // no other one has more rows
	return p.pairs && p.packedB() && p.pa == nil && !p.packA && p.a.ColStride == 1 && h < len(p.kern.pairs)
}

// fromMemory says whether the current part is a single low strip whose B comes from memory, for kernels that read many panels side by side, and has so
// many panels that whole groups of them keep the workers about equally busy.
func (p *product) fromMemory(in *cpuinfo.Info, workers int) bool {
	if p.strips > 1 || p.mp >= len(p.kern.streams) || p.pb == nil && !p.packB || p.pa != nil || p.packA || p.a.ColStride != 1 ||
		p.np <= p.kn.streamFrom(in)/p.kern.b.elem.Size()/p.kp {
		return false
	}
	together := p.kern.streamsP[p.mp]
	busiest := ceilDiv(ceilDiv(p.panels, together), workers) * together
	return workers == 1 || busiest*workers <= p.panels+p.panels/8
}

// farBytes returns how far ahead a strip of h rows asks for a B of so many bytes. What may be in L3 comes soon, and must not leave L1 again before it is
// used; memory takes longer, and one that is asked for beyond the page in use has more to send at once.
func farBytes(in *cpuinfo.Info, h, bytes int) int {
	switch {
	case bytes > 16*in.L2:
		return 8 << 10
	case h == 1:
		return 4 << 10 // with little to compute, B goes by faster
	}
	return 2 << 10
}

// rowsConflict says whether the rows of a strip compete for the sets of L1, as they do when their distance is a multiple of a
// large power of two.
func (p *product) rowsConflict(in *cpuinfo.Info) bool {
	size := p.a.typ.Size()
	gap := setGap(p.a.RowStride * size)
	kc := min(p.k, p.kn.kcMax*p.kern.a.kr)
	rows := min(p.m, p.height)
	ways := rows * ceilDiv(kc*p.a.ColStride*size, gap) * gap / setPeriod
	return ways > in.L1DWays*2/3
}

// rowsOfBCompete says whether the rows of a B in place that are read side by side fill the sets of L1, on Zen 4: how much that costs elsewhere was not measured.
func (p *product) rowsOfBCompete(in *cpuinfo.Info) bool {
	return in.Features.Zen4 && p.kn.rowsInPlace(in)*setGap(p.b.RowStride*4)/setPeriod > in.L1DWays*2/3
}

// setPeriod is the distance in bytes after which the sets of L1 repeat, in all L1 caches of 64 sets.
const setPeriod = 4096

// setGap returns the distance in bytes between the sets that rows of this pitch begin in: the largest power of two that divides it, at most setPeriod.
func setGap(pitch int) int {
	if gap := pitch & -pitch; gap != 0 && gap < setPeriod {
		return gap
	}
	return setPeriod
}

// wantPackedA says whether copying a float32 A whose rows are not side by side pays. A kernel reads A from any strides, so it
// is a matter of caches only.
func (p *product) wantPackedA(in *cpuinfo.Info) bool {
	if p.a.ColStride < p.a.RowStride {
		return p.rowsConflict(in) && ceilDiv(p.n, p.kern.b.nr) >= p.kn.aPackReuse
	}
	// The three gates of a column-major A: each step a new page, more of them than stay cached, and enough reuse.
	pitch := p.a.ColStride * 4
	return pitch >= p.kn.aPackStride && pitch > p.kn.spanA(in)/min(p.k, p.kn.kcMax) && ceilDiv(p.n, p.kern.b.nr) >= p.kn.aPackPanels
}

// Do runs one item of the packing phase or one block of the computing phase.
func (p *product) Do(worker, job int) {
	if !p.packing {
		switch {
		case p.axpy:
			p.computeAxpy(worker, job)
		case p.kern.a == aInner:
			p.computeInner(worker, job)
		case p.byPanel:
			p.computeByPanel(worker, job)
		default:
			p.compute(worker, job)
		}
		p.workers[worker].forget()
		return
	}
	kern := p.kern
	if job < p.aItems {
		row, h := p.strip(job)
		if !p.packA {
			sumRows(unsafe.Add(p.rowInit, row*4), &p.a, p.m0+row, h)
			return
		}
		dst := unsafe.Add(p.aPacked, p.packedRow(job)*kern.packedSteps(ceilDiv(p.kp, kern.a.kr))*4)
		packStrip(dst, &p.a, kern, p.m0+row, h, p.k0, p.kp)
		if kern.b.flip() != 0 {
			rowSums(unsafe.Add(p.rowInit, row*4), dst, kern, h, kern.packedSteps(ceilDiv(p.kp, 4)))
		}
		return
	}
	panel := job - p.aItems
	if !p.packB {
		panel = p.panels - 1
		packPanelB(p.bPacked, &p.b, p.kern.b, p.n0+panel*p.kern.b.nr, p.k0, p.kp)
		return
	}
	f := p.bf
	p0, p1 := split(p.panels, p.bItems, panel), split(p.panels, p.bItems, panel+1)
	packPanelsB(unsafe.Add(p.bPacked, p0*p.panelBytes()), &p.b, f, p.n0+p0*f.nr, p.k0, p.kp, p1-p0, p.panelBytes())
	if p.kern.acc == S32 && p.kern.a != aInner {
		for i := p0; i < p1; i++ {
			columnSums(unsafe.Add(p.sums, i*f.nr*4), unsafe.Add(p.bPacked, i*p.panelBytes()), f, p.kp)
		}
	}
}

// panelBytes is the size of a panel that this call packs.
func (p *product) panelBytes() int {
	return ceilDiv(p.kp, p.bf.kr) * p.bf.step()
}

// blockOf returns the strips s0 to s1 and the panels p0 to p1 of a block of C.
func (p *product) blockOf(job int) (s0, s1, p0, p1 int) {
	if p.gm*p.gn == 1 {
		return 0, p.strips, 0, p.panels
	}
	return split(p.strips, p.gm, job/p.gn), split(p.strips, p.gm, job/p.gn+1),
		p.bl.panelsOf(p.panels, p.gn, job%p.gn), p.bl.panelsOf(p.panels, p.gn, job%p.gn+1)
}

// prepare sets what all calls of kernels for strips have in common.
func (p *product) prepare(args *kargs) {
	args.aStep, args.cStep, args.nextAStep = 0, p.kern.b.nr*4, 128
	args.pairs, args.inPlace, args.once = p.pairs, p.pairsInPlace, cpuinfo.Get().Features.OneWideLoad
	args.streams, args.far = p.streams, p.far
}

// fold returns what each column sum of B is multiplied by before it joins the sums, which takes back the zero of A, and that u8 is stored 128 lower.
func (p *product) fold() int {
	switch {
	case p.kern.acc != S32:
		return 0
	case p.kern.a == aS8 && p.a.typ == U8:
		return 128 - int(p.aZero)
	}
	return -int(p.aZero)
}

// compute does one block of C for all of k in the part.
func (p *product) compute(worker, job int) {
	kern := p.kern
	nr, kr := kern.b.nr, kern.a.kr
	s0, s1, p0, p1 := p.blockOf(job)
	args := &p.workers[worker].args
	p.prepare(args)
	tail := nr
	if p1 == p.panels {
		tail = p.tail
	}
	cols := (p1-p0-1)*nr + tail
	private := unsafe.Add(p.private, worker*p.privateStep)
	strip := unsafe.Add(private, p.widenBytes)
	sums := unsafe.Add(strip, p.stripBytes)
	firstRow, _ := p.strip(s0)
	if p.scratch {
		args.ldc = (p1 - p0) * nr * 4
	} else {
		args.ldc = p.c.RowStride * 4
	}
	steps := ceilDiv(p.kp, kr)
	for t0 := 0; t0 < steps; t0 += p.bl.kc {
		kc := min(p.bl.kc, steps-t0)
		first := p.k0 == 0 && t0 == 0
		last := p.k0+p.kp == p.k && t0+kc == steps
		switch {
		case p.widen:
			p.widenChunk(private, p0, p1, t0, kc)
		case p.localB:
			p.packChunk(private, p0, p1, t0, kc)
			p.workers[worker].packs[1]++
		}
		for s := s0; s < s1; s++ {
			row, h := p.strip(s)
			args.k, args.acc, args.fold, args.rows = kc, 1, 0, nil
			if first && (!p.acc || p.scratch) {
				args.acc = 0
			}
			if kern.acc == S32 {
				// Column sums are those of a chunk when it is packed here, else those of the part.
				if t0 == 0 || p.localB {
					args.fold = p.fold()
				}
				if t0 == 0 && kern.b.flip() != 0 {
					args.rows = p.addrRows(row)
				}
			}
			if p.localA {
				args.a, args.ars, args.acs = strip, rowPitch(kc*4), 4
				p.copyStrip(strip, args.ars, p.m0+row, h, p.k0+t0*kr, min(kc*kr, p.kp-t0*kr))
				p.workers[worker].packs[0]++
			} else {
				args.a, args.ars, args.acs = p.addrA(s, row, h, t0)
			}
			if p.scratch {
				args.c = unsafe.Add(sums, (row-firstRow)*args.ldc)
			} else {
				args.c = p.c.at(p.m0+row, p.n0+p0*nr)
			}
			if args.ahead = 0; kern.fast != nil && !p.near {
				p.lookAhead(args, h, p0, p1, t0, kc, s1-s0, s1-s)
				next, t := s+1, t0
				if next == s1 {
					next, t = s0, t0+kc
				}
				nextRow, _ := p.strip(next)
				args.nextC = (nextRow-row)*args.ldc - (p1-p0-1)*nr*4
				if p.pa == nil && !p.packA && t < steps {
					args.nextA, args.nextALead = uintptr(p.a.at(p.m0+nextRow, p.k0+t*kr)), p.a.RowStride*p.a.typ.Size()
				}
			}
			if p.widen || p.localB {
				args.bks, args.bps = kern.b.step(), ceilDiv(kc*kr, kern.b.kr)*kern.b.step()
				args.b, args.comp = private, nil
				if kern.acc == S32 {
					args.comp = unsafe.Add(private, p.widenBytes-chunkSumBytes)
				}
				kern.run(args, h, p1-p0, tail, p.kn.callBytes)
			} else {
				p.sweep(args, h, p0, p1, t0, tail)
			}
			if last && (p.scratch || p.epi != nil) {
				p.finish(sums, row, h, row-firstRow, args.ldc, p.n0+p0*nr, cols)
			}
		}
	}
}

// addrA returns where strip s, h rows from row on, starts at step t0, and the strides.
func (p *product) addrA(s, row, h, t0 int) (a unsafe.Pointer, ars, acs int) {
	base, steps := p.aPacked, p.kern.packedSteps(ceilDiv(p.kp, p.kern.a.kr))
	if p.pa != nil {
		base, steps = unsafe.Pointer(unsafe.SliceData(p.pa.data)), p.pa.steps()
		t0 += p.k0 / p.kern.a.kr
	}
	if p.pa != nil || p.packA {
		n, lead := p.kern.packedRows(h), 4
		if p.kern.tile > 0 {
			lead = 4 * p.kern.tile
		}
		return unsafe.Add(base, (p.packedRow(s)*steps+t0*n)*4), lead, 4 * n
	}
	kr, size := p.kern.a.kr, p.a.typ.Size()
	return p.a.at(p.m0+row, p.k0+t0*kr), p.a.RowStride * size, p.a.ColStride * size * kr
}

// lookAhead sets what the kernel fetches while it computes a strip of h rows, the left-th last of the strips of its block: the part that falls to it of
// the next chunk of B, so that the first strip of that chunk finds it in L2. Only the last strips do, for the chunk that is in use
// to stay there as well; where strips are few, kernels that can take larger parts. A single strip looks ahead in its own panels.
func (p *product) lookAhead(args *kargs, h, p0, p1, t0, kc, strips, left int) {
	// Where there is nothing to fetch, the addresses stay in the strip of A, which is in L1.
	args.ahead, args.aheadStep = uintptr(args.a), 0
	args.nextA, args.nextALead = args.ahead, 0
	args.aheadLine = 16
	var base unsafe.Pointer
	var stride int
	var f format
	switch {
	case p.pb != nil:
		base, stride, f = p.pb.addr(p.n0/p.kern.b.nr, p.k0), p.pb.stride, p.pb.f
	case p.packB:
		base, stride, f = p.bPacked, p.panelBytes(), p.kern.b
	default:
		return
	}
	kr := p.kern.a.kr
	step := kr * f.step() / f.kr // bytes of a panel that a step takes
	if pairs := p.inPairs(); pairs || p.kern.rowsDown != nil {
		if strips == 1 && pairs {
			return // two streams, which the processor follows by itself
		}
		if strips == 1 {
			args.ahead, args.aheadStep = uintptr(base)+uintptr(p0*stride+t0*step+farAhead), stride
			args.aheadLine = 64
			return
		}
		for args.aheadLine < step && args.aheadLine*strips < step {
			args.aheadLine *= 2
		}
	}
	next, panel := t0+kc, p0
	if next*kr >= p.kp {
		// The next block: its panels follow, or start again.
		next, panel = 0, p1
		if p1 == p.panels {
			panel = 0
		}
	}
	size := min(p.bl.kc*kr, p.kp-next*kr) / f.kr * f.step() // of the chunk of one panel
	part := kc * args.aheadLine
	done := (ceilDiv(size, max(part, 1)) - left) * part
	if done < 0 || done >= size {
		if args.once && p.inPairs() && t0 == 0 && left > 1 && !p.scratch {
			// C of the next strip comes from far, which a tile that asked for all of its lines at once would wait for. Each panel takes a row.
			args.ahead, args.aheadStep = uintptr(args.c)+uintptr(h*args.ldc), args.ldc
			args.aheadLine = min(ceilDiv((p1-p0)*p.kern.b.nr*4, kc), 16)
		}
		return
	}
	args.ahead = uintptr(base) + uintptr(panel*stride+next*step+done)
	args.aheadStep = stride
}

// farAhead is the distance in bytes at which a single strip asks for B, which comes from memory.
const farAhead = 2048

// addrRows returns what the sums of row and the following ones start from.
func (p *product) addrRows(row int) unsafe.Pointer {
	if p.pa != nil {
		return unsafe.Pointer(&p.pa.rows[row])
	}
	return unsafe.Add(p.rowInit, row*4)
}

// sweep runs the kernel for one strip over the panels p0 to p1 of a B that needs no widening.
func (p *product) sweep(args *kargs, h, p0, p1, t0, tail int) {
	f := p.kern.b
	p.placeB(args, p0, t0)
	if p.pb != nil || p.packB || tail == f.nr || p.kern.exactB {
		p.kern.run(args, h, p1-p0, tail, p.kn.callBytes)
		return
	}
	// A short last panel of a B in place is a copy.
	whole, c := p1-p0-1, args.c
	if whole > 0 {
		p.kern.run(args, h, whole, f.nr, p.kn.callBytes)
	}
	args.c = unsafe.Add(c, whole*f.nr*4)
	args.bks = f.step()
	args.b = unsafe.Add(p.bPacked, t0*args.bks)
	p.kern.run(args, h, 1, tail, p.kn.callBytes)
}

// placeB sets where the panels from p0 on, of a B that needs no widening, start at step t0, the strides, and the column sums.
func (p *product) placeB(args *kargs, p0, t0 int) {
	f := p.kern.b
	k := p.k0 + t0*p.kern.a.kr
	args.comp = nil
	switch {
	case p.pb != nil:
		args.bks, args.bps = f.step(), p.pb.stride
		args.b = p.pb.addr(p.n0/f.nr+p0, k)
		if p.kern.acc == S32 {
			args.comp = unsafe.Pointer(&p.pb.sums[p.n0+p0*f.nr])
		}
	case p.packB:
		args.bks, args.bps = f.step(), p.panelBytes()
		args.b = unsafe.Add(p.bPacked, p0*args.bps+t0*p.kern.a.kr/f.kr*args.bks)
		if p.kern.acc == S32 {
			args.comp = unsafe.Add(p.sums, p0*f.nr*4)
		}
	default:
		args.b, args.bks, args.bps = p.b.at(k, p.n0+p0*f.nr), p.b.RowStride*4, f.nr*4
	}
}

// widenChunk turns the chunk of packed bf16 or f16 panels into f32 panels in the worker's own memory, which is small enough to
// stay in L2; every strip of the block then reads them there.
func (p *product) widenChunk(dst unsafe.Pointer, p0, p1, t0, kc int) {
	f := p.pb.f
	step := kc * p.kern.b.step()
	for panel := p0; panel < p1; panel++ {
		src := p.pb.addr(p.n0/f.nr+panel, p.k0+t0)
		p.vec.widenPanel(unsafe.Add(dst, (panel-p0)*step), src, f, kc)
	}
}

// chunkSumBytes holds the column sums of a chunk of B: 4096 columns, more than the chunk of any cache takes.
const chunkSumBytes = 16 << 10

// packChunk packs a chunk of a plain B into the worker's own memory, where it stays in L2 while every strip of the block uses it.
func (p *product) packChunk(dst unsafe.Pointer, p0, p1, t0, kc int) {
	f, kr := p.kern.b, p.kern.a.kr
	step := ceilDiv(kc*kr, f.kr) * f.step()
	depth := min(kc*kr, p.kp-t0*kr)
	packPanelsB(dst, &p.b, f, p.n0+p0*f.nr, p.k0+t0*kr, depth, p1-p0, step)
	if p.kern.acc == S32 {
		for i := range p1 - p0 {
			columnSums(unsafe.Add(dst, p.widenBytes-chunkSumBytes+i*f.nr*4), unsafe.Add(dst, i*step), f, depth)
		}
	}
}

// finish runs the epilogue for h rows of a block and moves them to C where they are not there yet.
func (p *product) finish(sums unsafe.Pointer, row, h, srow, ldc, col, cols int) {
	e := p.epi
	for r := range h {
		i := p.m0 + row + r
		var x []float32
		if p.scratch {
			x = unsafe.Slice((*float32)(unsafe.Add(sums, (srow+r)*ldc)), cols)
		} else {
			x = p.c.row(i, col, cols)
		}
		if p.kern.acc == S32 {
			if p.c.typ == S32 {
				p.storeInts(x, i, col)
				continue
			}
			p.vec.fromS32(x)
		}
		if p.scaled {
			p.combine(x, i, col)
		}
		scale, zero := float32(1), int32(0)
		if e != nil {
			e.apply(p.vec, x, i, col)
			if e.After.typ != 0 {
				p.vec.add(x, e.After.row(i, col, cols))
			}
			if e.OutScale != 0 {
				scale = e.OutScale
			}
			zero = e.OutZero
		}
		if p.scratch {
			store(p.vec, &p.c, x, i, col, scale, zero)
		}
	}
}

// combine makes alpha*x + beta*C of finished sums.
func (p *product) combine(x []float32, i, col int) {
	for j := range x {
		v := float32(p.alpha * x[j])
		if p.beta != 0 {
			v += float32(p.beta * *(*float32)(p.c.at(i, col+j)))
		}
		x[j] = v
	}
}

// storeInts moves integer sums to C, which may have any strides.
func (p *product) storeInts(x []float32, i, col int) {
	for j := range x {
		s, d := (*int32)(unsafe.Pointer(&x[j])), (*int32)(p.c.at(i, col+j))
		if p.acc {
			*d += *s
		} else {
			*d = *s
		}
	}
}
