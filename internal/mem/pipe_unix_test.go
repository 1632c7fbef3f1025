//go:build unix && !aix && !solaris

package mem

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFileOfAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	_, err := File(path)
	require.ErrorContains(t, err, path+": not a regular file")
}
