package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxDim bounds M, N and K.
const MaxDim = 1 << 24

// MaxOperands bounds the memory of a product that this command computes on random operands.
const MaxOperands = 12 << 30

// Size is a product's M x N x K, the order that this command uses everywhere.
type Size struct{ M, N, K int }

func (s Size) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

// Bytes returns about what the operands take as float32, twice: as given and packed.
func (s Size) Bytes() int64 {
	m, n, k := int64(s.M), int64(s.N), int64(s.K)
	return 4 * (m*k + 2*n*k + m*n)
}

// CheckMemory returns an error if the operands of the product do not fit MaxOperands.
func (s Size) CheckMemory() error {
	if need := s.Bytes(); need > MaxOperands {
		return fmt.Errorf("a product of %v needs %s of memory, at most %s are taken here", s, FormatBytes(need), FormatBytes(MaxOperands))
	}
	return nil
}

// ParseSizes reads "MxNxK[,MxNxK...]", the value of a flag.
func ParseSizes(flag, text string) ([]Size, error) {
	var sizes []Size
	for _, one := range strings.Split(text, ",") {
		parts := strings.Split(strings.TrimSpace(one), "x")
		if len(parts) != 3 {
			return nil, Usagef("--%s %q: MxNxK is right, for example 1024x1024x1024", flag, one)
		}
		var v [3]int
		for i, p := range parts {
			n, err := strconv.Atoi(p)
			if err != nil || n < 1 || n > MaxDim {
				return nil, Usagef("--%s %q: %q is no number from 1 to %d", flag, one, p, MaxDim)
			}
			v[i] = n
		}
		sizes = append(sizes, Size{v[0], v[1], v[2]})
	}
	return sizes, nil
}
