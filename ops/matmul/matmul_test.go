package matmul_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func random(seed uint64, dims ...int) tensor.Tensor {
	r := rand.New(rand.NewPCG(seed, 3))
	t := tensor.New(tensor.F32, dims...)
	for i, d := 0, tensor.Data[float32](t); i < len(d); i++ {
		d[i] = float32(r.NormFloat64())
	}
	return t
}

// TestHandComputed: products that a reader can follow, B as [K,N] and as [N,K].
func TestHandComputed(t *testing.T) {
	a := optest.F32([]int{2, 3}, 1, 2, 3, 4, 5, 6)
	b := optest.F32([]int{3, 2}, 7, 8, 9, 10, 11, 12)
	want := []float64{58, 64, 139, 154}
	require.Equal(t, want, optest.Run(t, matmul.Op{}, a, b)[0].Floats())
	bt := optest.F32([]int{2, 3}, 7, 9, 11, 8, 10, 12)
	require.Equal(t, want, optest.Run(t, matmul.Op{TransB: true}, a, bt)[0].Floats())
	flip, err := b.Transpose(0, 1)
	require.NoError(t, err)
	require.Equal(t, want, optest.Run(t, matmul.Op{TransB: true}, a, flip)[0].Floats(), "a transposed view")
	// Views of 1..16 as 4x4: M[0:3,0:3] times M[0:3,3:4].
	m := optest.F32([]int{4, 4}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	cut := func(r, c0, c1 int) tensor.Tensor {
		v, err := m.Slice(0, 0, r, 1)
		require.NoError(t, err)
		v, err = v.Slice(1, c0, c1, 1)
		require.NoError(t, err)
		return v
	}
	require.Equal(t, []float64{56, 152, 248}, optest.Run(t, matmul.Op{}, cut(3, 0, 3), cut(3, 3, 4))[0].Floats())
}

// TestIdentity: a product with the identity gives A bit for bit, and so does one on the left.
func TestIdentity(t *testing.T) {
	for _, n := range []int{1, 2, 7, 16, 33} {
		a, id := random(uint64(n), n, n), tensor.New(tensor.F32, n, n)
		for i := range n {
			tensor.Data[float32](id)[i*n+i] = 1
		}
		require.Equal(t, a.Floats(), optest.Run(t, matmul.Op{}, a, id)[0].Floats())
		require.Equal(t, a.Floats(), optest.Run(t, matmul.Op{}, id, a)[0].Floats())
	}
}

// TestAlgebra: (A B) t = A (B t), an identity that needs no second implementation.
func TestAlgebra(t *testing.T) {
	a, b, v := random(1, 9, 20), random(2, 20, 30), random(3, 30, 1)
	ab := optest.Run(t, matmul.Op{}, a, b)[0]
	left := optest.Run(t, matmul.Op{}, ab, v)[0].Floats()
	right := optest.Run(t, matmul.Op{}, a, optest.Run(t, matmul.Op{}, b, v)[0])[0].Floats()
	require.InDeltaSlice(t, right, left, 1e-4)
}

func TestBatchBroadcast(t *testing.T) {
	// d[b] = b+1 as [10,1,1] times e as [10,1,10]: e scaled (gorgonia issue 552).
	d, e := tensor.New(tensor.F32, 10, 1, 1), random(4, 10, 1, 10)
	for i := range 10 {
		tensor.Data[float32](d)[i] = float32(i + 1)
	}
	got, in := optest.Run(t, matmul.Op{}, d, e)[0].Floats(), e.Floats()
	for i := range got {
		require.Equal(t, float64(float32(in[i]*float64(i/10+1))), got[i])
	}
	// One B for all, and one A for all.
	a, b := random(5, 3, 2, 4), random(6, 4, 5)
	all := optest.Run(t, matmul.Op{}, a, b)[0]
	for i := range 3 {
		ai, err := a.Index(0, i)
		require.NoError(t, err)
		ci, err := all.Index(0, i)
		require.NoError(t, err)
		require.Equal(t, optest.Run(t, matmul.Op{}, ai, b)[0].Floats(), ci.Floats())
	}
	require.Equal(t, []int{3, 2, 5}, all.Shape())
}

func TestEmptyAndSpecial(t *testing.T) {
	nan := float32(math.NaN())
	require.Equal(t, make([]float64, 20), optest.Run(t, matmul.Op{}, tensor.New(tensor.F32, 4, 0), tensor.New(tensor.F32, 0, 5))[0].Floats(), "K = 0 gives zeros")
	require.Equal(t, []int{0, 5}, optest.Run(t, matmul.Op{}, tensor.New(tensor.F32, 0, 3), tensor.New(tensor.F32, 3, 5))[0].Shape())
	out := optest.Run(t, matmul.Op{}, optest.F32([]int{1, 2}, 0, 1), optest.F32([]int{2, 2}, nan, 1, 2, float32(math.Inf(1))))[0].Floats()
	require.True(t, math.IsNaN(out[0]), "zero times NaN is NaN")
	require.True(t, math.IsInf(out[1], 1))
	op := matmul.Op{Epilogue: matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}}
	require.Equal(t, []float64{0, 2}, optest.Run(t, op, tensor.New(tensor.F32, 1, 0), tensor.New(tensor.F32, 0, 2), optest.F32([]int{2}, -1, 2))[0].Floats())
}

// TestIntegers: sums are exact modulo 2^32, where kernels that add pairs in 16 bits would clip; narrow results wrap, or are scaled,
// rounded to even and saturated.
func TestIntegers(t *testing.T) {
	same := func(d tensor.DType, v int64, dims ...int) tensor.Tensor {
		x := tensor.New(d, dims...)
		s := make([]int64, x.Elems())
		for i := range s {
			s[i] = v
		}
		x.SetInts(s)
		return x
	}
	for _, c := range []struct {
		a, b tensor.DType
		x, y int64
		k    int
		want int64
	}{
		{tensor.U8, tensor.I8, 255, 127, 4, 129540},
		{tensor.U8, tensor.I8, 255, -128, 64, -2088960},
		{tensor.I8, tensor.I8, -128, -128, 64, 1048576},
		{tensor.I8, tensor.I8, -128, -128, 1 << 17, math.MinInt32}, // 2^31 wraps
		{tensor.I16, tensor.I16, -32768, 32767, 2, -2147418112},
	} {
		require.Equal(t, []int64{c.want}, optest.Run(t, matmul.Op{}, same(c.a, c.x, 1, c.k), same(c.b, c.y, c.k, 1))[0].Ints())
	}
	a, b := same(tensor.I8, 10, 1, 3), same(tensor.I8, 10, 3, 1) // 300
	require.Equal(t, []int64{44}, optest.Run(t, matmul.Op{Out: tensor.I8}, a, b)[0].Ints())
	for _, c := range []struct {
		scale float32
		zero  int32
		want  int64
	}{{1, 0, 127}, {8, 0, 38}, {24, 0, 12}, {4, -3, 72}, {100, 200, 127}} { // 300/8 = 37.5 and 300/24 = 12.5 round to even
		op := matmul.Op{Out: tensor.I8, Epilogue: matmul.Epilogue{ColScale: true, OutScale: c.scale, OutZero: c.zero}}
		require.Equal(t, []int64{c.want}, optest.Run(t, op, a, b, optest.F32([]int{1}, 1))[0].Ints(), c)
	}
}

// TestEpilogueOrder: scales, bias, residual before, activation, residual after.
func TestEpilogueOrder(t *testing.T) {
	a, b := optest.F32([]int{1, 1}, 2), optest.F32([]int{1, 1}, 3)
	rs, cs, bias, res := optest.F32([]int{1}, 10), optest.F32([]int{1}, 0.5), optest.F32([]int{1}, -40), optest.F32([]int{1, 1}, 7)
	e := matmul.Epilogue{RowScale: true, ColScale: true, Bias: true, Residual: matmul.ResidualBefore, Act: ops.Act{Kind: ops.LeakyReLU, P: 0.5}}
	require.Equal(t, []float64{(2*3*10*0.5 - 40 + 7) * 0.5}, optest.Run(t, matmul.Op{Epilogue: e}, a, b, rs, cs, bias, res)[0].Floats())
	e.Residual = matmul.ResidualAfter
	require.Equal(t, []float64{(2*3*10*0.5-40)*0.5 + 7}, optest.Run(t, matmul.Op{Epilogue: e}, a, b, rs, cs, bias, res)[0].Floats())
}

func TestBlocks(t *testing.T) {
	w := random(7, 5, 64)
	q, err := quant.Encode(tensor.Q8_0, w)
	require.NoError(t, err)
	d, err := quant.Decode(q)
	require.NoError(t, err)
	a := random(8, 3, 64)
	require.Equal(t, optest.Run(t, matmul.Op{TransB: true}, a, d)[0].Floats(), optest.Run(t, matmul.Op{TransB: true}, a, q)[0].Floats())
}

func TestErrors(t *testing.T) {
	s := func(d tensor.DType, dims ...int) tensor.Spec { return tensor.MakeSpec(d, dims...) }
	f := tensor.F32
	optest.Error(t, matmul.Op{}, []string{"K = 3", "K = 4"}, s(f, 2, 3), s(f, 4, 5))
	optest.Error(t, matmul.Op{TransB: true}, []string{"K = 3", "K = 5"}, s(f, 2, 3), s(f, 4, 5))
	optest.Error(t, matmul.Op{}, []string{"two dimensions"}, s(f, 3), s(f, 3, 5))
	optest.Error(t, matmul.Op{}, []string{"batch dimensions"}, s(f, 2, 2, 3), s(f, 3, 3, 5))
	optest.Error(t, matmul.Op{}, []string{"no product", "bool"}, s(tensor.Bool, 2, 3), s(f, 3, 5))
	optest.Error(t, matmul.Op{Out: tensor.I32}, []string{"no product", "i32"}, s(f, 2, 3), s(f, 3, 5))
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{Bias: true}}, []string{"bias", "f32[5]"}, s(f, 2, 3), s(f, 3, 5), s(f, 4))
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{RowScale: true}}, []string{"row scales", "f32[2]"}, s(f, 2, 3), s(f, 3, 5), s(f, 5))
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{Residual: matmul.ResidualAfter}}, []string{"residual", "f32[2 5]"}, s(f, 2, 3), s(f, 3, 5), s(f, 5))
	optest.Comparable(t, matmul.Op{})
	c, a, b := tensor.New(f, 2, 5), tensor.New(f, 2, 3), tensor.New(f, 3, 5)
	require.ErrorContains(t, matmul.MatMul(tensor.New(f, 5, 2), a, b), "C is f32[5 2], f32[2 5] is right")
	sq := tensor.New(f, 3, 3)
	require.ErrorContains(t, matmul.MatMul(sq, sq, tensor.New(f, 3, 3)), "C overlaps operand 0")
	ro, err := tensor.At(tensor.WrapReadOnly(make([]byte, 40)), 0, c.Spec)
	require.NoError(t, err)
	require.ErrorIs(t, matmul.MatMul(ro, a, b), tensor.ErrReadOnly)
	require.Error(t, matmul.MatMul(c, a, b, matmul.WithEpilogue(matmul.Epilogue{Bias: true})))
}

// TestMatMulWithoutGraph: the public call is the op, with an engine or the reference, and does not read what C held.
func TestMatMulWithoutGraph(t *testing.T) {
	a, b, bias := random(9, 2, 7, 20), random(10, 20, 9), random(11, 9)
	c := tensor.New(tensor.F32, 2, 7, 9)
	for i, d := 0, tensor.Data[float32](c); i < len(d); i++ {
		d[i] = float32(math.NaN())
	}
	e := matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}
	require.NoError(t, matmul.MatMul(c, a, b, matmul.WithEpilogue(e, bias), matmul.WithReference(), matmul.WithThreads(1)))
	require.Equal(t, optest.Run(t, matmul.Op{Epilogue: e}, a, b, bias)[0].Floats(), c.Floats())
}

func TestProblem(t *testing.T) {
	op := matmul.Op{TransB: true, Epilogue: matmul.Epilogue{Bias: true}}
	in := []tensor.Spec{tensor.MakeSpec(tensor.F32, 5, 4, 3, 2, 6), tensor.MakeSpec(tensor.BF16, 8, 6), tensor.MakeSpec(tensor.F32, 8)}
	out, err := op.Infer(in)
	require.NoError(t, err)
	spec, shape := op.Problem(in, out[0])
	require.Equal(t, matmul.Spec{N: 8, K: 6, A: tensor.F32, B: tensor.BF16, C: tensor.F32, BLayout: matmul.ColMajor, Epilogue: op.Epilogue}, spec)
	require.Equal(t, 2, shape.M)
	require.Equal(t, 60, shape.Batches())
	require.Equal(t, 2.0*60*2*8*6, op.Flops(in))
}

// TestOutsideTheBuffer: operands that do not lie in their buffers are errors that name them, with the reference and with an engine, and nothing is
// written.
func TestOutsideTheBuffer(t *testing.T) {
	e := matmul.Epilogue{RowScale: true, ColScale: true, Bias: true, Residual: matmul.ResidualAfter}
	breaks := map[string]func(x *tensor.Tensor){
		"short buffer":          func(x *tensor.Tensor) { x.Buf = tensor.WrapBytes(x.Buf.Bytes()[:len(x.Buf.Bytes())-1]) },
		"no buffer":             func(x *tensor.Tensor) { x.Buf = nil },
		"empty buffer":          func(x *tensor.Tensor) { x.Buf = tensor.NewBuffer(0) },
		"offset":                func(x *tensor.Tensor) { x.Off = 4 },
		"offset behind":         func(x *tensor.Tensor) { x.Off = len(x.Buf.Bytes()) + 1 },
		"offset at the end":     func(x *tensor.Tensor) { x.Off = len(x.Buf.Bytes()) },
		"huge offset":           func(x *tensor.Tensor) { x.Off = math.MaxInt },
		"negative offset":       func(x *tensor.Tensor) { x.Off = -4 },
		"least offset":          func(x *tensor.Tensor) { x.Off = math.MinInt },
		"long stride":           func(x *tensor.Tensor) { x.Strides[0]++ },
		"huge stride":           func(x *tensor.Tensor) { x.Strides[0] = math.MaxInt },
		"stride that wraps":     func(x *tensor.Tensor) { x.Strides[0] = math.MaxInt/2 + 1 },
		"negative stride":       func(x *tensor.Tensor) { x.Strides[0] = -x.Strides[0] },
		"negative stride, last": func(x *tensor.Tensor) { x.Strides[x.Rank-1] = -1 },
		"least stride":          func(x *tensor.Tensor) { x.Strides[0] = math.MinInt },
	}
	for what, spoil := range breaks {
		for i, name := range []string{"C", "A", "B", "row scales", "column scales", "bias", "residual"} {
			all := []tensor.Tensor{random(1, 3, 5), random(2, 3, 4), random(3, 4, 5), random(4, 3), random(5, 5), random(6, 5), random(7, 3, 5)}
			c := all[0]
			before := c.Floats()
			spoil(&all[i])
			for _, opts := range [][]matmul.Option{nil, {matmul.WithReference()}} {
				err := matmul.MatMul(all[0], all[1], all[2], append(opts, matmul.WithEpilogue(e, all[3:]...))...)
				require.ErrorContains(t, err, "matmul: "+name+": ", what)
				require.Equal(t, before, c.Floats(), what)
			}
		}
	}
	for what, spoil := range map[string]func(x *tensor.Tensor){
		"rank":           func(x *tensor.Tensor) { x.Rank = tensor.MaxRank + 1 },
		"size overflows": func(x *tensor.Tensor) { x.Dims[0], x.Strides[0] = math.MaxInt/2, 0 },
		"negative":       func(x *tensor.Tensor) { x.Dims[0] = -3 },
	} {
		all := []tensor.Tensor{random(1, 3, 5), random(2, 3, 4), random(3, 4, 5)}
		for i := range all {
			x := slices.Clone(all)
			spoil(&x[i])
			require.Error(t, matmul.MatMul(x[0], x[1], x[2]), what)
		}
	}
	q, err := quant.Encode(tensor.Q8_0, random(8, 5, 64))
	require.NoError(t, err)
	c, a := tensor.New(tensor.F32, 3, 64), random(9, 3, 5)
	for _, spoil := range []func(x *tensor.Tensor){
		func(x *tensor.Tensor) { x.Strides[0]++ },
		func(x *tensor.Tensor) { x.Strides[0] += 32 },
		func(x *tensor.Tensor) { x.Strides[1] = 0 },
		func(x *tensor.Tensor) { x.Off = 1 },
	} {
		x := q
		spoil(&x)
		require.ErrorContains(t, matmul.MatMul(c, a, x), "matmul: B: ")
	}
	// What is empty may lie anywhere, and what is repeated or starts anywhere in the buffer is right.
	empty := tensor.New(tensor.F32, 3, 0)
	empty.Off, empty.Strides[0] = 99, 7
	require.NoError(t, matmul.MatMul(c, empty, tensor.New(tensor.F32, 0, 64)))
	row := random(10, 1, 5)
	row.Dims[0], row.Strides[0] = 3, 0
	require.NoError(t, matmul.MatMul(c, row, random(11, 5, 64)))
}

// TestColumnsBesides: C may be a range of columns between those of an operand, and any other common byte is refused.
func TestColumnsBesides(t *testing.T) {
	const rows, wide = 6, 12
	cut := func(m tensor.Tensor, r0, r1, c0, c1 int) tensor.Tensor {
		v, err := m.Slice(0, r0, r1, 1)
		require.NoError(t, err)
		v, err = v.Slice(1, c0, c1, 1)
		require.NoError(t, err)
		return v
	}
	allowed, refused := 0, 0
	r := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		m := random(12, rows, wide)
		r0, q0, n := r.IntN(3), r.IntN(3), 1+r.IntN(4)
		ca, cc := r.IntN(wide-1), r.IntN(wide-1)
		k, nc := 1+r.IntN(wide-ca-1), 1+r.IntN(wide-cc-1)
		a, c := cut(m, r0, min(r0+n, rows), ca, ca+k), cut(m, q0, min(q0+n, rows), cc, cc+nc)
		if a.Dims[0] != c.Dims[0] {
			continue
		}
		bytes := map[int]bool{} // elements of A, by definition
		for i := r0; i < r0+a.Dims[0]; i++ {
			for j := ca; j < ca+k; j++ {
				bytes[i*wide+j] = true
			}
		}
		common := false
		for i := q0; i < q0+c.Dims[0]; i++ {
			for j := cc; j < cc+nc; j++ {
				common = common || bytes[i*wide+j]
			}
		}
		b := random(13, k, nc)
		want := optest.Run(t, matmul.Op{}, a.Clone(), b)[0].Floats()
		before, rest := m.Clone(), cut(m, q0, q0+c.Dims[0], cc, cc+nc)
		err := matmul.MatMul(c, a, b)
		if common {
			refused++
			require.ErrorContains(t, err, "C overlaps operand 0, A")
			require.Equal(t, before.Floats(), m.Floats())
			continue
		}
		if ca >= cc+nc || cc >= ca+k {
			allowed++
			require.NoError(t, err)
		}
		if err == nil {
			require.InDeltaSlice(t, want, rest.Floats(), 1e-5)
			old := cut(before, q0, q0+c.Dims[0], cc, cc+nc)
			require.NoError(t, tensor.Copy(old, rest))
			require.Equal(t, before.Floats(), m.Floats(), "the other columns")
		}
	}
	require.Greater(t, allowed, 100)
	require.Greater(t, refused, 100)
	// Batches, whose matrices have rows of the same distance; rows of another distance and columns with gaps are refused.
	m := random(14, 2, 3, 10)
	left, err := m.Slice(2, 0, 4, 1)
	require.NoError(t, err)
	right, err := m.Slice(2, 4, 10, 1)
	require.NoError(t, err)
	b := random(15, 4, 6)
	want := optest.Run(t, matmul.Op{}, left.Clone(), b)[0].Floats()
	require.NoError(t, matmul.MatMul(right, left, b))
	require.InDeltaSlice(t, want, right.Floats(), 1e-5)
	even, err := m.Slice(2, 0, 8, 2)
	require.NoError(t, err)
	require.ErrorContains(t, matmul.MatMul(right, even, b), "overlaps")
	far := left
	far.Dims[1], far.Strides[1] = 2, 15
	near := right
	near.Dims[1] = 2
	require.ErrorContains(t, matmul.MatMul(near, far, b), "overlaps")
}

// BenchmarkCall measures what a call costs beside its product, which is small.
func BenchmarkCall(b *testing.B) {
	for _, n := range []int{4, 16, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			x, y, z := tensor.New(tensor.F32, n, n), tensor.New(tensor.F32, n, n), tensor.New(tensor.F32, n, n)
			b.ReportAllocs()
			for b.Loop() {
				if err := matmul.MatMul(z, x, y, matmul.WithThreads(1)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Vectors of one element have a dimension, and an epilogue is one of those that there are.
func TestOddEpilogues(t *testing.T) {
	a, b, scalar := tensor.MakeSpec(tensor.F32, 3, 2), tensor.MakeSpec(tensor.F32, 2, 1), tensor.MakeSpec(tensor.F32)
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{Bias: true}}, []string{"bias", "f32[1]"}, a, b, scalar)
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{ColScale: true}}, []string{"column scales", "f32[1]"}, a, b, scalar)
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{Act: ops.Act{Kind: 99}}}, []string{"Activation(99)"}, a, b)
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{Residual: 3}}, []string{"residual"}, a, b, tensor.MakeSpec(tensor.F32, 3, 1))
	blocks := tensor.MakeSpec(tensor.Q8_0, 3, 32)
	optest.Error(t, matmul.Op{Epilogue: matmul.Epilogue{Residual: matmul.ResidualAfter}}, []string{"residual"}, a, tensor.MakeSpec(tensor.F32, 2, 32), blocks)
}

// Integer products are exact modulo 2^32, also of integers that float64 does not hold.
func TestLongIntegers(t *testing.T) {
	a := tensor.Of([]int64{1<<53 + 1, math.MaxInt64, math.MinInt64 + 5}, 1, 3)
	b := tensor.Of([]int64{3, 1, 2}, 3, 1)
	require.Equal(t, []int64{3 - 1 + 10}, optest.Run(t, matmul.Op{}, a, b)[0].Ints())
	u := tensor.Of([]uint64{math.MaxUint64, 1 << 63, 7}, 1, 3)
	require.Equal(t, []int64{-1 + 14}, optest.Run(t, matmul.Op{}, u, tensor.Of([]uint64{1, 1, 2}, 3, 1))[0].Ints())
}
