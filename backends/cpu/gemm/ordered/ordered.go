package ordered

import "github.com/tessera-go/tessera/internal/cpuinfo"

// Micropanel heights: rows of A that one kernel call takes.
const (
	MR   = 4 // F32
	MRS8 = 8 // S8
)

// Narrow is what happens to the accumulators after each chunk.
type Narrow uint8

// Narrowing modes. BF16Even rounds to bfloat16 to nearest even, BF16Floor towards minus infinity; accumulators stay float32 with
// the low 16 bits zero. A NaN stays a NaN.
const (
	Keep Narrow = iota
	BF16Even
	BF16Floor
)

// PaddedN is the number of columns that n columns take in panels: the length of a row of C's scratch.
func PaddedN(n int) int {
	wide, narrow := Panels(n)
	return 48*wide + 32*narrow
}

// Panels is how n columns of B are cut: first wide panels of 48, then narrow ones of 32. A panel of width w holds, for each k in turn, w values
// (for S8: for each group of 4 k, w times 4 values); the first panel starts at 0 and each begins where the one before ends. Columns beyond n are zero.
func Panels(n int) (wide, narrow int) {
	q := (n + 15) / 16
	switch {
	case q == 0:
		return 0, 0
	case q == 1:
		return 0, 1
	case q%3 == 0:
		return q / 3, 0
	case q%3 == 2:
		return q / 3, 1
	}
	return (q - 4) / 3, 2
}

// PaddedM is the number of rows that m rows take in micropanels of mr.
func PaddedM(m, mr int) int { return (m + mr - 1) / mr * mr }

// What one call of a kernel does at most: it cannot be interrupted, so that each is to take some tens of microseconds, whatever k is.
const (
	callSteps   = 1024          // k of F32, whole groups: 192 KiB of a panel of B
	callStepsS8 = 4 * callSteps // k of S8, as many bytes
	chunkSteps  = 8             // k that take the time of a narrowing
)

// The kernels of tiles, which a test of their calls replaces.
var callF32, callS8 = tileF32, tileS8

// piecesF32 computes a tile in calls of whole chunks or, where a chunk is too long for one, of parts of it: sums wait in C between them, where they are what the
// registers hold, and only the last part of a chunk narrows.
func piecesF32(isa cpuinfo.ISA, c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
	if chunks*max(k, chunkSteps) <= callSteps { // nearly all tiles: no division
		callF32(isa, c, ldc, a, b, w, chunks, k, groups, narrow)
		return
	}
	for n := 0; chunks > 0; chunks -= n {
		n = min(chunks, max(callSteps/max(k, chunkSteps), 1))
		rest := k
		for ; rest > callSteps; rest -= callSteps {
			callF32(isa, c, ldc, a, b, w, 1, callSteps, groups, Keep)
			a, b = a[MR*callSteps:], b[w*callSteps:]
		}
		callF32(isa, c, ldc, a, b, w, n, rest, groups, narrow)
		if n < chunks && k > 0 {
			a, b = a[MR*n*rest:], b[w*n*rest:]
		}
	}
}

// noBias is the bias of all pieces of k but the first.
var noBias [48]int32

// piecesS8 computes a tile in calls of a part of k each.
func piecesS8(isa cpuinfo.ISA, c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
	for ; k > callStepsS8; k -= callStepsS8 {
		callS8(isa, c, ldc, a, b, bias, w, callStepsS8)
		a, b, bias = a[MRS8*callStepsS8:], b[w*callStepsS8:], noBias[:]
	}
	callS8(isa, c, ldc, a, b, bias, w, k)
}

// F32 computes C += A x B in chunks of k, narrowing after each.
//
// A is [PaddedM(m,MR)/MR][chunks*k][MR], with micropanels lda values apart. B is panels of [chunks*k][width], ldb values apart per column (so that
// panel j0 starts at j0*ldb); a caller with longer panels than chunks*k passes their length as ldb. C is [PaddedM(m,MR)][ldc], ldc at least PaddedN(n).
//
// Without groups every accumulator takes one fused multiply-add per k, ascending. With groups, k is a multiple of 8 and every 8 products are summed
// from zero first and then added; that sum is the caller's to keep exact.
func F32(c []float32, ldc int, a []float32, lda int, b []float32, ldb int, m, n, chunks, k int, groups bool, narrow Narrow) {
	if m <= 0 || n <= 0 || chunks <= 0 {
		return
	}
	wide, slim := Panels(n)
	depth := chunks * k
	rows := PaddedM(m, MR)
	// The last element that each operand must have; slices are checked here once because the kernels take pointers.
	_ = c[(rows-1)*ldc+PaddedN(n)-1]
	if depth > 0 {
		_ = a[(rows/MR-1)*lda+MR*depth-1]
		if slim > 0 {
			_ = b[(48*wide+32*(slim-1))*ldb+32*depth-1]
		} else {
			_ = b[48*(wide-1)*ldb+48*depth-1]
		}
	}
	j := 0
	for p := range wide + slim {
		w := 48
		if p >= wide {
			w = 32
		}
		for i := 0; i < rows; i += MR {
			var pa, pb []float32
			if depth > 0 {
				pa, pb = a[i/MR*lda:], b[j*ldb:]
			}
			piecesF32(use.f32, c[i*ldc+j:], ldc, pa, pb, w, chunks, k, groups, narrow)
		}
		j += w
	}
}

// S8 computes C += A x B modulo 2^32 for int8 operands. k is a multiple of 4.
//
// A is [PaddedM(m,MRS8)/MRS8][k/4][MRS8][4] bytes with 128 added to each value (so that it is unsigned), packed by the caller, lda bytes between
// micropanels. B is panels of [k/4][width][4] signed bytes, ldb bytes per column. C is [PaddedM(m,MRS8)][ldc]; bias is what the 128 added to A contributes,
// -128 times the sum of each column of B, [PaddedN(n)].
func S8(c []int32, ldc int, a []byte, lda int, b []int8, ldb int, bias []int32, m, n, k int) {
	if m <= 0 || n <= 0 || k <= 0 {
		return
	}
	wide, slim := Panels(n)
	rows := PaddedM(m, MRS8)
	_ = c[(rows-1)*ldc+PaddedN(n)-1]
	_ = bias[PaddedN(n)-1]
	_ = a[(rows/MRS8-1)*lda+MRS8*k-1]
	if slim > 0 {
		_ = b[(48*wide+32*(slim-1))*ldb+32*k-1]
	} else {
		_ = b[48*(wide-1)*ldb+48*k-1]
	}
	j := 0
	for p := range wide + slim {
		w := 48
		if p >= wide {
			w = 32
		}
		for i := 0; i < rows; i += MRS8 {
			piecesS8(use.s8, c[i*ldc+j:], ldc, a[i/MRS8*lda:], b[j*ldb:], bias[j:], w, k)
		}
		j += w
	}
}
