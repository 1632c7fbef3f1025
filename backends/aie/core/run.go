package core

import (
	"encoding/binary"
	"fmt"
	"unsafe"
)

// Narrow is how sums leave the accumulators: shifted, rounded, and saturated or wrapped.
type Narrow struct {
	Shift    uint
	Round    Rounding
	Saturate bool
}

// Call is one call of a block kernel: C += A B on blocks in the layouts of this package.
type Call struct {
	M, KB, N int // multiples of MR, KS and NR
	A, B     []byte
	Partial  []byte // sums that wait for the next part of K; used unless First and Last
	Out      []byte // results, written if Last
	Step
	Narrow
	In   []int64 // sums of the neighbour, in the order of C, if CascadeIn
	Sent []int64 // where sums for the neighbour go, if CascadeOut
}

// view reinterprets bytes that hold n little-endian elements.
func view[T any](b []byte, n int) []T {
	if n == 0 {
		return nil
	}
	var e T
	_ = b[n*int(unsafe.Sizeof(e))-1]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Check returns an error unless the call's blocks are whole and its memory is large enough.
func (k Kernel) Check(c *Call) error {
	if c.M <= 0 || c.N <= 0 || c.KB <= 0 || c.M%k.MR != 0 || c.N%k.NR != 0 || c.KB%k.KS != 0 {
		return fmt.Errorf("%v kernel: block %d x %d x %d (m, k, n) is no multiple of %d x %d x %d", k, c.M, c.KB, c.N, k.MR, k.KS, k.NR)
	}
	e := k.Type.Bytes()
	for _, f := range []struct {
		name       string
		have, need int
	}{
		{"A", len(c.A), c.M * c.KB * e},
		{"B", len(c.B), c.KB * c.N * e},
		{"partial sums", len(c.Partial), when(!c.First || !c.Last && !c.CascadeOut, c.M*c.N*k.Type.PartialBytes())},
		{"C", len(c.Out), when(c.Last && !c.CascadeOut, c.M*c.N*c.Step.Out.Bytes())},
		{"cascade in", len(c.In), when(c.CascadeIn, c.M*c.N)},
		{"cascade out", len(c.Sent), when(c.CascadeOut, c.M*c.N)},
	} {
		if f.have < f.need {
			return fmt.Errorf("%v kernel: %s needs %d, has %d", k, f.name, f.need, f.have)
		}
	}
	if k.Type == FP32 && (c.CascadeIn || c.CascadeOut) {
		return fmt.Errorf("%v kernel: the cascade carries accumulators, and fp32 sums stand in vector registers", k)
	}
	return k.Type.CheckOut(c.Step.Out)
}

func when(cond bool, n int) int {
	if cond {
		return n
	}
	return 0
}

// Run computes a call that Check has accepted. It equals the lane-by-lane model bit for bit: lanes are residues modulo 2^48, so wrapping
// once at the end of a call is wrapping after every operation.
func (k Kernel) Run(c *Call) {
	if k.Type == FP32 {
		k.runF32(c)
		return
	}
	tile := k.MR * k.NR
	var sums [512]int64
	acc := sums[:tile]
	for jp := 0; jp < c.N/k.NR; jp++ {
		for ip := 0; ip < c.M/k.MR; ip++ {
			at := (jp*(c.M/k.MR) + ip) * tile
			k.load(c, at, acc)
			if k.Type == Int16 {
				k.mac16(view[int16](c.A[2*ip*k.MR*c.KB:], k.MR*c.KB), view[int16](c.B[2*jp*k.NR*c.KB:], k.NR*c.KB), acc, c.KB)
			} else {
				mac8((*[1 << 20]int8)(unsafe.Pointer(&c.A[ip*k.MR*c.KB]))[:k.MR*c.KB:k.MR*c.KB],
					(*[1 << 20]int8)(unsafe.Pointer(&c.B[jp*k.NR*c.KB]))[:k.NR*c.KB:k.NR*c.KB], acc, c.KB)
			}
			if c.CascadeIn {
				for l, v := range c.In[at : at+tile] {
					acc[l] += v
				}
			}
			for l := range acc {
				acc[l] = Wrap48(acc[l])
			}
			k.store(c, at, acc)
		}
	}
}

func (k Kernel) load(c *Call, at int, acc []int64) {
	switch {
	case c.First:
		clear(acc)
	case k.Type == Int16:
		for l := range acc {
			p := c.Partial[6*(at+l):]
			acc[l] = Wrap48(int64(binary.LittleEndian.Uint32(p)) | int64(binary.LittleEndian.Uint16(p[4:]))<<32)
		}
	default:
		for l, v := range view[int32](c.Partial[4*at:], len(acc)) {
			acc[l] = int64(v)
		}
	}
}

func (k Kernel) store(c *Call, at int, acc []int64) {
	switch {
	case c.CascadeOut:
		copy(c.Sent[at:], acc)
	case c.Last:
		Pack(c.Step.Out, c.Narrow, c.Out[at*c.Step.Out.Bytes():], acc)
	case k.Type == Int16:
		for l, v := range acc {
			p := c.Partial[6*(at+l):]
			binary.LittleEndian.PutUint32(p, uint32(v))
			binary.LittleEndian.PutUint16(p[4:], uint16(v>>32))
		}
	default:
		out := view[int32](c.Partial[4*at:], len(acc))
		for l, v := range acc {
			out[l] = int32(v)
		}
	}
}

// Pack narrows sums and stores them.
func Pack(o Out, n Narrow, dst []byte, acc []int64) {
	switch o {
	case S32:
		out := view[int32](dst, len(acc))
		if n == (Narrow{}) {
			for l, v := range acc {
				out[l] = int32(v)
			}
			return
		}
		for l, v := range acc {
			out[l] = int32(SRS(v, n.Shift, n.Round, n.Saturate, 32))
		}
	case S16:
		out := view[int16](dst, len(acc))
		for l, v := range acc {
			out[l] = int16(SRS(v, n.Shift, n.Round, n.Saturate, 16))
		}
	case S8:
		for l, v := range acc {
			dst[l] = byte(SRS(v, n.Shift, n.Round, n.Saturate, 8))
		}
	}
}

// mac16 advances a micro-tile of MR x 4 sums, column-major, over kb: two rows by four columns at a time, whose sums stay in registers.
func (k Kernel) mac16(a, b []int16, acc []int64, kb int) {
	mr := k.MR
	b = b[:4*kb]
	for i := 0; i < mr; i += 2 {
		s00, s10, s20, s30 := acc[i], acc[mr+i], acc[2*mr+i], acc[3*mr+i]
		s01, s11, s21, s31 := acc[i+1], acc[mr+i+1], acc[2*mr+i+1], acc[3*mr+i+1]
		at := i
		for p := 0; p+4 <= len(b); p += 4 {
			x := (*[2]int16)(a[at:])
			z := (*[4]int16)(b[p:])
			x0, x1 := int64(x[0]), int64(x[1])
			z0, z1, z2, z3 := int64(z[0]), int64(z[1]), int64(z[2]), int64(z[3])
			s00 += x0 * z0
			s01 += x1 * z0
			s10 += x0 * z1
			s11 += x1 * z1
			s20 += x0 * z2
			s21 += x1 * z2
			s30 += x0 * z3
			s31 += x1 * z3
			at += mr
		}
		acc[i], acc[mr+i], acc[2*mr+i], acc[3*mr+i] = s00, s10, s20, s30
		acc[i+1], acc[mr+i+1], acc[2*mr+i+1], acc[3*mr+i+1] = s01, s11, s21, s31
	}
}

// mac8 advances an 8x8 micro-tile of four 4x4 accumulators over kb. It takes two columns in one 64-bit multiplication: the low half of
// (z0 + z1 2^32) x is z0 x, the high half z1 x less the borrow, which is undone at the end. A half holds sums of 131,072 products.
func mac8(a, b []int8, acc []int64, kb int) {
	var s [8][4]int64 // row, pair of columns
	var w [8][4]int64 // step, pair of columns
	for ; kb > 0; kb -= 8 {
		x, z := (*[64]int8)(a), (*[64]int8)(b)
		for p := range w {
			w[p][0] = int64(z[4*p]) + int64(z[4*p+1])<<32
			w[p][1] = int64(z[4*p+2]) + int64(z[4*p+3])<<32
			w[p][2] = int64(z[32+4*p]) + int64(z[32+4*p+1])<<32
			w[p][3] = int64(z[32+4*p+2]) + int64(z[32+4*p+3])<<32
		}
		for r := range s {
			t := &s[r]
			t0, t1, t2, t3 := t[0], t[1], t[2], t[3]
			row := (*[8]int8)(x[8*r:])
			for p := range row {
				v, q := int64(row[p]), &w[p]
				t0 += v * q[0]
				t1 += v * q[1]
				t2 += v * q[2]
				t3 += v * q[3]
			}
			t[0], t[1], t[2], t[3] = t0, t1, t2, t3
		}
		a, b = a[64:], b[64:]
	}
	for r := range s {
		for c, v := range s[r] {
			lo := int32(v)
			at := (r/4*2+c/2)*16 + r%4*4 + c%2*2
			acc[at] += int64(lo)
			acc[at+1] += int64(int32((v - int64(lo)) >> 32))
		}
	}
}

func (k Kernel) runF32(c *Call) {
	tile := k.MR * k.NR
	a, b := view[float32](c.A, c.M*c.KB), view[float32](c.B, c.KB*c.N)
	for jp := 0; jp < c.N/k.NR; jp++ {
		for ip := 0; ip < c.M/k.MR; ip++ {
			at := (jp*(c.M/k.MR) + ip) * tile
			dst := view[float32](c.Partial, len(c.Partial)/4)
			if c.Last {
				dst = view[float32](c.Out, len(c.Out)/4)
			}
			if c.First {
				clear(dst[at : at+tile])
			} else if c.Last {
				copy(dst[at:at+tile], view[float32](c.Partial[4*at:], tile))
			}
			mulAdd(a[ip*8*c.KB:], b[jp*4*c.KB:], dst[at:at+tile], c.KB)
		}
	}
}

// mulAdd advances an 8x4 micro-tile, column-major, over kb, two rows by four columns at a time. Each sum takes a rounded product and a rounded addition
// for each k, ascending: the floating-point unit has a multiplier (FPMPY) and an adder (FPACC), each of which rounds (AM009, "Floating-Point Vector Unit").
func mulAdd(a, b, acc []float32, kb int) {
	b = b[:4*kb]
	for i := 0; i < 8; i += 2 {
		s00, s10, s20, s30 := acc[i], acc[8+i], acc[16+i], acc[24+i]
		s01, s11, s21, s31 := acc[i+1], acc[8+i+1], acc[16+i+1], acc[24+i+1]
		at := i
		for p := 0; p+4 <= len(b); p += 4 {
			x := (*[2]float32)(a[at:])
			z := (*[4]float32)(b[p:])
			s00 += float32(x[0] * z[0])
			s01 += float32(x[1] * z[0])
			s10 += float32(x[0] * z[1])
			s11 += float32(x[1] * z[1])
			s20 += float32(x[0] * z[2])
			s21 += float32(x[1] * z[2])
			s30 += float32(x[0] * z[3])
			s31 += float32(x[1] * z[3])
			at += 8
		}
		acc[i], acc[8+i], acc[16+i], acc[24+i] = s00, s10, s20, s30
		acc[i+1], acc[8+i+1], acc[16+i+1], acc[24+i+1] = s01, s11, s21, s31
	}
}

// Unpack reads n results of type o.
func Unpack(o Out, src []byte, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		switch o {
		case S32:
			out[i] = int64(int32(binary.LittleEndian.Uint32(src[4*i:])))
		case S16:
			out[i] = int64(int16(binary.LittleEndian.Uint16(src[2*i:])))
		case S8:
			out[i] = int64(int8(src[i]))
		}
	}
	return out
}
