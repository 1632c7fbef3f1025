package cpu

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func permuted(t testing.TB, x tensor.Tensor, order ...int) tensor.Tensor {
	y, err := x.Permute(order...)
	require.NoError(t, err)
	return y
}

// scattered returns n ids below a bound, in no order, of which some are equal.
func scattered(n, below int) tensor.Tensor {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(i * i * 7 % below)
	}
	return tensor.Of(ids, n)
}

// Rows that are written into a cache have the bytes of the reference, whatever their number, order, type and layout.
func TestSetRowsShared(t *testing.T) {
	half := tensor.New(tensor.F16, 1500, 64)
	require.NoError(t, tensor.Copy(half, normal(1500, 64)))
	for _, rows := range []tensor.Tensor{normal(1500, 64), half} {
		for _, indices := range []tensor.Tensor{count(1500), scattered(1500, 2000), scattered(1500, 3)} {
			for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0} {
				target := tensor.New(d, 2000, 64)
				want := target.Clone()
				require.NoError(t, shape.SetRows{}.Reference([]tensor.Tensor{want}, []tensor.Tensor{want, rows, indices}))
				for _, threads := range []int{1, 3} {
					p, frame := one(t, newBackend(threads, cpuinfo.Get().ISA), shape.SetRows{}, nil, target.Clone(), rows, indices)
					run := func() { require.NoError(t, p.Run(context.Background(), frame, 0, 1)) }
					run()
					require.Equal(t, want.Raw(), frame[3].Raw(), d)
					require.Zero(t, testing.AllocsPerRun(5, run), d)
					require.NoError(t, p.Close())
				}
			}
		}
	}
}

// Rows that are quantized into a cache have the bytes of the reference, whatever their order, type and layout.
func TestSetRowsQuantizes(t *testing.T) {
	half := tensor.New(tensor.F16, 70, 64)
	n := normal(70, 64)
	require.NoError(t, tensor.Copy(half, n))
	descending := make([]int32, 70)
	for i := range descending {
		descending[i] = int32(99 - i/2)
	}
	for _, c := range []struct {
		name          string
		axis          int
		dims          []int
		rows, indices tensor.Tensor
	}{
		{"ascending", 0, []int{100, 64}, normal(70, 64), count(70)},
		{"equal ids", 0, []int{100, 64}, normal(70, 64), tensor.Of(descending, 70)},
		{"half precision", 0, []int{100, 64}, half, count(70)},
		{"heads", 1, []int{3, 100, 64}, permuted(t, normal(70, 3, 64), 1, 0, 2), count(70)},
		{"across", 1, []int{3, 9, 2, 64}, permuted(t, normal(3, 64, 5, 2), 0, 2, 3, 1), count(5)},
		{"none", 0, []int{100, 64}, normal(0, 64), count(0)},
	} {
		for _, d := range []tensor.DType{tensor.Q8_0, tensor.Q4_0} {
			op := shape.SetRows{Axis: c.axis}
			target := tensor.New(d, c.dims...)
			for i := range target.Raw() {
				target.Raw()[i] = 7
			}
			want := target.Clone()
			require.NoError(t, op.Reference([]tensor.Tensor{want}, []tensor.Tensor{want, c.rows, c.indices}))
			for _, threads := range []int{1, 3} {
				in := target.Clone()
				p, frame := one(t, newBackend(threads, cpuinfo.Get().ISA), op, nil, in, c.rows, c.indices)
				require.IsType(t, &setBlocksKernel{}, p.kernels[0])
				run := func() { require.NoError(t, p.Run(context.Background(), frame, 0, 1)) }
				run()
				require.Equal(t, want.Raw(), frame[3].Raw(), "%s %v", c.name, d)
				require.Zero(t, testing.AllocsPerRun(5, run), c.name)
				require.NoError(t, p.Close())
			}
		}
	}
	bad := normal(70, 64)
	tensor.Data[float32](bad)[64*13+40] = float32(math.NaN())
	p, frame := one(t, newBackend(2, cpuinfo.Get().ISA), shape.SetRows{}, nil, tensor.New(tensor.Q8_0, 100, 64), bad, count(70))
	var block *quant.BlockError
	err := p.Run(context.Background(), frame, 0, 1)
	require.ErrorAs(t, err, &block)
	require.ErrorContains(t, err, "row 13")
	require.Equal(t, 1, block.Block)
}

// Attention over a cache of blocks is attention over what they decode to, bit for bit.
func TestAttentionOverBlocks(t *testing.T) {
	for _, isa := range cpuinfo.Get().ISAs {
		b := newBackend(2, isa)
		for _, c := range []struct{ heads, groups, m, n, d, dv int }{{4, 2, 1, 300, 64, 32}, {4, 1, 5, 37, 32, 64}, {6, 2, 40, 140, 32, 32}, {1, 1, 1, 1, 128, 128}} {
			op := attention.SDPA{Causal: true, Window: 100}
			q := normal(c.heads, c.m, c.d)
			encode := func(x tensor.Tensor) (blocks, plain tensor.Tensor) {
				blocks, err := quant.Encode(tensor.Q8_0, x)
				require.NoError(t, err)
				plain, err = quant.Decode(blocks)
				require.NoError(t, err)
				return blocks, plain
			}
			k, kp := encode(normal(c.groups, c.n, c.d))
			v, vp := encode(normal(c.groups, c.n, c.dv))
			run := func(k, v tensor.Tensor) []float32 {
				p, frame := one(t, b, op, nil, q, k, v)
				require.IsType(t, &sdpaKernel{}, p.kernels[0])
				run := func() { require.NoError(t, p.Run(context.Background(), frame, 0, 1)) }
				run()
				require.Zero(t, testing.AllocsPerRun(3, run))
				return tensor.Data[float32](frame[3])
			}
			require.Equal(t, run(kp, vp), run(k, v), "%v %+v", isa, c)
			require.Equal(t, run(kp, vp), run(k, vp))
			require.Equal(t, run(kp, vp), run(kp, v))
			// Every other key of a longer cache.
			long, plain := encode(normal(c.groups, 2*c.n, c.d))
			ks, err := long.Slice(1, 0, 2*c.n, 2)
			require.NoError(t, err)
			kps, err := plain.Slice(1, 0, 2*c.n, 2)
			require.NoError(t, err)
			require.Equal(t, run(kps, vp), run(ks, v))
			want := tensor.New(tensor.F32, c.heads, c.m, c.dv)
			require.NoError(t, op.Reference([]tensor.Tensor{want}, []tensor.Tensor{q, k, v}))
			got := run(k, v)
			for i, x := range tensor.Data[float32](want) {
				require.InDelta(t, x, got[i], 2e-5)
			}
		}
	}
}
