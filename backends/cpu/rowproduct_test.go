package cpu

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// threeProducts is a part of three products of one value, with a residual, with a bias and an activation, and with a residual again, and its frame: A, three
// weights, two residuals, a bias, three results.
func threeProducts(t testing.TB, b *Backend, rows int, formats [3]tensor.DType) (*program, []tensor.Tensor) {
	const k, n = 256, 80
	frame := []tensor.Tensor{normal(rows, k)}
	for _, d := range formats {
		frame = append(frame, blocksOf(t, d, n, k))
	}
	frame = append(frame, normal(rows, n), normal(rows, n), normal(n))
	tensor.Data[float32](frame[5])[0]++
	for range 3 {
		frame = append(frame, tensor.New(tensor.F32, rows, n))
	}
	part := &ops.Part{}
	for i := range frame {
		part.Values = append(part.Values, ops.Value{Spec: frame[i].Spec})
	}
	for i := 1; i <= 3; i++ {
		part.Values[i].Const = ops.NewConstant(frame[i])
	}
	part.Values[6].Const = ops.NewConstant(frame[6])
	op := matmul.Op{TransB: true, Out: tensor.F32}
	first, second, third := op, op, op
	first.Epilogue.Residual = matmul.ResidualBefore
	second.Epilogue = matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.SiLU}}
	third.Epilogue = matmul.Epilogue{Residual: matmul.ResidualAfter, Act: ops.Act{Kind: ops.ReLU}}
	part.Nodes = []ops.Node{
		{Name: "first", Op: first, In: []int{0, 1, 4}, Out: []int{7}},
		{Name: "second", Op: second, In: []int{0, 2, 6}, Out: []int{8}},
		{Name: "third", Op: third, In: []int{0, 3, 5}, Out: []int{9}},
	}
	p, err := b.Compile(context.Background(), part)
	require.NoError(t, err)
	return p.(*program), frame
}

// Products of one value that run together have the bits of those that run one after the other, wherever their results lie.
func TestProductsTogether(t *testing.T) {
	ctx := context.Background()
	for _, isa := range cpuinfo.Get().ISAs {
		for _, threads := range []int{1, 3} {
			b := newBackend(threads, isa)
			for _, formats := range [][3]tensor.DType{{tensor.Q4_0, tensor.Q4_0, tensor.Q4_0}, {tensor.Q6_K, tensor.Q6_K, tensor.Q6_K}} {
				for _, c := range []struct {
					name     string
					rows     int
					together bool
					place    func(frame []tensor.Tensor) // where results and residuals lie
				}{
					{"apart", 1, true, func([]tensor.Tensor) {}},
					{"two rows", 2, false, func([]tensor.Tensor) {}},
					{"over the residual of an earlier product", 1, false, func(frame []tensor.Tensor) { frame[8] = frame[4] }},
					{"over part of it", 1, false, func(frame []tensor.Tensor) {
						both := make([]float32, 120)
						copy(both, tensor.Data[float32](normal(1, 120)))
						frame[4], frame[8] = tensor.Of(both[:80], 1, 80), tensor.Of(both[40:], 1, 80)
					}},
					{"an earlier result as residual", 1, false, func(frame []tensor.Tensor) { frame[5] = frame[7] }},
					{"one result over another", 1, false, func(frame []tensor.Tensor) { frame[9] = frame[7] }},
				} {
					var results [2][]tensor.Tensor
					for i := range results {
						p, frame := threeProducts(t, b, c.rows, formats)
						require.Equal(t, []int{2, 0, 0}, p.together)
						c.place(frame)
						if i == 0 {
							for node := range 3 {
								require.NoError(t, p.Run(ctx, frame, node, node+1))
							}
						} else {
							require.NoError(t, p.Run(ctx, frame, 0, 3))
						}
						for j := 7; j <= 9; j++ {
							results[i] = append(results[i], frame[j].Clone())
						}
						if i == 1 {
							done, err := p.runTogether(&p.env, frame, p.kernels)
							require.NoError(t, err)
							require.Equal(t, c.together, done, c.name)
							require.Zero(t, testing.AllocsPerRun(3, func() { _ = p.Run(ctx, frame, 0, 3) }))
						}
					}
					for j := range results[0] {
						require.Equal(t, results[0][j].Raw(), results[1][j].Raw(), "%s, %v, %v, %d threads, product %d", c.name, formats, isa, threads, j)
					}
				}
			}
		}
	}
}

// Products whose weights want A rounded in other ways run on their own.
func TestProductsApart(t *testing.T) {
	for _, c := range []struct {
		formats [3]tensor.DType
		want    []int
	}{
		{[3]tensor.DType{tensor.Q4_K, tensor.Q4_K, tensor.Q6_K}, []int{1, 0, 0}},
		{[3]tensor.DType{tensor.Q6_K, tensor.Q4_K, tensor.Q4_K}, []int{0, 1, 0}},
		{[3]tensor.DType{tensor.Q4_K, tensor.Q6_K, tensor.Q4_K}, nil},
	} {
		p, frame := threeProducts(t, newBackend(2, 0), 1, c.formats)
		require.Equal(t, c.want, p.together)
		require.NoError(t, p.Run(context.Background(), frame, 0, 3))
	}
}

// Whatever an epilogue reads may be an earlier product's result, and a result may lie over what an earlier product's epilogue reads: those products run one after
// the other.
func TestProductsTogetherWithTheirOperands(t *testing.T) {
	const k, n = 96, 80
	ctx := context.Background()
	op := matmul.Op{TransB: true, Out: tensor.F32}
	op.Epilogue = matmul.Epilogue{RowScale: true, ColScale: true, Bias: true, Residual: matmul.ResidualBefore}
	rowScale, colScale, bias, residual, _ := op.Operands()
	part := &ops.Part{Nodes: []ops.Node{
		{Name: "first", Op: op, In: []int{0, 1, 3, 4, 5, 6}, Out: []int{11}},
		{Name: "second", Op: op, In: []int{0, 2, 7, 8, 9, 10}, Out: []int{12}},
	}}
	weights := []tensor.Tensor{blocksOf(t, tensor.Q4_0, n, k), blocksOf(t, tensor.Q4_0, n, k)}
	newFrame := func() []tensor.Tensor {
		frame := append([]tensor.Tensor{normal(1, k)}, weights...)
		for range part.Nodes {
			frame = append(frame, normal(1), normal(n), normal(n), normal(1, n))
		}
		return append(frame, tensor.New(tensor.F32, 1, n), tensor.New(tensor.F32, 1, n))
	}
	for i, x := range newFrame() {
		part.Values = append(part.Values, ops.Value{Spec: x.Spec})
		if i == 1 || i == 2 {
			part.Values[i].Const = ops.NewConstant(weights[i-1])
		}
	}
	b := newBackend(2, 0)
	compiled, err := b.Compile(ctx, part)
	require.NoError(t, err)
	p := compiled.(*program)
	require.Equal(t, []int{1, 0}, p.together)
	check := func(name string, together bool, place func(frame []tensor.Tensor)) {
		var results [2][2][]byte
		for i := range results {
			frame := newFrame()
			place(frame)
			if i == 0 {
				require.NoError(t, p.Run(ctx, frame, 0, 1))
				require.NoError(t, p.Run(ctx, frame, 1, 2))
			} else {
				require.NoError(t, p.Run(ctx, frame, 0, 2))
			}
			results[i] = [2][]byte{frame[11].Clone().Raw(), frame[12].Clone().Raw()}
			done, err := p.runTogether(&p.env, frame, p.kernels)
			require.NoError(t, err)
			require.Equal(t, together, done, name)
		}
		require.Equal(t, results[0], results[1], name)
	}
	check("apart", true, func([]tensor.Tensor) {})
	for name, in := range map[string]int{"row scale": rowScale, "column scale": colScale, "bias": bias, "residual": residual} {
		first, second := part.Nodes[0].In[in], part.Nodes[1].In[in]
		same := func(frame []tensor.Tensor, result, operand int) { // of the operand's shape, in the middle or all of the result
			x := &frame[operand]
			data := tensor.Data[float32](frame[result])
			*x = tensor.Of(data[(n-x.Elems())/2:][:x.Elems()], x.Shape()...)
			copy(tensor.Data[float32](*x), tensor.Data[float32](normal(x.Elems())))
		}
		check("an earlier result as "+name, false, func(frame []tensor.Tensor) { same(frame, 11, second) })
		check("over an earlier "+name, false, func(frame []tensor.Tensor) { same(frame, 12, first) })
		if in == colScale || in == bias {
			check("an earlier result as "+name+" with gaps", false, func(frame []tensor.Tensor) {
				both := tensor.Data[float32](normal(2 * n))
				frame[11] = tensor.Of(both[:n], 1, n)
				frame[second] = tensor.Of(both, 2*n)
				frame[second].Dims[0], frame[second].Strides[0] = n, 2
			})
		}
	}
}
