package onnx

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

// Quantized values between convolutions: operations that read or write bytes element by element, where one scale and one zero point hold
// for all of them. They give the bits that the operators of the standard give one after the other.

// step is what a byte stands for: (byte - Zero) x Scale.
type step struct {
	Scale float32
	Zero  int32
	Type  tensor.DType // I8 or U8
}

func (s step) bytes() ops.ByteStep {
	return ops.ByteStep{Scale: s.Scale, Zero: s.Zero, Signed: s.Type == tensor.I8}
}

// table returns the numbers that the bytes stand for.
func (s step) table() (t [256]float32) {
	for i := range t {
		v := int32(i)
		if s.Type == tensor.I8 {
			v = int32(int8(i))
		}
		t[i] = float32(v-s.Zero) * s.Scale
	}
	return t
}

// quantizer turns numbers into bytes.
type quantizer struct {
	scale        float32
	zero, lo, hi int32
}

func (s step) quantizer() quantizer {
	if s.Type == tensor.I8 {
		return quantizer{s.Scale, s.Zero, -128, 127}
	}
	return quantizer{s.Scale, s.Zero, 0, 255}
}

// magic is a float32 beside which numbers have no fraction, so that adding it rounds to the nearest even number.
const magic = 3 << 22

func (q *quantizer) byte(v float32) uint8 {
	const far = 1 << 20 // beyond every byte, and exact beside magic
	v /= q.scale
	if !(v < far) { // NaN too
		v = far
	}
	if v < -far {
		v = -far
	}
	n := int32(math.Float32bits(v+magic)) - int32(math.Float32bits(magic)) + q.zero
	return uint8(min(max(n, q.lo), q.hi))
}

// sameShape is the shape rule of operations by element.
func sameShape(name string, out tensor.DType, in []tensor.Spec, types ...tensor.DType) ([]tensor.Spec, error) {
	if len(in) != len(types) {
		return nil, fmt.Errorf("%s: %d inputs, %d are right", name, len(in), len(types))
	}
	for i, s := range in {
		if s != in[0].With(types[i]) {
			return nil, fmt.Errorf("%s: input %d is %v, %v is right", name, i, s, in[0].With(types[i]))
		}
	}
	return []tensor.Spec{in[0].With(out)}, nil
}

// whole computes all elements of an operation by range, of operands in any order of memory.
func whole(op ops.Ranged, out, in []tensor.Tensor) error {
	ins := make([]tensor.Tensor, len(in))
	for i, t := range in {
		if ins[i] = t; !t.IsContiguous() {
			ins[i] = t.Clone()
		}
	}
	y := out[0]
	if !y.IsContiguous() {
		y = tensor.New(y.DType, y.Shape()...)
	}
	op.Range([]tensor.Tensor{y}, ins, 0, y.Elems())
	if out[0].IsContiguous() {
		return nil
	}
	return tensor.Copy(out[0], y)
}

// toBytes quantizes f32.
type toBytes struct{ Y step }

// ByteStep is what the bytes stand for.
func (o toBytes) ByteStep() ops.ByteStep { return o.Y.bytes() }

func (toBytes) Name() string { return "quantize_linear" }
func (o toBytes) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	return sameShape(o.Name(), o.Y.Type, in, tensor.F32)
}
func (o toBytes) Reference(out, in []tensor.Tensor) error { return whole(o, out, in) }
func (o toBytes) Range(out, in []tensor.Tensor, from, to int) {
	q := o.Y.quantizer()
	y, x := out[0].Raw()[from:to], tensor.Data[float32](in[0])[from:to]
	for i, v := range x {
		y[i] = q.byte(v)
	}
}

// fromBytes dequantizes to f32.
type fromBytes struct{ X step }

func (fromBytes) Name() string { return "dequantize_linear" }
func (o fromBytes) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	return sameShape(o.Name(), tensor.F32, in, o.X.Type)
}
func (o fromBytes) Reference(out, in []tensor.Tensor) error { return whole(o, out, in) }
func (o fromBytes) Range(out, in []tensor.Tensor, from, to int) {
	t := o.X.table()
	y, x := tensor.Data[float32](out[0])[from:to], in[0].Raw()[from:to]
	for i, v := range x {
		y[i] = t[v]
	}
}

// addBytes adds quantized values, with a Relu between if asked for.
type addBytes struct {
	A, B, Y step
	Relu    bool
	sums    *[1 << 16]uint8 // of every pair of bytes
}

// quantizer returns what the sums become.
func (o *addBytes) quantizer() quantizer {
	q := o.Y.quantizer()
	if o.Relu { // what stands for 0 is the least
		q.lo = min(max(q.zero, q.lo), q.hi)
	}
	return q
}

func newAddBytes(a, b, y step, relu bool) addBytes {
	o := addBytes{A: a, B: b, Y: y, Relu: relu, sums: new([1 << 16]uint8)}
	ta, tb, q := a.table(), b.table(), o.quantizer()
	for i := range o.sums {
		o.sums[i] = q.byte(ta[i>>8] + tb[i&255])
	}
	return o
}

// ByteSum is the definition without the table.
func (o addBytes) ByteSum() ops.ByteSum {
	q := o.quantizer()
	return ops.ByteSum{A: o.A.bytes(), B: o.B.bytes(), Y: o.Y.bytes(), Lo: q.lo, Hi: q.hi}
}

func (addBytes) Name() string { return "qlinear_add" }
func (o addBytes) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	return sameShape(o.Name(), o.Y.Type, in, o.A.Type, o.B.Type)
}
func (o addBytes) Reference(out, in []tensor.Tensor) error { return whole(o, out, in) }
func (o addBytes) Range(out, in []tensor.Tensor, from, to int) {
	a := in[0].Raw()[from:to]
	y, b := out[0].Raw()[from:to][:len(a)], in[1].Raw()[from:to][:len(a)]
	for i, v := range a {
		y[i] = o.sums[uint16(v)<<8|uint16(b[i])]
	}
}

// dynamicBytes quantizes f32 with the scale and the zero point that its range asks for. Its outputs are the bytes, the scale, which is 0
// where all numbers are, and the zero point.
type dynamicBytes struct{}

func (dynamicBytes) Name() string { return "dynamic_quantize_linear" }
func (o dynamicBytes) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	y, err := sameShape(o.Name(), tensor.U8, in, tensor.F32)
	return append(y, tensor.MakeSpec(tensor.F32), tensor.MakeSpec(tensor.U8)), err
}
func (o dynamicBytes) Reference(out, in []tensor.Tensor) error {
	x := in[0]
	if !x.IsContiguous() {
		x = x.Clone()
	}
	var lo, hi float32 // 0 is always in the range
	for _, v := range tensor.Data[float32](x) {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	s := step{Scale: (hi - lo) / 255, Type: tensor.U8}
	tensor.Data[float32](out[1])[0] = s.Scale
	if s.Scale == 0 {
		s.Scale = 1
	}
	q := s.quantizer()
	s.Zero = int32(q.byte(-lo))
	out[2].Raw()[0] = uint8(s.Zero)
	return whole(toBytes{s}, out[:1], []tensor.Tensor{x})
}

// stepOf returns the step of known scalars; ok is false for others.
func (c *call) stepOf(scale, zero *value, e ElemType) (s step, ok bool) {
	if e != Uint8 && e != Int8 || !scale.known || scale.spec.Elems() != 1 || scale.spec.DType != tensor.F32 {
		return s, false
	}
	s = step{Scale: float32(c.scalar(scale)), Type: e.DType()}
	if zero != nil {
		if !zero.known || zero.spec.Elems() != 1 || zero.elem != e {
			return s, false
		}
		s.Zero = int32(c.int(zero))
	}
	return s, true
}

// innerDomain is that of operators which only this package makes.
const innerDomain = "\x00qdq"

// inner are the operators of innerDomain.
var inner = map[string]*operator{
	"Add": {name: "Add", versions: since(1), run: func(c *call) {
		a, b, as, az, bs, bz, ys, yz := c.in(0), c.in(1), c.in(2), c.in(3), c.in(4), c.in(5), c.in(6), c.in(7)
		relu := c.attrBool("relu", false)
		sa, okA := c.stepOf(as, az, az.elem)
		sb, okB := c.stepOf(bs, bz, bz.elem)
		sy, okY := c.stepOf(ys, yz, yz.elem)
		if okA && okB && okY && a.spec.With(tensor.U8) == b.spec.With(tensor.U8) {
			c.out(c.emit(newAddBytes(sa, sb, sy, relu), a, b))
			return
		}
		sum := c.binary(elementwise.Add, c.dequantize(a, as, az), c.dequantize(b, bs, bz))
		if relu {
			sum = c.act(ops.ReLU, 0, 0, sum)
		}
		c.out(c.quantize(sum, ys, yz, yz.elem))
	}},
}
