package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkSmall measures products whose fixed costs show: f32, bf16 and s8, packed and plain, one thread.
func BenchmarkSmall(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	o := &Options{Threads: 1}
	for _, s := range [][3]int{{4, 4, 4}, {16, 16, 16}, {64, 64, 64}, {37, 129, 511}} {
		m, n, k := s[0], s[1], s[2]
		for _, typ := range []Type{F32, BF16, S8} {
			var A, B, C Matrix
			switch typ {
			case F32:
				A, B, C = Of(floats(r, m*k), m, k), Of(floats(r, k*n), k, n), Of(make([]float32, m*n), m, n)
			case BF16:
				A, B, C = Of(bf16s(r, m*k), m, k), Of(bf16s(r, k*n), k, n), Of(make([]float32, m*n), m, n)
			default:
				A, B, C = Of(ints8(r, m*k), m, k), Of(ints8(r, k*n), k, n), Of(make([]int32, m*n), m, n)
			}
			p, _ := PackB(B, o)
			run := func(name string, f func() error) {
				b.Run(fmt.Sprintf("%v-%dx%dx%d-%s", typ, m, n, k, name), func(b *testing.B) {
					for b.Loop() {
						if err := f(); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
				})
			}
			run("packed", func() error { return MulPacked(C, A, p, o) })
			run("plain", func() error { return Mul(C, A, B, o) })
		}
	}
}
