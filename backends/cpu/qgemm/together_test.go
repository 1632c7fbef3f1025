package qgemm

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/tensor"
)

// addOne is an epilogue that shows what pieces it was called for.
type addOne struct{}

func (addOne) Apply(c []float32, _, _ int) {
	for i := range c {
		c[i]++
	}
}

// Products that run together have the bits of those one after the other, whether they round A alike or not.
func TestMulTogether(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	const k = 768
	ctx := context.Background()
	for _, formats := range [][]tensor.DType{
		{tensor.Q4_0}, {tensor.Q4_0, tensor.Q4_0, tensor.Q4_0}, {tensor.Q4_K, tensor.Q6_K}, {tensor.Q8_0, tensor.Q4_1, tensor.Q8_0}, {tensor.Q4_K, tensor.Q4_K, tensor.Q6_K, tensor.IQ4_NL, tensor.Q4_K},
	} {
		var weight []*Packed
		for i, d := range formats {
			data, rowBytes, _ := weights(t, rng, d, []int{83, 512, 1, 640, 48}[i], k)
			p, err := Pack(d, data, rowBytes, []int{83, 512, 1, 640, 48}[i], k, nil)
			require.NoError(t, err)
			weight = append(weight, p)
		}
		for _, isa := range cpuinfo.Get().ISAs {
			for _, m := range []int{0, 1, 3, 20, 70} {
				for _, threads := range []int{1, 2, 5} {
					a := activations(rng, max(m, 1)*k)
					source := Source{uint64(isa), uint64(threads*1000 + m)}
					var runs []*Run
					var want [][]float32
					for i, p := range weight {
						r := &Run{A: a, LDA: k, C: make([]float32, max(m, 1)*(p.n+i)), LDC: p.n + i, M: m, Threads: threads, ISA: isa, Accumulate: i == 1}
						if i == 2 {
							r.Then = addOne{}
						}
						require.NoError(t, p.Mul(ctx, r))
						want = append(want, r.C)
						again := *r
						again.C, again.Source = make([]float32, len(r.C)), source
						runs = append(runs, &again)
					}
					require.NoError(t, MulTogether(ctx, weight, runs))
					for i, r := range runs {
						require.Equal(t, want[i], r.C, "%v of %v, %v, m=%d, %d threads", formats[i], formats, isa, m, threads)
						r.Accumulate = false
					}
					if m > 0 && threads == 1 {
						require.Zero(t, testing.AllocsPerRun(3, func() { _ = MulTogether(ctx, weight, runs) }))
					}
				}
			}
		}
	}
}

// What cannot run together is refused before anything is written.
func TestMulTogetherRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	const n, k = 32, 64
	data, rowBytes, _ := weights(t, rng, tensor.Q8_0, n, k)
	p, err := Pack(tensor.Q8_0, data, rowBytes, n, k, nil)
	require.NoError(t, err)
	a, c := activations(rng, 2*k), make([]float32, 2*n)
	for name, change := range map[string]func(r *Run){
		"C of run 1 overlaps":    func(r *Run) { r.C = c[n-1:][:n] },
		"run 1 has another A":    func(r *Run) { r.A = a[1:] },
		"run 1 has another A or": func(r *Run) { r.Threads = 1 },
		"M = -1":                 func(r *Run) { r.M = -1 },
		"C overlaps A":           func(r *Run) { r.C = a[:n] },
	} {
		runs := []*Run{{A: a, LDA: k, C: c[:n], LDC: n, M: 1}, {A: a, LDA: k, C: c[n:], LDC: n, M: 1}}
		change(runs[1])
		require.ErrorContains(t, MulTogether(context.Background(), []*Packed{p, p}, runs), name)
		require.Zero(t, c[0])
	}
	require.Error(t, MulTogether(context.Background(), []*Packed{p}, nil))
	require.NoError(t, MulTogether(context.Background(), nil, nil))
}

// Products that run together take no more from the pool than the largest of them is said to, whatever runs before and after.
func TestWorkspaceOfProductsTogether(t *testing.T) {
	const k = 512
	ctx := context.Background()
	for _, formats := range [][]tensor.DType{{tensor.Q4_0, tensor.Q4_0, tensor.Q4_0}, {tensor.Q4_K, tensor.Q4_K, tensor.Q6_K}, {tensor.Q8_0, tensor.Q6_K, tensor.Q8_0}} {
		for _, isa := range cpuinfo.Get().ISAs {
			for _, m := range []int{1, 3, 70} {
				Trim()
				var weight []*Packed
				var runs []*Run
				var most [3]int
				a := make([]float32, m*k)
				for i, d := range formats {
					n := 40 + 200*i
					p, err := Pack(d, make([]byte, n*k/d.Block()*d.Size()), k/d.Block()*d.Size(), n, k, nil)
					require.NoError(t, err)
					r := &Run{A: a, LDA: k, C: make([]float32, m*n), LDC: n, M: m, Threads: 4, ISA: isa, Source: Source{1, uint64(isa)}}
					bytes, err := p.WorkspaceBytes(r)
					require.NoError(t, err)
					for j, b := range bytes {
						most[j] = max(most[j], b)
					}
					weight, runs = append(weight, p), append(runs, r)
				}
				for range 2 {
					require.NoError(t, weight[0].Mul(ctx, runs[0]))
					require.NoError(t, MulTogether(ctx, weight, runs))
					require.NoError(t, weight[2].Mul(ctx, runs[2]))
				}
				require.LessOrEqual(t, Pooled(), most[0]+most[1]+most[2], "%v, %v, %d rows", formats, isa, m)
			}
		}
	}
}

// ends is an epilogue that ends the context, or panics.
type ends struct {
	cancel context.CancelCauseFunc
	panics bool
}

var errEnds = errors.New("ends")

func (e ends) Apply([]float32, int, int) {
	e.cancel(errEnds)
	if e.panics {
		panic(errEnds)
	}
}

// A product that ends early, by its context or by a panic, leaves nothing behind: works of the pool refer to none of its operands, and the next products have the
// right bits.
func TestEndsEarly(t *testing.T) {
	rng := rand.New(rand.NewPCG(45, 46))
	const n, k = 500, 256
	data, rowBytes, _ := weights(t, rng, tensor.Q4_0, n, k)
	p, err := Pack(tensor.Q4_0, data, rowBytes, n, k, nil)
	require.NoError(t, err)
	for _, m := range []int{1, 70} {
		a := activations(rng, m*k)
		want := make([]float32, m*n)
		require.NoError(t, p.Mul(context.Background(), &Run{A: a, LDA: k, C: want, LDC: n, M: m}))
		for _, threads := range []int{1, 3} {
			for _, panics := range []bool{false, true} {
				runs := make([]*Run, 3)
				for i := range runs {
					runs[i] = &Run{A: a, LDA: k, C: make([]float32, m*n), LDC: n, M: m, Threads: threads, Source: Source{uint64(m), uint64(threads)}}
				}
				for _, together := range []bool{false, true} {
					ctx, cancel := context.WithCancelCause(context.Background())
					runs[1].Then = ends{cancel, panics}
					mul := func() error { return p.Mul(ctx, runs[1]) }
					if together {
						mul = func() error { return MulTogether(ctx, []*Packed{p, p, p}, runs) }
					}
					if panics {
						require.PanicsWithValue(t, errEnds, func() { _ = mul() })
					} else {
						require.ErrorIs(t, mul(), errEnds)
					}
					for w := spare.list; w != nil; w = w.next {
						require.True(t, w.p == nil && w.r == nil && w.ctx == nil && w.holder == nil)
					}
					runs[1].Then = nil
					require.NoError(t, MulTogether(context.Background(), []*Packed{p, p, p}, runs))
					for _, r := range runs {
						require.Equal(t, want, r.C)
						clear(r.C)
					}
				}
			}
		}
	}
}
