package conv

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestKnobs: thresholds cut the work in other ways and change no bit; illegal ones are errors.
func TestKnobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	for _, s := range []Spec{
		{N: 2, H: 11, W: 13, C: 5, M: 70, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 11, OW: 13, Groups: 1},
		{N: 1, H: 12, W: 14, C: 24, M: 24, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 12, OW: 14, Groups: 24},
		{N: 1, H: 6, W: 7, C: 9, M: 3, KH: 2, KW: 2, SH: 2, SW: 2, DH: 1, DW: 1, OH: 12, OW: 14, Groups: 1, Transposed: true},
	} {
		floats := func(n int) []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = rng.Float32()*2 - 1
			}
			return x
		}
		w, x := floats(s.M*s.C/s.Groups*s.KH*s.KW), floats(s.N*s.H*s.W*s.C)
		f, err := Pack(s, w, nil, cpuinfo.Get().ISA)
		require.NoError(t, err)
		run := func(values map[string]int) []float32 {
			kn, err := NewKnobs(values)
			require.NoError(t, err)
			p, err := NewPlanWith(f, s, 3, kn)
			require.NoError(t, err)
			y := make([]float32, s.N*s.OH*s.OW*s.M)
			p.Run(&Args{X: x, Y: y})
			return y
		}
		want := run(nil)
		for _, values := range []map[string]int{
			{"conv-scratch-floats": 1 << 10}, {"conv-panel-floats": 1 << 10}, {"conv-jobs-per-worker": 64, "conv-job-macs": 1}, {"conv-depthwise-macs": 1}, {"conv-post-floats": 1},
		} {
			require.Equal(t, want, run(values), "%v", values)
		}
	}
	for _, values := range []map[string]int{{"conv-job-macs": 0}, {"kc-max": 512}} {
		_, err := NewKnobs(values)
		require.Error(t, err)
	}
}
