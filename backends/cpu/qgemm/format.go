package qgemm

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

const (
	nr       = 16        // rows of W (columns of C) of a panel
	unit     = 32        // elements of k whose bits are packed together
	unitSize = nr * unit // bytes of a unpacked unit of a panel
	superK   = 256       // elements of a super-block of the K formats
	maxRows  = 6         // rows of A of a tile of the dot kernels
)

// bits says how the integers of a unit are stored.
type bits uint8

const (
	u8 bits = iota // bytes
	u4             // 256 bytes: low nibbles are k 0-15, high nibbles k 16-31
	u5             // as u4, then a plane of 64 bytes with the fifth bits
	u6             // as u4, then two planes of 64 bytes with two bits each
	u2             // two planes of 64 bytes
	u3             // as u2, then a plane of 64 bytes with the third bits
)

var bitsSize = [...]int{u8: 512, u4: 256, u5: 320, u6: 384, u2: 128, u3: 192}

// A format describes how a block format is packed.
type format struct {
	bits   bits
	block  int                           // elements with one scale: 16 or 32
	zero   int32                         // what is subtracted from the stored integers
	hasMin bool                          // a block adds a minimum
	super  bool                          // scales are int8 in units of a half-precision scale for 256 elements
	bf16   bool                          // scales are bfloat16 instead of half
	table  *[16]byte                     // nibbles are indexes into it
	read   func(b []byte, out *exploded) // one block (32 or 256 elements) of the file
	id     int                           // its number, for tables of kernels
}

// exploded is a block of the file taken apart.
type exploded struct {
	q      [superK]uint8
	d, m   uint16 // bits of the scales as they will be stored
	sc, mn [16]int8
}

var formats = map[tensor.DType]*format{
	tensor.Q4_0:   {bits: u4, block: 32, zero: 8, read: readQ4_0},
	tensor.Q4_1:   {bits: u4, block: 32, hasMin: true, read: readQ4_1},
	tensor.Q5_0:   {bits: u5, block: 32, zero: 16, read: readQ5_0},
	tensor.Q5_1:   {bits: u5, block: 32, hasMin: true, read: readQ5_1},
	tensor.Q8_0:   {bits: u8, block: 32, zero: 128, read: readQ8_0},
	tensor.IQ4_NL: {bits: u4, block: 32, zero: 128, table: levels(tensor.IQ4_NL), read: readQ4_0},
	tensor.MXFP4:  {bits: u4, block: 32, zero: 128, table: levels(tensor.MXFP4), bf16: true, read: readMXFP4},
	tensor.Q2_K:   {bits: u2, block: 16, hasMin: true, super: true, read: readQ2K},
	tensor.Q3_K:   {bits: u3, block: 16, zero: 4, super: true, read: readQ3K},
	tensor.Q4_K:   {bits: u4, block: 32, hasMin: true, super: true, read: readQ4K},
	tensor.Q5_K:   {bits: u5, block: 32, hasMin: true, super: true, read: readQ5K},
	tensor.Q6_K:   {bits: u6, block: 16, zero: 32, super: true, read: readQ6K},
}

func init() {
	id := 0
	for _, d := range tensor.DTypes() {
		if f := formats[d]; f != nil {
			f.id = id
			id++
		}
	}
}

// Supports reports whether weights of the type can be packed.
func Supports(d tensor.DType) bool { return formats[d] != nil }

// levels returns the integers that the 16 nibbles of a table format stand for, plus 128.
func levels(d tensor.DType) *[16]byte {
	block := make([]byte, d.Size())
	switch d { // a scale of 1
	case tensor.IQ4_NL:
		block[1] = 0x3c
	case tensor.MXFP4:
		block[0] = 128
	}
	var table [16]byte
	var x [32]float32
	for i := range table {
		for j := d.Size() - 16; j < d.Size(); j++ {
			block[j] = byte(i)
		}
		if err := quant.DecodeRow(d, x[:], block); err != nil {
			panic(err)
		}
		table[i] = byte(int32(x[0]) + 128)
	}
	return &table
}

// geometry is where the parts of a panel lie. A panel is a sequence of groups: scales, then the bits that they belong to, so that a
// product of few rows reads one steady stream. A group starts on a cache line and holds
//
//	 64 elements of formats with a scale for each 32:           d[0], d[1], bits, bits
//	 32 elements of formats with a scale and a minimum each:    d, m, bits
//	256 elements of formats with super-blocks:                  d, (m,) sc[...], (mn[...],) padding, 8 times bits
//
// where d and m are 16 half-precision (or bfloat16) numbers, sc and mn 16 int8 for each sub-block. The last group of the first kind
// may be half empty.
type geometry struct {
	f      *format
	k      int
	elems  int // of a group
	units  int // of a group: whole sets of 32 elements
	m      int // byte offsets in a group; d lies at 0
	sc, mn int
	header int // bytes in front of the bits
	group  int // bytes of a group
	size   int // bytes of a panel
}

// halfs is the size of 16 half-precision numbers.
const halfs = 2 * nr

func newGeometry(f *format, k int) (geometry, error) {
	g := geometry{f: f, k: k}
	least := unit
	switch {
	case f.super:
		g.elems, least = superK, superK
		g.sc = halfs
		if f.hasMin {
			g.m, g.sc = halfs, 2*halfs
			g.mn = g.sc + superK/f.block*nr
			g.header = g.mn + superK/f.block*nr
		} else {
			g.header = g.sc + superK/f.block*nr
		}
	case f.hasMin:
		g.elems, g.m, g.header = unit, halfs, 2*halfs
	default:
		g.elems, g.header = 2*unit, 2*halfs
	}
	g.header, _ = mem.RoundUp(g.header, mem.Align)
	g.units = g.elems / unit
	g.group = g.header + g.units*bitsSize[f.bits]
	if k <= 0 || k%least != 0 {
		return g, fmt.Errorf("qgemm: K = %d is no multiple of %d", k, least)
	}
	size, ok := mem.Mul((k-1)/g.elems+1, g.group)
	if !ok {
		return g, fmt.Errorf("qgemm: K = %d: %w", k, mem.ErrOverflow)
	}
	g.size = size
	return g, nil
}

// place returns where block b of a file (32 or 256 elements) starts: its group, and its number there.
func (g *geometry) place(b int) (group, in int) {
	if g.f.super || g.f.hasMin {
		return b * g.group, 0
	}
	return b / 2 * g.group, b % 2
}

// scaleStep returns the bytes of one block's unpacked scales of a panel: 16 float32, and as many minimums.
func (f *format) scaleStep() int {
	if f.hasMin {
		return 8 * nr
	}
	return 4 * nr
}
