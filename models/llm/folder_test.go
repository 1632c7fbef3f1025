package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/safetensors"
	"github.com/tessera-go/tessera/tensor"
)

// checkpointNames are the names of tensors in checkpoints, written out here once more.
func checkpointName(arch, name string) string {
	pairs := []string{"token_embd", "model.embed_tokens", "output_norm", "model.norm", "blk.", "model.layers.", "attn_norm", "input_layernorm",
		"attn_q_norm", "self_attn.q_norm", "attn_k_norm", "self_attn.k_norm", "attn_output", "self_attn.o_proj", "attn_q", "self_attn.q_proj",
		"attn_k", "self_attn.k_proj", "attn_v", "self_attn.v_proj", "ffn_norm", "post_attention_layernorm", "ffn_gate", "mlp.gate_proj",
		"ffn_up", "mlp.up_proj", "ffn_down", "mlp.down_proj", "output.", "lm_head."}
	if arch == "bert" {
		pairs = []string{"token_embd_norm", "embeddings.LayerNorm", "token_embd", "embeddings.word_embeddings", "position_embd", "embeddings.position_embeddings",
			"token_types", "embeddings.token_type_embeddings", "blk.", "encoder.layer.", "attn_output_norm", "attention.output.LayerNorm",
			"attn_output", "attention.output.dense", "attn_q", "attention.self.query", "attn_k", "attention.self.key", "attn_v", "attention.self.value",
			"ffn_up", "intermediate.dense", "ffn_down", "output.dense", "layer_output_norm", "output.LayerNorm"}
	}
	return strings.NewReplacer(pairs...).Replace(name)
}

// halves reorders the rows of a query or key weight from interleaved rotary pairs to halves.
func halves(x tensor.Tensor, heads int) tensor.Tensor {
	out := x.Clone()
	src, dst := tensor.Data[float32](x), tensor.Data[float32](out)
	size, k := x.Dims[0]/heads, x.Dims[1]
	for h := range heads {
		for i := range size {
			to := h*size + i%2*size/2 + i/2
			copy(dst[to*k:(to+1)*k], src[(h*size+i)*k:])
		}
	}
	return out
}

// writeFolder writes the random model of a shape as a checkpoint in two files.
func writeFolder(t testing.TB, s llmtest.Shape, config map[string]any) string {
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, s))
	f, err := gguf.Parse(file.Bytes())
	require.NoError(t, err)
	dir := t.TempDir()
	put := func(name string, v any) {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	for k, v := range map[string]any{"model_type": s.Arch, "vocab_size": s.Vocab, "max_position_embeddings": s.Context, "hidden_size": s.Dim,
		"intermediate_size": s.FFN, "num_hidden_layers": s.Layers, "num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim,
		"rms_norm_eps": 2e-5, "layer_norm_eps": 2e-5, "rope_theta": 20000, "tie_word_embeddings": s.Tied} {
		if _, ok := config[k]; !ok {
			config[k] = v
		}
	}
	put("config.json", config)
	vocab := map[string]int{}
	tokens, err := f.Strings("tokenizer.ggml.tokens")
	require.NoError(t, err)
	for i, s := range tokens[:len(tokens)-3] { // the embedding is padded
		vocab[s] = i
	}
	model := map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}, "byte_fallback": true}
	if s.Arch == "bert" {
		model = map[string]any{"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]"}
	}
	put("tokenizer.json", map[string]any{"model": model, "added_tokens": []map[string]any{{"id": 1, "content": tokens[1], "special": true}, {"id": 2, "content": tokens[2], "special": true}}})
	put("tokenizer_config.json", map[string]any{"bos_token": tokens[1], "eos_token": map[string]any{"content": tokens[2]}, "add_bos_token": true,
		"chat_template": "{% for m in messages %}[{{ m.content }}]{% endfor %}"})
	put("generation_config.json", map[string]any{"eos_token_id": []int{2, 5}})
	parts := [2][]safetensors.Named{}
	where := map[string]string{}
	for i, info := range f.Tensors {
		x, err := f.Tensor(info.Name)
		require.NoError(t, err)
		if s.Arch == "llama" && strings.HasSuffix(info.Name, "attn_q.weight") {
			x = halves(x, s.Heads)
		}
		if s.Arch == "llama" && strings.HasSuffix(info.Name, "attn_k.weight") {
			x = halves(x, s.KVHeads)
		}
		name := checkpointName(s.Arch, info.Name)
		parts[i%2] = append(parts[i%2], safetensors.Named{Name: name, Tensor: x})
		where[name] = fmt.Sprintf("part-%d.safetensors", i%2)
	}
	for i, list := range parts {
		var out bytes.Buffer
		require.NoError(t, safetensors.Write(&out, list, map[string]string{"format": "pt"}))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("part-%d.safetensors", i)), out.Bytes(), 0o666))
	}
	put("model.safetensors.index.json", map[string]any{"weight_map": where})
	return dir
}

// A checkpoint computes what the GGUF file of the same weights computes.
func TestFolders(t *testing.T) {
	for _, name := range []string{"llama", "llama-tied", "qwen2", "qwen2-tied", "qwen3", "bert"} {
		t.Run(name, func(t *testing.T) {
			s := llmtest.Cases()[name]
			config := map[string]any{}
			if name == "qwen2" {
				delete(config, "head_dim")
				config["rope_parameters"] = map[string]any{"rope_type": "default", "rope_theta": 20000}
				config["rope_theta"] = 1
			}
			m, err := llm.Open(writeFolder(t, s, config), llm.Options{})
			require.NoError(t, err)
			defer m.Close()
			want := random(t, s, llm.Options{})
			require.Equal(t, "random weights: "+m.String(), want.String(), "a folder names no model")
			if name == "bert" {
				a, err := want.EmbedIDs(context.Background(), prompt(), llm.EmbedOptions{})
				require.NoError(t, err)
				b, err := m.EmbedIDs(context.Background(), prompt(), llm.EmbedOptions{})
				require.NoError(t, err)
				require.InDeltaSlice(t, a, b, 1e-5)
				return
			}
			a, err := want.NewSession()
			require.NoError(t, err)
			b, err := m.NewSession()
			require.NoError(t, err)
			require.InDeltaSlice(t, logitsOf(t, a, prompt()...), logitsOf(t, b, prompt()...), 1e-4)
			require.Equal(t, []int32{1}, m.PromptIDs("", llm.GenerateOptions{}))
			require.True(t, m.Tokenizer.IsEnd(5))
			c, err := m.NewChat("", "")
			require.NoError(t, err)
			c.Messages = append(c.Messages, struct {
				Role    string `json:"role"`
				Content string `json:"content"`
			}{"user", "x"})
			ids, err := c.Prompt()
			require.NoError(t, err)
			require.Equal(t, int32(1), ids[0])
			require.Equal(t, "[x]", m.Tokenizer.Decode(ids))
		})
	}
}

// Llama 3's stretch from a configuration is that of the file's factors, and a window is that of every layer.
func TestFolderRopeAndWindow(t *testing.T) {
	s := llmtest.Small("llama", false)
	m, err := llm.Open(writeFolder(t, s, map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 4, "low_freq_factor": 1,
		"high_freq_factor": 4, "original_max_position_embeddings": 24}}), llm.Options{})
	require.NoError(t, err)
	defer m.Close()
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, s))
	factors := make([]float32, 12)
	for i := range factors { // the definition, by wavelengths
		wave := 2 * math.Pi * math.Pow(20000, 2*float64(i)/24)
		switch {
		case wave < 24.0/4:
			factors[i] = 1
		case wave > 24.0/1:
			factors[i] = 4
		default:
			smooth := (24/wave - 1) / (4 - 1)
			factors[i] = float32(1 / ((1-smooth)/4 + smooth))
		}
	}
	require.Less(t, factors[0], factors[11])
	f, err := gguf.Parse(file.Bytes())
	require.NoError(t, err)
	var w gguf.Writer
	for _, kv := range f.Metadata {
		w.Set(kv.Key, kv.Value)
	}
	for _, info := range f.Tensors {
		x, err := f.Tensor(info.Name)
		require.NoError(t, err)
		w.AddTensor(info.Name, x)
	}
	w.AddTensor("rope_freqs.weight", tensor.Of(factors, 12))
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	require.NoError(t, err)
	want, err := llm.Parse(out.Bytes(), llm.Options{})
	require.NoError(t, err)
	defer want.Close()
	a, err := want.NewSession()
	require.NoError(t, err)
	b, err := m.NewSession()
	require.NoError(t, err)
	require.InDeltaSlice(t, logitsOf(t, a, prompt()...), logitsOf(t, b, prompt()...), 1e-4)

	local, err := llm.Open(writeFolder(t, s, map[string]any{"model_type": "mistral", "sliding_window": 4}), llm.Options{})
	require.NoError(t, err)
	defer local.Close()
	require.Equal(t, []bool{true, true, true}, local.Config.Local)
}

// In one layer with a window of 4 a token sees itself and three before it, and nothing of what stands further back.
func TestFolderWindow(t *testing.T) {
	s := llmtest.Small("llama", false)
	s.Layers = 1
	last := func(config map[string]any, ids ...int32) []float32 {
		m, err := llm.Open(writeFolder(t, s, config), llm.Options{})
		require.NoError(t, err)
		defer m.Close()
		x, err := m.NewSession()
		require.NoError(t, err)
		return logitsOf(t, x, ids...)
	}
	ids := prompt()
	mistral := func() map[string]any { return map[string]any{"model_type": "mistral", "sliding_window": 4} }
	got := last(mistral(), ids...)
	require.InDeltaSlice(t, last(mistral(), ids[len(ids)-4:]...), got, 1e-4)
	require.Greater(t, worst(last(mistral(), ids[len(ids)-3:]...), got), 1e-2)
	all := last(map[string]any{"model_type": "mistral"}, ids...)
	require.Greater(t, worst(all, got), 1e-2)
	require.Equal(t, all, last(map[string]any{"model_type": "qwen2", "sliding_window": 4, "use_sliding_window": false}, ids...))
	require.Equal(t, all, last(map[string]any{"model_type": "mistral", "sliding_window": nil}, ids...))
}

// Sentence encoders say in files of their own how they pool.
func TestFolderPooling(t *testing.T) {
	dir := writeFolder(t, llmtest.Cases()["bert"], map[string]any{})
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	pooled := func() llm.Pooling {
		m, err := llm.Open(dir, llm.Options{})
		require.NoError(t, err)
		defer m.Close()
		got, err := m.EmbedIDs(context.Background(), prompt(), llm.EmbedOptions{})
		require.NoError(t, err)
		want, err := m.EmbedIDs(context.Background(), prompt(), llm.EmbedOptions{Pooling: m.Config.Pooling})
		require.NoError(t, err)
		require.Equal(t, want, got)
		return m.Config.Pooling
	}
	require.Equal(t, llm.PoolMean, pooled())
	const modules = `[{"idx":0,"name":"0","path":"","type":"sentence_transformers.models.Transformer"},
		{"idx":1,"name":"1","path":"%s","type":"sentence_transformers.models.Pooling"},{"idx":2,"name":"2","path":"2_Normalize","type":"sentence_transformers.models.Normalize"}]`
	put("1_Pooling/config.json", `{"word_embedding_dimension":80,"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false,"pooling_mode_max_tokens":false}`)
	require.Equal(t, llm.PoolCLS, pooled(), "without a list")
	put("modules.json", fmt.Sprintf(modules, "1_Pooling"))
	require.Equal(t, llm.PoolCLS, pooled())
	put("1_Pooling/config.json", `{"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":false,"pooling_mode_lasttoken":true,"include_prompt":true}`)
	require.Equal(t, llm.PoolLast, pooled())
	put("1_Pooling/config.json", `{"pooling_mode":"mean"}`)
	require.Equal(t, llm.PoolMean, pooled())
	put("1_Pooling/config.json", `{"word_embedding_dimension":80}`)
	require.Equal(t, llm.PoolMean, pooled())

	for _, c := range []struct{ name, text, want string }{
		{"1_Pooling/config.json", `{"pooling_mode_max_tokens":true}`, "pooling by max_tokens cannot be run"},
		{"1_Pooling/config.json", `{"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true}`, "pooling by cls_token and mean_tokens cannot be run"},
		{"1_Pooling/config.json", `{`, "config.json: unexpected end"},
		{"modules.json", fmt.Sprintf(modules, "../1_Pooling"), `"../1_Pooling" is no folder of the model`},
		{"modules.json", fmt.Sprintf(modules, "2_Pooling"), "2_Pooling"},
		{"modules.json", `[{"path":"2_Dense","type":"sentence_transformers.models.Dense"}]`, "models.Dense\" cannot be run"},
		{"modules.json", `{}`, "modules.json: json"},
	} {
		put("1_Pooling/config.json", `{}`)
		put("modules.json", fmt.Sprintf(modules, "1_Pooling"))
		put(c.name, c.text)
		_, err := llm.Open(dir, llm.Options{})
		require.ErrorContains(t, err, c.want)
	}
}

// A folder whose generation_config.json names no end has that of the tokenizer, and not token 0.
func TestFolderWithoutEnds(t *testing.T) {
	dir := writeFolder(t, llmtest.Small("llama", false), map[string]any{})
	for _, text := range []string{`{"eos_token_id":null}`, `{}`, `{"eos_token_id":[]}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o666))
		m, err := llm.Open(dir, llm.Options{})
		require.NoError(t, err)
		require.True(t, m.Tokenizer.IsEnd(2))
		require.False(t, m.Tokenizer.IsEnd(0), text)
		require.NoError(t, m.Close())
	}
}

func TestDamagedFolders(t *testing.T) {
	for _, c := range []struct {
		want   string
		config map[string]any
		damage func(dir string)
	}{
		{`model_type "mamba" cannot be run`, map[string]any{"model_type": "mamba"}, nil},
		{"a mixture of 8 experts", map[string]any{"num_local_experts": 8}, nil},
		{"0 layers with 6 heads", map[string]any{"num_hidden_layers": 0}, nil},
		{"1000000000 layers", map[string]any{"num_hidden_layers": 1000000000}, nil},
		{"6 query heads and 4 key heads", map[string]any{"num_key_value_heads": 4}, nil},
		{`hidden_act "odd"`, map[string]any{"hidden_act": "odd"}, nil},
		{`rope_scaling "ntk"`, map[string]any{"rope_scaling": map[string]any{"type": "ntk", "factor": 2}}, nil},
		{`rope_scaling "linear" with the factor 0`, map[string]any{"rope_scaling": map[string]any{"type": "linear"}}, nil},
		{"rope_scaling llama3 with", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 2}}, nil},
		{"cannot unmarshal string", map[string]any{"hidden_size": "wide"}, nil},
		{`tensor "model.layers.3.input_layernorm.weight" (blk.3.attn_norm.weight): missing`, map[string]any{"num_hidden_layers": 4}, nil},
		{"config.json", nil, func(dir string) { _ = os.Remove(filepath.Join(dir, "config.json")) }},
		{"tokenizer.json", nil, func(dir string) { _ = os.Remove(filepath.Join(dir, "tokenizer.json")) }},
		{"part-1.safetensors", nil, func(dir string) { _ = os.Remove(filepath.Join(dir, "part-1.safetensors")) }},
		{"generation_config.json: unexpected end", nil, func(dir string) { _ = os.Truncate(filepath.Join(dir, "generation_config.json"), 9) }},
		{"generation_config.json: eos_token_id: json", nil, func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(`{"eos_token_id":"</s>"}`), 0o666)
		}},
		{"tokenizer_config.json: invalid character", nil, func(dir string) { _ = os.Truncate(filepath.Join(dir, "tokenizer_config.json"), 20) }},
		{"model.safetensors.index.json: unexpected end", nil, func(dir string) { _ = os.Truncate(filepath.Join(dir, "model.safetensors.index.json"), 20) }},
		{"chat_template.jinja", nil, func(dir string) { _ = os.Mkdir(filepath.Join(dir, "chat_template.jinja"), 0o777) }},
		{"cannot lie in a file", nil, func(dir string) { _ = os.Truncate(filepath.Join(dir, "part-1.safetensors"), 100) }},
		{`"../x" is no file of the folder`, nil, func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(`{"weight_map":{"a":"../x"}}`), 0o666)
		}},
	} {
		if c.config == nil {
			c.config = map[string]any{}
		}
		dir := writeFolder(t, llmtest.Small("llama", false), c.config)
		if c.damage != nil {
			c.damage(dir)
		}
		_, err := llm.Open(dir, llm.Options{})
		require.ErrorContains(t, err, c.want)
	}
}
