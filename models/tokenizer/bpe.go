package tokenizer

import (
	"container/heap"
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe merges pairs of symbols in the order of preference that training found.
type bpe struct {
	t            *Tokenizer
	merges       map[[2]int32]merge
	symbols      map[string]int32 // spelling to id; those behind the vocabulary's end occur in merges only
	byteLevel    bool             // pieces are spelled with a rune for each byte
	byteFallback bool             // unknown runes become <0xHH> tokens
	wholeFirst   bool             // a piece that is a token is not taken apart
	fuseUnknown  bool
	bytes        [256]int32 // <0xHH> or single-byte tokens, -1 where absent
}

type merge struct{ rank, id int32 }

// byteRunes spells each byte by a printable rune, as GPT-2 does: printable Latin-1 stands for itself, the rest for U+0100 on.
var byteRunes, runeBytesMap = func() (to [256]string, from map[rune]byte) {
	from = map[rune]byte{}
	next := rune(256)
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = next
			next++
		}
		to[b], from[r] = string(r), byte(b)
	}
	return to, from
}()

func newBPE(t *Tokenizer, byteLevel, byteFallback bool) (*bpe, error) {
	m := &bpe{t: t, merges: make(map[[2]int32]merge, len(t.Merges)), symbols: t.ids, byteLevel: byteLevel, byteFallback: byteFallback}
	extra := false
	intern := func(s string) int32 {
		if id, ok := m.symbols[s]; ok {
			return id
		}
		if !extra { // the vocabulary's map stays as it is
			extra = true
			all := make(map[string]int32, len(m.symbols)+1)
			for k, v := range m.symbols {
				all[k] = v
			}
			m.symbols = all
		}
		id := int32(len(t.Tokens) + len(m.symbols))
		m.symbols[s] = id
		return id
	}
	for rank, s := range t.Merges {
		// A symbol may itself hold a space in vocabularies that are not byte-level: the separator is the first one behind a rune.
		i := -1
		if len(s) > 1 {
			i = strings.IndexByte(s[1:], ' ') + 1
		}
		if i <= 0 || i == len(s)-1 {
			return nil, fmt.Errorf("tokenizer: merge %d is %q, two symbols with a space between are right", rank, s)
		}
		pair := [2]int32{intern(s[:i]), intern(s[i+1:])}
		if _, twice := m.merges[pair]; !twice {
			m.merges[pair] = merge{int32(rank), intern(s[:i] + s[i+1:])}
		}
	}
	for b := range m.bytes {
		m.bytes[b] = -1
		s := fmt.Sprintf("<0x%02X>", b)
		if byteLevel {
			s = byteRunes[b]
		}
		if id, ok := t.ids[s]; ok {
			m.bytes[b] = id
		}
	}
	return m, nil
}

func (m *bpe) encode(ids []int32, piece string) []int32 {
	if m.wholeFirst {
		spelled := piece
		if m.byteLevel {
			spelled = spellBytes(piece)
		}
		if id, ok := m.t.ids[spelled]; ok {
			return append(ids, id)
		}
	}
	// Symbols: a byte each, or a rune each. Those that are in no merge and not in the vocabulary keep their place as -1.
	var buf [64]int32
	symbols := buf[:0]
	var texts []string // the text of a symbol that is unknown
	if m.byteLevel {
		for i := range len(piece) {
			symbols = append(symbols, m.symbol(byteRunes[piece[i]]))
		}
	} else {
		for at := 0; at < len(piece); {
			_, n := utf8.DecodeRuneInString(piece[at:])
			s := piece[at : at+n]
			id := m.symbol(s)
			if id < 0 {
				texts = append(texts, s)
			}
			symbols = append(symbols, id)
			at += n
		}
	}
	symbols = m.mergeAll(symbols)
	unknown := false
	for _, s := range symbols {
		switch {
		case s >= 0 && int(s) < len(m.t.Tokens):
			ids, unknown = append(ids, s), false
		case s < 0 && !m.byteLevel:
			text := texts[0]
			texts = texts[1:]
			ids, unknown = m.fallback(ids, text, unknown)
		default: // a merge whose result is no token, or a byte without one
			text := m.spelling(s)
			if m.byteLevel {
				text = string(unspellBytes(text))
			}
			ids, unknown = m.fallback(ids, text, unknown)
		}
	}
	return ids
}

func (m *bpe) symbol(s string) int32 {
	if id, ok := m.symbols[s]; ok {
		return id
	}
	return -1
}

// spelling finds the text of a symbol outside the vocabulary; this happens in damaged vocabularies only.
func (m *bpe) spelling(id int32) string {
	for s, i := range m.symbols {
		if i == id {
			return s
		}
	}
	return ""
}

// fallback encodes text that has no token: byte by byte, or as the unknown token.
func (m *bpe) fallback(ids []int32, text string, unknown bool) ([]int32, bool) {
	if m.byteLevel || m.byteFallback {
		all := true
		for i := range len(text) {
			all = all && m.bytes[text[i]] >= 0
		}
		if all {
			for i := range len(text) {
				ids = append(ids, m.bytes[text[i]])
			}
			return ids, false
		}
	}
	if m.t.UNK >= 0 && !(unknown && m.fuseUnknown) {
		ids = append(ids, m.t.UNK)
	}
	return ids, true
}

// mergeAll merges until no pair of neighbours has a rank, the best rank first and the leftmost of equals. Short pieces, which is
// nearly all of them, are searched; long ones use a heap, so that no text takes quadratic time.
func (m *bpe) mergeAll(s []int32) []int32 {
	if len(s) > 48 {
		return m.mergeHeap(s)
	}
	for len(s) > 1 {
		best, at := merge{rank: 1<<31 - 1}, -1
		for i := range len(s) - 1 {
			if mg, ok := m.merges[[2]int32{s[i], s[i+1]}]; ok && mg.rank < best.rank {
				best, at = mg, i
			}
		}
		if at < 0 {
			break
		}
		s[at] = best.id
		s = append(s[:at+1], s[at+2:]...)
	}
	return s
}

// candidate is a pair of neighbours that may merge. It is stale when one of them has changed since.
type candidate struct {
	rank        float64 // smaller first
	left, right int32   // positions
	a, b        int32   // symbols when it was made (SentencePiece: ends of the texts)
	id          int32
}

type candidates []candidate

func (h candidates) Len() int { return len(h) }
func (h candidates) Less(i, j int) bool {
	if h[i].rank != h[j].rank {
		return h[i].rank < h[j].rank
	}
	return h[i].left < h[j].left
}
func (h candidates) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *candidates) Push(x any)   { *h = append(*h, x.(candidate)) }
func (h *candidates) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (m *bpe) mergeHeap(s []int32) []int32 {
	n := int32(len(s))
	prev, next := make([]int32, n), make([]int32, n)
	gone := make([]bool, n)
	var h candidates
	pair := func(l, r int32) (candidate, bool) {
		if l < 0 || r >= n {
			return candidate{}, false
		}
		mg, ok := m.merges[[2]int32{s[l], s[r]}]
		return candidate{float64(mg.rank), l, r, s[l], s[r], mg.id}, ok
	}
	for i := range n {
		prev[i], next[i] = i-1, i+1
		if c, ok := pair(i, i+1); ok {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	for h.Len() > 0 {
		c := heap.Pop(&h).(candidate)
		if gone[c.left] || gone[c.right] || s[c.left] != c.a || s[c.right] != c.b || next[c.left] != c.right {
			continue
		}
		s[c.left], gone[c.right] = c.id, true
		next[c.left] = next[c.right]
		if next[c.left] < n {
			prev[next[c.left]] = c.left
		}
		for _, p := range [2][2]int32{{prev[c.left], c.left}, {c.left, next[c.left]}} {
			if c, ok := pair(p[0], p[1]); ok {
				heap.Push(&h, c)
			}
		}
	}
	out := s[:0]
	for i := range n {
		if !gone[i] {
			out = append(out, s[i])
		}
	}
	return out
}

func spellBytes(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(byteRunes[s[i]])
	}
	return b.String()
}

// unspellBytes is the inverse; runes that spell no byte stay as they are.
func unspellBytes(s string) []byte {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if c, ok := runeBytesMap[r]; ok {
			b = append(b, c)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}
