//go:build amd64 && !noasm

package ladder

import "github.com/tessera-go/tessera/internal/cpuinfo"

var (
	sse = &level{name: "sse", lanes: 4, panels: 2, column: columnSSE, tile: tileSSE, wide: tile2xSSE, packA: packASSE,
		packB: packBSSE, group: 4}
	avx2 = &level{name: "avx2", lanes: 8, predicated: true, panels: 2, column: columnAVX2, tile: tileAVX2, wide: tile2xAVX2,
		packA: packAAVX2, packB: packBSSE, group: 4}
	avx512 = &level{name: "avx512", lanes: 16, predicated: true, panels: 4, column: columnAVX512, tile: tileAVX512,
		wide: tile4xAVX512, packA: packAAVX512, packB: packBAVX512, group: 16}
)

// archLevels returns the levels for an instruction set of this architecture that is not the portable one.
func archLevels(isa cpuinfo.ISA) (narrow, widest *level) {
	if isa >= cpuinfo.AVX512 {
		return sse, avx512
	}
	return sse, avx2
}
