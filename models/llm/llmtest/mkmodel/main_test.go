package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
)

func TestWritesAModel(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m.gguf")
	text, err := exec.Command("go", "run", ".", "-dim", "32", "-ffn", "64", "-layers", "1", "-heads", "2", "-vocab", "300", "-context", "16", "-o", out).CombinedOutput()
	require.NoError(t, err, "%s", text)
	f, err := gguf.Open(out)
	require.NoError(t, err)
	defer f.Close()
	layers, err := f.Int("llama.block_count")
	require.NoError(t, err)
	require.Equal(t, 1, layers)
	text, err = exec.Command("go", "run", ".", "-cases").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(text), "llama")
}
