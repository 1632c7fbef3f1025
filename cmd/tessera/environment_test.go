package main

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/knob"
)

func TestWarnStrays(t *testing.T) {
	var b bytes.Buffer
	warnStrays(&b, []string{"TESSERA_KC_MX=256", "TESSERA_KC_MIN=64", "TESSERA_THREADS=1", "HOME=/"})
	require.Equal(t, "tessera: TESSERA_KC_MX is set, and nothing reads it: TESSERA_KC_MAX may be meant\n"+
		"tessera: TESSERA_THREADS is set, and nothing reads it: tessera tune --list shows thresholds, docs/knobs.md all variables\n", b.String())

	t.Setenv("TESSERA_ISSA", "avx2")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	stderr := os.Stderr
	os.Stderr = w
	code := run(context.Background(), []string{"tune", "--list"})
	os.Stderr = stderr
	require.NoError(t, w.Close())
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Zero(t, code, "a remark is no failure")
	require.Equal(t, 1, strings.Count(string(said), "TESSERA_ISSA"), "%s", said)
}

// What the project's own code reads is nothing to be warned of.
func TestVariablesAreKnown(t *testing.T) {
	reads := regexp.MustCompile(`(?:Getenv|LookupEnv)\("(TESSERA_[A-Z0-9_]+)"`)
	const root = "../.."
	found := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range reads.FindAllSubmatch(text, -1) {
			found++
			require.Empty(t, knob.Strays([]string{string(m[1]) + "=1"}), "%s reads it: internal/knob should know", path)
		}
		return nil
	}))
	require.Greater(t, found, 20)
}
