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

// recurrence is a recurrent operator: its inputs, checked, with time before batch.
type recurrence struct {
	c                              *call
	gates                          int // products a step has: 1 of RNN, 3 of GRU, 4 of LSTM
	x, w, r                        *value
	bias, h0, s0, peep             *value // nil where absent
	dirs, steps, batch, in, hidden int
	reverse                        bool     // the only direction runs backwards
	batchFirst                     bool     // in the model's tensors
	limit                          []int    // steps of each sequence; nil: all
	acts                           []string // activations of the first direction, then of the second
	alphas, betas                  []float32
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

// stepFunc gives the hidden state, and of LSTM the cell's, after a step from the products with its input and the states before.
type stepFunc func(k *cell, x, h, s *value) (nh, ns *value)

// recurrent runs a recurrent operator.
func recurrent(c *call, gates int, step stepFunc) {
	l := readRecurrence(c, gates)
	var ys, hs, ss []*value
	for d := range l.dirs {
		y, h, s := l.run(d, l.cell(d), step)
		ys, hs, ss = append(ys, y), append(hs, h), append(ss, s)
	}
	y, h := c.stack(ys, 1, ValueInfo{}), c.stack(hs, 0, ValueInfo{})
	if l.batchFirst {
		y, h = c.permute(y, 2, 0, 1, 3), c.permute(h, 1, 0, 2)
	}
	out := []*value{y, h}
	if gates == 4 {
		s := c.stack(ss, 0, ValueInfo{})
		if l.batchFirst {
			s = c.permute(s, 1, 0, 2)
		}
		out = append(out, s)
	}
	c.out(out...)
}

// readRecurrence reads inputs and attributes and checks that they fit each other.
func readRecurrence(c *call, gates int) *recurrence {
	l := &recurrence{c: c, gates: gates, x: c.in(0), w: c.in(1), r: c.in(2), bias: c.opt(3), h0: c.opt(5), batchFirst: c.attrInt("layout", 0) == 1}
	lens := c.opt(4)
	if gates == 4 {
		l.s0, l.peep = c.opt(6), c.opt(7)
	}
	if l.x.spec.Rank != 3 || l.w.spec.Rank != 3 || l.r.spec.Rank != 3 {
		c.fail("X %v, W %v, R %v: three dimensions are right", l.x, l.w, l.r)
	}
	if l.batchFirst {
		l.x = c.permute(l.x, 1, 0, 2)
		for _, v := range []**value{&l.h0, &l.s0} {
			if *v != nil {
				*v = c.permute(*v, 1, 0, 2)
			}
		}
	}
	l.steps, l.batch, l.in = l.x.spec.Dims[0], l.x.spec.Dims[1], l.x.spec.Dims[2]
	l.hidden = l.r.spec.Dims[2]
	direction := c.attrString("direction", "forward")
	l.reverse = direction == "reverse"
	l.dirs = 1
	if direction == "bidirectional" {
		l.dirs = 2
	}
	f32 := func(dims ...int) tensor.Spec { return tensor.MakeSpec(l.x.spec.DType, dims...) }
	state := f32(l.dirs, l.batch, l.hidden)
	if hs := c.attrInt("hidden_size", l.hidden); hs != l.hidden || l.w.spec != f32(l.dirs, gates*l.hidden, l.in) || l.r.spec != f32(l.dirs, gates*l.hidden, l.hidden) ||
		l.bias != nil && l.bias.spec != f32(l.dirs, 2*gates*l.hidden) || l.h0 != nil && l.h0.spec != state || l.s0 != nil && l.s0.spec != state {
		c.fail("X %v, W %v, R %v, B %v, hidden size %d do not fit each other", l.x, l.w, l.r, l.bias, hs)
	}
	if lens != nil {
		l.limit = c.ints(lens)
		if len(l.limit) != l.batch {
			c.fail("%d lengths for a batch of %d", len(l.limit), l.batch)
		}
	}
	l.acts, _ = c.attrStrings("activations")
	l.alphas, _ = c.attrFloats("activation_alpha")
	l.betas, _ = c.attrFloats("activation_beta")
	defaults := map[int][]string{1: {"Tanh"}, 3: {"Sigmoid", "Tanh"}, 4: {"Sigmoid", "Tanh", "Tanh"}}[gates]
	if len(l.acts) == 0 {
		l.acts = slices.Repeat(defaults, l.dirs)
	}
	if len(l.acts) != l.dirs*len(defaults) {
		c.fail("%d activations, %d are right", len(l.acts), l.dirs*len(defaults))
	}
	return l
}

// of returns the part of an input that belongs to direction d.
func (l *recurrence) of(d int, v *value) *value {
	return l.c.reshape(l.c.slice(v, 0, d, d+1), v.spec.Shape()[1:]...)
}

// cell makes the cell of direction d; directions are taken in order, because activations take their numbers off one list.
func (l *recurrence) cell(d int) *cell {
	c := l.c
	k := &cell{c: c, hidden: l.hidden, r: l.of(d, l.r), linear: c.attrBool("linear_before_reset", false), couple: c.attrBool("input_forget", false),
		clip: c.attrFloat("clip", 0)}
	each := len(l.acts) / l.dirs
	for _, name := range l.acts[d*each : (d+1)*each] {
		k.acts = append(k.acts, c.rnnActivation(name, &l.alphas, &l.betas))
	}
	if l.bias != nil {
		b := l.of(d, l.bias)
		k.wb, k.rb = c.slice(b, 0, 0, l.gates*l.hidden), c.slice(b, 0, l.gates*l.hidden, 2*l.gates*l.hidden)
	}
	if l.peep != nil {
		p := l.of(d, l.peep)
		for i := range 3 {
			k.peep = append(k.peep, c.slice(p, 0, i*l.hidden, (i+1)*l.hidden))
		}
	}
	return k
}

// project multiplies the inputs of all steps by the weights of direction d in one product: [steps, batch, gates x hidden].
func (l *recurrence) project(d int, k *cell) *value {
	c := l.c
	p := c.emit(matmul.Op{TransB: true, Out: narrowOut(l.x.spec.DType)}, c.reshape(l.x, l.steps*l.batch, l.in), l.of(d, l.w))
	if k.wb != nil {
		p = c.binary(elementwise.Add, p, k.wb)
	}
	return c.reshape(p, l.steps, l.batch, l.gates*l.hidden)
}

// run takes the steps of direction d and returns the hidden states of all [steps, batch, hidden], and the states after the last.
func (l *recurrence) run(d int, k *cell, step stepFunc) (y, h, s *value) {
	c := l.c
	projected := l.project(d, k)
	zero := func() *value { return c.scalarOf(l.x.spec.DType, 0) }
	h = c.broadcast(zero(), l.batch, l.hidden)
	s = h
	if l.h0 != nil {
		h = l.of(d, l.h0)
	}
	if l.s0 != nil {
		s = l.of(d, l.s0)
	}
	outs := make([]*value, l.steps)
	for i := range l.steps {
		c.turn(i)
		t := i
		if l.reverse || d == 1 {
			t = l.steps - 1 - i
		}
		xt := c.reshape(c.slice(projected, 0, t, t+1), l.batch, l.gates*l.hidden)
		nh, ns := step(k, xt, h, s)
		outs[t] = nh
		if l.limit != nil {
			mask := make([]bool, l.batch)
			for b := range mask {
				mask[b] = t < l.limit[b]
			}
			m := knownValue(tensor.Of(mask, l.batch, 1))
			outs[t] = c.where(m, nh, zero())
			nh = c.where(m, nh, h)
			if ns != nil {
				ns = c.where(m, ns, s)
			}
		}
		h, s = nh, ns
	}
	if l.steps == 0 {
		return c.broadcast(zero(), 0, l.batch, l.hidden), h, s
	}
	return c.stack(outs, 0, ValueInfo{}), h, s
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
