package qgemm

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/tensor"
)

// BenchmarkOneRow gives the rate at which products of one row read weights that are in no cache: 192 MB of them take turns, in matrices
// of the size that a layer of a small model has, or of a large vocabulary.
func BenchmarkOneRow(b *testing.B) {
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K} {
		for _, size := range [][2]int{{768, 768}, {2048, 768}, {32000, 768}, {4096, 4096}} {
			b.Run(fmt.Sprintf("%v/%dx%d", d, size[0], size[1]), func(b *testing.B) {
				n, k := size[0], size[1]
				row := k / d.Block() * d.Size()
				data := make([]byte, n*row)
				for i := range data {
					data[i] = byte(i * 7)
				}
				var list []*Packed
				for total := 0; total < 192<<20; {
					p, err := Pack(d, data, row, n, k, nil)
					require.NoError(b, err)
					list = append(list, p)
					total += p.Bytes()
				}
				a, c := make([]float32, k), make([]float32, n)
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
						r := Run{A: a, LDA: k, C: c, LDC: n, M: 1, Threads: threads}
						for i := range b.N {
							if err := list[i%len(list)].Mul(context.Background(), &r); err != nil {
								b.Fatal(err)
							}
						}
						b.ReportMetric(float64(list[0].Bytes())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
					})
				}
				for _, p := range list {
					_ = p.Close()
				}
			})
		}
	}
}

// BenchmarkLayers gives the rate at which the products of a token's layers read weights, one after the other, or those of one value together.
func BenchmarkLayers(b *testing.B) {
	const dim, hidden, layers = 768, 2048, 16
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0} {
		var steps [][]*Packed // weights of one value
		bytes := 0
		for range layers {
			for _, s := range [][3]int{{3, dim, dim}, {1, dim, dim}, {2, hidden, dim}, {1, dim, hidden}} {
				var step []*Packed
				for range s[0] {
					row := s[2] / d.Block() * d.Size()
					p, err := Pack(d, make([]byte, s[1]*row), row, s[1], s[2], nil)
					require.NoError(b, err)
					step, bytes = append(step, p), bytes+p.Bytes()
				}
				steps = append(steps, step)
			}
		}
		a := make([]float32, hidden)
		runs := []*Run{{A: a, M: 1, C: make([]float32, hidden)}, {A: a, M: 1, C: make([]float32, hidden)}, {A: a, M: 1, C: make([]float32, hidden)}}
		for _, threads := range []int{1, 2} {
			for _, together := range []bool{false, true} {
				b.Run(fmt.Sprintf("%v/threads=%d/together=%t", d, threads, together), func(b *testing.B) {
					for range b.N {
						for i, step := range steps {
							for j, p := range step {
								r := runs[j]
								r.LDA, r.LDC, r.Threads, r.Source = p.K(), p.N(), threads, Source{1, uint64(i)}
								if !together {
									require.NoError(b, p.Mul(context.Background(), r))
								}
							}
							if together {
								require.NoError(b, MulTogether(context.Background(), step, runs[:len(step)]))
							}
						}
					}
					b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
		for _, step := range steps {
			for _, p := range step {
				_ = p.Close()
			}
		}
	}
}

// BenchmarkRows gives the rate at which products of one row read weights that are not packed and in no cache, in bytes of the file.
func BenchmarkRows(b *testing.B) {
	for _, d := range types() {
		const n, k = 2048, 768
		row := k / d.Block() * d.Size()
		var list []*Packed
		for total := 0; total < 192<<20; total += n * row {
			data := make([]byte, n*row)
			for i := range data {
				data[i] = byte(i & 3)
			}
			p, err := Rows(d, data, row, n, k)
			require.NoError(b, err)
			list = append(list, p)
		}
		a, c := make([]float32, k), make([]float32, n)
		b.Run(d.String(), func(b *testing.B) {
			r := Run{A: a, LDA: k, C: c, LDC: n, M: 1, Threads: 1}
			b.SetBytes(int64(n * row))
			for i := range b.N {
				if err := list[i%len(list)].Mul(context.Background(), &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFewRows gives the rate at which products of few rows, such as those of several sequences or of drafted tokens, read weights that
// no cache holds. Where it is that of one row, the other rows are free.
func BenchmarkFewRows(b *testing.B) {
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K} {
		const n, k = 4096, 4096
		row := k / d.Block() * d.Size()
		data := make([]byte, n*row)
		for i := range data {
			data[i] = byte(i * 7)
		}
		var list []*Packed
		for total := 0; total < 128<<20; {
			p, err := Pack(d, data, row, n, k, nil)
			require.NoError(b, err)
			list = append(list, p)
			total += p.Bytes()
		}
		for _, m := range []int{1, 2, 3, 4, 5, 6, 8, 12, 16, 32} {
			a, c := make([]float32, m*k), make([]float32, m*n)
			b.Run(fmt.Sprintf("%v/rows=%d", d, m), func(b *testing.B) {
				r := Run{A: a, LDA: k, C: c, LDC: n, M: m, Threads: 1}
				for i := range b.N {
					if err := list[i%len(list)].Mul(context.Background(), &r); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(list[0].Bytes())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				b.ReportMetric(2*float64(m*n*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
			})
		}
		for _, p := range list {
			_ = p.Close()
		}
	}
}

// BenchmarkPack gives the rate at which a weight is packed, in bytes of the file, with fresh memory for the panels each time.
func BenchmarkPack(b *testing.B) {
	for _, d := range types() {
		const n, k = 2048, 2048
		row := k / d.Block() * d.Size()
		data := make([]byte, n*row)
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%v/threads=%d", d, threads), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					p, err := Pack(d, data, row, n, k, &Options{Threads: threads})
					require.NoError(b, err)
					_ = p.Close()
				}
			})
		}
	}
}
