package gemm

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// PackedB holds an operand B (weights) in the order of one kernel format. It is read-only and may be used by any number of
// goroutines at once. A panel holds all of k, so that the blocking of a later call is free.
type PackedB struct {
	N, K    int
	f       format
	stride  int // bytes between panels
	data    []byte
	mapped  *mem.Mapping
	cleanup runtime.Cleanup
}

// panelSkew keeps the chunks of neighbouring panels off the same sets of L2: with a stride that is a multiple of a large power
// of two, all of them would share a fraction of it.
const panelSkew = 9 * 64

// PackB packs b, K x N of any strides, for products on this processor. o may be nil; its ISA and Threads count.
func PackB(b Matrix, o *Options) (*PackedB, error) {
	if err := b.check("B"); err != nil {
		return nil, err
	}
	kern, err := pick(b.typ, b.typ, o.isa())
	if err != nil {
		return nil, err
	}
	p := &PackedB{N: b.Cols, K: b.Rows, f: kern.b}
	panels := ceilDiv(p.N, p.f.nr)
	bytes, ok1 := mem.Mul(ceilDiv(p.K, p.f.kr), p.f.step())
	bytes, ok2 := mem.Add(bytes, panelSkew)
	total, ok3 := mem.Mul(bytes, panels)
	if !ok1 || !ok2 || !ok3 {
		return nil, fmt.Errorf("gemm: packing B of %d x %d: size %w", p.K, p.N, mem.ErrOverflow)
	}
	p.stride = roundUp(bytes, mem.Align)
	if total < mapFrom {
		p.data = mem.Bytes(p.stride * panels)
	} else {
		m, err := mem.Anonymous(p.stride * panels)
		if err != nil {
			return nil, fmt.Errorf("gemm: packing B: %w", err)
		}
		p.mapped, p.data = m, m.Data()
		p.cleanup = runtime.AddCleanup(p, func(m *mem.Mapping) { m.Close() }, m)
	}
	if p.K > 0 {
		par.Run(o.threads(), panels, &packJob{p, b})
	}
	return p, nil
}

type packJob struct {
	p *PackedB
	b Matrix
}

func (j *packJob) Do(_, panel int) {
	packBPanel(j.p.addr(panel, 0), &j.b, j.p.f, panel*j.p.f.nr, 0, j.p.K)
}

// addr returns where step k0 of a panel lies.
func (p *PackedB) addr(panel, k0 int) unsafe.Pointer {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(p.data)), panel*p.stride+k0/p.f.kr*p.f.step())
}

// Bytes returns the memory that the packed operand takes.
func (p *PackedB) Bytes() int { return len(p.data) }

// Close releases the memory; no product may use it any more. Without Close it is released by the garbage collector.
func (p *PackedB) Close() error {
	p.data = nil
	if p.mapped == nil {
		return nil
	}
	p.cleanup.Stop()
	m := p.mapped
	p.mapped = nil
	return m.Close()
}

// PackedA holds an operand A in the order of one kernel.
type PackedA struct {
	M, K int
	data []byte
}

func (p *PackedA) addr(row, h, t0 int) (unsafe.Pointer, int, int) {
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(p.data)), (row*p.K+t0*h)*4), 4, 4 * h
}

// pick chooses the kernel for operands of the types at a level: the best one whose level does not exceed it.
func pick(a, b Type, isa cpuinfo.ISA) (*kernel, error) {
	in := cpuinfo.Get()
	for _, k := range allKernels {
		if k.a == a && k.b.elem == b && k.isa <= isa && in.Has(k.isa) && (k.need == nil || k.need(&in.Features)) {
			return k, nil
		}
	}
	return nil, fmt.Errorf("gemm: no kernel for %v x %v", a, b)
}

var allKernels = kernels()
