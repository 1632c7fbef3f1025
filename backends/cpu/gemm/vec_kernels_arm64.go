//go:build arm64 && !noasm

package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

func archVec(isa ISA) *vecOps {
	if isa >= cpuinfo.NEON {
		return &vecNEON
	}
	return nil
}

var vecNEON = rowFuncs{
	width: 4, fromS32: actFromS32NEON, scale: actScaleNEON, mul: vecMulNEON, add: vecAddNEON,
	act: [numActivations]func(*float32, int, float32, float32){ReLU: actReLUNEON, Clip: actClipNEON, LeakyReLU: actLeakyReLUNEON,
		HardSwish: actHardSwishNEON, HardSigmoid: actHardSigmoidNEON, Sigmoid: actSigmoidNEON, SiLU: actSiLUNEON, Tanh: actTanhNEON,
		GELU: actGELUNEON, GELUTanh: actGELUTanhNEON, QuickGELU: actQuickGELUNEON},
	bf16: vecBF16NEON, f16: vecF16NEON, fromBF16: vecFromBF16NEON, fromF16: vecFromF16NEON, fromGroups: vecFromGroupsNEON, groupK: 4,
	quant: vecQuantNEON,
}.ops()
