//go:build amd64 && !noasm

package gemm

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// BenchmarkMicro runs one kernel on operands that lie in L1 and L2, beside the peak of its instruction.
func BenchmarkMicro(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x, y, z := floats(r, 14*4096), floats(r, 1<<20), make([]float32, 14*8192)
	if !cpuinfo.Get().Has(cpuinfo.AVX512) {
		b.Skip("no AVX-512 here")
	}
	peak := func(n int) float64 {
		best := 0.0
		for range 5 {
			t := time.Now()
			peakFMA512(n)
			best = max(best, float64(n)*16*32/time.Since(t).Seconds()/1e9)
		}
		return best
	}
	pk := peak(200000)
	for _, c := range []struct {
		h, k, panels, arows int
	}{{14, 512, 8, 0}, {14, 512, 1, 0}, {14, 256, 8, 0}, {14, 256, 8, 256}, {12, 512, 8, 0}, {14, 512, 8, 512}, {8, 512, 8, 0}, {6, 512, 8, 0}, {4, 512, 8, 0}} {
		kern := find(cpuinfo.AVX512, aF32, format{F32, 32, 1})
		b.Run("", func(b *testing.B) {
			var p kargs
			best := 1e9
			for b.Loop() {
				t := time.Now()
				for range 10 {
					p = kargs{a: unsafe.Pointer(&x[0]), b: unsafe.Pointer(&y[0]), c: unsafe.Pointer(&z[0]), ars: 4, acs: 4 * c.h, bks: 128, bps: 128 * c.k, ldc: 4 * 256, k: c.k}
					if c.arows > 0 {
						p.ars, p.acs = c.arows*4, 4
					}
					kern.run(&p, c.h, c.panels, 32, maxInt)
				}
				best = min(best, time.Since(t).Seconds()/10)
			}
			g := 2 * float64(c.h*c.k*c.panels*32) / best / 1e9
			b.ReportMetric(g, "GFLOP/s")
			b.ReportMetric(100*g/pk, "%peak")
			b.ReportMetric(pk, "peak")
		})
		_ = c
	}
}
