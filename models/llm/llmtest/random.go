// Package llmtest makes models of random weights. They say nothing sensible, but they compute what models of their architecture
// compute, so another engine's figures for them are an oracle; and their speed is that of a trained model of the same shape.
package llmtest

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// Shape is a model's size.
type Shape struct {
	Arch    string // as in general.architecture
	Vocab   int
	Context int
	Dim     int
	FFN     int
	Layers  int
	Heads   int
	KVHeads int
	HeadDim int     // 0: Dim / Heads
	RopeDim int     // 0: HeadDim
	Tied    bool    // the head is the embedding
	Window  int     // of local layers, where the architecture has them
	Pattern int     // every so many layers one is global; 0: as the architecture has it
	Rope    Stretch // of rotary positions
	Pooling uint32  // of encoders, as in GGUF files; 0: mean
	Softcap float32 // of attention's scores, where the architecture has it; 0: 20, which these small models hardly reach
	Type    tensor.DType
	Seed    uint64
}

// Stretch is a way to make a model's context longer than the one that it was trained for.
type Stretch uint8

// The stretches.
const (
	NoStretch Stretch = iota
	Linear            // positions times 1/4
	YaRN              // positions times 1/4 in slow dimensions
	Factors           // a divisor for each frequency (Llama 3)
	LongRope          // two sets of them, for short and long contexts (Phi-3), of which the long one counts
	ShortRope         // the same, and the short one counts
)

// Cases returns the models of the tests by name.
func Cases() map[string]Shape {
	all := map[string]Shape{}
	for _, arch := range []string{"llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "gpt2", "bert"} {
		if s := Small(arch, false); !s.Tied {
			all[arch] = s
		}
		if arch != "bert" {
			all[arch+"-tied"] = Small(arch, true)
		} else {
			all[arch] = Small(arch, true)
		}
	}
	for name, change := range map[string]func(s *Shape){
		"llama-linear":   func(s *Shape) { s.Rope = Linear },
		"llama-yarn":     func(s *Shape) { s.Rope = YaRN },
		"llama-factors":  func(s *Shape) { s.Rope = Factors },
		"qwen2-yarn":     func(s *Shape) { s.Rope = YaRN },
		"gemma2-softcap": func(s *Shape) { s.Softcap = 0.5 },
		"gemma3-linear":  func(s *Shape) { s.Rope = Linear }, // of its global layers only
		"gemma3-pattern": func(s *Shape) { s.Pattern = 3 },
		"phi3-partial":   func(s *Shape) { s.RopeDim = 12 }, // of 16
		"phi3-longrope":  func(s *Shape) { s.Rope = LongRope },
		"phi3-shortrope": func(s *Shape) { s.Rope = ShortRope },
		"bert-cls":       func(s *Shape) { s.Pooling = 2 },
		"bert-last":      func(s *Shape) { s.Pooling = 3 },
	} {
		arch, _, _ := strings.Cut(name, "-")
		s := Small(arch, false)
		change(&s)
		all[name] = s
	}
	return all
}

// Small is a shape with every number unusual, for comparison with other engines.
func Small(arch string, tied bool) Shape {
	if arch == "gemma" || arch == "gemma2" || arch == "bert" {
		tied = true // they have no other head
	}
	s := Shape{Arch: arch, Vocab: 389, Context: 96, Dim: 80, FFN: 152, Layers: 3, Heads: 6, KVHeads: 2, HeadDim: 24, Tied: tied, Seed: 7}
	switch arch {
	case "gpt2", "bert":
		s.KVHeads, s.Heads, s.HeadDim = 5, 5, 16
	case "qwen2": // its heads share the model's width
		s.KVHeads, s.Heads, s.HeadDim = 2, 10, 8
	case "gemma3":
		s.Layers, s.Window = 7, 9
	case "gemma2":
		s.Layers, s.Window = 4, 9
	case "phi3":
		s.Dim, s.HeadDim, s.Heads, s.KVHeads = 96, 16, 6, 3
	}
	return s
}

// writer adds tensors of random numbers.
type writer struct {
	gguf.Writer
	s   Shape
	rng *rand.Rand
}

// Write writes a model of the shape as a GGUF file.
func Write(out io.Writer, s Shape) error {
	if s.HeadDim == 0 {
		s.HeadDim = s.Dim / s.Heads
	}
	if s.RopeDim == 0 {
		s.RopeDim = s.HeadDim
	}
	if s.Softcap == 0 {
		s.Softcap = 20
	}
	if s.Type == tensor.Invalid {
		s.Type = tensor.F32
	}
	w := &writer{s: s, rng: rand.New(rand.NewPCG(s.Seed, 1))}
	w.metadata()
	if s.Arch == "bert" {
		w.encoder()
	} else {
		w.decoder()
	}
	_, err := w.WriteTo(out)
	return err
}

func (w *writer) metadata() {
	s, a := w.s, w.s.Arch+"."
	w.Set("general.architecture", s.Arch)
	w.Set("general.name", "random weights")
	w.Set("general.file_type", uint32(0))
	w.Set(a+"context_length", uint32(s.Context))
	w.Set(a+"embedding_length", uint32(s.Dim))
	w.Set(a+"block_count", uint32(s.Layers))
	w.Set(a+"feed_forward_length", uint32(s.FFN))
	w.Set(a+"attention.head_count", uint32(s.Heads))
	switch s.Arch {
	case "gpt2", "bert":
		w.Set(a+"attention.layer_norm_epsilon", float32(2e-5))
	default:
		w.Set(a+"attention.head_count_kv", uint32(s.KVHeads))
		w.Set(a+"attention.layer_norm_rms_epsilon", float32(2e-5))
		w.Set(a+"attention.key_length", uint32(s.HeadDim))
		w.Set(a+"attention.value_length", uint32(s.HeadDim))
		w.Set(a+"rope.dimension_count", uint32(s.RopeDim))
		w.Set(a+"rope.freq_base", float32(20000))
		w.Set(a+"vocab_size", uint32(s.Vocab))
	}
	switch s.Rope {
	case Linear:
		w.Set(a+"rope.scaling.type", "linear")
		w.Set(a+"rope.scaling.factor", float32(4))
	case YaRN:
		w.Set(a+"rope.scaling.type", "yarn")
		w.Set(a+"rope.scaling.factor", float32(4))
		w.Set(a+"rope.scaling.original_context_length", uint32(s.Context/4))
	case LongRope:
		w.Set(a+"rope.scaling.attn_factor", float32(1.19))
		w.Set(a+"rope.scaling.original_context_length", uint32(s.Context/2))
	case ShortRope:
		w.Set(a+"rope.scaling.attn_factor", float32(1.19))
		w.Set(a+"rope.scaling.original_context_length", uint32(4*s.Context)) // llama.cpp compares its own context, of 256 and more
	}
	if s.Window > 0 {
		w.Set(a+"attention.sliding_window", uint32(s.Window))
	}
	if s.Pattern > 0 {
		w.Set(a+"attention.sliding_window_pattern", uint32(s.Pattern))
	}
	if s.Arch == "gemma2" {
		w.Set(a+"attn_logit_softcapping", s.Softcap)
		w.Set(a+"final_logit_softcapping", float32(15))
	}
	if s.Arch == "phi3" && s.Rope == NoStretch {
		w.Set(a+"rope.scaling.original_context_length", uint32(s.Context))
	}
	if s.Arch == "bert" {
		w.Set(a+"pooling_type", max(s.Pooling, 1))
		w.Set(a+"attention.causal", false)
	}
	w.vocabulary()
}

// vocabulary is a SentencePiece one (WordPiece for bert) whose tokens have no meaning beyond the bytes.
func (w *writer) vocabulary() {
	const p = "tokenizer.ggml."
	n := w.s.Vocab
	tokens, kinds, scores := make([]string, 0, n), make([]int32, 0, n), make([]float32, 0, n)
	add := func(s string, kind int32) {
		if len(tokens) < n {
			tokens, kinds, scores = append(tokens, s), append(kinds, kind), append(scores, -float32(len(tokens)))
		}
	}
	if w.s.Arch == "bert" {
		for _, s := range []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
			add(s, 3)
		}
		for b := byte('!'); b < 127; b++ {
			add("\u2581"+string(rune(b)), 1)
			add(string(rune(b)), 1)
		}
		for i := 0; len(tokens) < n; i++ {
			add(fmt.Sprintf("\u2581word%d", i), 1)
		}
		w.Set(p+"model", "bert")
		w.Set(p+"pre", "default")
		w.Set(p+"padding_token_id", uint32(0))
		w.Set(p+"unknown_token_id", uint32(1))
		w.Set(p+"cls_token_id", uint32(2))
		w.Set(p+"bos_token_id", uint32(2))
		w.Set(p+"seperator_token_id", uint32(3))
		w.Set(p+"eos_token_id", uint32(3))
		w.Set(p+"mask_token_id", uint32(4))
		w.Set(p+"token_type_count", uint32(2))
	} else {
		add("<unk>", 2)
		add("<s>", 3)
		add("</s>", 3)
		for b := range 256 {
			add(fmt.Sprintf("<0x%02X>", b), 6)
		}
		add("\u2581", 1)
		for i := 0; len(tokens) < n; i++ {
			add(fmt.Sprintf("\u2581w%d", i), 1)
		}
		w.Set(p+"model", "llama")
		w.Set(p+"pre", "default")
		w.Set(p+"bos_token_id", uint32(1))
		w.Set(p+"eos_token_id", uint32(2))
		w.Set(p+"unknown_token_id", uint32(0))
		w.Set(p+"scores", scores)
	}
	w.Set(p+"tokens", tokens)
	w.Set(p+"token_type", kinds)
}

// matrix adds a weight of n rows whose products keep the size of their input. Each tensor has a generator of its own, so that tensors
// can be written one after the other without being kept.
func (w *writer) matrix(name string, n, k int) {
	w.random(name, w.s.Type, 0, 1/math.Sqrt(float64(k)), n, k)
}

func (w *writer) vector(name string, mean, spread float64, n int) {
	w.random(name, tensor.F32, mean, spread, n)
}

func (w *writer) random(name string, d tensor.DType, mean, spread float64, dims ...int) {
	inner := dims[len(dims)-1]
	if inner%d.Block() != 0 {
		d = tensor.F32
	}
	t, err := gguf.TypeOf(d)
	if err != nil {
		t = 0
	}
	seed := w.rng.Uint64()
	rows := 1
	for _, n := range dims[:len(dims)-1] {
		rows *= n
	}
	w.Add(name, t, dims, func(out io.Writer) error {
		rng := rand.New(rand.NewPCG(seed, 2))
		x := make([]float32, inner)
		row := make([]byte, inner/d.Block()*d.Size())
		for range rows {
			for i := range x {
				// Roughly normal from one draw, of variance 1: a sum of four uniform numbers.
				u := rng.Uint64()
				sum := float64(u&0xffff) + float64(u>>16&0xffff) + float64(u>>32&0xffff) + float64(u>>48) - 131070
				x[i] = float32(mean + float64(spread*sum/37837)) // never fused
			}
			if d == tensor.F32 {
				for i, v := range x {
					binary.LittleEndian.PutUint32(row[4*i:], math.Float32bits(v))
				}
			} else if err := quant.EncodeRow(d, row, x); err != nil {
				return err
			}
			if _, err := out.Write(row); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *writer) decoder() {
	s := w.s
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	gemma := s.Arch == "gemma" || s.Arch == "gemma2" || s.Arch == "gemma3"
	layerNorm := s.Arch == "gpt2"
	norm := func(name string, n int) {
		w.vector(name+".weight", 1, 0.2, n)
		if layerNorm {
			w.vector(name+".bias", 0, 0.1, n)
		}
	}
	bias := func(name string, has bool, n int) {
		if has {
			w.vector(name+".bias", 0, 0.1, n)
		}
	}
	spread := 1.0
	if s.Tied { // else every token predicts itself
		spread = 2 / math.Sqrt(float64(s.Dim))
	}
	if gemma { // it multiplies by the root of the width
		spread = 1 / math.Sqrt(float64(s.Dim))
	}
	w.random("token_embd.weight", s.Type, 0, spread, s.Vocab, s.Dim)
	if s.Arch == "gpt2" {
		w.random("position_embd.weight", tensor.F32, 0, 0.5, s.Context, s.Dim)
	}
	switch s.Rope {
	case Factors:
		w.vector("rope_freqs.weight", 2, 0.4, s.RopeDim/2)
	case LongRope, ShortRope:
		w.vector("rope_factors_long.weight", 3, 0.6, s.RopeDim/2)
		w.vector("rope_factors_short.weight", 1, 0.1, s.RopeDim/2)
	}
	for i := range s.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		norm(p+"attn_norm", s.Dim)
		switch s.Arch {
		case "gpt2", "phi3":
			w.matrix(p+"attn_qkv.weight", q+2*kv, s.Dim)
			bias(p+"attn_qkv", s.Arch == "gpt2", q+2*kv)
		default:
			for _, t := range []struct {
				name string
				n    int
			}{{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}} {
				w.matrix(p+t.name+".weight", t.n, s.Dim)
				bias(p+t.name, s.Arch == "qwen2", t.n)
			}
		}
		if s.Arch == "qwen3" || s.Arch == "gemma3" {
			w.vector(p+"attn_q_norm.weight", 1, 0.2, s.HeadDim)
			w.vector(p+"attn_k_norm.weight", 1, 0.2, s.HeadDim)
		}
		w.matrix(p+"attn_output.weight", s.Dim, q)
		bias(p+"attn_output", s.Arch == "gpt2", s.Dim)
		if s.Arch == "gemma2" || s.Arch == "gemma3" {
			w.vector(p+"post_attention_norm.weight", 1, 0.2, s.Dim)
			w.vector(p+"post_ffw_norm.weight", 1, 0.2, s.Dim)
		}
		norm(p+"ffn_norm", s.Dim)
		switch s.Arch {
		case "gpt2":
		case "phi3":
			w.matrix(p+"ffn_up.weight", 2*s.FFN, s.Dim)
		default:
			w.matrix(p+"ffn_gate.weight", s.FFN, s.Dim)
		}
		if s.Arch != "phi3" {
			w.matrix(p+"ffn_up.weight", s.FFN, s.Dim)
			bias(p+"ffn_up", s.Arch == "gpt2", s.FFN)
		}
		w.matrix(p+"ffn_down.weight", s.Dim, s.FFN)
		bias(p+"ffn_down", s.Arch == "gpt2", s.Dim)
	}
	norm("output_norm", s.Dim)
	if !s.Tied {
		w.random("output.weight", s.Type, 0, 2/math.Sqrt(float64(s.Dim)), s.Vocab, s.Dim)
	}
}

func (w *writer) encoder() {
	s := w.s
	norm := func(name string) {
		w.vector(name+".weight", 1, 0.2, s.Dim)
		w.vector(name+".bias", 0, 0.1, s.Dim)
	}
	linear := func(name string, n, k int) {
		w.matrix(name+".weight", n, k)
		w.vector(name+".bias", 0, 0.1, n)
	}
	w.random("token_embd.weight", s.Type, 0, 1, s.Vocab, s.Dim)
	w.random("position_embd.weight", tensor.F32, 0, 0.5, s.Context, s.Dim)
	w.random("token_types.weight", tensor.F32, 0, 0.5, 2, s.Dim)
	norm("token_embd_norm")
	for i := range s.Layers {
		p := fmt.Sprintf("blk.%d.", i)
		for _, n := range []string{"attn_q", "attn_k", "attn_v", "attn_output"} {
			linear(p+n, s.Dim, s.Dim)
		}
		norm(p + "attn_output_norm")
		linear(p+"ffn_up", s.FFN, s.Dim)
		linear(p+"ffn_down", s.Dim, s.FFN)
		norm(p + "layer_output_norm")
	}
}
