package amdxdna

import (
	"errors"
	"fmt"
	"time"
)

// Pointer is a field of an ioctl argument that holds a user address: eight bytes at Off, pointing to Mem.
type Pointer struct {
	Off int
	Mem []byte
}

// Sys is what this package needs of the operating system. The Linux implementation makes system calls on an open device node;
// package fake has another that needs no chip.
type Sys interface {
	// Ioctl makes one call. Arg is the argument structure, changed in place; each pointer's field is filled with its memory's address first.
	// Failures of the kernel are of type [Errno].
	Ioctl(req uint32, arg []byte, ptrs ...Pointer) error
	// Map maps size bytes of the device file at an address that is a multiple of align (0 = any page).
	Map(offset int64, size, align int) ([]byte, error)
	// Unmap ends a mapping that Map returned.
	Unmap(mem []byte) error
	// Monotonic is the time since some fixed point, on the clock of DRM's absolute timeouts.
	Monotonic() time.Duration
	Close() error
}

// Errno is an error number of Linux, the same on every operating system that this package is compiled for.
type Errno int

// The numbers that the driver is known to return.
const (
	ENOENT Errno = 2
	EINTR  Errno = 4
	EIO    Errno = 5
	EAGAIN Errno = 11
	ENOMEM Errno = 12
	EACCES Errno = 13
	EBUSY  Errno = 16
	ENODEV Errno = 19
	EINVAL Errno = 22
	ENOSPC Errno = 28
	ETIME  Errno = 62
)

var errnoText = map[Errno]string{
	ENOENT: "no such object",
	EINTR:  "interrupted",
	EIO:    "device error",
	EAGAIN: "try again",
	ENOMEM: "out of memory",
	EACCES: "permission denied",
	EBUSY:  "device busy: no free columns or contexts",
	ENODEV: "device is gone or was reset",
	EINVAL: "the driver refused the arguments",
	ENOSPC: "no space left on the device's heap or array",
	ETIME:  "timed out",
}

// Error names the error.
func (e Errno) Error() string {
	if s, ok := errnoText[e]; ok {
		return s
	}
	return fmt.Sprintf("errno %d", int(e))
}

// ErrUnsupported is returned where there is no amdxdna driver.
var ErrUnsupported = errors.New("the amdxdna driver exists on Linux only")

// absent explains a missing device node: the likely reason and what would be right.
func absent(path string, err error) error {
	return fmt.Errorf("open NPU %s: %w: load the kernel driver amdxdna (in Linux 6.14 and newer as CONFIG_DRM_ACCEL_AMDXDNA, for older kernels "+
		"from github.com/amd/xdna-driver) on a machine with a Ryzen AI NPU, with its firmware in /lib/firmware/amdnpu", path, err)
}
