package ordered

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

// Order says which word of two 64-byte pieces stands where: output word i of 64, k-major (k 0 rows 0 to 7, k 1 rows 0 to 7, ...), is word Order[i] of
// the 64 input words.
type Order [64]uint16

// Exps is the range of shared exponents among groups that hold a finite value other than zero; Lo > Hi if there is none.
type Exps struct{ Lo, Hi int }

// quickLo and quickHi bound the shared exponents that the kernels round without leaving float32's normal range.
const quickLo, quickHi = 24, 230

// Bytes8 is where the bytes of an 8 x 8 block go in a panel of S8: output byte i is byte Bytes8[i]. The first 32 bytes are k 0 to 3 of 8 columns,
// the others k 4 to 7.
type Bytes8 [64]byte

// RowsOf8 is the order of a block whose rows are columns of B (or rows of A) with 8 consecutive k each.
var RowsOf8 = func() (b Bytes8) {
	for i := range b {
		half, row, q := i/32, i/4%8, i%4
		b[i] = byte(8*row + 4*half + q)
	}
	return b
}()

// KRowsOf8 is the order of a block whose rows are 8 columns at one k.
var KRowsOf8 = func() (b Bytes8) {
	for i := range b {
		half, col, q := i/32, i/4%8, i%4
		b[i] = byte(8*(4*half+q) + col)
	}
	return b
}()

// PackA8 packs one micropanel of 8 rows: n blocks of 8 rows x 8 k, each of two pieces of 32 bytes (4 rows) half bytes apart, step bytes from block to
// block. dst takes 64 n bytes, 128 added to each.
func PackA8(dst, src []byte, half, step, n int) bool {
	if !haveBlocks || n == 0 {
		return false
	}
	_, _ = dst[64*n-1], src[(n-1)*step+half+31]
	packA8(&dst[0], &src[0], half, step, n)
	return true
}

// PackB8 packs 8 columns of a panel w columns wide: n blocks of 64 bytes, step bytes apart. dst starts at the columns' first k. sums receives the
// columns' sums.
func PackB8(dst []int8, w int, src []byte, step, n int, order *Bytes8, sums *[8]int32) bool {
	if !haveBlocks || n == 0 {
		return false
	}
	_, _ = dst[(2*n-1)*4*w+31], src[(n-1)*step+63]
	var s [16]int32
	packB8(&dst[0], 4*w, &src[0], step, n, order, &s)
	for i := range sums {
		sums[i] = s[i] + s[i+8]
	}
	return true
}

// PackA16 packs 8 rows of bf16, two micropanels panel values apart: n blocks of 8 rows x 8 k, each of two pieces of 64 bytes half bytes apart, step
// bytes from block to block.
func PackA16(dst []float32, panel int, src []byte, half, step, n int, order *Order, q Quant) (Exps, bool) {
	if !haveBlocks || n == 0 {
		return Exps{}, false
	}
	_, _ = dst[panel+32*n-1], src[(n-1)*step+half+63]
	var e [32]uint32
	packA16(&dst[0], 4*panel, &src[0], half, step, n, order, int(q), &e)
	return exps(&e, q)
}

// PackB16 packs 8 columns of bf16 of a panel w columns wide, from blocks as for PackA16. dst starts at the columns' first k.
func PackB16(dst []float32, w int, src []byte, half, step, n int, order *Order, q Quant) (Exps, bool) {
	if !haveBlocks || n == 0 {
		return Exps{}, false
	}
	_, _ = dst[(8*n-1)*w+7], src[(n-1)*step+half+63]
	var e [32]uint32
	packB16(&dst[0], 4*w, &src[0], half, step, n, order, int(q), &e)
	return exps(&e, q)
}

// exps reduces what the kernel recorded: the least and largest shared exponents in 16 lanes each.
func exps(e *[32]uint32, q Quant) (Exps, bool) {
	x := Exps{255, 0}
	if q == Plain {
		return x, true
	}
	for i := range 16 {
		x.Lo, x.Hi = min(x.Lo, int(e[i]>>23)), max(x.Hi, int(e[16+i]>>23))
	}
	return x, x.Lo > x.Hi || x.Lo >= quickLo && x.Hi <= quickHi
}
