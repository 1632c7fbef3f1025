package ordered

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/cpuinfo"
)

// TestCallsAreShort: a call of assembly cannot be interrupted, so that its steps are bounded, whatever k is and in whatever chunks it comes; the bits are those of
// one call.
func TestCallsAreShort(t *testing.T) {
	oldF32, oldS8, oldUse := callF32, callS8, use
	t.Cleanup(func() { callF32, callS8, use = oldF32, oldS8, oldUse })
	name, steps, calls, chunksDone := "", 0, 0, 0
	callF32 = func(isa cpuinfo.ISA, c []float32, ldc int, a, b []float32, w, chunks, k int, groups bool, narrow Narrow) {
		if chunks*max(k, chunkSteps) > callSteps {
			t.Errorf("%s: a call of %d chunks of %d steps", name, chunks, k)
		}
		steps += chunks * k
		calls++
		chunksDone += chunks
		oldF32(isa, c, ldc, a, b, w, chunks, k, groups, narrow)
	}
	callS8 = func(isa cpuinfo.ISA, c []int32, ldc int, a []byte, b []int8, bias []int32, w, k int) {
		if k > callStepsS8 {
			t.Errorf("%s: a call of %d steps", name, k)
		}
		steps += k
		calls++
		oldS8(isa, c, ldc, a, b, bias, w, k)
	}
	rng := rand.New(rand.NewPCG(21, 2))
	const m, n = 5, 77 // two strips of F32, one of S8; a panel of each width
	hasLevels(t, func(l levels) {
		use = l
		cols := PaddedN(n)
		for i, s := range [][2]int{{1, 3*callSteps + 8}, {1, callSteps}, {1, callSteps + 8}, {3, 2 * callSteps}, {2, callSteps + 16}, {300, 16}, {200, 1}, {7, 200}, {5000, 0}} {
			chunks, k := s[0], s[1]
			groups, narrow := k%8 == 0 && i%2 == 0, Narrow(i%3)
			name = fmt.Sprintf("%v: %d chunks of %d, groups %v, narrowing %d", l.f32, chunks, k, groups, narrow)
			depth, rows := chunks*k, PaddedM(m, MR)
			a, b, c := make([]float32, rows*depth), make([]float32, cols*depth), make([]float32, rows*cols)
			for _, x := range [][]float32{a, b, c} {
				for i := range x {
					if x[i] = bf16(rng, false); groups {
						x[i] = float32(rng.IntN(256) - 128)
					}
				}
			}
			want := append([]float32(nil), c...)
			for i := 0; i < rows; i += MR {
				for j, w := 0, 48; j < cols; j, w = j+w, 32 {
					tileF32Go(want[i*cols+j:], cols, a[i*depth:], b[j*depth:], w, chunks, k, groups, narrow)
				}
			}
			steps, calls, chunksDone = 0, 0, 0
			F32(c, cols, a, MR*depth, b, depth, m, n, chunks, k, groups, narrow)
			require.Equal(t, 4*depth, steps, name)
			require.GreaterOrEqual(t, chunksDone, 4*chunks, name)
			require.LessOrEqual(t, calls, 4*(1+chunks*max(k, chunkSteps)/(callSteps/2)), name)
			for i := range want {
				require.True(t, sameBits(want[i], c[i]), "%s: row %d column %d", name, i/cols, i%cols)
			}
		}
		for _, k := range []int{4, callStepsS8, callStepsS8 + 4, 3*callStepsS8 - 8} {
			name = fmt.Sprintf("%v: bytes, k %d", l.s8, k)
			a, b, bias, c := make([]byte, MRS8*k), make([]int8, cols*k), make([]int32, cols), make([]int32, MRS8*cols)
			for i := range a {
				a[i] = byte(rng.Uint32())
			}
			for i := range b {
				b[i] = int8(rng.Uint32())
			}
			for i := range bias {
				bias[i] = int32(rng.Uint32())
			}
			for i := range c {
				c[i] = int32(rng.Uint32())
			}
			want := append([]int32(nil), c...)
			tileS8Go(want, cols, a, b, bias, 48, k)
			tileS8Go(want[48:], cols, a, b[48*k:], bias[48:], 32, k)
			steps, calls = 0, 0
			S8(c, cols, a, MRS8*k, b, k, bias, m, n, k)
			require.Equal(t, 2*k, steps, name)
			require.Equal(t, 2*((k+callStepsS8-1)/callStepsS8), calls, name)
			require.Equal(t, want, c, name)
		}
	})
}

// Blocks too many for one call are packed in several, each block once, and dividing them costs no memory.
func TestPiecesOfBlocks(t *testing.T) {
	for _, n := range []int{0, 1, callBlocks, callBlocks + 1, 3*callBlocks + 5} {
		next := 0
		for at, size := range pieces(n) {
			require.Equal(t, next, at)
			require.True(t, 0 < size && size <= callBlocks)
			next += size
		}
		require.Equal(t, n, next)
	}
	hasLevels(t, func(l levels) {
		if l.blocks == cpuinfo.Portable {
			return
		}
		const n = callBlocks + 1
		src, bytes, ints, floats := make([]byte, 128*n), make([]byte, 64*n), make([]int8, 8*48*n), make([]float32, 8*48*n)
		var sums [8]int32
		require.Zero(t, testing.AllocsPerRun(3, func() {
			l.a8(bytes, src, 32, 64, n)
			l.b8(ints, 48, src, 64, n, Rows8, &sums)
			l.a16(floats, 32*n, src, 64, 128, n, Rows8, Even)
			l.b16(floats, 48, src, 64, 128, n, Rows8, Floor)
		}))
	})
}
