//go:build unix && !aix && !solaris

package regular

import (
	"fmt"
	"os"
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
