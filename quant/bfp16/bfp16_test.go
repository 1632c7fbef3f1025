package bfp16

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// refMantissa follows the definition with exact rational arithmetic.
func refMantissa(v float32, most int, r Rounding) int {
	if math.Float32bits(v)>>23&0xFF == 0 {
		return 0
	}
	// units of 2^(most-133)
	x := new(big.Float).SetPrec(600).SetFloat64(float64(v))
	x.SetMantExp(x, 133-most)
	floor, _ := x.Int(nil) // towards zero
	if x.Sign() < 0 && new(big.Float).SetPrec(600).SetInt(floor).Cmp(x) != 0 {
		floor.Sub(floor, big.NewInt(1))
	}
	if r == NearestEven {
		frac := new(big.Float).SetPrec(600).Sub(x, new(big.Float).SetPrec(600).SetInt(floor))
		if c := frac.Cmp(big.NewFloat(0.5)); c > 0 || c == 0 && floor.Bit(0) == 1 {
			floor.Add(floor, big.NewInt(1))
		}
	}
	return int(max(-128, min(127, floor.Int64())))
}

func TestMantissaAgainstDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		bits := rng.Uint32()
		exp := bits >> 23 & 0xFF
		if exp == 255 {
			continue
		}
		if rng.IntN(3) == 0 {
			bits &= 0xFFFF0000 // bf16 values, where ties are common
		}
		most := min(254, exp+uint32(rng.IntN(36)))
		for _, r := range []Rounding{NearestEven, Floor} {
			want := refMantissa(math.Float32frombits(bits), int(most), r)
			require.Equal(t, want, int(mantissa(bits, most, r)), "%x at %d mode %d", bits, most, r)
		}
	}
}

// The figures measured on silicon that section 6 of the format notes quotes, in mantissa units: the block's largest value fixes the exponent.
func TestMeasuredRounding(t *testing.T) {
	for in, want := range map[float32]int8{14.9375: 15, 106.5: 106, 94.5: 94} {
		src := []float32{64, in, 0, 0, 0, 0, 0, 0} // exponent 133: one unit is 1.0
		dst := make([]byte, Bytes)
		Encode(dst, src, NearestEven)
		require.Equal(t, byte(133), dst[0])
		require.Equal(t, want, int8(dst[2]), "%v", in)
	}
}

func TestKnownBlocks(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for i, c := range []struct {
		src  []float32
		r    Rounding
		want []int8
		exp  byte
	}{
		{[]float32{1, -1, 0.5, 0, 0, 0, 0, 0}, NearestEven, []int8{64, -64, 32, 0, 0, 0, 0, 0}, 127},
		{[]float32{1.9999999, -1.9999999, 0, 0, 0, 0, 0, 0}, NearestEven, []int8{127, -128, 0, 0, 0, 0, 0, 0}, 127},
		{[]float32{1.9999999, -1.9999999, 0, 0, 0, 0, 0, 0}, Floor, []int8{127, -128, 0, 0, 0, 0, 0, 0}, 127},
		{[]float32{1, 1e-30, -1e-30, 0, 0, 0, 0, 0}, Floor, []int8{64, 0, -1, 0, 0, 0, 0, 0}, 127},
		{[]float32{1, 1e-30, -1e-30, 0, 0, 0, 0, 0}, NearestEven, []int8{64, 0, 0, 0, 0, 0, 0, 0}, 127},
		{[]float32{1e-45, -1e-45, 0, 0, 0, 0, 0, 0}, Floor, []int8{0, 0, 0, 0, 0, 0, 0, 0}, 0},
		{[]float32{inf, 1, 0, 0, 0, 0, 0, 0}, NearestEven, nil, 255},
		{[]float32{nan, 1, 0, 0, 0, 0, 0, 0}, NearestEven, nil, 255},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dst := make([]byte, Bytes)
			Encode(dst, c.src, c.r)
			require.Equal(t, c.exp, dst[0])
			back := make([]float32, Values)
			Decode(back, dst)
			if c.exp == 255 {
				for _, v := range back {
					require.True(t, v != v)
				}
				require.True(t, Dot(dst, make([]byte, Bytes)) != Dot(dst, make([]byte, Bytes)))
				return
			}
			for j, want := range c.want {
				require.Equal(t, want, int8(dst[1+j]))
				require.Equal(t, float32(math.Ldexp(float64(want), int(c.exp)-133)), back[j])
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, wide := range []bool{false, true} {
		block, enc, dec := Values, Encode, Decode
		if wide {
			block, enc, dec = WideValues, EncodeWide, DecodeWide
		}
		src := make([]float32, 40*block)
		for i := range src {
			src[i] = float32(rng.NormFloat64() * math.Pow(2, float64(rng.IntN(40)-20)))
		}
		raw := make([]byte, 40*(block+1))
		enc(raw, src, NearestEven)
		once := make([]float32, len(src))
		dec(once, raw)
		for b := 0; b < len(src); b += block {
			var most float64
			for _, v := range src[b : b+block] {
				most = max(most, math.Abs(float64(v)))
			}
			for i := b; i < b+block; i++ {
				require.LessOrEqual(t, math.Abs(float64(once[i]-src[i])), most/64)
			}
		}
		// What the format holds converts exactly, unless rounding up has left room in the exponent, so a second pass in either mode is the identity on values.
		again := make([]float32, len(src))
		for _, r := range []Rounding{NearestEven, Floor} {
			enc(raw, once, r)
			dec(again, raw)
			require.Equal(t, once, again)
		}
	}
}

func TestDotIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 2000 {
		a, b := make([]byte, Bytes), make([]byte, Bytes)
		for i := range a {
			a[i], b[i] = byte(rng.Uint32()), byte(rng.Uint32())
		}
		a[0], b[0] = byte(rng.IntN(255)), byte(rng.IntN(255))
		sum := new(big.Float).SetPrec(1000)
		for i := 1; i < Bytes; i++ {
			p := big.NewFloat(float64(int8(a[i])) * float64(int8(b[i])))
			sum.Add(sum, p.SetMantExp(p, int(a[0])+int(b[0])-266))
		}
		want, _ := sum.Float32()
		require.Equal(t, want, Dot(a, b))
	}
}

func TestWrongLengthsPanic(t *testing.T) {
	require.Panics(t, func() { Encode(make([]byte, 9), make([]float32, 7), Floor) })
	require.Panics(t, func() { Decode(make([]float32, 8), make([]byte, 8)) })
}

func FuzzEncode(f *testing.F) {
	f.Add(uint32(0x3F800000), uint32(0x7F7FFFFF), byte(0))
	f.Add(uint32(0xFF800000), uint32(1), byte(1))
	f.Fuzz(func(t *testing.T, x, y uint32, mode byte) {
		src := make([]float32, 8)
		src[0], src[5] = math.Float32frombits(x), math.Float32frombits(y)
		dst := make([]byte, Bytes)
		Encode(dst, src, Rounding(mode&1))
		back := make([]float32, 8)
		Decode(back, dst)
		for i, v := range src {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				require.True(t, back[i] != back[i])
			}
		}
	})
}
