package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/testblas"
)

// blas32 gives MulAdd the form of BLAS, through float32: gonum's cases are small integers and halves, which float32 holds.
type blas32 struct {
	t *testing.T
	o *Options
}

func (b blas32) Dgemm(tA, tB blas.Transpose, m, n, k int, alpha float64, a []float64, lda int, bb []float64, ldb int, beta float64, c []float64, ldc int) {
	narrow := func(x []float64) []float32 {
		y := make([]float32, len(x))
		for i, v := range x {
			y[i] = float32(v)
		}
		return y
	}
	A, B := View(narrow(a), m, k, lda, 1), View(narrow(bb), k, n, ldb, 1)
	if tA != blas.NoTrans {
		A = View(narrow(a), k, m, lda, 1).T()
	}
	if tB != blas.NoTrans {
		B = View(narrow(bb), n, k, ldb, 1).T()
	}
	out := narrow(c)
	require.NoError(b.t, MulAdd(float32(alpha), A, B, float32(beta), View(out, m, n, ldc, 1), b.o))
	for i, v := range out {
		c[i] = float64(v)
	}
}

func TestGonumBLAS(t *testing.T) {
	for _, isa := range isas() {
		testblas.TestDgemm(t, blas32{t, &Options{ISA: isa}})
	}
}

// alpha and beta: 0 leaves its operand unread, 1 is exact, others round once for each product.
func TestAlphaBeta(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	nan := float32(math.NaN())
	for _, isa := range isas() {
		for _, s := range edgeShapes(r, 12) {
			m, n, k := s[0], s[1], s[2]
			a, b, old := operand(r, F32, m, k), operand(r, F32, k, n), floats(r, m*n)
			sum := refFloat(a, b)
			for _, alpha := range []float32{0, 1, -1, 0.3} {
				for _, beta := range []float32{0, 1, -1, 0.7} {
					c := append([]float32{}, old...)
					if beta == 0 {
						for i := range c {
							c[i] = nan
						}
					}
					A, B := a, b
					if alpha == 0 {
						A, B = View([]float32{nan}, m, k, 0, 0), View([]float32{nan}, k, n, 0, 0)
					}
					require.NoError(t, MulAdd(alpha, A, B, beta, Of(c, m, n), &Options{ISA: isa}))
					if alpha == 1 && beta == 1 { // the chain of sums starts from C
						want := append([]float32{}, old...)
						chains(a, b, want)
						equal(t, want, c, "%v %v", isa, s)
						continue
					}
					for i := range c {
						want := float32(0)
						if alpha != 0 {
							want = alpha * sum[i]
						}
						if beta != 0 {
							want += float32(beta * old[i])
						}
						if c[i] != want {
							t.Fatalf("%v %v alpha %v beta %v: element %d is %v, want %v", isa, s, alpha, beta, i, c[i], want)
						}
					}
				}
			}
		}
	}
}

// The same for all types, where integers are exact: in any order, with sums that start from C or join it.
func TestAlphaBetaOfAllTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	for _, isa := range isas() {
		for _, ty := range pairs {
			for _, s := range append(edgeShapes(r, 6), [3]int{60, 70, 64}) {
				m, n, k := s[0], s[1], s[2]
				a, b := operand(r, ty.a, m, k), operand(r, ty.b, k, n)
				small(r, a)
				small(r, b)
				sums := refInt(a, b, 0)
				o := &Options{ISA: isa, BF16: ty.mode}
				for _, alpha := range []float32{0, 1, -2} {
					for _, beta := range []float32{0, 1, 3} {
						for _, columns := range []bool{false, true} {
							old, c := Of(make([]float32, m*n), m, n), Of(make([]float32, m*n), m, n)
							if columns {
								c = Of(make([]float32, m*n), n, m).T()
							}
							small(r, old)
							for i := range m {
								for j := range n {
									*(*float32)(c.at(i, j)) = old.value(i, j)
								}
							}
							require.NoError(t, MulAdd(alpha, a, b, beta, c, o))
							for i := range m {
								for j := range n {
									want := alpha*float32(sums[i*n+j]) + beta*old.value(i, j)
									if got := c.value(i, j); got != want {
										t.Fatalf("%v %v x %v, %v, alpha %v, beta %v, columns %v: element %d, %d is %v, want %v", isa, ty.a, ty.b, s, alpha, beta, columns, i, j, got, want)
									}
								}
							}
						}
					}
				}
			}
		}
	}
}
