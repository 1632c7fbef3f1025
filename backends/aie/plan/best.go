package plan

import (
	"fmt"
	"sort"

	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
)

// newBest searches grids, blocks and feeds for the least predicted time; of equals, the one that reads and writes less DDR.
//
// A tile keeps an MB x NB block of C for the whole of K: A and B arrive in blocks of KB steps over one stream each, both
// double-buffered in data memory, and the copies overlap the arithmetic. Two bounds shape the blocks. A stream carries w bytes a cycle (4, or less where the
// programmable logic is slower), so A keeps up if NB >= bytes x MACs / w, and B if MB is as large: 40 for int8 at 1.25 GHz. And every
// buffer that the DMA writes has banks of its own, because a bank serves one access a cycle and the core loads two operands in each: KB is
// the largest that 8 banks of 4 KB allow.
func newBest(d device.Device, prob Problem, opt Options) (*Plan, error) {
	k := core.KernelFor(prob.Type)
	if opt.Chain > 1 && prob.Type == core.FP32 {
		return nil, fmt.Errorf("chain=%d for fp32: the cascade carries accumulators, and fp32 sums stand in vector registers; 1 is right", opt.Chain)
	}
	tiles := opt.Tiles
	if tiles == 0 {
		tiles = d.Tiles()
	}
	if opt.Rows > d.CoreRows || opt.Groups*max(opt.Chain, 1) > d.Cols {
		return nil, fmt.Errorf("grid of %s and %s: %s has %d rows and %d columns of cores", counted(opt.Rows, "row"), counted(opt.Groups*max(opt.Chain, 1), "column"), d.Name, d.CoreRows, d.Cols)
	}
	var best *Plan
	bestT, bestDDR, bestTOPS := 0.0, 0.0, 0.0
	searched, fit := 0, 0
	var whyNot error
	shapes := blockShapes(k, &prob, opt)
	for i := len(shapes) - 1; i >= 0; i-- { // large blocks first: they win more often, and what they reach prunes the rest
		s := shapes[i]
		for _, g := range grids(&d, &prob, opt, tiles, s.mb, s.nb) {
			base := Plan{Problem: prob, Device: d, Design: Best, Kernel: k, MB: s.mb, NB: s.nb, Rows: g[0], Chain: g[1], Groups: g[2], Tiles: g[0] * g[1] * g[2]}
			if err := base.fitLocal(s.outs, opt.KB); err != nil {
				whyNot = err
				continue
			}
			base.PassM, base.PassN = ceil(prob.M, base.Rows*base.MB), ceil(prob.N, base.Groups*base.NB)
			if best != nil && base.atLeast() > bestT*1.0001 {
				continue
			}
			base.CLanes = min(base.Rows, d.Core.SouthOut)
			base.place()
			if err := base.routable(); err != nil {
				whyNot = err
				continue
			}
			base.cLoad, base.cStreams = base.laneLoad()
			for _, f := range feeds {
				searched++
				p := base
				p.OuterN, p.FeedA, p.FeedB = f.outerN, f.a, f.b
				if opt.StreamWeights && p.FeedA == Resident {
					continue
				}
				if err := p.fitFPGA(); err != nil {
					whyNot = err
					continue
				}
				fit++
				pr := p.Predict()
				t, ddr := pr.Cycles, pr.Bytes.DDR
				better := best == nil || t < bestT*0.9999
				if !better && t < bestT*1.0001 {
					better = ddr < bestDDR || ddr == bestDDR && pr.ArrayTOPS > bestTOPS
				}
				if better {
					q := p
					best, bestT, bestDDR, bestTOPS = &q, t, ddr, pr.ArrayTOPS
				}
			}
		}
	}
	if best == nil {
		if whyNot == nil {
			whyNot = fmt.Errorf("no grid of at most %s with rows=%d, chain=%d, groups=%d (0 = any): up to %d rows, chains of %d and %d columns are right",
				counted(tiles, "tile"), opt.Rows, opt.Chain, opt.Groups, d.CoreRows, d.Core.EastOut, d.Cols)
		}
		return nil, whyNot
	}
	if need := best.ddrNeed(); need > d.DDRBytes {
		return nil, fmt.Errorf("product needs %d bytes of DDR for its operands, %s has %d", need, d.Name, d.DDRBytes)
	}
	best.Searched, best.Considered = fit, searched
	best.explain()
	return best, nil
}

// atLeast is a lower bound of the cycles, for pruning: the arithmetic with its padding, or the slower stream of the two operands.
func (p *Plan) atLeast() float64 {
	w := p.Device.PLIOBytes()
	step := max(float64(p.Kernel.MACCycles(p.KB)*(p.MB/p.Kernel.MR)*(p.NB/p.Kernel.NR)), float64(p.BlockA())/w, float64(p.BlockB())/w)
	return step * float64(p.Steps*p.PassM*p.PassN)
}

func (p *Plan) ddrNeed() int64 {
	e := int64(p.Type.Bytes())
	need := p.BytesC() + int64(p.N)*int64(p.K)*e
	if p.FeedA != Resident {
		need += p.BytesA()
	}
	return need
}

// feeds are the combinations of loop order and placement worth trying.
var feeds = []struct {
	outerN bool
	a, b   Feed
}{
	{true, Resident, Stationary},
	{false, Resident, Hold},
	{false, Resident, Stream},
	{true, Stream, Stationary},
	{true, Hold, Stationary},
	{false, Stationary, Hold},
	{false, Stationary, Stream},
}

type shape struct{ mb, nb, outs int }

// blockShapes lists block sizes of C: multiples of the micro-tile, not much larger than the streams and the problem ask for.
func blockShapes(k core.Kernel, prob *Problem, opt Options) []shape {
	var out []shape
	pick := func(asked, unit, size int) []int {
		if asked != 0 {
			return []int{roundUp(asked, unit)}
		}
		var v []int
		for x := unit; x <= 96 && x < size+unit; x += unit {
			v = append(v, x)
		}
		return v
	}
	for _, mb := range pick(opt.MB, k.MR, prob.M) {
		for _, nb := range pick(opt.NB, k.NR, prob.N) {
			for outs := 1; outs <= 2; outs++ {
				out = append(out, shape{mb, nb, outs})
			}
		}
	}
	return out
}

// grids lists (rows, chain, groups): for each number of rows and each chain the most groups, and the numbers that split N evenly.
func grids(d *device.Device, prob *Problem, opt Options, tiles, mb, nb int) [][3]int {
	var out [][3]int
	maxRows := min(d.CoreRows, ceil(prob.M, mb), tiles)
	if opt.Rows != 0 {
		maxRows = opt.Rows
	}
	chains := []int{1, 2, 3, 4}
	if prob.Type == core.FP32 {
		chains = []int{1}
	}
	if opt.Chain != 0 {
		chains = []int{opt.Chain}
	}
	for rows := 1; rows <= maxRows; rows++ {
		if opt.Rows != 0 && rows != opt.Rows || opt.MC != 0 && rows*mb > max(opt.MC, mb) {
			continue
		}
		// A number of rows with as many passes as a smaller one only adds padding.
		if opt.Rows == 0 && rows > 1 && ceil(prob.M, mb*rows) == ceil(prob.M, mb*(rows-1)) {
			continue
		}
		for _, chain := range chains {
			// The rows' A streams, one for each column of the chain, travel side by side on the lanes between neighbours.
			if chain > d.Core.EastOut || opt.Chain == 0 && chain > 1 && prob.K < 64*chain {
				continue
			}
			most := min(d.Cols/chain, tiles/(rows*chain), ceil(prob.N, nb))
			for most > 1 && !reachable(d, rows, chain, most) {
				most--
			}
			seen := map[int]bool{}
			add := func(z int) {
				if z >= 1 && z <= most && !seen[z] {
					seen[z] = true
					out = append(out, [3]int{rows, chain, z})
				}
			}
			if opt.Groups != 0 {
				if rows*chain*opt.Groups <= tiles {
					out = append(out, [3]int{rows, chain, opt.Groups})
				}
				continue
			}
			for passes := ceil(prob.N, nb*max(most, 1)); passes <= 8*ceil(prob.N, nb*max(most, 1)); passes *= 2 {
				add(ceil(prob.N, nb*passes))
			}
			// Fewer groups leave FPGA RAM for a second panel of B.
			for _, z := range []int{most, most - 1, most - 2, most * 3 / 4, most / 2} {
				add(z)
			}
		}
	}
	return out
}

// reachable reports whether a grid's streams reach its columns.
func reachable(d *device.Device, rows, chain, groups int) bool {
	p := Plan{Device: *d, Rows: rows, Chain: chain, Groups: groups}
	p.place()
	return p.routable() == nil
}

// fitLocal chooses KB and lays the buffers over the banks of a core's data memory.
func (p *Plan) fitLocal(outs, kbAsked int) error {
	d, e := &p.Device, p.Type.Bytes()
	bank := d.BankBytes()
	share := ceil(p.K, p.Chain)
	pBytes, oBytes := p.MB*p.NB*p.Type.PartialBytes(), p.MB*p.NB*p.Out.Bytes()
	oBanks := ceil(oBytes, bank)
	try := func(single bool) bool {
		left := d.Core.Banks - outs*oBanks
		slack := outs*oBanks*bank - outs*oBytes
		if !single {
			left -= ceil(pBytes, bank)
			slack = max(slack, ceil(pBytes, bank)*bank-pBytes)
		}
		if slack < stackBytes {
			left--
		}
		best := 0
		for aB := 1; 2*aB < left; aB++ {
			bB := (left - 2*aB) / 2
			if bB < 1 {
				break
			}
			kb := min(aB*bank/(p.MB*e), bB*bank/(p.NB*e)) / p.Kernel.KS * p.Kernel.KS
			best = max(best, kb)
		}
		// A descriptor of a core moves 8,192 words.
		best = min(best, 4*8192/(max(p.MB, p.NB)*e)/p.Kernel.KS*p.Kernel.KS)
		if kbAsked != 0 {
			if kbAsked > best {
				best = 0
			} else {
				best = roundUp(kbAsked, p.Kernel.KS)
			}
		}
		if best == 0 {
			return false
		}
		p.Steps = ceil(share, best)
		if single != (p.Steps == 1) {
			return false
		}
		p.KB = roundUp(ceil(share, p.Steps), p.Kernel.KS)
		if kbAsked != 0 {
			p.KB = best
		}
		return true
	}
	if !try(true) && !try(false) {
		return fmt.Errorf("blocks of %d x %d (m, n) with results of %v: two buffers each of A and B, sums and results do not fit %d banks of %d bytes of local memory",
			p.MB, p.NB, p.Out, d.Core.Banks, bank)
	}
	at := 0
	take := func(bytes int) int {
		was := at
		at += ceil(bytes, bank) * bank
		return was
	}
	l := Buffers{Partial: -1, Outs: outs, Out: [2]int{-1, -1}}
	l.A[0], l.A[1] = take(p.MB*p.KB*e), take(p.MB*p.KB*e)
	l.B[0], l.B[1] = take(p.KB*p.NB*e), take(p.KB*p.NB*e)
	end := 0
	if p.Steps > 1 {
		l.Partial = take(pBytes)
		end = l.Partial + pBytes
	}
	for i := range outs {
		l.Out[i] = take(oBytes)
	}
	oEnd := l.Out[0] + outs*oBanks*bank - (oBanks*bank - oBytes)
	switch {
	case end != 0 && ceil(end, bank)*bank-end >= stackBytes:
		l.Stack = ceil(end, bank)*bank - stackBytes
	case at-oEnd >= stackBytes:
		l.Stack = at - stackBytes
	default:
		l.Stack = take(stackBytes)
	}
	if at > d.Core.MemoryBytes {
		return fmt.Errorf("blocks of %d x %d x %d need %d bytes of local memory, %d are there", p.MB, p.KB, p.NB, at, d.Core.MemoryBytes)
	}
	l.Bytes = 2*(p.MB+p.NB)*p.KB*e + outs*oBytes + stackBytes
	if p.Steps > 1 {
		l.Bytes += pBytes
	}
	l.Banks = at / bank
	p.Local = l
	return nil
}

// fitFPGA sizes the staging rings and checks the FPGA RAM.
func (p *Plan) fitFPGA() error {
	inner, outer := p.Inner(), p.Outer()
	have := p.Device.FPGABytes()
	need := int64(0)
	ring := func(f Feed, slab int64) int {
		switch f {
		case Resident:
			return 0
		case Hold:
			return inner * p.Steps
		case Stationary:
			if inner == 1 {
				return min(4, outer*p.Steps)
			}
			return p.Steps * min(2, outer)
		}
		return min(4, outer*inner*p.Steps)
	}
	fa, fb := p.FeedA, p.FeedB
	p.SlotsA, p.SlotsB = ring(fa, p.SlabA()), ring(fb, p.SlabB())
	if fa == Resident {
		need += p.BytesA()
	}
	total := func() int64 { return need + int64(p.SlotsA)*p.SlabA() + int64(p.SlotsB)*p.SlabB() }
	// A second copy of a stationary panel overlaps its staging with the work on the first; without room for it, one must do.
	for _, s := range []struct {
		f     Feed
		slots *int
	}{{fb, &p.SlotsB}, {fa, &p.SlotsA}} {
		if total() > have && s.f == Stationary && *s.slots > p.Steps {
			*s.slots = p.Steps
		}
	}
	p.FPGABytes = total()
	if p.FPGABytes > have {
		return fmt.Errorf("A %v and B %v need %d bytes of FPGA RAM, %d are there", fa, fb, p.FPGABytes, have)
	}
	return nil
}

func (p *Plan) explain() {
	d, l := &p.Device, &p.Local
	w := d.PLIOBytes()
	p.why("grid of %s x %s of %s = %s: rows share M, groups share N, the columns of a group share K and add their sums over the cascade",
		counted(p.Rows, "row"), counted(p.Groups, "group"), counted(p.Chain, "column"), counted(p.Tiles, "tile"))
	p.why("block of C %d x %d: a stream of %.3g bytes a cycle feeds A if n >= %.3g and B if m >= as much", p.MB, p.NB, w,
		float64(p.Type.Bytes()*p.Type.PeakMACs())/w)
	p.why("k_c = %d in %s: the largest that %d banks of %d bytes hold with A and B double-buffered in banks of their own (%d bytes in use)", p.KB, counted(p.Steps, "step"), d.Core.Banks, d.BankBytes(), l.Bytes)
	if p.Steps > 1 {
		p.why("sums of %d bytes wait in local memory between steps, so C is written once, after the whole of K", p.Type.PartialBytes())
	}
	switch p.FeedA {
	case Resident:
		p.why("A is prepacked whole into FPGA RAM (%d bytes)", p.BytesA())
	default:
		p.why("A (%d bytes, %v) does not stay in FPGA RAM beside B and is read from DDR", p.BytesA(), p.FeedA)
	}
	p.why("B is packed on its way from DDR into FPGA RAM (%v, %s of %d bytes); FPGA RAM in use %d of %d bytes", p.FeedB, counted(p.SlotsB, "slab"), p.SlabB(), p.FPGABytes, d.FPGABytes())
}

// counted is a number of things in words.
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Alternatives returns the best plan for each number of tiles up to the device's, to show scaling.
func Alternatives(dev *device.Device, prob Problem, opt Options, tiles []int) ([]*Plan, error) {
	sort.Ints(tiles)
	var out []*Plan
	for _, t := range tiles {
		opt.Tiles = t
		p, err := New(dev, prob, opt)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}
