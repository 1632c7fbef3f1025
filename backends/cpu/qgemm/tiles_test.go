package qgemm

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/fma"
)

// tilesGoKernels let the driver's ways with tiles be tested on every processor.
var tilesGoKernels = func() *kernels {
	k := portable
	k.name, k.tiles = "tiles_go", tilesGo
	return &k
}()

// tilesGo is what kernels of tiles compute: signed bytes, whose sums start from 0. It overwrites the buffer that they may use.
func tilesGo(p *dotArgs, form *format) {
	clear(unsafe.Slice((*byte)(p.buf), tileBuf))
	step, block := form.scaleStep(), form.block
	for g := range p.groups {
		for i := range p.rows {
			x := unsafe.Add(p.a, (g*p.rows+i)*p.aStride)
			for v := range p.panels {
				for j := range nr {
					if p.mask>>(16*v+j)&1 == 0 {
						continue
					}
					c := (*float32)(unsafe.Add(p.c, (g*p.rows+i)*p.ldc+(v*nr+j)*4))
					var f float32
					if p.acc != 0 {
						f = *c
					}
					for b := range p.blocks {
						var n int32
						for l := b * block; l < (b+1)*block; l++ {
							n += int32(*(*int8)(unsafe.Add(x, l))) * int32(*(*int8)(unsafe.Add(p.w, v*p.wPanel+l/4*4*nr+4*j+l%4)))
						}
						meta := unsafe.Add(p.meta, g*p.metaGroup+b*metaStep(manySlots)+4*i)
						s := unsafe.Add(p.scale, v*p.scaleSize+b*step+4*j)
						f = fma.F32(float32(n)**(*float32)(s), *(*float32)(meta), f)
						if form.hasMin {
							f = fma.F32(*(*float32)(unsafe.Add(s, 4*nr)), *(*float32)(unsafe.Add(meta, 8*manySlots)), f)
						}
					}
					*c = f
				}
			}
		}
	}
}
