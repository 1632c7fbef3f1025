//go:build arm64 && !noasm

package ladder

import (
	"sync"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

var neon = &level{name: "neon", lanes: 4, panels: 4, column: columnNEON, tile: tileNEON, wide: tile4xNEON, packA: packANEON,
	packB: packBNEON, group: 4}

// sve has as many lanes as the vectors of this processor, 4 to 64.
var sve = sync.OnceValue(func() *level {
	return &level{name: "sve", lanes: cpuinfo.Get().SVEBits / 32, predicated: true, panels: 4, column: columnSVE, tile: tileSVE,
		wide: tile4xSVE, packA: packASVE, packB: packBNEON, group: 4}
})

// archLevels returns the levels for an instruction set of this architecture that is not the portable one.
func archLevels(isa cpuinfo.ISA) (narrow, widest *level) {
	if isa == cpuinfo.SVE {
		return neon, sve()
	}
	return neon, neon
}
