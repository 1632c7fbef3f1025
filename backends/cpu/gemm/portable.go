package gemm

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/fma"
)

// The portable kernels are the twins of the assembly: the same contract, the same bits.

func portableKernels() []*kernel {
	const mr, nr = 4, 8
	var list []*kernel
	for _, k := range []kernel{
		{name: "f32_f32_4x8k1__portable", a: aF32, b: format{F32, nr, 1}, acc: F32},
		{name: "f32_bf16_4x8k2__portable", a: aF32, b: format{BF16, nr, 2}, acc: F32},
		{name: "f32_f16_4x8k1__portable", a: aF32, b: format{F16, nr, 1}, acc: F32},
		{name: "s8_s8_4x8k4__portable", a: aS8, b: format{S8, nr, 4}, acc: S32},
	} {
		k.isa, k.mr = cpuinfo.Portable, mr
		k.full = twins(mr, func(h int) func(*kargs) { return twin(h, k.a, k.b) })
		list = append(list, &k)
	}
	return list
}

// twin returns the Go kernel of h rows for A and B in these forms.
func twin(h int, a, b format) func(*kargs) {
	switch {
	case a == aF32 && b.elem == F32:
		return twinF32(h, b.nr)
	case a == aF32:
		return twinHalf(h, b)
	case a == aBF16 && b.kr == 2:
		return twinDotBF16(h, b)
	case a == aBF16:
		return twinMatBF16(h, b)
	}
	if a == aS8 && b.flip() != 0 && bits.UintSize == 64 {
		return twinPairs(h, b)
	}
	return twinInt(h, a, b, 1)
}

// twin returns the Go kernel of h rows that gives the bits of k.
func (k *kernel) twin(h int) func(*kargs) {
	switch {
	case k.tile > 0 && k.acc == F32:
		return twinTiles(h, k.b.nr, k.tile)
	case k.tile > 0:
		return twinInt(h, k.a, k.b, k.tile)
	}
	return twin(h, k.a, k.b)
}

// twins makes the table of heights 1 to mr.
func twins(mr int, of func(h int) func(*kargs)) []func(*kargs) {
	t := make([]func(*kargs), mr+1)
	for h := 1; h <= mr; h++ {
		t[h] = of(h)
	}
	return t
}

// twinF32 is the kernel of h rows and nr columns in Go.
func twinF32(h, nr int) func(*kargs) {
	return func(p *kargs) {
		for ; p.panels > 0; p.panels-- {
			cols := nr
			if p.panels == 1 {
				cols = p.tail
			}
			p.panelF32(h, cols, p.a, p.b, p.bks, p.k, p.acc != 0)
			if p.panels > 1 {
				p.b, p.c = unsafe.Add(p.b, p.bps), unsafe.Add(p.c, nr*4)
			}
		}
	}
}

// panelF32 adds the products of steps of A with rows of B, bks bytes apart, to C, or to zero.
func (p *kargs) panelF32(h, cols int, a, b unsafe.Pointer, bks, steps int, acc bool) {
	for i := range h {
		a, c0 := unsafe.Add(a, i*p.ars), unsafe.Add(p.c, i*p.ldc)
		j := 0
		for ; j+4 <= cols; j += 4 {
			c := (*[4]float32)(unsafe.Add(c0, j*4))
			if !acc {
				clear(c[:])
			}
			fma.Chain4(c, a, unsafe.Add(b, j*4), p.acs, bks, steps)
		}
		for ; j < cols; j++ {
			c := (*float32)(unsafe.Add(c0, j*4))
			var s float32
			if acc {
				s = *c
			}
			for t := range steps {
				s = fma.F32(*(*float32)(unsafe.Add(a, t*p.acs)), *(*float32)(unsafe.Add(b, t*bks+j*4)), s)
			}
			*c = s
		}
	}
}

// eachElement calls f for every row i and column j of every panel, with where that element's row of A, column of B (step 0) and
// C lie, and advances as a kernel does.
func (p *kargs) eachElement(h, nr, colBytes int, f func(a, b, c unsafe.Pointer, i, j int)) {
	for ; p.panels > 0; p.panels-- {
		cols := nr
		if p.panels == 1 {
			cols = p.tail
		}
		for i := range h {
			for j := range cols {
				f(unsafe.Add(p.a, i*p.ars), unsafe.Add(p.b, j*colBytes), unsafe.Add(p.c, i*p.ldc+j*4), i, j)
			}
		}
		if p.panels > 1 {
			p.advance(1, nr)
		}
	}
}

// twinHalf multiplies f32 by bf16 or f16, which it widens some steps at a time.
func twinHalf(h int, b format) func(*kargs) {
	return func(p *kargs) {
		var f [1024]float32
		most := len(f) / b.nr // steps at once
		for ; p.panels > 0; p.panels-- {
			cols := b.nr
			if p.panels == 1 {
				cols = p.tail
			}
			for t0 := 0; t0 == 0 || t0 < p.k; t0 += most {
				steps := min(most, p.k-t0)
				for t := range steps {
					row := f[t*b.nr:][:cols]
					from := unsafe.Add(p.b, (t0+t)/b.kr*p.bks+(t0+t)%b.kr*2)
					if b.elem == F16 {
						for j := range row {
							row[j] = fromF16(*(*uint16)(unsafe.Add(from, j*b.kr*2)))
						}
					} else {
						for j := range row {
							row[j] = fromBF16(*(*uint16)(unsafe.Add(from, j*b.kr*2)))
						}
					}
				}
				p.panelF32(h, cols, unsafe.Add(p.a, t0*p.acs), unsafe.Pointer(&f), b.nr*4, steps, p.acc != 0 || t0 > 0)
			}
			if p.panels > 1 {
				p.advance(1, b.nr)
			}
		}
	}
}

// twinDotBF16 multiplies pairs as VDPBF16PS does: the odd element first, then the even one, each by a fused multiply-add, with
// subnormal inputs and results taken as zero.
func twinDotBF16(h int, b format) func(*kargs) {
	return func(p *kargs) {
		p.eachElement(h, b.nr, 4, func(pa, pb, pc unsafe.Pointer, _, _ int) {
			var s float32
			if p.acc != 0 {
				s = *(*float32)(pc)
			}
			for t := range p.k {
				x := *(*[2]uint16)(unsafe.Add(pa, t*p.acs))
				y := *(*[2]uint16)(unsafe.Add(pb, t*p.bks))
				for e := 1; e >= 0; e-- {
					s = flush(fma.F32(flush(fromBF16(x[e])), flush(fromBF16(y[e])), flush(s)))
				}
			}
			*(*float32)(pc) = s
		})
	}
}

// flush takes a subnormal for zero.
func flush(v float32) float32 {
	if math.Float32bits(v)&0x7f800000 == 0 {
		return math.Float32frombits(math.Float32bits(v) & (1 << 31))
	}
	return v
}

// twinMatBF16 multiplies as BFMMLA does: for each pair of k the sum of the two products, which joins the sum; both sums are rounded
// to odd, and subnormal inputs and results are taken as zero.
func twinMatBF16(h int, b format) func(*kargs) {
	return func(p *kargs) {
		p.eachElement(h, b.nr, b.kr*2, func(pa, pb, pc unsafe.Pointer, _, _ int) {
			var s float32
			if p.acc != 0 {
				s = *(*float32)(pc)
			}
			// A step has two k, a group of B four; the group's last step has no source when the steps are odd.
			for t := range roundUp(p.k, 2) {
				var x [2]uint16
				if t < p.k {
					x = *(*[2]uint16)(unsafe.Add(pa, t*p.acs))
				}
				y := *(*[2]uint16)(unsafe.Add(pb, t/2*p.bks+t%2*4))
				v := flush(flush(fromBF16(x[0])) * flush(fromBF16(y[0])))
				w := flush(flush(fromBF16(x[1])) * flush(fromBF16(y[1])))
				s = addOdd(s, addOdd(v, w))
			}
			*(*float32)(pc) = s
		})
	}
}

// addOdd adds, subnormals taken as zero: a sum that is not exact gets the neighbour nearer to zero, or the other one where that has
// an even significand.
func addOdd(a, b float32) float32 {
	x, y := float64(flush(a)), float64(flush(b))
	s := x + y
	t := s - x
	e := (x - (s - t)) + (y - t) // what s lost
	f := float32(s)
	d := float64(f) - s // what f is too large
	if f-f != 0 {       // infinite, or none: only what float64 also takes for that is
		if s-s == 0 && math.Abs(s) < 1<<128 {
			return float32(math.Copysign(math.MaxFloat32, s))
		}
		return f
	}
	if d == 0 {
		d = -e
	}
	if d != 0 {
		u := math.Float32bits(f)
		if (d > 0) == (f > 0) && u&(1<<31-1) != 0 {
			u-- // f lies beyond the sum
		}
		f = math.Float32frombits(u | 1)
	}
	return flush(f)
}

// twinPairs multiplies s8 by u8, two columns by one multiplication of 64 bits. The lower column's sum of some steps fits 32 bits, so that
// what it carried into the upper one is known.
func twinPairs(h int, b format) func(*kargs) {
	const most, wide = 8, 32 // steps of four k and columns at once
	return func(p *kargs) {
		var pairs [most * 4 * wide / 2]uint64
		for ; p.panels > 0; p.panels-- {
			cols := b.nr
			if p.panels == 1 {
				cols = p.tail
			}
			for i := range h {
				for j := range cols {
					c := (*int32)(unsafe.Add(p.c, i*p.ldc+j*4))
					if p.acc == 0 {
						*c = 0
					}
					if p.rows != nil {
						*c += *(*int32)(unsafe.Add(p.rows, i*4))
					}
					if p.fold != 0 {
						*c += int32(p.fold) * *(*int32)(unsafe.Add(p.comp, j*4))
					}
				}
			}
			half := (cols + 1) / 2
			for t0 := 0; t0 < p.k; t0 += most {
				steps := min(most, p.k-t0)
				for t := range steps {
					from := unsafe.Add(p.b, (t0+t)*p.bks)
					for j := range cols / 2 {
						x, y := (*[4]uint8)(unsafe.Add(from, j*8)), (*[4]uint8)(unsafe.Add(from, j*8+4))
						to := (*[4]uint64)(pairs[(j*most+t)*4:])
						to[0], to[1], to[2], to[3] = uint64(x[0])|uint64(y[0])<<32, uint64(x[1])|uint64(y[1])<<32, uint64(x[2])|uint64(y[2])<<32, uint64(x[3])|uint64(y[3])<<32
					}
					if cols%2 != 0 {
						x, to := (*[4]uint8)(unsafe.Add(from, cols/2*8)), (*[4]uint64)(pairs[(cols/2*most+t)*4:])
						to[0], to[1], to[2], to[3] = uint64(x[0]), uint64(x[1]), uint64(x[2]), uint64(x[3])
					}
				}
				for i := range h {
					a, c := unsafe.Add(p.a, i*p.ars+t0*p.acs), unsafe.Add(p.c, i*p.ldc)
					for j := range half {
						s := dotPairs(a, p.acs, pairs[j*most*4:][:steps*4])
						lo := int32(s)
						*(*int32)(unsafe.Add(c, j*8)) += lo
						if 2*j+1 < cols {
							*(*int32)(unsafe.Add(c, j*8+4)) += int32((s - int64(lo)) >> 32)
						}
					}
				}
			}
			if p.panels > 1 {
				p.advance(1, b.nr)
			}
		}
	}
}

// dotPairs multiplies groups of four signed bytes, step bytes apart, by pairs of numbers.
func dotPairs(a unsafe.Pointer, step int, pairs []uint64) int64 {
	var s0, s1 uint64
	for at := 0; len(pairs) >= 4; at += step {
		x := (*[4]int8)(unsafe.Add(a, at))
		s0 += uint64(x[0])*pairs[0] + uint64(x[1])*pairs[1]
		s1 += uint64(x[2])*pairs[2] + uint64(x[3])*pairs[3]
		pairs = pairs[4:]
	}
	return int64(s0 + s1)
}

// twinTiles multiplies pairs as TDPBF16PS does: the products of the even and of the odd elements of the steps of a tile are two chains of
// fused multiply-adds from zero, whose sum joins the sum; subnormal inputs and results are taken as zero.
func twinTiles(h, nr, tile int) func(*kargs) {
	return func(p *kargs) {
		p.eachElement(h, nr, 4, func(pa, pb, pc unsafe.Pointer, _, _ int) {
			var s float32
			if p.acc != 0 {
				s = *(*float32)(pc)
			}
			for t0 := 0; t0 < p.k; t0 += tile {
				var even, odd float32
				for t := t0; t < min(t0+tile, p.k); t++ {
					x := *(*[2]uint16)(unsafe.Add(pa, t0*p.acs+(t-t0)*4))
					y := *(*[2]uint16)(unsafe.Add(pb, t*p.bks))
					even = flush(fma.F32(flush(fromBF16(x[0])), flush(fromBF16(y[0])), even))
					odd = flush(fma.F32(flush(fromBF16(x[1])), flush(fromBF16(y[1])), odd))
				}
				s = flush(flush(s) + flush(even+odd))
			}
			*(*float32)(pc) = s
		})
	}
}

// twinInt multiplies groups of s8 by groups of u8 or s8, or of s16 by s8. Of each row of A, tile groups lie side by side.
func twinInt(h int, a, b format, tile int) func(*kargs) {
	return func(p *kargs) {
		p.eachElement(h, b.nr, b.kr, func(pa, pb, pc unsafe.Pointer, i, j int) {
			var s int32
			if p.acc != 0 {
				s = *(*int32)(pc)
			}
			if p.rows != nil {
				s += *(*int32)(unsafe.Add(p.rows, i*4))
			}
			if p.fold != 0 {
				s += int32(p.fold) * *(*int32)(unsafe.Add(p.comp, j*4))
			}
			for t := range p.k {
				per := b.kr / a.kr
				x, y := unsafe.Add(pa, t/tile*tile*p.acs+t%tile*4), unsafe.Add(pb, t/per*p.bks+t%per*a.kr)
				if a.elem == S8 && b.flip() == 0 {
					u, v := (*[4]int8)(x), (*[4]int8)(y)
					s += int32(u[0])*int32(v[0]) + int32(u[1])*int32(v[1]) + int32(u[2])*int32(v[2]) + int32(u[3])*int32(v[3])
				} else if a.elem == S8 {
					u, v := (*[4]int8)(x), (*[4]uint8)(y)
					s += int32(u[0])*int32(v[0]) + int32(u[1])*int32(v[1]) + int32(u[2])*int32(v[2]) + int32(u[3])*int32(v[3])
				} else {
					u, v := (*[2]int16)(x), (*[2]int8)(y)
					s += int32(u[0])*int32(v[0]) + int32(u[1])*int32(v[1])
				}
			}
			*(*int32)(pc) = s
		})
	}
}
