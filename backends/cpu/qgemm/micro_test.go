package qgemm

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/tensor"
)

// BenchmarkKernels gives the rate of the kernels alone, with operands in the first-level cache.
func BenchmarkKernels(b *testing.B) {
	peak := gemm.Peak(gemm.S8, 1, nil)
	for _, impl := range implementations() {
		for _, rows := range []int{1, 2, 3, 4, 6} {
			for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q4_1, tensor.Q6_K} {
				if rows > impl.rows {
					continue
				}
				const k = 256 // four panels of 4 KiB and what belongs to them fit
				f := formats[d]
				panels := impl.panels[rows]
				a, metas := make([]byte, rows*k), make([]byte, k/f.block*metaStep(manySlots))
				w, scale, c := make([]byte, panels*k*nr), make([]float32, panels*k/f.block*2*nr), make([]float32, rows*panels*nr)
				p := &dotArgs{a: unsafe.Pointer(&a[0]), aStride: k, meta: unsafe.Pointer(&metas[0]), w: unsafe.Pointer(&w[0]), wPanel: k * nr,
					scale: unsafe.Pointer(&scale[0]), scaleSize: k / f.block * 8 * nr, c: unsafe.Pointer(&c[0]), ldc: panels * nr * 4, blocks: k / f.block, groups: 1, mask: ^uint64(0), buf: unsafe.Pointer(&make([]byte, tileBuf)[0])}
				b.Run(fmt.Sprintf("dot/%v/rows=%d/%v", impl.name, rows, d), func(b *testing.B) {
					for range b.N {
						impl.dot(p, f, rows, panels)
					}
					rate := 2 * float64(rows*panels*nr*k) * float64(b.N) / b.Elapsed().Seconds() / 1e9
					b.ReportMetric(rate, "GOP/s")
					b.ReportMetric(100*rate/max(peak, gemm.Peak(gemm.S8, 1, nil)), "%peak")
				})
			}
			if impl.fused == nil || rows > impl.few {
				continue
			}
			for _, d := range types() {
				f := formats[d]
				fn := impl.fused(f, rows)
				const k = 512
				g, err := newGeometry(f, k)
				require.NoError(b, err)
				a, metas := make([]byte, rows*k), make([]byte, k/16*metaStep(fewSlots))
				w, c := make([]byte, g.size), make([]float32, rows*nr)
				p := &dotArgs{a: unsafe.Pointer(&a[0]), aStride: k, meta: unsafe.Pointer(&metas[0]), w: unsafe.Pointer(&w[0]),
					c: unsafe.Pointer(&c[0]), ldc: nr * 4, blocks: k / 32, mask: ^uint64(0), table: f.table}
				b.Run(fmt.Sprintf("fused/%v/%v/rows=%d", impl.name, d, rows), func(b *testing.B) {
					for range b.N {
						fn(p)
					}
					b.ReportMetric(2*float64(rows*nr*k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOP/s")
					b.ReportMetric(float64(g.size)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
	}
}
