package cli

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/term"
)

func TestLineReaderOfAPipe(t *testing.T) {
	l := NewLineReader(strings.NewReader("one\r\n\nthree"), os.Stdout, "> ")
	require.False(t, l.Interactive())
	for _, want := range []string{"one", "", "three"} {
		line, err := l.Read()
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	_, err := l.Read()
	require.ErrorIs(t, err, io.EOF)
	l.Restore()
}

// On a terminal Ctrl-C throws the line away and Ctrl-D ends the input; the arrow key brings the line before back.
func TestKeys(t *testing.T) {
	pair := struct {
		io.Reader
		io.Writer
	}{&interruptKeys{r: strings.NewReader("half a l\x03whole\r\x1b[A!\r\x04")}, io.Discard}
	terminal := term.NewTerminal(pair, "")
	for _, want := range []string{"", "whole", "whole!"} {
		line, err := terminal.ReadLine()
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	_, err := terminal.ReadLine()
	require.ErrorIs(t, err, io.EOF)
}
