package llm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tessera-go/tessera/models/sample"
)

// speculate generates with a draft model (Leviathan, Kalman and Matias, arXiv 2211.17192): the draft proposes tokens one by one; the
// model evaluates all of them at once; a proposed token x stays with probability min(1, p(x)/q(x)), where p and q are the distributions
// that the model and the draft draw from; at the first one that does not stay, a token is drawn from what p has more than q. Greedy
// distributions have all their mass on one token, so there a proposal stays if it is the model's choice too.
func (s *Session) speculate(ctx context.Context, e *emitter) error {
	draft := e.o.Draft
	if !draft.Tokenizer.Agrees(s.m.Tokenizer) {
		return fmt.Errorf("llm: the draft model has another vocabulary (%d tokens, this one %d)", draft.Tokenizer.Size(), s.m.Tokenizer.Size())
	}
	guesses := e.o.DraftTokens
	if guesses == 0 {
		guesses = 4
	}
	if guesses < 1 || guesses > 64 {
		return fmt.Errorf("llm: %d tokens ahead, 1 to 64 are right", guesses)
	}
	guesses = min(guesses, s.p.lim.rows-1)
	d, err := draft.acquire()
	if err != nil {
		return err
	}
	defer draft.giveBack(d)
	// Penalties depend on what will have been said; the draft's distribution may be any, so it does without them.
	options := e.o.Sampling
	options.Repetition, options.Presence, options.Frequency = 0, 0, 0
	options.Seed += 0x9e3779b97f4a7c15
	guesser, err := sample.New(options)
	if err != nil {
		return err
	}
	logits := slices.Clone(s.logits)
	for {
		if len(s.pending) == 0 {
			id, err := e.sampler.Sample(logits)
			if err != nil {
				return s.explain(err, logits)
			}
			if done, err := s.say(ctx, e, id, logits); done || err != nil {
				return err
			}
		}
		// The draft may have a shorter context; near the end of either nothing is guessed.
		n := min(guesses, s.Room()-1, d.p.lim.context-s.Len()-1)
		if left := e.o.MaxTokens - len(e.o.Stats.Tokens); e.o.MaxTokens > 0 {
			n = min(n, left-1)
		}
		var proposed []int32
		var q [][]sample.Candidate
		if n > 0 {
			if proposed, q, err = propose(ctx, d, guesser, s.Tokens(), n, s.m.Config.Vocab); err != nil {
				return err
			}
		}
		if len(proposed) == 0 {
			if err := s.Eval(ctx); err != nil {
				return err
			}
			logits = append(logits[:0], s.logits...)
			continue
		}
		e.o.Stats.Guessed += len(proposed)
		rows, err := s.check(ctx, proposed)
		if err != nil {
			return err
		}
		base := s.Len() - len(proposed)
		accepted := 0
		next := int32(-1) // drawn at the first proposal that did not stay
		for accepted < len(proposed) && next < 0 {
			x := proposed[accepted]
			p, err := e.sampler.Distribution(rows[accepted])
			if err != nil {
				return errors.Join(s.explain(err, rows[accepted]), s.Rewind(base+accepted))
			}
			px, qx := prob(p, x), prob(q[accepted], x)
			if qx > 0 && e.sampler.Uniform()*qx < px {
				done := e.emit(x, rows[accepted], s.p.lim.context-(base+accepted+1))
				accepted++
				if done {
					e.o.Stats.Accepted += accepted
					kept := accepted
					if e.o.Stats.Reason == ReasonEnd {
						kept--
					}
					return s.Rewind(base + kept)
				}
				continue
			}
			next = residual(p, q[accepted], e.sampler.Uniform())
		}
		e.o.Stats.Accepted += accepted
		if err := s.Rewind(base + accepted); err != nil {
			return err
		}
		if next < 0 {
			logits = append(logits[:0], rows[accepted]...)
			continue
		}
		if done, err := s.say(ctx, e, next, rows[accepted]); done || err != nil {
			return err
		}
	}
}

// check evaluates what is pending and the proposals behind it, and returns the logits from the last pending token on. If it fails, no
// proposal remains.
func (s *Session) check(ctx context.Context, proposed []int32) (rows [][]float32, err error) {
	said, before := s.pending, len(s.tokens)
	s.pending = nil
	err = s.EvalAll(ctx, slices.Concat(said, proposed), func(i int, row []float32) error {
		if i >= len(said)-1 {
			rows = append(rows, slices.Clone(row))
		}
		return nil
	})
	if err != nil {
		if end := before + len(said); len(s.tokens) > end {
			s.tokens, s.logits = s.tokens[:end], s.logits[:0]
		}
		s.pending = said[len(s.tokens)-before:]
	}
	return rows, err
}

// propose lets the draft guess up to n tokens behind a text, and returns them with the distributions that they were drawn from. Of the draft's
// logits the first vocab count, those of tokens that the model has. Tokens that the draft does not have (their embeddings may be padded
// differently, or one vocabulary goes on after the other's end) are left out of what it reads: its distribution may be any. Where nothing
// is possible for it, as where all tokens that it has are forbidden, the guess ends.
func propose(ctx context.Context, d *Session, guesser *sample.Sampler, text []int32, n, vocab int) (ids []int32, q [][]sample.Candidate, err error) {
	text = slices.DeleteFunc(text, func(id int32) bool { return int(id) >= d.m.Config.Vocab })
	if len(text) == 0 {
		return nil, nil, nil
	}
	rest, err := d.reuse(text)
	if err != nil {
		return nil, nil, err
	}
	if err := d.Eval(ctx, rest...); err != nil {
		return nil, nil, err
	}
	for len(ids) < n {
		c, err := guesser.Distribution(d.logits[:min(len(d.logits), vocab)])
		if err != nil {
			return ids, q, nil
		}
		c = slices.Clone(c)
		u := guesser.Uniform()
		id := c[len(c)-1].ID
		for _, k := range c {
			if u -= k.Prob; u < 0 {
				id = k.ID
				break
			}
		}
		ids, q = append(ids, id), append(q, c)
		if len(ids) < n {
			if err := d.Eval(ctx, id); err != nil {
				return nil, nil, err
			}
		}
	}
	return ids, q, nil
}

func prob(c []sample.Candidate, id int32) float64 {
	for _, k := range c {
		if k.ID == id {
			return k.Prob
		}
	}
	return 0
}

// residual draws from max(p - q, 0).
func residual(p, q []sample.Candidate, u float64) int32 {
	rest := make([]float64, len(p))
	var sum float64
	for i, k := range p {
		rest[i] = math.Max(k.Prob-prob(q, k.ID), 0)
		sum += rest[i]
	}
	if sum == 0 {
		return p[0].ID
	}
	u *= sum
	for i, r := range rest {
		if u -= r; u < 0 {
			return p[i].ID
		}
	}
	return p[len(p)-1].ID
}
