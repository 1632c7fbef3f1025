package ladder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/mem"
	"github.com/tessera-go/tessera/internal/rerun"
)

// TestSeedCounts asserts the counts of packings and the workspaces of the last two stages on 512 x 512 x 512, and what the other
// order of loops would cost.
func TestSeedCounts(t *testing.T) {
	ctx := context.Background()
	l, err := New(ctx, 512, 512, 512, 1, 1)
	require.NoError(t, err)
	defer l.Close()
	run := func(s Stage) Counts {
		clear(l.c)
		c, err := l.Run(ctx, s)
		require.NoError(t, err)
		require.NoError(t, l.Verify(), "%v", s)
		return c
	}
	packed, tiled := run(Packed), run(Tiled)
	if lanes := l.widest.lanes; MC%lanes == 0 {
		require.Equal(t, Counts{PacksA: 1, PacksB: 1, WorkspaceBytes: 2 << 20}, packed)
		require.Equal(t, Counts{PacksA: 8, PacksB: 1024, WorkspaceBytes: 132 << 10}, tiled)
	} else { // vectors of 384 bits: MC is a little less
		tiles := (512 + MC/lanes*lanes - 1) / (MC / lanes * lanes)
		require.Equal(t, [2]int{1, 1}, [2]int{packed.PacksA, packed.PacksB})
		require.Equal(t, [2]int{2 * tiles, 2 * 128 * tiles}, [2]int{tiled.PacksA, tiled.PacksB})
	}
	want := append([]float32(nil), l.c...)

	if testing.Short() {
		return // the other order copies 128 MiB, which takes long under emulation
	}
	clear(l.c)
	l.tile.packsA, l.tile.packsB = 0, 0
	require.NoError(t, l.tile.tiledColumnsFirst(ctx))
	require.Equal(t, 1024, l.tile.packsA)
	require.Equal(t, 256, l.tile.packsB)
	require.Equal(t, want, l.c, "the order of tiles does not change a sum")
}

func TestStagesOnEdges(t *testing.T) {
	ctx := context.Background()
	for _, size := range [][3]int{{1, 1, 1}, {3, 5, 2}, {4, 4, 4}, {7, 3, 9}, {8, 8, 3}, {15, 4, 17}, {16, 5, 31}, {17, 6, 33}, {31, 7, 64}, {33, 9, 257},
		{63, 4, 255}, {64, 1, 256}, {65, 2, 5}, {127, 8, 513}, {129, 3, 258}, {200, 11, 70}, {5, 130, 6}, {20, 6, 2*callSteps + 3}} {
		l, err := New(ctx, size[0], size[1], size[2], 1, 7)
		require.NoError(t, err)
		for _, s := range Stages() {
			for i := range l.c {
				l.c[i] = float32(1e30) // old C must not be read
			}
			_, err := l.Run(ctx, s)
			require.NoError(t, err)
			require.NoError(t, l.Verify(), "%v of %v", s, size)
		}
		require.NoError(t, l.Close())
	}
}

// TestKernelsAgainstGo compares each kernel of every level with its twin on small integers, which any order of sums adds exactly,
// with operands that end where memory ends.
func TestKernelsAgainstGo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var releases []func() error
	freeAll := func() {
		for _, release := range releases {
			require.NoError(t, release())
		}
		releases = nil
	}
	fill := func(n int) []float32 {
		data, release, err := mem.Guarded(n * 4)
		if errors.Is(err, errors.ErrUnsupported) {
			data, release = mem.Bytes(n*4), func() error { return nil }
		} else {
			require.NoError(t, err)
		}
		releases = append(releases, release)
		x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(data))), n)
		for i := range x {
			x[i] = float32(rng.IntN(17) - 8)
		}
		return x
	}
	ptr := func(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }
	for _, l := range testLevels() {
		t.Logf("%s: %d lanes", l.name, l.lanes)
		t.Run(l.name, func(t *testing.T) {
			go_ := portable(l.lanes)
			for _, k := range []int{1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65} {
				for rows := 1; rows <= l.lanes; rows++ {
					if rows < l.lanes && !l.predicated {
						continue
					}
					for add := range 2 {
						gap := 3 // columns of A and C lie further apart than they are long
						a, b := fill((k-1)*(rows+gap)+rows), fill(k)
						c := fill(rows)
						want := append([]float32(nil), c...)
						x := args{a: ptr(a), b: ptr(b), c: ptr(c), lda: 4 * (rows + gap), k: k, rows: rows, add: add}
						l.column(&x)
						x.c = ptr(want)
						go_.column(&x)
						require.Equal(t, want, c, "column %d rows, k %d", rows, k)

						packed, twin := fill(k*l.lanes), make([]float32, k*l.lanes)
						x.c = ptr(packed)
						l.packA(&x)
						x.c = ptr(twin)
						go_.packA(&x)
						require.Equal(t, twin, packed)

						for cols := 1; cols <= NR; cols++ {
							pb := fill(k * NR)
							c := fill((cols-1)*(rows+gap) + rows)
							want := append([]float32(nil), c...)
							x := args{a: ptr(packed), b: ptr(pb), c: ptr(c), ldc: 4 * (rows + gap), k: k, rows: rows, cols: cols, add: add}
							l.tile(&x)
							x.c = ptr(want)
							go_.tile(&x)
							require.Equal(t, want, c, "tile %d x %d, k %d", rows, cols, k)
						}
						freeAll()
					}
				}
				for cols := 1; cols <= NR; cols++ {
					for add := range 2 {
						rows := l.panels * l.lanes
						a, pb := fill(rows*k), fill(k*NR)
						c := fill((cols-1)*(rows+1) + rows)
						want := append([]float32(nil), c...)
						x := args{a: ptr(a), b: ptr(pb), c: ptr(c), ldc: 4 * (rows + 1), lda: 4 * l.lanes * k, k: k, rows: l.lanes, cols: cols, add: add}
						l.wide(&x)
						x.c = ptr(want)
						tileGo(&x, l.lanes, l.panels)
						require.Equal(t, want, c, "wide, %d columns, k %d", cols, k)
						freeAll()
					}
				}
				if k%l.group == 0 {
					b := fill(3*(k+5) + k)
					c, want := fill(k*NR), make([]float32, k*NR)
					x := args{b: ptr(b), c: ptr(c), lda: 4 * (k + 5), k: k, cols: NR}
					l.packB(&x)
					x.c = ptr(want)
					packBGo(&x)
					require.Equal(t, want, c)
					freeAll()
				}
			}
		})
	}
}

// testLevels returns every level that may run here.
func testLevels() []*level {
	list := []*level{portable(4), portable(16)}
	seen := map[*level]bool{}
	for _, isa := range cpuinfo.Get().ISAs {
		if isa == cpuinfo.Portable {
			continue
		}
		a, b := archLevels(isa)
		for _, l := range []*level{a, b} {
			if !seen[l] {
				seen[l] = true
				list = append(list, l)
			}
		}
	}
	return list
}

// TestPinned runs the stages once for each instruction set, in a process of its own, because the pin is read once.
func TestPinned(t *testing.T) {
	if os.Getenv("LADDER_PINNED") != "" {
		l, err := New(context.Background(), 70, 10, 300, 1, 1)
		require.NoError(t, err)
		defer l.Close()
		for _, s := range Stages() {
			clear(l.c)
			_, err := l.Run(context.Background(), s)
			require.NoError(t, err)
			require.NoError(t, l.Verify())
		}
		fmt.Println("kernels:", l.Kernels(SIMD128), l.Kernels(Tiled))
		return
	}
	for _, isa := range cpuinfo.Get().ISAs {
		cmd := rerun.Self("-test.run", "^TestPinned$", "-test.v")
		cmd.Env = append(os.Environ(), "TESSERA_ISA="+isa.String(), "LADDER_PINNED=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		narrow, widest := "go", "go"
		if isa != cpuinfo.Portable {
			a, b := archLevels(isa)
			narrow, widest = a.name, b.name
		}
		require.Contains(t, string(out), "kernels: "+narrow+" "+widest+"\n")
	}
	cmd := rerun.Self("-test.run", "^TestPinned$")
	cmd.Env = append(os.Environ(), "TESSERA_ISA=vax", "LADDER_PINNED=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `instruction set "vax" is unknown`)
}

func TestVerifySeesOneMissingProduct(t *testing.T) {
	l, err := New(context.Background(), 40, 9, 500, 1, 1)
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Run(context.Background(), Tiled)
	require.NoError(t, err)
	require.NoError(t, l.Verify())
	l.c[17+3*l.m] -= l.a[17+2*l.m] * l.b[2+3*l.k]
	require.ErrorContains(t, l.Verify(), "C[17,3]")
}

func TestMeasure(t *testing.T) {
	l, err := New(context.Background(), 64, 16, 40, 1, 1)
	require.NoError(t, err)
	defer l.Close()
	rounds := 0
	got, err := l.Measure(context.Background(), []Stage{Tiled, Engine}, Effort{Rounds: 2, Time: time.Millisecond}, func(done, total int) {
		rounds++
		require.Equal(t, 2, total)
	})
	require.NoError(t, err)
	require.Equal(t, 2, rounds)
	require.Len(t, got, 2)
	require.Equal(t, Tiled, got[0].Stage)
	require.Equal(t, 1, got[0].PacksA)
	require.Equal(t, 4, got[0].PacksB)
	require.Positive(t, got[0].Speedup)
	require.Positive(t, got[1].GFLOPS)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = l.Measure(ctx, Stages(), Effort{}, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestNewRefuses(t *testing.T) {
	for _, size := range [][3]int{{0, 1, 1}, {1, -1, 1}, {1, 1, 0}} {
		_, err := New(context.Background(), size[0], size[1], size[2], 1, 1)
		require.ErrorContains(t, err, "start at 1")
	}
	most := int(^uint(0) >> 1)
	_, err := New(context.Background(), most/2, 3, 3, 1, 1)
	require.ErrorIs(t, err, mem.ErrOverflow)
	_, err = ParseStage("8")
	require.ErrorContains(t, err, "1 to 7")
	for _, s := range Stages() {
		for _, text := range []string{s.String(), fmt.Sprint(int(s))} {
			got, err := ParseStage(text)
			require.NoError(t, err)
			require.Equal(t, s, got)
		}
	}
	require.False(t, strings.Contains(Stage(9).String(), "engine"))
}

func BenchmarkStages(b *testing.B) {
	l, err := New(context.Background(), 512, 512, 512, 1, 1)
	require.NoError(b, err)
	defer l.Close()
	for _, s := range Stages() {
		b.Run(s.String(), func(b *testing.B) {
			for b.Loop() {
				_, _ = l.Run(context.Background(), s)
			}
			b.ReportMetric(2*512*512*512*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

func TestNoAllocation(t *testing.T) {
	l, err := New(context.Background(), 70, 10, 300, 1, 1)
	require.NoError(t, err)
	defer l.Close()
	for _, s := range Stages() {
		run := func() { _, _ = l.Run(context.Background(), s) }
		run()
		require.LessOrEqual(t, testing.AllocsPerRun(10, run), 1.0, "%v: no more than the options of a call", s)
	}
}
