package txn

import (
	"fmt"

	"github.com/tessera-go/tessera/backends/xdna/device"
)

// Descriptor structs hold register fields as the hardware does: steps, iteration wraps and iteration steps minus 1, addresses and lengths in 32-bit
// words (a shim's address in bytes), wrap 0 = the dimension takes everything that is left. SetDims, SetIteration and Pattern translate to and
// from true sizes and steps.

// Dim is one addressing dimension in true values: Size positions, Step words apart. Size 0 takes all that is left of the length.
type Dim struct{ Size, Step int }

// LockUse is the part of a descriptor that synchronizes it. An acquire value below 0 waits until the lock holds at least its magnitude and subtracts
// it; from 0 up it waits for exactly that value. The release value is added afterwards; 0 releases nothing.
type LockUse struct {
	AcqEnable bool
	AcqID     uint8
	AcqValue  int8 // -64 to 63
	RelID     uint8
	RelValue  int8 // -64 to 63
}

// AcquireRelease takes acq units of lock a and gives rel units to lock r.
func AcquireRelease(a uint8, acq int, r uint8, rel int) LockUse {
	return LockUse{AcqEnable: true, AcqID: a, AcqValue: int8(-acq), RelID: r, RelValue: int8(rel)}
}

// PacketUse is the packet header that a descriptor may put before its data.
type PacketUse struct {
	Enable   bool
	Type, ID uint8
	OOO      uint8 // descriptor to use at an out-of-order receiver
}

// ShimBD is a descriptor of a shim tile.
type ShimBD struct {
	Length                          uint32
	Addr                            uint64 // bytes, a multiple of 4 below 2^48
	Packet                          PacketUse
	Secure                          bool
	D0Wrap, D0Step                  uint32
	D1Wrap, D1Step                  uint32
	D2Step                          uint32
	Burst                           uint8 // 0: 64 bytes, 1: 128, 2: 256, 3: 512 (XDNA2)
	SMID, Cache, QoS                uint8
	IterCurrent, IterWrap, IterStep uint32
	TLASTSuppress                   bool
	NextBD                          uint8
	UseNext, Valid                  bool
	Lock                            LockUse
}

// MemBD is a descriptor of a MemTile.
type MemBD struct {
	Length                          uint32 // with the padding
	Base                            uint32 // word address in the window of three tiles; the own memory starts at word 0x20000
	Packet                          PacketUse
	D0Wrap, D0Step                  uint32
	D1Wrap, D1Step                  uint32
	D2Wrap, D2Step                  uint32
	D3Step                          uint32
	Before, After                   [3]uint8 // zero padding of D0 (words), D1 (rows of D0) and D2 (blocks of D1), MM2S only
	Compression                     bool
	IterCurrent, IterWrap, IterStep uint32
	TLASTSuppress                   bool
	NextBD                          uint8
	UseNext, Valid                  bool
	Lock                            LockUse // ids count from the west neighbour: own locks are 64 to 127
}

// CoreBD is a descriptor of a core tile.
type CoreBD struct {
	Length                          uint32
	Base                            uint32 // word address
	Compression                     bool
	Packet                          PacketUse
	D0Wrap, D0Step                  uint32
	D1Wrap, D1Step                  uint32
	D2Step                          uint32
	IterCurrent, IterWrap, IterStep uint32
	TLASTSuppress                   bool
	NextBD                          uint8
	UseNext, Valid                  bool
	Lock                            LockUse
}

// FieldError says that a value does not fit the bits of its field.
type FieldError struct {
	What     string // descriptor or word
	Field    string
	Value    int64
	Min, Max int64
}

// Error implements error.
func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %s %d does not fit, want %d to %d", e.What, e.Field, e.Value, e.Min, e.Max)
}

// packer gathers fields into words and remembers the first that does not fit.
type packer struct {
	what string
	err  error
}

func (p *packer) bad(field string, v, lo, hi int64) {
	if p.err == nil {
		p.err = &FieldError{p.what, field, v, lo, hi}
	}
}

// u packs an unsigned field of the given width at bit lo.
func (p *packer) u(field string, v uint32, lo, width uint) uint32 {
	if width < 32 && v>>width != 0 {
		p.bad(field, int64(v), 0, 1<<width-1)
		return 0
	}
	return v << lo
}

// s packs a signed 7-bit field (lock values).
func (p *packer) s(field string, v int8, lo uint) uint32 {
	if v < -64 || v > 63 {
		p.bad(field, int64(v), -64, 63)
		return 0
	}
	return uint32(v) & 0x7F << lo
}

func b(v bool, bit uint) uint32 {
	if v {
		return 1 << bit
	}
	return 0
}

// get reads an unsigned field.
func get(w uint32, lo, width uint) uint32 { return w >> lo & (1<<width - 1) }

// gets reads a signed 7-bit field.
func gets(w uint32, lo uint) int8 { return int8(w>>lo&0x7F<<1) >> 1 }

// reserved refuses bits that no field covers, so that decoding loses nothing.
func reserved(what string, w []uint32, masks []uint32) error {
	for i, m := range masks {
		if w[i]&m != 0 {
			return fmt.Errorf("%s: reserved bits %#x set in word %d", what, w[i]&m, i)
		}
	}
	return nil
}

func wordCount(what string, w []uint32, want int) error {
	if len(w) != want {
		return fmt.Errorf("%s: %d words, want %d", what, len(w), want)
	}
	return nil
}

const (
	shimName = "shim BD"
	memName  = "MemTile BD"
	coreName = "core BD"
)

// tail packs the word that shim and core descriptors share.
func (p *packer) tail(tlast bool, next uint8, use, valid bool, l *LockUse) uint32 {
	return b(tlast, 31) | p.u("next BD", uint32(next), 27, 4) | b(use, 26) | b(valid, 25) |
		p.s("lock release value", l.RelValue, 18) | p.u("lock release id", uint32(l.RelID), 13, 4) |
		b(l.AcqEnable, 12) | p.s("lock acquire value", l.AcqValue, 5) | p.u("lock acquire id", uint32(l.AcqID), 0, 4)
}

func untail(w uint32) (tlast bool, next uint8, use, valid bool, l LockUse) {
	l = LockUse{
		AcqEnable: w>>12&1 != 0, AcqID: uint8(get(w, 0, 4)), AcqValue: gets(w, 5),
		RelID: uint8(get(w, 13, 4)), RelValue: gets(w, 18),
	}
	return w>>31 != 0, uint8(get(w, 27, 4)), w>>26&1 != 0, w>>25&1 != 0, l
}

// Encode gives the descriptor's 8 words.
func (d *ShimBD) Encode() ([8]uint32, error) {
	p := packer{what: shimName}
	if d.Addr%4 != 0 || d.Addr>>48 != 0 {
		return [8]uint32{}, fmt.Errorf("%s: address %#x, want a multiple of 4 below 2^48", shimName, d.Addr)
	}
	w := [8]uint32{
		d.Length,
		uint32(d.Addr),
		b(d.Packet.Enable, 30) | p.u("out-of-order id", uint32(d.Packet.OOO), 24, 6) | p.u("packet id", uint32(d.Packet.ID), 19, 5) |
			p.u("packet type", uint32(d.Packet.Type), 16, 3) | uint32(d.Addr>>32),
		b(d.Secure, 30) | p.u("D0 wrap", d.D0Wrap, 20, 10) | p.u("D0 step", d.D0Step, 0, 20),
		p.u("burst", uint32(d.Burst), 30, 2) | p.u("D1 wrap", d.D1Wrap, 20, 10) | p.u("D1 step", d.D1Step, 0, 20),
		p.u("SMID", uint32(d.SMID), 28, 4) | p.u("AxCache", uint32(d.Cache), 24, 4) | p.u("AxQoS", uint32(d.QoS), 20, 4) |
			p.u("D2 step", d.D2Step, 0, 20),
		p.u("iteration current", d.IterCurrent, 26, 6) | p.u("iteration wrap", d.IterWrap, 20, 6) | p.u("iteration step", d.IterStep, 0, 20),
		p.tail(d.TLASTSuppress, d.NextBD, d.UseNext, d.Valid, &d.Lock),
	}
	return w, p.err
}

// DecodeShimBD reads 8 words.
func DecodeShimBD(w []uint32) (ShimBD, error) {
	if err := wordCount(shimName, w, 8); err != nil {
		return ShimBD{}, err
	}
	if err := reserved(shimName, w, []uint32{0, 3, 1 << 31, 1 << 31, 0, 0, 0, 1<<17 | 1<<4}); err != nil {
		return ShimBD{}, err
	}
	d := ShimBD{
		Length: w[0],
		Addr:   uint64(w[1]) | uint64(w[2]&0xFFFF)<<32,
		Packet: PacketUse{w[2]>>30&1 != 0, uint8(get(w[2], 16, 3)), uint8(get(w[2], 19, 5)), uint8(get(w[2], 24, 6))},
		Secure: w[3]>>30&1 != 0, D0Wrap: get(w[3], 20, 10), D0Step: get(w[3], 0, 20),
		Burst: uint8(get(w[4], 30, 2)), D1Wrap: get(w[4], 20, 10), D1Step: get(w[4], 0, 20),
		SMID: uint8(get(w[5], 28, 4)), Cache: uint8(get(w[5], 24, 4)), QoS: uint8(get(w[5], 20, 4)), D2Step: get(w[5], 0, 20),
		IterCurrent: get(w[6], 26, 6), IterWrap: get(w[6], 20, 6), IterStep: get(w[6], 0, 20),
	}
	d.TLASTSuppress, d.NextBD, d.UseNext, d.Valid, d.Lock = untail(w[7])
	return d, nil
}

// Encode gives the descriptor's 8 words.
func (d *MemBD) Encode() ([8]uint32, error) {
	p := packer{what: memName}
	l := &d.Lock
	w := [8]uint32{
		b(d.Packet.Enable, 31) | p.u("packet type", uint32(d.Packet.Type), 28, 3) | p.u("packet id", uint32(d.Packet.ID), 23, 5) |
			p.u("out-of-order id", uint32(d.Packet.OOO), 17, 6) | p.u("length", d.Length, 0, 17),
		p.u("D0 zero-before", uint32(d.Before[0]), 26, 6) | p.u("next BD", uint32(d.NextBD), 20, 6) | b(d.UseNext, 19) | p.u("base address", d.Base, 0, 19),
		b(d.TLASTSuppress, 31) | p.u("D0 wrap", d.D0Wrap, 17, 10) | p.u("D0 step", d.D0Step, 0, 17),
		p.u("D1 zero-before", uint32(d.Before[1]), 27, 5) | p.u("D1 wrap", d.D1Wrap, 17, 10) | p.u("D1 step", d.D1Step, 0, 17),
		b(d.Compression, 31) | p.u("D2 zero-before", uint32(d.Before[2]), 27, 4) | p.u("D2 wrap", d.D2Wrap, 17, 10) | p.u("D2 step", d.D2Step, 0, 17),
		p.u("D2 zero-after", uint32(d.After[2]), 28, 4) | p.u("D1 zero-after", uint32(d.After[1]), 23, 5) |
			p.u("D0 zero-after", uint32(d.After[0]), 17, 6) | p.u("D3 step", d.D3Step, 0, 17),
		p.u("iteration current", d.IterCurrent, 23, 6) | p.u("iteration wrap", d.IterWrap, 17, 6) | p.u("iteration step", d.IterStep, 0, 17),
		b(d.Valid, 31) | p.s("lock release value", l.RelValue, 24) | p.u("lock release id", uint32(l.RelID), 16, 8) |
			b(l.AcqEnable, 15) | p.s("lock acquire value", l.AcqValue, 8) | p.u("lock acquire id", uint32(l.AcqID), 0, 8),
	}
	if p.err != nil {
		return w, p.err
	}
	wraps, open := [3]uint32{d.D0Wrap, d.D1Wrap, d.D2Wrap}, false
	for i, wrap := range wraps {
		if open && d.Before[i]|d.After[i] != 0 {
			return w, fmt.Errorf("%s: D%d is padded but a dimension below has wrap 0", memName, i)
		}
		if wrap == 0 {
			open = true
			if d.After[i] != 0 {
				return w, fmt.Errorf("%s: D%d zero-after %d needs a wrap other than 0", memName, i, d.After[i])
			}
		}
	}
	return w, nil
}

// DecodeMemBD reads 8 words.
func DecodeMemBD(w []uint32) (MemBD, error) {
	if err := wordCount(memName, w, 8); err != nil {
		return MemBD{}, err
	}
	if err := reserved(memName, w, []uint32{0, 0, 0xF << 27, 0, 0, 0, 0x7 << 29, 0}); err != nil {
		return MemBD{}, err
	}
	d := MemBD{
		Length: get(w[0], 0, 17),
		Packet: PacketUse{w[0]>>31 != 0, uint8(get(w[0], 28, 3)), uint8(get(w[0], 23, 5)), uint8(get(w[0], 17, 6))},
		Base:   get(w[1], 0, 19), UseNext: w[1]>>19&1 != 0, NextBD: uint8(get(w[1], 20, 6)),
		TLASTSuppress: w[2]>>31 != 0, D0Wrap: get(w[2], 17, 10), D0Step: get(w[2], 0, 17),
		D1Wrap: get(w[3], 17, 10), D1Step: get(w[3], 0, 17),
		Compression: w[4]>>31 != 0, D2Wrap: get(w[4], 17, 10), D2Step: get(w[4], 0, 17),
		D3Step: get(w[5], 0, 17),
		Before: [3]uint8{uint8(get(w[1], 26, 6)), uint8(get(w[3], 27, 5)), uint8(get(w[4], 27, 4))},
		After:  [3]uint8{uint8(get(w[5], 17, 6)), uint8(get(w[5], 23, 5)), uint8(get(w[5], 28, 4))},

		IterCurrent: get(w[6], 23, 6), IterWrap: get(w[6], 17, 6), IterStep: get(w[6], 0, 17),
		Valid: w[7]>>31 != 0,
		Lock: LockUse{
			AcqEnable: w[7]>>15&1 != 0, AcqID: uint8(get(w[7], 0, 8)), AcqValue: gets(w[7], 8),
			RelID: uint8(get(w[7], 16, 8)), RelValue: gets(w[7], 24),
		},
	}
	if _, err := d.Encode(); err != nil {
		return MemBD{}, err
	}
	return d, nil
}

// Encode gives the descriptor's 6 words.
func (d *CoreBD) Encode() ([6]uint32, error) {
	p := packer{what: coreName}
	w := [6]uint32{
		p.u("base address", d.Base, 14, 14) | p.u("length", d.Length, 0, 14),
		b(d.Compression, 31) | b(d.Packet.Enable, 30) | p.u("out-of-order id", uint32(d.Packet.OOO), 24, 6) |
			p.u("packet id", uint32(d.Packet.ID), 19, 5) | p.u("packet type", uint32(d.Packet.Type), 16, 3),
		p.u("D1 step", d.D1Step, 13, 13) | p.u("D0 step", d.D0Step, 0, 13),
		p.u("D1 wrap", d.D1Wrap, 21, 8) | p.u("D0 wrap", d.D0Wrap, 13, 8) | p.u("D2 step", d.D2Step, 0, 13),
		p.u("iteration current", d.IterCurrent, 19, 6) | p.u("iteration wrap", d.IterWrap, 13, 6) | p.u("iteration step", d.IterStep, 0, 13),
		p.tail(d.TLASTSuppress, d.NextBD, d.UseNext, d.Valid, &d.Lock),
	}
	return w, p.err
}

// DecodeCoreBD reads 6 words.
func DecodeCoreBD(w []uint32) (CoreBD, error) {
	if err := wordCount(coreName, w, 6); err != nil {
		return CoreBD{}, err
	}
	if err := reserved(coreName, w, []uint32{0xF << 28, 0xFFFF, 0x3F << 26, 0x7 << 29, 0x7F << 25, 1<<17 | 1<<4}); err != nil {
		return CoreBD{}, err
	}
	d := CoreBD{
		Length: get(w[0], 0, 14), Base: get(w[0], 14, 14),
		Compression: w[1]>>31 != 0,
		Packet:      PacketUse{w[1]>>30&1 != 0, uint8(get(w[1], 16, 3)), uint8(get(w[1], 19, 5)), uint8(get(w[1], 24, 6))},
		D0Step:      get(w[2], 0, 13), D1Step: get(w[2], 13, 13),
		D2Step: get(w[3], 0, 13), D0Wrap: get(w[3], 13, 8), D1Wrap: get(w[3], 21, 8),
		IterCurrent: get(w[4], 19, 6), IterWrap: get(w[4], 13, 6), IterStep: get(w[4], 0, 13),
	}
	d.TLASTSuppress, d.NextBD, d.UseNext, d.Valid, d.Lock = untail(w[5])
	return d, nil
}

// dims converts true dimensions to the stored fields: wraps (of the first stored ones) and steps minus 1.
// A trailing dimension of size 0 or 1 needs no step.
func dims(what string, in []Dim, n, wraps int) (wrap, step [4]uint32, err error) {
	if len(in) > n {
		return wrap, step, fmt.Errorf("%s: %d dimensions, it has %d", what, len(in), n)
	}
	for i, d := range in {
		if d.Size < 0 || d.Size > 1<<31-1 {
			return wrap, step, fmt.Errorf("%s: D%d size %d is out of range", what, i, d.Size)
		}
		if i < wraps {
			wrap[i] = uint32(d.Size)
		}
		if d.Size == 1 && d.Step == 0 {
			continue
		}
		if d.Step < 1 || d.Step > 1<<31-1 {
			return wrap, step, fmt.Errorf("%s: D%d step of %d words, want at least 1", what, i, d.Step)
		}
		step[i] = uint32(d.Step - 1)
	}
	return wrap, step, nil
}

// iteration converts a true iteration count and step to the stored fields.
func iteration(what string, count, step int) (uint32, uint32, error) {
	if count < 1 || step < 1 || count > 1<<31-1 || step > 1<<31-1 {
		return 0, 0, fmt.Errorf("%s: iteration of %d times %d words, want at least 1 each", what, count, step)
	}
	return uint32(count - 1), uint32(step - 1), nil
}

// SetDims sets the dimensions, innermost first; at most 3. The wrap of the third is not stored: the length decides.
func (d *ShimBD) SetDims(in ...Dim) error {
	w, s, err := dims(shimName, in, 3, 2)
	d.D0Wrap, d.D1Wrap, d.D0Step, d.D1Step, d.D2Step = w[0], w[1], s[0], s[1], s[2]
	return err
}

// SetDims sets the dimensions, innermost first; at most 4. The wrap of the fourth is not stored.
func (d *MemBD) SetDims(in ...Dim) error {
	w, s, err := dims(memName, in, 4, 3)
	d.D0Wrap, d.D1Wrap, d.D2Wrap = w[0], w[1], w[2]
	d.D0Step, d.D1Step, d.D2Step, d.D3Step = s[0], s[1], s[2], s[3]
	return err
}

// SetDims sets the dimensions, innermost first; at most 3. The wrap of the third is not stored.
func (d *CoreBD) SetDims(in ...Dim) error {
	w, s, err := dims(coreName, in, 3, 2)
	d.D0Wrap, d.D1Wrap, d.D0Step, d.D1Step, d.D2Step = w[0], w[1], s[0], s[1], s[2]
	return err
}

// SetIteration makes successive runs start step words apart and return to the first after count runs.
func (d *ShimBD) SetIteration(count, step int) (err error) {
	d.IterWrap, d.IterStep, err = iteration(shimName, count, step)
	return err
}

// SetIteration makes successive runs start step words apart and return to the first after count runs.
func (d *MemBD) SetIteration(count, step int) (err error) {
	d.IterWrap, d.IterStep, err = iteration(memName, count, step)
	return err
}

// SetIteration makes successive runs start step words apart and return to the first after count runs.
func (d *CoreBD) SetIteration(count, step int) (err error) {
	d.IterWrap, d.IterStep, err = iteration(coreName, count, step)
	return err
}

// Task is an entry of a channel's queue.
type Task struct {
	BD     int
	Repeat int // runs, from 1
	Token  bool
}

// Encode gives the queue word for a tile with nBDs descriptors.
func (t Task) Encode(ti *device.TileInfo) (uint32, error) {
	if t.BD < 0 || t.BD >= ti.BDs {
		return 0, &FieldError{"task", "BD id", int64(t.BD), 0, int64(ti.BDs - 1)}
	}
	if t.Repeat < 1 || t.Repeat > ti.MaxRepeat {
		return 0, &FieldError{"task", "repeat", int64(t.Repeat), 1, int64(ti.MaxRepeat)}
	}
	return uint32(t.BD) | uint32(t.Repeat-1)<<device.QueueRepeatShift | b(t.Token, 31), nil
}

// DecodeTask reads a queue word.
func DecodeTask(ti *device.TileInfo, w uint32) (Task, error) {
	mask := uint32(0xF)
	if ti.Kind == device.Mem {
		mask = 0x3F
	}
	t := Task{BD: int(w & mask), Repeat: int(w>>device.QueueRepeatShift&0xFF) + 1, Token: w&device.QueueToken != 0}
	if rest := w &^ (mask | 0xFF<<device.QueueRepeatShift | device.QueueToken); rest != 0 {
		return t, fmt.Errorf("task: reserved bits %#x set in queue word", rest)
	}
	if t.BD >= ti.BDs {
		return t, &FieldError{"task", "BD id", int64(t.BD), 0, int64(ti.BDs - 1)}
	}
	return t, nil
}
