package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// call runs the command in this process and returns what it printed and its error.
func call(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := newRoot()
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	args = flagsBehind(root, args)
	root.SetArgs(args)
	err = root.ExecuteContext(cli.WithTyped(context.Background(), args))
	return out.String(), errs.String(), err
}

// status runs the command as main does, without what it prints, and returns its exit status.
func status(t *testing.T, args ...string) int {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	os.Stdout, os.Stderr = null, null
	return run(context.Background(), args)
}

func TestBackendsJSON(t *testing.T) {
	out, _, err := call(t, "backends", "--json")
	require.NoError(t, err)
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	require.NotEmpty(t, list)
	for _, b := range list {
		require.NotEmpty(t, b["name"])
		require.NotEmpty(t, b["device"])
	}
}

// The listing is for people: an option a line, and lines that a screen holds.
func TestBackendsListing(t *testing.T) {
	out, _, err := call(t, "backends")
	require.NoError(t, err)
	for _, line := range strings.Split(out, "\n") {
		require.LessOrEqual(t, len(line), 180, line)
	}
	for _, name := range backends.Names() {
		b, err := backends.Open(name)
		require.NoError(t, err)
		for _, option := range b.Describe().Options {
			key, meaning, ok := strings.Cut(option, ": ")
			require.True(t, ok, "%s: %s", name, option)
			require.Regexp(t, `(?m)^    `+regexp.QuoteMeta(key)+` +`+regexp.QuoteMeta(meaning)+`$`, out)
		}
		require.NoError(t, b.Close())
	}
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"backends"}, 0},
		{[]string{"help"}, 0},
		{[]string{"backends", "--nonsense"}, 2},
		{[]string{"backends", "extra"}, 2},
		{[]string{"nonsense"}, 2},
		{[]string{"--json", "backends"}, 0},
		{[]string{"--nonsense", "backends"}, 2},
		{[]string{"--help", "xdna", "plan"}, 0},
		{[]string{"--version"}, 0},
		{[]string{"--json"}, 2},
	} {
		require.Equal(t, c.want, status(t, c.args...), "%v", c.args)
	}
	_, _, err := call(t, "backends", "--nonsense")
	require.Equal(t, 2, cli.ExitCode(err))
}

// Output that cannot be written is a failure, of every command.
func TestLostOutput(t *testing.T) {
	closed, err := os.Open("main.go") // writing to it fails
	require.NoError(t, err)
	defer closed.Close()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	os.Stdout = closed
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	os.Stderr = null
	for _, args := range [][]string{{"generate", "-n", "1"}, {"backends"}, {"tune", "--list"}, {"help"}} {
		require.Equal(t, 1, run(context.Background(), args), "%v", args)
	}
}

// Flags may stand anywhere, before the names of sub-commands too.
func TestFlagsAnywhere(t *testing.T) {
	for _, c := range []struct{ typed, want string }{
		{"backends --json", "backends --json"},
		{"--json backends", "backends --json"},
		{"--json classify a.png -m x.onnx", "classify --json a.png -m x.onnx"},
		{"-n 2 --temp 0 generate -p War", "generate -n 2 --temp 0 -p War"},
		{"-n2 --temp=0 --json generate", "generate -n2 --temp=0 --json"},
		{"--json bench --threads 1 gemm --plain", "bench gemm --json --threads 1 --plain"},
		{"xdna --double-c predict --size 1x1x1", "xdna predict --double-c --size 1x1x1"},
		{"--cache generate", "generate --cache"}, // its value stands behind an equals sign
		{"--model generate generate", "generate --model generate"},
		{"--model generate", "--model generate"}, // no sub-command is left
		{"--zebra generate", "generate --zebra"},
		{"--json nonsense", "--json nonsense"},
		{"xdna --emulate plan --json", "xdna plan --emulate --json"}, // a switch of plan, a number for plot
		{"xdna --emulate 3 plot", "xdna plot --emulate 3"},
		{"-- generate", "-- generate"},
	} {
		require.Equal(t, c.want, strings.Join(flagsBehind(newRoot(), strings.Fields(c.typed)), " "), c.typed)
	}
	out, _, err := call(t, "--json", "--threads", "1", "generate", "-p", "War", "-n", "2", "--temp", "0")
	require.NoError(t, err)
	require.True(t, json.Valid([]byte(out)))
}
