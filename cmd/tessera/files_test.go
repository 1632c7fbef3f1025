package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

// A file that is written must have no other use, or what it holds would be lost; that is found before anything is written.
func TestFilesWithTwoUses(t *testing.T) {
	dir := t.TempDir()
	file, model := filepath.Join(dir, "f"), filepath.Join(dir, "m.gguf")
	require.NoError(t, os.WriteFile(model, tolstoy.GGUF(), 0o600))
	generate := []string{"generate", "-p", "War", "-n", "1", "--model", model}
	for _, c := range [][]string{
		append(generate, "--trace", model), append(generate, "--prompt-cache", model), append(generate, "--cache="+model),
		append(generate, "--cache="+file, "--prompt-cache", file), append(generate, "--trace", file, "--prompt-cache", file), append(generate, "--trace", file, "--cache="+file),
		append(generate, "--cache", "--trace", llm.WeightCachePath(model)), append(generate, "--draft", file, "--trace", file),
		{"chat", "--model", model, "--history", file, "--prompt-cache", file}, {"chat", "--model", model, "--history", file, "--cache=" + file},
		{"chat", "--history", file, "--template", file}, {"perplexity", "--file", file, "--trace", file}, {"classify", "--model", model, "--trace", model, file},
		{"embed", "text", "--model", model, "--trace", model}, {"bench", "model", "--model", model, "--trace", model},
	} {
		for _, there := range []bool{false, true} {
			require.NoError(t, os.RemoveAll(file))
			if there {
				require.NoError(t, os.WriteFile(file, []byte("[]"), 0o600))
			}
			_, _, err := call(t, c...)
			require.Equal(t, 2, cli.ExitCode(err), "%v: %v", c, err)
			require.ErrorContains(t, err, "two files are right", "%v", c)
			got, err := os.ReadFile(file)
			require.Equal(t, there, err == nil && string(got) == "[]", "%v", c)
			require.Equal(t, !there, os.IsNotExist(err), "%v", c)
			got, err = os.ReadFile(model)
			require.NoError(t, err)
			require.Len(t, got, len(tolstoy.GGUF()), "%v", c)
		}
	}
}

// What stands in the file of a trace stays until there is another one.
func TestTraceOfARunThatFails(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.json")
	require.NoError(t, os.WriteFile(trace, []byte("earlier"), 0o600))
	_, _, err := call(t, "generate", "-p", "War", "--model", trace+".gguf", "--trace", trace)
	require.Error(t, err)
	got, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.Equal(t, "earlier", string(got))
}
