package xdna

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/xdna/design"
	"github.com/tessera-go/tessera/backends/xdna/device"
	"github.com/tessera-go/tessera/ops/matmul"
	"github.com/tessera-go/tessera/tensor"
)

// slow asks for everything: TESSERA_SLOW=1 go test ./backends/xdna takes a minute or two.
var slow = os.Getenv("TESSERA_SLOW") != ""

// logUniform draws from 1 to most with every order of magnitude equally likely.
func logUniform(rng *rand.Rand, most int) int {
	return min(most, int(math.Exp(rng.Float64()*math.Log(float64(most)))*1.0001)+rng.IntN(2))
}

// Ragged sizes up to 3,000 a side, every device, type and layout: the emulated product equals the definition in samples and the other mode in full.
func TestRandomSizes(t *testing.T) {
	most := 3000
	if testing.Short() {
		most = 500
	}
	for _, dev := range device.All() {
		for _, s := range specs {
			for _, bLayout := range []matmul.Layout{matmul.ColMajor, matmul.RowMajor} {
				s := s
				s.BLayout = bLayout
				opt := Options{RowMajorB: bLayout == matmul.RowMajor}
				fast := open(t, dev, opt)
				if fast.engine.Supports(s, matmul.Shape{}) != nil || bLayout == matmul.RowMajor && s.B == tensor.BFP16 {
					continue
				}
				opt.Mode = Emulate
				emulate := open(t, dev, opt)
				t.Run(fmt.Sprintf("%s/%v", dev.Name, s), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(uint64(s.A), uint64(s.C)))
					sizes := [][3]int{{}, {}}
					if slow {
						for range 4 {
							sizes = append(sizes, [3]int{1 + rng.IntN(most), 1 + rng.IntN(most), 1 + rng.IntN(most)})
						}
					}
					for _, z := range sizes {
						if z[0] == 0 {
							z = [3]int{logUniform(rng, most), logUniform(rng, most), logUniform(rng, most)}
						}
						p := randomProblem(rng, s, z[0], z[1], z[2], opt.Rounding)
						one, two := p.run(t, emulate), p.run(t, fast)
						require.Equal(t, one.Raw(), two.Raw(), "M %d %v", p.m, p.spec)
						p.check(t, emulate, one, rng, 60)
					}
					require.Equal(t, int64(1), emulate.Stats().Configurations)
				})
			}
		}
	}
}

// Sizes beyond 64K in each dimension in turn: fields of descriptors do not bound them.
func TestBeyond64K(t *testing.T) {
	const long = 65600
	for _, dev := range device.All() {
		for i, c := range []struct {
			spec matmul.Spec
			opt  Options
		}{
			{matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I32, BLayout: matmul.ColMajor}, Options{}},
			{matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I16, BLayout: matmul.RowMajor}, Options{RowMajorB: true}},
			{matmul.Spec{A: tensor.BF16, B: tensor.BF16, C: tensor.BF16, BLayout: matmul.ColMajor}, Options{Padding: design.PadMemTile}},
		} {
			if !slow && (i > 0) != (dev == device.XDNA) {
				continue // in turn: types and layouts on XDNA, integers on XDNA2
			}
			fast := open(t, dev, c.opt)
			c.opt.Mode = Emulate
			emulate := open(t, dev, c.opt)
			for _, size := range [][3]int{{long, 24, 40}, {24, long, 40}, {24, 40, long}} {
				t.Run(fmt.Sprintf("%s/%v-%v/%v", dev.Name, c.spec.A, c.spec.C, size), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(1, 1))
					p := randomProblem(rng, c.spec, size[0], size[1], size[2], 0)
					one, two := p.run(t, emulate), p.run(t, fast)
					require.Equal(t, one.Raw(), two.Raw())
					p.check(t, emulate, one, rng, 20)
				})
			}
		}
	}
}

// 200 sizes in a row use one configuration, and plans and weights of all of them can be alive at once.
func TestManySizesOneConfiguration(t *testing.T) {
	spec := matmul.Spec{A: tensor.I8, B: tensor.I8, C: tensor.I16, BLayout: matmul.ColMajor}
	b := open(t, device.XDNA2, Options{Mode: Emulate})
	rng := rand.New(rand.NewPCG(7, 7))
	n := 200
	var ws matmul.Workspace
	ctx := context.Background()
	for range n {
		p := randomProblem(rng, spec, logUniform(rng, 600), logUniform(rng, 900), logUniform(rng, 600), 0)
		w, err := b.engine.Pack(ctx, p.spec, p.b)
		require.NoError(t, err)
		plan, err := b.engine.Plan(p.spec, matmul.Shape{M: p.m})
		require.NoError(t, err)
		c := tensor.New(p.spec.C, p.m, p.spec.N)
		require.NoError(t, plan.Run(ctx, w, &matmul.Args{A: p.a, C: c}, &ws))
		p.check(t, b, c, rng, 10)
	}
	s := b.Stats()
	require.Equal(t, int64(1), s.Configurations)
	require.Equal(t, int64(n), s.Dispatches)
	require.Positive(t, s.ControlWords)
	require.Positive(t, s.StagedBytes)
	require.Less(t, s.UsefulMACs, s.PaddedMACs)

	// Another type pair takes another configuration, and coming back a third.
	p := randomProblem(rng, matmul.Spec{A: tensor.BF16, B: tensor.BF16, C: tensor.BF16}, 9, 9, 9, 0)
	p.run(t, b)
	randomProblem(rng, spec, 9, 9, 9, 0).run(t, b)
	require.Equal(t, int64(3), b.Stats().Configurations)
}
