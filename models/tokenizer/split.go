package tokenizer

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
)

// A splitter cuts a text into pieces that are encoded independently. The pieces make up the text.
type splitter func(text string, yield func(piece string))

// The patterns of the commonest splits. Scanners by hand stand for these three, because a backtracking matcher takes most of the
// time of an encoding; a test holds them against the patterns.
const (
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternGPT4 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	patternGPT4o = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
		`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	// DeepSeek LLM's letters are those with cases, spelled out.
	patternDeepSeekLetters = `\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`
)

// Some files spell the folded contractions out.
const (
	foldedContractions  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	spelledContractions = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
)

// presets are the splits by the names that GGUF files use (tokenizer.ggml.pre): patterns that apply one after the other.
var presets = map[string][]string{
	"default": {`[\p{P}\$\+<=>\^~\|]+`, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`},
	"gpt-2":   {patternGPT2}, "phi-2": {patternGPT2}, "mpt": {patternGPT2}, "olmo": {patternGPT2}, "jais": {patternGPT2},
	"jina-es": {patternGPT2}, "jina-de": {patternGPT2}, "jina-v2-es": {patternGPT2}, "jina-v2-de": {patternGPT2}, "jina-v1-en": {patternGPT2},
	"jina-v2-code": {patternGPT2}, "roberta-bpe": {patternGPT2}, "gigachat": {patternGPT2}, "trillion": {patternGPT2}, "modern-bert": {patternGPT2},
	"smollm": {`\p{N}`, patternGPT2}, "starcoder": {`\p{N}`, patternGPT2}, "refact": {`\p{N}`, patternGPT2}, "command-r": {`\p{N}`, patternGPT2},
	"codeshell": {`\p{N}`, patternGPT2}, "exaone": {`\p{N}`, patternGPT2}, "minerva-7b": {`\p{N}`, patternGPT2},
	"falcon": {`[\p{P}\$\+<=>\^~\|` + "`" + `]+`, patternGPT2, `[0-9][0-9][0-9]`},
	"mellum": {patternGPT2}, "a.x-4.0": {patternGPT2}, "exaone4": {patternGPT2}, "granite-docling": {patternGPT2}, "mellum2": {`\p{N}`, patternGPT2},
	"falcon-h1": {patternGPT4}, "midm-2.0": {patternGPT4}, "lfm2": {patternGPT4},
	"kormo": {patternQwen}, "solar-open": {patternQwen}, "grok-2": {patternQwen}, "f2llmv2": {patternQwen},
	"kanana2": {patternGPT4o}, "talkie": {patternGPT4o}, "minimax-m2": {patternGPT4o},
	"llama-bpe": {patternGPT4}, "llama3": {patternGPT4}, "llama-v3": {patternGPT4}, "falcon3": {patternGPT4}, "dbrx": {patternGPT4}, "jina-v5-nano": {patternGPT4},
	"smaug-bpe": {patternGPT4}, "chatglm-bpe": {patternGPT4}, "glm4": {patternGPT4}, "pixtral": {patternGPT4},
	"qwen2": {patternQwen}, "stablelm2": {patternQwen}, "hunyuan": {patternQwen}, "deepseek-r1-qwen": {patternQwen}, "megrez": {patternQwen},
	"gpt-4o": {patternGPT4o}, "llama4": {patternGPT4o}, "tekken": {patternTekken},
	"deepseek-llm":   {`[\r\n]`, patternDeepSeekLetters, `\s?[!-/:-~！-／：-～‘-‟　-。]+`, `\s+$`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}+`},
	"viking":         {` ?[^(\s|.,!?…。，、।۔،)]+`, `\p{N}`},
	"qwen35":         {`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"seed-coder":     {`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"deepseek-coder": {`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`},
	"deepseek-v3":    {`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`, `[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_` + "`" + `{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`},
	"bloom":          {` ?[^(\s|.,!?…。，、।۔،)]+`}, "poro-chat": {` ?[^(\s|.,!?…。，、।۔،)]+`}, "gpt3-finnish": {` ?[^(\s|.,!?…。，、।۔،)]+`},
}

// Splits returns the names of splits that are known.
func Splits() []string {
	names := make([]string, 0, len(presets))
	for n := range presets {
		names = append(names, n)
	}
	return names
}

func preset(name string) (splitter, error) {
	patterns, ok := presets[name]
	if !ok {
		return nil, fmt.Errorf("tokenizer: the split %q is unknown", name)
	}
	var steps []splitter
	for _, p := range patterns {
		s, err := patternSplitter(p, false)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return sequence(steps...), nil
}

// sequence applies splitters one after the other, each to the pieces of the one before it.
func sequence(steps ...splitter) splitter {
	switch len(steps) {
	case 0:
		return nil
	case 1:
		return steps[0]
	}
	rest := sequence(steps[1:]...)
	return func(text string, yield func(string)) {
		steps[0](text, func(piece string) { rest(piece, yield) })
	}
}

// patternSplitter makes pieces of the matches of a pattern and of what lies between them. With dropped, matches are left out.
func patternSplitter(pattern string, dropped bool) (splitter, error) {
	if !dropped {
		switch strings.Replace(pattern, spelledContractions, foldedContractions, 1) {
		case patternGPT2, strings.TrimSuffix(patternGPT2, `|\s+`):
			return splitGPT2, nil
		case patternGPT4:
			return func(text string, yield func(string)) { splitGPT4(text, 3, yield) }, nil
		case patternQwen:
			return func(text string, yield func(string)) { splitGPT4(text, 1, yield) }, nil
		case `\p{N}`:
			return splitDigits, nil
		}
	}
	m, err := matcher(pattern)
	if err != nil {
		return nil, err
	}
	return func(text string, yield func(string)) {
		m(text, func(piece string, match bool) {
			if !match || !dropped {
				yield(piece)
			}
		})
	}, nil
}

// matcher cuts a text into the matches of a pattern and what lies between them.
func matcher(pattern string) (func(text string, yield func(piece string, match bool)), error) {
	re, err := regexp2.Compile(pattern, regexp2.None)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: pattern: %w", err)
	}
	// A file's pattern may be slow beyond measure; a text is then cut where the matcher gave up.
	re.MatchTimeout = 10 * time.Second
	return func(text string, yield func(string, bool)) {
		var ends [][2]int // byte ranges of matches
		runes := []rune(text)
		at, byteAt := 0, 0
		m, err := re.FindRunesMatch(runes)
		for err == nil && m != nil {
			if m.Length > 0 {
				for ; at < m.Index; at++ {
					byteAt += runeBytes(text, byteAt)
				}
				start := byteAt
				for ; at < m.Index+m.Length; at++ {
					byteAt += runeBytes(text, byteAt)
				}
				ends = append(ends, [2]int{start, byteAt})
			}
			m, err = re.FindNextMatch(m)
		}
		last := 0
		for _, e := range ends {
			if e[0] > last {
				yield(text[last:e[0]], false)
			}
			yield(text[e[0]:e[1]], true)
			last = e[1]
		}
		if last < len(text) {
			yield(text[last:], false)
		}
	}, nil
}

// runeBytes returns the bytes that the rune conversion took for one rune: 1 for a byte that is no UTF-8.
func runeBytes(s string, at int) int {
	_, n := utf8.DecodeRuneInString(s[at:])
	return n
}

// class sorts runes as the patterns do.
type class uint8

const (
	other class = iota
	letter
	number
	space
)

var asciiClass = func() (c [128]class) {
	for r := range rune(128) {
		switch {
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
			c[r] = letter
		case r >= '0' && r <= '9':
			c[r] = number
		case r == ' ' || r >= '\t' && r <= '\r':
			c[r] = space
		}
	}
	return c
}()

// classAt returns the class of the rune at a byte of s and its length; at the end of s the length is 0.
func classAt(s string, at int) (class, int) {
	if at >= len(s) {
		return other, 0
	}
	if b := s[at]; b < 128 {
		return asciiClass[b], 1
	}
	r, n := utf8.DecodeRuneInString(s[at:])
	switch {
	case unicode.IsLetter(r):
		return letter, n
	case unicode.Is(unicode.N, r):
		return number, n
	case unicode.IsSpace(r):
		return space, n
	}
	return other, n
}

// run returns the end of the runes of a class from a byte on.
func run(s string, at int, want class) int {
	for {
		c, n := classAt(s, at)
		if n == 0 || c != want {
			return at
		}
		at += n
	}
}

// contraction returns the length of 's, 't, 're, 've, 'm, 'll, 'd at the start of s, or 0.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	a, b := s[1], byte(0)
	if len(s) > 2 {
		b = s[2]
	}
	if fold {
		a, b = a|0x20, b|0x20
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return 2
	case a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l':
		return 3
	}
	return 0
}

// spaces returns the end of white space from at that is one piece: all of it at the end of the text, else all but the last rune, which
// may belong to the word behind it; a single one stands alone.
func spaces(s string, at int) int {
	last, end := at, at
	for {
		c, n := classAt(s, end)
		if n == 0 {
			return end
		}
		if c != space {
			break
		}
		last, end = end, end+n
	}
	if last > at {
		return last
	}
	return end
}

func splitGPT2(s string, yield func(string)) {
	for at := 0; at < len(s); {
		end := at + contraction(s[at:], false)
		if end == at {
			from := at
			c, n := classAt(s, at)
			if s[at] == ' ' {
				if next, m := classAt(s, at+1); m > 0 && next != space {
					c, n, from = next, m, at+1
				}
			}
			if c == space {
				end = spaces(s, at)
			} else {
				end = run(s, from+n, c)
			}
		}
		yield(s[at:end])
		at = end
	}
}

// splitGPT4 is the split of GPT-4's family, with numbers of at most digits digits.
func splitGPT4(s string, digits int, yield func(string)) {
	for at := 0; at < len(s); {
		end := at + contraction(s[at:], true)
		if end == at {
			end = pieceGPT4(s, at, digits)
		}
		yield(s[at:end])
		at = end
	}
}

func pieceGPT4(s string, at, digits int) int {
	c, n := classAt(s, at)
	newline := s[at] == '\r' || s[at] == '\n'
	switch {
	case c == letter:
		return run(s, at+n, letter)
	case c == number:
		end := at + n
		for range digits - 1 {
			if c, n = classAt(s, end); c != number {
				break
			}
			end += n
		}
		return end
	case !newline: // a rune of any other kind belongs to the letters behind it
		if next, m := classAt(s, at+n); m > 0 && next == letter {
			return run(s, at+n+m, letter)
		}
	}
	from := at
	if s[at] == ' ' {
		if next, m := classAt(s, at+1); m > 0 && next == other {
			c, from = other, at+1
		}
	}
	if c == other {
		end := run(s, from, other)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	// White space up to its last line break, else without its last rune.
	end := run(s, at, space)
	if i := strings.LastIndexAny(s[at:end], "\r\n"); i >= 0 {
		return at + i + 1
	}
	return spaces(s, at)
}

func splitDigits(s string, yield func(string)) {
	last := 0
	for at := 0; at < len(s); {
		c, n := classAt(s, at)
		if c == number {
			if at > last {
				yield(s[last:at])
			}
			yield(s[at : at+n])
			last = at + n
		}
		at += n
	}
	if last < len(s) {
		yield(s[last:])
	}
}
