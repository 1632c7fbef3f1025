package onnx

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/tensor"
)

// small returns a valid model that uses most of the format: attributes of all kinds, a subgraph, a function, metadata.
func small(t testing.TB) *Model {
	then := &Graph{Name: "then", Nodes: []*Node{{Op: "Add", In: []string{"x", "w"}, Out: []string{"a"}}}, Outputs: []ValueInfo{Info("a", Float, 2)}}
	other := &Graph{Name: "else", Nodes: []*Node{{Op: "Sub", In: []string{"x", "w"}, Out: []string{"b"}}}, Outputs: []ValueInfo{Info("b", Float, 2)}}
	g := &Graph{
		Name:   "g",
		Inputs: []ValueInfo{Info("x", Float, -1, 2), Info("c", Bool)},
		Inits: []*Tensor{NewTensor("w", tensor.Of([]float32{1, 2}, 2)), Ints64("shape", -1, 2),
			{Name: "words", Elem: String, Dims: []int{2}, Strings: []string{"a", ""}},
			{Name: "n", Elem: Int4, Dims: []int{3}, Data: tensor.Of([]int8{-8, 7, -1}, 3)}},
		Nodes: []*Node{
			{Name: "if", Op: "If", In: []string{"c"}, Out: []string{"y"}, Attrs: []Attr{GraphAttr("then_branch", then), GraphAttr("else_branch", other)}},
			{Op: "Reshape", In: []string{"y", "shape"}, Out: []string{"z"}, Attrs: []Attr{IntAttr("allowzero", 1)}},
			{Op: "Odd", Domain: "local", In: []string{"z"}, Out: []string{"out"}, Attrs: []Attr{FloatAttr("f", 1.5), StringAttr("s", "text"),
				IntsAttr("i", 1, -2), {Name: "fs", Type: AttrFloats, Floats: []float32{1, 2}}, {Name: "ss", Type: AttrStrings, Strings: []string{"p", "q"}},
				TensorAttr("t", Ints64("", 3))}},
		},
		Outputs: []ValueInfo{Info("out", Float, -1, 2)},
	}
	m, err := NewModel(18, g)
	require.NoError(t, err)
	m.Opsets["local"] = 1
	m.Metadata["labels"] = "a,b"
	m.Functions = []*Function{{Name: "Odd", Domain: "local", In: []string{"p"}, Out: []string{"q"}, Attrs: []string{"f"},
		Nodes: []*Node{{Op: "Relu", In: []string{"p"}, Out: []string{"q"}}}, Opsets: map[string]int{"": 18}}}
	return m
}

func TestEncodeDecode(t *testing.T) {
	m := small(t)
	data, err := m.Encode()
	require.NoError(t, err)
	got, err := Decode(data)
	require.NoError(t, err)
	again, err := got.Encode()
	require.NoError(t, err)
	require.Equal(t, data, again)
	require.Equal(t, m.Opsets, got.Opsets)
	require.Equal(t, m.Metadata, got.Metadata)
	require.Equal(t, []int64{-1, 2}, tensor.Data[int64](got.Graph.Init("shape").Data))
	require.Equal(t, []string{"a", ""}, got.Graph.Init("words").Strings)
	require.Equal(t, []int8{-8, 7, -1}, tensor.Data[int8](got.Graph.Init("n").Data))
	require.Equal(t, "float[? 2]", got.Graph.Inputs[0].Type.String())
	odd := got.Graph.Nodes[2]
	require.Equal(t, float32(1.5), odd.Attr("f").F)
	require.Equal(t, []int64{1, -2}, odd.Attr("i").Ints)
	require.Equal(t, []string{"p", "q"}, odd.Attr("ss").Strings)
	require.Equal(t, "Relu", got.Functions[0].Nodes[0].Op)
}

// Tensors lie in the file's memory: no copy is made where the machine can read them there.
func TestNoCopy(t *testing.T) {
	if !unalignedLoads {
		t.Skip("this machine copies tensors that are not aligned")
	}
	data := small(t).encode()
	m, err := Decode(data)
	require.NoError(t, err)
	w := m.Graph.Init("w").Data
	require.Same(t, &data[0], &w.Buf.Bytes()[0])
	require.True(t, w.Buf.ReadOnly())
}

func TestTypedFields(t *testing.T) {
	packed := func(e ElemType, dims []uint64, num protowire.Number, body []byte) []byte {
		var b []byte
		for _, d := range dims {
			b = protowire.AppendTag(b, 1, protowire.VarintType)
			b = protowire.AppendVarint(b, d)
		}
		b = appendInt(b, 2, int64(e))
		return appendMessage(b, num, body)
	}
	varints := func(v ...int64) (b []byte) {
		for _, x := range v {
			b = protowire.AppendVarint(b, uint64(x))
		}
		return b
	}
	for _, c := range []struct {
		name string
		data []byte
		want []float64
		err  string
	}{
		{"int32", packed(Int32, []uint64{2}, 5, varints(-1, 7)), []float64{-1, 7}, ""},
		{"f16 in int32_data", packed(Float16, []uint64{2}, 5, varints(0x3c00, 0xc000)), []float64{1, -2}, ""},
		{"bool in int32_data", packed(Bool, []uint64{2}, 5, varints(0, 5)), []float64{0, 1}, ""},
		{"uint32 in uint64_data", packed(Uint32, []uint64{1}, 11, varints(1<<32-1)), []float64{1<<32 - 1}, ""},
		{"int4 in int32_data", packed(Int4, []uint64{3}, 5, varints(0x7f, 0x08)), []float64{-1, 7, -8}, ""},
		{"scalar", packed(Int64, nil, 7, varints(-3)), []float64{-3}, ""},
		{"too few", packed(Int32, []uint64{3}, 5, varints(1, 2)), nil, "int32_data: 2 numbers, i32[3] needs 3"},
		{"wrong field", packed(Float, []uint64{1}, 5, varints(1)), nil, "float_data is right"},
		{"raw length", packed(Float, []uint64{2}, 9, make([]byte, 7)), nil, "raw_data: 7 bytes, f32[2] needs 8"},
		{"negative", packed(Float, []uint64{1 << 63}, 9, nil), nil, "dims[0]"},
		{"huge", packed(Float, []uint64{1 << 40, 1 << 40}, 9, nil), nil, "dims"},
		{"overflow", packed(Int8, []uint64{1 << 31, 1 << 31, 1 << 31}, 9, nil), nil, "overflow"},
		{"unknown type", packed(99, []uint64{1}, 9, []byte{0}), nil, "data_type"},
		{"no data", packed(Float, []uint64{1 << 30}, 8, nil), nil, "0 numbers, f32[1073741824] needs 1073741824"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := DecodeTensor(c.data)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Data.Floats())
		})
	}
}

// A valid file cut at every byte gives an error or a smaller valid model, never a panic.
func TestTruncated(t *testing.T) {
	data := small(t).encode()
	for n := range data {
		m, err := Decode(data[:n:n])
		if err == nil {
			require.NotNil(t, m.Graph)
		}
	}
	if dir, ok := shared.Lookup(); ok {
		data, err := os.ReadFile(filepath.Join(dir, "data/models/mnist-12.onnx"))
		require.NoError(t, err)
		for n := 0; n < len(data); n += 7 {
			_, _ = Decode(data[:n:n])
		}
	}
}

// Every byte changed in several ways.
func TestFlipped(t *testing.T) {
	data := small(t).encode()
	for i := range data {
		for _, x := range []byte{0x01, 0x80, 0xff} {
			bad := append([]byte{}, data...)
			bad[i] ^= x
			_, _ = Decode(bad)
		}
	}
}

// Errors about bytes say where they are: the offset of the field's tag, at any depth.
func TestOffsets(t *testing.T) {
	data := small(t).encode()
	tag := func(part string) int { // of the field whose content begins so
		i := strings.Index(string(data), part)
		require.Positive(t, i)
		return i - 2
	}
	for _, c := range []struct {
		name   string
		at     int
		change func([]byte)
		err    string
	}{
		{"wire type", tag("Reshape"), func(b []byte) { b[tag("Reshape")] = 4<<3 | 5 }, "graph.node[1].op_type: wire type 5"},
		{"length beyond the message", tag("allowzero"), func(b []byte) { b[tag("allowzero")+1] = 0x7f }, "graph.node[1].attribute[0]"},
		{"group", tag("words"), func(b []byte) { b[tag("words")] = 8<<3 | 3 }, "wire type 3 is none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := append([]byte{}, data...)
			c.change(bad)
			_, err := Decode(bad)
			require.ErrorContains(t, err, c.err)
			require.ErrorContains(t, err, fmt.Sprintf("(the field at byte %d)", c.at))
		})
	}
	_, err := DecodeTensor([]byte{1<<3 | 0, 2, 2<<3 | 2, 1, 0})
	require.ErrorContains(t, err, "data_type: wire type 2, varint is right (the field at byte 2)")
}

func TestHostile(t *testing.T) {
	node := func(op string, in, out string) *Node {
		return &Node{Op: op, In: strings.Fields(in), Out: strings.Fields(out)}
	}
	build := func(change func(*Graph)) []byte {
		m := &Model{IRVersion: 8, Opsets: map[string]int{"": 13}, Graph: &Graph{
			Inputs: []ValueInfo{Info("x", Float, 1)}, Outputs: []ValueInfo{Info("y", Float, 1)},
			Nodes: []*Node{node("Relu", "x", "y")}}}
		change(m.Graph)
		return m.encode()
	}
	deep := func() []byte {
		g := &Graph{}
		for range 100 {
			g = &Graph{Nodes: []*Node{{Op: "If", Attrs: []Attr{GraphAttr("then_branch", g)}}}}
		}
		return (&Model{Graph: g}).encode()
	}
	for _, c := range []struct {
		name string
		data []byte
		err  string
	}{
		{"empty", nil, "empty file"},
		{"text", []byte("this is no model"), "onnx: "},
		{"no graph", appendInt(nil, 1, 8), "no graph"},
		{"two graphs", append(build(func(*Graph) {}), build(func(*Graph) {})...), "graph: more than one"},
		{"cycle", build(func(g *Graph) {
			g.Nodes = []*Node{node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")}
		}), "cyclic"},
		{"self cycle", build(func(g *Graph) { g.Nodes = []*Node{node("Add", "x y", "y")} }), `Add "y": needs its own output`},
		{"missing input", build(func(g *Graph) { g.Nodes[0].In = []string{"nowhere"} }), `node[0] Relu "y": input "nowhere" is produced by no node`},
		{"missing output", build(func(g *Graph) { g.Outputs[0].Name = "z" }), `output[0]: "z" is produced by no node`},
		{"produced twice", build(func(g *Graph) { g.Nodes = append(g.Nodes, node("Relu", "x", "y")) }), `output "y" is produced twice`},
		{"same input twice", build(func(g *Graph) { g.Inputs = append(g.Inputs, g.Inputs[0]) }), "input[1].name"},
		{"same initializer twice", build(func(g *Graph) { g.Inits = []*Tensor{Ints64("w", 1), Ints64("w", 1)} }), `initializer[1].name: "w" is there twice`},
		{"nested", deep(), "nested more than"},
		{"same attribute twice", build(func(g *Graph) { g.Nodes[0].Attrs = []Attr{IntAttr("a", 1), IntAttr("a", 1)} }), `attribute: "a" is there twice`},
		{"no op", build(func(g *Graph) { g.Nodes[0].Op = "" }), "node[0].op_type: empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode(c.data)
			require.ErrorContains(t, err, c.err)
		})
	}
	t.Run("out of order", func(t *testing.T) {
		m, err := Decode(build(func(g *Graph) { g.Nodes = []*Node{node("Relu", "a", "y"), node("Abs", "x", "a")} }))
		require.NoError(t, err)
		require.Equal(t, "Abs", m.Graph.Nodes[0].Op)
	})
}

func TestExternalData(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, make([]byte, 64), 0o600))
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "w.bin"), []byte{9, 9, 9, 9, 0, 0, 128, 63, 0, 0, 0, 64}, 0o600))
	link := os.Symlink(secret, filepath.Join(dir, "link")) == nil
	file := func(kv ...string) string {
		tp := appendInt(appendMessage(nil, 1, protowire.AppendVarint(nil, 2)), 2, int64(Float))
		tp = appendString(tp, 8, "w")
		for i := 0; i < len(kv); i += 2 {
			tp = appendMessage(tp, 13, appendString(appendString(nil, 1, kv[i]), 2, kv[i+1]))
		}
		tp = appendInt(tp, 14, 1)
		g := appendMessage(nil, 5, tp)
		g = append(g, (&Graph{Nodes: []*Node{{Op: "Relu", In: []string{"w"}, Out: []string{"y"}}}, Outputs: []ValueInfo{Info("y", Float, 2)}}).encode()...)
		path := filepath.Join(dir, "m.onnx")
		require.NoError(t, os.WriteFile(path, appendMessage(appendInt(nil, 1, 8), 7, g), 0o600))
		return path
	}
	m, err := Open(file("location", "sub/w.bin", "offset", "4", "length", "8"))
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2}, m.Graph.Init("w").Data.Floats())
	require.NoError(t, m.Close())

	bad := map[string][]string{
		"lies outside the model's folder": {"location", "../secret"},
		"\"/":                             {"location", secret},
		"is no size":                      {"location", "sub/w.bin", "offset", "-4"},
		"length 9, the tensor needs 8":    {"location", "sub/w.bin", "length", "9"},
		"bytes 8 to 16 of a file of 12":   {"location", "sub/w.bin", "offset", "8"},
		"no regular file":                 {"location", "sub"},
		"location \"absent\"":             {"location", "absent"},
		"location \"\" lies outside":      {},
		"of a file of 12":                 {"location", "sub/w.bin", "offset", "9223372036854775807"},
	}
	if link {
		bad["location \"link\""] = []string{"location", "link"}
	}
	for want, kv := range bad {
		_, err := Open(file(kv...))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, `tensor "w"`)
	}
	data, err := os.ReadFile(file("location", "sub/w.bin"))
	require.NoError(t, err)
	_, err = Decode(data)
	require.ErrorContains(t, err, "no folder for external data")
}

func TestSharedModels(t *testing.T) {
	for _, name := range []string{"data/models/mnist-12.onnx", "data/magika/model.onnx"} {
		m, err := Open(shared.File(t, name))
		require.NoError(t, err, name)
		require.NotEmpty(t, m.Graph.Nodes)
		require.NoError(t, m.Close())
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(small(f).encode())
	f.Add([]byte{})
	g := &Graph{Inputs: []ValueInfo{Info("x", Float, 1)}, Nodes: []*Node{{Op: "Relu", In: []string{"x"}, Out: []string{"y"}}}, Outputs: []ValueInfo{Info("y", Float, 1)}}
	m, err := NewModel(13, g)
	require.NoError(f, err)
	f.Add(m.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		if err != nil {
			return
		}
		// What was read can be written, and reading that again gives the same.
		again, err := Decode(m.encode())
		require.NoError(t, err)
		require.Equal(t, m.encode(), again.encode())
	})
}
