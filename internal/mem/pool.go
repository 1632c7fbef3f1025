package mem

import (
	"sync"
	"unsafe"
)

// poolSize is the size of the mappings that Pooled cuts up: many times a huge page.
const poolSize = 32 << 20

// poolAlign separates the pieces of a pool: whole pages can be given back.
const poolAlign = 4096

var pools struct {
	sync.Mutex
	current *pool
}

// A pool is a mapping that several owners have pieces of.
type pool struct {
	raw  []byte
	used int
	live int // pieces not closed
}

// Pooled returns n zeroed bytes as Anonymous does, but pieces of some size share a mapping: the system gives it huge pages, so that
// filling it costs hundreds of page faults less for each piece. It is for memory that is written whole, such as packed weights; what a
// huge page holds counts as used with its first byte.
func Pooled(n int) (*Mapping, error) {
	size, ok := RoundUp(n, poolAlign)
	if !ok || size < poolSize/512 || size > poolSize/4 {
		return Anonymous(n)
	}
	pools.Lock()
	defer pools.Unlock()
	p := pools.current
	if p == nil || p.used+size > len(p.raw) {
		m, err := Anonymous(poolSize)
		if err != nil || !m.Mapped() {
			return Anonymous(n)
		}
		p = &pool{raw: m.data}
		pools.current = p // the last one goes with its last piece
	}
	data := p.raw[p.used:][:n:n]
	p.used += size
	p.live++
	return &Mapping{data: data, raw: p.raw[p.used-size : p.used], pool: p}, nil
}

// release gives a piece back; its pages are free at once, the mapping when no piece is left.
func (p *pool) release(piece []byte) error {
	Advise(piece, DontNeed)
	pools.Lock()
	defer pools.Unlock()
	p.live--
	if p.live > 0 {
		return nil
	}
	if pools.current == p {
		pools.current = nil
	}
	return unmap(p.raw)
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
