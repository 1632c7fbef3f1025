package llm_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/sample"
	"github.com/tessera-go/tessera/models/tokenizer"
)

func open(t testing.TB, name string, o llm.Options) *llm.Model {
	m, err := llm.Open(shared.File(t, "data/models/"+name), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// collect runs a generation to its end.
func collect(t testing.TB, seq func(func(llm.Token, error) bool)) (ids []int32, text string) {
	for token, err := range seq {
		require.NoError(t, err)
		ids = append(ids, token.ID)
		text += token.Text
	}
	return ids, text
}

func TestStories260K(t *testing.T) {
	m := open(t, "stories260K.gguf", llm.Options{})
	var stats llm.Stats
	ids, text := collect(t, m.Generate(context.Background(), "", llm.GenerateOptions{MaxTokens: 40, Stats: &stats}))
	require.Equal(t, []int32{403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426, 338, 401, 396, 267, 337, 410, 408, 419, 292, 411,
		322, 265, 282, 295, 433, 426, 385, 328, 432, 358, 394, 261, 370, 432, 352}, ids)
	require.True(t, strings.HasPrefix(text, "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, r"), text)
	require.Equal(t, []int32{1}, stats.Prompt)
	require.Equal(t, ids, stats.Tokens)
	require.Equal(t, llm.ReasonLength, stats.Reason)

	// The text begins as well where the session has read the token that begins texts before.
	s, err := m.NewSession()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Eval(context.Background(), 1))
	again, said := collect(t, s.GenerateIDs(context.Background(), nil, llm.GenerateOptions{MaxTokens: 40}))
	require.Equal(t, ids, again)
	require.Equal(t, text, said)
	// Behind a text the space belongs to what goes on.
	require.NoError(t, s.Rewind(2))
	_, said = collect(t, s.GenerateIDs(context.Background(), nil, llm.GenerateOptions{MaxTokens: 39}))
	require.Equal(t, strings.TrimPrefix(text, "Once"), said)
}

type expected struct {
	Prompt    string
	PromptIDs []int32 `json:"prompt_ids"`
	IDs       []int32
	Text      string
	Top       [][2]float64 `json:"next_top5"`
}

func expectations(t testing.TB) []expected {
	b, err := os.ReadFile(shared.File(t, "data/models/tolstoy-3m.expected.json"))
	require.NoError(t, err)
	var all struct{ Cases []expected }
	require.NoError(t, json.Unmarshal(b, &all))
	require.NotEmpty(t, all.Cases)
	return all.Cases
}

func TestTolstoy(t *testing.T) {
	m := open(t, "tolstoy-3m.gguf", llm.Options{})
	for _, c := range expectations(t) {
		require.Equal(t, c.PromptIDs, m.PromptIDs(c.Prompt, llm.GenerateOptions{}))
		ids, text := collect(t, m.Generate(context.Background(), c.Prompt, llm.GenerateOptions{MaxTokens: len(c.IDs)}))
		require.Equal(t, c.IDs, ids, c.Prompt)
		require.Equal(t, c.Text, text)

		s, err := m.NewSession()
		require.NoError(t, err)
		require.NoError(t, s.Eval(context.Background(), c.PromptIDs...))
		top := sample.Top(s.Logits(), len(c.Top))
		for i, want := range c.Top {
			require.Equal(t, int32(want[0]), top[i].ID)
			require.InDelta(t, want[1], top[i].Prob, 5e-4)
		}
		require.NoError(t, s.Close())
	}
}

// Quantized to Q8_0 the model is as surprised by an unseen text as before.
func TestPerplexity(t *testing.T) {
	text, err := os.ReadFile(shared.File(t, "data/text/tolstoy-valid.txt"))
	require.NoError(t, err)
	quantized, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	require.NoError(t, err)
	defer quantized.Close()
	var values [2]float64
	for i, m := range []*llm.Model{open(t, "tolstoy-3m.gguf", llm.Options{}), quantized} {
		ids := m.Tokenizer.Encode(string(text), tokenizer.Options{})
		if os.Getenv("TESSERA_LONG") == "" {
			ids = ids[:2*256+100]
		}
		p, err := m.Perplexity(context.Background(), ids, 0, nil)
		require.NoError(t, err)
		require.Equal(t, len(ids)-(len(ids)+255)/256, p.Tokens)
		values[i] = p.Value()
		t.Logf("%d tokens, nll %.3f, perplexity %.4f", p.Tokens, p.NLL, p.Value())
	}
	require.InEpsilon(t, values[0], values[1], 0.01)
}
