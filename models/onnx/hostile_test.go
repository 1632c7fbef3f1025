package onnx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// Graphs that fuzzing found, or that are like them: an error that names the node and what is wrong, without a panic, and without memory
// for what cannot be.
func TestHostileGraphs(t *testing.T) {
	const huge = 1 << 30
	info := onnx.Info
	node := func(op string, in []string, attrs ...onnx.Attr) *onnx.Node {
		return &onnx.Node{Name: "n", Op: op, In: in, Out: []string{"y"}, Attrs: attrs}
	}
	named := func(name string, x *onnx.Tensor) *onnx.Tensor { x.Name = name; return x }
	f32Out := onnx.ValueInfo{Name: "y", Type: &onnx.TypeInfo{Elem: onnx.Float}}
	branch := &onnx.Graph{Nodes: []*onnx.Node{{Op: "Identity", In: []string{"x"}, Out: []string{"z"}}}, Outputs: []onnx.ValueInfo{{Name: "z"}}}
	double := &onnx.Graph{Inputs: []onnx.ValueInfo{{Name: "i"}, {Name: "c"}, {Name: "s"}}, Nodes: []*onnx.Node{
		{Op: "Identity", In: []string{"c"}, Out: []string{"c2"}}, {Op: "StringConcat", In: []string{"s", "s"}, Out: []string{"s2"}}},
		Outputs: []onnx.ValueInfo{{Name: "c2"}, {Name: "s2"}}}
	for _, c := range []struct {
		name  string
		opset int
		g     *onnx.Graph
		in    map[string]onnx.Value
		err   string // empty: it runs
	}{
		{"If without condition", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 1)}, Inits: []*onnx.Tensor{named("c", boolt(nil, 0))},
			Nodes: []*onnx.Node{node("If", []string{"c"}, onnx.GraphAttr("then_branch", branch), onnx.GraphAttr("else_branch", branch))}, Outputs: []onnx.ValueInfo{f32Out}},
			map[string]onnx.Value{"x": onnx.Of(tensor.Of([]float32{1}, 1))}, `node If "n": bool[0], one element is right`},
		{"Scan of nothing", 8, &onnx.Graph{Nodes: []*onnx.Node{node("Scan", nil, onnx.GraphAttr("body", &onnx.Graph{}))}, Outputs: []onnx.ValueInfo{f32Out}}, nil, "sequence lengths"},
		{"Hardmax of a huge input", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, huge)}, Nodes: []*onnx.Node{node("Hardmax", []string{"x"})}, Outputs: []onnx.ValueInfo{f32Out}},
			nil, `node Hardmax "n": i64[1073741824] needs`},
		{"MatMulInteger of huge inputs", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Uint8, 1, huge), info("w", onnx.Uint8, huge, 1)},
			Nodes: []*onnx.Node{node("MatMulInteger", []string{"x", "w"})}, Outputs: []onnx.ValueInfo{{Name: "y"}}}, nil, "the limit"},
		{"Range beyond int", 13, &onnx.Graph{Inits: []*onnx.Tensor{named("a", i64t([]int64{-1 << 63})), named("b", i64t([]int64{1<<63 - 1})), named("c", i64t([]int64{1}))},
			Nodes: []*onnx.Node{node("Range", []string{"a", "b", "c"})}, Outputs: []onnx.ValueInfo{{Name: "y"}}}, nil, `node Range "n": from -9223372036854775808`},
		{"EyeLike of nothing", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, huge, 0)}, Nodes: []*onnx.Node{node("EyeLike", []string{"x"})}, Outputs: []onnx.ValueInfo{f32Out}},
			map[string]onnx.Value{"x": onnx.Of(tensor.New(tensor.F32, huge, 0))}, ""},
		{"Resize of nothing", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 1, 0, huge)}, Inits: []*onnx.Tensor{named("s", f32t([]float32{1, 1, 0.5}, 3))},
			Nodes: []*onnx.Node{node("Resize", []string{"x", "", "s"})}, Outputs: []onnx.ValueInfo{f32Out}}, map[string]onnx.Value{"x": onnx.Of(tensor.New(tensor.F32, 1, 0, huge))}, ""},
		{"Split into more than there are", 18, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2)}, Nodes: []*onnx.Node{node("Split", []string{"x"}, onnx.IntAttr("num_outputs", huge))},
			Outputs: []onnx.ValueInfo{f32Out}}, nil, `"num_outputs" is 1073741824, the node has 1`},
		{"SplitToSequence of a huge input", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, huge)}, Nodes: []*onnx.Node{node("SplitToSequence", []string{"x"})},
			Outputs: []onnx.ValueInfo{{Name: "y"}}}, nil, "the limit"},
		{"strings that double", 20, &onnx.Graph{Inits: []*onnx.Tensor{named("m", i64t([]int64{64})), named("t", boolt([]bool{true})), named("s", textt([]string{"ab"}, 1))},
			Nodes: []*onnx.Node{node("Loop", []string{"m", "t", "s"}, onnx.GraphAttr("body", double))}, Outputs: []onnx.ValueInfo{{Name: "y"}}}, nil, "StringConcat"},
		{"endless loop", 13, &onnx.Graph{Inits: []*onnx.Tensor{named("t", boolt([]bool{true})), named("s", f32t([]float32{1}, 1))}, Nodes: []*onnx.Node{node("Loop", []string{"", "t", "s"},
			onnx.GraphAttr("body", &onnx.Graph{Inputs: []onnx.ValueInfo{{Name: "i"}, {Name: "c"}, {Name: "v"}}, Nodes: []*onnx.Node{{Op: "Identity", In: []string{"v"}, Out: []string{"v2"}}},
				Outputs: []onnx.ValueInfo{{Name: "c"}, {Name: "v2"}, {Name: "v2"}}}))}, Outputs: []onnx.ValueInfo{{Name: "y"}}}, nil, "context deadline exceeded"},
		{"mel bands of no frequency", 17, &onnx.Graph{Inits: []*onnx.Tensor{named("m", i64t([]int64{4})), named("l", i64t([]int64{16})), named("r", i64t([]int64{0})), named("a", f32t([]float32{0})), named("b", f32t([]float32{1e30}))},
			Nodes: []*onnx.Node{node("MelWeightMatrix", []string{"m", "l", "r", "a", "b"})}, Outputs: []onnx.ValueInfo{f32Out}}, nil, ""},
		{"output of another type", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2)}, Nodes: []*onnx.Node{node("Relu", []string{"x"})}, Outputs: []onnx.ValueInfo{info("y", onnx.Int64, 2)}},
			nil, `output "y": the file declares int64[2], the graph gives f32[2]`},
		{"inputs of two types", 13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2), info("w", onnx.Int64, 2)}, Nodes: []*onnx.Node{node("Add", []string{"x", "w"})}, Outputs: []onnx.ValueInfo{f32Out}},
			nil, `node Add "n"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, eager := range []bool{false, true} {
				m, err := onnx.NewModel(c.opset, c.g)
				require.NoError(t, err)
				m, err = onnx.Decode(encoded(t, m))
				require.NoError(t, err)
				patience := time.Minute
				if strings.Contains(c.err, "deadline") {
					patience = 200 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				s, err := onnx.NewSession(ctx, m, onnx.Options{Backends: cpu(t), MaxMemory: 1 << 20, Eager: eager})
				if err == nil {
					defer s.Close()
					in := c.in
					if in == nil {
						in = map[string]onnx.Value{}
						for _, v := range s.Inputs() {
							x, ok := anyValue(v.Type)
							if !ok {
								return // eagerly, what nobody can give cannot do harm
							}
							in[v.Name] = x
						}
					}
					_, err = s.Run(ctx, in)
				}
				if c.err == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorContains(t, err, c.err)
			}
		})
	}
}

// Values of callers that contradict themselves are refused.
func TestInconsistentValues(t *testing.T) {
	m, err := onnx.NewModel(13, &onnx.Graph{Inputs: []onnx.ValueInfo{{Name: "x"}}, Nodes: []*onnx.Node{{Op: "Identity", In: []string{"x"}, Out: []string{"y"}}}, Outputs: []onnx.ValueInfo{{Name: "y"}}})
	require.NoError(t, err)
	s, err := onnx.NewSession(context.Background(), m, onnx.Options{Backends: cpu(t)})
	require.NoError(t, err)
	defer s.Close()
	for want, v := range map[string]onnx.Value{
		"2 strings of [3]":               onnx.TextOf([]string{"a", "b"}, 3),
		"element 1: 0 strings of [2]":    {IsSequence: true, Sequence: []onnx.Value{onnx.TextOf([]string{"a"}, 1), onnx.TextOf(nil, 2)}},
		"element 0: a tensor without":    {IsSequence: true, Sequence: []onnx.Value{{}}},
		"has no memory":                  {},
		"a tensor without memory":        {IsOptional: true},
		"dimension":                      onnx.TextOf(nil, -1),
		`the model has no input "other"`: onnx.Of(tensor.Of([]float32{1}, 1)),
	} {
		in := map[string]onnx.Value{"x": v}
		if v.Tensor.DType == tensor.F32 {
			in["other"] = v
		}
		_, err := s.Run(context.Background(), in)
		require.ErrorContains(t, err, want)
	}
	// A misspelt name is the mistake, not that the right one is missing.
	_, err = s.Run(context.Background(), map[string]onnx.Value{"X": onnx.Of(tensor.Of([]float32{1}, 1))})
	require.ErrorContains(t, err, `the model has no input "X"; it has: "x"`)
}

// Without backends a session opens the CPU, and closes it. Values say what they are.
func TestZeroOptions(t *testing.T) {
	ctx := context.Background()
	m, err := onnx.NewModel(17, &onnx.Graph{
		Inputs:  []onnx.ValueInfo{onnx.Info("x", onnx.Float, -1, 2)},
		Outputs: []onnx.ValueInfo{onnx.Info("y", onnx.Float, -1, 2)},
		Nodes:   []*onnx.Node{{Op: "Relu", In: []string{"x"}, Out: []string{"y"}}},
	})
	require.NoError(t, err)
	s, err := onnx.NewSession(ctx, m, onnx.Options{})
	require.NoError(t, err)
	in := map[string]onnx.Value{"x": onnx.Of(tensor.Of([]float32{-1, 2}, 1, 2))}
	out, err := s.Run(ctx, in)
	require.NoError(t, err)
	y := out["y"].Tensor
	require.Equal(t, []float64{0, 2}, y.Floats())
	fork := s.Fork()
	out, err = fork.Run(ctx, in)
	require.NoError(t, err)
	require.Equal(t, "map[y:f32[1 2]]", fmt.Sprint(out))
	require.NoError(t, fork.Close())
	_, err = s.Run(ctx, in) // the fork's Close leaves the backend open
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())

	require.Equal(t, "[x float[? 2]]", fmt.Sprint(m.Inputs()))
	text := onnx.TextOf([]string{"a", "b"}, 2)
	require.Equal(t, "strings [2]", text.String())
	require.Equal(t, "sequence of 1", onnx.Value{IsSequence: true, Sequence: []onnx.Value{text}}.String())
	require.Equal(t, "empty optional", onnx.Value{IsOptional: true, IsEmpty: true}.String())
	require.Equal(t, "optional f32[1 2]", onnx.Value{IsOptional: true, Tensor: in["x"].Tensor}.String())
}

// What is not supported is counted as one says it.
func TestUnsupportedCounts(t *testing.T) {
	node := &onnx.Node{Op: "NoSuchOp", In: []string{"x"}, Out: []string{"y"}}
	for want, nodes := range map[string][]*onnx.Node{
		"onnx: 1 node has an operator that is not supported: NoSuchOp":       {node},
		"onnx: 2 nodes have operators that are not supported: NoSuchOp (ai.": {node, {Op: "NoSuchOp", In: []string{"y"}, Out: []string{"z"}}},
	} {
		m, err := onnx.NewModel(13, &onnx.Graph{Inputs: []onnx.ValueInfo{{Name: "x"}}, Nodes: nodes, Outputs: []onnx.ValueInfo{{Name: "y"}}})
		require.NoError(t, err)
		require.ErrorContains(t, m.Unsupported(), want)
	}
}

// Integers that a float64 cannot tell apart are different.
func TestUniqueOfLargeIntegers(t *testing.T) {
	const large = 1 << 60
	opCase{opset: 13, op: "Unique", in: []*onnx.Tensor{i64t([]int64{large + 1, large, large + 1}, 3)}, want: append(append(wantI([]int64{large, large + 1}, 2), wantI([]int64{1, 0}, 2)...),
		wantI([]int64{1, 0, 1}, 3)...)}.run(t)
}
