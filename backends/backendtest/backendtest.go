// Package backendtest is the conformance suite of backends. It decides what a backend must show before it may be trusted with a graph:
// every operation and type that it claims computes what the operation's reference computes, element by element within a bound; whatever
// the strides of operands and results; on shapes at edges, on zero sizes, on NaN and infinities; without touching a byte that is not
// the result's; the same on every run, from any goroutine, with any number of processors; and it stops when its context ends. What a
// backend does not support it must say, with a reason.
//
// A backend is tested in one line:
//
//	func TestConformance(t *testing.T) { backendtest.Run(t, func() backends.Backend { return open(t) }) }
package backendtest

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// Options change which cases a suite runs. The zero value runs the usual ones. How exact results must be is not an option: float32, or what the backend's
// verdict on a call claims (backends.Accuracy), of which at least four bits must be left.
type Options struct {
	// Long runs more shapes and more views; without it the suite takes some seconds.
	Long bool
	// Quick runs every case once in memory as it comes and once in one view, instead of all: for emulators.
	Quick bool
	// Only keeps cases whose operation has one of these names; nil means all.
	Only []string
	// Types keeps cases whose first operand has one of these types; nil means all.
	Types []tensor.DType
	// Whole keeps the tests of the backend as a whole of these names (description, refusal, programs, concurrency, determinism,
	// cancellation, constants, operands); nil means all.
	Whole []string
	// Contiguous leaves out views, for backends that get contiguous tensors only.
	Contiguous bool
	// Held, if there is one, returns the bytes of scratch memory that a program of the backend keeps for itself. Every program must then be
	// [backends.Sized], and its bound must cover what it keeps when it closes.
	Held func(backends.Program) int64
}

// Failure is what a backend did wrong.
type Failure struct {
	Case string // operation, operands, variant and seed
	What string
}

func (f Failure) String() string { return f.Case + ": " + f.What }

// Line is what the suite found about one operation on one type.
type Line struct {
	Op      string       // a product of two types names the second
	Type    tensor.DType // of the first operand
	Cases   int          // that were computed
	Refused int          // that the backend refused
	Reason  string       // the first verdict's
	Error   float64      // largest error seen, as a fraction of the result's magnitude
}

// Report is the outcome of a suite.
type Report struct {
	Backend  string
	Failures []Failure
	Lines    []Line
}

// Run tests a backend, which open makes anew.
func Run(t *testing.T, open func() backends.Backend, options ...Options) {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	s := newSuite(open, o)
	defer s.close()
	for _, group := range s.groups() {
		t.Run(group.name, func(t *testing.T) {
			before := len(s.failures)
			group.run()
			for i, f := range s.failures[before:] {
				if i == 20 {
					t.Errorf("and %d more", len(s.failures)-before-i)
					break
				}
				t.Error(f)
			}
		})
	}
	computed := 0
	for _, l := range s.lines {
		computed += l.Cases
	}
	if computed == 0 {
		t.Error("the backend refused everything")
	}
}

// Check runs the suite without a testing.T and returns what it found.
func Check(open func() backends.Backend, o Options) *Report {
	s := newSuite(open, o)
	defer s.close()
	for _, group := range s.groups() {
		group.run()
	}
	return s.report()
}

// group is a part of the suite that is reported together.
type group struct {
	name string
	run  func()
}

type suite struct {
	open     func() backends.Backend
	o        Options
	b        backends.Backend
	failures []Failure
	lines    map[lineKey]*Line
}

type lineKey struct {
	op string
	d  tensor.DType
}

func newSuite(open func() backends.Backend, o Options) *suite {
	s := &suite{open: open, o: o, lines: map[lineKey]*Line{}}
	if o.Held != nil {
		s.open = func() backends.Backend { return &sized{open(), s} }
	}
	s.b = s.open()
	return s
}

func (s *suite) close() {
	if err := s.b.Close(); err != nil {
		s.fail("Close", "%v", err)
	}
}

func (s *suite) fail(name, format string, args ...any) {
	s.failures = append(s.failures, Failure{name, fmt.Sprintf(format, args...)})
}

func (s *suite) line(c *Case) *Line {
	key := lineKey{c.Op.Name(), c.specs()[0].DType}
	if _, ok := c.Op.(matmul.Op); ok && c.specs()[1].DType != key.d { // another row of the table
		key.op += " by " + c.specs()[1].DType.String()
	}
	l := s.lines[key]
	if l == nil {
		l = &Line{Op: key.op, Type: key.d}
		s.lines[key] = l
	}
	return l
}

func (s *suite) report() *Report {
	r := &Report{Backend: s.b.Name(), Failures: s.failures}
	for _, l := range s.lines {
		r.Lines = append(r.Lines, *l)
	}
	sort.Slice(r.Lines, func(i, j int) bool {
		a, b := r.Lines[i], r.Lines[j]
		return cmp.Or(strings.Compare(a.Op, b.Op), int(a.Type)-int(b.Type)) < 0
	})
	return r
}

// groups returns the parts of the suite: a group for each operation, then the tests that are about the backend as a whole.
func (s *suite) groups() []group {
	byOp := map[string][]*Case{}
	var order []string
	for _, c := range cases(s.o.Long) {
		name := c.Op.Name()
		if s.o.Only != nil && !slices.Contains(s.o.Only, name) || s.o.Types != nil && !slices.Contains(s.o.Types, c.In[0].Spec.DType) {
			continue
		}
		if byOp[name] == nil {
			order = append(order, name)
		}
		byOp[name] = append(byOp[name], c)
	}
	var gs []group
	for _, name := range order {
		gs = append(gs, group{name, func() {
			for _, c := range byOp[name] {
				s.test(c)
			}
		}})
	}
	for _, g := range []group{
		{"description", s.testDescription},
		{"refusal", s.testRefusal},
		{"programs", s.testPrograms},
		{"concurrency", s.testConcurrency},
		{"determinism", s.testDeterminism},
		{"cancellation", s.testCancellation},
		{"constants", s.testConstants},
		{"operands", s.testOperands},
	} {
		if s.o.Whole != nil && !slices.Contains(s.o.Whole, g.name) {
			continue
		}
		gs = append(gs, group{g.name, func() {
			defer func() {
				if p := recover(); p != nil {
					s.fail(g.name, "panic: %v", p)
				}
			}()
			g.run()
		}})
	}
	return gs
}
