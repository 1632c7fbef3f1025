// Package device decides what the planner, the register programs and the emulator know about a Versal device with first-generation AI
// Engines: tiles, memories, streams, descriptors and rates, as data with their sources. Nothing here computes a product.
//
// Sources: [UG1079] AMD, AI Engine Kernel and Graph Programming Guide; [AM009] AMD, Versal AI Engine Architecture Manual; [RT] Xilinx
// aie-rt, xaiegbl_params.h and xaie_dma_aie.c; [MA] Xilinx mlir-aie, AIE target model; [S] the GEMM paper that this backend started
// from ("Toward Matrix Multiplication for Deep Learning Inference on the Xilinx Versal").
package device

import (
	"fmt"
	"slices"
)

// Device is one Versal part.
type Device struct {
	Name  string
	Title string

	// The array: Cols columns, each a shim tile in row 0 and CoreRows cores above it [MA].
	Cols, CoreRows int
	// Columns whose shim has a DMA into the NoC (GMIO) [MA].
	NoCCols []int
	// Columns from FirstPLCol on whose shim has streams from and to the programmable logic (PLIO) [UG1079: 39 of 50]. Where they lie
	// is not in the sources read; only their number limits a plan.
	PLCols, FirstPLCol int
	PLIn, PLOut        int // streams of one such column, into and out of the array [UG1079]

	ClockHz float64 // array clock; 1.25 GHz is the fastest speed grade, at which the 128 TOPS of the data sheets are counted
	PLHz    float64 // clock of the programmable logic [UG1079: 500 MHz]
	PLBytes int     // bytes of a PLIO stream per cycle of the logic [UG1079: 64 bit]

	Core Core
	Shim Shim

	// Block and Ultra RAM of the programmable logic, in bytes [S: 4.3 and 16.3 MB, taken as decimal so that nothing is overstated].
	BlockRAM, UltraRAM int64
	// Ultra RAM blocks, each with two ports of 8 bytes; what can be read at once from the RAM that holds A.
	UltraBlocks, UltraPortBytes int

	DDRBytes       int64   // [S: 2 GB]
	DDRBytesPerSec float64 // one DDR4-3200 x64 controller of the VCK190, peak
	ColShift       int     // register address = col << ColShift | row << RowShift | offset [RT]
	RowShift       int
}

// Core is what one AI Engine tile has.
type Core struct {
	MemoryBytes  int // data memory [S, AM009]
	Banks        int // single-ported; a core access and a DMA access to the same bank in one cycle conflict
	ProgramBytes int
	ReachBytes   int // own memory and that of three neighbours

	VectorBits int // vector register file [UG1079]
	Accs       int // accumulator registers [S]
	AccBits    int // of which each lane has AccLaneBits
	AccLanes   int
	LaneBits   int

	LoadBits, Loads   int // two loads of 256 bits a cycle
	StoreBits, Stores int // one store of 256 bits a cycle

	StreamsIn, StreamsOut int // 32-bit streams between switch and core
	StreamBytes           int // bytes a cycle of any stream port
	CascadeBits           int // to the neighbour in the row's direction, a cycle

	Locks, BDs, BDWords int
	S2MM, MM2S          int // DMA channels
	QueueDepth          int

	// Lanes of the stream switch between neighbouring tiles, per direction [AM009].
	NorthOut, SouthOut, EastOut, WestOut int
}

// Shim is what one interface tile with a DMA has.
type Shim struct {
	BDs, BDWords, Locks int
	S2MM, MM2S          int
	QueueDepth          int
	StreamBytes         int // of each DMA channel, a cycle
	AXIBytesPerSec      float64
}

// VC1902 is the device of the VCK190 and VCK5000 boards.
var VC1902 = Device{
	Name: "vc1902", Title: "Versal AI Core VC1902 (400 AI Engines)",
	Cols: 50, CoreRows: 8,
	NoCCols: []int{2, 3, 6, 7, 10, 11, 18, 19, 26, 27, 34, 35, 42, 43, 46, 47},
	PLCols:  39, FirstPLCol: 6, PLIn: 8, PLOut: 6,
	ClockHz: 1.25e9, PLHz: 500e6, PLBytes: 8,
	Core: Core{
		MemoryBytes: 32 << 10, Banks: 8, ProgramBytes: 16 << 10, ReachBytes: 128 << 10,
		VectorBits: 2048, Accs: 4, AccBits: 768, AccLanes: 16, LaneBits: 48,
		LoadBits: 256, Loads: 2, StoreBits: 256, Stores: 1,
		StreamsIn: 2, StreamsOut: 2, StreamBytes: 4, CascadeBits: 384,
		Locks: 16, BDs: 16, BDWords: 7, S2MM: 2, MM2S: 2, QueueDepth: 4,
		NorthOut: 6, SouthOut: 4, EastOut: 4, WestOut: 4,
	},
	Shim:     Shim{BDs: 16, BDWords: 5, Locks: 16, S2MM: 2, MM2S: 2, QueueDepth: 4, StreamBytes: 4, AXIBytesPerSec: 16e9},
	BlockRAM: 4_300_000, UltraRAM: 16_300_000,
	UltraBlocks: 463, UltraPortBytes: 8,
	DDRBytes: 2_000_000_000, DDRBytesPerSec: 25.6e9,
	ColShift: 23, RowShift: 18,
}

// Tiles is the number of cores.
func (d *Device) Tiles() int { return d.Cols * d.CoreRows }

// FPGABytes is the RAM of the programmable logic that holds prepacked weights and staged activations.
func (d *Device) FPGABytes() int64 { return d.BlockRAM + d.UltraRAM }

// BankBytes is the size of one bank of a core's data memory.
func (d *Device) BankBytes() int { return d.Core.MemoryBytes / d.Core.Banks }

// PLStreamsIn and PLStreamsOut count the PLIO streams of the whole array.
func (d *Device) PLStreamsIn() int { return d.PLCols * d.PLIn }

// PLStreamsOut counts the streams from the array to the logic.
func (d *Device) PLStreamsOut() int { return d.PLCols * d.PLOut }

// PLIOBytes is what one PLIO stream carries per cycle of the array clock: the slower of the two sides.
func (d *Device) PLIOBytes() float64 {
	return min(float64(d.Core.StreamBytes), d.PLHz*float64(d.PLBytes)/d.ClockHz)
}

// GMIOChannels is the number of shim DMA channels in one direction.
func (d *Device) GMIOChannels() int { return len(d.NoCCols) * d.Shim.MM2S }

// DDRBytesPerCycle and UltraBytesPerCycle are rates in bytes per cycle of the array clock.
func (d *Device) DDRBytesPerCycle() float64 { return d.DDRBytesPerSec / d.ClockHz }

// RAMBytesPerCycle is what one port of every Ultra RAM block gives together, per cycle of the array clock.
func (d *Device) RAMBytesPerCycle() float64 {
	return float64(d.UltraBlocks*d.UltraPortBytes) * d.PLHz / d.ClockHz
}

// Addr is the register address of an offset inside a tile.
func (d *Device) Addr(col, row int, offset uint32) uint32 {
	return uint32(col)<<d.ColShift | uint32(row)<<d.RowShift | offset
}

// Split undoes Addr.
func (d *Device) Split(addr uint32) (col, row int, offset uint32) {
	return int(addr >> d.ColShift), int(addr>>d.RowShift) & (1<<(d.ColShift-d.RowShift) - 1), addr & (1<<d.RowShift - 1)
}

// CheckTile returns an error unless a core stands at (col, row); rows of cores are 1 to CoreRows.
func (d *Device) CheckTile(col, row int) error {
	if col < 0 || col >= d.Cols || row < 1 || row > d.CoreRows {
		return fmt.Errorf("%s: no core at column %d row %d; columns 0 to %d and rows 1 to %d have one", d.Name, col, row, d.Cols-1, d.CoreRows)
	}
	return nil
}

// HasDMA reports whether the shim of a column has DMA channels.
func (d *Device) HasDMA(col int) bool { return slices.Contains(d.NoCCols, col) }

// CascadeEast reports the direction of the cascade in a row: the array is one snake, east in odd rows and west in even rows [AM009].
func (d *Device) CascadeEast(row int) bool { return row%2 == 1 }

// Registers of a tile, as offsets [RT]. Queue registers follow their channel's control register.
const (
	ProgramMemory = 0x20000
	CoreControl   = 0x32000 // bit 0 enable, bit 1 reset
	BDBase        = 0x1D000
	CoreBDStride  = 0x20
	ShimBDStride  = 0x14
	CoreLockBase  = 0x1E000 // release; + 0x40 acquire; + 0x20 with a value, + 0x10 for the value 1
	ShimLockBase  = 0x14000
	LockStride    = 0x80

	CoreS2MM       = 0x1DE00 // + 8 * channel
	CoreMM2S       = 0x1DE10
	CoreStatusS2MM = 0x1DF00
	CoreStatusMM2S = 0x1DF10
	ShimS2MM       = 0x1D140
	ShimMM2S       = 0x1D150
	ShimStatusS2MM = 0x1D160
	ShimStatusMM2S = 0x1D164
	QueueOffset    = 4
	ChannelStride  = 8
)

// LockRegister is the offset that acquires or releases a lock with a value by being read [RT xaie_locks_aie.c].
func LockRegister(base uint32, lock int, acquire bool, value int) uint32 {
	off := base + uint32(lock)*LockStride + 0x20 + uint32(value)*0x10
	if acquire {
		off += 0x40
	}
	return off
}
