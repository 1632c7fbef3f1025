// Package safetensors reads and writes safetensors files: a JSON header of names, types, shapes and places, and the bytes of the
// tensors. A file is mapped, and its tensors are views of the mapping.
//
// Files are not trusted: every length, size and place is checked before it is used, and errors name the tensor.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// maxHeader is the format's limit for the header in bytes.
const maxHeader = 100 << 20

// ErrMissing is the cause of an error about a tensor that a file does not hold.
var ErrMissing = errors.New("missing")

var dtypes = map[string]tensor.DType{"F64": tensor.F64, "F32": tensor.F32, "F16": tensor.F16, "BF16": tensor.BF16, "I64": tensor.I64,
	"I32": tensor.I32, "I16": tensor.I16, "I8": tensor.I8, "U64": tensor.U64, "U32": tensor.U32, "U16": tensor.U16, "U8": tensor.U8, "BOOL": tensor.Bool}

// sizes are the bytes of elements that can be listed but not viewed.
var sizes = map[string]int{"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}

// Info describes a tensor.
type Info struct {
	Name   string
	Type   string // the file's spelling
	Dims   []int  // outermost first
	Offset int    // from the start of the file
	Bytes  int
}

// File is an open file. It is safe for several goroutines; Close must come after the last use of its tensors.
type File struct {
	Metadata map[string]string
	Tensors  []Info // by place in the file

	buf   *tensor.Buffer
	names map[string]int
}

// Open maps a file and reads its header. A file that is cut short while it is open faults where its tensors are read; a graph that reads them gives an error.
func Open(path string) (f *File, err error) {
	buf, err := tensor.OpenBuffer(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = buf.Close()
		}
	}()
	defer mem.Caught(mem.Catch(), &err)
	if f, err = parse(buf); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Parse reads a file that lies in memory. The bytes must not change.
func Parse(data []byte) (*File, error) { return parse(tensor.WrapReadOnly(data)) }

// Close releases the mapping.
func (f *File) Close() error { return f.buf.Close() }

// Has reports whether the file holds a tensor.
func (f *File) Has(name string) bool { _, ok := f.names[name]; return ok }

// Data returns the bytes of a tensor of this file's list. They must not be written.
func (f *File) Data(info *Info) []byte {
	return f.buf.Bytes()[info.Offset : info.Offset+info.Bytes : info.Offset+info.Bytes]
}

// Tensor returns a tensor as a view of the file; one that does not lie at a multiple of its element's size is copied.
func (f *File) Tensor(name string) (_ tensor.Tensor, err error) {
	defer mem.Caught(mem.Catch(), &err)
	i, ok := f.names[name]
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("safetensors: tensor %q: %w", name, ErrMissing)
	}
	info := &f.Tensors[i]
	d, ok := dtypes[info.Type]
	if !ok {
		return tensor.Tensor{}, fmt.Errorf("safetensors: tensor %q: elements of type %s cannot be read", name, info.Type)
	}
	spec, err := tensor.CheckDims(d, info.Dims)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("safetensors: tensor %q: %w", name, err)
	}
	data := f.buf.Bytes()
	if info.Bytes > 0 && uintptr(unsafe.Pointer(&data[info.Offset]))%uintptr(d.Size()) != 0 {
		copied := mem.Bytes(info.Bytes)
		copy(copied, data[info.Offset:])
		return tensor.At(tensor.WrapReadOnly(copied), 0, spec)
	}
	return tensor.At(f.buf, info.Offset, spec)
}

func parse(buf *tensor.Buffer) (*File, error) {
	data := buf.Bytes()
	if len(data) < 8 {
		return nil, fmt.Errorf("safetensors: a file of %d bytes has no header", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader || n > uint64(len(data)-8) {
		return nil, fmt.Errorf("safetensors: a header of %d bytes cannot lie in a file of %d", n, len(data))
	}
	head, start := data[8:8+n], 8+int(n)
	f := &File{buf: buf, names: map[string]int{}}
	if err := f.readHeader(head, start, len(data)); err != nil {
		return nil, fmt.Errorf("safetensors: header: %w", err)
	}
	slices.SortStableFunc(f.Tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Bytes, b.Bytes))
	})
	end := start
	for i, t := range f.Tensors {
		if t.Offset < end {
			return nil, fmt.Errorf("safetensors: tensor %q at byte %d overlaps %q, which ends at byte %d", t.Name, t.Offset, f.Tensors[i-1].Name, end)
		}
		end = t.Offset + t.Bytes
		f.names[t.Name] = i
	}
	return f, nil
}

// readHeader walks the JSON object by tokens, because unmarshalling into a map would hide a name that appears twice.
func (f *File) readHeader(head []byte, start, size int) error {
	dec := json.NewDecoder(bytes.NewReader(head))
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	if tok != json.Delim('{') {
		return fmt.Errorf("it begins with %v, an object is right", tok)
	}
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := tok.(string)
		if seen[name] {
			return fmt.Errorf("tensor %q appears twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := dec.Decode(&f.Metadata); err != nil {
				return fmt.Errorf("metadata: %w", err)
			}
			continue
		}
		var entry struct {
			DType   string   `json:"dtype"`
			Shape   []uint64 `json:"shape"`
			Offsets []uint64 `json:"data_offsets"`
		}
		if err := dec.Decode(&entry); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		elem, known := sizes[entry.DType]
		if d, ok := dtypes[entry.DType]; ok {
			elem, known = d.Size(), true
		}
		switch {
		case !known:
			return fmt.Errorf("tensor %q: unknown element type %q", name, entry.DType)
		case len(entry.Shape) > tensor.MaxRank:
			return fmt.Errorf("tensor %q: %d dimensions, at most %d can be read", name, len(entry.Shape), tensor.MaxRank)
		case len(entry.Offsets) != 2 || entry.Offsets[0] > entry.Offsets[1]:
			return fmt.Errorf("tensor %q: data_offsets %v, begin and end are right", name, entry.Offsets)
		case entry.Offsets[1] > uint64(size-start):
			return fmt.Errorf("tensor %q ends at byte %d of the data, which has %d", name, entry.Offsets[1], size-start)
		}
		dims := make([]int, len(entry.Shape))
		for i, d := range entry.Shape {
			if d > math.MaxInt {
				return fmt.Errorf("tensor %q: dimension %d is %d", name, i, d)
			}
			dims[i] = int(d)
		}
		want, ok := mem.Mul(append([]int{elem}, dims...)...)
		if !ok {
			return fmt.Errorf("tensor %q: the size of %s%v overflows", name, entry.DType, dims)
		}
		if got := int(entry.Offsets[1] - entry.Offsets[0]); got != want {
			return fmt.Errorf("tensor %q: %s%v takes %d bytes, data_offsets give %d", name, entry.DType, dims, want, got)
		}
		f.Tensors = append(f.Tensors, Info{name, entry.DType, dims, start + int(entry.Offsets[0]), want})
	}
	if _, err := dec.Token(); err != nil {
		return err
	}
	if rest := strings.TrimRight(string(head[dec.InputOffset():]), " \x00"); rest != "" {
		return fmt.Errorf("%d bytes behind its end", len(rest))
	}
	return nil
}

// Named is a tensor to be written.
type Named struct {
	Name   string
	Tensor tensor.Tensor // contiguous
}

// Write writes a file. Metadata may be nil.
func Write(w io.Writer, tensors []Named, metadata map[string]string) error {
	spelled := map[tensor.DType]string{}
	for s, d := range dtypes {
		spelled[d] = s
	}
	var head bytes.Buffer
	head.WriteByte('{')
	if metadata != nil {
		b, err := json.Marshal(metadata)
		if err != nil {
			return err
		}
		fmt.Fprintf(&head, `"__metadata__":%s`, b)
	}
	offset := 0
	seen := map[string]bool{}
	for _, t := range tensors {
		s, ok := spelled[t.Tensor.DType]
		switch {
		case !ok:
			return fmt.Errorf("safetensors: tensor %q: %v has no place in the format", t.Name, t.Tensor.Spec)
		case !t.Tensor.IsContiguous():
			return fmt.Errorf("safetensors: tensor %q: %v is not contiguous", t.Name, t.Tensor)
		case seen[t.Name] || t.Name == "__metadata__":
			return fmt.Errorf("safetensors: tensor %q is added twice", t.Name)
		}
		seen[t.Name] = true
		if head.Len() > 1 {
			head.WriteByte(',')
		}
		b, err := json.Marshal(map[string]any{"dtype": s, "shape": append([]int{}, t.Tensor.Shape()...), "data_offsets": [2]int{offset, offset + t.Tensor.Bytes()}})
		if err != nil {
			return err
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&head, "%s:%s", name, b)
		offset += t.Tensor.Bytes()
	}
	head.WriteByte('}')
	for head.Len()%8 != 0 { // so that tensors are aligned
		head.WriteByte(' ')
	}
	if err := binary.Write(w, binary.LittleEndian, uint64(head.Len())); err != nil {
		return err
	}
	if _, err := w.Write(head.Bytes()); err != nil {
		return err
	}
	for _, t := range tensors {
		if _, err := w.Write(t.Tensor.Raw()); err != nil {
			return err
		}
	}
	return nil
}
