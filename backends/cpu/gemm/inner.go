package gemm

import "unsafe"

// Products of bytes where the processor multiplies words in pairs (VPMADDWD) and has no dot product of bytes. All is exact modulo 2^32.
//
// Winograd's inner product. Of four k, with a0 to a3 of a row and b0 to b3 of a column,
//
//	(a0+b2)(a2+b0) + (a1+b3)(a3+b1) = a0b0 + a1b1 + a2b2 + a3b3 + (a0a2 + a1a3) + (b0b2 + b1b3)
//
// so that two products of words and two additions stand for four products; what is too much belongs to a row or a column and is subtracted
// once. Processors that multiply on two ports and add on four run this a tenth faster than the plain product of words.
//
// Strassen's algorithm. Two by two blocks are multiplied with seven products of sums and differences of blocks instead of eight. The
// blocks are small, of some strips, panels and steps of k, and the sums are formed where bytes become words anyway. Kernels add each product
// to the two blocks of C that need it. Words have room: bytes less a zero point take 10 bits, a level of Strassen's algorithm one more, and
// the sums of the inner product another.
//
// A worker takes a block of C through k in chunks: a chunk of B, as words, stays in L2 and each of its panels in L1, while groups of strips
// of A, packed as words, go by.

const (
	innerRowsMax = 4
	innerStep    = innerRowsMax * 8 // bytes of a step of a packed strip
	innerGroup   = 12               // strips that are packed together: 48 KiB of L2 with chunks of 128 steps
)

// innerBytes returns what a strip of kc steps takes: whole vectors of a row.
func innerBytes(kc int) int { return roundUp(kc, 4) * innerStep }

// innerChunk bounds the steps of a chunk: block takes a fifth more where that is all, and rounds.
func innerChunk(kn *knobs) int { return kn.innerSteps*5/4 + 16 }

// innerStrips is what a worker needs to pack strips of A.
type innerStrips struct {
	terms [innerGroup][innerRowsMax]int32 // what the sums of each row start from
	tail  [innerRowsMax][16]byte          // the last bytes of each row, and zeros
}

// join says what becomes of the two sources of an operand.
type join uint8

const (
	oneSource join = iota // there is no second one
	sumOfTwo
	difference
)

// innerRows packs four rows of n bytes, a multiple of 16, less zero, as words, four of each row in turn, and subtracts a0a2 + a1a3 of each
// four from the term of its row. Rows lie lead bytes apart; from the h-th on, the last one is taken again. A sum is less twice zero.
type innerRows = func(terms, dst, src, other unsafe.Pointer, lead, h, n int, zero int32)

// innerPanel widens pairs of k of a panel of 16 columns of signed bytes to words, filled up with zeros to whole groups of four k, and
// writes -(b0b2 + b1b3) of each four, summed, as the terms of the columns.
type innerPanel = func(terms, dst, src, other unsafe.Pointer, pairs int)

// The functions by join: assembly where this build and processor have it.
var (
	innerRowsS8 = [3]innerRows{twinInnerRows(false, oneSource), twinInnerRows(false, sumOfTwo), twinInnerRows(false, difference)}
	innerRowsU8 = [3]innerRows{twinInnerRows(true, oneSource), twinInnerRows(true, sumOfTwo), twinInnerRows(true, difference)}
	innerPanels = [3]innerPanel{twinInnerPanel(oneSource), twinInnerPanel(sumOfTwo), twinInnerPanel(difference)}
)

// strassen lists the seven products. Blocks are numbered 0 to 3: upper or left first, then k (of A) or columns (of B and C); an operand is
// a block or two joined. Each product is added to C block c, and to block d, unless that is -1, with the mode of kargs. The first product
// that a block of C sees comes before those that are added; fresh says which of the two start one.
var strassen = [7]struct {
	a, b   joined
	c, d   int
	mode   int
	fresh  bool // c starts
	freshD bool // d starts
}{
	{a: joined{0, 3, sumOfTwo}, b: joined{0, 3, sumOfTwo}, c: 0, d: 3, mode: 1, fresh: true, freshD: true},
	{a: joined{2, 3, sumOfTwo}, b: joined{0, 0, oneSource}, c: 2, d: 3, mode: -1, fresh: true},
	{a: joined{0, 0, oneSource}, b: joined{1, 3, difference}, c: 1, d: 3, mode: 1, fresh: true},
	{a: joined{3, 3, oneSource}, b: joined{2, 0, difference}, c: 0, d: 2, mode: 1},
	{a: joined{0, 1, sumOfTwo}, b: joined{3, 3, oneSource}, c: 1, d: 0, mode: -1},
	{a: joined{2, 0, difference}, b: joined{0, 1, sumOfTwo}, c: 3, d: -1},
	{a: joined{1, 3, difference}, b: joined{2, 3, sumOfTwo}, c: 0, d: -1},
}

// joined is an operand of a product: block x, joined with block y.
type joined struct {
	x, y int
	join join
}

// The least sizes of a block, in steps, pairs of panels and pairs of strips, from which Strassen's algorithm saves more than its sums cost.
const (
	strassenSteps  = 48
	strassenPanels = 4
	strassenStrips = 6
)

// innerBlock is the block of C that a worker computes.
type innerBlock struct {
	p      *product
	args   *kargs
	own    *innerStrips
	b      unsafe.Pointer // panels of B as words
	terms  unsafe.Pointer // of their columns
	a      unsafe.Pointer // a group of strips
	c      unsafe.Pointer // the first element of the block
	ldc    int
	row0   int  // its row in the part
	packs  *int // strips of A so far
	room   int  // steps of panels that there is room for
	p0, p1 int
	tail   int // columns of panel p1-1
}

// computeInner does one block of C for all of k in the part.
func (p *product) computeInner(worker, job int) {
	s0, s1, p0, p1 := p.blockOf(job)
	w := &p.workers[worker]
	nr := p.kern.b.nr
	private := unsafe.Add(p.private, worker*p.privateStep)
	x := &w.block
	*x = innerBlock{p: p, args: &w.args, own: &w.inner, b: private, terms: unsafe.Add(private, p.widenBytes-chunkSumBytes),
		a: unsafe.Add(private, p.widenBytes), p0: p0, p1: p1, tail: nr, packs: &w.packs[0],
		room: (p.widenBytes - chunkSumBytes) / p.kern.b.step()}
	if p1 == p.panels {
		x.tail = p.tail
	}
	x.row0, _ = p.strip(s0)
	sums := unsafe.Add(x.a, p.stripBytes)
	if p.scratch {
		x.ldc = (p1 - p0) * nr * 4
		x.c = sums
	} else {
		x.ldc = p.c.RowStride * 4
		x.c = p.c.at(p.m0+x.row0, p.n0+p0*nr)
	}
	x.args.ars, x.args.acs, x.args.bks, x.args.ldc = p.kern.a.lane(), innerStep, p.kern.b.step(), x.ldc

	steps := ceilDiv(p.kp, p.kern.a.kr)
	pairs := (p1 - p0) / 2 // of panels, which are whole
	if x.tail < nr {
		pairs = (p1 - p0 - 1) / 2
	}
	pairs = min(pairs, x.room/p.bl.kc, chunkSumBytes/4/nr)
	for t0 := 0; t0 < steps; {
		add := t0 > 0 || p.k0 > 0 || p.acc && !p.scratch
		left := steps - t0
		half := min(left/2, p.bl.kc) &^ 3
		if rest := left - 2*half; 0 < rest && rest < 16 {
			half -= 8
		}
		if p.kp%p.kern.a.kr != 0 && 2*half == left {
			half -= 8 // the last step has no four k
		}
		if half < strassenSteps || pairs < strassenPanels {
			kc := min(p.bl.kc, left)
			x.plain(s0, s1, p0, p1, t0, kc, add)
			t0 += kc
			continue
		}
		// Pairs of strips of one height; what is left over is multiplied the plain way.
		for s := s0; s < s1; {
			end := s1
			if s < p.rem {
				end = min(s1, p.rem)
			}
			both := (end - s) / 2
			if both < strassenStrips {
				both = 0
			}
			from := p0
			if both > 0 {
				x.strassen(s, both, pairs, t0, half, add)
				from += 2 * pairs
			}
			for i := range 2 {
				x.plain(s, s+2*both, from, p1, t0+i*half, half, add || i > 0)
				x.plain(s+2*both, end, p0, p1, t0+i*half, half, add || i > 0)
			}
			s = end
		}
		t0 += 2 * half
	}
	if p.scratch || p.epi != nil {
		for s := s0; s < s1; s++ {
			row, h := p.strip(s)
			p.finish(sums, row, h, row-x.row0, x.ldc, p.n0+p0*nr, (p1-p0-1)*nr+x.tail)
		}
	}
}

// source returns where the bytes of a panel lie from step t on.
func (x *innerBlock) source(panel, t int) unsafe.Pointer {
	p := x.p
	k := p.k0 + t*p.kern.a.kr
	if p.pb != nil {
		return p.pb.addr(p.n0/p.kern.b.nr+panel, k)
	}
	return unsafe.Add(p.bPacked, panel*p.panelBytes()+(k-p.k0)/p.bf.kr*p.bf.step())
}

// run multiplies the strips that lie packed, of h rows from row on, by the panels that lie widened, from panel on.
func (x *innerBlock) run(row, h, strips, kc, panel, panels int, add bool, row2, panel2, mode int) {
	p, args := x.p, x.args
	nr := p.kern.b.nr
	for i := range panels {
		tail := nr
		if panel+i == x.p1-1 {
			tail = x.tail
		}
		args.a, args.aps, args.k = x.a, innerBytes(kc), kc
		args.b = unsafe.Add(x.b, i*kc*args.bks)
		args.comp, args.fold = unsafe.Add(x.terms, i*nr*4), 1
		args.rows = unsafe.Pointer(&x.own.terms)
		args.c = unsafe.Add(x.c, (row-x.row0)*x.ldc+(panel+i-x.p0)*nr*4)
		args.acc = 0
		if add {
			args.acc = 1
		}
		args.c2 = nil
		if row2 >= 0 {
			args.c2, args.mode = unsafe.Add(x.c, (row2-x.row0)*x.ldc+(panel2+i-x.p0)*nr*4), mode
		}
		args.panels, args.tail = strips, tail
		if tail <= nr/2 {
			p.kern.half[h](args)
		} else {
			p.kern.full[h](args)
		}
	}
}

// plain multiplies strips s0 to s1 by panels p0 to p1 for kc steps from t0 on.
func (x *innerBlock) plain(s0, s1, p0, p1, t0, kc int, add bool) {
	most := min(x.room/kc, chunkSumBytes/4/x.p.kern.b.nr)
	for ; s0 < s1 && p0 < p1; p0 += most {
		x.sweep(s0, s1, p0, min(p0+most, p1), t0, kc, add)
	}
}

// sweep is plain for panels that there is room for.
func (x *innerBlock) sweep(s0, s1, p0, p1, t0, kc int, add bool) {
	p := x.p
	kr, nr := p.kern.a.kr, p.kern.b.nr
	depth := min(kc*kr, p.kp-t0*kr)
	for i := range p1 - p0 {
		innerPanels[oneSource](unsafe.Add(x.terms, i*nr*4), unsafe.Add(x.b, i*kc*p.kern.b.step()), x.source(p0+i, t0), nil, ceilDiv(depth, p.bf.kr))
	}
	for s := s0; s < s1; {
		row, h := p.strip(s)
		n := 0
		for ; n < innerGroup && s+n < s1; n++ {
			r, hn := p.strip(s + n)
			if hn != h {
				break
			}
			src := p.a.at(p.m0+r, p.k0+t0*kr)
			x.own.pack(n, unsafe.Add(x.a, n*innerBytes(kc)), src, nil, &p.a, oneSource, h, depth, p.aZero)
		}
		*x.packs += n
		x.run(row, h, n, kc, p0, p1-p0, add, -1, 0, 0)
		s += n
	}
}

// strassen multiplies twice as many strips as both, from s on, of one height, by twice as many panels as pairs, from the block's first
// on, for two chunks of kc steps from t0 on.
func (x *innerBlock) strassen(s, both, pairs, t0, kc int, add bool) {
	p := x.p
	kr, nr := p.kern.a.kr, p.kern.b.nr
	row, h := p.strip(s)
	depth := kc * kr
	for i := range strassen {
		q := &strassen[i]
		for j := range pairs {
			at := func(block int) unsafe.Pointer { return x.source(x.p0+block%2*pairs+j, t0+block/2*kc) }
			innerPanels[q.b.join](unsafe.Add(x.terms, j*nr*4), unsafe.Add(x.b, j*kc*p.kern.b.step()), at(q.b.x), at(q.b.y), depth/p.bf.kr)
		}
		mode := q.mode
		if q.freshD && !add {
			mode = 0
		}
		for done := 0; done < both; {
			n := min(innerGroup, both-done)
			for j := range n {
				at := func(block int) unsafe.Pointer {
					return p.a.at(p.m0+row+(block/2*both+done+j)*h, p.k0+t0*kr+block%2*depth)
				}
				x.own.pack(j, unsafe.Add(x.a, j*innerBytes(kc)), at(q.a.x), at(q.a.y), &p.a, q.a.join, h, depth, p.aZero)
			}
			*x.packs += n
			first, second, panel2 := row+(q.c/2*both+done)*h, -1, 0
			if q.d >= 0 {
				second, panel2 = row+(q.d/2*both+done)*h, x.p0+q.d%2*pairs
			}
			x.run(first, h, n, kc, x.p0+q.c%2*pairs, pairs, add || !q.fresh, second, panel2, mode)
			done += n
		}
	}
}

// pack packs depth values of k of the h rows of a strip, which are contiguous, as words, as the i-th of a group.
func (s *innerStrips) pack(i int, dst, src, other unsafe.Pointer, a *Matrix, j join, h, depth int, zero int32) {
	pack := &innerRowsS8
	if a.typ == U8 {
		pack = &innerRowsU8
	}
	s.terms[i] = [innerRowsMax]int32{}
	terms, whole := unsafe.Pointer(&s.terms[i]), depth&^15
	if whole > 0 {
		pack[j](terms, dst, src, other, a.RowStride, h, whole, zero)
	}
	if whole == depth {
		return
	}
	s.tail = [innerRowsMax][16]byte{}
	for r := range h {
		copy(s.tail[r][:], unsafe.Slice((*byte)(unsafe.Add(src, r*a.RowStride+whole)), depth-whole))
	}
	pack[oneSource](terms, unsafe.Add(dst, whole/4*innerStep), unsafe.Pointer(&s.tail), nil, 16, h, 16, zero)
	// Steps past the end, which no kernel takes, hold -zero four times.
	for r := range s.terms[i] {
		s.terms[i][r] += 2 * zero * zero * int32((16-(depth-whole))/4)
	}
}

func (j join) of(x, y int16) int16 {
	switch j {
	case sumOfTwo:
		return x + y
	case difference:
		return x - y
	}
	return x
}

// twinInnerRows returns the packing of rows in Go.
func twinInnerRows(unsigned bool, j join) innerRows {
	word := func(p unsafe.Pointer, zero int32) int16 {
		if unsigned {
			return int16(*(*uint8)(p)) - int16(zero)
		}
		return int16(*(*int8)(p)) - int16(zero)
	}
	return func(terms, dst, src, other unsafe.Pointer, lead, h, n int, zero int32) {
		out := unsafe.Slice((*[innerRowsMax][4]int16)(dst), n/4)
		for i := range innerRowsMax {
			term := (*int32)(unsafe.Add(terms, i*4))
			for t := range out {
				w := &out[t][i]
				for e := range w {
					at := min(i, h-1)*lead + 4*t + e
					w[e] = word(unsafe.Add(src, at), zero)
					if j != oneSource {
						w[e] = j.of(w[e], word(unsafe.Add(other, at), zero))
					}
				}
				*term -= int32(w[0])*int32(w[2]) + int32(w[1])*int32(w[3])
			}
		}
	}
}

// twinInnerPanel returns the widening of panels in Go.
func twinInnerPanel(j join) innerPanel {
	const nr = 16
	return func(terms, dst, src, other unsafe.Pointer, pairs int) {
		out := unsafe.Slice((*int16)(dst), roundUp(pairs, 2)*2*nr)
		sums := unsafe.Slice((*int32)(terms), nr)
		clear(sums)
		clear(out)
		for i := range pairs * 2 * nr {
			out[i] = int16(*(*int8)(unsafe.Add(src, i)))
			if j != oneSource {
				out[i] = j.of(out[i], int16(*(*int8)(unsafe.Add(other, i))))
			}
		}
		for ; len(out) > 0; out = out[4*nr:] {
			for c := range sums {
				sums[c] -= int32(out[2*c])*int32(out[2*(c+nr)]) + int32(out[2*c+1])*int32(out[2*(c+nr)+1])
			}
		}
	}
}

// twinInner is the kernel of h rows, of columns nr or half as many, in Go.
func twinInner(h, cols int, b format) func(*kargs) {
	return func(p *kargs) {
		for ; p.panels > 0; p.panels-- {
			for i := range h {
				for j := range min(cols, p.tail) {
					s := int32(p.fold)**(*int32)(unsafe.Add(p.comp, j*4)) + *(*int32)(unsafe.Add(p.rows, i*4))
					for t := range p.k {
						x := (*[4]int16)(unsafe.Add(p.a, i*p.ars+t*p.acs))
						lo := (*[2]int16)(unsafe.Add(p.b, t*p.bks+j*4))
						hi := (*[2]int16)(unsafe.Add(p.b, t*p.bks+(b.nr+j)*4))
						s += int32(x[0]+hi[0])*int32(x[2]+lo[0]) + int32(x[1]+hi[1])*int32(x[3]+lo[1])
					}
					at := i*p.ldc + j*4
					c := (*int32)(unsafe.Add(p.c, at))
					if p.acc != 0 {
						*c += s
					} else {
						*c = s
					}
					if p.c2 == nil {
						continue
					}
					switch c = (*int32)(unsafe.Add(p.c2, at)); p.mode {
					case 0:
						*c = s
					case 1:
						*c += s
					default:
						*c -= s
					}
				}
			}
			if p.panels > 1 {
				p.a, p.c, p.rows = unsafe.Add(p.a, p.aps), unsafe.Add(p.c, h*p.ldc), unsafe.Add(p.rows, innerRowsMax*4)
				if p.c2 != nil {
					p.c2 = unsafe.Add(p.c2, h*p.ldc)
				}
			}
		}
	}
}
