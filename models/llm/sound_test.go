package llm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/tensor"
)

// spoilt returns a model's file in which numbers of one tensor, a quarter from its start, are those bytes.
func spoilt(t *testing.T, s llmtest.Shape, name string, with []byte) []byte {
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, s))
	data := file.Bytes()
	f, err := gguf.Parse(data)
	require.NoError(t, err)
	info := f.Info(name)
	require.NotNil(t, info, name)
	row := info.Bytes / info.Dims[0]
	at := info.Offset + info.Dims[0]/4*row
	for end := at + row; at+len(with) <= end; at += max(len(with), info.Type.DType().Size()) {
		copy(data[at:], with)
	}
	return data
}

// Where a weight is no number, every way to use the model ends with an error that names the weight, and none with NaN for a result.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	half := func(h uint16) []byte { return binary.LittleEndian.AppendUint16(nil, h) }
	single := func(v float64) []byte {
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
	}
	ctx := context.Background()
	for _, c := range []struct {
		typ    tensor.DType
		tensor string
		with   []byte
		want   string
	}{
		{tensor.F32, "blk.1.ffn_down.weight", single(math.NaN()), `tensor "blk.1.ffn_down.weight": row 8: f32 block 0 (elements 0 to 0): it is NaN`},
		{tensor.F32, "blk.0.attn_v.weight", single(math.Inf(1)), `tensor "blk.0.attn_v.weight": row 8: f32 block 0 (elements 0 to 0): it is +Inf`},
		{tensor.F16, "blk.1.ffn_down.weight", half(0x7e00), `tensor "blk.1.ffn_down.weight": row 8: f16`},
		{tensor.BF16, "blk.0.attn_k.weight", half(0x7fc0), `tensor "blk.0.attn_k.weight": row 8: bf16`},
		{tensor.Q8_0, "blk.1.ffn_down.weight", half(0x7e00), `tensor "blk.1.ffn_down.weight": row 8: q8_0 block 0 (elements 0 to 31): its scale is NaN`},
		{tensor.Q4_0, "blk.0.ffn_up.weight", half(0x7e00), `tensor "blk.0.ffn_up.weight": row 8: q4_0 block 0 (elements 0 to 31): its scale is NaN`},
		{tensor.F32, "blk.1.ffn_gate.weight", single(3e38), "all weights are numbers"},
	} {
		shape := llmtest.Shape{Arch: "llama", Vocab: 300, Context: 32, Dim: 32, FFN: 32, Layers: 2, Heads: 1, KVHeads: 1, HeadDim: 32, Tied: true, Type: c.typ, Seed: 1}
		data := spoilt(t, shape, c.tensor, c.with)
		m, err := llm.Parse(data, llm.Options{})
		require.NoError(t, err)
		fails := func(err error, how string) {
			t.Helper()
			require.ErrorContains(t, err, c.want, how)
		}
		last := func(o llm.GenerateOptions) (err error) {
			for _, e := range m.Generate(ctx, "a", o) {
				err = e
			}
			return err
		}
		fails(last(llm.GenerateOptions{MaxTokens: 4}), "greedy")
		fails(last(llm.GenerateOptions{MaxTokens: 4, Draft: m}), "with a draft")
		drawn := llm.GenerateOptions{MaxTokens: 4}
		drawn.Sampling.Temperature = 1
		fails(last(drawn), "drawn")
		var failed error
		for _, err := range m.GenerateBatch(ctx, []string{"a", "b"}, 2, llm.GenerateOptions{MaxTokens: 4}) {
			failed = err
		}
		fails(failed, "batch")
		_, err = m.Perplexity(ctx, []int32{3, 4, 5, 6}, 0, nil)
		fails(err, "perplexity")
		require.ErrorContains(t, err, "token 1 has no probability")
		_, _, err = m.Embed(ctx, "a", llm.EmbedOptions{})
		fails(err, "embed")
		require.NoError(t, m.Close())
		require.ErrorIs(t, last(llm.GenerateOptions{}), llm.ErrClosed)
	}
	m, err := llm.Parse(spoilt(t, tiny("bert"), "blk.0.ffn_up.weight", single(math.NaN())), llm.Options{})
	require.NoError(t, err)
	defer m.Close()
	_, err = m.EmbedIDs(ctx, []int32{3, 4}, llm.EmbedOptions{})
	require.ErrorContains(t, err, `token 0 has no vector: tensor "blk.0.ffn_up.weight": row 2: f32 block 0`)
}

// Numbers of a model's shape with which nothing could be computed are errors when it is opened, in files and in folders.
func TestShapesThatAreNoNumbers(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, tiny("llama")))
	f, err := gguf.Parse(file.Bytes())
	require.NoError(t, err)
	read := func(more map[string]any) error {
		var w gguf.Writer
		for _, kv := range f.Metadata {
			w.Set(kv.Key, kv.Value)
		}
		for k, v := range more {
			w.Set(k, v)
		}
		for i := range f.Tensors {
			v, err := f.View(&f.Tensors[i])
			require.NoError(t, err)
			w.AddTensor(f.Tensors[i].Name, v)
		}
		var out bytes.Buffer
		_, err := w.WriteTo(&out)
		require.NoError(t, err)
		m, err := llm.Parse(out.Bytes(), llm.Options{})
		if err == nil {
			require.NoError(t, m.Close())
		}
		return err
	}
	bad := []any{float32(math.NaN()), float32(math.Inf(1)), float32(-1), 1e300}
	for _, key := range []string{"rope.freq_base", "rope.scaling.factor", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
		"rope.scale_linear", "attn_logit_softcapping", "final_logit_softcapping", "attention.layer_norm_rms_epsilon"} {
		for _, v := range bad {
			err := read(map[string]any{"llama." + key: v, "llama.rope.scaling.type": "yarn"})
			require.ErrorContains(t, err, key, "%v", v)
			require.ErrorContains(t, err, "a number from 0 is right")
		}
		require.NoError(t, read(map[string]any{"llama." + key: float32(8), "llama.rope.scaling.type": "yarn"}), key)
	}
	for _, c := range []struct {
		more map[string]any
		want string
	}{
		{map[string]any{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1e-40}, "scale"},
		{map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.freq_base": float32(1)}, "base 1"},
	} {
		require.ErrorContains(t, read(c.more), c.want)
	}

	for _, c := range []struct {
		config map[string]any
		want   string
	}{
		{map[string]any{"rope_theta": -1}, "base is -1"},
		{map[string]any{"rope_theta": 1e300}, "base is +Inf"},
		{map[string]any{"rms_norm_eps": 1e300}, "epsilon"},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 1e300}}, "factor 1e+300"},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "linear", "factor": 1e-300}}, "scale is +Inf"},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4, "beta_fast": -1}}, "fast turns is -1"},
		{map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4}, "rope_theta": 1}, "base 1"},
	} {
		dir := writeFolder(t, tiny("llama"), c.config)
		_, err := llm.Open(dir, llm.Options{})
		require.ErrorContains(t, err, c.want)
	}
}

// A folder that does not say the epsilon of its norms has that of the classes which such folders are for.
func TestFoldersWithoutEpsilon(t *testing.T) {
	for arch, want := range map[string]float32{"llama": 1e-6, "qwen3": 1e-6, "bert": 1e-12} {
		for _, key := range []string{"rms_norm_eps", "layer_norm_eps"} {
			m, err := llm.Open(writeFolder(t, tiny(arch), map[string]any{key: nil}), llm.Options{})
			require.NoError(t, err)
			if (key == "layer_norm_eps") == (arch == "bert") {
				require.Equal(t, want, m.Config.NormEps, arch)
			} else {
				require.Equal(t, float32(2e-5), m.Config.NormEps, arch)
			}
			require.NoError(t, m.Close())
		}
	}
}
