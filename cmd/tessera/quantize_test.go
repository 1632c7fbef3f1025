package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/shared"
	"github.com/tessera-go/tessera/models/gguf"
)

// What is said of each tensor, in the table and in the document: its types, its bytes in the new file, and its error, none where it was copied.
func TestQuantizeSaysWhatBecameOfEachTensor(t *testing.T) {
	in := shared.File(t, "data/models/tolstoy-3m.gguf")
	path := filepath.Join(t.TempDir(), "q.gguf")
	out, _, err := call(t, "quantize", in, path, "--type", "Q4_K_M")
	require.NoError(t, err)
	f, err := gguf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, len(f.Tensors)+2)
	require.Equal(t, []string{"tensor", "from", "to", "bytes", "RMS", "error"}, strings.Fields(lines[0]))
	types := map[string]int{}
	for i, info := range f.Tensors {
		words := strings.Fields(lines[i+1])
		require.Equal(t, []string{info.Name, "f32", info.Type.String(), strconv.Itoa(info.Bytes)}, words[:4])
		rms, err := strconv.ParseFloat(words[4], 64)
		require.NoError(t, err)
		require.Equal(t, info.Type.String() == "f32", rms == 0, lines[i+1])
		require.Less(t, rms, 0.02)
		types[info.Type.String()]++
	}
	require.Len(t, types, 3, "a mixture of %v", types)
	stat, err := os.Stat(path)
	require.NoError(t, err)
	require.Contains(t, lines[len(lines)-1], strconv.Itoa(len(f.Tensors))+" tensors: ")

	doc := jsonOf(t, "quantize", in, path, "--type", "q4_k_m")
	require.EqualValues(t, stat.Size(), doc["bytes_out"])
	for i, x := range doc["tensors"].([]any) {
		x := x.(map[string]any)
		require.Equal(t, f.Tensors[i].Name, x["name"])
		require.Equal(t, f.Tensors[i].Type.String(), x["to"])
		require.EqualValues(t, f.Tensors[i].Bytes, x["bytes_out"])
		require.Equal(t, x["to"] == x["from"], x["rmse"] == 0.)
	}
}
