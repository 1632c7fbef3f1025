package llm_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/packfile"
	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
	"github.com/tessera-go/tessera/tensor"
)

func firstLogits(t *testing.T, m *llm.Model) []float32 {
	s, err := m.NewSession()
	require.NoError(t, err)
	defer s.Close()
	return logitsOf(t, s, 11, 28, 45, 62, 79)
}

// Packed weights are written once and mapped from then on, whatever their type; the results have the same bits.
func TestCacheFile(t *testing.T) {
	dir := t.TempDir()
	files := map[string]func(path string){
		"q8_0": func(path string) { require.NoError(t, os.WriteFile(path, tolstoy.GGUF(), 0o600)) },
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		s := llmtest.Small("llama", d == tensor.F32)
		s.Type = d
		files[d.String()] = func(path string) {
			var file bytes.Buffer
			require.NoError(t, llmtest.Write(&file, s))
			require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
		}
	}
	files["q4_k"] = func(path string) {
		var file bytes.Buffer
		f, err := gguf.Parse(tolstoy.GGUF())
		require.NoError(t, err)
		_, err = gguf.Quantize(context.Background(), &file, f, gguf.QuantizeOptions{Type: "q4_k_m", Requantize: true})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	}
	for name, write := range files {
		path := filepath.Join(dir, name+".gguf")
		write(path)
		m, err := llm.Open(path, llm.Options{})
		require.NoError(t, err)
		require.Equal(t, llm.WeightCacheInfo{}, m.WeightCache())
		want := firstLogits(t, m)
		require.NoError(t, m.Close())
		for i := range 3 {
			var done, total, calls int64
			m, err := llm.Open(path, llm.Options{WeightCache: llm.WeightCachePath(path), Progress: func(d, n int64) {
				require.Greater(t, d, done)
				done, total = d, n
				calls++
			}})
			require.NoError(t, err)
			info := m.WeightCache()
			require.NoError(t, info.Err)
			require.Equal(t, i > 0, info.Reused, "%s, start %d", name, i)
			stat, err := os.Stat(info.Path)
			require.NoError(t, err)
			require.Equal(t, stat.Size(), info.Bytes)
			require.Greater(t, calls, int64(4))
			require.LessOrEqual(t, done, total)
			require.Greater(t, 2*done, total)
			require.Equal(t, want, firstLogits(t, m), "%s, start %d", name, i)
			require.NoError(t, m.Close())
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, left, 2*len(files), "nothing else is left behind")
}

func TestCacheFileOfAFolder(t *testing.T) {
	dir := writeFolder(t, llmtest.Small("llama", false), map[string]any{"model_type": "llama"})
	for i := range 2 {
		m, err := llm.Open(dir, llm.Options{WeightCache: llm.WeightCachePath(dir)})
		require.NoError(t, err)
		require.Equal(t, i > 0, m.WeightCache().Reused)
		require.Equal(t, filepath.Join(dir, "packed.tessera"), m.WeightCache().Path)
		require.NoError(t, m.Close())
	}
}

// A file that does not fit is made again; one that is something else is left alone.
func TestCacheFileThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	model, kept := filepath.Join(dir, "m.gguf"), filepath.Join(dir, "kept")
	require.NoError(t, os.WriteFile(model, tolstoy.GGUF(), 0o600))
	start := func(list ...backends.Backend) (info llm.WeightCacheInfo, logits []float32) {
		m, err := llm.Open(model, llm.Options{WeightCache: kept, Backends: list})
		require.NoError(t, err)
		defer m.Close()
		return m.WeightCache(), firstLogits(t, m)
	}
	_, want := start()
	good, err := os.ReadFile(kept)
	require.NoError(t, err)
	again := func(cause error) {
		t.Helper()
		info, got := start()
		require.False(t, info.Reused)
		if cause != nil {
			require.ErrorIs(t, info.Err, cause)
		}
		require.Equal(t, want, got)
		now, err := os.ReadFile(kept)
		require.NoError(t, err)
		require.Equal(t, len(good), len(now))
		info, got = start()
		require.True(t, info.Reused)
		require.NoError(t, info.Err)
		require.Equal(t, want, got)
	}
	for _, at := range []int{8, 20, 50, 70, len(good) / 2, len(good) - 1} {
		bad := bytes.Clone(good)
		bad[at] ^= 4
		require.NoError(t, os.WriteFile(kept, bad, 0o600))
		again(nil)
	}
	for _, cut := range []int{0, 7, 40, 100, 5000, len(good) - 1} {
		require.NoError(t, os.WriteFile(kept, good[:cut], 0o600))
		again(nil)
	}
	require.NoError(t, os.Chtimes(model, time.Time{}, time.Now().Add(time.Hour)))
	again(packfile.ErrStale)

	// Another instruction set has other panels of floats; with the same ones the file may serve.
	open := func(isa cpuinfo.ISA) backends.Backend {
		b, err := backends.Open("cpu:isa=" + isa.String())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b
	}
	if isas := cpuinfo.Get().ISAs; len(isas) > 1 {
		info, _ := start(open(isas[0]))
		require.False(t, info.Reused)
		info, _ = start(open(isas[0]))
		require.True(t, info.Reused)
		info, got := start()
		require.False(t, info.Reused)
		require.Equal(t, want, got)
	}

	// One model goes on with the file that another start replaces.
	m, err := llm.Open(model, llm.Options{WeightCache: kept})
	require.NoError(t, err)
	require.True(t, m.WeightCache().Reused)
	require.NoError(t, os.Remove(kept))
	again(nil)
	require.Equal(t, want, firstLogits(t, m))
	require.NoError(t, m.Close())

	letter := []byte("Dear Pierre, ...")
	require.NoError(t, os.WriteFile(kept, letter, 0o600))
	_, err = llm.Open(model, llm.Options{WeightCache: kept})
	require.ErrorContains(t, err, "not replaced")
	now, err := os.ReadFile(kept)
	require.NoError(t, err)
	require.Equal(t, letter, now)
	_, err = llm.Open(model, llm.Options{WeightCache: model})
	require.ErrorIs(t, err, packfile.ErrForeign)
	_, err = llm.Open(model, llm.Options{WeightCache: dir})
	require.ErrorContains(t, err, "not a regular file")
	_, err = llm.Open(model, llm.Options{WeightCache: os.DevNull})
	require.ErrorContains(t, err, "not a regular file")

	m, err = llm.Open(model, llm.Options{WeightCache: filepath.Join(dir, "none", "kept")})
	require.NoError(t, err)
	require.ErrorIs(t, m.WeightCache().Err, os.ErrNotExist)
	require.Equal(t, want, firstLogits(t, m))
	require.NoError(t, m.Close())
}
