package cpu

import (
	"context"
	"unsafe"

	engine "github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// byteImage reports whether integer convolutions take images of the type.
func byteImage(d tensor.DType) bool { return d == tensor.I8 || d == tensor.U8 }

// intConvKernel runs a convolution of bytes. One by channel goes by way of floats, in which its sums are exact.
type intConvKernel struct {
	op       conv.Conv
	spec     engine.Spec
	isa      cpuinfo.ISA
	in       []int
	out      int
	colScale int
	bias     int
	residual int
	plan     *engine.Plan
	constant bool // the filter
	threads  int
	args     engine.Args
	x, y, r  convImage
	bytes    []uint8 // of the image, where floats are made of them
	to       []uint8 // of the result
	ints     []int32
	res      []float32
	vectors  [2][]float32 // scales and bias
}

func intConvKernelFor(b *Backend, c ops.Call, op conv.Conv, s engine.Spec) kernel {
	y := c.Out[0].DType
	s.Signed, s.XZero = c.In[0].DType == tensor.I8, op.XZero
	lo, hi := int32(0), int32(255)
	if s.Signed {
		lo, hi = -128, 127
	}
	wlo, whi := int32(0), int32(255)
	if c.In[1].DType == tensor.I8 {
		wlo, whi = -128, 127
	}
	if op.XZero < lo || op.XZero > hi || op.WZero < wlo || op.WZero > whi || y != tensor.I32 && y != tensor.F32 && !byteImage(y) {
		return nil
	}
	if y == tensor.I32 && (op.Epilogue != matmul.Epilogue{}) { // its results would be rounded to integers
		return nil
	}
	if s.Depthwise() {
		const exact = 1 << 24 / (255 * 255) // taps
		if s.Weights()/s.M > exact {
			return nil
		}
		s.Signed, s.XZero = false, 0
	} else {
		s.Type = engine.Int8
		if !b.direct && c.Const[1] {
			s.Tile = s.BestTile(b.isa)
		}
	}
	return &intConvKernel{op: op, spec: s, isa: b.isa}
}

type intFilterKey struct {
	isa   cpuinfo.ISA
	spec  engine.Spec
	wzero int32
}

func (k *intConvKernel) bind(_ context.Context, e *env, part *ops.Part, n *ops.Node) error {
	k.in, k.out = n.In, n.Out[0]
	k.colScale, k.bias, k.residual, _ = k.op.Operands()
	k.threads = e.threads
	if c := part.Values[n.In[1]].Const; c != nil {
		s := k.spec.Unsized()
		form, err := c.Prepare(intFilterKey{k.isa, s, k.op.WZero}, func() (any, error) { return k.pack(s, &c.Tensor) })
		if err != nil {
			return err
		}
		if k.plan, err = engine.NewPlan(form.(*engine.Filter), k.spec, e.threads); err != nil {
			return err
		}
		k.constant = true
	}
	k.args.Act, k.args.Stop = engine.NoAct, e.stopped
	y := part.Values[k.out].Spec.DType
	k.args.Raw = y == tensor.I32 && k.spec.Type == engine.Int8
	k.finish(e, y)
	switch {
	case byteImage(y):
		scale, lo, hi := float32(1), int32(-128), int32(127)
		if k.op.Epilogue.OutScale != 0 {
			scale = 1 / k.op.Epilogue.OutScale
		}
		if y == tensor.U8 {
			lo, hi = 0, 255
		}
		k.args.Quant = engine.Quant{Scale: scale, Zero: k.op.Epilogue.OutZero, Low: lo, High: hi}
		k.args.Narrow = func(dst []byte, x []float32) { gemm.Quantize(dst, x, scale, k.op.Epilogue.OutZero, lo, hi) }
		k.args.Store = func(i int, row []float32) { k.args.Narrow(k.to[i:i+len(row)], row) }
	case y == tensor.I32 && !k.args.Raw:
		k.args.Store = func(i int, row []float32) {
			for j, v := range row {
				k.ints[i+j] = int32(v)
			}
		}
	}
	if k.spec.Type == engine.F32 {
		signed := part.Values[n.In[0]].Spec.DType == tensor.I8
		k.args.Load = func(dst []float32, i int) { engine.Widen(dst, k.bytes[i:i+len(dst)], signed, k.op.XZero, k.isa) }
	}
	return nil
}

// pack packs a filter.
func (k *intConvKernel) pack(s engine.Spec, t *tensor.Tensor) (*engine.Filter, error) {
	if !t.IsContiguous() {
		c := t.Clone()
		t = &c
	}
	raw := rawBytes(t)
	if s.Type == engine.F32 {
		floats := make([]float32, len(raw))
		engine.Widen(floats, raw, t.DType == tensor.I8, k.op.WZero, k.isa)
		return engine.Pack(s, floats, nil, k.isa)
	}
	w := make([]int16, len(raw))
	engine.WidenInt16(w, raw, t.DType == tensor.I8, int16(k.op.WZero), k.isa)
	return engine.PackInt(s, w, k.isa)
}

// finish says what happens to the sums: in registers what the engine can do, the rest by pixel.
func (k *intConvKernel) finish(e *env, y tensor.DType) {
	ep := k.op.Epilogue
	if y == tensor.I32 {
		return
	}
	act, f := convAct(e, ep.Act)
	if k.spec.Type == engine.Int8 {
		k.args.Act = act
		if f != nil || ep.Residual == matmul.ResidualAfter {
			k.args.Post = func(i int, y []float32) {
				if f != nil {
					f(y)
				}
				if ep.Residual == matmul.ResidualAfter {
					e.vec.Add(y, y, k.res[i:i+len(y)])
				}
			}
		}
		return
	}
	f = rowAct(e, ep.Act)
	k.args.Post = func(i int, y []float32) {
		m := k.spec.M
		for at := 0; at < len(y); at += m {
			pixel := y[at : at+m]
			if k.vectors[0] != nil {
				e.vec.Mul(pixel, pixel, k.vectors[0])
			}
			if k.vectors[1] != nil {
				e.vec.Add(pixel, pixel, k.vectors[1])
			}
		}
		if ep.Residual == matmul.ResidualBefore {
			e.vec.Add(y, y, k.res[i:i+len(y)])
		}
		f(y)
		if ep.Residual == matmul.ResidualAfter {
			e.vec.Add(y, y, k.res[i:i+len(y)])
		}
	}
}

// rawBytes returns the memory of a contiguous tensor of bytes.
func rawBytes(t *tensor.Tensor) []byte {
	if t.DType == tensor.U8 {
		return tensor.Data[uint8](*t)
	}
	v := tensor.Data[int8](*t)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

func (k *intConvKernel) run(e *env, frame []tensor.Tensor) error {
	if !k.constant {
		f, err := k.pack(k.spec, &frame[k.in[1]])
		if err != nil {
			return err
		}
		defer f.Close()
		if k.plan, err = engine.NewPlan(f, k.spec, k.threads); err != nil {
			return err
		}
	}
	a, l := &k.args, k.op.Layout
	x := k.x.read(e, l, &frame[k.in[0]])
	out := last(l, frame[k.out])
	y := out
	direct := y.IsContiguous()
	if !direct {
		y = k.y.room(out.Spec)
	}
	if k.spec.Type == engine.Int8 {
		a.X8 = rawBytes(&x)
	} else {
		k.bytes = rawBytes(&x)
	}
	switch {
	case y.DType == tensor.F32:
		a.Y = tensor.Data[float32](y)
	case a.Raw:
		v := tensor.Data[int32](y)
		a.Y = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
	case y.DType == tensor.I32:
		k.ints = tensor.Data[int32](y)
	default:
		k.to = rawBytes(&y)
		if k.spec.Type == engine.Int8 {
			a.Bytes = k.to
		}
	}
	for i, at := range []int{k.colScale, k.bias} {
		if at >= 0 {
			k.vectors[i] = f32Of(frame[k.in[at]])
		}
	}
	if k.spec.Type == engine.Int8 {
		a.Scale, a.Bias = k.vectors[0], k.vectors[1]
	}
	a.Residual = nil
	if k.residual >= 0 {
		r := k.r.read(e, l, &frame[k.in[k.residual]])
		k.res = tensor.Data[float32](r)
		if k.op.Epilogue.Residual == matmul.ResidualBefore && k.spec.Type == engine.Int8 {
			a.Residual = k.res
		}
	}
	k.plan.Run(a)
	if !direct {
		k.y.copy(e, &out, &y)
	}
	return nil
}
