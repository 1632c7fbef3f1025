package gemm

import (
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// The portable kernels are the twins of the assembly: the same contract, the same bits.

func portableKernels() []*kernel {
	return []*kernel{
		{
			name: "f32_f32_4x8k1__portable", isa: cpuinfo.Portable, a: F32, aK: 1, b: format{F32, 8, 1}, acc: F32, mr: 4,
			full: twins(4, func(h int) func(*kargs) { return twinF32(h, 8) }), exact: true,
		},
	}
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
			for i := range h {
				a0 := unsafe.Add(p.a, i*p.ars)
				c0 := unsafe.Add(p.c, i*p.ldc)
				j := 0
				for ; j+4 <= cols; j += 4 {
					// Four columns at a time keep their sums in registers.
					c := (*[4]float32)(unsafe.Add(c0, j*4))
					var s0, s1, s2, s3 float32
					if p.acc != 0 {
						s0, s1, s2, s3 = c[0], c[1], c[2], c[3]
					}
					a, b := a0, unsafe.Add(p.b, j*4)
					for t := 0; t < p.k; t++ {
						x := *(*float32)(a)
						y := (*[4]float32)(b)
						s0 = fma32(x, y[0], s0)
						s1 = fma32(x, y[1], s1)
						s2 = fma32(x, y[2], s2)
						s3 = fma32(x, y[3], s3)
						if t+1 < p.k {
							a, b = unsafe.Add(a, p.acs), unsafe.Add(b, p.bks)
						}
					}
					c[0], c[1], c[2], c[3] = s0, s1, s2, s3
				}
				for ; j < cols; j++ {
					c := (*float32)(unsafe.Add(c0, j*4))
					var s float32
					if p.acc != 0 {
						s = *c
					}
					a, b := a0, unsafe.Add(p.b, j*4)
					for t := 0; t < p.k; t++ {
						s = fma32(*(*float32)(a), *(*float32)(b), s)
						if t+1 < p.k {
							a, b = unsafe.Add(a, p.acs), unsafe.Add(b, p.bks)
						}
					}
					*c = s
				}
			}
			if p.panels > 1 {
				p.b, p.c = unsafe.Add(p.b, p.bps), unsafe.Add(p.c, nr*4)
			}
		}
	}
}

// fma32 returns a*b + c rounded once to float32, as the multiply-add instructions do. The product of two float32 is exact in
// float64; the sum, rounded to 53 bits, gives the right float32 unless it lies on the middle between two of them (or between
// subnormals), where the rounded-off part decides.
func fma32(a, b, c float32) float32 {
	p := float64(a) * float64(b)
	s := p + float64(c)
	const low = 1<<29 - 1 // bits of a float64 below a float32
	if u := math.Float64bits(s); u&low != 1<<28 && u>>52&0x7ff > 896 {
		return float32(s)
	}
	return fma32slow(p, float64(c), s)
}

func fma32slow(p, c, s float64) float32 {
	// e is what s lost, exactly (Knuth's two-sum); rounding s to odd keeps the second rounding from being misled by the first.
	t := s - p
	e := (p - (s - t)) + (c - t)
	if u := math.Float64bits(s); e != 0 && u&1 == 0 && e == e {
		if (e > 0) == (s > 0) {
			u++
		} else {
			u--
		}
		s = math.Float64frombits(u)
	}
	return float32(s)
}
