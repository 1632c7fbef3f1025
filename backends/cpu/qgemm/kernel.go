package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// meta is what a row of A says of one block, in the order in which the kernels read it.
type meta struct {
	scale float32 // of the row's integers
	init  int32   // -zero times their sum: what the integer sums start from
	sum   float32 // scale times their sum: what a minimum is multiplied by
	_     float32
}

// dotArgs is what a dot kernel is called with: h rows of A against v panels, over blocks of k.
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
	meta      unsafe.Pointer
	metaRow   int            // bytes between rows
	w         unsafe.Pointer // uint8: for each 4 k, 16 lanes of 4 bytes
	wPanel    int            // bytes between panels
	scale     unsafe.Pointer // for each block 16 float32, and 16 minimums
	scaleSize int            // bytes between panels
	c         unsafe.Pointer
	ldc       int // bytes between rows
	blocks    int
	acc       int    // 1: start from C
	mask      uint64 // lanes of C that exist, 16 bits a panel
	table     *[16]byte
}

// fusedForm is what a fused kernel is chosen by.
type fusedForm struct {
	bits   bits
	table  bool
	hasMin bool
}

// fewRows is the largest number of rows for which bits are spread in registers, not in memory.
const fewRows = 4

// kernels is an implementation for one instruction set.
type kernels struct {
	isa cpuinfo.ISA
	// dot[block][hasMin]: block 0 is 32 elements, 1 is 16. The function takes rows (1 to maxRows) and panels (1 to maxPanels(rows)).
	dot func(p *dotArgs, block int, hasMin bool, rows, panels int)
	// fused, where it is not nil, computes up to fewRows rows against one panel whose bits are packed (w), in units of 32 elements
	// (blocks counts units); nil where the form has no such kernel.
	fused func(form fusedForm, rows int) func(*dotArgs)
	// unpack spreads units of bits to bytes.
	unpack [6]func(dst, src unsafe.Pointer, units int, table *[16]byte)
	// halfs widens n vectors of 16 half-precision (or bfloat16) numbers, step bytes apart in dst.
	halfs  func(dst unsafe.Pointer, step int, src unsafe.Pointer, n int)
	bhalfs func(dst unsafe.Pointer, step int, src unsafe.Pointer, n int)
	// supers multiplies, for each of n super-blocks, subs vectors of 16 int8 by the vector of half-precision scales (negated if
	// neg is 0x80000000).
	supers func(dst unsafe.Pointer, step int, d, s unsafe.Pointer, n, subs int, neg uint32)
	// quantize brings n elements of a row, a multiple of the block, to int8 in q and writes the blocks' meta.
	quantize func(q, meta unsafe.Pointer, x unsafe.Pointer, n, block int, zero int32)
}

// maxPanels is the number of panels that a dot kernel takes at once for a number of rows: as many as registers hold the sums of.
var maxPanels = [maxRows + 1]int{0, 4, 4, 2, 2, 2, 2}

// choose returns the kernels of the best instruction set that is allowed.
func choose(isa cpuinfo.ISA) *kernels {
	info := cpuinfo.Get()
	for _, k := range archKernels() {
		if (isa == 0 || k.isa == isa) && info.Has(k.isa) {
			return k
		}
	}
	return &portable
}
