package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func randomInts(rng *rand.Rand, d tensor.DType, dims ...int) tensor.Tensor {
	t := tensor.New(d, dims...)
	v := make([]int64, t.Elems())
	for i := range v {
		v[i] = int64(rng.IntN(256))
		if d == tensor.I8 {
			v[i] -= 128
		}
	}
	t.SetInts(v)
	return t
}

// Integer convolutions give the sums of the definition, exactly, and what it makes of them: in bytes, steps apart at most where a value lies
// on the middle between two.
func TestIntegerConvKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	acts := []ops.Act{{}, {Kind: ops.ReLU}, {Kind: ops.HardSwish}, {Kind: ops.SiLU}}
	n := 0
	for _, layout := range []conv.Layout{conv.ChannelsFirst, conv.ChannelsLast} {
		for _, spatial := range []int{1, 2, 3} {
			for _, groups := range []int{1, 2, 6} {
				for _, xd := range []tensor.DType{tensor.U8, tensor.I8} {
					for _, wd := range []tensor.DType{tensor.I8, tensor.U8} {
						for _, yd := range []tensor.DType{tensor.I32, tensor.F32, tensor.U8, tensor.I8} {
							n++
							win := conv.Window{Stride: [3]int{1 + n%2, 1, 1 + n/2%2}, Before: [3]int{1, 0, 1}, After: [3]int{0, 1, 1}}
							op := conv.Conv{Window: win, Groups: groups, Layout: layout, Out: yd, XZero: []int32{0, 3, 127}[n%3], WZero: []int32{0, 5}[n/2%2]}
							if wd == tensor.U8 && n%3 == 0 {
								op.WZero = 128
							}
							x := randomInts(rng, xd, layout.Dims(2, 6, []int{7, 6, 5}[:spatial])...)
							w := randomInts(rng, wd, append([]int{6, 6 / groups}, []int{3, 2, 3}[:spatial]...)...)
							in := []tensor.Tensor{x, w}
							tol := 0.0
							if yd != tensor.I32 {
								op.Epilogue = matmul.Epilogue{ColScale: true, Bias: n%2 == 0, Act: acts[n%len(acts)]}
								scales := randomTensor(rng, tensor.F32, 6)
								for i, v := range tensor.Data[float32](scales) {
									tensor.Data[float32](scales)[i] = v*v*1e-3 + 1e-4
								}
								in = append(in, scales)
								if op.Epilogue.Bias {
									in = append(in, randomTensor(rng, tensor.F32, 6))
								}
								tol = 1e-3
								if yd != tensor.F32 {
									op.Epilogue.OutScale, op.Epilogue.OutZero = 0.05, int32(n%50)
									tol = 1
								}
								if op.Epilogue.Residual = []matmul.Residual{matmul.NoResidual, matmul.ResidualBefore, matmul.ResidualAfter}[n%3]; op.Epilogue.Residual != matmul.NoResidual {
									bare := op
									bare.Epilogue.Residual = matmul.NoResidual
									specs := make([]tensor.Spec, len(in))
									for i := range in {
										specs[i] = in[i].Spec
									}
									out, err := bare.Infer(specs)
									if err != nil {
										t.Fatal(err)
									}
									in = append(in, randomTensor(rng, tensor.F32, out[0].Shape()...))
								}
							}
							t.Run(fmt.Sprint(n, layout, spatial, groups, xd, wd, yd), func(t *testing.T) {
								againstReference(t, op, tol, 1, in...)
								againstReference(t, op, tol, 99, in...) // the filter is no constant
							})
						}
					}
				}
			}
		}
	}
}

// Filters of bfloat16 stay what they are: the pairs of a step are multiplied exactly.
func TestBF16ConvKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, groups := range []int{1, 2, 6} {
		for _, scaled := range []bool{false, true} {
			x, w := randomTensor(rng, tensor.BF16, 2, 12, 9, 8), randomTensor(rng, tensor.BF16, 18, 12/groups, 3, 3)
			op := conv.Conv{Groups: groups, Window: conv.Window{Before: [3]int{1, 1}, After: [3]int{1, 1}}, Epilogue: matmul.Epilogue{ColScale: scaled, Bias: true}}
			in := []tensor.Tensor{x, w}
			if scaled {
				in = append(in, randomTensor(rng, tensor.F32, 18))
			}
			in = append(in, randomTensor(rng, tensor.F32, 18))
			againstReference(t, op, 1e-4, 1, in...)
		}
	}
}
