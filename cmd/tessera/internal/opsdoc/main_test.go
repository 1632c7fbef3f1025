package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
)

// TestDocumentIsCurrent runs the suite on every backend and compares with what is committed.
func TestDocumentIsCurrent(t *testing.T) {
	require.NoError(t, run(filepath.Join(shared.Root(), "docs", "ops.md"), true))
}

// TestDocument: the text for one backend names its operations, and changed files are not current.
func TestDocument(t *testing.T) {
	saved := sections
	defer func() { sections = saved }()
	sections = []section{{"Products.", []string{"cpu", "xdna2:rows=1"}, []string{"matmul"}}}
	path := filepath.Join(t.TempDir(), "ops.md")
	require.NoError(t, run(path, false))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(raw)
	require.Contains(t, text, "| operation | cpu | xdna2 |")
	for name, change := range map[string]string{
		"another word":         strings.Replace(text, "Products.", "Sums.", 1),
		"a type more":          strings.Replace(text, "| f32", "| iq4_nl f32", 1),
		"a type less":          strings.Replace(text, "bf16", "", 1),
		"a row less":           strings.Join(strings.Split(text, "\n| `")[:1], "") + "\n",
		"a smaller error":      strings.Replace(text, "e-02)", "e-05)", 1),
		"a reference":          strings.Replace(text, "*f64*", "f64", 1),
		"a number that is not": strings.Replace(text, "e-02)", "e-x)", 1),
		"a column less":        strings.Replace(text, " | xdna2 |", " |", 1),
		"no table":             header,
	} {
		require.NotEqual(t, text, change, name)
		require.Error(t, current(change, text), name)
	}
	require.NoError(t, current(text, text))
	require.NoError(t, os.WriteFile(path, []byte(header), 0o600))
	require.ErrorContains(t, run(path, true), "not current")
	sections = []section{{"", []string{"nowhere"}, nil}}
	require.ErrorContains(t, run(path, false), "nowhere")
}
