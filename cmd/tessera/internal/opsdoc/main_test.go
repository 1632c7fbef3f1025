package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
)

// TestDocument: the text for one backend names its operations, and a changed file is not current.
func TestDocument(t *testing.T) {
	saved := subjects
	defer func() { subjects = saved }()
	subjects = []subject{{"cpu", 0}}
	path := filepath.Join(t.TempDir(), "ops.md")
	require.NoError(t, run(path, false))
	require.NoError(t, run(path, true))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, row := range []string{"| `matmul` | f32", "| `add` | f32", "| `contiguous` | f32", "q8_0"} {
		require.Contains(t, string(text), row)
	}
	require.NoError(t, os.WriteFile(path, append(text, '\n'), 0o600))
	require.ErrorContains(t, run(path, true), "not current")
	subjects = []subject{{"nowhere", 0}}
	require.ErrorContains(t, run(path, false), "nowhere")
}

// TestDocsCoverEveryBackend: the committed table has a column for each backend that this command knows.
func TestDocsCoverEveryBackend(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(shared.Root(), "docs", "ops.md"))
	require.NoError(t, err)
	for _, s := range subjects {
		name, _, _ := strings.Cut(s.spec, ":")
		require.Contains(t, string(text), " "+name+" |")
	}
}
