//go:build !amd64 || noasm

package conv

func archKernels() []*kernels { return nil }
