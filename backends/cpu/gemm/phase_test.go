package gemm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestPhases(t *testing.T) {
	if os.Getenv("TESSERA_SPEED") == "" {
		t.Skip("set TESSERA_SPEED=1 to measure")
	}
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{64, 256, 512, 1024} {
		x, y, z := floats(r, n*n), floats(r, n*n), make([]float32, n*n)
		o := &Options{Threads: 1}
		p, _ := PackB(Of(y, n, n), o)
		ws, _ := NewWorkspace(1 << 24)
		o.Workspace = ws
		A := Of(x, n, n)
		kern := find(isas()[len(isas())-1], aF32, format{F32, 0, 1})
		cut := product{kern: kern, height: kern.mr}
		cut.cutRows(n)
		tests := []struct {
			name string
			f    func()
		}{
			{"whole", func() { MulPacked(Of(z, n, n), A, p, o) }},
			{"packA", func() {
				for s := range cut.strips {
					row, h := cut.strip(s)
					packStrip(unsafe.Add(ws.at(0), cut.packedRow(s)*n*4), &A, kern, row, h, 0, n)
				}
			}},
			{"packB", func() {
				for j := 0; j < n; j += 32 {
					B := Of(y, n, n)
					packPanelB(ws.at(j*n*4), &B, kern.b, j, 0, n)
				}
			}},
			{"packBT", func() {
				for j := 0; j < n; j += 32 {
					B := Of(y, n, n).T()
					packPanelB(ws.at(j*n*4), &B, kern.b, j, 0, n)
				}
			}},
			{"plain", func() { Mul(Of(z, n, n), A, Of(y, n, n), o) }},
		}
		fmt.Printf("%d^3 ideal %.1f us", n, float64(n*n*n)/32/2.75e3)
		for _, c := range tests {
			var d []float64
			for range 100 {
				reps := max(1, 1<<20/(n*n*n))
				t0 := time.Now()
				for range reps {
					c.f()
				}
				d = append(d, time.Since(t0).Seconds()*1e6/float64(reps))
			}
			slices.Sort(d)
			fmt.Printf("  %s %.2f/%.2f", c.name, d[0], d[50])
		}
		fmt.Println()
	}
}
