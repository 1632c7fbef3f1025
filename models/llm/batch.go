package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tessera-go/tessera/models/sample"
	"github.com/tessera-go/tessera/tensor"
)

// Batch decodes several sequences at once: each step reads the weights once for all of them. One goroutine uses it.
type Batch struct {
	s    *Session // its cache has room for all sequences, one behind the other
	seqs []*Sequence
}

// Sequence is one text of a batch.
type Sequence struct {
	b       *Batch // nil once removed
	slot    int
	tokens  []int32
	pending int32 // said but not evaluated; -1: none
	logits  []float32
}

// NewBatch returns an empty batch for up to n sequences, each with the model's context.
func (m *Model) NewBatch(n int) (*Batch, error) {
	if n < 1 || n > 1<<12 {
		return nil, fmt.Errorf("llm: a batch of %d sequences", n)
	}
	if !m.Config.Causal {
		return nil, fmt.Errorf("%s models encode; they do not continue a text", m.Config.Arch)
	}
	lim := m.limits()
	lim.seqs = max(n, 2)
	lim.rows = max(lim.seqs, 2)
	s, err := m.newSession(lim)
	if err != nil {
		return nil, err
	}
	return &Batch{s: s}, nil
}

// Cap returns how many sequences fit.
func (b *Batch) Cap() int { return b.s.p.lim.seqs }

// Len returns the number of sequences.
func (b *Batch) Len() int { return len(b.seqs) }

// Add reads a prompt as a new sequence, whose logits are then there.
func (b *Batch) Add(ctx context.Context, prompt []int32) (*Sequence, error) {
	lim := b.s.p.lim
	switch {
	case len(b.seqs) == lim.seqs:
		return nil, fmt.Errorf("llm: the batch has its %d sequences", lim.seqs)
	case len(prompt) == 0:
		return nil, errors.New("llm: the prompt is empty")
	case len(prompt) > lim.context:
		return nil, &ContextError{len(prompt), lim.context}
	}
	q := &Sequence{b: b, slot: len(b.seqs), pending: -1}
	for from := 0; from < len(prompt); from += lim.tokens {
		part := prompt[from:min(from+lim.tokens, len(prompt))]
		var each func(int, []float32)
		if from+len(part) == len(prompt) {
			each = func(_ int, logits []float32) { q.logits = slices.Clone(logits) }
		}
		if err := b.run(ctx, q.slot, [][]int32{part}, []int{from}, each); err != nil {
			return nil, err
		}
	}
	q.tokens = slices.Clone(prompt)
	b.seqs = append(b.seqs, q)
	return q, nil
}

// run evaluates equally many tokens of each of the sequences from slot first on, at their positions. Each, if not nil, is called with the logits of
// the last token of every sequence, counted from first; the slice is valid during the call, as Close may give its memory back afterwards.
func (b *Batch) run(ctx context.Context, first int, ids [][]int32, at []int, each func(i int, logits []float32)) error {
	s := b.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exe == nil {
		return ErrClosed
	}
	n, m, context := len(ids), len(ids[0]), s.p.lim.context
	for i, part := range ids {
		for j, id := range part {
			if id < 0 || int(id) >= s.m.Config.Vocab {
				return fmt.Errorf("llm: token %d, the vocabulary has %d", id, s.m.Config.Vocab)
			}
			s.ids[i*m+j], s.positions[i*m+j] = id, int32(at[i]+j)
		}
	}
	rows := 0
	if each != nil {
		for i := range n {
			s.outs[i] = int32(i*m + m - 1)
		}
		rows = n
	}
	errs := []error{
		s.exe.Bind(s.p.ids, tensor.Of(s.ids[:n*m], n, m)),
		s.exe.Bind(s.p.positions, tensor.Of(s.positions[:n*m], n, m)),
		s.exe.Bind(s.p.outs, tensor.Of(s.outs[:rows], rows)),
	}
	for g, w := range s.writes {
		for i := range n {
			for h := range g {
				for j := range m {
					w[(i*m+j)*g+h] = int32((i*g+h)*context + at[i] + j)
				}
			}
		}
		errs = append(errs, s.exe.Bind(s.p.writes[g], tensor.Of(w[:n*g*m], n*g*m)))
	}
	for i, t := range s.caches {
		g := s.m.Config.KVHeads[i/2]
		view, err := t.Slice(0, first*g*context, (first+n)*g*context, 1)
		v := s.p.keys[i/2]
		if i%2 == 1 {
			v = s.p.values[i/2]
		}
		errs = append(errs, err, s.exe.Bind(v, view))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := s.exe.Run(ctx); err != nil {
		return err
	}
	if rows == 0 {
		return nil
	}
	out := s.exe.Output(s.p.result())
	logits := tensor.Data[float32](out)
	v := len(logits) / rows
	for i := range rows {
		each(i, logits[i*v:(i+1)*v])
	}
	return nil
}

// Step evaluates the tokens that Push has added, of all sequences at once. Sequences without one keep their logits.
func (b *Batch) Step(ctx context.Context) error {
	if len(b.seqs) == 0 {
		return nil
	}
	ids, at := make([][]int32, len(b.seqs)), make([]int, len(b.seqs))
	any := false
	for i, q := range b.seqs {
		if q.pending >= 0 {
			ids[i], at[i], any = []int32{q.pending}, len(q.tokens), true
		} else { // evaluating the last token again changes nothing
			ids[i], at[i] = q.tokens[len(q.tokens)-1:], len(q.tokens)-1
		}
	}
	if !any {
		return nil
	}
	return b.run(ctx, 0, ids, at, func(i int, logits []float32) {
		if q := b.seqs[i]; q.pending >= 0 {
			q.tokens, q.pending = append(q.tokens, q.pending), -1
			copy(q.logits, logits)
		}
	})
}

// Close releases the batch's memory.
func (b *Batch) Close() error { return b.s.Close() }

// Logits returns those of the sequence's last evaluated token. They are valid until the next Step.
func (q *Sequence) Logits() []float32 { return q.logits }

// Tokens returns what the sequence holds.
func (q *Sequence) Tokens() []int32 {
	if q.pending >= 0 {
		return append(slices.Clone(q.tokens), q.pending)
	}
	return slices.Clone(q.tokens)
}

// Push adds the token that Step will evaluate next.
func (q *Sequence) Push(id int32) error {
	switch {
	case q.b == nil:
		return ErrClosed
	case q.pending >= 0:
		return errors.New("llm: a token waits for Step")
	case id < 0 || int(id) >= q.b.s.m.Config.Vocab:
		return fmt.Errorf("llm: token %d, the vocabulary has %d", id, q.b.s.m.Config.Vocab)
	case len(q.tokens) == q.b.s.p.lim.context:
		return &ContextError{len(q.tokens) + 1, len(q.tokens)}
	}
	q.pending = id
	return nil
}

// Remove takes the sequence out of the batch; the last one moves into its place in the cache.
func (q *Sequence) Remove() {
	b := q.b
	if b == nil {
		return
	}
	last := b.seqs[len(b.seqs)-1]
	if last != q {
		b.s.mu.Lock()
		if b.s.memory != nil {
			for i, t := range b.s.caches {
				raw, g, context := t.Raw(), b.s.m.Config.KVHeads[i/2], b.s.p.lim.context
				row := len(raw) / t.Dims[0]
				for h := range g {
					to, from := (q.slot*g+h)*context*row, (last.slot*g+h)*context*row
					copy(raw[to:to+len(last.tokens)*row], raw[from:])
				}
			}
		}
		b.s.mu.Unlock()
		last.slot = q.slot
		b.seqs[q.slot] = last
	}
	b.seqs = b.seqs[:len(b.seqs)-1]
	q.b = nil
}

// BatchToken is a token of one of several generations.
type BatchToken struct {
	Index int // of the prompt
	Token
}

// GenerateBatch continues several prompts, up to parallel of them at a time (0: 8), and yields tokens as they come: those of one prompt
// in order, those of different prompts interleaved. Seeds of sampling are those of the options plus the prompt's index. Stats in the
// options are not filled, and of overflows only Stop is possible.
func (m *Model) GenerateBatch(ctx context.Context, prompts []string, parallel int, o GenerateOptions) iter.Seq2[BatchToken, error] {
	return func(yield func(BatchToken, error) bool) {
		if parallel == 0 {
			parallel = 8
		}
		parallel = min(parallel, max(len(prompts), 1))
		b, err := m.NewBatch(parallel)
		if err != nil {
			yield(BatchToken{}, err)
			return
		}
		defer b.Close()
		if err := m.generateBatch(ctx, b, prompts, o, yield); err != nil {
			yield(BatchToken{}, err)
		}
	}
}

func (m *Model) generateBatch(ctx context.Context, b *Batch, prompts []string, o GenerateOptions, yield func(BatchToken, error) bool) error {
	type running struct {
		*Sequence
		index int
		e     *emitter
	}
	var active []*running
	next := 0
	for {
		for len(active) < b.Cap() && next < len(prompts) {
			ids := m.PromptIDs(prompts[next], o)
			q, err := b.Add(ctx, ids)
			if err != nil {
				return fmt.Errorf("prompt %d: %w", next, err)
			}
			own := o
			own.Stats = &Stats{Prompt: ids}
			own.Sampling.Seed += uint64(next)
			index := next
			e, err := newEmitter(m, &own, onlySpecial(m.Tokenizer, ids), func(t Token, err error) bool { return yield(BatchToken{index, t}, err) })
			if err != nil {
				return err
			}
			e.sampler.Accept(ids...)
			active = append(active, &running{q, index, e})
			next++
		}
		if len(active) == 0 {
			return nil
		}
		for i := 0; i < len(active); {
			r := active[i]
			id, err := r.e.sampler.Sample(r.logits)
			if err != nil {
				return fmt.Errorf("prompt %d: %w", r.index, b.s.explain(err, r.logits))
			}
			done := r.e.emit(id, r.logits, b.s.p.lim.context-len(r.tokens))
			if r.e.o.Stats.Reason == ReasonCaller {
				return nil
			}
			if !done {
				if err := r.Push(id); err != nil {
					return err
				}
				i++
				continue
			}
			r.Remove()
			active = slices.Delete(active, i, i+1)
		}
		if err := b.Step(ctx); err != nil {
			return err
		}
	}
}

// emitter turns sampled tokens into those that the caller sees: it decodes, holds stop texts back, counts, and decides when the end has
// come.
type emitter struct {
	m       *Model
	o       *GenerateOptions
	sampler *sample.Sampler
	text    interface {
		Push(int32) string
		Flush() string
	}
	hold  *stopper
	yield func(Token, error) bool
	start time.Time
}

func newEmitter(m *Model, o *GenerateOptions, atStart bool, yield func(Token, error) bool) (*emitter, error) {
	s, err := sample.New(o.Sampling)
	if err != nil {
		return nil, err
	}
	for id := range o.Sampling.Bias {
		if id < 0 || int(id) >= m.Config.Vocab {
			return nil, fmt.Errorf("llm: a bias for token %d, the vocabulary has %d", id, m.Config.Vocab)
		}
	}
	switch {
	case o.MaxTokens < 0:
		return nil, fmt.Errorf("llm: MaxTokens is %d, 0 (no limit) or more is right", o.MaxTokens)
	case o.Top < 0:
		return nil, fmt.Errorf("llm: Top is %d, 0 (none) or more is right", o.Top)
	case o.Overflow > Shift:
		return nil, fmt.Errorf("llm: Overflow is %d, Stop or Shift is right", o.Overflow)
	}
	stops := slices.DeleteFunc(slices.Clone(o.Stop), func(s string) bool { return s == "" })
	for _, s := range stops {
		if !utf8.ValidString(s) { // it would cut runes, of which what is shown consists
			return nil, fmt.Errorf("llm: the stop text %q is no UTF-8", s)
		}
	}
	return &emitter{m: m, o: o, sampler: s, text: m.Tokenizer.Stream(atStart), hold: &stopper{stops: stops}, yield: yield, start: time.Now()}, nil
}

// emit shows a token to the caller; room is how many more tokens the context has place for, this one included. It reports whether
// generation has ended, and why in Stats.Reason.
func (e *emitter) emit(id int32, logits []float32, room int) (done bool) {
	o, stats := e.o, e.o.Stats
	if e.m.Tokenizer.IsEnd(id) && !o.IgnoreEnd {
		stats.Reason = ReasonEnd
		if rest := e.hold.flush(e.text.Flush()); rest != "" {
			e.yield(Token{ID: id, Text: rest}, nil)
		}
		return true
	}
	token := Token{ID: id}
	if o.LogProbs || o.Top > 0 {
		token.LogProb = float64(logits[id]) - sample.LogSumExp(logits)
		if o.Top > 0 {
			token.Top = sample.Top(logits, o.Top)
		}
	}
	e.sampler.Accept(id)
	stats.Tokens = append(stats.Tokens, id)
	stats.Decode = time.Since(e.start)
	var stopped bool
	token.Text, stopped = e.hold.push(e.text.Push(id))
	reason := Reason("")
	switch {
	case stopped:
		reason = ReasonStop
	case o.MaxTokens > 0 && len(stats.Tokens) >= o.MaxTokens:
		reason = ReasonLength
	case room <= 0 && o.Overflow == Stop:
		reason = ReasonContext
	}
	if reason != "" && !stopped {
		token.Text += e.hold.flush("")
	}
	stats.Reason = reason
	if !e.yield(token, nil) {
		stats.Reason = ReasonCaller
		return true
	}
	return reason != ""
}
