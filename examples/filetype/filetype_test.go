package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/internal/shared"
)

// All files of the data get their label, with the score that ONNX Runtime gives, one by one and as one batch.
func TestMagika(t *testing.T) {
	dir := shared.File(t, "data/magika")
	b, err := backends.Open("cpu")
	require.NoError(t, err)
	defer b.Close()
	d, err := open(filepath.Join(dir, "model.onnx"), filepath.Join(dir, "config.min.json"), b)
	require.NoError(t, err)
	defer d.close()
	var want []struct {
		File  string
		Label string
		Score float64
	}
	text, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &want))
	require.Len(t, want, 34)
	for _, w := range want {
		label, score, err := d.file(filepath.Join(dir, filepath.FromSlash(w.File)))
		require.NoError(t, err)
		require.Equal(t, w.Label, label, w.File)
		require.InDelta(t, w.Score, score, 1e-5, w.File)
	}
	require.Empty(t, d.session.Eager())
}

func TestFeatures(t *testing.T) {
	d := &detector{Begin: 4, End: 4, Padding: 256}
	f := make([]int32, 8)
	d.features(f, []byte(" \n ab"), []byte("xy \t\n"))
	require.Equal(t, []int32{'a', 'b', 256, 256, 256, 256, 'x', 'y'}, f)
	d.features(f, []byte("abcdef"), []byte("uvwxyz"))
	require.Equal(t, []int32{'a', 'b', 'c', 'd', 'w', 'x', 'y', 'z'}, f)
	d.features(f, nil, nil)
	require.Equal(t, []int32{256, 256, 256, 256, 256, 256, 256, 256}, f)
}
