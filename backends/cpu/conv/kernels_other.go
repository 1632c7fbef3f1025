//go:build !(amd64 || arm64) || noasm

package conv

func archKernels() []*kernels { return nil }

func archWidenings() *[2][2]func(*widening) { return nil }
