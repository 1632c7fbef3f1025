package qgemm

import (
	"encoding/binary"
	"math"

	"github.com/tessera-go/tessera/tensor"
)

// Readers take one block of a file apart. The layouts are those of package quant's decoders.

func half(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

func nibbles(q *[superK]uint8, b []byte) {
	for i, v := range b[:16] {
		q[i], q[i+16] = v&15, v>>4
	}
}

func readQ4_0(b []byte, o *exploded) {
	o.d = half(b)
	nibbles(&o.q, b[2:])
}

func readQ4_1(b []byte, o *exploded) {
	o.d, o.m = half(b), half(b[2:])
	nibbles(&o.q, b[4:])
}

func fifth(q *[superK]uint8, bits uint32) {
	for i := range 32 {
		q[i] |= uint8(bits>>i&1) << 4
	}
}

func readQ5_0(b []byte, o *exploded) {
	o.d = half(b)
	nibbles(&o.q, b[6:])
	fifth(&o.q, binary.LittleEndian.Uint32(b[2:]))
}

func readQ5_1(b []byte, o *exploded) {
	o.d, o.m = half(b), half(b[2:])
	nibbles(&o.q, b[8:])
	fifth(&o.q, binary.LittleEndian.Uint32(b[4:]))
}

func readQ8_0(b []byte, o *exploded) {
	o.d = half(b)
	for i, v := range b[2:34] {
		o.q[i] = v ^ 0x80
	}
}

func readMXFP4(b []byte, o *exploded) {
	// The scale is 2^(e-128), which bfloat16 holds exactly, subnormals included.
	o.d = tensor.F32ToBF16(float32(math.Ldexp(1, int(b[0])-128)))
	nibbles(&o.q, b[1:])
}

func readQ2K(b []byte, o *exploded) {
	o.d, o.m = half(b[80:]), half(b[82:])
	for i, s := range b[:16] {
		o.sc[i], o.mn[i] = int8(s&15), int8(s>>4)
		from, shift := 16+i/8*32+i%2*16, uint(i/2%4*2)
		for l, v := range b[from : from+16] {
			o.q[i*16+l] = v >> shift & 3
		}
	}
}

func readQ3K(b []byte, o *exploded) {
	o.d = half(b[108:])
	for i := range 16 {
		low := b[96+i%8] >> (i / 8 * 4) & 15
		high := b[96+8+i%4] >> (i / 4 * 2) & 3
		o.sc[i] = int8(low|high<<4) - 32
		from, shift, bit := 32+i/8*32+i%2*16, uint(i/2%4*2), uint(i/2)
		for l, v := range b[from : from+16] {
			o.q[i*16+l] = v>>shift&3 | b[i%2*16+l]>>bit&1<<2
		}
	}
}

func scaleMin(b []byte, o *exploded) {
	for j := range 4 {
		o.sc[j], o.mn[j] = int8(b[j]&63), int8(b[j+4]&63)
		o.sc[j+4] = int8(b[j+8]&15 | b[j]>>6<<4)
		o.mn[j+4] = int8(b[j+8]>>4 | b[j+4]>>6<<4)
	}
}

func readQ4K(b []byte, o *exploded) {
	o.d, o.m = half(b), half(b[2:])
	scaleMin(b[4:16], o)
	for i := range 4 {
		for l, v := range b[16+i*32 : 48+i*32] {
			o.q[i*64+l], o.q[i*64+l+32] = v&15, v>>4
		}
	}
}

func readQ5K(b []byte, o *exploded) {
	o.d, o.m = half(b), half(b[2:])
	scaleMin(b[4:16], o)
	for i := range 4 {
		for l, v := range b[48+i*32 : 80+i*32] {
			h := b[16+l] >> (2 * i)
			o.q[i*64+l], o.q[i*64+l+32] = v&15|h&1<<4, v>>4|h>>1&1<<4
		}
	}
}

func readQ6K(b []byte, o *exploded) {
	o.d = half(b[208:])
	for i := range 16 {
		o.sc[i] = int8(b[192+i])
	}
	for i := range 2 {
		ql, qh := b[i*64:i*64+64], b[128+i*32:160+i*32]
		q := o.q[i*128 : i*128+128]
		for l, h := range qh {
			q[l] = ql[l]&15 | h&3<<4
			q[l+32] = ql[l+32]&15 | h>>2&3<<4
			q[l+64] = ql[l]>>4 | h>>4&3<<4
			q[l+96] = ql[l+32]>>4 | h>>6<<4
		}
	}
}
