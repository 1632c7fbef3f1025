//go:build arm64 && !noasm

package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

//go:generate sh -c "cd _gen && go run . -o .."

// archKernels returns the implementations of this processor, the best first.
func archKernels() []*kernels {
	if cpuinfo.Get().Features.DotProd {
		return []*kernels{&neonDot, &neon}
	}
	return []*kernels{&neon}
}

// neon takes bytes as signed and widens their products.
var neon = kernels{
	name:     "neon",
	isa:      cpuinfo.NEON,
	dot:      func(p *dotArgs, f *format, rows, panels int) { tilesNEON(p, &dotWideNEON, f, rows, panels) },
	signed:   true,
	panels:   [maxRows + 1]int{0, 4, 4, 4, 4, 4, 4},
	rows:     maxRows,
	height:   12,
	spread:   spreadNEON,
	halfs:    halfsNEON,
	bhalfs:   bhalfsNEON,
	supers:   supersNEON,
	quantize: quantizeNEON,
}

// neonDot multiplies by SDOT, and reads the packed bits for few rows.
var neonDot = func() kernels {
	k := neon
	k.name = "neon_dot"
	k.dot = func(p *dotArgs, f *format, rows, panels int) { tilesNEON(p, &dotNEON, f, rows, panels) }
	k.few = 2
	k.fused = func(f *format, rows int) func(*dotArgs) {
		return fusedNEON[fusedForm{f.bits, f.table != nil, f.hasMin, f.super, f.bf16}][rows]
	}
	return k
}()

// tilesNEON takes as many rows through a panel at once as there are kernels for: the integer and float sums of more do not fit the registers.
func tilesNEON(p *dotArgs, kernels *[2][2][]func(*dotArgs), f *format, rows, panels int) {
	b, m := 0, 0
	if f.block == 32 {
		b = 1
	}
	if f.hasMin {
		m = 1
	}
	byRows := kernels[b][m]
	most := len(byRows) - 1
	saved := *p
	for v := range panels {
		p.w = unsafe.Add(saved.w, v*p.wPanel)
		p.scale = unsafe.Add(saved.scale, v*p.scaleSize)
		p.mask = saved.mask >> (16 * v)
		for i := 0; i < rows; {
			n := (rows - i + most - 1) / most // tiles to go
			n = (rows - i + n - 1) / n
			p.a = unsafe.Add(saved.a, i*p.aStride)
			p.meta = unsafe.Add(saved.meta, 4*i)
			p.c = unsafe.Add(saved.c, i*p.ldc+v*4*nr)
			byRows[n](p)
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
