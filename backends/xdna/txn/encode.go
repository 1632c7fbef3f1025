package txn

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// HeaderWords is the length of a stream's header.
const HeaderWords = 4

// Encode writes a stream as words.
func Encode(s Stream) ([]uint32, error) {
	opt, err := s.Header().optimised()
	if err != nil {
		return nil, err
	}
	words := make([]uint32, HeaderWords)
	n := 0
	for op := range s.Ops() {
		if words, err = appendOp(words, &op, opt); err != nil {
			return nil, fmt.Errorf("op %d: %w", n, err)
		}
		n++
	}
	return words, putHeader(words, s.Header(), n, int64(len(words))*4)
}

// EncodeBytes writes a stream as little-endian bytes.
func EncodeBytes(s Stream) ([]byte, error) {
	words, err := Encode(s)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, 4*len(words))
	for i, w := range words {
		binary.LittleEndian.PutUint32(raw[4*i:], w)
	}
	return raw, nil
}

// WriteTo writes a stream to w without holding it: the generator runs twice, because the header states the size.
// It returns the number of bytes written.
func WriteTo(w io.Writer, s Stream) (int64, error) {
	st, err := Measure(s)
	if err != nil {
		return 0, err
	}
	var buf []uint32
	var raw []byte
	written := int64(0)
	flush := func() error {
		raw = raw[:0]
		for _, v := range buf {
			raw = binary.LittleEndian.AppendUint32(raw, v)
		}
		buf = buf[:0]
		n, err := w.Write(raw)
		written += int64(n)
		return err
	}
	buf = make([]uint32, HeaderWords)
	if err := putHeader(buf, s.Header(), st.Ops, st.Bytes); err != nil {
		return 0, err
	}
	opt, _ := s.Header().optimised()
	for op := range s.Ops() {
		if buf, err = appendOp(buf, &op, opt); err != nil {
			return written, err
		}
		if len(buf) >= 8192 {
			if err := flush(); err != nil {
				return written, err
			}
		}
	}
	if err := flush(); err != nil {
		return written, err
	}
	if written != st.Bytes {
		return written, fmt.Errorf("txn: the generator's second run gave %d bytes, its first %d", written, st.Bytes)
	}
	return written, nil
}

// Stats is the size of an encoded stream.
type Stats struct {
	Ops   int
	Bytes int64 // with the header
}

// Measure counts a stream's operations and bytes and validates every field.
func Measure(s Stream) (Stats, error) {
	opt, err := s.Header().optimised()
	if err != nil {
		return Stats{}, err
	}
	var scratch []uint32
	st := Stats{Bytes: 4 * HeaderWords}
	for op := range s.Ops() {
		if scratch, err = appendOp(scratch[:0], &op, opt); err != nil {
			return Stats{}, fmt.Errorf("op %d: %w", st.Ops, err)
		}
		st.Ops++
		st.Bytes += int64(4 * len(scratch))
	}
	return st, nil
}

func putHeader(words []uint32, h Header, ops int, size int64) error {
	if size > math.MaxUint32 {
		return fmt.Errorf("txn header: stream of %d bytes, the size field holds 32 bits", size)
	}
	words[0] = uint32(h.Rows)<<24 | uint32(h.DevGen)<<16 | uint32(h.Minor)<<8 | uint32(h.Major)
	words[1] = uint32(h.MemTileRows)<<8 | uint32(h.Cols)
	words[2] = uint32(ops)
	words[3] = uint32(size)
	return nil
}

// maxData bounds the words of one block write so that its size field holds; the largest real one is a 16 KB program memory.
const maxData = math.MaxUint32/4 - 64

func appendOp(w []uint32, op *Op, optimised bool) ([]uint32, error) {
	if len(op.Data) > maxData {
		return w, fmt.Errorf("%v: %d data words do not fit the size field", op.Code, len(op.Data))
	}
	code := uint32(op.Code)
	switch op.Code {
	case Write:
		if optimised {
			return append(w, code, op.Addr, op.Value), nil
		}
		return append(w, code, 0, op.Addr, 0, op.Value, 24), nil
	case MaskWrite, MaskPoll:
		if optimised {
			return append(w, code, op.Addr, op.Value, op.Mask), nil
		}
		return append(w, code, 0, op.Addr, 0, op.Value, op.Mask, 28), nil
	case BlockWrite:
		n := uint32(len(op.Data))
		if optimised {
			w = append(w, code, op.Addr, 12+4*n)
		} else {
			w = append(w, code, tileWord(op), op.Addr, 16+4*n)
		}
		return append(w, op.Data...), nil
	case Sync:
		if op.Dir > device.MM2S {
			return w, fmt.Errorf("sync: direction %d, want 0 (S2MM) or 1 (MM2S)", op.Dir)
		}
		if op.NCols == 0 || op.NRows == 0 {
			return w, fmt.Errorf("sync: rectangle of %d x %d tiles is empty", op.NCols, op.NRows)
		}
		return append(w, code, 16,
			uint32(op.Dir)|uint32(op.Row)<<8|uint32(op.Col)<<16,
			uint32(op.NRows)<<8|uint32(op.NCols)<<16|uint32(op.Channel)<<24), nil
	case DDRPatch:
		if optimised {
			if op.Offset > math.MaxUint32 {
				return w, fmt.Errorf("ddr_patch: offset %#x does not fit the 32 bits of dialect 1.0", op.Offset)
			}
			return append(w, code, 24, op.Addr, op.Arg, uint32(op.Offset), 0), nil
		}
		return append(w, code, 48, 0, 0, 0, 0, op.Addr, 0, op.Arg, 0, uint32(op.Offset), uint32(op.Offset>>32)), nil
	case ReadRegs:
		if len(op.Data) == 0 {
			return w, fmt.Errorf("read_regs: no register")
		}
		w = append(w, code, 12+4*uint32(len(op.Data)), uint32(len(op.Data)))
		return append(w, op.Data...), nil
	case RecordTimer, MergeSync:
		w = append(w, code, 8+4*uint32(len(op.Data)))
		return append(w, op.Data...), nil
	case LoadPDI:
		if op.Arg > 0xFFFF {
			return w, fmt.Errorf("load_pdi: id %d does not fit 16 bits", op.Arg)
		}
		return append(w, code|op.Arg<<16, op.Value, uint32(op.Offset), uint32(op.Offset>>32)), nil
	case Preempt:
		return append(w, code|uint32(op.Level)<<8), nil
	case Noop:
		return append(w, code), nil
	}
	return w, fmt.Errorf("no encoding of operation %v", op.Code)
}

func tileWord(op *Op) uint32 {
	if !op.TileWord {
		return 0
	}
	t, _ := device.SplitAddr(op.Addr)
	return uint32(t.Col) | uint32(t.Row)<<8
}

// ViaWords reads a stream through its encoding: every operation is encoded and the words decoded again, one at a time, so that a reader sees what an
// executor of the words would see. The number of words, with the header's, is added to *words if words is not nil. The sequence ends at the first error.
func ViaWords(s Stream, words *int64) iter.Seq2[Op, error] {
	return func(yield func(Op, error) bool) {
		opt, err := s.Header().optimised()
		if err != nil {
			yield(Op{}, err)
			return
		}
		if words != nil {
			*words += HeaderWords
		}
		r := Reader{Header: s.Header(), optimised: opt}
		var buf []uint32
		for op := range s.Ops() {
			if buf, err = appendOp(buf[:0], &op, opt); err != nil {
				yield(op, err)
				return
			}
			n, err := r.decode(buf)
			if err == nil && n != len(buf) {
				err = fmt.Errorf("%v: %d words encoded, %d decoded", op.Code, len(buf), n)
			}
			if words != nil {
				*words += int64(n)
			}
			if !yield(r.Op, err) || err != nil {
				return
			}
		}
	}
}
