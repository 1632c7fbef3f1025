package onnx

import (
	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("NegativeLogLikelihoodLoss", since(12, 13), func(c *call) { c.out(c.likelihood(c.in(0))) })
	register("SoftmaxCrossEntropyLoss", since(12, 13), func(c *call) {
		log := c.emit(attention.Softmax{Axis: 1, Log: true}, c.in(0))
		c.out(c.likelihood(log), log)
	})
}

// likelihood picks the log probability of each target, weighted, and reduces.
func (c *call) likelihood(log *value) *value {
	target, weight := c.in(1), c.opt(2)
	if log.spec.Rank < 2 || target.spec.Rank != log.spec.Rank-1 {
		c.fail("scores %v for targets %v", log, target)
	}
	classes := log.spec.Dims[1]
	if weight != nil && weight.spec.Elems() != classes {
		c.fail("weights %v for %d classes", weight, classes)
	}
	reduction := c.attrString("reduction", "mean")
	ignore, hasIgnore := int64(c.attrInt("ignore_index", 0)), c.n.Attr("ignore_index") != nil
	out := c.spec(log.spec.DType)
	if reduction == "none" {
		out = target.spec.With(log.spec.DType)
	}
	inner := 1
	for _, n := range log.spec.Shape()[2:] {
		inner *= n
	}
	in := []*value{log, target}
	if weight != nil {
		in = append(in, weight)
	}
	return c.apply(out, func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		var w []float64
		if len(in) > 2 {
			w = in[2].Floats()
		}
		var losses []float64
		sum, total := 0.0, 0.0
		for i, t := range in[1].Ints() {
			loss, weight := 0.0, 0.0
			if !hasIgnore || t != ignore {
				cls, err := index(t, classes)
				if err != nil {
					return err
				}
				weight = 1
				if w != nil {
					weight = w[cls]
				}
				loss = -weight * v[(i/inner*classes+cls)*inner+i%inner]
			}
			losses = append(losses, loss)
			sum += loss
			total += weight
		}
		switch reduction {
		case "mean":
			sum /= total
			fallthrough
		case "sum":
			losses = []float64{sum}
		}
		out.SetFloats(losses)
		return nil
	}, in...)
}
