package onnx

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// Encode returns the model as a file. It writes what Decode reads, sparse tensors as dense ones and external data inside. The error is that of a file of the
// model that was cut short while it was open, or says that the model is closed.
func (m *Model) Encode() (data []byte, err error) {
	if m.closed {
		return nil, errClosed
	}
	defer mem.Caught(mem.Catch(), &err)
	return m.encode(), nil
}

func (m *Model) encode() []byte {
	var b []byte
	b = appendInt(b, 1, m.IRVersion)
	b = appendString(b, 2, m.Producer)
	b = appendMessage(b, 7, m.Graph.encode())
	b = append(b, encodeOpsets(8, m.Opsets)...)
	for _, k := range slices.Sorted(maps.Keys(m.Metadata)) {
		b = appendMessage(b, 14, appendString(appendString(nil, 1, k), 2, m.Metadata[k]))
	}
	for _, f := range m.Functions {
		var fb []byte
		fb = appendString(fb, 1, f.Name)
		fb = appendStrings(fb, 4, f.In)
		fb = appendStrings(fb, 5, f.Out)
		fb = appendStrings(fb, 6, f.Attrs)
		for _, n := range f.Nodes {
			fb = appendMessage(fb, 7, n.encode())
		}
		fb = append(fb, encodeOpsets(9, f.Opsets)...)
		fb = appendString(fb, 10, f.Domain)
		for i := range f.Defaults {
			fb = appendMessage(fb, 11, f.Defaults[i].encode())
		}
		b = appendMessage(b, 25, fb)
	}
	return b
}

func encodeOpsets(num protowire.Number, opsets map[string]int) []byte {
	var b []byte
	for _, domain := range slices.Sorted(maps.Keys(opsets)) {
		b = appendMessage(b, num, appendInt(appendString(nil, 1, domain), 2, int64(opsets[domain])))
	}
	return b
}

func (g *Graph) encode() []byte {
	var b []byte
	for _, n := range g.Nodes {
		b = appendMessage(b, 1, n.encode())
	}
	b = appendString(b, 2, g.Name)
	for _, t := range g.Inits {
		b = appendMessage(b, 5, t.encode())
	}
	for _, l := range []struct {
		num  protowire.Number
		list []ValueInfo
	}{{11, g.Inputs}, {12, g.Outputs}, {13, g.Info}} {
		for _, v := range l.list {
			vb := appendString(nil, 1, v.Name)
			if v.Type != nil {
				vb = appendMessage(vb, 2, v.Type.encode())
			}
			b = appendMessage(b, l.num, vb)
		}
	}
	return b
}

func (t *TypeInfo) encode() []byte {
	switch {
	case t.Sequence != nil:
		return appendMessage(nil, 4, appendMessage(nil, 1, t.Sequence.encode()))
	case t.Optional != nil:
		return appendMessage(nil, 9, appendMessage(nil, 1, t.Optional.encode()))
	}
	b := appendInt(nil, 1, int64(t.Elem))
	if t.HasShape {
		var shape []byte
		for _, d := range t.Dims {
			var db []byte
			switch {
			case d.Param != "":
				db = appendString(db, 2, d.Param)
			case d.Size >= 0:
				db = protowire.AppendTag(db, 1, protowire.VarintType)
				db = protowire.AppendVarint(db, uint64(d.Size))
			}
			shape = appendMessage(shape, 1, db)
		}
		b = appendMessage(b, 2, shape)
	}
	return appendMessage(nil, 1, b)
}

func (n *Node) encode() []byte {
	b := appendStrings(nil, 1, n.In)
	b = appendStrings(b, 2, n.Out)
	b = appendString(b, 3, n.Name)
	b = appendString(b, 4, n.Op)
	for i := range n.Attrs {
		b = appendMessage(b, 5, n.Attrs[i].encode())
	}
	return appendString(b, 7, n.Domain)
}

func (a *Attr) encode() []byte {
	b := appendString(nil, 1, a.Name)
	switch a.Type {
	case AttrFloat:
		b = protowire.AppendTag(b, 2, protowire.Fixed32Type)
		b = protowire.AppendFixed32(b, math.Float32bits(a.F))
	case AttrInt:
		b = protowire.AppendTag(b, 3, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(a.I))
	case AttrString:
		b = appendMessage(b, 4, []byte(a.S))
	case AttrTensor, AttrSparse:
		b = appendMessage(b, 5, a.T.encode())
	case AttrGraph:
		b = appendMessage(b, 6, a.G.encode())
	case AttrFloats:
		var p []byte
		for _, f := range a.Floats {
			p = protowire.AppendFixed32(p, math.Float32bits(f))
		}
		b = appendMessage(b, 7, p)
	case AttrInts:
		var p []byte
		for _, i := range a.Ints {
			p = protowire.AppendVarint(p, uint64(i))
		}
		b = appendMessage(b, 8, p)
	case AttrStrings:
		b = appendStrings(b, 9, a.Strings)
	case AttrTensors:
		for _, t := range a.Tensors {
			b = appendMessage(b, 10, t.encode())
		}
	case AttrGraphs:
		for _, g := range a.Graphs {
			b = appendMessage(b, 11, g.encode())
		}
	case AttrTypeProto:
		if a.Info != nil {
			b = appendMessage(b, 14, a.Info.encode())
		}
	}
	kind := a.Type
	if kind == AttrSparse {
		kind = AttrTensor
	}
	b = appendInt(b, 20, int64(kind))
	return appendString(b, 21, a.Ref)
}

// Encode returns the tensor as a file of its own, or as a field of a model. The error is that of Model.Encode.
func (t *Tensor) Encode() (data []byte, err error) {
	defer mem.Caught(mem.Catch(), &err)
	return t.encode(), nil
}

func (t *Tensor) encode() []byte {
	var b []byte
	for _, n := range t.Dims {
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(n))
	}
	b = appendInt(b, 2, int64(t.Elem))
	b = appendStrings(b, 6, t.Strings)
	b = appendString(b, 8, t.Name)
	if t.Elem == String {
		return b
	}
	data := t.Data
	if !data.IsContiguous() {
		data = data.Clone()
	}
	raw := data.Raw()
	switch {
	case t.Elem == Int4 || t.Elem == Uint4:
		packed := make([]byte, (len(raw)+1)/2)
		for i, v := range raw {
			packed[i/2] |= v & 15 << (i % 2 * 4)
		}
		raw = packed
	case binary.NativeEndian.Uint16([]byte{1, 0}) != 1:
		swapped := slices.Clone(raw)
		size := data.DType.Size()
		for i := 0; i < len(swapped); i += size {
			slices.Reverse(swapped[i : i+size])
		}
		raw = swapped
	}
	return appendMessage(b, 9, raw)
}

// NewTensor makes a constant of a tensor.
func NewTensor(name string, t tensor.Tensor) *Tensor {
	e := elemOf(t.DType)
	if e == Undefined {
		panic(fmt.Sprintf("onnx: no element type for %v", t.Spec))
	}
	return &Tensor{Name: name, Elem: e, Dims: t.Shape(), Data: t}
}

// Ints64 makes a constant vector of integers.
func Ints64(name string, values ...int64) *Tensor {
	return NewTensor(name, tensor.Of(values, len(values)))
}

// IntAttr makes an attribute of an integer.
func IntAttr(name string, v int64) Attr { return Attr{Name: name, Type: AttrInt, I: v} }

// IntsAttr makes an attribute of a list of integers.
func IntsAttr(name string, v ...int64) Attr { return Attr{Name: name, Type: AttrInts, Ints: v} }

// FloatAttr makes an attribute of a number.
func FloatAttr(name string, v float32) Attr { return Attr{Name: name, Type: AttrFloat, F: v} }

// StringAttr makes an attribute of a text.
func StringAttr(name, v string) Attr { return Attr{Name: name, Type: AttrString, S: v} }

// TensorAttr makes an attribute of a constant.
func TensorAttr(name string, t *Tensor) Attr { return Attr{Name: name, Type: AttrTensor, T: t} }

// GraphAttr makes an attribute of a graph: a branch of If, the body of Loop or Scan.
func GraphAttr(name string, g *Graph) Attr { return Attr{Name: name, Type: AttrGraph, G: g} }

// Info declares a tensor value; a negative size stands for a dimension that may vary.
func Info(name string, e ElemType, dims ...int) ValueInfo {
	t := &TypeInfo{Elem: e, HasShape: true}
	for _, n := range dims {
		d := Dim{Size: n}
		if n < 0 {
			d = Dim{Size: -1}
		}
		t.Dims = append(t.Dims, d)
	}
	return ValueInfo{Name: name, Type: t}
}

// NewModel makes a model of a graph for the standard's operators of an opset, checked like one that was read.
func NewModel(opset int, g *Graph) (*Model, error) {
	m := &Model{IRVersion: 8, Producer: "tessera", Opsets: map[string]int{"": opset}, Metadata: map[string]string{}, Graph: g}
	g.index()
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	return m, nil
}

func (g *Graph) index() {
	g.inits = map[string]*Tensor{}
	for _, t := range g.Inits {
		g.inits[t.Name] = t
	}
	for _, n := range g.Nodes {
		for _, sub := range n.subgraphs() {
			sub.index()
		}
	}
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

func appendMessage(b []byte, num protowire.Number, body []byte) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendBytes(b, body)
}

func appendString(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return appendMessage(b, num, []byte(s))
}

func appendStrings(b []byte, num protowire.Number, list []string) []byte {
	for _, s := range list {
		b = appendMessage(b, num, []byte(s))
	}
	return b
}
