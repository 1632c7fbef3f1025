package ladder

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/tessera-go/tessera/backends/cpu/gemm"
	"github.com/tessera-go/tessera/internal/mem"
)

// Stage is a step of the ladder, 1 to 7.
type Stage int

// The stages, in the order of the ladder.
const (
	Naive Stage = iota + 1
	Unrolled
	SIMD128
	SIMD
	Packed
	Tiled
	Engine
)

var stageNames = [...]string{Naive: "naive", Unrolled: "unrolled", SIMD128: "simd128", SIMD: "simd", Packed: "packed", Tiled: "tiled",
	Engine: "engine"}

func (s Stage) String() string {
	if s >= Naive && s <= Engine {
		return stageNames[s]
	}
	return "Stage(" + strconv.Itoa(int(s)) + ")"
}

// Stages returns all stages from the bottom up.
func Stages() []Stage { return []Stage{Naive, Unrolled, SIMD128, SIMD, Packed, Tiled, Engine} }

// ParseStage returns the stage of a name or number.
func ParseStage(text string) (Stage, error) {
	for _, s := range Stages() {
		if text == s.String() || text == strconv.Itoa(int(s)) {
			return s, nil
		}
	}
	return 0, fmt.Errorf("stage %q: 1 to 7, or one of %s, is right", text, strings.Join(stageNames[1:], ", "))
}

// Counts says what a stage copied: how often it packed a tile (or the whole) of A and of B, and the bytes of its copies.
type Counts struct {
	PacksA, PacksB int
	WorkspaceBytes int
}

// Ladder is one problem that every stage can compute. It serves one goroutine.
type Ladder struct {
	product
	narrow, widest *level
	threads        int
	reference      []float32 // what Naive computed
	bound          []float32 // how far another order of sums may lie from it
	whole, tile    packer
	workspace      *gemm.Workspace
}

// New returns the problem of multiplying M x K by K x N, with elements from -1 to 1 that the seed fixes, and its reference, which
// Naive computes here. threads bounds the workers of the last stage; the others always run on one.
func New(ctx context.Context, m, n, k, threads int, seed uint64) (*Ladder, error) {
	if m < 1 || n < 1 || k < 1 {
		return nil, fmt.Errorf("ladder: %d x %d x %d (M x N x K): sizes start at 1", m, n, k)
	}
	narrow, widest, err := levels()
	if err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	sizeA, ok1 := mem.Mul(m, k, 4)
	sizeB, ok2 := mem.Mul(k, n, 4)
	sizeC, ok3 := mem.Mul(m, n, 4)
	wholeA, wholeB, ok4 := wholeBytes(widest, m, n, k)
	_, ok5 := mem.Add(sizeA, sizeB, sizeC, sizeC, sizeC, wholeA, wholeB)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return nil, fmt.Errorf("ladder: %d x %d x %d (M x N x K): its size %w", m, n, k, mem.ErrOverflow)
	}
	l := &Ladder{narrow: narrow, widest: widest, threads: threads,
		product:   product{m: m, n: n, k: k, a: floats(sizeA), b: floats(sizeB), c: floats(sizeC)},
		reference: floats(sizeC), bound: floats(sizeC)}
	rng := rand.New(rand.NewPCG(seed, 42))
	for _, x := range [][]float32{l.a, l.b} {
		for i := range x {
			x[i] = rng.Float32()*2 - 1
		}
	}
	if err := l.refer(ctx); err != nil {
		return nil, err
	}
	edge := make([]float32, NR*widest.lanes)
	l.whole = packer{product: &l.product, l: widest, bufA: floats(wholeA), bufB: floats(wholeB), edge: edge}
	l.tile = packer{product: &l.product, l: widest, edge: edge}
	l.tile.bufA, l.tile.bufB = floats(l.tile.tileRows()*KC*4), floats(KC*NR*4)
	if l.workspace, err = gemm.NewWorkspace(0); err != nil {
		return nil, fmt.Errorf("ladder: %w", err)
	}
	return l, nil
}

// refer computes the reference and the bounds: (8 + 2 sqrt K) eps times the sum of |a||b|, for either of the two orders of sums.
func (l *Ladder) refer(ctx context.Context) error {
	abs := l.product
	abs.a, abs.b, abs.c = slices.Clone(l.a), slices.Clone(l.b), l.bound
	for _, x := range [][]float32{abs.a, abs.b} {
		for i, v := range x {
			x[i] = float32(math.Abs(float64(v)))
		}
	}
	if err := abs.engine(&gemm.Options{Threads: l.threads}); err != nil {
		return err
	}
	const eps = 1.0 / (1 << 24)
	scale := float32(2 * (8 + 2*math.Sqrt(float64(l.k))) * eps)
	for i := range l.bound {
		l.bound[i] *= scale
	}
	if err := l.naive(ctx); err != nil {
		return err
	}
	copy(l.reference, l.c)
	return nil
}

func floats(bytes int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(mem.Bytes(bytes)))), bytes/4)
}

// engine computes the product with package gemm, whose C is row-major: the transposes of column-major matrices are, and C^T = B^T A^T.
func (p *product) engine(o *gemm.Options) error {
	return gemm.Mul(gemm.Of(p.c, p.n, p.m), gemm.Of(p.b, p.n, p.k), gemm.Of(p.a, p.k, p.m), o)
}

// Kernels names the instruction set that a stage runs on.
func (l *Ladder) Kernels(s Stage) string {
	switch s {
	case SIMD128:
		return l.narrow.name
	case SIMD, Packed, Tiled, Engine:
		return l.widest.name
	}
	return "go"
}

// Run computes the product by one stage.
func (l *Ladder) Run(ctx context.Context, s Stage) (Counts, error) {
	counted := func(p *packer, run func(context.Context) error) (Counts, error) {
		p.packsA, p.packsB = 0, 0
		err := run(ctx)
		return Counts{p.packsA, p.packsB, 4 * (len(p.bufA) + len(p.bufB))}, err
	}
	switch s {
	case Naive:
		return Counts{}, l.naive(ctx)
	case Unrolled:
		return Counts{}, l.unrolled(ctx)
	case SIMD128:
		return Counts{}, l.vectors(ctx, l.narrow)
	case SIMD:
		return Counts{}, l.vectors(ctx, l.widest)
	case Packed:
		return counted(&l.whole, l.whole.packed)
	case Tiled:
		return counted(&l.tile, l.tile.tiled)
	case Engine:
		err := l.engine(&gemm.Options{Threads: l.threads, Workspace: l.workspace})
		b, a := l.workspace.Packs()
		return Counts{a, b, l.workspace.Cap()}, err
	}
	return Counts{}, fmt.Errorf("ladder: no %v", s)
}

// Verify compares what the last Run computed with the reference: each element may differ by the error bound of two orders of
// sums, which one missing product exceeds.
func (l *Ladder) Verify() error {
	for at, v := range l.c {
		if d := math.Abs(float64(v) - float64(l.reference[at])); !(d <= float64(l.bound[at])) {
			return fmt.Errorf("ladder: C[%d,%d] is %v, the first stage computed %v: they may differ by %v", at%l.m, at/l.m, v,
				l.reference[at], l.bound[at])
		}
	}
	return nil
}

// Result is the measurement of one stage.
type Result struct {
	Stage   Stage
	Kernels string
	Median  time.Duration
	Min     time.Duration
	GFLOPS  float64 // at the median
	Speedup float64 // of the medians, against Naive
	Counts
}

// Effort bounds a measurement: at least so many rounds over all stages, and at least so much time for each stage.
type Effort struct {
	Rounds int
	Time   time.Duration
}

// Measure runs the stages alternately, verifies each, and returns the medians; Naive is always measured with them, for the
// speedups. progress, if it is not nil, is told how many of all rounds are done.
func (l *Ladder) Measure(ctx context.Context, stages []Stage, e Effort, progress func(done, total int)) ([]Result, error) {
	all := stages
	if !slices.Contains(all, Naive) {
		all = append([]Stage{Naive}, all...)
	}
	rounds := max(e.Rounds, 1)
	times := make(map[Stage][]time.Duration, len(all))
	counts := make(map[Stage]Counts, len(all))
	for _, s := range all {
		clear(l.c)
		c, err := l.Run(ctx, s)
		if err != nil {
			return nil, err
		}
		if err := l.Verify(); err != nil {
			return nil, fmt.Errorf("stage %v: %w", s, err)
		}
		counts[s] = c
	}
	for round := range rounds {
		for _, s := range all {
			for spent := time.Duration(0); ; {
				start := time.Now()
				if _, err := l.Run(ctx, s); err != nil {
					return nil, err
				}
				d := time.Since(start)
				times[s] = append(times[s], d)
				if spent += d; spent >= e.Time/time.Duration(rounds) {
					break
				}
			}
		}
		if progress != nil {
			progress(round+1, rounds)
		}
	}
	median := func(s Stage) time.Duration {
		slices.Sort(times[s])
		return max(times[s][len(times[s])/2], 1)
	}
	base := median(Naive)
	results := make([]Result, len(stages))
	for i, s := range stages {
		d := median(s)
		results[i] = Result{Stage: s, Kernels: l.Kernels(s), Median: d, Min: times[s][0],
			GFLOPS:  2 * float64(l.m) * float64(l.n) * float64(l.k) / d.Seconds() / 1e9,
			Speedup: base.Seconds() / d.Seconds(), Counts: counts[s]}
	}
	return results, nil
}

// Close releases the memory outside the Go heap.
func (l *Ladder) Close() error { return l.workspace.Close() }
