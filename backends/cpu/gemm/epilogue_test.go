package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// same reports equal bits, any NaN being equal to any other and +0 to -0.
func same(a, b float32) bool { return a == b || a != a && b != b }

func specials(r *rand.Rand, n int) []float32 {
	list := []float32{0, float32(math.Copysign(0, -1)), 1, -1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
		math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -1e-40, 88.7, 89, -87.3, -104, -103.97, 0.625, 16, 65504,
		65520, 65519.996, 6.1e-5, 5.96e-8, 2.98e-8, 0.5, 1.5, 2.5, -0.5, -1.5}
	v := make([]float32, n)
	for i := range v {
		switch r.IntN(3) {
		case 0:
			v[i] = list[r.IntN(len(list))]
		case 1:
			v[i] = float32(r.NormFloat64() * 4)
		default:
			v[i] = math.Float32frombits(r.Uint32())
		}
	}
	return v
}

// Each level's row operations give the bits of the Go twins, for every length of a rest.
func TestVecOpsMatchTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for _, isa := range isas() {
		v := vecFor(isa)
		for _, n := range []int{0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1000} {
			x, y := specials(r, n), specials(r, n)
			p, q := float32(0.25), float32(0.5)
			check := func(name string, f func(v *vecOps, x []float32)) {
				a, b := append([]float32{}, x...), append([]float32{}, x...)
				f(v, a)
				f(&portableVec, b)
				for i := range a {
					if !same(a[i], b[i]) {
						t.Fatalf("%v %s(%v [%x]) = %v, twin %v", isa, name, x[i], math.Float32bits(x[i]), a[i], b[i])
					}
				}
			}
			for act := ReLU; act < numActivations; act++ {
				check(act.String(), func(v *vecOps, x []float32) { v.act[act](x, p, q) })
			}
			check("fromS32", func(v *vecOps, x []float32) { v.fromS32(x) })
			check("scale", func(v *vecOps, x []float32) { v.scale(x, 1.7) })
			check("mul", func(v *vecOps, x []float32) { v.mul(x, y) })
			check("add", func(v *vecOps, x []float32) { v.add(x, y) })
			h1, h2 := make([]uint16, n), make([]uint16, n)
			v.bf16(h1, x)
			portableVec.bf16(h2, x)
			equal(t, h2, h1, "%v bf16 of %v", isa, x)
			f1, f2 := make([]float32, n), make([]float32, n)
			for _, typ := range []Type{BF16, F16} {
				v.fromHalf(f1, unsafe.Pointer(unsafe.SliceData(h1)), typ)
				portableVec.fromHalf(f2, unsafe.Pointer(unsafe.SliceData(h1)), typ)
				for i := range f1 {
					if !same(f1[i], f2[i]) {
						t.Fatalf("%v %v of the bits %#x is %v, twin %v", isa, typ, h1[i], f1[i], f2[i])
					}
				}
			}
			v.f16(h1, x)
			portableVec.f16(h2, x)
			equal(t, h2, h1, "%v f16 of %v", isa, x)
			b1, b2 := make([]uint8, n), make([]uint8, n)
			for _, z := range []int32{0, -7, 100} {
				v.quant(b1, x, 3.5, z, -128, 127)
				portableVec.quant(b2, x, 3.5, z, -128, 127)
				equal(t, b2, b1, "%v quant of %v", isa, x)
				v.quant(b1, x, 3.5, z, 0, 255)
				portableVec.quant(b2, x, 3.5, z, 0, 255)
				equal(t, b2, b1, "%v quant of %v", isa, x)
			}
		}
		for _, f := range []format{{BF16, 32, 2}, {BF16, 16, 2}, {F16, 32, 1}, {F16, 16, 1}} {
			for _, kc := range []int{1, 2, 3, 8, 33} {
				in := make([]uint16, ceilDiv(kc, f.kr)*f.kr*f.nr)
				for i := range in {
					in[i] = toBF16(r.Float32())
				}
				a, b := make([]float32, (kc+1)*f.nr), make([]float32, (kc+1)*f.nr)
				v.widenPanel(unsafe.Pointer(&a[0]), unsafe.Pointer(&in[0]), f, kc)
				widenPanel(unsafe.Pointer(&b[0]), unsafe.Pointer(&in[0]), f, kc)
				equal(t, b[:kc*f.nr], a[:kc*f.nr])
			}
		}
	}
}

// The elementary functions against float64.
func TestActivationAccuracy(t *testing.T) {
	ref := map[Activation]func(x float64) float64{
		Sigmoid:   func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
		SiLU:      func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		Tanh:      math.Tanh,
		GELU:      func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 },
		GELUTanh:  func(x float64) float64 { return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) },
		QuickGELU: func(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) },
	}
	for act, f := range ref {
		worst := 0.0
		for x := float32(-12); x < 12; x += 0.00137 {
			v := []float32{x}
			require.NoError(t, Activate(act, v, 0, 0))
			want := f(float64(x))
			// Relative to the value, and for the tails, whose exponent is rounded, to a small part of x.
			err := math.Abs(float64(v[0])-want) / (math.Abs(want) + 0.02*math.Min(1, math.Abs(float64(x))))
			worst = math.Max(worst, err)
		}
		require.Less(t, worst, 6e-7, "%v", act)
	}
	require.ErrorContains(t, Activate(99, nil, 0, 0), "unknown")
}

func TestEpilogues(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, isa := range isas() {
		for round, s := range edgeShapes(r, 60) {
			m, n, k := s[0], s[1], s[2]
			integer := round%3 == 0
			var a, b Matrix
			var sums []float32
			if integer {
				a, b = operand(r, S8, m, k), operand(r, S8, k, n)
				for _, v := range refInt(a, b, 0) {
					sums = append(sums, float32(v))
				}
			} else {
				a, b = operand(r, F32, m, k), operand(r, F32, k, n)
				sums = refFloat(a, b)
			}
			e := &Epilogue{Act: Activation(r.IntN(int(numActivations))), P: 0.1, Q: 0.6}
			if integer || r.IntN(2) == 0 {
				e.RowScale = floats(r, []int{1, m}[r.IntN(2)])
				e.ColScale = floats(r, []int{1, n}[r.IntN(2)])
				if integer {
					for i := range e.RowScale {
						e.RowScale[i] *= 1e-3
					}
				}
			}
			if r.IntN(2) == 0 {
				e.Bias = floats(r, n)
			}
			res := floats(r, m*(n+3))
			if r.IntN(2) == 0 {
				e.Before = View(res, m, n, []int{0, n + 3}[r.IntN(2)], 1)
			}
			if r.IntN(2) == 0 {
				e.After = View(res, m, n, n+3, 1)
			}
			out := []Type{F32, BF16, F16, S8, U8}[r.IntN(5)]
			if out == S8 || out == U8 {
				e.OutScale, e.OutZero = 40, int32(r.IntN(20))-5
			}
			// Unfused: the same steps one after another on the whole matrix.
			want := append([]float32{}, sums...)
			for i := range m {
				row := want[i*n : (i+1)*n]
				for j := range row {
					x := row[j]
					if l := len(e.RowScale); l > 0 {
						x *= e.RowScale[i%l]
					}
					if l := len(e.ColScale); l > 0 {
						x *= e.ColScale[j%l]
					}
					if e.Bias != nil {
						x += e.Bias[j]
					}
					if e.Before.typ != 0 {
						x += e.Before.value(i, j)
					}
					row[j] = x
				}
				require.NoError(t, Activate(e.Act, row, e.P, e.Q))
				for j := range row {
					if e.After.typ != 0 {
						row[j] += e.After.value(i, j)
					}
				}
			}
			rs, cs := n+2, 1
			if r.IntN(3) == 0 {
				rs, cs = 1, m+1
			}
			c := Raw(out, make([]byte, (m*(n+2)+n*(m+1))*4), m, n, rs, cs)
			wc := Raw(out, make([]byte, m*n*4), m, n, n, 1)
			for i := range m {
				scale := e.OutScale
				if scale == 0 {
					scale = 1
				}
				store(&portableVec, &wc, want[i*n:(i+1)*n], i, 0, scale, e.OutZero)
			}
			name := fmt.Sprintf("%v %dx%dx%d integer %v %v into %v", isa, m, n, k, integer, e.Act, out)
			o := &Options{ISA: isa, Epilogue: e, Threads: 1 + r.IntN(2)}
			packed, err := PackB(b, o)
			require.NoError(t, err)
			for _, how := range []string{"plain", "packed"} {
				clear(unsafe.Slice((*byte)(c.ptr), c.len*out.Size()))
				if how == "plain" {
					require.NoError(t, Mul(c, a, b, o), name)
				} else {
					require.NoError(t, MulPacked(c, a, packed, o), name)
				}
				for i := range m {
					for j := range n {
						if got, want := c.value(i, j), wc.value(i, j); !same(want, got) {
							t.Fatalf("%s %s at %d,%d: %v want %v", name, how, i, j, got, want)
						}
					}
				}
			}
		}
	}
}

// K = 0 gives the epilogue of zero, whatever C held.
func TestEmptyProduct(t *testing.T) {
	nan := float32(math.NaN())
	c := []float32{nan, nan, nan, nan}
	bias := []float32{1, -2}
	o := &Options{Epilogue: &Epilogue{Bias: bias, Act: ReLU}}
	require.NoError(t, Mul(Of(c, 2, 2), Of([]float32{}, 2, 0), Of([]float32{}, 0, 2), o))
	require.Equal(t, []float32{1, 0, 1, 0}, c)
	c = []float32{1, 2, 3, 4}
	require.NoError(t, MulAdd(1, Of([]float32{}, 2, 0), Of([]float32{}, 0, 2), 2, Of(c, 2, 2), nil))
	require.Equal(t, []float32{2, 4, 6, 8}, c)
	c = []float32{nan, nan, nan, nan}
	require.NoError(t, MulAdd(0, Of([]float32{nan, nan}, 2, 1), Of([]float32{nan, nan}, 1, 2), 0, Of(c, 2, 2), nil))
	require.Equal(t, []float32{0, 0, 0, 0}, c)
	c = []float32{1, 2, 3, 4}
	require.NoError(t, Mul(Of(c, 2, 2), Of([]float32{}, 2, 0), Of([]float32{}, 0, 2), &Options{Accumulate: true}))
	require.Equal(t, []float32{1, 2, 3, 4}, c)
}

// At infinity activations have their limits, fused or not; NaN stays.
func TestActivationsAtInfinity(t *testing.T) {
	inf := float32(math.Inf(1))
	limits := map[Activation][2]float32{
		ReLU: {0, inf}, Clip: {-1, 3}, LeakyReLU: {-inf, inf}, HardSwish: {0, inf}, HardSigmoid: {0, 1}, Sigmoid: {0, 1}, SiLU: {0, inf},
		Tanh: {-1, 1}, GELU: {0, inf}, GELUTanh: {0, inf}, QuickGELU: {0, inf},
	}
	require.Len(t, limits, int(numActivations)-1)
	const n = 37 // vectors and a rest
	for _, isa := range isas() {
		for act, limit := range limits {
			p, q := float32(0.1), float32(0.5)
			if act == Clip {
				p, q = -1, 3
			}
			a, b := []float32{-inf, inf, float32(math.NaN()), -math.MaxFloat32}, make([]float32, n)
			for j := range b {
				b[j] = 1
			}
			c := make([]float32, len(a)*n)
			e := &Epilogue{Act: act, P: p, Q: q}
			require.NoError(t, Mul(Of(c, len(a), n), Of(a, len(a), 1), Of(b, 1, n), &Options{ISA: isa, Epilogue: e}))
			x := make([]float32, len(c))
			for i := range x {
				x[i] = a[i/n]
			}
			require.NoError(t, Activate(act, x, p, q))
			for j := range n {
				require.Equal(t, limit, [2]float32{c[j] + 0, c[n+j] + 0}, "%v of infinity on %v", act, isa)
				require.True(t, c[2*n+j] != c[2*n+j], "%v of NaN on %v", act, isa)
				require.True(t, c[3*n+j] == c[3*n+j], "%v of the lowest number on %v", act, isa)
			}
			for i := range c {
				require.True(t, same(c[i], x[i]), "%v(%v) fused %v, alone %v, on %v", act, a[i/n], c[i], x[i], isa)
			}
		}
	}
}
