package plan

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/internal/shared"
)

func mustPlan(t testing.TB, p Problem, o Options) *Plan {
	t.Helper()
	pl, err := New(&device.VC1902, p, o)
	require.NoError(t, err)
	return pl
}

// The seed's blocking for its own problem.
func TestPaperBlocking(t *testing.T) {
	p := mustPlan(t, Problem{M: 4096, N: 4096, K: 290, Type: core.Int16, Out: core.S16}, Options{Design: Paper})
	require.Equal(t, [3]int{4096, 290, 4096}, [3]int{p.MC, p.KC, p.NC})
	require.Equal(t, 1, p.Blocks)
	require.Equal(t, 1, p.ResidentBlocks)
	require.Equal(t, int64(4096*290*2), p.FPGABytes)
	require.Equal(t, 1.0, p.Useful())
	require.GreaterOrEqual(t, len(p.Reasons), 4)

	// Loops that do not divide, and a matrix that is larger than the FPGA RAM: the plan says what is streamed.
	p = mustPlan(t, Problem{M: 9000, N: 1000, K: 2000, Type: core.Int16, Out: core.S32}, Options{Design: Paper})
	require.Less(t, p.ResidentBlocks, p.Blocks)
	require.Contains(t, p.Reasons[3], "do not fit the 20600000 bytes of FPGA RAM and are streamed from DDR")
	require.Positive(t, p.Predict().Bytes.DDR)
	require.Greater(t, p.Predict().Bytes.FPGA, 0.0)
}

// Section 6.5 and figure 6 of the seed: the share of the peak against m_c.
func TestPaperEfficiencyAgainstMC(t *testing.T) {
	at := func(mc, m int) float64 {
		p := mustPlan(t, Problem{M: m, N: 4096, K: 290, Type: core.Int16, Out: core.S16}, Options{Design: Paper, MC: mc})
		return p.Predict().Efficiency
	}
	require.InDelta(t, 83.3, at(4096, 4096), 0.5)
	last := 0.0
	for _, mc := range []int{16, 64, 256, 1024, 4096} {
		e := at(mc, 4096)
		require.Greater(t, e, last)
		last = e
	}
	require.InDelta(t, 87.4, at(35504, 35504), 0.7) // all that the FPGA RAM holds
	// Losses: 12 to 15 % to A_c and B_r on their way to the registers, 4 to 5 % to B_r's copies.
	k := mustPlan(t, Problem{M: 4096, N: 4096, K: 290, Type: core.Int16, Out: core.S16}, Options{Design: Paper})
	kernel := 100 * core.Int16.Efficiency(64*290, float64(k.KernelCycles(290)))
	require.InDelta(t, 87.4, kernel, 0.1)
	require.InDelta(t, 4.5, kernel-at(4096, 4096), 0.5)
	require.InEpsilon(t, 8309, k.CopyCycles(290), 0.01)
	require.InEpsilon(t, 8952, k.CopyCycles(290)+float64(k.KernelCycles(290)), 0.01)
}

func TestBestAgainstPaper(t *testing.T) {
	for _, n := range []int{512, 4096} {
		pr := Problem{M: 256, N: n, K: 290, Type: core.Int16, Out: core.S32}
		paper := mustPlan(t, pr, Options{Design: Paper, MC: 256}).Predict()
		best := mustPlan(t, pr, Options{Tiles: 1}).Predict()
		require.GreaterOrEqual(t, paper.Cycles/best.Cycles, 1.75)
		large := Problem{M: 4096, N: n, K: 290, Type: core.Int16, Out: core.S32}
		require.GreaterOrEqual(t, mustPlan(t, large, Options{Design: Paper, MC: 256}).Predict().Cycles/mustPlan(t, large, Options{Tiles: 1, MC: 256}).Predict().Cycles, 1.75)
	}
	for _, pr := range []Problem{
		{M: 4096, N: 4096, K: 290, Type: core.Int16, Out: core.S32},
		{M: 4096, N: 4096, K: 4096, Type: core.Int16, Out: core.S32},
		{M: 1024, N: 8192, K: 2048, Type: core.Int16, Out: core.S16},
	} {
		p := mustPlan(t, pr, Options{Tiles: 1})
		require.Contains(t, p.Reasons[0], "grid of 1 row x 1 group of 1 column = 1 tile: ")
		require.Equal(t, 1, p.Tiles)
		require.GreaterOrEqual(t, p.Predict().Efficiency, 97.0)
	}
}

// The whole array on a large int8 product, A from FPGA RAM, with every limit beside what is asked of it.
func TestWholeArrayInt8(t *testing.T) {
	p := mustPlan(t, Problem{M: 4096, N: 65536, K: 4096, Type: core.Int8, Out: core.S8}, Options{})
	pr := p.Predict()
	require.Equal(t, Resident, p.FeedA)
	require.GreaterOrEqual(t, pr.ArrayPercent, 60.0)
	require.GreaterOrEqual(t, pr.ArrayTOPS, 77.01) // MaxEVA, which leaves DDR out too
	require.Positive(t, pr.DDRTOPS)
	require.LessOrEqual(t, pr.TOPS, pr.DDRTOPS*1.0001)
	names := map[string]Limit{}
	for _, l := range pr.Limits {
		names[l.Name] = l
		if l.Rate > 0 {
			require.LessOrEqual(t, l.Bytes/l.Rate, pr.Seconds*1.0001, "%s is asked for more than it gives", l.Name)
			require.InEpsilon(t, l.Bytes/l.Seconds, l.Rate, 1e-9)
		}
	}
	for _, n := range []string{"plio a", "plio b", "plio c", "fpga ram", "ddr"} {
		require.Positive(t, names[n].Bytes, n)
		require.Positive(t, names[n].Asked, n)
	}
	require.Equal(t, 25.6e9, names["ddr"].Rate)
	in, out := p.Streams()
	require.LessOrEqual(t, in, p.Device.PLStreamsIn())
	require.LessOrEqual(t, out, p.Device.PLStreamsOut())

	// 32-bit results ask more of DDR than it has: the report says so.
	wide := mustPlan(t, Problem{M: 4096, N: 65536, K: 4096, Type: core.Int8, Out: core.S32}, Options{}).Predict()
	require.Equal(t, "ddr", wide.Bound)
	require.Less(t, wide.DDRTOPS, 50.0)
}

// The authors' follow-up kept 94.6 % of a tile's rate on 32 tiles.
func TestScaling(t *testing.T) {
	prob := Problem{M: 4096, N: 4096, K: 4096, Type: core.Int8, Out: core.S8}
	plans, err := Alternatives(&device.VC1902, prob, Options{}, []int{1, 2, 4, 8, 16, 32})
	require.NoError(t, err)
	one := plans[0].Predict()
	for _, p := range plans {
		pr := p.Predict()
		share := one.Cycles / pr.Cycles / float64(p.Tiles)
		require.GreaterOrEqual(t, share, 0.94, "%d tiles", p.Tiles)
	}
	require.GreaterOrEqual(t, plans[5].Tiles, 30)
	require.GreaterOrEqual(t, one.Cycles/plans[5].Predict().Cycles, 0.94*32)
}

// TestPlansFit: whatever the search finds respects every memory, stream and lane.
func TestPlansFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	size := func(most int) int { return int(math.Exp(rng.Float64() * math.Log(float64(most)+0.99))) }
	for range 150 {
		typ := core.Types()[rng.IntN(3)]
		pr := Problem{M: size(20000), N: size(20000), K: size(20000), Type: typ, Out: typ.Default()}
		o := Options{StreamWeights: rng.IntN(4) == 0}
		if rng.IntN(2) == 0 {
			o.Tiles = 1 + rng.IntN(400)
		}
		p, err := New(&device.VC1902, pr, o)
		if err != nil {
			require.ErrorContains(t, err, "bytes of")
			continue
		}
		d := &p.Device
		m, n, k := p.Padded()
		require.True(t, m >= pr.M && n >= pr.N && k >= pr.K)
		require.LessOrEqual(t, p.FPGABytes, d.FPGABytes())
		require.LessOrEqual(t, p.Local.Banks, d.Core.Banks)
		require.LessOrEqual(t, p.Tiles, max(o.Tiles, d.Tiles()))
		require.LessOrEqual(t, p.Rows, d.CoreRows)
		require.LessOrEqual(t, p.Groups*p.Chain, d.Cols)
		require.LessOrEqual(t, p.Chain, d.Core.EastOut)
		if typ == core.FP32 {
			require.Equal(t, 1, p.Chain)
		}
		// Buffers neither overlap nor share a bank with one that the DMA writes.
		e := typ.Bytes()
		type buf struct{ at, n int }
		bufs := []buf{{p.Local.A[0], p.MB * p.KB * e}, {p.Local.A[1], p.MB * p.KB * e}, {p.Local.B[0], p.KB * p.NB * e}, {p.Local.B[1], p.KB * p.NB * e}}
		if p.Steps > 1 {
			bufs = append(bufs, buf{p.Local.Partial, p.MB * p.NB * typ.PartialBytes()})
		}
		for i := range p.Local.Outs {
			bufs = append(bufs, buf{p.Local.Out[i], p.MB * p.NB * p.Out.Bytes()})
		}
		owner := map[int]int{}
		for i, b := range bufs {
			require.LessOrEqual(t, b.at+b.n, d.Core.MemoryBytes)
			for bank := b.at / d.BankBytes(); bank <= (b.at+b.n-1)/d.BankBytes(); bank++ {
				was, taken := owner[bank]
				require.False(t, taken && was != i, "bank %d", bank)
				owner[bank] = i
			}
			require.False(t, p.Local.Stack < b.at+b.n && b.at < p.Local.Stack+stackBytes, "stack over buffer %d", i)
		}
		require.LessOrEqual(t, p.Local.Stack+stackBytes, d.Core.MemoryBytes)
		routes, err := p.Routes()
		require.NoError(t, err, "%d x %d x %d", p.Rows, p.Chain, p.Groups)
		in, out := p.Streams()
		require.Len(t, routes, in+out)
		pd := p.Predict()
		require.True(t, pd.Cycles > 0 && !math.IsInf(pd.Cycles, 1) && pd.Efficiency <= 100)
		for i := range p.Passes() {
			pm, pn := p.PassAt(i)
			require.True(t, pm < p.PassM && pn < p.PassN)
		}
	}
}

// TestEveryGridIsRouted lays the streams of every grid that the search may take over the switches.
func TestEveryGridIsRouted(t *testing.T) {
	d := &device.VC1902
	whole := 0
	for rows := 1; rows <= d.CoreRows; rows++ {
		for chain := 1; chain <= d.Core.EastOut; chain++ {
			for groups := 1; groups*chain <= d.Cols; groups++ {
				p := &Plan{Device: *d, Design: Best, Rows: rows, Chain: chain, Groups: groups, CLanes: min(rows, d.Core.SouthOut)}
				p.place()
				if p.routable() != nil {
					require.Greater(t, groups*chain, d.PLCols)
					continue
				}
				_, err := p.Routes()
				require.NoError(t, err, "%d rows, chains of %d, %d groups", rows, chain, groups)
				if rows*chain*groups == d.Tiles() {
					whole++
				}
			}
		}
	}
	require.Positive(t, whole, "no grid takes all tiles")
	p := &Plan{Device: *d, Design: Best, Rows: 8, Chain: 4, Groups: 12, CLanes: 4}
	p.place()
	require.ErrorContains(t, p.routable(), "lanes are there")
}

func TestErrors(t *testing.T) {
	ok := Problem{M: 64, N: 64, K: 64, Type: core.Int16, Out: core.S32}
	for _, c := range []struct {
		p    Problem
		o    Options
		want string
	}{
		{Problem{M: 0, N: 1, K: 1}, Options{}, "sizes of at least 1"},
		{Problem{M: 1 << 25, N: 1, K: 1}, Options{}, "sizes up to"},
		{Problem{M: 1, N: 1, K: 1, Type: core.FP32, Out: core.S32}, Options{}, "f32 is right"},
		{Problem{M: 1, N: 1, K: 1, Narrow: core.Narrow{Shift: 50}}, Options{}, "0 to 47"},
		{ok, Options{Tiles: 401}, "vc1902 has 400"},
		{ok, Options{ClockHz: 5e9}, "0.1 to 2 GHz"},
		{ok, Options{Design: Paper, Tiles: 17}, "DMA in 16 columns"},
		{Problem{M: 64, N: 64, K: 9000, Type: core.Int16}, Options{Design: Paper, KC: 5000}, "B_r needs 40000 bytes of local memory, 31744 are there (k_c up to 3968)"},
		{Problem{M: 1 << 20, N: 4, K: 290, Type: core.Int16}, Options{Design: Paper, MC: 1 << 20}, "bytes of FPGA RAM, 20600000 are there (m_c up to 35504)"},
		{Problem{M: 1 << 20, N: 1 << 20, K: 64, Type: core.Int16}, Options{Design: Paper}, "bytes of DDR for A, B_c and C, vc1902 has 2000000000"},
		{Problem{M: 1 << 20, N: 1 << 20, K: 64, Type: core.Int16}, Options{}, "bytes of DDR for its operands, vc1902 has 2000000000"},
		{ok, Options{MB: 128, NB: 128}, "do not fit 8 banks of 4096 bytes of local memory"},
		{ok, Options{KB: 4096}, "do not fit 8 banks"},
		{ok, Options{Rows: 9}, "vc1902 has 8 rows"},
		{ok, Options{Rows: 2, Chain: 6, Groups: 1}, "chains of 4"},
		{Problem{M: 64, N: 64, K: 64, Type: core.FP32, Out: core.F32}, Options{Chain: 2}, "cascade carries accumulators"},
	} {
		_, err := New(&device.VC1902, c.p, c.o)
		require.ErrorContains(t, err, c.want, "%+v %+v", c.p, c.o)
	}
	_, err := ParseDesign("gold")
	require.ErrorContains(t, err, "one of best, paper is right")
}

func TestDrawings(t *testing.T) {
	for _, o := range []Options{{}, {Design: Paper}, {Chain: 3}} {
		var b bytes.Buffer
		require.NoError(t, mustPlan(t, Problem{M: 512, N: 1024, K: 2048, Type: core.Int16, Out: core.S32}, o).WriteSVG(&b))
		require.NoError(t, xml.Unmarshal(b.Bytes(), new(struct{})))
		require.GreaterOrEqual(t, bytes.Count(b.Bytes(), []byte("<rect")), 450)
	}
}

// TestDocsDrawings: the drawings of docs/aie.md are what the planner draws today. TESSERA_UPDATE=1 draws them again.
func TestDocsDrawings(t *testing.T) {
	for name, p := range map[string]*Plan{
		"aie-best.svg":  mustPlan(t, Problem{M: 4096, N: 65536, K: 4096, Type: core.Int8, Out: core.S8}, Options{}),
		"aie-paper.svg": mustPlan(t, Problem{M: 4096, N: 4096, K: 290, Type: core.Int16, Out: core.S16}, Options{Design: Paper}),
	} {
		var b bytes.Buffer
		require.NoError(t, p.WriteSVG(&b))
		file := filepath.Join(shared.Root(), "docs", name)
		if os.Getenv("TESSERA_UPDATE") != "" {
			require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
		}
		have, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, b.String(), string(have), "%s: TESSERA_UPDATE=1 go test ./backends/aie/plan draws it again", name)
	}
}

// TestPublishedPoints reads the seed's figures from the data beside the checkout.
func TestPublishedPoints(t *testing.T) {
	raw, err := os.ReadFile(shared.File(t, "data/paper/points.json"))
	require.NoError(t, err)
	var points struct {
		Versal struct {
			Peak   map[string]int `json:"peak_macs_per_cycle"`
			Cycles []struct {
				MR     int `json:"m_r"`
				KC     int `json:"k_c"`
				Cycles int
			} `json:"micro_kernel_cycles"`
			Efficiency []struct {
				KC    int `json:"k_c"`
				Value float64
			} `json:"efficiency_percent"`
			Copy struct {
				KC     int `json:"k_c"`
				Cycles float64
				With   float64 `json:"with_one_micro_kernel"`
			} `json:"b_r_copy_cycles"`
		}
	}
	require.NoError(t, json.Unmarshal(raw, &points))
	v := points.Versal
	for name, macs := range v.Peak {
		typ, err := core.ParseType(name)
		require.NoError(t, err)
		require.Equal(t, macs, typ.PeakMACs())
	}
	for _, c := range v.Cycles {
		k := map[int]core.Kernel{16: core.KernelInt16, 32: core.KernelInt16Wide}[c.MR]
		require.InEpsilon(t, c.Cycles, k.Streamed(c.KC, true, 2), map[int]float64{16: 1e-9, 32: 0.02}[c.MR])
	}
	for _, e := range v.Efficiency {
		require.InDelta(t, e.Value, 100*core.Int16.Efficiency(float64(64*e.KC), float64(core.KernelInt16.Streamed(e.KC, true, 2))), 0.5)
	}
	p := mustPlan(t, Problem{M: 16, N: 4, K: v.Copy.KC, Type: core.Int16, Out: core.S16}, Options{Design: Paper})
	require.InEpsilon(t, v.Copy.Cycles, p.CopyCycles(v.Copy.KC), 0.01)
	require.InEpsilon(t, v.Copy.With, p.Predict().Cycles, 0.01)
}
