//go:build !amd64 || noasm

package gemm

// callTranspose8 is not reached where there is no assembly.
func callTranspose8(*transposeArgs) { panic("gemm: no transposition in assembly") }
