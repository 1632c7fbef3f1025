package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// BenchmarkPhases measures the packing of A and of B, by rows and by columns, beside the products that need it.
func BenchmarkPhases(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	kern := find(isas()[len(isas())-1], aF32, format{F32, 0, 1})
	nr := kern.b.nr
	for _, n := range []int{64, 256, 512, 1024} {
		x, y, z := floats(r, n*n), floats(r, n*n), make([]float32, n*n)
		A, B, C := Of(x, n, n), Of(y, n, n), Of(z, n, n)
		o := &Options{Threads: 1}
		p, err := PackB(B, o)
		if err != nil {
			b.Fatal(err)
		}
		cut := product{kern: kern, height: kern.mr}
		cut.cutRows(n)
		ws, err := NewWorkspace(4 * n * max(cut.packedRow(cut.strips), roundUp(n, nr))) // strips and panels are padded
		if err != nil {
			b.Fatal(err)
		}
		panels := func(B Matrix) func() error {
			return func() error {
				for j := 0; j < n; j += nr {
					packPanelB(ws.at(j*n*4), &B, kern.b, j, 0, n)
				}
				return nil
			}
		}
		for _, c := range []struct {
			name string
			f    func() error
		}{
			{"packA", func() error {
				for s := range cut.strips {
					row, h := cut.strip(s)
					packStrip(unsafe.Add(ws.at(0), cut.packedRow(s)*n*4), &A, kern, row, h, 0, n)
				}
				return nil
			}},
			{"packB", panels(B)},
			{"packBT", panels(B.T())},
			{"packed", func() error { return MulPacked(C, A, p, o) }},
			{"plain", func() error { return Mul(C, A, B, o) }},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, c.name), func(b *testing.B) {
				for b.Loop() {
					if err := c.f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
