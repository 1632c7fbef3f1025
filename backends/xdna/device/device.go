package device

import (
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
)

// Kind is the kind of a tile.
type Kind uint8

// The kinds of tiles, bottom row first.
const (
	Shim Kind = iota // row 0: DMA to DRAM through the NoC
	Mem              // row 1: MemTile, the L2 memory
	Core             // rows 2 and up: compute
	numKinds
)

// String names the kind.
func (k Kind) String() string {
	switch k {
	case Shim:
		return "shim"
	case Mem:
		return "memtile"
	case Core:
		return "core"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Dir is the direction of a DMA channel, with the value that a token wait carries.
type Dir uint8

// The directions: S2MM writes memory from a stream, MM2S reads memory into a stream.
const (
	S2MM Dir = 0
	MM2S Dir = 1
)

// String names the direction.
func (d Dir) String() string {
	switch d {
	case S2MM:
		return "s2mm"
	case MM2S:
		return "mm2s"
	}
	return fmt.Sprintf("dir(%d)", uint8(d))
}

// Bits holds the widths of a descriptor's fields, in bits. All steps and lengths count 32-bit words.
type Bits struct {
	Length   int // transfer length
	Address  int // base address, in words (DRAM: 46-bit word address, a 48-bit byte address)
	Step     int // stored minus 1
	Wrap     int // stored as is, 0 = the dimension takes all that is left
	IterStep int // stored minus 1
	IterWrap int // stored minus 1
}

// TileInfo is what one kind of tile has.
type TileInfo struct {
	Kind          Kind
	MemoryBytes   int // data memory; 0 for the shim, whose memory is DRAM
	Banks         int
	ProgramBytes  int
	Locks         int
	LockMax       int // largest lock value
	ChannelsIn    int // S2MM
	ChannelsOut   int // MM2S
	BDs           int
	BDWords       int
	Dims          int // addressing dimensions beside the iteration
	StoredWraps   int // dimensions whose wrap the descriptor stores; that of the outermost follows from the length
	QueueDepth    int // tasks that wait behind the running one
	MaxRepeat     int // runs of one queue entry
	PadBefore     [3]int
	PadAfter      [3]int // largest zero padding of dimensions 0 to 2, MM2S only; all 0 where there is none
	NeighbourChan int    // channels below this index reach the neighbours' memories (MemTile)
	Bits          Bits

	// Register offsets inside the tile.
	BDBase, BDStride        uint32
	CtrlS2MM, CtrlMM2S      uint32 // + 8 * channel; the queue register follows at + 4
	StatusS2MM, StatusMM2S  uint32 // + 4 * channel
	LockBase                uint32 // + 16 * lock
	SwitchMaster            uint32 // + 4 * port
	SwitchSlave             uint32 // + 4 * port
	MasterPorts, SlavePorts []PortGroup
	OwnBase                 uint32 // byte address of the tile's own memory in its DMA's window
	NeighbourBytes          uint32 // distance of a neighbour's memory in that window (MemTile)
	LockWindowOwn           uint8  // lock id of own lock 0 in a descriptor
	BDParity                bool   // even channels use the lower half of the descriptors, odd ones the upper half
	StreamBytesPerCycle     int    // of one DMA channel, either way
	MemoryBytesPerCycle     int    // of the tile's DMA towards its own memory
	CoreLoadBytesPerCycle   int
	CoreStoreBytesPerCycle  int
}

// Device is one NPU as a context sees it: a partition of whole columns, numbered from 0.
type Device struct {
	Name        string
	Aliases     []string
	Title       string
	Gen         uint8 // device generation of the control-code header: 3 npu1, 4 npu2
	Cols        int   // columns with a shim DMA
	Rows        int   // 6: shim, MemTile, four cores
	MemRows     int
	CoreRow     int // first core row
	CoreRows    int
	ClockHz     float64 // core clock in turbo mode
	ACols       []int   // MemTile column that feeds core row r with its broadcast operand
	ShareL2     bool    // a buffer of a feeding MemTile may lie in its neighbour to the east
	Burst       uint8   // default burst code of shim descriptors
	CoreStream  int     // bytes a cycle into a core from one stream (see the note at XDNA2)
	ReconfigSec float64 // loading a whole configuration, seconds (arXiv 2512.13282, section "insights")
	Modes       []Mode
	tiles       [numKinds]TileInfo
}

// Tile returns what a kind of tile has on this device.
func (d *Device) Tile(k Kind) *TileInfo { return &d.tiles[k] }

// KindAt returns the kind of the tiles of a row.
func (d *Device) KindAt(row int) (Kind, error) {
	switch {
	case row == 0:
		return Shim, nil
	case row > 0 && row <= d.MemRows:
		return Mem, nil
	case row >= d.CoreRow && row < d.CoreRow+d.CoreRows:
		return Core, nil
	}
	return 0, fmt.Errorf("%s: row %d outside 0 to %d", d.Name, row, d.Rows-1)
}

// PeakMACs is the peak of the whole array in multiply-adds a cycle for a mode.
func (d *Device) PeakMACs(m *Mode) int { return m.PeakMACs * d.Cols * d.CoreRows }

// PeakOps is the peak of the whole array in operations a second (two per multiply-add).
func (d *Device) PeakOps(m *Mode) float64 { return 2 * float64(d.PeakMACs(m)) * d.ClockHz }

// Mode is a type triple that the multiply units take, with the block shape of the kernel used for it.
type Mode struct {
	Types    Types
	Arith    kernel.Arith
	R, S, T  int // block of the multiply unit: A is R x S, B is S x T
	PeakMACs int // multiply-adds a cycle of one core
	Note     string
}

// Types are the element types of one product.
type Types struct{ A, B, C kernel.Type }

// String names a triple as [ParseTypes] reads it.
func (t Types) String() string {
	for _, n := range typeNames {
		if n.types == t {
			return n.name
		}
	}
	return fmt.Sprintf("%v-%v-%v", t.A, t.B, t.C)
}

// typeNames lists the spellings that ParseTypes knows, in the order in which they are offered.
var typeNames = []struct {
	name  string
	types Types
}{
	{"int8-int8", Types{kernel.I8, kernel.I8, kernel.I8}},
	{"int8-int16", Types{kernel.I8, kernel.I8, kernel.I16}},
	{"int8-int32", Types{kernel.I8, kernel.I8, kernel.I32}},
	{"bf16-bf16", Types{kernel.BF16, kernel.BF16, kernel.BF16}},
	{"bf16-f32", Types{kernel.BF16, kernel.BF16, kernel.F32}},
	{"bf16-bfp16", Types{kernel.BF16, kernel.BFP16, kernel.BF16}},
	{"bfp16-bfp16", Types{kernel.BFP16, kernel.BFP16, kernel.BF16}},
	{"bf16-bfp16-f32", Types{kernel.BF16, kernel.BFP16, kernel.F32}},
	{"bfp16-bfp16-f32", Types{kernel.BFP16, kernel.BFP16, kernel.F32}},
}

// ParseTypes reads a type pair of the command line: int8-int8, int8-int16, int8-int32, bf16-bf16, bf16-f32 (input-output),
// bf16-bfp16, bfp16-bfp16 (A-B with bf16 output), and the latter two with -f32 for f32 output.
func ParseTypes(s string) (Types, error) {
	var names []string
	for _, n := range typeNames {
		if strings.EqualFold(s, n.name) {
			return n.types, nil
		}
		names = append(names, n.name)
	}
	return Types{}, fmt.Errorf("unknown type pair %q, want one of %s", s, strings.Join(names, ", "))
}

// Mode returns how the device multiplies these types.
func (d *Device) Mode(t Types) (*Mode, error) {
	var names []string
	for i := range d.Modes {
		if d.Modes[i].Types == t {
			return &d.Modes[i], nil
		}
		names = append(names, d.Modes[i].Types.String())
	}
	return nil, fmt.Errorf("%s does not multiply %v x %v to %v, it has %s", d.Name, t.A, t.B, t.C, strings.Join(names, ", "))
}

// Lookup finds a device by name or alias, in any case.
func Lookup(name string) (*Device, error) {
	var names []string
	for _, d := range All() {
		if strings.EqualFold(name, d.Name) {
			return d, nil
		}
		for _, a := range d.Aliases {
			if strings.EqualFold(name, a) {
				return d, nil
			}
		}
		names = append(names, d.Name)
	}
	return nil, fmt.Errorf("unknown device %q, want one of %s", name, strings.Join(names, ", "))
}

// ByGen finds a device by the generation number of a control-code header.
func ByGen(gen uint8) (*Device, error) {
	for _, d := range All() {
		if d.Gen == gen {
			return d, nil
		}
	}
	return nil, fmt.Errorf("unknown device generation %d, want 3 (xdna) or 4 (xdna2)", gen)
}

// All returns the devices, oldest first. The tables are shared: do not modify them.
func All() []*Device { return []*Device{XDNA, XDNA2} }
