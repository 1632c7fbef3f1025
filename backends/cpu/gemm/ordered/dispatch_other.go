//go:build !amd64 || noasm

package ordered

import "github.com/tessera-go/tessera/internal/cpuinfo"

var isas = []cpuinfo.ISA{cpuinfo.Portable}

func choose(cpuinfo.ISA, cpuinfo.Features) levels {
	return levels{cpuinfo.Portable, cpuinfo.Portable, cpuinfo.Portable}
}

func tileF32(_ cpuinfo.ISA, c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
	tileF32Go(c, ldc, a, b, w, chunks, k, groups, narrow)
}

func tileS8(_ cpuinfo.ISA, c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
	tileS8Go(c, ldc, a, b, bias, w, k)
}

// Nothing packs here: no level but Portable is ever chosen.

func packA8(cpuinfo.ISA, []byte, []byte, int, int, int)                                      {}
func packB8(cpuinfo.ISA, []int8, int, []byte, int, int, Layout, *[16]int32)                  {}
func packA16(cpuinfo.ISA, []float32, int, []byte, int, int, int, Layout, Quant, *[32]uint32) {}
func packB16(cpuinfo.ISA, []float32, int, []byte, int, int, int, Layout, Quant, *[32]uint32) {}
