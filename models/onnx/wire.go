package onnx

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// maxDepth bounds how deeply graphs and types may be nested in a file.
const maxDepth = 32

// Open maps a model file. External data is read from files below the folder of the model and from nowhere else. The files must stay as they are until
// Close: one that is cut short meanwhile is an error of the calls that read it, one that is overwritten in place changes the results.
func Open(path string) (*Model, error) {
	buf, err := tensor.OpenBuffer(path)
	if err != nil {
		return nil, err
	}
	m, err := decode(buf, filepath.Dir(path), true)
	if err != nil {
		_ = buf.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Decode reads a model from memory, which the model keeps and nobody may change. External data is refused.
func Decode(data []byte) (*Model, error) { return decode(tensor.WrapReadOnly(data), "", false) }

func decode(buf *tensor.Buffer, dir string, files bool) (*Model, error) {
	m := &Model{Opsets: map[string]int{}, Metadata: map[string]string{}, dir: dir, externalBlocked: !files,
		buffers: []*tensor.Buffer{buf}, external: map[string]*tensor.Buffer{}}
	if err := m.read(buf); err != nil {
		for _, b := range m.buffers[1:] {
			_ = b.Close()
		}
		return nil, fmt.Errorf("onnx: %w", err)
	}
	return m, nil
}

// read decodes the file that buf holds into m.
func (m *Model) read(buf *tensor.Buffer) (err error) {
	defer mem.Caught(mem.Catch(), &err)
	d := &decoder{m: m, buf: buf}
	if err := locate(d.model(buf.Bytes()), buf.Bytes()); err != nil {
		return err
	}
	return m.check()
}

// wireError is an error with the path of the field that it is about, built on the way out, and where in the file that field begins.
type wireError struct {
	path   string
	err    error
	behind int // bytes from the field's tag to the end of the memory that the file is in; 0 where the error is about no place
	offset int // of the tag in the file, once known
	placed bool
}

func (e *wireError) Error() string {
	text := e.err.Error()
	if e.path != "" {
		text = e.path + ": " + text
	}
	if e.placed {
		text += fmt.Sprintf(" (the field at byte %d)", e.offset)
	}
	return text
}
func (e *wireError) Unwrap() error { return e.err }

func at(path string, err error) error {
	if err == nil {
		return nil
	}
	w, ok := err.(*wireError)
	if !ok {
		return &wireError{path: path, err: err}
	}
	if w.path != "" {
		path += "." + w.path
	}
	return &wireError{path: path, err: w.err, behind: w.behind}
}

// locate completes an error about bytes of a file with their offset.
func locate(err error, file []byte) error {
	if w, ok := err.(*wireError); ok && w.behind > 0 {
		w.offset, w.placed = cap(file)-w.behind, true
	}
	return err
}

// field is one field of a message: a number for varint and fixed types, bytes for length-delimited ones.
type field struct {
	num  protowire.Number
	typ  protowire.Type
	n    uint64
	data []byte
}

// fields calls f for every field of a message.
func fields(b []byte, f func(field) error) error {
	for len(b) > 0 {
		// A message is a part of the file's memory, so that its capacity tells where it begins.
		behind := cap(b)
		broken := func(err error) error { return &wireError{err: err, behind: behind} }
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return broken(fmt.Errorf("field tag: %w", protowire.ParseError(n)))
		}
		b = b[n:]
		fl := field{num: num, typ: typ}
		switch typ {
		case protowire.VarintType:
			fl.n, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			fl.n = uint64(v)
		case protowire.Fixed64Type:
			fl.n, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			fl.data, n = protowire.ConsumeBytes(b)
		default:
			return broken(fmt.Errorf("field %d: wire type %d is none that this format uses", num, typ))
		}
		if n < 0 {
			return broken(fmt.Errorf("field %d: %w", num, protowire.ParseError(n)))
		}
		b = b[n:]
		if err := f(fl); err != nil {
			w, ok := err.(*wireError)
			if !ok {
				return broken(err)
			}
			if w.behind == 0 {
				w.behind = behind
			}
			return w
		}
	}
	return nil
}

func (f *field) bytes() ([]byte, error) {
	if f.typ != protowire.BytesType {
		return nil, fmt.Errorf("wire type %d, length-delimited is right", f.typ)
	}
	return f.data, nil
}

func (f *field) string() (string, error) { b, err := f.bytes(); return string(b), err }

func (f *field) int() (int64, error) {
	if f.typ != protowire.VarintType {
		return 0, fmt.Errorf("wire type %d, varint is right", f.typ)
	}
	return int64(f.n), nil
}

func (f *field) float() (float32, error) {
	if f.typ != protowire.Fixed32Type {
		return 0, fmt.Errorf("wire type %d, fixed32 is right", f.typ)
	}
	return math.Float32frombits(uint32(f.n)), nil
}

// ints appends a repeated integer, packed or not.
func (f *field) ints(to []int64) ([]int64, error) {
	if f.typ == protowire.VarintType {
		return append(to, int64(f.n)), nil
	}
	b, err := f.bytes()
	if err != nil {
		return nil, err
	}
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		to, b = append(to, int64(v)), b[n:]
	}
	return to, nil
}

// floats appends a repeated float, packed or not.
func (f *field) floats(to []float32) ([]float32, error) {
	if f.typ == protowire.Fixed32Type {
		return append(to, math.Float32frombits(uint32(f.n))), nil
	}
	b, err := f.bytes()
	if err != nil {
		return nil, err
	}
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("%d bytes of packed floats", len(b))
	}
	for len(b) > 0 {
		v, n := protowire.ConsumeFixed32(b)
		to, b = append(to, math.Float32frombits(v)), b[n:]
	}
	return to, nil
}

// set stores what a reader of a field returned and passes its error on with the field's name.
func set[T any](dst *T, name string) func(T, error) error {
	return func(v T, err error) error {
		if err != nil {
			return at(name, err)
		}
		*dst = v
		return nil
	}
}

// decoder reads one file.
type decoder struct {
	m     *Model
	buf   *tensor.Buffer
	depth int
}

func (d *decoder) enter() error {
	if d.depth++; d.depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	return nil
}

func (d *decoder) model(b []byte) error {
	if len(b) == 0 {
		return errors.New("empty file")
	}
	var version string
	err := fields(b, func(f field) (err error) {
		switch f.num {
		case 1:
			return set(&d.m.IRVersion, "ir_version")(f.int())
		case 2:
			return set(&d.m.Producer, "producer_name")(f.string())
		case 3:
			return set(&version, "producer_version")(f.string())
		case 7:
			if d.m.Graph != nil {
				return at("graph", errors.New("more than one"))
			}
			body, err := f.bytes()
			if err != nil {
				return at("graph", err)
			}
			d.m.Graph, err = d.graph(body)
			return at("graph", err)
		case 8:
			return at("opset_import", d.opset(&f, d.m.Opsets))
		case 14:
			k, v, err := entry(&f)
			d.m.Metadata[k] = v
			return at("metadata_props", err)
		case 25:
			body, err := f.bytes()
			if err != nil {
				return at("functions", err)
			}
			fn, err := d.function(body)
			d.m.Functions = append(d.m.Functions, fn)
			return at(fmt.Sprintf("functions[%d]", len(d.m.Functions)-1), err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if version != "" {
		d.m.Producer += " " + version
	}
	if d.m.Graph == nil {
		return errors.New("no graph: not an ONNX model")
	}
	if len(d.m.Opsets) == 0 {
		d.m.Opsets[""] = 1 // the standard's rule for files older than opset_import
	}
	return nil
}

func (d *decoder) opset(f *field, to map[string]int) error {
	b, err := f.bytes()
	if err != nil {
		return err
	}
	var domain string
	var version int64
	err = fields(b, func(f field) error {
		switch f.num {
		case 1:
			return set(&domain, "domain")(f.string())
		case 2:
			return set(&version, "version")(f.int())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if version < 1 || version > 1<<20 {
		return fmt.Errorf("version %d of domain %q", version, domain)
	}
	to[canonicalDomain(domain)] = int(version)
	return nil
}

func canonicalDomain(s string) string {
	if s == "ai.onnx" {
		return ""
	}
	return s
}

func entry(f *field) (key, value string, err error) {
	b, err := f.bytes()
	if err != nil {
		return "", "", err
	}
	err = fields(b, func(f field) error {
		switch f.num {
		case 1:
			return set(&key, "key")(f.string())
		case 2:
			return set(&value, "value")(f.string())
		}
		return nil
	})
	return key, value, err
}

func (d *decoder) graph(b []byte) (*Graph, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer func() { d.depth-- }()
	g := &Graph{inits: map[string]*Tensor{}}
	info := func(f *field, to *[]ValueInfo, name string) error {
		v, err := d.valueInfo(f)
		if err != nil {
			return at(fmt.Sprintf("%s[%d]", name, len(*to)), err)
		}
		*to = append(*to, v)
		return nil
	}
	addInit := func(t *Tensor, err error) error {
		if err != nil {
			return at(fmt.Sprintf("initializer[%d]", len(g.Inits)), err)
		}
		if t.Name == "" {
			return at(fmt.Sprintf("initializer[%d].name", len(g.Inits)), errors.New("empty"))
		}
		if g.inits[t.Name] != nil {
			return at(fmt.Sprintf("initializer[%d].name", len(g.Inits)), fmt.Errorf("%q is there twice", t.Name))
		}
		g.Inits = append(g.Inits, t)
		g.inits[t.Name] = t
		return nil
	}
	err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			body, err := f.bytes()
			if err != nil {
				return at("node", err)
			}
			n, err := d.node(body)
			if err != nil {
				return at(fmt.Sprintf("node[%d]", len(g.Nodes)), err)
			}
			g.Nodes = append(g.Nodes, n)
		case 2:
			return set(&g.Name, "name")(f.string())
		case 5:
			body, err := f.bytes()
			if err != nil {
				return at("initializer", err)
			}
			return addInit(d.tensor(body))
		case 11:
			return info(&f, &g.Inputs, "input")
		case 12:
			return info(&f, &g.Outputs, "output")
		case 13:
			return info(&f, &g.Info, "value_info")
		case 15:
			body, err := f.bytes()
			if err != nil {
				return at("sparse_initializer", err)
			}
			return addInit(d.sparse(body))
		}
		return nil
	})
	return g, err
}

func (d *decoder) node(b []byte) (*Node, error) {
	n := &Node{}
	err := fields(b, func(f field) error {
		switch f.num {
		case 1, 2:
			s, err := f.string()
			if err != nil {
				return at(map[bool]string{true: "input", false: "output"}[f.num == 1], err)
			}
			if f.num == 1 {
				n.In = append(n.In, s)
			} else {
				n.Out = append(n.Out, s)
			}
		case 3:
			return set(&n.Name, "name")(f.string())
		case 4:
			return set(&n.Op, "op_type")(f.string())
		case 5:
			body, err := f.bytes()
			if err != nil {
				return at("attribute", err)
			}
			a, err := d.attr(body)
			if err != nil {
				return at(fmt.Sprintf("attribute[%d] %q", len(n.Attrs), a.Name), err)
			}
			if n.Attr(a.Name) != nil {
				return at("attribute", fmt.Errorf("%q is there twice", a.Name))
			}
			n.Attrs = append(n.Attrs, a)
		case 7:
			return set(&n.Domain, "domain")(f.string())
		}
		return nil
	})
	n.Domain = canonicalDomain(n.Domain)
	if err == nil && n.Op == "" {
		err = at("op_type", errors.New("empty"))
	}
	return n, err
}

func (d *decoder) attr(b []byte) (Attr, error) {
	var a Attr
	var seen AttrType // by the fields present, for files of the time before the type field
	err := fields(b, func(f field) (err error) {
		switch f.num {
		case 1:
			return set(&a.Name, "name")(f.string())
		case 2:
			seen = AttrFloat
			return set(&a.F, "f")(f.float())
		case 3:
			seen = AttrInt
			return set(&a.I, "i")(f.int())
		case 4:
			seen = AttrString
			return set(&a.S, "s")(f.string())
		case 5, 10:
			body, err := f.bytes()
			if err != nil {
				return at("t", err)
			}
			t, err := d.tensor(body)
			if err != nil {
				return at("t", err)
			}
			if f.num == 5 {
				seen, a.T = AttrTensor, t
			} else {
				seen, a.Tensors = AttrTensors, append(a.Tensors, t)
			}
		case 6, 11:
			body, err := f.bytes()
			if err != nil {
				return at("g", err)
			}
			g, err := d.graph(body)
			if err != nil {
				return at("g", err)
			}
			if f.num == 6 {
				seen, a.G = AttrGraph, g
			} else {
				seen, a.Graphs = AttrGraphs, append(a.Graphs, g)
			}
		case 7:
			seen = AttrFloats
			a.Floats, err = f.floats(a.Floats)
			return at("floats", err)
		case 8:
			seen = AttrInts
			a.Ints, err = f.ints(a.Ints)
			return at("ints", err)
		case 9:
			seen = AttrStrings
			s, err := f.string()
			a.Strings = append(a.Strings, s)
			return at("strings", err)
		case 14:
			seen = AttrTypeProto
			body, err := f.bytes()
			if err != nil {
				return at("tp", err)
			}
			a.Info, err = d.typeInfo(body)
			return at("tp", err)
		case 20:
			t, err := f.int()
			a.Type = AttrType(t)
			return at("type", err)
		case 21:
			return set(&a.Ref, "ref_attr_name")(f.string())
		case 22:
			seen = AttrSparse
			body, err := f.bytes()
			if err != nil {
				return at("sparse_tensor", err)
			}
			a.T, err = d.sparse(body)
			return at("sparse_tensor", err)
		}
		return nil
	})
	if err != nil {
		return a, err
	}
	if a.Type == 0 {
		a.Type = seen
	}
	switch {
	case a.Name == "":
		return a, at("name", errors.New("empty"))
	case a.Ref != "":
	case a.Type == AttrTensor && a.T == nil, a.Type == AttrSparse && a.T == nil:
		return a, at("t", errors.New("absent"))
	case a.Type == AttrGraph && a.G == nil:
		return a, at("g", errors.New("absent"))
	}
	return a, nil
}

func (d *decoder) function(b []byte) (*Function, error) {
	fn := &Function{Opsets: map[string]int{}}
	err := fields(b, func(f field) error {
		switch f.num {
		case 1:
			return set(&fn.Name, "name")(f.string())
		case 4, 5, 6:
			s, err := f.string()
			to := map[int]*[]string{4: &fn.In, 5: &fn.Out, 6: &fn.Attrs}[int(f.num)]
			*to = append(*to, s)
			return at("names", err)
		case 7:
			body, err := f.bytes()
			if err != nil {
				return at("node", err)
			}
			n, err := d.node(body)
			fn.Nodes = append(fn.Nodes, n)
			return at(fmt.Sprintf("node[%d]", len(fn.Nodes)-1), err)
		case 9:
			return at("opset_import", d.opset(&f, fn.Opsets))
		case 10:
			return set(&fn.Domain, "domain")(f.string())
		case 11:
			body, err := f.bytes()
			if err != nil {
				return at("attribute_proto", err)
			}
			a, err := d.attr(body)
			fn.Defaults = append(fn.Defaults, a)
			return at("attribute_proto", err)
		}
		return nil
	})
	fn.Domain = canonicalDomain(fn.Domain)
	return fn, err
}

func (d *decoder) valueInfo(f *field) (ValueInfo, error) {
	var v ValueInfo
	b, err := f.bytes()
	if err != nil {
		return v, err
	}
	err = fields(b, func(f field) error {
		switch f.num {
		case 1:
			return set(&v.Name, "name")(f.string())
		case 2:
			body, err := f.bytes()
			if err != nil {
				return at("type", err)
			}
			v.Type, err = d.typeInfo(body)
			return at("type", err)
		}
		return nil
	})
	return v, err
}

func (d *decoder) typeInfo(b []byte) (*TypeInfo, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer func() { d.depth-- }()
	t := &TypeInfo{}
	element := func(b []byte) (inner *TypeInfo, err error) {
		inner = &TypeInfo{}
		err = fields(b, func(f field) error {
			if f.num != 1 {
				return nil
			}
			body, err := f.bytes()
			if err != nil {
				return at("elem_type", err)
			}
			inner, err = d.typeInfo(body)
			return at("elem_type", err)
		})
		return inner, err
	}
	err := fields(b, func(f field) (err error) {
		if f.num != 1 && f.num != 4 && f.num != 5 && f.num != 8 && f.num != 9 {
			return nil
		}
		body, err := f.bytes()
		if err != nil {
			return err
		}
		switch f.num {
		case 1, 8:
			return at("tensor_type", d.tensorType(body, t))
		case 4:
			t.Sequence, err = element(body)
			return at("sequence_type", err)
		case 5:
			t.Map = true
		case 9:
			t.Optional, err = element(body)
			return at("optional_type", err)
		}
		return nil
	})
	return t, err
}

func (d *decoder) tensorType(b []byte, t *TypeInfo) error {
	return fields(b, func(f field) error {
		switch f.num {
		case 1:
			e, err := f.int()
			t.Elem = ElemType(e)
			return at("elem_type", err)
		case 2:
			t.HasShape = true
			body, err := f.bytes()
			if err != nil {
				return at("shape", err)
			}
			return at("shape", fields(body, func(f field) error {
				if f.num != 1 {
					return nil
				}
				body, err := f.bytes()
				if err != nil {
					return at("dim", err)
				}
				dim := Dim{Size: -1}
				err = fields(body, func(f field) error {
					switch f.num {
					case 1:
						n, err := f.int()
						if err == nil && n > math.MaxInt32*1024 {
							err = fmt.Errorf("size %d", n)
						}
						dim.Size = int(max(n, -1)) // some writers say -1 or another negative for "any"
						return at("dim_value", err)
					case 2:
						return set(&dim.Param, "dim_param")(f.string())
					}
					return nil
				})
				t.Dims = append(t.Dims, dim)
				return at(fmt.Sprintf("dim[%d]", len(t.Dims)-1), err)
			}))
		}
		return nil
	})
}
