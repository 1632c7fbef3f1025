// Package matmul decides what a matrix product is and how an engine for it is asked: the problem (Spec, Shape, Epilogue), weights
// in an engine's own layout (Packed), a prepared way to run one shape (Plan), the operation of the graph (Op), and the call
// without a graph (MatMul).
//
//	C[M,N] = epilogue(A[M,K] x B[K,N])
//
// A (activations) is row-major; B (weights) is row-major or column-major, a column-major B being a GGUF or PyTorch weight of shape
// [N,K]; C is row-major. Leading batch dimensions broadcast. K = 0 gives the epilogue of zero. NaN and infinity propagate. Integer
// products are exact modulo 2^32.
//
// An engine belongs to a backend: backends.Open("cpu") gives one whose MatMul method returns it. Weights that are used again are packed once ([Engine]
// has an example).
package matmul

import (
	"context"
	"fmt"
	"io"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Layout is the order in which B lies in memory.
type Layout uint8

// The layouts of B.
const (
	RowMajor Layout = iota // B[K,N]
	ColMajor               // B stored as [N,K]
)

func (l Layout) String() string {
	if l == ColMajor {
		return "col"
	}
	return "row"
}

// Residual says whether and where a tensor of C's shape is added.
type Residual uint8

// The places of a residual.
const (
	NoResidual Residual = iota
	ResidualBefore
	ResidualAfter
)

// Epilogue is what happens to each accumulator before it is stored, in this order: times the row's scale, times the column's
// scale, plus bias, plus residual (before), activation, plus residual (after), then narrowing to the type of C. The kind is part of
// the problem; the data are arguments of a run. It is comparable.
//
// A floating-point C is rounded to nearest even; OutScale and OutZero have no meaning for it. C of I8, U8 or I16 is requantized if RowScale,
// ColScale, OutScale or OutZero is set: round to nearest even of value / OutScale, plus OutZero, saturated. Without any of them, and
// in I32, fractions (of a bias, say) are cut off toward zero, and what does not fit wraps.
type Epilogue struct {
	RowScale bool // a float32 per row of C, from the run (dynamic quantization)
	ColScale bool // a float32 per column
	Bias     bool // a float32 per column
	Residual Residual
	Act      ops.Act
	OutScale float32 // 0 means 1
	OutZero  int32
}

// Check returns an error if the epilogue is none that can be computed.
func (e Epilogue) Check() error {
	if e.Residual > ResidualAfter {
		return fmt.Errorf("unknown place %d of a residual", e.Residual)
	}
	return e.Act.Check()
}

// IsZero reports whether the epilogue does nothing but narrow.
func (e Epilogue) IsZero() bool { return e == Epilogue{} }

// Apply returns one element: acc with the epilogue's data, before narrowing. It is the reference for fused ones.
func (e Epilogue) Apply(acc, rowScale, colScale, bias, residual float64) float64 {
	if e.RowScale {
		acc *= rowScale
	}
	if e.ColScale {
		acc *= colScale
	}
	if e.Bias {
		acc += bias
	}
	if e.Residual == ResidualBefore {
		acc += residual
	}
	acc = e.Act.Apply(acc)
	if e.Residual == ResidualAfter {
		acc += residual
	}
	return acc
}

// Spec is what the weights fix. It is comparable. Which types go together is the engine's business: Engine.Supports says.
type Spec struct {
	N, K     int          // columns of B and C, and the length of the sums
	A, B, C  tensor.DType // none follows from the others, as Out of Op does
	BLayout  Layout
	Epilogue Epilogue
}

func (s Spec) String() string {
	return fmt.Sprintf("%v x %v -> %v, K %d, N %d, B %v", s.A, s.B, s.C, s.K, s.N, s.BLayout)
}

// Shape is what varies between runs: M rows in each of Batch products, whose operands may be repeated (stride 0).
type Shape struct {
	M     int
	Batch [3]int // outermost first; 0 and 1 mean none
}

// Batches returns the number of products.
func (s Shape) Batches() int {
	n := 1
	for _, b := range s.Batch {
		n *= max(b, 1)
	}
	return n
}

// Args are the operands of one run. A is [batch..., M, K] and C is [batch..., M, N], of which rows are contiguous. B is used only by
// plans for a B that is not packed. What the epilogue does not have is not looked at.
type Args struct {
	A, B, C, Residual tensor.Tensor // Residual has C's shape
	RowScale          []float32     // M numbers for each product of the batch, outermost first
	ColScale, Bias    []float32     // N numbers, for all products
}

// Workspace is scratch memory that a plan asks for; it grows and is reused. One run at a time may use it. The zero value is an empty one.
type Workspace struct{ Data any }

// Engine runs matrix products. Backends have one.
type Engine interface {
	// Supports says why the engine cannot run a problem, or nil.
	Supports(Spec, Shape) error
	// Pack brings weights into the engine's layout, once.
	Pack(context.Context, Spec, tensor.Tensor) (Packed, error)
	// Plan prepares a shape. Plans are safe for several goroutines, each with its own Workspace.
	Plan(Spec, Shape) (Plan, error)
}

// Packed is a weight in an engine's layout, with the geometry it was packed for. A foreign or stale one is refused when it is used.
type Packed interface {
	Spec() Spec
	io.WriterTo
	Close() error
}

// Plan runs one shape. After the first run with a workspace, which must not be nil, it allocates nothing. Without packed weights (nil) B is that of Args.
type Plan interface {
	Run(context.Context, Packed, *Args, *Workspace) error
}

// Op is the product as an operation of the graph. Its inputs are A [..., M, K], B [..., K, N] (or [..., N, K] with TransB), and
// then, as the epilogue has them: row scales [..., M], column scales [N], bias [N], residual (C's shape). Leading dimensions
// broadcast by NumPy's rule. Out is the type of C: Invalid means f32 for float operands and i32 for integers.
type Op struct {
	TransB   bool
	Epilogue Epilogue
	Out      tensor.DType
}

// Name is "matmul".
func (Op) Name() string { return "matmul" }

// Operands gives the positions of the optional inputs, -1 where absent.
func (o Op) Operands() (rowScale, colScale, bias, residual, total int) {
	total = 2
	take := func(has bool) int {
		if !has {
			return -1
		}
		total++
		return total - 1
	}
	e := o.Epilogue
	return take(e.RowScale), take(e.ColScale), take(e.Bias), take(e.Residual != NoResidual), total
}

// Problem returns the product's Spec and Shape for its inputs, once Infer has accepted them.
func (o Op) Problem(in []tensor.Spec, out tensor.Spec) (Spec, Shape) {
	a, b := in[0], in[1]
	s := Spec{A: a.DType, B: b.DType, C: out.DType, K: a.Dim(-1), N: out.Dim(-1), Epilogue: o.Epilogue}
	if o.TransB {
		s.BLayout = ColMajor
	}
	sh := Shape{M: out.Dim(-2)}
	for i, n := 0, int(out.Rank)-2; i < n; i++ {
		j := i + 3 - n
		if j < 0 {
			sh.Batch[0] = max(sh.Batch[0], 1) * out.Dims[i]
			continue
		}
		sh.Batch[j] = max(sh.Batch[j], 1) * out.Dims[i]
	}
	return s, sh
}

// Infer is the shape rule.
func (o Op) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	rowScale, colScale, bias, residual, total := o.Operands()
	if err := ops.NumInputs(o, in, total, total); err != nil {
		return nil, err
	}
	if err := o.Epilogue.Check(); err != nil {
		return nil, fmt.Errorf("matmul: %w", err)
	}
	a, b := in[0], in[1]
	if a.Rank < 2 || b.Rank < 2 {
		return nil, fmt.Errorf("matmul: operands %v and %v must have two dimensions or more", a, b)
	}
	k, n := b.Dim(-2), b.Dim(-1)
	if o.TransB {
		k, n = n, k
	}
	if a.Dim(-1) != k {
		return nil, fmt.Errorf("matmul: A %v has K = %d, B %v has K = %d", a, a.Dim(-1), b, k)
	}
	batch, err := tensor.BroadcastDims(a.Shape()[:a.Rank-2], b.Shape()[:b.Rank-2])
	if err != nil {
		return nil, fmt.Errorf("matmul: batch dimensions of A %v and B %v: %w", a, b, err)
	}
	out, err := outType(o.Out, a.DType, b.DType)
	if err != nil {
		return nil, err
	}
	c, err := tensor.CheckDims(out, append(batch, a.Dim(-2), n))
	if err != nil {
		return nil, fmt.Errorf("matmul: %w", err)
	}
	for _, v := range []struct {
		pos, n int
		what   string
	}{{colScale, n, "column scales"}, {bias, n, "bias"}} {
		if v.pos >= 0 && (in[v.pos].DType != tensor.F32 || in[v.pos].Rank == 0 || in[v.pos].Elems() != v.n || in[v.pos].Dim(-1) != v.n) {
			return nil, fmt.Errorf("matmul: %s are %v, f32[%d] is right", v.what, in[v.pos], v.n)
		}
	}
	if rowScale >= 0 {
		want := tensor.MakeSpec(tensor.F32, append(batch, a.Dim(-2))...)
		if in[rowScale] != want {
			return nil, fmt.Errorf("matmul: row scales are %v, %v is right", in[rowScale], want)
		}
	}
	if residual >= 0 && (in[residual].With(c.DType) != c || in[residual].DType.IsBlock()) {
		return nil, fmt.Errorf("matmul: residual is %v, %v is right", in[residual], c)
	}
	return []tensor.Spec{c}, nil
}

func outType(out, a, b tensor.DType) (tensor.DType, error) {
	if a == tensor.F64 && b == tensor.F64 && (out == tensor.Invalid || out == tensor.F64) {
		return tensor.F64, nil
	}
	float := a.IsFloat() && (b.IsFloat() || b.IsBlock()) || a == tensor.BFP16
	switch {
	case float && out == tensor.Invalid:
		return tensor.F32, nil
	case float && (out == tensor.F32 || out == tensor.BF16 || out == tensor.F16):
		return out, nil
	case a.IsInt() && b.IsInt() && out == tensor.Invalid:
		return tensor.I32, nil
	case a.IsInt() && b.IsInt() && (out == tensor.I32 || out == tensor.I16 || out == tensor.I8 || out == tensor.U8 || out == tensor.F32):
		return out, nil
	}
	if out == tensor.Invalid {
		return 0, fmt.Errorf("matmul: no product of %v and %v", a, b)
	}
	return 0, fmt.Errorf("matmul: no product of %v and %v with result %v", a, b, out)
}

// Flops counts a multiplication and an addition for every M, N, K.
func (o Op) Flops(in []tensor.Spec) float64 {
	out, err := o.Infer(in)
	if err != nil {
		return 0
	}
	return 2 * float64(out[0].Elems()) * float64(in[0].Dim(-1))
}
