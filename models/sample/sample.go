// Package sample decides which token follows: the most probable one, or one drawn from the distribution that remains after
// penalties and truncation.
//
// The steps come in this order: bias, penalties for what has been said, top-k, top-p, min-p, temperature, draw. So truncation looks
// at the model's own probabilities, not at tempered ones. With temperature 0 the most probable token is taken, the first of equals.
package sample

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Options say how tokens are drawn. The zero value is greedy: the most probable token.
type Options struct {
	Temperature float64 // 0: greedy; 1: the model's distribution
	TopK        int     // 0: all
	TopP        float64 // keep the most probable tokens whose probabilities reach it; 0 and 1: all
	MinP        float64 // keep tokens of at least this share of the largest probability

	Repetition float64 // above 1 weakens what has been said: logits are divided or multiplied by it; 0 and 1: off
	Presence   float64 // subtracted once from the logit of each token said
	Frequency  float64 // subtracted for each time it was said
	Window     int     // how many of the last tokens count as said; 0: 64, below 0: all

	Bias map[int32]float64 // added to logits: finite as float32, or -Inf, which forbids a token
	Seed uint64            // of the draws; equal seeds give equal texts
}

// Check returns an error for options out of range.
func (o Options) Check() error {
	bad := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
	switch {
	case o.Temperature < 0 || bad(o.Temperature):
		return fmt.Errorf("sample: temperature %g, 0 or more is right", o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("sample: top-k %d, 0 or more is right", o.TopK)
	case o.TopP < 0 || o.TopP > 1 || bad(o.TopP):
		return fmt.Errorf("sample: top-p %g, 0 to 1 is right", o.TopP)
	case o.MinP < 0 || o.MinP > 1 || bad(o.MinP):
		return fmt.Errorf("sample: min-p %g, 0 to 1 is right", o.MinP)
	case o.Repetition < 0 || bad(o.Repetition):
		return fmt.Errorf("sample: repetition penalty %g, a positive number is right", o.Repetition)
	case bad(o.Presence) || bad(o.Frequency):
		return fmt.Errorf("sample: presence and frequency penalties %g and %g must be finite", o.Presence, o.Frequency)
	}
	for id, b := range o.Bias {
		// Infinity would not prefer a token but make the distribution one of nothing else, whatever truncation and temperature say.
		if math.IsNaN(b) || math.Abs(b) > math.MaxFloat32 && !math.IsInf(b, -1) {
			return fmt.Errorf("sample: bias %g of token %d, a number that float32 can hold or -Inf is right", b, id)
		}
	}
	return nil
}

// Candidate is a token that may follow, with its probability.
type Candidate struct {
	ID   int32
	Prob float64
}

// Sampler draws tokens one after the other. It remembers what has been said for the penalties; one goroutine uses it.
type Sampler struct {
	o       Options
	rng     *rand.Rand
	said    []int32 // a ring, or all
	next    int
	counts  map[int32]int
	logits  []float32
	order   []int32
	kept    []Candidate
	penalty bool
}

// New returns a sampler, or the error of Check.
func New(o Options) (*Sampler, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Window == 0 {
		o.Window = 64
	}
	if o.Repetition == 0 {
		o.Repetition = 1
	}
	s := &Sampler{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x7e55e7a))}
	s.penalty = o.Repetition != 1 || o.Presence != 0 || o.Frequency != 0
	if s.penalty {
		s.counts = map[int32]int{}
	}
	return s, nil
}

// Accept tells the sampler what has been said, whether or not it was drawn: prompts count.
func (s *Sampler) Accept(ids ...int32) {
	if !s.penalty {
		return
	}
	for _, id := range ids {
		s.counts[id]++
		if s.o.Window < 0 || len(s.said) < s.o.Window {
			s.said = append(s.said, id)
			continue
		}
		old := s.said[s.next]
		if s.counts[old]--; s.counts[old] == 0 {
			delete(s.counts, old)
		}
		s.said[s.next] = id
		s.next = (s.next + 1) % s.o.Window
	}
}

// Sample draws a token from logits, which stay as they are. A NaN among them counts as impossible; if nothing is possible the
// error says so. Accept is not called.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	adjusted := s.adjust(logits)
	if s.o.Temperature == 0 {
		best := argmax(adjusted)
		if best < 0 {
			return 0, fmt.Errorf("sample: none of %d logits is a number above -Inf", len(logits))
		}
		return best, nil
	}
	c, err := s.candidates(adjusted)
	if err != nil {
		return 0, err
	}
	u := s.rng.Float64()
	for _, k := range c {
		if u -= k.Prob; u < 0 {
			return k.ID, nil
		}
	}
	return c[len(c)-1].ID, nil
}

// Distribution returns the tokens that Sample may draw, the most probable first, with the probabilities that it draws with. The
// slice is valid until the next call.
func (s *Sampler) Distribution(logits []float32) ([]Candidate, error) {
	adjusted := s.adjust(logits)
	if s.o.Temperature == 0 {
		best := argmax(adjusted)
		if best < 0 {
			return nil, fmt.Errorf("sample: none of %d logits is a number above -Inf", len(logits))
		}
		s.kept = append(s.kept[:0], Candidate{best, 1})
		return s.kept, nil
	}
	return s.candidates(adjusted)
}

// Uniform returns a number in [0, 1) from the sampler's own sequence.
func (s *Sampler) Uniform() float64 { return s.rng.Float64() }

// adjust returns the logits with bias and penalties; the input itself where there are none.
func (s *Sampler) adjust(logits []float32) []float32 {
	if len(s.o.Bias) == 0 && len(s.counts) == 0 {
		return logits
	}
	s.logits = append(s.logits[:0], logits...)
	for id, b := range s.o.Bias {
		if id >= 0 && int(id) < len(s.logits) {
			s.logits[id] += float32(b)
		}
	}
	for id, n := range s.counts {
		if id < 0 || int(id) >= len(s.logits) {
			continue
		}
		x := float64(s.logits[id])
		if x > 0 {
			x /= s.o.Repetition
		} else {
			x *= s.o.Repetition
		}
		s.logits[id] = float32(x - s.o.Presence - s.o.Frequency*float64(n))
	}
	return s.logits
}

// argmax returns the first of the largest numbers, -1 if all are NaN or -Inf.
func argmax(x []float32) int32 {
	best, at := float32(math.Inf(-1)), int32(-1)
	for i, v := range x {
		if v > best {
			best, at = v, int32(i)
		}
	}
	return at
}

// candidates truncates and normalizes.
func (s *Sampler) candidates(logits []float32) ([]Candidate, error) {
	top := argmax(logits)
	if top < 0 {
		return nil, fmt.Errorf("sample: none of %d logits is a number above -Inf", len(logits))
	}
	most := float64(logits[top])
	if math.IsInf(most, 1) { // certain
		s.kept = append(s.kept[:0], Candidate{top, 1})
		return s.kept, nil
	}
	byLogit := func(a, b int32) int {
		if c := cmp.Compare(logits[b], logits[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	}
	// Min-p is a bound on logits, which spares sorting what it drops anyway.
	bound := math.Inf(-1)
	if s.o.MinP > 0 {
		bound = most + math.Log(s.o.MinP)
	}
	s.order = s.order[:0]
	for i, v := range logits {
		if x := float64(v); x > math.Inf(-1) && x >= bound {
			s.order = append(s.order, int32(i))
		}
	}
	sorted := false
	if k := s.o.TopK; k > 0 && k < len(s.order) {
		selectTop(s.order, k, byLogit)
		s.order = s.order[:k]
		slices.SortFunc(s.order, byLogit)
		sorted = true
	}
	if p := s.o.TopP; p > 0 && p < 1 {
		// The sum runs over what is left of the model's distribution after top-k; min-p comes after top-p and so does not count.
		var total float64
		if s.o.TopK > 0 {
			for _, id := range s.order {
				total += math.Exp(float64(logits[id]) - most)
			}
		} else {
			for _, v := range logits {
				if v == v {
					total += math.Exp(float64(v) - most)
				}
			}
		}
		if !sorted {
			slices.SortFunc(s.order, byLogit)
			sorted = true
		}
		var sum float64
		for i, id := range s.order {
			if sum += math.Exp(float64(logits[id]) - most); sum >= p*total {
				s.order = s.order[:i+1]
				break
			}
		}
	}
	if !sorted {
		slices.SortFunc(s.order, byLogit)
	}
	s.kept = s.kept[:0]
	var sum float64
	for _, id := range s.order {
		e := math.Exp((float64(logits[id]) - most) / s.o.Temperature)
		sum += e
		s.kept = append(s.kept, Candidate{id, e})
	}
	for i := range s.kept {
		s.kept[i].Prob /= sum
	}
	return s.kept, nil
}

// selectTop brings the k first elements in the order of less to the front, in any order (quickselect).
func selectTop(x []int32, k int, compare func(a, b int32) int) {
	for len(x) > 1 && k > 0 && k < len(x) {
		// Median of three as the pivot.
		a, b, c := x[0], x[len(x)/2], x[len(x)-1]
		if compare(a, b) > 0 {
			a, b = b, a
		}
		if compare(b, c) > 0 {
			b = c
			if compare(a, b) > 0 {
				b = a
			}
		}
		i, j := 0, len(x)-1
		for i <= j {
			for compare(x[i], b) < 0 {
				i++
			}
			for compare(x[j], b) > 0 {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			x = x[:j+1]
		case k > i:
			x, k = x[i:], k-i
		default:
			return
		}
	}
}

// LogProbs fills dst, which must be as long or longer, with the logarithms of the softmax of logits; dst may be logits.
func LogProbs(dst, logits []float32) {
	z := LogSumExp(logits)
	for i, v := range logits {
		dst[i] = float32(float64(v) - z)
	}
}

// LogSumExp returns log(sum(exp(x))), computed without overflow.
func LogSumExp(x []float32) float64 {
	most := math.Inf(-1)
	for _, v := range x {
		most = max(most, float64(v))
	}
	if math.IsInf(most, 0) || most != most {
		return most
	}
	var sum float64
	for _, v := range x {
		sum += math.Exp(float64(v) - most)
	}
	return most + math.Log(sum)
}

// Top returns the n most probable tokens of logits with their probabilities, the most probable first.
func Top(logits []float32, n int) []Candidate {
	n = min(n, len(logits))
	order := make([]int32, len(logits))
	for i := range order {
		order[i] = int32(i)
	}
	byLogit := func(a, b int32) int {
		if c := cmp.Compare(logits[b], logits[a]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	}
	selectTop(order, n, byLogit)
	order = order[:n]
	slices.SortFunc(order, byLogit)
	z := LogSumExp(logits)
	top := make([]Candidate, n)
	for i, id := range order {
		top[i] = Candidate{id, math.Exp(float64(logits[id]) - z)}
	}
	return top
}
