package cpu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func testEngine() *Engine { return newBackend(0, cpuinfo.Get().ISA).engine }

// runProduct makes the problem of a product of two tensors, and runs it.
func runProduct(t testing.TB, e *Engine, op matmul.Op, w matmul.Packed, in ...tensor.Tensor) tensor.Tensor {
	specs := make([]tensor.Spec, len(in))
	for i := range in {
		specs[i] = in[i].Spec
	}
	out, err := op.Infer(specs)
	require.NoError(t, err)
	spec, sh := op.Problem(specs, out[0])
	p, err := e.Plan(spec, sh)
	require.NoError(t, err)
	c := tensor.New(out[0].DType, out[0].Shape()...)
	args := matmul.Args{A: in[0], B: in[1], C: c}
	operandsOf(op, in, &args)
	require.NoError(t, p.Run(context.Background(), w, &args, new(matmul.Workspace)))
	return c
}

func pack(t testing.TB, e *Engine, op matmul.Op, a, b tensor.Tensor) matmul.Packed {
	out, err := op.Infer([]tensor.Spec{a.Spec, b.Spec})
	require.NoError(t, err)
	spec, _ := op.Problem([]tensor.Spec{a.Spec, b.Spec}, out[0])
	w, err := e.Pack(context.Background(), spec, b)
	require.NoError(t, err)
	return w
}

// TestPackedEqualsUnpacked: weights packed once give the bits of weights that are not, for ragged widths and every form of B.
func TestPackedEqualsUnpacked(t *testing.T) {
	e := testEngine()
	for _, n := range []int{1, 7, 13, 31, 33, 64, 151669 % 64} {
		for _, k := range []int{1, 64, 65} {
			for _, m := range []int{1, 5, 40} {
				for _, trans := range []bool{false, true} {
					op := matmul.Op{TransB: trans}
					a, b := normal(m, k), normal(k, n)
					if trans {
						b = normal(n, k)
					}
					w := pack(t, e, op, a, b)
					require.Equal(t, floatsOf(runProduct(t, e, op, nil, a, b)), floatsOf(runProduct(t, e, op, w, a, b)), "%d x %d x %d", m, n, k)
					require.NoError(t, w.Close())
				}
			}
		}
	}
}

func floatsOf(t tensor.Tensor) []float64 { return t.Floats() }

// TestMatMulOfViews compares the public call with the reference over random views, batches and types.
func TestMatMulOfViews(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	n := 400
	if testing.Short() {
		n = 60
	}
	for i := range n {
		dims := func(lead []int, rows, cols int) []int { return append(append([]int{}, lead...), rows, cols) }
		m, nn, k := 1+r.IntN(40), 1+r.IntN(40), r.IntN(70)
		lead := [][]int{{}, {2}, {3, 2}}[r.IntN(3)]
		la, lb := lead, lead
		switch r.IntN(4) {
		case 0:
			lb = nil
		case 1:
			la = nil
		case 2:
			lb = make([]int, len(lead))
			for j := range lb {
				lb[j] = 1
			}
		}
		types := []tensor.DType{tensor.F32, tensor.F32, tensor.F16, tensor.BF16, tensor.I8, tensor.U8, tensor.I16}
		da := types[r.IntN(len(types))]
		db := da
		if da.IsFloat() {
			db = types[r.IntN(4)]
		} else if da == tensor.U8 && r.IntN(2) == 0 {
			db = tensor.I8
		}
		a, b := layout2(r, da, dims(la, m, k)), layout2(r, db, dims(lb, k, nn))
		out, err := matmul.Op{}.Infer([]tensor.Spec{a.Spec, b.Spec})
		require.NoError(t, err)
		c := layout2(r, out[0].DType, out[0].Shape())
		want := tensor.New(out[0].DType, out[0].Shape()...)
		require.NoError(t, matmul.MatMul(want, a, b, matmul.WithReference()))
		require.NoError(t, matmul.MatMul(c, a, b, matmul.WithThreads(1+r.IntN(3))), "case %d: %v %v", i, a, b)
		got, ref := c.Floats(), want.Floats()
		for j := range got {
			if da.IsInt() {
				require.Equal(t, ref[j], got[j], "case %d: %v x %v", i, a, b)
			} else {
				require.InDelta(t, ref[j], got[j], 1e-6*float64(k+1)*12, "case %d: %v x %v", i, a, b)
			}
		}
	}
}

// layout2 makes a random tensor in a random layout: plain, transposed, with gaps.
func layout2(r *rand.Rand, d tensor.DType, dims []int) tensor.Tensor {
	last := len(dims) - 1
	var t tensor.Tensor
	switch r.IntN(3) {
	case 0:
		t = tensor.New(d, dims...)
	case 1:
		flip := append([]int{}, dims...)
		flip[last], flip[last-1] = flip[last-1], flip[last]
		t = tensor.New(d, flip...)
		t, _ = t.Transpose(last, last-1)
	default:
		wide := append([]int{}, dims...)
		wide[last] += 3
		t = tensor.New(d, wide...)
		t, _ = t.Slice(last, 1, 1+dims[last], 1)
	}
	v := make([]float64, t.Elems())
	for i := range v {
		v[i] = r.NormFloat64()
		if d.IsInt() {
			v[i] = float64(r.IntN(256) - 128)
			if d == tensor.U8 {
				v[i] += 128
			}
		}
	}
	t.SetFloats(v)
	return t
}

// foreign is a packed weight of another engine.
type foreign struct{}

func (foreign) Spec() matmul.Spec                { return matmul.Spec{N: 4, K: 3} }
func (foreign) WriteTo(io.Writer) (int64, error) { return 0, nil }
func (foreign) Close() error                     { return nil }

// TestRefusals: what does not fit is an error that says so, before anything is computed.
func TestRefusals(t *testing.T) {
	e := testEngine()
	ctx := context.Background()
	a, b := normal(2, 3), normal(3, 4)
	spec, sh := matmul.Op{}.Problem([]tensor.Spec{a.Spec, b.Spec}, tensor.MakeSpec(tensor.F32, 2, 4))
	p, err := e.Plan(spec, sh)
	require.NoError(t, err)
	args := matmul.Args{A: a, B: b, C: tensor.New(tensor.F32, 2, 4)}
	require.ErrorContains(t, p.Run(ctx, foreign{}, &args, new(matmul.Workspace)), "pack them here")
	other := pack(t, e, matmul.Op{TransB: true}, normal(2, 3), normal(4, 3))
	require.ErrorContains(t, p.Run(ctx, other, &args, new(matmul.Workspace)), "another problem")
	w := pack(t, e, matmul.Op{}, a, b)
	require.Positive(t, w.(*packed).Bytes())
	require.NoError(t, w.Close())
	_, err = w.WriteTo(io.Discard)
	require.ErrorContains(t, err, "closed")
	wide := tensor.New(tensor.I16, 3, 4)
	ints, err := e.Pack(ctx, matmul.Spec{N: 4, K: 3, A: tensor.I16, B: tensor.I16}, wide)
	require.NoError(t, err)
	_, err = ints.WriteTo(io.Discard)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, p.Run(ctx, w, &args, new(matmul.Workspace)), "closed")
	_, err = e.Pack(ctx, spec, normal(4, 3))
	require.ErrorContains(t, err, "pack of f32[4 3]")
	_, err = e.Pack(ctx, spec, normal(3))
	require.ErrorContains(t, err, "two dimensions")
	bad := spec
	bad.A = tensor.Bool
	require.ErrorContains(t, e.Supports(bad, sh), "no product of bool and f32")
	_, err = e.Plan(bad, sh)
	require.Error(t, err)
	bad.A, bad.B = tensor.I32, tensor.I32
	require.ErrorContains(t, e.Supports(bad, sh), "8 and 16 bits are right")
}

// TestSharedWeights: several goroutines run one packed weight, each with its workspace and its height, to the same bits as alone.
func TestSharedWeights(t *testing.T) {
	e := testEngine()
	q8, err := quant.Encode(tensor.Q8_0, normal(70, 64))
	require.NoError(t, err)
	for _, b := range []tensor.Tensor{normal(70, 64), q8} {
		op := matmul.Op{TransB: true}
		w := pack(t, e, op, normal(1, 64), b)
		var want [8][]float64
		for g := range want {
			want[g] = floatsOf(runProduct(t, e, op, w, normal(1+3*g, 64), b))
		}
		var wg sync.WaitGroup
		var wrong [8]bool
		for g := range want {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 20 {
					got := floatsOf(runProduct(t, e, op, w, normal(1+3*g, 64), b))
					for i := range got {
						wrong[g] = wrong[g] || got[i] != want[g][i]
					}
				}
			}()
		}
		wg.Wait()
		require.Equal(t, [8]bool{}, wrong)
	}
}

// TestLongProductStops: a product of seconds ends soon after its context does.
func TestLongProductStops(t *testing.T) {
	e := testEngine()
	x := normal(3000, 3000)
	spec, sh := matmul.Op{}.Problem([]tensor.Spec{tensor.MakeSpec(tensor.F32, 12, 3000, 3000), x.Spec}, tensor.MakeSpec(tensor.F32, 12, 3000, 3000))
	p, err := e.Plan(spec, sh)
	require.NoError(t, err)
	a, err := x.Broadcast(12, 3000, 3000)
	require.NoError(t, err)
	args := matmul.Args{A: a, B: x, C: tensor.New(tensor.F32, 12, 3000, 3000)}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(5*time.Millisecond, cancel)
	require.ErrorIs(t, p.Run(ctx, nil, &args, new(matmul.Workspace)), context.Canceled)
	c := tensor.Data[float32](args.C)
	require.Equal(t, float32(0), c[len(c)-1], "whole it takes over two seconds")
}

// TestEpiloguesOfLongProducts: rows cut apart keep their scales and residuals.
func TestEpiloguesOfLongProducts(t *testing.T) {
	e := testEngine()
	a, b, rs, res := normal(700, 40), normal(40, 30), normal(700), normal(700, 30)
	op := matmul.Op{Epilogue: matmul.Epilogue{RowScale: true, Residual: matmul.ResidualAfter, Act: ops.Act{Kind: ops.Tanh}}}
	whole := runProduct(t, e, op, nil, a, b, rs, res)
	r := &run{e: e, done: make(chan struct{}), args: &matmul.Args{RowScale: tensor.Data[float32](rs)}}
	spec, sh := op.Problem([]tensor.Spec{a.Spec, b.Spec, rs.Spec, res.Spec}, whole.Spec)
	p, err := e.Plan(spec, sh)
	require.NoError(t, err)
	c := tensor.New(tensor.F32, 700, 30)
	r.p, r.a, r.b, r.c, r.residual, r.epilogue = p.(*plan), a, b, c, res, true
	r.args.A, r.args.B, r.args.C, r.args.Residual = a, b, c, res
	r.layOut()
	r.workers = make([]productWorker, 1)
	var at cursor
	for from := 0; from < 700; from += 192 {
		require.NoError(t, r.rowsOf(&r.workers[0], &at, 0, from, min(192, 700-from)))
	}
	require.Equal(t, floatsOf(whole), floatsOf(c))
}

// TestRepeatable: a hundred repetitions and every number of workers give the same bits.
func TestRepeatable(t *testing.T) {
	a, b := normal(129, 300), normal(300, 77)
	var first []float64
	for i := range 100 {
		e := &Engine{threads: 1 + i%8, isa: cpuinfo.Get().ISA, vec: newBackend(0, cpuinfo.Get().ISA).vec}
		got := floatsOf(runProduct(t, e, matmul.Op{}, nil, a, b))
		if first == nil {
			first = got
		}
		require.Equal(t, first, got, fmt.Sprint(e.threads, " workers"))
	}
	require.False(t, math.IsNaN(first[0]))
}

// TestConversionStops: jobs of a conversion look at the run's context when they start.
func TestConversionStops(t *testing.T) {
	const n = 1 << 20
	ones := make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	from, to := tensor.Of(ones, n), tensor.New(tensor.BF16, n)
	done := make(chan struct{})
	var k converter
	k.convert(testEngine(), done, &to, &from)
	require.Equal(t, 1.0, to.Floats()[n-1])
	clear(to.Raw())
	close(done)
	k.convert(testEngine(), done, &to, &from)
	require.Equal(t, make([]byte, 2*n), to.Raw())
}
