package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// unalignedLoads says that the processor reads numbers at any address, so that tensors can be used where the file has them.
var unalignedLoads = map[string]bool{"386": true, "amd64": true, "arm64": true, "ppc64le": true, "wasm": true}[runtime.GOARCH]

// rawTensor holds the fields of a TensorProto until all are known.
type rawTensor struct {
	t        Tensor
	dims     []int64
	raw      []byte
	hasRaw   bool
	numbers  [][]byte // packed numbers: int32_data, int64_data or uint64_data
	loose    []uint64 // numbers that were not packed
	field    string   // the field that the numbers came from
	external map[string]string
	location int64
}

func (d *decoder) tensor(b []byte) (*Tensor, error) {
	r := &rawTensor{}
	numbers := func(f field, name string) error {
		if r.field != "" && r.field != name {
			return at(name, fmt.Errorf("%s is there too", r.field))
		}
		r.field = name
		if f.typ == protowire.BytesType {
			r.numbers = append(r.numbers, f.data)
		} else {
			r.loose = append(r.loose, f.n)
		}
		return nil
	}
	err := fields(b, func(f field) (err error) {
		switch f.num {
		case 1:
			r.dims, err = f.ints(r.dims)
			if len(r.dims) > tensor.MaxRank {
				err = fmt.Errorf("more than %d", tensor.MaxRank)
			}
			return at("dims", err)
		case 2:
			e, err := f.int()
			r.t.Elem = ElemType(e)
			return at("data_type", err)
		case 3:
			return at("segment", errors.New("tensors in segments are not supported"))
		case 4:
			return numbers(f, "float_data")
		case 5:
			return numbers(f, "int32_data")
		case 6:
			s, err := f.string()
			r.t.Strings = append(r.t.Strings, s)
			return at("string_data", err)
		case 7:
			return numbers(f, "int64_data")
		case 8:
			return set(&r.t.Name, "name")(f.string())
		case 9:
			r.hasRaw = true
			return set(&r.raw, "raw_data")(f.bytes())
		case 10:
			return numbers(f, "double_data")
		case 11:
			return numbers(f, "uint64_data")
		case 13:
			k, v, err := entry(&f)
			if r.external == nil {
				r.external = map[string]string{}
			}
			r.external[k] = v
			return at("external_data", err)
		case 14:
			return set(&r.location, "data_location")(f.int())
		}
		return nil
	})
	if err == nil {
		err = d.finish(r)
	}
	if err != nil && r.t.Name != "" {
		if w, ok := err.(*wireError); ok {
			w.err = fmt.Errorf("%w (tensor %q)", w.err, r.t.Name)
		} else {
			err = fmt.Errorf("%w (tensor %q)", err, r.t.Name)
		}
	}
	return &r.t, err
}

// finish gives the tensor its memory, having checked that the file holds as many numbers as the dimensions say.
func (d *decoder) finish(r *rawTensor) error {
	t := &r.t
	n := 1
	for i, v := range r.dims {
		if v < 0 || v > math.MaxInt32*1024 || int64(int(v)) != v {
			return at(fmt.Sprintf("dims[%d]", i), fmt.Errorf("%d", v))
		}
		t.Dims = append(t.Dims, int(v))
	}
	n, ok := mem.Mul(t.Dims...)
	if !ok {
		return at("dims", fmt.Errorf("%v: %w", t.Dims, mem.ErrOverflow))
	}
	if t.Elem == String {
		if len(t.Strings) != n {
			return at("string_data", fmt.Errorf("%d strings for dims %v", len(t.Strings), t.Dims))
		}
		return nil
	}
	dt := t.Elem.DType()
	if dt == tensor.Invalid {
		return at("data_type", fmt.Errorf("%v is not supported", t.Elem))
	}
	spec, err := tensor.CheckDims(dt, t.Dims)
	if err != nil {
		return at("dims", err)
	}
	want := spec.Bytes()
	nibbles := t.Elem == Int4 || t.Elem == Uint4
	if nibbles {
		want = n/2 + n%2
	}
	switch {
	case r.location == 1:
		buf, off, err := d.m.externalData(r.external, want)
		if err != nil {
			return at("external_data", err)
		}
		return d.place(t, spec, buf, off, want, nibbles)
	case r.hasRaw:
		if len(r.raw) != want {
			return at("raw_data", fmt.Errorf("%d bytes, %v needs %d", len(r.raw), spec, want))
		}
		if len(r.raw) == 0 {
			t.Data, err = tensor.At(tensor.WrapReadOnly(nil), 0, spec)
			return err
		}
		off := int(uintptr(unsafe.Pointer(&r.raw[0])) - uintptr(unsafe.Pointer(&d.buf.Bytes()[0])))
		return d.place(t, spec, d.buf, off, want, nibbles)
	}
	return at(orElse(r.field, "data"), d.typed(r, spec, n, want, nibbles))
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// place makes a tensor of bytes of a buffer: where they lie if this machine can read them there, else of a copy.
func (d *decoder) place(t *Tensor, spec tensor.Spec, buf *tensor.Buffer, off, bytes int, nibbles bool) error {
	if nibbles {
		t.Data = unpackNibbles(spec, t.Elem, buf.Bytes()[off:off+bytes])
		return nil
	}
	size := spec.DType.Size()
	little := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	base := uintptr(unsafe.Pointer(unsafe.SliceData(buf.Bytes()))) + uintptr(off)
	if little && (unalignedLoads || base%uintptr(size) == 0) {
		var err error
		t.Data, err = tensor.At(buf, off, spec)
		return err
	}
	t.Data = tensor.New(spec.DType, spec.Shape()...)
	raw := t.Data.Raw()
	copy(raw, buf.Bytes()[off:off+bytes])
	if !little {
		for i := 0; i < len(raw); i += size {
			for j := 0; j < size/2; j++ {
				raw[i+j], raw[i+size-1-j] = raw[i+size-1-j], raw[i+j]
			}
		}
	}
	return nil
}

func unpackNibbles(spec tensor.Spec, e ElemType, packed []byte) tensor.Tensor {
	t := tensor.New(spec.DType, spec.Shape()...)
	raw := t.Raw()
	for i := range raw {
		v := packed[i/2] >> (i % 2 * 4) & 15
		if e == Int4 && v > 7 {
			v -= 16
		}
		raw[i] = v
	}
	return t
}

// typed reads numbers from the field that the standard assigns to the element type.
func (d *decoder) typed(r *rawTensor, spec tensor.Spec, n, bytes int, nibbles bool) error {
	t := &r.t
	field, width := "int32_data", 0
	switch t.Elem {
	case Float:
		field, width = "float_data", 4
	case Double:
		field, width = "double_data", 8
	case Int64:
		field = "int64_data"
	case Uint32, Uint64:
		field = "uint64_data"
	}
	if r.field != "" && r.field != field {
		return fmt.Errorf("holds the numbers, for %v %s is right", t.Elem, field)
	}
	stored := n
	if nibbles {
		stored = bytes
	}
	count := len(r.loose)
	for _, b := range r.numbers {
		if width > 0 {
			if len(b)%width != 0 {
				return fmt.Errorf("%d bytes packed", len(b))
			}
			count += len(b) / width
			continue
		}
		for _, c := range b {
			if c < 0x80 {
				count++
			}
		}
	}
	if count != stored {
		return fmt.Errorf("%d numbers, %v needs %d", count, spec, stored)
	}
	t.Data = tensor.New(spec.DType, spec.Shape()...)
	raw := t.Data.Raw()
	if nibbles {
		raw = make([]byte, bytes)
	}
	size := spec.DType.Size()
	i := 0
	put := func(v uint64) {
		switch p := raw[i*size:]; size {
		case 1:
			if t.Elem == Bool && v != 0 {
				v = 1
			}
			p[0] = byte(v)
		case 2:
			binary.NativeEndian.PutUint16(p, uint16(v))
		case 4:
			binary.NativeEndian.PutUint32(p, uint32(v))
		case 8:
			binary.NativeEndian.PutUint64(p, v)
		}
		i++
	}
	for _, b := range r.numbers {
		for len(b) > 0 {
			var v uint64
			var k int
			switch width {
			case 4:
				var w uint32
				w, k = protowire.ConsumeFixed32(b)
				v = uint64(w)
			case 8:
				v, k = protowire.ConsumeFixed64(b)
			default:
				v, k = protowire.ConsumeVarint(b)
			}
			if k < 0 {
				return protowire.ParseError(k)
			}
			put(v)
			b = b[k:]
		}
	}
	for _, v := range r.loose {
		put(v)
	}
	if nibbles {
		t.Data = unpackNibbles(spec, t.Elem, raw)
	}
	return nil
}

// sparse reads a sparse tensor and makes it dense. The dense size is bounded, because the file does not bound it.
func (d *decoder) sparse(b []byte) (*Tensor, error) {
	var values, indices *Tensor
	var dims []int64
	err := fields(b, func(f field) (err error) {
		switch f.num {
		case 1, 2:
			body, err := f.bytes()
			if err != nil {
				return at("values", err)
			}
			t, err := d.tensor(body)
			if f.num == 1 {
				values = t
				return at("values", err)
			}
			indices = t
			return at("indices", err)
		case 3:
			dims, err = f.ints(dims)
			return at("dims", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if values == nil || values.Elem == String {
		return nil, at("values", errors.New("no numbers"))
	}
	out := &Tensor{Name: values.Name, Elem: values.Elem}
	if len(dims) > tensor.MaxRank {
		return nil, at("dims", fmt.Errorf("more than %d", tensor.MaxRank))
	}
	for i, v := range dims {
		if v < 0 || int64(int(v)) != v {
			return nil, at(fmt.Sprintf("dims[%d]", i), fmt.Errorf("%d", v))
		}
		out.Dims = append(out.Dims, int(v))
	}
	const densest = 64 << 20
	spec, err := tensor.CheckDims(values.Data.DType, out.Dims)
	if err != nil || spec.Bytes() > densest {
		return nil, at("dims", fmt.Errorf("%v: dense sizes to %d bytes are supported", out.Dims, densest))
	}
	nnz := values.Data.Elems()
	if indices == nil || indices.Elem != Int64 {
		return nil, at("indices", errors.New("int64 is right"))
	}
	linear := len(indices.Dims) == 1
	if idx := indices.Data.Elems(); linear && idx != nnz || !linear && (idx != nnz*len(dims)) {
		return nil, at("indices", fmt.Errorf("%d for %d values of %v", idx, nnz, out.Dims))
	}
	out.Data = tensor.New(spec.DType, out.Dims...)
	raw, from, size := out.Data.Raw(), values.Data.Raw(), spec.DType.Size()
	idx := indices.Data.Ints()
	for i := 0; i < nnz; i++ {
		pos := int64(0)
		if linear {
			pos = idx[i]
		} else {
			for k, n := range out.Dims {
				v := idx[i*len(dims)+k]
				if v < 0 || v >= int64(n) {
					return nil, at("indices", fmt.Errorf("%d in a dimension of %d", v, n))
				}
				pos = pos*int64(n) + v
			}
		}
		if pos < 0 || pos >= int64(spec.Elems()) {
			return nil, at("indices", fmt.Errorf("%d of %d elements", pos, spec.Elems()))
		}
		copy(raw[int(pos)*size:(int(pos)+1)*size], from[i*size:])
	}
	return out, nil
}

// externalData maps the file that holds a tensor's bytes, once for all tensors in it. The location must stay inside the model's
// folder, symbolic links followed.
func (m *Model) externalData(kv map[string]string, want int) (*tensor.Buffer, int, error) {
	location := kv["location"]
	if m.externalBlocked {
		return nil, 0, fmt.Errorf("%q: a model read from memory has no folder for external data", location)
	}
	number := func(key string, def int) (int, error) {
		s, ok := kv[key]
		if !ok {
			return def, nil
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s %q is no size", key, s)
		}
		return n, nil
	}
	off, err := number("offset", 0)
	if err != nil {
		return nil, 0, err
	}
	length, err := number("length", want)
	if err != nil {
		return nil, 0, err
	}
	if length != want {
		return nil, 0, fmt.Errorf("%q: length %d, the tensor needs %d", location, length, want)
	}
	buf := m.external[location]
	if buf == nil {
		if location == "" || !filepath.IsLocal(filepath.FromSlash(location)) || strings.Contains(location, "\x00") {
			return nil, 0, fmt.Errorf("location %q lies outside the model's folder", location)
		}
		root, err := os.OpenRoot(m.dir)
		if err != nil {
			return nil, 0, err
		}
		defer root.Close()
		// Root follows links only inside the folder; what it opens is then mapped by the path that it resolved.
		info, err := root.Stat(filepath.FromSlash(location))
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return nil, 0, fmt.Errorf("location %q: %w", location, err)
		}
		if !info.Mode().IsRegular() {
			return nil, 0, fmt.Errorf("location %q is no regular file", location)
		}
		buf, err = tensor.OpenBuffer(filepath.Join(m.dir, filepath.FromSlash(location)))
		if err != nil {
			return nil, 0, err
		}
		m.external[location] = buf
		m.buffers = append(m.buffers, buf)
	}
	if end, ok := mem.Add(off, length); !ok || end > len(buf.Bytes()) {
		return nil, 0, fmt.Errorf("%q: bytes %d to %d of a file of %d", location, off, off+length, len(buf.Bytes()))
	}
	return buf, off, nil
}

// DecodeTensor reads a file that holds one tensor (the .pb files of test data).
func DecodeTensor(data []byte) (*Tensor, error) {
	m := &Model{externalBlocked: true}
	d := &decoder{m: m, buf: tensor.WrapReadOnly(data)}
	t, err := d.tensor(data)
	if err != nil {
		return nil, fmt.Errorf("onnx: tensor: %w", locate(err, data))
	}
	return t, nil
}

// DecodeValue reads a file that holds one value of a declared type: a tensor, a sequence or an optional.
func DecodeValue(data []byte, t *TypeInfo) (Value, error) {
	m := &Model{externalBlocked: true}
	d := &decoder{m: m, buf: tensor.WrapReadOnly(data)}
	v, err := d.anyValue(data, t)
	if err != nil {
		return Value{}, fmt.Errorf("onnx: value: %w", locate(err, data))
	}
	return v, nil
}

func (d *decoder) anyValue(data []byte, t *TypeInfo) (Value, error) {
	if err := d.enter(); err != nil {
		return Value{}, err
	}
	defer func() { d.depth-- }()
	if t == nil || t.Sequence == nil && t.Optional == nil {
		got, err := d.tensor(data)
		if err != nil {
			return Value{}, err
		}
		if got.Elem == String {
			return TextOf(got.Strings, got.Dims...), nil
		}
		return Of(got.Data), nil
	}
	// A sequence has tensors in field 3 and sequences in field 5; an optional has at most one of either.
	inner := t.Sequence
	if t.Optional != nil {
		inner = t.Optional
	}
	var list []Value
	err := fields(data, func(f field) error {
		if f.num != 3 && f.num != 5 {
			return nil
		}
		body, err := f.bytes()
		if err != nil {
			return err
		}
		v, err := d.anyValue(body, inner)
		list = append(list, v)
		return at(fmt.Sprintf("values[%d]", len(list)-1), err)
	})
	if err != nil {
		return Value{}, err
	}
	if t.Sequence != nil {
		return Value{IsSequence: true, Sequence: list}, nil
	}
	if len(list) == 0 {
		return Value{IsOptional: true, IsEmpty: true}, nil
	}
	list[0].IsOptional = true
	return list[0], nil
}
