//go:build !amd64 || noasm

package gemm

import "unsafe"

// callTranspose8 and callSumGroups are not reached where there is no assembly.
func callTranspose8(*transposeArgs) { panic("gemm: no assembly") }

func callSumGroups(unsafe.Pointer, unsafe.Pointer, int, int, int, bool) { panic("gemm: no assembly") }
