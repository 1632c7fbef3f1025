package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/gonum"
	"gonum.org/v1/gonum/blas/testblas"
)

// narrow runs gonum's suite, which is written for float64, in float32. Its matrices and vectors are multiples of a tenth, so that
// ten times them are small integers, which float32 multiplies and adds exactly, and the suite's bound of 1e-14 holds.
type narrow struct{ Implementation }

func scale(x []float64, by float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(math.Round(v * by))
		if math.Abs(float64(y[i])-v*by) > 1e-9 {
			panic(fmt.Sprintf("%v is no multiple of 1/%v", v, by))
		}
	}
	return y
}

func widen(to []float64, from []float32, by float64) {
	for i, v := range from {
		to[i] = float64(v) / by
	}
}

func (n narrow) Dgemm(tA, tB blas.Transpose, m, nn, k int, alpha float64, a []float64, lda int, b []float64, ldb int, beta float64, c []float64, ldc int) {
	c32 := scale(c, 100)
	n.Sgemm(tA, tB, m, nn, k, float32(alpha), scale(a, 10), lda, scale(b, 10), ldb, float32(beta), c32, ldc)
	widen(c, c32, 100)
}

func (n narrow) Dgemv(tA blas.Transpose, m, nn int, alpha float64, a []float64, lda int, x []float64, incX int, beta float64, y []float64, incY int) {
	y32 := scale(y, 100)
	n.Sgemv(tA, m, nn, float32(alpha), scale(a, 10), lda, scale(x, 10), incX, float32(beta), y32, incY)
	widen(y, y32, 100)
}

func TestGonumSuite(t *testing.T) {
	for _, threads := range []int{0, 1, 3} {
		testblas.TestDgemm(t, narrow{Implementation{Threads: threads}})
		testblas.DgemvTest(t, narrow{Implementation{Threads: threads}})
	}
}

// TestSgemmAgainstFloat64: all forms, with rows further apart than they are long, which must stay as they are.
func TestSgemmAgainstFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {17, 33, 20}, {64, 31, 100}, {130, 70, 65}, {5, 4, 0}} {
		m, n, k := size[0], size[1], size[2]
		for form := range 4 {
			tA, tB := blas.NoTrans, blas.NoTrans
			rowsA, colsA, rowsB, colsB := m, k, k, n
			if form&1 != 0 {
				tA, rowsA, colsA = blas.Trans, k, m
			}
			if form&2 != 0 {
				tB, rowsB, colsB = blas.ConjTrans, n, k
			}
			lda, ldb, ldc := max(1, colsA)+3, max(1, colsB)+1, n+2
			a, b, c := random(rng, rowsA*lda), random(rng, rowsB*ldb), random(rng, m*ldc)
			at := func(i, p int) float64 {
				if form&1 != 0 {
					i, p = p, i
				}
				return float64(a[i*lda+p])
			}
			bt := func(p, j int) float64 {
				if form&2 != 0 {
					p, j = j, p
				}
				return float64(b[p*ldb+j])
			}
			for _, s := range [][2]float32{{1, 0}, {1, 1}, {-0.5, 2}, {0, 3}, {2, 0}} {
				alpha, beta := s[0], s[1]
				got := append([]float32(nil), c...)
				if beta == 0 {
					for i := range m {
						for j := range n {
							got[i*ldc+j] = float32(math.NaN()) // must not be read
						}
					}
				}
				Implementation{}.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, got, ldc)
				for i := range m {
					for j := range ldc {
						if j >= n {
							require.Equal(t, c[i*ldc+j], got[i*ldc+j], "between rows")
							continue
						}
						want, size := float64(beta)*float64(c[i*ldc+j]), math.Abs(float64(beta)*float64(c[i*ldc+j]))
						if beta == 0 {
							want, size = 0, 0
						}
						for p := range k {
							v := float64(alpha) * at(i, p) * bt(p, j)
							want += v
							size += math.Abs(v)
						}
						bound := (8 + 2*math.Sqrt(float64(k))) * size / (1 << 24)
						require.LessOrEqual(t, math.Abs(float64(got[i*ldc+j])-want), bound, "%v form %d alpha %v beta %v: %d, %d", size, form, alpha, beta, i, j)
					}
				}
			}
		}
	}
}

func random(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()*2 - 1
	}
	return x
}

// TestSgemvAgainstGonum: gonum's own result is the reference, in every direction and stride.
func TestSgemvAgainstGonum(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, size := range [][2]int{{1, 1}, {4, 9}, {33, 70}, {200, 65}} {
		m, n := size[0], size[1]
		for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
			for _, inc := range [][2]int{{1, 1}, {2, 3}, {-1, 2}, {1, -2}} {
				a, x, y := random(rng, m*(n+2)), random(rng, 3*max(m, n)), random(rng, 3*max(m, n))
				want := append([]float32(nil), y...)
				gonum.Implementation{}.Sgemv(tA, m, n, 1.5, a, n+2, x, inc[0], -0.5, want, inc[1])
				Implementation{}.Sgemv(tA, m, n, 1.5, a, n+2, x, inc[0], -0.5, y, inc[1])
				for i := range y {
					require.InDelta(t, want[i], y[i], 1e-4, "%v %c %v: %d", size, tA, inc, i)
				}
			}
		}
	}
}

// TestWrongCalls: what gonum refuses is refused in its words.
func TestWrongCalls(t *testing.T) {
	x := make([]float32, 100)
	message := func(f func()) (v any) {
		defer func() { v = recover() }()
		f()
		return nil
	}
	for i, call := range []func(blas.Float32){
		func(b blas.Float32) { b.Sgemm('X', blas.NoTrans, 2, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemm(blas.NoTrans, 'X', 2, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemm(blas.NoTrans, blas.NoTrans, -1, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemm(blas.NoTrans, blas.NoTrans, 2, 2, 2, 1, x, 1, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemm(blas.Trans, blas.NoTrans, 3, 2, 2, 1, x, 2, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemm(blas.NoTrans, blas.NoTrans, 2, 2, 2, 1, x, 2, x, 2, 0, x, 1) },
		func(b blas.Float32) { b.Sgemm(blas.NoTrans, blas.NoTrans, 11, 2, 10, 1, x, 10, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemm(blas.NoTrans, blas.NoTrans, 2, 2, 2, 1, x[:3], 2, x, 2, 0, x, 2) },
		func(b blas.Float32) { b.Sgemv(blas.Trans, 2, 2, 1, x, 2, x, 0, 0, x, 1) },
		func(b blas.Float32) { b.Sgemv(blas.Trans, 2, 2, 1, x, 1, x, 1, 0, x, 1) },
		func(b blas.Float32) { b.Sgemv(blas.Trans, 2, 2, 1, x, 2, x[:1], 1, 0, x, 1) },
		func(b blas.Float32) { b.Sgemv('X', 2, 2, 1, x, 2, x, 1, 0, x, 1) },
	} {
		want := message(func() { call(gonum.Implementation{}) })
		require.NotNil(t, want, "call %d", i)
		require.Equal(t, want, message(func() { call(Implementation{}) }), "call %d", i)
	}
	require.Contains(t, message(func() {
		Implementation{}.Sgemm(blas.NoTrans, blas.NoTrans, 2, 2, 2, 1, x, 2, x[50:], 2, 0, x, 2)
	}), "C overlaps A")
}

func Example() {
	blas32.Use(Implementation{})
	defer blas32.Use(gonum.Implementation{})
	a := blas32.General{Rows: 2, Cols: 2, Stride: 2, Data: []float32{1, 2, 3, 4}}
	c := blas32.General{Rows: 2, Cols: 2, Stride: 2, Data: make([]float32, 4)}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, a, a, 0, c)
	fmt.Println(c.Data)
	// Output: [5 11 11 25]
}

func BenchmarkSgemm(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 3))
	const n = 512
	x, y, z := random(rng, n*n), random(rng, n*n), make([]float32, n*n)
	for name, impl := range map[string]blas.Float32Level3{"engine": Implementation{Threads: 1}, "gonum": gonum.Implementation{}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				impl.Sgemm(blas.NoTrans, blas.NoTrans, n, n, n, 1, x, n, y, n, 0, z, n)
			}
			b.ReportMetric(2*n*n*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func BenchmarkSgemv(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 3))
	const n = 1024
	x, y, z := random(rng, n*n), random(rng, n), make([]float32, n)
	for _, t := range []blas.Transpose{blas.NoTrans, blas.Trans} {
		for name, impl := range map[string]blas.Float32Level2{"engine": Implementation{Threads: 1}, "gonum": gonum.Implementation{}} {
			b.Run(fmt.Sprintf("%c/%s", t, name), func(b *testing.B) {
				for b.Loop() {
					impl.Sgemv(t, n, n, 1, x, n, y, 1, 0, z, 1)
				}
				b.ReportMetric(4*n*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
			})
		}
	}
}
