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
	// Formats with a scale for each 32: two blocks a group.
	pairs := func(name, doc string, size, words int, flip bool) {
		begin(name, doc)
		if flip {
			f.constant(0x80808080, 30)
		}
		f.p("loop:")
		for in := 0; in < 2; in++ {
			fetch(16 * size)
			gather(in*size, 0)
			f.p("\tVPMOVDW Z0, %d(DI)", 32*in)
			for i := 0; i < words; i++ {
				gather(in*size+2+4*i, 1+i)
				if flip {
					f.p("\tVPXORD Z30, Z%d, Z%d", 1+i, 1+i)
				}
				f.p("\tVMOVDQU64 Z%d, %d(DI)", 1+i, 64+64*(in*words+i))
			}
			if in == 0 {
				f.p("\tDECQ CX")
				f.p("\tJEQ done")
			}
		}
		f.p("\tADDQ $%d, SI", 2*size)
		f.p("\tADDQ $%d, DI", 64+128*words)
		f.p("\tDECQ CX")
		f.p("\tJNE loop")
		f.p("done:")
		end()
	}
	pairs("packQ8_0AVX512", "packs 16 rows of Q8_0.", 34, 8, true)
	pairs("packQ4_0AVX512", "packs 16 rows of Q4_0 or IQ4_NL.", 18, 4, false)

	// bytes stores the four bytes of every lane of z as four vectors of 16.
	bytes := func(z, at int) {
		for s := 0; s < 4; s++ {
			f.p("\tVPMOVDB Z%d, %d(DI)", z, at+16*s)
			if s < 3 {
				f.p("\tVPSRLD $8, Z%d, Z%d", z, z)
			}
		}
	}
	begin("packQ4KAVX512", "packs 16 rows of Q4_K.")
	f.constant(0x0f0f0f0f, 30)
	f.constant(0x3f3f3f3f, 29)
	f.constant(0x30303030, 28)
	f.p("loop:")
	fetch(16 * 144)
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
			gather(16+32*h+4*i, x)
			gather(32+32*h+4*i, y)
			at := 320 + 512*h + 64*i
			f.p("\tVPSLLD $4, Z%d, Z%d", y, out)
			f.p("\tVPTERNLOGD $0xD8, Z30, Z%d, Z%d", x, out) // low nibbles of x below those of y
			f.p("\tVMOVDQU64 Z%d, %d(DI)", out, at)
			f.p("\tVPSRLD $4, Z%d, Z%d", x, x)
			f.p("\tVPTERNLOGD $0xD8, Z30, Z%d, Z%d", x, y) // high nibbles of x below those of y
			f.p("\tVMOVDQU64 Z%d, %d(DI)", y, at+256)
		}
	}
	f.p("\tADDQ $144, SI")
	f.p("\tADDQ $%d, DI", 320+8*256)
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	end()

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
				f.p("\tVPXORD Z2, Z2, Z2")
				for i := 0; i < 4; i++ {
					src := 16 + 4*plane + i
					z := src
					if u > 0 {
						f.p("\tVPSRLD $%d, Z%d, Z3", 2*u, src)
						z = 3
					}
					f.p("\tVPANDD Z29, Z%d, Z3", z)
					if i > 0 {
						f.p("\tVPSLLD $%d, Z3, Z3", 2*i)
					}
					f.p("\tVPORD Z3, Z2, Z2")
				}
				f.p("\tVMOVDQU64 Z2, %d(DI)", to+256+64*plane)
			}
		}
	}
	f.p("\tADDQ $210, SI")
	f.p("\tADDQ $%d, DI", header+8*384)
	f.p("\tDECQ CX")
	f.p("\tJNE loop")
	end()
}
