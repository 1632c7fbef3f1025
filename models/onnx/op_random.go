package onnx

import (
	"math"
	"math/rand/v2"

	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("Dropout", since(1, 6, 7, 10, 12, 13), dropout)
	register("Bernoulli", since(15), func(c *call) {
		x := c.in(0)
		d := x.spec.DType
		if e := c.attrInt("dtype", 0); e != 0 {
			d = c.dtype(ElemType(e))
		}
		rng := c.random()
		p := c.data(x)
		v := p.Floats()
		for i := range v {
			hit := rng.Float64() < v[i]
			v[i] = float64(btoi(hit))
		}
		out := c.alloc(d, x.spec.Shape()...)
		out.SetFloats(v)
		c.out(knownValue(out))
	})
	for name, normal := range map[string]bool{"RandomNormal": true, "RandomNormalLike": true, "RandomUniform": false, "RandomUniformLike": false} {
		register(name, since(1), func(c *call) {
			dims, ok := c.attrInts("shape")
			e := ElemType(c.attrInt("dtype", 0))
			if !ok {
				dims = c.in(0).spec.Shape()
				if e == Undefined {
					e = c.in(0).elem
				}
			}
			if e == Undefined {
				e = Float
			}
			rng := c.random()
			out := c.alloc(c.dtype(e), dims...)
			v := make([]float64, out.Elems())
			for i := range v {
				if normal {
					v[i] = float64(c.attrFloat("mean", 0)) + float64(c.attrFloat("scale", 1))*rng.NormFloat64()
				} else {
					lo, hi := float64(c.attrFloat("low", 0)), float64(c.attrFloat("high", 1))
					v[i] = lo + (hi-lo)*rng.Float64()
				}
			}
			out.SetFloats(v)
			c.out(knownValue(out))
		})
	}
	register("Multinomial", since(7), func(c *call) {
		x := c.in(0)
		n := c.attrInt("sample_size", 1)
		if x.spec.Rank != 2 || n < 0 {
			c.fail("%v, %d samples", x, n)
		}
		rng := c.random()
		t := c.data(x)
		v := t.Floats()
		classes := x.spec.Dims[1]
		out := c.alloc(c.dtype(ElemType(c.attrInt("dtype", int(Int32)))), x.spec.Dims[0], n)
		res := make([]float64, 0, out.Elems())
		for b := range x.spec.Dims[0] {
			row := v[b*classes : (b+1)*classes]
			top, sum := math.Inf(-1), 0.0
			for _, l := range row {
				top = max(top, l)
			}
			for _, l := range row {
				sum += math.Exp(l - top)
			}
			for range n {
				at, pick := rng.Float64()*sum, 0
				for pick < classes-1 {
					if at -= math.Exp(row[pick] - top); at < 0 {
						break
					}
					pick++
				}
				res = append(res, float64(pick))
			}
		}
		out.SetFloats(res)
		c.out(knownValue(out))
	})
}

// random returns a source that the seed attribute fixes. Without one it differs by node, and is the same in every run: results are
// reproducible.
func (c *call) random() *rand.Rand {
	seed := uint64(math.Float32bits(c.attrFloat("seed", 0)))
	if c.n.Attr("seed") == nil {
		for _, r := range c.n.Title() {
			seed = seed*31 + uint64(r)
		}
	}
	return rand.New(rand.NewPCG(seed, 1))
}

// dropout passes its input on; only a node that asks for training drops.
func dropout(c *call) {
	x := c.in(0)
	training := c.has(2) && c.int(c.in(2)) != 0
	if c.version < 7 && c.n.Attr("is_test") != nil {
		training = false
	}
	ratio := 0.5
	if c.has(1) {
		ratio = c.scalar(c.in(1))
	}
	if !training || ratio == 0 {
		mask := c.scalarOf(tensor.Bool, 1)
		if c.version < 10 {
			mask = c.scalarOf(x.spec.DType, 1)
		}
		if !c.wants(1) {
			c.out(x)
			return
		}
		c.out(x, c.broadcast(mask, x.spec.Shape()...))
		return
	}
	rng := c.random()
	keep := c.alloc(tensor.Bool, x.spec.Shape()...)
	raw := keep.Raw()
	for i := range raw {
		raw[i] = byte(btoi(rng.Float64() >= ratio))
	}
	mask := knownValue(keep)
	scaled := c.binary(elementwise.Mul, x, c.scalarOf(x.spec.DType, 1/(1-ratio)))
	c.out(c.where(mask, scaled, c.scalarOf(x.spec.DType, 0)), mask)
}
