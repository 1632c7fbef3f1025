package matmul

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/tensor"
)

// Check returns why a problem and a shape are none at all, whatever an engine may do: negative sizes or ones that overflow, an unknown layout, an impossible
// epilogue. Types are the engine's business.
func (s Spec) Check(sh Shape) error {
	if s.BLayout > ColMajor {
		return fmt.Errorf("matmul: unknown layout %d of B", s.BLayout)
	}
	if err := s.Epilogue.Check(); err != nil {
		return fmt.Errorf("matmul: %w", err)
	}
	const widest = 8 // bytes of an element
	rows := []int{sh.M, widest}
	for _, b := range sh.Batch {
		if b < 0 {
			return fmt.Errorf("matmul: batch %v: 0 or more are right", sh.Batch)
		}
		rows = append(rows, max(b, 1))
	}
	for _, sizes := range [][]int{{s.N, s.K, widest}, append(slices.Clone(rows), s.N), append(slices.Clone(rows), s.K)} {
		if _, ok := mem.Mul(sizes...); !ok {
			return fmt.Errorf("matmul: M = %d, N = %d, K = %d, batch %v: %w", sh.M, s.N, s.K, sh.Batch, mem.ErrOverflow)
		}
	}
	return nil
}

// Check returns why the operands of a run, which are what its caller has made of them, do not serve a problem of so many rows in all its products: types and
// dimensions, lengths of the epilogue's vectors, tensors that reach beyond their buffers. Without packed weights B is looked at, too. Engines call it before they
// compute.
func (a *Args) Check(s Spec, rows int, packed bool) error {
	if a == nil {
		return errors.New("matmul: no operands")
	}
	m := 0
	if a.C.Rank >= 2 && a.C.Rank <= tensor.MaxRank {
		m = a.C.Dim(-2)
	}
	if err := checkOperand("C", &a.C, s.C, m, s.N); err != nil {
		return err
	}
	if a.C.Elems() == 0 { // nothing will be computed
		return nil
	}
	if n, ok := mem.Mul(a.C.Dims[:a.C.Rank-1]...); !ok || n != rows {
		return fmt.Errorf("matmul: C is %v, %d rows are right", a.C.Spec, rows)
	}
	if a.C.Buf != nil && a.C.Buf.ReadOnly() {
		return fmt.Errorf("matmul: C: %w", tensor.ErrReadOnly)
	}
	if err := checkOperand("A", &a.A, s.A, m, s.K); err != nil {
		return err
	}
	if err := checkBatch("A", &a.A, &a.C); err != nil {
		return err
	}
	if !packed {
		if a.B.DType == tensor.Invalid {
			return errors.New("matmul: no weights: neither packed ones nor B")
		}
		k, n := s.K, s.N
		if s.BLayout == ColMajor {
			k, n = n, k
		}
		if err := checkOperand("B", &a.B, s.B, k, n); err != nil {
			return err
		}
		if err := checkBatch("B", &a.B, &a.C); err != nil {
			return err
		}
	}
	e := &s.Epilogue
	if e.Residual != NoResidual {
		r := &a.Residual
		if r.DType == tensor.Invalid || r.DType.IsBlock() || r.With(a.C.DType) != a.C.Spec {
			return fmt.Errorf("matmul: residual is %v, %v is right", r.Spec, a.C.Spec)
		}
		if err := r.CheckMemory(); err != nil {
			return fmt.Errorf("matmul: residual: %w", err)
		}
	}
	for _, v := range [...]struct {
		what string
		has  bool
		v    []float32
		n    int
	}{{"row scales", e.RowScale, a.RowScale, rows}, {"column scales", e.ColScale, a.ColScale, s.N}, {"bias", e.Bias, a.Bias, s.N}} {
		if v.has && len(v.v) != v.n {
			return fmt.Errorf("matmul: %d %s, %d are right", len(v.v), v.what, v.n)
		}
	}
	return nil
}

func checkOperand(what string, t *tensor.Tensor, d tensor.DType, rows, cols int) error {
	if t.Rank < 2 {
		return fmt.Errorf("matmul: %s is %v, two dimensions or more are right", what, t.Spec)
	}
	if t.Rank > tensor.MaxRank || t.DType != d || t.Dim(-2) != rows || t.Dim(-1) != cols {
		return fmt.Errorf("matmul: %s is %v, %v[... %d %d] is right", what, t.Spec, d, rows, cols)
	}
	if err := t.CheckMemory(); err != nil {
		return fmt.Errorf("matmul: %s: %w", what, err)
	}
	return nil
}

// checkBatch returns an error unless the leading dimensions of an operand broadcast to those of C.
func checkBatch(what string, t, c *tensor.Tensor) error {
	shift := int(c.Rank) - int(t.Rank)
	ok := shift >= 0
	for i := 0; ok && i < int(t.Rank)-2; i++ {
		ok = t.Dims[i] == 1 || t.Dims[i] == c.Dims[i+shift]
	}
	if !ok {
		return fmt.Errorf("matmul: batch dimensions of %s %v do not broadcast to those of C %v", what, t.Spec, c.Spec)
	}
	return nil
}

// CheckWeights returns why a tensor cannot be the B of a problem: what engines look at before they pack it.
func (s Spec) CheckWeights(b *tensor.Tensor) error {
	if err := s.Check(Shape{}); err != nil {
		return err
	}
	k, n := s.K, s.N
	if s.BLayout == ColMajor {
		k, n = n, k
	}
	return checkOperand("B", b, s.B, k, n)
}
