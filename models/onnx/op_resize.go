package onnx

import (
	"math"

	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Resize", since(10, 11, 13, 18, 19), resize)
	register("Upsample", since(1, 7, 9), func(c *call) {
		x := c.in(0)
		var scales []float32
		switch {
		case c.version < 7:
			if x.spec.Rank != 4 {
				c.fail("image %v", x)
			}
			scales = []float32{1, 1, c.attrFloat("height_scale", 1), c.attrFloat("width_scale", 1)}
		case c.version < 9:
			scales, _ = c.attrFloats("scales")
		default:
			scales = c.floats(c.in(1))
		}
		r := image.Resize{Coord: image.Asymmetric, Round: image.Floor, Mode: c.interp(c.attrString("mode", "nearest"))}
		c.resizeBy(&r, x, scales, identity(int(x.spec.Rank)))
		c.out(c.emit(r, x))
	})
	register("DepthToSpace", since(1, 11, 13), func(c *call) {
		x := c.in(0)
		b := c.attrInt("blocksize", 0)
		if x.spec.Rank != 4 || b < 1 || b > 1<<15 || x.spec.Dims[1]%(b*b) != 0 {
			c.fail("image %v in blocks of %d", x, b)
		}
		n, ch, h, w := x.spec.Dims[0], x.spec.Dims[1]/(b*b), x.spec.Dims[2], x.spec.Dims[3]
		var y *value
		if c.attrString("mode", "DCR") == "CRD" {
			y = c.permute(c.reshape(x, n, ch, b, b, h, w), 0, 1, 4, 2, 5, 3)
		} else {
			y = c.permute(c.reshape(x, n, b, b, ch, h, w), 0, 3, 4, 1, 5, 2)
		}
		c.out(c.reshape(y, n, ch, h*b, w*b))
	})
	register("SpaceToDepth", since(1, 13), func(c *call) {
		x := c.in(0)
		b := c.attrInt("blocksize", 0)
		if x.spec.Rank != 4 || b < 1 || b > 1<<15 || x.spec.Dims[2]%b != 0 || x.spec.Dims[3]%b != 0 {
			c.fail("image %v in blocks of %d", x, b)
		}
		n, ch, h, w := x.spec.Dims[0], x.spec.Dims[1], x.spec.Dims[2]/b, x.spec.Dims[3]/b
		y := c.permute(c.reshape(x, n, ch, h, b, w, b), 0, 3, 5, 1, 2, 4)
		c.out(c.reshape(y, n, ch*b*b, h, w))
	})
	register("GridSample", since(16, 20), gridSample)
	register("AffineGrid", since(20), affineGrid)
	register("RoiAlign", since(10, 16), roiAlign)
	register("MaxRoiPool", since(1), maxRoiPool)
}

func (c *call) floats(v *value) []float32 {
	t := c.data(v)
	out := make([]float32, t.Elems())
	for i, f := range t.Floats() {
		out[i] = float32(f)
	}
	return out
}

func (c *call) interp(mode string) image.Interp {
	switch mode {
	case "nearest":
		return image.Nearest
	case "linear", "bilinear":
		return image.Linear
	case "cubic":
		return image.Cubic
	}
	c.fail("mode %q is unknown", mode)
	return 0
}

// resizeBy fills in output sizes that follow from scales of some axes.
func (c *call) resizeBy(r *image.Resize, x *value, scales []float32, axes []int) {
	if len(scales) != len(axes) {
		c.fail("%d scales for %d dimensions", len(scales), len(axes))
	}
	out := x.spec.Shape()
	for i, a := range axes {
		a = c.axis(a, len(out))
		n := math.Floor(float64(out[a]) * float64(scales[i]))
		if !(scales[i] > 0) || n > 1<<40 {
			c.fail("scale %g of dimension %d of %v", scales[i], a, x)
		}
		out[a] = int(n)
		r.Scale[a] = scales[i]
	}
	r.Out = c.list(out)
}

func resize(c *call) {
	x := c.in(0)
	rank := int(x.spec.Rank)
	r := image.Resize{Mode: c.interp(c.attrString("mode", "nearest"))}
	if c.version < 11 {
		r.Coord, r.Round = image.Asymmetric, image.Floor
		c.resizeBy(&r, x, c.floats(c.in(1)), identity(rank))
		c.out(c.emit(r, x))
		return
	}
	coords := map[string]image.Coord{"half_pixel": image.HalfPixel, "half_pixel_symmetric": image.HalfPixelSymmetric,
		"pytorch_half_pixel": image.PytorchHalfPixel, "align_corners": image.AlignCorners, "asymmetric": image.Asymmetric,
		"tf_half_pixel_for_nn": image.TFHalfPixel, "tf_crop_and_resize": image.TFCrop}
	var ok bool
	if r.Coord, ok = coords[c.attrString("coordinate_transformation_mode", "half_pixel")]; !ok {
		c.fail("coordinate_transformation_mode %q is unknown", c.attrString("coordinate_transformation_mode", ""))
	}
	rounds := map[string]image.Round{"round_prefer_floor": image.PreferFloor, "round_prefer_ceil": image.PreferCeil, "floor": image.Floor, "ceil": image.Ceil}
	if r.Round, ok = rounds[c.attrString("nearest_mode", "round_prefer_floor")]; !ok {
		c.fail("nearest_mode %q is unknown", c.attrString("nearest_mode", ""))
	}
	r.CubicA = c.attrFloat("cubic_coeff_a", -0.75)
	r.Exclude, r.Antialias = c.attrBool("exclude_outside", false), c.attrBool("antialias", false)
	r.Extrapolation = c.attrFloat("extrapolation_value", 0)
	axes, given := c.attrInts("axes")
	if !given {
		axes = identity(rank)
	}
	if v := c.opt(1); v != nil && r.Coord == image.TFCrop {
		roi := c.floats(v)
		if len(roi) != 2*len(axes) {
			c.fail("%d numbers of roi for %d dimensions", len(roi), len(axes))
		}
		for i := range rank {
			r.ROI[rank+i] = 1
		}
		for i, a := range axes {
			a = c.axis(a, rank)
			r.ROI[a], r.ROI[rank+a] = roi[i], roi[len(axes)+i]
		}
	}
	scales := c.opt(2)
	if scales != nil && scales.spec.Elems() > 0 {
		c.resizeBy(&r, x, c.floats(scales), axes)
		c.out(c.emit(r, x))
		return
	}
	sizes := c.ints(c.in(3))
	if len(sizes) != len(axes) {
		c.fail("%d sizes for %d dimensions", len(sizes), len(axes))
	}
	out := x.spec.Shape()
	policy := c.attrString("keep_aspect_ratio_policy", "stretch")
	ratio := 0.0
	for i, a := range axes {
		a = c.axis(a, rank)
		if sizes[i] < 0 || out[a] < 1 {
			c.fail("size %d of dimension %d of %v", sizes[i], a, x)
		}
		s := float64(sizes[i]) / float64(out[a])
		switch {
		case i == 0:
			ratio = s
		case policy == "not_larger":
			ratio = min(ratio, s)
		case policy == "not_smaller":
			ratio = max(ratio, s)
		}
	}
	for i, a := range axes {
		a = c.axis(a, rank)
		if policy == "stretch" {
			out[a] = sizes[i]
			continue
		}
		r.Scale[a] = float32(ratio)
		out[a] = int(math.Floor(ratio*float64(out[a]) + 0.5))
	}
	r.Out = c.list(out)
	c.out(c.emit(r, x))
}

// gridSample reads an image at positions that a grid gives, -1 to 1 being its borders.
func gridSample(c *call) {
	x, grid := c.in(0), c.in(1)
	n := int(x.spec.Rank) - 2
	if n < 1 || n > 3 || grid.spec.Rank != x.spec.Rank || grid.spec.Dim(-1) != n || grid.spec.Dims[0] != x.spec.Dims[0] {
		c.fail("image %v, grid %v", x, grid)
	}
	mode := c.attrString("mode", map[bool]string{true: "bilinear", false: "linear"}[c.version < 20])
	if mode == "bicubic" {
		mode = "cubic"
	}
	interp := c.interp(mode)
	padding := c.attrString("padding_mode", "zeros")
	corners := c.attrBool("align_corners", false)
	dims := append([]int{x.spec.Dims[0], x.spec.Dims[1]}, grid.spec.Shape()[1:n+1]...)
	size := x.spec.Shape()[2:]
	reach := map[image.Interp]int{image.Nearest: 1, image.Linear: 2, image.Cubic: 4}[interp]
	c.out(c.apply(c.spec(x.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		v, g := in[0].Floats(), in[1].Floats()
		channels := x.spec.Dims[1]
		places, plane := len(g)/max(n*x.spec.Dims[0], 1), 1
		for _, s := range size {
			plane *= s
		}
		res := make([]float64, out.Elems())
		for b := range x.spec.Dims[0] {
			for p := range places {
				var pos [3]float64
				for d := range n { // the grid has x before y before z
					q := g[(b*places+p)*n+n-1-d]
					s := float64(size[d])
					if corners {
						pos[d] = (q + 1) / 2 * (s - 1)
					} else {
						pos[d] = ((q+1)*s - 1) / 2
					}
					if padding != "zeros" && interp != image.Cubic {
						pos[d] = padPosition(pos[d], size[d], padding, corners)
					}
				}
				for ch := range channels {
					sum := 0.0
					var walk func(d, at int, weight float64)
					walk = func(d, at int, weight float64) {
						if d == n {
							sum += weight * v[(b*channels+ch)*plane+at]
							return
						}
						first, f := int(math.Floor(pos[d])), pos[d]-math.Floor(pos[d])
						for k := range reach {
							q, w := first+k, 1.0
							switch interp {
							case image.Nearest:
								q = int(math.RoundToEven(pos[d]))
							case image.Linear:
								w = math.Abs(float64(1-k) - f)
							default:
								q = first + k - 1
								w = keys(math.Abs(float64(k-1)-f), -0.75)
							}
							if q < 0 || q >= size[d] {
								if padding == "zeros" {
									continue
								}
								q = int(padPosition(float64(q), size[d], padding, corners))
							}
							walk(d+1, at*size[d]+q, weight*w)
						}
					}
					walk(0, 0, 1)
					res[(b*channels+ch)*places+p] = sum
				}
			}
		}
		out.SetFloats(res)
		return nil
	}, x, grid))
}

// keys is the cubic convolution kernel.
func keys(d, a float64) float64 {
	switch {
	case d <= 1:
		return ((a+2)*d-(a+3))*d*d + 1
	case d < 2:
		return ((a*d-5*a)*d+8*a)*d - 4*a
	}
	return 0
}

// padPosition brings a position into an image of n elements.
func padPosition(x float64, n int, padding string, corners bool) float64 {
	last := float64(n - 1)
	if padding == "reflection" {
		lo, hi := -0.5, float64(n)-0.5
		if corners {
			lo, hi = 0, last
		}
		span := hi - lo
		switch {
		case span <= 0:
			x = 0
		default:
			x = math.Mod(math.Abs(x-lo), 2*span)
			if x > span {
				x = 2*span - x
			}
			x += lo
		}
	}
	if x != x {
		return 0
	}
	return min(max(x, 0), last)
}

func affineGrid(c *call) {
	theta := c.in(0)
	size := c.ints(c.in(1))
	n := len(size) - 2
	if n < 2 || n > 3 || theta.spec.With(tensor.F32) != tensor.MakeSpec(tensor.F32, size[0], n, n+1) {
		c.fail("theta %v for size %v", theta, size)
	}
	corners := c.attrBool("align_corners", false)
	dims := append(append([]int{size[0]}, size[2:]...), n)
	c.out(c.apply(c.spec(theta.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		t := in[0].Floats()
		res := make([]float64, out.Elems())
		for i := 0; i*n < len(res); i++ {
			var at [4]float64
			rest := i
			for d := n - 1; d >= 0; d-- {
				s := size[2+d]
				p := float64(rest % s)
				rest /= s
				v := (2*p+1)/float64(s) - 1
				if corners {
					v = -1
					if s > 1 {
						v = 2*p/float64(s-1) - 1
					}
				}
				at[n-1-d] = v
			}
			at[n] = 1
			for r := range n {
				for k := range n + 1 {
					res[i*n+r] += t[(rest*n+r)*(n+1)+k] * at[k]
				}
			}
		}
		out.SetFloats(res)
		return nil
	}, theta))
}

func roiAlign(c *call) {
	x, rois := c.in(0), c.in(1)
	batch := c.ints(c.in(2))
	if x.spec.Rank != 4 || rois.spec.Rank != 2 || rois.spec.Dims[1] != 4 || len(batch) != rois.spec.Dims[0] {
		c.fail("image %v, regions %v, %d batch indices", x, rois, len(batch))
	}
	for _, b := range batch {
		if b < 0 || b >= x.spec.Dims[0] {
			c.fail("batch index %d of %d", b, x.spec.Dims[0])
		}
	}
	half := c.version >= 16 && c.attrString("coordinate_transformation_mode", "half_pixel") == "half_pixel"
	useMax := c.attrString("mode", "avg") == "max"
	oh, ow := c.attrInt("output_height", 1), c.attrInt("output_width", 1)
	ratio, scale := c.attrInt("sampling_ratio", 0), float64(c.attrFloat("spatial_scale", 1))
	if oh < 1 || ow < 1 || ratio < 0 || ratio > 1<<15 {
		c.fail("output %d x %d, sampling ratio %d", oh, ow, ratio)
	}
	channels, h, w := x.spec.Dims[1], x.spec.Dims[2], x.spec.Dims[3]
	c.out(c.apply(c.spec(x.spec.DType, len(batch), channels, oh, ow), func(out tensor.Tensor, in []tensor.Tensor) error {
		v, r := in[0].Floats(), in[1].Floats()
		res := make([]float64, 0, out.Elems())
		for i, b := range batch {
			offset := 0.0
			if half {
				offset = 0.5
			}
			x0, y0, x1, y1 := r[4*i]*scale-offset, r[4*i+1]*scale-offset, r[4*i+2]*scale-offset, r[4*i+3]*scale-offset
			rw, rh := x1-x0, y1-y0
			if !half {
				rw, rh = max(rw, 1), max(rh, 1)
			}
			bh, bw := rh/float64(oh), rw/float64(ow)
			gh, gw := ratio, ratio
			if ratio == 0 {
				gh, gw = int(min(math.Ceil(bh), 1<<15)), int(min(math.Ceil(bw), 1<<15))
			}
			for ch := range channels {
				plane := v[(b*channels+ch)*h*w:]
				for py := range oh {
					for px := range ow {
						sum, best, count := 0.0, math.Inf(-1), max(gh*gw, 1)
						for iy := range gh {
							yy := y0 + float64(py)*bh + (float64(iy)+0.5)*bh/float64(gh)
							for ix := range gw {
								xx := x0 + float64(px)*bw + (float64(ix)+0.5)*bw/float64(gw)
								s, peak := sample(plane, h, w, yy, xx)
								sum += s
								best = max(best, peak)
							}
						}
						if useMax {
							res = append(res, best)
						} else {
							res = append(res, sum/float64(count))
						}
					}
				}
			}
		}
		out.SetFloats(res)
		return nil
	}, x, rois))
}

// sample interpolates a plane at a position; peak is the largest of the four weighted neighbours, which max pooling takes.
func sample(plane []float64, h, w int, y, x float64) (sum, peak float64) {
	if y < -1 || y > float64(h) || x < -1 || x > float64(w) || y != y || x != x {
		return 0, 0
	}
	y, x = max(y, 0), max(x, 0)
	y0, x0 := int(y), int(x)
	y1, x1 := y0+1, x0+1
	if y0 >= h-1 {
		y0, y1, y = h-1, h-1, float64(h-1)
	}
	if x0 >= w-1 {
		x0, x1, x = w-1, w-1, float64(w-1)
	}
	fy, fx := y-float64(y0), x-float64(x0)
	a, b := (1-fy)*(1-fx)*plane[y0*w+x0], (1-fy)*fx*plane[y0*w+x1]
	d, e := fy*(1-fx)*plane[y1*w+x0], fy*fx*plane[y1*w+x1]
	return a + b + d + e, max(a, b, d, e)
}

func maxRoiPool(c *call) {
	x, rois := c.in(0), c.in(1)
	shape, ok := c.attrInts("pooled_shape")
	if x.spec.Rank != 4 || rois.spec.Rank != 2 || rois.spec.Dims[1] != 5 || !ok || len(shape) != 2 || shape[0] < 1 || shape[1] < 1 {
		c.fail("image %v, regions %v, pooled shape %v", x, rois, shape)
	}
	scale := float64(c.attrFloat("spatial_scale", 1))
	channels, h, w := x.spec.Dims[1], x.spec.Dims[2], x.spec.Dims[3]
	c.out(c.apply(c.spec(x.spec.DType, rois.spec.Dims[0], channels, shape[0], shape[1]), func(out tensor.Tensor, in []tensor.Tensor) error {
		v, r := in[0].Floats(), in[1].Floats()
		res := make([]float64, 0, out.Elems())
		for i := range rois.spec.Dims[0] {
			b, err := index(int64(r[5*i]), x.spec.Dims[0])
			if err != nil {
				return err
			}
			at := func(k int) int { return int(math.Round(min(max(r[5*i+k]*scale, -1e6), 1e6))) }
			x0, y0 := at(1), at(2)
			rw, rh := max(at(3)-x0+1, 1), max(at(4)-y0+1, 1)
			for ch := range channels {
				for py := range shape[0] {
					for px := range shape[1] {
						lo := func(p, r, n, start, size int) int {
							return min(max(int(math.Floor(float64(p)*float64(r)/float64(n)))+start, 0), size)
						}
						hi := func(p, r, n, start, size int) int {
							return min(max(int(math.Ceil(float64(p+1)*float64(r)/float64(n)))+start, 0), size)
						}
						best, found := math.Inf(-1), false
						for yy := lo(py, rh, shape[0], y0, h); yy < hi(py, rh, shape[0], y0, h); yy++ {
							for xx := lo(px, rw, shape[1], x0, w); xx < hi(px, rw, shape[1], x0, w); xx++ {
								best, found = max(best, v[((b*channels+ch)*h+yy)*w+xx]), true
							}
						}
						if !found {
							best = 0
						}
						res = append(res, best)
					}
				}
			}
		}
		out.SetFloats(res)
		return nil
	}, x, rois))
}
