//go:build unix && !aix && !solaris

package regular

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/testpipe"
)

// A named pipe without a writer would hold the open for ever, and a device has no end.
func TestPipesAndDevicesAreNotOpened(t *testing.T) {
	pipe := testpipe.New(t)
	for _, name := range []string{pipe, "/dev/zero"} {
		for _, open := range []func(string) (*os.File, error){Open, OpenStream} {
			_, err := open(name)
			require.ErrorContains(t, err, name+": not a regular file")
		}
	}
}

// A descriptor that the process holds is a stream that somebody has opened already.
func TestStreamsOfTheProcess(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = w.WriteString("text")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	name := fmt.Sprintf("/dev/fd/%d", r.Fd())
	_, err = Open(name)
	require.ErrorContains(t, err, "not a regular file")
	data, err := ReadStream(name)
	require.NoError(t, err)
	require.Equal(t, "text", string(data))
}

// The name - is standard input, which may have no end either.
func TestStandardInput(t *testing.T) {
	data, err := ReadInput("-", strings.NewReader("text"))
	require.NoError(t, err)
	require.Equal(t, "text", string(data))
	_, err = bounded("standard input", strings.NewReader("text!"), 4)
	require.ErrorContains(t, err, "standard input: more than 4 bytes")
	_, err = ReadInput(filepath.Join(t.TempDir(), "none"), strings.NewReader("text"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A stream that goes on for ever is an error, not all of the memory; a file that the process was started with has an end.
func TestStreamsAreBounded(t *testing.T) {
	for n := range 6 {
		r, w, err := os.Pipe()
		require.NoError(t, err)
		_, err = w.WriteString("text!"[:n])
		require.NoError(t, err)
		if n < 5 {
			require.NoError(t, w.Close())
		} // else the writer goes on
		name := fmt.Sprintf("/dev/fd/%d", r.Fd())
		data, err := readStream(name, 4)
		if n < 5 {
			require.NoError(t, err)
			require.Equal(t, "text!"[:n], string(data))
		} else {
			require.ErrorContains(t, err, name+": more than 4 bytes")
			require.NoError(t, w.Close())
		}
		require.NoError(t, r.Close())
	}
	file, err := os.CreateTemp(t.TempDir(), "f")
	require.NoError(t, err)
	defer file.Close()
	_, err = file.WriteString("longer than the bound")
	require.NoError(t, err)
	data, err := readStream(fmt.Sprintf("/dev/fd/%d", file.Fd()), 4)
	require.NoError(t, err)
	require.Equal(t, "longer than the bound", string(data))
}
