// Package gonumblas lets programs that use gonum multiply float32 matrices with the product engine:
//
//	blas32.Use(gonumblas.Implementation{})
//
// Sgemm and Sgemv are the engine's; everything else is gonum's own. The engine's results have the same bits for any number of
// workers. Unlike gonum's, they keep the NaN of a product of zero and NaN; and an output that overlaps an input is refused, by a
// panic, as wrong arguments are.
package gonumblas

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
)

// Implementation is gonum's with the products replaced. The zero value is ready.
type Implementation struct {
	gonum.Implementation
	Threads int // workers of a product at most; 0 means GOMAXPROCS
}

var (
	_ blas.Float32Level1 = Implementation{}
	_ blas.Float32Level2 = Implementation{}
	_ blas.Float32Level3 = Implementation{}
)

// transposed reports whether t asks for the transpose, and whether it is legal.
func transposed(t blas.Transpose) (yes, legal bool) {
	return t == blas.Trans || t == blas.ConjTrans, t == blas.NoTrans || t == blas.Trans || t == blas.ConjTrans
}

// fits reports whether rows of cols elements, ld apart, lie in a slice of so many.
func fits(rows, cols, ld, length int) bool {
	if rows < 0 || cols < 0 || ld < max(1, cols) {
		return false
	}
	if rows == 0 || cols == 0 {
		return true
	}
	return (length-cols)/ld >= rows-1 && length >= cols
}

// Sgemm computes C = alpha op(A) op(B) + beta C, all row-major; op(A) is m x k, op(B) k x n. With beta 0, C is not read.
func (i Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	aT, ok1 := transposed(tA)
	bT, ok2 := transposed(tB)
	rowsA, colsA, rowsB, colsB := m, k, k, n
	if aT {
		rowsA, colsA = k, m
	}
	if bT {
		rowsB, colsB = n, k
	}
	if !ok1 || !ok2 || !fits(rowsA, colsA, lda, len(a)) || !fits(rowsB, colsB, ldb, len(b)) || !fits(m, n, ldc, len(c)) {
		// gonum says what is wrong, in its own words; and it lets alpha 0 pass with operands that are not read.
		i.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	if m == 0 || n == 0 || (alpha == 0 || k == 0) && beta == 1 {
		return
	}
	A, B := gemm.View(a, rowsA, colsA, lda, 1), gemm.View(b, rowsB, colsB, ldb, 1)
	if aT {
		A = A.T()
	}
	if bT {
		B = B.T()
	}
	i.multiply(alpha, A, B, beta, gemm.View(c, m, n, ldc, 1))
}

func (i Implementation) multiply(alpha float32, a, b gemm.Matrix, beta float32, c gemm.Matrix) {
	if err := gemm.MulAdd(alpha, a, b, beta, c, &gemm.Options{Threads: i.Threads}); err != nil {
		panic("gonumblas: " + err.Error())
	}
}

// Sgemv computes y = alpha op(A) x + beta y for a row-major A of m x n. With beta 0, y is not read.
func (i Implementation) Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	aT, legal := transposed(tA)
	out, in := m, n
	if aT {
		out, in = n, m
	}
	if !legal || incX < 1 || incY < 1 || !fits(m, n, lda, len(a)) || !fits(in, 1, incX, len(x)) || !fits(out, 1, incY, len(y)) || !aT {
		// Wrong arguments, vectors that run backwards; and dot products along the rows of A, which gonum reads in place.
		i.Implementation.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	if m == 0 || n == 0 || alpha == 0 && beta == 1 {
		return
	}
	// The row y = x A: A is read in the order in which it lies.
	i.multiply(alpha, gemm.View(x, 1, m, 1, incX), gemm.View(a, m, n, lda, 1), beta, gemm.View(y, 1, n, 1, incY))
}
