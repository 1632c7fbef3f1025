package backends_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends"
	"github.com/tessera-go/tessera/backends/reference"
)

func init() {
	backends.Register("probe", func(o *backends.Options) (backends.Backend, error) {
		lastMode, lastThreads = o.String("mode", "fast", "fast", "slow"), o.Int("threads", 0, 0, 64)
		return reference.New(), nil
	})
}

var (
	lastMode    string
	lastThreads int
)

func TestOpen(t *testing.T) {
	require.Contains(t, backends.Names(), "probe")
	cases := []struct {
		spec      string
		overrides []string
		mode      string
		threads   int
		err       string
	}{
		{spec: "probe", mode: "fast"},
		{spec: "probe:mode=slow,threads=3", mode: "slow", threads: 3},
		{spec: "probe:mode=slow,threads=3", overrides: []string{"threads=5", ""}, mode: "slow", threads: 5},
		{spec: "prob", err: `unknown backend "prob"; linked are: `},
		{spec: "cpu:threads=1", err: `backend "cpu" is not linked: import _ "github.com/tessera-go/tessera/backends/cpu" links it; linked are: probe`},
		{spec: "", err: "a backend's name is missing; linked are: "},
		{spec: ":mode=fast", err: "a backend's name is missing"},
		{spec: "xdna2", err: `import _ "github.com/tessera-go/tessera/backends/xdna" links it`},
		{spec: "probe:mode=quick", err: "one of fast, slow is right"},
		{spec: "probe:threads=x", err: "a number from 0 to 64"},
		{spec: "probe:threads=65", err: "a number from 0 to 64"},
		{spec: "probe:colour=red", err: `unknown option "colour"; it takes: mode, threads`},
		{spec: "probe:mode", err: "is not key=value"},
		{spec: "probe:mode=slow,threads=2,mode=fast", err: `option "mode" is given twice`},
	}
	for _, c := range cases {
		b, err := backends.Open(c.spec, c.overrides...)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.spec)
			continue
		}
		require.NoError(t, err, c.spec)
		require.NoError(t, b.Close())
		require.Equal(t, c.mode, lastMode)
		require.Equal(t, c.threads, lastThreads)
	}
	require.Panics(t, func() { backends.Register("probe", nil) })
}

func TestStatsSub(t *testing.T) {
	a := backends.Stats{Nodes: 5, Products: 4, Dispatches: 3, Configurations: 2, Conversions: 9, ControlWords: 7, Bytes: 6, StagedBytes: 8,
		UsefulMACs: 10, PaddedMACs: 20, HostResults: 30, SimulatedSeconds: 1.5}
	require.Equal(t, backends.Stats{}, a.Sub(a))
	require.Equal(t, a, a.Sub(backends.Stats{}))
}
