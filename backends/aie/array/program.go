// Package array decides how a plan runs: it turns the plan into register writes, stream circuits and descriptors of the programmable
// logic's data movers, and executes those, exactly and on the simulated clock. Every byte that moves moves by a descriptor or a mover's
// entry, and the result is wrong if one is.
package array

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/aie/regs"
)

// PortKind is the kind of a stream's end.
type PortKind uint8

// The ends of streams.
const (
	PLIn     PortKind = iota // a data mover of the programmable logic, into the array
	PLOut                    // out of the array
	ShimMM2S                 // GMIO, DDR to stream
	ShimS2MM
	CoreS2MM // a core tile's DMA
	CoreMM2S
	CoreIn // a stream that the core itself reads
	CoreOut
)

var portNames = [...]string{"plio in", "plio out", "shim mm2s", "shim s2mm", "core s2mm", "core mm2s", "core in", "core out"}

// Port is an end of a stream: a mover's number, or a channel of a tile.
type Port struct {
	Kind     PortKind
	Col, Row int
	Chan     int
}

func (p Port) String() string {
	if p.Kind <= PLOut {
		return fmt.Sprintf("%s %d", portNames[p.Kind], p.Chan)
	}
	return fmt.Sprintf("%s %d of (%d,%d)", portNames[p.Kind], p.Chan, p.Col, p.Row)
}

// Link is a circuit of the stream switches, from one source to one or more sinks that all see every word.
type Link struct {
	From  Port
	To    []Port
	Ticks float64 // of a word, on the slowest way; 0 means one word a cycle
	Wide  int     // streams side by side (the seed's A); 0 means 1
	Depth int     // FIFO words on the way; the core's own streams have none here, so that their cycles are the model's
	Lane  int     // results that share a stream have the same lane; 0 means alone
}

// Memory says which memory an address belongs to.
type Memory uint8

// The memories behind the array.
const (
	DDR Memory = iota
	FPGA
)

// Extent is a piece of a memory.
type Extent struct {
	Mem   Memory
	Addr  int64
	Bytes int
}

// Feed is the descriptor of how one operand reaches the movers of the best design: slabs of all columns' or rows' blocks of one step.
type Feed struct {
	Mode         plan.Feed
	Base         int64 // in FPGA RAM
	Slots        int
	Slab, Block  int
	Outer, Inner int
	Steps        int
	OuterIsOwn   bool // the outer loop runs over this operand's own blocks (stationary), else the inner one does
	Users        int  // movers that read every slab
}

// Mover is a data mover into the array: pieces one after another, or its block of every slab of a feed.
type Mover struct {
	List   []Extent
	Feed   *Feed
	Offset int // of its block in a slab
}

// Sink is a data mover out of the array: blocks of C of MB x NB go to their place in the matrix.
type Sink struct {
	Row, Group int // of the grid: which blocks it gets
}

// TaskKind is the kind of a host task.
type TaskKind uint8

// The host tasks.
const (
	PackBPanel TaskKind = iota // k_c x n_c of B into B_c in DDR
	LoadC                      // C into micro-tiles
	StoreC                     // micro-tiles into C
)

// Task is work of the processor between register writes.
type Task struct {
	Kind         TaskKind
	K0, K, N0, N int
	Addr         int64
	Rows         int
}

// Program is everything that a run needs but the operands.
type Program struct {
	Plan   *plan.Plan
	Device *device.Device
	Regs   regs.Program
	Links  []Link
	Movers []Mover
	Sinks  []Sink
	Feeds  [2]*Feed // of A and B
	Tasks  []Task
	// Layout of the memories behind the array.
	ABase int64 // of A, in FPGA RAM (or DDR for what does not fit)
	DDR   int64 // bytes
	FPGA  int64
}

// Build turns a plan into a program.
func Build(p *plan.Plan) (*Program, error) {
	if p.Design == plan.Paper {
		return buildPaper(p)
	}
	return buildBest(p)
}

func coreChannel(s2mm bool, ch int) (control, queue uint32) {
	base := uint32(device.CoreMM2S)
	if s2mm {
		base = device.CoreS2MM
	}
	base += device.ChannelStride * uint32(ch)
	return base, base + device.QueueOffset
}

func shimChannel(s2mm bool, ch int) (control, queue, status uint32) {
	base, st := uint32(device.ShimMM2S), uint32(device.ShimStatusMM2S)
	if s2mm {
		base, st = device.ShimS2MM, device.ShimStatusS2MM
	}
	base += device.ChannelStride * uint32(ch)
	return base, base + device.QueueOffset, st
}

// lockPair is what a descriptor that fills (or empties) a buffer does with its lock.
func lockPair(id int, fills bool) regs.LockUse {
	l := regs.LockUse{ID: id, Acquire: true, AcquireUse: true, Release: true, ReleaseUse: true}
	if fills {
		l.ReleaseValue = 1
	} else {
		l.AcquireValue = 1
	}
	return l
}

func (pr *Program) coreBD(col, row, id, addr, bytes, next int, l regs.LockUse, note string) error {
	bd := regs.CoreBD{LockA: l, BaseA: addr / 4, X: regs.LinearX, Y: regs.LinearY, Valid: true, UseNext: true, Next: next, Length: bytes / 4}
	w, err := bd.Encode()
	if err != nil {
		return fmt.Errorf("%s of core (%d,%d): %w", note, col, row, err)
	}
	pr.Regs.Block(pr.Device.Addr(col, row, device.BDBase+uint32(id)*device.CoreBDStride), w[:], note)
	return nil
}

func (pr *Program) start(col, row int, s2mm bool, ch, bd int, note string) {
	control, queue := coreChannel(s2mm, ch)
	pr.Regs.Write(pr.Device.Addr(col, row, control), 1, "enable channel")
	pr.Regs.Write(pr.Device.Addr(col, row, queue), uint32(bd), note)
}
