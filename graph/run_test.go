package graph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/reference"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// double is the reference backend with what the tests of the executor look at.
type double struct {
	*reference.Backend
	compiled  atomic.Int64 // nodes
	prepared  atomic.Int64 // weights
	simulated atomic.Int64 // nanoseconds
	node      func(ctx context.Context, n *ops.Node) error
	bytes     int // of a prepared weight
}

type formBytes int

func (f formBytes) Bytes() int { return int(f) }

func (d *double) Name() string { return "double" }

func (d *double) Stats() backends.Stats {
	return backends.Stats{SimulatedSeconds: float64(d.simulated.Load()) * 1e-9}
}

func (d *double) Compile(ctx context.Context, part *ops.Part) (backends.Program, error) {
	p, err := d.Backend.Compile(ctx, part)
	if err != nil {
		return nil, err
	}
	d.compiled.Add(int64(len(part.Nodes)))
	for _, n := range part.Nodes {
		for _, v := range n.In {
			if v < 0 || part.Values[v].Const == nil {
				continue
			}
			_, err := part.Values[v].Const.Prepare("double", func() (any, error) {
				d.prepared.Add(1)
				return formBytes(d.bytes), nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return &doubleProgram{p, d, part}, nil
}

type doubleProgram struct {
	backends.Program
	d    *double
	part *ops.Part
}

func (p *doubleProgram) Run(ctx context.Context, frame []tensor.Tensor, first, last int) error {
	for i := first; i < last; i++ {
		n := &p.part.Nodes[i]
		if p.d.node != nil {
			if err := p.d.node(ctx, n); err != nil {
				return fmt.Errorf("node %q, %s: %w", n.Name, ops.Describe(n.Op, p.part.Call(n).In), err)
			}
		}
		if err := p.Program.Run(ctx, frame, i, i+1); err != nil {
			return err
		}
	}
	return nil
}

func newDouble() *double { return &double{Backend: reference.New(), bytes: 100} }

// layered is a chain of products with one weight each.
func layered(layers int) (g *Graph, x, y Value) {
	g = New("layered")
	x = g.Input("x", tensor.F32, g.Symbol("n", 8), ops.Const(4))
	y = x
	for i := range layers {
		w := tensor.New(tensor.F32, 4, 4)
		for j := range 4 {
			tensor.Data[float32](w)[5*j] = 2
		}
		y = g.Apply(fmt.Sprint("layer", i), matmul.Op{}, y, g.Constant(fmt.Sprint("w", i), w))
	}
	g.Output("y", y)
	return g, x, y
}

func ones(n int) tensor.Tensor {
	t := tensor.New(tensor.F32, n, 4)
	for i := range tensor.Data[float32](t) {
		tensor.Data[float32](t)[i] = 1
	}
	return t
}

// A callback that closes the executable, or runs it for other sizes, ends the run, which would go on in memory that is given back.
func TestChangeWithinARun(t *testing.T) {
	ctx := context.Background()
	for name, change := range map[string]func(exe *Executable) error{
		"closed": (*Executable).Close,
		"run": func(exe *Executable) error { // for other sizes
			exe.opts.OnNode, exe.opts.Progress = nil, nil
			return errors.Join(exe.SetSize("n", 3), exe.Bind(exe.source.Inputs()[0], ones(3)), exe.Run(ctx))
		},
	} {
		for _, hook := range []string{"node", "progress"} {
			g, x, _ := layered(5)
			var exe *Executable
			calls := 0
			o := Options{Backends: []backends.Backend{reference.New()}}
			if hook == "node" {
				o.OnNode = func(NodeEvent) error { calls++; return change(exe) }
			} else {
				o.Progress = func(int, int) { calls++; require.NoError(t, change(exe)) }
			}
			var err error
			exe, err = g.Compile(ctx, o)
			require.NoError(t, err)
			require.NoError(t, exe.SetSize("n", 8))
			require.NoError(t, exe.Bind(x, ones(8)))
			require.ErrorContains(t, exe.Run(ctx), "in the middle of a run", "%s by %s", name, hook)
			require.Equal(t, 1, calls)
			require.NoError(t, exe.Close())
		}
	}
}

// TestCancelWithinANode: the node that runs sees the context end, nothing behind it runs, and the next run is right.
func TestCancelWithinANode(t *testing.T) {
	d := newDouble()
	var ran []string
	var cancel context.CancelFunc
	d.node = func(ctx context.Context, n *ops.Node) error {
		ran = append(ran, n.Name)
		if n.Name == "layer1" {
			cancel()
			<-ctx.Done() // a long node looks at the context itself
			return ctx.Err()
		}
		return nil
	}
	for _, watched := range []bool{false, true} {
		ran = nil
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		cancel = stop
		g, x, y := layered(4)
		o := Options{Backends: []backends.Backend{d}}
		if watched {
			o.Progress = func(int, int) {}
		}
		exe, err := g.Compile(context.Background(), o)
		require.NoError(t, err)
		require.NoError(t, exe.Bind(x, ones(3)))
		require.ErrorIs(t, exe.Run(ctx), context.Canceled)
		require.Equal(t, []string{"layer0", "layer1"}, ran)
		node := d.node
		d.node = nil
		require.NoError(t, exe.Run(context.Background()))
		out := exe.Output(y)
		require.Equal(t, 16.0, out.Floats()[11])
		d.node = node
		require.NoError(t, exe.Close())
	}
}

// TestProgressAndNodeCallback: both see every node once and in order, and the callback sees the operands and results.
func TestProgressAndNodeCallback(t *testing.T) {
	g, x, y := layered(5)
	var steps []int
	var sums []float64
	exe, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{newDouble()},
		Progress: func(done, total int) {
			require.Equal(t, 5, total)
			steps = append(steps, done)
		},
		OnNode: func(e NodeEvent) error {
			require.Equal(t, "double", e.Backend)
			require.Equal(t, e.In[0].Floats()[0]*2, e.Out[0].Floats()[0])
			sums = append(sums, e.Out[0].Floats()[0])
			return nil
		}})
	require.NoError(t, err)
	defer exe.Close()
	require.NoError(t, exe.Bind(x, ones(2)))
	require.NoError(t, exe.Run(context.Background()))
	require.Equal(t, []int{1, 2, 3, 4, 5}, steps)
	require.Equal(t, []float64{2, 4, 8, 16, 32}, sums)
	out := exe.Output(y)
	require.Equal(t, 32.0, out.Floats()[7])
}

// TestFailureNamesAll: graph, backend, node, operation, shapes and the cause.
func TestFailureNamesAll(t *testing.T) {
	d := newDouble()
	cause := errors.New("the belt has slipped")
	d.node = func(_ context.Context, n *ops.Node) error {
		if n.Name == "layer2" {
			return cause
		}
		return nil
	}
	for _, profile := range []bool{false, true} {
		g, x, _ := layered(4)
		exe, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{d}, Profile: profile})
		require.NoError(t, err)
		require.NoError(t, exe.Bind(x, ones(3)))
		err = exe.Run(context.Background())
		require.ErrorIs(t, err, cause)
		for _, word := range []string{"graph layered", "backend double", `node "layer2"`, "matmul", "f32[3 4]", "f32[4 4]", "slipped"} {
			require.ErrorContains(t, err, word)
		}
	}
}

// TestPlanCacheIsBounded: as many plans as asked for, the ones used last, and no compilation where sizes come again.
func TestPlanCacheIsBounded(t *testing.T) {
	d := newDouble()
	g, x, y := layered(1)
	exe, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{d}, MaxPlans: 3})
	require.NoError(t, err)
	defer exe.Close()
	run := func(n int) int64 {
		before := d.compiled.Load()
		require.NoError(t, exe.Bind(x, ones(n)))
		require.NoError(t, exe.Run(context.Background()))
		out := exe.Output(y)
		require.Equal(t, []int{n, 4}, out.Shape())
		require.LessOrEqual(t, len(exe.plans), 3)
		return d.compiled.Load() - before
	}
	require.Zero(t, run(8), "compiled with the graph")
	require.EqualValues(t, 1, run(1))
	require.EqualValues(t, 1, run(2))
	for range 20 { // decoding: no recompilation per token
		require.Zero(t, run(1))
		require.Zero(t, run(2))
	}
	require.EqualValues(t, 1, run(3)) // in the place of 8, which was used longest ago
	require.Zero(t, run(1))
	require.Zero(t, run(2))
	require.EqualValues(t, 1, run(8))
	require.EqualValues(t, 1, d.prepared.Load(), "the weight is prepared once")
}

// TestSharedWeightsInGoroutines: executables of one graph, and of two graphs with one constant, prepare it once and do not disturb each other.
func TestSharedWeightsInGoroutines(t *testing.T) {
	d := newDouble()
	g, x, y := layered(6)
	first, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{d}})
	require.NoError(t, err)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			exe, err := first.Fork(context.Background())
			for n := 1; n <= 8 && err == nil; n++ {
				in := ones(n)
				for j := range tensor.Data[float32](in) {
					tensor.Data[float32](in)[j] = float32(i + 1)
				}
				if err = exe.Bind(x, in); err == nil {
					err = exe.Run(context.Background())
				}
				out := exe.Output(y)
				for _, v := range out.Floats() {
					if v != float64(64*(i+1)) {
						err = fmt.Errorf("goroutine %d, %d rows: %v", i, n, v)
					}
				}
			}
			errs[i] = errors.Join(err, exe.Close())
		}()
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 6, d.prepared.Load())
	require.NoError(t, first.Close())

	c := ops.NewConstant(tensor.New(tensor.F32, 4, 4))
	before := d.prepared.Load()
	for range 2 {
		h := New("h")
		in := h.Input("x", tensor.F32, ops.Const(1), ops.Const(4))
		h.Output("y", h.Apply("p", matmul.Op{}, in, h.SharedConstant("w", c)))
		exe, err := h.Compile(context.Background(), Options{Backends: []backends.Backend{d}})
		require.NoError(t, err)
		require.NoError(t, exe.Close())
	}
	require.EqualValues(t, before+1, d.prepared.Load())
}

// TestMaxMemoryCountsPreparedWeights: what a backend makes of the weights counts too.
func TestMaxMemoryCountsPreparedWeights(t *testing.T) {
	d := newDouble()
	d.bytes = 5000
	g, _, _ := layered(2)
	o := Options{Backends: []backends.Backend{d}}
	exe, err := g.Compile(context.Background(), o)
	require.NoError(t, err)
	m := exe.Memory()
	require.EqualValues(t, 10000, m.Prepared)
	require.EqualValues(t, 2*4*4*4, m.Weights)
	require.Equal(t, m.Weights+m.Prepared+m.State+m.Activations+m.Workspace, m.Total)
	require.NoError(t, exe.Close())
	g, _, _ = layered(2)
	o.MaxMemory = m.Total
	exe, err = g.Compile(context.Background(), o)
	require.NoError(t, err)
	require.NoError(t, exe.Close())
	g, _, _ = layered(2)
	o.MaxMemory--
	_, err = g.Compile(context.Background(), o)
	require.ErrorContains(t, err, fmt.Sprintf("needs %d bytes", m.Total))
	// Far below, nothing is prepared: what is known then is no more than the least.
	g, _, _ = layered(2)
	o.MaxMemory = 10
	_, err = g.Compile(context.Background(), o)
	require.ErrorContains(t, err, fmt.Sprintf("needs at least %d bytes", m.Total-m.Prepared))
}

// TestTraceHasSimulatedTimeApart: simulated time is a process of its own, marked simulated, and measured time another.
func TestTraceHasSimulatedTimeApart(t *testing.T) {
	d := newDouble()
	d.node = func(_ context.Context, n *ops.Node) error {
		if n.Name == "layer1" {
			d.simulated.Add(int64(3 * time.Millisecond))
		}
		return nil
	}
	g, x, _ := layered(3)
	exe, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{d}, Profile: true})
	require.NoError(t, err)
	defer exe.Close()
	require.NoError(t, exe.Bind(x, ones(1)))
	require.NoError(t, exe.Run(context.Background()))
	var text strings.Builder
	require.NoError(t, exe.WriteTrace(&text))
	var trace struct {
		TraceEvents []traceEvent
	}
	require.NoError(t, json.Unmarshal([]byte(text.String()), &trace))
	processes := map[int]string{}
	measured, simulated := 0, 0
	for _, e := range trace.TraceEvents {
		switch {
		case e.Ph == "M":
			processes[e.Pid] = e.Args["name"].(string)
		case strings.Contains(processes[e.Pid], "simulated"):
			simulated++
			require.Equal(t, "layer1", e.Name)
			require.InDelta(t, 3000, e.Dur, 1e-6)
			require.Contains(t, e.Args["backend"], "simulated")
		default:
			measured++
			require.Contains(t, processes[e.Pid], "measured")
		}
	}
	require.Equal(t, 3, measured)
	require.Equal(t, 1, simulated)
	for _, n := range exe.Profile() {
		require.Equal(t, n.Name == "layer1", n.Simulated > 0)
		require.EqualValues(t, 2*4*4, n.Flops)
		require.EqualValues(t, 4*(4+16+4), n.Bytes)
	}
}

// TestPlacementsAt: where nodes would run for other sizes, without a plan for them.
func TestPlacementsAt(t *testing.T) {
	d := newDouble()
	g, _, _ := layered(2)
	tall := &tallBackend{reference.New()}
	exe, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{tall, d}})
	require.NoError(t, err)
	defer exe.Close()
	require.Equal(t, "tall", exe.Placements()[0].Backend)
	require.EqualValues(t, 2*8*4*4, exe.Placements()[0].Flops)
	placed, err := exe.PlacementsAt(context.Background(), map[string]int{"n": 2})
	require.NoError(t, err)
	require.Equal(t, "double", placed[0].Backend)
	require.Contains(t, placed[0].Reason, "tall: 2 rows")
	require.Len(t, exe.plans, 1)
	for _, wrong := range []map[string]int{{"m": 1}, {"n": 9}, {"n": -1}} {
		_, err = exe.PlacementsAt(context.Background(), wrong)
		require.Error(t, err)
	}
	require.Equal(t, map[string]int{"n": 8}, exe.Symbols())
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = exe.PlacementsAt(ended, map[string]int{"n": 2})
	require.ErrorIs(t, err, context.Canceled)
}

type tallBackend struct{ *reference.Backend }

func (*tallBackend) Name() string { return "tall" }
func (*tallBackend) Supports(c ops.Call) backends.Verdict {
	if c.In[0].Dims[0] < 4 {
		return backends.No("%d rows, 4 are right", c.In[0].Dims[0])
	}
	return backends.Yes("")
}

// nothing is a backend whose programs do nothing.
type nothing struct{ *reference.Backend }

func (nothing) Compile(context.Context, *ops.Part) (backends.Program, error) { return idle{}, nil }

type idle struct{}

func (idle) Run(ctx context.Context, _ []tensor.Tensor, first, last int) error {
	for i := first; i < last; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
func (idle) Close() error { return nil }

// BenchmarkOverhead is what the executor costs a node when the kernels do nothing: as it runs usually, with other memory bound before each run, and node by
// node as a profile or a callback asks for.
func BenchmarkOverhead(b *testing.B) {
	const nodes = 1000
	for _, c := range []struct {
		name   string
		rebind bool
		o      Options
	}{{"plain", false, Options{}}, {"rebound", true, Options{}}, {"watched", false, Options{Progress: func(int, int) {}}}} {
		b.Run(c.name, func(b *testing.B) {
			g, x, _ := layered(nodes)
			c.o.Backends = []backends.Backend{nothing{reference.New()}}
			exe, err := g.Compile(context.Background(), c.o)
			require.NoError(b, err)
			defer exe.Close()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			in := [2]tensor.Tensor{ones(1), ones(1)}
			require.NoError(b, exe.Bind(x, in[0]))
			require.NoError(b, exe.Run(ctx))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if c.rebind {
					if err := exe.Bind(x, in[i%2]); err != nil {
						b.Fatal(err)
					}
				}
				if err := exe.Run(ctx); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/nodes, "ns/node")
		})
	}
}

// TestSteadyStateAllocatesNothing: neither repeated runs nor rebinding allocate.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	g, x, _ := layered(20)
	exe, err := g.Compile(context.Background(), Options{Backends: []backends.Backend{nothing{reference.New()}}})
	require.NoError(t, err)
	defer exe.Close()
	in := [2]tensor.Tensor{ones(1), ones(3)}
	i := 0
	step := func() {
		if exe.Bind(x, in[i%2]) != nil || exe.Run(context.Background()) != nil {
			panic("failed")
		}
		i++
	}
	step()
	step()
	require.Zero(t, testing.AllocsPerRun(100, step))
}
