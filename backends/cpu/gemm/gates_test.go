package gemm

import (
	"maps"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestGates: each threshold of packing decides where it says, on its side and on the other one, whatever the processor. Nothing is computed.
func TestGates(t *testing.T) {
	in := *cpuinfo.Get()
	in.L1D, in.L1DWays, in.L2 = 32<<10, 4, 1<<20
	isa := isas()[len(isas())-1]
	e, err := engineFor(isa, F32, F32, format{}, Auto)
	require.NoError(t, err)
	nr := e.main.b.nr
	// choose returns what is copied of a product whose operands lie with the given strides.
	choose := func(values map[string]int, m, n, k int, a, b [2]int) *product {
		kn, err := knobTable.With(knobTable.Defaults(), values)
		require.NoError(t, err)
		none := func(rows, cols int, s [2]int) Matrix { return Raw(F32, []byte(nil), rows, cols, s[0], s[1]) }
		x := call{c: none(m, n, [2]int{n, 1}), a: none(m, k, a), b: none(k, n, b)}
		p := new(product)
		require.NoError(t, p.set(&x, &Options{Threads: 1}, isa, kn, false))
		p.choosePacking(&in)
		return p
	}
	rows := func(cols int) [2]int { return [2]int{cols, 1} }

	// A column-major A is packed where all three hold: far apart, a wide span, enough use. Columns are an odd number of lines apart.
	const m, k = 33 * 16, 600
	columns := [2]int{1, m}
	gates := map[string]int{"a-pack-stride": 4 * m, "a-pack-span": 4*m*min(k, 512) - 4*m, "a-pack-panels": 9}
	for name, over := range map[string]struct {
		knob  string
		value int
		n     int
		want  bool
	}{
		"all hold":       {"a-pack-stride", 4 * m, 9 * nr, true},
		"stride":         {"a-pack-stride", 4*m + 1, 9 * nr, false},
		"span":           {"a-pack-span", 4 * m * 513, 9 * nr, false},
		"reuse":          {"a-pack-panels", 10, 9 * nr, false},
		"fewer columns":  {"a-pack-panels", 9, 8 * nr, false},
		"one more panel": {"a-pack-panels", 9, 8*nr + 1, true},
	} {
		values := map[string]int{}
		maps.Copy(values, gates)
		values[over.knob] = over.value
		require.Equal(t, over.want, choose(values, m, over.n, k, columns, rows(over.n)).packA, "columns of A: %s", name)
	}

	// An A whose rows are not side by side is packed where they compete for the sets of L1 and panels enough use the copy.
	apart, odd := [2]int{4096, 2}, [2]int{4096 + 16, 2}
	require.True(t, choose(map[string]int{"a-pack-reuse": 5}, 64, 5*nr, 100, apart, rows(5*nr)).packA)
	require.False(t, choose(map[string]int{"a-pack-reuse": 6}, 64, 5*nr, 100, apart, rows(5*nr)).packA, "reuse")
	require.False(t, choose(map[string]int{"a-pack-reuse": 5}, 64, 5*nr, 100, odd, rows(5*nr)).packA, "rows that do not compete")

	// A row-major B is packed from so many rows on, a small one never, one by columns always; by its user up to so many rows.
	n, deep := 40*nr, 300
	least := 48
	if e.main.rowsDown != nil {
		least /= 3
	}
	copied := func(p *product) bool { return p.packB || p.localB }
	require.False(t, copied(choose(nil, least-1, n, deep, rows(deep), rows(n+16))), "few rows")
	require.True(t, copied(choose(nil, least, n, deep, rows(deep), rows(n+16))), "many rows")
	require.True(t, copied(choose(nil, 1, n, deep, rows(deep), [2]int{1, deep})), "B by columns")
	// Where rows of B are 4 KiB apart, on Zen 4, from half as many.
	apartB := n
	for setGap(4*apartB) < setPeriod {
		apartB++
	}
	for _, in.Features.Zen4 = range []bool{false, true} {
		from := least
		if in.Features.Zen4 && e.main.rowsDown == nil {
			from /= 2
		}
		require.False(t, copied(choose(nil, from-1, n, deep, rows(deep), rows(apartB))), "few rows, B in few sets")
		require.True(t, copied(choose(nil, from, n, deep, rows(deep), rows(apartB))), "many rows, B in few sets")
	}
	small := 24 << 10 / 4 / (4 * nr)
	require.False(t, copied(choose(nil, 200, 4*nr, small, rows(small), rows(4*nr))), "a small B")
	require.True(t, copied(choose(nil, 200, 4*nr, small+1, rows(small+1), rows(4*nr))), "one row more")
	require.True(t, choose(nil, 512, n, deep, rows(deep), rows(n)).localB, "by its user")
	require.True(t, choose(nil, 513, n, deep, rows(deep), rows(n)).packB, "shared")
}

// Rules that were measured on Zen 4 change nothing elsewhere, also where L1 has as few ways, unless knobs say so.
func TestRulesOfZen4(t *testing.T) {
	info := func(ways int, zen4 bool) *cpuinfo.Info {
		return &cpuinfo.Info{L1DWays: ways, Features: cpuinfo.Features{Zen4: zen4}}
	}
	for _, ways := range []int{4, 8, 12} {
		require.Equal(t, 32, new(knobs).rowsInPlace(info(ways, false)), "%d ways", ways)
		require.False(t, new(knobs).inPairs(info(ways, false)), "%d ways", ways)
		for _, zen4 := range []bool{false, true} {
			require.Equal(t, 5, (&knobs{kcInPlace: 5}).rowsInPlace(info(ways, zen4)))
			require.Equal(t, ways <= 10, (&knobs{pairWays: 10}).inPairs(info(ways, zen4)))
		}
	}
	require.Equal(t, 12, new(knobs).rowsInPlace(info(8, true)))
	require.True(t, new(knobs).inPairs(info(8, true)))
	require.False(t, (&knobs{pairWays: 1}).inPairs(info(8, true)))
}

// Where few vectors are loaded in a cycle, strips are low enough for pairs of panels, if B is packed, A has rows, and there is enough of all.
func TestStripsForPairs(t *testing.T) {
	for _, k := range usable() {
		if k.pairs == nil {
			continue
		}
		in, nr, kr := *cpuinfo.Get(), k.b.nr, k.a.kr
		in.Features = cpuinfo.Features{OneWideLoad: true}
		height := func(m, n, steps, colStride int, packed bool, kn *knobs) int {
			p := &product{kern: k, kn: kn, m: m, n: n, k: steps * kr, a: Matrix{ColStride: colStride}, packB: packed}
			p.chooseHeight(&in)
			require.Equal(t, p.height < k.mr, p.pairs, k.name)
			require.Equal(t, p.height < k.mr && !packed, p.pairsInPlace, k.name)
			return p.height
		}
		require.Equal(t, 6, height(29, nr+1, 48, 1, true, new(knobs)), k.name)
		require.Equal(t, k.mr, height(28, nr+1, 48, 1, true, new(knobs)), "rows")
		require.Equal(t, k.mr, height(29, nr, 48, 1, true, new(knobs)), "panels")
		require.Equal(t, k.mr, height(29, nr+1, 47, 1, true, new(knobs)), "steps")
		require.Equal(t, k.mr, height(29, nr+1, 48, 2, true, new(knobs)), "columns of A")
		bytes := 4 * (nr + 1) * 48 * kr
		require.Equal(t, k.mr, height(29, nr+1, 48, 1, false, &knobs{bInPlaceBytes: bytes - 4}), "B in place")
		if k.pairsAny != nil {
			require.Equal(t, 6, height(29, nr+1, 48, 1, false, &knobs{bInPlaceBytes: bytes}), "a small B in place")
		}
		require.Equal(t, k.mr, height(29, nr+1, 48, 1, true, &knobs{pairRows: 30}), "threshold")
		in.Features.OneWideLoad = false
		require.Equal(t, k.mr, height(1000, 1000, 1000, 1, true, new(knobs)), "other processors")
		require.Equal(t, 6, height(30, nr+1, 48, 1, true, &knobs{pairRows: 30}), "threshold")
	}
}

// Where it was measured, a low strip reads a large packed B from many panels at once, unless that leaves a worker idle, and asks further ahead for one that
// is too large for L3.
func TestStreams(t *testing.T) {
	for _, k := range usable() {
		if k.streams == nil {
			continue
		}
		in := *cpuinfo.Get()
		in.Features, in.L2 = cpuinfo.Features{OneWideLoad: true}, 1<<20
		const steps = 1000
		streams := func(h, bytes, workers int, change func(*product)) bool {
			p := &product{kern: k, kn: new(knobs), a: Matrix{ColStride: 1}, packB: true, strips: 1, mp: h, np: bytes / (steps * k.b.elem.Size()), kp: steps}
			p.panels = ceilDiv(p.np, k.b.nr)
			if change != nil {
				change(p)
			}
			return p.fromMemory(&in, workers)
		}
		for h := 1; h <= 6; h++ {
			require.True(t, streams(h, 5<<20, 1, nil), "%s, %d rows", k.name, h)
			require.False(t, streams(h, 1<<20, 1, nil), "%s: in L2", k.name)
			require.True(t, streams(h, 1<<20, 1, func(p *product) { p.kn = &knobs{streamBytes: 1 << 19} }), "%s: threshold", k.name)
			groups := func(panels int) func(*product) {
				return func(p *product) { p.panels = panels * k.streamsP[h]; p.np = p.panels * k.b.nr; p.kp = 1 << 20 }
			}
			require.True(t, streams(h, 5<<20, 2, groups(4)), "%s: two groups a worker", k.name)
			require.False(t, streams(h, 5<<20, 2, groups(3)), "%s: one worker has twice as many groups", k.name)
			require.True(t, streams(h, 5<<20, 1, groups(3)), k.name)
		}
		require.False(t, streams(7, 5<<20, 1, nil), "%s: rows", k.name)
		require.False(t, streams(6, 5<<20, 1, func(p *product) { p.strips = 2 }), "%s: strips", k.name)
		require.False(t, streams(6, 5<<20, 1, func(p *product) { p.packB = false }), "%s: B in place", k.name)
		require.False(t, streams(6, 5<<20, 1, func(p *product) { p.packA = true }), "%s: packed A", k.name)
		require.False(t, streams(6, 5<<20, 1, func(p *product) { p.a.ColStride = 2 }), "%s: columns of A", k.name)
		require.Less(t, farBytes(&in, 2, in.L2), farBytes(&in, 2, 20*in.L2))
		in.Features.OneWideLoad = false
		require.False(t, streams(1, 5<<20, 1, nil), "%s: other processors", k.name)
		require.True(t, streams(1, 5<<20, 1, func(p *product) { p.kn = &knobs{streamBytes: 1 << 20} }), "%s: threshold", k.name)
	}
}

// Where there is nothing to fetch, how fast kernels go on from there does not depend on an earlier product of the same worker.
func TestNothingAhead(t *testing.T) {
	kn := knobTable.Defaults()
	for _, k := range allKernels {
		a := make([]float32, 1)
		p := &product{kern: k, kn: kn, localB: true, pairs: true, low: 6}
		args := kargs{a: unsafe.Pointer(&a[0]), acs: 4, pairs: true, aheadLine: 128, aheadStep: 7}
		p.lookAhead(&args, 6, 0, 4, 0, 64, 8, 8)
		require.Equal(t, []int{16, 0}, []int{args.aheadLine, args.aheadStep}, k.name)
		require.NotZero(t, args.ahead)
	}
}

// Strips that have no part of the next chunk of B to fetch fetch C of the next strip, if it is not near yet: a row a panel, all of it within the steps.
func TestRowsOfCAhead(t *testing.T) {
	for _, k := range usable() {
		if k.pairs == nil {
			continue
		}
		nr, kr := k.b.nr, k.a.kr
		const h, panels, steps, ldc = 6, 8, 128, 4096
		c, a := make([]float32, 2*h*ldc/4), make([]float32, 1)
		ahead := func(t0, left int, change func(*product, *kargs)) (rows uintptr, step, line int) {
			p := &product{kern: k, bf: k.b, kn: knobTable.Defaults(), packB: true, pairs: true, a: Matrix{ColStride: 1}, kp: 2 * steps * kr, panels: panels}
			p.bl, p.strips, p.low, p.unit = blocking{kc: steps}, 20, h, 1
			args := kargs{a: unsafe.Pointer(&a[0]), c: unsafe.Pointer(&c[0]), acs: 4, ldc: ldc, pairs: true, once: true}
			if change != nil {
				change(p, &args)
			}
			p.lookAhead(&args, h, 0, panels, t0, steps, 20, left)
			return (args.ahead - uintptr(args.c)) / ldc, args.aheadStep, args.aheadLine
		}
		rows, step, line := ahead(0, 20, nil)
		require.Equal(t, [3]int{h, ldc, panels * nr * 4 / steps}, [3]int{int(rows), step, line}, k.name)
		for how, x := range map[string]func(*product, *kargs){
			"other processors": func(_ *product, args *kargs) { args.once = false },
			"scratch":          func(p *product, _ *kargs) { p.scratch = true },
		} {
			_, step, line = ahead(0, 20, x)
			require.Equal(t, [2]int{0, 16}, [2]int{step, line}, "%s: %s", k.name, how)
		}
		_, step, _ = ahead(steps, 20, nil)
		require.Zero(t, step, "%s: a later chunk finds C near", k.name)
		_, step, _ = ahead(0, 1, nil)
		require.NotEqual(t, ldc, step, "%s: the last strip fetches B", k.name)
		runtime.KeepAlive(c)
	}
}
