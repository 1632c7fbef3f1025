package tolstoy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

// The quantized model begins as llama.cpp does on the original: at least six tokens of every case.
func TestExpected(t *testing.T) {
	require.Less(t, len(tolstoy.GGUF()), 4<<20)
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	require.NoError(t, err)
	defer m.Close()
	b, err := os.ReadFile("expected.json")
	require.NoError(t, err)
	var all struct {
		Cases []struct {
			Prompt    string
			PromptIDs []int32 `json:"prompt_ids"`
			IDs       []int32
		}
	}
	require.NoError(t, json.Unmarshal(b, &all))
	require.NotEmpty(t, all.Cases)
	for _, c := range all.Cases {
		var stats llm.Stats
		for _, err := range m.Generate(context.Background(), c.Prompt, llm.GenerateOptions{MaxTokens: 12, Stats: &stats}) {
			require.NoError(t, err)
		}
		require.Equal(t, c.PromptIDs, stats.Prompt)
		require.Equal(t, c.IDs[:6], stats.Tokens[:6], c.Prompt)
	}
}

// The committed file is what the generate command makes.
func TestGenerated(t *testing.T) {
	f, err := gguf.Open(shared.File(t, "data/models/tolstoy-3m.gguf"))
	require.NoError(t, err)
	defer f.Close()
	var out bytes.Buffer
	_, err = gguf.Quantize(context.Background(), &out, f, gguf.QuantizeOptions{Type: "q8_0"})
	require.NoError(t, err)
	require.True(t, bytes.Equal(out.Bytes(), tolstoy.GGUF()), "run go generate")
}
