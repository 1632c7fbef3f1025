package check

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// rect is a rectangle of a matrix: rows, and bytes of a row.
type rect struct{ r0, r1, c0, c1 int64 }

// readKey tells transfers apart that read different bytes.
type readKey struct {
	off    int64
	shape  int32
	arg    uint16
	repeat uint16
}

// dim is an addressing dimension in words.
type dim struct{ n, step int64 }

// shape is what a shim descriptor does beside its address.
type shape struct {
	words  [8]uint32
	id     int32
	length int64
	span   int64 // words from the first to the last, with both
	width  int64 // bytes that are contiguous
	rest   []dim // what is left of the dimensions
	count  int   // of iterations
	step   int64 // words of an iteration
}

// shapeOf decodes a descriptor and refuses what no stream of these designs may contain.
func (c *checker) shapeOf(words [8]uint32) (*shape, error) {
	if s := c.shapes[words]; s != nil {
		return s, nil
	}
	bd, err := txn.DecodeShimBD(words[:])
	if err != nil {
		return nil, err
	}
	switch {
	case !bd.Valid || bd.Length == 0:
		return nil, errors.New("not valid or empty")
	case bd.UseNext || bd.Lock != (txn.LockUse{}) || bd.Packet != (txn.PacketUse{}) || bd.Addr != 0:
		return nil, errors.New("it chains, locks, has a packet header or an address beside the patched one")
	case bd.IterCurrent != 0:
		return nil, fmt.Errorf("its iteration starts at %d", bd.IterCurrent)
	}
	p := bd.Pattern()
	s := &shape{words: words, id: int32(len(c.shapes)), length: p.Length, span: 1, width: 4, count: p.IterCount, step: int64(p.IterStep)}
	// Sizes of the dimensions; the outermost follows from the length.
	left := p.Length
	for i, d := range p.Dims {
		if left == 1 {
			break
		}
		n := int64(d.Size)
		if n == 0 || i == len(p.Dims)-1 || n > left {
			n = left
		}
		if left%n != 0 {
			return nil, fmt.Errorf("length %d is not a whole number of %d along dimension %d", p.Length, n, i)
		}
		left /= n
		s.span += (n - 1) * int64(d.Step)
		// Join what is contiguous.
		if k := len(s.rest); k == 0 && int64(d.Step)*4 == s.width {
			s.width *= n
		} else if k > 0 && int64(d.Step) == s.rest[k-1].n*s.rest[k-1].step {
			s.rest[k-1].n *= n
		} else {
			s.rest = append(s.rest, dim{n, int64(d.Step)})
		}
	}
	c.shapes[words] = s
	return s, nil
}

// regions finds the host copy that a scratch offset belongs to.
type regions struct {
	copies []Copy // by scratch offset
	offs   []int64
	in     bool
}

func newRegions(list []Copy, in bool) regions {
	r := regions{copies: slices.Clone(list), in: in}
	slices.SortStableFunc(r.copies, func(a, b Copy) int { return cmp.Compare(r.off(&a), r.off(&b)) })
	for i := range r.copies {
		r.offs = append(r.offs, r.off(&r.copies[i]))
	}
	return r
}

// off and pitch are those of the scratch side.
func (r *regions) off(c *Copy) int64 {
	if r.in {
		return c.ToOff
	}
	return c.FromOff
}

func (r *regions) pitch(c *Copy) int64 {
	if r.in {
		return c.ToPitch
	}
	return c.FromPitch
}

// at is the index of the last region that starts at or before off, or -1.
func (r *regions) at(off int64) int {
	return sort.Search(len(r.offs), func(i int) bool { return r.offs[i] > off }) - 1
}

// move records the bytes that a queued transfer touches.
func (c *checker) move(b *slot, repeat int, t device.Tile, reg device.Reg) error {
	e := c.e
	if int(b.arg) >= len(e.BufferBytes) {
		return errf(t, "host buffer %d, there are %d", b.arg, len(e.BufferBytes))
	}
	write := reg.Dir == device.S2MM
	sh := b.shape
	last := min(repeat, sh.count) - 1
	if end := b.off + 4*(sh.span+int64(last)*sh.step); b.off < 0 || b.off%4 != 0 || end > e.BufferBytes[b.arg] {
		return errf(t, "bytes %d to %d of host buffer %d, which has %d", b.off, end, b.arg, e.BufferBytes[b.arg])
	}
	if !write {
		key := readKey{b.off, sh.id, uint16(b.arg), uint16(repeat)}
		set := c.read[reg.Index]
		if _, seen := set[key]; seen {
			return nil
		}
		set[key] = struct{}{}
	} else if repeat > sh.count {
		return errf(t, "%d runs of a descriptor with %d iterations write the same bytes again", repeat, sh.count)
	}
	for run := range last + 1 {
		off := b.off + 4*int64(run)*sh.step
		var err error
		switch len(sh.rest) {
		case 0:
			err = c.touch(b.arg, write, off, sh.width, 1, 0)
		case 1:
			err = c.touch(b.arg, write, off, sh.width, sh.rest[0].n, 4*sh.rest[0].step)
		case 2:
			// One of the two dimensions runs along rows of a matrix, the other from row to row.
			rows, cols := sh.rest[0], sh.rest[1]
			if rows.step < cols.step {
				rows, cols = cols, rows
			}
			if 4*cols.step == sh.width {
				err = c.touch(b.arg, write, off, sh.width*cols.n, rows.n, 4*rows.step)
				break
			}
			for i := int64(0); i < cols.n && err == nil; i++ {
				err = c.touch(b.arg, write, off+4*i*cols.step, sh.width, rows.n, 4*rows.step)
			}
		}
		if err != nil {
			return errf(t, "%w", err)
		}
	}
	return nil
}

// touch records rows of width bytes, step bytes apart, in a host buffer.
func (c *checker) touch(arg uint32, write bool, off, width, rows, step int64) error {
	e := c.e
	switch {
	case write && arg == 2:
		return c.add(&c.writes, e.C, off, width, rows, step)
	case write && arg == 4:
		return c.scratch(&c.regOut, off, width, rows, step)
	case !write && arg < 2:
		return c.add(&c.reads[arg], []Matrix{e.A, e.B}[arg], off, width, rows, step)
	case !write && arg == 3:
		return c.scratch(&c.regIn, off, width, rows, step)
	}
	return fmt.Errorf("host buffer %d is not for this direction", arg)
}

// add records a rectangle of a matrix. A stretch that runs over row ends becomes up to three.
func (c *checker) add(list *[]rect, m Matrix, off, width, rows, step int64) error {
	r, col := off/m.Pitch, off%m.Pitch
	put := func(r0, r1, c0, c1 int64) error {
		if r1 > m.Rows || c1 > m.RowBytes {
			return fmt.Errorf("rows %d to %d, bytes %d to %d leave a matrix of %d rows of %d bytes", r0, r1, c0, c1, m.Rows, m.RowBytes)
		}
		*list = append(*list, rect{r0, r1, c0, c1})
		return nil
	}
	if rows > 1 && step != m.Pitch {
		return fmt.Errorf("rows %d bytes apart in a matrix with a pitch of %d", step, m.Pitch)
	}
	if col+width <= m.Pitch {
		return put(r, r+rows, col, col+width)
	}
	if rows > 1 {
		return fmt.Errorf("rows of %d bytes from byte %d run over a pitch of %d", width, col, m.Pitch)
	}
	if m.RowBytes != m.Pitch {
		return fmt.Errorf("%d bytes from byte %d run over the gap after a row of %d", width, col, m.RowBytes)
	}
	if col > 0 {
		if err := put(r, r+1, col, m.Pitch); err != nil {
			return err
		}
		width -= m.Pitch - col
		r++
	}
	if n := width / m.Pitch; n > 0 {
		if err := put(r, r+n, 0, m.Pitch); err != nil {
			return err
		}
		r, width = r+n, width%m.Pitch
	}
	if width > 0 {
		return put(r, r+1, 0, width)
	}
	return nil
}

// scratch maps bytes of a scratch buffer to the matrix that the host copies from or to. What lies outside every copy is padding.
func (c *checker) scratch(reg *regions, off, width, rows, step int64) error {
	for i := max(reg.at(off), 0); i < len(reg.copies); i++ {
		cp := &reg.copies[i]
		start, pitch := reg.off(cp), reg.pitch(cp)
		end := start + (cp.Rows-1)*pitch + cp.RowBytes
		if start >= off+width+(rows-1)*step {
			break
		}
		if off >= end {
			continue
		}
		if rows > 1 && step != pitch {
			return fmt.Errorf("scratch rows %d bytes apart in a copy with a pitch of %d", step, pitch)
		}
		// In the copy's own grid: rows of pitch bytes, of which RowBytes count.
		lo, hi := max(off, start)-start, off+width-start
		if rows > 1 || hi <= (lo/pitch+1)*pitch {
			r0, c0 := lo/pitch, lo%pitch
			if err := c.mapped(reg, cp, r0, r0+rows, c0, min(c0+width, pitch)); err != nil {
				return err
			}
			continue
		}
		r0, c0 := lo/pitch, lo%pitch
		if c0 > 0 {
			if err := c.mapped(reg, cp, r0, r0+1, c0, pitch); err != nil {
				return err
			}
			r0++
		}
		r1 := hi / pitch
		if r1 > r0 {
			if err := c.mapped(reg, cp, r0, r1, 0, pitch); err != nil {
				return err
			}
		}
		if rest := hi - r1*pitch; rest > 0 && r1 >= r0 {
			if err := c.mapped(reg, cp, r1, r1+1, 0, rest); err != nil {
				return err
			}
		}
	}
	return nil
}

// mapped records the part of a copy's grid that it moves, on the matrix side.
func (c *checker) mapped(reg *regions, cp *Copy, r0, r1, c0, c1 int64) error {
	r1, c1 = min(r1, cp.Rows), min(c1, cp.RowBytes)
	if r0 >= r1 || c0 >= c1 {
		return nil
	}
	if reg.in {
		m := []Matrix{c.e.A, c.e.B}[cp.From]
		return c.add(&c.reads[cp.From], m, cp.FromOff+r0*cp.FromPitch+c0, c1-c0, r1-r0, cp.FromPitch)
	}
	return c.add(&c.writes, c.e.C, cp.ToOff+r0*cp.ToPitch+c0, c1-c0, r1-r0, cp.ToPitch)
}

// covered checks that rectangles cover a matrix: exactly once, or at least once.
func covered(name string, list []rect, m Matrix, once bool) error {
	// Between two consecutive row boundaries the same rectangles are active.
	slices.SortFunc(list, func(a, b rect) int { return cmp.Or(cmp.Compare(a.r0, b.r0), cmp.Compare(a.c0, b.c0)) })
	var active []rect
	next, row := 0, int64(0)
	for row < m.Rows {
		keep := active[:0]
		for _, r := range active {
			if r.r1 > row {
				keep = append(keep, r)
			}
		}
		active = keep
		sorted := true
		for next < len(list) && list[next].r0 <= row {
			if n := len(active); n > 0 && active[n-1].c0 > list[next].c0 {
				sorted = false
			}
			active = append(active, list[next])
			next++
		}
		if !sorted {
			slices.SortFunc(active, func(a, b rect) int { return cmp.Compare(a.c0, b.c0) })
		}
		end := m.Rows
		if next < len(list) {
			end = list[next].r0
		}
		at := int64(0)
		for _, r := range active {
			switch {
			case r.c0 > at:
				return fmt.Errorf("%s: bytes %d to %d of row %d are not moved", name, at, r.c0, row)
			case r.c0 < at && once:
				return fmt.Errorf("%s: bytes %d to %d of row %d are moved more than once", name, r.c0, min(at, r.c1), row)
			}
			at = max(at, r.c1)
			end = min(end, r.r1)
		}
		if at < m.RowBytes {
			return fmt.Errorf("%s: bytes %d to %d of row %d are not moved", name, at, m.RowBytes, row)
		}
		row = end
	}
	return nil
}
