package gemm

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// ISA is an instruction level; the zero value means the best one, or the one that TESSERA_ISA names.
type ISA = cpuinfo.ISA

// Options are the choices of one call. The zero value, and a nil pointer, mean: all processors, scratch memory from the pool,
// the best instruction set, C overwritten, no epilogue.
type Options struct {
	Threads    int        // workers at most; 0 means GOMAXPROCS
	Workspace  *Workspace // the caller's scratch memory; it serves one call at a time
	ISA        ISA        // instruction level; B must have been packed for it
	Accumulate bool       // add to C instead of overwriting it; C is f32 or s32 and there is no epilogue
	Epilogue   *Epilogue  // what happens to each element on its way to C; only read
	AZero      int32      // integer products: the zero point of A; the product is that of A - AZero
	BF16       BF16Mode   // products of two bf16 operands: how
	Knobs      *Knobs     // thresholds; nil for those of the environment, the profile or the defaults
	// Release is called by PackB with columns of B, where they lie behind one another, that are packed and not needed any more, so that pages of a
	// mapped file can be given back.
	Release func(columns []byte)
}

func (o *Options) threads() int {
	if o == nil || o.Threads <= 0 {
		return runtime.GOMAXPROCS(0)
	}
	return o.Threads
}

func (o *Options) bf16() BF16Mode {
	if o == nil {
		return Auto
	}
	return o.BF16
}

// isa returns the level to use, or the error of a bad pin.
func (o *Options) isa() (ISA, error) {
	pinned, err := cpuinfo.Pinned()
	if err != nil {
		return pinned, fmt.Errorf("gemm: %w", err)
	}
	if o == nil || o.ISA == 0 {
		return pinned, nil
	}
	if !cpuinfo.Get().Has(o.ISA) {
		return o.ISA, fmt.Errorf("gemm: instruction level %v is not available here", o.ISA)
	}
	return o.ISA, nil
}

// Mul computes C = A B, or C += A B with Accumulate. With K = 0 the product is zero, and the epilogue applies. C must not share
// memory with A or B. When an error is returned, C has not been touched.
func Mul(c, a, b Matrix, o *Options) error {
	return multiply(&call{c: c, a: a, b: b}, o)
}

// MulPacked computes C = A B with packed weights; same bits as Mul.
func MulPacked(c, a Matrix, b *PackedB, o *Options) error {
	if b == nil || b.data == nil && b.n != 0 {
		return errClosed
	}
	return multiply(&call{c: c, a: a, b: Matrix{Rows: b.k, Cols: b.n, typ: b.f.elem}, pb: b}, o)
}

// MulPackedA computes C = A B with a packed A; same bits as Mul. C has unit column stride.
func MulPackedA(c Matrix, a *PackedA, b Matrix, o *Options) error {
	if a == nil || a.data == nil && a.m != 0 && a.k != 0 {
		return errClosed
	}
	return multiply(&call{c: c, a: Matrix{Rows: a.m, Cols: a.k, typ: a.typ}, b: b, pa: a}, o)
}

// MulPackedAB computes C = A B with both operands packed; same bits as Mul. C has unit column stride.
func MulPackedAB(c Matrix, a *PackedA, b *PackedB, o *Options) error {
	if a == nil || a.data == nil && a.m != 0 && a.k != 0 || b == nil || b.data == nil && b.n != 0 {
		return errClosed
	}
	return multiply(&call{c: c, a: Matrix{Rows: a.m, Cols: a.k, typ: a.typ}, b: Matrix{Rows: b.k, Cols: b.n, typ: b.f.elem},
		pa: a, pb: b}, o)
}

// MulAdd computes C = alpha A B + beta C in float32, as the BLAS do: with beta 0, C is not read; with alpha 0, A and B are not.
// Unless alpha is 1 and beta 0 or 1, the chain of sums is multiplied by alpha and then added to the product of beta and C.
func MulAdd(alpha float32, a, b Matrix, beta float32, c Matrix, o *Options) error {
	if c.typ != F32 {
		return fmt.Errorf("gemm: MulAdd into %v, want f32", c.typ)
	}
	if o != nil && (o.Accumulate || o.Epilogue != nil) {
		return errors.New("gemm: MulAdd takes neither Accumulate nor an epilogue")
	}
	return multiply(&call{c: c, a: a, b: b, alpha: alpha, beta: beta, scaled: true}, o)
}

// call is what the entry points have in common.
type call struct {
	c, a, b     Matrix
	pa          *PackedA
	pb          *PackedB
	alpha, beta float32
	scaled      bool
}

func multiply(x *call, o *Options) error {
	isa, err := o.isa()
	if err != nil {
		return err
	}
	kn, err := o.knobs()
	if err != nil {
		return err
	}
	var opt Options
	if o != nil {
		opt = *o
	}
	if err := x.check(&opt); err != nil {
		return err
	}
	if x.c.Rows == 0 || x.c.Cols == 0 {
		return nil
	}
	if x.pb != nil && x.pb.file {
		return x.runMapped(&opt, isa, kn)
	}
	return x.run(&opt, isa, kn)
}

// runMapped is run with weights of a mapped file, which may be cut short meanwhile.
func (x *call) runMapped(opt *Options, isa ISA, kn *knobs) (err error) {
	defer mem.Caught(mem.Catch(), &err)
	return x.run(opt, isa, kn)
}

// run computes a product that has been checked and has elements.
func (x *call) run(opt *Options, isa ISA, kn *knobs) error {
	w := opt.Workspace
	if w == nil {
		w = takeWorkspace()
	} else if !w.busy.TryLock() {
		return errors.New("gemm: the workspace is in use by another call")
	}
	defer w.release(opt.Workspace == nil) // with few ways out of the function it costs next to nothing
	return w.prod.multiply(w, x, opt, isa, kn)
}

// multiply computes a product in a workspace, whose own it is.
func (p *product) multiply(w *Workspace, x *call, opt *Options, isa ISA, kn *knobs) (err error) {
	acc := opt.Accumulate
	if x.scaled && x.alpha == 1 && (x.beta == 0 || x.beta == 1) {
		acc, x.scaled = x.beta == 1, false
	}
	key, small := keyOf(x, opt, isa, kn, acc)
	if small && key == p.last.key && p.last.size <= len(w.buf) {
		p.a, p.b, p.c, p.pb, p.epi, p.aZero = x.a, x.b, x.c, x.pb, opt.Epilogue, opt.AZero
		p.forgetPacks()
		p.computeWhole(w, p.last.row)
	} else {
		p.last.key = planKey{}
		if err = p.set(x, opt, isa, kn, acc); err != nil {
			return err
		}
		if p.k == 0 || x.scaled && x.alpha == 0 {
			err = p.empty()
		} else if err = p.run(w); small && p.last.whole && err == nil {
			p.last.key = key
		}
	}
	p.a, p.b, p.c, p.pb, p.pa, p.epi = Matrix{}, Matrix{}, Matrix{}, nil, nil, nil
	return err
}

// set takes over what a call asks for, and chooses the kernel.
func (p *product) set(x *call, opt *Options, isa ISA, kn *knobs, acc bool) error {
	if x.c.Cols == 1 {
		x.c.ColStride = 1
	}
	if x.c.ColStride != 1 && x.c.RowStride == 1 && x.pa == nil && x.pb == nil && opt.Epilogue == nil && x.a.typ == x.b.typ &&
		x.a.typ != S8 {
		// C^T = B^T A^T has a row-major C.
		x.c, x.a, x.b = x.c.T(), x.b.T(), x.a.T()
	}
	var f format
	if x.pb != nil {
		f = x.pb.f
	}
	if key := (engineKey{isa, x.a.typ, x.b.typ, f, opt.BF16}); p.engineKey != key {
		e, err := engineFor(isa, x.a.typ, x.b.typ, f, opt.BF16)
		if err != nil {
			return err
		}
		p.engine, p.engineKey = e, key
	}
	e := &p.engine
	p.kn, p.vec = kn, vecFor(isa)
	p.kern, p.bf = e.main, e.main.b
	p.widen = false
	switch {
	case e.main.a == aInner:
		if x.pa == nil && x.a.ColStride == 1 && x.c.Rows > p.kn.innerRows && x.a.Cols > p.kn.innerDepth {
			p.bf, p.widen = e.pack, true
		} else {
			p.kern, p.bf = e.low, e.pack
		}
	case e.main.tile > 0 && e.low != e.main:
		if x.pa == nil && x.c.Rows < kn.tileRows {
			p.kern = e.low
		}
	case x.pb != nil && e.main.b != e.pack:
		p.bf = e.pack
		if x.pa == nil && x.c.Rows <= p.kn.lowRows {
			p.kern = e.low
		} else {
			p.widen = true
		}
	}
	if x.pa != nil && x.pa.kern != p.kern {
		return fmt.Errorf("gemm: A was packed for the kernel %s, this product uses %s: pack it again", x.pa.kern.name, p.kern.name)
	}
	p.m, p.n, p.k = x.c.Rows, x.c.Cols, x.a.Cols
	p.a, p.b, p.c, p.pb, p.pa = x.a, x.b, x.c, x.pb, x.pa
	p.forgetPacks()
	p.threads, p.acc, p.epi, p.aZero = opt.threads(), acc, opt.Epilogue, opt.AZero
	p.alpha, p.beta, p.scaled = x.alpha, x.beta, x.scaled
	p.scratch = x.c.typ != p.kern.acc || x.c.ColStride != 1 || x.scaled || p.epi != nil && p.epi.After.typ != 0 &&
		p.epi.After.overlaps(&x.c)
	if p.scratch && acc && x.c.typ == F32 {
		p.scaled, p.alpha, p.beta = true, 1, 1
	}
	return nil
}

// forgetPacks forgets what the last product copied.
func (p *product) forgetPacks() {
	for i := range p.workers {
		p.workers[i].packs = [2]int{}
	}
}

// WorkspaceBytes returns how many bytes a new workspace holds after the product C = A B of matrices of these shapes, strides and types, of which no
// element is read: [Raw] of no bytes describes one. With pb, B is packed and the matrix b is not looked at. Where the
// epilogue adds After, that is a bound, whether or not C shares its memory.
func WorkspaceBytes(c, a, b Matrix, pb *PackedB, o *Options) (int, error) {
	isa, err := o.isa()
	if err != nil {
		return 0, err
	}
	kn, err := o.knobs()
	if err != nil {
		return 0, err
	}
	var opt Options
	if o != nil {
		opt = *o
	}
	x := call{c: c, a: a, b: b, pb: pb}
	if pb != nil {
		x.b = Matrix{Rows: pb.k, Cols: pb.n, typ: pb.f.elem}
	}
	if err := checkSize(c.Rows, c.Cols, a.Cols); err != nil {
		return 0, err
	}
	if c.Rows == 0 || c.Cols == 0 || a.Cols == 0 {
		return 0, nil
	}
	after := opt.Epilogue != nil && opt.Epilogue.After.typ != 0
	if after {
		e := *opt.Epilogue
		e.After = Matrix{} // where it lies does not count
		opt.Epilogue = &e
	}
	var p product
	size := 0
	for _, shared := range [...]bool{false, after} {
		y := x
		if err := p.set(&y, &opt, isa, kn, opt.Accumulate); err != nil {
			return 0, err
		}
		p.scratch = p.scratch || shared
		l := p.lay(cpuinfo.Get())
		if l.bad {
			return 0, errTooLarge(p.m, p.n, p.k)
		}
		size = max(size, l.size)
	}
	if size == 0 {
		return 0, nil
	}
	return reserved(size), nil
}

// check returns an error for anything that the caller got wrong, before C is touched.
func (x *call) check(o *Options) error {
	if x.pa == nil {
		if err := x.a.check("A"); err != nil {
			return err
		}
	}
	if x.pb == nil {
		if err := x.b.check("B"); err != nil {
			return err
		}
	}
	if err := x.c.check("C"); err != nil {
		return err
	}
	a, b, c := &x.a, &x.b, &x.c
	if a.Cols != b.Rows || c.Rows != a.Rows || c.Cols != b.Cols {
		return fmt.Errorf("gemm: C is %d x %d, A %d x %d, B %d x %d: want C[M,N] = A[M,K] B[K,N]", c.Rows, c.Cols, a.Rows, a.Cols,
			b.Rows, b.Cols)
	}
	if err := checkSize(c.Rows, c.Cols, a.Cols); err != nil {
		return err
	}
	if !c.distinct() {
		return fmt.Errorf("gemm: C is %d x %d with strides %d, %d: elements share memory", c.Rows, c.Cols, c.RowStride, c.ColStride)
	}
	if x.pa == nil && c.overlaps(a) {
		return errors.New("gemm: C overlaps A")
	}
	if x.pb == nil && c.overlaps(b) {
		return errors.New("gemm: C overlaps B")
	}
	integer := b.typ == S8
	switch {
	case integer && c.typ != S32 && o.Epilogue == nil && c.typ != F32:
		return fmt.Errorf("gemm: an integer product into %v needs an epilogue that scales it", c.typ)
	case !integer && c.typ == S32:
		return fmt.Errorf("gemm: a product of %v by %v into s32", a.typ, b.typ)
	case !integer && (c.typ == S8 || c.typ == U8) && o.Epilogue == nil:
		return fmt.Errorf("gemm: a product into %v needs an epilogue that scales it", c.typ)
	}
	if o.Accumulate {
		if o.Epilogue != nil {
			return errors.New("gemm: Accumulate takes no epilogue: use a residual")
		}
		if want := map[bool]Type{false: F32, true: S32}[integer]; c.typ != want {
			return fmt.Errorf("gemm: Accumulate into %v, want %v", c.typ, want)
		}
	}
	if o.AZero != 0 && !integer {
		return fmt.Errorf("gemm: AZero in a product of %v by %v", a.typ, b.typ)
	}
	if o.AZero < -128 || o.AZero > 255 {
		return fmt.Errorf("gemm: AZero is %d, want -128 to 255", o.AZero)
	}
	if o.Epilogue != nil {
		return o.Epilogue.check(c, c.Rows, c.Cols)
	}
	return nil
}

// empty computes a product that is zero: the epilogue of zero, or beta times C.
func (p *product) empty() error {
	const width = 256
	var x [width]float32
	p.alpha = 0 // there are no sums, which an infinite factor would turn into NaN
	for i := range p.m {
		for j := 0; j < p.n; j += width {
			n := min(width, p.n-j)
			clear(x[:n])
			if p.acc {
				continue
			}
			if p.scaled {
				p.combine(x[:n], i, j)
			}
			scale, zero := float32(1), int32(0)
			if e := p.epi; e != nil {
				e.apply(p.vec, x[:n], i, j)
				if e.After.typ != 0 {
					p.vec.add(x[:n], e.After.row(i, j, n))
				}
				if e.OutScale != 0 {
					scale = e.OutScale
				}
				zero = e.OutZero
			}
			c := p.c
			if c.typ == S32 {
				c.typ = F32 // zero has the same bits
			}
			store(p.vec, &c, x[:n], i, j, scale, zero)
		}
	}
	return nil
}

// checkSize returns an error for a product that is more than any machine computes, which repeated (zero-stride) operands can ask for.
func checkSize(m, n, k int) error {
	if min(m, n, k) < 0 {
		return fmt.Errorf("gemm: product of %d x %d x %d (M x N x K): negative", m, n, k)
	}
	const most = 1 << 58
	if p, ok := mem.Mul(m, n, max(k, 1)); !ok || uint64(p) > most {
		return errTooLarge(m, n, k)
	}
	return nil
}

func errTooLarge(m, n, k int) error {
	return fmt.Errorf("gemm: product of %d x %d x %d (M x N x K): its size %w", m, n, k, mem.ErrOverflow)
}
