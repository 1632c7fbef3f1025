package conv

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Conv is a convolution (a cross-correlation, as everywhere in the field). Its inputs are the image, the filter
// [M, C/Groups, kernel...], and then, as the epilogue has them: column scales [M], bias [M], residual (the output's shape).
//
// The epilogue is that of a matrix product whose columns are the output channels; it has no row scales. Integer images (i8, u8)
// give exact i32 sums of (x - XZero) * (w - WZero), and padding counts as XZero; with column scales they are requantized like
// products. Float images give f32, or Out; where the filter has an infinity or a NaN over padding, whether it is multiplied by zero or
// left out depends on the kernel.
type Conv struct {
	Window
	Groups       int // 0 means 1
	Layout       Layout
	XZero, WZero int32
	Epilogue     matmul.Epilogue
	Out          tensor.DType // Invalid: f32 for floats (f64 for f64), i32 for integers
}

// Name is "conv".
func (Conv) Name() string { return "conv" }

// Operands gives the positions of the optional inputs, -1 where absent.
func (c Conv) Operands() (colScale, bias, residual, total int) {
	_, colScale, bias, residual, total = matmul.Op{Epilogue: c.Epilogue}.Operands()
	return colScale, bias, residual, total
}

// NumGroups returns the number of groups.
func (c Conv) NumGroups() int { return max(c.Groups, 1) }

// Infer is the shape rule.
func (c Conv) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := numInputs(c, c.Epilogue, in); err != nil {
		return nil, err
	}
	x, w := in[0], in[1]
	spatial, err := spatialOf(c.Layout, x)
	if err != nil {
		return nil, fmt.Errorf("conv: %w", err)
	}
	if c.Epilogue.RowScale {
		return nil, fmt.Errorf("conv: an epilogue with row scales")
	}
	if w.Rank != x.Rank {
		return nil, fmt.Errorf("conv: filter %v for image %v: as many dimensions are right", w, x)
	}
	g := c.NumGroups()
	channels := c.Layout.Channels(x)
	if err := checkGroups(c.Groups, channels); err != nil {
		return nil, fmt.Errorf("conv: %w", err)
	}
	if channels != w.Dims[1]*g || w.Dims[0]%g != 0 {
		return nil, fmt.Errorf("conv: filter %v for %s: [%s, %d, ...] is right", w, channelsIn(channels, g), multipleOf(g), channels/g)
	}
	for i, n := range spatial {
		if spatial[i], err = c.Window.Out(i, n, w.Dims[2+i], false); err != nil {
			return nil, fmt.Errorf("conv: %w", err)
		}
	}
	d, err := outType(c.Out, x.DType, w.DType)
	if err != nil {
		return nil, fmt.Errorf("conv: %w", err)
	}
	return checkOperands(c.Name(), c.Epilogue, in, d, c.Layout.Dims(x.Dims[0], w.Dims[0], spatial), w.Dims[0])
}

// numInputs returns an error that names the inputs unless they are as many as the epilogue says.
func numInputs(op ops.Op, e matmul.Epilogue, in []tensor.Spec) error {
	_, colScale, bias, residual, total := matmul.Op{Epilogue: e}.Operands()
	err := ops.NumInputs(op, in, total, total)
	if err == nil || len(in) == total {
		return err
	}
	names := "image, filter"
	for _, v := range []struct {
		pos  int
		what string
	}{{colScale, "column scales"}, {bias, "bias"}, {residual, "residual"}} {
		if v.pos >= 0 {
			names += ", " + v.what
		}
	}
	return fmt.Errorf("%w: %s", err, names)
}

// checkGroups checks that the channels of an image can be split.
func checkGroups(groups, channels int) error {
	if groups < 0 {
		return fmt.Errorf("%d groups, 0 (one) or more are right", groups)
	}
	if g := max(groups, 1); channels%g != 0 {
		return fmt.Errorf("%s: a multiple of %d is right", channelsIn(channels, g), g)
	}
	return nil
}

// channelsIn says how many channels, and in how many groups if there are some.
func channelsIn(channels, g int) string {
	s := fmt.Sprintf("%d channels", channels)
	if channels == 1 {
		s = "1 channel"
	}
	if g == 1 {
		return s
	}
	return fmt.Sprintf("%s in %d groups", s, g)
}

func multipleOf(g int) string {
	if g == 1 {
		return "M"
	}
	return fmt.Sprintf("a multiple of %d", g)
}

// checkOperands checks the output and the epilogue's operands against it.
func checkOperands(name string, e matmul.Epilogue, in []tensor.Spec, d tensor.DType, dims []int, m int) ([]tensor.Spec, error) {
	if err := e.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out, err := tensor.CheckDims(d, dims)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	_, colScale, bias, residual, _ := matmul.Op{Epilogue: e}.Operands()
	for _, v := range []struct {
		pos  int
		what string
	}{{colScale, "column scales"}, {bias, "bias"}} {
		if v.pos >= 0 && (in[v.pos].Rank != 1 || in[v.pos].Dims[0] != m || !in[v.pos].DType.IsFloat()) {
			return nil, fmt.Errorf("%s: %s are %v, f32[%d] is right", name, v.what, in[v.pos], m)
		}
	}
	if residual >= 0 && (in[residual].With(d) != out || in[residual].DType.IsBlock()) {
		return nil, fmt.Errorf("%s: residual is %v, %v is right", name, in[residual], out)
	}
	return []tensor.Spec{out}, nil
}

func outType(out, x, w tensor.DType) (tensor.DType, error) {
	int8s := func(d tensor.DType) bool { return d == tensor.I8 || d == tensor.U8 }
	switch {
	case x == tensor.F64 && w == tensor.F64 && (out == tensor.Invalid || out == tensor.F64):
		return tensor.F64, nil
	case x.IsFloat() && w.IsFloat() && out == tensor.Invalid:
		return tensor.F32, nil
	case x.IsFloat() && w.IsFloat() && out.IsFloat():
		return out, nil
	case int8s(x) && int8s(w) && out == tensor.Invalid:
		return tensor.I32, nil
	case int8s(x) && int8s(w) && (out == tensor.I32 || out == tensor.F32 || int8s(out)):
		return out, nil
	}
	return 0, fmt.Errorf("no convolution of %v by %v with result %v", x, w, out)
}

// FedBy says that a 1x1 convolution may take the pixels of a convolution by groups as they come.
func (c Conv) FedBy(before ops.Op, in []tensor.Spec) bool {
	b, ok := before.(Conv)
	if !ok || b.NumGroups() == 1 || c.NumGroups() > 1 || b.Layout != c.Layout {
		return false
	}
	for i := range int(in[1].Rank) - 2 {
		if stride, _ := c.At(i); in[1].Dims[2+i] != 1 || stride != 1 || c.Before[i] != 0 || c.After[i] != 0 {
			return false
		}
	}
	return true
}

// Flops counts a multiplication and an addition for every tap.
func (c Conv) Flops(in []tensor.Spec) float64 {
	out, err := c.Infer(in)
	if err != nil {
		return 0
	}
	w := in[1]
	return 2 * float64(out[0].Elems()) * float64(w.Elems()) / float64(max(w.Dims[0], 1))
}

// Reference computes every output by its definition, in float64 or in exact integers.
func (c Conv) Reference(out, in []tensor.Tensor) error {
	x, err := c.Layout.first(in[0])
	if err != nil {
		return err
	}
	y, err := c.Layout.first(out[0])
	if err != nil {
		return err
	}
	w := in[1]
	window := c.Window.only(int(x.Rank) - 2)
	n, channels, m := x.Dims[0], x.Dims[1], y.Dims[1]
	is, os, ks := three(x.Shape()[2:]), three(y.Shape()[2:]), three(w.Shape()[2:])
	g := c.NumGroups()
	perIn, perOut := channels/g, m/g
	xv, wv := x.Floats(), w.Floats()
	plane, taps := is[0]*is[1]*is[2], ks[0]*ks[1]*ks[2]
	if x.DType.IsInt() { // sums of up to 2^53 are exact
		for i := range xv {
			xv[i] -= float64(c.XZero)
		}
		for i := range wv {
			wv[i] -= float64(c.WZero)
		}
	}
	acc := make([]float64, 0, y.Elems())
	for b := range n {
		for o := range m {
			first := o / perOut * perIn
			walk3(os, func(p [MaxSpatial]int) {
				sum := 0.0
				for ch := range perIn {
					image, filter := xv[(b*channels+first+ch)*plane:], wv[(o*perIn+ch)*taps:]
					walk3(ks, func(k [MaxSpatial]int) {
						if i, inside := window.source(p, k, is); inside {
							sum += image[i] * filter[(k[0]*ks[1]+k[1])*ks[2]+k[2]]
						}
					})
				}
				acc = append(acc, sum)
			})
		}
	}
	return finish(c.Layout, c.Epilogue, x.DType.IsInt(), y, acc, in)
}

// source returns where tap k of the window at p lies in an image plane; false in the padding.
func (w Window) source(p, k, size [MaxSpatial]int) (int, bool) {
	at := 0
	for i, n := range size {
		s, d := w.At(i)
		v := p[i]*s + k[i]*d - w.Before[i]
		if v < 0 || v >= n {
			return 0, false
		}
		at = at*n + v
	}
	return at, true
}

// finish applies the epilogue to sums in channels-first order and stores them in y, a channels-first view.
func finish(l Layout, e matmul.Epilogue, integer bool, y tensor.Tensor, acc []float64, in []tensor.Tensor) error {
	_, colScale, bias, residual, _ := matmul.Op{Epilogue: e}.Operands()
	optional := func(i int) []float64 {
		if i < 0 {
			return nil
		}
		return in[i].Floats()
	}
	scales, biases := optional(colScale), optional(bias)
	var rest []float64
	if residual >= 0 {
		r, err := l.first(in[residual])
		if err != nil {
			return err
		}
		rest = r.Floats()
	}
	at := func(v []float64, i int) float64 {
		if v == nil {
			return 0
		}
		return v[i]
	}
	m := y.Dims[1]
	plane := 1
	for _, n := range y.Shape()[2:] {
		plane *= n
	}
	requantize := y.DType == tensor.I8 || y.DType == tensor.U8
	for i, v := range acc {
		col := i / plane % m
		if integer {
			v = float64(int32(int64(v))) // sums are modulo 2^32
		}
		v = e.Apply(v, 1, at(scales, col), at(biases, col), at(rest, i))
		if integer && requantize {
			scale, lo, hi := float64(e.OutScale), -128.0, 127.0
			if scale == 0 {
				scale = 1
			}
			if y.DType == tensor.U8 {
				lo, hi = 0, 255
			}
			v = min(max(math.RoundToEven(v/scale)+float64(e.OutZero), lo), hi)
		}
		acc[i] = v
	}
	y.SetFloats(acc)
	return nil
}
