//go:build amd64 && !noasm

package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

//go:generate go run -C _gen . -o ..

func archKernels() []*kernels {
	var list []*kernels
	if cpuinfo.Get().Features.AVX512VNNI {
		list = append(list, &avx512)
	}
	return list
}

var avx512 = kernels{
	isa:   cpuinfo.AVX512,
	dot:   dotAVX512,
	fused: func(form fusedForm, rows int) func(*dotArgs) { return avx512Fused[form][rows] },
	unpack: [6]func(dst, src unsafe.Pointer, units int, table *[16]byte){
		u8: unpackU8Go, u4: unpackNibbles512, u5: unpackU5AVX512, u6: unpackU6AVX512, u2: unpackU2AVX512, u3: unpackU3AVX512},
	halfs:    halfsAVX512,
	bhalfs:   bhalfsAVX512,
	supers:   supersAVX512,
	quantize: quantizeAVX512,
}

func dotAVX512(p *dotArgs, block int, hasMin bool, rows, panels int) {
	b, m := 0, 0
	if block == 16 {
		b = 1
	}
	if hasMin {
		m = 1
	}
	fns := &avx512Dot[b][m][rows]
	if panels == maxPanels[rows] {
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

func unpackNibbles512(dst, src unsafe.Pointer, units int, table *[16]byte) {
	if table != nil {
		unpackTableAVX512(dst, src, units, table)
		return
	}
	unpackU4AVX512(dst, src, units, nil)
}

func quantizeAVX512(q, meta, x unsafe.Pointer, n, block int, zero int32) {
	if block == 16 {
		quantize16AVX512(q, meta, x, n/16, zero)
		return
	}
	quantize32AVX512(q, meta, x, n/32, zero)
}
