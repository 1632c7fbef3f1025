package aie

import (
	"errors"
	"math"
	"sync"
	"unsafe"

	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Floats are quantized to +-32,639 (int16) and +-127 (int8). 32,639 is 127 x 256 + 127: such a number is two signed bytes, high and low,
// so that the CPU's int8 kernels compute int16 products exactly. It costs 0.4 % of the range of int16.
const (
	quantLimit16 = 127*256 + 127
	quantLimit8  = 127
)

// weights of one matrix.
type weights struct {
	e     *Engine
	typ   core.Type
	n, k  int
	scale []float32         // of each output channel; nil if the weights came as integers, or are fp32
	data  []byte            // [N][K] elements
	wide  bool              // holds an int16 that is no pair of signed bytes
	odd   map[int][]float32 // channels that hold a NaN or an infinity, which have no number: the processor computes them

	chunks []chunk            // int16, mode=fast
	s8     *gemm.PackedB      // int8, mode=fast
	rows   []float32          // fp32, mode=fast: [K][N]
	mu     sync.Mutex         // guards arrays
	arrays map[packing][]byte // A as a plan's movers read it

	expected map[packing]int // bytes of those that are not made yet
}

// packing is what of a plan the order of its weights depends on.
type packing struct {
	design                                       plan.Design
	mb, kb, rows, chain, steps, mc, kc, resident int
}

func packingOf(p *plan.Plan) packing {
	return packing{p.Design, p.MB, p.KB, p.Rows, p.Chain, p.Steps, p.MC, p.KC, p.ResidentBlocks}
}

// chunk is a part of K whose byte products fit 32 bits. In the paper's design sums are narrowed after each k_c.
type chunk struct {
	k0, k1 int
	narrow bool
	hi, lo *gemm.PackedB
}

// chunkK keeps the sum of two byte products a step within 32 bits: 2 x 65,536 x 128 x 128 is 2^31.
const chunkK = 1<<16 - 1

func (w *weights) close() error {
	var errs []error
	for i := range w.chunks {
		errs = append(errs, w.chunks[i].hi.Close(), w.chunks[i].lo.Close())
	}
	if w.s8 != nil {
		errs = append(errs, w.s8.Close())
	}
	return errors.Join(errs...)
}

// newWeights takes a matrix [N,K] of f32, i16 or i8.
func (e *Engine) newWeights(s matmul.Spec, t tensor.Tensor) (*weights, error) {
	w := &weights{e: e, typ: e.typeFor(s), n: s.N, k: s.K, arrays: map[packing][]byte{}, expected: map[packing]int{}}
	w.data = make([]byte, s.N*s.K*w.typ.Bytes())
	n, k := s.N, s.K
	rs, cs := t.Strides[0], t.Strides[1]
	switch {
	case n*k == 0:
	case t.DType == tensor.I8:
		src := tensor.Data[int8](t)
		for i := range n {
			for p := range k {
				w.data[i*k+p] = byte(src[i*rs+p*cs])
			}
		}
	case t.DType == tensor.I16:
		src, dst := tensor.Data[int16](t), view[int16](w.data)
		for i := range n {
			for p := range k {
				v := src[i*rs+p*cs]
				w.wide = w.wide || v > quantLimit16
				dst[i*k+p] = v
			}
		}
	default:
		src := tensor.Data[float32](t)
		if w.typ == core.FP32 {
			dst := view[float32](w.data)
			for i := range n {
				for p := range k {
					dst[i*k+p] = src[i*rs+p*cs]
				}
			}
			break
		}
		w.scale = make([]float32, n)
		row := make([]float32, k)
		for i := range n {
			for p := range k {
				row[p] = src[i*rs+p*cs]
			}
			if w.typ == core.Int16 {
				w.scale[i] = quantize16(view[int16](w.data)[i*k:(i+1)*k], row)
			} else {
				w.scale[i] = quantize8(view[int8](w.data)[i*k:(i+1)*k], row)
			}
			if isNaN(w.scale[i]) {
				if w.odd == nil {
					w.odd = map[int][]float32{}
				}
				w.odd[i] = append([]float32(nil), row...)
			}
		}
	}
	if e.emulate || n*k == 0 {
		return w, nil
	}
	opt := &gemm.Options{Threads: e.threads}
	var err error
	switch w.typ {
	case core.Int8:
		w.s8, err = gemm.PackB(gemm.View(view[int8](w.data), k, n, 1, k), opt)
	case core.FP32:
		w.rows = make([]float32, n*k)
		src := view[float32](w.data)
		for i := range n {
			for p := range k {
				w.rows[p*n+i] = src[i*k+p]
			}
		}
	case core.Int16:
		if w.wide {
			break
		}
		hi, lo := make([]int8, n*k), make([]int8, n*k)
		digits(hi, lo, view[int16](w.data))
		step, narrow := chunkK, false
		if kc := e.narrowEvery(s); kc > 0 {
			step, narrow = kc, true
		}
		for k0 := 0; k0 < k && err == nil; k0 += step {
			c := chunk{k0: k0, k1: min(k0+step, k), narrow: narrow}
			if c.hi, err = gemm.PackB(gemm.View(hi[k0:], c.k1-k0, n, 1, k), opt); err == nil {
				c.lo, err = gemm.PackB(gemm.View(lo[k0:], c.k1-k0, n, 1, k), opt)
			}
			w.chunks = append(w.chunks, c)
		}
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// value is a weight as float32.
func (w *weights) value(channel, p int) float32 {
	if odd := w.odd[channel]; odd != nil {
		return odd[p]
	}
	if w.typ == core.Int16 {
		return float32(view[int16](w.data)[channel*w.k+p]) * w.scale[channel]
	}
	return float32(view[int8](w.data)[channel*w.k+p]) * w.scale[channel]
}

func isNaN(f float32) bool { return f != f }

// narrowEvery is the length of K after which the paper's design narrows sums, 0 if never: sums that are neither shifted nor saturated are
// the same modulo 2^32 whether they are narrowed on the way or not.
func (e *Engine) narrowEvery(s matmul.Spec) int {
	if e.design != plan.Paper || e.narrowFor(s) == (core.Narrow{}) {
		return 0
	}
	p, err := e.planFor(s, 1)
	if err != nil {
		return 0
	}
	return p.plan.KC
}

// packedFor returns the weights in the order in which a plan's movers read them; packed once for each geometry.
func (w *weights) packedFor(p *plan.Plan) ([]byte, error) {
	key := packingOf(p)
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.arrays[key]; a != nil {
		return a, nil
	}
	a, err := array.PackWeights(p, &array.Matrix{Data: w.data, Rows: w.n, Cols: w.k, RowStride: w.k, ColStride: 1, Bytes: w.typ.Bytes()})
	if err == nil {
		w.arrays[key] = a
		delete(w.expected, key)
	}
	return a, err
}

// view reinterprets bytes as elements.
func view[T any](b []byte) []T {
	var e T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(e)))
}

func bytesOf[T any](s []T) []byte {
	var e T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(e)))
}

// quantize16 stores x / scale rounded to nearest even and returns the scale. If x holds a NaN or an infinity the numbers are 0 and the scale is
// NaN: such a row is computed by the processor.
func quantize16(dst []int16, x []float32) float32 {
	scale, inv := scaleOf(x, quantLimit16)
	for i, v := range x {
		dst[i] = int16(roundEven(v * inv))
	}
	return scale
}

func quantize8(dst []int8, x []float32) float32 {
	scale, inv := scaleOf(x, quantLimit8)
	for i, v := range x {
		dst[i] = int8(roundEven(v * inv))
	}
	return scale
}

func scaleOf(x []float32, limit float32) (scale, inverse float32) {
	most := float32(0)
	bad := float32(0)
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
		bad += v - v // 0, or NaN for NaN and infinity
	}
	if bad != 0 || bad != bad {
		return float32(math.NaN()), 0
	}
	if most < 1e-35 { // the inverse would overflow: as good as zero
		return 0, 0
	}
	return most / limit, limit / most
}

// roundEven rounds to nearest even; |v| is below 2^22.
func roundEven(v float32) int32 {
	const magic = 1.5 * (1 << 23)
	if v != v {
		return 0
	}
	return int32(float32(v+magic) - magic)
}

// digits splits 256 h + l, both signed bytes.
func digits(hi, lo []int8, v []int16) {
	for i, x := range v {
		l := int8(x)
		lo[i] = l
		hi[i] = int8((int(x) - int(l)) >> 8)
	}
}

// acts are activations of one product, quantized.
type acts struct {
	typ    core.Type
	m, k   int
	i16    []int16
	hi, lo []int8 // int16 in mode=fast; hi holds int8 numbers too
	f32    []float32
	scale  []float32 // of each row; nil if they came as integers, or are fp32
	wide   bool

	scaleRows []float32 // of a convolution: the image's scale for each of its pixels
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// quantJob quantizes rows of float32.
type quantJob struct {
	x      *acts
	src    []float32
	rows   []int // where each row starts
	stride int   // between elements of a row
	split  bool
	line   [][]float32
}

const quantRows = 8

func (j *quantJob) Do(worker, job int) {
	x := j.x
	for i := job * quantRows; i < min(x.m, (job+1)*quantRows); i++ {
		at := j.rows[i]
		var line []float32
		if j.stride == 1 {
			line = j.src[at : at+x.k]
		} else {
			line = j.line[worker]
			for p := range x.k {
				line[p] = j.src[at+p*j.stride]
			}
		}
		switch x.typ {
		case core.FP32:
			copy(x.f32[i*x.k:], line)
		case core.Int8:
			x.scale[i] = quantize8(x.hi[i*x.k:(i+1)*x.k], line)
		case core.Int16:
			d := x.i16[i*x.k : (i+1)*x.k]
			x.scale[i] = quantize16(d, line)
			if j.split {
				digits(x.hi[i*x.k:], x.lo[i*x.k:], d)
			}
		}
	}
}

// quantize fills x from the rows of a float32 matrix.
func (j *quantJob) quantize(x *acts, threads int) {
	j.x = x
	n := x.m * x.k
	switch x.typ {
	case core.FP32:
		x.f32 = grow(x.f32, n)
	case core.Int8:
		x.hi, x.scale = grow(x.hi, n), grow(x.scale, x.m)
	case core.Int16:
		x.i16, x.scale = grow(x.i16, n), grow(x.scale, x.m)
		if j.split {
			x.hi, x.lo = grow(x.hi, n), grow(x.lo, n)
		}
	}
	jobs := (x.m + quantRows - 1) / quantRows
	if j.stride != 1 {
		j.line = j.line[:0]
		for range par.Workers(threads, jobs) {
			j.line = append(j.line, make([]float32, x.k))
		}
	}
	par.Run(threads, jobs, j)
}

// rowOffsets lists where the rows of a tensor start, in elements: all positions of its dimensions but the last.
func rowOffsets(dst []int, t *tensor.Tensor) []int {
	n := int(t.Rank) - 1
	rows := 1
	for d := range n {
		rows *= t.Dims[d]
	}
	dst = grow(dst, rows)[:0]
	var idx [tensor.MaxRank]int
	off := 0
	for range rows {
		dst = append(dst, off)
		for d := n - 1; d >= 0; d-- {
			idx[d]++
			off += t.Strides[d]
			if idx[d] < t.Dims[d] {
				break
			}
			off -= idx[d] * t.Strides[d]
			idx[d] = 0
		}
	}
	return dst
}
