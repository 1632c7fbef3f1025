package llm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/graph"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
)

// An evaluation that fails behind some of its tokens leaves no logits of an earlier one: what is generated next continues what has been read, also where the
// tokens were guesses of a draft model.
func TestLogitsAfterAnEvaluationThatFailed(t *testing.T) {
	ctx := context.Background()
	broken := errors.New("broken")
	left := 0 // nodes until a run fails, none where it is not positive
	const chunk = 4
	m := embedded(t, llm.Options{Chunk: chunk, OnNode: func(graph.NodeEvent) error {
		if left--; left == 0 {
			return broken
		}
		return nil
	}})
	ids := m.PromptIDs("The prince said that he would not go to the war again, and that nobody knew of it", llm.GenerateOptions{})
	require.Greater(t, len(ids), 3*chunk)
	continued := func(s *llm.Session) (out []int32) {
		for token, err := range s.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 3}) {
			require.NoError(t, err)
			out = append(out, token.ID)
		}
		return out
	}
	fresh := func(ids []int32) *llm.Session {
		s, err := m.NewSession()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.Eval(ctx, ids...))
		return s
	}
	s := fresh(ids[:2])
	nodes := -left // of a run
	require.Greater(t, nodes, 10)
	s = fresh(ids[:2])
	left = nodes + nodes/2 // in the second chunk
	require.ErrorIs(t, s.Eval(ctx, ids[2:]...), broken)
	left = 0
	require.Equal(t, ids[:2+chunk], s.Tokens())
	require.Nil(t, s.Logits())
	require.Equal(t, continued(fresh(ids[:2+chunk])), continued(s))

	draft := embedded(t, llm.Options{})
	for at := nodes / 2; ; at += nodes / 2 {
		s := fresh(ids)
		left = at
		var failed error
		for _, err := range s.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 12, Draft: draft, DraftTokens: 6}) {
			failed = err
		}
		left = 0
		if failed == nil {
			require.Greater(t, at, 2*nodes)
			break
		}
		require.ErrorIs(t, failed, broken)
		require.Equal(t, continued(fresh(s.Tokens())), continued(s), "failed at node %d", at)
	}
}

// Sessions that read one token at a time, or have room for one alone, compute what others do, in every architecture.
func TestChunksOfOneToken(t *testing.T) {
	for name, shape := range llmtest.Cases() {
		if shape.Arch == "bert" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			ids := prompt()[:6]
			var want [][]float32
			for _, o := range []llm.Options{{}, {Chunk: 1}} {
				s, err := random(t, shape, o).NewSession()
				require.NoError(t, err)
				got := [][]float32{logitsOf(t, s, ids...), logitsOf(t, s, ids[0])}
				if want == nil {
					want = got
				}
				for i := range want {
					require.InDeltaSlice(t, want[i], got[i], 1e-3)
				}
			}
			s, err := random(t, shape, llm.Options{Context: 1}).NewSession()
			require.NoError(t, err)
			require.Len(t, logitsOf(t, s, ids[0]), shape.Vocab)
		})
	}
}
