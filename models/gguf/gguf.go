// Package gguf reads and writes GGUF files, versions 2 and 3, little-endian: named metadata and named tensors, as ggml-org's
// programs exchange language models. A file is mapped, and its tensors are views of the mapping, so that opening costs nothing
// but the metadata.
//
// Files are not trusted: every count, length, size and offset is checked against what the file holds before it is used, no
// allocation is larger than the bytes that ask for it justify, and an error says at which byte of which item what is wrong.
package gguf

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// Limits of the format.
const (
	MaxDims          = 4
	MaxName          = 64 // bytes of a tensor's name
	DefaultAlignment = 32
	maxAlignment     = 1 << 20
	maxKey           = 1<<16 - 1
)

// ErrMissing is the cause of an error about a key or a tensor that a file does not hold, of all methods that return a value by its key or name.
var ErrMissing = errors.New("missing")

// SyntaxError says what is wrong with a file, and where.
type SyntaxError struct {
	Offset int    // byte
	Item   string // in words: `key 3 "general.name"`
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("gguf: byte %d, %s: %s", e.Offset, e.Item, e.Reason)
}

// KeyValue is an entry of the metadata. Value is one of the Go types uint8, int8, uint16, int16, uint32, int32, uint64, int64,
// float32, float64, bool, string, or a slice of one of them.
type KeyValue struct {
	Key   string
	Value any
}

// TensorInfo describes a tensor. Dims are outermost first (the file has them the other way round); the innermost is the one that is
// contiguous and, in block types, a whole number of blocks.
type TensorInfo struct {
	Name   string
	Type   Type
	Dims   []int
	Offset int // from the start of the file
	Bytes  int
}

// Elems returns the number of elements.
func (t *TensorInfo) Elems() int {
	n := 1
	for _, d := range t.Dims {
		n *= d
	}
	return n
}

// File is an open file. It is safe for several goroutines; Close must come after the last use of its tensors.
type File struct {
	Version   int
	Alignment int
	Metadata  []KeyValue   // in the file's order
	Tensors   []TensorInfo // in the file's order

	buf   *tensor.Buffer
	keys  map[string]int
	names map[string]int
}

// Open maps a file and reads its metadata. A file that is cut short while it is open faults where its tensors are read; a graph that reads them gives an
// error.
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

// Parse reads a file that lies in memory. Tensors are views of data, which must not change; only data at an address that is no
// multiple of 8 (embedded bytes may be) is copied.
func Parse(data []byte) (*File, error) {
	if len(data) > 0 && uintptr(unsafe.Pointer(&data[0]))%8 != 0 {
		aligned := mem.Bytes(len(data))
		copy(aligned, data)
		data = aligned
	}
	return parse(tensor.WrapReadOnly(data))
}

// Close releases the mapping.
func (f *File) Close() error { return f.buf.Close() }

// Size returns the bytes of the file.
func (f *File) Size() int { return len(f.buf.Bytes()) }

// Info returns the description of a tensor, or nil.
func (f *File) Info(name string) *TensorInfo {
	if i, ok := f.names[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// Tensor returns a tensor as a view of the file.
func (f *File) Tensor(name string) (tensor.Tensor, error) {
	info := f.Info(name)
	if info == nil {
		return tensor.Tensor{}, fmt.Errorf("gguf: tensor %q: %w", name, ErrMissing)
	}
	return f.View(info)
}

// View returns a tensor of this file's list as a view of the file.
func (f *File) View(info *TensorInfo) (tensor.Tensor, error) {
	d := info.Type.DType()
	if d == tensor.Invalid {
		return tensor.Tensor{}, fmt.Errorf("gguf: tensor %q: elements of type %v cannot be decoded", info.Name, info.Type)
	}
	spec, err := tensor.CheckDims(d, info.Dims)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("gguf: tensor %q: %w", info.Name, err)
	}
	return tensor.At(f.buf, info.Offset, spec)
}

// Data returns the bytes of a tensor of this file's list. They must not be written.
func (f *File) Data(info *TensorInfo) []byte {
	return f.buf.Bytes()[info.Offset : info.Offset+info.Bytes : info.Offset+info.Bytes]
}

// cursor reads a file in order. The first failure stays; later reads give zeros.
type cursor struct {
	data []byte
	off  int
	item string
	err  *SyntaxError
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = &SyntaxError{c.off, c.item, fmt.Sprintf(format, args...)}
	}
}

func (c *cursor) left() int { return len(c.data) - c.off }

func (c *cursor) bytes(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n > c.left() {
		c.fail("%s needs %d bytes, the file has %d more", what, n, c.left())
		return nil
	}
	b := c.data[c.off : c.off+n]
	c.off += n
	return b
}

func (c *cursor) u32(what string) uint32 {
	if b := c.bytes(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.bytes(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count reads a number of items of which each takes at least least bytes.
func (c *cursor) count(what string, least int) int {
	start := c.off
	n := c.u64("the number of " + what)
	if c.err == nil && n > uint64(c.left()/least) {
		c.off = start
		c.fail("%d %s cannot lie in the %d bytes that follow", n, what, c.left()-8)
		return 0
	}
	return int(n)
}

func (c *cursor) str(what string, limit int) string {
	start := c.off
	n := c.u64("the length of " + what)
	if c.err == nil && n > uint64(c.left()) {
		c.off = start
		c.fail("%s of %d bytes cannot lie in the %d bytes that follow", what, n, c.left()-8)
		return ""
	}
	if c.err == nil && n > uint64(limit) {
		c.off = start
		c.fail("%s of %d bytes, at most %d are allowed", what, n, limit)
		return ""
	}
	return string(c.bytes(int(n), what))
}

// Numbers of the metadata's types.
const (
	typeUint8 = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

func parse(buf *tensor.Buffer) (*File, error) {
	c := &cursor{data: buf.Bytes(), item: "header"}
	f := &File{Alignment: DefaultAlignment, buf: buf, keys: map[string]int{}, names: map[string]int{}}
	if magic := c.bytes(4, "the magic number"); magic != nil && string(magic) != "GGUF" {
		c.off = 0
		c.fail("magic number %q: this is no GGUF file, which begins with \"GGUF\"", magic)
	}
	version := c.u32("the version")
	switch {
	case c.err != nil:
	case version&0xffff == 0 && version != 0:
		c.fail("version %#x: the file is big-endian, little-endian is right", version)
	case version != 2 && version != 3:
		c.fail("version %d, 2 and 3 can be read", version)
	}
	f.Version = int(version)
	// A tensor's description takes 8 + 1 + 4 + 4 + 8 bytes at least, an entry of the metadata 8 + 1 + 4 + 1.
	tensors := c.count("tensors", 25)
	entries := c.count("metadata entries", 14)
	if c.err != nil {
		return nil, c.err
	}
	for i := range entries {
		c.item = fmt.Sprintf("metadata entry %d of %d", i, entries)
		start := c.off
		key := c.str("key", maxKey)
		if key == "" {
			c.fail("empty key")
		}
		c.item = fmt.Sprintf("metadata entry %d of %d, %q", i, entries, key)
		if _, twice := f.keys[key]; twice {
			c.off = start
			c.fail("the key appears twice")
		}
		value := c.value()
		if c.err != nil {
			return nil, c.err
		}
		f.keys[key] = len(f.Metadata)
		f.Metadata = append(f.Metadata, KeyValue{key, value})
	}
	c.item = "metadata"
	if v, ok := f.Lookup("general.alignment"); ok {
		n, isUint := v.(uint32)
		if !isUint || n < 8 || n > maxAlignment || n&(n-1) != 0 {
			c.fail("general.alignment is %v, a uint32 that is a power of two from 8 to %d is right", v, maxAlignment)
			return nil, c.err
		}
		f.Alignment = int(n)
	}
	for i := range tensors {
		if info := c.tensor(i, tensors, f); c.err == nil {
			f.names[info.Name] = i
			f.Tensors = append(f.Tensors, info)
		} else {
			return nil, c.err
		}
	}
	if err := f.place(c); err != nil {
		return nil, err
	}
	return f, nil
}

// value reads a type and a value of it.
func (c *cursor) value() any {
	kind := c.u32("the type of the value")
	if kind != typeArray {
		return c.scalar(kind)
	}
	elem := c.u32("the type of the array's elements")
	size := 1
	switch elem {
	case typeUint8, typeInt8, typeBool:
	case typeUint16, typeInt16:
		size = 2
	case typeUint32, typeInt32, typeFloat32:
		size = 4
	case typeUint64, typeInt64, typeFloat64, typeString: // a string takes its length at least
		size = 8
	case typeArray:
		c.fail("an array of arrays cannot be read")
	default:
		c.fail("an array of type %d, 0 to 12 are right", elem)
	}
	if c.err != nil {
		return nil
	}
	n := c.count("elements of the array", size)
	if c.err != nil {
		return nil
	}
	if elem == typeString {
		all := make([]string, n)
		for i := range all {
			if all[i] = c.str("string", math.MaxInt32); c.err != nil {
				c.err.Reason = fmt.Sprintf("element %d: %s", i, c.err.Reason)
				return nil
			}
		}
		return all
	}
	b := c.bytes(n*size, "the array")
	le := binary.LittleEndian
	switch elem {
	case typeUint8:
		return slices.Clone(b)
	case typeInt8:
		return array(n, func(i int) int8 { return int8(b[i]) })
	case typeBool:
		for i, v := range b {
			if v > 1 {
				c.fail("element %d: a bool of value %d", i, v)
			}
		}
		return array(n, func(i int) bool { return b[i] == 1 })
	case typeUint16:
		return array(n, func(i int) uint16 { return le.Uint16(b[2*i:]) })
	case typeInt16:
		return array(n, func(i int) int16 { return int16(le.Uint16(b[2*i:])) })
	case typeUint32:
		return array(n, func(i int) uint32 { return le.Uint32(b[4*i:]) })
	case typeInt32:
		return array(n, func(i int) int32 { return int32(le.Uint32(b[4*i:])) })
	case typeFloat32:
		return array(n, func(i int) float32 { return math.Float32frombits(le.Uint32(b[4*i:])) })
	case typeUint64:
		return array(n, func(i int) uint64 { return le.Uint64(b[8*i:]) })
	case typeInt64:
		return array(n, func(i int) int64 { return int64(le.Uint64(b[8*i:])) })
	default:
		return array(n, func(i int) float64 { return math.Float64frombits(le.Uint64(b[8*i:])) })
	}
}

func array[T any](n int, at func(int) T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = at(i)
	}
	return all
}

func (c *cursor) scalar(kind uint32) any {
	byteOf := func() uint8 {
		if b := c.bytes(1, "the value"); b != nil {
			return b[0]
		}
		return 0
	}
	shortOf := func() uint16 {
		if b := c.bytes(2, "the value"); b != nil {
			return binary.LittleEndian.Uint16(b)
		}
		return 0
	}
	switch kind {
	case typeUint8:
		return byteOf()
	case typeInt8:
		return int8(byteOf())
	case typeBool:
		v := byteOf()
		if v > 1 {
			c.fail("a bool of value %d", v)
		}
		return v == 1
	case typeUint16:
		return shortOf()
	case typeInt16:
		return int16(shortOf())
	case typeUint32:
		return c.u32("the value")
	case typeInt32:
		return int32(c.u32("the value"))
	case typeFloat32:
		return math.Float32frombits(c.u32("the value"))
	case typeString:
		return c.str("the value", math.MaxInt32)
	case typeUint64:
		return c.u64("the value")
	case typeInt64:
		return int64(c.u64("the value"))
	case typeFloat64:
		return math.Float64frombits(c.u64("the value"))
	}
	c.fail("a value of type %d, 0 to 12 are right", kind)
	return nil
}

// tensor reads a description. Offset is still relative to the data section.
func (c *cursor) tensor(i, n int, f *File) (info TensorInfo) {
	c.item = fmt.Sprintf("tensor %d of %d", i, n)
	start := c.off
	info.Name = c.str("name", MaxName)
	if info.Name == "" {
		c.fail("empty name")
	}
	c.item = fmt.Sprintf("tensor %d of %d, %q", i, n, info.Name)
	if _, twice := f.names[info.Name]; twice {
		c.off = start
		c.fail("the name appears twice")
	}
	rank := c.u32("the number of dimensions")
	if rank > MaxDims {
		c.fail("%d dimensions, at most %d are right", rank, MaxDims)
		return info
	}
	info.Dims = make([]int, rank)
	for j := range info.Dims {
		d := c.u64("a dimension")
		if c.err == nil && (d == 0 || d > math.MaxInt) {
			c.fail("dimension %d is %d", j, int64(d))
		}
		info.Dims[len(info.Dims)-1-j] = int(d)
	}
	info.Type = Type(c.u32("the type"))
	if c.err == nil && !info.Type.Known() {
		c.fail("elements of unknown type %d", uint32(info.Type))
	}
	offset := c.u64("the offset")
	if c.err != nil {
		return info
	}
	elems, ok := mem.Mul(info.Dims...)
	if !ok {
		c.fail("the number of elements of dimensions %v overflows", info.Dims)
		return info
	}
	inner := 1
	if rank > 0 {
		inner = info.Dims[rank-1]
	}
	if inner%info.Type.Block() != 0 {
		c.fail("rows of %d elements are no whole number of %v blocks of %d", inner, info.Type, info.Type.Block())
		return info
	}
	if info.Bytes, ok = mem.Mul(elems/info.Type.Block(), info.Type.Size()); !ok {
		c.fail("the size of %v%v overflows", info.Type, info.Dims)
		return info
	}
	if offset%uint64(f.Alignment) != 0 {
		c.fail("offset %d is no multiple of the alignment %d", offset, f.Alignment)
		return info
	}
	if offset > uint64(len(c.data)) {
		c.fail("offset %d lies behind the end of the file of %d bytes", offset, len(c.data))
		return info
	}
	info.Offset = int(offset)
	return info
}

// place moves offsets to the data section, which starts behind the descriptions, and looks for tensors that lie outside of it or
// in each other.
func (f *File) place(c *cursor) error {
	if len(f.Tensors) == 0 {
		return nil
	}
	c.item = "data section"
	start, ok := mem.RoundUp(c.off, f.Alignment)
	if !ok || start > len(c.data) {
		c.fail("it starts at byte %d, the file has %d", start, len(c.data))
		return c.err
	}
	order := make([]*TensorInfo, len(f.Tensors))
	for i := range f.Tensors {
		t := &f.Tensors[i]
		c.item = fmt.Sprintf("tensor %d of %d, %q", i, len(f.Tensors), t.Name)
		if t.Bytes > len(c.data)-start || t.Offset > len(c.data)-start-t.Bytes {
			c.off = len(c.data)
			c.fail("%v%v at byte %d of the data section needs %d bytes, the section has %d", t.Type, t.Dims, t.Offset, t.Bytes, len(c.data)-start)
			return c.err
		}
		t.Offset += start
		order[i] = t
	}
	slices.SortFunc(order, func(a, b *TensorInfo) int { return cmp.Compare(a.Offset, b.Offset) })
	for i, t := range order[1:] {
		if prev := order[i]; prev.Offset+prev.Bytes > t.Offset {
			c.off, c.item = t.Offset, fmt.Sprintf("tensor %q", t.Name)
			c.fail("it overlaps tensor %q, which ends at byte %d", prev.Name, prev.Offset+prev.Bytes)
			return c.err
		}
	}
	return nil
}
