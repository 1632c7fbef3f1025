// Package regs decides how a run is written down for a VC1902: the DMA descriptors of shim and core tiles as the words that the
// hardware holds, and the ordered list of register writes of a run, which maps one to one to the register operations of the Linux
// driver and to a text form.
//
// Layouts are those of aie-rt (xaiegbl_params.h, xaie_dma_aie.c) for the first generation of AI Engines.
package regs

import "fmt"

// FieldError reports a value that does not fit its field.
type FieldError struct {
	Descriptor, Field  string
	Value, Least, Most int64
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s descriptor: %s = %d, %d to %d fits", e.Descriptor, e.Field, e.Value, e.Least, e.Most)
}

// LockUse is what a descriptor does with a lock before and after its transfer. Locks are binary: an acquire with a value waits
// until the lock is free and holds it.
type LockUse struct {
	ID                  int
	Acquire             bool
	AcquireUse          bool // wait for AcquireValue
	AcquireValue        int
	Release, ReleaseUse bool
	ReleaseValue        int
}

// Dim is one dimension of a core descriptor's addressing: word i of a transfer lies at base + (i / Incr mod Wrap) * Offset, summed
// over X and Y.
type Dim struct {
	Incr   int // words between two steps of this dimension, 1 to 256
	Wrap   int // steps until it starts again, 1 to 256
	Offset int // words that a step advances, 0 to 8191
}

// LinearX and LinearY address consecutive words, up to the 8,192 of a descriptor's length when the offsets carry on.
var (
	LinearX = Dim{1, 256, 1}
	LinearY = Dim{256, 256, 256}
)

// CoreBD is a descriptor of a core's DMA.
type CoreBD struct {
	LockA, LockB LockUse
	BaseA, BaseB int // words
	X, Y         Dim

	PacketType, PacketID int
	StateB               bool // interleaving: the buffer it stands in, and where
	StatePointer         int

	Valid           bool
	DoubleBuffer    bool
	FIFO            int
	Packet          bool
	Interleave      bool
	InterleaveCount int // 1 to 256
	UseNext         bool
	Next            int
	Length          int // words, 1 to 8192
}

// ShimBD is a descriptor of a shim's DMA: linear.
type ShimBD struct {
	Address int64 // bytes, a multiple of 4, 48 bits
	Length  int64 // words
	Lock    LockUse
	UseNext bool
	Next    int
	Valid   bool

	SMID, Burst, QoS     int
	Secure               bool
	Cache                int
	Packet               bool
	PacketType, PacketID int
}

// put and get move fields between values and words; one list of fields serves both directions.
type codec struct {
	words []uint32
	name  string
	err   error
	read  bool
}

func (c *codec) bits(word, lsb, width int, field string, v *int, bias int) {
	if c.read {
		*v = int(c.words[word]>>lsb&(1<<width-1)) + bias
		return
	}
	x := *v - bias
	if x < 0 || x >= 1<<width {
		if c.err == nil {
			c.err = &FieldError{c.name, field, int64(*v), int64(bias), int64(1)<<width - 1 + int64(bias)}
		}
		return
	}
	c.words[word] |= uint32(x) << lsb
}

func (c *codec) flag(word, bit int, v *bool) {
	if c.read {
		*v = c.words[word]>>bit&1 == 1
	} else if *v {
		c.words[word] |= 1 << bit
	}
}

func (c *codec) coreLock(word int, l *LockUse) {
	c.bits(word, 22, 4, "lock id", &l.ID, 0)
	c.flag(word, 21, &l.Release)
	c.bits(word, 20, 1, "lock release value", &l.ReleaseValue, 0)
	c.flag(word, 19, &l.ReleaseUse)
	c.flag(word, 18, &l.Acquire)
	c.bits(word, 17, 1, "lock acquire value", &l.AcquireValue, 0)
	c.flag(word, 16, &l.AcquireUse)
}

func (c *codec) core(b *CoreBD) {
	c.coreLock(0, &b.LockA)
	c.bits(0, 0, 13, "base A", &b.BaseA, 0)
	c.coreLock(1, &b.LockB)
	c.bits(1, 0, 13, "base B", &b.BaseB, 0)
	for w, d := range []*Dim{&b.X, &b.Y} {
		name := string("XY"[w])
		c.bits(2+w, 24, 8, name+" increment", &d.Incr, 1)
		c.bits(2+w, 16, 8, name+" wrap", &d.Wrap, 1)
		c.bits(2+w, 0, 13, name+" offset", &d.Offset, 0)
	}
	c.bits(4, 12, 3, "packet type", &b.PacketType, 0)
	c.bits(4, 0, 5, "packet id", &b.PacketID, 0)
	c.flag(5, 16, &b.StateB)
	c.bits(5, 0, 13, "interleave pointer", &b.StatePointer, 0)
	c.flag(6, 31, &b.Valid)
	c.flag(6, 30, &b.DoubleBuffer)
	c.bits(6, 28, 2, "fifo mode", &b.FIFO, 0)
	c.flag(6, 27, &b.Packet)
	c.flag(6, 26, &b.Interleave)
	c.bits(6, 18, 8, "interleave count", &b.InterleaveCount, 1)
	c.flag(6, 17, &b.UseNext)
	c.bits(6, 13, 4, "next descriptor", &b.Next, 0)
	c.bits(6, 0, 13, "length", &b.Length, 1)
}

func (c *codec) shim(b *ShimBD) {
	lo, hi := int(uint32(b.Address)), int(b.Address>>32)
	length := int(b.Length)
	if !c.read && (b.Address < 0 || b.Address>>48 != 0 || b.Address&3 != 0) && c.err == nil {
		c.err = &FieldError{c.name, "address (a multiple of 4)", b.Address, 0, 1<<48 - 4}
		return
	}
	if !c.read && (b.Length < 0 || b.Length >= 1<<32) && c.err == nil {
		c.err = &FieldError{c.name, "length", b.Length, 0, 1<<32 - 1}
		return
	}
	if c.read {
		b.Address = int64(c.words[0]) | int64(c.words[2]>>16)<<32
		b.Length = int64(c.words[1])
	} else {
		c.words[0] = uint32(lo)
		c.words[1] = uint32(length)
		c.words[2] |= uint32(hi) << 16
	}
	c.flag(2, 15, &b.UseNext)
	c.bits(2, 11, 4, "next descriptor", &b.Next, 0)
	c.bits(2, 7, 4, "lock id", &b.Lock.ID, 0)
	c.flag(2, 6, &b.Lock.Release)
	c.bits(2, 5, 1, "lock release value", &b.Lock.ReleaseValue, 0)
	c.flag(2, 4, &b.Lock.ReleaseUse)
	c.flag(2, 3, &b.Lock.Acquire)
	c.bits(2, 2, 1, "lock acquire value", &b.Lock.AcquireValue, 0)
	c.flag(2, 1, &b.Lock.AcquireUse)
	c.flag(2, 0, &b.Valid)
	c.bits(3, 28, 4, "SMID", &b.SMID, 0)
	c.bits(3, 9, 2, "burst", &b.Burst, 0)
	c.bits(3, 5, 4, "QoS", &b.QoS, 0)
	c.flag(3, 4, &b.Secure)
	c.bits(3, 0, 4, "cache", &b.Cache, 0)
	c.flag(4, 31, &b.Packet)
	c.bits(4, 12, 3, "packet type", &b.PacketType, 0)
	c.bits(4, 0, 5, "packet id", &b.PacketID, 0)
}

// CoreWords and ShimWords are the sizes of the descriptors in words.
const (
	CoreWords = 7
	ShimWords = 5
)

// Encode returns the words of the descriptor, or a FieldError.
func (b CoreBD) Encode() ([CoreWords]uint32, error) {
	var w [CoreWords]uint32
	if b.InterleaveCount == 0 && !b.Interleave {
		b.InterleaveCount = 1
	}
	c := codec{words: w[:], name: "core"}
	c.core(&b)
	return w, c.err
}

// DecodeCore reads a descriptor.
func DecodeCore(w [CoreWords]uint32) CoreBD {
	var b CoreBD
	c := codec{words: w[:], read: true}
	c.core(&b)
	return b
}

// Encode returns the words of the descriptor, or a FieldError.
func (b ShimBD) Encode() ([ShimWords]uint32, error) {
	var w [ShimWords]uint32
	c := codec{words: w[:], name: "shim"}
	c.shim(&b)
	return w, c.err
}

// DecodeShim reads a descriptor.
func DecodeShim(w [ShimWords]uint32) ShimBD {
	var b ShimBD
	c := codec{words: w[:], read: true}
	c.shim(&b)
	return b
}

// Word is the word address of word i of the transfer, relative to nothing: the base is included.
func (b *CoreBD) Word(i int) int {
	return b.BaseA + i/b.X.Incr%b.X.Wrap*b.X.Offset + i/b.Y.Incr%b.Y.Wrap*b.Y.Offset
}

// Linear reports whether the transfer takes consecutive words.
func (b *CoreBD) Linear() bool {
	if b.X.Incr == 1 && b.X.Offset == 1 && b.X.Wrap >= b.Length {
		return b.Y.Incr >= b.Length || b.Y.Offset == 0
	}
	return b.X == LinearX && b.Y.Incr == 256 && b.Y.Offset == 256 && 256*b.Y.Wrap >= b.Length
}
