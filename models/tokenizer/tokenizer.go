// Package tokenizer turns text into token ids and back, as a model's file describes it: SentencePiece BPE and unigram, byte-level
// BPE with the splits that models name, and WordPiece, from GGUF metadata or a tokenizer.json.
//
// Encoding has four steps: special tokens are cut out of the text; what lies between is normalized; split into pieces; and each
// piece is encoded by the model. A Tokenizer is safe for several goroutines.
package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind says what a token stands for. The numbers are those of GGUF files.
type Kind uint8

// The kinds of tokens.
const (
	Normal      Kind = 1
	Unknown     Kind = 2
	Control     Kind = 3 // has no text; matched in the input only if asked for
	UserDefined Kind = 4 // text that is always one token
	Unused      Kind = 5
	Byte        Kind = 6 // one byte, spelled <0xHH>
)

// Vocab is a vocabulary. Absent ids are -1.
type Vocab struct {
	Tokens []string // the file's spelling
	Kinds  []Kind
	Scores []float32 // SentencePiece
	Merges []string  // BPE: pairs, separated by a space, most preferred first

	BOS, EOS, EOT, UNK, SEP, PAD, CLS, MASK int32
}

// model encodes one piece, appending to ids.
type model interface {
	encode(ids []int32, piece string) []int32
}

// spelling says how a token's text comes from its spelling.
type spelling uint8

const (
	spelledPlain     spelling = iota
	spelledBytes              // byte-level BPE: a printable rune for each byte
	spelledMetaspace          // SentencePiece: U+2581 for a space
	spelledWordPiece          // ## marks what continues a word (in GGUF, U+2581 marks what begins one)
)

// Tokenizer encodes and decodes.
type Tokenizer struct {
	Vocab

	ids       map[string]int32
	texts     [][]byte // what each token adds to the output
	special   []special
	normalize func(text string, first bool) string // first: at the start of the text, or behind a special token
	split     splitter
	model     model
	prefix    []int32 // added in front when asked for special tokens
	suffix    []int32
	spelling  spelling
	stripLead bool // the first token's leading space belongs to the encoding, not to the text
	eog       map[int32]bool
}

// special is a token that is looked for in the text before anything else.
type special struct {
	text           string
	id             int32
	always         bool // not only when special tokens are to be parsed
	lstrip, rstrip bool // takes the white space beside it
}

// Options of Encode. The zero value adds nothing and takes spelled control tokens for text.
type Options struct {
	Special      bool // add what the model puts around a text: BOS, EOS, CLS, SEP
	ParseSpecial bool // control tokens in the text ("<|im_start|>") become ids
}

// finish builds what all kinds of tokenizers share.
func (t *Tokenizer) finish() error {
	n := len(t.Tokens)
	if n == 0 {
		return fmt.Errorf("tokenizer: the vocabulary is empty")
	}
	if t.Kinds == nil {
		t.Kinds = slices.Repeat([]Kind{Normal}, n)
	}
	if len(t.Kinds) != n {
		return fmt.Errorf("tokenizer: %d token types for %d tokens", len(t.Kinds), n)
	}
	for name, id := range map[string]*int32{"BOS": &t.BOS, "EOS": &t.EOS, "EOT": &t.EOT, "UNK": &t.UNK, "SEP": &t.SEP, "PAD": &t.PAD, "CLS": &t.CLS, "MASK": &t.MASK} {
		if int(*id) >= n || *id < -1 {
			return fmt.Errorf("tokenizer: the %s token is %d, the vocabulary has %d", name, *id, n)
		}
	}
	t.texts = make([][]byte, n)
	for i := range t.Tokens {
		t.texts[i] = t.text(int32(i))
	}
	// The longest first, so that no token hides a longer one that begins with it.
	slices.SortStableFunc(t.special, func(a, b special) int { return cmp.Compare(len(b.text), len(a.text)) })
	t.eog = map[int32]bool{}
	for _, id := range []int32{t.EOS, t.EOT} {
		if id >= 0 {
			t.eog[id] = true
		}
	}
	for _, s := range endTokens {
		if id, ok := t.ids[s]; ok && (t.Kinds[id] == Control || t.Kinds[id] == UserDefined) {
			t.eog[id] = true
		}
	}
	return nil
}

// endTokens end a turn in the chat formats of the models that we know, whatever the file's end token is.
var endTokens = []string{"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_text|>",
	"<end_of_utterance>", "<eos>", "</s>", "<｜end▁of▁sentence｜>"}

// indexTokens fills the map from spelling to id; of equal spellings the first counts.
func (t *Tokenizer) indexTokens() {
	t.ids = make(map[string]int32, len(t.Tokens))
	for i, s := range t.Tokens {
		if _, taken := t.ids[s]; !taken {
			t.ids[s] = int32(i)
		}
	}
}

// Size returns the number of tokens.
func (t *Tokenizer) Size() int { return len(t.Tokens) }

// Agrees reports whether the tokens of both have the same spellings in the same order as far as both go. Models of one family may pad
// their vocabularies to different sizes.
func (t *Tokenizer) Agrees(o *Tokenizer) bool {
	n := min(t.Size(), o.Size())
	return slices.Equal(t.Tokens[:n], o.Tokens[:n])
}

// ID returns the id of a token by its spelling in the file.
func (t *Tokenizer) ID(token string) (int32, bool) { id, ok := t.ids[token]; return id, ok }

// IsEnd reports whether a token ends a text or a turn.
func (t *Tokenizer) IsEnd(id int32) bool { return t.eog[id] }

// AddsSpecial returns the tokens that Options.Special puts in front of and behind a text.
func (t *Tokenizer) AddsSpecial() (prefix, suffix []int32) {
	return slices.Clone(t.prefix), slices.Clone(t.suffix)
}

// Encode returns the ids of a text. Bytes that are no UTF-8 are encoded as bytes where the vocabulary has them.
func (t *Tokenizer) Encode(text string, o Options) []int32 {
	var ids []int32
	if o.Special {
		ids = append(ids, t.prefix...)
	}
	first := true
	t.fragments(text, o.ParseSpecial, func(raw string, id int32) {
		if id >= 0 {
			ids, first = append(ids, id), true
			return
		}
		if t.normalize != nil {
			raw = t.normalize(raw, first)
		}
		first = false
		if raw == "" {
			return
		}
		if t.split == nil {
			ids = t.model.encode(ids, raw)
			return
		}
		t.split(raw, func(piece string) { ids = t.model.encode(ids, piece) })
	})
	if o.Special {
		ids = append(ids, t.suffix...)
	}
	return ids
}

// fragments cuts special tokens out of a text and yields what remains and them (id >= 0) in order. Longer tokens are cut out of the
// whole text before shorter ones are looked for.
func (t *Tokenizer) fragments(text string, parse bool, yield func(raw string, id int32)) {
	type fragment struct {
		text string
		id   int32
	}
	parts := []fragment{{text, -1}}
	for i := range t.special {
		s := &t.special[i]
		if !(s.always || parse) || !strings.Contains(text, s.text) {
			continue
		}
		var next []fragment
		for _, p := range parts {
			for p.id < 0 {
				at := strings.Index(p.text, s.text)
				if at < 0 {
					break
				}
				before, after := p.text[:at], p.text[at+len(s.text):]
				if s.lstrip {
					before = strings.TrimRight(before, " \t\r\n\v\f")
				}
				if s.rstrip {
					after = strings.TrimLeft(after, " \t\r\n\v\f")
				}
				if before != "" {
					next = append(next, fragment{before, -1})
				}
				next = append(next, fragment{"", s.id})
				p.text = after
			}
			if p.id >= 0 || p.text != "" {
				next = append(next, p)
			}
		}
		parts = next
	}
	for _, p := range parts {
		if p.id >= 0 || p.text != "" {
			yield(p.text, p.id)
		}
	}
}
