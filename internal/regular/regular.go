// Package regular opens files that must be regular ones. Opening a named pipe waits for its writer, uninterruptibly, and a device may have no end: what a
// user names as a model or a picture is looked at before it is opened.
package regular

import (
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Open opens a regular file, links followed, for reading; what is none is an error, and is not opened.
func Open(name string) (*os.File, error) {
	if info, err := os.Stat(name); err == nil { // else Open says why
		if err := check(name, info); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil { // another file may have taken the name
		err = check(name, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func check(name string, info os.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s: not a regular file", name)
}

// ReadFile returns the bytes of a regular file.
func ReadFile(name string) ([]byte, error) { return read(Open(name)) }

// OpenStream opens a regular file, or what the process was started with: /dev/stdin and the descriptors in /dev/fd, which are a shell's <(...). Those are open
// already.
func OpenStream(name string) (*os.File, error) {
	if inherited(name) {
		return os.Open(name)
	}
	return Open(name)
}

// maxStream bounds what is read of a stream, which may have no end.
const maxStream = 1 << 30

// ReadStream returns the bytes of what OpenStream opens, of a stream 1 GiB at most: more is an error.
func ReadStream(name string) ([]byte, error) { return readStream(name, maxStream) }

func readStream(name string, most int64) ([]byte, error) {
	f, err := OpenStream(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		return io.ReadAll(f)
	}
	return bounded(name, f, most)
}

// ReadInput returns the bytes of standard input where the name is "-", 1 GiB at most, else those of ReadStream.
func ReadInput(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return bounded("standard input", stdin, maxStream)
	}
	return ReadStream(name)
}

func bounded(name string, r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		return nil, fmt.Errorf("%s: more than %d bytes, which a stream may have at most", name, most)
	}
	return data, err
}

func read(f *os.File, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func inherited(name string) bool {
	name = path.Clean(name)
	return name == "/dev/stdin" || strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/")
}
