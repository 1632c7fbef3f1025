//go:build amd64 && !noasm

package ordered

import (
	"github.com/tessera-go/tessera/internal/cpuinfo"
)

var useF32, useS8 = detect()

// detect reads the processor and TESSERA_ISA. An unknown or missing ISA there is reported by the engine that the caller also opens; here it means portable code.
func detect() (f32, s8 bool) {
	isa, err := cpuinfo.Pinned()
	if err != nil || isa < cpuinfo.AVX512 {
		return false, false
	}
	return true, cpuinfo.Get().Features.AVX512VNNI
}

func tileF32(c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
	if !useF32 {
		tileF32Go(c, ldc, a, b, w, chunks, k, groups, narrow)
		return
	}
	var pa, pb *float32
	if chunks*k > 0 {
		pa, pb = &a[0], &b[0]
	}
	switch {
	case groups && w == 48:
		group4x48(&c[0], ldc, pa, pb, chunks, k/8, int(narrow))
	case groups:
		group4x32(&c[0], ldc, pa, pb, chunks, k/8, int(narrow))
	case w == 48:
		fma4x48(&c[0], ldc, pa, pb, chunks, k, int(narrow))
	default:
		fma4x32(&c[0], ldc, pa, pb, chunks, k, int(narrow))
	}
}

func tileS8(c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
	switch {
	case !useS8:
		tileS8Go(c, ldc, a, b, bias, w, k)
	case w == 48:
		s8x8x48(&c[0], ldc, &a[0], &b[0], &bias[0], k/4)
	default:
		s8x8x32(&c[0], ldc, &a[0], &b[0], &bias[0], k/4)
	}
}

// fma4x48 adds 4 rows of A times 48 columns of B to C, one multiply-add per k.
//
//go:noescape
func fma4x48(c *float32, ldc int, a, b *float32, chunks, k, narrow int)

// fma4x32 is fma4x48 for 32 columns.
//
//go:noescape
func fma4x32(c *float32, ldc int, a, b *float32, chunks, k, narrow int)

// group4x48 is fma4x48 with a sum from zero over each group of 8 k, added once; groups counts them per chunk.
//
//go:noescape
func group4x48(c *float32, ldc int, a, b *float32, chunks, groups, narrow int)

// group4x32 is group4x48 for 32 columns.
//
//go:noescape
func group4x32(c *float32, ldc int, a, b *float32, chunks, groups, narrow int)

// s8x8x48 adds 8 rows of A (unsigned, 128 added) times 48 columns of B, and bias, to C; quads counts groups of 4 k.
//
//go:noescape
func s8x8x48(c *int32, ldc int, a *byte, b *int8, bias *int32, quads int)

// s8x8x32 is s8x8x48 for 32 columns.
//
//go:noescape
func s8x8x32(c *int32, ldc int, a *byte, b *int8, bias *int32, quads int)

var haveBlocks = useF32 && useS8 && cpuinfo.Get().Features.AVX512VBMI

// packA8 permutes n blocks of 8 rows x 8 bytes to groups of 4 k and adds 128.
//
//go:noescape
func packA8(dst, src *byte, half, step, n int)

// packB8 permutes n blocks of 64 bytes into two rows of a panel each, w4 bytes apart, and sums the bytes of each 32-bit group.
//
//go:noescape
func packB8(dst *int8, w4 int, src *byte, step, n int, order *Bytes8, sums *[16]int32)

// packA16 permutes, widens and quantizes n blocks of 8 x 8 bf16 into two micropanels of 4 rows.
//
//go:noescape
func packA16(dst *float32, panel int, src *byte, half, step, n int, order *Order, quant int, exps *[32]uint32)

// packB16 is packA16 into rows of 8 columns, row bytes apart.
//
//go:noescape
func packB16(dst *float32, row int, src *byte, half, step, n int, order *Order, quant int, exps *[32]uint32)
