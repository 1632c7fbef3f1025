package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// text returns the bytes that a token stands for: none for control tokens.
func (t *Tokenizer) text(id int32) []byte {
	s := t.Tokens[id]
	switch t.Kinds[id] {
	case Control, Unused:
		return nil
	case Unknown:
		if t.spelling == spelledMetaspace {
			return []byte(" \u2047 ") // as SentencePiece prints it
		}
		return []byte(s)
	case Byte:
		if b, ok := byteToken(s); ok {
			return []byte{b}
		}
	case UserDefined:
		if t.spelling == spelledMetaspace {
			return []byte(strings.ReplaceAll(s, metaspace, " "))
		}
		return []byte(s)
	}
	switch t.spelling {
	case spelledBytes:
		return unspellBytes(s)
	case spelledMetaspace:
		return []byte(strings.ReplaceAll(s, metaspace, " "))
	case spelledWordPiece:
		if rest, ok := strings.CutPrefix(s, "##"); ok {
			return []byte(rest)
		}
		if rest, ok := strings.CutPrefix(s, metaspace); ok {
			return []byte(" " + rest)
		}
		if wp, ok := t.model.(*wordPiece); ok && wp.middle != "" {
			return []byte(" " + s)
		}
	}
	return []byte(s)
}

// byteToken returns the byte of <0xHH>.
func byteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(s[3:5], 16, 8)
	return byte(v), err == nil
}

// Text returns the bytes that a token adds to a text, none for control tokens. They may be a part of a rune, and must not be changed.
func (t *Tokenizer) Text(id int32) []byte {
	if id < 0 || int(id) >= len(t.texts) {
		return nil
	}
	return t.texts[id]
}

// Decode returns the text of ids. Bytes that are no UTF-8 become U+FFFD.
func (t *Tokenizer) Decode(ids []int32) string {
	s := t.Stream(true)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(s.Push(id))
	}
	b.WriteString(s.Flush())
	return b.String()
}

// Stream decodes tokens as they come. It never returns a part of a rune: bytes wait until their rune is whole.
type Stream struct {
	t     *Tokenizer
	held  []byte
	start bool
}

// Stream returns a decoder. At the start of a text the space that encoding has put in front is left out; a continuation keeps it.
func (t *Tokenizer) Stream(start bool) *Stream {
	return &Stream{t: t, start: start && (t.stripLead || t.spelling == spelledWordPiece)}
}

// Push adds a token and returns the text that is now whole.
func (s *Stream) Push(id int32) string {
	b := s.t.Text(id)
	if s.start && len(b) > 0 {
		if b[0] == ' ' {
			b = b[1:]
		}
		s.start = false
	}
	s.held = append(s.held, b...)
	// The last bytes wait if they begin a rune that more bytes could complete.
	keep := 0
	for i := 1; i <= min(utf8.UTFMax-1, len(s.held)); i++ {
		if c := s.held[len(s.held)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(s.held[len(s.held)-i:]) {
				keep = i
			}
			break
		}
	}
	whole := s.held[:len(s.held)-keep]
	out := strings.ToValidUTF8(string(whole), "\uFFFD")
	s.held = append(s.held[:0], s.held[len(whole):]...)
	return out
}

// Flush returns what is held at the end: U+FFFD for a rune that stayed incomplete.
func (s *Stream) Flush() string {
	out := strings.ToValidUTF8(string(s.held), "\uFFFD")
	s.held = s.held[:0]
	return out
}

// Pending reports whether bytes wait for the rest of their rune.
func (s *Stream) Pending() bool { return len(s.held) > 0 }
