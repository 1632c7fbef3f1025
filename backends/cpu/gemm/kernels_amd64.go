//go:build amd64 && !noasm

package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

func archKernels() []*kernel {
	return []*kernel{
		{
			name: "f32_f32_14x32k1__avx512", isa: cpuinfo.AVX512, a: F32, aK: 1, b: format{F32, 32, 1}, acc: F32, mr: 14,
			full: f32AVX512full[:], half: f32AVX512half[:], wide: f32AVX512wide[:], wideP: []int{0, 4, 2, 2}, exact: true,
		},
		{
			name: "f32_f32_6x16k1__avx2", isa: cpuinfo.AVX2, a: F32, aK: 1, b: format{F32, 16, 1}, acc: F32, mr: 6,
			full: f32AVX2full[:], half: f32AVX2half[:], wide: f32AVX2wide[:], wideP: []int{0, 3, 2}, exact: true,
		},
	}
}
