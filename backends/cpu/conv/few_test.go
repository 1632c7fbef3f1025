package conv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// withOneWideLoad runs f as on a processor that loads one vector a cycle, or that loads more.
func withOneWideLoad(one bool, f func()) {
	in := cpuinfo.Get()
	was := in.Features.OneWideLoad
	in.Features.OneWideLoad = one
	defer func() { in.Features.OneWideLoad = was }()
	f()
}

// The tiles with few loads are chosen on processors that load one vector a cycle, for panels that stay in L1, where they take less time.
func TestFewLoads(t *testing.T) {
	k := kernelsOf(kindF32, best())
	if k.few == nil {
		t.Skip("no such tiles")
	}
	l1 := cpuinfo.Get().L1D
	for _, c := range []struct{ m, nr int }{{16, 32}, {24, 32}, {32, 32}, {33, 48}, {48, 48}, {49, 64}, {64, 64}, {72, 48}, {96, 48}, {128, 64}, {160, 64}, {256, 64}} {
		s := Spec{N: 1, H: 8, W: 8, C: 16, M: c.m, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 8, OW: 8, Groups: 1}
		withOneWideLoad(true, func() { require.Equal(t, c.nr, k.forLoads(&s).nr, "%d channels", c.m) })
		withOneWideLoad(false, func() { require.Same(t, k, k.forLoads(&s), "%d channels", c.m) })
	}
	withOneWideLoad(true, func() {
		s := Spec{M: 64, C: l1 * 2 / 3 / 256, KH: 1, KW: 1, Groups: 1}
		require.Equal(t, 64, k.forLoads(&s).nr)
		s.C++ // a panel does not stay
		require.NotEqual(t, 64, k.forLoads(&s).nr)
		s.Groups, s.M, s.C = 2, 128, 2*(s.C-1) // of a group
		require.Equal(t, 64, k.forLoads(&s).nr)
		s = Spec{M: 64, C: 64, KH: 3, KW: 3, Groups: 1, Tile: 4} // of a frequency
		require.Equal(t, 64, k.forLoads(&s).nr)
		s.Tile = 0
		require.Equal(t, 32, k.forLoads(&s).nr)
	})
}

func bitsOf(x []float32) []uint32 {
	bits := make([]uint32, len(x))
	for i, v := range x {
		bits[i] = math.Float32bits(v)
	}
	return bits
}

// The tiles with few loads give the bits of the others: for every width and height, what follows the sums, and by Winograd's algorithm.
func TestFewLoadsSameBits(t *testing.T) {
	if kernelsOf(kindF32, best()).few == nil {
		t.Skip("no such tiles")
	}
	rng := rand.New(rand.NewPCG(3, 3))
	chosen := map[int]bool{}
	for i, m := range []int{33, 40, 47, 48, 49, 56, 63, 64, 65, 81, 95, 96, 97, 127, 128, 129, 160, 161} {
		for w := 1; w <= 19; w++ {
			s := Spec{N: 1, H: 1 + i%2, W: w, C: 4 * (1 + w%5), M: m, KH: 1, KW: 1, SH: 1, SW: 1, DH: 1, DW: 1, OH: 1 + i%2, OW: w, Groups: 1}
			if w%4 == 1 {
				s.KW, s.Left = 3, 1
			}
			act := actCases[(i+w)%len(actCases)].act
			bias, res := randomOf(rng, m), randomOf(rng, s.OH*w*m)
			if w%3 == 0 {
				res = nil
			}
			if w%6 == 5 {
				s.KH, s.KW, s.H, s.OH, s.Top, s.Left, s.Tile, res = 3, 3, 5, 5, 1, 1, 2+2*(i%2), nil
			}
			x, weights := randomOf(rng, s.H*w*s.C), randomOf(rng, s.Weights())
			xb, wi := make([]byte, len(x)), make([]int16, len(weights))
			for j := range xb {
				xb[j] = byte(rng.IntN(256))
			}
			for j := range wi {
				wi[j] = int16(rng.IntN(255) - 127)
			}
			scale := randomOf(rng, m)
			run := func(one bool) (floats, fromBytes []float32, raw []float32, narrow []byte) {
				n := s.OH * w * m
				floats, fromBytes, raw, narrow = make([]float32, n), make([]float32, n), make([]float32, n), make([]byte, n)
				withOneWideLoad(one, func() {
					f, err := Pack(s, weights, nil, best())
					require.NoError(t, err)
					if one {
						chosen[f.k.nr] = true
					}
					p, err := NewPlan(f, s, 1)
					require.NoError(t, err)
					p.Run(&Args{X: x, Y: floats, Bias: bias, Residual: res, Act: act})

					s := s
					s.Type, s.Tile = Int8, 0
					if f, err = PackInt(s, wi, best()); err != nil {
						t.Fatal(err)
					}
					p, err = NewPlan(f, s, 1)
					require.NoError(t, err)
					p.Run(&Args{X8: xb, Y: fromBytes, Bias: bias, Residual: res, Scale: scale, Act: act})
					p.Run(&Args{X8: xb, Y: raw, Raw: true, Act: NoAct})
					a := &Args{X8: xb, Y: make([]float32, n), Bytes: narrow, Bias: bias, Residual: res, Scale: scale, Act: act, Quant: Quant{Scale: 0.02, Low: 0, High: 255, Zero: 7}}
					a.Store = func(int, []float32) { t.Error("a pixel is stored outside its tile") }
					p.Run(a)
				})
				return
			}
			a, b, c, d := run(true)
			e, f, g, h := run(false)
			name := fmt.Sprintf("%+v", s)
			require.Equal(t, e, a, name)
			require.Equal(t, f, b, name)
			require.Equal(t, bitsOf(g), bitsOf(c), name) // sums of integers: some are NaN as floats
			require.Equal(t, h, d, name)
		}
	}
	require.True(t, chosen[48] && chosen[64], "%v", chosen)
}
