//go:build unix && !aix && !solaris

package knob

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestProfileOfAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := ReadProfile(path)
	require.ErrorContains(t, err, path+": not a regular file")
	require.Error(t, WriteProfile(path, Tuned{}, false))
	require.Error(t, WriteProfile(path, Tuned{}, true))
}
