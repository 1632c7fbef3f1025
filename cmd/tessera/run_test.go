package main

import (
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
	require.NoError(t, os.WriteFile(path, m.Encode(), 0o600))
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
