package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

func TestBenchLadder(t *testing.T) {
	out, _, err := call(t, "bench", "ladder", "--size", "512x512x512", "--stage", "5,tiled", "--runs", "1", "--seconds", "0", "--json")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 2)
	for i, want := range []map[string]float64{
		{"stage": 5, "packs_a": 1, "packs_b": 1, "workspace_bytes": 2 << 20},
		{"stage": 6, "packs_a": 8, "packs_b": 1024, "workspace_bytes": 132 << 10},
	} {
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[i]), &got))
		for name, v := range want {
			require.Equal(t, v, got[name], name)
		}
		for _, name := range []string{"seconds", "gflops", "speedup"} {
			require.Positive(t, got[name], name)
		}
	}
	out, _, err = call(t, "bench", "ladder", "--size", "20x30x40", "--runs", "1", "--seconds", "0", "--threads", "2")
	require.NoError(t, err)
	for _, name := range []string{"naive", "unrolled", "simd128", "simd", "packed", "tiled", "engine"} {
		require.Contains(t, out, name)
	}
	for _, args := range [][]string{{"--size", "1x2"}, {"--stage", "8"}, {"--stage", "fast"}, {"--runs", "0"}, {"--seconds", "NaN"}, {"--threads", "-1"}} {
		_, _, err := call(t, append([]string{"bench", "ladder"}, args...)...)
		require.Equal(t, 2, cli.ExitCode(err), "%v: %v", args, err)
	}
}
