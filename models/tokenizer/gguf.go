package tokenizer

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tessera-go/tessera/models/gguf"
)

// wholeWords are the splits of the models that take a piece that is a token as it is, whatever their merges say. They begin texts with BOS.
var wholeWords = map[string]bool{"llama-bpe": true, "llama3": true, "llama-v3": true, "falcon3": true, "falcon-h1": true, "pixtral": true,
	"midm-2.0": true, "lfm2": true, "jina-v5-nano": true, "tekken": true}

// FromGGUF makes the tokenizer that a file's metadata describes.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	const p = "tokenizer.ggml."
	kind, err := f.Str(p + "model")
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	if t.Tokens, err = f.Strings(p + "tokens"); err != nil {
		return nil, err
	}
	if f.Has(p + "token_type") {
		kinds, err := f.Ints(p + "token_type")
		if err != nil {
			return nil, err
		}
		t.Kinds = make([]Kind, len(kinds))
		for i, k := range kinds {
			t.Kinds[i] = Kind(k)
		}
		if len(kinds) != len(t.Tokens) {
			return nil, fmt.Errorf("tokenizer: %d token types for %d tokens", len(kinds), len(t.Tokens))
		}
	}
	if f.Has(p + "scores") {
		scores, err := f.Floats(p + "scores")
		if err != nil {
			return nil, err
		}
		t.Scores = make([]float32, len(scores))
		for i, s := range scores {
			t.Scores[i] = float32(s)
		}
	}
	if f.Has(p + "merges") {
		if t.Merges, err = f.Strings(p + "merges"); err != nil {
			return nil, err
		}
	}
	r := &reader{f: f}
	pre := r.str(p+"pre", "default")
	defaults := struct{ bos, eos, unk, sep, pad, cls, mask int32 }{-1, -1, -1, -1, -1, -1, -1}
	addBOS, addEOS, addSpace := false, false, false
	switch kind {
	case "llama":
		defaults.bos, defaults.eos, defaults.unk = 1, 2, 0
		addBOS, addSpace = true, true
	case "gpt2":
		defaults.bos, defaults.eos = 11, 11
		if n := int32(len(t.Tokens)); n <= 11 {
			defaults.bos, defaults.eos = -1, -1
		}
		addBOS = wholeWords[pre]
	case "bert":
		defaults.cls, defaults.sep, defaults.unk, defaults.pad, defaults.mask = 101, 102, 100, 0, 103
		addBOS, addEOS = true, true
	case "t5":
		defaults.eos, defaults.unk, defaults.pad = 1, 2, 0
		addEOS, addSpace = true, true
	default:
		return nil, fmt.Errorf("tokenizer: model %q: llama, gpt2, bert and t5 can be read", kind)
	}
	t.BOS = r.id(p+"bos_token_id", defaults.bos)
	t.EOS = r.id(p+"eos_token_id", defaults.eos)
	t.EOT = r.id(p+"eot_token_id", -1)
	eom := r.id(p+"eom_token_id", -1) // the end of a message that waits for a tool
	t.UNK = r.id(p+"unknown_token_id", defaults.unk)
	// The misspelled key is the one that files have.
	t.SEP = r.id(p+"seperator_token_id", r.id(p+"separator_token_id", defaults.sep))
	t.PAD = r.id(p+"padding_token_id", defaults.pad)
	t.CLS = r.id(p+"cls_token_id", defaults.cls)
	t.MASK = r.id(p+"mask_token_id", defaults.mask)
	addBOS = r.bool(p+"add_bos_token", addBOS)
	addEOS = r.bool(p+"add_eos_token", addEOS)
	addSpace = r.bool(p+"add_space_prefix", addSpace)
	collapse := r.bool(p+"remove_extra_whitespaces", false)
	name := strings.ToLower(r.str("general.name", ""))
	if r.err != nil {
		return nil, r.err
	}
	t.indexTokens()
	switch kind {
	case "llama":
		t.spelling, t.stripLead = spelledMetaspace, addSpace
		t.normalize = spmNormalizer(addSpace)
		t.model, err = newSPM(t)
	case "gpt2":
		t.spelling = spelledBytes
		var m *bpe
		if m, err = newBPE(t, true, false); err != nil {
			return nil, err
		}
		m.wholeFirst = wholeWords[pre]
		if t.split, err = preset(pre); err != nil {
			return nil, err
		}
		if addSpace {
			t.normalize = func(text string, first bool) string {
				if first {
					return " " + text
				}
				return text
			}
		}
		t.model = m
	case "bert":
		t.spelling = spelledWordPiece
		t.normalize = bertNormalizer(true, true, true, r.bool(p+"normalizer.lowercase", true))
		t.split = splitBert
		t.model = newWordPiece(t, metaspace, "", 0)
		if t.UNK < 0 {
			err = errors.New("tokenizer: a WordPiece vocabulary without an unknown token")
		}
	case "t5":
		t.spelling, t.stripLead = spelledMetaspace, addSpace
		var cm *charsmap
		if v, ok := f.Lookup(p + "precompiled_charsmap"); ok {
			b, isBytes := v.([]uint8)
			if signed, ok := v.([]int8); ok {
				b, isBytes = make([]uint8, len(signed)), true
				for i, c := range signed {
					b[i] = uint8(c)
				}
			}
			if !isBytes {
				return nil, fmt.Errorf("tokenizer: %sprecompiled_charsmap is a %T, an array of bytes is right", p, v)
			}
			if cm, err = parseCharsmap(b); err != nil {
				return nil, err
			}
		}
		t.normalize = unigramNormalizer(cm, addSpace, collapse)
		t.model, err = newUnigram(t, false)
	}
	if err != nil {
		return nil, err
	}
	begin, end := t.BOS, t.EOS
	if kind == "bert" {
		if begin = t.CLS; begin < 0 {
			begin = t.BOS
		}
		if end = t.SEP; end < 0 {
			end = t.EOS
		}
	}
	if addBOS && begin >= 0 {
		t.prefix = []int32{begin}
	}
	if addEOS && end >= 0 {
		t.suffix = []int32{end}
	}
	for i, s := range t.Tokens {
		k := Normal
		if t.Kinds != nil {
			k = t.Kinds[i]
		}
		if s != "" && (k == Control || k == UserDefined || k == Unknown) {
			t.special = append(t.special, special{text: s, id: int32(i), always: k == UserDefined})
		}
	}
	if strings.Contains(name, "phi-3") || strings.Contains(name, "phi3") {
		// Its control tokens swallow the white space behind them, but the file cannot say so.
		for i := range t.special {
			switch s := &t.special[i]; s.text {
			case "<unk>", "<s>", "<|endoftext|>":
			default:
				s.rstrip = true
			}
		}
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	t.SetEnd(eom)
	return t, nil
}

// reader takes optional keys and keeps the first error.
type reader struct {
	f   *gguf.File
	err error
}

func optional[T any](r *reader, get func(string) (T, error), key string, def T) T {
	v, err := get(key)
	switch {
	case err == nil:
		return v
	case !errors.Is(err, gguf.ErrMissing) && r.err == nil:
		r.err = err
	}
	return def
}

func (r *reader) str(key, def string) string     { return optional(r, r.f.Str, key, def) }
func (r *reader) bool(key string, def bool) bool { return optional(r, r.f.Bool, key, def) }
func (r *reader) id(key string, def int32) int32 {
	v := optional(r, r.f.Int, key, int(def))
	if uint64(v) == 1<<32-1 { // -1 in an unsigned field
		return -1
	}
	if v != int(int32(v)) && r.err == nil {
		r.err = fmt.Errorf("tokenizer: %s is %d", key, v)
	}
	if v < 0 {
		v = -1
	}
	return int32(v)
}
