package plan_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna"
	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/backends/xdna/plan"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant/bfp16"
	"github.com/tessera-go/tessera/tensor"
)

var tensorTypes = map[kernel.Type]tensor.DType{
	kernel.I8: tensor.I8, kernel.I16: tensor.I16, kernel.I32: tensor.I32, kernel.BF16: tensor.BF16, kernel.BFP16: tensor.BFP16,
}

// random fills a matrix of rows x cols.
func random(rng *rand.Rand, d tensor.DType, rows, cols int) tensor.Tensor {
	t := tensor.New(d, rows, cols)
	raw := t.Raw()
	line := make([]float32, cols)
	for i := range rows {
		for j := range line {
			line[j] = float32(rng.NormFloat64() * math.Exp2(float64(rng.IntN(6)-3)))
		}
		switch d {
		case tensor.I8:
			for j := range cols {
				raw[i*cols+j] = byte(rng.Uint32())
			}
		case tensor.BF16:
			for j, v := range line {
				h := tensor.F32ToBF16(v)
				raw[2*(i*cols+j)], raw[2*(i*cols+j)+1] = byte(h), byte(h>>8)
			}
		case tensor.BFP16:
			bfp16.Encode(raw[i*cols/8*9:][:cols/8*9], line, bfp16.NearestEven)
		}
	}
	return t
}

// TestBestDesignsAreReal: every design that the planner proposes beyond the paper runs as control code on the emulated array, ragged edges and all, and gives
// the bits of the CPU's kernels, which the backend's tests compare with the definition.
func TestBestDesignsAreReal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	ran := 0
	for _, name := range plan.Devices {
		m, err := plan.Lookup(name)
		require.NoError(t, err)
		dev, err := device.Lookup(name)
		require.NoError(t, err)
		for _, dt := range append(append([]string(nil), plan.PaperTypes...), "bf16-bfp16") {
			ty, err := plan.ParseTypes(dt)
			require.NoError(t, err)
			for _, family := range []string{plan.FamilyATB, plan.FamilyResident, plan.FamilyATBResident, plan.FamilyBFP16} {
				d, tops := plan.BestBuildable(m, ty, family, plan.About)
				if tops == 0 {
					continue
				}
				ran++
				b, err := d.Build()
				require.NoError(t, err)
				designs := map[device.Types]*design.Design{ty: b}
				array, err := xdna.New(dev, xdna.Options{Mode: xdna.Emulate, Designs: designs})
				require.NoError(t, err)
				host, err := xdna.New(dev, xdna.Options{Mode: xdna.Fast, Designs: designs})
				require.NoError(t, err)
				n := d.Native()
				rows, cols, depth := n.M+rng.IntN(n.M), 1+rng.IntN(n.N), (1+rng.IntN(2*d.KMT)+7)&^7
				spec := matmul.Spec{N: cols, K: depth, A: tensorTypes[ty.A], B: tensorTypes[ty.B], C: tensorTypes[ty.C], BLayout: matmul.ColMajor}
				x, w := random(rng, spec.A, rows, depth), random(rng, spec.B, cols, depth)
				var results [][]byte
				for _, backend := range []*xdna.Backend{array, host} {
					e := backend.MatMul()
					packed, err := e.Pack(context.Background(), spec, w)
					require.NoError(t, err)
					p, err := e.Plan(spec, matmul.Shape{M: rows})
					require.NoError(t, err)
					c := tensor.New(spec.C, rows, cols)
					require.NoError(t, p.Run(context.Background(), packed, &matmul.Args{A: x, C: c}, new(matmul.Workspace)), "%v", d)
					results = append(results, c.Raw())
					require.NoError(t, packed.Close())
					require.NoError(t, backend.Close())
				}
				require.Equal(t, results[1], results[0], "%v on %dx%dx%d", d, rows, cols, depth)
			}
		}
	}
	require.Greater(t, ran, 20)
}
