package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
)

// smallDraft returns a file with a coarser form of the embedded model: most of its guesses are right, some are not.
func smallDraft(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "q2_k.gguf")
	_, _, err := call(t, "quantize", shared.File(t, "data/models/tolstoy-3m.gguf"), file, "--type", "q2_k")
	require.NoError(t, err)
	return file
}

// Greedy, a draft changes nothing but the time; the document says what its guesses were worth.
func TestDraft(t *testing.T) {
	draft := smallDraft(t)
	args := []string{"generate", "-p", "It was in July, 1805", "-n", "40", "--temp", "0"}
	want := jsonOf(t, args...)
	require.EqualValues(t, 0, want["guessed_tokens"])
	require.EqualValues(t, 0, want["accepted_tokens"])
	var guessed, right float64
	for _, tokens := range []string{"1", "4", "64"} {
		doc := jsonOf(t, append(args, "--draft", draft, "--draft-tokens", tokens)...)
		for _, field := range []string{"text", "ids", "prompt_ids", "prefill_tokens", "reason"} {
			require.Equal(t, want[field], doc[field], field)
		}
		guessed, right = doc["guessed_tokens"].(float64), doc["accepted_tokens"].(float64)
		require.Positive(t, right)
		require.Less(t, right, guessed)
		require.LessOrEqual(t, right, 40.)
	}
	out, stderr, err := call(t, append(args, "--draft", draft, "--draft-tokens", "64")...)
	require.NoError(t, err)
	require.Equal(t, "It was in July, 1805"+want["text"].(string)+"\n", out)
	require.Contains(t, stderr, ", "+strconv.Itoa(int(right))+" of "+strconv.Itoa(int(guessed))+" guessed tokens accepted; -n 40 reached\n")
	_, stderr, err = call(t, args...)
	require.NoError(t, err)
	require.NotContains(t, stderr, "guessed")
}

// The model of a file with itself as draft: every guess is right. Both keep their packed weights beside them.
func TestDraftOfTheSameFile(t *testing.T) {
	dir := t.TempDir()
	model, draft := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "d.gguf")
	for _, file := range []string{model, draft} {
		require.NoError(t, os.WriteFile(file, tolstoy.GGUF(), 0o600))
	}
	args := []string{"generate", "--model", model, "-p", "Pierre", "-n", "21", "--temp", "0"}
	want := jsonOf(t, args...)
	for _, more := range [][]string{{"--draft", model}, {"--draft", draft, "--cache"}, {"--draft", draft, "--cache"}} {
		doc := jsonOf(t, append(args, more...)...)
		require.Equal(t, want["ids"], doc["ids"])
		require.EqualValues(t, 16, doc["accepted_tokens"]) // four, and the model's own one, at a time
		require.Equal(t, doc["accepted_tokens"], doc["guessed_tokens"])
	}
	require.FileExists(t, draft+".packed.tessera")

	// Also where the context is full and the older half of the text is forgotten.
	args = append(args, "--context", "16", "--overflow", "shift")
	require.Equal(t, jsonOf(t, args...)["ids"], jsonOf(t, append(args, "--draft", model)...)["ids"])
}

// Drawn texts are as likely as without a draft; the same seed gives the same text again.
func TestDraftWithSeed(t *testing.T) {
	args := []string{"generate", "-p", "War", "-n", "12", "--seed", "7", "--draft", smallDraft(t)}
	require.Equal(t, jsonOf(t, args...)["ids"], jsonOf(t, append(args, "--threads", "1")...)["ids"])
}

// A draft that cannot serve is one clear line, before anything is written.
func TestDraftMistakes(t *testing.T) {
	model := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(model, tolstoy.GGUF(), 0o600))
	stories := shared.File(t, "data/models/stories260K.gguf")
	garbage := filepath.Join(t.TempDir(), "garbage.gguf")
	require.NoError(t, os.WriteFile(garbage, []byte("GGUF but not really"), 0o600))
	need := jsonOf(t, "inspect")["memory"].(map[string]any)["total"].(float64)
	enough := strconv.Itoa(int(1.2 * need)) // for one of them
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--draft", stories}, 1, "--draft " + stories + ": its vocabulary of 512 tokens is not that of tolstoy-3m (embedded), of 1024"},
		{[]string{"--model", stories, "--draft", model}, 1, "--draft " + model + ": its vocabulary of 1024 tokens is not that of stories260K.gguf, of 512"},
		{[]string{"--draft", garbage}, 1, "--draft: " + garbage},
		{[]string{"--draft", "none.gguf"}, 1, "none.gguf"},
		{[]string{"--draft", "../../models/cnn/digits.onnx"}, 1, "run ONNX models"},
		{[]string{"--draft", model, "--draft-tokens", "0"}, 2, "--draft-tokens 0: a number from 1 to 64"},
		{[]string{"--draft", model, "--draft-tokens", "65"}, 2, "--draft-tokens 65: a number from 1 to 64"},
		{[]string{"--draft-tokens", "2"}, 2, "--draft is missing"},
		{[]string{"--draft", model, "--max-memory", enough}, 1, "--draft: " + model},
	} {
		for _, command := range []string{"generate", "chat"} {
			out, _, err := typed(t, "War\n", append([]string{command, "-n", "1"}, c.args...)...)
			require.ErrorContains(t, err, c.text, "%s %v", command, c.args)
			require.Equal(t, c.code, cli.ExitCode(err), "%s %v", command, c.args)
			require.NotContains(t, err.Error(), "\n")
			require.Empty(t, out)
		}
	}
	_, _, err := call(t, "generate", "-n", "1", "--max-memory", enough)
	require.NoError(t, err)
}

func TestChatDraft(t *testing.T) {
	args := []string{"chat", "-n", "16", "--temp", "0", "--json"}
	want, _, err := typed(t, "Who is Pierre?\nAnd then?\n", args...)
	require.NoError(t, err)
	got, _, err := typed(t, "Who is Pierre?\nAnd then?\n", append(args, "--draft", smallDraft(t))...)
	require.NoError(t, err)
	plain, drafted := strings.Split(want, "\n"), strings.Split(got, "\n")
	require.Len(t, drafted, 3)
	for i := range 2 {
		var a, b reply
		require.NoError(t, json.Unmarshal([]byte(plain[i]), &a))
		require.NoError(t, json.Unmarshal([]byte(drafted[i]), &b))
		require.Equal(t, a.IDs, b.IDs)
		require.Equal(t, a.Text, b.Text)
		require.Zero(t, a.Guessed)
		require.Positive(t, b.Accepted)
		require.LessOrEqual(t, b.Accepted, b.Guessed)
	}
}
