package tokenizer

import (
	"container/heap"
	"fmt"
	"strings"
	"unicode/utf8"
)

const metaspace = "\u2581" // SentencePiece's visible space

// spm is SentencePiece's BPE: neighbours whose joined text is a token are merged, the best score first.
type spm struct {
	t     *Tokenizer
	bytes [256]int32
}

func newSPM(t *Tokenizer) (*spm, error) {
	if len(t.Scores) != len(t.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d scores for %d tokens", len(t.Scores), len(t.Tokens))
	}
	m := &spm{t: t}
	m.bytes = byteTokens(t)
	return m, nil
}

// byteTokens finds the tokens <0x00> to <0xFF>, -1 where absent.
func byteTokens(t *Tokenizer) (all [256]int32) {
	for b := range all {
		all[b] = -1
		if id, ok := t.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			all[b] = id
		}
	}
	return all
}

func (m *spm) encode(ids []int32, text string) []int32 {
	// Symbols are stretches of the text: symbol i starts at start[i] and ends where its successor starts.
	var start []int32
	for at := 0; at < len(text); {
		start = append(start, int32(at))
		_, n := utf8.DecodeRuneInString(text[at:])
		at += n
	}
	n := int32(len(start))
	start = append(start, int32(len(text)))
	prev, next := make([]int32, n), make([]int32, n+1)
	gone := make([]bool, n)
	end := func(i int32) int32 { return start[next[i]] }
	var h candidates
	pair := func(l, r int32) (candidate, bool) {
		if l < 0 || r >= n {
			return candidate{}, false
		}
		id, ok := m.t.ids[text[start[l]:end(r)]]
		if !ok {
			return candidate{}, false
		}
		return candidate{-float64(m.t.Scores[id]), l, r, end(l), end(r), id}, true
	}
	for i := range n {
		prev[i], next[i] = i-1, i+1
	}
	for i := range n {
		if c, ok := pair(i, i+1); ok {
			h = append(h, c)
		}
	}
	heap.Init(&h)
	for h.Len() > 0 {
		c := heap.Pop(&h).(candidate)
		if gone[c.left] || gone[c.right] || end(c.left) != c.a || end(c.right) != c.b {
			continue
		}
		gone[c.right] = true
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
	for i := range n {
		if gone[i] {
			continue
		}
		s := text[start[i]:end(i)]
		if id, ok := m.t.ids[s]; ok {
			ids = append(ids, id)
			continue
		}
		for j := range len(s) {
			if id := m.bytes[s[j]]; id >= 0 {
				ids = append(ids, id)
			} else if m.t.UNK >= 0 {
				ids = append(ids, m.t.UNK)
				break
			}
		}
	}
	return ids
}

// spmNormalizer makes spaces visible and puts one in front of the text.
func spmNormalizer(prefix bool) func(string, bool) string {
	return func(text string, first bool) string {
		if prefix && first && text != "" {
			text = " " + text
		}
		return strings.ReplaceAll(text, " ", metaspace)
	}
}
