package gemm

import (
	"fmt"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// kargs is what a kernel is called with. One call computes a strip of h rows (h is fixed by the function) against a run of
// panels of B:
//
//	for each panel:                            c starts from 0, or from memory when acc is set; plus rows[i] + fold*comp[j]
//	    for each step: c[i][j] += a[i] * b[j]      a step covers aK values of k
//	    store c; b += bps; c += NR*4; comp += NR*4
//
// Every sum is one chain of multiply-adds in ascending k, each rounded once, so that all kernels of a type, whatever their
// shape, instruction set and blocking, give the same bits. The dot-product kernels for bf16 are the one exception.
//
// A is read by broadcast: the value (or group of values, 4 bytes) of row i at step t lies at a + i*ars + t*acs. Kernels of tiles take
// tile steps of a row together, which lie side by side: step t at a + i*ars + t/tile*tile*acs + t%tile*4, the first at a. B is read as
// vectors: step t of a panel is NR columns at b + t*bks. C is row-major. Only the last panel may be short: tail columns, 1 to
// NR, are read and written there, while B is read in full unless the kernel says exactB. Elements need no alignment. A kernel
// moves b, c and comp to the last panels that it computed and leaves a.
type kargs struct {
	a      unsafe.Pointer
	b      unsafe.Pointer
	c      unsafe.Pointer
	ars    int // bytes between rows of A
	acs    int // bytes between steps of A
	bks    int // bytes between steps of B
	bps    int // bytes between panels of B
	ldc    int // bytes between rows of C
	k      int // steps
	panels int
	tail   int            // columns of the last panel
	acc    int            // 1: start from C
	comp   unsafe.Pointer // integers: column sums of B, int32
	fold   int            // integers: what each column sum is multiplied by before it joins the sum
	rows   unsafe.Pointer // integers: nil, or what each row's sums start from, int32

	// Fast kernels fetch memory that is needed later: the lines of C that a panel writes and, into L2, one line every four steps
	// from ahead on, which moves by aheadStep from panel to panel, and two lines of each of h rows of A a panel, from nextA on.
	// They are addresses only, never followed. With ahead 0 nothing is fetched, which is best when all lies in caches.
	ahead     uintptr
	aheadStep int
	nextA     uintptr
	nextALead int

	// Kernels of Winograd's inner product take one panel and a run of strips of h rows, aps bytes apart in A, instead; rows holds four
	// a strip. They may add the sums to a second C as well, with rows as far apart: mode 0 overwrites it, 1 adds, -1 subtracts. They move
	// a, c, c2 and rows. The twin is twinInner.
	aps  int
	c2   unsafe.Pointer // nil is none
	mode int

	// Paced kernels compute a run of tiles of which each has A and C a step further on, as the panels of B that others go through: along the
	// panels, or, with bps 0, down the strips of one panel, all of full width. They also fetch the tile of C that follows.
	nextC     int // bytes from the last tile of C of the run to what is computed after it
	aheadLine int // bytes that ahead moves on in each step, up to 64; in kernels that go down a panel, in each eight steps
	nextAStep int // bytes that nextA moves on from tile to tile
	aStep     int
	cStep     int

	// Kernels that go down a panel may pack another one meanwhile, from rows bks bytes apart: in each tile a row every eight steps. They move
	// both addresses, which may end behind what they are of.
	packTo   uintptr
	packFrom uintptr

	// The same kernels, when they start from C, hold the sums of a tile in hold, holdBytes, and move them to C, at heldC, while they compute the
	// next one, which would wait otherwise: where rows of C are a multiple of 4 KiB apart, loads of C below look as if they read what is being
	// stored. Between calls nothing is held.
	hold  unsafe.Pointer
	heldC uintptr
	tileC uintptr // the next tile: it is asked for early, into L2, and again shortly before, since in L1 its lines may push each other out

	// Kernels that say downStrips go through strips of h rows, aps bytes apart in A and one below the other in C, against the same panels; rows holds h
	// a strip. They move a and rows, and leave 0 or less. 0 is one strip.
	strips int

	far int // how many bytes ahead kernels for a B from memory ask for it

	pairs   bool // low strips take panels in pairs where they can
	inPlace bool // so do those of a B in place
	streams bool // B comes from memory
	once    bool // elements of a packed A are loaded once, where there are kernels that do
}

// The offsets that the assembly uses.
var _ = [1]struct{}{}[unsafe.Offsetof(kargs{}.a)|unsafe.Offsetof(kargs{}.b)-1*argSize|unsafe.Offsetof(kargs{}.c)-2*argSize|unsafe.Offsetof(kargs{}.ars)-3*argSize|
	unsafe.Offsetof(kargs{}.acs)-4*argSize|unsafe.Offsetof(kargs{}.bks)-5*argSize|unsafe.Offsetof(kargs{}.bps)-6*argSize|unsafe.Offsetof(kargs{}.ldc)-7*argSize|
	unsafe.Offsetof(kargs{}.k)-8*argSize|unsafe.Offsetof(kargs{}.panels)-9*argSize|unsafe.Offsetof(kargs{}.tail)-10*argSize|unsafe.Offsetof(kargs{}.acc)-11*argSize|
	unsafe.Offsetof(kargs{}.comp)-12*argSize|unsafe.Offsetof(kargs{}.fold)-13*argSize|unsafe.Offsetof(kargs{}.rows)-14*argSize|unsafe.Offsetof(kargs{}.ahead)-15*argSize|
	unsafe.Offsetof(kargs{}.aheadStep)-16*argSize|unsafe.Offsetof(kargs{}.nextA)-17*argSize|unsafe.Offsetof(kargs{}.nextALead)-18*argSize|unsafe.Offsetof(kargs{}.aps)-19*argSize|
	unsafe.Offsetof(kargs{}.c2)-20*argSize|unsafe.Offsetof(kargs{}.mode)-21*argSize|unsafe.Offsetof(kargs{}.nextC)-22*argSize|unsafe.Offsetof(kargs{}.aheadLine)-23*argSize|
	unsafe.Offsetof(kargs{}.nextAStep)-24*argSize|unsafe.Offsetof(kargs{}.aStep)-25*argSize|unsafe.Offsetof(kargs{}.cStep)-26*argSize|unsafe.Offsetof(kargs{}.packTo)-27*argSize|
	unsafe.Offsetof(kargs{}.packFrom)-28*argSize|unsafe.Offsetof(kargs{}.hold)-29*argSize|unsafe.Offsetof(kargs{}.heldC)-30*argSize|unsafe.Offsetof(kargs{}.tileC)-31*argSize|
	unsafe.Offsetof(kargs{}.strips)-32*argSize|unsafe.Offsetof(kargs{}.far)-33*argSize]

const argSize = unsafe.Sizeof(uintptr(0))

// holdBytes is the size of the sums of the highest tile of kernels that hold them.
const holdBytes = 6 * 16 * 4

// stepRows returns how many rows a packed strip of h rows takes in each step: whole vectors of the transposition, except for
// the lowest strips, which would be mostly padding.
func stepRows(h int) int {
	if h < 4 {
		return h
	}
	return roundUp(h, 8)
}

// format says how the elements of B lie in a panel: groups of kr consecutive k, in each group nr columns, for each column its
// kr values together. A kernel reads one format; packed weights record theirs.
type format struct {
	elem Type
	nr   int
	kr   int
}

func (f format) String() string { return fmt.Sprintf("%v/n%d/k%d", f.elem, f.nr, f.kr) }

// flip is what each byte is xored with when it is packed. The dot products of amd64, of four bytes, take B unsigned: it is stored
// 128 higher, and -128 times the sum of each row of A is what that row's sums start from. Those of arm64, of eight, take it signed.
// A is signed: u8 is stored 128 lower, and 128 times the sum of each column of B is added again.
func (f format) flip() uint8 {
	if f.elem == S8 && f.kr == 4 {
		return 0x80
	}
	return 0
}

// lane returns the bytes of the group of one row or column.
func (f format) lane() int { return f.kr * f.elem.Size() }

// step returns the bytes of one group.
func (f format) step() int { return f.nr * f.kr * f.elem.Size() }

// kernel describes one microkernel family: everything that the driver knows about it. Adding a kernel means adding a
// descriptor and its functions.
type kernel struct {
	name string
	isa  cpuinfo.ISA
	need func(*cpuinfo.Features) bool // nil: the level is enough
	a    format                       // A as the kernel reads it; nr is 0
	b    format
	acc  Type // type of the sums
	mr   int  // most rows
	tile int  // 0, or the steps of a row of A that lie side by side; calls then start at multiples of them

	full, half []func(*kargs) // by height 1..mr; half computes only the lower nr/2 columns of a last panel
	fast       []func(*kargs) // nil, or by height: like full, but both operands must be packed
	fastOnce   []func(*kargs) // nil, or fast where few vectors are loaded in a cycle: each element of A is loaded once
	rows       []func(*kargs) // nil, or by height: like full, but B must be packed and the steps of a row of A side by side
	// nil, or fast and rows for the strips of one panel, which stays in L1; fast and rows then are paced.
	fastDown, rowsDown []func(*kargs)
	// as those, packing another panel from packFrom, in rows bks bytes apart, to packTo: in each tile a row every eight steps
	fastDownPack, rowsDownPack []func(*kargs)
	wide                       []func(*kargs) // nil, or for low heights a kernel that takes wideP panels at once
	wideP                      []int

	// nil, or by height: like rows, for two panels at once, from each of which they fetch a line every four steps from ahead on. Those for few strips
	// fetch up to a line a step.
	pairs, pairsFew []func(*kargs)
	pairsAny        []func(*kargs) // nil, or as pairs for a B in place and A by any strides; they fetch nothing

	// nil, or for low heights a kernel for a B that comes from memory, of which it reads streamsP panels side by side: B must be packed and the steps of a
	// row of A side by side.
	streams  []func(*kargs)
	streamsP []int

	downStrips bool // all functions take several strips of one height in a call

	exactB bool // no function reads more than tail columns of the last panel of B

	// axpy is nil, or adds eight rows of a row-major B, ldb bytes apart, times the eight values at a to n elements of C, a multiple
	// of b.nr; fresh ignores what C held.
	axpy func(c, a, b unsafe.Pointer, ldb, n, fresh int)
}

// packedSteps returns how many steps of A its packed strips have room for.
func (k *kernel) packedSteps(steps int) int {
	if k.tile > 0 {
		return roundUp(steps, k.tile)
	}
	return steps
}

// packedRows returns how many rows a packed strip of h rows takes: tiles take it as it is.
func (k *kernel) packedRows(h int) int {
	if k.tile > 0 {
		return h
	}
	return stepRows(h)
}

// The forms in which kernels read A. A step is 4 bytes, but for aInner 8.
var (
	aF32   = format{elem: F32, kr: 1}
	aBF16  = format{elem: BF16, kr: 2}
	aS8    = format{elem: S8, kr: 4}
	aS16   = format{elem: s16, kr: 2}
	aInner = format{elem: s16, kr: 4} // for Winograd's inner product; see inner.go
)

// run computes a strip of h rows against panels, of which the last has tail columns, in calls that go through at most about most bytes of B as
// the kernel reads it: a call cannot be interrupted.
func (k *kernel) run(p *kargs, h, panels, tail, most int) {
	step := k.a.lane() * k.b.nr
	if p.k*panels <= most/step {
		k.runAtOnce(p, 1, h, panels, tail)
		return
	}
	_, group := k.several(p, h, panels)
	group = max(most/step/p.k/group, 1) * group
	first := *p
	for done := 0; done < panels; done += group {
		n, t := min(group, panels-done), k.b.nr
		if done+n == panels {
			t = tail
		}
		p.b, p.c = unsafe.Add(first.b, done*first.bps), unsafe.Add(first.c, done*k.b.nr*4)
		if p.comp != nil {
			p.comp = unsafe.Add(first.comp, done*k.b.nr*4)
		}
		k.runInPieces(p, h, n, t, max(most/step/n, 1))
	}
}

// several returns the function that takes most panels at once, of so many that are left for a strip of h rows, and how many; nil and 1 is none.
func (k *kernel) several(p *kargs, h, left int) (f func(*kargs), panels int) {
	switch {
	case p.streams && h < len(k.streams) && left >= k.streamsP[h] && p.acs == 4 && p.bks == k.b.step():
		return k.streams[h], k.streamsP[h]
	case left < 2:
	case p.pairs && h < len(k.pairs) && p.acs == 4 && p.bks == k.b.step():
		if p.aheadLine > 16 {
			return k.pairsFew[h], 2
		}
		return k.pairs[h], 2
	case p.inPlace && h < len(k.pairsAny):
		return k.pairsAny[h], 2
	case h < len(k.wide) && k.wide[h] != nil && left >= k.wideP[h]:
		return k.wide[h], k.wideP[h]
	}
	return nil, 1
}

// pieceSteps is what the steps of a call are a multiple of where k is divided: whole groups of every format.
const pieceSteps = 64

// runInPieces divides k into calls of about most steps; sums go on in C.
func (k *kernel) runInPieces(p *kargs, h, panels, tail, most int) {
	first := *p
	piece := max(most/pieceSteps, 1) * pieceSteps
	for t := 0; t < first.k; t += piece {
		p.k = min(piece, first.k-t)
		p.a, p.c, p.comp = unsafe.Add(first.a, t*first.acs), first.c, first.comp
		p.b = unsafe.Add(first.b, t*k.a.kr/k.b.kr*first.bks)
		if t > 0 {
			p.acc, p.fold, p.rows = 1, 0, nil
			if first.ahead != 0 {
				p.ahead = first.ahead + uintptr(t*first.aheadLine)
			}
		}
		k.runAtOnce(p, 1, h, panels, tail)
	}
	p.a, p.k, p.acc, p.fold, p.rows = first.a, first.k, first.acc, first.fold, first.rows
	if first.ahead != 0 {
		p.ahead = first.ahead + uintptr(panels*first.aheadStep)
	}
}

// pass is a call of one function for a strip: some of its panels.
type pass struct {
	run          func(*kargs)
	first        int // panel
	panels, tail int // panels of the call, which the function may take several at a time; columns of the last one
}

// passes returns the calls that take all panels of a strip of h rows with the widest functions, and how many there are. Of p it reads strides and forms.
func (k *kernel) passes(p *kargs, h, panels, tail int) (list [4]pass, n int) {
	nr := k.b.nr
	full := k.full[h]
	// Functions for a packed B read whole panels, of which a B in place may lack the last one though its rows lie a step apart.
	short := k.exactB && tail < nr && p.bps == nr*4
	if k.fast != nil && k.fast[h] != nil && p.bks == k.b.step() && !short {
		switch {
		case p.acs == 4:
			full = k.rows[h]
		case p.ars == 4 && p.acs == 4*stepRows(h):
			if full = k.fast[h]; p.once && k.fastOnce != nil {
				full = k.fastOnce[h]
			}
		}
	}
	at, whole := 0, panels
	if tail < nr {
		whole--
	}
	for wide, w := k.several(p, h, whole); wide != nil; wide, w = k.several(p, h, whole-at) {
		g := (whole - at) / w
		list[n] = pass{wide, at, g, nr}
		at, n = at+g*w, n+1
	}
	if left := panels - at; left > 0 && tail <= nr/2 && k.half != nil {
		if left > 1 {
			list[n] = pass{full, at, left - 1, nr}
			n++
		}
		list[n] = pass{k.half[h], panels - 1, 1, tail}
		n++
	} else if left > 0 {
		list[n] = pass{full, at, left, tail}
		n++
	}
	return list, n
}

// runAtOnce is run, of strips of h rows, with one call of each of the widest functions.
func (k *kernel) runAtOnce(p *kargs, strips, h, panels, tail int) {
	list, n := k.passes(p, h, panels, tail)
	a, b, c, comp, rows := p.a, p.b, p.c, p.comp, p.rows
	for i := range list[:n] {
		p.a, p.rows, p.strips = a, rows, strips
		list[i].call(p, b, c, comp, k.b.nr)
	}
	p.a, p.rows, p.strips = a, rows, 0
}

// call runs the function on its panels of a strip whose first panels of B and C, and column sums, lie there.
func (x *pass) call(p *kargs, b, c, comp unsafe.Pointer, nr int) {
	p.b, p.c, p.comp = unsafe.Add(b, x.first*p.bps), unsafe.Add(c, x.first*nr*4), nil
	if comp != nil {
		p.comp = unsafe.Add(comp, x.first*nr*4)
	}
	p.panels, p.tail = x.panels, x.tail
	x.run(p)
}

// advance moves to the panel after the n that the last step of a kernel computed; there must be one, so that no pointer leaves
// its memory.
func (p *kargs) advance(n, nr int) {
	p.b, p.c = unsafe.Add(p.b, n*p.bps), unsafe.Add(p.c, n*nr*4)
	if p.comp != nil {
		p.comp = unsafe.Add(p.comp, n*nr*4)
	}
}

// allKernels are those of this build, best first.
var allKernels = append(archKernels(), portableKernels()...)

// find returns the best kernel that reads A and B in these forms, of a level not above isa, or nil. An nr or kr of B of 0 means
// any.
func find(isa cpuinfo.ISA, a, b format) *kernel {
	in := cpuinfo.Get()
	for _, k := range allKernels {
		if k.a == a && k.b.elem == b.elem && (b.kr == 0 || k.b.kr == b.kr) && (b.nr == 0 || k.b.nr == b.nr) && k.isa <= isa && in.Has(k.isa) &&
			(k.need == nil || k.need(&in.Features)) {
			return k
		}
	}
	return nil
}

// engine says how products of one pair of types run on one level.
type engine struct {
	pack format  // what B is packed as
	main *kernel // for many rows; when it reads another format than pack, chunks of B are widened for it
	low  *kernel // for few rows; reads pack
}

// ofA returns the kernel that a packed A is packed for.
func (e *engine) ofA() *kernel {
	if e.main.a == aInner {
		return e.low // the other one takes plain rows only
	}
	return e.main
}

// engineKey is what an engine is chosen by.
type engineKey struct {
	isa  cpuinfo.ISA
	a, b Type
	f    format
	mode BF16Mode
}

// BF16Mode chooses how products of two bf16 operands are computed.
type BF16Mode uint8

// Widen multiplies in float32, with the order of sums of the package. Dot uses TDPBF16PS, VDPBF16PS or BFMMLA, which add pairs or, with
// tiles, the even and the odd ones of 32 k apart, flush subnormals, and so differ in the last places, also from each other. Auto takes the
// faster one on this processor. A level computes all shapes in one way, so that within it the bits depend on neither shape nor path; chunks
// of k that Accumulate joins give the bits of one call where they are multiples of 32.
const (
	Auto BF16Mode = iota
	Widen
	Dot
)

// engineFor returns the engine for operand types; f, when it is not zero, is the format that B has been packed in.
func engineFor(isa cpuinfo.ISA, a, b Type, f format, mode BF16Mode) (engine, error) {
	var e engine
	float := a == F32 || a == BF16 || a == F16
	switch {
	case b == F32 && float:
		e.main = find(isa, aF32, format{F32, f.nr, 1})
		e.low = e.main
	case (b == BF16 || b == F16) && float:
		e.main = find(isa, aF32, format{F32, f.nr, 1})
		if e.main != nil {
			e.low = find(isa, aF32, format{b, e.main.b.nr, f.kr})
		}
		if a == BF16 && b == BF16 && e.low != nil {
			in := cpuinfo.Get()
			if mode == Auto && (in.Features.VPDPFast || in.Features.BF16 || in.Features.AMXBF16 && isa >= cpuinfo.AMX) {
				mode = Dot
			}
			if mode == Dot {
				if k := find(isa, aBF16, e.low.b); k != nil {
					e.main, e.low = k, k
				}
			}
		}
	case b == S8 && (a == S8 || a == U8):
		for _, k := range allKernels {
			if k.b.elem == S8 && (f.nr == 0 || f == k.b) {
				if k = find(isa, k.a, k.b); k != nil {
					e.main, e.low = k, k
					break
				}
			}
		}
		if e.main != nil && e.main.tile > 0 {
			// Sums of integers are exact, so that few rows may go another way.
			if k := find(e.main.isa-1, e.main.a, e.main.b); k != nil {
				e.low = k
			}
		}
		if e.low != nil && e.low.a == aS16 {
			if k := find(isa, aInner, format{s16, e.low.b.nr, aInner.kr}); k != nil {
				e.main = k
			}
		}
	default:
		return e, fmt.Errorf("gemm: no product of %v by %v: want f32, bf16 or f16 by f32, bf16 or f16; or u8 or s8 by s8", a, b)
	}
	if e.main == nil || e.low == nil {
		if f.nr != 0 {
			return e, fmt.Errorf("gemm: B was packed as %v, which no kernel of %v reads: pack it again for this processor", f, isa)
		}
		return e, fmt.Errorf("gemm: no kernel of %v for %v by %v", isa, a, b)
	}
	e.pack = e.low.b
	return e, nil
}
