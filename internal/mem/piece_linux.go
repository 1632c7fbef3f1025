package mem

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// slabBytes is the least that pieces share: address space, of which pages are taken as they are touched.
const slabBytes = 32 << 20

// A slab is a mapping that starts on a huge page, and pieces of it side by side.
type slab struct {
	raw  []byte // what was mapped
	room []byte // what no piece has had
	live int    // pieces that are not closed
}

// slabs has the slab that the next piece is taken from.
var slabs struct {
	sync.Mutex
	open *slab
}

// Piece returns n zeroed bytes outside the Go heap for what stays, such as a weight. Pieces lie side by side in huge pages, also those that are
// smaller than such a page: weights of some hundred kilobytes each that are read once a run cost a product of one row a fifth of its time where they lie in
// small pages (Q8_0 on a Zen 3). Memory of a closed piece is given back, its addresses when all of their mapping are.
func Piece(n int) (*Mapping, error) {
	if n <= 0 || bits.UintSize < 64 { // where addresses are scarce
		return Anonymous(n)
	}
	size, ok := RoundUp(n, unix.Getpagesize())
	if !ok {
		return nil, fmt.Errorf("memory of %d bytes: %w", n, ErrOverflow)
	}
	slabs.Lock()
	defer slabs.Unlock()
	s := slabs.open
	if s == nil || len(s.room) < size {
		var err error
		if s, err = newSlab(size); err != nil {
			return nil, fmt.Errorf("memory of %d bytes: %w", n, err)
		}
		slabs.open = s
	}
	raw := s.room[:size:size]
	s.room = s.room[size:]
	s.live++
	return &Mapping{data: raw[:n:n], raw: raw, slab: s}, nil
}

func newSlab(least int) (*slab, error) {
	size, ok := RoundUp(max(least, slabBytes), hugePage)
	if ok {
		size, ok = Add(size, hugePage)
	}
	if !ok {
		return nil, ErrOverflow
	}
	raw, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	adviseHuge(raw)
	skip := -uintptr(unsafe.Pointer(&raw[0])) % hugePage
	return &slab{raw: raw, room: raw[skip:][:size-hugePage]}, nil
}

// release gives a piece back.
func (s *slab) release(piece []byte) error {
	slabs.Lock()
	defer slabs.Unlock()
	s.live--
	if s.live > 0 {
		return unix.Madvise(piece, unix.MADV_DONTNEED)
	}
	if s == slabs.open {
		slabs.open = nil
	}
	return unix.Munmap(s.raw)
}
