package llm_test

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/sample"
)

// last returns the error that a generation ends with.
func last[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
	}
	return err
}

// A model that is closed while it is used lets each call finish or fail with ErrClosed: none touches memory that has been given back, which would
// end the process, and the race detector sees nothing.
func TestCloseBesideEveryCall(t *testing.T) {
	ctx := context.Background()
	drawn := llm.GenerateOptions{MaxTokens: 12, LogProbs: true, Top: 3, Sampling: sample.Options{Temperature: 1}}
	ids := []int32{11, 12, 13, 14, 15}
	var encoder bytes.Buffer
	require.NoError(t, llmtest.Write(&encoder, llmtest.Small("bert", true)))
	other := embedded(t, llm.Options{})

	session := func(use func(s *llm.Session) error) func(*testing.T, *llm.Model) func() error {
		return func(t *testing.T, m *llm.Model) func() error {
			s, err := m.NewSession()
			require.NoError(t, err)
			return func() error { return use(s) }
		}
	}
	model := func(use func(m *llm.Model) error) func(*testing.T, *llm.Model) func() error {
		return func(_ *testing.T, m *llm.Model) func() error { return func() error { return use(m) } }
	}
	cases := []struct {
		name string
		data []byte // nil: of a causal model
		// start returns one call, which is repeated until it fails.
		start func(t *testing.T, m *llm.Model) func() error
	}{
		{"generate", nil, model(func(m *llm.Model) error { return last(m.Generate(ctx, "The prince", drawn)) })},
		{"generate with a draft", nil, model(func(m *llm.Model) error {
			o := drawn
			o.Draft = other
			return last(m.Generate(ctx, "The prince", o))
		})},
		{"generate as a draft", nil, model(func(m *llm.Model) error {
			o := drawn
			o.Draft = m
			return last(other.Generate(ctx, "The prince", o))
		})},
		{"generate in batches", nil, model(func(m *llm.Model) error {
			return last(m.GenerateBatch(ctx, []string{"a", "b b", "The prince"}, 2, llm.GenerateOptions{MaxTokens: 5, LogProbs: true}))
		})},
		{"perplexity", nil, model(func(m *llm.Model) error { _, err := m.Perplexity(ctx, ids, 0, nil); return err })},
		{"embed", nil, model(func(m *llm.Model) error { _, err := m.EmbedIDs(ctx, ids, llm.EmbedOptions{}); return err })},
		{"encode", encoder.Bytes(), model(func(m *llm.Model) error { _, err := m.EmbedIDs(ctx, ids, llm.EmbedOptions{}); return err })},
		{"sessions", nil, model(func(m *llm.Model) error {
			s, err := m.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Eval(ctx, ids...)
		})},
		{"batches", nil, func(t *testing.T, m *llm.Model) func() error {
			b, err := m.NewBatch(3)
			require.NoError(t, err)
			return func() error {
				var all []*llm.Sequence
				for b.Len() < b.Cap() {
					q, err := b.Add(ctx, ids)
					if err != nil {
						return err
					}
					all = append(all, q)
				}
				for range 3 {
					for _, q := range all {
						if err := q.Push(int32(len(sample.Top(q.Logits(), 1)))); err != nil {
							return err
						}
					}
					if err := b.Step(ctx); err != nil {
						return err
					}
				}
				for _, q := range all {
					q.Remove()
				}
				return nil
			}
		}},
		{"logits", nil, session(func(s *llm.Session) error {
			if err := s.Rewind(0); err != nil {
				return err
			}
			err := s.Eval(ctx, ids...)
			for range 20 {
				_ = sample.LogSumExp(s.Logits())
			}
			return err
		})},
		{"logits of all", nil, session(func(s *llm.Session) error {
			if err := s.Rewind(0); err != nil {
				return err
			}
			return s.EvalAll(ctx, ids, func(_ int, logits []float32) error { _ = sample.LogSumExp(logits); return nil })
		})},
		{"chat", nil, model(func(m *llm.Model) error {
			c, err := m.NewChat("War and Peace.", "")
			if err != nil {
				return err
			}
			defer c.Close()
			return last(c.Send(ctx, "What did the prince say?", drawn))
		})},
		{"save and load", nil, session(func(s *llm.Session) error {
			var saved bytes.Buffer
			if err := s.Save(&saved); err != nil {
				return err
			}
			if s.Len() == 0 {
				return s.Eval(ctx, ids...)
			}
			return s.Load(ctx, &saved)
		})},
		{"fork", nil, session(func(s *llm.Session) error {
			if s.Len() == 0 {
				return s.Eval(ctx, ids...)
			}
			f, err := s.Fork()
			if err != nil {
				return err
			}
			_ = sample.LogSumExp(f.Logits())
			return f.Close()
		})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			data := c.data
			if data == nil {
				data = tolstoy.GGUF()
			}
			for round := range 12 {
				// Close begins beside a call: at one of its nodes, or, since a run that is watched goes other ways, in every second round at its beginning.
				var o llm.Options
				var steps atomic.Int64
				at, reached := int64(1+round/2), make(chan struct{})
				step := func(graph.NodeEvent) error {
					if steps.Add(1) == at {
						close(reached)
					}
					return nil
				}
				if round%2 == 1 {
					o.OnNode = step
					at = int64(1 + 9*round)
				}
				m, err := llm.Parse(data, o)
				require.NoError(t, err)
				call := c.start(t, m)
				done := make(chan error, 1)
				go func() {
					for {
						_ = step(graph.NodeEvent{})
						if err := call(); err != nil {
							done <- err
							return
						}
					}
				}()
				<-reached
				require.NoError(t, m.Close())
				require.ErrorIs(t, <-done, llm.ErrClosed)
			}
		})
	}
}

// Model.Close waits also for a session that somebody else is closing at that moment.
func TestCloseBesideSessionsClose(t *testing.T) {
	for round := range 20 {
		m, err := llm.Parse(tolstoy.GGUF(), llm.Options{Chunk: 4})
		require.NoError(t, err)
		s, err := m.NewSession()
		require.NoError(t, err)
		var wg sync.WaitGroup
		failed := make(chan error, 1)
		running, closing, later := make(chan struct{}), make(chan struct{}), make(chan struct{})
		wg.Go(func() {
			failed <- s.EvalAll(context.Background(), make([]int32, 120), func(i int, _ []float32) error {
				switch i {
				case 0:
					close(running)
					<-closing
				case 1 + 5*round: // what the session does meanwhile gives its Close the time to get to its wait
					close(later)
				}
				return nil
			})
		})
		<-running
		wg.Go(func() {
			close(closing)
			_ = s.Close()
		})
		<-later
		require.NoError(t, m.Close())
		wg.Wait()
		require.NoError(t, <-failed)
	}
}

// What Logits has returned outlives session and model.
func TestLogitsOutliveClose(t *testing.T) {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	require.NoError(t, err)
	s, err := m.NewSession()
	require.NoError(t, err)
	want := logitsOf(t, s, 11, 12)
	b, err := m.NewBatch(2)
	require.NoError(t, err)
	q, err := b.Add(context.Background(), []int32{11, 12})
	require.NoError(t, err)
	batched := slices.Clone(q.Logits())
	require.NoError(t, m.Close())
	require.Equal(t, want, s.Logits())
	require.Equal(t, batched, q.Logits())
}
