package tokenizer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
)

type object = map[string]any

func fromObject(t testing.TB, o object) (*Tokenizer, error) {
	b, err := json.Marshal(o)
	require.NoError(t, err)
	return FromJSON(b)
}

func indexed(tokens []string) object {
	ids := object{}
	for i, s := range tokens {
		ids[s] = i
	}
	return ids
}

func added(tok *Tokenizer) (list []object) {
	for i, s := range tok.Tokens {
		if k := tok.Kinds[i]; k == Control || k == UserDefined || k == Unknown {
			list = append(list, object{"id": i, "content": s, "special": k != UserDefined})
		}
	}
	return list
}

// mergesOf finds the pairs that make up each token, the best score first, as converters from SentencePiece do.
func mergesOf(tok *Tokenizer) []any {
	type pair struct {
		a, b  string
		score float32
		order int
	}
	var all []pair
	for i, s := range tok.Tokens {
		if tok.Kinds[i] != Normal {
			continue
		}
		for at := range s {
			if _, ok := tok.ids[s[:at]]; !ok || at == 0 {
				continue
			}
			if _, ok := tok.ids[s[at:]]; ok {
				all = append(all, pair{s[:at], s[at:], tok.Scores[i], i})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y pair) int { return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(x.order, y.order)) })
	list := make([]any, len(all))
	for i, p := range all {
		list[i] = []string{p.a, p.b}
	}
	return list
}

// The vocabularies beside the checkout, spelled as tokenizer.json: the cases come out as from the GGUF files.
func TestJSONVocabularies(t *testing.T) {
	objects := map[string]func(tok *Tokenizer) object{
		"gpt-2": func(tok *Tokenizer) object {
			return object{"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
				"decoder": object{"type": "ByteLevel"}, "post_processor": object{"type": "ByteLevel"},
				"model": object{"type": "BPE", "vocab": indexed(tok.Tokens), "merges": tok.Merges}, "added_tokens": added(tok)}
		},
		"llama-spm": func(tok *Tokenizer) object {
			return object{
				"normalizer": object{"type": "Sequence", "normalizers": []object{{"type": "Prepend", "prepend": "▁"},
					{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}}},
				"decoder": object{"type": "Sequence", "decoders": []object{{"type": "Replace", "pattern": object{"String": "▁"}, "content": " "},
					{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}}},
				"post_processor": object{"type": "TemplateProcessing", "single": []object{{"SpecialToken": object{"id": "<s>", "type_id": 0}},
					{"Sequence": object{"id": "A", "type_id": 0}}}, "special_tokens": object{"<s>": object{"id": "<s>", "ids": []int{1}}}},
				"model": object{"type": "BPE", "vocab": indexed(tok.Tokens), "merges": mergesOf(tok), "byte_fallback": true, "fuse_unk": true,
					"unk_token": "<unk>"}, "added_tokens": added(tok)}
		},
		"bert-bge": func(tok *Tokenizer) object {
			words := make([]string, len(tok.Tokens)) // GGUF marks beginnings, the original marks continuations
			for i, s := range tok.Tokens {
				switch rest, begins := strings.CutPrefix(s, "▁"); {
				case begins:
					words[i] = rest
				case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
					words[i] = s
				default:
					words[i] = "##" + s
				}
			}
			return object{"normalizer": object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": true},
				"pre_tokenizer":  object{"type": "BertPreTokenizer"},
				"decoder":        object{"type": "WordPiece", "prefix": "##", "cleanup": true},
				"post_processor": object{"type": "BertProcessing", "sep": []any{"[SEP]", 102}, "cls": []any{"[CLS]", 101}},
				"model":          object{"type": "WordPiece", "vocab": indexed(words), "unk_token": "[UNK]", "max_input_chars_per_word": 100},
				"added_tokens":   added(tok)}
		},
	}
	for name, make := range objects {
		t.Run(name, func(t *testing.T) {
			base := "data/models/vocab/ggml-vocab-" + name + ".gguf"
			reference := open(t, base)
			tok, err := fromObject(t, make(reference))
			require.NoError(t, err)
			require.Equal(t, reference.Size(), tok.Size())
			inputs, err := os.ReadFile(shared.File(t, base+".inp"))
			require.NoError(t, err)
			for _, text := range strings.Split(string(inputs), "\n__ggml_vocab_test__\n") {
				ids := tok.Encode(text, Options{})
				require.Equal(t, reference.Encode(text, Options{}), ids, "%q", text)
				require.Equal(t, reference.Decode(ids), tok.Decode(ids), "%q", text)
			}
			switch name {
			case "llama-spm":
				require.Equal(t, []int32{1}, tok.Encode("", Options{Special: true}))
			case "bert-bge":
				require.Equal(t, []int32{101, 7592, 102}, tok.Encode("Hello", Options{Special: true}))
			}
		})
	}
}

func words(t *testing.T, o object) []string {
	tokens, _ := bytesVocab()
	o["model"] = object{"type": "BPE", "vocab": indexed(append(tokens, "▁", "x")), "merges": []string{}, "byte_fallback": true}
	tok, err := fromObject(t, o)
	require.NoError(t, err)
	text := "ab  c,d 12é"
	if tok.normalize != nil {
		text = tok.normalize(text, true)
	}
	if tok.split == nil {
		return []string{text}
	}
	return pieces(tok.split, text)
}

func TestJSONParts(t *testing.T) {
	pre := func(o object) object { return object{"pre_tokenizer": o} }
	nrm := func(o object) object { return object{"normalizer": o} }
	for _, c := range []struct {
		o    object
		want []string
	}{
		{pre(object{"type": "Whitespace"}), []string{"ab", "c", ",", "d", "12é"}},
		{pre(object{"type": "WhitespaceSplit"}), []string{"ab", "c,d", "12é"}},
		{pre(object{"type": "Punctuation"}), []string{"ab  c", ",", "d 12é"}},
		{pre(object{"type": "Digits", "individual_digits": true}), []string{"ab  c,d ", "1", "2", "é"}},
		{pre(object{"type": "Digits"}), []string{"ab  c,d ", "12", "é"}},
		{pre(object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}), []string{"▁ab", "▁", "▁c,d", "▁12é"}},
		{pre(object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}), []string{"ab", "▁", "▁c,d", "▁12é"}},
		{pre(object{"type": "Metaspace", "replacement": "▁", "add_prefix_space": true, "split": false}), []string{"▁ab▁▁c,d▁12é"}},
		{pre(object{"type": "Split", "pattern": object{"String": ","}, "behavior": "Isolated"}), []string{"ab  c", ",", "d 12é"}},
		{pre(object{"type": "Split", "pattern": object{"String": "."}, "behavior": "Isolated"}), []string{"ab  c,d 12é"}},
		{pre(object{"type": "Split", "pattern": object{"Regex": "[a-z]+"}, "behavior": "Removed", "invert": true}), []string{"ab", "c", "d"}},
		{pre(object{"type": "Split", "pattern": object{"Regex": "[a-z]+"}, "behavior": "Removed"}), []string{"  ", ",", " 12é"}},
		{pre(object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious"}), []string{"ab ", " ", "c,d ", "12é"}},
		{pre(object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithNext"}), []string{"ab", " ", " c,d", " 12é"}},
		{pre(object{"type": "Split", "pattern": object{"String": " "}, "behavior": "Contiguous"}), []string{"ab", "  ", "c,d", " ", "12é"}},
		{pre(object{"type": "Sequence", "pretokenizers": []object{{"type": "Split", "pattern": object{"Regex": `\p{N}`}, "behavior": "Isolated"}, {"type": "ByteLevel", "add_prefix_space": true}}}),
			[]string{" ab", " ", " c", ",", "d", " ", "1", "2", "é"}},
		{nrm(object{"type": "Lowercase"}), []string{"ab  c,d 12é"}},
		{nrm(object{"type": "Sequence", "normalizers": []object{{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Replace", "pattern": object{"Regex": " +"}, "content": "_"}}}),
			[]string{"ab_c,d_12e"}},
		{nrm(object{"type": "BertNormalizer", "lowercase": true}), []string{"ab  c,d 12e"}},
		{nrm(object{"type": "Prepend", "prepend": ">"}), []string{">ab  c,d 12é"}},
		{nrm(object{"type": "Sequence", "normalizers": []object{{"type": "Strip"}, {"type": "Nmt"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "NFC"}}}), []string{"ab  c,d 12é"}},
	} {
		require.Equal(t, c.want, words(t, c.o), "%v", c.o)
	}
}

func TestJSONSpecial(t *testing.T) {
	tokens, _ := bytesVocab()
	o := object{"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false}, "decoder": object{"type": "ByteLevel"},
		"model":        object{"type": "BPE", "vocab": indexed(tokens), "merges": []string{}},
		"added_tokens": []object{{"id": 256, "content": "<bos>", "special": true}, {"id": 257, "content": "<end>", "special": true, "rstrip": true}, {"id": 258, "content": "<tool>"}}}
	tok, err := fromObject(t, o)
	require.NoError(t, err)
	require.NoError(t, tok.SetSpecial(map[string]string{"bos": "<bos>", "eos": "<end>"}))
	tok.AddSpecial(true, false)
	require.Equal(t, []int32{256, 'a', 257, 'b', 258, 32, 'c'}, tok.Encode("a<end>  b<tool> c", Options{Special: true, ParseSpecial: true}))
	require.True(t, tok.IsEnd(257))
	require.Error(t, tok.SetSpecial(map[string]string{"bos": "<nothing>"}))
	tok.SetEnd(258, 9999, -1)
	require.True(t, tok.IsEnd(258))
}

func TestJSONDamaged(t *testing.T) {
	model := func(kv object) object {
		m := object{"type": "BPE", "vocab": object{"a": 0, "b": 1, "ab": 2}, "merges": []string{"a b"}}
		for k, v := range kv {
			m[k] = v
		}
		return object{"model": m}
	}
	with := func(key string, v any) object { o := model(nil); o[key] = v; return o }
	for want, o := range map[string]object{
		`model "Rnn"`:                       model(object{"type": "Rnn"}),
		"vocab: json":                       model(object{"vocab": []int{1}}),
		`token "b" has the id 2147483647`:   model(object{"vocab": object{"b": 1<<31 - 1}}),
		`token "b" has the id -1`:           model(object{"vocab": object{"b": -1}}),
		"the vocabulary is empty":           model(object{"vocab": object{}, "merges": nil}),
		"merges: json":                      model(object{"merges": []int{1}}),
		`merge 0 is "ab"`:                   model(object{"merges": []string{"ab"}}),
		"holds a space":                     model(object{"merges": [][]string{{"a ", "b"}}}),
		"WordPiece without an unknown":      model(object{"type": "WordPiece"}),
		"entry 0 is":                        {"model": object{"type": "Unigram", "vocab": [][]any{{1, "a"}}}},
		`normalizer: kind "X"`:              with("normalizer", object{"type": "X"}),
		`pre_tokenizer: kind "X"`:           with("pre_tokenizer", object{"type": "X"}),
		`post_processor: kind "X"`:          with("post_processor", object{"type": "X"}),
		`decoder: kind "X"`:                 with("decoder", object{"type": "X"}),
		"tokenizer: pattern: error parsing": with("pre_tokenizer", object{"type": "Split", "pattern": object{"Regex": "("}}),
		"a string or a regular expression":  with("pre_tokenizer", object{"type": "Split", "pattern": object{}}),
		`split behaviour "Odd"`:             with("pre_tokenizer", object{"type": "Split", "pattern": object{"String": "x"}, "behavior": "Odd"}),
		"is damaged":                        with("normalizer", object{"type": "Precompiled", "precompiled_charsmap": []byte{9, 9, 9, 9}}),
		"no token and its id":               with("post_processor", object{"type": "BertProcessing", "sep": []any{"x", 99}, "cls": []any{"x", 1}}),
		`token "x" has the id 9`: with("post_processor", object{"type": "TemplateProcessing", "single": []object{{"SpecialToken": object{"id": "x"}}},
			"special_tokens": object{"x": object{"ids": []int{9}}}}),
		"the UNK token is 77": {"model": object{"type": "Unigram", "unk_id": 77, "vocab": [][]any{{"a", -1.5}}}},
	} {
		_, err := fromObject(t, o)
		require.ErrorContains(t, err, want)
	}
	for n, whole := 0, `{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`; n < len(whole); n++ {
		_, err := FromJSON([]byte(whole[:n]))
		require.Error(t, err)
	}
}

func TestCharsmap(t *testing.T) {
	// A trie with one entry, by hand: "é" (c3 a9) becomes "e". Unit layout: bits 10-30 offset, bit 9 scale, bit 8 leaf, bits 0-7 label.
	units := make([]uint32, 1024)
	at := func(parent int, offset uint32, leaf bool, label byte) uint32 {
		u := offset<<10 | uint32(label)
		if leaf {
			u |= 1 << 8
		}
		return u
	}
	units[0] = at(0, 1, false, 0)
	n1 := 1 ^ 0xc3
	units[n1] = at(0, 512, false, 0xc3)
	n2 := n1 ^ 512 ^ 0xa9
	units[n2] = at(0, 1, true, 0xa9)
	units[n2^1] = 1 << 31 // leaf: position 0
	var blob []byte
	for _, u := range units {
		blob = append(blob, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	blob = append([]byte{0, 16, 0, 0}, append(blob, "e\x00"...)...)
	c, err := parseCharsmap(blob)
	require.NoError(t, err)
	require.Equal(t, "caf\u00e8 e!", c.normalize("caf\u00e8 \u00e9!"))
	_, err = parseCharsmap(blob[:100])
	require.Error(t, err)
}

func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`,
		`{"model":{"type":"Unigram","vocab":[["a",-1.5],["▁",-2]],"unk_id":0},"pre_tokenizer":{"type":"Metaspace"}}`,
		`{"model":{"type":"WordPiece","vocab":{"[UNK]":0,"a":1,"##b":2},"unk_token":"[UNK]"},"normalizer":{"type":"BertNormalizer"}}`,
		`{"added_tokens":[{"id":3,"content":"<x>","special":true}],"model":{"vocab":{"a":0},"merges":[]},"decoder":{"type":"ByteLevel"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		tok, err := FromJSON(data)
		if err != nil {
			return
		}
		ids := tok.Encode("ab <x> é\xff 12", Options{Special: true, ParseSpecial: true})
		for _, id := range ids {
			require.Less(t, int(id), tok.Size())
		}
		_ = tok.Decode(ids)
		_ = fmt.Sprint(ids)
	})
}
