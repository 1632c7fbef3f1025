package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestByPanel compares the two orders of a product, bit for bit: strips past panels and panels past strips, for all that decides how operands
// reach the kernel.
func TestByPanel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	strips, err := NewKnobs(map[string]int{"panel-strips": 1 << 20})
	require.NoError(t, err)
	always, err := NewKnobs(map[string]int{"panel-strips": 1})
	require.NoError(t, err)
	small, err := NewKnobs(map[string]int{"panel-strips": 2, "a-percent": 1, "panel-percent": 1, "kc-min": 16, "b-local-rows": 0})
	require.NoError(t, err)
	for _, s := range [][3]int{{48, 64, 128}, {61, 79, 131}, {100, 200, 300}, {257, 129, 700}, {130, 1024, 1024}, {600, 96, 333}} {
		m, n, k := s[0], s[1], s[2]
		fa, fb, old := floats(r, m*k), floats(r, k*n), floats(r, m*n)
		bias := floats(r, n)
		for _, kind := range []string{"packed", "plain", "transposed", "column-major A", "packed A", "bf16", "f16 by bf16", "accumulate", "epilogue", "narrow"} {
			for _, threads := range []int{1, 2, 3} {
				run := func(kn *Knobs) []float32 {
					o := &Options{Threads: threads, Knobs: kn}
					x := append([]float32(nil), old...)
					c, a, b := Of(x, m, n), Of(fa, m, k), Of(fb, k, n)
					switch kind {
					case "plain":
						require.NoError(t, Mul(c, a, b, o))
						return x
					case "transposed":
						require.NoError(t, Mul(c, a, View(fb, k, n, 1, k), o))
						return x
					case "column-major A":
						a = View(fa, m, k, 1, m)
					case "packed A":
						pa, err := PackA(a, F32, o)
						require.NoError(t, err)
						require.NoError(t, MulPackedA(c, pa, b, o))
						return x
					case "bf16", "f16 by bf16":
						b = Of(bf16s(rand.New(rand.NewPCG(1, 1)), k*n), k, n)
						if kind == "bf16" {
							a = Of(bf16s(rand.New(rand.NewPCG(1, 2)), m*k), m, k)
							o.BF16 = Widen
						} else {
							a = Of(f16s(rand.New(rand.NewPCG(1, 3)), m*k), m, k)
						}
					case "accumulate":
						o.Accumulate = true
					case "epilogue":
						o.Epilogue = &Epilogue{Bias: bias, Act: GELU}
					}
					p, err := PackB(b, o)
					require.NoError(t, err)
					defer p.Close()
					if kind == "narrow" {
						h := make([]BFloat16, m*n)
						require.NoError(t, MulPacked(Of(h, m, n), a, p, o))
						for i, v := range h {
							x[i] = float32(v)
						}
						return x
					}
					require.NoError(t, MulPacked(c, a, p, o))
					return x
				}
				want := run(strips)
				equal(t, want, run(always), "%v %s, %d threads", s, kind, threads)
				equal(t, want, run(small), "%v %s, %d threads, small blocks", s, kind, threads)
			}
		}
	}
}
