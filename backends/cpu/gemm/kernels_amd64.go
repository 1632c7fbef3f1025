//go:build amd64 && !noasm

package gemm

import (
	"github.com/tessera-go/tessera/backends/cpu/internal/tile"
	"github.com/tessera-go/tessera/internal/cpuinfo"
)

func archKernels() []*kernel {
	vnni := func(f *cpuinfo.Features) bool { return f.AVX512VNNI }
	bf16 := func(f *cpuinfo.Features) bool { return f.AVX512BF16 }
	alone := func(f *cpuinfo.Features) bool { return f.FetchesAlone }
	// A low strip takes several panels at once, so that at least eight sums are in flight.
	wide512 := []int{0, 4, 2, 2}
	wide256 := []int{0, 3, 2}
	low256 := []int{0, 4, 3, 2}
	streams512 := []int{0, 6, 6, 4, 3, 2, 2}
	// One tile of rows takes two panels: two sums of tiles would wait for each other.
	wideTiles := make([]int, tile.Rows+1)
	for h := 1; h <= tile.Rows; h++ {
		wideTiles[h] = 2
	}
	return []*kernel{
		{
			name: "bf16_bf16_32x32k2__amxbf16", isa: cpuinfo.AMX, need: func(f *cpuinfo.Features) bool { return f.AMXBF16 }, a: aBF16,
			b: format{BF16, 32, 2}, acc: F32, mr: 2 * tile.Rows, tile: tileSteps,
			full: tileKernels(false, 2*tile.Rows, 1), wide: tileKernels(false, tile.Rows, 2), wideP: wideTiles,
		},
		{
			name: "s8_s8_32x32k4__amxint8", isa: cpuinfo.AMX, need: func(f *cpuinfo.Features) bool { return f.AMXInt8 }, a: aS8,
			b: format{S8, 32, 4}, acc: S32, mr: 2 * tile.Rows, tile: tileSteps,
			full: tileKernels(true, 2*tile.Rows, 1), wide: tileKernels(true, tile.Rows, 2), wideP: wideTiles,
		},
		{
			name: "f32_f32_14x32k1__avx512", isa: cpuinfo.AVX512, a: aF32, b: format{F32, 32, 1}, acc: F32, mr: 14, downStrips: true,
			full: f32AVX512full[:], fast: f32AVX512fast[:], fastOnce: f32AVX512once[:], rows: f32AVX512rows[:], pairs: f32AVX512pairs[:], pairsFew: f32AVX512pairsFew[:], pairsAny: f32AVX512pairsAny[:], half: f32AVX512half[:], wide: f32AVX512wide[:], wideP: wide512,
			streams: f32AVX512streams[:], streamsP: streams512,
			axpy: axpy8AVX512, exactB: true,
		},
		{
			name: "f32_bf16_8x32k2__avx512alone", isa: cpuinfo.AVX512, need: alone, a: aF32, b: format{BF16, 32, 2}, acc: F32, mr: 8, downStrips: true,
			full: bf16AVX512full[:], half: bf16AVX512half[:], wide: bf16AVX512alone[:], wideP: wide512,
		},
		{
			name: "f32_bf16_8x32k2__avx512", isa: cpuinfo.AVX512, a: aF32, b: format{BF16, 32, 2}, acc: F32, mr: 8, downStrips: true,
			full: bf16AVX512full[:], half: bf16AVX512half[:], wide: bf16AVX512wide[:], wideP: wide512,
			streams: bf16AVX512streams[:], streamsP: streams512,
		},
		{
			name: "f32_f16_8x32k1__avx512alone", isa: cpuinfo.AVX512, need: alone, a: aF32, b: format{F16, 32, 1}, acc: F32, mr: 8, downStrips: true,
			full: f16AVX512full[:], half: f16AVX512half[:], wide: f16AVX512alone[:], wideP: wide512,
		},
		{
			name: "f32_f16_8x32k1__avx512", isa: cpuinfo.AVX512, a: aF32, b: format{F16, 32, 1}, acc: F32, mr: 8, downStrips: true,
			full: f16AVX512full[:], half: f16AVX512half[:], wide: f16AVX512wide[:], wideP: wide512,
			streams: f16AVX512streams[:], streamsP: streams512,
		},
		{
			name: "bf16_bf16_14x32k2__avx512bf16", isa: cpuinfo.AVX512, need: bf16, a: aBF16, b: format{BF16, 32, 2}, acc: F32,
			mr: 14, downStrips: true, full: dotBF16AVX512full[:], fast: dotBF16AVX512fast[:], rows: dotBF16AVX512rows[:], pairs: dotBF16AVX512pairs[:], pairsFew: dotBF16AVX512pairsFew[:], half: dotBF16AVX512half[:], wide: dotBF16AVX512wide[:], wideP: wide512,
		},
		{
			name: "s8_s8_14x32k4__avx512vnni", isa: cpuinfo.AVX512, need: vnni, a: aS8, b: format{S8, 32, 4}, acc: S32, mr: 14, downStrips: true,
			full: dot8AVX512full[:], fast: dot8AVX512fast[:], fastOnce: dot8AVX512once[:], rows: dot8AVX512rows[:], pairs: dot8AVX512pairs[:], pairsFew: dot8AVX512pairsFew[:], half: dot8AVX512half[:], wide: dot8AVX512wide[:], wideP: wide512,
			streams: dot8AVX512streams[:], streamsP: streams512,
		},
		{
			name: "s8_s8_6x16k4__avxvnni", isa: cpuinfo.AVXVNNI, a: aS8, b: format{S8, 16, 4}, acc: S32, mr: 6,
			full: vnni8AVX2full[:], half: vnni8AVX2half[:], wide: vnni8AVX2wide[:], wideP: wide256,
		},
		{
			name: "f32_f32_6x16k1__avx2", isa: cpuinfo.AVX2, a: aF32, b: format{F32, 16, 1}, acc: F32, mr: 6,
			full: f32AVX2full[:], fast: f32AVX2fast[:], rows: f32AVX2rows[:], fastDown: f32AVX2fastDown[:], rowsDown: f32AVX2rowsDown[:],
			fastDownPack: f32AVX2fastDownPack[:], rowsDownPack: f32AVX2rowsDownPack[:],
			half: f32AVX2half[:], wide: f32AVX2wide[:], wideP: low256,
			axpy: axpy8AVX2,
		},
		{
			name: "f32_bf16_6x16k2__avx2", isa: cpuinfo.AVX2, a: aF32, b: format{BF16, 16, 2}, acc: F32, mr: 6,
			full: bf16AVX2full[:], half: bf16AVX2half[:], wide: bf16AVX2wide[:], wideP: low256,
		},
		{
			name: "f32_f16_6x16k1__avx2", isa: cpuinfo.AVX2, a: aF32, b: format{F16, 16, 1}, acc: F32, mr: 6,
			full: f16AVX2full[:], half: f16AVX2half[:], wide: f16AVX2wide[:], wideP: low256,
		},
		{
			name: "s16_s16_4x16k4__avx2", isa: cpuinfo.AVX2, a: aInner, b: format{s16, 16, 4}, acc: S32, mr: 4,
			full: inner16AVX2full[:], half: inner16AVX2half[:],
		},
		{
			name: "s16_s8_6x16k2__avx2", isa: cpuinfo.AVX2, a: aS16, b: format{S8, 16, 2}, acc: S32, mr: 6,
			full: madd8AVX2full[:], half: madd8AVX2half[:], wide: madd8AVX2wide[:], wideP: wide256,
		},
	}
}
