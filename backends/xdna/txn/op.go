package txn

import (
	"fmt"
	"iter"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Code is an operation code. Numbers as in mlir-aie's TxnEncoding.h; old releases of aie-rt number differently.
type Code uint8

// The operations that this package encodes and decodes. Others exist in the numbering (block set, scratch pad, PM load) but no public
// description of their layout does; they are refused by name.
const (
	Write       Code = 0    // one register
	BlockWrite  Code = 1    // consecutive registers
	MaskWrite   Code = 3    // the bits of one register that a mask selects
	MaskPoll    Code = 4    // wait until (register & mask) == value
	Noop        Code = 5    //
	Preempt     Code = 6    // a point at which the context may be switched
	LoadPDI     Code = 8    // load a configuration image
	Sync        Code = 0x80 // wait for task-complete tokens (TCT)
	DDRPatch    Code = 0x81 // put a host buffer's address into a descriptor
	ReadRegs    Code = 0x82 // read registers back
	RecordTimer Code = 0x83 // payload kept as it is
	MergeSync   Code = 0x84 // payload kept as it is
)

var codeNames = map[Code]string{
	Write: "write", BlockWrite: "blockwrite", MaskWrite: "maskwrite", MaskPoll: "maskpoll", Noop: "noop", Preempt: "preempt",
	LoadPDI: "load_pdi", Sync: "sync", DDRPatch: "ddr_patch", ReadRegs: "read_regs", RecordTimer: "record_timer", MergeSync: "merge_sync",
}

// unsupported names operations that exist but whose layout is not public.
var unsupported = map[Code]string{
	2: "blockset", 7: "maskpoll_busy", 9: "load_pm_start", 10: "create_scratchpad", 11: "update_state_table", 12: "update_reg",
	13: "update_scratch", 14: "config_shimdma_bd", 15: "config_shimdma_dmabuf_bd", 200: "load_pm_end_internal",
}

// known is codeNames as a table, for the decoder.
var known = func() (t [256]bool) {
	for c := range codeNames {
		t[c] = true
	}
	return t
}()

// String names the operation.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	if s, ok := unsupported[c]; ok {
		return s
	}
	return fmt.Sprintf("op(%#x)", uint8(c))
}

// Op is one operation. Which fields count depends on Code; the others are zero. The constructors say which.
type Op struct {
	Code     Code
	TileWord bool       // BlockWrite, dialect 0.1: repeat the tile in the second word. Means nothing at tile (0,0)
	Dir      device.Dir // Sync
	Channel  uint8      // Sync
	Col, Row uint8      // Sync: lower left tile of a rectangle
	NCols    uint8      // Sync: its size; one token per tile
	NRows    uint8
	Level    uint8    // Preempt
	Addr     uint32   // register or memory address of the array; the address register for DDRPatch
	Value    uint32   // Write, MaskWrite, MaskPoll; LoadPDI: bytes of the image
	Mask     uint32   // MaskWrite, MaskPoll
	Arg      uint32   // DDRPatch: host buffer; LoadPDI: id of the image
	Offset   uint64   // DDRPatch: byte offset in the host buffer; LoadPDI: address of the image
	Data     []uint32 // BlockWrite; ReadRegs: the addresses; RecordTimer and MergeSync: payload
}

// WriteOp writes one register.
func WriteOp(addr, value uint32) Op { return Op{Code: Write, Addr: addr, Value: value} }

// BlockWriteOp writes consecutive registers.
func BlockWriteOp(addr uint32, data ...uint32) Op {
	return Op{Code: BlockWrite, Addr: addr, Data: data}
}

// MaskWriteOp replaces the bits of a register that mask selects.
func MaskWriteOp(addr, value, mask uint32) Op {
	return Op{Code: MaskWrite, Addr: addr, Value: value, Mask: mask}
}

// MaskPollOp waits until (register & mask) == value.
func MaskPollOp(addr, value, mask uint32) Op {
	return Op{Code: MaskPoll, Addr: addr, Value: value, Mask: mask}
}

// SyncOp waits for one token from a channel of every tile of the rectangle of nCols x nRows tiles with lower left tile t.
func SyncOp(t device.Tile, dir device.Dir, channel, nCols, nRows int) Op {
	return Op{Code: Sync, Col: uint8(t.Col), Row: uint8(t.Row), Dir: dir, Channel: uint8(channel), NCols: uint8(nCols), NRows: uint8(nRows)}
}

// DDRPatchOp puts the address of byte offset of host buffer arg into the descriptor address register at addr.
func DDRPatchOp(addr, arg uint32, offset uint64) Op {
	return Op{Code: DDRPatch, Addr: addr, Arg: arg, Offset: offset}
}

// FirmwareBuffers is the number of host buffers whose addresses the firmware translates by itself.
const FirmwareBuffers = 5

// FoldHostOffset is the offset to encode for a buffer when the stream is passed as an instruction buffer beside an xclbin: from the sixth
// buffer on the translation offset 0x8000_0000 is added here, because the firmware does not add it. The full-ELF flow does without.
func FoldHostOffset(arg uint32, offset uint64) uint64 {
	if arg >= FirmwareBuffers {
		return offset + 0x8000_0000
	}
	return offset
}

// ReadRegsOp reads registers back.
func ReadRegsOp(addrs ...uint32) Op { return Op{Code: ReadRegs, Data: addrs} }

// LoadPDIOp loads a configuration image of size bytes at a device address.
func LoadPDIOp(id uint16, size uint32, addr uint64) Op {
	return Op{Code: LoadPDI, Arg: uint32(id), Value: size, Offset: addr}
}

// PreemptOp marks a preemption point. Levels: 0 none, 1 MemTile, 2 core tile, 3 core registers.
func PreemptOp(level uint8) Op { return Op{Code: Preempt, Level: level} }

// NoopOp does nothing.
func NoopOp() Op { return Op{Code: Noop} }

// Header describes the target of a stream. The counts of operations and bytes are computed when it is encoded.
type Header struct {
	Major, Minor uint8 // dialect: 0.1 or 1.0
	DevGen       uint8 // 3 npu1, 4 npu2
	Rows, Cols   uint8
	MemTileRows  uint8
}

// NewHeader is the header of dialect 0.1 for all columns of a device.
func NewHeader(d *device.Device) Header {
	return Header{Minor: 1, DevGen: d.Gen, Rows: uint8(d.Rows), Cols: uint8(d.Cols), MemTileRows: uint8(d.MemRows)}
}

// Optimised returns the header with dialect 1.0.
func (h Header) Optimised() Header {
	h.Major, h.Minor = 1, 0
	return h
}

// optimised reports whether the header's dialect is the optimised one.
func (h Header) optimised() (bool, error) {
	switch {
	case h.Major == 0 && h.Minor == 1:
		return false, nil
	case h.Major == 1 && h.Minor == 0:
		return true, nil
	}
	return false, fmt.Errorf("txn header: dialect %d.%d, want 0.1 or 1.0", h.Major, h.Minor)
}

// Stream is a header and operations in order. The Data of an operation may be reused by the generator: it is valid until the next one.
type Stream interface {
	Header() Header
	Ops() iter.Seq[Op]
}

// Program is a stream in memory.
type Program struct {
	Head Header
	List []Op
}

// Header implements [Stream].
func (p *Program) Header() Header { return p.Head }

// Ops implements [Stream].
func (p *Program) Ops() iter.Seq[Op] {
	return func(yield func(Op) bool) {
		for _, op := range p.List {
			if !yield(op) {
				return
			}
		}
	}
}

// Add appends operations.
func (p *Program) Add(ops ...Op) { p.List = append(p.List, ops...) }

// Collect keeps a stream in memory, with its own copies of all data.
func Collect(s Stream) *Program {
	p := &Program{Head: s.Header()}
	for op := range s.Ops() {
		if op.Data != nil {
			op.Data = append([]uint32(nil), op.Data...)
		}
		p.List = append(p.List, op)
	}
	return p
}
