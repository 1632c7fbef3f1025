package gemm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// MulStaged gives the bits of MulPacked: types, both orders of B, few rows and many, columns in several pieces and in one, epilogues,
// workers, results in columns of a wider matrix.
func TestStagedGivesTheBitsOfPacked(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	shapes := [][2]int{{300, 1531}, {517, 700}, {64, 17}, {1, 5}, {3000, 130}}
	if testing.Short() { // under emulation these take longer than all of the kernels' tests; pieces and whole operands both remain
		shapes = [][2]int{{300, 400}, {64, 17}, {1, 5}}
	}
	for _, typ := range []Type{F32, BF16, F16} {
		for _, shape := range shapes {
			k, n := shape[0], shape[1]
			for _, flip := range []bool{false, true} {
				b := operand(r, typ, k, n)
				if flip {
					b = operand(r, typ, n, k).T()
				}
				packed, err := PackB(b, nil)
				require.NoError(t, err)
				bytes, err := PackedBytes(b, nil)
				require.NoError(t, err)
				require.Equal(t, packed.Bytes(), bytes)
				for _, m := range []int{1, 2, 7, 40} {
					at := F32
					if m == 7 && typ != F32 {
						at = typ
					}
					a, residual := operand(r, at, m, k), Of(make32(operand(r, F32, m, n))[:m*n], m, n)
					want, got := make([]float32, m*(n+3)), make([]float32, m*(n+3))
					for i, e := range []*Epilogue{nil, {Bias: make32(operand(r, F32, 1, n))[:n], Act: SiLU, After: residual}, {ColScale: make32(operand(r, F32, 1, n))[:n], Before: residual, Act: ReLU}} {
						o := &Options{Threads: 1 + i, Epilogue: e}
						require.NoError(t, MulPacked(View(want, m, n, n+3, 1), a, packed, o))
						require.NoError(t, MulStaged(View(got, m, n, n+3, 1), a, b, o))
						equal(t, want, got, "%v %v flip %v m=%d epilogue %d", typ, shape, flip, m, i)
					}
				}
				require.NoError(t, packed.Close())
			}
		}
	}
}

func TestStagedSideBySide(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	const m, n, k = 3, 900, 400
	a, b := operand(r, F32, m, k), operand(r, F16, n, k).T()
	p, err := PackB(b, nil)
	require.NoError(t, err)
	want := make([]float32, m*n)
	require.NoError(t, MulPacked(Of(want, m, n), a, p, nil))
	var wg sync.WaitGroup
	for threads := range 4 {
		wg.Go(func() {
			for range 5 {
				got := make([]float32, m*n)
				if err := MulStaged(Of(got, m, n), a, b, &Options{Threads: threads}); err != nil {
					t.Error(err)
				}
				for i := range got {
					if got[i] != want[i] {
						t.Errorf("%d threads: element %d is %v, want %v", threads, i, got[i], want[i])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestStagedBytes compares what is foretold with what the call holds, and looks for allocations once it has that.
func TestStagedBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	const n, k = 1000, 700
	b := operand(r, BF16, n, k).T()
	for _, m := range []int{1, 5, 30, 200} {
		Trim()
		w, err := NewWorkspace(0)
		require.NoError(t, err)
		a, c := operand(r, F32, m, k), Of(make([]float32, m*n), m, n)
		o := &Options{Threads: 2, Workspace: w}
		work, shared, err := StagedBytes(c, a, b, o)
		require.NoError(t, err)
		require.NoError(t, MulStaged(c, a, b, o))
		require.LessOrEqual(t, w.Cap(), work)
		require.Equal(t, shared, cap(stagings.list.data))
		require.Zero(t, testing.AllocsPerRun(10, func() { _ = MulStaged(c, a, b, o) }))
	}
	Trim()
	require.Nil(t, stagings.list)
}

// PackB hands back all columns, in order and each once, and packs the same.
func TestPackBReleases(t *testing.T) {
	r := rand.New(rand.NewPCG(39, 40))
	for _, typ := range []Type{F32, F16, BF16} {
		n, k := 5001, 1000
		if testing.Short() {
			n = 2501 // still several parts
		}
		raw := make([]byte, n*k*typ.Size())
		for i := range raw {
			raw[i] = byte(r.Uint32())
		}
		b := Raw(typ, raw, n, k, k, 1).T()
		want, err := PackB(b, nil)
		require.NoError(t, err)
		at, calls := 0, 0
		got, err := PackB(b, &Options{Release: func(columns []byte) {
			require.Same(t, &raw[at], &columns[0])
			at += len(columns)
			calls++
		}})
		require.NoError(t, err)
		require.Equal(t, len(raw), at)
		require.Greater(t, calls, 1)
		require.True(t, bytes.Equal(want.data, got.data))
		require.NoError(t, want.Close())
		require.NoError(t, got.Close())
	}
}

func TestStagedRefusals(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 38))
	c := Of(make([]float32, 6), 2, 3)
	require.ErrorContains(t, MulStaged(c, operand(r, F32, 2, 5), operand(r, F16, 4, 3), nil), "C is 2 x 3")
	require.ErrorContains(t, MulStaged(Raw(S32, make([]byte, 24), 2, 3, 3, 1), operand(r, S8, 2, 4), operand(r, S8, 4, 3), nil), "takes no integers")
	require.ErrorContains(t, MulStaged(c, operand(r, F32, 2, 4), operand(r, F16, 4, 3), &Options{Epilogue: &Epilogue{Bias: make([]float32, 2)}}), "Bias has length 2")
	require.NoError(t, MulStaged(Of([]float32{}, 0, 3), operand(r, F32, 0, 4), operand(r, F16, 4, 3), nil))
	c2 := []float32{1, 2, 3, 4, 5, 6}
	require.NoError(t, MulStaged(Of(c2, 2, 3), operand(r, F32, 2, 0), operand(r, F16, 0, 3), nil))
	require.Equal(t, make([]float32, 6), c2)
}

// BenchmarkStagedOneRow gives the rate at which products of one row read weights that are not packed and in no cache, beside the packed ones.
func BenchmarkStagedOneRow(b *testing.B) {
	for _, typ := range []Type{BF16, F16} {
		for _, size := range [][2]int{{768, 768}, {768, 2048}, {2048, 768}, {4096, 4096}} {
			k, n := size[0], size[1]
			var list []Matrix
			var packed []*PackedB
			for total := 0; total < 192<<20; total += 2 * n * k {
				raw := make([]byte, 2*n*k)
				for i := range raw {
					raw[i] = byte(i & 31) // small numbers, on pages of their own
				}
				m := Raw(typ, raw, n, k, k, 1).T()
				p, err := PackB(m, nil)
				require.NoError(b, err)
				list, packed = append(list, m), append(packed, p)
			}
			a, c := make([]float32, k), make([]float32, n)
			for _, staged := range []bool{true, false} {
				b.Run(fmt.Sprintf("%v/%dx%d/staged=%v", typ, k, n, staged), func(b *testing.B) {
					o := &Options{Threads: 1}
					b.SetBytes(int64(2 * n * k))
					for i := range b.N {
						var err error
						if staged {
							err = MulStaged(Of(c, 1, n), Of(a, 1, k), list[i%len(list)], o)
						} else {
							err = MulPacked(Of(c, 1, n), Of(a, 1, k), packed[i%len(list)], o)
						}
						if err != nil {
							b.Fatal(err)
						}
					}
				})
			}
			for _, p := range packed {
				_ = p.Close()
			}
		}
	}
}
