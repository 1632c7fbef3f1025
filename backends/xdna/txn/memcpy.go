package txn

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Memcpy is an n-dimensional transfer between a host buffer and a shim's stream, in elements: what compilers call dma_memcpy_nd.
// The four dimensions stand outermost first. The outermost one becomes repeated runs of the descriptor.
type Memcpy struct {
	Dev      *device.Device
	Col      int
	Dir      device.Dir
	Channel  int
	BD       int
	ElemBits int // 8, 16, 32 or 64
	Offsets  [4]int64
	Sizes    [4]int64
	Strides  [4]int64
	ViewByte int64 // static byte offset of the view in the buffer
	Arg      uint32
	Token    bool // an S2MM transfer always asks for its token

	// IterSize and IterStride, if IterSize is above 0, set the descriptor's iteration without repeating the task: each later push advances.
	IterSize, IterStride int64
	// RepeatCount adds runs of the task without touching the iteration; 0 means what Sizes say.
	RepeatCount int

	Burst, Cache, QoS uint8
	Packet            PacketUse
	// Prefill leaves the byte offset in the descriptor's address words, as some compilers do, before the patch replaces it.
	Prefill bool
}

// Transfer is a lowered Memcpy: the descriptor, where it goes, the patch and the queue entry.
type Transfer struct {
	Tile      device.Tile
	BD        ShimBD
	BDAddr    uint32
	PatchAddr uint32
	Arg       uint32
	Offset    uint64
	CtrlAddr  uint32
	QueueAddr uint32
	Task      Task
	QueueWord uint32
}

// Lower applies the rules by which compilers turn an n-dimensional transfer into a shim descriptor, and checks the limits of every field.
func (m *Memcpy) Lower() (*Transfer, error) {
	ti := m.Dev.Tile(device.Shim)
	bad := func(format string, args ...any) (*Transfer, error) {
		return nil, fmt.Errorf("transfer: "+format, args...)
	}
	if m.Col < 0 || m.Col >= m.Dev.Cols {
		return bad("column %d, %s has 0 to %d", m.Col, m.Dev.Name, m.Dev.Cols-1)
	}
	if m.Channel < 0 || m.Channel >= ti.Channels(m.Dir) {
		return bad("%v channel %d, a shim has 0 to %d", m.Dir, m.Channel, ti.Channels(m.Dir)-1)
	}
	if m.Burst == 3 && m.Dev.Gen < 4 {
		return bad("burst of 512 bytes, %s has 64 to 256", m.Dev.Name)
	}
	e := int64(m.ElemBits)
	if e != 8 && e != 16 && e != 32 && e != 64 {
		return bad("elements of %d bits, want 8, 16, 32 or 64", m.ElemBits)
	}
	s3, s2, s1, s0 := m.Sizes[0], m.Sizes[1], m.Sizes[2], m.Sizes[3]
	t3, t2, t1, t0 := m.Strides[0], m.Strides[1], m.Strides[2], m.Strides[3]
	for i, s := range m.Sizes {
		if s < 1 || s > math.MaxUint32 {
			return bad("size %d of dimension %d, want at least 1", s, 3-i)
		}
	}
	if s0 > 1 && t0 < 1 {
		return bad("innermost stride %d, want at least 1", t0)
	}
	if e != 32 && s0 > 1 && t0 != 1 {
		return bad("innermost stride %d of %d-bit elements, want 1: the DMA moves 32-bit words", t0, e)
	}
	if s0*e%32 != 0 {
		return bad("innermost size of %d x %d bits is not a whole number of 32-bit words", s0, e)
	}
	// words converts a stride to words and to its stored field.
	step := func(name string, stride int64) (uint32, error) {
		if stride < 1 || stride > math.MaxInt64/64 {
			return 0, fmt.Errorf("transfer: %s stride %d elements, want at least 1", name, stride)
		}
		if stride*e%32 != 0 {
			return 0, fmt.Errorf("transfer: %s stride of %d x %d bits is not a whole number of 32-bit words", name, stride, e)
		}
		v := stride*e/32 - 1
		if v >= 1<<ti.Bits.Step {
			return 0, fmt.Errorf("transfer: %w", &FieldError{shimName, name + " step", v + 1, 1, 1 << ti.Bits.Step})
		}
		return uint32(v), nil
	}
	var err error
	bd := ShimBD{Valid: true, Burst: m.Burst, Cache: m.Cache, QoS: m.QoS, Packet: m.Packet}
	w0 := s0 * e / 32
	length := w0
	for _, s := range []int64{s1, s2} {
		if length > math.MaxUint32/s {
			return bad("length of %d x %d x %d words does not fit 32 bits", w0, s1, s2)
		}
		length *= s
	}
	bd.Length = uint32(length)
	linear := (s0 == 1 || t0 == 1) && (s1 == 1 || t1 == s0) && (s2 == 1 || t2 == s0*s1)
	if !linear {
		if w0 > 1<<ti.Bits.Wrap-1 {
			return bad("%w", &FieldError{shimName, "D0 wrap", w0, 0, 1<<ti.Bits.Wrap - 1})
		}
		if s1 > 1<<ti.Bits.Wrap-1 {
			return bad("%w", &FieldError{shimName, "D1 wrap", s1, 0, 1<<ti.Bits.Wrap - 1})
		}
		bd.D0Wrap, bd.D1Wrap = uint32(w0), uint32(s1)
		if e == 32 && s0 > 1 {
			if bd.D0Step, err = step("D0", t0); err != nil {
				return nil, err
			}
		}
		if s1 > 1 {
			if bd.D1Step, err = step("D1", t1); err != nil {
				return nil, err
			}
		}
		if s2 > 1 {
			if bd.D2Step, err = step("D2", t2); err != nil {
				return nil, err
			}
		}
	}
	repeat := s3
	iter := func(name string, size, stride int64) error {
		if size > 1<<ti.Bits.IterWrap {
			return fmt.Errorf("transfer: %w", &FieldError{shimName, name, size, 1, 1 << ti.Bits.IterWrap})
		}
		bd.IterWrap = uint32(size - 1)
		bd.IterStep, err = step("iteration", stride)
		return err
	}
	switch {
	case m.IterSize > 0:
		if s3 != 1 {
			return bad("an explicit iteration needs an outermost size of 1, not %d", s3)
		}
		if err := iter("iteration size", m.IterSize, m.IterStride); err != nil {
			return nil, err
		}
	case s3 > 1 && t3 != 0:
		if err := iter("iteration wrap", s3, t3); err != nil {
			return nil, err
		}
	}
	if m.RepeatCount > 0 {
		if s3 != 1 {
			return bad("a repeat count needs an outermost size of 1, not %d", s3)
		}
		repeat = int64(m.RepeatCount) + 1
	}
	if repeat > int64(ti.MaxRepeat) {
		return bad("%w", &FieldError{"task", "repeat", repeat, 1, int64(ti.MaxRepeat)})
	}
	offset := m.ViewByte
	for i, o := range m.Offsets {
		bits := o * m.Strides[i] * e
		if bits%8 != 0 {
			return bad("offset %d of dimension %d is not a whole number of bytes", o, 3-i)
		}
		offset += bits / 8
	}
	if offset < 0 || offset%4 != 0 {
		return bad("byte offset %d, want a multiple of 4 from 0", offset)
	}
	if m.Prefill {
		bd.Addr = uint64(offset)
	}
	tile := device.Tile{Col: m.Col}
	t := &Transfer{
		Tile: tile, BD: bd, Arg: m.Arg, Offset: uint64(offset),
		BDAddr: tile.Addr(ti.BD(m.BD)), PatchAddr: tile.Addr(ti.BD(m.BD) + 4),
		CtrlAddr: tile.Addr(ti.Ctrl(m.Dir, m.Channel)), QueueAddr: tile.Addr(ti.Queue(m.Dir, m.Channel)),
		Task: Task{BD: m.BD, Repeat: int(repeat), Token: m.Token || m.Dir == device.S2MM},
	}
	if t.QueueWord, err = t.Task.Encode(ti); err != nil {
		return nil, err
	}
	_, err = bd.Encode()
	return t, err
}

// controllerMask covers the controller id in a channel's control register; the id that compilers use is 15.
const controllerMask = 0xF00

// Ops are the operations that start the transfer: the descriptor, its address, the controller that gets the token, the queue entry.
func (t *Transfer) Ops() ([]Op, error) {
	words, err := t.BD.Encode()
	if err != nil {
		return nil, err
	}
	ops := []Op{BlockWriteOp(t.BDAddr, words[:]...), DDRPatchOp(t.PatchAddr, t.Arg, t.Offset)}
	if t.Task.Token {
		ops = append(ops, MaskWriteOp(t.CtrlAddr, controllerMask, controllerMask))
	}
	return append(ops, WriteOp(t.QueueAddr, t.QueueWord)), nil
}
