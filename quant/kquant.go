package quant

import (
	"encoding/binary"

	"github.com/tessera-go/tessera/tensor"
)

// The K formats: 256 elements a block ("super-block"), in sub-blocks of 16 or 32 whose scales (and, in Q2_K, Q4_K and Q5_K,
// minimums) are small integers in units of the super-block's.

const superBlock = 256

func decodeQ2K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[84:] {
		scales, q, y := src[:16], src[16:80], dst[:superBlock]
		d, dmin := half(src[80:]), half(src[82:])
		for i, sc := range scales { // sub-block i: elements 16i to 16i+15
			dl, ml := d*float32(sc&15), dmin*float32(sc>>4)
			from, shift := i/8*32+i%2*16, uint(i/2%4*2)
			for l, b := range q[from : from+16] {
				y[i*16+l] = float32(dl*float32(b>>shift&3)) - ml
			}
		}
	}
}

// q3Scales unpacks the 16 six-bit scales of Q3_K: low nibbles in 8 bytes, upper pairs of bits in the 4 after them.
func q3Scales(b []byte, sc *[16]int8) {
	for i := range 16 {
		low := b[i%8] >> (i / 8 * 4) & 15
		high := b[8+i%4] >> (i / 4 * 2) & 3
		sc[i] = int8(low|high<<4) - 32
	}
}

func decodeQ3K(dst []float32, src []byte) {
	var sc [16]int8
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[110:] {
		hm, q, y, d := src[:32], src[32:96], dst[:superBlock], half(src[108:])
		q3Scales(src[96:108], &sc)
		for i := range 16 {
			dl := d * float32(sc[i])
			from, shift, bit := i/8*32+i%2*16, uint(i/2%4*2), uint(i/2)
			h := hm[i%2*16 : i%2*16+16]
			for l, b := range q[from : from+16] {
				y[i*16+l] = dl * float32(int(b>>shift&3|h[l]>>bit&1<<2)-4)
			}
		}
	}
}

// scaleMin unpacks scale and minimum j of the 8 six-bit pairs in the 12 bytes of Q4_K and Q5_K.
func scaleMin(b []byte, j int) (sc, m uint8) {
	if j < 4 {
		return b[j] & 63, b[j+4] & 63
	}
	return b[j+4]&15 | b[j-4]>>6<<4, b[j+4]>>4 | b[j]>>6<<4
}

// putScaleMin packs what scaleMin unpacks; b is zero before the first call, and j rises.
func putScaleMin(b []byte, j int, sc, m uint8) {
	if j < 4 {
		b[j], b[j+4] = sc, m
		return
	}
	b[j+4] = sc&15 | m<<4
	b[j-4] |= sc >> 4 << 6
	b[j] |= m >> 4 << 6
}

func decodeQ4K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[144:] {
		d, dmin := half(src), half(src[2:])
		for i := range 4 {
			sc, m := scaleMin(src[4:16], 2*i)
			d1, m1 := d*float32(sc), dmin*float32(m)
			sc, m = scaleMin(src[4:16], 2*i+1)
			d2, m2 := d*float32(sc), dmin*float32(m)
			q, y := src[16+i*32:48+i*32], dst[i*64:i*64+64]
			for l, b := range q {
				y[l] = float32(d1*float32(b&15)) - m1
				y[l+32] = float32(d2*float32(b>>4)) - m2
			}
		}
	}
}

func decodeQ5K(dst []float32, src []byte) {
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[176:] {
		d, dmin, qh := half(src), half(src[2:]), src[16:48]
		for i := range 4 {
			sc, m := scaleMin(src[4:16], 2*i)
			d1, m1 := d*float32(sc), dmin*float32(m)
			sc, m = scaleMin(src[4:16], 2*i+1)
			d2, m2 := d*float32(sc), dmin*float32(m)
			q, y := src[48+i*32:80+i*32], dst[i*64:i*64+64]
			for l, b := range q {
				h := qh[l] >> (2 * i)
				y[l] = float32(d1*float32(b&15|h&1<<4)) - m1
				y[l+32] = float32(d2*float32(b>>4|h>>1&1<<4)) - m2
			}
		}
	}
}

func decodeQ6K(dst []float32, src []byte) {
	var s [16]float32
	for ; len(dst) >= superBlock; dst, src = dst[superBlock:], src[210:] {
		d := half(src[208:])
		for i, sc := range src[192:208] {
			s[i] = d * float32(int8(sc))
		}
		for i := range 2 {
			ql, qh, y, sc := src[i*64:i*64+64], src[128+i*32:160+i*32], dst[i*128:i*128+128], s[i*8:i*8+8]
			for l, h := range qh {
				is := l / 16
				y[l] = sc[is] * float32(int(ql[l]&15|h&3<<4)-32)
				y[l+32] = sc[is+2] * float32(int(ql[l+32]&15|h>>2&3<<4)-32)
				y[l+64] = sc[is+4] * float32(int(ql[l]>>4|h>>4&3<<4)-32)
				y[l+96] = sc[is+6] * float32(int(ql[l+32]>>4|h>>6<<4)-32)
			}
		}
	}
}

func putF16(b []byte, h uint16) { binary.LittleEndian.PutUint16(b, h) }

// toF16 rounds a scale; ok says whether it is finite. One too small becomes the smallest half, whose multiples still serve.
func toF16(f float32) (h uint16, stored float32, ok bool) {
	h = tensor.F32ToF16(f)
	if h&0x7fff == 0 && f != 0 {
		h |= 1
	}
	return h, tensor.F16ToF32(h), h&0x7c00 != 0x7c00
}
