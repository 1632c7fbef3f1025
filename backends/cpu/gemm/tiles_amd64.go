//go:build amd64 && !noasm

package gemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/internal/tile"
)

// Products of tiles. A strip of up to 32 rows is one or two tiles of A, a panel of 32 columns two of B, and four sums are in flight, with low
// strips those of two panels. Rows of A are read as they lie, and B in the panels that the dot products of vectors read. All sizes that are no
// whole tiles, the rests of rows, columns and k, are tiles configured smaller, so that nothing is read past an end and no padding is multiplied.

// tileSteps is the number of steps of a tile. It is part of the order of sums of bf16.
const tileSteps = tile.Bytes / 4

// tileKernels returns the kernels of so many panels at once by height.
func tileKernels(bytes bool, mr, panels int) []func(*kargs) {
	return twins(mr, func(h int) func(*kargs) { return (&tileKernel{bytes, h, panels}).run })
}

// tileKernel is the kernel of a height: it cuts calls into those that one configuration serves.
type tileKernel struct {
	bytes  bool // groups of four bytes; else pairs of bf16
	h      int
	panels int // at once, all of them whole unless it is 1
}

// run goes through the whole tiles of k and then, for all panels again, through the rest.
func (x *tileKernel) run(p *kargs) {
	first := *p
	rest := p.k % tileSteps
	whole := p.k - rest
	if whole > 0 {
		p.k = whole
		x.columns(p)
	}
	if rest > 0 {
		b := p.b
		if whole > 0 {
			p.a, p.c, p.comp, p.panels, p.tail = unsafe.Add(first.a, whole*p.acs), first.c, first.comp, first.panels, first.tail
			p.acc, p.fold, p.rows = 1, 0, nil
		}
		p.b = unsafe.Add(first.b, whole*p.bks)
		p.k = rest
		x.columns(p)
		if whole > 0 {
			p.b = b
		}
	}
	p.a, p.k, p.acc, p.fold, p.rows, p.tail = first.a, first.k, first.acc, first.fold, first.rows, first.tail
}

// columns goes through the panels; a short last one has a configuration of its own.
func (x *tileKernel) columns(p *kargs) {
	const nr = 2 * tile.Rows
	tail, panels := p.tail, p.panels
	if tail == nr {
		x.call(p, nr)
		return
	}
	if panels > 1 {
		p.panels, p.tail = panels-1, nr
		x.call(p, nr)
		p.advance(1, nr)
	}
	p.panels, p.tail = 1, tail
	x.call(p, tail)
}

// call configures the tiles for panels of so many columns and runs the assembly.
func (x *tileKernel) call(p *kargs, cols int) {
	steps := min(p.k, tileSteps)
	var cfg tile.Config
	sum := 0
	for row := 0; row < x.h; row += tile.Rows {
		h := min(x.h-row, tile.Rows)
		for range x.panels {
			for col := 0; col < cols; col += tile.Rows {
				cfg.Set(sum, h, 4*min(cols-col, tile.Rows))
				sum++
			}
		}
		cfg.Set(4+row/tile.Rows, h, 4*steps)
	}
	for i := range ceilDiv(cols, tile.Rows) {
		cfg.Set(6+i, steps, 4*min(cols-i*tile.Rows, tile.Rows))
	}
	shape := [2]int{ceilDiv(x.h, tile.Rows), ceilDiv(cols, tile.Rows) * x.panels}
	if x.bytes {
		switch shape {
		case [2]int{1, 1}:
			tiles1x1U8(p, &cfg, x.h)
		case [2]int{1, 2}:
			tiles1x2U8(p, &cfg, x.h)
		case [2]int{1, 4}:
			tiles1x2x2U8(p, &cfg, x.h)
		case [2]int{2, 1}:
			tiles2x1U8(p, &cfg, x.h)
		default:
			tiles2x2U8(p, &cfg, x.h)
		}
		return
	}
	switch shape {
	case [2]int{1, 1}:
		tiles1x1BF16(p, &cfg, x.h)
	case [2]int{1, 2}:
		tiles1x2BF16(p, &cfg, x.h)
	case [2]int{1, 4}:
		tiles1x2x2BF16(p, &cfg, x.h)
	case [2]int{2, 1}:
		tiles2x1BF16(p, &cfg, x.h)
	default:
		tiles2x2BF16(p, &cfg, x.h)
	}
}
