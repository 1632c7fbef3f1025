package cpu

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// file is an origin that counts what is packed, and keeps nothing.
type file struct {
	mu       sync.Mutex
	consumed int
	kept     io.WriterTo
}

func (f *file) Kept(string, int) []byte { return nil }

func (f *file) Keep(_ string, form io.WriterTo) { f.kept = form }

func (f *file) Consumed(raw []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.consumed += len(raw)
}

func (f *file) bytes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.consumed
}

// lateWeight returns a weight that is packed late, its origin, the same weight packed, and its problem.
func lateWeight(t testing.TB, e *Engine, d tensor.DType, n, k int) (late *packed, from *file, eager matmul.Packed, s matmul.Spec) {
	b := normal(n, k)
	if d.IsBlock() {
		b = blocksOf(t, d, n, k)
	} else if d != tensor.F32 {
		x := tensor.New(d, n, k)
		require.NoError(t, tensor.Copy(x, b))
		b = x
	}
	s = matmul.Spec{N: n, K: k, A: tensor.F32, B: d, BLayout: matmul.ColMajor}
	from = &file{}
	c := ops.NewConstant(b)
	c.Origin = from
	w, err := e.prepare(context.Background(), s, c)
	require.NoError(t, err)
	late = w.(*packed)
	require.NotNil(t, late.late)
	eager, err = e.Pack(context.Background(), s, b)
	require.NoError(t, err)
	s.C = tensor.F32
	return late, from, eager, s
}

func runWeight(ctx context.Context, e *Engine, s matmul.Spec, w matmul.Packed, a tensor.Tensor) ([]byte, error) {
	m := a.Dims[0]
	plan, err := e.Plan(s, matmul.Shape{M: m})
	if err != nil {
		return nil, err
	}
	c := tensor.New(tensor.F32, m, s.N)
	err = plan.Run(ctx, w, &matmul.Args{A: a, C: c}, &matmul.Workspace{})
	return c.Raw(), err
}

var lateTypes = []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q4_K, tensor.Q6_K}

// The first run and the later ones, before and after the weight is packed, give the bits of one that was packed from the start, for any number of
// workers; a weight is packed once, by the second high run or by one of the first low ones.
func TestLateWeightsGiveTheSameBits(t *testing.T) {
	ctx := context.Background()
	for _, threads := range []int{1, 3} {
		e := newBackend(threads, cpuinfo.Get().ISA).engine
		for _, d := range lateTypes {
			for _, m := range []int{1, 7, lowRun + 1} {
				const n, k = 200, 512
				late, from, eager, s := lateWeight(t, e, d, n, k)
				require.Equal(t, eager.(*packed).Bytes(), late.Bytes())
				a := normal(m, k)
				want, err := runWeight(ctx, e, s, eager, a)
				require.NoError(t, err)
				packedBy := 0
				for i := range lateTurns + 3 {
					got, err := runWeight(ctx, e, s, late, a)
					require.NoError(t, err)
					require.Equal(t, want, got, "%v, %d rows, run %d", d, m, i)
					if packedBy == 0 && from.bytes() > 0 {
						packedBy = i + 1
					}
				}
				source := late.late.source
				require.Equal(t, len(source.Raw()), from.bytes(), "%v", d)
				last := 2
				if m <= lowRun {
					last += lateTurns - 1
				}
				require.GreaterOrEqual(t, packedBy, 2, "%v, %d rows", d, m)
				require.LessOrEqual(t, packedBy, last, "%v, %d rows", d, m)
				require.Equal(t, eager.(*packed).Bytes(), late.Bytes())
				require.NoError(t, late.Close())
				_, err = runWeight(ctx, e, s, late, a)
				require.ErrorContains(t, err, "closed")
				require.NoError(t, eager.Close())
			}
		}
	}
}

// Low runs pack a weight in parts, none of them much more than another, and give the bits of one that was packed from the start, in between too. The
// first of two weights is packed before the second, and a weight of another group has no part in their runs.
func TestLateWeightsArePackedInParts(t *testing.T) {
	ctx := context.Background()
	e := newBackend(2, cpuinfo.Get().ISA).engine
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.Q8_0, tensor.Q6_K} {
		lateGroups.open = nil
		n, k := 16*latePart/512/d.Size()*d.Block()+5, 512
		first, from, eager, s := lateWeight(t, e, d, n, k)
		second, behind, eagerSecond, _ := lateWeight(t, e, d, n, k)
		require.Same(t, first.late.group, second.late.group)
		all := first.late.group.bytes
		a := normal(1, k)
		want, err := runWeight(ctx, e, s, eager, a)
		require.NoError(t, err)
		wantSecond, err := runWeight(ctx, e, s, eagerSecond, a)
		require.NoError(t, err)
		before, runs := 0, 0
		for before < int(all) {
			got, err := runWeight(ctx, e, s, first, a)
			require.NoError(t, err)
			require.Equal(t, want, got, "%v, run %d", d, runs)
			got, err = runWeight(ctx, e, s, second, a)
			require.NoError(t, err)
			require.Equal(t, wantSecond, got, "%v, run %d", d, runs)
			now := from.bytes() + behind.bytes()
			if runs == 0 {
				require.Zero(t, now)
			} else {
				require.Greater(t, now, before, "%v, run %d", d, runs)
				require.Less(t, now-before, int(all)/lateTurns*3/2+2*latePart, "%v, run %d", d, runs)
				require.True(t, behind.bytes() == 0 || first.late.packed.Load() != nil)
			}
			before = now
			runs++
		}
		require.Equal(t, 1+lateTurns, runs)
		require.NotNil(t, first.late.packed.Load())
		require.NotNil(t, second.late.packed.Load())
		var one, other bytes.Buffer
		_, err = eager.WriteTo(&one)
		require.NoError(t, err)
		_, err = first.WriteTo(&other)
		require.NoError(t, err)
		require.True(t, bytes.Equal(one.Bytes(), other.Bytes()), "%v", d)
		third, _, _, _ := lateWeight(t, e, d, 64, 256)
		require.NotSame(t, first.late.group, third.late.group)
		for _, w := range []matmul.Packed{first, second, third, eager, eagerSecond} {
			require.NoError(t, w.Close())
		}
	}
}

// A weight of which a part is packed may be kept, met by a run of many rows, or closed.
func TestLateWeightsInParts(t *testing.T) {
	ctx := context.Background()
	e := newBackend(2, cpuinfo.Get().ISA).engine
	for _, d := range []tensor.DType{tensor.F16, tensor.Q8_0} {
		for _, then := range []string{"kept", "many rows", "closed"} {
			lateGroups.open = nil
			n, k := 16*latePart/512/d.Size()*d.Block(), 512
			late, from, eager, s := lateWeight(t, e, d, n, k)
			a := normal(1, k)
			for range 3 {
				_, err := runWeight(ctx, e, s, late, a)
				require.NoError(t, err)
			}
			source := len(late.late.source.Raw())
			require.Greater(t, from.bytes(), 0)
			require.Less(t, from.bytes(), source)
			require.Equal(t, eager.(*packed).Bytes(), late.Bytes())
			switch then {
			case "kept":
				var want, got bytes.Buffer
				_, err := eager.WriteTo(&want)
				require.NoError(t, err)
				_, err = from.kept.WriteTo(&got)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want.Bytes(), got.Bytes()), "%v", d)
				require.Equal(t, source, from.bytes())
			case "many rows":
				a := normal(lowRun+1, k)
				want, err := runWeight(ctx, e, s, eager, a)
				require.NoError(t, err)
				got, err := runWeight(ctx, e, s, late, a)
				require.NoError(t, err)
				require.Equal(t, want, got, "%v", d)
				require.Equal(t, source, from.bytes())
			}
			require.NoError(t, late.Close())
			_, err := runWeight(ctx, e, s, late, a)
			require.ErrorContains(t, err, "closed")
			require.NoError(t, eager.Close())
		}
	}
}

// Runs side by side meet the weight while one of them packs it.
func TestLateWeightsSideBySide(t *testing.T) {
	e := newBackend(2, cpuinfo.Get().ISA).engine
	for _, d := range lateTypes {
		late, from, eager, s := lateWeight(t, e, d, 1000, 512)
		a := normal(3, 512)
		want, err := runWeight(context.Background(), e, s, eager, a)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range lateTurns {
					got, err := runWeight(context.Background(), e, s, late, a)
					if err != nil || !slices.Equal(want, got) {
						t.Errorf("%v: other bits, or %v", d, err)
					}
				}
			})
		}
		wg.Wait()
		source := late.late.source
		require.Equal(t, len(source.Raw()), from.bytes())
		require.NoError(t, late.Close())
	}
}

// A context that has ended stops a run that would pack; the weight stays as it was, and the next run packs it.
func TestLateWeightsWithAnEndedContext(t *testing.T) {
	e := newBackend(1, cpuinfo.Get().ISA).engine
	for _, d := range lateTypes {
		late, from, eager, s := lateWeight(t, e, d, 64, 256)
		a := normal(lowRun+1, 256)
		want, err := runWeight(context.Background(), e, s, eager, a)
		require.NoError(t, err)
		_, err = runWeight(context.Background(), e, s, late, a)
		require.NoError(t, err)
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = runWeight(ended, e, s, late, a)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, from.bytes())
		got, err := runWeight(context.Background(), e, s, late, a)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NotZero(t, from.bytes())
	}
}

// What is offered to be kept is packed when it is written, and then serves the runs.
func TestLateWeightsAreKept(t *testing.T) {
	e := newBackend(1, cpuinfo.Get().ISA).engine
	for _, d := range lateTypes {
		late, from, eager, _ := lateWeight(t, e, d, 64, 256)
		require.Zero(t, from.bytes())
		var want, got bytes.Buffer
		_, err := eager.WriteTo(&want)
		require.NoError(t, err)
		_, err = from.kept.WriteTo(&got)
		require.NoError(t, err)
		require.Equal(t, want.Bytes(), got.Bytes(), "%v", d)
		require.NotNil(t, late.late.packed.Load())
		require.NoError(t, late.Close())
		_, err = from.kept.WriteTo(&got)
		require.ErrorContains(t, err, "closed")
	}
}
