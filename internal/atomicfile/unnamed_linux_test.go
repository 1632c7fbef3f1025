package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// While a file is written nothing of it has a name, so that a process which is killed then leaves nothing.
func TestNothingHasANameWhileItIsWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	f, err := unnamed(path)
	if err != nil {
		t.Skip("this file system has no files without names: ", err)
	}
	require.NoError(t, f.Close())
	names := func() (names []string) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for _, before := range [][]string{nil, {"a"}} {
		require.NoError(t, Write(path, 0o640, func(f *os.File) error {
			_, err := f.WriteString("text")
			require.Equal(t, before, names())
			return err
		}))
		require.Equal(t, []string{"a"}, names())
		require.EqualError(t, Write(path, 0o640, func(f *os.File) error {
			require.NoError(t, f.Close())
			_, err := f.WriteString("text")
			return fmt.Errorf("the header: %w", err)
		}), "the header: write "+path+": file already closed\nclose "+path+": file already closed")
		broken := errors.New("broken")
		require.ErrorIs(t, Write(path, 0o640, func(*os.File) error { return broken }), broken)
		require.Equal(t, []string{"a"}, names())
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		require.False(t, err == nil && filepath.Dir(to) == dir, to)
	}
}
