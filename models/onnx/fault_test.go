package onnx

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/tensor"
)

// saveNet writes a network whose weights reach far beyond the first page of their file: those of convolutions that are packed and that are read in place, of a product, and
// one that is folded when a graph is made. It returns the model's path, and that of the file that the weights are in.
func saveNet(t *testing.T, batch int, external bool) (path, weights string) {
	r := rand.New(rand.NewPCG(31, 32))
	g := &Graph{Inputs: []ValueInfo{Info("x", Float, batch, 16, 12, 12)}, Outputs: []ValueInfo{{Name: "y"}},
		Nodes: []*Node{
			{Op: "Conv", In: []string{"x", "conv3"}, Out: []string{"a"}, Attrs: []Attr{IntsAttr("pads", 1, 1, 1, 1)}},
			{Op: "Relu", In: []string{"a"}, Out: []string{"b"}},
			{Op: "Conv", In: []string{"b", "conv1"}, Out: []string{"c"}},
			{Op: "Conv", In: []string{"c", "depth"}, Out: []string{"d"}, Attrs: []Attr{IntAttr("group", 64), IntsAttr("pads", 1, 1, 1, 1)}},
			{Op: "GlobalAveragePool", In: []string{"d"}, Out: []string{"e"}},
			{Op: "Flatten", In: []string{"e"}, Out: []string{"f"}},
			{Op: "MatMul", In: []string{"f", "product"}, Out: []string{"h"}},
			{Op: "Transpose", In: []string{"folded"}, Out: []string{"k"}},
			{Op: "MatMul", In: []string{"h", "k"}, Out: []string{"y"}},
		}}
	var inits []*Tensor
	for _, w := range []struct {
		name string
		dims []int
	}{{"first", []int{4096}}, {"conv3", []int{64, 16, 3, 3}}, {"conv1", []int{64, 64, 1, 1}}, {"depth", []int{64, 1, 3, 3}}, {"product", []int{64, 96}}, {"folded", []int{80, 96}}} {
		x := tensor.New(tensor.F32, w.dims...)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = float32(r.NormFloat64()) / 8
		}
		inits = append(inits, NewTensor(w.name, x))
	}
	path = filepath.Join(t.TempDir(), "m.onnx")
	if !external {
		g.Inits = inits
		m, err := NewModel(13, g)
		require.NoError(t, err)
		data, err := m.Encode()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path, path
	}
	var data []byte
	body := g.encode()
	for _, w := range inits {
		raw := w.Data.Raw()
		head := (&Tensor{Name: w.Name, Elem: String, Dims: w.Dims}).encode() // of strings, so without data; a later field wins
		head = appendInt(head, 2, int64(Float))
		for _, kv := range [][2]string{{"location", "w.bin"}, {"offset", fmt.Sprint(len(data))}, {"length", fmt.Sprint(len(raw))}} {
			head = appendMessage(head, 13, appendString(appendString(nil, 1, kv[0]), 2, kv[1]))
		}
		body = append(body, appendMessage(nil, 5, appendInt(head, 14, 1))...)
		data = append(data, raw...)
	}
	file := append(appendMessage(appendInt(nil, 1, 8), 7, body), encodeOpsets(8, map[string]int{"": 13})...)
	require.NoError(t, os.WriteFile(path, file, 0o600))
	weights = filepath.Join(filepath.Dir(path), "w.bin")
	require.NoError(t, os.WriteFile(weights, data, 0o600))
	return path, weights
}

// A model's file, or that of its external data, that is cut short while it is open is an error which names the file, in each call that reads what is gone. When
// the file is whole again, the same session gives what it gave.
func TestFilesCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	ctx := context.Background()
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	run := func(s *Session, n int) ([]float64, error) {
		x := tensor.New(tensor.F32, n, 16, 12, 12)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = float32(i%17) / 17
		}
		out, err := s.Run(ctx, map[string]Value{"x": Of(x)})
		if err != nil {
			require.Nil(t, out)
			return nil, err
		}
		y := out["y"].Tensor
		return y.Floats(), nil
	}
	for _, external := range []bool{false, true} {
		for _, eager := range []bool{false, true} {
			for _, when := range []string{"before the session", "before the first run", "after a run"} {
				for _, batch := range []int{-1, 2} {
					t.Run(fmt.Sprintf("external %v, eager %v, batch %d, %s", external, eager, batch, when), func(t *testing.T) {
						path, weights := saveNet(t, batch, external)
						whole, err := os.ReadFile(weights)
						require.NoError(t, err)
						m, err := Open(path)
						require.NoError(t, err)
						defer func() { require.NoError(t, m.Close()) }()
						o := Options{Backends: []backends.Backend{b}, Eager: eager}
						good, err := NewSession(ctx, m, o)
						require.NoError(t, err)
						want, err := run(good, 2)
						require.NoError(t, err)
						require.NoError(t, good.Close())

						cut := func() { require.NoError(t, os.Truncate(weights, 4096)) }
						if when == "before the session" {
							cut()
						}
						s, err := NewSession(ctx, m, o)
						if when == "before the session" && batch > 0 && !eager { // compiled there, and a weight is folded
							require.ErrorContains(t, err, weights)
							return
						}
						require.NoError(t, err)
						defer func() { require.NoError(t, s.Close()) }()
						sizes := []int{2}
						if batch < 0 {
							sizes = []int{2, 1, 2, 9, 2}
						}
						ran := when == "after a run"
						if ran {
							_, err := run(s, 2)
							require.NoError(t, err)
						}
						if when != "before the session" {
							cut()
						}
						failed := 0
						for _, n := range sizes {
							got, err := run(s, n)
							if err != nil {
								require.ErrorContains(t, err, weights)
								failed++
							} else if n == 2 {
								require.Equal(t, want, got)
							}
						}
						if !ran && (batch < 0 || eager) { // else the session has forms of all weights
							require.Equal(t, len(sizes), failed)
						}
						_, err = m.Encode()
						require.ErrorContains(t, err, weights)
						_, err = m.Graph.Init("folded").Encode()
						require.ErrorContains(t, err, weights)

						f, err := os.OpenFile(weights, os.O_WRONLY, 0)
						require.NoError(t, err)
						_, err = f.Write(whole)
						require.NoError(t, err)
						require.NoError(t, f.Close())
						for range 2 {
							got, err := run(s, 2)
							require.NoError(t, err)
							require.Equal(t, want, got)
						}
					})
				}
			}
		}
	}
}

// Nor does a file end the process that is cut short between its mapping and its decoding.
func TestOpenOfAFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	path, _ := saveNet(t, 1, false)
	buf, err := tensor.OpenBuffer(path)
	require.NoError(t, err)
	defer buf.Close()
	require.NoError(t, os.Truncate(path, 4096))
	_, err = decode(buf, filepath.Dir(path), true)
	require.ErrorContains(t, err, path)
}

// A closed session computes no more, and makes nothing that nobody would close; its model, and what other sessions gave, stay.
func TestClosedSession(t *testing.T) {
	ctx := context.Background()
	for _, o := range []Options{{}, {Eager: true}} {
		path, _ := saveNet(t, 2, false)
		m, err := Open(path)
		require.NoError(t, err)
		in := map[string]Value{"x": Of(tensor.New(tensor.F32, 2, 16, 12, 12))}
		other, err := NewSession(ctx, m, o)
		require.NoError(t, err)
		for _, runs := range []int{0, 1} {
			s, err := NewSession(ctx, m, o)
			require.NoError(t, err)
			for range runs {
				_, err = s.Run(ctx, in)
				require.NoError(t, err)
			}
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
			for _, x := range []*Session{s, s.Fork()} {
				_, err = x.Run(ctx, in)
				require.ErrorContains(t, err, "the session is closed")
				require.ErrorContains(t, x.Prepare(ctx, map[string]tensor.Spec{"x": in["x"].Tensor.Spec}), "the session is closed")
				require.Empty(t, x.graphs)
			}
			_, err = other.Run(ctx, in)
			require.NoError(t, err)
		}
		require.NoError(t, other.Close())
		require.NoError(t, m.Close())
	}
}

// After Close nothing reads what is no longer mapped.
func TestClosedModel(t *testing.T) {
	ctx := context.Background()
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	for _, eager := range []bool{false, true} {
		path, _ := saveNet(t, 2, false)
		m, err := Open(path)
		require.NoError(t, err)
		o := Options{Backends: []backends.Backend{b}, Eager: eager}
		s, err := NewSession(ctx, m, o)
		require.NoError(t, err)
		in := map[string]Value{"x": Of(tensor.New(tensor.F32, 2, 16, 12, 12))}
		_, err = s.Run(ctx, in)
		require.NoError(t, err)
		require.NoError(t, m.Close())
		for range 2 {
			_, err = s.Run(ctx, in)
			require.ErrorContains(t, err, "the model is closed")
			require.ErrorContains(t, s.Prepare(ctx, map[string]tensor.Spec{"x": in["x"].Tensor.Spec}), "the model is closed")
			_, err = NewSession(ctx, m, o)
			require.ErrorContains(t, err, "the model is closed")
			_, err = m.Encode()
			require.ErrorContains(t, err, "the model is closed")
			require.NoError(t, s.Close())
			require.NoError(t, m.Close())
		}
	}
}
