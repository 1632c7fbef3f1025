package graph

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/reference"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// Ops of the tests' own: the graph must know nothing of particular ones.

type addOp struct{}

func (addOp) Name() string { return "add" }
func (addOp) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	if in[0] != in[1] {
		return nil, fmt.Errorf("add: %v and %v differ", in[0], in[1])
	}
	return in[:1], nil
}
func (addOp) Reference(out, in []tensor.Tensor) error {
	a, b := in[0].Floats(), in[1].Floats()
	for i := range a {
		a[i] += b[i]
	}
	out[0].SetFloats(a)
	return nil
}
func (addOp) InPlace(int) bool { return true }

type flattenOp struct{}

func (flattenOp) Name() string { return "flatten" }
func (flattenOp) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	return []tensor.Spec{tensor.MakeSpec(in[0].DType, in[0].Elems())}, nil
}
func (flattenOp) View(in tensor.Tensor) (tensor.Tensor, error) { return in.Reshape(in.Elems()) }
func (flattenOp) Reference(out, in []tensor.Tensor) error {
	out[0].SetFloats(in[0].Floats())
	return nil
}

type headOp struct{ n ops.Size } // the first n rows

func (headOp) Name() string { return "head" }
func (o headOp) Resolve(s ops.Sizes) (ops.Op, error) {
	n, err := o.n.Value(s)
	return headOp{ops.Const(n)}, err
}
func (o headOp) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	s := in[0]
	s.Dims[0] = o.n.N
	return []tensor.Spec{s}, nil
}
func (o headOp) View(in tensor.Tensor) (tensor.Tensor, error) { return in.Slice(0, 0, o.n.N, 1) }
func (o headOp) Reference(out, in []tensor.Tensor) error      { panic("a view is not computed") }

type setRowOp struct{ row int } // input 0 gets input 1 as a row

func (setRowOp) Name() string { return "set_row" }
func (setRowOp) Updates()     {}
func (setRowOp) Infer(in []tensor.Spec) ([]tensor.Spec, error) {
	return in[:1], nil
}
func (o setRowOp) Reference(out, in []tensor.Tensor) error {
	row, err := out[0].Slice(0, o.row, o.row+1, 1)
	if err != nil {
		return err
	}
	return tensor.Copy(row, in[1])
}

func options() Options { return Options{Backends: []backends.Backend{reference.New()}} }

func random(rng *rand.Rand, dims ...int) tensor.Tensor {
	t := tensor.New(tensor.F32, dims...)
	for i := range tensor.Data[float32](t) {
		tensor.Data[float32](t)[i] = float32(rng.IntN(9) - 4)
	}
	return t
}

func TestSymbolicSizes(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(1, 2))
	g := New("mlp")
	n := g.Symbol("n", 5)
	x := g.Input("x", tensor.F32, n, ops.Const(3))
	w := random(rng, 3, 4)
	y := g.Apply("fc", matmul.Op{}, x, g.Constant("w", w))
	y = g.Apply("twice", addOp{}, y, y)
	g.Output("y", y)
	require.Equal(t, "mlp", g.Name())
	require.Equal(t, 2, g.Nodes())
	require.Equal(t, []Value{x}, g.Inputs())
	require.Equal(t, []Value{y}, g.Outputs())
	require.Equal(t, []Value{x, y, {}}, []Value{g.Lookup("x"), g.Lookup("y"), g.Lookup("fc")})
	exe, err := g.Compile(ctx, options())
	require.NoError(t, err)
	defer exe.Close()
	for _, rows := range []int{5, 1, 0, 3, 5, 2} {
		in := random(rng, rows, 3)
		require.NoError(t, exe.Bind(x, in))
		require.NoError(t, exe.Run(ctx))
		got := exe.Output(y)
		require.Equal(t, []int{rows, 4}, got.Shape())
		for r := 0; r < rows; r++ {
			for c := 0; c < 4; c++ {
				var sum float64
				for k := 0; k < 3; k++ {
					sum += in.Floats()[r*3+k] * w.Floats()[k*4+c]
				}
				require.Equal(t, 2*sum, got.Floats()[r*4+c])
			}
		}
	}
	err = exe.Bind(x, random(rng, 6, 3))
	require.ErrorContains(t, err, "at most 5")
	require.ErrorContains(t, exe.Bind(x, random(rng, 2, 4)), "dimension 1")
	require.ErrorContains(t, exe.SetSize("m", 1), "no symbolic size")
}

func TestErrorsNameTheNode(t *testing.T) {
	g := New("bad")
	a := g.Input("a", tensor.F32, ops.Const(2))
	b := g.Input("b", tensor.F32, ops.Const(3))
	g.Output("y", g.Apply("blk.7.sum", addOp{}, a, b))
	require.ErrorContains(t, g.Err(), `node "blk.7.sum"`)
	require.ErrorContains(t, g.Err(), "f32[2]")
	_, err := g.Compile(context.Background(), options())
	require.ErrorIs(t, err, g.Err())

	g = New("none")
	g.Input("a", tensor.F32, ops.Const(2))
	_, err = g.Compile(context.Background(), options())
	require.ErrorContains(t, err, "no output")
	_, err = New("x").Compile(context.Background(), Options{})
	require.ErrorContains(t, err, `no backend given: Options.Backends is empty; backends.Open("cpu") opens one`)

	g = New("twice")
	g.Input("a", tensor.F32, ops.Const(2))
	g.Input("a", tensor.F32, ops.Const(2))
	require.ErrorContains(t, g.Err(), "twice")

	g = New("unbound")
	a = g.Input("a", tensor.F32, ops.Const(2))
	g.Output("y", g.Apply("s", addOp{}, a, a))
	exe, err := g.Compile(context.Background(), options())
	require.NoError(t, err)
	require.ErrorContains(t, exe.Run(context.Background()), `"a" is not bound`)
}

func TestUpdateInPlaceAndViewsOfIt(t *testing.T) {
	ctx := context.Background()
	g := New("cache")
	used := g.Symbol("used", 4)
	cache := g.Input("cache", tensor.F32, ops.Const(4), ops.Const(2))
	row := g.Input("row", tensor.F32, ops.Const(1), ops.Const(2))
	after := g.Apply("set", setRowOp{1}, cache, row)
	head := g.Apply("head", headOp{used}, after)
	flat := g.Apply("flat", flattenOp{}, head)
	sum := g.Apply("sum", addOp{}, flat, flat)
	g.Output("sum", sum)
	require.NoError(t, g.Err())
	g.Apply("stale", addOp{}, cache, cache)
	require.ErrorContains(t, g.Err(), "updated in place")
	g.err = nil
	exe, err := g.Compile(ctx, options())
	require.NoError(t, err)
	memory := tensor.Of([]float32{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2)
	require.NoError(t, exe.Bind(cache, memory))
	require.NoError(t, exe.Bind(row, tensor.Of([]float32{-1, -2}, 1, 2)))
	require.NoError(t, exe.SetSize("used", 3))
	require.NoError(t, exe.Run(ctx))
	got := exe.Output(sum)
	require.Equal(t, []float64{2, 4, -2, -4, 10, 12}, got.Floats())
	require.Equal(t, []float64{1, 2, -1, -2, 5, 6, 7, 8}, memory.Floats())
	require.EqualValues(t, 32, exe.Memory().State)
	// Another cache of the same shape: views follow.
	require.NoError(t, exe.Bind(cache, tensor.New(tensor.F32, 4, 2)))
	require.NoError(t, exe.SetSize("used", 2))
	require.NoError(t, exe.Run(ctx))
	got = exe.Output(sum)
	require.Equal(t, []float64{0, 0, -2, -4}, got.Floats())
}

func TestOutputsShareNoMemory(t *testing.T) {
	ctx := context.Background()
	g := New("g")
	x := g.Input("x", tensor.F32, ops.Const(2), ops.Const(2))
	y, half := g.Apply("y", addOp{}, x, x), g.Apply("half", addOp{}, x, x)
	z := g.Apply("z", addOp{}, half, y)
	g.Output("y", y)
	g.Output("z", z)
	require.NoError(t, g.Err())
	exe, err := g.Compile(ctx, options())
	require.NoError(t, err)
	memory := tensor.NewBuffer(64)
	at := func(off int) tensor.Tensor {
		v, err := tensor.At(memory, off, tensor.MakeSpec(tensor.F32, 2, 2))
		require.NoError(t, err)
		return v
	}
	for _, c := range []struct {
		x, y, z int
		shares  string
	}{{0, 0, 32, `"y" shares memory with "x"`}, {0, 12, 32, `"y" shares memory with "x"`}, {0, 32, 4, `"z" shares memory with "x"`}, {0, 16, 20, `"y" shares memory with "z"`}, {0, 16, 32, ""}, {16, 32, 0, ""}} {
		require.NoError(t, exe.Bind(x, at(c.x)))
		require.NoError(t, exe.Bind(y, at(c.y)))
		require.NoError(t, exe.Bind(z, at(c.z)))
		if c.shares == "" {
			require.NoError(t, exe.Run(ctx))
		} else {
			require.ErrorContains(t, exe.Run(ctx), c.shares)
		}
	}
}

func TestOutputAsNextInputAndBoundOutput(t *testing.T) {
	ctx := context.Background()
	g := New("double")
	x := g.Input("x", tensor.F32, ops.Const(3))
	y := g.Apply("a", addOp{}, x, x)
	y = g.Apply("b", addOp{}, y, y)
	g.Output("y", y)
	exe, err := g.Compile(ctx, options())
	require.NoError(t, err)
	require.NoError(t, exe.Bind(x, tensor.Of([]float32{1, 2, 3}, 3)))
	for i, want := 0, 4.0; i < 4; i, want = i+1, want*4 {
		require.NoError(t, exe.Run(ctx))
		got := exe.Output(y)
		require.Equal(t, []float64{want, 2 * want, 3 * want}, got.Floats())
		require.NoError(t, exe.Bind(x, got))
	}
	mine := tensor.New(tensor.F32, 3)
	require.NoError(t, exe.Bind(y, mine))
	require.NoError(t, exe.Bind(x, tensor.Of([]float32{1, 2, 3}, 3)))
	require.NoError(t, exe.Run(ctx))
	require.Equal(t, []float64{4, 8, 12}, mine.Floats())
}

func TestAlternatingGraphsOfEqualSizeAndFork(t *testing.T) {
	ctx := context.Background()
	build := func(twice bool) (*Graph, Value, Value) {
		g := New("g")
		x := g.Input("x", tensor.F32, ops.Const(4))
		y := g.Apply("s", addOp{}, x, x)
		if twice {
			y = g.Apply("t", addOp{}, y, x)
		} else {
			y = g.Apply("t", addOp{}, y, y)
		}
		g.Output("y", y)
		return g, x, y
	}
	g1, x1, y1 := build(true)
	g2, x2, y2 := build(false)
	e1, err := g1.Compile(ctx, options())
	require.NoError(t, err)
	e2, err := g2.Compile(ctx, options())
	require.NoError(t, err)
	f1, err := e1.Fork(ctx)
	require.NoError(t, err)
	in := tensor.Of([]float32{1, 2, 3, 4}, 4)
	other := tensor.Of([]float32{5, 6, 7, 8}, 4)
	require.NoError(t, e1.Bind(x1, in))
	require.NoError(t, e2.Bind(x2, in))
	require.NoError(t, f1.Bind(x1, other))
	for i := 0; i < 3; i++ {
		require.NoError(t, e1.Run(ctx))
		require.NoError(t, e2.Run(ctx))
		require.NoError(t, f1.Run(ctx))
		a, b, c := e1.Output(y1), e2.Output(y2), f1.Output(y1)
		require.Equal(t, []float64{3, 6, 9, 12}, a.Floats())
		require.Equal(t, []float64{4, 8, 12, 16}, b.Floats())
		require.Equal(t, []float64{15, 18, 21, 24}, c.Floats())
	}
}

func TestPasses(t *testing.T) {
	ctx := context.Background()
	g := New("p")
	x := g.Input("x", tensor.F32, ops.Const(4))
	c := g.Constant("c", tensor.Of([]float32{1, 2, 3, 4}, 4))
	cc := g.Apply("cc", addOp{}, c, c) // folds
	a := g.Apply("a", addOp{}, x, cc)
	b := g.Apply("b", addOp{}, x, cc) // equal to a
	g.Apply("unused", addOp{}, a, a)
	y := g.Apply("y", addOp{}, a, b)
	g.Output("y", y)
	for _, off := range [][]string{nil, {"fold"}, {"cse"}, {"dead"}, {"all"}} {
		opts := options()
		opts.DisablePasses = off
		exe, err := g.Compile(ctx, opts)
		require.NoError(t, err)
		require.NoError(t, exe.Bind(x, tensor.Of([]float32{1, 1, 1, 1}, 4)))
		require.NoError(t, exe.Run(ctx))
		got := exe.Output(y)
		require.Equal(t, []float64{6, 10, 14, 18}, got.Floats())
		if off == nil {
			require.Len(t, exe.g.nodes, 2)
		}
		if len(off) == 1 && off[0] == "all" {
			require.Len(t, exe.g.nodes, 5)
		}
	}
	opts := options()
	opts.DisablePasses = []string{"nonsense"}
	_, err := g.Compile(ctx, opts)
	require.ErrorContains(t, err, "unknown pass")
}

func TestArenaNeverOverlapsAndStaysNearTheLowerBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	worst := 1.0
	for trial := 0; trial < 300; trial++ {
		var blocks []*block
		nodes := 5 + rng.IntN(60)
		for i := 0; i < nodes; i++ {
			last := min(nodes, i+1+rng.IntN(3))
			if rng.IntN(6) == 0 {
				last = min(nodes, i+rng.IntN(nodes))
			}
			blocks = append(blocks, &block{bytes: 64 * (1 + rng.IntN(40)), first: i, last: last})
		}
		size := placeBlocks(blocks)
		for i, a := range blocks {
			require.LessOrEqual(t, a.offset+a.bytes, size)
			require.Zero(t, a.offset%64)
			for _, b := range blocks[:i] {
				together := a.first <= b.last && b.first <= a.last
				apart := a.offset+a.bytes <= b.offset || b.offset+b.bytes <= a.offset
				require.True(t, !together || apart)
			}
		}
		low := liveBytes(blocks, nodes)
		require.GreaterOrEqual(t, size, low)
		worst = max(worst, float64(size)/float64(low))
	}
	require.LessOrEqual(t, worst, 1.25)
}

func TestInPlaceReuse(t *testing.T) {
	ctx := context.Background()
	g := New("chain")
	x := g.Input("x", tensor.F32, ops.Const(1024))
	y := x
	for i := 0; i < 10; i++ {
		y = g.Apply(fmt.Sprint("n", i), addOp{}, y, x)
	}
	g.Output("y", y)
	exe, err := g.Compile(ctx, options())
	require.NoError(t, err)
	require.EqualValues(t, 4096, exe.Memory().Activations)
	in := tensor.New(tensor.F32, 1024)
	in.SetFloats(func() []float64 {
		v := make([]float64, 1024)
		for i := range v {
			v[i] = float64(i)
		}
		return v
	}())
	require.NoError(t, exe.Bind(x, in))
	require.NoError(t, exe.Run(ctx))
	got := exe.Output(y)
	require.Equal(t, 11.0*1023, got.Floats()[1023])
}

func TestMaxMemoryStrictAndPlacement(t *testing.T) {
	ctx := context.Background()
	build := func() (*Graph, Value) {
		g := New("m")
		x := g.Input("x", tensor.F32, ops.Const(2), ops.Const(2))
		y := g.Apply("fc", matmul.Op{}, x, g.Constant("w", tensor.New(tensor.F32, 2, 2)))
		g.Output("y", y)
		return g, x
	}
	g, _ := build()
	opts := options()
	opts.MaxMemory = 10
	_, err := g.Compile(ctx, opts)
	require.ErrorContains(t, err, "the limit is 10")

	picky := &pickyBackend{Backend: reference.New()}
	opts = Options{Backends: []backends.Backend{picky, reference.New()}}
	exe, err := g.Compile(ctx, opts)
	require.NoError(t, err)
	require.Equal(t, "reference", exe.Placements()[0].Backend)
	require.Contains(t, exe.Placements()[0].Reason, "picky: only adds")
	require.True(t, exe.Placements()[0].Fallback)
	opts.Strict = true
	_, err = g.Compile(ctx, opts)
	require.ErrorContains(t, err, `node "fc"`)
	require.ErrorContains(t, err, "falls back")
	_, err = g.Compile(ctx, Options{Backends: []backends.Backend{picky}})
	require.ErrorContains(t, err, "no backend takes it")
}

type pickyBackend struct{ *reference.Backend }

func (*pickyBackend) Name() string { return "picky" }
func (*pickyBackend) Supports(c ops.Call) backends.Verdict {
	if c.Op.Name() != "add" {
		return backends.No("only adds")
	}
	return backends.Yes("")
}

func TestRunWatchedAndCancelled(t *testing.T) {
	g := New("w")
	x := g.Input("x", tensor.F32, ops.Const(4))
	y := g.Apply("first", addOp{}, x, x)
	y = g.Apply("second", addOp{}, y, x)
	g.Output("y", y)
	var names []string
	stop := errors.New("stop")
	opts := options()
	opts.Profile = true
	opts.OnNode = func(e NodeEvent) error {
		names = append(names, e.Name+" "+fmt.Sprint(e.Out[0].Floats()))
		if len(names) == 4 {
			return stop
		}
		return nil
	}
	steps := 0
	opts.Progress = func(done, total int) { steps++ }
	exe, err := g.Compile(context.Background(), opts)
	require.NoError(t, err)
	require.NoError(t, exe.Bind(x, tensor.Of([]float32{1, 2, 3, 4}, 4)))
	require.NoError(t, exe.Run(context.Background()))
	require.Equal(t, []string{"first [2 4 6 8]", "second [3 6 9 12]"}, names)
	require.ErrorIs(t, exe.Run(context.Background()), stop)
	require.Equal(t, 4, steps)
	require.Len(t, exe.Profile(), 2)
	var trace strings.Builder
	require.NoError(t, exe.WriteTrace(&trace))
	require.Contains(t, trace.String(), `"first"`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, exe.Run(ctx), context.Canceled)
}

func TestDOT(t *testing.T) {
	g := New("d")
	x := g.Input("x", tensor.F32, ops.Const(4))
	g.Output("y", g.Apply("s", addOp{}, x, g.Constant("c", tensor.New(tensor.F32, 4))))
	var b strings.Builder
	require.NoError(t, g.DOT(&b))
	require.Contains(t, b.String(), `label="s\nadd\nf32[4]"`)
	exe, err := g.Compile(context.Background(), options())
	require.NoError(t, err)
	b.Reset()
	require.NoError(t, exe.DOT(&b))
	require.Contains(t, b.String(), "v0 -> n0")
}

// fedOp is an op that may be computed with the one before it.
type fedOp struct{ addOp }

func (fedOp) InPlace(int) bool                      { return false }
func (fedOp) FedBy(op ops.Op, _ []tensor.Spec) bool { return op.Name() == "add" }

// What feeds a node keeps its inputs until that node's end, unless something else reads what lies between.
func TestFeeds(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		more func(g *Graph, between, y Value) Value
		want []bool
	}{
		"alone":      {func(_ *Graph, _, y Value) Value { return y }, []bool{false, true, false}},
		"read again": {func(g *Graph, between, y Value) Value { return g.Apply("c", addOp{}, y, between) }, []bool{false, false, false, false}},
		"an output":  {func(g *Graph, between, y Value) Value { g.Output("b", between); return y }, []bool{false, false, false}},
		"seen by views": {func(g *Graph, between, y Value) Value {
			return g.Apply("c", addOp{}, y, g.Apply("v", flattenOp{}, between))
		}, []bool{false, false, false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			g := New("g")
			x, z := g.Input("x", tensor.F32, ops.Const(64)), g.Input("z", tensor.F32, ops.Const(64))
			first := g.Apply("first", fedOp{}, x, z) // not in place
			between := g.Apply("between", addOp{}, first, first)
			y := g.Apply("y", fedOp{}, between, z)
			g.Output("out", c.more(g, between, y))
			exe, err := g.Compile(ctx, options())
			require.NoError(t, err)
			for _, p := range exe.plans {
				require.Equal(t, c.want, p.feeds)
				if c.want[1] {
					require.Equal(t, 2, p.block[p.nodes[0].Out[0]].last, "what is read stays")
				}
			}
		})
	}
}

// TestMemoryIsChecked: what anybody may have set in a tensor is looked at before it is run on.
func TestMemoryIsChecked(t *testing.T) {
	ctx := context.Background()
	file := tensor.WrapReadOnly(make([]byte, 64))
	for what, spoil := range map[string]func(x *tensor.Tensor){
		"no buffer":       func(x *tensor.Tensor) { x.Buf = nil },
		"short buffer":    func(x *tensor.Tensor) { x.Buf = tensor.NewBuffer(x.Bytes() - 1) },
		"closed buffer":   func(x *tensor.Tensor) { require.NoError(t, x.Buf.Close()) },
		"offset":          func(x *tensor.Tensor) { x.Off = 4 },
		"negative offset": func(x *tensor.Tensor) { x.Off = -4 },
		"stride":          func(x *tensor.Tensor) { x.Strides[0]++ },
		"wrapping stride": func(x *tensor.Tensor) { x.Strides[0] = math.MaxInt/2 + 1 },
		"negative stride": func(x *tensor.Tensor) { x.Strides[1] = -1 },
	} {
		g := New("g")
		x := g.Input("x", tensor.F32, ops.Const(4), ops.Const(4))
		y := g.Apply("y", addOp{}, x, x)
		g.Output("y", y)
		exe, err := g.Compile(ctx, Options{Backends: []backends.Backend{reference.New()}})
		require.NoError(t, err)
		bad := tensor.New(tensor.F32, 4, 4)
		spoil(&bad)
		require.ErrorContains(t, exe.Bind(x, bad), "does not lie in its buffer", what)
		require.ErrorContains(t, exe.Bind(y, bad), "does not lie in its buffer", what)
		g.Constant("w", bad)
		require.ErrorContains(t, g.Err(), "does not lie in its buffer", what)
		require.NoError(t, exe.Close())
		require.ErrorContains(t, exe.Bind(x, tensor.New(tensor.F32, 4, 4)), "closed")
		require.ErrorContains(t, exe.Run(ctx), "closed")
	}
	// What is updated in place can be written.
	g := New("g")
	state := g.Input("state", tensor.F32, ops.Const(4), ops.Const(4))
	rows := g.Input("rows", tensor.F32, ops.Const(1), ops.Const(4))
	ids := g.Input("ids", tensor.I32, ops.Const(1))
	g.Output("y", g.Apply("set", shape.SetRows{}, state, rows, ids))
	exe, err := g.Compile(ctx, Options{Backends: []backends.Backend{reference.New()}})
	require.NoError(t, err)
	frozen, err := tensor.At(file, 0, tensor.MakeSpec(tensor.F32, 4, 4))
	require.NoError(t, err)
	require.NoError(t, exe.Bind(state, frozen))
	require.NoError(t, exe.Bind(rows, tensor.New(tensor.F32, 1, 4)))
	require.NoError(t, exe.Bind(ids, tensor.New(tensor.I32, 1)))
	require.ErrorIs(t, exe.Run(ctx), tensor.ErrReadOnly)
	require.NoError(t, exe.Bind(state, tensor.New(tensor.F32, 4, 4)))
	require.NoError(t, exe.Run(ctx))
	require.NoError(t, exe.Close())
	w := g.Constant("w", tensor.New(tensor.F32, 4, 4))
	g.Apply("set w", shape.SetRows{}, g.Apply("view", shape.Reshape{Dims: ops.ConstSizes(4, 4)}, w), rows, ids)
	require.ErrorContains(t, g.Err(), `node "set w": input 0 (w) is a constant`)
	for _, build := range []func(g *Graph){
		func(g *Graph) { g.Apply("none", nil) },
		func(g *Graph) { g.SharedConstant("none", nil) },
	} {
		g := New("g")
		build(g)
		require.ErrorContains(t, g.Err(), `"none"`)
	}
	g = New("g")
	g.Output("x", g.Input("x", tensor.F32))
	_, err = g.Compile(ctx, Options{Backends: []backends.Backend{nil}})
	require.ErrorContains(t, err, "nil")
}
