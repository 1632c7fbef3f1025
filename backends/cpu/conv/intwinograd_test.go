package conv

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// intWinogradCases are convolutions that the algorithm takes: channels around whole vectors and pairs, tiles cut at the edges, dilations, planes.
func intWinogradCases() []Spec {
	var list []Spec
	for i, c := range []int{1, 7, 12, 15, 16, 17, 24, 31, 32, 40, 65} {
		for j, m := range []int{1, 8, 13, 16, 33, 40} {
			s := Spec{N: 1 + j%2, H: 4 + (i+j)%9, W: 3 + (3*i+j)%13, C: c, M: m, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1 + i%4/3, DW: 1 + j%5/4, Top: i % 3, Left: j % 3,
				Groups: 1, Type: Int8, Tile: 4, Signed: (i+j)%2 == 1}
			s.XZero = []int32{0, 255, 3, 128, 97}[(i+2*j)%5]
			if s.Signed {
				s.XZero -= 128
			}
			if (i+j)%4 == 3 {
				s.Depth = Dim{In: 3, Kernel: 2 + j%2, Stride: 1, Dilation: 1, Before: i % 2}
				s.Depth.Out = s.Depth.In + 2*s.Depth.Before - s.Depth.Kernel + 1
			}
			s.OH, s.OW = s.H+2*s.Top-2*s.DH, s.W+2*s.Left-2*s.DW
			if s.OH > 0 && s.OW > 0 {
				list = append(list, s)
			}
		}
	}
	return append(list, Spec{N: 2, H: 30, W: 27, C: 70, M: 50, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 30, OW: 27, Groups: 1, Type: Int8, Tile: 4})
}

// Results have the bits of the definition's, with every epilogue: sums, factors, bias, residual, limits, Post and Store.
func TestIntWinograd(t *testing.T) {
	for i, s := range some(intWinogradCases()) {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		nx, ny := s.sizes()
		x, w := make([]byte, nx), make([]int16, s.Weights())
		for j := range x {
			x[j] = byte(rng.IntN(256))
		}
		for j := range w {
			w[j] = int16(rng.IntN(256) - 128)
			if i%5 == 4 {
				w[j] = int16(rng.IntN(511) - 255)
			}
		}
		args := []Args{{Raw: true}, {Act: NoAct, Scale: randomOf(rng, s.M)}, {Act: actCases[i%len(actCases)].act, Scale: randomOf(rng, s.M), Bias: randomOf(rng, s.M), Residual: randomOf(rng, ny)}}
		run := func(f *Filter, s Spec, threads int, a Args, store bool) []float32 {
			p, err := NewPlan(f, s, threads)
			require.NoError(t, err)
			require.Equal(t, s.Tile > 0, p.win != nil)
			guarded := make([]float32, ny+32)
			y := guarded[16 : 16+ny]
			if a.X8, a.Y = x, y; store {
				a.Post = func(_ int, y []float32) {
					for i := range y {
						y[i] = -y[i]
					}
				}
				a.Store = func(i int, row []float32) { copy(y[i:], row) }
			}
			p.Run(&a)
			untouched(t, guarded, 16, 0, s)
			return y
		}
		for _, isa := range isas() {
			f, err := PackInt(s, w, isa)
			require.NoError(t, err)
			direct := s
			direct.Tile = 0
			g, err := PackInt(direct, w, isa)
			require.NoError(t, err)
			for k, a := range args {
				store := k == 2 && i%2 == 0
				want := run(g, direct, 1, a, store)
				for threads := 1; threads < 8 && k > 0 && !store; threads++ { // bytes, of some channels at a time, with and without Narrow
					p, err := NewPlan(f, s, threads/2+1)
					require.NoError(t, err)
					b, to := a, make([]byte, ny)
					b.X8, b.Bytes, b.Quant = x, to, Quant{Scale: 0.002, Zero: 100, Low: 0, High: 255}
					b.Store = func(i int, row []float32) {
						for j, v := range row {
							to[i+j] = b.Quant.of(v)
						}
					}
					if threads%2 == 0 {
						b.Store = func(int, []float32) { t.Error("Store beside Narrow") }
						b.Narrow = func(dst []byte, x []float32) {
							for j, v := range x {
								dst[j] = b.Quant.of(v)
							}
						}
					}
					p.Run(&b)
					for j, v := range want {
						if to[j] != b.Quant.of(v) {
							t.Fatalf("%v %+v arguments %d byte %d: %d, want %d", isa, s, k, j, to[j], b.Quant.of(v))
						}
					}
				}
				for _, threads := range []int{1, 3} {
					for j, v := range run(f, s, threads, a, store) {
						if math.Float32bits(v) != math.Float32bits(want[j]) {
							t.Fatalf("%v %+v arguments %d element %d: %v, want %v", isa, s, k, j, v, want[j])
						}
					}
				}
			}
		}
	}
}

// Sums up to the bound are right; weights whose sums may go beyond it are packed for the definition.
func TestIntWinogradRoom(t *testing.T) {
	const c, limit = 60, 1 << 25
	for _, signed := range []bool{false, true} {
		for _, sign := range []int{1, -1} {
			for _, over := range []int{-1, 0, 1, 1 << 20} {
				s := Spec{N: 1, H: 7, W: 9, C: c, M: 3, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 7, OW: 9, Groups: 1, Type: Int8, Tile: 4, Signed: signed}
				far := byte(255)
				if signed {
					s.XZero, far = -128, 127
				}
				// The sum of the pixels in the middle where all are 255 above the zero point; limit and its neighbours are no multiples of 255, so that
				// one pixel has less.
				w := make([]int16, s.Weights())
				total := min((limit+over)/255, 255*9*c)
				for j, left := 0, total; left > 0; j++ {
					v := min(left, 255)
					w[j], left = int16(sign*v), left-v
				}
				nx, ny := s.sizes()
				x := make([]byte, nx)
				for j := range x {
					x[j] = far
				}
				fits := s.fitsIntWinograd(w)
				sum := sign * 255 * total
				require.Equal(t, sum >= -limit && sum < limit, fits, "sum %d", sum)
				for _, isa := range isas() {
					f, err := PackInt(s, w, isa)
					require.NoError(t, err)
					p, err := NewPlan(f, s, 1)
					require.NoError(t, err)
					require.Equal(t, fits, p.win != nil)
					y := make([]float32, ny)
					p.Run(&Args{X8: x, Y: y, Raw: true})
					require.Equal(t, int32(sum), int32(math.Float32bits(y[(3*9+4)*3])), "%v", isa)
				}
			}
		}
	}
}

// Sums of frequencies may need more than 32 bits where those of pixels do not: products wrap, none saturates, and pixels are right.
func TestIntWinogradWraps(t *testing.T) {
	s := Spec{N: 1, H: 6, W: 6, C: 112, M: 40, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, OH: 4, OW: 4, Groups: 1, Type: Int8, Tile: 4, XZero: 128}
	pixels, taps := [6][6]int16{}, [3][6]int16{} // columns of the transforms
	for i := range pixels {
		var x [6]int16
		x[i] = 1
		pixels[i] = intForward(x)
		if i < 3 {
			taps[i] = intFrequencies(x[0], x[1], x[2])
		}
	}
	wrapped := 0
	for f := range 36 { // pixels and weights that make this frequency large
		nx, ny := s.sizes()
		x, w := make([]byte, nx), make([]int16, s.Weights())
		image, filter := int64(0), int64(0) // this frequency of a channel
		for i := range 36 {
			v, pixel := int64(pixels[i/6][f/6])*int64(pixels[i%6][f%6]), byte(0)
			if v > 0 {
				pixel = 255
			}
			image += v * (int64(pixel) - 128)
			for c := range s.C {
				x[i*s.C+c] = pixel
			}
		}
		for i := range 9 {
			v, weight := int64(taps[i/3][f/6])*int64(taps[i%3][f%6]), int16(-255)
			if v > 0 {
				weight = 255
			}
			filter += v * int64(weight)
			for k := range s.M * s.C {
				w[k*9+i] = weight
			}
		}
		require.True(t, s.fitsIntWinograd(w))
		if sum := int64(s.C) * image * filter; sum != int64(int32(sum)) {
			wrapped++
		}
		for _, isa := range isas() {
			packed, err := PackInt(s, w, isa)
			require.NoError(t, err)
			p, err := NewPlan(packed, s, 1)
			require.NoError(t, err)
			require.NotNil(t, p.win)
			y := make([]float32, ny)
			p.Run(&Args{X8: x, Y: y, Raw: true})
			for i := range 16 {
				want := int32(0)
				for tap := range 9 {
					want += int32(s.C) * int32(w[tap]) * (int32(x[((i/4+tap/3)*6+i%4+tap%3)*s.C]) - 128)
				}
				for m := range s.M {
					if got := int32(math.Float32bits(y[i*s.M+m])); got != want {
						t.Fatalf("%v, frequency %d, pixel %d, channel %d: %d, want %d", isa, f, i, m, got, want)
					}
				}
			}
		}
	}
	require.Greater(t, wrapped, 3)
}

// Where there are products of bytes, Winograd's algorithm in integers is chosen only on Zen 4, where it was measured beside them, and where there are none if
// there are kernels of it.
func TestBestTileOfBytes(t *testing.T) {
	s := Spec{N: 1, H: 56, W: 56, C: 64, M: 64, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: 56, OW: 56, Groups: 1, Type: Int8}
	for _, isa := range isas() {
		words, bytes := kernelsOf(kindS16, isa), kernelsOf(kindU8, isa)
		want := 0
		if words.intOut != nil && bytes.isa <= words.isa && (bytes.isa == cpuinfo.Portable || cpuinfo.Get().Features.Zen4) {
			want = 4
		}
		require.Equal(t, want, s.BestTile(isa), "%v", isa)
	}
}

// The frequencies of any image of bytes and the transformed weights fit words.
func TestIntWinogradWords(t *testing.T) {
	var unit [6][6]int16 // columns of the transform
	for i := range unit {
		var x [6]int16
		x[i] = 1
		unit[i] = intForward(x)
	}
	most := 0
	for i := range 6 {
		sum := 0
		for j := range 6 {
			sum += int(max(unit[j][i], -unit[j][i]))
		}
		most = max(most, sum)
	}
	require.LessOrEqual(t, most*most*255, math.MaxInt16)
	for _, v := range intFrequencies(1, 1, 1) {
		require.LessOrEqual(t, 255*int(v)*7, math.MaxInt16)
	}
	require.Equal(t, uint32(1), uint32(9*uint64(intWinogradInverse)&math.MaxUint32))
}

// Winograd's algorithm in integers beside the definition, at the sizes of ResNet-50.
func BenchmarkIntWinograd(b *testing.B) {
	for _, c := range []struct{ size, channels int }{{56, 64}, {28, 128}, {14, 256}, {7, 512}} {
		for _, tile := range []int{0, 4} {
			b.Run(fmt.Sprintf("%dx%dx%d_w%d", c.size, c.size, c.channels, tile), func(b *testing.B) {
				s := Spec{N: 1, H: c.size, W: c.size, C: c.channels, M: c.channels, KH: 3, KW: 3, SH: 1, SW: 1, DH: 1, DW: 1, Top: 1, Left: 1, OH: c.size, OW: c.size,
					Groups: 1, Type: Int8, Tile: tile}
				rng := rand.New(rand.NewPCG(1, 1))
				nx, ny := s.sizes()
				w := make([]int16, s.Weights())
				for i := range w {
					w[i] = int16(min(max(rng.NormFloat64()*32, -127), 127))
				}
				isa := isas()[0]
				for _, i := range isas() {
					isa = max(isa, i)
				}
				f, err := PackInt(s, w, isa)
				require.NoError(b, err)
				p, err := NewPlan(f, s, 1)
				require.NoError(b, err)
				a := &Args{X8: make([]byte, nx), Y: make([]float32, ny), Act: NoAct}
				p.Run(a)
				for b.Loop() {
					p.Run(a)
				}
				b.ReportMetric(float64(ny/s.M*len(w))/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GMAC/s")
			})
		}
	}
}

// The assembly reads the fields at these offsets.
func TestIntWinogradOffsets(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("kernels in assembly exist for 64 bits")
	}
	require.EqualValues(t, 48, unsafe.Offsetof(transform{}.zero))
	require.EqualValues(t, 96, unsafe.Offsetof(inverse{}.scale))
}
