package main

import (
	"context"
	stdimage "image"
	"image/color"
	"image/draw"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/npm"
	"github.com/tessera-go/tessera/models/image"
)

func TestAnchors(t *testing.T) {
	require.Len(t, anchors, 896)
	require.Equal(t, image.Point{X: 0.5 / 16, Y: 0.5 / 16}, anchors[0])
	require.Equal(t, anchors[0], anchors[1])
	require.Equal(t, image.Point{X: 1.5 / 16, Y: 0.5 / 16}, anchors[2])
	require.Equal(t, image.Point{X: 0.5 / 16, Y: 1.5 / 16}, anchors[32])
	require.Equal(t, image.Point{X: 0.5 / 8, Y: 0.5 / 8}, anchors[512])
	require.Equal(t, image.Point{X: 7.5 / 8, Y: 7.5 / 8}, anchors[895])
}

// The network's numbers for one anchor, by hand.
func TestDecode(t *testing.T) {
	const side = 128
	scores, boxes := make([]float32, 896), make([]float32, 896*boxNumbers)
	for i := range scores {
		scores[i] = -100
	}
	const at = 512 + (3*8+5)*6 + 2 // row 3, column 5 of the coarse grid: its middle is at 88, 56
	scores[at] = 2
	copy(boxes[at*boxNumbers:], []float32{4, -2, 30, 20, 1, 2, -3, 4})
	faces := decode(scores, boxes, side)
	require.Len(t, faces, 1)
	f := faces[0]
	f.scale(side)
	require.InDelta(t, 1/(1+math.Exp(-2)), f.score, 1e-12)
	for _, c := range []struct{ want, got image.Point }{
		{image.Point{X: 92 - 15, Y: 54 - 10}, f.min}, {image.Point{X: 92 + 15, Y: 54 + 10}, f.max},
		{image.Point{X: 89, Y: 58}, f.points[0]}, {image.Point{X: 85, Y: 60}, f.points[1]}, {image.Point{X: 88, Y: 56}, f.points[5]},
	} {
		require.InDelta(t, c.want.X, c.got.X, 1e-9)
		require.InDelta(t, c.want.Y, c.got.Y, 1e-9)
	}
	scores[at] = float32(math.NaN())
	require.Empty(t, decode(scores, boxes, side))
}

func square(score, x, y, side float64) face {
	return face{score: score, min: image.Point{X: x, Y: y}, max: image.Point{X: x + side, Y: y + side}}
}

func TestOverlap(t *testing.T) {
	a := square(1, 0, 0, 10)
	require.Equal(t, 1.0, overlap(a, a))
	require.InDelta(t, 50.0/150, overlap(a, square(1, 5, 0, 10)), 1e-12)
	require.Zero(t, overlap(a, square(1, 10, 0, 10)))
	require.Zero(t, overlap(a, square(1, 20, 20, 10)))
}

// Boxes of one face become their weighted mean; those of another stay.
func TestMerge(t *testing.T) {
	got := merge([]face{square(0.6, 2, 0, 10), square(0.7, 50, 50, 10), square(0.9, 0, 0, 10), square(0.8, 8, 0, 10)})
	require.Len(t, got, 3)
	require.Equal(t, 0.9, got[0].score)
	require.InDelta(t, 2*0.6/1.5, got[0].min.X, 1e-12)
	require.InDelta(t, 10+2*0.6/1.5, got[0].max.X, 1e-12)
	require.InDelta(t, 8, got[1].min.X, 1e-12) // overlaps the first by 1/9 only
	require.InDelta(t, 50, got[2].min.X, 1e-12)
	require.Empty(t, merge(nil))
}

func openDetector(t *testing.T, file string) *detector {
	dir := npm.Models(t, file)
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	d, err := open(dir+"/"+file, b)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.close()) })
	return d
}

const (
	back  = "face_detection_back_256x256_barracuda.onnx"
	front = "face_detection_front_128x128_barracuda.onnx"
)

// A photograph with three faces, from the npm package tracking; where they are was read off the picture.
func TestPhotograph(t *testing.T) {
	const photo = "faces.jpg"
	for _, model := range []string{back, front} {
		t.Run(model, func(t *testing.T) {
			dir := npm.Models(t, model, photo)
			pictures, err := image.ReadFile(dir + "/" + photo)
			require.NoError(t, err)
			d := openDetector(t, model)
			faces, err := d.find(context.Background(), pictures[0])
			require.NoError(t, err)
			require.Len(t, faces, 3)
			require.Empty(t, d.session.Eager())
			for _, want := range []struct{ rightEye, leftEye, mouth image.Point }{
				{image.Point{X: 76, Y: 123}, image.Point{X: 113, Y: 124}, image.Point{X: 96, Y: 163}},
				{image.Point{X: 258, Y: 171}, image.Point{X: 298, Y: 170}, image.Point{X: 280, Y: 214}},
				{image.Point{X: 482, Y: 93}, image.Point{X: 520, Y: 98}, image.Point{X: 496, Y: 134}},
			} {
				found := false
				for _, f := range faces {
					near := func(a, b image.Point) bool { return math.Hypot(a.X-b.X, a.Y-b.Y) < 10 }
					found = found || near(f.points[0], want.rightEye) && near(f.points[1], want.leftEye) && near(f.points[3], want.mouth)
				}
				require.True(t, found, "%v in %v", want, faces)
			}
			canvas := annotate(pictures[0], faces).(*stdimage.RGBA)
			require.Equal(t, color.RGBA{R: 255, A: 255}, canvas.RGBAAt(int(faces[0].points[0].X+0.5), int(faces[0].points[0].Y+0.5)))
		})
	}
}

// No face in an empty picture, of whatever proportions.
func TestNoFace(t *testing.T) {
	d := openDetector(t, back)
	for _, size := range [][2]int{{300, 200}, {1, 1}, {5, 900}} {
		img := stdimage.NewRGBA(stdimage.Rect(0, 0, size[0], size[1]))
		draw.Draw(img, img.Rect, stdimage.NewUniform(color.Gray{Y: 128}), stdimage.Point{}, draw.Src)
		faces, err := d.find(context.Background(), img)
		require.NoError(t, err)
		require.Empty(t, faces)
	}
}

// A model of another kind is refused by name.
func TestOtherModel(t *testing.T) {
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	_, err = open("../../models/cnn/digits.onnx", b)
	require.ErrorContains(t, err, "no BlazeFace")
	_, err = open("absent.onnx", b)
	require.ErrorContains(t, err, "how to get a model")
}
