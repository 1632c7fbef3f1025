package gemm

import "unsafe"

// Packing copies a block of an operand into the order in which a kernel reads it: panels of `width` leading elements (rows of
// A, columns of B), in each panel the groups of kr consecutive k one after another, in each group the kr values of each
// leading element together. Places past the end of the operand hold a fixed value. There is one such order per format,
// whatever the strides of the source, so the packed bytes do not depend on the path that wrote them: plain Go here, assembly
// for the layouts that matter, which moves groups of four or eight bytes.

// packTile is the number of k that a strided source is read along before the next leading element is taken: one cache line of
// f32, so that each line of the source is used whole while it is in L1, and the tile of the destination stays in L1 too.
const packTile = 16

// lineHalves is the number of 2-byte elements of a cache line.
const lineHalves = 32

type word interface{ uint8 | uint16 | uint32 }

// panel describes the packing of one panel: depth values of k for live of width leading elements, which lie lead and deep
// elements apart in the source. Each value is xored with flip; pad stands in the places without a source.
type panel struct {
	lead, deep  int
	live, width int
	depth, kr   int
	flip, pad   uint8
	loose       bool // lanes from live to width may hold anything
}

// packSteps is how many k of a panel are packed together, a multiple of all groups: one call of assembly cannot be interrupted.
const packSteps = 1024

// packCallBytes is what a call of packing or of sums goes through at most where there is more; those of kernels have a knob.
const packCallBytes = 256 << 10

// packPanel packs one panel.
func packPanel[T word](dst, src unsafe.Pointer, p panel) {
	size, depth := int(unsafe.Sizeof(T(0))), p.depth
	for ; depth > packSteps; depth -= packSteps {
		p.depth = packSteps
		packPiece[T](dst, src, p)
		dst, src = unsafe.Add(dst, packSteps*p.width*size), unsafe.Add(src, packSteps*p.deep*size)
	}
	p.depth = depth
	packPiece[T](dst, src, p)
}

// packPiece packs a panel of few k.
func packPiece[T word](dst, src unsafe.Pointer, p panel) {
	size := int(unsafe.Sizeof(T(0)))
	groups := ceilDiv(p.depth, p.kr)
	out := unsafe.Slice((*T)(dst), groups*p.width*p.kr)
	if p.live < p.width || p.depth%p.kr != 0 {
		fillPad(out, p)
	}
	if p.live == 0 || p.depth == 0 {
		return
	}
	t0 := 0
	switch {
	case p.kr*size == 8:
		t0 = packLongGroups(dst, src, p, size)
	case size == 2 && p.kr <= 2 && p.deep == 1 && p.live == p.width && p.width%16 == 0 && transposeRows[p.kr] != nil && p.depth >= lineHalves:
		t0 = p.depth / lineHalves * lineHalves
		for i := 0; i < p.width; i += 16 {
			transposeRows[p.kr](unsafe.Add(dst, i*p.kr*2), unsafe.Add(src, i*p.lead*2), p.lead*2, t0/lineHalves, p.width*p.kr*2)
		}
	case p.kr%packTile == 0: // tiles
		packTiles(out, src, p)
		return
	case p.lead == 1 && p.kr > 1 && interleave[p.kr][size] != nil && p.depth >= p.kr && p.live >= 16:
		groups, cols := p.depth/p.kr, p.live&^15
		t0 = groups * p.kr
		interleave[p.kr][size](dst, src, p.deep*size, groups, p.width*p.kr*size, cols*size, uint32(p.flip)*0x01010101)
		packRest(dst, src, p, size, cols, t0)
	case p.kr*size == 4:
		t0 = packGroups(dst, src, p, size)
	case p.kr == 1 && size == 2 && p.deep == 1 && p.lead != 1 && p.live == p.width:
		t0 = packHalves(unsafe.Slice((*uint16)(dst), p.depth*p.width), src, p)
	}
	flip := T(p.flip)
	if p.lead == 1 && p.kr == 1 {
		for t := t0; t < p.depth; t++ {
			row := unsafe.Slice((*T)(unsafe.Add(src, t*p.deep*size)), p.live)
			to := out[t*p.width:][:len(row)]
			if len(row) > 8 {
				copy(to, row)
				continue
			}
			//lint:ignore S1001 a call would take longer
			for i, v := range row {
				to[i] = v
			}
		}
		return
	}
	for ; t0 < p.depth; t0 += packTile {
		t1 := min(t0+packTile, p.depth)
		for i := range p.live {
			s := unsafe.Add(src, (i*p.lead+t0*p.deep)*size)
			for t := t0; ; {
				out[(t/p.kr*p.width+i)*p.kr+t%p.kr] = *(*T)(s) ^ flip
				if t++; t == t1 {
					break
				}
				s = unsafe.Add(s, p.deep*size)
			}
		}
	}
}

// packTiles packs groups that are rows of tiles. Pieces of packTile k lie side by side in the panel.
func packTiles[T word](out []T, src unsafe.Pointer, p panel) {
	size, flip := int(unsafe.Sizeof(T(0))), T(p.flip)
	for t0 := 0; t0 < p.depth; t0 += packTile {
		n := min(packTile, p.depth-t0)
		for i := range p.live {
			s := unsafe.Add(src, (i*p.lead+t0*p.deep)*size)
			row := out[(t0/p.kr*p.width+i)*p.kr+t0%p.kr:][:n]
			if p.deep == 1 && flip == 0 {
				copy(row, unsafe.Slice((*T)(s), n))
				continue
			}
			for t := range row {
				row[t] = *(*T)(unsafe.Add(s, t*p.deep*size)) ^ flip
			}
		}
	}
}

// packHalves transposes rows of 16-bit elements as pairs of k, which assembly moves, and takes the pairs apart; it returns the number of
// k that it did.
func packHalves(out []uint16, src unsafe.Pointer, p panel) int {
	const pairs = 32
	if p.width > 32 || p.width%2 != 0 || transpose8 == nil && transpose4 == nil && transposeWide == nil {
		return 0
	}
	var buf [pairs * 32]uint32 // on the heap: its address goes to assembly through a variable
	q := p
	q.kr, q.depth = 2, 2*pairs
	t := 0
	for ; t+2*pairs <= p.depth; t += 2 * pairs {
		if packGroups(unsafe.Pointer(&buf), unsafe.Add(src, 2*t), q, 2) != 2*pairs {
			return t
		}
		for g := range pairs {
			in := buf[g*p.width:][:p.width]
			// Two columns at a time; processors with the assembly are little-endian.
			even := unsafe.Slice((*uint32)(unsafe.Pointer(&out[(t+2*g)*p.width])), p.width/2)
			odd := unsafe.Slice((*uint32)(unsafe.Pointer(&out[(t+2*g+1)*p.width])), p.width/2)[:len(even)]
			for i := range even {
				v, w := in[2*i], in[2*i+1]
				even[i], odd[i] = v&0xffff|w<<16, v>>16|w&^0xffff
			}
		}
	}
	return t
}

// fillPad writes the places of a panel that have no source.
func fillPad[T word](out []T, p panel) {
	fill := func(s []T) {
		for i := range s {
			s[i] = T(p.pad)
		}
	}
	if p.pad == 0 && p.live < p.width && !p.loose {
		clear(out) // all at once: quicker than the padding of each group
		return
	}
	groups := len(out) / (p.width * p.kr)
	if p.depth%p.kr != 0 {
		fill(out[(groups-1)*p.width*p.kr:])
	}
	if p.live < p.width && !p.loose {
		for g := range groups {
			fill(out[(g*p.width+p.live)*p.kr : (g+1)*p.width*p.kr])
		}
	}
}

// packGroups packs what the assembly can do of a panel whose groups are four bytes, and returns the number of k that it did.
func packGroups(dst, src unsafe.Pointer, p panel, size int) int {
	groups := p.depth / p.kr
	flip := uint32(p.flip) * 0x01010101
	switch {
	case p.deep == 1 && flip == 0 && p.width%16 == 0 && transposeWide != nil && groups >= 4 && (p.live == p.width || p.loose && p.width == 16):
		n := groups &^ 3
		for i := 0; i < p.live; i += 16 {
			transposeWide[min(p.live-i, 16)](unsafe.Add(dst, i*4), unsafe.Add(src, i*p.lead*size), p.lead*size, n, p.width*4)
		}
		return n * p.kr
	case p.deep == 1 && flip == 0 && transpose4 != nil && groups >= 4:
		n := groups &^ 3
		i := 0
		for ; i+4 <= p.live; i += 4 {
			transpose4(unsafe.Add(dst, i*4), unsafe.Add(src, i*p.lead*size), p.lead*size, n, p.width*4)
		}
		packRest(dst, src, p, size, i, n*p.kr)
		return n * p.kr
	case p.deep == 1 && transpose8 != nil && groups >= 8:
		// Groups lie side by side in each row of the source: a transposition of 4-byte elements, eight rows at a time.
		n := groups &^ 7
		for i := 0; i < p.live; i += 8 {
			args := transposeArgs{dst: unsafe.Add(dst, i*4), n: n, step: p.width * 4, flip: flip}
			for r := range args.rows {
				args.rows[r] = unsafe.Add(src, min(i+r, p.live-1)*p.lead*size)
			}
			if i+8 > p.width {
				// The transposition writes eight, so the rest of a narrow panel is left to the caller's loop.
				packRest(dst, src, p, size, i, n*p.kr)
				continue
			}
			callTranspose8(&args)
		}
		if p.live < p.width && p.live%8 != 0 && !p.loose {
			q := p
			q.depth = n * p.kr
			fillLanes(dst, q)
		}
		return n * p.kr
	case p.lead == 1 && size == 4 && copyRows != nil && p.live == p.width && p.width%8 == 0:
		copyRows(dst, src, p.width*4, p.deep*4, p.depth)
		return p.depth
	}
	return 0
}

// packLongGroups does the same for groups of eight bytes, of which nothing is inverted.
func packLongGroups(dst, src unsafe.Pointer, p panel, size int) int {
	groups := p.depth / p.kr
	switch {
	case p.deep == 1: // each row of the source is a row of groups
		for i := range p.live {
			s := unsafe.Add(src, i*p.lead*size)
			for g := range groups {
				*(*uint64)(unsafe.Add(dst, (g*p.width+i)*8)) = *(*uint64)(unsafe.Add(s, g*8))
			}
		}
	case p.lead == 1 && packRows[size] != nil && groups > 0 && p.live >= 4:
		n := p.live &^ 3
		packRows[size](dst, src, p.deep*size, groups, p.width*8, n)
		packRest(dst, src, p, size, n, groups*p.kr)
	default:
		return 0
	}
	return groups * p.kr
}

// packRest packs leading elements from i on for the first depth values of k.
func packRest(dst, src unsafe.Pointer, p panel, size, i, depth int) {
	for ; i < p.live; i++ {
		for t := range depth {
			s := unsafe.Add(src, (i*p.lead+t*p.deep)*size)
			o := (t/p.kr*p.width+i)*p.kr + t%p.kr
			switch size {
			case 1:
				*(*uint8)(unsafe.Add(dst, o)) = *(*uint8)(s) ^ p.flip
			case 2:
				*(*uint16)(unsafe.Add(dst, o*2)) = *(*uint16)(s)
			default:
				*(*uint32)(unsafe.Add(dst, o*4)) = *(*uint32)(s)
			}
		}
	}
}

// fillLanes writes the padding lanes that a transposition of whole vectors has overwritten.
func fillLanes(dst unsafe.Pointer, p panel) {
	pad := uint32(p.pad)
	if p.kr == 4 {
		pad *= 0x01010101
	}
	end := roundUp(p.live, 8)
	for g := range p.depth / p.kr {
		lanes := unsafe.Slice((*uint32)(unsafe.Add(dst, g*p.width*4)), p.width)
		for i := p.live; i < min(end, p.width); i++ {
			lanes[i] = pad
		}
	}
}

// transposeArgs is a block of up to eight rows of n 4-byte elements; column c goes to dst + c*step as eight elements, each
// xored with flip.
type transposeArgs struct {
	rows [8]unsafe.Pointer
	dst  unsafe.Pointer
	n    int // a multiple of 8
	step int // bytes
	flip uint32
}

// Assembly that packing uses where this build and processor have it.
var (
	transpose8 func(*transposeArgs)
	copyRows   func(dst, src unsafe.Pointer, bytes, pitch, n int) // n rows of bytes, a multiple of 32, pitch apart, side by side
	// transposeWide, by the number of rows, 9 to 14 and 16: n elements of rows lead bytes apart, each column as 16 elements.
	transposeWide *[17]func(dst, src unsafe.Pointer, lead, n, step int)
	// transposeWiden does the same for n pairs of bf16, each of which gives two columns of f32.
	transposeWiden *[17]func(dst, src unsafe.Pointer, lead, n, step int)
	// transposeRows, by elements of a group: 16 rows of n lines of 2-byte elements become columns of 16 groups, step bytes apart.
	transposeRows [3]func(dst, src unsafe.Pointer, lead, n, step int)
	widenRow      func(dst []float32, src unsafe.Pointer, t Type)
	// wordRows, for s8 and u8: copies h rows of n bytes, a multiple of 16, from lead to pitch bytes apart, as words.
	wordRows [2]func(dst, src unsafe.Pointer, pitch, lead, h, n int)
	// copyPanels moves rows of panels times bytes, a multiple of 64, pitch apart, to panels that are stride apart.
	copyPanels func(dst, src unsafe.Pointer, pitch, rows, panels, stride, bytes int)
	// interleave, by rows of a group and bytes of an element: groups of rows, pitch apart, of bytes, a multiple of 16 elements.
	interleave [5][3]func(dst, src unsafe.Pointer, pitch, groups, step, bytes int, flip uint32)
	flipLines  func(dst, src unsafe.Pointer, n int) // copies n bytes, a multiple of 64, with their top bits inverted
	// sumBytes writes the sums of h rows, lead bytes apart, of n bytes, a multiple of sumUnit.
	sumBytes func(sums, src unsafe.Pointer, lead, h, n int, unsigned bool)
	sumUnit  int
	// transpose4 brings four rows of n words, a multiple of 4 and lead bytes apart, to columns of four words, step bytes apart.
	transpose4 func(dst, src unsafe.Pointer, lead, n, step int)
	// packRows, by the size of an element: interleaves the rows of groups, pitch bytes apart, of columns elements, a multiple of 4.
	packRows   [3]func(dst, src unsafe.Pointer, pitch, groups, step, columns int)
	sumGroups8 func(sums, panel unsafe.Pointer, groups, step, columns int) // signed bytes of each column in groups of eight
	sumGroups  func(sums, src unsafe.Pointer, steps, step, lanes int, unsigned bool)
)

// packStrip packs h rows of A from row on, depth values of k from k0 on, as the kernel reads them: for each step the groups of
// its rows, 4 bytes each, stepRows(h) of them; or for each tile its rows.
func packStrip(dst unsafe.Pointer, a *Matrix, kern *kernel, row, h, k0, depth int) {
	src := a.at(row, k0)
	f := kern.a
	p := panel{lead: a.RowStride, deep: a.ColStride, live: h, width: stepRows(h), depth: depth, kr: f.kr, loose: true}
	if kern.tile > 0 {
		p.width, p.kr = h, kern.tile*f.kr
	}
	switch {
	case f.elem == a.typ && f.elem == F32:
		packPanel[uint32](dst, src, p)
	case f.elem == F32:
		packWiden(dst, src, a.typ, p)
	case f.elem == BF16:
		packPanel[uint16](dst, src, p)
	case f.elem == S8:
		if a.typ == U8 {
			p.flip = 0x80
		}
		packPanel[uint8](dst, src, p)
	default: // s16 pairs
		steps := ceilDiv(depth, 2)
		out := unsafe.Slice((*int16)(dst), steps*p.width*2)
		clear(out)
		for i := range h {
			for t := range depth {
				s := unsafe.Add(src, i*p.lead+t*p.deep)
				v := int16(*(*uint8)(s))
				if a.typ == S8 {
					v = int16(*(*int8)(s))
				}
				out[(t/2*p.width+i)*2+t%2] = v
			}
		}
	}
}

// rowPitch returns the bytes between the copied rows of a strip, n bytes each: an odd number of cache lines, so that the rows
// take different sets of L1.
func rowPitch(n int) int { return (ceilDiv(n, 64) | 1) * 64 }

// copyStrip copies depth values of k from k0 on of h rows, which are contiguous in A, as the kernel reads rows: f32, or groups
// of four bytes or two words of which the last is filled up with zeros.
func (p *product) copyStrip(dst unsafe.Pointer, pitch, row, h, k0, depth int) {
	f, size := p.kern.a, p.a.typ.Size()
	words := 0
	if f == aS16 && depth >= 16 {
		words = depth &^ 15
		wordRows[p.a.typ-S8](dst, p.a.at(row, k0), pitch, p.a.RowStride, h, words)
	}
	for i := range h {
		d, s := unsafe.Add(dst, i*pitch), p.a.at(row+i, k0)
		switch {
		case f.elem == F32 && p.a.typ != F32:
			p.vec.fromHalf(unsafe.Slice((*float32)(d), depth), s, p.a.typ)
			continue
		case f.elem == S8 && p.a.typ == U8:
			flipBytes(d, s, depth)
		case f == aS16:
			out := unsafe.Slice((*int16)(d), roundUp(depth, f.kr))
			for t := words; t < depth; t++ {
				if b := unsafe.Add(s, t); p.a.typ == U8 {
					out[t] = int16(*(*uint8)(b))
				} else {
					out[t] = int16(*(*int8)(b))
				}
			}
			clear(out[depth:])
			continue
		default:
			copy(unsafe.Slice((*byte)(d), depth*size), unsafe.Slice((*byte)(s), depth*size))
		}
		if depth%f.kr != 0 {
			n := depth * size
			clear(unsafe.Slice((*byte)(unsafe.Add(d, n)), roundUp(n, 4)-n))
		}
	}
}

// flipBytes copies n bytes with their top bits inverted.
func flipBytes(dst, src unsafe.Pointer, n int) {
	done := 0
	if flipLines != nil && n >= 64 {
		done = n &^ 63
		flipLines(dst, src, done)
	}
	for ; done+8 <= n; done += 8 {
		*(*uint64)(unsafe.Add(dst, done)) = *(*uint64)(unsafe.Add(src, done)) ^ 0x8080808080808080
	}
	out, in := unsafe.Slice((*uint8)(dst), n), unsafe.Slice((*uint8)(src), n)
	for i := done; i < n; i++ {
		out[i] = in[i] ^ 0x80
	}
}

// packWiden packs bf16 or f16 values as f32.
func packWiden(dst, src unsafe.Pointer, t Type, p panel) {
	depth := p.depth
	for ; depth > packSteps; depth -= packSteps {
		p.depth = packSteps
		widenPiece(dst, src, t, p)
		dst, src = unsafe.Add(dst, packSteps*p.width*4), unsafe.Add(src, packSteps*p.deep*2)
	}
	p.depth = depth
	widenPiece(dst, src, t, p)
}

// widenPiece is packWiden for few k.
func widenPiece(dst, src unsafe.Pointer, t Type, p panel) {
	convert := fromBF16
	if t == F16 {
		convert = fromF16
	}
	out := unsafe.Slice((*float32)(dst), p.depth*p.width)
	if p.live < p.width && !p.loose {
		clear(out)
	}
	t0 := 0
	switch {
	case p.lead == 1 && widenRow != nil && p.live == p.width && p.width%4 == 0:
		for r := range p.depth {
			widenRow(out[r*p.width:(r+1)*p.width], unsafe.Add(src, r*p.deep*2), t)
		}
		return
	case t == BF16 && p.deep == 1 && transposeWiden != nil && p.depth >= 8 && p.width%16 == 0 && (p.live == p.width || p.loose && p.width == 16 && p.live >= 9):
		t0 = p.depth &^ 7
		for i := 0; i < p.live; i += 16 {
			transposeWiden[min(p.live-i, 16)](unsafe.Add(dst, i*4), unsafe.Add(src, i*p.lead*2), p.lead*2, t0/2, p.width*4)
		}
	}
	for ; t0 < p.depth; t0 += packTile {
		t1 := min(t0+packTile, p.depth)
		for i := range p.live {
			for t := t0; t < t1; t++ {
				out[t*p.width+i] = convert(*(*uint16)(unsafe.Add(src, (i*p.lead+t*p.deep)*2)))
			}
		}
	}
}

// packPanelB packs the panel of B that starts at column j, depth values of k from k0 on. bf16 and f16 are widened when f is f32.
func packPanelB(dst unsafe.Pointer, b *Matrix, f format, j, k0, depth int) {
	src := b.at(k0, j)
	p := panel{lead: b.ColStride, deep: b.RowStride, live: min(f.nr, b.Cols-j), width: f.nr, depth: depth, kr: f.kr, flip: f.flip(),
		pad: f.flip()}
	switch {
	case f.elem != b.typ:
		packWiden(dst, src, b.typ, p)
	case b.typ == F32:
		packPanel[uint32](dst, src, p)
	case b.typ == S8:
		packPanel[uint8](dst, src, p)
	default:
		packPanel[uint16](dst, src, p)
	}
}

// packPanelsB packs panels that begin stride apart, of which the first starts at column j.
func packPanelsB(dst unsafe.Pointer, b *Matrix, f format, j, k0, depth, panels, stride int) {
	done := 0
	if copyPanels != nil && b.typ == F32 && f.elem == F32 && b.ColStride == 1 && f.nr%16 == 0 && depth > 0 {
		done = min(panels, (b.Cols-j)/f.nr)
		if done > 0 {
			rows := max(packCallBytes/(done*f.nr*4), 8)
			for t := 0; t < depth; t += rows {
				copyPanels(unsafe.Add(dst, t*f.nr*4), b.at(k0+t, j), b.RowStride*4, min(rows, depth-t), done, stride, f.nr*4)
			}
		}
	}
	for ; done < panels; done++ {
		packPanelB(unsafe.Add(dst, done*stride), b, f, j+done*f.nr, k0, depth)
	}
}

// maxColumns bounds the columns of a panel: three vectors of the longest that arm64 allows.
const maxColumns = 3 * 2048 / 32

// columnSums writes the sum of each column of a packed int8 panel, one int32 a column.
func columnSums(sums, panel unsafe.Pointer, f format, depth int) {
	out := unsafe.Slice((*int32)(sums), f.nr)
	steps := ceilDiv(depth, f.kr)
	if piece := packCallBytes / f.step(); steps > piece {
		var total [maxColumns]int32
		for t := 0; t < steps; t += piece {
			columnSums(sums, unsafe.Add(panel, t*f.step()), f, min(piece*f.kr, depth-t*f.kr))
			for j, v := range out {
				total[j] += v
			}
		}
		copy(out, total[:])
		return
	}
	if f.flip() != 0 && sumGroups != nil {
		sumGroups(sums, panel, steps, f.step(), f.nr, true)
		for j := range out {
			out[j] -= 128 * int32(steps*f.kr)
		}
		return
	}
	if f.kr == 8 && sumGroups8 != nil && steps > 0 {
		sumGroups8(sums, panel, steps, f.step(), f.nr)
		return
	}
	clear(out)
	in := unsafe.Slice((*uint8)(panel), steps*f.step())
	for len(in) > 0 {
		for j := range out {
			for t := range f.kr {
				out[j] += int32(int8(in[j*f.kr+t] ^ f.flip()))
			}
		}
		in = in[f.step():]
	}
}

// rowSums writes what the sums of the h rows of a packed s8 strip start from: -128 times the sum of the row, which takes the
// offset of B out again.
func rowSums(rows, strip unsafe.Pointer, kern *kernel, h, steps int) {
	out := unsafe.Slice((*int32)(rows), h)
	if kern.tile > 0 {
		clear(out)
		lane := 4 * kern.tile
		in := unsafe.Slice((*int8)(strip), steps*4*h)
		for ; len(in) > 0; in = in[h*lane:] {
			for i := range out {
				for _, v := range in[i*lane : (i+1)*lane] {
					out[i] -= 128 * int32(v)
				}
			}
		}
		return
	}
	width := stepRows(h)
	if sumGroups != nil && h >= 4 {
		clear(out)
		const piece = packCallBytes / 64
		for t := 0; t < steps; t += piece {
			var sums [16]int32
			callSumGroups(unsafe.Pointer(&sums), unsafe.Add(strip, t*width*4), min(piece, steps-t), width*4, width, false)
			for i := range out {
				out[i] -= 128 * sums[i]
			}
		}
		return
	}
	clear(out)
	in := unsafe.Slice((*[4]int8)(strip), steps*width)
	for t := range steps {
		for i := range out {
			v := &in[t*width+i]
			out[i] -= 128 * (int32(v[0]) + int32(v[1]) + int32(v[2]) + int32(v[3]))
		}
	}
}

// sumRows writes what the sums of h rows of A, contiguous s8 or u8, start from: -128 times the sum of the row as signed values.
func sumRows(rows unsafe.Pointer, a *Matrix, row, h int) {
	out := unsafe.Slice((*int32)(rows), h)
	src, k := a.at(row, 0), a.Cols
	if sumBytes != nil && k%sumUnit == 0 && k <= packCallBytes {
		flipped := int32(0)
		if a.typ == U8 {
			flipped = 128 * int32(k)
		}
		for i, most := 0, packCallBytes/k; i < h; i += most {
			part := out[i:min(i+most, h)]
			sumBytes(unsafe.Pointer(&part[0]), unsafe.Add(src, i*a.RowStride), a.RowStride, len(part), k, a.typ == U8)
			for j, sum := range part {
				part[j] = -128 * (sum - flipped)
			}
		}
		return
	}
	done := 0
	clear(out)
	if sumBytes != nil && k >= sumUnit {
		done = k / sumUnit * sumUnit
		for i := range out {
			sum := int32(0)
			for t := 0; t < done; t += packCallBytes {
				sumBytes(unsafe.Pointer(&out[i]), unsafe.Add(src, i*a.RowStride+t), a.RowStride, 1, min(packCallBytes, done-t), a.typ == U8)
				sum += out[i]
			}
			out[i] = sum
		}
	}
	for i := range out {
		sum := out[i]
		tail := unsafe.Slice((*uint8)(unsafe.Add(src, i*a.RowStride)), k)[done:]
		if a.typ == U8 {
			for _, v := range tail {
				sum += int32(v)
			}
			sum -= 128 * int32(k)
		} else {
			for _, v := range tail {
				sum += int32(int8(v))
			}
		}
		out[i] = -128 * sum
	}
}
