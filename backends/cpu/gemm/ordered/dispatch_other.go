//go:build !amd64 || noasm

package ordered

func tileF32(c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
	tileF32Go(c, ldc, a, b, w, chunks, k, groups, narrow)
}

func tileS8(c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
	tileS8Go(c, ldc, a, b, bias, w, k)
}

const haveBlocks = false

func packA8(*byte, *byte, int, int, int)                                    {}
func packB8(*int8, int, *byte, int, int, *Bytes8, *[16]int32)               {}
func packA16(*float32, int, *byte, int, int, int, *Order, int, *[32]uint32) {}
func packB16(*float32, int, *byte, int, int, int, *Order, int, *[32]uint32) {}
