package backendtest

import (
	"bytes"
	"context"
	"math"

	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// testOperands gives the engine for products problems, weights and operands that are wrong in one way each: it must say so, and leave C as it was.
func (s *suite) testOperands() {
	const m, n, k = 5, 48, 64
	ctx := context.Background()
	e := s.b.MatMul()
	if e == nil {
		return
	}
	spec := matmul.Spec{N: n, K: k, A: tensor.F32, B: tensor.F32, C: tensor.F32,
		Epilogue: matmul.Epilogue{ColScale: true, Bias: true, Residual: matmul.ResidualAfter}}
	shape := matmul.Shape{M: m}
	if e.Supports(spec, shape) != nil {
		return
	}
	refused := func(what string, f func() error) {
		defer func() {
			if p := recover(); p != nil {
				s.fail("operands", "%s: panic: %v", what, p)
			}
		}()
		if f() == nil {
			s.fail("operands", "%s: no error", what)
		}
	}
	for what, spoil := range map[string]func(s *matmul.Spec, sh *matmul.Shape){
		"negative N":        func(s *matmul.Spec, _ *matmul.Shape) { s.N = -1 },
		"negative K":        func(s *matmul.Spec, _ *matmul.Shape) { s.K = -1 },
		"huge N and K":      func(s *matmul.Spec, _ *matmul.Shape) { s.N, s.K = math.MaxInt, math.MaxInt },
		"unknown layout":    func(s *matmul.Spec, _ *matmul.Shape) { s.BLayout = 7 },
		"unknown types":     func(s *matmul.Spec, _ *matmul.Shape) { s.A, s.B, s.C = 200, 201, 202 },
		"unknown residual":  func(s *matmul.Spec, _ *matmul.Shape) { s.Epilogue.Residual = 9 },
		"unknown act":       func(s *matmul.Spec, _ *matmul.Shape) { s.Epilogue.Act.Kind = 99 },
		"negative M":        func(_ *matmul.Spec, sh *matmul.Shape) { sh.M = -1 },
		"huge M":            func(_ *matmul.Spec, sh *matmul.Shape) { sh.M = math.MaxInt },
		"negative batch":    func(_ *matmul.Spec, sh *matmul.Shape) { sh.Batch[1] = -2 },
		"batches that wrap": func(_ *matmul.Spec, sh *matmul.Shape) { sh.Batch = [3]int{math.MaxInt, math.MaxInt, 3} },
	} {
		bad, sh := spec, shape
		spoil(&bad, &sh)
		refused(what, func() error { return e.Supports(bad, sh) })
		refused(what, func() error { _, err := e.Plan(bad, sh); return err })
	}
	w := tensor.New(tensor.F32, k, n)
	short := w
	short.Buf = tensor.NewBuffer(8)
	for what, b := range map[string]tensor.Tensor{"no weights": {}, "weights of another shape": tensor.New(tensor.F32, n, k), "weights of another type": tensor.New(tensor.U64, k, n),
		"weights beyond their buffer": short} {
		refused(what, func() error { _, err := e.Pack(ctx, spec, b); return err })
	}
	packed, err := e.Pack(ctx, spec, w)
	if err != nil {
		s.fail("operands", "pack: %v", err)
		return
	}
	plan, err := e.Plan(spec, shape)
	if err != nil {
		s.fail("operands", "plan: %v", err)
		return
	}
	operands := func() *matmul.Args {
		return &matmul.Args{A: tensor.New(tensor.F32, m, k), C: tensor.New(tensor.F32, m, n), Residual: tensor.New(tensor.F32, m, n),
			ColScale: make([]float32, n), Bias: make([]float32, n)}
	}
	if err := plan.Run(ctx, packed, operands(), &matmul.Workspace{}); err != nil {
		s.fail("operands", "right ones: %v", err)
	}
	for what, spoil := range map[string]func(a *matmul.Args){
		"no bias":              func(a *matmul.Args) { a.Bias = nil },
		"short bias":           func(a *matmul.Args) { a.Bias = a.Bias[:n-1] },
		"short column scales":  func(a *matmul.Args) { a.ColScale = a.ColScale[:n-1] },
		"no residual":          func(a *matmul.Args) { a.Residual = tensor.Tensor{} },
		"residual of fewer":    func(a *matmul.Args) { a.Residual = tensor.New(tensor.F32, m-1, n) },
		"no A":                 func(a *matmul.Args) { a.A = tensor.Tensor{} },
		"A of another M":       func(a *matmul.Args) { a.A = tensor.New(tensor.F32, m-1, k) },
		"A of another K":       func(a *matmul.Args) { a.A = tensor.New(tensor.F32, m, k-1) },
		"A of another type":    func(a *matmul.Args) { a.A = tensor.New(tensor.U8, m, k) },
		"A beyond its buffer":  func(a *matmul.Args) { a.A.Buf = tensor.NewBuffer(8) },
		"A backwards":          func(a *matmul.Args) { a.A.Strides[0] = -k },
		"A of far rows":        func(a *matmul.Args) { a.A.Strides[0] = math.MaxInt32 },
		"A of too many ranks":  func(a *matmul.Args) { a.A.Rank = tensor.MaxRank + 1 },
		"A of a batch":         func(a *matmul.Args) { a.A = tensor.New(tensor.F32, 2, m, k) },
		"no C":                 func(a *matmul.Args) { a.C = tensor.Tensor{} },
		"C of another M":       func(a *matmul.Args) { a.C = tensor.New(tensor.F32, m-1, n) },
		"C of another N":       func(a *matmul.Args) { a.C = tensor.New(tensor.F32, m, n-1) },
		"C of a batch":         func(a *matmul.Args) { a.C = tensor.New(tensor.F32, 2, m, n) },
		"C of another type":    func(a *matmul.Args) { a.C = tensor.New(tensor.I8, m, n) },
		"C beyond its buffer":  func(a *matmul.Args) { a.C.Buf = tensor.NewBuffer(8) },
		"C that is read-only":  func(a *matmul.Args) { a.C.Buf = tensor.WrapReadOnly(a.C.Buf.Bytes()) },
		"C before its buffer":  func(a *matmul.Args) { a.C.Off = -4 },
		"C of a closed buffer": func(a *matmul.Args) { _ = a.C.Buf.Close() },
	} {
		a := operands()
		spoil(a)
		var before []byte
		if a.C.Buf != nil {
			before = bytes.Clone(a.C.Buf.Bytes())
		}
		refused(what, func() error { return plan.Run(ctx, packed, a, &matmul.Workspace{}) })
		if a.C.Buf != nil && !bytes.Equal(before, a.C.Buf.Bytes()) {
			s.fail("operands", "%s: C was written", what)
		}
	}
	refused("no operands", func() error { return plan.Run(ctx, packed, nil, &matmul.Workspace{}) })
	refused("no workspace", func() error { return plan.Run(ctx, packed, operands(), nil) })
	refused("no weights at all", func() error { return plan.Run(ctx, nil, operands(), &matmul.Workspace{}) })
	if err := packed.Close(); err != nil {
		s.fail("operands", "close: %v", err)
	}
	refused("closed weights", func() error { return plan.Run(ctx, packed, operands(), &matmul.Workspace{}) })
	if err := packed.Close(); err != nil {
		s.fail("operands", "close again: %v", err)
	}
}
