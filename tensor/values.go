package tensor

import (
	"fmt"
	"math"
)

// Each calls f with the offset in elements, from the first, of every element in row-major order. Block types are not walked by
// element. It is meant for references and tests, not for speed.
func (t Tensor) Each(f func(i, off int)) {
	n := t.Elems()
	last := int(t.Rank) - 1
	row, step := 1, 0 // of the last dimension
	if last >= 0 {
		row, step = t.Dims[last], t.Strides[last]
	}
	var idx [MaxRank]int
	off := 0
	for i := 0; i < n; i += row {
		for j := range row {
			f(i+j, off+j*step)
		}
		for d := last - 1; d >= 0; d-- {
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

// Floats returns the elements in row-major order as float64. It panics for block types (package quant decodes them).
func (t Tensor) Floats() []float64 {
	out := make([]float64, t.Elems())
	if t.DType == F32 { // by far the most frequent
		d := Data[float32](t)
		t.Each(func(i, off int) { out[i] = float64(d[off]) })
		return out
	}
	get := t.floatGetter()
	t.Each(func(i, off int) { out[i] = get(off) })
	return out
}

// Ints returns the elements of an integer or boolean tensor in row-major order; floats are truncated. U64 wraps.
func (t Tensor) Ints() []int64 {
	out := make([]int64, t.Elems())
	switch t.DType {
	case I64:
		d := Data[int64](t)
		t.Each(func(i, off int) { out[i] = d[off] })
	case U64:
		d := Data[uint64](t)
		t.Each(func(i, off int) { out[i] = int64(d[off]) })
	default:
		get := t.floatGetter()
		t.Each(func(i, off int) { out[i] = int64(get(off)) })
	}
	return out
}

// SetFloats stores values in row-major order, rounding to nearest even where the type is narrower; integer types truncate
// toward zero and wrap. It panics if the number of values differs or the type is a block type.
func (t Tensor) SetFloats(values []float64) {
	if len(values) != t.Elems() {
		panic(fmt.Sprintf("tensor: %d values for %v", len(values), t.Spec))
	}
	set := t.floatSetter()
	t.Each(func(i, off int) { set(off, values[i]) })
}

// SetInts stores integers in row-major order; narrower types wrap.
func (t Tensor) SetInts(values []int64) {
	if len(values) != t.Elems() {
		panic(fmt.Sprintf("tensor: %d values for %v", len(values), t.Spec))
	}
	switch t.DType {
	case I64:
		setInts[int64](t, values)
	case U64:
		setInts[uint64](t, values)
	case I32:
		setInts[int32](t, values)
	case U32:
		setInts[uint32](t, values)
	case I16:
		setInts[int16](t, values)
	case U16:
		setInts[uint16](t, values)
	case I8:
		setInts[int8](t, values)
	case U8:
		setInts[uint8](t, values)
	default:
		set := t.floatSetter()
		t.Each(func(i, off int) { set(off, float64(values[i])) })
	}
}

func setInts[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64](t Tensor, values []int64) {
	d := Data[T](t)
	t.Each(func(i, off int) { d[off] = T(values[i]) })
}

func (t Tensor) floatGetter() func(off int) float64 {
	switch t.DType {
	case F32:
		d := Data[float32](t)
		return func(o int) float64 { return float64(d[o]) }
	case F64:
		d := Data[float64](t)
		return func(o int) float64 { return d[o] }
	case F16:
		d := Data[uint16](t)
		return func(o int) float64 { return float64(F16ToF32(d[o])) }
	case BF16:
		d := Data[uint16](t)
		return func(o int) float64 { return float64(BF16ToF32(d[o])) }
	case I8:
		d := Data[int8](t)
		return func(o int) float64 { return float64(d[o]) }
	case U8, Bool:
		d := Data[uint8](t)
		return func(o int) float64 { return float64(d[o]) }
	case I16:
		d := Data[int16](t)
		return func(o int) float64 { return float64(d[o]) }
	case U16:
		d := Data[uint16](t)
		return func(o int) float64 { return float64(d[o]) }
	case I32:
		d := Data[int32](t)
		return func(o int) float64 { return float64(d[o]) }
	case U32:
		d := Data[uint32](t)
		return func(o int) float64 { return float64(d[o]) }
	case I64:
		d := Data[int64](t)
		return func(o int) float64 { return float64(d[o]) }
	case U64:
		d := Data[uint64](t)
		return func(o int) float64 { return float64(d[o]) }
	}
	panic(fmt.Sprintf("tensor: elements of %v are not read one by one", t.Spec))
}

func (t Tensor) floatSetter() func(off int, v float64) {
	switch t.DType {
	case F32:
		d := Data[float32](t)
		return func(o int, v float64) { d[o] = float32(v) }
	case F64:
		d := Data[float64](t)
		return func(o int, v float64) { d[o] = v }
	case F16:
		d := Data[uint16](t)
		return func(o int, v float64) { d[o] = F32ToF16(roundOdd(v)) }
	case BF16:
		d := Data[uint16](t)
		return func(o int, v float64) { d[o] = F32ToBF16(roundOdd(v)) }
	case I8:
		d := Data[int8](t)
		return func(o int, v float64) { d[o] = int8(toInt(v)) }
	case U8:
		d := Data[uint8](t)
		return func(o int, v float64) { d[o] = uint8(toInt(v)) }
	case Bool:
		d := Data[uint8](t)
		return func(o int, v float64) {
			d[o] = 0
			if v != 0 {
				d[o] = 1
			}
		}
	case I16:
		d := Data[int16](t)
		return func(o int, v float64) { d[o] = int16(toInt(v)) }
	case U16:
		d := Data[uint16](t)
		return func(o int, v float64) { d[o] = uint16(toInt(v)) }
	case I32:
		d := Data[int32](t)
		return func(o int, v float64) { d[o] = int32(toInt(v)) }
	case U32:
		d := Data[uint32](t)
		return func(o int, v float64) { d[o] = uint32(toInt(v)) }
	case I64:
		d := Data[int64](t)
		return func(o int, v float64) { d[o] = toInt(v) }
	case U64:
		d := Data[uint64](t)
		return func(o int, v float64) {
			if v >= math.MaxInt64 {
				d[o] = uint64(v)
				return
			}
			d[o] = uint64(toInt(v))
		}
	}
	panic(fmt.Sprintf("tensor: elements of %v are not written one by one", t.Spec))
}

// toInt is the conversion of Go made the same on every machine: NaN is 0, values out of range saturate.
func toInt(v float64) int64 {
	switch {
	case v != v:
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(v)
}

// roundOdd narrows to float32 so that a second rounding to a half is as if made from the float64: inexact results get an odd
// last bit, which no tie of the second rounding can have.
func roundOdd(v float64) float32 {
	f := float32(v)
	if float64(f) == v || f != f || math.IsInf(float64(f), 0) {
		return f
	}
	bits := math.Float32bits(f)
	if bits&1 == 1 {
		return f
	}
	if (float64(f) > v) == (v > 0) { // rounded away from zero: step back towards it
		return math.Float32frombits(bits - 1)
	}
	return math.Float32frombits(bits + 1)
}

// Copy copies the elements of src to dst, converting the element type; shapes must be equal. Block types need equal types.
func Copy(dst, src Tensor) error {
	if dst.Rank != src.Rank || dst.Dims != src.Dims {
		return fmt.Errorf("copy of %v to %v: shapes differ", src.Spec, dst.Spec)
	}
	if dst.Buf != nil && dst.Buf.ro {
		return fmt.Errorf("copy to %v: %w", dst.Spec, ErrReadOnly)
	}
	if dst.DType == src.DType {
		copySame(&dst, &src)
		return nil
	}
	if dst.DType.IsBlock() || src.DType.IsBlock() {
		return fmt.Errorf("copy of %v to %v: block types are converted by package quant", src.Spec, dst.Spec)
	}
	if contiguous(&dst) && contiguous(&src) && copyFast(&dst, &src) {
		return nil
	}
	if src.DType.IsFloat() || dst.DType.IsFloat() || dst.DType == Bool {
		get, set := src.floatGetter(), dst.floatSetter()
		walk(&dst, &src, func(d, s int) { set(d, get(s)) })
		return nil
	}
	dst.SetInts(src.Ints())
	return nil
}

func copyFast(dst, src *Tensor) bool {
	switch [2]DType{src.DType, dst.DType} {
	case [2]DType{F32, F16}:
		F32sToF16(Data[uint16](*dst), Data[float32](*src))
	case [2]DType{F32, BF16}:
		F32sToBF16(Data[uint16](*dst), Data[float32](*src))
	case [2]DType{F16, F32}:
		F16sToF32(Data[float32](*dst), Data[uint16](*src))
	case [2]DType{BF16, F32}:
		BF16sToF32(Data[float32](*dst), Data[uint16](*src))
	default:
		return false
	}
	return true
}

// walk visits the elements of two tensors of one shape together.
func walk(a, b *Tensor, f func(offA, offB int)) {
	n := a.Elems()
	var idx [MaxRank]int
	offA, offB := 0, 0
	for i := 0; i < n; i++ {
		f(offA, offB)
		for d := int(a.Rank) - 1; d >= 0; d-- {
			idx[d]++
			offA += a.Strides[d]
			offB += b.Strides[d]
			if idx[d] < a.Dims[d] {
				break
			}
			offA -= idx[d] * a.Strides[d]
			offB -= idx[d] * b.Strides[d]
			idx[d] = 0
		}
	}
}

func copySame(dst, src *Tensor) {
	if dst.Elems() == 0 {
		return
	}
	if contiguous(dst) && contiguous(src) {
		copy(raw(dst), raw(src))
		return
	}
	// The longest run of inner dimensions that is contiguous in both is copied whole.
	run, d := 1, int(dst.Rank)
	for ; d > 0; d-- {
		i := d - 1
		if dst.Dims[i] != 1 && (dst.Strides[i] != run || src.Strides[i] != run) {
			break
		}
		run *= dst.Dims[i]
	}
	outerD, outerS := *dst, *src
	outerD.Rank, outerS.Rank = uint8(d), uint8(d)
	block, size := dst.DType.Block(), dst.DType.Size()
	to, from := raw(dst), raw(src)
	if run == 1 {
		switch size {
		case 4:
			copyElems[uint32](dst, src, &outerD, &outerS)
			return
		case 2:
			copyElems[uint16](dst, src, &outerD, &outerS)
			return
		case 1:
			copyElems[uint8](dst, src, &outerD, &outerS)
			return
		}
	}
	bytes := run / block * size
	walk(&outerD, &outerS, func(o, p int) {
		o, p = o/block*size, p/block*size
		copy(to[o:o+bytes], from[p:p+bytes])
	})
}

func copyElems[T Element](dst, src, outerD, outerS *Tensor) {
	to, from := Data[T](*dst), Data[T](*src)
	walk(outerD, outerS, func(o, p int) { to[o] = from[p] })
}

// Clone returns a contiguous copy on the Go heap.
func (t Tensor) Clone() Tensor {
	out := New(t.DType, t.Dims[:t.Rank]...)
	copySame(&out, &t)
	return out
}
