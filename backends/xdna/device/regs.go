package device

import "fmt"

// Addressing of the array: a register or memory address is col << ColShift | row << RowShift | offset.
const (
	ColShift = 25
	RowShift = 20
	OffMask  = 1<<RowShift - 1
	RowMask  = 1<<(ColShift-RowShift) - 1
)

// Offsets that are not in a TileInfo.
const (
	ProgramMemory = 0x20000 // core: start of program memory
	CoreControl   = 0x32000 // core: bit 0 enable, bit 1 reset
	ShimMux       = 0x1F000 // shim: which DMA or NoC port enters the switch from the south
	ShimDemux     = 0x1F004 // shim: where the switch's south ports lead
)

// Values of the shim mux and demux that connect the DMA: MM2S0 enters on south 3, MM2S1 on south 7; S2MM0 leaves on south 2,
// S2MM1 on south 3.
const (
	ShimMuxMM2S0   = 1 << 10
	ShimMuxMM2S1   = 1 << 14
	ShimDemuxS2MM0 = 1 << 4
	ShimDemuxS2MM1 = 1 << 6
)

// Bits of registers.
const (
	PortEnable = 1 << 31 // switch ports, master and slave
	PortPacket = 1 << 30

	CtrlReset      = 1 << 1 // channel control
	CtrlController = 0xFF00 // controller id that goes into the token, bits 15:8

	QueueToken       = 1 << 31
	QueueRepeatShift = 16

	StatusQueueFull = 1 << 22 // of the queue size, bits 22:20
	StatusIdle      = 0x0078003C

	CoreEnable = 1 << 0
	CoreReset  = 1 << 1
)

// Tile is a position in the array.
type Tile struct{ Col, Row int }

// Addr is the address of an offset in the tile.
func (t Tile) Addr(off uint32) uint32 {
	return uint32(t.Col)<<ColShift | uint32(t.Row)<<RowShift | off&OffMask
}

// String prints (col,row).
func (t Tile) String() string { return fmt.Sprintf("(%d,%d)", t.Col, t.Row) }

// SplitAddr takes an address apart.
func SplitAddr(addr uint32) (Tile, uint32) {
	return Tile{int(addr >> ColShift), int(addr >> RowShift & RowMask)}, addr & OffMask
}

// BD is the offset of a descriptor's first word.
func (t *TileInfo) BD(id int) uint32 { return t.BDBase + uint32(id)*t.BDStride }

// Ctrl is the offset of a channel's control register.
func (t *TileInfo) Ctrl(d Dir, ch int) uint32 {
	if d == MM2S {
		return t.CtrlMM2S + 8*uint32(ch)
	}
	return t.CtrlS2MM + 8*uint32(ch)
}

// Queue is the offset of a channel's task queue.
func (t *TileInfo) Queue(d Dir, ch int) uint32 { return t.Ctrl(d, ch) + 4 }

// Status is the offset of a channel's status register.
func (t *TileInfo) Status(d Dir, ch int) uint32 {
	if d == MM2S {
		return t.StatusMM2S + 4*uint32(ch)
	}
	return t.StatusS2MM + 4*uint32(ch)
}

// Lock is the offset of a lock's value.
func (t *TileInfo) Lock(id int) uint32 { return t.LockBase + 16*uint32(id) }

// Channels is the number of channels of a direction.
func (t *TileInfo) Channels(d Dir) int {
	if d == MM2S {
		return t.ChannelsOut
	}
	return t.ChannelsIn
}

// PatchWord is the word of a descriptor that holds the low part of its address, which DDR_PATCH rewrites.
func (t *TileInfo) PatchWord() int {
	if t.Kind == Core {
		return 0
	}
	return 1
}

// RegKind says what a register is.
type RegKind uint8

// The kinds of registers that control code for this array touches.
const (
	RegUnknown   RegKind = iota
	RegData              // data memory; Index is the byte address
	RegProgram           // core program memory; Index is the byte offset in it
	RegBD                // descriptor Index, word Word
	RegCtrl              // channel control; Dir, Index = channel
	RegQueue             // channel task queue; Dir, Index = channel
	RegStatus            // channel status; Dir, Index = channel
	RegLock              // lock Index
	RegMaster            // switch master port Index
	RegSlave             // switch slave port Index
	RegShimMux           // shim mux
	RegShimDemux         // shim demux
	RegCoreCtrl          // core control
)

// Reg is a decoded register offset.
type Reg struct {
	Kind  RegKind
	Dir   Dir
	Index int
	Word  int
}

// Register says what lies at an offset of a tile. Kind is RegUnknown for all that this project does not use.
func (t *TileInfo) Register(off uint32) Reg {
	span := func(base, stride uint32, n int) (int, bool) {
		if off < base || off >= base+stride*uint32(n) {
			return 0, false
		}
		return int((off - base) / stride), true
	}
	if off < uint32(t.MemoryBytes) {
		return Reg{Kind: RegData, Index: int(off)}
	}
	if t.ProgramBytes > 0 && off >= ProgramMemory && off < ProgramMemory+uint32(t.ProgramBytes) {
		return Reg{Kind: RegProgram, Index: int(off - ProgramMemory)}
	}
	if i, ok := span(t.BDBase, t.BDStride, t.BDs); ok {
		w := int(off-t.BD(i)) / 4
		if w < t.BDWords {
			return Reg{Kind: RegBD, Index: i, Word: w}
		}
		return Reg{}
	}
	if off%4 != 0 {
		return Reg{}
	}
	for _, d := range []Dir{S2MM, MM2S} {
		if i, ok := span(t.Ctrl(d, 0), 8, t.Channels(d)); ok {
			if (off-t.Ctrl(d, 0))%8 == 0 {
				return Reg{Kind: RegCtrl, Dir: d, Index: i}
			}
			return Reg{Kind: RegQueue, Dir: d, Index: i}
		}
		if i, ok := span(t.Status(d, 0), 4, t.Channels(d)); ok {
			return Reg{Kind: RegStatus, Dir: d, Index: i}
		}
	}
	if i, ok := span(t.LockBase, 16, t.Locks); ok && (off-t.LockBase)%16 == 0 {
		return Reg{Kind: RegLock, Index: i}
	}
	if i, ok := span(t.SwitchMaster, 4, portCount(t.MasterPorts)); ok {
		return Reg{Kind: RegMaster, Index: i}
	}
	if i, ok := span(t.SwitchSlave, 4, portCount(t.SlavePorts)); ok {
		return Reg{Kind: RegSlave, Index: i}
	}
	switch {
	case t.Kind == Shim && off == ShimMux:
		return Reg{Kind: RegShimMux}
	case t.Kind == Shim && off == ShimDemux:
		return Reg{Kind: RegShimDemux}
	case t.Kind == Core && off == CoreControl:
		return Reg{Kind: RegCoreCtrl}
	}
	return Reg{}
}
