package design

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Layout is how a matrix lies in DRAM.
type Layout uint8

// The layouts. A and C are row-major; B may be any. Tiled is the order in which the cores want it, prepared ahead on the host: for weights, and
// the only one for bfp16, whose 9-byte blocks defeat the DMA's 4-byte granularity. See [Design.TileOperand].
const (
	RowMajor Layout = iota
	ColMajor
	Tiled
)

// String names the layout as the command line does.
func (l Layout) String() string {
	switch l {
	case RowMajor:
		return "row"
	case ColMajor:
		return "col"
	case Tiled:
		return "tiled"
	}
	return fmt.Sprintf("layout(%d)", uint8(l))
}

// ParseLayout reads row, col or tiled.
func ParseLayout(s string) (Layout, error) {
	for _, l := range []Layout{RowMajor, ColMajor, Tiled} {
		if strings.EqualFold(s, l.String()) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("unknown layout %q, want row, col or tiled", s)
}

// Schedule is how the command processor keeps the shim DMAs fed.
type Schedule uint8

// The schedules. Overlapped is the seed's: up to five output tiles in flight, each completion frees descriptors that are rewritten at once.
// PingPong is the public designs': two halves of the descriptors, one being rewritten while the other runs. Serial waits for each output tile.
const (
	Overlapped Schedule = iota
	PingPong
	Serial
)

// String names the schedule.
func (s Schedule) String() string {
	switch s {
	case Overlapped:
		return "overlapped"
	case PingPong:
		return "pingpong"
	case Serial:
		return "serial"
	}
	return fmt.Sprintf("schedule(%d)", uint8(s))
}

// ParseSchedule reads overlapped, pingpong or serial.
func ParseSchedule(s string) (Schedule, error) {
	for _, v := range []Schedule{Overlapped, PingPong, Serial} {
		if strings.EqualFold(s, v.String()) {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown schedule %q, want overlapped, pingpong or serial", s)
}

// Padding is where ragged edges of A and B get their zeros.
type Padding uint8

// PadStage copies ragged edges into scratch memory on the host. PadMemTile lets MemTiles append the zeros while they send, where the
// descriptors' limits allow it, and stages the rest.
const (
	PadStage Padding = iota
	PadMemTile
)

// String names the padding.
func (p Padding) String() string {
	if p == PadMemTile {
		return "memtile"
	}
	return "stage"
}

// Tile is the piece of the product that one core works on: an M x N tile of C, K at a time.
type Tile struct{ M, K, N int }

// String prints m x k x n.
func (t Tile) String() string { return fmt.Sprintf("%dx%dx%d", t.M, t.K, t.N) }

// Design is one configuration of the array. The zero values of the fields after BLayout are the paper's design.
type Design struct {
	Dev     *device.Device
	Types   device.Types
	Tile    Tile
	KMT     int    // k_mt: columns of K in a MemTile block, a multiple of Tile.K
	BLayout Layout // of B in DRAM

	CBuffers   int      // buffers of C in L1 and L2: 1 (0 means 1) or 2
	Schedule   Schedule // of the run-time streams; no part of the configuration
	Padding    Padding  // of the run-time streams
	Bands      int      // rho of asymmetric tile buffering: A arrives in bands of Tile.M/Bands rows; 0 means 1
	Transposed bool     // A down columns and B along rows instead of the reverse
	ResidentB  bool     // B stays in the MemTiles while all row blocks use it
	Rounding   kernel.Rounding
	Overflow   kernel.Overflow
}

// L1Limit is the part of a core's memory that buffers may take: 1 KB is kept for the stack and the runtime parameters.
const L1Limit = 63 << 10

const (
	l1Base = 1 << 10
	rtpAt  = l1Base - 4*kernel.RTPWords
)

func (d *Design) cBuffers() int { return max(d.CBuffers, 1) }
func (d *Design) bands() int    { return max(d.Bands, 1) }

// String describes the design in one line.
func (d *Design) String() string {
	s := fmt.Sprintf("%s %v %v k_mt %d, B %v", d.Dev.Name, d.Types, d.Tile, d.KMT, d.BLayout)
	if d.cBuffers() > 1 {
		s += ", C double-buffered"
	}
	if d.bands() > 1 {
		s += fmt.Sprintf(", A in %d bands", d.bands())
	}
	if d.Transposed {
		s += ", transposed mapping"
	}
	if d.ResidentB {
		s += ", B resident"
	}
	return s
}

// Native is the product that the array does in one go: every dimension is padded to a multiple of it.
func (d *Design) Native() (m, k, n int) {
	rows, cols := d.Dev.CoreRows, d.Dev.Cols
	if d.Transposed {
		rows, cols = cols, rows
	}
	return d.Tile.M * rows, d.KMT, d.Tile.N * cols
}

// L1Bytes is the memory that one core's buffers take: A and B double-buffered (A in bands), C as asked.
func (d *Design) L1Bytes() int {
	t := d.Tile
	return 2*d.Types.A.Bytes(t.M/d.bands()*t.K) + 2*d.Types.B.Bytes(t.K*t.N) + d.cBuffers()*d.Types.C.Bytes(t.M*t.N)
}

// L2Bytes is the memory that all MemTiles' buffers take together.
func (d *Design) L2Bytes() int {
	x, y, c := d.memBytes()
	return len(d.Dev.ACols)*x + d.Dev.Cols*(y+c)
}

// memBytes is what one MemTile needs for the row operand (feeding columns only), the column operand and C.
// A resident B takes as many whole blocks as fit beside the others.
func (d *Design) memBytes() (x, y, c int) {
	row, col := d.legs()
	x, c = 2*row.blockBytes(), d.Dev.CoreRows*d.cBuffers()*d.Types.C.Bytes(d.Tile.M*d.Tile.N)
	if d.ResidentB {
		return x, d.ResidentSlots() * col.blockBytes(), c
	}
	return x, 2 * col.blockBytes(), c
}

// ResidentSlots is the number of k_mt blocks of B that a MemTile of a design with resident B holds. K up to ResidentSlots x KMT stays; with a longer K
// a run reads B again for every row block, as other designs do.
func (d *Design) ResidentSlots() int {
	if !d.ResidentB {
		return 0
	}
	row, col := d.legs()
	ti := d.Dev.Tile(device.Mem)
	x := 2 * row.blockBytes()
	if d.Dev.ShareL2 {
		x /= 2 // the other buffer lies in the neighbour, so that all columns have the same room
	}
	left := ti.MemoryBytes - x - d.Dev.CoreRows*d.cBuffers()*d.Types.C.Bytes(d.Tile.M*d.Tile.N)
	if left <= 0 || col.blockBytes() == 0 {
		return 0
	}
	// Each slot has two locks, and two descriptors in the half that odd channels use, which C shares.
	return min(left/col.blockBytes(), (ti.Locks-memYSlot)/2, (ti.BDs/2-2*d.cBuffers())/2)
}

// Record is the kernel that every core runs.
func (d *Design) Record() (*kernel.Record, error) {
	mode, err := d.Dev.Mode(d.Types)
	if err != nil {
		return nil, err
	}
	t := d.Tile
	r := &kernel.Record{
		AType: d.Types.A, BType: d.Types.B, CType: d.Types.C, Arith: mode.Arith,
		M: t.M, K: t.K, N: t.N, R: mode.R, S: mode.S, T: mode.T, Bands: d.bands(),
		BTransposed: d.bTransposed(), Rounding: d.Rounding, Overflow: d.Overflow,
		RTP: rtpAt, Barrier: lockBarrier,
	}
	at := uint32(l1Base)
	ring := func(bytes, depth int, free, full uint8) kernel.Buffer {
		b := kernel.Buffer{Depth: depth, Free: free, Full: full}
		for i := range depth {
			b.Addr[i] = at
			at += uint32(bytes)
		}
		return b
	}
	r.A = ring(r.ABytes(), 2, lockAFree, lockAFull)
	r.B = ring(r.BBytes(), 2, lockBFree, lockBFull)
	r.C = ring(r.CBytes(), d.cBuffers(), lockCFree, lockCFull)
	return r, r.Validate()
}

// Check lists every limit that the design exceeds; none means that Config and Run will work for it.
func (d *Design) Check() []error {
	var out []error
	add := func(format string, args ...any) { out = append(out, fmt.Errorf(format, args...)) }
	if d.Dev == nil {
		add("design: no device")
		return out
	}
	mode, err := d.Dev.Mode(d.Types)
	if err != nil {
		out = append(out, err)
		return out
	}
	if d.CBuffers < 0 || d.CBuffers > 2 {
		add("%d buffers of C, want 1 or 2", d.CBuffers)
	}
	if d.Schedule > Serial {
		add("unknown schedule %d", d.Schedule)
	}
	if d.BLayout > Tiled {
		add("unknown layout %d of B", d.BLayout)
	}
	if d.Types.B == kernel.BFP16 && d.BLayout != Tiled {
		add("B of type %v must be tiled on the host, not %v-major: its 9-byte blocks defeat the DMA", d.Types.B, d.BLayout)
	}
	t := d.Tile
	for _, c := range []struct {
		name     string
		v, block int
	}{{"m", t.M, mode.R * d.bands()}, {"k", t.K, mode.S}, {"n", t.N, mode.T}} {
		if c.v <= 0 || c.v%c.block != 0 {
			add("tile %s = %d is not a positive multiple of %d", c.name, c.v, c.block)
		}
	}
	if t.K > 0 && (d.KMT <= 0 || d.KMT%t.K != 0) {
		add("k_mt = %d is not a positive multiple of k = %d", d.KMT, t.K)
	}
	if t.M > 1<<15 || t.K > 1<<15 || t.N > 1<<15 || d.KMT > 1<<20 {
		add("tile %v with k_mt %d is out of any range", t, d.KMT)
	}
	if d.ResidentB && d.Transposed {
		add("resident B needs B down the columns: the transposed mapping has it along rows")
	}
	if d.Bands < 0 {
		add("%d bands of A, want at least 1", d.Bands)
	}
	if len(out) > 0 {
		return out // sizes below would mean nothing
	}
	if l1 := d.L1Bytes(); l1 > L1Limit {
		add("tile %v needs %d bytes of L1, %d more than the %d of a core (64 KB less 1 KB of stack)", t, l1, l1-L1Limit, L1Limit)
	}
	if d.ResidentB && d.ResidentSlots() < 1 {
		_, col := d.legs()
		add("no block of %d bytes of B fits into a MemTile beside A and C", col.blockBytes())
		return out
	}
	if _, err := d.memory(); err != nil {
		out = append(out, err)
	}
	if len(out) > 0 {
		return out
	}
	if _, err := d.Config(); err != nil {
		out = append(out, err)
	}
	return out
}

// Validate is Check as one error.
func (d *Design) Validate() error {
	v := d.Check()
	if len(v) == 0 {
		return nil
	}
	return fmt.Errorf("design: %w", errors.Join(v...))
}

// bTransposed says which of the kernel's two layouts B has in L1. Host-tiled B is laid out as the kernel likes it best, which for bfp16 is the only way.
func (d *Design) bTransposed() bool { return d.BLayout == ColMajor || d.Types.B == kernel.BFP16 }
