package gemm

import (
	"fmt"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
)

// Type is the type of an operand's elements.
type Type uint8

// The element types. S32 is the type of integer sums.
const (
	F32 Type = iota + 1
	BF16
	F16
	S8
	U8
	S32
	numTypes
	s16 // how some kernels read A
)

var typeNames = [...]string{"none", "f32", "bf16", "f16", "s8", "u8", "s32", numTypes: "none", s16: "s16"}
var typeSizes = [...]int{0, 4, 2, 2, 1, 1, 4, numTypes: 0, s16: 2}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("Type(%d)", uint8(t))
}

// Size returns the bytes of one element.
func (t Type) Size() int {
	if int(t) < len(typeSizes) {
		return typeSizes[t]
	}
	return 0
}

// BFloat16 holds the bits of a bfloat16, Float16 those of an IEEE binary16. Slices of other types with the same bits are
// passed with Raw.
type (
	BFloat16 uint16
	Float16  uint16
)

// Elem are the Go types that stand for a Type.
type Elem interface {
	float32 | BFloat16 | Float16 | int8 | uint8 | int32
}

// Matrix is a view of memory: element (i, j) lies i*RowStride + j*ColStride elements from the start. A stride of 0 repeats;
// negative strides are refused. The memory is checked against the shape when the view is used, and then an error is returned.
// The zero Matrix means "none" where an operand is optional.
type Matrix struct {
	Rows, Cols           int
	RowStride, ColStride int
	typ                  Type
	ptr                  unsafe.Pointer
	len                  int // elements that lie behind ptr
}

// Of views data as a dense row-major matrix of rows x cols.
func Of[T Elem](data []T, rows, cols int) Matrix { return View(data, rows, cols, cols, 1) }

// View views data with any strides, in elements.
func View[T Elem](data []T, rows, cols, rowStride, colStride int) Matrix {
	return Matrix{rows, cols, rowStride, colStride, typeOf[T](), unsafe.Pointer(unsafe.SliceData(data)), len(data)}
}

// Raw views bytes as elements of type t, with strides in elements. Elements need no alignment.
func Raw(t Type, data []byte, rows, cols, rowStride, colStride int) Matrix {
	n := 0
	if s := t.Size(); s > 0 {
		n = len(data) / s
	}
	return Matrix{rows, cols, rowStride, colStride, t, unsafe.Pointer(unsafe.SliceData(data)), n}
}

func typeOf[T Elem]() Type {
	var v T
	switch any(v).(type) {
	case float32:
		return F32
	case BFloat16:
		return BF16
	case Float16:
		return F16
	case int8:
		return S8
	case uint8:
		return U8
	default:
		return S32
	}
}

// Type returns the element type; it is 0 for the zero Matrix.
func (m Matrix) Type() Type { return m.typ }

// T returns the transposed view.
func (m Matrix) T() Matrix {
	m.Rows, m.Cols, m.RowStride, m.ColStride = m.Cols, m.Rows, m.ColStride, m.RowStride
	return m
}

// check returns an error unless every element lies inside the memory.
func (m *Matrix) check(name string) error {
	if m.typ == 0 || m.typ >= numTypes {
		return fmt.Errorf("gemm: %s has no element type", name)
	}
	if m.Rows < 0 || m.Cols < 0 || m.RowStride < 0 || m.ColStride < 0 {
		return fmt.Errorf("gemm: %s is %d x %d with strides %d, %d: negative", name, m.Rows, m.Cols, m.RowStride, m.ColStride)
	}
	if m.Rows == 0 || m.Cols == 0 {
		return nil
	}
	end, ok := m.span()
	if !ok {
		return fmt.Errorf("gemm: %s is %d x %d with strides %d, %d: its extent %w", name, m.Rows, m.Cols, m.RowStride,
			m.ColStride, mem.ErrOverflow)
	}
	if end > m.len {
		return fmt.Errorf("gemm: %s is %d x %d with strides %d, %d and needs %d elements, its slice has %d", name, m.Rows,
			m.Cols, m.RowStride, m.ColStride, end, m.len)
	}
	return nil
}

// span returns the number of elements from the first to the last one, both included; the matrix must not be empty.
func (m *Matrix) span() (int, bool) {
	if all := m.Rows | m.Cols | m.RowStride | m.ColStride; uint(all) < 1<<14 {
		return (m.Rows-1)*m.RowStride + (m.Cols-1)*m.ColStride + 1, true // nothing here can overflow, not even 32 bits
	}
	r, ok1 := mem.Mul(m.Rows-1, m.RowStride)
	c, ok2 := mem.Mul(m.Cols-1, m.ColStride)
	end, ok3 := mem.Add(r, c, 1)
	if !ok1 || !ok2 || !ok3 {
		return 0, false
	}
	_, ok := mem.Mul(end, m.typ.Size())
	return end, ok
}

// distinct says whether no two elements share memory, which a result must satisfy.
func (m *Matrix) distinct() bool {
	r, c := m.RowStride, m.ColStride
	switch {
	case m.Rows <= 1 && m.Cols <= 1, m.Rows == 0, m.Cols == 0:
		return true
	case m.Rows <= 1:
		return c > 0
	case m.Cols <= 1:
		return r > 0
	}
	if r >= c {
		return c > 0 && r > (m.Cols-1)*c
	}
	return r > 0 && c > (m.Rows-1)*r
}

// overlaps says whether two checked views may share memory. Views that interleave without touching (columns of one buffer
// with the same row stride) are recognized.
func (m *Matrix) overlaps(o *Matrix) bool {
	if m.Rows == 0 || m.Cols == 0 || o.Rows == 0 || o.Cols == 0 {
		return false
	}
	ms, _ := m.span()
	os, _ := o.span()
	m0, o0 := uintptr(m.ptr), uintptr(o.ptr)
	m1, o1 := m0+uintptr(ms*m.typ.Size()), o0+uintptr(os*o.typ.Size())
	if m1 <= o0 || o1 <= m0 {
		return false
	}
	pitch := m.RowStride * m.typ.Size()
	if m.ColStride == 1 && o.ColStride == 1 && pitch == o.RowStride*o.typ.Size() && pitch > 0 {
		// Both are columns [x, x+w) of one pitch; compare them on the circle of that length.
		mw, ow := m.Cols*m.typ.Size(), o.Cols*o.typ.Size()
		d := int((int64(o0) - int64(m0)) % int64(pitch))
		if d < 0 {
			d += pitch
		}
		return d < mw || d+ow > pitch
	}
	return true
}

// at returns the address of element (i, j).
func (m *Matrix) at(i, j int) unsafe.Pointer {
	return unsafe.Add(m.ptr, (i*m.RowStride+j*m.ColStride)*m.typ.Size())
}

// bytes returns row i of a matrix with unit column stride.
func (m *Matrix) bytes(i int) []byte {
	return unsafe.Slice((*byte)(m.at(i, 0)), m.Cols*m.typ.Size())
}
