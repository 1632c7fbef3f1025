package main

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// save writes a model of some nodes.
func save(t *testing.T, g *onnx.Graph) string {
	t.Helper()
	m, err := onnx.NewModel(13, g)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "model.onnx")
	data, err := m.Encode()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func npyFile(t *testing.T, x tensor.Tensor) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.npy")
	require.NoError(t, writeNPY(path, x))
	return path
}

// adder is a + b, of two named numbers each.
func adder(t *testing.T) string {
	return save(t, &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("a", onnx.Float, 2), onnx.Info("b", onnx.Float, 2)},
		Nodes: []*onnx.Node{{Op: "Add", In: []string{"a", "b"}, Out: []string{"y/sum"}}}, Outputs: []onnx.ValueInfo{onnx.Info("y/sum", onnx.Float, 2)}})
}

func TestRun(t *testing.T) {
	a, b := npyFile(t, tensor.Of([]float32{1, 2}, 2)), npyFile(t, tensor.Of([]float32{10, 20}, 2))
	dir := filepath.Join(t.TempDir(), "new", "folder")
	doc := jsonOf(t, "run", "--model", adder(t), "--input", "a="+a, "--input", "b="+b, "--output", dir)
	out := doc["outputs"].(map[string]any)["y/sum"].(map[string]any)
	require.Equal(t, []any{2.0}, out["shape"])
	require.Equal(t, filepath.Join(dir, "y_sum.npy"), out["file"])
	got, err := readNPY(filepath.Join(dir, "y_sum.npy"))
	require.NoError(t, err)
	require.Equal(t, []float64{11, 22}, got.Floats())
}

// Mistakes are found before anything runs, and before the output folder is made.
func TestRunMistakes(t *testing.T) {
	model := adder(t)
	a, long, ints := npyFile(t, tensor.Of([]float32{1, 2}, 2)), npyFile(t, tensor.Of([]float32{1, 2, 3}, 3)), npyFile(t, tensor.Of([]int32{1, 2}, 2))
	text := filepath.Join(t.TempDir(), "text.npy")
	require.NoError(t, os.WriteFile(text, []byte("no array"), 0o600))
	info := onnx.Info
	relu := func(in, out string) *onnx.Node { return &onnx.Node{Op: "Relu", In: []string{in}, Out: []string{out}} }
	sameFile := save(t, &onnx.Graph{Inputs: []onnx.ValueInfo{info("a", onnx.Float, 2)}, Nodes: []*onnx.Node{relu("a", "y/1"), relu("a", "y_1")},
		Outputs: []onnx.ValueInfo{info("y/1", onnx.Float, 2), info("y_1", onnx.Float, 2)}})
	words := save(t, &onnx.Graph{Inits: []*onnx.Tensor{{Name: "w", Elem: onnx.String, Dims: []int{1}, Strings: []string{"x"}}},
		Nodes: []*onnx.Node{{Op: "Identity", In: []string{"w"}, Out: []string{"y"}}}, Outputs: []onnx.ValueInfo{info("y", onnx.String, 1)}})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 2, "--model"},
		{[]string{"--model", model}, 2, "--output"},
		{[]string{"--model", model, "--input", "a"}, 2, "NAME=FILE.npy"},
		{[]string{"--model", model, "--input", "a=" + a, "--input", "a=" + a}, 2, `"a" is given twice`},
		{[]string{"--model", model, "--input", "c=" + a}, 2, `"c": the model has "a", "b"`},
		{[]string{"--model", model, "--input", "a=" + a}, 2, "--input b=FILE.npy, float[2]"},
		{[]string{"--model", model, "--input", "a=" + a, "--input", "b=" + long}, 1, `input "b" is float[2], f32[3] was given`},
		{[]string{"--model", model, "--input", "a=" + a, "--input", "b=" + ints}, 1, `input "b" is float[2], i32[2] was given`},
		{[]string{"--model", model, "--input", "a=" + text}, 1, "text.npy"},
		{[]string{"--model", model, "--input", "a=none.npy"}, 1, "none.npy"},
		{[]string{"--model", sameFile, "--input", "a=" + a}, 1, "would both be y_1.npy"},
		{[]string{"--model", words}, 1, `output "y" is string[1]`},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		args := append([]string{"run"}, c.args...)
		if c.want != "--output" {
			args = append(args, "--output", dir)
		}
		_, _, err := call(t, args...)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.code, cli.ExitCode(err), "%v: %v", c.args, err)
		require.NoDirExists(t, dir)
	}
	// Where the folder cannot be made, nothing runs either.
	_, _, err := call(t, "run", "--model", model, "--input", "a="+a, "--input", "b="+a, "--output", filepath.Join(a, "x"))
	require.Equal(t, 1, cli.ExitCode(err))
}

// Convolutions run as products on the accelerators, and give what the CPU gives to the accuracy of their number formats.
func TestConvolutionsOnAccelerators(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	random := func(name string, scale float32, dims ...int) *onnx.Tensor {
		x := tensor.New(tensor.F32, dims...)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = scale * float32(r.NormFloat64())
		}
		return onnx.NewTensor(name, x)
	}
	model := save(t, &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("x", onnx.Float, 1, 64, 30, 30)},
		Inits: []*onnx.Tensor{random("w1", 0.05, 256, 64, 3, 3), random("b1", 0.1, 256), random("w2", 0.06, 256, 256, 1, 1), random("b2", 0.1, 256)},
		Nodes: []*onnx.Node{
			{Op: "Conv", Name: "three", In: []string{"x", "w1", "b1"}, Out: []string{"a"}, Attrs: []onnx.Attr{onnx.IntsAttr("pads", 1, 1, 1, 1)}},
			{Op: "Relu", In: []string{"a"}, Out: []string{"b"}},
			{Op: "Conv", Name: "one", In: []string{"b", "w2", "b2"}, Out: []string{"y"}, Attrs: []onnx.Attr{onnx.IntsAttr("strides", 2, 2)}}},
		Outputs: []onnx.ValueInfo{onnx.Info("y", onnx.Float, 1, 256, 15, 15)}})
	x := npyFile(t, random("", 1, 1, 64, 30, 30).Data)
	run := func(backend string) ([]float64, map[string]any) {
		dir := t.TempDir()
		doc := jsonOf(t, "run", "--model", model, "--input", "x="+x, "--output", dir, "--backend", backend)
		y, err := readNPY(filepath.Join(dir, "y.npy"))
		require.NoError(t, err)
		return y.Floats(), doc["report"].(map[string]any)
	}
	want, _ := run("cpu")
	top := 0.0
	for _, v := range want {
		top = max(top, math.Abs(v))
	}
	for backend, tol := range map[string]float64{"xdna": 0.01, "xdna2": 0.02, "xdna2:precision=int8": 0.05, "aie": 0.001} {
		got, report := run(backend)
		first := report["backends"].([]any)[0].(map[string]any)
		require.Equal(t, 2.0, first["products"], "%s: %v", backend, report)
		require.Positive(t, first["simulated_seconds"])
		worst := 0.0
		for i, v := range want {
			worst = max(worst, math.Abs(got[i]-v)/top)
		}
		t.Logf("%s: %.1e of the largest", backend, worst)
		require.Less(t, worst, tol, backend)
		require.Positive(t, worst, "%s computes in f32", backend)
	}
}
