package cpu

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func weightForm(t testing.TB, e *Engine, s matmul.Spec, b tensor.Tensor) []byte {
	p, err := e.Pack(context.Background(), s, b)
	require.NoError(t, err)
	var form bytes.Buffer
	n, err := p.WriteTo(&form)
	require.NoError(t, err)
	require.EqualValues(t, form.Len(), n)
	require.NoError(t, p.Close())
	return form.Bytes()
}

func blocksOf(t testing.TB, d tensor.DType, dims ...int) tensor.Tensor {
	q, err := quant.Encode(d, normal(dims...))
	require.NoError(t, err)
	return q
}

// A form serves as the weight that it was written from, for each kind of weight, and for no other problem.
func TestFormsOfWeights(t *testing.T) {
	e := newBackend(0, cpuinfo.Get().ISA).engine
	specs := map[string]matmul.Spec{}
	forms := map[string][]byte{}
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_K} {
		for _, batch := range [][]int{nil, {3}} {
			dims := append(append([]int{}, batch...), 40, 256)
			b := normal(dims...)
			if d.IsBlock() {
				b = blocksOf(t, d, dims...)
			} else if d != tensor.F32 {
				x := tensor.New(d, dims...)
				require.NoError(t, tensor.Copy(x, b))
				b = x
			}
			s := matmul.Spec{N: 40, K: 256, A: tensor.F32, B: d, BLayout: matmul.ColMajor}
			name := b.String()
			specs[name], forms[name] = s, weightForm(t, e, s, b)
			p, err := e.view(s, forms[name])
			require.NoError(t, err, name)
			require.Len(t, p.forms(), max(1, len(batch)*3))
			if batch != nil {
				continue
			}
			packed, err := e.Pack(context.Background(), s, b)
			require.NoError(t, err)
			a := normal(7, 256)
			var got [2]tensor.Tensor
			for i, w := range []matmul.Packed{packed, p} {
				s.C = tensor.F32
				plan, err := e.Plan(s, matmul.Shape{M: 7})
				require.NoError(t, err)
				got[i] = tensor.New(tensor.F32, 7, 40)
				require.NoError(t, plan.Run(context.Background(), w, &matmul.Args{A: a, C: got[i]}, &matmul.Workspace{}))
			}
			require.Equal(t, got[0].Raw(), got[1].Raw(), name)
		}
	}
	for name, s := range specs {
		for other, form := range forms {
			p, err := e.view(s, form)
			require.Equal(t, s == specs[other], err == nil, "%s as %s", other, name)
			if err == nil {
				require.NoError(t, p.Close())
			}
		}
		wider := s
		wider.N++
		_, err := e.view(wider, forms[name])
		require.Error(t, err)
	}
}

func FuzzViewForm(f *testing.F) {
	e := newBackend(1, cpuinfo.Get().ISA).engine
	specs := []matmul.Spec{{N: 3, K: 256, A: tensor.F32, B: tensor.Q4_K, BLayout: matmul.ColMajor}, {N: 3, K: 5, A: tensor.F32, B: tensor.F32, BLayout: matmul.ColMajor}}
	f.Add(weightForm(f, e, specs[0], blocksOf(f, tensor.Q4_K, 3, 256)))
	f.Add(weightForm(f, e, specs[1], normal(2, 3, 5)))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range specs {
			p, err := e.view(s, data)
			if err != nil || len(p.forms()) != 1 {
				continue
			}
			s.C = tensor.F32
			plan, err := e.Plan(s, matmul.Shape{M: 1})
			require.NoError(t, err)
			require.NoError(t, plan.Run(context.Background(), p, &matmul.Args{A: tensor.New(tensor.F32, 1, s.K), C: tensor.New(tensor.F32, 1, s.N)}, &matmul.Workspace{}))
		}
	})
}
