//go:build amd64 && !noasm

package gemm

import "github.com/tessera-go/tessera/internal/cpuinfo"

func init() {
	if isa, _ := cpuinfo.Pinned(); isa >= cpuinfo.AVX2 {
		transpose8, copyRows, sumGroups = transpose8AVX2, copyRowsAVX2, sumGroupsAVX2
		interleave[2][2], interleave[4][1], interleave[2][1] = interleave2x16AVX2, interleave4x8AVX2, interleave2x8AVX2
		copyPanels = copyPanelsAVX2
		transposeRows[1] = transposeHalvesAVX2
		wordRows[0], wordRows[1] = wordRowsS8AVX2, wordRowsU8AVX2
		innerRowsS8 = [3]innerRows{innerRowsS8AVX2, innerRowsS8SumAVX2, innerRowsS8DifferenceAVX2}
		innerRowsU8 = [3]innerRows{innerRowsU8AVX2, innerRowsU8SumAVX2, innerRowsU8DifferenceAVX2}
		innerPanels = [3]innerPanel{innerPanelAVX2, innerPanelSumAVX2, innerPanelDifferenceAVX2}
		flipLines, sumBytes, sumUnit = flipLinesAVX2, sumBytes32AVX2, 32
		widenRow = vecFor(isa).fromHalf
		if isa >= cpuinfo.AVX512 {
			sumBytes, sumUnit = sumBytesAVX512, 1
			transposeWide, transposeWiden = &transposesAVX512, &transposeWidensAVX512
		} else {
			transposeRows[2] = transposePairsAVX2
		}
	}
}
