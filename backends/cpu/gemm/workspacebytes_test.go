package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestWorkspaceBytes compares the size that is foretold with what a new workspace holds after the product.
func TestWorkspaceBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range 300 {
		m, n, k := 1+rng.IntN(150), 1+rng.IntN(300), 1+rng.IntN(300)
		if rng.IntN(3) == 0 {
			m = 1 + rng.IntN(6)
		}
		o := Options{Threads: 1 + rng.IntN(3)}
		c := Of(make([]float32, m*n), m, n)
		a := Of(make([]float32, m*k), m, k)
		b := Of(make([]float32, k*n), k, n)
		switch rng.IntN(4) {
		case 0:
			a = Raw(BF16, make([]byte, 2*m*k), m, k, k, 1)
		case 1: // rows of whole pages
			a = View(make([]float32, m*1024), m, k, 1024, 1)
		case 2:
			a = View(make([]float32, k*m), m, k, 1, m)
		}
		if rng.IntN(3) == 0 {
			b = View(make([]float32, k*n), k, n, 1, k)
		}
		integer := rng.IntN(4) == 0
		if integer {
			a, b, c = Of(make([]uint8, m*k), m, k), Of(make([]int8, k*n), k, n), Of(make([]int32, m*n), m, n)
		} else if a.typ == BF16 {
			b = Raw(BF16, make([]byte, 2*k*n), k, n, n, 1)
		}
		var pb *PackedB
		if rng.IntN(2) == 0 {
			var err error
			if pb, err = PackB(b, &o); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) == 0 && !integer {
			c = Raw(BF16, make([]byte, 2*m*n), m, n, n, 1)
		}
		blank := func(x Matrix) Matrix { return Raw(x.typ, nil, x.Rows, x.Cols, x.RowStride, x.ColStride) }
		want, err := WorkspaceBytes(blank(c), blank(a), blank(b), pb, &o)
		if err != nil {
			t.Fatal(err)
		}
		w := &Workspace{}
		o.Workspace = w
		if pb != nil {
			err = MulPacked(c, a, pb, &o)
		} else {
			err = Mul(c, a, b, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if w.Cap() != want {
			t.Errorf("%d x %d x %d, A %v strides %d %d, packed %t: the workspace holds %d bytes, foretold were %d", m, n, k, a.typ, a.RowStride, a.ColStride,
				pb != nil, w.Cap(), want)
		}
		held += w.Cap()
		_ = w.Close()
	}
	if held == 0 {
		t.Error("no product packed anything")
	}
}

// What a product plans does not depend on the one that used its workspace before.
func TestPlansAreFresh(t *testing.T) {
	kn := knobTable.Defaults()
	whole := 0
	for _, isa := range isas() {
		for _, ty := range [][3]Type{{F32, F32, F32}, {BF16, BF16, F32}, {F16, F32, F16}, {S8, S8, S32}, {U8, S8, S32}, {U8, S8, F32}} {
			for _, s := range [][3]int{{1, 70, 40}, {6, 33, 64}, {40, 40, 40}, {40, 40, 41}, {200, 300, 1024}} {
				m, n, k := s[0], s[1], s[2]
				blank := func(typ Type, rows, cols int) Matrix { return Raw(typ, nil, rows, cols, cols, 1) }
				b := blank(ty[1], k, n)
				f, err := packFormat(ty[1], &Options{ISA: isa})
				require.NoError(t, err)
				for _, pb := range []*PackedB{nil, {f: f, k: k, n: n}} {
					x := call{c: blank(ty[2], m, n), a: blank(ty[0], m, k), b: b, pb: pb}
					plan := func(p product) (product, regions) {
						require.NoError(t, p.set(&x, &Options{Threads: 1}, isa, kn, false))
						l := p.lay(cpuinfo.Get())
						p.pb = nil
						return p, l
					}
					want, l := plan(product{})
					got, l2 := plan(product{height: 3, packA: true, packB: true, packTail: true, byPanel: true, copyA: true, once: true, localA: true, localB: true,
						packRows: true, axpy: true, pairs: true, pairsInPlace: true, widen: true, scratch: true, front: 640, aZero: 7})
					require.Equal(t, l, l2, "%v %v %v, packed %v", isa, ty, s, pb != nil)
					require.Equal(t, want.front, got.front)
					require.Equal(t, want.aZero, got.aZero)
					require.Equal(t, want.height, got.height)
					require.Equal(t, [...]bool{want.packA, want.packB, want.packTail, want.byPanel, want.copyA, want.once, want.localA, want.localB, want.packRows, want.axpy,
						want.pairs, want.pairsInPlace, want.widen, want.scratch}, [...]bool{got.packA, got.packB, got.packTail, got.byPanel, got.copyA, got.once, got.localA,
						got.localB, got.packRows, got.axpy, got.pairs, got.pairsInPlace, got.widen, got.scratch}, "%v %v %v, packed %v", isa, ty, s, pb != nil)
					if l.whole {
						whole++
					}
				}
			}
		}
	}
	require.Positive(t, whole)
}

// Where an epilogue adds After, which may be C itself, the larger of both is foretold.
func TestWorkspaceBytesWithAfter(t *testing.T) {
	for _, isa := range isas() {
		for _, a := range []Type{F32, BF16} {
			for _, s := range [][3]int{{3, 40, 30}, {65, 103, 412}, {100, 200, 300}} {
				m, n, k := s[0], s[1], s[2]
				if isa == cpuinfo.Portable {
					m, n, k = ceilDiv(m, 4), ceilDiv(n, 4), ceilDiv(k, 4)
				}
				blank := func(typ Type, rows, cols int) Matrix {
					return Raw(typ, make([]byte, rows*cols*typ.Size()), rows, cols, cols, 1)
				}
				c, x, b, other := blank(F32, m, n), blank(a, m, k), blank(F32, k, n), blank(F32, m, n)
				held := 0
				var foretold [2]int
				for i, after := range []Matrix{c, other} {
					o := &Options{ISA: isa, Threads: 2, Epilogue: &Epilogue{After: after}, Workspace: new(Workspace)}
					var err error
					foretold[i], err = WorkspaceBytes(c, x, b, nil, o)
					require.NoError(t, err)
					require.NoError(t, Mul(c, x, b, o))
					held = max(held, o.Workspace.Cap())
					require.NoError(t, o.Workspace.Close())
				}
				require.Equal(t, [2]int{held, held}, foretold, "%v %v %v", isa, a, s)
			}
		}
	}
}

// Each part of an A that is packed in parts fits into the memory for it: one of a few rows less may have lower strips, which take more padding.
func TestPartsOfPackedAFit(t *testing.T) {
	kn, err := NewKnobs(map[string]int{"pack-limit": 1 << 16})
	require.NoError(t, err)
	parts := 0
	for _, k := range usable() {
		typ := map[Type]Type{F32: BF16, BF16: BF16, S8: S8, s16: S8}[k.a.elem]
		for m := 1; m <= 500; m++ {
			for _, depth := range []int{100, 600, 1500} {
				p := product{kern: k, bf: k.b, kn: kn.v, threads: 1, m: m, n: k.b.nr, k: depth, pb: &PackedB{f: k.b, n: k.b.nr, k: depth},
					a: Raw(typ, nil, m, depth, 1, m)}
				l := p.lay(cpuinfo.Get())
				if !p.packA {
					continue
				}
				end := l.size
				for _, at := range []int{l.b, l.sum, l.row, l.worker} {
					if at > l.a {
						end = min(end, at)
					}
				}
				for m0 := 0; m0 < m; m0 += l.mS {
					p.cutRows(min(l.mS, m-m0))
					need := p.packedRow(p.strips) * k.packedSteps(ceilDiv(l.kS, k.a.kr)) * 4
					require.LessOrEqual(t, need, end-l.a, "%s: %d rows of %d from row %d on, %d a part", k.name, m, depth, m0, l.mS)
					parts++
				}
			}
		}
	}
	require.Positive(t, parts)
}
