//go:build !amd64 || noasm

package qgemm

func archKernels() []*kernels { return nil }
