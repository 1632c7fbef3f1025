package llm_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/tensor"
)

// resident returns how many bytes of a file's mappings are in memory.
func resident(t *testing.T, path string) (bytes int64) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip(err) // emulators have none
	}
	defer f.Close()
	inside, mappings := false, 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if first, _, _ := strings.Cut(line, " "); !strings.HasSuffix(first, ":") { // the head of a mapping: addresses, rights, path
			if inside = strings.HasSuffix(line, path); inside {
				mappings++
			}
			continue
		}
		var kib int64
		if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); inside && n == 1 {
			bytes += kib << 10
		}
	}
	require.NoError(t, lines.Err())
	require.NotZero(t, mappings, "the file is mapped")
	return bytes
}

// Pages of a model's file leave memory as soon as what they hold is packed, so that weights are in memory once. What a run reads of the embedding afterwards
// comes back, with as much around it as the system likes to map, which is why nothing is run here.
func TestPackedWeightsGivePagesBack(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, llmtest.Shape{Arch: "llama", Vocab: 1000, Context: 64, Dim: 512, FFN: 1536, Layers: 2, Heads: 8, KVHeads: 8, Type: tensor.F16, Seed: 4}))
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	for range 2 {
		m, err := llm.Open(path, llm.Options{WeightCache: llm.WeightCachePath(path)})
		require.NoError(t, err)
		require.Less(t, resident(t, path), int64(file.Len()/3))
		require.NoError(t, m.Close())
	}
}
