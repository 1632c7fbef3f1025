package gemm

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// Options are the choices of one call. The zero value, and a nil pointer, mean: all processors, scratch memory from the pool,
// the best instruction set, C overwritten.
type Options struct {
	Threads    int        // workers at most; 0 means GOMAXPROCS
	Workspace  *Workspace // the caller's scratch memory
	ISA        cpuinfo.ISA
	Accumulate bool // add to C instead of overwriting it
}

func (o *Options) threads() int {
	if o == nil || o.Threads <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return o.Threads
}

// isa returns the level to use; the error of a bad pin is reported by resolve.
func (o *Options) isa() cpuinfo.ISA {
	pinned, _ := cpuinfo.Pinned()
	if o == nil || o.ISA == 0 {
		return pinned
	}
	return o.ISA
}

// Mul computes C = A B, or C += A B with Accumulate. C must not share memory with A or B, and is not touched when an error is
// returned. With K = 0 the product is zero.
func Mul(c, a, b Matrix, o *Options) error {
	if err := b.check("B"); err != nil {
		return err
	}
	return multiply(c, a, b, nil, o)
}

// MulPacked computes C = A B with packed weights: the same bits as Mul.
func MulPacked(c, a Matrix, b *PackedB, o *Options) error {
	if b == nil || b.data == nil && b.N != 0 && b.K != 0 {
		return errors.New("gemm: the packed B is nil or closed")
	}
	return multiply(c, a, Matrix{Rows: b.K, Cols: b.N, typ: b.f.elem}, b, o)
}

func multiply(c, a, b Matrix, pb *PackedB, o *Options) error {
	if _, err := cpuinfo.Pinned(); err != nil {
		return err
	}
	if err := a.check("A"); err != nil {
		return err
	}
	if err := c.check("C"); err != nil {
		return err
	}
	if a.Cols != b.Rows || c.Rows != a.Rows || c.Cols != b.Cols {
		return fmt.Errorf("gemm: C is %d x %d, A %d x %d, B %d x %d: want C[M,N] = A[M,K] B[K,N]", c.Rows, c.Cols, a.Rows, a.Cols,
			b.Rows, b.Cols)
	}
	if !c.distinct() {
		return fmt.Errorf("gemm: C is %d x %d with strides %d, %d: elements share memory", c.Rows, c.Cols, c.RowStride, c.ColStride)
	}
	if c.overlaps(&a) {
		return errors.New("gemm: C overlaps A")
	}
	if pb == nil && c.overlaps(&b) {
		return errors.New("gemm: C overlaps B")
	}
	if c.Rows == 0 || c.Cols == 0 {
		return nil
	}
	if c.Cols == 1 {
		c.ColStride = 1
	}
	if c.ColStride != 1 {
		if pb != nil || c.RowStride != 1 {
			return fmt.Errorf("gemm: C has column stride %d, want 1", c.ColStride)
		}
		// C^T = B^T A^T has row-major C.
		c, a, b = c.T(), b.T(), a.T()
	}
	var kern *kernel
	var err error
	if pb != nil {
		kern, err = kernelFor(pb.f, o.isa())
	} else {
		kern, err = pick(a.typ, b.typ, o.isa())
	}
	if err != nil {
		return err
	}
	acc := o != nil && o.Accumulate
	if a.Cols == 0 {
		if !acc {
			zero(&c)
		}
		return nil
	}
	var w *Workspace
	if o != nil && o.Workspace != nil {
		w = o.Workspace
		if !w.busy.TryLock() {
			return errors.New("gemm: the workspace is in use by another call")
		}
		defer w.busy.Unlock()
	} else {
		w = takeWorkspace()
		defer giveWorkspace(w)
	}
	p := &w.prod
	p.kern, p.kn = kern, readKnobs()
	p.m, p.n, p.k = c.Rows, c.Cols, a.Cols
	p.a, p.b, p.c, p.pb, p.pa = a, b, c, pb, nil
	p.threads, p.acc = o.threads(), acc
	err = p.run(w)
	p.a, p.b, p.c, p.pb = Matrix{}, Matrix{}, Matrix{}, nil
	return err
}

// kernelFor returns the kernel that reads a format.
func kernelFor(f format, isa cpuinfo.ISA) (*kernel, error) {
	in := cpuinfo.Get()
	for _, k := range allKernels {
		if k.b == f && k.isa <= isa && in.Has(k.isa) && (k.need == nil || k.need(&in.Features)) {
			return k, nil
		}
	}
	return nil, fmt.Errorf("gemm: B was packed as %v, which no kernel of %v reads: pack it again here", f, isa)
}

func zero(c *Matrix) {
	for i := range c.Rows {
		row := c.bytes(i)
		clear(row)
	}
}

func errTooLarge(m, n, k int) error {
	return fmt.Errorf("gemm: product of %d x %d x %d (M x N x K): packed size %w", m, n, k, mem.ErrOverflow)
}
