package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/fma"
)

// isas returns the levels that this process may use.
func isas() []cpuinfo.ISA {
	pin, err := cpuinfo.Pinned()
	if err != nil {
		panic(err)
	}
	var list []cpuinfo.ISA
	for _, i := range cpuinfo.Get().ISAs {
		if i <= pin {
			list = append(list, i)
		}
	}
	return list
}

// equal demands the same elements. Package require compares by reflection, which takes as long as small products do, and under emulation longer.
func equal[T comparable](t *testing.T, want, got []T, msg ...any) {
	if !slices.Equal(want, got) {
		t.Helper()
		require.Equal(t, want, got, msg...)
		t.FailNow() // where only the bits of a zero or NaN differ
	}
}

func floats(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.Float32()*2 - 1
	}
	return v
}

// chain is the definition of the product: one fused chain of ascending k.
func chain(c []float32, ldc, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, acc bool) {
	for i := range m {
		for j := range n {
			var s float32
			if acc {
				s = c[i*ldc+j]
			}
			for t := range k {
				s = fma.F32(a[i*ars+t*acs], b[t*brs+j*bcs], s)
			}
			c[i*ldc+j] = s
		}
	}
}

func TestProductF32(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ms := []int{1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 29, 50}
	ns := []int{1, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 200}
	ks := []int{1, 2, 3, 4, 5, 7, 8, 31, 130}
	for _, isa := range isas() {
		for _, m := range ms {
			for _, n := range ns {
				k := ks[r.IntN(len(ks))]
				name := fmt.Sprintf("%v %dx%dx%d", isa, m, n, k)
				pad := r.IntN(4)
				a := floats(r, m*(k+pad)+1)[1:]
				b := floats(r, k*(n+pad)+1)[1:]
				bt := make([]float32, n*(k+pad))
				for j := range n {
					for t := range k {
						bt[j*(k+pad)+t] = b[t*(n+pad)+j]
					}
				}
				c0 := floats(r, m*(n+pad))
				for _, acc := range []bool{false, true} {
					want := append([]float32(nil), c0...)
					chain(want, n+pad, m, n, k, a, k+pad, 1, b, n+pad, 1, acc)
					A := View(a, m, k, k+pad, 1)
					B := View(b, k, n, n+pad, 1)
					BT := View(bt, k, n, 1, k+pad)
					for _, threads := range []int{1, 3} {
						o := &Options{ISA: isa, Accumulate: acc, Threads: threads}
						got := append([]float32(nil), c0...)
						require.NoError(t, Mul(View(got, m, n, n+pad, 1), A, B, o))
						equal(t, want, got, "plain %s", name)
						copy(got, c0)
						require.NoError(t, Mul(View(got, m, n, n+pad, 1), A, BT, o))
						equal(t, want, got, "transposed B %s", name)
						p, err := PackB(BT, o)
						require.NoError(t, err)
						copy(got, c0)
						require.NoError(t, MulPacked(View(got, m, n, n+pad, 1), A, p, o))
						equal(t, want, got, "packed %s", name)
					}
				}
			}
		}
	}
}

func BenchmarkF32(b *testing.B) {
	for _, s := range [][3]int{{64, 64, 64}, {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {1, 4096, 4096}, {8, 4096, 4096}, {128, 4096, 4096}, {37, 511, 129}, {1000, 1000, 1000}} {
		m, n, k := s[0], s[1], s[2]
		r := rand.New(rand.NewPCG(1, 1))
		x, y, z := floats(r, m*k), floats(r, k*n), make([]float32, m*n)
		for _, isa := range isas()[1:] {
			o := &Options{Threads: 1, ISA: isa}
			p, _ := PackB(Of(y, k, n), o)
			for _, how := range []string{"packed", "plain"} {
				b.Run(fmt.Sprintf("%v/%dx%dx%d/%s", isa, m, n, k, how), func(b *testing.B) {
					for b.Loop() {
						if how == "packed" {
							_ = MulPacked(Of(z, m, n), Of(x, m, k), p, o)
						} else {
							_ = Mul(Of(z, m, n), Of(x, m, k), Of(y, k, n), o)
						}
					}
					b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
				})
			}
		}
	}
}
