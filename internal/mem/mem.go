// Package mem decides where bytes live: 64-byte aligned memory on the Go heap, anonymous mappings outside it, files mapped
// read-only, and buffers that end at an unreadable page for tests.
package mem

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"unsafe"

	"github.com/tessera-go/tessera/internal/regular"
)

// Align is the alignment of every buffer in bytes: one cache line, and the width of the widest vector.
const Align = 64

// ErrOverflow says that a size computation does not fit an int.
var ErrOverflow = errors.New("size overflows")

// Mul multiplies non-negative sizes; ok is false on overflow or a negative factor. It is the one place where sizes are multiplied.
func Mul(factors ...int) (product int, ok bool) {
	product = 1
	zero := false
	for _, f := range factors {
		if f < 0 {
			return 0, false
		}
		if f == 0 {
			zero = true
		}
	}
	if zero {
		return 0, true
	}
	for _, f := range factors {
		hi, lo := bits.Mul(uint(product), uint(f))
		if hi != 0 || int(lo) < 0 {
			return 0, false
		}
		product = int(lo)
	}
	return product, true
}

// Add adds non-negative sizes; ok is false on overflow or a negative term.
func Add(terms ...int) (sum int, ok bool) {
	for _, t := range terms {
		if t < 0 || sum+t < sum {
			return 0, false
		}
		sum += t
	}
	return sum, true
}

// RoundUp rounds n up to a multiple of m; ok is false on overflow.
func RoundUp(n, m int) (rounded int, ok bool) {
	if n < 0 || m <= 0 {
		return 0, false
	}
	if r := n % m; r != 0 {
		return Add(n, m-r)
	}
	return n, true
}

// Bytes allocates n zeroed bytes on the Go heap whose first byte is aligned to Align.
func Bytes(n int) []byte {
	if n == 0 {
		return nil
	}
	raw := make([]byte, n+Align-1)
	skip := 0
	if r := int(uintptr(unsafe.Pointer(unsafe.SliceData(raw))) % Align); r != 0 {
		skip = Align - r
	}
	return raw[skip : skip+n : skip+n]
}

// Mapping is memory outside the Go heap. Close releases it; slices of it must not be used afterwards.
type Mapping struct {
	data []byte // the bytes asked for
	raw  []byte // what was mapped; nil when the bytes are on the heap
	file bool
	slab *slab // that the memory is a piece of, or nil
}

// Data returns the bytes. For a file they must not be written.
func (m *Mapping) Data() []byte { return m.data }

// Mapped reports whether the memory lies outside the Go heap.
func (m *Mapping) Mapped() bool { return m.raw != nil }

// Close releases the memory. A second call does nothing.
func (m *Mapping) Close() error {
	raw := m.raw
	m.data, m.raw = nil, nil
	if raw == nil {
		return nil
	}
	if m.slab != nil {
		return m.slab.release(raw)
	}
	if m.file {
		forgetFile(raw)
	}
	return unmap(raw)
}

// Anonymous returns n zeroed bytes outside the Go heap where the system can (huge pages asked for), else on the heap.
func Anonymous(n int) (*Mapping, error) {
	if n < 0 {
		return nil, fmt.Errorf("anonymous memory of %d bytes: %w", n, ErrOverflow)
	}
	if n == 0 {
		return &Mapping{}, nil
	}
	raw, err := mapAnonymous(n)
	if errors.Is(err, errors.ErrUnsupported) {
		return &Mapping{data: Bytes(n)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("anonymous memory of %d bytes: %w", n, err)
	}
	return &Mapping{data: raw[:n:n], raw: raw}, nil
}

// File maps a whole regular file read-only, or reads it where the system cannot map. A file that is cut short afterwards faults where it is read: see Catch.
func File(path string) (*Mapping, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := info.Size()
	if size != int64(int(size)) {
		return nil, fmt.Errorf("%s: %d bytes: %w", path, size, ErrOverflow)
	}
	if size == 0 {
		return &Mapping{}, nil
	}
	raw, err := mapFile(f, int(size))
	if errors.Is(err, errors.ErrUnsupported) {
		data, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		aligned := Bytes(len(data))
		copy(aligned, data)
		return &Mapping{data: aligned}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	noteFile(raw, path)
	return &Mapping{data: raw[:size:size], raw: raw, file: true}, nil
}

// Advice tells the system how mapped bytes will be used.
type Advice int

const (
	// WillNeed asks for the pages to be read in ahead of their use.
	WillNeed Advice = iota
	// DontNeed releases the pages of a file mapping: they are read again when touched.
	DontNeed
	// Populate maps the pages now, in one call instead of a fault for each few; those of a file are read.
	Populate
)

// Advise passes advice about the whole pages inside data, which lies in a Mapping. Systems without it ignore the call.
func Advise(data []byte, advice Advice) {
	page := uintptr(os.Getpagesize())
	start := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	skip := int((page - start%page) % page)
	if len(data) <= skip {
		return
	}
	whole := (len(data) - skip) / int(page) * int(page)
	if whole > 0 {
		advise(data[skip:skip+whole], advice)
	}
}

// Touch writes a zero to the first byte of each huge page that data reaches into, which must be zero or about to be overwritten. Workers that
// fill it then do not all clear the same page when they come to it first.
func Touch(data []byte) {
	const huge = 2 << 20
	for i := 0; i < len(data); {
		data[i] = 0
		i += huge - int(uintptr(unsafe.Pointer(&data[i]))%huge)
	}
}
