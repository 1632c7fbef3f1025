package gemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// With 16 registers a tile has six rows, and a chunk of B in L2 would come to L1 again for every six rows of each block. Products of many rows then go
// the other way round: all strips of a block of A, which L2 holds, pass by one panel of B before the next one comes from beyond L2. The strip and the
// panel of a tile come from L2 as fast as they are used, L1 need not hold either; but C, of which no cache near holds a block, comes and goes with each
// chunk of k and makes a tile wait, so chunks are long. The next tile of C is asked for ahead.
//
//	L2 holds a panel of a chunk of B, kc x nr, and the next one.
//	L2 holds a block of A, am strips x kc; where its rows would meet in few sets, or need widening, it is a copy.
//	L3 holds the chunk of B of a job, kc x nc panels, which all of its blocks of A pass; a B that is packed here is packed once into memory for it.

// blockByPanel decides that blocking: kc as above, mc strips and nc panels of a job, am strips of a block of A. With once, all strips are one block.
func blockByPanel(in *cpuinfo.Info, kn *knobs, k *kernel, h, strips, steps, panels, workers int, once bool) blocking {
	kc := min(max(in.L2/100*kn.panelPercent/(4*k.b.nr), kn.kcMin), 2*kn.kcMax)
	if once {
		kc = min(kc, max(onceSteps(in, h*strips), kn.kcMin))
	}
	kc = evenChunk(steps, kc)
	am := max(in.L2/100*kn.aPercent/(4*h*max(kc, 64)), 1)
	if once {
		am = strips
	}
	nc := panels
	if am < strips {
		nc = min(max(kn.chunkBytes(in)/(kc*4*k.b.nr), 1), panels)
	}
	if workers == 1 {
		return blocking{kc, strips, ceilDiv(panels, ceilDiv(panels, nc)), 1, am}
	}
	mc := strips
	if !once {
		mc = am * max(strips*ceilDiv(panels, nc)/(am*workers*kn.jobsPerWorker), 1)
	}
	mc, nc = share(strips, panels, mc, nc, strips*panels, workers, kn.jobsPerWorker)
	return blocking{kc, mc, nc, 1, am}
}

// onceSteps returns the steps of a chunk with which a block of all rows takes half of L2: the chunk of B that is packed for it comes once, and what
// it is packed from does not stay.
func onceSteps(in *cpuinfo.Info, rows int) int { return in.L2 / 2 / (4 * rows) &^ 15 }

// aBlockBytes is the size of the copy of a block of A: rows are at most two lines longer than their steps, which count as 64 or more, or the
// block is a single one.
func aBlockBytes(in *cpuinfo.Info, kn *knobs, mr int) int {
	return max(in.L2/100*kn.aPercent*3, mr*rowPitch(maxChunk(kn)*4))
}

// chooseOrder decides whether the product goes by panels: it must have enough strips to pay for fetching a panel, enough panels to pay for a
// block of A, and enough steps for the tiles of C to come from memory meanwhile.
func (p *product) chooseOrder(in *cpuinfo.Info) {
	p.byPanel, p.once, p.packRows = false, false, false
	nr := p.kern.b.nr
	if p.kern.rowsDown == nil || p.scratch || p.pa == nil && !p.packA && p.a.ColStride != 1 ||
		ceilDiv(p.m, p.height) < p.kn.panelStrips || p.n < 4*nr || p.k < p.kn.kcMin || p.pb == nil && !p.packB && !p.localB {
		return
	}
	p.byPanel = true
	strips, panels := ceilDiv(p.m, p.height), ceilDiv(p.n, nr)
	bl := blockByPanel(in, p.kn, p.kern, p.height, strips, p.k, panels, 1, p.localB)
	p.once = p.localB && bl.kc >= min(p.k, p.kn.kcMax/2) && p.m*rowPitch(bl.kc*4) <= min(in.L2/4*3, aBlockBytes(in, p.kn, p.kern.mr))
	if !p.once {
		// Not one block, or one of short chunks: several blocks share what is packed.
		bl = blockByPanel(in, p.kn, p.kern, p.height, strips, p.k, panels, p.threads, false)
	}
	rows := p.packB || p.localB
	if p.packRows = rows && p.kern.rowsDownPack != nil && p.b.typ == F32 && p.b.ColStride == 1; rows && !p.once {
		p.localB = bl.mc == strips // a job packs what no other one needs
		p.packB = !p.localB
	}
	p.packRows = p.packRows && p.localB
	if p.pa == nil && !p.packA {
		p.copyA = p.localA || p.blockConflicts(in, bl)
		p.localA = false
	}
}

// blockConflicts says whether the rows of a block of A compete for the sets of L2.
func (p *product) blockConflicts(in *cpuinfo.Info, bl blocking) bool {
	const ways = 8
	period := in.L2 / ways
	pitch := p.a.RowStride * p.a.typ.Size()
	gap := min(pitch&-pitch, period)
	if gap == 0 {
		gap = period
	}
	rows := min(bl.am, bl.mc) * p.height
	return rows*ceilDiv(bl.kc*p.a.typ.Size(), gap)*gap > period*ways/2
}

// panelGroup is the number of panels after which finished rows get their epilogue, while they are cached.
const panelGroup = 8

// computeByPanel does one job: some strips of some panels, for all of k in the part. A chunk of its panels passes by all of its blocks of A before
// the next chunk comes.
func (p *product) computeByPanel(worker, job int) {
	kern := p.kern
	nr := kern.b.nr
	s0, s1, p0, p1 := p.blockOf(job)
	w := &p.workers[worker]
	x := panelPass{p: p, w: w, p0: p0, p1: p1, blocks: ceilDiv(s1-s0, p.bl.am)}
	x.own = unsafe.Add(p.private, worker*p.privateStep)
	x.copied = unsafe.Add(x.own, p.widenBytes)
	w.args.ldc, w.args.bks = p.c.RowStride*4, kern.b.step()
	group := panelGroup
	for x.t0 = 0; x.t0 < p.kp; x.t0 += p.bl.kc {
		x.kc = min(p.bl.kc, p.kp-x.t0)
		last := p.k0+p.kp == p.k && x.t0+x.kc == p.kp
		if x.ring = 0; x.blocks == 1 && p.packRows {
			x.ring = 2 // one that is used and one that is packed
		} else if x.blocks == 1 {
			// No other block uses what is packed or widened, so that it need not stay.
			x.ring = max(min(panelGroup, (p.widenBytes-chunkSumBytes)/(x.kc*kern.b.step())), 1)
			group = x.ring
		}
		for i := range x.blocks {
			x.block = i
			x.s0, x.s1 = s0+split(s1-s0, x.blocks, i), s0+split(s1-s0, x.blocks, i+1)
			x.row0, _ = p.strip(x.s0)
			if p.copyA {
				pitch := rowPitch(x.kc * 4)
				for s := x.s0; s < x.s1; s++ {
					row, h := p.strip(s)
					p.copyStrip(unsafe.Add(x.copied, (row-x.row0)*pitch), pitch, p.m0+row, h, p.k0+x.t0, x.kc)
				}
				w.packs[0]++
			}
			x.followA(s0, s1)
			for g0 := p0; g0 < p1; g0 += group {
				g1 := min(g0+group, p1)
				x.bring(g0, g1)
				for panel := g0; panel < g1; panel++ {
					x.downStrips(panel)
				}
				if last && p.epi != nil {
					cols := min(g1*nr, p.np) - g0*nr
					for s := x.s0; s < x.s1; s++ {
						row, h := p.strip(s)
						p.finish(nil, row, h, 0, 0, p.n0+g0*nr, cols)
					}
				}
			}
		}
	}
}

// panelPass is where a job stands: a block of A, a chunk of k and, of B, the panels of the job.
type panelPass struct {
	p      *product
	w      *worker
	own    unsafe.Pointer // panels that the worker packs or widens
	copied unsafe.Pointer // its copy of the block
	ring   int            // of own panels at a time, or 0: there is room for the chunk of all
	blocks int            // of the job
	block  int            // which of them
	s0, s1 int            // its strips
	row0   int            // its first row
	p0, p1 int            // panels of the job
	t0, kc int            // the chunk

	nextA      uintptr // of the block that follows, or 0
	nextAPanel int     // the panel from which it is fetched
}

// ownPanel returns where the chunk of a panel lies that the worker packed or widened.
func (x *panelPass) ownPanel(panel int) unsafe.Pointer {
	i := panel - x.p0
	if x.ring > 0 {
		i %= x.ring
	}
	return unsafe.Add(x.own, i*x.kc*x.p.kern.b.step())
}

// bring packs or widens panels of the chunk, for the first block of A that they meet.
func (x *panelPass) bring(g0, g1 int) {
	p := x.p
	if x.block > 0 {
		return
	}
	switch {
	case p.widen:
		p.widenChunk(x.ownPanel(g0), g0, g1, x.t0, x.kc)
	case p.packRows:
		if g0 == x.p0 {
			p.packChunk(x.ownPanel(g0), g0, g0+1, x.t0, x.kc)
			x.w.packs[1]++
		}
	case p.localB:
		p.packChunk(x.ownPanel(g0), g0, g1, x.t0, x.kc)
		x.w.packs[1]++
	}
}

// followA finds the block of A that follows in this job: the last panels fetch two lines of each of its rows.
func (x *panelPass) followA(s0, s1 int) {
	p := x.p
	x.nextA, x.nextAPanel = 0, x.p1-ceilDiv(x.kc, 32)
	next, t := x.s1, x.t0
	if next == s1 {
		next, t = s0, t+x.kc
	}
	if p.pa != nil || p.packA || t >= p.kp {
		return
	}
	row, _ := p.strip(next)
	x.nextA = uintptr(p.a.at(p.m0+row, p.k0+t))
}

// downStrips computes the strips of the block against one panel, those of each height in one call.
func (x *panelPass) downStrips(panel int) {
	p, w, kern, nr := x.p, x.w, x.p.kern, x.p.kern.b.nr
	args := &w.args
	tail := min(p.np-panel*nr, nr)
	col := p.n0 + panel*nr
	args.k, args.acc = x.kc, 1
	if p.k0 == 0 && x.t0 == 0 && !p.acc {
		args.acc = 0
	}
	if p.widen || p.localB {
		args.b = x.ownPanel(panel)
	} else {
		args.b = p.packedPanel(panel, x.t0)
	}
	x.lookDown(panel)
	pack := x.packNext(panel + 1)
	for s := x.s0; s < x.s1; {
		row, h := p.strip(s)
		end := x.s1
		if s < p.rem {
			end = min(x.s1, p.rem)
		}
		n := end - s
		args.c = p.c.at(p.m0+row, col)
		args.cStep = h * args.ldc
		if p.copyA {
			pitch := rowPitch(x.kc * 4)
			args.a, args.ars, args.acs = unsafe.Add(x.copied, (row-x.row0)*pitch), pitch, 4
			args.aStep = h * pitch
		} else {
			args.a, args.ars, args.acs = p.addrA(s, row, h, x.t0)
			args.aStep = h * args.ars
			if args.acs != 4 {
				args.aStep = p.packedStrip(h)
			}
		}
		if tail < nr || kern.rowsDown[h] == nil {
			// A short panel goes strip by strip, and so do strips of few rows.
			b := args.b
			for ; s < end; s++ {
				a, c := args.a, args.c
				args.bps = 0
				kern.run(args, h, 1, tail, p.kn.callBytes)
				if s+1 < end {
					args.a, args.b, args.c = unsafe.Add(a, args.aStep), b, unsafe.Add(c, args.cStep)
				}
			}
			args.b = b
			continue
		}
		args.nextA, args.nextALead, args.nextAStep = uintptr(args.a), 0, args.aStep
		if pass := panel - x.nextAPanel; x.nextA != 0 && pass >= 0 {
			size := p.a.typ.Size()
			args.nextA = x.nextA + uintptr((row-x.row0)*p.a.RowStride*size+128*pass)
			args.nextALead, args.nextAStep = p.a.RowStride*size, h*p.a.RowStride*size
		}
		args.tail, args.bps = nr, 0
		args.hold = w.holdFor(args.c)
		b := args.b
		if whole := min(n, pack); whole > 0 {
			f := kern.rowsDownPack[h]
			if args.acs != 4 {
				f = kern.fastDownPack[h]
			}
			args.bks = p.b.RowStride * 4
			args.panels, args.nextC = whole, args.cStep
			f(args)
			args.b, args.bks = b, kern.b.step()
			n, pack = n-whole, pack-whole
			if n == 0 {
				s = end
				continue
			}
			args.a, args.c = unsafe.Add(args.a, args.aStep), unsafe.Add(args.c, args.cStep)
		}
		args.nextC = args.cStep
		if end == x.s1 {
			args.nextC = nr*4 - (row-x.row0+(end-s-1)*h)*args.ldc
		}
		f := kern.rowsDown[h]
		if args.acs != 4 {
			f = kern.fastDown[h]
		}
		args.panels = n
		f(args)
		args.b = b
		s = end
	}
}

// packNext prepares the packing of a panel while strips of the block pass by another one, and returns how many of them pack a part. What they do
// not reach is packed at once.
func (x *panelPass) packNext(panel int) int {
	p, nr := x.p, x.p.kern.b.nr
	if !p.packRows || x.block > 0 || panel == x.p1 {
		return 0
	}
	if panel == p.panels-1 && p.tail < nr || p.kern.rowsDownPack[p.low] == nil {
		p.packChunk(x.ownPanel(panel), panel, panel+1, x.t0, x.kc)
		return 0
	}
	to, part := x.ownPanel(panel), x.kc/8
	strips := 0
	if part > 0 {
		strips = min(x.kc/part, x.s1-x.s0)
	}
	if rest := x.kc - strips*part; rest > 0 {
		packPanelsB(unsafe.Add(to, strips*part*p.kern.b.step()), &p.b, p.kern.b, p.n0+panel*nr, p.k0+x.t0+strips*part, rest, 1, 0)
	}
	x.w.args.packFrom, x.w.args.packTo = uintptr(p.b.at(p.k0+x.t0, p.n0+panel*nr)), uintptr(to)
	return strips
}

// holdFor returns memory for sums that stand elsewhere in a page than the tile of C at c, for loads of C not to look as if they read it.
func (w *worker) holdFor(c unsafe.Pointer) unsafe.Pointer {
	const line, page = 64, 4096
	at := -int(uintptr(unsafe.Pointer(&w.hold))) & (line - 1)
	if (int(uintptr(c))-int(uintptr(unsafe.Pointer(&w.hold)))-at+line-1)&(page-1) < holdBytes+line {
		at += roundUp(holdBytes+line, line)
	}
	return unsafe.Pointer(&w.hold[at])
}

// packedStrip returns the bytes of a packed strip of h rows.
func (p *product) packedStrip(h int) int {
	steps := p.kp
	if p.pa != nil {
		steps = p.pa.steps()
	}
	return stepRows(h) * steps * 4
}

// lookDown sets what the kernel fetches while strips pass by a panel: the panel that follows, a part for each strip.
func (x *panelPass) lookDown(panel int) {
	p, args := x.p, &x.w.args
	args.ahead, args.aheadStep, args.aheadLine = uintptr(args.b), 0, 0
	strips, block, t := x.s1-x.s0, x.block, x.t0
	if panel++; panel == x.p1 {
		panel = x.p0
		if block++; block == x.blocks {
			block = 0
			if t += x.kc; t >= p.kp {
				return // the next job is not known
			}
		}
	}
	step := p.kern.b.step()
	switch {
	case p.localB && block == 0:
		return // packing fetches
	case p.localB, p.widen && block > 0:
		args.ahead = uintptr(x.ownPanel(panel))
	default:
		args.ahead = uintptr(p.packedPanel(panel, t))
		if p.widen {
			step /= 2
		}
	}
	part := ceilDiv(step, strips)
	args.aheadLine = 8 * part
	args.aheadStep = x.kc * part
}

// packedPanel returns where step t0 of a panel of B lies that is packed, by the caller or by this call.
func (p *product) packedPanel(panel, t0 int) unsafe.Pointer {
	if p.pb == nil {
		return unsafe.Add(p.bPacked, panel*p.panelBytes()+t0*p.kern.b.step())
	}
	return p.pb.addr(p.n0/p.kern.b.nr+panel, p.k0+t0)
}
