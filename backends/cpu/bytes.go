package cpu

import (
	"github.com/tessera-go/tessera/backends/cpu/internal/vec"
	"github.com/tessera-go/tessera/internal/par"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// addBytesKernel adds quantized bytes by arithmetic. Operands with gaps run the reference.
type addBytesKernel struct {
	referenceKernel
	sum       vec.ByteSum
	vec       *vec.Funcs
	dst, a, b []byte
}

// addBytesKernel returns nil where the op's own range, which may look sums up in a table, is faster.
func (b *Backend) addBytesKernel(op ops.ByteAdder) kernel {
	if !b.vec.ByteSums {
		return nil
	}
	k := &addBytesKernel{referenceKernel: referenceKernel{op: op}, sum: byteSum(op.ByteSum()), vec: b.vec}
	b.vec.Prepare(&k.sum)
	return k
}

// byteSum returns a sum in the layout that kernels read.
func byteSum(s ops.ByteSum) vec.ByteSum {
	return vec.ByteSum{ScaleA: s.A.Scale, ScaleB: s.B.Scale, ScaleY: s.Y.Scale, ZeroA: s.A.Zero, ZeroB: s.B.Zero, ZeroY: s.Y.Zero,
		Lo: s.Lo, Hi: s.Hi, SignedA: s.A.Signed, SignedB: s.B.Signed}
}

func (k *addBytesKernel) run(e *env, frame []tensor.Tensor) error {
	y, a, b := &frame[k.out[0]], &frame[k.in[0]], &frame[k.in[1]]
	if !y.IsContiguous() || !a.IsContiguous() || !b.IsContiguous() {
		return k.referenceKernel.run(e, frame)
	}
	k.dst, k.a, k.b = y.Raw(), a.Raw(), b.Raw()
	par.Run(e.threads, (len(k.dst)+rangeLength-1)/rangeLength, k)
	return nil
}

// Do adds a piece.
func (k *addBytesKernel) Do(_, piece int) {
	from := piece * rangeLength
	to := min(from+rangeLength, len(k.dst))
	k.vec.AddBytes(k.dst[from:to], k.a[from:to], k.b[from:to], &k.sum)
}
