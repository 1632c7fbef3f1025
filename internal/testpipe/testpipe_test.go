//go:build unix && !aix && !solaris

package testpipe

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is made is a named pipe: its file says so, and what one end writes the other reads.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	paths := []string{New(t), New(t), In(t, dir, "model.gguf")}
	require.NotEqual(t, paths[0], paths[1])
	require.Equal(t, filepath.Join(dir, "model.gguf"), paths[2])
	for _, path := range paths {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeNamedPipe, info.Mode().Type())
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(paths[2], []byte("text"), 0) }()
	r, err := os.Open(paths[2])
	require.NoError(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "text", string(text))
	require.NoError(t, <-written)
}

// failing stands for a test that is told that it failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()      {}
func (f *failing) Fatal(...any) { f.failed = true }

// A pipe that cannot be made fails the test that wants it.
func TestRefusal(t *testing.T) {
	path := New(t)
	f := &failing{TB: t}
	In(f, filepath.Dir(path), filepath.Base(path))
	require.True(t, f.failed)
}
