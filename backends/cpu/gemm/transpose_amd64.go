//go:build amd64 && !noasm

package gemm

import "unsafe"

// callTranspose8 and callSumGroups call the assembly directly: through a variable the arguments would escape, an allocation for
// each panel.
func callTranspose8(p *transposeArgs) { transpose8AVX2(p) }

func callSumGroups(sums, src unsafe.Pointer, steps, step, lanes int, unsigned bool) {
	sumGroupsAVX2(sums, src, steps, step, lanes, unsigned)
}
