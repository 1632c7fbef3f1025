package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tessera-go/tessera/internal/fma"
)

// edgeShapes returns shapes around the tiles of all kernels; the longer list is for runs without -short... kept small because
// each is run for every type and level.
func edgeShapes(r *rand.Rand, n int) [][3]int {
	ms := []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 27, 28, 29, 33, 57}
	ns := []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 127, 128, 129, 160, 200}
	ks := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 131}
	var s [][3]int
	for range n {
		s = append(s, [3]int{ms[r.IntN(len(ms))], ns[r.IntN(len(ns))], ks[r.IntN(len(ks))]})
	}
	return s
}

func bf16s(r *rand.Rand, n int) []BFloat16 {
	v := make([]BFloat16, n)
	for i := range v {
		v[i] = BFloat16(toBF16(r.Float32()*2 - 1))
	}
	return v
}

func f16s(r *rand.Rand, n int) []Float16 {
	v := make([]Float16, n)
	for i := range v {
		v[i] = Float16(toF16(r.Float32()*2 - 1))
	}
	return v
}

func ints8(r *rand.Rand, n int) []int8 {
	v := make([]int8, n)
	for i := range v {
		v[i] = int8(r.IntN(256) - 128)
		if r.IntN(8) == 0 {
			v[i] = [...]int8{-128, 127}[r.IntN(2)]
		}
	}
	return v
}

func uints8(r *rand.Rand, n int) []uint8 {
	v := make([]uint8, n)
	for i := range v {
		v[i] = uint8(r.IntN(256))
		if r.IntN(8) == 0 {
			v[i] = 255
		}
	}
	return v
}

// operand makes a random matrix of a type with a random layout.
func operand(r *rand.Rand, t Type, rows, cols int) Matrix {
	rs, cs := cols+r.IntN(3), 1
	switch r.IntN(4) {
	case 0:
		rs, cs = 1, rows+r.IntN(3)
	case 1:
		cs = 2 + r.IntN(2)
		rs = cols*cs + r.IntN(3)
	}
	n := (rows-1)*rs + (cols-1)*cs + 1
	off := r.IntN(4)
	switch t {
	case F32:
		return View(floats(r, n+off)[off:], rows, cols, rs, cs)
	case BF16:
		return View(bf16s(r, n+off)[off:], rows, cols, rs, cs)
	case F16:
		return View(f16s(r, n+off)[off:], rows, cols, rs, cs)
	case S8:
		return View(ints8(r, n+off)[off:], rows, cols, rs, cs)
	case U8:
		return View(uints8(r, n+off)[off:], rows, cols, rs, cs)
	}
	panic(t)
}

// value reads an element as float32; integers of the types are exact in it.
func (m Matrix) value(i, j int) float32 {
	p := m.at(i, j)
	switch m.typ {
	case F32:
		return *(*float32)(p)
	case BF16:
		return fromBF16(*(*uint16)(p))
	case F16:
		return fromF16(*(*uint16)(p))
	case S8:
		return float32(*(*int8)(p))
	case U8:
		return float32(*(*uint8)(p))
	}
	return float32(*(*int32)(p))
}

// sums is the definition: chains for float types, exact sums for integers.
func refFloat(a, b Matrix) []float32 {
	c := make([]float32, a.Rows*b.Cols)
	for i := range a.Rows {
		for j := range b.Cols {
			var s float32
			for t := range a.Cols {
				s = fma.F32(a.value(i, t), b.value(t, j), s)
			}
			c[i*b.Cols+j] = s
		}
	}
	return c
}

func refInt(a, b Matrix, zero int32) []int32 {
	c := make([]int32, a.Rows*b.Cols)
	for i := range a.Rows {
		for j := range b.Cols {
			var s int32
			for t := range a.Cols {
				s += (int32(a.value(i, t)) - zero) * int32(b.value(t, j))
			}
			c[i*b.Cols+j] = s
		}
	}
	return c
}

func TestFloatTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, isa := range isas() {
		for _, types := range [][2]Type{{F32, F32}, {F32, BF16}, {F32, F16}, {BF16, BF16}, {F16, F16}, {BF16, F32}} {
			for _, s := range edgeShapes(r, 40) {
				m, n, k := s[0], s[1], s[2]
				a, b := operand(r, types[0], m, k), operand(r, types[1], k, n)
				want := refFloat(a, b)
				o := &Options{ISA: isa, Threads: 1 + r.IntN(3), BF16: Widen}
				name := fmt.Sprintf("%v %v %dx%dx%d", isa, types, m, n, k)
				c := make([]float32, m*n)
				require.NoError(t, Mul(Of(c, m, n), a, b, o))
				require.Equal(t, want, c, "plain %s", name)
				p, err := PackB(b, o)
				require.NoError(t, err)
				c = make([]float32, m*n)
				require.NoError(t, MulPacked(Of(c, m, n), a, p, o))
				require.Equal(t, want, c, "packed B %s", name)
				pa, err := PackA(a, types[1], o)
				require.NoError(t, err)
				c = make([]float32, m*n)
				require.NoError(t, MulPackedA(Of(c, m, n), pa, b, o))
				require.Equal(t, want, c, "packed A %s", name)
				c = make([]float32, m*n)
				require.NoError(t, MulPackedAB(Of(c, m, n), pa, p, o))
				require.Equal(t, want, c, "both packed %s", name)
				ct := make([]float32, m*n)
				require.NoError(t, Mul(View(ct, m, n, 1, m), a, b, o))
				for i := range m {
					for j := range n {
						require.Equal(t, want[i*n+j], ct[j*m+i], "column-major C %s", name)
					}
				}
			}
		}
	}
}

func TestIntTypes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, isa := range isas() {
		for _, at := range []Type{S8, U8} {
			for _, s := range edgeShapes(r, 60) {
				m, n, k := s[0], s[1], s[2]
				a, b := operand(r, at, m, k), operand(r, S8, k, n)
				zero := int32(0)
				if r.IntN(2) == 0 {
					zero = int32(r.IntN(100)) - 20
				}
				want := refInt(a, b, zero)
				o := &Options{ISA: isa, Threads: 1 + r.IntN(3), AZero: zero}
				name := fmt.Sprintf("%v %v %dx%dx%d zero %d", isa, at, m, n, k, zero)
				c := make([]int32, m*n)
				require.NoError(t, Mul(Of(c, m, n), a, b, o))
				require.Equal(t, want, c, "plain %s", name)
				p, err := PackB(b, o)
				require.NoError(t, err)
				c = make([]int32, m*n)
				require.NoError(t, MulPacked(Of(c, m, n), a, p, o))
				require.Equal(t, want, c, "packed B %s", name)
				o.Accumulate = true
				require.NoError(t, MulPacked(Of(c, m, n), a, p, o))
				for i := range want {
					require.Equal(t, 2*want[i], c[i], "accumulate %s", name)
				}
				o.Accumulate = false
				pa, err := PackA(a, S8, o)
				require.NoError(t, err)
				require.NoError(t, MulPackedA(Of(c, m, n), pa, b, o))
				require.Equal(t, want, c, "packed A %s", name)
			}
		}
	}
}

// Values at which saturating pairs go wrong (oneDNN issue 518, onnxruntime pull request 12088).
func TestIntExtremes(t *testing.T) {
	for _, isa := range isas() {
		for _, k := range []int{1, 2, 3, 4, 64, 65, 4096} {
			a, s, b, w := make([]uint8, k), make([]int8, k), make([]int8, k), make([]int8, k)
			for i := range a {
				a[i], s[i], b[i], w[i] = 255, -128, 127, -128
			}
			var c [1]int32
			o := &Options{ISA: isa}
			require.NoError(t, Mul(Of(c[:], 1, 1), Of(a, 1, k), Of(b, k, 1), o))
			require.EqualValues(t, 255*127*k, c[0])
			require.NoError(t, Mul(Of(c[:], 1, 1), Of(s, 1, k), Of(w, k, 1), o))
			require.EqualValues(t, 128*128*k, c[0])
			require.NoError(t, Mul(Of(c[:], 1, 1), Of(b, 1, k), Of(b, k, 1), o))
			require.EqualValues(t, 127*127*k, c[0])
		}
	}
}

func TestDotBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, isa := range isas() {
		for _, s := range edgeShapes(r, 30) {
			m, n, k := s[0], s[1], s[2]
			a, b := operand(r, BF16, m, k), operand(r, BF16, k, n)
			c := make([]float32, m*n)
			p, err := PackB(b, &Options{ISA: isa})
			require.NoError(t, err)
			require.NoError(t, MulPacked(Of(c, m, n), a, p, &Options{ISA: isa, BF16: Dot}))
			for i := range m {
				for j := range n {
					var sum, abs float64
					for q := range k {
						v := float64(a.value(i, q)) * float64(b.value(q, j))
						sum, abs = sum+v, abs+math.Abs(v)
					}
					require.InDelta(t, sum, float64(c[i*n+j]), (8+2*math.Sqrt(float64(k)))*abs/(1<<24))
				}
			}
		}
	}
}
