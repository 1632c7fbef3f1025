package cpu

import (
	"context"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/tensor"
)

// reduceKernel combines elements in two nested loops: one over the results, one over what each combines. Where neighbouring results
// come from neighbouring elements, a strip of results is accumulated together.
type reduceKernel struct {
	e       *env
	kind    reduce.Kind
	in, out int
	typ     tensor.DType
	keep    bool
	mask    [tensor.MaxRank]bool
	results loop // result, first element
	parts   loop // element
	base    [2]unsafe.Pointer
	acc     [][]float64
	buf     [][]float32
	size    int
	made    bool
	seen    [2][tensor.MaxRank]int
	count   float64
	columns bool
	sums    [][]float32 // of columns, see single
}

// single reports whether columns are summed in float32, row after row: a vector at a time, as other runtimes do it. Models that
// subtract nearly equal sums were trained and measured with that rounding (the scores of Magika, whose variances are
// E[x^2] - E[x]^2, move by 1e-4 otherwise).
func (k *reduceKernel) single() bool {
	return k.columns && k.typ == tensor.F32 && (k.kind == reduce.Sum || k.kind == reduce.Mean)
}

func reduceKernelFor(op reduce.Reduce, c ops.Call) kernel {
	if !onlyFloats(c.In) {
		return nil
	}
	switch op.Kind {
	case reduce.LogSumExp, reduce.LogSum:
		return nil
	}
	mask, err := op.Mask(int(c.In[0].Rank))
	if err != nil {
		return nil
	}
	return &reduceKernel{kind: op.Kind, keep: op.Keep, mask: mask, typ: c.In[0].DType}
}

func (k *reduceKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.in, k.out = e, n.In[0], n.Out[0]
	s := part.Values[k.in].Spec
	var kept, parts []int
	for i, d := range s.Shape() {
		if k.mask[i] {
			parts = append(parts, d)
		} else {
			kept = append(kept, d)
		}
	}
	spec, sub := tensor.MakeSpec(s.DType, kept...), tensor.MakeSpec(s.DType, parts...)
	k.results.shape(kept, spec, spec)
	k.parts.shape(parts, sub)
	k.count = float64(k.parts.total)
	return nil
}

func (k *reduceKernel) run(e *env, frame []tensor.Tensor) error {
	in, out := &frame[k.in], &frame[k.out]
	if k.results.total == 0 {
		return nil
	}
	if !k.made || k.seen != [2][tensor.MaxRank]int{out.Strides, in.Strides} {
		k.made, k.seen = true, [2][tensor.MaxRank]int{out.Strides, in.Strides}
		var r, f, p tensor.Tensor
		at := 0
		for i := range int(in.Rank) {
			if k.mask[i] {
				p.Strides[p.Rank] = in.Strides[i]
				p.Rank++
				if k.keep {
					at++
				}
				continue
			}
			r.Strides[r.Rank], f.Strides[r.Rank] = out.Strides[at], in.Strides[i]
			r.Rank++
			at++
		}
		ts := [maxOperands]*tensor.Tensor{&r, &f}
		k.results.update(&ts)
		ts = [maxOperands]*tensor.Tensor{&p}
		k.parts.update(&ts)
		// Columns pay where the results lie closer together than what they combine.
		k.columns = k.results.inner() >= 8 && k.results.innerStep(1) < k.parts.innerStep(0)
	}
	k.base = [2]unsafe.Pointer{out.Ptr(), in.Ptr()}
	var n int
	k.size, n = jobs(k.results.total, max(1, grainExp/max(k.parts.total, 1)))
	if k.columns {
		k.size, n = jobs(k.results.total, max(strip, grainExp/max(k.parts.total, 1)))
	}
	w := par.Workers(e.threads, n)
	for len(k.acc) < w {
		k.acc = append(k.acc, make([]float64, strip))
		k.buf = append(k.buf, make([]float32, strip))
		k.sums = append(k.sums, make([]float32, strip))
	}
	if n == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do computes one job's results.
func (k *reduceKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.results.total)
	var c cursor
	k.results.seek(&c, at)
	size := k.typ.Size()
	for at < to {
		n := 1
		acc := k.acc[worker]
		if k.columns {
			n = min(k.results.left(&c), to-at, strip)
		}
		acc = acc[:n]
		for i := range acc {
			acc[i] = k.start()
		}
		from := unsafe.Add(k.base[1], c.off[1])
		var p cursor
		single := k.single()
		sums := k.sums[worker][:n]
		clear(sums)
		for done := 0; done < k.parts.total; {
			m := 1
			row := unsafe.Add(from, p.off[0])
			if single {
				k.e.vec.Add(sums, sums, k.load(worker, row, k.results.innerStep(1), n))
			} else if k.columns {
				k.fold(acc, k.load(worker, row, k.results.innerStep(1), n))
			} else {
				m = min(k.parts.left(&p), strip)
				if step := k.parts.innerStep(0); step == 4 && k.typ == tensor.F32 {
					m = k.parts.left(&p)
					acc[0] = k.foldRow(acc[0], floats(row, m))
				} else {
					acc[0] = k.foldRow(acc[0], k.load(worker, row, step, m))
				}
			}
			done += m
			k.parts.advance(&p, m)
		}
		for i := range acc {
			if single {
				acc[i] = float64(sums[i])
			}
			acc[i] = k.finish(acc[i])
		}
		dst := k.buf[worker][:n]
		for i, x := range acc {
			dst[i] = float32(x)
		}
		step := k.results.innerStep(0)
		if n == 1 {
			step = size
		}
		k.e.storeFloats(unsafe.Add(k.base[0], c.off[0]), k.typ, step, dst)
		at += n
		k.results.advance(&c, n)
	}
}

func (k *reduceKernel) load(worker int, p unsafe.Pointer, step, n int) []float32 {
	if k.typ == tensor.F32 && step == 4 {
		return floats(p, n)
	}
	buf := k.buf[worker][:n]
	k.e.loadFloats(buf, k.typ, p, step)
	return buf
}

func (k *reduceKernel) start() float64 {
	switch k.kind {
	case reduce.Max:
		return math.Inf(-1)
	case reduce.Min:
		return math.Inf(1)
	case reduce.Prod:
		return 1
	}
	return 0
}

func (k *reduceKernel) finish(x float64) float64 {
	switch k.kind {
	case reduce.Mean:
		return x / k.count
	case reduce.L2:
		return math.Sqrt(x)
	}
	return x
}

// fold combines a row into as many accumulators.
func (k *reduceKernel) fold(acc []float64, row []float32) {
	row = row[:len(acc)]
	switch k.kind {
	case reduce.Max:
		for i, x := range row {
			acc[i] = max(acc[i], float64(x))
		}
	case reduce.Min:
		for i, x := range row {
			acc[i] = min(acc[i], float64(x))
		}
	case reduce.Prod:
		for i, x := range row {
			acc[i] *= float64(x)
		}
	case reduce.L1:
		for i, x := range row {
			acc[i] += math.Abs(float64(x))
		}
	case reduce.L2, reduce.SumSquare:
		for i, x := range row {
			acc[i] += float64(float64(x) * float64(x))
		}
	default:
		for i, x := range row {
			acc[i] += float64(x)
		}
	}
}

// chunk is the longest run that is summed in float32 lanes before it enters the float64 accumulator.
const chunk = 2048

// foldRow combines a row into one accumulator.
func (k *reduceKernel) foldRow(acc float64, row []float32) float64 {
	switch k.kind {
	case reduce.Max:
		return max(acc, float64(k.e.vec.MaxOf(row)))
	case reduce.Sum, reduce.Mean:
		for len(row) > chunk {
			acc += float64(k.e.vec.Sum(row[:chunk]))
			row = row[chunk:]
		}
		return acc + float64(k.e.vec.Sum(row))
	}
	one := [1]float64{acc}
	for i := range row {
		k.fold(one[:], row[i:i+1])
	}
	return one[0]
}

// argKernel finds extremes along an axis.
type argKernel struct {
	rowLoop
	e    *env
	op   reduce.Arg
	in   int
	out  int
	wide bool
	dst  loop
	to   unsafe.Pointer
}

func argKernelFor(op reduce.Arg, c ops.Call) kernel {
	if !onlyFloats(c.In) {
		return nil
	}
	return &argKernel{op: op, wide: op.Out == tensor.I64}
}

func (k *argKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.in, k.out = e, n.In[0], n.Out[0]
	s := part.Values[k.in].Spec
	k.setRows(k.op.Axis, s)
	out := part.Values[k.out].Spec
	k.dst.shape(out.Shape(), out)
	return nil
}

func (k *argKernel) run(e *env, frame []tensor.Tensor) error {
	if k.rows == 0 {
		return nil
	}
	ts := [maxOperands]*tensor.Tensor{&frame[k.in]}
	k.updateRows(&ts)
	ts[0] = &frame[k.out]
	k.dst.update(&ts)
	k.to = frame[k.out].Ptr()
	n := k.cut(grainExp)
	e.rows(n, k.width)
	if n == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do finds the extremes of one job's rows.
func (k *argKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.rows)
	var c, d cursor
	k.seek(&c, at)
	k.dst.seek(&d, at)
	for ; at < to; at++ {
		best := k.find(k.row(k.e, &c, 0, k.e.scratch[worker]))
		p := unsafe.Add(k.to, d.off[0])
		if k.wide {
			*(*int64)(p) = int64(best)
		} else {
			*(*int32)(p) = int32(best)
		}
		k.advance(&c, 1)
		k.dst.advance(&d, 1)
	}
}

// find returns the position of the extreme; NaN counts as it.
func (k *argKernel) find(row []float32) int {
	best := 0
	for i, x := range row {
		y := row[best]
		better := x > y
		if k.op.Min {
			better = x < y
		}
		if better && y == y || x != x && y == y || k.op.Last && (x == y || x != x && y != y) {
			best = i
		}
	}
	return best
}
