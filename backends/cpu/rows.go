package cpu

import (
	"context"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/tensor"
)

// rowLoop walks the rows of tensors along one axis: operand 0 is the result, the others broadcast to it. The loop is over all other
// dimensions.
type rowLoop struct {
	loop
	axis  int
	rank  int // of the result, the axis included
	width int // elements of a row
	rows  int
	seen  [maxOperands][tensor.MaxRank]int
	made  bool
	types [maxOperands]tensor.DType
	along [maxOperands]int // bytes between the elements of a row
	base  [maxOperands]unsafe.Pointer
	size  int // rows of a job
}

func (r *rowLoop) setRows(axis int, specs ...tensor.Spec) {
	out := specs[0]
	if axis < 0 {
		axis += int(out.Rank)
	}
	r.axis, r.rank, r.width = axis, int(out.Rank), out.Dims[axis]
	without := make([]tensor.Spec, len(specs))
	for i, s := range specs {
		r.types[i] = s.DType
		t := tensor.Tensor{Spec: s}
		r.drop(&t)
		without[i] = t.Spec
	}
	r.shape(without[0].Shape(), without...)
	r.rows = r.total
}

// drop takes the axis out of a tensor that is aligned to the result from the innermost dimension.
func (r *rowLoop) drop(t *tensor.Tensor) (stride int) {
	a := r.axis - r.rank + int(t.Rank)
	if a < 0 {
		return 0
	}
	if t.Dims[a] != 1 || r.width == 1 {
		stride = t.Strides[a]
	}
	copy(t.Dims[a:], t.Dims[a+1:t.Rank])
	copy(t.Strides[a:], t.Strides[a+1:t.Rank])
	t.Rank--
	t.Dims[t.Rank], t.Strides[t.Rank] = 0, 0
	return stride
}

// updateRows takes the operands of a run.
func (r *rowLoop) updateRows(ts *[maxOperands]*tensor.Tensor) {
	same := r.made
	for i := range r.n {
		same = same && ts[i].Strides == r.seen[i]
		r.base[i] = ts[i].Ptr()
	}
	if same {
		return
	}
	r.made = true
	var copies [maxOperands]tensor.Tensor
	var short [maxOperands]*tensor.Tensor
	for i := range r.n {
		r.seen[i] = ts[i].Strides
		copies[i] = *ts[i]
		r.along[i] = r.drop(&copies[i]) * r.types[i].Size()
		short[i] = &copies[i]
	}
	r.update(&short)
}

// cut sets the size of jobs of about grain elements and returns their number.
func (r *rowLoop) cut(grain int) int {
	var n int
	r.size, n = jobs(r.rows, max(1, grain/max(r.width, 1)))
	return n
}

// plain reports whether rows of operand i are float32 without gaps.
func (r *rowLoop) plain(i int) bool {
	return r.types[i] == tensor.F32 && (r.along[i] == 4 || r.width == 1)
}

// row returns row c of operand i as float32: itself, or a copy in buf.
func (r *rowLoop) row(e *env, c *cursor, i int, buf []float32) []float32 {
	p := unsafe.Add(r.base[i], c.off[i])
	if r.plain(i) {
		return floats(p, r.width)
	}
	buf = buf[:r.width]
	e.loadFloats(buf, r.types[i], p, r.along[i])
	return buf
}

// target returns where to compute row c of the result: in place, or in buf, from which store moves it.
func (r *rowLoop) target(c *cursor, buf []float32) []float32 {
	if r.plain(0) {
		return floats(unsafe.Add(r.base[0], c.off[0]), r.width)
	}
	return buf[:r.width]
}

func (r *rowLoop) store(e *env, c *cursor, row []float32) {
	if !r.plain(0) {
		e.storeFloats(unsafe.Add(r.base[0], c.off[0]), r.types[0], r.along[0], row)
	}
}

// rowKind is what is computed of a row.
type rowKind uint8

const (
	rmsRows rowKind = iota
	layerRows
	l2Rows
	softmaxRows
)

// rowsKernel is a kernel of independent rows: RMS, Layer and L2 norm, softmax.
type rowsKernel struct {
	rowLoop
	e        *env
	out      int
	in       []int // the operands that are walked
	vectors  []int // values that are one vector for all rows; -1 where absent
	weights  [2][]float32
	loaded   [2][]float32
	axis     int
	grain    int
	buffers  int // rows of scratch a worker
	kind     rowKind
	eps      float32
	scale    float32
	hasScale bool
	log      bool
	boolMask bool
}

func (k *rowsKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e, k.out = e, n.Out[0]
	specs := []tensor.Spec{part.Values[k.out].Spec}
	for _, v := range k.in {
		if v >= len(n.In) || n.In[v] < 0 {
			continue
		}
		specs = append(specs, part.Values[n.In[v]].Spec)
	}
	operands := []int{}
	for _, v := range k.in {
		if v < len(n.In) && n.In[v] >= 0 {
			operands = append(operands, n.In[v])
		}
	}
	k.in = operands
	for i, v := range k.vectors {
		if v >= len(n.In) || n.In[v] < 0 {
			k.vectors[i] = -1
			continue
		}
		k.vectors[i] = n.In[v]
		s := part.Values[n.In[v]].Spec
		k.loaded[i] = make([]float32, s.Elems())
	}
	k.setRows(k.axis, specs...)
	return nil
}

func (k *rowsKernel) run(e *env, frame []tensor.Tensor) error {
	if k.rows == 0 || k.width == 0 {
		return nil
	}
	var ts [maxOperands]*tensor.Tensor
	ts[0] = &frame[k.out]
	for i, v := range k.in {
		ts[i+1] = &frame[v]
	}
	k.updateRows(&ts)
	for i, v := range k.vectors {
		if v < 0 {
			continue
		}
		t := &frame[v]
		if t.DType == tensor.F32 && t.Strides[0] == 1 {
			k.weights[i] = floats(t.Ptr(), t.Dims[0])
			continue
		}
		k.weights[i] = k.loaded[i]
		e.loadFloats(k.loaded[i], t.DType, t.Ptr(), t.Strides[0]*t.DType.Size())
	}
	n := k.cut(k.grain)
	e.rows(n, k.buffers*k.width)
	if n == 1 {
		k.Do(0, 0)
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do computes one job's rows.
func (k *rowsKernel) Do(worker, job int) {
	if k.e.stopped() {
		return
	}
	at, to := job*k.size, min((job+1)*k.size, k.rows)
	buf := k.e.scratch[worker]
	var c cursor
	k.seek(&c, at)
	for ; at < to; at++ {
		switch k.kind { // not a function value, through which the cursor would escape to the heap
		case rmsRows:
			rmsRow(k, k.e, &c, buf)
		case layerRows:
			layerRow(k, k.e, &c, buf)
		case l2Rows:
			l2Row(k, k.e, &c, buf)
		case softmaxRows:
			softmaxRow(k, k.e, &c, buf)
		}
		k.advance(&c, 1)
	}
}

func normKernel(c ops.Call) kernel {
	if !onlyFloats(c.In) {
		return nil
	}
	k := &rowsKernel{in: []int{0}, vectors: []int{1, 2}, axis: -1, grain: grainCheap, buffers: 2}
	switch op := c.Op.(type) {
	case norm.RMS:
		k.eps, k.kind, k.vectors = op.Eps, rmsRows, []int{1}
	case norm.Layer:
		k.eps, k.kind = op.Eps, layerRows
	case norm.L2:
		k.eps, k.kind, k.vectors = op.Eps, l2Rows, nil
	}
	return k
}

func rmsRow(k *rowsKernel, e *env, c *cursor, buf []float32) {
	x, y := k.row(e, c, 1, buf), k.target(c, buf)
	k.normalize(e, y, x, 1/math.Sqrt(sumSq(e, x)/float64(k.width)+float64(k.eps)))
	k.store(e, c, y)
}

// normalize sets y to x times a factor and the weights, if there are any.
func (k *rowsKernel) normalize(e *env, y, x []float32, factor float64) {
	s := float32(factor)
	weighted := len(k.vectors) > 0 && k.vectors[0] >= 0
	switch {
	case math.IsInf(float64(s), 0) && !math.IsInf(factor, 0): // of a row that is near zero
		for i, v := range x {
			y[i] = float32(float64(v) * factor)
		}
		if weighted {
			e.vec.MulRow(y, y, k.weights[0], 1)
		}
	case weighted:
		e.vec.MulRow(y, x, k.weights[0], s)
	default:
		e.vec.Scale(y, x, s, 0)
	}
}

// leastSumSq is the sum of squares below which those that float32 does not hold may count.
const leastSumSq = 1e-30

// sumSq is the sum of squares; where squares or the sum leave the range of float32 it is taken in float64.
func sumSq(e *env, x []float32) float64 {
	s := float64(e.vec.SumSq(x))
	if math.IsInf(s, 0) || s < leastSumSq {
		s = 0
		for _, v := range x {
			s += float64(v) * float64(v)
		}
	}
	return s
}

// center sets y to x less its mean. The mean is taken twice, the second time of what is left, so that its rounding does not count,
// however large it is against the deviations.
func center(e *env, y, x []float32) {
	mean := e.vec.Sum(x) / float32(len(x))
	e.vec.Scale(y, x, 1, -mean)
	if rest := e.vec.Sum(y) / float32(len(y)); rest != 0 {
		e.vec.Scale(y, y, 1, -rest)
	}
}

func layerRow(k *rowsKernel, e *env, c *cursor, buf []float32) {
	x, y := k.row(e, c, 1, buf), k.target(c, buf)
	center(e, y, x)
	k.normalize(e, y, y, 1/math.Sqrt(sumSq(e, y)/float64(k.width)+float64(k.eps)))
	if k.vectors[1] >= 0 {
		e.vec.Add(y, y, k.weights[1])
	}
	k.store(e, c, y)
}

func l2Row(k *rowsKernel, e *env, c *cursor, buf []float32) {
	x, y := k.row(e, c, 1, buf), k.target(c, buf)
	length := max(math.Sqrt(sumSq(e, x)), float64(k.eps))
	k.normalize(e, y, x, 1/length)
	k.store(e, c, y)
}

func softmaxKernel(op attention.Softmax, c ops.Call) kernel {
	k := &rowsKernel{in: []int{0, 1}, axis: op.Axis, grain: grainExp, buffers: 4, kind: softmaxRows, log: op.Log, scale: 1}
	if op.Scale != 0 {
		k.scale, k.hasScale = op.Scale, true
	}
	in := c.In
	if len(in) > 1 && in[1].DType == tensor.Bool {
		k.boolMask = true
		in = in[:1]
	}
	if !onlyFloats(in) {
		return nil
	}
	return k
}

func softmaxRow(k *rowsKernel, e *env, c *cursor, buf []float32) {
	n := k.width
	x, y := k.row(e, c, 1, buf), k.target(c, buf)
	// The scores have a buffer of their own: y may be x's memory, and x is looked at again if they overflow.
	z, scores := buf[3*n:4*n], x
	var mask []float32
	if k.hasScale {
		e.vec.Scale(z, x, k.scale, 0)
		scores = z
	}
	if k.n > 2 {
		if k.boolMask {
			p, step := unsafe.Add(k.base[2], c.off[2]), k.along[2]
			mask = buf[n : 2*n]
			for i, x := range scores {
				mask[i], z[i] = 0, x
				if *(*uint8)(unsafe.Add(p, i*step)) == 0 {
					mask[i], z[i] = float32(math.Inf(-1)), float32(math.Inf(-1))
				}
			}
		} else {
			mask = k.row(e, c, 2, buf[n:2*n])
			addMask(z, scores, mask)
		}
		scores = z
	}
	top := e.vec.MaxOf(scores)
	if math.IsInf(float64(top), 0) && (k.hasScale || mask != nil) {
		wideSoftmax(y, x, mask, float64(k.scale), k.log)
		k.store(e, c, y)
		return
	}
	if !k.log {
		if sum := e.vec.ExpSub(y, scores, top); sum != 0 {
			e.vec.Scale(y, y, 1/sum, 0)
		}
		k.store(e, c, y)
		return
	}
	if math.IsInf(float64(top), -1) {
		copy(y, scores)
	} else {
		sum := e.vec.ExpSub(buf[2*n:3*n], scores, top)
		e.vec.Scale(y, scores, 1, -top)
		e.vec.Scale(y, y, 1, -float32(math.Log(float64(sum))))
	}
	k.store(e, c, y)
}

// wideSoftmax is the row in float64, for scores that float32 does not hold: a finite row has a softmax, however large its scale.
func wideSoftmax(y, x, mask []float32, scale float64, log bool) {
	score := func(i int) float64 {
		switch {
		case mask == nil:
			return scale * float64(x[i])
		case math.IsInf(float64(mask[i]), -1): // excluded, whatever the score is
			return math.Inf(-1)
		}
		return scale*float64(x[i]) + float64(mask[i])
	}
	top, sum := math.Inf(-1), 0.
	for i := range x {
		top = max(top, score(i))
	}
	masked := math.IsInf(top, -1)
	if !masked {
		for i := range x {
			sum += math.Exp(score(i) - top)
		}
	}
	for i := range x {
		z := score(i)
		switch {
		case masked && log:
			y[i] = float32(top)
		case masked:
			y[i] = 0
		case log:
			y[i] = float32(z - top - math.Log(sum))
		default:
			y[i] = float32(math.Exp(z-top) / sum)
		}
	}
}

// addMask adds a mask; what it excludes (-Inf) stays excluded whatever the score is, NaN included.
func addMask(y, x, mask []float32) {
	for i, m := range mask {
		if m < -math.MaxFloat32 {
			y[i] = m
			continue
		}
		y[i] = x[i] + m
	}
}

// channelsKernel applies a scale and a shift to each channel of [N, C, ...]; for group norm they come from the data.
type channelsKernel struct {
	referenceKernel
	e               *env
	groups          int // 0: batch norm
	eps             float32
	batch, c, inner int
	x, y            []float32
	weight, bias    []float32
	mean, variance  []float32
	perGroup        int
}

func groupKernel(op norm.Group, c ops.Call) kernel {
	for _, s := range c.In {
		if s.DType != tensor.F32 && s.DType != tensor.Invalid {
			return nil
		}
	}
	return &channelsKernel{groups: op.Groups, eps: op.Eps}
}

func batchKernel(op norm.Batch, c ops.Call) kernel {
	k := groupKernel(norm.Group{Eps: op.Eps}, c)
	return k
}

func (k *channelsKernel) bind(ctx context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.e = e
	s := part.Values[n.In[0]].Spec
	k.batch, k.c, k.inner = s.Dims[0], s.Dims[1], 1
	for _, d := range s.Shape()[2:] {
		k.inner *= d
	}
	k.op = n.Op
	return k.referenceKernel.bind(ctx, e, part, n)
}

// vector returns optional input i.
func (k *channelsKernel) vector(frame []tensor.Tensor, i int) ([]float32, bool) {
	if i >= len(k.in) || k.in[i] < 0 {
		return nil, true
	}
	t := &frame[k.in[i]]
	if !t.IsContiguous() {
		return nil, false
	}
	return tensor.Data[float32](*t), true
}

func (k *channelsKernel) run(e *env, frame []tensor.Tensor) error {
	in, out := &frame[k.in[0]], &frame[k.out[0]]
	ok := in.IsContiguous() && out.IsContiguous()
	vectors := [4]*[]float32{&k.weight, &k.bias, &k.mean, &k.variance}
	for i, v := range vectors {
		var plain bool
		*v, plain = k.vector(frame, i+1)
		ok = ok && plain
	}
	if !ok || in.Elems() == 0 {
		return k.referenceKernel.run(e, frame)
	}
	k.x, k.y = tensor.Data[float32](*in), tensor.Data[float32](*out)
	n := k.batch * k.c
	if k.groups > 0 {
		n = k.batch * k.groups
		k.perGroup = k.c / k.groups
	}
	if n == 1 || in.Elems() < grainCheap {
		for i := range n {
			k.Do(0, i)
		}
		return nil
	}
	par.Run(e.threads, n, k)
	return nil
}

// Do computes one channel, or one group of channels.
func (k *channelsKernel) Do(_, job int) {
	if k.e.stopped() {
		return
	}
	if k.groups == 0 {
		ch := job % k.c
		s := float64(k.weight[ch]) / math.Sqrt(float64(k.variance[ch])+float64(k.eps))
		x, y := k.x[job*k.inner:][:k.inner], k.y[job*k.inner:][:k.inner]
		k.e.vec.Scale(y, x, 1, -k.mean[ch])
		scaleShift(k.e, y, s, k.bias[ch])
		return
	}
	n := k.perGroup * k.inner
	x, y := k.x[job*n:][:n], k.y[job*n:][:n]
	center(k.e, y, x)
	s := 1 / math.Sqrt(sumSq(k.e, y)/float64(n)+float64(k.eps))
	for i := range k.perGroup {
		ch := job*k.perGroup%k.c + i
		w, b := s, float32(0)
		if k.weight != nil {
			w *= float64(k.weight[ch])
		}
		if k.bias != nil {
			b = k.bias[ch]
		}
		scaleShift(k.e, y[i*k.inner:][:k.inner], w, b)
	}
}

// scaleShift sets y to y w + b. A factor that float32 does not hold is that of numbers near zero.
func scaleShift(e *env, y []float32, w float64, b float32) {
	s := float32(w)
	if math.IsInf(float64(s), 0) && !math.IsInf(w, 0) {
		for i, v := range y {
			y[i] = float32(float64(v)*w + float64(b))
		}
		return
	}
	e.vec.Scale(y, y, s, b)
}
