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
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	bd := ShimBD{Valid: true, Burst: m.Burst, Cache: m.Cache, QoS: m.QoS, Packet: m.Packet}
	if err := m.setDims(&bd); err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	repeat, err := m.setIteration(&bd)
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	offset, err := m.offset()
	if err != nil {
		return nil, fmt.Errorf("transfer: %w", err)
	}
	if m.Prefill {
		bd.Addr = uint64(offset)
	}
	tile := device.Tile{Col: m.Col}
	t := &Transfer{
		Tile: tile, BD: bd, Arg: m.Arg, Offset: uint64(offset),
		BDAddr: tile.Addr(ti.BD(m.BD)), PatchAddr: tile.Addr(ti.BD(m.BD) + 4),
		CtrlAddr: tile.Addr(ti.Ctrl(m.Dir, m.Channel)), QueueAddr: tile.Addr(ti.Queue(m.Dir, m.Channel)),
		Task: Task{BD: m.BD, Repeat: repeat, Token: m.Token || m.Dir == device.S2MM},
	}
	if t.QueueWord, err = t.Task.Encode(ti); err != nil {
		return nil, err
	}
	_, err = bd.Encode()
	return t, err
}

// check looks at what does not depend on the form that the descriptor takes.
func (m *Memcpy) check() error {
	ti := m.Dev.Tile(device.Shim)
	if m.Col < 0 || m.Col >= m.Dev.Cols {
		return fmt.Errorf("column %d, %s has 0 to %d", m.Col, m.Dev.Name, m.Dev.Cols-1)
	}
	if m.Channel < 0 || m.Channel >= ti.Channels(m.Dir) {
		return fmt.Errorf("%v channel %d, a shim has 0 to %d", m.Dir, m.Channel, ti.Channels(m.Dir)-1)
	}
	if m.Burst == 3 && m.Dev.Gen < 4 {
		return fmt.Errorf("burst of 512 bytes, %s has 64 to 256", m.Dev.Name)
	}
	e := m.ElemBits
	if e != 8 && e != 16 && e != 32 && e != 64 {
		return fmt.Errorf("elements of %d bits, want 8, 16, 32 or 64", e)
	}
	for i, s := range m.Sizes {
		if s < 1 || s > math.MaxUint32 {
			return fmt.Errorf("size %d of dimension %d, want at least 1", s, 3-i)
		}
	}
	s0, t0 := m.Sizes[3], m.Strides[3]
	if s0 > 1 && t0 < 1 {
		return fmt.Errorf("innermost stride %d, want at least 1", t0)
	}
	if e != 32 && s0 > 1 && t0 != 1 {
		return fmt.Errorf("innermost stride %d of %d-bit elements, want 1: the DMA moves 32-bit words", t0, e)
	}
	if s0*int64(e)%32 != 0 {
		return fmt.Errorf("innermost size of %d x %d bits is not a whole number of 32-bit words", s0, e)
	}
	return nil
}

// setDims gives the descriptor its length and, unless the transfer is linear, the wraps and steps of the three inner dimensions.
func (m *Memcpy) setDims(bd *ShimBD) error {
	s2, s1, s0 := m.Sizes[1], m.Sizes[2], m.Sizes[3]
	t2, t1, t0 := m.Strides[1], m.Strides[2], m.Strides[3]
	w0 := s0 * int64(m.ElemBits) / 32
	length := w0
	for _, s := range []int64{s1, s2} {
		if length > math.MaxUint32/s {
			return fmt.Errorf("length of %d x %d x %d words does not fit 32 bits", w0, s1, s2)
		}
		length *= s
	}
	bd.Length = uint32(length)
	if (s0 == 1 || t0 == 1) && (s1 == 1 || t1 == s0) && (s2 == 1 || t2 == s0*s1) {
		return nil
	}
	most := int64(1)<<m.Dev.Tile(device.Shim).Bits.Wrap - 1
	if w0 > most {
		return &FieldError{shimName, "D0 wrap", w0, 0, most}
	}
	if s1 > most {
		return &FieldError{shimName, "D1 wrap", s1, 0, most}
	}
	bd.D0Wrap, bd.D1Wrap = uint32(w0), uint32(s1)
	for _, d := range []struct {
		name    string
		size, t int64
		to      *uint32
	}{{"D0", s0, t0, &bd.D0Step}, {"D1", s1, t1, &bd.D1Step}, {"D2", s2, t2, &bd.D2Step}} {
		if d.size == 1 || d.to == &bd.D0Step && m.ElemBits != 32 { // elements of other sizes are contiguous
			continue
		}
		var err error
		if *d.to, err = m.step(d.name, d.t); err != nil {
			return err
		}
	}
	return nil
}

// step turns a stride into words, as the descriptor stores them.
func (m *Memcpy) step(name string, stride int64) (uint32, error) {
	if stride < 1 || stride > math.MaxInt64/64 {
		return 0, fmt.Errorf("%s stride %d elements, want at least 1", name, stride)
	}
	e := int64(m.ElemBits)
	if stride*e%32 != 0 {
		return 0, fmt.Errorf("%s stride of %d x %d bits is not a whole number of 32-bit words", name, stride, e)
	}
	v, most := stride*e/32-1, int64(1)<<m.Dev.Tile(device.Shim).Bits.Step
	if v >= most {
		return 0, &FieldError{shimName, name + " step", v + 1, 1, most}
	}
	return uint32(v), nil
}

// setIteration gives the descriptor its iteration, from the outermost dimension or as asked for, and returns how often the task runs.
func (m *Memcpy) setIteration(bd *ShimBD) (repeat int, err error) {
	ti := m.Dev.Tile(device.Shim)
	s3, t3 := m.Sizes[0], m.Strides[0]
	name, size, stride := "iteration wrap", s3, t3
	switch {
	case m.IterSize > 0 && s3 != 1:
		return 0, fmt.Errorf("an explicit iteration needs an outermost size of 1, not %d", s3)
	case m.IterSize > 0:
		name, size, stride = "iteration size", m.IterSize, m.IterStride
	}
	if m.IterSize > 0 || s3 > 1 && t3 != 0 {
		if most := int64(1) << ti.Bits.IterWrap; size > most {
			return 0, &FieldError{shimName, name, size, 1, most}
		}
		bd.IterWrap = uint32(size - 1)
		if bd.IterStep, err = m.step("iteration", stride); err != nil {
			return 0, err
		}
	}
	times := s3
	if m.RepeatCount > 0 {
		if s3 != 1 {
			return 0, fmt.Errorf("a repeat count needs an outermost size of 1, not %d", s3)
		}
		times = int64(m.RepeatCount) + 1
	}
	if times > int64(ti.MaxRepeat) {
		return 0, &FieldError{"task", "repeat", times, 1, int64(ti.MaxRepeat)}
	}
	return int(times), nil
}

// offset is where the transfer begins in its buffer, in bytes.
func (m *Memcpy) offset() (int64, error) {
	offset := m.ViewByte
	for i, o := range m.Offsets {
		bits := o * m.Strides[i] * int64(m.ElemBits)
		if bits%8 != 0 {
			return 0, fmt.Errorf("offset %d of dimension %d is not a whole number of bytes", o, 3-i)
		}
		offset += bits / 8
	}
	if offset < 0 || offset%4 != 0 {
		return 0, fmt.Errorf("byte offset %d, want a multiple of 4 from 0", offset)
	}
	return offset, nil
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
