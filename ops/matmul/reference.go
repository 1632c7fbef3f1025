package matmul

import (
	"fmt"
	"math"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Reference computes the product in float64 (exact integers modulo 2^32 for integer operands), element by element.
func (o Op) Reference(out, in []tensor.Tensor) error {
	rowScale, colScale, bias, residual, _ := o.Operands()
	c := out[0]
	batch := c.Shape()[:c.Rank-2]
	a, err := in[0].Broadcast(append(append([]int{}, batch...), in[0].Dim(-2), in[0].Dim(-1))...)
	if err != nil {
		return err
	}
	bt := in[1]
	if bt.DType.IsBlock() {
		if bt, err = quant.Decode(bt); err != nil {
			return err
		}
	}
	if o.TransB {
		if bt, err = bt.Transpose(int(bt.Rank)-2, int(bt.Rank)-1); err != nil {
			return err
		}
	}
	b, err := bt.Broadcast(append(append([]int{}, batch...), bt.Dim(-2), bt.Dim(-1))...)
	if err != nil {
		return err
	}
	m, n, k := c.Dim(-2), c.Dim(-1), a.Dim(-1)
	optional := func(i int) []float64 {
		if i < 0 {
			return nil
		}
		return in[i].Floats()
	}
	rs, cs, bs, res := optional(rowScale), optional(colScale), optional(bias), optional(residual)
	at := func(v []float64, i int) float64 {
		if v == nil {
			return 0
		}
		return v[i]
	}
	integer := a.DType.IsInt() && b.DType.IsInt()
	values := make([]float64, c.Elems())
	var av, bv []float64
	var ai, bi []int64 // exact beyond 2^53, too
	if integer {
		ai, bi = a.Ints(), b.Ints()
	} else {
		av, bv = a.Floats(), b.Floats()
	}
	sums, floats := make([]int64, n), make([]float64, n)
	for row := 0; n > 0 && row < len(values)/n; row++ { // row by row of B, whose columns lie far apart
		product := row / m
		clear(sums)
		clear(floats)
		for l := range k {
			first := (product*k + l) * n
			if integer {
				for col, v := range bi[first : first+n] {
					sums[col] += ai[row*k+l] * v
				}
			} else {
				for col, v := range bv[first : first+n] {
					floats[col] += av[row*k+l] * v
				}
			}
		}
		for col, acc := range floats {
			if integer {
				acc = float64(int32(sums[col])) // the result is exact modulo 2^32
			}
			i := row*n + col
			values[i] = o.Epilogue.Apply(acc, at(rs, row), at(cs, col), at(bs, col), at(res, i))
		}
	}
	switch c.DType {
	case tensor.I8, tensor.U8, tensor.I16:
		if o.Epilogue.OutScale == 0 && o.Epilogue.OutZero == 0 && !o.Epilogue.RowScale && !o.Epilogue.ColScale {
			break // plain narrowing wraps
		}
		requantize(values, o.Epilogue, c.DType)
	}
	c.SetFloats(values)
	return nil
}

func requantize(values []float64, e Epilogue, d tensor.DType) {
	scale := float64(e.OutScale)
	if scale == 0 {
		scale = 1
	}
	bounds := map[tensor.DType][2]float64{tensor.I8: {-128, 127}, tensor.U8: {0, 255}, tensor.I16: {-32768, 32767}}[d]
	for i, v := range values {
		values[i] = min(max(math.RoundToEven(v/scale)+float64(e.OutZero), bounds[0]), bounds[1])
	}
}

// MatMul computes c = a x b, with the engine of the options or the default one. Shapes, types and batch broadcasting are those of Op;
// b may be any view, a transposed one included. C must share no memory with an operand; ranges of columns of one matrix that have none in
// common do not. Operands that reach beyond their buffers, have a negative stride, or overlap C are refused before anything is written.
func MatMul(c, a, b tensor.Tensor, opts ...Option) (err error) {
	defer mem.Caught(mem.Catch(), &err) // of a mapped file that has been cut short
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	op := Op{Epilogue: o.epilogue, Out: c.DType}
	in := []tensor.Tensor{a, b}
	in = append(in, o.operands...)
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		if specs[i] = in[i].Spec; int(specs[i].Rank) > tensor.MaxRank {
			return fmt.Errorf("matmul: %s: %w", op.operand(i), specs[i].Check())
		}
	}
	out, err := op.Infer(specs)
	if err != nil {
		return err
	}
	if out[0] != c.Spec {
		return fmt.Errorf("matmul: C is %v, %v is right", c.Spec, out[0])
	}
	if c.Buf != nil && c.Buf.ReadOnly() {
		return fmt.Errorf("matmul: C: %w", tensor.ErrReadOnly)
	}
	if err := c.CheckMemory(); err != nil {
		return fmt.Errorf("matmul: C: %w", err)
	}
	for i := range in {
		if err := in[i].CheckMemory(); err != nil {
			return fmt.Errorf("matmul: %s: %w", op.operand(i), err)
		}
		if c.Overlaps(in[i]) && !besides(&c, &in[i]) {
			return fmt.Errorf("matmul: C overlaps operand %d, %s", i, op.operand(i))
		}
	}
	run := o.direct
	if run == nil {
		run = defaultDirect
	}
	if run == nil {
		return op.Reference([]tensor.Tensor{c}, in)
	}
	return run(op, c, in, o.threads)
}

// operand names input i.
func (o Op) operand(i int) string {
	rowScale, colScale, bias, residual, _ := o.Operands()
	switch i {
	case 0:
		return "A"
	case 1:
		return "B"
	case rowScale:
		return "row scales"
	case colScale:
		return "column scales"
	case bias:
		return "bias"
	case residual:
		return "residual"
	}
	return fmt.Sprintf("operand %d", i)
}

// besides reports whether two tensors are ranges of columns of matrices whose rows have one distance, so that no byte of one is a byte of the other
// although they lie between one another.
func besides(t, u *tensor.Tensor) bool {
	wide, apart, ok := columns(t)
	wideU, apartU, okU := columns(u)
	if apart == 0 {
		apart = apartU
	}
	if !ok || !okU || apart == 0 || apartU != 0 && apartU != apart || wide > apart || wideU > apart {
		return false
	}
	// All bytes of t lie from 0 to wide on of such a row, those of u from at on.
	at := (int(uintptr(u.Ptr())-uintptr(t.Ptr()))%apart + apart) % apart
	return at >= wide && at+wideU <= apart
}

// columns returns the bytes of a row and the bytes from one to the next, 0 where there is one row; ok is false where rows have gaps or their distances
// are no multiples of one another.
func columns(t *tensor.Tensor) (wide, apart int, ok bool) {
	last := int(t.Rank) - 1
	if last < 1 || t.DType.IsBlock() || t.Dims[last] > 1 && t.Strides[last] != 1 {
		return 0, 0, false
	}
	for i := last - 1; i >= 0; i-- {
		switch {
		case t.Dims[i] == 1 || t.Strides[i] == 0:
		case apart == 0:
			apart = t.Strides[i]
		case t.Strides[i]%apart != 0:
			return 0, 0, false
		}
	}
	size := t.DType.Size()
	return t.Dims[last] * size, apart * size, true
}

// Direct computes a product whose operands have been checked, without a plan kept: what an engine registers for MatMul.
type Direct func(op Op, c tensor.Tensor, in []tensor.Tensor, threads int) error

var defaultDirect Direct

// RegisterDefault sets how MatMul computes when no option says otherwise. The CPU backend calls it when it is linked; without it
// MatMul runs the reference.
func RegisterDefault(run Direct) { defaultDirect = run }

// Option changes a MatMul.
type Option func(*options)

type options struct {
	epilogue Epilogue
	operands []tensor.Tensor
	threads  int
	direct   Direct
}

// WithEpilogue fuses an epilogue, whose operands follow in Op's order.
func WithEpilogue(e Epilogue, operands ...tensor.Tensor) Option {
	return func(o *options) { o.epilogue, o.operands = e, operands }
}

// WithThreads limits the workers; 0 means GOMAXPROCS.
func WithThreads(n int) Option { return func(o *options) { o.threads = n } }

// WithReference computes with the reference implementation.
func WithReference() Option {
	return func(o *options) {
		o.direct = func(op Op, c tensor.Tensor, in []tensor.Tensor, _ int) error {
			return op.Reference([]tensor.Tensor{c}, in)
		}
	}
}
