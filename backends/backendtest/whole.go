package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/elementwise"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// testDescription looks at what the backend says about itself.
func (s *suite) testDescription() {
	if s.b.Name() == "" || s.b.Describe().Name != s.b.Name() {
		s.fail("Describe", "names %q and %q: one name is right", s.b.Name(), s.b.Describe().Name)
	}
	if s.b.Describe().Device == "" {
		s.fail("Describe", "no device")
	}
	if s.b.MatMul() == nil {
		s.fail("MatMul", "no engine")
	}
}

// unknown is an operation that no backend can know.
type unknown struct{}

func (unknown) Name() string                                  { return "unknown_to_all" }
func (unknown) Infer(in []tensor.Spec) ([]tensor.Spec, error) { return in[:1], nil }
func (unknown) Reference(out, in []tensor.Tensor) error       { return tensor.Copy(out[0], in[0]) }

// testRefusal asks for what is wrong: the answer is no with a reason, or for an operation that the backend may run by its reference, yes.
func (s *suite) testRefusal() {
	x := tensor.MakeSpec(tensor.F32, 2, 3)
	for _, c := range []ops.Call{
		{Op: matmul.Op{}, In: []tensor.Spec{x, x}},
		{Op: matmul.Op{}, In: []tensor.Spec{x}},
		{Op: elementwise.Binary{F: elementwise.Add}, In: []tensor.Spec{x, tensor.MakeSpec(tensor.F32, 4)}},
		{Op: elementwise.Unary{F: elementwise.Not}, In: []tensor.Spec{x}},
		{Op: elementwise.Cast{To: tensor.Q8_0}, In: []tensor.Spec{x}},
	} {
		c.Const = make([]bool, len(c.In))
		name := ops.Describe(c.Op, c.In)
		func() {
			defer func() {
				if p := recover(); p != nil {
					s.fail(name, "Supports panics: %v", p)
				}
			}()
			switch v := s.b.Supports(c); {
			case v.OK:
				s.fail(name, "Supports says yes to a call that is wrong")
			case v.Reason == "":
				s.fail(name, "Supports says no without a reason")
			}
		}()
	}
	c := ops.Call{Op: unknown{}, In: []tensor.Spec{x}, Out: []tensor.Spec{x}, Const: []bool{false}}
	if v := s.b.Supports(c); v.Reason == "" {
		s.fail("unknown operation", "a verdict without a reason")
	}
}

// sample is a part of a few nodes that most backends take: the first product, sum or copy that is supported.
func (s *suite) sample(m int) (*Case, ops.Call, bool) {
	for _, c := range []*Case{
		{Op: matmul.Op{TransB: true}, In: []Arg{arg(tensor.F32, normal, m, 256), constant(arg(tensor.F32, normal, 256, 256))}, Bound: product(matmul.Op{TransB: true}, 256)},
		{Op: matmul.Op{}, In: []Arg{arg(tensor.F32, normal, m, 256), constant(arg(tensor.F32, normal, 256, 256))}, Bound: product(matmul.Op{}, 256)},
		{Op: elementwise.Binary{F: elementwise.Add}, In: []Arg{arg(tensor.F32, normal, m, 256), arg(tensor.F32, normal, 256)}, Bound: tight},
	} {
		call, err := c.call()
		if err == nil && s.b.Supports(call).OK {
			return c, call, true
		}
	}
	return nil, ops.Call{}, false
}

// session is a compiled case with its memory.
type session struct {
	program backends.Program
	frame   []tensor.Tensor
	out     tensor.Tensor
	want    tensor.Tensor
	consts  []*ops.Constant
}

func (s *suite) session(b backends.Backend, c *Case, call ops.Call, name string, shared []*ops.Constant) (*session, error) {
	r, _ := random(name)
	data, want, err := c.compute(r)
	if err != nil {
		return nil, err
	}
	part := c.part(call, data, name)
	z := &session{want: want[0]}
	at := 0
	for i := range part.Values {
		if part.Values[i].Const == nil {
			continue
		}
		if shared != nil {
			part.Values[i].Const = shared[at]
			data[i] = shared[at].Tensor
		}
		z.consts = append(z.consts, part.Values[i].Const)
		at++
	}
	if shared != nil { // the reference for the shared constants
		if err := c.Op.Reference(want, data); err != nil {
			return nil, err
		}
	}
	if z.program, err = b.Compile(context.Background(), part); err != nil {
		return nil, err
	}
	for _, d := range data {
		if d.Valid() {
			z.frame = append(z.frame, d)
		}
	}
	z.out = tensor.New(want[0].DType, want[0].Shape()...)
	z.frame = append(z.frame, z.out)
	return z, nil
}

// testPrograms checks what a program promises: memory may change between runs, parts of a part run alone, chains flow, a program
// outlives others.
func (s *suite) testPrograms() {
	c, call, ok := s.sample(3)
	if !ok {
		return
	}
	name := c.String()
	z, err := s.session(s.b, c, call, name, nil)
	if err != nil {
		s.fail(name, "%v", err)
		return
	}
	bd := s.relaxed(c, call)
	check := func(what string) {
		if _, wrong := compare(z.out, z.want, bd, limits{}); wrong != "" {
			s.fail(name, "%s: %s", what, wrong)
		}
	}
	run := func(what string) {
		if err := z.program.Run(context.Background(), z.frame, 0, 1); err != nil {
			s.fail(name, "%s: Run: %v", what, err)
		}
		check(what)
	}
	run("first run")
	// Other memory, other data, the same program.
	in := tensor.New(tensor.F32, z.frame[0].Shape()...)
	r, _ := random(name + " again")
	normal(r, &in)
	z.frame[0] = in
	z.out = tensor.New(z.out.DType, z.out.Shape()...)
	z.frame[len(z.frame)-1] = z.out
	data := append([]tensor.Tensor{}, z.frame[:len(z.frame)-1]...)
	if err := c.Op.Reference([]tensor.Tensor{z.want}, data); err != nil {
		s.fail(name, "%v", err)
		return
	}
	run("other memory")
	// A second program for another height, run in between, must not disturb the first.
	c2, call2, _ := s.sample(5)
	if y, err := s.session(s.b, c2, call2, c2.String(), nil); err != nil {
		s.fail(name, "a second program: %v", err)
	} else {
		if err := y.program.Run(context.Background(), y.frame, 0, 1); err != nil {
			s.fail(name, "a second program: %v", err)
		}
		if _, wrong := compare(y.out, y.want, s.relaxed(c2, call2), limits{}); wrong != "" {
			s.fail(c2.String(), "a second program: %s", wrong)
		}
		if err := y.program.Close(); err != nil {
			s.fail(name, "Close: %v", err)
		}
	}
	run("after another program was closed")
	if err := z.program.Run(context.Background(), z.frame, 0, 0); err != nil {
		s.fail(name, "a run of no nodes: %v", err)
	}
	if err := z.program.Close(); err != nil {
		s.fail(name, "Close: %v", err)
	}
	s.chain()
}

func (s *suite) relaxed(c *Case, call ops.Call) bound {
	b := c.Bound
	b.Magnitude = nil
	b.Scale = max(b.Scale, 1e-5)
	b.Scale += roughly(s.b.Supports(call).Accuracy)
	return b
}

// chain compiles several nodes in one part and runs it whole and node by node.
func (s *suite) chain() {
	spec := tensor.MakeSpec(tensor.F32, 4, 64)
	w := tensor.New(tensor.F32, 64, 64)
	r, _ := random("chain")
	scaled(0, 0.1)(r, &w)
	op := matmul.Op{}
	call := ops.Call{Op: op, In: []tensor.Spec{spec, w.Spec}, Out: []tensor.Spec{spec}, Const: []bool{false, true}}
	if !s.b.Supports(call).OK {
		return
	}
	const n = 4
	part := &ops.Part{Values: []ops.Value{{Name: "x", Spec: spec}, {Name: "w", Spec: w.Spec, Const: ops.NewConstant(w)}}, Inputs: []int{0}, Outputs: []int{n + 1}}
	x := tensor.New(tensor.F32, 4, 64)
	normal(r, &x)
	frame := []tensor.Tensor{x, w}
	want := x.Clone()
	for i := range n {
		from := i + 1
		if i == 0 {
			from = 0
		}
		part.Nodes = append(part.Nodes, ops.Node{Name: fmt.Sprint("product ", i), Op: op, In: []int{from, 1}, Out: []int{i + 2}})
		part.Values = append(part.Values, ops.Value{Name: fmt.Sprint("y", i), Spec: spec})
		frame = append(frame, tensor.New(tensor.F32, 4, 64))
		next := tensor.New(tensor.F32, 4, 64)
		if err := op.Reference([]tensor.Tensor{next}, []tensor.Tensor{want, w}); err != nil {
			s.fail("chain", "%v", err)
			return
		}
		want = next
	}
	program, err := s.b.Compile(context.Background(), part)
	if err != nil {
		s.fail("chain", "Compile: %v", err)
		return
	}
	b := bound{Scale: 1e-5}
	b.Scale += n * roughly(s.b.Supports(call).Accuracy)
	for _, step := range []int{n, 1} {
		for i := range n {
			clear(frame[i+2].Raw())
		}
		for at := 0; at < n; at += step {
			if err := program.Run(context.Background(), frame, at, at+step); err != nil {
				s.fail("chain", "Run: %v", err)
				return
			}
		}
		if _, wrong := compare(frame[n+1], want, b, limits{}); wrong != "" {
			s.fail("chain", "in steps of %d: %s", step, wrong)
		}
	}
	if err := program.Close(); err != nil {
		s.fail("chain", "Close: %v", err)
	}
}

// testConcurrency runs programs that share constants in several goroutines.
func (s *suite) testConcurrency() {
	c, call, ok := s.sample(4)
	if !ok {
		return
	}
	name := c.String()
	first, err := s.session(s.b, c, call, name, nil)
	if err != nil {
		s.fail(name, "%v", err)
		return
	}
	const goroutines, runs = 4, 15
	wrong := make([]string, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() {
				if p := recover(); p != nil {
					wrong[g] = fmt.Sprint("panic: ", p)
				}
			}()
			z, err := s.session(s.b, c, call, fmt.Sprint(name, g), first.consts)
			if err != nil {
				wrong[g] = err.Error()
				return
			}
			for i := range runs {
				if err := z.program.Run(context.Background(), z.frame, 0, 1); err != nil {
					wrong[g] = err.Error()
					return
				}
				if _, w := compare(z.out, z.want, s.relaxed(c, call), limits{}); w != "" {
					wrong[g] = fmt.Sprintf("run %d: %s", i, w)
					return
				}
				clear(z.out.Raw())
			}
			if err := z.program.Close(); err != nil {
				wrong[g] = err.Error()
			}
		}()
	}
	wg.Wait()
	for g, w := range wrong {
		if w != "" {
			s.fail(name, "goroutine %d of %d: %s", g, goroutines, w)
		}
	}
	if err := first.program.Close(); err != nil {
		s.fail(name, "Close: %v", err)
	}
}

// testDeterminism demands the same bits on every run, on a backend opened anew, and for any number of processors.
func (s *suite) testDeterminism() {
	c, call, ok := s.sample(37)
	if !ok {
		return
	}
	name := c.String()
	var bits []byte
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	for _, n := range []int{procs, 1, 3} {
		runtime.GOMAXPROCS(n)
		b := s.open()
		z, err := s.session(b, c, call, name, nil)
		if err != nil {
			s.fail(name, "%v", err)
			return
		}
		for i := range 5 {
			clear(z.out.Raw())
			if err := z.program.Run(context.Background(), z.frame, 0, 1); err != nil {
				s.fail(name, "%v", err)
				return
			}
			if bits == nil {
				bits = bytes.Clone(z.out.Raw())
			}
			if !bytes.Equal(bits, z.out.Raw()) {
				s.fail(name, "run %d with %d processors gives other bits than the first", i, n)
				return
			}
		}
		if err := errors.Join(z.program.Close(), b.Close()); err != nil {
			s.fail(name, "Close: %v", err)
		}
	}
}

// testCancellation demands that an ended context ends a run with its error, and that the program works afterwards.
func (s *suite) testCancellation() {
	c, call, ok := s.sample(64)
	if !ok {
		return
	}
	name := c.String()
	z, err := s.session(s.b, c, call, name, nil)
	if err != nil {
		s.fail(name, "%v", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := z.program.Run(ctx, z.frame, 0, 1); !errors.Is(err, context.Canceled) {
		s.fail(name, "a run with a cancelled context gives %v; context.Canceled is right", err)
	}
	expired, stop := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer stop()
	if err := z.program.Run(expired, z.frame, 0, 1); !errors.Is(err, context.DeadlineExceeded) {
		s.fail(name, "a run behind its deadline gives %v; context.DeadlineExceeded is right", err)
	}
	if err := z.program.Run(context.Background(), z.frame, 0, 1); err != nil {
		s.fail(name, "the run after a cancelled one: %v", err)
	}
	if _, wrong := compare(z.out, z.want, s.relaxed(c, call), limits{}); wrong != "" {
		s.fail(name, "the run after a cancelled one: %s", wrong)
	}
	if err := z.program.Close(); err != nil {
		s.fail(name, "Close: %v", err)
	}
}

// testConstants demands that two constants of one shape are not taken for each other, and that a constant compiled twice is right twice.
func (s *suite) testConstants() {
	c, call, ok := s.sample(2)
	if !ok {
		return
	}
	for i := range 3 {
		name := fmt.Sprintf("%s, constant %d", c, i)
		var shared []*ops.Constant
		for range 2 {
			z, err := s.session(s.b, c, call, name, shared)
			if err != nil {
				s.fail(name, "%v", err)
				return
			}
			if err := z.program.Run(context.Background(), z.frame, 0, 1); err != nil {
				s.fail(name, "%v", err)
			}
			if _, wrong := compare(z.out, z.want, s.relaxed(c, call), limits{}); wrong != "" {
				s.fail(name, "%s", wrong)
			}
			if err := z.program.Close(); err != nil {
				s.fail(name, "Close: %v", err)
			}
			shared = z.consts
		}
	}
}
