package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSingleCoreTiles(t *testing.T) {
	for _, r := range Published().SingleCore {
		ty, err := ParseTypes(r.DType())
		require.NoError(t, err)
		got, err := SingleCore(r.Device, ty, 0)
		require.NoError(t, err)
		require.Equal(t, r.MCT, got.M, "%s %s", r.Device, ty)
		require.Equal(t, r.NCT, got.N, "%s %s", r.Device, ty)
		require.InDelta(t, r.KCT, got.K, stepK, "%s %s: within one step", r.Device, ty)
	}
	_, err := SingleCore("xdna2", Types{A: 5, B: 6, C: 4}, 0)
	require.Error(t, err)
}

// TestWidestTiles: the published tile or its transpose is the widest of its k_ct in 15 of the 16 rows; in the other (XDNA2 int8-int8, k 64) one of
// 112x208 is 1 % wider.
func TestWidestTiles(t *testing.T) {
	hits := 0
	for _, r := range Published().WholeArray {
		w := machine(r.Device).Widest(r.Design(), r.KCT)
		require.NotEmpty(t, w)
		found := false
		for _, x := range w {
			found = found || x == r.Tile() || x == Tile{r.NCT, r.KCT, r.MCT}
		}
		if found {
			hits++
		} else {
			t.Logf("%s %s: widest %v, published %v", r.Device, r.DType(), w, r.Tile())
		}
	}
	require.GreaterOrEqual(t, hits, 15)
}

// TestFind: the search's own choice is the published first, or better in the model and on the emulator, for all eight pairs, after a few dozen tiles; and
// the exhaustive search over some thousands of designs does not find much better.
func TestFind(t *testing.T) {
	var e Emulator
	for _, name := range Devices {
		for _, dt := range PaperTypes {
			ty, err := ParseTypes(dt)
			require.NoError(t, err)
			s, err := Find(Design{Device: name, Types: ty}, SearchOptions{})
			require.NoError(t, err)
			require.LessOrEqual(t, len(s.Steps), 64, "tiles tried")
			require.NoError(t, s.Best.Design.Check())
			m := machine(name)
			r, _ := Published().row(name, dt, 1)
			ours := m.Predict(s.Best.Design, s.Best.Size).TOPS
			theirs := m.Predict(r.Design(), r.Size()).TOPS
			t.Logf("%s %s: found %v %.2f, published %v %.2f in the model", name, dt, s.Best.Design, ours, r.Tile(), theirs)
			if s.Best.Design.Tile != r.Tile() {
				require.GreaterOrEqual(t, ours, theirs)
				if !testing.Short() {
					x, err := e.Seconds(s.Best.Design, s.Best.Size)
					require.NoError(t, err)
					y, err := e.Seconds(r.Design(), r.Size())
					require.NoError(t, err)
					require.Greater(t, s.Best.Size.Ops()/x, r.Size().Ops()/y, "%s %s on the emulator", name, dt)
				}
			}
			all := m.Candidates(ty, FamilyPaper)
			best := 0.0
			for _, d := range all {
				best = max(best, m.Predict(d, d.Near(About)).TOPS)
			}
			require.LessOrEqual(t, len(all), 8000, "designs of the exhaustive search")
			t.Logf("%d tiles tried, %d designs", len(s.Steps), len(all))
			require.Greater(t, ours, 0.97*best)
		}
	}
}

// TestPickKMT: the k_mt at which the model saturates is the published one within two multiples of k_ct.
func TestPickKMT(t *testing.T) {
	for _, r := range Published().WholeArray {
		if r.Rank != 1 {
			continue
		}
		m := machine(r.Device)
		got, best := m.PickKMT(r.Design())
		t.Logf("%s %s: k_mt %d, published %d", r.Device, r.DType(), got, r.KMT)
		require.InDelta(t, r.KMT, got, float64(2*r.KCT))
		require.Zero(t, got%r.KCT)
		require.GreaterOrEqual(t, best, got)
		require.Greater(t, got, r.KCT)
		rate := func(kmt int) float64 {
			d := r.Design()
			d.KMT = kmt
			return m.Predict(d, d.Near(About)).TOPS
		}
		require.Greater(t, rate(got), rate(got-r.KCT))
	}
}

// TestBeyondPaper: the best buildable designs against the paper's in the same model, on the sizes of the tables (each design on its own multiple
// of its native size from 4,000 on, as in the tables), by the model and by the emulator.
func TestBeyondPaper(t *testing.T) {
	rows, err := Beyond(TableOptions{})
	require.NoError(t, err)
	best := map[string]BeyondRow{}
	for _, r := range rows {
		key := r.Device + " " + r.DType
		t.Logf("%s %s %s k_mt %d bands %d: %.2f (%.3f x)", key, r.Design, r.Tile, r.KMT, r.Bands, r.Analytic, r.Gain)
		require.Equal(t, "predicted", r.Label)
		if r.Gain > best[key].Gain {
			best[key] = r
		}
	}
	require.Len(t, best, 9)
	var keys []string
	for key := range best {
		keys = append(keys, key)
	}
	e := &emulators
	gains := make([]float64, len(keys))
	if !testing.Short() {
		require.NoError(t, Parallel(2, len(keys), nil, func(i int) error {
			r := best[keys[i]]
			x, err := e.Seconds(r.design, r.size)
			if err != nil {
				return err
			}
			y, err := e.Seconds(r.base, r.baseSize)
			gains[i] = r.size.Ops() / x / (r.baseSize.Ops() / y)
			return err
		}))
	}
	for i, key := range keys {
		want := 1.05
		switch r := best[key]; {
		case r.DType == "int8-int32":
			want = 1.15
		case r.DType == "bf16-bfp16":
			want = 1.4
		}
		t.Logf("%s: %s %.3f x by the model, %.3f x by the emulator", key, best[key].Design, best[key].Gain, gains[i])
		require.GreaterOrEqual(t, best[key].Gain, want, key)
		if !testing.Short() {
			require.GreaterOrEqual(t, gains[i], want, key)
		}
	}
}

func TestChoose(t *testing.T) {
	i8, _ := ParseTypes("int8-int32")
	// Layers of one width run on one configuration.
	c, err := Choose("xdna2", []Types{i8}, []Work{{Size{512, 1024, 1024}, 3}, {Size{512, 4096, 1024}, 1}, {Size{512, 1024, 4096}, 1}}, ChooseOptions{})
	require.NoError(t, err)
	require.Len(t, c.Legs, 1)
	require.Equal(t, c.Single, c.Legs[0].Design)
	require.InDelta(t, c.SingleTime, c.Seconds, 1e-12)
	require.Less(t, c.Considered, 40000)
	t.Logf("%d designs considered", c.Considered)
	m := machine("xdna2")
	total := 0.0
	for _, w := range []Work{{Size{512, 1024, 1024}, 3}, {Size{512, 4096, 1024}, 1}, {Size{512, 1024, 4096}, 1}} {
		total += float64(w.Count) * m.Predict(c.Single, w.Size).Seconds
	}
	require.InDelta(t, total, c.SingleTime, 1e-12)

	// Two phases of very different shapes, each long enough to pay for a reconfiguration of 4.9 ms.
	work := []Work{{Size{64, 8192, 4096}, 400}, {Size{8192, 8192, 1024}, 400}}
	c, err = Choose("xdna2", []Types{i8}, work, ChooseOptions{})
	require.NoError(t, err)
	require.Len(t, c.Legs, 2)
	require.Less(t, c.Seconds, c.SingleTime)
	require.InDelta(t, c.Legs[0].Seconds+c.Legs[1].Seconds+m.Reconfig, c.Seconds, 1e-9)
	// The same phases in short turns: a reconfiguration each time would cost more than it saves.
	var turns []Work
	for range 5 {
		turns = append(turns, Work{Size{64, 8192, 4096}, 1}, Work{Size{8192, 8192, 1024}, 1})
	}
	c, err = Choose("xdna2", []Types{i8}, turns, ChooseOptions{})
	require.NoError(t, err)
	require.Len(t, c.Legs, 1)

	// bfp16 weights win where the precision allows them.
	bf, _ := ParseTypes("bf16-bf16")
	packed, _ := ParseTypes("bf16-bfp16")
	c, err = Choose("xdna2", []Types{bf, packed}, []Work{{Size{1024, 4096, 4096}, 1}}, ChooseOptions{})
	require.NoError(t, err)
	require.Equal(t, packed, c.Single.Types)

	_, err = Choose("xdna", []Types{packed}, []Work{{Size{1024, 4096, 4096}, 1}}, ChooseOptions{})
	require.ErrorContains(t, err, "xdna does not multiply")
	_, err = Choose("xdna", []Types{bf}, nil, ChooseOptions{})
	require.Error(t, err)
}

// TestTransposed: the mapping with A down the columns pays for some shapes: XDNA2 has more columns than rows, so a problem with few
// columns wastes less of N.
func TestTransposed(t *testing.T) {
	m := machine("xdna2")
	r, _ := Published().row("xdna2", "int8-int16", 1)
	d := r.Design()
	d.Transposed = true
	require.Equal(t, Size{M: 128 * 8, N: 112 * 4, K: 432}, d.Native())
	s := Size{M: 8192, N: 448, K: 4320}
	require.Less(t, m.Predict(d, s).Seconds, m.Predict(r.Design(), s).Seconds)
	s = Size{M: 512, N: 8064, K: 4320}
	require.Greater(t, m.Predict(d, s).Seconds, m.Predict(r.Design(), s).Seconds)
}

func TestPlace(t *testing.T) {
	m := machine("xdna2")
	r, _ := Published().row("xdna2", "bf16-bf16", 1)
	one := m.Place(r.Design(), Size{1, 4096, 4096}, 100e9)
	require.False(t, one.Array)
	require.Contains(t, one.Reason, "CPU: predicted")
	require.Contains(t, one.Reason, "of the padded")
	many := m.Place(r.Design(), Size{448, 4096, 4096}, 100e9)
	require.True(t, many.Array)
	require.InDelta(t, one.Seconds, many.Seconds, 1e-12, "a single row costs the array as much as a whole row block")
}

func TestCheck(t *testing.T) {
	i8, _ := ParseTypes("int8-int8")
	for _, c := range []struct {
		d    Design
		want string
	}{
		{Design{Device: "xdna9"}, "unknown device"},
		{Design{Device: "xdna", Types: i8}, "every side must be positive"},
		{Design{Device: "xdna", Types: i8, Tile: Tile{100, 112, 112}}, "want m a multiple of 8"},
		{Design{Device: "xdna", Types: i8, Tile: Tile{112, 112, 112}, KMT: 100}, "not a multiple of k_ct"},
		{Design{Device: "xdna", Types: i8, Tile: Tile{128, 128, 128}, KMT: 128}, "17408 more than the 64512"},
		{Design{Device: "xdna", Types: i8, Tile: Tile{112, 112, 112}, KMT: 2240}, "of a MemTile"},
		{Design{Device: "xdna", Types: Types{A: 4, B: 6, C: 4}, Tile: Tile{112, 112, 112}, KMT: 112}, "does not multiply"},
	} {
		require.ErrorContains(t, c.d.Check(), c.want)
	}
}

func TestTables(t *testing.T) {
	rows, err := Tables(TableOptions{})
	require.NoError(t, err)
	require.Len(t, rows, 8+32+8+6+len(Ablations()))
	for _, r := range rows {
		require.NotZero(t, r.Analytic, "%+v", r)
		if r.What == "rank 2" {
			require.False(t, r.Fitted)
		}
	}
	require.NotEmpty(t, Fits())
}

func BenchmarkPredict(b *testing.B) {
	r, _ := Published().row("xdna2", "int8-int16", 1)
	d, s, m := r.Design(), r.Size(), machine("xdna2")
	for b.Loop() {
		m.Predict(d, s)
	}
}
