package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

func jsonOf(t *testing.T, args ...string) map[string]any {
	t.Helper()
	out, _, err := call(t, append(args, "--json")...)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(out, "\n"), out)
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	return doc
}

func TestGenerateJSON(t *testing.T) {
	doc := jsonOf(t, "generate", "-p", "The prince said", "-n", "6", "--temp", "0")
	require.Equal(t, []any{358., 1003., 379.}, doc["prompt_ids"])
	require.Equal(t, []any{311., 260., 722., 314., 330., 258.}, doc["ids"])
	require.Equal(t, " that the Emperor was not a", doc["text"])
	require.EqualValues(t, 3, doc["prefill_tokens"])
	report := doc["report"].(map[string]any)
	require.Equal(t, "cpu", report["backends"].([]any)[0].(map[string]any)["name"])
	require.Empty(t, report["fallbacks"])
	require.EqualValues(t, 0, report["conversions"])
}

func TestGenerateStories(t *testing.T) {
	doc := jsonOf(t, "generate", "--model", shared.File(t, "data/models/stories260K.gguf"), "-p", "", "-n", "40", "--temp", "0")
	var want []any
	for _, id := range []int{403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267, 337, 410, 408, 419, 292, 411, 322, 265,
		282, 295, 433, 426, 385, 328, 432, 358, 394, 261, 370, 432, 352} {
		want = append(want, float64(id))
	}
	require.Equal(t, want, doc["ids"])
	require.Equal(t, []any{1.}, doc["prompt_ids"])
}

func TestSeedMakesTextsEqual(t *testing.T) {
	a := jsonOf(t, "generate", "-p", "War", "-n", "12", "--seed", "7")
	b := jsonOf(t, "generate", "-p", "War", "-n", "12", "--seed", "7", "--threads", "1")
	require.Equal(t, a["ids"], b["ids"])
	c := jsonOf(t, "generate", "-p", "War", "-n", "12", "--seed", "8")
	require.NotEqual(t, a["ids"], c["ids"])
}

func TestPerplexityCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("The Emperor was not in the army. ", 20)), 0o600))
	doc := jsonOf(t, "perplexity", "--file", file)
	require.Greater(t, doc["perplexity"], 1.)
	require.Less(t, doc["perplexity"], 1024.)
	require.Greater(t, doc["tokens"], 100.)
}

func TestQuantizeAndInspect(t *testing.T) {
	in := shared.File(t, "data/models/tolstoy-3m.gguf")
	out := filepath.Join(t.TempDir(), "q.gguf")
	doc := jsonOf(t, "quantize", in, out, "--type", "q4_0")
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.EqualValues(t, info.Size(), doc["bytes_out"])
	require.Less(t, doc["bytes_out"], doc["bytes_in"].(float64)/4)
	doc = jsonOf(t, "inspect", out, "--passes")
	require.NotEmpty(t, doc["tensors"])
	require.NotEmpty(t, doc["passes"])
	for _, n := range doc["nodes"].([]any) {
		require.NotEmpty(t, n.(map[string]any)["reason"])
	}
	m := doc["memory"].(map[string]any)
	require.Greater(t, m["kv"], 0.)
	require.Greater(t, m["workspace"], 0.)
	sum := 0.
	for _, k := range []string{"weights", "prepared", "kv", "activations", "workspace"} {
		sum += m[k].(float64)
	}
	require.Equal(t, sum, m["total"])
}

func TestCacheFlag(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "m.gguf")
	require.NoError(t, os.WriteFile(model, tolstoy.GGUF(), 0o600))
	want := jsonOf(t, "generate", "-p", "War", "-n", "5", "--temp", "0")["ids"]
	for range 2 {
		require.Equal(t, want, jsonOf(t, "generate", "--model", model, "-p", "War", "-n", "5", "--temp", "0", "--cache")["ids"])
		require.FileExists(t, model+".packed.tessera")
	}
	named := filepath.Join(dir, "packed")
	require.Equal(t, want, jsonOf(t, "generate", "-p", "War", "-n", "5", "--temp", "0", "--cache="+named)["ids"])
	require.FileExists(t, named)
	_, stderr, err := call(t, "generate", "-n", "1", "--cache="+filepath.Join(dir, "none", "packed"))
	require.NoError(t, err)
	require.Contains(t, stderr, "packed weights are not kept")
	_, _, err = call(t, "generate", "-n", "1", "--cache="+model)
	require.ErrorContains(t, err, "not replaced")
	_, _, err = call(t, "generate", "-n", "1", "--cache")
	require.Equal(t, 2, cli.ExitCode(err))
}

// Mistakes are one clear line and the right exit status.
func TestMistakes(t *testing.T) {
	embedded := filepath.Join(t.TempDir(), "m.gguf") // in q8_0
	require.NoError(t, os.WriteFile(embedded, tolstoy.GGUF(), 0o600))
	garbage := filepath.Join(t.TempDir(), "garbage.gguf")
	require.NoError(t, os.WriteFile(garbage, []byte("GGUF but not really"), 0o600))
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"generate", "--model", "none.gguf"}, 1, "none.gguf"},
		{[]string{"generate", "--model", garbage}, 1, "garbage.gguf"},
		{[]string{"generate", "--model", "../../models/cnn/digits.onnx"}, 1, "this is no GGUF file, which begins with \"GGUF\"; tessera run and tessera classify run ONNX models"},
		{[]string{"classify", "--model", embedded, "../../examples/classify/3.png"}, 1, "is a GGUF file, no ONNX model; tessera generate, chat and embed run language models"},
		{[]string{"run", "--model", embedded, "-o", t.TempDir()}, 1, "is a GGUF file, no ONNX model"},
		{[]string{"generate", "--backend", "gpu"}, 1, `unknown backend "gpu"`},
		{[]string{"generate", "--backend", "cpu:colour=red"}, 2, "colour"},
		{[]string{"generate", "-p", strings.Repeat("war and peace ", 400)}, 1, "context"},
		{[]string{"generate", "--max-memory", "1KiB"}, 1, "limit"},
		{[]string{"generate", "--max-memory", "x"}, 2, "max-memory"},
		{[]string{"generate", "--temp", "-1"}, 2, "emperature"},
		{[]string{"generate", "-n", "-1"}, 2, "--tokens"},
		{[]string{"generate", "--threads", "-1"}, 2, "--threads"},
		{[]string{"generate", "--cache-type", "x"}, 2, "cache-type"},
		{[]string{"generate", "--cache-type", "i8"}, 2, "q8_0"},
		{[]string{"generate", "--backend", "xdna", "--mode", "x"}, 2, "mode=x"},
		{[]string{"generate", "--disable-pass", "nonsense"}, 2, "nonsense"},
		{[]string{"generate", "--backend", "cpu:isa=portable,isa=portable"}, 2, "twice"},
		{[]string{"generate", "--logit-bias", "1024=1"}, 2, "1024 tokens"},
		{[]string{"generate", "--logit-bias", "-1=1"}, 2, "1024 tokens"},
		{[]string{"quantize", "a", "b", "--type", "q4_9"}, 2, "q4_9"},
		{[]string{"perplexity", "--file", "none.txt", "--context", "1"}, 2, "--context"},
		{[]string{"perplexity"}, 2, "--file"},
		{[]string{"perplexity", "--file", "none.txt"}, 1, "none.txt"},
		{[]string{"quantize", "a"}, 2, "missing: tessera quantize"},
		{[]string{"quantize", garbage, garbage + ".out", "--type", "q8_0"}, 1, ""},
		{[]string{"quantize", filepath.Dir(garbage), garbage + ".out", "--type", "q8_0"}, 2, "is a folder: a GGUF file is quantized"},
		{[]string{"bench", "gemm", "--size", "1x2"}, 2, "MxNxK"},
		{[]string{"bench", "gemm", "--dtype", "f31"}, 2, "f31"},
		{[]string{"bench", "gemm", "--size", "8x8x8", "--runs", "0"}, 2, "--runs"},
		{[]string{"bench", "gemm", "--size", "8x8x8", "--seconds", "NaN"}, 2, "--seconds"},
		{[]string{"bench", "gemm", "--size", "1000000x1000000x1000000"}, 1, "memory"},
		{[]string{"bench", "gemm", "--size", "8x8x8", "--threads", "100000"}, 2, "--threads"},
		{[]string{"quantize", "--type", "q8_0", "a", os.DevNull}, 1, "not a regular file"},
		{[]string{"quantize", "--type", "q8_0", "a", "/none/b.gguf"}, 1, "/none/b.gguf"},
		{[]string{"quantize", "--type", "q8_0", garbage, garbage}, 2, "both"},
		{[]string{"quantize", embedded, embedded + ".q4", "--type", "q4_0"}, 1, "--allow-requantize"},
		{[]string{"chat", "--history", os.DevNull}, 1, "not a regular file"},
		{[]string{"chat", "--history", "/none/talk.json"}, 1, "/none"},
		{[]string{"generate", "--context", "2000000000"}, 2, "--context"},
		{[]string{"generate", "--trace", "/none/trace"}, 1, "/none/trace"},
		{[]string{"classify", "a.png", "--scale", "NaN"}, 2, "--scale"},
		{[]string{"aie", "plan", "--size", "64x64x64", "--mb", "-8"}, 2, "mb=-8"},
		{[]string{"aie", "run", "--size", "64x64x64", "--groups", "-1"}, 2, "groups=-1"},
		{[]string{"aie", "plan", "--size", "64x64x64", "--clock", "NaN"}, 2, "clock"},
		{[]string{"xdna", "run", "--size", "1000000x1000000x1000000"}, 1, "memory"},
		{[]string{"xdna", "predict", "--size", "1000000x1000000x1000000"}, 1, "emulated"},
		{[]string{"inspect", "none.onnx"}, 1, "none.onnx"},
		{[]string{"run", "--model", "none.onnx", "-o", t.TempDir()}, 1, "none.onnx"},
	} {
		_, _, err := call(t, c.args...)
		require.Error(t, err, "%v", c.args)
		require.Equal(t, c.code, cli.ExitCode(err), "%v: %v", c.args, err)
		require.ErrorContains(t, err, c.text, "%v", c.args)
		require.NotContains(t, err.Error(), "\n", "%v", c.args)
	}
}

func TestBenchGemm(t *testing.T) {
	for _, dtype := range productTypes() {
		doc := jsonOf(t, "bench", "gemm", "--dtype", dtype, "--size", "5x33x256", "--runs", "2", "--seconds", "0.001", "--threads", "1")
		require.Equal(t, dtype, doc["dtype"])
		require.Greater(t, doc["gops"].(map[string]any)["best"], 0.)
	}
	require.Contains(t, productTypes(), "s8s8s32")
	for name, dtype := range productNames { // what the formats are called elsewhere
		require.Contains(t, productTypes(), dtype)
		require.NotContains(t, productTypes(), name)
		require.Equal(t, dtype, jsonOf(t, "bench", "gemm", "--dtype", strings.ToUpper(name), "--size", "4x4x4", "--runs", "1", "--seconds", "0")["dtype"])
	}
}

func TestBenchModel(t *testing.T) {
	doc := jsonOf(t, "bench", "model", "--prompt-tokens", "16", "--decode-tokens", "4")
	require.Greater(t, doc["prefill_tok_s"], 0.)
	require.Greater(t, doc["decode_tok_s"], 0.)
}

func TestProfileAndTrace(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.json")
	_, stderr, err := call(t, "generate", "-p", "War", "-n", "3", "--profile", "--trace", trace)
	require.NoError(t, err)
	require.Contains(t, stderr, "blk.0")
	require.Contains(t, stderr, "matmul")
	data, err := os.ReadFile(trace)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(data, &doc))
	require.NotEmpty(t, doc["traceEvents"])
}
