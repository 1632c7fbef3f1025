package array

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/aie/core"
	"github.com/tessera-go/tessera/backends/aie/device"
	"github.com/tessera-go/tessera/backends/aie/plan"
	"github.com/tessera-go/tessera/backends/aie/regs"
)

// problem makes random operands and the result by the definition: exact integers in 48-bit lanes, or one fp32 chain in ascending k.
type problem struct {
	plan.Problem
	a, b, c, want *Matrix
}

func matrix(rows, cols, bytes int, transposed bool, gap int) *Matrix {
	m := &Matrix{Rows: rows, Cols: cols, Bytes: bytes, RowStride: cols + gap, ColStride: 1}
	if transposed {
		m.RowStride, m.ColStride = 1, rows+gap
	}
	m.Data = make([]byte, ((rows-1)*m.RowStride+(cols-1)*m.ColStride+1)*bytes)
	return m
}

func (m *Matrix) ref(i, j int) []byte { return m.Data[(i*m.RowStride+j*m.ColStride)*m.Bytes:] }

func (m *Matrix) int(i, j int) int64 {
	d := m.ref(i, j)
	switch m.Bytes {
	case 1:
		return int64(int8(d[0]))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(d)))
	}
	return int64(int32(binary.LittleEndian.Uint32(d)))
}

func (m *Matrix) f32(i, j int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(m.ref(i, j)))
}

func (m *Matrix) put(i, j int, v int64) {
	d := m.ref(i, j)
	switch m.Bytes {
	case 1:
		d[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(d, uint16(v))
	default:
		binary.LittleEndian.PutUint32(d, uint32(v))
	}
}

func newProblem(rng *rand.Rand, pp plan.Problem) *problem {
	p := &problem{Problem: pp}
	e := p.Type.Bytes()
	p.a = matrix(p.M, p.K, e, rng.IntN(2) == 0, rng.IntN(3))
	p.b = matrix(p.K, p.N, e, rng.IntN(2) == 0, rng.IntN(3))
	ct, gap := rng.IntN(2) == 0, rng.IntN(3)
	p.c = matrix(p.M, p.N, p.Out.Bytes(), ct, gap)
	p.want = matrix(p.M, p.N, p.Out.Bytes(), ct, gap)
	for _, m := range []*Matrix{p.a, p.b} {
		for i := range m.Data {
			m.Data[i] = byte(rng.Uint32())
		}
		if p.Type == core.FP32 {
			for i := range len(m.Data) / 4 {
				binary.LittleEndian.PutUint32(m.Data[4*i:], math.Float32bits(float32(rng.NormFloat64())))
			}
		}
	}
	return p
}

// reference computes want. Chunk is the length of K after which the paper's design narrows its sums; 0 = never.
func (p *problem) reference(chunk int) {
	width := uint(8 * p.Out.Bytes())
	for i := range p.M {
		for j := range p.N {
			if p.Type == core.FP32 {
				s := p.want.f32(i, j)
				for k := range p.K {
					s += float32(p.a.f32(i, k) * p.b.f32(k, j))
				}
				binary.LittleEndian.PutUint32(p.want.ref(i, j), math.Float32bits(s))
				continue
			}
			s := int64(0)
			if chunk > 0 {
				s = core.UPS(p.want.int(i, j), p.Narrow.Shift)
			}
			for k := range p.K {
				s += p.a.int(i, k) * p.b.int(k, j)
				if chunk > 0 && (k+1)%chunk == 0 && k+1 < p.K {
					s = core.UPS(core.SRS(core.Wrap48(s), p.Narrow.Shift, p.Narrow.Round, p.Narrow.Saturate, width), p.Narrow.Shift)
				}
			}
			p.want.put(i, j, core.SRS(core.Wrap48(s), p.Narrow.Shift, p.Narrow.Round, p.Narrow.Saturate, width))
		}
	}
}

func run(t *testing.T, p *problem, opt plan.Options, ro Options) (*plan.Plan, *Report) {
	t.Helper()
	pl, err := plan.New(&device.VC1902, p.Problem, opt)
	require.NoError(t, err)
	pr, err := Build(pl)
	require.NoError(t, err)
	a, err := PackWeights(pl, p.a)
	require.NoError(t, err)
	rep, err := Run(context.Background(), pr, Operands{A: a, B: p.b, C: p.c}, ro)
	require.NoError(t, err, "%+v", pl)
	return pl, rep
}

func size(rng *rand.Rand, most int) int {
	return int(math.Exp(rng.Float64() * math.Log(float64(most)+0.99)))
}

// TestBestRandom runs the best design on ragged sizes, grids and feeds against the definition.
func TestBestRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	runs := 45
	if testing.Short() {
		runs = 15
	}
	feeds := map[string]int{}
	for i := range runs {
		typ := core.Types()[i%3]
		out := typ.Default()
		if typ != core.FP32 {
			out = core.Out(rng.IntN(3))
		}
		pp := plan.Problem{M: size(rng, 300), N: size(rng, 300), K: size(rng, 400), Type: typ, Out: out}
		if typ == core.Int16 && rng.IntN(2) == 0 {
			pp.Narrow = core.Narrow{Shift: uint(rng.IntN(20)), Round: core.Rounding(rng.IntN(8)), Saturate: rng.IntN(2) == 0}
		}
		opt := plan.Options{StreamWeights: rng.IntN(3) == 0}
		if rng.IntN(2) == 0 {
			opt.Tiles = 1 + rng.IntN(40)
		}
		if typ != core.FP32 && rng.IntN(2) == 0 {
			opt.Chain = 1 + rng.IntN(4)
			opt.Tiles = 0
		}
		if rng.IntN(2) == 0 {
			opt.Rows = 1 + rng.IntN(3)
			opt.Tiles = 0
		}
		if rng.IntN(2) == 0 {
			opt.MB, opt.NB = 16*(1+rng.IntN(2)), 8*(1+rng.IntN(3))
		}
		p := newProblem(rng, pp)
		p.reference(0)
		pl, rep := run(t, p, opt, Options{})
		for r := range p.M {
			for c := range p.N {
				require.Equal(t, p.want.ref(r, c)[:p.Out.Bytes()], p.c.ref(r, c)[:p.Out.Bytes()], "%+v C[%d,%d]", pp, r, c)
			}
		}
		require.Positive(t, rep.Cycles)
		feeds[pl.FeedA.String()+"/"+pl.FeedB.String()]++
	}
	require.GreaterOrEqual(t, len(feeds), 2, feeds)
}

// TestRaggedUpTo2000 multiplies ragged sizes of up to 2,000 on whatever grid the planner takes, every element against the exact sum.
func TestRaggedUpTo2000(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 17))
	runs, budget := 6, 2e8
	if testing.Short() {
		runs = 1
	}
	if os.Getenv("TESSERA_LONG") != "" {
		runs, budget = 20, 8e9
	}
	for i := range runs {
		typ := []core.Type{core.Int16, core.Int8}[i%2]
		pp := plan.Problem{Type: typ, Out: core.S32}
		for pp.MACs() < budget/20 || pp.MACs() > budget {
			pp.M, pp.N, pp.K = size(rng, 2000), size(rng, 2000), size(rng, 2000)
		}
		p := newProblem(rng, pp)
		run(t, p, plan.Options{}, Options{})
		a, b := make([]int32, p.M*p.K), make([]int32, p.N*p.K)
		for k := range p.K {
			for r := range p.M {
				a[r*p.K+k] = int32(p.a.int(r, k))
			}
			for c := range p.N {
				b[c*p.K+k] = int32(p.b.int(k, c))
			}
		}
		for r := range p.M {
			for c := range p.N {
				s := int32(0)
				x := b[c*p.K : (c+1)*p.K]
				for k, v := range a[r*p.K : (r+1)*p.K] {
					s += v * x[k]
				}
				if got := p.c.int(r, c); got != int64(s) {
					t.Fatalf("%+v C[%d,%d] = %d, %d is right", pp, r, c, got, s)
				}
			}
		}
	}
}

// TestPaperRandom does the same for the seed's design, whose sums pass through C every k_c.
func TestPaperRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	runs := 40
	if testing.Short() {
		runs = 10
	}
	for i := range runs {
		typ := core.Types()[i%3]
		out := typ.Default()
		if typ == core.Int16 {
			out = core.Out(rng.IntN(2))
		}
		pp := plan.Problem{M: size(rng, 120), N: size(rng, 60), K: size(rng, 700), Type: typ, Out: out}
		if typ == core.Int16 && rng.IntN(2) == 0 {
			pp.Narrow = core.Narrow{Shift: uint(rng.IntN(16)), Round: core.ConvEven, Saturate: rng.IntN(2) == 0}
		}
		opt := plan.Options{Design: plan.Paper, Tiles: 1 + rng.IntN(3), StreamWeights: rng.IntN(3) == 0}
		if rng.IntN(2) == 0 {
			opt.KC = 8 * (1 + rng.IntN(20))
		}
		if rng.IntN(2) == 0 {
			opt.MC = 16 * (1 + rng.IntN(4))
		}
		if rng.IntN(2) == 0 {
			opt.NC = 8 * (1 + rng.IntN(4))
		}
		p := newProblem(rng, pp)
		for r := range p.M { // C += A B: what C held counts
			for c := range p.N {
				v := int64(rng.IntN(200) - 100)
				if typ == core.FP32 {
					v = int64(int32(math.Float32bits(float32(rng.NormFloat64()))))
				}
				p.c.put(r, c, v)
				p.want.put(r, c, v)
			}
		}
		pl, err := plan.New(&device.VC1902, pp, opt)
		require.NoError(t, err)
		p.reference(pl.KC)
		run(t, p, opt, Options{})
		for r := range p.M {
			for c := range p.N {
				require.Equal(t, p.want.ref(r, c)[:p.Out.Bytes()], p.c.ref(r, c)[:p.Out.Bytes()], "%+v %+v C[%d,%d]", pp, opt, r, c)
			}
		}
	}
}

// TestPaperCycles: the machine's clock gives the closed form of the seed to the cycle.
func TestPaperCycles(t *testing.T) {
	for _, mc := range []int{256, 1024, 4096} {
		pl, err := plan.New(&device.VC1902, plan.Problem{M: 4096, N: 16, K: 290, Type: core.Int16, Out: core.S16}, plan.Options{Design: plan.Paper, MC: mc})
		require.NoError(t, err)
		pr, err := Build(pl)
		require.NoError(t, err)
		rep, err := Run(context.Background(), pr, Operands{}, Options{TimingOnly: true})
		require.NoError(t, err)
		want := float64(16/4*(4096/mc)) * (8309 + float64(mc/16)*664)
		require.InDelta(t, want, rep.Cycles, 1)
		require.InDelta(t, pl.Predict().Cycles, rep.Cycles, 1)
		require.Equal(t, int64(16/4*4096/16), rep.Kernels)
	}
	// One panel and one kernel: the seed's 8,952 cycles.
	pl, err := plan.New(&device.VC1902, plan.Problem{M: 16, N: 4, K: 290, Type: core.Int16, Out: core.S16}, plan.Options{Design: plan.Paper})
	require.NoError(t, err)
	pr, err := Build(pl)
	require.NoError(t, err)
	rep, err := Run(context.Background(), pr, Operands{}, Options{TimingOnly: true})
	require.NoError(t, err)
	require.InEpsilon(t, 8952, rep.Cycles, 0.01)
	require.InEpsilon(t, 8309, pl.CopyCycles(290), 0.0001)
}

// TestBestCyclesAgainstModel compares the machine's clock with the planner's closed form.
func TestBestCyclesAgainstModel(t *testing.T) {
	for _, c := range []struct {
		p   plan.Problem
		opt plan.Options
	}{
		{plan.Problem{M: 256, N: 512, K: 2048, Type: core.Int16, Out: core.S32}, plan.Options{Tiles: 1}},
		{plan.Problem{M: 1024, N: 1024, K: 1024, Type: core.Int8, Out: core.S8}, plan.Options{Tiles: 32}},
		{plan.Problem{M: 2048, N: 4096, K: 2048, Type: core.Int8, Out: core.S8}, plan.Options{}},
		{plan.Problem{M: 1024, N: 1024, K: 1024, Type: core.FP32, Out: core.F32}, plan.Options{}},
		{plan.Problem{M: 2048, N: 2048, K: 2048, Type: core.Int16, Out: core.S16}, plan.Options{StreamWeights: true}},
		{plan.Problem{M: 64, N: 64, K: 16384, Type: core.Int8, Out: core.S32}, plan.Options{}},
		{plan.Problem{M: 768, N: 1, K: 256, Type: core.Int16, Out: core.S32}, plan.Options{}},
	} {
		pl, err := plan.New(&device.VC1902, c.p, c.opt)
		require.NoError(t, err)
		pr, err := Build(pl)
		require.NoError(t, err)
		rep, err := Run(context.Background(), pr, Operands{}, Options{TimingOnly: true})
		require.NoError(t, err)
		pd := pl.Predict()
		t.Logf("%v %dx%dx%d grid %dx%dx%d block %dx%dx%d A %v B %v: model %.0f, machine %.0f (%+.1f %%), bound %s / %s, %d events", c.p.Type, c.p.M, c.p.N, c.p.K,
			pl.Rows, pl.Chain, pl.Groups, pl.MB, pl.KB, pl.NB, pl.FeedA, pl.FeedB, pd.Cycles, rep.Cycles, 100*(rep.Cycles/pd.Cycles-1), pd.Bound, rep.Bound, rep.Events)
		require.InEpsilon(t, pd.Cycles, rep.Cycles, 0.15)
		require.InEpsilon(t, pd.Bytes.DDR, rep.Bytes.DDR, 0.01)
		require.InEpsilon(t, pd.Bytes.FPGA, rep.Bytes.FPGA, 0.01)
		require.InEpsilon(t, pd.Bytes.Local, rep.Bytes.Local, 0.01)
	}
}

func TestTimingOnlyEqualsFull(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, d := range []plan.Design{plan.Best, plan.Paper} {
		p := newProblem(rng, plan.Problem{M: 100, N: 70, K: 500, Type: core.Int16, Out: core.S32})
		pl, full := run(t, p, plan.Options{Design: d}, Options{})
		pr, err := Build(pl)
		require.NoError(t, err)
		only, err := Run(context.Background(), pr, Operands{}, Options{TimingOnly: true})
		require.NoError(t, err)
		require.Equal(t, full, only)
	}
}

// TestProgramText: the register program of a run survives its text form, and the machine gives the same result from it.
func TestProgramText(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 10))
	for _, d := range []plan.Design{plan.Best, plan.Paper} {
		p := newProblem(rng, plan.Problem{M: 40, N: 30, K: 100, Type: core.Int16, Out: core.S32})
		p.reference(map[plan.Design]int{plan.Paper: 290}[d])
		pl, err := plan.New(&device.VC1902, p.Problem, plan.Options{Design: d})
		require.NoError(t, err)
		pr, err := Build(pl)
		require.NoError(t, err)
		var text bytes.Buffer
		_, err = pr.Regs.WriteTo(&text)
		require.NoError(t, err)
		again, err := regs.Parse(&text)
		require.NoError(t, err)
		require.Equal(t, pr.Regs.Ops, again.Ops)
		pr.Regs = *again
		a, err := PackWeights(pl, p.a)
		require.NoError(t, err)
		_, err = Run(context.Background(), pr, Operands{A: a, B: p.b, C: p.c}, Options{})
		require.NoError(t, err)
		for r := range p.M {
			for c := range p.N {
				require.Equal(t, p.want.int(r, c), p.c.int(r, c))
			}
		}
	}
}

// TestMutations changes single bits of the words that the register program writes: what the design sets must matter. A change either gives a
// reported error or a wrong result; the fields that cannot matter are listed.
func TestMutations(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	harmless := 0
	const tries = 150
	for try := range tries {
		d := plan.Design(try % 2)
		p := newProblem(rng, plan.Problem{M: 40, N: 20, K: 120, Type: core.Int16, Out: core.S32})
		opt := plan.Options{Design: d, KC: 64}
		if d == plan.Best {
			opt = plan.Options{Rows: 2, Chain: 2, KB: 16, MB: 16, NB: 8}
		}
		if d == plan.Paper { // C += A B
			for r := range p.M {
				for c := range p.N {
					v := int64(int32(rng.Uint32()))
					p.c.put(r, c, v)
					p.want.put(r, c, v)
				}
			}
		}
		p.reference(map[plan.Design]int{plan.Paper: 64}[d])
		pl, err := plan.New(&device.VC1902, p.Problem, opt)
		require.NoError(t, err)
		pr, err := Build(pl)
		require.NoError(t, err)
		a, err := PackWeights(pl, p.a)
		require.NoError(t, err)
		o, word, bit := mutation(rng, pr)
		was := o.Data[word]
		o.Data[word] ^= 1 << bit
		_, err = Run(context.Background(), pr, Operands{A: a, B: p.b, C: p.c}, Options{MaxEvents: 2_000_000})
		same := err == nil
		if same {
			for r := range p.M {
				for c := range p.N {
					same = same && p.want.int(r, c) == p.c.int(r, c)
				}
			}
		}
		if same {
			harmless++
			t.Logf("no effect: %s word %d bit %d (was 0x%08x)", o.Note, word, bit, was)
		}
	}
	require.LessOrEqual(t, harmless, tries/50)
}

// mutation picks a bit that the design sets or that changes what it means. It leaves out: lock B and base B, interleaving and packets of core
// descriptors (disabled), cache, QoS, burst and SMID of shim descriptors, the upper half of a 64-bit address, unused words and buffers of a record, and the
// increments and wraps of Y, which a transfer shorter than 256 words never reaches.
func mutation(rng *rand.Rand, pr *Program) (o *regs.Op, word, bit int) {
	for {
		o = &pr.Regs.Ops[rng.IntN(len(pr.Regs.Ops))]
		if o.Kind != regs.Block {
			continue
		}
		_, row, off := pr.Device.Split(o.Addr)
		word = rng.IntN(len(o.Data))
		switch {
		case off >= device.ProgramMemory:
			rec, _ := DecodeRecord(o.Data)
			switch {
			case word > 18, word == 5, word == 4, rec.Streamed && (word > 6 && word != 13 && word != 8 && word != 7 || word == 7), !rec.Streamed && (word == 17 || rec.CascadeOut && (word == 16 || word == 18 || word == 3)):
				continue
			}
			bit = rng.IntN(6)
			if word == 1 {
				bit = rng.IntN(3)
			}
			if word == 18 || word == 2 || word == 3 {
				bit = rng.IntN(2)
			}
		case row == 0:
			fields := [][2]int{{0, 6}, {0, 2}, {1, 0}, {1, 3}, {2, 0}, {2, 3}}
			f := fields[rng.IntN(len(fields))]
			word, bit = f[0], f[1]
		case off >= device.BDBase:
			fields := [][2]int{{0, 22}, {0, 21}, {0, 20}, {0, 18}, {0, 17}, {0, 5}, {2, 0}, {2, 16}, {6, 31}, {6, 17}, {6, 13}, {6, 0}, {6, 3}}
			f := fields[rng.IntN(len(fields))]
			word, bit = f[0], f[1]
			if word == 2 && bit == 16 || word == 6 && (bit == 17 || bit == 13) && pr.Plan.Design == plan.Paper {
				continue
			}
		default:
			bit = rng.IntN(4)
		}
		return o, word, bit
	}
}

func TestErrorsNameWhatIsWrong(t *testing.T) {
	build := func(d plan.Design) *Program {
		opt := plan.Options{Design: d}
		if d == plan.Best {
			opt = plan.Options{Rows: 1, MB: 16, NB: 8, KB: 16}
		}
		pl, err := plan.New(&device.VC1902, plan.Problem{M: 16, N: 8, K: 64, Type: core.Int16, Out: core.S32}, opt)
		require.NoError(t, err)
		pr, err := Build(pl)
		require.NoError(t, err)
		return pr
	}
	addr := func(pr *Program, row int, off uint32) *regs.Op {
		for i := range pr.Regs.Ops {
			_, r, o := pr.Device.Split(pr.Regs.Ops[i].Addr)
			if o == off && (r == 0) == (row == 0) && pr.Regs.Ops[i].Kind != regs.Host {
				return &pr.Regs.Ops[i]
			}
		}
		t.Fatalf("no operation at 0x%x", off)
		return nil
	}
	for _, c := range []struct {
		name   string
		design plan.Design
		break_ func(*Program)
		want   string
	}{
		{"descriptor not valid", plan.Best, func(pr *Program) { addr(pr, 1, device.BDBase).Data[6] &^= 1 << 31 }, "descriptor 0 is not valid"},
		{"descriptor beyond memory", plan.Best, func(pr *Program) { addr(pr, 1, device.BDBase).Data[0] |= 0x1FFF }, "ends at byte"},
		{"channel not enabled", plan.Best, func(pr *Program) { addr(pr, 1, device.CoreS2MM).Value = 0 }, "s2mm 0: started but not enabled"},
		{"no kernel", plan.Best, func(pr *Program) { addr(pr, 1, device.ProgramMemory).Data[0] = 0 }, "program memory holds no kernel record"},
		{"unknown register", plan.Best, func(pr *Program) { pr.Regs.Write(pr.Device.Addr(0, 1, 0x1F000), 1, "") }, "no register at 0x1f000"},
		{"no core there", plan.Best, func(pr *Program) { pr.Regs.Write(pr.Device.Addr(60, 1, 0), 1, "") }, "no core at column 60"},
		{"queue overflow", plan.Best, func(pr *Program) {
			for range 5 {
				pr.Regs.Write(pr.Device.Addr(pr.Plan.Start, 1, device.CoreS2MM+device.QueueOffset), 0, "")
			}
		}, "queue of 4 overflows"},
		{"rewritten while running", plan.Best, func(pr *Program) { pr.Regs.Write(pr.Device.Addr(pr.Plan.Start, 1, device.BDBase), 1, "") }, "is rewritten while"},
		{"deadlock", plan.Best, func(pr *Program) { addr(pr, 1, device.BDBase).Data[0] &^= 1 << 20 }, "deadlock"},
		{"missing data", plan.Best, func(pr *Program) { addr(pr, 1, device.BDBase).Data[6] -= 8 }, "which nobody wrote"},
		{"shim without DMA", plan.Paper, func(pr *Program) { pr.Regs.Write(pr.Device.Addr(0, 0, device.ShimS2MM), 1, "") }, "shim 0 has no DMA"},
		{"shim address", plan.Paper, func(pr *Program) { addr(pr, 0, device.BDBase).Data[0] |= 1 << 30 }, "outside of memory"},
		{"wait without end", plan.Paper, func(pr *Program) {
			pr.Regs.Poll(pr.Device.Addr(pr.Device.NoCCols[0], 0, device.ShimStatusS2MM), 2, 3, "never")
		}, "the register program waits at operation"},
	} {
		pr := build(c.design)
		c.break_(pr)
		p := newProblem(rand.New(rand.NewPCG(1, 1)), pr.Plan.Problem)
		a, err := PackWeights(pr.Plan, p.a)
		require.NoError(t, err)
		_, err = Run(context.Background(), pr, Operands{A: a, B: p.b, C: p.c}, Options{MaxEvents: 100000})
		require.ErrorContains(t, err, c.want, c.name)
	}
	pr := build(plan.Best)
	p := newProblem(rand.New(rand.NewPCG(1, 1)), pr.Plan.Problem)
	_, err := Run(context.Background(), pr, Operands{A: make([]byte, 3), B: p.b, C: p.c}, Options{})
	require.ErrorContains(t, err, "A is packed in 3 bytes")
	_, err = Run(context.Background(), pr, Operands{A: make([]byte, pr.Plan.BytesA()), B: p.a, C: p.c}, Options{})
	require.ErrorContains(t, err, "B is 16 x 64 of 2 bytes, 64 x 8 of 2 is right")
	_, err = PackWeights(pr.Plan, p.b)
	require.ErrorContains(t, err, "A is 64 x 8")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Run(ctx, pr, Operands{}, Options{TimingOnly: true})
	require.ErrorIs(t, err, context.Canceled)
}

// TestConvolution lowers convolutions block by block and compares with the definition.
func TestConvolution(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	for range 12 {
		g := Conv{N: 1 + rng.IntN(2), C: 1 + rng.IntN(5), H: 3 + rng.IntN(10), W: 3 + rng.IntN(10), KH: 1 + rng.IntN(3), KW: 1 + rng.IntN(3), StrideH: 1 + rng.IntN(2), StrideW: 1 + rng.IntN(2),
			DilationH: 1, DilationW: 1 + rng.IntN(2), PadTop: rng.IntN(2), PadLeft: rng.IntN(2)}
		g.OutH = (g.H+2*g.PadTop-(g.KH-1)*g.DilationH-1)/g.StrideH + 1
		g.OutW = (g.W+2*g.PadLeft-(g.KW-1)*g.DilationW-1)/g.StrideW + 1
		if g.OutW < 1 || g.OutH < 1 {
			continue
		}
		filters := 1 + rng.IntN(20)
		img := make([]byte, 2*g.N*g.C*g.H*g.W)
		require.NoError(t, g.Check(len(img)/2))
		for i := range img {
			img[i] = byte(rng.Uint32())
		}
		src := &Im2Row{Conv: g, Data: img, Bytes: 2}
		k, n := src.Size()
		for _, d := range []plan.Design{plan.Best, plan.Paper} {
			pp := plan.Problem{M: filters, N: n, K: k, Type: core.Int16, Out: core.S32}
			pl, err := plan.New(&device.VC1902, pp, plan.Options{Design: d})
			require.NoError(t, err)
			w := matrix(filters, k, 2, false, 0)
			for i := range w.Data {
				w.Data[i] = byte(rng.Uint32())
			}
			a, err := PackWeights(pl, w)
			require.NoError(t, err)
			c := matrix(filters, n, 4, false, 0)
			pr, err := Build(pl)
			require.NoError(t, err)
			_, err = Run(context.Background(), pr, Operands{A: a, B: src, C: c}, Options{})
			require.NoError(t, err)
			at := func(b, ch, h, x int) int64 {
				if h < 0 || h >= g.H || x < 0 || x >= g.W {
					return 0
				}
				return int64(int16(binary.LittleEndian.Uint16(img[2*(((b*g.C+ch)*g.H+h)*g.W+x):])))
			}
			for f := range filters {
				for j := range n {
					ow, oh, b := j%g.OutW, j/g.OutW%g.OutH, j/(g.OutW*g.OutH)
					s := int64(0)
					for ch := range g.C {
						for kh := range g.KH {
							for kw := range g.KW {
								s += w.int(f, (ch*g.KH+kh)*g.KW+kw) * at(b, ch, oh*g.StrideH+kh*g.DilationH-g.PadTop, ow*g.StrideW+kw*g.DilationW-g.PadLeft)
							}
						}
					}
					require.Equal(t, int64(int32(s)), c.int(f, j), "%+v filter %d pixel %d", g, f, j)
				}
			}
		}
	}
	require.ErrorContains(t, (&Conv{}).Check(10), "at least 1 are right")
}

func TestTrace(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	tr := &Trace{}
	p := newProblem(rng, plan.Problem{M: 64, N: 64, K: 128, Type: core.Int8, Out: core.S32})
	_, rep := run(t, p, plan.Options{Tiles: 4}, Options{Trace: tr})
	require.Positive(t, tr.Spans())
	var b bytes.Buffer
	require.NoError(t, tr.WriteChrome(&b, device.VC1902.ClockHz))
	var events []map[string]any
	require.NoError(t, json.Unmarshal(b.Bytes(), &events))
	last := 0.0
	for _, e := range events {
		if e["ph"] == "X" {
			last = max(last, e["ts"].(float64)+e["dur"].(float64))
		}
	}
	require.LessOrEqual(t, last, rep.Seconds*1e6*1.001)
}

// FuzzRun changes words of register programs: the emulator may give a wrong result or an error, but no panic and no endless run.
func FuzzRun(f *testing.F) {
	f.Add(uint8(0), []byte{3, 0, 1, 7, 9, 2, 31, 1})
	f.Add(uint8(1), []byte{20, 3, 0, 0, 1, 1, 5, 200})
	f.Add(uint8(2), []byte{255, 6, 13, 1})
	f.Fuzz(func(t *testing.T, which uint8, changes []byte) {
		p := newProblem(rand.New(rand.NewPCG(1, uint64(which))), plan.Problem{M: 40, N: 12, K: 70, Type: core.Types()[which%3], Out: core.Types()[which%3].Default()})
		opt := plan.Options{Design: plan.Design(which / 3 % 2), KC: 32}
		if opt.Design == plan.Best {
			opt = plan.Options{Rows: 2, MB: 16, NB: 8, KB: 16}
		}
		pl, err := plan.New(&device.VC1902, p.Problem, opt)
		require.NoError(t, err)
		pr, err := Build(pl)
		require.NoError(t, err)
		for ; len(changes) >= 4; changes = changes[4:] {
			o := &pr.Regs.Ops[int(changes[0])%len(pr.Regs.Ops)]
			x := uint32(changes[3]) << (changes[2] % 32)
			switch {
			case changes[1] == 255:
				o.Addr ^= x
			case o.Kind == regs.Block:
				o.Data[int(changes[1])%len(o.Data)] ^= x
			case o.Kind == regs.Host:
				o.Index ^= int(x)
			default:
				o.Value ^= x
			}
		}
		a, err := PackWeights(pl, p.a)
		require.NoError(t, err)
		stuck := time.AfterFunc(20*time.Second, func() { panic("the emulator does not come to an end") })
		defer stuck.Stop()
		_, _ = Run(context.Background(), pr, Operands{A: a, B: p.b, C: p.c}, Options{MaxEvents: 100_000})
	})
}
