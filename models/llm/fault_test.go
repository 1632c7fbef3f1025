package llm_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/quant"
	"github.com/tessera-go/tessera/tensor"
)

// A model's file, or that of its packed weights, that is cut short while it is open is an error which names the file, in each call that reads what is gone, and
// the model can be closed.
func TestFilesCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	ctx := context.Background()
	for _, kept := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, os.WriteFile(path, tolstoy.GGUF(), 0o600))
		o := llm.Options{}
		cut := path
		if kept {
			o.WeightCache = llm.WeightCachePath(path)
			cut = o.WeightCache
			m, err := llm.Open(path, o)
			require.NoError(t, err)
			require.NoError(t, m.Close())
		}
		m, err := llm.Open(path, o)
		require.NoError(t, err)
		require.Equal(t, kept, m.WeightCache().Reused)
		s, err := m.NewSession()
		require.NoError(t, err)
		require.NoError(t, os.Truncate(cut, 4096))
		for _, n := range []int{1, 1, 40} {
			require.ErrorContains(t, s.Eval(ctx, make([]int32, n)...), cut)
			require.Zero(t, s.Len())
		}
		require.NoError(t, s.Close())
		require.NoError(t, m.Close())
	}
}

// Whatever a model is asked for after its file has been cut short, the answer is an error that names the file, not a signal that ends the process; and
// sessions and model can be closed.
func TestEveryCallOnFilesCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	ctx := context.Background()
	ids := []int32{11, 40, 200, 77}
	// used is what is done with a model, after its session has read ids and has been saved.
	type used struct {
		m     *llm.Model
		s     *llm.Session
		saved []byte
	}
	o := llm.GenerateOptions{MaxTokens: 3}
	small := llmtest.Small("llama", false)
	draft := func(m *llm.Model) llm.GenerateOptions { return llm.GenerateOptions{MaxTokens: 20, Draft: m} }
	calls := []struct {
		name    string
		encodes bool // also encoders do this
		// original says that the model's own file is read, not what has been packed of it.
		original bool
		call     func(u used) error
	}{
		{"embed", true, false, func(u used) error { _, err := u.m.EmbedIDs(ctx, ids, llm.EmbedOptions{}); return err }},
		{"save", false, true, func(u used) error { return u.s.Save(io.Discard) }},
		{"load", false, false, func(u used) error { return u.s.Load(ctx, bytes.NewReader(u.saved)) }},
		{"eval", false, false, func(u used) error { return u.s.Eval(ctx, ids...) }},
		{"eval all", false, false, func(u used) error {
			return u.s.EvalAll(ctx, ids, func(int, []float32) error { return nil })
		}},
		{"fork", false, false, func(u used) error {
			f, err := u.s.Fork()
			if err != nil {
				return err
			}
			defer f.Close()
			return f.Eval(ctx, ids...)
		}},
		{"session", false, false, func(u used) error {
			s, err := u.m.NewSession()
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Eval(ctx, ids...)
		}},
		{"batch", false, false, func(u used) error {
			b, err := u.m.NewBatch(3)
			if err != nil {
				return err
			}
			defer b.Close()
			_, err = b.Add(ctx, ids)
			return err
		}},
		{"generate", false, false, func(u used) error { return last(u.m.Generate(ctx, "x", o)) }},
		{"generate in batches", false, false, func(u used) error { return last(u.m.GenerateBatch(ctx, []string{"x", "y"}, 2, o)) }},
		{"generate with itself as draft", false, false, func(u used) error { return last(u.m.Generate(ctx, "x", draft(u.m))) }},
		{"perplexity", false, false, func(u used) error { _, err := u.m.Perplexity(ctx, ids, 0, nil); return err }},
		{"chat", false, false, func(u used) error {
			c, err := u.m.NewChat("", "")
			if err != nil {
				return err
			}
			defer c.Close()
			return last(c.Send(ctx, "x", o))
		}},
	}
	halved := func(t *testing.T) []byte {
		var file bytes.Buffer
		require.NoError(t, llmtest.Write(&file, small))
		return edit(t, file.Bytes(), nil, func(name string, x tensor.Tensor) (string, tensor.Tensor) {
			y, err := quant.Encode(tensor.F16, x)
			require.NoError(t, err)
			return name, y
		})
	}
	written := func(t *testing.T, data []byte) string {
		path := filepath.Join(t.TempDir(), "m.gguf")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	whole := func(t *testing.T) (model, cut string) {
		path := written(t, tolstoy.GGUF())
		return path, path
	}
	for name, source := range map[string]struct {
		files   func(t *testing.T) (model, cut string)
		encoder bool
		packed  bool // the file that is cut is that of packed weights
	}{
		"gguf":     {files: whole},
		"f16 gguf": {files: func(t *testing.T) (string, string) { path := written(t, halved(t)); return path, path }},
		"encoder": {encoder: true, files: func(t *testing.T) (string, string) {
			var file bytes.Buffer
			require.NoError(t, llmtest.Write(&file, llmtest.Small("bert", true)))
			path := written(t, file.Bytes())
			return path, path
		}},
		"folder": {files: func(t *testing.T) (string, string) {
			dir := writeFolder(t, small, map[string]any{})
			return dir, filepath.Join(dir, "part-0.safetensors")
		}},
		"packed weights": {packed: true, files: func(t *testing.T) (string, string) {
			path, _ := whole(t)
			return path, llm.WeightCachePath(path)
		}},
	} {
		for _, c := range calls {
			if source.encoder && !c.encodes {
				continue
			}
			t.Run(name+"/"+c.name, func(t *testing.T) {
				path, cut := source.files(t)
				o := llm.Options{}
				if source.packed {
					o.WeightCache = cut
					m, err := llm.Open(path, o) // writes the file
					require.NoError(t, err)
					require.NoError(t, m.Close())
				}
				m, err := llm.Open(path, o)
				require.NoError(t, err)
				require.Equal(t, source.packed, m.WeightCache().Reused)
				u := used{m: m}
				if !source.encoder {
					u.s, err = m.NewSession()
					require.NoError(t, err)
					var saved bytes.Buffer
					require.NoError(t, u.s.Eval(ctx, ids...))
					require.NoError(t, u.s.Save(&saved))
					u.saved = saved.Bytes()
				}
				require.NoError(t, os.Truncate(cut, 0))
				for range 2 { // the first error leaves nothing locked
					err = c.call(u)
					if c.original && source.packed {
						require.NoError(t, err)
					} else {
						require.ErrorContains(t, err, cut)
					}
				}
				if u.s != nil {
					require.NoError(t, u.s.Close())
				}
				require.NoError(t, m.Close())
			})
		}
	}
}

func TestQuantizeOfAFileCutShort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("mapped files cannot be cut short here")
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, tolstoy.GGUF(), 0o600))
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Truncate(path, 4096))
	_, err = gguf.Quantize(context.Background(), &bytes.Buffer{}, f, gguf.QuantizeOptions{Type: "f16", Requantize: true})
	require.ErrorContains(t, err, path)
}
