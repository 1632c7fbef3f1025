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

// feed plans how an operand of the given extent beside K is fetched. With edges MemTiles append the zeros of ragged tiles.
func (st *stager) feed(l *leg, extent int, edges bool) (*feed, error) {
	p := &st.run.Problem
	b := &feeder{stager: st, l: l, f: &feed{leg: l, full: extent / l.u}, extent: extent, edges: edges, k: p.K, src: l.arg, pitch: p.PitchA}
	if l.arg == ArgB {
		b.pitch = p.PitchB
	}
	b.left = extent - b.f.full*l.u
	switch l.order {
	case tiled:
		b.tiled()
	case kMajor:
		b.kMajor()
	case uMajor:
		b.uMajor()
	}
	return b.f, b.err
}

// feeder plans one feed.
type feeder struct {
	*stager
	l      *leg
	f      *feed
	extent int
	edges  bool
	err    error // the first

	// Where full tiles lie: in the operand, or all of them in the staging buffer.
	src         uint32
	base, pitch int64
	k           int // elements of K in a row
	left        int // rows (columns of an operand by rows) of the ragged tile
}

// bytes is the size of so many elements.
func (b *feeder) bytes(elems int64) int64 { return elems * int64(b.l.typ.Bytes(8)) / 8 } // that of 8 is whole for every type

// kmtWords is a block of K of one row in 32-bit words.
func (b *feeder) kmtWords() int { return b.l.words(b.l.kmt) }

// unaligned reports whether no descriptor can step from row to row of the operand.
func (b *feeder) unaligned() bool {
	return b.pitch%4 != 0 || b.pitch/4 > int64(1)<<b.run.Design.Dev.Tile(device.Shim).Bits.Step
}

// add appends a shape, if it moves anything.
func (b *feeder) add(list *[]*shape, arg uint32, words, base, step int64, dims ...txn.Dim) {
	if b.err != nil || words == 0 {
		return
	}
	s, err := b.shape(arg, words, base, step, dims...)
	if err != nil {
		b.err = fmt.Errorf("%s: %w", b.l.name, err)
		return
	}
	*list = append(*list, s)
}

// stage takes room for so many rows in the staging buffer and has the host copy rows of the operand there.
func (b *feeder) stage(room, pitch, from, rows, rowBytes int64) (off int64) {
	off = b.alloc(room * pitch)
	b.run.Staging.In = append(b.run.Staging.In, Copy{int(b.l.arg), ArgStage, from, off, b.pitch, pitch, rows, rowBytes})
	return off
}

// tiled is for an operand that the host has brought into the array's order.
func (b *feeder) tiled() {
	l, r := b.l, b.run
	b.f.full = ceil(b.extent, l.u*l.per) * l.per
	tile := b.bytes(int64(l.u) * int64(r.KPad))
	if r.BufferBytes[l.arg] = int64(b.f.full) * tile; r.BufferBytes[l.arg] > maxBytes {
		b.err = fmt.Errorf("%s of %d bytes exceeds the shim's address space of 2^48 bytes", l.name, r.BufferBytes[l.arg])
		return
	}
	b.add(&b.f.whole, l.arg, tile/4, 0, tile)
}

// kMajor is for an operand whose rows run along K.
func (b *feeder) kMajor() {
	if b.unaligned() {
		if b.edges {
			b.err = fmt.Errorf("%s: pitch of %d bytes cannot be padded by MemTiles", b.l.name, b.pitch)
			return
		}
		// The whole operand, with rows of K padded to whole blocks; the ragged tile's missing rows are zeros.
		tiles, kPitch := ceil(b.extent, b.l.u), b.bytes(int64(b.run.KPad))
		off := b.stage(int64(tiles)*int64(b.l.u), kPitch, 0, int64(b.extent), b.bytes(int64(b.k)))
		b.src, b.base, b.pitch, b.k = ArgStage, off, kPitch, b.run.KPad
		b.f.full, b.left = tiles, 0
	}
	if b.f.full > 0 {
		b.kMajorWhole()
	}
	if b.left > 0 {
		b.kMajorPartial()
	}
}

// blocks adds n blocks of K of some rows, block after block.
func (b *feeder) blocks(list *[]*shape, arg uint32, rows int64, n int, base, pitch, step int64) {
	kw := b.kmtWords()
	b.add(list, arg, rows*int64(n)*int64(kw), base, step, txn.Dim{Size: kw, Step: 1}, txn.Dim{Size: int(rows), Step: int(pitch / 4)}, txn.Dim{Size: n, Step: kw})
}

// edge adds the incomplete last block of K of some rows, as long as it is.
func (b *feeder) edge(list *[]*shape, arg uint32, rows, base, pitch, step int64) {
	if n := b.k % b.l.kmt; n > 0 {
		ew := b.l.words(n)
		b.add(list, arg, rows*int64(ew), base+b.bytes(int64(b.k-n)), step, txn.Dim{Size: ew, Step: 1}, txn.Dim{Size: int(rows), Step: int(pitch / 4)})
	}
}

func (b *feeder) kMajorWhole() {
	u, edge := int64(b.l.u), b.k%b.l.kmt
	b.blocks(&b.f.whole, b.src, u, b.k/b.l.kmt, b.base, b.pitch, u*b.pitch)
	switch {
	case edge == 0:
	case b.edges:
		b.edge(&b.f.whole, b.src, u, b.base, b.pitch, u*b.pitch)
	default:
		// A strip of the last, incomplete block of all whole tiles.
		strip, rows := b.bytes(int64(b.l.kmt)), int64(b.f.full)*u
		off := b.stage(rows, strip, b.bytes(int64(b.k-edge)), rows, b.bytes(int64(edge)))
		b.add(&b.f.whole, ArgStage, u*int64(b.kmtWords()), off, u*strip)
	}
}

func (b *feeder) kMajorPartial() {
	u, list := int64(b.l.u), &b.f.partial
	first := int64(b.f.full) * u * b.pitch
	if !b.edges {
		kPitch := b.bytes(int64(b.run.KPad))
		off := b.stage(u, kPitch, first, int64(b.left), b.bytes(int64(b.k)))
		b.blocks(list, ArgStage, u, b.run.KPad/b.l.kmt, off, kPitch, 0)
		return
	}
	src, base, pitch, rows := b.src, first, b.pitch, u
	for _, ru := range b.run.rings {
		if ru.leg.arg == b.l.arg && ru.at[b.f.full%b.l.per].rows < b.l.u {
			rows = int64(b.left) // the MemTile appends the others
		}
	}
	if rows == u { // it expects all of them, and pads K alone: the rows are staged as they are
		src, pitch = ArgStage, b.bytes(int64(b.k))
		base = b.stage(u, pitch, first, int64(b.left), pitch)
	}
	b.blocks(list, src, rows, b.k/b.l.kmt, base, pitch, 0)
	b.edge(list, src, rows, base, pitch, 0)
}

// uMajor is for an operand whose rows run across K.
func (b *feeder) uMajor() {
	tile, k := b.bytes(int64(b.l.u)), int64(b.k)
	if b.unaligned() {
		tiles := ceil(b.extent, b.l.u)
		wide := int64(tiles) * tile
		off := b.stage(k, wide, 0, k, b.bytes(int64(b.extent)))
		b.src, b.base, b.pitch = ArgStage, off, wide
		b.f.full, b.left = tiles, 0
	}
	var zeros int64
	if n := b.run.KPad - b.k; n > 0 {
		zeros = b.alloc(int64(n) * tile) // rows of zeros for all tiles
	}
	if b.f.full > 0 {
		b.rows(&b.f.whole, b.src, b.base, b.pitch, tile, zeros)
	}
	if b.left > 0 {
		off := b.stage(k, tile, b.bytes(int64(b.f.full)*int64(b.l.u)), k, b.bytes(int64(b.left)))
		b.rows(&b.f.partial, ArgStage, off, tile, 0, zeros)
	}
}

// rows adds a tile's part of the K rows, and the rows of zeros behind them.
func (b *feeder) rows(list *[]*shape, arg uint32, base, pitch, step, zeros int64) {
	uw := b.l.words(b.l.u)
	b.add(list, arg, int64(b.k)*int64(uw), base, step, txn.Dim{Size: uw, Step: 1}, txn.Dim{Size: b.k, Step: int(pitch / 4)})
	b.add(list, ArgStage, int64(b.run.KPad-b.k)*int64(uw), zeros, 0)
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
