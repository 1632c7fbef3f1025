//go:build arm64 && !noasm

package gemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

func init() {
	if isa, _ := cpuinfo.Pinned(); isa >= cpuinfo.NEON {
		transpose4, sumGroups8, flipLines = transpose4NEON, sumGroups8NEON, flipLinesNEON
		packRows = [3]func(dst, src unsafe.Pointer, pitch, groups, step, columns int){1: packRows8x1NEON, 2: packRows4x2NEON}
		widenRow = vecFor(isa).fromHalf
	}
}
