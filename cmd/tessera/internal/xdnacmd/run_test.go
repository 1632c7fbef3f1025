package xdnacmd

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/cmd/tessera/internal/cli"
)

func execute(args ...string) (string, error) {
	cmd := Commands()[0]
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	var out, remarks bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&remarks)
	cmd.SetArgs(args)
	err := cmd.Execute()
	return out.String(), err
}

func TestRun(t *testing.T) {
	for _, args := range [][]string{
		{"--device", "xdna2", "--dtype", "int8-int16", "--size", "500x900x433"},
		{"--device", "xdna", "--dtype", "int8-int8", "--size", "130x70x300", "--layout", "row", "--overflow", "saturate"},
		{"--device", "xdna", "--dtype", "bf16-bf16", "--size", "130x70x300", "--mode", "fast", "--rounding", "floor"},
		{"--device", "xdna2", "--dtype", "bf16-bf16", "--size", "130x70x300", "--padding", "memtile"},
		{"--device", "xdna2", "--dtype", "bf16-bfp16", "--size", "130x70x304", "--schedule", "pingpong"},
		{"--device", "xdna2", "--dtype", "bfp16-bfp16", "--size", "1x1x8"},
	} {
		out, err := execute(append([]string{"run", "--json", "--check", "300"}, args...)...)
		require.NoError(t, err, "%v", args)
		var r runResult
		require.NoError(t, json.Unmarshal([]byte(out), &r), out)
		require.True(t, r.Exact, out)
		require.Zero(t, r.MaxError)
		require.Equal(t, int64(1), r.Configurations)
		require.Equal(t, int64(1), r.Dispatches)
		require.Positive(t, r.SimulatedSeconds)
		require.Positive(t, r.Words)
		require.Positive(t, r.WallSeconds)
		require.InDelta(t, r.UsefulPercent, 100*r.Ops/2/float64(r.Padded["m"])/float64(r.Padded["n"])/float64(r.Padded["k"]), 1e-9)
	}
}

func TestRunUsage(t *testing.T) {
	for _, args := range [][]string{
		{"--device", "xdna3", "--size", "1x1x1"},
		{"--dtype", "int4-int4", "--size", "1x1x1"},
		{"--device", "xdna", "--dtype", "bf16-bfp16", "--size", "8x8x8"},
		{"--size", "1x1"},
		{"--size", "1x1x1", "--mode", "slow"},
		{"--size", "8x8x9", "--dtype", "bf16-bfp16"},
		{"--size", "1x1x1", "--check", "-1"},
		{"--size", "1x1x1", "--threads", "-1"},
		{"--size", "1x1x1", "--threads", "5000"},
	} {
		_, err := execute(append([]string{"run"}, args...)...)
		require.Equal(t, 2, cli.ExitCode(err), "%v: %v", args, err)
	}
}
