// Package encode gives the bytes of the instructions that Go's assembler does not know, for the generators of the kernels. Each
// instruction is written once, here, and its test lets GNU objdump read it back.
//
// The functions panic when an operand does not fit its field: a generator then stops instead of writing something else.
package encode

import "fmt"

// Insn is an instruction of arm64.
type Insn struct {
	Word uint32
	Text string // as GNU objdump prints it
}

// String gives the instruction for Go's assembler, with its meaning as the comment.
func (i Insn) String() string { return fmt.Sprintf("WORD $0x%08x // %s", i.Word, i.Text) }

// V is a NEON register, Z a scalable one (which holds the NEON register of its number in its low 128 bits), P a predicate, X a
// general register.
type (
	V uint32
	Z uint32
	P uint32
	X uint32
)

// SP is the stack pointer where an instruction takes one as its base.
const SP = X(31)

func (r V) String() string { return fmt.Sprintf("v%d", uint32(r)) }
func (r Z) String() string { return fmt.Sprintf("z%d", uint32(r)) }
func (r P) String() string { return fmt.Sprintf("p%d", uint32(r)) }
func (r X) String() string {
	if r == SP {
		return "sp"
	}
	return fmt.Sprintf("x%d", uint32(r))
}

// field returns v as an unsigned field of so many bits at a position.
func field[T ~int | ~uint32](v T, bits, at int) uint32 {
	if v < 0 || v >= 1<<bits {
		panic(fmt.Sprintf("encode: %d does not fit %d bits", v, bits))
	}
	return uint32(v) << at
}

// signed returns v as a two's complement field.
func signed(v, bits, at int) uint32 {
	if v < -1<<(bits-1) || v >= 1<<(bits-1) {
		panic(fmt.Sprintf("encode: %d does not fit %d signed bits", v, bits))
	}
	return uint32(v) & (1<<bits - 1) << at
}
