package ladder

import (
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// args is what a kernel is called with. Addresses are those of float32; strides are in bytes.
type args struct {
	c    unsafe.Pointer // of the first element computed, or what is packed
	a    unsafe.Pointer
	b    unsafe.Pointer
	ldc  int // between columns of C
	lda  int // between columns of A (of B, for packB), or between panels of packed A
	k    int
	rows int // that are valid, 1 to lanes
	cols int // that are valid, 1 to NR
	add  int // 1: add to C
}

// The offsets that the assembly uses.
var _ = [1]struct{}{}[unsafe.Offsetof(args{}.c)|unsafe.Offsetof(args{}.a)-word|unsafe.Offsetof(args{}.b)-2*word|
	unsafe.Offsetof(args{}.ldc)-3*word|unsafe.Offsetof(args{}.lda)-4*word|unsafe.Offsetof(args{}.k)-5*word|
	unsafe.Offsetof(args{}.rows)-6*word|unsafe.Offsetof(args{}.cols)-7*word|unsafe.Offsetof(args{}.add)-8*word]

const word = unsafe.Sizeof(uintptr(0))

// level is the set of kernels of one vector width. Their contracts:
//
//   - column computes up to lanes rows of one column of C from A and B in place, four k at a time in chains of their own.
//   - tile computes lanes rows of up to NR columns from one panel of A and one of B; wide does so for several panels of A at
//     once, all whole.
//   - packA copies up to lanes rows of A to lanes values a k, zeros below them; packB copies NR columns of B to NR values a k.
//
// A predicated level takes fewer than lanes rows; the others are only given whole vectors.
type level struct {
	name       string
	lanes      int
	predicated bool
	column     func(*args)
	tile       func(*args)
	wide       func(*args)
	panels     int // of wide
	packA      func(*args)
	packB      func(*args) // of NR columns
	group      int         // of k that packB takes at once
}

// portable returns the Go twin of a level of that many lanes.
func portable(lanes int) *level {
	return &level{
		name: "go", lanes: lanes, predicated: true, panels: 1,
		column: func(p *args) { columnGo(p, lanes) },
		tile:   func(p *args) { tileGo(p, lanes, 1) },
		wide:   func(p *args) { tileGo(p, lanes, 1) },
		packA:  func(p *args) { packAGo(p, lanes) },
		packB:  packBGo,
		group:  1,
	}
}

// levels returns the kernels of 128 bits and the widest ones for the instruction set that TESSERA_ISA allows.
func levels() (narrow, widest *level, err error) {
	isa, err := cpuinfo.Pinned()
	if err != nil {
		return nil, nil, err
	}
	if isa == cpuinfo.Portable {
		p := portable(4)
		return p, p, nil
	}
	narrow, widest = archLevels(isa)
	return narrow, widest, nil
}

func at(base unsafe.Pointer, bytes int) *float32 { return (*float32)(unsafe.Add(base, bytes)) }

// chains is the number of chains of sums that hide the latency of an addition.
const chains = 4

func columnGo(p *args, lanes int) {
	for i := range min(p.rows, lanes) {
		var s [chains]float32
		k := 0
		for ; k+chains <= p.k; k += chains {
			for t := range chains {
				s[t] += *at(p.a, 4*i+(k+t)*p.lda) * *at(p.b, 4*(k+t))
			}
		}
		sum := (s[0] + s[1]) + (s[2] + s[3])
		for ; k < p.k; k++ {
			sum += *at(p.a, 4*i+k*p.lda) * *at(p.b, 4*k)
		}
		c := at(p.c, 4*i)
		if p.add != 0 {
			sum += *c
		}
		*c = sum
	}
}

// tileGo is written for a compiler that keeps single values in registers: one row of the tile at a time.
func tileGo(p *args, lanes, panels int) {
	for pn := range panels {
		rows := lanes
		if panels == 1 {
			rows = p.rows
		}
		for i := range rows {
			a := unsafe.Add(p.a, pn*p.lda+4*i)
			b := p.b
			var s0, s1, s2, s3 float32
			for range p.k {
				v := *(*float32)(a)
				w := (*[NR]float32)(b)
				s0 += v * w[0]
				s1 += v * w[1]
				s2 += v * w[2]
				s3 += v * w[3]
				// The step behind the last one may lie outside the memory, so it is an address only.
				a = unsafe.Pointer(uintptr(a) + uintptr(4*lanes))
				b = unsafe.Pointer(uintptr(b) + 4*NR)
			}
			for j, s := range [NR]float32{s0, s1, s2, s3} {
				if j >= p.cols {
					break
				}
				c := at(p.c, j*p.ldc+4*(pn*lanes+i))
				if p.add != 0 {
					s += *c
				}
				*c = s
			}
		}
	}
}

func packAGo(p *args, lanes int) {
	for k := range p.k {
		for i := range lanes {
			v := float32(0)
			if i < p.rows {
				v = *at(p.a, 4*i+k*p.lda)
			}
			*at(p.c, 4*(k*lanes+i)) = v
		}
	}
}

func packBGo(p *args) {
	for k := range p.k {
		for j := range NR {
			v := float32(0)
			if j < p.cols {
				v = *at(p.b, 4*k+j*p.lda)
			}
			*at(p.c, 4*(k*NR+j)) = v
		}
	}
}
