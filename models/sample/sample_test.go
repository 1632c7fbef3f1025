package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// logs turns probabilities into logits.
func logs(p ...float64) []float32 {
	x := make([]float32, len(p))
	for i, v := range p {
		x[i] = float32(math.Log(v))
	}
	return x
}

func distribution(t *testing.T, o Options, logits []float32, said ...int32) map[int32]float64 {
	s, err := New(o)
	require.NoError(t, err)
	s.Accept(said...)
	c, err := s.Distribution(logits)
	require.NoError(t, err)
	d := map[int32]float64{}
	for i, k := range c {
		d[k.ID] = k.Prob
		if i > 0 {
			require.LessOrEqual(t, k.Prob, c[i-1].Prob)
		}
	}
	return d
}

func TestTruncation(t *testing.T) {
	x := logs(0.1, 0.4, 0.05, 0.25, 0.2)
	for _, c := range []struct {
		name string
		o    Options
		want map[int32]float64
	}{
		{"all", Options{Temperature: 1}, map[int32]float64{0: 0.1, 1: 0.4, 2: 0.05, 3: 0.25, 4: 0.2}},
		{"top-k", Options{Temperature: 1, TopK: 2}, map[int32]float64{1: 0.4 / 0.65, 3: 0.25 / 0.65}},
		{"top-k of one", Options{Temperature: 5, TopK: 1}, map[int32]float64{1: 1}},
		{"top-p", Options{Temperature: 1, TopP: 0.6}, map[int32]float64{1: 0.4 / 0.65, 3: 0.25 / 0.65}},
		{"top-p of almost nothing", Options{Temperature: 1, TopP: 1e-9}, map[int32]float64{1: 1}},
		{"top-p after top-k", Options{Temperature: 1, TopK: 3, TopP: 0.5}, map[int32]float64{1: 0.4 / 0.65, 3: 0.25 / 0.65}},
		{"min-p", Options{Temperature: 1, MinP: 0.45}, map[int32]float64{1: 0.4 / 0.85, 3: 0.25 / 0.85, 4: 0.2 / 0.85}},
		{"min-p does not change top-p's sum", Options{Temperature: 1, MinP: 0.3, TopP: 0.9}, map[int32]float64{1: 0.4 / 0.85, 3: 0.25 / 0.85, 4: 0.2 / 0.85}},
		{"temperature", Options{Temperature: 0.5, TopK: 2}, map[int32]float64{1: 0.16 / 0.2225, 3: 0.0625 / 0.2225}},
		{"greedy", Options{}, map[int32]float64{1: 1}},
		{"bias", Options{Bias: map[int32]float64{2: 3, 99: 5, -1: 2}}, map[int32]float64{2: 1}},
		{"forbidden", Options{Bias: map[int32]float64{1: math.Inf(-1)}}, map[int32]float64{3: 1}},
	} {
		got := distribution(t, c.o, x)
		require.Len(t, got, len(c.want), c.name)
		for id, p := range c.want {
			require.InDelta(t, p, got[id], 1e-6, c.name)
		}
	}
}

func TestPenalties(t *testing.T) {
	x := []float32{2, 1, -1, 0}
	said := []int32{0, 0, 2}
	logit := func(o Options, id int32, said ...int32) float64 {
		o.Temperature = 1
		d := distribution(t, o, x, said...)
		return math.Log(d[id] / d[3]) // token 3 has logit 0 and is never said
	}
	require.InDelta(t, 1, logit(Options{Repetition: 2}, 0, said...), 1e-6)
	require.InDelta(t, -2, logit(Options{Repetition: 2}, 2, said...), 1e-6)
	require.InDelta(t, 1, logit(Options{Repetition: 2}, 1, said...), 1e-6)
	require.InDelta(t, 1.5, logit(Options{Presence: 0.5}, 0, said...), 1e-6)
	require.InDelta(t, 1, logit(Options{Frequency: 0.5}, 0, said...), 1e-6)
	require.InDelta(t, 1.5, logit(Options{Frequency: 0.5, Window: 2}, 0, said...), 1e-6, "the first has left the window")
	require.InDelta(t, 2, logit(Options{Frequency: 0.5, Window: 2}, 0, 0, 0, 2, 2), 1e-6)
	require.InDelta(t, -30, logit(Options{Frequency: 0.5, Window: -1}, 2, slices.Repeat([]int32{2}, 58)...), 1e-4)
}

func TestDraws(t *testing.T) {
	x := logs(0.1, 0.4, 0.05, 0.25, 0.2)
	draw := func(seed uint64) (ids []int32, counts [5]int) {
		s, err := New(Options{Temperature: 1, Seed: seed})
		require.NoError(t, err)
		for range 20000 {
			id, err := s.Sample(x)
			require.NoError(t, err)
			ids = append(ids, id)
			counts[id]++
		}
		return ids, counts
	}
	a, counts := draw(1)
	b, _ := draw(1)
	c, _ := draw(2)
	require.Equal(t, a, b)
	require.NotEqual(t, a, c)
	for i, p := range []float64{0.1, 0.4, 0.05, 0.25, 0.2} {
		require.InDelta(t, p, float64(counts[i])/20000, 0.015)
	}
}

func TestOdd(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, temperature := range []float64{0, 1} {
		s, err := New(Options{Temperature: temperature})
		require.NoError(t, err)
		_, err = s.Sample([]float32{nan, -inf})
		require.ErrorContains(t, err, "none of 2 logits")
		_, err = s.Sample(nil)
		require.Error(t, err)
		id, err := s.Sample([]float32{nan, 3, -inf, nan})
		require.NoError(t, err)
		require.Equal(t, int32(1), id)
		id, err = s.Sample([]float32{1, inf, inf})
		require.NoError(t, err)
		require.Equal(t, int32(1), id)
	}
	for _, o := range []Options{{Temperature: -1}, {TopK: -1}, {TopP: 1.5}, {MinP: -0.1}, {Temperature: math.NaN()}, {Repetition: -2}, {Presence: math.Inf(1)},
		{Frequency: math.NaN()}, {MinP: math.NaN()}, {TopP: math.NaN()}, {Repetition: math.Inf(1)}, {Bias: map[int32]float64{1: math.NaN()}}, {Bias: map[int32]float64{0: 1, 1: math.Inf(1)}},
		{Bias: map[int32]float64{1: 1e39}}, {Bias: map[int32]float64{1: -1e39}}} {
		_, err := New(o)
		require.Error(t, err)
	}
}

func TestSelectTop(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		x := make([]int32, 1+r.IntN(60))
		for i := range x {
			x[i] = int32(r.IntN(20))
		}
		k := r.IntN(len(x) + 1)
		want := slices.Clone(x)
		slices.Sort(want)
		selectTop(x, k, func(a, b int32) int { return int(a - b) })
		got := slices.Clone(x[:k])
		slices.Sort(got)
		require.Equal(t, want[:k], got)
	}
}

func TestTopAndLogProbs(t *testing.T) {
	x := logs(0.1, 0.4, 0.05, 0.25, 0.2)
	top := Top(x, 3)
	require.Equal(t, []int32{1, 3, 4}, []int32{top[0].ID, top[1].ID, top[2].ID})
	require.InDelta(t, 0.4, top[0].Prob, 1e-6)
	require.Len(t, Top(x, 99), 5)
	LogProbs(x, x)
	require.InDelta(t, math.Log(0.05), x[2], 1e-6)
	require.InDelta(t, 1000, LogSumExp([]float32{1000, -1000}), 1e-9)
	require.True(t, math.IsInf(LogSumExp(nil), -1))
}

func BenchmarkSample(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	x := make([]float32, 32000)
	for i := range x {
		x[i] = float32(r.NormFloat64() * 3)
	}
	for name, o := range map[string]Options{"greedy": {}, "top-k": {Temperature: 0.8, TopK: 40}, "top-p": {Temperature: 0.8, TopP: 0.95, MinP: 0.05}} {
		b.Run(name, func(b *testing.B) {
			s, _ := New(o)
			for b.Loop() {
				_, _ = s.Sample(x)
			}
		})
	}
}
