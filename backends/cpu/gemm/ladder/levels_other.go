//go:build noasm || (!amd64 && !arm64)

package ladder

import "github.com/tessera-go/tessera/internal/cpuinfo"

// archLevels returns the levels for an instruction set of this architecture that is not the portable one.
func archLevels(cpuinfo.ISA) (narrow, widest *level) {
	p := portable(4)
	return p, p
}
