package llm_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
)

// How far a model reaches is what it was trained for, or what the scaling of its rotary positions makes of it.
func TestReach(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, tiny("llama")))
	f, err := gguf.Parse(file.Bytes())
	require.NoError(t, err)
	plain, err := llm.ReadConfig(f)
	require.NoError(t, err)
	trained := plain.Context
	for _, c := range []struct {
		kind     string
		factor   float64
		original int
		want     int
	}{
		{"", 0, 0, trained}, {"none", 4, 0, trained}, {"linear", 4, 0, 4 * trained}, {"yarn", 4, trained, 4 * trained}, {"yarn", 4, trained / 4, trained},
		{"yarn", 2, trained / 4, trained}, {"linear", 1e30, 0, 1 << 30}, {"longrope", 0, trained / 4, trained},
	} {
		var w gguf.Writer
		for _, kv := range f.Metadata {
			w.Set(kv.Key, kv.Value)
		}
		if c.kind != "" {
			w.Set("llama.rope.scaling.type", c.kind)
			w.Set("llama.rope.scaling.factor", float32(c.factor))
		}
		if c.original > 0 {
			w.Set("llama.rope.scaling.original_context_length", uint32(c.original))
		}
		for i := range f.Tensors {
			v, err := f.View(&f.Tensors[i])
			require.NoError(t, err)
			w.AddTensor(f.Tensors[i].Name, v)
		}
		var out bytes.Buffer
		_, err := w.WriteTo(&out)
		require.NoError(t, err)
		scaled, err := gguf.Parse(out.Bytes())
		require.NoError(t, err)
		config, err := llm.ReadConfig(scaled)
		require.NoError(t, err)
		require.Equal(t, c.want, config.Reach(), "%+v", c)
	}
}

// Which layers are local: by the architecture's pattern, the file's, or the file's word on each layer.
func TestWindows(t *testing.T) {
	for _, c := range []struct {
		arch, key string
		value     any
		window    int
		local     []bool
	}{
		{"gemma2", "", nil, 9, []bool{true, false, true, false}},
		{"gemma2", "attention.sliding_window", nil, 4096, []bool{true, false, true, false}},
		{"gemma3", "", nil, 9, []bool{true, true, true, true, true, false, true}},
		{"gemma3", "attention.sliding_window", nil, 0, make([]bool, 7)},
		{"gemma3", "attention.sliding_window_pattern", uint32(3), 9, []bool{true, true, false, true, true, false, true}},
		{"gemma3", "attention.sliding_window_pattern", uint32(1), 9, make([]bool, 7)},
		{"gemma3", "attention.sliding_window_pattern", uint32(0), 9, []bool{true, true, true, true, true, true, true}},
		{"gemma3", "attention.sliding_window_pattern", []bool{true, false, false, true, true, true, false}, 9, []bool{true, false, false, true, true, true, false}},
	} {
		var file bytes.Buffer
		require.NoError(t, llmtest.Write(&file, llmtest.Small(c.arch, false)))
		f, err := gguf.Parse(file.Bytes())
		require.NoError(t, err)
		var w gguf.Writer
		key := c.arch + "." + c.key
		for _, kv := range f.Metadata {
			if kv.Key != key {
				w.Set(kv.Key, kv.Value)
			}
		}
		if c.value != nil {
			w.Set(key, c.value)
		}
		for i := range f.Tensors {
			v, err := f.View(&f.Tensors[i])
			require.NoError(t, err)
			w.AddTensor(f.Tensors[i].Name, v)
		}
		var out bytes.Buffer
		_, err = w.WriteTo(&out)
		require.NoError(t, err)
		changed, err := gguf.Parse(out.Bytes())
		require.NoError(t, err)
		config, err := llm.ReadConfig(changed)
		require.NoError(t, err)
		require.Equal(t, c.window, config.Window, "%s %v", key, c.value)
		require.Equal(t, c.local, config.Local, "%s %v", key, c.value)
	}
}
