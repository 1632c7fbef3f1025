// Package chat turns a conversation into the text that a model was trained to continue, by the Jinja template that its file carries.
package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ardanlabs/jinja"
)

// Message is one turn.
type Message struct {
	Role    string `json:"role"` // "system", "user", "assistant"
	Content string `json:"content"`
}

// ChatML is the template that many models share, for files that carry none.
const ChatML = `{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// Plain writes the turns under each other, for models that were never trained on conversations.
const Plain = `{% for message in messages %}{% if message.role == 'system' %}{{ message.content + '\n\n' }}{% else %}{{ message.role | capitalize }}: {{ message.content + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}`

// Template is a compiled template. It is safe for several goroutines.
type Template struct {
	t        *jinja.Template
	bos, eos string
}

// ErrTemplate is the cause of errors about templates.
var ErrTemplate = errors.New("chat template")

// Parse compiles a template. Bos and eos are the spellings of the tokens that begin and end texts, which templates mention.
func Parse(source, bos, eos string) (t *Template, err error) {
	defer caught(&err)
	compiled, err := jinja.Compile(source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return &Template{compiled, bos, eos}, nil
}

// Render writes the messages. With generate, what introduces the assistant's turn follows. Extra variables may be nil.
func (t *Template) Render(messages []Message, generate bool, extra map[string]any) (text string, err error) {
	defer caught(&err)
	list := make([]any, len(messages))
	for i, m := range messages {
		list[i] = map[string]any{"role": m.Role, "content": m.Content}
	}
	data := map[string]any{"messages": list, "add_generation_prompt": generate, "bos_token": t.bos, "eos_token": t.eos, "tools": nil}
	for k, v := range extra {
		data[k] = v
	}
	text, err = t.t.Render(data)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return text, nil
}

// caught turns a panic over a template, which comes with a model's file, into an error.
func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("%w: %s", ErrTemplate, strings.TrimSpace(fmt.Sprint(r)))
	}
}
