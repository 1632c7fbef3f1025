package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The templates below are those of model families, shortened to what a plain conversation uses.
var families = map[string]struct{ source, want string }{
	"chatml": {ChatML, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n" +
		"<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n"},
	"llama-3": {`{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>

'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}` +
		`{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}`, "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>" +
		"<|start_header_id|>assistant<|end_header_id|>\n\nHi.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|>" +
		"<|start_header_id|>assistant<|end_header_id|>\n\n"},
	"llama-2": {`{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}` +
		`{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}` +
		`{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}` +
		`{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}` +
		`{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}` +
		`{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}`,
		"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi. </s><s>[INST] Who are you? [/INST]"},
	"plain": {Plain, "Be brief.\n\nUser: Hello\nAssistant: Hi.\nUser: Who are you?\nAssistant:"},
}

var conversation = []Message{{"system", "Be brief."}, {"user", "Hello"}, {"assistant", "Hi."}, {"user", "Who are you?"}}

func TestFamilies(t *testing.T) {
	for name, f := range families {
		tmpl, err := Parse(f.source, "<s>", "</s>")
		require.NoError(t, err, name)
		got, err := tmpl.Render(conversation, true, nil)
		require.NoError(t, err, name)
		require.Equal(t, f.want, got, name)
	}
}

// What the templates of newer families are made of.
func TestConstructs(t *testing.T) {
	for source, want := range map[string]string{
		"{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}{{ ns.last }}": "3",
		"{% for m in messages[::-1] %}{{ m.role[0] }}{% if not loop.last %}-{% endif %}{% endfor %}":                                                                "u-a-u-s",
		"{{ (messages | selectattr('role', 'equalto', 'user') | list) | length }}":                                                                                  "2",
		"{{ '<think>\nhm\n</think>\n\nyes'.split('</think>')[-1].lstrip('\n') }}":                                                                                   "yes",
		"{% if tools is none and not custom is defined and messages[0].content is string %}plain{% endif %}":                                                        "plain",
		"{{ 'a' if messages[1].content.startswith('Hel') and 'tool_calls' not in messages[1] else 'b' }}":                                                           "a",
		"{{ messages[0] | tojson }}":                                   `{"content": "Be brief.", "role": "system"}`,
		"{{ strftime_now('%Y') | length }}":                            "4",
		"{% set messages = messages[1:] -%}\n {{ messages | length }}": "3",
	} {
		tmpl, err := Parse(source, "<s>", "</s>")
		require.NoError(t, err, source)
		got, err := tmpl.Render(conversation, true, nil)
		require.NoError(t, err, source)
		require.Equal(t, want, got, source)
	}
}

func TestErrors(t *testing.T) {
	_, err := Parse("{% for x in %}", "", "")
	require.ErrorIs(t, err, ErrTemplate)
	tmpl, err := Parse(families["llama-2"].source, "<s>", "</s>")
	require.NoError(t, err)
	_, err = tmpl.Render([]Message{{"user", "a"}, {"user", "b"}}, true, nil)
	require.ErrorContains(t, err, "roles must alternate")
	tmpl, err = Parse("{{ name }}{% if add_generation_prompt %}!{% endif %}", "", "")
	require.NoError(t, err)
	got, err := tmpl.Render(nil, false, map[string]any{"name": "x"})
	require.NoError(t, err)
	require.Equal(t, "x", got)
}

func FuzzParse(f *testing.F) {
	for _, fam := range families {
		f.Add(fam.source)
	}
	f.Add("{{ messages[9].content }}")
	f.Add("{% if %}{{")
	f.Fuzz(func(t *testing.T, source string) {
		if len(source) > 2000 {
			return
		}
		if tmpl, err := Parse(source, "<s>", "</s>"); err == nil {
			_, _ = tmpl.Render(conversation, true, nil)
		}
	})
}
