package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/backends/cpu/internal/tile"
	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/internal/fma"
)

// tileTwins are the kernels of tiles in Go, so that the driver's ways with them are tested on every processor.
func tileTwins() []*kernel {
	list := []*kernel{
		{name: "bf16_bf16_32x32k2__tiles_go", a: aBF16, b: format{BF16, 32, 2}, acc: F32},
		{name: "s8_s8_32x32k4__tiles_go", a: aS8, b: format{S8, 32, 4}, acc: S32},
	}
	for _, k := range list {
		k.isa, k.mr, k.tile = cpuinfo.Portable, 2*tile.Rows, tile.Bytes/4
		k.full = twins(k.mr, k.twin)
	}
	return list
}

// tileKernelsHere are those, and the ones in assembly where this processor has tiles. TESSERA_TEST_TILES says that it has although it
// does not say so, because something emulates the instructions.
func tileKernelsHere() []*kernel {
	list := tileTwins()
	for _, k := range allKernels {
		if k.tile > 0 && (os.Getenv("TESSERA_TEST_TILES") != "" || find(cpuinfo.Get().ISA, k.a, k.b) == k) {
			list = append(list, k)
		}
	}
	return list
}

// useKernel makes products of a workspace use a kernel, whatever the level.
func useKernel(t *testing.T, w *Workspace, k *kernel, a Type, f format) {
	isa, err := (&Options{}).isa()
	require.NoError(t, err)
	w.prod.engine = engine{pack: k.b, main: k, low: k}
	w.prod.engineKey = engineKey{isa, a, k.b.elem, f, Auto}
}

// dotTiles is the product of bf16 by its definition: for each 32 k, the products of even and of odd k are chains from zero whose sum joins the
// sum, with subnormals taken as zero (Intel's manual, volume 2, TDPBF16PS).
func dotTiles(a, b Matrix, i, j int, from float32) float32 {
	const group = 32
	for k0 := 0; k0 < a.Cols; k0 += group {
		var chain [2]float32
		for k := k0; k < min(k0+group, a.Cols); k++ {
			chain[k%2] = flush(fma.F32(flush(a.value(i, k)), flush(b.value(k, j)), chain[k%2]))
		}
		from = flush(flush(from) + flush(chain[0]+chain[1]))
	}
	return from
}

// Products by tiles have the bits of their definition for every shape, layout, blocking, number of workers and entry point: rows, columns and k of no
// whole tiles, A that is read as it lies, copied or packed, and chunks of k.
func TestTiles(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	small, err := NewKnobs(map[string]int{"kc-min": 16, "kc-max": 16, "pack-limit": 1 << 16, "b-local-rows": 20, "a-pack-reuse": 1})
	require.NoError(t, err)
	shapes := [][3]int{{1, 1, 1}, {1, 200, 97}, {2, 32, 31}, {15, 33, 32}, {16, 64, 33}, {17, 65, 64}, {31, 16, 65}, {32, 17, 700}, {33, 96, 127},
		{40, 100, 96}, {47, 48, 1}, {48, 31, 2}, {49, 130, 3}, {65, 63, 160}, {100, 40, 250}, {5, 70, 1500}, {21, 8, 2100}, {130, 98, 64}}
	for _, k := range tileKernelsHere() {
		types := []Type{BF16}
		if k.acc == S32 {
			types = []Type{S8, U8}
		}
		for _, at := range types {
			for _, s := range shapes {
				m, n, depth := s[0], s[1], s[2]
				a, b := operand(r, at, m, depth), operand(r, k.b.elem, depth, n)
				if r.IntN(3) == 0 {
					a = operand(r, at, depth, m).T()
				}
				if r.IntN(3) == 0 {
					b = operand(r, k.b.elem, n, depth).T()
				}
				pb, err := packB(b, k.b, &Options{})
				require.NoError(t, err)
				pa, err := packA(a, k)
				require.NoError(t, err)
				w := new(Workspace)
				for _, kn := range []*Knobs{nil, small} {
					o := &Options{Threads: 1 + r.IntN(3), Knobs: kn, Workspace: w}
					if k.acc == S32 && r.IntN(2) == 0 {
						o.AZero = int32(r.IntN(100)) - 20
					}
					for _, x := range []struct {
						how string
						f   format
						mul func(c Matrix) error
					}{
						{"plain", format{}, func(c Matrix) error { return Mul(c, a, b, o) }},
						{"packed B", k.b, func(c Matrix) error { return MulPacked(c, a, pb, o) }},
						{"packed A", format{}, func(c Matrix) error { return MulPackedA(c, pa, b, o) }},
						{"both packed", k.b, func(c Matrix) error { return MulPackedAB(c, pa, pb, o) }},
					} {
						name := fmt.Sprintf("%s %v %v %s knobs %v zero %d threads %d", k.name, at, s, x.how, kn != nil, o.AZero, o.Threads)
						useKernel(t, w, k, at, x.f)
						if k.acc == S32 {
							c := make([]int32, m*n)
							want := refInt(a, b, o.AZero)
							require.NoError(t, x.mul(Of(c, m, n)), name)
							equal(t, want, c, name)
							o.Accumulate = true
							require.NoError(t, x.mul(Of(c, m, n)), name)
							for i := range want {
								want[i] *= 2
							}
							equal(t, want, c, "%s, accumulated", name)
						} else {
							const gap = 3
							c, want := make([]float32, m*(n+gap)), make([]float32, m*(n+gap))
							for i := range c {
								c[i] = float32(r.IntN(9) - 4)
								want[i] = c[i]
							}
							o.Accumulate = r.IntN(2) == 0
							for i := range m {
								for j := range n {
									e := &want[i*(n+gap)+j]
									if !o.Accumulate {
										*e = 0
									}
									*e = dotTiles(a, b, i, j, *e)
								}
							}
							require.NoError(t, x.mul(View(c, m, n, n+gap, 1)), name)
							for i := range c {
								if math.Float32bits(want[i]) != math.Float32bits(c[i]) {
									t.Fatalf("%s, added %v: element %d, %d is %v, want %v", name, o.Accumulate, i/(n+gap), i%(n+gap), c[i], want[i])
								}
							}
						}
						o.Accumulate = false
						require.Equal(t, k, w.prod.kern, name)
					}
				}
			}
		}
	}
}

// Each kernel in assembly gives the bits of its twin.
func TestTileKernelsMatchTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(63, 64))
	for _, k := range tileKernelsHere() {
		if k.isa == cpuinfo.Portable {
			continue // they are the twins
		}
		for h := 1; h <= k.mr; h++ {
			for _, cols := range []int{1, 15, 16, 17, 31, 32, 33, 64, 95, 128, 130} {
				compareWithTwin(t, r, k, rawCall{h: h, cols: cols, steps: 1 + r.IntN(50), acc: r.IntN(2) == 0, gap: r.IntN(2) == 0})
			}
			for steps := 1; steps <= 33; steps++ {
				compareWithTwin(t, r, k, rawCall{h: h, cols: 37, steps: steps, acc: steps%2 == 0, gap: r.IntN(2) == 0})
			}
		}
	}
}

// Products of few rows of bytes take the other kernel, with the same bits; products of bf16 do not have one.
func TestFewRowsOfBytesTakeVectors(t *testing.T) {
	r := rand.New(rand.NewPCG(65, 66))
	tiles := tileTwins()[1]
	vectors := &kernel{name: "vectors", isa: cpuinfo.Portable, a: aS8, b: tiles.b, acc: S32, mr: 14}
	vectors.full = twins(vectors.mr, vectors.twin)
	kn, err := NewKnobs(map[string]int{"tile-rows": 5})
	require.NoError(t, err)
	for m := 1; m <= 20; m++ {
		const n, depth = 70, 75
		a, b, c := operand(r, S8, m, depth), operand(r, S8, depth, n), make([]int32, m*n)
		w := new(Workspace)
		useKernel(t, w, tiles, S8, format{})
		w.prod.engine.low = vectors
		require.NoError(t, Mul(Of(c, m, n), a, b, &Options{Workspace: w, Knobs: kn}))
		require.Equal(t, refInt(a, b, 0), c)
		require.Equal(t, m >= 5, w.prod.kern == tiles, "%d rows", m)
		pa, err := packA(a, w.prod.engine.ofA())
		require.NoError(t, err)
		require.NoError(t, MulPackedA(Of(c, m, n), pa, b, &Options{Workspace: w, Knobs: kn}))
		require.Equal(t, refInt(a, b, 0), c)
	}
	in := cpuinfo.Get()
	if !in.Has(cpuinfo.AMX) {
		return
	}
	for _, x := range []struct {
		a, b Type
		has  bool
	}{{S8, S8, in.Features.AMXInt8}, {U8, S8, in.Features.AMXInt8}, {BF16, BF16, in.Features.AMXBF16}} {
		e, err := engineFor(cpuinfo.AMX, x.a, x.b, format{}, Auto)
		require.NoError(t, err)
		require.Equal(t, x.has, e.main.tile > 0)
		require.Equal(t, x.has && x.b == BF16, e.low.tile > 0)
		below, err := engineFor(cpuinfo.AVX512, x.a, x.b, format{}, Dot)
		require.NoError(t, err)
		require.Zero(t, below.main.tile, "a lower level has no tiles")
		require.Equal(t, below.pack, e.pack, "packed weights serve both")
	}
}

// Subnormal operands count as zero, and so do subnormal results; a sum that was subnormal is lost.
func TestTilesFlushSubnormals(t *testing.T) {
	for _, k := range tileKernelsHere() {
		if k.acc != F32 {
			continue
		}
		const m, n, depth = 2, 3, 4
		a, b, c := make([]BFloat16, m*depth), make([]BFloat16, depth*n), make([]float32, m*n)
		for i := range a {
			a[i] = BFloat16(toBF16(0x1p-70))
		}
		for i := range b {
			b[i] = BFloat16(toBF16(0x1p-60)) // the products are subnormal
		}
		w := new(Workspace)
		o := &Options{Workspace: w, Accumulate: true}
		useKernel(t, w, k, BF16, format{})
		for i := range c {
			c[i] = 0x1p-130
		}
		require.NoError(t, Mul(Of(c, m, n), Of(a, m, depth), Of(b, depth, n), o))
		require.Equal(t, make([]float32, m*n), c, k.name)
		a[0], a[1] = 1, BFloat16(toBF16(0x1p-66)) // a subnormal number, and one whose products are normal
		b[0] = BFloat16(toBF16(0x1p127))
		require.NoError(t, Mul(Of(c, m, n), Of(a, m, depth), Of(b, depth, n), o))
		require.Equal(t, []float32{0x1.1p-126, 0x1.1p-126, 0x1.1p-126, 0x1p57, 0, 0}, c, k.name)
	}
}

// Strips of tiles are whole tiles but for the last one.
func TestStripsOfTiles(t *testing.T) {
	k := tileTwins()[0]
	for _, x := range []struct {
		rows int
		want []int
	}{{1, []int{1}}, {16, []int{16}}, {17, []int{17}}, {32, []int{32}}, {33, []int{32, 1}}, {40, []int{32, 8}}, {64, []int{32, 32}}, {65, []int{32, 32, 1}},
		{90, []int{32, 32, 26}}, {112, []int{32, 32, 32, 16}}} {
		p := product{kern: k, height: k.mr, mp: x.rows}
		p.cutRows(x.rows)
		var got []int
		at := 0
		for s := range p.strips {
			row, h := p.strip(s)
			require.Equal(t, at, row, "%d rows, strip %d", x.rows, s)
			require.LessOrEqual(t, h, p.tallest())
			at += h
			got = append(got, h)
		}
		require.Equal(t, x.want, got, "%d rows", x.rows)
	}
}
