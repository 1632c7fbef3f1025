package gguf

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// Writer collects metadata and tensors and writes a file of version 3. Its zero value is ready.
type Writer struct {
	// Alignment of tensors; 0 means DefaultAlignment. Another one is also written as general.alignment.
	Alignment int

	metadata []KeyValue
	keys     map[string]int
	tensors  []writerTensor
	names    map[string]bool
	err      error
}

type writerTensor struct {
	TensorInfo
	write func(io.Writer) error
}

func (w *Writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("gguf: "+format, args...)
	}
}

// Set adds an entry of the metadata, or replaces it. The value has one of the types of KeyValue; an int is stored as int32 if it
// fits. Errors are kept for WriteTo.
func (w *Writer) Set(key string, value any) {
	if n, ok := value.(int); ok {
		value = int64(n)
		if n == int(int32(n)) {
			value = int32(n)
		}
	}
	if key == "" || len(key) > maxKey {
		w.fail("key of %d bytes, 1 to %d are right", len(key), maxKey)
	}
	if _, _, ok := encodeValue(nil, value); !ok {
		w.fail("key %q: a value of type %T cannot be stored", key, value)
	}
	if w.keys == nil {
		w.keys = map[string]int{}
	}
	if i, ok := w.keys[key]; ok {
		w.metadata[i].Value = value
		return
	}
	w.keys[key] = len(w.metadata)
	w.metadata = append(w.metadata, KeyValue{key, value})
}

// Add adds a tensor whose bytes are produced by write when their place in the file has come, so that a file may be larger than
// memory. Dims are outermost first. Errors are kept for WriteTo.
func (w *Writer) Add(name string, t Type, dims []int, write func(io.Writer) error) {
	info := TensorInfo{Name: name, Type: t, Dims: append([]int(nil), dims...)}
	inner := 1
	if len(dims) > 0 {
		inner = dims[len(dims)-1]
	}
	elems, ok := mem.Mul(dims...)
	switch {
	case name == "" || len(name) > MaxName:
		w.fail("tensor name %q of %d bytes, 1 to %d are right", name, len(name), MaxName)
	case w.names[name]:
		w.fail("tensor %q is added twice", name)
	case !t.Known():
		w.fail("tensor %q: unknown %v", name, t)
	case len(dims) > MaxDims:
		w.fail("tensor %q: %d dimensions, at most %d are right", name, len(dims), MaxDims)
	case !ok || elems == 0:
		w.fail("tensor %q: dimensions %v", name, dims)
	case inner%t.Block() != 0:
		w.fail("tensor %q: rows of %d elements are no whole number of %v blocks of %d", name, inner, t, t.Block())
	default:
		if info.Bytes, ok = mem.Mul(elems/t.Block(), t.Size()); !ok {
			w.fail("tensor %q: the size of %v%v overflows", name, t, dims)
		}
	}
	if w.names == nil {
		w.names = map[string]bool{}
	}
	w.names[name] = true
	w.tensors = append(w.tensors, writerTensor{info, write})
}

// AddTensor adds a contiguous tensor; it must not change until the file has been written.
func (w *Writer) AddTensor(name string, t tensor.Tensor) {
	typ, err := TypeOf(t.DType)
	if err != nil {
		w.fail("tensor %q: %w", name, err)
		return
	}
	if !t.IsContiguous() {
		w.fail("tensor %q: %v is not contiguous", name, t)
		return
	}
	w.Add(name, typ, t.Shape(), func(out io.Writer) error {
		_, err := out.Write(t.Raw())
		return err
	})
}

// counter counts what has been written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// WriteTo writes the file.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	align := w.Alignment
	if align == 0 {
		align = DefaultAlignment
	} else if align < 8 || align > maxAlignment || align&(align-1) != 0 {
		w.fail("alignment %d, a power of two from 8 to %d is right", align, maxAlignment)
	}
	if align != DefaultAlignment {
		w.Set("general.alignment", uint32(align))
	}
	if w.err != nil {
		return 0, w.err
	}
	le := binary.LittleEndian
	head := append([]byte("GGUF"), 3, 0, 0, 0)
	head = le.AppendUint64(head, uint64(len(w.tensors)))
	head = le.AppendUint64(head, uint64(len(w.metadata)))
	for _, kv := range w.metadata {
		head = appendString(head, kv.Key)
		kind, body, _ := encodeValue(nil, kv.Value)
		head = append(le.AppendUint32(head, kind), body...)
	}
	offset := 0
	for i := range w.tensors {
		t := &w.tensors[i]
		t.Offset = offset
		head = appendString(head, t.Name)
		head = le.AppendUint32(head, uint32(len(t.Dims)))
		for j := range t.Dims {
			head = le.AppendUint64(head, uint64(t.Dims[len(t.Dims)-1-j]))
		}
		head = le.AppendUint32(head, uint32(t.Type))
		head = le.AppendUint64(head, uint64(offset))
		end, ok := mem.Add(offset, t.Bytes)
		if ok {
			offset, ok = mem.RoundUp(end, align)
		}
		if !ok {
			return 0, fmt.Errorf("gguf: tensor %q: the size of the file overflows", t.Name)
		}
	}
	buffered := bufio.NewWriterSize(out, 1<<16)
	c := &counter{w: buffered}
	if _, err := c.Write(head); err != nil {
		return c.n, err
	}
	pad := func() error {
		n := (align - int(c.n%int64(align))) % align
		_, err := c.Write(make([]byte, n))
		return err
	}
	for i := range w.tensors {
		t := &w.tensors[i]
		if err := pad(); err != nil {
			return c.n, err
		}
		start := c.n
		if err := t.write(c); err != nil {
			return c.n, fmt.Errorf("gguf: tensor %q: %w", t.Name, err)
		}
		if c.n-start != int64(t.Bytes) {
			return c.n, fmt.Errorf("gguf: tensor %q: %d bytes written, %v%v has %d", t.Name, c.n-start, t.Type, t.Dims, t.Bytes)
		}
	}
	if len(w.tensors) > 0 {
		if err := pad(); err != nil {
			return c.n, err
		}
	}
	return c.n, buffered.Flush()
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// encodeValue appends a value and returns its type; the type and length of an array are part of the body.
func encodeValue(b []byte, value any) (kind uint32, body []byte, ok bool) {
	le := binary.LittleEndian
	switch v := value.(type) {
	case uint8:
		return typeUint8, append(b, v), true
	case int8:
		return typeInt8, append(b, uint8(v)), true
	case uint16:
		return typeUint16, le.AppendUint16(b, v), true
	case int16:
		return typeInt16, le.AppendUint16(b, uint16(v)), true
	case uint32:
		return typeUint32, le.AppendUint32(b, v), true
	case int32:
		return typeInt32, le.AppendUint32(b, uint32(v)), true
	case float32:
		return typeFloat32, le.AppendUint32(b, math.Float32bits(v)), true
	case bool:
		if v {
			return typeBool, append(b, 1), true
		}
		return typeBool, append(b, 0), true
	case string:
		return typeString, appendString(b, v), true
	case uint64:
		return typeUint64, le.AppendUint64(b, v), true
	case int64:
		return typeInt64, le.AppendUint64(b, uint64(v)), true
	case float64:
		return typeFloat64, le.AppendUint64(b, math.Float64bits(v)), true
	case []uint8:
		return encodeArray(b, v)
	case []int8:
		return encodeArray(b, v)
	case []uint16:
		return encodeArray(b, v)
	case []int16:
		return encodeArray(b, v)
	case []uint32:
		return encodeArray(b, v)
	case []int32:
		return encodeArray(b, v)
	case []float32:
		return encodeArray(b, v)
	case []bool:
		return encodeArray(b, v)
	case []string:
		return encodeArray(b, v)
	case []uint64:
		return encodeArray(b, v)
	case []int64:
		return encodeArray(b, v)
	case []float64:
		return encodeArray(b, v)
	}
	return 0, b, false
}

func encodeArray[T any](b []byte, v []T) (uint32, []byte, bool) {
	var zero T
	elem, _, _ := encodeValue(nil, any(zero))
	b = binary.LittleEndian.AppendUint32(b, elem)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(v)))
	for _, e := range v {
		_, b, _ = encodeValue(b, any(e))
	}
	return typeArray, b, true
}
