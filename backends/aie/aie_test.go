package aie

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func openT(t testing.TB, options string) *Backend {
	t.Helper()
	b, err := backends.Open("aie:" + options)
	require.NoError(t, err)
	return b.(*Backend)
}

func floats(rng *rand.Rand, dims ...int) tensor.Tensor {
	t := tensor.New(tensor.F32, dims...)
	for i, d := 0, tensor.Data[float32](t); i < len(d); i++ {
		d[i] = float32(rng.NormFloat64())
	}
	return t
}

func integers(rng *rand.Rand, d tensor.DType, limit int, dims ...int) tensor.Tensor {
	t := tensor.New(d, dims...)
	v := make([]int64, t.Elems())
	for i := range v {
		v[i] = int64(rng.IntN(2*limit+1) - limit)
	}
	t.SetInts(v)
	return t
}

// multiply runs an op through the engine, as a program would.
func multiply(t testing.TB, e *Engine, op matmul.Op, in ...tensor.Tensor) tensor.Tensor {
	t.Helper()
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	c := tensor.New(out[0].DType, out[0].Shape()...)
	spec, shape := op.Problem(specs, out[0])
	require.NoError(t, e.Supports(spec, shape))
	w, err := e.Pack(context.Background(), spec, in[1])
	require.NoError(t, err)
	p, err := e.Plan(spec, shape)
	require.NoError(t, err)
	args := matmul.Args{A: in[0], C: c}
	rs, cs, bias, res, _ := op.Operands()
	vec := func(i int) []float32 {
		if i < 0 {
			return nil
		}
		return tensor.Data[float32](in[i])
	}
	args.RowScale, args.ColScale, args.Bias = vec(rs), vec(cs), vec(bias)
	if res >= 0 {
		args.Residual = in[res]
	}
	var ws matmul.Workspace
	require.NoError(t, p.Run(context.Background(), w, &args, &ws))
	require.NoError(t, w.Close())
	return c
}

func reference(t testing.TB, op ops.Op, in ...tensor.Tensor) tensor.Tensor {
	t.Helper()
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	c := tensor.New(out[0].DType, out[0].Shape()...)
	require.NoError(t, op.Reference([]tensor.Tensor{c}, in))
	return c
}

func size(rng *rand.Rand, most int) int {
	return int(math.Exp(rng.Float64() * math.Log(float64(most)+0.99)))
}

func sameBits(t testing.TB, want, got tensor.Tensor, msg ...any) {
	t.Helper()
	require.Equal(t, want.Spec, got.Spec)
	require.Equal(t, want.Raw(), got.Raw(), msg...)
}

// TestIntegersExact: int16 and int8 products against the integer reference, both modes, both designs.
func TestIntegersExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, mode := range []string{"fast", "emulate"} {
		for _, design := range []string{"best", "paper"} {
			b := openT(t, fmt.Sprintf("mode=%s,design=%s", mode, design))
			for i := range 12 {
				d, limit := tensor.I16, 32767
				if i%2 == 1 {
					d, limit = tensor.I8, 127
				}
				m, n, k := size(rng, 60), size(rng, 90), size(rng, 400)
				op := matmul.Op{TransB: rng.IntN(2) == 0, Out: []tensor.DType{tensor.I32, tensor.I16, tensor.I8}[rng.IntN(3)]}
				a, w := integers(rng, d, limit, m, k), integers(rng, d, limit, k, n)
				if op.TransB {
					w = integers(rng, d, limit, n, k)
				}
				sameBits(t, reference(t, op, a, w), multiply(t, b.engine, op, a, w), "%s %s %v %dx%dx%d", mode, design, d, m, n, k)
			}
		}
	}
}

// TestFastEqualsEmulate: mode=fast gives the bits of the emulated array over random sizes, types, designs and epilogues.
func TestFastEqualsEmulate(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	rounds := 8
	if testing.Short() {
		rounds = 2
	}
	for _, precision := range []string{"int16", "int8", "fp32"} {
		for _, design := range []string{"best", "paper"} {
			o := fmt.Sprintf("precision=%s,design=%s,", precision, design)
			fast, slow := openT(t, o+"mode=fast"), openT(t, o+"mode=emulate")
			for range rounds {
				m, n, k := size(rng, 100), size(rng, 150), size(rng, 900)
				op := matmul.Op{TransB: rng.IntN(2) == 0}
				in := []tensor.Tensor{floats(rng, m, k), floats(rng, k, n)}
				if op.TransB {
					in[1] = floats(rng, n, k)
				}
				if rng.IntN(2) == 0 {
					op.Epilogue = matmul.Epilogue{Bias: true, Residual: matmul.ResidualAfter, Act: ops.Act{Kind: ops.SiLU}}
					in = append(in, floats(rng, n), floats(rng, m, n))
				}
				sameBits(t, multiply(t, slow.engine, op, in...), multiply(t, fast.engine, op, in...), "%s %dx%dx%d", o, m, n, k)
			}
			require.Equal(t, fast.Stats().Products, slow.Stats().Products)
			require.InEpsilon(t, slow.Stats().SimulatedSeconds, fast.Stats().SimulatedSeconds, 0.3)
		}
	}
}

// TestFP32OrderOfSums: bit-equal to a reference with the same order of sums.
func TestFP32OrderOfSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, mode := range []string{"fast", "emulate"} {
		b := openT(t, "precision=fp32,mode="+mode)
		for range 5 {
			m, n, k := size(rng, 50), size(rng, 70), size(rng, 1000)
			a, w := floats(rng, m, k), floats(rng, k, n)
			got := multiply(t, b.engine, matmul.Op{}, a, w)
			av, wv, gv := tensor.Data[float32](a), tensor.Data[float32](w), tensor.Data[float32](got)
			for i := range m {
				for j := range n {
					var s float32
					for p := range k {
						s += float32(av[i*k+p] * wv[p*n+j])
					}
					require.Equal(t, s, gv[i*n+j])
				}
			}
		}
	}
}

// TestQuantizedAccuracy: int16 and int8 products stay within the error that their formats imply.
func TestQuantizedAccuracy(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	for precision, limit := range map[string]float64{"int16": 1.5e-4, "int8": 3e-2, "fp32": 1e-5} {
		b := openT(t, "precision="+precision)
		a, w := floats(rng, 37, 500), floats(rng, 500, 41)
		op := matmul.Op{Epilogue: matmul.Epilogue{Bias: true, Residual: matmul.ResidualBefore, Act: ops.Act{Kind: ops.LeakyReLU, P: 0.1}}}
		in := []tensor.Tensor{a, w, floats(rng, 41), floats(rng, 37, 41)}
		want, got := reference(t, op, in...), multiply(t, b.engine, op, in...)
		e, s := 0.0, 0.0
		for i, v := range want.Floats() {
			e += math.Pow(got.Floats()[i]-v, 2)
			s += v * v
		}
		require.Less(t, math.Sqrt(e/s), limit, precision)
	}
}

func TestBatchesViewsAndBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, mode := range []string{"fast", "emulate"} {
		b := openT(t, "mode="+mode)
		// Batches of A share B; batches of B have a matrix each.
		a, w := integers(rng, tensor.I16, 1000, 2, 3, 5, 30), integers(rng, tensor.I16, 1000, 30, 7)
		sameBits(t, reference(t, matmul.Op{}, a, w), multiply(t, b.engine, matmul.Op{}, a, w))
		wb := integers(rng, tensor.I16, 1000, 3, 30, 7)
		sameBits(t, reference(t, matmul.Op{}, a, wb), multiply(t, b.engine, matmul.Op{}, a, wb))
		// A transposed view of A.
		at, err := integers(rng, tensor.I16, 1000, 30, 9).Transpose(0, 1)
		require.NoError(t, err)
		sameBits(t, reference(t, matmul.Op{}, at, w), multiply(t, b.engine, matmul.Op{}, at, w))
		// Requantized int8.
		op := matmul.Op{Out: tensor.I8, Epilogue: matmul.Epilogue{RowScale: true, ColScale: true, Bias: true, OutScale: 0.5, OutZero: 3}}
		i8 := []tensor.Tensor{integers(rng, tensor.I8, 127, 6, 40), integers(rng, tensor.I8, 127, 40, 5), floats(rng, 6), floats(rng, 5), floats(rng, 5)}
		sameBits(t, reference(t, op, i8...), multiply(t, b.engine, op, i8...))
		// int16 numbers that are no two signed bytes.
		wide := integers(rng, tensor.I16, 32767, 4, 30)
		tensor.Data[int16](wide)[3] = 32767
		sameBits(t, reference(t, matmul.Op{}, wide, w), multiply(t, b.engine, matmul.Op{}, wide, w))
		// Block weights are decoded; K = 0 gives zero.
		q, err := quant.Encode(tensor.Q8_0, floats(rng, 11, 64))
		require.NoError(t, err)
		x := floats(rng, 3, 64)
		want, got := reference(t, matmul.Op{TransB: true}, x, q), multiply(t, b.engine, matmul.Op{TransB: true}, x, q)
		for i, v := range want.Floats() {
			require.InDelta(t, v, got.Floats()[i], 0.01)
		}
		zero := multiply(t, b.engine, matmul.Op{}, tensor.New(tensor.F32, 2, 0), tensor.New(tensor.F32, 0, 3))
		require.Equal(t, make([]float64, 6), zero.Floats())
	}
}

// TestLongK: sums longer than the byte products' chunks.
func TestLongK(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	k := chunkK + 1000
	a, w := integers(rng, tensor.I16, 32639, 1, k), integers(rng, tensor.I16, 32639, k, 2)
	want := reference(t, matmul.Op{}, a, w)
	sameBits(t, want, multiply(t, openT(t, "").engine, matmul.Op{}, a, w))
	sameBits(t, want, multiply(t, openT(t, "mode=emulate").engine, matmul.Op{}, a, w))
}

// TestNaNAndInfinityPropagate: in activations and in weights, as the reference has them.
func TestNaNAndInfinityPropagate(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for _, options := range []string{"precision=int16", "precision=int8", "precision=fp32", "precision=int16,mode=emulate"} {
			b := openT(t, options)
			for where := range 2 {
				in := []tensor.Tensor{floats(rng, 4, 20), floats(rng, 20, 6)}
				tensor.Data[float32](in[where])[25] = float32(bad)
				w, g := reference(t, matmul.Op{}, in...), multiply(t, b.engine, matmul.Op{}, in...)
				want, got := w.Floats(), g.Floats()
				for i, v := range want {
					if math.IsNaN(v) || math.IsInf(v, 0) {
						require.Equal(t, fmt.Sprint(v), fmt.Sprint(got[i]), "%s %v element %d", options, bad, i)
					} else {
						require.InDelta(t, v, got[i], 0.5)
					}
				}
			}
			img := floats(rng, 1, 1, 4, 4)
			tensor.Data[float32](img)[5] = float32(bad)
			op := conv.Conv{}
			p, frame := part(t, op, img, floats(rng, 2, 1, 2, 2))
			prog, err := b.Compile(context.Background(), p)
			require.NoError(t, err)
			require.NoError(t, prog.Run(context.Background(), frame, 0, 1))
			w := reference(t, op, frame[0], frame[1])
			want, got := w.Floats(), frame[2].Floats()
			for i, v := range want {
				require.Equal(t, math.IsNaN(v) || math.IsInf(v, 0), math.IsNaN(got[i]) || math.IsInf(got[i], 0))
			}
		}
	}
}

// part makes a graph part of one node whose input 1 is a constant.
func part(t testing.TB, op ops.Op, in ...tensor.Tensor) (*ops.Part, []tensor.Tensor) {
	t.Helper()
	p := &ops.Part{}
	n := ops.Node{Name: "node", Op: op}
	var frame []tensor.Tensor
	specs := []tensor.Spec{}
	for i, x := range in {
		v := ops.Value{Name: fmt.Sprint("in", i), Spec: x.Spec}
		if i == 1 {
			v.Const = ops.NewConstant(x)
		}
		p.Values = append(p.Values, v)
		n.In = append(n.In, i)
		frame = append(frame, x)
		specs = append(specs, x.Spec)
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	p.Values = append(p.Values, ops.Value{Name: "out", Spec: out[0]})
	n.Out = []int{len(in)}
	p.Nodes = []ops.Node{n}
	return p, append(frame, tensor.New(out[0].DType, out[0].Shape()...))
}

// TestConvolutions: fast equals emulate bit for bit, and both are near the reference, with epilogues, both layouts, one and two dimensions.
func TestConvolutions(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for i, precision := range []string{"int16", "int16", "int16", "int8", "fp32", "int16"} {
		op := conv.Conv{Layout: conv.Layout(i % 2)}
		op.Stride, op.Dilation = [3]int{1 + rng.IntN(2), 1 + rng.IntN(2)}, [3]int{1, 1 + rng.IntN(2)}
		op.Before, op.After = [3]int{rng.IntN(2), rng.IntN(2)}, [3]int{rng.IntN(2), rng.IntN(2)}
		c, m := 1+rng.IntN(5), 1+rng.IntN(20)
		dims, filter := []int{9, 11}, []int{m, c, 3, 3}
		if i == 5 {
			dims, filter = []int{30}, []int{m, c, 3}
			op.Stride[1], op.Dilation[1], op.Before[1], op.After[1] = 0, 0, 0, 0
		}
		in := []tensor.Tensor{floats(rng, op.Layout.Dims(2, c, dims)...), floats(rng, filter...)}
		if i > 0 {
			op.Epilogue = matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}
			in = append(in, floats(rng, m))
		}
		if i == 2 {
			op.Epilogue.Residual = matmul.ResidualAfter
			out, err := op.Infer([]tensor.Spec{in[0].Spec, in[1].Spec, in[2].Spec, func() tensor.Spec {
				o := op
				o.Epilogue = matmul.Epilogue{}
				s, err := o.Infer([]tensor.Spec{in[0].Spec, in[1].Spec})
				require.NoError(t, err)
				return s[0]
			}()})
			require.NoError(t, err)
			in = append(in, floats(rng, out[0].Shape()...))
		}
		want := reference(t, op, in...)
		var got [2]tensor.Tensor
		for j, mode := range []string{"fast", "emulate"} {
			b := openT(t, "precision="+precision+",mode="+mode)
			p, frame := part(t, op, in...)
			v := b.Supports(p.Call(&p.Nodes[0]))
			require.True(t, v.OK, v.Reason)
			prog, err := b.Compile(context.Background(), p)
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, prog.Run(context.Background(), frame, 0, 1))
			}
			got[j] = frame[len(frame)-1]
			require.Equal(t, int64(2), b.Stats().Products)
			require.NoError(t, prog.Close())
		}
		sameBits(t, got[1], got[0], "%d %s", i, precision)
		limit := map[string]float64{"int16": 2e-3, "int8": 0.3, "fp32": 1e-4}[precision]
		for j, v := range want.Floats() {
			require.InDelta(t, v, got[0].Floats()[j], limit, "%d %+v %v", i, op, want.Spec)
		}
	}
}

func TestSupportsSaysWhy(t *testing.T) {
	b := openT(t, "rows=4")
	f := func(d tensor.DType, dims ...int) tensor.Spec { return tensor.MakeSpec(d, dims...) }
	weights := []bool{false, true}
	for _, c := range []struct {
		op   ops.Op
		in   []tensor.Spec
		cons []bool
		ok   bool
		why  string
	}{
		{matmul.Op{}, []tensor.Spec{f(tensor.F32, 8, 16), f(tensor.F32, 16, 4)}, weights, true, "int16 product on the emulated array"},
		{matmul.Op{}, []tensor.Spec{f(tensor.F32, 3, 16), f(tensor.F32, 16, 4)}, weights, false, "3 rows, the option rows asks for 4"},
		{matmul.Op{}, []tensor.Spec{f(tensor.F32, 8, 16), f(tensor.F32, 16, 4)}, []bool{false, false}, false, "B is no constant"},
		{matmul.Op{}, []tensor.Spec{f(tensor.F64, 8, 16), f(tensor.F64, 16, 4)}, weights, false, "no product of f64 and f64"},
		{matmul.Op{Out: tensor.BF16}, []tensor.Spec{f(tensor.F32, 8, 16), f(tensor.F32, 16, 4)}, weights, false, "result bf16"},
		{conv.Conv{Groups: 2}, []tensor.Spec{f(tensor.F32, 1, 4, 8, 8), f(tensor.F32, 4, 2, 3, 3)}, weights, false, "2 groups"},
		{conv.Pool{}, []tensor.Spec{f(tensor.F32, 1, 4, 8, 8)}, nil, false, "stays with the processor"},
	} {
		v := b.Supports(ops.Call{Op: c.op, In: c.in, Const: c.cons})
		require.Equal(t, c.ok, v.OK, "%v %s", c.in, v.Reason)
		require.Contains(t, v.Reason, c.why)
		if v.OK {
			require.Positive(t, v.Cost)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	for options, want := range map[string]string{
		"tiles=401":             "a number from 0 to 400 is right",
		"precision=int4":        "one of int16, int8, fp32 is right",
		"design=paper,tiles=17": "up to 16 is right",
		"mode=silicon":          "one of fast, emulate is right",
		"colour=red":            `unknown option "colour"`,
	} {
		_, err := backends.Open("aie:" + options)
		require.ErrorContains(t, err, want, options)
	}
	b := openT(t, "")
	require.Equal(t, "aie", b.Name())
	require.True(t, b.Describe().Simulated)
	require.Contains(t, b.Describe().Device, "VC1902")
}

func TestForeignWeightsAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	e1, e2 := openT(t, "").engine, openT(t, "precision=int8").engine
	spec := matmul.Spec{N: 4, K: 8, A: tensor.F32, B: tensor.F32, C: tensor.F32}
	w, err := e1.Pack(context.Background(), spec, floats(rng, 8, 4))
	require.NoError(t, err)
	p, err := e2.Plan(spec, matmul.Shape{M: 2})
	require.NoError(t, err)
	args := matmul.Args{A: floats(rng, 2, 8), C: tensor.New(tensor.F32, 2, 4)}
	require.ErrorContains(t, p.Run(context.Background(), w, &args, &matmul.Workspace{}), "pack them here")
	p1, err := e1.Plan(spec, matmul.Shape{M: 2})
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.ErrorContains(t, p1.Run(context.Background(), w, &args, &matmul.Workspace{}), "closed")
	_, err = e1.Pack(context.Background(), spec, floats(rng, 4, 8))
	require.ErrorContains(t, err, "pack of")
}

func TestRunsWithoutAllocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	b := openT(t, "threads=1,precision=fp32") // which needs no product of the CPU's engine, whose allocations have a test of their own
	p, frame := part(t, matmul.Op{}, floats(rng, 16, 64), floats(rng, 64, 48))
	prog, err := b.Compile(context.Background(), p)
	require.NoError(t, err)
	run := func() {
		if err := prog.Run(context.Background(), frame, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	run()
	require.Zero(t, testing.AllocsPerRun(20, run))
}
