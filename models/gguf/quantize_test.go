package gguf

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func quantized(t *testing.T, f *File, o QuantizeOptions) (*File, []QuantizedTensor) {
	var out bytes.Buffer
	report, err := Quantize(context.Background(), &out, f, o)
	require.NoError(t, err)
	g, err := Parse(out.Bytes())
	require.NoError(t, err)
	return g, report
}

// matrices returns a file with two matrices, one of whose rows is no whole block, a norm and a vector.
func matrices(t *testing.T) *File {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(dims ...int) tensor.Tensor {
		x := tensor.New(tensor.F32, dims...)
		for i := range tensor.Data[float32](x) {
			tensor.Data[float32](x)[i] = float32(r.NormFloat64())
		}
		return x
	}
	var w Writer
	w.Set("general.architecture", "llama")
	w.Set("general.file_type", uint32(0))
	w.AddTensor("token_embd.weight", random(7, 512))
	w.AddTensor("blk.0.ffn_up.weight", random(3, 172))
	w.AddTensor("blk.0.attn_q_norm.weight", random(4, 64))
	w.AddTensor("output_norm.weight", random(512))
	w.AddTensor("blk.0.attn_q.bias", random(2, 512))
	w.AddTensor("output.weight", random(7, 512))
	var out bytes.Buffer
	_, err := w.WriteTo(&out)
	require.NoError(t, err)
	f, err := Parse(out.Bytes())
	require.NoError(t, err)
	return f
}

func TestQuantize(t *testing.T) {
	f := matrices(t)
	for name, r := range recipes {
		var last int64
		o := QuantizeOptions{Type: strings.ToUpper(name), Pure: true, Progress: func(_ string, done, total int64) {
			require.Greater(t, done, last)
			require.LessOrEqual(t, done, total)
			last = done
		}}
		g, report := quantized(t, f, o)
		n, err := g.Int("general.file_type")
		require.NoError(t, err)
		require.EqualValues(t, r.fileType, n)
		for i, info := range g.Tensors {
			require.Equal(t, f.Tensors[i].Name, info.Name)
			require.Equal(t, f.Tensors[i].Dims, info.Dims)
			want := r.base
			switch {
			case strings.Contains(info.Name, "norm"), strings.Contains(info.Name, "bias"), info.Dims[len(info.Dims)-1]%want.Block() != 0:
				want = tensor.F32
			}
			require.Equal(t, want, info.Type.DType(), info.Name)
			require.EqualValues(t, info.Bytes, report[i].BytesOut)
			a, err := f.Tensor(info.Name)
			require.NoError(t, err)
			b, err := g.Tensor(info.Name)
			require.NoError(t, err)
			back, err := quant.Decode(b)
			require.NoError(t, err)
			var sum float64
			values := back.Floats()
			for j, x := range a.Floats() {
				sum += math.Pow(x-values[j], 2)
			}
			require.InDelta(t, math.Sqrt(sum/float64(a.Elems())), report[i].RMSE, 1e-9)
		}
		require.EqualValues(t, report[0].BytesIn+report[1].BytesIn+report[2].BytesIn+report[3].BytesIn+report[4].BytesIn+report[5].BytesIn, last)
	}
}

func TestQuantizeErrors(t *testing.T) {
	f := matrices(t)
	_, err := Quantize(context.Background(), &bytes.Buffer{}, f, QuantizeOptions{Type: "q9"})
	require.ErrorContains(t, err, `type "q9" is unknown; known are bf16`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Quantize(ctx, &bytes.Buffer{}, f, QuantizeOptions{Type: "q8_0"})
	require.ErrorIs(t, err, context.Canceled)
	q, _ := quantized(t, f, QuantizeOptions{Type: "q8_0"})
	_, err = Quantize(context.Background(), &bytes.Buffer{}, q, QuantizeOptions{Type: "q4_0"})
	require.ErrorContains(t, err, `tensor "token_embd.weight" is q8_0 already`)
	_, err = Quantize(context.Background(), &bytes.Buffer{}, q, QuantizeOptions{Type: "q4_0", Requantize: true})
	require.NoError(t, err)

	var w Writer
	x := tensor.New(tensor.F32, 3, 64)
	tensor.Data[float32](x)[2*64+40] = float32(math.Inf(1))
	w.AddTensor("a.weight", x)
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	require.NoError(t, err)
	bad, err := Parse(out.Bytes())
	require.NoError(t, err)
	_, err = Quantize(context.Background(), &bytes.Buffer{}, bad, QuantizeOptions{Type: "q8_0"})
	require.ErrorContains(t, err, `tensor "a.weight": row 2: q8_0 block 1`)

	// What is copied as it is is looked at too: vectors, and matrices that are in the type already.
	for _, d := range []tensor.DType{tensor.F32, tensor.Q8_0} {
		var w Writer
		x := tensor.New(d, 3, 64)
		raw := x.Raw()
		at := 2 * len(raw) / 3
		want := "row 2: f32 block 7"
		if d == tensor.F32 {
			at += 7 * 4
			raw[at+2], raw[at+3] = 0xc0, 0x7f
		} else {
			want = "row 2: q8_0 block 1"
			at += 34
			raw[at+1] = 0x7c
		}
		w.AddTensor("blk.0.attn_norm.weight", x)
		var out bytes.Buffer
		_, err = w.WriteTo(&out)
		require.NoError(t, err)
		bad, err := Parse(out.Bytes())
		require.NoError(t, err)
		_, err = Quantize(context.Background(), &bytes.Buffer{}, bad, QuantizeOptions{Type: "q8_0"})
		require.ErrorContains(t, err, `tensor "blk.0.attn_norm.weight": `+want)
	}
}

// Tensors of types that are only listed are passed on.
func TestQuantizePassesOn(t *testing.T) {
	var w Writer
	w.Add("a.weight", 23, []int{2, 256}, func(out io.Writer) error { _, err := out.Write(bytes.Repeat([]byte{0xff}, 2*136)); return err })
	var in bytes.Buffer
	_, err := w.WriteTo(&in)
	require.NoError(t, err)
	f, err := Parse(in.Bytes())
	require.NoError(t, err)
	g, report := quantized(t, f, QuantizeOptions{Type: "q8_0"})
	require.Equal(t, "iq4_xs", report[0].To)
	require.Equal(t, f.Data(&f.Tensors[0]), g.Data(&g.Tensors[0]))
}

// The types that llama.cpp writes for each recipe, over models of several shapes: testdata/recipes.txt says how it was made.
func TestMixturesAreLlamaCpps(t *testing.T) {
	file, err := os.Open("testdata/recipes.txt")
	require.NoError(t, err)
	defer file.Close()
	var shape *mixtureShape
	checked, joined := 0, 0
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		w := strings.Fields(lines.Text())
		switch {
		case len(w) == 0 || w[0] == "#":
		case w[0] == "model":
			shape = &mixtureShape{}
			_, err := fmt.Sscan(strings.Join(w[1:7], " "), &shape.layers, &shape.dim, &shape.ffn, &shape.heads, &shape.kv, &shape.separate)
			require.NoError(t, err)
			if shape.joined = len(w) > 7; shape.joined {
				require.Equal(t, "qkv", w[7])
				joined++
			}
		default: // recipe, then tensor=type
			f := shape.file(t)
			mix := newMixture(f, w[0])
			for _, pair := range w[1:] {
				name, want, _ := strings.Cut(pair, "=")
				info := f.Info(name)
				require.NotNil(t, info, name)
				got := mix.choose(info, recipes[w[0]].base)
				if info.Dims[len(info.Dims)-1]%got.Block() != 0 {
					got = tensor.F32
				}
				if want == "f16" && !strings.Contains(w[0], "_k") {
					want = "f32" // rows that are no whole blocks stay as they are
				}
				require.Equal(t, want, got.String(), "%s of %s, %d layers", name, w[0], shape.layers)
				checked++
			}
		}
	}
	require.NoError(t, lines.Err())
	require.Greater(t, checked, 500)
	require.Equal(t, 2, joined)
}

type mixtureShape struct {
	layers, dim, ffn, heads, kv, separate int
	joined                                bool // one tensor makes queries, keys and values, and one gate and up
}

// file returns a file of the shape whose tensors hold nothing: only names and dimensions matter.
func (s *mixtureShape) file(t *testing.T) *File {
	f := &File{names: map[string]int{}, keys: map[string]int{}}
	add := func(name string, dims ...int) {
		f.names[name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, TensorInfo{Name: name, Dims: dims})
	}
	set := func(key string, v any) {
		f.keys[key] = len(f.Metadata)
		f.Metadata = append(f.Metadata, KeyValue{key, v})
	}
	set("general.architecture", "llama")
	set("llama.block_count", uint32(s.layers))
	set("llama.attention.head_count", uint32(s.heads))
	set("llama.attention.head_count_kv", uint32(s.kv))
	add("token_embd.weight", 64, s.dim)
	if s.separate != 0 {
		add("output.weight", 64, s.dim)
	}
	kv := s.dim / s.heads * s.kv
	for i := range s.layers {
		p := fmt.Sprintf("blk.%d.", i)
		if s.joined {
			add(p+"attn_qkv.weight", s.dim+2*kv, s.dim)
			add(p+"ffn_up.weight", 2*s.ffn, s.dim)
		} else {
			add(p+"attn_q.weight", s.dim, s.dim)
			add(p+"attn_k.weight", kv, s.dim)
			add(p+"attn_v.weight", kv, s.dim)
			add(p+"ffn_gate.weight", s.ffn, s.dim)
			add(p+"ffn_up.weight", s.ffn, s.dim)
		}
		add(p+"attn_output.weight", s.dim, s.dim)
		add(p+"ffn_down.weight", s.dim, s.ffn)
	}
	return f
}

// On the real weights of a layer no format loses more than GGML's encoder does, by the figures that package quant's tests keep.
func TestQuantizeErrorOnRealWeights(t *testing.T) {
	f, err := Open(shared.File(t, "data/models/tolstoy-3m.gguf"))
	require.NoError(t, err)
	defer f.Close()
	golden, err := os.ReadFile("../../quant/testdata/ggml.txt")
	require.NoError(t, err)
	for _, line := range strings.Split(string(golden), "\n") {
		var name string
		var want float64
		if n, _ := fmt.Sscanf(line, "%s weights squared_error %g", &name, &want); n != 2 {
			continue
		}
		d, err := tensor.ParseDType(name)
		require.NoError(t, err)
		var sum float64
		for i := range f.Tensors {
			if len(f.Tensors[i].Dims) < 2 || !strings.HasPrefix(f.Tensors[i].Name, "blk.1.") {
				continue
			}
			x, err := f.View(&f.Tensors[i])
			require.NoError(t, err)
			q, err := quant.Encode(d, x)
			require.NoError(t, err)
			back, err := quant.Decode(q)
			require.NoError(t, err)
			a, b := tensor.Data[float32](x), tensor.Data[float32](back)
			for j := range a {
				e := float64(a[j]) - float64(b[j])
				sum += e * e
			}
		}
		t.Logf("%s: squared error %.5g, GGML's %.5g", name, sum, want)
		require.LessOrEqual(t, sum, want*(1+1e-9), name)
	}
}
