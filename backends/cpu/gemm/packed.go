package gemm

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// PackedB holds an operand B (weights) in the order of one kernel format. It is read-only and may be used by any number of
// goroutines at once. A panel holds all of k, so that the blocking of a later call is free. bf16 and f16 weights stay two
// bytes an element.
type PackedB struct {
	f      format
	n, k   int
	stride int     // bytes between panels
	data   []byte  // the panels
	sums   []int32 // s8: the sum of each column, with which the offset of A is taken out again
	storage
}

// storage is memory that may lie outside the Go heap.
type storage struct {
	mapped  *mem.Mapping
	file    bool // mapped is a file, which may be cut short
	cleanup runtime.Cleanup
}

// panelSkew keeps the chunks of neighbouring panels off the same sets of L2: with a stride that is a multiple of a large power
// of two, all of them would share a fraction of it.
const panelSkew = 9 * 64

// PackB packs b, K x N of any strides, for products on this processor at the instruction level of o (which may be nil).
// For b in s8, A may be s8 or u8; for f32, bf16 and f16 it may be any of those three.
func PackB(b Matrix, o *Options) (*PackedB, error) {
	if err := b.check("B"); err != nil {
		return nil, err
	}
	f, err := packFormat(b.typ, o)
	if err != nil {
		return nil, err
	}
	return packB(b, f, o)
}

// packB packs a checked b in a format.
func packB(b Matrix, f format, o *Options) (*PackedB, error) {
	p, panels, err := unfilledB(b, f)
	if err != nil {
		return nil, err
	}
	p.fill(b, 0, panels, o)
	return p, nil
}

// unfilledB returns memory for the packed form of a checked b, and the number of panels.
func unfilledB(b Matrix, f format) (p *PackedB, panels int, err error) {
	p = &PackedB{n: b.Cols, k: b.Rows, f: f}
	panels, total, ok := p.layout()
	if !ok {
		return nil, 0, fmt.Errorf("gemm: packing B of %d x %d: size %w", p.k, p.n, mem.ErrOverflow)
	}
	if p.data, err = allocate(p, &p.storage, total); err != nil {
		return nil, 0, fmt.Errorf("gemm: packing B of %d x %d: %w", p.k, p.n, err)
	}
	if b.typ == S8 {
		p.sums = make([]int32, panels*p.f.nr)
	}
	return p, panels, nil
}

// fill packs panels first to end-1 of b.
func (p *PackedB) fill(b Matrix, first, end int, o *Options) {
	if p.k == 0 {
		return
	}
	// With columns that lie behind one another panels are handed out in runs, so that the release of pages moves through a file from front to back.
	run := max(end-first, 1)
	release := o != nil && o.Release != nil && b.RowStride == 1 && b.ColStride == b.Rows
	if release {
		run = max(releaseBytes/p.stride, 1)
	}
	for from := first; from < end; from += run {
		to := min(from+run, end)
		mem.Touch(p.data[from*p.stride : to*p.stride])
		par.Run(o.threads(), to-from, &packJob{p, b, from})
		if release {
			last := min(to*p.f.nr, p.n) - 1
			size := b.typ.Size()
			o.Release(unsafe.Slice((*byte)(b.at(0, from*p.f.nr)), (last+1-from*p.f.nr)*b.Rows*size))
		}
	}
}

// releaseBytes is how much of B is packed before it is released.
const releaseBytes = 4 << 20

// packFormat returns the format that PackB gives weights of a type.
func packFormat(typ Type, o *Options) (format, error) {
	a := F32
	if typ == S8 {
		a = S8
	}
	isa, err := o.isa()
	if err != nil {
		return format{}, err
	}
	e, err := engineFor(isa, a, typ, format{}, Auto)
	return e.pack, err
}

// PackFormat returns the name of the layout that PackB gives weights of a type, as Format does: kept weights of another one should be packed again.
func PackFormat(typ Type, o *Options) (string, error) {
	f, err := packFormat(typ, o)
	return f.String(), err
}

// layout sets the stride and returns the number of panels and the bytes of all.
func (p *PackedB) layout() (panels, total int, ok bool) {
	panels = ceilDiv(p.n, p.f.nr)
	bytes, ok1 := mem.Mul(ceilDiv(p.k, p.f.kr), p.f.step())
	bytes, ok2 := mem.Add(bytes, panelSkew)
	bytes, ok3 := mem.RoundUp(bytes, mem.Align)
	total, ok4 := mem.Mul(bytes, panels)
	p.stride = bytes
	return panels, total, ok1 && ok2 && ok3 && ok4
}

// allocate returns n bytes aligned to 64, outside the heap when they are many; then the owner's end releases them.
func allocate[T any](owner *T, b *storage, n int) ([]byte, error) {
	if n < mapFrom {
		return mem.Bytes(n), nil
	}
	m, err := mem.Piece(n)
	if err != nil {
		return nil, err
	}
	own(owner, b, m)
	return m.Data(), nil
}

// own ties a mapping to its owner.
func own[T any](owner *T, b *storage, m *mem.Mapping) {
	b.mapped = m
	b.cleanup = runtime.AddCleanup(owner, func(m *mem.Mapping) { m.Close() }, m)
}

func (b *storage) release() error {
	if b.mapped == nil {
		return nil
	}
	b.cleanup.Stop()
	m := b.mapped
	b.mapped = nil
	return m.Close()
}

type packJob struct {
	p     *PackedB
	b     Matrix
	first int // panel
}

func (j *packJob) Do(_, job int) {
	p, panel := j.p, j.first+job
	packPanelB(p.addr(panel, 0), &j.b, p.f, panel*p.f.nr, 0, p.k)
	if p.sums != nil {
		columnSums(unsafe.Pointer(&p.sums[panel*p.f.nr]), p.addr(panel, 0), p.f, p.k)
	}
}

// addr returns where the step that holds k begins in a panel.
func (p *PackedB) addr(panel, k int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(p.data)), panel*p.stride+k/p.f.kr*p.f.step())
}

// Dims returns K and N.
func (p *PackedB) Dims() (k, n int) { return p.k, p.n }

// Type returns the type of the elements.
func (p *PackedB) Type() Type { return p.f.elem }

// Format names the layout: type, columns of a panel, k of a group.
func (p *PackedB) Format() string { return p.f.String() }

// Bytes returns the memory that the packed operand takes.
func (p *PackedB) Bytes() int { return len(p.data) + 4*len(p.sums) }

// Close releases the memory; no product may use it any more. Without Close the garbage collector releases it.
func (p *PackedB) Close() error {
	p.data, p.sums = nil, nil
	return p.release()
}

// PackedA holds an operand A in the order of one kernel. It serves products whose A is the constant.
type PackedA struct {
	kern *kernel
	typ  Type // before packing: it decides on the offset
	m, k int
	data []byte
	rows []int32 // int8: what the sums of each row start from
	storage
}

// PackA packs a, M x K of any strides, for products by a B of type b at the instruction level of o (which may be nil).
func PackA(a Matrix, b Type, o *Options) (*PackedA, error) {
	if err := a.check("A"); err != nil {
		return nil, err
	}
	isa, err := o.isa()
	if err != nil {
		return nil, err
	}
	e, err := engineFor(isa, a.typ, b, format{}, o.bf16())
	if err != nil {
		return nil, err
	}
	return packA(a, e.ofA())
}

// packA packs a checked a for a kernel.
func packA(a Matrix, kern *kernel) (*PackedA, error) {
	var err error
	p := &PackedA{kern: kern, typ: a.typ, m: a.Rows, k: a.Cols}
	cut := product{kern: p.kern, height: p.kern.mr}
	if p.m > 0 {
		cut.cutRows(p.m)
	}
	total, ok := mem.Mul(cut.packedRow(cut.strips), p.steps(), 4)
	if !ok {
		return nil, fmt.Errorf("gemm: packing A of %d x %d: size %w", p.m, p.k, mem.ErrOverflow)
	}
	if p.data, err = allocate(p, &p.storage, total); err != nil {
		return nil, fmt.Errorf("gemm: packing A of %d x %d: %w", p.m, p.k, err)
	}
	if p.kern.b.flip() != 0 && p.k > 0 { // rows without elements may be any number
		p.rows = make([]int32, p.m)
	}
	for s := range cut.strips {
		if total == 0 {
			break
		}
		row, h := cut.strip(s)
		dst := unsafe.Add(unsafe.Pointer(unsafe.SliceData(p.data)), cut.packedRow(s)*p.steps()*4)
		packStrip(dst, &a, p.kern, row, h, 0, p.k)
		if p.rows != nil {
			rowSums(unsafe.Pointer(&p.rows[row]), dst, p.kern, h, p.steps())
		}
	}
	return p, nil
}

func (p *PackedA) steps() int { return p.kern.packedSteps(ceilDiv(p.k, p.kern.a.kr)) }

// Dims returns M and K.
func (p *PackedA) Dims() (m, k int) { return p.m, p.k }

// Bytes returns the memory that the packed operand takes.
func (p *PackedA) Bytes() int { return len(p.data) }

// Close releases the memory; no product may use it any more. Without Close the garbage collector releases it.
func (p *PackedA) Close() error {
	p.data = nil
	return p.release()
}

var errClosed = errors.New("gemm: the packed operand is nil or closed")
