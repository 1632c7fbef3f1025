package image

import (
	"fmt"
	"image"

	"golang.org/x/image/draw"

	"github.com/tessera-go/tessera/tensor"
)

// Format says what a model wants its pictures to be. The zero value is three channels, red first, of raw values 0 to 255.
type Format struct {
	Last     bool      // [H, W, C] instead of [C, H, W]
	Channels int       // 1 (luminance), 3 or 4 (with a fourth of zeros); 0 means 3
	BGR      bool      // blue first
	Scale    float32   // first: value x Scale; 0 means 1
	Mean     []float32 // then: - Mean, / Std; one number a channel, or one for all; none means 0 and 1
	Std      []float32
}

// Check returns an error for a format that makes no sense.
func (f Format) Check() error {
	c := f.channels()
	if c != 1 && c != 3 && c != 4 {
		return fmt.Errorf("pictures of %d channels: 1, 3 or 4 are possible", c)
	}
	for name, v := range map[string][]float32{"mean": f.Mean, "std": f.Std} {
		if len(v) > 1 && len(v) != c {
			return fmt.Errorf("%s has %d numbers for %d channels", name, len(v), c)
		}
	}
	for _, s := range f.Std {
		if s == 0 {
			return fmt.Errorf("std is 0")
		}
	}
	return nil
}

func (f Format) channels() int {
	if f.Channels == 0 {
		return 3
	}
	return f.Channels
}

// Dims returns the dimensions of a picture of w x h pixels without those of a batch.
func (f Format) Dims(w, h int) []int {
	if f.Last {
		return []int{h, w, f.channels()}
	}
	return []int{f.channels(), h, w}
}

// Put writes a picture into dst, a contiguous f32 tensor of Dims (dimensions of 1 before them allowed), resizing it to fit.
func (f Format) Put(dst tensor.Tensor, img image.Image) error {
	if err := f.Check(); err != nil {
		return err
	}
	if dst.DType != tensor.F32 || !dst.IsContiguous() || dst.Rank < 3 {
		return fmt.Errorf("picture into %v: a contiguous f32 tensor is right", dst)
	}
	c, h, w := dst.Dim(-3), dst.Dim(-2), dst.Dim(-1)
	if f.Last {
		h, w, c = dst.Dim(-3), dst.Dim(-2), dst.Dim(-1)
	}
	if c != f.channels() || dst.Elems() != c*h*w {
		return fmt.Errorf("picture of %v into %v", f.Dims(w, h), dst)
	}
	data := tensor.Data[float32](dst)
	stepC, stepP := h*w, 1
	if f.Last {
		stepC, stepP = 1, c
	}
	scale := f.Scale
	if scale == 0 {
		scale = 1
	}
	var mul, add [4]float32
	for i := range c {
		mean, std := pick(f.Mean, i, 0), pick(f.Std, i, 1)
		mul[i], add[i] = scale/std, -mean/std
	}
	if g, ok := img.(*image.Gray); ok && c == 1 && g.Rect.Dx() == w && g.Rect.Dy() == h {
		for y := range h {
			row := g.Pix[y*g.Stride:]
			for x := range w {
				data[y*w+x] = float32(row[x])*mul[0] + add[0]
			}
		}
		return nil
	}
	rgba := Resize(img, w, h)
	for y := range h {
		row := rgba.Pix[y*rgba.Stride:]
		for x := range w {
			p := row[4*x : 4*x+4]
			at := (y*w + x) * stepP
			if c == 1 {
				data[at] = (0.299*float32(p[0])+0.587*float32(p[1])+0.114*float32(p[2]))*mul[0] + add[0]
				continue
			}
			r, b := p[0], p[2]
			if f.BGR {
				r, b = b, r
			}
			data[at] = float32(r)*mul[0] + add[0]
			data[at+stepC] = float32(p[1])*mul[1] + add[1]
			data[at+2*stepC] = float32(b)*mul[2] + add[2]
			if c == 4 {
				data[at+3*stepC] = add[3]
			}
		}
	}
	return nil
}

func pick(v []float32, i int, def float32) float32 {
	switch len(v) {
	case 0:
		return def
	case 1:
		return v[0]
	}
	return v[i]
}

// Resize returns the picture as RGBA of w x h pixels, on black where it is transparent. Bilinear filtering covers all pixels when
// the picture shrinks.
func Resize(img image.Image, w, h int) *image.RGBA {
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	b := img.Bounds()
	if b.Dx() == w && b.Dy() == h {
		draw.Draw(dst, dst.Bounds(), img, b.Min, draw.Src)
		return dst
	}
	draw.BiLinear.Scale(dst, dst.Bounds(), img, b, draw.Src, nil)
	return dst
}

// Fit returns the picture resized to fit into w x h pixels with its proportions kept, at the upper left of a canvas of that size, and
// the factor by which it was resized.
func Fit(img image.Image, w, h int) (*image.RGBA, float64) {
	b := img.Bounds()
	factor := min(float64(w)/float64(b.Dx()), float64(h)/float64(b.Dy()))
	dw, dh := max(int(float64(b.Dx())*factor+0.5), 1), max(int(float64(b.Dy())*factor+0.5), 1)
	dst := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.BiLinear.Scale(dst, image.Rect(0, 0, dw, dh), img, b, draw.Src, nil)
	return dst, factor
}
