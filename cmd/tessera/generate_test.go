package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGenerateSaysWhyItEnded(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "3"}, "; -n 3 reached\n"},
		{[]string{"-n", "1000", "--context", "16"}, "; the context of 16 tokens is full (--overflow shift forgets the older half and goes on)\n"},
		{[]string{"-n", "30", "--stop", "Emperor"}, "; a text of --stop came\n"},
		{[]string{"-n", "0", "--context", "16"}, "; the context of 16 tokens is full (--overflow shift forgets the older half and goes on)\n"},
	} {
		_, stderr, err := call(t, append([]string{"generate", "-p", "The prince said", "--temp", "0"}, c.args...)...)
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(stderr, c.want), "%v: %q", c.args, stderr)
	}
	require.Equal(t, "; the model ended the text", ending("end", 8, 16))
}

// Only where a backend simulates has the profile a column for that time.
func TestProfileColumns(t *testing.T) {
	for backend, want := range map[string]bool{"cpu": false, "xdna2": false, "xdna2:rows=1": true} {
		_, stderr, err := call(t, "generate", "-p", "War", "-n", "3", "--profile", "--backend", backend)
		require.NoError(t, err)
		require.Equal(t, want, strings.Contains(stderr, "simulated ms"), backend)
		lines := strings.Split(stderr, "\n")
		require.Contains(t, lines[0], "operation")
		require.Len(t, lines[1], len(lines[0]), "%s: a row is as wide as the head", backend)
	}
}

// A measurement that needs a longer context than the model was trained for asks for no remark: nobody chose it, and speed is the same.
func TestBenchChoosesItsContext(t *testing.T) {
	_, stderr, err := call(t, "bench", "model", "--prompt-tokens", "256", "--decode-tokens", "1")
	require.NoError(t, err)
	require.Empty(t, stderr)
}

// A context beyond what the model was trained for is remarked upon, once.
func TestContextBeyondTraining(t *testing.T) {
	for context, want := range map[string]int{"0": 0, "64": 0, "256": 0, "257": 1} {
		out, stderr, err := call(t, "generate", "-p", "War", "-n", "1", "--context", context, "--json")
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(out, "\n"))
		require.Equal(t, want, strings.Count(stderr, "was trained for 256 positions"), "--context %s: %s", context, stderr)
	}
}

// A text to score may come from standard input.
func TestTextOfStandardInput(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	const text = "The prince said that he would not go.\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	want := jsonOf(t, "perplexity", "--file", file)
	out, _, err := typed(t, text, "perplexity", "--file", "-", "--json")
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	require.Equal(t, want["tokens"], doc["tokens"])
	require.Equal(t, want["nll"], doc["nll"])
}

// A prompt may come from standard input; the newline at its end is the file's.
func TestPromptOfStandardInput(t *testing.T) {
	given := jsonOf(t, "generate", "-n", "3", "--temp", "0", "-p", "War and\npeace")
	for _, text := range []string{"War and\npeace", "War and\npeace\n", "War and\npeace\r\n"} {
		out, _, err := typed(t, text, "generate", "-n", "3", "--temp", "0", "-p", "-", "--json")
		require.NoError(t, err)
		var doc map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &doc))
		require.Equal(t, given["prompt_ids"], doc["prompt_ids"], "%q", text)
		require.Equal(t, given["ids"], doc["ids"], "%q", text)
	}
}
