package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// resnet50 returns a network in the shape of ResNet-50 (batch normalizations and all) with random weights: speed does not depend on
// them.
func resnet50() (*onnx.Model, error) {
	rng := rand.New(rand.NewPCG(50, 50))
	g := &onnx.Graph{Name: "resnet50-random",
		Inputs: []onnx.ValueInfo{{Name: "x", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true,
			Dims: []onnx.Dim{{Size: -1, Param: "N"}, {Size: 3}, {Size: 224}, {Size: 224}}}}},
		Outputs: []onnx.ValueInfo{{Name: "y", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "N"}, {Size: 1000}}}}}}
	weight := func(name string, std float64, dims ...int) string {
		t := tensor.New(tensor.F32, dims...)
		for i := range tensor.Data[float32](&t) {
			tensor.Data[float32](&t)[i] = float32(rng.NormFloat64() * std)
		}
		g.Inits = append(g.Inits, onnx.NewTensor(name, t))
		return name
	}
	ones := func(name string, v float32, n int) string {
		s := make([]float32, n)
		for i := range s {
			s[i] = v * (1 + 0.1*rng.Float32())
		}
		g.Inits = append(g.Inits, onnx.NewTensor(name, tensor.Of(s, n)))
		return name
	}
	add := func(op, out string, in []string, attrs ...onnx.Attr) string {
		g.Nodes = append(g.Nodes, &onnx.Node{Name: out, Op: op, In: in, Out: []string{out}, Attrs: attrs})
		return out
	}
	conv := func(x, name string, in, out, k, stride int, relu bool) string {
		p := int64(k / 2)
		w := weight(name+".w", math.Sqrt(2/float64(in*k*k)), out, in, k, k)
		x = add("Conv", name, []string{x, w}, onnx.IntsAttr("kernel_shape", int64(k), int64(k)), onnx.IntsAttr("strides", int64(stride), int64(stride)),
			onnx.IntsAttr("pads", p, p, p, p))
		x = add("BatchNormalization", name+".bn", []string{x, ones(name+".s", 0.5, out), ones(name+".b", 0.01, out), ones(name+".m", 0.01, out), ones(name+".v", 1, out)})
		if relu {
			x = add("Relu", name+".relu", []string{x})
		}
		return x
	}
	x := conv("x", "stem", 3, 64, 7, 2, true)
	x = add("MaxPool", "pool", []string{x}, onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("strides", 2, 2), onnx.IntsAttr("pads", 1, 1, 1, 1))
	in := 64
	for stage, blocks := range []int{3, 4, 6, 3} {
		mid := 64 << stage
		for b := range blocks {
			stride := 1
			if b == 0 && stage > 0 {
				stride = 2
			}
			name := fmt.Sprintf("s%db%d", stage, b)
			y := conv(x, name+".1", in, mid, 1, 1, true)
			y = conv(y, name+".2", mid, mid, 3, stride, true)
			y = conv(y, name+".3", mid, 4*mid, 1, 1, false)
			if b == 0 {
				x = conv(x, name+".down", in, 4*mid, 1, stride, false)
			}
			x = add("Relu", name+".relu", []string{add("Add", name+".add", []string{y, x})})
			in = 4 * mid
		}
	}
	x = add("Flatten", "flat", []string{add("GlobalAveragePool", "gap", []string{x})})
	add("Gemm", "y", []string{x, weight("fc.w", 0.01, 1000, 2048), weight("fc.b", 0.01, 1000)}, onnx.IntAttr("transB", 1))
	return onnx.NewModel(13, g)
}
