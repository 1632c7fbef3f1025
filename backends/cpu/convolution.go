package cpu

import (
	"context"

	engine "github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// convImage is the view of an operand as the engine wants it: [N, H, W, C], or with a depth [N, D, H, W, C], contiguous. Images of another layout or with gaps are copied.
type convImage struct {
	copier
	scratch tensor.Tensor
}

// last returns the channels-last view of an image, a single spatial dimension being a row.
func last(l conv.Layout, t tensor.Tensor) tensor.Tensor {
	if l == conv.ChannelsFirst {
		order := []int{0}
		for i := 2; i < int(t.Rank); i++ {
			order = append(order, i)
		}
		t, _ = t.Permute(append(order, 1)...)
	}
	if t.Rank == 3 { // [N, W, C]: one row
		t.Rank = 4
		t.Dims[3], t.Strides[3] = t.Dims[2], t.Strides[2]
		t.Dims[2], t.Strides[2] = t.Dims[1], t.Strides[1]
		t.Dims[1], t.Strides[1] = 1, t.Dims[2]*t.Strides[2]
	}
	return t
}

// read returns the image contiguous.
func (m *convImage) read(e *env, l conv.Layout, t *tensor.Tensor) tensor.Tensor {
	v := last(l, *t)
	if v.IsContiguous() {
		return v
	}
	dst := m.room(v.Spec)
	m.copy(e, &dst, &v)
	return dst
}

func (m *convImage) room(s tensor.Spec) tensor.Tensor {
	if m.scratch.Spec != s {
		m.scratch = tensor.New(s.DType, s.Shape()...)
	}
	return m.scratch
}

// half says how rows of 16-bit images are widened and narrowed.
type half struct {
	e *env
	x []uint16
	y []uint16
	f bool // float16, else bfloat16
	g bool
}

func (h *half) load(dst []float32, i int) {
	if h.f {
		h.e.vec.FromF16(dst, h.x[i:i+len(dst)])
	} else {
		h.e.vec.FromBF16(dst, h.x[i:i+len(dst)])
	}
}

func (h *half) store(i int, y []float32) {
	if h.g {
		h.e.vec.ToF16(h.y[i:i+len(y)], y)
	} else {
		h.e.vec.ToBF16(h.y[i:i+len(y)], y)
	}
}

// floatImage reports whether the engine takes images of the type.
func floatImage(d tensor.DType) bool { return d == tensor.F32 || d == tensor.F16 || d == tensor.BF16 }

// convKernel runs a convolution or a transposed one.
type convKernel struct {
	spec     engine.Spec
	layout   conv.Layout
	e        matmul.Epilogue
	in       []int
	out      int
	colScale int
	bias     int
	residual int
	scales   []float32
	filter   *engine.Filter // of a constant filter
	plan     *engine.Plan
	isa      cpuinfo.ISA
	args     engine.Args
	half     half
	x, y, r  convImage
	res      []float32

	// Of a 1x1 convolution that may run together with the depthwise one that feeds it.
	feeder *convKernel
	fed    *engine.Fed
}

// convCall describes both kinds of convolution to the engine, but for their types; ok is false where the reference must run.
func convCall(c ops.Call) (s engine.Spec, l conv.Layout, e matmul.Epilogue, ok bool) {
	x, w, y := c.In[0], c.In[1], c.Out[0]
	var win conv.Window
	switch op := c.Op.(type) {
	case conv.Conv:
		win, l, e = op.Window, op.Layout, op.Epilogue
		s.Groups, s.M = op.NumGroups(), w.Dims[0]
	case conv.Transposed:
		win, l, e = op.Window, op.Layout, op.Epilogue
		s.Groups, s.M, s.Transposed = op.NumGroups(), w.Dims[1]*op.NumGroups(), true
	}
	d := engineDims(l, win, x, y, w.Dims[2:])
	s.N, s.C = x.Dims[0], l.Channels(x)
	s.H, s.OH, s.KH, s.SH, s.DH, s.Top = d[1].In, d[1].Out, d[1].Kernel, d[1].Stride, d[1].Dilation, d[1].Before
	s.W, s.OW, s.KW, s.SW, s.DW, s.Left = d[2].In, d[2].Out, d[2].Kernel, d[2].Stride, d[2].Dilation, d[2].Before
	s.Depth = d[0]
	s = s.Fold() // kernels take neighbours of a row at once
	if s.C == 0 || s.M == 0 || s.Check() != nil {
		return
	}
	// What the epilogue cannot take along: scales that are not known when the filter is packed.
	_, colScale, _, residual, _ := matmul.Op{Epilogue: e}.Operands()
	if colScale >= 0 && !c.Const[colScale] && !byteImage(x.DType) || residual >= 0 && c.In[residual].DType != tensor.F32 {
		return
	}
	return s, l, e, true
}

// engineDims describes the spatial dimensions of an image to the engine, whose last two are always there.
func engineDims(l conv.Layout, win conv.Window, x, y tensor.Spec, kernel []int) (d [conv.MaxSpatial]engine.Dim) {
	d[1] = engine.Dim{In: 1, Out: 1, Kernel: 1, Stride: 1, Dilation: 1}
	n := int(x.Rank) - 2
	for i := range n {
		stride, dilation := win.At(i)
		d[conv.MaxSpatial-n+i] = engine.Dim{In: l.Spatial(x, i), Out: l.Spatial(y, i), Kernel: kernel[i], Stride: stride, Dilation: dilation,
			Before: win.Before[i], After: win.After[i]}
	}
	return d
}

func convKernelFor(b *Backend, c ops.Call) kernel {
	s, l, e, ok := convCall(c)
	if !ok {
		return nil
	}
	x, w, y := c.In[0].DType, c.In[1].DType, c.Out[0].DType
	if op, is := c.Op.(conv.Conv); is && byteImage(x) && byteImage(w) {
		return intConvKernelFor(b, c, op, s)
	}
	if !floatImage(x) || !floatImage(w) || !floatImage(y) {
		return nil
	}
	if !b.direct && c.Const[1] { // a filter that changes would be transformed in every run
		s.Tile = s.BestTile(b.isa)
	}
	if x == tensor.BF16 && w == tensor.BF16 && c.Const[1] && s.Tile == 0 && s.CanBF16() && engine.HasBF16(b.isa) {
		s.Type = engine.BF16
	}
	return &convKernel{spec: s, layout: l, e: e, isa: b.isa}
}

type filterKey struct {
	isa    cpuinfo.ISA
	spec   engine.Spec
	scales *ops.Constant
}

func (k *convKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.in, k.out = n.In, n.Out[0]
	_, k.colScale, k.bias, k.residual, _ = matmul.Op{Epilogue: k.e}.Operands()
	var scales *ops.Constant
	if k.colScale >= 0 {
		scales = part.Values[n.In[k.colScale]].Const
		k.scales = f32Of(scales.Tensor)
	}
	act, f := convAct(e, k.e.Act)
	k.args.Act = act
	k.args.Stop = e.stopped
	k.half.e = e
	depthwise := k.spec.Depthwise()
	switch {
	case k.e.Residual == matmul.ResidualBefore && depthwise:
		// Strips add no residual: they leave the sum alone, and what follows is done by pixel.
		k.args.Act, f = engine.NoAct, rowAct(e, k.e.Act)
		k.args.Post = func(i int, y []float32) {
			e.vec.Add(y, y, k.res[i:i+len(y)])
			f(y)
		}
	case k.e.Residual == matmul.ResidualAfter:
		k.args.Post = func(i int, y []float32) {
			if f != nil {
				f(y)
			}
			e.vec.Add(y, y, k.res[i:i+len(y)])
		}
	case f != nil:
		k.args.Post = func(_ int, y []float32) { f(y) }
	}
	if c := part.Values[n.In[1]].Const; c != nil {
		s := k.spec.Unsized()
		in := k.scales // what goes into the filter
		if s.Type == engine.BF16 {
			k.args.Scale, in, scales = k.scales, nil, nil
		}
		form, err := c.Prepare(filterKey{k.isa, s, scales}, func() (any, error) {
			defer c.Tensor.Evict()
			return engine.Pack(s, f32Of(c.Tensor), in, k.isa)
		})
		if err != nil {
			return err
		}
		k.filter = form.(*engine.Filter)
		if k.plan, err = engine.NewPlan(k.filter, k.spec, e.threads); err != nil {
			return err
		}
	}
	return nil
}

// f32Of returns the elements as a row of float32.
func f32Of(t tensor.Tensor) []float32 {
	if t.DType == tensor.F32 && t.IsContiguous() {
		return tensor.Data[float32](t)
	}
	dst := tensor.New(tensor.F32, t.Shape()...)
	if err := tensor.Copy(dst, t); err != nil {
		panic(err)
	}
	return tensor.Data[float32](dst)
}

// convAct returns the activation that the engine applies in registers, and what is left to do by pixel.
func convAct(e *env, a ops.Act) (engine.Act, func([]float32)) {
	act := engine.NoAct
	switch a.Kind {
	case ops.NoActivation:
	case ops.ReLU:
		act.Lo = 0
	case ops.Clip:
		act.Lo, act.Hi = a.P, a.Q
	case ops.HardSwish:
		act.Mode, act.P, act.Q = engine.Swish, 1.0/6, 0.5
	case ops.HardSwishAffine:
		act.Mode, act.P, act.Q, act.S, act.T = engine.SwishAffine, 1.0/6, 0.5, a.P, a.Q
	case ops.LeakyReLU:
		act.Mode, act.P = engine.Leaky, a.P
	case ops.HardSigmoid:
		act.Mode, act.P, act.Q, act.Lo, act.Hi = engine.Linear, a.P, a.Q, 0, 1
	default:
		return act, rowAct(e, a)
	}
	return act, nil
}

// rowAct returns an activation of rows.
func rowAct(e *env, a ops.Act) func([]float32) {
	if a.Kind == ops.NoActivation {
		return func([]float32) {}
	}
	row, _ := activationRow(e.vec, a)
	return func(y []float32) { row(y, y) }
}

func (k *convKernel) run(e *env, frame []tensor.Tensor) error {
	if k.plan == nil || k.filter == nil { // the filter is computed by the graph
		f, err := engine.Pack(k.spec, f32Of(frame[k.in[1]]), k.scales, k.isa)
		if err != nil {
			return err
		}
		defer f.Close()
		if k.plan, err = engine.NewPlan(f, k.spec, e.threads); err != nil {
			return err
		}
	}
	k.plan.Run(k.operands(e, frame))
	k.finish(e, frame)
	return nil
}

// operands returns the arguments of a run.
func (k *convKernel) operands(e *env, frame []tensor.Tensor) *engine.Args {
	a := &k.args
	x := k.x.read(e, k.layout, &frame[k.in[0]])
	y := last(k.layout, frame[k.out])
	if !y.IsContiguous() {
		y = k.y.room(y.Spec)
	}
	a.X, a.X16, a.Y, a.Load, a.Store = nil, nil, nil, nil, nil
	switch {
	case x.DType == tensor.F32:
		a.X = tensor.Data[float32](x)
	case k.spec.Type == engine.BF16:
		a.X16 = tensor.Data[uint16](x)
	default:
		k.half.x, k.half.f = tensor.Data[uint16](x), x.DType == tensor.F16
		a.Load = k.half.load
	}
	if y.DType == tensor.F32 {
		a.Y = tensor.Data[float32](y)
	} else {
		k.half.y, k.half.g = tensor.Data[uint16](y), y.DType == tensor.F16
		a.Store = k.half.store
	}
	a.Residual = nil
	if k.residual >= 0 {
		r := k.r.read(e, k.layout, &frame[k.in[k.residual]])
		k.res = tensor.Data[float32](r)
		if k.e.Residual == matmul.ResidualBefore && !k.spec.Depthwise() {
			a.Residual = k.res
		}
	}
	a.Bias = nil
	if k.bias >= 0 {
		t := &frame[k.in[k.bias]]
		if t.DType == tensor.F32 && t.IsContiguous() {
			a.Bias = tensor.Data[float32](*t)
		} else {
			a.Bias = f32Of(*t)
		}
	}
	return a
}

// finish puts results where they belong that could not go there at once.
func (k *convKernel) finish(e *env, frame []tensor.Tensor) {
	if out := last(k.layout, frame[k.out]); !out.IsContiguous() {
		k.y.copy(e, &out, &k.y.scratch)
	}
}

// feed lets the second convolution, which the first one feeds, run together with it, if that pays. It returns a bound of the scratch memory that
// this takes, in bytes.
func feed(part *ops.Part, first, second kernel) (*convKernel, int64) {
	d, ok1 := first.(*convKernel)
	k, ok2 := second.(*convKernel)
	if !ok1 || !ok2 || d.plan == nil || k.plan == nil || d.args.Post != nil || d.layout != conv.ChannelsLast || k.layout != conv.ChannelsLast {
		return nil, 0
	}
	for _, v := range []int{d.in[0], d.out, k.out} {
		if part.Values[v].Spec.DType != tensor.F32 {
			return nil, 0
		}
	}
	if k.fed = k.plan.Feed(d.plan); k.fed == nil {
		return nil, 0
	}
	k.feeder = d
	return k, int64(k.fed.WorkspaceBytes(false))
}

// runFed runs the convolution together with the one that feeds it; false says that it cannot, because tensors that a program has bound share
// memory.
func (k *convKernel) runFed(e *env, frame []tensor.Tensor) bool {
	if frame[k.out].Overlaps(frame[k.feeder.in[0]]) {
		return false
	}
	k.fed.Run(k.feeder.operands(e, frame), k.operands(e, frame))
	k.finish(e, frame)
	return true
}

// poolKernel runs a pooling without indices.
type poolKernel struct {
	layout conv.Layout
	spec   engine.PoolSpec
	isa    cpuinfo.ISA
	pool   *engine.Pool
	in     int
	out    int
	args   engine.Args
	half   half
	bytes  []byte // of an image of bytes, which is pooled as the floats that they are
	to     []byte // of its results
	x, y   convImage
}

func poolKernelFor(b *Backend, op conv.Pool, c ops.Call) kernel {
	x := c.In[0]
	if !floatImage(x.DType) && !byteImage(x.DType) || op.Indices || op.Kind == conv.Lp {
		return nil
	}
	taps := 1
	for i := range int(x.Rank) - 2 {
		const mostTaps = 1 << 20 // offsets of all taps are kept
		if op.Before[i] < 0 || op.After[i] < 0 || op.Kernel[i] > mostTaps/taps {
			return nil
		}
		taps *= op.Kernel[i]
	}
	d := engineDims(op.Layout, op.Window, x, c.Out[0], op.Kernel[:])
	if k := maxBytesKernelFor(b, op, d, x); k != nil {
		return k
	}
	s := engine.PoolSpec{N: x.Dims[0], C: op.Layout.Channels(x), Depth: d[0],
		H: d[1].In, OH: d[1].Out, KH: d[1].Kernel, SH: d[1].Stride, DH: d[1].Dilation, Top: d[1].Before, Bottom: d[1].After,
		W: d[2].In, OW: d[2].Out, KW: d[2].Kernel, SW: d[2].Stride, DW: d[2].Dilation, Left: d[2].Before, Right: d[2].After,
		Max: op.Kind == conv.Max, Counted: op.Kind == conv.AvgPadded}
	return &poolKernel{layout: op.Layout, spec: s, isa: b.isa}
}

func (k *poolKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.in, k.out = n.In[0], n.Out[0]
	if d := part.Values[k.in].Spec.DType; byteImage(d) {
		signed, lo, hi := d == tensor.I8, int32(0), int32(255)
		if signed {
			lo, hi = -128, 127
		}
		k.args.Load = func(dst []float32, i int) { engine.Widen(dst, k.bytes[i:i+len(dst)], signed, 0, k.isa) }
		k.args.Store = func(i int, row []float32) { gemm.Quantize(k.to[i:i+len(row)], row, 1, 0, lo, hi) }
	}
	k.pool = engine.NewPool(k.spec, k.isa, e.threads)
	k.args.Act, k.args.Stop = engine.NoAct, e.stopped
	k.half.e = e
	return nil
}

func (k *poolKernel) run(e *env, frame []tensor.Tensor) error {
	a := &k.args
	x := k.x.read(e, k.layout, &frame[k.in])
	out := last(k.layout, frame[k.out])
	y := out
	direct := y.IsContiguous()
	if !direct {
		y = k.y.room(out.Spec)
	}
	switch a.X, a.Y = nil, nil; {
	case byteImage(x.DType):
		k.bytes, k.to = rawBytes(&x), rawBytes(&y)
	case x.DType == tensor.F32:
		a.X, a.Y = tensor.Data[float32](x), tensor.Data[float32](y)
	default:
		k.half.x, k.half.y, k.half.f, k.half.g = tensor.Data[uint16](x), tensor.Data[uint16](y), x.DType == tensor.F16, x.DType == tensor.F16
		a.Load, a.Store = k.half.load, k.half.store
	}
	k.pool.Run(a)
	if !direct {
		k.y.copy(e, &out, &y)
	}
	return nil
}
