package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Steps of the search. Multiples of 16 in m and n are ours: with them the rules below arrive at the paper's tiles. k moves by whole kernel blocks.
const (
	stepMN = 16
	stepK  = 8
	sideMN = 512 // no tile in 64 KB of L1 is wider
)

// About is the least side of the problem that the paper measures a tile on, "about 4K" in each dimension.
const About = 4000

// equation4 reports whether the streams bring the operands of a chunk as fast as a kernel of that many MACs a cycle consumes them.
func (m *Machine) equation4(t Tile, ty Types, rate float64) bool {
	comp := float64(t.M) * float64(t.K) * float64(t.N) / rate
	a := float64(t.M*t.K) * width(ty.A) / m.StreamRate
	b := float64(t.K*t.N) * width(ty.B) / m.StreamRate
	return comp >= max(a, b)
}

// SingleCore finds the best tile for one core fed by its streams (equations 1 to 5): among the tiles whose kernel, at that many MACs a
// cycle, is not slowed by bringing A or B, the one with the least output, and then the deepest k that fits L1. The paper states
// the objectives the other way round (most MACs first, then least output); taken literally that gives the much flatter tiles of the
// whole array, while this order gives the tiles of its table 1. A rate of 0 takes the published rate of table 1.
func SingleCore(device string, ty Types, rate float64) (Tile, error) {
	m, err := Lookup(device)
	if err != nil {
		return Tile{}, err
	}
	kn, err := m.kernelFor(ty)
	if err != nil {
		return Tile{}, err
	}
	if rate == 0 {
		r, ok := Published().single(m.Name, ty.String())
		if !ok {
			return Tile{}, fmt.Errorf("no kernel rate is published for %s on %s: give one", ty, m.Name)
		}
		rate = r.MACs
	}
	for side := stepMN; side <= sideMN; side += stepMN {
		t := Tile{M: side, K: kn.S, N: side}
		if !m.equation4(t, ty, rate) {
			continue
		}
		d := Design{Device: m.Name, Types: ty}
		for k := roundUp(stepK, kn.S); ; k += roundUp(stepK, kn.S) {
			d.Tile = Tile{side, k, side}
			if d.L1Bytes() > m.L1 {
				break
			}
			t.K = k
		}
		return t, nil
	}
	return Tile{}, fmt.Errorf("no square tile on %s feeds a kernel of %.0f MACs a cycle", m.Name, rate)
}

// Widest are the tiles of that k with the largest output that fit L1 and satisfy equation 4: the integer program of one step of the
// paper's search. Tiles of equal output, such as a tile and its transpose, all count.
func (m *Machine) Widest(base Design, k int) []Tile {
	kn := m.Kernels[base.Types]
	um := max(stepMN, 2*kn.R*base.bands())
	um = roundUp(um, 2*kn.R*base.bands())
	un := roundUp(stepMN, 2*kn.T)
	best := 0
	var tiles []Tile
	for mm := um; mm <= sideMN; mm += um {
		for n := un; n <= sideMN; n += un {
			d := base
			d.Tile = Tile{mm, k, n}
			if d.L1Bytes() > m.L1 {
				break
			}
			if mm*n < best || m.KernelCycles(d) < m.ChunkCycles(d) {
				continue
			}
			if mm*n > best {
				best, tiles = mm*n, tiles[:0]
			}
			tiles = append(tiles, d.Tile)
		}
	}
	return tiles
}

// Saturation is how near to the best rate a k_mt has to come: the search takes the smallest that does, because a small native size needs less padding.
const Saturation = 0.005

// maxKMT bounds k_mt: beyond it a native size becomes so deep that padding eats what longer runs gain.
const maxKMT = 1024

// PickKMT returns the smallest k_mt at which the predicted rate saturates, and the one with the best rate, or 0 if none fits the MemTiles.
func (m *Machine) PickKMT(base Design) (saturated, best int) {
	var rates []float64
	top := 0.0
	for kmt := base.Tile.K; kmt <= maxKMT; kmt += base.Tile.K {
		d := base
		d.KMT = kmt
		if d.Check() != nil {
			break
		}
		rates = append(rates, m.Rate(d, About))
		if v := rates[len(rates)-1]; v > top {
			top, best = v, kmt
		}
	}
	for i, v := range rates {
		if v >= (1-Saturation)*top {
			return (i + 1) * base.Tile.K, best
		}
	}
	return 0, 0
}

// Step is one tile that a search has tried.
type Step struct {
	Design Design
	Size   Size    // of the measurement, about 4K
	TOPS   float64 // as measured
	Rate   float64 // kernel MACs a cycle
	Bound  string  // by the analytic model
}

// Search is the outcome of a search.
type Search struct {
	Best       Step
	Steps      []Step // in the order of the search: with [Find] k falling
	Considered int    // designs that were rated
}

// SearchOptions steer a search. The zero value searches by the analytic model from the single-core tile down.
type SearchOptions struct {
	Measure  Measure // what is maximized, on the design's problem of about 4K; nil = the analytic model's Rate
	FromK    int     // first k_ct; 0 = that of the single-core tile
	Patience int     // steps without a better rate before the search ends; 0 = 8, since m n moves in coarse steps and the rate with it
}

// Find is the paper's search for the balance point: k_ct falls step by step, m_ct n_ct is as large as it can be at each, until the rate
// falls because arithmetic has become slower than DRAM. Each tile has the smallest k_mt at which its rate saturates. Base gives device, types and
// options; its tile and k_mt are found.
func Find(base Design, o SearchOptions) (Search, error) {
	m, err := Lookup(base.Device)
	if err != nil {
		return Search{}, err
	}
	base.Device = m.Name
	kn, err := m.kernelFor(base.Types)
	if err != nil {
		return Search{}, err
	}
	if o.Patience == 0 {
		o.Patience = 8
	}
	stepK := roundUp(stepK, kn.S)
	k := o.FromK
	if k == 0 {
		one, err := SingleCore(m.Name, base.Types, m.startRate(base.Types))
		if err != nil {
			return Search{}, err
		}
		k = one.K
	}
	var out Search
	since := 0
	for k = k / stepK * stepK; k >= stepK && since < o.Patience; k -= stepK {
		better, before := false, len(out.Steps)
		for _, t := range m.Widest(base, k) {
			d := base
			d.Tile = t
			if d.KMT, _ = m.PickKMT(d); d.KMT == 0 {
				continue
			}
			step, err := m.step(d, o.Measure)
			if err != nil {
				return Search{}, err
			}
			out.Steps = append(out.Steps, step)
			out.Considered++
			if step.TOPS > out.Best.TOPS {
				out.Best, better = step, true
			}
		}
		switch {
		case better:
			since = 0
		case len(out.Steps) > before: // no tile of this depth says nothing
			since++
		}
	}
	if out.Best.TOPS == 0 {
		return out, fmt.Errorf("no tile of %s fits %s", base.Types, m.Name)
	}
	return out, nil
}

// step measures one design on its problem of about 4K.
func (m *Machine) step(d Design, measure Measure) (Step, error) {
	s := d.Near(About)
	if measure == nil {
		p := m.Predict(d, s)
		return Step{Design: d, Size: s, TOPS: m.Rate(d, About), Rate: m.KernelRate(d), Bound: p.Bound}, nil
	}
	sec, err := measure(d, s)
	if err != nil {
		return Step{}, fmt.Errorf("measure %v on %v: %w", d, s, err)
	}
	return Step{Design: d, Size: s, TOPS: s.Ops() / sec / 1e12, Rate: m.KernelRate(d), Bound: m.Predict(d, s).Bound}, nil
}

// startRate is the kernel rate with which the search begins: the published one, or 90 % of the peak.
func (m *Machine) startRate(ty Types) float64 {
	if r, ok := Published().single(m.Name, ty.String()); ok {
		return r.MACs
	}
	return 0.9 * m.Kernels[ty].MACs
}

// Families of designs that [Candidates] knows.
const (
	FamilyPaper       = "paper"
	FamilyATB         = "atb"          // A in bands
	FamilyResident    = "resident"     // B in the MemTiles
	FamilyATBResident = "atb+resident" // both
	FamilyBFP16       = "bfp16"        // bfp16 weights, in any of the four ways of buffering
	FamilyBest        = "best"         // all that the types allow
)

const (
	maxBands     = 12
	minTileDepth = 16
)

// Candidates are all designs of a family for the given types: every tile that fits, with every k_mt that may be worth its depth.
// Designs that are plainly worse (a shallower k at the same m, n, bands and padding) are left out by stepping k down from the deepest that fits
// by an eighth at a time.
func (m *Machine) Candidates(ty Types, family string) []Design {
	kn, ok := m.Kernels[ty]
	if !ok {
		return nil
	}
	if packed := ty.B == kernel.BFP16; family != FamilyBest && packed != (family == FamilyBFP16) {
		return nil
	}
	all := family == FamilyBest || family == FamilyBFP16
	var out []Design
	for bands := 1; bands <= maxBands; bands++ {
		if bands == 1 && (family == FamilyATB || family == FamilyATBResident) || bands > 1 && !(all || family == FamilyATB || family == FamilyATBResident) {
			continue
		}
		um, un := 2*kn.R, 2*kn.T // whatever the kernel takes
		sides := 1               // mappings: where rows and columns differ in number, the transposed one too
		if family == FamilyPaper {
			um, un = stepMN, stepMN
		} else if m.Rows != m.Cols {
			sides = 2
		}
		for mm := um; mm <= sideMN/2; mm += um {
			if mm%(2*kn.R*bands) != 0 {
				continue
			}
			for n := un; n <= sideMN/2*sides; n += un {
				d := Design{Device: m.Name, Types: ty, Bands: bands, Tile: Tile{M: mm, N: (n-1)%(sideMN/2) + 1}, Transposed: n > sideMN/2}
				if bands == 1 {
					d.Bands = 0
				}
				deepest := 0
				for k := stepK; ; k += stepK {
					d.Tile.K = k
					if d.L1Bytes() > m.L1 {
						break
					}
					deepest = k
				}
				for k := deepest; k >= max(minTileDepth, deepest*5/8); k -= max(stepK, deepest/8/stepK*stepK) {
					d.Tile.K = k
					if m.KernelCycles(d) < 0.97*m.ChunkCycles(d) { // starved by its streams
						continue
					}
					for kmt := k; kmt <= maxKMT; kmt += k {
						// Runs shorter than RunHalf lose too much; beyond three of them nothing is left to gain.
						if run := float64(kmt) * width(ty.A); run < m.RunHalf || run > 3*m.RunHalf && kmt > k {
							continue
						}
						d.KMT = kmt
						if d.ResidentB = false; d.Check() != nil {
							break
						}
						if all || family == FamilyPaper || family == FamilyATB {
							out = append(out, d)
						}
						if d.ResidentB = !d.Transposed; d.ResidentSlots() < 2 {
							continue
						}
						if all || family == FamilyResident || family == FamilyATBResident {
							out = append(out, d)
						}
					}
				}
			}
		}
	}
	return out
}

// Work is one product of a program and how often it runs in a row.
type Work struct {
	Size
	Count int
}

// Leg is a run of products on one configuration.
type Leg struct {
	Design  Design
	First   int     // index of its first product
	Seconds float64 // of its products
}

// Choice is the planner's answer for a program.
type Choice struct {
	Legs       []Leg
	Seconds    float64 // products and reconfigurations between legs; the first configuration is loaded before the program starts
	Single     Design  // best on one configuration
	SingleTime float64
	Considered int // designs that take all products
}

// ChooseOptions steer [Choose].
type ChooseOptions struct {
	Families []string          // nil = all
	Accept   func(Design) bool // nil = all; lets a caller keep only designs that it can build
}

// Choose finds the designs that run a program's products, in order, in the least total time: one configuration, or several if the time that
// they save is more than their reconfigurations take. Types are the alternatives that the program's precision allows, for
// instance bf16-bf16 and bf16-bfp16.
func Choose(device string, types []Types, work []Work, o ChooseOptions) (Choice, error) {
	m, err := Lookup(device)
	if err != nil {
		return Choice{}, err
	}
	if len(work) == 0 {
		return Choice{}, fmt.Errorf("no products to plan for")
	}
	families := o.Families
	if families == nil {
		families = []string{FamilyBest}
	}
	demand := demandOf(work)
	var designs []Design
	for _, ty := range types {
		if _, err := m.kernelFor(ty); err != nil {
			return Choice{}, err
		}
		for _, f := range families {
			for _, d := range m.Candidates(ty, f) {
				if o.Accept == nil || o.Accept(d) {
					designs = append(designs, d)
				}
			}
		}
	}
	all := demand.rate(designs, m)
	ranked := slices.DeleteFunc(slices.Clone(all), func(r *rated) bool { return math.IsInf(r.total, 1) })
	if len(ranked) == 0 {
		return Choice{}, fmt.Errorf("no design of %v fits %s and takes all %d sizes", types, m.Name, len(demand.sizes))
	}
	slices.SortStableFunc(ranked, func(a, b *rated) int { return cmp.Compare(a.total, b.total) })
	out := Choice{Single: ranked[0].design, SingleTime: ranked[0].total, Considered: len(ranked)}
	out.Legs, out.Seconds = demand.route(work, demand.contenders(all, ranked), m.Reconfig)
	return out, nil
}

// demand is a program's products by size.
type demand struct {
	sizes  []Size
	index  map[Size]int
	weight []float64 // products of each size
}

func demandOf(work []Work) *demand {
	q := &demand{index: map[Size]int{}}
	for _, w := range work {
		if _, ok := q.index[w.Size]; !ok {
			q.index[w.Size] = len(q.sizes)
			q.sizes = append(q.sizes, w.Size)
			q.weight = append(q.weight, 0)
		}
		q.weight[q.index[w.Size]] += float64(max(1, w.Count))
	}
	return q
}

// rated is a design with the times that it needs.
type rated struct {
	design Design
	times  []float64 // of a product of each size; infinite where it takes none
	total  float64   // of all products
}

// rate predicts the times of designs.
func (q *demand) rate(designs []Design, m *Machine) []*rated {
	list := make([]*rated, len(designs))
	for i, d := range designs {
		r := &rated{design: d, times: make([]float64, len(q.sizes))}
		for j, s := range q.sizes {
			r.times[j] = m.Predict(d, s).Seconds
			r.total += q.weight[j] * r.times[j]
		}
		list[i] = r
	}
	return list
}

// contenders returns the designs that can be among several configurations: the first of those that take everything, and what is best for some size.
func (q *demand) contenders(all, ranked []*rated) []*rated {
	const first = 16
	keep := slices.Clone(ranked[:min(len(ranked), first)])
	for j := range q.sizes {
		best := slices.MinFunc(all, func(a, b *rated) int { return cmp.Compare(a.times[j], b.times[j]) })
		if !slices.Contains(keep, best) {
			keep = append(keep, best)
		}
	}
	return keep
}

// route is the shortest path over the products in order, where changing the design costs a reconfiguration.
func (q *demand) route(work []Work, among []*rated, reconfig float64) (legs []Leg, seconds float64) {
	took := func(r *rated, w Work) float64 { return float64(max(1, w.Count)) * r.times[q.index[w.Size]] }
	cost := make([]float64, len(among))
	from := make([][]int, len(work))
	for w, x := range work {
		least := slices.Index(cost, slices.Min(cost))
		next := make([]float64, len(among))
		from[w] = make([]int, len(among))
		for i, r := range among {
			stay, change := cost[i], cost[least]+reconfig
			from[w][i] = i
			if w > 0 && change < stay {
				stay, from[w][i] = change, least
			}
			next[i] = stay + took(r, x)
		}
		cost = next
	}
	i := slices.Index(cost, slices.Min(cost))
	seconds = cost[i]
	path := make([]int, len(work))
	for w := len(work) - 1; w >= 0; w-- {
		path[w] = i
		i = from[w][i]
	}
	for w, x := range work {
		r := among[path[w]]
		if w == 0 || path[w] != path[w-1] {
			legs = append(legs, Leg{Design: r.design, First: w})
		}
		legs[len(legs)-1].Seconds += took(r, x)
	}
	return legs, seconds
}

// Placement is the planner's view on whether a product belongs on the array.
type Placement struct {
	Array   bool
	Seconds float64 // on the array
	CPU     float64 // on the CPU, at the given rate
	Useful  float64
	Reason  string // one sentence
}

// Place compares the array with a CPU of the given rate in operations a second. A product of few rows costs the array as much as one of
// a whole row block, which is what the reason then says.
func (m *Machine) Place(d Design, s Size, cpuRate float64) Placement {
	p := m.Predict(d, s)
	out := Placement{Seconds: p.Seconds, CPU: s.Ops() / cpuRate, Useful: p.Useful}
	out.Array = out.Seconds < out.CPU
	side, than := "array", "less"
	if !out.Array {
		side, than = "CPU", "more"
	}
	out.Reason = fmt.Sprintf("%s: predicted %s on the array, %s than %s on the CPU; %.0f %% of the padded %v is useful work",
		side, secs(out.Seconds), than, secs(out.CPU), 100*out.Useful, p.Padded)
	return out
}

func secs(s float64) string {
	switch {
	case s < 1e-6:
		return fmt.Sprintf("%.0f ns", s*1e9)
	case s < 1e-3:
		return fmt.Sprintf("%.0f us", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}

// Best finds the design of a family with the highest predicted rate on its own multiple of the native size nearest to side, as the paper's tables
// measure; accept (nil = all) keeps only some. Its steps are the candidates that led in turn, rates rising to the best, of which those that differ in k_mt alone are
// one. Without a candidate all is zero.
func Best(m *Machine, ty Types, family string, side int, accept func(Design) bool) Search {
	var out Search
	for _, d := range m.Candidates(ty, family) {
		out.Considered++
		s := d.Near(side)
		if p := m.Predict(d, s); p.TOPS > out.Best.TOPS && (accept == nil || accept(d)) {
			last := out.Best.Design
			if last.KMT = d.KMT; last == d {
				out.Steps = out.Steps[:len(out.Steps)-1]
			}
			out.Best = Step{Design: d, Size: s, TOPS: p.TOPS, Rate: m.KernelRate(d), Bound: p.Bound}
			out.Steps = append(out.Steps, out.Best)
		}
	}
	return out
}

// BestNear is the design that [Best] finds and its rate in TOPS.
func BestNear(m *Machine, ty Types, family string, side int, accept func(Design) bool) (Design, float64) {
	best := Best(m, ty, family, side, accept).Best
	return best.Design, best.TOPS
}
