package graph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/tensor"
)

// Options say how a graph is compiled. The zero value of every field but Backends is useful.
type Options struct {
	Backends      []backends.Backend // in order of preference; the last must support everything (the CPU)
	Strict        bool               // a product that an earlier backend refuses is an error, not a fallback
	MaxMemory     int64              // bytes above which Compile refuses; 0 is no limit
	DisablePasses []string           // names of passes to leave out, of PassNames, or "all"
	MaxPlans      int                // sets of symbolic sizes for which a plan is kept; 0 means 16
	// OnNode is called after each node with its outputs, for debugging; an error ends the run.
	OnNode func(NodeEvent) error
	// Progress is called between nodes with how far the run is.
	Progress func(done, total int)
	// Profile measures every node.
	Profile bool
}

// NodeEvent is what OnNode sees.
type NodeEvent struct {
	Name    string
	Fused   []string // names of nodes as built that passes made part of this one, which has the name of the last
	Op      ops.Op
	Backend string
	In, Out []tensor.Tensor // valid during the call
	Took    time.Duration
}

// Memory says what a graph needs, in bytes.
type Memory struct {
	Weights     int64 `json:"weights"`     // constants as they lie in their files
	Prepared    int64 `json:"prepared"`    // forms of them that backends have made
	State       int64 `json:"kv"`          // inputs that are updated in place, such as a KV cache
	Activations int64 `json:"activations"` // the arena
	LowerBound  int64 `json:"lower_bound"` // the most bytes of activations that live at one time
	Workspace   int64 `json:"workspace"`   // scratch memory of the largest plan, a bound, of the backends that give one (backends.Sized)
	Total       int64 `json:"total"`
}

// Executable is a compiled graph with its memory. One goroutine at a time uses it; Fork gives another for another goroutine.
type Executable struct {
	g        *Graph // after the passes
	source   *Graph
	opts     Options
	passes   []PassResult
	sizes    [MaxSymbols]int
	bound    []tensor.Tensor
	bindings uint64
	arena    *tensor.Buffer
	staging  map[int]*tensor.Buffer
	plans    map[[MaxSymbols]int]*plan
	current  *plan
	clock    uint64
	start    []backends.Stats
	profile  *profile
}

// Compile runs the passes, plans memory for the largest sizes, and prepares the weights for their backends.
func (g *Graph) Compile(ctx context.Context, opts Options) (_ *Executable, err error) {
	defer mem.Caught(mem.Catch(), &err) // weights may lie in mapped files
	if g.err != nil {
		return nil, g.err
	}
	if len(opts.Backends) == 0 {
		return nil, fmt.Errorf("graph %s: no backend given: Options.Backends is empty; backends.Open(\"cpu\") opens one, with import _ \"github.com/tessera-go/tessera/backends/cpu\"", g.name)
	}
	if slices.Contains(opts.Backends, nil) {
		return nil, fmt.Errorf("graph %s: a backend is nil", g.name)
	}
	if len(g.outputs) == 0 {
		return nil, fmt.Errorf("graph %s: no output declared", g.name)
	}
	if opts.MaxPlans <= 0 {
		opts.MaxPlans = 16
	}
	optimized := g.clone()
	results, err := optimized.runPasses(&opts)
	if err != nil {
		return nil, err
	}
	x := &Executable{g: optimized, source: g, opts: opts, passes: results}
	if err := x.init(ctx); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *Executable) init(ctx context.Context) error {
	g := x.g
	x.plans = map[[MaxSymbols]int]*plan{}
	x.bound = make([]tensor.Tensor, len(g.values))
	x.staging = map[int]*tensor.Buffer{}
	for i, s := range g.symbols {
		x.sizes[i] = s.max
	}
	for _, b := range x.opts.Backends {
		x.start = append(x.start, b.Stats())
	}
	if x.opts.Profile {
		x.profile = newProfile()
	}
	largest, err := x.newPlan(ctx, x.sizes)
	if err != nil {
		return err
	}
	if err := x.checkMemory(largest, "at least "); err != nil { // before anything is allocated: what backends make of the weights is not known yet
		return err
	}
	if err := x.reserve(largest.bytes); err != nil {
		return err
	}
	if err := x.compile(ctx, largest); err != nil {
		return errors.Join(err, largest.close(), x.arena.Close())
	}
	x.keep(largest)
	if err := x.checkMemory(largest, ""); err != nil { // with the forms of the weights that the backends have made
		return errors.Join(err, x.Close())
	}
	return nil
}

// checkMemory compares what a plan takes, which is as much or, as the word says, at least as much, with the limit.
func (x *Executable) checkMemory(p *plan, least string) error {
	if need := x.memory(p).Total; x.opts.MaxMemory > 0 && need > x.opts.MaxMemory {
		return fmt.Errorf("graph %s: needs %s%d bytes of memory, the limit is %d", x.g.name, least, need, x.opts.MaxMemory)
	}
	return nil
}

func (x *Executable) reserve(bytes int) error {
	if x.arena != nil && len(x.arena.Bytes()) >= bytes {
		return nil
	}
	buf, err := tensor.MapBuffer(bytes)
	if err != nil {
		return fmt.Errorf("graph %s: activations: %w", x.g.name, err)
	}
	old := x.arena
	x.arena = buf
	x.bindings++
	if old != nil {
		return old.Close()
	}
	return nil
}

// keep stores a plan and drops the one that was used longest ago where there are too many.
func (x *Executable) keep(p *plan) {
	if len(x.plans) >= x.opts.MaxPlans {
		var oldest *plan
		for _, q := range x.plans {
			if oldest == nil || q.stamp < oldest.stamp {
				oldest = q
			}
		}
		delete(x.plans, oldest.sizes)
		_ = oldest.close()
	}
	x.plans[p.sizes] = p
}

// Fork returns an executable of the same graph that shares the weights, for another goroutine. Nothing is bound in it.
func (x *Executable) Fork(ctx context.Context) (_ *Executable, err error) {
	defer mem.Caught(mem.Catch(), &err)
	f := &Executable{g: x.g, source: x.source, opts: x.opts, passes: x.passes}
	if err := f.init(ctx); err != nil {
		return nil, err
	}
	return f, nil
}

// SetSize gives a symbolic size its value, for sizes that no input has as a dimension.
func (x *Executable) SetSize(name string, n int) error {
	for i, s := range x.g.symbols {
		if s.name != name {
			continue
		}
		if n < 0 || n > s.max {
			return fmt.Errorf("graph %s: %s = %d, at most %d was planned", x.g.name, name, n, s.max)
		}
		x.sizes[i] = n
		return nil
	}
	return fmt.Errorf("graph %s: no symbolic size %q", x.g.name, name)
}

// Bind gives an input its tensor, or an output the memory that its result shall have. The tensor's memory is used as it is, until
// another is bound; what lies in it is read when the graph runs. The result of an earlier run of this executable may be bound: it
// is copied. Symbolic sizes follow from the dimensions of the inputs.
//
// The error says what does not fit: the element type, the rank, a dimension that is fixed, or that is larger than its symbol's most; for an
// output also memory that is read-only or not contiguous. What was bound before then stays. An output that shares memory with an input, or with
// another output, is an error of [Executable.Run].
func (x *Executable) Bind(v Value, t tensor.Tensor) (err error) {
	defer mem.Caught(mem.Catch(), &err)
	if v.id == 0 || v.g != x.source {
		return fmt.Errorf("graph %s: the value bound is not of this graph", x.g.name)
	}
	if x.plans == nil {
		return x.closed()
	}
	id := v.index()
	val := &x.g.values[id]
	isInput := val.dims != nil || x.isInput(id)
	if !isInput && !x.isOutput(id) {
		return fmt.Errorf("graph %s: %q is neither an input nor an output", x.g.name, val.name)
	}
	if t.DType != val.spec.DType || t.Rank != val.spec.Rank {
		return fmt.Errorf("graph %s: %q is %v, %v was bound", x.g.name, val.name, val.spec, t.Spec)
	}
	if err := t.CheckMemory(); err != nil {
		return fmt.Errorf("graph %s: %q: %w", x.g.name, val.name, err)
	}
	if t.Buf == nil { // of no elements
		t.Buf = tensor.NewBuffer(0)
	}
	if !isInput {
		return x.bindOutput(id, t)
	}
	sizes := x.sizes
	for j, d := range val.dims {
		n := t.Dims[j]
		if d.Sym == "" {
			if n != d.N {
				return fmt.Errorf("graph %s: dimension %d of %q is %d, %d was bound", x.g.name, j, val.name, d.N, n)
			}
			continue
		}
		for i, s := range x.g.symbols {
			if s.name != d.Sym {
				continue
			}
			if n-d.N < 0 || n-d.N > s.max {
				return fmt.Errorf("graph %s: dimension %d of %q is %d, at most %d was planned", x.g.name, j, val.name, n, s.max+d.N)
			}
			sizes[i] = n - d.N
		}
	}
	if x.arena != nil && t.Buf == x.arena {
		copied, err := x.stage(id, t)
		if err != nil {
			return err
		}
		t = copied
	}
	x.sizes = sizes
	if x.bound[id] != t {
		x.bound[id] = t
		x.bindings++
	}
	return nil
}

// stage copies a tensor out of the arena, in which the next run would overwrite it.
func (x *Executable) stage(id int, t tensor.Tensor) (tensor.Tensor, error) {
	buf := x.staging[id]
	if buf == nil {
		buf = tensor.NewBuffer(x.g.values[id].spec.Bytes())
		x.staging[id] = buf
	}
	copied, err := tensor.At(buf, 0, t.Spec)
	if err != nil {
		return t, err
	}
	return copied, tensor.Copy(copied, t)
}

func (x *Executable) bindOutput(id int, t tensor.Tensor) error {
	if t.Buf.ReadOnly() {
		return fmt.Errorf("graph %s: output %q: %w", x.g.name, x.g.values[id].name, tensor.ErrReadOnly)
	}
	if !t.IsContiguous() {
		return fmt.Errorf("graph %s: output %q needs contiguous memory, %v was bound", x.g.name, x.g.values[id].name, t)
	}
	id = x.outputIndex(id)
	if x.g.values[id].producer < 0 || x.g.values[id].constant != nil {
		return fmt.Errorf("graph %s: output %q is not computed, its memory cannot be chosen", x.g.name, x.g.values[id].name)
	}
	first := !x.bound[id].Valid()
	x.bound[id] = t
	x.bindings++
	if first { // memory plans change: the arena no longer holds it
		for key, p := range x.plans {
			delete(x.plans, key)
			if err := p.close(); err != nil {
				return err
			}
		}
		x.current = nil
	}
	return nil
}

// outputIndex follows an output of the source graph to the value that the passes left in its place.
func (x *Executable) outputIndex(id int) int {
	for i, o := range x.source.outputs {
		if o.value == id {
			return x.g.outputs[i].value
		}
	}
	return id
}

func (x *Executable) outputBound(id int) bool { return x.bound[id].Valid() && !x.isInput(id) }

func (x *Executable) isInput(id int) bool {
	for _, i := range x.g.inputs {
		if i == id {
			return true
		}
	}
	return false
}

func (x *Executable) isOutput(id int) bool {
	for _, o := range x.source.outputs {
		if o.value == id {
			return true
		}
	}
	return false
}

func (x *Executable) closed() error {
	return fmt.Errorf("graph %s: the executable is closed", x.g.name)
}

// prepare makes the plan for the current sizes current.
func (x *Executable) prepare(ctx context.Context) (*plan, error) {
	if x.plans == nil {
		return nil, x.closed()
	}
	p := x.current
	if p == nil || p.sizes != x.sizes {
		p = x.plans[x.sizes]
	}
	if p == nil {
		var err error
		if p, err = x.newPlan(ctx, x.sizes); err != nil {
			return nil, err
		}
		if err = x.reserve(p.bytes); err != nil {
			return nil, err
		}
		if err = x.compile(ctx, p); err != nil {
			_ = p.close()
			return nil, err
		}
		x.keep(p)
	}
	x.clock++
	p.stamp = x.clock
	x.current = p
	if p.bindings != x.bindings || p.bindings == 0 {
		if err := x.checkBound(p); err != nil {
			return nil, err
		}
		if err := p.attach(x); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (x *Executable) checkBound(p *plan) error {
	for v, w := range p.where {
		if w != bound || !x.bound[v].Valid() {
			continue
		}
		if x.bound[v].Spec != p.values[v].Spec {
			return fmt.Errorf("graph %s: %q is %v for %s, %v was bound", x.g.name, p.values[v].Name, p.values[v].Spec, p.sizesText(x.g), x.bound[v].Spec)
		}
	}
	return nil
}

// Run computes the outputs from what is bound. It obeys the context, also within a node. After the first run for given sizes it
// allocates nothing. A mapped file of weights or inputs that is cut short while the graph runs is an error.
func (x *Executable) Run(ctx context.Context) (err error) {
	defer mem.Caught(mem.Catch(), &err)
	p, err := x.prepare(ctx)
	if err != nil {
		return err
	}
	if x.opts.OnNode != nil || x.opts.Progress != nil || x.profile != nil {
		return x.runWatched(ctx, p)
	}
	for i := range p.segments {
		s := &p.segments[i]
		if err := s.program.Run(ctx, p.frame, 0, s.last-s.first); err != nil {
			return x.runError(s, err)
		}
	}
	return nil
}

func (x *Executable) runError(s *segment, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("graph %s: backend %s: %w", x.g.name, x.opts.Backends[s.backend].Name(), err)
}

func (x *Executable) runWatched(ctx context.Context, p *plan) error {
	timed := x.profile != nil || x.opts.OnNode != nil
	for i := range p.segments {
		s := &p.segments[i]
		b := x.opts.Backends[s.backend]
		for n := s.first; n < s.last; n++ {
			node := &p.nodes[n]
			var start time.Time
			var took time.Duration
			simulated := 0.0
			if x.profile != nil {
				simulated = b.Stats().SimulatedSeconds
			}
			if timed {
				start = time.Now()
			}
			if err := s.program.Run(ctx, p.frame, n-s.first, n-s.first+1); err != nil {
				return x.runError(s, err)
			}
			if timed {
				took = time.Since(start)
			}
			if x.profile != nil {
				x.profile.add(p, node, x.g.nodes[p.source[n]].fused, b.Name(), start, took, b.Stats().SimulatedSeconds-simulated)
			}
			if x.opts.Progress != nil {
				x.opts.Progress(n+1, len(p.nodes))
			}
			if x.opts.OnNode != nil {
				event := NodeEvent{Name: node.Name, Fused: x.g.nodes[p.source[n]].fused, Op: node.Op, Backend: b.Name(), Took: took}
				for _, v := range node.In {
					if v < 0 {
						event.In = append(event.In, tensor.Tensor{})
						continue
					}
					event.In = append(event.In, p.frame[v])
				}
				for _, v := range node.Out {
					event.Out = append(event.Out, p.frame[v])
				}
				if err := x.opts.OnNode(event); err != nil {
					return fmt.Errorf("graph %s: after node %q: %w", x.g.name, node.Name, err)
				}
			}
			if x.current != p { // else what follows would be read from memory that is given back
				return fmt.Errorf("graph %s: after node %q: the executable was closed or run for other sizes in the middle of a run", x.g.name, node.Name)
			}
		}
	}
	return nil
}

// Output returns the tensor of an output of the last run. It is valid until the next run. Before the first, and for a value of another graph, it
// is the zero Tensor.
func (x *Executable) Output(v Value) tensor.Tensor {
	if x.current == nil || v.id == 0 || v.g != x.source {
		return tensor.Tensor{}
	}
	return x.current.frame[x.outputIndex(v.index())]
}

// Passes returns what each pass did.
func (x *Executable) Passes() []PassResult { return x.passes }

// Placements says where every node runs for the current sizes, and why.
func (x *Executable) Placements() []Placement {
	p := x.current
	if p == nil || p.sizes != x.sizes {
		p = x.plans[x.sizes]
	}
	if p == nil {
		return nil
	}
	return p.choices
}

// PlacementsAt says where every node would run for the given symbolic sizes, and why; the others have their largest. Nothing is compiled.
func (x *Executable) PlacementsAt(ctx context.Context, sizes map[string]int) ([]Placement, error) {
	var at [MaxSymbols]int
	known := 0
	for i, s := range x.g.symbols {
		at[i] = s.max
		if n, ok := sizes[s.name]; ok {
			if n < 0 || n > s.max {
				return nil, fmt.Errorf("graph %s: %s = %d, at most %d was planned", x.g.name, s.name, n, s.max)
			}
			at[i] = n
			known++
		}
	}
	if known < len(sizes) {
		if len(x.g.symbols) == 0 {
			return nil, fmt.Errorf("graph %s: sizes %v; it has no symbolic sizes", x.g.name, sizes)
		}
		return nil, fmt.Errorf("graph %s: sizes %v; there are: %s", x.g.name, sizes, strings.Join(slices.Sorted(maps.Keys(x.Symbols())), ", "))
	}
	p, err := x.newPlan(ctx, at)
	if err != nil {
		return nil, err
	}
	return p.choices, nil
}

// Symbols returns the symbolic sizes with their largest values.
func (x *Executable) Symbols() map[string]int {
	most := make(map[string]int, len(x.g.symbols))
	for _, s := range x.g.symbols {
		most[s.name] = s.max
	}
	return most
}

// Memory returns what the graph needs for the largest sizes.
func (x *Executable) Memory() Memory {
	var most *plan
	for _, p := range x.plans {
		if most == nil || p.bytes > most.bytes {
			most = p
		}
	}
	if most == nil {
		return Memory{}
	}
	return x.memory(most)
}

func (x *Executable) memory(p *plan) Memory {
	m := Memory{Activations: int64(p.bytes), LowerBound: int64(p.live)}
	read := make([]bool, len(p.values))
	updated := make([]bool, len(p.values))
	for _, n := range p.nodes {
		for _, v := range n.In {
			if v >= 0 {
				read[p.root[v]] = true
			}
		}
		if _, ok := n.Op.(ops.Updater); ok {
			updated[p.root[n.In[0]]] = true
		}
	}
	seen := map[*ops.Constant]bool{}
	for i := range p.values {
		v := &p.values[i]
		switch {
		case v.Const != nil && read[i] && !seen[v.Const]:
			seen[v.Const] = true
			m.Weights += int64(v.Const.Tensor.Extent())
			m.Prepared += int64(v.Const.PreparedBytes())
		case updated[i] && p.where[i] == bound:
			m.State += int64(v.Spec.Bytes())
		}
	}
	var scratch backends.Workspace
	for _, s := range p.segments {
		if w, ok := s.program.(backends.Sized); ok {
			scratch.Add(w.Workspace())
		}
	}
	m.Workspace = scratch.Bytes()
	m.Total = m.Weights + m.Prepared + m.State + m.Activations + m.Workspace
	return m
}

// Close releases the memory and the programs. Weights stay: they belong to the graph.
func (x *Executable) Close() error {
	var errs []error
	for _, p := range x.plans {
		errs = append(errs, p.close())
	}
	x.plans, x.current = nil, nil
	if x.arena != nil {
		errs = append(errs, x.arena.Close())
		x.arena = nil
	}
	return errors.Join(errs...)
}
