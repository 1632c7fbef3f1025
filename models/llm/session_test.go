package llm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/sample"
	"github.com/tessera-go/tessera/models/tokenizer"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

func embedded(t testing.TB, o llm.Options) *llm.Model {
	m, err := llm.Parse(tolstoy.GGUF(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func logitsOf(t testing.TB, s *llm.Session, ids ...int32) []float32 {
	require.NoError(t, s.Eval(context.Background(), ids...))
	return slices.Clone(s.Logits())
}

// However a text is cut into evaluations, whatever was read and forgotten before, the logits are the same to rounding.
func TestCutsAndRewinds(t *testing.T) {
	m := random(t, llmtest.Small("llama", false), llm.Options{Chunk: 7})
	ids := prompt()
	s, err := m.NewSession()
	require.NoError(t, err)
	want := logitsOf(t, s, ids...)
	same := func(got []float32) {
		t.Helper()
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-4)
		}
	}
	require.NoError(t, s.Rewind(0))
	logitsOf(t, s, 5, 6, 7)
	require.NoError(t, s.Rewind(0))
	for from := 0; from < len(ids); from += 3 {
		logitsOf(t, s, ids[from:min(from+3, len(ids))]...)
	}
	same(s.Logits())
	require.Equal(t, ids, s.Tokens())

	require.NoError(t, s.Rewind(8))
	logitsOf(t, s, 200, 201, 202)
	require.NoError(t, s.Rewind(8))
	same(logitsOf(t, s, ids[8:]...))
	require.Error(t, s.Rewind(21))

	other, err := m.NewSession()
	require.NoError(t, err)
	same(logitsOf(t, other, ids...))
	require.NoError(t, other.Close())
	require.ErrorIs(t, other.Eval(context.Background(), 3), llm.ErrClosed)
	var rows int
	require.NoError(t, s.Rewind(0))
	require.NoError(t, s.EvalAll(context.Background(), ids, func(i int, logits []float32) error {
		require.Equal(t, rows, i)
		rows++
		return nil
	}))
	require.Equal(t, len(ids), rows)
	same(s.Logits())
	boom := errors.New("boom")
	require.NoError(t, s.Rewind(0))
	require.ErrorIs(t, s.EvalAll(context.Background(), ids, func(i int, _ []float32) error { return boom }), boom)
}

func TestCacheTypes(t *testing.T) {
	ids := prompt()
	var want []float32
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		m := random(t, llmtest.Small("qwen3", false), llm.Options{CacheType: d})
		require.EqualValues(t, 3*2*96*(24+24)*d.Size(), m.CacheBytes())
		s, err := m.NewSession()
		require.NoError(t, err)
		got := logitsOf(t, s, ids...)
		if d == tensor.F32 {
			want = got
			continue
		}
		require.NotEqual(t, want, got)
		for i := range want {
			require.InDelta(t, want[i], got[i], map[tensor.DType]float64{tensor.F16: 0.02, tensor.BF16: 0.15}[d])
		}
	}
	for _, d := range []tensor.DType{tensor.Q8_0, tensor.I8, tensor.Q4_0} {
		var file bytes.Buffer
		require.NoError(t, llmtest.Write(&file, llmtest.Small("qwen3", false)))
		_, err := llm.Parse(file.Bytes(), llm.Options{CacheType: d})
		require.ErrorContains(t, err, map[tensor.DType]string{tensor.Q8_0: "a multiple of 32; they have 24"}[d])
	}
}

// With keys and values in Q8_0 everything works that works with them in float32, and the text is predicted as well.
func TestBlockCache(t *testing.T) {
	ctx := context.Background()
	full, m := embedded(t, llm.Options{}), embedded(t, llm.Options{CacheType: tensor.Q8_0})
	require.EqualValues(t, 4*4*256*(32+32)*34/32, m.CacheBytes())
	ids := m.Tokenizer.Encode(strings.Repeat("The prince said that the Emperor was not in the army, and Natasha looked at Pierre. ", 9), tokenizer.Options{})
	want, err := full.Perplexity(ctx, ids, 0, nil)
	require.NoError(t, err)
	got, err := m.Perplexity(ctx, ids, 0, nil)
	require.NoError(t, err)
	require.NotEqual(t, want.NLL, got.NLL)
	require.InEpsilon(t, want.Value(), got.Value(), 2e-3)

	s, err := m.NewSession()
	require.NoError(t, err)
	logits := logitsOf(t, s, ids[:50]...)
	var saved bytes.Buffer
	require.NoError(t, s.Save(&saved))
	require.Less(t, saved.Len(), 50*4*4*64*34/32+300, "the file holds blocks")
	loaded, err := m.NewSession()
	require.NoError(t, err)
	require.NoError(t, loaded.Load(ctx, bytes.NewReader(saved.Bytes())))
	require.InDeltaSlice(t, logits, loaded.Logits(), 0.05) // its last token is evaluated alone: keys are rounded from other last bits
	other, err := full.NewSession()
	require.NoError(t, err)
	require.ErrorContains(t, other.Load(ctx, bytes.NewReader(saved.Bytes())), "cache type")

	fork, err := s.Fork()
	require.NoError(t, err)
	require.Equal(t, logitsOf(t, s, ids[50:60]...), logitsOf(t, fork, ids[50:60]...))

	// A batch, whose sequences move in the cache when one is taken out.
	b, err := m.NewBatch(3)
	require.NoError(t, err)
	defer b.Close()
	var q [3]*llm.Sequence
	for i := range q {
		q[i], err = b.Add(ctx, ids[10*i:10*i+30])
		require.NoError(t, err)
	}
	q[0].Remove()
	for i, x := range ids[60:65] {
		require.NoError(t, q[1].Push(x))
		require.NoError(t, q[2].Push(ids[70+i]))
		require.NoError(t, b.Step(ctx))
	}
	require.NoError(t, s.Rewind(0))
	require.InDeltaSlice(t, logitsOf(t, s, slices.Concat(ids[20:50], ids[70:75])...), q[2].Logits(), 0.3)

	_, text := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 300, Overflow: llm.Shift}))
	require.Greater(t, len(text), 500)
}

// Goroutines on one model get what they get alone.
func TestGoroutines(t *testing.T) {
	m := embedded(t, llm.Options{})
	prompts := []string{"The prince said", "It was", "Pierre", "The army", "Natasha"}
	want := make([][]int32, len(prompts))
	for i, p := range prompts {
		want[i], _ = collect(t, m.Generate(context.Background(), p, llm.GenerateOptions{MaxTokens: 12}))
	}
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for round := range 2 {
		for i, p := range prompts {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var ids []int32
				for token, err := range m.Generate(context.Background(), p, llm.GenerateOptions{MaxTokens: 12}) {
					if err != nil {
						errs <- err
						return
					}
					ids = append(ids, token.ID)
				}
				if !slices.Equal(ids, want[i]) {
					errs <- fmt.Errorf("round %d, %q: %v, alone %v", round, p, ids, want[i])
				}
			}()
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

func TestConversation(t *testing.T) {
	m := embedded(t, llm.Options{})
	ctx := context.Background()
	whole, text := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 20}))

	// Generation that goes on where it stopped gives the same text.
	s, err := m.NewSession()
	require.NoError(t, err)
	first, a := collect(t, s.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 9}))
	require.Equal(t, 3+9, s.Len())
	rest, b := collect(t, s.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 11}))
	require.Equal(t, whole, append(first, rest...))
	require.Equal(t, text, a+b)
	require.Equal(t, 3+20, s.Len())

	// So does one whose caller has left.
	require.NoError(t, s.Rewind(0))
	var got []int32
	var stats llm.Stats
	for token, err := range s.Generate(ctx, "The prince said", llm.GenerateOptions{Stats: &stats}) {
		require.NoError(t, err)
		if got = append(got, token.ID); len(got) == 5 {
			break
		}
	}
	require.Equal(t, llm.ReasonCaller, stats.Reason)
	rest, _ = collect(t, s.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 15}))
	require.Equal(t, whole, append(got, rest...))

	// And one that was interrupted.
	require.NoError(t, s.Rewind(0))
	got = nil
	cancelled, cancel := context.WithCancel(ctx)
	for token, err := range s.Generate(cancelled, "The prince said", llm.GenerateOptions{MaxTokens: 20, Stats: &stats}) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		if got = append(got, token.ID); len(got) == 7 {
			cancel()
		}
	}
	cancel()
	require.Len(t, got, 7)
	require.Equal(t, llm.ReasonInterrupted, stats.Reason)
	rest, _ = collect(t, s.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 13}))
	require.Equal(t, whole, append(got, rest...))
}

func TestStopTexts(t *testing.T) {
	m := embedded(t, llm.Options{})
	ctx := context.Background()
	_, text := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 30}))
	for _, stop := range []string{" not", "Emperor", "cc", "army, and the", text[7:9]} {
		at := strings.Index(text, stop)
		require.GreaterOrEqual(t, at, 0)
		var stats llm.Stats
		_, got := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 30, Stop: []string{"never", stop, ""}, Stats: &stats}))
		require.Equal(t, text[:at], got, stop)
		require.Equal(t, llm.ReasonStop, stats.Reason)
	}
	// Of two that one token completes the first in the text counts.
	first, second := strings.Index(text, " n"), strings.Index(text, "ot")
	require.Equal(t, first+2, second)
	for _, stops := range [][]string{{" n", "ot"}, {"ot", " n"}} {
		_, got := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 30, Stop: stops}))
		require.Equal(t, text[:first], got)
	}
	// Text that only looks like the beginning of a stop text comes in the end.
	_, got := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 30, Stop: []string{text[len(text)-4:] + "\x00"}}))
	require.Equal(t, text, got)
}

// Text that is held back as the possible beginning of a stop text comes with the error that ends generation.
func TestHeldTextOfAnInterruptedAnswer(t *testing.T) {
	m := embedded(t, llm.Options{})
	_, text := collect(t, m.Generate(context.Background(), "The prince said", llm.GenerateOptions{MaxTokens: 7}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var got strings.Builder
	n, failed := 0, false
	for token, err := range m.Generate(ctx, "The prince said", llm.GenerateOptions{Stop: []string{text[len(text)-3:] + "\x00"}}) {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, text[:len(text)-3], got.String())
			failed = true
		}
		got.WriteString(token.Text)
		if n++; n == 7 {
			cancel()
		}
	}
	require.True(t, failed)
	require.Equal(t, text, got.String())
}

// A text that goes on in the middle of a rune loses nothing of it, and shows no part of it.
func TestGoesOnInARune(t *testing.T) {
	m := embedded(t, llm.Options{})
	s, err := m.NewSession()
	require.NoError(t, err)
	byteToken := func(spelled string) int32 {
		id, ok := m.Tokenizer.ID(spelled)
		require.True(t, ok)
		return id
	}
	word := append(m.Tokenizer.Encode("caf", tokenizer.Options{}), byteToken("\u00c3")) // c3: the first of the two bytes of an e with acute
	require.NoError(t, s.Eval(context.Background(), word...))
	forced := llm.GenerateOptions{MaxTokens: 1, Sampling: sample.Options{Bias: map[int32]float64{byteToken("\u00a9"): 1e6}}}
	_, text := collect(t, s.GenerateIDs(context.Background(), nil, forced))
	require.Equal(t, "\u00e9", text)

	// Three of four bytes one by one, each in a generation of its own.
	require.NoError(t, s.Rewind(len(word)-1))
	var parts []string
	for _, spelled := range []string{"\u00f0", "\u0141", "\u013a", "\u0122"} { // f0 9f 98 80
		forced.Sampling.Bias = map[int32]float64{byteToken(spelled): 1e6}
		_, part := collect(t, s.GenerateIDs(context.Background(), nil, forced))
		parts = append(parts, part)
	}
	require.Equal(t, []string{"", "", "", "\U0001F600"}, parts)
}

func TestContextEnds(t *testing.T) {
	m := embedded(t, llm.Options{Context: 24, Chunk: 8})
	ctx := context.Background()
	var stats llm.Stats
	ids, _ := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{Stats: &stats}))
	require.Equal(t, llm.ReasonContext, stats.Reason)
	require.Len(t, ids, 24-3+1, "the last token needs no place")

	ids, _ = collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{Overflow: llm.Shift, MaxTokens: 70, Stats: &stats, Keep: 3}))
	require.Len(t, ids, 70)
	require.Equal(t, llm.ReasonLength, stats.Reason)

	// What a shift leaves are the first tokens to be kept and the newest ones, and generation goes on as from a text of just these.
	s, err := m.NewSession()
	require.NoError(t, err)
	prompt := m.PromptIDs("The prince said", llm.GenerateOptions{})
	ids, _ = collect(t, s.Generate(ctx, "The prince said", llm.GenerateOptions{Overflow: llm.Shift, MaxTokens: 22, Keep: 3}))
	left := s.Tokens()
	require.Len(t, left, 3+(24-3)/2+1)
	require.Equal(t, prompt, left[:3])
	require.Equal(t, ids[len(ids)-len(left)+3:], left[3:])
	next, _ := collect(t, s.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 1}))
	fresh, err := m.NewSession()
	require.NoError(t, err)
	want, _ := collect(t, fresh.GenerateIDs(ctx, left, llm.GenerateOptions{MaxTokens: 1}))
	require.Equal(t, want, next)

	long := strings.Repeat("The prince said ", 20)
	var full *llm.ContextError
	for _, err := range m.Generate(ctx, long, llm.GenerateOptions{}) {
		require.ErrorAs(t, err, &full)
		require.ErrorContains(t, err, "do not fit the context of 24")
	}
	require.NotNil(t, full)
	_, err = m.Perplexity(ctx, make([]int32, 100), 25, nil)
	require.ErrorContains(t, err, "windows of 25 tokens, 2 to the context of 24")
	_, err = m.Perplexity(ctx, make([]int32, 1), 0, nil)
	require.ErrorContains(t, err, "nothing to score")
}

func TestLogProbs(t *testing.T) {
	m := embedded(t, llm.Options{})
	var logits []float32
	s, err := m.NewSession()
	require.NoError(t, err)
	for token, err := range m.Generate(context.Background(), "It was", llm.GenerateOptions{MaxTokens: 5, Top: 3}) {
		require.NoError(t, err)
		if s.Len() == 0 {
			logits = logitsOf(t, s, m.PromptIDs("It was", llm.GenerateOptions{})...)
		}
		top := sample.Top(logits, 3)
		require.Equal(t, top[0].ID, token.ID)
		require.InDelta(t, math.Log(top[0].Prob), token.LogProb, 1e-3)
		require.Len(t, token.Top, 3)
		require.InDelta(t, top[2].Prob, token.Top[2].Prob, 1e-4)
		logits = logitsOf(t, s, token.ID)
	}
}

// A seed gives a text; greedy decoding under penalties does not repeat itself.
func TestSampling(t *testing.T) {
	m := embedded(t, llm.Options{})
	run := func(o sample.Options) string {
		_, text := collect(t, m.Generate(context.Background(), "The prince said", llm.GenerateOptions{MaxTokens: 24, Sampling: o}))
		return text
	}
	a := run(sample.Options{Temperature: 1, Seed: 3})
	require.Equal(t, a, run(sample.Options{Temperature: 1, Seed: 3}))
	require.NotEqual(t, a, run(sample.Options{Temperature: 1, Seed: 4}))
	require.NotEqual(t, run(sample.Options{}), run(sample.Options{Repetition: 1.5}))
	for _, err := range m.Generate(context.Background(), "x", llm.GenerateOptions{Sampling: sample.Options{TopP: 7}}) {
		require.ErrorContains(t, err, "top-p 7")
	}
}

func TestCloseWhileOpen(t *testing.T) {
	m, err := llm.Parse(tolstoy.GGUF(), llm.Options{})
	require.NoError(t, err)
	s, err := m.NewSession()
	require.NoError(t, err)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	require.ErrorIs(t, s.Eval(context.Background(), 1), llm.ErrClosed)
	require.NoError(t, s.Close())
	_, err = m.NewSession()
	require.ErrorIs(t, err, llm.ErrClosed)
	for _, err := range m.Generate(context.Background(), "x", llm.GenerateOptions{}) {
		require.ErrorIs(t, err, llm.ErrClosed)
	}
}

// edit writes a model again with changes.
func edit(t *testing.T, data []byte, set map[string]any, tensors func(name string, x tensor.Tensor) (string, tensor.Tensor)) []byte {
	f, err := gguf.Parse(data)
	require.NoError(t, err)
	var w gguf.Writer
	for _, kv := range f.Metadata {
		w.Set(kv.Key, kv.Value)
	}
	for k, v := range set {
		w.Set(k, v)
	}
	for _, info := range f.Tensors {
		x, err := f.Tensor(info.Name)
		require.NoError(t, err)
		name := info.Name
		if tensors != nil {
			name, x = tensors(name, x)
		}
		if name != "" {
			w.AddTensor(name, x)
		}
	}
	var out bytes.Buffer
	_, err = w.WriteTo(&out)
	require.NoError(t, err)
	return out.Bytes()
}

func TestDamagedModels(t *testing.T) {
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, llmtest.Small("llama", false)))
	data := file.Bytes()
	without := func(drop string) func(string, tensor.Tensor) (string, tensor.Tensor) {
		return func(name string, x tensor.Tensor) (string, tensor.Tensor) {
			if name == drop {
				return "", x
			}
			return name, x
		}
	}
	reshaped := func(which string, dims ...int) func(string, tensor.Tensor) (string, tensor.Tensor) {
		return func(name string, x tensor.Tensor) (string, tensor.Tensor) {
			if name == which {
				return name, tensor.New(tensor.F32, dims...)
			}
			return name, x
		}
	}
	for _, c := range []struct {
		want    string
		set     map[string]any
		tensors func(string, tensor.Tensor) (string, tensor.Tensor)
	}{
		{`architecture "mamba" is unknown; known are bert`, map[string]any{"general.architecture": "mamba"}, nil},
		{`tensor "blk.1.ffn_down.weight": missing`, nil, without("blk.1.ffn_down.weight")},
		{`tensor "token_embd.weight": missing`, nil, without("token_embd.weight")},
		{`"blk.2.attn_q.weight" is f32[80 80], f32[144 80] is right`, nil, reshaped("blk.2.attn_q.weight", 80, 80)},
		{`"token_embd.weight" is f32[390 80], but the vocabulary has 389`, nil, reshaped("token_embd.weight", 390, 80)},
		{`"output.weight" is f32[388 80], f32[389 80] is right`, nil, reshaped("output.weight", 388, 80)},
		{"llama.block_count is 4000000000", map[string]any{"llama.block_count": uint32(4e9)}, nil},
		{"llama.block_count is 0", map[string]any{"llama.block_count": uint32(0)}, nil},
		{`tensor "blk.3.attn_norm.weight": missing`, map[string]any{"llama.block_count": uint32(4)}, nil},
		{"llama.embedding_length is 0", map[string]any{"llama.embedding_length": uint32(0)}, nil},
		{"llama.context_length is 0", map[string]any{"llama.context_length": uint32(0)}, nil},
		{"llama.context_length is 4294967295", map[string]any{"llama.context_length": uint32(math.MaxUint32)}, nil},
		{"6 query heads and 4 key heads", map[string]any{"llama.attention.head_count_kv": uint32(4)}, nil},
		{"6 query heads and 0 key heads", map[string]any{"llama.attention.head_count_kv": uint32(0)}, nil},
		{"has 2 numbers, the model has 3 layers", map[string]any{"llama.attention.head_count_kv": []uint32{2, 2}}, nil},
		{"rope.dimension_count is 7", map[string]any{"llama.rope.dimension_count": uint32(7)}, nil},
		{"rope.dimension_count is 48", map[string]any{"llama.rope.dimension_count": uint32(48)}, nil},
		{`rope.scaling.type "magic"`, map[string]any{"llama.rope.scaling.type": "magic"}, nil},
		{"a mixture of 8 experts", map[string]any{"llama.expert_count": uint32(8)}, nil},
		{`key "llama.attention.head_count": an array of integers is right`, map[string]any{"llama.attention.head_count": "six"}, nil},
		{`key "llama.context_length": an integer is right`, map[string]any{"llama.context_length": "long"}, nil},
		{"the BOS token is 389", map[string]any{"tokenizer.ggml.bos_token_id": uint32(389)}, nil},
	} {
		_, err := llm.Parse(edit(t, data, c.set, c.tensors), llm.Options{})
		require.ErrorContains(t, err, c.want)
	}
	_, err := llm.Open(t.TempDir()+"/absent.gguf", llm.Options{})
	require.ErrorContains(t, err, "absent.gguf")
	_, err = llm.Parse(data, llm.Options{Context: -1})
	require.ErrorContains(t, err, "context of -1")

	m := random(t, llmtest.Small("llama", false), llm.Options{})
	s, err := m.NewSession()
	require.NoError(t, err)
	require.ErrorContains(t, s.Eval(context.Background(), 5, 389), "token 1 is 389, the vocabulary has 389")
	require.ErrorContains(t, s.Eval(context.Background(), -1), "token 0 is -1")
	require.Equal(t, 0, s.Len())
	bert := random(t, llmtest.Small("bert", true), llm.Options{})
	_, err = bert.NewSession()
	require.ErrorContains(t, err, "bert models encode")
}

// Every quantized type runs, and comes near the original.
func TestQuantizedTypes(t *testing.T) {
	s := llmtest.Shape{Arch: "llama", Vocab: 300, Context: 64, Dim: 256, FFN: 256, Layers: 1, Heads: 4, KVHeads: 2, Seed: 5}
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, s))
	f, err := gguf.Parse(file.Bytes())
	require.NoError(t, err)
	ids := []int32{5, 80, 200, 7, 299, 150}
	run := func(data []byte) []float32 {
		m, err := llm.Parse(data, llm.Options{})
		require.NoError(t, err)
		defer m.Close()
		s, err := m.NewSession()
		require.NoError(t, err)
		return logitsOf(t, s, ids...)
	}
	want := run(file.Bytes())
	for _, name := range []string{"f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4", "q2_k", "q3_k_m", "q4_k_m", "q5_k_m", "q6_k"} {
		var q bytes.Buffer
		_, err := gguf.Quantize(context.Background(), &q, f, gguf.QuantizeOptions{Type: name})
		require.NoError(t, err)
		got := run(q.Bytes())
		// The quantized weights, widened to f32, are the reference: what remains is rounding of activations.
		wide := edit(t, q.Bytes(), nil, func(n string, x tensor.Tensor) (string, tensor.Tensor) {
			y, err := quant.Decode(x)
			require.NoError(t, err)
			return n, y
		})
		exact := run(wide)
		require.Less(t, distance(got, exact), 0.03, "%s against its own weights", name)
		require.Less(t, distance(exact, want), 0.9, "%s against the original", name)
	}
}

// distance is the root of the squared distance over that of the length.
func distance(a, b []float32) float64 {
	var num, den float64
	for i := range a {
		num += math.Pow(float64(a[i]-b[i]), 2)
		den += math.Pow(float64(b[i]), 2)
	}
	return math.Sqrt(num / den)
}
