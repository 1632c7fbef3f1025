package onnx

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Options say how a model runs. The zero value runs on the CPU backend, which the program must have linked.
type Options struct {
	// Backends in order of preference; the last must support everything (the CPU). They stay open when the session closes. Nil opens "cpu" for the session.
	Backends      []backends.Backend
	Strict        bool     // a product that an earlier backend refuses is an error, not a fallback
	MaxMemory     int64    // bytes above which a model is refused; 0 is no limit
	DisablePasses []string // names of passes over the graph to leave out, of graph.PassNames, or "all"
	MaxPlans      int      // input shapes for which a graph is kept; 0 means 8
	Profile       bool     // measure every node of the graph, for the Profile of Session.Executable
	Eager         bool     // compute node by node, without a graph
	// OnNode, if not nil, is called after each node of the graph; an error ends the run.
	OnNode func(graph.NodeEvent) error
	// AsWritten computes operators between DequantizeLinear and QuantizeLinear in floats, as the file says, instead of in integers, whose
	// results may differ by one step.
	AsWritten bool
}

// Session runs a model. One goroutine at a time uses it.
type Session struct {
	model   *Model
	graph   *Graph // the model's, with quantized operators in place
	opts    Options
	graphs  map[string]*lowered
	clock   int
	variant map[string]int // by shapes: how many sets of pinned inputs were met
	run     *runner        // of the eager machine
	inits   map[*Tensor]*value
	current *lowered
	eagerly string // why the last run was eager
	forked  bool   // the weights belong to another session
	closed  bool
	own     backends.Backend // opened because the options name none
	start   []backends.Stats
}

// lowered is the model as a graph for some shapes.
type lowered struct {
	g       *graph.Graph
	exe     *graph.Executable // nil: the model needs the eager machine for these shapes, or all outputs are constant
	reason  error             // why there is no graph
	inputs  map[string]graph.Value
	outputs []loweredOutput
	pinned  []string // inputs whose elements were taken as constants
	stamp   int

	// What no graph can hold runs after it, node by node.
	rest   *Graph
	late   string          // why
	handed []loweredOutput // values of the graph that rest reads
	known  map[string]*value
}

type loweredOutput struct {
	name  string
	value graph.Value
	fixed *value // known without running
	elem  ElemType
}

// NewSession prepares a model. Operators that are not supported are all reported here, before anything runs; a model whose input
// shapes are fixed is compiled here too.
func NewSession(ctx context.Context, m *Model, o Options) (*Session, error) {
	if o.MaxPlans <= 0 {
		o.MaxPlans = 8
	}
	if m.closed {
		return nil, errClosed
	}
	if err := m.Unsupported(); err != nil {
		return nil, err
	}
	var own backends.Backend
	if len(o.Backends) == 0 {
		var err error
		if own, err = backends.Open("cpu"); err != nil {
			return nil, err
		}
		o.Backends = []backends.Backend{own}
	}
	s := &Session{model: m, graph: m.Graph, opts: o, graphs: map[string]*lowered{}, variant: map[string]int{}, inits: map[*Tensor]*value{}, own: own}
	s.run = s.newRunner()
	s.run.drop = true
	s.run.m = &eager{r: s.run, host: o.Backends[len(o.Backends)-1], programs: map[programKey]*eagerProgram{}}
	if err := s.begin(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	s.markStart()
	return s, nil
}

// begin puts quantized operators in place, and compiles the model if its input shapes are fixed.
func (s *Session) begin(ctx context.Context) (err error) {
	defer mem.Caught(mem.Catch(), &err)
	if !s.opts.AsWritten {
		s.graph = s.model.qdq()
	}
	s.graph.prepareLastUses()
	if specs, fixed := s.fixedInputs(); fixed && !s.opts.Eager {
		if _, err := s.lower(ctx, specs, nil, false); err != nil && !isDynamic(err) {
			return err
		}
	}
	return nil
}

func (s *Session) newRunner() *runner {
	return &runner{model: s.model, opsets: s.model.Opsets, inits: s.inits, limit: s.opts.MaxMemory, made: map[*tensor.Buffer]int64{}}
}

// Inputs returns what the model must be fed: its inputs without those that have a default.
func (s *Session) Inputs() []ValueInfo { return s.model.Inputs() }

// Inputs returns what the model must be fed: its inputs without those that have a default.
func (m *Model) Inputs() []ValueInfo {
	var list []ValueInfo
	for _, v := range m.Graph.Inputs {
		if m.Graph.Init(v.Name) == nil {
			list = append(list, v)
		}
	}
	return list
}

// Outputs returns what the model gives.
func (s *Session) Outputs() []ValueInfo { return s.model.Graph.Outputs }

// Model returns the model.
func (s *Session) Model() *Model { return s.model }

// Executable returns the compiled graph of the last run, nil if the last run had none (Eager says why).
func (s *Session) Executable() *graph.Executable {
	if s.current == nil {
		return nil
	}
	return s.current.exe
}

// Report says what ran where since NewSession or Fork, over all shapes of inputs; the fallbacks are those of the last run's graph.
func (s *Session) Report() graph.Report {
	r := graph.Report{Fallbacks: []graph.Fallback{}}
	for i, b := range s.opts.Backends {
		since := b.Stats().Sub(s.start[i])
		r.Backends = append(r.Backends, graph.BackendReport{Name: b.Name(), Stats: since})
		r.Conversions += since.Conversions
	}
	if exe := s.Executable(); exe != nil {
		r.Fallbacks = exe.Report().Fallbacks
	}
	return r
}

// markStart begins the counts of Report.
func (s *Session) markStart() {
	s.start = nil
	for _, b := range s.opts.Backends {
		s.start = append(s.start, b.Stats())
	}
}

// Eager says why the last run, or what came after its graph, computed node by node; empty if none of it did.
func (s *Session) Eager() string { return s.eagerly }

// fixedInputs returns the specs of the inputs if the file fixes them all.
func (s *Session) fixedInputs() (map[string]tensor.Spec, bool) {
	specs := map[string]tensor.Spec{}
	for _, v := range s.Inputs() {
		t := v.Type
		if t == nil || !t.HasShape || t.Elem.DType() == tensor.Invalid || t.Sequence != nil || t.Optional != nil {
			return nil, false
		}
		var dims []int
		for _, d := range t.Dims {
			if d.Size < 0 {
				return nil, false
			}
			dims = append(dims, d.Size)
		}
		spec, err := tensor.CheckDims(t.Elem.DType(), dims)
		if err != nil {
			return nil, false
		}
		specs[v.Name] = spec
	}
	return specs, true
}

// Prepare compiles the model for input shapes, so that the first run need not.
func (s *Session) Prepare(ctx context.Context, specs map[string]tensor.Spec) (err error) {
	if err := s.usable(); err != nil {
		return err
	}
	defer mem.Caught(mem.Catch(), &err)
	low, err := s.lower(ctx, specs, nil, false)
	if err == nil {
		s.current = low
	}
	return err
}

// Run computes the outputs by their names. The error is that of Model.CheckInputs, or names the node that failed. Tensors among the results are valid until the next run or until Close, whichever comes first.
func (s *Session) Run(ctx context.Context, in map[string]Value) (out map[string]Value, err error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	defer mem.Caught(mem.Catch(), &err)
	specs, err := s.model.checkInputs(in)
	if err != nil {
		return nil, err
	}
	s.eagerly = ""
	if s.opts.Eager {
		s.eagerly = "asked for"
	} else if specs == nil {
		s.eagerly = "an input is no tensor of numbers"
	}
	if s.eagerly == "" {
		low, err := s.find(ctx, specs, in)
		switch {
		case err == nil:
			if low.rest != nil {
				s.eagerly = low.late
			}
			return s.runGraph(ctx, low, in)
		case !isDynamic(err):
			return nil, err
		}
		s.eagerly = strings.TrimPrefix(err.Error(), "onnx: ")
	}
	s.current = nil
	return s.runEager(ctx, in)
}

// CheckInputs compares what a run would be given with what the model declares: names, types and dimensions. A run does so too; here
// it costs nothing, because the model need not be prepared.
func (m *Model) CheckInputs(in map[string]Value) error {
	_, err := m.checkInputs(in)
	return err
}

// checkInputs is CheckInputs, and returns the specs of the inputs: nil if one is no tensor of numbers.
func (m *Model) checkInputs(in map[string]Value) (map[string]tensor.Spec, error) {
	specs := map[string]tensor.Spec{}
	lowerable := true
	if err := m.checkNames(in); err != nil {
		return nil, err
	}
	params := map[string]int{}
	for _, v := range m.Graph.Inputs {
		given, ok := in[v.Name]
		if !ok {
			if m.Graph.Init(v.Name) == nil {
				return nil, fmt.Errorf("onnx: input %q (%v) is not given", v.Name, v.Type)
			}
			continue
		}
		if given.IsSequence || given.IsOptional || given.Strings != nil || given.Dims != nil {
			if err := given.check(); err != nil {
				return nil, fmt.Errorf("onnx: input %q: %w", v.Name, err)
			}
			lowerable = false
			continue
		}
		t := given.Tensor
		if !t.Valid() && t.Spec.Elems() != 0 || t.DType == tensor.Invalid {
			return nil, fmt.Errorf("onnx: input %q has no memory", v.Name)
		}
		specs[v.Name] = t.Spec
		if v.Type == nil || v.Type.Sequence != nil || v.Type.Optional != nil || v.Type.Elem == Undefined {
			continue
		}
		if d := v.Type.Elem.DType(); d != t.DType {
			return nil, fmt.Errorf("onnx: input %q is %v, %v was given", v.Name, v.Type, t.Spec)
		}
		if !v.Type.HasShape {
			continue
		}
		if len(v.Type.Dims) != int(t.Rank) {
			return nil, fmt.Errorf("onnx: input %q is %v, %v was given", v.Name, v.Type, t.Spec)
		}
		for i, d := range v.Type.Dims {
			if d.Size >= 0 && d.Size != t.Dims[i] {
				return nil, fmt.Errorf("onnx: input %q is %v, %v was given", v.Name, v.Type, t.Spec)
			}
			if d.Param != "" {
				if n, ok := params[d.Param]; ok && n != t.Dims[i] {
					return nil, fmt.Errorf("onnx: input %q is %v, %v was given, and %s is %d elsewhere", v.Name, v.Type, t.Spec, d.Param, n)
				}
				params[d.Param] = t.Dims[i]
			}
		}
	}
	if !lowerable {
		return nil, nil
	}
	return specs, nil
}

// checkNames returns an error for the first name that is no input of the model.
func (m *Model) checkNames(in map[string]Value) error {
	declared := map[string]bool{}
	var names []string
	for _, v := range m.Graph.Inputs {
		declared[v.Name] = true
		names = append(names, strconv.Quote(v.Name))
	}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if !declared[name] {
			return fmt.Errorf("onnx: the model has no input %q; it has: %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// pinnable reports whether an input may be taken as a constant of a graph: sizes, axes and the like.
func pinnable(t tensor.Tensor) bool {
	const most = 64
	return t.Elems() <= most && (t.DType.IsInt() || t.DType == tensor.Bool || t.Elems() <= 8)
}

// maxVariants bounds the graphs for one set of shapes that differ in pinned inputs; a model that meets more runs eagerly.
const maxVariants = 4

// find returns the graph for the inputs, lowering the model if there is none yet.
func (s *Session) find(ctx context.Context, specs map[string]tensor.Spec, in map[string]Value) (*lowered, error) {
	low, err := s.lower(ctx, specs, nil, false)
	if err == nil || !isDynamic(err) {
		return low, err
	}
	pins := map[string]tensor.Tensor{}
	for name := range specs {
		if pinnable(in[name].Tensor) {
			pins[name] = in[name].Tensor
		}
	}
	if len(pins) > 0 {
		if pinned, err := s.lower(ctx, specs, pins, false); err == nil || !isDynamic(err) {
			return pinned, err
		}
	}
	// What comes before the first node that depends on data is a graph still.
	return s.lower(ctx, specs, nil, true)
}

func shapeKey(specs map[string]tensor.Spec, pins map[string]tensor.Tensor) (shapes, full string) {
	names := make([]string, 0, len(specs))
	for n := range specs {
		names = append(names, n)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, "%q%v", n, specs[n])
	}
	shapes = b.String()
	for _, n := range names {
		if t, ok := pins[n]; ok {
			fmt.Fprintf(&b, "%q=%v", n, t.Floats())
		}
	}
	return shapes, b.String()
}

// lower builds and compiles the graph for input shapes; pins are inputs to take as constants. With split, nodes that depend on data are
// left to run after the graph.
func (s *Session) lower(ctx context.Context, specs map[string]tensor.Spec, pins map[string]tensor.Tensor, split bool) (*lowered, error) {
	shapes, key := shapeKey(specs, pins)
	if split {
		key += " split"
	}
	s.clock++
	if low := s.graphs[key]; low != nil {
		low.stamp = s.clock
		return low, low.reason
	}
	if pins != nil {
		if s.variant[shapes] >= maxVariants {
			return nil, &nodeError{node: "inputs", err: errors.New("sizes among the inputs change with every run"), dynamic: true}
		}
		s.variant[shapes]++
	}
	low, err := s.build(ctx, specs, pins, split)
	if err != nil {
		if !isDynamic(err) {
			return nil, err
		}
		low = &lowered{reason: err}
	}
	low.stamp = s.clock
	if len(s.graphs) >= s.opts.MaxPlans {
		oldest := ""
		for k, l := range s.graphs {
			if oldest == "" || l.stamp < s.graphs[oldest].stamp {
				oldest = k
			}
		}
		if l := s.graphs[oldest]; l.exe != nil {
			_ = l.exe.Close()
		}
		delete(s.graphs, oldest)
	}
	s.graphs[key] = low
	return low, low.reason
}

func (s *Session) build(ctx context.Context, specs map[string]tensor.Spec, pins map[string]tensor.Tensor, split bool) (*lowered, error) {
	name := s.model.Graph.Name
	if name == "" {
		name = "onnx"
	}
	g := graph.New(name)
	low := &lowered{g: g, inputs: map[string]graph.Value{}}
	r := s.newRunner()
	r.ctx = ctx
	fold := &eager{r: r, host: s.opts.Backends[len(s.opts.Backends)-1], programs: map[programKey]*eagerProgram{}}
	defer fold.close()
	r.m = &lowering{fold: fold, g: g}
	f := newFrame(nil)
	for _, v := range s.model.Graph.Inputs {
		spec, given := specs[v.Name]
		if !given {
			continue
		}
		if t, ok := pins[v.Name]; ok {
			f.values[v.Name] = knownValue(t.Clone())
			low.pinned = append(low.pinned, v.Name)
			continue
		}
		dims := make([]ops.Size, spec.Rank)
		for i := range dims {
			dims[i] = ops.Const(spec.Dims[i])
		}
		gv := g.Input(v.Name, spec.DType, dims...)
		low.inputs[v.Name] = gv
		f.values[v.Name] = &value{elem: elemOf(spec.DType), spec: spec, node: gv, owner: g}
	}
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	if split {
		r.late = &lateNodes{names: map[string]bool{}}
	}
	outs, err := r.graph(s.graph, f)
	if err != nil {
		return nil, err
	}
	compile := false
	if split {
		if compile = low.leave(r.late, s.graph, f, specs); !compile {
			return nil, r.late.reason // all of it depends on data
		}
	}
	for i, v := range outs {
		name := s.model.Graph.Outputs[i].Name
		if v == nil { // comes later
			continue
		}
		if v.known {
			low.outputs = append(low.outputs, loweredOutput{name: name, fixed: v})
			continue
		}
		g.Output(name, v.node)
		low.outputs = append(low.outputs, loweredOutput{name: name, value: v.node})
		compile = true
	}
	if err := g.Err(); err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	if !compile {
		return low, nil
	}
	low.exe, err = g.Compile(ctx, graph.Options{Backends: s.opts.Backends, Strict: s.opts.Strict, MaxMemory: s.opts.MaxMemory,
		DisablePasses: s.opts.DisablePasses, MaxPlans: 1, Profile: s.opts.Profile, OnNode: s.opts.OnNode})
	if err != nil {
		return nil, fmt.Errorf("onnx: %w", err)
	}
	return low, nil
}

// leave keeps what is needed to run late nodes after the graph, and reports whether they need anything of it.
func (low *lowered) leave(late *lateNodes, g *Graph, f *frame, specs map[string]tensor.Spec) bool {
	low.rest = &Graph{Name: g.Name, Nodes: late.nodes}
	if late.reason != nil {
		low.late = "after a graph, " + strings.TrimPrefix(late.reason.Error(), "onnx: ")
	}
	low.known = map[string]*value{}
	for _, o := range g.Outputs {
		if late.names[o.Name] {
			low.rest.Outputs = append(low.rest.Outputs, o)
		}
	}
	seen := map[string]bool{}
	for _, n := range late.nodes {
		n.reads(func(name string) {
			if _, input := specs[name]; input || late.names[name] || seen[name] {
				return
			}
			seen[name] = true
			switch v := f.get(name); {
			case v == nil: // defined inside the node
			case v.known:
				low.known[name] = v
			default:
				low.g.Output("late: "+name, v.node)
				low.handed = append(low.handed, loweredOutput{name: name, value: v.node, elem: v.elem})
			}
		})
	}
	low.rest.prepareLastUses()
	return len(low.handed) > 0
}

// runLate runs the nodes that the graph does not hold.
func (s *Session) runLate(ctx context.Context, low *lowered, in map[string]Value, out map[string]Value) error {
	f := newFrame(nil)
	for name, v := range in {
		f.values[name] = importValue(v)
	}
	for name, v := range low.known {
		f.values[name] = v
	}
	for _, h := range low.handed {
		v := knownValue(low.exe.Output(h.value))
		v.elem = h.elem
		f.values[h.name] = v
	}
	outs, err := s.eagerRunner(ctx).graph(low.rest, f)
	if err != nil {
		return err
	}
	for i, v := range outs {
		out[low.rest.Outputs[i].Name] = exportValue(v)
	}
	return nil
}

func (s *Session) runGraph(ctx context.Context, low *lowered, in map[string]Value) (map[string]Value, error) {
	s.current = low
	if low.exe != nil {
		for name, gv := range low.inputs {
			if err := low.exe.Bind(gv, in[name].Tensor); err != nil {
				return nil, fmt.Errorf("onnx: %w", err)
			}
		}
		if err := low.exe.Run(ctx); err != nil {
			return nil, fmt.Errorf("onnx: %w", err)
		}
	}
	out := make(map[string]Value, len(low.outputs))
	for _, o := range low.outputs {
		if o.fixed != nil {
			out[o.name] = exportValue(o.fixed)
			continue
		}
		t := low.exe.Output(o.value)
		if !t.IsContiguous() {
			t = t.Clone()
		}
		out[o.name] = Value{Tensor: t}
	}
	if low.rest != nil {
		return out, s.runLate(ctx, low, in, out)
	}
	return out, nil
}

// eagerRunner returns the runner of the eager machine, as new.
func (s *Session) eagerRunner(ctx context.Context) *runner {
	r := s.run
	r.ctx = ctx
	r.used, r.depth, r.frames = 0, 0, nil
	clear(r.made)
	return r
}

func (s *Session) runEager(ctx context.Context, in map[string]Value) (map[string]Value, error) {
	r := s.eagerRunner(ctx)
	f := newFrame(nil)
	for name, v := range in {
		f.values[name] = importValue(v)
	}
	outs, err := r.graph(s.graph, f)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Value, len(outs))
	for i, v := range outs {
		out[s.model.Graph.Outputs[i].Name] = exportValue(v)
	}
	return out, nil
}

// Fork returns a session for another goroutine. Weights and what backends made of them are shared.
func (s *Session) Fork() *Session {
	f := &Session{model: s.model, graph: s.graph, opts: s.opts, graphs: map[string]*lowered{}, variant: map[string]int{}, inits: map[*Tensor]*value{}}
	f.forked, f.closed = true, s.closed
	for t, v := range s.inits {
		copied := *v
		copied.owner = nil
		f.inits[t] = &copied
	}
	f.run = f.newRunner()
	f.run.drop = true
	f.run.m = &eager{r: f.run, host: s.opts.Backends[len(s.opts.Backends)-1], programs: map[programKey]*eagerProgram{}}
	f.markStart()
	return f
}

// Close releases the graphs, and unless the session is a fork the prepared weights and the backend that it opened: close forks first. The model stays open.
// Later runs are errors; a second call does nothing.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, l := range s.graphs {
		if l.exe != nil {
			errs = append(errs, l.exe.Close())
		}
	}
	for _, v := range s.inits {
		if v.cons != nil && !s.forked {
			errs = append(errs, v.cons.Close())
		}
	}
	if e, ok := s.run.m.(*eager); ok {
		errs = append(errs, e.close())
	}
	s.graphs = map[string]*lowered{}
	if s.own != nil {
		errs = append(errs, s.own.Close())
		s.own = nil
	}
	return errors.Join(errs...)
}

// usable returns an error if the session or its model is closed.
func (s *Session) usable() error {
	switch {
	case s.model.closed:
		return errClosed
	case s.closed:
		return errors.New("onnx: the session is closed")
	}
	return nil
}
