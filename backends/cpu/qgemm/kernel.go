package qgemm

import (
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// What the rows of A say of their blocks ("meta") lies in groups of rows. A group has slots rows, 8 for products of few rows and 16
// for others, of which the last may be unused; for each block it holds three vectors of slots words:
//
//	scale  float32  of the row's integers
//	init   int32    -zero times their sum: what the integer sums start from; or two int16, see kernels.pairs
//	sum    float32  scale times their sum: what a minimum is multiplied by
//
// so that a kernel finds the numbers of all its rows side by side.
const (
	fewSlots  = 8
	manySlots = 16
)

// tileHeight is the number of rows of a group of tiles.
const tileHeight = manySlots

// metaStep returns the bytes of a block's meta.
func metaStep(slots int) int { return 3 * 4 * slots }

// dotArgs is what a kernel is called with: h rows of A against v panels, over blocks of k. All compute the same:
//
//	for each row i, panel p, lane j:
//	    f = C, or 0
//	    for each block b:  n = init[i][b] + sum over k of w[p][b][k][j] * a[i][b][k]       (int32)
//	                       f = fma(float32(n) * scale[p][b][j], scale[i][b], f)
//	                       f = fma(min[p][b][j], sum[i][b], f)                             (with minimums)
//	    C = f
type dotArgs struct {
	a         unsafe.Pointer // int8, k ascending
	aStride   int            // bytes between rows
	meta      unsafe.Pointer // of block 0, at the slot of the first row
	metaGroup int            // bytes between groups of rows (tiles, several strips)
	w         unsafe.Pointer // uint8: for each 4 k, 16 lanes of 4 bytes; for fused kernels a packed panel
	wPanel    int            // bytes between panels; of several packed ones, too
	scale     unsafe.Pointer // for each block 16 float32, and 16 minimums
	scaleSize int            // bytes between panels
	c         unsafe.Pointer
	ldc       int // bytes between rows
	blocks    int // of 32 elements (fused), or of the format's size
	acc       int // 1: start from C
	mask      uint64
	table     *[16]byte
	groups    int            // of rows (tiles), or strips of rows (dot, where it takes several)
	rows      int            // of each group (tiles)
	panels    int            // (tiles)
	buf       unsafe.Pointer // tileBuf bytes
	cPanel    int            // bytes between columns of panels (streams)
	ahead     int            // 1: ask for weights long before they are read (fused kernels of AVX-512)
}

// fewRows is the largest number of rows for which bits are spread in registers, not in memory.
const fewRows = 8

// fewPasses is the largest number of passes over a panel for which that pays.
const fewPasses = 4

// fourStreams is the number of panels of the kernels for several.
const fourStreams = 4

// kernels is an implementation for one instruction set.
type kernels struct {
	name string
	isa  cpuinfo.ISA
	// dot takes rows (1 to maxRows) of one group of many slots and panels (1 to panels[rows]), whose bytes have been spread.
	dot    func(p *dotArgs, f *format, rows, panels int)
	panels [maxRows + 1]int // that dot takes at once for a number of rows
	rows   int              // that dot takes at most
	height int              // rows of a group of dot: what a number of its strips cover
	// strips, where it is not 0, is how many strips of rows dot takes at most, from the first row of a group on: p.groups of them. A call cannot be
	// interrupted, so that they should be some tens of microseconds.
	strips int
	// bf16, where it is not nil, takes the place of these kernels for formats whose scales are bfloat16.
	bf16 *kernels
	// fused, where it is not nil, returns the kernel for up to few rows against one panel whose bits are packed.
	few   int
	fused func(f *format, rows int) func(*dotArgs)
	// alone says that the processor's own prefetching is better than what the fused kernels ask for.
	alone bool
	// streams, where it is not nil, returns the kernel for one row against fourStreams whole panels whose bits are packed: a processor may
	// fetch more from memory where it sees several streams.
	streams func(f *format) func(*dotArgs)
	// tiles, where it is not nil, replaces dot and fused for many rows: groups of tileHeight rows, or a lower one, against panels, whose bytes
	// have been spread less the format's zero.
	tiles func(p *dotArgs, f *format)
	// signed says that dot and fused take bytes as signed: those of formats whose zero is 128 are spread less 128, and the integer sums of
	// their rows start from 0.
	signed bool
	// pairs says that integers of 6 bits and less are summed in pairs of 16 bits: init is two int16, of k mod 4 below 2, and of the rest.
	pairs bool
	// wide, where it is not nil, reports whether dot takes integers and activations of a format in 16 bits; spread writes such integers,
	// for each 2 k 16 lanes of 2 words, and widen such activations: n of them, a multiple of 32.
	wide  func(f *format) bool
	widen func(dst, src unsafe.Pointer, n int)
	// spread turns n units of bits into bytes: they lie in sets of per units, stride bytes from set to set. What is subtracted from
	// every byte is 0, or the format's zero for tiles and where signed demands it.
	spread func(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8)
	// halfs widens n vectors of 16 half-precision (or bfloat16) numbers, which lie in sets as bits do, to vectors that lie step bytes
	// apart in dst.
	halfs  func(dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int)
	bhalfs func(dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int)
	// supers multiplies, for each of n super-blocks, subs vectors of 16 int8 by the vector of half-precision scales (negated if
	// neg is 0x80000000).
	supers func(dst unsafe.Pointer, step int, d, s unsafe.Pointer, n, subs, stride int, neg uint32)
	// quantize brings n elements of a row, a multiple of the block, to int8 in q and writes the blocks' meta.
	quantize func(q, meta unsafe.Pointer, x unsafe.Pointer, n, block int, zero int32, slots int)
}

var available = sync.OnceValue(archKernels)

// choose returns the kernels of the best instruction set that is allowed; 0 allows all.
func choose(isa cpuinfo.ISA) *kernels {
	info := cpuinfo.Get()
	for _, k := range available() {
		if (isa == 0 || k.isa <= isa) && info.Has(k.isa) {
			return k
		}
	}
	return &portable
}

// Kernel names the implementation that a product with an instruction set runs on; 0 means the best.
func Kernel(isa cpuinfo.ISA) string { return choose(isa).name }
