package gorgonia

import (
	"unsafe"

	// Without this version of it gorgonia's own, older one panics at start on a Go that it does not know.
	_ "go4.org/unsafe/assume-no-moving-gc"
)

func unsafeBytes(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }
