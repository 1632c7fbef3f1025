package device

import "github.com/tessera-go/tessera/backends/xdna/kernel"

// coreTile: AM020 and aie-rt; 64 KB in 8 banks, 16 locks of 6 bits, 2 + 2 channels, 16 descriptors of 6 words.
var coreTile = TileInfo{
	Kind: Core, MemoryBytes: 64 << 10, Banks: 8, ProgramBytes: 16 << 10,
	Locks: 16, LockMax: 63, ChannelsIn: 2, ChannelsOut: 2,
	BDs: 16, BDWords: 6, Dims: 3, StoredWraps: 2, QueueDepth: 4, MaxRepeat: 256,
	Bits:   Bits{Length: 14, Address: 14, Step: 13, Wrap: 8, IterStep: 13, IterWrap: 6},
	BDBase: 0x1D000, BDStride: 0x20,
	CtrlS2MM: 0x1DE00, CtrlMM2S: 0x1DE10, StatusS2MM: 0x1DF00, StatusMM2S: 0x1DF10,
	LockBase: 0x1F000, SwitchMaster: 0x3F000, SwitchSlave: 0x3F100,
	MasterPorts: []PortGroup{{PortCore, 0, 1}, {PortDMA, 1, 2}, {PortCtrl, 3, 1}, {PortFIFO, 4, 1},
		{PortSouth, 5, 4}, {PortWest, 9, 4}, {PortNorth, 13, 6}, {PortEast, 19, 4}},
	SlavePorts: []PortGroup{{PortCore, 0, 1}, {PortDMA, 1, 2}, {PortCtrl, 3, 1}, {PortFIFO, 4, 1},
		{PortSouth, 5, 6}, {PortWest, 11, 4}, {PortNorth, 15, 4}, {PortEast, 19, 4}, {PortTrace, 23, 2}},
	StreamBytesPerCycle: 4, MemoryBytesPerCycle: 16,
	CoreLoadBytesPerCycle: 64, CoreStoreBytesPerCycle: 32,
}

// memTile: 512 KB in 16 banks, 64 locks, 6 + 6 channels, 48 descriptors of 8 words of which even channels use 0 to 23 and odd
// ones 24 to 47. Its DMA sees the west neighbour, itself and the east neighbour in one window of 3 x 512 KB.
var memTile = TileInfo{
	Kind: Mem, MemoryBytes: 512 << 10, Banks: 16,
	Locks: 64, LockMax: 63, ChannelsIn: 6, ChannelsOut: 6,
	BDs: 48, BDWords: 8, Dims: 4, StoredWraps: 3, QueueDepth: 4, MaxRepeat: 256,
	PadBefore: [3]int{63, 31, 15}, PadAfter: [3]int{63, 31, 15}, NeighbourChan: 4,
	Bits:   Bits{Length: 17, Address: 19, Step: 17, Wrap: 10, IterStep: 17, IterWrap: 6},
	BDBase: 0xA0000, BDStride: 0x20,
	CtrlS2MM: 0xA0600, CtrlMM2S: 0xA0630, StatusS2MM: 0xA0660, StatusMM2S: 0xA0680,
	LockBase: 0xC0000, SwitchMaster: 0xB0000, SwitchSlave: 0xB0100,
	MasterPorts:         []PortGroup{{PortDMA, 0, 6}, {PortCtrl, 6, 1}, {PortSouth, 7, 4}, {PortNorth, 11, 6}},
	SlavePorts:          []PortGroup{{PortDMA, 0, 6}, {PortCtrl, 6, 1}, {PortSouth, 7, 6}, {PortNorth, 13, 4}, {PortTrace, 17, 1}},
	OwnBase:             0x80000,
	NeighbourBytes:      0x80000,
	LockWindowOwn:       64,
	BDParity:            true,
	StreamBytesPerCycle: 4, MemoryBytesPerCycle: 16,
}

// shimTile: no memory of its own, 16 descriptors of 8 words with 46-bit word addresses and 32-bit lengths.
var shimTile = TileInfo{
	Kind:  Shim,
	Locks: 16, LockMax: 63, ChannelsIn: 2, ChannelsOut: 2,
	BDs: 16, BDWords: 8, Dims: 3, StoredWraps: 2, QueueDepth: 4, MaxRepeat: 256,
	Bits:   Bits{Length: 32, Address: 46, Step: 20, Wrap: 10, IterStep: 20, IterWrap: 6},
	BDBase: 0x1D000, BDStride: 0x20,
	CtrlS2MM: 0x1D200, CtrlMM2S: 0x1D210, StatusS2MM: 0x1D220, StatusMM2S: 0x1D228,
	LockBase: 0x14000, SwitchMaster: 0x3F000, SwitchSlave: 0x3F100,
	MasterPorts: []PortGroup{{PortCtrl, 0, 1}, {PortFIFO, 1, 1}, {PortSouth, 2, 6}, {PortWest, 8, 4},
		{PortNorth, 12, 6}, {PortEast, 18, 4}},
	SlavePorts: []PortGroup{{PortCtrl, 0, 1}, {PortFIFO, 1, 1}, {PortSouth, 2, 8}, {PortWest, 10, 4},
		{PortNorth, 14, 4}, {PortEast, 18, 4}, {PortTrace, 22, 1}},
	StreamBytesPerCycle: 4, MemoryBytesPerCycle: 4,
}

// with returns a copy of a tile table, changed.
func with(t TileInfo, edit func(*TileInfo)) TileInfo {
	edit(&t)
	return t
}

// XDNA is the first generation (npu1: Phoenix, Hawk Point): 4 x 5 cores, of which the 4 x 4 in columns with a shim DMA are used.
var XDNA = &Device{
	Name: "xdna", Aliases: []string{"npu1", "phoenix", "hawkpoint", "aie2"}, Title: "XDNA (Ryzen AI, Phoenix and Hawk Point)",
	Gen: 3, Cols: 4, Rows: 6, MemRows: 1, CoreRow: 2, CoreRows: 4, ClockHz: 1.0e9,
	ACols: []int{0, 1, 2, 3}, Burst: 2, CoreStream: 4, ReconfigSec: 3.4e-3,
	Modes: []Mode{
		{Types{kernel.I8, kernel.I8, kernel.I8}, kernel.Int, 4, 8, 8, 256, ""},
		{Types{kernel.I8, kernel.I8, kernel.I16}, kernel.Int, 4, 8, 8, 256, ""},
		{Types{kernel.I8, kernel.I8, kernel.I32}, kernel.Int, 4, 8, 8, 256, ""},
		{Types{kernel.BF16, kernel.BF16, kernel.BF16}, kernel.FMA, 4, 8, 4, 128, ""},
		{Types{kernel.BF16, kernel.BF16, kernel.F32}, kernel.FMA, 4, 8, 4, 128, ""},
	},
	tiles: [numKinds]TileInfo{Shim: shimTile, Mem: memTile, Core: coreTile},
}

// XDNA2 is the second generation (npu2 and later: Strix, Strix Halo, Krackan): 4 x 8 cores.
//
// CoreStream is 8: table 1 of arXiv 2512.13282 satisfies the paper's equation 4 on XDNA2 only at 8 bytes a cycle into a core (64 x 232 x 64
// int8: 14,848 bytes of A in 2,109 cycles of arithmetic). Whether the second generation's streams are 64 bits wide or clocked higher is not
// published; every rate here that is "bytes a cycle of one stream" uses 8 on XDNA2, except the shim's (see StreamBytesPerCycle of its tile).
var XDNA2 = &Device{
	Name: "xdna2", Aliases: []string{"npu2", "npu4", "npu5", "npu6", "strix", "strixhalo", "krackan", "aie2p"},
	Title: "XDNA2 (Ryzen AI 300: Strix, Strix Halo, Krackan)",
	Gen:   4, Cols: 8, Rows: 6, MemRows: 1, CoreRow: 2, CoreRows: 4, ClockHz: 1.8e9,
	ACols: []int{0, 2, 4, 6}, ShareL2: true, Burst: 3, CoreStream: 8, ReconfigSec: 4.9e-3,
	Modes: []Mode{
		{Types{kernel.I8, kernel.I8, kernel.I8}, kernel.Int, 8, 8, 8, 512, ""},
		{Types{kernel.I8, kernel.I8, kernel.I16}, kernel.Int, 8, 8, 8, 512, ""},
		{Types{kernel.I8, kernel.I8, kernel.I32}, kernel.Int, 8, 8, 8, 512, ""},
		{Types{kernel.BF16, kernel.BF16, kernel.BF16}, kernel.BFP, 8, 8, 8, 512, "bf16 runs on the bfp16 data path: both operands are converted in the core"},
		{Types{kernel.BF16, kernel.BF16, kernel.F32}, kernel.BFP, 8, 8, 8, 512, "bf16 runs on the bfp16 data path: both operands are converted in the core"},
		{Types{kernel.BF16, kernel.BFP16, kernel.BF16}, kernel.BFP, 8, 8, 8, 512, "A is converted in the core, B was converted and tiled on the host"},
		{Types{kernel.BF16, kernel.BFP16, kernel.F32}, kernel.BFP, 8, 8, 8, 512, "A is converted in the core, B was converted and tiled on the host"},
		{Types{kernel.BFP16, kernel.BFP16, kernel.BF16}, kernel.BFP, 8, 8, 8, 512, "both operands were converted and tiled on the host"},
		{Types{kernel.BFP16, kernel.BFP16, kernel.F32}, kernel.BFP, 8, 8, 8, 512, "both operands were converted and tiled on the host"},
	},
	tiles: [numKinds]TileInfo{
		Shim: shimTile,
		Mem:  with(memTile, func(t *TileInfo) { t.StreamBytesPerCycle, t.MemoryBytesPerCycle = 8, 32 }),
		Core: with(coreTile, func(t *TileInfo) {
			t.StreamBytesPerCycle, t.MemoryBytesPerCycle = 8, 32
			t.CoreLoadBytesPerCycle, t.CoreStoreBytesPerCycle = 128, 64
		}),
	},
}
