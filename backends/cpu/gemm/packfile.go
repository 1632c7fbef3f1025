package gemm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
)

// The form of packed weights on disk, version 1, little-endian:
//
//	0   8   magic "TESSPKB\n"
//	8   4   version
//	12  1   element type (Type), 1 byte bits of k in a group, 2 bytes columns of a panel
//	16  8   N
//	24  8   K
//	32  8   bytes between panels
//	40  8   bytes of panels
//	48  8   number of column sums (int32), which follow the panels
//	56  4   CRC-32C of panels and sums
//	60  4   CRC-32C of the 60 bytes before
//	4096    panels, then sums
//
// Panels start on a page, so that a mapped file serves kernels as it is.
const (
	packMagic   = "TESSPKB\n"
	packVersion = 1
	packStart   = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *PackedB) header() []byte {
	h := make([]byte, packStart)
	copy(h, packMagic)
	le := binary.LittleEndian
	le.PutUint32(h[8:], packVersion)
	h[12], h[13] = byte(p.f.elem), byte(p.f.kr)
	le.PutUint16(h[14:], uint16(p.f.nr))
	le.PutUint64(h[16:], uint64(p.n))
	le.PutUint64(h[24:], uint64(p.k))
	le.PutUint64(h[32:], uint64(p.stride))
	le.PutUint64(h[40:], uint64(len(p.data)))
	le.PutUint64(h[48:], uint64(len(p.sums)))
	crc := crc32.Update(0, castagnoli, p.data)
	crc = crc32.Update(crc, castagnoli, sumsBytes(p.sums))
	le.PutUint32(h[56:], crc)
	le.PutUint32(h[60:], crc32.Checksum(h[:60], castagnoli))
	return h
}

// sumsBytes gives the little-endian bytes of sums.
func sumsBytes(sums []int32) []byte {
	b := make([]byte, 4*len(sums))
	for i, v := range sums {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
	}
	return b
}

// WriteTo writes the packed weights in the form that OpenPackedB maps. The file holds for any processor with a kernel of the
// same format (see Format).
func (p *PackedB) WriteTo(w io.Writer) (int64, error) {
	if p.data == nil && p.n != 0 {
		return 0, errClosed
	}
	var n int64
	for _, b := range [][]byte{p.header(), p.data, sumsBytes(p.sums)} {
		m, err := w.Write(b)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// ViewPackedB uses bytes that WriteTo wrote, in place: data must stay unchanged and mapped while the result is used. verify
// also checks the sum over the weights, which reads them all; the header is always checked. data should start on a multiple of
// 64 bytes for full speed.
func ViewPackedB(data []byte, verify bool) (*PackedB, error) {
	fail := func(format string, args ...any) (*PackedB, error) {
		return nil, fmt.Errorf("gemm: packed weights: "+format, args...)
	}
	if len(data) < packStart {
		return fail("%d bytes, a header has %d", len(data), packStart)
	}
	if string(data[:8]) != packMagic {
		return fail("not a file of packed weights")
	}
	le := binary.LittleEndian
	if v := le.Uint32(data[8:]); v != packVersion {
		return fail("version %d, this library reads %d", v, packVersion)
	}
	if le.Uint32(data[60:]) != crc32.Checksum(data[:60], castagnoli) {
		return fail("the header is damaged")
	}
	p := &PackedB{f: format{Type(data[12]), int(le.Uint16(data[14:])), int(data[13])}}
	n, k := le.Uint64(data[16:]), le.Uint64(data[24:])
	if n > uint64(maxInt) || k > uint64(maxInt) {
		return fail("dimensions %d x %d do not fit", k, n)
	}
	p.n, p.k = int(n), int(k)
	known := false
	for _, k := range allKernels {
		known = known || k.b == p.f
	}
	if !known {
		return fail("format %v, which no kernel here reads: pack the weights again", p.f)
	}
	panels, total, ok := p.layout()
	sums := 0
	if p.f.elem == S8 {
		sums = panels * p.f.nr
	}
	end, ok2 := mem.Add(packStart, total, 4*sums)
	if !ok || !ok2 || uint64(p.stride) != le.Uint64(data[32:]) || uint64(total) != le.Uint64(data[40:]) || uint64(sums) != le.Uint64(data[48:]) {
		return fail("sizes in the header disagree with %d x %d in format %v", p.k, p.n, p.f)
	}
	if len(data) != end {
		return fail("%d bytes, want %d", len(data), end)
	}
	if verify && crc32.Checksum(data[packStart:], castagnoli) != le.Uint32(data[56:]) {
		return fail("the weights are damaged: their check sum is wrong")
	}
	p.data = data[packStart : packStart+total : packStart+total]
	if sums > 0 {
		p.sums = make([]int32, sums)
		for i := range p.sums {
			p.sums[i] = int32(le.Uint32(data[packStart+total+4*i:]))
		}
	}
	return p, nil
}

// OpenPackedB maps a file that WriteTo wrote, read-only; Close unmaps it. verify as in ViewPackedB. A product that reads a file which has been cut short
// meanwhile returns an error, and may have written some of C.
func OpenPackedB(path string, verify bool) (p *PackedB, err error) {
	m, err := mem.File(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	defer mem.Caught(mem.Catch(), &err)
	if p, err = ViewPackedB(m.Data(), verify); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	own(p, &p.storage, m)
	p.file = true
	return p, nil
}

// ReadPackedB reads and verifies packed weights of at most limit bytes into memory of its own.
func ReadPackedB(r io.Reader, limit int) (*PackedB, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(min(limit, math.MaxInt-1))+1))
	if err != nil {
		return nil, err
	}
	if len(data) > limit {
		return nil, fmt.Errorf("gemm: packed weights of more than %d bytes", limit)
	}
	aligned := mem.Bytes(len(data))
	copy(aligned, data)
	return ViewPackedB(aligned, true)
}
