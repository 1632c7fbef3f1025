package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/tensor"
)

// The text says, as the report does, which products did not run where they were asked to.
func TestTextSaysWhatFellBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("The Emperor was not in the army. ", 4)), 0o600))
	generate := []string{"generate", "-p", "The prince said", "-n", "4", "--temp", "0", "--backend"}
	perplexity := []string{"perplexity", "--file", file, "--backend"}
	for _, c := range []struct {
		args []string
		want string // regular expression
	}{
		{append(generate, "xdna2"), `\nxdna2: 0 of 88 products, 88 left to the CPU \(--json says why\); simulated 0 s; the rates are this machine's\n$`},
		{append(generate, "xdna2:rows=1"), `\nxdna2: 88 of 88 products; simulated 0\.0[0-9]* s; the rates are this machine's\n$`},
		{append(perplexity, "xdna2:rows=100000"), `^xdna2: 0 of 22 products, 22 left to the CPU \(--json says why\); simulated 0 s\n$`},
		{append(perplexity, "xdna2:rows=1"), `^xdna2: 22 of 22 products; simulated 0\.0[0-9]* s\n$`},
	} {
		_, stderr, err := call(t, c.args...)
		require.NoError(t, err)
		require.Regexp(t, c.want, stderr, "%v", c.args)
	}
	_, stderr, err := typed(t, "What did he say?\n", "chat", "-n", "4", "--temp", "0", "--backend", "xdna2:rows=1")
	require.NoError(t, err)
	require.Regexp(t, `xdna2: [0-9]+ of [0-9]+ products.*; simulated 0\.[0-9]+ s\n$`, stderr)
	_, stderr, err = call(t, "classify", one(t), "--backend", "xdna2:rows=100000")
	require.NoError(t, err)
	require.Regexp(t, `^xdna2: 0 of [1-9][0-9]* products, [1-9][0-9]* left to the CPU \(--report says why\); simulated 0 s\n$`, stderr)
	_, stderr, err = call(t, "bench", "model", "--prompt-tokens", "8", "--decode-tokens", "2", "--backend", "xdna2:rows=100000")
	require.NoError(t, err)
	require.Regexp(t, `^xdna2: 0 of [1-9][0-9]* products, [1-9][0-9]* left to the CPU \(tessera inspect says why\); simulated 0 s; the rates are this machine's\n$`, stderr)
	array := npyFile(t, tensor.New(tensor.F32, 1, 1, 28, 28))
	_, stderr, err = call(t, "run", "--model", filepath.Join(shared.Root(), "models", "cnn", "digits.onnx"), "--input", "image="+array, "--output", t.TempDir(), "--backend", "xdna2:rows=100000")
	require.NoError(t, err)
	require.Regexp(t, ` ms\nxdna2: 0 of [1-9][0-9]* products, [1-9][0-9]* left to the CPU \(--json says why\); simulated 0 s; the time above is this machine's\n$`, stderr)
	for _, backend := range []string{"cpu", "reference"} {
		_, stderr, err := call(t, append(generate, backend)...)
		require.NoError(t, err)
		require.NotContains(t, stderr, "products")
	}
}
