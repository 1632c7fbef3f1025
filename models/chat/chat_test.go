package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The templates below are those of model families, shortened to what a plain conversation uses.
// What they give is what Jinja2 gives, with the options that Transformers sets (trim_blocks and lstrip_blocks).
var families = map[string]struct {
	source, want string
	noSystem     bool // it refuses system messages
}{
	"chatml": {ChatML, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n" +
		"<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n", false},
	"llama-3": {`{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>

'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}` +
		`{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}`, "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>" +
		"<|start_header_id|>assistant<|end_header_id|>\n\nHi.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWho are you?<|eot_id|>" +
		"<|start_header_id|>assistant<|end_header_id|>\n\n", false},
	"llama-2": {`{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}` +
		`{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}` +
		`{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}` +
		`{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}` +
		`{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}` +
		`{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}`,
		"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHello [/INST] Hi. </s><s>[INST] Who are you? [/INST]", false},
	"gemma": {`{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '
' + message['content'] | trim + '<end_of_turn>
' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model
'}}{% endif %}`, "<s><start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\nHi.<end_of_turn>\n<start_of_turn>user\nWho are you?<end_of_turn>\n<start_of_turn>model\n", true},
	"mistral": {`{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}`, "<s>[INST] Hello [/INST]Hi.</s>[INST] Who are you? [/INST]", true},
	"phi-3": {`{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'user' %}{{'<|user|>
' + message['content'] + '<|end|>
'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>
' + message['content'] + '<|end|>
'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>
' }}{% else %}{{ eos_token }}{% endif %}`, "<|system|>\nBe brief.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi.<|end|>\n<|user|>\nWho are you?<|end|>\n<|assistant|>\n", false},
	"qwen-2.5": {`{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
{%- else %}
    {{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}`, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n", false},
	"lines of their own": {`{% for message in messages %}
  {% if message.role == 'system' %}
<|sys|>{{ message.content }}
  {% else %}
<|{{ message.role }}|>{{ message.content }}
  {% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{%- endif %}`, "<|sys|>Be brief.\n<|user|>Hello\n<|assistant|>Hi.\n<|user|>Who are you?\n<|assistant|>", false},
	"plain": {Plain, "Be brief.\n\nUser: Hello\nAssistant: Hi.\nUser: Who are you?\nAssistant:", false},
}

var conversation = []Message{{"system", "Be brief."}, {"user", "Hello"}, {"assistant", "Hi."}, {"user", "Who are you?"}}

func TestFamilies(t *testing.T) {
	for name, f := range families {
		tmpl, err := Parse(f.source, "<s>", "</s>")
		require.NoError(t, err, name)
		messages := conversation
		if f.noSystem {
			_, err := tmpl.Render(messages, true, nil)
			require.ErrorIs(t, err, ErrTemplate, name)
			messages = messages[1:]
		}
		got, err := tmpl.Render(messages, true, nil)
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
