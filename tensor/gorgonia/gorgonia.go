// Package gorgonia is the bridge to gorgonia.org/tensor: tensors cross it both ways without copying, and Engine runs the matrix
// products of gorgonia's tensors on Tessera's CPU kernels.
//
//	d := gorgonia.New(gorgonia.WithShape(2, 2), gorgonia.WithBacking(x), gorgonia.WithEngine(bridge.Engine{}))
//
// gorgonia's v0.9.24 checks at start that it knows the Go version; the newer assume-no-moving-gc that this module requires
// beside it makes that check pass.
package gorgonia

import (
	"fmt"
	"reflect"

	gt "gorgonia.org/tensor"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/tensor"
)

// From returns a view of a gorgonia tensor's memory with its strides: slices and lazy transpositions included. Elements are
// float32, float64, integers or bool. Masks are not carried over.
func From(d *gt.Dense) (tensor.Tensor, error) {
	dtype, ok := dtypes[d.Dtype()]
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: tensors of %v have no counterpart", d.Dtype())
	}
	if d.IsMasked() {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: the tensor is masked")
	}
	if d.IsScalar() {
		t, err := tensor.NewChecked(dtype)
		if err == nil {
			setScalar(&t, d.ScalarValue())
		}
		return t, err
	}
	shape, strides := d.Shape(), d.Strides()
	spec, err := tensor.CheckDims(dtype, shape)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: %w", err)
	}
	t := tensor.Tensor{Spec: spec, Buf: tensor.WrapBytes(bytesOf(d.Data()))}
	switch {
	case len(strides) == len(shape):
		copy(t.Strides[:], strides)
	case len(strides) == 1 && shape.IsColVec(): // gorgonia keeps one stride for vectors that have two dimensions
		t.Strides[0], t.Strides[1] = strides[0], 1
	case len(strides) == 1 && shape.IsRowVec():
		t.Strides[0], t.Strides[1] = 1, strides[0]
	default:
		return tensor.Tensor{}, fmt.Errorf("gorgonia: %d strides for shape %v", len(strides), shape)
	}
	for i := range shape {
		if t.Strides[i] < 0 {
			return tensor.Tensor{}, fmt.Errorf("gorgonia: negative stride %d", t.Strides[i])
		}
	}
	if t.Extent() > len(t.Buf.Bytes()) {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: shape %v with strides %v exceeds the %d bytes behind it", shape, strides, len(t.Buf.Bytes()))
	}
	return t, nil
}

// To returns a gorgonia tensor that shares the memory and has the strides. Half-precision and block types have no counterpart there.
// It runs on Engine unless an option says otherwise.
func To(t tensor.Tensor, opts ...gt.ConsOpt) (*gt.Dense, error) {
	backing, err := backingOf(&t)
	if err != nil {
		return nil, err
	}
	shape := gt.Shape(t.Shape())
	n := reflect.ValueOf(backing).Len()
	if t.Rank == 0 || n == 0 {
		return nil, fmt.Errorf("gorgonia: %v: scalars and empty tensors do not share memory there", t.Spec)
	}
	opts = append([]gt.ConsOpt{gt.WithEngine(Engine{})}, opts...)
	if t.IsContiguous() {
		return gt.New(append(opts, gt.WithShape(shape...), gt.WithBacking(backing))...), nil
	}
	d := gt.New(append(opts, gt.WithShape(n), gt.WithBacking(backing))...)
	strides := append([]int(nil), t.Strides[:t.Rank]...)
	d.AP = gt.MakeAP(shape, strides, gt.MakeDataOrder(gt.NonContiguous), gt.NotTriangle)
	return d, nil
}

var dtypes = map[gt.Dtype]tensor.DType{
	gt.Float32: tensor.F32, gt.Float64: tensor.F64, gt.Int8: tensor.I8, gt.Uint8: tensor.U8, gt.Int16: tensor.I16, gt.Uint16: tensor.U16,
	gt.Int32: tensor.I32, gt.Uint32: tensor.U32, gt.Int64: tensor.I64, gt.Uint64: tensor.U64, gt.Bool: tensor.Bool,
}

func backingOf(t *tensor.Tensor) (any, error) {
	switch t.DType {
	case tensor.F32:
		return tensor.Data[float32](*t), nil
	case tensor.F64:
		return tensor.Data[float64](*t), nil
	case tensor.I8:
		return tensor.Data[int8](*t), nil
	case tensor.U8:
		return tensor.Data[uint8](*t), nil
	case tensor.I16:
		return tensor.Data[int16](*t), nil
	case tensor.U16:
		return tensor.Data[uint16](*t), nil
	case tensor.I32:
		return tensor.Data[int32](*t), nil
	case tensor.U32:
		return tensor.Data[uint32](*t), nil
	case tensor.I64:
		return tensor.Data[int64](*t), nil
	case tensor.U64:
		return tensor.Data[uint64](*t), nil
	case tensor.Bool:
		return tensor.Data[bool](*t), nil
	}
	return nil, fmt.Errorf("gorgonia: %v has no counterpart", t.Spec)
}

func bytesOf(slice any) []byte {
	v := reflect.ValueOf(slice)
	if v.Kind() != reflect.Slice || v.Len() == 0 {
		return nil
	}
	return unsafeBytes(v.UnsafePointer(), v.Len()*int(v.Type().Elem().Size()))
}

func setScalar(t *tensor.Tensor, value any) {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		t.SetFloats([]float64{v.Float()})
	case reflect.Bool:
		if v.Bool() {
			t.SetInts([]int64{1})
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		t.SetInts([]int64{int64(v.Uint())})
	default:
		t.SetInts([]int64{v.Int()})
	}
}

// Engine is gorgonia's standard engine with the float32 products on Tessera's kernels. Strides of views are honoured, which the
// standard engine does not do for slices of columns. Other element types pass through the standard engine.
type Engine struct {
	gt.StdEng
	Threads int // workers at most; 0 means GOMAXPROCS
}

var (
	_ gt.MatMuler    = Engine{}
	_ gt.MatVecMuler = Engine{}
	_ gt.InnerProder = Engine{}
)

// plain returns an operand as the standard engine can take it: a slice is copied, since that engine derives strides from the shape and
// would read other elements than the slice has. Lazy transpositions it knows.
func plain(x gt.Tensor) gt.Tensor {
	if d, ok := x.(*gt.Dense); ok && d.DataOrder().IsNotContiguous() && !d.DataOrder().IsTransposed() && d.IsMaterializable() {
		return d.Materialize()
	}
	return x
}

// MatMul computes c = a b for two matrices.
func (e Engine) MatMul(a, b, c gt.Tensor) error {
	if a.Dtype() != gt.Float32 {
		return e.StdEng.MatMul(plain(a), plain(b), c)
	}
	ma, err := matrix(a, "first operand")
	if err != nil {
		return err
	}
	mb, err := matrix(b, "second operand")
	if err != nil {
		return err
	}
	mc, err := matrix(c, "result")
	if err != nil {
		return err
	}
	return e.multiply(mc, ma, mb)
}

// MatVecMul computes c = a b for a matrix and a vector.
func (e Engine) MatVecMul(a, b, c gt.Tensor) error {
	if a.Dtype() != gt.Float32 {
		return e.StdEng.MatVecMul(plain(a), plain(b), c)
	}
	ma, err := matrix(a, "matrix")
	if err != nil {
		return err
	}
	mb, err := column(b, "vector")
	if err != nil {
		return err
	}
	mc, err := column(c, "result")
	if err != nil {
		return err
	}
	return e.multiply(mc, ma, mb)
}

// Inner returns the inner product of two vectors, a float32 for float32 operands.
func (e Engine) Inner(a, b gt.Tensor) (any, error) {
	if a.Dtype() != gt.Float32 {
		return e.StdEng.Inner(plain(a), plain(b))
	}
	ma, err := column(a, "first vector")
	if err != nil {
		return nil, err
	}
	mb, err := column(b, "second vector")
	if err != nil {
		return nil, err
	}
	var sum [1]float32
	if err := e.multiply(gemm.Of(sum[:], 1, 1), ma.T(), mb); err != nil {
		return nil, err
	}
	return sum[0], nil
}

// multiply runs a product whose result may have its columns, not its rows, in one piece.
func (e Engine) multiply(c, a, b gemm.Matrix) error {
	if c.ColStride != 1 && c.Cols > 1 && c.RowStride == 1 {
		a, b, c = b.T(), a.T(), c.T()
	}
	return gemm.Mul(c, a, b, &gemm.Options{Threads: e.Threads})
}

func view(x gt.Tensor, what string) (tensor.Tensor, error) {
	d, ok := x.(*gt.Dense)
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("gorgonia: the %s is a %T, a dense tensor is right", what, x)
	}
	t, err := From(d)
	if err == nil && t.DType != tensor.F32 {
		err = fmt.Errorf("gorgonia: the %s is %v, f32 is right", what, t.Spec)
	}
	return t, err
}

func matrix(x gt.Tensor, what string) (gemm.Matrix, error) {
	t, err := view(x, what)
	if err != nil {
		return gemm.Matrix{}, err
	}
	if t.Rank != 2 {
		return gemm.Matrix{}, fmt.Errorf("gorgonia: the %s is %v, a matrix is right", what, t.Spec)
	}
	return gemm.View(tensor.Data[float32](t), t.Dims[0], t.Dims[1], t.Strides[0], t.Strides[1]), nil
}

func column(x gt.Tensor, what string) (gemm.Matrix, error) {
	t, err := view(x, what)
	if err != nil {
		return gemm.Matrix{}, err
	}
	n, stride := t.Elems(), 1
	for i := 0; i < int(t.Rank); i++ {
		if t.Dims[i] != 1 {
			if t.Dims[i] != n {
				return gemm.Matrix{}, fmt.Errorf("gorgonia: the %s is %v, a vector is right", what, t.Spec)
			}
			stride = t.Strides[i]
		}
	}
	return gemm.View(tensor.Data[float32](t), n, 1, stride, 1), nil
}
