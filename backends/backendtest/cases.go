package backendtest

import (
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// builder collects cases.
type builder struct {
	long bool
	out  []*Case
}

// cases returns every case of the suite.
func cases(long bool) []*Case {
	b := &builder{long: long}
	b.elementwise()
	b.norms()
	b.attention()
	b.reductions()
	b.shapes()
	b.rows()
	b.products()
	b.convolutions()
	return b.out
}

// add adds a case if the shape rule accepts its operands: generators try every type.
func (b *builder) add(op ops.Op, bd bound, in ...Arg) *Case {
	c := &Case{Op: op, In: in, Bound: bd}
	if _, err := op.Infer(c.specs()); err != nil {
		return c
	}
	b.out = append(b.out, c)
	return c
}

func arg(d tensor.DType, f fill, dims ...int) Arg {
	return Arg{Spec: tensor.MakeSpec(d, dims...), Fill: f}
}

func constant(a Arg) Arg { a.Const = true; return a }

var (
	plainTypes = []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16, tensor.I8, tensor.U8, tensor.I16, tensor.U16,
		tensor.I32, tensor.U32, tensor.I64, tensor.U64, tensor.Bool}
	floatTypes = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.F64}
	blockTypes = []tensor.DType{tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0, tensor.Q2_K, tensor.Q3_K, tensor.Q4_K,
		tensor.Q5_K, tensor.Q6_K, tensor.IQ4_NL, tensor.MXFP4}
	// Shapes at edges: a scalar, one, lengths around vectors, zero sizes, rows that are longer than a strip of any kernel.
	edges = [][]int{{}, {1}, {7}, {16}, {33}, {0}, {2, 0, 3}, {3, 65}, {5, 1, 9}, {2, 3, 4, 5}, {1031}}
	few   = [][]int{{3, 17}, {0}}
)

// shapesFor returns the edges for f32 and some of them for other types.
func (b *builder) shapesFor(d tensor.DType) [][]int {
	if d == tensor.F32 || b.long {
		return edges
	}
	return few
}

// exactly is the bound of what is not computed; tight is that of one rounded operation; near that of a few.
var (
	exactly = bound{Strict: true}
	tight   = bound{Rel: 4e-7}
	near    = bound{Rel: 2e-6, Abs: 1e-6}
)

func (b *builder) elementwise() {
	for _, f := range elementwise.Funcs() {
		for _, d := range plainTypes {
			shapes := few
			if f == elementwise.Neg || f == elementwise.Exp {
				shapes = b.shapesFor(d)
			}
			for _, dims := range shapes {
				b.add(elementwise.Unary{F: f}, tight, arg(d, normal, dims...))
			}
			if d.IsFloat() {
				b.add(elementwise.Unary{F: f}, tight, arg(d, special, 5, 40)).Lone = true
				b.add(elementwise.Unary{F: f}, tight, arg(d, scaled(0, 30), 200)).Lone = true
			}
		}
	}
	for k := ops.NoActivation; k <= ops.Mish; k++ {
		for _, p := range [][2]float32{{0.25, 1.5}} {
			a := ops.Act{Kind: k, P: p[0], Q: p[1]}
			for _, d := range floatTypes {
				for _, dims := range b.shapesFor(d) {
					b.add(elementwise.Activate{Act: a}, near, arg(d, scaled(0, 3), dims...))
				}
				b.add(elementwise.Activate{Act: a}, near, arg(d, special, 5, 40)).Lone = true
				b.add(elementwise.GLU{Act: a}, near, arg(d, scaled(0, 3), 3, 65), arg(d, normal, 3, 65))
			}
		}
	}
	for _, d := range floatTypes {
		for _, dims := range b.shapesFor(d) {
			b.add(elementwise.Scale{Mul: 0.125, Add: -1.5}, near, arg(d, normal, dims...))
		}
	}
	pairs := [][2][]int{{{3, 17}, {3, 17}}, {{3, 17}, {17}}, {{3, 1}, {1, 17}}, {{}, {5}}, {{2, 3, 4}, {3, 1}}, {{0}, {1}}, {{4, 0}, {4, 1}},
		{{1}, {1}}, {{2, 1, 5, 1}, {3, 1, 7}}, {{9, 130}, {9, 1}}, {{700}, {700}}}
	for _, f := range elementwise.Funcs2() {
		for _, d := range plainTypes {
			ps := pairs[:4]
			if d == tensor.F32 && f <= elementwise.Div || b.long {
				ps = pairs
			}
			for _, p := range ps {
				b.add(elementwise.Binary{F: f}, tight, arg(d, normal, p[0]...), arg(d, normal, p[1]...))
			}
			if d.IsFloat() {
				b.add(elementwise.Binary{F: f}, tight, arg(d, special, 9, 40), arg(d, special, 9, 40)).Lone = true
			}
			if d.IsInt() { // small divisors, exponents and shifts
				b.add(elementwise.Binary{F: f}, exactly, arg(d, normal, 5, 20), arg(d, smallInt(9), 5, 20))
			}
		}
		b.add(elementwise.Binary{F: f}, tight, arg(tensor.F32, normal, 4, 9), arg(tensor.F16, normal, 9))
		b.add(elementwise.Binary{F: f}, tight, arg(tensor.BF16, normal, 4, 9), arg(tensor.F16, normal, 9))
		b.add(elementwise.Binary{F: f}, tight, arg(tensor.F64, normal, 4, 9), arg(tensor.F32, normal, 9))
	}
	for _, d := range plainTypes {
		b.add(elementwise.Where{}, exactly, arg(tensor.Bool, flags, 3, 17), arg(d, normal, 3, 17), arg(d, normal, 3, 17))
		b.add(elementwise.Where{}, exactly, arg(tensor.Bool, flags, 3, 1), arg(d, normal, 17), arg(d, normal))
		for i := range 4 {
			in := []Arg{arg(d, normal, 3, 17), {}, {}}
			if i&1 != 0 {
				in[1] = arg(d, values(3))
			}
			if i&2 != 0 {
				in[2] = arg(d, values(90), 1)
			}
			b.add(elementwise.Clamp{}, exactly, in...)
		}
		for _, to := range plainTypes {
			f := normal
			if d.IsFloat() && to.IsInt() { // conversions of what does not fit are not defined
				f = smallFloats
			}
			b.add(elementwise.Cast{To: to}, exactly, arg(d, f, 3, 17))
		}
	}
	for _, d := range floatTypes {
		for _, to := range floatTypes {
			b.add(elementwise.Cast{To: to}, exactly, arg(d, special, 4, 77)).Lone = true
		}
	}
	for _, d := range blockTypes {
		b.add(elementwise.Cast{To: tensor.F32}, exactly, arg(d, normal, 3, 512))
	}
}

// smallFloats fills with numbers that every integer type holds.
func smallFloats(r *rng, t *tensor.Tensor) {
	floats(func(r *rng, _ int) float64 { return r.Float64() * 100 })(r, t)
}

func (b *builder) norms() {
	rows := bound{Scale: 1e-6, Rel: 2e-6}
	for _, d := range floatTypes {
		for _, dims := range b.shapesFor(d) {
			if len(dims) == 0 {
				continue
			}
			n := dims[len(dims)-1]
			x, w := arg(d, normal, dims...), arg(tensor.F32, normal, n)
			b.add(norm.RMS{Eps: 1e-5}, rows, x)
			b.add(norm.RMS{Eps: 1e-5}, rows, x, w)
			b.add(norm.Layer{Eps: 1e-5}, rows, x, w, arg(tensor.F32, normal, n))
			b.add(norm.Layer{Eps: 1e-5}, rows, x)
			b.add(norm.L2{Eps: 1e-12}, rows, x)
		}
		b.add(norm.Layer{Eps: 1e-5}, rows, arg(d, normal, 4, 64), Arg{}, arg(d, normal, 64))
		b.add(norm.RMS{Eps: 1e-5}, rows, arg(d, special, 9, 40), arg(d, normal, 40)).Lone = true
		for _, g := range []int{1, 2, 6} {
			b.add(norm.Group{Groups: g, Eps: 1e-5}, rows, arg(d, normal, 2, 6, 5, 3), arg(tensor.F32, normal, 6), arg(tensor.F32, normal, 6))
		}
		b.add(norm.Batch{Eps: 1e-3}, rows, arg(d, normal, 2, 6, 5, 3), arg(tensor.F32, normal, 6), arg(tensor.F32, normal, 6),
			arg(tensor.F32, normal, 6), arg(tensor.F32, positive, 6))
		b.add(norm.Batch{Eps: 1e-3}, rows, arg(d, normal, 2, 6), arg(tensor.F32, normal, 6), arg(tensor.F32, normal, 6),
			arg(tensor.F32, normal, 6), arg(tensor.F32, positive, 6))
	}
	// A large mean: the variance is what is left.
	b.add(norm.Layer{Eps: 1e-5}, bound{Scale: 1e-4}, arg(tensor.F32, scaled(100, 1), 4, 300))
	b.add(norm.RMS{Eps: 0}, rows, arg(tensor.F32, values(0), 2, 8)) // 0/0 is NaN
	b.add(norm.RMS{Eps: 1e-6}, rows, arg(tensor.F32, normal, 40, 1031), arg(tensor.F32, normal, 1031)).Lone = true
}

func (b *builder) attention() {
	soft := bound{Abs: 1e-6, Rel: 1e-5}
	for _, d := range floatTypes {
		for _, dims := range b.shapesFor(d) {
			b.add(attention.Softmax{Axis: -1}, soft, arg(d, scaled(0, 4), dims...))
			if len(dims) > 1 {
				b.add(attention.Softmax{Axis: 0, Scale: 0.5}, soft, arg(d, scaled(0, 4), dims...))
				b.add(attention.Softmax{Axis: 1, Log: true}, soft, arg(d, scaled(0, 4), dims...))
			}
		}
		x := arg(d, scaled(0, 3), 2, 3, 4, 37)
		for _, m := range []Arg{arg(d, mask, 4, 37), arg(tensor.F32, mask, 2, 1, 4, 37), arg(tensor.Bool, maskFlags, 37), arg(tensor.Bool, maskFlags, 3, 1, 37)} {
			b.add(attention.Softmax{Axis: -1, Scale: 0.25}, soft, x, m)
		}
		b.add(attention.Softmax{Axis: -1, Log: true}, soft, x, arg(tensor.F32, mask, 4, 37))
		b.add(attention.Softmax{Axis: -1}, soft, arg(d, special, 6, 5)).Lone = true
		b.add(attention.Softmax{Axis: -1}, soft, arg(d, values(math.Inf(-1)), 3, 5))
		b.add(attention.Softmax{Axis: -1}, soft, arg(d, values(80, 81, -80), 3, 5)) // exp would overflow
	}
	b.ropes()
	b.attentions()
}

func (b *builder) ropes() {
	turn := bound{Scale: 1e-6}
	for _, d := range floatTypes {
		for _, op := range []attention.RoPE{
			{}, {Half: true}, {Dims: 4}, {Half: true, Dims: 8, Base: 500000}, {Scale: 0.25, Base: 1e6, Half: true},
			{Scale: 0.25, Extrapolate: 1, Context: 64}, {Half: true, Scale: 1.0 / 32, Extrapolate: 1, Context: 4096, Fast: 16, Slow: 2, Magnitude: 1.2, Base: 1e6},
		} {
			b.add(op, turn, arg(d, normal, 5, 3, 16), arg(tensor.I32, smallInt(5000), 5))
			b.add(op, turn, arg(d, normal, 2, 5, 1, 16), arg(tensor.I64, smallInt(5000), 2, 5))
			b.add(op, turn, arg(d, normal, 2, 5, 2, 16), arg(tensor.I32, smallInt(90), 5), arg(tensor.F32, positive, op.Rotary(16)/2))
		}
		b.add(attention.RoPE{}, turn, arg(d, normal, 0, 3, 16), arg(tensor.I32, smallInt(5), 0))
		b.add(attention.RoPE{Half: true}, turn, arg(d, normal, 1, 2, 70), arg(tensor.I32, values(7)))
	}
}

func (b *builder) attentions() {
	type size struct{ batch, h, g, m, n, d, dv int }
	sizes := []size{{0, 2, 1, 1, 1, 4, 4}, {0, 4, 2, 3, 9, 8, 8}, {2, 4, 4, 5, 5, 16, 12}, {0, 8, 2, 1, 150, 16, 16}, {0, 3, 3, 70, 140, 8, 8}, {3, 2, 1, 2, 0, 4, 4}, {0, 1, 1, 0, 3, 4, 4}}
	for _, d := range floatTypes {
		ss := sizes
		if d != tensor.F32 && !b.long {
			ss = sizes[1:4]
		}
		for _, z := range ss {
			dims := func(heads, n, d int) []int {
				if z.batch > 0 {
					return []int{z.batch, heads, n, d}
				}
				return []int{heads, n, d}
			}
			q, k, v := arg(d, normal, dims(z.h, z.m, z.d)...), arg(d, normal, dims(z.g, z.n, z.d)...), arg(d, normal, dims(z.g, z.n, z.dv)...)
			bd := bound{Scale: 4e-6}
			none := Arg{}
			pos := arg(tensor.I32, smallInt(max(z.n, 1)), z.m)
			b.add(attention.SDPA{}, bd, q, k, v)
			b.add(attention.SDPA{Causal: true}, bd, q, k, v)
			b.add(attention.SDPA{Causal: true, Scale: 0.3, Softcap: 5}, bd, q, k, v, none, pos)
			b.add(attention.SDPA{Causal: true, Window: 4}, bd, q, k, v, none, pos)
			b.add(attention.SDPA{}, bd, q, k, v, arg(tensor.F32, mask, z.m, z.n))
			b.add(attention.SDPA{}, bd, q, k, v, arg(tensor.Bool, maskFlags, z.h, 1, z.n))
			b.add(attention.SDPA{Causal: true}, bd, q, k, v, arg(d, mask, dims(1, z.m, z.n)...), arg(tensor.I64, smallInt(max(z.n, 1)), z.m))
		}
	}
	// Keys behind the positions are not looked at, whatever lies there.
	spoiled := func(n int) fill {
		return func(r *rng, t *tensor.Tensor) {
			normal(r, t)
			for g := range t.Dims[0] {
				for i := n; i < t.Dims[1]; i++ {
					row, _ := t.Index(0, g)
					row, _ = row.Index(0, i)
					v := row.Floats()
					for j := range v {
						v[j] = math.NaN()
					}
					row.SetFloats(v)
				}
			}
		}
	}
	for _, m := range []int{1, 6} {
		b.add(attention.SDPA{Causal: true}, bound{Scale: 4e-6}, arg(tensor.F32, normal, 4, m, 8), arg(tensor.F32, spoiled(9), 2, 200, 8), arg(tensor.F32, spoiled(9), 2, 200, 8),
			Arg{}, arg(tensor.I32, smallInt(9), m)).Lone = true
		// Among the keys of a tile one query sees NaN, another does not.
		b.add(attention.SDPA{Causal: true}, bound{Scale: 4e-6}, arg(tensor.F32, normal, 4, m, 8), arg(tensor.F32, normal, 2, 200, 8), arg(tensor.F32, spoiled(9), 2, 200, 8),
			Arg{}, arg(tensor.I32, smallInt(18), m)).Lone = true
	}
	for _, m := range []int{1, 5, 40} { // a cache of blocks
		q, k, v := arg(tensor.F32, normal, 4, m, 64), arg(tensor.Q8_0, normal, 2, 140, 64), arg(tensor.Q8_0, normal, 2, 140, 32)
		b.add(attention.SDPA{Causal: true}, bound{Scale: 4e-6}, q, k, v, Arg{}, arg(tensor.I32, smallInt(140), m))
	}
	b.add(attention.SDPA{}, bound{Scale: 4e-6}, arg(tensor.F32, scaled(0, 40), 2, 5, 8), arg(tensor.F32, scaled(0, 40), 2, 300, 8), arg(tensor.F32, normal, 2, 300, 8)).Lone = true
}

func (b *builder) reductions() {
	shapes := [][]int{{}, {7}, {3, 65}, {2, 3, 4, 5}, {40, 33}, {2, 600}, {3, 0}, {0, 3}}
	axes := []ops.Ints{ops.MakeInts(), ops.MakeInts(-1), ops.MakeInts(0), ops.MakeInts(1), ops.MakeInts(0, -1), ops.MakeInts(2, 1)}
	for _, k := range reduce.Kinds() {
		for _, d := range plainTypes {
			bd := bound{Rel: 4e-6, Scale: 2e-6}
			f := normal
			if k == reduce.LogSum {
				f = positive
			}
			ss := shapes[1:4]
			if d == tensor.F32 || b.long {
				ss = shapes
			}
			for _, dims := range ss {
				for _, ax := range axes {
					keep := ax.Len() == 1
					bd.Magnitude = sumOfAbs(k, ax, keep)
					b.add(reduce.Reduce{Kind: k, Axes: ax, Keep: keep}, bd, arg(d, f, dims...))
				}
			}
			if d.IsFloat() {
				bd.Magnitude = nil
				b.add(reduce.Reduce{Kind: k, Axes: ops.MakeInts(-1)}, bd, arg(d, special, 30, 5)).Lone = true
				b.add(reduce.Reduce{Kind: k, Axes: ops.MakeInts(0)}, bd, arg(d, special, 5, 30)).Lone = true
			}
		}
	}
	for _, d := range plainTypes {
		for _, dims := range [][]int{{7}, {3, 65}, {2, 3, 4, 5}, {4, 300}} {
			for axis := range len(dims) {
				for i := range 8 {
					op := reduce.Arg{Axis: axis, Min: i&1 != 0, Keep: i&2 != 0, Last: i&4 != 0}
					if i >= 4 {
						op.Out = tensor.I64
					}
					f := normal
					if d.IsInt() || d.IsFloat() {
						f = smallInts // with ties
					}
					if d == tensor.F32 || i == 0 || i == 7 {
						b.add(op, exactly, arg(d, f, dims...))
					}
				}
				b.add(reduce.TopK{K: min(3, dims[axis]), Axis: axis, Smallest: axis == 1}, exactly, arg(d, smallInts, dims...))
				b.add(reduce.CumSum{Axis: axis, Exclusive: axis == 0, Reverse: axis == 1}, bound{Scale: 1e-5, Rel: 1e-5}, arg(d, smallInts, dims...))
			}
		}
		if d.IsFloat() {
			b.add(reduce.Arg{Axis: -1}, exactly, arg(d, special, 30, 6)).Lone = true
			b.add(reduce.Arg{Axis: -1, Min: true, Last: true}, exactly, arg(d, special, 30, 6)).Lone = true
		}
	}
}

// smallInts fills with small numbers, of which many are equal.
func smallInts(r *rng, t *tensor.Tensor) {
	if t.DType == tensor.Bool {
		flags(r, t)
		return
	}
	smallInt(50)(r, t)
}

// sumOfAbs gives the magnitude of sums: that of absolute values. Other kinds are bounded by their result.
func sumOfAbs(k reduce.Kind, axes ops.Ints, keep bool) func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) {
	if k != reduce.Sum && k != reduce.Mean {
		return nil
	}
	return func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) {
		v := in[0].Floats()
		for i := range v {
			v[i] = math.Abs(v[i])
		}
		abs := tensor.New(tensor.F64, in[0].Shape()...)
		abs.SetFloats(v)
		m := tensor.New(tensor.F64, out[0].Shape()...)
		err := reduce.Reduce{Kind: k, Axes: axes, Keep: keep}.Reference([]tensor.Tensor{m}, []tensor.Tensor{abs})
		return m.Floats(), err
	}
}

func (b *builder) shapes() {
	types := append(append([]tensor.DType{}, plainTypes...), tensor.Q8_0, tensor.Q4_K)
	for _, d := range types {
		n := 1
		if d.IsBlock() {
			n = d.Block()
		}
		b.add(shape.Contiguous{}, exactly, arg(d, normal, 3, 4, 5*n))
		b.add(shape.Reshape{Dims: ops.ConstSizes(6, -1)}, exactly, arg(d, normal, 2, 3, 4*n))
		b.add(shape.Reshape{Dims: ops.ConstSizes(-1, 2*n)}, exactly, arg(d, normal, 4, 3*n))
		b.add(shape.Permute{Order: ops.MakeInts(1, 0, 2)}, exactly, arg(d, normal, 3, 4, 2*n))
		b.add(shape.Permute{Order: ops.MakeInts(2, 0, 1)}, exactly, arg(d, normal, 3, 4, 20))
		b.add(shape.Broadcast{Dims: ops.ConstSizes(2, 3, 2*n)}, exactly, arg(d, normal, 3, 2*n))
		b.add(shape.Slice{Axis: 1, From: ops.Const(1), To: shape.End, Step: 2}, exactly, arg(d, normal, 3, 6, 2*n))
		b.add(shape.Slice{Axis: 0, From: ops.Const(-1), To: shape.End, Step: -1}, exactly, arg(d, normal, 3, 2*n))
		b.add(shape.Squeeze{}, exactly, arg(d, normal, 1, 3, 1, 2*n))
		b.add(shape.Unsqueeze{Axes: ops.MakeInts(0, -2)}, exactly, arg(d, normal, 3, 2*n))
		for axis := range 3 {
			b.add(shape.Concat{Axis: axis}, exactly, arg(d, normal, 2, 3, 2*n), arg(d, normal, 2, 3, 2*n))
			dims := []int{4, 4, 4 * n}
			if axis < 2 {
				b.add(shape.Split{Axis: axis, Sizes: ops.MakeInts(1, 0, 3)}, exactly, arg(d, normal, dims...))
			} else {
				b.add(shape.Split{Axis: axis, Sizes: ops.MakeInts(n, 0, 3*n)}, exactly, arg(d, normal, dims...))
			}
			b.add(shape.Split{Axis: axis, Sizes: ops.MakeInts(1, 3)}, exactly, arg(d, normal, 4, 4, 4))
		}
		b.add(shape.Concat{Axis: 0}, exactly, arg(d, normal, 0, 2*n), arg(d, normal, 3, 2*n), arg(d, normal, 1, 2*n))
		for mode := shape.PadConstant; mode <= shape.PadWrap; mode++ {
			b.add(shape.Pad{Before: ops.MakeInts(1, 0), After: ops.MakeInts(0, 2), Mode: mode, Value: 3}, exactly, arg(d, normal, 3, 4))
		}
		b.add(shape.Pad{Before: ops.MakeInts(-1, 2), After: ops.MakeInts(1, -2)}, exactly, arg(d, normal, 3, 4))
		b.add(shape.Tile{Reps: ops.MakeInts(2, 1, 3)}, exactly, arg(d, normal, 2, 3, 4))
	}
	b.add(shape.Contiguous{}, exactly, arg(tensor.F32, normal, 70, 130))
	b.add(shape.Permute{Order: ops.MakeInts(0, 2, 1)}, exactly, arg(tensor.F32, normal, 2, 70, 130))
	b.add(shape.Permute{Order: ops.MakeInts(1, 0)}, exactly, arg(tensor.F32, normal, 600, 300)).Lone = true
}

func (b *builder) rows() {
	for _, d := range append(append([]tensor.DType{}, plainTypes...), blockTypes...) {
		width := 20
		if d.IsBlock() {
			width = 2 * d.Block()
		}
		for _, ids := range [][]int{{1}, {5}, {2, 3}, {}, {0}, {64}} {
			b.add(shape.GetRows{}, exactly, arg(d, normal, 9, width), arg(tensor.I32, smallInt(9), ids...))
		}
		b.add(shape.GetRows{}, exactly, constant(arg(d, normal, 9, width)), arg(tensor.I64, smallInt(9), 4))
		b.add(shape.SetRows{}, exactly, arg(d, normal, 9, 2, width), arg(d, normal, 4, 2, width), arg(tensor.I32, distinct(9), 4))
		b.add(shape.SetRows{Axis: 1}, exactly, arg(d, normal, 2, 9, width), arg(d, normal, 2, 4, width), arg(tensor.I64, distinct(9), 4))
		b.add(shape.SetRows{Axis: -1}, exactly, arg(d, normal, 2, width), arg(d, normal, 2, 4), arg(tensor.I64, distinct(width), 4))
		for axis := range 3 {
			b.add(shape.Gather{Axis: axis}, exactly, arg(d, normal, 4, 5, 6), arg(tensor.I32, smallInt(4), 2, 3))
			b.add(shape.Gather{Axis: axis}, exactly, arg(d, normal, 4, 5, 6), arg(tensor.I64, values(-1, 2, -4)))
		}
	}
	for _, pair := range [][2]tensor.DType{{tensor.F16, tensor.F32}, {tensor.BF16, tensor.F32}, {tensor.F32, tensor.F16}, {tensor.F16, tensor.BF16}, {tensor.F64, tensor.F32}, {tensor.I8, tensor.I32}} {
		b.add(shape.SetRows{Axis: 1}, exactly, arg(pair[0], normal, 2, 9, 20), arg(pair[1], normal, 2, 4, 20), arg(tensor.I32, distinct(9), 4))
	}
	b.add(shape.SetRows{}, exactly, arg(tensor.F32, normal, 9, 6), arg(tensor.F32, normal, 4, 6), arg(tensor.I32, values(3, 5, 3, 3))) // the last wins
	b.add(shape.SetRows{}, exactly, arg(tensor.Q8_0, normal, 9, 64), arg(tensor.F32, normal, 4, 64), arg(tensor.I32, distinct(9), 4))
	b.add(shape.SetRows{Axis: 1}, exactly, arg(tensor.Q8_0, normal, 2, 9, 32), arg(tensor.F16, normal, 2, 4, 32), arg(tensor.I64, distinct(9), 4))
}

// product is the bound of products: 2 K eps times the sum of absolute products, and what narrowing costs.
func product(op matmul.Op, k int) bound {
	return bound{Rel: 1e-6, Scale: float64(2*max(k, 1)+8) * 6e-8, Abs: 1e-30, Off: requantOff(op), Magnitude: func(in []tensor.Tensor, out []tensor.Spec) ([]float64, error) {
		abs := make([]tensor.Tensor, len(in))
		for i := range in {
			var err error
			if abs[i], err = absolute(in[i]); err != nil {
				return nil, err
			}
			if in[i].DType == tensor.F32 && i > 1 {
				narrow := tensor.New(tensor.F32, in[i].Shape()...)
				narrow.SetFloats(abs[i].Floats())
				abs[i] = narrow
			}
		}
		plain := op
		plain.Epilogue.Act, plain.Epilogue.OutScale, plain.Epilogue.OutZero, plain.Out = ops.Act{}, 0, 0, tensor.F64
		m := tensor.New(tensor.F64, out[0].Shape()...)
		if err := plain.Reference([]tensor.Tensor{m}, abs); err != nil {
			return nil, err
		}
		return m.Floats(), nil
	}}
}

// requantOff lets requantized results differ by one: ties of a value that was rounded before.
func requantOff(op matmul.Op) int64 {
	e := op.Epilogue
	if e.RowScale || e.ColScale || e.Bias || e.OutScale != 0 {
		return 1
	}
	return 0
}

func (b *builder) products() {
	type mnk struct{ m, n, k int }
	sizes := []mnk{{1, 1, 1}, {2, 3, 4}, {1, 33, 17}, {5, 16, 64}, {17, 7, 31}, {3, 5, 0}, {0, 4, 3}, {4, 0, 3}, {33, 65, 130}, {1, 300, 96}, {14, 48, 32}, {15, 1, 70}}
	floatsOf := [][2]tensor.DType{{tensor.F32, tensor.F32}, {tensor.F32, tensor.F16}, {tensor.F32, tensor.BF16}, {tensor.BF16, tensor.BF16}, {tensor.F16, tensor.F16}, {tensor.F64, tensor.F64}}
	for _, p := range floatsOf {
		ss := sizes[:6]
		if p[0] == tensor.F32 && p[1] == tensor.F32 || b.long {
			ss = sizes
		}
		for i, z := range ss {
			for _, op := range []matmul.Op{{}, {TransB: true}} {
				bd := product(op, z.k)
				dims := []int{z.k, z.n}
				if op.TransB {
					dims = []int{z.n, z.k}
				}
				x, y := arg(p[0], normal, z.m, z.k), arg(p[1], normal, dims...)
				b.add(op, bd, x, y)
				b.add(op, bd, x, constant(y))
				if i == 1 && p[0] != tensor.F64 {
					for _, out := range []tensor.DType{tensor.BF16, tensor.F16} {
						o := op
						o.Out = out
						b.add(o, product(o, z.k), x, constant(y))
					}
				}
			}
		}
	}
	b.epilogues()
	// Batches: equal, broadcast on either side, grouped heads.
	for _, p := range [][2][]int{{{2, 3, 4, 5}, {2, 3, 5, 6}}, {{2, 3, 4, 5}, {5, 6}}, {{4, 5}, {3, 5, 6}}, {{2, 1, 4, 5}, {3, 5, 6}}, {{2, 4, 3, 8}, {2, 1, 8, 7}}, {{0, 4, 5}, {5, 6}},
		{{2, 2, 2, 2, 3}, {3, 4}}} {
		k := p[0][len(p[0])-1]
		b.add(matmul.Op{}, product(matmul.Op{}, k), arg(tensor.F32, normal, p[0]...), arg(tensor.F32, normal, p[1]...))
		b.add(matmul.Op{}, product(matmul.Op{}, k), arg(tensor.F32, normal, p[0]...), constant(arg(tensor.F32, normal, p[1]...)))
	}
	// NaN and infinity propagate, also where the other factor is zero.
	sparse := floats(func(r *rng, i int) float64 { return []float64{0, 1, 0, -2}[r.IntN(4)] })
	b.add(matmul.Op{}, product(matmul.Op{}, 20), arg(tensor.F32, sparse, 9, 20), arg(tensor.F32, unbounded, 20, 40)).Lone = true
	b.add(matmul.Op{TransB: true}, product(matmul.Op{TransB: true}, 20), arg(tensor.F32, unbounded, 9, 20), constant(arg(tensor.F32, sparse, 40, 20))).Lone = true
	b.add(matmul.Op{}, product(matmul.Op{}, 1), arg(tensor.F32, values(0), 1, 1), arg(tensor.F32, values(math.NaN()), 1, 1)).Lone = true
	// Weights in blocks.
	for _, d := range blockTypes {
		for _, m := range []int{1, 5} {
			op := matmul.Op{TransB: true}
			bd := product(op, 512)
			bd.Scale += 6e-3 // activations may be quantized to 8 bits on the way
			b.add(op, bd, arg(tensor.F32, normal, m, 512), constant(arg(d, normal, 37, 512)))
		}
		op := matmul.Op{TransB: true}
		bd := product(op, 256)
		bd.Scale += 6e-3
		b.add(op, bd, arg(tensor.F32, normal, 3, 256), arg(d, normal, 5, 256))
	}
	b.integers()
}

func (b *builder) epilogues() {
	for i := range 24 {
		e := matmul.Epilogue{RowScale: i&1 != 0, ColScale: i&2 != 0, Bias: i&4 != 0, Residual: matmul.Residual(i / 8)}
		e.Act = []ops.Act{{}, {Kind: ops.ReLU}, {Kind: ops.SiLU}, {Kind: ops.GELU}, {Kind: ops.GELUTanh}, {Kind: ops.Clip, P: -1, Q: 1}}[i%6]
		for _, out := range []tensor.DType{tensor.Invalid, tensor.BF16} {
			if out != tensor.Invalid && i%3 != 0 {
				continue
			}
			op := matmul.Op{Epilogue: e, TransB: i&1 == 0, Out: out}
			for _, batch := range [][]int{nil, {2, 2}} {
				lead := func(dims ...int) []int { return append(append([]int{}, batch...), dims...) }
				dims := []int{30, 19}
				if op.TransB {
					dims = []int{19, 30}
				}
				in := []Arg{arg(tensor.F32, normal, lead(5, 30)...), constant(arg(tensor.F32, normal, dims...))}
				if e.RowScale {
					in = append(in, arg(tensor.F32, normal, lead(5)...))
				}
				if e.ColScale {
					in = append(in, arg(tensor.F32, normal, 19))
				}
				if e.Bias {
					in = append(in, arg(tensor.F32, normal, 19))
				}
				if e.Residual != matmul.NoResidual {
					in = append(in, arg(tensor.F32, normal, lead(5, 19)...))
				}
				bd := product(op, 30)
				bd.Rel += 2e-6
				bd.Abs = 2e-6
				b.add(op, bd, in...)
			}
		}
	}
	// Of no products remains the epilogue of zero.
	op := matmul.Op{Epilogue: matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}}
	b.add(op, product(op, 0), arg(tensor.F32, normal, 3, 0), arg(tensor.F32, normal, 0, 4), arg(tensor.F32, normal, 4))
}

func (b *builder) integers() {
	for _, p := range [][2]tensor.DType{{tensor.I8, tensor.I8}, {tensor.U8, tensor.I8}, {tensor.U8, tensor.U8}, {tensor.I16, tensor.I16}} {
		for _, z := range [][3]int{{1, 1, 1}, {3, 5, 7}, {17, 33, 70}, {1, 40, 129}, {2, 3, 0}} {
			m, n, k := z[0], z[1], z[2]
			op := matmul.Op{}
			b.add(op, exactly, arg(p[0], anyInt, m, k), arg(p[1], anyInt, k, n))
			b.add(matmul.Op{TransB: true}, exactly, arg(p[0], anyInt, m, k), constant(arg(p[1], anyInt, n, k)))
			for _, out := range []tensor.DType{tensor.I16, tensor.I8} { // plain narrowing wraps
				b.add(matmul.Op{Out: out}, exactly, arg(p[0], smallInt(4), m, k), constant(arg(p[1], smallInt(4), k, n)))
			}
			for _, out := range []tensor.DType{tensor.I8, tensor.U8, tensor.F32} {
				op := matmul.Op{Out: out, Epilogue: matmul.Epilogue{ColScale: true, Bias: true, OutScale: 0.5, OutZero: 3}}
				if out == tensor.F32 {
					op.Epilogue.OutScale, op.Epilogue.OutZero = 0, 0
				}
				b.add(op, product(op, k), arg(p[0], anyInt, m, k), constant(arg(p[1], anyInt, k, n)), arg(tensor.F32, scaled(0, 1e-3), n), arg(tensor.F32, normal, n))
			}
		}
		// Pairs of extremes: a kernel that adds pairs in 16 bits clips here.
		for _, v := range [][2]float64{{255, 127}, {255, -128}, {-128, -128}, {127, 127}, {-128, 127}} {
			if p[0] == tensor.U8 && v[0] < 0 || p[0] != tensor.U8 && v[0] > 127 {
				continue
			}
			b.add(matmul.Op{}, exactly, arg(p[0], values(v[0]), 3, 64), constant(arg(p[1], values(v[1]), 64, 20))).Lone = true
		}
	}
}

func (b *builder) convolutions() {
	bd := bound{Scale: 1e-5, Rel: 1e-5}
	for _, d := range floatTypes {
		for _, l := range []conv.Layout{conv.ChannelsFirst, conv.ChannelsLast} {
			for i, w := range []conv.Window{{}, {Stride: [3]int{2, 1}, Before: [3]int{1, 1}, After: [3]int{1, 0}}, {Dilation: [3]int{1, 2}, Before: [3]int{0, 2}, After: [3]int{2, 1}}} {
				for _, g := range []int{1, 2, 4} {
					x := l.Dims(2, 4, []int{9, 8})
					op := conv.Conv{Window: w, Groups: g, Layout: l}
					b.add(op, bd, arg(d, normal, x...), constant(arg(d, normal, 8, 4/g, 3, 3)))
					if i == 1 && g == 1 {
						op.Epilogue = matmul.Epilogue{Bias: true, Act: ops.Act{Kind: ops.ReLU}}
						b.add(op, bd, arg(d, normal, x...), constant(arg(d, normal, 8, 4, 3, 3)), arg(tensor.F32, normal, 8))
						b.add(conv.Conv{Window: w, Layout: l}, bd, arg(d, normal, x...), constant(arg(d, normal, 5, 4, 1, 1)))
					}
				}
			}
			b.add(conv.Conv{Layout: l, Window: conv.Window{Stride: [3]int{2}}}, bd, arg(d, normal, l.Dims(2, 3, []int{12})...), arg(d, normal, 5, 3, 4))
			b.add(conv.Conv{Layout: l}, bd, arg(d, normal, l.Dims(1, 2, []int{4, 5, 6})...), arg(d, normal, 3, 2, 2, 3, 2))
			for _, k := range []conv.PoolKind{conv.Max, conv.Avg, conv.AvgPadded, conv.Lp} {
				op := conv.Pool{Kind: k, Kernel: [3]int{3, 2}, Layout: l, Window: conv.Window{Stride: [3]int{2, 1}, Before: [3]int{1, 1}, After: [3]int{1, 0}}}
				b.add(op, near, arg(d, normal, l.Dims(2, 3, []int{7, 6})...))
				op.Ceil = true
				b.add(op, near, arg(d, normal, l.Dims(2, 3, []int{8, 6})...))
				b.add(conv.Pool{Kind: k, Kernel: [3]int{7, 6}, Layout: l}, near, arg(d, normal, l.Dims(2, 3, []int{7, 6})...))
			}
			b.add(conv.Transposed{Layout: l, Window: conv.Window{Stride: [3]int{2, 2}, Before: [3]int{1, 1}, After: [3]int{0, 1}}}, bd, arg(d, normal, l.Dims(2, 4, []int{5, 4})...), arg(d, normal, 4, 3, 3, 3))
		}
	}
	for _, x := range []tensor.DType{tensor.I8, tensor.U8} {
		b.add(conv.Conv{XZero: 3, WZero: -1, Window: conv.Window{Before: [3]int{1, 1}, After: [3]int{1, 1}}}, exactly, arg(x, anyInt, 1, 3, 7, 6), constant(arg(tensor.I8, anyInt, 4, 3, 3, 3)))
		b.add(conv.Pool{Kind: conv.Max, Kernel: [3]int{2, 2}}, exactly, arg(x, anyInt, 1, 3, 7, 6))
	}
	b.add(conv.Pool{Kind: conv.Max, Kernel: [3]int{2, 2}, Indices: true}, exactly, arg(tensor.F32, normal, 1, 3, 7, 6))
}
