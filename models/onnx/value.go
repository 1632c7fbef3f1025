package onnx

import (
	"errors"
	"fmt"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Value is what goes into a session and comes out: a tensor of numbers, a tensor of strings, a sequence, or an optional.
type Value struct {
	Tensor   tensor.Tensor // numbers
	Strings  []string      // a tensor of strings, with its dimensions
	Dims     []int
	Sequence []Value // if IsSequence
	// IsSequence and IsOptional tell an empty sequence and an empty optional from a tensor. The content of an optional that has
	// one stands in the other fields.
	IsSequence, IsOptional, IsEmpty bool
}

// Of makes a value of a tensor.
func Of(t tensor.Tensor) Value { return Value{Tensor: t} }

// TextOf makes a value of strings.
func TextOf(s []string, dims ...int) Value { return Value{Strings: s, Dims: dims} }

// String describes the value without its elements: "f32[2 3]", "strings [2]", "sequence of 3", "optional f32[1]".
func (v Value) String() string {
	switch {
	case v.IsOptional && v.IsEmpty:
		return "empty optional"
	case v.IsOptional:
		v.IsOptional = false
		return "optional " + v.String()
	case v.IsSequence:
		return fmt.Sprintf("sequence of %d", len(v.Sequence))
	case v.Strings != nil || v.Dims != nil:
		return fmt.Sprintf("strings %v", v.Dims)
	}
	return v.Tensor.Spec.String()
}

// check returns an error for a value that contradicts itself.
func (v *Value) check() error {
	switch {
	case v.IsSequence:
		for i := range v.Sequence {
			if err := v.Sequence[i].check(); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	case v.Strings != nil || v.Dims != nil:
		spec, err := tensor.CheckDims(tensor.U8, v.Dims)
		if err != nil {
			return err
		}
		if len(v.Strings) != spec.Elems() {
			return fmt.Errorf("%d strings of %v", len(v.Strings), v.Dims)
		}
	case !v.IsEmpty && (v.Tensor.DType == tensor.Invalid || !v.Tensor.Valid() && v.Tensor.Elems() != 0):
		return errors.New("a tensor without memory")
	}
	return nil
}

// kind is what a value of the machines is.
type kind uint8

const (
	numbers kind = iota
	text
	sequence
	optional
)

func (k kind) String() string {
	return [...]string{"tensor", "tensor of strings", "sequence", "optional"}[k]
}

// value is what flows between operators. Numbers have a spec always and memory when they are known; everything else is always
// known. Values are not changed once made.
type value struct {
	kind  kind
	elem  ElemType
	spec  tensor.Spec
	known bool
	data  tensor.Tensor
	cons  *ops.Constant // made on first use as a constant of a graph
	node  graph.Value   // in the graph of the lowering machine
	owner *graph.Graph

	text  []string
	seq   []*value
	inner *value // of an optional; nil where empty
}

func knownValue(t tensor.Tensor) *value {
	return &value{elem: elemOf(t.DType), spec: t.Spec, known: true, data: t}
}

func textValue(s []string, dims []int) *value {
	v := &value{kind: text, elem: String, known: true, text: s}
	v.spec.Rank = uint8(len(dims))
	copy(v.spec.Dims[:], dims)
	return v
}

func sequenceValue(vs []*value) *value { return &value{kind: sequence, known: true, seq: vs} }

func tensorValue(t *Tensor) *value {
	if t.Elem == String {
		return textValue(t.Strings, t.Dims)
	}
	v := knownValue(t.Data)
	v.elem = t.Elem
	return v
}

// constant returns the value as a constant that graphs share.
func (v *value) constant() *ops.Constant {
	if v.cons == nil {
		v.cons = ops.NewConstant(v.data)
	}
	return v.cons
}

// declared returns an error if the value is of another kind or element type than the file declares. Dimensions are advice: files have
// outdated ones.
func (v *value) declared(t *TypeInfo) error {
	if t == nil || t.Map {
		return nil
	}
	wrong := fmt.Errorf("the file declares %v, the graph gives %v", t, v)
	switch {
	case t.Optional != nil:
		if v.kind == optional && v.inner != nil {
			return v.inner.declared(t.Optional)
		}
	case v.kind == optional:
		return wrong
	case (t.Sequence != nil) != (v.kind == sequence):
		return wrong
	case v.kind == sequence:
		for _, e := range v.seq {
			if err := e.declared(t.Sequence); err != nil {
				return err
			}
		}
	case t.Elem == Undefined:
	case (t.Elem == String) != (v.kind == text), v.kind == numbers && t.Elem.DType() != v.spec.DType:
		return wrong
	}
	return nil
}

func (v *value) String() string {
	switch {
	case v == nil:
		return "absent"
	case v.kind == text:
		return fmt.Sprintf("string%v", v.spec.Shape())
	case v.kind == numbers:
		return v.spec.String()
	}
	return v.kind.String()
}

// importValue makes a machine's value of a caller's.
func importValue(v Value) *value {
	var out *value
	switch {
	case v.IsEmpty:
		return &value{kind: optional, known: true}
	case v.IsSequence:
		out = &value{kind: sequence, known: true}
		for _, e := range v.Sequence {
			out.seq = append(out.seq, importValue(e))
		}
	case v.Strings != nil || v.Dims != nil:
		out = textValue(v.Strings, v.Dims)
	default:
		out = knownValue(v.Tensor)
	}
	if v.IsOptional {
		return &value{kind: optional, known: true, inner: out}
	}
	return out
}

// exportValue is the reverse. Numbers are made contiguous.
func exportValue(v *value) Value {
	switch v.kind {
	case text:
		return Value{Strings: v.text, Dims: v.spec.Shape()}
	case sequence:
		out := Value{IsSequence: true}
		for _, e := range v.seq {
			out.Sequence = append(out.Sequence, exportValue(e))
		}
		return out
	case optional:
		if v.inner == nil {
			return Value{IsOptional: true, IsEmpty: true}
		}
		out := exportValue(v.inner)
		out.IsOptional = true
		return out
	}
	t := v.data
	if !t.IsContiguous() || t.Buf != nil && t.Buf.ReadOnly() {
		t = t.Clone()
	}
	return Value{Tensor: t}
}
