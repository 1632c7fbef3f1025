package encode

import (
	"fmt"
	"strconv"
)

// Code is an instruction of amd64.
type Code struct {
	Bytes []byte
	Text  string // in the syntax of Go's assembler
}

// String gives the instruction for Go's assembler, with its meaning as the comment.
func (c Code) String() string {
	s := ""
	rest := c.Bytes
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
	return s[:len(s)-2] + " // " + c.Text
}

// vector returns the number of a vector register such as Z17, which must be one of the first so many of its kind.
func vector(name string, kind byte, regs int) int {
	n, err := strconv.Atoi(name[1:])
	if err != nil || name[0] != kind || n < 0 || n >= regs {
		panic("encode: " + name + " cannot stand here")
	}
	return n
}

// VDPBF16PS adds the products of pairs of bf16 to f32: EVEX.512.F3.0F38.W0 52 /r.
func VDPBF16PS(src, a, dst string) Code {
	return Code{evex(0xF3, 0x38, 0x52, vector(src, 'Z', 32), vector(a, 'Z', 32), vector(dst, 'Z', 32)),
		fmt.Sprintf("VDPBF16PS %s, %s, %s", src, a, dst)}
}

// VDPBF16PSbcst is the form that broadcasts 32 bits from disp(AX).
func VDPBF16PSbcst(disp int, a, dst string) Code {
	d := vector(dst, 'Z', 32)
	b := evex(0xF3, 0x38, 0x52, 0, vector(a, 'Z', 32), d)
	b[3] |= 1 << 4                 // embedded broadcast
	b[5] = 2<<6 | byte(d&7)<<3 | 0 // [rax+disp32]
	b = append(b, byte(disp), byte(disp>>8), byte(disp>>16), byte(disp>>24))
	return Code{b, fmt.Sprintf("VDPBF16PS.BCST %d(AX), %s, %s", disp, a, dst)}
}

// VCVTNEPS2BF16 rounds 16 f32 to bf16, to nearest even: EVEX.512.F3.0F38.W0 72 /r.
func VCVTNEPS2BF16(src, dst string) Code {
	return Code{evex(0xF3, 0x38, 0x72, vector(src, 'Z', 32), 0, vector(dst, 'Y', 32)), fmt.Sprintf("VCVTNEPS2BF16 %s, %s", src, dst)}
}

// VPDPBUSD adds the dot products of four bytes, a unsigned and src signed, in the VEX form (Go's own is EVEX):
// VEX.256.66.0F38.W0 50 /r.
func VPDPBUSD(src, a, dst string) Code {
	return Code{vex(0x66, 0x38, 0x50, vector(src, 'Y', 16), vector(a, 'Y', 16), vector(dst, 'Y', 16)),
		fmt.Sprintf("VPDPBUSD %s, %s, %s (VEX)", src, a, dst)}
}

// evex encodes a register form of 512 bits with W0: rm is ModRM.rm, v the second source, reg the destination.
func evex(prefix, opmap, op, rm, v, reg int) []byte {
	p0 := not(reg>>3)<<7 | not(rm>>4)<<6 | not(rm>>3)<<5 | not(reg>>4)<<4 | maps[opmap]
	p1 := (^v&0xF)<<3 | 1<<2 | prefixes[prefix]
	p2 := 2<<5 | not(v>>4)<<3
	return []byte{0x62, byte(p0), byte(p1), byte(p2), byte(op), byte(3<<6 | (reg&7)<<3 | rm&7)}
}

// vex encodes the three-byte register form of 256 bits with W0.
func vex(prefix, opmap, op, rm, v, reg int) []byte {
	b1 := not(reg>>3)<<7 | 1<<6 | not(rm>>3)<<5 | maps[opmap]
	b2 := (^v&0xF)<<3 | 1<<2 | prefixes[prefix]
	return []byte{0xC4, byte(b1), byte(b2), byte(op), byte(3<<6 | (reg&7)<<3 | rm&7)}
}

var (
	prefixes = map[int]int{0: 0, 0x66: 1, 0xF3: 2, 0xF2: 3}
	maps     = map[int]int{0x38: 2}
)

func not(b int) int { return b&1 ^ 1 }
