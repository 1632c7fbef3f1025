package atomicfile

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// unnamed makes a file in the folder of path that has no name until link gives it one, so that nothing of it stays if the process is killed while it is
// written. Its errors are about path. An error of unnamed itself says that there is no such thing here: not every file system has it, and giving a name
// needs /proc.
func unnamed(path string) (f *os.File, err error) {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(linkOf(fd)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// linkOf returns the link that the system shows of an open file.
func linkOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// link gives an unnamed file a name in a folder that nothing has there.
func link(f *os.File, dir string) (path string, err error) {
	const attempts = 100
	for range attempts {
		path = filepath.Join(dir, fmt.Sprintf(".tessera-%d", rand.Uint64()))
		err = unix.Linkat(unix.AT_FDCWD, linkOf(int(f.Fd())), unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
		if err != unix.EEXIST {
			break
		}
	}
	return path, err
}
