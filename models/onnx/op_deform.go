package onnx

import (
	"math"

	"github.com/tessera-go/tessera/tensor"
)

func init() { register("DeformConv", since(19), deformConv) }

// deformConv is a convolution whose taps are moved by offsets that are computed, between pixels by bilinear interpolation.
func deformConv(c *call) {
	x, w, offset := c.in(0), c.in(1), c.in(2)
	if x.spec.Rank != 4 {
		c.fail("image %v: two spatial dimensions are supported", x)
	}
	op := c.convAttrs(x, w)
	out, err := op.Infer([]tensor.Spec{x.spec, w.spec})
	c.check(err)
	groups, og := op.NumGroups(), c.attrInt("offset_group", 1)
	n, channels, h, wd := x.spec.Dims[0], x.spec.Dims[1], x.spec.Dims[2], x.spec.Dims[3]
	m, cg, kh, kw := w.spec.Dims[0], w.spec.Dims[1], w.spec.Dims[2], w.spec.Dims[3]
	oh, ow := out[0].Dims[2], out[0].Dims[3]
	taps := kh * kw
	if og < 1 || channels%og != 0 || offset.spec.With(tensor.F32) != tensor.MakeSpec(tensor.F32, n, og*taps*2, oh, ow) {
		c.fail("offsets %v for %v in %d groups", offset, out[0], og)
	}
	in := []*value{x, w, offset}
	bias, mask := c.opt(3), c.opt(4)
	if bias != nil {
		if bias.spec.Elems() != m {
			c.fail("bias %v for %d filters", bias, m)
		}
		in = append(in, bias)
	}
	if mask != nil {
		if mask.spec.With(tensor.F32) != tensor.MakeSpec(tensor.F32, n, og*taps, oh, ow) {
			c.fail("mask %v for %v in %d groups", mask, out[0], og)
		}
		in = append(in, mask)
	}
	c.out(c.apply(out[0].With(x.spec.DType), func(y tensor.Tensor, in []tensor.Tensor) error {
		xv, wv, ov := in[0].Floats(), in[1].Floats(), in[2].Floats()
		var bv, mv []float64
		rest := in[3:]
		if bias != nil {
			bv, rest = rest[0].Floats(), rest[1:]
		}
		if mask != nil {
			mv = rest[0].Floats()
		}
		sy, dy := op.At(0)
		sx, dx := op.At(1)
		plane := oh * ow
		res := make([]float64, 0, y.Elems())
		for b := range n {
			for o := range m {
				g := o / (m / groups)
				for p := range plane {
					sum := 0.0
					if bv != nil {
						sum = bv[o]
					}
					for ci := range cg {
						ch := g*cg + ci
						image := xv[(b*channels+ch)*h*wd:]
						first := (b*og + ch/(channels/og)) * taps
						for t := range taps {
							at := (first+t)*2*plane + p
							yy := float64(p/ow*sy-op.Before[0]+t/kw*dy) + ov[at]
							xx := float64(p%ow*sx-op.Before[1]+t%kw*dx) + ov[at+plane]
							v := bilinear(image, h, wd, yy, xx)
							if mv != nil {
								v *= mv[(first+t)*plane+p]
							}
							sum += v * wv[(o*cg+ci)*taps+t]
						}
					}
					res = append(res, sum)
				}
			}
		}
		y.SetFloats(res)
		return nil
	}, in...))
}

// bilinear reads a plane between its pixels; outside it is zero.
func bilinear(plane []float64, h, w int, y, x float64) float64 {
	if !(y > -1 && y < float64(h) && x > -1 && x < float64(w)) {
		return 0
	}
	y0, x0 := int(math.Floor(y)), int(math.Floor(x))
	fy, fx := y-float64(y0), x-float64(x0)
	at := func(yy, xx int) float64 {
		if yy < 0 || yy >= h || xx < 0 || xx >= w {
			return 0
		}
		return plane[yy*w+xx]
	}
	return (1-fy)*((1-fx)*at(y0, x0)+fx*at(y0, x0+1)) + fy*((1-fx)*at(y0+1, x0)+fx*at(y0+1, x0+1))
}
