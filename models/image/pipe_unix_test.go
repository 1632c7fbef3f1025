//go:build unix && !aix && !solaris

package image

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPicturesOfAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := ReadFile(path)
	require.ErrorContains(t, err, path+": not a regular file")
	_, err = ReadLabels(path)
	require.ErrorContains(t, err, path+": not a regular file")
}
