//go:build amd64 && !noasm

package conv

import "github.com/tessera-go/tessera/internal/cpuinfo"

var amd64Kernels = []*kernels{
	withFewLoads(floatsAVX512(kernels{nr: 32, mr: 14, wide: tileAVX512x32[:], half: tileAVX512x16[:]}),
		floatsAVX512(kernels{nr: 64, mr: 6, wide: tileAVX512x64[:], half: tileAVX512x32[:]}),
		floatsAVX512(kernels{nr: 48, mr: 9, wide: tileAVX512x48[:]})),
	floatsAVX2(kernels{nr: 16, mr: 6, wide: tileAVX2x16[:], half: tileAVX2x8[:]}, kernels{nr: 24, mr: 4, wide: tileAVX2x24[:]}),
	{
		isa: cpuinfo.AVX512, kind: kindBF16, need: func(f *cpuinfo.Features) bool { return f.AVX512BF16 },
		nr: 32, mr: 14, masks: true, strips: true, wide: tileBF16AVX512x32[:], half: tileBF16AVX512x16[:],
	},
	withFewLoads(bytesAVX512(kernels{nr: 32, mr: 14, wide: tileU8AVX512x32[:], half: tileU8AVX512x16[:]}),
		bytesAVX512(kernels{nr: 64, mr: 6, wide: tileU8AVX512x64[:], half: tileU8AVX512x32[:]}),
		bytesAVX512(kernels{nr: 48, mr: 9, wide: tileU8AVX512x48[:]})),
	{isa: cpuinfo.AVXVNNI, kind: kindU8, nr: 16, mr: 6, strips: true, narrows: true, wide: tileU8AVX2x16[:]},
	{
		isa: cpuinfo.AVX512, kind: kindS16, need: func(f *cpuinfo.Features) bool { return f.AVX512VNNI },
		nr: 32, mr: 14, masks: true, strips: true, narrows: true, read: 20, wide: tileS16VNNIAVX512x32[:], half: tileS16VNNIAVX512x16[:],
		intIn: [2]func(*transform){winogradInputU8AVX2, winogradInputS8AVX2}, intOut: winogradOutputS32AVX2,
	},
	{isa: cpuinfo.AVX512, kind: kindS16, nr: 32, mr: 14, masks: true, strips: true, narrows: true, wide: tileS16AVX512x32[:], half: tileS16AVX512x16[:]},
	withSmall(&kernels{
		isa: cpuinfo.AVX2, kind: kindS16, nr: 16, mr: 6, strips: true, narrows: true, read: 16, wide: tileS16AVX2x16[:],
		intIn: [2]func(*transform){winogradInputU8AVX2, winogradInputS8AVX2}, intOut: winogradOutputS32AVX2,
	}, kernels{isa: cpuinfo.AVX2, kind: kindS16, nr: 16, mr: 6, strips: true, narrows: true, wide: tileS16S8AVX2x16[:]}),
}

// floatsAVX512 adds to tiles of floats what does not depend on them.
func floatsAVX512(k kernels) *kernels {
	k.isa, k.masks, k.strips, k.read = cpuinfo.AVX512, true, true, 20
	k.sr, k.block, k.mul, k.maximum = 8, 1, stripMulAVX512[:], stripMaxAVX512[:]
	k.rows = rowMulAVX512
	k.input = [7]func(*transform){4: winogradInputAVX512x4, 6: winogradInputAVX512x6}
	k.output = [7]func(*inverse){4: winogradOutputAVX512x4, 6: winogradOutputAVX512x6}
	k.lineIn = [9]func(*transform){6: lineInputAVX512x6, 8: lineInputAVX512x8}
	k.lineOut = [9]func(*inverse){6: lineOutputAVX512x6, 8: lineOutputAVX512x8}
	return &k
}

// bytesAVX512 is floatsAVX512 for tiles of bytes.
func bytesAVX512(k kernels) *kernels {
	k.isa, k.kind, k.need = cpuinfo.AVX512, kindU8, func(f *cpuinfo.Features) bool { return f.AVX512VNNI }
	k.masks, k.strips, k.narrows = true, true, true
	return &k
}

// withFewLoads adds to kernels of 32 channels those of 64 and of 48, with what steps of a pixel take on an Ice Lake server (Xeon at 2.8 GHz) whose panels
// are in L1: with these two the multiply-adds are the limit, without the loads.
func withFewLoads(k, k64, k48 *kernels) *kernels {
	k.full, k.part = 1.1, 0.95
	k64.full, k64.part = 2, 1.4
	k48.full = 1.5
	k.few = []*kernels{k64, k48}
	return k
}

// floatsAVX2 returns AVX2's kernels of floats, whose tiles have narrow panels or wide ones.
func floatsAVX2(tiles, wider kernels) *kernels {
	for _, k := range []*kernels{&tiles, &wider} {
		k.isa, k.masks, k.strips, k.read = cpuinfo.AVX2, true, true, 10
		k.sr, k.block, k.mul, k.maximum = 8, 8, stripMulAVX2[:], stripMaxAVX2[:]
		k.rows = rowMulAVX2
		k.input = [7]func(*transform){4: winogradInputAVX2x4, 6: winogradInputAVX2x6}
		k.output = [7]func(*inverse){4: winogradOutputAVX2x4, 6: winogradOutputAVX2x6}
		k.lineIn = [9]func(*transform){6: lineInputAVX2x6, 8: lineInputAVX2x8}
		k.lineOut = [9]func(*inverse){6: lineOutputAVX2x6, 8: lineOutputAVX2x8}
	}
	tiles.wider = &wider
	return &tiles
}

func archKernels() []*kernels { return amd64Kernels }

// archWidenings are the widenings of bytes by signedness and, in it, to int16 and to float32.
func archWidenings() *[2][2]func(*widening) {
	if !cpuinfo.Get().Has(cpuinfo.AVX2) {
		return nil
	}
	return &[2][2]func(*widening){{widenU8toS16AVX2, widenU8toF32AVX2}, {widenS8toS16AVX2, widenS8toF32AVX2}}
}
