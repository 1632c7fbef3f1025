// Package packfile keeps what is costly to make again in one file: named blobs, each at the start of a page, so that a mapped file
// serves as it is. A file belongs to something with an identity, such as a model; with another identity it is stale.
//
// Version 1, little-endian:
//
//	0   8   magic "TESSKEEP"
//	8   4   version
//	12  4   number of blobs
//	16  32  identity
//	48  8   bytes of the index, which follows the header
//	56  4   CRC-32C of the index
//	60  4   CRC-32C of the 60 bytes before
//
// The index has for each blob: two bytes with the length of its name, the name, the same of its key, eight bytes with its place in the file,
// eight with its length, and four with the CRC-32C of its bytes. Blobs follow in the order of the index, each at a multiple of 4,096 bytes.
//
// Files are not trusted: whatever they hold, reading gives blobs that lie in the file and have their check sum, or an error.
package packfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/tessera-go/tessera/internal/atomicfile"
	"github.com/tessera-go/tessera/internal/mem"
)

const (
	magic   = "TESSKEEP"
	version = 1
	header  = 64
	page    = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Identity says what a file belongs to, for example a hash.
type Identity [32]byte

// Causes of errors: a file that was made for something else or by another version, and one that is no file of this kind and must not be replaced.
var (
	ErrStale   = errors.New("stale")
	ErrForeign = errors.New("foreign")
)

// Error says why a file cannot be used.
type Error struct {
	Offset int
	Reason string
	cause  error
}

func (e *Error) Error() string { return fmt.Sprintf("packed file: byte %d: %s", e.Offset, e.Reason) }

// Unwrap returns ErrStale, ErrForeign, or nil for damage.
func (e *Error) Unwrap() error { return e.cause }

// Blob is one entry of a file that is to be written. Form gives the same bytes whenever it is asked.
type Blob struct {
	Name, Key string
	Form      io.WriterTo
}

// Bytes is a Form that lies in memory.
type Bytes []byte

// WriteTo writes the bytes.
func (b Bytes) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(b)
	return int64(n), err
}

// File is an open file. It may be used by several goroutines; blobs are valid until Close.
type File struct {
	mapping *mem.Mapping
	data    []byte
	blobs   map[[2]string]*blob
	order   []*blob // as they lie in the file

	ahead  sync.Once
	helper sync.WaitGroup
	closed atomic.Bool
}

type blob struct {
	data []byte
	crc  uint32

	mu          sync.Mutex
	known, good bool // whether the check sum has been compared, and is right
}

// Open maps a file of an identity.
func Open(path string, id Identity) (*File, error) {
	m, err := mem.File(path)
	if err != nil {
		return nil, err
	}
	f, err := Parse(m.Data(), id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), m.Close())
	}
	f.mapping = m
	return f, nil
}

// Parse reads a file that lies in memory and must not change.
func Parse(data []byte, id Identity) (*File, error) {
	le := binary.LittleEndian
	fail := func(at int, format string, args ...any) (*File, error) {
		return nil, &Error{Offset: at, Reason: fmt.Sprintf(format, args...)}
	}
	if len(data) < header {
		if n := min(len(data), len(magic)); string(data[:n]) != magic[:n] {
			return nil, &Error{0, "not a packed file", ErrForeign}
		}
		return fail(0, "%d bytes, the header has %d", len(data), header)
	}
	if string(data[:8]) != magic {
		return nil, &Error{0, fmt.Sprintf("the magic number is %q, %q is right", data[:8], magic), ErrForeign}
	}
	if v := le.Uint32(data[8:]); v != version {
		return nil, &Error{8, fmt.Sprintf("version %d, %d can be read", v, version), ErrStale}
	}
	if le.Uint32(data[60:]) != crc32.Checksum(data[:60], castagnoli) {
		return fail(60, "the check sum of the header is wrong")
	}
	if Identity(data[16:48]) != id {
		return nil, &Error{16, "it was made for something else", ErrStale}
	}
	size := le.Uint64(data[48:])
	if size > uint64(len(data)-header) {
		return fail(48, "an index of %d bytes in a file of %d", size, len(data))
	}
	index := data[header : header+int(size)]
	if le.Uint32(data[56:]) != crc32.Checksum(index, castagnoli) {
		return fail(56, "the check sum of the index is wrong")
	}
	f := &File{data: data, blobs: map[[2]string]*blob{}}
	at := header
	take := func(n int) []byte {
		if n > header+len(index)-at {
			return nil
		}
		b := data[at : at+n]
		at += n
		return b
	}
	text := func() (string, bool) {
		n := take(2)
		if n == nil {
			return "", false
		}
		size := int(le.Uint16(n))
		b := take(size)
		return string(b), size == 0 || b != nil
	}
	for i := range le.Uint32(data[12:]) {
		start := at
		name, ok := text()
		key, ok2 := text()
		rest := take(20)
		if !ok || !ok2 || rest == nil {
			return fail(start, "the index ends in entry %d", i)
		}
		offset, length := le.Uint64(rest), le.Uint64(rest[8:])
		if offset%page != 0 || offset < uint64(header+len(index)) || offset > uint64(len(data)) || length > uint64(len(data))-offset {
			return fail(start, "entry %d, %q, has %d bytes from byte %d of a file of %d", i, name, length, offset, len(data))
		}
		if f.blobs[[2]string{name, key}] != nil {
			return fail(start, "entry %d, %q, is there twice", i, name)
		}
		b := &blob{data: data[offset : offset+length : offset+length], crc: le.Uint32(rest[16:])}
		f.blobs[[2]string{name, key}] = b
		f.order = append(f.order, b)
	}
	if at != header+len(index) {
		return fail(at, "%d bytes behind the last entry of the index", header+len(index)-at)
	}
	return f, nil
}

// Blob returns the bytes under a name and a key, or nil: there are none, or their check sum is wrong, which the first call finds. The first call that may
// have several workers starts one that compares the sums of all blobs from the last one on, as programs ask for them in about the order of the file.
func (f *File) Blob(name, key string, workers int) []byte {
	b := f.blobs[[2]string{name, key}]
	if b == nil {
		return nil
	}
	if workers > 1 {
		f.ahead.Do(f.checkAhead)
	}
	if !b.check() {
		return nil
	}
	return b.data
}

func (f *File) checkAhead() {
	order := f.order
	f.helper.Add(1)
	go func() {
		defer f.helper.Done()
		for i := len(order) - 1; i >= 0 && !f.closed.Load(); i-- {
			if order[i].tryCheck() != nil {
				return // whoever asks for the blob meets the fault
			}
		}
	}()
}

func (b *blob) tryCheck() (err error) {
	defer mem.Caught(mem.Catch(), &err)
	b.check()
	return nil
}

// check compares the check sum once.
func (b *blob) check() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known {
		mem.Advise(b.data, mem.Populate)
		b.good = crc32.Checksum(b.data, castagnoli) == b.crc
		b.known = true
	}
	return b.good
}

// Len returns the number of blobs.
func (f *File) Len() int { return len(f.blobs) }

// Size returns the bytes of the file.
func (f *File) Size() int { return len(f.data) }

// Close unmaps the file.
func (f *File) Close() error {
	f.closed.Store(true)
	f.helper.Wait()
	f.data, f.blobs, f.order = nil, nil, nil
	if f.mapping == nil {
		return nil
	}
	return f.mapping.Close()
}

// Write writes a file under its name only when it is whole, and returns its size. A file of that name is replaced; who has mapped it keeps what it was.
func Write(path string, id Identity, blobs []Blob) (size int64, err error) {
	err = atomicfile.Write(path, 0o644, func(f *os.File) (err error) {
		size, err = write(f, id, blobs)
		return err
	})
	if err != nil {
		return 0, err
	}
	return size, nil
}

// counter passes on what is written, with its length and check sum.
type counter struct {
	w   io.Writer
	n   int64
	crc uint32
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.crc = crc32.Update(c.crc, castagnoli, b[:n])
	return n, err
}

// write leaves room for header and index, writes the blobs, and then what is known about them.
func write(f io.WriteSeeker, id Identity, blobs []Blob) (int64, error) {
	size := 0
	for _, b := range blobs {
		if len(b.Name) > math.MaxUint16 || len(b.Key) > math.MaxUint16 {
			return 0, fmt.Errorf("packed file: a name of %d and a key of %d bytes", len(b.Name), len(b.Key))
		}
		size += 2 + len(b.Name) + 2 + len(b.Key) + 20
	}
	le := binary.LittleEndian
	index := make([]byte, 0, size)
	at := int64(header + size)
	end := at
	for _, b := range blobs {
		at = (end + page - 1) / page * page
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return 0, err
		}
		out := bufio.NewWriterSize(f, 1<<18)
		c := &counter{w: out}
		if _, err := b.Form.WriteTo(c); err != nil {
			return 0, err
		}
		if err := out.Flush(); err != nil {
			return 0, err
		}
		for _, s := range []string{b.Name, b.Key} {
			index = append(le.AppendUint16(index, uint16(len(s))), s...)
		}
		index = le.AppendUint64(index, uint64(at))
		index = le.AppendUint64(index, uint64(c.n))
		index = le.AppendUint32(index, c.crc)
		end = at + c.n
	}
	head := make([]byte, header)
	copy(head, magic)
	le.PutUint32(head[8:], version)
	le.PutUint32(head[12:], uint32(len(blobs)))
	copy(head[16:], id[:])
	le.PutUint64(head[48:], uint64(len(index)))
	le.PutUint32(head[56:], crc32.Checksum(index, castagnoli))
	le.PutUint32(head[60:], crc32.Checksum(head[:60], castagnoli))
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	if _, err := f.Write(append(head, index...)); err != nil {
		return 0, err
	}
	return end, nil
}
