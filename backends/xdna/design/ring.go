package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// ringBD is one descriptor of a ring before it has a number and an address.
type ringBD struct {
	words  int // length, with padding
	dims   []txn.Dim
	after  [3]int
	offset int  // words into the buffer
	slot   int  // buffer: 0 or 1 alternate; a resident ring counts on
	swap   bool // the buffer changes at every turn of the ring (rings of odd length)
	// Which lock operations it does: the first descriptor of a block acquires, the last one releases.
	acquire, release bool
}

// ring is what a MemTile does with one operand: descriptors for the blocks as they arrive and as they leave, run in turn.
type ring struct {
	in, out []ringBD
	blocks  int // blocks of one turn
	rows    int // valid rows of a block
	uses    int // resident: how often each block is sent before it may be replaced; 0 for ping-pong rings
}

// blockRing is a ring of n blocks, the last of which holds only edge columns of K if edge is above 0. Tiles have rows valid rows of u. Missing
// rows and columns are appended as zeros while the MemTile sends, in units of k: the MemTile's output is whole tiles.
func (d *Design) blockRing(l *leg, rows, n, edge int) ring {
	rg := ring{blocks: n, rows: rows}
	pad := l.u - rows
	swap := n%2 == 1
	add := func(in bool, bd ringBD) {
		if in {
			rg.in = append(rg.in, bd)
		} else {
			rg.out = append(rg.out, bd)
		}
	}
	kw, sw := l.words(l.k), l.words(l.s)
	for i := range n {
		slot := i % 2
		if edge == 0 || i < n-1 {
			add(true, ringBD{words: l.blockWords() * rows / l.u, dims: l.memIn(rows), slot: slot, swap: swap, acquire: true, release: true})
			out := ringBD{words: l.blockWords(), dims: l.memOut(), slot: slot, swap: swap, acquire: true, release: true}
			if pad > 0 {
				out.dims = []txn.Dim{{Size: sw, Step: 1}, {Size: rows, Step: kw}, {Size: l.k / l.s, Step: sw}, {Size: l.kmt / l.k, Step: l.u * kw}}
				out.after[1] = pad
			}
			add(false, out)
			continue
		}
		// The edge block lies in the buffer as it arrives, rows of edge columns; whole columns of s leave in one descriptor, what is left of
		// the last one in another.
		ew := l.words(edge)
		chunks := (edge + l.k - 1) / l.k
		groups, rest := edge/l.s, edge%l.s
		zero := chunks*l.k/l.s - (edge+l.s-1)/l.s
		add(true, ringBD{words: rows * ew, slot: slot, swap: swap, acquire: true, release: true})
		if groups > 0 {
			bd := ringBD{
				words: groups * l.u * sw, slot: slot, swap: swap, acquire: true, release: rest == 0,
				dims: []txn.Dim{{Size: sw, Step: 1}, {Size: rows, Step: ew}, {Size: groups, Step: sw}},
			}
			bd.after[1] = pad
			if rest == 0 {
				bd.after[2] = zero
				bd.words += zero * l.u * sw
			}
			add(false, bd)
		}
		if rest > 0 {
			rw := l.words(rest)
			bd := ringBD{
				words: (1 + zero) * l.u * sw, offset: groups * sw, slot: slot, swap: swap, acquire: groups == 0, release: true,
				dims: []txn.Dim{{Size: rw, Step: 1}, {Size: rows, Step: ew}, {Size: 1}},
			}
			bd.after = [3]int{sw - rw, pad, zero}
			add(false, bd)
		}
	}
	return rg
}

// residentRing holds n blocks, each in its own slot, each sent uses times.
func (d *Design) residentRing(l *leg, n, uses int) ring {
	rg := ring{blocks: n, rows: l.u, uses: uses}
	for i := range n {
		rg.in = append(rg.in, ringBD{words: l.blockWords(), dims: l.memIn(l.u), slot: i, acquire: true, release: true})
		rg.out = append(rg.out, ringBD{words: l.blockWords(), dims: l.memOut(), slot: i, acquire: true, release: true})
	}
	return rg
}

// fits says why a ring cannot run on a channel, or nil: descriptors, the limits of padding, the distance of the two buffers.
func (d *Design) fits(l *leg, ch, p int, mem *memory, rg *ring) error {
	if _, n := d.bds().ring(ch); len(rg.in)+len(rg.out) > n {
		return fmt.Errorf("ring of %s: %d descriptors, channel %d has %d", l.name, len(rg.in)+len(rg.out), ch, n)
	}
	ti := d.Dev.Tile(device.Mem)
	for i := range rg.out {
		for dim, after := range rg.out[i].after {
			if after > ti.PadAfter[dim] {
				return fmt.Errorf("ring of %s: %d zeros after dimension %d, a MemTile appends at most %d", l.name, after, dim, ti.PadAfter[dim])
			}
		}
	}
	if rg.in[0].swap {
		bufs := mem.buffers(ch, p)
		if step := int(max(bufs[0], bufs[1])-min(bufs[0], bufs[1])) / 4; step > 1<<ti.Bits.IterStep {
			return fmt.Errorf("ring of %s: buffers %d words apart, an iteration steps at most %d", l.name, step, 1<<ti.Bits.IterStep)
		}
	}
	return nil
}

// buffers are the two buffers of tile p of the operand on a channel.
func (m *memory) buffers(ch, p int) [2]uint32 {
	if ch == chX {
		return m.x[p]
	}
	return m.y[p]
}

// variable reports whether an operand's MemTile descriptors belong to the run-time stream: for padding on the fly, and for a resident B.
func (d *Design) variable(l *leg) bool {
	return d.Padding == PadMemTile || d.ResidentB && l.arg == ArgB
}

// writeRing writes the descriptors and locks of a ring. An endless ring is a loop that runs for ever on one task; otherwise the last descriptor ends the
// turn, and tasks say how many turns there are.
func (d *Design) writeRing(b *builder, l *leg, ch, p int, mem *memory, rg *ring, endless bool) {
	t := d.feeder(ch, p)
	ti := d.Dev.Tile(device.Mem)
	maxWrap := 1<<ti.Bits.Wrap - 1
	first, _ := d.bds().ring(ch)
	b.fail(t, "ring", d.fits(l, ch, p, mem, rg))
	bufs := mem.buffers(ch, p)
	free, full := memXFree, memXFull
	if ch == chY {
		free, full = memYFree, memYFull
	}
	if rg.uses == 0 {
		b.lock(t, device.Mem, free, 2)
		b.lock(t, device.Mem, full, 0)
	}
	for side, list := range [][]ringBD{rg.in, rg.out} {
		start := first
		if side == 1 {
			start += len(rg.in)
		}
		for i, r := range list {
			bd := txn.MemBD{Length: uint32(r.words), Valid: true}
			if endless || i < len(list)-1 {
				bd.UseNext, bd.NextBD = true, uint8(start+(i+1)%len(list))
			}
			free, full := free, full
			take, give := 1, 1
			switch {
			case rg.uses > 0:
				free, full = memYSlot+2*r.slot, memYSlot+2*r.slot+1
				bd.Base = (bufs[0] + uint32(r.slot*l.blockBytes())) / 4
				if side == 0 {
					take, give = rg.uses, rg.uses
					b.lock(t, device.Mem, free, rg.uses)
					b.lock(t, device.Mem, full, 0)
				}
			case r.swap:
				// The iteration steps from one buffer to the other and back, turn by turn.
				lo, hi := min(bufs[0], bufs[1]), max(bufs[0], bufs[1])
				bd.Base = lo / 4
				b.fail(t, "ring", bd.SetIteration(2, int(hi-lo)/4))
				if bufs[r.slot] == hi {
					bd.IterCurrent = 1
				}
			default:
				bd.Base = bufs[r.slot] / 4
			}
			bd.Base += uint32(r.offset)
			if side == 1 {
				free, full = full, free
			}
			if r.acquire {
				bd.Lock.AcqEnable, bd.Lock.AcqID, bd.Lock.AcqValue = true, uint8(memOwnLock+free), int8(-take)
			}
			if r.release {
				bd.Lock.RelID, bd.Lock.RelValue = uint8(memOwnLock+full), int8(give)
			}
			dims := r.dims
			if r.after == [3]int{} {
				dims = canonical(dims, maxWrap)
			}
			b.fail(t, "ring", bd.SetDims(dims...))
			for j, n := range r.after {
				bd.After[j] = uint8(n)
			}
			b.memBD(t, start+i, &bd)
		}
	}
	if endless {
		b.push(t, device.Mem, device.S2MM, ch, txn.Task{BD: first, Repeat: 1})
		b.push(t, device.Mem, device.MM2S, ch, txn.Task{BD: first + len(rg.in), Repeat: 1})
	}
}
