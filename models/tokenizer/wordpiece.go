package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// wordPiece takes the longest token that begins a word, then the longest that continues it, and so on. A word of which a part has no
// token is unknown as a whole.
type wordPiece struct {
	t             *Tokenizer
	begin, middle string // marks of tokens that begin and continue a word
	longest       int    // bytes of the longest token
	maxRunes      int    // longer words are unknown; 0: no limit
}

func newWordPiece(t *Tokenizer, begin, middle string, maxRunes int) *wordPiece {
	m := &wordPiece{t: t, begin: begin, middle: middle, maxRunes: maxRunes}
	for _, s := range t.Tokens {
		m.longest = max(m.longest, len(s))
	}
	return m
}

func (m *wordPiece) encode(ids []int32, word string) []int32 {
	if m.maxRunes > 0 && utf8.RuneCountInString(word) > m.maxRunes {
		return append(ids, m.t.UNK)
	}
	mark, first := m.begin, len(ids)
	for at := 0; at < len(word); {
		end := min(len(word), at+m.longest)
		for ; end > at; end-- {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				continue
			}
			if id, ok := m.t.ids[mark+word[at:end]]; ok {
				ids = append(ids, id)
				break
			}
		}
		if end == at {
			return append(ids[:first], m.t.UNK)
		}
		at, mark = end, m.middle
	}
	return ids
}

// bertNormalizer cleans control characters, sets CJK ideographs apart, and, as asked, strips accents and lowers case.
func bertNormalizer(clean, cjk, accents, lower bool) func(string, bool) string {
	return func(text string, _ bool) string {
		if accents {
			text = norm.NFD.String(text)
		}
		var b strings.Builder
		for _, r := range text {
			if clean {
				switch {
				case unicode.IsSpace(r):
					r = ' '
				case r == 0 || r == 0xfffd || unicode.Is(unicode.C, r):
					continue
				}
			}
			switch {
			case accents && unicode.Is(unicode.Mn, r):
			case cjk && isCJK(r):
				b.WriteByte(' ')
				b.WriteRune(r)
				b.WriteByte(' ')
			case lower:
				for _, l := range lowered(r) {
					b.WriteRune(l)
				}
			default:
				b.WriteRune(r)
			}
		}
		return b.String()
	}
}

// lowered is the lower case of a rune; one rune, U+0130, has two.
func lowered(r rune) []rune {
	if r == 0x130 {
		return []rune{'i', 0x307}
	}
	return []rune{unicode.ToLower(r)}
}

func isCJK(r rune) bool {
	return r >= 0x4e00 && r <= 0x9fff || r >= 0x3400 && r <= 0x4dbf || r >= 0x20000 && r <= 0x2a6df || r >= 0x2a700 && r <= 0x2b73f ||
		r >= 0x2b740 && r <= 0x2b81f || r >= 0x2b820 && r <= 0x2ceaf || r >= 0xf900 && r <= 0xfaff || r >= 0x2f800 && r <= 0x2fa1f
}

// splitBert cuts at white space, which is dropped, and around each punctuation rune.
func splitBert(s string, yield func(string)) {
	last := 0
	for at, r := range s {
		isSpace := unicode.IsSpace(r)
		if !isSpace && !isBertPunctuation(r) {
			continue
		}
		if at > last {
			yield(s[last:at])
		}
		last = at + runeBytes(s, at)
		if !isSpace {
			yield(s[at:last])
		}
	}
	if last < len(s) {
		yield(s[last:])
	}
}

// isBertPunctuation counts all ASCII symbols as punctuation.
func isBertPunctuation(r rune) bool {
	if r < 128 {
		return r >= 33 && r <= 47 || r >= 58 && r <= 64 || r >= 91 && r <= 96 || r >= 123 && r <= 126
	}
	return unicode.IsPunct(r)
}
