package cpu

import (
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/tensor"
)

// maxOperands is the largest number of tensors that one loop walks: a result and five operands.
const maxOperands = 6

// loop walks up to maxOperands tensors of one shape together, some of them broadcast. Dimensions that lie behind one another in all of
// them are merged, so that contiguous tensors make one long row. It is computed from the strides when they change, which in a compiled
// graph is once.
type loop struct {
	n    int // operands
	rank int // of the whole shape
	dims [tensor.MaxRank]int
	ops  [maxOperands]struct {
		dims  [tensor.MaxRank]int // of the operand, without the leading ones that it has not
		rank  int
		block int
		size  int // bytes of an element
	}

	made bool
	seen [maxOperands][tensor.MaxRank]int

	// The merged loops, innermost last, at least one. Steps are in bytes.
	depth int
	count [tensor.MaxRank]int
	step  [maxOperands][tensor.MaxRank]int
	total int
}

// shape sets what is known at compile time: the shape, and the spec of each operand, which must broadcast to it.
func (l *loop) shape(dims []int, specs ...tensor.Spec) {
	l.rank = copy(l.dims[:], dims)
	l.n = len(specs)
	l.total = 1
	for _, d := range dims {
		l.total *= d
	}
	for i, s := range specs {
		l.ops[i].dims, l.ops[i].rank, l.ops[i].size = s.Dims, int(s.Rank), s.DType.Size()
	}
}

// update makes the merged loops for the operands' strides.
func (l *loop) update(ts *[maxOperands]*tensor.Tensor) {
	if l.made {
		same := true
		for i := range l.n {
			if ts[i].Strides != l.seen[i] {
				same = false
				break
			}
		}
		if same {
			return
		}
	}
	l.made = true
	var step [maxOperands][tensor.MaxRank]int
	for i := range l.n {
		l.seen[i] = ts[i].Strides
		o := &l.ops[i]
		shift := l.rank - o.rank
		for d := range o.rank {
			if o.dims[d] != 1 || l.dims[d+shift] == 1 {
				step[i][d+shift] = ts[i].Strides[d] * o.size
			}
		}
	}
	l.merge(&step)
}

func (l *loop) merge(step *[maxOperands][tensor.MaxRank]int) {
	l.depth = 0
	for d := range l.rank {
		if l.dims[d] == 1 {
			continue
		}
		joined := l.depth > 0
		for i := 0; i < l.n && joined; i++ {
			joined = l.step[i][l.depth-1] == step[i][d]*l.dims[d]
		}
		if !joined {
			l.count[l.depth] = 1
			l.depth++
		}
		l.count[l.depth-1] *= l.dims[d]
		for i := range l.n {
			l.step[i][l.depth-1] = step[i][d]
		}
	}
	if l.depth == 0 {
		l.depth, l.count[0] = 1, 1
		for i := range l.n {
			l.step[i][0] = l.ops[i].size
		}
	}
}

// inner returns the length of the innermost loop, and the bytes between elements of operand i in it.
func (l *loop) inner() int          { return l.count[l.depth-1] }
func (l *loop) innerStep(i int) int { return l.step[i][l.depth-1] }

// cursor is a place in a loop.
type cursor struct {
	at  [tensor.MaxRank]int
	off [maxOperands]int // bytes from the first element of each operand
}

// seek goes to element i of the row-major order.
func (l *loop) seek(c *cursor, i int) {
	*c = cursor{}
	for d := l.depth - 1; d >= 0 && i > 0; d-- {
		c.at[d] = i % l.count[d]
		i /= l.count[d]
		for o := range l.n {
			c.off[o] += c.at[d] * l.step[o][d]
		}
	}
}

// left returns the elements to the end of the innermost loop.
func (l *loop) left(c *cursor) int { return l.count[l.depth-1] - c.at[l.depth-1] }

// advance goes n elements on, at most to the end of the innermost loop.
func (l *loop) advance(c *cursor, n int) {
	d := l.depth - 1
	c.at[d] += n
	for o := range l.n {
		c.off[o] += n * l.step[o][d]
	}
	for c.at[d] == l.count[d] && d > 0 {
		for o := range l.n {
			c.off[o] += l.step[o][d-1] - c.at[d]*l.step[o][d]
		}
		c.at[d] = 0
		d--
		c.at[d]++
	}
}

// number is what generic kernels compute in.
type number interface {
	float32 | float64 | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64
}

// strip is the number of elements that are gathered or converted at once: small enough to stay in L1, large enough that calls vanish.
const strip = 256

// gather copies n elements that lie step bytes apart.
func gather[T number](dst []T, p unsafe.Pointer, step int) {
	if step == 0 {
		x := *(*T)(p)
		for i := range dst {
			dst[i] = x
		}
		return
	}
	for i := range dst {
		dst[i] = *(*T)(unsafe.Add(p, i*step))
	}
}

// scatter is the inverse of gather.
func scatter[T number](p unsafe.Pointer, step int, src []T) {
	for i, x := range src {
		*(*T)(unsafe.Add(p, i*step)) = x
	}
}

func (e *env) loadFloats(dst []float32, d tensor.DType, p unsafe.Pointer, step int) {
	loadFloats(e.vec, dst, d, p, step)
}

func (e *env) storeFloats(p unsafe.Pointer, d tensor.DType, step int, src []float32) {
	storeFloats(e.vec, p, d, step, src)
}

// loadFloats reads elements of a floating-point type, step bytes apart, as float32.
func loadFloats(v *vec.Funcs, dst []float32, d tensor.DType, p unsafe.Pointer, step int) {
	switch {
	case len(dst) == 0:
	case d == tensor.F32:
		if step == 4 {
			copy(dst, floats(p, len(dst)))
			return
		}
		gather(dst, p, step)
	case d == tensor.F64:
		for i := range dst {
			dst[i] = float32(*(*float64)(unsafe.Add(p, i*step)))
		}
	case step == 2 && d == tensor.F16:
		v.FromF16(dst, unsafe.Slice((*uint16)(p), len(dst)))
	case step == 2 && d == tensor.BF16:
		v.FromBF16(dst, unsafe.Slice((*uint16)(p), len(dst)))
	case d == tensor.F16:
		for i := range dst {
			dst[i] = tensor.F16ToF32(*(*uint16)(unsafe.Add(p, i*step)))
		}
	case d == tensor.BF16:
		for i := range dst {
			dst[i] = tensor.BF16ToF32(*(*uint16)(unsafe.Add(p, i*step)))
		}
	}
}

// storeFloats is the inverse of loadFloats; it rounds to nearest even.
func storeFloats(v *vec.Funcs, p unsafe.Pointer, d tensor.DType, step int, src []float32) {
	switch {
	case len(src) == 0:
	case d == tensor.F32:
		if step == 4 {
			copy(floats(p, len(src)), src)
			return
		}
		scatter(p, step, src)
	case d == tensor.F64:
		for i, x := range src {
			*(*float64)(unsafe.Add(p, i*step)) = float64(x)
		}
	case step == 2 && d == tensor.F16:
		v.ToF16(unsafe.Slice((*uint16)(p), len(src)), src)
	case step == 2 && d == tensor.BF16:
		v.ToBF16(unsafe.Slice((*uint16)(p), len(src)), src)
	case d == tensor.F16:
		for i, x := range src {
			*(*uint16)(unsafe.Add(p, i*step)) = tensor.F32ToF16(x)
		}
	case d == tensor.BF16:
		for i, x := range src {
			*(*uint16)(unsafe.Add(p, i*step)) = tensor.F32ToBF16(x)
		}
	}
}

// jobs cuts n units into jobs of at least grain, for a region that pays only if there are two of them; it returns the size of a job and
// their number. The cut does not depend on the number of workers.
func jobs(n, grain int) (size, count int) {
	if n <= grain {
		return n, 1
	}
	return grain, (n + grain - 1) / grain
}
