//go:build !amd64 || noasm

package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/tensor"
)

func archPack(tensor.DType) func(dst, src unsafe.Pointer, rows *[nr]int32, blocks int) { return nil }
