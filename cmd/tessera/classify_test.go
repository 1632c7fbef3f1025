package main

import (
	"bufio"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/shared"
)

// one draws a handwritten-looking 1: white on black.
func one(t *testing.T) string {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 28, 28))
	for y := 5; y < 23; y++ {
		for x := 13; x < 16; x++ {
			img.SetGray(x, y, color.Gray{Y: 255})
		}
	}
	path := filepath.Join(t.TempDir(), "one.png")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, png.Encode(f, img))
	require.NoError(t, f.Close())
	return path
}

func TestClassify(t *testing.T) {
	path := one(t)
	for _, backend := range []string{"cpu", "xdna", "xdna2", "aie"} {
		out, _, err := call(t, "classify", path, path, "--json", "--backend", backend)
		require.NoError(t, err)
		lines := 0
		for s := bufio.NewScanner(strings.NewReader(out)); s.Scan(); lines++ {
			var r classification
			require.NoError(t, json.Unmarshal(s.Bytes(), &r))
			require.Equal(t, path, r.File)
			require.Equal(t, "1", r.Label, backend)
			require.Greater(t, r.Score, float32(0.5))
			require.Len(t, r.Top, 5)
		}
		require.Equal(t, 2, lines)
	}
}

func TestClassifyWithModelAndLabels(t *testing.T) {
	labels := filepath.Join(t.TempDir(), "labels")
	require.NoError(t, os.WriteFile(labels, []byte("zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n"), 0o600))
	model := shared.File(t, "data/models/mnist-12.onnx")
	out, _, err := call(t, "classify", one(t), "--model", model, "--labels", labels)
	require.NoError(t, err)
	require.Contains(t, out, ": one (")
	doc := jsonOf(t, "inspect", model)
	require.NotEmpty(t, doc["nodes"])
}

func TestClassifyMistakes(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.png")
	require.NoError(t, os.WriteFile(text, []byte("no picture"), 0o600))
	nine := filepath.Join(t.TempDir(), "nine")
	require.NoError(t, os.WriteFile(nine, []byte("0\n1\n2\n3\n4\n5\n6\n7\n8\n"), 0o600))
	out, _, err := call(t, "classify", one(t), "--labels", nine)
	require.ErrorContains(t, err, "9 labels for the 10 classes")
	require.Equal(t, 1, cli.ExitCode(err))
	require.Empty(t, out)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"classify"}, 2}, {[]string{"classify", "none.png"}, 1}, {[]string{"classify", text}, 1}, {[]string{"classify", one(t), "--mean", "x"}, 2},
		{[]string{"classify", one(t), "--std", "0"}, 2}, {[]string{"classify", one(t), "--top", "0"}, 2}, {[]string{"classify", one(t), "--labels", "none"}, 1},
	} {
		_, _, err := call(t, c.args...)
		require.Equal(t, c.code, cli.ExitCode(err), "%v: %v", c.args, err)
	}
}

func TestClassifyWithoutPasses(t *testing.T) {
	nodes := func(args ...string) (n int64) {
		_, report, err := call(t, append([]string{"classify", one(t), "--json", "--report"}, args...)...)
		require.NoError(t, err)
		var r graph.Report
		require.NoError(t, json.Unmarshal([]byte(report), &r))
		for _, b := range r.Backends {
			n += b.Nodes
		}
		return n
	}
	require.Greater(t, nodes("--disable-pass", "all"), nodes())
}

// The report covers all pictures: those of the last batch, which may be smaller and has a graph of its own, are not all.
func TestClassifyReportCoversAllBatches(t *testing.T) {
	for _, c := range []struct {
		batch string
		runs  int64
	}{{"5", 1}, {"2", 3}, {"4", 2}} {
		idx := idxOf(t, 5)
		_, report, err := call(t, "classify", idx, "--json", "--report", "--backend", "aie", "--batch", c.batch)
		require.NoError(t, err)
		var r graph.Report
		require.NoError(t, json.Unmarshal([]byte(report), &r))
		require.Equal(t, "aie", r.Backends[0].Name)
		require.Equal(t, 4*c.runs, r.Backends[0].Products, "batches of %s", c.batch)
	}
}

// idxOf writes an IDX file of pictures.
func idxOf(t *testing.T, n int) string {
	t.Helper()
	data := append([]byte{0, 0, 8, 3, 0, 0, 0, byte(n), 0, 0, 0, 28, 0, 0, 0, 28}, make([]byte, n*28*28)...)
	for i := 16; i < len(data); i++ {
		data[i] = byte(i * i)
	}
	path := filepath.Join(t.TempDir(), "pictures.idx")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}
