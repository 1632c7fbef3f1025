package cpu

import (
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/image"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// kernel returns the kernel for a call, or nil and why there is none. The call has been inferred.
func (b *Backend) kernel(c ops.Call) (kernel, string) {
	k := b.choose(c)
	if k == nil {
		return nil, "no kernel for " + ops.Describe(c.Op, c.In)
	}
	return k, ""
}

func (b *Backend) choose(c ops.Call) kernel {
	var d tensor.DType
	if len(c.In) > 0 {
		d = c.In[0].DType
	}
	switch op := c.Op.(type) {
	case elementwise.Unary:
		return b.unaryKernel(op.F, d)
	case elementwise.Activate:
		return b.activateKernel(op.Act, d)
	case elementwise.Scale:
		return b.scaleKernel(op, d)
	case elementwise.GLU:
		return b.gluKernel(op.Act, d)
	case elementwise.Binary:
		return b.binaryKernel(op.F, d, c.In[1].DType)
	case elementwise.Where:
		return whereKernel(c.Out[0].DType.Size())
	case elementwise.Clamp:
		return clampKernel(c)
	case elementwise.Cast:
		return castKernel(d, op.To)

	case norm.RMS, norm.Layer, norm.L2:
		return normKernel(c)
	case norm.Group:
		return groupKernel(op, c)
	case norm.Batch:
		return batchKernel(op, c)
	case attention.Softmax:
		return softmaxKernel(op, c)
	case attention.RoPE:
		return ropeKernelFor(op, c)
	case attention.SDPA:
		return sdpaKernelFor(op, c)
	case reduce.Reduce:
		return reduceKernelFor(op, c)
	case reduce.Arg:
		return argKernelFor(op, c)

	case shape.GetRows:
		return getRowsKernelFor(c)
	case shape.SetRows:
		return setRowsKernelFor(op, c)
	case shape.Gather:
		return gatherKernelFor(op, c)
	case shape.Contiguous, shape.Reshape, shape.Permute, shape.Broadcast, shape.Squeeze, shape.Unsqueeze, shape.Slice:
		return viewKernelFor(op, c)
	case shape.Concat:
		return concatKernelFor(op, c)
	case shape.Split:
		return splitKernelFor(op, c)
	case conv.Conv, conv.Transposed:
		return convKernelFor(b, c)
	case conv.Pool:
		return poolKernelFor(b, op, c)
	case image.Resize:
		return resizeKernelFor(op, c)
	case shape.Pad:
		return padKernelFor(op, c)
	case ops.ByteAdder:
		return b.addBytesKernel(op)
	case ops.ByteQuantizer:
		return b.quantizeKernel(op)
	case matmul.Op:
		spec, _ := op.Problem(c.In, c.Out[0])
		if _, err := form(spec, len(c.Const) > 1 && c.Const[1]); err != nil {
			return nil
		}
		return &matmulKernel{op: op}
	}
	return nil
}

// onlyFloats reports whether every present input has a type that loadFloats reads, other than f64, whose precision a float32 kernel
// would lose.
func onlyFloats(specs []tensor.Spec) bool {
	for _, s := range specs {
		switch s.DType {
		case tensor.Invalid, tensor.F32, tensor.F16, tensor.BF16:
		default:
			return false
		}
	}
	return true
}
