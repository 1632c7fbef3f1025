package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// network builds a network with random weights: speed does not depend on them.
type network struct {
	g   *onnx.Graph
	rng *rand.Rand
}

// newNetwork returns one with an input [N, dims...] and an output [N, classes].
func newNetwork(name string, classes int, dims ...int) *network {
	info := func(name string, dims ...int) []onnx.ValueInfo {
		t := &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "N"}}}
		for _, d := range dims {
			t.Dims = append(t.Dims, onnx.Dim{Size: d})
		}
		return []onnx.ValueInfo{{Name: name, Type: t}}
	}
	return &network{&onnx.Graph{Name: name, Inputs: info("x", dims...), Outputs: info("y", classes)}, rand.New(rand.NewPCG(50, 50))}
}

func (n *network) weight(name string, std float64, dims ...int) string {
	t := tensor.New(tensor.F32, dims...)
	for i := range tensor.Data[float32](t) {
		tensor.Data[float32](t)[i] = float32(n.rng.NormFloat64() * std)
	}
	n.g.Inits = append(n.g.Inits, onnx.NewTensor(name, t))
	return name
}

func (n *network) about(name string, v float32, size int) string {
	s := make([]float32, size)
	for i := range s {
		s[i] = v * (1 + 0.1*n.rng.Float32())
	}
	n.g.Inits = append(n.g.Inits, onnx.NewTensor(name, tensor.Of(s, size)))
	return name
}

func (n *network) add(op, out string, in []string, attrs ...onnx.Attr) string {
	n.g.Nodes = append(n.g.Nodes, &onnx.Node{Name: out, Op: op, In: in, Out: []string{out}, Attrs: attrs})
	return out
}

// conv is a convolution padded by half of its kernel, with a batch normalization and perhaps a rectifier behind it.
func (n *network) conv(x, name string, in, out int, kernel, strides []int64, relu bool) string {
	dims, taps := []int{out, in}, 1
	pads := make([]int64, 2*len(kernel))
	for i, k := range kernel {
		dims, taps = append(dims, int(k)), taps*int(k)
		pads[i], pads[len(kernel)+i] = k/2, k/2
	}
	w := n.weight(name+".w", math.Sqrt(2/float64(in*taps)), dims...)
	x = n.add("Conv", name, []string{x, w}, onnx.IntsAttr("kernel_shape", kernel...), onnx.IntsAttr("strides", strides...), onnx.IntsAttr("pads", pads...))
	x = n.add("BatchNormalization", name+".bn", []string{x, n.about(name+".s", 0.5, out), n.about(name+".b", 0.01, out), n.about(name+".m", 0.01, out), n.about(name+".v", 1, out)})
	if relu {
		x = n.add("Relu", name+".relu", []string{x})
	}
	return x
}

// classify is the mean of all places and a product with the weights of the classes.
func (n *network) classify(x string, channels, classes int) {
	x = n.add("Flatten", "flat", []string{n.add("GlobalAveragePool", "gap", []string{x})})
	n.add("Gemm", "y", []string{x, n.weight("fc.w", 0.01, classes, channels), n.weight("fc.b", 0.01, classes)}, onnx.IntAttr("transB", 1))
}

// resnet50 returns a network in the shape of ResNet-50, batch normalizations and all.
func resnet50() (*onnx.Model, error) {
	n := newNetwork("resnet50-random", 1000, 3, 224, 224)
	square := func(k int64) []int64 { return []int64{k, k} }
	x := n.conv("x", "stem", 3, 64, square(7), square(2), true)
	x = n.add("MaxPool", "pool", []string{x}, onnx.IntsAttr("kernel_shape", 3, 3), onnx.IntsAttr("strides", 2, 2), onnx.IntsAttr("pads", 1, 1, 1, 1))
	in := 64
	for stage, blocks := range []int{3, 4, 6, 3} {
		mid := 64 << stage
		for b := range blocks {
			stride := square(1)
			if b == 0 && stage > 0 {
				stride = square(2)
			}
			name := fmt.Sprintf("s%db%d", stage, b)
			y := n.conv(x, name+".1", in, mid, square(1), square(1), true)
			y = n.conv(y, name+".2", mid, mid, square(3), stride, true)
			y = n.conv(y, name+".3", mid, 4*mid, square(1), square(1), false)
			if b == 0 {
				x = n.conv(x, name+".down", in, 4*mid, square(1), stride, false)
			}
			x = n.add("Relu", name+".relu", []string{n.add("Add", name+".add", []string{y, x})})
			in = 4 * mid
		}
	}
	n.classify(x, in, 1000)
	return onnx.NewModel(13, n.g)
}

// r3d18 returns a network for clips in the shape of torchvision's r3d_18: ResNet-18 with kernels of three dimensions (Tran et al., "A Closer Look at
// Spatiotemporal Convolutions for Action Recognition", CVPR 2018).
func r3d18() (*onnx.Model, error) {
	n := newNetwork("r3d18-random", 400, 3, 8, 112, 112)
	cube := func(k int64) []int64 { return []int64{k, k, k} }
	x := n.conv("x", "stem", 3, 64, []int64{3, 7, 7}, []int64{1, 2, 2}, true)
	in := 64
	for stage := range 4 {
		out := 64 << stage
		for b := range 2 {
			stride := cube(1)
			if b == 0 && stage > 0 {
				stride = cube(2)
			}
			name := fmt.Sprintf("s%db%d", stage, b)
			y := n.conv(x, name+".1", in, out, cube(3), stride, true)
			y = n.conv(y, name+".2", out, out, cube(3), cube(1), false)
			if in != out {
				x = n.conv(x, name+".down", in, out, cube(1), stride, false)
			}
			x = n.add("Relu", name+".relu", []string{n.add("Add", name+".add", []string{y, x})})
			in = out
		}
	}
	n.classify(x, in, 400)
	return onnx.NewModel(13, n.g)
}
