package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a product's M x N x K, the order that this command uses everywhere.
type Size struct{ M, N, K int }

func (s Size) String() string { return fmt.Sprintf("%dx%dx%d", s.M, s.N, s.K) }

// ParseSizes reads "MxNxK[,MxNxK...]".
func ParseSizes(text string) ([]Size, error) {
	var sizes []Size
	for _, one := range strings.Split(text, ",") {
		parts := strings.Split(strings.TrimSpace(one), "x")
		if len(parts) != 3 {
			return nil, Usagef("size %q: MxNxK is right, for example 1024x1024x1024", one)
		}
		var v [3]int
		for i, p := range parts {
			n, err := strconv.Atoi(p)
			if err != nil || n < 1 || n > 1<<24 {
				return nil, Usagef("size %q: %q is no number from 1 to %d", one, p, 1<<24)
			}
			v[i] = n
		}
		sizes = append(sizes, Size{v[0], v[1], v[2]})
	}
	return sizes, nil
}
