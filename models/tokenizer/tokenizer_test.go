package tokenizer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
)

// build makes a tokenizer from metadata, through a file as users do.
func build(t testing.TB, kv map[string]any) (*Tokenizer, error) {
	var w gguf.Writer
	for k, v := range kv {
		w.Set("tokenizer.ggml."+k, v)
	}
	var out bytes.Buffer
	_, err := w.WriteTo(&out)
	require.NoError(t, err)
	f, err := gguf.Parse(out.Bytes())
	require.NoError(t, err)
	return FromGGUF(f)
}

func bytesVocab() (tokens []string, kinds []int32) {
	for b := range 256 {
		tokens, kinds = append(tokens, byteRunes[b]), append(kinds, 1)
	}
	return tokens, kinds
}

// small byte-level vocabulary: all bytes, a few merges, and special tokens.
func small(t testing.TB) *Tokenizer {
	tokens, kinds := bytesVocab()
	tokens = append(tokens, "he", "ll", "hell", "hello", "Ġw", "<|end|>", "<|endoftext|>", "<tool>", "😀")
	kinds = append(kinds, 1, 1, 1, 1, 1, 3, 3, 4, 4)
	tok, err := build(t, map[string]any{"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds,
		"merges":       []string{"h e", "l l", "he ll", "hell o", "Ġ w"},
		"bos_token_id": uint32(262), "eos_token_id": uint32(262), "add_bos_token": true})
	require.NoError(t, err)
	return tok
}

func kindsOf(tok *Tokenizer) (kinds []int32) {
	for _, k := range tok.Kinds {
		kinds = append(kinds, int32(k))
	}
	return kinds
}

func TestSpecial(t *testing.T) {
	tok := small(t)
	require.Equal(t, []int32{259, 260, 'o'}, tok.Encode("hello wo", Options{}))
	require.Equal(t, []int32{262, 259}, tok.Encode("hello", Options{Special: true}))
	require.Equal(t, []int32{259, 261, 263, 260}, tok.Encode("hello<|end|><tool> w", Options{ParseSpecial: true}))
	plain := tok.Encode("hello<|end|><tool> w", Options{})
	require.NotContains(t, plain, int32(261), "control tokens are text unless asked for")
	require.Contains(t, plain, int32(263), "user-defined tokens are always found")
	require.Equal(t, "hello<|end|><tool> w", tok.Decode(plain))
	require.Equal(t, []int32{262, 261}, tok.Encode("<|endoftext|><|end|>", Options{ParseSpecial: true}), "the longest token first")
	require.True(t, tok.IsEnd(262))
	require.True(t, tok.IsEnd(261), "a known end of turn")
	require.False(t, tok.IsEnd(263))
	eom, err := build(t, map[string]any{"model": "gpt2", "pre": "gpt-2", "tokens": tok.Tokens, "token_type": kindsOf(tok), "merges": tok.Merges, "eom_token_id": uint32(263)})
	require.NoError(t, err)
	require.True(t, eom.IsEnd(263))
	require.Empty(t, tok.Encode("", Options{}))
	require.Equal(t, "", tok.Decode([]int32{262, 261, -5, 9999}))
}

func TestStream(t *testing.T) {
	tok := small(t)
	text := "aé漢😀b\U0001F999!"
	var ids []int32
	for i := range len(text) {
		ids = append(ids, int32(text[i]))
	}
	s := tok.Stream(true)
	var got strings.Builder
	for _, id := range ids {
		part := s.Push(id)
		require.True(t, utf8.ValidString(part))
		got.WriteString(part)
	}
	require.Equal(t, text, got.String())
	require.False(t, s.Pending())

	// A rune that stays incomplete, and bytes that are no UTF-8, become U+FFFD.
	s = tok.Stream(true)
	require.Equal(t, "", s.Push(0xf0))
	require.Equal(t, "", s.Push(0x9f))
	require.True(t, s.Pending())
	require.Equal(t, "\uFFFDa", s.Push('a'))
	require.Equal(t, "\uFFFD", s.Push(0xff))
	require.Equal(t, "", s.Push(0xe2))
	require.Equal(t, "\uFFFD", s.Flush())
	require.Equal(t, "", s.Flush())
}

func TestSPMText(t *testing.T) {
	tokens := []string{"<unk>", "<s>", "</s>"}
	kinds := []int32{2, 3, 3}
	scores := []float32{0, 0, 0}
	for b := range 256 {
		tokens, kinds, scores = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(kinds, 6), append(scores, 0)
	}
	for i, s := range []string{"▁", "a", "b", "ab", "▁ab", "abab"} {
		tokens, kinds, scores = append(tokens, s), append(kinds, 1), append(scores, float32(-i))
	}
	kv := map[string]any{"model": "llama", "tokens": tokens, "token_type": kinds, "scores": scores}
	tok, err := build(t, kv)
	require.NoError(t, err)
	const ab, sab = 259 + 3, 259 + 4
	require.Equal(t, []int32{1, sab, ab}, tok.Encode("abab", Options{Special: true}), "ab has the best score, then the leftmost wins")
	require.Equal(t, "abab", tok.Decode(tok.Encode("abab", Options{})))
	require.Equal(t, " ab", tok.Decode(tok.Encode(" ab", Options{})))
	require.Equal(t, "é\x00漢", tok.Decode(tok.Encode("é\x00漢", Options{})))
	s := tok.Stream(false)
	require.Equal(t, " ab", s.Push(sab), "a continuation keeps its space")

	kv["add_space_prefix"] = false
	tok, err = build(t, kv)
	require.NoError(t, err)
	require.Equal(t, []int32{259 + 5}, append([]int32{}, tok.Encode("abab", Options{})...))
}

// Damaged vocabularies give errors, not panics.
func TestDamaged(t *testing.T) {
	tokens, kinds := bytesVocab()
	ok := func() map[string]any {
		return map[string]any{"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds, "merges": []string{"a b"}}
	}
	for want, damage := range map[string]func(m map[string]any){
		`key "tokenizer.ggml.model": missing`:        func(m map[string]any) { delete(m, "model") },
		`key "tokenizer.ggml.tokens": missing`:       func(m map[string]any) { delete(m, "tokens") },
		"an array of strings is right":               func(m map[string]any) { m["tokens"] = "x" },
		"1 token types for 256":                      func(m map[string]any) { m["token_type"] = []int32{1} },
		"the BOS token is 256":                       func(m map[string]any) { m["bos_token_id"] = uint32(256) },
		"an integer is right":                        func(m map[string]any) { m["bos_token_id"] = "x" },
		`merge 0 is "ab"`:                            func(m map[string]any) { m["merges"] = []string{"ab"} },
		`merge 1 is "a "`:                            func(m map[string]any) { m["merges"] = []string{"a b", "a "} },
		`the split "nonsense" is unknown`:            func(m map[string]any) { m["pre"] = "nonsense" },
		`model "rwkv"`:                               func(m map[string]any) { m["model"] = "rwkv" },
		"0 scores for 256 tokens":                    func(m map[string]any) { m["model"] = "llama" },
		"the vocabulary is empty":                    func(m map[string]any) { m["tokens"], m["token_type"] = []string{}, []int32{} },
		"the precompiled character map of 5 bytes":   func(m map[string]any) { m["model"], m["precompiled_charsmap"] = "t5", []uint8{255, 255, 0, 0, 0} },
		"precompiled_charsmap is a string, an array": func(m map[string]any) { m["model"], m["precompiled_charsmap"] = "t5", "x" },
		`normalizer.lowercase": a bool`:              func(m map[string]any) { m["model"], m["normalizer.lowercase"] = "bert", "x" },
	} {
		m := ok()
		damage(m)
		_, err := build(t, m)
		require.ErrorContains(t, err, want)
	}
}

// A merge whose parts or result are no tokens is still applied, and its result falls apart into bytes.
func TestMergeOutsideVocabulary(t *testing.T) {
	tokens, kinds := bytesVocab()
	tok, err := build(t, map[string]any{"model": "gpt2", "pre": "gpt-2", "tokens": append(tokens, "xyz"), "token_type": append(kinds, 1),
		"merges": []string{"x y", "xy z"}})
	require.NoError(t, err)
	require.Equal(t, []int32{256, 'x', 'y', 'a'}, tok.Encode("xyzxya", Options{}))
}

var splitSamples = []string{"", " ", "  ", "\n", " \n ", "\r\n\r\n", "a", "a b", "a  b", "a\n b", "a \n\n b  \n c", "I'm we'll 'S 'll'VE 'x '", "1234567 12 3a4",
	"!?  ..\n\n.\r\nx", " !a !!a\t\tb", "漢字 かな 한글 12٣٤ Ⅷ½", "é\u0301 a\u00a0b\u2003c\u0085d\u200be", "🦙🏽‍♂️ x", "\xff\xfe a\x80", "'", "''s", "a's't", " 's",
	"foo_bar(baz, 42)\n\treturn x;\n}\n\n\n"}

var scanners = map[string]struct {
	pattern string
	split   splitter
}{
	"gpt2":  {patternGPT2, splitGPT2},
	"gpt4":  {patternGPT4, func(s string, y func(string)) { splitGPT4(s, 3, y) }},
	"qwen":  {patternQwen, func(s string, y func(string)) { splitGPT4(s, 1, y) }},
	"digit": {`\p{N}|[^\p{N}]+`, splitDigits},
}

func pieces(s splitter, text string) []string {
	all := []string{}
	s(text, func(p string) { all = append(all, p) })
	return all
}

func matches(t testing.TB, pattern, text string) []string {
	re := regexp2.MustCompile(pattern, regexp2.None)
	all := []string{}
	m, err := re.FindStringMatch(text)
	for ; m != nil; m, err = re.FindNextMatch(m) {
		all = append(all, m.String())
	}
	require.NoError(t, err)
	return all
}

// The scanners cut exactly where the patterns do.
func TestScanners(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	alphabet := []rune("ab'sStTlLeEvVrRdDmM 1٣½漢é\u0301\n\r\t .,!\u00a0🦙")
	texts := append([]string{}, splitSamples...)
	for range 2000 {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	for name, s := range scanners {
		for _, text := range texts {
			if !utf8.ValidString(text) {
				require.Equal(t, text, strings.Join(pieces(s.split, text), ""))
				continue
			}
			require.Equal(t, matches(t, s.pattern, text), pieces(s.split, text), "%s of %q", name, text)
		}
	}
}

// Every split keeps every byte of the text.
func TestPresets(t *testing.T) {
	for _, name := range Splits() {
		s, err := preset(name)
		require.NoError(t, err, name)
		for _, text := range splitSamples {
			require.Equal(t, text, strings.Join(pieces(s, text), ""), "%s of %q", name, text)
		}
	}
	s, err := preset("smollm")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "  ", "1", "2", " b"}, pieces(s, "a  12 b"))
	s, err = preset("gpt-4o")
	require.NoError(t, err)
	require.Equal(t, []string{"camel", "Case", " HTTPServer's", "123", "4"}, pieces(s, "camelCase HTTPServer's1234"))
	s, err = preset("deepseek-llm")
	require.NoError(t, err)
	require.Equal(t, []string{"Peace", ",", " War", " ", "1805", " ", "漢字か", "\n", "\n"}, pieces(s, "Peace, War 1805 漢字か\n\n"))
}

// Long pieces, merged with a heap, give what short ones give.
func TestLongPieces(t *testing.T) {
	tok := small(t)
	m := tok.model.(*bpe)
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		a := make([]int32, r.IntN(48))
		for i := range a {
			a[i] = int32("hello w"[r.IntN(7)])
		}
		b := append([]int32{}, a...)
		require.Equal(t, m.mergeAll(a), m.mergeHeap(b))
	}
	long := strings.Repeat("hello", 100_000) // quadratic time would take minutes
	require.Len(t, tok.Encode(long, Options{}), 100_000)
}

func TestUnigram(t *testing.T) {
	tokens := []string{"<pad>", "</s>", "<unk>", "▁", "▁the", "▁t", "he", "h", "e", "t", "cat", "▁c", "at"}
	kinds := []int32{3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	scores := []float32{0, 0, 0, -3, -2, -4, -4, -6, -6, -6, -5, -4, -3}
	tok, err := build(t, map[string]any{"model": "t5", "tokens": tokens, "token_type": kinds, "scores": scores, "remove_extra_whitespaces": true})
	require.NoError(t, err)
	require.Equal(t, []int32{4, 11, 12, 1}, tok.Encode("the   cat ", Options{Special: true}))
	require.Equal(t, []int32{4, 3, 2, 6}, tok.Encode("the ☃☃he", Options{}), "a run of unknown runes is one token")
	require.Equal(t, "the cat", tok.Decode(tok.Encode("the cat", Options{})))
}

func FuzzEncode(f *testing.F) {
	for _, s := range splitSamples {
		f.Add(s)
	}
	tok := small(f)
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text, Options{})
		var back []byte
		for _, id := range ids {
			back = append(back, tok.Text(id)...)
		}
		require.Equal(t, text, string(back))
		for name, s := range scanners {
			got := pieces(s.split, text)
			require.Equal(t, text, strings.Join(got, ""))
			if utf8.ValidString(text) {
				require.Equal(t, matches(t, s.pattern, text), got, name)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. It's 1805, and we'll see! ", 200)
	for _, name := range []string{"gpt-2", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			tok := open(b, "data/models/vocab/ggml-vocab-"+name+".gguf")
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				tok.Encode(text, Options{})
			}
		})
	}
}

// Vocabularies agree where one begins with the other, whichever is asked.
func TestAgrees(t *testing.T) {
	of := func(tokens ...string) *Tokenizer { return &Tokenizer{Vocab: Vocab{Tokens: tokens}} }
	for _, c := range []struct {
		a, b *Tokenizer
		want bool
	}{
		{of("a", "b"), of("a", "b"), true},
		{of("a", "b"), of("a", "b", "[PAD2]"), true},
		{of("a", "b"), of("b", "a"), false},
		{of("a", "b"), of("a", "c", "[PAD2]"), false},
	} {
		require.Equal(t, c.want, c.a.Agrees(c.b))
		require.Equal(t, c.want, c.b.Agrees(c.a))
	}
}

// Every printable ASCII rune that is no letter and no digit stands alone in BERT's pieces, as punctuation of other scripts does. The given cases
// have only some of them.
func TestBertPunctuation(t *testing.T) {
	split := func(s string) (pieces []string) {
		splitBert(s, func(p string) { pieces = append(pieces, p) })
		return pieces
	}
	const ascii = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
	require.Len(t, ascii, 32)
	for _, r := range ascii + "«»¿–—…、。" {
		require.Equal(t, []string{"a", string(r), "1"}, split("a"+string(r)+"1"))
	}
	for _, r := range "a7é€©中" {
		require.Equal(t, []string{"a" + string(r) + "1"}, split("a"+string(r)+"1"))
	}
	require.Equal(t, []string{"a", "b"}, split(" a\t\n b "))
}
