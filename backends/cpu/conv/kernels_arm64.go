//go:build arm64 && !noasm

package conv

import "github.com/tessera-go/tessera/internal/cpuinfo"

var arm64Kernels = []*kernels{
	{isa: cpuinfo.NEON, nr: 16, mr: 6, wide: tileNEONx16[:], sr: 8, block: 4, mul: stripMulNEON[:], maximum: stripMaxNEON[:], rows: rowMulNEON},
	{isa: cpuinfo.NEON, kind: kindBF16, need: func(f *cpuinfo.Features) bool { return f.BF16 }, nr: 16, mr: 6, wide: tileBF16NEONx16[:]},
	{isa: cpuinfo.NEON, kind: kindU8, need: func(f *cpuinfo.Features) bool { return f.I8MM }, nr: 16, mr: 6, wide: tileU8NEONx16[:]},
	{isa: cpuinfo.NEON, kind: kindS16, nr: 16, mr: 6, wide: tileS16NEONx16[:]},
}

func archKernels() []*kernels { return arm64Kernels }

func archWidenings() *[2][2]func(*widening) { return nil }
