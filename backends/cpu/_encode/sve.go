package encode

import (
	"fmt"
	"strings"
)

// Size is the size of the elements of a scalable vector: b, h, s or d.
type Size uint32

// The sizes, in the order of their encoding.
const (
	B Size = iota
	H
	S
	D
)

func (s Size) String() string { return string("bhsd"[s]) }

// Predicates and counts.

// PTRUE sets all elements of a size.
func PTRUE(d P, s Size) Insn {
	return Insn{0x2518e3e0 | field(uint32(s), 2, 22) | field(d, 4, 0), fmt.Sprintf("ptrue %v.%v", d, s)}
}

// WHILELT sets the elements for which n + their index < m, signed.
func WHILELT(d P, s Size, n, m X) Insn {
	return Insn{0x25201400 | field(uint32(s), 2, 22) | field(m, 5, 16) | field(n, 5, 5) | field(d, 4, 0),
		fmt.Sprintf("whilelt %v.%v, %v, %v", d, s, general(n), general(m))}
}

// general names a register where number 31 is the zero register.
func general(r X) string {
	if r == 31 {
		return "xzr"
	}
	return r.String()
}

// CNT gives the number of elements of a size in a vector (cntb, cnth, cntw, cntd), times mul, 1 to 16.
func CNT(d X, s Size, mul int) Insn {
	text := fmt.Sprintf("cnt%s %v", strings.Trim("b h w d"[2*s:2*s+1], " "), general(d))
	if mul != 1 {
		text += fmt.Sprintf(", all, mul #%d", mul)
	}
	return Insn{0x0420e3e0 | field(uint32(s), 2, 22) | field(mul-1, 4, 16) | field(d, 5, 0), text}
}

// RDVL gives i times the bytes of a vector, -32 to 31.
func RDVL(d X, i int) Insn {
	return Insn{0x04bf5000 | signed(i, 6, 5) | field(d, 5, 0), fmt.Sprintf("rdvl %v, #%d", general(d), i)}
}

// ADDVL adds i times the bytes of a vector to n.
func ADDVL(d, n X, i int) Insn {
	return Insn{0x04205000 | field(n, 5, 16) | signed(i, 6, 5) | field(d, 5, 0), fmt.Sprintf("addvl %v, %v, #%d", d, n, i)}
}

// Memory. Offsets vl are in whole vectors, -8 to 7.

func zmem(op uint32, name string, t Z, s Size, g P, zeroing bool, n X, vl int) Insn {
	at := n.String()
	if vl != 0 {
		at += fmt.Sprintf(", #%d, mul vl", vl)
	}
	mask := g.String()
	if zeroing {
		mask += "/z"
	}
	return Insn{op | signed(vl, 4, 16) | field(g, 3, 10) | field(n, 5, 5) | field(t, 5, 0),
		fmt.Sprintf("%s {%v.%v}, %s, [%s]", name, t, s, mask, at)}
}

func LD1B(t Z, g P, n X, vl int) Insn { return zmem(0xa400a000, "ld1b", t, B, g, true, n, vl) }
func LD1H(t Z, g P, n X, vl int) Insn { return zmem(0xa4a0a000, "ld1h", t, H, g, true, n, vl) }
func LD1W(t Z, g P, n X, vl int) Insn { return zmem(0xa540a000, "ld1w", t, S, g, true, n, vl) }
func ST1B(t Z, g P, n X, vl int) Insn { return zmem(0xe400e000, "st1b", t, B, g, false, n, vl) }
func ST1H(t Z, g P, n X, vl int) Insn { return zmem(0xe4a0e000, "st1h", t, H, g, false, n, vl) }
func ST1W(t Z, g P, n X, vl int) Insn { return zmem(0xe540e000, "st1w", t, S, g, false, n, vl) }

// LD1HW loads halves, each into the low half of a word; vl counts vectors of the words.
func LD1HW(t Z, g P, n X, vl int) Insn { return zmem(0xa4c0a000, "ld1h", t, S, g, true, n, vl) }

// ST1HW stores the low halves of words.
func ST1HW(t Z, g P, n X, vl int) Insn { return zmem(0xe4c0e000, "st1h", t, S, g, false, n, vl) }

// LD1WIndex and ST1WIndex take the words at n + 4 m.

func LD1WIndex(t Z, g P, n, m X) Insn {
	return Insn{0xa5404000 | field(m, 5, 16) | field(g, 3, 10) | field(n, 5, 5) | field(t, 5, 0),
		fmt.Sprintf("ld1w {%v.s}, %v/z, [%v, %v, lsl #2]", t, g, n, m)}
}

func ST1WIndex(t Z, g P, n, m X) Insn {
	return Insn{0xe5404000 | field(m, 5, 16) | field(g, 3, 10) | field(n, 5, 5) | field(t, 5, 0),
		fmt.Sprintf("st1w {%v.s}, %v, [%v, %v, lsl #2]", t, g, n, m)}
}

// LD2W loads pairs of words: the first of each to t, the second to t+1. vl is even, -16 to 14.
func LD2W(t Z, g P, n X, vl int) Insn {
	if vl%2 != 0 {
		panic("encode: odd offset of ld2w")
	}
	at := n.String()
	if vl != 0 {
		at += fmt.Sprintf(", #%d, mul vl", vl)
	}
	return Insn{0xa520e000 | signed(vl/2, 4, 16) | field(g, 3, 10) | field(n, 5, 5) | field(t, 5, 0),
		fmt.Sprintf("ld2w {%v.s-%v.s}, %v/z, [%s]", t, (t+1)%32, g, at)}
}

// LD1RW gives every element the word at n + off, 0 to 252.
func LD1RW(t Z, g P, n X, off int) Insn {
	if off%4 != 0 {
		panic("encode: offset of ld1rw is no multiple of 4")
	}
	return Insn{0x8540c000 | field(off/4, 6, 16) | field(g, 3, 10) | field(n, 5, 5) | field(t, 5, 0),
		fmt.Sprintf("ld1rw {%v.s}, %v/z, [%s]", t, g, offset(n, off))}
}

// LD1RQW gives every 128 bits of t the four words at n + off, -128 to 112.
func LD1RQW(t Z, g P, n X, off int) Insn {
	if off%16 != 0 {
		panic("encode: offset of ld1rqw is no multiple of 16")
	}
	return Insn{0xa5002000 | signed(off/16, 4, 16) | field(g, 3, 10) | field(n, 5, 5) | field(t, 5, 0),
		fmt.Sprintf("ld1rqw {%v.s}, %v/z, [%s]", t, g, offset(n, off))}
}

func offset(n X, off int) string {
	if off == 0 {
		return n.String()
	}
	return fmt.Sprintf("%v, #%d", n, off)
}

// Arithmetic.

func zthree(op uint32, name string, d Z, sd Size, n Z, sn Size, m Z, sm Size) Insn {
	return Insn{op | field(m, 5, 16) | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("%s %v.%v, %v.%v, %v.%v", name, d, sd, n, sn, m, sm)}
}

// ZFMLA adds n times m to the active words of d.
func ZFMLA(d Z, g P, n, m Z) Insn {
	return Insn{0x65a00000 | field(m, 5, 16) | field(g, 3, 10) | field(n, 5, 5) | field(d, 5, 0),
		fmt.Sprintf("fmla %v.s, %v/m, %v.s, %v.s", d, g, n, m)}
}

// zelement takes element i of each 128 bits of m, which is one of the first eight registers.
func zelement(op uint32, name string, d, n Z, sn Size, m Z, i int) Insn {
	return Insn{op | field(i, 2, 19) | field(m, 3, 16) | field(n, 5, 5) | field(d, 5, 0),
		fmt.Sprintf("%s %v.s, %v.%v, %v.%v[%d]", name, d, n, sn, m, sn, i)}
}

func ZFMLAElem(d, n, m Z, i int) Insn  { return zelement(0x64a00000, "fmla", d, n, S, m, i) }
func ZSDOTElem(d, n, m Z, i int) Insn  { return zelement(0x44a00000, "sdot", d, n, B, m, i) }
func ZUDOTElem(d, n, m Z, i int) Insn  { return zelement(0x44a00400, "udot", d, n, B, m, i) }
func ZUSDOTElem(d, n, m Z, i int) Insn { return zelement(0x44a01800, "usdot", d, n, B, m, i) }

func ZFADD(d, n, m Z) Insn { return zthree(0x65800000, "fadd", d, S, n, S, m, S) }
func ZFSUB(d, n, m Z) Insn { return zthree(0x65800400, "fsub", d, S, n, S, m, S) }
func ZFMUL(d, n, m Z) Insn { return zthree(0x65800800, "fmul", d, S, n, S, m, S) }
func ZADD(d, n, m Z) Insn  { return zthree(0x04a00000, "add", d, S, n, S, m, S) }
func ZEOR(d, n, m Z) Insn  { return zthree(0x04a03000, "eor", d, D, n, D, m, D) }
func ZAND(d, n, m Z) Insn  { return zthree(0x04203000, "and", d, D, n, D, m, D) }

func ZSDOT(d, n, m Z) Insn   { return zthree(0x44800000, "sdot", d, S, n, B, m, B) }
func ZUDOT(d, n, m Z) Insn   { return zthree(0x44800400, "udot", d, S, n, B, m, B) }
func ZUSDOT(d, n, m Z) Insn  { return zthree(0x44807800, "usdot", d, S, n, B, m, B) }
func ZSMMLA(d, n, m Z) Insn  { return zthree(0x45009800, "smmla", d, S, n, B, m, B) }
func ZUMMLA(d, n, m Z) Insn  { return zthree(0x45c09800, "ummla", d, S, n, B, m, B) }
func ZUSMMLA(d, n, m Z) Insn { return zthree(0x45809800, "usmmla", d, S, n, B, m, B) }
func ZBFDOT(d, n, m Z) Insn  { return zthree(0x64608000, "bfdot", d, S, n, H, m, H) }
func ZBFMMLA(d, n, m Z) Insn { return zthree(0x6460e400, "bfmmla", d, S, n, H, m, H) }

// ZMLA adds n times m to the active words of d.
func ZMLA(d Z, g P, n, m Z) Insn {
	return Insn{0x04804000 | field(m, 5, 16) | field(g, 3, 10) | field(n, 5, 5) | field(d, 5, 0),
		fmt.Sprintf("mla %v.s, %v/m, %v.s, %v.s", d, g, n, m)}
}

// Permutations of whole vectors, by elements of a size.

func ZZIP1(s Size, d, n, m Z) Insn { return permute(0x05206000, "zip1", s, d, n, m) }
func ZZIP2(s Size, d, n, m Z) Insn { return permute(0x05206400, "zip2", s, d, n, m) }
func ZUZP1(s Size, d, n, m Z) Insn { return permute(0x05206800, "uzp1", s, d, n, m) }
func ZUZP2(s Size, d, n, m Z) Insn { return permute(0x05206c00, "uzp2", s, d, n, m) }
func ZTRN1(s Size, d, n, m Z) Insn { return permute(0x05207000, "trn1", s, d, n, m) }
func ZTRN2(s Size, d, n, m Z) Insn { return permute(0x05207400, "trn2", s, d, n, m) }

func permute(op uint32, name string, s Size, d, n, m Z) Insn {
	return zthree(op|field(uint32(s), 2, 22), name, d, s, n, s, m, s)
}

// ZZERO clears words.
func ZZERO(d Z) Insn { return Insn{0x25b8c000 | field(d, 5, 0), fmt.Sprintf("mov %v.s, #0", d)} }

// ZMOV copies a register.
func ZMOV(d, n Z) Insn {
	return Insn{0x04603000 | field(n, 5, 16) | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("mov %v.d, %v.d", d, n)}
}

// ZDUP gives every word the low 32 bits of a general register.
func ZDUP(d Z, n X) Insn {
	name := fmt.Sprintf("w%d", uint32(n))
	if n == SP {
		name = "wsp"
	}
	return Insn{0x05a03800 | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("mov %v.s, %s", d, name)}
}

// ZDUPQ gives every 128 bits of d the low 128 bits of n.
func ZDUPQ(d Z, n V) Insn {
	return Insn{0x05302000 | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("mov %v.q, q%d", d, uint32(n))}
}

// ZLSL shifts words left by s, 0 to 31.
func ZLSL(d, n Z, s int) Insn {
	v := field(s, 5, 0) | 32
	return Insn{0x04209c00 | v>>5<<22 | v&31<<16 | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("lsl %v.s, %v.s, #%d", d, n, s)}
}

// ZFCVTHS makes f32 of the f16 in the low halves of the active words, ZSCVTF f32 of signed words.

func ZFCVTHS(d Z, g P, n Z) Insn { return unary(0x6589a000, "fcvt", d, S, g, n, H) }
func ZSCVTF(d Z, g P, n Z) Insn  { return unary(0x6594a000, "scvtf", d, S, g, n, S) }

func unary(op uint32, name string, d Z, sd Size, g P, n Z, sn Size) Insn {
	return Insn{op | field(g, 3, 10) | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("%s %v.%v, %v/m, %v.%v", name, d, sd, g, n, sn)}
}

// FADDV adds the active words of n in pairs to a scalar.
func FADDV(d V, g P, n Z) Insn {
	return Insn{0x65802000 | field(g, 3, 10) | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("faddv s%d, %v, %v.s", uint32(d), g, n)}
}
