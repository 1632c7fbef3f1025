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
	l := NewLineReader(strings.NewReader("one\r\n\nthree"), os.Stdout, "> ", 5)
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

// A line that has more bytes than its use allows, or no end, is an error when these have been read; a whole text is too.
func TestTextsWithoutEnd(t *testing.T) {
	const most = 100_000
	for _, in := range []io.Reader{strings.NewReader(strings.Repeat("x", most+1)), endless{}} {
		var long *LengthError
		_, err := NewLineReader(in, io.Discard, "", most).Read()
		require.ErrorAs(t, err, &long)
		require.Equal(t, most, long.Most)
	}
	line := strings.Repeat("y", most)
	for _, text := range []string{line, line[1:] + "\n"} {
		got, err := NewLineReader(strings.NewReader(text), io.Discard, "", most).Read()
		require.NoError(t, err)
		require.Equal(t, strings.TrimSuffix(text, "\n"), got)
		got, err = ReadText(strings.NewReader(text), most)
		require.NoError(t, err)
		require.Equal(t, text, got)
	}
	var long *LengthError
	_, err := ReadText(endless{}, most)
	require.ErrorAs(t, err, &long)
}

// endless is a text that does not end.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// On a terminal Ctrl-C throws the line away and Ctrl-D ends the input; the arrow key brings the line before back.
func TestKeys(t *testing.T) {
	stops := 0
	pair := struct {
		io.Reader
		io.Writer
	}{&controlKeys{r: strings.NewReader("half a l\x03wh\x1aole\r\x1b[A!\r\x04"), stop: func() { stops++ }}, io.Discard}
	terminal := term.NewTerminal(pair, "")
	for _, want := range []string{"", "whole", "whole!"} {
		line, err := terminal.ReadLine()
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	_, err := terminal.ReadLine()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, stops)
}
