package tensor_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/x448/float16"

	"github.com/tessera-go/tessera/tensor"
)

// TestF16Widen compares all 2^16 halves with x448/float16.
func TestF16Widen(t *testing.T) {
	for h := range 1 << 16 {
		got, want := tensor.F16ToF32(uint16(h)), float16.Frombits(uint16(h)).Float32()
		if math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
			t.Fatalf("%04x widens to %x, %x is right", h, math.Float32bits(got), math.Float32bits(want))
		}
		if got != got && math.Signbit(float64(got)) != (h>>15 == 1) {
			t.Fatalf("%04x loses the sign of its NaN", h)
		}
	}
}

// TestF16RoundTrip: every half but NaN narrows to itself; NaN stays NaN.
func TestF16RoundTrip(t *testing.T) {
	for h := range 1 << 16 {
		back := tensor.F32ToF16(tensor.F16ToF32(uint16(h)))
		if h&0x7fff > 0x7c00 {
			require.Greater(t, back&0x7fff, uint16(0x7c00))
			require.Equal(t, h>>15, int(back>>15))
			continue
		}
		if int(back) != h {
			t.Fatalf("%04x comes back as %04x", h, back)
		}
	}
}

// checkF16 compares one narrowing with x448/float16, and NaN with NaN.
func checkF16(t *testing.T, bits uint32) {
	f := math.Float32frombits(bits)
	got, want := tensor.F32ToF16(f), float16.Fromfloat32(f).Bits()
	if f != f {
		if got&0x7fff <= 0x7c00 {
			t.Fatalf("NaN %08x narrows to %04x", bits, got)
		}
		return
	}
	if got != want {
		t.Fatalf("%08x (%g) narrows to %04x, %04x is right", bits, f, got, want)
	}
}

// TestF16Ties takes the midpoint between every two neighbouring halves, and the numbers on either side of it.
func TestF16Ties(t *testing.T) {
	for h := range 0x7c00 {
		low := float64(tensor.F16ToF32(uint16(h)))
		high := 65536.0
		if h+1 < 0x7c00 {
			high = float64(tensor.F16ToF32(uint16(h + 1)))
		}
		tie := math.Float32bits(float32((low + high) / 2)) // exact: one more bit than a half has
		for d := -2; d <= 2; d++ {
			bits := tie + uint32(d)
			checkF16(t, bits)
			checkF16(t, bits|1<<31)
		}
		even := uint16(h)
		if h&1 == 1 {
			even++
		}
		if got := tensor.F32ToF16(math.Float32frombits(tie)); got != even {
			t.Fatalf("the tie above %04x goes to %04x, the even %04x is right", h, got, even)
		}
	}
}

// TestF16Sampled takes numbers of every exponent with random fractions.
func TestF16Sampled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	n := 2000
	if testing.Short() {
		n = 200
	}
	for e := range uint32(512) { // sign and exponent
		for range n {
			checkF16(t, e<<23|r.Uint32()&0x7fffff)
		}
		checkF16(t, e<<23)
		checkF16(t, e<<23|0x7fffff)
	}
}

// roundBF16 rounds by comparing distances in float64, where all numbers involved are exact.
func roundBF16(f float32) uint16 {
	low := uint16(math.Float32bits(f) >> 16) // toward zero
	if float64(tensor.BF16ToF32(low)) == float64(f) {
		return low
	}
	a := float64(tensor.BF16ToF32(low))
	b := float64(tensor.BF16ToF32(low + 1))
	if math.IsInf(b, 0) {
		b = math.Copysign(math.Ldexp(1, 128), b)
	}
	da, db := math.Abs(float64(f)-a), math.Abs(b-float64(f))
	if da < db || da == db && low&1 == 0 {
		return low
	}
	return low + 1
}

// TestBF16: every bfloat16 widens to its bits and comes back; every tie and its neighbours round as distances say; and the cases of
// public bug reports (tt-metal 19882, groonga 2961, BFloat16s.jl 125).
func TestBF16(t *testing.T) {
	for h := range 1 << 16 {
		f := tensor.BF16ToF32(uint16(h))
		require.Equal(t, uint32(h)<<16, math.Float32bits(f))
		back := tensor.F32ToBF16(f)
		if f != f {
			require.True(t, tensor.BF16ToF32(back) != tensor.BF16ToF32(back), "%04x", h)
			require.Equal(t, h>>15, int(back>>15))
			continue
		}
		if int(back) != h {
			t.Fatalf("%04x comes back as %04x", h, back)
		}
		if h&0x7fff < 0x7f80 {
			for _, low := range []uint32{1, 0x7fff, 0x8000, 0x8001, 0xffff} {
				f := math.Float32frombits(uint32(h)<<16 | low)
				if got, want := tensor.F32ToBF16(f), roundBF16(f); got != want {
					t.Fatalf("%08x narrows to %04x, %04x is right", math.Float32bits(f), got, want)
				}
			}
		}
	}
	for in, want := range map[uint32]uint16{
		0x3f808000: 0x3f80, 0x3f808001: 0x3f81, 0x3f818000: 0x3f82, 0x4048f5c3: 0x4049, 0x322bcc77: 0x322c, 0x7f7fffff: 0x7f80,
		0x7f800001: 0x7fc0, 0xff800001: 0xffc0, 0x00400000: 0x0040, 0x00010000: 0x0001, 0x00008000: 0x0000,
	} {
		require.Equal(t, want, tensor.F32ToBF16(math.Float32frombits(in)), "%08x", in)
	}
}

// TestBulkEqualsSingle: conversions of slices are those of elements, at every length around vectors.
func TestBulkEqualsSingle(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 70 {
		f, h := make([]float32, n), make([]uint16, n)
		for i := range f {
			f[i], h[i] = math.Float32frombits(r.Uint32()), uint16(r.Uint32())
		}
		check := func(name string, bulk func(dst []uint16), one func(float32) uint16) {
			dst := make([]uint16, n+1)
			dst[n] = 0xabcd
			bulk(dst[:n])
			for i := range f {
				require.Equal(t, one(f[i]), dst[i], "%s of %x", name, math.Float32bits(f[i]))
			}
			require.Equal(t, uint16(0xabcd), dst[n])
		}
		check("f16", func(d []uint16) { tensor.F32sToF16(d, f) }, tensor.F32ToF16)
		check("bf16", func(d []uint16) { tensor.F32sToBF16(d, f) }, tensor.F32ToBF16)
		back := func(name string, bulk func(dst []float32), one func(uint16) float32) {
			dst := make([]float32, n)
			bulk(dst)
			for i := range h {
				require.Equal(t, math.Float32bits(one(h[i])), math.Float32bits(dst[i]), "%s of %04x", name, h[i])
			}
		}
		back("f16", func(d []float32) { tensor.F16sToF32(d, h) }, tensor.F16ToF32)
		back("bf16", func(d []float32) { tensor.BF16sToF32(d, h) }, tensor.BF16ToF32)
	}
}

// TestNarrowFromFloat64: SetFloats rounds a float64 once, not first to float32 and then again.
func TestNarrowFromFloat64(t *testing.T) {
	half, brain := tensor.New(tensor.F16, 1), tensor.New(tensor.BF16, 1)
	for h := 1; h < 0x7bff; h += 7 {
		low, high := float64(tensor.F16ToF32(uint16(h))), float64(tensor.F16ToF32(uint16(h+1)))
		tie := (low + high) / 2
		for _, x := range []struct {
			v    float64
			want uint16
		}{{math.Nextafter(tie, 0), uint16(h)}, {math.Nextafter(tie, high), uint16(h + 1)}} {
			half.SetFloats([]float64{x.v})
			require.Equal(t, x.want, tensor.Data[uint16](half)[0], "%g near the tie %g", x.v, tie)
			half.SetFloats([]float64{-x.v})
			require.Equal(t, x.want|0x8000, tensor.Data[uint16](half)[0])
		}
	}
	for _, h := range []uint16{0x3f80, 0x3f81, 0x0001, 0x007f, 0x7f00} {
		tie := (float64(tensor.BF16ToF32(h)) + float64(tensor.BF16ToF32(h+1))) / 2
		brain.SetFloats([]float64{math.Nextafter(tie, 0)})
		require.Equal(t, h, tensor.Data[uint16](brain)[0])
		brain.SetFloats([]float64{math.Nextafter(tie, 1e39)})
		require.Equal(t, h+1, tensor.Data[uint16](brain)[0])
	}
}
