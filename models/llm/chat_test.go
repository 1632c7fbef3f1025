package llm_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/chat"
	"github.com/tessera-go/tessera/models/llm"
)

func TestChat(t *testing.T) {
	m := embedded(t, llm.Options{})
	c, err := m.NewChat("War and Peace.", "")
	require.NoError(t, err)
	defer c.Close()
	ctx := context.Background()
	var stats llm.Stats
	o := llm.GenerateOptions{MaxTokens: 10, Stats: &stats}
	first, text := collect(t, c.Send(ctx, "What did the prince say?", o))
	require.Len(t, first, 10)
	read := len(stats.Prompt)
	require.Equal(t, "assistant", c.Messages[2].Role)
	require.Equal(t, strings.TrimSpace(text), c.Messages[2].Content)

	// The second turn evaluates only what is new.
	before := c.Len()
	collect(t, c.Send(ctx, "And then?", o))
	require.Less(t, len(stats.Prompt), read)
	require.Greater(t, c.Len(), before)
	prompt, err := c.Prompt()
	require.NoError(t, err)
	require.Greater(t, len(prompt), before)

	// The same conversation in one piece continues in the same way.
	c.Messages = c.Messages[:4]
	want, err := c.Prompt()
	require.NoError(t, err)
	s, err := m.NewSession()
	require.NoError(t, err)
	again, _ := collect(t, s.GenerateIDs(ctx, want, llm.GenerateOptions{MaxTokens: 10}))
	require.Equal(t, stats.Tokens, again)

	// An answer that is interrupted stays a turn; the conversation goes on, however long it gets.
	cancelled, cancel := context.WithCancel(ctx)
	n := 0
	for _, err := range c.Send(cancelled, "Go on.", o) {
		if n++; n == 4 {
			cancel()
		}
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	cancel()
	require.Equal(t, "assistant", c.Messages[len(c.Messages)-1].Role)
	for range 12 {
		collect(t, c.Send(ctx, strings.Repeat("again and ", 3), o))
	}
	require.Equal(t, "War and Peace.", c.Messages[0].Content, "the system message stays when old turns go")
	require.Greater(t, len(c.Messages), 25, "what the model does not see any more is not lost")
	prompt, err = c.Prompt()
	require.NoError(t, err)
	require.LessOrEqual(t, len(prompt), m.Context())
	turns := len(c.Messages)
	for _, err := range c.Send(ctx, strings.Repeat("too long ", 300), o) {
		require.ErrorContains(t, err, "do not fit the context of 256")
	}
	require.Len(t, c.Messages, turns, "a question that cannot be asked is no turn")
	cancel()
	for _, err := range c.Send(cancelled, "Too late?", o) {
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Len(t, c.Messages, turns, "nor is one that gets no answer")
	c.Messages = c.Messages[:1]
	_, text = collect(t, c.Send(ctx, "What did the prince say?", o))
	require.Equal(t, c.Messages[2].Content, strings.TrimSpace(text))
}

// A template that refuses system messages gets what it says in front of the first question.
func TestChatWithoutSystemRole(t *testing.T) {
	m := embedded(t, llm.Options{})
	const source = `{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}` +
		`{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.content == 'bad' %}{{ raise_exception('bad content') }}{% endif %}{% endfor %}`
	c, err := m.NewChat("Be brief.", source)
	require.NoError(t, err)
	defer c.Close()
	rendered := func(messages ...chat.Message) string {
		c.Messages = append(c.Messages[:1:1], messages...)
		ids, err := c.Prompt()
		require.NoError(t, err)
		return m.Tokenizer.Decode(ids)
	}
	require.Equal(t, "[user]Be brief.\n\nHello", rendered(chat.Message{Role: "user", Content: "Hello"}))
	require.Equal(t, "[user]Be brief.\n\nHello[assistant]Hi.[user]And?", rendered(chat.Message{Role: "user", Content: "Hello"},
		chat.Message{Role: "assistant", Content: "Hi."}, chat.Message{Role: "user", Content: "And?"}))
	require.Equal(t, "Be brief.", c.Messages[0].Content, "the conversation itself stays as it is")
	require.Equal(t, "Hello", c.Messages[1].Content)
	c.Messages = append(c.Messages[:1:1], chat.Message{Role: "user", Content: "Hello"}, chat.Message{Role: "assistant", Content: "bad"})
	_, err = c.Prompt()
	require.ErrorContains(t, err, "System role not supported")
}

func TestEvalShared(t *testing.T) {
	m := embedded(t, llm.Options{})
	s, err := m.NewSession()
	require.NoError(t, err)
	ctx := context.Background()
	a := m.PromptIDs("The prince said that the Emperor was not", llm.GenerateOptions{})
	b := m.PromptIDs("The prince said that the army", llm.GenerateOptions{})
	n, err := s.EvalShared(ctx, a)
	require.NoError(t, err)
	require.Zero(t, n)
	want := logitsOf(t, func() *llm.Session { x, err := m.NewSession(); require.NoError(t, err); return x }(), b...)
	n, err = s.EvalShared(ctx, b)
	require.NoError(t, err)
	require.Greater(t, n, 3)
	require.Equal(t, b, s.Tokens())
	require.InDeltaSlice(t, want, s.Logits(), 1e-3)
	n, err = s.EvalShared(ctx, b)
	require.NoError(t, err)
	require.Equal(t, len(b)-1, n)
	require.InDeltaSlice(t, want, s.Logits(), 1e-3)
}
