package onnx

import (
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/tessera-go/tessera/tensor"
)

// Model is a decoded file. Its tensors may lie in the file's mapping, so that Close ends their life.
type Model struct {
	IRVersion       int64
	Producer        string // name and version of the program that wrote the file
	Opsets          map[string]int
	Metadata        map[string]string
	Graph           *Graph
	Functions       []*Function // model-local functions, which are expanded where they are called
	dir             string      // of external data; empty when the model was decoded from memory
	buffers         []*tensor.Buffer
	external        map[string]*tensor.Buffer
	externalBlocked bool
	closed          bool
}

// errClosed is the error of what would read the mappings of a closed model.
var errClosed = errors.New("onnx: the model is closed")

// Close releases the mappings of the file and of its external data. Sessions of the model fail from then on; they should be closed first.
func (m *Model) Close() error {
	var first error
	for _, b := range m.buffers {
		if err := b.Close(); err != nil && first == nil {
			first = err
		}
	}
	m.buffers, m.external, m.closed = nil, nil, true
	return first
}

// Graph is a list of nodes between named values.
type Graph struct {
	Name    string
	Nodes   []*Node // in an order in which each value is produced before it is read
	Inputs  []ValueInfo
	Outputs []ValueInfo
	Info    []ValueInfo // types of inner values that the file declares; advice only
	Inits   []*Tensor   // constants by name; one that is also an input is a default that a caller may replace
	inits   map[string]*Tensor
	last    map[*Node][]string // see lastUses
}

// Init returns the initializer of a name, or nil.
func (g *Graph) Init(name string) *Tensor { return g.inits[name] }

// Node is a call of an operator.
type Node struct {
	Name    string
	Op      string
	Domain  string
	In, Out []string // "" is an absent optional
	Attrs   []Attr
}

// Title names a node in messages: its own name if it has one, else its first output.
func (n *Node) Title() string {
	name := n.Name
	if name == "" && len(n.Out) > 0 {
		name = n.Out[0]
	}
	return fmt.Sprintf("%s %q", n.Op, name)
}

// Attr returns the attribute of a name, or nil.
func (n *Node) Attr(name string) *Attr {
	for i := range n.Attrs {
		if n.Attrs[i].Name == name {
			return &n.Attrs[i]
		}
	}
	return nil
}

// subgraphs yields the graphs inside a node, each behind its attribute.
func (n *Node) subgraphs() iter.Seq2[*Attr, *Graph] {
	return func(yield func(*Attr, *Graph) bool) {
		for i := range n.Attrs {
			a := &n.Attrs[i]
			for _, g := range a.Graphs {
				if g != nil && !yield(a, g) {
					return
				}
			}
			if a.G != nil && !yield(a, a.G) {
				return
			}
		}
	}
}

// AttrType is the type of an attribute, numbered as in the standard.
type AttrType int32

// The attribute types.
const (
	AttrFloat     AttrType = 1
	AttrInt       AttrType = 2
	AttrString    AttrType = 3
	AttrTensor    AttrType = 4
	AttrGraph     AttrType = 5
	AttrFloats    AttrType = 6
	AttrInts      AttrType = 7
	AttrStrings   AttrType = 8
	AttrTensors   AttrType = 9
	AttrGraphs    AttrType = 10
	AttrSparse    AttrType = 11
	AttrTypeProto AttrType = 13
)

// Attr is an attribute of a node. Which field holds the value follows from Type.
type Attr struct {
	Name    string
	Type    AttrType
	Ref     string // inside a function: the attribute of the call that gives the value
	F       float32
	I       int64
	S       string
	T       *Tensor
	G       *Graph
	Floats  []float32
	Ints    []int64
	Strings []string
	Tensors []*Tensor
	Graphs  []*Graph
	Info    *TypeInfo
}

// Function is an operator that the model itself defines by a list of nodes.
type Function struct {
	Name, Domain string
	In, Out      []string
	Attrs        []string // names of attributes without default
	Defaults     []Attr
	Nodes        []*Node
	Opsets       map[string]int
}

// ElemType is an element type, numbered as in the standard.
type ElemType int32

// The element types.
const (
	Undefined  ElemType = 0
	Float      ElemType = 1
	Uint8      ElemType = 2
	Int8       ElemType = 3
	Uint16     ElemType = 4
	Int16      ElemType = 5
	Int32      ElemType = 6
	Int64      ElemType = 7
	String     ElemType = 8
	Bool       ElemType = 9
	Float16    ElemType = 10
	Double     ElemType = 11
	Uint32     ElemType = 12
	Uint64     ElemType = 13
	Complex64  ElemType = 14
	Complex128 ElemType = 15
	BFloat16   ElemType = 16
	F8E4M3FN   ElemType = 17
	F8E4M3FNUZ ElemType = 18
	F8E5M2     ElemType = 19
	F8E5M2FNUZ ElemType = 20
	Uint4      ElemType = 21
	Int4       ElemType = 22
)

var elemNames = map[ElemType]string{Undefined: "undefined", Float: "float", Uint8: "uint8", Int8: "int8", Uint16: "uint16", Int16: "int16",
	Int32: "int32", Int64: "int64", String: "string", Bool: "bool", Float16: "float16", Double: "double", Uint32: "uint32",
	Uint64: "uint64", Complex64: "complex64", Complex128: "complex128", BFloat16: "bfloat16", F8E4M3FN: "float8e4m3fn",
	F8E4M3FNUZ: "float8e4m3fnuz", F8E5M2: "float8e5m2", F8E5M2FNUZ: "float8e5m2fnuz", Uint4: "uint4", Int4: "int4"}

func (e ElemType) String() string {
	if s, ok := elemNames[e]; ok {
		return s
	}
	return fmt.Sprintf("element type %d", int32(e))
}

// DType returns the type of the tensors that hold such elements, Invalid where there is none. 4-bit and 8-bit float types are held
// unpacked: int4 as i8, uint4 as u8, float8 by its bits as u8.
func (e ElemType) DType() tensor.DType {
	switch e {
	case Float:
		return tensor.F32
	case Uint8, Uint4, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ:
		return tensor.U8
	case Int8, Int4:
		return tensor.I8
	case Uint16:
		return tensor.U16
	case Int16:
		return tensor.I16
	case Int32:
		return tensor.I32
	case Int64:
		return tensor.I64
	case Bool:
		return tensor.Bool
	case Float16:
		return tensor.F16
	case Double:
		return tensor.F64
	case Uint32:
		return tensor.U32
	case Uint64:
		return tensor.U64
	case BFloat16:
		return tensor.BF16
	}
	return tensor.Invalid
}

// elemOf is the element type that a tensor's type stands for.
func elemOf(d tensor.DType) ElemType {
	switch d {
	case tensor.F32:
		return Float
	case tensor.F64:
		return Double
	case tensor.F16:
		return Float16
	case tensor.BF16:
		return BFloat16
	case tensor.I8:
		return Int8
	case tensor.U8:
		return Uint8
	case tensor.I16:
		return Int16
	case tensor.U16:
		return Uint16
	case tensor.I32:
		return Int32
	case tensor.U32:
		return Uint32
	case tensor.I64:
		return Int64
	case tensor.U64:
		return Uint64
	case tensor.Bool:
		return Bool
	}
	return Undefined
}

// Dim is a declared dimension: a size, a named one, or unknown (neither).
type Dim struct {
	Size  int // -1 where not fixed
	Param string
}

// TypeInfo is a declared type.
type TypeInfo struct {
	Elem     ElemType // of a tensor
	Dims     []Dim
	HasShape bool
	Sequence *TypeInfo // element type of a sequence
	Optional *TypeInfo // element type of an optional
	Map      bool      // maps are not supported
}

func (t *TypeInfo) String() string {
	switch {
	case t == nil:
		return "undeclared"
	case t.Sequence != nil:
		return "sequence of " + t.Sequence.String()
	case t.Optional != nil:
		return "optional " + t.Optional.String()
	case t.Map:
		return "map"
	case !t.HasShape:
		return t.Elem.String()
	}
	var dims []string
	for _, d := range t.Dims {
		switch {
		case d.Param != "":
			dims = append(dims, d.Param)
		case d.Size < 0:
			dims = append(dims, "?")
		default:
			dims = append(dims, fmt.Sprint(d.Size))
		}
	}
	return t.Elem.String() + "[" + strings.Join(dims, " ") + "]"
}

// ValueInfo is the name and declared type of a value.
type ValueInfo struct {
	Name string
	Type *TypeInfo
}

// String returns, for example, "x float[batch 3]".
func (v ValueInfo) String() string { return v.Name + " " + v.Type.String() }

// Tensor is a constant of the file.
type Tensor struct {
	Name    string
	Elem    ElemType
	Dims    []int
	Data    tensor.Tensor // numbers; without memory for strings
	Strings []string
}
