package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A workspace that keeps the plan of its last product gives the bits of a new one, whatever the next product has in common with that: products of every
// kind follow each other, most of them changed in one thing only.
func TestPlansAreOfOneKind(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	type problem struct {
		types, m, n, k, gapA, gapB, gapC, threads, azero, knobs int
		columns, packed, acc, epi, after                        bool
	}
	var knobs [2]*Knobs
	for i := range knobs {
		var err error
		knobs[i], err = NewKnobs(map[string]int{"call-bytes": []int{1 << 20, 1 << 12}[i]})
		require.NoError(t, err)
	}
	sizes := []int{1, 2, 5, 16, 17, 31, 32, 40, 64, 70}
	size := func() int { return sizes[r.IntN(len(sizes))] }
	random := func() problem {
		return problem{types: r.IntN(len(pairs)), m: size(), n: size(), k: size(), threads: 1}
	}
	x := random()
	kept := 0
	for _, isa := range isas() {
		w := &Workspace{}
		for round := range 1500 {
			switch r.IntN(16) {
			case 0:
				x = random()
			case 1:
				x.m = size()
			case 2:
				x.n = size()
			case 3:
				x.k = size()
			case 4:
				x.gapA = r.IntN(3)
			case 5:
				x.gapB = r.IntN(3)
			case 6:
				x.gapC = r.IntN(3)
			case 7:
				x.types = r.IntN(len(pairs))
			case 8:
				x.azero = r.IntN(5)
			case 9:
				x.columns = !x.columns
			case 10:
				x.packed = !x.packed
			case 11:
				x.acc = !x.acc
			case 12:
				x.epi = !x.epi
			case 13:
				x.after = !x.after
			case 14:
				x.threads = 1 + r.IntN(2)
			case 15:
				x.knobs = r.IntN(2)
			}
			if r.IntN(50) == 0 {
				require.NoError(t, w.Close())
			}
			ty := pairs[x.types]
			integer := ty.c == S32
			ars, brs := x.k+x.gapA, x.n+x.gapB
			a := Raw(ty.a, randomBytes(r, ty.a, x.m*ars), x.m, x.k, ars, 1)
			b := Raw(ty.b, randomBytes(r, ty.b, x.k*brs), x.k, x.n, brs, 1)
			if x.columns {
				b = Raw(ty.b, randomBytes(r, ty.b, x.n*(x.k+x.gapB)), x.n, x.k, x.k+x.gapB, 1).T()
			}
			crs := x.n + x.gapC
			o := Options{ISA: isa, Threads: x.threads, BF16: ty.mode, Accumulate: x.acc && !x.epi, Knobs: knobs[x.knobs]}
			if integer {
				o.AZero = int32(x.azero)
			}
			ctype := ty.c
			if x.epi {
				o.Epilogue = &Epilogue{Act: ReLU}
				if integer {
					ctype, o.Epilogue.OutScale = S8, 300
				}
				if x.after {
					o.Epilogue.After = Raw(F32, randomBytes(r, F32, x.m*x.n), x.m, x.n, x.n, 1)
				}
			}
			old := randomBytes(r, ctype, x.m*crs)
			of := func(w *Workspace) []byte {
				c := append([]byte{}, old...)
				o := o
				o.Workspace = w
				out := Raw(ctype, c, x.m, x.n, crs, 1)
				if !x.packed {
					require.NoError(t, Mul(out, a, b, &o), "%+v", x)
					return c
				}
				pb, err := PackB(b, &o)
				require.NoError(t, err)
				require.NoError(t, MulPacked(out, a, pb, &o), "%+v", x)
				require.NoError(t, pb.Close())
				return c
			}
			before := w.prod.last.key
			got := of(w)
			if before != (planKey{}) && w.prod.last.key == before {
				kept++
			}
			require.Equal(t, of(&Workspace{}), got, "%v, product %d: %+v", isa, round, x)
		}
	}
	require.Greater(t, kept, 30*len(isas()))
}

// randomBytes returns n elements that are finite.
func randomBytes(r *rand.Rand, typ Type, n int) []byte {
	w := make([]byte, n*typ.Size())
	for i := range w {
		w[i] = byte(r.Uint32())
	}
	finite(w, typ)
	return w
}
