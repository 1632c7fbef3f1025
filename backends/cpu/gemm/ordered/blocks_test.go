package ordered

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
	"github.com/tessera-go/tessera/quant/bfp16"
)

// place says in which piece the element of row or column x at k lies, and where in it.
func place(l Layout, x, k int) (piece, at int) {
	i := map[Layout]int{Rows8: 8*x + k, Columns8: 8*k + x, Columns4: x/4*32 + 4*k + x%4}[l]
	return i / 32, i % 32
}

func TestPack8(t *testing.T) {
	hasLevels(t, func(l levels) {
		if l.blocks == cpuinfo.Portable {
			return
		}
		rng := rand.New(rand.NewPCG(11, 1))
		for round := range 100 {
			n, gap := 1+rng.IntN(9), rng.IntN(5)
			if round%25 == 0 {
				n += 2 * callBlocks
			}
			// A: both pieces of a block behind each other, or each in a run of its own.
			half, step := 32, 64+gap
			if rng.IntN(2) == 0 {
				half, step = 32*n+gap, 32
			}
			src := guarded[byte](t, (n-1)*step+half+32)
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			dst := guarded[byte](t, 64*n)
			require.True(t, l.a8(dst, src, half, step, n))
			for i := range 8 * 8 * n {
				row, k := i/(8*n), i%(8*n)
				require.Equal(t, src[k/8*step+row/4*half+row%4*8+k%8]+128, dst[k/4*32+row*4+k%4])
			}

			layout, w := []Layout{Rows8, Columns8}[rng.IntN(2)], 32+16*rng.IntN(2)
			step = 64 + gap
			src = guarded[byte](t, (n-1)*step+64)
			for i := range src {
				src[i] = byte(rng.Uint32())
				if rng.IntN(2) == 0 {
					src[i] = 128
				}
			}
			panel := guarded[int8](t, (2*n-1)*4*w+32)
			for i := range panel {
				panel[i] = 77
			}
			var sums, want [8]int32
			require.True(t, l.b8(panel, w, src, step, n, layout, &sums))
			for i, v := range panel {
				line, at := i/(4*w), i%(4*w)
				if at >= 32 {
					require.Equal(t, int8(77), v, "outside of the columns")
					continue
				}
				x, k := at/4, 4*line+at%4
				piece, in := place(layout, x, k%8)
				require.Equal(t, int8(src[k/8*step+32*piece+in]), v)
				want[x] += int32(v)
			}
			require.Equal(t, want, sums)
			require.False(t, l.b8(panel, w, src, step, n, Columns4, &sums), "bytes have no such layout")
		}
	})
}

// draw returns a bf16 of a scale, or now and then a zero, a subnormal, a tie or something that is not finite.
func draw(rng *rand.Rand, scale float64, special bool) uint16 {
	v := uint16(math.Float32bits(float32(rng.NormFloat64()*math.Exp2(scale+float64(rng.IntN(12))))) >> 16)
	switch rng.IntN(12) {
	case 0:
		return uint16(rng.IntN(2)) << 15
	case 1:
		return uint16(rng.IntN(128)) | uint16(rng.IntN(2))<<15
	case 2:
		return v &^ 0x3F
	case 3:
		if special && rng.IntN(8) == 0 {
			return 0x7F80 | uint16(rng.IntN(3)) | uint16(rng.IntN(2))<<15
		}
	}
	return v
}

func TestPack16(t *testing.T) {
	hasLevels(t, func(l levels) {
		if l.blocks == cpuinfo.Portable {
			return
		}
		rng := rand.New(rand.NewPCG(12, 1))
		for round := range 400 {
			n, gap := 1+rng.IntN(6), 2*rng.IntN(3)
			if round%50 == 7 {
				n += 2 * callBlocks
			}
			half, step := 64, 128+gap
			if rng.IntN(2) == 0 {
				half, step = 64*n+gap, 64
			}
			src := guarded[byte](t, (n-1)*step+half+64)
			scale := []float64{0, -110, 100, -140, 112}[rng.IntN(5)]
			quiet := rng.IntN(8) == 0 // a whole operand of zeros and subnormals
			for i := 0; i+1 < len(src); i += 2 {
				v := draw(rng, scale, round%2 == 0)
				if quiet {
					v &= 0x807F
				}
				binary.LittleEndian.PutUint16(src[i:], v)
			}
			layout, q := Layout(rng.IntN(int(numLayouts))), Quant(rng.IntN(3))
			name := fmt.Sprintf("%v: layout %d, quantization %d, %d blocks", l.blocks, layout, q, n)

			// By the definition: rows or columns as float32, each group of 8 through its block.
			var want [8][]float32
			lo, hi := 255, 0
			for x := range want {
				want[x] = make([]float32, 8*n)
				for k := range want[x] {
					piece, at := place(layout, x, k%8)
					want[x][k] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[k/8*step+piece*half+2*at:])) << 16)
				}
				if q == Plain {
					continue
				}
				blocks := make([]byte, bfp16.Size(8*n))
				bfp16.Encode(blocks, want[x], map[Quant]bfp16.Rounding{Even: bfp16.NearestEven, Floor: bfp16.Floor}[q])
				for g := range n {
					e := 0
					for _, v := range want[x][8*g : 8*g+8] {
						e = max(e, int(math.Float32bits(v)>>23&255))
					}
					if e > 0 && e < 255 {
						lo, hi = min(lo, e), max(hi, e)
					}
				}
				bfp16.Decode(want[x], blocks)
			}
			ok := lo > hi || lo >= quickLo && hi <= quickHi

			panel := 32*n + rng.IntN(9)
			a := guarded[float32](t, panel+32*n)
			for i := range a {
				a[i] = 77
			}
			e, done := l.a16(a, panel, src, half, step, n, layout, q)
			require.Equal(t, ok, done, name)
			require.Equal(t, Exps{lo, hi}, e, name)
			w := 8 + 8*rng.IntN(6)
			b := guarded[float32](t, (8*n-1)*w+8)
			for i := range b {
				b[i] = 77
			}
			e, done = l.b16(b, w, src, half, step, n, layout, q)
			require.Equal(t, ok, done, name)
			require.Equal(t, Exps{lo, hi}, e, name)
			if !ok {
				continue
			}
			for x := range want {
				for k, v := range want[x] {
					require.True(t, sameBits(v, a[x/4*panel+4*k+x%4]), "%s: A row %d k %d: want %x got %x", name, x, k, math.Float32bits(v), math.Float32bits(a[x/4*panel+4*k+x%4]))
					require.True(t, sameBits(v, b[k*w+x]), "%s: B column %d k %d", name, x, k)
				}
			}
			for i := 32 * n; i < panel; i++ {
				require.Equal(t, float32(77), a[i], name)
			}
			for i, v := range b {
				if i%w >= 8 {
					require.Equal(t, float32(77), v, name)
				}
			}
		}
	})
}

// What has no kernel is refused, and short operands are seen before a kernel runs.
func TestPackRefusals(t *testing.T) {
	var sums [8]int32
	portable := levels{cpuinfo.Portable, cpuinfo.Portable, cpuinfo.Portable}
	require.False(t, portable.a8(make([]byte, 64), make([]byte, 64), 32, 64, 1))
	require.False(t, portable.b8(make([]int8, 2*4*32), 32, make([]byte, 64), 64, 1, Rows8, &sums))
	_, ok := portable.a16(make([]float32, 64), 32, make([]byte, 128), 64, 128, 1, Rows8, Plain)
	require.False(t, ok)
	_, ok = portable.b16(make([]float32, 8*32), 32, make([]byte, 128), 64, 128, 1, Rows8, Plain)
	require.False(t, ok)
	hasLevels(t, func(l levels) {
		if l.blocks == cpuinfo.Portable {
			return
		}
		require.False(t, l.a8(nil, nil, 32, 64, 0))
		require.Panics(t, func() { l.a8(make([]byte, 63), make([]byte, 64), 32, 64, 1) })
		require.Panics(t, func() { l.b8(make([]int8, 4*32+31), 32, make([]byte, 64), 64, 1, Rows8, &sums) })
		require.Panics(t, func() { l.a16(make([]float32, 64), 32, make([]byte, 127), 64, 128, 1, Rows8, Plain) })
		require.Panics(t, func() { l.b16(make([]float32, 7*32+7), 32, make([]byte, 128), 64, 128, 1, Rows8, Plain) })
	})
}

func BenchmarkPack(b *testing.B) {
	hasLevels(b, func(l levels) {
		if l.blocks == cpuinfo.Portable {
			return
		}
		const n = 9
		src, words := make([]byte, 128*n), make([]byte, 128*n)
		rng := rand.New(rand.NewPCG(13, 1))
		for i := 0; i < len(words); i += 2 {
			binary.LittleEndian.PutUint16(words[i:], draw(rng, 0, false))
		}
		bytes, ints, floats := make([]byte, 64*n), make([]int8, 8*n*48), make([]float32, 8*n*48)
		var sums [8]int32
		for name, f := range map[string]func(){
			"A8":          func() { l.a8(bytes, src, 32, 64, n) },
			"B8":          func() { l.b8(ints, 48, src, 64, n, Columns8, &sums) },
			"A16/plain":   func() { l.a16(floats, 32*n, words, 64, 128, n, Rows8, Plain) },
			"A16/even":    func() { l.a16(floats, 32*n, words, 64, 128, n, Rows8, Even) },
			"B16/floor":   func() { l.b16(floats, 48, words, 64, 128, n, Rows8, Floor) },
			"B16/columns": func() { l.b16(floats, 48, words, 64, 128, n, Columns8, Even) },
		} {
			b.Run(fmt.Sprintf("%s/%v", name, l.blocks), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				b.ReportMetric(float64(64*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gvalues/s")
			})
		}
	})
}
