package elementwise_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

var (
	nan = math.NaN()
	inf = math.Inf(1)
)

// same demands equal numbers, NaN equal to itself, to a relative 1e-12.
func same(t *testing.T, want, got []float64, what any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		switch {
		case math.IsNaN(want[i]):
			require.True(t, math.IsNaN(got[i]), "%v: element %d is %v, NaN is right", what, i, got[i])
		case math.IsInf(want[i], 0) || want[i] == 0:
			require.Equal(t, want[i], got[i], "%v: element %d", what, i)
		default:
			require.InEpsilon(t, want[i], got[i], 1e-12, "%v: element %d", what, i)
		}
	}
}

func TestUnary(t *testing.T) {
	for _, c := range []struct {
		f        elementwise.Func
		in, want []float64
	}{
		{elementwise.Neg, []float64{1, -2, inf}, []float64{-1, 2, -inf}},
		{elementwise.Abs, []float64{-1.5, 0, -inf, nan}, []float64{1.5, 0, inf, nan}},
		{elementwise.Sign, []float64{-3, 0, 8, nan}, []float64{-1, 0, 1, nan}},
		{elementwise.Sqr, []float64{-3, 0.5}, []float64{9, 0.25}},
		{elementwise.Exp, []float64{0, 1, -inf}, []float64{1, math.E, 0}},
		{elementwise.Expm1, []float64{1e-10}, []float64{1.00000000005e-10}},
		{elementwise.Log, []float64{1, 0, -1}, []float64{0, -inf, nan}},
		{elementwise.Log1p, []float64{1e-10}, []float64{9.9999999995e-11}},
		{elementwise.Sqrt, []float64{9, -1}, []float64{3, nan}},
		{elementwise.Rsqrt, []float64{4, 0}, []float64{0.5, inf}},
		{elementwise.Reciprocal, []float64{4, 0, -inf}, []float64{0.25, inf, math.Copysign(0, -1)}},
		{elementwise.Floor, []float64{-1.5, 1.5}, []float64{-2, 1}},
		{elementwise.Ceil, []float64{-1.5, 1.5}, []float64{-1, 2}},
		{elementwise.Round, []float64{0.5, 1.5, 2.5, -0.6}, []float64{0, 2, 2, -1}},
		{elementwise.Trunc, []float64{-1.7, 1.7}, []float64{-1, 1}},
		{elementwise.Sin, []float64{math.Pi / 6}, []float64{0.5}},
		{elementwise.Cos, []float64{math.Pi / 3}, []float64{0.5}},
		{elementwise.Tan, []float64{math.Pi / 4}, []float64{1}},
		{elementwise.Asin, []float64{1, 2}, []float64{math.Pi / 2, nan}},
		{elementwise.Acos, []float64{-1}, []float64{math.Pi}},
		{elementwise.Atan, []float64{1}, []float64{math.Pi / 4}},
		{elementwise.Sinh, []float64{math.Log(2)}, []float64{0.75}},
		{elementwise.Cosh, []float64{math.Log(2)}, []float64{1.25}},
		{elementwise.Asinh, []float64{0.75}, []float64{math.Log(2)}},
		{elementwise.Acosh, []float64{1.25}, []float64{math.Log(2)}},
		{elementwise.Atanh, []float64{0.6}, []float64{math.Log(2)}},
		{elementwise.Erf, []float64{0, 1}, []float64{0, 0.8427007929497149}},
		{elementwise.IsNaN, []float64{nan, inf, 0}, []float64{1, 0, 0}},
		{elementwise.IsInf, []float64{nan, inf, -inf, 3}, []float64{0, 1, 1, 0}},
	} {
		out := optest.Run(t, elementwise.Unary{F: c.f}, optest.F64([]int{len(c.in)}, c.in...))
		same(t, c.want, out[0].Floats(), c.f)
	}
	not := optest.Run(t, elementwise.Unary{F: elementwise.Not}, tensor.Of([]bool{true, false}, 2))
	require.Equal(t, []int64{0, 1}, not[0].Ints())
}

func TestUnaryIntegersWrap(t *testing.T) {
	x := tensor.Of([]int8{-128, -1, 0, 7}, 4)
	for f, want := range map[elementwise.Func][]int64{
		elementwise.Neg: {-128, 1, 0, -7}, elementwise.Abs: {-128, 1, 0, 7}, elementwise.Sign: {-1, -1, 0, 1},
		elementwise.Sqr: {0, 1, 0, 49}, elementwise.BitNot: {127, 0, -1, -8},
	} {
		require.Equal(t, want, optest.Run(t, elementwise.Unary{F: f}, x)[0].Ints(), f)
	}
	u := tensor.Of([]uint64{math.MaxUint64, 0}, 2)
	require.Equal(t, []int64{1, 0}, optest.Run(t, elementwise.Unary{F: elementwise.Sign}, u)[0].Ints())
	require.Equal(t, []uint64{math.MaxUint64, 0}, tensor.Data[uint64](optest.Run(t, elementwise.Unary{F: elementwise.Abs}, u)[0]))
}

// TestFunctionsAreKnown: every function has a name of its own, a value, and types that it takes.
func TestFunctionsAreKnown(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range elementwise.Funcs() {
		require.NotContains(t, seen, f.String())
		seen[f.String()] = true
		taken := 0
		for _, d := range []tensor.DType{tensor.F32, tensor.I32, tensor.Bool} {
			if _, err := (elementwise.Unary{F: f}).Infer([]tensor.Spec{tensor.MakeSpec(d, 2)}); err == nil {
				taken++
			}
		}
		require.Positive(t, taken, f)
	}
	for _, f := range elementwise.Funcs2() {
		require.NotContains(t, seen, f.String())
		seen[f.String()] = true
	}
}

func TestBinary(t *testing.T) {
	x, y := []float64{7, -7, 1, nan, inf}, []float64{3, 3, 0, 1, inf}
	for f, want := range map[elementwise.Func2][]float64{
		elementwise.Add:          {10, -4, 1, nan, inf},
		elementwise.Sub:          {4, -10, 1, nan, nan},
		elementwise.Mul:          {21, -21, 0, nan, inf},
		elementwise.Div:          {7.0 / 3, -7.0 / 3, inf, nan, nan},
		elementwise.Pow:          {343, -343, 1, nan, inf},
		elementwise.Min:          {3, -7, 0, nan, inf},
		elementwise.Max:          {7, 3, 1, nan, inf},
		elementwise.Mod:          {1, 2, nan, nan, nan},
		elementwise.FMod:         {1, -1, nan, nan, nan},
		elementwise.Equal:        {0, 0, 0, 0, 1},
		elementwise.NotEqual:     {1, 1, 1, 1, 0},
		elementwise.Less:         {0, 1, 0, 0, 0},
		elementwise.LessEqual:    {0, 1, 0, 0, 1},
		elementwise.Greater:      {1, 0, 1, 0, 0},
		elementwise.GreaterEqual: {1, 0, 1, 0, 1},
	} {
		out := optest.Run(t, elementwise.Binary{F: f}, optest.F64([]int{5}, x...), optest.F64([]int{5}, y...))
		same(t, want, out[0].Floats(), f)
	}
	// NaN wins over infinity too.
	out := optest.Run(t, elementwise.Binary{F: elementwise.Max}, optest.F64([]int{2}, inf, nan), optest.F64([]int{2}, nan, inf))
	same(t, []float64{nan, nan}, out[0].Floats(), "max")
}

func TestBinaryIntegers(t *testing.T) {
	x, y := tensor.Of([]int32{7, -7, math.MinInt32, 5, 1 << 30}, 5), tensor.Of([]int32{3, 3, -1, 0, 4}, 5)
	for f, want := range map[elementwise.Func2][]int64{
		elementwise.Add: {10, -4, math.MaxInt32, 5, 1<<30 + 4}, elementwise.Mul: {21, -21, math.MinInt32, 0, 0},
		elementwise.Div: {2, -2, math.MinInt32, 0, 1 << 28}, elementwise.Mod: {1, 2, 0, 0, 0}, elementwise.FMod: {1, -1, 0, 0, 0},
		elementwise.Pow: {343, -343, 0, 1, 0}, elementwise.ShiftLeft: {56, -56, 0, 5, 0}, elementwise.ShiftRight: {0, -1, -1, 5, 1 << 26},
		elementwise.BitAnd: {3, 1, math.MinInt32, 0, 0}, elementwise.BitOr: {7, -5, -1, 5, 1<<30 + 4}, elementwise.BitXor: {4, -6, math.MaxInt32, 5, 1<<30 + 4},
	} {
		require.Equal(t, want, optest.Run(t, elementwise.Binary{F: f}, x, y)[0].Ints(), f)
	}
	// Unsigned order and division at the top of 64 bits.
	u, v := tensor.Of([]uint64{math.MaxUint64}, 1), tensor.Of([]uint64{2}, 1)
	require.Equal(t, []int64{1}, optest.Run(t, elementwise.Binary{F: elementwise.Greater}, u, v)[0].Ints())
	require.Equal(t, uint64(math.MaxUint64/2), tensor.Data[uint64](optest.Run(t, elementwise.Binary{F: elementwise.Div}, u, v)[0])[0])
	// A product that needs all 64 bits on the way keeps its low ones.
	big := tensor.Of([]uint32{4000000001}, 1)
	require.Equal(t, []int64{int64(uint32(4000000001 * 4000000001 & (1<<32 - 1)))}, optest.Run(t, elementwise.Binary{F: elementwise.Mul}, big, big)[0].Ints())
	b, c := tensor.Of([]bool{true, true, false, false}, 4), tensor.Of([]bool{true, false, true, false}, 4)
	require.Equal(t, []int64{1, 0, 0, 0}, optest.Run(t, elementwise.Binary{F: elementwise.And}, b, c)[0].Ints())
	require.Equal(t, []int64{1, 1, 1, 0}, optest.Run(t, elementwise.Binary{F: elementwise.Or}, b, c)[0].Ints())
	require.Equal(t, []int64{0, 1, 1, 0}, optest.Run(t, elementwise.Binary{F: elementwise.Xor}, b, c)[0].Ints())
}

// TestBroadcast aligns from the innermost dimension: [1,2] + 1..8 as [2,2,2], the case of gorgonia issues 366, 367 and 383.
func TestBroadcast(t *testing.T) {
	out := optest.Run(t, elementwise.Binary{F: elementwise.Add}, optest.F32([]int{2}, 1, 2), optest.F32([]int{2, 2, 2}, 1, 2, 3, 4, 5, 6, 7, 8))
	require.Equal(t, tensor.MakeSpec(tensor.F32, 2, 2, 2), out[0].Spec)
	require.Equal(t, []float64{2, 4, 4, 6, 6, 8, 8, 10}, out[0].Floats())
	out = optest.Run(t, elementwise.Binary{F: elementwise.Mul}, optest.F32([]int{2, 1}, 1, 2), optest.F32([]int{1, 3}, 1, 10, 100))
	require.Equal(t, []float64{1, 10, 100, 2, 20, 200}, out[0].Floats())
	out = optest.Run(t, elementwise.Binary{F: elementwise.Add}, optest.F32([]int{0, 3}), optest.F32([]int{1, 3}, 1, 2, 3))
	require.Equal(t, tensor.MakeSpec(tensor.F32, 0, 3), out[0].Spec)
}

func TestTypes(t *testing.T) {
	f32, f16, bf16, i32 := tensor.MakeSpec(tensor.F32, 2), tensor.MakeSpec(tensor.F16, 2), tensor.MakeSpec(tensor.BF16, 2), tensor.MakeSpec(tensor.I32, 2)
	out, err := elementwise.Binary{F: elementwise.Add}.Infer([]tensor.Spec{f16, bf16})
	require.NoError(t, err)
	require.Equal(t, []tensor.Spec{f32}, out)
	out, err = elementwise.Binary{F: elementwise.Add}.Infer([]tensor.Spec{f16, f16})
	require.NoError(t, err)
	require.Equal(t, []tensor.Spec{f16}, out)
	optest.Error(t, elementwise.Binary{F: elementwise.Add}, []string{"add", "f32[2]", "i32[2]"}, f32, i32)
	optest.Error(t, elementwise.Binary{F: elementwise.And}, []string{"bool"}, f32, f32)
	optest.Error(t, elementwise.Binary{F: elementwise.BitAnd}, []string{"integer"}, f32, f32)
	optest.Error(t, elementwise.Binary{F: elementwise.Add}, []string{"broadcast"}, f32, tensor.MakeSpec(tensor.F32, 3))
	optest.Error(t, elementwise.Binary{F: elementwise.Add}, []string{"1 input,", "2 are right"}, f32)
	optest.Error(t, elementwise.Unary{F: elementwise.Sin}, []string{"sin", "floating-point"}, i32)
	optest.Error(t, elementwise.Where{}, []string{"bool"}, f32, f32, f32)
	optest.Error(t, elementwise.Where{}, []string{"one plain type"}, tensor.MakeSpec(tensor.Bool, 2), f32, i32)
	optest.Error(t, elementwise.Clamp{}, []string{"limit"}, f32, i32)
	optest.Error(t, elementwise.Cast{To: tensor.Q8_0}, []string{"plain type"}, f32)
	optest.Error(t, elementwise.GLU{}, []string{"gate"}, f32, tensor.MakeSpec(tensor.F32, 3))
	optest.Error(t, elementwise.Activate{}, []string{"floating-point"}, i32)
	for _, op := range []ops.Op{elementwise.Unary{}, elementwise.Binary{}, elementwise.Activate{}, elementwise.Scale{}, elementwise.Cast{}, elementwise.GLU{}, elementwise.Where{}, elementwise.Clamp{}} {
		optest.Comparable(t, op)
	}
}

func TestWhereClampScale(t *testing.T) {
	out := optest.Run(t, elementwise.Where{}, tensor.Of([]bool{true, false}, 2, 1), optest.F32([]int{3}, 1, 2, 3), optest.F32(nil, -1))
	require.Equal(t, []float64{1, 2, 3, -1, -1, -1}, out[0].Floats())
	x := optest.F32([]int{5}, -2, -1, 0, 5, float32(nan))
	same(t, []float64{-1, -1, 0, 2, nan}, optest.Run(t, elementwise.Clamp{}, x, optest.F32(nil, -1), optest.F32(nil, 2))[0].Floats(), "both")
	same(t, []float64{-2, -1, 0, 2, nan}, optest.Run(t, elementwise.Clamp{}, x, tensor.Tensor{}, optest.F32(nil, 2))[0].Floats(), "upper")
	same(t, []float64{1, 1, 1, 1, nan}, optest.Run(t, elementwise.Clamp{}, x, optest.F32(nil, 3), optest.F32(nil, 1))[0].Floats(), "crossed: the upper one wins")
	require.Equal(t, []int64{0, 1, 3}, optest.Run(t, elementwise.Clamp{}, tensor.Of([]uint8{0, 1, 200}, 3), tensor.Tensor{}, tensor.Of([]uint8{3}, 1))[0].Ints())
	require.Equal(t, []float64{7, 3}, optest.Run(t, elementwise.Scale{Mul: -2, Add: 5}, optest.F32([]int{2}, -1, 1))[0].Floats())
}

func TestCast(t *testing.T) {
	x := optest.F32([]int{4}, 1.9, -1.9, 300, float32(nan))
	require.Equal(t, []int64{1, -1, 300, 0}, optest.Run(t, elementwise.Cast{To: tensor.I32}, x)[0].Ints())
	require.Equal(t, []int64{1, -1, 44, 0}, optest.Run(t, elementwise.Cast{To: tensor.I8}, x)[0].Ints(), "narrower integers wrap")
	require.Equal(t, []int64{1, 1, 1, 1}, optest.Run(t, elementwise.Cast{To: tensor.Bool}, x)[0].Ints())
	h := optest.Run(t, elementwise.Cast{To: tensor.F16}, optest.F32([]int{2}, 1+1.0/2048, 1+3.0/2048)) // ties
	require.Equal(t, []float64{1, 1 + 4.0/2048}, h[0].Floats())
	q, err := quant.Encode(tensor.Q8_0, optest.F32([]int{32}, make([]float32, 32)...))
	require.NoError(t, err)
	require.Equal(t, make([]float64, 32), optest.Run(t, elementwise.Cast{To: tensor.F32}, q)[0].Floats())
}

func TestGLU(t *testing.T) {
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	out := optest.Run(t, elementwise.GLU{Act: ops.Act{Kind: ops.SiLU}}, optest.F64([]int{3}, -1, 0, 2), optest.F64([]int{3}, 3, 4, 5))
	same(t, []float64{3 * silu(-1), 0, 5 * silu(2)}, out[0].Floats(), "swiglu")
}

// TestUnknownFunctions: a function that there is none of is refused by name, and its name can be asked for.
func TestUnknownFunctions(t *testing.T) {
	x := tensor.MakeSpec(tensor.F32, 2)
	optest.Error(t, elementwise.Unary{F: 200}, []string{"Func(200)"}, x)
	optest.Error(t, elementwise.Binary{F: 200}, []string{"Func2(200)"}, x, x)
	optest.Error(t, elementwise.Activate{Act: ops.Act{Kind: 200}}, []string{"Activation(200)"}, x)
	optest.Error(t, elementwise.GLU{Act: ops.Act{Kind: 200}}, []string{"Activation(200)"}, x, x)
	require.Equal(t, 1.0, ops.Act{Kind: ops.Clip, P: 5, Q: 1}.Apply(3), "where limits cross, the upper one wins")
	require.Equal(t, 1.0, ops.Act{Kind: ops.Clip, P: 5, Q: 1}.Apply(-3))
}
