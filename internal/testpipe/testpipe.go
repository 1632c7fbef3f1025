//go:build unix && !aix && !solaris

// Package testpipe makes named pipes for tests of what reads files: opening one that nobody writes would wait for ever.
package testpipe

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// New makes a named pipe in a folder of its own and returns its path.
func New(t testing.TB) string {
	t.Helper()
	return In(t, t.TempDir(), "pipe")
}

// In makes a named pipe in a folder.
func In(t testing.TB, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
