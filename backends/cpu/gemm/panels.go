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
//	L2 holds a block of A, mc strips x kc; where its rows would meet in few sets, or need widening, it is a copy.

// blockByPanel decides that blocking: kc and mc as above, nc panels of a job. With once, a worker packs a chunk of B just before it is used,
// and all strips are one block.
func blockByPanel(in *cpuinfo.Info, kn *knobs, k *kernel, h, strips, steps, panels, workers int, once bool) blocking {
	kc := min(max(in.L2/100*kn.panelPercent/(4*k.b.nr), kn.kcMin), 2*kn.kcMax)
	if once {
		kc = min(kc, max(onceSteps(in, h*strips), kn.kcMin))
	}
	kc = evenChunk(steps, kc)
	mc := max(in.L2/100*kn.aPercent/(4*h*max(kc, 64)), 1)
	if once {
		mc = strips
	}
	if workers == 1 {
		return blocking{kc, ceilDiv(strips, ceilDiv(strips, mc)), panels, 1}
	}
	mc, nc := share(strips, panels, mc, panels, strips*panels, workers, kn.jobsPerWorker)
	return blocking{kc, mc, nc, 1}
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
	p.byPanel, p.copyA = false, false
	nr := p.kern.b.nr
	if p.kern.rowsDown == nil || p.scratch || p.pa == nil && !p.packA && p.a.ColStride != 1 ||
		ceilDiv(p.m, p.height) < p.kn.panelStrips || p.n < 4*nr || p.k < p.kn.kcMin || p.pb == nil && !p.packB && !p.localB {
		return
	}
	p.byPanel = true
	bl := blockByPanel(in, p.kn, p.kern, p.height, ceilDiv(p.m, p.height), p.k, ceilDiv(p.n, nr), 1, p.localB)
	if p.localB && (bl.kc < min(p.k, p.kn.kcMax/2) || p.m*rowPitch(bl.kc*4) > min(in.L2/4*3, aBlockBytes(in, p.kn, p.kern.mr))) {
		// Not one block, or one of short chunks: several blocks share what is packed.
		p.packB, p.localB = true, false
		bl = blockByPanel(in, p.kn, p.kern, p.height, ceilDiv(p.m, p.height), p.k, ceilDiv(p.n, nr), 1, false)
	}
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
	rows := bl.mc * p.height
	return rows*ceilDiv(bl.kc*p.a.typ.Size(), gap)*gap > period*ways/2
}

// panelGroup is the number of panels after which finished rows get their epilogue, while they are cached.
const panelGroup = 8

// computeByPanel does one job: some strips of some panels, for all of k in the part.
func (p *product) computeByPanel(worker, job int) {
	kern := p.kern
	nr := kern.b.nr
	s0, s1, p0, p1 := p.blockOf(job)
	w := &p.workers[worker]
	args := &w.args
	private := unsafe.Add(p.private, worker*p.privateStep)
	block := unsafe.Add(private, p.widenBytes)
	group := panelGroup
	if p.widen || p.localB {
		group = max(min(group, (p.widenBytes-chunkSumBytes)/(p.bl.kc*kern.b.step())), 1)
	}
	firstRow, _ := p.strip(s0)
	for t0 := 0; t0 < p.kp; t0 += p.bl.kc {
		kc := min(p.bl.kc, p.kp-t0)
		last := p.k0+p.kp == p.k && t0+kc == p.kp
		if p.copyA {
			for s := s0; s < s1; s++ {
				row, h := p.strip(s)
				p.copyStrip(unsafe.Add(block, (row-firstRow)*rowPitch(kc*4)), rowPitch(kc*4), p.m0+row, h, p.k0+t0, kc)
			}
			w.packs[0]++
		}
		for g0 := p0; g0 < p1; g0 += group {
			g1 := min(g0+group, p1)
			switch {
			case p.widen:
				p.widenChunk(private, g0, g1, t0, kc)
			case p.localB:
				p.packChunk(private, g0, g1, t0, kc)
				w.packs[1]++
			}
			for panel := g0; panel < g1; panel++ {
				args.k, args.bks = kc, kern.b.step()
				args.acc = 1
				if p.k0 == 0 && t0 == 0 && !p.acc {
					args.acc = 0
				}
				args.ldc = p.c.RowStride * 4
				args.b = p.panelAddr(private, panel, panel-g0, t0, kc)
				p.downStrips(args, block, s0, s1, firstRow, panel, p1, t0, kc)
			}
			if last && p.epi != nil {
				cols := min(g1*nr, p.np) - g0*nr
				for s := s0; s < s1; s++ {
					row, h := p.strip(s)
					p.finish(nil, row, h, 0, 0, p.n0+g0*nr, cols)
				}
			}
		}
	}
}

// panelAddr returns where step t0 of a panel of B lies, the i-th of its group.
func (p *product) panelAddr(private unsafe.Pointer, panel, i, t0, kc int) unsafe.Pointer {
	if p.widen || p.localB {
		return unsafe.Add(private, i*kc*p.kern.b.step())
	}
	return p.packedPanel(panel, t0)
}

// downStrips computes the strips of a block against one panel, those of each height in one call.
func (p *product) downStrips(args *kargs, block unsafe.Pointer, s0, s1, firstRow, panel, p1, t0, kc int) {
	kern, nr := p.kern, p.kern.b.nr
	tail := min(p.np-panel*nr, nr)
	col := p.n0 + panel*nr
	p.lookDown(args, s1-s0, panel, p1, t0, kc)
	for s := s0; s < s1; {
		row, h := p.strip(s)
		end := s1
		if s < p.rem {
			end = min(s1, p.rem)
		}
		n := end - s
		args.c = p.c.at(p.m0+row, col)
		args.cStep = h * args.ldc
		if p.copyA {
			args.a, args.ars, args.acs = unsafe.Add(block, (row-firstRow)*rowPitch(kc*4)), rowPitch(kc*4), 4
			args.aStep = h * rowPitch(kc*4)
		} else {
			args.a, args.ars, args.acs = p.addrA(s, row, h, t0)
			args.aStep = h * args.ars
			if args.acs != 4 {
				args.aStep = p.packedStrip(h)
			}
		}
		if tail < nr {
			// A short panel goes strip by strip.
			b := args.b
			for ; s < end; s++ {
				a, c := args.a, args.c
				args.bps = 0
				kern.run(args, h, 1, tail)
				if s+1 < end {
					args.a, args.b, args.c = unsafe.Add(a, args.aStep), b, unsafe.Add(c, args.cStep)
				}
			}
			args.b = b
			continue
		}
		args.nextC = args.cStep
		if end == s1 {
			args.nextC = nr*4 - (row-firstRow+(n-1)*h)*args.ldc
		}
		args.nextA, args.nextALead, args.nextAStep = uintptr(args.a), 0, args.aStep
		if pass := panel - (p1 - ceilDiv(kc, 32)); p.pa == nil && !p.packA && pass >= 0 && p.k0+t0+kc < p.k {
			// The last panels of the chunk fetch two lines of each row of the next one.
			size := p.a.typ.Size()
			args.nextA = uintptr(p.a.at(p.m0+row, p.k0+t0+kc)) + uintptr(128*pass)
			args.nextALead, args.nextAStep = p.a.RowStride*size, h*p.a.RowStride*size
		}
		f := kern.rowsDown[h]
		if args.acs != 4 {
			f = kern.fastDown[h]
		}
		args.panels, args.tail, args.bps = n, nr, 0
		b := args.b
		f(args)
		args.b = b
		s = end
	}
}

// packedStrip returns the bytes of a packed strip of h rows.
func (p *product) packedStrip(h int) int {
	steps := p.kp
	if p.pa != nil {
		steps = p.pa.steps()
	}
	return stepRows(h) * steps * 4
}

// lookDown sets what the kernel fetches while strips pass by a panel: the next panel, a part for each strip.
func (p *product) lookDown(args *kargs, strips, panel, p1, t0, kc int) {
	args.ahead, args.aheadStep, args.aheadLine = uintptr(p.panelHint(panel, t0)), 0, 0
	if p.localB {
		return
	}
	panel++
	if panel == p1 { // of what follows, only the next chunk is known to be this worker's
		if t0 += kc; t0 >= p.kp {
			return
		}
		panel = p1 - p.bl.nc
	}
	args.ahead = p.panelHint(max(panel, 0), t0)
	step := p.kern.b.step()
	if p.widen {
		step /= 2
	}
	args.aheadLine = ceilDiv(step, strips)
	args.aheadStep = kc * args.aheadLine
}

// panelHint returns the address of step t0 of a panel of B as it lies in memory.
func (p *product) panelHint(panel, t0 int) uintptr {
	if p.localB {
		return uintptr(p.private)
	}
	return uintptr(p.packedPanel(panel, t0))
}

// packedPanel returns where step t0 of a panel of B lies that is packed, by the caller or by this call.
func (p *product) packedPanel(panel, t0 int) unsafe.Pointer {
	if p.pb == nil {
		return unsafe.Add(p.bPacked, panel*p.panelBytes()+t0*p.kern.b.step())
	}
	return p.pb.addr(p.n0/p.kern.b.nr+panel, p.k0+t0)
}
