package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// Host buffers by the index that address patches use. Scratch buffers are there only if the plan of a run needs them.
const (
	ArgA     = 0
	ArgB     = 1
	ArgC     = 2
	ArgStage = 3 // staged edges of A and B, read by the array
	ArgSpill = 4 // C tiles at ragged edges, and padding of C that nobody reads
	NumArgs  = 5
)

// bdAlloc numbers a MemTile's descriptors. Even channels use the lower half, odd ones the upper half; C stands at the top of each half, so that
// everything below is free for the rings of the operands, whose length a run may change.
type bdAlloc struct {
	half int
	bufs int // C buffers
	rows int
}

func (d *Design) bds() bdAlloc {
	return bdAlloc{d.Dev.Tile(device.Mem).BDs / 2, d.cBuffers(), d.Dev.CoreRows}
}

// cIn is the descriptor of buffer b of core row r's C, on channel chC + r.
func (a bdAlloc) cIn(r, b int) int {
	i := r/2*a.bufs + b
	if r%2 == 1 {
		return 2*a.half - 2*a.bufs + i
	}
	return a.half - 2*a.bufs + i
}

// cOut is the i-th descriptor of the drain, on the even channel chCOut.
func (a bdAlloc) cOut(i int) int { return a.half - 2*a.bufs - a.rows*a.bufs + i }

// ring is the first descriptor and the number of descriptors that the operand on a channel may use, in and out together.
func (a bdAlloc) ring(ch int) (first, n int) {
	if ch%2 == 1 {
		return a.half, a.half - 2*a.bufs
	}
	return 0, a.half - 2*a.bufs - a.rows*a.bufs
}

// builder collects control code and the first error.
type builder struct {
	dev    *device.Device
	prog   *txn.Program
	slaves map[uint32]bool // slave ports that are on: one may feed several masters
	err    error
}

func (b *builder) fail(t device.Tile, what string, err error) {
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("%s of tile %v: %w", what, t, err)
	}
}

func (b *builder) write(t device.Tile, off, value uint32) {
	b.prog.Add(txn.WriteOp(t.Addr(off), value))
}

// route joins a slave port to a master port of the tile's switch.
func (b *builder) route(t device.Tile, kind device.Kind, from, to device.Port) {
	ti := b.dev.Tile(kind)
	s, err := ti.SlaveIndex(from)
	b.fail(t, "route", err)
	m, err := ti.MasterIndex(to)
	b.fail(t, "route", err)
	if !ti.CanConnect(from, to) {
		b.fail(t, "route", fmt.Errorf("the switch cannot join %v to %v", from, to))
	}
	slave := ti.SwitchSlave + 4*uint32(s)
	if !b.slaves[t.Addr(slave)] {
		b.slaves[t.Addr(slave)] = true
		b.write(t, slave, device.PortEnable)
	}
	b.write(t, ti.SwitchMaster+4*uint32(m), device.PortEnable|uint32(s))
}

// memBD writes a MemTile descriptor.
func (b *builder) memBD(t device.Tile, id int, d *txn.MemBD) {
	w, err := d.Encode()
	b.fail(t, fmt.Sprintf("descriptor %d", id), err)
	b.prog.Add(txn.BlockWriteOp(t.Addr(b.dev.Tile(device.Mem).BD(id)), w[:]...))
}

// coreBD writes a core descriptor.
func (b *builder) coreBD(t device.Tile, id int, d *txn.CoreBD) {
	w, err := d.Encode()
	b.fail(t, fmt.Sprintf("descriptor %d", id), err)
	b.prog.Add(txn.BlockWriteOp(t.Addr(b.dev.Tile(device.Core).BD(id)), w[:]...))
}

// push queues a task.
func (b *builder) push(t device.Tile, kind device.Kind, dir device.Dir, ch int, task txn.Task) {
	ti := b.dev.Tile(kind)
	w, err := task.Encode(ti)
	b.fail(t, "task", err)
	b.write(t, ti.Queue(dir, ch), w)
}

var (
	portNorth0 = device.Port{Type: device.PortNorth, Lane: 0}
	portSouth0 = device.Port{Type: device.PortSouth, Lane: 0}
	portEast0  = device.Port{Type: device.PortEast, Lane: 0}
	portWest0  = device.Port{Type: device.PortWest, Lane: 0}
)

func lane(t device.PortType, n int) device.Port { return device.Port{Type: t, Lane: n} }

// Config is the static configuration: routes, MemTile and core descriptors, locks, kernels, and the first task of every ring. After it
// the array waits for a run-time stream; it is loaded once for a design, whatever sizes follow.
func (d *Design) Config() (*txn.Program, error) {
	mode, err := d.Dev.Mode(d.Types)
	if err != nil {
		return nil, err
	}
	mem, err := d.memory()
	if err != nil {
		return nil, err
	}
	rec, err := d.Record()
	if err != nil {
		return nil, err
	}
	kernelWords, err := rec.Encode()
	if err != nil {
		return nil, err
	}
	b := &builder{dev: d.Dev, prog: &txn.Program{Head: txn.NewHeader(d.Dev)}, slaves: map[uint32]bool{}}
	row, col := d.legs()

	d.routes(b)
	for c := range d.Dev.Cols {
		t := device.Tile{Col: c, Row: 1}
		d.memCBDs(b, mode, mem, c)
		for r := range d.Dev.CoreRows {
			b.lock(t, device.Mem, memCFree+2*r, d.cBuffers())
			b.lock(t, device.Mem, memCFull+2*r, 0)
		}
		for r, ac := range d.Dev.ACols {
			if ac == c {
				d.defaultRing(b, &row, chX, r, mem)
			}
		}
		d.defaultRing(b, &col, chY, c, mem)
	}
	for c := range d.Dev.Cols {
		for r := range d.Dev.CoreRows {
			t := device.Tile{Col: c, Row: d.Dev.CoreRow + r}
			for i, v := range []int{rec.A.Depth, 0, rec.B.Depth, 0, rec.C.Depth, 0, 0} {
				b.lock(t, device.Core, i, v)
			}
			d.coreBDs(b, t, &row, &col, rec.A.Addr, rec.B.Addr, rec.C.Addr)
			b.prog.Add(txn.BlockWriteOp(t.Addr(device.ProgramMemory), kernelWords...))
			b.write(t, device.CoreControl, device.CoreEnable)
		}
	}
	return b.prog, b.err
}

func (b *builder) lock(t device.Tile, kind device.Kind, id, value int) {
	b.write(t, b.dev.Tile(kind).Lock(id), uint32(value))
}

// routes lays the circuits. Row operand: from its MemTile up lane 0 to its row, there to both sides, tapped by every core. Column operand: up lane 1, tapped by
// every core. C: core row r goes down lane r into the MemTile, which sends it on to the shim.
func (d *Design) routes(b *builder) {
	dma := func(n int) device.Port { return lane(device.PortDMA, n) }
	south, north := device.PortSouth, device.PortNorth
	rows, top := d.Dev.CoreRows, d.Dev.CoreRow+d.Dev.CoreRows-1
	feeds := make([]int, d.Dev.Cols) // core row that a column's MemTile feeds, or -1
	for c := range feeds {
		feeds[c] = -1
	}
	for r, c := range d.Dev.ACols {
		feeds[c] = r
	}
	for c := range d.Dev.Cols {
		shim, mt := device.Tile{Col: c}, device.Tile{Col: c, Row: 1}
		mux := uint32(device.ShimMuxMM2S1)
		if feeds[c] >= 0 {
			mux |= device.ShimMuxMM2S0
			// MM2S0 enters the shim's switch on south 3.
			b.route(shim, device.Shim, lane(south, 3), portNorth0)
			b.route(mt, device.Mem, portSouth0, dma(chX))
			b.route(mt, device.Mem, dma(chX), portNorth0)
		}
		b.write(shim, device.ShimMux, mux)
		b.write(shim, device.ShimDemux, device.ShimDemuxS2MM0)
		b.route(shim, device.Shim, lane(south, 7), lane(north, 1)) // MM2S1 enters on south 7
		b.route(mt, device.Mem, lane(south, 1), dma(chY))
		b.route(mt, device.Mem, dma(chY), lane(north, 1))
		for r := range rows {
			b.route(mt, device.Mem, lane(north, r), dma(chC+r))
		}
		b.route(mt, device.Mem, dma(chCOut), portSouth0)
		b.route(shim, device.Shim, portNorth0, lane(south, 2)) // S2MM0 leaves on south 2
	}
	for c := range d.Dev.Cols {
		for r := range rows {
			t := device.Tile{Col: c, Row: d.Dev.CoreRow + r}
			// Row operand.
			if f := feeds[c]; f > r {
				b.route(t, device.Core, portSouth0, portNorth0) // on its way to row f
			}
			home := d.Dev.ACols[r]
			from := portSouth0
			if c < home {
				from = portEast0
			} else if c > home {
				from = portWest0
			}
			b.route(t, device.Core, from, dma(0))
			if c >= home && c < d.Dev.Cols-1 {
				b.route(t, device.Core, from, portEast0)
			}
			if c <= home && c > 0 {
				b.route(t, device.Core, from, portWest0)
			}
			// Column operand.
			b.route(t, device.Core, lane(south, 1), dma(1))
			if t.Row < top {
				b.route(t, device.Core, lane(south, 1), lane(north, 1))
			}
			// C of this core and of those above.
			b.route(t, device.Core, dma(0), lane(south, r))
			for above := r + 1; above < rows; above++ {
				b.route(t, device.Core, lane(north, above), lane(south, above))
			}
		}
	}
}

// memCBDs brings C out: every core's C tile has its own buffer, channel and pair of locks; the drain sends them in order of rows, so that it
// starts before the last core is done.
func (d *Design) memCBDs(b *builder, mode *device.Mode, mem *memory, c int) {
	t := device.Tile{Col: c, Row: 1}
	ids, bufs, rows := d.bds(), d.cBuffers(), d.Dev.CoreRows
	words := uint32(d.Types.C.Bytes(d.Tile.M*d.Tile.N) / 4)
	maxWrap := 1<<d.Dev.Tile(device.Mem).Bits.Wrap - 1
	for r := range rows {
		for i := range bufs {
			free, full := uint8(memOwnLock+memCFree+2*r), uint8(memOwnLock+memCFull+2*r)
			in := txn.MemBD{
				Length: words, Base: mem.c[c][r][i] / 4, Valid: true,
				UseNext: true, NextBD: uint8(ids.cIn(r, (i+1)%bufs)), Lock: txn.AcquireRelease(free, 1, full, 1),
			}
			b.memBD(t, ids.cIn(r, i), &in)
			out := txn.MemBD{
				Length: words, Base: mem.c[c][r][i] / 4, Valid: true,
				UseNext: true, NextBD: uint8(ids.cOut((i*rows + r + 1) % (rows * bufs))), Lock: txn.AcquireRelease(full, 1, free, 1),
			}
			b.fail(t, "drain of C", out.SetDims(canonical(d.cOut(mode), maxWrap)...))
			b.memBD(t, ids.cOut(i*rows+r), &out)
		}
		b.push(t, device.Mem, device.S2MM, chC+r, txn.Task{BD: ids.cIn(r, 0), Repeat: 1})
	}
	b.push(t, device.Mem, device.MM2S, chCOut, txn.Task{BD: ids.cOut(0), Repeat: 1})
}

// coreBDs programs a core's descriptors: row operand 0 and 1 on S2MM0, column operand 2 and 3 on S2MM1, C 4 (and 5) on MM2S0.
func (d *Design) coreBDs(b *builder, t device.Tile, row, col *leg, aAddr, bAddr, cAddr [2]uint32) {
	maxWrap := 1<<d.Dev.Tile(device.Core).Bits.Wrap - 1
	for ch, l := range []*leg{row, col} {
		addr, free := aAddr, uint8(lockAFree)
		if l.arg == ArgB {
			addr, free = bAddr, lockBFree
		}
		for i := range 2 {
			bd := txn.CoreBD{
				Length: uint32(l.bandWords()), Base: addr[i] / 4, Valid: true,
				UseNext: true, NextBD: uint8(2*ch + 1 - i), Lock: txn.AcquireRelease(free, 1, free+1, 1),
			}
			b.fail(t, l.name, bd.SetDims(canonical(l.coreIn(), maxWrap)...))
			b.coreBD(t, 2*ch+i, &bd)
		}
		b.push(t, device.Core, device.S2MM, ch, txn.Task{BD: 2 * ch, Repeat: 1})
	}
	n := d.cBuffers()
	for i := range n {
		bd := txn.CoreBD{
			Length: uint32(d.Types.C.Bytes(d.Tile.M*d.Tile.N) / 4), Base: cAddr[i] / 4, Valid: true,
			UseNext: true, NextBD: uint8(4 + (i+1)%n), Lock: txn.AcquireRelease(lockCFull, 1, lockCFree, 1),
		}
		b.coreBD(t, 4+i, &bd)
	}
	b.push(t, device.Core, device.MM2S, 0, txn.Task{BD: 4, Repeat: 1})
}

// feeder is the MemTile of a leg's ring and its position: the row operand's tile p comes from the MemTile of column ACols[p], the column operand's from column p.
func (d *Design) feeder(ch, p int) device.Tile {
	if ch == chX {
		return device.Tile{Col: d.Dev.ACols[p], Row: 1}
	}
	return device.Tile{Col: p, Row: 1}
}

// defaultRing writes the ping-pong ring of two whole blocks that serves every size with staged padding. Variable rings are written by each run.
func (d *Design) defaultRing(b *builder, l *leg, ch, p int, mem *memory) {
	if d.variable(l) {
		return
	}
	rg := d.blockRing(l, l.u, 2, 0)
	d.writeRing(b, l, ch, p, mem, &rg, true)
}
