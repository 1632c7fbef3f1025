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

const ggufPrefix = "tokenizer.ggml."

// FromGGUF makes the tokenizer that a file's metadata describes.
func FromGGUF(f *gguf.File) (*Tokenizer, error) {
	kind, err := f.Str(ggufPrefix + "model")
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{}
	if err := t.readTables(f); err != nil {
		return nil, err
	}
	s, err := t.readSettings(f, kind)
	if err != nil {
		return nil, err
	}
	t.indexTokens()
	switch kind {
	case "llama":
		err = t.useSPM(s)
	case "gpt2":
		err = t.useByteBPE(s)
	case "bert":
		err = t.useWordPiece(s)
	case "t5":
		err = t.useUnigram(f, s)
	}
	if err != nil {
		return nil, err
	}
	t.surround(s)
	t.listSpecial(s)
	if err := t.finish(); err != nil {
		return nil, err
	}
	t.SetEnd(s.eom)
	return t, nil
}

// readTables reads the tokens, and what the file says of each.
func (t *Tokenizer) readTables(f *gguf.File) (err error) {
	if t.Tokens, err = f.Strings(ggufPrefix + "tokens"); err != nil {
		return err
	}
	if f.Has(ggufPrefix + "token_type") {
		kinds, err := f.Ints(ggufPrefix + "token_type")
		if err != nil {
			return err
		}
		t.Kinds = make([]Kind, len(kinds))
		for i, k := range kinds {
			t.Kinds[i] = Kind(k)
		}
		if len(kinds) != len(t.Tokens) {
			return fmt.Errorf("tokenizer: %d token types for %d tokens", len(kinds), len(t.Tokens))
		}
	}
	if f.Has(ggufPrefix + "scores") {
		scores, err := f.Floats(ggufPrefix + "scores")
		if err != nil {
			return err
		}
		t.Scores = make([]float32, len(scores))
		for i, s := range scores {
			t.Scores[i] = float32(s)
		}
	}
	if f.Has(ggufPrefix + "merges") {
		t.Merges, err = f.Strings(ggufPrefix + "merges")
	}
	return err
}

// ggufSettings are the keys of a file that its tables and special tokens leave.
type ggufSettings struct {
	kind, pre, name string // of the algorithm, of the split before it, and of the model in lower case
	bos, eos        bool   // whether a text begins and ends with tokens of its own
	space           bool   // before a text
	collapse        bool   // white space
	lower           bool   // of a WordPiece vocabulary
	eom             int32  // the end of a message that waits for a tool
}

// readSettings reads the special tokens and the settings. What the file leaves out is as the kind of its tokenizer has it.
func (t *Tokenizer) readSettings(f *gguf.File, kind string) (ggufSettings, error) {
	const p = ggufPrefix
	r := &reader{f: f}
	s := ggufSettings{kind: kind, pre: r.str(p+"pre", "default")}
	defaults := struct{ bos, eos, unk, sep, pad, cls, mask int32 }{-1, -1, -1, -1, -1, -1, -1}
	switch kind {
	case "llama":
		defaults.bos, defaults.eos, defaults.unk = 1, 2, 0
		s.bos, s.space = true, true
	case "gpt2":
		defaults.bos, defaults.eos = 11, 11
		if n := int32(len(t.Tokens)); n <= 11 {
			defaults.bos, defaults.eos = -1, -1
		}
		s.bos = wholeWords[s.pre]
	case "bert":
		defaults.cls, defaults.sep, defaults.unk, defaults.pad, defaults.mask = 101, 102, 100, 0, 103
		s.bos, s.eos = true, true
	case "t5":
		defaults.eos, defaults.unk, defaults.pad = 1, 2, 0
		s.eos, s.space = true, true
	default:
		return s, fmt.Errorf("tokenizer: model %q: llama, gpt2, bert and t5 can be read", kind)
	}
	t.BOS = r.id(p+"bos_token_id", defaults.bos)
	t.EOS = r.id(p+"eos_token_id", defaults.eos)
	t.EOT = r.id(p+"eot_token_id", -1)
	s.eom = r.id(p+"eom_token_id", -1)
	t.UNK = r.id(p+"unknown_token_id", defaults.unk)
	// The misspelled key is the one that files have.
	t.SEP = r.id(p+"seperator_token_id", r.id(p+"separator_token_id", defaults.sep))
	t.PAD = r.id(p+"padding_token_id", defaults.pad)
	t.CLS = r.id(p+"cls_token_id", defaults.cls)
	t.MASK = r.id(p+"mask_token_id", defaults.mask)
	s.bos = r.bool(p+"add_bos_token", s.bos)
	s.eos = r.bool(p+"add_eos_token", s.eos)
	s.space = r.bool(p+"add_space_prefix", s.space)
	s.collapse = r.bool(p+"remove_extra_whitespaces", false)
	if s.lower = true; kind == "bert" {
		s.lower = r.bool(p+"normalizer.lowercase", true)
	}
	s.name = strings.ToLower(r.str("general.name", ""))
	return s, r.err
}

func (t *Tokenizer) useSPM(s ggufSettings) (err error) {
	t.spelling, t.stripLead = spelledMetaspace, s.space
	t.normalize = spmNormalizer(s.space)
	t.model, err = newSPM(t)
	return err
}

func (t *Tokenizer) useByteBPE(s ggufSettings) error {
	t.spelling = spelledBytes
	m, err := newBPE(t, true, false)
	if err != nil {
		return err
	}
	m.wholeFirst = wholeWords[s.pre]
	if t.split, err = preset(s.pre); err != nil {
		return err
	}
	if s.space {
		t.normalize = func(text string, first bool) string {
			if first {
				return " " + text
			}
			return text
		}
	}
	t.model = m
	return nil
}

func (t *Tokenizer) useWordPiece(s ggufSettings) error {
	t.spelling = spelledWordPiece
	t.normalize = bertNormalizer(true, true, true, s.lower)
	t.split = splitBert
	t.model = newWordPiece(t, metaspace, "", 0)
	if t.UNK < 0 {
		return errors.New("tokenizer: a WordPiece vocabulary without an unknown token")
	}
	return nil
}

func (t *Tokenizer) useUnigram(f *gguf.File, s ggufSettings) error {
	t.spelling, t.stripLead = spelledMetaspace, s.space
	cm, err := readCharsmap(f)
	if err != nil {
		return err
	}
	t.normalize = unigramNormalizer(cm, s.space, s.collapse)
	t.model, err = newUnigram(t, false)
	return err
}

// readCharsmap reads the map of a normalizer, which writers store as signed or unsigned bytes; nil if the file has none.
func readCharsmap(f *gguf.File) (*charsmap, error) {
	const key = ggufPrefix + "precompiled_charsmap"
	v, ok := f.Lookup(key)
	if !ok {
		return nil, nil
	}
	switch v := v.(type) {
	case []uint8:
		return parseCharsmap(v)
	case []int8:
		b := make([]uint8, len(v))
		for i, c := range v {
			b[i] = uint8(c)
		}
		return parseCharsmap(b)
	}
	return nil, fmt.Errorf("tokenizer: %s is a %T, an array of bytes is right", key, v)
}

// surround sets the tokens that texts begin and end with.
func (t *Tokenizer) surround(s ggufSettings) {
	begin, end := t.BOS, t.EOS
	if s.kind == "bert" {
		if begin = t.CLS; begin < 0 {
			begin = t.BOS
		}
		if end = t.SEP; end < 0 {
			end = t.EOS
		}
	}
	if s.bos && begin >= 0 {
		t.prefix = []int32{begin}
	}
	if s.eos && end >= 0 {
		t.suffix = []int32{end}
	}
}

// listSpecial lists the tokens that are found in a text before it is split.
func (t *Tokenizer) listSpecial(s ggufSettings) {
	for i, text := range t.Tokens {
		k := Normal
		if t.Kinds != nil {
			k = t.Kinds[i]
		}
		if text != "" && (k == Control || k == UserDefined || k == Unknown) {
			t.special = append(t.special, special{text: text, id: int32(i), always: k == UserDefined})
		}
	}
	if strings.Contains(s.name, "phi-3") || strings.Contains(s.name, "phi3") {
		// Its control tokens swallow the white space behind them, but the file cannot say so.
		for i := range t.special {
			switch s := &t.special[i]; s.text {
			case "<unk>", "<s>", "<|endoftext|>":
			default:
				s.rstrip = true
			}
		}
	}
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
