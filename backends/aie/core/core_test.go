package core

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The published cycles of the seed (data/paper/points.json, "versal").
func TestSeedMicroKernelCycles(t *testing.T) {
	k := KernelInt16
	require.Equal(t, 212, k.Streamed(64, true, 2))
	require.Equal(t, 596, k.Streamed(256, true, 2))
	require.InEpsilon(t, 1429, KernelInt16Wide.Streamed(256, true, 2), 0.02)
	for kc, percent := range map[int]float64{64: 60, 128: 75.3, 256: 85.9, 290: 87.6} {
		got := 100 * k.Type.Efficiency(float64(k.MR*k.NR*kc), float64(k.Streamed(kc, true, 2)))
		require.InDelta(t, percent, got, 0.5, "k_c %d", kc)
	}
	require.InDelta(t, 27.5, 64.0*256/596, 0.05)
	// A result of four bytes takes as long, over two streams.
	require.Equal(t, k.Streamed(290, true, 2), k.Streamed(290, true, 4))
}

func TestRegisterBudgets(t *testing.T) {
	b := KernelInt16.Budget()
	require.Equal(t, 100.0, b.AccPercent()) // the seed: 100 % of the accumulators,
	require.Equal(t, 75.0, b.VectorPercent())
	require.Zero(t, b.SpillBits) // 75 % of the vector registers,
	w := KernelInt16Wide.Budget()
	require.Equal(t, 200.0, w.AccPercent()) // and spills at 32x4
	require.Equal(t, 125.0, w.VectorPercent())
	require.Equal(t, 512, w.SpillBits)
	for _, typ := range Types() {
		k := KernelFor(typ)
		b := k.Budget()
		require.LessOrEqual(t, b.AccPercent(), 100.0, k)
		require.LessOrEqual(t, b.VectorPercent(), 100.0, k)
		require.Zero(t, b.SpillBits, k)
		require.Equal(t, k.MR*k.NR*k.KU, k.Iteration()*typ.PeakMACs(), k)
		require.Equal(t, k.MACCycles(10*k.KU), 10*k.Iteration())
	}
}

// AMD's tutorial on AIE-ML (XD100): 64x64x64 int8 on a core of twice our rate, micro-tiles of 8x8 in 16 cycles each.
func TestBlockModelAgainstTutorial(t *testing.T) {
	cycles := func(store int) int {
		c := 64 * (16 + Turn)
		if HideShare*store > 16 {
			c += 64 * store
		}
		return c + Fill
	}
	require.InEpsilon(t, 1121, cycles(4), 0.05)
	require.InEpsilon(t, 1750, cycles(8), 0.05)
}

func TestBlockCycles(t *testing.T) {
	// 16 micro-tiles of 128 cycles; stores of sums hide.
	require.Equal(t, Fill+16*(128+Turn), KernelInt16.Block(32, 64, 32, Step{}))
	// 8 cycles of stores do not hide behind 16 of multiplications.
	require.Equal(t, Fill+(16+Turn+8), KernelInt8.Block(8, 32, 8, Step{}))
	require.Equal(t, Fill+(64+Turn+16), KernelInt8.Block(8, 128, 8, Step{CascadeIn: true, CascadeOut: true}))
}

func TestSRSAgainstBigRational(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 20000 {
		v := Wrap48(int64(rng.Uint64()) >> rng.IntN(40))
		if rng.IntN(4) == 0 {
			v &^= 1<<rng.IntN(20) - 1 // ties
		}
		shift := uint(rng.IntN(20))
		r := Rounding(rng.IntN(int(numRoundings)))
		want := roundBig(v, shift, r)
		for _, width := range []uint{8, 16, 32} {
			lim := int64(1) << (width - 1)
			require.Equal(t, max(-lim, min(lim-1, want)), SRS(v, shift, r, true, width), "%d >> %d %v", v, shift, r)
			m := want & (1<<width - 1)
			if m >= lim {
				m -= 2 * lim
			}
			require.Equal(t, m, SRS(v, shift, r, false, width), "%d >> %d %v", v, shift, r)
		}
	}
	require.Equal(t, "conv_even", ConvEven.String())
}

// roundBig rounds v / 2^shift from the definition of each mode.
func roundBig(v int64, shift uint, r Rounding) int64 {
	q := new(big.Rat).SetFrac(big.NewInt(v), new(big.Int).Lsh(big.NewInt(1), shift))
	floor := new(big.Int).Div(big.NewInt(v), new(big.Int).Lsh(big.NewInt(1), shift)).Int64()
	frac := new(big.Rat).Sub(q, new(big.Rat).SetInt64(floor))
	half := frac.Cmp(big.NewRat(1, 2))
	switch {
	case frac.Sign() == 0 || r == Floor:
		return floor
	case r == Ceil || half > 0:
		return floor + 1
	case half < 0:
		return floor
	}
	odd := floor&1 != 0
	switch r {
	case PosInf:
		return floor + 1
	case SymInf:
		if v > 0 {
			return floor + 1
		}
	case SymZero:
		if v < 0 {
			return floor + 1
		}
	case ConvEven:
		if odd {
			return floor + 1
		}
	case ConvOdd:
		if !odd {
			return floor + 1
		}
	}
	return floor
}

func TestUPSAndWrap(t *testing.T) {
	require.Equal(t, int64(-1<<47), Wrap48(1<<47))
	require.Equal(t, int64(-8), UPS(-1, 3))
	var a acc
	x := [32]int16{0: -32768, 16: -32768}
	for range 1 << 16 { // 2^17 products of 2^30 reach 2^47, which wraps
		a.mac16(&x, -32768, -32768)
	}
	require.Equal(t, int64(-1<<47), a[0])
	require.Zero(t, a[1])
	require.Equal(t, uint(9), ShiftFor(768, 32767))
	require.Equal(t, uint(0), ShiftFor(1, 32767))
	require.Equal(t, uint(16), ShiftFor(1<<17, 32767))
	require.Equal(t, uint(17), ShiftFor(1<<17, 32768))
	require.Equal(t, uint(0), ShiftFor(0, 100))
}

// acc is an accumulator register: lanes of 48 bits, held sign-extended.
type acc [Lanes]int64

// mac16 is the intrinsic for int16: lane l takes x[l]*z0 + x[16+l]*z1, 32 multiplications in one cycle.
func (a *acc) mac16(x *[32]int16, z0, z1 int16) {
	for l := range a {
		a[l] = Wrap48(a[l] + int64(x[l])*int64(z0) + int64(x[Lanes+l])*int64(z1))
	}
}

// mac8 is the 4x8x4 product for int8, 128 multiplications in one cycle: x is 4 rows of 8 along k, z is 8 rows of 4 along n, and
// lane 4i+j takes row i times column j.
func (a *acc) mac8(x, z *[32]int8) {
	for i := range 4 {
		for j := range 4 {
			s := a[4*i+j]
			for p := range 8 {
				s += int64(x[8*i+p]) * int64(z[4*p+j])
			}
			a[4*i+j] = Wrap48(s)
		}
	}
}

// laneModel computes a call operation by operation with the accumulator registers.
func laneModel(k Kernel, c *Call) (sums []int64) {
	sums = make([]int64, c.M*c.N)
	for jp := 0; jp < c.N/k.NR; jp++ {
		for ip := 0; ip < c.M/k.MR; ip++ {
			at := (jp*(c.M/k.MR) + ip) * k.MR * k.NR
			accs := make([]acc, k.MR*k.NR/Lanes)
			switch k.Type {
			case Int16:
				for p := 0; p < c.KB; p += 2 {
					var z [2][4]int16
					for q := range z {
						for j := range z[q] {
							z[q][j] = int16(binary.LittleEndian.Uint16(c.B[2*(jp*k.NR*c.KB+(p+q)*k.NR+j):]))
						}
					}
					for h := 0; h < k.MR/Lanes; h++ {
						var x [32]int16
						for q := range 2 {
							for l := range Lanes {
								x[Lanes*q+l] = int16(binary.LittleEndian.Uint16(c.A[2*(ip*k.MR*c.KB+(p+q)*k.MR+h*Lanes+l):]))
							}
						}
						for j := range 4 {
							accs[j*k.MR/Lanes+h].mac16(&x, z[0][j], z[1][j])
						}
					}
				}
			case Int8:
				for p := 0; p < c.KB; p += 8 {
					for bi := range 2 {
						for bj := range 2 {
							var x, z [32]int8
							for i := range x {
								x[i] = int8(c.A[ip*k.MR*c.KB+p*8+32*bi+i])
								z[i] = int8(c.B[jp*k.NR*c.KB+p*8+32*bj+i])
							}
							accs[2*bi+bj].mac8(&x, &z)
						}
					}
				}
			}
			for i := range accs {
				copy(sums[at+Lanes*i:], accs[i][:])
			}
		}
	}
	return sums
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
		if rng.IntN(3) == 0 { // extremes
			b[i] = []byte{0x80, 0x7F, 0xFF, 0}[rng.IntN(4)]
		}
	}
	return b
}

func TestRunEqualsLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		k := []Kernel{KernelInt16, KernelInt8, KernelInt16Wide}[rng.IntN(3)]
		m, kb, n := k.MR*(1+rng.IntN(3)), k.KS*(1+rng.IntN(20)), k.NR*(1+rng.IntN(3))
		e := k.Type.Bytes()
		a, b := randomBytes(rng, m*2*kb*e), randomBytes(rng, n*2*kb*e)
		c1 := Call{M: m, KB: kb, N: n, A: a[:m*kb*e], B: b[:n*kb*e], Step: Step{First: true, Out: S32}, Partial: make([]byte, m*n*6)}
		c2 := Call{M: m, KB: kb, N: n, A: a[m*kb*e:], B: b[n*kb*e:], Step: Step{Last: true, Out: Out(rng.IntN(3))}, Partial: c1.Partial, Out: make([]byte, m*n*4),
			Narrow: Narrow{uint(rng.IntN(8)), Rounding(rng.IntN(int(numRoundings))), rng.IntN(2) == 0}}
		if k.Type == Int16 && rng.IntN(2) == 0 {
			c2.CascadeIn, c2.In = true, make([]int64, m*n)
			for i := range c2.In {
				c2.In[i] = Wrap48(int64(rng.Uint64()))
			}
		}
		require.NoError(t, k.Check(&c1))
		require.NoError(t, k.Check(&c2))
		s1, s2 := laneModel(k, &c1), laneModel(k, &c2)
		k.Run(&c1)
		k.Run(&c2)
		got := Unpack(c2.Step.Out, c2.Out, m*n)
		for i := range got {
			sum := s1[i]
			if k.Type == Int8 {
				sum = int64(int32(sum))
			}
			sum = Wrap48(sum + s2[i])
			if c2.CascadeIn {
				sum = Wrap48(sum + c2.In[i])
			}
			want := SRS(sum, c2.Shift, c2.Round, c2.Saturate, uint(8*c2.Step.Out.Bytes()))
			require.Equal(t, want, got[i], "%v element %d", k, i)
		}
	}
}

// The indices of a layout are a bijection, and the micro-kernel computes the product of the matrices that they describe.
func TestLayoutsAndProduct(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, k := range []Kernel{KernelInt16, KernelInt8, KernelFP32} {
		m, kb, n := 2*k.MR, 3*max(k.KS, 2), 3*k.NR
		seen := map[int]bool{}
		check := func(i, limit int) {
			require.False(t, seen[i])
			require.Less(t, i, limit)
			seen[i] = true
		}
		for i := range m {
			for p := range kb {
				check(k.AIndex(i, p, kb), m*kb)
			}
		}
		clear(seen)
		for p := range kb {
			for j := range n {
				check(k.BIndex(p, j, kb), n*kb)
			}
		}
		clear(seen)
		for i := range m {
			for j := range n {
				check(k.CIndex(i, j, m), m*n)
			}
		}

		e := k.Type.Bytes()
		a, b := make([]byte, m*kb*e), make([]byte, kb*n*e)
		av, bv := make([]float64, m*kb), make([]float64, kb*n)
		put := func(dst []byte, at int, v int) {
			switch k.Type {
			case Int16:
				binary.LittleEndian.PutUint16(dst[2*at:], uint16(v))
			case Int8:
				dst[at] = byte(v)
			case FP32:
				binary.LittleEndian.PutUint32(dst[4*at:], math.Float32bits(float32(v)))
			}
		}
		for i := range m {
			for p := range kb {
				v := rng.IntN(200) - 100
				av[i*kb+p] = float64(v)
				put(a, k.AIndex(i, p, kb), v)
			}
		}
		for p := range kb {
			for j := range n {
				v := rng.IntN(200) - 100
				bv[p*n+j] = float64(v)
				put(b, k.BIndex(p, j, kb), v)
			}
		}
		c := Call{M: m, KB: kb, N: n, A: a, B: b, Out: make([]byte, m*n*4), Step: Step{First: true, Last: true, Out: k.Type.Default()}}
		require.NoError(t, k.Check(&c))
		k.Run(&c)
		for i := range m {
			for j := range n {
				want := 0.0
				for p := range kb {
					want += av[i*kb+p] * bv[p*n+j]
				}
				bits := binary.LittleEndian.Uint32(c.Out[4*k.CIndex(i, j, m):])
				got := float64(int32(bits))
				if k.Type == FP32 {
					got = float64(math.Float32frombits(bits))
				}
				require.Equal(t, want, got, "%v C[%d,%d]", k, i, j)
			}
		}
	}
}

// fp32 sums are one multiplication and one addition for each k, ascending, each rounded.
func TestF32OrderOfSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	k := KernelFP32
	const m, kb, n = 8, 37, 4
	a, b := make([]byte, 4*m*kb), make([]byte, 4*kb*n)
	for i := range m * kb {
		binary.LittleEndian.PutUint32(a[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	for i := range n * kb {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(float32(rng.NormFloat64())))
	}
	f := func(d []byte, i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(d[4*i:])) }
	c := Call{M: m, KB: kb, N: n, A: a, B: b, Out: make([]byte, 4*m*n), Step: Step{First: true, Last: true, Out: F32}}
	k.Run(&c)
	differs := 0
	for i := range m {
		for j := range n {
			var want float32
			var fused float64
			for p := range kb {
				want += float32(f(a, k.AIndex(i, p, kb)) * f(b, k.BIndex(p, j, kb)))
				fused += float64(f(a, k.AIndex(i, p, kb))) * float64(f(b, k.BIndex(p, j, kb)))
			}
			got := f(c.Out, k.CIndex(i, j, m))
			require.Equal(t, want, got)
			if float32(fused) != got {
				differs++
			}
		}
	}
	require.NotZero(t, differs, "the data do not tell the orders of sums apart")
}

func TestCheckRefuses(t *testing.T) {
	k := KernelInt8
	ok := Call{M: 8, KB: 8, N: 8, A: make([]byte, 64), B: make([]byte, 64), Out: make([]byte, 256), Step: Step{First: true, Last: true}}
	require.NoError(t, k.Check(&ok))
	for want, mutate := range map[string]func(*Call){
		"no multiple of 8 x 8 x 8":  func(c *Call) { c.KB = 7 },
		"A needs 64, has 63":        func(c *Call) { c.A = c.A[:63] },
		"C needs 256, has 0":        func(c *Call) { c.Out = nil },
		"partial sums needs 256":    func(c *Call) { c.First = false },
		"cascade in needs 64":       func(c *Call) { c.CascadeIn = true },
		"no result of type f32":     func(c *Call) { c.Step.Out = F32 },
		"cascade out needs 64, has": func(c *Call) { c.CascadeOut = true },
	} {
		c := ok
		mutate(&c)
		require.ErrorContains(t, k.Check(&c), want)
	}
	f := ok
	f.Step.Out, f.CascadeIn, f.In = F32, true, make([]int64, 64)
	f.A, f.B = make([]byte, 256), make([]byte, 256)
	require.ErrorContains(t, KernelFP32.Check(&f), "cascade carries accumulators")
	_, err := ParseType("int4")
	require.ErrorContains(t, err, "int16, int8, fp32")
	_, err = ParseOut("u8")
	require.Error(t, err)
}

func BenchmarkRun(b *testing.B) {
	for _, k := range []Kernel{KernelInt16, KernelInt8, KernelFP32} {
		b.Run(k.String(), func(b *testing.B) {
			m, kb, n := 32, 64, 32
			c := Call{M: m, KB: kb, N: n, A: make([]byte, m*kb*4), B: make([]byte, kb*n*4), Out: make([]byte, 4*m*n), Step: Step{First: true, Last: true, Out: k.Type.Default()}}
			for b.Loop() {
				k.Run(&c)
			}
			b.ReportMetric(float64(m*kb*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}
