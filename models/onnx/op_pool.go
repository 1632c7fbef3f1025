package onnx

import (
	"github.com/tessera-go/tessera/ops/conv"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("MaxPool", since(1, 8, 10, 11, 12), func(c *call) {
		x := c.in(0)
		p := c.poolAttrs(x, conv.Max)
		p.Column = c.attrInt("storage_order", 0) == 1
		if p.Indices = c.wants(1); p.Indices {
			c.out(c.emitAll(p, x)...)
			return
		}
		c.out(c.emit(p, x))
	})
	register("AveragePool", since(1, 7, 10, 11, 19), func(c *call) {
		kind := conv.Avg
		if c.attrBool("count_include_pad", false) {
			kind = conv.AvgPadded
		}
		c.out(c.emit(c.poolAttrs(c.in(0), kind), c.in(0)))
	})
	register("LpPool", since(1, 2, 11, 18), func(c *call) {
		p := c.poolAttrs(c.in(0), conv.Lp)
		p.P = c.attrInt("p", 2)
		if c.version < 2 {
			p.P = int(c.attrFloat("p", 2))
		}
		c.out(c.emit(p, c.in(0)))
	})
	for name, kind := range map[string]conv.PoolKind{"GlobalAveragePool": conv.Avg, "GlobalMaxPool": conv.Max, "GlobalLpPool": conv.Lp} {
		versions := since(1)
		if kind == conv.Lp {
			versions = since(1, 2)
		}
		register(name, versions, func(c *call) {
			x := c.in(0)
			p := conv.Pool{Kind: kind}
			if n := int(x.spec.Rank) - 2; n < 1 || n > conv.MaxSpatial {
				c.fail("image %v: one to %d spatial dimensions are possible", x, conv.MaxSpatial)
			}
			copy(p.Kernel[:], x.spec.Shape()[2:])
			if kind == conv.Lp {
				p.P = 2
				if c.version >= 2 {
					p.P = c.attrInt("p", 2)
				} else {
					p.P = int(c.attrFloat("p", 2))
				}
			}
			c.out(c.emit(p, x))
		})
	}
	register("MaxUnpool", since(9, 11), maxUnpool)
}

func (c *call) poolAttrs(x *value, kind conv.PoolKind) conv.Pool {
	kernel, ok := c.attrInts("kernel_shape")
	if !ok {
		c.fail("attribute \"kernel_shape\" is absent")
	}
	p := conv.Pool{Window: c.window(x.spec, kernel), Kind: kind, Ceil: c.attrBool("ceil_mode", false)}
	copy(p.Kernel[:], kernel)
	return p
}

// maxUnpool puts values back to where a pooling found them, in an image of zeros.
func maxUnpool(c *call) {
	x, idx := c.in(0), c.in(1)
	n := int(x.spec.Rank) - 2
	kernel, ok := c.attrInts("kernel_shape")
	if n < 1 || n > conv.MaxSpatial || len(kernel) != n || !ok || idx.spec.With(x.spec.DType) != x.spec {
		c.fail("image %v, indices %v, kernel %v", x, idx, kernel)
	}
	stride := c.spatialInts("strides", n, 1)
	pads := make([]int, 2*n)
	if p, ok := c.attrInts("pads"); ok && len(p) == 2*n {
		pads = p
	}
	pooled := x.spec.Shape()
	for i := range n {
		pooled[2+i] = (pooled[2+i]-1)*stride[i] + kernel[i] - pads[i] - pads[n+i]
	}
	dims := pooled
	if c.has(2) {
		dims = c.ints(c.in(2))
		if len(dims) != n+2 {
			c.fail("output shape %v for %v", dims, x)
		}
	}
	natural := c.spec(x.spec.DType, pooled...)
	c.out(c.apply(c.spec(x.spec.DType, dims...), func(out tensor.Tensor, in []tensor.Tensor) error {
		values := make([]float64, out.Elems())
		v := in[0].Floats()
		for i, at := range in[1].Ints() {
			p, err := index(at, natural.Elems())
			if err != nil {
				return err
			}
			// Indices count in the image that the pooling had; the output may be larger.
			pos, step, rest, inside := 0, 1, p, true
			for d := n + 1; d >= 0; d-- {
				q := rest % natural.Dims[d]
				rest /= natural.Dims[d]
				inside = inside && q < dims[d]
				pos += q * step
				step *= dims[d]
			}
			if inside {
				values[pos] = v[i]
			}
		}
		out.SetFloats(values)
		return nil
	}, x, idx))
}
