package ordered

import (
	"iter"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// Operands of an NPU core lie in blocks of the multiply unit. The functions here bring rows of blocks straight into the panels of [F32] and [S8]. They return
// false, having written nothing of use, where this processor has no kernel for it, and the caller packs by elements.

// Quant is what happens to bf16 operands on the way.
type Quant uint8

// Plain only widens. Even and Floor replace groups of 8 along k by what their bfp16 block holds.
const (
	Plain Quant = iota
	Even
	Floor
)

// Layout is the order of the 64 elements of 8 rows of A, or of 8 columns of B, by 8 k. Elements of 16 bits lie in two pieces of 32, which need not touch.
type Layout uint8

// Rows8 has each row of A or column of B with its 8 k. The others are of a row-major B: Columns8 has 8 columns at each k, Columns4 has 4 columns
// at each k in its first piece and the other 4 in its second (16 bits only).
const (
	Rows8 Layout = iota
	Columns4
	Columns8
	numLayouts
)

// Exps is the range of shared exponents among groups that hold a finite value other than zero; Lo > Hi if there is none.
type Exps struct{ Lo, Hi int }

// quickLo and quickHi bound the shared exponents that the kernels round without leaving float32's normal range.
const quickLo, quickHi = 24, 230

// callBlocks is how many blocks one call packs at most: it cannot be interrupted, and the slowest take some tens of nanoseconds a block.
const callBlocks = 512

// pieces gives where each call that n blocks take begins, and how many it packs.
func pieces(n int) iter.Seq2[int, int] {
	return func(yield func(at, n int) bool) {
		for at := 0; at < n; at += callBlocks {
			if !yield(at, min(callBlocks, n-at)) {
				return
			}
		}
	}
}

// PackA8 packs one micropanel of 8 rows: n blocks of 8 rows x 8 k, each of two pieces of 32 bytes (4 rows) half bytes apart, step bytes from block to
// block. dst takes 64 n bytes, 128 added to each.
func PackA8(dst, src []byte, half, step, n int) bool { return use.a8(dst, src, half, step, n) }

func (l levels) a8(dst, src []byte, half, step, n int) bool {
	if l.blocks == cpuinfo.Portable || n == 0 {
		return false
	}
	_, _ = dst[64*n-1], src[(n-1)*step+half+31]
	for at, n := range pieces(n) {
		packA8(l.blocks, dst[64*at:], src[at*step:], half, step, n)
	}
	return true
}

// PackB8 packs 8 columns of a panel w columns wide: n blocks of 64 bytes, step bytes apart. dst starts at the columns' first k. sums receives the
// columns' sums.
func PackB8(dst []int8, w int, src []byte, step, n int, layout Layout, sums *[8]int32) bool {
	return use.b8(dst, w, src, step, n, layout, sums)
}

func (l levels) b8(dst []int8, w int, src []byte, step, n int, layout Layout, sums *[8]int32) bool {
	if l.blocks == cpuinfo.Portable || n == 0 || layout == Columns4 {
		return false
	}
	_, _ = dst[(2*n-1)*4*w+31], src[(n-1)*step+63]
	*sums = [8]int32{}
	for at, n := range pieces(n) {
		var s [16]int32
		packB8(l.blocks, dst[8*w*at:], w, src[at*step:], step, n, layout, &s)
		for i := range sums {
			sums[i] += s[i] + s[i+8]
		}
	}
	return true
}

// PackA16 packs 8 rows of bf16, two micropanels panel values apart: n blocks of 8 rows x 8 k, each of two pieces of 64 bytes half bytes apart, step
// bytes from block to block.
func PackA16(dst []float32, panel int, src []byte, half, step, n int, layout Layout, q Quant) (Exps, bool) {
	return use.a16(dst, panel, src, half, step, n, layout, q)
}

func (l levels) a16(dst []float32, panel int, src []byte, half, step, n int, layout Layout, q Quant) (Exps, bool) {
	if l.blocks == cpuinfo.Portable || n == 0 {
		return Exps{}, false
	}
	_, _ = dst[panel+32*n-1], src[(n-1)*step+half+63]
	x := noExps
	for at, n := range pieces(n) {
		var e [32]uint32
		packA16(l.blocks, dst[32*at:], panel, src[at*step:], half, step, n, layout, q, &e)
		x.join(&e, q)
	}
	return x, x.quick()
}

// PackB16 packs 8 columns of bf16 of a panel w columns wide, from blocks as for PackA16. dst starts at the columns' first k.
func PackB16(dst []float32, w int, src []byte, half, step, n int, layout Layout, q Quant) (Exps, bool) {
	return use.b16(dst, w, src, half, step, n, layout, q)
}

func (l levels) b16(dst []float32, w int, src []byte, half, step, n int, layout Layout, q Quant) (Exps, bool) {
	if l.blocks == cpuinfo.Portable || n == 0 {
		return Exps{}, false
	}
	_, _ = dst[(8*n-1)*w+7], src[(n-1)*step+half+63]
	x := noExps
	for at, n := range pieces(n) {
		var e [32]uint32
		packB16(l.blocks, dst[8*w*at:], w, src[at*step:], half, step, n, layout, q, &e)
		x.join(&e, q)
	}
	return x, x.quick()
}

// noExps is the range of no exponent.
var noExps = Exps{255, 0}

// join widens the range by what a kernel recorded: the least and largest shared exponents in 16 lanes each.
func (x *Exps) join(e *[32]uint32, q Quant) {
	if q == Plain {
		return
	}
	for i := range 16 {
		x.Lo, x.Hi = min(x.Lo, int(e[i]>>23)), max(x.Hi, int(e[16+i]>>23))
	}
}

// quick says whether the kernels round groups of these exponents rightly.
func (x Exps) quick() bool { return x.Lo > x.Hi || x.Lo >= quickLo && x.Hi <= quickHi }
