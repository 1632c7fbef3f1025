//go:build unix && !aix && !solaris

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/testpipe"
	"github.com/tessera-go/tessera/tensor"
)

// A named pipe that nobody writes is refused wherever a file is read: opening it would wait for ever, and no signal would end that.
func TestPipesAreRefused(t *testing.T) {
	pipe := testpipe.New(t)
	model, numbers, dir := adder(t), npyFile(t, tensor.Of([]float32{1, 2}, 2)), t.TempDir()
	folder := func(file string) string { // in which the file is a pipe
		dir := t.TempDir()
		testpipe.In(t, dir, file)
		return dir
	}
	for _, args := range [][]string{
		{"inspect", pipe},
		{"generate", "--model", pipe, "--prompt", "text"},
		{"chat", "--model", pipe},
		{"chat", "--model", model, "--template", pipe},
		{"generate", "--model", folder("config.json"), "--prompt", "text"},
		{"embed", "--model", pipe, "text"},
		{"embed", "--model", folder("vocab.json"), "text"},
		{"perplexity", "--model", pipe, "--file", model},
		{"perplexity", "--model", model, "--file", pipe},
		{"quantize", "--type", "q8_0", pipe, filepath.Join(dir, "q.gguf")},
		{"run", "--model", pipe, "--input", "a=" + numbers, "--output", dir},
		{"run", "--model", model, "--input", "a=" + numbers, "--input", "b=" + pipe, "--output", dir},
		{"classify", pipe},
		{"classify", "--model", pipe, model},
		{"classify", "--labels", pipe, model},
		{"classify", "--expect", pipe, model},
	} {
		t.Run(strings.ReplaceAll(strings.Join(args[:len(args)-1], " "), "/", "_"), func(t *testing.T) {
			_, _, err := call(t, args...)
			require.ErrorContains(t, err, ": not a regular file")
		})
	}
}
