package gemm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// TestSpeed prints best and median rates beside the peak of the run: TESSERA_SPEED=1 go test -run TestSpeed -v.
func TestSpeed(t *testing.T) {
	if os.Getenv("TESSERA_SPEED") == "" {
		t.Skip("set TESSERA_SPEED=1 to measure")
	}
	sizes := [][3]int{{64, 64, 64}, {256, 256, 256}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {1, 4096, 4096}, {8, 4096, 4096}, {128, 4096, 4096}, {37, 511, 129}, {1000, 1000, 1000}}
	for _, s := range sizes {
		m, n, k := s[0], s[1], s[2]
		r := rand.New(rand.NewPCG(1, 1))
		x, y, z := floats(r, m*k), floats(r, k*n), make([]float32, m*n)
		for _, threads := range []int{1, 2} {
			o := &Options{Threads: threads}
			p, _ := PackB(Of(y, k, n), o)
			fmt.Printf("%4dx%dx%d t%d:", m, n, k, threads)
			for _, how := range []string{"packed", "plain"} {
				if threads == 2 && how == "plain" {
					continue
				}
				var d []float64
				end := time.Now().Add(400 * time.Millisecond)
				for len(d) < 5 || time.Now().Before(end) {
					reps := max(1, 1000000/(m*n*k))
					t0 := time.Now()
					for range reps {
						if how == "packed" {
							_ = MulPacked(Of(z, m, n), Of(x, m, k), p, o)
						} else {
							_ = Mul(Of(z, m, n), Of(x, m, k), Of(y, k, n), o)
						}
					}
					d = append(d, 2*float64(m*n*k)*float64(reps)/time.Since(t0).Seconds()/1e9)
				}
				slices.Sort(d)
				fmt.Printf("  %s best %.1f median %.1f", how, d[len(d)-1], d[len(d)/2])
			}
			fmt.Println()
		}
	}
}
