package xdna

import (
	"context"
	"fmt"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// A convolution with constant filters is a product: a row for each output position, holding the image's elements under the window, times a column for each filter. The
// rows are laid out on the host, some images at a time.

// convRows bounds the rows of one product, unless a single image has more: enough to fill the array many times over, in little memory.
const convRows = 8192

// convProblem is the product of a convolution on one image.
func convProblem(op conv.Conv, x, w, y tensor.Spec) (s matmul.Spec, rows int, err error) {
	switch {
	case op.NumGroups() != 1:
		return s, 0, fmt.Errorf("a convolution in %d groups: one is right", op.NumGroups())
	case x.DType != tensor.F32 || !w.DType.IsFloat() || w.DType == tensor.F64 || y.DType != tensor.F32:
		return s, 0, fmt.Errorf("a convolution of %v by %v into %v: float32 images are right", x.DType, w.DType, y.DType)
	case op.Layout == conv.ChannelsFirst && op.Epilogue.Residual != matmul.NoResidual:
		return s, 0, fmt.Errorf("a residual with channels first: channels last are right")
	}
	rows = 1
	for i := range int(x.Rank) - 2 {
		rows *= op.Layout.Spatial(y, i)
	}
	k := 1
	for _, d := range w.Shape()[1:] {
		k *= d
	}
	return matmul.Spec{N: w.Dims[0], K: k, A: tensor.F32, B: tensor.F32, C: tensor.F32, BLayout: matmul.ColMajor, Epilogue: op.Epilogue}, rows, nil
}

// supportsConv is Supports for convolutions.
func (b *Backend) supportsConv(op conv.Conv, c ops.Call) backends.Verdict {
	out, err := op.Infer(c.In)
	if err != nil {
		return backends.No("%v", err)
	}
	if len(c.Const) < 2 || !c.Const[1] {
		return backends.No("the filter is not a constant: weights are converted once")
	}
	s, rows, err := convProblem(op, c.In[0], c.In[1], out[0])
	if err != nil {
		return backends.No("%v", err)
	}
	images := c.In[0].Dims[0]
	together := imagesTogether(images, rows)
	v := b.judge(s, rows*together)
	if together < images {
		v.Cost = v.Cost * time.Duration(images) / time.Duration(together)
		v.Reason = fmt.Sprintf("%d of %d images at a time: %s", together, images, v.Reason)
	}
	return v
}

// imagesTogether is how many images of so many rows make one product.
func imagesTogether(images, rows int) int { return min(images, max(1, convRows/max(rows, 1))) }

// convolution is a node.
type convolution struct {
	product
	op         conv.Conv
	spec       matmul.Spec
	b          *Backend
	images     int // at a time
	rows       int // of an image
	x, kernel  [conv.MaxSpatial]int
	y          [conv.MaxSpatial]int
	channels   int
	plans      map[int]matmul.Plan // by number of images
	cols       []float32
	turned     []float32 // channels first: rows before they are turned around
	src        []float32
	first      int   // image
	image      int64 // bytes of all images
	strideX    [conv.MaxSpatial]int
	strideN, c int // elements from image to image, and from channel to channel
}

func three(v []int) [conv.MaxSpatial]int {
	out := [conv.MaxSpatial]int{1, 1, 1}
	copy(out[conv.MaxSpatial-len(v):], v)
	return out
}

// window returns stride, dilation and padding of dimension i of three, of which the last n count.
func (v *convolution) window(i, n int) (stride, dilation, before int) {
	if i -= conv.MaxSpatial - n; i < 0 {
		return 1, 1, 0
	}
	stride, dilation = v.op.At(i)
	return stride, dilation, v.op.Before[i]
}

func (v *convolution) bind(ctx context.Context, b *Backend, part *ops.Part, node *ops.Node, op conv.Conv) error {
	x, w, y := part.Values[node.In[0]].Spec, part.Values[node.In[1]].Spec, part.Values[node.Out[0]].Spec
	var err error
	if v.spec, v.rows, err = convProblem(op, x, w, y); err != nil {
		return err
	}
	v.op, v.b = op, b
	v.in, v.out = node.In, node.Out[0]
	v.colScale, v.bias, v.residual, _ = op.Operands()
	v.rowScale = -1
	v.channels = op.Layout.Channels(x)
	v.image = int64(x.Bytes())
	spatial := func(s tensor.Spec) [conv.MaxSpatial]int {
		var d []int
		for i := range int(s.Rank) - 2 {
			d = append(d, op.Layout.Spatial(s, i))
		}
		return three(d)
	}
	v.x, v.y, v.kernel = spatial(x), spatial(y), three(w.Shape()[2:])
	v.images = imagesTogether(x.Dims[0], v.rows)
	v.plans = map[int]matmul.Plan{}
	for _, n := range []int{v.images, x.Dims[0] % max(v.images, 1)} {
		if n > 0 && v.rows > 0 {
			if v.plans[n], err = b.engine.Plan(v.spec, matmul.Shape{M: n * v.rows}); err != nil {
				return err
			}
		}
	}
	c := part.Values[node.In[1]].Const
	if c == nil {
		return fmt.Errorf("%s: the filter is not a constant", b.dev.Name)
	}
	h, err := b.engine.form(v.spec)
	if err != nil {
		return err
	}
	type filterKey struct {
		packKey
		layout conv.Layout
	}
	form, err := c.Prepare(filterKey{packKey{b.engine, weightsSpec(v.spec), h.types}, op.Layout}, func() (any, error) {
		f := c.Tensor
		if op.Layout == conv.ChannelsLast { // columns in the order of memory: taps, then channels
			order := []int{0}
			for i := 2; i < int(f.Rank); i++ {
				order = append(order, i)
			}
			var err error
			if f, err = f.Permute(append(order, 1)...); err != nil {
				return nil, err
			}
		}
		flat, err := tensor.NewChecked(tensor.F32, f.Shape()...)
		if err != nil {
			return nil, err
		}
		if err := tensor.Copy(flat, f); err != nil {
			return nil, err
		}
		if flat, err = flat.Reshape(v.spec.N, v.spec.K); err != nil {
			return nil, err
		}
		return b.engine.Pack(ctx, v.spec, flat)
	})
	if err != nil {
		return err
	}
	v.weights = form.(matmul.Packed)
	return nil
}

func (v *convolution) run(ctx context.Context, frame []tensor.Tensor) error {
	x, y := frame[v.in[0]], frame[v.out]
	if y.Elems() == 0 {
		return nil
	}
	if !x.IsContiguous() {
		x = x.Clone()
	}
	v.src = tensor.Data[float32](x)
	defer func() { v.src = nil }()
	// Strides of a contiguous image in elements.
	n := int(x.Rank) - 2
	unit, at := 1, 1
	if v.op.Layout == conv.ChannelsLast {
		v.c, unit = 1, v.channels
	}
	for i := conv.MaxSpatial - 1; i >= 0; i-- {
		v.strideX[i] = unit * at
		at *= v.x[i]
	}
	if v.op.Layout == conv.ChannelsFirst {
		v.c = at
	}
	v.strideN = at * v.channels
	v.args.ColScale, v.args.Bias = v.vector(frame, v.colScale), v.vector(frame, v.bias)
	for v.first = 0; v.first < x.Dims[0]; v.first += v.images {
		images := min(v.images, x.Dims[0]-v.first)
		rows := images * v.rows
		v.cols = grow(v.cols, rows*v.spec.K)
		par.Run(v.b.opt.Threads, images*v.y[0]*v.y[1], jobs(func(_, job int) { v.line(job, n) }))
		v.args.A = tensor.Of(v.cols[:rows*v.spec.K], rows, v.spec.K)
		if v.op.Layout == conv.ChannelsFirst {
			v.turned = grow(v.turned, rows*v.spec.N)
			v.args.C = tensor.Of(v.turned[:rows*v.spec.N], rows, v.spec.N)
		} else {
			var err error
			if v.args.C, err = y.Slice(0, v.first, v.first+images, 1); err != nil {
				return err
			}
			if v.residual >= 0 {
				if v.args.Residual, err = frame[v.in[v.residual]].Slice(0, v.first, v.first+images, 1); err != nil {
					return err
				}
			}
		}
		if err := v.plans[images].(*mmPlan).product(ctx, v.weights, &v.args, &v.space); err != nil {
			return err
		}
		if v.op.Layout == conv.ChannelsFirst {
			// [image][position][channel] to [image][channel][position].
			turned := tensor.Of(v.turned[:rows*v.spec.N], images, v.rows, v.spec.N)
			turned, err := turned.Permute(0, 2, 1)
			if err != nil {
				return err
			}
			part, err := y.Slice(0, v.first, v.first+images, 1)
			if err != nil {
				return err
			}
			shaped, err := turned.Clone().Reshape(part.Shape()...)
			if err != nil {
				return err
			}
			if err := tensor.Copy(part, shaped); err != nil {
				return err
			}
		}
	}
	return nil
}

// line lays out the rows of one line of output positions.
func (v *convolution) line(job, dims int) {
	image, p0, p1 := job/(v.y[0]*v.y[1]), job/v.y[1]%v.y[0], job%v.y[1]
	src := v.src[(v.first+image)*v.strideN:][:v.strideN]
	s0, d0, b0 := v.window(0, dims)
	s1, d1, b1 := v.window(1, dims)
	s2, d2, b2 := v.window(2, dims)
	last := v.op.Layout == conv.ChannelsLast
	taps := v.kernel[0] * v.kernel[1] * v.kernel[2]
	for p2 := range v.y[2] {
		row := v.cols[((image*v.y[0]+p0)*v.y[1]+p1)*v.y[2]*v.spec.K+p2*v.spec.K:][:v.spec.K]
		tap := 0
		for k0 := range v.kernel[0] {
			for k1 := range v.kernel[1] {
				for k2 := range v.kernel[2] {
					i0, i1, i2 := p0*s0+k0*d0-b0, p1*s1+k1*d1-b1, p2*s2+k2*d2-b2
					inside := uint(i0) < uint(v.x[0]) && uint(i1) < uint(v.x[1]) && uint(i2) < uint(v.x[2])
					at := i0*v.strideX[0] + i1*v.strideX[1] + i2*v.strideX[2]
					switch {
					case last && inside:
						copy(row[tap*v.channels:(tap+1)*v.channels], src[at:])
					case last:
						clear(row[tap*v.channels : (tap+1)*v.channels])
					case inside:
						for c := range v.channels {
							row[c*taps+tap] = src[at+c*v.c]
						}
					default:
						for c := range v.channels {
							row[c*taps+tap] = 0
						}
					}
					tap++
				}
			}
		}
	}
}
