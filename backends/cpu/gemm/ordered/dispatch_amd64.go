//go:build amd64 && !noasm

package ordered

import "github.com/tessera-go/tessera/internal/cpuinfo"

// isas are the levels that have kernels here.
var isas = []cpuinfo.ISA{cpuinfo.Portable, cpuinfo.AVX2, cpuinfo.AVX512}

// choose gives the level of the kernels of each kind on a processor whose code may use isa: AVX-512 serves bytes only with the extensions beyond its base.
func choose(isa cpuinfo.ISA, has cpuinfo.Features) levels {
	switch {
	case isa < cpuinfo.AVX2:
		return levels{cpuinfo.Portable, cpuinfo.Portable, cpuinfo.Portable}
	case isa < cpuinfo.AVX512:
		return levels{cpuinfo.AVX2, cpuinfo.AVX2, cpuinfo.AVX2}
	case !has.AVX512VNNI:
		return levels{cpuinfo.AVX512, cpuinfo.AVX2, cpuinfo.AVX2}
	case !has.AVX512VBMI:
		return levels{cpuinfo.AVX512, cpuinfo.AVX512, cpuinfo.AVX2}
	}
	return levels{cpuinfo.AVX512, cpuinfo.AVX512, cpuinfo.AVX512}
}

func tileF32(isa cpuinfo.ISA, c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
	if isa == cpuinfo.Portable {
		tileF32Go(c, ldc, a, b, w, chunks, k, groups, narrow)
		return
	}
	var pa, pb *float32
	half := 0 // columns of B at which the second tile of a panel starts, where the tiles are half as wide
	if chunks*k > 0 {
		pa, pb, half = &a[0], &b[0], w/2
	}
	if isa == cpuinfo.AVX512 {
		switch {
		case groups && w == 48:
			group4x48AVX512(&c[0], ldc, pa, pb, chunks, k/8, int(narrow))
		case groups:
			group4x32AVX512(&c[0], ldc, pa, pb, chunks, k/8, int(narrow))
		case w == 48:
			fma4x48AVX512(&c[0], ldc, pa, pb, chunks, k, int(narrow))
		default:
			fma4x32AVX512(&c[0], ldc, pa, pb, chunks, k, int(narrow))
		}
		return
	}
	for j := 0; j < w; j += w / 2 {
		if j > 0 && half > 0 {
			pb = &b[half]
		}
		switch {
		case groups && w == 48:
			group4x24AVX2(&c[j], ldc, pa, pb, chunks, k/8, int(narrow))
		case groups:
			group4x16AVX2(&c[j], ldc, pa, pb, chunks, k/8, int(narrow))
		case w == 48:
			fma4x24AVX2(&c[j], ldc, pa, pb, chunks, k, int(narrow))
		default:
			fma4x16AVX2(&c[j], ldc, pa, pb, chunks, k, int(narrow))
		}
	}
}

func tileS8(isa cpuinfo.ISA, c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
	switch {
	case isa == cpuinfo.Portable:
		tileS8Go(c, ldc, a, b, bias, w, k)
	case isa == cpuinfo.AVX2:
		for j := 0; j < w; j += 16 {
			s8x8x16AVX2(&c[j], ldc, &a[0], &b[4*j], 4*w, &bias[j], k/4)
		}
	case w == 48:
		s8x8x48AVX512(&c[0], ldc, &a[0], &b[0], &bias[0], k/4)
	default:
		s8x8x32AVX512(&c[0], ldc, &a[0], &b[0], &bias[0], k/4)
	}
}

func packA8(isa cpuinfo.ISA, dst, src []byte, half, step, n int) {
	if isa == cpuinfo.AVX2 {
		packA8AVX2(&dst[0], &src[0], half, step, n)
		return
	}
	packA8AVX512(&dst[0], &src[0], half, step, n)
}

func packB8(isa cpuinfo.ISA, dst []int8, w int, src []byte, step, n int, layout Layout, sums *[16]int32) {
	if isa == cpuinfo.AVX2 {
		packB8AVX2(&dst[0], 4*w, &src[0], step, n, &bytesOf[layout], sums)
		return
	}
	packB8AVX512(&dst[0], 4*w, &src[0], step, n, &bytesOf[layout], sums)
}

func packA16(isa cpuinfo.ISA, dst []float32, panel int, src []byte, half, step, n int, layout Layout, q Quant, e *[32]uint32) {
	if isa == cpuinfo.AVX2 {
		packA16AVX2(&dst[0], 4*panel, &src[0], half, step, n, int(layout), int(q), e)
		return
	}
	packA16AVX512(&dst[0], 4*panel, &src[0], half, step, n, &wordsOf[layout], int(q), e)
}

func packB16(isa cpuinfo.ISA, dst []float32, w int, src []byte, half, step, n int, layout Layout, q Quant, e *[32]uint32) {
	if isa == cpuinfo.AVX2 {
		packB16AVX2(&dst[0], 4*w, &src[0], half, step, n, int(layout), int(q), e)
		return
	}
	packB16AVX512(&dst[0], 4*w, &src[0], half, step, n, &wordsOf[layout], int(q), e)
}

// bytesOf says which byte of a block of 64 stands where in a panel of S8: the first 32 bytes are k 0 to 3 of 8 columns, the others k 4 to 7.
var bytesOf = func() (t [numLayouts][64]byte) {
	for i := range 64 {
		half, x, q := i/32, i/4%8, i%4
		k := 4*half + q
		t[Rows8][i] = byte(8*x + k)
		t[Columns8][i] = byte(8*k + x)
	}
	return t
}()

// wordsOf says which word of two pieces of 32 stands where k by k, 8 rows or columns each.
var wordsOf = func() (t [numLayouts][64]uint16) {
	for i := range 64 {
		k, x := i/8, i%8
		t[Rows8][i] = uint16(8*x + k)
		t[Columns4][i] = uint16(x/4*32 + 4*k + x%4)
		t[Columns8][i] = uint16(i)
	}
	return t
}()
