package llm_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/models/gguf"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/tolstoy"
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
