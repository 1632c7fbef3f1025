package onnx_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// opCase is one call of an operator. Inputs are tensors; nil is an absent one.
type opCase struct {
	name  string
	opset int
	op    string
	attrs []onnx.Attr
	in    []*onnx.Tensor
	want  []onnx.Value
	tol   float64
}

// encoded returns a model as a file.
func encoded(t testing.TB, m *onnx.Model) []byte {
	t.Helper()
	data, err := m.Encode()
	require.NoError(t, err)
	return data
}

func f32t(v []float32, dims ...int) *onnx.Tensor { return onnx.NewTensor("", tensor.Of(v, dims...)) }
func i64t(v []int64, dims ...int) *onnx.Tensor   { return onnx.NewTensor("", tensor.Of(v, dims...)) }
func u8t(v []uint8, dims ...int) *onnx.Tensor    { return onnx.NewTensor("", tensor.Of(v, dims...)) }
func boolt(v []bool, dims ...int) *onnx.Tensor   { return onnx.NewTensor("", tensor.Of(v, dims...)) }
func textt(v []string, dims ...int) *onnx.Tensor {
	return &onnx.Tensor{Elem: onnx.String, Dims: dims, Strings: v}
}
func elem(t *onnx.Tensor, e onnx.ElemType) *onnx.Tensor { t.Elem = e; return t }
func f16t(v []float64, dims ...int) *onnx.Tensor {
	t := tensor.New(tensor.F16, dims...)
	t.SetFloats(v)
	return onnx.NewTensor("", t)
}

func wantF(v []float32, dims ...int) []onnx.Value {
	return []onnx.Value{onnx.Of(tensor.Of(v, dims...))}
}
func wantI(v []int64, dims ...int) []onnx.Value { return []onnx.Value{onnx.Of(tensor.Of(v, dims...))} }

// run builds a model of the one node, once with its inputs as inputs and once as constants.
func (c opCase) run(t *testing.T) {
	for _, constant := range []bool{false, true} {
		node := &onnx.Node{Name: "n", Op: c.op, Attrs: c.attrs}
		g := &onnx.Graph{Nodes: []*onnx.Node{node}}
		in := map[string]onnx.Value{}
		for i, x := range c.in {
			if x == nil {
				node.In = append(node.In, "")
				continue
			}
			name := fmt.Sprintf("x%d", i)
			node.In = append(node.In, name)
			four := x.Elem == onnx.Int4 || x.Elem == onnx.Uint4 || x.Elem >= onnx.F8E4M3FN && x.Elem <= onnx.F8E5M2FNUZ
			if constant || four { // types that callers cannot hold come from the file
				copied := *x
				copied.Name = name
				g.Inits = append(g.Inits, &copied)
				continue
			}
			g.Inputs = append(g.Inputs, onnx.Info(name, x.Elem, x.Dims...))
			in[name] = onnx.Of(x.Data)
			if x.Elem == onnx.String {
				in[name] = onnx.TextOf(x.Strings, x.Dims...)
			}
		}
		for i := range c.want {
			name := fmt.Sprintf("y%d", i)
			node.Out = append(node.Out, name)
			g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: name})
		}
		m, err := onnx.NewModel(c.opset, g)
		require.NoError(t, err)
		m, err = onnx.Decode(encoded(t, m)) // by way of the file
		require.NoError(t, err)
		s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: cpu(t)})
		require.NoError(t, err)
		out, err := s.Run(context.Background(), in)
		require.NoError(t, err)
		for i, w := range c.want {
			got := out[fmt.Sprintf("y%d", i)]
			if w.Strings != nil {
				require.Equal(t, w.Strings, got.Strings)
				require.Equal(t, w.Dims, got.Dims)
				continue
			}
			require.Equal(t, w.Tensor.Spec, got.Tensor.Spec)
			a, b := w.Tensor.Floats(), got.Tensor.Floats()
			for j := range a {
				if math.IsNaN(a[j]) || math.IsInf(a[j], 0) {
					require.Equal(t, fmt.Sprint(a[j]), fmt.Sprint(b[j]))
					continue
				}
				require.InDelta(t, a[j], b[j], c.tol, "output %d element %d", i, j)
			}
		}
		require.NoError(t, s.Close())
	}
}

func i4t(v []int8, dims ...int) *onnx.Tensor {
	return elem(onnx.NewTensor("", tensor.Of(v, dims...)), onnx.Int4)
}
func wantI4(v []int8, dims ...int) []onnx.Value {
	return []onnx.Value{onnx.Of(tensor.Of(v, dims...))}
}

// branches are those of an If: constants.
func branches(then, other *onnx.Tensor) []onnx.Attr {
	branch := func(t *onnx.Tensor) *onnx.Graph {
		return &onnx.Graph{Nodes: []*onnx.Node{{Op: "Constant", Out: []string{"z"}, Attrs: []onnx.Attr{onnx.TensorAttr("value", t)}}}, Outputs: []onnx.ValueInfo{{Name: "z"}}}
	}
	return []onnx.Attr{onnx.GraphAttr("then_branch", branch(then)), onnx.GraphAttr("else_branch", branch(other))}
}

// turns is the body of a Loop or Scan that passes its last input on and collects it.
func turns(inputs ...string) *onnx.Graph {
	g := &onnx.Graph{}
	for _, name := range inputs {
		g.Inputs = append(g.Inputs, onnx.ValueInfo{Name: name})
	}
	last := inputs[len(inputs)-1]
	g.Nodes = []*onnx.Node{{Op: "Identity", In: []string{last}, Out: []string{"w"}}}
	if len(inputs) > 1 {
		g.Nodes = append(g.Nodes, &onnx.Node{Op: "Identity", In: []string{inputs[1]}, Out: []string{"c2"}}, &onnx.Node{Op: "Identity", In: []string{last}, Out: []string{"v2"}})
		g.Outputs = []onnx.ValueInfo{{Name: "c2"}, {Name: "v2"}}
	}
	g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: "w"})
	return g
}

func ints(name string, v ...int64) onnx.Attr { return onnx.IntsAttr(name, v...) }

// The operators whose definition changed in opsets 18 to 21, with values worked out from the text of the specification.
func TestOpsets18To21(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	seq := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(i)
		}
		return v
	}
	cases := []opCase{
		// 18
		{name: "Split into a number of parts, the last smaller", opset: 18, op: "Split", attrs: []onnx.Attr{onnx.IntAttr("num_outputs", 3)},
			in: []*onnx.Tensor{f32t(seq(7), 7)}, want: append(append(wantF(seq(3), 3), wantF([]float32{3, 4, 5}, 3)...), wantF([]float32{6}, 1)...)},
		{name: "ReduceMax with axes as input", opset: 18, op: "ReduceMax", attrs: []onnx.Attr{onnx.IntAttr("keepdims", 0)},
			in: []*onnx.Tensor{f32t(seq(6), 2, 3), i64t([]int64{-1}, 1)}, want: wantF([]float32{2, 5}, 2)},
		{name: "ReduceMean without axes", opset: 18, op: "ReduceMean", in: []*onnx.Tensor{f32t(seq(6), 2, 3)}, want: wantF([]float32{2.5}, 1, 1)},
		{name: "ReduceL2 doing nothing", opset: 18, op: "ReduceL2", attrs: []onnx.Attr{onnx.IntAttr("noop_with_empty_axes", 1)},
			in: []*onnx.Tensor{f32t(seq(3), 3)}, want: wantF(seq(3), 3)},
		{name: "ReduceLogSumExp", opset: 18, op: "ReduceLogSumExp", in: []*onnx.Tensor{f32t([]float32{0, 0, 0, 0}, 2, 2), i64t([]int64{0}, 1)},
			want: wantF([]float32{0.6931472, 0.6931472}, 1, 2), tol: 1e-6},
		{name: "Pad of some axes", opset: 18, op: "Pad", in: []*onnx.Tensor{f32t(seq(4), 2, 2), i64t([]int64{1, 0}, 2), f32t([]float32{9}), i64t([]int64{1}, 1)},
			want: wantF([]float32{9, 0, 1, 9, 2, 3}, 2, 3)},
		{name: "ScatterElements max", opset: 18, op: "ScatterElements", attrs: []onnx.Attr{onnx.StringAttr("reduction", "max")},
			in: []*onnx.Tensor{f32t([]float32{1, 5, 3}, 3), i64t([]int64{0, 1, 0}, 3), f32t([]float32{4, 4, 2}, 3)}, want: wantF([]float32{4, 5, 3}, 3)},
		{name: "ScatterND min", opset: 18, op: "ScatterND", attrs: []onnx.Attr{onnx.StringAttr("reduction", "min")},
			in: []*onnx.Tensor{f32t([]float32{1, 5, 3}, 3), i64t([]int64{1, 2}, 2, 1), f32t([]float32{4, 4}, 2)}, want: wantF([]float32{1, 4, 3}, 3)},
		{name: "LpPool with dilation and ceil", opset: 18, op: "LpPool", attrs: []onnx.Attr{ints("kernel_shape", 2), ints("dilations", 2), ints("strides", 2), onnx.IntAttr("ceil_mode", 1), onnx.IntAttr("p", 1)},
			in: []*onnx.Tensor{f32t([]float32{1, -2, 3, 4, -5, 6}, 1, 1, 6)}, want: wantF([]float32{4, 8, 5}, 1, 1, 3)},
		{name: "BitwiseAnd", opset: 18, op: "BitwiseAnd", in: []*onnx.Tensor{i64t([]int64{12, 7}, 2), i64t([]int64{10}, 1)}, want: wantI([]int64{8, 2}, 2)},
		{name: "BitwiseOr", opset: 18, op: "BitwiseOr", in: []*onnx.Tensor{i64t([]int64{12, 7}, 2), i64t([]int64{10}, 1)}, want: wantI([]int64{14, 15}, 2)},
		{name: "BitwiseXor", opset: 18, op: "BitwiseXor", in: []*onnx.Tensor{i64t([]int64{12, 7}, 2), i64t([]int64{10}, 1)}, want: wantI([]int64{6, 13}, 2)},
		{name: "BitwiseNot", opset: 18, op: "BitwiseNot", in: []*onnx.Tensor{i64t([]int64{0, -8}, 2)}, want: wantI([]int64{-1, 7}, 2)},
		{name: "Mish", opset: 18, op: "Mish", in: []*onnx.Tensor{f32t([]float32{0, 1}, 2)}, want: wantF([]float32{0, 0.8650984}, 2), tol: 1e-6},
		{name: "CenterCropPad", opset: 18, op: "CenterCropPad", attrs: []onnx.Attr{ints("axes", 0, 1)},
			in: []*onnx.Tensor{f32t(seq(10), 5, 2), i64t([]int64{2, 4}, 2)}, want: wantF([]float32{0, 2, 3, 0, 0, 4, 5, 0}, 2, 4)},
		{name: "Col2Im", opset: 18, op: "Col2Im", in: []*onnx.Tensor{f32t([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 1, 4, 2), i64t([]int64{2, 3}, 2), i64t([]int64{2, 2}, 2)},
			want: wantF([]float32{1, 2 + 3, 4, 5, 6 + 7, 8}, 1, 1, 2, 3)},
		{name: "GroupNormalization by group", opset: 18, op: "GroupNormalization", attrs: []onnx.Attr{onnx.IntAttr("num_groups", 2), onnx.FloatAttr("epsilon", 0)},
			in: []*onnx.Tensor{f32t([]float32{1, 3, 5, 9}, 1, 4, 1), f32t([]float32{1, 10}, 2), f32t([]float32{0, 1}, 2)}, want: wantF([]float32{-1, 1, -9, 11}, 1, 4, 1), tol: 1e-5},
		{name: "OptionalHasElement of a tensor", opset: 18, op: "OptionalHasElement", in: []*onnx.Tensor{f32t(seq(2), 2)},
			want: []onnx.Value{onnx.Of(tensor.Of([]bool{true}))}},
		{name: "OptionalHasElement of nothing", opset: 18, op: "OptionalHasElement", want: []onnx.Value{onnx.Of(tensor.Of([]bool{false}))}},
		{name: "OptionalGetElement of a tensor", opset: 18, op: "OptionalGetElement", in: []*onnx.Tensor{f32t(seq(2), 2)}, want: wantF(seq(2), 2)},
		{name: "Resize of some axes", opset: 18, op: "Resize", attrs: []onnx.Attr{ints("axes", 1)},
			in: []*onnx.Tensor{f32t(seq(4), 2, 2), nil, f32t([]float32{2}, 1)}, want: wantF([]float32{0, 0, 1, 1, 2, 2, 3, 3}, 2, 4)},
		{name: "Resize not larger", opset: 18, op: "Resize", attrs: []onnx.Attr{onnx.StringAttr("keep_aspect_ratio_policy", "not_larger"), ints("axes", 0, 1)},
			in: []*onnx.Tensor{f32t(seq(8), 2, 4), nil, nil, i64t([]int64{4, 4}, 2)}, want: wantF(seq(8), 2, 4)},
		{name: "Resize not smaller", opset: 18, op: "Resize", attrs: []onnx.Attr{onnx.StringAttr("keep_aspect_ratio_policy", "not_smaller"), onnx.StringAttr("nearest_mode", "floor"), onnx.StringAttr("coordinate_transformation_mode", "asymmetric")},
			in: []*onnx.Tensor{f32t(seq(2), 1, 2), nil, nil, i64t([]int64{2, 2}, 2)}, want: wantF([]float32{0, 0, 1, 1, 0, 0, 1, 1}, 2, 4)},
		{name: "Resize with antialiasing", opset: 18, op: "Resize", attrs: []onnx.Attr{onnx.StringAttr("mode", "linear"), onnx.IntAttr("antialias", 1)},
			in: []*onnx.Tensor{f32t(seq(4), 4), nil, nil, i64t([]int64{2}, 1)}, want: wantF([]float32{0.625, 2.375}, 2), tol: 1e-6},
		// 19
		{name: "AveragePool with dilation", opset: 19, op: "AveragePool", attrs: []onnx.Attr{ints("kernel_shape", 2), ints("dilations", 2)},
			in: []*onnx.Tensor{f32t(seq(5), 1, 1, 5)}, want: wantF([]float32{1, 2, 3}, 1, 1, 3)},
		{name: "AveragePool with ceil and padding counted", opset: 19, op: "AveragePool", attrs: []onnx.Attr{ints("kernel_shape", 3), ints("strides", 3), ints("pads", 1, 1), onnx.IntAttr("ceil_mode", 1), onnx.IntAttr("count_include_pad", 1)},
			in: []*onnx.Tensor{f32t([]float32{3, 3, 3, 3, 3}, 1, 1, 5)}, want: wantF([]float32{2, 3}, 1, 1, 2)},
		{name: "Equal of strings", opset: 19, op: "Equal", in: []*onnx.Tensor{textt([]string{"a", "b"}, 2), textt([]string{"a"}, 1)}, want: []onnx.Value{onnx.Of(tensor.Of([]bool{true, false}, 2))}},
		{name: "Pad wrap", opset: 19, op: "Pad", attrs: []onnx.Attr{onnx.StringAttr("mode", "wrap")},
			in: []*onnx.Tensor{f32t(seq(3), 3), i64t([]int64{4, 2}, 2)}, want: wantF([]float32{2, 0, 1, 2, 0, 1, 2, 0, 1}, 9)},
		{name: "Resize half_pixel_symmetric", opset: 19, op: "Resize", attrs: []onnx.Attr{onnx.StringAttr("mode", "linear"), onnx.StringAttr("coordinate_transformation_mode", "half_pixel_symmetric")},
			in: []*onnx.Tensor{f32t([]float32{1, 2, 3, 4}, 4), nil, f32t([]float32{0.6}, 1)}, want: wantF([]float32{1.6666667, 3.3333333}, 2), tol: 1e-5},
		{name: "QuantizeLinear to float8", opset: 19, op: "QuantizeLinear",
			in: []*onnx.Tensor{f32t([]float32{0, 1, 2, 1e5, 200}, 5), f32t([]float32{2}), elem(u8t([]uint8{0}), onnx.F8E4M3FN)}, want: []onnx.Value{onnx.Of(tensor.Of([]uint8{0, 0x30, 0x38, 0x7e, 0x6c}, 5))}},
		{name: "DequantizeLinear of float8", opset: 19, op: "DequantizeLinear",
			in: []*onnx.Tensor{elem(u8t([]uint8{0x00, 0x40, 0x3c, 0xfb, 0x7b}, 5), onnx.F8E5M2), f32t([]float32{2})}, want: wantF([]float32{0, 4, 2, -114688, 114688}, 5)},
		{name: "QuantizeLinear of half", opset: 19, op: "QuantizeLinear", in: []*onnx.Tensor{f16t([]float64{0, 2, 3, 1000, -254}, 5), f16t([]float64{2}), u8t([]uint8{128})},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{128, 129, 130, 255, 1}, 5))}},
		{name: "Cast to float8 without saturation", opset: 19, op: "Cast", attrs: []onnx.Attr{onnx.IntAttr("to", int64(onnx.F8E5M2)), onnx.IntAttr("saturate", 0)},
			in: []*onnx.Tensor{f32t([]float32{1, 1e6, -1e6, nan}, 4)}, want: []onnx.Value{onnx.Of(tensor.Of([]uint8{0x3c, 0x7c, 0xfc, 0x7f}, 4))}},
		{name: "Cast of float8", opset: 19, op: "Cast", attrs: []onnx.Attr{onnx.IntAttr("to", int64(onnx.Float))},
			in: []*onnx.Tensor{elem(u8t([]uint8{0x40, 0x80, 0x08, 0x01}, 4), onnx.F8E4M3FNUZ)}, want: wantF([]float32{1, nan, 0.0078125, 0.0009765625}, 4)},
		{name: "DeformConv without offsets is a convolution", opset: 19, op: "DeformConv", attrs: []onnx.Attr{ints("kernel_shape", 2, 2)},
			in: []*onnx.Tensor{f32t(seq(9), 1, 1, 3, 3), f32t([]float32{1, 1, 1, 1}, 1, 1, 2, 2), f32t(make([]float32, 32), 1, 8, 2, 2)}, want: wantF([]float32{8, 12, 20, 24}, 1, 1, 2, 2)},
		{name: "DeformConv half a pixel to the right, masked", opset: 19, op: "DeformConv",
			in:   []*onnx.Tensor{f32t(seq(4), 1, 1, 1, 4), f32t([]float32{2}, 1, 1, 1, 1), f32t([]float32{0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5}, 1, 2, 1, 4), f32t([]float32{1}, 1), f32t([]float32{1, 1, 0, 1}, 1, 1, 1, 4)},
			want: wantF([]float32{2, 4, 1, 4}, 1, 1, 1, 4)},
		// 20
		{name: "Gelu", opset: 20, op: "Gelu", in: []*onnx.Tensor{f32t([]float32{-1, 0, 1}, 3)}, want: wantF([]float32{-0.15865526, 0, 0.8413447}, 3), tol: 1e-6},
		{name: "Gelu by tanh", opset: 20, op: "Gelu", attrs: []onnx.Attr{onnx.StringAttr("approximate", "tanh")}, in: []*onnx.Tensor{f32t([]float32{-1, 0, 1}, 3)},
			want: wantF([]float32{-0.158808, 0, 0.841192}, 3), tol: 1e-6},
		{name: "IsInf of half", opset: 20, op: "IsInf", attrs: []onnx.Attr{onnx.IntAttr("detect_negative", 0)}, in: []*onnx.Tensor{f16t([]float64{1, math.Inf(1), math.Inf(-1)}, 3)},
			want: []onnx.Value{onnx.Of(tensor.Of([]bool{false, true, false}, 3))}},
		{name: "IsNaN", opset: 20, op: "IsNaN", in: []*onnx.Tensor{f32t([]float32{1, nan, inf}, 3)}, want: []onnx.Value{onnx.Of(tensor.Of([]bool{false, true, false}, 3))}},
		{name: "ReduceMax of bool", opset: 20, op: "ReduceMax", attrs: []onnx.Attr{onnx.IntAttr("keepdims", 0)}, in: []*onnx.Tensor{boolt([]bool{false, true, false, false}, 2, 2), i64t([]int64{1}, 1)},
			want: []onnx.Value{onnx.Of(tensor.Of([]bool{true, false}, 2))}},
		{name: "ReduceMin of bool", opset: 20, op: "ReduceMin", attrs: []onnx.Attr{onnx.IntAttr("keepdims", 0)}, in: []*onnx.Tensor{boolt([]bool{false, true, true, true}, 2, 2), i64t([]int64{1}, 1)},
			want: []onnx.Value{onnx.Of(tensor.Of([]bool{false, true}, 2))}},
		{name: "StringConcat", opset: 20, op: "StringConcat", in: []*onnx.Tensor{textt([]string{"a", "b"}, 2, 1), textt([]string{"x", "y"}, 2)}, want: []onnx.Value{onnx.TextOf([]string{"ax", "ay", "bx", "by"}, 2, 2)}},
		{name: "StringSplit", opset: 20, op: "StringSplit", attrs: []onnx.Attr{onnx.StringAttr("delimiter", "."), onnx.IntAttr("maxsplit", 1)},
			in: []*onnx.Tensor{textt([]string{"a.b.c", "d"}, 2)}, want: []onnx.Value{onnx.TextOf([]string{"a", "b.c", "d", ""}, 2, 2), onnx.Of(tensor.Of([]int64{2, 1}, 2))}},
		{name: "StringSplit at white space", opset: 20, op: "StringSplit", in: []*onnx.Tensor{textt([]string{" a  b ", ""}, 2)},
			want: []onnx.Value{onnx.TextOf([]string{"a", "b", "", ""}, 2, 2), onnx.Of(tensor.Of([]int64{2, 0}, 2))}},
		{name: "RegexFullMatch", opset: 20, op: "RegexFullMatch", attrs: []onnx.Attr{onnx.StringAttr("pattern", `[a-z]+\.org`)},
			in: []*onnx.Tensor{textt([]string{"site.org", "site.org/x", "Site.org"}, 3)}, want: []onnx.Value{onnx.Of(tensor.Of([]bool{true, false, false}, 3))}},
		{name: "AffineGrid", opset: 20, op: "AffineGrid", attrs: []onnx.Attr{onnx.IntAttr("align_corners", 1)},
			in:   []*onnx.Tensor{f32t([]float32{1, 0, 0, 0, 2, 0.5}, 1, 2, 3), i64t([]int64{1, 1, 2, 3}, 4)},
			want: wantF([]float32{-1, -1.5, 0, -1.5, 1, -1.5, -1, 2.5, 0, 2.5, 1, 2.5}, 1, 2, 3, 2), tol: 1e-6},
		{name: "GridSample in three dimensions", opset: 20, op: "GridSample", attrs: []onnx.Attr{onnx.IntAttr("align_corners", 1)},
			in: []*onnx.Tensor{f32t(seq(8), 1, 1, 2, 2, 2), f32t([]float32{-1, -1, -1, 1, 1, 1, 0, 0, 0}, 1, 1, 1, 3, 3)}, want: wantF([]float32{0, 7, 3.5}, 1, 1, 1, 1, 3)},
		{name: "DFT with its axis as input", opset: 20, op: "DFT", attrs: []onnx.Attr{onnx.IntAttr("onesided", 1)},
			in: []*onnx.Tensor{f32t([]float32{1, 0, 0, 0}, 1, 4, 1), nil, i64t([]int64{1})}, want: wantF([]float32{1, 0, 1, 0, 1, 0}, 1, 3, 2), tol: 1e-6},
		{name: "ConstantOfShape of bool", opset: 20, op: "ConstantOfShape", attrs: []onnx.Attr{onnx.TensorAttr("value", boolt([]bool{true}, 1))}, in: []*onnx.Tensor{i64t([]int64{2}, 1)},
			want: []onnx.Value{onnx.Of(tensor.Of([]bool{true, true}, 2))}},
		// 21
		{name: "QuantizeLinear in blocks to int4", opset: 21, op: "QuantizeLinear", attrs: []onnx.Attr{onnx.IntAttr("axis", 1), onnx.IntAttr("block_size", 2), onnx.IntAttr("output_dtype", int64(onnx.Int4))},
			in: []*onnx.Tensor{f32t([]float32{1, 2, 30, -40, 9}, 1, 5), f32t([]float32{1, 5, 1}, 1, 3)}, want: []onnx.Value{onnx.Of(tensor.Of([]int8{1, 2, 6, -8, 7}, 1, 5))}},
		{name: "DequantizeLinear in blocks of uint4", opset: 21, op: "DequantizeLinear", attrs: []onnx.Attr{onnx.IntAttr("axis", 0), onnx.IntAttr("block_size", 2)},
			in: []*onnx.Tensor{elem(u8t([]uint8{0, 15, 8, 3}, 4, 1), onnx.Uint4), f32t([]float32{1, 2}, 2, 1), elem(u8t([]uint8{1, 8}, 2, 1), onnx.Uint4)}, want: wantF([]float32{-1, 14, 0, -10}, 4, 1)},
		{name: "QuantizeLinear to int16", opset: 21, op: "QuantizeLinear", in: []*onnx.Tensor{f32t([]float32{1.5, 2.5, 1e6, -1e6}, 4), f32t([]float32{1}), onnx.NewTensor("", tensor.Of([]int16{0}))},
			want: []onnx.Value{onnx.Of(tensor.Of([]int16{2, 2, 32767, -32768}, 4))}},
		{name: "GroupNormalization by channel", opset: 21, op: "GroupNormalization", attrs: []onnx.Attr{onnx.IntAttr("num_groups", 2), onnx.FloatAttr("epsilon", 0)},
			in: []*onnx.Tensor{f32t([]float32{1, 3, 5, 9}, 1, 4, 1), f32t([]float32{1, 2, 3, 4}, 4), f32t([]float32{0, 0, 1, 1}, 4)}, want: wantF([]float32{-1, 2, -2, 5}, 1, 4, 1), tol: 1e-5},
		{name: "Cast to int4", opset: 21, op: "Cast", attrs: []onnx.Attr{onnx.IntAttr("to", int64(onnx.Int4))}, in: []*onnx.Tensor{f32t([]float32{7, -8, 3.9}, 3)},
			want: []onnx.Value{onnx.Of(tensor.Of([]int8{7, -8, 3}, 3))}},
		{name: "Transpose of int4", opset: 21, op: "Transpose", in: []*onnx.Tensor{onnx.NewTensor("", tensor.Of([]int8{1, 2, 3, 4}, 2, 2))}, want: []onnx.Value{onnx.Of(tensor.Of([]int8{1, 3, 2, 4}, 2, 2))}},
		// Since 18 all reductions but the sum, which came earlier, read their axes from an input.
		{name: "ReduceL1 over axis 1", opset: 18, op: "ReduceL1", in: []*onnx.Tensor{f32t([]float32{1, -2, 3, -4}, 2, 2), i64t([]int64{1}, 1)}, want: wantF([]float32{3, 7}, 2, 1), tol: 1e-6},
		{name: "ReduceLogSum", opset: 18, op: "ReduceLogSum", attrs: []onnx.Attr{onnx.IntAttr("keepdims", 0)}, in: []*onnx.Tensor{f32t([]float32{1, 1, 2, 2}, 2, 2), i64t([]int64{-1}, 1)},
			want: wantF([]float32{float32(math.Log(2)), float32(math.Log(4))}, 2), tol: 1e-6},
		{name: "ReduceMin", opset: 18, op: "ReduceMin", in: []*onnx.Tensor{f32t([]float32{1, -2, 3, -4}, 2, 2), i64t([]int64{0}, 1)}, want: wantF([]float32{1, -4}, 1, 2)},
		{name: "ReduceProd", opset: 18, op: "ReduceProd", in: []*onnx.Tensor{f32t([]float32{1, -2, 3, -4}, 2, 2), i64t([]int64{0, 1}, 2)}, want: wantF([]float32{24}, 1, 1)},
		{name: "ReduceSumSquare doing nothing", opset: 18, op: "ReduceSumSquare", attrs: []onnx.Attr{onnx.IntAttr("noop_with_empty_axes", 1)}, in: []*onnx.Tensor{f32t([]float32{3, -2}, 2), i64t(nil, 0)},
			want: wantF([]float32{3, -2}, 2)},
		// Since 19 float8 may be moved and cast.
		{name: "CastLike to float8", opset: 19, op: "CastLike", in: []*onnx.Tensor{f32t([]float32{1, 0.5, -2}, 3), elem(u8t([]uint8{0}), onnx.F8E5M2)},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{0x3c, 0x38, 0xc0}, 3))}},
		{name: "Constant of float8", opset: 19, op: "Constant", attrs: []onnx.Attr{onnx.TensorAttr("value", elem(u8t([]uint8{0x3c, 1}, 2), onnx.F8E5M2))},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{0x3c, 1}, 2))}},
		{name: "Identity of float8", opset: 19, op: "Identity", in: []*onnx.Tensor{elem(u8t([]uint8{0x3c, 1}, 2), onnx.F8E4M3FN)}, want: []onnx.Value{onnx.Of(tensor.Of([]uint8{0x3c, 1}, 2))}},
		{name: "Reshape of float8", opset: 19, op: "Reshape", in: []*onnx.Tensor{elem(u8t([]uint8{1, 2, 3, 4}, 4), onnx.F8E4M3FN), i64t([]int64{2, -1}, 2)},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{1, 2, 3, 4}, 2, 2))}},
		{name: "Shape of float8, from an axis", opset: 19, op: "Shape", attrs: []onnx.Attr{onnx.IntAttr("start", -1)}, in: []*onnx.Tensor{elem(u8t([]uint8{1, 2, 3, 4, 5, 6}, 2, 3), onnx.F8E4M3FN)}, want: wantI([]int64{3}, 1)},
		{name: "Size of float8", opset: 19, op: "Size", in: []*onnx.Tensor{elem(u8t([]uint8{1, 2, 3, 4, 5, 6}, 2, 3), onnx.F8E4M3FN)}, want: wantI([]int64{6})},
		{name: "If gives float8", opset: 19, op: "If", attrs: branches(elem(u8t([]uint8{7}, 1), onnx.F8E5M2), elem(u8t([]uint8{9}, 1), onnx.F8E5M2)), in: []*onnx.Tensor{boolt([]bool{false})},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{9}, 1))}},
		{name: "Loop over float8", opset: 19, op: "Loop", attrs: []onnx.Attr{onnx.GraphAttr("body", turns("i", "c", "v"))}, in: []*onnx.Tensor{i64t([]int64{2}), boolt([]bool{true}), elem(u8t([]uint8{1, 2}, 2), onnx.F8E5M2)},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{1, 2}, 2)), onnx.Of(tensor.Of([]uint8{1, 2, 1, 2}, 2, 2))}},
		{name: "Scan over float8", opset: 19, op: "Scan", attrs: []onnx.Attr{onnx.IntAttr("num_scan_inputs", 1), onnx.GraphAttr("body", turns("v"))}, in: []*onnx.Tensor{elem(u8t([]uint8{1, 2, 3}, 3, 1), onnx.F8E5M2)},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{1, 2, 3}, 3, 1))}},
		// Since 21 int4 and uint4 may be moved and cast.
		{name: "CastLike to uint4", opset: 21, op: "CastLike", in: []*onnx.Tensor{f32t([]float32{1, 15, 3}, 3), elem(u8t([]uint8{0}), onnx.Uint4)}, want: []onnx.Value{onnx.Of(tensor.Of([]uint8{1, 15, 3}, 3))}},
		{name: "Constant of int4", opset: 21, op: "Constant", attrs: []onnx.Attr{onnx.TensorAttr("value", i4t([]int8{-8, 7, 1}, 3))}, want: wantI4([]int8{-8, 7, 1}, 3)},
		{name: "ConstantOfShape of int4", opset: 21, op: "ConstantOfShape", attrs: []onnx.Attr{onnx.TensorAttr("value", i4t([]int8{-3}, 1))}, in: []*onnx.Tensor{i64t([]int64{3}, 1)}, want: wantI4([]int8{-3, -3, -3}, 3)},
		{name: "Flatten of int4", opset: 21, op: "Flatten", in: []*onnx.Tensor{i4t([]int8{1, 2, 3, 4}, 1, 2, 2)}, want: wantI4([]int8{1, 2, 3, 4}, 1, 4)},
		{name: "Identity of int4", opset: 21, op: "Identity", in: []*onnx.Tensor{i4t([]int8{1, -2}, 2)}, want: wantI4([]int8{1, -2}, 2)},
		{name: "Pad of int4", opset: 21, op: "Pad", in: []*onnx.Tensor{i4t([]int8{1, -2}, 2), i64t([]int64{1, 2}, 2)}, want: wantI4([]int8{0, 1, -2, 0, 0}, 5)},
		{name: "Reshape of int4", opset: 21, op: "Reshape", in: []*onnx.Tensor{i4t([]int8{1, 2, 3, 4}, 2, 2), i64t([]int64{0, 1, -1}, 3)}, want: wantI4([]int8{1, 2, 3, 4}, 2, 1, 2)},
		{name: "Shape of int4", opset: 21, op: "Shape", in: []*onnx.Tensor{i4t([]int8{1, 2, 3}, 3)}, want: wantI([]int64{3}, 1)},
		{name: "Size of int4", opset: 21, op: "Size", in: []*onnx.Tensor{i4t([]int8{1, 2, 3}, 3)}, want: wantI([]int64{3})},
		{name: "Squeeze of int4", opset: 21, op: "Squeeze", in: []*onnx.Tensor{i4t([]int8{1, 2}, 1, 2, 1), i64t([]int64{0}, 1)}, want: wantI4([]int8{1, 2}, 2, 1)},
		{name: "Unsqueeze of int4", opset: 21, op: "Unsqueeze", in: []*onnx.Tensor{i4t([]int8{1, 2}, 2), i64t([]int64{-1}, 1)}, want: wantI4([]int8{1, 2}, 2, 1)},
		{name: "If gives int4", opset: 21, op: "If", attrs: branches(i4t([]int8{-7}, 1), i4t([]int8{5}, 1)), in: []*onnx.Tensor{boolt([]bool{true})}, want: wantI4([]int8{-7}, 1)},
		{name: "Loop over int4", opset: 21, op: "Loop", attrs: []onnx.Attr{onnx.GraphAttr("body", turns("i", "c", "v"))}, in: []*onnx.Tensor{i64t([]int64{2}), boolt([]bool{true}), i4t([]int8{1, -2}, 2)},
			want: append(wantI4([]int8{1, -2}, 2), wantI4([]int8{1, -2, 1, -2}, 2, 2)...)},
		{name: "Scan over int4", opset: 21, op: "Scan", attrs: []onnx.Attr{onnx.IntAttr("num_scan_inputs", 1), onnx.GraphAttr("body", turns("v"))}, in: []*onnx.Tensor{i4t([]int8{1, -2, 3}, 3, 1)}, want: wantI4([]int8{1, -2, 3}, 3, 1)},
		{name: "QLinearMatMul with half scales", opset: 21, op: "QLinearMatMul",
			in:   []*onnx.Tensor{u8t([]uint8{3, 5}, 1, 2), f16t([]float64{0.5}), u8t([]uint8{1}), u8t([]uint8{2, 4}, 2, 1), f16t([]float64{0.5}), u8t([]uint8{0}), f16t([]float64{0.25}), u8t([]uint8{10})},
			want: []onnx.Value{onnx.Of(tensor.Of([]uint8{30}, 1, 1))}},
	}
	tested := map[string]bool{}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d %s", c.opset, c.name), c.run)
		tested[fmt.Sprint(c.op, c.opset)] = true
	}
	// No definition of these opsets is without a case.
	for _, o := range onnx.Operators() {
		for _, v := range o.Versions {
			require.True(t, v < 18 || tested[fmt.Sprint(o.Name, v)], "%s of opset %d has no case", o.Name, v)
		}
	}
}
