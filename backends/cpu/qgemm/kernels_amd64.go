//go:build amd64 && !noasm

package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

//go:generate sh -c "cd _gen && go run . -o .."

// archKernels returns the implementations of this processor, the best first.
func archKernels() []*kernels {
	var list []*kernels
	if cpuinfo.Get().Features.AVX512VNNI {
		list = append(list, &avx512)
	}
	return list
}

// fusedForm is what of a format a fused kernel is chosen by.
type fusedForm struct {
	bits   bits
	table  bool
	hasMin bool
	super  bool
	bf16   bool
}

// widest is the number of panels that the AVX-512 dot kernels take at once for a number of rows: as many as registers hold the sums of.
var widest = [maxRows + 1]int{0, 4, 4, 2, 2, 2, 2}

var avx512 = kernels{
	name:   "avx512_vnni",
	isa:    cpuinfo.AVX512,
	dot:    dotAVX512,
	panels: widest,
	height: 12,
	fused: func(f *format, rows int) func(*dotArgs) {
		return avx512Fused[fusedForm{f.bits, f.table != nil, f.hasMin, f.super, f.bf16}][rows]
	},
	spread:   spreadAVX512,
	halfs:    halfsAVX512,
	bhalfs:   bhalfsAVX512,
	supers:   supersAVX512,
	quantize: quantizeAVX512,
}

func dotAVX512(p *dotArgs, f *format, rows, panels int) {
	b, m := 0, 0
	if f.block == 16 {
		b = 1
	}
	if f.hasMin {
		m = 1
	}
	fns := &avx512Dot[b][m][rows]
	if panels == widest[rows] {
		fns[1](p)
		return
	}
	for v := range panels {
		one := *p // advanced pointers must not outlive the last panel: they would point behind an object
		one.w = unsafe.Add(p.w, v*p.wPanel)
		one.scale = unsafe.Add(p.scale, v*p.scaleSize)
		one.c = unsafe.Add(p.c, v*4*nr)
		one.mask = p.mask >> (16 * v)
		fns[0](&one)
	}
}

func spreadAVX512(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8) {
	kind := int(f.bits)
	if f.table != nil {
		kind = len(avx512Spread) - 1
	}
	avx512Spread[kind](dst, src, n, per, stride, less, f.table)
}

func quantizeAVX512(q, meta, x unsafe.Pointer, n, block int, zero int32, slots int) {
	if block == 16 {
		quantize16AVX512(q, meta, x, n/16, zero, slots)
		return
	}
	quantize32AVX512(q, meta, x, n/32, zero, slots)
}
