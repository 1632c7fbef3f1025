package llm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/tensor"
)

// Session is one conversation: the tokens that have been read, and their keys and values. Its methods may be called by one goroutine
// at a time; Close may be called by another and waits.
type Session struct {
	m   *Model
	p   *program
	mu  sync.Mutex
	exe *graph.Executable

	memory *tensor.Buffer // keys and values
	caches []tensor.Tensor
	tokens []int32 // what the cache holds
	// pending tokens have been said but not evaluated: the last one of a generation may never need to be.
	pending []int32
	// logits are a copy: what a run writes them to is given back by Close, which may be called while they are being sampled from.
	logits []float32

	ids, positions []int32 // of one run
	outs           []int32
	writes         map[int][]int32
	size           [2]int // tokens and rows that are bound
}

// ContextError says that tokens do not fit the context: so many in all, and how many positions there are.
type ContextError struct{ Tokens, Context int }

func (e *ContextError) Error() string {
	return fmt.Sprintf("%d tokens do not fit the context of %d", e.Tokens, e.Context)
}

// NewSession returns an empty session.
func (m *Model) NewSession() (*Session, error) {
	if !m.Config.Causal {
		return nil, fmt.Errorf("%s models encode; they do not continue a text", m.Config.Arch)
	}
	return m.newSession(m.limits())
}

func (m *Model) newSession(lim limits) (*Session, error) {
	m.opening.RLock()
	defer m.opening.RUnlock()
	ctx := context.Background()
	p, err := m.program(ctx, lim)
	if err != nil {
		return nil, err
	}
	s := &Session{m: m, p: p, writes: map[int][]int32{}}
	if s.exe, err = p.fork(ctx); err != nil {
		return nil, err
	}
	if err = s.allocate(); err != nil {
		_ = s.release()
		return nil, err
	}
	m.mu.Lock()
	closed := m.closed
	if !closed {
		m.sessions[s] = struct{}{}
	}
	m.mu.Unlock()
	if closed {
		_ = s.release()
		return nil, ErrClosed
	}
	return s, nil
}

// allocate makes the cache, outside the Go heap: pages that no token has reached cost nothing.
func (s *Session) allocate() error {
	c, lim := s.m.Config, s.p.lim
	specs := make([]tensor.Spec, 0, 2*c.Layers)
	total := 0
	for i := range c.Layers {
		for _, size := range [2]int{c.HeadDim, c.ValDim} {
			spec, err := tensor.CheckDims(lim.cache, []int{lim.seqs * c.KVHeads[i] * lim.context, size})
			if err != nil {
				return fmt.Errorf("cache of layer %d: %w", i, err)
			}
			specs = append(specs, spec)
			total += (spec.Bytes() + 63) / 64 * 64
			if total < 0 || total > math.MaxInt/2 {
				return fmt.Errorf("a cache for %d tokens is too large", lim.context)
			}
		}
	}
	var err error
	if s.memory, err = tensor.MapBuffer(total); err != nil {
		return fmt.Errorf("cache for %d tokens: %w", lim.context, err)
	}
	at := 0
	for i, spec := range specs {
		t, err := tensor.At(s.memory, at, spec)
		if err != nil {
			return err
		}
		at += (spec.Bytes() + 63) / 64 * 64
		s.caches = append(s.caches, t)
		v := s.p.keys[i/2]
		if i%2 == 1 {
			v = s.p.values[i/2]
		}
		if err := s.exe.Bind(v, t); err != nil {
			return err
		}
	}
	n := lim.seqs * lim.tokens
	s.ids, s.positions, s.outs = make([]int32, n), make([]int32, n), make([]int32, lim.rows)
	for g := range s.p.writes {
		s.writes[g] = make([]int32, g*n)
	}
	return nil
}

// Len returns the number of tokens of the conversation.
func (s *Session) Len() int { return len(s.tokens) + len(s.pending) }

// Tokens returns the tokens of the conversation.
func (s *Session) Tokens() []int32 { return slices.Concat(s.tokens, s.pending) }

// Room returns how many more tokens fit.
func (s *Session) Room() int { return s.p.lim.context - s.Len() }

// Rewind forgets all but the first n tokens.
func (s *Session) Rewind(n int) error {
	if n < 0 || n > s.Len() {
		return fmt.Errorf("llm: rewind to %d of %d tokens", n, s.Len())
	}
	if n < len(s.tokens) {
		s.logits = s.logits[:0] // they were those of a token that is gone
	}
	s.pending = s.pending[:max(0, n-len(s.tokens))]
	s.tokens = s.tokens[:min(n, len(s.tokens))]
	return nil
}

// Logits returns those of the last token that was evaluated, nil after a rewind and where an evaluation failed between its tokens. They are valid
// until the next evaluation, also if the session or the model is closed meanwhile.
func (s *Session) Logits() []float32 {
	if len(s.logits) == 0 {
		return nil
	}
	return s.logits
}

// Eval reads tokens and leaves the logits of the last one in Logits. If the context is too short nothing is read and the error is a
// *ContextError. After another error the tokens before the failure remain read.
func (s *Session) Eval(ctx context.Context, ids ...int32) error {
	if len(s.pending) == 0 {
		return s.eval(ctx, ids, false, nil)
	}
	before := len(s.tokens)
	err := s.eval(ctx, slices.Concat(s.pending, ids), false, nil)
	// What was said stays said, also if the evaluation has been interrupted.
	s.pending = s.pending[min(len(s.tokens)-before, len(s.pending)):]
	return err
}

// EvalAll is Eval with the logits of every token: each is called with the index in ids, in order; its slice is valid during the call,
// and may be overwritten. It must not use or close the session, nor close the model: they would wait for EvalAll.
func (s *Session) EvalAll(ctx context.Context, ids []int32, each func(i int, logits []float32) error) error {
	if len(s.pending) > 0 {
		if err := s.Eval(ctx); err != nil {
			return err
		}
	}
	return s.eval(ctx, ids, true, each)
}

func (s *Session) eval(ctx context.Context, ids []int32, all bool, each func(int, []float32) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.exe == nil {
		return ErrClosed
	}
	lim := s.p.lim
	if len(ids) > lim.context-len(s.tokens) {
		return &ContextError{len(s.tokens) + len(ids), lim.context}
	}
	for i, id := range ids {
		if id < 0 || int(id) >= s.m.Config.Vocab {
			return fmt.Errorf("llm: token %d is %d, the vocabulary has %d", i, id, s.m.Config.Vocab)
		}
	}
	chunk := lim.tokens
	if all {
		chunk = min(chunk, lim.rows)
	}
	for from := 0; from < len(ids); {
		part := ids[from:min(from+chunk, len(ids))]
		rows := 0
		switch {
		case all:
			rows = len(part)
		case from+len(part) == len(ids):
			rows = 1
		}
		logits, err := s.run(ctx, part, rows)
		if err != nil {
			return err
		}
		if rows > 0 {
			v := len(logits) / rows
			s.logits = append(s.logits[:0], logits[len(logits)-v:]...)
			if each != nil {
				for i := range rows {
					if err := each(from+i, logits[i*v:(i+1)*v]); err != nil {
						return err
					}
				}
			}
		}
		from += len(part)
	}
	return nil
}

// run evaluates one chunk and returns the logits of its last rows tokens, in memory that is valid while the caller holds the lock and until the next run.
func (s *Session) run(ctx context.Context, ids []int32, rows int) ([]float32, error) {
	n, start, context := len(ids), len(s.tokens), s.p.lim.context
	copy(s.ids, ids)
	for i := range n {
		s.positions[i] = int32(start + i)
	}
	for i := range rows {
		s.outs[i] = int32(n - rows + i)
	}
	for g, w := range s.writes {
		for h := range g {
			for i := range n {
				w[i*g+h] = int32(h*context + start + i)
			}
		}
	}
	if s.size != [2]int{n, rows} {
		if err := s.bind(n, rows); err != nil {
			return nil, err
		}
	}
	if err := s.exe.Run(ctx); err != nil {
		return nil, err
	}
	s.tokens = append(s.tokens, ids...)
	if rows == 0 {
		s.logits = s.logits[:0] // they were those of an earlier token, and the next chunk may fail
		return nil, nil
	}
	out := s.exe.Output(s.p.result())
	return tensor.Data[float32](out), nil
}

// result is the output of the graph.
func (d *decoder) result() graph.Value {
	if d.logits.Absent() {
		return d.hidden
	}
	return d.logits
}

func (s *Session) bind(n, rows int) error {
	errs := []error{
		s.exe.Bind(s.p.ids, tensor.Of(s.ids[:n], 1, n)),
		s.exe.Bind(s.p.positions, tensor.Of(s.positions[:n], 1, n)),
		s.exe.Bind(s.p.outs, tensor.Of(s.outs[:rows], rows)),
	}
	for g, v := range s.p.writes {
		errs = append(errs, s.exe.Bind(v, tensor.Of(s.writes[g][:g*n], g*n)))
	}
	s.size = [2]int{n, rows}
	return errors.Join(errs...)
}

// Close releases the session's memory. A second call does nothing.
func (s *Session) Close() error {
	err := s.release()
	// Until here the model's Close must wait for what the session is doing.
	s.m.mu.Lock()
	delete(s.m.sessions, s)
	s.m.mu.Unlock()
	return err
}

func (s *Session) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.exe != nil {
		s.p.mu.Lock()
		if s.exe == s.p.exe && !s.m.isClosed() {
			s.p.taken = false // stays for the next session
		} else {
			errs = append(errs, s.exe.Close())
		}
		s.p.mu.Unlock()
		s.exe = nil
	}
	if s.memory != nil {
		errs = append(errs, s.memory.Close())
		s.memory = nil
	}
	return errors.Join(errs...)
}

func (m *Model) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// acquire takes an idle session for a call on the model itself, or makes one.
func (m *Model) acquire() (*Session, error) {
	m.mu.Lock()
	if n := len(m.idle); n > 0 {
		s := m.idle[n-1]
		m.idle = m.idle[:n-1]
		m.mu.Unlock()
		return s, nil
	}
	m.mu.Unlock()
	return m.NewSession()
}

// giveBack keeps a session for the next call.
func (m *Model) giveBack(s *Session) {
	_ = s.Rewind(0)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.idle = append(m.idle, s)
	}
}
