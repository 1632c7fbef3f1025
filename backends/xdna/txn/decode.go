package txn

import (
	"encoding/binary"
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Decode reads a stream. The Data of the operations points into words.
//
// Vendor compilers leave garbage in unused bytes, so only byte 0 of an operation's first word counts as its code, the reader advances by
// size fields, and padding after a known operation is skipped. Sizes that cannot be are errors, and so is a header that disagrees with what follows it.
func Decode(words []uint32) (*Program, error) {
	r, err := NewReader(words)
	if err != nil {
		return nil, err
	}
	p := &Program{Head: r.Header}
	p.List = make([]Op, 0, min(r.Count, len(words)))
	for r.Next() {
		p.List = append(p.List, r.Op)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	return p, nil
}

// DecodeBytes reads a stream from little-endian bytes.
func DecodeBytes(raw []byte) (*Program, error) {
	words, err := Words(raw)
	if err != nil {
		return nil, err
	}
	return Decode(words)
}

// Words converts little-endian bytes.
func Words(raw []byte) ([]uint32, error) {
	if len(raw)%4 != 0 {
		return nil, fmt.Errorf("txn: %d bytes are not whole 32-bit words", len(raw))
	}
	words := make([]uint32, len(raw)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	return words, nil
}

// Reader steps through a stream without building it.
type Reader struct {
	Header Header
	Count  int // operations by the header
	Op     Op  // the current operation
	Pos    int // index of its first word
	Index  int // its number, from 0
	Err    error

	words     []uint32
	next      int
	optimised bool
}

// NewReader reads the header.
func NewReader(words []uint32) (*Reader, error) {
	if len(words) < HeaderWords {
		return nil, fmt.Errorf("txn header: stream of %d words is truncated, the header has %d", len(words), HeaderWords)
	}
	h := Header{
		Major: uint8(words[0]), Minor: uint8(words[0] >> 8), DevGen: uint8(words[0] >> 16), Rows: uint8(words[0] >> 24),
		Cols: uint8(words[1]), MemTileRows: uint8(words[1] >> 8),
	}
	opt, err := h.optimised()
	if err != nil {
		return nil, err
	}
	if have, want := int64(len(words))*4, int64(words[3]); have < want {
		return nil, fmt.Errorf("txn header: stream is truncated, %d bytes of %d", have, want)
	} else if have > want {
		return nil, fmt.Errorf("txn header: size field says %d bytes, the stream has %d", want, have)
	}
	return &Reader{Header: h, Count: int(words[2]), Index: -1, words: words, next: HeaderWords, optimised: opt}, nil
}

// Next reads the next operation into r.Op. It returns false at the end or at an error, which r.Err then holds.
func (r *Reader) Next() bool {
	if r.Err != nil {
		return false
	}
	if r.next == len(r.words) {
		if r.Index+1 != r.Count {
			r.Err = fmt.Errorf("txn header: count field says %d operations, the stream has %d", r.Count, r.Index+1)
		}
		return false
	}
	if r.Index+1 >= r.Count {
		r.Err = fmt.Errorf("txn header: count field says %d operations, %d words follow them", r.Count, len(r.words)-r.next)
		return false
	}
	r.Index++
	r.Pos = r.next
	n, err := r.decode(r.words[r.next:])
	if err != nil {
		r.Err = fmt.Errorf("op %d at word %d: %w", r.Index, r.Pos, err)
		return false
	}
	r.next += n
	return true
}

// decode fills r.Op from words and returns how many it used.
func (r *Reader) decode(words []uint32) (int, error) {
	op := &r.Op
	*op = Op{Code: Code(words[0])}
	if !known[op.Code] {
		if name, exists := unsupported[op.Code]; exists {
			return 0, fmt.Errorf("opcode %d (%s) is not supported: its layout is not public", uint8(op.Code), name)
		}
		return 0, fmt.Errorf("unknown opcode %#x", uint8(op.Code))
	}
	w := operation(words)
	switch op.Code {
	case Write, MaskWrite, MaskPoll, BlockWrite, DDRPatch:
		if r.optimised {
			return op.decodeShort(w)
		}
		return op.decodeLong(w)
	}
	return op.decodeOther(w)
}

// operation is the words from an operation's first on.
type operation []uint32

func (w operation) code() Code { return Code(w[0]) }

func (w operation) need(n int) error {
	if len(w) < n {
		return fmt.Errorf("%v is truncated: %d words of %d", w.code(), len(w), n)
	}
	return nil
}

// sized reads the size field in word i; the operation uses at least min words.
func (w operation) sized(i, min int) (int, error) {
	if err := w.need(i + 1); err != nil {
		return 0, err
	}
	size := w[i]
	if size%4 != 0 || size/4 < uint32(min) {
		return 0, fmt.Errorf("%v: size field %d, want a multiple of 4 of at least %d", w.code(), size, 4*min)
	}
	if uint64(size/4) > uint64(len(w)) {
		return 0, fmt.Errorf("%v: size field %d exceeds the %d bytes that are left", w.code(), size, 4*len(w))
	}
	return int(size / 4), nil
}

// flat checks the high word of a register's address.
func (w operation) flat(high uint32) error {
	if high != 0 {
		return fmt.Errorf("%v: register address above 32 bits (high word %#x)", w.code(), high)
	}
	return nil
}

// decodeOther decodes what is the same in both versions of the stream.
func (op *Op) decodeOther(w operation) (int, error) {
	switch op.Code {
	case Noop:
		return 1, nil
	case Preempt:
		op.Level = uint8(w[0] >> 8)
		return 1, nil
	case LoadPDI:
		if err := w.need(4); err != nil {
			return 0, err
		}
		op.Arg, op.Value, op.Offset = w[0]>>16, w[1], uint64(w[2])|uint64(w[3])<<32
		return 4, nil
	case Sync:
		n, err := w.sized(1, 4)
		if err != nil {
			return 0, err
		}
		if dir := w[2] & 0xFF; dir > uint32(device.MM2S) {
			return 0, fmt.Errorf("sync: direction %d, want 0 (S2MM) or 1 (MM2S)", dir)
		}
		op.Dir, op.Row, op.Col = device.Dir(w[2]&0xFF), uint8(w[2]>>8), uint8(w[2]>>16)
		op.NRows, op.NCols, op.Channel = uint8(w[3]>>8), uint8(w[3]>>16), uint8(w[3]>>24)
		if op.NCols == 0 || op.NRows == 0 {
			return 0, fmt.Errorf("sync: rectangle of %d x %d tiles is empty", op.NCols, op.NRows)
		}
		return n, nil
	case ReadRegs:
		n, err := w.sized(1, 4)
		if err != nil {
			return 0, err
		}
		if w[2] == 0 || uint64(w[2]) > uint64(n-3) {
			return 0, fmt.Errorf("read_regs: %d registers in a size of %d bytes", w[2], 4*n)
		}
		op.Data = w[3 : 3+w[2] : 3+w[2]]
		return n, nil
	case RecordTimer, MergeSync:
		n, err := w.sized(1, 2)
		if err != nil {
			return 0, err
		}
		if n > 2 {
			op.Data = w[2:n:n]
		}
		return n, nil
	}
	return 0, fmt.Errorf("unknown opcode %#x", uint8(op.Code))
}

// decodeShort decodes the operations on registers as the optimised version of the stream has them.
func (op *Op) decodeShort(w operation) (int, error) {
	switch op.Code {
	case Write:
		if err := w.need(3); err != nil {
			return 0, err
		}
		op.Addr, op.Value = w[1], w[2]
		return 3, nil
	case MaskWrite, MaskPoll:
		if err := w.need(4); err != nil {
			return 0, err
		}
		op.Addr, op.Value, op.Mask = w[1], w[2], w[3]
		return 4, nil
	case BlockWrite:
		n, err := w.sized(2, 3)
		if err != nil {
			return 0, err
		}
		op.Addr = w[1]
		if n > 3 {
			op.Data = w[3:n:n]
		}
		return n, nil
	case DDRPatch:
		n, err := w.sized(1, 6)
		if err != nil {
			return 0, err
		}
		op.Addr, op.Arg, op.Offset = w[2], w[3], uint64(w[4])
		return n, nil
	}
	return 0, fmt.Errorf("unknown opcode %#x", uint8(op.Code))
}

// decodeLong decodes them as the plain version has them, with the sizes of all and high words of addresses.
func (op *Op) decodeLong(w operation) (int, error) {
	switch op.Code {
	case Write:
		n, err := w.sized(5, 6)
		if err != nil {
			return 0, err
		}
		op.Addr, op.Value = w[2], w[4]
		return n, w.flat(w[3])
	case MaskWrite, MaskPoll:
		n, err := w.sized(6, 7)
		if err != nil {
			return 0, err
		}
		op.Addr, op.Value, op.Mask = w[2], w[4], w[5]
		return n, w.flat(w[3])
	case BlockWrite:
		n, err := w.sized(3, 4)
		if err != nil {
			return 0, err
		}
		op.Addr = w[2]
		if n > 4 {
			op.Data = w[4:n:n]
		}
		op.TileWord = true
		op.TileWord = w[1] != 0 && tileWord(op) == w[1]
		return n, nil
	case DDRPatch:
		n, err := w.sized(1, 12)
		if err != nil {
			return 0, err
		}
		op.Addr, op.Arg, op.Offset = w[6], w[8], uint64(w[10])|uint64(w[11])<<32
		if w[9] != 0 {
			return 0, fmt.Errorf("ddr_patch: buffer index above 32 bits (high word %#x)", w[9])
		}
		return n, w.flat(w[7])
	}
	return 0, fmt.Errorf("unknown opcode %#x", uint8(op.Code))
}
