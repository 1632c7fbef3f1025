package qgemm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// The form of packed weights on disk, little-endian:
//
//	0   8   magic "TESSPKQ\n"
//	8   4   layout (packLayout)
//	12  12  name of the block format, zeros behind it
//	24  8   N
//	32  8   K
//	40  8   bytes of a panel
//	48  16  zeros
//	64      panels
//
// Panels start on a cache line if the form does, so that mapped bytes serve kernels as they are. There is no check sum: it is for whoever keeps forms.
const (
	packMagic = "TESSPKQ\n"
	packStart = mem.Align
)

// packLayout names the order of bits and scales in panels (format.go). It is raised with every change of them.
const packLayout = 1

// WriteTo writes the form that View reads.
func (p *Packed) WriteTo(w io.Writer) (int64, error) {
	if p.data == nil {
		return 0, errors.New("qgemm: the weight is closed, or not packed")
	}
	h := make([]byte, packStart)
	copy(h, packMagic)
	le := binary.LittleEndian
	le.PutUint32(h[8:], packLayout)
	copy(h[12:24], p.typ.String())
	le.PutUint64(h[24:], uint64(p.n))
	le.PutUint64(h[32:], uint64(p.k))
	le.PutUint64(h[40:], uint64(p.g.size))
	n, err := w.Write(h)
	if err != nil {
		return int64(n), err
	}
	m, err := w.Write(p.data)
	return int64(n) + int64(m), err
}

// View uses a form that WriteTo wrote, in place: data must stay unchanged while the result is used.
func View(data []byte) (*Packed, error) {
	fail := func(format string, args ...any) (*Packed, error) {
		return nil, fmt.Errorf("qgemm: packed weights: "+format, args...)
	}
	if len(data) < packStart || string(data[:8]) != packMagic {
		return fail("not in the form of qgemm")
	}
	le := binary.LittleEndian
	if v := le.Uint32(data[8:]); v != packLayout {
		return fail("layout %d, this library has %d: pack the weights again", v, packLayout)
	}
	name := string(bytes.TrimRight(data[12:24], "\x00"))
	typ, err := tensor.ParseDType(name)
	f := formats[typ]
	if err != nil || f == nil {
		return fail("no packed form of %q", name)
	}
	n, k := le.Uint64(data[24:]), le.Uint64(data[32:])
	if n < 1 || n > uint64(len(data)) || k > uint64(8*len(data)) { // no format has less than a bit an element
		return fail("%d x %d elements in %d bytes", n, k, len(data))
	}
	p := &Packed{typ: typ, n: int(n), k: int(k), panels: (int(n) + nr - 1) / nr}
	if p.g, err = newGeometry(f, p.k); err != nil {
		return nil, err
	}
	size, ok := mem.Mul(p.panels, p.g.size)
	if !ok || le.Uint64(data[40:]) != uint64(p.g.size) || size != len(data)-packStart {
		return fail("%d bytes for %d x %d elements of %v", len(data), n, k, p.typ)
	}
	p.data = data[packStart:]
	return p, nil
}
