package onnx

import (
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
	"math"
)

func init() {
	register("QuantizeLinear", since(10, 13, 19, 21), func(c *call) {
		x, scale, zero := c.in(0), c.in(1), c.opt(2)
		to := Uint8
		if zero != nil {
			to = zero.elem
		} else if e := c.attrInt("output_dtype", 0); e != 0 {
			to = ElemType(e)
		}
		c.out(c.quantize(x, scale, zero, to))
	})
	register("DequantizeLinear", since(10, 13, 19, 21), func(c *call) { c.out(c.dequantize(c.in(0), c.in(1), c.opt(2))) })
	register("DynamicQuantizeLinear", since(11), func(c *call) { c.out(c.emitAll(dynamicBytes{}, c.in(0))...) })
	register("MatMulInteger", since(10), func(c *call) {
		a, b := c.in(0), c.in(1)
		c.out(c.integerProduct(a, b, c.opt(2), c.opt(3)))
	})
	register("QLinearMatMul", since(10, 21), func(c *call) {
		c.out(c.qlinearMatMul(c.in(0), c.in(1), c.in(2), c.in(3), c.in(4), c.in(5), c.in(6), c.in(7), c.opt(8)))
	})
	register("QLinearConv", since(10), qlinearConv)
}

// limits returns the range of a quantized type.
func (c *call) limits(e ElemType) (lo, hi float64) {
	switch e {
	case Uint8:
		return 0, 255
	case Int8:
		return -128, 127
	case Uint16:
		return 0, 65535
	case Int16:
		return -32768, 32767
	case Uint4:
		return 0, 15
	case Int4:
		return -8, 7
	}
	c.fail("quantization to %v is not supported", e)
	return 0, 0
}

// spread brings a scale or zero point to the rank of x: one number, one for each element of an axis, or one a block of it.
func (c *call) spread(v, x *value) *value {
	if v.spec.Elems() == 1 {
		return c.reshape(v)
	}
	axis := c.axis(c.attrInt("axis", 1), int(x.spec.Rank))
	if block := c.attrInt("block_size", 0); block > 0 {
		dims := x.spec.Shape()
		want := x.spec.Shape()
		want[axis] = (dims[axis] + block - 1) / block
		if v.spec.With(tensor.F32) != tensor.MakeSpec(tensor.F32, want...) || want[axis] > math.MaxInt32 {
			c.fail("scales or zero points are %v for %v in blocks of %d", v, x, block)
		}
		at := append(append(append([]int{}, want[:axis+1]...), 1), want[axis+1:]...)
		wide := append([]int{}, at...)
		wide[axis+1] = block
		if len(at) > tensor.MaxRank {
			c.fail("%d dimensions, at most %d are possible", len(at), tensor.MaxRank)
		}
		want[axis] *= block
		return c.slice(c.reshape(c.broadcast(c.reshape(v, at...), wide...), want...), axis, 0, dims[axis])
	}
	if v.spec.Rank != 1 || v.spec.Dims[0] != x.spec.Dims[axis] {
		c.fail("scales or zero points are %v for %v along axis %d", v, x, axis)
	}
	dims := make([]int, x.spec.Rank)
	for i := range dims {
		dims[i] = 1
	}
	dims[axis] = v.spec.Dims[0]
	return c.reshape(v, dims...)
}

// quantize is saturate(round(x / scale) + zero).
func (c *call) quantize(x, scale, zero *value, to ElemType) *value {
	if isFloat8(to) { // the zero point of these is 0
		x = c.binary(elementwise.Div, x, c.cast(c.spread(scale, x), x.spec.DType))
		return c.toFloat8(x, to, c.attrBool("saturate", true))
	}
	if s, ok := c.stepOf(scale, zero, to); ok && x.spec.DType == tensor.F32 {
		y := c.emit(toBytes{s}, x)
		y.elem = to
		return y
	}
	lo, hi := c.limits(to)
	if x.spec.DType == tensor.I32 {
		x = c.cast(x, tensor.F32)
	}
	d := x.spec.DType
	if d == tensor.F16 || d == tensor.BF16 { // the quotient rounds in the type of x, what follows is exact in f32
		x = c.cast(c.binary(elementwise.Div, x, c.cast(c.spread(scale, x), d)), tensor.F32)
		d = tensor.F32
	} else {
		x = c.binary(elementwise.Div, x, c.cast(c.spread(scale, x), d))
	}
	x = c.unary(elementwise.Round, x)
	if zero != nil {
		x = c.binary(elementwise.Add, x, c.cast(c.spread(zero, x), d))
	}
	x = c.emit(elementwise.Clamp{}, x, c.scalarOf(d, lo), c.scalarOf(d, hi))
	y := c.cast(x, to.DType())
	y.elem = to
	return y
}

// dequantize is (x - zero) * scale.
func (c *call) dequantize(x, scale, zero *value) *value {
	d := scale.spec.DType
	if s, ok := c.stepOf(scale, zero, x.elem); ok {
		return c.emit(fromBytes{s}, x)
	}
	s := c.spread(scale, x)
	if isFloat8(x.elem) {
		return c.cast(c.binary(elementwise.Mul, c.fromFloat8(x), c.cast(s, tensor.F32)), d)
	}
	var y *value
	switch {
	case zero == nil && x.spec.DType.Size() < 4:
		y = c.cast(x, tensor.F32)
	case zero == nil:
		y = c.cast(x, tensor.F32)
	case x.spec.DType.Size() < 4: // differences are exact in f32
		y = c.binary(elementwise.Sub, c.cast(x, tensor.F32), c.cast(c.spread(zero, x), tensor.F32))
	default:
		y = c.cast(c.binary(elementwise.Sub, x, c.spread(zero, x)), tensor.F32)
	}
	return c.cast(c.binary(elementwise.Mul, y, c.cast(s, tensor.F32)), d)
}

// qlinearMatMul runs as one integer product whose epilogue scales and requantizes, where weights, scales and zero points are known and
// the weights are symmetric; else in several operations. A bias in floats comes from qdq.
func (c *call) qlinearMatMul(a, as, az, b, bs, bz, ys, yz, bias *value) *value {
	if y := c.fusedMatMul(a, as, az, b, bs, bz, ys, yz, bias); y != nil {
		return y
	}
	acc := c.integerProduct(a, b, az, bz)
	real := c.cast(acc, tensor.F32)
	real = c.binary(elementwise.Mul, real, c.alongRows(c.cast(as, tensor.F32), acc))
	real = c.binary(elementwise.Mul, real, c.cast(bs, tensor.F32))
	if bias != nil {
		real = c.binary(elementwise.Add, real, bias)
	}
	return c.quantize(real, c.cast(ys, tensor.F32), yz, yz.elem)
}

func (c *call) fusedMatMul(a, as, az, b, bs, bz, ys, yz, bias *value) *value {
	for _, v := range []*value{as, az, b, bs, bz, ys, yz, bias} {
		if v != nil && !v.known {
			return nil
		}
	}
	if a.spec.Rank < 2 || b.spec.Rank != 2 || as.spec.Elems() != 1 || az.spec.Elems() != 1 || ys.spec.Elems() != 1 || yz.spec.Elems() != 1 {
		return nil
	}
	k, n := b.spec.Dims[0], b.spec.Dims[1]
	zero, uniform := c.oneZero(bz)
	if b.spec.DType == tensor.U8 {
		b, zero = c.signed(b), zero-128
	}
	if scales := bs.spec.Elems(); !uniform || zero != 0 || scales != 1 && scales != n || a.spec.Dim(-1) != k || bias != nil && bias.spec.Elems() != n {
		return nil
	}
	// What the zero point of A takes away is the same in every row, and goes into the bias.
	sums := make([]int64, n)
	weights := c.data(b)
	if !weights.IsContiguous() {
		weights = weights.Clone()
	}
	for i, w := range tensor.Data[int8](weights) {
		sums[i%n] += int64(w)
	}
	scale, zeroA := c.scalar(as), float64(c.int(az))
	scales, biases := make([]float32, n), make([]float32, n)
	each, extra := c.floats(bs), make([]float32, n)
	if bias != nil {
		extra = c.floats(bias)
	}
	for j := range n {
		s := scale * float64(each[j%len(each)])
		total := float64(extra[j]) - zeroA*float64(sums[j])*s
		scales[j], biases[j] = float32(s), float32(total)
	}
	op := matmul.Op{Out: yz.spec.DType, Epilogue: matmul.Epilogue{ColScale: true, Bias: true, OutScale: float32(c.scalar(ys)), OutZero: int32(c.int(yz))}}
	return c.emit(op, a, b, c.floatsOf(scales, n), c.floatsOf(biases, n))
}

// integerProduct is the product of (a - za) and (b - zb), exact in 32 bits. The zero points are taken out of the product:
// (a - za)(b - zb) = ab - za colsum(b) - rowsum(a) zb + K za zb.
func (c *call) integerProduct(a, b, za, zb *value) *value {
	if a.spec.Rank < 1 || b.spec.Rank < 1 {
		c.fail("product of %v and %v", a, b)
	}
	k := a.spec.Dim(-1)
	if zb != nil {
		zb = c.cast(zb, tensor.I32)
	}
	if b.spec.DType == tensor.U8 { // the engine's weights are signed: b - zb is (b - 128) - (zb - 128)
		b = c.signed(b)
		middle := c.scalarOf(tensor.I32, 128)
		if zb == nil {
			zb = c.unary(elementwise.Neg, middle)
		} else {
			zb = c.binary(elementwise.Sub, zb, middle)
		}
	}
	acc := c.product(a, b, tensor.I32)
	isZero := func(z *value) bool {
		if z == nil {
			return true
		}
		if !z.known {
			return false
		}
		for _, v := range c.ints(z) {
			if v != 0 {
				return false
			}
		}
		return true
	}
	if isZero(za) {
		za = nil
	}
	if isZero(zb) {
		zb = nil
	}
	// Sums are products with ones: the engine reads bytes, where a sum over the operand would first widen it.
	ones := func(dims ...int) *value {
		t := c.alloc(tensor.I8, dims...)
		for i := range t.Raw() {
			t.Raw()[i] = 1
		}
		return knownValue(t)
	}
	if za != nil {
		za = c.alongRows(c.cast(za, tensor.I32), acc)
		sums := c.product(ones(1, k), b, tensor.I32)
		switch {
		case b.spec.Rank == 1: // one column
			sums = c.reshape(sums)
		case a.spec.Rank == 1:
			sums = c.reshape(sums, acc.spec.Shape()...)
		}
		acc = c.binary(elementwise.Sub, acc, c.binary(elementwise.Mul, sums, za))
	}
	if zb != nil {
		sums := c.product(a, ones(k, 1), tensor.I32)
		switch {
		case a.spec.Rank == 1: // one row
			sums = c.reshape(sums)
		case b.spec.Rank == 1:
			sums = c.reshape(sums, acc.spec.Shape()...)
		}
		acc = c.binary(elementwise.Sub, acc, c.binary(elementwise.Mul, sums, zb))
	}
	if za != nil && zb != nil {
		both := c.binary(elementwise.Mul, za, zb)
		acc = c.binary(elementwise.Add, acc, c.binary(elementwise.Mul, both, c.scalarOf(tensor.I32, float64(k))))
	}
	return acc
}

// signed subtracts 128 from bytes.
func (c *call) signed(v *value) *value {
	return c.apply(v.spec.With(tensor.I8), func(out tensor.Tensor, in []tensor.Tensor) error {
		to, from := out.Raw(), in[0]
		if !from.IsContiguous() {
			from = from.Clone()
		}
		for i, x := range from.Raw() {
			to[i] = x ^ 0x80
		}
		return nil
	}, v)
}

// alongRows turns one number a row into a column.
func (c *call) alongRows(v, acc *value) *value {
	if v.spec.Rank == 1 && v.spec.Dims[0] > 1 {
		return c.reshape(v, v.spec.Dims[0], 1)
	}
	if v.spec.Elems() == 1 {
		return c.reshape(v)
	}
	return v
}

// qlinearConv runs as one integer convolution whose epilogue scales and requantizes, where scales and zero points are known and each
// filter has the same zero point. A bias of integers has the scale of the sums; one of floats, which qdq makes, is itself.
func qlinearConv(c *call) {
	x, w, bias := c.in(0), c.in(3), c.opt(8)
	xs, xz, ws, wz, ys, yz := c.in(1), c.in(2), c.in(4), c.in(5), c.in(6), c.in(7)
	m := w.spec.Dims[0]
	if n := ws.spec.Elems(); n != 1 && n != m {
		c.fail("%d scales for %d filters", n, m)
	}
	if bias != nil && (bias.spec.Rank != 1 || bias.spec.Dims[0] != m) {
		c.fail("biases %v for %d filters", bias, m)
	}
	xZero, xKnown := c.oneZero(xz)
	wZero, wKnown := c.oneZero(wz)
	if !xKnown || !wKnown || !xs.known || !ws.known || !ys.known || !yz.known || bias != nil && !bias.known {
		c.out(c.composedConv(x, xs, xz, w, ws, wz, ys, yz, bias))
		return
	}
	op := c.convAttrs(x, w)
	op.XZero, op.WZero = xZero, wZero
	op.Out = yz.spec.DType
	op.Epilogue = matmul.Epilogue{ColScale: true, OutZero: int32(c.int(yz)), OutScale: float32(c.scalar(ys))}
	scales := make([]float32, m)
	wv := c.floats(ws)
	for i := range scales {
		scales[i] = float32(c.scalar(xs) * float64(wv[i%len(wv)]))
	}
	in := []*value{x, w, c.floatsOf(scales, m)}
	if bias != nil {
		real := append([]float32{}, c.floats(bias)...)
		for i := range real {
			if bias.spec.DType.IsInt() {
				real[i] = float32(float64(real[i]) * float64(scales[i]))
			}
		}
		op.Epilogue.Bias = true
		in = append(in, c.floatsOf(real, m))
	}
	c.out(c.emit(op, in...))
}

// composedConv is qlinearConv in several operations.
func (c *call) composedConv(x, xs, xz, w, ws, wz, ys, yz, bias *value) *value {
	acc := c.integerConv(x, w, xz, wz)
	channel := func(v *value) *value {
		if v.spec.Elems() == 1 {
			return c.reshape(v)
		}
		dims := identity(int(acc.spec.Rank))
		for i := range dims {
			dims[i] = 1
		}
		dims[1] = v.spec.Elems()
		return c.reshape(v, dims...)
	}
	if bias != nil && bias.spec.DType.IsInt() {
		acc = c.binary(elementwise.Add, acc, channel(c.cast(bias, tensor.I32)))
	}
	scale := c.binary(elementwise.Mul, c.reshape(c.cast(xs, tensor.F32)), channel(c.cast(ws, tensor.F32)))
	real := c.binary(elementwise.Mul, c.cast(acc, tensor.F32), scale)
	if bias != nil && !bias.spec.DType.IsInt() {
		real = c.binary(elementwise.Add, real, channel(bias))
	}
	return c.quantize(real, c.cast(ys, tensor.F32), yz, yz.elem)
}
