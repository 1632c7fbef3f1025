package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

// A step that lasts has a bar on a terminal, which goes when it is done; a short one, and one whose standard error is no terminal, has none.
func TestProgressOnATerminal(t *testing.T) {
	screen, tty := newTerminal(t)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = tty
	short := cli.NewProgress("a short step")
	short.Set(1, 2)
	short.Done()
	long := cli.NewProgress("a long step")
	time.Sleep(600 * time.Millisecond)
	long.Set(1, 2)
	screen.until(t, "a long step", 1)
	screen.until(t, "50 %", 1)
	long.Set(2, 2)
	long.Done()
	require.NotContains(t, screen.text(), "short")

	file, err := os.Create(t.TempDir() + "/stderr")
	require.NoError(t, err)
	defer file.Close()
	os.Stderr = file
	none := cli.NewProgress("no terminal")
	time.Sleep(600 * time.Millisecond)
	none.Set(1, 2)
	none.Done()
	info, err := file.Stat()
	require.NoError(t, err)
	require.Zero(t, info.Size())
}
