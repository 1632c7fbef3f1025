package gemm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Strips of few rows, for which nothing goes down a panel, stand in products that go by panels where a part or a product has few rows, or strips are low because
// their rows would compete: they give the bits that strips past panels give, at every level.
func TestByPanelOfFewRows(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	strips, err := NewKnobs(map[string]int{"panel-strips": 1 << 20})
	require.NoError(t, err)
	for _, change := range []map[string]int{{}, {"conflict-rows": 1}, {"conflict-rows": 2}, {"conflict-rows": 3}, {"a-percent": 1, "panel-percent": 1, "kc-min": 16, "b-local-rows": 0},
		{"pack-limit": 65536, "a-pack-panels": 1, "a-pack-stride": 1, "a-pack-span": 1}} {
		change["panel-strips"] = 1
		few, err := NewKnobs(change)
		require.NoError(t, err)
		for _, s := range [][3]int{{1, 80, 200}, {2, 64, 1024}, {3, 100, 300}, {7, 79, 2048}, {13, 200, 1024}, {43, 64, 4096}, {44, 64, 4096}} {
			m, n, k := s[0], s[1], s[2]
			fa, fb := floats(r, m*k), floats(r, k*n)
			for _, isa := range isas() {
				for _, kind := range []string{"plain", "packed", "column-major A", "packed A", "packed both"} {
					run := func(threads int, kn *Knobs) []float32 {
						o := &Options{Threads: threads, Knobs: kn, ISA: isa}
						x := make([]float32, m*n)
						c, a, b := Of(x, m, n), Of(fa, m, k), Of(fb, k, n)
						if kind == "column-major A" {
							a = View(fa, m, k, 1, m)
						}
						if kind == "plain" {
							require.NoError(t, Mul(c, a, b, o))
							return x
						}
						pa, err := PackA(a, F32, o)
						require.NoError(t, err)
						defer pa.Close()
						if kind == "packed A" {
							require.NoError(t, MulPackedA(c, pa, b, o))
							return x
						}
						pb, err := PackB(b, o)
						require.NoError(t, err)
						defer pb.Close()
						if kind == "packed both" {
							require.NoError(t, MulPackedAB(c, pa, pb, o))
						} else {
							require.NoError(t, MulPacked(c, a, pb, o))
						}
						return x
					}
					want := run(1, strips)
					for _, threads := range []int{1, 3} {
						require.True(t, slices.Equal(want, run(threads, few)), "%v %v %s %v, %d threads", s, isa, kind, change, threads)
					}
				}
			}
		}
	}
}
