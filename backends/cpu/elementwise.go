package cpu

import (
	"context"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

// Grains of elementwise jobs, in elements, such that a job takes 10 to 20 microseconds: waking a second worker costs a few.
const (
	grainCheap = 64 << 10 // a few instructions a vector
	grainExp   = 16 << 10 // a polynomial
	grainSlow  = 1 << 10  // a call into package math for each element
)

// mapKernel computes an elementwise function of up to three operands in type T with results of type R. Operands that do not lie in a
// row of T (strided, broadcast, half precision) pass through a strip of T.
type mapKernel[T, R number] struct {
	loop
	e        *env
	f        func(dst []R, a, b, c []T)
	prepare  func(ts *[maxOperands]*tensor.Tensor) // may be nil; looks at operands before a run
	grain    int
	out      int
	in       []int
	types    [maxOperands]tensor.DType
	ts       [maxOperands]*tensor.Tensor // of the run
	base     [maxOperands]unsafe.Pointer
	size     int
	operands int // that the loop walks, the result included
	convert  [maxOperands]bool
	strips   []mapStrip[T, R] // of each worker; made when the first operand needs one
}

// mapStrip holds strips of the operands and the result.
type mapStrip[T, R number] struct {
	in  [3][strip]T
	out [strip]R
}

func (k *mapKernel[T, R]) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.out, k.in = e, n.Out[0], n.In
	out := part.Values[k.out].Spec
	specs := []tensor.Spec{out}
	for _, v := range n.In[:k.operands] {
		specs = append(specs, part.Values[v].Spec)
	}
	for i, s := range specs {
		k.types[i] = s.DType
		single := isFloat32[T]()
		if i == 0 {
			single = isFloat32[R]()
		}
		k.convert[i] = s.DType == tensor.F16 || s.DType == tensor.BF16 || s.DType == tensor.F64 && single
	}
	k.shape(out.Shape(), specs...)
	return nil
}

func isFloat32[T number]() bool {
	var zero T
	_, ok := any(zero).(float32)
	return ok
}

func (k *mapKernel[T, R]) run(e *env, frame []tensor.Tensor) error {
	if k.total == 0 {
		return nil
	}
	ts := &k.ts
	ts[0] = &frame[k.out]
	for i, v := range k.in {
		if v >= 0 {
			ts[i+1] = &frame[v]
		}
	}
	k.update(ts)
	for i := range k.n {
		k.base[i] = ts[i].Ptr()
	}
	if k.prepare != nil {
		k.prepare(ts)
	}
	var n int
	k.size, n = jobs(k.total, k.grain)
	direct := k.direct()
	if n == 1 && direct && k.depth == 1 { // the usual case of a small node
		k.row(k.base, k.total)
		return nil
	}
	if !direct {
		for w := par.Workers(e.threads, n); len(k.strips) < w; {
			k.strips = append(k.strips, mapStrip[T, R]{})
		}
	}
	par.Run(e.threads, n, k)
	return nil
}

// direct reports whether every operand is a row of its type.
func (k *mapKernel[T, R]) direct() bool {
	for i := range k.n {
		if k.convert[i] || k.innerStep(i) != k.ops[i].size {
			return false
		}
	}
	return true
}

// row computes n elements of rows that need no strip.
func (k *mapKernel[T, R]) row(p [maxOperands]unsafe.Pointer, n int) {
	var in [3][]T
	for i := 1; i < k.n; i++ {
		in[i-1] = unsafe.Slice((*T)(p[i]), n)
	}
	k.f(unsafe.Slice((*R)(p[0]), n), in[0], in[1], in[2])
}

// Do computes one job.
func (k *mapKernel[T, R]) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.total)
	var c cursor
	k.seek(&c, at)
	if k.direct() {
		for at < to {
			n := min(k.left(&c), to-at)
			var p [maxOperands]unsafe.Pointer
			for i := range k.n {
				p[i] = unsafe.Add(k.base[i], c.off[i])
			}
			k.row(p, n)
			at += n
			k.advance(&c, n)
		}
		return
	}
	k.strip(&k.strips[worker], &c, at, to)
}

func (k *mapKernel[T, R]) strip(s *mapStrip[T, R], c *cursor, at, to int) {
	for at < to {
		n := min(k.left(c), to-at, strip)
		var in [3][]T
		for i := 1; i < k.n; i++ {
			p, step := unsafe.Add(k.base[i], c.off[i]), k.innerStep(i)
			switch {
			case k.convert[i]:
				dst := s.in[i-1][:n]
				k.e.loadFloats(unsafe.Slice((*float32)(unsafe.Pointer(&dst[0])), n), k.types[i], p, step)
				in[i-1] = dst
			case step == k.ops[i].size:
				in[i-1] = unsafe.Slice((*T)(p), n)
			default:
				in[i-1] = s.in[i-1][:n]
				gather(in[i-1], p, step)
			}
		}
		p, step := unsafe.Add(k.base[0], c.off[0]), k.innerStep(0)
		if !k.convert[0] && step == k.ops[0].size {
			k.f(unsafe.Slice((*R)(p), n), in[0], in[1], in[2])
		} else {
			k.f(s.out[:n], in[0], in[1], in[2])
			if k.convert[0] {
				k.e.storeFloats(p, k.types[0], step, unsafe.Slice((*float32)(unsafe.Pointer(&s.out[0])), n))
			} else {
				scatter(p, step, s.out[:n])
			}
		}
		at += n
		k.advance(c, n)
	}
}

// unaryKernel returns the kernel of a function of one number.
func (b *Backend) unaryKernel(f elementwise.Func, d tensor.DType) kernel {
	switch f {
	case elementwise.IsNaN, elementwise.IsInf:
		return unaryTo[uint8](d, f)
	case elementwise.Not, elementwise.BitNot:
		if d == tensor.Bool {
			return &mapKernel[uint8, uint8]{operands: 1, grain: grainCheap, f: func(dst []uint8, a, _, _ []uint8) {
				for i, x := range a {
					dst[i] = b2u(x == 0)
				}
			}}
		}
	}
	switch d {
	case tensor.F32, tensor.F16, tensor.BF16:
		k := &mapKernel[float32, float32]{operands: 1, grain: grainCheap}
		switch f {
		case elementwise.Exp:
			exp := b.vec.Exp
			k.f, k.grain = func(dst, a, _, _ []float32) { exp(dst, a) }, grainExp
		case elementwise.Sqr:
			mul := b.vec.Mul
			k.f = func(dst, a, _, _ []float32) { mul(dst, a, a) }
		case elementwise.Neg, elementwise.Abs, elementwise.Sqrt, elementwise.Reciprocal:
			k.f = simpleUnary(f)
		default:
			k.grain = grainSlow
			k.f = func(dst, a, _, _ []float32) {
				for i, x := range a {
					dst[i] = float32(f.Apply(float64(x)))
				}
			}
		}
		return k
	case tensor.F64:
		return &mapKernel[float64, float64]{operands: 1, grain: grainSlow, f: func(dst, a, _, _ []float64) {
			for i, x := range a {
				dst[i] = f.Apply(x)
			}
		}}
	case tensor.I8:
		return intUnary[int8](f)
	case tensor.U8:
		return intUnary[uint8](f)
	case tensor.I16:
		return intUnary[int16](f)
	case tensor.U16:
		return intUnary[uint16](f)
	case tensor.I32:
		return intUnary[int32](f)
	case tensor.U32:
		return intUnary[uint32](f)
	case tensor.I64:
		return intUnary[int64](f)
	case tensor.U64:
		return intUnary[uint64](f)
	}
	return nil
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func simpleUnary(f elementwise.Func) func(dst, a, _, _ []float32) {
	switch f {
	case elementwise.Neg:
		return func(dst, a, _, _ []float32) {
			for i, x := range a {
				dst[i] = -x
			}
		}
	case elementwise.Abs:
		return func(dst, a, _, _ []float32) {
			for i, x := range a {
				dst[i] = math.Float32frombits(math.Float32bits(x) &^ (1 << 31))
			}
		}
	case elementwise.Sqrt:
		return func(dst, a, _, _ []float32) {
			for i, x := range a {
				dst[i] = float32(math.Sqrt(float64(x)))
			}
		}
	}
	return func(dst, a, _, _ []float32) {
		for i, x := range a {
			dst[i] = 1 / x
		}
	}
}

func unaryTo[R uint8](d tensor.DType, f elementwise.Func) kernel {
	test := func(x float64) R { return R(f.Apply(x)) }
	if d == tensor.F64 {
		return &mapKernel[float64, R]{operands: 1, grain: grainSlow, f: func(dst []R, a, _, _ []float64) {
			for i, x := range a {
				dst[i] = test(x)
			}
		}}
	}
	return &mapKernel[float32, R]{operands: 1, grain: grainSlow, f: func(dst []R, a, _, _ []float32) {
		for i, x := range a {
			dst[i] = test(float64(x))
		}
	}}
}

type integer interface {
	int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

func intUnary[T integer](f elementwise.Func) kernel {
	k := &mapKernel[T, T]{operands: 1, grain: grainCheap}
	switch f {
	case elementwise.Neg:
		k.f = func(dst, a, _, _ []T) {
			for i, x := range a {
				dst[i] = -x
			}
		}
	case elementwise.Abs:
		k.f = func(dst, a, _, _ []T) {
			for i, x := range a {
				if x < 0 {
					x = -x
				}
				dst[i] = x
			}
		}
	case elementwise.Sign:
		k.f = func(dst, a, _, _ []T) {
			for i, x := range a {
				var s T
				switch {
				case x > 0:
					s = 1
				case x < 0:
					s--
				}
				dst[i] = s
			}
		}
	case elementwise.Sqr:
		k.f = func(dst, a, _, _ []T) {
			for i, x := range a {
				dst[i] = x * x
			}
		}
	case elementwise.BitNot:
		k.f = func(dst, a, _, _ []T) {
			for i, x := range a {
				dst[i] = ^x
			}
		}
	default:
		return nil
	}
	return k
}

// lowest is a strip of the least finite number.
var lowest = func() (s [4 * strip]float32) {
	for i := range s {
		s[i] = -math.MaxFloat32
	}
	return s
}()

// activationRow returns an activation as a row function, and its grain. It has the bits of one that is fused into a product.
func activationRow(v *vec.Funcs, a ops.Act) (func(dst, x []float32), int) {
	act, p, q, ok := gemmAct(a)
	if !ok {
		return func(dst, x []float32) {
			for i, y := range x {
				dst[i] = float32(a.Apply(float64(y)))
			}
		}, grainSlow
	}
	// Functions of the form x g(x) give NaN at -Inf, where their limit is 0: the least finite number gives that.
	vanishes := a.Apply(math.Inf(-1)) == 0 && a.Apply(-1) != 0
	return func(dst, x []float32) {
		for len(dst) > 0 { // by strips, which the copy leaves in L1
			n := min(len(dst), len(lowest))
			if vanishes {
				v.Max(dst[:n], x[:n], lowest[:n])
			} else {
				copy(dst[:n], x[:n])
			}
			must(gemm.Activate(act, dst[:n], p, q))
			dst, x = dst[n:], x[n:]
		}
	}, grainExp
}

func (b *Backend) activateKernel(a ops.Act, d tensor.DType) kernel {
	if d == tensor.F64 {
		return &mapKernel[float64, float64]{operands: 1, grain: grainSlow, f: func(dst, x, _, _ []float64) {
			for i, y := range x {
				dst[i] = a.Apply(y)
			}
		}}
	}
	row, grain := activationRow(b.vec, a)
	return &mapKernel[float32, float32]{operands: 1, grain: grain, f: func(dst, x, _, _ []float32) { row(dst, x) }}
}

func (b *Backend) gluKernel(a ops.Act, d tensor.DType) kernel {
	if d == tensor.F64 {
		return &mapKernel[float64, float64]{operands: 2, grain: grainSlow, f: func(dst, x, up, _ []float64) {
			for i, y := range x {
				dst[i] = a.Apply(y) * up[i]
			}
		}}
	}
	row, grain := activationRow(b.vec, a)
	mul := b.vec.Mul
	return &mapKernel[float32, float32]{operands: 2, grain: grain, f: func(dst, x, up, _ []float32) {
		for len(dst) > 0 {
			n := min(len(dst), 4*strip)
			row(dst[:n], x[:n]) // the result may be the gate, never the other operand
			mul(dst[:n], dst[:n], up[:n])
			dst, x, up = dst[n:], x[n:], up[n:]
		}
	}}
}

func (b *Backend) scaleKernel(s elementwise.Scale, d tensor.DType) kernel {
	if d == tensor.F64 {
		mul, add := float64(s.Mul), float64(s.Add)
		return &mapKernel[float64, float64]{operands: 1, grain: grainCheap, f: func(dst, x, _, _ []float64) {
			for i, y := range x {
				dst[i] = mul*y + add
			}
		}}
	}
	scale := b.vec.Scale
	return &mapKernel[float32, float32]{operands: 1, grain: grainCheap, f: func(dst, x, _, _ []float32) { scale(dst, x, s.Mul, s.Add) }}
}

// binaryKernel returns the kernel of a function of two numbers, for operands of the types.
func (b *Backend) binaryKernel(f elementwise.Func2, x, y tensor.DType) kernel {
	half := func(d tensor.DType) bool { return d == tensor.F32 || d == tensor.F16 || d == tensor.BF16 }
	switch {
	case half(x) && half(y):
		if f.Compares() {
			return &mapKernel[float32, uint8]{operands: 2, grain: grainCheap, f: comparison[float32](f)}
		}
		k := &mapKernel[float32, float32]{operands: 2, grain: grainCheap}
		var row func(dst, a, b []float32)
		switch f {
		case elementwise.Add:
			row = b.vec.Add
		case elementwise.Sub:
			row = b.vec.Sub
		case elementwise.Mul:
			row = b.vec.Mul
		case elementwise.Div:
			row = b.vec.Div
		case elementwise.Max:
			row = b.vec.Max
		case elementwise.Min:
			row = b.vec.Min
		default:
			k.grain = grainSlow
			k.f = func(dst, p, q, _ []float32) {
				for i := range dst {
					dst[i] = float32(f.Apply(float64(p[i]), float64(q[i])))
				}
			}
			return k
		}
		k.f = func(dst, p, q, _ []float32) { row(dst, p, q) }
		return k
	case x == tensor.F64 && y == tensor.F64:
		if f.Compares() {
			return &mapKernel[float64, uint8]{operands: 2, grain: grainCheap, f: comparison[float64](f)}
		}
		return &mapKernel[float64, float64]{operands: 2, grain: grainSlow, f: func(dst, p, q, _ []float64) {
			for i := range dst {
				dst[i] = f.Apply(p[i], q[i])
			}
		}}
	case x != y:
		return nil
	case x == tensor.Bool:
		return boolBinary(f)
	}
	switch x {
	case tensor.I8:
		return intBinary[int8](f, false)
	case tensor.U8:
		return intBinary[uint8](f, true)
	case tensor.I16:
		return intBinary[int16](f, false)
	case tensor.U16:
		return intBinary[uint16](f, true)
	case tensor.I32:
		return intBinary[int32](f, false)
	case tensor.U32:
		return intBinary[uint32](f, true)
	case tensor.I64:
		return intBinary[int64](f, false)
	case tensor.U64:
		return intBinary[uint64](f, true)
	}
	return nil
}

func comparison[T number](f elementwise.Func2) func(dst []uint8, a, b, _ []T) {
	switch f {
	case elementwise.Equal:
		return func(dst []uint8, a, b, _ []T) {
			for i := range dst {
				dst[i] = b2u(a[i] == b[i])
			}
		}
	case elementwise.NotEqual:
		return func(dst []uint8, a, b, _ []T) {
			for i := range dst {
				dst[i] = b2u(a[i] != b[i])
			}
		}
	case elementwise.Less:
		return func(dst []uint8, a, b, _ []T) {
			for i := range dst {
				dst[i] = b2u(a[i] < b[i])
			}
		}
	case elementwise.LessEqual:
		return func(dst []uint8, a, b, _ []T) {
			for i := range dst {
				dst[i] = b2u(a[i] <= b[i])
			}
		}
	case elementwise.Greater:
		return func(dst []uint8, a, b, _ []T) {
			for i := range dst {
				dst[i] = b2u(a[i] > b[i])
			}
		}
	}
	return func(dst []uint8, a, b, _ []T) {
		for i := range dst {
			dst[i] = b2u(a[i] >= b[i])
		}
	}
}

func boolBinary(f elementwise.Func2) kernel {
	return &mapKernel[uint8, uint8]{operands: 2, grain: grainSlow, f: func(dst, a, b, _ []uint8) {
		for i := range dst {
			dst[i] = uint8(f.Apply(float64(a[i]), float64(b[i])))
		}
	}}
}

func intBinary[T integer](f elementwise.Func2, unsigned bool) kernel {
	if f.Compares() {
		return &mapKernel[T, uint8]{operands: 2, grain: grainCheap, f: comparison[T](f)}
	}
	k := &mapKernel[T, T]{operands: 2, grain: grainCheap}
	switch f {
	case elementwise.Add:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		}
	case elementwise.Sub:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = a[i] - b[i]
			}
		}
	case elementwise.Mul:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = a[i] * b[i]
			}
		}
	case elementwise.Min:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = min(a[i], b[i])
			}
		}
	case elementwise.Max:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = max(a[i], b[i])
			}
		}
	case elementwise.BitAnd:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = a[i] & b[i]
			}
		}
	case elementwise.BitOr:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = a[i] | b[i]
			}
		}
	case elementwise.BitXor:
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = a[i] ^ b[i]
			}
		}
	default:
		width := uint(8 * unsafe.Sizeof(T(0)))
		k.grain = grainSlow
		k.f = func(dst, a, b, _ []T) {
			for i := range dst {
				dst[i] = T(f.ApplyInt(int64(a[i]), int64(b[i]), unsigned, width))
			}
		}
	}
	return k
}

// clampKernel limits by scalars that are read when it runs.
func clampKernel(c ops.Call) kernel {
	lo, hi := len(c.In) > 1 && c.In[1].DType != tensor.Invalid, len(c.In) > 2 && c.In[2].DType != tensor.Invalid
	switch c.In[0].DType {
	case tensor.F32:
		return newClamp[float32](lo, hi)
	case tensor.F64:
		return newClamp[float64](lo, hi)
	case tensor.I32:
		return newClamp[int32](lo, hi)
	case tensor.I64:
		return newClamp[int64](lo, hi)
	case tensor.U8:
		return newClamp[uint8](lo, hi)
	case tensor.I8:
		return newClamp[int8](lo, hi)
	}
	return nil
}

func newClamp[T number](hasLo, hasHi bool) kernel {
	k := &mapKernel[T, T]{operands: 1, grain: grainCheap}
	var lo, hi T
	k.prepare = func(ts *[maxOperands]*tensor.Tensor) {
		if hasLo {
			lo = *(*T)(ts[2].Ptr())
		}
		if hasHi {
			hi = *(*T)(ts[3].Ptr())
		}
	}
	k.f = func(dst, a, _, _ []T) {
		for i, x := range a {
			if hasLo && x < lo {
				x = lo
			}
			if hasHi && x > hi {
				x = hi
			}
			dst[i] = x
		}
	}
	return k
}

// whereKernel selects between operands of any plain type by their bits.
func whereKernel(size int) kernel {
	switch size {
	case 1:
		return &selectKernel[uint8]{}
	case 2:
		return &selectKernel[uint16]{}
	case 4:
		return &selectKernel[uint32]{}
	case 8:
		return &selectKernel[uint64]{}
	}
	return nil
}

type selectKernel[T number] struct {
	loop
	e    *env
	out  int
	in   []int
	base [maxOperands]unsafe.Pointer
	size int
}

func (k *selectKernel[T]) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.out, k.in = e, n.Out[0], n.In
	out := part.Values[k.out].Spec
	k.shape(out.Shape(), out, part.Values[n.In[0]].Spec, part.Values[n.In[1]].Spec, part.Values[n.In[2]].Spec)
	return nil
}

func (k *selectKernel[T]) run(e *env, frame []tensor.Tensor) error {
	if k.total == 0 {
		return nil
	}
	ts := [maxOperands]*tensor.Tensor{&frame[k.out], &frame[k.in[0]], &frame[k.in[1]], &frame[k.in[2]]}
	k.update(&ts)
	for i := range k.n {
		k.base[i] = ts[i].Ptr()
	}
	var n int
	k.size, n = jobs(k.total, grainExp)
	par.Run(e.threads, n, k)
	return nil
}

// Do selects one job's elements.
func (k *selectKernel[T]) Do(_, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.total)
	var c cursor
	k.seek(&c, at)
	for at < to {
		n := min(k.left(&c), to-at)
		var p [maxOperands]unsafe.Pointer
		for i := range k.n {
			p[i] = unsafe.Add(k.base[i], c.off[i])
		}
		s0, s1, s2, s3 := k.innerStep(0), k.innerStep(1), k.innerStep(2), k.innerStep(3)
		for i := range n {
			from := unsafe.Add(p[3], i*s3)
			if *(*uint8)(unsafe.Add(p[1], i*s1)) != 0 {
				from = unsafe.Add(p[2], i*s2)
			}
			*(*T)(unsafe.Add(p[0], i*s0)) = *(*T)(from)
		}
		at += n
		k.advance(&c, n)
	}
}
