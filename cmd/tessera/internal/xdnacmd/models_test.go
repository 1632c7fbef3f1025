package xdnacmd

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// perplexity of the embedded language model on a backend and the CPU behind it.
func perplexity(t *testing.T, spec string, text []byte) (float64, backends.Stats) {
	var list []backends.Backend
	for _, s := range []string{spec, "cpu"} {
		b, err := backends.Open(s)
		require.NoError(t, err)
		defer b.Close()
		list = append(list, b)
		if s == spec && spec == "cpu" {
			break
		}
	}
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{Backends: list})
	require.NoError(t, err)
	defer m.Close()
	ids := m.Tokenizer.Encode(string(text), tokenizer.Options{})
	p, err := m.Perplexity(context.Background(), ids, 0, nil)
	require.NoError(t, err)
	return p.Value(), list[0].Stats()
}

// On both arrays the embedded model stays near the CPU's perplexity: 1 % in bf16, 3 % in int8, on one configuration.
func TestLanguageModelOnTheArray(t *testing.T) {
	text, err := os.ReadFile(shared.File(t, "data/text/tolstoy-valid.txt"))
	require.NoError(t, err)
	if os.Getenv("TESSERA_SLOW") == "" { // the beginning serves: the same tokens are scored on both
		text = text[:30000]
	}
	want, _ := perplexity(t, "cpu", text)
	for spec, bound := range map[string]float64{
		"xdna:precision=bf16": 0.01, "xdna2:precision=bf16": 0.01, "xdna2:precision=bfp16": 0.01,
		"xdna:precision=int8": 0.03, "xdna2:precision=int8": 0.03,
	} {
		t.Run(spec, func(t *testing.T) {
			got, stats := perplexity(t, spec, text)
			t.Logf("%.4f, the CPU %.4f (%+.2f %%); %d products, %.1f ms simulated", got, want, 100*(got/want-1), stats.Products, 1e3*stats.SimulatedSeconds)
			require.InEpsilon(t, want, got, bound)
			require.Equal(t, int64(1), stats.Configurations)
			require.Positive(t, stats.Products)
		})
	}
}
