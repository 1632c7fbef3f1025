package plan

import (
	"github.com/tessera-go/tessera/backends/aie/core"
)

// CopyCyclesPerByte is the cost of copying B_r from DDR to local memory as the seed's processor orchestrates it: 8,309 cycles for the
// 2,320 bytes of k_c = 290 (section 6.5 of the seed), the only size published.
const CopyCyclesPerByte = 8309.0 / 2320

// Bytes counts traffic, both directions together.
type Bytes struct {
	DDR   float64 `json:"ddr"`
	FPGA  float64 `json:"fpga"`  // FPGA RAM, read and written
	Local float64 `json:"local"` // local memories, by DMA and streams
}

// Limit is a resource that a product needs.
type Limit struct {
	Name    string  `json:"name"`
	Bytes   float64 `json:"bytes,omitempty"`   // that the product moves through it
	Rate    float64 `json:"rate,omitempty"`    // bytes a second that it gives
	Asked   float64 `json:"asked,omitempty"`   // bytes a second that the product would move if nothing else held it up
	Seconds float64 `json:"seconds"`           // that the resource alone would take
	Percent float64 `json:"percent,omitempty"` // of the product's time
	What    string  `json:"what,omitempty"`    // in words
}

// Prediction is what the model says about a plan.
type Prediction struct {
	Cycles       float64 `json:"cycles"`
	Seconds      float64 `json:"seconds"`
	MACsPerCycle float64 `json:"macs_per_cycle"`      // of all tiles together
	PerTile      float64 `json:"macs_per_cycle_tile"` // of one
	Efficiency   float64 `json:"efficiency_percent"`  // of the peak of the tiles in use
	TOPS         float64 `json:"tops"`
	ArrayTOPS    float64 `json:"array_tops"`         // if DDR were no limit
	DDRTOPS      float64 `json:"ddr_tops"`           // that DDR alone would allow
	PeakPercent  float64 `json:"peak_percent"`       // of the peak of the whole device
	ArrayPercent float64 `json:"array_peak_percent"` // ArrayTOPS in percent of the peak of the whole device
	Bytes        Bytes   `json:"bytes"`
	Bound        string  `json:"bound"`
	Limits       []Limit `json:"limits"`
}

// Predict costs the plan in closed form.
func (p *Plan) Predict() Prediction {
	if p.Design == Paper {
		return p.predictPaper()
	}
	return p.predictBest()
}

func (p *Plan) finish(pr *Prediction, arrayCycles float64) Prediction {
	hz := p.Device.ClockHz
	pr.Seconds = pr.Cycles / hz
	ops := 2 * p.MACs()
	pr.TOPS = ops / pr.Seconds / 1e12
	pr.ArrayTOPS = ops / (arrayCycles / hz) / 1e12
	pr.MACsPerCycle = p.MACs() / pr.Cycles
	pr.PerTile = pr.MACsPerCycle / float64(p.Tiles)
	pr.Efficiency = 100 * pr.PerTile / float64(p.Type.PeakMACs())
	peak := 2 * float64(p.Device.Tiles()*p.Type.PeakMACs()) * hz / 1e12
	pr.PeakPercent, pr.ArrayPercent = 100*pr.TOPS/peak, 100*pr.ArrayTOPS/peak
	worst := -1.0
	for i := range pr.Limits {
		l := &pr.Limits[i]
		if l.Rate > 0 {
			l.Seconds = l.Bytes / l.Rate
			l.Asked = l.Bytes / (arrayCycles / hz)
		}
		l.Percent = 100 * l.Seconds / pr.Seconds
		if l.Seconds > worst {
			worst, pr.Bound = l.Seconds, l.Name
		}
		if l.Name == "ddr" && l.Seconds > 0 {
			pr.DDRTOPS = ops / l.Seconds / 1e12
		}
	}
	return *pr
}

// CopyCycles is the cycles of one B_r copy of the paper's design.
func (p *Plan) CopyCycles(kc int) float64 {
	return CopyCyclesPerByte * float64(kc*p.Kernel.NR*p.Type.Bytes())
}

// KernelCycles is the cycles of one micro-kernel of the paper's design.
func (p *Plan) KernelCycles(kc int) int { return p.Kernel.Streamed(kc, true, p.Out.Bytes()) }

func (p *Plan) predictPaper() Prediction {
	d := &p.Device
	e, k := p.Type.Bytes(), p.Kernel
	var pr Prediction
	var cycles, kernel, copies float64
	var aDDR, aFPGA, bRead, bPack, cBytes, local float64
	resident := p.ResidentBlocks
	for jc := 0; jc < p.N; jc += p.NC {
		panels := p.ncAt(jc) / k.NR
		rounds := float64(ceil(panels, p.Tiles))
		block := 0
		for pc := 0; pc < p.K; pc += p.KC {
			kc := p.kcAt(pc)
			bPack += float64(min(p.KC, p.K-pc)*min(p.NC, p.N-jc)*e) + float64(kc*p.ncAt(jc)*e)
			for ic := 0; ic < p.M; ic += p.MC {
				mc := p.mcAt(ic)
				kernels := float64(mc / k.MR)
				kernel += rounds * kernels * float64(p.KernelCycles(kc))
				copies += rounds * p.CopyCycles(kc)
				bRead += float64(panels * kc * k.NR * e)
				cBytes += 2 * float64(panels*mc*k.NR*p.Out.Bytes())
				a := float64(panels * mc * kc * e) // every tile has its own streams of A
				if block < resident {
					aFPGA += a
				} else {
					aDDR += a
				}
				local += float64(panels * kc * k.NR * e)
				block++
			}
		}
	}
	cycles = kernel + copies
	unpack := 2 * float64(p.BytesC()) // the processor brings micro-tiles into the matrix
	pr.Bytes = Bytes{DDR: aDDR + bRead + bPack + cBytes + unpack, FPGA: aFPGA, Local: local}
	dma := aDDR + bRead + cBytes // what runs beside the array
	gmio := float64(d.Shim.StreamBytes) * d.ClockHz
	pr.Limits = []Limit{
		{Name: "kernel", Seconds: kernel / d.ClockHz, What: "micro-kernels: C in, A streamed, C out"},
		{Name: "b_r copy", Seconds: copies / d.ClockHz, What: "copies of B_r, not overlapped"},
		{Name: "ddr", Bytes: dma, Rate: d.DDRBytesPerSec, What: "B_r, C in and out, A that does not fit"},
		{Name: "gmio", Bytes: cBytes / 2, Rate: gmio * float64(p.Tiles), What: "C over one GMIO stream a tile and direction"},
		{Name: "fpga ram", Bytes: aFPGA, Rate: d.RAMBytesPerCycle() * d.ClockHz, What: "A from FPGA RAM"},
	}
	pr.Cycles = max(cycles, dma/d.DDRBytesPerCycle())
	return p.finish(&pr, cycles)
}

// step returns the cycles of a call in step s of a pass, for the tile at a position of the chain.
func (p *Plan) step(s, position int) int {
	last := s == p.Steps-1
	return p.Kernel.Block(p.MB, p.KB, p.NB, core.Step{First: s == 0, Last: last, Out: p.Out,
		CascadeIn: last && position > 0, CascadeOut: last && position < p.Chain-1})
}

func (p *Plan) predictBest() Prediction {
	d := &p.Device
	var pr Prediction
	w := d.PLIOBytes()
	aStep, bStep := float64(p.BlockA())/w, float64(p.BlockB())/w
	// A pass: the first, the middle and the last step; a step takes as long as its slowest part, because all three overlap.
	slow := func(c int) float64 { return max(float64(c), aStep, bStep) }
	lastCall := p.step(p.Steps-1, p.Chain-1) + (p.Chain-1)*p.tileLatency()
	var pass, calls float64
	for s := range p.Steps {
		c := p.step(s, p.Chain-1)
		if s == p.Steps-1 {
			c = lastCall
		}
		calls += float64(c)
		pass += slow(c)
		if s == 0 && p.Steps > 3 {
			mid := p.step(1, p.Chain-1)
			calls += float64(mid * (p.Steps - 2))
			pass += slow(mid) * float64(p.Steps-2)
			calls += float64(lastCall)
			pass += slow(lastCall)
			break
		}
	}
	passes := float64(p.Passes())
	// Results of several tiles share a stream.
	drain := float64(p.cLoad) * float64(p.BlockC()) / w
	blocked := pass
	if p.Local.Outs == 1 {
		// The one result buffer must be empty before the last call of the next pass, which fills it.
		blocked = max(pass, drain+slow(lastCall))
	} else {
		blocked = max(pass, drain)
	}
	// The first blocks must arrive before the first call, and behind the last one nothing more arrives.
	array := blocked*passes + max(aStep, bStep) - (slow(lastCall) - float64(lastCall)) + drain

	fetchA, fetchB := p.fetches(p.FeedA), p.fetches(p.FeedB)
	reads := float64(p.Passes() * p.Steps)
	e := float64(p.Type.Bytes())
	cBytes := float64(p.BytesC())
	aDDR := float64(fetchA) * float64(p.SlabA())
	bDDR := float64(p.N) * float64(p.K) * e // what a whole reading of B moves; padding is made up on the way
	switch p.FeedB {
	case Stream:
		bDDR *= float64(p.Outer())
	}
	ddr := aDDR + bDDR + cBytes
	fpga := reads*float64(p.SlabA()+p.SlabB()) + aDDR + float64(fetchB)*float64(p.SlabB())
	tiles := float64(p.Tiles)
	pr.Bytes = Bytes{DDR: ddr, FPGA: fpga, Local: reads*tiles*float64(p.BlockA()+p.BlockB()) + passes*float64(p.Rows*p.Groups)*float64(p.BlockC())}
	hz := d.ClockHz
	pr.Limits = []Limit{
		{Name: "kernel", Seconds: calls * passes / hz, What: "block kernels of one tile"},
		{Name: "plio a", Bytes: reads * float64(p.SlabA()), Rate: float64(p.Rows*p.Chain) * w * hz, What: "A, one stream a row and column of the chain"},
		{Name: "plio b", Bytes: reads * float64(p.SlabB()), Rate: float64(p.Groups*p.Chain) * w * hz, What: "B, one stream a column"},
		{Name: "plio c", Bytes: passes * float64(p.Rows*p.Groups) * float64(p.BlockC()), Rate: float64(p.cStreams) * w * hz, What: "C, up to four streams a column"},
		{Name: "fpga ram", Bytes: fpga, Rate: d.RAMBytesPerCycle() * hz, What: "A and B out of FPGA RAM, staging into it"},
		{Name: "ddr", Bytes: ddr, Rate: d.DDRBytesPerSec, What: "B, C and what of A does not fit"},
	}
	// Before the first step its slab must be there; after the last one its results must leave.
	startup := 0.0
	if p.FeedA != Resident {
		startup += float64(p.SlabA()) / d.DDRBytesPerCycle()
	}
	startup += float64(p.SlabB()) / d.DDRBytesPerCycle()
	array = max(array, fpga/d.RAMBytesPerCycle())
	pr.Cycles = max(array+startup, ddr/d.DDRBytesPerCycle(), p.stagedTime(blocked))
	return p.finish(&pr, array)
}

// stagedTime bounds the run where stationary panels are staged: the first pass over a new panel waits for its staging, the others do not.
func (p *Plan) stagedTime(pass float64) float64 {
	rate := p.Device.DDRBytesPerCycle()
	e := float64(p.Type.Bytes())
	inner, outer := float64(p.Inner()), float64(p.Outer())
	cPass := float64(p.BytesC()) / float64(p.Passes()) / rate
	a, b := float64(p.SlabA())*float64(p.Steps)/rate, float64(p.Groups*p.NB)*float64(p.K)*e/rate
	b = min(b, float64(p.N)*float64(p.K)*e/rate)
	panel, every, once := 0.0, 0.0, 0.0 // staging for an outer iteration, for every pass, for the passes of the first outer iteration
	add := func(f Feed, bytes float64) {
		switch f {
		case Stationary:
			panel += bytes
		case Stream:
			every += bytes
		case Hold:
			once += bytes
		}
	}
	add(p.FeedA, a)
	add(p.FeedB, b)
	c := cPass + every
	if (p.FeedA == Stationary && p.SlotsA <= p.Steps || p.FeedB == Stationary && p.SlotsB <= p.Steps) && inner > 1 {
		// Room for one panel: the first pass over it waits for its staging.
		return inner*once + outer*(max(pass, panel+c)+(inner-1)*max(pass, c))
	}
	// Room for two: the staging of the next panel spreads over the passes of this one; the first has nothing to hide behind.
	load := inner*c + panel
	firstIter := max(inner*pass+max(0, panel+once-pass), load+inner*once)
	lastIter := max(inner*pass, inner*c)
	if outer == 1 {
		return max(inner*pass+max(0, panel+once-pass), inner*(c+once)+panel)
	}
	return firstIter + max(0, outer-2)*max(inner*pass, load) + lastIter
}

// fetches is the number of slabs that are staged from DDR.
func (p *Plan) fetches(f Feed) int {
	switch f {
	case Stationary:
		return p.Outer() * p.Steps
	case Hold:
		return p.Inner() * p.Steps
	case Stream:
		return p.Passes() * p.Steps
	}
	return 0
}

// tileLatency is how long a tile of a chain waits for the sums of its neighbour: one micro-tile.
func (p *Plan) tileLatency() int {
	one := p.Kernel.Block(p.Kernel.MR, p.KB, p.Kernel.NR, core.Step{First: p.Steps == 1, Last: true, Out: p.Out, CascadeIn: true, CascadeOut: true})
	return one - core.Fill
}
