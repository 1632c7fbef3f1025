package mem

import (
	"fmt"
	"runtime/debug"
	"sync"
	"unsafe"
)

// FaultError says that bytes of a mapped file could not be read: the file has been cut short while it was open, or its disk fails.
type FaultError struct{ Path string }

func (e *FaultError) Error() string {
	return fmt.Sprintf("%s: reading the mapped file failed; it was cut short while it was open, or its disk fails", e.Path)
}

// files are the mapped files, by the address of their first byte.
var files struct {
	sync.Mutex
	at map[uintptr]mappedFile
}

type mappedFile struct {
	size int
	path string
}

func noteFile(raw []byte, path string) {
	files.Lock()
	defer files.Unlock()
	if files.at == nil {
		files.at = map[uintptr]mappedFile{}
	}
	files.at[uintptr(unsafe.Pointer(&raw[0]))] = mappedFile{len(raw), path}
}

func forgetFile(raw []byte) {
	files.Lock()
	defer files.Unlock()
	delete(files.at, uintptr(unsafe.Pointer(&raw[0])))
}

// fileAt returns the path of the mapped file that an address lies in; the last page of a file reaches beyond its size.
func fileAt(addr uintptr) (string, bool) {
	files.Lock()
	defer files.Unlock()
	for first, f := range files.at {
		if addr >= first && addr-first < uintptr(f.size) {
			return f.path, true
		}
	}
	return "", false
}

// Catch makes a fault on a mapped file, which would end the process, the function's error, in this goroutine and in the helpers of its parallel
// regions. Nothing is allocated:
//
//	defer mem.Caught(mem.Catch(), &err)
//
// Every other panic goes on, and so does a fault anywhere else.
func Catch() (before bool) { return debug.SetPanicOnFault(true) }

// Caught ends what Catch began; it must be deferred itself.
func Caught(before bool, err *error) {
	debug.SetPanicOnFault(before)
	v := recover()
	if v == nil {
		return
	}
	if fault, ok := v.(interface{ Addr() uintptr }); ok {
		if path, ok := fileAt(fault.Addr()); ok {
			*err = &FaultError{path}
			return
		}
	}
	panic(v)
}
