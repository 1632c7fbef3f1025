package qgemm

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
)

// BenchmarkKernels gives the rate of the kernels alone, with operands in the first-level cache.
func BenchmarkKernels(b *testing.B) {
	peak := gemm.Peak(gemm.S8, 1, nil)
	for _, impl := range implementations() {
		for _, rows := range []int{1, 2, 4, 6} {
			for _, min := range []bool{false, true} {
				const k = 512
				panels := maxPanels[rows]
				a, metas := make([]byte, rows*k), make([]meta, rows*k/32)
				w, scale, c := make([]byte, panels*k*nr), make([]float32, panels*k/32*2*nr), make([]float32, rows*panels*nr)
				p := &dotArgs{a: unsafe.Pointer(&a[0]), aStride: k, meta: unsafe.Pointer(&metas[0]), metaRow: k / 32 * 16, w: unsafe.Pointer(&w[0]), wPanel: k * nr,
					scale: unsafe.Pointer(&scale[0]), scaleSize: k / 32 * 8 * nr, c: unsafe.Pointer(&c[0]), ldc: panels * nr * 4, blocks: k / 32, mask: ^uint64(0)}
				b.Run(fmt.Sprintf("dot/%v/rows=%d/min=%v", impl.isa, rows, min), func(b *testing.B) {
					for range b.N {
						impl.dot(p, 32, min, rows, panels)
					}
					rate := 2 * float64(rows*panels*nr*k) * float64(b.N) / b.Elapsed().Seconds() / 1e9
					b.ReportMetric(rate, "GOP/s")
					b.ReportMetric(100*rate/max(peak, gemm.Peak(gemm.S8, 1, nil)), "%peak")
				})
			}
			if impl.fused == nil || rows > fewRows {
				continue
			}
			for form, name := range map[fusedForm]string{{u4, false, false}: "q4_0", {u4, false, true}: "q4_k", {u6, false, false}: "q6_k"} {
				fn := impl.fused(form, rows)
				const k = 512
				a, metas := make([]byte, rows*k), make([]meta, rows*k/16)
				w, scale, c := make([]byte, k*nr+4096), make([]float32, k/16*2*nr), make([]float32, rows*nr)
				p := &dotArgs{a: unsafe.Pointer(&a[0]), aStride: k, meta: unsafe.Pointer(&metas[0]), metaRow: k / 16 * 16, w: unsafe.Pointer(&w[0]),
					scale: unsafe.Pointer(&scale[0]), c: unsafe.Pointer(&c[0]), ldc: nr * 4, blocks: k / 32, mask: ^uint64(0)}
				b.Run(fmt.Sprintf("fused/%s/rows=%d", name, rows), func(b *testing.B) {
					for range b.N {
						fn(p)
					}
					b.ReportMetric(2*float64(rows*nr*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
				})
			}
		}
	}
}
