//go:build arm64 && !noasm

package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

// peakLoop returns the loop for the instruction of a kernel and the operations of one round, which has 16 instructions.
func peakLoop(k *kernel) (func(n int), float64) {
	lanes := 4.0 // of 32 bits
	fma, dot, mat8, mat16 := peakFMANEON, peakDotNEON, peakMat8NEON, peakMat16NEON
	switch k.isa {
	case cpuinfo.NEON:
	case cpuinfo.SVE:
		lanes = float64(cpuinfo.Get().SVEBits / 32)
		fma, dot, mat8, mat16 = peakFMASVE, peakDotSVE, peakMat8SVE, peakMat16SVE
	default:
		return nil, 0
	}
	switch {
	case k.a == aF32:
		return fma, 16 * 2 * lanes
	case k.a == aBF16:
		return mat16, 16 * 2 * 4 * lanes
	case k.a == aS16:
		return peakWide8NEON, 16 * 2 * lanes
	case cpuinfo.Get().Features.I8MM:
		return mat8, 16 * 2 * 8 * lanes
	}
	return dot, 16 * 2 * 4 * lanes
}
