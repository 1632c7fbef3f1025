package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/internal/shared"
)

// What the file holds of a prompt's beginning is not read again, and the result is as without it.
func TestPromptCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prompt.state")
	stories := shared.File(t, "data/models/stories260K.gguf")
	const short, long, other = "The prince said that the Emperor", "The prince said that the Emperor of Russia was not in the army", "The prince said that he"
	for _, model := range [][]string{nil, {"--model", shared.File(t, "data/models/tolstoy-3m.gguf")}, {"--model", stories}, {"--model", stories, "--cache-type", "f16"},
		{"--draft", smallDraft(t)}} {
		require.NoError(t, os.RemoveAll(file))
		var before []byte
		held := []any{}
		for i, c := range []struct {
			prompt  string
			written bool
		}{{short, true}, {short, false}, {long, true}, {short, false}, {long, false}, {other, true}, {long, true}, {"", true}, {"", false}} {
			args := append([]string{"generate", "-n", "12", "--temp", "0", "-p", c.prompt}, model...)
			want := jsonOf(t, args...)
			got := jsonOf(t, append(args, "--prompt-cache", file)...)
			for _, field := range []string{"text", "ids", "prompt_ids", "reason", "backend"} {
				require.Equal(t, want[field], got[field], "%v %d: %s", model, i, field)
			}
			ids := got["prompt_ids"].([]any)
			cached := 0
			for cached < len(held) && cached < len(ids)-1 && held[cached] == ids[cached] {
				cached++
			}
			require.EqualValues(t, cached, got["cached_tokens"], "%v %d", model, i)
			require.EqualValues(t, len(ids)-cached, got["prefill_tokens"], "%v %d", model, i)
			require.EqualValues(t, 0, want["cached_tokens"])
			require.EqualValues(t, len(ids), want["prefill_tokens"])
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			// A prompt that begins the one that the file holds leaves it there.
			prefix := len(ids) <= len(held) && slices.Equal(ids, held[:len(ids)])
			if c.prompt != "" {
				require.NotEqual(t, c.written, prefix, "%v %d", model, i)
			}
			require.Equal(t, prefix, slices.Equal(before, data), "%v %d", model, i)
			if !prefix {
				before, held = data, ids
			}
		}
	}
}

// The file is the prompt's, whatever is generated behind it; drawn texts are those without it.
func TestPromptCacheWithSampling(t *testing.T) {
	dir := t.TempDir()
	args := []string{"generate", "-p", "War and", "--repeat-penalty", "1.2", "--presence-penalty", "0.5", "--seed", "7", "--stop", "Emperor"}
	want := jsonOf(t, args...)
	var files [2][]byte
	for i, n := range []string{"1", "64"} {
		file := filepath.Join(dir, n)
		require.NotEmpty(t, jsonOf(t, append(args, "-n", n, "--prompt-cache", file)...)["ids"])
		var err error
		files[i], err = os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want["ids"], jsonOf(t, append(args, "--prompt-cache", file)...)["ids"])
	}
	require.Equal(t, files[0], files[1])

	file := filepath.Join(dir, "64")
	info, err := os.Stat(file)
	require.NoError(t, err)
	if runtime.GOOS != "windows" {
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), "a prompt is its author's")
	}
	_, stderr, err := call(t, append(args, "--prompt-cache", file)...)
	require.NoError(t, err)
	require.Contains(t, stderr, "1 token read behind ")
	require.Contains(t, stderr, " of "+file+" at ")
}

// A file that cannot serve is one clear line, and stays as it is.
func TestPromptCacheMistakes(t *testing.T) {
	dir := t.TempDir()
	stories := shared.File(t, "data/models/stories260K.gguf")
	good := filepath.Join(dir, "good")
	_, _, err := call(t, "generate", "-n", "1", "-p", strings.Repeat("War and peace ", 10), "--prompt-cache", good)
	require.NoError(t, err)
	state, err := os.ReadFile(good)
	require.NoError(t, err)
	damaged := slices.Clone(state)
	damaged[len(damaged)/2] ^= 1
	file := filepath.Join(dir, "file")
	for _, c := range []struct {
		data []byte
		args []string
		text string
	}{
		{state, []string{"--model", stories}, "it belongs to another model or cache type; it is not replaced"},
		{state, []string{"--model", shared.File(t, "data/models/tolstoy-3m.gguf")}, "it belongs to another model or cache type"}, // the same in f32
		{state, []string{"--cache-type", "q8_0"}, "it belongs to another model or cache type"},
		{state, []string{"--context", "16"}, "do not fit the context of 16"},
		{damaged, nil, "its checksum is wrong"},
		{state[:len(state)-1], nil, "it ends in its checksum"},
		{state[:len(state)/2], nil, "it ends in its keys and values"},
		{state[:20], nil, "it ends in its tokens"},
		{nil, nil, "it ends in its header"},
		{[]byte("My notes, which nobody should overwrite."), nil, `magic number "My n"`},
	} {
		require.NoError(t, os.WriteFile(file, c.data, 0o600))
		for _, command := range []string{"generate", "chat"} {
			out, _, err := typed(t, "War\n", append([]string{command, "-n", "1", "--prompt-cache", file}, c.args...)...)
			require.ErrorContains(t, err, "--prompt-cache "+file+": saved session: ")
			require.ErrorContains(t, err, c.text)
			require.Equal(t, 1, cli.ExitCode(err))
			require.NotContains(t, err.Error(), "\n")
			require.Empty(t, out)
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, len(c.data), len(data))
			require.True(t, slices.Equal(c.data, data))
		}
	}

	// What cannot be written is said before anything is read, and a prompt that was not read is not kept.
	for path, text := range map[string]string{dir: "not a regular file", filepath.Join(dir, "none", "file"): filepath.Join(dir, "none"), os.DevNull: "not a regular file"} {
		for _, command := range []string{"generate", "chat"} {
			out, _, err := typed(t, "War\n", command, "-n", "1", "--model", "none.gguf", "--prompt-cache", path)
			require.ErrorContains(t, err, text)
			require.ErrorContains(t, err, "--prompt-cache")
			require.Equal(t, 1, cli.ExitCode(err))
			require.Empty(t, out)
		}
	}
	fresh := filepath.Join(dir, "fresh")
	_, _, err = call(t, "generate", "-p", strings.Repeat("war and peace ", 400), "--prompt-cache", fresh)
	require.ErrorContains(t, err, "do not fit the context of 256")
	require.NoFileExists(t, fresh)
	_, _, err = call(t, "generate", "-p", strings.Repeat("war and peace ", 400), "--prompt-cache", good)
	require.ErrorContains(t, err, "do not fit the context of 256")
	data, err := os.ReadFile(good)
	require.NoError(t, err)
	require.True(t, slices.Equal(state, data))
}

// A conversation that goes on finds what has been read of it.
func TestChatPromptCache(t *testing.T) {
	dir := t.TempDir()
	talk := func(input, name string, more ...string) (replies []reply) {
		args := []string{"chat", "-n", "8", "--temp", "0", "--json", "--system", "War and Peace.", "--history", filepath.Join(dir, name)}
		out, _, err := typed(t, input, append(args, more...)...)
		require.NoError(t, err)
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			var r reply
			if line != "" {
				require.NoError(t, json.Unmarshal([]byte(line), &r))
				replies = append(replies, r)
			}
		}
		return replies
	}
	file := filepath.Join(dir, "state")
	keep := []string{"--prompt-cache", file}
	require.Empty(t, talk("/exit\n", "a", keep...))
	require.NoFileExists(t, file) // nothing has been read
	require.Equal(t, talk("Who is Pierre?\n", "b")[0].IDs, talk("Who is Pierre?\n", "a", keep...)[0].IDs)
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	plain, kept := talk("And then?\n", "b")[0], talk("And then?\n", "a", keep...)[0]
	require.Equal(t, plain.IDs, kept.IDs)
	require.Equal(t, plain.Text, kept.Text)
	require.Less(t, kept.PrefillTokens, plain.PrefillTokens/2)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Greater(t, len(after), len(before))

	// What was forgotten is not in the way, and leaves the file.
	require.Empty(t, talk("/clear\n", "a", keep...))
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, slices.Equal(after, data))
}
