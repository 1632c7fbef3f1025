package onnx

import (
	"slices"
	"strings"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("RNN", since(1, 7, 14), func(c *call) { recurrent(c, 1, rnnCell) })
	register("GRU", since(1, 3, 7, 14), func(c *call) { recurrent(c, 3, gruCell) })
	register("LSTM", since(1, 7, 14), func(c *call) { recurrent(c, 4, lstmCell) })
}

// cell is one direction of a recurrent layer.
type cell struct {
	c      *call
	hidden int
	acts   []func(*value) *value
	r      *value   // recurrent weights [gates x hidden, hidden]
	wb, rb *value   // biases [gates x hidden], nil where absent
	peep   []*value // of LSTM: input, output, forget
	linear bool     // of GRU: linear_before_reset
	couple bool     // of LSTM: input_forget
	clip   float32
}

// recurrent runs the steps of a recurrent operator. The products with the inputs of all steps are one product.
func recurrent(c *call, gates int, step func(*cell, *value, *value, *value) (h, s *value)) {
	x, w, r := c.in(0), c.in(1), c.in(2)
	bias, lens, h0 := c.opt(3), c.opt(4), c.opt(5)
	var s0, peep *value
	if gates == 4 {
		s0, peep = c.opt(6), c.opt(7)
	}
	batchFirst := c.attrInt("layout", 0) == 1
	if x.spec.Rank != 3 || w.spec.Rank != 3 || r.spec.Rank != 3 {
		c.fail("X %v, W %v, R %v: three dimensions are right", x, w, r)
	}
	if batchFirst {
		x = c.permute(x, 1, 0, 2)
		for _, v := range []**value{&h0, &s0} {
			if *v != nil {
				*v = c.permute(*v, 1, 0, 2)
			}
		}
	}
	steps, batch, in := x.spec.Dims[0], x.spec.Dims[1], x.spec.Dims[2]
	hidden := r.spec.Dims[2]
	direction := c.attrString("direction", "forward")
	dirs := 1
	if direction == "bidirectional" {
		dirs = 2
	}
	f32 := func(dims ...int) tensor.Spec { return tensor.MakeSpec(x.spec.DType, dims...) }
	if hs := c.attrInt("hidden_size", hidden); hs != hidden || w.spec != f32(dirs, gates*hidden, in) || r.spec != f32(dirs, gates*hidden, hidden) ||
		bias != nil && bias.spec != f32(dirs, 2*gates*hidden) || h0 != nil && h0.spec != f32(dirs, batch, hidden) || s0 != nil && s0.spec != f32(dirs, batch, hidden) {
		c.fail("X %v, W %v, R %v, B %v, hidden size %d do not fit each other", x, w, r, bias, hs)
	}
	var limit []int
	if lens != nil {
		limit = c.ints(lens)
		if len(limit) != batch {
			c.fail("%d lengths for a batch of %d", len(limit), batch)
		}
	}
	names, _ := c.attrStrings("activations")
	alphas, _ := c.attrFloats("activation_alpha")
	betas, _ := c.attrFloats("activation_beta")
	defaults := map[int][]string{1: {"Tanh"}, 3: {"Sigmoid", "Tanh"}, 4: {"Sigmoid", "Tanh", "Tanh"}}[gates]
	if len(names) == 0 {
		names = slices.Repeat(defaults, dirs)
	}
	if len(names) != dirs*len(defaults) {
		c.fail("%d activations, %d are right", len(names), dirs*len(defaults))
	}
	var ys, hs, ss []*value
	for d := range dirs {
		backward := direction == "reverse" || d == 1
		one := func(v *value) *value { return c.reshape(c.slice(v, 0, d, d+1), v.spec.Shape()[1:]...) }
		k := &cell{c: c, hidden: hidden, r: one(r), linear: c.attrBool("linear_before_reset", false), couple: c.attrBool("input_forget", false),
			clip: c.attrFloat("clip", 0)}
		for i := range defaults {
			k.acts = append(k.acts, c.rnnActivation(names[d*len(defaults)+i], &alphas, &betas))
		}
		if bias != nil {
			b := one(bias)
			k.wb, k.rb = c.slice(b, 0, 0, gates*hidden), c.slice(b, 0, gates*hidden, 2*gates*hidden)
		}
		if peep != nil {
			p := one(peep)
			for i := range 3 {
				k.peep = append(k.peep, c.slice(p, 0, i*hidden, (i+1)*hidden))
			}
		}
		// One product for the inputs of all steps.
		projected := c.emit(matmul.Op{TransB: true, Out: narrowOut(x.spec.DType)}, c.reshape(x, steps*batch, in), one(w))
		if k.wb != nil {
			projected = c.binary(elementwise.Add, projected, k.wb)
		}
		projected = c.reshape(projected, steps, batch, gates*hidden)
		zeros := c.broadcast(c.scalarOf(x.spec.DType, 0), batch, hidden)
		h, s := zeros, zeros
		if h0 != nil {
			h = one(h0)
		}
		if s0 != nil {
			s = one(s0)
		}
		outs := make([]*value, steps)
		for i := range steps {
			c.turn(i)
			t := i
			if backward {
				t = steps - 1 - i
			}
			xt := c.reshape(c.slice(projected, 0, t, t+1), batch, gates*hidden)
			nh, ns := step(k, xt, h, s)
			outs[t] = nh
			if limit != nil {
				mask := make([]bool, batch)
				for b := range mask {
					mask[b] = t < limit[b]
				}
				m := knownValue(tensor.Of(mask, batch, 1))
				outs[t] = c.where(m, nh, c.scalarOf(x.spec.DType, 0))
				nh = c.where(m, nh, h)
				if ns != nil {
					ns = c.where(m, ns, s)
				}
			}
			h, s = nh, ns
		}
		y := zeros
		if steps > 0 {
			y = c.stack(outs, 0, ValueInfo{})
		} else {
			y = c.broadcast(c.scalarOf(x.spec.DType, 0), 0, batch, hidden)
		}
		ys, hs = append(ys, y), append(hs, h)
		if gates == 4 {
			ss = append(ss, s)
		}
	}
	y, h := c.stack(ys, 1, ValueInfo{}), c.stack(hs, 0, ValueInfo{})
	if batchFirst {
		y, h = c.permute(y, 2, 0, 1, 3), c.permute(h, 1, 0, 2)
	}
	out := []*value{y, h}
	if gates == 4 {
		s := c.stack(ss, 0, ValueInfo{})
		if batchFirst {
			s = c.permute(s, 1, 0, 2)
		}
		out = append(out, s)
	}
	c.out(out...)
}

func narrowOut(d tensor.DType) tensor.DType {
	if d == tensor.F16 || d == tensor.BF16 {
		return d
	}
	return tensor.Invalid
}

// rnnActivation returns an activation by name, taking its parameters from the lists where it has any.
func (c *call) rnnActivation(name string, alphas, betas *[]float32) func(*value) *value {
	take := func(list *[]float32, def float32) float32 {
		if len(*list) == 0 {
			return def
		}
		v := (*list)[0]
		*list = (*list)[1:]
		return v
	}
	act := func(kind ops.Activation, p, q float32) func(*value) *value {
		return func(v *value) *value { return c.act(kind, p, q, v) }
	}
	switch strings.ToLower(name) {
	case "tanh":
		return act(ops.Tanh, 0, 0)
	case "sigmoid":
		return act(ops.Sigmoid, 0, 0)
	case "relu":
		return act(ops.ReLU, 0, 0)
	case "softplus":
		return act(ops.Softplus, 0, 0)
	case "leakyrelu":
		return act(ops.LeakyReLU, take(alphas, 0.01), 0)
	case "elu":
		return act(ops.ELU, take(alphas, 1), 0)
	case "hardsigmoid":
		return act(ops.HardSigmoid, take(alphas, 0.2), take(betas, 0.5))
	case "thresholdedrelu":
		a := take(alphas, 1)
		return func(v *value) *value {
			above := c.binary(elementwise.Greater, v, c.scalarOf(v.spec.DType, float64(a)))
			return c.where(above, v, c.scalarOf(v.spec.DType, 0))
		}
	case "affine":
		a, b := take(alphas, 1), take(betas, 0)
		return func(v *value) *value { return c.scale(v, a, b) }
	case "scaledtanh":
		a, b := take(alphas, 1), take(betas, 1)
		return func(v *value) *value { return c.scale(c.act(ops.Tanh, 0, 0, c.scale(v, b, 0)), a, 0) }
	case "softsign":
		return func(v *value) *value {
			return c.binary(elementwise.Div, v, c.scale(c.unary(elementwise.Abs, v), 1, 1))
		}
	}
	c.fail("activation %q is unknown", name)
	return nil
}

// gate cuts gate i out of the gates side by side.
func (k *cell) gate(v *value, i int) *value {
	return k.c.slice(v, int(v.spec.Rank)-1, i*k.hidden, (i+1)*k.hidden)
}

func (k *cell) add(a, b *value) *value { return k.c.binary(elementwise.Add, a, b) }
func (k *cell) mul(a, b *value) *value { return k.c.binary(elementwise.Mul, a, b) }

func (k *cell) act(i int, v *value) *value {
	if k.clip > 0 {
		v = k.c.act(ops.Clip, -k.clip, k.clip, v)
	}
	return k.acts[i](v)
}

// times is h times recurrent weights of some gates, with their bias.
func (k *cell) times(h *value, from, to int) *value {
	w := k.r
	gates := k.r.spec.Dims[0] / k.hidden
	if from > 0 || to < gates {
		w = k.c.slice(k.r, 0, from*k.hidden, to*k.hidden)
	}
	y := k.c.emit(matmul.Op{TransB: true, Out: narrowOut(h.spec.DType)}, h, w)
	if k.rb != nil {
		y = k.add(y, k.c.slice(k.rb, 0, from*k.hidden, to*k.hidden))
	}
	return y
}

func rnnCell(k *cell, x, h, _ *value) (*value, *value) {
	return k.act(0, k.add(x, k.times(h, 0, 1))), nil
}

func gruCell(k *cell, x, h, _ *value) (*value, *value) {
	zr := k.times(h, 0, 2)
	z := k.act(0, k.add(k.gate(x, 0), k.gate(zr, 0)))
	r := k.act(0, k.add(k.gate(x, 1), k.gate(zr, 1)))
	var n *value
	if k.linear {
		n = k.mul(r, k.times(h, 2, 3))
	} else {
		n = k.times(k.mul(r, h), 2, 3)
	}
	n = k.act(1, k.add(k.gate(x, 2), n))
	// (1 - z) n + z h
	return k.add(k.mul(k.c.scale(z, -1, 1), n), k.mul(z, h)), nil
}

func lstmCell(k *cell, x, h, s *value) (*value, *value) {
	g := k.add(x, k.times(h, 0, 4)) // input, output, forget, cell
	i, o, f, n := k.gate(g, 0), k.gate(g, 1), k.gate(g, 2), k.gate(g, 3)
	if k.peep != nil {
		i, f = k.add(i, k.mul(s, k.peep[0])), k.add(f, k.mul(s, k.peep[2]))
	}
	i = k.act(0, i)
	if k.couple {
		f = k.c.scale(i, -1, 1)
	} else {
		f = k.act(0, f)
	}
	n = k.act(1, n)
	next := k.add(k.mul(f, s), k.mul(i, n))
	if k.peep != nil {
		o = k.add(o, k.mul(next, k.peep[1]))
	}
	o = k.act(0, o)
	return k.mul(o, k.act(2, next)), next
}
