// Package quant decides how numbers of less than 32 bits stand for real ones: the GGML block formats that GGUF files hold, and
// affine int8 for the integer products.
//
// A block format stores runs of 32 or 256 consecutive elements of a row together, with scales of their own; [DecodeRow] and
// [EncodeRow] work on rows of whole blocks, [Decode] and [Encode] on tensors. Decoding equals GGML's bit for bit; encoding of
// the 32-element formats equals its reference encoder byte for byte, and the K formats are searched for the least squared error.
//
// Odd blocks are defined. All zeros encode to zeros; a block whose scale is too small for its half-precision field decodes to
// zeros; NaN, infinity, and values whose scale overflows half precision are a [*BlockError] that names the block.
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/tensor"
)

// codec is a format: decode and encode work on whole blocks. encode returns a description of what cannot be represented, or "".
type codec struct {
	decode func(dst []float32, src []byte)
	encode func(dst []byte, src []float32) string // one block; nil where there is no encoder
	scales []int                                  // byte offsets of half-precision fields in a block, for Validate
}

var codecs = map[tensor.DType]*codec{
	tensor.Q4_0:   {decodeQ4_0, encodeQ4_0, []int{0}},
	tensor.Q4_1:   {decodeQ4_1, encodeQ4_1, []int{0, 2}},
	tensor.Q5_0:   {decodeQ5_0, encodeQ5_0, []int{0}},
	tensor.Q5_1:   {decodeQ5_1, encodeQ5_1, []int{0, 2}},
	tensor.Q8_0:   {decodeQ8_0, encodeQ8_0, []int{0}},
	tensor.Q2_K:   {decodeQ2K, encodeQ2K, []int{80, 82}},
	tensor.Q3_K:   {decodeQ3K, encodeQ3K, []int{108}},
	tensor.Q4_K:   {decodeQ4K, encodeQ4K, []int{0, 2}},
	tensor.Q5_K:   {decodeQ5K, encodeQ5K, []int{0, 2}},
	tensor.Q6_K:   {decodeQ6K, encodeQ6K, []int{208}},
	tensor.IQ4_NL: {decodeIQ4NL, encodeIQ4NL, []int{0}},
	tensor.MXFP4:  {decodeMXFP4, encodeMXFP4, nil},
}

// CanDecode reports whether rows of the type can be widened to float32.
func CanDecode(d tensor.DType) bool {
	return codecs[d] != nil || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16
}

// CanEncode reports whether float32 rows can be stored as the type.
func CanEncode(d tensor.DType) bool {
	c := codecs[d]
	return c != nil && c.encode != nil || d == tensor.F32 || d == tensor.F16 || d == tensor.BF16
}

// BlockError says which block of a row cannot be represented, and why.
type BlockError struct {
	Type   tensor.DType
	Block  int // index in the row that was passed
	Reason string
}

func (e *BlockError) Error() string {
	return fmt.Sprintf("%v block %d (elements %d to %d): %s", e.Type, e.Block, e.Block*e.Type.Block(), (e.Block+1)*e.Type.Block()-1, e.Reason)
}

func checkRow(d tensor.DType, elems, bytes int) error {
	if elems%d.Block() != 0 {
		return fmt.Errorf("quant: %d elements are no whole number of %v blocks of %d", elems, d, d.Block())
	}
	if want := elems / d.Block() * d.Size(); bytes != want {
		return fmt.Errorf("quant: %d %v elements take %d bytes, not %d", elems, d, want, bytes)
	}
	return nil
}

// DecodeRow widens a row of len(dst) elements.
func DecodeRow(d tensor.DType, dst []float32, src []byte) error {
	if !CanDecode(d) {
		return fmt.Errorf("quant: no decoder for %v", d)
	}
	if err := checkRow(d, len(dst), len(src)); err != nil {
		return err
	}
	decodeRow(d, dst, src)
	return nil
}

func decodeRow(d tensor.DType, dst []float32, src []byte) {
	switch d {
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[i*4:]))
		}
	case tensor.F16:
		for i := range dst {
			dst[i] = tensor.F16ToF32(binary.LittleEndian.Uint16(src[i*2:]))
		}
	case tensor.BF16:
		for i := range dst {
			dst[i] = tensor.BF16ToF32(binary.LittleEndian.Uint16(src[i*2:]))
		}
	default:
		codecs[d].decode(dst, src)
	}
}

// EncodeRow stores a row of len(src) elements. The error is a *BlockError where an element has no representation.
func EncodeRow(d tensor.DType, dst []byte, src []float32) error {
	if !CanEncode(d) {
		return fmt.Errorf("quant: no encoder for %v", d)
	}
	if err := checkRow(d, len(src), len(dst)); err != nil {
		return err
	}
	for i, x := range src {
		if math.Float32bits(x)&0x7f800000 == 0x7f800000 {
			return &BlockError{d, i / d.Block(), fmt.Sprintf("element %d is %v", i, x)}
		}
	}
	switch d {
	case tensor.F32:
		for i, x := range src {
			binary.LittleEndian.PutUint32(dst[i*4:], math.Float32bits(x))
		}
	case tensor.F16:
		for i, x := range src {
			h := tensor.F32ToF16(x)
			if h&0x7fff == 0x7c00 {
				return &BlockError{d, i, fmt.Sprintf("%g is beyond the range of f16", x)}
			}
			binary.LittleEndian.PutUint16(dst[i*2:], h)
		}
	case tensor.BF16:
		for i, x := range src {
			h := tensor.F32ToBF16(x)
			if h&0x7fff == 0x7f80 { // the largest float32 round up to infinity
				return &BlockError{d, i, fmt.Sprintf("%g is beyond the range of bf16", x)}
			}
			binary.LittleEndian.PutUint16(dst[i*2:], h)
		}
	default:
		encode, block, size := codecs[d].encode, d.Block(), d.Size()
		for i := 0; i*block < len(src); i++ {
			if reason := encode(dst[i*size:(i+1)*size], src[i*block:(i+1)*block]); reason != "" {
				return &BlockError{d, i, reason}
			}
		}
	}
	return nil
}

// Validate returns an error if a scale of a stored row (or, for float types, an element) is NaN or infinite.
func Validate(d tensor.DType, src []byte) error {
	size := d.Size()
	if size == 0 || len(src)%size != 0 {
		return fmt.Errorf("quant: %d bytes are no whole number of %v blocks of %d", len(src), d, size)
	}
	half := func(i, off int) error {
		if h := binary.LittleEndian.Uint16(src[i*size+off:]); h&0x7c00 == 0x7c00 {
			return &BlockError{d, i, fmt.Sprintf("its scale is %v", tensor.F16ToF32(h))}
		}
		return nil
	}
	n := len(src) / size
	switch d {
	case tensor.F32:
		for i := range n {
			if u := binary.LittleEndian.Uint32(src[i*4:]); u&0x7f800000 == 0x7f800000 {
				return &BlockError{d, i, fmt.Sprintf("it is %v", math.Float32frombits(u))}
			}
		}
	case tensor.BF16:
		for i := range n {
			if u := binary.LittleEndian.Uint16(src[i*2:]); u&0x7f80 == 0x7f80 {
				return &BlockError{d, i, fmt.Sprintf("it is %v", tensor.BF16ToF32(u))}
			}
		}
	case tensor.F16:
		for i := range n {
			if err := half(i, 0); err != nil {
				return err
			}
		}
	case tensor.MXFP4:
		for i := range n {
			if src[i*size] == 0xff {
				return &BlockError{d, i, "its scale is NaN"}
			}
		}
	default:
		c := codecs[d]
		if c == nil {
			return nil
		}
		for i := range n {
			for _, off := range c.scales {
				if err := half(i, off); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// Decode returns a contiguous f32 copy of a tensor of any block type; a plain float type is widened. Rows may lie apart.
func Decode(t tensor.Tensor) (tensor.Tensor, error) {
	if !CanDecode(t.DType) {
		return tensor.Tensor{}, fmt.Errorf("quant: no decoder for %v", t.Spec)
	}
	out, err := tensor.NewChecked(tensor.F32, t.Shape()...)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if !t.DType.IsBlock() {
		return out, tensor.Copy(out, t)
	}
	rows, err := rowsOf(&t)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if len(rows) == 0 || t.Elems() == 0 {
		return out, nil
	}
	dst, n := tensor.Data[float32](out), t.Dim(-1)
	forRows(len(rows), n, func(i int) { decodeRow(t.DType, dst[i*n:(i+1)*n], rows[i]) })
	return out, nil
}

// Encode returns a contiguous copy of a float tensor in another float or block type. The error names row and block of an element
// without representation.
func Encode(d tensor.DType, t tensor.Tensor) (tensor.Tensor, error) {
	if !CanEncode(d) {
		return tensor.Tensor{}, fmt.Errorf("quant: no encoder for %v", d)
	}
	out, err := tensor.NewChecked(d, t.Shape()...)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if t.DType != tensor.F32 || !t.IsContiguous() {
		if t, err = Decode(t); err != nil {
			return tensor.Tensor{}, err
		}
	}
	if t.Elems() == 0 {
		return out, nil
	}
	n := max(t.Elems(), 1)
	if t.Rank > 0 {
		n = t.Dim(-1)
	}
	src, dst := tensor.Data[float32](t), out.Raw()
	rows, bytes := t.Elems()/n, n/d.Block()*d.Size()
	errs := make([]error, rows)
	forRows(rows, n, func(i int) { errs[i] = EncodeRow(d, dst[i*bytes:(i+1)*bytes], src[i*n:(i+1)*n]) })
	for i, err := range errs {
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return out, nil
}

// rowsOf returns the bytes of each row of a tensor of a block type.
func rowsOf(t *tensor.Tensor) ([][]byte, error) {
	if t.Rank == 0 || t.Elems() == 0 {
		return nil, nil
	}
	last := int(t.Rank) - 1
	if t.Strides[last] != 1 && t.Dims[last] != 1 {
		return nil, fmt.Errorf("quant: rows of %v are not contiguous", t)
	}
	n := t.Dims[last]
	rowBytes := n / t.DType.Block() * t.DType.Size()
	raw := t.Raw()
	rows := make([][]byte, 0, t.Elems()/n)
	var walk func(dim, off int) // off in elements
	walk = func(dim, off int) {
		if dim == last {
			b := off / t.DType.Block() * t.DType.Size()
			rows = append(rows, raw[b:b+rowBytes:b+rowBytes])
			return
		}
		for i := range t.Dims[dim] {
			walk(dim+1, off+i*t.Strides[dim])
		}
	}
	walk(0, 0)
	return rows, nil
}

// rowChunk is about how many elements a job of a parallel loop holds: some tens of microseconds of work.
const rowChunk = 1 << 14

type rowTask struct {
	n, chunk int
	f        func(int)
}

func (r *rowTask) Do(_, job int) {
	for i := job * r.chunk; i < min(r.n, (job+1)*r.chunk); i++ {
		r.f(i)
	}
}

func forRows(rows, n int, f func(i int)) {
	chunk := max(1, rowChunk/max(n, 1))
	par.Run(0, (rows+chunk-1)/chunk, &rowTask{rows, chunk, f})
}
