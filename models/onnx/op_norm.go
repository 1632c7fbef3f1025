package onnx

import (
	"math"

	"github.com/tessera-go/tessera/ops/attention"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/norm"
	"github.com/tessera-go/tessera/ops/reduce"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("BatchNormalization", since(1, 6, 7, 9, 14, 15), batchNorm)
	register("InstanceNormalization", since(1, 6), func(c *call) {
		x := c.in(0)
		if x.spec.Rank < 2 {
			c.fail("image %v", x)
		}
		c.out(c.emit(norm.Group{Groups: x.spec.Dims[1], Eps: c.attrFloat("epsilon", 1e-5)}, x, c.in(1), c.in(2)))
	})
	register("GroupNormalization", since(18, 21), func(c *call) {
		x, scale, bias := c.in(0), c.in(1), c.in(2)
		groups := c.attrInt("num_groups", 0)
		if x.spec.Rank < 2 || groups < 1 || x.spec.Dims[1]%groups != 0 {
			c.fail("image %v in %d groups", x, groups)
		}
		if c.version < 21 && scale.spec.Elems() == groups { // one number a group: repeated for its channels
			channels := x.spec.Dims[1]
			spread := func(v *value) *value {
				return c.reshape(c.broadcast(c.reshape(v, groups, 1), groups, channels/groups), channels)
			}
			scale, bias = spread(scale), spread(bias)
		}
		c.out(c.emit(norm.Group{Groups: groups, Eps: c.attrFloat("epsilon", 1e-5)}, x, scale, bias))
	})
	register("LayerNormalization", since(17), layerNorm)
	register("LpNormalization", since(1), func(c *call) {
		x := c.in(0)
		axis := c.axis(c.attrInt("axis", -1), int(x.spec.Rank))
		kind := reduce.L2
		if c.attrInt("p", 2) == 1 {
			kind = reduce.L1
		}
		c.out(c.binary(elementwise.Div, x, c.reduce(kind, x, []int{axis}, true)))
	})
	register("MeanVarianceNormalization", since(9, 13), func(c *call) {
		x := c.in(0)
		axes, ok := c.attrInts("axes")
		if !ok {
			axes = []int{0, 2, 3}
		}
		mean := c.reduce(reduce.Mean, x, append([]int{}, axes...), true)
		centered := c.binary(elementwise.Sub, x, mean)
		variance := c.reduce(reduce.Mean, c.unary(elementwise.Sqr, centered), append([]int{}, axes...), true)
		c.out(c.binary(elementwise.Div, centered, c.scale(c.unary(elementwise.Sqrt, variance), 1, 1e-9)))
	})
	register("LRN", since(1, 13), localResponse)
	for name, log := range map[string]bool{"Softmax": false, "LogSoftmax": true} {
		register(name, since(1, 11, 13), func(c *call) {
			x := c.in(0)
			c.out(c.alongAxis(x, func(y *value, axis int) *value {
				return c.emit(attention.Softmax{Axis: axis, Log: log}, y)
			}))
		})
	}
	register("Hardmax", since(1, 11, 13), func(c *call) {
		x := c.in(0)
		c.out(c.alongAxis(x, func(y *value, axis int) *value {
			first := c.emit(reduce.Arg{Axis: axis, Keep: true, Out: tensor.I64}, y)
			n := y.spec.Dims[axis]
			dims := make([]int, y.spec.Rank)
			for i := range dims {
				dims[i] = 1
			}
			dims[axis] = n
			count := c.alloc(tensor.I64, dims...)
			for i := range n {
				tensor.Data[int64](count)[i] = int64(i)
			}
			hot := c.binary(elementwise.Equal, first, knownValue(count))
			return c.where(hot, c.scalarOf(y.spec.DType, 1), c.scalarOf(y.spec.DType, 0))
		}))
	})
}

// alongAxis applies f along the axis attribute. Before opset 13 all dimensions from the axis on counted as one.
func (c *call) alongAxis(x *value, f func(*value, int) *value) *value {
	if c.version >= 13 {
		return f(x, c.axis(c.attrInt("axis", -1), int(x.spec.Rank)))
	}
	axis := c.attrInt("axis", 1)
	if axis < 0 {
		axis += int(x.spec.Rank)
	}
	if axis < 0 || axis > int(x.spec.Rank) {
		c.fail("axis %d of %v", axis, x)
	}
	rows, cols := 1, 1
	for i, n := range x.spec.Shape() {
		if i < axis {
			rows *= n
		} else {
			cols *= n
		}
	}
	return c.reshape(f(c.reshape(x, rows, cols), 1), x.spec.Shape()...)
}

func batchNorm(c *call) {
	x := c.in(0)
	eps := c.attrFloat("epsilon", 1e-5)
	if c.version < 14 || !c.attrBool("training_mode", false) {
		c.out(c.emit(norm.Batch{Eps: eps}, x, c.in(1), c.in(2), c.in(3), c.in(4)))
		return
	}
	// Statistics of this batch, and running ones that follow them.
	momentum := c.attrFloat("momentum", 0.9)
	axes := append([]int{0}, identity(int(x.spec.Rank))[2:]...)
	mean := c.reduce(reduce.Mean, x, append([]int{}, axes...), true)
	variance := c.reduce(reduce.Mean, c.unary(elementwise.Sqr, c.binary(elementwise.Sub, x, mean)), append([]int{}, axes...), false)
	mean = c.reshape(mean, x.spec.Dims[1])
	follow := func(old, now *value) *value {
		return c.binary(elementwise.Add, c.scale(old, momentum, 0), c.scale(c.cast(now, old.spec.DType), 1-momentum, 0))
	}
	y := c.emit(norm.Batch{Eps: eps}, x, c.in(1), c.in(2), mean, variance)
	c.out(y, follow(c.in(3), mean), follow(c.in(4), variance))
}

func layerNorm(c *call) {
	x, weight, bias := c.in(0), c.in(1), c.opt(2)
	axis := c.axis(c.attrInt("axis", -1), int(x.spec.Rank))
	eps := c.attrFloat("epsilon", 1e-5)
	rows, cols := 1, 1
	for i, n := range x.spec.Shape() {
		if i < axis {
			rows *= n
		} else {
			cols *= n
		}
	}
	if weight.spec.Elems() == cols && (bias == nil || bias.spec.Elems() == cols) && !c.wants(1) && !c.wants(2) {
		in := []*value{c.reshape(x, rows, cols), c.reshape(weight, cols)}
		if axis == int(x.spec.Rank)-1 {
			in[0] = x
		}
		if bias != nil {
			in = append(in, c.reshape(bias, cols))
		}
		y := c.emit(norm.Layer{Eps: eps}, in...)
		if axis != int(x.spec.Rank)-1 {
			y = c.reshape(y, x.spec.Shape()...)
		}
		c.out(y)
		return
	}
	axes := identity(int(x.spec.Rank))[axis:]
	wide := x
	if x.spec.DType != tensor.F64 {
		wide = c.cast(x, tensor.F32)
	}
	mean := c.reduce(reduce.Mean, wide, append([]int{}, axes...), true)
	centered := c.binary(elementwise.Sub, wide, mean)
	variance := c.reduce(reduce.Mean, c.unary(elementwise.Sqr, centered), append([]int{}, axes...), true)
	inv := c.unary(elementwise.Reciprocal, c.unary(elementwise.Sqrt, c.scale(variance, 1, eps)))
	y := c.cast(c.binary(elementwise.Mul, centered, inv), x.spec.DType)
	y = c.binary(elementwise.Mul, y, weight)
	if bias != nil {
		y = c.binary(elementwise.Add, y, bias)
	}
	c.out(y, mean, inv)
}

// localResponse divides by a power of the sum of squares over neighbouring channels.
func localResponse(c *call) {
	x := c.in(0)
	size := c.attrInt("size", 0)
	alpha, beta, bias := float64(c.attrFloat("alpha", 1e-4)), float64(c.attrFloat("beta", 0.75)), float64(c.attrFloat("bias", 1))
	if size < 1 || x.spec.Rank < 2 {
		c.fail("size %d, image %v", size, x)
	}
	c.out(c.apply(x.spec, func(out tensor.Tensor, in []tensor.Tensor) error {
		v := in[0].Floats()
		res := make([]float64, len(v))
		channels, inner := x.spec.Dims[1], 1
		for _, n := range x.spec.Shape()[2:] {
			inner *= n
		}
		before := (size - 1) / 2
		for i := range v {
			ch := i / inner % channels
			sum := 0.0
			for k := max(ch-before, 0); k <= min(ch+size-1-before, channels-1); k++ {
				sum += v[i+(k-ch)*inner] * v[i+(k-ch)*inner]
			}
			res[i] = v[i] / math.Pow(bias+alpha/float64(size)*sum, beta)
		}
		out.SetFloats(res)
		return nil
	}, x))
}
