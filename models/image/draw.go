package image

import (
	"image"
	"image/color"
	"image/png"
	"os"

	"golang.org/x/image/draw"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/math/fixed"
)

// Canvas returns a copy of the picture that can be drawn on.
func Canvas(img image.Image) *image.RGBA {
	b := img.Bounds()
	dst := image.NewRGBA(image.Rect(0, 0, b.Dx(), b.Dy()))
	draw.Draw(dst, dst.Bounds(), img, b.Min, draw.Src)
	return dst
}

// Point is a place in a picture, in pixels from the upper left corner.
type Point struct{ X, Y float64 }

// Polygon draws the outline of a polygon, of a thickness in pixels.
func Polygon(dst *image.RGBA, points []Point, c color.Color, thickness int) {
	for i, p := range points {
		line(dst, p, points[(i+1)%len(points)], c, thickness)
	}
}

// Box draws the outline of a rectangle.
func Box(dst *image.RGBA, x0, y0, x1, y1 float64, c color.Color, thickness int) {
	Polygon(dst, []Point{{x0, y0}, {x1, y0}, {x1, y1}, {x0, y1}}, c, thickness)
}

// line steps along the longer axis, and fills a square of the thickness at each step.
func line(dst *image.RGBA, a, b Point, c color.Color, thickness int) {
	const far = 1 << 20 // what lies beyond is not drawn, however far the ends are
	steps := int(min(max(abs(b.X-a.X), abs(b.Y-a.Y)), far)) + 1
	half := thickness / 2
	for i := 0; i <= steps; i++ {
		t := float64(i) / float64(steps)
		x, y := int(a.X+t*(b.X-a.X)+0.5), int(a.Y+t*(b.Y-a.Y)+0.5)
		for dy := -half; dy < thickness-half; dy++ {
			for dx := -half; dx < thickness-half; dx++ {
				if (image.Point{X: x + dx, Y: y + dy}).In(dst.Rect) {
					dst.Set(x+dx, y+dy, c)
				}
			}
		}
	}
}

func abs(v float64) float64 { return max(v, -v) }

// Text writes a line of text whose upper left corner is at x, y, on a background of its own. The built-in font has 7 x 13 pixels a
// character and knows Latin letters; others appear as boxes.
func Text(dst *image.RGBA, x, y int, s string, ink, paper color.Color) {
	face := basicfont.Face7x13
	width := font.MeasureString(face, s).Ceil()
	draw.Draw(dst, image.Rect(x, y, x+width+2, y+face.Height), image.NewUniform(paper), image.Point{}, draw.Src)
	d := font.Drawer{Dst: dst, Src: image.NewUniform(ink), Face: face, Dot: fixed.P(x+1, y+face.Ascent)}
	d.DrawString(s)
}

// WritePNG writes a picture to a file.
func WritePNG(path string, img image.Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := png.Encode(f, img); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
