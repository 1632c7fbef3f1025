package design

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/txn"
)

// order is how an operand's block lies in memory, seen from its own long side U (M for A, N for B).
type order uint8

const (
	kMajor order = iota // K is contiguous: row-major A, column-major B
	uMajor              // U is contiguous: row-major B
	tiled               // prepared on the host
)

// leg is one operand's way from DRAM to the cores. Its tile is u x k; per tiles lie side by side in one step of the array.
type leg struct {
	name  string
	arg   uint32 // host buffer
	typ   kernel.Type
	order order
	u, ub int // tile extent beside K and its block: m and r, or n and t
	k, s  int
	kmt   int // K extent of a MemTile block
	bands int
	per   int
}

// legs gives the row operand, whose tiles are broadcast along rows of cores, and the column operand.
func (d *Design) legs() (row, col leg) {
	mode, err := d.Dev.Mode(d.Types)
	if err != nil {
		return leg{}, leg{} // Check has said so
	}
	t := d.Tile
	a := leg{name: "A", arg: ArgA, typ: d.Types.A, order: kMajor, u: t.M, ub: mode.R, k: t.K, s: mode.S, kmt: d.KMT, bands: d.bands()}
	b := leg{name: "B", arg: ArgB, typ: d.Types.B, u: t.N, ub: mode.T, k: t.K, s: mode.S, kmt: d.KMT, bands: 1}
	if d.Types.A == kernel.BFP16 {
		a.order = tiled
	}
	switch d.BLayout {
	case RowMajor:
		b.order = uMajor
		if !d.ResidentB {
			b.kmt = t.K // the MemTile holds what the core holds: runs go along N
		}
	case ColMajor:
		b.order = kMajor
	case Tiled:
		b.order = tiled
	}
	row, col = a, b
	if d.Transposed {
		row, col = b, a
	}
	row.per, col.per = d.Dev.CoreRows, d.Dev.Cols
	return row, col
}

func (l *leg) bytes(elems int) int { return l.typ.Bytes(elems) }
func (l *leg) words(elems int) int { return l.typ.Bytes(elems) / 4 }
func (l *leg) blockBytes() int     { return l.bytes(l.u * l.kmt) }
func (l *leg) blockWords() int     { return l.words(l.u * l.kmt) }

// bandWords is what one core buffer holds.
func (l *leg) bandWords() int { return l.words(l.u / l.bands * l.k) }

// memIn is how a MemTile stores a block of rows x kmt that arrives row by row: as kmt/k tiles of u x k.
func (l *leg) memIn(rows int) []txn.Dim {
	if l.order != kMajor {
		return nil
	}
	kw := l.words(l.k)
	return []txn.Dim{{Size: kw, Step: 1}, {Size: l.kmt / l.k, Step: l.u * kw}, {Size: rows, Step: kw}}
}

// memOut is how a MemTile sends a block: columns of s in every tile (or band of one), so that blocks of ub x s are whole for the core's DMA.
// A row-major B needs no more than this one transform.
func (l *leg) memOut() []txn.Dim {
	switch l.order {
	case kMajor:
		kw, sw, rows := l.words(l.k), l.words(l.s), l.u/l.bands
		return []txn.Dim{{Size: sw, Step: 1}, {Size: rows, Step: kw}, {Size: l.k / l.s, Step: sw}, {Size: l.bands * l.kmt / l.k, Step: rows * kw}}
	case uMajor:
		uw, tw := l.words(l.u), l.words(l.ub)
		return []txn.Dim{{Size: tw, Step: 1}, {Size: l.s, Step: uw}, {Size: l.u / l.ub, Step: tw}, {Size: l.kmt / l.s, Step: l.s * uw}}
	}
	return nil
}

// coreIn is how a core stores what memOut sends: in blocks of ub x s, row-major inside and across.
func (l *leg) coreIn() []txn.Dim {
	if l.order != kMajor {
		return nil
	}
	block, kw := l.words(l.ub*l.s), l.words(l.ub*l.k)
	return []txn.Dim{{Size: block, Step: 1}, {Size: l.u / l.bands / l.ub, Step: kw}, {Size: l.k / l.s, Step: block}}
}

// cOut is how a MemTile sends one core's C tile: row-major, from blocks of r x t.
func (d *Design) cOut(mode *device.Mode) []txn.Dim {
	w := func(n int) int { return d.Types.C.Bytes(n) / 4 }
	n, r, t := d.Tile.N, mode.R, mode.T
	return []txn.Dim{{Size: w(t), Step: 1}, {Size: n / t, Step: w(r * t)}, {Size: r, Step: w(t)}, {Size: d.Tile.M / r, Step: w(r * n)}}
}

// canonical drops dimensions of size 1, joins those that run on, and leaves the outermost size to the descriptor's length.
// Fields that could hold any value without effect stay zero this way.
func canonical(in []txn.Dim, maxWrap int) []txn.Dim {
	var out []txn.Dim
	for _, d := range in {
		if d.Size == 1 {
			continue
		}
		if n := len(out); n > 0 && d.Step == out[n-1].Size*out[n-1].Step {
			out[n-1].Size *= d.Size
			continue
		}
		out = append(out, d)
	}
	// A joined dimension that is too long for its wrap is split again, unless it is the outermost.
	var fit []txn.Dim
	for i, d := range out {
		if i == len(out)-1 || d.Size <= maxWrap {
			fit = append(fit, d)
			continue
		}
		q := maxWrap
		for d.Size%q != 0 {
			q--
		}
		fit = append(fit, txn.Dim{Size: q, Step: d.Step}, txn.Dim{Size: d.Size / q, Step: d.Step * q})
	}
	if n := len(fit); n > 0 {
		fit[n-1].Size = 0
		if n == 1 && fit[0].Step == 1 {
			return nil
		}
	}
	return fit
}

// Locks of a core, by operand, and of a MemTile, by stream.
const (
	lockAFree = iota
	lockAFull
	lockBFree
	lockBFull
	lockCFree
	lockCFull
	lockBarrier
)

const (
	memXFree   = 0 // row operand
	memXFull   = 1
	memYFree   = 2 // column operand
	memYFull   = 3
	memCFree   = 4 // + 2 * core row
	memCFull   = 5
	memYSlot   = 12 // resident B: free lock of slot i at memYSlot + 2i, full lock after it
	memOwnLock = 64 // a MemTile descriptor numbers the west neighbour's locks from 0
)

// MemTile channels. C of core row r arrives on S2MM channel chC + r.
const (
	chX    = 0
	chY    = 1
	chC    = 2
	chCOut = 2
)

// memory is where everything lies in the MemTiles.
type memory struct {
	x [][2]uint32    // per feeding row: byte addresses in the DMA window of its MemTile
	y [][2]uint32    // per column
	c [][4][2]uint32 // per column, core row, buffer
}

// memory places buffers: C and the column operand in their own MemTile; the row operand there too, or, where neighbours share, in the MemTile to the east.
func (d *Design) memory() (*memory, error) {
	ti := d.Dev.Tile(device.Mem)
	x, y, c := d.memBytes()
	_, colLeg := d.legs()
	cols := d.Dev.Cols
	used := make([]int, cols)
	for i := range used {
		used[i] = y + c
	}
	own := func(off int) uint32 { return ti.OwnBase + uint32(off) }
	m := &memory{
		x: make([][2]uint32, d.Dev.CoreRows), y: make([][2]uint32, cols), c: make([][4][2]uint32, cols),
	}
	cTile := d.Types.C.Bytes(d.Tile.M * d.Tile.N)
	for col := range cols {
		at := 0
		for r := range d.Dev.CoreRows {
			for b := range d.cBuffers() {
				m.c[col][r][b] = own(at)
				at += cTile
			}
		}
		m.y[col] = [2]uint32{own(at), own(at + colLeg.blockBytes())} // the first two slots of a resident B
		if used[col] > ti.MemoryBytes {
			return nil, fmt.Errorf("MemTile %d needs %d bytes of L2 for B and C, %d more than its %d",
				col, used[col], used[col]-ti.MemoryBytes, ti.MemoryBytes)
		}
	}
	for r, col := range d.Dev.ACols {
		for b := range 2 {
			switch {
			case used[col]+x/2 <= ti.MemoryBytes && !(d.ResidentB && d.Dev.ShareL2 && b == 1):
				m.x[r][b] = own(used[col])
				used[col] += x / 2
			case d.Dev.ShareL2 && used[col+1]+x/2 <= ti.MemoryBytes:
				m.x[r][b] = own(used[col+1]) + ti.NeighbourBytes
				used[col+1] += x / 2
			default:
				need, have := y+c+x, ti.MemoryBytes
				what := fmt.Sprintf("MemTile %d needs %d bytes of L2", col, need)
				if d.Dev.ShareL2 {
					need, have = 2*(y+c)+x, 2*ti.MemoryBytes
					what = fmt.Sprintf("MemTiles %d and %d need %d bytes of L2", col, col+1, need)
				}
				over := need - have
				if over <= 0 { // fits in sum but not in whole buffers
					over = used[col] + x/2 - ti.MemoryBytes
				}
				return nil, fmt.Errorf("%s, %d more than fit in %d (k_mt = %d)", what, over, have, d.KMT)
			}
		}
	}
	return m, nil
}
