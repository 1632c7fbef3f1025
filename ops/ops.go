// Package ops decides what an operation is: its attributes (the fields of its Go type), its shape rule (Infer), and its meaning
// (Reference, slow and obviously right). How fast it runs is the backends' business. Each family has a package of its own below
// this one; this one holds what they and the backends share.
package ops

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/tessera-go/tessera/tensor"
)

// Op is an operation with its attributes. Implementations are small comparable or pointer-free structs, so that two nodes with
// equal ops and equal inputs compute the same.
type Op interface {
	// Name is the operation's name in listings: lower case, the field's term ("rms_norm").
	Name() string
	// Infer is the shape rule: the specs of the outputs for those of the inputs. An absent optional input has the zero Spec.
	// The error says which input is wrong and what would be right.
	Infer(in []tensor.Spec) ([]tensor.Spec, error)
	// Reference computes the outputs, which have the inferred specs, in float64 or exact integers, element by element. Any strides
	// are allowed. An absent optional input is a Tensor without memory. Outputs do not overlap inputs unless the op is an Updater.
	Reference(out, in []tensor.Tensor) error
}

// Viewer is an op whose only output is a view of input 0: nothing is computed. View returns a *tensor.NeedsCopyError where the
// strides of the input admit no view; the op is then computed like any other.
type Viewer interface {
	Op
	View(in tensor.Tensor) (tensor.Tensor, error)
}

// Ranged is an op whose only output is computed element by element, from the elements at the same places of inputs of its shape. Range
// computes elements from to to-1 of operands that lie in row-major order. A backend that has no kernel for the op computes ranges at once.
type Ranged interface {
	Op
	Range(out, in []tensor.Tensor, from, to int)
}

// Updater is an op whose output 0 is the memory of input 0, changed in place (a KV cache that gets new rows).
type Updater interface {
	Op
	Updates()
}

// InPlacer is an op whose output 0 may lie in the memory of input i, because element j of it depends on no other element of
// that input than j. The input must have the output's spec.
type InPlacer interface {
	Op
	InPlace(i int) bool
}

// Fed is an op that may be computed piece by piece together with the op before it, which computes its input 0, so that what lies between is
// never whole. FedBy says so for that op and the specs of the own inputs. Where nothing else reads what lies between, a graph then keeps the memory of
// what the op before reads, and tells backends: see Part.Feeds.
type Fed interface {
	Op
	FedBy(before Op, in []tensor.Spec) bool
}

// Flopper is an op that can count its arithmetic operations, for profiles.
type Flopper interface {
	Op
	Flops(in []tensor.Spec) float64
}

// Sizes gives symbolic sizes their values.
type Sizes map[string]int

// Size is a dimension or an offset that is known when a graph is built, or a symbol's value plus N.
type Size struct {
	Sym string // empty: the constant N
	N   int
}

// Const returns a known size.
func Const(n int) Size { return Size{N: n} }

// Plus returns the size increased by n.
func (s Size) Plus(n int) Size { s.N += n; return s }

// Value returns the size for given symbols.
func (s Size) Value(sizes Sizes) (int, error) {
	if s.Sym == "" {
		return s.N, nil
	}
	v, ok := sizes[s.Sym]
	if !ok {
		return 0, fmt.Errorf("size %q has no value", s.Sym)
	}
	return v + s.N, nil
}

func (s Size) String() string {
	switch {
	case s.Sym == "":
		return fmt.Sprint(s.N)
	case s.N == 0:
		return s.Sym
	default:
		return fmt.Sprintf("%s%+d", s.Sym, s.N)
	}
}

// Resolver is an op with symbolic attributes. Resolve returns the op with their values put in.
type Resolver interface {
	Op
	Resolve(Sizes) (Op, error)
}

// Resolve returns the op with symbolic attributes replaced, or the op itself if it has none.
func Resolve(op Op, sizes Sizes) (Op, error) {
	if r, ok := op.(Resolver); ok {
		return r.Resolve(sizes)
	}
	return op, nil
}

// Call is an operation on inputs of known specs: what a backend is asked to support.
type Call struct {
	Op    Op
	In    []tensor.Spec
	Out   []tensor.Spec
	Const []bool // which inputs are constants of the graph (weights)
}

// Part is a piece of a graph for one backend: values, and nodes in the order of execution.
type Part struct {
	Values  []Value
	Nodes   []Node
	Inputs  []int // values that come from outside the part, constants not included
	Outputs []int // values that are read outside the part

	// Feeds says which nodes feed the next one (see Fed): it alone reads their output, and what they read stays in its place until its end. Nil:
	// none.
	Feeds []bool
}

// Value is what flows between nodes.
type Value struct {
	Name  string
	Spec  tensor.Spec
	Const *Constant // nil unless the value is a constant of the graph
}

// Node is an op applied to values. An absent optional input is -1.
type Node struct {
	Name    string
	Op      Op
	In, Out []int
}

// Call returns the node as a question to a backend.
func (p *Part) Call(n *Node) Call {
	c := Call{Op: n.Op}
	for _, v := range n.In {
		if v < 0 {
			c.In, c.Const = append(c.In, tensor.Spec{}), append(c.Const, false)
			continue
		}
		c.In = append(c.In, p.Values[v].Spec)
		c.Const = append(c.Const, p.Values[v].Const != nil)
	}
	for _, v := range n.Out {
		c.Out = append(c.Out, p.Values[v].Spec)
	}
	return c
}

// Constant is a weight: a tensor that never changes, with the forms that backends have prepared from it. All executables of a
// graph, and all goroutines, share it.
type Constant struct {
	Tensor tensor.Tensor
	// Origin is what backends may tell about the forms that they make; nil where nobody listens.
	Origin Origin

	mu       sync.Mutex
	prepared map[any]*preparation
}

// errUnfinished is the error of a preparation until its form is made, and for good if runtime.Goexit ends the goroutine that makes it.
var errUnfinished = errors.New("the form of a constant is not made yet")

// preparation is one making of a form.
type preparation struct {
	over     chan struct{} // closed at its end, before which the rest is not read
	value    any
	err      error
	panicked any
}

// Origin is where a constant comes from, such as a model's file. A backend that makes a form of a constant asks for one that was kept earlier, and says what it
// does. Methods may be called by several goroutines.
type Origin interface {
	// Kept returns the bytes of a form that was given to Keep under the key, perhaps by another process; nil if there are none. They are valid as
	// long as the constant. The key names the backend and everything that the form depends on besides the constant. Looking for damage may take so
	// many workers, for other forms as well.
	Kept(key string, workers int) []byte
	// Keep offers a form to be kept, in place of what Kept gave. It may be written later, but before the constant is closed.
	Keep(key string, form io.WriterTo)
	// Consumed says that bytes of the constant's tensor are part of a form now, so that their memory can be given back; for a form that was kept, all of
	// them at once. Bytes may be read again nevertheless.
	Consumed(raw []byte)
}

// NewConstant returns a constant for the tensor.
func NewConstant(t tensor.Tensor) *Constant { return &Constant{Tensor: t} }

// Prepare returns the form of the constant under a key (comparable; it should name the backend and the layout), made by the first
// caller. Concurrent callers wait for the first. A value with a Close method is closed by Constant.Close.
//
// What fails is not kept. An error of form is that of its own caller: another one, whose context may not have ended, makes the form itself. If form
// panics, as where it reads a mapped file that was cut short, so does every caller that waited for it, and the next one tries again.
func (c *Constant) Prepare(key any, form func() (any, error)) (any, error) {
	for {
		c.mu.Lock()
		p := c.prepared[key]
		if p == nil {
			p = &preparation{over: make(chan struct{}), err: errUnfinished}
			if c.prepared == nil {
				c.prepared = map[any]*preparation{}
			}
			c.prepared[key] = p
			c.mu.Unlock()
			return c.form(key, p, form)
		}
		c.mu.Unlock()
		<-p.over
		if p.panicked != nil {
			panic(p.panicked)
		}
		if p.err == nil {
			return p.value, nil
		}
	}
}

// form makes what a preparation is for.
func (c *Constant) form(key any, p *preparation, form func() (any, error)) (any, error) {
	defer func() {
		p.panicked = recover()
		c.mu.Lock()
		if (p.panicked != nil || p.err != nil) && c.prepared[key] == p {
			delete(c.prepared, key)
		}
		c.mu.Unlock()
		close(p.over)
		if p.panicked != nil {
			panic(p.panicked)
		}
	}()
	value, err := form()
	c.mu.Lock()
	p.value, p.err = value, err
	c.mu.Unlock()
	return value, err
}

// PreparedBytes returns the bytes of the prepared forms that say how large they are (by a method Bytes() int).
func (c *Constant) PreparedBytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range c.prepared {
		if sized, ok := p.value.(interface{ Bytes() int }); ok {
			n += sized.Bytes()
		}
	}
	return n
}

// Close releases the prepared forms; it waits for those that are being made. The tensor itself belongs to whoever made it.
func (c *Constant) Close() error {
	c.mu.Lock()
	prepared := c.prepared
	c.prepared = nil
	c.mu.Unlock()
	var errs []error
	for _, p := range prepared {
		<-p.over
		if closer, ok := p.value.(interface{ Close() error }); ok {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// NumInputs returns an error unless the number of inputs lies between least and most.
func NumInputs(op Op, in []tensor.Spec, least, most int) error {
	if len(in) < least || len(in) > most {
		have, want := fmt.Sprintf("%d inputs", len(in)), fmt.Sprintf("%d are", least)
		switch {
		case most != least:
			want = fmt.Sprintf("%d to %d are", least, most)
		case least == 1:
			want = "1 is"
		}
		if len(in) == 1 {
			have = "1 input"
		}
		return fmt.Errorf("%s: %s, %s right", op.Name(), have, want)
	}
	for i := 0; i < least; i++ {
		if in[i].DType == tensor.Invalid {
			return fmt.Errorf("%s: input %d is absent", op.Name(), i)
		}
	}
	return nil
}

// Describe returns a call in words: "rms_norm(f32[3 64], f32[64])".
func Describe(op Op, in []tensor.Spec) string {
	var b strings.Builder
	b.WriteString(op.Name())
	for i, s := range in {
		b.WriteString(map[bool]string{true: "(", false: ", "}[i == 0])
		if s.DType == tensor.Invalid {
			b.WriteString("-")
			continue
		}
		b.WriteString(s.String())
	}
	b.WriteString(")")
	return b.String()
}
