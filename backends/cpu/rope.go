package cpu

import (
	"context"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/tensor"
)

// angleKey names cosines and sines that several nodes share: all layers of a model turn by the same angles, so they are computed once a
// run for each tensor of positions.
type angleKey struct {
	op        attention.RoPE
	head      int
	positions int // value
	factors   int // value, or -1
}

// angles are the cosines and sines of every position of a run.
type angles struct {
	e        *env
	op       attention.RoPE
	head     int
	run      uint64 // for which they were computed
	pairs    int
	freq     []float64
	mag      float64
	pos      []int64
	cos, sin []float32 // pairs for each position
	factors  []float64
	size     int
}

// update computes the angles if that has not happened in this run.
func (a *angles) update(e *env, frame []tensor.Tensor, key angleKey) {
	if a.run == e.run {
		return
	}
	a.run, a.e = e.run, e
	if key.factors >= 0 {
		t := &frame[key.factors]
		changed := a.freq == nil
		for i := range a.factors {
			f := readFloat(t, i)
			changed = changed || f != a.factors[i]
			a.factors[i] = f
		}
		if changed {
			a.freq, a.mag = a.op.Frequencies(a.head, a.factors)
		}
	} else if a.freq == nil {
		a.freq, a.mag = a.op.Frequencies(a.head, nil)
	}
	readInts(a.pos, &frame[key.positions])
	var n int
	a.size, n = jobs(len(a.pos), max(1, grainSlow/max(a.pairs, 1)))
	par.Run(e.threads, n, a)
}

// Do computes the angles of one job's positions.
func (a *angles) Do(_, job int) {
	for i := job * a.size; i < min((job+1)*a.size, len(a.pos)); i++ {
		if i > 0 && a.pos[i] == a.pos[i-1] && i%a.size != 0 {
			copy(a.cos[i*a.pairs:][:a.pairs], a.cos[(i-1)*a.pairs:])
			copy(a.sin[i*a.pairs:][:a.pairs], a.sin[(i-1)*a.pairs:])
			continue
		}
		p := float64(a.pos[i])
		for j, f := range a.freq {
			sin, cos := math.Sincos(p * f)
			a.cos[i*a.pairs+j], a.sin[i*a.pairs+j] = float32(cos*a.mag), float32(sin*a.mag)
		}
	}
}

// readFloat returns element i of a vector of a floating-point type.
func readFloat(t *tensor.Tensor, i int) float64 {
	p := unsafe.Add(t.Ptr(), i*t.Strides[0]*t.DType.Size())
	switch t.DType {
	case tensor.F32:
		return float64(*(*float32)(p))
	case tensor.F64:
		return *(*float64)(p)
	case tensor.F16:
		return float64(tensor.F16ToF32(*(*uint16)(p)))
	}
	return float64(tensor.BF16ToF32(*(*uint16)(p)))
}

// readInts reads a tensor of i32 or i64 in row-major order.
func readInts(dst []int64, t *tensor.Tensor) {
	if len(dst) == 0 {
		return
	}
	p := t.Ptr()
	var idx [tensor.MaxRank]int
	off := 0
	for i := range dst {
		if t.DType == tensor.I32 {
			dst[i] = int64(*(*int32)(unsafe.Add(p, off*4)))
		} else {
			dst[i] = *(*int64)(unsafe.Add(p, off*8))
		}
		for d := int(t.Rank) - 1; d >= 0; d-- {
			idx[d]++
			off += t.Strides[d]
			if idx[d] < t.Dims[d] {
				break
			}
			off -= idx[d] * t.Strides[d]
			idx[d] = 0
		}
	}
}

// ropeKernel turns the heads of [..., T, H, D].
type ropeKernel struct {
	loop // over [..., T, H]; operands: result, input, positions as an index into the angles
	e    *env
	op   attention.RoPE
	in   int
	out  int
	key  angleKey
	a    *angles
	head int
	dims int
	pos  tensor.Tensor // the index of each position's angles, broadcast like the positions
	base [3]unsafe.Pointer
	step [2]int // bytes between elements of a head
	typ  tensor.DType
	size int
	made bool
	seen [2][tensor.MaxRank]int
}

func ropeKernelFor(op attention.RoPE, c ops.Call) kernel {
	if !onlyFloats(c.In[:1]) {
		return nil
	}
	return &ropeKernel{op: op}
}

func (k *ropeKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.in, k.out = e, n.In[0], n.Out[0]
	s, ps := part.Values[k.in].Spec, part.Values[n.In[1]].Spec
	k.head, k.typ = s.Dim(-1), s.DType
	k.dims = k.op.Rotary(k.head)
	k.key = angleKey{op: k.op, head: k.head, positions: n.In[1], factors: -1}
	if len(n.In) > 2 {
		k.key.factors = n.In[2]
	}
	if k.a = e.angles[k.key]; k.a == nil {
		positions := ps.Elems()
		k.a = &angles{op: k.op, head: k.head, pairs: k.dims / 2, pos: make([]int64, positions),
			cos: make([]float32, positions*k.dims/2), sin: make([]float32, positions*k.dims/2)}
		if k.key.factors >= 0 {
			k.a.factors = make([]float64, k.dims/2)
		}
		if e.angles == nil {
			e.angles = map[angleKey]*angles{}
		}
		e.angles[k.key] = k.a
	}
	outer := s
	outer.Rank--
	outer.Dims[outer.Rank] = 0
	// Positions have no dimension for heads.
	idx := make([]int32, ps.Elems())
	for i := range idx {
		idx[i] = int32(i)
	}
	dims := append(ps.Shape(), 1)
	if ps.Rank == 0 {
		dims = []int{1}
	}
	k.pos = tensor.Of(idx, dims...)
	k.shape(outer.Shape(), outer, outer, k.pos.Spec)
	return nil
}

func (k *ropeKernel) run(e *env, frame []tensor.Tensor) error {
	if k.total == 0 || k.head == 0 {
		return nil
	}
	in, out := &frame[k.in], &frame[k.out]
	if !k.made || out.Strides != k.seen[0] || in.Strides != k.seen[1] {
		k.made = true
		k.seen[0], k.seen[1] = out.Strides, in.Strides
		o, i := *out, *in
		size := k.typ.Size()
		k.step[0], k.step[1] = o.Strides[o.Rank-1]*size, i.Strides[i.Rank-1]*size
		o.Strides[o.Rank-1], i.Strides[i.Rank-1] = 0, 0
		ts := [maxOperands]*tensor.Tensor{&o, &i, &k.pos}
		k.loop.made = false
		k.update(&ts)
	}
	k.a.update(e, frame, k.key)
	k.base = [3]unsafe.Pointer{out.Ptr(), in.Ptr(), k.pos.Ptr()}
	var n int
	k.size, n = jobs(k.total, max(1, grainExp/k.head))
	e.rows(n, 2*k.head)
	if n == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do turns one job's heads.
func (k *ropeKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.total)
	var c cursor
	k.seek(&c, at)
	pairs := k.dims / 2
	direct := k.typ == tensor.F32 && k.step[0] == 4
	for at < to {
		n := min(k.left(&c), to-at) // heads, most often, which share a position
		dst, src, pos := unsafe.Add(k.base[0], c.off[0]), unsafe.Add(k.base[1], c.off[1]), unsafe.Add(k.base[2], c.off[2])
		step := [3]int{k.innerStep(0), k.innerStep(1), k.innerStep(2)}
		var cos, sin []float32
		for j := range n {
			if j == 0 || step[2] != 0 {
				i := int(*(*int32)(unsafe.Add(pos, j*step[2]))) * pairs
				cos, sin = k.a.cos[i:i+pairs], k.a.sin[i:i+pairs]
			}
			to, from := unsafe.Add(dst, j*step[0]), unsafe.Add(src, j*step[1])
			row := k.e.scratch[worker][:k.head]
			if direct {
				row = floats(to, k.head)
			}
			switch {
			case direct && to == from:
			case direct && k.step[1] == 4:
				copy(row, floats(from, k.head))
			default:
				k.e.loadFloats(row, k.typ, from, k.step[1])
			}
			if k.op.Half {
				k.e.vec.Rotate(row[:pairs], row[pairs:2*pairs], cos, sin)
			} else {
				k.e.vec.RotatePairs(row[:2*pairs], cos, sin)
			}
			if !direct {
				k.e.storeFloats(to, k.typ, k.step[0], row)
			}
		}
		at += n
		k.advance(&c, n)
	}
}
