package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/tensor"
)

// The fields of the JSON documents that programs may rely on. Others may be added; of these each stands in every document of its sub-command, whatever its value.
func TestJSONFields(t *testing.T) {
	withFakeClock(t)
	dir := t.TempDir()
	model, text := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "t.txt")
	require.NoError(t, os.WriteFile(model, tolstoy.GGUF(), 0o600))
	require.NoError(t, os.WriteFile(text, []byte("The prince said that he would not go."), 0o600))
	pair := npyFile(t, tensor.Of([]float32{1, 2}, 2))
	const digits, aie, table = "../../models/cnn/digits.onnx", "cycles macs_per_cycle efficiency_percent bytes.ddr bytes.fpga bytes.local bound",
		"table device dtype tile size published analytic emulated fitted error_percent"
	const report = " report.fallbacks report.conversions report.backends.name report.backends.nodes report.backends.products report.backends.dispatches" +
		" report.backends.configurations report.backends.simulated_seconds report.backends.bytes"
	for _, c := range []struct{ args, fields string }{
		{"generate -p War -n 2", "text prompt_ids ids prefill_tokens prefill_tok_s decode_tok_s load_ms backend" + report},
		{"generate -p War -n 2 --draft " + model + " --prompt-cache " + filepath.Join(dir, "war.state"), "text ids prefill_tokens cached_tokens guessed_tokens accepted_tokens" + report},
		{"generate -p War -n 2 --backend xdna2", "report.fallbacks.node report.fallbacks.op report.fallbacks.reason" + report},
		{"perplexity --file " + text, "tokens nll perplexity backend" + report},
		{"classify ../../examples/classify/3.png", "file index label score top"},
		{"embed War --model " + model, "text ids vector"},
		{"run --model " + adder(t) + " --input a=" + pair + " --input b=" + pair + " --output " + filepath.Join(dir, "out"),
			"outputs.y/sum.shape outputs.y/sum.dtype outputs.y/sum.file seconds" + report},
		{"inspect " + model, "tensors memory.weights memory.kv memory.activations memory.workspace memory.total nodes.name nodes.op nodes.backend nodes.reason"},
		{"inspect " + digits + " --passes", "tensors memory.weights memory.kv memory.activations memory.workspace memory.total nodes.name nodes.op nodes.backend nodes.reason"},
		{"quantize " + model + " " + filepath.Join(dir, "q.gguf") + " --type q4_0 --allow-requantize", "tensors bytes_in bytes_out seconds"},
		{"tune --knob kc-max -o " + filepath.Join(dir, "profile.json"), "file knobs"},
		{"bench gemm --size 16x16x16,8x8x8 --seconds 0", "op dtype m n k threads packed kernel seconds.min seconds.median gops.best gops.median peak_gops percent_of_peak"},
		{"bench model --prompt-tokens 2 --decode-tokens 1", "model threads prefill_tok_s decode_tok_s load_ms peak_rss_bytes"},
		{"bench model --runs 1 --model " + digits, "model threads images_s load_ms peak_rss_bytes"},
		{"bench ladder --size 8x8x8 --seconds 0 --runs 1", "stage seconds gflops speedup packs_a packs_b workspace_bytes"},
		{"xdna plan --device xdna --dtype bf16-bf16", "device dtype tile.m tile.k tile.n k_mt native.m native.n native.k l1_bytes l2_bytes predicted_tops design searched"},
		{"xdna predict --size 4096x4480x4320 --tile 128,72,112 --kmt 432", "analytic_tops emulated_tops seconds bound padded.m padded.n padded.k useful_percent published_tops"},
		{"xdna predict --size 512x512x512 --analytic", "analytic_tops emulated_tops seconds bound padded.m padded.n padded.k useful_percent"},
		{"xdna tables --analytic", table},
		{"xdna run --size 64x64x64", "ops words configurations dispatches staged_bytes padded useful_percent simulated_seconds simulated_tops wall_seconds max_error exact"},
		{"xdna run --size 64x64x64 --mode fast", "ops words configurations dispatches staged_bytes padded useful_percent simulated_seconds simulated_tops wall_seconds max_error exact"},
		{"aie plan --size 64x64x64", aie},
		{"aie predict --size 64x64x64", aie},
		{"aie run --size 64x64x64", aie},
		{"aie trace --size 64x64x64 -o " + filepath.Join(dir, "t.json"), aie},
		{"aie tables", table},
	} {
		out, _, err := call(t, append(strings.Fields(c.args), "--json")...)
		require.NoError(t, err, c.args)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for _, line := range lines {
			var doc map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &doc), "%s: %s", c.args, line)
			for _, f := range strings.Fields(c.fields) {
				requireField(t, doc, strings.Split(f, "."), c.args+": "+f)
			}
		}
	}
}

// fieldTypes are what fields of a name hold, in every document; numbers are the others.
var fieldTypes = map[string]any{
	"text": "", "backend": "", "file": "", "label": "", "name": "", "op": "", "reason": "", "node": "", "dtype": "", "kernel": "", "model": "", "device": "", "design": "",
	"bound": "", "table": "", "tile": "", "size": "",
	"packed": true, "exact": true, "fitted": true,
	"prompt_ids": []any{}, "ids": []any{}, "fallbacks": []any{}, "top": []any{}, "vector": []any{}, "shape": []any{}, "tensors": []any{}, "searched": []any{},
	"padded": map[string]any{}, "knobs": map[string]any{},
}

// requireField looks a field up by its path, and its type; a list on the way must not be empty, and every element must have the rest.
func requireField(t *testing.T, v any, path []string, what string) {
	t.Helper()
	if list, ok := v.([]any); ok && len(path) > 0 {
		require.NotEmpty(t, list, what)
		for _, e := range list {
			requireField(t, e, path, what)
		}
		return
	}
	if len(path) > 0 {
		require.IsType(t, map[string]any{}, v, what)
		require.Contains(t, v, path[0], what)
		field := v.(map[string]any)[path[0]]
		if len(path) > 1 {
			requireField(t, field, path[1:], what)
			return
		}
		if field == nil && strings.HasPrefix(path[0], "emulated") {
			return // the emulator has not run it
		}
		want, ok := fieldTypes[path[0]]
		if !ok {
			want = 0.
		}
		require.IsType(t, want, field, what)
	}
}
