//go:build arm64 && !noasm

package conv

import "github.com/tessera-go/tessera/internal/cpuinfo"

var arm64Kernels = []*kernels{
	{isa: cpuinfo.NEON, nr: 16, mr: 6, read: 20, wide: tileNEONx16[:], sr: 8, block: 4, mul: stripMulNEON[:], maximum: stripMaxNEON[:], rows: rowMulNEON,
		input:   [7]func(*transform){4: winogradInputNEONx4, 6: winogradInputNEONx6},
		output:  [7]func(*inverse){4: winogradOutputNEONx4, 6: winogradOutputNEONx6},
		lineIn:  [9]func(*transform){6: lineInputNEONx6, 8: lineInputNEONx8},
		lineOut: [9]func(*inverse){6: lineOutputNEONx6, 8: lineOutputNEONx8},
	},
	{isa: cpuinfo.NEON, kind: kindBF16, need: func(f *cpuinfo.Features) bool { return f.BF16 }, nr: 16, mr: 6, wide: tileBF16NEONx16[:]},
	{isa: cpuinfo.NEON, kind: kindU8, need: func(f *cpuinfo.Features) bool { return f.I8MM }, nr: 16, mr: 6, wide: tileU8NEONx16[:]},
	{isa: cpuinfo.NEON, kind: kindS16, nr: 16, mr: 6, wide: tileS16NEONx16[:]},
}

func archKernels() []*kernels { return arm64Kernels }

func archWidenings() *[2][2]func(*widening) {
	return &[2][2]func(*widening){{widenU8toS16NEON, widenU8toF32NEON}, {widenS8toS16NEON, widenS8toF32NEON}}
}
