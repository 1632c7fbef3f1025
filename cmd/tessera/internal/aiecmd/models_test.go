package aiecmd

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/aie"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// perplexity of the first n tokens of the validation text (0: all) with the products on the named backends.
func perplexity(t *testing.T, n int, names ...string) (float64, backends.Stats) {
	t.Helper()
	var list []backends.Backend
	for _, name := range names {
		b, err := backends.Open(name)
		require.NoError(t, err)
		list = append(list, b)
	}
	m, err := llm.Open(shared.File(t, "data/models/tolstoy-3m.gguf"), llm.Options{Backends: list})
	require.NoError(t, err)
	defer m.Close()
	text, err := os.ReadFile(shared.File(t, "data/text/tolstoy-valid.txt"))
	require.NoError(t, err)
	ids := m.Tokenizer.Encode(string(text), tokenizer.Options{})
	if n > 0 {
		ids = ids[:min(n, len(ids))]
	}
	start := time.Now()
	p, err := m.Perplexity(context.Background(), ids, 0, nil)
	require.NoError(t, err)
	s := list[0].Stats()
	t.Logf("%v: %d tokens, perplexity %.5f, %v, %d products, %.3f ms simulated", names, p.Tokens, p.Value(), time.Since(start).Round(time.Millisecond), s.Products, 1e3*s.SimulatedSeconds)
	return p.Value(), s
}

// TestLanguageModelPerplexity: int16 stays within 0.2 % of f32.
func TestLanguageModelPerplexity(t *testing.T) {
	n := 4096
	if os.Getenv("TESSERA_LONG") != "" {
		n = 0
	}
	want, _ := perplexity(t, n, "cpu")
	got, s := perplexity(t, n, "aie", "cpu")
	require.InEpsilon(t, want, got, 0.002)
	require.Positive(t, s.Products)
	require.Positive(t, s.SimulatedSeconds)
}
