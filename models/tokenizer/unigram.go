package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// unigram takes the segmentation of a text whose tokens have the highest sum of scores (Viterbi).
type unigram struct {
	t       *Tokenizer
	longest int // bytes of the longest token
	unk     float64
	bytes   [256]int32
	fallback,
	fuse bool // byte tokens for unknown runes; runs of unknown runes are one token
}

func newUnigram(t *Tokenizer, byteFallback bool) (*unigram, error) {
	if len(t.Scores) != len(t.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d scores for %d tokens", len(t.Scores), len(t.Tokens))
	}
	m := &unigram{t: t, fallback: byteFallback, fuse: true, bytes: byteTokens(t)}
	low := math.Inf(1)
	for i, s := range t.Tokens {
		if t.Kinds == nil || t.Kinds[i] == Normal {
			m.longest = max(m.longest, len(s))
			low = min(low, float64(t.Scores[i]))
		}
	}
	m.unk = low - 10 // SentencePiece's penalty
	return m, nil
}

func (m *unigram) usable(id int32) bool {
	if m.t.Kinds == nil {
		return true
	}
	k := m.t.Kinds[id]
	return k == Normal || k == UserDefined
}

func (m *unigram) encode(ids []int32, text string) []int32 {
	n := len(text)
	best := make([]float64, n+1)
	from, token := make([]int32, n+1), make([]int32, n+1)
	for i := 1; i <= n; i++ {
		best[i] = math.Inf(-1)
	}
	for at := 0; at < n; {
		_, size := utf8.DecodeRuneInString(text[at:])
		single := false
		for end := at + size; end <= min(n, at+m.longest); {
			if id, ok := m.t.ids[text[at:end]]; ok && m.usable(id) {
				score := float64(m.t.Scores[id])
				if m.t.Kinds != nil && m.t.Kinds[id] == UserDefined {
					score = 0
				}
				if s := best[at] + score; s > best[end] {
					best[end], from[end], token[end] = s, int32(at), id
				}
				single = single || end == at+size
			}
			if end == n {
				break
			}
			_, k := utf8.DecodeRuneInString(text[end:])
			end += k
		}
		if s := best[at] + m.unk; !single && s > best[at+size] {
			best[at+size], from[at+size], token[at+size] = s, int32(at), -1
		}
		at += size
	}
	first := len(ids)
	type span struct{ from, end, token int32 }
	var path []span
	for end := int32(n); end > 0; end = from[end] {
		path = append(path, span{from[end], end, token[end]})
	}
	unknown := false
	for i := len(path) - 1; i >= 0; i-- {
		s := path[i]
		if s.token >= 0 {
			ids, unknown = append(ids, s.token), false
			continue
		}
		if raw := text[s.from:s.end]; m.fallback {
			for j := range len(raw) {
				if id := m.bytes[raw[j]]; id >= 0 {
					ids = append(ids, id)
				}
			}
			continue
		}
		if m.t.UNK >= 0 && !(unknown && m.fuse) {
			ids = append(ids, m.t.UNK)
		}
		unknown = true
	}
	_ = first
	return ids
}

// charsmap is SentencePiece's precompiled normalization: a double-array trie of UTF-8 prefixes, and the strings that replace them.
type charsmap struct {
	units []uint32
	texts []byte // NUL-terminated
}

func parseCharsmap(b []byte) (*charsmap, error) {
	le := func(at int) uint32 {
		return uint32(b[at]) | uint32(b[at+1])<<8 | uint32(b[at+2])<<16 | uint32(b[at+3])<<24
	}
	if len(b) < 4 || int64(le(0)) > int64(len(b)-4) || le(0)%4 != 0 {
		return nil, fmt.Errorf("tokenizer: the precompiled character map of %d bytes is damaged", len(b))
	}
	size := int(le(0))
	c := &charsmap{units: make([]uint32, size/4), texts: b[4+size:]}
	for i := range c.units {
		c.units[i] = le(4 + 4*i)
	}
	return c, nil
}

// find returns the longest prefix of s that the map replaces, and its replacement.
func (c *charsmap) find(s string) (n int, text []byte) {
	if len(c.units) == 0 {
		return 0, nil
	}
	node := 0
	offset := func(u uint32) int { return int(u >> 10 << (u & (1 << 9) >> 6)) }
	node ^= offset(c.units[0])
	for i := range len(s) {
		node ^= int(s[i])
		if node >= len(c.units) {
			break
		}
		u := c.units[node]
		if u&(1<<31|0xff) != uint32(s[i]) {
			break
		}
		node ^= offset(u)
		if u>>8&1 != 0 && node < len(c.units) { // a leaf holds the position of the replacement
			if at := int(c.units[node] &^ (1 << 31)); at < len(c.texts) {
				n, text = i+1, c.texts[at:]
			}
		}
	}
	if n > 0 {
		for i, b := range text {
			if b == 0 {
				return n, text[:i]
			}
		}
	}
	return n, text
}

func (c *charsmap) normalize(s string) string {
	var b strings.Builder
	for at := 0; at < len(s); {
		n, text := c.find(s[at:])
		if n > 0 {
			b.Write(text)
			at += n
			continue
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		b.WriteString(s[at : at+size])
		at += size
	}
	return b.String()
}

// unigramNormalizer applies the character map, trims and collapses spaces as asked, and makes them visible.
func unigramNormalizer(cm *charsmap, prefix, collapse bool) func(string, bool) string {
	return func(text string, first bool) string {
		if cm != nil {
			text = cm.normalize(text)
		}
		if collapse {
			text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
		}
		if text == "" {
			return ""
		}
		if prefix && first {
			text = " " + text
		}
		return strings.ReplaceAll(text, " ", metaspace)
	}
}
