package encode

import "fmt"

// three is an instruction of three vector registers; arrangement is that of each in turn.
func three(op uint32, name string, d V, ad string, n V, an string, m V, am string) Insn {
	return Insn{op | field(m, 5, 16) | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("%s %v.%s, %v.%s, %v.%s", name, d, ad, n, an, m, am)}
}

// two is an instruction of two vector registers.
func two(op uint32, name string, d V, ad string, n V, an string) Insn {
	return Insn{op | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("%s %v.%s, %v.%s", name, d, ad, n, an)}
}

// element is an instruction of two vector registers and the 32-bit element i of a third.
func element(op uint32, name string, d V, n V, an string, m V, am string, i int) Insn {
	return Insn{op | field(i, 2, 0)&1<<21 | field(i, 2, 0)>>1<<11 | field(m, 5, 16) | field(n, 5, 5) | field(d, 5, 0),
		fmt.Sprintf("%s %v.4s, %v.%s, %v.%s[%d]", name, d, n, an, m, am, i)}
}

func fp3(op uint32, name string, d, n, m V) Insn { return three(op, name, d, "4s", n, "4s", m, "4s") }
func fp2(op uint32, name string, d, n V) Insn    { return two(op, name, d, "4s", n, "4s") }

// Dot products of four bytes, added to 32 bits: d[i] += the four products of the bytes at i.

func SDOT(d, n, m V) Insn  { return three(0x4e809400, "sdot", d, "4s", n, "16b", m, "16b") }
func UDOT(d, n, m V) Insn  { return three(0x6e809400, "udot", d, "4s", n, "16b", m, "16b") }
func USDOT(d, n, m V) Insn { return three(0x4e809c00, "usdot", d, "4s", n, "16b", m, "16b") }

// The same with the four bytes at element i of m for every sum.

func SDOTElem(d, n, m V, i int) Insn  { return element(0x4f80e000, "sdot", d, n, "16b", m, "4b", i) }
func UDOTElem(d, n, m V, i int) Insn  { return element(0x6f80e000, "udot", d, n, "16b", m, "4b", i) }
func USDOTElem(d, n, m V, i int) Insn { return element(0x4f80f000, "usdot", d, n, "16b", m, "4b", i) }
func SUDOTElem(d, n, m V, i int) Insn { return element(0x4f00f000, "sudot", d, n, "16b", m, "4b", i) }

// Products of 2x8 by 8x2 bytes, added to 2x2 sums: n and m hold two rows of eight each.

func SMMLA(d, n, m V) Insn  { return three(0x4e80a400, "smmla", d, "4s", n, "16b", m, "16b") }
func UMMLA(d, n, m V) Insn  { return three(0x6e80a400, "ummla", d, "4s", n, "16b", m, "16b") }
func USMMLA(d, n, m V) Insn { return three(0x4e80ac00, "usmmla", d, "4s", n, "16b", m, "16b") }

// bf16: dot products of two, products of 2x4 by 4x2, and narrowing.

func BFDOT(d, n, m V) Insn  { return three(0x6e40fc00, "bfdot", d, "4s", n, "8h", m, "8h") }
func BFMMLA(d, n, m V) Insn { return three(0x6e40ec00, "bfmmla", d, "4s", n, "8h", m, "8h") }
func BFCVTN(d, n V) Insn    { return two(0x0ea16800, "bfcvtn", d, "4h", n, "4s") }
func BFCVTN2(d, n V) Insn   { return two(0x4ea16800, "bfcvtn2", d, "8h", n, "4s") }

func BFDOTElem(d, n, m V, i int) Insn { return element(0x4f40f000, "bfdot", d, n, "8h", m, "2h", i) }

// Arithmetic in f32.

func FMLAElem(d, n, m V, i int) Insn { return element(0x4f801000, "fmla", d, n, "4s", m, "s", i) }
func FMLSElem(d, n, m V, i int) Insn { return element(0x4f805000, "fmls", d, n, "4s", m, "s", i) }
func FMULElem(d, n, m V, i int) Insn { return element(0x4f809000, "fmul", d, n, "4s", m, "s", i) }

func FMLA(d, n, m V) Insn   { return fp3(0x4e20cc00, "fmla", d, n, m) }
func FMLS(d, n, m V) Insn   { return fp3(0x4ea0cc00, "fmls", d, n, m) }
func FADD(d, n, m V) Insn   { return fp3(0x4e20d400, "fadd", d, n, m) }
func FSUB(d, n, m V) Insn   { return fp3(0x4ea0d400, "fsub", d, n, m) }
func FMUL(d, n, m V) Insn   { return fp3(0x6e20dc00, "fmul", d, n, m) }
func FDIV(d, n, m V) Insn   { return fp3(0x6e20fc00, "fdiv", d, n, m) }
func FMAX(d, n, m V) Insn   { return fp3(0x4e20f400, "fmax", d, n, m) }
func FMIN(d, n, m V) Insn   { return fp3(0x4ea0f400, "fmin", d, n, m) }
func FMAXNM(d, n, m V) Insn { return fp3(0x4e20c400, "fmaxnm", d, n, m) }
func FMINNM(d, n, m V) Insn { return fp3(0x4ea0c400, "fminnm", d, n, m) }
func FADDP(d, n, m V) Insn  { return fp3(0x6e20d400, "faddp", d, n, m) }
func FCMEQ(d, n, m V) Insn  { return fp3(0x4e20e400, "fcmeq", d, n, m) }
func FCMGE(d, n, m V) Insn  { return fp3(0x6e20e400, "fcmge", d, n, m) }
func FCMGT(d, n, m V) Insn  { return fp3(0x6ea0e400, "fcmgt", d, n, m) }

func FABS(d, n V) Insn   { return fp2(0x4ea0f800, "fabs", d, n) }
func FNEG(d, n V) Insn   { return fp2(0x6ea0f800, "fneg", d, n) }
func FSQRT(d, n V) Insn  { return fp2(0x6ea1f800, "fsqrt", d, n) }
func FRINTN(d, n V) Insn { return fp2(0x4e218800, "frintn", d, n) }
func FCVTNS(d, n V) Insn { return fp2(0x4e21a800, "fcvtns", d, n) }
func FCVTZS(d, n V) Insn { return fp2(0x4ea1b800, "fcvtzs", d, n) }
func SCVTF(d, n V) Insn  { return fp2(0x4e21d800, "scvtf", d, n) }

func FCVTL(d, n V) Insn  { return two(0x0e217800, "fcvtl", d, "4s", n, "4h") }
func FCVTL2(d, n V) Insn { return two(0x4e217800, "fcvtl2", d, "4s", n, "8h") }
func FCVTN(d, n V) Insn  { return two(0x0e216800, "fcvtn", d, "4h", n, "4s") }
func FCVTN2(d, n V) Insn { return two(0x4e216800, "fcvtn2", d, "8h", n, "4s") }

// FMAXV and FMAXNMV give the largest element of n as a scalar.

func FMAXV(d, n V) Insn {
	return Insn{0x6e30f800 | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("fmaxv s%d, %v.4s", uint32(d), n)}
}

func FMAXNMV(d, n V) Insn {
	return Insn{0x6e30c800 | field(n, 5, 5) | field(d, 5, 0), fmt.Sprintf("fmaxnmv s%d, %v.4s", uint32(d), n)}
}

// Integers.

func MUL(d, n, m V) Insn  { return fp3(0x4ea09c00, "mul", d, n, m) }
func MLA(d, n, m V) Insn  { return fp3(0x4ea09400, "mla", d, n, m) }
func SMAX(d, n, m V) Insn { return fp3(0x4ea06400, "smax", d, n, m) }
func SMIN(d, n, m V) Insn { return fp3(0x4ea06c00, "smin", d, n, m) }

func SMULL(d, n, m V) Insn  { return three(0x0e20c000, "smull", d, "8h", n, "8b", m, "8b") }
func SMULL2(d, n, m V) Insn { return three(0x4e20c000, "smull2", d, "8h", n, "16b", m, "16b") }
func SMLAL(d, n, m V) Insn  { return three(0x0e608000, "smlal", d, "4s", n, "4h", m, "4h") }
func SMLAL2(d, n, m V) Insn { return three(0x4e608000, "smlal2", d, "4s", n, "8h", m, "8h") }

// SMLALElem and SMLAL2Elem multiply by half i of m, one of the first sixteen registers.

func SMLALElem(d, n, m V, i int) Insn  { return halfElement(0x0f402000, "smlal", d, n, "4h", m, i) }
func SMLAL2Elem(d, n, m V, i int) Insn { return halfElement(0x4f402000, "smlal2", d, n, "8h", m, i) }

func halfElement(op uint32, name string, d, n V, an string, m V, i int) Insn {
	index := field(i, 3, 0)
	return Insn{op | index&1<<20 | index>>1&1<<21 | index>>2<<11 | field(m, 4, 16) | field(n, 5, 5) | field(d, 5, 0),
		fmt.Sprintf("%s %v.4s, %v.%s, %v.h[%d]", name, d, n, an, m, i)}
}

// SADALP adds neighbouring pairs of n to d; SADDLP and UADDLP only give the pairs' sums.

func SADALP(d, n V) Insn  { return two(0x4e606800, "sadalp", d, "4s", n, "8h") }
func SADDLPB(d, n V) Insn { return two(0x4e202800, "saddlp", d, "8h", n, "16b") }
func UADDLPB(d, n V) Insn { return two(0x6e202800, "uaddlp", d, "8h", n, "16b") }

// Widening: signed bytes and halves; SHLL shifts halves up by 16, which makes f32 of bf16.

func SXTLB(d, n V) Insn  { return two(0x0f08a400, "sxtl", d, "8h", n, "8b") }
func SXTLB2(d, n V) Insn { return two(0x4f08a400, "sxtl2", d, "8h", n, "16b") }
func SXTLH(d, n V) Insn  { return two(0x0f10a400, "sxtl", d, "4s", n, "4h") }
func SXTLH2(d, n V) Insn { return two(0x4f10a400, "sxtl2", d, "4s", n, "8h") }

func SHLL(d, n V) Insn {
	i := two(0x2e613800, "shll", d, "4s", n, "4h")
	return Insn{i.Word, i.Text + ", #16"}
}

func SHLL2(d, n V) Insn {
	i := two(0x6e613800, "shll2", d, "4s", n, "8h")
	return Insn{i.Word, i.Text + ", #16"}
}

// SSHR shifts signed words right by s, 1 to 32.
func SSHR(d, n V, s int) Insn {
	i := fp2(0x4f000400|field(64-s, 6, 16), "sshr", d, n)
	return Insn{i.Word, fmt.Sprintf("%s, #%d", i.Text, s)}
}

// Narrowing with saturation: words to halves, halves to bytes.

func SQXTNH(d, n V) Insn  { return two(0x0e614800, "sqxtn", d, "4h", n, "4s") }
func SQXTNH2(d, n V) Insn { return two(0x4e614800, "sqxtn2", d, "8h", n, "4s") }
func SQXTNB(d, n V) Insn  { return two(0x0e214800, "sqxtn", d, "8b", n, "8h") }
func SQXTUNB(d, n V) Insn { return two(0x2e212800, "sqxtun", d, "8b", n, "8h") }
