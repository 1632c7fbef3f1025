package llm_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/models/llm"
	"github.com/tessera-go/tessera/models/llm/llmtest"
)

// The vectors of an encoder are the same, bit for bit, for any number of workers and processors: work is cut into other pieces, sums are not.
func TestEncoderByThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	s := llmtest.Small("bert", true)
	s.Context, s.Dim, s.FFN, s.Heads, s.KVHeads, s.HeadDim = 300, 192, 512, 6, 6, 32
	var file bytes.Buffer
	require.NoError(t, llmtest.Write(&file, s))
	ids := make([]int32, 257)
	for i := range ids {
		ids[i] = int32(5 + i*7%300)
	}
	want := map[int][]float32{}
	for _, procs := range []int{1, 3, 8} {
		runtime.GOMAXPROCS(procs)
		for _, threads := range []int{1, 2, 3, 8} {
			cpu, err := backends.Open(fmt.Sprintf("cpu:threads=%d", threads))
			require.NoError(t, err)
			m, err := llm.Parse(file.Bytes(), llm.Options{Backends: []backends.Backend{cpu}})
			require.NoError(t, err)
			for _, n := range []int{1, 3, 16, 49, 257} {
				v, err := m.EmbedIDs(context.Background(), ids[:n], llm.EmbedOptions{})
				require.NoError(t, err)
				if want[n] == nil {
					want[n] = v
				}
				require.Equal(t, want[n], v, "%d tokens, %d workers, %d processors", n, threads, procs)
			}
			require.NoError(t, m.Close())
			require.NoError(t, cpu.Close())
		}
	}
}
