package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Case is an operation on operands.
type Case struct {
	Op    ops.Op
	In    []Arg
	Bound bound
	// Lone runs the plain variant only: the case is about values or is large.
	Lone bool
}

// Arg is an operand: absent where its spec is zero.
type Arg struct {
	Spec  tensor.Spec
	Fill  fill
	Const bool
}

func (c *Case) specs() []tensor.Spec {
	in := make([]tensor.Spec, len(c.In))
	for i, a := range c.In {
		in[i] = a.Spec
	}
	return in
}

func (c *Case) String() string {
	s := ops.Describe(c.Op, c.specs())
	if detail := fmt.Sprintf("%+v", c.Op); detail != "{}" {
		s += " " + detail
	}
	for i, a := range c.In {
		if a.Const {
			s += fmt.Sprintf(" (input %d constant)", i)
		}
	}
	return s
}

// call is what the backend is asked.
func (c *Case) call() (ops.Call, error) {
	out, err := c.Op.Infer(c.specs())
	call := ops.Call{Op: c.Op, In: c.specs(), Out: out}
	for _, a := range c.In {
		call.Const = append(call.Const, a.Const)
	}
	return call, err
}

// test runs a case in all its variants.
func (s *suite) test(c *Case) {
	name := c.String()
	call, err := c.call()
	if err != nil {
		s.fail(name, "the suite's own case is wrong: %v", err)
		return
	}
	v := s.b.Supports(call)
	line := s.line(c)
	if line.Reason == "" {
		line.Reason = v.Reason
	}
	if !v.OK {
		line.Refused++
		if v.Reason == "" {
			s.fail(name, "refused without a reason")
		}
		return
	}
	line.Cases++
	r, seed := random(name)
	name = fmt.Sprintf("%s, seed %d", name, seed)
	data, want, err := c.compute(r)
	if err != nil {
		s.fail(name, "the reference fails: %v", err)
		return
	}
	b := c.Bound
	if err := b.claim(c.Op, v.Accuracy); err != nil {
		s.fail(name, "the verdict %v", err)
		return
	}
	l, err := b.limits(data, call.Out)
	if err != nil {
		s.fail(name, "the suite's own: %v", err)
		return
	}
	for _, variant := range s.variants(c, r) {
		if e := s.runVariant(c, call, name, variant, r, data, want, b, l); e > line.Error {
			line.Error = e
		}
	}
}

// compute fills the operands and runs the reference on them.
func (c *Case) compute(r *rand.Rand) (data, want []tensor.Tensor, err error) {
	data = make([]tensor.Tensor, len(c.In))
	for i, a := range c.In {
		if a.Spec.DType == tensor.Invalid {
			continue
		}
		data[i] = tensor.New(a.Spec.DType, a.Spec.Shape()...)
		a.Fill(r, &data[i])
	}
	out, err := c.Op.Infer(c.specs())
	if err != nil {
		return nil, nil, err
	}
	for _, o := range out {
		want = append(want, tensor.New(o.DType, o.Shape()...))
	}
	return data, want, c.Op.Reference(want, data)
}

// variant says how a case's tensors lie.
type variant struct {
	in, out []style
	inPlace int // input whose memory is the result's; -1 for none
}

func (v variant) String() string {
	s := ""
	for _, st := range v.in {
		s += styleNames[st] + ", "
	}
	s = "inputs " + s + "results"
	for _, st := range v.out {
		s += " " + styleNames[st]
	}
	if v.inPlace >= 0 {
		s += fmt.Sprintf(", in place of input %d", v.inPlace)
	}
	return s
}

func (s *suite) variants(c *Case, r *rand.Rand) []variant {
	outs, _ := c.Op.Infer(c.specs())
	all := func(in, out style) variant {
		v := variant{inPlace: -1}
		for range c.In {
			v.in = append(v.in, in)
		}
		for range outs {
			v.out = append(v.out, out)
		}
		return v
	}
	vs := []variant{all(plain, plain)}
	if _, ok := c.Op.(ops.Updater); ok {
		vs[0].inPlace = 0
	}
	if p, ok := c.Op.(ops.InPlacer); ok && !c.Lone {
		for i, a := range c.In {
			if p.InPlace(i) && len(outs) > 0 && a.Spec == outs[0] && !a.Const {
				v := all(plain, plain)
				v.inPlace = i
				vs = append(vs, v)
			}
		}
	}
	if c.Lone || s.o.Contiguous {
		return vs
	}
	n := 2
	switch {
	case s.o.Quick:
		n = 1
	case s.o.Long:
		n = 8
	}
	if !s.o.Quick {
		vs = append(vs, all(offset, offset), all(gapped, gapped), all(permuted, plain), all(plain, permuted), all(everyTwo, everyTwo), all(broadcast, plain))
	}
	for range n {
		v := all(plain, plain)
		for i := range v.in {
			v.in[i] = style(r.IntN(int(numStyles)))
		}
		for i := range v.out {
			v.out[i] = style(r.IntN(int(broadcast)))
		}
		vs = append(vs, v)
	}
	if _, ok := c.Op.(ops.Updater); ok {
		for i := range vs {
			vs[i].inPlace = 0
			if vs[i].in[0] == broadcast {
				vs[i].in[0] = plain
			}
		}
	}
	return vs
}

// part makes a part of one node.
func (c *Case) part(call ops.Call, data []tensor.Tensor, name string) *ops.Part {
	p := &ops.Part{}
	n := ops.Node{Name: name, Op: c.Op}
	for i, a := range c.In {
		if a.Spec.DType == tensor.Invalid {
			n.In = append(n.In, -1)
			continue
		}
		v := ops.Value{Name: fmt.Sprintf("in%d", i), Spec: a.Spec}
		if a.Const {
			v.Const = ops.NewConstant(data[i])
		} else {
			p.Inputs = append(p.Inputs, len(p.Values))
		}
		n.In = append(n.In, len(p.Values))
		p.Values = append(p.Values, v)
	}
	for i, o := range call.Out {
		p.Outputs = append(p.Outputs, len(p.Values))
		n.Out = append(n.Out, len(p.Values))
		p.Values = append(p.Values, ops.Value{Name: fmt.Sprintf("out%d", i), Spec: o})
	}
	p.Nodes = []ops.Node{n}
	return p
}

// runVariant runs a case once in one layout, and looks at everything. It returns the error seen.
func (s *suite) runVariant(c *Case, call ops.Call, name string, v variant, r *rand.Rand, data, want []tensor.Tensor, b bound, l limits) (worst float64) {
	name += ", " + v.String()
	defer func() {
		if p := recover(); p != nil {
			s.fail(name, "panic: %v", p)
		}
	}()
	ins := make([]*placed, len(data))
	consts := make([]tensor.Tensor, len(data))
	for i := range data {
		if !data[i].Valid() {
			continue
		}
		if v.inPlace == i && v.in[i] == broadcast {
			v.in[i] = plain
		}
		ins[i] = place(r, data[i].Spec, v.in[i])
		if err := fillFrom(ins[i], &data[i]); err != nil {
			s.fail(name, "%v", err)
			return
		}
		consts[i] = ins[i].Tensor
	}
	// A dimension that was repeated holds other data than before: the reference runs again on what is there.
	want, l, ok := s.again(c, call, name, v, ins, want, b, l)
	if !ok {
		return
	}
	outs := make([]*placed, len(want))
	for i := range want {
		if v.inPlace >= 0 && i == 0 {
			outs[0] = ins[v.inPlace]
			continue
		}
		outs[i] = place(r, want[i].Spec, v.out[i])
		outs[i].garbage()
	}
	for _, p := range append(append([]*placed{}, ins...), outs...) {
		if p != nil {
			p.keep()
		}
	}
	part := c.part(call, consts, name)
	program, err := s.b.Compile(context.Background(), part)
	if err != nil {
		s.fail(name, "Compile: %v", err)
		return
	}
	defer func() {
		if err := program.Close(); err != nil {
			s.fail(name, "Close: %v", err)
		}
		for i := range part.Values {
			if k := part.Values[i].Const; k != nil {
				_ = k.Close()
			}
		}
	}()
	frame := make([]tensor.Tensor, len(part.Values))
	at := 0
	for i := range ins {
		if ins[i] != nil {
			frame[at] = ins[i].Tensor
			at++
		}
	}
	for i := range outs {
		frame[at] = outs[i].Tensor
		at++
	}
	if err := program.Run(context.Background(), frame, 0, 1); err != nil {
		s.fail(name, "Run: %v", err)
		return
	}
	for i := range want {
		e, wrong := compare(outs[i].Tensor, want[i], b, l.of(i))
		if wrong != "" {
			s.fail(name, "result %d: %s", i, wrong)
			return
		}
		worst = max(worst, e)
		if wrong := outs[i].changed(true); wrong != "" {
			s.fail(name, "result %d: %s", i, wrong)
		}
	}
	for i, p := range ins {
		if p == nil || v.inPlace == i {
			continue
		}
		if wrong := p.changed(false); wrong != "" {
			s.fail(name, "input %d: %s", i, wrong)
		}
	}
	return worst
}

// of returns the limits of output i: those of the first are known.
func (l limits) of(i int) limits {
	if i == 0 {
		return l
	}
	return limits{}
}

// fillFrom copies data into a placed tensor; where it repeats a dimension, the first of the data counts.
func fillFrom(p *placed, data *tensor.Tensor) error {
	dst, src := p.Tensor, *data
	for d := range int(dst.Rank) {
		if dst.Strides[d] == 0 && dst.Dims[d] > 1 {
			dst.Dims[d], src.Dims[d] = 1, 1
		}
	}
	return tensor.Copy(dst, src)
}

// again returns the reference for a variant that repeats a dimension of an input, else what there is.
func (s *suite) again(c *Case, call ops.Call, name string, v variant, ins []*placed, want []tensor.Tensor, b bound, l limits) ([]tensor.Tensor, limits, bool) {
	repeated := false
	for i, p := range ins {
		repeated = repeated || p != nil && v.in[i] == broadcast
	}
	if !repeated {
		return want, l, true
	}
	data := make([]tensor.Tensor, len(ins))
	for i, p := range ins {
		if p != nil {
			data[i] = p.Tensor.Clone()
		}
	}
	want = nil
	for _, o := range call.Out {
		want = append(want, tensor.New(o.DType, o.Shape()...))
	}
	if err := c.Op.Reference(want, data); err != nil {
		s.fail(name, "the reference fails: %v", err)
		return nil, l, false
	}
	l, err := b.limits(data, call.Out)
	if err != nil {
		s.fail(name, "the suite's own: %v", err)
		return nil, l, false
	}
	return want, l, true
}
