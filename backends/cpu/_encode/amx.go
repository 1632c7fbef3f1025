package encode

import "fmt"

// Mem is the memory at Base + Disp; registers are named as in Go's assembler.
type Mem struct {
	Base string
	Disp int
}

// Tile registers are T0 to T7. TILELOADD, TILELOADDT1 and TILESTORED move rows that lie stride bytes apart, which a register holds; as many
// and as wide ones as the configuration says, which LDTILECFG takes from 64 bytes.

// LDTILECFG configures the tiles by the 64 bytes at m, and clears them: VEX.128.NP.0F38.W0 49 /0.
func LDTILECFG(m Mem) Code {
	return Code{tileMemory(0, 0x49, 0, m, ""), fmt.Sprintf("LDTILECFG %d(%s)", m.Disp, m.Base)}
}

// STTILECFG stores the configuration, 64 bytes: VEX.128.66.0F38.W0 49 /0.
func STTILECFG(m Mem) Code {
	return Code{tileMemory(0x66, 0x49, 0, m, ""), fmt.Sprintf("STTILECFG %d(%s)", m.Disp, m.Base)}
}

// TILERELEASE returns the tiles to their initial state: VEX.128.NP.0F38.W0 49 C0.
func TILERELEASE() Code { return Code{tiles(0, 0x49, 0, 0, 0), "TILERELEASE"} }

// TILEZERO clears a tile: VEX.128.F2.0F38.W0 49 11:rrr:000.
func TILEZERO(dst string) Code {
	return Code{tiles(0xF2, 0x49, 0, 0, vector(dst, 'T', 8)), "TILEZERO " + dst}
}

// TILELOADD loads a tile: VEX.128.F2.0F38.W0 4B /r.
func TILELOADD(m Mem, stride, dst string) Code {
	return Code{tileMemory(0xF2, 0x4B, vector(dst, 'T', 8), m, stride), fmt.Sprintf("TILELOADD %d(%s)(%s*1), %s", m.Disp, m.Base, stride, dst)}
}

// TILELOADDT1 is TILELOADD for data that is not used again soon: VEX.128.66.0F38.W0 4B /r.
func TILELOADDT1(m Mem, stride, dst string) Code {
	return Code{tileMemory(0x66, 0x4B, vector(dst, 'T', 8), m, stride), fmt.Sprintf("TILELOADDT1 %d(%s)(%s*1), %s", m.Disp, m.Base, stride, dst)}
}

// TILESTORED stores a tile: VEX.128.F3.0F38.W0 4B /r.
func TILESTORED(src string, m Mem, stride string) Code {
	return Code{tileMemory(0xF3, 0x4B, vector(src, 'T', 8), m, stride), fmt.Sprintf("TILESTORED %s, %d(%s)(%s*1)", src, m.Disp, m.Base, stride)}
}

// Products: dst += a b, with groups of four bytes of a row of a against the group of the same number, a row of b, for each of its columns. S and U say
// which bytes are signed: first those of a. VEX.128.0F38.W0 5E and 5C, 11:rrr:bbb; a is ModRM.rm.

func TDPBSSD(b, a, dst string) Code   { return tileProduct(0xF2, 0x5E, "TDPBSSD", b, a, dst) }
func TDPBSUD(b, a, dst string) Code   { return tileProduct(0xF3, 0x5E, "TDPBSUD", b, a, dst) }
func TDPBUSD(b, a, dst string) Code   { return tileProduct(0x66, 0x5E, "TDPBUSD", b, a, dst) }
func TDPBUUD(b, a, dst string) Code   { return tileProduct(0, 0x5E, "TDPBUUD", b, a, dst) }
func TDPBF16PS(b, a, dst string) Code { return tileProduct(0xF3, 0x5C, "TDPBF16PS", b, a, dst) }

func tileProduct(prefix, op int, name, b, a, dst string) Code {
	if a == b || a == dst || b == dst {
		panic("encode: the tiles of " + name + " must differ")
	}
	return Code{tiles(prefix, op, vector(a, 'T', 8), vector(b, 'T', 8), vector(dst, 'T', 8)), fmt.Sprintf("%s %s, %s, %s", name, b, a, dst)}
}

// tiles encodes a form of tile registers only: VEX.128 with W0.
func tiles(prefix, op, rm, v, reg int) []byte {
	b := vex(prefix, 0x38, op, rm, v, reg)
	b[2] &^= 1 << 2 // 128 bits
	return b
}

// tileMemory encodes a memory form; a stride makes it one with a SIB byte.
func tileMemory(prefix, op, reg int, m Mem, stride string) []byte {
	base := general64(m.Base)
	index := 4 // none
	sib := base&7 == 4
	if stride != "" {
		if index = general64(stride); index == 4 {
			panic("encode: SP is no stride")
		}
		sib = true
	}
	rm := base & 7
	if sib {
		rm = 4
	}
	b := []byte{0xC4, byte(1<<7 | not(index>>3)<<6 | not(base>>3)<<5 | maps[0x38]), byte(0xF<<3 | prefixes[prefix]), byte(op)}
	mod, bytes := 0, 0
	switch {
	case m.Disp == 0 && base&7 != 5:
	case m.Disp == int(int8(m.Disp)):
		mod, bytes = 1, 1
	case m.Disp == int(int32(m.Disp)):
		mod, bytes = 2, 4
	default:
		panic("encode: a displacement of more than 32 bits")
	}
	b = append(b, byte(mod<<6|reg<<3|rm))
	if sib {
		b = append(b, byte(index&7<<3|base&7))
	}
	for i := range bytes {
		b = append(b, byte(m.Disp>>(8*i)))
	}
	return b
}

var generals = []string{"AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15"}

// general64 returns the number of a general register.
func general64(name string) int {
	for i, n := range generals {
		if n == name {
			return i
		}
	}
	panic("encode: " + name + " is no general register")
}
