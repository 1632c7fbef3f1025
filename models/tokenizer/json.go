package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// jsonFile is a tokenizer.json. Parts that may be one of several kinds are read twice: first their type.
type jsonFile struct {
	Added         []jsonAdded     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         struct {
		Type           string          `json:"type"`
		Vocab          json.RawMessage `json:"vocab"`
		Merges         json.RawMessage `json:"merges"`
		Unknown        *string         `json:"unk_token"`
		UnknownID      *int32          `json:"unk_id"`
		ByteFallback   bool            `json:"byte_fallback"`
		FuseUnknown    bool            `json:"fuse_unk"`
		IgnoreMerges   bool            `json:"ignore_merges"`
		Prefix         *string         `json:"continuing_subword_prefix"`
		Suffix         *string         `json:"end_of_word_suffix"`
		MaxInputRunes  int             `json:"max_input_chars_per_word"`
		Dropout        *float64        `json:"dropout"`
		UnknownPenalty float64         `json:"-"`
	} `json:"model"`
}

type jsonAdded struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
	LStrip  bool   `json:"lstrip"`
	RStrip  bool   `json:"rstrip"`
}

// jsonPart holds the fields of all kinds of normalizers, splitters, processors and decoders.
type jsonPart struct {
	Type          string            `json:"type"`
	Normalizers   []json.RawMessage `json:"normalizers"`
	PreTokenizers []json.RawMessage `json:"pretokenizers"`
	Processors    []json.RawMessage `json:"processors"`
	Decoders      []json.RawMessage `json:"decoders"`

	Prepend       string          `json:"prepend"`
	Pattern       json.RawMessage `json:"pattern"`
	Content       string          `json:"content"`
	Lowercase     *bool           `json:"lowercase"`
	StripAccents  *bool           `json:"strip_accents"`
	CleanText     *bool           `json:"clean_text"`
	ChineseChars  *bool           `json:"handle_chinese_chars"`
	Left          *bool           `json:"strip_left"`
	Right         *bool           `json:"strip_right"`
	Charsmap      []byte          `json:"precompiled_charsmap"`
	AddPrefix     *bool           `json:"add_prefix_space"`
	PrependScheme string          `json:"prepend_scheme"`
	Replacement   string          `json:"replacement"`
	UseRegex      *bool           `json:"use_regex"`
	Behavior      string          `json:"behavior"`
	Invert        bool            `json:"invert"`
	Individual    bool            `json:"individual_digits"`
	Start         int             `json:"start"`
	Single        []jsonTemplate  `json:"single"`
	Special       map[string]struct {
		IDs []int32 `json:"ids"`
	} `json:"special_tokens"`
	Sep     json.RawMessage `json:"sep"`
	CLS     json.RawMessage `json:"cls"`
	Prefix  string          `json:"prefix"`
	Cleanup bool            `json:"cleanup"`
	Split   *bool           `json:"split"`
}

type jsonTemplate struct {
	Special *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

// part decodes an optional part; absent and null give nil.
func part(raw json.RawMessage) (*jsonPart, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	p := &jsonPart{}
	return p, json.Unmarshal(raw, p)
}

func orTrue(b *bool) bool { return b == nil || *b }

// FromJSON makes the tokenizer that a tokenizer.json describes. Which tokens begin and end a text is not said there: set BOS, EOS and
// the others from tokenizer_config.json with [Tokenizer.SetSpecial].
func FromJSON(data []byte) (*Tokenizer, error) {
	var f jsonFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	t, err := fromJSON(&f)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

func fromJSON(f *jsonFile) (*Tokenizer, error) {
	t := &Tokenizer{Vocab: Vocab{BOS: -1, EOS: -1, EOT: -1, UNK: -1, SEP: -1, PAD: -1, CLS: -1, MASK: -1}}
	if f.Model.Type == "" { // older files leave it out
		switch {
		case len(f.Model.Merges) > 0:
			f.Model.Type = "BPE"
		case f.Model.UnknownID != nil:
			f.Model.Type = "Unigram"
		default:
			f.Model.Type = "WordPiece"
		}
	}
	if err := t.readVocab(f); err != nil {
		return nil, err
	}
	t.indexTokens()
	if u := f.Model.Unknown; u != nil {
		if id, ok := t.ids[*u]; ok {
			t.UNK = id
		}
	}
	if u := f.Model.UnknownID; u != nil {
		t.UNK = *u
	}
	p := &pipeline{t: t}
	if err := p.normalizer(f.Normalizer); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	byteLevel, err := p.preTokenizer(f.PreTokenizer)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	t.normalize = p.normalizeFunc()
	t.split = sequence(p.splits...)
	switch f.Model.Type {
	case "BPE":
		if err := readMerges(f.Model.Merges, &t.Merges); err != nil {
			return nil, err
		}
		if s := f.Model.Suffix; s != nil && *s != "" {
			return nil, fmt.Errorf("BPE with the word suffix %q cannot be read", *s)
		}
		m, err := newBPE(t, byteLevel, f.Model.ByteFallback)
		if err != nil {
			return nil, err
		}
		m.wholeFirst, m.fuseUnknown = f.Model.IgnoreMerges, f.Model.FuseUnknown
		t.model = m
	case "WordPiece":
		mark := "##"
		if f.Model.Prefix != nil {
			mark = *f.Model.Prefix
		}
		if t.UNK < 0 {
			return nil, errors.New("WordPiece without an unknown token")
		}
		most := f.Model.MaxInputRunes
		if most == 0 {
			most = 100
		}
		t.model = newWordPiece(t, "", mark, most)
	case "Unigram":
		if t.model, err = newUnigram(t, f.Model.ByteFallback); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("model %q: BPE, WordPiece and Unigram can be read", f.Model.Type)
	}
	if err := t.postProcessor(f.PostProcessor); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if err := t.decoder(f.Decoder, byteLevel); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	return t, t.finish()
}

// readVocab fills tokens, kinds and scores, added tokens included.
func (t *Tokenizer) readVocab(f *jsonFile) error {
	place := func(id int32, s string) error {
		// Ids are dense, but for vocabularies that were pruned and for damage.
		if id < 0 || int(id) > len(f.Model.Vocab)+1<<18 {
			return fmt.Errorf("token %q has the id %d", s, id)
		}
		for int(id) >= len(t.Tokens) {
			t.Tokens, t.Kinds = append(t.Tokens, ""), append(t.Kinds, Unused)
		}
		t.Tokens[id], t.Kinds[id] = s, Normal
		return nil
	}
	if f.Model.Type == "Unigram" {
		var list [][2]any
		if err := json.Unmarshal(f.Model.Vocab, &list); err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		for i, pair := range list {
			s, ok1 := pair[0].(string)
			score, ok2 := pair[1].(float64)
			if !ok1 || !ok2 {
				return fmt.Errorf("vocab: entry %d is %v, a token and its score are right", i, pair)
			}
			if err := place(int32(i), s); err != nil {
				return err
			}
			t.Scores = append(t.Scores, float32(score))
		}
	} else {
		var ids map[string]int32
		if err := json.Unmarshal(f.Model.Vocab, &ids); err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		for s, id := range ids {
			if err := place(id, s); err != nil {
				return err
			}
		}
	}
	if f.Model.ByteFallback {
		for i, s := range t.Tokens {
			if _, ok := byteToken(s); ok {
				t.Kinds[i] = Byte
			}
		}
	}
	for _, a := range f.Added {
		if err := place(a.ID, a.Content); err != nil {
			return err
		}
		t.Kinds[a.ID] = UserDefined
		if a.Special {
			t.Kinds[a.ID] = Control
		}
		if a.Content != "" {
			t.special = append(t.special, special{text: a.Content, id: a.ID, always: !a.Special, lstrip: a.LStrip, rstrip: a.RStrip})
		}
	}
	for f.Model.Type == "Unigram" && len(t.Scores) < len(t.Tokens) {
		t.Scores = append(t.Scores, 0)
	}
	return nil
}

// readMerges reads both spellings: "a b" and ["a", "b"].
func readMerges(raw json.RawMessage, merges *[]string) error {
	if len(raw) == 0 {
		return nil
	}
	if json.Unmarshal(raw, merges) == nil {
		return nil
	}
	var pairs [][2]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return fmt.Errorf("merges: %w", err)
	}
	*merges = make([]string, len(pairs))
	for i, p := range pairs {
		if strings.Contains(p[0], " ") || strings.Contains(p[1], " ") {
			return fmt.Errorf("merge %d: %q holds a space", i, p)
		}
		(*merges)[i] = p[0] + " " + p[1]
	}
	return nil
}

// pipeline collects normalization and splits.
type pipeline struct {
	t      *Tokenizer
	norms  []func(text string, first bool) string
	splits []splitter
}

func (p *pipeline) normalizeFunc() func(string, bool) string {
	if len(p.norms) == 0 {
		return nil
	}
	steps := p.norms
	return func(text string, first bool) string {
		for _, s := range steps {
			text = s(text, first)
		}
		return text
	}
}

func (p *pipeline) each(f func(string) string) {
	p.norms = append(p.norms, func(s string, _ bool) string { return f(s) })
}

func (p *pipeline) normalizer(raw json.RawMessage) error {
	n, err := part(raw)
	if n == nil || err != nil {
		return err
	}
	switch n.Type {
	case "Sequence":
		for _, r := range n.Normalizers {
			if err := p.normalizer(r); err != nil {
				return err
			}
		}
	case "NFC":
		p.each(norm.NFC.String)
	case "NFD":
		p.each(norm.NFD.String)
	case "NFKC":
		p.each(norm.NFKC.String)
	case "NFKD":
		p.each(norm.NFKD.String)
	case "Lowercase":
		p.each(strings.ToLower)
	case "StripAccents":
		p.each(stripMarks)
	case "Nmt":
		p.each(nmt)
	case "Strip":
		p.each(func(s string) string {
			if orTrue(n.Left) {
				s = strings.TrimLeftFunc(s, unicode.IsSpace)
			}
			if orTrue(n.Right) {
				s = strings.TrimRightFunc(s, unicode.IsSpace)
			}
			return s
		})
	case "Prepend":
		p.each(func(s string) string {
			if s == "" {
				return s
			}
			return n.Prepend + s
		})
	case "Replace":
		f, err := replacer(n.Pattern, n.Content)
		if err != nil {
			return err
		}
		p.each(f)
	case "Precompiled":
		cm, err := parseCharsmap(n.Charsmap)
		if err != nil {
			return err
		}
		p.each(cm.normalize)
	case "BertNormalizer":
		lower := orTrue(n.Lowercase)
		accents := lower
		if n.StripAccents != nil {
			accents = *n.StripAccents
		}
		p.norms = append(p.norms, bertNormalizer(orTrue(n.CleanText), orTrue(n.ChineseChars), accents, lower))
	default:
		return fmt.Errorf("kind %q is unknown", n.Type)
	}
	return nil
}

func stripMarks(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, s)
}

// nmt is SentencePiece's cleaning of control characters and odd spaces.
func nmt(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 1 && r <= 8, r == 0xb, r >= 0xe && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
			return -1
		case r == '\t', r == '\n', r == '\f', r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f, r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
			return ' '
		}
		return r
	}, s)
}

// replacer replaces a text or the matches of a pattern.
func replacer(raw json.RawMessage, by string) (func(string) string, error) {
	text, pattern, err := stringOrRegex(raw)
	if err != nil {
		return nil, err
	}
	if pattern == "" {
		return func(s string) string { return strings.ReplaceAll(s, text, by) }, nil
	}
	split, err := matcher(pattern)
	if err != nil {
		return nil, err
	}
	return func(s string) string {
		var b strings.Builder
		split(s, func(piece string, match bool) {
			if match {
				piece = by
			}
			b.WriteString(piece)
		})
		return b.String()
	}, nil
}

func stringOrRegex(raw json.RawMessage) (text, pattern string, err error) {
	var v struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", "", fmt.Errorf("pattern: %w", err)
	}
	switch {
	case v.Regex != nil:
		return "", *v.Regex, nil
	case v.String != nil && *v.String != "":
		return *v.String, "", nil
	}
	return "", "", fmt.Errorf("pattern %s: a string or a regular expression is right", raw)
}

// preTokenizer collects splits; it reports whether pieces are spelled by bytes.
func (p *pipeline) preTokenizer(raw json.RawMessage) (byteLevel bool, err error) {
	n, err := part(raw)
	if n == nil || err != nil {
		return false, err
	}
	switch n.Type {
	case "Sequence":
		for _, r := range n.PreTokenizers {
			b, err := p.preTokenizer(r)
			if err != nil {
				return false, err
			}
			byteLevel = byteLevel || b
		}
		return byteLevel, nil
	case "ByteLevel":
		if n.AddPrefix != nil && *n.AddPrefix {
			p.norms = append(p.norms, func(s string, first bool) string {
				if first && s != "" && !strings.HasPrefix(s, " ") {
					return " " + s
				}
				return s
			})
		}
		if orTrue(n.UseRegex) {
			p.splits = append(p.splits, splitGPT2)
		}
		return true, nil
	case "Split":
		s, err := behaviour(n)
		if err != nil {
			return false, err
		}
		p.splits = append(p.splits, s)
	case "Digits":
		if n.Individual {
			p.splits = append(p.splits, splitDigits)
		} else {
			s, err := patternSplitter(`\p{N}+`, false)
			if err != nil {
				return false, err
			}
			p.splits = append(p.splits, s)
		}
	case "BertPreTokenizer":
		p.splits = append(p.splits, splitBert)
	case "Whitespace":
		s, err := matcher(`\w+|[^\w\s]+`)
		if err != nil {
			return false, err
		}
		p.splits = append(p.splits, func(text string, yield func(string)) {
			s(text, func(piece string, match bool) {
				if match {
					yield(piece)
				}
			})
		})
	case "WhitespaceSplit":
		p.splits = append(p.splits, func(text string, yield func(string)) {
			for _, w := range strings.FieldsFunc(text, unicode.IsSpace) {
				yield(w)
			}
		})
	case "Punctuation":
		s, err := patternSplitter(`[\p{P}!-/:-@\[-`+"`"+`{-~]`, false)
		if err != nil {
			return false, err
		}
		p.splits = append(p.splits, s)
	case "Metaspace":
		mark := n.Replacement
		if mark == "" {
			mark = metaspace
		}
		always := n.PrependScheme == "always" || n.PrependScheme == "" && orTrue(n.AddPrefix)
		atFirst := n.PrependScheme == "first"
		p.norms = append(p.norms, func(s string, first bool) string {
			s = strings.ReplaceAll(s, " ", mark)
			if (always || atFirst && first) && s != "" && !strings.HasPrefix(s, mark) {
				s = mark + s
			}
			return s
		})
		if orTrue(n.Split) {
			p.splits = append(p.splits, func(text string, yield func(string)) { splitBefore(text, mark, yield) })
		}
	default:
		return false, fmt.Errorf("kind %q is unknown", n.Type)
	}
	return false, nil
}

// splitBefore cuts in front of every mark.
func splitBefore(text, mark string, yield func(string)) {
	for text != "" {
		end := strings.Index(text[min(len(mark), len(text)):], mark)
		if end < 0 || !strings.HasPrefix(text, mark) {
			if end = strings.Index(text, mark); end <= 0 {
				yield(text)
				return
			}
		} else {
			end += len(mark)
		}
		yield(text[:end])
		text = text[end:]
	}
}

// behaviour makes the splitter of a Split part.
func behaviour(n *jsonPart) (splitter, error) {
	text, pattern, err := stringOrRegex(n.Pattern)
	if err != nil {
		return nil, err
	}
	if pattern == "" {
		pattern = quoteRegex(text)
	}
	switch {
	case n.Behavior == "Isolated" || n.Behavior == "":
		return patternSplitter(pattern, false)
	case n.Behavior == "Removed" && n.Invert: // matches are the pieces
		m, err := matcher(pattern)
		if err != nil {
			return nil, err
		}
		return func(s string, yield func(string)) {
			m(s, func(piece string, match bool) {
				if match {
					yield(piece)
				}
			})
		}, nil
	case n.Behavior == "Removed":
		return patternSplitter(pattern, true)
	case n.Behavior == "MergedWithPrevious" || n.Behavior == "MergedWithNext":
		m, err := matcher(pattern)
		if err != nil {
			return nil, err
		}
		previous := n.Behavior == "MergedWithPrevious"
		return func(s string, yield func(string)) {
			last, at := 0, 0
			m(s, func(piece string, match bool) {
				cut := at
				if previous {
					cut += len(piece)
				}
				if match && cut > last {
					yield(s[last:cut])
					last = cut
				}
				at += len(piece)
			})
			if last < len(s) {
				yield(s[last:])
			}
		}, nil
	case n.Behavior == "Contiguous":
		return patternSplitter("(?:"+pattern+")+", false)
	}
	return nil, fmt.Errorf("split behaviour %q is unknown", n.Behavior)
}

func quoteRegex(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(`\.+*?()|[]{}^$#- `, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// postProcessor finds what is put around a text.
func (t *Tokenizer) postProcessor(raw json.RawMessage) error {
	n, err := part(raw)
	if n == nil || err != nil {
		return err
	}
	pair := func(raw json.RawMessage) (int32, error) {
		var v [2]any
		if err := json.Unmarshal(raw, &v); err != nil {
			return 0, err
		}
		id, ok := v[1].(float64)
		if !ok || id < 0 || int(id) >= len(t.Tokens) {
			return 0, fmt.Errorf("%v is no token and its id", v)
		}
		return int32(id), nil
	}
	switch n.Type {
	case "Sequence":
		for _, r := range n.Processors {
			if err := t.postProcessor(r); err != nil {
				return err
			}
		}
	case "ByteLevel":
	case "TemplateProcessing":
		behind := false
		for _, s := range n.Single {
			if s.Sequence != nil {
				behind = true
			}
			if s.Special == nil {
				continue
			}
			for _, id := range n.Special[s.Special.ID].IDs {
				if id < 0 || int(id) >= len(t.Tokens) {
					return fmt.Errorf("token %q has the id %d", s.Special.ID, id)
				}
				if behind {
					t.suffix = append(t.suffix, id)
				} else {
					t.prefix = append(t.prefix, id)
				}
			}
		}
	case "BertProcessing", "RobertaProcessing":
		cls, err := pair(n.CLS)
		if err != nil {
			return err
		}
		sep, err := pair(n.Sep)
		if err != nil {
			return err
		}
		t.CLS, t.SEP = cls, sep
		t.prefix, t.suffix = []int32{cls}, []int32{sep}
	default:
		return fmt.Errorf("kind %q is unknown", n.Type)
	}
	return nil
}

// decoder finds how tokens spell text.
func (t *Tokenizer) decoder(raw json.RawMessage, byteLevel bool) error {
	n, err := part(raw)
	if err != nil {
		return err
	}
	if byteLevel {
		t.spelling = spelledBytes
	}
	if n == nil {
		return nil
	}
	switch n.Type {
	case "Sequence":
		for _, r := range n.Decoders {
			if err := t.decoder(r, false); err != nil {
				return err
			}
		}
	case "ByteLevel":
		t.spelling = spelledBytes
	case "WordPiece":
		t.spelling = spelledWordPiece
	case "Metaspace":
		t.spelling = spelledMetaspace
		t.stripLead = n.PrependScheme != "never" && orTrue(n.AddPrefix)
	case "Replace":
		if text, _, err := stringOrRegex(n.Pattern); err == nil && text == metaspace && n.Content == " " {
			t.spelling = spelledMetaspace
		}
	case "Strip":
		t.stripLead = n.Content == " " && n.Start > 0
	case "ByteFallback", "Fuse":
	default:
		return fmt.Errorf("kind %q is unknown", n.Type)
	}
	return nil
}

// SetSpecial names tokens that a tokenizer.json leaves open, by spelling: "bos", "eos", "eot", "unk", "sep", "pad", "cls", "mask". An
// unknown spelling is an error.
func (t *Tokenizer) SetSpecial(names map[string]string) error {
	for name, s := range names {
		place := map[string]*int32{"bos": &t.BOS, "eos": &t.EOS, "eot": &t.EOT, "unk": &t.UNK, "sep": &t.SEP, "pad": &t.PAD, "cls": &t.CLS, "mask": &t.MASK}[name]
		id, ok := t.ids[s]
		if place == nil || !ok {
			return fmt.Errorf("tokenizer: the %s token %q is not in the vocabulary", name, s)
		}
		*place = id
		if name == "eos" || name == "eot" {
			t.eog[id] = true
		}
	}
	return nil
}

// SetEnd adds tokens that end a text or a turn.
func (t *Tokenizer) SetEnd(ids ...int32) {
	for _, id := range ids {
		if id >= 0 && int(id) < len(t.Tokens) {
			t.eog[id] = true
		}
	}
}

// AddSpecial sets whether Options.Special puts BOS in front and EOS behind, where the file itself does not say.
func (t *Tokenizer) AddSpecial(bos, eos bool) {
	if bos && t.BOS >= 0 && len(t.prefix) == 0 {
		t.prefix = []int32{t.BOS}
	}
	if eos && t.EOS >= 0 && len(t.suffix) == 0 {
		t.suffix = []int32{t.EOS}
	}
}
