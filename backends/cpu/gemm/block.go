package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

// blocking says how a product is cut. A worker computes one block of C at a time, mc strips by nc panels, and for it goes
// through k in chunks of kc steps; for each chunk it takes strip after strip of A against all panels of the block.
//
//	L1 holds a strip of A, mr x kc: it is used by every panel, while panels stream through.
//	L2 holds the chunk of B, kc x nc, which is used by every strip, and the block of C, which stays for all chunks of k.
//
// So B comes from memory once per mc rows, A once per nc columns, C once. The chunks of k do not depend on the number of
// workers, and no chunk is shared: the result has the same bits for any number of workers.
type blocking struct {
	kc int // steps of A in a chunk
	mc int // strips in a block
	nc int // panels in a block

	unit int // panels that one call of a kernel takes together, which stay in one block
	am   int // by panels: strips of a block of A, of which there may be several in a block of C
}

// maxChunk bounds the steps of a chunk that block returns.
func maxChunk(kn *knobs) int { return 5 * kn.kcMax }

// block decides the blocking of m strips of at most h rows, steps of k and panels of B, of which kernels take so many together, for the number of
// workers. copiesA and copiesB say that chunks are copied into memory, of A for maxChunk steps, of B for the share of L2 that it has.
func block(in *cpuinfo.Info, kn *knobs, k *kernel, h, strips, steps, panels, workers, together int, copiesA, copiesB bool) blocking {
	nr := k.b.nr
	lane := k.a.lane()
	panelStep := lane * nr // bytes of B (widened, for the types that are) a step

	kc := in.L1D * kn.stripPercent / 100 / (lane * k.packedRows(k.mr))
	kc = min(max(kc, kn.kcMin), kn.kcMax)
	if k.a == aInner {
		kc = min(kc, kn.innerSteps)
	} else if h <= 4 {
		kc *= 4 // a low strip is small, and fewer passes over C pay
	}
	if strips == 1 && !copiesA && !copiesB {
		// B goes by once, at the pace of memory, which likes panels of all of k; the strip comes from L2.
		kc = max(kc, in.L2/100*kn.cPercent/(4*h))
	}
	kc = evenChunk(steps, kc)

	most := max(in.L2/100*kn.cPercent/(h*4*nr), 1) // strips times panels of a block
	if k.a == aInner {
		most = strips * panels // the kernel fetches C ahead, and every block copies A and widens B
	}
	if strips == 1 && kc == steps && !copiesB {
		wide := together
		if together == 1 && h < len(k.wideP) {
			wide = max(k.wideP[h], 1)
		}
		return blocking{kc: kc, mc: 1, nc: passOnce(panels, wide, min(max(kn.callBytes/(kc*panelStep), 1), most), workers), unit: wide}
	}
	nc := max(in.L2/100*kn.bPercent/(kc*panelStep), 1)
	unit := together
	if k.a == aInner {
		// C does not stay in L2, and of a pair of panels there is one joined at a time.
		nc, unit = 2*max(in.L2/100*(kn.bPercent+kn.cPercent)/(kc*panelStep), 1), 2
	}
	nc = min(nc, max(kn.callBytes/(kc*panelStep), 1), most, panels)
	if k.a != aInner {
		nc, unit = wholeUnits(nc, panels, unit)
	}
	if workers > 1 {
		mc, nc := share(strips, panels, strips, nc, most, workers, kn.jobsPerWorker)
		return blocking{kc: kc, mc: mc, nc: roundUp(nc, unit), unit: unit}
	}
	// Equal blocks instead of full ones and a rest.
	nc = roundUp(ceilDiv(panels, ceilDiv(panels, nc)), unit)
	mc := min(max(most/nc, 1), strips)
	mc = ceilDiv(strips, ceilDiv(strips, mc))
	return blocking{kc: kc, mc: mc, nc: nc, unit: unit}
}

// wholeUnits returns at most nc panels in whole units, unless they are all panels, and the unit: 1 where a block has no room for one.
func wholeUnits(nc, panels, unit int) (n, u int) {
	switch {
	case nc == panels:
		return nc, unit
	case nc < unit:
		return nc, 1
	}
	return nc / unit * unit, unit
}

// evenChunk divides steps into equal chunks of about kc steps, or takes them all where few would be left over.
func evenChunk(steps, kc int) int {
	if steps <= kc*5/4 {
		return max(steps, 1)
	}
	return max(roundUp(ceilDiv(steps, ceilDiv(steps, kc)), 16), 1)
}

// innerSums is the scratch memory for the sums of kernels of the inner product: their blocks are large, because each copies A and widens B.
const innerSums = 1 << 20

// scratchBytes returns the scratch memory of a worker for the sums of a block that do not go to C at once. There is room for one call of any kernel.
func scratchBytes(in *cpuinfo.Info, kn *knobs, k *kernel) int {
	room := in.L2 / 100 * kn.cPercent
	if k.a == aInner {
		room = max(room, innerSums)
	}
	return max(room, maxUnit*4*k.b.nr*k.mr)
}

// maxUnit bounds the panels that a kernel takes together.
const maxUnit = 4

// within returns a block whose sums, strips of at most h rows by panels of nr columns, take at most room bytes.
func (b blocking) within(room, h, nr int) blocking {
	most := max(room/(4*h*nr), 1)
	if b.mc <= most/b.nc {
		return b
	}
	b.nc = min(b.nc, max(most/b.unit*b.unit, b.unit))
	b.mc = max(min(b.mc, most/b.nc), 1)
	return b
}

// passOnce returns the panels of a block for a single low strip, which goes through B once, so that none of it has to stay in a cache:
// whole groups of as many panels as a kernel takes at once, at most most of them, and as many blocks for every worker.
func passOnce(panels, wide, most, workers int) int {
	groups := ceilDiv(panels, wide)
	first := ceilDiv(groups, max(most/wide, 1)*workers)
	best := ceilDiv(groups, first*workers)
	for turns := first + 1; turns <= first+6 && turns*workers <= groups; turns++ {
		// More turns for the same time of the slowest worker leave more to a worker that is not held up.
		if n := ceilDiv(groups, turns*workers); n*turns <= best*ceilDiv(groups, best*workers) {
			best = n
		}
	}
	return min(best*wide, panels)
}

// share divides strips and panels into blocks of at most mc strips, nc panels and most strips times panels, so that the workers end at
// nearly the same time. It tries up to perWorker blocks for each and prefers large blocks, because a block fetches its chunks of
// B for its strips and its strips for its panels.
func share(strips, panels, mc, nc, most, workers, perWorker int) (bm, bn int) {
	best := -1.0
	gn0 := ceilDiv(panels, nc)
	for gn := gn0; gn <= panels && (gn == gn0 || gn <= workers*perWorker); gn++ {
		n, gm0 := ceilDiv(panels, gn), 0
		for gm := ceilDiv(strips, max(min(mc, most/n), 1)); gm <= strips; gm++ {
			if gm0 == 0 {
				gm0 = gm
			}
			if gm*gn > workers*perWorker && (gm > gm0 || gn > gn0) {
				break
			}
			m := ceilDiv(strips, gm)
			// What the busiest worker computes: equal numbers of blocks even out but for one row and one column of blocks.
			even := float64(strips*panels) / float64(workers)
			busiest := float64(ceilDiv(gm*gn, workers) * m * n)
			if gm*gn%workers == 0 {
				busiest = min(busiest, even+float64(m*n-strips/gm*(panels/gn)))
			}
			score := even / busiest * (1 - 0.1/float64(m) - 0.1/float64(n))
			if score > best {
				best, bm, bn = score, m, n
			}
		}
	}
	return bm, bn
}

// panelsOf returns where block i of n side by side begins.
func (b *blocking) panelsOf(panels, n, i int) int {
	return min(split(ceilDiv(panels, b.unit), n, i)*b.unit, panels)
}

// split returns where part i of n nearly equal parts of a whole begins.
func split(whole, n, i int) int { return whole/n*i + min(i, whole%n) }

func ceilDiv(a, b int) int { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceilDiv(a, b) * b }
