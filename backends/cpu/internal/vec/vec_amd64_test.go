//go:build !noasm

package vec

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// Functions that leave fetching to the processor give the bits of those that ask for rows ahead.
func TestScoresWithoutFetching(t *testing.T) {
	if !cpuinfo.Get().Has(cpuinfo.AVX512) {
		t.Skip("one kind of functions here")
	}
	alone, asking := setAVX512, setAVX512
	alone.leaveFetching()
	asking.DotsF16, asking.DotsBF16 = dotsHalf(dotsF16AVX512), dotsHalf(dotsBF16AVX512)
	asking.WeighF16, asking.WeighBF16 = weighHalf(weighF16AVX512), weighHalf(weighBF16AVX512)
	r := rand.New(rand.NewPCG(8, 8))
	for n := range 11 {
		for _, d := range []int{16, 48, 64, 80, 144} {
			x := random(r, n*d)
			for _, c := range []struct {
				narrow func(dst []uint16, src []float32)
				dots   [2]func(dst, q []float32, k []uint16, stride int)
				weigh  [2]func(acc, w []float32, v []uint16, stride int)
				name   string
			}{
				{alone.ToF16, [2]func(dst, q []float32, k []uint16, stride int){alone.DotsF16, asking.DotsF16}, [2]func(acc, w []float32, v []uint16, stride int){alone.WeighF16, asking.WeighF16}, "f16"},
				{alone.ToBF16, [2]func(dst, q []float32, k []uint16, stride int){alone.DotsBF16, asking.DotsBF16}, [2]func(acc, w []float32, v []uint16, stride int){alone.WeighBF16, asking.WeighBF16}, "bf16"},
			} {
				rows, q, w, acc := make([]uint16, n*d), random(r, d), random(r, n), random(r, d)
				c.narrow(rows, x)
				var dots, sums [2][]float32
				for i := range 2 {
					dots[i], sums[i] = make([]float32, n), append([]float32(nil), acc...)
					c.dots[i](dots[i], q, rows, d)
					c.weigh[i](sums[i], w, rows, d)
				}
				require.Equal(t, dots[1], dots[0], "%s: %d rows of %d", c.name, n, d)
				require.Equal(t, sums[1], sums[0], "%s: %d rows of %d", c.name, n, d)
			}
		}
	}
}
