package llm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
)

// tiny is a shape that opens in a millisecond.
func tiny(arch string) llmtest.Shape {
	return llmtest.Shape{Arch: arch, Vocab: 300, Context: 16, Dim: 8, FFN: 8, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 4, Tied: true, Seed: 1}
}

// Whatever a saved session holds, loading it gives an error or a session that goes on.
func FuzzLoadSession(f *testing.F) {
	m := random(f, tiny("llama"), llm.Options{})
	s, err := m.NewSession()
	require.NoError(f, err)
	ctx := context.Background()
	require.NoError(f, s.Eval(ctx, 5, 6, 7))
	var saved bytes.Buffer
	require.NoError(f, s.Save(&saved))
	f.Add(saved.Bytes())
	f.Add(saved.Bytes()[:20])
	require.NoError(f, s.Rewind(0))
	saved.Reset()
	require.NoError(f, s.Save(&saved))
	f.Add(saved.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := len(data) - 4; n > 0 { // what is behind the check sum shall be reached
			data = bytes.Clone(data)
			binary.LittleEndian.PutUint32(data[n:], crc32.ChecksumIEEE(data[:n]))
		}
		require.NoError(t, s.Rewind(0))
		require.NoError(t, s.Eval(ctx, 9))
		if err := s.Load(ctx, bytes.NewReader(data)); err != nil {
			require.Equal(t, []int32{9}, s.Tokens())
		}
		if s.Room() > 0 {
			require.NoError(t, s.Eval(ctx, 10))
		}
	})
}

// Whatever a model's metadata say, opening it gives an error or a model that computes.
func FuzzMetadata(f *testing.F) {
	archs := []string{"llama", "qwen3", "gemma2", "phi3", "gpt2", "bert"}
	files := make([]*gguf.File, len(archs))
	for i, a := range archs {
		var file bytes.Buffer
		require.NoError(f, llmtest.Write(&file, tiny(a)))
		var err error
		files[i], err = gguf.Parse(file.Bytes())
		require.NoError(f, err)
	}
	f.Add(uint8(0), uint8(5), uint8(0), int64(3), 1.5, "yarn")
	f.Add(uint8(1), uint8(8), uint8(1), int64(-1), -0.5, "")
	f.Add(uint8(5), uint8(200), uint8(2), int64(1<<40), 1e30, "none")
	f.Fuzz(func(t *testing.T, arch, key, kind uint8, n int64, x float64, s string) {
		file := files[int(arch)%len(files)]
		var w gguf.Writer
		for _, kv := range file.Metadata {
			w.Set(kv.Key, kv.Value)
		}
		name := archs[int(arch)%len(files)] + "."
		keys := []string{name + "rope.scaling.type", name + "rope.scaling.factor", name + "rope.dimension_count", name + "attention.sliding_window", name + "pooling_type",
			name + "rope.freq_base", name + "attn_logit_softcapping", name + "attention.key_length"}
		for _, kv := range file.Metadata {
			keys = append(keys, kv.Key)
		}
		w.Set(keys[int(key)%len(keys)], []any{n, x, s, n > 0, []int64{n, n}, []string{s}, []float64{x}, uint32(n)}[int(kind)%8])
		for i := range file.Tensors {
			v, err := file.View(&file.Tensors[i])
			require.NoError(t, err)
			w.AddTensor(file.Tensors[i].Name, v)
		}
		var out bytes.Buffer
		if _, err := w.WriteTo(&out); err != nil {
			return
		}
		m, err := llm.Parse(out.Bytes(), llm.Options{Context: 8})
		if err != nil {
			return
		}
		defer m.Close()
		if _, err := m.EmbedIDs(context.Background(), []int32{3, 4}, llm.EmbedOptions{}); err != nil {
			t.Logf("embed: %v", err)
		}
		if !m.Config.Causal {
			return
		}
		for _, err := range m.Generate(context.Background(), "a", llm.GenerateOptions{MaxTokens: 3}) {
			if err != nil {
				t.Logf("generate: %v", err)
			}
		}
	})
}

// Whatever the JSON files of a folder hold, opening it gives an error or a model that computes.
func FuzzFolder(f *testing.F) {
	dir := writeFolder(f, tiny("llama"), map[string]any{})
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(f, err)
		return b
	}
	config, tokens := read("config.json"), read("tokenizer_config.json")
	f.Add(config, tokens)
	f.Add([]byte(`{"model_type":"qwen2","num_hidden_layers":1}`), []byte(`{"bos_token":{"content":"<s>"},"chat_template":[{"name":"default","template":"{{ x }}"}]}`))
	f.Add([]byte(`{"model_type":"bert"}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, config, tokens []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), tokens, 0o600))
		m, err := llm.Open(dir, llm.Options{Context: 8})
		if err != nil {
			return
		}
		defer m.Close()
		if _, err := m.EmbedIDs(context.Background(), []int32{3, 4}, llm.EmbedOptions{}); err != nil {
			t.Logf("embed: %v", err)
		}
		if m.Config.Causal {
			c, err := m.NewChat("", "")
			if err == nil {
				require.NoError(t, c.Close())
			}
		}
	})
}
