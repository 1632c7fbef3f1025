package qgemm

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/tensor"
)

// Packed is a weight in panels, or one whose rows lie where they are and are brought into panels while a product reads them. It is
// immutable and may be used by several goroutines at once.
type Packed struct {
	typ     tensor.DType
	n, k    int
	g       geometry
	panels  int
	data    []byte // the panels; nil for rows
	rows    rows
	mapping *mem.Mapping
}

// rows are those of W: size bytes each, of whole blocks, pitch apart.
type rows struct {
	data        []byte
	pitch, size int
}

// Type returns the block format.
func (p *Packed) Type() tensor.DType { return p.typ }

// N returns the rows of W, the columns of C.
func (p *Packed) N() int { return p.n }

// K returns the elements of a row.
func (p *Packed) K() int { return p.k }

// Bytes returns the size of the panels, also of those that have not been made.
func (p *Packed) Bytes() int { return p.panels * p.g.size }

// Close releases the memory. The weight must not be used afterwards.
func (p *Packed) Close() error {
	p.data, p.rows = nil, rows{}
	if p.mapping == nil {
		return nil
	}
	return p.mapping.Close()
}

// Options change how a call runs. The zero value is the default.
type Options struct {
	Threads int // workers; 0 means GOMAXPROCS
	// Progress is called by Pack, from one goroutine at a time, with the panels done and their total.
	Progress func(done, total int)
	// Release is called by Pack with rows that are packed and not needed any more, so that pages of a mapped file can be given back.
	Release func(rows []byte)
}

// Rows returns a weight that is not packed: rows of W lie rowBytes apart in data, each of whole blocks of the type, and must stay there.
// A product brings the panels that it reads into scratch memory, so the first one need not wait for all to be packed, and each takes longer
// than with a packed weight by the time for that. The bits of results are the same.
func Rows(typ tensor.DType, data []byte, rowBytes, n, k int) (*Packed, error) {
	f := formats[typ]
	if f == nil {
		return nil, fmt.Errorf("qgemm: no packed form of %v", typ)
	}
	g, err := newGeometry(f, k)
	if err != nil {
		return nil, err
	}
	row := k / typ.Block() * typ.Size()
	span, ok := mem.Mul(n-1, rowBytes)
	end, ok2 := mem.Add(span, row)
	if n < 1 || rowBytes < row || !ok || !ok2 || end > len(data) {
		return nil, fmt.Errorf("qgemm: %d rows of %d bytes, %d apart, do not fit %d bytes", n, row, rowBytes, len(data))
	}
	p := &Packed{typ: typ, n: n, k: k, g: g, panels: (n + nr - 1) / nr, rows: rows{data[:end:end], rowBytes, row}}
	if _, ok := mem.Mul(p.panels, g.size); !ok {
		return nil, fmt.Errorf("qgemm: %d panels of %d bytes: %w", p.panels, g.size, mem.ErrOverflow)
	}
	return p, nil
}

// Pack repacks a weight. Rows of W lie rowBytes apart in data, each of whole blocks of the type.
func Pack(typ tensor.DType, data []byte, rowBytes, n, k int, o *Options) (*Packed, error) {
	p, err := Rows(typ, data, rowBytes, n, k)
	if err != nil {
		return nil, err
	}
	return p.Pack(o)
}

// Pack packs the rows of a weight that Rows returned, which stays as it is.
func (p *Packed) Pack(o *Options) (*Packed, error) {
	if o == nil {
		o = &Options{}
	}
	q, err := p.unfilled()
	if err != nil {
		return nil, err
	}
	p.fill(q, 0, p.panels, o)
	return q, nil
}

// unfilled returns memory for the panels of a weight of rows.
func (p *Packed) unfilled() (*Packed, error) {
	if p.rows.data == nil {
		return nil, fmt.Errorf("qgemm: the weight has no rows: it is packed or closed")
	}
	q := &Packed{typ: p.typ, n: p.n, k: p.k, g: p.g, panels: p.panels}
	var err error
	if q.mapping, err = mem.Piece(p.Bytes()); err != nil {
		return nil, err
	}
	q.data = q.mapping.Data()
	return q, nil
}

// fill packs panels first to end-1 of a weight of rows into q.
func (p *Packed) fill(q *Packed, first, end int, o *Options) {
	// Panels are handed out in runs, so that progress and the release of pages move through the file from front to back.
	const run = 64
	for from := first; from < end; from += run {
		to := min(from+run, end)
		source := p.rows.of(from, to)
		mem.Advise(source, mem.Populate)
		mem.Touch(q.data[from*p.g.size : to*p.g.size])
		par.Run(o.Threads, to-from, &packTask{rows: p, to: q, first: from})
		if o.Release != nil {
			o.Release(source)
		}
		if o.Progress != nil {
			o.Progress(to, p.panels)
		}
	}
}

// of returns the bytes of the rows of panels.
func (r *rows) of(from, to int) []byte {
	return r.data[from*nr*r.pitch : min(to*nr*r.pitch, len(r.data))]
}

type packTask struct {
	rows, to *Packed
	first    int
}

func (t *packTask) Do(_, job int) {
	t.rows.packPanel(t.to.data[(t.first+job)*t.to.g.size:][:t.to.g.size], t.first+job)
}

// packPanel packs one panel of a weight of rows. Places without a source keep what they hold.
func (p *Packed) packPanel(dst []byte, panel int) {
	r := &p.rows
	if (panel+1)*nr <= p.n && r.pitch <= math.MaxInt32/nr {
		if pack := archPack(p.typ); pack != nil {
			var offsets [nr]int32
			for j := range offsets {
				offsets[j] = int32(j * r.pitch)
			}
			for k0 := 0; k0 < p.k; k0 += callK {
				b := k0 / p.typ.Block()
				pack(unsafe.Pointer(&dst[k0/p.g.elems*p.g.group]), unsafe.Pointer(&r.data[panel*nr*r.pitch+b*p.typ.Size()]), &offsets,
					min(callK, p.k-k0)/p.typ.Block())
			}
			return
		}
	}
	var list [nr][]byte
	for j := range list {
		if i := panel*nr + j; i < p.n {
			list[j] = r.data[i*r.pitch:][:r.size]
		}
	}
	if fast := fastPack[p.typ]; fast != nil {
		fast(&p.g, dst, &list)
		return
	}
	packPanel(&p.g, p.typ, dst, &list)
}

// stage packs panels of a weight of rows into scratch memory. What it holds stays in lanes without a row, whose sums are not stored, and in the
// unused half of a last group, which is not read.
func (p *Packed) stage(scratch unsafe.Pointer, first, panels int) {
	size := p.g.size
	dst := unsafe.Slice((*byte)(scratch), panels*size)
	for i := range panels {
		p.packPanel(dst[i*size:][:size], first+i)
	}
}

// packPanel is the general way: blocks are taken apart and put together again.
func packPanel(g *geometry, typ tensor.DType, dst []byte, rows *[nr][]byte) {
	f := g.f
	block, size := typ.Block(), typ.Size()
	subs := block / f.block
	var w [superK / unit][unitSize]byte
	var e exploded
	for b := 0; b < g.k/block; b++ {
		at0, in := g.place(b)
		to := dst[at0:][:g.group]
		for j, row := range rows {
			if row == nil {
				for u := range w {
					for i := 0; i < unit; i++ {
						w[u][at(i, j)] = 0
					}
				}
				continue
			}
			e = exploded{}
			f.read(row[b*size:][:size], &e)
			for i, q := range e.q[:block] {
				w[i/unit][at(i%unit, j)] = q
			}
			binary.LittleEndian.PutUint16(to[in*halfs+2*j:], e.d)
			if f.hasMin {
				binary.LittleEndian.PutUint16(to[g.m+2*j:], e.m)
			}
			if f.super {
				for s := range subs {
					to[g.sc+s*nr+j] = byte(e.sc[s])
					if f.hasMin {
						to[g.mn+s*nr+j] = byte(e.mn[s])
					}
				}
			}
		}
		for u := range block / unit {
			q := to[g.header+(in+u)*bitsSize[f.bits]:][:bitsSize[f.bits]]
			packUnit(f.bits, q, w[u][:])
		}
	}
}

// at is the place of element i of row j in an unpacked unit: groups of four k, in each the 16 rows.
func at(i, j int) int { return i/4*4*nr + 4*j + i%4 }

// fastPack holds the formats whose bits only change places: words are moved whole.
var fastPack = map[tensor.DType]func(g *geometry, dst []byte, rows *[nr][]byte){
	tensor.Q4_0:   func(g *geometry, dst []byte, rows *[nr][]byte) { packNibbles(g, dst, rows, 18, 2, false) },
	tensor.IQ4_NL: func(g *geometry, dst []byte, rows *[nr][]byte) { packNibbles(g, dst, rows, 18, 2, false) },
	tensor.Q4_1:   func(g *geometry, dst []byte, rows *[nr][]byte) { packNibbles(g, dst, rows, 20, 4, true) },
	tensor.Q8_0:   packBytes,
	tensor.Q4_K:   packQ4K,
	tensor.Q6_K:   packQ6K,
}

func word(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// packNibbles moves the 16 bytes of nibbles of each block, which already pair k with k+16, as four words.
func packNibbles(g *geometry, dst []byte, rows *[nr][]byte, size, from int, min bool) {
	for j, row := range rows {
		if row == nil {
			continue
		}
		for b := 0; b < g.k/unit; b++ {
			src := row[b*size:][:size]
			at, in := g.place(b)
			to := dst[at:][:g.group]
			copy(to[in*halfs+2*j:][:2], src)
			if min {
				copy(to[g.m+2*j:][:2], src[2:])
			}
			q := to[g.header+in*bitsSize[u4]+4*j:][:3*4*nr+4]
			n := src[from:][:16]
			binary.LittleEndian.PutUint32(q, word(n))
			binary.LittleEndian.PutUint32(q[64:], word(n[4:]))
			binary.LittleEndian.PutUint32(q[128:], word(n[8:]))
			binary.LittleEndian.PutUint32(q[192:], word(n[12:]))
		}
	}
}

func packBytes(g *geometry, dst []byte, rows *[nr][]byte) {
	for j, row := range rows {
		if row == nil {
			continue
		}
		for b := 0; b < g.k/unit; b++ {
			src := row[b*34:][:34]
			at, in := g.place(b)
			to := dst[at:][:g.group]
			copy(to[in*halfs+2*j:][:2], src)
			q := to[g.header+in*unitSize+4*j:][:7*4*nr+4]
			for i := range 8 {
				binary.LittleEndian.PutUint32(q[64*i:], word(src[2+4*i:])^0x80808080)
			}
		}
	}
}

// packQ4K splits the nibbles of 64 elements, which pair k with k+32, into two units that pair k with k+16.
func packQ4K(g *geometry, dst []byte, rows *[nr][]byte) {
	const low = 0x0f0f0f0f
	var e exploded
	for j, row := range rows {
		if row == nil {
			continue
		}
		for b := 0; b < g.k/superK; b++ {
			src := row[b*144:][:144]
			to := dst[b*g.group:][:g.group]
			copy(to[2*j:][:2], src)
			copy(to[g.m+2*j:][:2], src[2:])
			scaleMin(src[4:16], &e)
			for s := range 8 {
				to[g.sc+s*nr+j], to[g.mn+s*nr+j] = byte(e.sc[s]), byte(e.mn[s])
			}
			for h := range 4 {
				n := src[16+32*h:][:32]
				q := to[g.header+2*h*bitsSize[u4]+4*j:][:bitsSize[u4]+3*4*nr+4]
				for i := range 4 {
					x, y := word(n[4*i:]), word(n[16+4*i:])
					binary.LittleEndian.PutUint32(q[64*i:], x&low|y&low<<4)
					binary.LittleEndian.PutUint32(q[bitsSize[u4]+64*i:], x>>4&low|y&^low)
				}
			}
		}
	}
}

// packQ6K does the same for six bits: ql pairs k with k+64, qh holds the upper pairs of k, k+32, k+64 and k+96.
func packQ6K(g *geometry, dst []byte, rows *[nr][]byte) {
	const low, two = 0x0f0f0f0f, 0x03030303
	for j, row := range rows {
		if row == nil {
			continue
		}
		for b := 0; b < g.k/superK; b++ {
			src := row[b*210:][:210]
			to := dst[b*g.group:][:g.group]
			copy(to[2*j:][:2], src[208:])
			for s := range 16 {
				to[g.sc+s*nr+j] = src[192+s]
			}
			for h := range 2 {
				ql, qh := src[64*h:][:64], src[128+32*h:][:32]
				for u := range 4 { // 32 elements: nibbles of ql at 32*(u&1), shift 4*(u/2); pairs of qh at shift 2u
					q := to[g.header+(4*h+u)*bitsSize[u6]:][:bitsSize[u6]]
					n := ql[32*(u&1):][:32]
					shift := 4 * (u / 2)
					var lower, upper uint32
					for i := range 4 {
						x, y := word(n[4*i:])>>shift&low, word(n[16+4*i:])>>shift&low
						binary.LittleEndian.PutUint32(q[64*i+4*j:], x|y<<4)
						lower |= word(qh[4*i:]) >> (2 * u) & two << (2 * i)
						upper |= word(qh[16+4*i:]) >> (2 * u) & two << (2 * i)
					}
					binary.LittleEndian.PutUint32(q[256+4*j:], lower)
					binary.LittleEndian.PutUint32(q[320+4*j:], upper)
				}
			}
		}
	}
}
