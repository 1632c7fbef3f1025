package amdxdna

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// linux makes the real system calls.
type linux struct{ fd int }

// OpenNode opens a device node such as /dev/accel/accel0.
func OpenNode(path string) (Sys, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return nil, absent(path, err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return nil, fmt.Errorf("open NPU %s: %w: the user must be in the group that owns it, usually render", path, err)
	case err != nil:
		return nil, fmt.Errorf("open NPU %s: %w", path, err)
	}
	return &linux{fd}, nil
}

func (l *linux) Ioctl(req uint32, arg []byte, ptrs ...Pointer) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	for _, p := range ptrs {
		if len(p.Mem) == 0 {
			continue
		}
		pin.Pin(&p.Mem[0])
		*(*uint64)(unsafe.Pointer(&arg[p.Off])) = uint64(uintptr(unsafe.Pointer(&p.Mem[0])))
	}
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(l.fd), uintptr(req), uintptr(unsafe.Pointer(&arg[0])))
		runtime.KeepAlive(arg)
		switch e {
		case 0:
			return nil
		case unix.EINTR: // as libdrm does; EAGAIN is the client's matter
			continue
		}
		return Errno(e)
	}
}

// Map reserves address space that holds an aligned piece of that size, and maps the file over that piece.
func (l *linux) Map(offset int64, size, align int) ([]byte, error) {
	if align <= os.Getpagesize() {
		mem, err := unix.Mmap(l.fd, offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		return mem, wrapErrno(err)
	}
	base, err := unix.MmapPtr(-1, 0, nil, uintptr(size+align), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, wrapErrno(err)
	}
	skip := -uintptr(base) & uintptr(align-1)
	at := unsafe.Add(base, skip)
	mem, err := unix.MmapPtr(l.fd, offset, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		unix.MunmapPtr(base, uintptr(size+align))
		return nil, wrapErrno(err)
	}
	// Give back what lies before and behind. A failure would only keep address space.
	if skip > 0 {
		unix.MunmapPtr(base, skip)
	}
	if rest := uintptr(align) - skip; rest > 0 {
		unix.MunmapPtr(unsafe.Add(at, size), rest)
	}
	return unsafe.Slice((*byte)(mem), size), nil
}

func (l *linux) Unmap(mem []byte) error {
	return wrapErrno(unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem))))
}

func (l *linux) Monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("amdxdna: CLOCK_MONOTONIC: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

func (l *linux) Close() error { return wrapErrno(unix.Close(l.fd)) }

func wrapErrno(err error) error {
	var e unix.Errno
	if errors.As(err, &e) {
		return Errno(e)
	}
	return err
}
