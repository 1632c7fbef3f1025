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
