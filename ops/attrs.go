package ops

import (
	"fmt"

	"github.com/tessera-go/tessera/tensor"
)

// Ints is a short list of integers: axes, an order, sizes, paddings. Unlike a slice it is comparable, so that ops which hold one
// stay comparable.
type Ints struct {
	n uint8
	v [tensor.MaxRank]int
}

// MakeInts returns the list of the given numbers. It panics on more than tensor.MaxRank of them.
func MakeInts(v ...int) Ints {
	if len(v) > tensor.MaxRank {
		panic(fmt.Sprintf("ops: list of %d integers, at most %d are possible", len(v), tensor.MaxRank))
	}
	l := Ints{n: uint8(len(v))}
	copy(l.v[:], v)
	return l
}

// Len returns the number of integers.
func (l Ints) Len() int { return int(l.n) }

// At returns integer i.
func (l Ints) At(i int) int { return l.v[:l.n][i] }

// List returns the integers as a new slice.
func (l Ints) List() []int { return append([]int(nil), l.v[:l.n]...) }

func (l Ints) String() string { return fmt.Sprint(l.v[:l.n]) }

// SizeList is a short comparable list of sizes, any of which may be symbolic.
type SizeList struct {
	n uint8
	v [tensor.MaxRank]Size
}

// MakeSizes returns the list of the given sizes. It panics on more than tensor.MaxRank of them.
func MakeSizes(v ...Size) SizeList {
	if len(v) > tensor.MaxRank {
		panic(fmt.Sprintf("ops: list of %d sizes, at most %d are possible", len(v), tensor.MaxRank))
	}
	l := SizeList{n: uint8(len(v))}
	copy(l.v[:], v)
	return l
}

// ConstSizes returns the list of known sizes.
func ConstSizes(v ...int) SizeList {
	sizes := make([]Size, len(v))
	for i, n := range v {
		sizes[i] = Const(n)
	}
	return MakeSizes(sizes...)
}

// Len returns the number of sizes.
func (l SizeList) Len() int { return int(l.n) }

// At returns size i.
func (l SizeList) At(i int) Size { return l.v[:l.n][i] }

// Known returns the sizes as numbers; ok is false if one of them is symbolic.
func (l SizeList) Known() (v []int, ok bool) {
	v = make([]int, l.n)
	for i := range v {
		if l.v[i].Sym != "" {
			return nil, false
		}
		v[i] = l.v[i].N
	}
	return v, true
}

// Resolve returns the list with the values of its symbols put in.
func (l SizeList) Resolve(sizes Sizes) (SizeList, error) {
	for i := range l.v[:l.n] {
		v, err := l.v[i].Value(sizes)
		if err != nil {
			return l, err
		}
		l.v[i] = Const(v)
	}
	return l, nil
}

func (l SizeList) String() string { return fmt.Sprint(l.v[:l.n]) }
