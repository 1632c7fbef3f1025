package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tessera-go/tessera/models/sample"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// Overflow says what happens when the context is full.
type Overflow uint8

// The reactions.
const (
	Stop  Overflow = iota // generation ends, as after MaxTokens
	Shift                 // the older half of the text is forgotten and the newer half is read again
)

// GenerateOptions say how a text is continued. The zero value generates greedily until an end token or the end of the context.
type GenerateOptions struct {
	MaxTokens int // 0: no limit but the context's
	Sampling  sample.Options
	Stop      []string // texts that end generation; they are not part of the result
	IgnoreEnd bool     // end tokens do not end generation

	ParseSpecial bool // control tokens spelled in the prompt count as such
	NoSpecial    bool // nothing is put in front of the prompt, though the model asks for it

	LogProbs bool // Token.LogProb is computed
	Top      int  // Token.Top holds so many of the most probable tokens

	Overflow Overflow
	Keep     int // first tokens that survive a shift (a system prompt)

	// Draft is a smaller model of the same vocabulary that guesses DraftTokens tokens (0: 4) ahead, which this model then checks in one
	// evaluation. The text is distributed as without it; greedy, it is the same text. One of the vocabularies may go on after the other's
	// end, as where files pad them differently; tokens that only one of the models has are never guessed.
	Draft       *Model
	DraftTokens int

	Stats *Stats // filled as generation goes on
}

// Token is one step of generation.
type Token struct {
	ID      int32
	Text    string             // whole runes that have become sure; empty while a rune or a possible stop text is incomplete
	LogProb float64            // natural logarithm of its probability by the model alone, without penalties and temperature; 0 unless asked for
	Top     []sample.Candidate // likewise, the most probable first; as many as GenerateOptions.Top says
}

// Reason says why a generation ended.
type Reason string

// The reasons. With the last two an error comes.
const (
	ReasonEnd         Reason = "end"         // the model ended the text
	ReasonLength      Reason = "length"      // MaxTokens were generated
	ReasonContext     Reason = "context"     // the context is full
	ReasonStop        Reason = "stop"        // one of the texts of Stop came
	ReasonCaller      Reason = "caller"      // the caller left the loop
	ReasonInterrupted Reason = "interrupted" // the call's context.Context was cancelled, or its deadline passed
	ReasonError       Reason = "error"       // something else failed
)

// Stats says what generation did.
type Stats struct {
	Prompt  []int32 // the prompt's tokens, with what the model puts in front
	Tokens  []int32 // generated, without the end token
	Prefill time.Duration
	Decode  time.Duration // from the first token to the last
	Reason  Reason        // why it ended, empty before that

	Guessed, Accepted int // tokens of the draft model
}

// PrefillRate returns tokens of the prompt a second.
func (s *Stats) PrefillRate() float64 { return rate(len(s.Prompt), s.Prefill) }

// DecodeRate returns generated tokens a second. The first one belongs to the prompt's evaluation and is not counted.
func (s *Stats) DecodeRate() float64 { return rate(len(s.Tokens)-1, s.Decode) }

func rate(n int, d time.Duration) float64 {
	if n <= 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Generate continues a prompt. The sequence ends after the last token, or with an error; beside the error stands the text that had been held back as
// a possible beginning of a stop text. When ctx ends, the error wraps ctx.Err(); leaving the loop ends generation without one. Each call is independent
// of all others; a conversation uses a Session.
func (m *Model) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s, err := m.acquire()
		if err != nil {
			yield(Token{}, err)
			return
		}
		defer m.giveBack(s)
		s.Generate(ctx, prompt, o)(yield)
	}
}

// PromptIDs returns the tokens of a prompt at the start of a text. An empty one gives the token that begins texts.
func (m *Model) PromptIDs(prompt string, o GenerateOptions) []int32 {
	ids := m.Tokenizer.Encode(prompt, tokenizer.Options{Special: !o.NoSpecial, ParseSpecial: o.ParseSpecial})
	if _, suffix := m.Tokenizer.AddsSpecial(); !o.NoSpecial {
		ids = ids[:len(ids)-len(suffix)] // the text goes on
	}
	if len(ids) == 0 && m.Tokenizer.BOS >= 0 {
		ids = append(ids, m.Tokenizer.BOS)
	}
	return ids
}

// Generate reads the prompt behind what the session has read, and continues. After it the session holds prompt and continuation, and
// may go on with either method. What a stop text cuts off is not part of the result, but the session has read it.
func (s *Session) Generate(ctx context.Context, prompt string, o GenerateOptions) iter.Seq2[Token, error] {
	var ids []int32
	if s.Len() == 0 {
		ids = s.m.PromptIDs(prompt, o)
	} else {
		ids = s.m.Tokenizer.Encode(prompt, tokenizer.Options{ParseSpecial: o.ParseSpecial})
	}
	return s.GenerateIDs(ctx, ids, o)
}

// GenerateIDs is Generate for a prompt of tokens. With none it continues from the session's last token, also in the middle of a rune.
func (s *Session) GenerateIDs(ctx context.Context, prompt []int32, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if o.Stats == nil {
			o.Stats = &Stats{}
		}
		*o.Stats = Stats{Prompt: prompt}
		e, err := newEmitter(s.m, &o, onlySpecial(s.m.Tokenizer, s.tokens) && onlySpecial(s.m.Tokenizer, s.pending) && onlySpecial(s.m.Tokenizer, prompt), yield)
		if err == nil {
			err = s.generate(ctx, prompt, e)
		}
		if err != nil {
			var held string
			if e != nil {
				held = e.hold.flush("")
			}
			o.Stats.Reason = ReasonError
			if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
				o.Stats.Reason = ReasonInterrupted
			}
			yield(Token{Text: held}, err)
		}
	}
}

func (s *Session) generate(ctx context.Context, prompt []int32, e *emitter) error {
	o := e.o
	if o.Keep < 0 || o.Keep >= s.p.lim.context {
		return fmt.Errorf("llm: %d tokens to keep in a context of %d", o.Keep, s.p.lim.context)
	}
	if len(prompt) == 0 {
		// The text may go on in the middle of a rune, of which nothing has been shown: no token but the last few can have its first bytes.
		all := s.Tokens()
		for _, id := range all[max(0, len(all)-utf8.UTFMax):] {
			e.text.Push(id)
		}
	}
	if len(prompt) == 0 && s.Len() == 0 {
		return errors.New("llm: the prompt is empty and the model has no token to begin with")
	}
	e.sampler.Accept(s.Tokens()...)
	e.sampler.Accept(prompt...)
	if n := len(s.tokens); len(prompt) == 0 && len(s.pending) == 0 && len(s.logits) == 0 {
		s.tokens, s.pending = s.tokens[:n-1], []int32{s.tokens[n-1]} // its logits are needed again
	}
	if err := s.Eval(ctx, prompt...); err != nil {
		return err
	}
	o.Stats.Prefill = time.Since(e.start)
	e.start = time.Now()
	if o.Draft != nil {
		return s.speculate(ctx, e)
	}
	for {
		id, err := e.sampler.Sample(s.logits)
		if err != nil {
			return s.explain(err, s.logits)
		}
		done, err := s.say(ctx, e, id, s.logits)
		if done || err != nil {
			return err
		}
		if err := s.Eval(ctx); err != nil {
			return err
		}
	}
}

// say emits a token and keeps it as pending, making room for it as asked. End tokens are not kept.
func (s *Session) say(ctx context.Context, e *emitter, id int32, logits []float32) (done bool, err error) {
	if s.Room() == 0 && e.o.Overflow == Shift {
		// The logits would be overwritten.
		logits = slices.Clone(logits)
		if err := s.shift(ctx, e.o.Keep); err != nil {
			return false, err
		}
	}
	room := s.Room()
	if room > 0 && (e.o.IgnoreEnd || !s.m.Tokenizer.IsEnd(id)) {
		s.pending = append(s.pending, id)
	}
	return e.emit(id, logits, room), nil
}

// shift makes room in a full context: behind the first keep tokens the older half is forgotten, and the newer half is read again, as
// its positions change.
func (s *Session) shift(ctx context.Context, keep int) error {
	all := s.Tokens()
	keep = min(keep, len(all))
	rest := all[keep+(len(all)-keep+1)/2:]
	if err := s.Rewind(keep); err != nil {
		return err
	}
	return s.Eval(ctx, rest...)
}

// onlySpecial reports whether no token of the prompt has a text.
func onlySpecial(t *tokenizer.Tokenizer, ids []int32) bool {
	for _, id := range ids {
		if len(t.Text(id)) > 0 {
			return false
		}
	}
	return true
}

// stopper holds text back that may be the beginning of a stop text.
type stopper struct {
	stops []string
	held  string
}

// push adds text and returns what is sure, and whether a stop text has come.
func (h *stopper) push(text string) (string, bool) {
	if len(h.stops) == 0 {
		return text, false
	}
	h.held += text
	cut := -1
	for _, stop := range h.stops {
		if i := strings.Index(h.held, stop); i >= 0 && (cut < 0 || i < cut) {
			cut = i
		}
	}
	if cut >= 0 {
		out := h.held[:cut]
		h.held = ""
		return out, true
	}
	keep := 0
	for _, stop := range h.stops {
		for n := min(len(stop)-1, len(h.held)); n > keep; n-- {
			if strings.HasSuffix(h.held, stop[:n]) {
				keep = n
				break
			}
		}
	}
	out := h.held[:len(h.held)-keep]
	h.held = h.held[len(out):]
	return out, false
}

// flush returns what is held, with text behind it, cut at a stop text.
func (h *stopper) flush(text string) string {
	out, stopped := h.push(text)
	if !stopped {
		out += h.held
	}
	h.held = ""
	return out
}

// Perplexity is a model's surprise at a text.
type Perplexity struct {
	Tokens int     // scored
	NLL    float64 // sum of the negative logarithms of their probabilities
}

// Value is exp(NLL / Tokens).
func (p Perplexity) Value() float64 { return math.Exp(p.NLL / float64(p.Tokens)) }

// Perplexity cuts tokens into windows (0: of the model's context), reads each from an empty cache, and scores every token but the
// first of each, as it was predicted from those before it in the window. Progress, if not nil, is called after each window with the
// number of tokens done.
func (m *Model) Perplexity(ctx context.Context, ids []int32, window int, progress func(done, total int)) (Perplexity, error) {
	var p Perplexity
	if window == 0 {
		window = min(m.Config.Context, m.opts.Context)
	}
	if window < 2 || window > m.opts.Context {
		return p, fmt.Errorf("llm: windows of %d tokens, 2 to the context of %d are right", window, m.opts.Context)
	}
	if len(ids) < 2 {
		return p, fmt.Errorf("llm: a text of %d tokens has nothing to score", len(ids))
	}
	s, err := m.acquire()
	if err != nil {
		return p, err
	}
	defer m.giveBack(s)
	for from := 0; from < len(ids); from += window {
		part := ids[from:min(from+window, len(ids))]
		if len(part) < 2 {
			break
		}
		if err := s.Rewind(0); err != nil {
			return p, err
		}
		err := s.EvalAll(ctx, part[:len(part)-1], func(i int, logits []float32) error {
			nll := sample.LogSumExp(logits) - float64(logits[part[i+1]])
			if !finite(nll) {
				return fmt.Errorf("llm: token %d has no probability: %w", from+i+1, m.blame())
			}
			p.NLL += nll
			p.Tokens++
			return nil
		})
		if err != nil {
			return p, err
		}
		if progress != nil {
			progress(from+len(part), len(ids))
		}
	}
	return p, nil
}
