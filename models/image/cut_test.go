package image

import (
	"image"
	"image/color"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// gradient has its x in red and its y in green.
func gradient(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			img.Set(x, y, color.RGBA{uint8(x), uint8(y), 0, 255})
		}
	}
	return img
}

func TestCut(t *testing.T) {
	src := gradient(100, 80)
	// Upright and unscaled: the same pixels.
	got, err := Cut(src, [4]Point{{10, 20}, {40, 20}, {40, 30}, {10, 30}}, 30, 10)
	require.NoError(t, err)
	for y := range 10 {
		for x := range 30 {
			require.Equal(t, src.RGBAAt(10+x, 20+y), got.RGBAAt(x, y))
		}
	}
	// A quarter turn: the corner that is named first comes to the upper left.
	got, err = Cut(src, [4]Point{{40, 20}, {40, 30}, {10, 30}, {10, 20}}, 10, 30)
	require.NoError(t, err)
	require.Equal(t, src.RGBAAt(39, 20), got.RGBAAt(0, 0))
	require.Equal(t, src.RGBAAt(39, 29), got.RGBAAt(9, 0))
	require.Equal(t, src.RGBAAt(10, 20), got.RGBAAt(0, 29))
	// At any angle the place of a pixel is known, and the gradient tells which was read.
	sin, cos := math.Sincos(0.3)
	at := func(u, v float64) Point { return Point{30 + u*cos - v*sin, 20 + u*sin + v*cos} }
	got, err = Cut(src, [4]Point{at(0, 0), at(40, 0), at(40, 12), at(0, 12)}, 40, 12)
	require.NoError(t, err)
	for y := range 12 {
		for x := range 40 {
			want := at(float64(x)+0.5, float64(y)+0.5)
			c := got.RGBAAt(x, y)
			require.InDelta(t, want.X-0.5, float64(c.R), 0.51)
			require.InDelta(t, want.Y-0.5, float64(c.G), 0.51)
		}
	}
	// Outside, the edge goes on; a picture with another origin and type is the same picture.
	gray := image.NewGray(image.Rect(-5, -5, 5, 5))
	for i := range gray.Pix {
		gray.Pix[i] = 77
	}
	got, err = Cut(gray, [4]Point{{-50, -50}, {50, -50}, {50, 50}, {-50, 50}}, 7, 7)
	require.NoError(t, err)
	require.Equal(t, color.RGBA{77, 77, 77, 255}, got.RGBAAt(0, 0))
	require.Equal(t, color.RGBA{77, 77, 77, 255}, got.RGBAAt(6, 6))

	for _, bad := range [][4]Point{{{X: math.NaN()}}, {{Y: math.Inf(1)}}} {
		_, err = Cut(src, bad, 5, 5)
		require.ErrorContains(t, err, "corner")
	}
	_, err = Cut(src, [4]Point{}, 0, 5)
	require.Error(t, err)
	_, err = Cut(src, [4]Point{}, 1<<20, 1<<20)
	require.Error(t, err)
}
