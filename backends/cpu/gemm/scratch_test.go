package gemm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// guardRest gives a workspace room for need bytes and more, and fills what it has beyond them. The function that it returns says which of the bytes there was
// written first, if one was. Both go through all of it at the speed of memory, as it is megabytes for each product.
func guardRest(t *testing.T, w *Workspace, need int) (written func() (int, bool)) {
	require.NoError(t, w.reserve(need+4<<20))
	rest := w.buf[need:]
	for r := rest; len(r) > 0; {
		r = r[copy(r, canaries):]
	}
	return func() (int, bool) {
		for at := 0; at < len(rest); at += len(canaries) {
			part := rest[at:min(at+len(canaries), len(rest))]
			if !bytes.Equal(part, canaries[:len(part)]) {
				return at + slices.IndexFunc(part, func(b byte) bool { return b != canary }), true
			}
		}
		return 0, false
	}
}

const canary = 0xa5

var canaries = bytes.Repeat([]byte{canary}, 1<<16)

// TestScratchStaysInItsMemory: sums that go through scratch memory, because C has another type or lies by columns, take no more of it than
// WorkspaceBytes says and meet no other worker's. The blocks of these products are larger than that unless it bounds them.
func TestScratchStaysInItsMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 82))
	w := new(Workspace)
	defer w.Close()
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
						written := guardRest(t, w, need)
						o.Workspace = w
						require.NoError(t, Mul(c, a, b, &o), name)
						if i, bad := written(); bad {
							t.Fatalf("%s: byte %d behind the %d of the workspace was written", name, i, need)
						}
						if first == nil {
							first = got
						}
						require.True(t, bytes.Equal(first, got), "%s: other bits than with one thread", name)
						if typ != kind.wide {
							continue
						}
						rows, columns := unsafe.Slice((*uint32)(want.ptr), m*n), unsafe.Slice((*uint32)(c.ptr), m*n)
						for i := range m {
							for j, x := range rows[i*n : (i+1)*n] {
								if y := columns[j*m+i]; x != y {
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

// TestChunksStayInTheirMemory: chunks of B that workers pack or widen for themselves take no more than the room that they have for it, also where few
// rows meet many short columns, a call goes through much of B at once, and chunks are not there to be used again.
func TestChunksStayInTheirMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(83, 84))
	w := new(Workspace)
	defer w.Close()
	kn, err := NewKnobs(map[string]int{"low-rows": 0, "macs-per-worker": 1})
	require.NoError(t, err)
	for _, isa := range isas() {
		trials := 15
		if isa == cpuinfo.Portable || testing.Short() {
			trials = 4
		}
		for trial := range trials {
			m, n, k := 1+r.IntN(7), 3000+r.IntN(6000), 1+r.IntN(130)
			switch trial % 5 {
			case 1: // more rows than one strip
				m, n = 8+r.IntN(70), 200+r.IntN(1500)
			case 2: // longer columns
				n, k = 500+r.IntN(1500), 300+r.IntN(500)
			}
			for _, ty := range pairs {
				a, b := operand(r, ty.a, m, k), operand(r, ty.b, n, k).T()
				o := Options{ISA: isa, BF16: ty.mode}
				pb, err := PackB(b, &o)
				require.NoError(t, err)
				want := make([]byte, 4*m*n)
				require.NoError(t, MulPacked(Raw(ty.c, want, m, n, n, 1), a, pb, &o))
				for _, packed := range []bool{false, true} {
					for _, threads := range []int{1, 3} {
						name := fmt.Sprintf("%v %v: %d x %d x %d, packed %v, %d threads", isa, ty, m, n, k, packed, threads)
						got := make([]byte, 4*m*n)
						c := Raw(ty.c, got, m, n, n, 1)
						o := Options{ISA: isa, BF16: ty.mode, Threads: threads}
						x := call{c: c, a: a, b: b}
						if packed {
							o.Knobs = kn // they are widened although rows are few
							x.b, x.pb = Matrix{Rows: k, Cols: n, typ: ty.b}, pb
						}
						use, err := o.knobs()
						require.NoError(t, err)
						var p product
						require.NoError(t, p.set(&x, &o, isa, use, false))
						need := p.lay(cpuinfo.Get()).size
						written := guardRest(t, w, need)
						o.Workspace = w
						require.NoError(t, multiply(&x, &o), name)
						if i, bad := written(); bad {
							t.Fatalf("%s: byte %d behind the %d of the workspace was written", name, i, need)
						}
						require.True(t, bytes.Equal(want, got), "%s: other bits than packed", name)
					}
				}
				require.NoError(t, pb.Close())
			}
		}
	}
}
