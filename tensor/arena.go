package tensor

import (
	"fmt"

	"github.com/tessera-go/tessera/internal/mem"
)

// Arena hands out aligned tensors of one buffer, one after the other. The zero value is empty; Reset makes all of it free again.
type Arena struct {
	buf  *Buffer
	used int
}

// NewArena allocates an arena of n bytes outside the Go heap where the system can.
func NewArena(n int) (*Arena, error) {
	buf, err := MapBuffer(n)
	if err != nil {
		return nil, err
	}
	return &Arena{buf: buf}, nil
}

// Alloc returns a contiguous tensor whose content is undefined, or an error when the arena is full.
func (a *Arena) Alloc(s Spec) (Tensor, error) {
	if err := s.Check(); err != nil {
		return Tensor{}, err
	}
	start, ok1 := mem.RoundUp(a.used, mem.Align)
	end, ok2 := mem.Add(start, s.Bytes())
	if !ok1 || !ok2 || a.buf == nil || end > len(a.buf.data) {
		return Tensor{}, fmt.Errorf("arena: %v needs %d bytes, %d of %d are used", s, s.Bytes(), a.used, a.Cap())
	}
	a.used = end
	return Tensor{Spec: s, Strides: s.Contiguous(), Buf: a.buf, Off: start}, nil
}

// Cap returns the arena's bytes.
func (a *Arena) Cap() int {
	if a.buf == nil {
		return 0
	}
	return len(a.buf.data)
}

// Used returns the bytes handed out, gaps for alignment included.
func (a *Arena) Used() int { return a.used }

// Reset frees all tensors of the arena at once.
func (a *Arena) Reset() { a.used = 0 }

// Close releases the memory.
func (a *Arena) Close() error {
	if a.buf == nil {
		return nil
	}
	return a.buf.Close()
}
