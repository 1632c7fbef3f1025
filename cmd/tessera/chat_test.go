package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/models/chat"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/use"
)

// typed runs the command with a text on standard input.
func typed(t *testing.T, input string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRoot()
	var out, errs bytes.Buffer
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(args)
	err = root.ExecuteContext(context.Background())
	return out.String(), errs.String(), err
}

func readMessages(t *testing.T, file string) (list []chat.Message) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &list))
	return list
}

func TestChatCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.json")
	args := []string{"chat", "-n", "8", "--temp", "0", "--system", "War and Peace.", "--history", file}
	out, _, err := typed(t, "What did\\\nhe say?\n\n/history\n", args...)
	require.NoError(t, err)
	talk := readMessages(t, file)
	require.Len(t, talk, 3)
	require.Equal(t, "What did\nhe say?", talk[1].Content)
	require.Equal(t, talk[2].Content+"\n", out)

	// The next start goes on with it, and reads it all.
	out, stderr, err := typed(t, "And then?\n/history\n/exit\nnever asked\n", append(args, "--json")...)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	longer := readMessages(t, file)
	require.Equal(t, talk, longer[:3])
	require.Len(t, longer, 5)
	require.Equal(t, doc["text"], longer[4].Content)
	require.Equal(t, "length", doc["reason"])
	require.Len(t, doc["ids"], 8)
	require.Greater(t, doc["prefill_tokens"], 30.)
	require.Contains(t, stderr, "user: And then?")

	// Another draw for the same question; then all but the system message is forgotten.
	_, _, err = typed(t, "/retry\n", "chat", "-n", "8", "--seed", "5", "--history", file)
	require.NoError(t, err)
	again := readMessages(t, file)
	require.Equal(t, longer[:4], again[:4])
	require.NotEqual(t, longer[4], again[4])
	_, _, err = typed(t, "/clear\n", args...)
	require.NoError(t, err)
	require.Equal(t, []chat.Message{{Role: "system", Content: "War and Peace."}}, readMessages(t, file))
}

// What an answer was cut by is said, and what a model without a chat template is given.
func TestChatSaysWhatIsMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(file, tolstoy.GGUF(), 0o600))
	template := filepath.Join(t.TempDir(), "template.jinja")
	require.NoError(t, os.WriteFile(template, []byte("{% for m in messages %}{{ m.content }}{% endfor %}"), 0o600))
	const without = "m.gguf has no chat template"

	out, stderr, err := typed(t, "The prince\n", "chat", "--model", file, "-n", "3", "--temp", "0")
	require.NoError(t, err)
	require.Contains(t, stderr, without)
	require.Contains(t, stderr, "\n(-n 3 reached)\n")
	require.NotContains(t, out, "reached")

	_, stderr, err = typed(t, "The prince\n", "chat", "--model", file, "-n", "0", "--temp", "0", "--context", "16", "--template", template, "--logit-bias", "0=-inf")
	require.NoError(t, err)
	require.Equal(t, "(the context of 16 tokens is full)\n", stderr)

	_, stderr, err = typed(t, "The prince\n", "chat", "--model", file, "-n", "3", "--temp", "0", "--json")
	require.NoError(t, err)
	require.NotContains(t, stderr, "reached", "the document has a reason")
}

func TestChatMistakes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	for _, c := range []struct {
		input string
		args  []string
		code  int
		text  string
	}{
		{"", []string{"-n", "-1"}, 2, "--tokens"},
		{"", []string{"--logit-bias", "1024=1"}, 2, "1024 tokens"},
		{"", []string{"--template", "none.jinja"}, 1, "none.jinja"},
		{"Hello?\n", []string{"--template", write("bad.jinja", "{% for")}, 1, "chat template"},
		{"", []string{"--history", write("no.json", "{")}, 1, "not a conversation"},
		{"", []string{"--history", write("role.json", `[{"role":"user","content":"a"},{"role":"system","content":"b"}]`)}, 1, `message 1 has the role "system"`},
		{"Hello?\n", []string{"--history", filepath.Join(dir, "none", "talk.json"), "-n", "1"}, 1, "none"},
		{strings.Repeat("long ", 300) + "\nnever asked\n", nil, 1, "do not fit the context of 256"},
	} {
		out, _, err := typed(t, c.input, append([]string{"chat"}, c.args...)...)
		require.ErrorContains(t, err, c.text, "%v", c.args)
		require.Equal(t, c.code, cli.ExitCode(err), "%v: %v", c.args, err)
		if c.input != "Hello?\n" {
			require.Empty(t, out)
		}
	}
}

// interrupter presses Ctrl-C when the n-th part of an answer is written.
type interrupter struct {
	bytes.Buffer
	n      int
	signal chan<- os.Signal
}

func (w *interrupter) Write(b []byte) (int, error) {
	if w.n--; w.n == 0 {
		w.signal <- os.Interrupt
	}
	return w.Buffer.Write(b)
}

// Ctrl-C ends an answer. What was said so far is part of the conversation, which goes on.
func TestChatInterrupt(t *testing.T) {
	var f llmFlags
	f.Backend, f.cache = "cpu", "f32"
	m, err := f.open()
	require.NoError(t, err)
	defer m.close()
	talk, err := m.NewChat("", "")
	require.NoError(t, err)
	defer talk.Close()
	signals := make(chan os.Signal, 1)
	out := &interrupter{n: 3, signal: signals}
	var notes bytes.Buffer
	c := &conversation{m: m, chat: talk, out: out, notes: &notes, interrupts: signals, file: filepath.Join(t.TempDir(), "talk.json")}
	c.options = llm.GenerateOptions{MaxTokens: 10000, Overflow: llm.Shift, Stats: &llm.Stats{}} // it would last
	require.NoError(t, c.talk(context.Background(), cli.NewLineReader(strings.NewReader("Tell me all.\n"), out, "", 100)))
	require.Contains(t, notes.String(), "(stopped)")
	require.Equal(t, llm.ReasonInterrupted, c.options.Stats.Reason)
	require.Len(t, talk.Messages, 2)
	require.NotEmpty(t, talk.Messages[1].Content)
	require.Equal(t, talk.Messages[1].Content, strings.TrimSpace(out.String()))
	require.Equal(t, talk.Messages, readMessages(t, c.file))

	signals <- os.Interrupt // too early for the next answer: it ends nothing
	c.options.MaxTokens, c.options.Overflow = 5, llm.Stop
	require.NoError(t, c.ask(context.Background(), "And then?"))
	require.Len(t, talk.Messages, 4)
	require.Equal(t, llm.ReasonLength, c.options.Stats.Reason)

	// At the end of the program nothing hangs, though a line is being waited for.
	ended, end := context.WithCancel(context.Background())
	end()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	require.ErrorIs(t, c.talk(ended, cli.NewLineReader(read, out, "", 100)), context.Canceled)
	require.NoError(t, write.Close())
}

func TestEmbedCommand(t *testing.T) {
	out, _, err := typed(t, "War\n\nPeace\n", "embed", "--json", "Prince", "-")
	require.NoError(t, err)
	var texts []string
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var e embedding
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		texts = append(texts, e.Text)
		require.NotEmpty(t, e.IDs)
		require.Len(t, e.Vector, 256)
	}
	require.Equal(t, []string{"Prince", "War", "Peace"}, texts)

	out, _, err = call(t, "embed", "--normalize", "--pooling", "mean", "War")
	require.NoError(t, err)
	require.Len(t, strings.Fields(out), 256)
	var doc embedding
	out, _, err = call(t, "embed", "--normalize", "--json", "War")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &doc))
	require.InDelta(t, 1, use.Similarity(doc.Vector, doc.Vector), 1e-5)

	for _, c := range []struct {
		args []string
		code int
	}{{nil, 2}, {[]string{"War", "--pooling", "max"}, 2}, {[]string{"War", "--profile"}, 2}, {[]string{""}, 1}, {[]string{"War", "--model", t.TempDir()}, 1}} {
		_, _, err := call(t, append([]string{"embed"}, c.args...)...)
		require.Equal(t, c.code, cli.ExitCode(err), "%v: %v", c.args, err)
	}
}

// Commands that cannot be followed are refused, one by one: what is asked afterwards is answered, and the exit status tells.
func TestChatRefusedCommands(t *testing.T) {
	for _, end := range []string{"", "/exit\n"} {
		out, notes, err := typed(t, "/retry\n/sing\nHello?\n"+end, "chat", "--json", "-n", "2")
		require.Equal(t, 1, strings.Count(out, "\n"), out)
		require.Contains(t, notes, "/retry: nothing has been asked yet")
		require.Contains(t, notes, "/sing: unknown command")
		require.ErrorContains(t, err, "refused commands: 2")
		require.Equal(t, 1, cli.ExitCode(err))
	}
	out, _, err := typed(t, "Hello?\n/retry\n", "chat", "--json", "-n", "2")
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "\n"), out)
}

// Ctrl-C while the model is loaded ends the program: nobody has been asked anything yet.
func TestChatInterruptedBefore(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	root := newRoot()
	var out bytes.Buffer
	root.SetIn(strings.NewReader("Hello?\n"))
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"chat", "-n", "1"})
	require.ErrorIs(t, root.ExecuteContext(ended), context.Canceled)
	require.Empty(t, out.String())
}

// endless is a text that does not end: a piece again and again.
type endless struct{ piece, left string }

func (e *endless) Read(b []byte) (int, error) {
	if e.left == "" {
		e.left = e.piece
	}
	n := copy(b, e.left)
	e.left = e.left[n:]
	return n, nil
}

// Standard input may have no end: a text from it ends in an error when it is longer than the context can hold.
func TestTextsWithoutEnd(t *testing.T) {
	for _, args := range [][]string{{"generate", "-p", "-"}, {"chat"}, {"embed", "-"}} {
		for _, piece := range []string{strings.Repeat("x", 1000), strings.Repeat("y", 1000) + "\\\n"} {
			if args[0] == "embed" && strings.HasSuffix(piece, "\n") {
				continue // each of the lines is a text
			}
			root := newRoot()
			root.SetArgs(args)
			root.SetIn(&endless{piece: piece})
			root.SetOut(io.Discard)
			root.SetErr(io.Discard)
			err := root.ExecuteContext(context.Background())
			require.ErrorContains(t, err, "standard input: a text of more than 1048576 bytes", "%v", args)
			require.Equal(t, 1, cli.ExitCode(err))
		}
	}
}
