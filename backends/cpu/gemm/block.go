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
}

// maxChunk bounds the steps of a chunk that block returns.
func maxChunk(kn *knobs) int { return 5 * kn.kcMax }

// block decides the blocking of m strips of at most h rows, steps of k and panels of B for the number of workers.
func block(in *cpuinfo.Info, kn *knobs, k *kernel, h, strips, steps, panels, workers int) blocking {
	nr := k.b.nr
	panelStep := 4 * nr // bytes of B (widened, for the types that are) a step

	kc := in.L1D * kn.stripPercent / 100 / (4 * stepRows(k.mr))
	kc = min(max(kc, kn.kcMin), kn.kcMax)
	if h <= 4 {
		kc *= 4 // a low strip is small, and fewer passes over C pay
	}
	if steps <= kc*5/4 {
		kc = steps
	} else {
		chunks := ceilDiv(steps, kc)
		kc = roundUp(ceilDiv(steps, chunks), 16)
	}
	kc = max(kc, 1)

	if strips == 1 && kc == steps && h < len(k.wideP) {
		return blocking{kc, 1, passOnce(panels, k.wideP[h], max(kn.callBytes/(kc*panelStep), 1), workers)}
	}
	nc := max(in.L2/100*kn.bPercent/(kc*panelStep), 1)
	nc = min(nc, max(kn.callBytes/(kc*panelStep), 1), max(in.L2/100*kn.cPercent/(h*panelStep), 1), panels)
	mc := max(in.L2/100*kn.cPercent/(nc*panelStep*h), 1)
	mc = min(mc, strips)
	// Equal blocks instead of full ones and a rest.
	nc = ceilDiv(panels, ceilDiv(panels, nc))
	mc = ceilDiv(strips, ceilDiv(strips, mc))
	if workers > 1 {
		nc, mc = share(nc, mc, strips, panels, h, workers, kn.jobsPerWorker)
	}
	return blocking{kc, mc, nc}
}

// passOnce returns the panels of a block for a single low strip, which goes through B once, so that none of it has to stay in a cache:
// whole groups of as many panels as a kernel takes at once, at most most of them, and as many blocks for every worker.
func passOnce(panels, wide, most, workers int) int {
	wide = max(wide, 1)
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

// share makes blocks smaller until every worker has several, or one exactly: rows first while the chunk of B is still reused
// enough, then columns.
func share(nc, mc, strips, panels, h, workers, perWorker int) (int, int) {
	for {
		gm, gn := ceilDiv(strips, mc), ceilDiv(panels, nc)
		jobs := gm * gn
		if jobs >= workers*perWorker || jobs%workers == 0 && jobs > 0 && strips%gm == 0 && panels%gn == 0 {
			return nc, mc
		}
		switch {
		case mc > 1 && mc*h >= nc*8:
			mc = min(mc-1, ceilDiv(strips, gm+1))
		case nc > 1:
			nc = min(nc-1, ceilDiv(panels, gn+1))
		case mc > 1:
			mc = min(mc-1, ceilDiv(strips, gm+1))
		default:
			return nc, mc
		}
	}
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
func roundUp(a, b int) int { return ceilDiv(a, b) * b }
