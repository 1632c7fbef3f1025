package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/llm/llmtest"
)

// randomModel writes a small model of random weights.
func randomModel(t *testing.T, arch string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), arch+".gguf")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, llmtest.Write(f, llmtest.Small(arch, true)))
	require.NoError(t, f.Close())
	return path
}

// TestActivationsNearLiveness: on the models of this project the arena is at most 1.1 times what liveness asks for, with all passes and without.
func TestActivationsNearLiveness(t *testing.T) {
	digits := filepath.Join(shared.Root(), "models", "cnn", "digits.onnx")
	near := func(t *testing.T, model string) {
		for _, off := range [][]string{nil, {"all"}} {
			s, err := openSubject(context.Background(), cli.Options{Backend: "cpu", Model: model, NoPasses: off}, nil, 8)
			require.NoError(t, err)
			m := s.exe().Memory()
			t.Logf("without passes %v: %d bytes, at least %d", off, m.Activations, m.LowerBound)
			require.Positive(t, m.LowerBound)
			require.LessOrEqual(t, float64(m.Activations), 1.1*float64(m.LowerBound))
			s.close()
		}
	}
	for name, model := range map[string]string{"embedded": "", "bert": randomModel(t, "bert"), "gemma3": randomModel(t, "gemma3"), "digits": digits} {
		t.Run(name, func(t *testing.T) { near(t, model) })
	}
	for _, name := range []string{"models/stories260K.gguf", "models/tolstoy-3m.gguf", "models/mnist-12.onnx", "magika/model.onnx"} {
		t.Run(name, func(t *testing.T) { near(t, shared.File(t, "data/"+name)) })
	}
}

// TestBenchPasses: results are the same with and without passes, for a language model, an encoder and a CNN.
func TestBenchPasses(t *testing.T) {
	out, _, err := call(t, "bench", "passes", "--json", "--each", "--rounds", "1", "--tokens", "5", "-m", randomModel(t, "llama"), "-m", randomModel(t, "bert"),
		"-m", filepath.Join(shared.Root(), "models", "cnn", "digits.onnx"))
	require.NoError(t, err)
	works := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var r passRow
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		require.Positive(t, r.Seconds)
		require.Positive(t, r.Ratio)
		require.Positive(t, r.Changes, line)
		require.NotContains(t, r.Same, "other", line)
		if strings.HasSuffix(r.Model, ".gguf") && r.Work != "encode 5" {
			require.Equal(t, "same ids", r.Same, line)
		}
		works[r.Work]++
	}
	for _, work := range []string{"prefill 5", "decode 16", "encode 5", "run"} {
		require.Greater(t, works[work], 1, work) // all passes, and at least one alone
	}
	_, _, err = call(t, "bench", "passes", "--rounds", "0")
	require.Equal(t, 2, cli.ExitCode(err))
}

// TestBenchSwapEncoder: an encoder's vectors on an array are near those of the CPU.
func TestBenchSwapEncoder(t *testing.T) {
	text := filepath.Join(t.TempDir(), "t.txt")
	require.NoError(t, os.WriteFile(text, []byte("the first line\n\nand another one\n"), 0o600))
	out, _, err := call(t, "bench", "swap", "--json", "--text", text, "-m", randomModel(t, "bert"), "--backends", "xdna2:rows=1", "--backends", "cpu", "--context", "64")
	require.NoError(t, err)
	seen := map[string]swapRow{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var r swapRow
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		if r.Model == "bert.gguf" {
			seen[r.Backend] = r
		}
	}
	require.Contains(t, seen["cpu"].Agreement, "cosine 1.00000")
	require.Contains(t, seen["xdna2:rows=1"].Agreement, "cosine 0.99")
	require.Contains(t, seen["xdna2:rows=1"].Agreement, "2 lines")
	require.Positive(t, seen["xdna2:rows=1"].Dispatches)
	require.EqualValues(t, 1, seen["xdna2:rows=1"].Configurations)
}

// TestInspectExplainsEveryNode: each node has a reason in words; a product, wherever it runs, has one with figures, and so has its refusal by an array.
func TestInspectExplainsEveryNode(t *testing.T) {
	for _, backend := range []string{"cpu", "xdna", "xdna2", "aie"} {
		for name, model := range map[string]string{"embedded": "", "bert": randomModel(t, "bert"), "digits": filepath.Join(shared.Root(), "models", "cnn", "digits.onnx")} {
			args := []string{"inspect", "--json", "--backend", backend}
			if model != "" {
				args = append(args, model)
			}
			out, _, err := call(t, args...)
			require.NoError(t, err)
			var in inspection
			require.NoError(t, json.Unmarshal([]byte(out), &in))
			require.NotEmpty(t, in.Nodes)
			if name == "embedded" {
				require.Len(t, in.At, 1)
				require.Equal(t, 1, in.At[0].Sizes["tokens"])
				in.Nodes = append(in.Nodes, in.At[0].Nodes...)
			}
			for _, n := range in.Nodes {
				what := fmt.Sprintf("%s on %s: %s (%s): %q", name, backend, n.Name, n.Op, n.Reason)
				require.NotEmpty(t, n.Reason, what)
				if n.Backend == "view" {
					continue
				}
				require.Positive(t, n.Bytes, what)
				if n.Op != "matmul" && n.Op != "conv" {
					continue
				}
				require.Positive(t, n.Flops, what)
				if backend != "cpu" {
					require.Regexp(t, `[0-9.]+ ?(us|µs|ms).*|[0-9]+ %`, n.Reason, what)
					require.Contains(t, n.Reason, "useful work", what)
				}
			}
		}
	}
}

// An ONNX model is measured too, for the shapes that are given.
func TestBenchONNX(t *testing.T) {
	digits := filepath.Join(shared.Root(), "models", "cnn", "digits.onnx")
	doc := jsonOf(t, "bench", "model", "--model", digits, "--shape", "image=3x1x28x28", "--runs", "3", "--threads", "1", "--backend", "aie")
	seconds := doc["seconds"].(map[string]any)
	require.Positive(t, seconds["min"])
	require.GreaterOrEqual(t, seconds["median"], seconds["min"])
	require.InEpsilon(t, 3/seconds["median"].(float64), doc["images_s"], 1e-9)
	require.GreaterOrEqual(t, doc["runs"], 3.)
	require.Equal(t, "aie", doc["backend"])
	require.EqualValues(t, 1, doc["threads"])
	require.Positive(t, doc["load_ms"])
	on := doc["report"].(map[string]any)["backends"].([]any)[0].(map[string]any)
	require.EqualValues(t, 4*(doc["runs"].(float64)+3), on["products"], "the first run, two that warm up, and those that count")

	out, stderr, err := call(t, "bench", "model", "--model", digits, "--runs", "1")
	require.NoError(t, err)
	require.Contains(t, stderr, "open dimensions are taken as 1 (image [1 1 28 28]); --shape image=AxBxC")
	require.Regexp(t, `^digits\.onnx on cpu, \d+ threads?: median [0-9.e-]+ ms \(\d+ images a second\), best [0-9.e-]+ ms of \d+ runs?;`, out)
}

// What was measured before something fails is printed.
func TestBenchSwapPrintsAsItGoes(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.txt")
	require.NoError(t, os.WriteFile(text, []byte("The prince said nothing."), 0o600))
	out, _, err := call(t, "bench", "swap", "--text", text, "--images", text, "--labels", text, "--backends", "cpu")
	require.ErrorContains(t, err, text)
	require.Equal(t, 1, strings.Count(out, "| model |"))
	require.Contains(t, out, "| tolstoy-3m (embedded) | `cpu` | perplexity ")
}
