package main

// packAVX512 writes the functions that pack a whole panel: each gathers the same four bytes of 16 rows at once.
//
//	DI panel   SI row 0   Z31 byte offsets of the rows   CX blocks to go   R9 what is fetched ahead: the rows of the next panel
func packAVX512(f *file) {
	begin := func(name, doc string) {
		f.text(name, "dst, src unsafe.Pointer, rows *[nr]int32, blocks int", 32, doc)
		f.p("\tMOVQ dst+0(FP), DI")
		f.p("\tMOVQ src+8(FP), SI")
		f.p("\tMOVQ rows+16(FP), AX")
		f.p("\tVMOVDQU64 (AX), Z31")
		f.p("\tMOVQ blocks+24(FP), CX")
		f.p("\tMOVL 4(AX), R9 // bytes of a row")
		f.p("\tSHLQ $4, R9")
		f.p("\tADDQ SI, R9")
	}
	// fetch asks for as many bytes of the next panel as a number of blocks of 16 rows have: gathers alone hide no latency.
	fetch := func(bytes int) {
		for off := 0; off < bytes; off += 64 {
			f.p("\tPREFETCHT0 %d(R9)", off)
		}
		f.p("\tADDQ $%d, R9", bytes)
	}
	gather := func(off, z int) {
		f.p("\tKXNORW K0, K0, K%d", 1+z%7)
		f.p("\tVPGATHERDD %d(SI)(Z31*1), K%d, Z%d", off, 1+z%7, z)
	}
	end := func() {
		f.p("\tVZEROUPPER")
		f.p("\tRET")
	}
	// bytes stores the four bytes of every lane of z as four vectors of 16.
	bytes := func(z, at int) {
		for s := 0; s < 4; s++ {
			f.p("\tVPMOVDB Z%d, %d(DI)", z, at+16*s)
			if s < 3 {
				f.p("\tVPSRLD $8, Z%d, Z%d", z, z)
			}
		}
	}
	// collect ors, for i below n, bits shift to shift+width of every byte of Z(first+i), at bit i*width, and stores the result.
	collect := func(first, n, shift, width, mask, at int) {
		for i := 0; i < n; i++ {
			z := first + i
			if shift > 0 {
				f.p("\tVPSRLD $%d, Z%d, Z3", shift, z)
				z = 3
			}
			f.p("\tVPANDD Z%d, Z%d, Z3", mask, z)
			if i == 0 {
				f.p("\tVMOVDQA64 Z3, Z2")
				continue
			}
			f.p("\tVPSLLD $%d, Z3, Z3", i*width)
			f.p("\tVPORD Z3, Z2, Z2")
		}
		f.p("\tVMOVDQU64 Z2, %d(DI)", at)
	}
	// fifth gathers a word whose bit 4g+b is that of k = 4g+b, brings it to bit g of byte b, and stores it. The number of a bit is
	// g2 g1 g0 b1 b0; it becomes b1 b0 g2 g1 g0 by four exchanges of its digits.
	exchanges := []struct {
		shift int
		mask  uint32
		z     int
	}{{3, 0x0a0a0a0a, 26}, {6, 0x00cc00cc, 27}, {12, 0x0000f0f0, 28}, {8, 0x0000ff00, 29}}
	fifth := func(off, at int) {
		gather(off, 9)
		for _, e := range exchanges {
			f.p("\tVPSRLD $%d, Z9, Z10", e.shift)
			f.p("\tVPXORD Z9, Z10, Z10")
			f.p("\tVPANDD Z%d, Z10, Z10", e.z)
			f.p("\tVPXORD Z10, Z9, Z9")
			f.p("\tVPSLLD $%d, Z10, Z10", e.shift)
			f.p("\tVPXORD Z10, Z9, Z9")
		}
		f.p("\tVMOVDQU64 Z9, %d(DI)", at)
	}
	// scale leaves the bits of the scales of a block in the low halves of Z0.
	half := func(off int) { gather(off, 0) }
	power := func(off int) { // of MXFP4: 2^(e-128) as bfloat16
		gather(off, 0)
		f.p("\tVPANDD Z27, Z0, Z0")
		f.p("\tVPCMPUD $1, Z28, Z0, K2") // e below 2 is subnormal: 0x20 << e
		f.p("\tVPSUBD Z26, Z0, Z1")
		f.p("\tVPSLLVD Z0, Z29, Z2")
		f.p("\tVPSLLD $7, Z1, Z0")
		f.p("\tVMOVDQA32 Z2, K2, Z0")
	}

	// Formats with a scale for each 32: two blocks a group.
	pairs := func(name, doc string, size, from, words, qh int, flip bool, scale func(off int)) {
		begin(name, doc)
		if flip {
			f.constant(0x80808080, 30)
		}
		unit := 64 * words
		if qh > 0 {
			unit += 64
			for _, e := range exchanges {
				f.constant(e.mask, e.z)
			}
		} else { // of power
			f.constant(1, 26)
			f.constant(0xff, 27)
			f.constant(2, 28)
			f.constant(0x20, 29)
		}
		f.p("loop:")
		for in := 0; in < 2; in++ {
			fetch(16 * size)
			scale(in * size)
			f.p("\tVPMOVDW Z0, %d(DI)", 32*in)
			for i := 0; i < words; i++ {
				gather(in*size+from+4*i, 1+i)
				if flip {
					f.p("\tVPXORD Z30, Z%d, Z%d", 1+i, 1+i)
				}
				f.p("\tVMOVDQU64 Z%d, %d(DI)", 1+i, 64+unit*in+64*i)
			}
			if qh > 0 {
				fifth(in*size+qh, 64+unit*in+64*words)
			}
			if in == 0 {
				f.p("\tDECQ CX")
				f.p("\tJEQ done")
			}
		}
		f.p("\tADDQ $%d, SI", 2*size)
		f.p("\tADDQ $%d, DI", 64+2*unit)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		f.p("done:")
		end()
	}
	pairs("packQ8_0AVX512", "packs 16 rows of Q8_0.", 34, 2, 8, 0, true, half)
	pairs("packQ4_0AVX512", "packs 16 rows of Q4_0 or IQ4_NL.", 18, 2, 4, 0, false, half)
	pairs("packMXFP4AVX512", "packs 16 rows of MXFP4.", 17, 1, 4, 0, false, power)
	pairs("packQ5_0AVX512", "packs 16 rows of Q5_0.", 22, 6, 4, 2, false, half)

	// Formats with a scale and a minimum for each 32.
	mins := func(name, doc string, size, from, qh int) {
		begin(name, doc)
		if qh > 0 {
			for _, e := range exchanges {
				f.constant(e.mask, e.z)
			}
		}
		f.p("loop:")
		fetch(16 * size)
		gather(0, 0)
		f.p("\tVPMOVDW Z0, (DI)")
		f.p("\tVPSRLD $16, Z0, Z0")
		f.p("\tVPMOVDW Z0, 32(DI)")
		for i := 0; i < 4; i++ {
			gather(from+4*i, 1+i)
			f.p("\tVMOVDQU64 Z%d, %d(DI)", 1+i, 64+64*i)
		}
		group := 64 + 256
		if qh > 0 {
			fifth(qh, group)
			group += 64
		}
		f.p("\tADDQ $%d, SI", size)
		f.p("\tADDQ $%d, DI", group)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		end()
	}
	mins("packQ4_1AVX512", "packs 16 rows of Q4_1.", 20, 4, 0)
	mins("packQ5_1AVX512", "packs 16 rows of Q5_1.", 24, 8, 4)

	// Q4_K and Q5_K, which has a plane of fifth bits of 32 bytes in front of its nibbles.
	for _, qh := range []int{0, 32} {
		size, unit := 144+qh, 256
		if qh == 0 {
			begin("packQ4KAVX512", "packs 16 rows of Q4_K.")
		} else {
			unit += 64
			begin("packQ5KAVX512", "packs 16 rows of Q5_K.")
			f.constant(0x01010101, 27)
		}
		f.constant(0x0f0f0f0f, 30)
		f.constant(0x3f3f3f3f, 29)
		f.constant(0x30303030, 28)
		f.p("loop:")
		fetch(16 * size)
		gather(0, 0)
		f.p("\tVPMOVDW Z0, (DI)")
		f.p("\tVPSRLD $16, Z0, Z0")
		f.p("\tVPMOVDW Z0, 32(DI)")
		for i := 0; i < 3; i++ {
			gather(4+4*i, i)
		}
		// scales 0-3 and 4-7, minimums 0-3 and 4-7: six bits each (see scaleMin)
		for i := 0; i < 2; i++ {
			f.p("\tVPANDD Z29, Z%d, Z%d", i, 3+2*i)
			f.p("\tVPSRLD $2, Z%d, Z%d", i, 4+2*i)
			f.p("\tVPANDD Z28, Z%d, Z%d", 4+2*i, 4+2*i)
		}
		f.p("\tVPTERNLOGD $0xF8, Z30, Z2, Z4")
		f.p("\tVPSRLD $4, Z2, Z2")
		f.p("\tVPTERNLOGD $0xF8, Z30, Z2, Z6")
		for i := 0; i < 4; i++ {
			bytes(3+i, 64+64*i)
		}
		for h := 0; h < 4; h++ {
			for i := 0; i < 4; i++ {
				x, y, out := 4*i, 4*i+1, 4*i+2
				gather(16+qh+32*h+4*i, x)
				gather(32+qh+32*h+4*i, y)
				at := 320 + 2*unit*h + 64*i
				f.p("\tVPSLLD $4, Z%d, Z%d", y, out)
				f.p("\tVPTERNLOGD $0xD8, Z30, Z%d, Z%d", x, out) // low nibbles of x below those of y
				f.p("\tVMOVDQU64 Z%d, %d(DI)", out, at)
				f.p("\tVPSRLD $4, Z%d, Z%d", x, x)
				f.p("\tVPTERNLOGD $0xD8, Z30, Z%d, Z%d", x, y) // high nibbles of x below those of y
				f.p("\tVMOVDQU64 Z%d, %d(DI)", y, at+unit)
			}
		}
		if qh > 0 {
			for g := 0; g < 8; g++ {
				gather(16+4*g, 16+g)
			}
			for u := 0; u < 8; u++ {
				collect(16, 8, u, 1, 27, 320+unit*u+256)
			}
		}
		f.p("\tADDQ $%d, SI", size)
		f.p("\tADDQ $%d, DI", 320+8*unit)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		end()
	}

	begin("packQ6KAVX512", "packs 16 rows of Q6_K.")
	f.constant(0x0f0f0f0f, 30)
	f.constant(0x03030303, 29)
	f.p("loop:")
	fetch(16 * 210)
	gather(206, 0)
	f.p("\tVPSRLD $16, Z0, Z0")
	f.p("\tVPMOVDW Z0, (DI)")
	for i := 0; i < 4; i++ {
		gather(192+4*i, i)
		bytes(i, 32+64*i)
	}
	header := (32 + 256 + 63) / 64 * 64
	for h := 0; h < 2; h++ {
		for i := 0; i < 8; i++ {
			gather(128+32*h+4*i, 16+i) // pairs of bits of k, k+32, k+64 and k+96
		}
		for u := 0; u < 4; u++ { // 32 elements: nibbles at 32*(u&1), shift 4*(u/2); pairs of bits at shift 2u
			to := header + (4*h+u)*384
			for i := 0; i < 4; i++ {
				from := 64*h + 32*(u&1) + 4*i
				gather(from, 0)
				gather(from+16, 1)
				if u < 2 {
					f.p("\tVPSLLD $4, Z1, Z1")
				} else {
					f.p("\tVPSRLD $4, Z0, Z0")
				}
				f.p("\tVPTERNLOGD $0xD8, Z30, Z0, Z1")
				f.p("\tVMOVDQU64 Z1, %d(DI)", to+64*i)
			}
			for plane := 0; plane < 2; plane++ {
				collect(16+4*plane, 4, 2*u, 2, 29, to+256+64*plane)
			}
		}
	}
	f.p("\tADDQ $210, SI")
	f.p("\tADDQ $%d, DI", header+8*384)
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	end()

	begin("packQ2KAVX512", "packs 16 rows of Q2_K.")
	f.constant(0x0f0f0f0f, 30)
	f.constant(0x03030303, 29)
	f.p("loop:")
	fetch(16 * 84)
	gather(80, 0)
	f.p("\tVPMOVDW Z0, (DI)")
	f.p("\tVPSRLD $16, Z0, Z0")
	f.p("\tVPMOVDW Z0, 32(DI)")
	for i := 0; i < 4; i++ {
		gather(4*i, 0)
		f.p("\tVPSRLD $4, Z0, Z1")
		f.p("\tVPANDD Z30, Z0, Z0")
		f.p("\tVPANDD Z30, Z1, Z1")
		bytes(0, 64+64*i)
		bytes(1, 64+256+64*i)
	}
	for h := 0; h < 2; h++ {
		for g := 0; g < 8; g++ {
			gather(16+32*h+4*g, 16+g)
		}
		for u := 0; u < 4; u++ {
			for plane := 0; plane < 2; plane++ {
				collect(16+4*plane, 4, 2*u, 2, 29, 576+128*(4*h+u)+64*plane)
			}
		}
	}
	f.p("\tADDQ $84, SI")
	f.p("\tADDQ $%d, DI", 576+8*128)
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	end()

	begin("packQ3KAVX512", "packs 16 rows of Q3_K.")
	f.constant(0x0f0f0f0f, 30)
	f.constant(0x03030303, 29)
	f.constant(0x20202020, 28)
	f.constant(0x01010101, 27)
	f.p("loop:")
	fetch(16 * 110)
	gather(106, 0)
	f.p("\tVPSRLD $16, Z0, Z0")
	f.p("\tVPMOVDW Z0, (DI)")
	for i := 0; i < 3; i++ {
		gather(96+4*i, 4+i)
	}
	for i := 0; i < 4; i++ { // low four bits: words 0 and 1, low nibbles before high ones; upper pairs: word 2
		f.p("\tVPSRLD $%d, Z%d, Z0", i/2*4, 4+i%2)
		f.p("\tVPANDD Z30, Z0, Z0")
		f.p("\tVPSRLD $%d, Z6, Z1", 2*i)
		f.p("\tVPANDD Z29, Z1, Z1")
		f.p("\tVPSLLD $4, Z1, Z1")
		f.p("\tVPORD Z1, Z0, Z0")
		f.p("\tVPSUBB Z28, Z0, Z0")
		bytes(0, 32+64*i)
	}
	const unit3 = 192
	for h := 0; h < 2; h++ {
		for g := 0; g < 8; g++ {
			gather(32+32*h+4*g, 16+g)
		}
		for u := 0; u < 4; u++ {
			for plane := 0; plane < 2; plane++ {
				collect(16+4*plane, 4, 2*u, 2, 29, header+unit3*(4*h+u)+64*plane)
			}
		}
	}
	for g := 0; g < 8; g++ {
		gather(4*g, 16+g)
	}
	for u := 0; u < 8; u++ {
		collect(16, 8, u, 1, 27, header+unit3*u+128)
	}
	f.p("\tADDQ $110, SI")
	f.p("\tADDQ $%d, DI", header+8*unit3)
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	end()
}
