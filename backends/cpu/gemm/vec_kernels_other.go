//go:build noasm || !(amd64 || arm64)

package gemm

func archVec(ISA) *vecOps { return nil }
