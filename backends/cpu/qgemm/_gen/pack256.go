package main

import "fmt"

const constantsPack = `
// Bytes of a lane's four words in the order of their places in a word.
DATA planes<>+0(SB)/8, $0x0d0905010c080400
DATA planes<>+8(SB)/8, $0x0f0b07030e0a0602
DATA planes<>+16(SB)/8, $0x0d0905010c080400
DATA planes<>+24(SB)/8, $0x0f0b07030e0a0602
GLOBL planes<>(SB), RODATA|NOPTR, $32

// Words of both lanes in turns.
DATA turns<>+0(SB)/8, $0x0000000400000000
DATA turns<>+8(SB)/8, $0x0000000500000001
DATA turns<>+16(SB)/8, $0x0000000600000002
DATA turns<>+24(SB)/8, $0x0000000700000003
GLOBL turns<>(SB), RODATA|NOPTR, $32
`

// packAVX2 writes the functions that pack a whole panel in 256-bit registers: eight rows at a time, whose words are transposed four by four.
//
//	DI panel   AX row 0   BX row 8   R8 R9 R10 R11 one, three, five and seven times the bytes of a row   CX blocks to go
//	R12 what is fetched ahead: the rows of the next panel
func packAVX2(dir string) {
	f := &file{}
	rows := []string{"", "(R8*1)", "(R8*2)", "(R9*1)", "(R8*4)", "(R10*1)", "(R9*2)", "(R11*1)"}
	g := 0 // the half of the panel
	row := func(i, off int) string { return fmt.Sprintf("%d(%s)%s", off, []string{"AX", "BX"}[g], rows[i]) }
	begin := func(name, doc string) {
		f.text(name, "dst, src unsafe.Pointer, rows *[nr]int32, blocks int", 32, doc)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ src+8(FP), AX")
		f.p("\tMOVQ rows+16(FP), BX")
		f.p("\tMOVQ blocks+24(FP), CX")
		f.p("\tMOVL 4(BX), R8 // bytes of a row")
		f.p("\tLEAQ (R8)(R8*2), R9")
		f.p("\tLEAQ (R8)(R8*4), R10")
		f.p("\tLEAQ (R9)(R8*4), R11")
		f.p("\tLEAQ (AX)(R8*8), BX")
		f.p("\tLEAQ (BX)(R8*8), R12")
	}
	fetch := func(bytes int) {
		for off := 0; off < bytes; off += 64 {
			f.p("\tPREFETCHT1 %d(R12)", off)
		}
		f.p("\tADDQ $%d, R12", bytes)
	}
	end := func() {
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
	step := func(src, dst int) {
		f.p("\tADDQ $%d, AX", src)
		f.p("\tADDQ $%d, BX", src)
		f.p("\tADDQ $%d, DI", dst)
	}
	constant := func(v uint32, y int) {
		f.p("\tMOVL $%#x, DX", v)
		f.p("\tVMOVD DX, X%d", y)
		f.p("\tVPBROADCASTD X%d, Y%d", y, y)
	}
	// words brings four words of eight rows to Y(y) and on, one register each; Y8 to Y11 are used.
	words := func(off, y int) {
		for i := 0; i < 4; i++ {
			f.p("\tVMOVDQU %s, X%d", row(i, off), y+i)
		}
		for i := 0; i < 4; i++ {
			f.p("\tVINSERTI128 $1, %s, Y%d, Y%d", row(i+4, off), y+i, y+i)
		}
		f.p("\tVPUNPCKLDQ Y%d, Y%d, Y8", y+1, y)
		f.p("\tVPUNPCKHDQ Y%d, Y%d, Y9", y+1, y)
		f.p("\tVPUNPCKLDQ Y%d, Y%d, Y10", y+3, y+2)
		f.p("\tVPUNPCKHDQ Y%d, Y%d, Y11", y+3, y+2)
		f.p("\tVPUNPCKLQDQ Y10, Y8, Y%d", y)
		f.p("\tVPUNPCKHQDQ Y10, Y8, Y%d", y+1)
		f.p("\tVPUNPCKLQDQ Y11, Y9, Y%d", y+2)
		f.p("\tVPUNPCKHQDQ Y11, Y9, Y%d", y+3)
	}
	// word brings one word of eight rows to Y(y), with X11.
	word := func(off, y int) {
		for l, x := range []int{y, 11} {
			f.p("\tVMOVD %s, X%d", row(4*l, off), x)
			for i := 1; i < 4; i++ {
				f.p("\tVPINSRD $%d, %s, X%d, X%d", i, row(4*l+i, off), x, x)
			}
		}
		f.p("\tVINSERTI128 $1, X11, Y%d, Y%d", y, y)
	}
	// store writes eight words at their place in a vector of 16.
	store := func(y, at int) { f.p("\tVMOVDQU Y%d, %d(DI)", y, at+32*g) }
	// half copies the 16 bits of a scale of each row.
	half := func(off, at int) {
		for i := 0; i < 8; i += 4 {
			regs := []string{"DX", "SI", "R13", "R15"}
			for j, r := range regs {
				f.p("\tMOVWLZX %s, %s", row(i+j, off), r)
			}
			for j, r := range regs {
				f.p("\tMOVW %s, %d(DI)", r, at+16*g+2*(i+j))
			}
		}
	}
	// power writes 2^(e-128) as bfloat16, for the scales of MXFP4: exponents below 2 are subnormal, 0x20 << e.
	power := func(off, at int) {
		for i := 0; i < 8; i++ {
			f.p("\tMOVBLZX %s, DX", row(i, off))
			f.p("\tLEAL -1(DX), SI")
			f.p("\tSHLL $7, SI")
			f.p("\tLEAL 1(DX), R13")
			f.p("\tSHLL $5, R13")
			f.p("\tCMPL DX, $2")
			f.p("\tCMOVLLT R13, SI")
			f.p("\tMOVW SI, %d(DI)", at+16*g+2*i)
		}
	}
	// bytes stores the four bytes of every word of y as four vectors of 16 bytes; Y13 and Y12 are planes and turns.
	bytes := func(y, at int) {
		at += 8 * g
		f.p("\tVPSHUFB Y13, Y%d, Y%d", y, y)
		f.p("\tVPERMD Y%d, Y12, Y%d", y, y)
		f.p("\tVMOVQ X%d, %d(DI)", y, at)
		f.p("\tVPEXTRQ $1, X%d, %d(DI)", y, at+16)
		f.p("\tVEXTRACTI128 $1, Y%d, X%d", y, y)
		f.p("\tVMOVQ X%d, %d(DI)", y, at+32)
		f.p("\tVPEXTRQ $1, X%d, %d(DI)", y, at+48)
	}
	orders := func() {
		f.p("\tVMOVDQU planes<>(SB), Y13")
		f.p("\tVMOVDQU turns<>(SB), Y12")
	}
	// collect ors, for i below n, bits shift to shift+width of every byte of Y(first+i), at bit i*width, and stores the result. Y10, Y11.
	collect := func(first, n, shift, width, mask, at int) {
		for i := 0; i < n; i++ {
			y, to := first+i, 11
			if i == 0 {
				to = 10
			}
			if shift > 0 {
				f.p("\tVPSRLD $%d, Y%d, Y%d", shift, y, to)
				y = to
			}
			f.p("\tVPAND Y%d, Y%d, Y%d", mask, y, to)
			if i > 0 {
				f.p("\tVPSLLD $%d, Y11, Y11", i*width)
				f.p("\tVPOR Y11, Y10, Y10")
			}
		}
		store(10, at)
	}
	// fifth brings bit 4g+b of a word, that of k = 4g+b, to bit g of byte b (see packAVX512).
	exchanges := []struct {
		shift int
		mask  uint32
	}{{3, 0x0a0a0a0a}, {6, 0x00cc00cc}, {12, 0x0000f0f0}, {8, 0x0000ff00}}
	fifths := func() {
		for i, e := range exchanges {
			constant(e.mask, 4+i)
		}
	}
	fifth := func(off, at int) {
		word(off, 9)
		for i, e := range exchanges {
			f.p("\tVPSRLD $%d, Y9, Y10", e.shift)
			f.p("\tVPXOR Y9, Y10, Y10")
			f.p("\tVPAND Y%d, Y10, Y10", 4+i)
			f.p("\tVPXOR Y10, Y9, Y9")
			f.p("\tVPSLLD $%d, Y10, Y10", e.shift)
			f.p("\tVPXOR Y10, Y9, Y9")
		}
		store(9, at)
	}

	// Formats with a scale for each 32: two blocks a group.
	pairs := func(name, doc string, size, from, n, qh int, flip bool, scale func(off, at int)) {
		begin(name, doc)
		if flip {
			constant(0x80808080, 15)
		}
		unit := 64 * n
		if qh > 0 {
			unit += 64
			fifths()
		}
		f.p("loop:")
		for in := 0; in < 2; in++ {
			fetch(16 * size)
			for g = 0; g < 2; g++ {
				scale(in*size, 32*in)
				for i := 0; i < n; i += 4 {
					words(in*size+from+4*i, 0)
					for j := 0; j < 4; j++ {
						if flip {
							f.p("\tVPXOR Y15, Y%d, Y%d", j, j)
						}
						store(j, 64+unit*in+64*(i+j))
					}
				}
				if qh > 0 {
					fifth(in*size+qh, 64+unit*in+64*n)
				}
			}
			if in == 0 {
				f.p("\tDECQ CX")
				f.p("\tJEQ done")
			}
		}
		step(2*size, 64+2*unit)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		f.p("done:")
		end()
	}
	pairs("packQ8_0AVX2", "packs 16 rows of Q8_0.", 34, 2, 8, 0, true, half)
	pairs("packQ4_0AVX2", "packs 16 rows of Q4_0 or IQ4_NL.", 18, 2, 4, 0, false, half)
	pairs("packMXFP4AVX2", "packs 16 rows of MXFP4.", 17, 1, 4, 0, false, power)
	pairs("packQ5_0AVX2", "packs 16 rows of Q5_0.", 22, 6, 4, 2, false, half)

	// Formats with a scale and a minimum for each 32.
	mins := func(name, doc string, size, from, qh int) {
		begin(name, doc)
		group := 64 + 256
		if qh > 0 {
			fifths()
			group += 64
		}
		f.p("loop:")
		fetch(16 * size)
		for g = 0; g < 2; g++ {
			half(0, 0)
			half(2, 32)
			words(from, 0)
			for i := 0; i < 4; i++ {
				store(i, 64+64*i)
			}
			if qh > 0 {
				fifth(qh, 64+256)
			}
		}
		step(size, group)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		end()
	}
	mins("packQ4_1AVX2", "packs 16 rows of Q4_1.", 20, 4, 0)
	mins("packQ5_1AVX2", "packs 16 rows of Q5_1.", 24, 8, 4)

	// loop is that over super-blocks, of each half of the panel.
	loop := func(name, doc string, size, group int, constants, body func()) {
		begin(name, doc)
		constants()
		f.p("loop:")
		fetch(16 * size)
		for g = 0; g < 2; g++ {
			body()
		}
		step(size, group)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		end()
	}
	// low and high join four low, or high, nibbles of two times four words, x below y: Y0 and on, Y4 and on; Y15 is 0x0f.
	low := func(at int) {
		for i := 0; i < 4; i++ {
			f.p("\tVPAND Y15, Y%d, Y8", i)
			f.p("\tVPSLLD $4, Y%d, Y9", 4+i)
			f.p("\tVPANDN Y9, Y15, Y9")
			f.p("\tVPOR Y9, Y8, Y8")
			store(8, at+64*i)
		}
	}
	high := func(at int) {
		for i := 0; i < 4; i++ {
			f.p("\tVPSRLD $4, Y%d, Y8", i)
			f.p("\tVPAND Y15, Y8, Y8")
			f.p("\tVPANDN Y%d, Y15, Y9", 4+i)
			f.p("\tVPOR Y9, Y8, Y8")
			store(8, at+64*i)
		}
	}

	// Q4_K and Q5_K, which has a plane of fifth bits of 32 bytes in front of its nibbles.
	for _, qh := range []int{0, 32} {
		name, doc, unit := "packQ4KAVX2", "packs 16 rows of Q4_K.", 256
		if qh > 0 {
			name, doc, unit = "packQ5KAVX2", "packs 16 rows of Q5_K.", 256+64
		}
		loop(name, doc, 144+qh, 320+8*unit, func() {
			constant(0x0f0f0f0f, 15)
			constant(0x01010101, 14)
			orders()
		}, func() {
			half(0, 0)
			half(2, 32)
			// scales 0-3 and 4-7, minimums 0-3 and 4-7: six bits each (see scaleMin)
			words(4, 0)
			constant(0x3f3f3f3f, 8)
			constant(0x30303030, 9)
			for i := 0; i < 2; i++ {
				f.p("\tVPAND Y8, Y%d, Y%d", i, 4+2*i)
				f.p("\tVPSRLD $2, Y%d, Y%d", i, 5+2*i)
				f.p("\tVPAND Y9, Y%d, Y%d", 5+2*i, 5+2*i)
				f.p("\tVPAND Y15, Y2, Y10")
				f.p("\tVPOR Y10, Y%d, Y%d", 5+2*i, 5+2*i)
				f.p("\tVPSRLD $4, Y2, Y2")
			}
			for i := 0; i < 4; i++ {
				bytes(4+i, 64+64*i)
			}
			for h := 0; h < 4; h++ {
				words(16+qh+32*h, 0)
				words(32+qh+32*h, 4)
				low(320 + 2*unit*h)
				high(320 + 2*unit*h + unit)
			}
			if qh > 0 {
				words(16, 0)
				words(32, 4)
				for u := 0; u < 8; u++ {
					collect(0, 8, u, 1, 14, 320+unit*u+256)
				}
			}
		})
	}

	header := (32 + 256 + 63) / 64 * 64
	loop("packQ6KAVX2", "packs 16 rows of Q6_K.", 210, header+8*384, func() {
		constant(0x0f0f0f0f, 15)
		constant(0x03030303, 14)
		orders()
	}, func() {
		half(208, 0)
		words(192, 0)
		for i := 0; i < 4; i++ {
			bytes(i, 32+64*i)
		}
		for h := 0; h < 2; h++ {
			at := header + 4*384*h
			for plane := 0; plane < 2; plane++ { // pairs of bits of k, k+32, k+64 and k+96
				words(128+32*h+16*plane, 0)
				for u := 0; u < 4; u++ {
					collect(0, 4, 2*u, 2, 14, at+384*u+256+64*plane)
				}
			}
			for u := 0; u < 2; u++ { // 32 elements, and in the high nibbles those 64 later
				words(64*h+32*u, 0)
				words(64*h+32*u+16, 4)
				low(at + 384*u)
				high(at + 384*(u+2))
			}
		}
	})

	loop("packQ2KAVX2", "packs 16 rows of Q2_K.", 84, 576+8*128, func() {
		constant(0x0f0f0f0f, 15)
		constant(0x03030303, 14)
		orders()
	}, func() {
		half(80, 0)
		half(82, 32)
		words(0, 0)
		for i := 0; i < 4; i++ {
			f.p("\tVPSRLD $4, Y%d, Y4", i)
			f.p("\tVPAND Y15, Y%d, Y%d", i, i)
			f.p("\tVPAND Y15, Y4, Y4")
			bytes(i, 64+64*i)
			bytes(4, 64+256+64*i)
		}
		for h := 0; h < 2; h++ {
			for plane := 0; plane < 2; plane++ {
				words(16+32*h+16*plane, 0)
				for u := 0; u < 4; u++ {
					collect(0, 4, 2*u, 2, 14, 576+128*(4*h+u)+64*plane)
				}
			}
		}
	})

	const unit3 = 192
	loop("packQ3KAVX2", "packs 16 rows of Q3_K.", 110, header+8*unit3, func() {
		constant(0x0f0f0f0f, 15)
		constant(0x03030303, 14)
		orders()
	}, func() {
		half(108, 0)
		for i := 0; i < 3; i++ {
			word(96+4*i, i)
		}
		constant(0x20202020, 7)
		for i := 0; i < 4; i++ { // low four bits: words 0 and 1, low nibbles before high ones; upper pairs: word 2
			f.p("\tVPSRLD $%d, Y%d, Y3", i/2*4, i%2)
			f.p("\tVPAND Y15, Y3, Y3")
			f.p("\tVPSRLD $%d, Y2, Y4", 2*i)
			f.p("\tVPAND Y14, Y4, Y4")
			f.p("\tVPSLLD $4, Y4, Y4")
			f.p("\tVPOR Y4, Y3, Y3")
			f.p("\tVPSUBB Y7, Y3, Y3")
			bytes(3, 32+64*i)
		}
		for h := 0; h < 2; h++ {
			for plane := 0; plane < 2; plane++ {
				words(32+32*h+16*plane, 0)
				for u := 0; u < 4; u++ {
					collect(0, 4, 2*u, 2, 14, header+unit3*(4*h+u)+64*plane)
				}
			}
		}
		words(0, 0)
		words(16, 4)
		constant(0x01010101, 9)
		for u := 0; u < 8; u++ {
			collect(0, 8, u, 1, 9, header+unit3*u+128)
		}
	})

	f.write(dir, "pack_avx2_amd64", "amd64 && !noasm", constantsPack, "")
}
