package onnx

import (
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
	"math"
)

func init() {
	register("Conv", since(1, 11), func(c *call) {
		x, w, bias := c.in(0), c.in(1), c.opt(2)
		op := c.convAttrs(x, w)
		d := x.spec.DType
		if d == tensor.F16 || d == tensor.BF16 {
			op.Out = d
		}
		in := []*value{x, w}
		if bias != nil && d == tensor.F64 { // epilogues have 32 bits
			dims := make([]int, int(x.spec.Rank)-1)
			for i := range dims {
				dims[i] = 1
			}
			dims[0] = w.spec.Dims[0]
			c.out(c.binary(elementwise.Add, c.emit(op, in...), c.reshape(bias, dims...)))
			return
		}
		if bias != nil {
			op.Epilogue.Bias = true
			in = append(in, c.cast(bias, tensor.F32))
		}
		c.out(c.emit(op, in...))
	})
	register("ConvTranspose", since(1, 11), convTranspose)
	register("ConvInteger", since(10), func(c *call) {
		c.out(c.integerConv(c.in(0), c.in(1), c.opt(2), c.opt(3)))
	})
	register("Col2Im", since(18), col2im)
}

// oneZero returns a zero point that is known, and one number or the same number for every channel. An absent one is 0.
func (c *call) oneZero(v *value) (zero int32, ok bool) {
	if v == nil {
		return 0, true
	}
	if !v.known {
		return 0, false
	}
	l := c.ints(v)
	for _, z := range l {
		if z != l[0] {
			return 0, false
		}
	}
	if len(l) == 0 {
		return 0, true
	}
	return int32(l[0]), true
}

// integerConv is the convolution of x - xz and w - wz, exact in 32 bits. The operation takes zero points that are known and the same for
// all channels; others are taken out of it, with a filter and an image of ones:
// conv(x - xz, w - wz) = conv(x - xz, w) - wz conv(x - xz, 1), and conv(x - xz, f) = conv(x, f) - xz conv(1, f).
func (c *call) integerConv(x, w, xz, wz *value) *value {
	op := c.convAttrs(x, w)
	xZero, xKnown := c.oneZero(xz)
	wZero, wKnown := c.oneZero(wz)
	if xKnown {
		op.XZero = xZero
	} else if xz.spec.Elems() != 1 {
		c.fail("zero point %v of the image, one number is right", xz)
	}
	ones := func(d tensor.DType, dims ...int) *value {
		t := c.alloc(d, dims...)
		for i := range t.Raw() {
			t.Raw()[i] = 1
		}
		return knownValue(t)
	}
	by := func(op conv.Conv, filter *value) *value {
		y := c.emit(op, x, filter)
		if xKnown {
			return y
		}
		dims := x.spec.Shape()
		dims[0] = 1
		return c.binary(elementwise.Sub, y, c.binary(elementwise.Mul, c.emit(op, ones(x.spec.DType, dims...), filter), c.cast(c.reshape(xz), tensor.I32)))
	}
	if wKnown {
		op.WZero = wZero
		return by(op, w)
	}
	m, groups := w.spec.Dims[0], op.NumGroups()
	if n := wz.spec.Elems(); n != 1 && n != m || m%groups != 0 {
		c.fail("zero points %v for %d filters", wz, m)
	}
	one := append([]int{groups}, w.spec.Shape()[1:]...)
	y, sums := by(op, w), by(op, ones(w.spec.DType, one...))
	// A sum for every group, a zero point for every filter: both broadcast over [N, groups, filters of a group, places].
	places := 1
	for _, n := range y.spec.Shape()[2:] {
		places *= n
	}
	n := y.spec.Dims[0]
	zeros := c.cast(wz, tensor.I32)
	if wz.spec.Elems() == m {
		zeros = c.reshape(zeros, 1, groups, m/groups, 1)
	} else {
		zeros = c.reshape(zeros)
	}
	taken := c.binary(elementwise.Mul, c.reshape(sums, n, groups, 1, places), zeros)
	return c.reshape(c.binary(elementwise.Sub, c.reshape(y, n, groups, m/groups, places), taken), y.spec.Shape()...)
}

// spatialInts reads an attribute of one number a spatial dimension.
func (c *call) spatialInts(name string, n, def int) (out [conv.MaxSpatial]int) {
	v, ok := c.attrInts(name)
	if ok && len(v) != n {
		c.fail("attribute %q has %d numbers, %d are right", name, len(v), n)
	}
	for i := range n {
		out[i] = def
		if ok {
			out[i] = v[i]
		}
	}
	return out
}

// window reads strides, dilations and padding for an image and a kernel.
func (c *call) window(x tensor.Spec, kernel []int) conv.Window {
	n := int(x.Rank) - 2
	if n < 1 || n > conv.MaxSpatial || len(kernel) != n {
		c.fail("image %v with a kernel of %v: one to %d spatial dimensions are possible", x, kernel, conv.MaxSpatial)
	}
	w := conv.Window{Stride: c.spatialInts("strides", n, 1), Dilation: c.spatialInts("dilations", n, 1)}
	for i := range n {
		const most = math.MaxInt32
		if w.Stride[i] < 1 || w.Dilation[i] < 1 || kernel[i] < 1 || w.Stride[i] > most || w.Dilation[i] > most || kernel[i] > most {
			c.fail("stride %d, dilation %d, kernel %d: positive numbers are right", w.Stride[i], w.Dilation[i], kernel[i])
		}
	}
	switch auto := c.attrString("auto_pad", "NOTSET"); auto {
	case "NOTSET", "":
		pads, ok := c.attrInts("pads")
		if !ok {
			break
		}
		if len(pads) != 2*n {
			c.fail("attribute \"pads\" has %d numbers, %d are right", len(pads), 2*n)
		}
		copy(w.Before[:n], pads[:n])
		copy(w.After[:n], pads[n:])
	case "VALID":
	case "SAME_UPPER", "SAME_LOWER":
		for i := range n {
			w.Same(i, x.Dims[2+i], kernel[i], auto == "SAME_LOWER")
		}
	default:
		c.fail("auto_pad %q is unknown", auto)
	}
	return w
}

// convAttrs reads the attributes of the convolutions.
func (c *call) convAttrs(x, w *value) conv.Conv {
	if w.spec.Rank < 3 || w.spec.Rank != x.spec.Rank {
		c.fail("filter %v for image %v", w, x)
	}
	kernel := w.spec.Shape()[2:]
	if k, ok := c.attrInts("kernel_shape"); ok {
		for i := range kernel {
			if len(k) != len(kernel) || k[i] != kernel[i] {
				c.fail("attribute \"kernel_shape\" is %v, the filter is %v", k, w)
			}
		}
	}
	groups := c.attrInt("group", 1)
	if groups < 1 {
		c.fail("group %d", groups)
	}
	return conv.Conv{Window: c.window(x.spec, kernel), Groups: groups}
}

func convTranspose(c *call) {
	x, w, bias := c.in(0), c.in(1), c.opt(2)
	n := int(x.spec.Rank) - 2
	if n < 1 || n > conv.MaxSpatial || w.spec.Rank != x.spec.Rank {
		c.fail("filter %v for image %v", w, x)
	}
	op := conv.Transposed{Groups: c.attrInt("group", 1), OutPad: c.spatialInts("output_padding", n, 0)}
	if op.Groups < 1 {
		c.fail("group %d", op.Groups)
	}
	op.Stride, op.Dilation = c.spatialInts("strides", n, 1), c.spatialInts("dilations", n, 1)
	auto := c.attrString("auto_pad", "NOTSET")
	target, sized := c.attrInts("output_shape")
	if sized && len(target) == n+2 {
		target = target[2:]
	}
	if sized && len(target) != n {
		c.fail("attribute \"output_shape\" has %d numbers, %d are right", len(target), n)
	}
	pads, ok := c.attrInts("pads")
	if ok && len(pads) != 2*n {
		c.fail("attribute \"pads\" has %d numbers, %d are right", len(pads), 2*n)
	}
	for i := range n {
		const most = 1 << 30
		k := w.spec.Dims[2+i]
		if op.Stride[i] < 1 || op.Dilation[i] < 1 || op.Stride[i] > most || op.Dilation[i] > most || k > most || x.spec.Dims[2+i] > most || op.OutPad[i] < 0 || op.OutPad[i] > most {
			c.fail("stride %d, dilation %d, kernel %d", op.Stride[i], op.Dilation[i], k)
		}
		full := (x.spec.Dims[2+i]-1)*op.Stride[i] + (k-1)*op.Dilation[i] + 1 + op.OutPad[i]
		want := 0
		switch {
		case sized:
			want = target[i]
		case auto == "SAME_UPPER" || auto == "SAME_LOWER":
			want = x.spec.Dims[2+i] * op.Stride[i]
		default:
			if ok {
				op.Before[i], op.After[i] = pads[i], pads[n+i]
			}
			continue
		}
		total := full - want
		// Where the output is asked to be larger than all taps reach, it ends with zeros.
		if total < 0 {
			op.OutPad[i] -= total
			total = 0
		}
		op.Before[i] = total - total/2
		if auto == "SAME_UPPER" {
			op.Before[i] = total / 2
		}
		op.After[i] = total - op.Before[i]
	}
	if d := x.spec.DType; d == tensor.F16 || d == tensor.BF16 {
		op.Out = d
	}
	in := []*value{x, w}
	if bias != nil {
		op.Epilogue = matmul.Epilogue{Bias: true}
		in = append(in, c.cast(bias, tensor.F32))
	}
	c.out(c.emit(op, in...))
}

// col2im adds blocks of columns into an image.
func col2im(c *call) {
	x := c.in(0)
	image, block := c.ints(c.in(1)), c.ints(c.in(2))
	n := len(image)
	if x.spec.Rank != 3 || len(block) != n || n < 1 || n > conv.MaxSpatial {
		c.fail("columns %v, image %v, block %v", x, image, block)
	}
	w := conv.Window{Stride: c.spatialInts("strides", n, 1), Dilation: c.spatialInts("dilations", n, 1)}
	if pads, ok := c.attrInts("pads"); ok {
		if len(pads) != 2*n {
			c.fail("attribute \"pads\" has %d numbers, %d are right", len(pads), 2*n)
		}
		copy(w.Before[:n], pads[:n])
		copy(w.After[:n], pads[n:])
	}
	taps, places := 1, 1
	grid := make([]int, n)
	for i := range n {
		var err error
		grid[i], err = w.Out(i, image[i], block[i], false)
		c.check(err)
		taps *= block[i]
		places *= grid[i]
	}
	if x.spec.Dims[1]%taps != 0 || x.spec.Dims[2] != places {
		c.fail("columns %v, [N, a multiple of %d, %d] is right", x, taps, places)
	}
	channels := x.spec.Dims[1] / taps
	dims := append([]int{x.spec.Dims[0], channels}, image...)
	c.out(c.apply(c.spec(x.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		sums := make([]float64, out.Elems())
		plane := len(sums) / max(x.spec.Dims[0]*channels, 1)
		for i := range v {
			place, tap, ch := i%places, i/places%taps, i/(places*taps)
			at, step, inside := 0, 1, true
			for d := n - 1; d >= 0; d-- {
				s, dil := w.At(d)
				p := place%grid[d]*s + tap%block[d]*dil - w.Before[d]
				place, tap = place/grid[d], tap/block[d]
				inside = inside && p >= 0 && p < image[d]
				at += p * step
				step *= image[d]
			}
			if inside {
				sums[ch*plane+at] += v[i]
			}
		}
		out.SetFloats(sums)
		return nil
	}, x))
}
