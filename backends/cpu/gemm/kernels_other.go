//go:build noasm || !amd64

package gemm

func archKernels() []*kernel { return nil }
