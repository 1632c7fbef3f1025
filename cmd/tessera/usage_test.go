package main

import (
	"context"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Arguments that are too many are explained by a flag's value only where one may be meant.
func TestNoHintWithoutReason(t *testing.T) {
	for _, args := range [][]string{{"generate", "file"}, {"generate", "--json", "file"}, {"generate", "--cache=other", "file"}} {
		_, _, err := call(t, args...)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "equals sign", "%v", args)
	}
}

// What is missing or unknown on the command line is wrong usage, whichever sub-command it is.
func TestWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"bench", "swap"}, "--text or --images"},
		{[]string{"xdna", "nonsense"}, `"nonsense"`},
		{[]string{"aie", "nonsense"}, `"nonsense"`},
		{[]string{"bench", "nonsense"}, `"nonsense"`},
		{[]string{"help", "nonsense"}, `"nonsense"`},
		{[]string{"help", "xdna", "nonsense"}, `"xdna nonsense"`},
		{[]string{"xdna", "predict"}, "--size is missing"},
		{[]string{"xdna", "run"}, "--size is missing"},
		{[]string{"xdna", "trace", "-o", "x.json"}, "--size is missing"},
		{[]string{"xdna", "trace", "--size", "64x64x64"}, "--output is missing"},
		{[]string{"aie", "predict"}, "--size is missing"},
		{[]string{"generate", "The prince"}, `"The prince": tessera generate takes flags only, a text follows -p and a model's file --model`},
		{[]string{"run", "x.onnx"}, `"x.onnx": tessera run takes flags only, a model's file follows --model`},
		{[]string{"classify"}, "a picture is missing: tessera classify FILE..."},
		{[]string{"embed"}, "a text is missing: tessera embed TEXT..."},
		{[]string{"quantize", "a.gguf"}, "missing: tessera quantize IN.gguf OUT.gguf --type TYPE"},
		{[]string{"quantize", "a.gguf", "b.gguf", "c.gguf"}, `"c.gguf": an argument too many: tessera quantize IN.gguf OUT.gguf --type TYPE`},
		{[]string{"inspect", "a.gguf", "b.gguf"}, `"b.gguf": an argument too many: tessera inspect [FILE]`},
		{[]string{"xdna", "decode"}, "the file is missing: tessera xdna decode FILE"},
		{[]string{"perplexity", "x.txt"}, "a file of text follows --file"},
		{[]string{"chat", "Hello"}, "standard input"},
		{[]string{"generate", "--cache", "file"}, "a value of --cache is written behind an equals sign: --cache=FILE"},
		{[]string{"perplexity", "--cache", "file", "--file", "usage_test.go"}, "--cache=FILE"},
		{[]string{"inspect", "--cache", "file", "model.gguf"}, "--cache=FILE"},
		{[]string{"embed", "--cache", "file", "a text", "--model", "model.gguf"}, `--cache "file": a file is written behind an equals sign`},
		{[]string{"embed", "--model", "model.gguf", "--cache", "a text"}, `--cache "a text"`},
	} {
		_, _, err := call(t, c.args...)
		require.ErrorContains(t, err, c.want, "%v", c.args)
		require.Equal(t, 2, status(t, c.args...), "%v: %v", c.args, err)
	}
	for _, args := range [][]string{{"xdna"}, {"aie"}, {"bench"}, {"help"}, {"help", "xdna", "plan"}} {
		require.Zero(t, status(t, args...), "%v", args)
	}
}

// Help puts the word for a flag's value behind the flag: a text that begins with it says it twice in a row. A flag that is not set has no default to show.
func TestHelpReadsWell(t *testing.T) {
	for path, cmd := range leaves(newRoot()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			require.False(t, strings.HasPrefix(f.Usage, "`"), "%s --%s: %s", path, f.Name, f.Usage)
		})
		help, _, err := call(t, append([]string{"help"}, strings.Fields(path)...)...)
		require.NoError(t, err)
		require.NotEmpty(t, help, path)
		require.NotContains(t, help, "(default [])", path)
	}
}

// A name that is nearly right brings the right one, on one line.
func TestWhatMayBeMeant(t *testing.T) {
	for _, c := range []struct{ typed, want string }{
		{"quantise a b", `tessera: unknown command "quantise" for "tessera"; quantize may be meant`},
		{"bench gem", `tessera: unknown command "gem" for "tessera bench"; gemm may be meant`},
		{"xdna plann", `tessera: unknown command "plann" for "tessera xdna"; plan may be meant`},
		{"aie zebra", `tessera: unknown command "zebra" for "tessera aie"`},
		{"generate --promt a", "tessera: unknown flag: --promt; --prompt may be meant"},
		{"embed a --normalise", "tessera: unknown flag: --normalise; --normalize may be meant"},
		{"generate --zebra", "tessera: unknown flag: --zebra"},
	} {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		stderr := os.Stderr
		os.Stderr = w
		code := run(context.Background(), strings.Fields(c.typed))
		os.Stderr = stderr
		require.NoError(t, w.Close())
		said, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, 2, code, c.typed)
		first, _, _ := strings.Cut(string(said), "\n")
		require.Equal(t, c.want, first)
	}
}

// Every sub-command shows how it is called, by lines that it would take, and its help fits wide terminals.
func TestHelpHasExamples(t *testing.T) {
	word := regexp.MustCompile(`"[^"]*"|\S+`)
	for path, cmd := range leaves(newRoot()) {
		require.NotEmpty(t, cmd.Example, path)
		for _, line := range strings.Split(cmd.Example, "\n") {
			line, _, _ = strings.Cut(line, " < ")
			rest, ok := strings.CutPrefix(line, "  tessera "+path)
			require.True(t, ok, "%s: %q", path, line)
			var args []string
			for _, w := range word.FindAllString(rest, -1) {
				args = append(args, strings.Trim(w, `"`))
			}
			fresh := leaves(newRoot())[path]
			require.NoError(t, fresh.ParseFlags(args), line)
			require.NoError(t, fresh.ValidateArgs(fresh.Flags().Args()), line)
		}
		help, _, err := call(t, append([]string{"help"}, strings.Fields(path)...)...)
		require.NoError(t, err)
		for _, line := range strings.Split(help, "\n") {
			require.LessOrEqual(t, len(line), 200, "%s: %s", path, line)
		}
	}
}

// A word too many is not called an unknown command where there are none: the message names it, and what the sub-command takes.
func TestStrayArguments(t *testing.T) {
	for path := range leaves(newRoot()) {
		args := append(strings.Fields(path), "a", "b", "c")
		if path == "classify" || path == "embed" { // any number
			continue
		}
		_, _, err := call(t, args...)
		require.Error(t, err, path)
		require.Regexp(t, `^"[abc]": (tessera `+path+` takes flags only|an argument too many: tessera `+path+` )`, err.Error())
		require.Equal(t, 2, status(t, args...), path)
	}
}

// Choices are read without regard to case.
func TestWordsInAnyCase(t *testing.T) {
	words := map[string]string{"precision": "int8", "mode": "fast", "out": "s16", "pooling": "mean", "kernel": "auto", "type": "q8_0"} // of flags without a default
	free := []string{"backend", "size", "dialect"}
	tried := 0
	for path, cmd := range leaves(newRoot()) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			word := f.DefValue
			if word == "" {
				word = words[f.Name]
			}
			if f.Value.Type() != "string" || word == "" || slices.Contains(free, f.Name) {
				return
			}
			tried++
			require.NoError(t, f.Value.Set(strings.ToUpper(word)))
			require.Equal(t, word, f.Value.String(), "%s --%s", path, f.Name)
		})
	}
	require.Greater(t, tried, 40)
	for _, args := range [][]string{
		{"aie", "predict", "--size", "64x64x64", "--dtype", "INT8", "--out", "S8", "--design", "Best"},
		{"aie", "predict", "--kernel", "AUTO", "--dtype", "FP32"},
		{"xdna", "predict", "--size", "64x64x64", "--analytic", "--device", "XDNA", "--dtype", "BF16-BF16", "--layout", "ROW", "--schedule", "Serial"},
		{"generate", "-n", "1", "--cache-type", "F16", "--overflow", "SHIFT", "--backend", "aie", "--mode", "FAST", "--precision", "INT8"},
		{"bench", "gemm", "--size", "8x8x8", "--dtype", "F32", "--runs", "1", "--seconds", "0"},
	} {
		_, _, err := call(t, args...)
		require.NoError(t, err, "%v", args)
	}
}
