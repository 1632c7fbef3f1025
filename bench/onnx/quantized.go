package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// quantizedResNet50 is resnet50 as quantizers write such networks: QuantizeLinear and DequantizeLinear around every operator, unsigned
// activations, signed weights with a scale for each filter, batch normalizations folded away. The weights are random; scales keep the
// activations within their bytes.
func quantizedResNet50() (*onnx.Model, error) {
	q := &quantizing{rng: rand.New(rand.NewPCG(50, 50)), g: &onnx.Graph{Name: "resnet50-random-int8",
		Inputs: []onnx.ValueInfo{{Name: "x", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{{Size: -1, Param: "N"}, {Size: 3}, {Size: 224}, {Size: 224}}}}}}}
	const inner, branch, sum = 0.03, 0.04, 0.05 // scales
	x := q.activation("x", 0.02, 114)
	x = q.conv(x, "stem", 0.02, 3, 64, 7, 2, true, inner)
	x = q.activation(q.add("MaxPool", "pool", []string{x}, onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("strides", 2, 2), onnx.IntsAttr("pads", 1, 1, 1, 1)), inner, 0)
	in, scale := 64, float32(inner)
	for stage, blocks := range []int{3, 4, 6, 3} {
		mid := 64 << stage
		for b := range blocks {
			stride := 1
			if b == 0 && stage > 0 {
				stride = 2
			}
			name := fmt.Sprintf("s%db%d", stage, b)
			y := q.conv(x, name+".1", scale, in, mid, 1, 1, true, inner)
			y = q.conv(y, name+".2", inner, mid, mid, 3, stride, true, inner)
			y = q.conv(y, name+".3", inner, mid, 4*mid, 1, 1, false, branch)
			if b == 0 {
				x = q.conv(x, name+".down", scale, in, 4*mid, 1, stride, false, branch)
			}
			x = q.activation(q.add("Relu", name+".relu", []string{q.add("Add", name+".add", []string{y, x})}), sum, 0)
			in, scale = 4*mid, sum
		}
	}
	x = q.activation(q.add("GlobalAveragePool", "gap", []string{x}), branch, 0)
	x = q.activation(q.add("Flatten", "flat", []string{x}), branch, 0)
	y := q.activation(q.add("Gemm", "y", []string{x, q.weights("fc", 0.01, 1000, 2048)}, onnx.IntAttr("transB", 1)), 0.02, 128)
	q.g.Outputs = []onnx.ValueInfo{{Name: y, Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "N"}, {Size: 1000}}}}}
	return onnx.NewModel(13, q.g)
}

type quantizing struct {
	g   *onnx.Graph
	rng *rand.Rand
}

func (q *quantizing) constant(name string, t tensor.Tensor) string {
	q.g.Inits = append(q.g.Inits, onnx.NewTensor(name, t))
	return name
}

func (q *quantizing) add(op, out string, in []string, attrs ...onnx.Attr) string {
	q.g.Nodes = append(q.g.Nodes, &onnx.Node{Name: out, Op: op, In: in, Out: []string{out}, Attrs: attrs})
	return out
}

func (q *quantizing) activation(name string, scale float32, zero uint8) string {
	s, z := q.constant(name+".scale", tensor.Of([]float32{scale})), q.constant(name+".zero", tensor.Of([]uint8{zero}))
	return q.add("DequantizeLinear", name+".dq", []string{q.add("QuantizeLinear", name+".q", []string{name, s, z}), s, z})
}

func (q *quantizing) weights(name string, std float64, dims ...int) string {
	const spread = 40 // of the bytes
	t := tensor.New(tensor.I8, dims...)
	for i := range t.Raw() {
		t.Raw()[i] = byte(int8(min(max(q.rng.NormFloat64()*spread, -127), 127)))
	}
	scales := make([]float32, dims[0])
	for i := range scales {
		scales[i] = float32(std/spread) * (1 + 0.1*q.rng.Float32())
	}
	return q.add("DequantizeLinear", name+".w.dq", []string{q.constant(name+".w", t), q.constant(name+".w.scale", tensor.Of(scales, len(scales))),
		q.constant(name+".w.zero", tensor.New(tensor.I8, len(scales)))}, onnx.IntAttr("axis", 0))
}

func (q *quantizing) conv(x, name string, scale float32, in, out, k, stride int, relu bool, next float32) string {
	w := q.weights(name, math.Sqrt(2/float64(in*k*k)), out, in, k, k)
	bias := make([]float32, out)
	for i := range bias {
		bias[i] = 0.01 * (1 + 0.1*q.rng.Float32())
	}
	// Integers of the scale of the sums.
	scales := tensor.Data[float32](q.g.Inits[len(q.g.Inits)-2].Data)
	ints, sums := make([]int32, out), make([]float32, out)
	for i := range ints {
		sums[i] = scales[i] * scale
		ints[i] = int32(bias[i] / sums[i])
	}
	b := q.add("DequantizeLinear", name+".b.dq", []string{q.constant(name+".b", tensor.Of(ints, out)), q.constant(name+".b.scale", tensor.Of(sums, out)),
		q.constant(name+".b.zero", tensor.New(tensor.I32, out))}, onnx.IntAttr("axis", 0))
	p := int64(k / 2)
	y := q.add("Conv", name, []string{x, w, b}, onnx.IntsAttr("kernel_shape", int64(k), int64(k)), onnx.IntsAttr("strides", int64(stride), int64(stride)), onnx.IntsAttr("pads", p, p, p, p))
	if relu {
		return q.activation(q.add("Relu", name+".relu", []string{y}), next, 0)
	}
	return q.activation(y, next, 128)
}
