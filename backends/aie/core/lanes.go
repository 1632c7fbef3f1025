package core

import "math/bits"

// Lanes is the number of lanes of an accumulator register.
const Lanes = 16

// Wrap48 reduces a value to the 48 bits of a lane.
func Wrap48(v int64) int64 { return v << 16 >> 16 }

// Rounding is how a value is brought to fewer bits on its way out of an accumulator, with the numbers of the control register.
type Rounding uint8

// The rounding modes. All but the first two round to the nearest and differ in what they do half way.
const (
	Floor    Rounding = iota // towards minus infinity; the mode after reset
	Ceil                     // towards plus infinity
	PosInf                   // half towards plus infinity
	NegInf                   // half towards minus infinity
	SymInf                   // half away from zero
	SymZero                  // half towards zero
	ConvEven                 // half to even
	ConvOdd                  // half to odd
	numRoundings
)

var roundingNames = [numRoundings]string{"floor", "ceil", "pos_inf", "neg_inf", "sym_inf", "sym_zero", "conv_even", "conv_odd"}

func (r Rounding) String() string {
	if r < numRoundings {
		return roundingNames[r]
	}
	return "rounding?"
}

// SRS shifts a lane right, rounds, and narrows to width bits: saturated or wrapped.
func SRS(v int64, shift uint, r Rounding, saturate bool, width uint) int64 {
	if shift > 0 {
		q := v >> shift
		rest := uint64(v) & (1<<shift - 1)
		half := uint64(1) << (shift - 1)
		up := false
		switch r {
		case Floor:
		case Ceil:
			up = rest != 0
		case PosInf:
			up = rest >= half
		case NegInf:
			up = rest > half
		case SymInf:
			up = rest > half || rest == half && v >= 0
		case SymZero:
			up = rest > half || rest == half && v < 0
		case ConvEven:
			up = rest > half || rest == half && q&1 == 1
		case ConvOdd:
			up = rest > half || rest == half && q&1 == 0
		}
		if up {
			q++
		}
		v = q
	}
	if saturate {
		lim := int64(1) << (width - 1)
		return max(-lim, min(lim-1, v))
	}
	return v << (64 - width) >> (64 - width)
}

// UPS brings a value from memory into a lane: shifted left, wrapped to 48 bits.
func UPS(v int64, shift uint) int64 { return Wrap48(v << shift) }

// ShiftFor is the smallest shift after which no sum of k products of values up to limit in magnitude overflows 32 bits, rounding
// included.
func ShiftFor(k int, limit int) uint {
	hi, sum := bits.Mul64(uint64(limit)*uint64(limit), uint64(max(k, 1)))
	if hi != 0 || sum > 1<<62 {
		return 33
	}
	shift := uint(0)
	for (sum+1<<shift>>1)>>shift > 1<<31-1 {
		shift++
	}
	return shift
}
