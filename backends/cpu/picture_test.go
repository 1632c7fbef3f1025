package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// againstReference runs an op on the backend, its inputs from position constants on as constants, and compares with the reference.
func againstReference(t *testing.T, op ops.Op, tol float64, constants int, in ...tensor.Tensor) {
	t.Helper()
	b, err := backends.Open("cpu", "threads=2")
	require.NoError(t, err)
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	part := &ops.Part{Nodes: []ops.Node{{Name: "n", Op: op}}}
	frame := append([]tensor.Tensor{}, in...)
	for i := range in {
		v := ops.Value{Spec: in[i].Spec}
		if i >= constants {
			v.Const = ops.NewConstant(in[i])
		}
		part.Values = append(part.Values, v)
		part.Nodes[0].In = append(part.Nodes[0].In, i)
	}
	var want []tensor.Tensor
	for _, s := range out {
		part.Nodes[0].Out = append(part.Nodes[0].Out, len(frame))
		part.Values = append(part.Values, ops.Value{Spec: s})
		frame = append(frame, tensor.New(s.DType, s.Shape()...))
		want = append(want, tensor.New(s.DType, s.Shape()...))
	}
	verdict := b.Supports(part.Call(&part.Nodes[0]))
	require.True(t, verdict.OK)
	require.NotContains(t, verdict.Reason, "reference", "%+v", op)
	p, err := b.Compile(context.Background(), part)
	require.NoError(t, err)
	require.NoError(t, op.Reference(want, in))
	for range 2 { // the second run uses what the first has left
		require.NoError(t, p.Run(context.Background(), frame, 0, 1))
		for i := range want {
			require.InDeltaSlice(t, want[i].Floats(), frame[len(in)+i].Floats(), tol, "%+v %v", op, specs)
		}
	}
}

func randomTensor(rng *rand.Rand, d tensor.DType, dims ...int) tensor.Tensor {
	t := tensor.New(d, dims...)
	v := make([]float64, t.Elems())
	for i := range v {
		v[i] = float64(rng.IntN(33)-16) / 8
	}
	t.SetFloats(v)
	return t
}

func TestResizeKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, mode := range []image.Interp{image.Nearest, image.Linear, image.Cubic} {
		for _, c := range []struct{ in, out []int }{
			{[]int{2, 3, 4, 5}, []int{2, 3, 8, 10}}, {[]int{2, 4, 5, 3}, []int{2, 8, 10, 3}}, {[]int{1, 9, 7, 17}, []int{1, 4, 20, 17}},
			{[]int{2, 3, 4, 5}, []int{2, 3, 4, 9}}, {[]int{2, 3, 4, 5}, []int{2, 3, 7, 5}}, {[]int{2, 3, 4, 5}, []int{2, 3, 4, 5}}, {[]int{7}, []int{20}},
		} {
			x := randomTensor(rng, tensor.F32, c.in...)
			for _, coord := range []image.Coord{image.HalfPixel, image.AlignCorners, image.Asymmetric} {
				againstReference(t, image.Resize{Mode: mode, Coord: coord, CubicA: -0.75, Out: ops.MakeInts(c.out...)}, 1e-5, 9, x)
			}
			if len(c.in) == 4 && c.in[1] == c.out[1] {
				view, err := x.Permute(0, 2, 3, 1)
				require.NoError(t, err)
				againstReference(t, image.Resize{Mode: mode, Out: ops.MakeInts(c.out[0], c.out[2], c.out[3], c.out[1])}, 1e-5, 9, view)
			}
		}
	}
}

func TestPadKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, d := range []tensor.DType{tensor.F32, tensor.U8, tensor.F16, tensor.I64} {
		x := randomTensor(rng, d, 3, 4, 5)
		for mode := shape.PadConstant; mode <= shape.PadWrap; mode++ {
			againstReference(t, shape.Pad{Before: ops.MakeInts(1, 0, 2), After: ops.MakeInts(0, 2, 3), Mode: mode, Value: 7}, 0, 9, x)
			againstReference(t, shape.Pad{Before: ops.MakeInts(0, 1, 4), After: ops.MakeInts(2, 0, 0), Mode: mode, Value: 7}, 0, 9, x)
		}
		againstReference(t, shape.Pad{Before: ops.MakeInts(-1, 0, -2), After: ops.MakeInts(0, -2, 3), Value: 7}, 0, 9, x)
		againstReference(t, shape.Pad{Before: ops.MakeInts(0, 0, -5), After: ops.MakeInts(0, 0, 3), Value: 7}, 0, 9, x)
	}
}

// Everything that the engine of convolutions is asked for by way of the graph: layouts, ranks, types, epilogues, views.
func TestConvKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	acts := []ops.Act{{}, {Kind: ops.ReLU}, {Kind: ops.HardSwish}, {Kind: ops.SiLU}, {Kind: ops.ELU, P: 0.5}}
	n := 0
	for _, layout := range []conv.Layout{conv.ChannelsFirst, conv.ChannelsLast} {
		for _, spatial := range []int{1, 2, 3} {
			for _, groups := range []int{1, 2, 6} {
				for _, residual := range []matmul.Residual{matmul.NoResidual, matmul.ResidualBefore, matmul.ResidualAfter} {
					for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
						n++
						e := matmul.Epilogue{Bias: n%2 == 0, ColScale: n%3 == 0, Residual: residual, Act: acts[n%len(acts)]}
						win := conv.Window{Stride: [3]int{1 + n%2, 1, 1 + n/2%2}, Before: [3]int{1, 0, 1}, After: [3]int{0, 1, 1}}
						m := 6
						if groups == 1 {
							m = 9
						}
						x := randomTensor(rng, d, layout.Dims(2, 6, []int{7, 6, 5}[:spatial])...)
						w := randomTensor(rng, tensor.F32, append([]int{m, 6 / groups}, []int{3, 2, 3}[:spatial]...)...)
						var op ops.Op = conv.Conv{Window: win, Groups: groups, Layout: layout, Epilogue: e, Out: d}
						if n%5 == 0 {
							w = randomTensor(rng, tensor.F32, append([]int{6, m / groups}, []int{3, 2, 3}[:spatial]...)...)
							op = conv.Transposed{Window: win, Groups: groups, Layout: layout, Epilogue: e, Out: d}
						}
						in := []tensor.Tensor{x, w}
						if e.ColScale {
							in = append(in, randomTensor(rng, tensor.F32, m))
						}
						if e.Bias {
							in = append(in, randomTensor(rng, tensor.F32, m))
						}
						constants := 1
						if residual != matmul.NoResidual {
							full := append([]tensor.Spec{}, make([]tensor.Spec, len(in))...)
							for i := range in {
								full[i] = in[i].Spec
							}
							bare := e
							bare.Residual = matmul.NoResidual
							var plain ops.Op = conv.Conv{Window: win, Groups: groups, Layout: layout, Epilogue: bare, Out: d}
							if n%5 == 0 {
								plain = conv.Transposed{Window: win, Groups: groups, Layout: layout, Epilogue: bare, Out: d}
							}
							out, err := plain.Infer(full)
							require.NoError(t, err)
							in = append(in, randomTensor(rng, tensor.F32, out[0].Shape()...))
						}
						tol := map[tensor.DType]float64{tensor.F32: 1e-4, tensor.F16: 0.05, tensor.BF16: 0.3}[d]
						t.Run(fmt.Sprint(n, layout, spatial, groups, residual, d), func(t *testing.T) {
							againstReference(t, op, tol, constants, in...)
							if d == tensor.F32 && !e.ColScale {
								againstReference(t, op, tol, 99, in...) // the filter is no constant
							}
						})
					}
				}
			}
		}
	}
	for _, layout := range []conv.Layout{conv.ChannelsFirst, conv.ChannelsLast} {
		for _, kind := range []conv.PoolKind{conv.Max, conv.Avg, conv.AvgPadded} {
			for _, d := range []tensor.DType{tensor.F32, tensor.F16} {
				for spatial := 1; spatial <= conv.MaxSpatial; spatial++ {
					x := randomTensor(rng, d, layout.Dims(2, 5, []int{7, 6, 5}[:spatial])...)
					op := conv.Pool{Kind: kind, Layout: layout, Kernel: [3]int{3, 2, 2}, Ceil: true, Window: conv.Window{Stride: [3]int{2, 2, 1}, Before: [3]int{1, 0, 1}}}
					againstReference(t, op, 2e-3, 9, x)
				}
			}
		}
		for _, d := range []tensor.DType{tensor.U8, tensor.I8} { // exact, also where a window has padding alone
			for spatial := 1; spatial <= conv.MaxSpatial; spatial++ {
				for _, channels := range []int{1, 5, 31, 32, 64, 77} {
					x := randomTensor(rng, d, layout.Dims(2, channels, []int{7, 6, 5}[:spatial])...)
					for _, before := range []int{0, 1, 3} {
						op := conv.Pool{Layout: layout, Kernel: [3]int{3, 2, 2}, Ceil: true, Window: conv.Window{Stride: [3]int{2, 2, 1}, Before: [3]int{before, 0, 1}}}
						againstReference(t, op, 0, 9, x)
						op.Dilation = [3]int{2, 3, 1}
						againstReference(t, op, 0, 9, x)
					}
				}
			}
		}
	}
}

// Convolutions and poolings of all ranks have kernels of their own: nothing is left to the reference.
func TestKernelsOfAllRanks(t *testing.T) {
	b := &Backend{isa: cpuinfo.Get().ISA}
	for spatial := 1; spatial <= conv.MaxSpatial; spatial++ {
		x, w := []int{2, 8, 9, 6, 7}[:2+spatial], []int{8, 8, 3, 2, 3}[:2+spatial]
		for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.U8, tensor.I8} {
			for _, op := range []ops.Op{conv.Conv{}, conv.Transposed{}, conv.Pool{Kernel: [3]int{3, 2, 3}}, conv.Pool{Kind: conv.AvgPadded, Kernel: [3]int{9, 6, 7}}} {
				in := []tensor.Spec{tensor.MakeSpec(d, x...), tensor.MakeSpec(d, w...)}
				_, pool := op.(conv.Pool)
				if pool {
					in = in[:1]
				}
				if p, is := op.(conv.Pool); d.IsInt() && (op == ops.Op(conv.Transposed{}) || is && p.Kind != conv.Max) {
					continue
				}
				out, err := op.Infer(in)
				require.NoError(t, err)
				c := ops.Call{Op: op, In: in, Out: out, Const: []bool{false, true}}
				k := kernel(nil)
				if p, is := op.(conv.Pool); is {
					k = poolKernelFor(b, p, c)
				} else {
					k = convKernelFor(b, c)
				}
				require.NotNil(t, k, "%T %v %d", op, d, spatial)
			}
		}
	}
}

// Maxima of bytes are those of bytes where pixels fill vectors and there are kernels, and go by way of floats elsewhere.
func TestMaximaOfBytes(t *testing.T) {
	b := &Backend{isa: cpuinfo.Get().ISA, vec: vec.For(cpuinfo.Get().ISA)}
	for _, d := range []tensor.DType{tensor.U8, tensor.I8} {
		for _, channels := range []int{fewestMaxima - 1, fewestMaxima} {
			op := conv.Pool{Kernel: [3]int{3, 3}}
			in := []tensor.Spec{tensor.MakeSpec(d, 1, channels, 9, 9)}
			out, err := op.Infer(in)
			require.NoError(t, err)
			_, bytes := poolKernelFor(b, op, ops.Call{Op: op, In: in, Out: out}).(*maxBytesKernel)
			require.Equal(t, channels == fewestMaxima && b.vec.MaxU8 != nil, bytes)
		}
	}
}

// Images come into the order of the kernels, and back, whatever their channels and sizes.
func TestCopyTransposes(t *testing.T) {
	e := &env{threads: 2}
	for channels := 1; channels < 11; channels++ {
		for _, size := range [][2]int{{1, 7}, {3, 5}, {9, 16}, {40, 64}, {190, 211}} {
			x := randomTensor(rand.New(rand.NewPCG(1, 2)), tensor.F32, 2, channels, size[0], size[1])
			for _, order := range [][]int{{0, 2, 3, 1}, {0, 3, 1, 2}, {1, 0, 3, 2}} {
				view, err := x.Permute(order...)
				require.NoError(t, err)
				want := view.Clone()
				got := tensor.New(tensor.F32, view.Shape()...)
				var c copier
				c.copy(e, &got, &view)
				require.Equal(t, tensor.Data[float32](want), tensor.Data[float32](got), "%v %v", x.Spec, order)
			}
		}
	}
}
