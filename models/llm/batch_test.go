package llm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/models/sample"
)

func TestSaveLoadFork(t *testing.T) {
	m := embedded(t, llm.Options{})
	ctx := context.Background()
	whole, _ := collect(t, m.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 16}))
	s, err := m.NewSession()
	require.NoError(t, err)
	first, _ := collect(t, s.Generate(ctx, "The prince said", llm.GenerateOptions{MaxTokens: 6}))
	said, err := s.Fork() // with the last token said and not evaluated yet
	require.NoError(t, err)
	require.Equal(t, s.Tokens(), said.Tokens())
	more, _ := collect(t, said.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 10}))
	require.Equal(t, whole, slices.Concat(first, more))
	require.NoError(t, said.Close())
	require.NoError(t, s.Eval(ctx))
	var saved bytes.Buffer
	require.NoError(t, s.Save(&saved))

	f, err := s.Fork()
	require.NoError(t, err)
	rest, _ := collect(t, f.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 10}))
	require.Equal(t, whole, slices.Concat(first, rest))
	require.Equal(t, 3+6, s.Len(), "the original stays where it was")
	require.NoError(t, f.Close())

	other := embedded(t, llm.Options{}) // another process would be no different
	l, err := other.NewSession()
	require.NoError(t, err)
	require.NoError(t, l.Eval(ctx, 5, 6, 7))
	require.NoError(t, l.Load(ctx, bytes.NewReader(saved.Bytes())))
	require.Equal(t, s.Tokens(), l.Tokens())
	rest, _ = collect(t, l.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 10}))
	require.Equal(t, whole, slices.Concat(first, rest))

	// One that is interrupted has the tokens, and goes on.
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	require.NoError(t, l.Rewind(1))
	require.ErrorIs(t, l.Load(canceled, bytes.NewReader(saved.Bytes())), context.Canceled)
	require.Equal(t, s.Tokens(), l.Tokens())
	require.Nil(t, l.Logits())
	rest, _ = collect(t, l.GenerateIDs(ctx, nil, llm.GenerateOptions{MaxTokens: 10}))
	require.Equal(t, whole, slices.Concat(first, rest))

	// Damaged files are refused, and what the session has read stays.
	require.NoError(t, l.Rewind(0))
	want := logitsOf(t, l, 5, 6, 7)
	data := saved.Bytes()
	var ce *llm.SavedError
	for n := 0; n < len(data); n += 1 + n/40 {
		require.ErrorAs(t, l.Load(ctx, bytes.NewReader(data[:n])), &ce, "cut at byte %d", n)
	}
	for _, at := range []int{0, 4, 8, 12, 15, 16, 40, len(data) / 2, len(data) - 1} {
		bad := slices.Clone(data)
		bad[at] ^= 0x40
		require.ErrorAs(t, l.Load(ctx, bytes.NewReader(bad)), &ce, "byte %d", at)
	}
	require.Equal(t, []int32{5, 6, 7}, l.Tokens())
	require.NoError(t, l.Rewind(2))
	require.InDeltaSlice(t, want, logitsOf(t, l, 7), 1e-4)
	m2 := random(t, llmtest.Small("llama", false), llm.Options{})
	x, err := m2.NewSession()
	require.NoError(t, err)
	require.ErrorContains(t, x.Load(ctx, bytes.NewReader(data)), "another model")
	for _, weight := range []string{"blk.0.attn_q.weight", "blk.1.ffn_gate.weight", "blk.0.ffn_norm.weight"} {
		file := slices.Clone(tolstoy.GGUF())
		tensors, err := gguf.Parse(file)
		require.NoError(t, err)
		changed, err := tensors.Tensor(weight)
		require.NoError(t, err)
		changed.Raw()[2] ^= 1
		like, err := llm.Parse(file, llm.Options{})
		require.NoError(t, err)
		y, err := like.NewSession()
		require.NoError(t, err)
		require.ErrorContains(t, y.Load(ctx, bytes.NewReader(data)), "another model", weight)
		require.NoError(t, like.Close())
	}
	for key, value := range map[string]any{"llama.rope.freq_base": float32(5000), "llama.attention.layer_norm_rms_epsilon": float32(1e-3)} {
		like, err := llm.Parse(edit(t, tolstoy.GGUF(), map[string]any{key: value}, nil), llm.Options{})
		require.NoError(t, err)
		y, err := like.NewSession()
		require.NoError(t, err)
		require.ErrorContains(t, y.Load(ctx, bytes.NewReader(data)), "another model", key)
		require.NoError(t, like.Close())
	}
	require.ErrorContains(t, x.Load(ctx, failing{}), "disk on fire")
	require.ErrorContains(t, s.Save(failing{}), "disk on fire")
	var none bytes.Buffer
	require.NoError(t, s.Rewind(0))
	require.NoError(t, s.Save(&none))
	require.NoError(t, l.Load(ctx, &none))
	require.Zero(t, l.Len())
}

// What computes otherwise is another model, though its tensors are the same: a folder's factors of rotary positions stand in no tensor.
func TestSavedByOtherPositions(t *testing.T) {
	ctx := context.Background()
	var saved bytes.Buffer
	for i, high := range []int{4, 4, 3} {
		m, err := llm.Open(writeFolder(t, llmtest.Small("llama", false), map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 4,
			"low_freq_factor": 1, "high_freq_factor": high, "original_max_position_embeddings": 24}}), llm.Options{})
		require.NoError(t, err)
		s, err := m.NewSession()
		require.NoError(t, err)
		switch i {
		case 0:
			require.NoError(t, s.Eval(ctx, 5, 6, 7))
			require.NoError(t, s.Save(&saved))
		case 1:
			require.NoError(t, s.Load(ctx, bytes.NewReader(saved.Bytes())))
		default:
			require.ErrorContains(t, s.Load(ctx, bytes.NewReader(saved.Bytes())), "another model")
		}
		require.NoError(t, m.Close())
	}
}

// A file that says that it has very many tokens, and ends, costs no more memory than what is there.
func TestSavedWithoutItsTokens(t *testing.T) {
	const positions = 1 << 22
	m := random(t, tiny("llama"), llm.Options{Context: positions, Chunk: 1})
	s, err := m.NewSession()
	require.NoError(t, err)
	var saved bytes.Buffer
	require.NoError(t, s.Save(&saved))
	data := saved.Bytes()[:16]
	binary.LittleEndian.PutUint32(data[12:], positions)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = s.Load(context.Background(), bytes.NewReader(data))
	runtime.ReadMemStats(&after)
	require.EqualError(t, err, "saved session: it ends in its tokens")
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*positions))
}

type failing struct{}

func (failing) Read([]byte) (int, error)  { return 0, errors.New("disk on fire") }
func (failing) Write([]byte) (int, error) { return 0, errors.New("disk on fire") }

// Sequences that are decoded together get the logits that each gets alone, whoever joins and leaves.
func TestBatch(t *testing.T) {
	for _, arch := range []string{"llama", "gemma3", "gpt2"} {
		m := random(t, llmtest.Small(arch, false), llm.Options{Chunk: 5})
		ctx := context.Background()
		b, err := m.NewBatch(3)
		require.NoError(t, err)
		alone := func(ids []int32) []float32 {
			s, err := m.NewSession()
			require.NoError(t, err)
			defer s.Close()
			return logitsOf(t, s, ids...)
		}
		check := func(seqs ...*llm.Sequence) {
			t.Helper()
			for i, q := range seqs {
				require.InDeltaSlice(t, alone(q.Tokens()), q.Logits(), 2e-4, "%s, sequence %d", arch, i)
			}
		}
		ids := prompt()
		x, err := b.Add(ctx, ids[:12])
		require.NoError(t, err)
		y, err := b.Add(ctx, ids[5:8])
		require.NoError(t, err)
		check(x, y)
		require.NoError(t, x.Push(100))
		require.ErrorContains(t, x.Push(100), "waits for Step")
		require.NoError(t, y.Push(200))
		require.NoError(t, b.Step(ctx))
		check(x, y)
		z, err := b.Add(ctx, ids[2:9])
		require.NoError(t, err)
		_, err = b.Add(ctx, ids)
		require.ErrorContains(t, err, "has its 3 sequences")
		require.NoError(t, z.Push(7)) // x and y wait
		require.NoError(t, b.Step(ctx))
		check(x, y, z)
		x.Remove()
		require.ErrorIs(t, x.Push(3), llm.ErrClosed)
		require.Equal(t, 2, b.Len())
		require.NoError(t, z.Push(50))
		require.NoError(t, y.Push(51))
		require.NoError(t, b.Step(ctx))
		check(y, z)
		w, err := b.Add(ctx, ids[:4])
		require.NoError(t, err)
		require.NoError(t, w.Push(9))
		require.NoError(t, b.Step(ctx))
		check(y, z, w)
		require.NoError(t, b.Step(ctx), "nothing waits")
		require.Error(t, w.Push(9999))
		require.NoError(t, b.Close())
	}
}

func TestGenerateBatch(t *testing.T) {
	m := embedded(t, llm.Options{})
	ctx := context.Background()
	prompts := []string{"The prince said", "It was", "Pierre", "The army of the", "Natasha"}
	o := llm.GenerateOptions{MaxTokens: 9, Stop: []string{"Emperor's"}}
	want, got := make([]string, len(prompts)), make([]string, len(prompts))
	for i, p := range prompts {
		_, want[i] = collect(t, m.Generate(ctx, p, o))
	}
	for token, err := range m.GenerateBatch(ctx, prompts, 2, o) {
		require.NoError(t, err)
		got[token.Index] += token.Text
	}
	require.Equal(t, want, got)
	n := 0
	for _, err := range m.GenerateBatch(ctx, prompts, 0, o) {
		require.NoError(t, err)
		if n++; n == 7 {
			break
		}
	}
	for _, err := range m.GenerateBatch(ctx, nil, 0, o) {
		require.NoError(t, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	var failed error
	for _, err := range m.GenerateBatch(cancelled, prompts, 2, o) {
		failed = err
	}
	require.ErrorIs(t, failed, context.Canceled)
}

// With a draft model the greedy text is the same, whatever the draft is worth.
func TestSpeculativeGreedy(t *testing.T) {
	m := embedded(t, llm.Options{})
	ctx := context.Background()
	for _, p := range []string{"The prince said", "It was in July, 1805", "Pierre"} {
		want, text := collect(t, m.Generate(ctx, p, llm.GenerateOptions{MaxTokens: 30}))
		var stats llm.Stats
		// The model as its own draft: every guess is right.
		got, said := collect(t, m.Generate(ctx, p, llm.GenerateOptions{MaxTokens: 30, Draft: m, DraftTokens: 5, Stats: &stats}))
		require.Equal(t, want, got)
		require.Equal(t, text, said)
		require.Greater(t, stats.Accepted, 15)
		require.GreaterOrEqual(t, stats.Guessed, stats.Accepted)
	}

	big := random(t, llmtest.Small("llama", false), llm.Options{})
	small := random(t, llmtest.Shape{Arch: "llama", Vocab: 389, Context: 40, Dim: 32, FFN: 32, Layers: 1, Heads: 2, KVHeads: 2, Seed: 3}, llm.Options{})
	s, err := big.NewSession()
	require.NoError(t, err)
	o := llm.GenerateOptions{MaxTokens: 60, IgnoreEnd: true}
	want, _ := collect(t, s.GenerateIDs(ctx, prompt(), o))
	require.NoError(t, s.Rewind(0))
	o.Draft = small // its context ends long before the text does
	got, _ := collect(t, s.GenerateIDs(ctx, prompt(), o))
	require.Equal(t, want, got)
	require.Equal(t, slices.Concat(prompt(), want), s.Tokens())

	// A caller that leaves finds the session where it left.
	require.NoError(t, s.Rewind(0))
	o.Draft = big
	var part []int32
	for token, err := range s.GenerateIDs(ctx, prompt(), o) {
		require.NoError(t, err)
		if part = append(part, token.ID); len(part) == 7 {
			break
		}
	}
	require.Equal(t, slices.Concat(prompt(), want[:7]), s.Tokens())
	o.Draft, o.MaxTokens = nil, 20
	rest, _ := collect(t, s.GenerateIDs(ctx, nil, o))
	require.Equal(t, want[:27], append(part, rest...))

	o.Draft = m
	for _, err := range s.GenerateIDs(ctx, []int32{5}, o) {
		require.ErrorContains(t, err, "another vocabulary")
	}
}

// Drawn tokens have the distribution that they have without a draft.
func TestSpeculativeDistribution(t *testing.T) {
	for _, size := range [][2]int{{389, 389}, {389, 640}, {640, 389}} {
		t.Run(fmt.Sprintf("model of %d, draft of %d", size[0], size[1]), func(t *testing.T) { speculativeDistribution(t, size[0], size[1]) })
	}
}

func speculativeDistribution(t *testing.T, model, draft int) {
	shape := llmtest.Small("llama", false)
	shape.Vocab = model
	big := random(t, shape, llm.Options{})
	small := random(t, llmtest.Shape{Arch: "llama", Vocab: draft, Context: 96, Dim: 32, FFN: 32, Layers: 1, Heads: 2, KVHeads: 2, Seed: 3}, llm.Options{})
	ctx := context.Background()
	s, err := big.NewSession()
	require.NoError(t, err)
	const runs = 600
	count := func(draft *llm.Model) map[string]int {
		counts := map[string]int{}
		for i := range runs {
			_, err := s.EvalShared(ctx, prompt()[:6])
			require.NoError(t, err)
			o := llm.GenerateOptions{MaxTokens: 3, IgnoreEnd: true, Draft: draft, DraftTokens: 2, Sampling: sample.Options{Temperature: 1, TopK: 3, Seed: uint64(i)}}
			ids, _ := collect(t, s.GenerateIDs(ctx, nil, o))
			require.Len(t, ids, 3)
			counts[fmt.Sprint("second ", ids[1])]++
			counts[fmt.Sprint("third ", ids[2])]++
		}
		return counts
	}
	plain, guessed := count(nil), count(small)
	for what, n := range plain {
		if n > 30 {
			// Five standard deviations of the difference of two counts.
			require.InDelta(t, n, guessed[what], 5*math.Sqrt(float64(2*n)), what)
		}
	}
}

// The vocabularies of model and draft may be padded to different sizes, in their files (GGUF) or in their embeddings alone (folders). What a
// model says where its padding counts is the same with a draft that lacks these tokens, or that has more of them.
func TestSpeculativePadding(t *testing.T) {
	ctx := context.Background()
	const few, many = 389, 640
	shapes := map[int][2]llmtest.Shape{}
	for _, n := range []int{few, many} {
		model := llmtest.Small("llama", false)
		model.Vocab = n
		draft := llmtest.Shape{Arch: "llama", Vocab: n, Context: 96, Dim: 32, FFN: 32, Layers: 1, Heads: 2, KVHeads: 2, HeadDim: 16, Seed: 3}
		shapes[n] = [2]llmtest.Shape{model, draft}
	}
	var tokenizer []byte // of all folders
	folder := func(s llmtest.Shape) *llm.Model {
		dir := writeFolder(t, s, map[string]any{})
		file := filepath.Join(dir, "tokenizer.json")
		if tokenizer == nil { // the first one has few
			var err error
			tokenizer, err = os.ReadFile(file)
			require.NoError(t, err)
		}
		require.NoError(t, os.WriteFile(file, tokenizer, 0o666))
		m, err := llm.Open(dir, llm.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	}
	inFile := func(s llmtest.Shape) *llm.Model { return random(t, s, llm.Options{}) }
	says := func(m *llm.Model, o llm.GenerateOptions) (ids []int32, err error) {
		s, err := m.NewSession()
		require.NoError(t, err)
		defer s.Close()
		for token, err := range s.GenerateIDs(ctx, prompt(), o) {
			if err != nil {
				return ids, err
			}
			ids = append(ids, token.ID)
		}
		return ids, nil
	}
	hasPadding := func(ids []int32) bool { return slices.ContainsFunc(ids, func(id int32) bool { return id >= few }) }
	for name, open := range map[string]func(llmtest.Shape) *llm.Model{"file": inFile, "folder": folder} {
		for _, size := range [][2]int{{few, many}, {many, few}} {
			t.Run(fmt.Sprintf("%s, model of %d, draft of %d", name, size[0], size[1]), func(t *testing.T) {
				tokenizer = nil
				if name == "folder" {
					folder(shapes[few][1])
				}
				m, draft := open(shapes[size[0]][0]), open(shapes[size[1]][1])
				require.Equal(t, [2]int{size[0], size[1]}, [2]int{m.Config.Vocab, draft.Config.Vocab})
				if name == "folder" {
					require.Equal(t, m.Tokenizer.Tokens, draft.Tokenizer.Tokens)
				}
				o := llm.GenerateOptions{MaxTokens: 60, IgnoreEnd: true}
				want, err := says(m, o)
				require.NoError(t, err)
				alone, err := says(draft, o)
				require.NoError(t, err)
				require.True(t, hasPadding(append(want, alone...)), "this test tests nothing")
				var stats llm.Stats
				drafted := o
				drafted.Draft, drafted.Stats = draft, &stats
				got, err := says(m, drafted)
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.Positive(t, stats.Guessed)

				for seed := range uint64(20) {
					drafted.Sampling = sample.Options{Temperature: 1.5, Seed: seed}
					got, err := says(m, drafted)
					require.NoError(t, err)
					require.Len(t, got, 60)
				}
				if size[0] == few {
					return
				}
				// Nothing that the draft has may be said.
				o.Sampling.Bias = map[int32]float64{}
				for id := range int32(few) {
					o.Sampling.Bias[id] = math.Inf(-1)
				}
				want, err = says(m, o)
				require.NoError(t, err)
				drafted.Sampling = o.Sampling
				got, err = says(m, drafted)
				require.NoError(t, err)
				require.Equal(t, want, got)
				// Nor has it anything to read.
				drafted.Stats = nil
				s, err := m.NewSession()
				require.NoError(t, err)
				defer s.Close()
				ids, _ := collect(t, s.GenerateIDs(ctx, []int32{many - 1}, drafted))
				require.Len(t, ids, 60)
			})
		}
	}
}
