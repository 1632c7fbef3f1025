package onnx

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	_ "github.com/tessera-go/tessera/backends/reference"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// quantizedModel writes a model as quantizers of float models do: every operator between DequantizeLinear and QuantizeLinear.
type quantizedModel struct {
	g   *Graph
	rng *rand.Rand
}

func (q *quantizedModel) init(name string, t tensor.Tensor) string {
	q.g.Inits = append(q.g.Inits, NewTensor(name, t))
	return name
}

func (q *quantizedModel) node(op, out string, attrs []Attr, in ...string) string {
	q.g.Nodes = append(q.g.Nodes, &Node{Op: op, Name: out, In: in, Out: []string{out}, Attrs: attrs})
	return out
}

func byteScalar(d tensor.DType, v int) tensor.Tensor {
	t := tensor.New(d)
	t.SetFloats([]float64{float64(v)})
	return t
}

// activation quantizes and dequantizes a value.
func (q *quantizedModel) activation(name string, d tensor.DType, scale float32, zero int) string {
	q.init(name+"_s", tensor.Of([]float32{scale}))
	q.init(name+"_z", byteScalar(d, zero))
	q.node("QuantizeLinear", name+"_q", nil, name, name+"_s", name+"_z")
	return q.node("DequantizeLinear", name+"_dq", nil, name+"_q", name+"_s", name+"_z")
}

// weights are bytes with a scale for each channel of an axis.
func (q *quantizedModel) weights(name string, d tensor.DType, axis int, dims ...int) string {
	w := tensor.New(d, dims...)
	for i := range w.Raw() {
		w.Raw()[i] = byte(q.rng.Uint32())
	}
	scales, zeros := make([]float32, dims[axis]), tensor.New(d, dims[axis])
	for i := range scales {
		scales[i] = 0.002 + q.rng.Float32()/500
		if d == tensor.U8 {
			zeros.Raw()[i] = 128
		}
	}
	q.init(name, w)
	q.init(name+"_s", tensor.Of(scales, len(scales)))
	q.init(name+"_z", zeros)
	return q.node("DequantizeLinear", name+"_dq", []Attr{IntAttr("axis", int64(axis))}, name, name+"_s", name+"_z")
}

// bias is integers with the scale of the sums.
func (q *quantizedModel) bias(name string, x string, w string, n int) string {
	v := make([]int32, n)
	for i := range v {
		v[i] = q.rng.Int32N(4000) - 2000
	}
	find := func(name string) tensor.Tensor {
		for _, t := range q.g.Inits {
			if t.Name == name {
				return t.Data
			}
		}
		panic(name)
	}
	xs, ws := find(x+"_s"), find(w+"_s")
	scales := make([]float32, n)
	for i := range scales {
		scales[i] = float32(xs.Floats()[0]) * float32(ws.Floats()[i])
	}
	q.init(name, tensor.Of(v, n))
	q.init(name+"_s", tensor.Of(scales, n))
	q.init(name+"_z", tensor.New(tensor.I32, n))
	return q.node("DequantizeLinear", name+"_dq", []Attr{IntAttr("axis", 0)}, name, name+"_s", name+"_z")
}

// network is a convolution with Relu, a depthwise one, a MatMul and a Gemm.
func quantizedNetwork(t *testing.T, act, weight tensor.DType) *Model {
	q := &quantizedModel{g: &Graph{Inputs: []ValueInfo{Info("x", Float, 2, 3, 9, 10)}}, rng: rand.New(rand.NewPCG(1, uint64(act)+16*uint64(weight)))}
	lowest, middle := 0, 121
	if act == tensor.I8 {
		lowest, middle = -128, -3
	}
	x := q.activation("x", act, 0.02, middle)
	w := q.weights("w1", weight, 0, 8, 3, 3, 3)
	q.node("Conv", "c1", []Attr{IntsAttr("pads", 1, 1, 1, 1)}, x, w, q.bias("b1", "x", "w1", 8))
	q.node("Relu", "r1", nil, "c1")
	x = q.activation("r1", act, 0.03, lowest)
	q.node("Conv", "c2", []Attr{IntsAttr("pads", 1, 1, 1, 1), IntAttr("group", 8)}, x, q.weights("w2", weight, 0, 8, 1, 3, 3))
	x = q.activation("c2", act, 0.05, middle)
	q.node("Conv", "c3", nil, "r1_dq", q.weights("w5", weight, 0, 8, 8, 1, 1)) // a branch
	q.node("Add", "sum", nil, x, q.activation("c3", act, 0.07, middle))
	q.node("Relu", "r2", nil, "sum")
	x = q.activation("r2", act, 0.05, middle)
	q.node("MaxPool", "p", []Attr{IntsAttr("kernel_shape", 3, 3), IntsAttr("pads", 1, 1, 1, 1)}, x)
	x = q.activation("p", act, 0.05, middle)
	q.init("flat", tensor.Of([]int64{2, -1}, 2))
	q.node("Reshape", "f", nil, x, "flat")
	x = q.activation("f", act, 0.05, middle) // bytes move as they are
	q.node("MatMul", "m", nil, x, q.weights("w3", weight, 1, 720, 33))
	x = q.activation("m", act, 0.4, middle)
	q.node("Gemm", "g", []Attr{IntAttr("transB", 1)}, x, q.weights("w4", weight, 0, 17, 33), q.bias("b4", "m", "w4", 17))
	q.activation("g", act, 0.7, middle)
	q.g.Outputs = []ValueInfo{Info("g_dq", Float, 2, 17), Info("r1_q", elemOf(act)), Info("r2_q", elemOf(act)), Info("m_q", elemOf(act))}
	m, err := NewModel(13, q.g)
	require.NoError(t, err)
	return m
}

// Operators between quantized values become integer ones, and give what the model says to one step.
func TestQDQ(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	for _, types := range [][2]tensor.DType{{tensor.U8, tensor.I8}, {tensor.U8, tensor.U8}, {tensor.I8, tensor.I8}} {
		m := quantizedNetwork(t, types[0], types[1])
		count := map[string]int{}
		for _, n := range m.qdq().Nodes {
			count[n.Op]++
		}
		require.Equal(t, map[string]int{"QuantizeLinear": 1, "DequantizeLinear": 1, "QLinearConv": 3, "QLinearMatMul": 2, "Reshape": 1, "Add": 1, "MaxPool": 1}, count)
		rng := rand.New(rand.NewPCG(3, 4))
		x := make([]float32, 2*3*9*10)
		for i := range x {
			x[i] = rng.Float32()*5 - 2.5
		}
		var got [2]map[string]Value
		for i, exact := range []bool{true, false} {
			s, err := NewSession(context.Background(), m, Options{Backends: []backends.Backend{b}, AsWritten: exact})
			require.NoError(t, err)
			defer s.Close()
			got[i], err = s.Run(context.Background(), map[string]Value{"x": Of(tensor.Of(x, 2, 3, 9, 10))})
			require.NoError(t, err)
			require.Empty(t, s.Eager())
		}
		for name, step := range map[string]float64{"r1_q": 1, "r2_q": 2, "m_q": 1, "g_dq": 0.7} {
			want, is := got[0][name].Tensor, got[1][name].Tensor
			require.Equal(t, want.Spec, is.Spec)
			differ, wide := 0, map[float64]bool{}
			a := is.Floats()
			for i, v := range want.Floats() {
				wide[v] = true
				if d := math.Abs(v - a[i]); d > 1e-6 {
					// Steps add up: what the last layer is given differs already.
					require.LessOrEqual(t, d, 1.001*step, "%v %s element %d: %g and %g", types, name, i, v, a[i])
					differ++
				}
			}
			require.LessOrEqual(t, differ, len(a)/20+1, "%v %s", types, name)
			require.Greater(t, len(wide), 8, "%s says little", name)
		}
	}
}

// Bytes come from numbers as the standard says: nearest, ties to even, saturated; also where numbers are far away or none.
func TestBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range []step{{0.1, 0, tensor.U8}, {0.5, 128, tensor.U8}, {1, -5, tensor.I8}, {3e-5, 127, tensor.I8}, {1e30, 3, tensor.U8}, {1e-40, 7, tensor.I8}} {
		values := []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -math.MaxFloat32, 1e-45}
		for i := range 2000 {
			values = append(values, float32(rng.NormFloat64()*100)*s.Scale, (float32(i)-1000)/2*s.Scale)
		}
		x := tensor.Of(values, len(values))
		y := tensor.New(s.Type, len(values))
		require.NoError(t, toBytes{s}.Reference([]tensor.Tensor{y}, []tensor.Tensor{x}))
		lo, hi := 0.0, 255.0
		if s.Type == tensor.I8 {
			lo, hi = -128, 127
		}
		got := y.Floats()
		for i, v := range values {
			want := min(max(math.RoundToEven(float64(v/s.Scale))+float64(s.Zero), lo), hi)
			require.Equal(t, want, got[i], "%v: %g", s, v)
		}
		back := tensor.New(tensor.F32, len(values))
		require.NoError(t, fromBytes{s}.Reference([]tensor.Tensor{back}, []tensor.Tensor{y}))
		for i, v := range back.Floats() {
			require.Equal(t, float64(float32(got[i]-float64(s.Zero))*s.Scale), v)
		}
		// A view in another order of memory is read by its places.
		square, err := x.Slice(0, 0, 40, 1)
		require.NoError(t, err)
		square, err = square.Reshape(5, 8)
		require.NoError(t, err)
		turned, err := square.Permute(1, 0)
		require.NoError(t, err)
		out := tensor.New(s.Type, 8, 5)
		require.NoError(t, toBytes{s}.Reference([]tensor.Tensor{out}, []tensor.Tensor{turned}))
		for i := range 8 {
			for j := range 5 {
				require.Equal(t, got[j*8+i], out.Floats()[i*5+j])
			}
		}
	}
	require.NotPanics(t, func() { q := step{1, 0, tensor.U8}.quantizer(); q.byte(float32(math.NaN())) })
}

// A sum of quantized values has the bits of what it stands for.
func TestAddBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, relu := range []bool{false, true} {
		for _, d := range []tensor.DType{tensor.U8, tensor.I8} {
			a, b, y := step{0.031, 3, d}, step{0.07, -2, tensor.I8}, step{0.05, 11, d}
			op := newAddBytes(a, b, y, relu)
			bytes := func(d tensor.DType) tensor.Tensor {
				x := tensor.New(d, 3, 700)
				for i := range x.Raw() {
					x.Raw()[i] = byte(rng.Uint32())
				}
				return x
			}
			ta, tb, out := bytes(d), bytes(tensor.I8), tensor.New(d, 3, 700)
			require.NoError(t, op.Reference([]tensor.Tensor{out}, []tensor.Tensor{ta, tb}))
			fa, fb, sum, want := tensor.New(tensor.F32, 3, 700), tensor.New(tensor.F32, 3, 700), tensor.New(tensor.F32, 3, 700), tensor.New(d, 3, 700)
			require.NoError(t, fromBytes{a}.Reference([]tensor.Tensor{fa}, []tensor.Tensor{ta}))
			require.NoError(t, fromBytes{b}.Reference([]tensor.Tensor{fb}, []tensor.Tensor{tb}))
			for i, v := range tensor.Data[float32](fa) {
				v += tensor.Data[float32](fb)[i]
				if relu {
					v = max(v, 0)
				}
				tensor.Data[float32](sum)[i] = v
			}
			require.NoError(t, toBytes{y}.Reference([]tensor.Tensor{want}, []tensor.Tensor{sum}))
			require.Equal(t, want.Raw(), out.Raw())
			fast := op.ByteSum()
			require.Equal(t, ops.ByteSum{A: ops.ByteStep{Scale: a.Scale, Zero: a.Zero, Signed: d == tensor.I8}, B: ops.ByteStep{Scale: b.Scale, Zero: b.Zero, Signed: true},
				Y: ops.ByteStep{Scale: y.Scale, Zero: y.Zero, Signed: d == tensor.I8}, Lo: fast.Lo, Hi: fast.Hi}, fast)
			clear(out.Raw())
			for from, to := 0, 0; from < len(want.Raw()); from = to { // pieces of every length
				to = min(from+1+rng.IntN(40), len(want.Raw()))
				op.Range([]tensor.Tensor{out}, []tensor.Tensor{ta, tb}, from, to)
				require.Equal(t, want.Raw()[:to], out.Raw()[:to])
				require.Zero(t, slices.Max(append(out.Raw()[to:], 0)))
			}
		}
	}
	_, err := newAddBytes(step{1, 0, tensor.U8}, step{1, 0, tensor.U8}, step{1, 0, tensor.U8}, false).Infer([]tensor.Spec{tensor.MakeSpec(tensor.U8, 2), tensor.MakeSpec(tensor.U8, 3)})
	require.ErrorContains(t, err, "input 1 is u8[3], u8[2] is right")
}

// The backends give a sum of quantized values the same bits.
func TestAddBytesOnBackends(t *testing.T) {
	for i, types := range [][2]tensor.DType{{tensor.U8, tensor.U8}, {tensor.I8, tensor.I8}, {tensor.U8, tensor.I8}, {tensor.I8, tensor.U8}} {
		q := &quantizedModel{g: &Graph{Inputs: []ValueInfo{Info("a", Float, 3, 17, 700), Info("b", Float, 3, 17, 700)}}, rng: rand.New(rand.NewPCG(1, uint64(i)))}
		q.node("Add", "sum", nil, q.activation("a", types[0], 0.031, 7), q.activation("b", types[1], 0.05, 5))
		q.node("Relu", "r", nil, "sum")
		q.activation("r", types[0], 0.04, 3)
		q.g.Outputs = []ValueInfo{Info("r_q", elemOf(types[0]))}
		m, err := NewModel(13, q.g)
		require.NoError(t, err)
		a, b := tensor.New(tensor.F32, 3, 17, 700), tensor.New(tensor.F32, 3, 17, 700)
		for _, x := range []*tensor.Tensor{&a, &b} {
			v := tensor.Data[float32](*x)
			for j := range v {
				v[j] = float32(q.rng.NormFloat64() * 3)
			}
		}
		var want []byte
		for _, name := range []string{"reference", "cpu"} {
			backend, err := backends.Open(name)
			require.NoError(t, err)
			defer backend.Close()
			s, err := NewSession(context.Background(), m, Options{Backends: []backends.Backend{backend}})
			require.NoError(t, err)
			defer s.Close()
			out, err := s.Run(context.Background(), map[string]Value{"a": Of(a), "b": Of(b)})
			require.NoError(t, err)
			got := out["r_q"].Tensor
			if want == nil {
				want = slices.Clone(got.Raw())
			}
			require.Equal(t, want, got.Raw())
		}
	}
}

func BenchmarkAddBytes(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	s := step{0.05, 0, tensor.U8}
	op := newAddBytes(s, s, s, true)
	in := []tensor.Tensor{tensor.New(tensor.U8, 256, 3136), tensor.New(tensor.U8, 256, 3136)}
	for _, x := range in {
		for i := range x.Raw() {
			x.Raw()[i] = byte(min(max(rng.NormFloat64()*30+60, 0), 255))
		}
	}
	out := []tensor.Tensor{tensor.New(tensor.U8, 256, 3136)}
	b.SetBytes(int64(len(out[0].Raw())))
	for b.Loop() {
		op.Range(out, in, 0, len(out[0].Raw()))
	}
}

// What integers cannot stand for stays in floats.
func TestQDQLeavesAlone(t *testing.T) {
	for name, change := range map[string]func(*Graph){
		"an input that may be replaced":  func(g *Graph) { g.Inputs = append(g.Inputs, Info("w1_s", Float, 8)) },
		"an output between":              func(g *Graph) { g.Outputs = append(g.Outputs, Info("c1", Float)) },
		"a Relu that cuts nothing off":   func(g *Graph) { g.Init("r1_z").Data = byteScalar(tensor.U8, 3) },
		"scales along another axis":      func(g *Graph) { g.Nodes[2].Attrs[0].I = 1 },
		"a bias with a zero point":       func(g *Graph) { z := g.Init("b1_z").Data; tensor.Data[int32](z)[0] = 1 },
		"a scale for each channel of it": func(g *Graph) { g.Init("x_s").Data = tensor.Of([]float32{1, 2, 3}, 3) },
		"an operator of another domain":  func(g *Graph) { g.Nodes[4].Domain = "other" },
	} {
		m := quantizedNetwork(t, tensor.U8, tensor.I8)
		m.Graph.index()
		change(m.Graph)
		m.Graph.index()
		for _, n := range m.qdq().Nodes {
			require.False(t, n.Op == "QLinearConv" && n.Name == "c1", name)
		}
	}
}
