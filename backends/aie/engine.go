package aie

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/aie/array"
	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Engine runs matrix products on the emulated array.
type Engine struct {
	dev       device.Device
	design    plan.Design
	tiles     int
	precision core.Type
	emulate   bool
	minRows   int
	threads   int

	mu    sync.Mutex
	plans map[planKey]*planned
	bases map[planKey]plan.Options // geometry of the weights, by problem with rows = 0
	count counters
}

type planKey struct {
	n, k, rows int
	typ        core.Type
	narrow     core.Narrow
}

// planned is a product laid over the array.
type planned struct {
	plan    *plan.Plan
	pred    plan.Prediction
	once    sync.Once
	program *array.Program
	err     error
}

func (p *planned) build() (*array.Program, error) {
	p.once.Do(func() { p.program, p.err = array.Build(p.plan) })
	return p.program, p.err
}

func (e *Engine) stats() backends.Stats {
	e.count.mu.Lock()
	defer e.count.mu.Unlock()
	return e.count.s
}

// typeFor is the number format in which a problem is computed.
func (e *Engine) typeFor(s matmul.Spec) core.Type {
	switch {
	case s.A == tensor.I16:
		return core.Int16
	case s.A == tensor.I8:
		return core.Int8
	}
	return e.precision
}

// narrowFor is how sums leave the lanes. Integer products are exact modulo 2^32. Quantized ones lose as many low bits as make any sum fit 32: relative
// to the largest sum, 2^-31.
func (e *Engine) narrowFor(s matmul.Spec) core.Narrow {
	if e.typeFor(s) != core.Int16 || s.A == tensor.I16 {
		return core.Narrow{}
	}
	return core.Narrow{Shift: core.ShiftFor(s.K, quantLimit16), Round: core.ConvEven}
}

// Supports says why a problem has no product here, or nil.
func (e *Engine) Supports(s matmul.Spec, sh matmul.Shape) error {
	if err := s.Check(sh); err != nil {
		return err
	}
	switch {
	case s.A == tensor.I16 && s.B == tensor.I16, s.A == tensor.I8 && s.B == tensor.I8:
	case s.A == tensor.F32 && (s.B == tensor.F32 || s.B == tensor.F16 || s.B == tensor.BF16 || s.B.IsBlock() && quant.CanDecode(s.B)):
		if s.C != tensor.F32 {
			return fmt.Errorf("aie: result %v of a float product; f32 is right", s.C)
		}
	default:
		return fmt.Errorf("aie: no product of %v and %v; i16 x i16, i8 x i8 and f32 x floats are right", s.A, s.B)
	}
	if s.A.IsInt() && !(s.C.IsInt() && s.C.Size() <= 4) && s.C != tensor.F32 {
		return fmt.Errorf("aie: result %v of an integer product; i32, i16, i8, u8 and f32 are right", s.C)
	}
	if s.N > 1<<24 || s.K > 1<<24 {
		return fmt.Errorf("aie: N = %d, K = %d: up to %d is right", s.N, s.K, 1<<24)
	}
	return nil
}

// canonicalRows is the number of rows of activations for which the layout of the weights is chosen. Weights are packed once, so their
// geometry must not depend on what a run brings.
const canonicalRows = 256

// maxPlans bounds the plans that are kept.
const maxPlans = 4096

// planFor lays a product over the array, once per size.
func (e *Engine) planFor(s matmul.Spec, rows int) (*planned, error) {
	key := planKey{s.N, s.K, rows, e.typeFor(s), e.narrowFor(s)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.plans[key]; p != nil {
		return p, nil
	}
	out := key.typ.Default()
	prob := plan.Problem{M: s.N, N: rows, K: s.K, Type: key.typ, Out: out, Narrow: key.narrow}
	opt := plan.Options{Design: e.design, Tiles: e.tiles}
	if e.design == plan.Best {
		baseKey := key
		baseKey.rows = 0
		base, ok := e.bases[baseKey]
		if !ok {
			q := prob
			q.N = canonicalRows
			c, err := plan.New(&e.dev, q, opt)
			if err != nil {
				return nil, fmt.Errorf("aie: %w", err)
			}
			base = opt
			base.MB, base.KB, base.Rows, base.Chain = c.MB, c.KB, c.Rows, c.Chain
			base.StreamWeights = c.FeedA != plan.Resident
			e.bases[baseKey] = base
		}
		opt = base
	}
	pl, err := plan.New(&e.dev, prob, opt)
	if err != nil {
		return nil, fmt.Errorf("aie: %w", err)
	}
	p := &planned{plan: pl, pred: pl.Predict()}
	if len(e.plans) >= maxPlans {
		clear(e.plans)
	}
	e.plans[key] = p
	return p, nil
}

// Packed weights: integers (or floats) as [N][K], their scales, and what the mode computes with.
type packed struct {
	e     *Engine
	spec  matmul.Spec
	list  []*weights // one for each batch of B
	batch []int
}

// Spec returns the problem that the weights were packed for.
func (p *packed) Spec() matmul.Spec { return p.spec }

// WriteTo is not offered.
func (p *packed) WriteTo(io.Writer) (int64, error) {
	return 0, fmt.Errorf("aie: packed weights are not stored: %w", errors.ErrUnsupported)
}

// Close releases the memory.
func (p *packed) Close() error {
	var errs []error
	for _, w := range p.list {
		errs = append(errs, w.close())
	}
	p.list = nil
	return errors.Join(errs...)
}

// Pack quantizes and packs weights.
func (e *Engine) Pack(ctx context.Context, s matmul.Spec, b tensor.Tensor) (matmul.Packed, error) {
	if err := e.Supports(s, matmul.Shape{}); err != nil && s.C != tensor.Invalid {
		return nil, err
	}
	if err := s.CheckWeights(&b); err != nil {
		return nil, fmt.Errorf("aie: pack of %v for %v: %w", b.Spec, s, err)
	}
	p := &packed{e: e, spec: s, batch: b.Shape()[:b.Rank-2]}
	if b.DType != tensor.F32 && b.DType.Kind() != tensor.Signed {
		var err error
		if b, err = quant.Decode(b); err != nil {
			return nil, err
		}
	}
	if s.BLayout == matmul.RowMajor {
		var err error
		if b, err = b.Transpose(int(b.Rank)-2, int(b.Rank)-1); err != nil {
			return nil, err
		}
	}
	outer := b
	outer.Rank -= 2
	var failed error
	outer.Each(func(_, off int) {
		if failed == nil {
			failed = ctx.Err()
		}
		if failed != nil {
			return
		}
		part := b
		part.Off += off * b.DType.Size()
		part.Rank = 2
		part.Dims = [tensor.MaxRank]int{s.N, s.K}
		part.Strides = [tensor.MaxRank]int{b.Strides[b.Rank-2], b.Strides[b.Rank-1]}
		var w *weights
		if w, failed = e.newWeights(s, part); failed == nil {
			p.list = append(p.list, w)
		}
	})
	if failed != nil {
		_ = p.Close()
		return nil, failed
	}
	return p, nil
}

// Plan prepares a shape.
func (e *Engine) Plan(s matmul.Spec, sh matmul.Shape) (matmul.Plan, error) {
	if err := e.Supports(s, sh); err != nil {
		return nil, err
	}
	p := &enginePlan{e: e, spec: s, shape: sh}
	if n := sh.M * sh.Batches(); n > 0 && s.N > 0 && s.K > 0 {
		if _, err := e.planFor(s, n); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// enginePlan runs one shape.
type enginePlan struct {
	e     *Engine
	spec  matmul.Spec
	shape matmul.Shape
}

// Run computes the product.
func (p *enginePlan) Run(ctx context.Context, pk matmul.Packed, args *matmul.Args, ws *matmul.Workspace) error {
	if ws == nil {
		return errors.New("aie: no workspace")
	}
	if err := args.Check(p.spec, p.shape.M*p.shape.Batches(), pk != nil); err != nil {
		return err
	}
	if args.C.Elems() == 0 {
		return nil
	}
	var w *packed
	if pk == nil {
		// B comes with the run: packed for this run alone.
		one, err := p.e.Pack(ctx, p.spec, args.B)
		if err != nil {
			return err
		}
		defer one.Close()
		w = one.(*packed)
	} else {
		var ok bool
		w, ok = pk.(*packed)
		if !ok || w.e != p.e || w.spec.N != p.spec.N || w.spec.K != p.spec.K || w.spec.A != p.spec.A || w.spec.B != p.spec.B || w.spec.BLayout != p.spec.BLayout {
			return fmt.Errorf("aie: weights packed as %v by another engine or for another problem than %v: pack them here", pk.Spec(), p.spec)
		}
		if w.list == nil {
			return errors.New("aie: packed weights are closed")
		}
	}
	r, _ := ws.Data.(*run)
	if r == nil {
		r = &run{}
		ws.Data = r
	}
	r.e, r.spec, r.args = p.e, p.spec, args
	c := &args.C
	if len(w.list) == 1 {
		return r.product(ctx, w.list[0], &args.A, c, 0, c.Elems()/p.spec.N)
	}
	// Batches of B: a product each.
	batch := c.Shape()[:c.Rank-2]
	a, err := args.A.Broadcast(append(append([]int{}, batch...), args.A.Dim(-2), args.A.Dim(-1))...)
	if err != nil {
		return err
	}
	index := make([]int32, len(w.list))
	for i := range index {
		index[i] = int32(i)
	}
	it := tensor.Of(index, append([]int{}, w.batch...)...)
	if it, err = it.Broadcast(batch...); err != nil {
		return err
	}
	var which, offA, offC []int
	it.Each(func(_, off int) { which = append(which, int(index[off])) })
	outer := func(t tensor.Tensor) (offs []int) {
		t.Rank -= 2
		t.Each(func(_, off int) { offs = append(offs, off) })
		return offs
	}
	offA, offC = outer(a), outer(*c)
	m := c.Dim(-2)
	for i, wi := range which {
		sa, sc := matrixAt(a, offA[i]), matrixAt(*c, offC[i])
		if err := r.product(ctx, w.list[wi], &sa, &sc, i*m, m); err != nil {
			return err
		}
	}
	return nil
}

// matrixAt is the matrix of the last two dimensions that starts off elements into t.
func matrixAt(t tensor.Tensor, off int) tensor.Tensor {
	n := int(t.Rank)
	t.Off += off * t.DType.Size()
	t.Dims = [tensor.MaxRank]int{t.Dims[n-2], t.Dims[n-1]}
	t.Strides = [tensor.MaxRank]int{t.Strides[n-2], t.Strides[n-1]}
	t.Rank = 2
	return t
}
