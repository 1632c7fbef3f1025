package conv

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// Spec is a convolution of images [N, H, W, C] by M filters, or a transposed one. All sizes are those of one call; OH and OW follow
// from the others and are given. With a Depth images are [N, Depth, H, W, C].
type Spec struct {
	N, H, W, C, M  int
	KH, KW         int
	SH, SW, DH, DW int
	Top, Left      int // padding before; what is needed behind follows from the output
	OH, OW         int
	Depth          Dim // the zero value: there is none
	Groups         int
	Transposed     bool
	Type           Type
	Signed         bool  // of Int8: images are signed
	XZero          int32 // of Int8: the zero point of images, which padding has, too
	Tile           int   // 0: by the definition; 2 or 4 (of Int8 4): by Winograd's algorithm with tiles of so many pixels in each direction
}

// Act is what happens to a sum, after the residual is added.
type Act struct {
	Mode   Mode
	P, Q   float32
	S, T   float32 // of SwishAffine
	Lo, Hi float32 // limits, applied last
}

// Mode is the form of an activation.
type Mode int

// The modes.
const (
	Plain  Mode = plain
	Linear Mode = linear // P x + Q
	Swish  Mode = swish  // x times P x + Q limited to 0 and 1
	Leaky  Mode = leaky  // max(x, 0) + P min(x, 0)

	SwishAffine Mode = affine // Swish, then S x + T
)

// NoAct changes nothing.
var NoAct = Act{Lo: least, Hi: most}

// Filter is a packed filter. Any number of goroutines may use it.
type Filter struct {
	k      *kernels
	spec   Spec // of which N, H, W, OH and OW do not matter
	phases []phase
	dw     []float32 // depthwise: [taps, C]
	blocks *Filter   // of a transposed one whose pixels become blocks: see blocks.go
	data   []float32 // steps of 4 bytes
	extra  []int32   // what the sums of each channel take, or nil
	wide   bool      // weights for which Winograd's algorithm in integers has no room: the definition is used

	mapping *mem.Mapping // of data, if it is large
}

// Bytes returns the memory of the packed form.
func (f *Filter) Bytes() int {
	n := 4 * (len(f.dw) + len(f.data) + len(f.extra))
	if f.blocks != nil {
		n += f.blocks.Bytes()
	}
	return n
}

// Close releases the memory of a large filter, which must not be used afterwards.
func (f *Filter) Close() error {
	m := f.mapping
	if m == nil {
		return nil
	}
	f.data, f.mapping = nil, nil
	return m.Close()
}

// alloc makes data: of large filters in memory of their own, in huge pages where the system has them, so that streaming through them does
// not stop at every page.
func (f *Filter) alloc(n int) {
	const large = 256 << 10 // floats
	if n >= large {
		if m, err := mem.Anonymous(n * 4); err == nil {
			f.mapping = m
			f.data = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.Data()))), n)
			return
		}
	}
	f.data = alignedFloats(n)
}

// phase is one convolution: of a transposed one there is one for each residue of the stride that has taps.
type phase struct {
	oz, oy, ox int // first output pixel
	segs       []segment
	k          int // numbers of a segment
	steps      int // of 4 bytes of a segment
	b          int // start of the panels in data
	group      int // floats of the panels of one group
}

// segment is a run of k values of A: k = C, or KW C where neighbouring taps touch.
type segment struct{ dz, dy, dx int }

// dims returns the spatial dimensions, of which the first may not be there.
func (s *Spec) dims() [3]Dim {
	return [3]Dim{s.Depth.or(one), {In: s.H, Out: s.OH, Kernel: s.KH, Stride: s.SH, Dilation: s.DH, Before: s.Top},
		{In: s.W, Out: s.OW, Kernel: s.KW, Stride: s.SW, Dilation: s.DW, Before: s.Left}}
}

// Fold returns the convolution with fewer spatial dimensions where these say the same: images, filters and results are what they were.
func (s Spec) Fold() Spec {
	n, d := fold(s.N, s.dims(), s.Transposed)
	s.N, s.Depth = n, d[0]
	if d[0].single() {
		s.Depth = Dim{}
	}
	s.H, s.OH, s.KH, s.SH, s.DH, s.Top = d[1].In, d[1].Out, d[1].Kernel, d[1].Stride, d[1].Dilation, d[1].Before
	s.W, s.OW, s.KW, s.SW, s.DW, s.Left = d[2].In, d[2].Out, d[2].Kernel, d[2].Stride, d[2].Dilation, d[2].Before
	return s
}

// Sized returns the spec with the sizes of another, which a filter does not depend on.
func (s Spec) sized(as *Spec) Spec {
	s.N, s.H, s.W, s.OH, s.OW, s.Depth.In, s.Depth.Out = as.N, as.H, as.W, as.OH, as.OW, as.Depth.In, as.Depth.Out
	return s
}

// Unsized returns the spec of all convolutions that may share a packed filter.
func (s Spec) Unsized() Spec {
	t := Spec{N: 1, H: 1, W: 1, OH: 1, OW: 1}
	if s.Depth != (Dim{}) {
		t.Depth.In, t.Depth.Out = 1, 1
	}
	return s.sized(&t)
}

// taps returns the size of a kernel.
func (s *Spec) taps() int { return s.Depth.or(one).Kernel * s.KH * s.KW }

// planes returns how many planes of results there are, of all images.
func (s *Spec) planes() int { return s.N * s.Depth.or(one).Out }

// Weights returns the size of the filter.
func (s *Spec) Weights() int { return s.M * (s.C / s.Groups) * s.taps() }

// Depthwise reports whether every channel has a filter of its own.
func (s *Spec) Depthwise() bool { return s.Groups == s.C && s.M == s.C && s.C > 1 && !s.Transposed }

// Check returns why a spec cannot be computed here.
func (s *Spec) Check() error {
	if s.Groups < 1 || s.C%s.Groups != 0 || s.M%s.Groups != 0 || s.N < 0 || s.C < 1 || s.M < 1 {
		return fmt.Errorf("conv: %+v", *s)
	}
	for _, d := range s.dims() {
		if err := d.check(); err != nil {
			return err
		}
	}
	lo, hi := int32(0), int32(255)
	if s.Signed {
		lo, hi = -128, 127
	}
	switch {
	case s.Type > Int8 || s.Type != Int8 && (s.Signed || s.XZero != 0) || s.Type != F32 && (s.Transposed || s.Depthwise()) || s.Type == BF16 && s.Tile != 0:
		return fmt.Errorf("conv: type and what is said of it do not fit: %+v", *s)
	case s.Type == BF16 && !s.CanBF16():
		return fmt.Errorf("conv: odd runs of bfloat16: %+v", *s)
	case s.Type == Int8 && (s.XZero < lo || s.XZero > hi):
		return fmt.Errorf("conv: zero point %d, %d to %d is right", s.XZero, lo, hi)
	}
	if _, ok := s.form(s.Tile); s.Tile != 0 && !ok {
		return fmt.Errorf("conv: Winograd's algorithm for %+v: strides and groups of 1, and filters of 3x3 with tiles of 2 or 4, or of 1x3 or 1x5 with tiles of 4 are right; for bytes 3x3 with tiles of 4", *s)
	}
	return nil
}

// Pack packs a filter of floats for the best kernels of an instruction set. The weights are [M, C/Groups, KH, KW] contiguous, of a
// transposed convolution [C, M/Groups, KH, KW]; with a depth, its kernel stands before KH. Scale, if not nil, multiplies the filter of each output channel; with Type BF16 a factor is
// an operand of the run instead.
func Pack(s Spec, w []float32, scale []float32, isa cpuinfo.ISA) (*Filter, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	cg, mg := s.C/s.Groups, s.M/s.Groups
	taps := s.taps()
	if n, ok := mem.Mul(s.C, mg, s.Depth.or(one).Kernel, s.KH, s.KW); !ok || len(w) != n || s.Type == Int8 || s.Type == BF16 && scale != nil {
		return nil, fmt.Errorf("conv: %d weights for %+v", len(w), s)
	}
	f := &Filter{k: kernelsOf(kindF32, isa).forChannels(mg), spec: s}
	get := func(o, c, tap int) float32 { // c within the group
		var v float32
		if s.Transposed {
			v = w[((o/mg*cg+c)*mg+o%mg)*taps+tap]
		} else {
			v = w[(o*cg+c)*taps+tap]
		}
		if scale != nil {
			v *= scale[o]
		}
		return v
	}
	if s.Type == BF16 {
		f.k = kernelsOf(kindBF16, isa)
		packBF16(f, get)
		return f, nil
	}
	if s.Tile > 0 {
		packWinograd(f, w, scale)
		return f, nil
	}
	if s.Depthwise() {
		f.dw = alignedFloats(taps * s.C)
		for tap := range taps {
			for c := range s.C {
				f.dw[tap*s.C+c] = get(c, 0, tap)
			}
		}
		return f, nil
	}
	if s.Transposed && s.blocky() {
		var err error
		if f.blocks, err = packBlocks(s, w, scale, isa); err != nil {
			return nil, err
		}
	}
	if s.Transposed {
		f.packTaps(func(p unsafe.Pointer, o, c, tap int) { *(*float32)(p) = get(o, c, tap) })
	} else {
		f.packFloats(w, scale)
	}
	return f, nil
}

// packFloats is packTaps for a filter of floats that is not transposed: blocks of channels at a time, which stay in L1 while all rows of a
// panel are written.
func (f *Filter) packFloats(w, scale []float32) {
	s := &f.spec
	cg, mg := s.C/s.Groups, s.M/s.Groups
	f.layOut()
	ph := &f.phases[0]
	nr, taps := f.k.nr, s.taps()
	const block = 32
	for g := range s.Groups {
		for p := range ceilDiv(mg, nr) {
			out := f.data[g*ph.group+p*nr*ph.steps*len(ph.segs):]
			width := f.k.width(mg - p*nr)
			for c0 := 0; c0 < cg; c0 += block {
				c1 := min(c0+block, cg)
				for j := range min(mg-p*nr, nr) {
					o := g*mg + p*nr + j
					factor := float32(1)
					if scale != nil {
						factor = scale[o]
					}
					src := w[(o*cg+c0)*taps : (o*cg+c1)*taps]
					for t := range taps {
						at := (t*cg+c0)*width + j // segments follow one another in the order of the taps
						for i := t; i < len(src); i += taps {
							out[at] = src[i] * factor
							at += width
						}
					}
				}
			}
		}
	}
}

// packTaps packs the panels of all phases; put writes one weight.
func (f *Filter) packTaps(put func(p unsafe.Pointer, o, c, tap int)) {
	f.layOut()
	s := &f.spec
	cg, mg := s.C/s.Groups, s.M/s.Groups
	nr, line, group := f.k.nr, f.k.line(), f.k.kind.group()
	step := 4 * line / nr // bytes
	panels := (mg + nr - 1) / nr
	for i := range f.phases {
		ph := &f.phases[i]
		taps := ph.k / cg // of a segment
		for g := range s.Groups {
			for p := range panels {
				out := f.data[ph.b+g*ph.group+p*line*ph.steps*len(ph.segs):]
				// A last panel of half the width is packed as such: its rows are nr/2 long.
				width := f.k.width(mg - p*nr)
				for si, sg := range ph.segs {
					row := 0
					for t := range taps {
						tap := s.tap(ph, sg) + t
						for c := range cg {
							at := unsafe.Pointer(&out[(si*ph.steps+row/group)*width*step/4])
							for j := range min(mg-p*nr, nr) {
								put(unsafe.Add(at, j*step+row%group*(step/group)), g*mg+p*nr+j, c, tap)
							}
							row++
						}
					}
				}
			}
		}
	}
}

// layOut decides where the panels of all phases lie.
func (f *Filter) layOut() {
	s := &f.spec
	cg, mg := s.C/s.Groups, s.M/s.Groups
	if !s.Transposed {
		f.phases = []phase{convPhase(s, cg)}
	} else {
		f.phases = transposedPhases(s, cg)
	}
	nr, line, group := f.k.nr, f.k.line(), f.k.kind.group()
	panels := (mg + nr - 1) / nr
	total := 0
	for i := range f.phases {
		ph := &f.phases[i]
		ph.b, ph.steps = total, ceilDiv(ph.k, group)
		ph.group = panels * line * ph.steps * len(ph.segs)
		total += ph.group * s.Groups
	}
	f.alloc(total)
}

// width returns the channels of a panel of which live remain.
func (k *kernels) width(live int) int {
	if k.half != nil && live <= k.nr/2 {
		return k.nr / 2
	}
	return k.nr
}

func alignedFloats(n int) []float32 {
	b := mem.Bytes(max(n, 1) * 4)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), max(n, 1))[:n]
}

// tap returns which element of the kernel the first tap of a segment is.
func (s *Spec) tap(ph *phase, sg segment) int {
	tap := 0
	at, from := [3]int{sg.dz, sg.dy, sg.dx}, [3]int{ph.oz, ph.oy, ph.ox}
	for i, d := range s.dims() {
		k := (at[i] + d.Before) / d.Dilation
		if s.Transposed {
			k = (from[i] + d.Before - at[i]*d.Stride) / d.Dilation
		}
		tap = tap*d.Kernel + k
	}
	return tap
}

func convPhase(s *Spec, cg int) phase {
	ph := phase{k: cg}
	kx := s.KW
	if s.DW == 1 && s.Groups == 1 {
		ph.k, kx = s.KW*cg, 1
	}
	depth := s.Depth.or(one)
	for z := range depth.Kernel {
		for y := range s.KH {
			for x := range kx {
				ph.segs = append(ph.segs, segment{z*depth.Dilation - depth.Before, y*s.DH - s.Top, x*s.DW - s.Left})
			}
		}
	}
	return ph
}

// residue is what all output positions o of one residue of the stride have in common: the distances, in input positions, of the taps that feed them.
type residue struct {
	o     int
	feeds []int
}

// residues returns the residues of a transposed dimension that have taps, in order: output o is fed by the taps k for which o + Before -
// k Dilation is a multiple of Stride; the quotient is the input position.
func (d Dim) residues() []residue {
	var list []residue
	for k := range d.Kernel {
		o := floorMod(k*d.Dilation-d.Before, d.Stride)
		i, known := slices.BinarySearchFunc(list, o, func(r residue, o int) int { return r.o - o })
		if !known {
			list = slices.Insert(list, i, residue{o: o})
		}
		list[i].feeds = append(list[i].feeds, floorDiv(o+d.Before-k*d.Dilation, d.Stride))
	}
	return list
}

// transposedPhases returns a phase for each residue of the strides that has taps, so never more than there are taps: results without are left to
// bare.
func transposedPhases(s *Spec, cg int) []phase {
	d := s.dims()
	var list []phase
	for _, z := range d[0].residues() {
		for _, y := range d[1].residues() {
			for _, x := range d[2].residues() {
				ph := phase{oz: z.o, oy: y.o, ox: x.o, k: cg}
				for _, dz := range z.feeds {
					for _, dy := range y.feeds {
						for _, dx := range x.feeds {
							ph.segs = append(ph.segs, segment{dz, dy, dx})
						}
					}
				}
				list = append(list, ph)
			}
		}
	}
	return list
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int) int { return a - floorDiv(a, b)*b }

// Args are the operands of a run: images and results contiguous, [N, H, W, C] and [N, OH, OW, M], or with a depth before the rows. Bias has M numbers; it and Residual
// may be nil.
type Args struct {
	X        []float32
	X16      []uint16 // instead of X, of Type BF16
	X8       []byte   // instead of X, of Type Int8
	Y        []float32
	Residual []float32
	Bias     []float32
	Act      Act
	Scale    []float32 // M factors of the sums of Types BF16 and Int8, applied before the bias, or nil
	Raw      bool      // of Type Int8: Y takes the bits of the int32 sums, and nothing is done to them
	// Post, if not nil, is applied to finished pixels of Y, one or several neighbours with all of their channels at a time; i is the
	// position of the first. It may not depend on how many come at once.
	Post func(i int, y []float32)
	// Load, if not nil, stands for X: it copies n floats from position i of the image on.
	Load func(dst []float32, i int)
	// Store, if not nil, takes the pixels that would go to Y, one or several neighbours, at position i on.
	Store func(i int, y []float32)
	// Bytes, if not nil, takes the pixels as Quant makes bytes of them, of Type Int8: at once where kernels can, else by way of Store, which is to do the
	// same number by number, and may get some channels of a pixel only. Whether they can also depends on Post, which sees numbers.
	Bytes []byte
	Quant Quant
	// Stop, if not nil, is asked between blocks whether the run shall end.
	Stop func() bool
}

// Quant makes bytes of results: times Scale, rounded to nearest even, plus Zero and limited to Low and High. Signed bytes are their bits.
type Quant struct {
	Scale           float32
	Zero, Low, High int32
}

// Plan is a convolution of a fixed size. One goroutine at a time runs it; after the first run it allocates nothing.
type Plan struct {
	f       *Filter
	s       Spec
	k       *kernels
	kn      *knobs
	threads int
	args    *Args
	narrow  bool      // kernels store bytes in this run
	init    []float32 // bias, padded to panels, group by group
	scale   []float32 // factors, likewise; of dot kernels
	extra   []int32   // what integer sums take, likewise
	works   []work    // the phases of this size
	bare    *bare     // of a transposed one: what no tap reaches, or nil
	cur     *work
	workers []scratch
	dw      *depthwise
	blocks  *blocks
	win     *winograd
	feeder  *depthwise // computes the image, block by block: see Fed
}

// work is a phase for a size.
type work struct {
	ph         *phase
	planes     int // of results, of an image
	rows, cols int // of output pixels
	copied     bool
	gathered   bool // what is copied are the pixels that taps read, one after another
	line       int  // numbers of a segment of a row of output in scratch, where gathered
	flat       bool // all pixels of all images are one row
	patches    bool // what is copied is all that a pixel of output reads, pixel by pixel; flat
	pitch      int  // numbers between pixels of output in scratch, where flat
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

// scratch is what one worker owns.
type scratch struct {
	t    tile
	s    strip
	r    row
	rows []float32 // padded input
	out  []float32 // a tile's pixels, where Y cannot take them
	edge []float32 // a tile of whole panels

	y     []float32 // of depthwise convolutions and poolings: where results go, from position first on
	first int

	_ [64]byte
}

// NewPlan prepares a size for a packed filter, with the thresholds that environment, profile or defaults give.
func NewPlan(f *Filter, s Spec, threads int) (*Plan, error) { return NewPlanWith(f, s, threads, nil) }

// NewPlanWith is NewPlan with thresholds that the program chose.
func NewPlanWith(f *Filter, s Spec, threads int, choice *Knobs) (*Plan, error) {
	kn, err := choice.get()
	if err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if f.spec.sized(&s) != s {
		return nil, fmt.Errorf("conv: a filter packed for %+v used for %+v", f.spec, s)
	}
	p := &Plan{f: f, s: s, k: f.k, threads: threads, kn: kn}
	if s.Depthwise() {
		p.dw = newDepthwise(p)
		return p, nil
	}
	if f.blocks != nil && s.fitBlocks() {
		if p.blocks, err = newBlocks(f.blocks, s, threads, choice); err != nil {
			return nil, err
		}
	}
	mg := s.M / s.Groups
	panels := (mg + p.k.nr - 1) / p.k.nr
	p.init = alignedFloats(s.Groups * panels * p.k.nr)
	if p.k.kind != kindF32 {
		p.scale = alignedFloats(len(p.init))
		p.extra = make([]int32, len(p.init))
		for i, v := range f.extra {
			p.extra[i/mg*panels*p.k.nr+i%mg] = v
		}
	}
	if s.Tile > 0 && !f.wide {
		p.win = newWinograd(p)
		return p, nil
	}
	workers := par.Workers(threads, 1<<30)
	for i := range f.phases {
		w := p.work(&f.phases[i], panels, workers)
		if w.planes > 0 && w.rows > 0 && w.cols > 0 {
			p.works = append(p.works, w)
		}
	}
	if s.Transposed {
		p.bare = newBare(p)
	}
	return p, nil
}

func (p *Plan) work(ph *phase, panels, workers int) work {
	s := &p.s
	depth := s.Depth.or(one)
	w := work{ph: ph, planes: depth.Out, rows: s.OH, cols: s.OW, steps: ph.steps, pitch: s.C}
	sz, sy, sx := depth.Stride, s.SH, s.SW
	size := p.k.kind.size()
	if s.Transposed {
		w.planes, w.rows, w.cols = ceilDiv(depth.Out-ph.oz, sz), ceilDiv(s.OH-ph.oy, sy), ceilDiv(s.OW-ph.ox, sx)
		sz, sy, sx = 1, 1, 1
	}
	var low, high segment
	for i, sg := range ph.segs {
		right := sg.dx + ph.k/(s.C/s.Groups) - 1
		if i == 0 {
			low, high = sg, segment{sg.dz, sg.dy, right}
		}
		low = segment{min(low.dz, sg.dz), min(low.dy, sg.dy), min(low.dx, sg.dx)}
		high = segment{max(high.dz, sg.dz), max(high.dy, sg.dy), max(high.dx, right)}
	}
	w.padLeft = max(0, -low.dx)
	w.dzMin, w.dzPlanes = low.dz, high.dz-low.dz+1
	w.dyMin, w.dyRows = low.dy, high.dy-low.dy+1
	w.width = w.padLeft + max(s.W, (w.cols-1)*sx+high.dx+1)
	// Several planes are copied always: the rows of one that a block needs are few, and then lie near those of the next.
	w.copied = w.dzPlanes > 1 || w.padLeft > 0 || w.width > s.W || low.dz < 0 || (w.planes-1)*sz+high.dz >= depth.In || low.dy < 0 || (w.rows-1)*sy+high.dy >= s.H
	if !w.copied {
		w.width = s.W
	}
	w.flat = !w.copied && s.KH == 1 && s.KW == 1 && sy == 1 && sx == 1 && s.OH == s.H && s.OW == s.W && depth.single() && !s.Transposed
	if p.patchwise(ph, &w) {
		w.copied, w.flat, w.patches = false, true, true
		w.pitch = len(ph.segs) * ph.k * s.Groups
	}
	if w.flat {
		w.cols, w.rows = s.planes()*s.OH*s.OW, 1
	}
	// A step takes about a cycle for each pixel: very long sums take fewer, so that no call takes 100 microseconds.
	const cycles = 300_000
	w.mr = min(max(cycles/max(ph.steps*len(ph.segs), 1), 1), p.k.mr)
	// Short sums take several strips in a call, which then costs less than the sums; the panel stays in L1.
	w.strips = 1
	const short, together = 256, 32
	if n := ph.steps * len(ph.segs); p.k.strips && n <= short {
		w.strips = min(max(cycles/max(n*w.mr, 1), 1), together)
	}
	// Panels of a job: a share of the filter that stays in L2 while rows of pixels pass.
	perPanel := max(ph.steps*max(len(ph.segs), 1)*p.k.line(), 1)
	w.panels = min(max(inL2(p.kn.panelFloats)/perPanel, 1), panels)
	w.panels = ceilDiv(panels, ceilDiv(panels, w.panels))
	w.cuts = ceilDiv(panels, w.panels)

	// Rows of a job (pixels where flat): few enough for scratch memory and for every worker to have several jobs.
	images := s.N * w.planes
	unit := 1
	if w.flat {
		images, unit = 1, p.k.mr
	}
	units := ceilDiv(w.rows, 1)
	if w.flat {
		units = ceilDiv(w.cols, unit)
	}
	jobs := func(block int) int {
		block = min(block, units)
		if workers > 1 {
			want := ceilDiv(p.kn.jobsPerWorker*workers, max(images, 1))
			if limit := max(units/want, 1); block > limit {
				block = limit
			}
			// A job of a few microseconds is not worth its start.
			macs := float64(ph.k*max(len(ph.segs), 1)) * float64(s.M)
			if !w.flat {
				macs *= float64(w.cols)
			} else {
				macs *= float64(unit)
			}
			block = min(max(block, int(float64(p.kn.jobMacs)/max(macs, 1))), units)
		}
		return max(block, 1)
	}
	scratch := inL2(p.kn.scratchFloats)
	switch {
	case w.flat && p.k.kind == kindS16: // always in scratch memory
		w.block = jobs(max(scratch/max(product(unit, w.pitch, size)/4, 1), 1))
	case !w.copied:
		w.block = jobs(units)
	default:
		w.block = jobs(max((scratch/max(product(w.dzPlanes, w.width, s.C, size)/4, 1)-w.dyRows)/sy+1, 1))
		// Long strides, dilations and padding make rows of which taps read little, and nothing bounds the rest.
		const sparse = 4
		w.line = product(w.cols, ph.k/(s.C/s.Groups), s.C)
		row := product(len(ph.segs), w.line)
		if product(w.dzPlanes, (w.block-1)*sy+w.dyRows, w.width, s.C)/sparse > product(w.block, row) {
			w.gathered = true
			w.block = jobs(scratch / max(product(row, size)/4, 1))
		}
	}
	w.blocks = ceilDiv(units, w.block)
	if workers > 1 && w.blocks*images < 2*workers && w.cuts < panels && w.blocks*images%workers != 0 {
		w.panels = max(panels/(2*workers), 1)
		w.cuts = ceilDiv(panels, w.panels)
	}
	if w.flat {
		w.block *= unit
	}
	w.high = (min(w.block, w.rows)-1)*sy + w.dyRows
	if w.patches && s.Groups == 1 && ph.k%p.k.kind.group() == 0 { // one long segment
		w.offs, w.steps = []int{0}, ph.steps*len(ph.segs)
		return w
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
	return w
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

// Run computes.
func (p *Plan) Run(a *Args) {
	s := &p.s
	if s.planes() == 0 || s.OH == 0 || s.OW == 0 {
		return
	}
	if p.blocks != nil && a.Store == nil && a.Residual == nil {
		p.blocks.run(a)
		return
	}
	p.args, p.narrow = a, a.Bytes != nil && p.k.narrows && p.win == nil && a.Post == nil
	if p.dw != nil {
		p.dw.run(a)
		p.args = nil
		return
	}
	mg := s.M / s.Groups
	stride := len(p.init) / s.Groups
	for g := range s.Groups {
		if a.Bias != nil {
			copy(p.init[g*stride:], a.Bias[g*mg:(g+1)*mg])
		} else {
			clear(p.init[g*stride : g*stride+mg])
		}
		for i := range p.scale[:min(len(p.scale), mg)] {
			v := float32(1)
			if a.Scale != nil {
				v = a.Scale[g*mg+i]
			}
			p.scale[g*stride+i] = v
		}
	}
	if p.win != nil {
		p.win.run(a)
		p.args = nil
		return
	}
	for i := range p.works {
		p.cur = &p.works[i]
		n := p.jobs()
		for len(p.workers) < par.Workers(p.threads, n) {
			p.workers = append(p.workers, scratch{})
		}
		par.Run(p.threads, n, p)
	}
	if b := p.bare; b != nil {
		for len(p.workers) < par.Workers(p.threads, b.jobs) {
			p.workers = append(p.workers, scratch{})
		}
		par.Run(p.threads, b.jobs, b)
	}
	p.args = nil
}

// jobs returns the number of jobs of the current work. With several cuts of the panels, each job does one.
func (p *Plan) jobs() int {
	w := p.cur
	n := w.planesOf(&p.s) * w.blocks
	if p.split() {
		n *= w.cuts
	}
	return n
}

// planesOf returns the planes of results of all images; pixels that are one row lie in one.
func (w *work) planesOf(s *Spec) int {
	if w.flat {
		return 1
	}
	return s.N * w.planes
}

// split reports whether cuts of the panels are jobs of their own, instead of a loop in each.
func (p *Plan) split() bool {
	w := p.cur
	return w.cuts > 1 && w.planesOf(&p.s)*w.blocks < 2*par.Workers(p.threads, 1<<30) && p.args.Post == nil && p.direct()
}

// direct reports whether kernels store results where they belong, so that no pixel waits for all of its channels.
func (p *Plan) direct() bool { return p.args.Store == nil || p.narrow }

// Do computes one job: a block of rows of an image.
func (p *Plan) Do(worker, job int) {
	a := p.args
	if a.Stop != nil && a.Stop() {
		return
	}
	w, s := p.cur, &p.s
	cuts := w.cuts
	direct := p.direct()
	if !direct { // a pixel leaves when all of its channels are there
		cuts = 1
	}
	cut0, cut1 := 0, cuts
	if p.split() {
		cut0 = job % w.cuts
		cut1 = cut0 + 1
		job /= w.cuts
	}
	block, plane := job%w.blocks, job/w.blocks
	image, plane := plane/w.planes, plane%w.planes
	sc := &p.workers[worker]
	mg, cg := s.M/s.Groups, s.C/s.Groups
	panelsAll := ceilDiv(mg, p.k.nr)

	t := &sc.t
	t.offs, t.segs, t.k = unsafe.Pointer(unsafe.SliceData(w.offs)), len(w.offs), w.steps
	t.lo, t.hi, t.p, t.q, t.mode, t.s, t.t = a.Act.Lo, a.Act.Hi, a.Act.P, a.Act.Q, int(a.Act.Mode), a.Act.S, a.Act.T
	if a.Raw {
		t.mode = raw
	}
	size, loads := p.k.kind.size(), p.loads()
	depth := s.Depth.or(one)
	sz, sy, sx, oz, oy, ox, stepZ, stepY, stepX := depth.Stride, s.SH, s.SW, 0, 0, 0, 1, 1, 1
	if s.Transposed {
		sz, sy, sx, oz, oy, ox, stepZ, stepY, stepX = 1, 1, 1, w.ph.oz, w.ph.oy, w.ph.ox, depth.Stride, s.SH, s.SW
	}
	from, to := image*depth.In+plane*sz+w.dzMin, image*depth.Out+oz+plane*stepZ // of all planes
	t.ars = sx * s.C * size
	switch {
	case w.gathered:
		t.ars = w.line / w.cols * size
	case w.flat:
		t.ars = w.pitch * size
	}

	t.narrow = 0
	if p.narrow {
		q := &a.Quant
		t.narrow, t.qscale, t.qlo, t.qhi, t.qzero = 1, q.Scale, float32(q.Low-q.Zero), float32(q.High-q.Zero), q.Zero
	}
	if !direct { // a tile is finished outside Y
		sc.need(&sc.out, p.k.mr*p.stored()*s.M)
	}
	if !p.k.masks {
		sc.need(&sc.edge, 2*p.k.mr*p.k.nr)
	}
	first, last := block*w.block, min((block+1)*w.block, w.rows)
	if w.flat {
		first, last = 0, 1
	}
	var base unsafe.Pointer // of the pixel at row 0, column 0 of the block
	switch {
	case w.patches:
		base = p.patch(sc, block)
	case w.gathered:
		base = p.gather(sc, image, plane*sz, first, last, sy, sx)
	case w.copied:
		base = p.copyRows(sc, image, plane*sz+w.dzMin, first, last, sy)
	case loads:
		base = p.loadRows(sc, worker, from, block, first, last, sy)
	default:
		base = p.pixels(from * s.H * s.W * s.C)
	}
	for cut := cut0; cut < cut1; cut++ {
		p0, p1 := cut*w.panels, min((cut+1)*w.panels, panelsAll)
		if cuts == 1 {
			p1 = panelsAll
		}
		for row := first; row < last; row++ {
			c0, c1 := 0, w.cols
			if w.flat {
				c0, c1 = block*w.block, min((block+1)*w.block, w.cols)
			}
			strips := ceilDiv(c1-c0, w.mr)
			low, rem := (c1-c0)/strips, (c1-c0)%strips
			col := c0
			for st := 0; st < strips; {
				h, count := low, strips-st
				if st < rem {
					h, count = low+1, rem-st
				}
				count = min(count, w.strips)
				if !direct {
					count = min(count, p.stored())
				}
				var at int
				switch {
				case w.gathered:
					at = (row-first)*len(w.ph.segs)*w.line + col*(w.line/w.cols)
				case w.copied:
					at = ((row-first)*sy*w.width + col*sx) * s.C
				case loads && w.flat:
					at = (col - c0) * w.pitch
				case loads:
					at = ((row-first)*sy*w.width + col*sx) * s.C
				default:
					at = (row*sy*w.width + col*sx) * s.C
				}
				pixel := (to*s.OH+oy+row*stepY)*s.OW + ox + col*stepX
				for g := range s.Groups {
					t.a = unsafe.Add(base, (at+g*cg)*size)
					p.panels(sc, g, p0, p1, h, count, pixel, stepX, (row-first)*strips+st)
				}
				if (a.Post != nil || !direct) && cut == cuts-1 {
					p.post(sc, h*count, pixel, stepX)
				}
				col += h * count
				st += count
			}
		}
	}
}

// panels runs count strips of h pixels, from the strip-th of a job on, against panels of a group.
func (p *Plan) panels(sc *scratch, g, p0, p1, h, count, pixel, stepX, strip int) {
	a, s, w, k := p.args, &p.s, p.cur, p.k
	t := &sc.t
	mg := s.M / s.Groups
	size := k.line() * w.ph.steps * len(w.ph.segs)
	stride := len(p.init) / s.Groups
	// The panels of the next cut lie behind these: a half with each of two strips, when those of this one have come.
	ahead := 0
	if strip == 1 || strip == 2 {
		ahead = (p1-p0)*size*4 + (strip-1)*size*2
	}
	pixels := t.a
	t.stepA = h * t.ars
	for pn := p0; pn < p1; pn++ {
		live := min(mg-pn*k.nr, k.nr)
		ch := g*mg + pn*k.nr
		t.a, t.count = pixels, count
		t.b = unsafe.Pointer(&p.f.data[w.ph.b+g*w.ph.group+pn*size])
		t.ahead = uintptr(t.b) + uintptr(ahead)
		if k.kind.integer() && (count > 1 || pn == p1-1) { // the next pixels
			t.ahead = uintptr(pixels) + uintptr(t.stepA)
		}
		t.init = unsafe.Pointer(&p.init[g*stride+pn*k.nr])
		if k.kind != kindF32 {
			t.scale, t.extra = unsafe.Pointer(&p.scale[g*stride+pn*k.nr]), unsafe.Pointer(&p.extra[g*stride+pn*k.nr])
		}
		t.cols = live
		t.res = nil
		if a.Residual != nil {
			t.res, t.ldr = unsafe.Pointer(&a.Residual[pixel*s.M+ch]), stepX*s.M*4
		}
		switch {
		case p.narrow:
			t.c, t.ldc = unsafe.Pointer(&a.Bytes[pixel*s.M+ch]), stepX*s.M
		case a.Store == nil:
			t.c, t.ldc = unsafe.Pointer(&a.Y[pixel*s.M+ch]), stepX*s.M*4
		default:
			t.c, t.ldc = unsafe.Pointer(&sc.out[ch]), s.M*4
		}
		t.stepC, t.stepR = h*t.ldc, h*t.ldr
		f := k.wide[h]
		if k.half != nil && live <= k.nr/2 {
			f = k.half[h]
		}
		if k.masks || live == k.nr {
			f(t)
			continue
		}
		c, res := t.c, t.res
		t.count = 1
		for i := range count {
			t.a, t.c = unsafe.Add(pixels, i*t.stepA), unsafe.Add(c, i*t.stepC)
			if res != nil {
				t.res = unsafe.Add(res, i*t.stepR)
			}
			p.edge(sc, f, h, live)
		}
	}
}

// stored returns how many strips are computed at most before Store takes their pixels.
func (p *Plan) stored() int {
	const floats = 4 << 10 // of the pixels: they stay in L1
	if !p.k.strips {
		return 1
	}
	return max(floats/(p.k.mr*p.s.M), 1)
}

// edge runs a kernel that knows no short panels, by way of scratch memory.
func (p *Plan) edge(sc *scratch, f func(*tile), h, live int) {
	t := &sc.t
	nr := p.k.nr
	c, ldc, res, ldr := t.c, t.ldc, t.res, t.ldr
	size := 4 // bytes of a result
	if p.narrow {
		size = 1
	}
	t.c, t.ldc = unsafe.Pointer(&sc.edge[0]), nr*size
	if res != nil {
		from := sc.edge[p.k.mr*nr:]
		for i := range h {
			copy(from[i*nr:], unsafe.Slice((*float32)(unsafe.Add(res, i*ldr)), live))
		}
		t.res, t.ldr = unsafe.Pointer(&from[0]), nr*4
	}
	f(t)
	for i := range h {
		copy(unsafe.Slice((*byte)(unsafe.Add(c, i*ldc)), live*size), unsafe.Slice((*byte)(unsafe.Add(t.c, i*t.ldc)), live*size))
	}
	t.ldc, t.ldr = ldc, ldr
}

// post finishes the pixels of a strip.
func (p *Plan) post(sc *scratch, h, pixel, stepX int) {
	a, m := p.args, p.s.M
	count, size := h, m
	if stepX == 1 { // neighbours: one call
		count, size = 1, h*m
	}
	for i := range count {
		at := (pixel + i*stepX) * m
		if a.Store == nil {
			a.Post(at, a.Y[at:at+size])
			continue
		}
		row := sc.out[i*size : (i+1)*size]
		if a.Post != nil {
			a.Post(at, row)
		}
		a.Store(at, row)
	}
}

func (sc *scratch) need(v *[]float32, n int) {
	if len(*v) < n {
		*v = alignedFloats(n)
	}
}

// copyRows copies the input rows that output rows first to last of a plane need, with zeros around them, and returns the first one. They come from
// planes of an image from z on.
func (p *Plan) copyRows(sc *scratch, image, z, first, last, sy int) unsafe.Pointer {
	w, s, size := p.cur, &p.s, p.k.kind.size()
	y0 := first*sy + w.dyMin
	y1 := (last-1)*sy + w.dyMin + w.dyRows
	row, depth := w.width*s.C, s.Depth.or(one).In
	sc.need(&sc.rows, w.dzPlanes*w.high*row*size/4+16)
	left, body := w.padLeft*s.C, min(s.W, w.width-w.padLeft)*s.C
	for i := range w.dzPlanes {
		plane := z + i
		for y := y0; y < y1; y++ {
			dst := unsafe.Add(unsafe.Pointer(&sc.rows[0]), (i*w.high+y-y0)*row*size)
			if plane < 0 || plane >= depth || y < 0 || y >= s.H {
				p.fill(dst, row)
				continue
			}
			p.fill(dst, left)
			p.load(unsafe.Add(dst, left*size), ((image*depth+plane)*s.H+y)*s.W*s.C, body)
			p.fill(unsafe.Add(dst, (left+body)*size), row-left-body)
		}
	}
	return unsafe.Pointer(&sc.rows[0])
}

// loadRows converts the input of a block that needs no padding, from one plane, or computes it.
func (p *Plan) loadRows(sc *scratch, worker, plane, block, first, last, sy int) unsafe.Pointer {
	w, s := p.cur, &p.s
	from, n := 0, 0
	if w.flat {
		c0, c1 := block*w.block, min((block+1)*w.block, w.cols)
		from, n = c0*s.C, (c1-c0)*s.C
	} else {
		from = (plane*s.H + first*sy) * s.W * s.C
		n = min((last-1-first)*sy+w.dyMin+w.dyRows, s.H-first*sy) * s.W * s.C
	}
	sc.need(&sc.rows, n*p.k.kind.size()/4+16)
	if p.feeder != nil {
		p.feeder.feed(worker, sc.rows[:n], from)
	} else {
		p.load(unsafe.Pointer(&sc.rows[0]), from, n)
	}
	return unsafe.Pointer(&sc.rows[0])
}

// gather copies the pixels that output rows first to last of a plane read, in the order in which the taps read them, with zeros for those outside,
// and returns the first one: scratch memory has, for each row and segment, the pixels of the segment for every result of the row. The first
// plane of an image that a tap without distance reads is z.
func (p *Plan) gather(sc *scratch, image, z, first, last, sy, sx int) unsafe.Pointer {
	w, s, size := p.cur, &p.s, p.k.kind.size()
	depth, run := s.Depth.or(one).In, w.line/w.cols/s.C
	sc.need(&sc.rows, w.block*len(w.ph.segs)*w.line*size/4+16)
	dst := unsafe.Pointer(&sc.rows[0])
	for row := first; row < last; row++ {
		for _, sg := range w.ph.segs {
			plane, y := z+sg.dz, row*sy+sg.dy
			switch {
			case plane < 0 || plane >= depth || y < 0 || y >= s.H:
				p.fill(dst, w.line)
			case sx == 1 && run == 1: // neighbours
				p.copyPixels(dst, (image*depth+plane)*s.H+y, sg.dx, w.cols)
			default:
				for col := range w.cols {
					p.copyPixels(unsafe.Add(dst, col*run*s.C*size), (image*depth+plane)*s.H+y, col*sx+sg.dx, run)
				}
			}
			dst = unsafe.Add(dst, w.line*size)
		}
	}
	return unsafe.Pointer(&sc.rows[0])
}

// patch copies what the pixels of a block read, in the order in which the taps read it, with zeros for what lies outside, and returns the first.
func (p *Plan) patch(sc *scratch, block int) unsafe.Pointer {
	w, s, size := p.cur, &p.s, p.k.kind.size()
	depth, run := s.Depth.or(one), w.ph.k*s.Groups
	first, last := block*w.block, min((block+1)*w.block, w.cols)
	sc.need(&sc.rows, w.block*w.pitch*size/4+16)
	base := unsafe.Pointer(&sc.rows[0])
	row, x := first/s.OW, first%s.OW
	for i := range last - first {
		plane, top := row/s.OH, row%s.OH*s.SH
		image, front := plane/depth.Out, plane%depth.Out*depth.Stride
		dst := unsafe.Add(base, i*w.pitch*size)
		for _, sg := range w.ph.segs {
			if z, y := front+sg.dz, top+sg.dy; z < 0 || z >= depth.In || y < 0 || y >= s.H {
				p.fill(dst, run)
			} else {
				p.copyPixels(dst, (image*depth.In+z)*s.H+y, x*s.SW+sg.dx, run/s.C)
			}
			dst = unsafe.Add(dst, run*size)
		}
		if x++; x == s.OW {
			row, x = row+1, 0
		}
	}
	return base
}

// copyPixels copies n pixels from x on of a row of all images, with zeros for those outside.
func (p *Plan) copyPixels(dst unsafe.Pointer, row, x, n int) {
	s, size := &p.s, p.k.kind.size()
	from := min(max(-x, 0), n)
	to := max(min(s.W-x, n), from)
	p.fill(dst, from*s.C)
	if to > from {
		p.load(unsafe.Add(dst, from*s.C*size), (row*s.W+x+from)*s.C, (to-from)*s.C)
	}
	p.fill(unsafe.Add(dst, to*s.C*size), (n-to)*s.C)
}
