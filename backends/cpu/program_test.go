package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// nothing is a kernel that does nothing.
type nothing struct{}

func (nothing) bind(context.Context, *env, *ops.Part, *ops.Node) error { return nil }
func (nothing) run(*env, []tensor.Tensor) error                        { return nil }

// emptyProgram returns a program of n nodes that do nothing.
func emptyProgram(n int) *program {
	p := &program{b: newBackend(1, cpuinfo.Get().ISA), nodes: make([]ops.Node, n), kernels: make([]kernel, n)}
	for i := range p.kernels {
		p.kernels[i] = nothing{}
	}
	return p
}

// BenchmarkNode measures what the program itself costs a node, with a context that can be cancelled; 60 ns are the goal.
func BenchmarkNode(b *testing.B) {
	const n = 1000
	p := emptyProgram(n)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		if err := p.Run(ctx, nil, 0, n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/node")
}

// one compiles a part of one node on operands, of which those listed are constants.
func one(t testing.TB, b *Backend, op ops.Op, constants []int, in ...tensor.Tensor) (*program, []tensor.Tensor) {
	part := &ops.Part{}
	n := ops.Node{Name: op.Name(), Op: op}
	var frame []tensor.Tensor
	specs := make([]tensor.Spec, len(in))
	for i, x := range in {
		specs[i] = x.Spec
		if !x.Valid() {
			n.In = append(n.In, -1)
			continue
		}
		n.In = append(n.In, len(frame))
		part.Values = append(part.Values, ops.Value{Name: fmt.Sprint(i), Spec: x.Spec})
		frame = append(frame, x)
	}
	for _, i := range constants {
		part.Values[n.In[i]].Const = ops.NewConstant(in[i])
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	for i, o := range out {
		n.Out = append(n.Out, len(frame))
		part.Values = append(part.Values, ops.Value{Name: fmt.Sprint("out", i), Spec: o})
		y := tensor.New(o.DType, o.Shape()...)
		if _, ok := op.(ops.Updater); ok && i == 0 {
			y = in[0]
		}
		frame = append(frame, y)
	}
	part.Nodes = []ops.Node{n}
	p, err := b.Compile(context.Background(), part)
	require.NoError(t, err)
	return p.(*program), frame
}

func normal(dims ...int) tensor.Tensor {
	r := rand.New(rand.NewPCG(1, uint64(len(dims))))
	t := tensor.New(tensor.F32, dims...)
	for i, d := 0, tensor.Data[float32](t); i < len(d); i++ {
		d[i] = float32(r.NormFloat64())
	}
	return t
}

func count(n int) tensor.Tensor {
	t := tensor.New(tensor.I32, n)
	for i, d := 0, tensor.Data[int32](t); i < n; i++ {
		d[i] = int32(i)
	}
	return t
}

// TestNoAllocation: after the first run a program allocates nothing, whatever the operands' layout.
func TestNoAllocation(t *testing.T) {
	q8, err := quant.Encode(tensor.Q8_0, normal(64, 128))
	require.NoError(t, err)
	half := tensor.New(tensor.F16, 8, 128)
	wide := normal(8, 256)
	view, err := wide.Slice(1, 3, 131, 1)
	require.NoError(t, err)
	flip, err := normal(128, 8).Transpose(0, 1)
	require.NoError(t, err)
	for _, c := range []struct {
		op        ops.Op
		constants []int
		in        []tensor.Tensor
	}{
		{elementwise.Binary{F: elementwise.Add}, nil, []tensor.Tensor{normal(8, 128), normal(128)}},
		{elementwise.Binary{F: elementwise.Mul}, nil, []tensor.Tensor{half, flip}},
		{elementwise.GLU{Act: ops.Act{Kind: ops.SiLU}}, nil, []tensor.Tensor{view, normal(8, 128)}},
		{elementwise.Activate{Act: ops.Act{Kind: ops.GELU}}, nil, []tensor.Tensor{normal(300, 300)}},
		{norm.RMS{Eps: 1e-5}, nil, []tensor.Tensor{view, normal(128)}},
		{norm.Layer{Eps: 1e-5}, nil, []tensor.Tensor{half, normal(128), normal(128)}},
		{attention.Softmax{Axis: 0, Scale: 2}, nil, []tensor.Tensor{normal(8, 128), normal(8, 128)}},
		{attention.RoPE{Half: true}, nil, []tensor.Tensor{normal(8, 2, 64), count(8)}},
		{attention.SDPA{Causal: true}, nil, []tensor.Tensor{normal(4, 1, 16), normal(2, 300, 16), normal(2, 300, 16)}},
		{reduce.Reduce{Kind: reduce.Mean, Axes: ops.MakeInts(0)}, nil, []tensor.Tensor{normal(80, 128)}},
		{reduce.Arg{Axis: -1}, nil, []tensor.Tensor{normal(8, 128)}},
		{shape.Contiguous{}, nil, []tensor.Tensor{flip}},
		{shape.Concat{Axis: 1}, nil, []tensor.Tensor{view, view}},
		{shape.GetRows{}, []int{0}, []tensor.Tensor{q8, count(8)}},
		{shape.SetRows{Axis: 1}, nil, []tensor.Tensor{tensor.New(tensor.F16, 2, 50, 16), normal(2, 8, 16), count(8)}},
		{matmul.Op{TransB: true}, []int{1}, []tensor.Tensor{normal(1, 128), normal(64, 128)}},
		{matmul.Op{TransB: true}, []int{1}, []tensor.Tensor{normal(1, 128), q8}},
		{matmul.Op{TransB: true, Epilogue: matmul.Epilogue{Residual: matmul.ResidualAfter}}, []int{1}, []tensor.Tensor{normal(200, 128), q8, normal(200, 64)}},
		{matmul.Op{}, nil, []tensor.Tensor{normal(4, 3, 8, 32), normal(4, 1, 32, 8)}},
		{matmul.Op{}, nil, []tensor.Tensor{half, normal(128, 40)}},
	} {
		p, frame := one(t, newBackend(0, cpuinfo.Get().ISA), c.op, c.constants, c.in...)
		ctx := context.Background()
		run := func() { require.NoError(t, p.Run(ctx, frame, 0, 1)) }
		run()
		require.Zero(t, testing.AllocsPerRun(20, run), ops.Describe(c.op, func() (s []tensor.Spec) {
			for _, x := range c.in {
				s = append(s, x.Spec)
			}
			return s
		}()))
		require.NoError(t, p.Close())
	}
}

// BenchmarkSmallNodes measures nodes of the size that decoding one token of a small model has: what counts is the cost of a call.
func BenchmarkSmallNodes(b *testing.B) {
	q8, err := quant.Encode(tensor.Q8_0, normal(64, 64))
	require.NoError(b, err)
	for _, c := range []struct {
		name      string
		op        ops.Op
		constants []int
		in        []tensor.Tensor
	}{
		{"add", elementwise.Binary{F: elementwise.Add}, nil, []tensor.Tensor{normal(1, 256), normal(1, 256)}},
		{"swiglu", elementwise.GLU{Act: ops.Act{Kind: ops.SiLU}}, nil, []tensor.Tensor{normal(1, 256), normal(1, 256)}},
		{"rms_norm", norm.RMS{Eps: 1e-5}, nil, []tensor.Tensor{normal(1, 256), normal(256)}},
		{"rope", attention.RoPE{}, nil, []tensor.Tensor{normal(1, 4, 64), count(1)}},
		{"softmax", attention.Softmax{Axis: -1}, nil, []tensor.Tensor{normal(1, 256)}},
		{"sdpa", attention.SDPA{Causal: true}, nil, []tensor.Tensor{normal(4, 1, 64), normal(2, 64, 64), normal(2, 64, 64)}},
		{"set_rows", shape.SetRows{Axis: 1}, nil, []tensor.Tensor{normal(2, 64, 64), normal(2, 1, 64), count(1)}},
		{"get_rows", shape.GetRows{}, nil, []tensor.Tensor{normal(100, 256), count(1)}},
		{"matmul_f32", matmul.Op{TransB: true}, []int{1}, []tensor.Tensor{normal(1, 64), normal(64, 64)}},
		{"matmul_q8_0", matmul.Op{TransB: true}, []int{1}, []tensor.Tensor{normal(1, 64), q8}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, frame := one(b, newBackend(0, cpuinfo.Get().ISA), c.op, c.constants, c.in...)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Run(ctx, frame, 0, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
