package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Copy moves Rows x RowBytes between host buffers.
type Copy struct {
	From, To           int // argument indices
	FromOff, ToOff     int64
	FromPitch, ToPitch int64
	Rows, RowBytes     int64
}

// Staging is the host's part of a run. Before it: scratch buffer ArgStage is zeroed and the In copies put ragged edges of A and B there. After it:
// the Out copies bring C tiles at ragged edges from scratch buffer ArgSpill to their place in C.
type Staging struct {
	In, Out []Copy
	InBytes int64 // written to ArgStage, with zeros; its size
	// OutBytes is what the Out copies move. The size of ArgSpill, in Run.BufferBytes, is larger: it also takes padding that nobody reads.
	OutBytes int64
}

// Bytes is everything that the host moves because of padding and pitches.
func (s *Staging) Bytes() int64 { return s.InBytes + s.OutBytes }

func (c *Copy) run(bufs [][]byte) {
	from, to := bufs[c.From], bufs[c.To]
	for i := range c.Rows {
		copy(to[c.ToOff+i*c.ToPitch:][:c.RowBytes], from[c.FromOff+i*c.FromPitch:][:c.RowBytes])
	}
}

// Prepare does the host's part before a run on host buffers in the order of arguments, each of at least BufferBytes.
func (r *Run) Prepare(bufs [][]byte) error {
	if err := r.checkBuffers(bufs); err != nil {
		return err
	}
	if n := r.Staging.InBytes; n > 0 {
		clear(bufs[ArgStage][:n])
	}
	for i := range r.Staging.In {
		r.Staging.In[i].run(bufs)
	}
	return nil
}

// Finish does the host's part after a run.
func (r *Run) Finish(bufs [][]byte) error {
	if err := r.checkBuffers(bufs); err != nil {
		return err
	}
	for i := range r.Staging.Out {
		r.Staging.Out[i].run(bufs)
	}
	return nil
}

func (r *Run) checkBuffers(bufs [][]byte) error {
	for arg, n := range r.BufferBytes {
		if n > 0 && (arg >= len(bufs) || int64(len(bufs[arg])) < n) {
			have := 0
			if arg < len(bufs) {
				have = len(bufs[arg])
			}
			return fmt.Errorf("run: buffer %d has %d bytes, want %d", arg, have, n)
		}
	}
	return nil
}

// xfer is one shim transfer: a descriptor without its address, the buffer and the offset.
type xfer struct {
	words  *[8]uint32
	arg    uint32
	offset int64
}

// shape is a shim descriptor that serves many offsets of a buffer.
type shape struct {
	words [8]uint32
	bd    txn.ShimBD
	arg   uint32
	base  int64
	step  int64 // bytes per tile
}

func (s *shape) at(tile int) xfer { return xfer{&s.words, s.arg, s.base + int64(tile)*s.step} }

// feed is how the tiles of one operand are fetched: every tile takes up to two transfers.
type feed struct {
	leg     *leg
	full    int      // tiles 0 to full-1 take the shapes in whole
	whole   []*shape // full tiles
	partial []*shape // the tile after them, if the operand ends inside it
}

// transfers appends those of a tile. A tile beyond the operand's end repeats tile 0: its products land in the trash.
func (f *feed) transfers(tile int, out []xfer) []xfer {
	list := f.whole
	if tile == f.full && f.partial != nil {
		list, tile = f.partial, 0
	} else if tile >= f.full {
		tile = 0
		if f.full == 0 {
			list = f.partial
		}
	}
	for _, s := range list {
		out = append(out, s.at(tile))
	}
	return out
}

// stager plans transfers and lays out the scratch buffers.
type stager struct {
	run   *Run
	spill int64
}

// shape makes a descriptor of words 32-bit words.
func (st *stager) shape(arg uint32, words int64, base, step int64, dims ...txn.Dim) (*shape, error) {
	d := st.run.Design
	ti := d.Dev.Tile(device.Shim)
	s := &shape{arg: arg, base: base, step: step}
	if words < 1 || words > 1<<32-1 {
		return nil, fmt.Errorf("a transfer of %d words does not fit the length of a shim descriptor", words)
	}
	s.bd = txn.ShimBD{Length: uint32(words), Valid: true, Burst: d.Dev.Burst, Cache: 2}
	if err := s.bd.SetDims(canonical(dims, 1<<ti.Bits.Wrap-1)...); err != nil {
		return nil, err
	}
	var err error
	s.words, err = s.bd.Encode()
	return s, err
}

// alloc takes room in the staging buffer.
func (st *stager) alloc(bytes int64) int64 {
	off := st.run.Staging.InBytes
	st.run.Staging.InBytes += (bytes + 3) &^ 3
	return off
}

// allocSpill takes room in the spill buffer.
func (st *stager) allocSpill(bytes int64) int64 {
	off := st.spill
	st.spill += bytes
	return off
}

// feed plans how an operand of the given extent beside K is fetched.
func (st *stager) feed(l *leg, extent int, edges bool) (*feed, error) {
	r := st.run
	d, K, kPad := r.Design, r.Problem.K, r.KPad
	f := &feed{leg: l, full: extent / l.u}
	left := extent - f.full*l.u // of the ragged tile
	pitch := r.Problem.PitchA
	if l.arg == ArgB {
		pitch = r.Problem.PitchB
	}
	e := int64(l.typ.Bytes(8)) // bytes of 8 elements, whole for every type
	bytes := func(elems int64) int64 { return elems * e / 8 }
	var err error
	add := func(list *[]*shape, arg uint32, words, base, step int64, dims ...txn.Dim) {
		if err != nil || words == 0 {
			return
		}
		var s *shape
		if s, err = st.shape(arg, words, base, step, dims...); err != nil {
			err = fmt.Errorf("%s: %w", l.name, err)
			return
		}
		*list = append(*list, s)
	}
	maxStep := int64(1) << d.Dev.Tile(device.Shim).Bits.Step
	stageAll := pitch%4 != 0 || pitch/4 > maxStep
	src, base := l.arg, int64(0)

	switch l.order {
	case tiled:
		f.full = ceil(extent, l.u*l.per) * l.per
		tile := bytes(int64(l.u) * int64(kPad))
		if r.BufferBytes[l.arg] = int64(f.full) * tile; r.BufferBytes[l.arg] > maxBytes {
			return nil, fmt.Errorf("%s of %d bytes exceeds the shim's address space of 2^48 bytes", l.name, r.BufferBytes[l.arg])
		}
		add(&f.whole, l.arg, tile/4, 0, tile)
		return f, err

	case kMajor:
		if stageAll && edges {
			return nil, fmt.Errorf("%s: pitch of %d bytes cannot be padded by MemTiles", l.name, pitch)
		}
		kPitch := bytes(int64(kPad))
		if stageAll {
			// The whole operand, with rows of K padded to whole blocks; the ragged tile's missing rows are zeros.
			tiles := ceil(extent, l.u)
			off := st.alloc(int64(tiles) * int64(l.u) * kPitch)
			r.Staging.In = append(r.Staging.In, Copy{int(l.arg), ArgStage, 0, off, pitch, kPitch, int64(extent), bytes(int64(K))})
			src, base, pitch = ArgStage, off, kPitch
			f.full, left, K = tiles, 0, kPad
		}
		main, edge := K/l.kmt, K%l.kmt
		kw, u := l.words(l.kmt), int64(l.u)
		// rows x kmt blocks of the tile, block after block.
		blocks := func(list *[]*shape, arg uint32, rows int64, n int, base, pitch, step int64) {
			add(list, arg, rows*int64(n)*int64(kw), base, step, txn.Dim{Size: kw, Step: 1}, txn.Dim{Size: int(rows), Step: int(pitch / 4)}, txn.Dim{Size: n, Step: kw})
		}
		if f.full > 0 {
			blocks(&f.whole, src, u, main, base, pitch, u*pitch)
			switch {
			case edge == 0:
			case edges:
				ew := l.words(edge)
				add(&f.whole, src, u*int64(ew), base+bytes(int64(main*l.kmt)), u*pitch, txn.Dim{Size: ew, Step: 1}, txn.Dim{Size: l.u, Step: int(pitch / 4)})
			default:
				// A strip of the last, incomplete block of all whole tiles.
				strip := bytes(int64(l.kmt))
				off := st.alloc(int64(f.full) * u * strip)
				r.Staging.In = append(r.Staging.In, Copy{int(l.arg), ArgStage, bytes(int64(main * l.kmt)), off, pitch, strip, int64(f.full) * u, bytes(int64(edge))})
				add(&f.whole, ArgStage, u*int64(kw), off, u*strip)
			}
		}
		if left == 0 {
			break
		}
		first := int64(f.full) * u * pitch
		if edges {
			rows := u // rows that the MemTile expects
			for _, ru := range r.rings {
				if ru.leg.arg == l.arg && ru.at[f.full%l.per].rows < l.u {
					rows = int64(left)
				}
			}
			if rows < u {
				blocks(&f.partial, src, rows, main, first, pitch, 0)
				if edge > 0 {
					ew := l.words(edge)
					add(&f.partial, src, rows*int64(ew), first+bytes(int64(main*l.kmt)), 0, txn.Dim{Size: ew, Step: 1}, txn.Dim{Size: int(rows), Step: int(pitch / 4)})
				}
				break
			}
			kPitch = bytes(int64(K)) // the MemTile pads K: stage the rows as they are
		}
		off := st.alloc(u * kPitch)
		r.Staging.In = append(r.Staging.In, Copy{int(l.arg), ArgStage, first, off, pitch, kPitch, int64(left), bytes(int64(r.Problem.K))})
		if edges {
			blocks(&f.partial, ArgStage, u, main, off, kPitch, 0)
			if edge > 0 {
				ew := l.words(edge)
				add(&f.partial, ArgStage, u*int64(ew), off+bytes(int64(main*l.kmt)), 0, txn.Dim{Size: ew, Step: 1}, txn.Dim{Size: l.u, Step: int(kPitch / 4)})
			}
			break
		}
		blocks(&f.partial, ArgStage, u, kPad/l.kmt, off, kPitch, 0)

	case uMajor:
		uw, tile := l.words(l.u), bytes(int64(l.u))
		if stageAll {
			tiles := ceil(extent, l.u)
			wide := int64(tiles) * tile
			off := st.alloc(int64(K) * wide)
			r.Staging.In = append(r.Staging.In, Copy{int(l.arg), ArgStage, 0, off, pitch, wide, int64(K), bytes(int64(extent))})
			src, base, pitch = ArgStage, off, wide
			f.full, left = tiles, 0
		}
		var zeros int64
		if kPad > K {
			zeros = st.alloc(int64(kPad-K) * tile) // rows of zeros for all tiles
		}
		rows := func(list *[]*shape, arg uint32, base, pitch, step int64) {
			add(list, arg, int64(K)*int64(uw), base, step, txn.Dim{Size: uw, Step: 1}, txn.Dim{Size: K, Step: int(pitch / 4)})
			if kPad > K {
				add(list, ArgStage, int64(kPad-K)*int64(uw), zeros, 0)
			}
		}
		if f.full > 0 {
			rows(&f.whole, src, base, pitch, tile)
		}
		if left > 0 {
			off := st.alloc(int64(K) * tile)
			r.Staging.In = append(r.Staging.In, Copy{int(l.arg), ArgStage, bytes(int64(f.full) * int64(l.u)), off, pitch, tile, int64(K), bytes(int64(left))})
			rows(&f.partial, ArgStage, off, tile, 0)
		}
	}
	return f, err
}

// cPlan is where C tiles land. One unit of a column is four core tiles: one above the other, or, transposed, side by side.
type cPlan struct {
	direct   *shape // whole units
	di, dj   int64  // bytes in C per block of M and of N
	dc       int64  // bytes in C per array column
	short    *shape // the last row block where it ends inside the unit: the valid rows
	rest     *shape // and the padding below them
	slots    *shape // ragged units: own room in the spill buffer
	trash    *shape // units beyond the edge
	dense    bool   // all of C is staged with padded rows: every unit is whole
	unit     int64  // bytes
	d        *Design
	M, N     int
	trashOff int64
	slotOff  int64
}

// extent returns the valid rows and columns of a unit: for the normal mapping of rows x n, transposed of m x (4 n).
func (c *cPlan) extent(i, j, col int) (rows, cols, fullRows, fullCols int) {
	d := c.d
	r0, c0 := 0, 0
	if d.Transposed {
		fullRows, fullCols = d.Tile.M, d.Tile.N*d.Dev.CoreRows
		r0, c0 = (i*d.Dev.Cols+col)*fullRows, j*fullCols
	} else {
		fullRows, fullCols = d.Tile.M*d.Dev.CoreRows, d.Tile.N
		r0, c0 = i*fullRows, (j*d.Dev.Cols+col)*fullCols
	}
	return min(max(c.M-r0, 0), fullRows), min(max(c.N-c0, 0), fullCols), fullRows, fullCols
}

// transfers appends those of a unit.
func (c *cPlan) transfers(i, j, col int, out []xfer) []xfer {
	at := int64(i)*c.di + int64(j)*c.dj + int64(col)*c.dc
	if c.dense {
		return append(out, xfer{&c.direct.words, c.direct.arg, c.direct.base + at})
	}
	rows, cols, fullRows, fullCols := c.extent(i, j, col)
	switch {
	case rows == fullRows && cols == fullCols:
		return append(out, xfer{&c.direct.words, c.direct.arg, c.direct.base + at})
	case rows == 0 || cols == 0:
		return append(out, xfer{&c.trash.words, ArgSpill, c.trashOff + int64(col)*c.unit})
	case cols == fullCols && !c.d.Transposed:
		out = append(out, xfer{&c.short.words, c.short.arg, at})
		return append(out, xfer{&c.rest.words, ArgSpill, c.trashOff + int64(col)*c.unit})
	}
	return append(out, xfer{&c.slots.words, ArgSpill, c.slotOff + int64(c.slot(i, j, col))*c.unit})
}

// slot numbers the ragged units. Normal: only the last column tile is ragged, in every row block. Transposed: the last block of N for every
// row tile, then the ragged row tile for every block of N.
func (c *cPlan) slot(i, j, col int) int {
	if !c.d.Transposed {
		return i
	}
	d := c.d
	tile := i*d.Dev.Cols + col
	if (j+1)*d.Tile.N*d.Dev.CoreRows > c.N {
		return tile
	}
	return ceil(c.M, d.Tile.M) + j
}

// planC plans where C lands.
func (st *stager) planC() (*cPlan, error) {
	r := st.run
	d, p := r.Design, r.Problem
	e := int64(d.Types.C.Bytes(1))
	w := func(elems int) int { return d.Types.C.Bytes(elems) / 4 }
	ti := d.Dev.Tile(device.Shim)
	maxStep := int64(1) << ti.Bits.Step
	m, n, rows, cols := d.Tile.M, d.Tile.N, d.Dev.CoreRows, d.Dev.Cols
	c := &cPlan{d: d, M: p.M, N: p.N, unit: int64(rows*m*n) * e}
	words := c.unit / 4
	arg, base, pitch := uint32(ArgC), int64(0), p.PitchC
	if pitch%4 != 0 || pitch/4 > maxStep {
		c.dense = true
		pitch = int64(r.NPad) * e
		arg, base = ArgSpill, st.allocSpill(int64(r.MPad)*pitch)
		r.Staging.Out = append(r.Staging.Out, Copy{ArgSpill, ArgC, base, 0, pitch, p.PitchC, int64(p.M), int64(p.N) * e})
	}
	pw := int(pitch / 4)
	var err error
	shape := func(arg uint32, words, base int64, dims ...txn.Dim) *shape {
		s, e := st.shape(arg, words, base, 0, dims...)
		if e != nil && err == nil {
			err = fmt.Errorf("C: %w", e)
		}
		return s
	}
	if d.Transposed {
		c.di, c.dj, c.dc = int64(m*cols)*pitch, int64(rows*n)*e, int64(m)*pitch
		c.direct = shape(arg, words, base, txn.Dim{Size: w(n), Step: 1}, txn.Dim{Size: m, Step: pw}, txn.Dim{Size: rows, Step: w(n)})
	} else {
		c.di, c.dj, c.dc = int64(m*rows)*pitch, int64(cols*n)*e, int64(n)*e
		c.direct = shape(arg, words, base, txn.Dim{Size: w(n), Step: 1}, txn.Dim{Size: m * rows, Step: pw})
	}
	if c.dense || p.M == r.MPad && p.N == r.NPad {
		return c, err
	}
	c.slots = shape(ArgSpill, words, 0)
	c.trash = c.slots
	if left := p.M % (m * rows); left > 0 && !d.Transposed {
		c.short = shape(ArgC, int64(left)*int64(w(n)), 0, txn.Dim{Size: w(n), Step: 1}, txn.Dim{Size: left, Step: pw})
		c.rest = shape(ArgSpill, words-int64(left)*int64(w(n)), 0)
	}
	// Room for ragged units, and the copies that bring them home.
	slot := func(i, j, col int) {
		vr, vc, _, _ := c.extent(i, j, col)
		from := c.slotOff + int64(c.slot(i, j, col))*c.unit
		to := int64(i)*c.di + int64(j)*c.dj + int64(col)*c.dc
		if !d.Transposed {
			r.Staging.Out = append(r.Staging.Out, Copy{ArgSpill, ArgC, from, to, int64(n) * e, pitch, int64(vr), int64(vc) * e})
			return
		}
		for t := 0; t*n < vc; t++ {
			r.Staging.Out = append(r.Staging.Out, Copy{ArgSpill, ArgC, from + int64(t*m*n)*e, to + int64(t*n)*e, int64(n) * e, pitch, int64(vr), int64(min(vc-t*n, n)) * e})
		}
	}
	raggedM, raggedN := p.M%m != 0, p.N%n != 0
	if !d.Transposed && raggedN {
		c.slotOff = st.allocSpill(int64(r.BlocksM) * c.unit)
		q := p.N / n
		for i := range r.BlocksM {
			slot(i, q/cols, q%cols)
		}
	}
	if d.Transposed {
		tiles := ceil(p.M, m)
		c.slotOff = st.allocSpill(int64(tiles+r.BlocksN) * c.unit)
		lastJ := p.N / (rows * n)
		if p.N%(rows*n) != 0 {
			for t := range tiles {
				slot(t/cols, lastJ, t%cols)
			}
		}
		if raggedM {
			t := p.M / m
			for j := range lastJ {
				slot(t/cols, j, t%cols)
			}
		}
	}
	c.trashOff = st.allocSpill(int64(cols) * c.unit)
	return c, err
}

// finish records the sizes of the scratch buffers.
func (st *stager) finish() {
	s := &st.run.Staging
	st.run.BufferBytes[ArgStage], st.run.BufferBytes[ArgSpill] = s.InBytes, st.spill
	for _, c := range s.Out {
		s.OutBytes += c.Rows * c.RowBytes
	}
}
