package conv

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// tile is what a tile kernel is called with: h pixels (fixed by the function) by the channels of a panel.
//
//	sum[i][j] = over segments s, steps t: A[i][s][t] * b[s k + t][j]
//	c[i][j]   = limit(act(sum[i][j] + init[j] + res[i][j]), lo, hi)
//
// Pixel i of segment s begins at a + offs[s] + i ars, and its steps are 4 bytes apart. Sums take one multiply-add a step, in
// the order of segments and steps. The bias (init) comes last: it may be much larger than what it balances, and every partial sum that
// held it would be rounded as coarsely.
type tile struct {
	a    unsafe.Pointer
	offs unsafe.Pointer // *int, bytes
	b    unsafe.Pointer
	c    unsafe.Pointer
	init unsafe.Pointer
	res  unsafe.Pointer // nil: none
	ars  int            // bytes between pixels
	ldc  int            // bytes between pixels of C
	ldr  int            // bytes between pixels of the residual
	segs int
	k    int // steps of a segment
	cols int // channels that are stored: 1 to NR; of kernels in assembly the last vector has some
	lo   float32
	hi   float32
	p, q float32
	mode int
	s, t float32

	// Of steps of several numbers: factors of the sums, applied before init, and what integer sums take before they become floats, for
	// every channel of a panel. In raw mode integer sums are stored with it, the channels that there are.
	scale unsafe.Pointer
	extra unsafe.Pointer

	// High tiles fetch memory that is needed later into L2, half as much as they read of the filter, from here on. It is an address only, never
	// followed. With the strips it moves as a does where steps are of integers.
	ahead uintptr

	// Kernels of a set that says so go on with further strips of h pixels, count in all, whose pixels, results and residuals lie so many bytes
	// behind those before. They change a, c, res and count.
	count               int
	stepA, stepC, stepR int

	// Kernels of a set that says so store bytes if narrow is not 0: the results times qscale, limited, rounded to even, plus qzero. Limits are those before qzero
	// is added. Where those limits hold also lo and hi, narrow may be narrowLimits: kernels then need not apply these.
	narrow           int
	qscale, qlo, qhi float32
	qzero            int32
}

// strip is what a strip kernel is called with: h pixels of n channels, every channel by itself.
//
//	c[i][j] = limit(act((over taps t: x[i + t][j] * w[t][j]) + init[j]), lo, hi)    or the maximum of init and all taps
//
// Tap t of pixel i lies at x + offs[2 t] + i xs, its filter values at w + offs[2 t + 1]. Kernels change n.
type strip struct {
	x    unsafe.Pointer
	offs unsafe.Pointer // *[2]int, bytes
	w    unsafe.Pointer
	c    unsafe.Pointer
	init unsafe.Pointer
	xs   int
	ldc  int
	taps int
	n    int
	lo   float32
	hi   float32
	p, q float32
	mode int
	s, t float32
}

// row is what a row kernel is called with: some neighbouring pixels of n channels, every channel by itself, all of whose taps lie inside
// the image. It computes what a strip does.
//
//	c[i][j] = limit(act((over rows r, taps t: x[r][i stride + t][j] * w[r][t][j]) + init[j]), lo, hi)
//
// Rows of taps lie step bytes apart in the image and wstep in the filter, neighbouring pixels and taps px. Pixels are at least
// as many as the kernel computes at a time. Kernels change n.
type row struct {
	x      unsafe.Pointer
	w      unsafe.Pointer
	c      unsafe.Pointer
	init   unsafe.Pointer
	step   int
	wstep  int
	rows   int
	pixels int
	px     int
	ldc    int
	n      int
	lo     float32
	hi     float32
	p, q   float32
	mode   int
	s, t   float32
}

// The modes of tile and strip: what happens to a sum before it is limited.
const (
	plain  = 0
	linear = 1 // p x + q
	swish  = 2 // x max(0, min(1, p x + q)), 0 where the factor is
	leaky  = 3 // max(x, 0) + p min(x, 0)
	affine = 4 // swish, then s x + t
	raw    = 5 // of tiles only: the sum alone, without init, residual and limits, for all channels of the panel
)

// narrowLimits is a value of narrow, see there.
const narrowLimits = 2

// kernels are the functions of one instruction set.
type kernels struct {
	isa     cpuinfo.ISA
	kind    kind
	need    func(*cpuinfo.Features) bool // nil: the level is enough
	nr      int                          // channels of a panel
	mr      int                          // most pixels of a tile
	masks   bool
	read    float64       // multiply-adds in the time that a float takes from memory: see BestTile
	strips  bool          // tiles take several strips in a call
	narrows bool          // tiles store bytes
	wide    []func(*tile) // by pixels
	half    []func(*tile) // of nr / 2 channels, or nil
	step    int           // 2: filters of words are kept as bytes; 0: a step of a filter has 4 bytes for each channel
	small   *kernels      // of kindS16: the same with a step of 2, or nil
	wider   *kernels      // the same with panels of 3/2 nr channels, of fewer pixels; or nil
	few     []*kernels    // the same with panels of more channels, of fewer pixels, which load less for a multiply-add: see forLoads
	full    float64       // cycles of a step of a pixel by a panel where one vector is loaded in a cycle
	part    float64       // likewise by half a panel
	sr      int           // most pixels of a strip
	block   int           // strips take whole blocks of so many channels; 1: any number
	mul     []func(*strip)
	maximum []func(*strip)
	rows    map[[3]int]func(*row) // by taps of a row, stride and pixels at a time
	input   [7]func(*transform)   // of Winograd's algorithm, by pixels of a tile; nil: in Go
	output  [7]func(*inverse)
	lineIn  [9]func(*transform)
	lineOut [9]func(*inverse)
	intIn   [2]func(*transform) // of images of bytes, unsigned and signed; nil: in Go
	intOut  func(*inverse)
}

// kernelsOf returns the best kernels of a kind that an instruction set allows.
func kernelsOf(kd kind, isa cpuinfo.ISA) *kernels {
	in := cpuinfo.Get()
	for _, k := range archKernels() {
		if k.kind == kd && k.isa <= isa && in.Has(k.isa) && (k.need == nil || k.need(&in.Features)) {
			return k
		}
	}
	return portable[kd]
}

// forChannels returns the kernels whose panels fit some output channels best: k, or the wider ones where these take less time. A step of a
// panel takes as long as its multiply-adds, but for half a panel, whose few sums wait for each other: two thirds of a whole one.
func (k *kernels) forChannels(m int) *kernels {
	if k.wider == nil {
		return k
	}
	sixths := m / k.nr * 6
	if r := m % k.nr; r > 0 {
		sixths += 6
		if k.half != nil && r <= k.nr/2 {
			sixths -= 2
		}
	}
	if ceilDiv(m, k.wider.nr)*9 < sixths {
		return k.wider
	}
	return k
}

// forLoads returns the kernels that take least time for a convolution on this processor: k, or where few vectors are loaded in a cycle those of k.few, if
// a panel stays in L1. From L2 panels of more channels come too slowly: each of their steps reads more of the filter in less time.
func (k *kernels) forLoads(s *Spec) *kernels {
	in := cpuinfo.Get()
	if !in.Features.OneWideLoad {
		return k
	}
	steps := ceilDiv(product(s.taps(), s.C/s.Groups), k.kind.group())
	if s.Tile > 0 { // of a frequency
		steps = s.winogradSteps()
	}
	best, m := k, s.M/s.Groups
	for _, f := range k.few {
		if product(steps, f.nr, 4) <= in.L1D*2/3 && f.time(m) < best.time(m) { // the rest is for pixels and results
			best = f
		}
	}
	return best
}

// time returns how long a step of a pixel takes by the panels of some output channels, see few.
func (k *kernels) time(m int) float64 {
	t := float64(m/k.nr) * k.full
	switch r := m % k.nr; {
	case r == 0:
	case k.half != nil && r <= k.nr/2:
		t += k.part
	default:
		t += k.full
	}
	return t
}

const (
	portableMR = 4
	portableNR = 8
)

var portable = [...]*kernels{
	kindF32: {
		isa: cpuinfo.Portable, nr: portableNR, mr: portableMR, masks: true, read: 20, sr: 4, block: 1,
		wide:    heights(portableMR, func(h int) func(*tile) { return func(p *tile) { tileGo(p, h) } }),
		mul:     heights(4, func(h int) func(*strip) { return func(p *strip) { stripGo(p, h, false) } }),
		maximum: heights(4, func(h int) func(*strip) { return func(p *strip) { stripGo(p, h, true) } }),
	},
	kindBF16: portableDot(kindBF16),
	kindU8:   portableDot(kindU8),
	kindS16:  withSmall(portableDot(kindS16), portableSmall()),
}

func portableDot(k kind) *kernels {
	return &kernels{isa: cpuinfo.Portable, kind: k, nr: portableNR, mr: portableMR, masks: true, narrows: k.integer(),
		wide: heights(portableMR, func(h int) func(*tile) { return func(p *tile) { tileDot(p, h, k, false) } })}
}

// portableSmall are the kernels of words by bytes.
func portableSmall() kernels {
	k := *portableDot(kindS16)
	k.wide = heights(portableMR, func(h int) func(*tile) { return func(p *tile) { tileDot(p, h, kindS16, true) } })
	return k
}

// withSmall adds to kernels of words those that read filters of bytes.
func withSmall(k *kernels, small kernels) *kernels {
	small.step = 2
	k.small = &small
	return k
}

// line returns the floats that a step of a panel takes.
func (k *kernels) line() int {
	if k.step == 2 {
		return k.nr / 2
	}
	return k.nr
}

func heights[T any](n int, f func(h int) T) []T {
	list := make([]T, n+1)
	for h := 1; h <= n; h++ {
		list[h] = f(h)
	}
	return list
}

func at(p unsafe.Pointer, off int) *float32 { return (*float32)(unsafe.Add(p, off)) }

// finish applies mode and limits to a sum.
func finish(x, lo, hi, p, q float32, mode int, s, t float32) float32 {
	switch mode {
	case linear:
		x = p*x + q
	case swish, affine:
		f := min(max(p*x+q, 0), 1)
		if f == 0 {
			x = 0
		} else {
			x *= f
		}
		if mode == affine {
			x = s*x + t
		}
	case leaky:
		if x < 0 {
			x *= p
		}
	}
	if x < lo {
		x = lo
	}
	if x > hi {
		x = hi
	}
	return x
}

// tileGo is the tile kernel in Go, and the definition of the others.
func tileGo(p *tile, h int) {
	var acc [portableMR][portableNR]float32
	b := p.b
	offs := unsafe.Slice((*int)(p.offs), p.segs)
	for _, off := range offs {
		a := unsafe.Add(p.a, off)
		for t := range p.k {
			row := (*[portableNR]float32)(b)
			b = unsafe.Add(b, portableNR*4)
			for i := range h {
				v := *at(a, i*p.ars+4*t)
				r := &acc[i]
				for j, w := range row {
					r[j] += v * w
				}
			}
		}
	}
	for i := range h {
		if p.mode == raw {
			*(*[portableNR]float32)(unsafe.Add(p.c, i*p.ldc)) = acc[i]
			continue
		}
		for j := range p.cols {
			x := acc[i][j] + *at(p.init, 4*j)
			if p.res != nil {
				x += *at(p.res, i*p.ldr+4*j)
			}
			*at(p.c, i*p.ldc+4*j) = finish(x, p.lo, p.hi, p.p, p.q, p.mode, p.s, p.t)
		}
	}
}

// stripGo is the strip kernel in Go, and the definition of the others.
func stripGo(p *strip, h int, maximum bool) {
	offs := unsafe.Slice((*[2]int)(p.offs), p.taps)
	for i := range h {
		for j := range p.n {
			var x float32
			if maximum {
				x = *at(p.init, 4*j)
			}
			for _, o := range offs {
				v := *at(p.x, o[0]+i*p.xs+4*j)
				if maximum {
					x = max(x, v)
				} else {
					x += v * *at(p.w, o[1]+4*j)
				}
			}
			if !maximum {
				x += *at(p.init, 4*j)
			}
			*at(p.c, i*p.ldc+4*j) = finish(x, p.lo, p.hi, p.p, p.q, p.mode, p.s, p.t)
		}
	}
	p.n = 0
}

// runStrip runs h pixels of all channels in calls of well below 100 microseconds: whole blocks by the kernel, and the rest with channels
// before it, which are computed twice. Only fewer channels than a block go in Go.
func (k *kernels) runStrip(p *strip, h int, maximum bool) {
	f := k.mul
	if maximum {
		f = k.maximum
	}
	const (
		most  = 1 << 22 // taps of pixels and channels in a call
		block = 64      // of which the channels of a part are a multiple
	)
	from, n := *p, p.n
	part := max(most/max(p.taps*h, 1)/block*block, block)
	whole := n - n%k.block
	for done := 0; done < whole; done += part {
		p.at(&from, done, !maximum)
		p.n = min(part, whole-done)
		f[h](p)
	}
	switch {
	case whole == n:
	case whole > 0:
		p.at(&from, n-k.block, !maximum)
		p.n = k.block
		f[h](p)
	default:
		stripGo(p, h, maximum)
	}
	*p = from
}

// at makes p what another strip is from a channel on.
func (p *strip) at(from *strip, channel int, weights bool) {
	p.x, p.c, p.init = unsafe.Add(from.x, 4*channel), unsafe.Add(from.c, 4*channel), unsafe.Add(from.init, 4*channel)
	if weights {
		p.w = unsafe.Add(from.w, 4*channel)
	}
}

// limits are the bounds of a sum that has none.
var (
	least = float32(math.Inf(-1))
	most  = float32(math.Inf(1))
)
