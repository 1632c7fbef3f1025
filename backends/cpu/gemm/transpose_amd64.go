//go:build amd64 && !noasm

package gemm

// callTranspose8 calls the assembly directly: through a variable the arguments would escape, an allocation for each panel.
func callTranspose8(p *transposeArgs) { transpose8AVX2(p) }
