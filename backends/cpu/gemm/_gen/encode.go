package main

import (
	"fmt"
	"strconv"
)

// zreg returns the number of a vector register name such as Z17.
func zreg(name string) int {
	n, err := strconv.Atoi(name[1:])
	if err != nil {
		panic(name)
	}
	return n
}

// encodeVDPBF16PS gives `VDPBF16PS src, a, dst` for registers as raw bytes: EVEX.512.F3.0F38.W0 52 /r.
func encodeVDPBF16PS(src, a, dst string) string {
	return raw(evexRRR(0xF3, 0x38, 0, 0x52, zreg(src), zreg(a), zreg(dst), 512), fmt.Sprintf("VDPBF16PS %s, %s, %s", src, a, dst))
}

// encodeVDPBF16PSbcst is the form that broadcasts 32 bits from disp(AX).
func encodeVDPBF16PSbcst(disp int, a, dst string) string {
	b := evexRRR(0xF3, 0x38, 0, 0x52, 0, zreg(a), zreg(dst), 512)
	b[3] |= 1 << 4                         // embedded broadcast
	b[5] = 2<<6 | byte(zreg(dst)&7)<<3 | 0 // [rax+disp32]
	b = append(b, byte(disp), byte(disp>>8), byte(disp>>16), byte(disp>>24))
	return raw(b, fmt.Sprintf("VDPBF16PS.BCST %d(AX), %s, %s", disp, a, dst))
}

// encodeVPDPBUSD gives the VEX form, which Go's assembler does not know (its own is EVEX): VEX.256.66.0F38.W0 50 /r. a is
// unsigned, src signed.
func encodeVPDPBUSD(src, a, dst string) string {
	return raw(vexRRR(0x66, 0x38, 0, 0x50, zreg(src), zreg(a), zreg(dst), 256), fmt.Sprintf("VPDPBUSD %s, %s, %s (VEX)", src, a, dst))
}

// evexRRR encodes a register form: rm is ModRM.rm (the last Intel operand), v the second, reg the destination.
func evexRRR(prefix, opmap, w, op, rm, v, reg, bits int) []byte {
	pp := map[int]int{0: 0, 0x66: 1, 0xF3: 2, 0xF2: 3}[prefix]
	mm := map[int]int{0x0F: 1, 0x38: 2, 0x3A: 3}[opmap]
	ll := map[int]int{128: 0, 256: 1, 512: 2}[bits]
	not := func(b int) int { return b&1 ^ 1 }
	p0 := not(reg>>3)<<7 | not(rm>>4)<<6 | not(rm>>3)<<5 | not(reg>>4)<<4 | mm
	p1 := w<<7 | (^v&0xF)<<3 | 1<<2 | pp
	p2 := ll<<5 | not(v>>4)<<3
	modrm := 3<<6 | (reg&7)<<3 | rm&7
	return []byte{0x62, byte(p0), byte(p1), byte(p2), byte(op), byte(modrm)}
}

// vexRRR encodes the three-byte VEX register form.
func vexRRR(prefix, opmap, w, op, rm, v, reg, bits int) []byte {
	pp := map[int]int{0: 0, 0x66: 1, 0xF3: 2, 0xF2: 3}[prefix]
	mm := map[int]int{0x0F: 1, 0x38: 2, 0x3A: 3}[opmap]
	l := map[int]int{128: 0, 256: 1}[bits]
	not := func(b int) int { return b&1 ^ 1 }
	b1 := not(reg>>3)<<7 | 1<<6 | not(rm>>3)<<5 | mm
	b2 := w<<7 | (^v&0xF)<<3 | l<<2 | pp
	modrm := 3<<6 | (reg&7)<<3 | rm&7
	return []byte{0xC4, byte(b1), byte(b2), byte(op), byte(modrm)}
}

// raw renders bytes for Go's assembler, with the instruction that they mean as the comment.
func raw(b []byte, meaning string) string {
	s := ""
	rest := b
	for len(rest) >= 4 {
		s += fmt.Sprintf("LONG $0x%02x%02x%02x%02x; ", rest[3], rest[2], rest[1], rest[0])
		rest = rest[4:]
	}
	if len(rest) >= 2 {
		s += fmt.Sprintf("WORD $0x%02x%02x; ", rest[1], rest[0])
		rest = rest[2:]
	}
	if len(rest) == 1 {
		s += fmt.Sprintf("BYTE $0x%02x; ", rest[0])
	}
	return s[:len(s)-2] + " // " + meaning
}
