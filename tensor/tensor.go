// Package tensor decides what a tensor is: an element type, dimensions outermost first, strides in elements, and a place in a
// buffer. A tensor is a value; views (Slice, Transpose, Reshape, Broadcast, ...) share the buffer and never copy.
package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
)

// MaxRank is the largest number of dimensions.
const MaxRank = 8

// Spec is the type and shape of a tensor. It is comparable, so that it can be a cache key: dimensions beyond Rank are zero.
type Spec struct {
	DType DType
	Rank  uint8
	Dims  [MaxRank]int
}

// MakeSpec returns a spec. It panics on more than MaxRank dimensions; use Check for what a user gives.
func MakeSpec(d DType, dims ...int) Spec {
	s := Spec{DType: d, Rank: uint8(len(dims))}
	copy(s.Dims[:len(dims)], dims)
	return s
}

// Check returns an error if the type is invalid, a dimension is negative, a row of a block type is not whole blocks, or the
// size in bytes overflows.
func (s Spec) Check() error {
	if s.DType == Invalid || s.DType >= numDTypes {
		return fmt.Errorf("%v: invalid element type", s)
	}
	if int(s.Rank) > MaxRank {
		return fmt.Errorf("%d dimensions, at most %d are possible", s.Rank, MaxRank)
	}
	for _, n := range s.Shape() {
		if n < 0 {
			return fmt.Errorf("%v: negative dimension", s)
		}
	}
	if b := s.DType.Block(); b > 1 {
		if s.Rank == 0 || s.Dims[s.Rank-1]%b != 0 {
			return fmt.Errorf("%v: rows must be whole blocks of %d elements", s, b)
		}
	}
	if _, ok := s.bytes(); !ok {
		return fmt.Errorf("%v: %w", s, mem.ErrOverflow)
	}
	return nil
}

// CheckDims is Check for dimensions that are not yet a spec, of which there may be too many.
func CheckDims(d DType, dims []int) (Spec, error) {
	if len(dims) > MaxRank {
		return Spec{}, fmt.Errorf("%d dimensions, at most %d are possible", len(dims), MaxRank)
	}
	s := MakeSpec(d, dims...)
	return s, s.Check()
}

func (s Spec) bytes() (int, bool) {
	n, ok := mem.Mul(s.Shape()...)
	if !ok {
		return 0, false
	}
	return mem.Mul(n/s.DType.Block(), s.DType.Size())
}

// Shape returns the dimensions, outermost first. The slice is a copy.
func (s Spec) Shape() []int { return append([]int(nil), s.Dims[:s.Rank]...) }

// Dim returns dimension i; a negative i counts from the innermost, -1 being the innermost itself.
func (s Spec) Dim(i int) int {
	if i < 0 {
		i += int(s.Rank)
	}
	return s.Dims[i]
}

// Elems returns the number of elements: 1 for a scalar.
func (s Spec) Elems() int {
	n := 1
	for i := 0; i < int(s.Rank); i++ {
		n *= s.Dims[i]
	}
	return n
}

// Bytes returns the bytes of a contiguous tensor of this spec, which Check has found representable.
func (s Spec) Bytes() int { n, _ := s.bytes(); return n }

// With returns the spec with another element type.
func (s Spec) With(d DType) Spec { s.DType = d; return s }

// String returns, for example, "f32[2 3]".
func (s Spec) String() string {
	return s.DType.String() + strings.ReplaceAll(fmt.Sprint(s.Dims[:min(int(s.Rank), MaxRank)]), ",", "")
}

// Buffer is memory that tensors share.
type Buffer struct {
	data    []byte
	mapping *mem.Mapping
	ro      bool
}

// ErrReadOnly says that a tensor lies in read-only memory, such as a mapped file.
var ErrReadOnly = errors.New("tensor is read-only")

// NewBuffer allocates n zeroed bytes on the Go heap, aligned to 64 bytes.
func NewBuffer(n int) *Buffer { return &Buffer{data: mem.Bytes(n)} }

// MapBuffer allocates n zeroed bytes outside the Go heap where the system can; Close releases them.
func MapBuffer(n int) (*Buffer, error) {
	m, err := mem.Anonymous(n)
	if err != nil {
		return nil, err
	}
	return &Buffer{data: m.Data(), mapping: m}, nil
}

// OpenBuffer maps a file read-only; Close releases it.
func OpenBuffer(path string) (*Buffer, error) {
	m, err := mem.File(path)
	if err != nil {
		return nil, err
	}
	return &Buffer{data: m.Data(), mapping: m, ro: true}, nil
}

// WrapBytes makes a buffer of the caller's bytes.
func WrapBytes(data []byte) *Buffer { return &Buffer{data: data} }

// WrapReadOnly makes a buffer of the caller's bytes that operations must not write.
func WrapReadOnly(data []byte) *Buffer { return &Buffer{data: data, ro: true} }

// Bytes returns the buffer's memory.
func (b *Buffer) Bytes() []byte { return b.data }

// ReadOnly reports whether the memory must not be written.
func (b *Buffer) ReadOnly() bool { return b.ro }

// GiveBack tells the system that some of the buffer's bytes will not be read soon. Whole pages of a mapped file are dropped, and come back when
// they are read again; other memory stays as it is.
func (b *Buffer) GiveBack(data []byte) {
	if !b.ro || b.mapping == nil || !b.mapping.Mapped() || len(data) == 0 {
		return
	}
	// Dropping pages of other memory would lose what they hold.
	first, at := uintptr(unsafe.Pointer(&b.data[0])), uintptr(unsafe.Pointer(&data[0]))
	if at >= first && at+uintptr(len(data)) <= first+uintptr(len(b.data)) {
		mem.Advise(data, mem.DontNeed)
	}
}

// Evict says that a tensor of a mapped file is not needed for now: its pages leave memory, and are read again when touched. For tensors that
// lie elsewhere, or with gaps, nothing happens.
func (t Tensor) Evict() {
	if b := t.Buf; b != nil && b.ro && b.mapping != nil && b.mapping.Mapped() && contiguous(&t) {
		mem.Advise(raw(&t), mem.DontNeed)
	}
}

// Close releases memory outside the Go heap. Tensors of the buffer must not be used afterwards.
func (b *Buffer) Close() error {
	b.data = nil
	if b.mapping == nil {
		return nil
	}
	return b.mapping.Close()
}

// Tensor is a view of a buffer. Strides are in elements, one a dimension; for block types the innermost stride is 1 and the
// others are whole rows. Off is the byte offset of the first element. Methods have value receivers, those that write elements too: what they change
// is the memory of the buffer, and a result such as that of graph.Executable.Output can be used where it stands.
type Tensor struct {
	Spec
	Strides [MaxRank]int
	Buf     *Buffer
	Off     int
}

// New allocates a zeroed, contiguous tensor on the Go heap. It panics on an impossible spec; use NewChecked for what a user gives.
func New(d DType, dims ...int) Tensor {
	t, err := NewChecked(d, dims...)
	if err != nil {
		panic(err)
	}
	return t
}

// NewChecked allocates a zeroed, contiguous tensor on the Go heap.
func NewChecked(d DType, dims ...int) (Tensor, error) {
	s, err := CheckDims(d, dims)
	if err != nil {
		return Tensor{}, err
	}
	return At(NewBuffer(s.Bytes()), 0, s)
}

// At places a contiguous tensor at a byte offset of a buffer.
func At(buf *Buffer, off int, s Spec) (Tensor, error) {
	if err := s.Check(); err != nil {
		return Tensor{}, err
	}
	if end, ok := mem.Add(off, s.Bytes()); !ok || end > len(buf.data) {
		return Tensor{}, fmt.Errorf("%v at byte %d needs %d bytes, the buffer has %d", s, off, s.Bytes(), len(buf.data))
	}
	return Tensor{Spec: s, Strides: s.Contiguous(), Buf: buf, Off: off}, nil
}

// Contiguous returns the row-major strides of the spec.
func (s Spec) Contiguous() (strides [MaxRank]int) {
	step := 1
	for i := int(s.Rank) - 1; i >= 0; i-- {
		strides[i] = step
		step *= s.Dims[i]
	}
	return strides
}

// Element is the set of Go types that stand for element types.
type Element interface {
	~float32 | ~float64 | ~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~bool
}

// Of makes a tensor of the caller's slice without copying. The element type follows from T: uint16 is U16 (use Bits for F16 and
// BF16). It panics if the dimensions' product is not len(data).
func Of[T Element](data []T, dims ...int) Tensor { return Bits(dtypeOf[T](), data, dims...) }

// Bits makes a tensor of type d of the caller's slice, whose elements have the size of d's, without copying.
func Bits[T Element](d DType, data []T, dims ...int) Tensor {
	var zero T
	s, err := CheckDims(d, dims)
	if err != nil {
		panic(err)
	}
	if s.Bytes() != len(data)*int(unsafe.Sizeof(zero)) {
		panic(fmt.Sprintf("tensor: %v needs %d bytes, the slice has %d", s, s.Bytes(), len(data)*int(unsafe.Sizeof(zero))))
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(zero)))
	return Tensor{Spec: s, Strides: s.Contiguous(), Buf: WrapBytes(raw)}
}

func dtypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int8:
		return I8
	case uint8:
		return U8
	case int16:
		return I16
	case uint16:
		return U16
	case int32:
		return I32
	case uint32:
		return U32
	case int64:
		return I64
	case uint64:
		return U64
	case bool:
		return Bool
	}
	panic("tensor: named element types need Bits")
}

// Valid reports whether the tensor has memory.
func (t Tensor) Valid() bool { return t.Buf != nil }

// Ptr returns the address of the first element; nil for an empty tensor.
func (t Tensor) Ptr() unsafe.Pointer {
	if t.Buf == nil || t.Off >= len(t.Buf.data) {
		return nil
	}
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(t.Buf.data)), t.Off)
}

// IsContiguous reports whether the elements lie in row-major order without gaps. Dimensions of size 1 have no say.
func (t Tensor) IsContiguous() bool { return contiguous(&t) }

func contiguous(t *Tensor) bool {
	step := 1
	for i := int(t.Rank) - 1; i >= 0; i-- {
		if t.Dims[i] != 1 && t.Strides[i] != step {
			return t.Elems() == 0
		}
		step *= t.Dims[i]
	}
	return true
}

// Extent returns the bytes from the first to behind the last element; 0 for an empty tensor.
func (t Tensor) Extent() int { return extent(&t) }

// extent, like contiguous and raw, takes a pointer, so that a method which needs it copies its receiver once.
func extent(t *Tensor) int {
	last := 0
	for i := 0; i < int(t.Rank); i++ {
		if t.Dims[i] == 0 {
			return 0
		}
		last += (t.Dims[i] - 1) * t.Strides[i]
	}
	b := t.DType.Block()
	return (last + b) / b * t.DType.Size()
}

// Raw returns the bytes from the first to behind the last element. For a contiguous tensor they are its elements. It panics, as all that reads elements does,
// if the tensor's buffer is closed.
func (t Tensor) Raw() []byte { return raw(&t) }

func raw(t *Tensor) []byte {
	n := extent(t)
	if n == 0 {
		return nil
	}
	if t.Buf.data == nil {
		panic(fmt.Sprintf("tensor: %v is read after the Close of what its memory belongs to", t.Spec))
	}
	return t.Buf.data[t.Off : t.Off+n : t.Off+n]
}

// Data returns the memory of a tensor as elements of T, from the first to behind the last element: with strides, gaps are
// included. It panics if the sizes of T and of an element differ.
func Data[T Element](t Tensor) []T {
	var zero T
	if t.DType.Size() != int(unsafe.Sizeof(zero)) {
		panic(fmt.Sprintf("tensor: %v read as elements of %d bytes", t.Spec, unsafe.Sizeof(zero)))
	}
	data := raw(&t)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/int(unsafe.Sizeof(zero)))
}

// CheckMemory returns why a tensor, whose fields anybody may have set, does not lie in its buffer: its spec is impossible, a stride is negative, elements lie
// outside, or those of a block type are no whole blocks. Nothing is allocated for one that does: small products, which are checked by it, are called often.
func (t Tensor) CheckMemory() error {
	if int(t.Rank) > MaxRank {
		return t.Check()
	}
	block, size := t.DType.Block(), t.DType.Size()
	elems, last := 1, 0 // last: the last element's distance from the first
	valid, fits, empty := size > 0, true, false
	for i := range int(t.Rank) {
		n, stride := t.Dims[i], t.Strides[i]
		empty = empty || n == 0
		if n <= 1 {
			valid = valid && n >= 0
			continue
		}
		over, all := bits.Mul64(uint64(elems), uint64(n))
		valid = valid && over == 0 && all <= math.MaxInt/256 // which times any size fits; Check knows about more
		elems = int(all)
		over, step := bits.Mul64(uint64(n-1), uint64(stride))
		fits = fits && stride >= 0 && over == 0 && step <= uint64(math.MaxInt-last)
		last += int(step)
		if block > 1 {
			inner := i == int(t.Rank)-1
			fits = fits && (inner && stride == 1 || !inner && stride%block == 0)
		}
	}
	if !valid || block > 1 && (t.Rank == 0 || t.Dims[t.Rank-1]%block != 0) {
		if err := t.Check(); err != nil {
			return err
		}
	}
	if empty {
		return nil
	}
	room := 0
	if t.Buf != nil {
		room = len(t.Buf.Bytes())
	}
	if !fits || t.Off < 0 || t.Off > room || last/block >= (room-t.Off)/size {
		return outside(t, room)
	}
	return nil
}

func outside(t Tensor, room int) error {
	return fmt.Errorf("%v at byte %d with strides %v does not lie in its buffer of %d bytes", t.Spec, t.Off, t.Strides[:t.Rank], room)
}

// Overlaps reports whether the memory ranges of two tensors share a byte. Interleaved views count as overlapping.
func (t Tensor) Overlaps(u Tensor) bool {
	a, b := raw(&t), raw(&u)
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	a0, b0 := uintptr(unsafe.Pointer(&a[0])), uintptr(unsafe.Pointer(&b[0]))
	return a0 < b0+uintptr(len(b)) && b0 < a0+uintptr(len(a))
}

// String returns the spec, with strides where the tensor is not contiguous.
func (t Tensor) String() string {
	if contiguous(&t) {
		return t.Spec.String()
	}
	return fmt.Sprintf("%v strides %v", t.Spec, t.Strides[:t.Rank])
}
