package xdna

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// TestSpecials: NaN and infinities in either operand give what the float product gives, in every number format and both modes, and leave every other result
// as it would be without them.
func TestSpecials(t *testing.T) {
	const m, k, n = 9, 37, 21
	inf := float32(math.Inf(1))
	for _, spec := range []string{"xdna:", "xdna:precision=int8", "xdna2:", "xdna2:precision=int8", "xdna2:precision=int8,overflow=saturate", "xdna2:precision=bfp16,output=f32", "xdna2:layout=row"} {
		for _, mode := range []string{"fast", "emulate"} {
			for _, typ := range []tensor.DType{tensor.F32, tensor.BF16} {
				t.Run(spec+mode+typ.String(), func(t *testing.T) {
					b, err := backends.Open(spec + ",rows=1,mode=" + mode)
					require.NoError(t, err)
					defer b.Close()
					rng := rand.New(rand.NewPCG(1, 2))
					a, w := tensor.New(typ, m, k), tensor.New(typ, k, n)
					for _, x := range []*tensor.Tensor{&a, &w} {
						v := x.Floats()
						for i := range v {
							v[i] = float64(rng.IntN(5) - 2)
						}
						x.SetFloats(v)
					}
					clean := run(t, b, a, w)
					edit := func(x *tensor.Tensor, i, j int, v float32) {
						f := x.Floats()
						f[i*x.Dims[1]+j] = float64(v)
						x.SetFloats(f)
					}
					edit(&a, 1, 5, inf)
					edit(&a, 3, 0, -inf)
					edit(&a, 3, 36, inf)
					edit(&a, 6, 9, float32(math.NaN()))
					edit(&w, 8, 4, -inf)
					edit(&w, 5, 20, inf)
					edit(&w, 36, 7, float32(math.NaN()))
					got := run(t, b, a, w)
					want := tensor.New(tensor.F32, m, n)
					require.NoError(t, matmul.Op{}.Reference([]tensor.Tensor{want}, []tensor.Tensor{a, w}))
					touched := 0
					for i, x := range want.Floats() {
						row, col := i/n, i%n
						if row != 1 && row != 3 && row != 6 && col != 4 && col != 7 && col != 20 {
							require.Equal(t, clean[i], got[i], "%d %d", row, col)
							continue
						}
						touched++
						if math.IsNaN(x) {
							require.True(t, math.IsNaN(got[i]), "%d %d is %v", row, col, got[i])
						} else {
							require.Equal(t, x, got[i], "%d %d", row, col)
						}
					}
					if b.Name() == "xdna2" || typ == tensor.F32 && spec != "xdna:" { // arithmetic of bfloat16 on XDNA has infinities
						require.EqualValues(t, touched, b.Stats().HostResults)
					}
				})
			}
		}
	}
}

// run multiplies with constant weights.
func run(t *testing.T, b backends.Backend, a, w tensor.Tensor) []float64 {
	t.Helper()
	c := tensor.New(tensor.F32, a.Dims[0], w.Dims[1])
	part := &ops.Part{Inputs: []int{0}, Outputs: []int{2},
		Values: []ops.Value{{Name: "a", Spec: a.Spec}, {Name: "w", Spec: w.Spec, Const: ops.NewConstant(w)}, {Name: "c", Spec: c.Spec}},
		Nodes:  []ops.Node{{Name: "product", Op: matmul.Op{Out: tensor.F32}, In: []int{0, 1}, Out: []int{2}}}}
	p, err := b.Compile(context.Background(), part)
	require.NoError(t, err)
	require.NoError(t, p.Run(context.Background(), []tensor.Tensor{a, w, c}, 0, 1))
	require.NoError(t, p.Close())
	return c.Floats()
}
