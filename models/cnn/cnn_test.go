package cnn

import (
	"context"
	stdimage "image"
	"image/color"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	_ "github.com/tessera-go/tessera/backends/cpu"
	"github.com/tessera-go/tessera/models/onnx"
)

func cpu(t testing.TB) []backends.Backend {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return []backends.Backend{b}
}

// stroke draws a vertical bar, which is a one.
func stroke(w, h int) stdimage.Image {
	g := stdimage.NewGray(stdimage.Rect(0, 0, w, h))
	for y := h / 6; y < h*5/6; y++ {
		for x := w*6/14 + 1; x < w*8/14+1; x++ {
			g.SetGray(x, y, color.Gray{Y: 250})
		}
	}
	return g
}

func TestDigits(t *testing.T) {
	c, err := Digits(context.Background(), Options{Backends: cpu(t), Top: 3})
	require.NoError(t, err)
	defer c.Close()
	got, err := c.Classify(context.Background(), []stdimage.Image{stroke(28, 28), stroke(56, 56), stroke(280, 280)})
	require.NoError(t, err)
	require.Len(t, got, 3)
	for _, r := range got {
		require.Equal(t, "1", r.Label)
		require.Greater(t, r.Score.Score, float32(0.5))
		require.Len(t, r.Top, 3)
		require.GreaterOrEqual(t, r.Top[0].Score, r.Top[1].Score)
	}
	require.Empty(t, c.Session().Eager())
	_, err = c.Classify(context.Background(), []stdimage.Image{stdimage.NewGray(stdimage.Rect(0, 0, 0, 0))})
	require.ErrorContains(t, err, "without pixels")
	none, err := c.Classify(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// mean is a classifier whose scores are the means of the channels.
func mean(t *testing.T, meta map[string]string, dims ...int) *onnx.Model {
	axes := []int64{2, 3}
	if dims[3] == 3 {
		axes = []int64{1, 2}
	}
	m, err := onnx.NewModel(13, &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("x", onnx.Float, dims...)},
		Nodes:   []*onnx.Node{{Op: "ReduceMean", In: []string{"x"}, Out: []string{"y"}, Attrs: []onnx.Attr{onnx.IntsAttr("axes", axes...), onnx.IntAttr("keepdims", 0)}}},
		Outputs: []onnx.ValueInfo{onnx.Info("y", onnx.Float, dims[0], 3)}})
	require.NoError(t, err)
	m.Metadata = meta
	return m
}

func TestLayoutsAndLabels(t *testing.T) {
	red := stdimage.NewRGBA(stdimage.Rect(0, 0, 9, 5))
	for i := 0; i < len(red.Pix); i += 4 {
		red.Pix[i], red.Pix[i+3] = 200, 255
	}
	for _, dims := range [][]int{{-1, 3, 4, 4}, {-1, 4, 4, 3}, {1, 3, 4, 4}, {2, 3, -1, -1}} {
		for _, labels := range []string{`["r","g","b"]`, `{"0":"r","1":"g","2":"b"}`, "r, g, b", "r\ng\nb"} {
			c, err := New(context.Background(), mean(t, map[string]string{"classes": labels}, dims...), Options{Backends: cpu(t)})
			require.NoError(t, err)
			got, err := c.Classify(context.Background(), []stdimage.Image{red, red, red})
			require.NoError(t, err)
			require.Len(t, got, 3)
			require.Equal(t, Score{0, "r", 1}, got[2].Score)
			require.NoError(t, c.Close())
		}
	}
	c, err := New(context.Background(), mean(t, nil, 1, 3, 4, 4), Options{Backends: cpu(t), Scale: 1.0 / 255, Mean: []float32{1, 0, 0}})
	require.NoError(t, err)
	got, err := c.Classify(context.Background(), []stdimage.Image{red})
	require.NoError(t, err)
	require.NotEqual(t, 0, got[0].Class)
	require.Equal(t, "1", got[0].Label)
}

// Names that cannot be those of the classes are refused: before anything runs if the file says how many there are, else before any
// result is given.
func TestNumberOfLabels(t *testing.T) {
	picture := []stdimage.Image{stroke(4, 4)}
	for _, labels := range [][]string{{"r", "g"}, {"r", "g", "b", "a"}, {}} {
		_, err := New(context.Background(), mean(t, nil, 1, 3, 4, 4), Options{Backends: cpu(t), Labels: labels})
		require.ErrorContains(t, err, "labels for the 3 classes")
		open := mean(t, nil, 1, 3, 4, 4)
		open.Graph.Outputs[0].Type = nil
		c, err := New(context.Background(), open, Options{Backends: cpu(t), Labels: labels})
		require.NoError(t, err)
		got, err := c.Classify(context.Background(), picture)
		require.ErrorContains(t, err, "labels for the 3 classes")
		require.Nil(t, got)
		require.NoError(t, c.Close())
	}
	c, err := New(context.Background(), mean(t, nil, 1, 3, 4, 4), Options{Backends: cpu(t), Labels: []string{"r", "g", "b"}})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func TestNoClassifier(t *testing.T) {
	m, err := onnx.NewModel(13, &onnx.Graph{Inputs: []onnx.ValueInfo{onnx.Info("x", onnx.Float, 1, 5)},
		Nodes: []*onnx.Node{{Op: "Relu", In: []string{"x"}, Out: []string{"y"}}}, Outputs: []onnx.ValueInfo{onnx.Info("y", onnx.Float, 1, 5)}})
	require.NoError(t, err)
	_, err = New(context.Background(), m, Options{Backends: cpu(t)})
	require.ErrorContains(t, err, "no classifier of pictures")
	_, err = New(context.Background(), mean(t, nil, 1, 3, 4, 4), Options{Backends: cpu(t), Std: []float32{0}})
	require.ErrorContains(t, err, "std is 0")
}
