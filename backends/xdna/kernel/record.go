package kernel

import (
	"errors"
	"fmt"
	"strings"
)

// Magic is the first word of a record: "TGEM" in little-endian bytes.
const Magic = 0x4D454754

// Version of the record's layout.
const Version = 1

// Words is the length of an encoded record.
const Words = 16

// MemoryBytes is the size of a core's data memory (L1).
const MemoryBytes = 64 << 10

// Locks is the number of locks of a core tile.
const Locks = 16

// RTPWords is the number of runtime parameters that a core reads when its barrier opens:
// k chunks per output tile, then output tiles of this dispatch.
const RTPWords = 2

// Type is the type of the elements of an operand in L1.
type Type uint8

// Element types. BFP16 is bfp16ebs8: blocks of 8 values along k in 9 bytes.
const (
	I8 Type = iota + 1
	I16
	I32
	BF16
	F32
	BFP16
)

var typeNames = [...]string{"", "int8", "int16", "int32", "bf16", "f32", "bfp16"}

// String names the type.
func (t Type) String() string {
	if int(t) >= len(typeNames) || t == 0 {
		return fmt.Sprintf("type(%d)", uint8(t))
	}
	return typeNames[t]
}

// Bytes is the size of n elements. n must be a multiple of 8 for BFP16.
func (t Type) Bytes(n int) int {
	switch t {
	case I8:
		return n
	case I16, BF16:
		return 2 * n
	case I32, F32:
		return 4 * n
	case BFP16:
		return n / 8 * 9
	}
	return 0
}

// Arith is the arithmetic of the inner loop.
type Arith uint8

// Arithmetics. Int is exact modulo 2^32. FMA is one f32 fused multiply-add per k, ascending. BFP brings both operands to
// bfp16 (groups of 8 along k), multiplies groups as integers and adds each group's scaled sum to an f32 accumulator, ascending.
const (
	Int Arith = iota + 1
	FMA
	BFP
)

var arithNames = [...]string{"", "int", "fma", "bfp"}

// String names the arithmetic.
func (a Arith) String() string {
	if int(a) >= len(arithNames) || a == 0 {
		return fmt.Sprintf("arith(%d)", uint8(a))
	}
	return arithNames[a]
}

// Rounding is the core's rounding mode: it governs bf16 to bfp16 conversion and narrowing to bf16.
type Rounding uint8

// Rounding modes. Floor (towards minus infinity) is the mode at power-up; kernels set NearestEven.
const (
	NearestEven Rounding = iota
	Floor
)

// String names the mode.
func (r Rounding) String() string {
	if r == Floor {
		return "floor"
	}
	return "nearest-even"
}

// Overflow is what narrowing an int32 accumulator to int16 or int8 does with values that do not fit.
type Overflow uint8

// Overflow modes. Wrap is the default of the public kernels.
const (
	Wrap Overflow = iota
	Saturate
)

// String names the mode.
func (o Overflow) String() string {
	if o == Saturate {
		return "saturate"
	}
	return "wrap"
}

// Buffer is a ring of one or two buffers in L1 with its pair of locks.
// A producer acquires Free by 1 and releases Full by 1; a consumer the reverse.
type Buffer struct {
	Addr  [2]uint32 // byte addresses in the tile's own 64 KB, multiples of 4
	Depth int       // 1 or 2 (ping, pong)
	Free  uint8     // lock id, initial value Depth
	Full  uint8     // lock id, initial value 0
}

// Record is what a core runs: an output-stationary product of tiles.
//
// Once its barrier lock can be acquired by 1, the core reads two runtime parameters (k chunks, tiles). For each tile it
// acquires a free C buffer and zeroes it; for each k chunk it acquires a full B buffer, then Bands times a full A buffer of M/Bands rows,
// accumulates that band of C, and releases the A buffer; after the bands it releases B. After the last chunk it releases C as full.
// With Bands = 1 that is the symmetric kernel (A is acquired before B then, which no lock protocol can tell apart).
//
// Layouts in L1, blocks row-major inside and across unless said:
//
//	A  [M/R][K/S][R][S]                  per band: [M/Bands/R][K/S][R][S]
//	B  [K/S][N/T][S][T]                  row-major B
//	B  [N/T][K/S][T][S] if BTransposed   column-major B: the kernel transposes each T x S block
//	C  [M/R][N/T][R][T]
//
// BFP16 operands hold S = 8 values of one row of A or one column of B as one 9-byte block, so B must be BTransposed.
type Record struct {
	AType, BType, CType Type
	Arith               Arith
	M, K, N             int // the tile: m_ct, k_ct, n_ct
	R, S, T             int // the block of the multiply unit
	Bands               int // rho of asymmetric buffering: A buffers hold M/Bands rows; 1 = symmetric
	BTransposed         bool
	Rounding            Rounding
	Overflow            Overflow
	A, B, C             Buffer
	RTP                 uint32 // byte address of the runtime parameters, a multiple of 4
	Barrier             uint8  // lock that the control code sets to 1 when the parameters are in place
}

// ABytes is the size of one A buffer (one band).
func (r *Record) ABytes() int { return r.AType.Bytes(r.M / r.Bands * r.K) }

// BBytes is the size of one B buffer.
func (r *Record) BBytes() int { return r.BType.Bytes(r.K * r.N) }

// CBytes is the size of one C buffer.
func (r *Record) CBytes() int { return r.CType.Bytes(r.M * r.N) }

// Encode writes the record as control-code words. It refuses what [Decode] would refuse.
func (r *Record) Encode() ([]uint32, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	flags := uint32(r.Rounding) | uint32(r.Overflow)<<1
	if r.BTransposed {
		flags |= 4
	}
	ring := func(b Buffer) uint32 { return b.Addr[0] | b.Addr[1]<<16 }
	return []uint32{
		Magic,
		Version<<16 | Words,
		uint32(r.AType) | uint32(r.BType)<<8 | uint32(r.CType)<<16 | uint32(r.Arith)<<24,
		uint32(r.M) | uint32(r.K)<<16,
		uint32(r.N) | uint32(r.Bands)<<16,
		uint32(r.R) | uint32(r.S)<<8 | uint32(r.T)<<16,
		flags,
		ring(r.A),
		ring(r.B),
		ring(r.C),
		uint32(r.A.Depth) | uint32(r.B.Depth)<<8 | uint32(r.C.Depth)<<16,
		uint32(r.A.Free) | uint32(r.A.Full)<<8 | uint32(r.B.Free)<<16 | uint32(r.B.Full)<<24,
		uint32(r.C.Free) | uint32(r.C.Full)<<8 | uint32(r.Barrier)<<16,
		r.RTP | RTPWords<<16,
		0,
		0,
	}, nil
}

// Decode reads a record from the words at the start of program memory.
func Decode(w []uint32) (*Record, error) {
	if len(w) < Words {
		return nil, fmt.Errorf("kernel record: %d words, want %d", len(w), Words)
	}
	if w[0] != Magic {
		return nil, fmt.Errorf("kernel record: magic %#08x, want %#08x", w[0], uint32(Magic))
	}
	if w[1] != Version<<16|Words {
		return nil, fmt.Errorf("kernel record: version and length %#08x, want %#08x", w[1], uint32(Version<<16|Words))
	}
	if w[13]>>16 != RTPWords {
		return nil, fmt.Errorf("kernel record: %d runtime parameters, want %d", w[13]>>16, RTPWords)
	}
	if w[5]>>24|w[6]>>3|w[10]>>24|w[12]>>24|w[14]|w[15] != 0 {
		return nil, errors.New("kernel record: reserved bits are not zero")
	}
	r := &Record{
		AType: Type(w[2]), BType: Type(w[2] >> 8), CType: Type(w[2] >> 16), Arith: Arith(w[2] >> 24),
		M: int(w[3] & 0xFFFF), K: int(w[3] >> 16), N: int(w[4] & 0xFFFF), Bands: int(w[4] >> 16),
		R: int(w[5] & 0xFF), S: int(w[5] >> 8 & 0xFF), T: int(w[5] >> 16 & 0xFF),
		Rounding: Rounding(w[6] & 1), Overflow: Overflow(w[6] >> 1 & 1), BTransposed: w[6]&4 != 0,
		A:       Buffer{Addr: [2]uint32{w[7] & 0xFFFF, w[7] >> 16}, Depth: int(w[10] & 0xFF), Free: uint8(w[11]), Full: uint8(w[11] >> 8)},
		B:       Buffer{Addr: [2]uint32{w[8] & 0xFFFF, w[8] >> 16}, Depth: int(w[10] >> 8 & 0xFF), Free: uint8(w[11] >> 16), Full: uint8(w[11] >> 24)},
		C:       Buffer{Addr: [2]uint32{w[9] & 0xFFFF, w[9] >> 16}, Depth: int(w[10] >> 16 & 0xFF), Free: uint8(w[12]), Full: uint8(w[12] >> 8)},
		Barrier: uint8(w[12] >> 16),
		RTP:     w[13] & 0xFFFF,
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return r, nil
}

// Validate checks that the record is one that a core can run: a known combination of types, whole blocks, buffers that
// lie in L1 and do not overlap, distinct locks. Which arithmetics a device has is the device's matter.
func (r *Record) Validate() error {
	bad := func(format string, args ...any) error { return fmt.Errorf("kernel record: "+format, args...) }
	switch {
	case r.Arith == Int && r.AType == I8 && r.BType == I8 && (r.CType == I8 || r.CType == I16 || r.CType == I32):
	case r.Arith == FMA && r.AType == BF16 && r.BType == BF16 && (r.CType == BF16 || r.CType == F32):
	case r.Arith == BFP && (r.AType == BF16 || r.AType == BFP16) && (r.BType == BF16 || r.BType == BFP16) && (r.CType == BF16 || r.CType == F32):
	default:
		return bad("no kernel for %v x %v to %v with %v arithmetic", r.AType, r.BType, r.CType, r.Arith)
	}
	if r.Rounding > Floor {
		return bad("rounding mode %d", r.Rounding)
	}
	if r.Overflow > Saturate {
		return bad("overflow mode %d", r.Overflow)
	}
	for _, d := range []struct {
		name     string
		v, block int
	}{{"M", r.M, r.R}, {"K", r.K, r.S}, {"N", r.N, r.T}} {
		if d.block <= 0 || d.block > 16 {
			return bad("block of %d along %s, want 1 to 16", d.block, d.name)
		}
		if d.v <= 0 || d.v > 0xFFFF || d.v%d.block != 0 {
			return bad("%s = %d is not a positive multiple of its block %d", d.name, d.v, d.block)
		}
	}
	if r.Bands <= 0 || r.Bands > 0xFFFF || r.M%(r.Bands*r.R) != 0 {
		return bad("M = %d does not split into %d bands of whole blocks of %d rows", r.M, r.Bands, r.R)
	}
	if r.Arith == BFP && r.S != 8 {
		return bad("bfp16 groups hold 8 values along k, the block has %d", r.S)
	}
	if r.BType == BFP16 && !r.BTransposed {
		return bad("bfp16 B must be transposed: its groups run along k")
	}
	type span struct {
		name   string
		lo, hi int
	}
	spans := []span{{"runtime parameters", int(r.RTP), int(r.RTP) + 4*RTPWords}}
	var names []string
	locks := map[uint8]string{r.Barrier: "barrier"}
	addLock := func(id uint8, name string) {
		if other, dup := locks[id]; dup {
			names = append(names, fmt.Sprintf("lock %d is both %s and %s", id, other, name))
		}
		locks[id] = name
	}
	for _, b := range []struct {
		name  string
		buf   Buffer
		bytes int
	}{{"A", r.A, r.ABytes()}, {"B", r.B, r.BBytes()}, {"C", r.C, r.CBytes()}} {
		if b.buf.Depth != 1 && b.buf.Depth != 2 {
			return bad("%s has %d buffers, want 1 or 2", b.name, b.buf.Depth)
		}
		if b.bytes%4 != 0 {
			return bad("%s buffer of %d bytes is not a whole number of 32-bit words", b.name, b.bytes)
		}
		if b.buf.Depth == 1 && b.buf.Addr[1] != 0 {
			return bad("%s has one buffer but a second address %#x", b.name, b.buf.Addr[1])
		}
		for i := range b.buf.Depth {
			spans = append(spans, span{fmt.Sprintf("%s%d", b.name, i), int(b.buf.Addr[i]), int(b.buf.Addr[i]) + b.bytes})
		}
		addLock(b.buf.Free, b.name+" free")
		addLock(b.buf.Full, b.name+" full")
	}
	if len(names) > 0 {
		return bad("%s", strings.Join(names, ", "))
	}
	for id, name := range locks {
		if id >= Locks {
			return bad("%s lock is %d, a core has %d", name, id, Locks)
		}
	}
	for i, s := range spans {
		if s.lo%4 != 0 {
			return bad("%s at %#x is not aligned to 4 bytes", s.name, s.lo)
		}
		if s.hi > MemoryBytes {
			return bad("%s at %#x to %#x ends beyond the %d bytes of L1", s.name, s.lo, s.hi, MemoryBytes)
		}
		for _, o := range spans[:i] {
			if s.lo < o.hi && o.lo < s.hi {
				return bad("%s at %#x to %#x overlaps %s at %#x to %#x", s.name, s.lo, s.hi, o.name, o.lo, o.hi)
			}
		}
	}
	return nil
}
