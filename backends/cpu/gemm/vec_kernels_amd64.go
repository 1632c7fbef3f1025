//go:build amd64 && !noasm

package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

func archVec(isa ISA) *vecOps {
	switch {
	case isa >= cpuinfo.AVX512 && cpuinfo.Get().Has(cpuinfo.AVX512):
		return &vecAVX512
	case isa >= cpuinfo.AVX2 && cpuinfo.Get().Has(cpuinfo.AVX2):
		return &vecAVX2
	}
	return nil
}

var vecAVX512 = rowFuncs{
	width: 16, fromS32: actFromS32AVX512, scale: actScaleAVX512, mul: vecMulAVX512, add: vecAddAVX512,
	act: [numActivations]func(*float32, int, float32, float32){ReLU: actReLUAVX512, Clip: actClipAVX512, LeakyReLU: actLeakyReLUAVX512,
		HardSwish: actHardSwishAVX512, HardSigmoid: actHardSigmoidAVX512, Sigmoid: actSigmoidAVX512, SiLU: actSiLUAVX512, Tanh: actTanhAVX512,
		GELU: actGELUAVX512, GELUTanh: actGELUTanhAVX512, QuickGELU: actQuickGELUAVX512},
	bf16: vecBF16AVX512, f16: vecF16AVX512, fromBF16: vecFromBF16AVX512, fromF16: vecFromF16AVX512, fromGroups: vecFromPairsAVX512, groupK: 2,
	quant: vecQuantAVX512,
}.ops()

var vecAVX2 = rowFuncs{
	width: 8, fromS32: actFromS32AVX2, scale: actScaleAVX2, mul: vecMulAVX2, add: vecAddAVX2,
	act: [numActivations]func(*float32, int, float32, float32){ReLU: actReLUAVX2, Clip: actClipAVX2, LeakyReLU: actLeakyReLUAVX2,
		HardSwish: actHardSwishAVX2, HardSigmoid: actHardSigmoidAVX2, Sigmoid: actSigmoidAVX2, SiLU: actSiLUAVX2, Tanh: actTanhAVX2,
		GELU: actGELUAVX2, GELUTanh: actGELUTanhAVX2, QuickGELU: actQuickGELUAVX2},
	bf16: vecBF16AVX2, f16: vecF16AVX2, fromBF16: vecFromBF16AVX2, fromF16: vecFromF16AVX2, fromGroups: vecFromPairsAVX2, groupK: 2,
	quant: vecQuantAVX2,
}.ops()
