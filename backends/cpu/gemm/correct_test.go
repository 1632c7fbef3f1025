package gemm

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
)

// guardedFloats copies v to memory whose last byte is followed by an unreadable page.
func guardedFloats(t *testing.T, v []float32) []float32 {
	data, release, err := mem.Guarded(4 * len(v))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("no guard pages here")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, release()) })
	g := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), len(v))
	copy(g, v)
	return g
}

// Kernels that read or write past the end fault here (flame/blis issue 635, OpenBLAS issue 4013).
func TestOperandsEndAtAGuardPage(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, isa := range isas() {
		for _, s := range edgeShapes(r, 25) {
			m, n, k := s[0], s[1], s[2]
			a, b := guardedFloats(t, floats(r, m*k)), guardedFloats(t, floats(r, k*n))
			c := guardedFloats(t, make([]float32, m*n))
			want := refFloat(Of(a, m, k), Of(b, k, n))
			o := &Options{ISA: isa, Threads: 1}
			require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), Of(b, k, n), o))
			equal(t, want, c, "%v %v", isa, s)
			wantT := refFloat(Of(a, m, k), View(b, k, n, 1, k))
			require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), View(b, k, n, 1, k), o))
			equal(t, wantT, c, "%v %v, transposed B", isa, s)
		}
	}
}

// Rows of B in place that lie as far apart as the steps of a packed panel are no panel: the last one ends where its columns do.
func TestRowsAPanelApartEndAtAGuardPage(t *testing.T) {
	r := rand.New(rand.NewPCG(47, 48))
	for _, isa := range isas() {
		for _, pitch := range []int{8, 16, 32, 64} {
			for _, n := range []int{1, pitch/2 - 1, pitch / 2, pitch/2 + 1, pitch - 1, pitch, pitch + 1, 2*pitch - 1} { // wider rows overlap
				for _, k := range []int{1, 2, 7, 52} {
					b := guardedFloats(t, floats(r, (k-1)*pitch+n))
					B := View(b, k, n, pitch, 1)
					for _, m := range []int{1, 3, 4, 6, 14, 30} {
						a := guardedFloats(t, floats(r, m*k))
						want := refFloat(Of(a, m, k), B)
						p, err := PackA(Of(a, m, k), F32, &Options{ISA: isa})
						require.NoError(t, err)
						c := make([]float32, m*n)
						require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), B, &Options{ISA: isa, Threads: 1}))
						equal(t, want, c, "%v %d x %d x %d, pitch %d", isa, m, n, k, pitch)
						c = make([]float32, m*n)
						require.NoError(t, MulPackedA(Of(c, m, n), p, B, &Options{ISA: isa, Threads: 1}))
						equal(t, want, c, "%v %d x %d x %d, pitch %d, packed A", isa, m, n, k, pitch)
					}
				}
			}
		}
	}
}

// NaN and infinity come through, and C is not read without Accumulate (rten pull request 81, OpenBLAS issue 2534).
func TestNaNPropagatesAndOldCIsIgnored(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	r := rand.New(rand.NewPCG(23, 24))
	for _, isa := range isas() {
		for _, s := range edgeShapes(r, 30) {
			m, n, k := s[0], s[1], s[2]
			a, b, c := floats(r, m*k), floats(r, k*n), make([]float32, m*n)
			for i := range c {
				c[i] = nan
			}
			o := &Options{ISA: isa}
			require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), Of(b, k, n), o))
			equal(t, refFloat(Of(a, m, k), Of(b, k, n)), c, "old C read: %v %v", isa, s)
			// A zero times NaN is NaN in its row only; infinity times zero too (gonum issue 224).
			row, col, t0 := r.IntN(m), r.IntN(n), r.IntN(k)
			a[row*k+t0] = 0
			b[t0*n+col] = []float32{nan, inf}[r.IntN(2)]
			require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), Of(b, k, n), o))
			require.True(t, c[row*n+col] != c[row*n+col], "%v %v", isa, s)
			for i := range m {
				for j := range n {
					if j != col && c[i*n+j] != c[i*n+j] {
						t.Fatalf("NaN leaked to column %d: %v %v", j, isa, s)
					}
				}
			}
		}
	}
}

// NaN in the gap between rows stays there (oneDNN issue 5717).
func TestGapsAreNotRead(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 26))
	for _, isa := range isas() {
		for _, k := range []int{1, 2, 3, 31, 32, 33, 47, 48, 49, 63, 64, 65} {
			const m, n, gap = 16, 64, 5
			a, b := make([]BFloat16, m*(k+gap)), make([]BFloat16, k*(n+gap))
			for i := range a {
				a[i] = 0x7fc0
			}
			for i := range b {
				b[i] = 0x7fc0
			}
			for i := range m {
				for q := range k {
					a[i*(k+gap)+q] = BFloat16(toBF16(float32(r.IntN(5) - 2)))
				}
			}
			for q := range k {
				for j := range n {
					b[q*(n+gap)+j] = 0x3f80
				}
			}
			A, B := View(a, m, k, k+gap, 1), View(b, k, n, n+gap, 1)
			for _, mode := range []BF16Mode{Widen, Dot} {
				c := make([]float32, m*n)
				require.NoError(t, Mul(Of(c, m, n), A, B, &Options{ISA: isa, BF16: mode}))
				equal(t, refFloat(A, B), c, "%v k %d mode %d", isa, k, mode)
			}
		}
	}
}

// Small integers are exact in f32, so that one product too many or too few is seen, for every rest of k.
func TestSmallIntegersExact(t *testing.T) {
	for _, isa := range isas() {
		for k := 1; k <= 70; k++ {
			const m, n = 15, 37
			a, b := make([]float32, m*k), make([]float32, k*n)
			for i := range a {
				a[i] = float32(i%7 - 3)
			}
			for i := range b {
				b[i] = float32(i%5 - 2)
			}
			c := make([]float32, m*n)
			p, err := PackB(Of(b, k, n), &Options{ISA: isa})
			require.NoError(t, err)
			require.NoError(t, MulPacked(Of(c, m, n), Of(a, m, k), p, &Options{ISA: isa}))
			for i := range m {
				for j := range n {
					sum := 0
					for q := range k {
						sum += int(a[i*k+q]) * int(b[q*n+j])
					}
					if c[i*n+j] != float32(sum) {
						t.Fatalf("%v k %d: element %d, %d is %v, want %d", isa, k, i, j, c[i*n+j], sum)
					}
				}
			}
		}
	}
}

// |error| <= (8 + 2 sqrt K) eps sum|a||b| up to K = 2^20, with m = n = 2 (CLBlast issue 163: a k-sized stack).
func TestLongSums(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 28))
	ks := []int{1000, 4099, 1 << 16}
	if !testing.Short() {
		ks = append(ks, 1<<20)
	}
	for _, k := range ks {
		const m, n = 2, 2
		a, b, c := floats(r, m*k), floats(r, k*n), make([]float32, m*n)
		for _, B := range []Matrix{Of(b, k, n), View(b, k, n, 1, k)} {
			sums, bounds := sums64(Of(a, m, k), B)
			for _, isa := range isas() {
				if isa == cpuinfo.Portable && k > 1<<16 {
					continue
				}
				require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), B, &Options{ISA: isa}))
				for i, got := range c {
					require.InDelta(t, sums[i], float64(got), bounds[i], "%v k %d", isa, k)
				}
			}
		}
	}
}

// Views at every offset within a vector, and repeated rows.
func TestOffsetsAndRepeats(t *testing.T) {
	r := rand.New(rand.NewPCG(29, 30))
	const m, n, k = 14, 33, 19
	for _, isa := range isas() {
		for off := range 16 {
			a, b, c := floats(r, m*k+off)[off:], floats(r, k*n+off)[off:], make([]float32, m*n+off)[off:]
			require.NoError(t, Mul(Of(c, m, n), Of(a, m, k), Of(b, k, n), &Options{ISA: isa}))
			equal(t, refFloat(Of(a, m, k), Of(b, k, n)), c)
		}
		a, b, c := floats(r, k), floats(r, n), make([]float32, m*n)
		A, B := View(a, m, k, 0, 1), View(b, k, n, 0, 1)
		require.NoError(t, Mul(Of(c, m, n), A, B, &Options{ISA: isa}))
		equal(t, refFloat(A, B), c)
	}
}

// Wrong calls return errors and leave C alone.
func TestRefusals(t *testing.T) {
	buf := make([]float32, 64)
	c := []float32{1, 2, 3, 4}
	ones := []float32{1, 1, 1, 1}
	A, C := Of(ones, 2, 2), Of(c, 2, 2)
	huge := View(ones, 1<<20, 1<<29, 0, 0)
	for _, x := range []struct {
		err  string
		call func() error
	}{
		{"want C[M,N]", func() error { return Mul(C, A, Of(ones, 1, 4), nil) }},
		{"needs 6 elements", func() error { return Mul(C, Of(ones, 2, 3), Of(buf, 3, 2), nil) }},
		{"negative", func() error { return Mul(C, View(ones, 2, 2, -1, 1), A, nil) }},
		{"C overlaps A", func() error { return Mul(C, C, A, nil) }},
		{"C overlaps B", func() error { return Mul(C, A, C, nil) }},
		{"C overlaps A", func() error { return Mul(Of(buf[2:], 2, 2), Of(buf, 2, 2), A, nil) }},
		{"share memory", func() error { return Mul(View(c, 2, 2, 0, 1), A, A, nil) }},
		{"overflows", func() error { return Mul(View(c, 1<<20, 1<<20, math.MaxInt>>3, 1), huge, huge.T(), nil) }},
		{"no product", func() error { return Mul(C, A, Of([]int8{1, 1, 1, 1}, 2, 2), nil) }},
		{"Bias has length 3", func() error { return Mul(C, A, A, &Options{Epilogue: &Epilogue{Bias: buf[:3]}}) }},
		{"RowScale has length 3", func() error { return Mul(C, A, A, &Options{Epilogue: &Epilogue{RowScale: buf[:3]}}) }},
		{"residual", func() error { return Mul(C, A, A, &Options{Epilogue: &Epilogue{After: Of(buf, 3, 3)}}) }},
		{"overlaps the residual", func() error { return Mul(C, A, A, &Options{Epilogue: &Epilogue{Before: C}}) }},
		{"AZero", func() error { return Mul(C, A, A, &Options{AZero: 1}) }},
		{"closed", func() error { return MulPacked(C, A, nil, nil) }},
	} {
		require.ErrorContains(t, x.call(), x.err)
		require.Equal(t, []float32{1, 2, 3, 4}, c)
	}
	// The other entry points refuse the same before anything is written.
	pa, err := PackA(A, F32, nil)
	require.NoError(t, err)
	pb, err := PackB(A, nil)
	require.NoError(t, err)
	parts, err := NewPartsB(A, nil)
	require.NoError(t, err)
	parts = parts.Pack(1, nil)
	wrong, over := Of(buf[:6], 2, 3), &Options{Accumulate: true, Epilogue: &Epilogue{}}
	for name, mul := range map[string]func(c, x Matrix, o *Options) error{
		"MulPacked":   func(c, x Matrix, o *Options) error { return MulPacked(c, x, pb, o) },
		"MulPackedA":  func(c, x Matrix, o *Options) error { return MulPackedA(c, pa, x.T(), o) },
		"MulPackedAB": func(c, x Matrix, o *Options) error { c.Cols = 4 - x.Cols; return MulPackedAB(c, pa, pb, o) },
		"MulAdd":      func(c, x Matrix, o *Options) error { return MulAdd(2, x, A, 3, c, o) },
		"MulBatch":    func(c, x Matrix, o *Options) error { return MulBatch(c, x, A, Batch{}, o) },
		"MulStaged":   func(c, x Matrix, o *Options) error { return MulStaged(c, x, A, o) },
		"PartsB":      func(c, x Matrix, o *Options) error { return parts.Mul(c, x, o) },
	} {
		short := C
		short.len = 3
		require.ErrorContains(t, mul(C, wrong, nil), "want C[M,N]", name)
		require.ErrorContains(t, mul(C, A, over), "epilogue", name)
		require.ErrorContains(t, mul(short, A, nil), "elements", name)
		require.Equal(t, []float32{1, 2, 3, 4}, c, name)
	}
	// Columns of one buffer that do not touch are no overlap.
	require.NoError(t, Mul(View(buf, 2, 2, 8, 1), View(buf[2:], 2, 2, 8, 1), View(buf[4:], 2, 2, 8, 1), nil))
}

// The same bits for any number of workers, nested and concurrent calls included, on any GOMAXPROCS.
func TestSameBitsForAllWorkers(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	const m, n, k = 150, 210, 300
	a, b := Of(floats(r, m*k), m, k), Of(floats(r, k*n), k, n)
	want := make([]float32, m*n)
	require.NoError(t, Mul(Of(want, m, n), a, b, &Options{Threads: 1}))
	for _, procs := range []int{1, 2, 4} {
		old := runtime.GOMAXPROCS(procs)
		var wg sync.WaitGroup
		for _, threads := range []int{1, 2, 3, 7, 64} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c := make([]float32, m*n)
				if err := Mul(Of(c, m, n), a, b, &Options{Threads: threads}); err != nil {
					t.Error(err)
				}
				for i := range c {
					if c[i] != want[i] {
						t.Errorf("GOMAXPROCS %d, %d threads: element %d differs", procs, threads, i)
						return
					}
				}
			}()
		}
		wg.Wait()
		runtime.GOMAXPROCS(old)
	}
}

// Chunks of k with Accumulate are one chain.
func TestChunksOfK(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	const m, n, k = 9, 40, 100
	a, b := floats(r, m*k), floats(r, k*n)
	for _, isa := range isas() {
		c := make([]float32, m*n)
		for q, i := 0, 0; q < k; i++ {
			d := min(1+i*7, k-q)
			A, B := View(a[q:], m, d, k, 1), Of(b[q*n:], d, n)
			require.NoError(t, Mul(Of(c, m, n), A, B, &Options{ISA: isa, Accumulate: q > 0}))
			q += d
		}
		equal(t, refFloat(Of(a, m, k), Of(b, k, n)), c, isa)
	}
}

func TestNoAllocationAfterWarmUp(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	shapes := [][3]int{{1, 64, 64}, {1, 301, 77}, {3, 130, 65}, {8, 128, 64}, {14, 32, 33}, {15, 33, 34}, {70, 300, 200}, {130, 65, 1100}, {300, 70, 3}, {1100, 40, 40}}
	calls := 5
	if testing.Short() { // under emulation a product takes long; what allocates, does so at every call
		shapes, calls = [][3]int{{1, 301, 77}, {15, 33, 34}, {50, 200, 90}}, 1
	}
	if levels := isas(); levels[len(levels)-1] == cpuinfo.Portable {
		shapes = [][3]int{{1, 33, 9}, {5, 33, 10}} // plain Go takes its time
	}
	type types struct {
		a, b, c Type
		mode    BF16Mode
	}
	for _, ty := range []types{{F32, F32, F32, Auto}, {F32, BF16, F32, Auto}, {F32, F16, F32, Auto}, {BF16, BF16, F32, Widen}, {BF16, BF16, F32, Dot},
		{BF16, BF16, BF16, Auto}, {F16, F32, F16, Auto}, {S8, S8, S32, Auto}, {U8, S8, S32, Auto}, {S8, S8, F32, Auto}, {S8, S8, S8, Auto}, {U8, S8, U8, Auto}} {
		for _, s := range shapes {
			m, n, k := s[0], s[1], s[2]
			operand := func(t Type, rows, cols int) Matrix {
				switch t {
				case F32:
					return Of(floats(r, rows*cols), rows, cols)
				case BF16:
					return Of(bf16s(r, rows*cols), rows, cols)
				case S8:
					return Of(ints8(r, rows*cols), rows, cols)
				case U8:
					return Of(uints8(r, rows*cols), rows, cols)
				case S32:
					return Of(make([]int32, rows*cols), rows, cols)
				}
				return Of(make([]Float16, rows*cols), rows, cols)
			}
			a, at, b, bt, c := operand(ty.a, m, k), operand(ty.a, k, m).T(), operand(ty.b, k, n), operand(ty.b, n, k).T(), operand(ty.c, m, n)
			rows, cols, bias, residual := floats(r, m), floats(r, n), floats(r, n), Of(floats(r, m*n), m, n)
			epilogues := []*Epilogue{{RowScale: rows, ColScale: cols, Bias: bias, Before: residual, Act: GELU, After: residual, OutScale: 3, OutZero: 1}}
			if b.typ != S8 || ty.c == S32 {
				epilogues = append(epilogues, nil)
			}
			if ty.c == S32 {
				epilogues = epilogues[1:]
			}
			for _, threads := range []int{1, 3} {
				if testing.Short() && threads == 1 && m == 50 {
					continue // it is there for being large enough for several workers
				}
				for _, w := range []*Workspace{nil, {}} {
					for _, e := range epilogues {
						o := &Options{Workspace: w, Epilogue: e, Threads: threads, BF16: ty.mode}
						pb, err := PackB(b, o)
						require.NoError(t, err)
						pa, err := PackA(a, ty.b, o)
						require.NoError(t, err)
						for name, f := range map[string]func() error{
							"plain":              func() error { return Mul(c, a, b, o) },
							"A and B transposed": func() error { return Mul(c, at, bt, o) },
							"packed B":           func() error { return MulPacked(c, a, pb, o) },
							"packed A":           func() error { return MulPackedA(c, pa, b, o) },
							"packed":             func() error { return MulPackedAB(c, pa, pb, o) },
						} {
							require.NoError(t, f(), "%s %v %v", name, ty, s)
							// A worker that parks in the meantime may cost the runtime an allocation, once; what a call allocates, every measurement finds.
							n := testing.AllocsPerRun(calls, func() { _ = f() })
							for again := 0; n != 0 && again < 3; again++ {
								n = min(n, testing.AllocsPerRun(calls, func() { _ = f() }))
							}
							if n != 0 {
								t.Errorf("%s %v %v, %d threads, epilogue %v, own workspace %v: %v allocations a call", name, ty, s, threads, e != nil, w != nil, n)
							}
						}
					}
				}
			}
		}
	}
}

// Batches and the calls of BLAS allocate nothing either.
func TestNoAllocationInBatches(t *testing.T) {
	r := rand.New(rand.NewPCG(37, 38))
	const m, n, k, count = 33, 47, 29, 12
	a, b, c := Of(floats(r, count*m*k), m, k), Of(floats(r, count*k*n), k, n), Of(make([]float32, count*m*n), m, n)
	for _, threads := range []int{1, 3} {
		o := &Options{Threads: threads}
		batch := Batch{Dims: [3]int{3, 4}, A: [3]int{4 * m * k, m * k}, B: [3]int{4 * k * n, k * n}, C: [3]int{4 * m * n, m * n}}
		for name, f := range map[string]func() error{
			"batch":  func() error { return MulBatch(c, a, b, batch, o) },
			"MulAdd": func() error { return MulAdd(2, a, b, 3, c, o) },
			"C^T":    func() error { return Mul(View(make32(c), n, m, 1, n), b.T(), a.T(), o) },
		} {
			for range 3 {
				require.NoError(t, f(), name)
			}
			require.Zero(t, testing.AllocsPerRun(20, func() { _ = f() }), "%s, %d threads", name, threads)
		}
	}
}

// make32 gives the floats behind a matrix.
func make32(m Matrix) []float32 { return unsafe.Slice((*float32)(m.ptr), m.len) }

func TestWorkspace(t *testing.T) {
	w, err := NewWorkspace(100_000)
	require.NoError(t, err)
	require.Equal(t, 1<<17, w.Cap())
	require.Zero(t, uintptr(w.at(0))%mem.Align)
	w.busy.Lock()
	one := []float32{1}
	err = Mul(Of([]float32{0}, 1, 1), Of(one, 1, 1), Of(one, 1, 1), &Options{Workspace: w})
	require.ErrorContains(t, err, "in use")
	w.busy.Unlock()
	require.NoError(t, w.Close())
	require.Zero(t, w.Cap())
	require.ErrorIs(t, w.reserve(maxInt), mem.ErrOverflow)

	// Whole panels of a small row-major B and a few rows of A need no packing, hence no memory.
	e, err := engineFor(isas()[len(isas())-1], F32, F32, format{}, Auto)
	require.NoError(t, err)
	var empty Workspace
	n := 2 * e.pack.nr
	a, b, c := make([]float32, 2*8), make([]float32, 8*n), make([]float32, 2*n)
	require.NoError(t, Mul(Of(c, 2, n), Of(a, 2, 8), Of(b, 8, n), &Options{Workspace: &empty}))
	require.Zero(t, empty.Cap())
}

// Each level runs the suite in a process of its own, because the pin is read once.
func TestEachLevelInItsOwnProcess(t *testing.T) {
	if os.Getenv("TESSERA_ISA") != "" || testing.Short() {
		t.Skip("runs once, without -short")
	}
	levels := cpuinfo.Get().ISAs
	if len(levels) == 1 {
		levels = nil // the pin changes nothing: this process is the one of its only level
	}
	for _, isa := range levels {
		t.Run(isa.String(), func(t *testing.T) {
			tests := "TestFloatTypes|TestIntTypes|TestSmallIntegers|TestEpilogues|TestContract|TestNotFinite|TestGonum"
			if isa != cpuinfo.Portable {
				tests += "|TestNoAllocation"
			}
			cmd := exec.Command(os.Args[0], "-test.short", "-test.run="+tests)
			cmd.Env = append(os.Environ(), "TESSERA_ISA="+isa.String())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
	cmd := exec.Command(os.Args[0], "-test.run=TestRefusals")
	cmd.Env = append(os.Environ(), "TESSERA_ISA=mmx")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "mmx")
}

// finite replaces random bits by values of moderate size for float types.
func finite(b []byte, t Type) {
	for i := 0; i+t.Size() <= len(b); i += t.Size() {
		v := float32(int(b[i])-128) / 64
		switch t {
		case F32:
			*(*float32)(unsafe.Pointer(&b[i])) = v
		case BF16:
			*(*uint16)(unsafe.Pointer(&b[i])) = toBF16(v)
		case F16:
			*(*uint16)(unsafe.Pointer(&b[i])) = toF16(v)
		}
	}
}
