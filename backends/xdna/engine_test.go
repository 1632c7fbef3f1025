package xdna

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func floats(rng *rand.Rand, dims ...int) tensor.Tensor {
	t := tensor.New(tensor.F32, dims...)
	for i, v := 0, tensor.Data[float32](t); i < len(v); i++ {
		v[i] = float32(rng.NormFloat64())
	}
	return t
}

// multiply runs a problem on a backend.
func multiply(t testing.TB, b *Backend, s matmul.Spec, sh matmul.Shape, args matmul.Args, weights tensor.Tensor) {
	t.Helper()
	w, err := b.engine.Pack(context.Background(), s, weights)
	require.NoError(t, err)
	p, err := b.engine.Plan(s, sh)
	require.NoError(t, err)
	require.NoError(t, p.Run(context.Background(), w, &args, new(matmul.Workspace)))
	require.NoError(t, w.Close())
}

// Float activations and weights in every precision, with every part of the epilogue, stay near the product in float64, and both modes agree.
func TestEpilogue(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const m, n, k = 70, 90, 130
	a, w, residual := floats(rng, m, k), floats(rng, n, k), floats(rng, m, n)
	vec := func(n int) []float32 { v := floats(rng, n); return tensor.Data[float32](v) }
	rowScale, colScale, bias := vec(m), vec(n), vec(n)
	for _, dev := range device.All() {
		for _, precision := range []Precision{BF16, Int8, BFP16} {
			if precision == BFP16 && dev != device.XDNA2 {
				continue
			}
			for _, ep := range []matmul.Epilogue{
				{},
				{Bias: true, Act: ops.Act{Kind: ops.GELU}},
				{RowScale: true, ColScale: true, Residual: matmul.ResidualBefore, Act: ops.Act{Kind: ops.ELU, P: 1}},
				{Bias: true, Residual: matmul.ResidualAfter, Act: ops.Act{Kind: ops.ReLU}},
			} {
				for _, c := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
					s := matmul.Spec{N: n, K: k, A: tensor.F32, B: tensor.F32, C: c, BLayout: matmul.ColMajor, Epilogue: ep}
					var raws [][]byte
					for _, mode := range []Mode{Fast, Emulate} {
						out := tensor.New(c, m, n)
						args := matmul.Args{A: a, C: out, Residual: residual, RowScale: rowScale, ColScale: colScale, Bias: bias}
						multiply(t, open(t, dev, Options{Mode: mode, Precision: precision}), s, matmul.Shape{M: m}, args, w)
						raws = append(raws, out.Raw())
						va, vw, vr := a.Floats(), w.Floats(), residual.Floats()
						for i, got := range out.Floats() {
							var acc float64
							for q := range k {
								acc += va[i/n*k+q] * vw[i%n*k+q]
							}
							want := ep.Apply(acc, float64(rowScale[i/n]), float64(colScale[i%n]), float64(bias[i%n]), vr[i])
							scale := 1.0
							if ep.RowScale {
								scale = math.Abs(float64(rowScale[i/n] * colScale[i%n]))
							}
							require.InDelta(t, want, got, 0.6*scale+0.02*math.Abs(want), "%s %v %+v %v element %d", dev.Name, precision, ep, c, i)
						}
					}
					require.Equal(t, raws[0], raws[1], "%s %v %+v %v", dev.Name, precision, ep, c)
				}
			}
		}
	}
}

// Requantized integer results: round to nearest even, zero point, saturated.
func TestRequantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for _, c := range []tensor.DType{tensor.I8, tensor.U8} {
		s := matmul.Spec{A: tensor.I8, B: tensor.I8, C: c, BLayout: matmul.ColMajor, Epilogue: matmul.Epilogue{OutScale: 700, OutZero: 3}}
		for _, mode := range []Mode{Fast, Emulate} {
			p := randomProblem(rng, s, 40, 33, 50, 0)
			out := p.run(t, open(t, device.XDNA, Options{Mode: mode}))
			for i, got := range out.Floats() {
				var acc float64
				for q := range p.spec.K {
					acc += float64(p.ia[i/p.spec.N][q]) * float64(p.ib[i%p.spec.N][q])
				}
				lo, hi := -128.0, 127.0
				if c == tensor.U8 {
					lo, hi = 0, 255
				}
				require.Equal(t, max(lo, min(hi, math.RoundToEven(float64(float32(acc)/700))+3)), got)
			}
		}
	}
}

// Views: rows with gaps, transposed weights, batches that share one weight.
func TestViews(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 2))
	const m, n, k = 24, 40, 56
	for _, mode := range []Mode{Fast, Emulate} {
		b := open(t, device.XDNA2, Options{Mode: mode})
		s := matmul.Spec{N: n, K: k, A: tensor.F32, B: tensor.F32, C: tensor.F32, BLayout: matmul.RowMajor}
		wide := floats(rng, 3, m, k+9)
		a, err := wide.Slice(2, 4, 4+k, 1)
		require.NoError(t, err)
		w := floats(rng, k, n)
		dense := a.Clone()
		want, got := tensor.New(tensor.F32, 3, m, n), tensor.New(tensor.F32, 3, m, n+5)
		multiply(t, b, s, matmul.Shape{M: m, Batch: [3]int{1, 1, 3}}, matmul.Args{A: dense, C: want}, w)
		c, err := got.Slice(2, 0, n, 1)
		require.NoError(t, err)
		multiply(t, b, s, matmul.Shape{M: m, Batch: [3]int{1, 1, 3}}, matmul.Args{A: a, C: c}, w)
		require.Equal(t, want.Floats(), c.Floats())
		// Column-major weights of the same values give the same.
		wt, err := w.Transpose(0, 1)
		require.NoError(t, err)
		s.BLayout = matmul.ColMajor
		multiply(t, b, s, matmul.Shape{M: 3 * m}, matmul.Args{A: dense, C: want}, wt.Clone())
		require.Equal(t, want.Floats(), c.Floats())
		// Every third row of a larger matrix.
		rows := floats(rng, 3*m, k)
		third, err := rows.Slice(0, 0, 3*m, 3)
		require.NoError(t, err)
		x, y := tensor.New(tensor.F32, m, n), tensor.New(tensor.F32, m, n)
		multiply(t, b, s, matmul.Shape{M: m}, matmul.Args{A: third, C: x}, wt.Clone())
		multiply(t, b, s, matmul.Shape{M: m}, matmul.Args{A: third.Clone(), C: y}, wt.Clone())
		require.Equal(t, x.Floats(), y.Floats())
	}
}

func TestEmpty(t *testing.T) {
	for _, mode := range []Mode{Fast, Emulate} {
		b := open(t, device.XDNA, Options{Mode: mode})
		for _, size := range [][3]int{{0, 5, 5}, {5, 0, 5}, {5, 5, 0}} {
			m, n, k := size[0], size[1], size[2]
			s := matmul.Spec{N: n, K: k, A: tensor.BF16, B: tensor.BF16, C: tensor.F32, BLayout: matmul.ColMajor, Epilogue: matmul.Epilogue{Bias: true}}
			c := tensor.New(tensor.F32, m, n)
			for i, v := 0, tensor.Data[float32](c); i < len(v); i++ {
				v[i] = 9
			}
			bias := make([]float32, n)
			for i := range bias {
				bias[i] = float32(i)
			}
			multiply(t, b, s, matmul.Shape{M: m}, matmul.Args{A: tensor.New(tensor.BF16, m, k), C: c, Bias: bias}, tensor.New(tensor.BF16, n, k))
			for i, v := range c.Floats() {
				require.Equal(t, float64(i%n), v)
			}
		}
		require.Zero(t, b.Stats().Configurations)
	}
}

// Values at the ends of float32's range leave the quick path of bfp16; NaN and infinity propagate. Both modes agree on all of them.
func TestExtremeValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	for _, dev := range device.All() {
		for _, c := range []tensor.DType{tensor.BF16, tensor.F32} {
			for _, rounding := range []kernel.Rounding{kernel.NearestEven, kernel.Floor} {
				s := matmul.Spec{A: tensor.BF16, B: tensor.BF16, C: c, BLayout: matmul.ColMajor}
				exps := []int{-64, 62, 1000}
				if slow {
					exps = append(exps, -120, 120)
				}
				for _, exp := range exps {
					p := randomProblem(rng, s, 9, 20, 70, rounding)
					for _, t := range []*tensor.Tensor{&p.a, &p.b} {
						for i, h := 0, tensor.Data[uint16](*t); i < len(h); i++ {
							v := float64(tensor.BF16ToF32(h[i]))
							switch {
							case exp < 1000:
								v = math.Ldexp(v, exp)
							case rng.IntN(90) == 0:
								v = math.Inf(1)
							case rng.IntN(90) == 0:
								v = math.NaN()
							}
							h[i] = tensor.F32ToBF16(float32(v))
						}
					}
					fast := p.run(t, open(t, dev, Options{Rounding: rounding}))
					emulate := p.run(t, open(t, dev, Options{Rounding: rounding, Mode: Emulate}))
					bad := 0
					for i, want := range emulate.Floats() {
						got := fast.Floats()[i]
						require.True(t, want == got && math.Signbit(want) == math.Signbit(got) || want != want && got != got, "%s exp %d: %v %v", dev.Name, exp, want, got)
						if want != want || math.IsInf(want, 0) {
							bad++
						}
					}
					if exp == 1000 {
						require.Positive(t, bad)
					}
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	b, other := open(t, device.XDNA, Options{}), open(t, device.XDNA, Options{})
	s := matmul.Spec{N: 8, K: 8, A: tensor.BF16, B: tensor.BF16, C: tensor.F32, BLayout: matmul.ColMajor}
	w, err := other.engine.Pack(ctx, s, tensor.New(tensor.BF16, 8, 8))
	require.NoError(t, err)
	p, err := b.engine.Plan(s, matmul.Shape{M: 4})
	require.NoError(t, err)
	args := &matmul.Args{A: tensor.New(tensor.BF16, 4, 8), C: tensor.New(tensor.F32, 4, 8)}
	require.ErrorContains(t, p.Run(ctx, w, args, new(matmul.Workspace)), "pack them here")
	own, err := b.engine.Pack(ctx, s, tensor.New(tensor.BF16, 8, 8))
	require.NoError(t, err)
	require.NoError(t, p.Run(ctx, own, args, new(matmul.Workspace)))
	require.NoError(t, own.Close())
	require.ErrorContains(t, p.Run(ctx, own, args, new(matmul.Workspace)), "closed")
	_, err = b.engine.Pack(ctx, s, tensor.New(tensor.BF16, 8, 9))
	require.ErrorContains(t, err, "pack of")
	require.NoError(t, p.Run(ctx, nil, &matmul.Args{A: args.A, B: tensor.New(tensor.BF16, 8, 8), C: args.C}, new(matmul.Workspace)))
	for _, bad := range []matmul.Spec{
		{N: 8, K: 8, A: tensor.I16, B: tensor.I16, C: tensor.I32},
		{N: 8, K: 8, A: tensor.BF16, B: tensor.BFP16, C: tensor.F32},
		{N: 8, K: 8, A: tensor.I8, B: tensor.I8, C: tensor.I16, Epilogue: matmul.Epilogue{Bias: true}},
		{N: 8, K: 8, A: tensor.F32, B: tensor.F64, C: tensor.F32},
	} {
		require.Error(t, b.engine.Supports(bad, matmul.Shape{M: 1}), "%v", bad)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, p.Run(done, nil, &matmul.Args{A: args.A, B: tensor.New(tensor.BF16, 8, 8), C: args.C}, new(matmul.Workspace)), context.Canceled)
}

// Several goroutines share an engine and its weights.
func TestConcurrent(t *testing.T) {
	for _, mode := range []Mode{Fast, Emulate} {
		b := open(t, device.XDNA2, Options{Mode: mode})
		rng := rand.New(rand.NewPCG(8, 3))
		s := matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I32, BLayout: matmul.ColMajor}
		p := randomProblem(rng, s, 50, 60, 70, 0)
		want := p.run(t, b)
		w, err := b.engine.Pack(context.Background(), p.spec, p.b)
		require.NoError(t, err)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for g := range errs {
			wg.Go(func() {
				plan, err := b.engine.Plan(p.spec, matmul.Shape{M: p.m})
				var ws matmul.Workspace
				for range 5 {
					c := tensor.New(p.spec.C, p.m, p.spec.N)
					if err == nil {
						err = plan.Run(context.Background(), w, &matmul.Args{A: p.a, C: c}, &ws)
					}
					if err == nil && string(raw(c)) != string(raw(want)) {
						err = fmt.Errorf("goroutine %d got another result", g)
					}
				}
				errs[g] = err
			})
		}
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

// In fast mode a plan allocates nothing after its first run.
func TestNoAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, precision := range []Precision{BF16, Int8, BFP16} {
		b := open(t, device.XDNA2, Options{Precision: precision})
		s := matmul.Spec{N: 96, K: 64, A: tensor.F32, B: tensor.F32, C: tensor.F32, BLayout: matmul.ColMajor, Epilogue: matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.SiLU}}}
		w, err := b.engine.Pack(context.Background(), s, floats(rng, 96, 64))
		require.NoError(t, err)
		p, err := b.engine.Plan(s, matmul.Shape{M: 80})
		require.NoError(t, err)
		args := &matmul.Args{A: floats(rng, 80, 64), C: tensor.New(tensor.F32, 80, 96), Bias: make([]float32, 96)}
		var ws matmul.Workspace
		run := func() {
			if err := p.Run(context.Background(), w, args, &ws); err != nil {
				panic(err)
			}
		}
		run()
		most := 0.0
		if precision == Int8 {
			most = 8 // by the CPU engine's own product
		}
		require.LessOrEqual(t, testing.AllocsPerRun(20, run), most, "%v", precision)
	}
}

// A design that is asked for replaces the default one.
func TestOwnDesign(t *testing.T) {
	types, err := device.ParseTypes("int8-int32")
	require.NoError(t, err)
	d := &design.Design{Dev: device.XDNA, Types: types, Tile: design.Tile{M: 32, K: 16, N: 32}, KMT: 32, BLayout: design.ColMajor, CBuffers: 2}
	b := open(t, device.XDNA, Options{Mode: Emulate, Designs: map[device.Types]*design.Design{types: d}})
	rng := rand.New(rand.NewPCG(3, 9))
	p := randomProblem(rng, matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I32, BLayout: matmul.ColMajor}, 100, 100, 100, 0)
	p.check(t, b, p.run(t, b), rng, 50)
	require.Equal(t, int64(128*128*128), b.Stats().PaddedMACs)

	bad := *d
	bad.Tile.M = 1024
	b = open(t, device.XDNA, Options{Designs: map[device.Types]*design.Design{types: &bad}})
	_, err = b.engine.Plan(p.spec, matmul.Shape{M: 1})
	require.ErrorContains(t, err, "L1")
}

// TestConversions: a product that reads and writes the caller's memory converts nothing; each operand and result that lies otherwise, or has another type, counts once.
func TestConversions(t *testing.T) {
	const m, n, k = 24, 40, 64
	spec := func(a, b, c tensor.DType) matmul.Spec {
		return matmul.Spec{A: a, B: b, C: c, BLayout: matmul.ColMajor, N: n, K: k}
	}
	wide := func(d tensor.DType, cols int) tensor.Tensor { // rows with gaps
		w, err := tensor.New(d, m, cols+32).Slice(1, 0, cols, 1)
		require.NoError(t, err)
		return w
	}
	turned := func(d tensor.DType, cols int) tensor.Tensor { // by columns
		w, err := tensor.New(d, cols, m).Transpose(0, 1)
		require.NoError(t, err)
		return w
	}
	whole := func(d tensor.DType, cols int) tensor.Tensor { return tensor.New(d, m, cols) }
	for _, dev := range device.All() {
		for _, mode := range []Mode{Fast, Emulate} {
			b := open(t, dev, Options{Mode: mode})
			for name, c := range map[string]struct {
				spec matmul.Spec
				a, c func(tensor.DType, int) tensor.Tensor
				want int64
			}{
				"in place":         {spec(tensor.I8, tensor.I8, tensor.I32), whole, whole, 0},
				"gaps in A":        {spec(tensor.I8, tensor.I8, tensor.I32), wide, whole, 1},
				"gaps in C":        {spec(tensor.I8, tensor.I8, tensor.I32), whole, wide, 1},
				"both by columns":  {spec(tensor.I8, tensor.I8, tensor.I16), turned, turned, 2},
				"bfloat16":         {spec(tensor.BF16, tensor.BF16, tensor.BF16), whole, whole, 0},
				"float32, into it": {spec(tensor.F32, tensor.F32, tensor.F32), whole, whole, 2},
			} {
				before := b.Stats()
				w, err := b.engine.Pack(context.Background(), c.spec, tensor.New(c.spec.B, n, k))
				require.NoError(t, err, name)
				plan, err := b.engine.Plan(c.spec, matmul.Shape{M: m})
				require.NoError(t, err, name)
				var ws matmul.Workspace
				for range 2 {
					require.NoError(t, plan.Run(context.Background(), w, &matmul.Args{A: c.a(c.spec.A, k), C: c.c(c.spec.C, n)}, &ws), name)
				}
				since := b.Stats().Sub(before)
				require.EqualValues(t, 2, since.Products, name)
				require.Equal(t, 2*c.want, since.Conversions, "%s %v %s", dev.Name, mode, name)
				require.NoError(t, w.Close())
			}
		}
	}
}
