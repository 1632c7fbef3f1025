package qgemm

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/fma"
	"github.com/tessera-go/tessera/tensor"
)

// The kernels in plain Go: what the assembly is compared with, and what runs where there is none.

var portable = kernels{
	name:     "portable",
	isa:      cpuinfo.Portable,
	dot:      dotGo,
	panels:   [maxRows + 1]int{0, 4, 4, 2, 2, 2, 2},
	rows:     maxRows,
	height:   12,
	spread:   spreadGo,
	halfs:    halfsGo,
	bhalfs:   bhalfsGo,
	supers:   supersGo,
	quantize: quantizeGo,
}

func dotGo(p *dotArgs, form *format, rows, panels int) {
	step, block := form.scaleStep(), form.block
	for i := range rows {
		a := unsafe.Add(p.a, i*p.aStride)
		for v := range panels {
			w := unsafe.Add(p.w, v*p.wPanel)
			c := unsafe.Add(p.c, i*p.ldc+v*4*nr)
			var f [nr]float32
			mask := p.mask >> (16 * v)
			if p.acc != 0 {
				for j := range f {
					if mask>>j&1 != 0 {
						f[j] = *(*float32)(unsafe.Add(c, 4*j))
					}
				}
			}
			for b := range p.blocks {
				meta := unsafe.Add(p.meta, b*metaStep(manySlots)+4*i)
				scale, init, sum := *(*float32)(meta), *(*int32)(unsafe.Add(meta, 4*manySlots)), *(*float32)(unsafe.Add(meta, 8*manySlots))
				var n [nr]int32
				for j := range n {
					n[j] = init
				}
				x := unsafe.Slice((*int8)(unsafe.Add(a, b*block)), block)
				y := unsafe.Slice((*uint8)(unsafe.Add(w, b*block*nr)), block*nr)
				for g := 0; g < block; g += 4 {
					x0, x1, x2, x3 := int32(x[g]), int32(x[g+1]), int32(x[g+2]), int32(x[g+3])
					for j := range n {
						q := y[g*nr+4*j:][:4]
						n[j] += x0*int32(q[0]) + x1*int32(q[1]) + x2*int32(q[2]) + x3*int32(q[3])
					}
				}
				s := unsafe.Slice((*float32)(unsafe.Add(p.scale, v*p.scaleSize+b*step)), step/4)
				for j := range f {
					f[j] = fma.F32(float32(n[j])*s[j], scale, f[j])
				}
				if form.hasMin {
					for j := range f {
						f[j] = fma.F32(s[nr+j], sum, f[j])
					}
				}
			}
			for j := range f {
				if mask>>j&1 != 0 {
					*(*float32)(unsafe.Add(c, 4*j)) = f[j]
				}
			}
		}
	}
}

// spreadGo spreads unit by unit.
func spreadGo(dst, src unsafe.Pointer, f *format, n, per, stride int, less uint8) {
	for u := range n {
		w := unsafe.Slice((*byte)(unsafe.Add(dst, u*unitSize)), unitSize)
		spreadUnit(f, w, unsafe.Slice((*byte)(unsafe.Add(src, u/per*stride+u%per*bitsSize[f.bits])), bitsSize[f.bits]))
		if less != 0 {
			for i := range w {
				w[i] -= less
			}
		}
	}
}

func spreadUnit(f *format, w, q []byte) {
	switch f.bits {
	case u8:
		copy(w, q)
		return
	case u4, u5, u6:
		for i, v := range q[:256] {
			w[i], w[i+256] = v&15, v>>4
		}
	}
	switch f.bits {
	case u4:
		if f.table != nil {
			for i, v := range w {
				w[i] = f.table[v]
			}
		}
	case u5:
		for i := range w {
			w[i] |= q[256+i%64] >> (i / 64) & 1 << 4
		}
	case u6:
		for i := range w {
			w[i] |= q[256+i/256*64+i%64] >> (i / 64 % 4 * 2) & 3 << 4
		}
	case u2, u3:
		for i := range w {
			w[i] = q[i/256*64+i%64] >> (i / 64 % 4 * 2) & 3
		}
		if f.bits == u3 {
			for i := range w {
				w[i] |= q[128+i%64] >> (i / 64) & 1 << 2
			}
		}
	}
}

// packUnit is the inverse of unpack without a table: it stores the integers of a unit.
func packUnit(b bits, q, w []byte) {
	clear(q)
	switch b {
	case u8:
		copy(q, w)
		return
	case u4, u5, u6:
		for i := range 256 {
			q[i] = w[i]&15 | w[i+256]&15<<4
		}
	}
	for i, v := range w {
		switch b {
		case u5:
			q[256+i%64] |= v >> 4 & 1 << (i / 64)
		case u6:
			q[256+i/256*64+i%64] |= v >> 4 & 3 << (i / 64 % 4 * 2)
		case u2, u3:
			q[i/256*64+i%64] |= v & 3 << (i / 64 % 4 * 2)
		}
		if b == u3 {
			q[128+i%64] |= v >> 2 & 1 << (i / 64)
		}
	}
}

func halfsGo(dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int) {
	for v := range n {
		from := unsafe.Add(src, v/per*stride+v%per*halfs)
		tensor.F16sToF32(unsafe.Slice((*float32)(unsafe.Add(dst, v*step)), nr), unsafe.Slice((*uint16)(from), nr))
	}
}

func bhalfsGo(dst unsafe.Pointer, step int, src unsafe.Pointer, n, per, stride int) {
	for v := range n {
		from := unsafe.Add(src, v/per*stride+v%per*halfs)
		tensor.BF16sToF32(unsafe.Slice((*float32)(unsafe.Add(dst, v*step)), nr), unsafe.Slice((*uint16)(from), nr))
	}
}

func supersGo(dst unsafe.Pointer, step int, d, s unsafe.Pointer, n, subs, stride int, neg uint32) {
	var scale [nr]float32
	for b := range n {
		tensor.F16sToF32(scale[:], unsafe.Slice((*uint16)(unsafe.Add(d, b*stride)), nr))
		for i := range subs {
			out := unsafe.Slice((*float32)(unsafe.Add(dst, (b*subs+i)*step)), nr)
			for j, v := range unsafe.Slice((*int8)(unsafe.Add(s, b*stride+i*nr)), nr) {
				out[j] = math.Float32frombits(math.Float32bits(scale[j])^neg) * float32(v)
			}
		}
	}
}

func quantizeGo(q, metas unsafe.Pointer, x unsafe.Pointer, n, block int, zero int32, slots int) {
	in, out := unsafe.Slice((*float32)(x), n), unsafe.Slice((*int8)(q), n)
	for b := range n / block {
		m := unsafe.Add(metas, b*metaStep(slots))
		put := func(scale float32, init int32, sum float32) {
			*(*float32)(m), *(*int32)(unsafe.Add(m, 4*slots)), *(*float32)(unsafe.Add(m, 8*slots)) = scale, init, sum
		}
		row, dst := in[b*block:][:block], out[b*block:][:block]
		var top float32
		bad := false
		for _, v := range row {
			a := math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
			if a > top {
				top = a
			}
			bad = bad || a != a || a > math.MaxFloat32
		}
		if bad { // NaN or infinity: every product with the block is NaN
			clear(dst)
			nan := float32(math.NaN())
			put(nan, 0, nan)
			continue
		}
		scale := top / 127
		inv := float32(0)
		if top > 0 {
			inv = 127 / top
			if inv > math.MaxFloat32 { // a subnormal block: its products vanish
				inv, scale = 0, 0
			}
		}
		sum := int32(0)
		for i, v := range row {
			// |v * inv| stays below 128, so adding and subtracting 1.5 * 2^23 rounds to nearest even.
			const magic = 3 << 22
			r := int32(float32(float32(v*inv)+magic) - magic)
			dst[i] = int8(r)
			sum += r
		}
		put(scale, -zero*sum, scale*float32(sum))
	}
}
