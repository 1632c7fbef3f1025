package tune

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/tessera-go/tessera/backends/cpu" // for all thresholds of the backend
	"github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/internal/knob"
)

// fake gives times by a formula and remembers what it was asked.
type fake struct {
	calls int
	time  func(call int, c Case, knobs map[string]int) (time.Duration, error)
}

func (f *fake) Time(_ context.Context, c Case, knobs map[string]int) (time.Duration, error) {
	f.calls++
	return f.time(f.calls, c, knobs)
}

var (
	small = Case{Kind: F32, M: 1, N: 1, K: 1}
	large = Case{Kind: F32, M: 9, N: 9, K: 9}
)

// valley is fastest where the value is best, by 10 % a doubling.
func valley(v, best int) time.Duration {
	return time.Duration(float64(time.Millisecond) * (1 + 0.1*math.Abs(math.Log2(float64(v)/float64(best)))))
}

func TestBestValueWins(t *testing.T) {
	f := &fake{time: func(_ int, _ Case, k map[string]int) (time.Duration, error) { return valley(k["kc-max"], 1024), nil }}
	var ticks []int
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", []int{256, 512, 1024, 2048}, []Case{small, large}}}, Rounds: 3, Margin: 0.02,
		Progress: func(done, total int, what string) {
			require.Equal(t, 6, total)
			require.Contains(t, what, "kc-max: f32")
			ticks = append(ticks, done)
		}})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "TESSERA_KC_MAX", got[0].Env)
	require.Equal(t, 512, got[0].Before)
	require.Equal(t, 1024, got[0].Value)
	require.InDelta(t, 1-1/1.1, got[0].Saved, 1e-3)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, ticks)
	require.Equal(t, 4*2*3+2*2*3, f.calls, "the current value is among the candidates and measured once a round; then the two best again")
	var values []int
	for _, c := range got[0].Candidates {
		values = append(values, c.Value)
	}
	require.Equal(t, []int{256, 512, 1024, 2048}, values)
	require.Equal(t, map[string]int{"kc-max": 1024}, Values(got))
}

func TestMarginKeepsTheCurrentValue(t *testing.T) {
	f := &fake{time: func(_ int, _ Case, k map[string]int) (time.Duration, error) {
		if k["kc-max"] == 1024 {
			return 985 * time.Microsecond, nil
		}
		return time.Millisecond, nil
	}}
	steps := []Step{{"kc-max", []int{1024}, []Case{small}}}
	got, err := Run(context.Background(), f, Config{Steps: steps, Rounds: 3, Margin: 0.02})
	require.NoError(t, err)
	require.Equal(t, 512, got[0].Value)
	require.Zero(t, got[0].Saved)
	got, err = Run(context.Background(), f, Config{Steps: steps, Rounds: 3, Margin: 0.01})
	require.NoError(t, err)
	require.Equal(t, 1024, got[0].Value)
}

// A clock that becomes slower while it measures, and single disturbed measurements, decide nothing.
func TestDriftAndDisturbance(t *testing.T) {
	f := &fake{time: func(call int, _ Case, k map[string]int) (time.Duration, error) {
		d := float64(valley(k["kc-max"], 256))
		d *= 1 + 0.001*float64(call)
		if call%7 == 3 {
			d *= 3
		}
		return time.Duration(d), nil
	}}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", []int{256, 384, 768, 1024}, []Case{small, large}}}, Rounds: 9, Margin: 0.02})
	require.NoError(t, err)
	require.Equal(t, 256, got[0].Value)
}

// A value whose times scatter widely around those of the current one does not win by its median.
func TestScatterDoesNotWin(t *testing.T) {
	times := []time.Duration{500, 1400, 900, 1600, 600, 1500, 950, 1700, 940} // against 1000; the median is 950
	next := 0
	f := &fake{time: func(_ int, _ Case, k map[string]int) (time.Duration, error) {
		if k["kc-max"] == 1024 {
			next++
			return times[(next-1)%len(times)] * time.Microsecond, nil
		}
		return time.Millisecond, nil
	}}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", []int{1024}, []Case{small}}}, Rounds: len(times), Margin: 0.02})
	require.NoError(t, err)
	require.InDelta(t, 0.95, got[0].Candidates[1].Ratio, 1e-9)
	require.Equal(t, 512, got[0].Value)
}

// Of many values that are all alike, the one that happened to be fastest is compared again before it replaces the current one.
func TestLuckDoesNotWin(t *testing.T) {
	const rounds = 5
	values := []int{256, 384, 768, 1024, 1536, 2048}
	f := &fake{time: func(call int, _ Case, k map[string]int) (time.Duration, error) {
		if first := (len(values) + 1) * rounds; k["kc-max"] == 768 && call <= first {
			return 900 * time.Microsecond, nil
		}
		return time.Millisecond, nil
	}}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", values, []Case{small}}}, Rounds: rounds, Margin: 0.02})
	require.NoError(t, err)
	require.Equal(t, 512, got[0].Value)
	require.Zero(t, got[0].Saved)
	require.InDelta(t, 0.9, got[0].Candidates[3].Ratio, 1e-9)
}

// Being first in a round costs as often as being last: a first measurement that is always slow decides nothing.
func TestOrderDecidesNothing(t *testing.T) {
	f := &fake{time: func(call int, _ Case, _ map[string]int) (time.Duration, error) {
		if call%3 == 1 { // three values a round
			return 1100 * time.Microsecond, nil
		}
		return time.Millisecond, nil
	}}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", []int{256, 1024}, []Case{small, large}}}, Rounds: 9, Margin: 0.02})
	require.NoError(t, err)
	require.Equal(t, 512, got[0].Value)
}

// Cases weigh alike, however long they take: a value that halves a short case and adds a tenth to a long one wins.
func TestCasesWeighAlike(t *testing.T) {
	f := &fake{time: func(_ int, c Case, k map[string]int) (time.Duration, error) {
		d := 100 * time.Microsecond
		if c == large {
			d = time.Second
		}
		if k["kc-max"] == 1024 {
			if c == large {
				return d * 11 / 10, nil
			}
			return d / 2, nil
		}
		return d, nil
	}}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", []int{1024}, []Case{small, large}}}, Margin: 0.02})
	require.NoError(t, err)
	require.Equal(t, 1024, got[0].Value)
	require.InDelta(t, 1-math.Sqrt(0.55), got[0].Saved, 1e-6)
}

// Later steps are measured with what earlier ones decided, and with the current value of everything else.
func TestStepsBuildOnEachOther(t *testing.T) {
	share := slices.IndexFunc(knob.All(), func(d *knob.Def) bool { return d.Name == "b-percent" })
	f := &fake{time: func(_ int, c Case, k map[string]int) (time.Duration, error) {
		require.Equal(t, 7, k["low-rows"])
		if c == large {
			require.Equal(t, 1024, k["kc-max"])
			return valley(k["b-percent"], 20), nil
		}
		require.Equal(t, knob.All()[share].Default, k["b-percent"])
		return valley(k["kc-max"], 1024), nil
	}}
	got, err := Run(context.Background(), f, Config{Margin: 0.02, Rounds: 2,
		Steps: []Step{{"kc-max", []int{1024}, []Case{small}}, {"b-percent", []int{20}, []Case{large}}},
		Current: func(d *knob.Def) (int, bool) {
			if d.Name == "low-rows" {
				return 7, false
			}
			return d.Default, false
		}})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"kc-max": 1024, "b-percent": 20}, Values(got))
}

func TestFixedIsNotTried(t *testing.T) {
	f := &fake{time: func(int, Case, map[string]int) (time.Duration, error) { return 0, errors.New("not to be called") }}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-max", []int{1024}, []Case{small}}},
		Current: func(d *knob.Def) (int, bool) { return 300, d.Name == "kc-max" }})
	require.NoError(t, err)
	require.True(t, got[0].Fixed)
	require.Equal(t, 300, got[0].Value)
	require.Empty(t, Values(got))
}

func TestRunRefuses(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		step Step
		time time.Duration
		err  error
		text string
	}{
		{Step{"speed", []int{1}, []Case{small}}, 1, nil, `no threshold "speed"`},
		{Step{"kc-max", []int{1}, []Case{small}}, 1, nil, "kc-max: 1, want a number from 8"},
		{Step{"kc-max", []int{16}, nil}, 1, nil, "no case"},
		{Step{"kc-max", []int{16}, []Case{small}}, 0, nil, "a time of 0s"},
		{Step{"kc-max", []int{16}, []Case{small}}, 1, broken, "kc-max=512, f32 1x1x1: broken"},
	} {
		f := &fake{time: func(int, Case, map[string]int) (time.Duration, error) { return c.time, c.err }}
		_, err := Run(context.Background(), f, Config{Steps: []Step{c.step}})
		require.ErrorContains(t, err, c.text)
	}
}

// The steps that are measured are legal, their cases can be run, and each has a value beside the default to try.
func TestStepsAreLegal(t *testing.T) {
	f := &fake{time: func(int, Case, map[string]int) (time.Duration, error) { return 1, nil }}
	steps := Steps(2)
	_, err := Run(context.Background(), f, Config{Steps: steps})
	require.NoError(t, err)
	require.Less(t, len(Steps(1)), len(steps))
	defs := map[string]*knob.Def{}
	for _, d := range knob.All() {
		defs[d.Name] = d
	}
	for _, s := range steps {
		require.GreaterOrEqual(t, len(s.Values), 3, s.Knob)
		require.Contains(t, s.Values, defs[s.Knob].Default, "%s: the default is one of the values", s.Knob)
	}
	chosen, unknown := Select(steps, []string{"low-rows", "nothing", "kc-max"})
	require.Equal(t, []string{"nothing"}, unknown)
	require.Equal(t, "kc-max", chosen[0].Knob)
	require.Len(t, chosen, 2)
}

// Every threshold is measured, or it is said why not, never both.
func TestEveryThresholdIsAccountedFor(t *testing.T) {
	why := Unmeasured()
	var measured, want []string
	for _, s := range Steps(2) {
		require.NotContains(t, why, s.Knob, "it is measured")
		require.NotContains(t, measured, s.Knob, "measured twice")
		measured = append(measured, s.Knob)
	}
	for _, d := range knob.All() {
		want = append(want, d.Name)
	}
	for name, reason := range why {
		require.NotEmpty(t, reason, name)
		measured = append(measured, name)
	}
	require.ElementsMatch(t, want, measured)
}

// A value that contradicts another threshold is not tried.
func TestContradictionsAreNotTried(t *testing.T) {
	f := &fake{time: func(_ int, _ Case, k map[string]int) (time.Duration, error) {
		require.LessOrEqual(t, k["kc-min"], k["kc-max"])
		return valley(k["kc-min"], 1024), nil
	}}
	got, err := Run(context.Background(), f, Config{Steps: []Step{{"kc-min", []int{64, 256, 1024}, []Case{small}}}, Margin: 0.02,
		Current: func(d *knob.Def) (int, bool) {
			if d.Name == "kc-max" {
				return 300, true
			}
			return d.Default, false
		}})
	require.NoError(t, err)
	require.Equal(t, 256, got[0].Value)
	require.Len(t, got[0].Candidates, 3)
}

// A case of each step runs with every value that is tried, as Run asks for it.
func TestStepsRun(t *testing.T) {
	clock := &Clock{Least: time.Nanosecond, Workers: 2}
	defer clock.Close()
	for _, s := range Steps(2) {
		for _, c := range s.Cases[:1] {
			if testing.Short() { // under emulation the products themselves take minutes
				c.M, c.N, c.K, c.Batch = min(c.M, 48), min(c.N, 64), min(c.K, 64), min(c.Batch, 4)
				if c.Image.Groups == 1 {
					c.Image.C, c.Image.M = min(c.Image.C, 16), min(c.Image.M, 16)
				}
			}
			for _, v := range s.Values {
				d, err := clock.Time(context.Background(), c, map[string]int{s.Knob: v})
				require.NoError(t, err, "%s=%d %v", s.Knob, v, c)
				require.Positive(t, d)
			}
		}
	}
}

// TestClock measures on this processor: every kind of product with other thresholds, and one short real run.
func TestClock(t *testing.T) {
	ctx := context.Background()
	clock := &Clock{Least: 100 * time.Microsecond}
	defer clock.Close()
	for _, c := range []Case{
		{Kind: F32, M: 20, N: 40, K: 30}, {Kind: F32, M: 20, N: 40, K: 30, Plain: true}, {Kind: F32, M: 20, N: 40, K: 30, ColA: true},
		{Kind: BF16, M: 3, N: 40, K: 30}, {Kind: S8, M: 70, N: 40, K: 66}, {Kind: Q4, M: 3, N: 40, K: 64, All: true}, {Kind: F32, M: 8, N: 9, K: 10, Batch: 5, All: true},
		{Kind: Conv, Image: conv.Spec{N: 1, H: 9, W: 8, C: 4, M: 6, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 9, OW: 8, Groups: 1}},
	} {
		for _, knobs := range []map[string]int{nil, {"kc-max": 16, "kc-min": 16, "low-rows": 0, "q-few-rows": 0}} {
			d, err := clock.Time(ctx, c, knobs)
			require.NoError(t, err, "%v", c)
			require.Positive(t, d)
			require.Less(t, d, time.Minute)
		}
	}
	_, err := clock.Time(ctx, Case{Kind: "s3", M: 1, N: 1, K: 1}, nil)
	require.ErrorContains(t, err, "no products of s3")
	_, err = clock.Time(ctx, Case{Kind: Conv}, nil)
	require.Error(t, err, "a convolution without a size")
	_, err = clock.Time(ctx, small, map[string]int{"kc-max": 1})
	require.ErrorContains(t, err, "kc-max is 1")

	got, err := Run(ctx, clock, Config{Rounds: 1, Margin: 0.02, Steps: []Step{
		{"kc-max", []int{128, 512}, []Case{{Kind: F32, M: 64, N: 64, K: 64}}}, {"q-few-rows", []int{0}, []Case{{Kind: Q4, M: 2, N: 32, K: 64}}}}})
	require.NoError(t, err)
	require.Len(t, got, 2)
	for _, c := range got {
		for _, v := range c.Candidates {
			require.Positive(t, v.Ratio)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Run(cancelled, clock, Config{Steps: Steps(1)})
	require.ErrorIs(t, err, context.Canceled)
}
