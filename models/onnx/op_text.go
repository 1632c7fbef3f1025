package onnx

import (
	"math"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/tessera-go/tessera/tensor"
)

func init() {
	register("StringNormalizer", since(10), func(c *call) {
		x := c.textIn(0)
		words, _ := c.attrStrings("stopwords")
		sensitive := c.attrBool("is_case_sensitive", false)
		if x.spec.Rank < 1 || x.spec.Rank > 2 || x.spec.Rank == 2 && x.spec.Dims[0] != 1 {
			c.fail("%v, [N] or [1 N] is right", x)
		}
		lower, upper := cases.Lower(language.Und), cases.Upper(language.Und)
		var out []string
		for _, s := range x.text {
			stop := slices.ContainsFunc(words, func(w string) bool {
				return w == s || !sensitive && lower.String(w) == lower.String(s)
			})
			if stop {
				continue
			}
			switch c.attrString("case_change_action", "NONE") {
			case "LOWER":
				s = lower.String(s)
			case "UPPER":
				s = upper.String(s)
			}
			out = append(out, s)
		}
		if len(out) == 0 {
			out = []string{""}
		}
		dims := []int{len(out)}
		if x.spec.Rank == 2 {
			dims = []int{1, len(out)}
		}
		c.out(textValue(out, dims))
	})
	register("StringConcat", since(20), func(c *call) {
		a, b := c.textIn(0), c.textIn(1)
		dims, err := tensor.BroadcastDims(a.spec.Shape(), b.spec.Shape())
		c.check(err)
		n := 1
		for _, d := range dims {
			n *= d
		}
		c.room(n, 16)
		bytes := 0
		for i := range n {
			bytes += len(a.text[broadcastIndex(i, dims, a.spec.Shape())]) + len(b.text[broadcastIndex(i, dims, b.spec.Shape())])
		}
		c.room(bytes, 1)
		out := make([]string, n)
		for i := range out {
			out[i] = a.text[broadcastIndex(i, dims, a.spec.Shape())] + b.text[broadcastIndex(i, dims, b.spec.Shape())]
		}
		c.out(textValue(out, dims))
	})
	register("StringSplit", since(20), func(c *call) {
		x := c.textIn(0)
		sep, most := c.attrString("delimiter", ""), c.attrInt("maxsplit", -1)
		var rows [][]string
		counts := c.alloc(tensor.I64, x.spec.Shape()...)
		widest := 0
		for i, s := range x.text {
			parts := splitText(s, sep, most)
			rows = append(rows, parts)
			tensor.Data[int64](counts)[i] = int64(len(parts))
			widest = max(widest, len(parts))
		}
		c.room(len(rows)*widest, 16)
		var flat []string
		for _, r := range rows {
			flat = append(append(flat, r...), make([]string, widest-len(r))...)
		}
		c.out(textValue(flat, append(x.spec.Shape(), widest)), knownValue(counts))
	})
	register("RegexFullMatch", since(20), func(c *call) {
		re, err := regexp.Compile(`\A(?:` + c.attrString("pattern", "") + `)\z`)
		c.check(err)
		c.out(c.mapText(tensor.Bool, func(s []string) float64 {
			if re.MatchString(s[0]) {
				return 1
			}
			return 0
		}, c.textIn(0)))
	})
	register("TfIdfVectorizer", since(9), tfidf)
}

func (c *call) textIn(i int) *value {
	v := c.any(i)
	if v.kind != text {
		c.fail("input %d is a %v, a tensor of strings is right", i, v.kind)
	}
	return v
}

func splitText(s, sep string, most int) []string {
	if sep != "" {
		if s == "" {
			return nil
		}
		if most >= 0 {
			return strings.SplitN(s, sep, most+1)
		}
		return strings.Split(s, sep)
	}
	fields := strings.Fields(s)
	if most < 0 || len(fields) <= most+1 {
		return fields
	}
	rest := strings.TrimSpace(s)
	out := []string{}
	for range most {
		i := strings.IndexFunc(rest, func(r rune) bool { return strings.ContainsRune(" \t\n\v\f\r", r) })
		out = append(out, rest[:i])
		rest = strings.TrimLeft(rest[i:], " \t\n\v\f\r")
	}
	return append(out, rest)
}

// tfidf counts n-grams of a pool, with gaps of up to max_skip_count.
func tfidf(c *call) {
	x := c.any(0)
	minLen, maxLen, skips := c.attrInt("min_gram_length", 1), c.attrInt("max_gram_length", 1), c.attrInt("max_skip_count", 0)
	starts, _ := c.attrInts("ngram_counts")
	slots, _ := c.attrInts("ngram_indexes")
	weights, weighted := c.attrFloats("weights")
	mode := c.attrString("mode", "TF")
	if minLen < 1 || maxLen < minLen || skips < 0 || skips > 1<<16 || len(starts) == 0 || maxLen > len(starts) {
		c.fail("grams of %d to %d with %d skips, %d counts", minLen, maxLen, skips, len(starts))
	}
	// Words are compared as strings, whatever their type.
	var pool, words []string
	if ints, ok := c.attr("pool_int64s", AttrInts), c.attr("pool_int64s", AttrInts) != nil; ok {
		pool = formatNumbers(tensor.Of(ints.Ints, len(ints.Ints)))
		words = formatNumbers(c.data(c.in(0)))
	} else {
		pool, _ = c.attrStrings("pool_strings")
		words = c.textIn(0).text
	}
	type gram struct {
		words []string
		slot  int
	}
	var grams []gram
	width, at := 0, 0
	for i, start := range starts {
		end := len(pool)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		n := i + 1
		if start < 0 || end < start || end > len(pool) || (end-start)%n != 0 {
			c.fail("pool of %d words, counts %v", len(pool), starts)
		}
		for p := start; p < end; p += n {
			if at >= len(slots) || slots[at] < 0 || slots[at] > 1<<24 {
				c.fail("%d indexes for the pool, or one is out of range", len(slots))
			}
			grams = append(grams, gram{pool[p : p+n], slots[at]})
			width = max(width, slots[at]+1)
			at++
		}
	}
	rows, cols := 1, x.spec.Elems()
	var dims []int
	if x.spec.Rank == 2 {
		rows, cols = x.spec.Dims[0], x.spec.Dims[1]
		dims = []int{rows}
	}
	out := c.alloc(tensor.F32, append(dims, width)...)
	res := tensor.Data[float32](out)
	for r := range rows {
		row := words[r*cols : (r+1)*cols]
		for g, gr := range grams {
			n := len(gr.words)
			if n < minLen || n > maxLen {
				continue
			}
			count := 0
			for skip := range skips + 1 {
				if n == 1 && skip > 0 {
					break // a single word has no gaps
				}
				for i := 0; i+(n-1)*(skip+1) < len(row); i++ {
					match := true
					for k := range n {
						match = match && row[i+k*(skip+1)] == gr.words[k]
					}
					if match {
						count++
					}
				}
			}
			v := float32(count)
			if mode != "TF" {
				v = float32(math.Min(float64(count), 1))
				if mode == "TFIDF" {
					v = float32(count)
				}
				if weighted && g < len(weights) {
					v *= weights[g]
				}
			}
			if width > 0 {
				res[r*width+gr.slot] = v
			}
		}
	}
	c.out(knownValue(out))
}
