package main

import (
	"context"
	stdimage "image"
	"image/color"
	"image/draw"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/npm"
	"github.com/tessera-go/tessera/models/image"
)

// rectangle returns the corners of a rectangle by its centre, sides and angle.
func rectangle(cx, cy, w, h, angle float64) [4]image.Point {
	sin, cos := math.Sincos(angle)
	var box [4]image.Point
	for i, s := range [4][2]float64{{-1, -1}, {1, -1}, {1, 1}, {-1, 1}} {
		u, v := s[0]*w/2, s[1]*h/2
		box[i] = image.Point{X: cx + u*cos - v*sin, Y: cy + u*sin + v*cos}
	}
	return box
}

// paint fills a rectangle of a map.
func paint(prob []float32, w int, box [4]image.Point, p float32) {
	for i := range prob {
		at, inside := image.Point{X: float64(i % w), Y: float64(i / w)}, true
		for j := range box {
			inside = inside && cross(box[j], box[(j+1)%4], at) >= 0
		}
		if inside {
			prob[i] = p
		}
	}
}

func requireBox(t *testing.T, want, got [4]image.Point, tol float64) {
	t.Helper()
	for i := range want {
		require.InDelta(t, want[i].X, got[i].X, tol, "corner %d of %v, %v is right", i, got, want)
		require.InDelta(t, want[i].Y, got[i].Y, tol, "corner %d of %v, %v is right", i, got, want)
	}
}

// Boxes are found again at any angle, grown by area x 1.5 / perimeter on each side; what is too faint or too small is not text.
func TestTextBoxes(t *testing.T) {
	const w, h = 320, 256
	for _, angle := range []float64{0, 0.1, -0.4, 0.7} {
		prob := make([]float32, w*h)
		paint(prob, w, rectangle(150, 100, 120, 24, angle), 0.9)
		paint(prob, w, rectangle(60, 220, 40, 12, 0), 0.5)  // text pixels, but no box
		paint(prob, w, rectangle(250, 220, 60, 1.5, 0), 1)  // a line of a pixel
		paint(prob, w, rectangle(150, 200, 60, 20, 0), 0.2) // no text pixels
		boxes := textBoxes(prob, w, h)
		require.Len(t, boxes, 1)
		grow := 120 * 24 * 1.5 / (2 * (120 + 24))
		requireBox(t, rectangle(150, 100, 120+2*grow, 24+2*grow, angle), boxes[0], 3)
	}
	require.Empty(t, textBoxes(make([]float32, w*h), w, h))
	// Text over the whole map.
	full := make([]float32, 64*32)
	for i := range full {
		full[i] = 1
	}
	boxes := textBoxes(full, 64, 32)
	require.Len(t, boxes, 1)
	// Two regions that touch at a corner are one.
	prob := make([]float32, w*h)
	for y := range 10 {
		for x := range 10 {
			prob[(20+y)*w+20+x], prob[(30+y)*w+30+x] = 1, 1
		}
	}
	require.Len(t, regions(prob, w, h), 1)
}

func TestUnclip(t *testing.T) {
	for _, angle := range []float64{0, 0.3, 1.2} {
		grow := 30 * 10 * 1.5 / 80
		requireBox(t, rectangle(50, 40, 30+2*grow, 10+2*grow, angle), unclip(rectangle(50, 40, 30, 10, angle)), 1e-9)
	}
}

func TestSmallestRectangle(t *testing.T) {
	for _, angle := range []float64{0, 0.2, -0.6, 0.78} {
		want := rectangle(0, 0, 20, 7, angle)
		points := want[:]
		for i := range 40 { // points inside change nothing
			a := float64(i)
			points = append(points, image.Point{X: 2 * math.Sin(a), Y: 2 * math.Cos(3*a)})
		}
		requireBox(t, want, smallestRectangle(points), 1e-9)
	}
	require.Zero(t, shortSide(smallestRectangle([]image.Point{{X: 3, Y: 4}})))
	require.Zero(t, shortSide(smallestRectangle([]image.Point{{X: 3, Y: 4}, {X: 9, Y: 4}, {X: 5, Y: 4}})))
}

func TestMapSize(t *testing.T) {
	for _, c := range [][4]int{{640, 480, 640, 480}, {100, 30, 96, 32}, {1, 1, 32, 32}, {1920, 1080, 960, 544}, {10000, 10, 960, 32}} {
		w, h := mapSize(c[0], c[1])
		require.Equal(t, c[2:], []int{w, h})
	}
}

func TestReadingOrder(t *testing.T) {
	a, b, c, d := rectangle(20, 10, 30, 10, 0), rectangle(80, 13, 30, 10, 0), rectangle(130, 9, 30, 10, 0), rectangle(20, 30, 30, 10, 0)
	require.Equal(t, [][4]image.Point{a, b, c, d}, readingOrder([][4]image.Point{d, b, c, a}))
}

func TestDecode(t *testing.T) {
	characters := characters("a\nb\r\nc\n")
	require.Equal(t, []string{"", "a", "b", "c", " "}, characters)
	var prob []float32
	for _, step := range []struct {
		class int
		p     float32
	}{{0, 0.9}, {1, 0.8}, {1, 0.9}, {0, 0.9}, {1, 0.6}, {4, 1}, {3, 0.8}, {2, 0.8}, {0, 1}} {
		row := make([]float32, 5)
		for i := range row {
			row[i] = (1 - step.p) / 4
		}
		row[step.class] = step.p
		prob = append(prob, row...)
	}
	text, confidence := decode(prob, characters)
	require.Equal(t, "aa cb", text)
	require.InDelta(t, (0.8+0.6+1+0.8+0.8)/5, confidence, 1e-6)
	text, confidence = decode(nil, characters)
	require.Empty(t, text)
	require.Zero(t, confidence)
}

func TestLineTensor(t *testing.T) {
	strip := stdimage.NewRGBA(stdimage.Rect(0, 0, 200, 96))
	draw.Draw(strip, strip.Rect, stdimage.NewUniform(color.RGBA{R: 255, A: 255}), stdimage.Point{}, draw.Src)
	in, err := lineTensor(strip)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3, 48, 320}, in.Shape())
	v := in.Floats()
	for channel, want := range []float64{-1, -1, 1} { // blue first
		row := v[channel*48*320:][:320]
		require.Equal(t, want, row[0])
		require.Equal(t, want, row[99])
		require.Zero(t, row[100])
	}
}

// page renders lines of text, black on white.
func page(t *testing.T, w, h int, lines []rendered) *stdimage.RGBA {
	img := stdimage.NewRGBA(stdimage.Rect(0, 0, w, h))
	draw.Draw(img, img.Rect, stdimage.White, stdimage.Point{}, draw.Src)
	f, err := opentype.Parse(goregular.TTF)
	require.NoError(t, err)
	for _, l := range lines {
		face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: l.size, DPI: 72})
		require.NoError(t, err)
		d := font.Drawer{Dst: img, Src: stdimage.Black, Face: face, Dot: fixed.P(l.x, l.y)}
		d.DrawString(l.text)
	}
	return img
}

type rendered struct {
	text string
	x, y int // where the base line begins
	size float64
}

// unspaced is without spaces: this model is trained on Chinese, and leaves some of those between Latin words out.
func unspaced(s string) string { return strings.ReplaceAll(s, " ", "") }

func openReader(t *testing.T) *reader {
	dir := npm.Models(t, detectorFile, recognizerFile, charactersFile)
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	r, err := open(dir, b)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.close()) })
	return r
}

// A page that is rendered here is read: several sizes, two columns, a line longer than the unit of widths, and the page turned.
func TestRenderedPage(t *testing.T) {
	r := openReader(t)
	want := []rendered{
		{"Invoice 2024-0117", 60, 80, 44},
		{"Total", 60, 170, 30}, {"1,284.50", 460, 170, 30},
		{"The quick brown fox jumps over the lazy dog", 60, 260, 26},
		{"Thank you!", 60, 360, 60},
	}
	img := page(t, 800, 420, want)
	lines, err := r.read(context.Background(), img)
	require.NoError(t, err)
	require.Len(t, lines, len(want))
	for i, l := range lines {
		t.Logf("%.3f %q %.0f", l.confidence, l.text, l.box)
		require.Equal(t, unspaced(want[i].text), unspaced(l.text))
		require.Greater(t, l.confidence, float32(0.9))
		// The box holds the text: its base line begins inside, and it is not much higher than the letters.
		require.InDelta(t, float64(want[i].x), l.box[0].X, want[i].size)
		require.Less(t, l.box[0].Y, float64(want[i].y))
		require.Greater(t, l.box[3].Y, float64(want[i].y))
		require.Less(t, distance(l.box[0], l.box[3]), 2.2*want[i].size)
	}
	require.Empty(t, r.detector.session.Eager())
	require.Empty(t, r.recognizer.session.Eager())

	path := filepath.Join(t.TempDir(), "annotated.png")
	require.NoError(t, image.WritePNG(path, annotate(img, lines)))
	back, err := image.ReadFile(path)
	require.NoError(t, err)
	corner := lines[0].box[0]
	require.Equal(t, color.RGBA{R: 220, A: 255}, image.Canvas(back[0]).RGBAAt(int(corner.X), int(corner.Y)))

	// Turned by six degrees, around its centre.
	sin, cos := math.Sincos(6 * math.Pi / 180)
	at := func(x, y float64) image.Point {
		x, y = x-400, y-210
		return image.Point{X: 400 + x*cos - y*sin, Y: 210 + x*sin + y*cos}
	}
	turned, err := image.Cut(img, [4]image.Point{at(-60, -60), at(860, -60), at(860, 480), at(-60, 480)}, 920, 540)
	require.NoError(t, err)
	lines, err = r.read(context.Background(), turned)
	require.NoError(t, err)
	got := map[string]bool{}
	for _, l := range lines {
		got[unspaced(l.text)] = true
	}
	for _, w := range want {
		require.True(t, got[unspaced(w.text)], "%q of %v", w.text, got)
	}
}

// A picture without text has none, and a picture of a few pixels does no harm.
func TestNoText(t *testing.T) {
	r := openReader(t)
	for _, size := range [][2]int{{300, 200}, {1, 1}, {3, 400}} {
		lines, err := r.read(context.Background(), page(t, size[0], size[1], nil))
		require.NoError(t, err)
		require.Empty(t, lines)
	}
}
