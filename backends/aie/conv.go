package aie

import (
	"context"
	"fmt"

	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// geometry is a convolution as a matrix product: rows are output pixels, K is filter positions, N is filters.
type geometry struct {
	array.Conv
	op      conv.Conv
	filters int
}

func (g *geometry) rows() int { return g.N * g.OutH * g.OutW }

func (g *geometry) spec() matmul.Spec {
	return matmul.Spec{N: g.filters, K: g.C * g.KH * g.KW, A: tensor.F32, B: tensor.F32, C: tensor.F32, BLayout: matmul.ColMajor, Epilogue: g.op.Epilogue}
}

// convGeometry returns the geometry, or why the array does not take the convolution.
func convGeometry(op conv.Conv, in []tensor.Spec) (*geometry, error) {
	out, err := op.Infer(in)
	if err != nil {
		return nil, err
	}
	x, w := in[0], in[1]
	switch {
	case x.DType != tensor.F32 || w.DType != tensor.F32 || out[0].DType != tensor.F32:
		return nil, fmt.Errorf("convolution of %v by %v; f32 is right", x.DType, w.DType)
	case op.NumGroups() != 1:
		return nil, fmt.Errorf("convolution in %d groups; one is right", op.NumGroups())
	case x.Rank != 3 && x.Rank != 4:
		return nil, fmt.Errorf("convolution over %d dimensions; one and two are right", x.Rank-2)
	case out[0].Elems() == 0 || x.Elems() == 0:
		return nil, fmt.Errorf("empty convolution")
	}
	g := &geometry{op: op, filters: w.Dims[0]}
	g.N, g.C, g.KH, g.H, g.OutH = x.Dims[0], op.Layout.Channels(x), 1, 1, 1
	g.StrideH, g.DilationH = 1, 1
	d := 0
	if x.Rank == 4 {
		g.H, g.OutH, g.KH, g.PadTop = op.Layout.Spatial(x, 0), op.Layout.Spatial(out[0], 0), w.Dims[2], op.Before[0]
		g.StrideH, g.DilationH = op.At(0)
		d = 1
	}
	g.W, g.OutW, g.KW, g.PadLeft = op.Layout.Spatial(x, d), op.Layout.Spatial(out[0], d), w.Dims[2+d], op.Before[d]
	g.StrideW, g.DilationW = op.At(d)
	if g.PadTop < 0 || g.PadLeft < 0 {
		return nil, fmt.Errorf("negative padding")
	}
	return g, nil
}

// convKernel runs a convolution by lowering. The filters are prepacked; the lowered image exists only in blocks.
type convKernel struct {
	e       *Engine
	g       *geometry
	in      []int
	out     int
	w       *weights
	args    matmul.Args
	r       run
	pixels  acts // the image, quantized, channels first
	quant   quantJob
	lower   lowerJob
	result  []float32 // rows of output pixels
	vectors [2][]float32
}

func (k *convKernel) bind(ctx context.Context, part *ops.Part, n *ops.Node) error {
	specs := make([]tensor.Spec, len(n.In))
	for i, v := range n.In {
		if v >= 0 {
			specs[i] = part.Values[v].Spec
		}
	}
	var err error
	if k.g, err = convGeometry(n.Op.(conv.Conv), specs); err != nil {
		return err
	}
	k.in, k.out = n.In, n.Out[0]
	c := part.Values[n.In[1]].Const
	if c == nil {
		return fmt.Errorf("aie: the filter is no constant")
	}
	spec := k.g.spec()
	key := packKey{k.e, weightsSpec(spec)}
	form, err := c.Prepare(key, func() (any, error) {
		t, err := c.Tensor.Clone().Reshape(spec.N, spec.K)
		if err != nil {
			return nil, err
		}
		return k.e.Pack(ctx, spec, t)
	})
	if err != nil {
		return err
	}
	k.w = form.(*packed).list[0]
	if _, err := k.e.planFor(spec, k.g.rows()); err != nil {
		return err
	}
	return k.w.expect(spec, k.g.rows())
}

func (k *convKernel) run(ctx context.Context, frame []tensor.Tensor) error {
	g, e := k.g, k.e
	x := frame[k.in[0]]
	spec := g.spec()
	r := &k.r
	r.e, r.spec, r.args, r.conv = e, spec, &k.args, k
	defer func() { k.args, k.quant.src = matmul.Args{}, nil }()
	colScale, bias, residual, _ := g.op.Operands()
	k.args.ColScale = k.vector(0, frame, colScale)
	k.args.Bias = k.vector(1, frame, bias)

	// The image becomes numbers with one scale an image, channels first: padding is then the number 0.
	if g.op.Layout == conv.ChannelsLast {
		order := []int{0, int(x.Rank) - 1}
		for i := 1; i < int(x.Rank)-1; i++ {
			order = append(order, i)
		}
		var err error
		if x, err = x.Permute(order...); err != nil {
			return err
		}
	}
	if !x.IsContiguous() {
		x = x.Clone()
	}
	size := g.C * g.H * g.W
	p := &k.pixels
	p.typ, p.m, p.k = k.w.typ, g.N, size
	k.quant.src, k.quant.stride, k.quant.split = tensor.Data[float32](x), 1, false
	k.quant.rows = grow(k.quant.rows, g.N)[:0]
	for i := range g.N {
		k.quant.rows = append(k.quant.rows, i*size)
	}
	k.quant.quantize(p, e.threads)

	rows, pixels := g.rows(), g.OutH*g.OutW
	a := &r.x
	a.typ, a.m, a.k, a.wide = k.w.typ, rows, spec.K, false
	a.scale = nil
	if p.typ != core.FP32 {
		a.scale = grow(p.scaleRows, rows)
		p.scaleRows = a.scale
		for i := range a.scale {
			a.scale[i] = p.scale[i/pixels]
		}
	}
	if err := k.multiply(ctx, rows); err != nil {
		return err
	}

	// Scale back and apply the epilogue row by row, then bring pixels to their place.
	c := frame[k.out]
	if residual >= 0 {
		res, err := k.rowsOf(frame[k.in[residual]])
		if err != nil {
			return err
		}
		k.args.Residual = res.Clone()
		if k.args.Residual, err = k.args.Residual.Reshape(rows, spec.N); err != nil {
			return err
		}
	}
	k.result = grow(k.result, rows*spec.N)
	flat := tensor.Of(k.result[:rows*spec.N], rows, spec.N)
	if err := r.store(k.w, &flat, 0, rows); err != nil {
		return err
	}
	to, err := k.rowsOf(c)
	if err != nil {
		return err
	}
	from, err := flat.Reshape(to.Shape()...)
	if err != nil {
		return err
	}
	return tensor.Copy(to, from)
}

// rowsOf views an output image with its channels last, as the rows of the product have them.
func (k *convKernel) rowsOf(t tensor.Tensor) (tensor.Tensor, error) {
	if k.g.op.Layout == conv.ChannelsLast {
		return t, nil
	}
	order := []int{0}
	for i := 2; i < int(t.Rank); i++ {
		order = append(order, i)
	}
	return t.Permute(append(order, 1)...)
}

// value is element p of the lowered row of output pixel i, as the image has it.
func (k *convKernel) value(i, p int) float32 {
	g := k.g
	ow, oh, n := i%g.OutW, i/g.OutW%g.OutH, i/(g.OutW*g.OutH)
	kw, kh, ch := p%g.KW, p/g.KW%g.KH, p/(g.KW*g.KH)
	h, w := oh*g.StrideH+kh*g.DilationH-g.PadTop, ow*g.StrideW+kw*g.DilationW-g.PadLeft
	if h < 0 || h >= g.H || w < 0 || w >= g.W {
		return 0
	}
	return k.quant.src[((n*g.C+ch)*g.H+h)*g.W+w]
}

func (k *convKernel) vector(i int, frame []tensor.Tensor, pos int) []float32 {
	if pos < 0 {
		return nil
	}
	t := frame[k.in[pos]]
	k.vectors[i] = floatsOf(k.vectors[i], &t)
	return k.vectors[i]
}

func (k *convKernel) multiply(ctx context.Context, rows int) error {
	r, w, g := &k.r, k.w, k.g
	if r.e.emulate {
		img := &array.Im2Row{Conv: g.Conv, Bytes: w.typ.Bytes()}
		switch w.typ {
		case core.Int16:
			img.Data = bytesOf(k.pixels.i16)
		case core.Int8:
			img.Data = bytesOf(k.pixels.hi)
		case core.FP32:
			img.Data = bytesOf(k.pixels.f32)
		}
		return r.multiplyWith(ctx, w, rows, img, nil)
	}
	return r.multiplyWith(ctx, w, rows, nil, func(i0, n int) { k.lower.fill(k, i0, n) })
}

// lowerJob fills rows of the lowered image for mode=fast.
type lowerJob struct {
	k     *convKernel
	first int
	rows  int
}

const lowerRows = 16

func (j *lowerJob) fill(k *convKernel, first, rows int) {
	j.k, j.first, j.rows = k, first, rows
	x := &k.r.x
	switch x.typ {
	case core.Int16:
		x.hi, x.lo = grow(x.hi, rows*x.k), grow(x.lo, rows*x.k)
	case core.Int8:
		x.hi = grow(x.hi, rows*x.k)
	case core.FP32:
		x.f32 = grow(x.f32, rows*x.k)
	}
	par.Run(k.e.threads, (rows+lowerRows-1)/lowerRows, j)
}

func (j *lowerJob) Do(_, job int) {
	k := j.k
	g, x, p := k.g, &k.r.x, &k.pixels
	for i := job * lowerRows; i < min(j.rows, (job+1)*lowerRows); i++ {
		row := j.first + i
		ow, oh, n := row%g.OutW, row/g.OutW%g.OutH, row/(g.OutW*g.OutH)
		at := i * x.k
		for ch := range g.C {
			plane := (n*g.C + ch) * g.H * g.W
			for kh := range g.KH {
				h := oh*g.StrideH + kh*g.DilationH - g.PadTop
				for kw := range g.KW {
					w := ow*g.StrideW + kw*g.DilationW - g.PadLeft
					inside := h >= 0 && h < g.H && w >= 0 && w < g.W
					src := plane + h*g.W + w
					switch x.typ {
					case core.Int16:
						v := int16(0)
						if inside {
							v = p.i16[src]
						}
						l := int8(v)
						x.lo[at], x.hi[at] = l, int8((int(v)-int(l))>>8)
					case core.Int8:
						x.hi[at] = 0
						if inside {
							x.hi[at] = p.hi[src]
						}
					case core.FP32:
						x.f32[at] = 0
						if inside {
							x.f32[at] = p.f32[src]
						}
					}
					at++
				}
			}
		}
	}
}
