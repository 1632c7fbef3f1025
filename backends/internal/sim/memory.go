package sim

import "math/bits"

// Memory is bytes that know, by 32-bit word, whether anybody wrote them.
type Memory struct {
	Name    string
	Data    []byte
	defined []uint64 // one bit a word
}

// NewMemory returns a memory of size bytes (a multiple of 4), all undefined.
func NewMemory(name string, size int) *Memory {
	return &Memory{Name: name, Data: make([]byte, size), defined: make([]uint64, (size/4+63)/64)}
}

// WrapMemory returns a memory over the caller's bytes, all defined or all undefined. A length that is no multiple of 4 makes
// the last word partial: it can be read and written as far as it goes.
func WrapMemory(name string, data []byte, defined bool) *Memory {
	m := &Memory{Name: name, Data: data, defined: make([]uint64, (len(data)+255)/256)}
	if defined {
		for i := range m.defined {
			m.defined[i] = ^uint64(0)
		}
	}
	return m
}

// Define marks the words that hold bytes lo to hi-1 as written.
func (m *Memory) Define(lo, hi int) {
	if hi <= lo {
		return
	}
	first, last := lo/4, (hi-1)/4
	for w := first / 64; w <= last/64; w++ {
		m.defined[w] |= mask(w, first, last)
	}
}

// Undefined returns the byte address of the first word in bytes lo to hi-1 that nobody wrote, or -1.
func (m *Memory) Undefined(lo, hi int) int {
	if hi <= lo {
		return -1
	}
	first, last := lo/4, (hi-1)/4
	for w := first / 64; w <= last/64; w++ {
		if m.defined[w] == ^uint64(0) {
			continue
		}
		if miss := mask(w, first, last) &^ m.defined[w]; miss != 0 {
			return 4 * (64*w + bits.TrailingZeros64(miss))
		}
	}
	return -1
}

// Forget makes the whole memory undefined.
func (m *Memory) Forget() { clear(m.defined) }

// mask selects, in bitmap word w, the bits of words first to last.
func mask(w, first, last int) uint64 {
	b := ^uint64(0)
	if w == first/64 {
		b &= ^uint64(0) << (first % 64)
	}
	if w == last/64 {
		b &= ^uint64(0) >> (63 - last%64)
	}
	return b
}
