//go:build arm64 && !noasm

package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

//go:generate sh -c "cd _gen && go run . -o .."

// archKernels returns the implementations of this processor, the best first.
func archKernels() []*kernels {
	var list []*kernels
	if cpuinfo.Get().Features.DotProd {
		list = append(list, &neon)
	}
	return list
}

// neon multiplies by SDOT, which takes bytes as signed.
var neon = kernels{
	name:   "neon_dot",
	isa:    cpuinfo.NEON,
	dot:    dotTilesNEON,
	signed: true,
	panels: [maxRows + 1]int{0, 4, 4, 4, 4, 4, 4},
	height: 12,
	few:    2,
	fused: func(f *format, rows int) func(*dotArgs) {
		return fusedNEON[fusedForm{f.bits, f.table != nil, f.hasMin, f.super, f.bf16}][rows]
	},
	spread:   spreadNEON,
	halfs:    halfsNEON,
	bhalfs:   bhalfsNEON,
	supers:   supersNEON,
	quantize: quantizeNEON,
}

// dotTilesNEON takes up to three rows through a panel at once: the integer and float sums of more do not fit the registers.
func dotTilesNEON(p *dotArgs, f *format, rows, panels int) {
	b, m := 0, 0
	if f.block == 32 {
		b = 1
	}
	if f.hasMin {
		m = 1
	}
	saved := *p
	for v := range panels {
		p.w = unsafe.Add(saved.w, v*p.wPanel)
		p.scale = unsafe.Add(saved.scale, v*p.scaleSize)
		p.mask = saved.mask >> (16 * v)
		for i := 0; i < rows; {
			n := rows - i
			if n > 3 {
				n = (n + 1) / 2
			}
			p.a = unsafe.Add(saved.a, i*p.aStride)
			p.meta = unsafe.Add(saved.meta, 4*i)
			p.c = unsafe.Add(saved.c, i*p.ldc+v*4*nr)
			dotNEON[b][m][n](p)
			i += n
		}
	}
	*p = saved
}

func spreadNEON(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8) {
	kind := int(f.bits)
	if f.table != nil {
		kind = len(spreadsNEON) - 1
	}
	spreadsNEON[kind](dst, src, n, per, stride, less, f.table)
}

func quantizeNEON(q, meta, x unsafe.Pointer, n, block int, zero int32, slots int) {
	if block == 16 {
		quantize16NEON(q, meta, x, n/16, zero, slots)
		return
	}
	quantize32NEON(q, meta, x, n/32, zero, slots)
}
