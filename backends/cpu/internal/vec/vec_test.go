package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// each runs a test on every set of this processor, the portable one included.
func each(t *testing.T, f func(t *testing.T, v *Funcs)) {
	for _, isa := range cpuinfo.Get().ISAs {
		v := For(isa)
		if v.ISA != isa {
			continue // a level that adds nothing here
		}
		t.Run(isa.String(), func(t *testing.T) { f(t, v) })
	}
}

func random(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// guarded returns n numbers between sentinels, at an offset that shifts with the length; check tells whether the sentinels live.
func guarded(n int) (x []float32, check func() bool) {
	const edge = 40
	buf := make([]float32, n+2*edge)
	for i := range buf {
		buf[i] = 12345
	}
	off := edge + n%5
	return buf[off : off+n], func() bool {
		for i, v := range buf {
			if (i < off || i >= off+n) && v != 12345 {
				return false
			}
		}
		return true
	}
}

// TestArithmetic compares the functions of rounded arithmetic with their Go twins bit for bit, at every length, in place and not.
func TestArithmetic(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(1, 1))
		for n := range 150 {
			a, b := random(r, n), random(r, n)
			for i := range a {
				switch r.IntN(12) {
				case 0:
					a[i] = float32(math.NaN())
				case 1:
					b[i] = float32(math.NaN())
				case 2:
					a[i] = float32(math.Inf(1 - 2*r.IntN(2)))
				case 3:
					a[i] = b[i]
				}
			}
			for name, f := range map[string][2]func(dst, a, b []float32){
				"add": {v.Add, addGo}, "sub": {v.Sub, subGo}, "mul": {v.Mul, mulGo}, "div": {v.Div, divGo}, "max": {v.Max, maxGo}, "min": {v.Min, minGo},
				"scale":   {func(d, a, _ []float32) { v.Scale(d, a, 1.25, -3) }, func(d, a, _ []float32) { scaleGo(d, a, 1.25, -3) }},
				"mul row": {func(d, a, b []float32) { v.MulRow(d, a, b, 0.3) }, func(d, a, b []float32) { mulRowGo(d, a, b, 0.3) }},
			} {
				want := make([]float32, n)
				f[1](want, a, b)
				got, intact := guarded(n)
				f[0](got, a, b)
				require.True(t, sameBits(want, got), "%s of %d", name, n)
				require.True(t, intact(), "%s of %d wrote beyond", name, n)
				inPlace := append([]float32{}, a...)
				f[0](inPlace, inPlace, b)
				require.True(t, sameBits(want, inPlace), "%s of %d in place", name, n)
				if name != "scale" {
					inPlace = append([]float32{}, b...)
					f[0](inPlace, a, inPlace)
					require.True(t, sameBits(want, inPlace), "%s of %d in place of b", name, n)
				}
			}
		}
	})
}

// sameBits reports equal bits, any NaN being equal to any.
func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) && !(a[i] == 0 && b[i] == 0) {
			return false
		}
	}
	return len(a) == len(b)
}

// ulps returns the distance of got from want in units of the last place of want.
func ulps(got float32, want float64) float64 {
	if float64(got) == want || got != got && want != want {
		return 0
	}
	w := float32(want)
	if math.IsInf(float64(w), 0) || w != w {
		return math.Inf(1)
	}
	_, e := math.Frexp(float64(w))
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// TestExp bounds the error over the whole range: 2 units where the result is normal, 1 in 2^-149 below.
func TestExp(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		var x []float32
		for f := -103.9; f < 88.72; f += 0.011 {
			x = append(x, float32(f))
		}
		for e := -40; e < 6; e++ {
			x = append(x, float32(math.Ldexp(1.37, e)), float32(math.Ldexp(-1.37, e)))
		}
		got, intact := guarded(len(x))
		v.Exp(got, x)
		require.True(t, intact())
		for i := range x {
			require.LessOrEqual(t, ulps(got[i], math.Exp(float64(x[i]))), 2.0, "exp(%g) = %g", x[i], got[i])
		}
		inf := float32(math.Inf(1))
		special := []float32{inf, -inf, float32(math.NaN()), 0, 89, -105, 1e30, -1e30}
		v.Exp(special, special)
		require.Equal(t, []float32{inf, 0}, special[:2])
		require.True(t, special[2] != special[2])
		require.Equal(t, []float32{1, inf, 0, inf, 0}, special[3:])
	})
}

func TestTanh(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		for f := -12.0; f < 12; f += 0.0011 {
			x := []float32{float32(f)}
			got := []float32{0}
			v.Tanh(got, x)
			require.LessOrEqual(t, ulps(got[0], math.Tanh(float64(x[0]))), 4.0, "tanh(%g)", x[0])
		}
	})
}

// TestSums bounds sums by their terms, at every length around vectors and chunks.
func TestSums(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(2, 2))
		lengths := []int{4095, 4096, 4097, 10000}
		for n := range 200 {
			lengths = append(lengths, n)
		}
		for _, n := range lengths {
			a, b := random(r, n), random(r, n)
			var sum, sq, dot, abs, absDot float64
			top := math.Inf(-1)
			for i := range a {
				x, y := float64(a[i]), float64(b[i])
				sum, sq, dot = sum+x, sq+x*x, dot+x*y
				abs, absDot, top = abs+math.Abs(x), absDot+math.Abs(x*y), max(top, x)
			}
			require.InDelta(t, sum, v.Sum(a), 1e-6*abs+1e-30, "sum of %d", n)
			require.InDelta(t, sq, v.SumSq(a), 1e-6*sq+1e-30, "squares of %d", n)
			require.InDelta(t, dot, v.Dot(a, b), 1e-6*absDot+1e-30, "dot of %d", n)
			require.Equal(t, top, float64(v.MaxOf(a)), "max of %d", n)
			var want float64
			for _, x := range a {
				want += math.Exp(float64(x) - 1.5)
			}
			dst, intact := guarded(n)
			require.InDelta(t, want, v.ExpSub(dst, a, 1.5), 2e-6*want+1e-30, "exp sum of %d", n)
			require.True(t, intact())
			for i := range dst {
				require.InEpsilon(t, math.Exp(float64(a[i]-1.5)), dst[i], 1e-6)
			}
			if n > 0 {
				a[r.IntN(n)] = float32(math.NaN())
				require.True(t, math.IsNaN(float64(v.MaxOf(a))), "NaN wins in %d", n)
				require.True(t, math.IsNaN(float64(v.Sum(a))))
			}
		}
		none := []float32{3, 4}
		require.Zero(t, v.ExpSub(none, none, float32(math.Inf(-1))))
		require.Equal(t, []float32{0, 0}, none)
		require.Equal(t, float32(-1), v.MaxOf([]float32{-3, -1, -2}))
	})
}

// TestSumsDependOnLengthAlone: not on where the data lie.
func TestSumsDependOnLengthAlone(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(3, 3))
		buf, a := make([]float32, 1100), random(r, 1000)
		var first [3]float32
		for off := range 17 {
			x := buf[off : off+1000]
			copy(x, a)
			got := [3]float32{v.Sum(x), v.SumSq(x), v.Dot(x, x)}
			if off == 0 {
				first = got
			}
			require.Equal(t, first, got)
		}
	})
}

func TestRotations(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(4, 4))
		for n := range 80 {
			x, y, c, s := random(r, n), random(r, n), random(r, n), random(r, n)
			gx, ix := guarded(n)
			gy, iy := guarded(n)
			copy(gx, x)
			copy(gy, y)
			v.Rotate(gx, gy, c, s)
			pairs, ip := guarded(2 * n)
			for i := range n {
				pairs[2*i], pairs[2*i+1] = x[i], y[i]
			}
			v.RotatePairs(pairs, c, s)
			require.True(t, ix() && iy() && ip(), "%d", n)
			for i := range n {
				wx, wy := float64(x[i])*float64(c[i])-float64(y[i])*float64(s[i]), float64(x[i])*float64(s[i])+float64(y[i])*float64(c[i])
				size := math.Abs(float64(x[i])) + math.Abs(float64(y[i])) + 1
				for _, g := range [][2]float32{{gx[i], gy[i]}, {pairs[2*i], pairs[2*i+1]}} {
					require.InDelta(t, wx, g[0], 1e-6*size*4, "%d of %d", i, n)
					require.InDelta(t, wy, g[1], 1e-6*size*4, "%d of %d", i, n)
				}
			}
		}
	})
}

// TestScores compares products and weighted sums of rows with float64, for every number of rows and elements around vectors.
func TestScores(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(5, 5))
		for n := range 11 {
			for _, d := range []int{0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 80, 127, 128, 130} {
				stride := d + n%3
				q, k, w := random(r, d), random(r, max(0, (n-1)*stride+d)), random(r, n)
				dst, ok := guarded(n)
				v.Dots(dst, q, k, stride)
				acc, ok2 := guarded(d)
				start := random(r, d)
				copy(acc, start)
				v.Weigh(acc, w, k, stride)
				require.True(t, ok() && ok2(), "%d rows of %d", n, d)
				for j := range n {
					want, abs := 0.0, 0.0
					for l := range d {
						p := float64(q[l]) * float64(k[j*stride+l])
						want, abs = want+p, abs+math.Abs(p)
					}
					require.InDelta(t, want, dst[j], 1e-6*abs+1e-30, "row %d of %d, %d elements", j, n, d)
					if d > 0 {
						one := []float32{0}
						v.Dots(one, q, k[j*stride:], stride)
						require.Equal(t, one[0], dst[j], "a row alone has the bits of a row among others")
					}
				}
				for l := range d {
					want, abs := float64(start[l]), math.Abs(float64(start[l]))
					for j := range n {
						p := float64(w[j]) * float64(k[j*stride+l])
						want, abs = want+p, abs+math.Abs(p)
					}
					require.InDelta(t, want, acc[l], 1e-6*abs+1e-30, "element %d of %d, %d rows", l, d, n)
				}
			}
		}
		require.Panics(t, func() { v.Dots(make([]float32, 3), make([]float32, 4), make([]float32, 11), 4) })
		require.Panics(t, func() { v.Weigh(make([]float32, 4), make([]float32, 3), make([]float32, 11), 4) })
	})
}

// TestScoresOfHalves: rows of 16-bit elements give the bits that the same rows give as float32.
func TestScoresOfHalves(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(7, 7))
		for n := range 11 {
			for _, d := range []int{0, 16, 32, 48, 64, 80, 128, 144} {
				stride := d + n%3
				size := max(0, (n-1)*stride+d)
				for _, c := range []struct {
					name   string
					widen  func(dst []float32, src []uint16)
					narrow func(dst []uint16, src []float32)
					dots   func(dst, q []float32, k []uint16, stride int)
					weigh  func(acc, w []float32, v []uint16, stride int)
				}{
					{"f16", v.FromF16, v.ToF16, v.DotsF16, v.WeighF16}, {"bf16", v.FromBF16, v.ToBF16, v.DotsBF16, v.WeighBF16},
				} {
					rows, wide, q, w, acc := make([]uint16, size), make([]float32, size), random(r, d), random(r, n), random(r, d)
					c.narrow(rows, random(r, size))
					c.widen(wide, rows)
					dst, ok := guarded(n)
					c.dots(dst, q, rows, stride)
					want := make([]float32, n)
					v.Dots(want, q, wide, stride)
					require.Equal(t, want, dst, "%s: %d rows of %d", c.name, n, d)
					sum, ok2 := guarded(d)
					copy(sum, acc)
					c.weigh(sum, w, rows, stride)
					v.Weigh(acc, w, wide, stride)
					require.Equal(t, acc, sum, "%s: %d rows of %d", c.name, n, d)
					require.True(t, ok() && ok2(), "%s: %d rows of %d", c.name, n, d)
				}
			}
		}
		require.Panics(t, func() { v.DotsF16(make([]float32, 3), make([]float32, 16), make([]uint16, 47), 16) })
		require.Panics(t, func() { v.WeighBF16(make([]float32, 16), make([]float32, 3), make([]uint16, 47), 16) })
		require.Panics(t, func() { v.DotsBF16(make([]float32, 1), make([]float32, 8), make([]uint16, 8), 8) })
	})
}

// TestSetsAreWhole: no set lacks a function, but those that may be nil.
func TestSetsAreWhole(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		set := reflect.ValueOf(v).Elem()
		for i := range set.NumField() {
			switch set.Type().Field(i).Name {
			case "MaxU8", "MaxS8", "multiplyBytes":
				require.Equal(t, v.ByteSums, !set.Field(i).IsNil())
				continue
			}
			require.False(t, set.Field(i).Kind() == reflect.Func && set.Field(i).IsNil(), "%s", set.Type().Field(i).Name)
		}
	})
}

// TestHalves: all halves widen, and ties and random numbers narrow, as package tensor defines it.
func TestHalves(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		src := make([]uint16, 1<<16+3)
		for i := range src {
			src[i] = uint16(i)
		}
		dst := make([]float32, len(src))
		for name, f := range map[string][2]any{"f16": {v.FromF16, tensor.F16ToF32}, "bf16": {v.FromBF16, tensor.BF16ToF32}} {
			f[0].(func([]float32, []uint16))(dst, src)
			for i, h := range src {
				require.Equal(t, math.Float32bits(f[1].(func(uint16) float32)(h)), math.Float32bits(dst[i]), "%s %04x", name, h)
			}
		}
		r := rand.New(rand.NewPCG(6, 6))
		wide := make([]float32, 20003)
		for i := range wide {
			bits := r.Uint32()
			if i%3 == 0 { // ties of bf16 and of f16, and their neighbours
				bits = bits&0xffffe000 | 0x1000 + uint32(i/3%3) - 1
			}
			if i%5 == 0 {
				bits = bits&0xffff0000 | 0x8000
			}
			wide[i] = math.Float32frombits(bits)
		}
		narrow := make([]uint16, len(wide))
		for name, f := range map[string][2]any{"f16": {v.ToF16, tensor.F32ToF16}, "bf16": {v.ToBF16, tensor.F32ToBF16}} {
			f[0].(func([]uint16, []float32))(narrow, wide)
			for i, x := range wide {
				require.Equal(t, f[1].(func(float32) uint16)(x), narrow[i], "%s of %08x", name, math.Float32bits(x))
			}
		}
	})
}

// TestBlocks: blocks widen as package quant defines it, the last byte included.
func TestBlocks(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(8, 8))
		for n := range 9 {
			src := make([]byte, 34*n)
			for i := range src {
				src[i] = byte(r.Uint32())
				if i%34 == 1 {
					src[i] &= 0xbb // a finite scale
				}
			}
			dst, intact := guarded(32 * n)
			v.FromQ8_0(dst, src)
			want := make([]float32, 32*n)
			require.NoError(t, quant.DecodeRow(tensor.Q8_0, want, src))
			require.Equal(t, want, dst)
			require.True(t, intact())
		}
		require.Panics(t, func() { v.FromQ8_0(make([]float32, 32), make([]byte, 33)) })
		require.Panics(t, func() { v.ToQ8_0(make([]byte, 33), make([]float32, 32)) })

		// Ties, both signs, and scales over all of half precision are encoded; where it stops there is something odd.
		for round := range 200 {
			src := make([]float32, 32*9)
			scale := float32(math.Ldexp(1, round%39-24))
			for i := range src {
				src[i] = float32(r.NormFloat64()) * scale
				if round%3 == 0 {
					src[i] = float32(r.IntN(255)-127) * scale / 2
				}
			}
			for i := range 9 {
				src[32*i] = 127 * scale // so that halves are ties
			}
			odd := 9
			if round%5 == 0 {
				odd = r.IntN(9)
				src[32*odd+r.IntN(32)] = []float32{float32(math.NaN()), float32(math.Inf(-1)), 3e38}[r.IntN(3)]
			}
			dst := make([]byte, 34*9+1)
			dst[34*9] = 77
			n := v.ToQ8_0(dst, src)
			require.Equal(t, odd, n)
			want := make([]byte, 34*n)
			require.NoError(t, quant.EncodeRow(tensor.Q8_0, want, src[:32*n]))
			require.Equal(t, want, dst[:34*n])
			require.Equal(t, byte(77), dst[34*9])
		}
	})
}

func TestAxpy(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(7, 7))
		for n := range 100 {
			a, b := random(r, n), random(r, n)
			dst, intact := guarded(n)
			copy(dst, a)
			v.Axpy(dst, b, 0.7)
			require.True(t, intact())
			for i := range dst {
				require.InDelta(t, float64(a[i])+float64(float32(0.7))*float64(b[i]), dst[i], 1e-6)
			}
		}
	})
}

// TestShortSourcesPanic: a source that is shorter than the destination is a bug of the caller, never a read beyond it.
func TestShortSourcesPanic(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		long := make([]float32, 20)
		for _, f := range []func(){
			func() { v.Add(long, long[:19:19], long) }, func() { v.Mul(long, long, long[:19:19]) }, func() { v.Scale(long, long[:19:19], 1, 0) },
			func() { v.Exp(long, long[:19:19]) }, func() { v.Dot(long, long[:19:19]) }, func() { v.Rotate(long, long, long[:19:19], long) },
			func() { v.ToBF16(make([]uint16, 19), long) },
		} {
			require.Panics(t, f)
		}
	})
}

func BenchmarkFuncs(b *testing.B) {
	const n = 4096
	x, y, z := random(rand.New(rand.NewPCG(1, 1)), n), random(rand.New(rand.NewPCG(2, 1)), n), make([]float32, n)
	h := make([]uint16, n)
	for _, isa := range cpuinfo.Get().ISAs {
		v := For(isa)
		if v.ISA != isa {
			continue
		}
		for _, c := range []struct {
			name string
			f    func()
		}{
			{"add", func() { v.Add(z, x, y) }}, {"scale", func() { v.Scale(z, x, 2, 1) }}, {"exp", func() { v.Exp(z, x) }},
			{"expsub", func() { v.ExpSub(z, x, 3) }}, {"dot", func() { v.Dot(x, y) }}, {"sumsq", func() { v.SumSq(x) }}, {"maxof", func() { v.MaxOf(x) }},
			{"to_bf16", func() { v.ToBF16(h, x) }}, {"from_f16", func() { v.FromF16(z, h) }}, {"rotate_pairs", func() { v.RotatePairs(z, x[:n/2], y[:n/2]) }},
			{"dots64", func() { v.Dots(z[:n/64], x[:64], y, 64) }}, {"weigh64", func() { v.Weigh(z[:64], x[:n/64], y, 64) }},
		} {
			b.Run(fmt.Sprintf("%s/%v", c.name, isa), func(b *testing.B) {
				for b.Loop() {
					c.f()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/elem")
			})
		}
	}
}

// Sums of quantized bytes have the bits of their definition for every pair of bytes, signs, scales at the ends, and lengths around whole blocks, before and
// after Prepare, which lets usual scales do without divisions, and others not.
func TestAddBytes(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		r := rand.New(rand.NewPCG(3, 8))
		inf := float32(math.Inf(1))
		a, b := make([]byte, 1<<16), make([]byte, 1<<16)
		for i := range a {
			a[i], b[i] = byte(i>>8), byte(i)
		}
		for round, scales := range [][3]float32{{0.05, 0.04, 0.05}, {1, 1, 2}, {0.031, 0.07, 0.05}, {1e-30, 1e30, 1e-3}, {1, 1, 1e-38}, {1, -1, 1}, {0, 0, 0}, {inf, 1, 1}, {1, 1, inf}, {3e38, 3e38, 1},
			{0.02, 0.03, 0.1}, {0.3, 0.7, 0.1}, {1.0 / 3, 1.0 / 7, 1.0 / 11}, {0.0173412, 0.0418833, 0.0379121}, {0.5, 0.25, 0.125}, {0.05, 0.04, 8388607.0 / (1 << 28)}} {
			for signs := range 8 {
				s := &ByteSum{ScaleA: scales[0], ScaleB: scales[1], ScaleY: scales[2], SignedA: signs&1 > 0, SignedB: signs&2 > 0, Lo: -128, Hi: 127}
				zero := func(signed bool) int32 {
					if signed {
						return r.Int32N(256) - 128
					}
					return r.Int32N(256)
				}
				s.ZeroA, s.ZeroB, s.ZeroY = zero(s.SignedA), zero(s.SignedB), zero(signs&4 > 0)
				if signs&4 == 0 {
					s.Lo, s.Hi = 0, 255
				}
				if round%2 == 1 { // a Relu between
					s.Lo = s.ZeroY
				}
				want, got := make([]byte, len(a)), make([]byte, len(a))
				addBytesGo(want, a, b, s)
				for range 2 {
					v.AddBytes(got, a, b, s)
					require.Equal(t, want, got, "%+v", s)
					for n := range 100 {
						at := r.IntN(len(a) - n)
						clear(got)
						v.AddBytes(got[:n], a[at:at+n], b[at:at+n], s)
						require.Equal(t, want[at:at+n], got[:n])
						require.Zero(t, got[n])
					}
					v.Prepare(s)
				}
				if v.multiplyBytes != nil {
					switch x := s.ScaleY; {
					case x == 1e-38 || x == 0 || s.ScaleA == 3e38:
						require.Nil(t, s.product, "%+v", s)
					case s.ScaleA < 2 && s.ScaleB < 2:
						require.NotNil(t, s.product, "%+v", s)
					}
				}
			}
		}
	})
}

// Kernels of byte sums touch no byte behind their operands, which end where a page does that is followed by one that cannot be read.
func TestAddBytesAtGuards(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		const most = 130
		var ends [3][]byte
		for i := range ends {
			data, release, err := mem.Guarded(most)
			require.NoError(t, err)
			defer release()
			ends[i] = data
		}
		s := &ByteSum{ScaleA: 0.04, ScaleB: 0.03, ScaleY: 0.05, ZeroB: 3, Hi: 255}
		for range 2 {
			for n := range most + 1 {
				dst, a, b := ends[0][most-n:], ends[1][most-n:], ends[2][most-n:]
				for i := range a {
					a[i], b[i] = byte(31*i), byte(57*i+n)
				}
				want := make([]byte, n)
				addBytesGo(want, a, b, s)
				v.AddBytes(dst, a, b, s)
				require.Equal(t, want, append([]byte{}, dst...))
			}
			v.Prepare(s)
		}
	})
}

// Numbers become the bytes of their definition: ties, ends, no numbers, and lengths around whole blocks at the end of a page.
func TestQuantize(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		const most = 200
		dst, release, err := mem.Guarded(most)
		require.NoError(t, err)
		defer release()
		numbers, release2, err := mem.Guarded(4 * most)
		require.NoError(t, err)
		defer release2()
		x := unsafe.Slice((*float32)(unsafe.Pointer(&numbers[0])), most)
		r := rand.New(rand.NewPCG(2, 5))
		odd := []float32{0, float32(math.Copysign(0, -1)), 0.5, -0.5, 1.5, 2.5, -2.5, 1e-45, 1e9, -1e9, 3e38, -3e38, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
		for _, s := range []ByteSum{{ScaleY: 1, Hi: 255}, {ScaleY: 1, ZeroY: 114, Hi: 255}, {ScaleY: 0.02, ZeroY: 114, Hi: 255}, {ScaleY: 0.1, ZeroY: -128, Lo: -128, Hi: 127},
			{ScaleY: 1.0 / 3, ZeroY: 127, Lo: -128, Hi: 127}, {ScaleY: 0.05, ZeroY: 3, Lo: 3, Hi: 255}, {Hi: 255}, {ScaleY: 1e-40, Lo: -128, Hi: 127}} {
			for n := range most + 1 {
				for i := range x {
					if x[i] = float32(r.NormFloat64()*100) * s.ScaleY; r.IntN(4) == 0 {
						x[i] = odd[r.IntN(len(odd))]
					}
				}
				want := make([]byte, n)
				quantizeGo(want, x[most-n:], &s)
				before := slices.Clone(dst[:most-n])
				v.Quantize(dst[most-n:], x[most-n:], &s)
				require.Equal(t, want, slices.Clone(dst[most-n:]), "%+v", s)
				require.Equal(t, before, slices.Clone(dst[:most-n]))
			}
		}
	})
}

// The greater of two bytes, of all lengths around whole blocks, at the end of a page, in place or not.
func TestMaxBytes(t *testing.T) {
	each(t, func(t *testing.T, v *Funcs) {
		if v.MaxU8 == nil {
			require.Nil(t, v.MaxS8)
			return
		}
		const most = 300
		var ends [3][]byte
		for i := range ends {
			data, release, err := mem.Guarded(most)
			require.NoError(t, err)
			defer release()
			ends[i] = data
		}
		r := rand.New(rand.NewPCG(1, 5))
		for n := range most + 1 {
			for _, signed := range []bool{false, true} {
				dst, a, b := ends[0][most-n:], ends[1][most-n:], ends[2][most-n:]
				want := make([]byte, n)
				for i := range want {
					dst[i], a[i], b[i] = 0, byte(r.Uint32()), byte(r.Uint32())
					if want[i] = max(a[i], b[i]); signed {
						want[i] = byte(max(int8(a[i]), int8(b[i])))
					}
				}
				f := v.MaxU8
				if signed {
					f = v.MaxS8
				}
				before := slices.Clone(ends[0][:most-n])
				f(dst, a, b)
				require.Equal(t, want, slices.Clone(dst))
				f(a, a, b)
				require.Equal(t, want, slices.Clone(a))
				require.Equal(t, before, slices.Clone(ends[0][:most-n]))
			}
		}
	})
}

func BenchmarkAddBytes(b *testing.B) {
	v := For(slices.Max(cpuinfo.Get().ISAs))
	for _, name := range []string{"division", "product"} {
		b.Run(name, func(b *testing.B) {
			s := &ByteSum{ScaleA: 0.04, ScaleB: 0.05, ScaleY: 0.05, Hi: 255}
			if name == "product" {
				v.Prepare(s)
			}
			x, y, z := make([]byte, 1<<14), make([]byte, 1<<14), make([]byte, 1<<14)
			b.SetBytes(1 << 14)
			for b.Loop() {
				v.AddBytes(x, y, z, s)
			}
		})
	}
}
