package gemm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestScratchStaysInItsMemory: sums that go through scratch memory, because C has another type or lies by columns, take no more of it than
// WorkspaceBytes says and meet no other worker's. The blocks of these products are larger than that unless it bounds them.
func TestScratchStaysInItsMemory(t *testing.T) {
	const canary = 0xa5
	r := rand.New(rand.NewPCG(81, 82))
	for _, isa := range isas() {
		for trial := range 24 {
			for _, kind := range []struct{ a, b, wide, narrow Type }{
				{S8, S8, S32, F32}, {U8, S8, S32, F32}, {F32, F32, F32, BF16}, {F32, BF16, F32, F16}, {BF16, BF16, F32, BF16},
			} {
				m, n, k := 1+r.IntN(1000), 1+r.IntN(600), 1+r.IntN(300)
				if trial%3 == 0 {
					m = 1 + r.IntN(70)
				}
				if isa == cpuinfo.Portable || testing.Short() {
					m, n, k = ceilDiv(m, 4), ceilDiv(n, 4), ceilDiv(k, 8)
				}
				o := Options{ISA: isa, Threads: 1}
				if trial%2 == 0 {
					var err error
					o.Knobs, err = NewKnobs(map[string]int{"c-percent": 1, "macs-per-worker": 1})
					require.NoError(t, err)
				}
				a, b := operand(r, kind.a, m, k), operand(r, kind.b, k, n)
				want := Raw(kind.wide, make([]byte, 4*m*n), m, n, n, 1)
				require.NoError(t, Mul(want, a, b, &o))
				for _, typ := range []Type{kind.wide, kind.narrow} {
					var first []byte
					for _, threads := range []int{1, 2, 5} {
						name := fmt.Sprintf("%v %v into %v by columns: %d x %d x %d, %d threads, trial %d", isa, kind, typ, m, n, k, threads, trial)
						got := make([]byte, m*n*typ.Size())
						c := Raw(typ, got, m, n, 1, m)
						o.Threads, o.Workspace = threads, nil
						need, err := WorkspaceBytes(c, a, b, nil, &o)
						require.NoError(t, err)
						w := new(Workspace)
						require.NoError(t, w.reserve(need+1<<20))
						rest := w.buf[need:]
						for i := range rest {
							rest[i] = canary
						}
						o.Workspace = w
						require.NoError(t, Mul(c, a, b, &o), name)
						for i, x := range rest {
							if x != canary {
								t.Fatalf("%s: byte %d behind the %d of the workspace was written", name, i, need)
							}
						}
						require.NoError(t, w.Close())
						if first == nil {
							first = got
						}
						require.True(t, bytes.Equal(first, got), "%s: other bits than with one thread", name)
						if typ != kind.wide {
							continue
						}
						for i := range m {
							for j := range n {
								if x, y := *(*uint32)(want.at(i, j)), *(*uint32)(c.at(i, j)); x != y {
									t.Fatalf("%s: element %d, %d has the bits %#x, by rows %#x", name, i, j, y, x)
								}
							}
						}
					}
				}
			}
		}
	}
}
