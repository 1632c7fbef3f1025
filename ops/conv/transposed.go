package conv

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Transposed is a transposed convolution: every element of the image adds the filter, scaled by it, to the output at a distance of
// Stride. Its inputs are the image, the filter [C, M/Groups, kernel...], and then what the epilogue has, as for Conv. Before and
// After are cut off the output; OutPad elements are added at its end (before After is cut off).
type Transposed struct {
	Window
	OutPad   [MaxSpatial]int
	Groups   int
	Layout   Layout
	Epilogue matmul.Epilogue
	Out      tensor.DType
}

// Name is "conv_transposed".
func (Transposed) Name() string { return "conv_transposed" }

// NumGroups returns the number of groups.
func (c Transposed) NumGroups() int { return max(c.Groups, 1) }

// Infer is the shape rule.
func (c Transposed) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if err := numInputs(c, c.Epilogue, in); err != nil {
		return nil, err
	}
	x, w := in[0], in[1]
	spatial, err := spatialOf(c.Layout, x)
	if err != nil {
		return nil, fmt.Errorf("conv_transposed: %w", err)
	}
	if c.Epilogue.RowScale {
		return nil, fmt.Errorf("conv_transposed: an epilogue with row scales")
	}
	if w.Rank != x.Rank {
		return nil, fmt.Errorf("conv_transposed: filter %v for image %v: as many dimensions are right", w, x)
	}
	g := c.NumGroups()
	channels := c.Layout.Channels(x)
	if err := checkGroups(c.Groups, channels); err != nil {
		return nil, fmt.Errorf("conv_transposed: %w", err)
	}
	if w.Dims[0] != channels {
		return nil, fmt.Errorf("conv_transposed: filter %v for %s: [%d, M, ...] is right", w, channelsIn(channels, g), channels)
	}
	for i, n := range spatial {
		s, d := c.At(i)
		k := w.Dims[2+i]
		if k < 1 || c.Stride[i] < 0 || c.Dilation[i] < 0 || c.OutPad[i] < 0 || n < 1 || s > 1<<30 || d > 1<<30 || k > 1<<30 || n > 1<<30 {
			return nil, fmt.Errorf("conv_transposed: dimension %d: %d elements, kernel %d, stride %d, dilation %d, output padding %d", i, n, k, s, d, c.OutPad[i])
		}
		const most = 1 << 61 // with which no sum below overflows
		if before, after := int64(c.Before[i]), int64(c.After[i]); before > most || after > most || before < -most || after < -most {
			return nil, fmt.Errorf("conv_transposed: dimension %d: padding %d and %d are out of range", i, c.Before[i], c.After[i])
		}
		full := int64(n-1)*int64(s) + int64(k-1)*int64(d) + 1 // below 2^62, whatever the sizes
		size := full - int64(c.Before[i]) - int64(c.After[i])
		if size > math.MaxInt-int64(c.OutPad[i]) {
			return nil, fmt.Errorf("conv_transposed: dimension %d: %w", i, mem.ErrOverflow)
		}
		if size += int64(c.OutPad[i]); size < 0 {
			return nil, fmt.Errorf("conv_transposed: dimension %d: %d elements of padding are more than the output has", i, int64(c.Before[i])+int64(c.After[i]))
		}
		spatial[i] = int(size)
	}
	d, err := outType(c.Out, x.DType, w.DType)
	if err == nil && !x.DType.IsFloat() {
		err = fmt.Errorf("image %v, a floating-point type is right", x)
	}
	if err != nil {
		return nil, fmt.Errorf("conv_transposed: %w", err)
	}
	m, ok := mem.Mul(w.Dims[1], g)
	if !ok {
		return nil, fmt.Errorf("conv_transposed: filter %v in %d groups: %w", w, g, mem.ErrOverflow)
	}
	return checkOperands(c.Name(), c.Epilogue, in, d, c.Layout.Dims(x.Dims[0], m, spatial), m)
}

// Flops counts a multiplication and an addition for every element of the image and tap.
func (c Transposed) Flops(in []tensor.Spec) float64 {
	return 2 * float64(in[0].Elems()) * float64(in[1].Elems()) / float64(max(in[1].Dims[0], 1))
}

// Reference computes the sums in float64.
func (c Transposed) Reference(out, in []tensor.Tensor) error {
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
	g := c.NumGroups()
	n, channels, m := x.Dims[0], x.Dims[1], y.Dims[1]
	perIn, perOut := channels/g, m/g
	is, os, ks := three(x.Shape()[2:]), three(y.Shape()[2:]), three(w.Shape()[2:])
	xv, wv := x.Floats(), w.Floats()
	acc := make([]float64, y.Elems())
	inPlane, outPlane, taps := is[0]*is[1]*is[2], os[0]*os[1]*os[2], ks[0]*ks[1]*ks[2]
	for b := range n {
		for ch := range channels {
			image := xv[(b*channels+ch)*inPlane:]
			for j := range perOut {
				filter := wv[(ch*perOut+j)*taps:]
				target := acc[(b*m+ch/perIn*perOut+j)*outPlane:]
				walk3(is, func(p [MaxSpatial]int) {
					v := image[(p[0]*is[1]+p[1])*is[2]+p[2]]
					walk3(ks, func(k [MaxSpatial]int) {
						at := 0
						for i := range os {
							s, d := window.At(i)
							q := p[i]*s + k[i]*d - window.Before[i]
							if q < 0 || q >= os[i] {
								return
							}
							at = at*os[i] + q
						}
						target[at] += v * filter[(k[0]*ks[1]+k[1])*ks[2]+k[2]]
					})
				})
			}
		}
	}
	return finish(c.Layout, c.Epilogue, false, y, acc, in)
}
