package image

import (
	"fmt"
	"image"
	"image/draw"
	"math"
)

// Cut returns what lies inside a quadrilateral, as w x h pixels. The corners run clockwise from the one that becomes the upper left, so
// that text that leans comes out upright. Pixels in between are interpolated; those outside the picture repeat its edge.
func Cut(img image.Image, corners [4]Point, w, h int) (*image.RGBA, error) {
	b := img.Bounds()
	if w < 1 || h < 1 || w > MaxPixels/h || b.Empty() {
		return nil, fmt.Errorf("cut of %d x %d pixels from %v", w, h, b)
	}
	for _, p := range corners {
		if !(math.Abs(p.X) <= MaxPixels && math.Abs(p.Y) <= MaxPixels) { // NaN too
			return nil, fmt.Errorf("cut with a corner at %g, %g", p.X, p.Y)
		}
	}
	src, ok := img.(*image.RGBA)
	if !ok {
		src = image.NewRGBA(b)
		draw.Draw(src, b, img, b.Min, draw.Src)
	}
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		v := (float64(y) + 0.5) / float64(h)
		left, right := between(corners[0], corners[3], v), between(corners[1], corners[2], v)
		for x := range w {
			p := between(left, right, (float64(x)+0.5)/float64(w))
			sample(dst.Pix[dst.PixOffset(x, y):][:4], src, p.X-0.5, p.Y-0.5)
		}
	}
	return dst, nil
}

func between(a, b Point, t float64) Point { return Point{a.X + t*(b.X-a.X), a.Y + t*(b.Y-a.Y)} }

// sample interpolates between the four pixels around a place; pixel 0 has its centre at 0.
func sample(dst []uint8, src *image.RGBA, x, y float64) {
	x0, y0 := math.Floor(x), math.Floor(y)
	fx, fy := x-x0, y-y0
	at := func(x, y float64) []uint8 {
		px := min(max(int(x), 0), src.Rect.Dx()-1) + src.Rect.Min.X
		py := min(max(int(y), 0), src.Rect.Dy()-1) + src.Rect.Min.Y
		return src.Pix[src.PixOffset(px, py):][:4]
	}
	a, b, c, d := at(x0, y0), at(x0+1, y0), at(x0, y0+1), at(x0+1, y0+1)
	for i := range dst {
		top := float64(a[i]) + fx*(float64(b[i])-float64(a[i]))
		bottom := float64(c[i]) + fx*(float64(d[i])-float64(c[i]))
		dst[i] = uint8(top + fy*(bottom-top) + 0.5)
	}
}
