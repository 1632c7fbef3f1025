// Package tune measures the thresholds of the product engine on the processor that it runs on, and says which values are best
// there: `tessera tune` writes them to the profile that the library loads (internal/knob).
//
// Thresholds are decided one after another, each with those before it as decided. For one threshold, every candidate value runs
// every case of its step in every round, next to the current value and each round in another order, so that a clock that drifts meets
// all of them. What counts is the ratio of a candidate's time to the current value's in the same round: its median over the rounds for
// each case, and the geometric mean of those over the cases. A value replaces the current one only if it is faster by more than the
// margin, and if the same mean of the ratios that two of three rounds stay below is faster too: where times scatter, as on a shared
// machine with several workers, a median alone says little. The best of several candidates may only have been the luckiest, so it must
// win again, by the same rule, in a second comparison with the current value alone, whose ratio is the one that is told.
package tune

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tessera-go/tessera/backends/cpu/conv"
	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/backends/cpu/qgemm"
	"github.com/tessera-go/tessera/internal/knob"
	"github.com/tessera-go/tessera/internal/median"
)

// Case is a product that a threshold makes faster or slower.
type Case struct {
	Kind    Kind
	M, N, K int
	Plain   bool // the weights are packed in each call, not once
	ColA    bool // A is column-major
	All     bool // on all processors, else on one
	Batch   int  // products with weights of their own, 0 for one

	Image conv.Spec // of a convolution, instead of M, N and K
}

// Kind says what is multiplied.
type Kind string

// The kinds: f32 by f32, f32 by bf16 weights, int8 by int8, f32 by weights in blocks of 32 with 4 bits; and f32 convolutions.
const (
	F32  Kind = "f32"
	BF16 Kind = "bf16"
	S8   Kind = "s8"
	Q4   Kind = "q4_0"
	Conv Kind = "conv"
)

func (c Case) String() string {
	s := fmt.Sprintf("%s %dx%dx%d", c.Kind, c.M, c.N, c.K)
	if i := c.Image; c.Kind == Conv {
		s = fmt.Sprintf("conv %dx%dx%d to %d channels, %dx%d", i.H, i.W, i.C, i.M, i.KH, i.KW)
		if i.Depthwise() {
			s += " depthwise"
		}
		if i.Transposed {
			s += " transposed"
		}
	}
	if c.Batch > 1 {
		s += fmt.Sprintf(" batch of %d", c.Batch)
	}
	if c.Plain {
		s += " plain"
	}
	if c.ColA {
		s += " column-major A"
	}
	if c.All {
		s += " all processors"
	}
	return s
}

// Step is one threshold: the values to try and the cases that decide.
type Step struct {
	Knob   string
	Values []int
	Cases  []Case
}

// Measurer times one run of a case with thresholds, by name.
type Measurer interface {
	Time(ctx context.Context, c Case, knobs map[string]int) (time.Duration, error)
}

// Config is what Run decides by.
type Config struct {
	Steps    []Step
	Rounds   int                                       // measurements of each value and case in a comparison; at least 1
	Margin   float64                                   // the share of the time that a value must save to replace another
	Progress func(done, total int, what string)        // nil, or told after each measurement
	Current  func(d *knob.Def) (value int, fixed bool) // what a threshold is before; fixed ones are not tried. nil: defaults
}

// Candidate is a value that was tried.
type Candidate struct {
	Value int     `json:"value"`
	Ratio float64 `json:"ratio"` // of its time to that of the value before, over all cases
}

// Choice is the outcome for one threshold.
type Choice struct {
	Knob       string      `json:"knob"`
	Env        string      `json:"env"`
	Before     int         `json:"before"`
	Value      int         `json:"value"`
	Saved      float64     `json:"saved"`           // share of the time in the second comparison, 0 where nothing changes
	Fixed      bool        `json:"fixed,omitempty"` // by the environment, so that nothing was tried
	Candidates []Candidate `json:"candidates"`
}

// Run measures the steps in order and returns a choice for each.
func Run(ctx context.Context, m Measurer, c Config) ([]Choice, error) {
	defs := map[string]*knob.Def{}
	for _, d := range knob.All() {
		defs[d.Name] = d
	}
	now := map[string]int{}
	fixed := map[string]bool{}
	for name, d := range defs {
		now[name] = d.Default
		if c.Current != nil {
			now[name], fixed[name] = c.Current(d)
		}
	}
	total := 0
	for _, s := range c.Steps {
		d := defs[s.Knob]
		if d == nil {
			return nil, fmt.Errorf("tune: no threshold %q", s.Knob)
		}
		if len(s.Cases) == 0 {
			return nil, fmt.Errorf("tune: no case for threshold %q", s.Knob)
		}
		for _, v := range s.Values {
			if err := d.Check(v); err != nil {
				return nil, fmt.Errorf("tune: threshold %s: %w", s.Knob, err)
			}
		}
		if !fixed[s.Knob] {
			total += max(c.Rounds, 1) * len(s.Cases)
		}
	}
	done := 0
	var choices []Choice
	for _, s := range c.Steps {
		choice := Choice{Knob: s.Knob, Env: defs[s.Knob].Env, Before: now[s.Knob], Value: now[s.Knob], Fixed: fixed[s.Knob]}
		if !choice.Fixed {
			err := choice.decide(ctx, m, s, now, c, func(at Case) {
				done++
				if c.Progress != nil {
					c.Progress(done, total, s.Knob+": "+at.String())
				}
			})
			if err != nil {
				return nil, err
			}
			now[s.Knob] = choice.Value
		}
		choices = append(choices, choice)
	}
	return choices, nil
}

func (c *Choice) decide(ctx context.Context, m Measurer, s Step, now map[string]int, conf Config, tick func(Case)) error {
	values := []int{c.Before}
	for _, v := range s.Values {
		if !slices.Contains(values, v) && agree(now, s.Knob, v) {
			values = append(values, v)
		}
	}
	seen, err := compare(ctx, m, s, now, values, conf.Rounds, tick)
	if err != nil {
		return err
	}
	best := 0
	for i, v := range values {
		c.Candidates = append(c.Candidates, Candidate{v, seen[i].ratio})
		if seen[i].saves(conf.Margin) && (best == 0 || seen[i].ratio < seen[best].ratio) {
			best = i
		}
	}
	slices.SortFunc(c.Candidates, func(a, b Candidate) int { return a.Value - b.Value })
	if best == 0 {
		return nil
	}
	again, err := compare(ctx, m, s, now, []int{c.Before, values[best]}, conf.Rounds, func(Case) {})
	if err != nil {
		return err
	}
	if again[1].saves(conf.Margin) {
		c.Value, c.Saved = values[best], 1-again[1].ratio
	}
	return nil
}

// verdict is how a value compares with the current one over all cases.
type verdict struct {
	ratio float64 // geometric mean of the median ratios
	sober float64 // of the ratios that two of three rounds stay below
}

func (v verdict) saves(margin float64) bool { return v.ratio < 1-margin && v.sober < 1 }

// compare times values of a step's threshold against each other; the first one is the current value.
func compare(ctx context.Context, m Measurer, s Step, now map[string]int, values []int, rounds int, tick func(Case)) ([]verdict, error) {
	ratio, sober := make([]float64, len(values)), make([]float64, len(values)) // sums of logarithms over the cases
	for _, at := range s.Cases {
		ratios := make([][]float64, len(values))
		for round := range max(rounds, 1) {
			times := make([]time.Duration, len(values))
			for i := range values {
				i = (i + round) % len(values) // what comes first is no value's fate
				knobs := maps.Clone(now)
				knobs[s.Knob] = values[i]
				d, err := m.Time(ctx, at, knobs)
				if err != nil {
					return nil, fmt.Errorf("tune: %s=%d, %v: %w", s.Knob, values[i], at, err)
				}
				if d <= 0 {
					return nil, fmt.Errorf("tune: %s=%d, %v: a time of %v", s.Knob, values[i], at, d)
				}
				times[i] = d
			}
			for i, d := range times {
				ratios[i] = append(ratios[i], d.Seconds()/times[0].Seconds())
			}
			tick(at)
		}
		for i := range values {
			slices.Sort(ratios[i])
			ratio[i] += math.Log(median.Of(ratios[i]))
			sober[i] += math.Log(ratios[i][len(ratios[i])*2/3])
		}
	}
	verdicts := make([]verdict, len(values))
	for i := range values {
		n := float64(len(s.Cases))
		verdicts[i] = verdict{math.Exp(ratio[i] / n), math.Exp(sober[i] / n)}
	}
	return verdicts, nil
}

// agree says whether a value does not contradict what the other thresholds are.
func agree(now map[string]int, name string, value int) bool {
	knobs := maps.Clone(now)
	knobs[name] = value
	_, err1 := gemm.NewKnobs(only("backends/cpu/gemm", knobs))
	_, err2 := qgemm.NewKnobs(only("backends/cpu/qgemm", knobs))
	_, err3 := conv.NewKnobs(only("backends/cpu/conv", knobs))
	return err1 == nil && err2 == nil && err3 == nil
}

// Values returns the thresholds of choices by name, those that the environment fixes left out.
func Values(choices []Choice) map[string]int {
	values := map[string]int{}
	for _, c := range choices {
		if !c.Fixed {
			values[c.Knob] = c.Value
		}
	}
	return values
}
