//go:build amd64 && !noasm

package gemm

import (
	"github.com/tessera-go/tessera/backends/cpu/internal/tile"
	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// peakLoop returns the loop for the instruction of a kernel and the operations of one round, which has 16 instructions.
func peakLoop(k *kernel) (func(n int), float64) {
	switch {
	case k.isa == cpuinfo.AMX && k.a == aS8:
		return peakTiles(peakTilesU8), 16 * 2 * 16 * 16 * 64
	case k.isa == cpuinfo.AMX:
		return peakTiles(peakTilesBF16), 16 * 2 * 16 * 16 * 32
	case k.isa == cpuinfo.AVX512 && k.a == aF32:
		return peakFMA512, 16 * 2 * 16
	case k.isa == cpuinfo.AVX512 && k.a == aS8:
		return peakVNNI512, 16 * 2 * 64
	case k.isa == cpuinfo.AVX512 && k.a == aBF16:
		return peakBF16512, 16 * 2 * 32
	case k.isa == cpuinfo.AVXVNNI && k.a == aS8:
		return peakVNNI256, 16 * 2 * 32
	case k.isa == cpuinfo.AVX2 && k.a == aF32:
		return peakFMA256, 16 * 2 * 8
	case k.isa == cpuinfo.AVX2 && (k.a == aS16 || k.a == aInner):
		return peakMADD256, 16 * 2 * 16
	}
	return nil, 0
}

// peakTiles is a loop on whole tiles.
func peakTiles(loop func(n int, cfg *tile.Config)) func(n int) {
	return func(n int) {
		var cfg tile.Config
		for i := range 8 {
			cfg.Set(i, tile.Rows, tile.Bytes)
		}
		loop(n, &cfg)
	}
}
