package core

import (
	"fmt"
	"strings"
)

// Type is the element type of A and B.
type Type uint8

// The types that have a micro-kernel.
const (
	Int16 Type = iota
	Int8
	FP32
	numTypes
)

var types = [numTypes]struct {
	name    string
	bytes   int
	macs    int // multiply-adds a cycle [S, UG1079]
	partial int // bytes of a partial sum that waits in data memory
}{
	// An int16 sum keeps all 48 bits; an int8 sum is exact modulo 2^32, which is all that leaves the tile.
	Int16: {"int16", 2, 32, 6},
	Int8:  {"int8", 1, 128, 4},
	FP32:  {"fp32", 4, 8, 4},
}

// ParseType returns the type of a name.
func ParseType(name string) (Type, error) {
	var names []string
	for t := range numTypes {
		if types[t].name == name {
			return t, nil
		}
		names = append(names, types[t].name)
	}
	return 0, fmt.Errorf("unknown type %q: one of %s is right", name, strings.Join(names, ", "))
}

// Types lists them.
func Types() []Type { return []Type{Int16, Int8, FP32} }

func (t Type) String() string { return types[t].name }

// Bytes is the size of an element.
func (t Type) Bytes() int { return types[t].bytes }

// PeakMACs is the number of multiply-adds a cycle.
func (t Type) PeakMACs() int { return types[t].macs }

// PartialBytes is the size of a partial sum in data memory.
func (t Type) PartialBytes() int { return types[t].partial }

// Out is the element type of C.
type Out uint8

// The types of C.
const (
	S32 Out = iota
	S16
	S8
	F32
	numOuts
)

var outs = [numOuts]struct {
	name  string
	bytes int
}{{"s32", 4}, {"s16", 2}, {"s8", 1}, {"f32", 4}}

// ParseOut returns the type of a name.
func ParseOut(name string) (Out, error) {
	for o := range numOuts {
		if outs[o].name == name {
			return o, nil
		}
	}
	return 0, fmt.Errorf("unknown result type %q: one of s32, s16, s8, f32 is right", name)
}

func (o Out) String() string { return outs[o].name }

// Bytes is the size of an element.
func (o Out) Bytes() int { return outs[o].bytes }

// Default is what a product of the type leaves as if nothing is asked.
func (t Type) Default() Out {
	if t == FP32 {
		return F32
	}
	return S32
}

// CheckOut returns an error unless C may have type o.
func (t Type) CheckOut(o Out) error {
	if (t == FP32) != (o == F32) {
		return fmt.Errorf("a product of %v has no result of type %v: %v is right", t, o, map[bool]string{true: "f32", false: "s32, s16 or s8"}[t == FP32])
	}
	return nil
}

// Kernel is the shape of a micro-kernel: an MR x NR micro-tile of C stays in registers while k advances, KU at a time in an
// unrolled iteration, KS at least.
type Kernel struct {
	Type   Type
	MR, NR int
	KU, KS int
}

// The micro-kernels. Int16 is the seed's; Int16Wide is the one that the seed tried and rejected because it spills.
var (
	KernelInt16     = Kernel{Int16, 16, 4, 4, 2}
	KernelInt16Wide = Kernel{Int16, 32, 4, 4, 2}
	KernelInt8      = Kernel{Int8, 8, 8, 8, 8}
	KernelFP32      = Kernel{FP32, 8, 4, 2, 1}
)

// KernelFor returns the kernel that plans use for a type.
func KernelFor(t Type) Kernel {
	switch t {
	case Int8:
		return KernelInt8
	case FP32:
		return KernelFP32
	}
	return KernelInt16
}

func (k Kernel) String() string { return fmt.Sprintf("%v %dx%d", k.Type, k.MR, k.NR) }

// Budget is what an iteration of a micro-kernel needs of the registers and what there is.
type Budget struct {
	Accs, AccsHave     int // accumulator registers
	VectorBits, VecHas int // vector registers, in bits
	SpillBits          int // vector bits that go to memory and back in every iteration
}

// AccPercent and VectorPercent are the shares in use.
func (b Budget) AccPercent() float64 { return 100 * float64(b.Accs) / float64(b.AccsHave) }

// VectorPercent is above 100 where the kernel spills.
func (b Budget) VectorPercent() float64 { return 100 * float64(b.VectorBits) / float64(b.VecHas) }

const (
	vectorFile = 2048 // bits [UG1079]
	accsHave   = 4
	loadBits   = 256 // of each of two loads and of the store
)

// Budget counts registers.
//
// int16: the columns of A for one iteration (the seed's ar0 and ar1), the rows of B (br), a register of C on its way in or out; the
// sums stand in accumulators. int8: two 4x8 blocks of A, held twice because the next pair is loaded during the four
// operations on this one, and two 8x4 blocks of B. fp32: two columns of A, the rows of B, and the sums, which stand in vector registers.
func (k Kernel) Budget() Budget {
	e := 8 * k.Type.Bytes()
	up := func(bits int) int { return (bits + loadBits - 1) / loadBits * loadBits }
	b := Budget{AccsHave: accsHave, VecHas: vectorFile}
	switch k.Type {
	case Int16:
		b.Accs = (k.MR*k.NR + Lanes - 1) / Lanes
		b.VectorBits = up(k.MR*k.KU*e) + up(k.KU*k.NR*e) + loadBits
	case Int8:
		b.Accs = (k.MR*k.NR + Lanes - 1) / Lanes
		b.VectorBits = 2*up(k.MR*k.KU*e) + up(k.KU*k.NR*e)
	case FP32:
		b.VectorBits = up(k.MR*k.KU*e) + up(k.KU*k.NR*e) + k.MR*k.NR*32
	}
	b.SpillBits = max(0, b.VectorBits-vectorFile)
	return b
}

// Fitted constants of the cycle model.
const (
	// Fill is the call and the filling and draining of the loop's pipeline: what is left of the 84 cycles that the seed's 16x4
	// kernel takes beside its 2 cycles per k (212 at k_c = 64, 596 at 256) once the micro-tile of C has been moved in and out over a
	// 32-bit stream at 32 cycles each way.
	Fill = 20
	// Turn is the change from one micro-tile to the next inside a call, when the loads and stores of sums hide in the free slots of
	// the multiplications. AMD's tutorial on AIE-ML (XD100, matrix multiplication, 64x64x64 int8) measured 1,121 cycles where 16-bit
	// results hide, which is 64 x (16 + 1.2) + 20, and 1,750 where 32-bit ones do not, 64 x (16 + 8 + 3) + 20.
	Turn = 2
	// HideShare is the share of a micro-tile's multiplication cycles that its stores may take and still hide: a quarter hides and a
	// half does not in the two measurements above.
	HideShare = 4
)

// Iteration is the cycles of one unrolled iteration: its multiplications, plus a cycle for every 256 bits that spill out and for every 256 that
// come back. The seed measured 1,429 cycles for 32x4 at k_c = 256; this gives 148 + 64 x (16 + 4) = 1,428.
func (k Kernel) Iteration() int {
	return k.MR*k.NR*k.KU/k.Type.PeakMACs() + 2*k.Budget().SpillBits/loadBits
}

// MACCycles is the cycles that a micro-tile's multiplications over kc take, spill included. Kc is rounded up to KS.
func (k Kernel) MACCycles(kc int) int {
	kc = (kc + k.KS - 1) / k.KS * k.KS
	return kc * k.Iteration() / k.KU
}

// StreamedC is the cycles to move a micro-tile of C over a stream, one way. Four-byte results use both streams of the core, so
// that every type takes as long as the seed's int16.
func (k Kernel) StreamedC(cBytes int) int {
	streams := 1
	if cBytes == 4 {
		streams = 2
	}
	return k.MR * k.NR * cBytes / (4 * streams)
}

// Streamed is the cycles of the seed's micro-kernel: the micro-tile of C comes in over a stream (unless it starts at zero), A
// arrives over streams as it is used, B_r lies in data memory, and C leaves over a stream.
func (k Kernel) Streamed(kc int, readC bool, cBytes int) int {
	n := Fill + k.MACCycles(kc) + k.StreamedC(cBytes)
	if readC {
		n += k.StreamedC(cBytes)
	}
	return n
}

// Step says where a call of the block kernel stands in K.
type Step struct {
	First, Last bool // the sums start at zero; the sums leave as results
	Out         Out
	CascadeIn   bool // sums of the neighbour are added
	CascadeOut  bool // sums go to the neighbour instead of memory
}

// Block is the cycles of a call that multiplies an m x kb block of A by a kb x n block of B, both in data memory, as micro-tiles whose
// sums come from memory and return there.
func (k Kernel) Block(m, kb, n int, s Step) int {
	tiles := ((m + k.MR - 1) / k.MR) * ((n + k.NR - 1) / k.NR)
	return Fill + tiles*k.tile(kb, s)
}

func (k Kernel) tile(kb int, s Step) int {
	mac := k.MACCycles(kb)
	elems := k.MR * k.NR
	store, load := k.Type.PartialBytes()*elems*8/loadBits, k.Type.PartialBytes()*elems*8/loadBits
	if s.Last {
		store = s.Out.Bytes() * elems * 8 / loadBits
	}
	if s.CascadeOut {
		store = 0
	}
	if s.First {
		load = 0
	}
	c := mac + Turn
	if HideShare*store > mac {
		c += store
	}
	operands := (k.MR + k.NR) * kb * k.Type.Bytes() * 8 / loadBits
	c += max(0, (operands+load-2*mac+1)/2)
	pass := elems / Lanes * 2 // an accumulator of 768 bits is two words of the cascade
	if s.CascadeIn {
		c += pass
	}
	if s.CascadeOut {
		c += pass
	}
	return c
}

// Efficiency is the share of the peak that macs multiply-adds in so many cycles reach.
func (t Type) Efficiency(macs, cycles float64) float64 {
	return macs / (cycles * float64(t.PeakMACs()))
}
