package conv

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFed compares a pair of convolutions in one run with two runs, bit by bit.
func TestFed(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	trials := 60
	if testing.Short() { // under emulation; every activation and epilogue still occurs
		trials = 20
	}
	for _, isa := range isas() {
		for i := range trials {
			stride := 1 + i%2
			s := Spec{N: 1 + rng.IntN(3), H: 1 + rng.IntN(20), W: 1 + rng.IntN(40), C: 2 + rng.IntN(60), KH: 1 + rng.IntN(5), KW: 1 + rng.IntN(5), SH: stride, SW: stride, DH: 1, DW: 1}
			s.M, s.Groups, s.Top, s.Left = s.C, s.C, s.KH/2, s.KW/2
			s.OH, s.OW = (s.H+2*s.Top-s.KH)/stride+1, (s.W+2*s.Left-s.KW)/stride+1
			q := Spec{N: s.N, H: s.OH, W: s.OW, C: s.C, M: 1 + rng.IntN(70), KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: s.OH, OW: s.OW, Groups: 1}
			f, err := Pack(s, randomOf(rng, s.C*s.KH*s.KW), nil, isa)
			require.NoError(t, err)
			g, err := Pack(q, randomOf(rng, q.C*q.M), nil, isa)
			require.NoError(t, err)
			n := q.N * q.OH * q.OW * q.M
			first := &Args{X: randomOf(rng, s.N*s.H*s.W*s.C), Y: make([]float32, s.N*s.OH*s.OW*s.C), Bias: randomOf(rng, s.C), Act: actCases[i%len(actCases)].act}
			second := &Args{X: first.Y, Y: make([]float32, n), Bias: randomOf(rng, q.M), Act: actCases[i/2%len(actCases)].act}
			if i%3 == 0 {
				second.Residual = randomOf(rng, n)
			}
			if i%5 == 0 {
				second.Post = func(_ int, y []float32) {
					for j := range y {
						y[j] /= 4
					}
				}
			}
			for _, threads := range []int{1, 2, 5} {
				p, err := NewPlan(f, s, threads)
				require.NoError(t, err)
				r, err := NewPlan(g, q, threads)
				require.NoError(t, err)
				p.Run(first)
				r.Run(second)
				want := second.Y
				fed := r.Feed(p)
				require.NotNil(t, fed)
				a, b := *first, *second
				a.Y, b.X, b.Y = nil, nil, make([]float32, n) // neither is touched
				fed.Run(&a, &b)
				if !slices.Equal(want, b.Y) {
					require.Equal(t, want, b.Y, "%+v by %+v, %d threads", s, q, threads)
				}
				if i%4 == 0 {
					clear(b.Y)
					y := b.Y
					b.Y, b.Store = nil, func(i int, row []float32) { copy(y[i:], row) }
					if b.Residual == nil {
						fed.Run(&a, &b)
						require.Equal(t, want, y)
					}
				}
				require.LessOrEqual(t, fed.Held(), fed.WorkspaceBytes(true))
				r.Run(second) // the plans are as they were
				require.Equal(t, want, second.Y)
			}
		}
	}
}

// TestFeedRefuses asks for pairs that are none.
func TestFeedRefuses(t *testing.T) {
	s := Spec{N: 1, H: 4, W: 4, C: 8, M: 8, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 4, OW: 4, Groups: 8}
	q := Spec{N: 1, H: 4, W: 4, C: 8, M: 8, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 4, OW: 4, Groups: 1}
	plan := func(s Spec, threads int) *Plan {
		f, err := Pack(s, make([]float32, s.M*s.C/s.Groups*s.KH*s.KW), nil, isas()[0])
		require.NoError(t, err)
		p, err := NewPlan(f, s, threads)
		require.NoError(t, err)
		return p
	}
	require.NotNil(t, plan(q, 1).Feed(plan(s, 1)))
	require.Nil(t, plan(q, 1).Feed(plan(s, 2)), "other workers")
	require.Nil(t, plan(q, 1).Feed(plan(q, 1)), "no depthwise convolution")
	require.Nil(t, plan(s, 1).Feed(plan(s, 1)), "no 1x1 convolution")
	wide := q
	wide.C, wide.M = 512, 512
	deep := s
	deep.C, deep.M, deep.Groups = 512, 512, 512
	require.Nil(t, plan(wide, 1).Feed(plan(deep, 1)), "a filter that does not stay in L2")
	small := q
	small.H, small.OH = 3, 3
	require.Nil(t, plan(small, 1).Feed(plan(s, 1)), "another size")
}
