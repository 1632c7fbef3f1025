//go:build noasm || !amd64

package gemm

func archVec(ISA) *vecOps { return nil }
