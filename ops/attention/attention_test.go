package attention_test

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/internal/optest"
	"github.com/tessera-go/tessera/tensor"
)

var inf = math.Inf(1)

func random(seed uint64, dims ...int) tensor.Tensor {
	r := rand.New(rand.NewPCG(seed, 7))
	t := tensor.New(tensor.F64, dims...)
	for i, d := 0, tensor.Data[float64](t); i < len(d); i++ {
		d[i] = r.NormFloat64()
	}
	return t
}

func TestSoftmax(t *testing.T) {
	x := optest.F64([]int{2, 3}, 0, math.Log(2), math.Log(5), 1000, 1000, -inf)
	out := optest.Run(t, attention.Softmax{Axis: -1}, x)
	require.InDeltaSlice(t, []float64{1.0 / 8, 2.0 / 8, 5.0 / 8, 0.5, 0.5, 0}, out[0].Floats(), 1e-15)
	out = optest.Run(t, attention.Softmax{Axis: -1, Log: true}, x)
	require.InDeltaSlice(t, []float64{math.Log(1.0 / 8), math.Log(2.0 / 8), math.Log(5.0 / 8), math.Log(0.5), math.Log(0.5)}, out[0].Floats()[:5], 1e-12)
	require.Equal(t, -inf, out[0].Floats()[5])
	// Scale multiplies before; along the other axis.
	y := optest.F64([]int{2, 1}, math.Log(3), 0)
	out = optest.Run(t, attention.Softmax{Axis: 0, Scale: 2}, y)
	require.InDeltaSlice(t, []float64{0.9, 0.1}, out[0].Floats(), 1e-15)
}

// TestSoftmaxMasks: an added mask, a boolean one, and rows of which nothing is left, which give zeros and never NaN.
func TestSoftmaxMasks(t *testing.T) {
	x := optest.F64([]int{2, 2}, 1, 1, math.NaN(), 3)
	out := optest.Run(t, attention.Softmax{Axis: -1}, x, optest.F64([]int{2, 2}, math.Log(3), 0, -inf, -inf))
	require.InDeltaSlice(t, []float64{0.75, 0.25, 0, 0}, out[0].Floats(), 1e-15)
	out = optest.Run(t, attention.Softmax{Axis: -1}, x, tensor.Of([]bool{true, false, false, true}, 2, 2))
	require.Equal(t, []float64{1, 0, 0, 1}, out[0].Floats(), "a masked NaN is not looked at")
	out = optest.Run(t, attention.Softmax{Axis: -1}, x, tensor.Of([]bool{false}, 1))
	require.Equal(t, []float64{0, 0, 0, 0}, out[0].Floats())
	require.True(t, math.IsNaN(optest.Run(t, attention.Softmax{Axis: -1}, x)[0].Floats()[3]), "an unmasked NaN spreads over its row")
}

// TestRoPE compares with complex numbers: a pair is x + iy, and turning it is a product with exp(i theta).
func TestRoPE(t *testing.T) {
	const steps, heads, d = 3, 2, 8
	x := random(1, steps, heads, d)
	pos := tensor.Of([]int32{0, 5, 1000}, steps)
	for _, half := range []bool{false, true} {
		got := optest.Run(t, attention.RoPE{Half: half}, x, pos)[0].Floats()
		in := x.Floats()
		for s, p := range []float64{0, 5, 1000} {
			for h := range heads {
				for i := range d / 2 {
					a, b := 2*i, 2*i+1
					if half {
						a, b = i, i+d/2
					}
					at := (s*heads + h) * d
					z := complex(in[at+a], in[at+b]) * cmplx.Exp(complex(0, p*math.Pow(10000, -2*float64(i)/d)))
					require.InDelta(t, real(z), got[at+a], 1e-12)
					require.InDelta(t, imag(z), got[at+b], 1e-12)
				}
			}
		}
	}
}

// TestRoPEProducts: the product of a query and a key depends on the distance of their positions alone.
func TestRoPEProducts(t *testing.T) {
	q, k := random(2, 1, 1, 16), random(3, 1, 1, 16)
	product := func(p, r int32) float64 {
		a := optest.Run(t, attention.RoPE{Base: 500}, q, tensor.Of([]int32{p}, 1))[0].Floats()
		b := optest.Run(t, attention.RoPE{Base: 500}, k, tensor.Of([]int32{r}, 1))[0].Floats()
		sum := 0.0
		for i := range a {
			sum += a[i] * b[i]
		}
		return sum
	}
	require.InDelta(t, product(3, 1), product(103, 101), 1e-9)
	require.InDelta(t, product(7, 0), product(57, 50), 1e-9)
}

func TestRoPEPartAndScaling(t *testing.T) {
	x := random(4, 1, 1, 8)
	out := optest.Run(t, attention.RoPE{Dims: 4}, x, tensor.Of([]int32{9}, 1))[0].Floats()
	require.Equal(t, x.Floats()[4:], out[4:], "elements beyond Dims are copied")
	require.NotEqual(t, x.Floats()[:4], out[:4])
	// Linear scaling by 4 makes position 8 what 2 was.
	a := optest.Run(t, attention.RoPE{Scale: 0.25}, x, tensor.Of([]int32{8}, 1))[0].Floats()
	b := optest.Run(t, attention.RoPE{}, x, tensor.Of([]int32{2}, 1))[0].Floats()
	require.InDeltaSlice(t, b, a, 1e-12)
	// A frequency factor divides the angle of its pair.
	c := optest.Run(t, attention.RoPE{}, x, tensor.Of([]int32{8}, 1), optest.F64([]int{4}, 4, 4, 4, 4))[0].Floats()
	require.InDeltaSlice(t, b, c, 1e-12)
}

// TestYaRN: pairs that turn often keep their frequency, those that turn less than Slow times are scaled, and the magnitude grows.
func TestYaRN(t *testing.T) {
	op := attention.RoPE{Scale: 0.25, Extrapolate: 1, Context: 2048}
	plain, _ := attention.RoPE{}.Frequencies(128, nil)
	freq, mag := op.Frequencies(128, nil)
	require.InDelta(t, 1+0.1*math.Log(4), mag, 1e-12)
	require.InDelta(t, plain[0], freq[0], 1e-12)
	require.InDelta(t, plain[63]/4, freq[63], 1e-12)
	turns := func(i int) float64 { return 2048 * plain[i] / (2 * math.Pi) }
	for i := range freq {
		switch {
		case turns(i) > 40: // well above Fast = 32
			require.InDelta(t, plain[i], freq[i], 1e-12, i)
		case turns(i) < 0.8: // well below Slow = 1
			require.InDelta(t, plain[i]/4, freq[i], 1e-12, i)
		default:
			require.LessOrEqual(t, freq[i], plain[i]*(1+1e-12), i)
			require.GreaterOrEqual(t, freq[i], plain[i]/4*(1-1e-12), i)
		}
		if i > 0 {
			require.Less(t, freq[i], freq[i-1])
		}
	}
}

// compose computes attention with products and softmax written out, for one query head.
func compose(q, k, v []float64, m, n, d, dv int, scale float64, visible func(i, j int) bool) []float64 {
	out := make([]float64, m*dv)
	for i := range m {
		w := make([]float64, n)
		sum := 0.0
		for j := range n {
			if !visible(i, j) {
				continue
			}
			s := 0.0
			for l := range d {
				s += q[i*d+l] * k[j*d+l]
			}
			w[j] = math.Exp(s * scale)
			sum += w[j]
		}
		for j := range n {
			for l := range dv {
				if w[j] != 0 {
					out[i*dv+l] += w[j] / sum * v[j*dv+l]
				}
			}
		}
	}
	return out
}

func TestSDPA(t *testing.T) {
	const batch, h, g, m, n, d, dv = 2, 4, 2, 3, 5, 4, 6
	q, k, v := random(5, batch, h, m, d), random(6, batch, g, n, d), random(7, batch, g, n, dv)
	pos := []int{1, 4, -1}
	for name, c := range map[string]struct {
		op      attention.SDPA
		rest    []tensor.Tensor
		scale   float64
		visible func(i, j int) bool
	}{
		"all":       {attention.SDPA{}, nil, 0.5, func(i, j int) bool { return true }},
		"causal":    {attention.SDPA{Causal: true, Scale: 0.25}, nil, 0.25, func(i, j int) bool { return j <= i+n-m }},
		"positions": {attention.SDPA{Causal: true}, []tensor.Tensor{{}, tensor.Of([]int32{1, 4, -1}, m)}, 0.5, func(i, j int) bool { return j <= pos[i] }},
		"window":    {attention.SDPA{Causal: true, Window: 2}, nil, 0.5, func(i, j int) bool { return j <= i+n-m && j > i+n-m-2 }},
		"mask":      {attention.SDPA{}, []tensor.Tensor{tensor.Of([]bool{true, false, true, true, false}, n)}, 0.5, func(i, j int) bool { return j != 1 && j != 4 }},
	} {
		out := optest.Run(t, c.op, append([]tensor.Tensor{q, k, v}, c.rest...)...)[0]
		require.Equal(t, []int{batch, h, m, dv}, out.Shape())
		for b := range batch {
			for head := range h {
				kv := b*g + head/(h/g) // heads 0 and 1 share key head 0
				want := compose(q.Floats()[(b*h+head)*m*d:][:m*d], k.Floats()[kv*n*d:][:n*d], v.Floats()[kv*n*dv:][:n*dv], m, n, d, dv, c.scale, c.visible)
				require.InDeltaSlice(t, want, out.Floats()[(b*h+head)*m*dv:][:m*dv], 1e-12, name)
			}
		}
	}
}

func TestSDPASoftcapAndEmpty(t *testing.T) {
	// With a cap the score cannot pass it: two keys of scores 1000 and 0 weigh e^2 to 1.
	q, k := optest.F64([]int{1, 1, 1}, 1000), optest.F64([]int{1, 2, 1}, 1, 0)
	v := optest.F64([]int{1, 2, 1}, 1, 0)
	out := optest.Run(t, attention.SDPA{Softcap: 2, Scale: 1}, q, k, v)
	require.InDelta(t, math.Exp(2)/(1+math.Exp(2)), out[0].Floats()[0], 1e-12)
	// No keys: zeros.
	out = optest.Run(t, attention.SDPA{}, q, tensor.New(tensor.F64, 1, 0, 1), tensor.New(tensor.F64, 1, 0, 1))
	require.Equal(t, []float64{0}, out[0].Floats())
	// Keys behind the position may be anything.
	k, v = optest.F64([]int{1, 2, 1}, 1, math.NaN()), optest.F64([]int{1, 2, 1}, 3, math.NaN())
	out = optest.Run(t, attention.SDPA{Causal: true}, q, k, v, tensor.Tensor{}, tensor.Of([]int64{0}, 1))
	require.Equal(t, []float64{3}, out[0].Floats())
}

func TestErrors(t *testing.T) {
	s := func(dims ...int) tensor.Spec { return tensor.MakeSpec(tensor.F32, dims...) }
	ids := tensor.MakeSpec(tensor.I32, 3)
	optest.Error(t, attention.SDPA{}, []string{"7 query heads", "2 heads"}, s(7, 3, 4), s(2, 5, 4), s(2, 5, 4))
	optest.Error(t, attention.SDPA{}, []string{"size of a head"}, s(2, 3, 4), s(2, 5, 6), s(2, 5, 4))
	optest.Error(t, attention.SDPA{}, []string{"heads or length"}, s(2, 3, 4), s(2, 5, 4), s(2, 6, 4))
	optest.Error(t, attention.SDPA{}, []string{"differ in dimension 0"}, s(1, 2, 3, 4), s(2, 2, 5, 4), s(2, 2, 5, 4))
	optest.Error(t, attention.SDPA{}, []string{"mask", "broadcast"}, s(2, 3, 4), s(2, 5, 4), s(2, 5, 4), s(4))
	optest.Error(t, attention.SDPA{}, []string{"positions"}, s(2, 3, 4), s(2, 5, 4), s(2, 5, 4), tensor.Spec{}, tensor.MakeSpec(tensor.I32, 2))
	optest.Error(t, attention.SDPA{Window: 3}, []string{"window"}, s(2, 3, 4), s(2, 5, 4), s(2, 5, 4))
	optest.Error(t, attention.RoPE{}, []string{"[... T H D]"}, s(3, 4), ids)
	optest.Error(t, attention.RoPE{Dims: 3}, []string{"even"}, s(3, 1, 4), ids)
	optest.Error(t, attention.RoPE{}, []string{"positions"}, s(4, 1, 4), ids)
	optest.Error(t, attention.RoPE{}, []string{"indices"}, s(3, 1, 4), s(3))
	optest.Error(t, attention.RoPE{}, []string{"frequency factors", "f32[2]"}, s(3, 1, 4), ids, s(4))
	optest.Error(t, attention.RoPE{Extrapolate: 1}, []string{"context"}, s(3, 1, 4), ids)
	optest.Error(t, attention.Softmax{Axis: 2}, []string{"axis 2", "from -2 to 1"}, s(3, 4))
	optest.Error(t, attention.Softmax{}, []string{"mask"}, s(3, 4), tensor.MakeSpec(tensor.I32, 4))
	for _, op := range []ops.Op{attention.SDPA{}, attention.RoPE{}, attention.Softmax{}} {
		optest.Comparable(t, op)
	}
}

// A query at the last position that there can be sees every key.
func TestVisibleAtTheEnds(t *testing.T) {
	for _, pos := range []int{math.MaxInt, math.MaxInt - 1, 7} {
		from, to := attention.SDPA{Causal: true}.Visible(pos, 8)
		require.Equal(t, [2]int{0, 8}, [2]int{from, to})
	}
	for _, pos := range []int{math.MinInt, -1} {
		from, to := attention.SDPA{Causal: true, Window: math.MaxInt}.Visible(pos, 8)
		require.Equal(t, [2]int{0, 0}, [2]int{from, to})
	}
}
