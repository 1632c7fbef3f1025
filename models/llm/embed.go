package llm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/tokenizer"
	"github.com/tessera-go/tessera/ops"
	"github.com/tessera-go/tessera/ops/shape"
	"github.com/tessera-go/tessera/tensor"
)

// EmbedOptions say how a text becomes a vector. The zero value pools as the model's file says (decoders without a word on it: the last
// token) and leaves the vector's length as it is.
type EmbedOptions struct {
	Pooling   Pooling // PoolNone: the file's
	Normalize bool    // to length 1
}

// Embed returns the vector of a text, of Config.Dim numbers, and the text's tokens, those that the model puts around it included. A text of more tokens than the
// context is a *ContextError.
func (m *Model) Embed(ctx context.Context, text string, o EmbedOptions) (vector []float32, ids []int32, err error) {
	ids = m.Tokenizer.Encode(text, tokenizer.Options{Special: true})
	vector, err = m.EmbedIDs(ctx, ids, o)
	return vector, ids, err
}

// EmbedIDs is Embed for a text of tokens, to which nothing is added.
func (m *Model) EmbedIDs(ctx context.Context, ids []int32, o EmbedOptions) ([]float32, error) {
	if len(ids) == 0 {
		return nil, errors.New("llm: a text without tokens has no vector")
	}
	if len(ids) > m.opts.Context {
		return nil, &ContextError{len(ids), m.opts.Context}
	}
	pool := o.Pooling
	if pool == PoolNone {
		pool = m.Config.Pooling
	}
	if pool == PoolNone {
		if pool = PoolLast; !m.Config.Causal {
			pool = PoolMean
		}
	}
	sum := make([]float64, m.Config.Dim)
	add := func(i int, row []float32) error {
		if pool == PoolCLS && i != 0 || pool == PoolLast && i != len(ids)-1 {
			return nil
		}
		for j, v := range row {
			if !finite(float64(v)) {
				return fmt.Errorf("llm: token %d has no vector: %w", i, m.blame())
			}
			sum[j] += float64(v)
		}
		return nil
	}
	var err error
	if m.Config.Causal {
		err = m.hiddenStates(ctx, ids, add)
	} else {
		err = m.encode(ctx, ids, add)
	}
	if err != nil {
		return nil, err
	}
	scale := 1.0
	if pool == PoolMean {
		scale /= float64(len(ids))
	}
	if o.Normalize {
		var norm float64
		for _, v := range sum {
			norm += v * v
		}
		if norm > 0 {
			scale = 1 / math.Sqrt(norm)
		}
	}
	vector := make([]float32, len(sum))
	for i, v := range sum {
		vector[i] = float32(v * scale)
	}
	return vector, nil
}

// hiddenStates calls each with the normalized state of every token of a causal model.
func (m *Model) hiddenStates(ctx context.Context, ids []int32, each func(int, []float32) error) error {
	lim := m.limits()
	lim.rows, lim.hidden = lim.tokens, true
	s, err := m.newSession(lim)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.EvalAll(ctx, ids, each)
}

// encoders are the compiled encoder and those of its forks that are free.
type encoders struct {
	mu     sync.Mutex
	g      *graph.Graph
	ids    graph.Value
	pos    graph.Value
	hidden graph.Value
	first  *graph.Executable
	free   []*graph.Executable
	busy   sync.WaitGroup
	closed bool
}

// buildEncoder builds the graph of a BERT-style encoder: norms stand behind the residuals, and every token sees every other.
func buildEncoder(c *Config, w *weights, tokens int) (*encoders, error) {
	b := &builder{Graph: graph.New(c.Arch), c: c, w: w}
	e := &encoders{g: b.Graph}
	one := ops.Const(1)
	n := b.Symbol("tokens", tokens)
	e.ids = b.Input("ids", tensor.I32, one, n)
	e.pos = b.Input("positions", tensor.I32, one, n)
	x := b.Apply("token_embd", shape.GetRows{}, b.weight("token_embd.weight", c.Vocab, c.Dim), e.ids)
	if w.src.Has("token_types.weight") {
		t, err := w.src.Tensor("token_types.weight")
		if err != nil {
			return nil, err
		}
		if t.Rank != 2 {
			return nil, fmt.Errorf("tensor \"token_types.weight\" is %v, two dimensions are right", t.Spec)
		}
		types := b.weight("token_types.weight", t.Dims[0], c.Dim)
		zero := tensor.New(tensor.I32, 1)
		x = b.add("embd_types", x, b.Apply("token_type", shape.GetRows{}, types, b.Constant("type_0", zero)))
	}
	if w.src.Has("position_embd.weight") {
		t, err := w.src.Tensor("position_embd.weight")
		if err != nil {
			return nil, err
		}
		if t.Rank != 2 || t.Dims[0] < tokens {
			return nil, fmt.Errorf("tensor \"position_embd.weight\" is %v, at least %d positions are right", t.Spec, tokens)
		}
		x = b.add("embd", x, b.Apply("position_embd", shape.GetRows{}, b.weight("position_embd.weight", t.Dims[0], c.Dim), e.pos))
	}
	x = b.reshape("tokens", x, infer, ops.Const(c.Dim))
	x = b.norm("token_embd_norm", x, c.Dim)
	for i := range c.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		q, k, v := b.projections(p, i, x, one, everyRow)
		q, k = b.rope(p+"q_rope", i, q, e.pos, graph.Value{}), b.rope(p+"k_rope", i, k, e.pos, graph.Value{})
		a := b.Apply(p+"attn", c.sdpa(i), b.swapHeads(p+"q_by_head", q), b.swapHeads(p+"k_by_head", k), b.swapHeads(p+"v_by_head", v))
		a = b.reshape(p+"attn_rows", b.swapHeads(p+"attn_by_token", a), infer, ops.Const(c.Heads[i]*c.ValDim))
		a = b.linear(p+"attn_output", a, c.Dim, c.Heads[i]*c.ValDim)
		x = b.norm(p+"attn_output_norm", b.add(p+"attn_residual", a, x), c.Dim)
		f := b.feedForward(p, i, x)
		x = b.norm(p+"layer_output_norm", b.add(p+"ffn_residual", f, x), c.Dim)
	}
	e.hidden = x
	b.Output("hidden", x)
	return e, b.finish()
}

// openEncoder builds and compiles the encoder when the model is opened.
func (m *Model) openEncoder(ctx context.Context) error {
	e, err := buildEncoder(m.Config, m.w, m.opts.Context)
	if err != nil {
		return err
	}
	if e.first, err = e.g.Compile(ctx, m.opts.graph()); err != nil {
		return err
	}
	e.free = []*graph.Executable{e.first}
	m.encoder = e
	return nil
}

// encode calls each with the last state of every token.
func (m *Model) encode(ctx context.Context, ids []int32, each func(int, []float32) error) error {
	for i, id := range ids {
		if id < 0 || int(id) >= m.Config.Vocab {
			return fmt.Errorf("llm: token %d is %d, the vocabulary has %d", i, id, m.Config.Vocab)
		}
	}
	e := m.encoder
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.busy.Add(1)
	var exe *graph.Executable
	if n := len(e.free); n > 0 {
		exe, e.free = e.free[n-1], e.free[:n-1]
	}
	e.mu.Unlock()
	defer e.busy.Done()
	if exe == nil {
		var err error
		if exe, err = e.first.Fork(ctx); err != nil {
			return err
		}
	}
	defer func() {
		e.mu.Lock()
		e.free = append(e.free, exe)
		e.mu.Unlock()
	}()
	positions := make([]int32, len(ids))
	for i := range positions {
		positions[i] = int32(i)
	}
	if err := errors.Join(exe.Bind(e.ids, tensor.Of(ids, 1, len(ids))), exe.Bind(e.pos, tensor.Of(positions, 1, len(ids)))); err != nil {
		return err
	}
	if err := exe.Run(ctx); err != nil {
		return err
	}
	out := exe.Output(e.hidden)
	states := tensor.Data[float32](out)
	d := m.Config.Dim
	for i := range ids {
		if err := each(i, states[i*d:(i+1)*d]); err != nil {
			return err
		}
	}
	return nil
}

// close waits for what runs.
func (e *encoders) close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.busy.Wait()
	var errs []error
	for _, exe := range e.free {
		errs = append(errs, exe.Close())
	}
	return errors.Join(append(errs, e.g.Close())...)
}
