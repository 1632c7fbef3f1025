package onnx

import (
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("MatMul", since(1, 9, 13), func(c *call) { c.out(c.product(c.in(0), c.in(1), tensor.Invalid)) })
	register("Gemm", since(1, 6, 7, 9, 11, 13), gemm)
	register("Det", since(11), func(c *call) {
		x := c.in(0)
		r := int(x.spec.Rank)
		if r < 2 || x.spec.Dim(-1) != x.spec.Dim(-2) {
			c.fail("%v, square matrices are right", x)
		}
		n := x.spec.Dim(-1)
		c.out(c.apply(c.spec(x.spec.DType, x.spec.Shape()[:r-2]...), func(out tensor.Tensor, in []tensor.Tensor) error {
			v := in[0].Floats()
			dets := make([]float64, out.Elems())
			for i := range dets {
				dets[i] = determinant(v[i*n*n:(i+1)*n*n], n)
			}
			out.SetFloats(dets)
			return nil
		}, x))
	})
}

// product is a matrix product by NumPy's rules, which give vectors a dimension for its duration.
func (c *call) product(a, b *value, out tensor.DType) *value {
	if a.spec.Rank < 1 || b.spec.Rank < 1 {
		c.fail("product of %v and %v", a, b)
	}
	d := a.spec.DType
	row, col := a.spec.Rank == 1, b.spec.Rank == 1
	if row {
		a = c.reshape(a, 1, a.spec.Dims[0])
	}
	if col {
		b = c.reshape(b, b.spec.Dims[0], 1)
	}
	narrow := out
	switch {
	case out != tensor.Invalid:
	case d == tensor.F16 || d == tensor.BF16:
		out = d
	case d.IsInt() && d.Size() == 8: // sums to 2^53 are exact
		a, b, narrow = c.cast(a, tensor.F64), c.cast(b, tensor.F64), d
	case d.IsInt():
		narrow = d
	}
	y := c.emit(matmul.Op{Out: out}, a, b)
	if narrow != tensor.Invalid {
		y = c.cast(y, narrow)
	}
	if !row && !col {
		return y
	}
	dims := y.spec.Shape()
	if col {
		dims = dims[:len(dims)-1]
	}
	if row {
		dims = append(dims[:len(dims)-1-btoi(!col)], dims[len(dims)-btoi(!col):]...)
	}
	return c.reshape(y, dims...)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func gemm(c *call) {
	a, b, bias := c.in(0), c.in(1), c.opt(2)
	alpha, beta := c.attrFloat("alpha", 1), c.attrFloat("beta", 1)
	if a.spec.Rank != 2 || b.spec.Rank != 2 {
		c.fail("A %v, B %v, matrices are right", a, b)
	}
	if c.attrBool("transA", false) {
		a = c.permute(a, 1, 0)
	}
	d := a.spec.DType
	op := matmul.Op{TransB: c.attrBool("transB", false)}
	n := b.spec.Dims[1]
	if op.TransB {
		n = b.spec.Dims[0]
	}
	integer := d.IsInt()
	if integer {
		a, b = c.cast(a, tensor.F64), c.cast(b, tensor.F64)
	}
	if d == tensor.F16 || d == tensor.BF16 {
		op.Out = d
	}
	if alpha != 1 {
		if b.known {
			b = c.scale(b, alpha, 0)
		} else {
			a = c.scale(a, alpha, 0)
		}
	}
	if bias != nil && integer {
		bias = c.cast(bias, tensor.F64)
	}
	if bias != nil && beta != 1 {
		bias = c.scale(bias, beta, 0)
	}
	if bias != nil && beta != 0 && bias.spec.DType == tensor.F32 && bias.spec.Elems() == n && (bias.spec.Rank == 1 || bias.spec.Rank == 2 && bias.spec.Dims[0] == 1) {
		op.Epilogue.Bias = true
		c.out(c.emit(op, a, b, c.reshape(bias, n)))
		return
	}
	y := c.emit(op, a, b)
	if bias != nil && beta != 0 {
		if bias.spec.Rank > 2 {
			c.fail("C %v, at most two dimensions are right", bias)
		}
		y = c.binary(elementwise.Add, y, bias)
	}
	if integer {
		y = c.cast(y, d)
	}
	c.out(y)
}

// determinant eliminates with pivots.
func determinant(m []float64, n int) float64 {
	m = append([]float64{}, m...)
	det := 1.0
	for i := range n {
		p := i
		for r := i + 1; r < n; r++ {
			if abs(m[r*n+i]) > abs(m[p*n+i]) {
				p = r
			}
		}
		if m[p*n+i] == 0 {
			return 0
		}
		if p != i {
			det = -det
			for k := range n {
				m[i*n+k], m[p*n+k] = m[p*n+k], m[i*n+k]
			}
		}
		det *= m[i*n+i]
		for r := i + 1; r < n; r++ {
			f := m[r*n+i] / m[i*n+i]
			for k := i; k < n; k++ {
				m[r*n+k] -= f * m[i*n+k]
			}
		}
	}
	return det
}

func abs(v float64) float64 { return max(v, -v) }
