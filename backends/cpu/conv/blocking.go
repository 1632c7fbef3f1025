package conv

import (
	"math"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// work is a phase for a size.
type work struct {
	ph         *phase
	planes     int     // of results, of an image
	rows, cols int     // of output pixels
	in         strides // of the image, from a result of the phase to the next
	out        strides // of all results, likewise
	copied     bool
	gathered   bool // what is copied are the pixels that taps read, one after another
	line       int  // numbers of a segment of a row of output in scratch, where gathered
	flat       bool // all pixels of all images are one row
	patches    bool // what is copied is all that a pixel of output reads, pixel by pixel; flat
	pitch      int  // numbers between what neighbouring pixels of output read
	rowPitch   int  // likewise of neighbouring rows
	offs       []int
	steps      int // of a segment
	padLeft    int
	width      int // pixels of a row in scratch
	dzMin      int
	dzPlanes   int // planes of input that a plane of output needs
	dyMin      int
	dyRows     int // rows of input that a row of output needs
	high       int // rows of a plane in scratch
	block      int // rows of output of a job
	blocks     int
	panels     int // of a group, per job
	mr         int // pixels of a tile at most
	strips     int // of tiles in a call at most
	cuts       int // of the panels of a group
}

// strides are a distance in each spatial dimension.
type strides struct{ z, y, x int }

// empty reports whether there are no results.
func (w *work) empty() bool { return w.planes <= 0 || w.rows <= 0 || w.cols <= 0 }

// planesOf returns the planes of results of all images; pixels that are one row lie in one.
func (w *work) planesOf(s *Spec) int {
	if w.flat {
		return 1
	}
	return s.N * w.planes
}

// work chooses how a phase is computed: where kernels read the image, how many pixels and panels they take at a time, and what a job is.
func (p *Plan) work(ph *phase, panels, workers int) work {
	w := p.newWork(ph)
	low, high := ph.reach(&p.s)
	p.chooseSource(&w, low, high)
	if w.empty() {
		return w
	}
	p.chooseStrips(&w)
	p.choosePanels(&w, panels)
	p.chooseBlocks(&w, workers)
	if n := w.blocks * w.planesOf(&p.s); workers > 1 && n < 2*workers && w.cuts < panels && n%workers != 0 { // jobs are few: more cuts
		w.panels = max(panels/(2*workers), 1)
		w.cuts = ceilDiv(panels, w.panels)
	}
	p.placeSegments(&w, low)
	return w
}

// newWork returns the results of a phase, with their strides.
func (p *Plan) newWork(ph *phase) work {
	s := &p.s
	depth := s.Depth.or(one)
	w := work{ph: ph, planes: depth.Out, rows: s.OH, cols: s.OW, steps: ph.steps}
	w.in, w.out = strides{depth.Stride, s.SH, s.SW}, strides{1, 1, 1}
	if s.Transposed {
		w.in, w.out = w.out, w.in
		w.planes, w.rows, w.cols = ceilDiv(depth.Out-ph.oz, w.out.z), ceilDiv(s.OH-ph.oy, w.out.y), ceilDiv(s.OW-ph.ox, w.out.x)
	}
	return w
}

// reach returns the least and the greatest distances of the taps.
func (ph *phase) reach(s *Spec) (low, high segment) {
	for i, sg := range ph.segs {
		right := sg.dx + ph.k/(s.C/s.Groups) - 1
		if i == 0 {
			low, high = sg, segment{sg.dz, sg.dy, right}
		}
		low = segment{min(low.dz, sg.dz), min(low.dy, sg.dy), min(low.dx, sg.dx)}
		high = segment{max(high.dz, sg.dz), max(high.dy, sg.dy), max(high.dx, right)}
	}
	return low, high
}

// chooseSource decides whether kernels read the image where it lies, rows copied with their padding, or what each pixel of output reads.
func (p *Plan) chooseSource(w *work, low, high segment) {
	s, ph := &p.s, w.ph
	depth := s.Depth.or(one)
	w.padLeft = max(0, -low.dx)
	w.dzMin, w.dzPlanes = low.dz, high.dz-low.dz+1
	w.dyMin, w.dyRows = low.dy, high.dy-low.dy+1
	w.width = w.padLeft + max(s.W, (w.cols-1)*w.in.x+high.dx+1)
	// Several planes are copied always: the rows of one that a block needs are few, and then lie near those of the next.
	w.copied = w.dzPlanes > 1 || w.padLeft > 0 || w.width > s.W || low.dz < 0 || (w.planes-1)*w.in.z+high.dz >= depth.In || low.dy < 0 || (w.rows-1)*w.in.y+high.dy >= s.H
	if !w.copied {
		w.width = s.W
	}
	w.pitch, w.rowPitch = w.in.x*s.C, w.in.y*w.width*s.C
	w.flat = !w.copied && s.KH == 1 && s.KW == 1 && w.in.y == 1 && w.in.x == 1 && s.OH == s.H && s.OW == s.W && depth.single() && !s.Transposed
	if apart := p.collide(ph, w); apart || p.patchwise(ph, w) {
		w.copied, w.flat, w.patches = false, true, true
		w.pitch = len(ph.segs) * ph.k * s.Groups
		if apart {
			w.pitch += cpuinfo.Get().Line / p.k.kind.size()
		}
	}
	if w.flat {
		w.cols, w.rows = s.planes()*s.OH*s.OW, 1
	}
}

// chooseStrips decides how many pixels a tile has, and how many strips of tiles a call takes.
func (p *Plan) chooseStrips(w *work) {
	n := w.ph.steps * len(w.ph.segs)
	// A step takes about a cycle for each pixel: very long sums take fewer, so that no call takes 100 microseconds.
	const cycles = 300_000
	w.mr = min(max(cycles/max(n, 1), 1), p.k.mr)
	// Short sums take several strips in a call, which then costs less than the sums; the panel stays in L1.
	w.strips = 1
	const short, together = 256, 32
	if p.k.strips && n <= short {
		w.strips = min(max(cycles/max(n*w.mr, 1), 1), together)
	}
}

// choosePanels cuts the panels of a group: a job uses a share of the filter that stays in L2 while rows of pixels pass.
func (p *Plan) choosePanels(w *work, panels int) {
	perPanel := max(w.ph.steps*max(len(w.ph.segs), 1)*p.k.line(), 1)
	w.panels = min(max(inL2(p.kn.panelFloats)/perPanel, 1), panels)
	w.panels = ceilDiv(panels, ceilDiv(panels, w.panels))
	w.cuts = ceilDiv(panels, w.panels)
}

// chooseBlocks cuts the rows of output (the pixels, where flat) into blocks: few enough for scratch memory, and for every worker to have
// several jobs.
func (p *Plan) chooseBlocks(w *work, workers int) {
	s, ph, size := &p.s, w.ph, p.k.kind.size()
	units, unit := w.rows, 1 // of which a block is made; of a flat one they are whole tiles
	macs := float64(ph.k*max(len(ph.segs), 1)) * float64(s.M)
	if w.flat {
		unit = p.k.mr
		units = ceilDiv(w.cols, unit)
		macs *= float64(unit)
	} else {
		macs *= float64(w.cols)
	}
	limit := func(block int) int { return p.kn.unitsOfJob(block, units, w.planesOf(s), workers, macs) }
	floats := inL2(p.kn.scratchFloats)
	switch {
	case w.patches || w.flat && p.k.kind == kindS16: // always in scratch memory
		w.block = limit(max(floats/max(product(unit, w.pitch, size)/4, 1), 1))
	case !w.copied:
		w.block = limit(units)
	default:
		w.block = limit(max((floats/max(product(w.dzPlanes, w.width, s.C, size)/4, 1)-w.dyRows)/w.in.y+1, 1))
		// Long strides, dilations and padding make rows of which taps read little, and nothing bounds the rest.
		const sparse = 4
		w.line = product(w.cols, ph.k/(s.C/s.Groups), s.C)
		row := product(len(ph.segs), w.line)
		if product(w.dzPlanes, (w.block-1)*w.in.y+w.dyRows, w.width, s.C)/sparse > product(w.block, row) {
			w.gathered = true
			w.pitch, w.rowPitch = w.line/w.cols, len(ph.segs)*w.line
			w.block = limit(floats / max(product(row, size)/4, 1))
		}
	}
	w.blocks = ceilDiv(units, w.block)
	w.block *= unit
	w.high = (min(w.block, w.rows)-1)*w.in.y + w.dyRows
}

// unitsOfJob returns how many of the units of each of some planes a job takes, block at most but for very short ones. A unit takes
// some multiply-adds.
func (kn *knobs) unitsOfJob(block, units, planes, workers int, macs float64) int {
	block = min(block, units)
	if workers > 1 {
		want := ceilDiv(kn.jobsPerWorker*workers, max(planes, 1))
		if limit := max(units/want, 1); block > limit {
			block = limit
		}
		// A job of a few microseconds is not worth its start.
		block = min(max(block, int(float64(kn.jobMacs)/max(macs, 1))), units)
	}
	return max(block, 1)
}

// placeSegments sets where segments begin, in bytes from what the first tap reads in scratch memory, or from the first pixel of a plane.
func (p *Plan) placeSegments(w *work, low segment) {
	s, ph, size := &p.s, w.ph, p.k.kind.size()
	if w.patches && s.Groups == 1 && ph.k%p.k.kind.group() == 0 { // one long segment
		w.offs, w.steps = []int{0}, ph.steps*len(ph.segs)
		return
	}
	for i, sg := range ph.segs {
		if w.patches {
			w.offs = append(w.offs, i*ph.k*s.Groups*size)
			continue
		}
		if w.gathered {
			w.offs = append(w.offs, i*w.line*size)
			continue
		}
		if w.copied { // from the first pixel in scratch memory
			sg = segment{sg.dz - low.dz, sg.dy - low.dy, sg.dx + w.padLeft}
		} else { // from the first pixel of the plane
			sg.dz = 0
		}
		w.offs = append(w.offs, ((sg.dz*w.high+sg.dy)*w.width+sg.dx)*s.C*size)
	}
}

// patchwise reports whether scratch memory takes all that a pixel of output reads, pixel by pixel. That is more to copy, but pixels of all rows then make
// whole tiles, and those that a stride skips take no place.
func (p *Plan) patchwise(ph *phase, w *work) bool {
	s := &p.s
	const (
		channels = 48 // of output: what is copied for fewer is not worth it
		run      = 64 // numbers that are copied at once
	)
	if p.k.kind != kindS16 || w.flat || s.Transposed || s.M/s.Groups < channels || ph.k*s.Groups < run {
		return false
	}
	return s.SW > 1 || w.cols%p.k.mr != 0 && w.cols < 4*p.k.mr
}

// collide reports whether the pixels of a tile lie so far apart that L1 holds less than a line of each: it then reads them from L2 at every step. Copied with
// other distances they stay. So it is on Zen 4. On an Ice Lake server, whose L1 has 12 ways, the copy takes as long as it saves
// (0.98 to 1.07 of the time); others were not measured.
func (p *Plan) collide(ph *phase, w *work) bool {
	const channels = 96 // of output: what is copied for fewer is not worth it
	s, in := &p.s, cpuinfo.Get()
	if !in.Features.Zen4 || w.copied || s.Transposed || s.Groups > 1 || s.KH != 1 || s.KW != 1 || s.M < channels {
		return false
	}
	way := in.L1D / in.L1DWays
	apart := 0 // sets over which pixels are spread, in lines
	for at := range min(way/in.Line, p.k.mr) {
		if at > 0 && at*w.pitch*p.k.kind.size()%way == 0 {
			break
		}
		apart++
	}
	return ceilDiv(p.k.mr, apart) > in.L1DWays
}

// mostSize is more than any memory has, or a quarter of what an int of 32 bits holds. Sums of two still fit an int.
const mostSize = min(1<<56, math.MaxInt>>2)

// product returns the product of sizes, at most mostSize.
func product(factors ...int) int {
	if n, ok := mem.Mul(factors...); ok {
		return min(n, mostSize)
	}
	return mostSize
}

// inL2 returns what of a number of floats, which is meant for an L2 of 1 MiB, goes into this processor's: less where that is smaller.
func inL2(floats int) int {
	const mib = 1 << 20
	return int(int64(floats) * int64(min(cpuinfo.Get().L2, mib)) / mib)
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }
