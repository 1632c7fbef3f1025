package xdna

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/tessera-go/tessera/backends/xdna/kernel"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// rows is a matrix of rows in memory.
type rows struct {
	data  []byte
	pitch int // bytes
	typ   tensor.DType
}

// rowsOf views a tensor of any rank as n rows of cols elements at one distance, if it lies so.
func rowsOf(t *tensor.Tensor, n, cols int) (rows, bool) {
	last := int(t.Rank) - 1
	if last < 0 || t.Dims[last] != cols || t.DType.IsBlock() && !t.IsContiguous() {
		return rows{}, false
	}
	if t.DType.IsBlock() {
		return rows{t.Raw(), len(t.Raw()) / max(n, 1), t.DType}, true
	}
	if cols > 1 && t.Strides[last] != 1 {
		return rows{}, false
	}
	stride, count := 0, 1 // of the rows so far, from the inside
	for i := last - 1; i >= 0; i-- {
		if t.Dims[i] == 1 {
			continue
		}
		if count == 1 {
			stride = t.Strides[i]
		} else if t.Strides[i] != stride*count {
			return rows{}, false
		}
		count *= t.Dims[i]
	}
	if count != n || n > 1 && stride < cols {
		return rows{}, false
	}
	if n == 1 {
		stride = cols
	}
	size := t.DType.Size()
	off := t.Off
	data := t.Buf.Bytes()
	return rows{data[off:][:((n-1)*stride+cols)*size], stride * size, t.DType}, true
}

// readFloats reads a row of floats or integers as float32.
func readFloats(dst []float32, typ tensor.DType, src []byte) {
	switch typ {
	case tensor.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case tensor.BF16:
		widen(dst, src)
	case tensor.F16:
		for i := range dst {
			dst[i] = tensor.F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case tensor.I32:
		for i := range dst {
			dst[i] = float32(int32(binary.LittleEndian.Uint32(src[4*i:])))
		}
	}
}

// storeRow narrows a row to the type of C.
func storeRow(out []byte, typ tensor.DType, x []float32, ep matmul.Epilogue) {
	switch typ {
	case tensor.F32:
		for j, v := range x {
			binary.LittleEndian.PutUint32(out[4*j:], math.Float32bits(v))
		}
	case tensor.BF16:
		for j, v := range x {
			binary.LittleEndian.PutUint16(out[2*j:], tensor.F32ToBF16(v))
		}
	case tensor.F16:
		for j, v := range x {
			binary.LittleEndian.PutUint16(out[2*j:], tensor.F32ToF16(v))
		}
	case tensor.I32:
		for j, v := range x { // only the zeros of K = 0 come here
			binary.LittleEndian.PutUint32(out[4*j:], uint32(int32(v)))
		}
	case tensor.I16:
		for j, v := range x {
			binary.LittleEndian.PutUint16(out[2*j:], uint16(int16(v)))
		}
	default:
		scale := ep.OutScale
		if scale == 0 {
			scale = 1
		}
		lo, hi := float64(math.MinInt8), float64(math.MaxInt8)
		if typ == tensor.U8 {
			lo, hi = 0, math.MaxUint8
		}
		for j, v := range x {
			y := math.RoundToEven(float64(v/scale)) + float64(ep.OutZero)
			if !(y >= lo) { // NaN becomes the lowest value
				y = lo
			}
			out[j] = byte(int(min(y, hi)))
		}
	}
}

func rawType(t kernel.Type) tensor.DType {
	switch t {
	case kernel.BF16:
		return tensor.BF16
	case kernel.F32:
		return tensor.F32
	case kernel.I32:
		return tensor.I32
	case kernel.I16:
		return tensor.I16
	}
	return tensor.I8
}

func aligned4(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 }

func int32s(b []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
