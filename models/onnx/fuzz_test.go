package onnx_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/models/onnx"
	"github.com/tessera-go/tessera/tensor"
)

// fuzzMemory is the limit that fuzzed sessions declare.
const fuzzMemory = 1 << 20

// tryModel does with a decoded model what a program would: session, inputs by the declared types, run. It returns the error.
func tryModel(t *testing.T, bs []backends.Backend, m *onnx.Model, eager bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := onnx.NewSession(ctx, m, onnx.Options{Backends: bs, MaxMemory: fuzzMemory, Eager: eager})
	if err != nil {
		require.NotContains(t, err.Error(), "a mistake in the operator's definition")
		return err
	}
	defer s.Close()
	in := map[string]onnx.Value{}
	for _, v := range s.Inputs() {
		x, ok := anyValue(v.Type)
		if !ok {
			return nil // a caller cannot make such an input
		}
		in[v.Name] = x
	}
	for range 2 { // the second run reuses what the first made
		if _, err = s.Run(ctx, in); err != nil {
			break
		}
	}
	require.False(t, errors.Is(err, context.DeadlineExceeded), "took over a minute: %v", err)
	if err != nil {
		require.NotContains(t, err.Error(), "a mistake in the operator's definition")
	}
	return err
}

// anyValue makes a value of a declared type; open dimensions are 2.
func anyValue(t *onnx.TypeInfo) (onnx.Value, bool) {
	if t == nil || t.Map {
		return onnx.Value{}, false
	}
	if t.Optional != nil {
		v, ok := anyValue(t.Optional)
		v.IsOptional = true
		return v, ok
	}
	if t.Sequence != nil {
		v, ok := anyValue(t.Sequence)
		return onnx.Value{IsSequence: true, Sequence: []onnx.Value{v}}, ok
	}
	var dims []int
	for _, d := range t.Dims {
		n := d.Size
		if n < 0 {
			n = 2
		}
		dims = append(dims, n)
	}
	if t.Elem == onnx.String {
		n := 1
		for _, d := range dims {
			if n *= d; n > 1000 {
				return onnx.Value{}, false
			}
		}
		return onnx.TextOf(make([]string, n), dims...), true
	}
	spec, err := tensor.CheckDims(t.Elem.DType(), dims)
	if t.Elem.DType() == tensor.Invalid || err != nil || spec.Bytes() > fuzzMemory {
		return onnx.Value{}, false
	}
	x := tensor.New(spec.DType, dims...)
	v := make([]float64, spec.Elems())
	for i := range v {
		v[i] = float64(i%7) - 2
	}
	x.SetFloats(v)
	return onnx.Of(x), true
}

// seeds are real models: small ones of the standard's tests where those are installed.
func seeds(f *testing.F) {
	paths, _ := filepath.Glob(filepath.Join(testData, "*", "*", "model.onnx"))
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err == nil && len(data) < 2000 {
			f.Add(data, false)
			f.Add(data, true)
		}
	}
	g := &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("x", onnx.Float, 1, 2, 4, 4)}, Inits: []*onnx.Tensor{f32t(make([]float32, 18), 1, 2, 3, 3), i64t([]int64{1, -1}, 2)},
		Nodes: []*onnx.Node{{Op: "Conv", In: []string{"x", "w"}, Out: []string{"a"}, Attrs: []onnx.Attr{onnx.IntsAttr("pads", 1, 1, 1, 1)}},
			{Op: "Reshape", In: []string{"a", "s"}, Out: []string{"y"}}}, Outputs: []onnx.ValueInfo{onnx.Info("y", onnx.Float, 1, 16)}}
	g.Inits[0].Name, g.Inits[1].Name = "w", "s"
	m, err := onnx.NewModel(13, g)
	require.NoError(f, err)
	f.Add(encoded(f, m), false)
}

// FuzzSession reads bytes as a model and runs it: an error or a result, no panic, and memory bounded by the file and the limit.
func FuzzSession(f *testing.F) {
	seeds(f)
	bs := cpu(f)
	f.Fuzz(func(t *testing.T, data []byte, eager bool) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := onnx.Decode(data)
		if err == nil {
			err = tryModel(t, bs, m, eager)
		}
		runtime.ReadMemStats(&after)
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "onnx: "), "%v", err)
		}
		// What lives at any one time is bounded by the limit; allocated in total are that, a few times over, and what reading takes.
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100*fuzzMemory+1000*len(data)), "%v", err)
	})
}

// FuzzGraph builds small graphs of any operators with any attributes on values of any shape, from bytes.
func FuzzGraph(f *testing.F) {
	for i := range 192 {
		f.Add([]byte{byte(i), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30})
	}
	bs := cpu(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := onnx.Decode(graphOf(t, data))
		if err == nil {
			err = tryModel(t, bs, m, len(data)%2 == 0)
		}
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "onnx: "), "%v", err)
		}
	})
}

// choices reads decisions from bytes; after the last it decides 0.
type choices struct{ data []byte }

func (c *choices) next(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return int(b) % n
}

// graphOf makes a model of up to four nodes.
func graphOf(t testing.TB, data []byte) []byte {
	c := &choices{data}
	operators := onnx.Operators()
	elems := []onnx.ElemType{onnx.Float, onnx.Int64, onnx.Float, onnx.Uint8, onnx.Bool, onnx.Int8, onnx.Float16, onnx.Int32, onnx.Double, onnx.BFloat16, onnx.String, onnx.Int4}
	sizes := []int{1, 2, 3, 4, 2, 0, 5, 1 << 20, math.MaxInt32, 7}
	numbers := []int64{0, 1, -1, 2, 3, -2, 4, 1 << 31, -1 << 63, 1<<63 - 1, 1 << 40, 7}
	names := []string{"axis", "axes", "perm", "kernel_shape", "pads", "strides", "dilations", "group", "to", "value", "keepdims", "output_shape", "mode",
		"direction", "hidden_size", "block_size", "blocksize", "epsilon", "num_outputs", "allowzero", "k", "size", "equation", "batch_axis", "time_axis",
		"alpha", "beta", "exclusive", "num_groups", "shape", "dtype", "sizes", "output_padding", "auto_pad", "split", "start", "end", "largest", "offset_group"}
	words := []string{"", "SAME_UPPER", "VALID", "reverse", "bidirectional", "nearest", "linear", "cubic", "ij,jk->ik", "...i->i", "reflect", "wrap", "edge", "max", "add"}
	g := &onnx.Graph{}
	values := []string{""}
	for i := range 1 + c.next(4) {
		name := string(rune('a' + i))
		e := elems[c.next(len(elems))]
		var dims []int
		for range c.next(5) {
			dims = append(dims, sizes[c.next(len(sizes))])
		}
		values = append(values, name)
		spec, err := tensor.CheckDims(e.DType(), dims)
		if c.next(2) == 0 && e != onnx.String && err == nil && spec.Elems() < 1000 {
			x := tensor.New(spec.DType, dims...)
			v := make([]float64, spec.Elems())
			for j := range v {
				v[j] = float64(numbers[c.next(len(numbers))])
			}
			x.SetFloats(v)
			g.Inits = append(g.Inits, onnx.NewTensor(name, x))
			g.Inits[len(g.Inits)-1].Elem = e
			continue
		}
		g.Inputs = append(g.Inputs, onnx.Info(name, e, dims...))
	}
	for i := range 1 + c.next(4) {
		n := &onnx.Node{Op: operators[c.next(256)%len(operators)].Name}
		if n.Op == "Loop" || n.Op == "If" || n.Op == "Scan" || n.Op == "SequenceMap" {
			body := &onnx.Graph{Nodes: []*onnx.Node{{Op: operators[c.next(256)%len(operators)].Name, In: []string{values[c.next(len(values))]}, Out: []string{"inner"}}},
				Outputs: []onnx.ValueInfo{{Name: "inner"}}}
			for j := range c.next(3) {
				body.Inputs = append(body.Inputs, onnx.Info("p"+string(rune('0'+j)), onnx.Float))
			}
			for range c.next(3) {
				body.Outputs = append(body.Outputs, onnx.ValueInfo{Name: "inner"})
			}
			for _, name := range []string{"body", "then_branch", "else_branch"} {
				n.Attrs = append(n.Attrs, onnx.GraphAttr(name, body))
			}
			n.Attrs = append(n.Attrs, onnx.IntAttr("num_scan_inputs", int64(c.next(3))))
		}
		for range c.next(6) {
			n.In = append(n.In, values[c.next(len(values))])
		}
		for j := range 1 + c.next(3) {
			n.Out = append(n.Out, string(rune('A'+i))+string(rune('0'+j)))
		}
		for range c.next(5) {
			name := names[c.next(len(names))]
			if n.Attr(name) != nil {
				continue
			}
			switch c.next(4) {
			case 0:
				n.Attrs = append(n.Attrs, onnx.IntAttr(name, numbers[c.next(len(numbers))]))
			case 1:
				var list []int64
				for range c.next(6) {
					list = append(list, numbers[c.next(len(numbers))])
				}
				n.Attrs = append(n.Attrs, onnx.IntsAttr(name, list...))
			case 2:
				n.Attrs = append(n.Attrs, onnx.StringAttr(name, words[c.next(len(words))]))
			case 3:
				n.Attrs = append(n.Attrs, onnx.FloatAttr(name, float32(numbers[c.next(len(numbers))])))
			}
		}
		values = append(values, n.Out...)
		g.Nodes = append(g.Nodes, n)
		g.Outputs = append(g.Outputs, onnx.ValueInfo{Name: n.Out[0]})
	}
	m := &onnx.Model{IRVersion: 10, Opsets: map[string]int{"": 7 + c.next(15)}, Graph: g}
	return encoded(t, m)
}
