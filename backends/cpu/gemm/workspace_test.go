package gemm

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/par"
)

// TestWorkspaceGrows: 64-byte aligned, by powers of two, never smaller, from a preset capacity on, on the heap and outside it.
func TestWorkspaceGrows(t *testing.T) {
	for _, preset := range []int{0, 1, 1 << 16, 1<<16 + 1, mapFrom - 1, mapFrom, mapFrom + 1, 5 << 20} {
		w, err := NewWorkspace(preset)
		require.NoError(t, err)
		last := w.Cap()
		require.GreaterOrEqual(t, last, preset)
		for _, n := range []int{preset, 10, 70_000, 1 << 20, 100, 3 << 20} {
			require.NoError(t, w.reserve(n))
			require.GreaterOrEqual(t, w.Cap(), max(n, last))
			require.Zero(t, w.Cap()&(w.Cap()-1), "%d bytes are no power of two", w.Cap())
			if n <= last {
				require.Equal(t, last, w.Cap(), "enough is left alone")
			}
			last = w.Cap()
			if last > 0 {
				require.Zero(t, uintptr(w.at(0))%mem.Align)
				b := unsafe.Slice((*byte)(w.at(0)), last)
				b[0], b[last-1] = 1, 2
			}
		}
		require.NoError(t, w.Close())
		require.Zero(t, w.Cap())
		require.NoError(t, w.reserve(100), "a closed workspace grows again")
		require.NoError(t, w.Close())
	}
	_, err := NewWorkspace(maxInt)
	require.ErrorIs(t, err, mem.ErrOverflow)
	require.ErrorContains(t, err, fmt.Sprint(maxInt))
}

// TestRegions: what a layout hands out is aligned, does not overlap, and every size is checked at the byte product.
func TestRegions(t *testing.T) {
	var l layout
	end := 0
	for _, f := range [][]int{{1}, {64}, {3, 5, 4}, {0}, {65}, {7, 1024}} {
		at := l.region(f...)
		require.Zero(t, at%mem.Align)
		require.GreaterOrEqual(t, at, end)
		n := 1
		for _, v := range f {
			n *= v
		}
		end = at + n
		require.GreaterOrEqual(t, l.size, end)
	}
	for _, f := range [][]int{{maxInt}, {maxInt/2 + 1, 2}, {maxInt / 4, 4, 2}, {1 << 15, 1 << 15, 1 << 15, 1 << 20}, {maxInt - 60}, {-1}} {
		bad := layout{size: 64}
		bad.region(f...)
		require.True(t, bad.bad, "%v", f)
		require.Equal(t, 64, bad.size, "a refused region takes nothing")
	}
}

// TestOwnWorkspaceIsUsed: a call takes its memory from the workspace that it is given, a preset one does not grow, the second call needs no
// more than the first, and the bits are those of a call without one.
func TestOwnWorkspaceIsUsed(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for _, c := range []struct {
		typ     Type
		m, n, k int
		col     bool
	}{{F32, 70, 90, 120, false}, {F32, 70, 90, 120, true}, {BF16, 30, 90, 120, false}, {S8, 70, 90, 120, false}, {F16, 3, 50, 40, false}} {
		at, ct := F32, F32
		if c.typ == S8 {
			at, ct = S8, S32
		}
		a, b := operand(r, at, c.m, c.k), operand(r, c.typ, c.k, c.n)
		if c.col {
			b = operand(r, c.typ, c.n, c.k).T()
		}
		out := func() Matrix { return Raw(ct, make([]byte, 4*c.m*c.n), c.m, c.n, c.n, 1) }
		want, got := out(), out()
		require.NoError(t, Mul(want, a, b, nil))
		var grown Workspace
		require.NoError(t, Mul(got, a, b, &Options{Workspace: &grown}))
		first := grown.Cap()
		require.Positive(t, first, "%v has to pack", c)
		require.NoError(t, Mul(got, a, b, &Options{Workspace: &grown}))
		require.Equal(t, first, grown.Cap())
		preset, err := NewWorkspace(1 << 24)
		require.NoError(t, err)
		require.NoError(t, Mul(got, a, b, &Options{Workspace: preset}))
		require.Equal(t, 1<<24, preset.Cap())
		for i := range c.m {
			require.Equal(t, want.bytes(i), got.bytes(i), "%v", c)
		}
		require.NoError(t, preset.Close())
		require.NoError(t, grown.Close())
	}
}

// TestNothingPackedNothingReserved: products whose operands are read as they are reserve no memory.
func TestNothingPackedNothingReserved(t *testing.T) {
	r := rand.New(rand.NewPCG(43, 44))
	e, err := engineFor(isas()[len(isas())-1], F32, F32, format{}, Auto)
	require.NoError(t, err)
	n, k := 3*e.pack.nr, 40
	for _, m := range []int{1, 2, 3, 30} {
		a, b, c := Of(floats(r, m*k), m, k), Of(floats(r, k*n), k, n), Of(make([]float32, m*n), m, n)
		pb, err := PackB(b, nil)
		require.NoError(t, err)
		pa, err := PackA(a, F32, nil)
		require.NoError(t, err)
		var w Workspace
		o := &Options{Workspace: &w, Threads: 1}
		require.NoError(t, MulPackedAB(c, pa, pb, o))
		require.Zero(t, w.Cap(), "both packed, %d rows", m)
		if m <= 3 {
			require.NoError(t, MulPacked(c, a, pb, o))
			require.NoError(t, Mul(c, a, b, o))
			require.Zero(t, w.Cap(), "whole panels of B in place, %d rows", m)
		}
	}
}

// TestPacks: what the workspace counts is what the product copied.
func TestPacks(t *testing.T) {
	r := rand.New(rand.NewPCG(49, 50))
	packs := func(m, n, k int, values map[string]int, prepacked bool) [2]int {
		kn, err := NewKnobs(values)
		require.NoError(t, err)
		var w Workspace
		defer w.Close()
		a, b, c := Of(floats(r, m*k), m, k), Of(floats(r, k*n), k, n), Of(make([]float32, m*n), m, n)
		o := &Options{Workspace: &w, Threads: 1, Knobs: kn}
		for range 2 { // the counts are those of one product
			if prepacked {
				pb, err := PackB(b, nil)
				require.NoError(t, err)
				require.NoError(t, MulPacked(c, a, pb, o))
			} else {
				require.NoError(t, Mul(c, a, b, o))
			}
		}
		x, y := w.Packs()
		return [2]int{x, y}
	}
	whole := map[string]int{"b-local-rows": 0, "b-in-place-bytes": 0} // B is packed at once, not by its users
	require.Equal(t, 1, packs(200, 300, 100, whole, false)[1])
	require.Greater(t, packs(200, 300, 100, map[string]int{"b-in-place-bytes": 0, "kc-max": 16, "kc-min": 16}, false)[1], 1, "chunks")
	require.Zero(t, packs(200, 300, 100, nil, true)[1])
	require.Zero(t, packs(2, 64, 30, nil, false)[0], "rows of A in place")
}

// TestAbsurdProblemsAreRefused: repeated operands make problems of any size out of a few bytes. What no machine computes is refused before
// anything is written, also where nothing would be packed, and so is packing what no memory holds.
func TestAbsurdProblemsAreRefused(t *testing.T) {
	one, c := []float32{1, 2}, []float32{7, 7}
	huge := maxInt / 2
	wide := View(one, 1, huge, 0, 0)
	C := Of(c[:1], 1, 1)
	calls := map[string]func() error{
		"row":       func() error { return Mul(View(c, 1, huge, 0, 1), Of(one[:1], 1, 1), wide, nil) },
		"pack B":    func() error { _, err := PackB(View(one, huge, huge, 0, 0), nil); return err },
		"pack B s8": func() error { _, err := PackB(View([]int8{1}, huge, 3, 0, 0), nil); return err },
		"pack A":    func() error { _, err := PackA(View(one, huge, huge, 0, 0), F32, nil); return err },
		"batch": func() error {
			return MulBatch(C, Of(one[:1], 1, 1), Of(one[:1], 1, 1), Batch{Dims: [3]int{huge, huge, huge}}, nil)
		},
	}
	var w Workspace
	if uint64(huge) > 1<<40 { // else it takes seconds, not years
		calls["in place"] = func() error { return Mul(C, wide, View(one, huge, 1, 0, 0), &Options{Workspace: &w}) }
		calls["add"] = func() error { return MulAdd(2, wide, View(one, huge, 1, 0, 0), 1, C, &Options{Workspace: &w}) }
	}
	for name, call := range calls {
		require.Error(t, call(), name)
		require.Equal(t, []float32{7, 7}, c, name)
	}
	require.Zero(t, w.Cap())
}

// TestSizesAreForetoldForAnyShape: whatever numbers stand for the shapes, strides and types of operands, sizes are bytes or an error. Packing of no
// elements takes no memory, however many rows have none.
func TestSizesAreForetoldForAnyShape(t *testing.T) {
	r := rand.New(rand.NewPCG(53, 54))
	number := func() int { return int(uint(r.Uint64())>>(1+r.IntN(bits.UintSize-2))) + r.IntN(3) - 1 } // all sizes are about as likely
	refused, known := 0, 0
	for range 4000 {
		ty := pairs[r.IntN(len(pairs))]
		m, n, k := number(), number(), number()
		matrix := func(typ Type, rows, cols int) Matrix {
			strides := []int{0, 1, rows, cols, number()}
			return Raw(typ, nil, rows, cols, strides[r.IntN(len(strides))], strides[r.IntN(len(strides))])
		}
		o := &Options{ISA: isas()[r.IntN(len(isas()))], Threads: r.IntN(70), BF16: ty.mode}
		a, b, c := matrix(ty.a, m, k), matrix(ty.b, k, n), matrix(ty.c, m, n)
		sizes := map[string]func() (int, error){"product": func() (int, error) { return WorkspaceBytes(c, a, b, nil, o) }}
		if ty.b != S8 {
			sizes["staged"] = func() (int, error) { w, shared, err := StagedBytes(c, a, b, o); return min(w, shared), err }
		}
		for name, size := range sizes {
			require.NotPanics(t, func() {
				bytes, err := size()
				require.GreaterOrEqual(t, bytes, 0, "%s: %d x %d x %d", name, m, n, k)
				if err != nil {
					refused++
				} else {
					known++
				}
			}, "%s: %v %v %v", name, a, b, c)
		}
	}
	require.Greater(t, refused, 500)
	require.Greater(t, known, 500)
	for _, ty := range pairs {
		for _, isa := range isas() {
			p, err := PackA(Raw(ty.a, nil, maxInt/16, 0, 0, 1), ty.b, &Options{ISA: isa, BF16: ty.mode})
			require.NoError(t, err)
			require.Zero(t, p.Bytes())
		}
	}
}

// TestWorkspaceKeepsNoOperand: a workspace that lives on does not keep the memory of what it multiplied.
func TestWorkspaceKeepsNoOperand(t *testing.T) {
	for _, ty := range pairs {
		for _, s := range [][3]int{{1, 700, 700}, {8, 64, 64}, {30, 64, 256}, {130, 200, 100}, {300, 300, 260}} {
			for _, packed := range []bool{false, true} {
				m, n, k := s[0], s[1], s[2]
				w := &Workspace{}
				var freed atomic.Int32
				func() {
					matrix := func(typ Type, rows, cols int) Matrix {
						data := make([]byte, rows*cols*typ.Size())
						runtime.AddCleanup(&data[0], func(n int32) { freed.Add(n) }, 1)
						return Raw(typ, data, rows, cols, cols, 1)
					}
					a, b, c := matrix(ty.a, m, k), matrix(ty.b, k, n), matrix(ty.c, m, n)
					o := &Options{Workspace: w, Threads: 2, BF16: ty.mode}
					for range 2 { // the second one may follow the plan of the first
						if !packed {
							require.NoError(t, Mul(c, a, b, o))
							continue
						}
						pb, err := PackB(b, o)
						require.NoError(t, err)
						at := &pb.data[0]
						if pb.mapped != nil { // outside the heap
							at = &make([]byte, 64)[0]
						}
						runtime.AddCleanup(at, func(n int32) { freed.Add(n) }, 10)
						require.NoError(t, MulPacked(c, a, pb, o))
					}
				}()
				want := int32(3)
				if packed {
					want = 23
				}
				require.Eventually(t, func() bool { runtime.GC(); return freed.Load() == want }, 30*time.Second, time.Millisecond,
					"%v x %v, %v, packed %v: %d of %d", ty.a, ty.b, s, packed, freed.Load(), want)
				runtime.KeepAlive(w)
			}
		}
	}
}

// TestWorkersOfACall: no more than GOMAXPROCS, than the limit, or than the product is worth.
func TestWorkersOfACall(t *testing.T) {
	old := runtime.GOMAXPROCS(6)
	defer runtime.GOMAXPROCS(old)
	r := rand.New(rand.NewPCG(45, 46))
	workers := func(m, n, k, limit int) int {
		var w Workspace
		defer w.Close()
		require.NoError(t, Mul(Of(make([]float32, m*n), m, n), Of(floats(r, m*k), m, k), Of(floats(r, k*n), k, n), &Options{Workspace: &w, Threads: limit}))
		return len(w.prod.workers)
	}
	require.Equal(t, 6, workers(960, 960, 100, 0), "GOMAXPROCS by default")
	require.Equal(t, 2, workers(400, 400, 200, 2), "the limit of the call")
	require.LessOrEqual(t, workers(400, 400, 200, 64), 64)
	require.LessOrEqual(t, workers(4, 4, 4, 0), 1, "64 multiply-adds are no work for two")
	require.Equal(t, 1, workers(400, 400, 200, 1))
}

// TestBitsOfEveryNumberOfWorkers: 1 to 64 workers that do exist, for every type, packed and not, with an epilogue, and from inside another
// region and several callers at once.
func TestBitsOfEveryNumberOfWorkers(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 48))
	const m, n, k = 90, 200, 60
	kn, err := NewKnobs(map[string]int{"macs-per-worker": 1000}) // else a product of this size has three workers
	require.NoError(t, err)
	for _, typ := range []Type{F32, BF16, F16, S8} {
		at, ct := F32, F32
		o := Options{Epilogue: &Epilogue{Bias: floats(r, n), Act: GELU}}
		if typ == S8 {
			at, ct, o = U8, S32, Options{}
		}
		a, b := operand(r, at, m, k), operand(r, typ, k, n)
		pb, err := PackB(b, nil)
		require.NoError(t, err)
		want := Raw(ct, make([]byte, 4*m*n), m, n, n, 1)
		first := o
		first.Threads = 1
		require.NoError(t, Mul(want, a, b, &first))
		check := func(threads int) error {
			c := Raw(ct, make([]byte, 4*m*n), m, n, n, 1)
			mine := o
			mine.Threads, mine.Knobs = threads, kn
			for _, packed := range []bool{false, true} {
				err := error(nil)
				if packed {
					err = MulPacked(c, a, pb, &mine)
				} else {
					err = Mul(c, a, b, &mine)
				}
				if err != nil {
					return err
				}
				for i := range m {
					if string(want.bytes(i)) != string(c.bytes(i)) {
						return fmt.Errorf("%v, packed %v, %d workers: row %d differs", typ, packed, threads, i)
					}
				}
			}
			return nil
		}
		old := runtime.GOMAXPROCS(64)
		for _, threads := range []int{1, 2, 3, 5, 8, 13, 31, 64} {
			require.NoError(t, check(threads))
		}
		runtime.GOMAXPROCS(4)
		var nested regionOf
		nested.do = func(job int) error { return check(1 + job%5) }
		var wg sync.WaitGroup
		for range 3 {
			wg.Add(1)
			go func() { defer wg.Done(); par.Run(0, 6, &nested) }()
		}
		wg.Wait()
		runtime.GOMAXPROCS(old)
		if err := nested.failed.Load(); err != nil {
			t.Error(*err)
		}
	}
}

type regionOf struct {
	do     func(job int) error
	failed atomic.Pointer[error]
}

func (r *regionOf) Do(_, job int) {
	if err := r.do(job); err != nil {
		r.failed.Store(&err)
	}
}
