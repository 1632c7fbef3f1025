package llm

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/tessera-go/tessera/models/chat"
	"github.com/tessera-go/tessera/models/tokenizer"
)

// Chat is a conversation with a model: its turns, and a session that has read them. One goroutine uses it. Messages may be changed
// between calls, for example to go on with a conversation that was saved.
type Chat struct {
	*Session
	Messages []chat.Message
	template *chat.Template
	stop     []string // where the model would go on with the other's turn
	// forgotten is the number of turns behind the system message that the context has no room for.
	forgotten int
}

// ChatTemplate returns the Jinja template of the model's file or folder, which says how a conversation is written; empty where there is none.
func (m *Model) ChatTemplate() string { return m.template }

// NewChat starts a conversation. The template is the file's, or the given one if it is not empty; files without one get
// [chat.ChatML] if they know its tokens, else [chat.Plain]. A system message may be empty.
func (m *Model) NewChat(system, template string) (*Chat, error) {
	if template == "" {
		template = m.template
	}
	c := &Chat{}
	if template == "" {
		if _, ok := m.Tokenizer.ID("<|im_start|>"); ok {
			template = chat.ChatML
		} else {
			template, c.stop = chat.Plain, []string{"\nUser:"}
		}
	}
	spelled := func(id int32) string {
		if id < 0 {
			return ""
		}
		return m.Tokenizer.Tokens[id]
	}
	var err error
	if c.template, err = chat.Parse(template, spelled(m.Tokenizer.BOS), spelled(m.Tokenizer.EOS)); err != nil {
		return nil, err
	}
	if c.Session, err = m.NewSession(); err != nil {
		return nil, err
	}
	if system != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: system})
	}
	return c, nil
}

// leading returns how many messages stand before the first turn: the system message, or none.
func (c *Chat) leading() int {
	if len(c.Messages) > 0 && c.Messages[0].Role == "system" {
		return 1
	}
	return 0
}

// Prompt returns the tokens of the conversation up to where the assistant's turn begins, without the turns for which the context has
// no room.
func (c *Chat) Prompt() ([]int32, error) {
	first := c.leading()
	c.forgotten = min(c.forgotten, max(0, len(c.Messages)-first-1))
	shown := slices.Concat(c.Messages[:first], c.Messages[first+c.forgotten:])
	text, err := c.template.Render(shown, true, nil)
	if err != nil && first == 1 && len(shown) > 1 {
		// Templates of Gemma and Mistral refuse system messages; what they say then stands before the first question.
		turns := slices.Clone(shown[1:])
		turns[0].Content = shown[0].Content + "\n\n" + turns[0].Content
		if merged, again := c.template.Render(turns, true, nil); again == nil {
			text, err = merged, nil
		}
	}
	if err != nil {
		return nil, err
	}
	ids := c.m.Tokenizer.Encode(text, tokenizer.Options{ParseSpecial: true})
	// Templates that leave the beginning to the tokenizer get what the model asks for.
	if prefix, _ := c.m.Tokenizer.AddsSpecial(); len(prefix) > 0 && (len(ids) == 0 || ids[0] != prefix[0]) {
		ids = slices.Concat(prefix, ids)
	}
	return ids, nil
}

// Send says something to the model and returns its answer, which becomes a turn of the conversation: also the part of an answer that
// was interrupted. A question that got no token of an answer is no turn. Only what the session has not read before is evaluated. Where
// the context is too short for the whole conversation, the oldest turns behind the system message are not shown to the model.
func (c *Chat) Send(ctx context.Context, text string, o GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		asked := len(c.Messages)
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: text})
		ids, err := c.fit(o.MaxTokens)
		if err == nil {
			ids, err = c.reuse(ids)
		}
		if err != nil {
			c.Messages = c.Messages[:asked]
			yield(Token{}, err)
			return
		}
		o.Stop = slices.Concat(o.Stop, c.stop)
		var answer strings.Builder
		tokens := 0
		var failed error
		c.GenerateIDs(ctx, ids, o)(func(t Token, err error) bool {
			if err == nil {
				tokens++
			}
			failed = err
			answer.WriteString(t.Text)
			return yield(t, err)
		})
		if failed != nil && tokens == 0 {
			c.Messages = c.Messages[:asked]
			return
		}
		c.Messages = append(c.Messages, chat.Message{Role: "assistant", Content: strings.TrimSpace(answer.String())})
	}
}

// fit returns the prompt, forgetting the oldest turns until it and an answer fit. Then it makes some more room, as every time that turns are
// forgotten all others are read again.
func (c *Chat) fit(answer int) ([]int32, error) {
	limit := c.p.lim.context
	room := limit / 4
	if answer > 0 {
		room = min(answer, limit/2)
	}
	for goal := limit; ; goal = limit - limit/4 {
		ids, err := c.Prompt()
		if err != nil {
			return nil, err
		}
		if len(ids)+room <= goal {
			return ids, nil
		}
		if len(c.Messages)-c.leading()-c.forgotten < 3 { // the last question has no earlier turns left in front of it
			if len(ids) >= limit {
				return nil, &ContextError{len(ids), limit}
			}
			return ids, nil
		}
		c.forgotten += 2
	}
}

// reuse rewinds the session to what it shares with ids and returns the rest, at least one token.
func (s *Session) reuse(ids []int32) ([]int32, error) {
	have := s.Tokens()
	n := 0
	for n < len(have) && n < len(ids)-1 && have[n] == ids[n] {
		n++
	}
	return ids[n:], s.Rewind(n)
}

// EvalShared makes ids the session's whole content, evaluating only what lies behind the part that it holds already. It returns how
// many tokens were reused.
func (s *Session) EvalShared(ctx context.Context, ids []int32) (reused int, err error) {
	rest, err := s.reuse(ids)
	if err != nil {
		return 0, err
	}
	return len(ids) - len(rest), s.Eval(ctx, rest...)
}
