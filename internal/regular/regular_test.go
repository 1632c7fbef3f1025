package regular

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRegularFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "f"), filepath.Join(dir, "l")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	names := []string{file}
	if os.Symlink("f", link) == nil {
		names = append(names, link)
	}
	for _, name := range names {
		f, err := Open(name)
		require.NoError(t, err)
		data, err := io.ReadAll(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, "text", string(data))
		for _, read := range []func(string) ([]byte, error){ReadFile, ReadStream} {
			data, err := read(name)
			require.NoError(t, err)
			require.Equal(t, "text", string(data))
		}
	}
}

func TestOthersAreRefused(t *testing.T) {
	for _, open := range []func(string) (*os.File, error){Open, OpenStream} {
		_, err := open(t.TempDir())
		require.ErrorContains(t, err, "not a regular file")
		_, err = open(filepath.Join(t.TempDir(), "none"))
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}
