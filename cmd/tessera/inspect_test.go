package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// openShapes multiplies "left", of rows x 2 x an unnamed size, by 3 x 4 numbers.
func openShapes(t *testing.T) string {
	left := onnx.ValueInfo{Name: "left", Type: &onnx.TypeInfo{Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Size: -1, Param: "rows"}, {Size: 2}, {Size: -1}}}}
	return save(t, &onnx.Graph{Inputs: []onnx.ValueInfo{left}, Inits: []*onnx.Tensor{onnx.NewTensor("w", tensor.New(tensor.F32, 3, 4))},
		Nodes:   []*onnx.Node{{Op: "MatMul", In: []string{"left", "w"}, Out: []string{"product"}}},
		Outputs: []onnx.ValueInfo{{Name: "product", Type: &onnx.TypeInfo{Elem: onnx.Float}}}})
}

func TestInspectNamesInputsAndOutputs(t *testing.T) {
	digits := filepath.Join(shared.Root(), "models", "cnn", "digits.onnx")
	doc := jsonOf(t, "inspect", digits)
	require.Equal(t, []any{map[string]any{"name": "image", "type": "float", "shape": []any{"N", 1., 28., 28.}}}, doc["inputs"])
	require.Equal(t, []any{map[string]any{"name": "scores", "type": "float", "shape": []any{"N", 10.}}}, doc["outputs"])
	out, _, err := call(t, "inspect", digits)
	require.NoError(t, err)
	require.Regexp(t, `\ninput image +float +\[N 1 28 28\]`, out)
	require.Regexp(t, `\noutput scores +float +\[N 10\]`, out)

	doc = jsonOf(t, "inspect", openShapes(t), "--shape", "left=5x2x3")
	require.Equal(t, []any{map[string]any{"name": "left", "type": "float", "shape": []any{"rows", 2., "?"}}}, doc["inputs"])
	require.Equal(t, []any{map[string]any{"name": "product", "type": "float", "shape": nil}}, doc["outputs"])
	require.NotContains(t, jsonOf(t, "inspect"), "inputs")
}

// The listing can be read without knowing it: tables have headings, sizes that were assumed are named, and what does not exist is left out. No node of the file is
// lost: one that was fused stands beside the node that does its work.
func TestInspectReadsWell(t *testing.T) {
	digits := filepath.Join(shared.Root(), "models", "cnn", "digits.onnx")
	onnxOut, _, err := call(t, "inspect", "--passes", digits)
	require.NoError(t, err)
	llmOut, _, err := call(t, "inspect")
	require.NoError(t, err)
	for _, out := range []string{onnxOut, llmOut} {
		require.Regexp(t, `\n\ntensor +type +shape +size\n`, out)
		require.Regexp(t, `\n\nnode +operation +backend +work, bytes moved +why there\n`, out)
		require.NotRegexp(t, `\b0\.0+ [kMG]FLOP`, out)
		for _, line := range strings.Split(out, "\n") {
			require.Less(t, len(line), 200, line)
		}
	}
	require.Regexp(t, `\n\nvalue +type +shape\ninput image `, onnxOut)
	require.Regexp(t, `\n\npass +changes +nodes left +what it does\n`, onnxOut)
	require.Contains(t, onnxOut, "open dimensions are taken as 1 (image [1 1 28 28]); --shape image=AxBxC gives others")
	require.NotContains(t, onnxOut, "KV cache")
	require.Regexp(t, `\nconv0_relu +conv .*; also does conv0\n`, onnxOut)
	require.Contains(t, llmOut, "KV cache")
	require.Contains(t, llmOut, "blk.0.attn_q.weight")

	given, _, err := call(t, "inspect", "--shape", "image=4x1x28x28", digits)
	require.NoError(t, err)
	require.NotContains(t, given, "taken as 1")
	require.Equal(t, map[string]any{"image": []any{4., 1., 28., 28.}}, jsonOf(t, "inspect", "--shape", "image=4x1x28x28", digits)["shapes"])

	_, _, err = call(t, "inspect", "--at", "N=4", digits)
	require.ErrorContains(t, err, "--shape")
	require.Equal(t, 2, cli.ExitCode(err))
}

func TestInspectShapes(t *testing.T) {
	model := openShapes(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{model, "--shape", "right=1x2x3"}, 2, `--shape "right": there are the inputs "left"`},
		{[]string{model, "--shape", "w=3x4"}, 2, `--shape "w": there are the inputs "left"`},
		{[]string{"--shape", "left=1x2x3"}, 2, "--shape: only ONNX"},
		{[]string{model}, 1, `input "left" is float[rows 2 ?]: give --shape left=AxBxC (with 1 for each open size: `},
	} {
		_, _, err := call(t, append([]string{"inspect"}, c.args...)...)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.code, cli.ExitCode(err), "%v: %v", c.args, err)
	}
	// Sizes that were given are not called a guess.
	_, _, err := call(t, "inspect", model, "--shape", "left=1x2x5")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "--shape")
}

// What the programs of the arrays hold on the host is memory like any other: inspect counts it, and --max-memory keeps to it.
func TestMemoryOfArrays(t *testing.T) {
	for _, backend := range []string{"xdna:rows=1,precision=int8", "xdna2:rows=1", "aie"} {
		m := jsonOf(t, "inspect", "--backend", backend, "--context", "32")["memory"].(map[string]any)
		host := jsonOf(t, "inspect", "--context", "32")["memory"].(map[string]any)
		require.Greater(t, m["workspace"], host["workspace"], backend)
		need := int64(m["total"].(float64))
		_, _, err := call(t, "generate", "-n", "1", "--backend", backend, "--context", "32", "--max-memory", fmt.Sprint(need-1))
		require.ErrorContains(t, err, "limit", backend)
		_, _, err = call(t, "generate", "-n", "1", "--backend", backend, "--context", "32", "--max-memory", fmt.Sprint(need))
		require.NoError(t, err, backend)
	}
}

// Sizes that are not named go with the tokens, so that naming what one thinks of is enough.
func TestInspectAt(t *testing.T) {
	for at, want := range map[string]map[string]any{
		"tokens=64,rows=1": {"tokens": 64., "rows": 1., "writes_4": 256.},
		"tokens=64":        {"tokens": 64., "rows": 64., "writes_4": 256.},
		"rows=1":           {"rows": 1.},
		"":                 {"tokens": 1., "rows": 1., "writes_4": 4.},
	} {
		args := []string{"inspect"}
		if at != "" {
			args = append(args, "--at", at)
		}
		require.Equal(t, want, jsonOf(t, args...)["at"].([]any)[0].(map[string]any)["sizes"], at)
	}
	_, _, err := call(t, "inspect", "--at", "tokens=-1")
	require.ErrorContains(t, err, "tokens = -1")
	require.Equal(t, 2, cli.ExitCode(err))
}

// A product that the option rows put on the array is not said to belong on the CPU.
func TestReasonOfRows(t *testing.T) {
	at := jsonOf(t, "inspect", "--backend", "xdna2:rows=1")["at"].([]any)[0].(map[string]any)
	found := 0
	for _, n := range at["nodes"].([]any) {
		if n := n.(map[string]any); n["backend"] == "xdna2" {
			found++
			require.Regexp(t, `simulated; on the array because of rows=1, although predicted [0-9.]+ [um]s on the array, more than [1-9][0-9.]* [nu]s on the CPU`, n["reason"])
		}
	}
	require.Positive(t, found)
}
