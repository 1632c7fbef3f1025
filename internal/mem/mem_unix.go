//go:build unix && !aix && !solaris

package mem

import (
	"os"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

func mapAnonymous(n int) ([]byte, error) {
	size, ok := RoundUp(n, os.Getpagesize())
	if !ok {
		return nil, ErrOverflow
	}
	raw, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	if n >= hugePage {
		adviseHuge(raw)
	}
	return raw, nil
}

func mapFile(f *os.File, n int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ, unix.MAP_SHARED)
}

func unmap(raw []byte) error { return unix.Munmap(raw) }

func advise(data []byte, advice Advice) {
	how := unix.MADV_WILLNEED
	switch advice {
	case DontNeed:
		how = unix.MADV_DONTNEED
	case Populate:
		if how = populate; how == 0 {
			return
		}
	}
	_ = unix.Madvise(data, how) // advice: nothing depends on its success
}

// Guarded returns n bytes whose end is the end of a readable page followed by a page that faults, for tests that look for
// reads and writes past the end. release unmaps them.
func Guarded(n int) (data []byte, release func() error, err error) {
	page := os.Getpagesize()
	body, ok := RoundUp(max(n, 1), page)
	if !ok {
		return nil, nil, ErrOverflow
	}
	raw, err := unix.Mmap(-1, 0, body+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	if err := unix.Mprotect(raw[body:], unix.PROT_NONE); err != nil {
		_ = unix.Munmap(raw)
		return nil, nil, err
	}
	return raw[body-n : body : body], func() error { return unix.Munmap(raw) }, nil
}
