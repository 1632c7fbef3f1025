package ordered

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
			tileF32(use.f32, c[i*ldc+j:], ldc, pa, pb, w, chunks, k, groups, narrow)
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
			tileS8(use.s8, c[i*ldc+j:], ldc, a[i/MRS8*lda:], b[j*ldb:], bias[j:], w, k)
		}
		j += w
	}
}
