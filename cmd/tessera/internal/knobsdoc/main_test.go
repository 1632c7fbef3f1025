package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/knob"
	"github.com/tessera-go/tessera/internal/shared"
)

// TestDocumentIsCurrent: docs/knobs.md says what the code says.
func TestDocumentIsCurrent(t *testing.T) {
	require.NoError(t, run(filepath.Join(shared.Root(), "docs", "knobs.md"), true))
	path := filepath.Join(t.TempDir(), "knobs.md")
	require.NoError(t, run(path, false))
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	require.ErrorContains(t, run(path, true), "not current")
}

// TestEveryVariableIsDeclared: no package under backends/cpu reads a variable of its own.
func TestEveryVariableIsDeclared(t *testing.T) {
	known := map[string]bool{"TESSERA_ISA": true, "TESSERA_PROFILE": true}
	for _, d := range knob.All() {
		known[d.Env] = true
		require.NotEmpty(t, d.Why)
		require.NotContains(t, d.Why, "|", "the reason stands in a table")
	}
	variable := regexp.MustCompile(`TESSERA_[A-Z0-9_]+`)
	for _, dir := range []string{"backends/cpu", "internal/par", "internal/cpuinfo", "internal/knob"} {
		err := filepath.WalkDir(filepath.Join(shared.Root(), dir), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, name := range variable.FindAllString(string(text), -1) {
				if name != "TESSERA_" && !known[name] {
					t.Errorf("%s names %s, which is not declared", path, name)
				}
			}
			return err
		})
		require.NoError(t, err)
	}
}
