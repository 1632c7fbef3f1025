package onnx_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// A network that ends in what depends on data (as detectors end in NonMaxSuppression) is a graph up to there.
func TestLateNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	random := func(name string, dims ...int) *onnx.Tensor {
		x := tensor.New(tensor.F32, dims...)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = float32(r.NormFloat64())
		}
		return onnx.NewTensor(name, x)
	}
	node := func(op, out string, in []string, attrs ...onnx.Attr) *onnx.Node {
		return &onnx.Node{Name: op + " " + out, Op: op, In: in, Out: []string{out}, Attrs: attrs}
	}
	named := func(name string, x *onnx.Tensor) *onnx.Tensor { x.Name = name; return x }
	g := &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("x", onnx.Float, 1, 3, 8, 8)},
		Inits: []*onnx.Tensor{random("w", 4, 3, 3, 3), random("v", 5, 4, 1, 1), named("flat", i64t([]int64{-1}, 1)), named("two", f32t([]float32{2})), named("zero", f32t([]float32{0})), named("first", i64t([]int64{0}))},
		Nodes: []*onnx.Node{
			node("Conv", "a", []string{"x", "w"}), node("Relu", "b", []string{"a"}), node("Conv", "c", []string{"b", "v"}),
			node("Reshape", "scores", []string{"c", "flat"}),
			node("Greater", "mask", []string{"scores", "zero"}),
			node("NonZero", "at", []string{"mask"}),    // from here on shapes depend on data
			node("Mul", "twice", []string{"b", "two"}), // but this does not
			node("Squeeze", "places", []string{"at", "first"}),
			node("Gather", "kept", []string{"scores", "places"}),
			node("Add", "y", []string{"kept", "two"}),
			{Name: "count", Op: "If", In: []string{"any"}, Out: []string{"n"}, Attrs: []onnx.Attr{
				onnx.GraphAttr("then_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Shape", "s", []string{"kept"})}, Outputs: []onnx.ValueInfo{{Name: "s"}}}),
				onnx.GraphAttr("else_branch", &onnx.Graph{Nodes: []*onnx.Node{node("Shape", "s", []string{"twice"})}, Outputs: []onnx.ValueInfo{{Name: "s"}}})}},
			node("ReduceMax", "top", []string{"scores"}, onnx.IntAttr("keepdims", 0)), node("Greater", "any", []string{"top", "zero"}),
		},
		Outputs: []onnx.ValueInfo{{Name: "y"}, {Name: "twice"}, {Name: "n"}, {Name: "x2"}}}
	g.Nodes = append(g.Nodes, node("Identity", "x2", []string{"x"}))
	m, err := onnx.NewModel(13, g)
	require.NoError(t, err)
	m, err = onnx.Decode(encoded(t, m)) // sorts the nodes
	require.NoError(t, err)
	bs := cpu(t)
	open := func(o onnx.Options) *onnx.Session {
		o.Backends = bs
		s, err := onnx.NewSession(context.Background(), m, o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	split, eager, limited := open(onnx.Options{}), open(onnx.Options{Eager: true}), open(onnx.Options{MaxMemory: 1 << 20})
	fork := split.Fork()
	defer fork.Close()
	lengths := map[int]bool{}
	for range 4 {
		x := random("", 1, 3, 8, 8).Data
		in := map[string]onnx.Value{"x": onnx.Of(x)}
		want, err := eager.Run(context.Background(), in)
		require.NoError(t, err)
		for _, s := range []*onnx.Session{split, limited, fork} {
			got, err := s.Run(context.Background(), in)
			require.NoError(t, err)
			require.Len(t, got, 4)
			for name, w := range want {
				v := got[name].Tensor
				require.Equal(t, w.Tensor.Spec, v.Spec, name)
				require.InDeltaSlice(t, w.Tensor.Floats(), v.Floats(), 1e-5, name)
			}
			require.Equal(t, `after a graph, node NonZero "NonZero at": needs the elements of bool[180], which depend on what the model is fed`, s.Eager())
			require.NotNil(t, s.Executable())
		}
		y := want["y"].Tensor
		lengths[y.Elems()] = true
	}
	require.Greater(t, len(lengths), 1, "the shape never changed")
}

// A session keeps the graphs of as many input shapes as MaxPlans says, those used last.
func TestMaxPlans(t *testing.T) {
	x := onnx.ValueInfo{Name: "x", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "n"}}}}
	m, err := onnx.NewModel(13, &onnx.Graph{Inputs: []onnx.ValueInfo{x}, Nodes: []*onnx.Node{{Op: "Relu", In: []string{"x"}, Out: []string{"y"}}},
		Outputs: []onnx.ValueInfo{{Name: "y"}}})
	require.NoError(t, err)
	for most, kept := range map[int]int{0: 8, 1: 1, 3: 3} {
		s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: cpu(t), MaxPlans: most})
		require.NoError(t, err)
		run := func(n int) *graph.Executable {
			_, err := s.Run(context.Background(), map[string]onnx.Value{"x": onnx.Of(tensor.New(tensor.F32, n))})
			require.NoError(t, err)
			return s.Executable()
		}
		first := run(1)
		for n := 2; n <= kept; n++ {
			run(n)
		}
		require.Same(t, first, run(1), "kept")
		for n := 2; n <= kept+1; n++ { // one more than fit: what was used longest ago goes
			run(n)
		}
		require.NotSame(t, first, run(1), "dropped")
		require.NoError(t, s.Close())
	}
}

// A report counts every run of a session, whatever the shapes of its inputs, and those node by node.
func TestReportCoversAllShapes(t *testing.T) {
	w := onnx.NewTensor("w", tensor.Of([]float32{1, 2, 3, 4}, 2, 2))
	x := onnx.ValueInfo{Name: "x", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "n"}, {Size: 2}}}}
	m, err := onnx.NewModel(13, &onnx.Graph{Inputs: []onnx.ValueInfo{x}, Inits: []*onnx.Tensor{w},
		Nodes: []*onnx.Node{{Op: "MatMul", In: []string{"x", "w"}, Out: []string{"y"}}}, Outputs: []onnx.ValueInfo{{Name: "y"}}})
	require.NoError(t, err)
	bs := cpu(t)
	for _, o := range []onnx.Options{{}, {MaxPlans: 1}, {Eager: true}} {
		o.Backends = bs
		s, err := onnx.NewSession(context.Background(), m, o)
		require.NoError(t, err)
		run := func(s *onnx.Session, rows int) {
			_, err := s.Run(context.Background(), map[string]onnx.Value{"x": onnx.Of(tensor.New(tensor.F32, rows, 2))})
			require.NoError(t, err)
		}
		require.EqualValues(t, 0, s.Report().Backends[0].Products)
		for _, rows := range []int{3, 1, 3, 2} {
			run(s, rows)
		}
		require.Equal(t, bs[0].Name(), s.Report().Backends[0].Name)
		require.EqualValues(t, 4, s.Report().Backends[0].Products)
		require.NotNil(t, s.Report().Fallbacks)
		fork := s.Fork()
		run(fork, 5)
		require.EqualValues(t, 1, fork.Report().Backends[0].Products)
		require.NoError(t, fork.Close())
		require.NoError(t, s.Close())
	}
}
