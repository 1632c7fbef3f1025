package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// screen is what standard output and standard error are as a rule: one thing, which shows what comes first first.
type screen struct {
	bytes.Buffer
	early string // what had been printed when standard error first wrote
}

type screenError struct{ t *screen }

func (e screenError) Write(p []byte) (int, error) {
	if e.t.early == "" {
		e.t.early = e.t.String()
	}
	return e.t.Write(p)
}

// What standard error says at the end stands behind all results, not in the middle of one: output larger than a buffer, and as much as fits in one.
func TestResultsStandBeforeWhatIsSaidAboutThem(t *testing.T) {
	digits := func(n int) (images, labels string) {
		images, labels = filepath.Join(t.TempDir(), "images"), filepath.Join(t.TempDir(), "labels")
		head := binary.BigEndian.AppendUint32([]byte{0, 0, 8, 3}, uint32(n))
		head = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(head, 28), 28)
		require.NoError(t, os.WriteFile(images, append(head, make([]byte, n*28*28)...), 0o600))
		head = binary.BigEndian.AppendUint32([]byte{0, 0, 8, 1}, uint32(n))
		require.NoError(t, os.WriteFile(labels, append(head, make([]byte, n)...), 0o600))
		return images, labels
	}
	bert := randomModel(t, "bert")
	few, fewLabels := digits(2)
	many, manyLabels := digits(300)
	for _, c := range []struct {
		args    []string
		results int // lines
	}{
		{[]string{"classify", few, "--expect", fewLabels}, 2},
		{[]string{"classify", many, "--expect", manyLabels}, 300},
		{[]string{"classify", many, "--expect", manyLabels, "--json"}, 300},
		{[]string{"classify", few, few, "--report"}, 4},
		{[]string{"embed", "--model", bert, "--profile", "one", "two"}, 2},
	} {
		var term screen
		root := newRoot()
		root.SetOut(&term)
		root.SetErr(screenError{&term})
		root.SetArgs(c.args)
		require.NoError(t, root.ExecuteContext(cli.WithTyped(context.Background(), c.args)))
		require.True(t, strings.HasSuffix(term.early, "\n"), "%v: standard error begins behind %.80q", c.args, term.early)
		require.Equal(t, c.results, strings.Count(term.early, "\n"), "%v", c.args)
	}
}

// A program that gives embed a text and waits for its vector before it gives the next one gets it.
func TestEmbedAnswersEachLine(t *testing.T) {
	in, text := io.Pipe()
	vectors, out := io.Pipe()
	root := newRoot()
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(io.Discard)
	root.SetArgs([]string{"embed", "-"})
	done := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(context.Background())
		out.CloseWithError(err)
		in.CloseWithError(io.ErrClosedPipe)
		done <- err
	}()
	for _, line := range []string{"The prince said\n", "The old count\n"} {
		_, err := io.WriteString(text, line)
		require.NoError(t, err)
		var vector []byte
		for one := make([]byte, 1); !bytes.HasSuffix(vector, []byte("\n")); vector = append(vector, one...) {
			_, err := vectors.Read(one)
			require.NoError(t, err)
		}
		require.Len(t, strings.Fields(string(vector)), 256)
	}
	require.NoError(t, text.Close())
	require.NoError(t, <-done)
}
